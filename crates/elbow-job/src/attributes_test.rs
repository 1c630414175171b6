//! Deaths, refusals and lost answers where a job changes attributes of what was there before: extended ones, lists of rights, owners and times
//! come back with the rest, or have come with the rest.
//!
//! No operation of the other scenes set any of these, and what was compared had none of them: what takes them back had never met a fault.

#![allow(clippy::disallowed_methods, reason = "the tests make real directories")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use elbow_file::double::{Operation, Plan};
use elbow_file::{Errno, RenameMode};
use rustix::fs::XattrFlags;

use crate::inherit_test::acl;
use crate::model::{ACCESS_ACL, DEFAULT_ACL};
use crate::options::Publish;
use crate::scenes_test::Scene;
use crate::schedule_test::{Op, date_files};
use crate::{crash_test, refusal_test};

const KEY: &str = "user.a";

fn old_tree(dir: &Path) {
    for sub in ["keep", "gone", "moves", "tagged"] {
        std::fs::create_dir(dir.join(sub)).unwrap();
    }
    for file in [
        "keep/log", "moves/in", "gone/x", "changed", "removed", "added", "listed", "freed", "given", "set-id", "taken",
        "dated", "replaced", "dead",
    ] {
        std::fs::write(dir.join(file), format!("old {file}")).unwrap();
    }
    for path in [
        "changed", "removed", "keep/log", "moves/in", "replaced", "given", "tagged", "gone",
    ] {
        rustix::fs::setxattr(dir.join(path), KEY, b"old", XattrFlags::empty()).unwrap();
    }
    let list = acl([7, 6, 5, 5, 7, 4]);
    rustix::fs::setxattr(dir.join("freed"), ACCESS_ACL, &list, XattrFlags::empty()).unwrap();
    rustix::fs::setxattr(dir.join("tagged"), DEFAULT_ACL, &list, XattrFlags::empty()).unwrap();
    for file in ["set-id", "taken"] {
        std::fs::set_permissions(dir.join(file), PermissionsExt::from_mode(0o4755)).unwrap();
    }
    date_files(dir);
}

/// Each attribute is given, changed and taken, of files and of directories, alone and beside other changes of the same object.
fn operations() -> Vec<Op> {
    let s = str::to_owned;
    let set = |path: &str, value: &[u8]| Op::Xattr(s(path), KEY, Some(value.to_vec()));
    let mut operations = vec![
        Op::Mkdir(s("new")),
        Op::Create(s("new/a")),
        set("new/a", b"new"),
        set("changed", b"another"),
        Op::Xattr(s("removed"), KEY, None),
        set("added", b"new"),
        set("keep", b"new"),
        set("tagged", b"another"),
        Op::Create(s("tagged/fresh")),
        Op::Xattr(s("tagged"), DEFAULT_ACL, Some(acl([7, 7, 7, 5, 7, 0]))),
        Op::Xattr(s("moves"), DEFAULT_ACL, Some(acl([7, 7, 5, 5, 7, 5]))),
        Op::Xattr(s("listed"), ACCESS_ACL, Some(acl([6, 4, 4, 4, 6, 0]))),
        Op::Xattr(s("freed"), ACCESS_ACL, None),
        Op::Date(s("dated"), 950_000_000),
        Op::Write(s("keep/log"), 4, b"LOG".to_vec()),
        Op::Xattr(s("keep/log"), KEY, None),
        Op::Date(s("keep/log"), 950_000_001),
        set("moves/in", b"elsewhere"),
        Op::Rename(s("moves/in"), s("new/in"), RenameMode::Replace),
        Op::Create(s("keep/tmp")),
        set("keep/tmp", b"of the next"),
        Op::Rename(s("keep/tmp"), s("replaced"), RenameMode::Replace),
        Op::Unlink(s("gone/x")),
        Op::Rmdir(s("gone")),
        Op::Unlink(s("dead")),
    ];
    if rustix::process::geteuid().is_root() {
        operations.extend([
            Op::Chown(s("given"), 1000, 55),
            set("given", b"to somebody"),
            Op::Chown(s("tagged"), 1000, 55),
            // A change of owner takes the bit, which the command gives back.
            Op::Chown(s("set-id"), 1000, 55),
            Op::Chmod(s("set-id"), 0o4755),
            Op::Chown(s("taken"), 1000, 55),
        ]);
    }
    operations
}

fn scene(publish: Publish) -> Scene {
    Scene {
        old_tree,
        operations,
        ..Scene::usual(publish)
    }
}

#[test]
fn death_at_any_call_leaves_the_old_attributes_or_the_new_ones() {
    for publish in [Publish::Staged, Publish::Eager] {
        crash_test::enumerate(&scene(publish));
    }
}

#[test]
fn a_call_that_is_refused_once_leaves_the_old_attributes_or_the_new_ones() {
    for publish in [Publish::Staged, Publish::Eager] {
        refusal_test::enumerate(&scene(publish));
    }
}

#[test]
fn a_kind_of_call_that_is_always_refused_leaves_the_old_attributes_or_the_new_ones() {
    refusal_test::enumerate_kinds(&scene(Publish::Staged), refusal_test::errors_of);
}

#[test]
fn a_lost_answer_leaves_the_old_attributes_or_the_new_ones() {
    refusal_test::enumerate_lost_answers(&scene(Publish::Staged));
}

/// The last attribute that is set before the names are cleaned is refused: all others come back.
#[test]
fn death_while_a_commit_is_taken_back_leaves_the_old_attributes_or_the_new_ones() {
    let refused = || Plan::fail(Errno::IO).on(Operation::SetXattr).named("tagged");
    refusal_test::enumerate_deaths_of_taking_back(&scene(Publish::Staged), refused);
}

#[test]
fn a_refused_call_of_a_recovery_leaves_the_old_attributes_or_the_new_ones() {
    let refused = |m| Plan::fail(Errno::IO).nth(m).when(|call| !call.operation.only_reads());
    let kept = crash_test::enumerate_recoveries(&scene(Publish::Staged), refused);
    assert!(kept > 50, "{kept} commits were taken back by a recovery");
}

/// What was refused has changed nothing, and to set it back is refused, too: the commit could not be taken back as long as that was so.
#[test]
fn what_is_refused_for_good_keeps_no_commit_from_being_taken_back() {
    for (errno, path) in [Errno::PERM, Errno::NOSPC, Errno::DQUOT]
        .into_iter()
        .flat_map(|errno| ["changed", "tagged", "given"].map(|path| (errno, path)))
    {
        let plan = Plan::fail(errno).on(Operation::SetXattr).named(path).times(u64::MAX);
        refusal_test::assert_is_taken_back(&scene(Publish::Staged), plan, &format!("{path} refused with {errno}"));
    }
}
