//! Random operations on a tree with subvolumes, natively and in a job, over a double that refuses what btrfs refuses: the same answers, the
//! same tree, and a commit that meets none of those refusals.

#![allow(clippy::disallowed_methods, reason = "the reference is a real directory")]

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use elbow_file::double::{Interposed, Subvolumes};
use elbow_file::{Errno, RealStorage, RenameMode, Storage};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::schedule_test::{InJob, Native, Op, OpResult, scratch, snapshot};
use crate::{Job, Options, Outcome};

const NAMES: [&str; 14] = [
    "s/a", "s/d", "s/d/a", "s/d/b", "s/d/e", "s/d/e/a", "s/e", "s/e/a", "s/e/d", "s/e/d/a", "s/i", "s/i/a", "v", "d",
];
const SUBVOLUMES: [&str; 3] = ["s", "s/i", "v"];

fn old_tree(dir: &Path, rng: &mut StdRng) {
    for sub in SUBVOLUMES {
        std::fs::create_dir_all(dir.join(sub)).unwrap();
        let mode = PermissionsExt::from_mode(0o755 | Subvolumes::MODE);
        std::fs::set_permissions(dir.join(sub), mode).unwrap();
    }
    for name in NAMES.into_iter().filter(|name| !SUBVOLUMES.contains(name)) {
        let (is_dir, path) = (!name.ends_with(['a', 'b']), dir.join(name));
        match rng.random_range(0..4) {
            _ if !path.parent().unwrap().is_dir() => {}
            0 => {}
            _ if is_dir => std::fs::create_dir(path).unwrap(),
            _ => std::fs::write(path, name).unwrap(),
        }
    }
}

fn random_op(rng: &mut StdRng) -> Op {
    let mut name = || NAMES[rng.random_range(0..NAMES.len())].to_owned();
    let (x, y) = (name(), name());
    let modes = [
        RenameMode::Replace,
        RenameMode::Replace,
        RenameMode::NoReplace,
        RenameMode::Exchange,
    ];
    match rng.random_range(0..20) {
        0..3 => Op::Create(x),
        3 => Op::Write(x, rng.random_range(0..20), vec![rng.random(); 9]),
        4..6 => Op::Mkdir(x),
        6 => Op::Link(x, y),
        7 => Op::Unlink(x),
        8 => Op::Rmdir(x),
        _ => Op::Rename(x, y, modes[rng.random_range(0..modes.len())]),
    }
}

/// What a system with subvolumes answers. A name whose directory cannot be had has the plain answer.
fn native(top: &Native, storage: &dyn Storage, op: &Op) -> OpResult {
    let spot = |path: &str| -> Result<_, Errno> {
        let path = top.0.join(path);
        let dir = RealStorage::open_root(path.parent().unwrap())?;
        Ok((dir, path.file_name().map(OsStr::to_owned).unwrap()))
    };
    let (from, to) = match op {
        Op::Rename(x, y, _) | Op::Link(x, y) => (spot(x), spot(y)),
        _ => return top.run(op),
    };
    let (Ok((dir, name)), Ok((to, new))) = (from, to) else {
        return top.run(op);
    };
    let done = match op {
        Op::Rename(_, _, mode) => storage.rename(&dir, &name, &to, &new, *mode),
        _ => storage.link(&dir, &name, &to, &new),
    };
    done.map(|()| Vec::new())
}

#[test]
fn random_operations_on_subvolumes_equal_a_real_directory() {
    rustix::process::umask(rustix::fs::Mode::empty());
    let storage: Arc<dyn Storage> = Arc::new(Interposed::new(Arc::new(RealStorage), Subvolumes));
    let (mut refused, mut moved) = (0, 0);
    for seed in elbow_testkit::cases::seeds(400) {
        let temp = scratch();
        let (top, below) = (Native(temp.path().join("native")), temp.path().join("below"));
        for dir in [&top.0, &below] {
            std::fs::create_dir(dir).unwrap();
            old_tree(dir, &mut StdRng::seed_from_u64(seed));
        }
        let mut rng = StdRng::seed_from_u64(seed);
        let ops: Vec<Op> = (0..rng.random_range(5..60)).map(|_| random_op(&mut rng)).collect();
        let root = RealStorage::open_root(&below).unwrap();
        let job = Job::begin(storage.clone(), root, &below, Options::default()).unwrap();
        job.by_hand(true);
        for (n, op) in ops.iter().enumerate() {
            let (native, ours) = (native(&top, &*storage, op), InJob(&job).run(op));
            assert_eq!(ours, native, "SEED={seed}: operation {n} of {ops:?}");
            refused += u64::from(ours == Err(Errno::XDEV));
            moved += u64::from(ours.is_ok() && matches!(op, Op::Rename(..)));
            for _ in 0..rng.random_range(0..4) {
                job.step_by_hand(|left| rng.random_range(0..left));
            }
            let errors = job.deferred_errors();
            assert!(errors.is_empty(), "SEED={seed}: {errors:?} after {n} of {ops:?}");
        }
        job.by_hand(false);
        let outcome = job.commit(&mut |_| {}).unwrap();
        assert!(
            matches!(outcome, Outcome::Committed),
            "SEED={seed}: {outcome:?} for {ops:?}"
        );
        assert_eq!(snapshot(&below), snapshot(&top.0), "SEED={seed}: {ops:?}");
    }
    println!("{moved} renames were made and {refused} refused");
    assert!(moved > 0 && refused > 0 || std::env::var_os("SEED").is_some());
}
