//! Giving up a job that has committed and can be neither finished nor taken back: what can be taken back is, and the rest is named.
//!
//! Whatever of the tree before is still somewhere stays there: an old object that does not get its name back waits under its hidden one, and the old
//! content of a file in its undo log. The job is a kept one then, and blocks nobody.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use elbow_file::{Handle, ShowName, Storage};

use crate::commit::{Apply, Failure, Record, Slot, Tree, Undo, write_why};
use crate::found::{Found, Stage, THREADS, error, find_record, read_why, report_of, unfinished};
use crate::kept;
use crate::liveness::{Attempt, Liveness, Lock};
use crate::ownership;
use crate::recover::Recovery;
use crate::report::{Cause, JobError, RecoverAction, Recovered};
use crate::staging::is_job_name;
use crate::step_counter::StepCounter;

/// What became of a job that was given up.
#[derive(Clone, Debug)]
pub struct Abandoned {
    /// What was done: [`RecoverAction::RolledBack`] if nothing of it is left, else [`RecoverAction::Kept`].
    pub job: Recovered,
    /// Paths that are not as they were before the job, with what is there instead. All others are.
    pub stays: Vec<(PathBuf, String)>,
}

/// Gives up one job of a directory, which is named as its own staging directory is.
///
/// # Errors
/// [`JobError::NotStuck`] for a job that runs, is kept, or has nothing left to be done but to be cleaned away; others when the storage does not even let the progress
/// be marked, after which it can be called again.
pub fn abandon(storage: &Arc<dyn Storage>, root: &Handle, name: &OsStr) -> Result<Abandoned, JobError> {
    let storage = &**storage;
    let not_stuck = |found: &str| JobError::NotStuck {
        job: name.to_string_lossy().into_owned(),
        found: found.into(),
    };
    if !is_job_name(name) {
        return Err(not_stuck("no job has such a name"));
    }
    let recovery = Recovery::new(storage, root, false)?;
    let opened = crate::missing::none_if_missing(recovery.ownership.open(name))
        .map_err(error("opening the staging directory in"))?;
    let own = match opened.ok_or_else(|| not_stuck("there is no such job here"))? {
        ownership::Ownership::Ours(own) => own,
        ownership::Ownership::NotOurs(why) => return Err(not_stuck(&format!("it is left alone: {why}"))),
    };
    let lock = Lock::default();
    let (found, attempt) = kept::hold(storage, &own, &lock)?;
    let manifest = match found {
        Found::Ordinary(Some(manifest)) => manifest,
        Found::Ordinary(None) => return Err(not_stuck("its manifest cannot be read")),
        Found::Kept(_) | Found::Dropped(_) => return Err(not_stuck("it is kept; `elbow recover --drop` removes it")),
    };
    match recovery.liveness(&manifest, &attempt) {
        Liveness::Dead if !matches!(attempt, Attempt::Taken) => {}
        Liveness::Running(said) | Liveness::Unknown(said) => return Err(not_stuck(&said)),
        Liveness::Dead => return Err(not_stuck("another process is at work on it")),
    }
    let distrust = recovery.distrusts(name, Some(&manifest), &own);
    if let Some(why) = distrust.map_err(error("reading the attributes in"))? {
        return Err(not_stuck(why));
    }
    let (record, from) = match find_record(storage, &own).map_err(|found| not_stuck(&found.to_string()))? {
        Some((record, Stage::Committed)) => (record, None),
        Some((record, Stage::TakenBack(phase))) => (record, Some(phase)),
        Some((_, Stage::Done)) => {
            return Err(not_stuck(
                "everything of it is in its place; `elbow recover` cleans up, or says what keeps it from that",
            ));
        }
        Some((_, Stage::Waiting)) | None => return Err(not_stuck("it has not committed; `elbow recover` ends it")),
    };
    let tree = Tree::new(storage, root.clone(), THREADS)
        .of_job(Some(own.handle.clone()), &lock)
        .staying_on(Some(recovery.ownership.mount()));
    let counter = StepCounter::default();
    let apply = Apply::new(tree, own.handle.clone(), name, &record, &counter, false);
    let begun = from.and_then(|_| read_why(storage, &own));
    let begun = begun.filter(|why| why.starts_with(HALF_WAY));
    let note = |failures: &[Failure]| {
        if !failures.is_empty() {
            let stays = all_that_stays(&apply, failures);
            write_why(storage, &own.handle, &half_way(begun.as_deref(), &stays));
        }
    };
    let undo = Undo::of(&apply);
    let failures = undo.give_up(from, note).map_err(|failures| unfinished(&failures))?;
    let forget = || undo.forget_given_up().map_err(error("removing the record in"));
    if failures.is_empty() && begun.is_none() {
        forget()?;
        recovery.roll_back(&apply.tree, name, &own, Some(&manifest))?;
        let message = "it was given up: nothing of it is left";
        return Ok(Abandoned {
            job: report_of(name, RecoverAction::RolledBack, Some(&manifest), message),
            stays: Vec::new(),
        });
    }
    let mut stays = all_that_stays(&apply, &failures);
    stays.extend(begun.map(|why| {
        (
            PathBuf::from("."),
            format!("has what an attempt before this one has told of: {why}"),
        )
    }));
    // Kept before its record goes: a dead job without one would be rolled back, with the old content that it still has.
    kept::keep(storage, &own.handle).map_err(error("keeping the job in"))?;
    forget()?;
    let message = "it was given up: what can be is as before the job, and what follows is not; look at it before `elbow recover --drop` \
         removes with this name what is left of the job, old content among it";
    Ok(Abandoned {
        job: report_of(name, RecoverAction::Kept, Some(&manifest), message),
        stays,
    })
}

/// What why a job is kept begins with that was given up, and not all of which could be taken back.
const HALF_WAY: &str = "it was given up half-way";

fn half_way(before: Option<&str>, stays: &[(PathBuf, String)]) -> Cause {
    let told_of = stays.iter().map(|(path, what)| format!("{}: {what}", path.shown()));
    let all: Vec<String> = std::iter::once(before.unwrap_or(HALF_WAY).to_owned())
        .chain(told_of)
        .collect();
    Cause::Storage(all.join("; "))
}

fn all_that_stays(apply: &Apply<'_>, failures: &[Failure]) -> Vec<(PathBuf, String)> {
    let mut stays: Vec<_> = failures
        .iter()
        .map(|failure| (name_of(apply.record, failure), what_stays(apply, failure)))
        .collect();
    stays.sort();
    stays.dedup();
    stays
}

/// Where the object of a failed step is: those of content and attributes have the names again that they had before the job.
fn name_of(record: &Record, failure: &Failure) -> PathBuf {
    let before = record.before.objects.get(&failure.path);
    let is_of_object = matches!(failure.step, "restore" | "restore attributes of");
    before.filter(|_| is_of_object).unwrap_or(&failure.path).clone()
}

/// What is at the path of a step that could not be taken back, in words.
fn what_stays(apply: &Apply<'_>, failure: &Failure) -> String {
    let (record, job, path) = (apply.record, apply.staging_name, &failure.path);
    let what = match failure.step {
        "restore" => {
            let patch = record.patches.iter().find(|patch| patch.path == *path);
            let patch = patch.filter(|patch| !patch.overwritten().is_empty());
            let old = patch
                .map(|patch| Path::new(job).join(apply.log_path(patch)))
                .map(|log| format!("; what it overwrote is in {}", log.shown()));
            format!("has content of the job{}", old.unwrap_or_default())
        }
        "restore attributes of" => "has attributes of the job".into(),
        "remove" => "is a link that the job made".into(),
        "take back" => "is what the job put there".into(),
        "bring back" => match record.departures.iter().find(|departure| departure.path == *path) {
            Some(departure) => format!(
                "is not as before: what was there is {}",
                waits_at(departure, job).shown()
            ),
            None => "is not as before".into(),
        },
        other => format!("could not be taken back ({other})"),
    };
    format!("{what} ({})", failure.reason())
}

/// Where an old object waits.
fn waits_at(departure: &crate::commit::Departure, job: &OsStr) -> PathBuf {
    match &departure.slot {
        Slot::Beside(slot) => departure.path.with_file_name(slot),
        Slot::InJob(slot) => Path::new(job).join(slot),
        Slot::At(dir, slot) => dir.join(slot),
    }
}
