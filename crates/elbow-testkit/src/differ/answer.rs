//! What a call answered, as text that two runs can be compared by.
//!
//! This is the one place where what two runs cannot have in common is made equal:
//!
//! | what | shown as | why |
//! |---|---|---|
//! | times of now | `now` | each run has its own; what is old or was set lies before 2020 or after 2100 |
//! | inode numbers | the first path with the same one | new ones are synthetic in a job (SEMANTICS, Limits) |
//! | sizes of directories | nothing | each file system counts in its own way, and one may shrink only when it is removed |
//! | names of directories counted as links | nothing | btrfs and overlayfs always say 1 |
//! | ctime, blocks, devices, descriptors | nothing | cannot be set; are where something lies, not what it is |
//! | the order of names | sorted | no file system promises one |
//! | ids of others, in an ordinary user's case | `other` | they have no mapping in the user namespace of a job (SEMANTICS, Limits) |
//! | attributes `trusted.SGI_ACL_*` | nothing | xfs's own form of access control lists, which only root sees |
//! | which error, on sshfs | `E` | SFTP has names for three of them |
//! | `.fuse_hidden` names, on sshfs | nothing | its own of removed files that are open |
//! | numbers of names and inode numbers, on sshfs | nothing | it says 1, and makes numbers up as it likes |

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hasher};

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use super::acl;

/// What a call says: something, or an error.
pub type Answer = Result<String, Errno>;

/// From 2020 to 2100 (seconds): no case sets such a time and no old tree has one.
const NOW_SECONDS: std::ops::Range<i64> = 1_577_836_800..4_102_444_800;

/// An answer as text: `ok` and what was said, or the name of the error.
pub fn show(answer: &Answer) -> String {
    match answer {
        Ok(said) if said.is_empty() => "ok".to_owned(),
        Ok(said) => format!("ok {said}"),
        Err(errno) => errno_name(*errno),
    }
}

macro_rules! names {
    ($errno:expr, $($name:ident)*) => {
        match $errno {
            $(libc::$name => stringify!($name).to_owned(),)*
            other => format!("E{other}"),
        }
    };
}

/// The name of an error, as in errno(3).
pub fn errno_name(errno: Errno) -> String {
    names!(errno.raw_os_error(), EPERM ENOENT EINTR EIO ENXIO E2BIG EBADF EAGAIN ENOMEM EACCES EFAULT ENOTBLK EBUSY EEXIST EXDEV ENODEV
        ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM ERANGE EDEADLK ENAMETOOLONG
        ENOLCK ENOSYS ENOTEMPTY ELOOP ENODATA EOVERFLOW EOPNOTSUPP ESTALE EDQUOT ENOTCONN ETIMEDOUT ECONNABORTED EUCLEAN)
}

/// A hash of bytes with their length.
pub fn hash(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    format!("{}:{:016x}", bytes.len(), hasher.finish())
}

/// A time, where it means something.
pub fn time(seconds: i64, nanoseconds: u64) -> String {
    if NOW_SECONDS.contains(&seconds) {
        "now".to_owned()
    } else {
        format!("{seconds}.{nanoseconds}")
    }
}

/// The kind of something, as one word.
pub fn kind(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "file",
        FileType::Directory => "dir",
        FileType::Symlink => "symlink",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::CharacterDevice => "char",
        FileType::BlockDevice => "block",
        FileType::Unknown => "unknown",
    }
}

/// The attributes that two runs have in common, by name.
pub fn attributes(stat: &Stat) -> Vec<(&'static str, String)> {
    let kind_of = FileType::from_raw_mode(stat.st_mode);
    let mut said = vec![
        ("kind", kind(kind_of).to_owned()),
        ("mode", format!("{:04o}", stat.st_mode & 0o7777)),
        ("uid", stat.st_uid.to_string()),
        ("gid", stat.st_gid.to_string()),
        ("mtime", time(stat.st_mtime, stat.st_mtime_nsec)),
        ("atime", time(stat.st_atime, stat.st_atime_nsec)),
    ];
    if kind_of != FileType::Directory {
        said.push(("size", stat.st_size.to_string()));
        said.push(("links", stat.st_nlink.to_string()));
    }
    if matches!(kind_of, FileType::CharacterDevice | FileType::BlockDevice) {
        said.push(("device", format!("{:x}", stat.st_rdev)));
    }
    said
}

/// The same in one line.
pub fn stat(stat: &Stat) -> String {
    let words = attributes(stat)
        .into_iter()
        .map(|(name, value)| format!("{name}={value}"));
    words.collect::<Vec<_>>().join(" ")
}

/// The value of an attribute: a list of rights as such, all else as a hash.
pub fn xattr(key: &[u8], value: &[u8]) -> String {
    let list = key
        .starts_with(b"system.posix_acl")
        .then(|| acl::decode(value))
        .flatten();
    list.unwrap_or_else(|| hash(value))
}

/// Whether the name of an attribute says something of its own.
pub fn is_own_xattr(key: &[u8]) -> bool {
    !key.starts_with(b"trusted.SGI_ACL_")
}

/// Names, sorted; of many their number and hash.
pub fn names(mut names: Vec<Vec<u8>>) -> String {
    names.sort_unstable();
    if names.len() > 40 {
        return format!("{} names {}", names.len(), hash(&names.join(&b'/')));
    }
    let mut said = String::new();
    for name in &names {
        let _ = write!(
            said,
            "{}{}",
            if said.is_empty() { "" } else { " " },
            name.escape_ascii()
        );
    }
    said
}

/// What can be known of a run by who worked in it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Visibility {
    /// An ordinary user of that id.
    pub own: Option<u32>,
    /// It is on sshfs.
    pub is_far: bool,
}

impl Visibility {
    /// A part of what is seen; `None` where it says nothing.
    pub fn part(self, part: &str, value: &str) -> Option<String> {
        if self.is_far && matches!(part, "links" | "same") {
            return None;
        }
        Some(match (self.own, part) {
            (Some(own), "uid" | "gid") if value != own.to_string() => "other".to_owned(),
            (Some(own), part) if part.starts_with("x:system.posix_acl") => list_of(value, own),
            _ => value.to_owned(),
        })
    }

    /// An answer, as [`show`] says it.
    pub fn answer(self, said: &str) -> String {
        if self.is_far && said.starts_with('E') {
            return "E".to_owned();
        }
        let word = |word: &str| match (word.split_once('='), self.own) {
            (Some((part, value)), _) => self.part(part, value).map(|value| format!("{part}={value}")),
            (None, Some(own)) if word.contains("::") => Some(list_of(word, own)),
            _ => Some(word.to_owned()),
        };
        said.split(' ').filter_map(word).collect::<Vec<_>>().join(" ")
    }
}

/// A list of rights in which ids of others are all the same.
fn list_of(list: &str, own: u32) -> String {
    let entry = |entry: &str| match entry.split_once(':') {
        Some((who, rights)) if who.len() > 1 && who[1..] != own.to_string() => format!("{}other:{rights}", &who[..1]),
        _ => entry.to_owned(),
    };
    list.split(',').map(entry).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_no_mapping_is_another() {
        let visibility = Visibility {
            own: Some(1),
            is_far: false,
        };
        assert_eq!(
            visibility.answer("ok kind=dir uid=1 gid=1998"),
            "ok kind=dir uid=1 gid=other"
        );
        assert_eq!(
            visibility.answer("ok u::rwx,u1:rw-,g2000:---,o::r--"),
            "ok u::rwx,u1:rw-,gother:---,o::r--"
        );
        assert_eq!(visibility.answer("EPERM"), "EPERM");
    }

    #[test]
    fn sshfs_knows_neither_errors_nor_links() {
        let visibility = Visibility {
            own: None,
            is_far: true,
        };
        assert_eq!(visibility.answer("ENOTEMPTY"), "E");
        assert_eq!(visibility.answer("ok kind=file links=1 uid=5"), "ok kind=file uid=5");
    }
}
