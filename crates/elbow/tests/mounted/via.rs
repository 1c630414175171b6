//! Jobs by ssh: `elbow run --via`. The far end is a real sshd behind a delay, and `elbow serve` as it starts it; only where another user of
//! another machine is needed, a script stands for ssh that becomes that user.
//!
//! ```text
//!   ROOT/far     the directory of the job, as the far end has it
//!   ROOT/near    where the command sees it; it is not there before and after
//!   ROOT/out     outside of the job ($OUT)
//!   ROOT/via     what is run as ssh
//! ```
//!
//! What is the same for all storages is not repeated here: the other tests run by ssh in [`crate::by_ssh`].

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use elbow_testkit::delayproxy::Line;
use elbow_testkit::program::write_program;
use elbow_testkit::sshbed::SshTestbed;
use elbow_testkit::tree::Tree;
use serde_json::Value;
use tempfile::TempDir;

use crate::commands::{Place, Run, Running, wait_for, wait_for_the_drain};
use crate::loop_disk::LoopDisk;
use crate::moments::Moments;
use crate::test_dir::{TestDir, make_old_tree, snapshot_of, ssh_server, staging_below};

const ONE_WAY: Duration = Duration::from_millis(2);
pub(crate) const OLD: &str =
    "mkdir -p d/sub gone/deep moves; for i in 1 2 3 4 5 6; do seq $i > d/$i; seq $i > gone/$i; done
    echo in > moves/in; seq 1000 > log; echo old > replaced; echo 1 > one; echo 2 > two";
const SCRIPT: &str = "set -e; cd near; mkdir -p new/a/b; for i in $(seq 60); do seq $i > new/a/b/$i; done; echo fresh > d/sub/fresh; echo more >> log
    printf X >> d/3; echo new > tmp; mv tmp replaced; rm -r gone; mv moves new/moved; mv one three; rm two; ln -s three two; chmod 600 d/1
    ln d/4 d/again; head -c 5000000 /dev/zero | tr '\\0' x > big; mkfifo pipe; cat d/sub/fresh > seen; touch -d @1000000000 new/a";
/// Kills of each kind in a usual run.
const KILLS: u64 = 24;
/// Times of sleep in a usual run; each takes seconds.
const NAPS: u64 = 4;

pub(crate) struct Testbed {
    // Ended before the directory goes.
    pub(crate) bed: SshTestbed,
    pub(crate) dir: TempDir,
}

impl Testbed {
    pub(crate) fn new() -> Option<Self> {
        Self::over(ONE_WAY)
    }

    pub(crate) fn over(line: impl Into<Line>) -> Option<Self> {
        let (dir, bed) = ssh_server(&["seed", "out"], line)?;
        let testbed = Self { bed, dir };
        make_old_tree(&testbed.path("seed"), &testbed.path("out"), OLD);
        let access = testbed.bed.access();
        let quoted: Vec<String> = access.options.iter().map(|option| format!("'{option}'")).collect();
        testbed.write_via(&format!("exec ssh {} \"$@\"", quoted.join(" ")));
        testbed.restore();
        Some(testbed)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write_via(&self, script: &str) {
        write_script(&self.path("via"), script);
    }

    pub(crate) fn restore(&self) {
        let script = "rm -rf far; cp -a seed far";
        let (work, out) = (self.dir.path(), self.path("out"));
        Place { work, out: &out }.shell(script).assert_code(0);
    }

    pub(crate) fn target(&self) -> String {
        format!("ssh://{}{}", self.bed.access().host, self.path("far").display())
    }

    pub(crate) fn start(&self, options: &[&str], script: &str) -> Running {
        let target = self.target();
        start(self.dir.path(), &[&["--via", &target], options].concat(), script)
    }

    pub(crate) fn run(&self, script: &str) -> Run {
        self.start(&["--json"], script).finish()
    }

    pub(crate) fn tree(&self) -> Tree {
        snapshot_of(&self.path("far"))
    }

    /// Waits until the command has made a file `made` outside, and all that it had changed by then is stored.
    pub(crate) fn wait_for_the_drain(&self) {
        let out = self.path("out");
        wait_for("the command", || out.join("made").exists());
        let place = Place {
            work: self.dir.path(),
            out: &out,
        };
        let words = [env!("CARGO_BIN_EXE_elbow"), "status", "--json", "near"];
        wait_for_the_drain(0, || place.start(&words).finish());
    }

    /// The far ends that serve the directory.
    pub(crate) fn far_ends(&self) -> Vec<u32> {
        self.far_ends_of("far")
    }

    /// Those that serve a directory, by its name in ROOT.
    pub(crate) fn far_ends_of(&self, directory: &str) -> Vec<u32> {
        let serves = format!("serve\0--stdio\0--root={}\0", self.path(directory).display());
        let all = fs::read_dir("/proc").expect("procfs").flatten();
        let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let is_one = |pid: &u32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).ends_with(&serves)
        };
        numbers.filter(is_one).collect()
    }

    fn native(&self) -> Tree {
        self.native_of(SCRIPT)
    }

    /// What a script leaves without a job.
    pub(crate) fn native_of(&self, script: &str) -> Tree {
        self.restore();
        let (work, out) = (self.dir.path(), self.path("out"));
        fs::rename(self.path("far"), self.path("near")).expect("a rename");
        Place { work, out: &out }.shell(script).assert_code(0);
        fs::rename(self.path("near"), self.path("far")).expect("a rename");
        let tree = self.tree().without_times();
        self.restore();
        tree
    }
}

pub(crate) fn write_script(path: &Path, script: &str) {
    write_program(path, &format!("#!/bin/sh\n{script}\n")).expect("a program");
}

/// Starts a job whose directory is `near`, below this one.
pub(crate) fn start(dir: &Path, options: &[&str], script: &str) -> Running {
    let (out, (ssh, program)) = (dir.join("out"), environment(dir));
    let options = [&["--on", "near"], options].concat();
    Place { work: dir, out: &out }.start_job(&["env", &ssh, &program], &options, script)
}

/// Which programs are used to get there.
pub(crate) fn environment(dir: &Path) -> (String, String) {
    let ssh = format!("ELBOW_SSH={}", dir.join("via").display());
    (ssh, format!("ELBOW_VIA_PROGRAM={}", env!("CARGO_BIN_EXE_elbow")))
}

/// The object that a run says at its end.
pub(crate) fn report(run: &Run) -> Value {
    let last = run.err.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {}", run.err))
}

#[test]
fn a_job_by_ssh_leaves_what_it_leaves_without_one() {
    let Some(testbed) = Testbed::new() else { return };
    let after = testbed.native();
    let run = testbed.run(SCRIPT);
    run.assert_code(0);
    assert_eq!(report(&run)["via"], "elbow");
    testbed.tree().without_times().assert_equals(&after);
    assert_eq!(
        testbed.path("far/new/a").metadata().expect("a directory").mtime(),
        1_000_000_000
    );
    assert!(!testbed.path("near").exists(), "it was there for the time of the job");
    assert!(testbed.far_ends().is_empty(), "nothing runs afterwards");
}

#[test]
fn a_command_that_fails_leaves_the_far_end_as_it_was() {
    let Some(testbed) = Testbed::new() else { return };
    let before = testbed.tree();
    let run = testbed.run(&format!("{SCRIPT}; exit 3"));
    run.assert_code(3);
    assert_eq!(report(&run)["outcome"], "rolled_back");
    testbed.tree().assert_equals(&before);
    assert!(testbed.far_ends().is_empty());
}

/// 20 MB of a text and 10 MB of noise, over a line of 20 MB/s: the text is made shorter in both directions.
#[test]
fn what_goes_by_ssh_is_compressed_unless_it_is_told_not_to_be() {
    const TEXT: u64 = 20_000_000;
    const NOISE: u64 = 10_000_000;
    let line = Line {
        one_way: ONE_WAY,
        rate: Some(20_000_000),
    };
    let Some(testbed) = Testbed::over(line) else { return };
    let passed = |options: &[&str], script: &str| {
        let before = testbed.bed.passed_bytes();
        let job = testbed.start(&[options, &["--json"]].concat(), script);
        job.finish().assert_code(0);
        testbed.bed.passed_bytes() - before
    };
    let write = format!(
        "set -e; cd near; yes 'the same words again' | head -c {TEXT} > text; head -c {NOISE} /dev/urandom > noise; cksum < text > $OUT/sum"
    );
    let written = passed(&[], &write);
    assert!(
        (NOISE..NOISE + TEXT / 4).contains(&written),
        "{written} bytes went there"
    );
    let sum = || fs::read_to_string(testbed.path("out/sum")).expect("a sum");
    let as_written = sum();
    // No disk is behind the reader: a busy one holds it up, and what was read ahead for it is forgotten and comes again.
    let read = "cd near; cksum < noise > $OUT/noise; cksum < text > $OUT/sum";
    let assert_read = || {
        let same = "[ \"$(cksum < far/noise)\" = \"$(cat $OUT/noise)\" ]; rm $OUT/noise";
        let (work, out) = (testbed.dir.path(), testbed.path("out"));
        Place { work, out: &out }.shell(same).assert_code(0);
        assert_eq!(sum(), as_written);
    };
    let packed = passed(&[], read);
    assert!((NOISE..NOISE + TEXT / 4).contains(&packed), "{packed} bytes came back");
    assert_read();
    let plain = passed(&["--compress", "never"], read);
    assert!(plain >= NOISE + TEXT, "{plain} bytes came back");
    assert_read();
}

/// What ends all of a sudden.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Victim {
    /// `elbow run`, and with it the command.
    Near,
    /// ssh(1).
    Connection,
    /// `elbow serve`.
    Far,
    /// What is between the machines.
    Network,
    /// sshd(8), as far as it serves this one.
    Server,
}

const VICTIMS: [Victim; 5] = [
    Victim::Near,
    Victim::Connection,
    Victim::Far,
    Victim::Network,
    Victim::Server,
];

impl Testbed {
    fn kill(&self, victim: Victim, job: &Running) {
        match victim {
            Victim::Near => job.signal_group("KILL"),
            Victim::Far => kill_all(&self.far_ends()),
            Victim::Connection => kill_all(&self.connections()),
            Victim::Network => self.bed.cut(),
            Victim::Server => kill_all(&self.sessions()),
        }
    }

    /// The processes of sshd(8) that have started the far ends.
    fn sessions(&self) -> Vec<u32> {
        self.far_ends().into_iter().filter_map(session_of).collect()
    }

    /// The processes of ssh(1) that go there.
    pub(crate) fn connections(&self) -> Vec<u32> {
        let key = self.path("ssh/user_key").display().to_string();
        let all = fs::read_dir("/proc").expect("procfs").flatten();
        let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let is_one = |pid: &u32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.starts_with(b"ssh\0") && String::from_utf8_lossy(&words).contains(&key)
        };
        numbers.filter(is_one).collect()
    }
}

/// The nearest sshd above a process.
fn session_of(process: u32) -> Option<u32> {
    let status = |process| fs::read_to_string(format!("/proc/{process}/status")).ok();
    let field = |text: &str, name: &str| Some(text.lines().find_map(|line| line.strip_prefix(name))?.trim().to_owned());
    let mut above = process;
    loop {
        above = field(&status(above)?, "PPid:")?
            .parse()
            .ok()
            .filter(|above| *above > 1)?;
        if field(&status(above)?, "Name:")?.starts_with("sshd") {
            return Some(above);
        }
    }
}

pub(crate) fn kill_all(processes: &[u32]) {
    signal_all(processes, "KILL");
}

pub(crate) fn signal_all(processes: &[u32], signal: &str) {
    for process in processes {
        // It may have ended by itself.
        let _ = Command::new("kill").args(["-s", signal, &process.to_string()]).status();
    }
}

/// Kills at random moments of real jobs, of all that a job by ssh consists of. `ROUNDS=n` kills so many of each.
#[test]
fn whatever_ends_the_tree_is_the_old_or_the_new() {
    let Some(testbed) = Testbed::new() else { return };
    let after = testbed.native();
    let before = testbed.tree().without_times();
    let mut moments = Moments::of(VICTIMS.len() as u64 * KILLS, || testbed.run(SCRIPT).assert_code(0));
    while let Some((round, moment)) = moments.next() {
        let victim = VICTIMS[round as usize % VICTIMS.len()];
        testbed.restore();
        let job = testbed.start(&["--json"], SCRIPT);
        std::thread::sleep(moment);
        testbed.kill(victim, &job);
        let run = job.finish();
        wait_for("the far end to end its job", || testbed.far_ends().is_empty());
        if victim == Victim::Far {
            // Nobody is there to end it but who comes next.
            let (work, out) = (testbed.path("far"), testbed.path("out"));
            let recover = [env!("CARGO_BIN_EXE_elbow"), "recover", "."];
            Place { work: &work, out: &out }.start(&recover).finish().assert_code(0);
        }
        let what = format!("{victim:?}, round {round}, exit code {}: {}", run.code, run.err);
        assert_eq!(staging_below(&testbed.path("far")), 0, "{what}");
        let found = testbed.tree().without_times();
        if found != after {
            let difference = found.difference(&before);
            assert!(difference.is_none(), "{what}: {}", difference.unwrap_or_default());
            assert!(run.code != 0, "{what}");
        }
        moments.note(found == after);
        let _ = fs::remove_dir(testbed.path("near")); // of one that was killed
    }
    moments.assert_both();
}

/// The lid of a laptop is closed in the middle of a job, for longer than the server waits for a sign of it.
#[test]
fn who_slept_longer_than_the_connection_lasts_finds_the_old_tree_or_the_new_and_is_told() {
    let Some(mut testbed) = Testbed::new() else { return };
    let after = testbed.native();
    let before = testbed.tree().without_times();
    let mut moments = Moments::of(NAPS, || testbed.run(SCRIPT).assert_code(0));
    testbed
        .bed
        .restart_with("ClientAliveInterval 3\nClientAliveCountMax 1\n")
        .expect("sshd starts again");
    let mut given_up = 0;
    while let Some((round, moment)) = moments.next() {
        testbed.restore();
        let mut job = testbed.start(&["--json"], SCRIPT);
        std::thread::sleep(moment);
        let (has_ended, has_begun) = (job.has_ended(), !testbed.far_ends().is_empty());
        if !has_ended {
            let connections = testbed.connections();
            job.signal_group("STOP");
            signal_all(&connections, "STOP");
            wait_for("the far end to give up who sleeps", || testbed.far_ends().is_empty());
            signal_all(&connections, "CONT");
            job.signal_group("CONT");
        }
        let run = job.finish();
        wait_for("the far end to end its job", || testbed.far_ends().is_empty());
        let what = format!("round {round}, exit code {}: {}", run.code, run.err);
        assert_eq!(staging_below(&testbed.path("far")), 0, "{what}");
        let found = testbed.tree().without_times();
        if found != after {
            let difference = found.difference(&before);
            assert!(difference.is_none(), "{what}: {}", difference.unwrap_or_default());
            assert!(run.code != 0, "{what}");
        }
        if run.code != 0 {
            assert!(run.err.to_lowercase().contains("connect"), "{what}");
        }
        if has_ended && run.code != 0 {
            // The machine was so busy that the server gave up who was awake: nobody slept.
            given_up += 1;
            assert!(given_up <= NAPS, "{what}");
        } else if found == after && !has_begun && !has_ended {
            moments.note_early();
        } else {
            moments.note(found == after);
        }
        assert_eq!(testbed.connections(), [0; 0], "{what}");
        assert!(!testbed.path("near").exists(), "{what}");
    }
    moments.assert_both();
}

#[test]
fn a_full_disk_at_the_far_end_is_told_and_changes_nothing() {
    let Some(testbed) = Testbed::new() else { return };
    let Some(disk) = LoopDisk::new(32 << 20) else { return };
    let far = disk.path().join("d");
    fs::create_dir(&far).expect("a directory");
    fs::write(far.join("old"), "old").expect("a file");
    let before = snapshot_of(&far);
    let target = format!("ssh://{}{}", testbed.bed.access().host, far.display());
    let dir = testbed.dir.path();
    let script = "head -c 60000000 /dev/zero | tr '\\0' x > near/big; echo new > near/old";
    let run = start(dir, &["--json", "--no-keep", "--via", &target], script).finish();
    assert!(
        run.code != 0 && run.err.contains("No space left on device"),
        "{}: {}",
        run.code,
        run.err
    );
    snapshot_of(&far).assert_equals(&before);
}

/// The disk there fills up at random moments of real jobs, all of it.
#[test]
fn whenever_the_disk_there_fills_up_the_tree_is_the_old_or_the_new() {
    let Some(testbed) = Testbed::new() else { return };
    let Some(disk) = LoopDisk::new(48 << 20) else { return };
    let (far, filler) = (disk.path().join("far"), disk.path().join("filler"));
    let target = format!("ssh://{}{}", testbed.bed.access().host, far.display());
    let (after, before) = (testbed.native(), testbed.tree().without_times());
    let restore = || {
        let _ = fs::remove_dir_all(&far);
        let _ = fs::remove_file(&filler);
        let copied = Command::new("cp")
            .arg("-a")
            .args([testbed.path("seed"), far.clone()])
            .status();
        assert!(copied.expect("cp").success());
    };
    let run = || start(testbed.dir.path(), &["--json", "--no-keep", "--via", &target], SCRIPT);
    restore();
    let mut moments = Moments::of(KILLS, || run().finish().assert_code(0));
    while let Some((round, moment)) = moments.next() {
        restore();
        let job = run();
        std::thread::sleep(moment);
        fill(&filler);
        let run = job.finish();
        let what = format!("round {round}, exit code {}: {}", run.code, run.err);
        assert_eq!(staging_below(&far), 0, "{what}");
        let found = snapshot_of(&far).without_times();
        if found != after {
            let difference = found.difference(&before);
            assert!(difference.is_none(), "{what}: {}", difference.unwrap_or_default());
            assert!(run.code != 0 && run.err.contains("No space left on device"), "{what}");
        }
        moments.note(found == after);
    }
    moments.assert_both();
}

/// Takes all room that a file system has, down to its last block.
fn fill(file: &Path) {
    let file = fs::File::create(file).expect("a file");
    let mut at = 0;
    for length in [1_u64 << 20, 64 << 10, 4 << 10] {
        while rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), at, length).is_ok() {
            at += length;
        }
    }
}

/// Makes a directory, and when it may go on results that are stored when it has ended.
pub(crate) const MAKES_RESULTS_LATE: &str =
    "set -e; mkdir near/new; : > $OUT/made; until [ -e $OUT/go ]; do sleep 0.02; done
    exec 3>near/new/1 4>near/new/2 5>near/new/3 6>near/old
    for i in 1 2 3; do head -c 3000000 /dev/zero | tr '\\0' $i >&$((i + 2)); done; echo new >&6";

/// What the command has earned waits for room, here and there, and is stored when there is some.
#[test]
fn results_that_a_full_disk_at_the_far_end_refuses_are_kept_and_resumed() {
    let Some(testbed) = Testbed::new() else { return };
    let Some(disk) = LoopDisk::new(64 << 20) else { return };
    let far = disk.path().join("d");
    fs::create_dir(&far).expect("a directory");
    fs::write(far.join("old"), "old").expect("a file");
    let target = format!("ssh://{}{}", testbed.bed.access().host, far.display());
    let dir = testbed.dir.path();
    let scratch = testbed.path("out").display().to_string();
    let job = start(
        dir,
        &["--json", "--scratch", &scratch, "--via", &target],
        MAKES_RESULTS_LATE,
    );
    testbed.wait_for_the_drain();
    // The room goes while the command runs; what stays open until it ends is stored when it has ended.
    let filler = disk.fill();
    fs::write(testbed.path("out/go"), "").expect("a file");
    let run = job.finish();
    let kept = report(&run);
    assert_eq!((run.code, &kept["outcome"]), (125, &Value::from("kept")), "{}", run.err);
    fs::remove_file(&filler).expect("room");
    assert_eq!(fs::read(far.join("old")).expect("a file"), b"old");
    assert!(!far.join("new").exists());
    let resume = [
        env!("CARGO_BIN_EXE_elbow"),
        "resume",
        "near",
        "--scratch",
        &scratch,
        "--via",
        &target,
    ];
    let (ssh, program) = environment(dir);
    let out = testbed.path("out");
    let place = Place { work: dir, out: &out };
    place
        .start(&[&["env", &*ssh, &*program], &resume[..]].concat())
        .finish()
        .assert_code(0);
    assert_eq!(fs::read(far.join("old")).expect("a file"), b"new\n");
    for i in ["1", "2", "3"] {
        assert_eq!(
            fs::read(far.join("new").join(i)).expect("a result"),
            i.repeat(3_000_000).as_bytes()
        );
    }
    assert_eq!(staging_below(&far), 0);
}

#[test]
fn an_sshfs_mount_is_reached_by_ssh_if_that_asks_nothing() {
    let Some(testbed) = Testbed::new() else { return };
    fs::create_dir(testbed.path("near")).expect("a directory");
    let script = "set -e; cd near; echo more >> one; mkdir -p new/there; echo x > new/there/x";
    for (way, via) in [("elbow", None), ("mount", Some("exit 255"))] {
        let mount = testbed
            .bed
            .mount(&testbed.path("far"), &testbed.path("near"))
            .expect("an sshfs mount");
        if let Some(script) = via {
            testbed.write_via(script);
        }
        let run = start(testbed.dir.path(), &["--json", "--via", "auto"], script).finish();
        run.assert_code(0);
        let report = report(&run);
        assert_eq!(report["via"], way);
        let note = report["notes"][0].as_str().unwrap_or_default();
        assert!(
            note.contains(if way == "elbow" {
                "by `elbow` on"
            } else {
                "no connection"
            }),
            "{note}"
        );
        drop(mount);
        assert_eq!(fs::read(testbed.path("far/one")).expect("a result"), b"1\nmore\n");
        assert!(testbed.path("far/new/there").is_dir(), "stored by {way}");
        // Not removed: it is what is mounted.
        fs::remove_dir_all(testbed.path("far/new")).expect("a result");
        fs::write(testbed.path("far/one"), "1\n").expect("a file");
    }
}

#[test]
fn a_far_end_that_is_none_is_named() {
    let test_dir = TestDir::new("printf old > old");
    test_dir.restore();
    let root = test_dir.root();
    for (script, said) in [
        ("echo 'Welcome to box!'; sleep 1", "Welcome to box!"),
        ("exit 127", "there is no `"),
        ("exit 255", "no connection"),
        ("for last; do :; done; exec sh -c \"$last/missing\"", "missing"),
        ("printf ELBOWVIA; head -c 100000 /dev/urandom", "box"),
        // A message of 4 GiB.
        (
            "printf 'ELBOWVIA\\377\\377\\377\\377\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0'; sleep 1",
            "too long",
        ),
    ] {
        write_script(&root.join("via"), script);
        let target = format!("ssh://box{}", test_dir.work("").display());
        let run = start(&root, &["--via", target.trim_end_matches('/')], "echo x > near/x").finish();
        run.assert_code(125);
        assert!(
            run.err.contains(said) && run.err.contains("box"),
            "{script}: {}",
            run.err
        );
        assert!(!root.join("near").exists());
    }
    assert_eq!(test_dir.content("old"), b"old");
    let run = start(&root, &["--via", "box:/data"], "true").finish();
    assert!(
        run.code == 125 && run.err.contains("ssh://[USER@]HOST"),
        "{}: {}",
        run.code,
        run.err
    );
}

/// Every command of the guide, in one script, over a real sshd; the machine of the guide is this one, with another home directory.
#[test]
fn the_guide_to_a_home_directory_over_ssh_works() {
    const GUIDE: &str = include_str!("../../../../docs/src/guide/via.md");
    let Some(testbed) = Testbed::new() else { return };
    for name in ["home/.local/bin", "bin", "here/results"] {
        fs::create_dir_all(testbed.path(name)).expect("a directory");
    }
    let elbow = Path::new(env!("CARGO_BIN_EXE_elbow"));
    std::os::unix::fs::symlink(elbow, testbed.path("home/.local/bin/elbow")).expect("a link");
    let programs = elbow.parent().expect("a directory").display();
    let (via, home) = (testbed.path("via"), testbed.path("home"));
    let there = format!("cd {} && PATH={programs}:$PATH;", home.display());
    let host = &testbed.bed.access().host;
    // ssh(1) with the guide's name for the machine.
    let ssh = format!(
        "while [ \"$1\" != cluster ]; do shift; done; shift; PATH=/usr/bin:/bin exec {} {host} '{there}' \"$@\"",
        via.display()
    );
    write_script(&testbed.path("bin/ssh"), &ssh);
    let prepare = "echo 1 > results/one; mkdir made; echo 2 > made/two; tar cf dataset.tar -C made .; rm -r made";
    let blocks = GUIDE
        .split("```sh\n")
        .skip(1)
        .filter_map(|rest| rest.split("```\n").next());
    let script = format!(
        "PATH={}:{programs}:$PATH; {prepare}\n{}",
        testbed.path("bin").display(),
        blocks.collect::<String>()
    );
    let (work, out) = (testbed.path("here"), testbed.path("out"));
    let run = Place { work: &work, out: &out }.start(&["sh", "-c", &script]).finish();
    run.assert_code(0);
    assert!(
        run.out.contains("rolled back: 1") && run.out.contains("elbow 0."),
        "{}{}",
        run.out,
        run.err
    );
    let mut left: Vec<_> = fs::read_dir(home.join("data"))
        .expect("made by the guide")
        .flatten()
        .collect();
    left.sort_by_key(|entry| entry.file_name());
    let left: Vec<_> = left.into_iter().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["done", "found", "results-1", "two"]);
    assert!(!testbed.path("here/data").exists());
}

/// The name and the path of a mount are those of another machine, if it goes by a port or a program of its own: what is there is looked at before it is used.
#[test]
fn a_mount_of_another_machine_is_told_from_what_ssh_finds() {
    let Some(testbed) = Testbed::new() else { return };
    for name in ["near", "other", "other/far"] {
        fs::create_dir(testbed.path(name)).expect("a directory");
    }
    let far = testbed.path("far").display().to_string();
    let other = testbed.path("other/far").display().to_string();
    testbed.write_via(&format!(
        "for last; do :; done; cd /; exec sh -c \"$(echo \"$last\" | sed 's#{far}#{other}#')\""
    ));
    let mount = testbed
        .bed
        .mount(&testbed.path("far"), &testbed.path("near"))
        .expect("an sshfs mount");
    let run = start(testbed.dir.path(), &["--json", "--via", "auto"], "echo x > near/x").finish();
    run.assert_code(0);
    let report = report(&run);
    assert_eq!(report["via"], "mount");
    let note = report["notes"][0].as_str().unwrap_or_default();
    assert!(note.contains("not what the mount shows"), "{note}");
    drop(mount);
    assert!(testbed.path("far/x").exists() && !testbed.path("other/far/x").exists());
}

/// Whoever is asked by ssh for a password, or waits for a machine that does not answer, can end it.
#[test]
fn a_log_in_that_does_not_come_to_an_end_can_be_ended() {
    let test_dir = TestDir::new("printf old > old");
    let root = test_dir.root();
    // ssh(1) ends with Ctrl-C, which may be seen before the signal is; or it does not.
    for waits in [
        ": > out/waits; exec sleep 60",
        "trap '' INT; : > out/waits; exec sleep 60",
        // What says something, and then nothing more: a server whose directory does not answer, or a prompt.
        "trap '' INT; printf ELBOWVIA; : > out/waits; exec sleep 60",
        "trap '' INT; printf 'x: '; : > out/waits; exec sleep 60",
    ] {
        test_dir.restore();
        write_script(&root.join("via"), waits);
        let target = format!("ssh://box{}", test_dir.work("").display());
        let job = start(&root, &["--via", target.trim_end_matches('/')], "true");
        wait_for("ssh", || test_dir.outside("waits").exists());
        let began = Instant::now();
        job.signal_group("INT");
        let run = job.finish();
        run.assert_code(125);
        assert!(run.err.contains("interrupted"), "{waits}: {}", run.err);
        assert!(began.elapsed() < Duration::from_secs(30));
        assert!(!root.join("near").exists());
        fs::remove_file(test_dir.outside("waits")).expect("what the script left");
    }
}

/// A variable that is exported is for what runs in the job, too, whose directory is that of the job around.
#[test]
fn a_job_in_a_job_by_ssh_is_a_part_of_that() {
    let Some(testbed) = Testbed::new() else { return };
    let (target, elbow) = (testbed.target(), env!("CARGO_BIN_EXE_elbow"));
    let script = format!(
        "export ELBOW_VIA={target}; cd near && echo outer > outer && {elbow} run --json -- sh -c 'cat outer > inner' 2> \"$OUT/inner\""
    );
    testbed.run(&script).assert_code(0);
    assert_eq!(fs::read(testbed.path("far/inner")).expect("a result"), b"outer\n");
    let said = fs::read_to_string(testbed.path("out/inner")).expect("what it said");
    assert!(said.contains("\"via\":\"mount\""), "{said}");
}

/// The bytes of old files are copied where they are. What the job has changed itself is read and written, and is right, too.
#[test]
fn what_is_copied_within_the_tree_does_not_go_over_the_line() {
    let Some(testbed) = Testbed::new() else { return };
    testbed.copies_stay_there(|script| testbed.run(script));
    let same = "set -e; cd far; [ copies/1 -ef copies/again ]; [ $(stat -c %b copies/sub/sparse) -lt 100 ]";
    let (work, out) = (testbed.dir.path(), testbed.path("out"));
    Place { work, out: &out }.shell(same).assert_code(0);
}

impl Testbed {
    /// Old files are copied in jobs, in whole and in part, and changed before and after; what goes over the line is little.
    pub(crate) fn copies_stay_there(&self, run: impl Fn(&str) -> Run) {
        let noise = "mkdir -p far/old/sub; for i in $(seq 30); do head -c 300000 /dev/urandom > far/old/$i; done; head -c 9000000 /dev/urandom > far/old/sub/big;
        mkdir far/old/small; for i in $(seq 200); do head -c 20000 /dev/urandom > far/old/small/$i; done
        for i in $(seq 300); do printf x | dd of=far/old/parts bs=1 seek=${i}0000 conv=notrunc status=none; done
        truncate -s 3M far/old/sub/sparse; printf end >> far/old/sub/sparse; ln far/old/1 far/old/again; chmod 6755 far/old/2; chmod 0400 far/old/3; : > far/old/none
        mkdir -p far/left/deep; head -c 300000 /dev/urandom > far/left/deep/x; cp far/left/deep/x $OUT/x";
        let (work, out) = (self.dir.path(), self.path("out"));
        Place { work, out: &out }.shell(noise).assert_code(0);
        let before = self.bed.passed_bytes();
        // What was read before is read ahead of no copy. (The copy of a file in a directory that the command removed after it failed the job: the
        // directory had been closed when the copy was to be made by its name.)
        let copies = "set -e; cd near; cat old/small/1 old/small/10 old/small/100 > /dev/null; cp -a old copies; cp old/sub/big one; mkdir moved; mv old/4 moved/here; cp moved/here fourth; cp old/5 fifth; rm old/5
        cp old/6 sixth; printf X >> sixth; cp old/7 seventh; printf X >> old/7; cp old/8 eighth; printf CHANGED | dd of=eighth conv=notrunc bs=1 seek=1000 status=none
        cp old/9 ninth; truncate -s 1000 ninth
        cp -a left kept; rm -r left";
        run(copies).assert_code(0);
        let passed = self.bed.passed_bytes() - before;
        // Of 22 MB of files that cannot be made shorter, copied twice in part.
        assert!(passed < 2_000_000, "{passed} bytes passed");
        let same = "set -e; cd far; cmp old/sub/big one; cmp old/sub/big copies/sub/big; cmp old/sub/sparse copies/sub/sparse; cmp old/parts copies/parts; cmp copies/4 fourth; cmp moved/here fourth
        cmp copies/5 fifth; head -c 300000 sixth | cmp - old/6; [ $(tail -c 1 sixth) = X ]; cmp copies/7 seventh; head -c 300000 old/7 | cmp - seventh
        [ $(stat -c %s old/7) = 300001 ]; head -c 1000 eighth | cmp -n 1000 - old/8; tail -c +1008 eighth > $OUT/a; tail -c +1008 old/8 | cmp - $OUT/a
        head -c 1000 old/9 | cmp - ninth; [ $(stat -c %s ninth) = 1000 ]; [ $(stat -c %a copies/2) = 6755 ]; [ $(stat -c %a copies/3) = 400 ]; [ ! -s copies/none ]
        cmp kept/deep/x $OUT/x; [ ! -e left ]";
        Place { work, out: &out }.shell(same).assert_code(0);
        // What is read of a copy in the job is what it is a copy of: at once, when it is stored, and when the job has changed the copy or what it was made of.
        let read = "set -e; cd near; cp old/10 a; cmp a old/10; sleep 0.3; cmp a old/10; cp old/11 b; printf Y >> old/11; sleep 0.3; head -c 300000 old/11 | cmp - b
        cp a again; cmp again old/10; cp old/11 c; cmp c old/11; exec 3<> open; cat old/12 >&3; cp old/12 e; cmp open e";
        run(read).assert_code(0);
        let same = "set -e; cd far; cmp a old/10; cmp again a; cmp c old/11; cmp e old/12; cmp open old/12";
        Place { work, out: &out }.shell(same).assert_code(0);
    }
}

impl Testbed {
    /// Changes so many old files that what is written lies in several directories until the commit, and reads some of it in the job: some is stored by
    /// then, and some is not.
    pub(crate) fn many_small_changes_arrive(&self, run: impl Fn(&str) -> Run) {
        let logs = "mkdir seed/logs; for i in $(seq 80); do seq 100 > seed/logs/$i; done";
        let (work, out) = (self.dir.path(), self.path("out"));
        Place { work, out: &out }.shell(logs).assert_code(0);
        let is_spread = "until [ \"$(ls -d $OUT/../far/.elbow-*/patches-* 2> /dev/null | tee $OUT/dirs | wc -l)\" -gt 1 ]; do sleep 0.05; done";
        let changes = |between: &str| {
            format!("set -e; cd near/logs; for i in *; do echo more >> $i; done
            {between}
            for i in *; do [ \"$(tail -n 1 $i)\" = more ]; printf XX | dd of=$i bs=1 seek=10 conv=notrunc status=none; done
            head -c 100000 /dev/zero | tr '\\0' y | dd of=77 bs=100000 conv=notrunc iflag=fullblock status=none; truncate -s 5 78; printf Z >> 79; tail -c 2 79 > read")
        };
        let after = self.native_of(&changes(":"));
        run(&changes(is_spread)).assert_code(0);
        let dirs = fs::read_to_string(out.join("dirs")).expect("what the command saw");
        assert!(dirs.lines().count() > 1, "what it wrote is not spread: {dirs}");
        self.tree().without_times().assert_equals(&after);
        let left = fs::read_dir(self.path("far")).expect("the far end").flatten();
        let is_left = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with(".elbow");
        assert_eq!(left.filter(|entry| is_left(&entry.file_name())).count(), 0);
    }
}

#[test]
fn many_small_changes_of_old_files_arrive_by_ssh() {
    let Some(testbed) = Testbed::new() else { return };
    testbed.many_small_changes_arrive(|script| testbed.run(script));
}

/// What lies below a directory comes with its listing: who walks down does not wait for each level.
#[test]
fn directories_below_a_listed_one_are_known_without_asking_again() {
    let Some(testbed) = Testbed::new() else { return };
    // The far end lists ahead for a short time only, which a busy machine may take away from it.
    let has_walked = (0..8).any(|_| testbed.walks_while_the_far_end_is_stopped());
    assert!(has_walked, "no walk without the far end");
}

impl Testbed {
    /// Runs a job that walks down the directories of a listing; whether it could do so while nobody answered.
    fn walks_while_the_far_end_is_stopped(&self) -> bool {
        const WALK_MAX: Duration = Duration::from_secs(10);
        self.restore();
        let (work, out) = (self.dir.path(), self.path("out"));
        let place = Place { work, out: &out };
        place
            .shell("mkdir -p far/a/b/c/d/e; echo 1 > far/a/b/c/d/e/deep; echo 22 > far/a/b/one; cd $OUT; rm -f listed stopped names walked goes")
            .assert_code(0);
        let script = "set -e; cd near; ls > /dev/null; : > $OUT/listed; while [ ! -e $OUT/stopped ]; do sleep 0.02; done
        ls -l a/b a/b/c/d/e > $OUT/names; : > $OUT/walked; while [ ! -e $OUT/goes ]; do sleep 0.02; done; rm -r a/b/c; cat a/b/one; echo new > a/b/new";
        let job = self.start(&["--json"], script);
        wait_for("a listing", || out.join("listed").exists());
        let ends = self.far_ends();
        assert!(!ends.is_empty());
        signal_all(&ends, "STOP");
        fs::write(out.join("stopped"), "").expect("a file");
        let deadline = Instant::now() + WALK_MAX;
        while !out.join("walked").exists() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        let has_walked = out.join("walked").exists();
        signal_all(&ends, "CONT");
        fs::write(out.join("goes"), "").expect("a file");
        let run = job.finish();
        run.assert_code(0);
        assert_eq!(run.out, "22\n");
        let names = fs::read_to_string(out.join("names")).expect("names");
        assert!(names.contains("deep") && names.contains("one"), "{names}");
        place
            .shell("[ ! -e far/a/b/c ] && [ $(cat far/a/b/new) = new ]")
            .assert_code(0);
        has_walked
    }
}

/// What others do to the file `old/17` between the copy and its making: it is removed, replaced by one of the same length, or overwritten.
pub(crate) const BEFORE_THE_COPY: [&str; 3] = [
    "mv far/old/17 far/taken",
    "mv far/other far/old/17",
    "dd if=far/other of=far/old/17 conv=notrunc status=none",
];

impl Testbed {
    /// A copy is made after it was acknowledged: what the command saw of the file can be copied no more when others were there first, and the job says so
    /// and changes nothing. `holders` are stopped while the command copies.
    pub(crate) fn others_come_before_the_copy(
        &self,
        others: &str,
        start: impl Fn(&str) -> Running,
        holders: impl Fn() -> Vec<u32>,
    ) {
        self.restore();
        let (work, out) = (self.dir.path(), self.path("out"));
        let place = Place { work, out: &out };
        place
            .shell("mkdir far/old; for i in $(seq 20); do seq 20000 > far/old/$i; done; touch -d @1500000000 far/old/*; seq 20000 | tr 0-9 a-j > far/other; cd $OUT; rm -f listed stopped copied")
            .assert_code(0);
        let script = "set -e; cd near; ls -lR old > /dev/null; cp old/16 first; : > $OUT/listed; while [ ! -e $OUT/stopped ]; do sleep 0.02; done; cp old/17 new; : > $OUT/copied";
        let job = start(script);
        wait_for("a listing", || out.join("listed").exists());
        let stopped = holders();
        assert!(!stopped.is_empty());
        signal_all(&stopped, "STOP");
        fs::write(out.join("stopped"), "").expect("a file");
        wait_for("a copy", || out.join("copied").exists());
        place.shell(others).assert_code(0);
        signal_all(&stopped, "CONT");
        let run = job.finish();
        run.assert_code(125);
        assert_eq!(report(&run)["outcome"], "rolled_back", "{others}");
        let errors = report(&run)["errors"].clone();
        let told: Vec<_> = errors.as_array().expect("errors").iter().collect();
        assert_eq!(told.len(), 1, "{others}: {}", run.err);
        assert_eq!(told[0]["operation"], "copy what somebody else has changed since to");
        assert_eq!(told[0]["path"], "new");
        assert!(!self.path("far/new").exists() && !self.path("far/first").exists());
    }
}

#[test]
fn a_file_that_others_change_before_it_was_copied_fails_the_job() {
    let Some(testbed) = Testbed::new() else { return };
    for others in BEFORE_THE_COPY {
        let start = |script: &str| testbed.start(&["--json"], script);
        testbed.others_come_before_the_copy(others, start, || testbed.far_ends());
        assert!(testbed.far_ends().is_empty());
    }
}
