//! Random pairs of jobs that are begun on the same tree and committed at the same moment, and somebody who writes beside them without a
//! job, on storage with a delay: what is left is what some order of those that said "done" leaves, and who was refused is told a path on which
//! somebody else was at work.
//!
//! `SEED=n` repeats a case, `ROUNDS=n` runs so many, `SOAK=1` a hundred times as many; how they ended is told on stderr.

#![allow(clippy::disallowed_methods, reason = "the test makes and looks at real directories")]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use elbow_file::double::{Call, Delaying, Hook, Interposed};
use elbow_file::{RealStorage, RenameMode, Storage};
use elbow_testkit::cases::for_each_seed_at_once;
use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::StdRng;

use crate::crash_test::{begin, has_staging, recovered, seen_by_jobs};
use crate::options::Publish;
use crate::schedule_test::{InJob, Native, Op, scratch};
use crate::{Cause, Outcome};

/// Pairs in a usual run; a hundred times as many in a soak.
const PAIRS: u64 = 1000;
/// Pairs at a time: nearly all of their time is delay.
const AT_ONCE: usize = 12;

type TreeContents = BTreeMap<PathBuf, String>;

fn old_tree(dir: &Path) {
    for sub in ["d", "e", "full"] {
        std::fs::create_dir(dir.join(sub)).unwrap();
    }
    for name in ["a", "b", "d/a", "d/b", "e/a", "full/x"] {
        std::fs::write(dir.join(name), format!("the old {name}, ten and more")).unwrap();
    }
}

/// What somebody does, and the names that it is about.
#[derive(Clone, Debug)]
struct OtherUse {
    ops: Vec<Op>,
    names: Vec<String>,
}

/// Something that always succeeds on the old tree. `byte` tells whose it is.
fn random_other_use(rng: &mut StdRng, byte: u8) -> OtherUse {
    let s = str::to_owned;
    let one = |rng: &mut StdRng, of: &[&str]| of[rng.random_range(0..of.len())].to_owned();
    let files = ["a", "b", "d/a", "d/b", "e/a"];
    let fresh = ["n", "d/n", "e/n", "d/m"];
    let (file, new) = (one(rng, &files), one(rng, &fresh));
    let temporary = format!("d/tmp{byte}");
    let data = vec![byte; rng.random_range(1..20)];
    let (ops, names) = match rng.random_range(0..12) {
        0 | 1 => (vec![Op::Write(file.clone(), rng.random_range(0..40), data)], vec![file]),
        2 => (
            vec![Op::Truncate(file.clone(), 0), Op::Write(file.clone(), 0, data)],
            vec![file],
        ),
        3 => (
            vec![
                Op::Create(temporary.clone()),
                Op::Write(temporary.clone(), 0, data),
                Op::Rename(temporary, file.clone(), RenameMode::Replace),
            ],
            vec![file],
        ),
        4 => (vec![Op::Unlink(file.clone())], vec![file]),
        5 => (
            vec![Op::Rename(file.clone(), new.clone(), RenameMode::NoReplace)],
            vec![file, new],
        ),
        6 => (
            vec![Op::Create(new.clone()), Op::Write(new.clone(), 0, data)],
            vec![new],
        ),
        7 => (vec![Op::Mkdir(new.clone()), Op::Create(format!("{new}/x"))], vec![new]),
        8 => (
            vec![Op::Unlink(s("full/x")), Op::Rmdir(s("full"))],
            vec![s("full/x"), s("full")],
        ),
        9 => (vec![Op::Create(s("full/y"))], vec![s("full/y")]),
        10 => (vec![Op::Chmod(file.clone(), 0o600 + u32::from(byte % 8))], vec![file]),
        _ => (vec![Op::Link(file.clone(), new.clone())], vec![file, new]),
    };
    OtherUse { ops, names }
}

/// One or two that have no name in common.
fn random_deeds(rng: &mut StdRng, byte: u8) -> OtherUse {
    let mut all = random_other_use(rng, byte);
    let more = random_other_use(rng, byte);
    let meets = |name: &String| {
        all.names
            .iter()
            .any(|other| is_below(name, other) || is_below(other, name))
    };
    if rng.random() && !more.names.iter().any(meets) {
        all.ops.extend(more.ops);
        all.names.extend(more.names);
    }
    all
}

/// Whether a name is another one, or of something below it.
fn is_below(name: &str, above: &str) -> bool {
    Path::new(name).starts_with(above)
}

/// What these leave, one after the other; `None` where one of them cannot be done after the others.
fn after(place: &Path, other_uses: &[&OtherUse]) -> Option<TreeContents> {
    let dir = tempfile::tempdir_in(place).unwrap();
    old_tree(dir.path());
    let native = Native(dir.path().to_owned());
    let mut ops = other_uses.iter().flat_map(|other_use| &other_use.ops);
    ops.all(|op| native.run(op).is_ok()).then(|| seen_by_jobs(dir.path()))
}

fn orders<'a>(other_uses: &[&'a OtherUse]) -> Vec<Vec<&'a OtherUse>> {
    if other_uses.is_empty() {
        return vec![vec![]];
    }
    let mut all = Vec::new();
    for first in 0..other_uses.len() {
        let mut rest = other_uses.to_vec();
        let first = rest.remove(first);
        let of_rest = orders(&rest).into_iter();
        all.extend(of_rest.map(|rest| [&[first][..], &rest].concat()));
    }
    all
}

/// How the pairs of a run ended.
#[derive(Debug, Default)]
struct Ends {
    both: AtomicU64,
    one: AtomicU64,
    neither: AtomicU64,
    /// Of all, those where somebody outside has written.
    outside: AtomicU64,
}

impl Ends {
    fn count(&self, outcomes: &[Outcome], was_outside: bool) {
        let committed = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Committed));
        let counter = [&self.neither, &self.one, &self.both][committed.count()];
        counter.fetch_add(1, Ordering::Relaxed);
        self.outside.fetch_add(was_outside.into(), Ordering::Relaxed);
    }
}

/// The paths that a refused job names: in a conflict, or as what it could not stage because the directory has gone.
fn named(outcome: &Outcome) -> Option<Vec<&PathBuf>> {
    match outcome {
        Outcome::RolledBack(Cause::Conflict(paths) | Cause::OtherJobs(paths)) => {
            Some(paths.iter().map(|(path, _)| path).collect())
        }
        Outcome::RolledBack(Cause::Deferred(errors)) => Some(errors.iter().map(|error| &error.path).collect()),
        _ => None,
    }
}

/// What is refused names something of its own (or a directory above it) where somebody else was at work.
fn assert_is_reason(outcome: &Outcome, own: &OtherUse, others: &[&OtherUse], what: &str) {
    let paths = named(outcome).unwrap_or_else(|| panic!("refused without a conflict: {what}"));
    let meets = |path: &Path, names: &[String]| {
        let mut names = names.iter().map(Path::new);
        names.any(|name| name.starts_with(path) || path.starts_with(name))
    };
    assert!(paths.iter().all(|path| meets(path, &own.names)), "not its own: {what}");
    let met = own
        .names
        .iter()
        .any(|name| others.iter().any(|other| meets(Path::new(name), &other.names)));
    assert!(met, "refused because of nobody: {what}");
}

/// What somebody does without a job at a moment of the commits; whether it was possible then.
fn do_outside(dir: &Path, other_use: &OtherUse, wait: Duration) -> bool {
    std::thread::sleep(wait);
    Native(dir.to_owned()).run(&other_use.ops[0]).is_ok()
}

/// One call, so that it has one place in the order; what is written to is there once for all.
fn random_call(rng: &mut StdRng) -> Option<OtherUse> {
    let other_use = random_other_use(rng, b'3');
    let is_one = other_use.ops.len() == 1 && rng.random_range(0..3) > 0;
    is_one.then_some(other_use)
}

fn run_pair(rng: &mut StdRng, place: &Path, ends: &Ends) {
    let dir = tempfile::tempdir_in(place).unwrap();
    old_tree(dir.path());
    let other_uses = [b'1', b'2'].map(|byte| random_deeds(rng, byte));
    let outside = random_call(rng);
    let jobs = other_uses.each_ref().map(|other_use| {
        let slow = Delaying::new(Duration::from_micros(rng.random_range(0..4000)), 8);
        let storage = Interposed::new(Arc::new(RealStorage), slow);
        let job = begin(Arc::new(storage), dir.path(), Publish::Staged);
        other_use.ops.iter().for_each(|op| _ = InJob(&job).run(op).unwrap());
        job
    });
    let waits = [0, 1, 2].map(|_| Duration::from_micros(rng.random_range(0..60_000)));
    let (outcomes, done) = std::thread::scope(|scope| {
        let commits = [0, 1].map(|which: usize| {
            let (job, wait) = (&jobs[which], waits[which]);
            scope.spawn(move || {
                std::thread::sleep(wait);
                job.commit(&mut |_| {})
            })
        });
        let done = outside
            .as_ref()
            .is_some_and(|other_use| do_outside(dir.path(), other_use, 2 * waits[2]));
        (commits.map(|commit| commit.join().unwrap()), done)
    });
    let found = seen_by_jobs(dir.path());
    let what = format!("{other_uses:#?}\noutside: {outside:?} {done}\n{outcomes:#?}\n{found:#?}");
    let outcomes = outcomes.map(|outcome| outcome.unwrap_or_else(|_| panic!("a commit without an end: {what}")));
    let outside = outside.filter(|_| done);
    let mut committed: Vec<&OtherUse> = outside.iter().collect();
    for which in 0..2 {
        if matches!(outcomes[which], Outcome::Committed) {
            committed.push(&other_uses[which]);
        } else {
            let others: Vec<&OtherUse> = outside.iter().chain([&other_uses[1 - which]]).collect();
            assert_is_reason(&outcomes[which], &other_uses[which], &others, &what);
        }
    }
    let is_serial = orders(&committed)
        .iter()
        .any(|order| after(place, order).as_ref() == Some(&found));
    assert!(is_serial, "what was done is lost: {what}");
    assert!(!has_staging(dir.path()), "{what}");
    ends.count(&outcomes, outside.is_some());
}

#[test]
fn random_pairs_of_jobs_and_writers_outside_have_an_order_or_a_named_conflict() {
    rustix::process::umask(rustix::fs::Mode::empty());
    let temp = scratch();
    let ends = Ends::default();
    for_each_seed_at_once(PAIRS, AT_ONCE, |rng| run_pair(rng, temp.path(), &ends));
    // Not println: the test runner would keep it to itself.
    let _ = writeln!(std::io::stderr(), "pairs of jobs: {ends:?}");
}

/// Lets somebody do something just before the n-th call to the storage from when it is armed on.
struct RunsBefore {
    left: AtomicU64,
    other_use: Mutex<Option<(PathBuf, Op)>>,
    done: AtomicU64,
}

impl RunsBefore {
    fn call(n: u64, dir: &Path, op: &Op) -> Self {
        Self {
            left: AtomicU64::new(n),
            other_use: Mutex::new(Some((dir.to_owned(), op.clone()))),
            done: AtomicU64::new(0),
        }
    }
}

impl Hook for RunsBefore {
    fn around<T: 'static>(
        &self,
        _call: &Call<'_>,
        make: impl FnOnce() -> elbow_file::Result<T>,
    ) -> elbow_file::Result<T> {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1
            && let Some((dir, op)) = self.other_use.lock().take()
        {
            self.done
                .fetch_add(Native(dir).run(&op).is_ok().into(), Ordering::Relaxed);
        }
        make()
    }
}

/// How a commit has ended beside which somebody did something.
struct Met {
    dir: tempfile::TempDir,
    outcome: Result<Outcome, crate::JobError>,
    /// It could be done.
    is_done: bool,
}

/// Commits a job beside which somebody does something at the n-th call; nothing if there are fewer calls.
fn met_at_call(n: u64, place: &Path, ops: &[Op], op: &Op) -> Option<Met> {
    const NEVER: u64 = u64::MAX;
    let dir = tempfile::tempdir_in(place).unwrap();
    old_tree(dir.path());
    let storage = Arc::new(Interposed::new(
        Arc::new(RealStorage),
        RunsBefore::call(NEVER, dir.path(), op),
    ));
    let job = begin(storage.clone(), dir.path(), Publish::Staged);
    ops.iter().for_each(|op| _ = InJob(&job).run(op).unwrap());
    storage.hook().left.store(n, Ordering::Relaxed);
    let outcome = job.commit(&mut |_| {});
    let has_come = storage.hook().other_use.lock().is_none();
    let is_done = storage.hook().done.load(Ordering::Relaxed) > 0;
    has_come.then_some(Met { dir, outcome, is_done })
}

/// The same at each call that there is; how many there are.
fn met_at_each_call(place: &Path, ops: &[Op], op: &Op, mut look: impl FnMut(Met, String)) -> usize {
    let mut look_at = |n| {
        let met = met_at_call(n, place, ops, op)?;
        let what = format!("{ops:?}, before call {n}, done: {}: {:?}", met.is_done, met.outcome);
        look(met, what);
        Some(())
    };
    (1..).map_while(&mut look_at).count()
}

/// The same, of which some order of the two is what is left; `false`: there are fewer calls.
fn meets_at_call(n: u64, place: &Path, other_use: &OtherUse, op: &Op) -> bool {
    let Some(Met { dir, outcome, is_done }) = met_at_call(n, place, &other_use.ops, op) else {
        return false;
    };
    let found = seen_by_jobs(dir.path());
    let what = format!(
        "{op:?} before call {n} of the commit of {:?}: {outcome:?}, {found:#?}",
        other_use.ops
    );
    let outside = OtherUse {
        ops: vec![op.clone()],
        names: vec![],
    };
    let mut all: Vec<&OtherUse> = is_done.then_some(&outside).into_iter().collect();
    match outcome {
        Ok(Outcome::Committed) => all.push(other_use),
        Ok(Outcome::RolledBack(_)) => {}
        _ => panic!("{what}"),
    }
    let is_serial = orders(&all)
        .iter()
        .any(|order| after(place, order).as_ref() == Some(&found));
    assert!(is_serial, "{what}");
    assert!(!has_staging(dir.path()), "{what}");
    true
}

/// What somebody wrote to a file that the job was about to append to was cut off when the job was rolled back for it; a file that had gone kept the
/// job from being rolled back; and what somebody made in a directory that the job had checked and then removed was gone with exit 0.
#[test]
fn what_somebody_does_at_any_call_of_a_commit_is_not_lost() {
    rustix::process::umask(rustix::fs::Mode::empty());
    let s = str::to_owned;
    let temp = scratch();
    let other_uses = [
        vec![Op::Write(s("a"), 40, vec![b'1'; 10]), Op::Chmod(s("b"), 0o600)],
        vec![
            Op::Write(s("a"), 3, vec![b'1'; 10]),
            Op::Chmod(s("e/a"), 0o600),
            Op::Unlink(s("d/a")),
        ],
        vec![Op::Unlink(s("full/x")), Op::Rmdir(s("full")), Op::Create(s("n"))],
        vec![
            Op::Rename(s("a"), s("d/n"), RenameMode::NoReplace),
            Op::Link(s("b"), s("m")),
        ],
        vec![Op::Create(s("full/y")), Op::Chmod(s("full"), 0o700)],
    ];
    let others = [
        Op::Write(s("a"), 60, vec![b'3'; 5]),
        Op::Unlink(s("a")),
        Op::Rename(s("a"), s("d/m"), RenameMode::NoReplace),
        Op::Rename(s("b"), s("a"), RenameMode::Replace),
        Op::Chmod(s("b"), 0o640),
        Op::Create(s("full/y")),
        Op::Create(s("n")),
        Op::Rename(s("full"), s("f2"), RenameMode::NoReplace),
        Op::Link(s("a"), s("d/n")),
        Op::Link(s("b"), s("m")),
    ];
    // Who takes a name that a job is giving up keeps it from being taken back: SEMANTICS.md, Limits.
    let takes_a_name = |other_use: &OtherUse, other: &Op| {
        let Op::Rename(_, to, _) = other else { return false };
        other_use
            .ops
            .iter()
            .any(|op| matches!(op, Op::Rename(from, ..) if from == to))
    };
    std::thread::scope(|scope| {
        for ops in other_uses {
            let (others, place) = (&others, temp.path());
            scope.spawn(move || {
                let other_use = OtherUse { ops, names: vec![] };
                for other in others.iter().filter(|other| !takes_a_name(&other_use, other)) {
                    let calls = (1..)
                        .take_while(|n| meets_at_call(*n, place, &other_use, other))
                        .count();
                    assert!(calls > 20, "only {calls} calls");
                }
            });
        }
    });
}

/// The contents of all files below, whatever their names.
fn contents_below(dir: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => all.extend(contents_below(&entry.path())),
            kind if kind.is_file() => {
                all.push(String::from_utf8_lossy(&std::fs::read(entry.path()).unwrap()).into_owned());
            }
            _ => {}
        }
    }
    all
}

/// Files were on their way from one directory to another, and their directory was given another name: what was taken back then removed them.
#[test]
fn a_directory_that_is_moved_away_at_any_call_of_a_commit_costs_no_old_file() {
    rustix::process::umask(rustix::fs::Mode::empty());
    let s = str::to_owned;
    let temp = scratch();
    let away = vec![
        Op::Rename(s("d/a"), s("e/n"), RenameMode::NoReplace),
        Op::Rename(s("d/b"), s("e/m"), RenameMode::NoReplace),
        Op::Create(s("d/new")),
        Op::Chmod(s("a"), 0o600),
    ];
    let over = vec![
        Op::Rename(s("e/a"), s("d/a"), RenameMode::Replace),
        Op::Rename(s("full/x"), s("d/b"), RenameMode::Replace),
        Op::Create(s("d/new")),
        Op::Chmod(s("a"), 0o600),
    ];
    let anew = vec![
        Op::Create(s("n")),
        Op::Rename(s("n"), s("d/a"), RenameMode::Replace),
        Op::Create(s("d/new")),
        Op::Chmod(s("d/b"), 0o600),
        Op::Chmod(s("a"), 0o600),
    ];
    let other = Op::Rename(s("d"), s("d2"), RenameMode::NoReplace);
    let mut stuck = 0;
    for moves in [away, over, anew] {
        let calls = met_at_each_call(temp.path(), &moves, &other, |Met { dir, outcome, .. }, what| {
            let has_replaced = matches!(outcome, Ok(Outcome::Committed));
            let replaced = moves.iter().filter_map(|op| match op {
                Op::Rename(_, to, RenameMode::Replace) if has_replaced => Some(to.as_str()),
                _ => None,
            });
            let replaced: Vec<&str> = replaced.collect();
            let assert_all = |when: &str| {
                let found = contents_below(dir.path());
                for name in ["d/a", "d/b", "e/a", "full/x"]
                    .iter()
                    .filter(|name| !replaced.contains(name))
                {
                    let old = format!("the old {name}, ten and more");
                    assert!(found.contains(&old), "{what}: {when} {old:?} is gone: {found:?}");
                }
            };
            assert_all("after it");
            if outcome.is_err() {
                stuck += 1;
                // Whoever moves it back lets the job be ended.
                std::fs::rename(dir.path().join("d2"), dir.path().join("d")).unwrap();
                let ended = recovered(dir.path(), &(Arc::new(RealStorage) as Arc<dyn Storage>));
                assert!(!has_staging(dir.path()), "{what}: {ended:?}");
                assert_all("after a recovery");
            }
        });
        assert!(calls > 20, "{calls} calls of {moves:?}");
    }
    assert!(stuck > 0, "it was never stuck");
}

/// Of two files that exchange their names one is linked by the name that was the other's.
#[test]
fn a_file_with_a_new_name_gets_another_one_under_that() {
    let s = str::to_owned;
    let temp = scratch();
    old_tree(temp.path());
    let job = begin(Arc::new(RealStorage), temp.path(), Publish::Staged);
    let ops = [
        Op::Rename(s("d"), s("c"), RenameMode::NoReplace),
        Op::Rename(s("e"), s("d"), RenameMode::NoReplace),
        Op::Link(s("d/a"), s("m")),
        Op::Link(s("c/a"), s("n")),
    ];
    ops.iter().for_each(|op| _ = InJob(&job).run(op).unwrap());
    let outcome = job.commit(&mut |_| {});
    assert!(matches!(outcome, Ok(Outcome::Committed)), "{outcome:?}");
    for (name, content) in [("m", "the old e/a, ten and more"), ("n", "the old d/a, ten and more")] {
        assert_eq!(std::fs::read_to_string(temp.path().join(name)).unwrap(), content);
    }
}

/// What was to be another name of an old file became one of the file that somebody had put in its place after all was checked.
#[test]
fn a_link_is_of_the_file_that_the_job_saw_whenever_that_is_replaced() {
    rustix::process::umask(rustix::fs::Mode::empty());
    let s = str::to_owned;
    let temp = scratch();
    let links = [Op::Link(s("b"), s("m")), Op::Create(s("n"))];
    let other = Op::Rename(s("e/a"), s("b"), RenameMode::Replace);
    let mut refused = 0;
    let calls = met_at_each_call(temp.path(), &links, &other, |Met { dir, outcome, .. }, what| {
        match outcome {
            Ok(Outcome::Committed) => {
                let link = std::fs::read_to_string(dir.path().join("m")).unwrap();
                assert_eq!(link, "the old b, ten and more", "{what}");
            }
            Ok(Outcome::RolledBack(_)) => {
                refused += 1;
                assert!(
                    !dir.path().join("m").exists() && !dir.path().join("n").exists(),
                    "{what}"
                );
            }
            _ => panic!("{what}"),
        }
        assert!(!has_staging(dir.path()), "{what}");
    });
    assert!(
        calls > 10 && refused > 0,
        "{calls} calls, {refused} times it was refused"
    );
}
