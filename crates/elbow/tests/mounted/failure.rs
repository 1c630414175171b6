//! Jobs that fail, are killed, or meet an error in the background: nothing of them is visible afterwards, the
//! exit code is the documented one, and each error is reported exactly once.

use std::process::Command;
use std::time::Duration;

use elbow_testkit::slowfs::{Fault, Op, SlowOptions};

use crate::commands::Run;
use crate::loop_disk::LoopDisk;
use crate::slow_storage::SlowStorage;
use crate::test_dir::{TestDir, staging_below, wait_for};

const EACCES: i32 = 13;
const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const EDQUOT: i32 = 122;

const OLD: &str = "mkdir d; printf 1 > d/old; printf 2 > file";
const WORK: &str =
    "printf more >> file; rm d/old; mkdir new; for i in $(seq 40); do printf $i > new/$i; done; printf x > d/new";

#[test]
fn exit_codes_are_those_of_the_command() {
    let test_dir = TestDir::new(OLD);
    let before = test_dir.restore();
    for code in [1, 2, 42, 124, 255] {
        test_dir.job(&[], &format!("{WORK}; exit {code}")).assert_code(code);
        test_dir.assert_equals(&before);
    }
}

#[test]
fn a_command_that_cannot_be_run_gives_126_or_127() {
    let test_dir = TestDir::new("printf x > no-program");
    let before = test_dir.restore();
    test_dir
        .elbow(&["run", "--", "no-such-program-anywhere"])
        .assert_code(127);
    test_dir.elbow(&["run", "--", "./no-program"]).assert_code(126);
    test_dir.assert_equals(&before);
}

#[test]
fn a_command_killed_by_a_signal_gives_128_and_its_number() {
    let test_dir = TestDir::new(OLD);
    let before = test_dir.restore();
    test_dir
        .job(&[], &format!("{WORK}; kill -KILL $$"))
        .assert_code(128 + 9);
    test_dir.assert_equals(&before);
    test_dir
        .job(&[], &format!("{WORK}; kill -TERM $$"))
        .assert_code(128 + 15);
    test_dir.assert_equals(&before);
}

#[test]
fn an_interrupted_job_rolls_back_and_says_so() {
    // What starts the tests may ignore SIGINT (a shell does that to its background jobs), and so would the command.
    let test_dir = TestDir::new(OLD).behind(&["env", "--default-signal"]);
    let before = test_dir.restore();
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let _ = std::fs::remove_file(test_dir.outside("changed"));
        let job = test_dir.start_job(&[], &format!("{WORK}; : > \"$OUT/changed\"; exec sleep 60"));
        wait_for("the job's changes", || test_dir.outside("changed").exists());
        job.signal_group(signal);
        let run = job.finish();
        run.assert_code(code);
        assert!(run.err.contains("rolled back"), "it does not say so: {}", run.err);
        test_dir.assert_equals(&before);
    }
}

#[test]
fn a_killed_elbow_is_undone_by_recover() {
    let test_dir = TestDir::new(OLD);
    let before = test_dir.restore();
    let job = test_dir.start_job(&[], &format!("{WORK}; : > \"$OUT/changed\"; exec sleep 60"));
    wait_for("the job's changes", || {
        test_dir.outside("changed").exists() && test_dir.staging_directories() > 0
    });
    job.kill();
    test_dir.assert_seen_from_outside_as(&before);
    test_dir
        .elbow(&["recover", test_dir.work("").to_str().expect("UTF-8")])
        .assert_code(0);
    test_dir.assert_equals(&before);
}

#[test]
fn the_next_run_cleans_up_after_a_killed_one() {
    let test_dir = TestDir::new(OLD);
    let before = test_dir.restore();
    let job = test_dir.start_job(&[], &format!("{WORK}; : > \"$OUT/changed\"; exec sleep 60"));
    wait_for("the job's changes", || {
        test_dir.outside("changed").exists() && test_dir.staging_directories() > 0
    });
    job.kill();
    test_dir.job(&[], "exit 0").assert_code(0);
    test_dir.assert_equals(&before);
}

/// Somebody moves a directory that a job works in. A living job takes its staging out of it wherever that is; what a killed one
/// has left there is found by a search.
#[test]
fn staging_in_a_directory_that_was_moved_is_removed() {
    let Some(disk) = LoopDisk::new(64 << 20) else { return };
    let test_dir = TestDir::at(&disk.path(), "mkdir -p a/deep elsewhere; printf old > a/deep/file");
    let script = "printf new > a/deep/new; : > \"$OUT/changed\"; exec sleep 60";
    let mtime = |dir: &str| test_dir.metadata(dir).modified().expect("a time");
    let before = mtime("a/deep");
    let staged = |dir: &str| staging_below(&test_dir.work(dir)) > 0;
    for is_killed in [false, true] {
        test_dir.restore();
        let _ = std::fs::remove_file(test_dir.outside("changed"));
        let job = test_dir.start_job(&[], script);
        wait_for("staging", || test_dir.outside("changed").exists() && staged("a/deep"));
        std::fs::rename(test_dir.work("a"), test_dir.work("elsewhere/moved")).expect("the move");
        if is_killed {
            job.kill();
        } else {
            job.signal_group("TERM");
            job.finish().assert_code(143);
        }
        let work = test_dir.work("");
        let recover = ["recover", work.to_str().expect("UTF-8")];
        test_dir.elbow(&recover).assert_code(0);
        assert_eq!(staged("elsewhere/moved/deep"), is_killed);
        // Through a mount of a part the directories above cannot be seen.
        let part = format!(
            "mount --bind '{}' '{1}'; '{2}' recover --search '{1}'",
            test_dir.work("elsewhere/moved").display(),
            test_dir.outside("").display(),
            env!("CARGO_BIN_EXE_elbow"),
        );
        let apart = Command::new("unshare")
            .args(["--mount", "sh", "-c", &part])
            .output()
            .expect("unshare");
        assert_eq!(apart.status.code(), Some(if is_killed { 125 } else { 0 }), "{apart:?}");
        assert_eq!(staged("elsewhere/moved/deep"), is_killed);
        let searched = test_dir.elbow(&[&recover[..], &["--search"]].concat());
        searched.assert_code(0);
        assert_eq!(
            searched.out.contains("elsewhere/moved/deep"),
            is_killed,
            "{}",
            searched.out
        );
        assert!(!staged("elsewhere/moved/deep"));
        // What its time was went with the journal of the killed one.
        assert!(is_killed || mtime("elsewhere/moved/deep") == before);
    }
}

/// The command itself meets the full disk, as it would without a job.
#[test]
fn a_full_disk_is_told_to_the_command() {
    let Some(disk) = LoopDisk::new(24 << 20) else { return };
    let test_dir = TestDir::at(&disk.path(), OLD);
    let before = test_dir.restore();
    let run = test_dir.job(&[], &format!("{WORK}; head -c 100000000 /dev/zero > big"));
    run.assert_code(1);
    assert!(run.err.contains("No space left on device"), "{}", run.err);
    test_dir.assert_equals(&before);
}

/// Somebody else takes the room that the job had been promised.
#[test]
fn a_disk_filled_by_somebody_else_rolls_the_job_back() {
    let Some(disk) = LoopDisk::new(24 << 20) else { return };
    let test_dir = TestDir::at(&disk.path(), OLD);
    let before = test_dir.restore();
    let script = ": > \"$OUT/changed\"; until [ -e \"$OUT/go\" ]; do sleep 0.02; done; for i in 1 2 3 4 5 6; do head -c 2000000 /dev/zero > f$i; done";
    let job = test_dir.start_job(&["--no-keep"], script);
    wait_for("the job", || test_dir.outside("changed").exists());
    let filler = disk.fill();
    test_dir.touch_outside("go");
    let run = job.finish();
    assert_ne!(run.code, 0, "{}", run.err);
    assert!(run.err.contains("No space left on device"), "{}", run.err);
    std::fs::remove_file(filler).expect("removing the filler");
    test_dir.assert_equals(&before);
}

/// One fault in one kind of operation, the script's last (afterwards its own calls would fail): 125, one line that names operation, path and error, nothing
/// visible. Without keeping nothing is left of it; by default it is saved, and `elbow resume` stores what the job without a fault would have stored.
fn assert_fault_rolls_back_or_waits(op: Op, errno: i32, words: &str, script: &str) {
    assert_fault_rolls_back(op, errno, words, script);
    let (test_dir, scratch) = (slow_storage(), tempfile::tempdir().expect("a directory"));
    let before = test_dir.snapshot_below();
    let scratch = ["--scratch", scratch.path().to_str().expect("UTF-8")];
    // Twice, because what finds no room is tried once more.
    test_dir.set_faults(vec![Fault::new(op, errno).name("victim*").count(2)]);
    let run = test_dir.job(&scratch, script);
    assert_is_told(&run, words);
    assert!(run.err.contains("elbow resume"), "{}", run.err);
    test_dir.assert_seen_from_outside_as(&before);
    test_dir.set_faults(Vec::new());
    test_dir.resume(&scratch).assert_code(0);
    test_dir.assert_no_staging();
    let without_fault = slow_storage();
    without_fault.job(&[], script).assert_code(0);
    let content = |test_dir: &SlowStorage| {
        let mut tree = test_dir.snapshot_below();
        tree.entries.values_mut().for_each(|entry| entry.mtime_ns = 0);
        tree
    };
    content(&test_dir).assert_equals(&content(&without_fault));
}

fn assert_fault_rolls_back(op: Op, errno: i32, words: &str, script: &str) {
    let test_dir = slow_storage();
    let before = test_dir.snapshot_below();
    test_dir.set_faults(vec![Fault::new(op, errno).name("victim*").count(1)]);
    let run = test_dir.job(&["--no-keep"], script);
    assert_eq!(test_dir.faults_fired(), 1, "the fault did not happen: {}", run.err);
    assert_is_told(&run, words);
    assert_eq!(test_dir.snapshot_below(), before, "{}", run.err);
}

fn slow_storage() -> SlowStorage {
    let options = SlowOptions {
        latency: Duration::from_millis(1),
        ..SlowOptions::default()
    };
    SlowStorage::new(OLD, &options)
}

fn assert_is_told(run: &Run, words: &str) {
    run.assert_code(125);
    let told: Vec<&str> = run.err.lines().filter(|line| line.contains(words)).collect();
    assert_eq!(told.len(), 1, "the error is not reported exactly once:\n{}", run.err);
    assert!(told[0].contains("victim"), "the path is missing: {}", told[0]);
}

#[test]
fn an_io_error_in_a_deferred_write_rolls_back() {
    assert_fault_rolls_back_or_waits(
        Op::Write,
        EIO,
        "Input/output error",
        "printf y > other; printf more >> file; printf x > victim",
    );
}

#[test]
fn an_io_error_in_a_deferred_create_rolls_back() {
    assert_fault_rolls_back_or_waits(
        Op::Create,
        EIO,
        "Input/output error",
        "mkdir new; for i in $(seq 30); do printf x > new/f$i; done; printf x > new/victim",
    );
}

#[test]
fn a_refused_directory_rolls_back() {
    assert_fault_rolls_back_or_waits(
        Op::Mkdir,
        EACCES,
        "Permission denied",
        "mkdir -p a/b/c; printf y > a/d; mkdir a/b/c/victim",
    );
}

#[test]
fn a_full_disk_in_a_deferred_write_rolls_back() {
    assert_fault_rolls_back_or_waits(
        Op::Write,
        ENOSPC,
        "No space left on device",
        "mkdir new; printf more >> file; seq 100000 > new/victim",
    );
}

#[test]
fn a_full_quota_in_a_deferred_write_rolls_back() {
    assert_fault_rolls_back_or_waits(Op::Write, EDQUOT, "Disk quota exceeded", "seq 100000 > victim");
}

/// What had no room when it was to be stored is in memory still, and is tried once more at the end.
#[test]
fn room_that_is_there_again_at_the_end_is_used() {
    let test_dir = SlowStorage::new(OLD, &SlowOptions::default());
    let before = test_dir.snapshot_below();
    let script = "mkdir new; printf more >> file; seq 100000 > new/victim";
    test_dir.set_faults(vec![Fault::new(Op::Write, ENOSPC).name("victim*").count(1)]);
    let run = test_dir.job(&[], script);
    assert_eq!(test_dir.faults_fired(), 1, "the fault did not happen: {}", run.err);
    run.assert_code(0);
    assert!(
        run.err.contains("done at the end (1)") && run.err.contains("new/victim"),
        "{}",
        run.err
    );
    assert_ne!(test_dir.snapshot_below(), before);
    // As long as there is none, nothing is stored, and each refusal is told once.
    test_dir.set_faults(vec![Fault::new(Op::Write, ENOSPC).name("other*")]);
    let before = test_dir.snapshot_below();
    let run = test_dir.job(&["--no-keep"], "seq 100000 > other");
    run.assert_code(125);
    assert_eq!(run.err.matches("No space left on device").count(), 1, "{}", run.err);
    assert_eq!(test_dir.snapshot_below(), before, "{}", run.err);
    // By default it is saved, and stored later.
    let scratch = tempfile::tempdir().expect("a directory");
    let scratch = ["--scratch", scratch.path().to_str().expect("UTF-8")];
    let run = test_dir.job(&scratch, "seq 100000 > other");
    run.assert_code(125);
    assert_eq!(run.err.matches("No space left on device").count(), 1, "{}", run.err);
    assert!(!test_dir.below("other").exists());
    test_dir.set_faults(Vec::new());
    test_dir.resume(&scratch).assert_code(0);
    test_dir.assert_no_staging();
    let stored = std::fs::read_to_string(test_dir.below("other")).expect("it is stored");
    assert!(stored.ends_with("\n100000\n"), "{} bytes", stored.len());
}

/// Hours of results were thrown away to be made again, and lost when that failed.
#[test]
fn what_the_storage_refuses_is_kept_and_not_made_again_by_a_retry() {
    let script = "echo try >> \"$OUT/tries\"; seq 100000 > victim";
    for (options, tries) in [(&[][..], 1), (&["--keep"], 1), (&["--no-keep"], 3)] {
        let test_dir = SlowStorage::new(OLD, &SlowOptions::default());
        let before = test_dir.snapshot_below();
        let scratch = tempfile::tempdir().expect("a directory");
        let scratch = ["--scratch", scratch.path().to_str().expect("UTF-8")];
        test_dir.set_faults(vec![Fault::new(Op::Write, ENOSPC).name("victim*")]);
        let run = test_dir.job(&[&["--retry", "2"], options, &scratch].concat(), script);
        run.assert_code(125);
        assert!(test_dir.faults_fired() > 0, "the fault did not happen: {}", run.err);
        let made = std::fs::read_to_string(test_dir.outside().join("tries")).expect("tries");
        assert_eq!(made.lines().count(), tries, "{}", run.err);
        assert_eq!(run.err.matches("running it again").count(), tries - 1, "{}", run.err);
        test_dir.assert_seen_from_outside_as(&before);
        test_dir.set_faults(Vec::new());
        if tries == 1 {
            assert!(run.err.contains("elbow resume"), "{}", run.err);
            test_dir.resume(&scratch).assert_code(0);
            let stored = std::fs::read_to_string(test_dir.below("victim")).expect("it is stored");
            assert!(stored.ends_with("\n100000\n"), "{} bytes", stored.len());
        }
        test_dir.assert_no_staging();
    }
}

/// The same where the storage refuses to publish what is staged.
#[test]
fn what_cannot_be_published_is_kept_and_not_made_again_by_a_retry() {
    let test_dir = SlowStorage::new(OLD, &SlowOptions::default());
    let before = test_dir.snapshot_below();
    test_dir.set_faults(vec![Fault::new(Op::Rename, EIO).name("victim*")]);
    let run = test_dir.job(
        &["--retry", "1"],
        "echo try >> \"$OUT/tries\"; printf more >> file; echo x > victim",
    );
    run.assert_code(125);
    assert!(test_dir.faults_fired() > 0, "the fault did not happen: {}", run.err);
    assert!(
        run.err.contains("elbow resume") && !run.err.contains("running it again"),
        "{}",
        run.err
    );
    test_dir.assert_seen_from_outside_as(&before);
    test_dir.set_faults(Vec::new());
    test_dir.resume(&[]).assert_code(0);
    assert_eq!(std::fs::read(test_dir.below("victim")).expect("it is stored"), b"x\n");
    test_dir.assert_no_staging();
}

#[test]
fn a_refused_symbolic_link_rolls_back() {
    assert_fault_rolls_back_or_waits(
        Op::Symlink,
        EIO,
        "Input/output error",
        "mkdir n; printf x > n/f; ln -s there n/victim",
    );
}

/// A command that fails after a deferred error keeps its own exit code; the error is still reported.
#[test]
fn a_failing_command_keeps_its_exit_code_beside_a_deferred_error() {
    let test_dir = SlowStorage::new(OLD, &SlowOptions::default());
    let before = test_dir.snapshot_below();
    test_dir.set_faults(vec![Fault::new(Op::Write, EIO).name("victim*").count(1)]);
    let job = test_dir.start_job(
        &[],
        "printf x > victim; until [ -e $OUT/go ]; do sleep 0.02; done; exit 7",
    );
    wait_for("the fault", || test_dir.faults_fired() == 1);
    std::fs::write(test_dir.outside().join("go"), "").expect("a file");
    let run = job.finish();
    run.assert_code(7);
    assert_eq!(run.err.matches("Input/output error").count(), 1, "{}", run.err);
    assert_eq!(test_dir.snapshot_below(), before);
}

#[test]
fn each_of_several_errors_is_reported_once() {
    let test_dir = SlowStorage::new(
        OLD,
        &SlowOptions {
            latency: Duration::from_millis(100),
            ..SlowOptions::default()
        },
    );
    let before = test_dir.snapshot_below();
    test_dir.set_faults(vec![Fault::new(Op::Write, EIO).name("victim*").count(3)]);
    // In a directory each, because the kernel lets one creation at a time into one.
    let script = "mkdir a b c; printf fine > other; : > $OUT/made; until [ -e $OUT/go ]; do sleep 0.02; done
        printf x | tee a/victim1 b/victim2 c/victim3";
    let job = test_dir.start_job(&["--no-keep"], script);
    let out = test_dir.outside();
    wait_for("the directories", || out.join("made").exists());
    test_dir.wait_for_the_drain();
    // After the first error nothing begins any more: all three are under way before it comes.
    test_dir.pause();
    std::fs::write(out.join("go"), "").expect("a file");
    wait_for("the three files", || test_dir.waiting() >= 3);
    test_dir.go_on();
    let run = job.finish();
    assert_eq!(test_dir.faults_fired(), 3, "the faults did not happen: {}", run.err);
    run.assert_code(125);
    for name in ["victim1", "victim2", "victim3"] {
        assert_eq!(run.err.matches(name).count(), 1, "{name} in:\n{}", run.err);
    }
    assert_eq!(test_dir.snapshot_below(), before);
}

/// While results are stored, a process that the command has left behind still sees the job, and can change it no more.
#[test]
fn what_a_process_left_behind_writes_afterwards_is_refused() {
    let test_dir = slow_storage();
    let script = "exec >/dev/null 2>&1 </dev/null; printf x > new
        (n=0; while echo $n > late$n; do n=$((n + 1)); sleep 0.02; done; touch late$n 2> \"$OUT/why\"; echo $n > \"$OUT/said\") &
        until [ -e late3 ]; do sleep 0.02; done; : > \"$OUT/ready\"; until [ -e \"$OUT/go\" ]; do sleep 0.02; done";
    let job = test_dir.start_job(&[], script);
    let out = test_dir.outside();
    wait_for("the command", || out.join("ready").exists());
    test_dir.pause();
    std::fs::write(out.join("go"), "").expect("a file");
    wait_for("a refusal", || {
        std::fs::read_to_string(out.join("said")).is_ok_and(|said| said.ends_with('\n'))
    });
    test_dir.go_on();
    job.finish().assert_code(0);
    let read = |name| std::fs::read_to_string(out.join(name)).expect("what the process said");
    assert!(read("why").contains("Read-only file system"), "{}", read("why"));
    let refused: usize = read("said").trim().parse().expect("a number");
    for number in 0..refused {
        let stored = std::fs::read_to_string(test_dir.below(&format!("late{number}"))).expect("it was in time");
        assert_eq!(stored, format!("{number}\n"));
    }
    assert!(!test_dir.below(&format!("late{refused}")).exists());
    test_dir.assert_no_staging();
}

#[test]
fn a_process_left_in_the_background_does_not_hold_up_the_end() {
    let test_dir = TestDir::new(OLD);
    test_dir.restore();
    // It sleeps for longer than a job is waited for.
    let run = test_dir.job(
        &[],
        "printf x > new; sleep 1000 >/dev/null 2>&1 </dev/null & echo $! > \"$OUT/pid\"; exit 0",
    );
    let pid = std::fs::read_to_string(test_dir.outside("pid")).expect("the number of a process");
    let command = std::fs::read(format!("/proc/{}/cmdline", pid.trim())).unwrap_or_default();
    assert_eq!(
        command, b"sleep\x001000\x00",
        "the job waited for a process in the background"
    );
    let killed = Command::new("kill").arg(pid.trim()).status();
    assert!(killed.expect("kill").success());
    run.assert_code(0);
    test_dir.assert_no_staging();
}
