//! The commit record: everything that is left to do once a job is committed, and what it takes to take that back.
//!
//! Written and synced before the first step; from then on the job is committed, and whoever finds the record
//! carries it out. All paths are relative to the directory of the job. Those of departures hold before the first
//! step, all others after the placements above them. Each step says what it expects to find, so that it never takes
//! anything else, and what was there before, so that it can be undone.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use elbow_file::{Errno, FileType, Stat, Storage, Time, renumber_acl};
use elbow_ranges::RangeSet;
use elbow_ranges::encoding::{DecodeError, Reader, Writer, open_sealed, seal};

use crate::action::{LinkedObject, NewAttrs};
use crate::staging::{check_path, put_path, put_time, take_path, take_time};
use crate::step_counter::StepCounter;

pub(crate) const MAGIC: [u8; 8] = *b"ELBOWCMT";
/// The second has nothing on what must still be so when a job that was kept goes on, the third nothing on reserved space, and no [`Slot::At`]. Beside the
/// fourth lie undo logs that do not say what has arrived, beside the fifth all patch files in the job's own directory. The sixth has no
/// [`Expected::Attributes`], the seventh does not say what they become, and has no [`Expected::Linked`].
const VERSIONS: std::ops::RangeInclusive<u16> = 2..=8;
const FIRST_WITH_EXPECTATIONS: u16 = 3;
const FIRST_WITH_RESERVED: u16 = 4;

/// What an old object was like when the job saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObservedState {
    pub(super) kind: FileType,
    pub(super) size: u64,
    pub(super) mtime: Time,
    pub(super) ino: u64,
}

impl ObservedState {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            kind: stat.kind,
            size: stat.size,
            mtime: stat.mtime,
            ino: stat.ino,
        }
    }

    /// Nobody has replaced or written it. The time of the inode is not compared: steps change it. Nor is its number, which
    /// some network file systems make up. A directory changes while the job stages in it, so of one only the kind counts.
    pub(crate) fn is_still(&self, now: &Stat) -> bool {
        let same = self.size == now.size && self.mtime == now.mtime;
        self.kind == now.kind && (same || self.kind == FileType::Dir)
    }

    /// It is this very object, on a storage whose inode numbers last.
    pub(crate) fn is(&self, now: &Stat) -> bool {
        self.is_still(now) && self.ino == now.ino
    }
}

/// Where an old object waits that has left its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// In the directory that it was in, under this hidden name: no right is needed but to rename there, and
    /// directories that may be neither written nor moved elsewhere can be renamed in place.
    Beside(OsString),
    /// In the job's own directory, under this name: it goes on to another directory.
    InJob(OsString),
    /// In a directory on its own device, where that of the job is on another, under this hidden name. In a departure the path is that
    /// before the first step, in a placement that after the last; no step moves the directory in between.
    At(PathBuf, OsString),
}

/// An old object leaves its name, with all below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Departure {
    pub(crate) path: PathBuf,
    pub(crate) slot: Slot,
    /// `None`: it was never looked at.
    pub(crate) seen: Option<ObservedState>,
    /// It is removed, and nobody waits for it.
    pub(crate) is_dead: bool,
}

/// Where a placed object comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PlacementSource {
    /// The staging directory of its directory, under the same name.
    Staged,
    /// The slot of its departure.
    Slot(Slot),
}

/// What gives way to a placed object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replaced {
    pub(crate) seen: Option<ObservedState>,
    /// Where it waits, beside the source of what replaces it, if the two names cannot be exchanged in one step.
    pub(crate) spare: OsString,
}

/// An object gets its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) to: PathBuf,
    pub(crate) from: PlacementSource,
    pub(crate) replaced: Option<Replaced>,
    /// A new directory that its owner may not write: it cannot be moved as it is.
    pub(crate) is_locked: bool,
}

/// New content of an old file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Patch {
    pub(crate) path: PathBuf,
    /// Its patch file in the job's own directory.
    pub(crate) slot: OsString,
    pub(crate) written: RangeSet,
    pub(crate) zeroed: RangeSet,
    /// How much of the content before still counts where nothing was written.
    pub(crate) kept: u64,
    pub(crate) size: u64,
    pub(crate) size_before: u64,
    /// The file before.
    pub(crate) seen: Option<ObservedState>,
    /// What it is to have reserved, written or not.
    pub(crate) reserved: RangeSet,
}

/// New attributes of an object.
#[derive(Clone, Debug)]
pub(crate) struct Attributes {
    pub(crate) path: PathBuf,
    pub(crate) is_dir: bool,
    pub(crate) attrs: NewAttrs,
    /// Those of an old object before the job.
    pub(crate) before: NewAttrs,
}

/// What is expected of a path.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Expected<T> {
    /// The object that the job saw.
    Same(T),
    /// A directory with these names, and no others.
    Names(BTreeSet<OsString>),
    /// Nothing.
    Absent,
    /// An object with these attributes.
    Attributes(Box<AttributeChange>),
    /// The object that gets another name, whatever it has become.
    Linked(LinkedObject),
}

/// What is set of an object that was there before.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct AttributeChange {
    pub(crate) before: NewAttrs,
    /// Whoever has set the same has set nothing that gets lost.
    pub(crate) after: NewAttrs,
}

impl<T> Expected<T> {
    /// Of another machine's users and groups; `of_object` does it to what is known of an object.
    pub(super) fn renumber(&mut self, owner: impl Fn((u32, u32)) -> (u32, u32), of_object: impl FnOnce(&mut T)) {
        match self {
            Self::Same(object) => of_object(object),
            Self::Attributes(change) => {
                renumber(&mut change.before, &owner);
                renumber(&mut change.after, &owner);
            }
            Self::Names(_) | Self::Absent | Self::Linked(_) => {}
        }
    }
}

fn renumber(attrs: &mut NewAttrs, owner: impl Fn((u32, u32)) -> (u32, u32)) {
    attrs.owner = attrs.owner.map(&owner);
    let (uid, gid) = (|uid| owner((uid, 0)).0, |gid| owner((0, gid)).1);
    for (key, value) in &mut attrs.xattrs {
        value.iter_mut().for_each(|value| renumber_acl(key, value, uid, gid));
    }
}

/// What an old object was like, for who looks at it much later, when its time of last change says nothing any more: a commit that was taken back
/// has changed that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordedObject {
    pub(crate) seen: ObservedState,
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
}

impl RecordedObject {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            seen: ObservedState::of(stat),
            mode: stat.mode,
            owner: (stat.uid, stat.gid),
        }
    }
}

/// Paths before the first step, by those after the last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OriginalPaths {
    /// Of objects whose content or attributes are set, or that get another name.
    pub(crate) objects: BTreeMap<PathBuf, PathBuf>,
    /// Of names that are placed.
    pub(crate) names: BTreeMap<PathBuf, PathBuf>,
}

/// All steps of a commit, in the order of the fields.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// Deepest first.
    pub(crate) departures: Vec<Departure>,
    /// Names that new or moved objects get, highest first.
    pub(crate) placements: Vec<Placement>,
    /// Further names of old objects: existing and new name.
    pub(crate) links: Vec<(PathBuf, PathBuf)>,
    pub(crate) patches: Vec<Patch>,
    pub(crate) attributes: Vec<Attributes>,
    /// Directories below the job's that have a staging directory to be removed.
    pub(crate) staged: Vec<PathBuf>,
    /// Hidden names in directories that stay, which are removed in the end.
    pub(crate) parked: Vec<(PathBuf, OsString)>,
    /// What must be so before the first step, by the paths that hold then. Those who commit have looked already; it is for a job that
    /// was kept, and the names in directories that are removed are looked at once more when nobody else finds these.
    pub(crate) expected: Vec<(PathBuf, Expected<RecordedObject>)>,
    pub(crate) before: OriginalPaths,
    /// Taken back, the job is kept, and can go on from this record.
    pub(crate) keeps: bool,
    /// What somebody else has changed meanwhile goes.
    pub(crate) wins: bool,
}

impl Record {
    /// Whether others have committed that belong to the job, and it may not be kept: who rolled it back would leave a part of what belongs together.
    pub(crate) fn has_to_commit(&self, is_bound: bool) -> bool {
        is_bound && !self.keeps
    }

    /// As it is written on a storage, which whoever comes next may know from another machine: with the users and groups of the one that has it.
    ///
    /// # Errors
    /// ENOTCONN, where these have to be asked for.
    pub(crate) fn encode_for(&self, storage: &dyn Storage) -> Result<Vec<u8>, Errno> {
        Ok(match storage.owners_there()? {
            Some(swap) => self.clone().with_owners(|owner| swap.of(owner)).encode(),
            None => self.encode(),
        })
    }

    /// The same with the users and groups that another machine knows, each of which has a number there that does not depend on the other.
    pub(crate) fn with_owners(mut self, owner: impl Fn((u32, u32)) -> (u32, u32)) -> Self {
        for attributes in &mut self.attributes {
            renumber(&mut attributes.attrs, &owner);
            renumber(&mut attributes.before, &owner);
        }
        for (_, expected) in &mut self.expected {
            expected.renumber(&owner, |object| object.owner = owner(object.owner));
        }
        self
    }

    /// Nothing would change.
    pub(crate) fn is_empty(&self) -> bool {
        self.departures.is_empty()
            && self.placements.is_empty()
            && self.links.is_empty()
            && self.patches.is_empty()
            && self.attributes.is_empty()
    }

    /// Contents or attributes of objects change that were there before.
    pub(super) fn changes_old_objects(&self) -> bool {
        !self.patches.is_empty() || self.attributes.iter().any(|attributes| !attributes.before.is_empty())
    }

    /// The names that were in each directory that is removed; none, if what was added goes with it.
    pub(super) fn removed(&self) -> BTreeMap<&Path, &BTreeSet<OsString>> {
        self.emptied().filter(|_| !self.wins).collect()
    }

    /// The same whatever others have put there.
    pub(super) fn emptied(&self) -> impl Iterator<Item = (&Path, &BTreeSet<OsString>)> {
        self.expected.iter().filter_map(|(path, expected)| match expected {
            Expected::Names(names) => Some((path.as_path(), names)),
            _ => None,
        })
    }

    /// The steps of [`Apply::publish`](super::Apply::publish), none of them done.
    pub(crate) fn publishing(&self) -> StepCounter {
        let names = self.departures.len() + self.placements.len() + self.links.len();
        let bytes = self.patches.iter().map(|patch| patch.written.total_bytes()).sum();
        StepCounter::of(names + self.patches.len() + self.attributes.len(), bytes)
    }

    /// The steps of [`Apply::clean`](super::Apply::clean), none of them done.
    pub(crate) fn cleaning(&self) -> StepCounter {
        let dirs = self.attributes.iter().filter(|attributes| attributes.is_dir).count();
        // What was replaced waits in a staging directory.
        let replaced = self.placements.iter().filter(|placement| placement.replaced.is_some());
        StepCounter::of(self.staged.len() + self.parked.len() + replaced.count() + dirs, 0)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new();
        put_all(&mut out, &self.departures, put_departure);
        put_all(&mut out, &self.placements, put_placement);
        put_all(&mut out, &self.links, |out, (from, to)| {
            put_path(out, from);
            put_path(out, to);
        });
        put_all(&mut out, &self.patches, put_patch);
        put_all(&mut out, &self.attributes, put_attributes);
        put_all(&mut out, &self.staged, |out, path| put_path(out, path));
        put_all(&mut out, &self.parked, |out, (dir, name)| {
            put_path(out, dir);
            out.bytes(name.as_bytes());
        });
        put_expected(&mut out, &self.expected);
        put_pairs(&mut out, &self.before.objects);
        put_pairs(&mut out, &self.before.names);
        out.bool(self.keeps);
        out.bool(self.wins);
        seal(MAGIC, *VERSIONS.end(), &out.finish())
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (version, body) = open_sealed(MAGIC, VERSIONS, bytes)?;
        let mut from = Reader::new(body);
        let mut record = Self {
            departures: take_all(&mut from, take_departure)?,
            placements: take_all(&mut from, take_placement)?,
            links: take_all(&mut from, |from| Ok((take_path(from)?, take_path(from)?)))?,
            patches: take_all(&mut from, |from| take_patch(from, version))?,
            attributes: take_all(&mut from, take_attributes)?,
            staged: take_all(&mut from, take_path)?,
            parked: take_all(&mut from, |from| Ok((take_path(from)?, take_name(from)?)))?,
            ..Self::default()
        };
        if version >= FIRST_WITH_EXPECTATIONS {
            record.expected = take_expected(&mut from)?;
            record.before.objects = take_pairs(&mut from)?;
            record.before.names = take_pairs(&mut from)?;
            record.keeps = from.bool()?;
            record.wins = from.bool()?;
        }
        from.finish()?;
        Ok(record)
    }
}

pub(super) fn put_all<'a, T>(out: &mut Writer, items: &'a [T], mut put: impl FnMut(&mut Writer, &'a T)) {
    out.varint(items.len() as u64);
    items.iter().for_each(|item| put(out, item));
}

pub(super) fn take_all<T>(
    from: &mut Reader<'_>,
    mut take: impl FnMut(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let count = from.count(1)?;
    (0..count).map(|_| take(from)).collect()
}

/// A single name.
pub(super) fn take_name(from: &mut Reader<'_>) -> Result<OsString, DecodeError> {
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

/// A path by what it shares with the one before, in bytes, and the rest: sorted paths are short so.
fn put_path_after(out: &mut Writer, last: &Path, path: &Path) {
    let (last, path) = (last.as_os_str().as_bytes(), path.as_os_str().as_bytes());
    let shared = last.iter().zip(path).take_while(|(a, b)| a == b).count();
    out.varint(shared as u64);
    out.bytes(&path[shared..]);
}

fn take_path_after(from: &mut Reader<'_>, last: &Path) -> Result<PathBuf, DecodeError> {
    let at = from.offset();
    let bad = |what| DecodeError::BadValue { at, what };
    let shared = usize::try_from(from.varint()?).map_err(|_| bad("a length beyond memory"))?;
    let shared = last.as_os_str().as_bytes().get(..shared);
    let shared = shared.ok_or(bad("a path that shares more with the one before than that has"))?;
    let path = PathBuf::from(OsStr::from_bytes(&[shared, from.bytes()?].concat()));
    check_path(at, path)
}

fn put_expected(out: &mut Writer, expected: &[(PathBuf, Expected<RecordedObject>)]) {
    let mut last = Path::new("");
    put_all(out, expected, |out, (path, expected)| {
        put_path_after(out, last, path);
        last = path;
        match expected {
            Expected::Same(was) => {
                out.u8(0);
                put_seen(out, &was.seen);
                out.varint(u64::from(was.mode));
                out.varint(u64::from(was.owner.0));
                out.varint(u64::from(was.owner.1));
            }
            Expected::Names(names) => {
                out.u8(1);
                out.varint(names.len() as u64);
                names.iter().for_each(|name| out.bytes(name.as_bytes()));
            }
            Expected::Absent => out.u8(2),
            Expected::Attributes(change) => {
                out.u8(4);
                put_attrs(out, &change.before);
                put_attrs(out, &change.after);
            }
            Expected::Linked(linked) => {
                out.u8(5);
                put_kind(out, linked.kind);
                out.varint(linked.ino);
                out.varint(linked.size);
                put_time(out, linked.mtime);
            }
        }
    });
}

fn take_expected(from: &mut Reader<'_>) -> Result<Vec<(PathBuf, Expected<RecordedObject>)>, DecodeError> {
    let mut last = PathBuf::new();
    take_all(from, |from| {
        last = take_path_after(from, &last)?;
        let at = from.offset();
        let expected = match from.u8()? {
            0 => Expected::Same(RecordedObject {
                seen: take_seen(from)?,
                mode: from.u32()?,
                owner: (from.u32()?, from.u32()?),
            }),
            1 => Expected::Names(take_all(from, take_name)?.into_iter().collect()),
            2 => Expected::Absent,
            3 => Expected::Attributes(Box::new(AttributeChange {
                before: take_attrs(from)?,
                after: NewAttrs::default(),
            })),
            4 => Expected::Attributes(Box::new(AttributeChange {
                before: take_attrs(from)?,
                after: take_attrs(from)?,
            })),
            5 => Expected::Linked(LinkedObject {
                kind: take_kind(from)?,
                ino: from.varint()?,
                size: from.varint()?,
                mtime: take_time(from)?,
            }),
            _ => {
                return Err(DecodeError::BadValue {
                    at,
                    what: "an unknown kind of expectation",
                });
            }
        };
        Ok((last.clone(), expected))
    })
}

fn put_pairs(out: &mut Writer, pairs: &BTreeMap<PathBuf, PathBuf>) {
    out.varint(pairs.len() as u64);
    let mut last = Path::new("");
    for (path, other) in pairs {
        put_path_after(out, last, path);
        put_path_after(out, path, other);
        last = path;
    }
}

fn take_pairs(from: &mut Reader<'_>) -> Result<BTreeMap<PathBuf, PathBuf>, DecodeError> {
    let mut last = PathBuf::new();
    let pairs = take_all(from, |from| {
        last = take_path_after(from, &last)?;
        Ok((last.clone(), take_path_after(from, &last)?))
    })?;
    Ok(pairs.into_iter().collect())
}

pub(super) const FILE_TYPES: [FileType; 7] = [
    FileType::File,
    FileType::Dir,
    FileType::Symlink,
    FileType::Fifo,
    FileType::Socket,
    FileType::CharDevice,
    FileType::BlockDevice,
];

pub(super) fn put_kind(out: &mut Writer, kind: FileType) {
    out.u8(FILE_TYPES.iter().position(|known| *known == kind).unwrap_or_default() as u8);
}

pub(super) fn take_kind(from: &mut Reader<'_>) -> Result<FileType, DecodeError> {
    let at = from.offset();
    let kind = FILE_TYPES.get(usize::from(from.u8()?)).copied();
    kind.ok_or(DecodeError::BadValue {
        at,
        what: "an unknown kind of object",
    })
}

fn put_seen(out: &mut Writer, seen: &ObservedState) {
    put_kind(out, seen.kind);
    out.varint(seen.size);
    put_time(out, seen.mtime);
    out.varint(seen.ino);
}

fn take_seen(from: &mut Reader<'_>) -> Result<ObservedState, DecodeError> {
    Ok(ObservedState {
        kind: take_kind(from)?,
        size: from.varint()?,
        mtime: take_time(from)?,
        ino: from.varint()?,
    })
}

fn put_slot(out: &mut Writer, slot: &Slot) {
    let (kind, name) = match slot {
        Slot::InJob(name) => (0, name),
        Slot::Beside(name) => (1, name),
        Slot::At(_, name) => (2, name),
    };
    out.u8(kind);
    out.bytes(name.as_bytes());
    if let Slot::At(dir, _) = slot {
        put_path(out, dir);
    }
}

fn take_slot(from: &mut Reader<'_>) -> Result<Slot, DecodeError> {
    let at = from.offset();
    let (kind, name) = (from.u8()?, take_name(from)?);
    match kind {
        0 => Ok(Slot::InJob(name)),
        1 => Ok(Slot::Beside(name)),
        2 => Ok(Slot::At(take_path(from)?, name)),
        _ => Err(DecodeError::BadValue {
            at,
            what: "an unknown place to wait at",
        }),
    }
}

fn put_departure(out: &mut Writer, departure: &Departure) {
    put_path(out, &departure.path);
    put_slot(out, &departure.slot);
    put_option(out, departure.seen.as_ref(), put_seen);
    out.bool(departure.is_dead);
}

fn take_departure(from: &mut Reader<'_>) -> Result<Departure, DecodeError> {
    Ok(Departure {
        path: take_path(from)?,
        slot: take_slot(from)?,
        seen: take_option(from, take_seen)?,
        is_dead: from.bool()?,
    })
}

fn put_placement(out: &mut Writer, placement: &Placement) {
    put_path(out, &placement.to);
    let slot = match &placement.from {
        PlacementSource::Staged => None,
        PlacementSource::Slot(slot) => Some(slot),
    };
    put_option(out, slot, put_slot);
    put_option(out, placement.replaced.as_ref(), |out, replaced| {
        put_option(out, replaced.seen.as_ref(), put_seen);
        out.bytes(replaced.spare.as_bytes());
    });
    out.bool(placement.is_locked);
}

fn take_placement(from: &mut Reader<'_>) -> Result<Placement, DecodeError> {
    Ok(Placement {
        to: take_path(from)?,
        from: take_option(from, take_slot)?.map_or(PlacementSource::Staged, PlacementSource::Slot),
        replaced: take_option(from, |from| {
            Ok(Replaced {
                seen: take_option(from, take_seen)?,
                spare: take_name(from)?,
            })
        })?,
        is_locked: from.bool()?,
    })
}

fn put_patch(out: &mut Writer, patch: &Patch) {
    put_path(out, &patch.path);
    out.bytes(patch.slot.as_bytes());
    out.ranges(&patch.written);
    out.ranges(&patch.zeroed);
    out.varint(patch.kept);
    out.varint(patch.size);
    out.varint(patch.size_before);
    put_option(out, patch.seen.as_ref(), put_seen);
    out.ranges(&patch.reserved);
}

fn take_patch(from: &mut Reader<'_>, version: u16) -> Result<Patch, DecodeError> {
    Ok(Patch {
        path: take_path(from)?,
        slot: take_name(from)?,
        written: from.ranges()?,
        zeroed: from.ranges()?,
        kept: from.varint()?,
        size: from.varint()?,
        size_before: from.varint()?,
        seen: take_option(from, take_seen)?,
        reserved: match version >= FIRST_WITH_RESERVED {
            true => from.ranges()?,
            false => RangeSet::new(),
        },
    })
}

fn put_attributes(out: &mut Writer, attributes: &Attributes) {
    put_path(out, &attributes.path);
    out.bool(attributes.is_dir);
    put_attrs(out, &attributes.attrs);
    put_attrs(out, &attributes.before);
}

fn take_attributes(from: &mut Reader<'_>) -> Result<Attributes, DecodeError> {
    Ok(Attributes {
        path: take_path(from)?,
        is_dir: from.bool()?,
        attrs: take_attrs(from)?,
        before: take_attrs(from)?,
    })
}

pub(super) fn put_attrs(out: &mut Writer, attrs: &NewAttrs) {
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

pub(super) fn take_attrs(from: &mut Reader<'_>) -> Result<NewAttrs, DecodeError> {
    Ok(NewAttrs {
        owner: take_option(from, |from| Ok((from.u32()?, from.u32()?)))?,
        mode: take_option(from, |from| from.u32())?,
        times: take_option(from, |from| Ok((take_time(from)?, take_time(from)?)))?,
        xattrs: take_all(from, |from| {
            let key = OsString::from_vec(from.bytes()?.to_vec());
            Ok((key, take_option(from, |from| Ok(from.bytes()?.to_vec()))?))
        })?,
    })
}

pub(super) fn put_option<T>(out: &mut Writer, value: Option<&T>, put: impl Fn(&mut Writer, &T)) {
    out.bool(value.is_some());
    if let Some(value) = value {
        put(out, value);
    }
}

pub(super) fn take_option<T>(
    from: &mut Reader<'_>,
    take: impl Fn(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Option<T>, DecodeError> {
    if from.bool()? { take(from).map(Some) } else { Ok(None) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_must_still_be_so_is_read_as_it_was_written() {
        let seen = ObservedState {
            kind: FileType::File,
            size: 7,
            mtime: Time::default(),
            ino: 99,
        };
        let was = RecordedObject {
            seen,
            mode: 0o4755,
            owner: (0, u32::MAX),
        };
        let names = BTreeSet::from(["a".into(), OsString::from_vec(vec![0xff])]);
        let attrs = NewAttrs {
            owner: Some((0, u32::MAX)),
            mode: Some(0o2755),
            xattrs: vec![("user.a".into(), None), ("user.b".into(), Some(vec![0xff]))],
            times: None,
        };
        let after = NewAttrs {
            mode: Some(0o700),
            ..NewAttrs::default()
        };
        let change = AttributeChange { before: attrs, after };
        let linked = LinkedObject {
            kind: FileType::Symlink,
            ino: u64::MAX,
            size: 7,
            mtime: Time::default(),
        };
        let pairs = BTreeMap::from([
            ("".into(), "".into()),
            ("a/b".into(), "b".into()),
            ("a/c".into(), "a/c".into()),
        ]);
        let record = Record {
            expected: vec![
                ("a".into(), Expected::Names(names)),
                ("a/b".into(), Expected::Same(was)),
                ("b".into(), Expected::Absent),
                ("c".into(), Expected::Attributes(Box::new(change))),
                ("d".into(), Expected::Linked(linked)),
            ],
            before: OriginalPaths {
                objects: pairs.clone(),
                names: pairs,
            },
            keeps: true,
            ..Record::default()
        };
        let read = Record::decode(&record.encode()).expect("it is whole");
        assert_eq!(
            (read.expected, read.before, read.keeps),
            (record.expected, record.before, true)
        );
    }

    #[test]
    fn a_record_of_the_version_before_is_read() {
        let departs = |slot| Departure {
            path: "a/b".into(),
            slot,
            seen: None,
            is_dead: false,
        };
        let record = |slots: Vec<Slot>| Record {
            departures: slots.into_iter().map(departs).collect(),
            ..Record::default()
        };
        let old = record(vec![Slot::Beside("x".into()), Slot::InJob("n1".into())]);
        let (version, body) = open_sealed(MAGIC, VERSIONS, &old.encode())
            .map(|(v, b)| (v, b.to_vec()))
            .unwrap();
        assert_eq!(version, 8);
        let read = Record::decode(&seal(MAGIC, 3, &body)).expect("it is whole");
        assert_eq!(read.departures, old.departures);
        let new = record(vec![Slot::At("sub/dir".into(), "x".into())]);
        assert_eq!(
            Record::decode(&new.encode()).expect("it is whole").departures,
            new.departures
        );
        let out = record(vec![Slot::At("../dir".into(), "x".into())]);
        assert!(
            Record::decode(&out.encode()).is_err(),
            "a path that leaves the directory"
        );
    }

    #[test]
    fn a_path_that_leaves_the_directory_or_shares_too_much_is_refused() {
        for (shared, rest) in [(0, "../x"), (0, "/x"), (2, "x"), (u64::MAX, "x")] {
            let mut out = Writer::new();
            out.varint(shared);
            out.bytes(rest.as_bytes());
            assert!(
                take_path_after(&mut Reader::new(&out.finish()), Path::new("a")).is_err(),
                "{shared} {rest}"
            );
        }
    }
}
