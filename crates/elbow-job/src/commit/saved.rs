//! What the storage does not take, saved elsewhere: its files and their format.
//!
//! ```text
//!   SCRATCH/elbow-<id>-<mtime>.<chance>.saved/     of the user alone (mode 0700)
//!       data        written bytes, piece after piece; locked by whoever works on it
//!       index       sealed: whose it is, what is to be made and where its pieces are, the record of the rest
//!       begun       the job's own directory was made again, where there had been none
//!       left        the rest of the job is as it should be, but could not be marked as kept: whoever finds it does that
//! ```
//!
//! The index gets its name when all of it is durable: a directory without one is what a death left, and is removed by the next who saves
//! something beside it. Each piece has a checksum of its own, because the bytes come back into results.

#![allow(clippy::disallowed_methods, reason = "local scratch, not the storage of a job")]

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use elbow_file::FileType;
use elbow_ranges::encoding::{DecodeError, Reader, Writer, open_sealed, seal};

use rustix::fs::{Mode, OFlags};

use super::record::{
    FILE_TYPES, Record, put_all, put_attrs, put_kind, put_option, take_all, take_attrs, take_kind, take_name,
    take_option,
};
use crate::action::{NewAttrs, Node};
use crate::clock::clock;
use crate::job_files::{BIRTH_LOOKS, BIRTH_PAUSE};
use crate::root_id::{Elsewhere, RootId};
use crate::staging::{is_job_name, new_id, put_path, put_time, take_path, take_time};

const MAGIC: [u8; 8] = *b"ELBOWSAV";
/// With the third, all patch files are in the job's own directory.
const VERSION: u16 = 5;
/// The one before did not say what was mounted.
const VERSIONS: std::ops::RangeInclusive<u16> = 4..=VERSION;
const DATA: &str = "data";
const INDEX: &str = "index";
const INDEX_DRAFT: &str = "index.draft";
/// How often one is begun that others remove as torn.
const TRIES: usize = 20;
const BEGUN: &str = "begun";
const LEFT: &str = "left";
const SUFFIX: &str = ".saved";
const PRIVATE_DIR: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;
/// As much as a commit record may have, of which it holds one.
const INDEX_BYTES_MAX: u64 = 1 << 30;
/// Longest piece: as much as is read back at once.
pub(crate) const PIECE_BYTES_MAX: u64 = 1 << 20;

/// A job of which a part was saved.
#[derive(Clone, Debug)]
pub(crate) struct Saved {
    /// The name of its own directory.
    pub(crate) job: OsString,
    /// The directory that it was run on.
    pub(crate) home: RootId,
    pub(crate) command: Vec<OsString>,
    /// Nothing of the job is on the storage.
    pub(crate) is_all: bool,
    /// The storage keeps the modes that are set.
    pub(crate) keeps_modes: bool,
    pub(crate) containers: Vec<Container>,
    /// Names in new directories that are there and are to go.
    pub(crate) stale: Vec<Position>,
    /// Directories come before what is in them.
    pub(crate) objects: Vec<Object>,
    pub(crate) patches: Vec<PatchFile>,
    /// What the storage has of the rest, apart from directories.
    pub(crate) stored: Vec<Stored>,
    /// The least size of new content of old files that the storage has, by its name in the job's own directory.
    pub(crate) stored_patches: Vec<(OsString, u64)>,
    /// What is left to be done when all of it is staged.
    pub(crate) record: Record,
}

/// An old directory that needs a staging directory; the first is the job's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Container {
    pub(crate) path: PathBuf,
    /// The mode to give to the staging directory where what it inherits would shut its owner out.
    pub(crate) opened: Option<u32>,
}

/// A place in a staging directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    /// The old directory that it is of.
    pub(crate) container: PathBuf,
    /// The path below it.
    pub(crate) path: PathBuf,
}

/// A new object that the storage does not have as it should be.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) at: Position,
    /// It is there, and only lacks what is listed; else it is made anew.
    pub(crate) is_made: bool,
    /// Further names that are to be made.
    pub(crate) links: Vec<Position>,
    pub(crate) node: Node,
    /// All of its attributes; extended ones without a value are to go.
    pub(crate) attrs: NewAttrs,
    pub(crate) content: Content,
}

/// A name that the storage has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) at: Position,
    pub(crate) kind: FileType,
    /// The least size that a file has.
    pub(crate) size: u64,
}

/// New content of an old file that its patch file lacks.
#[derive(Clone, Debug)]
pub(crate) struct PatchFile {
    /// Its name in the job's own directory.
    pub(crate) slot: OsString,
    pub(crate) is_made: bool,
    pub(crate) content: Content,
}

/// What is to be written to a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    /// It is cut to this size first.
    pub(crate) cut: Option<u64>,
    pub(crate) pieces: Vec<Piece>,
    /// And has this size in the end.
    pub(crate) size: Option<u64>,
}

impl Content {
    pub(crate) fn is_empty(&self) -> bool {
        self.cut.is_none() && self.pieces.is_empty() && self.size.is_none()
    }
}

/// A range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) start: u64,
    pub(crate) length: u64,
    /// Where its bytes are; `None`: they are zeros.
    pub(crate) data: Option<Data>,
}

/// Bytes in the file of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Data {
    pub(crate) offset: u64,
    pub(crate) checksum: u32,
}

/// The directory of a saved job.
#[derive(Debug)]
pub(crate) struct SavedDir {
    pub(crate) path: PathBuf,
    dir: OwnedFd,
    data: File,
    end: u64,
}

/// Why what was saved cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SavedError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("another process is at work on it")]
    Busy,
    #[error("its index is larger than any that is read")]
    LargeIndex,
    #[error("its index cannot be read: {0}")]
    Index(#[from] DecodeError),
    /// At this byte.
    #[error("its data is damaged at byte {0}")]
    Data(u64),
}

impl SavedDir {
    /// Makes one in a directory for the job of this name.
    pub(crate) fn create(place: &Path, job: &OsStr) -> io::Result<Self> {
        remove_torn(place);
        // Another job that saves there at this moment takes one for torn whose data is not locked yet.
        for _ in 1..TRIES {
            match Self::try_create(place, job) {
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotFound) => {}
                other => return other,
            }
        }
        Self::try_create(place, job)
    }

    fn try_create(place: &Path, job: &OsStr) -> io::Result<Self> {
        let (path, dir) = make_private(place, job)?;
        let made = Self::with_data(&path, dir);
        made.inspect_err(|_| drop(std::fs::remove_dir_all(&path)))
    }

    fn with_data(path: &Path, dir: OwnedFd) -> io::Result<Self> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let data = File::from(rustix::fs::openat(
            &dir,
            DATA,
            flags,
            Mode::from_raw_mode(PRIVATE_FILE),
        )?);
        if !try_lock(&data)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if data.metadata()?.nlink() == 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Self {
            path: path.to_owned(),
            dir,
            data,
            end: 0,
        })
    }

    /// Opens one to work on it, if it is whole, ours, and nobody else's work at this moment.
    pub(crate) fn open(path: &Path) -> Result<(Self, Saved), SavedError> {
        let dir = open_private(path)?;
        let data = open_own(&dir, DATA)?;
        // Whoever has removed it had the lock until then, and the index with it.
        if !lock_soon(&data)? {
            return Err(SavedError::Busy);
        }
        let saved = read_index(&dir)?;
        let end = data.metadata()?.len();
        let path = path.to_owned();
        Ok((Self { path, dir, data, end }, saved))
    }

    /// The index of one that is ours.
    pub(crate) fn look_at(path: &Path) -> Result<Saved, SavedError> {
        read_index(&open_private(path)?)
    }

    /// Takes bytes in.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> io::Result<Data> {
        let offset = self.end;
        self.data.write_all_at(bytes, offset)?;
        self.end += bytes.len() as u64;
        Ok(Data {
            offset,
            checksum: crc32fast::hash(bytes),
        })
    }

    /// Gives the bytes of a piece back, or what is wrong with them.
    pub(crate) fn get(&self, data: Data, length: u64) -> Result<Vec<u8>, SavedError> {
        let mut bytes = vec![0; length as usize];
        self.data.read_exact_at(&mut bytes, data.offset)?;
        if crc32fast::hash(&bytes) != data.checksum {
            return Err(SavedError::Data(data.offset));
        }
        Ok(bytes)
    }

    /// Makes all of it durable, and sees to it that it can be read again; from then on it is whole.
    pub(crate) fn finish(&self, saved: &Saved) -> io::Result<()> {
        self.data.sync_all()?;
        self.write(INDEX_DRAFT, &saved.encode())?;
        rustix::fs::renameat(&self.dir, INDEX_DRAFT, &self.dir, INDEX)?;
        rustix::fs::fsync(&self.dir)?;
        rustix::fs::fsync(rustix::fs::openat(
            &self.dir,
            "..",
            OFlags::RDONLY | OFlags::DIRECTORY,
            Mode::empty(),
        )?)?;
        let again = open_private(&self.path)?;
        read_index(&again).map(drop).map_err(io::Error::other)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = File::from(rustix::fs::openat(
            &self.dir,
            name,
            flags,
            Mode::from_raw_mode(PRIVATE_FILE),
        )?);
        file.write_all_at(bytes, 0)?;
        file.sync_all()
    }

    /// A directory of the job is about to be made again where there is none: once it was, one that is missing is a job that has gone on, or
    /// was dropped.
    pub(crate) fn note_begun(&self) -> io::Result<()> {
        self.write(BEGUN, b"")?;
        Ok(rustix::fs::fsync(&self.dir)?)
    }

    pub(crate) fn has_begun(&self) -> bool {
        has(&self.dir, BEGUN)
    }

    /// The rest of the job cannot be marked as kept, and is to be, by whoever finds it.
    pub(crate) fn note_left(&self) -> io::Result<()> {
        self.write(LEFT, b"")?;
        Ok(rustix::fs::fsync(&self.dir)?)
    }

    pub(crate) fn is_left(&self) -> bool {
        has(&self.dir, LEFT)
    }

    pub(crate) fn is_left_at(path: &Path) -> bool {
        open_private(path).is_ok_and(|dir| has(&dir, LEFT))
    }

    /// Removes it: the index first and for good, so that nobody takes what is left for a whole one.
    pub(crate) fn remove(self) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.dir, INDEX, rustix::fs::AtFlags::empty()) {
            Err(rustix::io::Errno::NOENT) => {}
            other => other?,
        }
        rustix::fs::fsync(&self.dir)?;
        std::fs::remove_dir_all(&self.path)
    }
}

/// Makes a directory that is ours alone. The name of its job is no secret, so a part of its name is left to chance: nobody can have made it before.
fn make_private(place: &Path, job: &OsStr) -> io::Result<(PathBuf, OwnedFd)> {
    let path = place.join(directory_name(job));
    DirBuilder::new().mode(PRIVATE_DIR).create(&path)?;
    let dir = open_private(&path).inspect_err(|_| drop(std::fs::remove_dir(&path)))?;
    Ok((path, dir))
}

/// Removes what deaths have left in a directory. What cannot be removed does no harm.
fn remove_torn(place: &Path) {
    for path in candidates(place) {
        let Ok(dir) = open_private(&path) else { continue };
        let data = match open_own(&dir, DATA) {
            // The lock is held from here on: nobody finishes it meanwhile.
            Ok(data) if try_lock(&data).unwrap_or(false) => Some(data),
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_old(&dir) => None,
            _ => continue,
        };
        let index = rustix::fs::accessat(&dir, INDEX, rustix::fs::Access::EXISTS, rustix::fs::AtFlags::empty());
        if index == Err(rustix::io::Errno::NOENT) {
            let _ = std::fs::remove_dir_all(&path);
        }
        drop(data);
    }
}

/// Whoever has made it would have put something into it by now.
fn is_old(dir: &OwnedFd) -> bool {
    const SECONDS: i64 = 60;
    rustix::fs::fstat(dir).is_ok_and(|found| (clock().seconds - found.st_mtime).abs() > SECONDS)
}

/// Where a job that was left unmarked has saved what is missing of it, among these places.
///
/// # Errors
/// What cannot be looked at, and so may be it.
pub(crate) fn find_left(places: &[PathBuf], job: &OsStr) -> Result<Option<PathBuf>, PathBuf> {
    for place in places {
        match std::fs::read_dir(place) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            read => drop(read.map_err(|_| place.clone())?),
        }
        for path in named_after(place, job) {
            // Anybody can make something of that name.
            let Some(dir) = open_private(&path).ok().filter(|dir| has(dir, LEFT)) else {
                continue;
            };
            let saved = read_index(&dir).map_err(|_| path.clone())?;
            if saved.job == job && !saved.is_all {
                return Ok(Some(path));
            }
        }
    }
    Ok(None)
}

/// Where anything was saved of a job, among these places.
pub(crate) fn find_saved(places: &[PathBuf], job: &OsStr) -> Option<PathBuf> {
    let mut all = places.iter().flat_map(|place| named_after(place, job));
    all.find(|path| SavedDir::look_at(path).is_ok_and(|saved| saved.job == job))
}

/// Directories in a directory that have the name of a saved part of this job.
fn named_after(place: &Path, job: &OsStr) -> impl Iterator<Item = PathBuf> {
    let is_of_job = |path: &PathBuf| path.file_name().and_then(job_of_directory).as_deref() == job.to_str();
    candidates(place).into_iter().filter(is_of_job)
}

fn has(dir: &OwnedFd, name: &str) -> bool {
    rustix::fs::accessat(dir, name, rustix::fs::Access::EXISTS, rustix::fs::AtFlags::empty()).is_ok()
}

/// Directories in a directory that have the name of a saved job.
pub(crate) fn candidates(place: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(place) else {
        return Vec::new();
    };
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
    let mut found: Vec<PathBuf> = names
        .filter(|name| is_directory_name(name))
        .map(|name| place.join(name))
        .collect();
    found.sort();
    found
}

/// `elbow-<id>-<mtime>.<chance>.saved` for the job `.elbow-<id>-<mtime>`: not hidden, because nobody is to overlook it.
fn directory_name(job: &OsStr) -> OsString {
    let job = job.to_string_lossy();
    format!("{}.{}{SUFFIX}", job.trim_start_matches('.'), new_id()).into()
}

fn is_directory_name(name: &OsStr) -> bool {
    job_of_directory(name).is_some()
}

/// The name of the job's own directory in that of one where it was saved.
fn job_of_directory(name: &OsStr) -> Option<String> {
    let (job, _) = name.to_str()?.strip_suffix(SUFFIX)?.rsplit_once('.')?;
    Some(format!(".{job}")).filter(|job| is_job_name(OsStr::new(job)))
}

/// Opens a directory of ours that nobody else can put anything into. A mount shows as ours whatever its maker likes.
fn open_private(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::open(path, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&dir)?;
    let place = path
        .parent()
        .filter(|place| !place.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let is_mount = rustix::fs::stat(place)?.st_dev != found.st_dev;
    if found.st_uid == rustix::process::geteuid().as_raw() && found.st_mode & 0o077 == 0 && !is_mount {
        return Ok(dir);
    }
    let message = "it is not a directory of this user that is closed to all others (mode 0700)";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
}

/// A regular file of ours in such a directory.
fn open_own(dir: &OwnedFd, name: &str) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(dir, name, flags, Mode::empty())?);
    let found = file.metadata()?;
    if found.is_file() && found.uid() == rustix::process::geteuid().as_raw() {
        return Ok(file);
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidData,
        "it is not a regular file of this user",
    ))
}

fn read_index(dir: &OwnedFd) -> Result<Saved, SavedError> {
    let file = open_own(dir, INDEX)?;
    let size = file.metadata()?.len();
    if size > INDEX_BYTES_MAX {
        return Err(SavedError::LargeIndex);
    }
    let mut bytes = vec![0; size as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(Saved::decode(&bytes)?)
}

/// Locks within two seconds: what a process is starting may have the lock of who has just ended for a moment still.
fn lock_soon(data: &File) -> io::Result<bool> {
    for _ in 1..BIRTH_LOOKS {
        if try_lock(data)? {
            return Ok(true);
        }
        std::thread::sleep(BIRTH_PAUSE);
    }
    try_lock(data)
}

fn try_lock(data: &File) -> io::Result<bool> {
    use rustix::fs::FlockOperation;
    match rustix::fs::flock(data, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        other => other.map(|()| true).map_err(io::Error::from),
    }
}

impl Saved {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.bytes(self.job.as_bytes());
        out.bytes(self.home.path.as_os_str().as_bytes());
        put_option(&mut out, self.home.elsewhere.as_ref(), |out, elsewhere| {
            out.bytes(elsewhere.machine.as_bytes());
            out.bytes(elsewhere.path.as_os_str().as_bytes());
        });
        out.varint(self.home.dev);
        out.varint(self.home.ino);
        put_option(&mut out, self.home.born.as_ref(), |out, born| put_time(out, *born));
        put_option(&mut out, self.home.mounted.as_ref(), |out, mounted| {
            out.bytes(mounted.as_bytes());
        });
        put_all(&mut out, &self.command, |out, word| out.bytes(word.as_bytes()));
        out.bool(self.is_all);
        out.bool(self.keeps_modes);
        put_all(&mut out, &self.containers, |out, container| {
            put_path(out, &container.path);
            put_option(out, container.opened.as_ref(), |out, mode| out.varint(u64::from(*mode)));
        });
        put_all(&mut out, &self.stale, put_position);
        put_all(&mut out, &self.objects, put_object);
        put_all(&mut out, &self.patches, |out, patch| {
            out.bytes(patch.slot.as_bytes());
            out.bool(patch.is_made);
            put_content(out, &patch.content);
        });
        put_all(&mut out, &self.stored, |out, stored| {
            put_position(out, &stored.at);
            put_kind(out, stored.kind);
            out.varint(stored.size);
        });
        put_all(&mut out, &self.stored_patches, |out, (slot, least)| {
            out.bytes(slot.as_bytes());
            out.varint(*least);
        });
        out.bytes(&self.record.encode());
        seal(MAGIC, VERSION, &out.finish())
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (version, body) = open_sealed(MAGIC, VERSIONS, bytes)?;
        let mut from = Reader::new(body);
        let at = from.offset();
        let job = OsString::from_vec(from.bytes()?.to_vec());
        if !is_job_name(&job) {
            let what = "a name that no job has";
            return Err(DecodeError::BadValue { at, what });
        }
        let saved = Self {
            job,
            home: RootId {
                path: OsString::from_vec(from.bytes()?.to_vec()).into(),
                elsewhere: take_option(&mut from, take_elsewhere)?,
                dev: from.varint()?,
                ino: from.varint()?,
                born: take_option(&mut from, take_time)?,
                mounted: match version {
                    VERSION => take_option(
                        &mut from,
                        |from| Ok(String::from_utf8_lossy(from.bytes()?).into_owned()),
                    )?,
                    _ => None,
                },
            },
            command: take_all(&mut from, |from| Ok(OsString::from_vec(from.bytes()?.to_vec())))?,
            is_all: from.bool()?,
            keeps_modes: from.bool()?,
            containers: take_all(&mut from, |from| {
                Ok(Container {
                    path: take_path(from)?,
                    opened: take_option(from, |from| from.u32())?,
                })
            })?,
            stale: take_all(&mut from, take_position)?,
            objects: take_all(&mut from, take_object)?,
            patches: take_all(&mut from, |from| {
                Ok(PatchFile {
                    slot: take_name(from)?,
                    is_made: from.bool()?,
                    content: take_content(from)?,
                })
            })?,
            stored: take_all(&mut from, |from| {
                Ok(Stored {
                    at: take_position(from)?,
                    kind: take_kind(from)?,
                    size: from.varint()?,
                })
            })?,
            stored_patches: take_all(&mut from, |from| Ok((take_name(from)?, from.varint()?)))?,
            record: Record::decode(from.bytes()?)?,
        };
        from.finish()?;
        Ok(saved)
    }

    /// Bytes that are saved.
    pub(crate) fn data_bytes(&self) -> u64 {
        let of_objects = self.objects.iter().map(|object| &object.content);
        let all = of_objects.chain(self.patches.iter().map(|patch| &patch.content));
        let pieces = all.flat_map(|content| &content.pieces);
        pieces
            .filter(|piece| piece.data.is_some())
            .map(|piece| piece.length)
            .sum()
    }
}

fn take_elsewhere(from: &mut Reader<'_>) -> Result<Elsewhere, DecodeError> {
    let at = from.offset();
    let machine = String::from_utf8(from.bytes()?.to_vec());
    let what = "an address that is not UTF-8";
    Ok(Elsewhere {
        machine: machine.map_err(|_| DecodeError::BadValue { at, what })?,
        path: OsString::from_vec(from.bytes()?.to_vec()).into(),
    })
}

fn put_position(out: &mut Writer, position: &Position) {
    put_path(out, &position.container);
    put_path(out, &position.path);
}

fn take_position(from: &mut Reader<'_>) -> Result<Position, DecodeError> {
    Ok(Position {
        container: take_path(from)?,
        path: take_path(from)?,
    })
}

fn put_object(out: &mut Writer, object: &Object) {
    put_position(out, &object.at);
    out.bool(object.is_made);
    put_all(out, &object.links, put_position);
    match &object.node {
        Node::File => out.u8(0),
        Node::Dir => out.u8(1),
        Node::Symlink(target) => {
            out.u8(2);
            out.bytes(target.as_bytes());
        }
        Node::Special(kind, rdev) => {
            out.u8(3);
            put_kind(out, *kind);
            out.varint(*rdev);
        }
    }
    put_attrs(out, &object.attrs);
    put_content(out, &object.content);
}

fn take_object(from: &mut Reader<'_>) -> Result<Object, DecodeError> {
    Ok(Object {
        at: take_position(from)?,
        is_made: from.bool()?,
        links: take_all(from, take_position)?,
        node: take_node(from)?,
        attrs: take_attrs(from)?,
        content: take_content(from)?,
    })
}

fn take_node(from: &mut Reader<'_>) -> Result<Node, DecodeError> {
    let at = from.offset();
    let unknown = DecodeError::BadValue {
        at,
        what: "an unknown kind of object",
    };
    Ok(match from.u8()? {
        0 => Node::File,
        1 => Node::Dir,
        2 => Node::Symlink(OsString::from_vec(from.bytes()?.to_vec())),
        3 => match FILE_TYPES.get(usize::from(from.u8()?)).copied() {
            Some(kind @ (FileType::Fifo | FileType::Socket | FileType::CharDevice | FileType::BlockDevice)) => {
                Node::Special(kind, from.varint()?)
            }
            _ => return Err(unknown),
        },
        _ => return Err(unknown),
    })
}

fn put_content(out: &mut Writer, content: &Content) {
    put_option(out, content.cut.as_ref(), |out, cut| out.varint(*cut));
    put_all(out, &content.pieces, |out, piece| {
        out.varint(piece.start);
        out.varint(piece.length);
        put_option(out, piece.data.as_ref(), |out, data| {
            out.varint(data.offset);
            out.varint(u64::from(data.checksum));
        });
    });
    put_option(out, content.size.as_ref(), |out, size| out.varint(*size));
}

fn take_content(from: &mut Reader<'_>) -> Result<Content, DecodeError> {
    Ok(Content {
        cut: take_option(from, |from| from.varint())?,
        pieces: take_all(from, take_piece)?,
        size: take_option(from, |from| from.varint())?,
    })
}

fn take_piece(from: &mut Reader<'_>) -> Result<Piece, DecodeError> {
    let at = from.offset();
    let piece = Piece {
        start: from.varint()?,
        length: from.varint()?,
        data: take_option(from, |from| {
            Ok(Data {
                offset: from.varint()?,
                checksum: from.u32()?,
            })
        })?,
    };
    let ends = |start: u64| {
        start
            .checked_add(piece.length)
            .is_some_and(|end| end <= i64::MAX as u64)
    };
    let is_short = piece
        .data
        .is_none_or(|data| piece.length <= PIECE_BYTES_MAX && ends(data.offset));
    if ends(piece.start) && is_short {
        return Ok(piece);
    }
    let what = "a piece that is longer than any that is written";
    Err(DecodeError::BadValue { at, what })
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the test looks at what was made")]
mod tests {
    use super::*;

    /// A full disk makes several jobs save at the same moment: what one had just made was torn to the other, and its results were lost.
    #[test]
    fn jobs_that_save_at_the_same_moment_leave_each_other_alone() {
        let place = tempfile::tempdir().unwrap();
        let job = OsStr::new(".elbow-0123456789abcdef-1.000000005");
        let save = || {
            for _ in 0..300 {
                let mut saved = SavedDir::create(place.path(), job).unwrap();
                saved.put(b"result").unwrap();
                assert_eq!(std::fs::read(saved.path.join(DATA)).unwrap(), b"result");
                std::fs::remove_dir_all(&saved.path).unwrap();
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(save))));
    }
}
