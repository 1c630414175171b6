//! Jobs by ssh and what is around them: the directory here at which they are shown, how people log in, and lines that stop.
//!
//! The directories are those of [`crate::via`].

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::time::{Duration, Instant};

use elbow_testkit::tree::Tree;

use crate::boundary::{OthersTurn, has_in_staging, pause_when, slow_log};
use crate::commands::{Place, Run, Running, wait_for};
use crate::test_dir::{staging_below, without_staging};
use crate::via::{Testbed, environment, kill_all, report, signal_all, start};

/// One job over two directories, told in JSON.
fn options_for<'a>(target: &'a str, directories: &'a [String; 2]) -> [&'a str; 7] {
    let [first, second] = directories;
    ["--json", "--via", target, "--on", first, "--on", second]
}

/// Nothing of a job is where its directory was shown.
fn assert_nothing_is_here(testbed: &Testbed) {
    let left = fs::read_dir(testbed.path("near")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "results lie here");
}

/// Goes on with what is kept of jobs.
fn resume(testbed: &Testbed, options: &[&str]) -> Run {
    let (dir, out, target) = (testbed.dir.path(), testbed.path("out"), testbed.target());
    let (ssh, program) = environment(dir);
    let words = [
        "env",
        &ssh,
        &program,
        env!("CARGO_BIN_EXE_elbow"),
        "resume",
        "near",
        "--via",
        &target,
    ];
    Place { work: dir, out: &out }
        .start(&[&words, options].concat())
        .finish()
}

/// The first of several jobs that ended removed the directory that all were shown at. That took the mounts of the others away, in their namespaces:
/// what they wrote then went into a plain directory of this machine, and they ended with 0.
#[test]
fn jobs_that_are_shown_at_one_missing_directory_store_their_results() {
    const JOBS: usize = 6;
    let Some(testbed) = Testbed::new() else { return };
    let out = testbed.path("out");
    fs::create_dir(testbed.path("far/results")).expect("a directory");
    let script = |i| {
        format!(
            ": > $OUT/at{i}; while [ ! -e $OUT/go{i} ]; do sleep 0.02; done; mkdir -p near/results; echo {i} > near/results/{i}"
        )
    };
    let jobs: Vec<Running> = (0..JOBS).map(|i| testbed.start(&["--json"], &script(i))).collect();
    wait_for("all commands", || {
        (0..JOBS).all(|i| out.join(format!("at{i}")).exists())
    });
    for (i, job) in jobs.into_iter().enumerate() {
        fs::write(out.join(format!("go{i}")), "").expect("a file");
        job.finish().assert_code(0);
        assert!(testbed.path(&format!("far/results/{i}")).exists(), "result {i}");
    }
    assert_nothing_is_here(&testbed);
    // And at whatever moments.
    std::thread::scope(|scope| {
        let queue = |i: usize| {
            let testbed = &testbed;
            move || {
                for round in 0..3 {
                    let script = format!("mkdir -p near/results; echo > near/results/{i}-{round}; sleep 0.0{i}");
                    testbed.run(&script).assert_code(0);
                    let found = testbed.path(&format!("far/results/{i}-{round}"));
                    assert!(found.exists(), "result {round} of {i}");
                }
            }
        };
        (0..JOBS).for_each(|i| drop(scope.spawn(queue(i))));
    });
    assert_nothing_is_here(&testbed);
}

/// Each of two directories by ssh is looked at before the first is committed.
#[test]
fn a_conflict_in_one_of_two_directories_by_ssh_leaves_both_as_they_were() {
    let Some(testbed) = Testbed::new() else { return };
    let (dir, out) = (testbed.dir.path(), testbed.path("out"));
    let (ssh, program) = environment(dir);
    let target = format!("ssh://{}", testbed.bed.access().host);
    let directories = ["far/d", "far/moves"].map(|name| testbed.path(name).display().to_string());
    let options = options_for(&target, &directories);
    let script = "echo x >> far/d/1; echo y >> far/moves/in; echo new > far/d/new; : > $OUT/at$TRY
        while [ ! -e $OUT/go$TRY ]; do sleep 0.02; done";
    let start = |attempt: &str| {
        let attempt = format!("TRY={attempt}");
        Place { work: dir, out: &out }.start_job(&["env", &ssh, &program, &attempt], &options, script)
    };
    for (attempt, contested) in ["far/moves/in", "far/d/1"].into_iter().enumerate() {
        let job = start(&attempt.to_string());
        wait_for("the command", || out.join(format!("at{attempt}")).exists());
        fs::write(testbed.path(contested), "theirs, and longer\n").expect("writing beside the job");
        let before = without_staging(testbed.tree()).without_times();
        fs::write(out.join(format!("go{attempt}")), "").expect("a file");
        let run = job.finish();
        run.assert_code(125);
        assert_eq!(report(&run)["outcome"], "rolled_back", "{}", run.err);
        testbed.tree().without_times().assert_equals(&before);
    }
    fs::write(out.join("go2"), "").expect("a file");
    let run = start("2").finish();
    run.assert_code(0);
    assert_eq!(report(&run)["via"], "elbow");
    for (path, content) in [
        ("far/d/1", "theirs, and longer\nx\n"),
        ("far/moves/in", "theirs, and longer\ny\n"),
    ] {
        assert_eq!(fs::read_to_string(testbed.path(path)).expect("a result"), content);
    }
    assert_eq!(staging_below(&testbed.path("far")), 0);
}

/// The same as `what_waits_to_follow_a_committed_directory_is_kept_however_that_ends`: there it is the far end that waits.
#[test]
fn what_waits_by_ssh_to_follow_a_committed_directory_is_kept_when_its_far_end_dies() {
    let Some(testbed) = Testbed::new() else { return };
    let (dir, out) = (testbed.dir.path(), testbed.path("out"));
    let (ssh, program) = environment(dir);
    let target = format!("ssh://{}", testbed.bed.access().host);
    let below = testbed.path("below");
    fs::create_dir(testbed.path("far/slow")).expect("a directory");
    let slow = slow_log(&below, &testbed.path("far/slow"));
    let moves = testbed.path("far/moves");
    let old = fs::read_to_string(moves.join("in")).expect("an old file");
    let directories = [testbed.path("far/slow"), moves.clone()].map(|path| path.display().to_string());
    let options = options_for(&target, &directories);
    let script = "echo x >> far/slow/log; echo y >> far/moves/in";
    let job = Place { work: dir, out: &out }.start_job(&["env", &ssh, &program], &options, script);
    pause_when(&slow, || has_in_staging(&below, "commit"));
    let turn = OthersTurn::take(&moves);
    slow.resume();
    wait_for("the second directory", || has_in_staging(&moves, "resume"));
    kill_all(&testbed.far_ends_of("far/moves"));
    let run = job.finish();
    drop(turn);
    run.assert_code(125);
    assert_eq!(report(&run)["directories"][0]["outcome"], "committed", "{}", run.err);
    let log = fs::read_to_string(below.join("log")).expect("a result");
    assert_eq!(log, "old\nx\n");
    for (words, appended) in [("recover", ""), ("resume", "y\n")] {
        let words = [env!("CARGO_BIN_EXE_elbow"), words, &directories[1]];
        Place { work: dir, out: &out }.start(&words).finish().assert_code(0);
        let now = fs::read_to_string(moves.join("in")).expect("an old file");
        assert_eq!(now, format!("{old}{appended}"));
    }
    assert_eq!(staging_below(&testbed.path("far")), 0);
}

/// Ended while it waited for its turn at the far end, a job committed when that came: after its user was told that it had ended, or to nobody.
#[test]
fn a_job_by_ssh_that_is_ended_while_it_waits_for_its_turn_changes_nothing() {
    let Some(testbed) = Testbed::new() else { return };
    let far = testbed.path("far");
    let before = testbed.tree().without_times();
    for end in ["INT", "KILL"] {
        let turn = OthersTurn::take(&far);
        let job = testbed.start(&["--json"], "echo more >> near/log");
        wait_for("a job that waits", || has_in_staging(&far, "commit.draft"));
        std::thread::sleep(Duration::from_secs(2)); // a signal that comes as the command ends is taken as its own
        job.signal_group(end);
        let run = job.finish();
        assert!(run.code != 0, "{end}: {}", run.err);
        wait_for("the far end to end", || testbed.far_ends_of("far").is_empty());
        drop(turn);
        testbed.tree().without_times().assert_equals(&before);
        let _ = fs::remove_dir(testbed.path("near")); // of one that was killed
    }
    testbed.run("echo more >> near/log").assert_code(0);
}

/// The far end rolls back by its journal, which had the name that the job was refused: it removed what somebody else had there.
#[test]
fn what_somebody_has_under_a_name_that_an_eager_job_by_ssh_is_refused_stays() {
    let Some(testbed) = Testbed::new() else { return };
    let (far, out) = (testbed.path("far"), testbed.path("out"));
    let script = "echo job > near/tmp; until [ -e $OUT/go ]; do sleep 0.02; done; mv near/tmp near/final; sleep 0.5";
    let job = testbed.start(&["--publish", "eager", "--no-keep"], script);
    wait_for("the new file under its own name", || {
        fs::read(far.join("tmp")).is_ok_and(|content| content == b"job\n")
    });
    fs::create_dir(far.join("final")).expect("a directory beside the job");
    fs::write(far.join("final/theirs"), "theirs").expect("a file beside the job");
    fs::write(out.join("go"), "").expect("a file");
    let run = job.finish();
    assert!(run.code != 0 && run.err.contains("final"), "{}: {}", run.code, run.err);
    assert_eq!(fs::read(far.join("final/theirs")).expect("their file"), b"theirs");
    assert!(!far.join("tmp").exists(), "something of the job is left");
    assert_eq!(staging_below(&far), 0);
}

/// What is passed through is done on the storage itself, which is not here.
#[test]
fn nothing_is_passed_through_where_the_storage_is_not_here() {
    let Some(testbed) = Testbed::new() else { return };
    fs::create_dir(testbed.path("near")).expect("a directory");
    fs::create_dir(testbed.path("near/logs")).expect("a directory");
    let before = testbed.tree();
    let run = testbed
        .start(&["--pass-through", "near/logs"], "echo x > near/log")
        .finish();
    run.assert_code(125);
    assert!(run.err.contains("leave out --via, or --pass-through"), "{}", run.err);
    testbed.tree().assert_equals(&before);
}

/// Somebody else removed it, and it was told as a success.
#[test]
fn a_job_whose_directory_here_is_removed_by_others_is_no_success() {
    let Some(testbed) = Testbed::new() else { return };
    let out = testbed.path("out");
    let script = "echo 1 > near/before; : > $OUT/at; while [ ! -e $OUT/go ]; do sleep 0.02; done; mkdir -p near; echo 2 > near/after";
    let job = testbed.start(&[], script);
    wait_for("the command", || out.join("at").exists());
    fs::remove_dir(testbed.path("near")).expect("a directory that is empty to all others");
    fs::write(out.join("go"), "").expect("a file");
    let run = job.finish();
    run.assert_code(125);
    assert!(
        run.err.contains("removed the directory at which the job was shown") && run.err.contains("elbow resume"),
        "{}",
        run.err
    );
    assert!(!testbed.path("far/before").exists());
    assert_eq!(fs::read(testbed.path("near/after")).expect("what went astray"), b"2\n");
    // What it had is kept.
    resume(&testbed, &[]).assert_code(0);
    assert_eq!(fs::read(testbed.path("far/before")).expect("a result"), b"1\n");
}

/// What people configure for their own logins broke jobs where scp(1) works. And several connections may share one login.
#[test]
fn what_is_configured_for_logins_does_not_break_jobs() {
    let Some(testbed) = Testbed::new() else { return };
    let (out, taken) = (
        testbed.path("out"),
        std::net::TcpListener::bind("127.0.0.1:0").expect("a port"),
    );
    let port = taken.local_addr().expect("an address").port();
    let quoted: Vec<String> = testbed
        .bed
        .access()
        .options
        .iter()
        .skip(2)
        .map(|option| format!("'{option}'"))
        .collect();
    let configuration = |text: &str| {
        fs::write(testbed.path("config"), text).expect("a file");
        testbed.write_via(&format!(
            "exec ssh -F '{}' {} \"$@\"",
            testbed.path("config").display(),
            quoted.join(" ")
        ));
    };
    let local = format!(
        "PermitLocalCommand yes\nLocalCommand echo said; touch {}\n",
        out.join("local").display()
    );
    let shared = format!(
        "ControlMaster auto\nControlPath {}/ssh/%C\nControlPersist 20\n",
        testbed.dir.path().display()
    );
    for (number, text) in [
        local,
        "RemoteCommand echo somebody\nRequestTTY force\n".to_owned(),
        format!("ExitOnForwardFailure yes\nLocalForward {port} 127.0.0.1:9\n"),
        format!("{shared}RemoteCommand echo somebody\n"),
        shared,
    ]
    .iter()
    .enumerate()
    {
        configuration(text);
        let run = testbed.run(&format!("echo > near/result{number}"));
        assert_eq!(
            (run.code, &report(&run)["via"]),
            (0, &"elbow".into()),
            "{text}: {}",
            run.err
        );
        assert!(testbed.path(&format!("far/result{number}")).exists(), "{text}");
    }
    assert!(!out.join("local").exists(), "a command of somebody else was run");
    // The shared login ends before its directory goes.
    let (ssh, host) = (
        testbed.path("via").display().to_string(),
        testbed.bed.access().host.clone(),
    );
    let place = Place {
        work: testbed.dir.path(),
        out: &out,
    };
    place.start(&[&ssh, "-O", "exit", &host]).finish().assert_code(0);
}

/// It was taken for an option.
#[test]
fn a_directory_may_begin_like_an_option() {
    let Some(testbed) = Testbed::new() else { return };
    fs::create_dir(testbed.path("-x")).expect("a directory");
    // The home directory of the account may be anybody's: a script goes to that of the test.
    let go = format!(
        "for last; do :; done; cd '{}' && exec sh -c \"$last\"",
        testbed.dir.path().display()
    );
    testbed.write_via(&go);
    let target = format!("ssh://{}/~/-x", testbed.bed.access().host);
    start(testbed.dir.path(), &["--via", &target], "echo > near/result")
        .finish()
        .assert_code(0);
    assert!(testbed.path("-x/result").exists());
}

/// It was taken for an address without a path, and so for the directory there that has the path of the one here.
#[test]
fn the_home_directory_is_not_the_directory_with_the_path_of_the_one_here() {
    let Some(testbed) = Testbed::new() else { return };
    for (address, dir) in [("/~", "one"), ("/~/", "two")] {
        fs::create_dir(testbed.path(dir)).expect("a home directory");
        let go = format!(
            "for last; do :; done; cd '{}' && exec sh -c \"$last\"",
            testbed.path(dir).display()
        );
        testbed.write_via(&go);
        let target = format!("ssh://{}{address}", testbed.bed.access().host);
        let run = start(testbed.dir.path(), &["--via", &target], "echo > near/result").finish();
        run.assert_code(0);
        assert!(testbed.path(dir).join("result").exists(), "{address}: {}", run.err);
    }
}

/// Until the far end has the `x` of `new/x`. The job's own directory is no sign of it: the answer to that may be under way, and all of the job here.
fn wait_for_content(testbed: &Testbed) {
    wait_for("content to be stored", || {
        let Ok(tree) = Tree::snapshot(&testbed.path("far")) else {
            return false;
        };
        let outside = without_staging(tree.clone()).entries;
        let mut staged = tree.entries.iter().filter(|(path, _)| !outside.contains_key(*path));
        staged.any(|(_, entry)| entry.kind == "file" && entry.size == 2)
    });
}

/// Nobody had rolled the job back, and that was what was said.
#[test]
fn a_job_whose_far_end_was_killed_is_not_told_as_rolled_back() {
    let Some(testbed) = Testbed::new() else { return };
    let out = testbed.path("out");
    let script = "mkdir near/new; echo x > near/new/x; : > $OUT/at; while [ ! -e $OUT/go ]; do sleep 0.02; done; echo y > near/y";
    let job = testbed.start(&["--json"], script);
    wait_for("the command", || out.join("at").exists());
    wait_for_content(&testbed);
    kill_all(&testbed.far_ends());
    fs::write(out.join("go"), "").expect("a file");
    let run = job.finish();
    assert!(run.code != 0, "{}", run.err);
    let told = report(&run);
    assert_eq!(told["outcome"], "unfinished", "{told}");
    let message = told["directories"][0]["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("the connection ended")
            && message.contains("elbow recover")
            && message.contains("--via ssh://"),
        "{message}"
    );
    assert_eq!(staging_below(&testbed.path("far")), 1, "nobody is there to end it");
}

/// Its own directory may be there and nobody at the near end know of it: all of the job is here then, and is kept.
#[test]
fn a_job_whose_far_end_was_killed_before_it_had_anything_is_kept_and_goes_on() {
    let Some(testbed) = Testbed::new() else { return };
    let out = testbed.path("out");
    let script = "ls near > $OUT/old; : > $OUT/at; while [ ! -e $OUT/go ]; do sleep 0.02; done
        mkdir near/new; echo x > near/new/x; : > $OUT/made; while [ ! -e $OUT/end ]; do sleep 0.02; done";
    let (before, scratch) = (without_staging(testbed.tree()), out.display().to_string());
    for is_there in [false, true] {
        let job = testbed.start(&["--json", "--scratch", &scratch], script);
        wait_for("the command", || out.join("at").exists());
        let far_ends = testbed.far_ends();
        assert_eq!(far_ends.len(), 1);
        signal_all(&far_ends, "STOP");
        fs::write(out.join("go"), "").expect("a file");
        wait_for("the files", || out.join("made").exists());
        kill_all(&far_ends);
        fs::write(out.join("end"), "").expect("a file");
        let run = job.finish();
        let told = report(&run);
        assert_eq!((run.code, &told["outcome"]), (125, &"kept".into()), "{told}");
        let name = told["directories"][0]["job"].as_str().expect("a name");
        if is_there {
            // As the far end leaves it that is killed before it can answer.
            let own = testbed.path("far").join(name);
            fs::DirBuilder::new().mode(0o700).create(own).expect("a directory");
        }
        without_staging(testbed.tree()).assert_equals(&before);
        let resumed = resume(&testbed, &["--json", "--scratch", &scratch]);
        assert_eq!(
            (resumed.code, &report(&resumed)["outcome"]),
            (0, &"committed".into()),
            "{}",
            resumed.out
        );
        assert_eq!(fs::read(testbed.path("far/new/x")).expect("the result"), b"x\n");
        assert_eq!(staging_below(&testbed.path("far")), 0);
        for name in ["at", "go", "made", "end"] {
            fs::remove_file(out.join(name)).expect("a file of the test");
        }
        testbed.restore();
    }
}

/// The end was asked for while the line had stopped, and half a minute passed before anything was said; and that did not say where the job was.
#[test]
fn a_job_on_a_line_that_has_stopped_ends_soon_when_its_end_is_asked_for_twice() {
    let Some(testbed) = Testbed::new() else { return };
    let out = testbed.path("out");
    let script = "mkdir near/new; echo x > near/new/x; : > $OUT/at; sleep 60; echo y > near/y";
    let begin = || {
        let _ = fs::remove_file(out.join("at"));
        let job = testbed.start(&[], script);
        wait_for("the command", || out.join("at").exists());
        wait_for_content(&testbed);
        job
    };
    // On a line that answers it is an ordinary roll back.
    let job = begin();
    job.signal_group("INT");
    let run = job.finish();
    assert!(
        run.code != 0 && run.err.contains("rolled back"),
        "{}: {}",
        run.code,
        run.err
    );
    let mut job = begin();
    signal_all(&testbed.connections(), "STOP");
    job.signal_group("INT");
    std::thread::sleep(Duration::from_secs(1));
    let began = Instant::now();
    // As people do: two that come before the first is taken are one.
    while !job.has_ended() {
        job.signal_group("INT");
        std::thread::sleep(Duration::from_secs(1));
    }
    let run = job.finish();
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert!(
        run.code != 0 && run.err.contains("elbow recover") && run.err.contains("--via ssh://"),
        "{}: {}",
        run.code,
        run.err
    );
    wait_for("the end of the connection", || testbed.connections().is_empty());
    wait_for("the far end to end its job", || testbed.far_ends().is_empty());
    assert_eq!(staging_below(&testbed.path("far")), 0);
}
