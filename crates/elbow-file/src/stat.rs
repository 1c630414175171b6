//! What an object on the storage is: its type, its attributes, its entry in a directory.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};

use crate::{Errno, Result};

/// The type of a file system object, as inode(7) has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FileType {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

/// A point in time: seconds since 1970 and nanoseconds within the second, as `struct timespec`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Time {
    /// Whole seconds since the epoch; negative before it.
    pub seconds: i64,
    /// Nanoseconds, `0..1_000_000_000`.
    pub nanoseconds: u32,
}

/// The attributes of an object, as stat(2) gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// What it is.
    pub kind: FileType,
    /// Permission bits with set-user-id, set-group-id and sticky: `mode & 0o7777`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names.
    pub nlink: u32,
    /// Size in bytes (length of the target for a symbolic link).
    pub size: u64,
    /// Space taken, in 512-byte units.
    pub blocks: u64,
    /// Device numbers of a device node, as `st_rdev`.
    pub rdev: u64,
    /// Inode number.
    pub ino: u64,
    /// Device that holds the object, as `st_dev`.
    pub dev: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// What it is protected from, whatever its mode says.
    pub protection: Protection,
    /// The file system encrypts its content and, of a directory, its names (fscrypt).
    pub is_encrypted: bool,
    /// It has several names, and a change by one of them leaves the others as they are: a file of a lower layer of overlayfs, which
    /// has no index.
    pub breaks_links: bool,
}

/// What nobody may do to an object before chattr(1) allows it again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protection {
    /// Nothing; or the storage does not say.
    #[default]
    None,
    /// Anything but appending, or, to a directory, making names in it.
    AppendOnly,
    /// Any change.
    Immutable,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirEntry {
    /// The name, never `.` or `..`.
    pub name: OsString,
    /// What the directory says it is; `None` where the file system does not say.
    pub kind: Option<FileType>,
    /// Inode number as the directory gives it.
    pub ino: u64,
}

impl DirEntry {
    /// Whether the name is one of an entry of a directory: what another machine says need not be.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let name = self.name.as_encoded_bytes();
        !matches!(name, b"" | b"." | b"..") && !name.iter().any(|byte| matches!(byte, b'/' | 0))
    }
}

impl Stat {
    /// Whether its times are times.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        [self.atime, self.mtime, self.ctime]
            .iter()
            .all(|time| time.nanoseconds < 1_000_000_000)
    }
}

/// Free and total space, as statvfs(3) gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// Fragment size in bytes: the unit of the block counts.
    pub fragment_bytes: u64,
    /// All blocks.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks for ordinary users.
    pub blocks_available: u64,
    /// All inodes; 0 where the file system does not count them.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Longest name in bytes.
    pub name_max: u32,
}

/// Refuses what is no regular file, with the errno that says what it is.
pub(crate) fn regular(kind: FileType) -> Result<()> {
    match kind {
        FileType::File => Ok(()),
        FileType::Dir => Err(Errno::ISDIR),
        FileType::Fifo | FileType::Socket => Err(Errno::SPIPE),
        FileType::Symlink | FileType::CharDevice | FileType::BlockDevice => Err(Errno::NODEV),
    }
}
