//! The old tree of a case, and how it is made.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{
    AtFlags, CWD, Dev, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags, chmod, chownat, ftruncate,
    linkat, lsetxattr, mkdirat, mknodat, openat, symlinkat, utimensat,
};
use rustix::io::{Errno, pwrite};

use super::acl;
use super::word::{Bits, Data, Name, Which, lines};

/// Where the times of old objects begin: long before any run, so that what is of now can be told from what was kept.
const OLD_SECONDS: i64 = 1_000_000_000;

lines! {
    /// One thing that is made before the case begins.
    Old {
        /// A directory; `.` is the directory of the case, and exists.
        Dir "dir" { name: Name, mode: Bits, uid: u32, gid: u32 }
        /// A directory that is a subvolume of a btrfs.
        Subvolume "subvolume" { name: Name, mode: Bits, uid: u32, gid: u32 }
        File "file" { name: Name, mode: Bits, uid: u32, gid: u32, data: Data }
        /// Further data of a file, at an offset: a hole is before them.
        Data "data" { name: Name, offset: u64, data: Data }
        /// The length of a file: a hole is at its end.
        Size "size" { name: Name, size: u64 }
        /// A second name.
        Link "link" { name: Name, of: Name }
        Symlink "symlink" { name: Name, target: Name, uid: u32, gid: u32 }
        Fifo "fifo" { name: Name, mode: Bits, uid: u32, gid: u32 }
        Xattr "xattr" { name: Name, key: Name, value: Data }
        Acl "acl" { name: Name, which: Which, entries: Name }
    }
}

impl Old {
    /// What it is about.
    pub fn name(&self) -> &Name {
        match self {
            Self::Dir { name, .. }
            | Self::Subvolume { name, .. }
            | Self::File { name, .. }
            | Self::Data { name, .. }
            | Self::Size { name, .. }
            | Self::Link { name, .. }
            | Self::Symlink { name, .. }
            | Self::Fifo { name, .. }
            | Self::Xattr { name, .. }
            | Self::Acl { name, .. } => name,
        }
    }

    /// Whether it takes from its owner the right to read it, or to search it.
    pub fn is_closed(&self) -> bool {
        let lacks = |mode: &Bits, needed: u32| mode.0 & needed != needed;
        match self {
            Self::Dir { mode, .. } | Self::Subvolume { mode, .. } => lacks(mode, 0o500),
            Self::File { mode, .. } => lacks(mode, 0o400),
            Self::Acl {
                which: Which::Access,
                entries,
                ..
            } => entries.0.get(3) != Some(&b'r') || entries.0.get(5) != Some(&b'x'),
            _ => false,
        }
    }

    /// The owner, where it says who that is.
    pub fn owner(&self) -> Option<u32> {
        match self {
            Self::Dir { uid, .. } | Self::Subvolume { uid, .. } | Self::File { uid, .. } => Some(*uid),
            Self::Symlink { uid, .. } | Self::Fifo { uid, .. } => Some(*uid),
            _ => None,
        }
    }

    fn make(&self, root: &Path) -> Result<(), Errno> {
        let path = at(root, self.name());
        match self {
            Self::Dir { mode, uid, gid, .. } => {
                match mkdirat(CWD, &path, Mode::RWXU) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno),
                }
                own(&path, *uid, *gid, Some(*mode))
            }
            Self::Subvolume { mode, uid, gid, .. } => {
                make_subvolume(&path)?;
                own(&path, *uid, *gid, Some(*mode))
            }
            Self::File {
                mode, uid, gid, data, ..
            } => {
                write(&path, OFlags::CREATE | OFlags::EXCL, 0, &data.bytes())?;
                own(&path, *uid, *gid, Some(*mode))
            }
            Self::Data { offset, data, .. } => write(&path, OFlags::empty(), *offset, &data.bytes()),
            Self::Size { size, .. } => ftruncate(openat(CWD, &path, OFlags::WRONLY, Mode::empty())?, *size),
            Self::Link { of, .. } => linkat(CWD, at(root, of), CWD, &path, AtFlags::empty()),
            Self::Symlink { target, uid, gid, .. } => {
                symlinkat(OsStr::from_bytes(&target.0), CWD, &path)?;
                own(&path, *uid, *gid, None)
            }
            Self::Fifo { mode, uid, gid, .. } => {
                mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, Dev::default())?;
                own(&path, *uid, *gid, Some(*mode))
            }
            Self::Xattr { key, value, .. } => lsetxattr(&path, &key.0[..], &value.bytes(), XattrFlags::empty()),
            Self::Acl { which, entries, .. } => {
                let value = acl::encode(entries).ok_or(Errno::INVAL)?;
                lsetxattr(&path, acl::key(*which), &value, XattrFlags::empty())
            }
        }
    }
}

/// Makes an old tree in an existing directory, as root, with old times that end in these nanoseconds. What cannot be made (its parent was left out of a smaller case, this
/// storage has no such thing) is left out: the same things in every copy.
pub fn make(root: &Path, old: &[Old], nanoseconds: i64) {
    for one in old {
        let _ = one.make(root);
    }
    // Backwards: the entries of a directory come after it, and making them set its time.
    for (number, one) in old.iter().enumerate().rev() {
        let path = at(root, one.name());
        let time = Timespec {
            tv_sec: OLD_SECONDS + 1000 * number as i64,
            tv_nsec: nanoseconds,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        let _ = utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW);
    }
}

fn at(root: &Path, name: &Name) -> PathBuf {
    root.join(OsStr::from_bytes(&name.0))
}

fn make_subvolume(path: &Path) -> Result<(), Errno> {
    let mut btrfs = Command::new("btrfs");
    let made = btrfs
        .args(["-q", "subvolume", "create"])
        .arg(path)
        .stderr(Stdio::null());
    match made.status() {
        Ok(status) if status.success() => Ok(()),
        _ => Err(Errno::NOTSUP),
    }
}

fn own(path: &Path, uid: u32, gid: u32, mode: Option<Bits>) -> Result<(), Errno> {
    chownat(
        CWD,
        path,
        Some(Uid::from_raw(uid)),
        Some(Gid::from_raw(gid)),
        AtFlags::SYMLINK_NOFOLLOW,
    )?;
    // After the owner, whose change takes set-id bits away.
    mode.map_or(Ok(()), |mode| chmod(path, Mode::from_raw_mode(mode.0)))
}

fn write(path: &Path, flags: OFlags, offset: u64, data: &[u8]) -> Result<(), Errno> {
    let file = openat(
        CWD,
        path,
        OFlags::WRONLY | OFlags::NOFOLLOW | flags,
        Mode::RUSR | Mode::WUSR,
    )?;
    let mut done = 0;
    while done < data.len() {
        done += pwrite(&file, &data[done..], offset + done as u64)?;
    }
    Ok(())
}
