//! Ending jobs whose process died: committed ones are finished, all others rolled back. Those that were kept are left alone.
//!
//! ```text
//!   ownership   only a directory of our own is looked into                                   (`ownership`)
//!   alive   its manifest is locked, and looked at once more: the job may have ended      (`liveness`)
//!   then    a record: carry it out; none: remove what the journal and the manifest name
//! ```
//!
//! What is not ours blocks nobody, and nor does a job that cannot be ended: it is told, and the others are ended. A job that ends while
//! it is looked at was none: whatever was not found of it then is no error.
//!
//! Everything that is read is bounded, and refused by its first bytes if it is not ours: who has filled a disk with junk under such a name
//! costs nothing.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use elbow_file::{Errno, FileSystemTraits, Handle, ShowName, Storage, Time};
use tracing::{debug, info, info_span, warn};

use crate::clock::clock;
use crate::commit::{
    Apply, Failure, Leftovers, Record, StagingHolder, Tree, Turn, Undo, find_left, find_saved, put_times_back,
    remove_job_dir, remove_leftovers, remove_old_turn, write_why,
};
use crate::far_send;
use crate::found::{
    Found, LOCK_LOOKS, Stage, THREADS, error, error_in, find_record, lock_manifest, look_at, read_journal, report_of,
    unfinished, waits,
};
use crate::job_files::{BIRTH_LOOKS, BIRTH_PAUSE, DEPARTED, DONE};
use crate::kept;
use crate::liveness::{self, Attempt, Liveness, Lock};
use crate::missing::none_if_missing;
use crate::ownership::{OwnDirectory, OwnershipCheck};
use crate::report::{Cause, JobError, ROLLING_BACK, RecoverAction, Recovered, cause_of};
use crate::staging::{
    DROPPED, JournalEntry, MANIFEST, MANIFEST_DRAFT, Manifest, TURN, WHY, is_job_name, is_probe_name, mtime_in,
};
use crate::step_counter::StepCounter;

/// What is said of a job that is in its place.
pub(crate) const FINISHED: &str = "it had committed: everything is in its place";
/// A job's own directory without a manifest, or with nothing else, may be a moment old, or about to go: it is looked at again for
/// two seconds. One that is empty then, or has a manifest that nobody has locked yet, may be that of a job whose storage stalls: it is looked at until
/// it is older than this. A job that has none by then is dead; if it is only very slow, it finds its directory gone and fails.
const BIRTH_SECONDS: i64 = 10;
/// A directory without a manifest is looked at no more often than this, whatever clocks say: for twelve seconds at least.
const BIRTH_LOOKS_MAX: usize = 240;
/// The first pauses are shorter, and each twice as long as the one before: most wait for a single call.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// Looks for dead jobs in a directory and ends each: a committed one forward, any other back. Jobs of other
/// machines are left alone unless `force` says that they are dead, kept ones ([`drop_kept`](crate::drop_kept)) and those of other
/// users in any case. One that cannot be ended is told as [`RecoverAction::Failed`], and can be tried again.
///
/// # Errors
/// When the directory cannot be listed.
pub fn recover(storage: &Arc<dyn Storage>, root: &Handle, force: bool) -> Result<Vec<Recovered>, JobError> {
    if let Some(far) = storage.far_end() {
        return far_send::recover_there(far, root, force).map_err(error("looking for dead jobs in"));
    }
    let ended = Recovery::new(&**storage, root, force)?.run()?;
    Ok(ended
        .into_iter()
        .filter_map(|(name, ended)| {
            ended.unwrap_or_else(|error| {
                let message = format!("it could not be ended: {}", failure(&error));
                Some(report_of(&name, RecoverAction::Failed, None, message))
            })
        })
        .collect())
}

/// Why a job could not be ended, for who knows which job and directory it is.
fn failure(error: &JobError) -> String {
    match error {
        JobError::Storage { tried, errno, path } => {
            let tried = match path.strip_prefix(".") {
                Ok(below) if !below.as_os_str().is_empty() => format!("{tried} {}", below.shown()),
                _ => tried.strip_suffix(" in").unwrap_or(tried).to_owned(),
            };
            let advice = match *errno {
                Errno::XDEV => " (something is mounted below the directory; `elbow recover --force` goes there, too)",
                _ => "",
            };
            format!("{tried}: {errno}{advice}")
        }
        JobError::Unfinished { failed, first, .. } => format!("{failed} steps of its commit failed ({first})"),
        other => other.to_string(),
    }
}

/// The same with another way to tell living jobs from dead ones than their locks.
#[cfg(test)]
pub(crate) fn recover_jobs(
    storage: &Arc<dyn Storage>,
    root: &Handle,
    force: bool,
    is_alive: &dyn Fn(&Manifest) -> bool,
) -> Result<Vec<Recovered>, JobError> {
    let mut recovery = Recovery::new(&**storage, root, force)?;
    recovery.is_alive = Some(is_alive);
    let ended = recovery.run()?;
    ended.into_iter().filter_map(|(_, ended)| ended.transpose()).collect()
}

/// What became of each name.
type Ended = Vec<(OsString, Result<Option<Recovered>, JobError>)>;

pub(crate) struct Recovery<'a> {
    storage: &'a dyn Storage,
    root: &'a Handle,
    force: bool,
    pub(crate) ownership: OwnershipCheck<'a>,
    file_system_traits: FileSystemTraits,
    /// Asked instead of locks, by tests.
    is_alive: Option<&'a dyn Fn(&Manifest) -> bool>,
    /// The jobs to be ended are those of this process, which works on them no more; what it holds of the lock of one.
    own_lock: Option<&'a Lock>,
}

impl<'a> Recovery<'a> {
    pub(crate) fn new(storage: &'a dyn Storage, root: &'a Handle, force: bool) -> Result<Self, JobError> {
        let failed = error("reading the attributes of");
        Ok(Self {
            storage,
            root,
            force,
            ownership: OwnershipCheck::new(storage, root).map_err(&failed)?,
            file_system_traits: storage.file_system_traits(root).map_err(&failed)?,
            is_alive: None,
            own_lock: None,
        })
    }

    /// For jobs of this process, which works on them no more: where files cannot be locked, that it runs says nothing. Where they can, nobody
    /// is to find the lock free before the job has ended, and end it as one that has died.
    pub(crate) fn of_own_jobs(self, own_lock: &'a Lock) -> Self {
        let own_lock = Some(own_lock);
        Self { own_lock, ..self }
    }

    fn run(&self) -> Result<Ended, JobError> {
        let listed = self.storage.list(self.root).map_err(error("listing"))?;
        let has_turn = listed.iter().any(|entry| entry.name == TURN);
        if has_turn {
            remove_old_turn(self.storage, self.root);
        }
        let (probes, jobs): (Vec<_>, Vec<_>) = listed
            .into_iter()
            .map(|entry| entry.name)
            .filter(|name| is_job_name(name) || is_probe_name(name))
            .partition(|name| is_probe_name(name));
        probes.iter().for_each(|name| self.ownership.remove_old_probe(name));
        let ended = jobs.into_iter().map(|name| {
            let ended = self.end(&name);
            (name, ended)
        });
        let ended = ended.collect();
        if has_turn {
            // On NFS the lock of a dead machine lasts as long as those of its jobs, which may have come to their end only after the first look.
            remove_old_turn(self.storage, self.root);
        }
        Ok(ended)
    }

    /// Ends a job; `None` if it has ended by itself. Of one that is ending things go while they are looked at, the directory last.
    pub(crate) fn end(&self, name: &OsStr) -> Result<Option<Recovered>, JobError> {
        let _telling = info_span!("recover", job = ?name).entered();
        let ended = self.end_often(name);
        match &ended {
            Ok(None) => info!("it has ended by itself"),
            Ok(Some(ended)) => info!(action = ?ended.action, said = ended.message, "looked after"),
            Err(error) => warn!(%error, "it could not be ended"),
        }
        ended
    }

    fn end_often(&self, name: &OsStr) -> Result<Option<Recovered>, JobError> {
        for _ in 1..BIRTH_LOOKS {
            match self.attempt(name) {
                Err(failed) if is_gone(&failed) => std::thread::sleep(BIRTH_PAUSE),
                Err(failed) => return self.unless_gone(name, failed),
                ended => return ended,
            }
        }
        self.attempt(name).or_else(|failed| self.unless_gone(name, failed))
    }

    fn unless_gone(&self, name: &OsStr, failed: JobError) -> Result<Option<Recovered>, JobError> {
        // Another machine may have ended it, and what this one remembers of its name is older than that.
        match self.storage.stat_uncached(self.root, name) {
            Err(Errno::NOENT | Errno::STALE) => Ok(None),
            _ => Err(failed),
        }
    }

    fn attempt(&self, name: &OsStr) -> Result<Option<Recovered>, JobError> {
        let own = match self.ownership.open(name) {
            Err(Errno::NOENT | Errno::STALE) => return Ok(None),
            found => match found.map_err(error("opening the staging directory in"))? {
                crate::ownership::Ownership::Ours(own) => own,
                crate::ownership::Ownership::NotOurs(why) => {
                    return Ok(Some(report_of(name, RecoverAction::NotOurs, None, why)));
                }
            },
        };
        let lock = Lock::default();
        if let Some(own_lock) = self.own_lock {
            own_lock.hand_over(&lock);
        }
        let held = self.hold(name, &own, &lock).map_err(error("reading the manifest in"))?;
        let Some((found, attempt)) = held else { return Ok(None) };
        // What is mounted below the directory was never a part of the job.
        let mount = (!self.force).then(|| self.ownership.mount());
        let tree = Tree::new(self.storage, self.root.clone(), THREADS)
            .of_job(Some(own.handle.clone()), &lock)
            .staying_on(mount);
        let manifest = match found {
            Found::Kept(manifest) => {
                // It is left alone, whatever it has; only what is said of it depends on whether it can go on.
                let waits = waits(self.storage, &own).map_err(error("reading the record in"))?;
                let saved = |manifest: &Manifest| find_saved(&manifest.save, name).is_some();
                let goes_on = waits || manifest.as_ref().is_some_and(saved);
                return Ok(Some(is_kept(name, manifest.as_ref(), goes_on)));
            }
            // Somebody else is removing it at this moment.
            Found::Dropped(_) if matches!(attempt, Attempt::Taken) => return Ok(None),
            Found::Dropped(manifest) => {
                kept::remove(&tree, name, &own)?;
                return Ok(Some(kept::dropped(name, manifest.as_ref())));
            }
            Found::Ordinary(manifest) => manifest,
        };
        let objection = self.objection(name, &own, manifest.as_ref(), &attempt);
        if let Some(said) = objection.map_err(error("reading the attributes in"))? {
            return Ok(Some(said));
        }
        self.end_dead(tree, name, &own, manifest.as_ref()).map(Some)
    }

    /// Why a job is left alone, whatever else is in its directory.
    fn objection(
        &self,
        name: &OsStr,
        own: &OwnDirectory,
        manifest: Option<&Manifest>,
        attempt: &Attempt,
    ) -> Result<Option<Recovered>, Errno> {
        let Some(manifest) = manifest else {
            // Whose lock is taken lives, even if its manifest cannot be read yet.
            let is_taken = matches!(attempt, Attempt::Taken) && self.is_alive.is_none();
            return Ok(is_taken.then(|| report_of(name, RecoverAction::Running, None, "it is still running")));
        };
        let say = |action, message: String| Ok(Some(report_of(name, action, Some(manifest), message)));
        if let Some(home) = manifest.home.as_ref().filter(|home| home.name != name) {
            let message = format!("its manifest is that of {}: somebody has renamed it", home.name.shown());
            return say(RecoverAction::NotOurs, message);
        }
        let liveness = self.liveness(manifest, attempt);
        // A copy of a staging directory would be applied to a tree that its job has never seen.
        let is_to_be_ended = matches!(liveness, Liveness::Dead);
        if is_to_be_ended && !self.force && !self.is_original(manifest, own)? {
            let message = "it was copied from elsewhere, or begun by an older elbow; if you trust it, run `elbow recover --force`";
            return say(RecoverAction::Foreign, message.into());
        }
        match liveness {
            Liveness::Dead => Ok(None),
            Liveness::Running(message) => say(RecoverAction::Running, message),
            Liveness::Unknown(_) if self.force => Ok(None),
            Liveness::Unknown(message) => say(
                RecoverAction::Foreign,
                format!("{message}; if it is dead, run `elbow recover --force`"),
            ),
        }
    }

    pub(crate) fn liveness(&self, manifest: &Manifest, attempt: &Attempt) -> Liveness {
        match self.is_alive {
            None if self.own_lock.is_some() && matches!(attempt, Attempt::None) => Liveness::Dead,
            None => liveness::of(
                manifest,
                attempt,
                self.ownership.dev(),
                self.file_system_traits.shares_locks,
            ),
            Some(is_alive) if is_alive(manifest) => Liveness::Running("it is said to live".into()),
            Some(_) => Liveness::Dead,
        }
    }

    /// Why a job must not be gone on with, by us, whatever is in its directory: it is not where, or what, it was.
    pub(crate) fn distrusts(
        &self,
        name: &OsStr,
        manifest: Option<&Manifest>,
        own: &OwnDirectory,
    ) -> Result<Option<&'static str>, Errno> {
        let Some(manifest) = manifest else {
            return Ok(Some("its manifest cannot be read"));
        };
        if manifest.home.as_ref().is_none_or(|home| home.name != name) {
            return Ok(Some("its manifest is that of another job"));
        }
        let is_original = self.is_original(manifest, own)?;
        Ok((!is_original).then_some("it was copied from elsewhere"))
    }

    /// The directory is the one that the job made. What somebody else has made and we have copied is ours, too, and must not be obeyed.
    fn is_original(&self, manifest: &Manifest, own: &OwnDirectory) -> Result<bool, Errno> {
        if self.is_alive.is_some() {
            return Ok(true); // images of a crash are copies
        }
        let Some(home) = &manifest.home else { return Ok(false) };
        let born = self.storage.identity(&own.handle)?.born;
        // Where inode numbers change with whoever looks, they prove nothing; the time of birth still does.
        let is_same = !self.file_system_traits.keeps_inos || home.ino == own.stat.ino;
        Ok(is_same && (born.is_none() || born == home.born))
    }

    /// Ends a dead job, whose manifest we have locked.
    fn end_dead(
        &self,
        tree: Tree<'_>,
        name: &OsStr,
        own: &OwnDirectory,
        manifest: Option<&Manifest>,
    ) -> Result<Recovered, JobError> {
        let say = |action, message: &str| Ok(report_of(name, action, manifest, message));
        match find_record(self.storage, own) {
            // A record is only written when the manifest is durable.
            Ok(Some((_, stage))) if stage != Stage::Done && manifest.is_none() && !self.force => say(
                RecoverAction::Damaged,
                "it had committed, but its manifest cannot be read; if this is its place, run `elbow recover --force`; \
                 nothing was changed",
            ),
            // Its manifest went when all was done but for the removal of this directory.
            Ok(Some((_, Stage::Done))) if manifest.is_none() => {
                let removed = remove_job_dir(&tree, name, &StepCounter::default());
                removed.map_err(error("removing what is left in"))?;
                say(RecoverAction::Finished, FINISHED)
            }
            // It died before it was marked as kept.
            Ok(Some((_, Stage::Waiting))) => {
                kept::keep(self.storage, &own.handle).map_err(error("keeping the job in"))?;
                Ok(is_kept(name, manifest, true))
            }
            Ok(Some((record, stage))) => {
                let (action, message) = self.finish(tree, name, own, manifest, &record, stage)?;
                say(action, &message)
            }
            // Whose job it is cannot be read, yet it got beyond its first moment: perhaps this machine only sees it late.
            Ok(None)
                if manifest.is_none()
                    && !self.force
                    && !is_bare(self.storage, own).map_err(error("listing the staging directory in"))? =>
            {
                say(
                    RecoverAction::Damaged,
                    "its manifest cannot be read; if it is dead, run `elbow recover --force`; nothing was changed",
                )
            }
            Ok(None) => match self.left_elsewhere(name, manifest) {
                Ok(Some((manifest, saved))) => {
                    let message = self.keep_saved(&tree, name, own, manifest, &saved)?;
                    say(RecoverAction::Kept, &message)
                }
                Err(place) if !self.force => say(
                    RecoverAction::Failed,
                    &format!(
                        "it could not be ended: {} cannot be read, where it may have saved results; `elbow recover --force` rolls it back",
                        place.shown()
                    ),
                ),
                Ok(None) | Err(_) => {
                    let listed = self.storage.list(&own.handle);
                    let is_empty = listed.map_err(error("listing the staging directory in"))?.is_empty();
                    self.roll_back(&tree, name, own, manifest)?;
                    // Both look so: the record of what has committed goes just before its directory.
                    let message = match is_empty {
                        true => {
                            "its staging directory was empty, as before the first step and after the last: nothing is left to do"
                        }
                        false => "it had not committed: nothing of it is left",
                    };
                    say(RecoverAction::RolledBack, message)
                }
            },
            Err(found) => say(
                RecoverAction::Damaged,
                &format!("its commit record cannot be read: {found}; nothing was changed"),
            ),
        }
    }

    /// What a job that could not be marked as kept has saved on this machine, or what cannot be looked at.
    fn left_elsewhere<'m>(
        &self,
        name: &OsStr,
        manifest: Option<&'m Manifest>,
    ) -> Result<Option<(&'m Manifest, PathBuf)>, PathBuf> {
        let Some(manifest) = manifest.filter(|manifest| manifest.may_be_of_this_machine()) else {
            return Ok(None);
        };
        let found = find_left(&manifest.save, name)?;
        Ok(found.map(|saved| (manifest, saved)))
    }

    /// Makes it what it would be if it had been able to: a kept job of which a part is elsewhere.
    fn keep_saved(
        &self,
        tree: &Tree<'_>,
        name: &OsStr,
        own: &OwnDirectory,
        manifest: &Manifest,
        saved: &Path,
    ) -> Result<String, JobError> {
        let message = format!(
            "it could not be marked as kept when the storage did not take all of it; what is missing is on {} in {}",
            manifest.host,
            saved.shown()
        );
        let (left, times) =
            leftovers(self.storage, self.root, name, own, Some(manifest)).map_err(error("reading the journal in"))?;
        for holder in &left.staging {
            // One that somebody has moved or closed keeps the times that it has.
            if let Ok(dir) = tree.dir(&holder.path) {
                let _ = put_times_back(self.storage, &dir, holder.times);
            }
        }
        write_why(self.storage, &own.handle, &Cause::Storage(message.clone()));
        kept::keep(self.storage, &own.handle).map_err(error("keeping the job in"))?;
        let _ = put_times_back(self.storage, self.root, times);
        Ok(format!(
            "{message}; `elbow resume .` goes on with it, `elbow recover --drop` with this name removes it"
        ))
    }

    pub(crate) fn roll_back(
        &self,
        tree: &Tree<'_>,
        name: &OsStr,
        own: &OwnDirectory,
        manifest: Option<&Manifest>,
    ) -> Result<(), JobError> {
        debug!("it has no record: what it made is removed");
        let left = leftovers(self.storage, self.root, name, own, manifest);
        let (left, times) = left.map_err(error("reading the journal in"))?;
        remove_leftovers(tree, name, &left, times, &StepCounter::default()).map_err(error_in(ROLLING_BACK))
    }

    /// Carries a record out, or takes it back if that cannot be; gives what became of the job.
    fn finish(
        &self,
        tree: Tree<'_>,
        name: &OsStr,
        own: &OwnDirectory,
        manifest: Option<&Manifest>,
        record: &Record,
        stage: Stage,
    ) -> Result<(RecoverAction, String), JobError> {
        debug!(?stage, "its record is carried out");
        let departed = self.storage.stat(&own.handle, OsStr::new(DEPARTED)).is_ok();
        let turn = Turn::wait(self.storage, self.root, record, name, || false);
        let turn = turn.map_err(error("waiting for other commits in"))?;
        let counter = StepCounter::default();
        let apply = Apply::new(tree, own.handle.clone(), name, record, &counter, false);
        if let Stage::TakenBack(phase) = stage {
            let gone_on = Undo::of(&apply).go_on(phase, record.keeps);
            gone_on.map_err(|failures| unfinished(&failures))?;
            let waits = waits(self.storage, own).map_err(error("reading the record in"))?;
            // A recovery was taking it back: see below.
            let is_kept = none_if_missing(self.storage.stat(&own.handle, OsStr::new(WHY)));
            if waits || is_kept.map_err(error("looking at the job in"))?.is_some() {
                kept::keep(self.storage, &own.handle).map_err(error("keeping the job in"))?;
                return Ok((RecoverAction::Kept, kept_words(waits)));
            }
            // Before the times of the directory are set: the end of the turn changes them.
            drop(turn);
            self.roll_back(&apply.tree, name, own, manifest)?;
            let message = "its commit had been refused: nothing of it is left";
            return Ok((RecoverAction::RolledBack, message.into()));
        }
        if stage == Stage::Committed {
            if let Err(failures) = apply.publish(departed) {
                // Nothing of it is removed: among what it had published there may be what somebody has changed since.
                // Nor by who goes on from here, should we die: this tells.
                write_why(self.storage, &own.handle, &cause_of(&failures, clock()));
                Undo::of(&apply).take_back(true).map_err(|_| unfinished(&failures))?;
                kept::keep(self.storage, &own.handle).map_err(error("keeping the job in"))?;
                let waits = waits(self.storage, own).map_err(error("reading the record in"))?;
                return Ok((RecoverAction::Kept, kept_because(&failures, waits)));
            }
            apply.mark_done().map_err(error("finishing the commit in"))?;
        }
        drop(turn);
        apply.clean(None).map_err(|failures| unfinished(&failures))?;
        Ok((RecoverAction::Finished, FINISHED.into()))
    }

    /// Finds a job's manifest and locks it, and finds it once more: what it says is then so until the lock is given up. `None` if the
    /// job has ended meanwhile.
    fn hold(&self, name: &OsStr, own: &OwnDirectory, lock: &Lock) -> Result<Option<(Found, Attempt)>, Errno> {
        for look in 0..BIRTH_LOOKS_MAX {
            let found = look_at(self.storage, own)?;
            let is_late = look + 1 >= BIRTH_LOOKS;
            let is_birth = is_late && look + 1 < BIRTH_LOOKS_MAX && self.may_be_birth(&found);
            let is_last = is_late && !is_birth;
            let may_change = !is_last && self.is_young(name)?;
            match &found {
                // It may come yet: a manifest gets its name when it is whole.
                Found::Ordinary(None) if may_change && !is_birth => {}
                Found::Kept(_) => return Ok(Some((found, Attempt::None))),
                _ => {
                    let attempt = lock_manifest(self.storage, own, &found, lock)?;
                    // A process that was killed a moment ago still has its lock. A job that is removed has no process of its own:
                    // who began that may have died, and who removes it now is soon through, or is left to it.
                    let is_dying = found.has_process() == Some(false) || matches!(found, Found::Dropped(_));
                    if matches!(attempt, Attempt::Taken) && is_dying && !is_last {
                        std::thread::sleep(BIRTH_PAUSE);
                        continue;
                    }
                    let is_ending = match attempt {
                        Attempt::Locked | Attempt::None if is_birth => is_unborn(self.storage, own)?,
                        Attempt::Locked => is_bare(self.storage, own)?,
                        Attempt::None | Attempt::Taken => false,
                    };
                    // Between the look and the lock its name may have changed: what was found counts only if it is
                    // still so.
                    let is_over = is_ending && may_change;
                    if !is_over && (is_last || look_at(self.storage, own)? == found) {
                        return Ok(Some((found, attempt)));
                    }
                    // Who ends it must not find it open.
                    lock.give_up(self.storage);
                }
            }
            if look >= LOCK_LOOKS || may_change {
                let shorter = u32::try_from(look).ok().and_then(|look| 2u32.checked_pow(look));
                std::thread::sleep(shorter.map_or(BIRTH_PAUSE, |times| (FIRST_PAUSE * times).min(BIRTH_PAUSE)));
            }
        }
        Ok(None)
    }

    /// It has no manifest, and nobody has said that it is dead.
    fn may_be_birth(&self, found: &Found) -> bool {
        matches!(found, Found::Ordinary(None)) && !self.force && self.own_lock.is_none()
    }

    /// A job that began, or has done something in its own directory, just now. An error if it is gone.
    fn is_young(&self, name: &OsStr) -> Result<bool, Errno> {
        let stat = self.storage.stat(self.root, name)?;
        // Clocks of machines go wrong in both directions.
        let is_young = |seconds: i64| (clock().seconds - seconds).abs() < BIRTH_SECONDS;
        Ok(self.is_alive.is_none() && is_young(stat.mtime.seconds))
    }
}

/// Something that was found a moment ago was not there any more.
fn is_gone(error: &JobError) -> bool {
    matches!(
        error,
        JobError::Storage {
            errno: Errno::NOENT | Errno::STALE,
            ..
        }
    )
}

/// Nothing but a manifest, or a part of one, is in a job's own directory: it died, or is, in its first or last moment.
fn is_bare(storage: &dyn Storage, own: &OwnDirectory) -> Result<bool, Errno> {
    has_at_most(storage, own, &[MANIFEST, MANIFEST_DRAFT, DROPPED, DONE])
}

/// Not even a whole manifest: it died, or is, in its first moment.
fn is_unborn(storage: &dyn Storage, own: &OwnDirectory) -> Result<bool, Errno> {
    has_at_most(storage, own, &[MANIFEST_DRAFT])
}

fn has_at_most(storage: &dyn Storage, own: &OwnDirectory, names: &[&str]) -> Result<bool, Errno> {
    let listed = storage.list(&own.handle)?;
    Ok(listed.iter().all(|entry| names.iter().any(|name| entry.name == *name)))
}

fn is_kept(name: &OsStr, manifest: Option<&Manifest>, goes_on: bool) -> Recovered {
    report_of(name, RecoverAction::Kept, manifest, kept_words(goes_on))
}

fn kept_words(goes_on: bool) -> String {
    let words = if goes_on {
        "it could not be stored and is kept with all that it made; `elbow resume .` goes on with it, `elbow recover --drop` with this name removes it"
    } else {
        "it failed and was kept; `elbow recover --drop` with this name removes it"
    };
    words.into()
}

fn kept_because(failures: &[Failure], waits: bool) -> String {
    let first = failures.first().map(ToString::to_string).unwrap_or_default();
    let goes_on = if waits {
        "`elbow resume .` goes on with it, "
    } else {
        ""
    };
    format!(
        "it had committed, but that could not be finished ({first}): the tree is as it was before the job, and what the job \
         made is kept; {goes_on}`elbow recover --drop` with this name removes it"
    )
}

/// What a dead job has put outside its own directory, and the times of the root before it.
fn leftovers(
    storage: &dyn Storage,
    root: &Handle,
    name: &OsStr,
    own: &OwnDirectory,
    manifest: Option<&Manifest>,
) -> Result<(Leftovers, (Time, Time)), Errno> {
    let times = match manifest {
        Some(manifest) => manifest.times,
        None => {
            let now = storage.stat_handle(root)?;
            (now.atime, mtime_in(name).unwrap_or(now.mtime))
        }
    };
    let (mut left, mut known) = (Leftovers::default(), HashMap::new());
    for entry in read_journal(storage, own)? {
        match entry {
            JournalEntry::Staging { dir, times, closed } => {
                let place = *known.entry(dir.clone()).or_insert(left.staging.len());
                if let Some(holder) = left.staging.get_mut(place) {
                    // One that had to be opened is noted once more.
                    holder.closed = holder.closed.or(closed);
                    continue;
                }
                left.staging.push(StagingHolder {
                    path: dir,
                    times,
                    closed,
                    open: None,
                });
            }
            JournalEntry::Visible { path } => left.visible.push(path),
            JournalEntry::Taken { path } => left.visible.retain(|visible| !visible.starts_with(&path)),
        }
    }
    Ok((left, times))
}
