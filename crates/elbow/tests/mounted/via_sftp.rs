//! Jobs by ssh where no `elbow` is at the far end: over the SFTP server of a real sshd behind a delay.
//!
//! The directories are those of [`crate::via`]. What is the same for all storages is not repeated here: the other tests run over SFTP in
//! [`crate::by_ssh`].

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use crate::commands::{Place, Run, Running, wait_for};
use crate::loop_disk::LoopDisk;
use crate::moments::Moments;
use crate::test_dir::{snapshot_of, staging_below, without_staging};
use crate::via::{BEFORE_THE_COPY, MAKES_RESULTS_LATE, Testbed, kill_all, report, signal_all, write_script};

/// As by `elbow` there, but for the pipe.
const SCRIPT: &str = "set -e; cd near; mkdir -p new/a/b; for i in $(seq 60); do seq $i > new/a/b/$i; done; echo fresh > d/sub/fresh; echo more >> log
    printf X >> d/3; echo new > tmp; mv tmp replaced; rm -r gone; mv moves new/moved; mv one three; rm two; ln -s three two; chmod 600 d/1
    ln d/4 d/again; head -c 5000000 /dev/zero | tr '\\0' x > big; cat d/sub/fresh > seen; touch -d @1000000000 new/a";
/// Kills in a usual run.
const KILLS: u64 = 5;
/// How long a job sends requests to a server that is stopped.
const BACKLOG: Duration = Duration::from_millis(300);
/// It is not at the far end.
const NO_ELBOW: &str = "ELBOW_VIA_PROGRAM=/nonexistent/elbow";

impl Testbed {
    fn sftp(&self, options: &[&str], script: &str) -> Running {
        self.sftp_to(&self.target(), options, script)
    }

    fn sftp_to(&self, target: &str, options: &[&str], script: &str) -> Running {
        let (ssh, out) = (self.ssh(), self.path("out"));
        let options = [&["--on", "near", "--via", target], options].concat();
        let place = Place {
            work: self.dir.path(),
            out: &out,
        };
        place.start_job(&["env", &ssh, NO_ELBOW], &options, script)
    }

    fn ssh(&self) -> String {
        format!("ELBOW_SSH={}", self.path("via").display())
    }

    /// Runs a script, which is stored over SFTP.
    fn stores(&self, script: &str) -> Run {
        let run = self.sftp(&["--json"], script).finish();
        run.assert_code(0);
        assert_eq!(report(&run)["via"], "sftp");
        run
    }

    fn elbow(&self, words: &[&str]) -> Run {
        let (ssh, out, target) = (self.ssh(), self.path("out"), self.target());
        let words = [
            &["env", &ssh, NO_ELBOW, env!("CARGO_BIN_EXE_elbow")],
            words,
            &["--via", &target],
        ]
        .concat();
        let place = Place {
            work: self.dir.path(),
            out: &out,
        };
        place.start(&words).finish()
    }
}

#[test]
fn a_job_over_sftp_leaves_what_it_leaves_without_one() {
    let Some(testbed) = Testbed::new() else { return };
    let after = testbed.native_of(SCRIPT);
    let run = testbed.stores(SCRIPT);
    let note = report(&run)["notes"][0].as_str().unwrap_or_default().to_owned();
    assert!(
        note.contains("over SFTP on") && note.contains("there is no `"),
        "{note}"
    );
    testbed.tree().without_times().assert_equals(&after);
    let made = testbed.path("far/new/a").metadata().expect("a directory");
    assert_eq!(made.mtime(), 1_000_000_000);
    assert!(!testbed.path("near").exists(), "it was there for the time of the job");
    assert_eq!(staging_below(&testbed.path("far")), 0);
}

#[test]
fn a_command_that_fails_over_sftp_leaves_the_far_end_as_it_was() {
    let Some(testbed) = Testbed::new() else { return };
    // Times there are put back in whole seconds.
    let whole = |script: &str| {
        let (work, out) = (testbed.dir.path(), testbed.path("out"));
        Place { work, out: &out }.shell(script).assert_code(0);
    };
    whole("find far -exec touch -h -d @1500000000 {} +");
    let before = testbed.tree();
    let run = testbed.sftp(&["--json"], &format!("{SCRIPT}; exit 3")).finish();
    run.assert_code(3);
    assert_eq!(report(&run)["outcome"], "rolled_back");
    testbed.tree().assert_equals(&before);
}

/// An archive with what is awkward in names, links and modes comes out there as it does here, and goes again.
#[test]
fn an_archive_is_unpacked_over_sftp_and_removed() {
    let Some(testbed) = Testbed::new() else { return };
    let make = "mkdir -p pack/a/b/c pack/empty; for i in $(seq 300); do seq $i > pack/a/b/$i; done; echo x > \"pack/a/$(printf 'caf\\351 \\n*')\"
        ln pack/a/b/1 pack/a/hard; ln -s ../missing pack/a/b/c/soft; ln -s \"$(printf 'to \\377')\" pack/soft
        chmod 600 pack/a/b/2; chmod 4755 pack/a/b/3; chmod 0 pack/a/b/4; chmod 555 pack/a/b/c; chmod 1777 pack/empty
        find pack -exec touch -h -d @1234567890 {} +; tar cf $OUT/pack.tar pack; mv pack $OUT/pack";
    let (work, out) = (testbed.dir.path(), testbed.path("out"));
    Place { work, out: &out }.shell(make).assert_code(0);
    testbed.stores("tar xpf $OUT/pack.tar -C near");
    snapshot_of(&testbed.path("far/pack")).assert_equals(&snapshot_of(&out.join("pack")));
    let linked = testbed.path("far/pack/a/hard").metadata().expect("a file");
    assert_eq!(linked.nlink(), 2);
    testbed.stores("cp -a near/pack near/again && diff -r --no-dereference near/pack near/again");
    testbed.stores("rm -rf near/pack near/again");
    testbed.restore_is(&testbed.tree());
}

impl Testbed {
    #[track_caller]
    fn restore_is(&self, found: &elbow_testkit::tree::Tree) {
        found
            .clone()
            .without_times()
            .assert_equals(&snapshot_of(&self.path("seed")).without_times());
    }
}

#[test]
fn names_over_sftp_are_bytes() {
    let Some(testbed) = Testbed::new() else { return };
    let script = "set -e; cd near; a=$(printf 'a\\377\\200'); b=$(printf 'b\\n\\001'); echo in > \"$a\"; mkdir \"$b\"; mv \"$a\" \"$b/$a\"; ls \"$b\" > $OUT/ls";
    testbed.stores(script);
    let inner = testbed.path("far").join(OsStr::from_bytes(b"b\n\x01/a\xff\x80"));
    assert_eq!(fs::read(inner).expect("a file"), b"in\n");
    assert_eq!(fs::read(testbed.path("out/ls")).expect("a list"), b"a\xff\x80\n");
    testbed.stores("set -e; cd near; rm -r \"$(printf 'b\\n\\001')\"");
    assert!(!testbed.path("far").join(OsStr::from_bytes(b"b\n\x01")).exists());
}

#[test]
fn a_large_file_goes_over_sftp_whole_and_back() {
    let Some(testbed) = Testbed::new() else { return };
    let script = "set -e; head -c 20971521 /dev/urandom > $OUT/large; cp $OUT/large near/large; printf middle | dd of=near/large bs=1 seek=9999999 conv=notrunc
        printf middle | dd of=$OUT/large bs=1 seek=9999999 conv=notrunc; truncate -s 30000000 near/d/6";
    testbed.stores(script);
    let large = fs::read(testbed.path("out/large")).expect("a file");
    assert!(
        fs::read(testbed.path("far/large")).expect("a file") == large,
        "it is another"
    );
    assert_eq!(testbed.path("far/d/6").metadata().expect("a file").len(), 30_000_000);
    // An old file that is changed in the middle, and read.
    testbed.stores("set -e; printf new | dd of=near/large bs=1 seek=20000000 conv=notrunc; cmp -n 20000000 near/large $OUT/large; cp near/large $OUT/back");
    let back = fs::read(testbed.path("out/back")).expect("a file");
    assert_eq!(&back[20_000_000..20_000_003], b"new");
    assert!(
        fs::read(testbed.path("far/large")).expect("a file") == back,
        "it is another"
    );
}

#[test]
fn what_is_copied_within_the_tree_does_not_go_over_the_line_of_sftp() {
    let Some(testbed) = Testbed::new() else { return };
    testbed.copies_stay_there(|script| testbed.stores(script));
}

#[test]
fn a_file_that_others_change_before_it_was_copied_fails_the_job_over_sftp() {
    let Some(testbed) = Testbed::new() else { return };
    for others in BEFORE_THE_COPY {
        let start = |script: &str| testbed.sftp(&["--json"], script);
        testbed.others_come_before_the_copy(others, start, || testbed.connections());
    }
}

/// What is read in order is read ahead, and goes over the line once.
#[test]
fn what_is_read_over_sftp_goes_over_the_line_once() {
    const BYTES: u64 = 30_000_000;
    let Some(testbed) = Testbed::new() else { return };
    let (work, out) = (testbed.dir.path(), testbed.path("out"));
    let noise = format!("head -c {BYTES} /dev/urandom > far/noise");
    Place { work, out: &out }.shell(&noise).assert_code(0);
    let before = testbed.bed.passed_bytes();
    // No disk is behind the reader: a busy one holds it up, and what was read ahead for it is forgotten and comes again.
    testbed.stores("cksum < near/noise > $OUT/sum");
    let passed = testbed.bed.passed_bytes() - before;
    assert!((BYTES..BYTES + BYTES / 10).contains(&passed), "{passed} bytes passed");
    let same = "[ \"$(cksum < far/noise)\" = \"$(cat $OUT/sum)\" ]";
    Place { work, out: &out }.shell(same).assert_code(0);
}

/// An account that runs the server for whatever is asked: it says nothing before it is greeted, and was waited for without an end.
#[test]
fn an_account_that_is_given_the_server_for_any_command_is_served() {
    let Some(mut testbed) = Testbed::new() else { return };
    testbed
        .bed
        .restart_with("ForceCommand /usr/lib/openssh/sftp-server\n")
        .expect("a server");
    let run = testbed.stores("echo more >> near/log");
    assert_eq!(report(&run)["via"], "sftp");
}

/// The server takes its umask from every mode, and the account is for SFTP alone: no shell answers.
#[test]
fn modes_over_sftp_are_those_of_the_command_whatever_the_umask_there() {
    let Some(mut testbed) = Testbed::new() else { return };
    testbed
        .bed
        .restart_with("ForceCommand internal-sftp -u 077\n")
        .expect("a server");
    let run = testbed.stores(
        "set -e; umask 0; cd near; mkdir open; echo x > open/all; chmod 666 open/all; mkdir -m 2775 open/group; echo x > plain; chmod 640 log; echo x > d/new",
    );
    let note = report(&run)["notes"][0].as_str().unwrap_or_default().to_owned();
    assert!(
        note.contains("over SFTP on") && note.contains("no `elbow` answered"),
        "{note}"
    );
    let mode = |name: &str| testbed.path(name).metadata().expect(name).permissions().mode() & 0o7777;
    assert_eq!(mode("far/open"), 0o777);
    assert_eq!(mode("far/open/all"), 0o666);
    assert_eq!(mode("far/open/group"), 0o2775);
    assert_eq!(
        [mode("far/plain"), mode("far/log"), mode("far/d/new")],
        [0o666, 0o640, 0o666]
    );
}

/// An account that sees a part of the machine only, and has neither a shell nor /proc.
#[test]
fn an_account_in_a_changed_root_is_served() {
    if !rustix::process::geteuid().is_root() {
        return; // only root may set such an account up
    }
    let Some(mut testbed) = Testbed::new() else { return };
    // All above it has to be root's alone, which a directory for temporary files is not.
    let jail = tempfile::Builder::new()
        .prefix("elbow-jail-")
        .tempdir_in("/var")
        .expect("a directory");
    fs::set_permissions(jail.path(), fs::Permissions::from_mode(0o755)).expect("a mode");
    fs::create_dir(jail.path().join("data")).expect("a directory");
    let settings = format!(
        "ForceCommand internal-sftp\nChrootDirectory {}\n",
        jail.path().display()
    );
    testbed.bed.restart_with(&settings).expect("a server");
    let host = testbed.bed.access().host.clone();
    let target = format!("ssh://{host}/data");
    let script =
        "set -e; cd near; mkdir a; echo x > a/b; chmod 640 a/b; touch -d @1000 a/b; ln -s /data/a l; chmod 750 a";
    let run = testbed.sftp_to(&target, &["--json"], script).finish();
    run.assert_code(0);
    assert_eq!(report(&run)["via"], "sftp");
    let found = jail.path().join("data/a/b").metadata().expect("a file");
    assert_eq!((found.mtime(), found.permissions().mode() & 0o777), (1000, 0o640));
    let run = testbed
        .sftp_to(&target, &[], "echo more >> near/a/b; chmod 600 near/a/b; rm near/l")
        .finish();
    run.assert_code(0);
    assert_eq!(fs::read(jail.path().join("data/a/b")).expect("a file"), b"x\nmore\n");
    let run = testbed.sftp_to(&format!("ssh://{host}/missing"), &[], "true").finish();
    run.assert_code(125);
    assert!(run.err.contains("/missing: No such file or directory"), "{}", run.err);
}

#[test]
fn what_sftp_cannot_do_is_an_error_of_the_command() {
    let Some(testbed) = Testbed::new() else { return };
    let script = "cd near; export LC_ALL=C; mkfifo pipe 2>> $OUT/said; python3 -c 'import os; os.setxattr(\"log\", \"user.a\", b\"1\")' 2>> $OUT/said
        python3 -c 'import os; os.mknod(\"n\", 0o60600, 0)' 2>> $OUT/said; echo done > done";
    testbed.stores(script);
    let said = fs::read_to_string(testbed.path("out/said")).expect("what was said");
    for what in [
        "cannot create fifo 'pipe'",
        "Operation not supported",
        "Operation not permitted",
    ] {
        assert!(said.contains(what), "{said}");
    }
    assert!(testbed.path("far/done").exists() && !testbed.path("far/pipe").exists());
}

/// Kills of the connection and of the near end at random moments of real jobs. Nobody is at the far end who could end the job: a recovery does.
#[test]
fn whatever_ends_over_sftp_a_recovery_leaves_the_old_tree_or_the_new() {
    let Some(testbed) = Testbed::new() else { return };
    let after = testbed.native_of(SCRIPT);
    let before = testbed.tree().without_times();
    let mut moments = Moments::of(2 * KILLS, || drop(testbed.stores(SCRIPT)));
    while let Some((round, moment)) = moments.next() {
        testbed.restore();
        let job = testbed.sftp(&["--json", "--no-keep"], SCRIPT);
        std::thread::sleep(moment);
        if round % 2 == 0 {
            kill_all(&testbed.connections());
        } else {
            job.signal_group("KILL");
        }
        let run = job.finish();
        wait_for("the connections to end", || {
            testbed.connections().is_empty() && !testbed.bed.has_sessions().expect("procfs")
        });
        let recovered = testbed.elbow(&["recover", "near"]);
        let what = format!(
            "round {round}, exit code {}: {}; recovery {}: {}{}",
            run.code, run.err, recovered.code, recovered.out, recovered.err
        );
        assert_eq!(recovered.code, 0, "{what}");
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

/// The server is stopped with requests that it has not carried out, the near end is killed, and all is recovered before it goes on.
#[test]
fn a_server_that_goes_on_after_a_recovery_changes_nothing() {
    let Some(testbed) = Testbed::new() else { return };
    let after = testbed.native_of(SCRIPT);
    let before = testbed.tree().without_times();
    let mut moments = Moments::of(KILLS, || drop(testbed.stores(SCRIPT)));
    while let Some((round, moment)) = moments.next() {
        testbed.restore();
        let job = testbed.sftp(&["--json", "--no-keep"], SCRIPT);
        std::thread::sleep(moment);
        let servers = testbed.bed.session_processes().expect("procfs");
        signal_all(&servers, "STOP");
        std::thread::sleep(BACKLOG);
        job.signal_group("KILL");
        let run = job.finish();
        wait_for("the connections to end", || testbed.connections().is_empty());
        let while_stopped = testbed.elbow(&["recover", "near"]);
        signal_all(&servers, "CONT");
        wait_for("the servers to end", || !testbed.bed.has_sessions().expect("procfs"));
        // What it has made since is a job that made nothing, and what tries whose a file becomes goes when it is old.
        let recovered = testbed.elbow(&["recover", "near"]);
        let what = format!(
            "round {round}, exit code {}: {}; recovered {while_stopped:?}, then {recovered:?}",
            run.code, run.err
        );
        assert_eq!((while_stopped.code, recovered.code), (0, 0), "{what}");
        let found = without_staging(testbed.tree()).without_times();
        if found != after {
            let difference = found.difference(&before);
            assert!(difference.is_none(), "{what}: {}", difference.unwrap_or_default());
        }
        moments.note(found == after);
        let _ = fs::remove_dir(testbed.path("near")); // of one that was killed
    }
    moments.assert_both();
}

/// Who loses the connection is told that something is left there, and what ends it.
#[test]
fn a_connection_over_sftp_that_breaks_is_told_with_what_to_do() {
    let Some(testbed) = Testbed::new() else { return };
    let job = testbed.sftp(&["--no-keep"], "mkdir near/new; echo x > near/new/x; touch $OUT/made; while [ -e $OUT/made ]; do sleep 0.05; done; echo y > near/y");
    wait_for("the command", || testbed.path("out/made").exists());
    let is_stored = || {
        Place {
            work: &testbed.path("far"),
            out: &testbed.path("out"),
        }
        .shell("find . -name x | grep -q . && echo yes || echo no")
        .out
    };
    wait_for("something to be stored", || is_stored() == "yes\n");
    kill_all(&testbed.connections());
    fs::remove_file(testbed.path("out/made")).expect("a file");
    let run = job.finish();
    assert!(
        run.code != 0 && run.err.contains("elbow recover"),
        "{}: {}",
        run.code,
        run.err
    );
    assert!(run.err.contains("--via"), "{}", run.err);
    assert_eq!(staging_below(&testbed.path("far")), 1, "nobody is there to end it");
    let shown = testbed.elbow(&["recover", "near", "--show"]);
    assert!(shown.out.contains("dead"), "{}{}", shown.out, shown.err);
    testbed.stores("echo next > near/next");
    assert_eq!(staging_below(&testbed.path("far")), 0, "the next job has ended it");
    assert!(!testbed.path("far/new").exists() && testbed.path("far/next").exists());
}

#[test]
fn many_small_changes_of_old_files_arrive_over_sftp() {
    let Some(testbed) = Testbed::new() else { return };
    testbed.many_small_changes_arrive(|script| testbed.stores(script));
}

#[test]
fn results_that_a_full_disk_refuses_over_sftp_are_kept_and_resumed() {
    let Some(testbed) = Testbed::new() else { return };
    let Some(disk) = LoopDisk::new(64 << 20) else { return };
    let far = disk.path().join("d");
    fs::create_dir(&far).expect("a directory");
    fs::write(far.join("old"), "old").expect("a file");
    let target = format!("ssh://{}{}", testbed.bed.access().host, far.display());
    let scratch = testbed.path("out").display().to_string();
    let job = testbed.sftp_to(&target, &["--json", "--scratch", &scratch], MAKES_RESULTS_LATE);
    testbed.wait_for_the_drain();
    let filler = disk.fill();
    fs::write(testbed.path("out/go"), "").expect("a file");
    let run = job.finish();
    let kept = report(&run);
    assert_eq!((run.code, kept["outcome"].as_str()), (125, Some("kept")), "{}", run.err);
    assert!(run.err.contains("No space left on device"), "{}", run.err);
    fs::remove_file(&filler).expect("room");
    assert_eq!(fs::read(far.join("old")).expect("a file"), b"old");
    let (ssh, out) = (testbed.ssh(), testbed.path("out"));
    let resume = ["resume", "near", "--scratch", &scratch, "--via", &target];
    let words = [&["env", &ssh, NO_ELBOW, env!("CARGO_BIN_EXE_elbow")], &resume[..]].concat();
    let place = Place {
        work: testbed.dir.path(),
        out: &out,
    };
    place.start(&words).finish().assert_code(0);
    assert_eq!(fs::read(far.join("old")).expect("a file"), b"new\n");
    for i in ["1", "2", "3"] {
        let found = fs::read(far.join("new").join(i)).expect("a result");
        assert!(found == i.repeat(3_000_000).as_bytes(), "{i} is another");
    }
    assert_eq!(staging_below(&far), 0);
}

/// Without turns nine of twelve were counted; with turns but two versions of one second, of one size, nine of eleven.
#[test]
fn jobs_over_sftp_of_one_machine_take_turns() {
    let Some(testbed) = Testbed::new() else { return };
    fs::write(testbed.path("far/count"), "1000").expect("a file");
    let count = || {
        let run = testbed
            .sftp(&[], "n=$(cat near/count); sleep 0.2; echo $((n + 1)) > near/count")
            .finish();
        assert!(matches!(run.code, 0 | 125), "{}: {}", run.code, run.err);
        u32::from(run.code == 0)
    };
    fs::create_dir(testbed.path("near")).expect("a directory");
    let committed: u32 = std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..4).map(|_| scope.spawn(|| count() + count())).collect();
        jobs.into_iter().map(|job| job.join().expect("no panic")).sum()
    });
    let counted = fs::read_to_string(testbed.path("far/count")).expect("a file");
    assert_eq!(
        counted.trim(),
        (1000 + committed).to_string(),
        "{committed} were committed"
    );
    assert!(committed > 0);
}

/// By `elbow` where it is, else over SFTP, else through the mount.
#[test]
fn an_sshfs_mount_is_reached_over_sftp_where_no_elbow_is() {
    let Some(testbed) = Testbed::new() else { return };
    fs::create_dir(testbed.path("near")).expect("a directory");
    let mount = testbed
        .bed
        .mount(&testbed.path("far"), &testbed.path("near"))
        .expect("an sshfs mount");
    let run = testbed.sftp_to("auto", &["--json"], "echo more >> near/one").finish();
    run.assert_code(0);
    assert_eq!(report(&run)["via"], "sftp");
    drop(mount);
    assert_eq!(fs::read(testbed.path("far/one")).expect("a result"), b"1\nmore\n");
}

/// What answers as an SFTP server and is none is named, and nothing waits for it.
#[test]
fn a_server_that_is_none_is_named() {
    let Some(testbed) = Testbed::new() else { return };
    let said = |script: &str| {
        write_script(
            Path::new(&testbed.path("via")),
            &format!("case \"$*\" in *' -s '*) {script};; *) exit 127;; esac"),
        );
        let run = testbed.sftp(&[], "echo x > near/x").finish();
        run.assert_code(125);
        run.err
    };
    for (script, words) in [
        ("echo 'Welcome to box!'; sleep 1", "no SFTP server"),
        ("exit 255", "no connection"),
        ("exit 1", "failed"),
        (
            "printf '\\0\\0\\0\\5\\2\\0\\0\\0\\3'; head -c 1000000 /dev/urandom",
            "box",
        ),
        ("printf '\\0\\0\\0\\5\\2\\0\\0\\0\\2'; sleep 1", "version 3"),
        ("printf '\\377\\377\\377\\377'; sleep 1", "no SFTP server"),
    ] {
        let err = said(script).replace(&testbed.bed.access().host, "box");
        assert!(err.contains(words) && err.contains("there is no `"), "{script}: {err}");
        assert!(!testbed.path("near").exists());
    }
}

/// A disk with the directories of jobs, which `fill` takes all room of.
struct SmallDisk {
    disk: LoopDisk,
    host: String,
}

impl SmallDisk {
    fn new(testbed: &Testbed, directories: &[&str]) -> Option<Self> {
        let disk = LoopDisk::new(64 << 20)?;
        for name in directories {
            fs::create_dir(disk.path().join(name)).expect("a directory");
        }
        let host = testbed.bed.access().host.clone();
        Some(Self { disk, host })
    }

    fn target(&self, name: &str) -> String {
        format!("ssh://{}{}", self.host, self.disk.path().join(name).display())
    }

    fn names_in(&self, name: &str) -> Vec<String> {
        let listed = fs::read_dir(self.disk.path().join(name))
            .expect("a directory")
            .flatten();
        listed
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect()
    }
}

impl Testbed {
    fn elbow_at(&self, target: &str, words: &[&str]) -> Run {
        let (ssh, out, scratch) = (self.ssh(), self.path("out"), self.path("out").display().to_string());
        let rest = ["--scratch", &scratch, "--via", target];
        let words = [&["env", &ssh, NO_ELBOW, env!("CARGO_BIN_EXE_elbow")], words, &rest].concat();
        let place = Place {
            work: self.dir.path(),
            out: &out,
        };
        place.start(&words).finish()
    }

    /// What is saved here of jobs whose disk was full.
    fn saves(&self) -> usize {
        let listed = fs::read_dir(self.path("out")).expect("a directory").flatten();
        let names = listed.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.ends_with(".saved")).count()
    }

    fn start_at(&self, disk: &SmallDisk, name: &str, script: &str) -> Running {
        let scratch = self.path("out").display().to_string();
        let options = ["--json", "--scratch", &scratch];
        self.sftp_to(&disk.target(name), &options, script)
    }

    /// It could not be stored, and is kept.
    #[track_caller]
    fn assert_kept(&self, job: Running) -> serde_json::Value {
        let run = job.finish();
        let kept = report(&run);
        assert_eq!((run.code, kept["outcome"].as_str()), (125, Some("kept")), "{}", run.err);
        assert!(self.saves() > 0, "{}", run.err);
        kept
    }
}

/// All of a job was saved here. It was found again by the name that its directory had *here*: `elbow resume` of another directory, host or user, shown at
/// the same name, put it there and removed what was saved.
#[test]
fn what_was_saved_of_a_job_over_sftp_is_of_its_directory_and_no_other() {
    let Some(testbed) = Testbed::new() else { return };
    let Some(disk) = SmallDisk::new(&testbed, &["a", "b"]) else {
        return;
    };
    // Nothing can be made there any more, as on a disk that is full to its last inode.
    let at = disk.disk.path().join("a").display().to_string();
    let immutable = |flag: &str| format!("chattr {flag}i {at}");
    let script = format!("set -e; {}; echo of a > near/result", immutable("+"));
    let kept = testbed.assert_kept(testbed.start_at(&disk, "a", &script));
    let name = kept["directories"][0]["job"].as_str().expect("a name").to_owned();
    assert_eq!(disk.names_in("a"), [""; 0], "all of it is saved here");
    let told = kept["directories"][0]["message"].as_str().expect("a message");
    let told = told.lines().next().unwrap_or_default();
    assert!(
        !told.contains(&name) && told.contains(".saved"),
        "no staging directory was made: {told}"
    );
    let (work, out) = (testbed.dir.path(), testbed.path("out"));
    Place { work, out: &out }.shell(&immutable("-")).assert_code(0);
    let (a, b) = (disk.target("a"), disk.target("b"));
    let other = testbed.elbow_at(&b, &["resume", "near"]);
    other.assert_code(125);
    assert!(other.err.contains("no job is kept there"), "{}", other.err);
    let shown = testbed.elbow_at(&b, &["recover", "near", "--show"]);
    assert!(!shown.out.contains(&name), "{}", shown.out);
    assert_eq!((disk.names_in("b"), testbed.saves()), (Vec::new(), 1));
    let shown = testbed.elbow_at(&a, &["recover", "near", "--show"]);
    assert!(shown.out.contains(&name), "{}{}", shown.out, shown.err);
    testbed.elbow_at(&a, &["resume", "near"]).assert_code(0);
    assert_eq!((disk.names_in("a"), testbed.saves()), (vec!["result".to_owned()], 0));
}

/// Of two jobs that were kept in part, each has its own rest: of the other's nothing is said. Dropping one left its staging directory at the far end, as
/// it was looked for under the name that its directory had here.
#[test]
fn jobs_over_sftp_that_are_kept_in_part_are_resumed_and_dropped_apart() {
    let Some(testbed) = Testbed::new() else { return };
    let Some(disk) = SmallDisk::new(&testbed, &["a", "b"]) else {
        return;
    };
    // What is open when the command ends is stored then.
    let script = |name: &str| {
        format!(
            "set -e; mkdir near/new; : > $OUT/made; until [ -e $OUT/go ]; do sleep 0.02; done
            exec 3>near/new/result 4>near/new/large; echo of {name} >&3; head -c 3000000 /dev/zero >&4"
        )
    };
    for name in ["a", "b"] {
        let job = testbed.start_at(&disk, name, &script(name));
        testbed.wait_for_the_drain();
        let filler = disk.disk.fill();
        fs::write(testbed.path("out/go"), "").expect("a file");
        testbed.assert_kept(job);
        for path in [filler, testbed.path("out/made"), testbed.path("out/go")] {
            fs::remove_file(path).expect("a file of the test");
        }
    }
    assert_eq!(
        (testbed.saves(), disk.names_in("a").len(), disk.names_in("b").len()),
        (2, 1, 1)
    );
    let resumed = testbed.elbow_at(&disk.target("a"), &["resume", "near"]);
    resumed.assert_code(0);
    assert!(!resumed.err.contains("not in its directory"), "{}", resumed.err);
    assert_eq!(disk.names_in("a"), ["new"]);
    assert_eq!((testbed.saves(), disk.names_in("b").len()), (1, 1));
    let name = disk.names_in("b").pop().expect("a staging directory");
    let dropped = testbed.elbow_at(&disk.target("b"), &["recover", "near", "--drop", &name]);
    dropped.assert_code(0);
    assert!(dropped.out.contains("nothing of it is left"), "{}", dropped.out);
    assert_eq!((testbed.saves(), disk.names_in("b")), (0, Vec::new()));
}

/// A command ran for hours, and then nothing could be stored.
#[test]
fn a_directory_over_sftp_that_nobody_may_write_to_is_refused_before_the_command_starts() {
    let Some(testbed) = Testbed::new() else { return };
    let Some(disk) = SmallDisk::new(&testbed, &["a"]) else {
        return;
    };
    let (work, out) = (testbed.dir.path(), testbed.path("out"));
    let at = disk.disk.path().display().to_string();
    let shell = |script: &str| Place { work, out: &out }.shell(script).assert_code(0);
    let refused = |words: &str| {
        let run = testbed.sftp_to(&disk.target("a"), &[], "touch $OUT/ran").finish();
        run.assert_code(125);
        assert!(run.err.contains(words) && run.err.contains("ssh://"), "{}", run.err);
        assert!(
            !out.join("ran").exists() && !testbed.path("near").exists(),
            "{}",
            run.err
        );
    };
    shell(&format!("touch -d @1000000000 {at}/a"));
    testbed.sftp_to(&disk.target("a"), &[], "true").finish().assert_code(0);
    let made = disk.disk.path().join("a").metadata().expect("a directory");
    assert_eq!(
        (made.mtime(), disk.names_in("a").len()),
        (1_000_000_000, 0),
        "it was tried without a trace"
    );
    shell(&format!("chattr +i {at}/a"));
    refused("you may not write there");
    shell(&format!("chattr -i {at}/a; mount -o remount,ro {at}"));
    refused("read-only file system");
    shell(&format!("mount -o remount,rw {at}"));
}

/// Over SFTP nobody says which names are those of one file. Who writes to both was told that somebody else did.
#[test]
fn a_conflict_over_sftp_may_be_another_name_of_the_same_file() {
    let Some(testbed) = Testbed::new() else { return };
    fs::hard_link(testbed.path("far/one"), testbed.path("far/again")).expect("a link");
    let run = testbed
        .sftp(
            &[],
            // So many are written by several threads, and these two look alike.
            "echo more >> near/one; echo other >> near/again; for f in near/d/[0-9]*; do echo more >> $f; done",
        )
        .finish();
    run.assert_code(125);
    assert!(
        run.err.contains("or by another name of the same file in this job"),
        "{}",
        run.err
    );
    assert_eq!(fs::read(testbed.path("far/one")).expect("a file"), b"1\n");
}
