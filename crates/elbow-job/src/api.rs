//! What a front end says to a job and hears from it.

use std::ffi::OsString;

use elbow_file::{Errno, FileType, Time};

use crate::abilities::Ability;

/// An object inside one job. Numbers are never used again; the root is [`Ino::ROOT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Ino(pub u64);

impl Ino {
    /// The directory that the job is over.
    pub const ROOT: Ino = Ino(1);
}

/// The attributes of an object as the job sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// The object that these are the attributes of.
    pub ino: Ino,
    /// The inode number to show: that of the storage for what existed before the job.
    pub visible_ino: u64,
    /// Who else has that number.
    pub number: Numbered,
    /// Its type: directory, regular file, symbolic link, ...
    pub kind: FileType,
    /// `mode & 0o7777`.
    pub mode: u32,
    /// User id of the owner.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Number of names.
    pub nlink: u32,
    /// Size in bytes.
    pub size: u64,
    /// Space taken, in 512-byte units.
    pub blocks: u64,
    /// Device numbers of a device node.
    pub rdev: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
}

/// Whose an inode number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbered {
    /// The object's own.
    Alone,
    /// Also that of other old files, which are the same until one of them is changed ([`elbow_file::Stat::breaks_links`]).
    Shared,
    /// That of other old files, which were the same before this one was changed.
    Parted,
}

/// Inode numbers to show for objects that the storage has not numbered yet begin here.
pub(crate) const NEW_INODES: u64 = 1 << 48;

impl Attr {
    /// The job made the object.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.visible_ino == NEW_INODES + self.ino.0
    }
}

/// The process on whose behalf an object is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// The umask to take from the mode of new objects (0 where the kernel has done it).
    pub umask: u32,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time of the call.
    Now,
    /// This time.
    At(Time),
}

/// The attributes to set; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// The size is set through a name: truncate(2) leaves the times of a file whose size stays, ftruncate(2) and `O_TRUNC` set them.
    pub by_name: bool,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of content.
    pub mtime: Option<SetTime>,
    /// What becomes of set-user-id and set-group-id.
    pub set_ids: SetIds,
}

/// What a change takes of the set-user-id and set-group-id bits of a file: writes, sizes and owners that somebody sets, for all but root,
/// and owners for root, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetIds {
    /// Nothing: root, or a change that takes none.
    #[default]
    Stay,
    /// Set-user-id, and set-group-id of what its group may execute.
    Go,
    /// It is made by who is not in the file's group, and takes set-group-id from it, whoever may execute it. (FUSE leaves it.)
    GoByStranger,
}

/// How setxattr(2) treats what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Create or replace.
    Any,
    /// It must not exist (EEXIST).
    Create,
    /// It must exist (ENODATA).
    Replace,
}

/// One name of a directory, as readdir gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The object (0 is never used).
    pub ino: Ino,
    /// The inode number to show.
    pub visible_ino: u64,
    /// What it is.
    pub kind: FileType,
    /// The name.
    pub name: OsString,
}

/// Why an operation was not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpError {
    /// The answer is an error.
    Errno(Errno),
    /// Something has to be asked of the storage first, or room has to become free; do it with
    /// [`Job::fetch`](crate::Job::fetch) on a thread that may block, then ask again.
    NeedsStorage(Fetch),
}

impl From<Errno> for OpError {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

/// What has to be asked of the storage before an operation can be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fetch {
    /// The names of an old directory, with their attributes.
    List(Ino),
    /// One name in an old directory that may be entered and not be read.
    Name(Ino, OsString),
    /// The attributes of an old object.
    Attributes(Ino),
    /// The target of an old symbolic link.
    Target(Ino),
    /// The extended attributes of an old object.
    Xattrs(Ino),
    /// A descriptor of the object on the storage, to read from.
    Open(Ino),
    /// Room for this many bytes of written data.
    Room(u64),
    /// Fresh numbers of free space.
    Space,
    /// Whether the storage can do something at all.
    Ability(Ability),
    /// What the storage is like.
    FileSystemTraits,
    /// Whether the storage lets an old directory be renamed.
    Moves(Ino),
    /// Whether anything in an old directory can be changed.
    Writable(Ino),
}

impl Fetch {
    /// The object that it is about, if it is about one.
    pub(crate) fn about(&self) -> Option<Ino> {
        match self {
            Self::List(ino)
            | Self::Name(ino, _)
            | Self::Attributes(ino)
            | Self::Target(ino)
            | Self::Xattrs(ino)
            | Self::Open(ino)
            | Self::Moves(ino)
            | Self::Writable(ino) => Some(*ino),
            Self::Room(_) | Self::Space | Self::Ability(_) | Self::FileSystemTraits => None,
        }
    }
}

/// What an operation gives.
pub type Answer<T> = Result<T, OpError>;
