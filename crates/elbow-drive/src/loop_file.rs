//! Which files loop devices read, as the devices say it themselves: they know them when these have lost their names, or have none in our mount namespace.
//!
//! ```text
//!   us                          a process for each device
//!   pipe, fork ───────────────> closes all else, asks, writes the answer, ends
//!   waits for all the pipes <── answer          (or waits in the kernel for a server that has died)
//! ```
//!
//! To answer, the kernel asks the file system of the file. A server of FUSE or NFS that has died does not answer, and who waits for it cannot be killed
//! then, nor can a process with a thread that waits. So others ask; who does not come back ends when the server does.
//!
//! Source: loop(4); linux/loop.h; `loop_get_status` of drivers/block/loop.c.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// `LOOP_GET_STATUS64`, linux/loop.h.
const LOOP_GET_STATUS64: libc::c_ulong = 0x4C05;

/// Which file a loop device reads, with numbers as stat(2) has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopFile {
    /// The device of the file system that holds the file.
    pub dev: u64,
    /// Its inode number.
    pub ino: u64,
    /// Its device number, if it is a device.
    pub rdev: u64,
}

/// What a loop device says of the file that it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopAnswer {
    /// It reads this one.
    File(LoopFile),
    /// It may not be asked, has no name here, or reads none.
    Refused,
    /// The file system of the file does not answer.
    Silent,
}

/// What the kernel says of a loop device: `struct loop_info64`, whose device numbers are those of stat(2), in 32 bits.
#[repr(C)]
struct LoopInfo {
    dev: u64,
    ino: u64,
    rdev: u64,
    others: [u8; 208],
}

/// Asks loop devices which files they read, all at once; waits so long for all of them together.
#[must_use]
pub fn files_of_loop_devices(devices: &[PathBuf], patience: Duration) -> Vec<LoopAnswer> {
    let asked: Vec<_> = devices.iter().map(|device| Asked::start(device)).collect();
    let deadline = Instant::now() + patience;
    let answer = |asked: io::Result<Asked>| asked.map_or(LoopAnswer::Refused, |asked| asked.answer(deadline));
    asked.into_iter().map(answer).collect()
}

/// A process that asks a loop device.
struct Asked {
    process: Pid,
    answers: OwnedFd,
}

impl Asked {
    #[allow(unsafe_code)]
    fn start(device: &Path) -> io::Result<Self> {
        let path = CString::new(device.as_os_str().as_bytes())?;
        let (answers, to) = pipe_with(PipeFlags::CLOEXEC)?;
        // SAFETY: the child makes system calls only, and never returns.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => ask(&path, &to),
            child => {
                let process = Pid::from_raw(child).ok_or_else(|| io::Error::other("fork gave no process"))?;
                Ok(Self { process, answers })
            }
        }
    }

    fn answer(self, deadline: Instant) -> LoopAnswer {
        if !self.has_answer(deadline) {
            // It goes when it can, and to whoever takes care of children that are left.
            let _ = kill_process(self.process, Signal::KILL);
            let _ = waitpid(Some(self.process), WaitOptions::NOHANG);
            return LoopAnswer::Silent;
        }
        let mut bytes = [0; 24];
        let has_read = File::from(self.answers).read_exact(&mut bytes);
        let _ = waitpid(Some(self.process), WaitOptions::empty());
        let number = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let file = LoopFile {
            dev: number(0),
            ino: number(8),
            rdev: number(16),
        };
        has_read.map_or(LoopAnswer::Refused, |()| LoopAnswer::File(file))
    }

    /// Also where it has ended without one.
    fn has_answer(&self, deadline: Instant) -> bool {
        loop {
            let left = Timespec::try_from(deadline.saturating_duration_since(Instant::now())).ok();
            let mut waits = [PollFd::from_borrowed_fd(self.answers.as_fd(), PollFlags::IN)];
            match poll(&mut waits, left.as_ref()) {
                Err(Errno::INTR) => {}
                Ok(ready) => return ready > 0,
                Err(_) => return false,
            }
        }
    }
}

/// In a process of its own: asks, tells and ends. It keeps nothing open of its parent's: whoever waits for the end of what that writes would wait for it.
#[allow(unsafe_code)]
fn ask(path: &CString, to: &OwnedFd) -> ! {
    let mut info = LoopInfo {
        dev: 0,
        ino: 0,
        rdev: 0,
        others: [0; 208],
    };
    // SAFETY: system calls on numbers, on a path that is there until the end, and on `info`, which is a `struct loop_info64`; then the process ends.
    unsafe {
        libc::setsid();
        libc::dup2(to.as_raw_fd(), 0);
        libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0);
        let device = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC);
        if device >= 0 && libc::ioctl(device, LOOP_GET_STATUS64, &raw mut info) == 0 {
            let numbers = [info.dev, info.ino, info.rdev];
            libc::write(0, numbers.as_ptr().cast(), size_of_val(&numbers));
        }
        libc::_exit(0)
    }
}
