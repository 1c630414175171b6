//! Standard output as a pipe whose reader is watched.
//!
//! A reader has taken everything when nothing is left in the pipe, which can be asked only as long as one of its ends is open: what is in
//! it goes with the last of them. So we close our end when it is empty. The reader closes its own some time after it has seen
//! that; then the pipe is looked at through a descriptor that is no end of it (`O_PATH`), and that is opened for a moment now and
//! then. Source: pipe(7), fifo(7), poll(2).

#![allow(clippy::disallowed_methods, reason = "pipes, which are not on the storage of a job")]

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::{Errno, ioctl_fionread};

use super::error::ConsumeError;

/// How often a reader is looked for that has not closed yet.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The side that is written to.
pub(super) struct Pipe {
    end: File,
}

/// The pipe as such.
#[derive(Debug)]
pub(super) struct PipeProbe(OwnedFd);

impl Pipe {
    /// Standard output, which is nothing any more then, so that closing this closes the pipe.
    pub(super) fn of_standard_output() -> Result<(Self, PipeProbe), ConsumeError> {
        let of_pipe = || -> io::Result<Option<(Self, PipeProbe)>> {
            let end = File::from(io::stdout().as_fd().try_clone_to_owned()?);
            if FileType::from_raw_mode(rustix::fs::fstat(&end)?.st_mode) != FileType::Fifo {
                return Ok(None);
            }
            if is_standard_error(&end) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            let path = format!("/proc/self/fd/{}", end.as_raw_fd());
            let probe = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
            let nothing = File::options().write(true).open("/dev/null")?;
            rustix::stdio::dup2_stdout(&nothing)?;
            Ok(Some((Self { end }, PipeProbe(probe))))
        };
        match of_pipe() {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(ConsumeError::OwnErrors),
            found => found.ok().flatten().ok_or(ConsumeError::NoPipe),
        }
    }

    /// Writes some of it, and waits for room.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.end.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                written => return written,
            }
        }
    }

    /// What the reader has not taken yet.
    pub(super) fn unread_bytes(&self) -> io::Result<u64> {
        Ok(ioctl_fionread(&self.end)?)
    }

    /// Waits until the reader has taken everything, or has closed; what it left in the pipe.
    pub(super) fn drain(&self) -> io::Result<u64> {
        loop {
            let is_closed = has_no_reader(&self.end, LOOK_INTERVAL)?;
            let unread = self.unread_bytes()?;
            if is_closed || unread == 0 {
                return Ok(unread);
            }
        }
    }
}

/// Whether messages go into this pipe, too: as long as there may be some, its reader does not see the end.
fn is_standard_error(end: &File) -> bool {
    let identity = |of: rustix::io::Result<rustix::fs::Stat>| of.ok().map(|found| (found.st_dev, found.st_ino));
    let errors = identity(rustix::fs::fstat(rustix::stdio::stderr()));
    errors.is_some() && errors == identity(rustix::fs::fstat(end))
}

/// Whether the reader has closed, or closes within this time.
fn has_no_reader(end: impl AsFd, at_most: Duration) -> io::Result<bool> {
    let mut watched = [PollFd::new(&end, PollFlags::empty())];
    let timeout = Timespec::try_from(at_most).unwrap_or_default();
    match poll(&mut watched, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(watched[0].revents().contains(PollFlags::ERR)),
        Err(errno) => Err(errno.into()),
    }
}

impl PipeProbe {
    /// Whether nobody has the reader's end any more.
    pub(super) fn is_closed(&self) -> io::Result<bool> {
        let path = format!("/proc/self/fd/{}", self.0.as_raw_fd());
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::empty()) {
            // A FIFO without a reader.
            Err(Errno::NXIO) => Ok(true),
            Err(errno) => Err(errno.into()),
            Ok(end) => has_no_reader(&end, Duration::ZERO),
        }
    }

    /// Waits until nobody has it.
    pub(super) fn wait(&self) -> io::Result<()> {
        while !self.is_closed()? {
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }
}
