//! A block device as a file: the root of a FUSE file system that has nothing else.
//!
//! Each write(2) goes to the device at once, as to a device that is open with `O_DIRECT`; reads may come from the page cache. fsync(2) is a
//! flush, close(2) is none. A write that does not begin and end with a sector reads that sector first; with `O_DIRECT` it is refused, as by a
//! block device. The size does not change: truncate(2) does nothing. A hole (fallocate(2)) is a trim, of devices that do not rotate.
//!
//! When the power is cut, the old mount goes away lazily and a new one takes its place: who has the file open gets EIO for ever.

#![allow(clippy::disallowed_methods, reason = "a mount point, not storage")]

use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use elbow_disk::SECTOR_BYTES;
use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, INodeNo,
    InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyOpen,
    ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::mount::{UnmountFlags, unmount};

use crate::block_device::{Answer, Ask, Link};
use crate::mounts::{self, Mount};

/// The kernel asks nobody else.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);
/// Largest write; what the kernel's default limit of 256 pages carries.
const WRITE_BYTES_MAX: u32 = 1 << 20;
/// Requests that the kernel may have under way without a caller waiting.
const BACKGROUND_MAX: u16 = 256;

/// A drive as a file at a path.
#[derive(Debug)]
pub(crate) struct MountedFile {
    path: PathBuf,
    session: Option<BackgroundSession>,
    /// What its mounts are called in the kernel's table, and no others.
    source: String,
    /// Device and inode of the mount point, where that was made for it.
    own: Option<(u64, u64)>,
}

impl MountedFile {
    /// Mounts it over an empty file, which is made where there is none.
    pub(crate) fn at(path: &Path, link: Link) -> io::Result<Self> {
        let own = match File::create_new(path) {
            Ok(file) => Some(identity(&file.metadata()?)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => None,
            Err(error) => return Err(error),
        };
        let found = path.metadata()?;
        if !found.is_file() || found.len() > 0 {
            return Err(io::Error::new(
                ErrorKind::AlreadyExists,
                "what is there is no regular file that is empty: name another one",
            ));
        }
        let mut mounted = Self {
            path: path.canonicalize()?,
            session: None,
            source: unique_source(),
            own,
        };
        mounted.mount(link)?;
        Ok(mounted)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn mount(&mut self, link: Link) -> io::Result<()> {
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(self.source.clone()),
            MountOption::Subtype("elbow".into()),
            MountOption::DefaultPermissions,
        ];
        let session = fuser::Session::new(DriveFile::new(link), &self.path, &config)?;
        self.session = Some(session.spawn()?);
        // The kernel learns the size.
        self.path.metadata()?;
        Ok(())
    }

    /// Puts a new mount in place of the old one.
    pub(crate) fn replace(&mut self, link: Link) -> io::Result<()> {
        self.take_away(true)?;
        self.end_session();
        self.mount(link)
    }

    /// Takes it away.
    ///
    /// # Errors
    /// Somebody has it open: then it stays.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        if self.session.is_some() {
            self.take_away(false)?;
            self.end_session();
        }
        self.remove_mount_point();
        Ok(())
    }

    /// Unmounts it, where nobody has done that by hand; ordinary users by the setuid helper.
    fn take_away(&self, lazily: bool) -> io::Result<()> {
        let mounts = mounts::all()?;
        match mounts::at(&mounts, &self.path) {
            Some(mount) if mount.source == self.source => {}
            _ if mounts.iter().any(|mount| self.is_of(mount)) => {
                return Err(io::Error::new(ErrorKind::ResourceBusy, "something is mounted over it"));
            }
            _ => return Ok(()),
        }
        let flags = if lazily {
            UnmountFlags::DETACH
        } else {
            UnmountFlags::empty()
        };
        match unmount(&self.path, flags) {
            Err(rustix::io::Errno::PERM) => fusermount(&self.path, lazily),
            unmounted => Ok(unmounted?),
        }
    }

    /// A session that is dropped unmounts whatever is at the path: where that is another's, it is kept.
    fn end_session(&mut self) {
        let is_free = mounts::all().is_ok_and(|mounts| mounts::at(&mounts, &self.path).is_none());
        match self.session.take() {
            Some(session) if !is_free => std::mem::forget(session),
            session => drop(session),
        }
    }

    fn is_of(&self, mount: &Mount) -> bool {
        mount.source == self.source && mount.point == self.path
    }

    fn remove_mount_point(&mut self) {
        let own = self.own.take();
        // What has its name by now may be somebody else's.
        if own.is_some() && self.path.symlink_metadata().ok().as_ref().map(identity) == own {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn unique_source() -> String {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    format!("elbow-drive-{}-{number}", std::process::id())
}

fn identity(file: &std::fs::Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

impl Drop for MountedFile {
    fn drop(&mut self) {
        if self.session.is_some() {
            // Whoever has it open gets errors.
            let _ = self.take_away(true);
            self.end_session();
        }
        self.remove_mount_point();
    }
}

fn fusermount(path: &Path, lazily: bool) -> io::Result<()> {
    let mut helper = Command::new("fusermount3");
    helper.arg("-u").args(lazily.then_some("-z")).arg("--").arg(path);
    let output = helper.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let kind = match said.contains("busy") {
        true => ErrorKind::ResourceBusy,
        false => ErrorKind::Other,
    };
    Err(io::Error::new(kind, said))
}

struct DriveFile {
    link: Link,
    made: SystemTime,
}

impl DriveFile {
    fn new(link: Link) -> Self {
        let made = SystemTime::now();
        Self { link, made }
    }

    fn attr(&self) -> FileAttr {
        let bytes = self.link.bytes();
        FileAttr {
            ino: INodeNo::ROOT,
            size: bytes,
            blocks: bytes / SECTOR_BYTES,
            atime: self.made,
            mtime: self.made,
            ctime: self.made,
            crtime: self.made,
            kind: FileType::RegularFile,
            perm: 0o600,
            nlink: 1,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

fn errno(answer: &Answer) -> Errno {
    Errno::from_i32(answer.as_ref().err().map_or(libc::EIO, |fault| fault.errno()))
}

/// The sectors that hold some bytes.
fn sectors_of(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / SECTOR_BYTES..bytes.end.div_ceil(SECTOR_BYTES)
}

fn read_of(sectors: &Range<u64>) -> Ask {
    Ask::Read {
        at: sectors.start,
        sectors: (sectors.end - sectors.start) as u32,
    }
}

/// Writes bytes that may begin and end within sectors.
fn write_bytes(link: &Link, offset: u64, data: Vec<u8>, through: bool, reply: impl FnOnce(Answer) + Send + 'static) {
    let sectors = sectors_of(&(offset..offset + data.len() as u64));
    let at = sectors.start;
    if is_whole(offset, data.len()) {
        return link.submit(Ask::Write { at, data, through }, reply);
    }
    let from = (offset - at * SECTOR_BYTES) as usize;
    let then = link.clone();
    link.submit(read_of(&sectors), move |answer| match answer {
        Ok(mut old) => {
            old[from..from + data.len()].copy_from_slice(&data);
            let data = old;
            then.submit(Ask::Write { at, data, through }, reply);
        }
        refused => reply(refused),
    });
}

/// What a hole in the file, or zeros that stay allocated, are to the device; nothing where it takes none, or they are no whole sectors. The block
/// device above asks for a hole where it is asked to discard.
fn hole_of(link: &Link, offset: u64, length: u64, mode: i32) -> Option<Ask> {
    let end = offset.checked_add(length)?.min(link.bytes());
    let sectors = u32::try_from(end.checked_sub(offset)? / SECTOR_BYTES).ok()?;
    let is_whole = offset.is_multiple_of(SECTOR_BYTES) && end.is_multiple_of(SECTOR_BYTES);
    let (at, through) = (offset / SECTOR_BYTES, false);
    match mode & !libc::FALLOC_FL_KEEP_SIZE {
        _ if link.is_rotational() || !is_whole || sectors == 0 => None,
        libc::FALLOC_FL_PUNCH_HOLE => Some(Ask::Trim { at, sectors, through }),
        libc::FALLOC_FL_ZERO_RANGE => Some(Ask::WriteZeros { at, sectors, through }),
        _ => None,
    }
}

/// Whether bytes begin and end with sectors.
fn is_whole(offset: u64, bytes: usize) -> bool {
    offset.is_multiple_of(SECTOR_BYTES) && (bytes as u64).is_multiple_of(SECTOR_BYTES)
}

impl Filesystem for DriveFile {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Where the kernel allows less, it tells how much, and keeps to that by itself.
        let _ = config.set_max_write(WRITE_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        // Else the kernel waits for each request of a block device above it, and the drive's queue never has two.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO & config.capabilities());
        Ok(())
    }

    fn getattr(&self, _: &Request, _: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOREVER, &self.attr());
    }

    fn setattr(
        &self,
        _: &Request,
        _: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        reply.attr(&FOREVER, &self.attr());
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let end = (offset + u64::from(size)).min(self.link.bytes());
        if offset >= end {
            return reply.data(&[]);
        }
        let sectors = sectors_of(&(offset..end));
        let wanted = (offset - sectors.start * SECTOR_BYTES) as usize..(end - sectors.start * SECTOR_BYTES) as usize;
        self.link.submit(read_of(&sectors), move |answer| match &answer {
            Ok(bytes) => reply.data(&bytes[wanted]),
            Err(_) => reply.error(errno(&answer)),
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        open: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // Several may be under way with O_DIRECT: two that share a sector would each write back what it was.
        if open.0 & libc::O_DIRECT != 0 && !is_whole(offset, data.len()) {
            return reply.error(Errno::EINVAL);
        }
        let room = self.link.bytes().saturating_sub(offset);
        if room == 0 {
            return reply.error(Errno::ENOSPC);
        }
        let data = &data[..(data.len() as u64).min(room) as usize];
        let written = data.len() as u32;
        // After an asynchronous one with O_DIRECT the kernel does not ask for the flush.
        let durable = libc::O_DIRECT | libc::O_DSYNC;
        let through = open.0 & durable == durable;
        write_bytes(
            &self.link,
            offset,
            data.to_vec(),
            through,
            move |answer| match &answer {
                Ok(_) => reply.written(written),
                Err(_) => reply.error(errno(&answer)),
            },
        );
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.link.submit(Ask::Flush, move |answer| match &answer {
            Ok(_) => reply.ok(),
            Err(_) => reply.error(errno(&answer)),
        });
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let Some(ask) = hole_of(&self.link, offset, length, mode) else {
            return reply.error(Errno::EOPNOTSUPP);
        };
        self.link.submit(ask, move |answer| match &answer {
            Ok(_) => reply.ok(),
            Err(_) => reply.error(errno(&answer)),
        });
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(
            self.link.bytes() / SECTOR_BYTES,
            0,
            0,
            1,
            0,
            SECTOR_BYTES as u32,
            255,
            0,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbd::tests::drive;

    /// What was mounted at the path by then was taken away instead.
    #[test]
    fn a_mount_of_another_drive_at_the_same_path_is_left_alone() {
        if !rustix::process::geteuid().is_root() || File::open("/dev/fuse").is_err() {
            assert!(
                std::env::var_os("CI").is_none(),
                "CI, and this machine lacks root or FUSE"
            );
            eprintln!("SKIPPED: this machine lacks root or FUSE");
            return;
        }
        let (drive, directory) = (drive(), tempfile::tempdir().expect("a directory"));
        let path = directory.path().join("disk");
        let mut first = MountedFile::at(&path, drive.link()).expect("it is mounted");
        unmount(&path, UnmountFlags::empty()).expect("nobody has it open");
        let mut second = MountedFile::at(&path, drive.link()).expect("it is mounted");
        first.close().expect("there is nothing to take away");
        assert_eq!(path.metadata().expect("it is there").len(), drive.link().bytes());
        second.close().expect("nobody has it open");
    }
}
