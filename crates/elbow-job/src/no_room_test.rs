//! Random jobs on a disk that is full when their command has ended, and jobs of which there is room for nothing.

#![allow(clippy::disallowed_methods, reason = "the test looks at real directories")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use elbow_file::double::{Call, Faulty, Interposed, Operation, Plan};
use elbow_file::{Errno, RealStorage, Storage};
use rand::Rng;
use rand::rngs::StdRng;
use rustix::fs::XattrFlags;

use crate::crash_test::has_staging;
use crate::inherit_test::acl;
use crate::model::{ACCESS_ACL, DEFAULT_ACL};
use crate::options::Publish;
use crate::resume_test::{name_in, real};
use crate::saved_test::{
    Testbed, assert_goes_on, end_with_nothing_stored, needs_room, no_room_from, remove, snapshot_and_time,
};
use crate::schedule_test::{InJob, Native, random_op, snapshot};
use crate::{Job, JobError, Keep, OnConflict, Outcome, resume};

/// Much longer than any of them takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether what a job has made is in its place, or waits for room, whole.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Committed,
    Kept,
}

/// The end of a job, which comes.
fn end(job: &Job) -> Result<Outcome, JobError> {
    let (ended, end) = channel();
    let ending = job.clone();
    std::thread::spawn(move || ended.send(ending.commit_or_keep(Keep::Complete, &mut |_| {})));
    end.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        // Or what never ends would keep the test from ending.
        job.interrupt();
        panic!("the job does not end")
    })
}

/// What is at a path, and its lists of rights.
type Seen = (String, [Option<Vec<u8>>; 2]);

fn seen(dir: &Path) -> BTreeMap<PathBuf, Seen> {
    let rights = |path: &Path, key: &str| {
        let mut value = vec![0; 200];
        let length = rustix::fs::lgetxattr(path, key, &mut value[..]).ok()?;
        value.truncate(length);
        Some(value)
    };
    let with_rights = |(name, line)| {
        let path = dir.join(&name);
        (name, (line, [ACCESS_ACL, DEFAULT_ACL].map(|key| rights(&path, key))))
    };
    snapshot(dir).into_iter().map(with_rights).collect()
}

/// A random job, of which the storage gets a random part before its command ends. From a random call of the end on there is no room; then there is again.
fn run(rng: &mut StdRng) -> End {
    let testbed = Testbed::new();
    let (native, dir) = (Native(testbed.fresh("native")), testbed.fresh("job"));
    if rng.random() {
        // Where the objects are made, the storage gives them more than their modes.
        for top in [&native.0, &dir] {
            rustix::fs::setxattr(top, DEFAULT_ACL, &acl([7, 7, 5, 5, 7, 5]), XattrFlags::empty())
                .expect("a list of rights");
        }
    }
    let (faulty, job) = testbed.begin_faulty(&dir, Publish::Staged);
    job.by_hand(true);
    // What comes late meets what is stored already.
    for steps_max in [4, 1] {
        for _ in 0..rng.random_range(5..40) {
            let op = random_op(rng);
            assert_eq!(InJob(&job).run(&op), native.run(&op), "{op:?}");
            for _ in 0..rng.random_range(0..steps_max) {
                job.step_by_hand(|left| rng.random_range(0..left));
            }
        }
    }
    let errno = [Errno::NOSPC, Errno::DQUOT][rng.random_range(0..2)];
    let only = [None, None, Some(Operation::Mkdir), Some(Operation::Create)][rng.random_range(0..4)];
    let is_refused = move |call: &Call<'_>| needs_room(call) && only.is_none_or(|only| call.operation == only);
    let from = rng.random_range(1..5);
    let plan = Plan::fail(errno).when(is_refused).nth(from).times(u64::MAX);
    faulty.hook().arm(plan);
    job.by_hand(false);
    let (outcome, fired) = (end(&job), faulty.hook().fired());
    faulty.hook().disarm();
    let ended = match outcome {
        Ok(Outcome::Committed) => End::Committed,
        Ok(Outcome::Kept(_, kept)) => {
            assert!(fired > 0 && kept.is_whole, "{kept:?}");
            go_on(&testbed, &dir);
            End::Kept
        }
        lost => panic!("what a successful command has made is lost: {lost:?}"),
    };
    assert_eq!(seen(&dir), seen(&native.0), "{ended:?}");
    assert!(testbed.is_empty() && !has_staging(&dir), "{ended:?}");
    ended
}

/// There is room again.
fn go_on(testbed: &Testbed, dir: &Path) {
    let name = match testbed.saved(dir).is_empty() {
        true => name_in(dir),
        false => testbed.restore(&real(), dir).expect("what was saved is brought back"),
    };
    let root = RealStorage::open_root(dir).expect("the directory of the job");
    let ended = resume(&real(), &root, &name, OnConflict::RollBack);
    assert!(matches!(ended, Ok(Outcome::Committed)), "{ended:?}");
}

#[test]
fn random_jobs_end_whole_on_a_disk_that_fills_up() {
    let ends = std::sync::Mutex::new(Vec::new());
    elbow_testkit::cases::for_each_seed(400, |rng| {
        let ended = run(rng);
        ends.lock().expect("no other thread").push(ended);
    });
    let ends = ends.into_inner().expect("no other thread");
    let count = |wanted| ends.iter().filter(|ended| **ended == wanted).count();
    let (committed, kept) = (count(End::Committed), count(End::Kept));
    println!("{committed} committed, {kept} kept");
    assert!(
        ends.len() < 100 || kept > ends.len() / 3,
        "{kept} of {} kept",
        ends.len()
    );
}

/// On a disk that was still full `elbow resume` left the bare directory of a job, and the next one took it for a job that had died, and said that
/// nothing of it was left.
#[test]
fn a_restoration_that_cannot_begin_leaves_nothing_and_can_be_tried_again() {
    let testbed = Testbed::new();
    let mut n = 0;
    loop {
        n += 1;
        let dir = testbed.fresh("full");
        let before = snapshot_and_time(&dir);
        let (outcome, shown) = end_with_nothing_stored(&testbed, &dir, 1);
        let Outcome::Kept(_, kept) = outcome else {
            panic!("{outcome:?}")
        };
        assert!(kept.is_all_saved && !kept.path.exists(), "{kept:?}");
        let faulty = Arc::new(Interposed::new(
            Arc::new(RealStorage),
            Faulty::new([no_room_from(n, Errno::NOSPC)]),
        ));
        let storage: Arc<dyn Storage> = faulty.clone();
        let restored = testbed.restore(&storage, &dir);
        let is_kept = std::fs::read_dir(&dir)
            .unwrap()
            .flatten()
            .any(|entry| entry.path().join("kept").exists());
        if restored.is_ok() || is_kept {
            assert!(n > 2, "call {n}");
            break;
        }
        assert_eq!(snapshot_and_time(&dir), before, "call {n}");
        let root = RealStorage::open_root(&dir).unwrap();
        assert!(crate::recover(&real(), &root, false).unwrap().is_empty(), "call {n}");
        assert_goes_on(&testbed, &dir, &shown, &format!("call {n}"));
        remove(&dir);
    }
}
