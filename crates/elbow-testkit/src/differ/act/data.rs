//! Calls about what is in a file, and locks on it.

// truncate(2) by path, and fcntl(2) locks of ranges.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io::IoSlice;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{self as sys, FileType, FlockOperation, SeekFrom};
use rustix::io::Errno;

use super::super::answer::{self, Answer};
use super::super::word::{At, Data, FallocateFlags, Lock, Name, Slot, Whence};
use super::attributes::said_of;
use super::{Said, Worker, count, done};

/// The most that one call reads.
const READ_BYTES_MAX: u64 = 16 << 20;
/// How much of each hole is read to see that it is one.
const HOLE_BYTES_SEEN: u64 = 1 << 20;

impl Worker {
    pub(super) fn read(&self, slot: Slot, length: u64) -> Answer {
        let mut data = vec![0; length.min(READ_BYTES_MAX) as usize];
        let read = rustix::io::read(self.fd(slot)?, &mut data)?;
        Ok(answer::hash(&data[..read]))
    }

    pub(super) fn pread(&self, slot: Slot, length: u64, offset: u64) -> Answer {
        let mut data = vec![0; length.min(READ_BYTES_MAX) as usize];
        let read = rustix::io::pread(self.fd(slot)?, &mut data, offset)?;
        Ok(answer::hash(&data[..read]))
    }

    pub(super) fn writev(&self, slot: Slot, first: Data, second: Data) -> Answer {
        let (first, second) = (first.bytes(), second.bytes());
        count(rustix::io::writev(
            self.fd(slot)?,
            &[IoSlice::new(&first), IoSlice::new(&second)],
        ))
    }

    pub(super) fn seek(&self, slot: Slot, offset: i64, whence: Whence) -> Answer {
        let from = match whence {
            Whence::Set => SeekFrom::Start(offset.cast_unsigned()),
            Whence::Cur => SeekFrom::Current(offset),
            Whence::End => SeekFrom::End(offset),
        };
        let fd = self.fd(slot)?;
        let position = sys::seek(fd, from);
        if FileType::from_raw_mode(sys::fstat(fd)?.st_mode) == FileType::Directory {
            // Positions in a directory are cookies of each file system's own, and so is which of them are none.
            return done(Ok(()));
        }
        position.map(|position| position.to_string())
    }

    /// Which ranges are holes is the file system's own affair; that they read as zeros is not.
    pub(super) fn holes(&self, slot: Slot) -> Answer {
        let fd = self.fd(slot)?;
        if FileType::from_raw_mode(sys::fstat(fd)?.st_mode) != FileType::RegularFile {
            return Ok("no file".to_owned()); // What else says is its own affair.
        }
        let before = sys::seek(fd, SeekFrom::Current(0))?;
        let found = check_holes(fd);
        sys::seek(fd, SeekFrom::Start(before))?;
        found
    }

    pub(super) fn truncate(&self, at: At, name: &Name, length: i64) -> Answer {
        let path = self.path(at, name)?;
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
        // SAFETY: the path ends in a zero byte and outlives the call.
        said_of(unsafe { libc::truncate(path.as_ptr(), length) }.into())
    }

    pub(super) fn fallocate(&self, slot: Slot, flags: FallocateFlags, offset: i64, length: i64) -> Answer {
        let flags = sys::FallocateFlags::from_bits_retain(flags.0.cast_unsigned());
        done(sys::fallocate(
            self.fd(slot)?,
            flags,
            offset.cast_unsigned(),
            length.cast_unsigned(),
        ))
    }

    pub(super) fn copy(&self, from: (Slot, Option<u64>), to: (Slot, Option<u64>), length: u64) -> Answer {
        let (mut from_offset, mut to_offset) = (from.1, to.1);
        let length = length.min(READ_BYTES_MAX) as usize;
        let (source, target) = (self.fd(from.0)?, self.fd(to.0)?);
        count(sys::copy_file_range(
            source,
            from_offset.as_mut(),
            target,
            to_offset.as_mut(),
            length,
        ))
    }

    pub(super) fn flock(&self, slot: Slot, lock: Lock) -> Answer {
        let operation = match lock {
            Lock::Shared => FlockOperation::NonBlockingLockShared,
            Lock::Exclusive => FlockOperation::NonBlockingLockExclusive,
            Lock::None => FlockOperation::NonBlockingUnlock,
        };
        done(sys::flock(self.fd(slot)?, operation))
    }

    pub(super) fn range_lock(
        &self,
        slot: Slot,
        lock: Lock,
        (start, length): (u64, u64),
        command: libc::c_int,
    ) -> Answer {
        // SAFETY: all zeros is a valid flock.
        let mut asked: libc::flock = unsafe { std::mem::zeroed() };
        asked.l_type = lock.value() as libc::c_short;
        asked.l_whence = libc::SEEK_SET as libc::c_short;
        (asked.l_start, asked.l_len) = (start.cast_signed(), length.cast_signed());
        // SAFETY: the structure outlives the call, which does not wait.
        said_of(unsafe { libc::fcntl(self.fd(slot)?.as_raw_fd(), command, &raw const asked) }.into())
    }
}

fn check_holes(fd: BorrowedFd<'_>) -> Answer {
    let size = sys::fstat(fd)?.st_size.cast_unsigned();
    let mut offset = 0;
    while offset < size {
        let data = match sys::seek(fd, SeekFrom::Data(offset)) {
            Err(Errno::NXIO) => size,
            found => found?,
        };
        if data < offset || !is_zero(fd, offset, data)? {
            return Ok(format!("data between {offset} and {data} are called a hole"));
        }
        if data >= size {
            break;
        }
        let hole = sys::seek(fd, SeekFrom::Hole(data))?;
        if hole <= data {
            return Ok(format!("the data at {data} end at {hole}"));
        }
        offset = hole;
    }
    Ok(format!("checked {size}"))
}

fn is_zero(fd: BorrowedFd<'_>, start: u64, end: u64) -> Said<bool> {
    let mut data = vec![0; (end - start).min(HOLE_BYTES_SEEN) as usize];
    let read = rustix::io::pread(fd, &mut data, start)?;
    Ok(data[..read].iter().all(|byte| *byte == 0))
}
