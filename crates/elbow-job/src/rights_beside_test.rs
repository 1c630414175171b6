//! Others change attributes of what a job changes attributes of: nothing of theirs is lost in silence, and what does not meet is no conflict.

#![allow(clippy::disallowed_methods, reason = "the test makes and looks at real directories")]

use std::ffi::OsStr;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::sync::Arc;

use elbow_file::double::{Faulty, Interposed, Operation, Plan};
use elbow_file::{Errno, RealStorage};
use rustix::fs::{XattrFlags, getxattr, setxattr};

use crate::api::{Ino, SetAttr};
use crate::crash_test::{begin, has_staging};
use crate::inherit_test::acl;
use crate::model::{ACCESS_ACL, DEFAULT_ACL};
use crate::options::Publish;
use crate::resume_test::{name_in, real};
use crate::schedule_test::{InJob, Op, scratch};
use crate::{Cause, Job, Keep, OnConflict, Outcome, XattrMode};

/// What somebody sets, in a job or beside one.
#[derive(Clone, Copy, Debug)]
enum Change {
    Mode(u32),
    Owner(u32),
    Xattr(&'static str, &'static str),
    /// The rights of a user in a list of rights.
    List(&'static str, u16),
    /// The name `moved`.
    Name,
    /// Another directory below it.
    Dir,
}

impl Change {
    fn attribute(self) -> Option<(&'static str, Vec<u8>)> {
        match self {
            Self::Xattr(key, value) => Some((key, value.into())),
            Self::List(key, rights) => Some((key, acl([7, rights, 5, 5, 7, 5]))),
            _ => None,
        }
    }

    fn in_job(self, job: &Job, path: &str) {
        let ino = match path {
            "" => Ino::ROOT,
            path => InJob(job).walk(path).unwrap(),
        };
        let attrs = SetAttr::default();
        let set = |attrs: &SetAttr| _ = job.insist(|job| job.setattr(ino, attrs)).unwrap();
        match self {
            Self::Mode(mode) => {
                let mode = Some(mode);
                set(&SetAttr { mode, ..attrs });
            }
            Self::Owner(uid) => {
                let uid = Some(uid);
                set(&SetAttr { uid, ..attrs });
            }
            Self::Xattr(..) | Self::List(..) => {
                let (key, value) = self.attribute().expect("an attribute");
                job.insist(|job| job.set_xattr(ino, OsStr::new(key), &value, XattrMode::Any))
                    .unwrap();
            }
            Self::Name => {
                let rename = Op::Rename(path.into(), "moved".into(), elbow_file::RenameMode::NoReplace);
                InJob(job).run(&rename).unwrap();
            }
            Self::Dir => drop(InJob(job).run(&Op::Mkdir(format!("{path}/dir"))).unwrap()),
        }
    }

    fn beside(self, path: &Path) {
        match self {
            Self::Mode(mode) => std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap(),
            Self::Owner(uid) => chown(path, Some(uid), None).unwrap(),
            Self::Xattr(..) | Self::List(..) => {
                let (key, value) = self.attribute().expect("an attribute");
                setxattr(path, key, &value, XattrFlags::empty()).unwrap();
            }
            Self::Name | Self::Dir => unreachable!("attributes only"),
        }
    }

    fn is_there(self, path: &Path) -> bool {
        let stat = std::fs::metadata(path).unwrap();
        match self {
            Self::Mode(mode) => stat.mode() & 0o7777 == mode,
            Self::Owner(uid) => stat.uid() == uid,
            Self::Xattr(..) | Self::List(..) => {
                let (key, value) = self.attribute().expect("an attribute");
                let mut found = vec![0; 1000];
                let length = getxattr(path, key, &mut found).unwrap_or(0);
                found[..length] == value
            }
            Self::Name => path.ends_with("moved"),
            Self::Dir => path.join("dir").is_dir(),
        }
    }
}

/// A directory and a file, with an attribute and rights for a user.
fn old_tree(top: &Path) {
    std::fs::create_dir(top.join("d")).unwrap();
    std::fs::write(top.join("f"), "content").unwrap();
    for path in [top.to_owned(), top.join("d"), top.join("f")] {
        Change::Mode(0o755).beside(&path);
        Change::Xattr("user.a", "old").beside(&path);
        Change::List(ACCESS_ACL, 1).beside(&path);
    }
}

/// What a job sets, what others set meanwhile, and whether they meet.
const CASES: [(Change, Change, bool); 17] = [
    (Change::Mode(0o771), Change::Mode(0o700), true),
    (Change::Mode(0o771), Change::Owner(7), true),
    (Change::Owner(8), Change::Owner(7), true),
    (Change::Owner(8), Change::Mode(0o700), true),
    (Change::Xattr("user.a", "ours"), Change::Xattr("user.a", "theirs"), true),
    (Change::Xattr("user.b", "ours"), Change::Xattr("user.b", "theirs"), true),
    (Change::List(ACCESS_ACL, 5), Change::List(ACCESS_ACL, 0), true),
    (Change::List(ACCESS_ACL, 5), Change::Mode(0o700), true),
    (Change::Mode(0o771), Change::Xattr("user.b", "theirs"), false),
    (
        Change::Xattr("user.a", "ours"),
        Change::Xattr("user.b", "theirs"),
        false,
    ),
    (Change::Xattr("user.a", "ours"), Change::Mode(0o700), false),
    (Change::Xattr("user.a", "ours"), Change::List(ACCESS_ACL, 0), false),
    (Change::List(DEFAULT_ACL, 5), Change::List(ACCESS_ACL, 0), false),
    (Change::Mode(0o771), Change::Mode(0o771), false),
    (Change::Owner(7), Change::Owner(7), false),
    (Change::Xattr("user.a", "new"), Change::Xattr("user.a", "new"), false),
    (Change::List(ACCESS_ACL, 5), Change::List(ACCESS_ACL, 5), false),
];

fn names_it(cause: &Cause, path: &str) -> bool {
    matches!(cause, Cause::Conflict(found) if found.iter().any(|(named, _)| named == Path::new(path)))
}

/// Whoever gave a directory or the top itself other rights while a job set its mode, owner or list of rights lost them without a word: rights that they
/// had taken away came back.
#[test]
fn what_others_set_of_a_directory_that_the_job_sets_too_is_named() {
    for (path, (ours, theirs, meets)) in ["", "d"].into_iter().flat_map(|path| CASES.map(|case| (path, case))) {
        let temp = scratch();
        old_tree(temp.path());
        let job = begin(real(), temp.path(), Publish::Staged);
        ours.in_job(&job, path);
        let place = temp.path().join(path);
        theirs.beside(&place);
        let outcome = job.commit(&mut |_| {});
        let what = format!("\"{path}\": {ours:?} in the job, {theirs:?} beside it: {outcome:?}");
        match outcome {
            Ok(Outcome::RolledBack(cause)) => assert!(meets && names_it(&cause, path), "{what}"),
            Ok(Outcome::Committed) => assert!(!meets && ours.is_there(&place), "{what}"),
            _ => panic!("{what}"),
        }
        assert!(theirs.is_there(&place), "{what}");
        assert!(!has_staging(temp.path()), "{what}");
    }
}

/// What lies beside a job in its directory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Other {
    None,
    Runs,
    IsKept,
}

/// Jobs side by side open a directory of mode 0555 for a moment when they stage in it, and each took that of another one for a change by somebody else.
#[test]
fn what_other_jobs_open_for_a_moment_is_no_conflict() {
    for (beside, other, is_committed) in [
        (0o755, Other::Runs, true),
        (0o755, Other::None, false),
        (0o755, Other::IsKept, false),
        (0o775, Other::Runs, false),
        (0o500, Other::Runs, false),
    ] {
        let temp = scratch();
        old_tree(temp.path());
        let place = temp.path().join("d");
        Change::List(ACCESS_ACL, 5).beside(&place);
        Change::Mode(0o555).beside(&place);
        let job = begin(real(), temp.path(), Publish::Staged);
        Change::Mode(0o551).in_job(&job, "d");
        let beside_it = (other != Other::None).then(|| begin(real(), temp.path(), Publish::Staged));
        if let Some(job) = &beside_it {
            InJob(job).run(&Op::Create("others".into())).unwrap();
            job.shared.drain(&mut |_| {}).unwrap();
            if other == Other::IsKept {
                let kept = job.roll_back(true, &mut |_| {});
                assert!(matches!(kept, Ok(Outcome::Kept(..))), "{kept:?}");
            }
        }
        Change::Mode(beside).beside(&place);
        let outcome = job.commit(&mut |_| {});
        let what = format!("{beside:o}, {other:?}: {outcome:?}");
        match outcome {
            Ok(Outcome::Committed) => assert!(is_committed && Change::Mode(0o551).is_there(&place), "{what}"),
            Ok(Outcome::RolledBack(cause)) => assert!(!is_committed && names_it(&cause, "d"), "{what}"),
            _ => panic!("{what}"),
        }
    }
}

/// Nothing takes the bit from root, so somebody has.
#[test]
fn a_set_group_id_bit_that_others_have_taken_away_is_named() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: the kernel takes the bit from other users");
        return;
    }
    let temp = scratch();
    old_tree(temp.path());
    let place = temp.path().join("d");
    Change::Mode(0o2555).beside(&place);
    let job = begin(real(), temp.path(), Publish::Staged);
    Change::Mode(0o2551).in_job(&job, "d");
    Change::Mode(0o555).beside(&place);
    let outcome = job.commit(&mut |_| {});
    assert!(
        matches!(&outcome, Ok(Outcome::RolledBack(cause)) if names_it(cause, "d")),
        "{outcome:?}"
    );
    assert!(Change::Mode(0o555).is_there(&place));
}

#[test]
fn what_others_set_of_a_directory_that_the_job_moves_or_fills_is_kept() {
    for (ours, now) in [(Change::Name, "moved"), (Change::Dir, "d")] {
        for theirs in [Change::Mode(0o700), Change::Owner(7), Change::List(ACCESS_ACL, 0)] {
            let temp = scratch();
            old_tree(temp.path());
            let job = begin(real(), temp.path(), Publish::Staged);
            ours.in_job(&job, "d");
            theirs.beside(&temp.path().join("d"));
            let outcome = job.commit(&mut |_| {});
            assert!(
                matches!(outcome, Ok(Outcome::Committed)),
                "{ours:?} {theirs:?}: {outcome:?}"
            );
            let place = temp.path().join(now);
            assert!(ours.is_there(&place) && theirs.is_there(&place), "{ours:?} {theirs:?}");
        }
    }
}

#[test]
fn who_is_to_win_sets_what_others_have_set() {
    let temp = scratch();
    old_tree(temp.path());
    let root = RealStorage::open_root(temp.path()).unwrap();
    let options = crate::Options {
        on_conflict: OnConflict::Overwrite,
        ..crate::Options::default()
    };
    let job = Job::begin(real(), root, temp.path(), options).unwrap();
    Change::Mode(0o711).in_job(&job, "d");
    Change::Mode(0o700).beside(&temp.path().join("d"));
    let outcome = job.commit(&mut |_| {});
    assert!(matches!(outcome, Ok(Outcome::Committed)), "{outcome:?}");
    assert!(Change::Mode(0o711).is_there(&temp.path().join("d")));
}

/// A job that waits because its commit was refused once, and goes on when others have set something.
#[test]
fn what_others_set_while_a_job_waits_is_named_of_directories_and_files() {
    for (path, (ours, theirs, meets)) in ["", "d", "f"]
        .into_iter()
        .flat_map(|path| CASES.map(|case| (path, case)))
    {
        if path == "f" && matches!(ours, Change::List(DEFAULT_ACL, _)) {
            continue;
        }
        // Of a file, mode and owner are always looked at.
        let meets = meets || path == "f" && matches!(theirs, Change::Mode(_) | Change::Owner(_));
        let temp = scratch();
        old_tree(temp.path());
        let faulty = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::default()));
        let job = begin(faulty.clone(), temp.path(), Publish::Staged);
        ours.in_job(&job, path);
        InJob(&job).run(&Op::Create("new".into())).unwrap();
        job.shared.drain(&mut |_| {}).unwrap();
        let fault = Plan::fail(Errno::NOSPC).on(Operation::Rename).named("new");
        faulty.hook().arm(fault);
        let outcome = job.commit_or_keep(Keep::Complete, &mut |_| {});
        let what = format!("\"{path}\": {ours:?} in the job, {theirs:?} beside it");
        assert!(faulty.hook().fired() > 0, "{what}: {outcome:?}");
        assert!(
            matches!(&outcome, Ok(Outcome::Kept(_, kept)) if kept.is_whole),
            "{what}: {outcome:?}"
        );
        let place = temp.path().join(path);
        theirs.beside(&place);
        let root = RealStorage::open_root(temp.path()).unwrap();
        let ended = crate::resume(&real(), &root, &name_in(temp.path()), OnConflict::RollBack);
        match &ended {
            Ok(Outcome::Kept(cause, _)) => assert!(meets && names_it(cause, path), "{what}: {ended:?}"),
            Ok(Outcome::Committed) => assert!(!meets && ours.is_there(&place), "{what}: {ended:?}"),
            _ => panic!("{what}: {ended:?}"),
        }
        assert!(theirs.is_there(&place), "{what}: {ended:?}");
    }
}
