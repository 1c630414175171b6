//! The boundary of a job: what others see before, at and after its end.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use elbow_file::{Handle, RealStorage, Storage};
use elbow_testkit::slowfs::{self, SlowFs, SlowOptions};

use crate::loop_disk::LoopDisk;
use crate::test_dir::{Running, TestDir, wait_for};

/// An old tree with old times, to be changed in every way by [`CHANGES`].
const OLD: &str = "mkdir -p d/sub keep empty; for i in 1 2 3 4 5; do seq $i 5000 > d/$i; printf $i > d/sub/$i; done
    ln d/1 hard; ln -s d/2 soft; mkfifo pipe; printf x > keep/f; setfattr -n user.a -v old d/3; chmod 2775 keep";

/// Changes of every kind to that tree, and new things beside and inside of it.
const CHANGES: &str = "printf changed >> d/1; rm d/2; mv d/3 d/sub/moved; truncate -s 7 d/4; chmod 600 d/5; mv d/sub sub2; rmdir empty
    ln -sf d/4 soft; rm pipe; setfattr -n user.b -v new keep/f; touch keep/f; chown 7:8 keep; mkdir -p new/a/b; seq 99999 > new/a/f
    printf y > keep/new; printf z > d/new; ln hard keep/hard; mv keep kept; mkdir keep; printf w > top";

/// A script that makes the changes, then waits until the test has looked.
fn changes_then_wait(end: &str) -> String {
    waiting_between(CHANGES, end)
}

/// A script that waits between two parts until the test has looked, or done something.
fn waiting_between(first: &str, then: &str) -> String {
    format!("{first}\n: > \"$OUT/changed\"; until [ -e \"$OUT/go\" ]; do sleep 0.02; done; {then}")
}

/// Starts a job, and waits until its command has come to where it waits.
fn start_to_its_wait(test_dir: &TestDir, options: &[&str], script: &str) -> Running {
    let job = test_dir.start_job(options, script);
    wait_for("the job's changes", || test_dir.outside("changed").exists());
    job
}

#[test]
fn nothing_is_visible_before_the_commit_and_all_of_it_after() {
    let test_dir = TestDir::new(OLD);
    test_dir.assert_same_as_native(CHANGES);

    let before = test_dir.restore();
    let job = start_to_its_wait(&test_dir, &[], &changes_then_wait("exit 0"));
    test_dir.assert_seen_from_outside_as(&before);
    test_dir.touch_outside("go");
    job.finish().assert_code(0);
    test_dir.assert_differs_from(&before);
}

#[test]
fn a_failed_job_leaves_the_tree_as_it_was() {
    let test_dir = TestDir::new(OLD);
    let before = test_dir.restore();
    let run = test_dir.job(&[], &format!("{CHANGES}; ls -R; exit 1"));
    run.assert_code(1);
    assert!(run.out.contains("kept"), "the job did not make its changes");
    test_dir.assert_equals(&before);
}

#[test]
fn an_eager_job_shows_new_things_at_once_and_takes_them_back() {
    let test_dir = TestDir::new(OLD);
    let before = test_dir.restore();
    let script = "mkdir new; echo line > new/log; echo top > top; printf changed >> d/1
        : > \"$OUT/changed\"; until [ -e \"$OUT/go\" ]; do sleep 0.02; done; exit 3";
    let job = test_dir.start_job(&["--publish", "eager"], script);
    wait_for("the new file under its own name", || {
        test_dir.read("new/log") == b"line\n" && test_dir.read("top") == b"top\n"
    });
    assert!(
        !test_dir.read("d/1").ends_with(b"changed"),
        "an old file was changed before the commit"
    );
    test_dir.touch_outside("go");
    job.finish().assert_code(3);
    test_dir.assert_equals(&before);
}

#[test]
fn an_eager_job_commits_like_any_other() {
    let test_dir = TestDir::new(OLD);
    test_dir
        .with_options(&["--publish", "eager"])
        .assert_same_as_native(CHANGES);
}

#[test]
fn a_durable_job_commits_like_any_other() {
    let test_dir = TestDir::new(OLD);
    test_dir.with_options(&["--durable"]).assert_same_as_native(&format!(
        "{CHANGES}; sync top kept/f; dd if=/dev/zero of=s count=9 oflag=sync status=none"
    ));
}

#[test]
fn a_job_with_little_memory_spills_and_commits() {
    let test_dir = TestDir::new("head -c 20000000 /dev/zero > old");
    let scratch = test_dir.outside("scratch");
    std::fs::create_dir(&scratch).expect("scratch directory");
    let scratch = scratch.to_str().expect("UTF-8").to_owned();
    let test_dir = test_dir.with_options(&["--mem", "4M", "--scratch", &scratch]);
    test_dir.assert_same_as_native(
        "seq 1 6000000 > big; cp big second; cat big second | cksum > seen; rm big; seq 1 900000 | dd of=old conv=notrunc status=none",
    );
    assert_eq!(
        std::fs::read_dir(&scratch).expect("scratch directory").count(),
        0,
        "the spill file is left behind"
    );
}

/// Two parts of one buffer were each taken for used by somebody, because of the other: a file that has no name got ENOSPC, with room in --scratch.
#[test]
fn what_is_overwritten_in_the_middle_of_a_file_without_a_name_is_spilled() {
    let test_dir = TestDir::new("");
    let script = "import os, hashlib
f = os.open('t', os.O_RDWR | os.O_CREAT); os.unlink('t')
for i in range(400):
    os.pwrite(f, bytes([i % 251]) * 65536, i << 16); os.pwrite(f, b'xyz', (i << 16) + 32768); os.pwrite(f, b'q', (i << 16) + 9999)
open('sum', 'w').write(hashlib.sha256(os.pread(f, 400 << 16, 0)).hexdigest())";
    let test_dir = test_dir.with_options(&["--mem", "8M"]);
    test_dir.assert_same_as_native(&format!("python3 -c \"{script}\""));
}

/// What a sort or a database keeps in a file that it has removed at once: writers waited for room that nothing could give them,
/// in state D, so that no signal ended them.
#[test]
fn files_without_a_name_may_be_larger_than_memory() {
    let test_dir = TestDir::new("");
    let script =
        "exec 3<> f; rm f; head -c 40000000 /dev/zero >&3; seq 100000 >&3; exec 4< /proc/self/fd/3; cksum <&4 > sum";
    test_dir.assert_same_as_native(script);
    let test_dir = test_dir.with_options(&["--mem", "8M"]);
    test_dir.assert_same_as_native(script);
}

/// Without a place for it, the writer is told.
#[test]
fn files_without_a_name_that_no_memory_holds_are_a_full_disk() {
    let test_dir = TestDir::new("");
    let script = "exec 3<> f; rm f; head -c 40000000 /dev/zero >&3 || full=full; exec 3>&-; echo $full > said";
    let test_dir = test_dir.behind(&["env", "TMPDIR=/nowhere"]);
    test_dir.job(&["--mem", "8M"], script).assert_code(0);
    assert_eq!(test_dir.content("said"), b"full\n");
}

#[test]
fn the_job_sees_its_own_writes_before_they_are_on_the_storage() {
    let test_dir = TestDir::new("");
    test_dir.assert_same_as_native(
        "for i in $(seq 300); do echo $i > f$i; cat f$i >> all; mv f$i g$i; cat g$i >> all; rm g$i; done",
    );
}

#[test]
fn a_conflict_rolls_back_and_names_the_path() {
    let test_dir = TestDir::new("printf mine > contested; printf x > other");
    test_dir.restore();
    let script = waiting_between("printf job >> contested; printf new > new", ":");
    let job = start_to_its_wait(&test_dir, &[], &script);
    std::fs::write(test_dir.work("contested"), "theirs, and longer").expect("writing beside the job");
    test_dir.touch_outside("go");
    let run = job.finish();
    run.assert_code(125);
    assert_eq!(run.err.matches("contested").count(), 1, "{}", run.err);
    assert_eq!(test_dir.content("contested"), b"theirs, and longer");
    assert!(!test_dir.work("new").exists(), "something of the job is left");
    test_dir.assert_no_staging();
}

/// What the job saw in a directory that it moved was that of another one, which somebody had put in its place: only its kind was compared.
#[test]
fn another_directory_in_the_place_of_one_that_the_job_moves_is_a_conflict() {
    let test_dir = TestDir::new("mkdir d; echo old > d/f");
    test_dir.restore();
    let script = waiting_between("mv d e; cat e/f > seen", ":");
    let job = start_to_its_wait(&test_dir, &[], &script);
    std::fs::rename(test_dir.work("d"), test_dir.work("kept")).expect("moving it beside the job");
    std::fs::create_dir(test_dir.work("d")).expect("a directory");
    test_dir.touch_outside("go");
    let run = job.finish();
    run.assert_code(125);
    assert!(run.err.contains("replaced by another directory"), "{}", run.err);
    assert_eq!(test_dir.content("kept/f"), b"old\n");
    assert!(test_dir.work("d").exists() && !test_dir.work("e").exists() && !test_dir.work("seen").exists());
    test_dir.assert_no_staging();
}

/// The rename of a file that was shown already replaced what somebody else had made under the new name meanwhile.
#[test]
fn an_eager_job_gives_no_name_that_somebody_else_has_by_then() {
    let test_dir = TestDir::new("echo old > old");
    test_dir.restore();
    let script = waiting_between("echo job > tmp", "mv tmp final; sleep 0.3");
    let job = test_dir.start_job(&["--publish", "eager", "--no-keep"], &script);
    wait_for("the new file under its own name", || test_dir.read("tmp") == b"job\n");
    std::fs::write(test_dir.work("final"), "theirs").expect("writing beside the job");
    test_dir.touch_outside("go");
    let run = job.finish();
    assert!(run.code != 0 && run.err.contains("final"), "{}: {}", run.code, run.err);
    assert_eq!(test_dir.content("final"), b"theirs");
    assert!(!test_dir.work("tmp").exists(), "something of the job is left");
    test_dir.assert_no_staging();
}

/// What the job was refused to make under a name that somebody else has was in its journal all the same: a recovery removed theirs.
#[test]
fn a_recovery_of_an_eager_job_removes_nothing_that_somebody_else_has_made() {
    for make in ["mv tmp final", "mkdir final", "echo job > final", "ln tmp final"] {
        let test_dir = TestDir::new("echo old > old");
        test_dir.restore();
        let failing = "until ! echo more >> tmp2; do sleep 0.02; done 2> /dev/null; : > \"$OUT/failed\"; sleep 100";
        let script = waiting_between("echo job > tmp", &format!("{make}\n{failing}"));
        let job = test_dir.start_job(&["--publish", "eager"], &script);
        wait_for("the new file under its own name", || test_dir.read("tmp") == b"job\n");
        std::fs::create_dir(test_dir.work("final")).expect("a directory beside the job");
        std::fs::write(test_dir.work("final/theirs"), "theirs").expect("a file beside the job");
        test_dir.touch_outside("go");
        wait_for("the job to fail", || test_dir.outside("failed").exists());
        job.kill();
        test_dir.elbow(&["recover", "."]).assert_code(0);
        assert_eq!(test_dir.content("final/theirs"), b"theirs", "{make}");
        assert!(
            !test_dir.work("tmp").exists() && !test_dir.work("tmp2").exists(),
            "{make}"
        );
        test_dir.assert_no_staging();
    }
}

/// A directory that goes took with it names of a file that had lost all that the job knew of, and was changed: one of these was parked in it, and the job
/// found something created in what it removes.
#[test]
fn changed_links_go_with_their_directory_and_the_file_stays_changed_elsewhere() {
    for change in ["chmod -R u+w j/d", "echo x >> j/d/a"] {
        let seed = "mkdir -p j/d; echo 1 > c; ln c j/d/a; ln c j/d/b; chmod 644 c";
        let script = format!("{change}; rm -r j/d");
        let [native, job] = [false, true].map(|in_job| {
            let test_dir = TestDir::new(seed);
            test_dir.restore();
            let run = match in_job {
                true => test_dir.job(&["--on", "j"], &script),
                false => test_dir.native(&script),
            };
            run.assert_code(0);
            assert!(!test_dir.work("j/d").exists());
            (
                test_dir.content("c"),
                test_dir.metadata("c").mode(),
                test_dir.metadata("c").nlink(),
            )
        });
        assert_eq!(job, native, "{change}");
    }
}

#[test]
fn a_conflict_can_be_won() {
    let test_dir = TestDir::new("printf mine > contested");
    test_dir.restore();
    let script = waiting_between("printf job > contested", ":");
    let job = start_to_its_wait(&test_dir, &["--on-conflict", "overwrite"], &script);
    std::fs::write(test_dir.work("contested"), "theirs").expect("writing beside the job");
    test_dir.touch_outside("go");
    job.finish().assert_code(0);
    assert_eq!(test_dir.content("contested"), b"job");
}

#[test]
fn two_directories_are_two_transactions_of_one_job() {
    let test_dir = TestDir::new("mkdir a b; printf 1 > a/old; printf 2 > b/old");
    let before = test_dir.restore();
    let (a, b) = (test_dir.work("a"), test_dir.work("b"));
    let on = ["--on", a.to_str().expect("UTF-8"), "--on", b.to_str().expect("UTF-8")];
    test_dir
        .job(&on, "mv a/old a/moved; printf x > b/new; exit 9")
        .assert_code(9);
    test_dir.assert_equals(&before);
    test_dir.job(&on, "mv a/old a/moved; printf x > b/new").assert_code(0);
    assert_eq!(test_dir.content("a/moved"), b"1");
    assert_eq!(test_dir.content("b/new"), b"x");
    test_dir.assert_no_staging();
}

/// Writes to both, says that it did, and waits until the test has done something beside it.
const TO_BOTH: &str = "echo x >> a/log; echo y >> b/log; echo try >> \"$OUT/tries\"
    until [ -e \"$OUT/go\" ]; do sleep 0.02; done";

fn lines(path: &Path) -> usize {
    fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

fn report_of(test_dir: &TestDir) -> serde_json::Value {
    let report = fs::read(test_dir.outside("report")).expect("a report");
    serde_json::from_slice(&report).expect("JSON")
}

/// The first directory was committed before anybody looked at the second; with `--retry` the command had its result before it began,
/// and a line was appended twice.
#[test]
fn a_conflict_in_one_of_two_directories_leaves_both_as_they_were() {
    for (contested, other) in [("b", "a"), ("a", "b")] {
        for retries in [&[][..], &["--retry", "1"]] {
            let test_dir = TestDir::new("mkdir a b; echo old > a/log; echo old > b/log");
            let report = test_dir.outside("report");
            let on = ["--on", "a", "--on", "b", "--report", report.to_str().expect("UTF-8")];
            let job = test_dir.start_job(&[&on, retries].concat(), TO_BOTH);
            wait_for("the job's changes", || test_dir.outside("tries").exists());
            let log = |directory: &str| format!("{directory}/log");
            fs::write(test_dir.work(&log(contested)), "theirs, and longer\n").expect("writing beside the job");
            test_dir.touch_outside("go");
            let run = job.finish();
            let said = report_of(&test_dir);
            let (of_contested, of_other) = (test_dir.content(&log(contested)), test_dir.content(&log(other)));
            let is_last = |content: &[u8], line: &[u8]| content.ends_with(line);
            if retries.is_empty() {
                run.assert_code(125);
                assert_eq!(said["outcome"], "rolled_back");
                assert_eq!(
                    (&of_contested[..], &of_other[..]),
                    (&b"theirs, and longer\n"[..], &b"old\n"[..])
                );
            } else {
                run.assert_code(0);
                assert_eq!(
                    (said["outcome"].clone(), said["attempts"].clone()),
                    ("committed".into(), 2.into())
                );
                assert_eq!((lines(&test_dir.work("a/log")), lines(&test_dir.work("b/log"))), (2, 2));
                assert!(is_last(&test_dir.content("a/log"), b"\nx\n") && is_last(&test_dir.content("b/log"), b"\ny\n"));
            }
            test_dir.assert_no_staging();
        }
    }
}

/// While the first directory is committed, somebody changes the second: nobody can take the first back any more.
#[test]
fn what_is_refused_after_another_directory_has_committed_is_kept_and_told() {
    for (options, outcome) in [
        (&[][..], "kept"),
        (&["--retry", "1"], "kept"),
        (&["--no-keep", "--retry", "1"], "rolled_back"),
    ] {
        let test_dir = TestDir::new("mkdir a b; echo old > b/state");
        let below = test_dir.outside("below");
        let slow = slow_log(&below, &test_dir.work("a"));
        let report = test_dir.outside("report");
        let on = ["--on", "a", "--on", "b", "--report", report.to_str().expect("UTF-8")];
        let script = "echo try >> \"$OUT/tries\"; for i in $(seq 40); do echo $i > a/f$i; done; echo x >> a/log; echo y > b/state";
        let job = test_dir.start_job(&[&on, options].concat(), script);
        pause_when(&slow, || has_in_staging(&below, "commit"));
        fs::write(test_dir.work("b/state"), "theirs, and longer\n").expect("writing beside the job");
        slow.resume();
        let run = job.finish();
        run.assert_code(125);
        let said = report_of(&test_dir);
        assert_eq!(said["outcome"], "partly_committed", "{}", run.err);
        assert_eq!(said["directories"][0]["outcome"], "committed");
        assert_eq!(said["directories"][1]["outcome"], outcome);
        assert!(
            run.err.contains("only a part of the job is on the storage: ")
                && run.err.contains("/a is committed, ")
                && run.err.contains("/b is not"),
            "{}",
            run.err
        );
        assert_eq!(
            (lines(&test_dir.outside("tries")), lines(&below.join("log"))),
            (1, 2),
            "{}",
            run.err
        );
        assert!(below.join("f40").exists() && staging_in(&below).is_empty());
        assert_eq!(test_dir.content("b/state"), b"theirs, and longer\n");
        if outcome == "kept" {
            let resume = ["resume", "--on-conflict", "overwrite", "b"];
            test_dir.elbow(&resume).assert_code(0);
            assert_eq!(test_dir.content("b/state"), b"y\n");
        }
        test_dir.assert_no_staging();
    }
}

/// The first directory has its record, and a step is refused for good: nobody can tell the command that nothing is stored.
#[test]
fn what_waits_for_a_directory_that_can_go_neither_on_nor_back_is_kept() {
    for (options, outcome, content) in [(&[][..], "kept", "new\n"), (&["--no-keep"], "rolled_back", "old\n")] {
        let test_dir =
            TestDir::new("mkdir a b; mkdir a/x; echo old > b/state; for i in $(seq 40); do echo $i > a/x/f$i; done");
        let below = test_dir.outside("below");
        fs::rename(test_dir.work("a"), &below).expect("on one file system");
        fs::create_dir(test_dir.work("a")).expect("a directory");
        let slow = slow_storage(&below, &test_dir.work("a"));
        let report = test_dir.outside("report");
        let on = ["--on", "a", "--on", "b", "--report", report.to_str().expect("UTF-8")];
        let job = test_dir.start_job(&[&on, options].concat(), "rm a/x/f*; echo new > b/state");
        // Some steps are done, which cannot be taken back then.
        let left = || fs::read_dir(below.join("x")).expect("a directory").count();
        pause_when(&slow, || (10..40).contains(&left()));
        let protect = |flag: &str| {
            let done = std::process::Command::new("chattr")
                .arg(flag)
                .arg(below.join("x"))
                .status();
            assert!(done.expect("chattr").success());
        };
        protect("+i");
        slow.resume();
        let run = job.finish();
        protect("-i");
        run.assert_code(125);
        let said = report_of(&test_dir);
        assert_eq!(said["directories"][0]["outcome"], "unfinished", "{}", run.err);
        assert_eq!(said["directories"][1]["outcome"], outcome, "{}", run.err);
        test_dir.elbow(&["recover", "a"]).assert_code(0);
        if outcome == "kept" {
            test_dir.elbow(&["resume", "b"]).assert_code(0);
        }
        assert_eq!(test_dir.content("b/state"), content.as_bytes());
        test_dir.assert_no_staging();
    }
}

/// The first directory is committed, the second waits for another job: whatever ends the job there, the results of the second are not lost.
#[test]
fn what_waits_to_follow_a_committed_directory_is_kept_however_that_ends() {
    for end in ["KILL", "INT", "TERM"] {
        let test_dir = TestDir::new("mkdir a b; echo old > b/state");
        let below = test_dir.outside("below");
        let slow = slow_log(&below, &test_dir.work("a"));
        let report = test_dir.outside("report");
        let on = ["--on", "a", "--on", "b", "--report", report.to_str().expect("UTF-8")];
        let job = test_dir.start_job(&on, "echo x >> a/log; echo y > b/state");
        pause_when(&slow, || has_in_staging(&below, "commit"));
        let turn = OthersTurn::take(&test_dir.work("b"));
        slow.resume();
        wait_for("the second directory", || has_in_staging(&test_dir.work("b"), "resume"));
        assert_eq!(lines(&below.join("log")), 2, "the first directory is committed");
        if end == "KILL" {
            job.kill();
        } else {
            job.signal_group(end);
            let run = job.finish();
            run.assert_code(125);
            let said = report_of(&test_dir);
            assert_eq!(said["outcome"], "partly_committed", "{}", run.err);
            assert_eq!(said["directories"][1]["outcome"], "kept", "{}", run.err);
        }
        drop(turn);
        assert_eq!(test_dir.content("b/state"), b"old\n");
        test_dir.elbow(&["recover", "b"]).assert_code(0);
        assert_eq!(test_dir.content("b/state"), b"old\n", "nobody has asked for it");
        test_dir.elbow(&["resume", "b"]).assert_code(0);
        assert_eq!(test_dir.content("b/state"), b"y\n");
        test_dir.assert_no_staging();
    }
}

/// The turn of a directory, in which its jobs commit, taken by somebody else. Given up when dropped.
pub(crate) struct OthersTurn {
    root: Handle,
    _locked: Handle,
}

impl OthersTurn {
    const NAME: &str = ".elbow-turn";

    pub(crate) fn take(directory: &Path) -> Self {
        let root = RealStorage::open_root(directory).expect("a directory");
        let file = RealStorage.create(&root, OsStr::new(Self::NAME), 0o666);
        let locked = file.expect("nobody commits there");
        assert_eq!(RealStorage.try_lock(&locked), Ok(true));
        Self { root, _locked: locked }
    }
}

impl Drop for OthersTurn {
    fn drop(&mut self) {
        let _ = RealStorage.unlink(&self.root, OsStr::new(Self::NAME));
    }
}

/// Storage that does one thing after the other, slowly enough to be stopped in between.
fn slow_storage(below: &Path, at: &Path) -> slowfs::Mounted {
    let slow = SlowOptions {
        latency: Duration::from_millis(10),
        concurrent: 1,
        ..SlowOptions::default()
    };
    SlowFs::mount(below, at, &slow).expect("slow storage")
}

/// The same with an old file `log`, to be made below.
pub(crate) fn slow_log(below: &Path, at: &Path) -> slowfs::Mounted {
    fs::create_dir(below).expect("a directory");
    fs::write(below.join("log"), "old\n").expect("a file");
    slow_storage(below, at)
}

/// Lets it do nothing more as soon as this is so.
pub(crate) fn pause_when(slow: &slowfs::Mounted, is_so: impl Fn() -> bool) {
    wait_for("the commit of the first directory", || {
        slow.pause();
        let is_so = is_so();
        if !is_so {
            slow.resume();
        }
        is_so
    });
}

/// A job has this file in its own directory there.
pub(crate) fn has_in_staging(directory: &Path, name: &str) -> bool {
    staging_in(directory).iter().any(|staging| staging.join(name).exists())
}

/// Staging directories at the top of a directory.
fn staging_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory)
        .expect("a directory")
        .map(|entry| entry.expect("an entry"));
    let staging = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(".elbow-"));
    staging.map(|entry| entry.path()).collect()
}

/// What others make in a directory that the job removes is a change of that, and goes with it where the job is to win.
#[test]
fn what_others_made_in_a_removed_directory_is_a_conflict_that_can_be_won() {
    for (options, code) in [(&[][..], 125), (&["--on-conflict", "overwrite"], 0)] {
        let test_dir = TestDir::new("mkdir -p d/sub; printf 1 > d/old");
        let script = waiting_between("rm -r d", ":");
        let job = start_to_its_wait(&test_dir, options, &script);
        for name in ["d/theirs", "d/sub/theirs"] {
            fs::write(test_dir.work(name), "theirs").expect("writing beside the job");
        }
        test_dir.touch_outside("go");
        job.finish().assert_code(code);
        assert_eq!(test_dir.work("d/theirs").exists(), code != 0);
        assert_eq!(test_dir.work("d").exists(), code != 0);
        test_dir.assert_no_staging();
    }
}

#[test]
fn a_retried_job_starts_from_the_tree_as_it_was() {
    let test_dir = TestDir::new("printf 0 > old");
    test_dir.restore();
    let script = "test \"$(cat old)\" = 0 && test ! -e new || exit 77; printf 1 >> old; printf x > new
        echo try >> \"$OUT/tries\"; test $(wc -l < \"$OUT/tries\") = 3";
    test_dir.job(&["--retry", "2"], script).assert_code(0);
    assert_eq!(test_dir.content("old"), b"01");
    assert_eq!(
        std::fs::read_to_string(test_dir.outside("tries"))
            .expect("tries")
            .lines()
            .count(),
        3
    );
    test_dir.assert_no_staging();
}

/// A job that fails and is kept; the name of its own staging directory, and all that is kept of it.
fn keep_one(test_dir: &TestDir, options: &[&str], script: &str) -> (String, Vec<(PathBuf, Vec<u8>)>) {
    let run = test_dir.job(&[&["--keep"], options].concat(), &format!("{script}; exit 5"));
    run.assert_code(5);
    let told = run.err.rsplit_once("--drop ").expect("how to remove it").1;
    let name = told.trim().to_owned();
    let files = kept_files(test_dir, &name);
    assert!(!files.is_empty(), "nothing is kept: {}", run.err);
    (name, files)
}

/// The files of a kept job, found as it tells how to look at them.
fn kept_files(test_dir: &TestDir, name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let id = &name[..".elbow-0123456789abcdef".len()];
    let found = test_dir.native(&format!("find \"$WORK\" -path '*/{id}-*' -type f | sort"));
    let files = found.out.lines().map(PathBuf::from);
    files
        .map(|path| (path.clone(), fs::read(path).expect("a kept file")))
        .collect()
}

/// The next run of any kind deleted what was kept, silently with --json.
#[test]
fn a_kept_job_stays_until_it_is_dropped_by_name() {
    let test_dir = TestDir::new(OLD);
    let before = test_dir.restore();
    let work = test_dir.work("");
    let work = work.to_str().expect("UTF-8");
    let jobs = [
        keep_one(&test_dir, &[], CHANGES),
        keep_one(&test_dir, &[], "printf half > out; printf x > d/sub/y"),
        keep_one(
            &test_dir,
            &["--publish", "eager"],
            "printf eager > out; printf x > d/eager",
        ),
    ];
    test_dir.assert_seen_from_outside_as(&before);
    let assert_kept = |after: &str| {
        for (name, files) in &jobs {
            assert_eq!(&kept_files(&test_dir, name), files, "{name} after {after}");
        }
    };

    let run = test_dir.job(&[], "test -z \"$(find . -name '.elbow-*')\"; printf x > \"$OUT/other\"");
    run.assert_code(0);
    for (name, _) in &jobs {
        assert_eq!(run.err.matches(name.as_str()).count(), 1, "{}", run.err);
    }
    assert!(
        run.err.contains("elbow recover") && run.err.contains("--drop NAME"),
        "{}",
        run.err
    );
    assert_kept("a job");
    for (options, code) in [(&["--json"][..], 0), (&["--quiet"], 0), (&["--retry", "1"], 3)] {
        let run = test_dir.job(options, &format!("exit {code}"));
        run.assert_code(code);
        // In JSON it is one of the notes.
        let is_told = options != ["--quiet"];
        assert_eq!(run.err.contains("kept since"), is_told, "{}", run.err);
        assert_kept(&options.concat());
    }
    for words in [
        &["recover", work][..],
        &["recover", work, "--force"],
        &["recover", work, "--json"],
    ] {
        let said = test_dir.elbow(words);
        said.assert_code(0);
        assert_eq!(
            said.out.matches("failed and was kept").count(),
            jobs.len(),
            "{}",
            said.out
        );
        assert_kept(&words.concat());
    }
    let mount = test_dir.outside("mount");
    fs::create_dir(&mount).expect("a mount point");
    let mount = mount.to_str().expect("UTF-8");
    test_dir.elbow(&["mount", work, mount]).assert_code(0);
    test_dir.elbow(&["commit", mount]).assert_code(0);
    assert_kept("a mount");
    for (script, holder) in [("rm -r d", "d"), ("mv d e", "d"), ("mkdir n; mv d n", "d")] {
        let run = test_dir.job(&["--on-conflict", "overwrite"], script);
        run.assert_code(125);
        assert!(run.err.contains(&format!("{holder} (.elbow-")), "{}", run.err);
        assert_kept(script);
    }
    test_dir.assert_seen_from_outside_as(&before);

    let path = test_dir.work(&jobs[1].0);
    test_dir.elbow(&["recover", work, "--drop", &jobs[0].0]).assert_code(0);
    test_dir
        .elbow(&["recover", work, "--drop", path.to_str().expect("UTF-8")])
        .assert_code(0);
    test_dir
        .elbow(&["rollback", path.to_str().expect("UTF-8")])
        .assert_code(125);
    let path = test_dir.work(&jobs[2].0);
    test_dir
        .elbow(&["rollback", path.to_str().expect("UTF-8")])
        .assert_code(0);
    test_dir.assert_equals(&before);
}

/// What was committed since under a name that a kept job had published stays.
#[test]
fn dropping_a_kept_job_takes_nothing_of_what_came_later() {
    let test_dir = TestDir::new(OLD);
    test_dir.restore();
    let (name, _) = keep_one(
        &test_dir,
        &["--publish", "eager"],
        "mkdir new; printf half > new/f; printf half > d/new",
    );
    test_dir
        .job(&[], "mkdir new; printf whole > new/f; printf whole > d/new")
        .assert_code(0);
    let committed = test_dir.metadata("new").mtime();
    test_dir.elbow(&["recover", ".", "--drop", &name]).assert_code(0);
    assert_eq!(
        (test_dir.content("new/f"), test_dir.content("d/new")),
        (b"whole".to_vec(), b"whole".to_vec())
    );
    assert_eq!(test_dir.metadata("new").mtime(), committed);
    test_dir.assert_no_staging();
}

#[test]
fn only_a_kept_job_can_be_dropped() {
    let test_dir = TestDir::new(OLD);
    test_dir.restore();
    let (kept, files) = keep_one(&test_dir, &[], CHANGES);
    for (name, words) in [
        (".elbow-0123456789abcdef-5.000000005", "no such job"),
        ("../.elbow-0123456789abcdef-5.000000005", "not in"),
        ("d", "no job has such a name"),
    ] {
        let said = test_dir.elbow(&["recover", ".", "--drop", &kept, "--drop", name]);
        said.assert_code(125);
        assert!(
            said.err.contains(words) && said.err.contains("nothing was dropped"),
            "{}",
            said.err
        );
        assert_eq!(kept_files(&test_dir, &kept), files);
    }
}

/// For a moment `elbow commit MNT && umount STORAGE` found it busy: the process that had served the mount still had it open.
#[test]
fn when_a_mount_has_ended_its_storage_can_be_unmounted_at_once() {
    let Some(disk) = LoopDisk::new(24 << 20) else { return };
    let test_dir = TestDir::at(&disk.path(), OLD);
    let mount = test_dir.outside("mount");
    fs::create_dir(&mount).expect("a mount point");
    test_dir.restore();
    let (work, mount) = (test_dir.work(""), mount.to_str().expect("UTF-8"));
    for ending in ["rollback", "commit", "rollback"] {
        test_dir
            .elbow(&["mount", work.to_str().expect("UTF-8"), mount])
            .assert_code(0);
        fs::write(format!("{mount}/new"), ending).expect("writing in the mount");
        // Much, of which it has to let go.
        for number in 0..2000 {
            fs::create_dir(format!("{mount}/{ending}{number}")).expect("a directory in the mount");
        }
        test_dir.elbow(&[ending, mount]).assert_code(0);
        disk.mount_again();
    }
    assert_eq!(
        fs::read_to_string(test_dir.work("new")).expect("what was committed"),
        "commit"
    );
}

/// rmdir(2) of a mount point of another namespace succeeds. What the command wrote afterwards was not the job's, which ended with "nothing was changed" and 0.
#[test]
fn a_job_whose_directory_others_remove_is_no_success() {
    let test_dir = TestDir::new("mkdir d");
    test_dir.restore();
    let script =
        "cd \"$WORK\"; : > \"$OUT/at\"; until [ -e \"$OUT/go\" ]; do sleep 0.02; done; mkdir -p d; echo astray > d/f";
    let job = test_dir.start_job(&["--on", "d"], script);
    wait_for("the command", || test_dir.outside("at").exists());
    fs::remove_dir(test_dir.work("d")).expect("an empty directory");
    test_dir.touch_outside("go");
    let run = job.finish();
    run.assert_code(125);
    assert!(
        run.err.contains("removed the directory at which the job was shown"),
        "{}",
        run.err
    );
    assert_eq!(test_dir.read("d/f"), b"astray\n");
}
