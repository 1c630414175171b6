//! Memory maps. What lies in them is read and written by the kernel, through a pipe: behind the end of the file it says EFAULT where a program's
//! own access would end it.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::os::fd::AsFd;
use std::ptr;

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
}

impl Worker {
    pub(super) fn map(&mut self, slot: Slot, map: Map, (offset, length): (u64, u64), flags: MapFlags) -> Answer {
        let mut rights = ProtFlags::READ;
        rights.set(ProtFlags::WRITE, flags.has(libc::PROT_WRITE));
        let is_private = flags.0 & !libc::PROT_WRITE != 0;
        let sharing = if is_private { Sharing::PRIVATE } else { Sharing::SHARED };
        let length = length.min(MAP_BYTES_MAX) as usize;
        let fd = self.fd(slot)?;
        // SAFETY: the kernel chooses a place that nothing uses.
        let start = unsafe { mmap(ptr::null_mut(), length, rights, sharing, fd, offset) }?;
        *self.maps.get_mut(usize::from(map.0)).ok_or(Errno::BADF)? = Some(Mapped { start, length });
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
        for (address, length) in self.mapped(map)?.pieces(offset, data.len() as u64) {
            let (back, forth) = pipe_with(PipeFlags::CLOEXEC)?;
            rustix::io::write(&forth, &data[written..written + length])?;
            // SAFETY: no Rust object lies in the map; where it cannot be written, the kernel says so.
            written += checked(unsafe { libc::read(raw(&back), address.cast(), length) })?;
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
