//! What a reader has finished, as it tells: lines with a number of bytes each, counted from the first that this run gave.

#![allow(clippy::disallowed_methods, reason = "a pipe, which is not on the storage of a job")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

use super::error::{BadConfirmation, ConsumeError};

/// No number is longer.
const LINE_BYTES_MAX: usize = 40;

/// Where the reader tells.
pub(super) struct Confirmations {
    channel: OwnedFd,
    path: PathBuf,
    lines: Lines,
}

/// What was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heard {
    /// The newest number, if there was one.
    pub(super) confirmed: Option<u64>,
    /// Nobody can say more: the channel is not open anywhere.
    pub(super) is_deserted: bool,
}

impl Confirmations {
    /// By the number of a descriptor, or the path of a FIFO.
    pub(super) fn open(name: &Path) -> Result<Self, ConsumeError> {
        let number = name
            .to_str()
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let path = number.map_or_else(|| name.to_owned(), |number| format!("/proc/self/fd/{number}").into());
        let no_channel = || ConsumeError::NoChannel(name.to_owned());
        // Opened again, so that what is set for it is set for nobody else; without waiting for its other end.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let channel = rustix::fs::open(&path, flags, Mode::empty()).map_err(|errno| match (number, errno) {
            (Some(number), Errno::NOENT) => ConsumeError::NoDescriptor {
                number: number.to_owned(),
            },
            _ => ConsumeError::Storage {
                tried: "opening --confirm",
                path: name.to_owned(),
                errno,
            },
        })?;
        let found = rustix::fs::fstat(&channel).map_err(|_| no_channel())?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Fifo {
            return Err(no_channel());
        }
        // It would take what the file holds for what the reader has finished.
        let output = rustix::fs::fstat(rustix::stdio::stdout()).map_err(|_| no_channel())?;
        if (output.st_dev, output.st_ino) == (found.st_dev, found.st_ino) {
            return Err(ConsumeError::OwnOutput(name.to_owned()));
        }
        let path = name.to_owned();
        Ok(Self {
            channel,
            path,
            lines: Lines::default(),
        })
    }

    /// Waits for something to be told, but not for long. `given` says how much there is to be confirmed.
    pub(super) fn hear(&mut self, at_most: Duration, given: impl Fn() -> u64) -> Result<Heard, ConsumeError> {
        let failed = super::error::failed("reading what is confirmed by", &self.path);
        let mut watched = [PollFd::new(&self.channel, PollFlags::IN)];
        let timeout = Timespec::try_from(at_most).unwrap_or_default();
        match poll(&mut watched, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => (),
            Err(errno) => return Err(failed(errno)),
        }
        let mut heard = Heard {
            confirmed: None,
            is_deserted: false,
        };
        let mut buffer = [0; 4096];
        loop {
            match rustix::io::read(&self.channel, &mut buffer) {
                Ok(0) => {
                    heard.is_deserted = true;
                    // A hang-up stays, so that waiting for something would be no waiting.
                    std::thread::sleep(at_most);
                    return Ok(heard);
                }
                Ok(length) => heard.confirmed = self.lines.take(&buffer[..length], given())?.or(heard.confirmed),
                Err(Errno::AGAIN | Errno::INTR) => return Ok(heard),
                Err(errno) => return Err(failed(errno)),
            }
        }
    }
}

/// Lines out of pieces.
#[derive(Debug, Default)]
struct Lines {
    begun: Vec<u8>,
    number: u64,
    last: u64,
}

impl Lines {
    /// The last number of all lines that end here.
    fn take(&mut self, bytes: &[u8], given: u64) -> Result<Option<u64>, ConsumeError> {
        let mut confirmed = None;
        for byte in bytes {
            if *byte != b'\n' && self.begun.len() < LINE_BYTES_MAX {
                self.begun.push(*byte);
                continue;
            }
            self.number += 1;
            let line = String::from_utf8_lossy(&std::mem::take(&mut self.begun)).into_owned();
            let number = self.check(&line, given).map_err(|reason| ConsumeError::Confirmation {
                line: self.number,
                reason,
            })?;
            (self.last, confirmed) = (number, Some(number));
        }
        Ok(confirmed)
    }

    fn check(&self, line: &str, given: u64) -> Result<u64, BadConfirmation> {
        let is_number = !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit());
        let number = line.parse::<u64>().ok().filter(|_| is_number);
        match number.ok_or_else(|| BadConfirmation::NoNumber(line.to_owned()))? {
            confirmed if confirmed < self.last => Err(BadConfirmation::Backwards {
                confirmed,
                before: self.last,
            }),
            confirmed if confirmed > given => Err(BadConfirmation::TooMany { confirmed, given }),
            confirmed => Ok(confirmed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_in_any_pieces() {
        let mut lines = Lines::default();
        assert_eq!(lines.take(b"10\n2", 100).expect("numbers"), Some(10));
        assert_eq!(lines.take(b"", 100).expect("numbers"), None);
        assert_eq!(lines.take(b"5\n25\n100\n", 100).expect("numbers"), Some(100));
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_line() {
        for (text, words) in [
            (&b"1\n\n"[..], "line 2 of what the reader confirms: `` is no number"),
            (b"+1\n", "`+1` is no number"),
            (b"1.5\n", "no number"),
            (b"5\n4\n", "line 2 of what the reader confirms: 4 bytes, after 5"),
            (b"101\n", "101 bytes, and only 100 were given"),
            (&[b'1'; 50], "no number"),
        ] {
            let error = Lines::default()
                .take(text, 100)
                .expect_err("no confirmation")
                .to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
