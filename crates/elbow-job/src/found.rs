//! What is found of a job in its own directory: its manifest, its record, its journal.
//!
//! Everything that is read is bounded, and refused by its first bytes if it is not ours: who has filled a disk with junk under such a name
//! costs nothing.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use elbow_file::{Access, Errno, Handle, Storage};
use elbow_ranges::encoding::{DecodeError, seal};

use crate::commit::{Failure, RECORD_MAGIC, Record};
use crate::job_files::{DONE, RECORD, RESUME, UNDO, UndoPhase, WHY_BYTES_MAX};
use crate::liveness::{self, Attempt, Lock};
use crate::missing::none_if_missing;
use crate::ownership::OwnDirectory;
use crate::report::{JobError, RecoverAction, Recovered};
use crate::staging::{DROPPED, JOURNAL, JournalEntry, KEPT, MANIFEST, MANIFEST_DRAFT, MANIFEST_MAGIC, Manifest, WHY};

/// A recovery works with this many storage calls at once.
pub(crate) const THREADS: usize = 32;
/// A manifest holds a command; those are shorter (ARG_MAX).
const MANIFEST_BYTES_MAX: u64 = 16 << 20;
/// More steps than this are no record that a job with the memory of any machine has made.
const RECORD_BYTES_MAX: u64 = 1 << 30;
/// Magic, version (u16) and length of the body (u64) begin what is sealed.
const ENVELOPE_START_BYTES: usize = 8 + 2 + 8;
/// Entries of a journal are read one by one; a longer one than this names no path.
const JOURNAL_ENTRY_BYTES_MAX: u64 = 1 << 20;
const JOURNAL_BYTES_MAX: u64 = 1 << 30;
/// A manifest that is another one whenever it is locked is looked at so often.
pub(crate) const LOCK_LOOKS: usize = 5;

pub(crate) fn error(tried: &'static str) -> impl Fn(Errno) -> JobError {
    JobError::storage(tried, ".")
}

/// The same of something below the directory.
pub(crate) fn error_in(tried: &'static str) -> impl Fn((PathBuf, Errno)) -> JobError {
    move |(path, errno)| JobError::storage(tried, Path::new(".").join(path))(errno)
}

/// What is said of a job.
pub(crate) fn report_of(
    name: &OsStr,
    action: RecoverAction,
    manifest: Option<&Manifest>,
    message: impl Into<String>,
) -> Recovered {
    Recovered {
        job: name.to_string_lossy().into_owned(),
        action,
        command: manifest.map(command_of).unwrap_or_default(),
        message: message.into(),
    }
}

/// Locks the manifest of a job, if it has one.
pub(crate) fn lock_manifest(
    storage: &dyn Storage,
    own: &OwnDirectory,
    found: &Found,
    lock: &Lock,
) -> Result<Attempt, Errno> {
    let open = |name| storage.open(&own.handle, OsStr::new(name), Access::ReadWrite);
    let file = match open(found.file()) {
        // A job has locked its manifest before it has its name.
        Err(Errno::NOENT) => open(MANIFEST_DRAFT),
        opened => opened,
    };
    let file = match file {
        Err(Errno::NOENT | Errno::ISDIR | Errno::SPIPE | Errno::NODEV | Errno::LOOP) => return Ok(Attempt::None),
        file => file?,
    };
    if lock.is_of(storage, &file)? {
        storage.close(&file)?;
        return Ok(Attempt::Locked);
    }
    lock.give_up(storage);
    let attempt = liveness::attempt(storage, &file)?;
    match attempt {
        Attempt::Locked => lock.hold(file),
        _ => storage.close(&file)?,
    }
    Ok(attempt)
}

/// A kept job can go on.
pub(crate) fn waits(storage: &dyn Storage, own: &OwnDirectory) -> Result<bool, Errno> {
    none_if_missing(storage.stat(&own.handle, OsStr::new(RESUME))).map(|found| found.is_some())
}

pub(crate) fn command_of(manifest: &Manifest) -> Vec<OsString> {
    manifest.command.iter().cloned().map(OsString::from_vec).collect()
}

/// What the name of its manifest says of a job. The manifest is `None` if it is missing or torn, as after a crash in the
/// first moments of a job.
#[derive(PartialEq, Eq)]
pub(crate) enum Found {
    /// It runs, died or committed.
    Ordinary(Option<Manifest>),
    Kept(Option<Manifest>),
    /// It was kept, and its removal has begun.
    Dropped(Option<Manifest>),
}

impl Found {
    /// Does the process of the job run? `None`: that cannot be told from here.
    pub(crate) fn has_process(&self) -> Option<bool> {
        let (Self::Ordinary(manifest) | Self::Kept(manifest) | Self::Dropped(manifest)) = self;
        manifest.as_ref()?.has_process()
    }

    pub(crate) fn into_manifest(self) -> Option<Manifest> {
        let (Self::Ordinary(manifest) | Self::Kept(manifest) | Self::Dropped(manifest)) = self;
        manifest
    }

    /// The name of the manifest.
    fn file(&self) -> &'static str {
        match self {
            Self::Ordinary(_) => MANIFEST,
            Self::Kept(_) => KEPT,
            Self::Dropped(_) => DROPPED,
        }
    }
}

/// Looks for the names in the order that a manifest takes them, so that it is found while it is renamed.
pub(crate) fn look_at(storage: &dyn Storage, own: &OwnDirectory) -> Result<Found, Errno> {
    type Make = fn(Option<Manifest>) -> Found;
    let names: [(&str, Make); 3] = [
        (MANIFEST, Found::Ordinary),
        (KEPT, Found::Kept),
        (DROPPED, Found::Dropped),
    ];
    for (name, found) in names {
        match read_sealed(storage, own, name, MANIFEST_MAGIC, MANIFEST_BYTES_MAX) {
            Ok(None) => {}
            Ok(Some(bytes)) => return Ok(found(Manifest::decode(&bytes).ok())),
            Err(Unread::Junk(_) | Unread::Content(_)) => return Ok(found(None)),
            Err(Unread::Storage(errno)) => return Err(errno),
        }
    }
    Ok(Found::Ordinary(None))
}

/// How far a commit record has been carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Committed,
    /// All but the cleaning is done.
    Done,
    /// It was refused, and is being taken back.
    TakenBack(UndoPhase),
    /// It was refused, and can be carried out another time.
    Waiting,
}

/// The commit record and how far it has been carried out.
pub(crate) fn find_record(storage: &dyn Storage, own: &OwnDirectory) -> Result<Option<(Record, Stage)>, Unread> {
    let undo = UNDO.into_iter().enumerate();
    let undo = undo.map(|(phase, name)| (name, Stage::TakenBack(UndoPhase(phase))));
    // In the order that a record takes its names, so that it is found while it is renamed.
    for (file, stage) in [(RECORD, Stage::Committed), (DONE, Stage::Done)]
        .into_iter()
        .chain(undo)
        .chain([(RESUME, Stage::Waiting)])
    {
        match read_sealed(storage, own, file, RECORD_MAGIC, RECORD_BYTES_MAX)? {
            None => {}
            Some(bytes) => {
                return Ok(Some((decoded(storage, &bytes)?, stage)));
            }
        }
    }
    Ok(None)
}

pub(crate) fn unfinished(failures: &[Failure]) -> JobError {
    JobError::Unfinished {
        failed: failures.len(),
        first: failures.first().map(ToString::to_string).unwrap_or_default(),
        directory: PathBuf::from("."),
    }
}

/// The entries of a journal up to the first that is none: what follows was never acted on.
pub(crate) fn read_journal(storage: &dyn Storage, own: &OwnDirectory) -> Result<Vec<JournalEntry>, Errno> {
    read_journal_to(storage, own).map(|(entries, _)| entries)
}

/// The same with where the last entry ends that is whole: what a full disk has torn is to be overwritten.
pub(crate) fn read_journal_to(storage: &dyn Storage, own: &OwnDirectory) -> Result<(Vec<JournalEntry>, u64), Errno> {
    let Some((file, size)) = open_own(storage, own, JOURNAL)? else {
        return Ok((Vec::new(), 0));
    };
    let mut entries = Vec::new();
    let (mut at, mut window) = (0, Vec::new());
    while at < size.min(JOURNAL_BYTES_MAX) {
        window.resize((size - at).min(JOURNAL_ENTRY_BYTES_MAX) as usize, 0);
        let length = storage.read(&file, &mut window, at)?;
        let (decoded, used) = JournalEntry::decode_all(&window[..length]);
        entries.extend(decoded);
        if used == 0 {
            break;
        }
        at += used as u64;
    }
    Ok((entries, at))
}

/// The record of a kept job that can go on, if it has one that can be read.
pub(crate) fn read_rest(storage: &dyn Storage, own: &OwnDirectory) -> Result<Option<Record>, Unread> {
    let bytes = read_sealed(storage, own, RESUME, RECORD_MAGIC, RECORD_BYTES_MAX)?;
    bytes.map(|bytes| decoded(storage, &bytes)).transpose()
}

/// What [`Record::encode_for`] has written, with the users and groups as they are here.
fn decoded(storage: &dyn Storage, bytes: &[u8]) -> Result<Record, Unread> {
    let record = Record::decode(bytes)?;
    Ok(match storage.owners_there().map_err(Unread::Storage)? {
        Some(swap) => record.with_owners(|owner| swap.of(owner)),
        None => record,
    })
}

/// Why a file of ours was not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unread {
    #[error("{0}")]
    Storage(Errno),
    /// What was found in it.
    #[error("{0}")]
    Junk(String),
    /// It is whole, and says what no record says.
    #[error("{0}")]
    Content(#[from] DecodeError),
}

impl From<Errno> for Unread {
    fn from(errno: Errno) -> Self {
        Self::Storage(errno)
    }
}

/// A whole sealed file, `None` if there is none. One that does not begin as it should, or is as long as none can be, is not read.
fn read_sealed(
    storage: &dyn Storage,
    own: &OwnDirectory,
    name: &str,
    magic: [u8; 8],
    bytes_max: u64,
) -> Result<Option<Vec<u8>>, Unread> {
    let opened = match open_own(storage, own, name) {
        Err(Errno::ISDIR | Errno::SPIPE | Errno::NODEV | Errno::LOOP | Errno::PERM) => {
            return Err(Unread::Junk("it is no file of ours".into()));
        }
        opened => opened?,
    };
    let Some((file, size)) = opened else { return Ok(None) };
    if size > bytes_max {
        return Err(Unread::Junk(format!("it has {size} bytes")));
    }
    let mut first = [0; ENVELOPE_START_BYTES];
    storage.read(&file, &mut first, 0)?;
    if sealed_bytes(&first, magic) != Some(size) {
        return Err(Unread::Junk("it is torn, or something else".into()));
    }
    let mut bytes = vec![0; size as usize];
    let length = storage.read(&file, &mut bytes, 0)?;
    bytes.truncate(length);
    Ok(Some(bytes))
}

/// How long a sealed file is that begins so; `None` if nothing sealed does.
fn sealed_bytes(first: &[u8; ENVELOPE_START_BYTES], magic: [u8; 8]) -> Option<u64> {
    const LENGTH_BYTES: usize = 8;
    let empty = seal(magic, 0, b"").len() as u64;
    let length = first.last_chunk::<LENGTH_BYTES>()?;
    let body = u64::from_le_bytes(*length);
    first.starts_with(&magic).then(|| body.checked_add(empty))?
}

/// Why a job was kept, in words, if that was written down.
pub(crate) fn read_why(storage: &dyn Storage, own: &OwnDirectory) -> Option<String> {
    let (file, _) = open_own(storage, own, WHY).ok().flatten()?;
    let mut text = vec![0; WHY_BYTES_MAX];
    let length = storage.read(&file, &mut text, 0).ok()?;
    let text = String::from_utf8_lossy(&text[..length]).into_owned();
    Some(text).filter(|text| !text.is_empty())
}

/// A file in a job's own directory and its size. EPERM for one that is not of the directory's owner.
fn open_own(storage: &dyn Storage, own: &OwnDirectory, name: &str) -> Result<Option<(Handle, u64)>, Errno> {
    let file = match storage.open(&own.handle, OsStr::new(name), Access::Read) {
        Err(Errno::NOENT) => return Ok(None),
        other => other?,
    };
    let stat = storage.stat_handle(&file)?;
    if stat.uid == own.stat.uid {
        Ok(Some((file, stat.size)))
    } else {
        Err(Errno::PERM)
    }
}
