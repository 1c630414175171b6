//! The commit record: everything that is left to do once a job is committed.
//!
//! Written and synced before the first step; from then on the job is committed, and whoever finds the record
//! carries it out. All paths are relative to the directory of the job. `old` paths hold before the first
//! step, all others after the placements above them.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use elbow_ranges::RangeSet;
use elbow_ranges::encoding::{DecodeError, Reader, Writer, open_sealed, seal};

use super::watch::Tally;
use crate::plan::NewAttrs;
use crate::staging::{put_path, put_time, take_path, take_time};

pub(crate) const MAGIC: [u8; 8] = *b"ELBOWCMT";
const VERSION: u16 = 1;

/// Where a placed object comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The staging directory of its directory, under the same name.
    Staged,
    /// The job's own directory, under this name.
    Limbo(OsString),
}

/// An object gets its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) to: PathBuf,
    pub(crate) from: Source,
}

/// New content of an old file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Patch {
    pub(crate) path: PathBuf,
    /// Its patch file in the job's own directory.
    pub(crate) slot: OsString,
    pub(crate) written: RangeSet,
    pub(crate) zeroed: RangeSet,
    pub(crate) size: u64,
}

/// New attributes of an old object.
#[derive(Clone, Debug)]
pub(crate) struct Attributes {
    pub(crate) path: PathBuf,
    pub(crate) is_dir: bool,
    pub(crate) attrs: NewAttrs,
}

/// All steps of a commit, in the order of the fields.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// Old files that were shortened, and to what size (`old` paths).
    pub(crate) cuts: Vec<(PathBuf, u64)>,
    /// Names of anything but directories that go (`old` paths).
    pub(crate) removals: Vec<PathBuf>,
    /// Old objects that move or go with all below them: into the job's own directory under the given name,
    /// deepest first (`old` paths).
    pub(crate) collections: Vec<(PathBuf, OsString)>,
    /// Names that new or moved objects get, highest first.
    pub(crate) placements: Vec<Placement>,
    /// Further names of old objects: existing and new name.
    pub(crate) links: Vec<(PathBuf, PathBuf)>,
    pub(crate) patches: Vec<Patch>,
    pub(crate) attributes: Vec<Attributes>,
    /// Directories below the job's that have a staging directory to be removed.
    pub(crate) staged: Vec<PathBuf>,
}

impl Record {
    /// Nothing would change.
    pub(crate) fn is_empty(&self) -> bool {
        self.cuts.is_empty()
            && self.removals.is_empty()
            && self.collections.is_empty()
            && self.placements.is_empty()
            && self.links.is_empty()
            && self.patches.is_empty()
            && self.attributes.is_empty()
    }

    /// Steps that must be known to be over before the placements begin.
    pub(crate) fn collects(&self) -> bool {
        !self.cuts.is_empty() || !self.removals.is_empty() || !self.collections.is_empty()
    }

    /// The steps of [`Apply::publish`](super::Apply::publish), none of them done.
    pub(crate) fn publishing(&self) -> Tally {
        let files = self.attributes.iter().filter(|attributes| !attributes.is_dir).count();
        let names = self.cuts.len() + self.removals.len() + self.collections.len() + self.placements.len();
        let bytes = self.patches.iter().map(|patch| patch.written.total_bytes()).sum();
        Tally::of(names + self.links.len() + self.patches.len() + files, bytes)
    }

    /// The steps of [`Apply::clean`](super::Apply::clean), none of them done.
    pub(crate) fn cleaning(&self) -> Tally {
        let dirs = self.attributes.iter().filter(|attributes| attributes.is_dir).count();
        Tally::of(self.staged.len() + dirs, 0)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new();
        put_all(&mut out, &self.cuts, |out, (path, size)| {
            put_path(out, path);
            out.varint(*size);
        });
        put_all(&mut out, &self.removals, |out, path| put_path(out, path));
        put_all(&mut out, &self.collections, |out, (path, slot)| {
            put_path(out, path);
            out.bytes(slot.as_bytes());
        });
        put_all(&mut out, &self.placements, put_placement);
        put_all(&mut out, &self.links, |out, (from, to)| {
            put_path(out, from);
            put_path(out, to);
        });
        put_all(&mut out, &self.patches, put_patch);
        put_all(&mut out, &self.attributes, put_attributes);
        put_all(&mut out, &self.staged, |out, path| put_path(out, path));
        seal(MAGIC, VERSION, &out.finish())
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (_, body) = open_sealed(MAGIC, VERSION..=VERSION, bytes)?;
        let mut from = Reader::new(body);
        let record = Self {
            cuts: take_all(&mut from, |from| Ok((take_path(from)?, from.varint()?)))?,
            removals: take_all(&mut from, take_path)?,
            collections: take_all(&mut from, |from| Ok((take_path(from)?, take_name(from)?)))?,
            placements: take_all(&mut from, take_placement)?,
            links: take_all(&mut from, |from| Ok((take_path(from)?, take_path(from)?)))?,
            patches: take_all(&mut from, take_patch)?,
            attributes: take_all(&mut from, take_attributes)?,
            staged: take_all(&mut from, take_path)?,
        };
        from.finish()?;
        Ok(record)
    }
}

fn put_all<T>(out: &mut Writer, items: &[T], put: impl Fn(&mut Writer, &T)) {
    out.varint(items.len() as u64);
    items.iter().for_each(|item| put(out, item));
}

fn take_all<T>(
    from: &mut Reader<'_>,
    take: impl Fn(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let count = from.count(1)?;
    (0..count).map(|_| take(from)).collect()
}

/// A name within the job's own directory.
fn take_name(from: &mut Reader<'_>) -> Result<OsString, DecodeError> {
    let at = from.offset();
    let name = from.bytes()?;
    if name.is_empty() || name.contains(&b'/') || name == b"." || name == b".." {
        return Err(DecodeError::BadValue {
            at,
            what: "a name that is not a single path component",
        });
    }
    Ok(OsString::from_vec(name.to_vec()))
}

fn put_placement(out: &mut Writer, placement: &Placement) {
    put_path(out, &placement.to);
    match &placement.from {
        Source::Staged => out.bool(false),
        Source::Limbo(slot) => {
            out.bool(true);
            out.bytes(slot.as_bytes());
        }
    }
}

fn take_placement(from: &mut Reader<'_>) -> Result<Placement, DecodeError> {
    let to = take_path(from)?;
    let source = if from.bool()? {
        Source::Limbo(take_name(from)?)
    } else {
        Source::Staged
    };
    Ok(Placement { to, from: source })
}

fn put_patch(out: &mut Writer, patch: &Patch) {
    put_path(out, &patch.path);
    out.bytes(patch.slot.as_bytes());
    out.ranges(&patch.written);
    out.ranges(&patch.zeroed);
    out.varint(patch.size);
}

fn take_patch(from: &mut Reader<'_>) -> Result<Patch, DecodeError> {
    Ok(Patch {
        path: take_path(from)?,
        slot: take_name(from)?,
        written: from.ranges()?,
        zeroed: from.ranges()?,
        size: from.varint()?,
    })
}

fn put_attributes(out: &mut Writer, attributes: &Attributes) {
    put_path(out, &attributes.path);
    out.bool(attributes.is_dir);
    let attrs = &attributes.attrs;
    put_option(out, attrs.owner.as_ref(), |out, (uid, gid)| {
        out.varint(u64::from(*uid));
        out.varint(u64::from(*gid));
    });
    put_option(out, attrs.mode.as_ref(), |out, mode| out.varint(u64::from(*mode)));
    put_option(out, attrs.times.as_ref(), |out, (atime, mtime)| {
        put_time(out, *atime);
        put_time(out, *mtime);
    });
    put_all(out, &attrs.xattrs, |out, (key, value)| {
        out.bytes(key.as_bytes());
        put_option(out, value.as_ref(), |out, value| out.bytes(value));
    });
}

fn take_attributes(from: &mut Reader<'_>) -> Result<Attributes, DecodeError> {
    let path = take_path(from)?;
    let is_dir = from.bool()?;
    let owner = take_option(from, |from| Ok((from.u32()?, from.u32()?)))?;
    let mode = take_option(from, |from| from.u32())?;
    let times = take_option(from, |from| Ok((take_time(from)?, take_time(from)?)))?;
    let xattrs = take_all(from, |from| {
        let key = OsString::from_vec(from.bytes()?.to_vec());
        Ok((key, take_option(from, |from| Ok(from.bytes()?.to_vec()))?))
    })?;
    Ok(Attributes {
        path,
        is_dir,
        attrs: NewAttrs {
            owner,
            mode,
            xattrs,
            times,
        },
    })
}

fn put_option<T>(out: &mut Writer, value: Option<&T>, put: impl Fn(&mut Writer, &T)) {
    out.bool(value.is_some());
    if let Some(value) = value {
        put(out, value);
    }
}

fn take_option<T>(
    from: &mut Reader<'_>,
    take: impl Fn(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Option<T>, DecodeError> {
    if from.bool()? { take(from).map(Some) } else { Ok(None) }
}
