//! Carrying out a commit record, step by step, any number of times.
//!
//! ```text
//!   departures                    old objects leave their names, for hidden ones; repeated until `departed` is written
//!   placements, links             new names; every source is a name that is never used again, so a step whose source is
//!                                 gone is done
//!   patches, attributes           what was there before is known or saved first
//!   `done`                        from here on only the cleaning is repeated
//!   hidden names, staging directories, attributes of directories, the job's own directory
//! ```
//!
//! Up to `done` nothing is lost: what leaves its name is renamed, what is replaced changes names with its successor, what is
//! overwritten is saved. So a step that the storage refuses, or that finds something else than the record says, is not the end:
//! all before it is taken back (`undo`). The one exception is an old directory that the storage does not let be renamed (a lower
//! layer of overlayfs): it is removed where it is, after `done`, and what has its name afterwards gets it then (it is late).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use elbow_file::{Access, DirEntry, Errno, Handle, Protection, RenameMode, Stat, Storage, Time};
use parking_lot::Mutex;

use super::aliases::Aliases;
use super::content::{Contents, make_log};
use super::draft::SET_IDS;
use super::failure::{Failure, Refusal, StepResult, failure};
use super::late::Immovable;
use super::leftovers::{remove_job_dir, remove_part};
use super::record::{
    Attributes, Departure, Expected, ObservedState, Patch, Placement, PlacementSource, Record, RecordedObject,
    Replaced, Slot,
};
use super::tree::Tree;
use crate::action::NewAttrs;
use crate::behaviours;
use crate::closed::{self, OWNER_ALL, is_closed};
use crate::execute::set_attributes;
use crate::job_files::{DEPARTED, DONE, LATE, NAMED, RECORD};
use crate::lost_answers::{self, Name, is_unsupported};
use crate::missing::{ignore_missing, none_if_missing, sync_dir};
use crate::parallel::{ITEMS_PER_THREAD, parallel};
use crate::patch_files::{PatchDirs, dir_of_patch};
use crate::staging::{NEW, is_probe_name, part_name, touch_name};
use crate::step_counter::StepCounter;

const GONE: Refusal = Refusal::Changed("it is gone");
pub(super) const ADDED_TO: Refusal = Refusal::Changed("the job removes it, but something was created in it");
pub(super) const OF_OTHERS: Refusal = Refusal::Changed("it was created by somebody else");
pub(super) const CHANGED: Refusal = Refusal::Changed("it was written to or replaced by somebody else");

/// What this process has done of a placement.
#[derive(Debug, Default)]
pub(super) struct Placed {
    pub(super) is_made: AtomicBool,
    /// The object and the one that it replaces have changed names.
    pub(super) is_exchanged: AtomicBool,
}

/// What this process has done of a link.
#[derive(Debug)]
pub(super) struct Linked {
    /// Where it waits in the job's own directory until it gets its name.
    pub(super) slot: OsString,
    pub(super) is_made: AtomicBool,
}

/// Directories that are removed, with the names in each.
type Removed<'a> = BTreeMap<&'a Path, &'a BTreeSet<OsString>>;

/// The directories that are removed with one, itself among them.
fn removed_with<'m>(
    removed: &'m Removed<'m>,
    departure: &'m Departure,
) -> impl Iterator<Item = (&'m &'m Path, &'m &'m BTreeSet<OsString>)> {
    let path = departure.path.as_path();
    let below = removed.range(path..).take_while(move |(dir, _)| dir.starts_with(path));
    below.filter(|_| departure.is_dead)
}

/// So many directories are removed with it that more than one thread looks at them.
fn is_large(removed: &Removed<'_>, departure: &Departure) -> bool {
    removed_with(removed, departure).nth(ITEMS_PER_THREAD).is_some()
}

/// A committed job whose steps are carried out.
pub(crate) struct Apply<'a> {
    pub(crate) tree: Tree<'a>,
    /// The job's own directory and its name.
    pub(crate) job: Handle,
    pub(super) patch_dirs: PatchDirs,
    pub(crate) staging_name: &'a OsStr,
    pub(crate) record: &'a Record,
    /// What is done of the steps.
    pub(crate) counter: &'a StepCounter,
    /// Nobody has begun to carry it out before: what is not there has been taken away, and was not moved by us.
    is_first: bool,
    /// All names are as they shall be: contents and attributes may be changed already.
    pub(super) has_names: AtomicBool,
    /// Placements and links that were made, by their place in the record.
    pub(super) placed: Vec<Placed>,
    pub(super) linked: Vec<Linked>,
    /// What has begun to be changed, by its place in the record. A file is kept open, for who takes it back may not find it under its name.
    pub(super) patched: Vec<OnceLock<Option<Handle>>>,
    pub(super) attributed: Vec<AtomicBool>,
    /// The names in each directory that is removed.
    removed: Removed<'a>,
    /// So many departures are large.
    large_departures: usize,
    /// Modes of old directories that had to be opened to be moved.
    opened: Mutex<Vec<(Handle, OsString, u32)>>,
    /// Dead directories that cannot be renamed.
    pub(super) immovable: Mutex<BTreeSet<PathBuf>>,
    /// Placements by where they go, once one is looked for.
    pub(super) placements: OnceLock<BTreeMap<&'a Path, &'a Placement>>,
    /// The storage cannot rename without replacing, or exchange names.
    pub(super) no_noreplace: AtomicBool,
    no_exchange: AtomicBool,
    /// The storage can rename without replacing, and tells which names are of one object, as trials have shown.
    has_noreplace: OnceLock<bool>,
    tells_links: OnceLock<bool>,
}

impl Linked {
    fn new(number: usize) -> Self {
        Self {
            slot: OsString::from(format!("l{number}")),
            is_made: AtomicBool::new(false),
        }
    }
}

impl<'a> Apply<'a> {
    pub(crate) fn new(
        tree: Tree<'a>,
        job: Handle,
        staging_name: &'a OsStr,
        record: &'a Record,
        counter: &'a StepCounter,
        is_first: bool,
    ) -> Self {
        let flags = |count| (0..count).map(|_| AtomicBool::new(false)).collect();
        let removed = record.removed();
        let large = record
            .departures
            .iter()
            .filter(|departure| is_large(&removed, departure));
        Self {
            tree,
            patch_dirs: PatchDirs::of(job.clone()),
            job,
            staging_name,
            counter,
            is_first,
            has_names: AtomicBool::new(false),
            placed: record.placements.iter().map(|_| Placed::default()).collect(),
            linked: (0..record.links.len()).map(Linked::new).collect(),
            patched: record.patches.iter().map(|_| OnceLock::new()).collect(),
            attributed: flags(record.attributes.len()),
            large_departures: large.count(),
            removed,
            record,
            opened: Mutex::default(),
            immovable: Mutex::default(),
            placements: OnceLock::new(),
            no_noreplace: AtomicBool::new(false),
            no_exchange: AtomicBool::new(false),
            has_noreplace: OnceLock::new(),
            tells_links: OnceLock::new(),
        }
    }

    /// Counts the steps from here on elsewhere.
    pub(crate) fn counted_by(self, counter: &'a StepCounter) -> Self {
        Self { counter, ..self }
    }

    pub(super) fn is_first(&self) -> bool {
        self.is_first
    }

    pub(super) fn storage(&self) -> &'a dyn Storage {
        self.tree.storage
    }

    /// Everything up to the point where only cleaning is left.
    pub(crate) fn publish(&self, departed: bool) -> Result<(), Vec<Failure>> {
        let record = self.record;
        match departed {
            true => Immovable::of(self).find()?,
            false => self.open_dirs()?,
        }
        if !record.departures.is_empty() && !departed {
            self.depart()?;
            // From here on what has an old name is new: who goes on after a death must not take it for what is still to
            // depart.
            self.mark(DEPARTED)?;
        }
        let late = Immovable::of(self).known_late();
        // Names before contents: as long as a name may be refused, nothing has been overwritten that would have to be
        // put back.
        self.place(|placement| !late.has(&placement.to))?;
        self.link_all(|to| !late.has(to))?;
        if record.changes_old_objects() {
            let make_log = |patch: &Patch| Ok(make_log(self.storage(), &self.patch_dirs, patch)?);
            // All logs before the mark, which makes their names durable with its own.
            self.each("write", &record.patches, |patch| &patch.path, make_log)?;
            self.sync_patch_dirs()
                .map_err(|errno| vec![failure("mark the progress of", Path::new(""), errno)])?;
            // A recovery that finds no such mark knows that no content or attribute has changed.
            self.mark(NAMED)?;
        }
        self.has_names.store(true, Ordering::Release);
        let patches: Vec<_> = record.patches.iter().zip(&self.patched).collect();
        let traits = self.storage().file_system_traits(&self.tree.root);
        let tells_links = || self.tried(&self.tells_links, behaviours::tells_links).unwrap_or(false);
        let aliases = Aliases::of(record, traits.is_ok_and(|traits| traits.tells_inos_apart), tells_links);
        let write = |(patch, begun): &(&'a Patch, &OnceLock<_>)| {
            let _alone = aliases.wait(patch);
            Contents::of(self).patch(patch, begun, &aliases)
        };
        self.each("write", &patches, |(patch, _)| &patch.path, write)?;
        let all = record.attributes.iter().zip(&self.attributed);
        let all = all.filter(|(attributes, _)| !late.has(&attributes.path));
        let (dirs, files): (Vec<_>, Vec<_>) = all.partition(|(attributes, _)| attributes.is_dir);
        let set = |(attributes, begun): &(&Attributes, &AtomicBool)| {
            begun.store(true, Ordering::Release);
            match attributes.is_dir {
                true => self.attributes_before_cleaning(attributes)?,
                false => self.set(&attributes.path, &attributes.attrs)?,
            }
            self.close_after_a_death(attributes)
        };
        // Directories after the files in them: a new mode may let nobody in.
        for kind in [files, dirs] {
            self.each("set attributes of", &kind, |(attributes, _)| &attributes.path, set)?;
        }
        Immovable::of(self).check()?;
        match late.is_empty() {
            true => Ok(()),
            false => self.mark(LATE),
        }
    }

    /// Makes the names of undo logs durable that are not in the job's own directory.
    fn sync_patch_dirs(&self) -> Result<(), Errno> {
        let logs = self.record.patches.iter().filter(|patch| patch.has_own_log());
        let dirs: BTreeMap<_, _> = logs.map(|patch| (dir_of_patch(&patch.slot), patch)).collect();
        let dirs: Vec<_> = dirs.into_iter().filter(|(dir, _)| dir.is_some()).collect();
        let synced = parallel(&dirs, self.tree.threads, |(_, patch)| {
            sync_dir(self.storage(), &self.patch_dirs.of_patch(self.storage(), &patch.slot)?)
        });
        synced.into_iter().collect()
    }

    /// The file with the undo log of a patch, in the job's own directory.
    pub(crate) fn log_path(&self, patch: &Patch) -> PathBuf {
        let dir = self.patch_dirs.path_of(self.storage(), &patch.slot);
        dir.unwrap_or_default().join(patch.log_name())
    }

    /// The record has been carried out.
    pub(crate) fn mark_done(&self) -> Result<(), Errno> {
        // After `done` what was there before is removed: by then all that takes its place has to be durable.
        self.storage().sync_all(&self.job)?;
        self.rename_in_job(RECORD, DONE)
    }

    pub(super) fn rename_in_job(&self, from: &str, to: &str) -> Result<(), Errno> {
        let (from, to) = ((&self.job, OsStr::new(from)), (&self.job, OsStr::new(to)));
        match lost_answers::rename(self.storage(), from, to, RenameMode::Replace) {
            // Somebody, perhaps we, has come that far already.
            Err(Errno::NOENT) if self.look(to.0, to.1)?.is_some() => Ok(()),
            other => other,
        }
    }

    /// Removes what is no longer needed, then sets the attributes of directories.
    pub(crate) fn clean(&self, root_times: Option<(Time, Time)>) -> Result<(), Vec<Failure>> {
        let part = part_name(self.staging_name);
        // What is late gets a name that only the removal of what could not be moved frees.
        Immovable::of(self).remove()?;
        Immovable::of(self).come_late()?;
        self.remove_all_parked()?;
        self.each(
            "remove the staging directory of",
            &self.record.staged,
            |dir| dir,
            |dir| self.unless_closed_before(dir, self.remove_part(dir, &part)),
        )?;
        let dirs = self.record.attributes.iter().filter(|a| a.is_dir);
        let (root, mut dirs): (Vec<_>, Vec<_>) = dirs.partition(|a| a.path.as_os_str().is_empty());
        dirs.sort_by_key(|a| std::cmp::Reverse(a.path.components().count()));
        let at_last = |attributes: &&Attributes| {
            let set = self.attributes_at_last(attributes);
            match self.unless_closed_before(&attributes.path, set) {
                // Nothing can be refused any more, and somebody else has removed it or looks whether they can.
                Err(Refusal::Errno(Errno::NOENT)) => Ok(()),
                other => other,
            }
        };
        // A directory may get a mode that lets nobody in, so what is below it comes before it.
        for level in levels(&dirs, |a| &a.path) {
            self.each("set attributes of", level, |a| &a.path, at_last)?;
        }
        remove_job_dir(&self.tree, self.staging_name, self.counter)
            .map_err(|errno| vec![failure("remove", Path::new(self.staging_name), errno)])?;
        self.each("set attributes of", &root, |a| &a.path, |a| self.attributes_at_last(a))?;
        if root.is_empty()
            && let Some((atime, mtime)) = root_times
        {
            // The owner may be somebody else; the time of the directory is then that of the commit.
            let dot = OsStr::new(".");
            let _ = self.storage().set_times(&self.tree.root, dot, Some(atime), Some(mtime));
        }
        Ok(())
    }

    fn remove_part(&self, dir: &Path, part: &OsStr) -> StepResult {
        match self.tree.dir(dir) {
            // Somebody has put something else there.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
            dir => Ok(remove_part(&self.tree, &dir?, part, self.counter)?),
        }
    }

    /// What is below a directory that an earlier attempt has closed was done before it was closed.
    pub(super) fn unless_closed_before(&self, path: &Path, result: StepResult) -> StepResult {
        let closes = |a: &Attributes| a.is_dir && a.attrs.mode.is_some_and(|mode| mode & OWNER_ALL != OWNER_ALL);
        let mut dirs = self.record.attributes.iter().filter(|a| closes(a));
        match result {
            Err(Refusal::Errno(Errno::ACCESS)) if !self.is_first && dirs.any(|a| path.starts_with(&a.path)) => Ok(()),
            other => other,
        }
    }

    pub(super) fn each<T: Sync>(
        &self,
        step: &'static str,
        items: &[T],
        path: impl Fn(&T) -> &PathBuf + Sync,
        apply: impl Fn(&T) -> StepResult + Sync,
    ) -> Result<(), Vec<Failure>> {
        let failures: Vec<Failure> = parallel(items, self.tree.threads, |item| {
            let refused = apply(item).err();
            self.counter.step();
            refused.map(|refusal| Failure {
                step,
                path: path(item).clone(),
                refusal,
            })
        })
        .into_iter()
        .flatten()
        .collect();
        if failures.is_empty() { Ok(()) } else { Err(failures) }
    }

    /// Old directories that were closed to their owner, of which the command has changed the mode, or which it has removed; the highest first, with the
    /// paths that they have before the first step, and the modes. (In others, only who needs no rights has changed names.)
    pub(super) fn closed_dirs(&self) -> Vec<(&'a Path, u32)> {
        let record = self.record;
        let set = record
            .attributes
            .iter()
            .filter(|attributes| attributes.attrs.mode.is_some());
        // A new directory may have the name that an old one had.
        let set = set.filter_map(|attributes| record.before.objects.get(&attributes.path));
        let is_removed = |expected: &Expected<RecordedObject>| matches!(expected, Expected::Names(_));
        let removed = record.expected.iter().filter(|(_, expected)| is_removed(expected));
        let opened: BTreeSet<&Path> = set.chain(removed.map(|(path, _)| path)).map(PathBuf::as_path).collect();
        let mode_of = |expected: &Expected<RecordedObject>| match expected {
            Expected::Same(was) if was.seen.kind == elbow_file::FileType::Dir => Some(was.mode),
            _ => None,
        };
        let expected = record.expected.iter();
        let mut closed: Vec<_> = expected
            .filter(|(path, _)| opened.contains(path.as_path()))
            .filter_map(|(path, expected)| Some((path.as_path(), mode_of(expected).filter(|mode| is_closed(*mode))?)))
            .collect();
        closed.sort_by_key(|(path, _)| path.components().count());
        closed
    }

    /// The names in them change before their modes do.
    fn open_dirs(&self) -> Result<(), Vec<Failure>> {
        let open = |path: &Path| {
            let Some((dir, name)) = none_if_missing(self.tree.parent_of(path))? else {
                return Ok(());
            };
            match none_if_missing(self.open_mode(&dir, &name)) {
                // Somebody else's, in which nothing is done that needs the right. (sshfs says EACCES.)
                Err(Errno::PERM | Errno::ACCESS) => Ok(()),
                opened => opened.map(drop),
            }
        };
        for (path, _) in self.closed_dirs() {
            open(path).map_err(|errno| vec![failure("open", path, errno)])?;
        }
        Ok(())
    }

    fn depart(&self) -> Result<(), Vec<Failure>> {
        for level in levels(&self.record.departures, |departure| &departure.path) {
            // Each of the large ones takes a share of the threads to itself.
            let (large, small): (Vec<_>, Vec<_>) =
                level.iter().partition(|departure| is_large(&self.removed, departure));
            for some in [small, large] {
                self.each("move", &some, |departure| &departure.path, |d| self.depart_one(d))?;
            }
            self.tree.forget();
        }
        Ok(())
    }

    fn depart_one(&self, departure: &Departure) -> StepResult {
        let Some((dir, name)) = none_if_missing(self.tree.parent_of(&departure.path))? else {
            return if self.is_first { Err(GONE) } else { Ok(()) };
        };
        let Some((there, slot)) = none_if_missing(self.slot(&dir, &departure.slot))? else {
            return if self.is_first { Err(GONE) } else { Ok(()) };
        };
        if !self.is_first && self.look(&there, slot)?.is_some() {
            return Ok(());
        }
        match self.rename_old(&dir, &name, &there, slot) {
            Ok(()) => {}
            Err(Errno::NOENT) if departure.is_dead && !self.is_first => return Ok(()),
            Err(Errno::NOENT) => return Err(GONE),
            // Not even to a free name: it stands for a subvolume within a snapshot.
            Err(Errno::XDEV | Errno::NOTEMPTY) if departure.is_dead => {
                self.immovable.lock().insert(departure.path.clone());
                return Immovable::of(self).check_names(departure);
            }
            Err(errno) => return Err(errno.into()),
        }
        // Looked at where nobody else finds it, so that nobody changes it after the look.
        let hidden = match &departure.slot {
            Slot::Beside(hidden) => departure.path.with_file_name(hidden),
            // Such a one is not dead, and may be added to.
            Slot::InJob(_) | Slot::At(..) => PathBuf::new(),
        };
        let refusal = match self.expects(&there, slot, departure.seen.as_ref())? {
            true if self.has_only_known_names(departure, &hidden)? => return Ok(()),
            true => ADDED_TO,
            false => CHANGED,
        };
        self.rename_back((&there, slot), (&dir, &name))?;
        Err(refusal)
    }

    /// Has nobody made anything in a directory that is removed, or below, since it was checked? It is at this path now.
    pub(super) fn has_only_known_names(&self, departure: &Departure, at: &Path) -> Result<bool, Errno> {
        let path = departure.path.as_path();
        let below: Vec<_> = removed_with(&self.removed, departure).collect();
        let part = part_name(self.staging_name);
        let threads = (self.tree.threads / self.large_departures.max(1)).max(1);
        let looks = parallel(&below, threads, |(dir, names)| {
            let rest = dir.strip_prefix(path).expect("below it");
            // Who removed it where it is may have died over that.
            let Some(dir) = none_if_missing(self.tree.dir(&at.join(rest)))? else {
                return Ok(true);
            };
            let added =
                |entry: &DirEntry| !names.contains(&entry.name) && entry.name != part && !is_probe_name(&entry.name);
            Ok(!self.storage().list(&dir)?.iter().any(added))
        });
        let looks: Result<Vec<bool>, Errno> = looks.into_iter().collect();
        Ok(looks?.into_iter().all(|is_known| is_known))
    }

    /// Where an object waits that was, or will be, in this directory.
    pub(super) fn slot<'b>(&self, dir: &Handle, slot: &'b Slot) -> Result<(Handle, &'b OsStr), Errno> {
        Ok(match slot {
            Slot::Beside(name) => (dir.clone(), name),
            Slot::InJob(name) => (self.job.clone(), name),
            Slot::At(path, name) => (self.tree.dir(path)?, name),
        })
    }

    /// Renames an old object for a hidden name.
    fn rename_old(&self, dir: &Handle, name: &OsStr, there: &Handle, slot: &OsStr) -> Result<(), Errno> {
        let (from, to) = ((dir, name), (there, slot));
        self.rename_opened(from, to, || {
            lost_answers::rename(self.storage(), from, to, RenameMode::Replace)
        })
    }

    /// Renames by a call. A directory that its owner may not write can go to another directory only while its mode is open: one that the command had
    /// opened is by now, and any other has its mode wherever it is then.
    fn rename_opened(&self, from: Name<'_>, to: Name<'_>, rename: impl Fn() -> Result<(), Errno>) -> Result<(), Errno> {
        match rename() {
            Err(Errno::ACCESS) => {}
            other => return other,
        }
        let storage = self.storage();
        let now = storage.stat(from.0, from.1)?;
        if now.kind != elbow_file::FileType::Dir || !is_closed(now.mode) {
            return Err(Errno::ACCESS);
        }
        storage.chmod(from.0, from.1, now.mode | OWNER_ALL)?;
        let renamed = rename();
        let (dir, name) = if renamed.is_ok() { to } else { from };
        let closed = storage.chmod(dir, name, now.mode);
        renamed.and(closed)
    }

    /// Gives the owner of a directory all rights in it; `false`: it has them already, or it is no directory.
    pub(super) fn open_mode(&self, dir: &Handle, name: &OsStr) -> Result<bool, Errno> {
        let now = self.storage().stat(dir, name)?;
        if now.kind != elbow_file::FileType::Dir || now.mode & OWNER_ALL == OWNER_ALL {
            return Ok(false);
        }
        self.storage().chmod(dir, name, now.mode | OWNER_ALL)?;
        self.opened.lock().push((dir.clone(), name.to_owned(), now.mode));
        Ok(true)
    }

    /// Old directories get the modes back that they had before they were opened, once they have their names again.
    pub(super) fn close_again(&self) {
        for (dir, name, mode) in self.opened.lock().drain(..).rev() {
            // A directory of the job's own is gone with it.
            let _ = self.storage().chmod(&dir, &name, mode);
        }
    }

    /// What has a name, if anything has.
    pub(super) fn look(&self, dir: &Handle, name: &OsStr) -> Result<Option<Stat>, Errno> {
        none_if_missing(self.storage().stat(dir, name))
    }

    fn expects(&self, dir: &Handle, name: &OsStr, seen: Option<&ObservedState>) -> Result<bool, Errno> {
        match seen {
            Some(seen) => Ok(self.look(dir, name)?.is_some_and(|now| seen.is_still(&now))),
            None => Ok(true),
        }
    }

    /// Makes it durable that all steps before are done. After `departed` they must never be repeated, for names may be taken again; before `named`
    /// there is nothing in contents and attributes to be taken back.
    pub(super) fn mark(&self, name: &'static str) -> Result<(), Vec<Failure>> {
        let storage = self.storage();
        let mark = || {
            storage.sync_all(&self.job)?;
            match storage.create(&self.job, OsStr::new(name), 0o600) {
                Err(Errno::EXIST) => {}
                other => storage.sync(&other?)?,
            }
            sync_dir(storage, &self.job)
        };
        mark().map_err(|errno| vec![failure("mark the progress of", Path::new(""), errno)])
    }

    /// Contents and attributes may have been changed.
    pub(super) fn has_names(&self) -> Result<bool, Errno> {
        match self.is_first {
            true => Ok(self.has_names.load(Ordering::Acquire)),
            false => Ok(self.look(&self.job, OsStr::new(NAMED))?.is_some()),
        }
    }

    pub(super) fn place(&self, is_wanted: impl Fn(&Placement) -> bool) -> Result<(), Vec<Failure>> {
        let all = self.record.placements.iter().zip(&self.placed);
        let all: Vec<_> = all.filter(|(placement, _)| is_wanted(placement)).collect();
        for level in levels(&all, |(placement, _)| &placement.to) {
            self.each(
                "publish",
                level,
                |(placement, _)| &placement.to,
                |(placement, placed)| {
                    self.place_one(placement, placed)?;
                    placed.is_made.store(true, Ordering::Release);
                    Ok(())
                },
            )?;
        }
        Ok(())
    }

    fn place_one(&self, placement: &Placement, placed: &Placed) -> StepResult {
        let (dir, name) = self.tree.parent_of(&placement.to)?;
        let Some((container, source)) = none_if_missing(self.source(placement, &dir, &name))? else {
            return self.arrived_before(&dir, &name);
        };
        if placement.is_locked {
            let _ = none_if_missing(self.open_mode(&container, &source))?;
        }
        match &placement.replaced {
            Some(replaced) => self.place_over((&container, &source), (&dir, &name), replaced, &placed.is_exchanged),
            None => match self.rename_placed(placement, (&container, &source), (&dir, &name), &placed.is_made) {
                Err(Refusal::Errno(Errno::NOENT)) => self.arrived_before(&dir, &name),
                other => other,
            },
        }
    }

    fn rename_placed(&self, placement: &Placement, from: Name<'_>, to: Name<'_>, made: &AtomicBool) -> StepResult {
        // An attempt before this one may have died between the link and the removal that stand for a rename.
        let has_both_names = !self.is_first && self.may_be_one(from, to)?;
        if has_both_names && self.has_two_names_by_us(placement)? {
            return Ok(ignore_missing(self.storage().unlink(from.0, from.1))?);
        }
        let is_others = || Ok::<_, Errno>(self.is_first && self.look(to.0, to.1)?.is_some());
        // A new object waits where nobody else can give it a name; an old one may have got one just before it left.
        if placement.from != PlacementSource::Staged && is_others()? {
            return Err(OF_OTHERS);
        }
        self.rename_to_free(from, to, made).or_else(|refusal| {
            // The command had opened the directory, and closed it after its last change: so do we, at last. One that somebody else has closed since is left as
            // it is.
            let sets_mode = || placement.to.parent().is_some_and(|dir| self.sets_mode_of(dir));
            let is_closed = matches!(refusal, Refusal::Errno(Errno::ACCESS)) && sets_mode();
            match is_closed && self.open_mode(to.0, OsStr::new("."))? {
                true => self.rename_to_free(from, to, made),
                false => Err(refusal),
            }
        })
    }

    /// The record gives a directory of this path, before the first step or after the last, another mode.
    fn sets_mode_of(&self, dir: &Path) -> bool {
        let before = &self.record.before.objects;
        let mut set = self.record.attributes.iter().filter(|set| set.attrs.mode.is_some());
        set.any(|set| set.path == dir || before.get(&set.path).is_some_and(|before| before == dir))
    }

    /// Where a placement has both its names: can only an attempt before this one have given it the second? Renames that take no flags
    /// pass through that state; elsewhere it is somebody else's link to an old object.
    pub(super) fn has_two_names_by_us(&self, placement: &Placement) -> Result<bool, Errno> {
        let is_new = placement.from == PlacementSource::Staged;
        Ok(!self.is_first && (is_new || !self.tried(&self.has_noreplace, behaviours::has_noreplace)?))
    }

    /// Are these two names of one object, or, where the storage does not tell, of two that nobody could tell apart? Then the tree is
    /// as the job makes it, whoever has given the second name.
    pub(super) fn may_be_one(&self, from: Name<'_>, to: Name<'_>) -> Result<bool, Errno> {
        // The trial comes last: it takes room, which there may not be.
        let are_alike = || lost_answers::are_alike(self.storage(), from, to);
        let is_untold = || Ok::<_, Errno>(!self.tried(&self.tells_links, behaviours::tells_links)?);
        Ok(lost_answers::are_one(self.storage(), from, to)? || are_alike()? && is_untold()?)
    }

    /// What a trial in the job's own directory has shown.
    fn tried(
        &self,
        known: &OnceLock<bool>,
        trial: fn(&dyn Storage, &Handle) -> Result<bool, Errno>,
    ) -> Result<bool, Errno> {
        match known.get() {
            Some(known) => Ok(*known),
            None => trial(self.storage(), &self.job).map(|shown| *known.get_or_init(|| shown)),
        }
    }

    /// The source of a placement is gone: an earlier attempt has made it, or somebody has taken the result away.
    fn arrived_before(&self, dir: &Handle, name: &OsStr) -> StepResult {
        let is_there = !self.is_first && self.look(dir, name)?.is_some();
        is_there.then_some(()).ok_or(Refusal::Changed(
            "what the job has made there was removed by somebody else before it was published",
        ))
    }

    /// The staging directory of the directory that a path is in.
    pub(super) fn staging_of(&self, path: &Path) -> Result<Handle, Errno> {
        match path.parent().filter(|above| !above.as_os_str().is_empty()) {
            Some(above) => self.tree.part(above, &part_name(self.staging_name)),
            None => self.storage().open_dir(&self.job, OsStr::new(NEW)),
        }
    }

    /// Gives an object a name that nobody has.
    fn rename_to_free(&self, from: Name<'_>, to: Name<'_>, made: &AtomicBool) -> StepResult {
        match self.rename_noreplace(from, to, made) {
            Err(Errno::EXIST | Errno::NOTEMPTY) => Err(OF_OTHERS),
            other => Ok(other?),
        }
    }

    /// The same for what had that name before, also in a directory that is closed by now: whoever has closed it finds it closed.
    pub(super) fn rename_back(&self, from: Name<'_>, to: Name<'_>) -> StepResult {
        let made = AtomicBool::default();
        let rename = || self.rename_opened(from, to, || self.rename_noreplace(from, to, &made));
        match closed::change_names(self.storage(), to.0, |_| Ok(()), rename) {
            Err(Errno::EXIST | Errno::NOTEMPTY) => Err(OF_OTHERS),
            other => Ok(other?),
        }
    }

    fn rename_noreplace(&self, from: Name<'_>, to: Name<'_>, made: &AtomicBool) -> Result<(), Errno> {
        if !self.no_noreplace.load(Ordering::Relaxed) {
            match lost_answers::rename(self.storage(), from, to, RenameMode::NoReplace) {
                Err(errno) if is_unsupported(errno) => self.no_noreplace.store(true, Ordering::Relaxed),
                other => return other,
            }
        }
        lost_answers::move_to_free(self.storage(), from, to, made)
    }

    /// Gives an object the name of an old one, which takes its place: in one step where the storage can exchange names,
    /// else after the old one has got a spare name beside the source.
    fn place_over(&self, from: Name<'_>, to: Name<'_>, replaced: &Replaced, is_exchanged: &AtomicBool) -> StepResult {
        let spare = (from.0, replaced.spare.as_os_str());
        if !self.is_first {
            if self.look(spare.0, spare.1)?.is_some() {
                return self.take_over(from, to);
            }
            if self.is_exchanged(from, to, replaced)? {
                return Ok(());
            }
        }
        if !self.expects(to.0, to.1, replaced.seen.as_ref())? {
            return Err(CHANGED);
        }
        if self.exchange_for(from, to, replaced)? {
            is_exchanged.store(true, Ordering::Release);
            if self.expects(from.0, from.1, replaced.seen.as_ref())? {
                return Ok(());
            }
            self.exchange(from, to)?;
            is_exchanged.store(false, Ordering::Release);
            return Err(CHANGED);
        }
        self.spare(to, spare, replaced)?;
        self.take_over(from, to)
    }

    /// Does the old object that is replaced wait where its successor did? It is known by its inode number, or, where those do not
    /// last, by its size and time, if it does not share them with its successor.
    pub(super) fn is_exchanged(&self, from: Name<'_>, to: Name<'_>, replaced: &Replaced) -> Result<bool, Errno> {
        let (Some(seen), Some(waiting)) = (replaced.seen, self.look(from.0, from.1)?) else {
            return Ok(false);
        };
        let has_name = || Ok::<_, Errno>(self.look(to.0, to.1)?.is_some_and(|now| seen.is_still(&now)));
        Ok(seen.is(&waiting) || seen.is_still(&waiting) && !has_name()?)
    }

    /// The second half of a replacement: the old object has a spare name.
    fn take_over(&self, from: Name<'_>, to: Name<'_>) -> StepResult {
        match lost_answers::rename(self.storage(), from, to, RenameMode::Replace) {
            Err(Errno::NOENT) => self.arrived_before(to.0, to.1),
            other => Ok(other?),
        }
    }

    /// The same for an object and the one that it replaces; what was done without an answer is done.
    fn exchange_for(&self, from: Name<'_>, to: Name<'_>, replaced: &Replaced) -> Result<bool, Refusal> {
        match self.exchange(from, to) {
            Err(Refusal::Errno(errno))
                if lost_answers::may_be_made(errno) && self.is_exchanged(from, to, replaced)? =>
            {
                Ok(true)
            }
            other => other,
        }
    }

    /// Exchanges two names; `false`: the storage cannot.
    fn exchange(&self, a: Name<'_>, b: Name<'_>) -> Result<bool, Refusal> {
        if self.no_exchange.load(Ordering::Relaxed) {
            return Ok(false);
        }
        match self.storage().rename(a.0, a.1, b.0, b.1, RenameMode::Exchange) {
            Ok(()) => Ok(true),
            Err(errno) if is_unsupported(errno) => {
                self.no_exchange.store(true, Ordering::Relaxed);
                Ok(false)
            }
            // One of the two is gone.
            Err(Errno::NOENT) => Err(GONE),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Gives an old object that is about to be replaced a second name; where there are no links it loses the first.
    fn spare(&self, old: Name<'_>, spare: Name<'_>, replaced: &Replaced) -> StepResult {
        let storage = self.storage();
        let is_linked = lost_answers::link(storage, old, spare).is_ok();
        if !is_linked {
            lost_answers::rename(storage, old, spare, RenameMode::Replace)?;
        }
        if self.expects(spare.0, spare.1, replaced.seen.as_ref())? {
            return Ok(());
        }
        if is_linked {
            storage.unlink(spare.0, spare.1)?;
        } else {
            self.rename_back(spare, old)?;
        }
        Err(CHANGED)
    }

    pub(super) fn set(&self, path: &Path, attrs: &NewAttrs) -> StepResult {
        let (dir, name) = self.place_of(path)?;
        let owner_and_xattrs = NewAttrs {
            mode: None,
            times: None,
            ..attrs.clone()
        };
        // Mode and times apart: others' objects refuse them, and that need not be the end. The order is that of
        // `set_all`.
        set_attributes(self.storage(), &dir, &name, &owner_and_xattrs)?;
        if let Some(mode) = attrs.mode {
            self.set_mode(&dir, &name, mode)?;
        }
        match attrs.times {
            Some(times) => self.set_times(&dir, &name, times),
            None => Ok(()),
        }
    }

    /// Who may write to somebody else's file, or only append to it, may set its times to now and to nothing else: they are those of the
    /// commit.
    fn set_times(&self, dir: &Handle, name: &OsStr, (atime, mtime): (Time, Time)) -> StepResult {
        let storage = self.storage();
        let refused = match storage.set_times(dir, name, Some(atime), Some(mtime)) {
            // sshfs knows one word for both.
            Err(errno @ (Errno::PERM | Errno::ACCESS)) => errno,
            other => return Ok(other?),
        };
        let stat = storage.stat(dir, name)?;
        // To a server we may be somebody else.
        let is_ours = stat.uid == rustix::process::geteuid().as_raw() && storage.file_system_traits(dir)?.own_ids;
        if is_ours && stat.protection != Protection::AppendOnly {
            return Err(refused.into());
        }
        // What was written has its time by that.
        if stat.mtime >= mtime {
            return Ok(());
        }
        match storage.touch(dir, name) {
            // The right that the command had is gone. A time is not worth the job.
            Err(Errno::PERM | Errno::ACCESS) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Whose file it is not cannot set its mode, and needs not: a write takes set-id bits away by itself, and where fallocate(2) has
    /// changed nothing that is written, so does a size. Where that takes none either, the bits stay: nothing may be refused any more. (Nor can such a
    /// one give back what a write has taken.)
    fn set_mode(&self, dir: &Handle, name: &OsStr, mode: u32) -> StepResult {
        let storage = self.storage();
        let refused = match storage.chmod(dir, name, mode) {
            Err(errno @ (Errno::PERM | Errno::ACCESS)) => errno,
            other => return Ok(other?),
        };
        let stat = storage.stat(dir, name)?;
        if stat.mode == mode {
            return Ok(());
        }
        let user = rustix::process::geteuid().as_raw();
        let is_to_be_given = mode & SET_IDS & !stat.mode != 0;
        let may_be_given =
            || -> Result<bool, Errno> { Ok([0, stat.uid].contains(&user) && storage.file_system_traits(dir)?.own_ids) };
        let differs = stat.mode & !SET_IDS != mode & !SET_IDS;
        if differs || stat.kind != elbow_file::FileType::File || is_to_be_given && may_be_given()? {
            return Err(refused.into());
        }
        if stat.size > 0 {
            return Ok(storage.truncate_named(dir, name, stat.size)?);
        }
        // truncate(2) takes nothing from a file that is empty already, on XFS; ftruncate(2) does.
        let file = storage.open(dir, name, Access::Write)?;
        storage.truncate(&file, 0)?;
        Ok(storage.close(&file)?)
    }

    /// All of a directory's attributes that can be refused, while it can still be cleaned.
    pub(super) fn attributes_before_cleaning(&self, attributes: &Attributes) -> StepResult {
        let attrs = NewAttrs {
            times: None,
            ..attributes.attrs.clone().open_to_owner()
        };
        if attrs.is_empty() {
            return Ok(());
        }
        self.set(&attributes.path, &attrs)
    }

    /// A name comes and goes in a directory whose time cannot be set. What is left of it when we die here is cleaned away by its name.
    fn touch(&self, path: &Path) -> StepResult {
        let name = touch_name(self.staging_name);
        // They are the last.
        let mut touched = self
            .record
            .parked
            .iter()
            .rev()
            .take_while(|(_, parked)| *parked == name);
        if !touched.any(|(dir, _)| dir == path) {
            return Ok(());
        }
        let dir = self.tree.dir(path)?;
        match self.storage().create(&dir, &name, 0o600) {
            Ok(file) => self.storage().close(&file)?,
            // Who may write to a directory and not search it can set its times to now, and cannot make a name in it. They are not worth more than
            // what was done.
            Err(_) => {
                if let Ok((above, name)) = self.tree.parent_of(path) {
                    let _ = self.storage().touch(&above, &name);
                }
                return Ok(());
            }
        }
        Ok(ignore_missing(self.storage().unlink(&dir, &name))?)
    }

    /// What is left of them: the mode that may lock us out, and the times, which cleaning has changed.
    fn attributes_at_last(&self, attributes: &Attributes) -> StepResult {
        let attrs = NewAttrs {
            times: attributes.attrs.times,
            ..NewAttrs::default()
        };
        self.set(&attributes.path, &attrs)?;
        self.touch(&attributes.path)?;
        match attributes.attrs.mode.filter(|mode| mode & OWNER_ALL != OWNER_ALL) {
            Some(mode) => {
                let (dir, name) = self.tree.parent_of(&attributes.path)?;
                Ok(self.storage().chmod(&dir, &name, mode)?)
            }
            None => Ok(()),
        }
    }
}

/// Runs of items whose paths are equally deep.
pub(super) fn levels<T>(items: &[T], path: impl Fn(&T) -> &PathBuf) -> impl DoubleEndedIterator<Item = &[T]> {
    let runs: Vec<&[T]> = items
        .chunk_by(move |a, b| path(a).components().count() == path(b).components().count())
        .collect();
    runs.into_iter()
}
