//! How far a file is consumed, durably: written before anything is freed.
//!
//! ```text
//!   slot 0 | slot 1       each: sealed(sequence, which file, bytes consumed, bytes freed, tail), the rest of the page unused
//! ```
//!
//! Both slots are written and synced, one after the other, before the file is freed up to there. So one of them is whole whatever
//! happens, and losing one of them later gives no zeros to anybody. It is there from the beginning, under its name only when it is whole.
//!
//! What is freed is said with the next step, when it is durable: so what is said to be freed reads as zeros for ever, if nobody writes the
//! file anew. Between that and what is consumed there are zeros or what was there, which its [`Tail`] tells.
//!
//! Version 1 did not say what was freed. It is refused: whether its file was written anew since cannot be known.

use std::ffi::{OsStr, OsString};
use std::io::IoSlice;
use std::path::{Path, PathBuf};

use elbow_file::{Access, Errno, Handle, RealStorage, RenameMode, Storage, Time};
use elbow_ranges::encoding::{DecodeError, ENVELOPE_BYTES, Reader, Writer, open_sealed, seal};

use super::error::{ConsumeError, failed};
use super::tail::Tail;
use crate::partial_output::place;

const MAGIC: [u8; 8] = *b"ELBCONS\0";
const VERSION: u16 = 2;
const SLOT_BYTES: u64 = 4096;
const MODE: u32 = 0o600;

type Result<T> = std::result::Result<T, ConsumeError>;

/// Which file it is about: a name may be another file's by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Subject {
    inode: u64,
    born: Option<Time>,
}

impl Subject {
    pub(super) fn of(file: &Handle, path: &Path) -> Result<Self> {
        let inode = RealStorage.stat_handle(file).map_err(failed("looking at", path))?.ino;
        let born = RealStorage.identity(file).map_err(failed("looking at", path))?.born;
        Ok(Self { inode, born })
    }

    /// One whose time of making is not known may have it: a server was not asked for it the first time.
    pub(super) fn may_be(&self, other: &Self) -> bool {
        let is_other_time = self.born.zip(other.born).is_some_and(|(one, another)| one != another);
        self.inode == other.inode && !is_other_time
    }
}

/// What one slot says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Slot {
    sequence: u64,
    subject: Subject,
    progress: Progress,
}

/// How far a file is consumed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Bytes from the beginning.
    pub(super) consumed: u64,
    /// Bytes from the beginning that are certainly freed.
    pub(super) freed: u64,
    /// What was there before `consumed`.
    pub(super) tail: Tail,
}

/// An open checkpoint.
#[derive(Debug)]
pub(super) struct Checkpoint {
    file: Handle,
    path: PathBuf,
    last: Slot,
}

impl Checkpoint {
    /// Opens one, if it is there.
    pub(super) fn open(path: &Path) -> Result<Option<Self>> {
        let (dir, name) = directory_of(path)?;
        let file = match RealStorage.open(&dir, &name, Access::ReadWrite) {
            Err(Errno::NOENT) => return Ok(None),
            opened => opened.map_err(failed("opening", path))?,
        };
        let last = match (read(&file, path, 0)?, read(&file, path, SLOT_BYTES)?) {
            (Ok(first), Ok(second)) if first.sequence < second.sequence => second,
            (Ok(slot), _) | (Err(_), Ok(slot)) => slot,
            (Err(DecodeError::UnknownVersion { found, .. }), Err(_)) => {
                let path = path.to_owned();
                return Err(ConsumeError::OtherVersion { path, found });
            }
            (Err(reason), Err(_)) => {
                let path = path.to_owned();
                return Err(ConsumeError::Damaged { path, reason });
            }
        };
        let path = path.to_owned();
        Ok(Some(Self { file, path, last }))
    }

    /// Makes one that says that nothing is consumed.
    pub(super) fn create(path: &Path, subject: Subject) -> Result<Self> {
        let (dir, name) = directory_of(path)?;
        let mut draft = OsString::from(".");
        draft.push(&name);
        draft.push(".new");
        // What a crash left there was never read.
        let _ = RealStorage.unlink(&dir, &draft);
        let file = RealStorage
            .create(&dir, &draft, MODE)
            .map_err(failed("creating", path))?;
        let last = Slot {
            sequence: 0,
            subject,
            progress: Progress::default(),
        };
        let path = path.to_owned();
        let mut this = Self { file, path, last };
        this.write(Progress::default())?;
        RealStorage
            .rename(&dir, &draft, &dir, &name, RenameMode::NoReplace)
            .and_then(|()| RealStorage.sync(&dir))
            .map_err(failed("naming", &this.path))?;
        Ok(this)
    }

    pub(super) fn subject(&self) -> Subject {
        self.last.subject
    }

    /// Bytes from the beginning.
    pub(super) fn consumed(&self) -> u64 {
        self.last.progress.consumed
    }

    pub(super) fn progress(&self) -> &Progress {
        &self.last.progress
    }

    /// Says this, durably. What it says to be freed has to be durable already.
    pub(super) fn write(&mut self, progress: Progress) -> Result<()> {
        let next = Slot {
            sequence: self.last.sequence + 1,
            subject: self.last.subject,
            progress,
        };
        let mut page = next.sealed();
        page.resize(SLOT_BYTES as usize, 0);
        for at in [0, SLOT_BYTES] {
            RealStorage
                .write(&self.file, &[IoSlice::new(&page)], at)
                .and_then(|()| RealStorage.sync(&self.file))
                .map_err(failed("writing", &self.path))?;
        }
        self.last = next;
        Ok(())
    }
}

impl Slot {
    fn sealed(&self) -> Vec<u8> {
        let mut to = Writer::new();
        to.varint(self.sequence);
        to.varint(self.subject.inode);
        to.bool(self.subject.born.is_some());
        let born = self.subject.born.unwrap_or_default();
        to.signed(born.seconds);
        to.varint(born.nanoseconds.into());
        to.varint(self.progress.consumed);
        to.varint(self.progress.freed);
        self.progress.tail.encode(&mut to);
        seal(MAGIC, VERSION, &to.finish())
    }

    fn unsealed(sealed: &[u8]) -> std::result::Result<Self, DecodeError> {
        let (_, body) = open_sealed(MAGIC, VERSION..=VERSION, sealed)?;
        let mut from = Reader::new(body);
        let (sequence, inode, is_known) = (from.varint()?, from.varint()?, from.bool()?);
        let (seconds, at) = (from.signed()?, from.offset());
        let nanoseconds = from.varint()?;
        let nanoseconds = u32::try_from(nanoseconds).map_err(|_| DecodeError::BadValue {
            at,
            what: "an impossible time",
        })?;
        let born = is_known.then_some(Time { seconds, nanoseconds });
        let (consumed, at) = (from.varint()?, from.offset());
        let freed = from.varint()?;
        if freed > consumed {
            let what = "more is freed than consumed";
            return Err(DecodeError::BadValue { at, what });
        }
        let tail = Tail::decode(&mut from, consumed)?;
        from.finish()?;
        Ok(Self {
            sequence,
            subject: Subject { inode, born },
            progress: Progress { consumed, freed, tail },
        })
    }
}

/// One slot; the inner result says whether it is whole.
fn read(file: &Handle, path: &Path, at: u64) -> Result<std::result::Result<Slot, DecodeError>> {
    /// Magic and version; the length of the body comes next.
    const LENGTH_AT: usize = 8 + 2;
    let mut page = vec![0; SLOT_BYTES as usize];
    let got = RealStorage.read(file, &mut page, at).map_err(failed("reading", path))?;
    page.truncate(got);
    let length = page
        .get(LENGTH_AT..LENGTH_AT + 8)
        .and_then(|bytes| bytes.try_into().ok());
    if let Some(body) = length
        .map(u64::from_le_bytes)
        .and_then(|length| usize::try_from(length).ok())
    {
        page.truncate(body.saturating_add(ENVELOPE_BYTES));
    }
    Ok(Slot::unsealed(&page))
}

fn directory_of(path: &Path) -> Result<(Handle, OsString)> {
    let (dir, name): (Handle, &OsStr) =
        place(path).map_err(|_| failed("opening the directory of", path)(Errno::NOENT))?;
    Ok((dir, name.to_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods)] // tests look at the storage themselves

    use super::*;

    #[test]
    fn a_checkpoint_is_read_as_it_was_written_from_either_slot() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("checkpoint");
        let subject = Subject {
            inode: 7,
            born: Some(Time {
                seconds: -3,
                nanoseconds: 5,
            }),
        };
        assert!(Checkpoint::open(&path).expect("no error").is_none());
        let mut first = Checkpoint::create(&path, subject).expect("a checkpoint");
        let file = RealStorage::open_file(&path, Access::Read).expect("a file");
        let progress = Progress {
            consumed: 1 << 40,
            freed: 1 << 39,
            tail: Tail::before(2000, &file).expect("a tail"),
        };
        first.write(progress.clone()).expect("room");
        let whole = std::fs::read(&path).expect("a file");
        for torn in [None, Some(0), Some(SLOT_BYTES as usize)] {
            let mut bytes = whole.clone();
            torn.into_iter().for_each(|at| bytes[at + 20] ^= 1);
            std::fs::write(&path, &bytes).expect("room");
            let found = Checkpoint::open(&path).expect("a checkpoint").expect("one");
            assert_eq!((found.consumed(), found.subject()), (1 << 40, subject));
            assert_eq!(*found.progress(), progress);
        }
        std::fs::write(&path, "").expect("room");
        assert!(matches!(Checkpoint::open(&path), Err(ConsumeError::Damaged { .. })));
        assert!(Checkpoint::create(&path, subject).is_err(), "nothing is replaced");
    }

    #[test]
    fn a_checkpoint_of_another_version_says_so() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("checkpoint");
        let mut page = seal(MAGIC, 1, b"whatever it said");
        page.resize(SLOT_BYTES as usize, 0);
        std::fs::write(&path, [page.clone(), page].concat()).expect("room");
        let error = Checkpoint::open(&path).expect_err("of another version");
        assert!(matches!(error, ConsumeError::OtherVersion { found: 1, .. }), "{error}");
    }
}
