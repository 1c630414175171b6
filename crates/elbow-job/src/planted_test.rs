//! Mistakes that a commit could make, planted between a job and a storage that loses power: the enumeration of `power_test` finds each. One that
//! finds nothing would show nothing where it is green.
//!
//! A mistake is an order of calls that is not ours: a call that is not made, or one that is made too early or too late. While the power stays on none of
//! them is seen: the job commits (or is taken back) as ever.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use elbow_file::double::{Call, Faulty, Hook, Operation, Volatile};
use elbow_file::{Handle, RenameMode, Result, Storage};
use parking_lot::Mutex;

use crate::Outcome;
use crate::job_files::{DEPARTED, DONE, RECORD, UNDO};
use crate::options::Publish;
use crate::power_test::{CONTENTS, Found, NAMES, Ran, Work, before, commit_refused, look_for_faults, run};

/// The record before it has its name.
const DRAFT: &str = "commit.draft";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// Nothing is durable when the record gets its name.
    NothingIsSynced,
    /// The record is durable then, and what it speaks of is not.
    OnlyTheRecordIsSynced,
    /// The first old object has left its name when the record gets its own.
    RecordComesLate,
    /// All old objects are said to have left before the first does.
    DepartedComesEarly,
    /// All is said to be done before the first old object leaves.
    DoneComesEarly,
    /// What has arrived goes from its patch before it is said to have arrived.
    PunchComesEarly,
    /// Contents are said to be taken back before they are.
    UndoGoesOnEarly,
}

/// Where a commit is, as far as its calls tell.
#[derive(Default)]
struct Commit {
    is_drafted: bool,
    /// The job's own directory, from when the record gets its name.
    job: Option<Handle>,
    /// The record still has to be given its name.
    owes_record: bool,
    /// The new content of the large file is durable, and that has not been said.
    has_arrived: bool,
}

/// Makes one mistake, once.
struct Planted {
    mistake: Mistake,
    below: Arc<Volatile>,
    faulty: Faulty,
    commit: Mutex<Commit>,
    made: AtomicU64,
}

/// The answer of a call that was not made.
fn pretend<T: 'static>() -> Result<T> {
    let answer: Box<dyn Any> = Box::new(());
    Ok(*answer.downcast().expect("a call that answers nothing"))
}

fn is_rename(call: &Call<'_>, to: &str) -> bool {
    call.operation == Operation::Rename && call.other.is_some_and(|name| name == to)
}

impl Planted {
    fn new(mistake: Mistake, below: &Arc<Volatile>) -> Self {
        Self {
            mistake,
            below: below.clone(),
            faulty: Faulty::default(),
            commit: Mutex::default(),
            made: AtomicU64::new(0),
        }
    }

    /// A durable change of names in the job's own directory.
    fn rename_in(&self, job: &Handle, from: &str, to: &str) -> Result<()> {
        self.made.fetch_add(1, Ordering::Relaxed);
        self.below
            .rename(job, from.as_ref(), job, to.as_ref(), RenameMode::Replace)?;
        self.below.sync(job)
    }

    fn create_in(&self, job: &Handle, name: &str) -> Result<()> {
        self.made.fetch_add(1, Ordering::Relaxed);
        let file = self.below.create(job, name.as_ref(), 0o600)?;
        self.below.sync(&file)?;
        self.below.sync(job)
    }

    /// Is a call one that makes something durable between the writing of the record and its name, and to be left out?
    fn leaves_out(&self, call: &Call<'_>) -> bool {
        let commit = self.commit.lock();
        let is_between = commit.is_drafted && commit.job.is_none();
        is_between
            && match self.mistake {
                Mistake::NothingIsSynced => matches!(call.operation, Operation::Sync | Operation::SyncAll),
                Mistake::OnlyTheRecordIsSynced => call.operation == Operation::SyncAll,
                _ => false,
            }
    }

    /// Is a call the one that makes durable that the large file has arrived, and to be left out?
    fn says_arrived(&self, call: &Call<'_>) -> bool {
        if self.mistake != Mistake::PunchComesEarly || call.operation != Operation::Sync {
            return false;
        }
        let mut commit = self.commit.lock();
        let (path, had_arrived) = (call.path(), commit.has_arrived);
        commit.has_arrived = commit.job.is_some() && path.ends_with("keep/large");
        had_arrived
            && path
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"u-"))
    }

    /// What is made too early: before the first change of names after the record has its own.
    fn hurry(&self, job: &Handle) -> Result<()> {
        match self.mistake {
            Mistake::DepartedComesEarly => self.create_in(job, DEPARTED),
            Mistake::DoneComesEarly => self.rename_in(job, RECORD, DONE),
            _ => Ok(()),
        }
    }

    /// What is made at once after a call, too early or too late.
    fn follow(&self, call: &Call<'_>) -> Result<()> {
        if self.mistake == Mistake::UndoGoesOnEarly && is_rename(call, UNDO[0]) {
            self.below.sync(call.handle)?;
            self.rename_in(call.handle, UNDO[0], UNDO[1])?;
        }
        let owed = {
            let mut commit = self.commit.lock();
            std::mem::take(&mut commit.owes_record)
                .then(|| commit.job.clone())
                .flatten()
        };
        owed.map_or(Ok(()), |job| self.rename_in(&job, DRAFT, RECORD))
    }
}

impl Hook for Planted {
    fn around<T: 'static>(&self, call: &Call<'_>, make: impl FnOnce() -> Result<T>) -> Result<T> {
        if call.operation == Operation::Create && call.name.is_some_and(|name| name == DRAFT) {
            self.commit.lock().is_drafted = true;
        }
        if self.leaves_out(call) || self.says_arrived(call) {
            self.made.fetch_add(1, Ordering::Relaxed);
            return pretend();
        }
        if is_rename(call, RECORD) {
            let mut commit = self.commit.lock();
            commit.job = Some(call.handle.clone());
            commit.owes_record = self.mistake == Mistake::RecordComesLate;
            return if commit.owes_record { pretend() } else { make() };
        }
        let is_first = call.operation == Operation::Rename && self.made.load(Ordering::Relaxed) == 0;
        let job = self.commit.lock().job.clone().filter(|_| is_first);
        job.map_or(Ok(()), |job| self.hurry(&job))?;
        let answer = self.faulty.around(call, make)?;
        if call.operation == Operation::Rename {
            self.follow(call)?;
        }
        Ok(answer)
    }
}

fn commit(work: Work, mistake: Mistake) -> Ran<Planted> {
    let ran = run(
        work,
        Publish::Staged,
        |below| Planted::new(mistake, below),
        |job, _| assert!(matches!(job.commit(&mut |_| {}), Ok(Outcome::Committed))),
    );
    assert_ne!(ran.left, before(work));
    ran
}

fn take_back(mistake: Mistake) -> Ran<Planted> {
    let ran = run(
        NAMES,
        Publish::Staged,
        |below| Planted::new(mistake, below),
        |job, planted| commit_refused(NAMES, job, &planted.faulty),
    );
    assert_eq!(ran.left, before(NAMES));
    ran
}

fn assert_found(work: Work, ran: &Ran<Planted>, after: &Found, words: &str) {
    let mistake = ran.hook.hook().mistake;
    assert!(
        ran.hook.hook().made.load(Ordering::Relaxed) > 0,
        "{mistake:?} was not made"
    );
    let found = look_for_faults(ran, &[before(work), after.clone()]);
    let found = found.expect_err(&format!("{mistake:?} is not found"));
    println!("{mistake:?}: {}", found.lines().next().unwrap_or_default());
    assert!(found.contains(words), "{mistake:?}: {found}");
}

/// What a crash must not leave, by the mistake: contents that were never durable, and old and new names side by side.
#[test]
fn planted_ordering_bugs_are_found() {
    for (work, mistakes) in [
        (
            NAMES,
            &[
                (Mistake::NothingIsSynced, "commit record cannot be read"),
                (Mistake::OnlyTheRecordIsSynced, "neither old nor new"),
                (Mistake::RecordComesLate, "neither old nor new"),
                (Mistake::DepartedComesEarly, "could not be finished"),
                (Mistake::DoneComesEarly, "neither old nor new"),
            ][..],
        ),
        (CONTENTS, &[(Mistake::PunchComesEarly, "neither old nor new")]),
    ] {
        let sound = commit(work, Mistake::None);
        assert!(look_for_faults(&sound, &[before(work), sound.left.clone()]).is_ok());
        for (mistake, words) in mistakes {
            let ran = commit(work, *mistake);
            assert!(ran.left == sound.left, "{mistake:?} is seen while the power stays on");
            assert_found(work, &ran, &sound.left, words);
        }
    }
    let (sound, after) = (take_back(Mistake::None), commit(NAMES, Mistake::None).left);
    assert!(look_for_faults(&sound, &[before(NAMES), after.clone()]).is_ok());
    assert_found(
        NAMES,
        &take_back(Mistake::UndoGoesOnEarly),
        &after,
        "neither old nor new",
    );
}
