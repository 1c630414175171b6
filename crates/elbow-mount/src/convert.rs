//! Between the kernel's vocabulary (as `fuser` spells it) and the job's. Pure.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use elbow_file::{Errno, FileType, Time};
use elbow_job::{Attr, SetTime};
use fuser::{FileAttr, INodeNo, TimeOrNow};

/// Preferred size of reads and writes, as stat(2) shows it: what one FUSE request carries.
const BLOCK_BYTES: u32 = 128 << 10;

/// The one place where an error of the job becomes the errno that the command sees.
pub(crate) fn errno(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.raw_os_error())
}

pub(crate) fn file_type(kind: FileType) -> fuser::FileType {
    match kind {
        FileType::File => fuser::FileType::RegularFile,
        FileType::Dir => fuser::FileType::Directory,
        FileType::Symlink => fuser::FileType::Symlink,
        FileType::Fifo => fuser::FileType::NamedPipe,
        FileType::Socket => fuser::FileType::Socket,
        FileType::CharDevice => fuser::FileType::CharDevice,
        FileType::BlockDevice => fuser::FileType::BlockDevice,
    }
}

/// The kind in the `S_IFMT` bits of a mode, as mknod(2) takes it; 0 means a regular file.
pub(crate) fn kind_of_mode(mode: u32) -> Option<FileType> {
    match mode & libc::S_IFMT {
        0 | libc::S_IFREG => Some(FileType::File),
        libc::S_IFIFO => Some(FileType::Fifo),
        libc::S_IFSOCK => Some(FileType::Socket),
        libc::S_IFCHR => Some(FileType::CharDevice),
        libc::S_IFBLK => Some(FileType::BlockDevice),
        _ => None,
    }
}

/// Attributes under the number by which the kernel knows the object.
pub(crate) fn file_attr(node: INodeNo, attr: &Attr) -> FileAttr {
    FileAttr {
        ino: node,
        size: attr.size,
        blocks: attr.blocks,
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: UNIX_EPOCH,
        kind: file_type(attr.kind),
        perm: (attr.mode & 0o7777) as u16,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: to_kernel_device(attr.rdev),
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

/// The answer "there is nothing of that name", which the kernel may remember: an entry of node 0.
pub(crate) fn no_entry() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: fuser::FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

fn system_time(time: Time) -> SystemTime {
    let nanoseconds = Duration::from_nanos(u64::from(time.nanoseconds));
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    if time.seconds < 0 {
        UNIX_EPOCH - seconds + nanoseconds
    } else {
        UNIX_EPOCH + seconds + nanoseconds
    }
}

/// fuser 0.18 reads a time before 1970 as `-(seconds + nanoseconds)` where the kernel means
/// `-seconds + nanoseconds` (its `system_time_from_time`); taking both parts out again puts that right.
fn time(time: SystemTime) -> Time {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Time {
            seconds: after.as_secs() as i64,
            nanoseconds: after.subsec_nanos(),
        },
        Err(before) => {
            let before = before.duration();
            Time {
                seconds: -(before.as_secs() as i64),
                nanoseconds: before.subsec_nanos(),
            }
        }
    }
}

pub(crate) fn set_time(time_or_now: TimeOrNow) -> SetTime {
    match time_or_now {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(at) => SetTime::At(time(at)),
    }
}

/// Device numbers as FUSE carries them (the kernel's `new_encode_dev`) from those of stat(2).
fn to_kernel_device(rdev: u64) -> u32 {
    let (major, minor) = (libc::major(rdev), libc::minor(rdev));
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// The other way round.
pub(crate) fn from_kernel_device(rdev: u32) -> u64 {
    libc::makedev((rdev & 0x000f_ff00) >> 8, (rdev & 0xff) | ((rdev >> 12) & 0x000f_ff00))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_survive_the_way_through_the_kernel() {
        for (major, minor) in [(0, 0), (1, 3), (8, 17), (259, 300), (4095, 0x000f_ffff)] {
            let rdev = libc::makedev(major, minor);
            assert_eq!(from_kernel_device(to_kernel_device(rdev)), rdev, "{major}:{minor}");
        }
    }

    #[test]
    fn times_after_1970_keep_their_nanoseconds() {
        let at = Time {
            seconds: 1_700_000_000,
            nanoseconds: 123_456_789,
        };
        assert_eq!(time(system_time(at)), at);
    }

    #[test]
    fn times_before_1970_are_counted_back_from_it() {
        let at = Time {
            seconds: -2,
            nanoseconds: 800_000_000,
        };
        assert_eq!(
            UNIX_EPOCH.duration_since(system_time(at)).ok(),
            Some(Duration::from_millis(1200))
        );
    }

    #[test]
    fn the_kind_of_an_unknown_mode_is_refused() {
        assert_eq!(kind_of_mode(0o644), Some(FileType::File));
        assert_eq!(kind_of_mode(libc::S_IFIFO | 0o600), Some(FileType::Fifo));
        assert_eq!(kind_of_mode(libc::S_IFDIR | 0o755), None);
    }
}
