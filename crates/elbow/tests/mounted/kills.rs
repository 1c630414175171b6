//! Real kills by the hundred: of `elbow run` at random moments of the run, the drain, the commit and the cleaning after it, and of the `elbow recover` after
//! that. After a recovery that is not killed the tree is the one before the job or the one after it.
//!
//! The storage is slow, so that there are moments in each of these, and is served by the test, which nobody kills. `SEED=n` repeats the choice of moments,
//! `ROUNDS=n` kills so many (at most 5,000), and `SOAK=1` 5,000.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use elbow_testkit::cases::{rounds, seed};
use elbow_testkit::slowfs::{Mounted, SlowFs, SlowOptions};
use elbow_testkit::tree::Tree;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;

use crate::commands::{Place, Running};
use crate::test_dir::{make_old_tree, snapshot_of};

/// Kills in a usual run.
const KILLS: u64 = 500;
/// Jobs beside each other: most of their time is that of the storage.
const AT_ONCE: u64 = 6;
/// How the time of a job is corrected by each that was killed before its end.
const LONGER: f64 = 1.03;
const LATENCY: Duration = Duration::from_micros(800);
/// Each phase is hit by at least the SHARE-th part of the kills.
const SHARE: u64 = 50;
/// So many times as many kills at most, while a phase lacks its part.
const EXTRA: u64 = 4;
/// What is hit in each run.
const HIT: [Phase; 5] = [
    Phase::Run,
    Phase::Drain,
    Phase::Commit,
    Phase::Cleaning,
    Phase::Recovery,
];

const OLD: &str = "mkdir -p d/sub gone/deep moves; for i in 1 2 3 4 5 6; do seq $i > d/$i; seq $i > gone/$i; seq 9 > gone/deep/$i; done
    echo in > moves/in; seq 1000 > log; echo old > replaced; echo 1 > one; echo 2 > two";
/// At its end it waits for the manifest, which a busy disk may hold up for longer than all of it takes: by that the phases are told apart.
const JOB: &str = "set -e; mkdir new; for i in 1 2 3 4 5 6; do seq $i$i > new/$i; done; echo fresh > d/sub/fresh; echo more >> log; printf X >> d/3
    echo new > tmp; mv tmp replaced; rm -r gone; mv moves new/moved; mv one three; rm two; ln -s three two; chmod 600 d/1; rm d/2; ln d/4 d/again
    until [ -e \"$OUT\"/../below/.elbow-*/job ]; do sleep 0.01; done; : > \"$OUT/ended\"";

/// Where a kill hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// Before anything was staged.
    Begin,
    Run,
    /// The command has ended, and what it did is being stored.
    Drain,
    /// The record is there.
    Commit,
    /// All names are as they shall be.
    Cleaning,
    /// Nothing is left to be done, but to end.
    End,
    Recovery,
}

/// ```text
///   seed    the old tree
///   below   what the storage has
///   work    slowfs over it
///   out     outside of the job
/// ```
struct Testbed {
    // Unmounted before the directory goes.
    _slow: Mounted,
    dir: TempDir,
}

impl Testbed {
    fn new() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("elbow-kills-")
            .tempdir()
            .expect("a directory");
        for name in ["seed", "below", "work", "out"] {
            fs::create_dir(dir.path().join(name)).expect("a directory");
        }
        make_old_tree(&dir.path().join("seed"), &dir.path().join("out"), OLD);
        let options = SlowOptions {
            latency: LATENCY,
            ttl: Duration::ZERO, // The old tree is made again behind its back.
            ..SlowOptions::default()
        };
        let slow =
            SlowFs::mount(&dir.path().join("below"), &dir.path().join("work"), &options).expect("mounting slowfs");
        Self { _slow: slow, dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The old tree again. The directory itself stays: it is mounted.
    fn restore(&self) {
        let script = "find . -mindepth 1 -delete; cp -a ../seed/. .";
        self.in_directory("below", |place| place.shell(script)).assert_code(0);
        let _ = fs::remove_file(self.path("out/ended"));
    }

    fn in_directory<R>(&self, name: &str, act: impl FnOnce(Place<'_>) -> R) -> R {
        let (work, out) = (self.path(name), self.path("out"));
        act(Place { work: &work, out: &out })
    }

    fn start_job(&self) -> Running {
        self.in_directory("work", |place| place.start_job(&[], &[], JOB))
    }

    fn start_recovery(&self) -> Running {
        self.in_directory("work", |place| {
            place.start(&[env!("CARGO_BIN_EXE_elbow"), "recover", "."])
        })
    }

    fn tree(&self) -> Tree {
        snapshot_of(&self.path("below"))
    }

    /// What a job that is dead now was doing.
    fn phase(&self) -> Phase {
        let has_ended = self.path("out/ended").exists();
        let own = fs::read_dir(self.path("below"))
            .expect("the tree")
            .flatten()
            .map(|entry| entry.path());
        let own =
            own.filter(|path| path.join("job").exists() || path.join("done").exists() || path.join("commit").exists());
        match own.last() {
            Some(own) if own.join("done").exists() => Phase::Cleaning,
            Some(own) if own.join("commit").exists() => Phase::Commit,
            Some(_) if has_ended => Phase::Drain,
            Some(_) => Phase::Run,
            None if has_ended => Phase::End,
            None => Phase::Begin,
        }
    }
}

/// Kills it after a while, with all that it has started or alone; `false` when it had ended by itself, and well.
fn is_killed_after(running: Running, wait: Duration, alone: bool) -> bool {
    let until = Instant::now() + wait;
    let mut running = running;
    while Instant::now() < until {
        if running.has_ended() {
            running.finish().assert_code(0);
            return false;
        }
        std::thread::sleep(Duration::from_micros(300));
    }
    if alone {
        running.kill_alone();
    } else {
        running.kill();
    }
    true
}

/// What is left of a job, whatever it is.
fn hidden_below(tree: &Tree) -> Vec<&PathBuf> {
    let is_hidden = |path: &&PathBuf| path.iter().any(|name| name.to_string_lossy().starts_with(".elbow-"));
    tree.entries.keys().filter(is_hidden).collect()
}

struct Killer {
    testbed: Testbed,
    random: StdRng,
    before: Tree,
    after: Tree,
    /// How long a job and the recovery of one take that are not killed.
    usual: [Duration; 2],
}

impl Killer {
    fn new(seed: u64) -> Self {
        let testbed = Testbed::new();
        testbed.restore();
        let before = testbed.tree();
        let began = Instant::now();
        testbed.start_job().finish().assert_code(0);
        let usual = [began.elapsed(), began.elapsed() / 2];
        let after = testbed.tree().without_times();
        assert!(after != before.clone().without_times(), "the job does something");
        Self {
            testbed,
            random: StdRng::seed_from_u64(seed),
            before,
            after,
            usual,
        }
    }

    fn moment(&mut self, of: usize) -> Duration {
        self.usual[of].mul_f64(self.random.random_range(0.0..1.1))
    }

    /// One job, killed, and its recoveries, of which some are; where the kills hit.
    fn round(&mut self) -> Vec<Phase> {
        self.testbed.restore();
        let (wait, alone) = (self.moment(0), self.random.random());
        let began = Instant::now();
        let is_killed = is_killed_after(self.testbed.start_job(), wait, alone);
        // It is another time while other work begins and ends on the machine.
        self.usual[0] = match is_killed {
            true => self.usual[0].mul_f64(LONGER),
            false => (3 * self.usual[0] + began.elapsed()) / 4,
        };
        if !is_killed {
            assert!(
                self.testbed.tree().without_times() == self.after,
                "a job that nobody killed"
            );
            return Vec::new();
        }
        let phase = self.testbed.phase();
        let mut hits = vec![phase];
        while !matches!(phase, Phase::Begin | Phase::End) && self.random.random_range(0..4) > 0 {
            let wait = self.moment(1);
            let began = Instant::now();
            if !is_killed_after(self.testbed.start_recovery(), wait, true) {
                self.usual[1] = (3 * self.usual[1] + began.elapsed()) / 4;
                break;
            }
            hits.push(Phase::Recovery);
        }
        self.testbed.start_recovery().finish().assert_code(0);
        self.assert_old_or_new(&hits, alone);
        hits
    }

    fn assert_old_or_new(&self, hits: &[Phase], alone: bool) {
        let mut found = self.testbed.tree();
        // The probe of a killed recovery is left for a minute, because a living one might need it.
        found
            .entries
            .retain(|path, _| !path.to_string_lossy().starts_with(".elbow-probe-"));
        let what = format!("killed in {hits:?}{}", if alone { ", alone" } else { "" });
        let hidden = hidden_below(&found);
        assert!(hidden.is_empty(), "{what}: {hidden:?} is left");
        if found.clone().without_times() == self.after {
            assert!(!matches!(hits[0], Phase::Begin | Phase::Run), "{what}: committed");
            return;
        }
        assert!(
            !matches!(hits[0], Phase::Cleaning | Phase::End),
            "{what}: not committed"
        );
        // The death of a recovery at its very end loses the time of the directory itself (SEMANTICS.md, S36).
        let difference = found.without_root().difference(&self.before.clone().without_root());
        assert!(difference.is_none(), "{what}: {}", difference.unwrap_or_default());
    }
}

/// A phase that has not had its part of the kills yet.
fn lacking(counts: &BTreeMap<Phase, u64>, kills: u64) -> Option<Phase> {
    HIT.into_iter()
        .find(|phase| counts.get(phase).copied().unwrap_or(0) * SHARE < kills)
}

#[test]
fn jobs_and_recoveries_that_are_killed_leave_the_old_tree_or_the_new_one() {
    let (seed, kills) = (seed(), rounds(KILLS).min(10 * KILLS));
    let (done, counts) = (AtomicU64::new(0), Mutex::new(BTreeMap::<Phase, u64>::new()));
    std::thread::scope(|scope| {
        for thread in 0..AT_ONCE {
            let (done, counts) = (&done, &counts);
            scope.spawn(move || {
                let mut killer = Killer::new(seed + thread);
                loop {
                    let done_now = done.load(Ordering::Relaxed);
                    let lacks_one = || lacking(&counts.lock().expect("no other thread has failed"), kills).is_some();
                    if done_now >= EXTRA * kills || done_now >= kills && !lacks_one() {
                        break;
                    }
                    let hits = killer.round();
                    done.fetch_add(hits.len() as u64, Ordering::Relaxed);
                    let mut counts = counts.lock().expect("no other thread has failed");
                    hits.into_iter()
                        .for_each(|phase| *counts.entry(phase).or_default() += 1);
                }
            });
        }
    });
    let counts = counts.into_inner().expect("no thread has failed");
    // Not println: the test runner would keep it to itself.
    let _ = writeln!(std::io::stderr(), "kills: {counts:?}");
    let lacking = lacking(&counts, kills);
    assert!(lacking.is_none(), "{lacking:?} was hardly hit: {counts:?}");
}
