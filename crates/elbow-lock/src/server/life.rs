//! The lives of a service: what it remembers between them, in one small file.
//!
//! ```text
//!   sealed (elbow_ranges::encoding), magic "ELBOWLIF", version 1:  epoch (varint) | ended well (bool)
//! ```
//!
//! Each life has the next epoch, written and synced before the first grant, so that its fencing tokens are larger than
//! any before. A life that ended well left no holder behind; after any other there may be some, and the next one
//! waits for a grace period in which they can hold again what they held, before it grants anything new.
//!
//! Invariants: one service at a time has the file (it is locked). It is replaced by a rename, so that a crash leaves
//! the old one or the new one.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use elbow_ranges::encoding::{Reader, Writer, open_sealed, seal};
use rustix::fs::{FlockOperation, flock};

const MAGIC: [u8; 8] = *b"ELBOWLIF";
const VERSION: u16 = 1;

/// This life of the service.
#[derive(Debug)]
pub(super) struct Life {
    path: PathBuf,
    /// Locked as long as we live.
    _lock: File,
    pub(super) epoch: u32,
    /// Whether holders from the life before may still be about.
    pub(super) after_a_crash: bool,
}

impl Life {
    /// Begins the next life of the service whose memory is at `path`.
    #[allow(
        clippy::disallowed_methods,
        reason = "the service's own memory, not storage of the user's"
    )]
    pub(super) fn begin(path: &Path) -> io::Result<Self> {
        let lock_path = beside(path, ".lock");
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(lock_path)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            rustix::io::Errno::WOULDBLOCK => io::Error::new(ErrorKind::AddrInUse, "another lock service runs with it"),
            error => error.into(),
        })?;
        let (last, ended_well) = match std::fs::read(path) {
            Ok(bytes) => decode(&bytes)?,
            Err(error) if error.kind() == ErrorKind::NotFound => (0, true),
            Err(error) => return Err(error),
        };
        let epoch = last.checked_add(1).filter(|epoch| *epoch < 1 << 24);
        let epoch = epoch.ok_or_else(|| io::Error::other("2^24 lives are all that its tokens have room for"))?;
        let life = Self {
            path: path.to_owned(),
            _lock: lock,
            epoch,
            after_a_crash: !ended_well,
        };
        life.remember(false)?;
        Ok(life)
    }

    /// Ends it: no holder is left.
    pub(super) fn end_well(&self) -> io::Result<()> {
        self.remember(true)
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "the service's own memory, not storage of the user's"
    )]
    fn remember(&self, ended_well: bool) -> io::Result<()> {
        let mut body = Writer::new();
        body.varint(u64::from(self.epoch));
        body.bool(ended_well);
        let new = beside(&self.path, ".new");
        let mut file = File::create(&new)?;
        file.write_all(&seal(MAGIC, VERSION, &body.finish()))?;
        file.sync_all()?;
        std::fs::rename(&new, &self.path)?;
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    }
}

fn decode(bytes: &[u8]) -> io::Result<(u32, bool)> {
    let read = || {
        let (_, body) = open_sealed(MAGIC, VERSION..=VERSION, bytes)?;
        let mut reader = Reader::new(body);
        let life = (reader.u32()?, reader.bool()?);
        reader.finish()?;
        Ok(life)
    };
    read().map_err(|error: elbow_ranges::encoding::DecodeError| io::Error::new(ErrorKind::InvalidData, error))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_life_has_the_next_epoch_and_knows_how_the_last_one_ended() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("life");
        let first = Life::begin(&path).unwrap();
        assert_eq!((first.epoch, first.after_a_crash), (1, false));
        assert_eq!(Life::begin(&path).unwrap_err().kind(), ErrorKind::AddrInUse);
        drop(first); // As a crash does.
        let second = Life::begin(&path).unwrap();
        assert_eq!((second.epoch, second.after_a_crash), (2, true));
        second.end_well().unwrap();
        drop(second);
        let third = Life::begin(&path).unwrap();
        assert_eq!((third.epoch, third.after_a_crash), (3, false));
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "damages the file")]
    fn a_damaged_memory_is_an_error_and_no_first_life() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("life");
        drop(Life::begin(&path).unwrap());
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(Life::begin(&path).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
