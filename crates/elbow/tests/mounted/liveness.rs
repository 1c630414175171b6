//! A living job is known by its lock, whatever its manifest says of processes and machines: seen from where its process has no number,
//! or another one, it was rolled back under its command. And one that is dead is known at once.

use std::fs;

use crate::commands::{Place, Run};
use crate::ground::{Ground, wait_for};

const OLD: &str = "printf old > old";
const WAITS: &str = "printf new > new; printf more >> old; : > \"$OUT/changed\"; until [ -e \"$OUT/go\" ]; do sleep 0.02; done; cat new > \"$OUT/seen\"";

/// Somebody else's look at a running job: it lives, and commits.
fn assert_lives_behind(words: &[&str]) {
    let ground = Ground::new(OLD);
    ground.restore();
    let (work, out) = (ground.work(""), ground.outside(""));
    let job = Place { work: &work, out: &out }.start_job(words, &[], WAITS);
    wait_for("the job's changes", || {
        ground.outside("changed").exists() && ground.staging_directories() > 0
    });
    for options in [&["recover", "."][..], &["recover", ".", "--force"]] {
        let said = ground.elbow(options);
        said.assert_code(0);
        assert!(said.out.contains("still running"), "{}", said.out);
    }
    ground.job(&[], "printf x > beside").assert_code(0);
    ground.touch_outside("go");
    let run = job.finish();
    run.assert_code(0);
    assert_eq!(ground.content("old"), b"oldmore");
    assert_eq!(ground.content("new"), b"new");
    assert_eq!(fs::read(ground.outside("seen")).expect("what the job saw"), b"new");
    ground.assert_no_staging();
}

#[test]
fn a_job_in_another_pid_namespace_lives() {
    assert_lives_behind(&["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]);
}

#[test]
fn a_job_on_a_machine_of_another_name_lives() {
    assert_lives_behind(&["unshare", "--uts", "sh", "-c", "hostname elsewhere; exec \"$@\"", "sh"]);
}

/// Its boot is another one, as on another machine; the name is the same.
#[test]
fn a_job_on_another_machine_of_the_same_name_lives() {
    let script =
        "cat /proc/sys/kernel/random/uuid > \"$OUT/boot\"; mount --bind \"$OUT/boot\" /proc/sys/kernel/random/boot_id
        exec \"$@\"";
    assert_lives_behind(&["unshare", "--mount", "sh", "-e", "-c", script, "sh"]);
}

/// The lock goes with the process, whatever it has started.
#[test]
fn a_killed_job_is_dead_at_once() {
    let ground = Ground::new(OLD);
    let before = ground.restore();
    let job = ground.start_job(&[], &format!("(setsid sleep 60 &); {WAITS}"));
    wait_for("the job's changes", || {
        ground.outside("changed").exists() && ground.staging_directories() > 0
    });
    job.kill_alone();
    let said: Run = ground.elbow(&["recover", "."]);
    said.assert_code(0);
    assert!(said.out.contains("nothing of it is left"), "{}", said.out);
    ground.assert_equals(&before);
}
