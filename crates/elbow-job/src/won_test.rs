//! Who wins a conflict overwrites what somebody else has made, whole or not at all; and what does not last puts that back as it was.

#![allow(clippy::disallowed_methods, reason = "the test makes and looks at real directories")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use elbow_file::double::{Faulty, Interposed, Operation, Plan};
use elbow_file::{Errno, RealStorage, Storage};

use crate::crash_test::{begin, has_staging, recovered, seen_by_jobs};
use crate::options::Publish;
use crate::report::NOT_WON;
use crate::resume_test::{name_in, real};
use crate::schedule_test::{InJob, Op, scratch, snapshot};
use crate::{Cause, Job, JobError, OnConflict, Outcome};

const FILES: [&str; 3] = ["a", "b", "c"];

fn fresh(place: &Path, name: &str) -> PathBuf {
    let dir = place.join(name);
    std::fs::create_dir(&dir).unwrap();
    for name in FILES {
        std::fs::write(dir.join(name), "the old content").unwrap();
    }
    dir
}

/// A job that did this to each file.
fn job(dir: &Path, operations: fn(&str) -> Vec<Op>) -> Job {
    let job = begin(real(), dir, Publish::Staged);
    for op in FILES.into_iter().flat_map(operations) {
        InJob(&job).run(&op).unwrap();
    }
    job
}

/// The same, and it waits.
fn kept(dir: &Path, operations: fn(&str) -> Vec<Op>) {
    let job = job(dir, operations);
    let waits = job.postpone("the test asks for it", &mut |_| {});
    assert!(
        matches!(&waits, Ok(Outcome::Kept(_, kept)) if kept.is_whole),
        "{waits:?}"
    );
}

fn rewrite(name: &str) -> Vec<Op> {
    let name = name.to_owned();
    vec![
        Op::Truncate(name.clone(), 0),
        Op::Write(name, 0, b"of the job".to_vec()),
    ]
}

/// Written whole, with zeros in between, over the old end and without cutting the file.
fn write_over(name: &str) -> Vec<Op> {
    vec![
        Op::Write(name.to_owned(), 0, b"of the".to_vec()),
        Op::Write(name.to_owned(), 6, vec![0; 4]),
        Op::Write(name.to_owned(), 10, b"job, longer".to_vec()),
    ]
}

fn append(name: &str) -> Vec<Op> {
    vec![Op::Write(name.to_owned(), 15, b" and the job's".to_vec())]
}

fn cut(name: &str) -> Vec<Op> {
    vec![Op::Truncate(name.to_owned(), 3)]
}

fn resume(dir: &Path, storage: &Arc<dyn Storage>, on_conflict: OnConflict) -> Result<Outcome, JobError> {
    let root = RealStorage::open_root(dir).unwrap();
    crate::resume(storage, &root, &name_in(dir), on_conflict)
}

/// The fault comes at each change in turn, until there is none any more; how often the files were the job's, and how often somebody else's.
fn enumerate(operations: fn(&str) -> Vec<Op>, theirs: &str, fault: fn(u64) -> Plan) -> (usize, usize) {
    let temp = scratch();
    let whole = fresh(temp.path(), "whole");
    let committed = job(&whole, operations).commit(&mut |_| {});
    assert!(matches!(committed, Ok(Outcome::Committed)), "{committed:?}");
    let after = snapshot(&whole);
    let (mut won, mut put_back) = (0, 0);
    for n in 1.. {
        let dir = fresh(temp.path(), "dir");
        kept(&dir, operations);
        for name in FILES {
            std::fs::write(dir.join(name), theirs).unwrap();
        }
        let seen = seen_by_jobs(&dir);
        let faulty = Arc::new(Interposed::new(real(), Faulty::new([fault(n)])));
        let ended = resume(&dir, &(faulty.clone() as Arc<dyn Storage>), OnConflict::Overwrite);
        let has_come = faulty.hook().fired() > 0;
        let recovered = recovered(&dir, &real()).unwrap();
        let what = format!("{theirs:?}, fault {n}: {ended:?}, then {recovered:?}");
        if seen_by_jobs(&dir) == seen {
            put_back += 1;
            // It waits still, and wins when nothing is in its way.
            let again = resume(&dir, &real(), OnConflict::Overwrite);
            assert!(matches!(again, Ok(Outcome::Committed)), "{what}, then {again:?}");
        } else {
            won += 1;
        }
        assert_eq!(snapshot(&dir), after, "{what}");
        std::fs::remove_dir_all(&dir).unwrap();
        if !has_come {
            assert!(matches!(ended, Ok(Outcome::Committed)), "{what}");
            break;
        }
    }
    (won, put_back)
}

/// What came back was as long as what the job had seen, and the rest of it was cut off, or zeros.
#[test]
fn what_is_won_over_comes_back_whole_when_that_does_not_last() {
    let theirs = ["", "short", "somebody else's, and much longer than anything before"];
    let refused = |n| {
        Plan::fail(Errno::NOSPC)
            .when(|call| !call.operation.only_reads())
            .nth(n)
    };
    for operations in [rewrite, write_over] {
        for theirs in theirs {
            for fault in [refused, Plan::stop_at_change] {
                let (won, put_back) = enumerate(operations, theirs, fault);
                assert!(won > 3 && put_back > 10, "{theirs:?}: {won} {put_back}");
            }
        }
    }
}

/// A part of what the job saw beside what somebody else has written is a content that nobody has made: it came with exit code 0.
#[test]
fn a_file_that_is_written_in_part_is_not_won() {
    let temp = scratch();
    for operations in [append, cut] {
        for theirs in ["", "short", "the old content, and more", "other content.."] {
            let dir = fresh(temp.path(), "dir");
            kept(&dir, operations);
            std::fs::write(dir.join("b"), theirs).unwrap();
            let seen = seen_by_jobs(&dir);
            match resume(&dir, &real(), OnConflict::Overwrite) {
                Ok(Outcome::Kept(Cause::Conflict(found), kept)) => {
                    assert!(kept.is_whole);
                    assert_eq!(found, [(PathBuf::from("b"), NOT_WON.to_owned())]);
                }
                other => panic!("{theirs:?}: {other:?}"),
            }
            assert_eq!(seen_by_jobs(&dir), seen);
            std::fs::remove_dir_all(&dir).unwrap();
        }
    }
}

/// What it would have won over an hour ago is not what the job expects.
#[test]
fn an_old_file_that_is_put_back_after_an_attempt_to_win_is_no_conflict() {
    let temp = scratch();
    let dir = fresh(temp.path(), "dir");
    kept(&dir, rewrite);
    std::fs::rename(dir.join("b"), temp.path().join("aside")).unwrap();
    std::fs::write(dir.join("b"), "of somebody else").unwrap();
    let refuses = Faulty::new([Plan::fail(Errno::NOSPC).on(Operation::Truncate)]);
    let refuses = Arc::new(Interposed::new(real(), refuses));
    let refused = resume(&dir, &(refuses.clone() as Arc<dyn Storage>), OnConflict::Overwrite);
    assert!(
        matches!(&refused, Ok(Outcome::Kept(_, kept)) if kept.is_whole),
        "{refused:?}"
    );
    assert!(refuses.hook().fired() > 0);
    assert_eq!(std::fs::read(dir.join("b")).unwrap(), b"of somebody else");
    std::fs::rename(temp.path().join("aside"), dir.join("b")).unwrap();
    let ended = resume(&dir, &real(), OnConflict::RollBack);
    assert!(matches!(ended, Ok(Outcome::Committed)), "{ended:?}");
    assert_eq!(std::fs::read(dir.join("b")).unwrap(), b"of the job");
    assert!(!has_staging(&dir));
}
