//! The same as an ordinary user: no root, a private namespace of one's own, `fusermount3`, groups that keep their meaning.
//!
//! The user is `daemon`, who is on every machine (fusermount3 wants a name), with the supplementary group 1998, which is
//! the only right it has to the directory of the job. `/dev/fuse` is open to everybody, as it usually is, by a bind mount
//! of a node of our own.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use crate::ground::{Ground, Run, Running, wait_for};

const USER: u32 = 1;
const GROUP: u32 = 1998;

/// A ground whose job directory belongs to root and the supplementary group, with set-group-id, as shared project directories do.
fn shared_ground(seed: &str) -> Ground {
    let ground = Ground::new(&format!(
        "{seed}\nchown -R 0:{GROUP} .; find . -type d -exec chmod 2770 {{}} +; find . -type f -exec chmod 660 {{}} +"
    ));
    for path in [ground.root(), ground.outside("")] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777))
            .expect("opening the ground to the user");
    }
    ground.restore();
    ground
}

/// Starts a script as a job of the user.
fn start_as_user(ground: &Ground, script: &str) -> Running {
    let node = ground.outside("fuse");
    let node = node.to_str().expect("UTF-8");
    // /dev/fuse is always character device 10:229.
    let prepare =
        "[ -e \"$0\" ] || mknod -m 666 \"$0\" c 10 229; mount --bind \"$0\" /dev/fuse; TMPDIR=\"$OUT\" exec \"$@\"";
    let (user, groups) = (USER.to_string(), format!("{USER},{GROUP}"));
    let behind = ["unshare", "--mount", "sh", "-e", "-c", prepare, node];
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
    ground.start_job_behind(&[&behind[..], &as_user].concat(), &[], script)
}

fn job_as_user(ground: &Ground, script: &str) -> Run {
    start_as_user(ground, script).finish()
}

#[test]
fn a_user_with_a_supplementary_group_runs_a_job() {
    let ground = shared_ground("mkdir d; printf old > d/f");
    let script = "set -e; mkdir new new/sub; printf x > new/sub/f; printf more >> d/f; printf r > r.tmp; mv r.tmp r; cp r r2
        chmod 640 r; ln r hard; ln -s r soft; mkfifo pipe; touch -d @1000000000 r2; rm new/sub/f; printf y > new/g; id -u > who";
    job_as_user(&ground, script).assert_code(0);
    assert_eq!(ground.content("d/f"), b"oldmore");
    assert_eq!(ground.content("r2"), b"r");
    assert_eq!(ground.content("who"), format!("{USER}\n").as_bytes());
    for name in ["new", "new/sub", "new/g", "r", "pipe"] {
        let metadata = ground.metadata(name);
        assert_eq!((metadata.uid(), metadata.gid()), (USER, GROUP), "owner of {name}");
    }
    assert_eq!(
        ground.metadata("new").mode() & 0o7777,
        0o2755,
        "set-group-id is inherited"
    );
    assert_eq!(ground.metadata("r2").mtime(), 1_000_000_000);
    ground.assert_no_staging();
}

#[test]
fn a_users_failed_job_leaves_the_tree_as_it_was() {
    let ground = shared_ground("mkdir d; printf old > d/f");
    let before = ground.snapshot();
    job_as_user(&ground, "rm d/f; mkdir n; printf x > n/f; printf y > d/g; exit 6").assert_code(6);
    ground.assert_equals(&before);
}

#[test]
fn a_user_is_refused_what_the_storage_would_refuse() {
    let ground = shared_ground("mkdir d closed; printf secret > closed/f; printf old > d/f");
    let closed = ground.work("closed");
    chown(&closed, Some(0), Some(0)).expect("chown");
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).expect("chmod");
    let script =
        "cat closed/f; touch closed/g; ls closed; chown 0 d/f; chmod 600 d/f; mv closed/f .; printf fine > fine; true";
    let run = job_as_user(&ground, script);
    run.assert_code(0);
    assert_eq!(run.err.matches("Permission denied").count(), 4, "{}", run.err);
    assert_eq!(run.err.matches("Operation not permitted").count(), 1, "{}", run.err);
    // EINVAL instead of EPERM: the kernel refuses an id without a mapping before it asks anybody.
    assert_eq!(run.err.matches("changing ownership").count(), 1, "{}", run.err);
    assert_eq!(ground.content("fine"), b"fine");
}

#[test]
fn others_do_not_see_a_users_job_before_the_commit() {
    let ground = shared_ground("printf old > f");
    let before = ground.snapshot();
    let script = "printf x > new; rm f; : > \"$OUT/changed\"; until [ -e \"$OUT/go\" ]; do sleep 0.02; done";
    let job = start_as_user(&ground, script);
    wait_for("the job's changes", || ground.outside("changed").exists());
    ground.assert_seen_from_outside_as(&before);
    ground.touch_outside("go");
    job.finish().assert_code(0);
    assert_eq!(ground.content("new"), b"x");
    assert!(!ground.work("f").exists());
}
