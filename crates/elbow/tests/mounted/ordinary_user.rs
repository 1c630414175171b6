//! The same as an ordinary user: no root, a private namespace of one's own, `fusermount3`, groups that keep their meaning.
//!
//! The user is `daemon`, who is on every machine (fusermount3 wants a name), with the supplementary group 1998, which is
//! the only right it has to the directory of the job. `/dev/fuse` is open to everybody, as it usually is, by a bind mount
//! of a node of our own; fusectl is mounted, as it usually is.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use crate::test_dir::{TestDir, wait_for};

pub(crate) const USER: u32 = 1;
const GROUP: u32 = 1998;

/// A ground of the user, whose job directory belongs to somebody and the supplementary group, with set-group-id, as
/// shared project directories do.
pub(crate) fn ground_of(owner: u32, seed: &str) -> TestDir {
    let share = format!("chown -R {owner}:{GROUP} .; find . -type d -exec chmod 2770 {{}} +; chmod -R g+rw .");
    as_user(TestDir::new(&format!("{seed}\ncd \"$WORK\"; {share}")))
}

/// A ground on which scripts are run as the user.
pub(crate) fn as_user(test_dir: TestDir) -> TestDir {
    for path in [test_dir.root(), test_dir.outside("")] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).expect("opening the ground to all");
    }
    let node = test_dir.outside("fuse");
    // /dev/fuse is always character device 10:229.
    let prepare =
        "[ -e \"$0\" ] || mknod -m 666 \"$0\" c 10 229; mount --bind \"$0\" /dev/fuse
        mountpoint -q /sys/fs/fuse/connections || mount -t fusectl none /sys/fs/fuse/connections
        for ids in subuid subgid; do [ ! -e \"$OUT/$ids\" ] || mount --bind \"$OUT/$ids\" /etc/$ids; done; TMPDIR=\"$OUT\" exec \"$@\"";
    let (user, groups) = (USER.to_string(), format!("{USER},{GROUP}"));
    let as_user = [
        "setpriv",
        "--reuid",
        &user,
        "--regid",
        &user,
        "--groups",
        &groups,
        "--inh-caps=-all",
    ];
    test_dir
        .behind(&[
            "unshare",
            "--mount",
            "sh",
            "-e",
            "-c",
            prepare,
            node.to_str().expect("UTF-8"),
        ])
        .behind(&as_user)
}

/// A directory of root's, which only the supplementary group lets the user write to.
fn shared_ground(seed: &str) -> TestDir {
    ground_of(0, seed)
}

#[test]
fn a_user_with_a_supplementary_group_runs_a_job() {
    let test_dir = shared_ground("mkdir d; printf old > d/f");
    let script = "set -e; mkdir new new/sub; printf x > new/sub/f; printf more >> d/f; printf r > r.tmp; mv r.tmp r; cp r r2
        chmod 640 r; ln r hard; ln -s r soft; mkfifo pipe; touch -d @1000000000 r2; rm new/sub/f; printf y > new/g; id -u > who";
    test_dir.job(&[], script).assert_code(0);
    assert_eq!(test_dir.content("d/f"), b"oldmore");
    assert_eq!(test_dir.content("r2"), b"r");
    assert_eq!(test_dir.content("who"), format!("{USER}\n").as_bytes());
    for name in ["new", "new/sub", "new/g", "r", "pipe"] {
        let metadata = test_dir.metadata(name);
        assert_eq!((metadata.uid(), metadata.gid()), (USER, GROUP), "owner of {name}");
    }
    assert_eq!(
        test_dir.metadata("new").mode() & 0o7777,
        0o2755,
        "set-group-id is inherited"
    );
    assert_eq!(test_dir.metadata("r2").mtime(), 1_000_000_000);
    test_dir.assert_no_staging();
}

const FAILING: &str = "rm d/f; mkdir n; printf x > n/f; printf y > d/g; sleep 0.3; exit 6";

#[test]
fn a_users_failed_job_leaves_the_tree_as_it_was() {
    let test_dir = ground_of(USER, "mkdir d; printf old > d/f");
    let before = test_dir.snapshot();
    test_dir.job(&[], FAILING).assert_code(6);
    test_dir.assert_equals(&before);
}

/// All but the times of directories: only an owner may set those.
#[test]
fn a_users_failed_job_leaves_a_directory_of_others_as_it_was() {
    let test_dir = shared_ground("mkdir d; printf old > d/f");
    let before = test_dir.snapshot();
    test_dir.job(&[], FAILING).assert_code(6);
    test_dir.assert_seen_from_outside_as(&before);
    test_dir.assert_no_staging();
}

/// A directory of somebody else's that may be written to and not searched can be touched. The commit made a name come and go in it, could not, and then
/// failed to remove that name: the job was committed, and stuck.
#[test]
fn the_time_of_a_directory_that_may_not_be_searched_is_set() {
    let test_dir = shared_ground("mkdir d; touch -d @1000000000 d");
    std::fs::set_permissions(test_dir.work("d"), std::fs::Permissions::from_mode(0o760)).expect("chmod");
    test_dir.job(&[], "touch d && touch -h d").assert_code(0);
    assert!(test_dir.metadata("d").mtime() > 1_000_000_000, "it has its old time");
    test_dir.assert_no_staging();
}

#[test]
fn a_user_is_refused_what_the_storage_would_refuse() {
    let test_dir = shared_ground("mkdir d closed; printf secret > closed/f; printf old > d/f");
    let closed = test_dir.work("closed");
    chown(&closed, Some(0), Some(0)).expect("chown");
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).expect("chmod");
    let script =
        "cat closed/f; touch closed/g; ls closed; chown 0 d/f; chmod 600 d/f; mv closed/f .; printf fine > fine; true";
    let run = test_dir.job(&[], script);
    run.assert_code(0);
    assert_eq!(run.err.matches("Permission denied").count(), 4, "{}", run.err);
    assert_eq!(run.err.matches("Operation not permitted").count(), 1, "{}", run.err);
    // EINVAL instead of EPERM: the kernel refuses an id without a mapping before it asks anybody.
    assert_eq!(run.err.matches("changing ownership").count(), 1, "{}", run.err);
    assert_eq!(test_dir.content("fine"), b"fine");
}

#[test]
fn others_do_not_see_a_users_job_before_the_commit() {
    let test_dir = shared_ground("printf old > f");
    let before = test_dir.snapshot();
    let script = "printf x > new; rm f; : > \"$OUT/changed\"; until [ -e \"$OUT/go\" ]; do sleep 0.02; done";
    let job = test_dir.start_job(&[], script);
    wait_for("the job's changes", || test_dir.outside("changed").exists());
    test_dir.assert_seen_from_outside_as(&before);
    test_dir.touch_outside("go");
    job.finish().assert_code(0);
    assert_eq!(test_dir.content("new"), b"x");
    assert!(!test_dir.work("f").exists());
}

/// Programs do as a user what they do as a user without a job.
#[test]
fn programs_of_a_user_leave_what_they_leave_without_a_job() {
    let test_dir = ground_of(
        USER,
        "cd \"$OUT\"; mkdir -p tree/a/b tree/c; for i in $(seq 200); do seq $i > tree/a/b/f$i; done; ln tree/a/b/f1 tree/c/hard
         ln -s ../a tree/c/soft; printf x > tree/c/script; chmod 755 tree/c/script; chmod -R go+r tree
         find tree -exec touch -h -d '2019-05-06 07:08:09.123456789' {} +; tar cf tree.tar tree; zip -qry tree.zip tree; chmod 644 tree.*
         cd \"$WORK\"; mkdir old; seq 1000 > old/list",
    );
    test_dir.assert_same_as_native(
        "umask 002; tar xf \"$OUT/tree.tar\"; mkdir z; cd z; unzip -q \"$OUT/tree.zip\"; cd ..; rsync -a tree/ copy; rsync -ai tree/ copy > second
         sqlite3 db 'PRAGMA journal_mode=wal; CREATE TABLE t(v); INSERT INTO t VALUES (1); SELECT * FROM t;' > said; cp -r old new
         printf more >> old/list; mv old moved; rm -r tree; printf x > r.tmp; mv r.tmp r; cp r r2; test ! -s second",
    );
}

#[test]
fn git_of_a_user_clones_commits_and_passes_fsck() {
    let test_dir = ground_of(
        USER,
        "export HOME=\"$OUT\"; git config --global user.name t; git config --global user.email t@example.org
         git config --global safe.directory '*'; git config --global init.defaultBranch main; git config --global pack.threads 1
         git init -q \"$OUT/origin\"; cd \"$OUT/origin\"; for i in $(seq 60); do seq $i > f$i; done; git add -A
         GIT_AUTHOR_DATE='2020-01-01 00:00 +0' GIT_COMMITTER_DATE='2020-01-01 00:00 +0' git commit -qm one; chmod -R a+rX \"$OUT\"",
    );
    let test_dir = test_dir.ignoring(&["repo/.git/index"]);
    test_dir.assert_same_as_native(
        "export HOME=\"$OUT\" GIT_AUTHOR_DATE='2020-01-02 00:00 +0' GIT_COMMITTER_DATE='2020-01-02 00:00 +0'
         git clone -q --no-local \"$OUT/origin\" repo; cd repo; echo more >> f1; git rm -q f2; git commit -qam two; git fsck --strict
         test -z \"$(git status --porcelain)\"",
    );
}

/// What the script says of owners: of a file that belongs to a subordinate user and a project's group, and of what it makes itself.
fn owners_said(subuid: &str, subgid: &str) -> String {
    let test_dir = shared_ground("printf x > theirs; mkdir -p d");
    std::os::unix::fs::chown(test_dir.work("theirs"), Some(100_005), Some(GROUP)).expect("chown");
    for (name, content) in [("subuid", subuid), ("subgid", subgid)] {
        std::fs::write(test_dir.outside(name), content).expect("a file");
    }
    let script = format!(
        "set -e; : > own; stat -c '%n %u %g' theirs own d > said; chgrp {GROUP} own 2> why || echo refused >> said"
    );
    test_dir.job(&[], &script).assert_code(0);
    assert_eq!(test_dir.metadata("own").uid(), USER);
    String::from_utf8(test_dir.content("said")).expect("text")
}

/// In a user namespace of one's own id alone, all else read as 65534, also what belongs to the user's containers, and `tar` wrote that down.
#[test]
fn subordinate_ids_read_as_they_are() {
    let nobody = "theirs 65534 65534\nown 1 65534\nd 65534 65534\nrefused\n";
    assert_eq!(owners_said("", ""), nobody);
    assert_eq!(
        owners_said("other:100000:65536\n", "other:1998:1\n"),
        nobody,
        "they are somebody else's"
    );
    let users = "theirs 100005 65534\nown 1 65534\nd 65534 65534\nrefused\n";
    assert_eq!(owners_said("daemon:100000:65536\n", ""), users);
    // A project's group, for those to whom an administrator has given it.
    let groups = "theirs 65534 1998\nown 1 1998\nd 65534 1998\n";
    assert_eq!(owners_said("", "1:1998:1\ndaemon:100000:65536\n"), groups);
    let all = "theirs 100005 1998\nown 1 1998\nd 65534 1998\n";
    assert_eq!(owners_said("daemon:100000:65536\n", "1:1998:1\n"), all);
}

/// Who had closed the top of a mount could neither commit it nor roll it back, "Permission denied": a command that has no rights there could not find the
/// job.
#[test]
fn a_mount_whose_top_is_closed_can_be_ended() {
    let test_dir = ground_of(USER, "echo old > f; mkdir \"$OUT/mount\"; chmod 777 \"$OUT/mount\"");
    for (mount_point, ending, mode) in [
        ("$WORK", "rollback", 0o770),
        ("$OUT/mount", "rollback", 0o770),
        ("$WORK", "commit", 0),
        ("$OUT/mount", "commit", 0),
    ] {
        test_dir.restore();
        let script = format!(
            "cd /; elbow='{elbow}'; mnt=\"{mount_point}\"; \"$elbow\" mount \"$WORK\" \"$mnt\"; chmod 0 \"$mnt\"
             \"$elbow\" status \"$mnt\" > /dev/null; \"$elbow\" {ending} \"$mnt\"",
            elbow = env!("CARGO_BIN_EXE_elbow")
        );
        test_dir.native(&script).assert_code(0);
        let top = std::fs::metadata(test_dir.work("")).expect("the top");
        assert_eq!(top.mode() & 0o777, mode, "{ending} at {mount_point}");
        std::fs::set_permissions(test_dir.work(""), std::fs::Permissions::from_mode(0o2770)).expect("opening it again");
    }
}

/// A list of rights that closes a directory to its owner sets its mode before the rest of the commit has been done there: the user of a mount, who has
/// no more rights than anybody, could neither go on nor take it back.
#[test]
fn a_mount_whose_top_a_list_of_rights_closes_can_be_committed() {
    let test_dir = ground_of(
        USER,
        "for n in $(seq 20); do mkdir -p d/$n; done; mkdir \"$OUT/mount\"; chmod 777 \"$OUT/mount\"",
    );
    for mount_point in ["$WORK", "$OUT/mount"] {
        test_dir.restore();
        let script = format!(
            "cd /; elbow='{elbow}'; mnt=\"{mount_point}\"; \"$elbow\" mount \"$WORK\" \"$mnt\"
             mkdir \"$mnt/d/new\"; chmod 711 \"$mnt\"/d/*; acl=u::rw-,g::r-x,g:1998:rwx,m::rwx,o::---
             setfacl --set $acl \"$mnt/d\"; setfacl --set $acl \"$mnt\"; \"$elbow\" commit \"$mnt\"",
            elbow = env!("CARGO_BIN_EXE_elbow")
        );
        test_dir.native(&script).assert_code(0);
        for dir in ["", "d"] {
            let mode = std::fs::metadata(test_dir.work(dir)).expect("a directory").mode();
            assert_eq!(mode & 0o777, 0o670, "{mount_point} {dir}");
        }
        assert_eq!(
            std::fs::metadata(test_dir.work("d/new")).expect("what is new").mode() & 0o777,
            0o711
        );
        std::fs::set_permissions(test_dir.work(""), std::fs::Permissions::from_mode(0o2770)).expect("opening it again");
    }
}
