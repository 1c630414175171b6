//! A write lease: while it is held, nobody else has the file open, and who opens it waits.
//!
//! What counts is open files, not processes: mappings and descriptors passed on are seen, and so is another descriptor of
//! our own.

use std::os::fd::{AsFd, AsRawFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

use libc::c_int;

use crate::{Errno, Handle, RealStorage, Result, Storage, Time};

/// From asm-generic/fcntl.h; the libc crate does not have them.
const F_SETSIG: c_int = 10;
const F_GETSIG: c_int = 11;

/// How long we wait for somebody else to close the file: long enough for who only looks (a backup, a child process that is being
/// started and has a copy of the descriptor until it runs its program), short for who waits for us.
const PATIENCE: Duration = Duration::from_secs(2);
const GLANCE: Duration = Duration::from_millis(5);
/// And how often we look at least: a process that was stopped for longer than its patience has not waited for anybody.
const LOOKS_MIN: usize = 20;

/// `f_type` of file systems that nobody writes to behind this kernel's back, and whose mappings count as open files (those
/// of overlayfs do not).
const LOCAL: [u64; 6] = [
    0xEF53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683E, // btrfs
    0x0102_1994, // tmpfs
    0xF2F5_2010, // f2fs
    0xCA45_1A4E, // bcachefs
];

/// See the module's header. Given back when it is dropped, and with it the file's mtime.
pub(super) struct Lease<'a> {
    file: &'a Handle,
    signal_before: c_int,
    /// The file's, since the lease was taken: it is put back, because what we do changes no content.
    mtime: Time,
    punched: bool,
}

impl<'a> Lease<'a> {
    /// Takes the lease, as soon as nobody else has the file open.
    ///
    /// # Errors
    /// EBUSY: somebody keeps it open. EOPNOTSUPP: a file system without leases, or whose leases do not reach all who can write.
    pub(super) fn take(file: &'a Handle) -> Result<Self> {
        let kind = rustix::fs::fstatfs(file)?.f_type;
        #[allow(clippy::unnecessary_cast, reason = "its type differs between architectures")]
        if !LOCAL.contains(&(kind as u64 & 0xFFFF_FFFF)) {
            return Err(Errno::OPNOTSUPP);
        }
        let mut lease = Self {
            file,
            signal_before: control(file, F_GETSIG, 0)?,
            mtime: RealStorage.stat_handle(file)?.mtime,
            punched: false,
        };
        // A failure drops the lease, which does no harm.
        match lease.set_when_closed(Instant::now() + PATIENCE)? {
            true => Ok(lease),
            false => Err(Errno::BUSY),
        }
    }

    /// Whether nobody else has the file open or waits for it.
    pub(super) fn is_held(&self) -> bool {
        control(self.file, libc::F_GETLEASE, 0) == Ok(libc::F_WRLCK)
    }

    /// Notes that a hole is about to be punched.
    pub(super) fn punched(&mut self) {
        self.punched = true;
    }

    /// Takes the lease again if it is gone. False when somebody keeps the file.
    pub(super) fn hold(&mut self) -> Result<bool> {
        if self.is_held() {
            return Ok(true);
        }
        self.give_back();
        let deadline = Instant::now() + PATIENCE;
        sleep(GLANCE); // first: who waits for the file has it now
        self.set_when_closed(deadline)
    }

    /// False when somebody still has the file open at the deadline, and had it whenever we looked.
    fn set_when_closed(&mut self, deadline: Instant) -> Result<bool> {
        for look in 1.. {
            match self.set() {
                Ok(()) => break,
                Err(Errno::BUSY) if look >= LOOKS_MIN && Instant::now() >= deadline => return Ok(false),
                Err(Errno::BUSY) => sleep(GLANCE),
                Err(errno) => return Err(errno),
            }
        }
        // Only now: who has just closed it may have written.
        self.mtime = RealStorage.stat_handle(self.file)?.mtime;
        Ok(true)
    }

    fn set(&self) -> Result<()> {
        // A break is told by SIGIO, which kills, unless another signal is chosen; giving a lease back forgets the choice.
        // We ask, and need to be told nothing.
        control(self.file, F_SETSIG, libc::SIGURG)?;
        match control(self.file, libc::F_SETLEASE, libc::F_WRLCK) {
            Err(Errno::AGAIN) => Err(Errno::BUSY),
            Err(Errno::INVAL) => Err(Errno::OPNOTSUPP), // a file system without leases
            other => other.map(drop),
        }
    }

    fn give_back(&mut self) {
        // Whoever holds a lease may set times; if not, the time is that of our last punch.
        if self.punched {
            let _ = RealStorage.set_times_handle(self.file, None, Some(self.mtime));
        }
        self.punched = false;
        let _ = control(self.file, libc::F_SETLEASE, libc::F_UNLCK);
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.give_back();
        let _ = control(self.file, F_SETSIG, self.signal_before);
    }
}

/// fcntl(2) with a number.
fn control(file: &Handle, command: c_int, argument: c_int) -> Result<c_int> {
    // SAFETY: the descriptor is open, and none of the commands used here takes a pointer.
    #[allow(unsafe_code)]
    let answer = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), command, argument) };
    match answer {
        -1 => Err(std::io::Error::last_os_error()
            .raw_os_error()
            .map_or(Errno::IO, Errno::from_raw_os_error)),
        answer => Ok(answer),
    }
}
