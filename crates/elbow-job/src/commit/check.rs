//! Is every old object that the job changes still what the job saw?
//!
//! Compared are kind, size, times of content and inode; of a removed directory, its names. Inode numbers are
//! not compared: some network and FUSE file systems make them up, and the time of the inode changes with
//! every replacement anyway. Directories with a staging directory have changed by our own hand, so of
//! directories only kind and, where they are removed, names, owner and mode are compared; and where the job sets
//! attributes of them, those.
//!
//! And does the job leave alone what other jobs have staged, running or kept? A directory that it removes or moves must
//! hold none of that, whoever wins conflicts: nobody would be told of the loss.

use std::collections::{BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use elbow_file::{Errno, FileType, ShowName, Stat, Time};
use serde::{Deserialize, Serialize};

use super::failure::failure;
use super::record::{AttributeChange, Expected, Record, RecordedObject};
use super::tree::Tree;
use super::turn::runs_another;
use crate::action::{LinkedObject, NewAttrs};
use crate::api::Ino;
use crate::clock::clock;
use crate::closed::{OWNER_ALL, is_closed};
use crate::execute::SET_GROUP_ID;
use crate::found::read_journal;
use crate::model::{ACCESS_ACL, EntryKey, Inode, Model};
use crate::os_path;
use crate::ownership::{Ownership, OwnershipCheck};
use crate::parallel::parallel;
use crate::report::{Cause, cause_of};
use crate::staging::{JournalEntry, is_job_name, is_probe_name, is_staging_name, part_name};
use crate::step_counter::StepCounter;

/// Who knows what an object was like.
trait Known {
    /// How it differs now, in words.
    fn difference(&self, now: &Stat) -> Option<&'static str>;

    /// Whether it has another owner now, or another mode.
    fn is_others_now(&self, now: &Stat) -> bool;

    /// Its inode number.
    fn ino(&self) -> u64;
}

impl Known for Stat {
    fn difference(&self, now: &Stat) -> Option<&'static str> {
        differs(self.kind, (self.size, self.mtime), now)
            .or((now.kind != FileType::Dir && now.ctime != self.ctime).then_some(REPLACED))
    }

    fn is_others_now(&self, now: &Stat) -> bool {
        (now.mode, now.uid, now.gid) != (self.mode, self.uid, self.gid)
    }

    fn ino(&self) -> u64 {
        self.ino
    }
}

impl Known for RecordedObject {
    fn difference(&self, now: &Stat) -> Option<&'static str> {
        let seen = &self.seen;
        let set = now.kind != FileType::Dir && self.is_others_now(now);
        differs(seen.kind, (seen.size, seen.mtime), now).or(set.then_some(REPLACED))
    }

    fn is_others_now(&self, now: &Stat) -> bool {
        now.mode != self.mode || (now.uid, now.gid) != self.owner
    }

    fn ino(&self) -> u64 {
        self.seen.ino
    }
}

/// What is in it could not be taken out of it any more, after all else is published.
const GIVEN_AWAY: &str = "the job removes it, but its owner or mode was changed";
const RIGHTS_CHANGED: &str = "its owner or mode was changed";
const LINK_REPLACED: &str = "it was replaced, and the job gives it another name";
const LINK_IN_DOUBT: &str = "it was written to or replaced, and the job gives it another name";
const DIRECTORY_REPLACED: &str = "it was replaced by another directory";
const REPLACED: &str = "it was replaced, or its attributes or links were changed";

fn differs(kind: FileType, (size, mtime): (u64, Time), now: &Stat) -> Option<&'static str> {
    if now.kind != kind {
        Some("it is something else now")
    } else if now.kind != FileType::Dir && (now.size != size || now.mtime != mtime) {
        Some("it was written to")
    } else {
        None
    }
}

/// What a job that commits expects of the tree.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Expectations {
    #[serde(with = "os_path::pairs")]
    paths: Vec<(PathBuf, Expected<Stat>)>,
    /// Old directories that get another name.
    #[serde(with = "os_path::list")]
    moved: Vec<PathBuf>,
    /// It was looked before, with the same expectations.
    is_again: bool,
}

impl Expectations {
    pub(crate) fn of(model: &Model) -> Self {
        Self {
            paths: expectations(model, false),
            moved: moved_dirs(model),
            is_again: false,
        }
    }

    /// A look has gone before. It has opened the files that are written, and where that copies them to another layer it has set their time of last change.
    pub(crate) fn again(self) -> Self {
        Self { is_again: true, ..self }
    }

    /// The same with the users and groups that another machine knows, as [`Record::with_owners`] has them.
    pub(crate) fn with_owners(mut self, owner: impl Fn((u32, u32)) -> (u32, u32)) -> Self {
        for (_, expected) in &mut self.paths {
            expected.renumber(&owner, |stat| (stat.uid, stat.gid) = owner((stat.uid, stat.gid)));
        }
        self
    }

    /// Counts those that are looked at.
    pub(crate) fn counter(&self) -> StepCounter {
        StepCounter::of(self.paths.len(), 0)
    }

    /// Why the job must not commit: paths that hold files of other jobs, or are not what the job saw; the latter matters to nobody who
    /// overwrites other changes (`wins`).
    pub(super) fn differences(&self, tree: &Tree<'_>, job: &OsStr, wins: bool, counter: &StepCounter) -> Option<Cause> {
        let traits = || tree.storage.file_system_traits(&tree.root);
        if self.is_again && traits().is_ok_and(|traits| traits.copies_up) {
            let paths: Vec<_> = self.paths.iter().cloned().map(remember).collect();
            return differences(tree, job, &paths, &self.moved, wins, counter);
        }
        differences(tree, job, &self.paths, &self.moved, wins, counter)
    }
}

/// Which look at what a commit expects this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitStage {
    /// The only one.
    Alone,
    /// The first: nothing is committed yet.
    Look,
    /// The second.
    Again,
    /// The second, when others have committed that belong to the job.
    Bound,
}

impl CommitStage {
    pub(crate) fn expectations(self, model: &Model) -> Expectations {
        let expectations = Expectations::of(model);
        match self {
            Self::Alone | Self::Look => expectations,
            Self::Again | Self::Bound => expectations.again(),
        }
    }
}

/// Why a job that was kept must not commit, by what its record remembers.
pub(crate) fn conflicts_since(record: &Record, tree: &Tree<'_>, name: &OsStr, wins: bool) -> Option<Cause> {
    let moved = record.departures.iter().filter(|departure| !departure.is_dead);
    let moved: Vec<PathBuf> = moved.map(|departure| departure.path.clone()).collect();
    differences(tree, name, &record.expected, &moved, wins, &StepCounter::default())
}

/// What a record remembers of what is expected, in the order of the paths. `hidden`: what was published eagerly is not there any more.
pub(super) fn remembered(model: &Model, hidden: bool) -> Vec<(PathBuf, Expected<RecordedObject>)> {
    let mut all: Vec<_> = expectations(model, hidden).into_iter().map(remember).collect();
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    all
}

fn remember((path, expected): (PathBuf, Expected<Stat>)) -> (PathBuf, Expected<RecordedObject>) {
    let expected = match expected {
        Expected::Same(stat) => Expected::Same(RecordedObject::of(&stat)),
        Expected::Names(names) => Expected::Names(names),
        Expected::Absent => Expected::Absent,
        Expected::Attributes(change) => Expected::Attributes(change),
        Expected::Linked(linked) => Expected::Linked(linked),
    };
    (path, expected)
}

fn differences<T: Known + Sync>(
    tree: &Tree<'_>,
    job: &OsStr,
    expectations: &[(PathBuf, Expected<T>)],
    moved: &[PathBuf],
    wins: bool,
    counter: &StepCounter,
) -> Option<Cause> {
    let names = JobNames {
        job,
        part: &part_name(job),
    };
    let counts = |expected: &Expected<T>| !wins || matches!(expected, Expected::Names(_));
    let emptied = expectations
        .iter()
        .filter(|(_, expected)| matches!(expected, Expected::Names(_)));
    let emptied: HashSet<&Path> = emptied.map(|(path, _)| path.as_path()).collect();
    let found = parallel(expectations, tree.threads, |(path, expected)| {
        let look = || check(tree, (path, emptied.contains(path.as_path())), expected, names);
        let difference = counts(expected).then(look).flatten();
        counter.step();
        difference
    });
    let (mut changed, mut staged, mut refused) = (Vec::new(), of_other_jobs(tree, job, moved), Vec::new());
    for ((path, _), difference) in expectations.iter().zip(found) {
        match difference {
            Some(Difference::OtherJob(name)) => staged.push((path.clone(), name)),
            Some(Difference::Refused(errno)) => refused.push(failure("look at", path, errno)),
            Some(Difference::Changed(what)) if !wins => changed.push((path.clone(), what)),
            _ => {}
        }
    }
    changed.sort();
    staged.sort();
    if !staged.is_empty() {
        return Some(Cause::OtherJobs(staged));
    }
    if !changed.is_empty() {
        return Some(Cause::Conflict(changed));
    }
    (!refused.is_empty()).then(|| cause_of(&refused, clock()))
}

/// What a check finds.
enum Difference {
    /// The storage does not say.
    Refused(Errno),
    /// Somebody else changed it.
    Changed(String),
    /// A staging directory of this name is in it, which is not ours.
    OtherJob(String),
}

/// Old directories that get another name. Of those that go, all names are looked at anyway.
fn moved_dirs(model: &Model) -> Vec<PathBuf> {
    let olds = model
        .inodes
        .all()
        .filter_map(|(_, inode)| Some((inode, inode.old.as_ref()?)))
        .filter(|(inode, _)| inode.is_dir() && !inode.names().is_empty());
    olds.flat_map(|(inode, old)| old.names().iter().filter(|key| !inode.names().contains(key)))
        .map(|key| model.inodes.old_path(key.dir).join(&*key.name))
        .collect()
}

/// Directories among these, or below, in which other jobs over our directory have staged something: their journals say so.
fn of_other_jobs(tree: &Tree<'_>, own: &OsStr, moved: &[PathBuf]) -> Vec<(PathBuf, String)> {
    let is_other = |name: &OsString| is_job_name(name) && name != own;
    if moved.is_empty() {
        return Vec::new();
    }
    // What cannot be read has just been removed; a storage that is lost fails the commit soon enough.
    let jobs = tree.storage.list(&tree.root).unwrap_or_default();
    let Ok(ownership) = OwnershipCheck::new(tree.storage, &tree.root) else {
        return Vec::new();
    };
    let mut staged = Vec::new();
    for job in jobs.into_iter().filter(|entry| is_other(&entry.name)) {
        let entries = match ownership.open(&job.name) {
            Ok(Ownership::Ours(own)) => read_journal(tree.storage, &own),
            _ => continue,
        };
        let is_moved = |dir: &PathBuf| moved.iter().any(|moved| dir.starts_with(moved));
        staged.extend(entries.unwrap_or_default().into_iter().filter_map(|entry| match entry {
            JournalEntry::Staging { dir, .. } if is_moved(&dir) => Some((dir, job.name.shown().to_string())),
            _ => None,
        }));
    }
    staged.dedup();
    staged
}

fn expectations(model: &Model, hidden: bool) -> Vec<(PathBuf, Expected<Stat>)> {
    let mut all = Vec::new();
    for (ino, inode) in model.inodes.all() {
        if inode.is_old() && is_changed(inode) {
            if ino == Ino::ROOT {
                all.extend(attributes_before(inode).map(|attrs| (PathBuf::new(), attrs)));
            } else {
                expect_old(model, ino, inode, &mut all);
            }
        }
        if let Some((path, linked)) = linked(model, inode) {
            all.push((path, Expected::Linked(linked)));
        }
        for key in inode.names() {
            let is_new_name = !inode.old.as_ref().is_some_and(|old| old.had_name(key.dir, &key.name));
            if is_new_name
                && model.inodes.at(key.dir).is_old()
                && (hidden || !model.routes().is_visible(key))
                && !model.inodes.base_has(key.dir, &key.name)
            {
                all.push((model.inodes.old_path(key.dir).join(&*key.name), Expected::Absent));
            }
        }
    }
    all
}

/// Where an old object is expected that gets another name and is the same otherwise.
fn linked(model: &Model, inode: &Inode) -> Option<(PathBuf, LinkedObject)> {
    let old = inode.old.as_ref().filter(|_| !inode.is_dir() && !is_changed(inode))?;
    let is_new = |key: &EntryKey| !old.had_name(key.dir, &key.name);
    let key = old.names().first().filter(|_| inode.names().iter().any(is_new))?;
    let path = model.inodes.old_path(key.dir).join(&*key.name);
    Some((path, LinkedObject::of(old.seen.as_ref()?)))
}

fn is_changed(inode: &Inode) -> bool {
    let old = inode.old.as_ref().expect("an old object");
    let renamed = old.names().iter().any(|key| !inode.names().contains(key));
    let set = inode.dirty.mode || inode.dirty.owner || !inode.dirty_xattrs.is_empty();
    let timed = inode.dirty.times && !inode.is_dir();
    renamed || set || timed || inode.content().is_some_and(|content| content.changed())
}

fn expect_old(model: &Model, ino: Ino, inode: &Inode, all: &mut Vec<(PathBuf, Expected<Stat>)>) {
    let old = inode.old.as_ref().expect("an old object");
    for key in old.names() {
        let path = model.inodes.old_path(key.dir).join(&*key.name);
        if inode.is_dir() && !model.inodes.is_alive(ino) {
            let names = inode
                .dir()
                .map(|dir| dir.gone().keys().map(|name| name.to_os_string()).collect());
            all.push((path.clone(), Expected::Names(names.unwrap_or_default())));
        }
        all.extend(attributes_before(inode).map(|attrs| (path.clone(), attrs)));
        if let Some(seen) = old.seen {
            all.push((path, Expected::Same(seen)));
        }
    }
}

/// What an old object had, as far as the job sets it. What the job has set it may have computed from that: a list of rights with one entry
/// more, a mode with a bit less.
fn attributes_before(inode: &Inode) -> Option<Expected<Stat>> {
    let old = inode.old.as_ref()?;
    let sets_rights = inode.dirty.mode || inode.dirty.owner || inode.dirty_xattrs.contains(OsStr::new(ACCESS_ACL));
    // Of all but directories the time of last change tells.
    let rights = old.seen.filter(|_| inode.is_dir() && sets_rights);
    let was = |key: &OsString| Some((key.clone(), old.replaced_xattrs.get(key)?.clone()));
    let is = |key: &OsString| Some((key.clone(), inode.xattrs.as_ref()?.get(key).cloned()));
    let change = AttributeChange {
        before: NewAttrs {
            owner: rights.map(|seen| (seen.uid, seen.gid)),
            mode: rights.map(|seen| seen.mode),
            xattrs: inode.dirty_xattrs.iter().filter_map(was).collect(),
            times: None,
        },
        after: NewAttrs {
            owner: rights.map(|_| (inode.uid, inode.gid)),
            mode: rights.map(|_| inode.mode),
            xattrs: inode.dirty_xattrs.iter().filter_map(is).collect(),
            times: None,
        },
    };
    (!change.before.is_empty()).then(|| Expected::Attributes(Box::new(change)))
}

/// The names that a job has on the storage.
#[derive(Clone, Copy)]
struct JobNames<'a> {
    /// Of its own directory.
    job: &'a OsStr,
    /// Of its staging directories.
    part: &'a OsStr,
}

fn check<T: Known>(
    tree: &Tree<'_>,
    (path, is_emptied): (&Path, bool),
    expected: &Expected<T>,
    own: JobNames<'_>,
) -> Option<Difference> {
    let found = match expected {
        Expected::Same(seen) => check_same(tree, path, seen, is_emptied).map(|found| found.map(Difference::Changed)),
        Expected::Names(names) => check_names(tree, path, names, own.part),
        Expected::Absent => check_absent(tree, path).map(|found| found.map(Difference::Changed)),
        Expected::Linked(linked) => check_linked(tree, path, linked).map(|found| found.map(Difference::Changed)),
        Expected::Attributes(change) => {
            check_attributes(tree, path, change, own.job).map(|found| found.map(Difference::Changed))
        }
    };
    match found {
        Ok(difference) => difference,
        Err(Errno::NOENT) => Some(Difference::Changed("it is gone".into())),
        Err(errno @ (Errno::NOTDIR | Errno::LOOP)) => {
            Some(Difference::Changed(format!("it cannot be looked at: {errno}")))
        }
        Err(errno) => Some(Difference::Refused(errno)),
    }
}

fn check_same(tree: &Tree<'_>, path: &Path, seen: &impl Known, is_emptied: bool) -> Result<Option<String>, Errno> {
    let (dir, name) = tree.parent_of(path)?;
    let now = tree.storage.stat_uncached(&dir, &name)?;
    let given_away = (is_emptied && seen.is_others_now(&now)).then_some(GIVEN_AWAY);
    // All else is told by its size and times. One that is removed may be another by now: all names in it are known.
    let is_other = now.kind == FileType::Dir && now.ino != seen.ino() && !is_emptied;
    let keeps_inos = || {
        tree.storage
            .file_system_traits(&tree.root)
            .is_ok_and(|traits| traits.keeps_inos)
    };
    let replaced = (is_other && keeps_inos()).then_some(DIRECTORY_REPLACED);
    Ok(seen.difference(&now).or(given_away).or(replaced).map(str::to_owned))
}

fn check_linked(tree: &Tree<'_>, path: &Path, linked: &LinkedObject) -> Result<Option<String>, Errno> {
    let (dir, name) = tree.parent_of(path)?;
    let now = tree.storage.stat_uncached(&dir, &name)?;
    let is_one = linked.is(&now, || tree.storage.file_system_traits(&tree.root));
    let why = if now.ino == linked.ino && now.kind == linked.kind {
        LINK_IN_DOUBT
    } else {
        LINK_REPLACED
    };
    Ok((!is_one).then(|| why.to_owned()))
}

fn check_attributes(
    tree: &Tree<'_>,
    path: &Path,
    change: &AttributeChange,
    job: &OsStr,
) -> Result<Option<String>, Errno> {
    let (dir, name) = tree.parent_of(path)?;
    let AttributeChange { before, after } = change;
    if before.mode.is_some() || before.owner.is_some() {
        let now = tree.storage.stat_uncached(&dir, &name)?;
        let owner = Some((now.uid, now.gid));
        let has_owner = [before.owner, after.owner].contains(&owner) || before.owner.is_none();
        let is_mode = |mode: u32| mode == now.mode || may_be_of_jobs(mode, now.mode, tree, job);
        let has_mode = after.mode == Some(now.mode) || before.mode.is_none_or(is_mode);
        if !has_owner || !has_mode {
            return Ok(Some(RIGHTS_CHANGED.to_owned()));
        }
    }
    for (key, before) in &before.xattrs {
        let now = match tree.storage.get_xattr(&dir, &name, key) {
            Ok(value) => Some(value),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => None,
            // Whether it is the same nobody can tell who may not read it.
            Err(Errno::ACCESS) => continue,
            Err(errno) => return Err(errno),
        };
        let is_set = || after.xattrs.iter().any(|(set, value)| set == key && *value == now);
        if now != *before && !is_set() {
            return Ok(Some(format!("its extended attribute {} was changed", key.display())));
        }
    }
    Ok(None)
}

/// Whether a directory may have this mode, and not the one that was seen, because jobs change what is in it ([`closed`](crate::closed)): one of them has opened it for a
/// moment, now or when it was seen. The kernel takes set-group-id from a mode that somebody sets who is not in the group.
fn may_be_of_jobs(seen: u32, now: u32, tree: &Tree<'_>, own: &OsStr) -> bool {
    let is_open_of =
        |open: u32, closed: u32| is_closed(closed) && open | SET_GROUP_ID == closed | OWNER_ALL | SET_GROUP_ID;
    let is_opened = is_open_of(now, seen) || is_open_of(seen, now);
    let has_lost_bit = is_closed(seen) && seen == now | SET_GROUP_ID;
    // It takes nothing from root.
    has_lost_bit && !rustix::process::geteuid().is_root() || (is_opened || has_lost_bit) && has_other_jobs(tree, own)
}

/// Whether other jobs may change the tree at this moment: not those that are kept, which have closed what they had opened.
fn has_other_jobs(tree: &Tree<'_>, own: &OsStr) -> bool {
    runs_another(tree.storage, &tree.root, own).unwrap_or(false)
}

fn check_names(
    tree: &Tree<'_>,
    path: &Path,
    names: &BTreeSet<OsString>,
    own: &OsStr,
) -> Result<Option<Difference>, Errno> {
    let (dir, name) = tree.parent_of(path)?;
    // Of names, too, a client of a network file system remembers what it has seen, until it hears that the directory has changed.
    tree.storage.stat_uncached(&dir, &name)?;
    let now = tree.storage.list(&tree.dir(path)?)?;
    let added = || {
        now.iter()
            .filter(|entry| !names.contains(&entry.name) && entry.name != own && !is_probe_name(&entry.name))
    };
    if let Some(staged) = added().find(|entry| is_staging_name(&entry.name)) {
        return Ok(Some(Difference::OtherJob(staged.name.shown().to_string())));
    }
    let what = |name: &OsString| format!("the job removes it, but {} was created in it", name.shown());
    Ok(added().next().map(|entry| Difference::Changed(what(&entry.name))))
}

fn check_absent(tree: &Tree<'_>, path: &Path) -> Result<Option<String>, Errno> {
    let (dir, name) = tree.parent_of(path)?;
    match tree.storage.stat_uncached(&dir, &name) {
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
        Ok(_) => Ok(Some("it was created by somebody else".into())),
    }
}
