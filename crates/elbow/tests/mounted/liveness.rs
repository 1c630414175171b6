//! A living job is known by its lock, whatever its manifest says of processes and machines: seen from where its process has no number,
//! or another one, it was rolled back under its command. And one that is dead is known at once.

use std::fs;

use crate::commands::{Place, Run};
use crate::test_dir::{TestDir, wait_for};

const OLD: &str = "printf old > old";
const WAITS: &str = "printf new > new; printf more >> old; : > \"$OUT/changed\"; until [ -e \"$OUT/go\" ]; do sleep 0.02; done; cat new > \"$OUT/seen\"";

/// Somebody else's look at a running job: it lives, and commits.
fn assert_lives_behind(words: &[&str]) {
    let test_dir = TestDir::new(OLD);
    test_dir.restore();
    let (work, out) = (test_dir.work(""), test_dir.outside(""));
    let job = Place { work: &work, out: &out }.start_job(words, &[], WAITS);
    wait_for("the job's changes", || {
        test_dir.outside("changed").exists() && test_dir.staging_directories() > 0
    });
    for options in [&["recover", "."][..], &["recover", ".", "--force"]] {
        let said = test_dir.elbow(options);
        said.assert_code(0);
        assert!(said.out.contains("still running"), "{}", said.out);
    }
    test_dir.job(&[], "printf x > beside").assert_code(0);
    test_dir.touch_outside("go");
    let run = job.finish();
    run.assert_code(0);
    assert_eq!(test_dir.content("old"), b"oldmore");
    assert_eq!(test_dir.content("new"), b"new");
    assert_eq!(fs::read(test_dir.outside("seen")).expect("what the job saw"), b"new");
    test_dir.assert_no_staging();
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
    let test_dir = TestDir::new(OLD);
    let before = test_dir.restore();
    let job = test_dir.start_job(&[], &format!("(setsid sleep 60 &); {WAITS}"));
    wait_for("the job's changes", || {
        let own = std::fs::read_dir(test_dir.work("")).expect("a directory").flatten();
        let is_told = own
            .map(|entry| entry.path().join("job"))
            .any(|manifest| manifest.exists());
        test_dir.outside("changed").exists() && is_told
    });
    job.kill_alone();
    let said: Run = test_dir.elbow(&["recover", "."]);
    said.assert_code(0);
    assert!(said.out.contains("nothing of it is left"), "{}", said.out);
    test_dir.assert_equals(&before);
}

/// Two recoveries removed what the other one looked for.
#[test]
fn recoveries_at_once_do_not_disturb_each_other() {
    const RECOVERIES: usize = 6;
    let test_dir = TestDir::new(&format!(
        "{OLD}; for i in $(seq 20); do mkdir d$i; printf x > d$i/old; done"
    ));
    for _ in 0..4 {
        let before = test_dir.restore();
        let _ = fs::remove_file(test_dir.outside("changed"));
        let script = "for i in $(seq 20); do for j in $(seq 10); do printf y > d$i/$j; done; rm d$i/old; done";
        let job = test_dir.start_job(&[], &format!("{script}; sleep 0.3; {WAITS}"));
        wait_for("the job's changes", || {
            test_dir.outside("changed").exists() && test_dir.staging_directories() > 20
        });
        job.kill();
        let (work, out) = (test_dir.work(""), test_dir.outside(""));
        let words = [env!("CARGO_BIN_EXE_elbow"), "recover", "."];
        let recoveries: Vec<_> = (0..RECOVERIES)
            .map(|_| Place { work: &work, out: &out }.start(&words))
            .collect();
        let said: Vec<Run> = recoveries.into_iter().map(crate::test_dir::Running::finish).collect();
        said.iter().for_each(|said| said.assert_code(0));
        let ended = said
            .iter()
            .filter(|said| said.out.contains("nothing of it is left"))
            .count();
        assert_eq!(ended, 1, "{said:#?}");
        test_dir.assert_equals(&before);
    }
}
