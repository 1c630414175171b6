//! Power that fails at any moment of a job: what was written and not synced is there, or not, or in part. A recovery then ends the job
//! without being told to by force, and leaves the old tree or the new one.
//!
//! The manifest was written and not synced before things were staged: 33 of 120 jobs could only be ended by `--force`.
//! `SOAK=1` looks at every image of every moment.

#![allow(clippy::disallowed_methods, reason = "the test makes and looks at real directories")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use elbow_file::double::Volatile;
use elbow_file::{RealStorage, RenameMode, Storage};

use crate::recover::recover_jobs;
use crate::report::RecoverAction;
use crate::schedule_test::{InJob, Op, scratch};
use crate::{Job, Options};

/// Of a moment, without `SOAK`.
const IMAGES: usize = 12;

fn old_tree(dir: &Path) {
    for sub in ["keep", "gone", "moves"] {
        std::fs::create_dir_all(dir.join(sub)).unwrap();
    }
    for (name, content) in [
        ("keep/log", "old log"),
        ("keep/replaced", "old"),
        ("gone/x", "x"),
        ("moves/in", "in"),
        ("dead", "dead"),
    ] {
        std::fs::write(dir.join(name), content).unwrap();
    }
}

fn operations() -> Vec<Op> {
    let s = str::to_owned;
    vec![
        Op::Mkdir(s("new")),
        Op::Create(s("new/a")),
        Op::Write(s("new/a"), 0, b"content of a".to_vec()),
        Op::Create(s("keep/fresh")),
        Op::Write(s("keep/log"), 7, b" and new".to_vec()),
        Op::Create(s("keep/tmp")),
        Op::Write(s("keep/tmp"), 0, b"new".to_vec()),
        Op::Rename(s("keep/tmp"), s("keep/replaced"), RenameMode::Replace),
        Op::Unlink(s("gone/x")),
        Op::Rmdir(s("gone")),
        Op::Rename(s("moves"), s("new/moved"), RenameMode::Replace),
        Op::Unlink(s("dead")),
    ]
}

/// Names and contents.
fn tree(dir: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    fn walk(top: &Path, dir: &Path, found: &mut BTreeMap<PathBuf, Option<Vec<u8>>>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let content = path.is_file().then(|| std::fs::read(&path).unwrap());
            found.insert(path.strip_prefix(top).unwrap().to_owned(), content);
            if path.is_dir() {
                walk(top, &path, found);
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(dir, dir, &mut found);
    found
}

/// A job over storage that loses power, run to its end: what it left, and the storage that remembers all.
fn run(dir: &Path, end: impl Fn(&Job)) -> Arc<Volatile> {
    old_tree(dir);
    let root = RealStorage::open_root(dir).unwrap();
    let volatile = Arc::new(Volatile::new(Arc::new(RealStorage), &root).unwrap());
    let options = Options {
        in_flight: Some(1),
        ..Options::default()
    };
    let job = Job::begin(volatile.clone(), root, dir, options).unwrap();
    for op in operations() {
        InJob(&job).run(&op).unwrap();
    }
    end(&job);
    volatile
}

fn assert_recoverable(volatile: &Volatile, began: usize, outcomes: &[BTreeMap<PathBuf, Option<Vec<u8>>>]) {
    let images_max = if std::env::var_os("SOAK").is_some() {
        usize::MAX
    } else {
        IMAGES
    };
    let temp = scratch();
    let real: Arc<dyn Storage> = Arc::new(RealStorage);
    let (mut images, mut ended) = (0, 0);
    for moment in began..=volatile.now() {
        let crash = volatile.crash_at(moment);
        // All subsets of up to 8 changes, else 256; and 32 in which some are torn.
        let all = (1 << crash.pending().min(8)) + 32;
        for image in crash.images(moment as u64).step_by(1 + all / images_max) {
            let dir = temp.path().join("image");
            std::fs::create_dir(&dir).unwrap();
            let root = RealStorage::open_root(&dir).unwrap();
            image.write_to(&RealStorage, &root).unwrap();
            let found = recover_jobs(&real, &root, false, &|_| false);
            let found = found.unwrap_or_else(|error| panic!("moment {moment}, {image}: {error}"));
            for job in &found {
                let is_ended = matches!(job.action, RecoverAction::RolledBack | RecoverAction::Finished);
                assert!(is_ended, "moment {moment}, {image}: {job:?}");
            }
            let left = tree(&dir);
            assert!(
                outcomes.contains(&left),
                "moment {moment}, {image}: {found:?}: {left:#?}"
            );
            (images, ended) = (images + 1, ended + found.len());
            std::fs::remove_dir_all(&dir).unwrap();
        }
    }
    assert!(images > 150 && ended > images / 2, "{ended} jobs in {images} images");
}

#[test]
fn after_a_power_cut_a_recovery_needs_no_force() {
    rustix::process::umask(rustix::fs::Mode::empty());
    let temp = scratch();
    let before = temp.path().join("before");
    std::fs::create_dir(&before).unwrap();
    old_tree(&before);
    let before = tree(&before);
    let began = |volatile: &Volatile| {
        // What stood there in the beginning is durable at once.
        (0..=volatile.now()).find(|moment| volatile.crash_at(*moment).pending() == 0 && *moment > 0)
    };

    let dir = temp.path().join("committed");
    std::fs::create_dir(&dir).unwrap();
    let volatile = run(&dir, |job| {
        assert!(matches!(job.commit(&mut |_| {}), Ok(crate::Outcome::Committed)));
    });
    let after = tree(&dir);
    assert_ne!(before, after);
    assert_recoverable(&volatile, began(&volatile).unwrap(), &[before.clone(), after]);

    let dir = temp.path().join("rolled-back");
    std::fs::create_dir(&dir).unwrap();
    let volatile = run(&dir, |job| {
        job.shared.drain(&mut |_| {}).unwrap();
        job.roll_back(false, &mut |_| {}).unwrap();
    });
    assert_recoverable(&volatile, began(&volatile).unwrap(), &[before]);
}
