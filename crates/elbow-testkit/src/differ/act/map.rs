//! Memory maps. What lies in them is read and written by the kernel, through a pipe: behind the end of the file it says EFAULT where a program's
//! own access would end it.
//!
//! What would be written behind the end of a file, in its last page, is left out: a local file system zeroes it when the file grows, and a file system in
//! user space, which never hears of it, does not (SEMANTICS.md, Limits).

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr;

use rustix::fs::{self as sys, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags as Sharing, MsyncFlags, ProtFlags, mmap, msync, munmap};
use rustix::pipe::{PipeFlags, pipe_with};

use super::super::answer::{self, Answer};
use super::super::word::{Data, Map, MapFlags, Slot};
use super::{Said, Worker, count, done};

const PAGE_BYTES: usize = 4096;
/// The longest map.
const MAP_BYTES_MAX: u64 = 8 << 20;

/// A map; gone when dropped.
#[derive(Debug)]
pub(super) struct Mapped {
    start: *mut c_void,
    length: usize,
    /// What is mapped, though it is not open by this, and where in it the map begins.
    file: OwnedFd,
    offset: u64,
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the map but its pieces below, which live as long as a call.
        let _ = unsafe { munmap(self.start, self.length) };
    }
}

impl Mapped {
    /// Addresses and lengths of the pages of a range, cut at the end of the map.
    fn pieces(&self, offset: u64, length: u64) -> impl Iterator<Item = (*mut u8, usize)> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.length);
        let end = start
            .saturating_add(usize::try_from(length).unwrap_or(usize::MAX))
            .min(self.length);
        let (first, mut at) = (self.start.cast::<u8>(), start);
        std::iter::from_fn(move || {
            let length = (PAGE_BYTES - at % PAGE_BYTES).min(end - at);
            let piece = first.wrapping_add(at);
            at += length;
            (length > 0).then_some((piece, length))
        })
    }

    /// How much of a piece lies before the end of the file, if that lies in it.
    fn before_end(&self, address: *mut u8, length: usize) -> Said<usize> {
        let at = self.offset + (address.addr() - self.start.addr()) as u64;
        let end = sys::fstat(&self.file)?.st_size.cast_unsigned();
        let page = at - at % PAGE_BYTES as u64;
        // The piece may lie behind the end altogether.
        let is_last_page = end > page && end < at + length as u64;
        Ok(if is_last_page {
            end.saturating_sub(at) as usize
        } else {
            length
        })
    }
}

impl Worker {
    pub(super) fn map(&mut self, slot: Slot, map: Map, (offset, length): (u64, u64), flags: MapFlags) -> Answer {
        let mut rights = ProtFlags::READ;
        rights.set(ProtFlags::WRITE, flags.has(libc::PROT_WRITE));
        let is_private = flags.0 & !libc::PROT_WRITE != 0;
        let sharing = if is_private { Sharing::PRIVATE } else { Sharing::SHARED };
        let length = length.min(MAP_BYTES_MAX) as usize;
        let fd = self.fd(slot)?;
        let file = sys::openat(
            CWD,
            format!("/proc/self/fd/{}", raw(&fd)),
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        // SAFETY: the kernel chooses a place that nothing uses.
        let start = unsafe { mmap(ptr::null_mut(), length, rights, sharing, fd, offset) }?;
        *self.maps.get_mut(usize::from(map.0)).ok_or(Errno::BADF)? = Some(Mapped {
            start,
            length,
            file,
            offset,
        });
        done(Ok(()))
    }

    fn mapped(&self, map: Map) -> Said<&Mapped> {
        self.maps
            .get(usize::from(map.0))
            .and_then(Option::as_ref)
            .ok_or(Errno::BADF)
    }

    pub(super) fn map_read(&self, map: Map, offset: u64, length: u64) -> Answer {
        let mut read = Vec::new();
        for (address, length) in self.mapped(map)?.pieces(offset, length) {
            let (back, forth) = pipe_with(PipeFlags::CLOEXEC)?;
            // SAFETY: what is written is what the kernel can read at the address; where it cannot, it says so.
            checked(unsafe { libc::write(raw(&forth), address.cast_const().cast(), length) })?;
            let mut piece = vec![0; length];
            let count = rustix::io::read(&back, &mut piece)?;
            read.extend_from_slice(&piece[..count]);
        }
        Ok(answer::hash(&read))
    }

    pub(super) fn map_write(&self, map: Map, offset: u64, data: Data) -> Answer {
        let (data, mut written) = (data.bytes(), 0);
        let mapped = self.mapped(map)?;
        for (address, length) in mapped.pieces(offset, data.len() as u64) {
            let length = mapped.before_end(address, length)?;
            let (back, forth) = pipe_with(PipeFlags::CLOEXEC)?;
            rustix::io::write(&forth, &data[written..written + length])?;
            // SAFETY: no Rust object lies in the map; where it cannot be written, the kernel says so.
            match checked(unsafe { libc::read(raw(&back), address.cast(), length) }) {
                Ok(count) => written += count,
                // How much came before the fault is a part of the answer: natively and in a job it may be another one.
                Err(_) if written > 0 => break,
                Err(errno) => return Err(errno),
            }
        }
        count(Ok(written))
    }

    pub(super) fn msync(&self, map: Map) -> Answer {
        let mapped = self.mapped(map)?;
        // SAFETY: the range is that of the map.
        done(unsafe { msync(mapped.start, mapped.length, MsyncFlags::SYNC) })
    }

    pub(super) fn unmap(&mut self, map: Map) -> Answer {
        let mapped = self.maps.get_mut(usize::from(map.0)).and_then(Option::take);
        done(mapped.map(drop).ok_or(Errno::BADF))
    }
}

fn raw(fd: &impl AsFd) -> libc::c_int {
    std::os::fd::AsRawFd::as_raw_fd(&fd.as_fd())
}

fn checked(said: isize) -> Said<usize> {
    let errno = || Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO);
    usize::try_from(said).map_err(|_| errno())
}
