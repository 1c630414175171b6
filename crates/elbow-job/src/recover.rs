//! Ending jobs whose process died: committed ones are finished, all others rolled back. Those that were kept are left alone.
//!
//! ```text
//!   whose   only a directory of our own is looked into                                   (`whose`)
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
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use elbow_file::{Access, Errno, Handle, Nature, Storage, Time};
use elbow_ranges::encoding::{DecodeError, seal};

use crate::commit::{
    Apply, DEPARTED, DONE, Failure, Leftovers, RECORD, RECORD_MAGIC, RESUME, Record, StagingHolder, Tally, Tree, Turn,
    UNDO, Undo, UndoPhase, WHY_BYTES_MAX, cause_of, find_left, find_saved, gone_is_none, put_times_back,
    remove_job_dir, remove_leftovers, remove_old_turn, write_why,
};
use crate::kept;
use crate::liveness::{self, Attempt, Liveness, Lock};
use crate::options::OnConflict;
use crate::report::{Cause, JobError, Outcome, RecoverAction, Recovered};
use crate::resume;
use crate::shared::clock;
use crate::staging::{
    DROPPED, JOURNAL, JournalEntry, KEPT, MANIFEST, MANIFEST_DRAFT, MANIFEST_MAGIC, Manifest, TURN, WHY, is_job_name,
    is_probe_name, mtime_in,
};
use crate::whose::{Own, Whose};

/// What is said of a job that is in its place.
const FINISHED: &str = "it had committed: everything is in its place";
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
/// A job's own directory without a manifest, or with nothing else, may be a moment old, or about to go: it is looked at again for
/// two seconds. A job that has none by then is dead; if it is only very slow, it finds its directory gone and fails.
const BIRTH_SECONDS: i64 = 10;
pub(crate) const BIRTH_LOOKS: usize = 40;
pub(crate) const BIRTH_PAUSE: Duration = Duration::from_millis(50);
/// The first pauses are shorter, and each twice as long as the one before: most wait for a single call.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// A manifest that is another one whenever it is locked is looked at so often.
const LOCK_LOOKS: usize = 5;

/// Looks for dead jobs in a directory and ends each: a committed one forward, any other back. Jobs of other
/// machines are left alone unless `force` says that they are dead, kept ones ([`drop_kept`](crate::drop_kept)) and those of other
/// users in any case. One that cannot be ended is told as [`RecoverAction::Failed`], and can be tried again.
///
/// # Errors
/// When the directory cannot be listed.
pub fn recover(storage: &Arc<dyn Storage>, root: &Handle, force: bool) -> Result<Vec<Recovered>, JobError> {
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

/// Ends one dead job, which is named as its own staging directory is; one that was kept with all that it made goes on, as by
/// [`resume`](crate::resume()).
///
/// # Errors
/// [`JobError::NotWhole`] for a name that is not there, or a job that cannot go on; others when a step fails, after which it can be called again.
pub fn retry(storage: &Arc<dyn Storage>, root: &Handle, name: &OsStr, force: bool) -> Result<Recovered, JobError> {
    let not_there = || JobError::NotWhole {
        job: name.to_string_lossy().into_owned(),
        found: "there is no such job here".into(),
    };
    if !is_job_name(name) {
        return Err(not_there());
    }
    let ended = Recovery::new(&**storage, root, force)?.end(name)?;
    let ended = ended.ok_or_else(not_there)?;
    if ended.action != RecoverAction::Kept {
        return Ok(ended);
    }
    Ok(match resume::resume(storage, root, name, OnConflict::RollBack)? {
        Outcome::Kept(cause, _) => Recovered {
            message: format!("it cannot be stored yet ({cause}), and is kept as before"),
            ..ended
        },
        _ => Recovered {
            action: RecoverAction::Finished,
            message: FINISHED.into(),
            ..ended
        },
    })
}

/// Why a job could not be ended, for who knows which job and directory it is.
fn failure(error: &JobError) -> String {
    match error {
        JobError::Storage { tried, errno, .. } => {
            let tried = tried.strip_suffix(" in").unwrap_or(tried);
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

pub(crate) fn error(tried: &'static str) -> impl Fn(Errno) -> JobError {
    JobError::storage(tried, ".")
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

/// What became of each name.
type Ended = Vec<(OsString, Result<Option<Recovered>, JobError>)>;

pub(crate) struct Recovery<'a> {
    storage: &'a dyn Storage,
    root: &'a Handle,
    force: bool,
    pub(crate) whose: Whose<'a>,
    nature: Nature,
    /// Asked instead of locks, by tests.
    is_alive: Option<&'a dyn Fn(&Manifest) -> bool>,
}

impl<'a> Recovery<'a> {
    pub(crate) fn new(storage: &'a dyn Storage, root: &'a Handle, force: bool) -> Result<Self, JobError> {
        let failed = error("reading the attributes of");
        Ok(Self {
            storage,
            root,
            force,
            whose: Whose::new(storage, root).map_err(&failed)?,
            nature: storage.nature(root).map_err(&failed)?,
            is_alive: None,
        })
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
        probes.iter().for_each(|name| self.whose.remove_old_probe(name));
        let ended = jobs.into_iter().map(|name| {
            let ended = self.end(&name);
            (name, ended)
        });
        let ended = ended.collect();
        if has_turn {
            self.remove_turn_at_last();
        }
        Ok(ended)
    }

    /// On NFS the lock of a dead machine lasts as long as those of its jobs, which may have come to their end only after the first look. The directory
    /// has its times by now, and keeps them.
    fn remove_turn_at_last(&self) {
        let is_there = || self.storage.stat(self.root, OsStr::new(TURN)).is_ok();
        let Ok(before) = self.storage.stat_handle(self.root) else {
            return;
        };
        if is_there() {
            remove_old_turn(self.storage, self.root);
            if !is_there() {
                let times = (Some(before.atime), Some(before.mtime));
                let _ = self.storage.set_times(self.root, OsStr::new("."), times.0, times.1);
            }
        }
    }

    /// Ends a job; `None` if it has ended by itself. Of one that is ending things go while they are looked at, the directory last.
    fn end(&self, name: &OsStr) -> Result<Option<Recovered>, JobError> {
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
        match self.storage.stat(self.root, name) {
            Err(Errno::NOENT | Errno::STALE) => Ok(None),
            _ => Err(failed),
        }
    }

    fn attempt(&self, name: &OsStr) -> Result<Option<Recovered>, JobError> {
        let own = match self.whose.open(name) {
            Err(Errno::NOENT | Errno::STALE) => return Ok(None),
            found => match found.map_err(error("opening the staging directory in"))? {
                crate::whose::Found::Ours(own) => own,
                crate::whose::Found::NotOurs(why) => {
                    return Ok(Some(report_of(name, RecoverAction::NotOurs, None, why)));
                }
            },
        };
        let lock = Lock::default();
        let held = self.hold(name, &own, &lock).map_err(error("reading the manifest in"))?;
        let Some((found, attempt)) = held else { return Ok(None) };
        let mount = (!self.force).then(|| self.whose.mount());
        let tree = Tree::new(self.storage, self.root.clone(), THREADS)
            .of_job(Some(own.handle.clone()), &lock)
            .staying_on(mount);
        let manifest = match found {
            Found::Kept(manifest) => {
                let waits = waits(self.storage, &own).map_err(error("reading the record in"))?;
                let saved = |manifest: &Manifest| find_saved(&manifest.save, name).is_some();
                let goes_on = waits || manifest.as_ref().is_some_and(saved);
                return Ok(Some(is_kept(name, manifest.as_ref(), goes_on)));
            }
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
        own: &Own,
        manifest: Option<&Manifest>,
        attempt: &Attempt,
    ) -> Result<Option<Recovered>, Errno> {
        let Some(manifest) = manifest else {
            let is_taken = matches!(attempt, Attempt::Taken) && self.is_alive.is_none();
            return Ok(is_taken.then(|| report_of(name, RecoverAction::Running, None, "it is still running")));
        };
        let say = |action, message: String| Ok(Some(report_of(name, action, Some(manifest), message)));
        if let Some(home) = manifest.home.as_ref().filter(|home| home.name != name) {
            let message = format!(
                "its manifest is that of {}: somebody has renamed it",
                home.name.display()
            );
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
            None => liveness::of(manifest, attempt, self.whose.dev(), self.nature.shares_locks),
            Some(is_alive) if is_alive(manifest) => Liveness::Running("it is said to live".into()),
            Some(_) => Liveness::Dead,
        }
    }

    /// Why a job must not be gone on with, by us, whatever is in its directory: it is not where, or what, it was.
    pub(crate) fn distrusts(
        &self,
        name: &OsStr,
        manifest: Option<&Manifest>,
        own: &Own,
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
    fn is_original(&self, manifest: &Manifest, own: &Own) -> Result<bool, Errno> {
        if self.is_alive.is_some() {
            return Ok(true); // images of a crash are copies
        }
        let Some(home) = &manifest.home else { return Ok(false) };
        let born = self.storage.identity(&own.handle)?.born;
        let is_same = !self.nature.keeps_inos || home.ino == own.stat.ino;
        Ok(is_same && (born.is_none() || born == home.born))
    }

    /// Ends a dead job, whose manifest we have locked.
    fn end_dead(
        &self,
        tree: Tree<'_>,
        name: &OsStr,
        own: &Own,
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
                let removed = remove_job_dir(&tree, name, &Tally::default());
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
                        place.display()
                    ),
                ),
                Ok(None) | Err(_) => {
                    self.roll_back(&tree, name, own, manifest)?;
                    say(RecoverAction::RolledBack, "it had not committed: nothing of it is left")
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
        let Some(manifest) = manifest.filter(|manifest| manifest.is_of_this_machine()) else {
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
        own: &Own,
        manifest: &Manifest,
        saved: &Path,
    ) -> Result<String, JobError> {
        let message = format!(
            "it could not be marked as kept when the storage did not take all of it; what is missing is on {} in {}",
            manifest.host,
            saved.display()
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
        own: &Own,
        manifest: Option<&Manifest>,
    ) -> Result<(), JobError> {
        let left = leftovers(self.storage, self.root, name, own, manifest);
        let (left, times) = left.map_err(error("reading the journal in"))?;
        remove_leftovers(tree, name, &left, times, &Tally::default()).map_err(error("rolling back in"))
    }

    /// Carries a record out, or takes it back if that cannot be; gives what became of the job.
    fn finish(
        &self,
        tree: Tree<'_>,
        name: &OsStr,
        own: &Own,
        manifest: Option<&Manifest>,
        record: &Record,
        stage: Stage,
    ) -> Result<(RecoverAction, String), JobError> {
        let departed = self.storage.stat(&own.handle, OsStr::new(DEPARTED)).is_ok();
        let _turn = Turn::wait(self.storage, self.root, record, name, || false);
        let tally = Tally::default();
        let apply = Apply::new(tree, own.handle.clone(), name, record, &tally, false);
        if let Stage::TakenBack(phase) = stage {
            let gone_on = Undo::of(&apply).go_on(phase, record.keeps);
            gone_on.map_err(|failures| unfinished(&failures))?;
            let waits = waits(self.storage, own).map_err(error("reading the record in"))?;
            // A recovery was taking it back: see below.
            let is_kept = gone_is_none(self.storage.stat(&own.handle, OsStr::new(WHY)));
            if waits || is_kept.map_err(error("looking at the job in"))?.is_some() {
                kept::keep(self.storage, &own.handle).map_err(error("keeping the job in"))?;
                return Ok((RecoverAction::Kept, kept_words(waits)));
            }
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
        apply.clean(None).map_err(|failures| unfinished(&failures))?;
        Ok((RecoverAction::Finished, FINISHED.into()))
    }

    /// Finds a job's manifest and locks it, and finds it once more: what it says is then so until the lock is given up. `None` if the
    /// job has ended meanwhile.
    fn hold(&self, name: &OsStr, own: &Own, lock: &Lock) -> Result<Option<(Found, Attempt)>, Errno> {
        for look in 0..BIRTH_LOOKS {
            let is_last = look + 1 == BIRTH_LOOKS;
            let found = look_at(self.storage, own)?;
            let may_change = !is_last && self.is_young(name)?;
            match &found {
                Found::Ordinary(None) if may_change => {}
                Found::Kept(_) => return Ok(Some((found, Attempt::None))),
                _ => {
                    let attempt = lock_manifest(self.storage, own, &found, lock)?;
                    // A process that was killed a moment ago still has its lock.
                    let is_dying = matches!(attempt, Attempt::Taken) && found.has_process() == Some(false);
                    if is_dying && !is_last {
                        std::thread::sleep(BIRTH_PAUSE);
                        continue;
                    }
                    let is_ending = matches!(attempt, Attempt::Locked) && is_bare(self.storage, own)?;
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

    /// A job that began, or has done something in its own directory, just now. An error if it is gone.
    fn is_young(&self, name: &OsStr) -> Result<bool, Errno> {
        let stat = self.storage.stat(self.root, name)?;
        let is_young = |seconds: i64| (clock().seconds - seconds).abs() < BIRTH_SECONDS;
        Ok(self.is_alive.is_none() && is_young(stat.mtime.seconds))
    }
}

/// Locks the manifest of a job, if it has one.
pub(crate) fn lock_manifest(storage: &dyn Storage, own: &Own, found: &Found, lock: &Lock) -> Result<Attempt, Errno> {
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
    lock.give_up(storage);
    let attempt = liveness::attempt(storage, &file)?;
    match attempt {
        Attempt::Locked => lock.hold(file),
        _ => storage.close(&file)?,
    }
    Ok(attempt)
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
fn is_bare(storage: &dyn Storage, own: &Own) -> Result<bool, Errno> {
    let listed = storage.list(&own.handle)?;
    let mut names = listed.iter().map(|entry| &entry.name);
    Ok(names.all(|name| {
        [MANIFEST, MANIFEST_DRAFT, DROPPED, DONE]
            .iter()
            .any(|bare| name == bare)
    }))
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

/// A kept job can go on.
pub(crate) fn waits(storage: &dyn Storage, own: &Own) -> Result<bool, Errno> {
    gone_is_none(storage.stat(&own.handle, OsStr::new(RESUME))).map(|found| found.is_some())
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
    fn has_process(&self) -> Option<bool> {
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
pub(crate) fn look_at(storage: &dyn Storage, own: &Own) -> Result<Found, Errno> {
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
pub(crate) fn find_record(storage: &dyn Storage, own: &Own) -> Result<Option<(Record, Stage)>, Unread> {
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
                return Ok(Some((Record::decode(&bytes)?, stage)));
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
    own: &Own,
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
        }
    }
    Ok((left, times))
}

/// The entries of a journal up to the first that is none: what follows was never acted on.
pub(crate) fn read_journal(storage: &dyn Storage, own: &Own) -> Result<Vec<JournalEntry>, Errno> {
    read_journal_to(storage, own).map(|(entries, _)| entries)
}

/// The same with where the last entry ends that is whole: what a full disk has torn is to be overwritten.
pub(crate) fn read_journal_to(storage: &dyn Storage, own: &Own) -> Result<(Vec<JournalEntry>, u64), Errno> {
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
pub(crate) fn read_rest(storage: &dyn Storage, own: &Own) -> Result<Option<Record>, Unread> {
    let bytes = read_sealed(storage, own, RESUME, RECORD_MAGIC, RECORD_BYTES_MAX)?;
    Ok(bytes.map(|bytes| Record::decode(&bytes)).transpose()?)
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
    own: &Own,
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
pub(crate) fn read_why(storage: &dyn Storage, own: &Own) -> Option<String> {
    let (file, _) = open_own(storage, own, WHY).ok().flatten()?;
    let mut text = vec![0; WHY_BYTES_MAX];
    let length = storage.read(&file, &mut text, 0).ok()?;
    let text = String::from_utf8_lossy(&text[..length]).into_owned();
    Some(text).filter(|text| !text.is_empty())
}

/// A file in a job's own directory and its size. EPERM for one that is not of the directory's owner.
fn open_own(storage: &dyn Storage, own: &Own, name: &str) -> Result<Option<(Handle, u64)>, Errno> {
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
