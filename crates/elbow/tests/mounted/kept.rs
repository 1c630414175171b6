//! Results that a command has earned and the storage refuses to publish: they are kept out of sight, and `elbow resume` goes on with
//! them when the cause is gone.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::loop_disk::LoopDisk;
use crate::ordinary_user::{USER, as_user};
use crate::test_dir::{Run, TestDir, wait_for};

const OLD: &str =
    "head -c 8000000 /dev/urandom > big; mkdir -p d/sub; printf x > d/sub/f; printf old > fixed; printf keep > other";

/// Changes a bit of everything, waits for a sign from outside, and succeeds.
const SCRIPT: &str =
    "set -e; mkdir -p new/sub; printf n > new/sub/f; rm -r d; printf more >> other; printf changed > fixed
    dd if=/dev/urandom of=big bs=100000 count=30 seek=10 conv=notrunc status=none; cp big \"$OUT/big\"
    : > \"$OUT/changed\"; until [ -e \"$OUT/go\" ]; do sleep 0.02; done";

/// Runs the script as a job; while it waits, something happens outside of it.
fn run_with(test_dir: &TestDir, options: &[&str], meanwhile: impl FnOnce()) -> Run {
    run_script_with(test_dir, options, SCRIPT, meanwhile)
}

/// The same with another script that waits.
fn run_script_with(test_dir: &TestDir, options: &[&str], script: &str, meanwhile: impl FnOnce()) -> Run {
    for name in ["changed", "go"] {
        let _ = std::fs::remove_file(test_dir.outside(name));
    }
    let job = test_dir.start_job(options, script);
    wait_for("the job's changes", || test_dir.outside("changed").exists());
    meanwhile();
    test_dir.touch_outside("go");
    job.finish()
}

fn wait_for_the_drain(test_dir: &TestDir, bytes_open: u64) {
    let work = test_dir.work("");
    let words = ["status", "--json", work.to_str().expect("UTF-8")];
    crate::commands::wait_for_the_drain(bytes_open, || test_dir.elbow(&words));
}

fn resume(test_dir: &TestDir, options: &[&str]) -> Run {
    test_dir.elbow(&[&["resume"], options].concat())
}

/// What is immutable can be neither moved nor removed. Of a directory nobody takes that for somebody else's change.
fn set_immutable(path: &Path, is_immutable: bool) {
    let flag = if is_immutable { "+i" } else { "-i" };
    let set = Command::new("chattr").arg(flag).arg(path).status().expect("chattr");
    assert!(set.success());
}

fn assert_committed(test_dir: &TestDir) {
    assert_eq!(test_dir.content("new/sub/f"), b"n");
    assert_eq!(test_dir.content("other"), b"keepmore");
    assert_eq!(test_dir.content("fixed"), b"changed");
    assert!(!test_dir.work("d").exists());
    let seen = std::fs::read(test_dir.outside("big")).expect("what the command saw");
    assert!(test_dir.content("big") == seen, "big is not what the command made");
    test_dir.assert_no_staging();
}

/// Somebody else fills the disk after the job has drained: there is no room for what its commit overwrites.
#[test]
fn a_patch_into_a_full_disk_goes_on_when_there_is_room() {
    let Some(disk) = LoopDisk::new(48 << 20) else { return };
    let test_dir = TestDir::at(&disk.path(), OLD);
    let before = test_dir.restore();
    let mut filler = None;
    let run = run_with(&test_dir, &[], || {
        wait_for_the_drain(&test_dir, 0);
        filler = Some(disk.fill());
    });
    run.assert_code(125);
    for words in [
        "No space left on device",
        "not committed",
        "elbow resume",
        "nothing of it is visible",
    ] {
        assert!(run.err.contains(words), "{words}: {}", run.err);
    }
    test_dir.assert_seen_from_outside_as(&before);
    let shown: Value = serde_json::from_str(&test_dir.elbow(&["recover", "--show", "--json"]).out).expect("JSON");
    let why = shown["jobs"][0]["why"].as_str().unwrap_or_default();
    assert!(!why.is_empty() && !why.contains("os error"), "{shown}");
    // The cause is there still.
    resume(&test_dir, &[]).assert_code(125);
    test_dir.assert_seen_from_outside_as(&before);
    std::fs::remove_file(filler.expect("it came")).expect("removing the filler");
    let resumed = resume(&test_dir, &[]);
    resumed.assert_code(0);
    assert!(resumed.err.contains("committed"), "{}", resumed.err);
    assert_committed(&test_dir);
    resume(&test_dir, &[]).assert_code(125);
}

/// What is held open is stored when it is closed. Somebody else has taken the room by then, which the command was told there is: what cannot be stored is saved
/// on local scratch, and comes back when there is room. Before, all of it was lost.
#[test]
fn what_a_full_disk_cannot_take_is_saved_and_comes_back() {
    let Some(disk) = LoopDisk::new(48 << 20) else { return };
    let test_dir = TestDir::at(&disk.path(), OLD);
    // The last part by one program: between two that a shell starts on a busy machine, the refusal may come.
    let script = format!(
        "exec 3> late; head -c 3000000 /dev/urandom | tee \"$OUT/late\" >&3
        exec 4<> fixed; printf LAST >&4
        {SCRIPT}
        python3 -c '
import os
os.makedirs(\"new/more/deep\")
os.symlink(\"nowhere\", \"new/more/link\")
with open(\"new/more/deep/text\", \"w\") as file: print(\"text\", file=file)
os.chmod(\"new/more/deep\", 0o555)'"
    );
    // Not on the same disk.
    let scratch = tempfile::tempdir().expect("a directory");
    let scratch = scratch.path().to_str().expect("UTF-8");
    let attempt = || {
        let (before, mut filler) = (test_dir.restore(), None);
        let run = run_script_with(&test_dir, &["--scratch", scratch], &script, || {
            wait_for_the_drain(&test_dir, 3_000_000 + 7);
            filler = Some(disk.fill());
        });
        (before, filler.expect("it came"), run)
    };
    let (mut before, mut filler, mut run) = attempt();
    for _ in 0..4 {
        // On a busy machine the refusal may come while the command is still at work; whichever program comes next is told of it then.
        if run.code == 125 || !run.err.contains("No space left on device") {
            break;
        }
        std::fs::remove_file(&filler).expect("removing the filler");
        (before, filler, run) = attempt();
    }
    run.assert_code(125);
    let resume_here = format!("--scratch {scratch}");
    for words in [
        "No space left on device",
        "with what could not be stored in",
        "elbow resume",
        &resume_here,
    ] {
        assert!(run.err.contains(words), "{words}: {}", run.err);
    }
    test_dir.assert_seen_from_outside_as(&before);
    let saved = || std::fs::read_dir(scratch).expect("the directory").count();
    assert_eq!(saved(), 1, "it was saved there");
    let shown = test_dir.elbow(&["recover", "--show", "--scratch", scratch]);
    assert!(
        shown.out.contains("saved       3") && shown.out.contains("goes on with it"),
        "{}",
        shown.out
    );
    // That part is not found.
    let part = std::fs::read_dir(scratch).expect("the directory").flatten().next();
    let (part, aside) = (part.expect("what was saved").path(), Path::new(scratch).join("aside"));
    std::fs::rename(&part, &aside).expect("renaming");
    let lost = resume(&test_dir, &[]);
    std::fs::rename(&aside, &part).expect("renaming");
    lost.assert_code(125);
    assert!(
        lost.err.contains("is kept: not all that it made is found"),
        "{}",
        lost.err
    );
    // The cause is there still: it stays as it is.
    resume(&test_dir, &["--scratch", scratch]).assert_code(125);
    test_dir.assert_seen_from_outside_as(&before);
    assert_eq!(saved(), 1);
    std::fs::remove_file(filler).expect("removing the filler");
    resume(&test_dir, &["--scratch", scratch]).assert_code(0);
    assert_eq!(saved(), 0, "it is not needed any more");
    assert_eq!(test_dir.content("new/more/deep/text"), b"text\n");
    let late = std::fs::read(test_dir.outside("late")).expect("what the command wrote");
    assert!(test_dir.content("late") == late, "late is not what the command made");
    assert_committed(&test_dir);
}

/// A refusal of one object: the job is shown with its reason, is left alone by later jobs and recoveries, does not overwrite what came since, and goes on.
#[test]
fn a_refused_commit_is_kept_shown_and_gone_on_with() {
    let Some(disk) = LoopDisk::new(64 << 20) else { return };
    let test_dir = TestDir::at(&disk.path(), OLD);
    let before = test_dir.restore();
    let report = test_dir.outside("report");
    let report = report.to_str().expect("UTF-8");
    let fixed = test_dir.work("d");
    let run = run_with(&test_dir, &["--report", report], || set_immutable(&fixed, true));
    run.assert_code(125);
    assert!(run.err.contains("move d: Operation not permitted"), "{}", run.err);
    let told: Value = serde_json::from_slice(&std::fs::read(report).expect("the report")).expect("JSON");
    assert_eq!(
        (&told["outcome"], &told["directories"][0]["resumable"]),
        (&"kept".into(), &true.into()),
        "{told}"
    );
    test_dir.assert_seen_from_outside_as(&before);

    let shown = test_dir.elbow(&["recover", "--show", "--json"]);
    shown.assert_code(0);
    let shown: Value = serde_json::from_str(&shown.out).expect("JSON");
    let job = &shown["jobs"][0];
    assert_eq!(
        (&job["state"], &job["resumable"]),
        (&"kept".into(), &true.into()),
        "{shown}"
    );
    assert!(job["why"].as_str().is_some_and(|why| why.contains("move d")), "{shown}");
    assert!(job["bytes"].as_u64().is_some_and(|bytes| bytes > 3_000_000), "{shown}");
    test_dir.assert_seen_from_outside_as(&before);

    test_dir.elbow(&["recover", "."]).assert_code(0);
    test_dir.job(&[], "printf y > unrelated").assert_code(0);
    set_immutable(&fixed, false);
    std::fs::write(test_dir.work("other"), "later work").expect("writing");
    let refused = resume(&test_dir, &[]);
    refused.assert_code(125);
    assert!(refused.err.contains("other (it was written to)"), "{}", refused.err);
    assert_eq!(test_dir.content("other"), b"later work");
    assert!(!test_dir.work("new").exists());
    std::fs::write(test_dir.work("other"), "keep").expect("writing");
    let set = Command::new("touch")
        .args(["-d", "2020-01-02 03:04:05.678901234"])
        .arg(test_dir.work("other"))
        .status();
    assert!(set.expect("touch").success());
    resume(&test_dir, &[]).assert_code(0);
    assert_committed(&test_dir);
    assert_eq!(test_dir.content("unrelated"), b"y");
}

#[test]
fn what_is_not_to_be_kept_is_rolled_back() {
    let Some(disk) = LoopDisk::new(64 << 20) else { return };
    let test_dir = TestDir::at(&disk.path(), OLD);
    let fixed = test_dir.work("d");
    for (options, is_kept) in [(&["--no-keep"][..], false), (&[], true)] {
        let before = test_dir.restore();
        let run = run_with(&test_dir, options, || set_immutable(&fixed, true));
        run.assert_code(125);
        set_immutable(&fixed, false);
        if is_kept {
            let listed = test_dir.elbow(&["recover", "."]);
            let name = listed.out.split(':').next().expect("a name").to_owned();
            assert!(listed.out.contains("elbow resume"), "{}", listed.out);
            test_dir.elbow(&["recover", ".", "--drop", &name]).assert_code(0);
        }
        test_dir.assert_equals(&before);
    }
}

/// Results that belong together: when those of one directory have to wait, so have those of the next.
#[test]
fn directories_of_one_run_wait_together() {
    let Some(disk) = LoopDisk::new(64 << 20) else { return };
    let test_dir = TestDir::at(&disk.path(), "mkdir -p a/d b; printf a > a/old; printf b > b/old");
    test_dir.restore();
    let fixed = test_dir.work("a/d");
    let script = "rmdir a/d; printf 1 > a/old; printf 2 > b/old; : > \"$OUT/changed\"; until [ -e \"$OUT/go\" ]; do sleep 0.02; done";
    let job = test_dir.start_job(&["--on", "a", "--on", "b"], script);
    wait_for("the job's changes", || test_dir.outside("changed").exists());
    set_immutable(&fixed, true);
    test_dir.touch_outside("go");
    let run = job.finish();
    run.assert_code(125);
    set_immutable(&fixed, false);
    assert_eq!(
        (test_dir.content("a/old"), test_dir.content("b/old")),
        (b"a".to_vec(), b"b".to_vec())
    );
    assert_eq!(
        run.err.matches("to go on when the cause is gone").count(),
        2,
        "{}",
        run.err
    );
    for dir in ["a", "b"] {
        resume(&test_dir, &[dir]).assert_code(0);
    }
    assert_eq!(
        (test_dir.content("a/old"), test_dir.content("b/old")),
        (b"1".to_vec(), b"2".to_vec())
    );
    test_dir.assert_no_staging();
}

#[test]
fn a_mount_that_cannot_be_committed_is_kept() {
    let Some(disk) = LoopDisk::new(64 << 20) else { return };
    let test_dir = TestDir::at(&disk.path(), "mkdir d; printf old > fixed");
    test_dir.restore();
    let mount = test_dir.outside("mount");
    std::fs::create_dir(&mount).expect("a mount point");
    let mount = mount.to_str().expect("UTF-8");
    test_dir.elbow(&["mount", ".", mount]).assert_code(0);
    std::fs::write(Path::new(mount).join("fixed"), "new").expect("writing in the job");
    std::fs::remove_dir(Path::new(mount).join("d")).expect("removing in the job");
    let fixed = test_dir.work("d");
    set_immutable(&fixed, true);
    let ended = test_dir.elbow(&["commit", mount]);
    set_immutable(&fixed, false);
    ended.assert_code(125);
    assert!(ended.err.contains("elbow resume"), "{}", ended.err);
    assert_eq!(test_dir.content("fixed"), b"old");
    resume(&test_dir, &["."]).assert_code(0);
    assert_eq!(test_dir.content("fixed"), b"new");
    test_dir.assert_no_staging();
}

/// An ordinary user, who loses a right to the directory for a while.
#[test]
fn a_users_results_wait_until_the_user_may_store_them() {
    let test_dir = as_user(TestDir::new(&format!(
        "mkdir d; printf x > d/f; printf old > old; chown -R {USER}:{USER} .; chmod 755 ."
    )));
    test_dir.restore();
    let script = "set -e; rm d/f; printf new > old; mkdir made; printf n > made/n
        : > \"$OUT/changed\"; until [ -e \"$OUT/go\" ]; do sleep 0.02; done";
    let job = test_dir.start_job(&[], script);
    wait_for("the job's changes", || test_dir.outside("changed").exists());
    let d = test_dir.work("d");
    std::os::unix::fs::chown(&d, Some(0), Some(0)).expect("chown");
    test_dir.touch_outside("go");
    let run = job.finish();
    run.assert_code(125);
    assert!(
        run.err.contains("Permission denied") && run.err.contains("elbow resume"),
        "{}",
        run.err
    );
    assert_eq!(
        (test_dir.content("old"), test_dir.content("d/f")),
        (b"old".to_vec(), b"x".to_vec())
    );
    resume(&test_dir, &[]).assert_code(125);
    let owner = test_dir.metadata("old");
    let (uid, gid) = (
        std::os::unix::fs::MetadataExt::uid(&owner),
        std::os::unix::fs::MetadataExt::gid(&owner),
    );
    std::os::unix::fs::chown(&d, Some(uid), Some(gid)).expect("chown");
    resume(&test_dir, &[]).assert_code(0);
    assert_eq!(
        (test_dir.content("old"), test_dir.content("made/n")),
        (b"new".to_vec(), b"n".to_vec())
    );
    assert!(!test_dir.work("d/f").exists());
    test_dir.assert_no_staging();
}

/// The same of a directory that nobody may even look into any more. That was taken for a change of what is in it, the roll back failed, too, without a word
/// of why there was one, and the next recovery threw the results away.
#[test]
fn results_wait_below_a_directory_that_the_user_may_not_look_into() {
    let test_dir = as_user(TestDir::new(&format!(
        "mkdir -p d/sub; printf x > d/f; printf old > old; chown -R {USER}:{USER} .; chmod 755 ."
    )));
    let script = "set -e; printf changed > d/f; printf n > d/n; mkdir d/sub/k; printf k > d/sub/k/k; printf new > old
        : > \"$OUT/changed\"; until [ -e \"$OUT/go\" ]; do sleep 0.02; done";
    for (close, open) in [
        ("chmod 0 d", "chmod 755 d"),
        ("chown 0 d; chmod 700 d", "chown {USER} d; chmod 755 d"),
    ] {
        let before = test_dir.restore();
        let at_it = |script: &str| {
            let script = script.replace("{USER}", &USER.to_string());
            let mut shell = Command::new("sh");
            let ended = shell.args(["-ec", &script]).current_dir(test_dir.work("")).status();
            assert!(ended.expect("sh").success(), "{script}");
        };
        let run_closed = |options: &[&str]| {
            run_script_with(&test_dir, options, script, || {
                wait_for_the_drain(&test_dir, 0);
                at_it(close);
            })
        };
        let run = run_closed(&[]);
        run.assert_code(125);
        for words in ["d/n: Permission denied", "elbow resume", "nothing of it is visible"] {
            assert!(run.err.contains(words), "{close}: {words}: {}", run.err);
        }
        resume(&test_dir, &[]).assert_code(125);
        at_it(open);
        test_dir.assert_seen_from_outside_as(&before);
        resume(&test_dir, &[]).assert_code(0);
        let stored: Vec<_> = ["d/f", "d/n", "d/sub/k/k", "old"]
            .map(|name| test_dir.content(name))
            .into();
        assert_eq!(
            stored,
            [b"changed".to_vec(), b"n".to_vec(), b"k".to_vec(), b"new".to_vec()],
            "{close}"
        );
        test_dir.assert_no_staging();

        // Nor can it be rolled back: both are told, and a recovery does it when it can.
        test_dir.restore();
        let run = run_closed(&["--no-keep"]);
        run.assert_code(125);
        for words in [
            "look at d/n: Permission denied",
            "work/d: Permission denied; `elbow recover",
        ] {
            assert!(run.err.contains(words), "{close}: {words}: {}", run.err);
        }
        at_it(open);
        test_dir.elbow(&["recover", "."]).assert_code(0);
        test_dir.assert_seen_from_outside_as(&before);
        test_dir.assert_no_staging();
    }
}

/// Whoever made a directory read-only while a job ran found it writable again when the job had committed, without a word.
#[test]
fn what_others_close_while_a_job_runs_stays_closed() {
    for (mode, script) in [
        (0o555, "printf n > d/n"),
        (0o500, "mkdir d/n"),
        (0o555, "mv top d/"),
        (0o555, "mv sub/g d/"),
    ] {
        let test_dir = as_user(TestDir::new(&format!(
            "mkdir d sub; printf x > top; printf g > sub/g; chown -R {USER}:{USER} .; chmod 755 . d"
        )));
        let d = test_dir.work("d");
        let set = |mode: u32| std::fs::set_permissions(&d, std::fs::Permissions::from_mode(mode)).expect("a mode");
        let before = test_dir.restore();
        let script = format!("set -e; {script}; : > \"$OUT/changed\"; until [ -e \"$OUT/go\" ]; do sleep 0.02; done");
        let run = run_script_with(&test_dir, &[], &script, || {
            wait_for_the_drain(&test_dir, 0);
            set(mode);
        });
        run.assert_code(125);
        assert!(
            run.err.contains("Permission denied") && run.err.contains("elbow resume"),
            "{script}: {}",
            run.err
        );
        assert_eq!(test_dir.metadata("d").permissions().mode() & 0o7777, mode, "{script}");
        resume(&test_dir, &[]).assert_code(125);
        assert_eq!(test_dir.metadata("d").permissions().mode() & 0o7777, mode, "{script}");
        set(0o755);
        test_dir.assert_seen_from_outside_as(&before);
        resume(&test_dir, &[]).assert_code(0);
        assert_eq!(std::fs::read_dir(&d).expect("a directory").count(), 1, "{script}");
        test_dir.assert_no_staging();
    }
}

/// A commit that is being taken back, and of which a directory cannot get its name back: it blocks nobody, is tried again each time, and
/// given up by name; then what stays is named, and nothing that was there before is lost.
#[test]
fn a_stuck_job_is_given_up_by_name() {
    let Some(disk) = LoopDisk::new(64 << 20) else { return };
    let test_dir = TestDir::at(&disk.path(), OLD);
    let before = test_dir.restore();
    let (d, script) = (test_dir.work("d"), SCRIPT);
    assert!(script.contains("rm -r d"));
    run_with(&test_dir, &[], || set_immutable(&d, true)).assert_code(125);
    set_immutable(&d, false);
    // As a death in the middle of taking it back leaves it.
    let name = listed(&test_dir, "job");
    let job = test_dir.work(&name);
    let slot = test_dir.work(&slot_in(&job.join("resume"), &name));
    let rename = |from: &Path, to: &Path| std::fs::rename(from, to).expect("renaming");
    rename(&d, &slot);
    rename(&job.join("resume"), &job.join("undo.olds"));
    rename(&job.join("kept"), &job.join("job"));
    set_immutable(&slot, true);

    let tried = test_dir.elbow(&["recover", "."]);
    tried.assert_code(125);
    assert!(tried.out.contains("bring back d"), "{}", tried.out);
    assert_eq!(listed(&test_dir, "state"), "taken_back");
    test_dir.job(&[], "printf y > unrelated").assert_code(0);
    test_dir.elbow(&["recover", ".", "--retry", &name]).assert_code(125);
    let given_up = test_dir.elbow(&["recover", ".", "--abandon", &name, "--json"]);
    given_up.assert_code(125);
    let told: Value = serde_json::from_str(&given_up.out).expect("JSON");
    let stays = &told["jobs"][0]["stays"];
    assert_eq!(
        (&stays[0]["path"], stays.as_array().map(Vec::len)),
        (&"d".into(), Some(1)),
        "{told}"
    );
    let slot_name = slot.file_name().expect("a name").to_string_lossy();
    assert!(
        stays[0]["what"].as_str().is_some_and(|what| what.contains(&*slot_name)),
        "{told}"
    );
    assert_eq!(listed(&test_dir, "state"), "kept");
    test_dir.elbow(&["recover", "."]).assert_code(0);

    set_immutable(&slot, false);
    rename(&slot, &d);
    test_dir.elbow(&["recover", ".", "--drop", &name]).assert_code(0);
    std::fs::remove_file(test_dir.work("unrelated")).expect("removing");
    test_dir
        .snapshot()
        .without_times()
        .assert_equals(&before.without_times());
}

/// What `recover --show` says of the only job.
fn listed(test_dir: &TestDir, field: &str) -> String {
    let shown = test_dir.elbow(&["recover", "--show", "--json"]);
    shown.assert_code(0);
    let shown: Value = serde_json::from_str(&shown.out).expect("JSON");
    assert_eq!(shown["jobs"].as_array().map(Vec::len), Some(1), "{shown}");
    shown["jobs"][0][field].as_str().expect("text").to_owned()
}

/// The hidden name that a record has for the only thing that is removed.
fn slot_in(record: &Path, job: &str) -> String {
    let id = job.rsplit_once('-').expect("an id").0;
    let text = String::from_utf8_lossy(&std::fs::read(record).expect("the record")).into_owned();
    let begin = format!("{id}-d");
    let (_, rest) = text.split_once(&begin).expect("a hidden name");
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    format!("{begin}{digits}")
}
