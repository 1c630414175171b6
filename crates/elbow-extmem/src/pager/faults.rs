//! userfaultfd(2): the kernel asks a thread of this process for the content of pages.
//!
//! Own bindings, since the crate of that name needs libclang to be built; rustix makes the system call. Source:
//! ioctl_userfaultfd(2), linux/userfaultfd.h.

#![allow(unsafe_code, reason = "system calls about memory, each with its reason")]

use std::ffi::c_void;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use elbow_file::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use rustix::mm::UserfaultfdFlags;

use super::error::PagerError;

/// The unit of memory management.
pub(super) const PAGE_BYTES: usize = 4096;

/// `UFFD_USER_MODE_ONLY`, from Linux 5.11 on.
const USER_MODE_ONLY: u32 = 1;
const API: u64 = 0xaa;
const FEATURE_WRITE_PROTECT: u64 = 1;
const MODE_MISSING: u64 = 1;
const MODE_WRITE_PROTECT: u64 = 2;
/// Bit of the answer to a registration: pages of the range can be write-protected.
const CAN_WRITE_PROTECT: u64 = 1 << 6;
const COPY_WRITE_PROTECTED: u64 = 2;
const WRITE_PROTECT: u64 = 1;
const EVENT_PAGE_FAULT: u8 = 0x12;
const FAULT_WRITE: u64 = 1;
const FAULT_WRITE_PROTECTED: u64 = 2;

const GROUP: u8 = 0xaa;
const IOCTL_API: Opcode = opcode::read_write::<[u64; 3]>(GROUP, 0x3f);
const IOCTL_REGISTER: Opcode = opcode::read_write::<[u64; 4]>(GROUP, 0);
const IOCTL_WAKE: Opcode = opcode::read::<[u64; 2]>(GROUP, 2);
const IOCTL_COPY: Opcode = opcode::read_write::<[u64; 5]>(GROUP, 3);
const IOCTL_ZEROPAGE: Opcode = opcode::read_write::<[u64; 4]>(GROUP, 4);
const IOCTL_WRITE_PROTECT: Opcode = opcode::read_write::<[u64; 3]>(GROUP, 6);

/// Bytes of a `struct uffd_msg`.
const MESSAGE_BYTES: usize = 32;

/// A thread waits for a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub(super) address: usize,
    /// It is going to write.
    pub(super) writes: bool,
    /// The page is there, but protected.
    pub(super) is_protected: bool,
}

/// The faults of this process that come to us.
#[derive(Debug)]
pub(super) struct Faults {
    fd: OwnedFd,
    /// Whether faults in system calls come too.
    pub(super) with_system_calls: bool,
}

impl Faults {
    pub(super) fn new() -> Result<Self, PagerError> {
        let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
        let user_mode_only = UserfaultfdFlags::from_bits_retain(USER_MODE_ONLY);
        // SAFETY: the descriptor is used for the pager's own memory only.
        let open = |flags| unsafe { rustix::mm::userfaultfd(flags) };
        let (fd, with_system_calls) = match open(flags) {
            Err(Errno::PERM) => (open(flags | user_mode_only), false),
            fd => (fd, true),
        };
        let faults = Self {
            fd: fd.map_err(|errno| PagerError::NotPermitted { errno })?,
            with_system_calls,
        };
        let result = faults.call::<IOCTL_API, 3>(&mut [API, FEATURE_WRITE_PROTECT, 0]);
        result.map_err(|errno| PagerError::NotPermitted { errno })?;
        Ok(faults)
    }

    /// From now on nothing is in this range but what is given.
    pub(super) fn register(&self, address: usize, length: usize) -> Result<(), PagerError> {
        let mut register = [address as u64, length as u64, MODE_MISSING | MODE_WRITE_PROTECT, 0];
        match self.call::<IOCTL_REGISTER, 4>(&mut register) {
            Ok(()) if register[3] & CAN_WRITE_PROTECT != 0 => Ok(()),
            Ok(()) => Err(PagerError::NotPermitted {
                errno: Errno::OPNOTSUPP,
            }),
            Err(errno) => Err(PagerError::NotPermitted { errno }),
        }
    }

    /// The next fault, if one is waiting.
    pub(super) fn next(&self) -> Result<Option<Fault>, Errno> {
        let mut message = [0; MESSAGE_BYTES];
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.fd, &mut message)) {
            Err(Errno::AGAIN) => return Ok(None),
            result => result?,
        };
        let (words, _) = message.as_chunks();
        let [flags, address] = [1, 2].map(|index| u64::from_ne_bytes(words[index]));
        let is_fault = message[0] == EVENT_PAGE_FAULT;
        Ok(is_fault.then_some(Fault {
            address: address as usize,
            writes: flags & FAULT_WRITE != 0,
            is_protected: flags & FAULT_WRITE_PROTECTED != 0,
        }))
    }

    /// Puts content where nothing is, protected from writing on request, and wakes who waits for it.
    pub(super) fn give(&self, address: usize, bytes: &[u8], protected: bool) -> Result<(), Errno> {
        let mode = if protected { COPY_WRITE_PROTECTED } else { 0 };
        self.in_parts(address, bytes.len(), |done| {
            let (to, from) = ((address + done) as u64, bytes[done..].as_ptr() as u64);
            let mut copy = [to, from, (bytes.len() - done) as u64, mode, 0];
            (self.call::<IOCTL_COPY, 5>(&mut copy), copy[4])
        })
    }

    /// Puts zeros where nothing is, and wakes who waits for them.
    pub(super) fn give_zeros(&self, address: usize, length: usize) -> Result<(), Errno> {
        self.in_parts(address, length, |done| {
            let mut zeros = [(address + done) as u64, (length - done) as u64, 0, 0];
            (self.call::<IOCTL_ZEROPAGE, 4>(&mut zeros), zeros[3])
        })
    }

    /// Repeats a call that may do a part of its work and be called away, or find a page that is there.
    fn in_parts(
        &self,
        address: usize,
        length: usize,
        part: impl Fn(usize) -> (Result<(), Errno>, u64),
    ) -> Result<(), Errno> {
        let mut done = 0;
        while done < length {
            let (result, bytes) = part(done);
            // The kernel puts a negative errno there, too.
            let progress = usize::try_from(bytes as i64).unwrap_or(0);
            match result {
                Ok(()) | Err(Errno::AGAIN) => done += progress,
                Err(Errno::EXIST) => done += progress.max(PAGE_BYTES),
                Err(errno) => return Err(errno),
            }
        }
        self.wake(address, length)
    }

    /// Lets nobody write to a range.
    pub(super) fn protect(&self, address: usize, length: usize) -> Result<(), Errno> {
        self.call::<IOCTL_WRITE_PROTECT, 3>(&mut [address as u64, length as u64, WRITE_PROTECT])
    }

    /// Lets everybody write to a range, and wakes who waits for that.
    pub(super) fn unprotect(&self, address: usize, length: usize) -> Result<(), Errno> {
        self.call::<IOCTL_WRITE_PROTECT, 3>(&mut [address as u64, length as u64, 0])
    }

    /// Lets who waits for a range try again.
    pub(super) fn wake(&self, address: usize, length: usize) -> Result<(), Errno> {
        self.call::<IOCTL_WAKE, 2>(&mut [address as u64, length as u64])
    }

    fn call<const OPCODE: Opcode, const WORDS: usize>(&self, words: &mut [u64; WORDS]) -> Result<(), Errno> {
        // SAFETY: all arguments of these calls are structures of so many u64; the ranges in them are the pager's own,
        // and what is copied is a slice that lives as long as the call.
        unsafe { ioctl(&self.fd, Updater::<OPCODE, [u64; WORDS]>::new(words)) }
    }
}

impl AsFd for Faults {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A range of memory with nothing in it.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) address: usize,
    pub(super) length: usize,
}

impl Region {
    pub(super) fn new(length: usize) -> Result<Self, Errno> {
        use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, flags) }?;
        let region = Self {
            address: start as usize,
            length,
        };
        // A child process would find zeros in place of what is in the store; so it finds nothing. Huge pages would come
        // and go as a whole.
        for advice in [Advice::LinuxDontFork, Advice::LinuxNoHugepage] {
            // SAFETY: it changes no content; the mapping is our own.
            match unsafe { madvise(start, length, advice) } {
                Ok(()) | Err(Errno::INVAL) => (), // a kernel without huge pages
                Err(errno) => return Err(errno),
            }
        }
        Ok(region)
    }

    /// Takes away the pages of a part.
    pub(super) fn empty(&self, address: usize, length: usize) -> Result<(), Errno> {
        assert!(address >= self.address && address + length <= self.address + self.length);
        // SAFETY: inside of our own mapping; what was there is in the store, or not wanted any more.
        unsafe { rustix::mm::madvise(address as *mut c_void, length, rustix::mm::Advice::LinuxDontNeed) }
    }

    /// Copies a part that is there, and that nobody can write to, out of the region.
    pub(super) fn read(&self, address: usize, to: &mut [u8]) {
        assert!(address >= self.address && address + to.len() <= self.address + self.length);
        // SAFETY: inside of our own mapping, protected from writing; `to` is elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(address as *const u8, to.as_mut_ptr(), to.len()) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: our own mapping; who owns the region owns all references into it.
        let unmapped = unsafe { rustix::mm::munmap(self.address as *mut c_void, self.length) };
        debug_assert!(unmapped.is_ok(), "a mapping of our own");
    }
}
