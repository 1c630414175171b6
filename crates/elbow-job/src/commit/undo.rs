//! Taking a commit back that the storage refused half-way: the tree becomes what it was before.
//!
//! ```text
//!   commit  ->  undo         contents and attributes, where they may have been changed
//!           ->  undo.names   placed objects go back to where they waited, links are removed
//!           ->  undo.olds    old objects get their names again
//!           ->  resume       the job has not committed; it is kept with all that it made, and can go on from there
//!           ->  (none)       the same, and it is rolled back like any other
//! ```
//!
//! The name of the record says how far it is, since a step back may be repeated only as long as the names are those that it
//! was made for. Whoever finds it so goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use elbow_file::{Errno, FileType, Handle, RenameMode, Time};

use super::apply::{Apply, Linked, Placed, levels};
use super::content::Contents;
use super::draft::SET_IDS;
use super::failure::{Failure, Refusal, StepResult, failure, none_of};
use super::keep::lost_content;
use super::late::Immovable;
use super::record::{Attributes, Departure, Expected, Patch, Placement, PlacementSource, Replaced, Slot};
use crate::action::{NewAttrs, NewXattrs};
use crate::closed;
use crate::execute::{is_ever_opened, was_opened};
use crate::job_files::{DEPARTED, LATE, NAMED, RECORD, RECORD_DRAFT, RESUME, UNDO, UndoPhase};
use crate::lost_answers::{self, Name};
use crate::missing::{ignore_missing, none_if_missing, none_if_no_path, sync_dir};
use crate::parallel::parallel;

const MOVED_AWAY: Refusal =
    Refusal::Changed("the directory that it was in is not there any more, under the name that it had");

/// Takes back what was carried out of a record.
pub(crate) struct Undo<'u, 'a> {
    apply: &'u Apply<'a>,
}

impl<'u, 'a> Undo<'u, 'a> {
    pub(crate) fn of(apply: &'u Apply<'a>) -> Self {
        Self { apply }
    }
}

impl Undo<'_, '_> {
    /// Takes back what has been carried out of a record. Afterwards the job is an uncommitted one: with a record to go on from, if it `keeps` and
    /// all that it made is there, else with none.
    pub(crate) fn take_back(&self, keeps: bool) -> Result<(), Vec<Failure>> {
        let phase = UndoPhase(usize::from(!self.apply.has_names().map_err(failed)?));
        self.advance(RECORD, UNDO[phase.0])?;
        self.go_on(phase, keeps)
    }

    /// The same from where somebody else has left off.
    pub(crate) fn go_on(&self, from: UndoPhase, keeps: bool) -> Result<(), Vec<Failure>> {
        if from <= UndoPhase(0) {
            self.take_contents_back()?;
            self.advance(UNDO[0], UNDO[1])?;
        }
        if from <= UndoPhase(1) {
            self.take_names_back(false)?;
            self.advance(UNDO[1], UNDO[2])?;
        }
        self.forget_slots().map_err(failed)?;
        self.bring_back(false)?;
        self.forget_record(keeps).map_err(failed)
    }

    fn forget_record(&self, keeps: bool) -> Result<(), Errno> {
        for marker in [DEPARTED, NAMED, LATE] {
            ignore_missing(self.apply.storage().unlink(&self.apply.job, OsStr::new(marker)))?;
        }
        self.apply.storage().sync_all(&self.apply.job)?;
        let is_whole = lost_content(self.apply.storage(), &self.apply.job, self.apply.record)?.is_empty();
        // One that has gone on waits with what it expected then, whatever this attempt would have won over.
        if keeps && is_whole && self.apply.look(&self.apply.job, OsStr::new(RESUME))?.is_none() {
            return self.apply.rename_in_job(UNDO[2], RESUME);
        }
        if !is_whole {
            // Nobody can go on with it.
            ignore_missing(self.apply.storage().unlink(&self.apply.job, OsStr::new(RESUME)))?;
        }
        // As a draft, it has room for the record of a job that is kept in another way.
        ignore_missing(self.apply.rename_in_job(UNDO[2], RECORD_DRAFT))
    }

    /// Takes back what can be, and gives the steps that cannot: what they are about is as the job made it, or waits under a hidden name. `note` is told of those so far before
    /// the next phase begins, which an attempt after a death begins with. Afterwards there is a record until [`Undo::forget_given_up`].
    ///
    /// # Errors
    /// When not even the progress can be marked: then it can be tried again.
    pub(crate) fn give_up(
        &self,
        from: Option<UndoPhase>,
        note: impl Fn(&[Failure]),
    ) -> Result<Vec<Failure>, Vec<Failure>> {
        let phase = from.unwrap_or(UndoPhase(0));
        if from.is_none() {
            self.advance(RECORD, UNDO[0])?;
        }
        let mut stays = Vec::new();
        if phase <= UndoPhase(0) {
            stays.extend(self.take_contents_back().err().into_iter().flatten());
            note(&stays);
            self.advance(UNDO[0], UNDO[1])?;
        }
        if phase <= UndoPhase(1) {
            stays.extend(self.take_names_back(true).err().into_iter().flatten());
            note(&stays);
            self.advance(UNDO[1], UNDO[2])?;
        }
        self.forget_slots().map_err(failed)?;
        stays.extend(self.bring_back(true).err().into_iter().flatten());
        note(&stays);
        let forget = |name| ignore_missing(self.apply.storage().unlink(&self.apply.job, OsStr::new(name)));
        forget(DEPARTED)
            .and_then(|()| forget(NAMED))
            .and_then(|()| forget(LATE))
            // Nobody is to go on with it, whatever is left of it.
            .and_then(|()| forget(RESUME))
            .and_then(|()| sync_dir(self.apply.storage(), &self.apply.job))
            .map_err(failed)?;
        Ok(stays)
    }

    /// Removes the record of a job that was given up, of which all is told.
    pub(crate) fn forget_given_up(&self) -> Result<(), Errno> {
        ignore_missing(self.apply.storage().unlink(&self.apply.job, OsStr::new(UNDO[2])))
    }

    /// Links that have not got their names.
    fn forget_slots(&self) -> Result<(), Errno> {
        let forget = |linked: &Linked| ignore_missing(self.apply.storage().unlink(&self.apply.job, &linked.slot));
        self.apply.linked.iter().try_for_each(forget)
    }

    /// All steps of a phase are durable before the next is said to have begun.
    fn advance(&self, from: &'static str, to: &'static str) -> Result<(), Vec<Failure>> {
        self.apply
            .storage()
            .sync_all(&self.apply.job)
            .and_then(|()| self.apply.rename_in_job(from, to))
            .and_then(|()| sync_dir(self.apply.storage(), &self.apply.job))
            .map_err(failed)
    }

    /// Which directories the attempt before could not move. (Who makes the first attempt has met them.)
    fn find_immovable(&self) -> Result<(), Vec<Failure>> {
        match self.apply.is_first() {
            true => Ok(()),
            false => Immovable::of(self.apply).find(),
        }
    }

    fn take_contents_back(&self) -> Result<(), Vec<Failure>> {
        if !self.apply.has_names().map_err(failed)? {
            return Ok(());
        }
        self.find_immovable()?;
        let record = self.apply.record;
        let begun = self.begun().map_err(failed)?;
        let patches: Vec<_> = record.patches.iter().zip(&self.apply.patched).collect();
        let contents = self.apply.each(
            "restore",
            &patches,
            |(patch, _)| &patch.path,
            |(patch, file)| match begun.contains(patch.path.as_path()) {
                true => Contents::of(self.apply).take_back(patch, file),
                false => Ok(()),
            },
        );
        let all: Vec<_> = record.attributes.iter().zip(&self.apply.attributed).collect();
        let attributes = self.apply.each(
            "restore attributes of",
            &all,
            |(attributes, _)| &attributes.path,
            |(attributes, set)| {
                let is_written = begun.contains(attributes.path.as_path());
                let is_untouched = self.apply.is_first() && !is_written && !set.load(Ordering::Acquire);
                match is_untouched {
                    // Nothing has happened to it but that it was opened to be written, if it was.
                    true => self.apply.close_what_was_opened(attributes),
                    false => self.restore(attributes, is_written),
                }
            },
        );
        let failures: Vec<_> = contents.err().into_iter().chain(attributes.err()).flatten().collect();
        if failures.is_empty() {
            // Who goes on from here later must save anew what is there then.
            let forget = |patch: &&Patch| Contents::of(self.apply).forget(patch);
            let logged: Vec<_> = record.patches.iter().collect();
            self.apply
                .each("forget what was overwritten in", &logged, |patch| &patch.path, forget)?;
        }
        none_of(failures)
    }

    /// Files whose content may have been changed: those have an undo log with something in it.
    fn begun(&self) -> Result<BTreeSet<&Path>, Errno> {
        let patches = &self.apply.record.patches;
        let begun = parallel(patches, self.apply.tree.threads, |patch| {
            Contents::of(self.apply).has_begun(patch)
        });
        let begun: Vec<_> = begun.into_iter().collect::<Result<_, Errno>>()?;
        let patches = patches.iter().zip(begun).filter(|(_, has_begun)| *has_begun);
        Ok(patches.map(|(patch, _)| patch.path.as_path()).collect())
    }

    /// Gives an object the attributes that it had before. Of one that was not written to, those which are the job's by now: what is different
    /// was set by somebody else.
    fn restore(&self, attributes: &Attributes, is_written: bool) -> StepResult {
        let (ours, mut before) = (&attributes.attrs, attributes.before.clone());
        // After a death nobody knows which of them were set: only what is as the job wanted it can have been.
        let is_unsure = !self.apply.is_first() && !is_written;
        if is_unsure && !attributes.is_dir && !before.is_empty() {
            let Some((dir, name)) = none_if_missing(self.apply.place_of(&attributes.path))? else {
                return Ok(());
            };
            let Some(now) = self.apply.look(&dir, &name)? else {
                return Ok(());
            };
            // A change of owner, there or back, takes set-id bits, which the mode gives back after it.
            let left = |mode: u32| match ours.owner {
                Some(_) => mode & !SET_IDS | mode & now.mode & SET_IDS,
                None => mode,
            };
            let is_ours = |mode| left(mode) == now.mode || was_opened(left(mode), now.mode);
            let is_taken = before
                .mode
                .is_some_and(|mode| mode != now.mode && left(mode) == now.mode);
            let was_opened = before.mode.is_some_and(|mode| was_opened(left(mode), now.mode));
            before.mode = before
                .mode
                .filter(|_| is_taken || was_opened || ours.mode.is_some_and(is_ours));
            before.owner = before.owner.filter(|_| ours.owner == Some((now.uid, now.gid)));
            before.times = before
                .times
                .filter(|_| ours.times.is_some_and(|(_, mtime)| mtime == now.mtime));
        }
        let is_root = attributes.path.as_os_str().is_empty();
        if attributes.is_dir && ours.mode.is_some() && !is_root {
            // Names in it still change: it is closed with the last of them. (Nobody expects anything of the root itself.)
            before = before.open_to_owner();
        }
        // A change of owner takes some of the others.
        let owner = NewAttrs {
            owner: before.owner.take(),
            ..NewAttrs::default()
        };
        self.set_again(attributes, &owner)?;
        // What is as it was may be refused all the same: where there is no room, a value that is there already.
        before.xattrs = self.lost_xattrs(&attributes.path, &before.xattrs)?;
        self.set_again(attributes, &before)
    }

    fn set_again(&self, attributes: &Attributes, before: &NewAttrs) -> StepResult {
        if before.is_empty() {
            return Ok(());
        }
        match self.apply.set(&attributes.path, before) {
            Err(Refusal::Errno(Errno::NOENT)) => Ok(()),
            // Who was refused the step is refused to take it back, and has nothing to take back.
            Err(Refusal::Errno(Errno::PERM | Errno::ACCESS)) if self.has(&attributes.path, before)? => Ok(()),
            other => other,
        }
    }

    /// Does an object have these attributes, as far as they are seen at a look?
    fn has(&self, path: &Path, attrs: &NewAttrs) -> Result<bool, Errno> {
        let (dir, name) = self.apply.place_of(path)?;
        let Some(now) = self.apply.look(&dir, &name)? else {
            return Ok(false);
        };
        Ok(self.lost_xattrs(path, &attrs.xattrs)?.is_empty()
            && attrs.mode.is_none_or(|mode| mode == now.mode)
            && attrs.owner.is_none_or(|owner| owner == (now.uid, now.gid))
            && attrs.times.is_none_or(|(_, mtime)| mtime == now.mtime))
    }

    /// Those of some extended attributes that an object has not, or has though it should not.
    fn lost_xattrs(&self, path: &Path, xattrs: &NewXattrs) -> Result<NewXattrs, Errno> {
        if xattrs.is_empty() {
            return Ok(NewXattrs::new());
        }
        let Some((dir, name)) = none_if_missing(self.apply.place_of(path))? else {
            return Ok(NewXattrs::new());
        };
        let is_as_it_was = |key: &OsStr, value: Option<&[u8]>| match self.apply.storage().get_xattr(&dir, &name, key) {
            Ok(found) => value == Some(&found),
            Err(errno) => matches!(errno, Errno::NODATA | Errno::OPNOTSUPP) && value.is_none(),
        };
        let lost = xattrs
            .iter()
            .filter(|(key, value)| !is_as_it_was(key, value.as_deref()));
        Ok(lost.cloned().collect())
    }

    /// `gives_up`: goes on after what cannot be taken back, but moves no directory away that holds such a thing.
    fn take_names_back(&self, gives_up: bool) -> Result<(), Vec<Failure>> {
        self.find_immovable()?;
        // What is late has not come.
        let late = Immovable::of(self.apply).known_late();
        let links = self.apply.record.links.iter().zip(&self.apply.linked);
        let links: Vec<_> = links.filter(|((_, to), _)| !late.has(to)).collect();
        let removed = self.apply.each(
            "remove",
            &links,
            |((_, to), _)| to,
            |((from, to), linked)| self.unlink_again(from, to, linked),
        );
        let mut stays = goes_on(gives_up, removed)?;
        let all = self.apply.record.placements.iter().zip(&self.apply.placed);
        let all: Vec<_> = all.filter(|(placement, _)| !late.has(&placement.to)).collect();
        for level in levels(&all, |(placement, _)| &placement.to).rev() {
            let is_held = |path: &Path| stays.iter().any(|failure: &Failure| failure.path.starts_with(path));
            let (held, free): (Vec<_>, Vec<_>) = level.iter().partition(|(placement, _)| is_held(&placement.to));
            let taken_back = self.apply.each(
                "take back",
                &free,
                |(placement, _)| &placement.to,
                |(placement, placed)| self.displace(placement, placed),
            );
            stays.extend(
                held.into_iter()
                    .map(|(placement, _)| held_up("take back", &placement.to)),
            );
            stays.extend(goes_on(gives_up, taken_back)?);
            self.apply.tree.forget();
        }
        none_of(stays)
    }

    fn unlink_again(&self, from: &Path, to: &Path, linked: &Linked) -> StepResult {
        // What waits has not got its name, and who has that is somebody else. It waits until all links are taken back: who dies here has to know it, too.
        let waits = self.apply.look(&self.apply.job, &linked.slot)?.is_some();
        if waits || self.apply.is_first() && !linked.is_made.load(Ordering::Acquire) {
            return Ok(());
        }
        let (from, to) = (
            none_if_no_path(self.apply.tree.parent_of(from))?,
            none_if_no_path(self.apply.tree.parent_of(to))?,
        );
        let Some(((from, name), (to, new_name))) = from.zip(to) else {
            return Ok(());
        };
        if lost_answers::are_one(self.apply.storage(), (&from, &name), (&to, &new_name))? {
            ignore_missing(self.apply.storage().unlink(&to, &new_name))?;
        }
        Ok(())
    }

    /// A placed object goes back to where it waited; what it replaced gets its name again.
    fn displace(&self, placement: &Placement, placed: &Placed) -> StepResult {
        let Some((dir, name)) = none_if_no_path(self.apply.tree.parent_of(&placement.to))? else {
            return match self.keeps_replaced(placement, placed)? {
                true => Err(MOVED_AWAY),
                false => Ok(()),
            };
        };
        let Some((container, source)) = none_if_missing(self.apply.source(placement, &dir, &name))? else {
            return Ok(());
        };
        let (from, to) = ((&container, source.as_os_str()), (&dir, name.as_os_str()));
        if let Some(replaced) = &placement.replaced {
            return self.give_way(from, to, replaced, &placed.is_exchanged);
        }
        let is_made = placed.is_made.load(Ordering::Acquire);
        // What only looks the same is taken away by whoever has made it, not by a recovery.
        let is_ours = match is_made {
            true => self.apply.may_be_one(from, to)?,
            false => {
                lost_answers::are_one(self.apply.storage(), from, to)? && self.apply.has_two_names_by_us(placement)?
            }
        };
        if is_ours {
            return Ok(ignore_missing(self.apply.storage().unlink(to.0, to.1))?);
        }
        if self.apply.is_first() && !is_made || self.apply.look(from.0, from.1)?.is_some() {
            return Ok(());
        }
        match self.apply.rename_back(to, from) {
            Err(Refusal::Errno(Errno::NOENT)) => Ok(()),
            other => other,
        }
    }

    fn give_way(&self, from: Name<'_>, to: Name<'_>, replaced: &Replaced, is_exchanged: &AtomicBool) -> StepResult {
        let spare = replaced.spare.as_os_str();
        if self.apply.look(from.0, spare)?.is_some() {
            let storage = self.apply.storage();
            if self.apply.look(from.0, from.1)?.is_none() {
                lost_answers::rename(storage, to, from, RenameMode::Replace)?;
            }
            lost_answers::rename(storage, (from.0, spare), to, RenameMode::Replace)?;
            // Two names of one object: rename(2) does nothing then.
            ignore_missing(storage.unlink(from.0, spare))?;
            return Ok(());
        }
        // Somebody may have written to the old one meanwhile: who has made the exchange knows better than what it looks like.
        if is_exchanged.load(Ordering::Acquire) || self.apply.is_exchanged(from, to, replaced)? {
            self.apply
                .storage()
                .rename(from.0, from.1, to.0, to.1, RenameMode::Exchange)?;
        }
        Ok(())
    }

    /// Old objects get their names again, the highest first, also after one that cannot; `gives_up`: and what comes after that is done.
    fn bring_back(&self, gives_up: bool) -> Result<(), Vec<Failure>> {
        let mut stays: Vec<Failure> = Vec::new();
        for level in levels(&self.apply.record.departures, |departure| &departure.path).rev() {
            let is_held = |path: &Path| stays.iter().any(|failure| path.starts_with(&failure.path));
            let (held, free): (Vec<_>, Vec<_>) = level.iter().partition(|departure| is_held(&departure.path));
            let brought = self.apply.each(
                "bring back",
                &free,
                |departure| &departure.path,
                |d| self.bring_one_back(d),
            );
            stays.extend(held.into_iter().map(|departure| held_up("bring back", &departure.path)));
            stays.extend(brought.err().into_iter().flatten());
            self.apply.tree.forget();
        }
        if !gives_up {
            none_of(std::mem::take(&mut stays))?;
        }
        stays.extend(goes_on(gives_up, self.put_times_back())?);
        self.apply.close_again();
        stays.extend(goes_on(gives_up, self.close_dirs())?);
        none_of(stays)
    }

    /// Directories in which names have changed, there and back, have the times that they had. (Those of the root are set when the job is gone from it.)
    fn put_times_back(&self) -> Result<(), Vec<Failure>> {
        let record = self.apply.record;
        let left: BTreeSet<&Path> = record.departures.iter().filter_map(|d| d.path.parent()).collect();
        // Of what is removed it is known how it was found, and no more.
        let found = record.expected.iter().filter_map(|(path, expected)| match expected {
            Expected::Same(was) if left.contains(path.as_path()) => Some((path, (None, was.seen.mtime))),
            _ => None,
        });
        let changed = record.attributes.iter().filter(|attributes| attributes.is_dir);
        let changed = changed.filter_map(|attributes| {
            let (atime, mtime) = attributes.before.times?;
            Some((record.before.objects.get(&attributes.path)?, (Some(atime), mtime)))
        });
        let times: BTreeMap<&PathBuf, (Option<Time>, Time)> = found.chain(changed).collect();
        let is_root = |path: &Path| path.as_os_str().is_empty();
        let times: Vec<_> = times.into_iter().filter(|(path, _)| !is_root(path)).collect();
        self.apply.each(
            "put back the times of",
            &times,
            |(path, _)| path,
            |(path, times)| Ok(self.put_time_back(path, *times)?),
        )
    }

    fn put_time_back(&self, path: &Path, (atime, mtime): (Option<Time>, Time)) -> Result<(), Errno> {
        let put_back = || {
            let (dir, name) = self.apply.tree.parent_of(path)?;
            let now = self.apply.storage().stat(&dir, &name)?;
            // Somebody may have put something else there.
            match now.kind == FileType::Dir && now.mtime != mtime {
                true => self.apply.storage().set_times(&dir, &name, atime, Some(mtime)),
                false => Ok(()),
            }
        };
        match put_back() {
            // Somebody has removed it, or it is somebody else's and keeps the time at which this was taken back.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::PERM | Errno::ACCESS) => Ok(()),
            other => other,
        }
    }

    /// Directories that were closed before are closed again.
    fn close_dirs(&self) -> Result<(), Vec<Failure>> {
        let close = |path: &Path, mode: u32| match none_if_missing(self.apply.tree.dir(path))? {
            Some(dir) => closed::close(self.apply.storage(), &dir, mode),
            None => Ok(()),
        };
        let all = self.apply.closed_dirs().into_iter().rev();
        let refused = all.filter_map(|(path, mode)| {
            let errno = close(path, mode).err()?;
            Some(failure("close", path, errno))
        });
        none_of(refused.collect())
    }

    fn bring_one_back(&self, departure: &Departure) -> StepResult {
        let Some((dir, name)) = none_if_missing(self.apply.tree.parent_of(&departure.path))? else {
            return self.is_nowhere(departure);
        };
        let Some((there, slot)) = none_if_missing(self.apply.slot(&dir, &departure.slot))? else {
            return Ok(());
        };
        if self.apply.look(&there, slot)?.is_none() {
            return Ok(());
        }
        self.apply.rename_back((&there, slot), (&dir, &name))
    }

    /// The directory that an object has left is not at its path any more. What waits in it has gone with it; what waits elsewhere must not go with the job.
    fn is_nowhere(&self, departure: &Departure) -> StepResult {
        let Some((there, slot)) = self.elsewhere(&departure.slot)? else {
            return Ok(());
        };
        match self.apply.look(&there, slot)? {
            Some(_) => Err(MOVED_AWAY),
            None => Ok(()),
        }
    }

    /// Does what a placement has replaced wait for a directory that is not at its path any more? Who comes after a death cannot know of what waits below that.
    fn keeps_replaced(&self, placement: &Placement, placed: &Placed) -> Result<bool, Errno> {
        let Some(replaced) = &placement.replaced else {
            return Ok(false);
        };
        if self.apply.is_first() {
            return Ok(placed.is_exchanged.load(Ordering::Acquire) || placed.is_made.load(Ordering::Acquire));
        }
        let PlacementSource::Slot(slot) = &placement.from else {
            return Ok(false);
        };
        let Some((there, slot)) = self.elsewhere(slot)? else {
            return Ok(false);
        };
        let has_spare = self.apply.look(&there, replaced.spare.as_os_str())?.is_some();
        let waiting = self.apply.look(&there, slot)?;
        let is_exchanged = waiting
            .zip(replaced.seen)
            .is_some_and(|(waiting, seen)| seen.is(&waiting));
        Ok(has_spare || is_exchanged)
    }

    /// Where something waits that is not in the directory that it has left, or is to get to.
    fn elsewhere<'s>(&self, slot: &'s Slot) -> Result<Option<(Handle, &'s OsStr)>, Errno> {
        Ok(match slot {
            Slot::Beside(_) => None,
            Slot::InJob(name) => Some((self.apply.job.clone(), name)),
            Slot::At(path, name) => none_if_missing(self.apply.tree.dir(path))?.map(|dir| (dir, name.as_os_str())),
        })
    }
}

impl Apply<'_> {
    /// Whoever comes after a death finds open what was opened for the moment of a step, and its mode may be none of the job's changes.
    pub(super) fn close_after_a_death(&self, attributes: &Attributes) -> StepResult {
        match self.is_first() || attributes.attrs.mode.is_some() {
            true => Ok(()),
            false => self.close_what_was_opened(attributes),
        }
    }

    /// Takes the right to a file again that its owner was given for the moment of a step, and that a death, or a refusal, has left. Somebody
    /// else may have given the same; they are told apart by nothing. (Directories are open while names change in them.)
    pub(super) fn close_what_was_opened(&self, attributes: &Attributes) -> StepResult {
        let mode = attributes.before.mode.filter(|mode| is_ever_opened(*mode));
        let Some(mode) = mode.filter(|_| !attributes.is_dir) else {
            return Ok(());
        };
        let Some((dir, name)) = none_if_missing(self.place_of(&attributes.path))? else {
            return Ok(());
        };
        match self.look(&dir, &name)? {
            Some(now) if was_opened(mode, now.mode) => Ok(self.storage().chmod(&dir, &name, mode)?),
            _ => Ok(()),
        }
    }
}

/// What failed of a part: an error, unless that is given up.
fn goes_on(gives_up: bool, done: Result<(), Vec<Failure>>) -> Result<Vec<Failure>, Vec<Failure>> {
    match done {
        Err(failures) if gives_up => Ok(failures),
        other => other.map(|()| Vec::new()),
    }
}

/// Something above or below it stays, and so does it.
fn held_up(step: &'static str, path: &Path) -> Failure {
    Failure {
        step,
        path: path.to_owned(),
        refusal: Refusal::Changed("what could not be taken back is in it, or around it"),
    }
}

fn failed(errno: Errno) -> Vec<Failure> {
    vec![Failure {
        step: "mark the progress of",
        path: PathBuf::new(),
        refusal: Refusal::Errno(errno),
    }]
}
