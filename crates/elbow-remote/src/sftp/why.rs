//! Which errno it was: a server has words for three or four of them, and says `Failure` to all others.
//!
//! What is there now is looked at, as somebody would who reads "Failure": a name that was to be made and is there was there before, a directory that
//! was to be removed and has entries was not empty. The look comes later than the failure, so what others change meanwhile makes another error of
//! it, and never a success.

use elbow_file::{Errno, FileType, Space};

use super::server::Server;
use super::session::{Answered, Fault, Session};
use super::wire::{Ask, Attrs, Fields, Request, Status};

/// The type in a mode, as inode(7) has it.
const TYPE: u32 = 0o170_000;
/// A file system that nobody may write to: the first bit of `f_flag`.
const READ_ONLY: u64 = 1;
/// Longer names have very few file systems.
const NAME_BYTES: usize = 255;

impl Fault {
    /// The errno, where nothing more is to be found out.
    pub(crate) fn errno(self) -> Errno {
        match self {
            Self::Lost(errno) => errno,
            Self::Said(status) => match status {
                Status::NoSuchFile => Errno::NOENT,
                Status::PermissionDenied => Errno::ACCESS,
                Status::EndOfFile | Status::Failure => Errno::IO,
                Status::BadMessage => Errno::INVAL,
                Status::NoConnection => Errno::NOTCONN,
                Status::Unsupported => Errno::OPNOTSUPP,
            },
        }
    }
}

/// What an object is.
pub(crate) fn kind_of(attrs: &Attrs) -> Option<FileType> {
    Some(match attrs.mode? & TYPE {
        0o100_000 => FileType::File,
        0o040_000 => FileType::Dir,
        0o120_000 => FileType::Symlink,
        0o010_000 => FileType::Fifo,
        0o140_000 => FileType::Socket,
        0o020_000 => FileType::CharDevice,
        0o060_000 => FileType::BlockDevice,
        _ => return None,
    })
}

/// What a server says of the file system of a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) space: Space,
    number: u64,
    is_read_only: bool,
}

/// Looks that find out why.
impl Session {
    pub(crate) fn lstat(&self, path: &[u8]) -> Answered<Attrs> {
        self.send(Request::new(Ask::Lstat).string(path)).attrs()
    }

    fn kind(&self, path: &[u8]) -> Option<FileType> {
        self.lstat(path).ok().as_ref().and_then(kind_of)
    }

    pub(crate) fn room(&self, path: &[u8]) -> Answered<Room> {
        let fields = self.send(Request::extended(Server::SPACE).string(path)).extended()?;
        room(&fields).ok_or(Fault::Lost(Errno::PROTO))
    }

    /// Why no name could be made that is there, or is not.
    pub(crate) fn why_not_made(&self, path: &[u8], fault: Fault, is_there: bool) -> Errno {
        if is_there {
            return Errno::EXIST;
        }
        self.why_not(path, fault)
    }

    /// Why nothing could be changed at a path.
    pub(crate) fn why_not(&self, path: &[u8], fault: Fault) -> Errno {
        let (above, name) = split(path);
        match fault {
            Fault::Said(Status::BadMessage) if name.len() > NAME_BYTES => Errno::NAMETOOLONG,
            Fault::Said(Status::Failure) => self.room_is_missing(above, 1).unwrap_or(Errno::IO),
            other => other.errno(),
        }
    }

    /// Whether so many bytes would have had no room, or nobody may write there.
    pub(crate) fn room_is_missing(&self, path: &[u8], bytes: u64) -> Option<Errno> {
        let room = self.room(path).ok()?;
        let space = room.space;
        if room.is_read_only {
            return Some(Errno::ROFS);
        }
        let has_bytes = space.blocks_available.saturating_mul(space.fragment_bytes) >= bytes;
        let has_files = space.files == 0 || space.files_free > 0;
        (!has_bytes || !has_files).then_some(Errno::NOSPC)
    }

    /// Why no directory could be listed or opened there.
    pub(crate) fn why_no_dir(&self, path: &[u8], fault: Fault) -> Errno {
        match fault {
            Fault::Said(Status::NoSuchFile | Status::Failure)
                if self.kind(path).is_some_and(|kind| kind != FileType::Dir) =>
            {
                Errno::NOTDIR
            }
            other => other.errno(),
        }
    }

    /// Why a directory could not be removed that has entries, or not (`is_empty`).
    pub(crate) fn why_not_removed(&self, path: &[u8], fault: Fault, is_empty: impl Fn() -> bool) -> Errno {
        match (fault, self.kind(path)) {
            (Fault::Lost(errno), _) => errno,
            (Fault::Said(Status::NoSuchFile | Status::Failure), Some(FileType::Dir)) if !is_empty() => Errno::NOTEMPTY,
            (Fault::Said(Status::NoSuchFile | Status::Failure), Some(kind)) if kind != FileType::Dir => Errno::NOTDIR,
            (Fault::Said(Status::Failure), Some(_)) => self.room_is_missing(path, 0).unwrap_or(Errno::BUSY),
            (fault, _) => fault.errno(),
        }
    }

    /// Why a name could not be removed.
    pub(crate) fn why_not_unlinked(&self, path: &[u8], fault: Fault) -> Errno {
        match fault {
            // Some systems have another word for it.
            Fault::Said(Status::Failure | Status::PermissionDenied) if self.kind(path) == Some(FileType::Dir) => {
                Errno::ISDIR
            }
            other => self.why_not(path, other),
        }
    }

    /// Why nothing could be renamed.
    pub(crate) fn why_not_renamed(
        &self,
        (from, to): (&[u8], &[u8]),
        fault: Fault,
        is_empty: impl Fn() -> bool,
    ) -> Errno {
        let Fault::Said(Status::Failure | Status::NoSuchFile | Status::BadMessage) = fault else {
            return fault.errno();
        };
        match (self.kind(from), self.kind(to)) {
            (None, _) => Errno::NOENT,
            (Some(FileType::Dir), Some(FileType::Dir)) if !is_empty() => Errno::NOTEMPTY,
            (Some(FileType::Dir), Some(kind)) if kind != FileType::Dir => Errno::NOTDIR,
            (Some(kind), Some(FileType::Dir)) if kind != FileType::Dir => Errno::ISDIR,
            _ if fault == Fault::Said(Status::Failure) && self.are_apart(from, to) => Errno::XDEV,
            _ => self.why_not(to, fault),
        }
    }

    /// Whether two names would be on different file systems.
    fn are_apart(&self, from: &[u8], to: &[u8]) -> bool {
        let number = |path| self.room(split(path).0).map(|room| room.number);
        matches!((number(from), number(to)), (Ok(from), Ok(to)) if from != to)
    }
}

/// The directory and the name of a path.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(0) => (b"/", &path[1..]),
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b".", path),
    }
}

/// Source: OpenSSH's `PROTOCOL`, section 4.4.
fn room(fields: &[u8]) -> Option<Room> {
    let mut fields = Fields(fields);
    let mut next = || fields.u64().ok();
    let block_bytes = next()?;
    let space = Space {
        fragment_bytes: match next()? {
            0 => block_bytes.max(1),
            bytes => bytes,
        },
        blocks: next()?,
        blocks_free: next()?,
        blocks_available: next()?,
        files: next()?,
        files_free: next()?,
        name_max: 0,
    };
    let _files_available = next()?;
    let (number, flags) = (next()?, next()?);
    let name_max = u32::try_from(next()?).unwrap_or(u32::MAX);
    Some(Room {
        space: Space { name_max, ..space },
        number,
        is_read_only: flags & READ_ONLY != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_a_directory_and_a_name() {
        assert_eq!(split(b"/a/b"), (&b"/a"[..], &b"b"[..]));
        assert_eq!(split(b"/a"), (&b"/"[..], &b"a"[..]));
        assert_eq!(split(b"a"), (&b"."[..], &b"a"[..]));
    }

    #[test]
    fn room_is_eleven_numbers() {
        let numbers = |numbers: [u64; 11]| {
            numbers
                .iter()
                .flat_map(|number| number.to_be_bytes())
                .collect::<Vec<u8>>()
        };
        let found = room(&numbers([4096, 0, 100, 50, 40, 30, 20, 10, 77, 1, 255])).unwrap();
        assert_eq!((found.space.fragment_bytes, found.space.blocks_available), (4096, 40));
        assert_eq!(
            (found.number, found.is_read_only, found.space.name_max),
            (77, true, 255)
        );
        assert!(room(&[0; 87]).is_none());
    }
}
