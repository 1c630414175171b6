//! Old files that are changed in many small pieces, as databases and binary formats change theirs.

#![allow(clippy::disallowed_methods, reason = "the test makes and looks at real directories")]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use elbow_file::double::{Call, Counting, Faulty, Hook, Interposed, Operation, Plan, ZerosAreHoles};
use elbow_file::{Errno, RealStorage, Storage};

use crate::crash_test::{begin, has_staging, recovered, seen_by_jobs};
use crate::options::Publish;
use crate::resume_test::{name_in, real};
use crate::schedule_test::{InJob, Op, Snapshot, scratch, snapshot};
use crate::{Ino, Job, Keep, OnConflict, Options, Outcome, SetIds, resume};

const FILE: &str = "old";
const PIECE_BYTES: u64 = 100;

/// A directory with a file of so many bytes, none of which is zero.
fn fresh(place: &Path, name: &str, bytes: u64) -> PathBuf {
    let dir = place.join(name);
    std::fs::create_dir(&dir).unwrap();
    let content: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8 + 1).collect();
    std::fs::write(dir.join(FILE), content).unwrap();
    // Other tests change the umask.
    std::fs::set_permissions(dir.join(FILE), std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    dir
}

fn write(job: &Job, at: u64, bytes: Vec<u8>) {
    InJob(job).run(&Op::Write(FILE.to_owned(), at, bytes)).unwrap();
}

/// So many pieces, far from each other.
fn write_pieces(job: &Job, count: u64) {
    for piece in 0..count {
        write(job, piece * 10_000 + 77, vec![b'x'; PIECE_BYTES as usize]);
    }
}

/// It was three questions for the holes of each, a write to the log for each, and a hole punched for each.
#[test]
fn a_commit_of_many_pieces_reads_and_writes_each_and_asks_little_else() {
    const PIECES: u64 = 500;
    let temp = scratch();
    let dir = fresh(temp.path(), "dir", PIECES * 10_000);
    let storage = Arc::new(Interposed::new(real(), Counting::default()));
    let job = begin(storage.clone(), &dir, Publish::Staged);
    write_pieces(&job, PIECES);
    job.shared.drain(&mut |_| {}).unwrap();
    let counted = [Operation::Read, Operation::Write, Operation::NextData, Operation::Punch];
    let counts = || counted.map(|operation| storage.hook().count(operation));
    let before = counts();
    assert!(matches!(job.commit(&mut |_| {}), Ok(Outcome::Committed)));
    let after = counts();
    let [reads, writes, questions, punches] = std::array::from_fn(|at| after[at] - before[at]);
    assert!((2 * PIECES..2 * PIECES + 20).contains(&reads), "{reads} reads");
    assert!((PIECES..PIECES + 20).contains(&writes), "{writes} writes");
    assert!(questions < 10 && punches < 10, "{questions} {punches}");
}

/// An undo log for each was made and removed in one directory, one after the other: to append a line to 500 files took twice as long as without a job.
#[test]
fn a_commit_of_small_changes_makes_no_file_for_each() {
    const FILES: u64 = 100;
    let temp = scratch();
    let dir = fresh(temp.path(), "dir", 10);
    for file in 0..FILES {
        std::fs::write(dir.join(format!("f{file}")), "old content").unwrap();
    }
    let storage = Arc::new(Interposed::new(real(), Counting::default()));
    let job = begin(storage.clone(), &dir, Publish::Staged);
    for file in 0..FILES {
        let at = if file % 2 == 0 { 11 } else { 4 };
        InJob(&job)
            .run(&Op::Write(format!("f{file}"), at, b"more".to_vec()))
            .unwrap();
    }
    job.shared.drain(&mut |_| {}).unwrap();
    let counted = [Operation::Create, Operation::Unlink, Operation::Sync];
    let counts = || counted.map(|operation| storage.hook().count(operation));
    let before = counts();
    assert!(matches!(job.commit(&mut |_| {}), Ok(Outcome::Committed)));
    let after = counts();
    let [created, unlinked, synced] = std::array::from_fn(|at| after[at] - before[at]);
    assert!(created < 10 && unlinked < FILES + 10, "{created} {unlinked}");
    assert!((2 * FILES..2 * FILES + 20).contains(&synced), "{synced}");
    let odd = std::fs::read(dir.join("f1")).unwrap();
    assert_eq!(
        (&*odd, &*std::fs::read(dir.join("f2")).unwrap()),
        (&b"old moreent"[..], &b"old contentmore"[..])
    );
}

/// How many reads, and how many writes, were under way at once.
#[derive(Default)]
struct AtOnce {
    now: AtomicUsize,
    most: [AtomicUsize; 2],
}

impl Hook for AtOnce {
    fn around<T: 'static>(
        &self,
        call: &Call<'_>,
        make: impl FnOnce() -> elbow_file::Result<T>,
    ) -> elbow_file::Result<T> {
        let most = match call.operation {
            Operation::Read => &self.most[0],
            Operation::Write => &self.most[1],
            _ => return make(),
        };
        most.fetch_max(self.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(2));
        self.now.fetch_sub(1, Ordering::SeqCst);
        make()
    }
}

/// One after the other cost the latency of the storage five times for each: nine times as long as without a job.
#[test]
fn the_pieces_of_one_file_are_read_and_written_at_once() {
    let temp = scratch();
    let dir = fresh(temp.path(), "dir", 1_000_000);
    let storage = Arc::new(Interposed::new(real(), AtOnce::default()));
    let options = Options {
        in_flight: Some(8),
        ..Options::default()
    };
    let job = Job::begin(storage.clone(), RealStorage::open_root(&dir).unwrap(), &dir, options).unwrap();
    write_pieces(&job, 100);
    job.shared.drain(&mut |_| {}).unwrap();
    for most in &storage.hook().most {
        most.store(0, Ordering::SeqCst);
    }
    assert!(matches!(job.commit(&mut |_| {}), Ok(Outcome::Committed)));
    for most in &storage.hook().most {
        assert!(most.load(Ordering::SeqCst) >= 3, "{most:?} at once");
    }
}

/// Pieces over data, over a hole of the old file, over its end and behind it; zeros, whole blocks of them too; and so many bytes that they leave the
/// patch as they arrive.
fn change(job: &Job) {
    for piece in 0..12 {
        write(job, piece * 9_000 + 4_000, vec![b'p'; 700]);
    }
    write(job, 130_000, vec![0; 9_000]);
    write(job, 150_000, vec![b'q'; 70_000]);
    write(job, 230_000, vec![0; 3_000]);
    write(job, 399_000, vec![b'e'; 2_000]);
    write(job, 450_000, vec![0; 8_192]);
    write(job, 470_000, vec![b'b'; 5]);
}

/// So little that its undo log lies behind it, where the job has written and cut off what it wrote.
fn change_little(job: &Job) {
    write(job, 395_000, vec![b'c'; 30_000]);
    InJob(job).run(&Op::Truncate(FILE.to_owned(), 396_000)).unwrap();
    write(job, 1_000, vec![b's'; 10]);
    write(job, 20_000, vec![0; 9_000]);
    write(job, 130_000, vec![b'd'; 9_000]);
    write(job, 395_900, vec![b'e'; 200]);
}

fn fresh_with_hole(place: &Path, name: &str) -> PathBuf {
    let dir = fresh(place, name, 60_000);
    let file = std::fs::OpenOptions::new().write(true).open(dir.join(FILE)).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &vec![b'o'; 280_000], 120_000).unwrap();
    dir
}

/// What the job leaves.
fn after(place: &Path, change: fn(&Job)) -> Snapshot {
    let dir = fresh_with_hole(place, "after");
    let job = begin(real(), &dir, Publish::Staged);
    change(&job);
    assert!(matches!(job.commit(&mut |_| {}), Ok(Outcome::Committed)));
    snapshot(&dir)
}

/// A job whose changes are on a storage that has no fault yet.
fn drained(dir: &Path, storage: Arc<dyn Storage>, change: fn(&Job)) -> (Arc<Interposed<Faulty>>, Job) {
    let faulty = Arc::new(Interposed::new(storage, Faulty::default()));
    let job = begin(faulty.clone(), dir, Publish::Staged);
    change(&job);
    job.shared.drain(&mut |_| {}).unwrap();
    (faulty, job)
}

/// A commit that meets a fault at each of its changes in turn, on a storage, leaves the old file or the new one; how often each.
fn enumerate(change: fn(&Job), wrap: fn() -> Arc<dyn Storage>, fault: fn(u64) -> Plan) -> (usize, usize) {
    let temp = scratch();
    let after = after(temp.path(), change);
    let (mut old, mut new) = (0, 0);
    for n in 1.. {
        let dir = fresh_with_hole(temp.path(), "dir");
        let before = seen_by_jobs(&dir);
        let (faulty, job) = drained(&dir, wrap(), change);
        faulty.hook().arm(fault(n));
        let ended = job.commit(&mut |_| {});
        drop(job);
        let has_come = faulty.hook().fired() > 0;
        let recovered = recovered(&dir, &wrap());
        let what = format!("fault {n}: {ended:?}, then {recovered:?}");
        if seen_by_jobs(&dir) == before {
            old += 1;
            assert!(has_come, "{what}");
        } else {
            new += 1;
            assert_eq!(snapshot(&dir), after, "{what}");
        }
        assert!(!has_staging(&dir), "{what}");
        std::fs::remove_dir_all(&dir).unwrap();
        if !has_come {
            assert!(matches!(ended, Ok(Outcome::Committed)), "{what}");
            return (old, new);
        }
    }
    unreachable!("some commit meets no fault")
}

fn zeros_are_holes() -> Arc<dyn Storage> {
    Arc::new(Interposed::new(real(), ZerosAreHoles))
}

/// Where blocks of zeros are holes, what was to be zeros was left as it was, with exit code 0.
#[test]
fn wherever_a_commit_of_pieces_dies_it_leaves_the_old_file_or_the_new_one() {
    for wrap in [real, zeros_are_holes] {
        let (old, new) = enumerate(change, wrap, Plan::stop_at_change);
        assert!(old > 5 && new > 20, "{old} {new}");
        let (old, new) = enumerate(change_little, wrap, Plan::stop_at_change);
        assert!(old > 5 && new > 10, "{old} {new}");
    }
}

#[test]
fn whatever_of_a_commit_of_pieces_is_refused_it_leaves_the_old_file_or_the_new_one() {
    let refused = |n| {
        Plan::fail(Errno::NOSPC)
            .when(|call| !call.operation.only_reads())
            .nth(n)
    };
    for wrap in [real, zeros_are_holes] {
        let (old, new) = enumerate(change, wrap, refused);
        assert!(old > 20 && new > 0, "{old} {new}");
        let (old, new) = enumerate(change_little, wrap, refused);
        assert!(old > 10 && new > 0, "{old} {new}");
    }
}

/// Taken back from where parts of the patch were punched out, it waits, and has all of it when it goes on.
#[test]
fn a_kept_job_has_all_its_pieces_wherever_its_commit_was_refused() {
    for (change, wrap, least) in [
        (change as fn(&Job), real as fn() -> Arc<dyn Storage>, 10),
        (change, zeros_are_holes, 10),
        (change_little, real, 5),
        (change_little, zeros_are_holes, 5),
    ] {
        let temp = scratch();
        let after = after(temp.path(), change);
        let mut kept = 0;
        for n in 1.. {
            let dir = fresh_with_hole(temp.path(), "dir");
            let before = seen_by_jobs(&dir);
            let (faulty, job) = drained(&dir, wrap(), change);
            let fault = Plan::fail(Errno::NOSPC)
                .when(|call| matches!(call.operation, Operation::Write | Operation::Sync))
                .nth(n);
            faulty.hook().arm(fault);
            let ended = job.commit_or_keep(Keep::Complete, &mut |_| {});
            drop(job);
            let has_come = faulty.hook().fired() > 0;
            let what = format!("refusal {n}: {ended:?}");
            if matches!(&ended, Ok(Outcome::Kept(..))) {
                kept += 1;
                assert_eq!(seen_by_jobs(&dir), before, "{what}");
                let root = RealStorage::open_root(&dir).unwrap();
                let resumed = resume(&wrap(), &root, &name_in(&dir), OnConflict::RollBack);
                assert!(matches!(resumed, Ok(Outcome::Committed)), "{what}, then {resumed:?}");
                assert_eq!(snapshot(&dir), after, "{what}");
            }
            std::fs::remove_dir_all(&dir).unwrap();
            if !has_come {
                break;
            }
        }
        assert!(kept > least, "{kept}");
    }
}

/// Where no hole can be punched zeros are written, and made a file longer that the command cut then: once committed it had them at its end.
#[test]
fn zeros_make_no_file_longer_where_they_have_to_be_written() {
    const PUNCH_AND_KEEP_SIZE: i32 = 3;
    let temp = scratch();
    let refuses = Faulty::new([Plan::fail(Errno::OPNOTSUPP).on(Operation::Punch).times(u64::MAX)]);
    let storage = Arc::new(Interposed::new(real(), refuses));
    let job = begin(storage.clone(), temp.path(), Publish::Eager);
    let run = |op| _ = InJob(&job).run(&op).unwrap();
    run(Op::Create("f".into()));
    let ino = job.lookup(Ino::ROOT, OsStr::new("f")).unwrap().ino;
    job.open(ino, true, false).unwrap();
    run(Op::Truncate("f".into(), 10_000));
    job.fallocate(ino, PUNCH_AND_KEEP_SIZE, 0, 10_000, SetIds::Stay)
        .unwrap();
    let began = std::time::Instant::now();
    while storage.hook().fired() == 0 {
        assert!(began.elapsed() < Duration::from_secs(20), "no hole was tried");
        std::thread::sleep(Duration::from_millis(1));
    }
    run(Op::Truncate("f".into(), 0));
    job.release(ino, true);
    let outcome = job.commit(&mut |_| {});
    assert!(matches!(outcome, Ok(Outcome::Committed)), "{outcome:?}");
    assert_eq!(std::fs::metadata(temp.path().join("f")).unwrap().len(), 0);
}
