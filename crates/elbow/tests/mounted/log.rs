//! `ELBOW_LOG` on a real mount: nothing when it is not set, each phase and each action when it is, an error when it says nothing.

use std::fs;

use crate::test_dir::TestDir;

const OLD: &str = "mkdir d; printf 1 > d/old; printf 2 > file";
const WORK: &str = "printf more >> file; mkdir new; printf x > new/one; rm d/old; cat new/one > \"$OUT/seen\"";

/// A ground whose jobs find these in their environment.
fn logging(variables: &[&str]) -> TestDir {
    TestDir::new(OLD).behind(&[&["env"], variables].concat())
}

fn assert_tells(log: &str, words: &[&str]) {
    let tells = |line: &str| words.iter().all(|word| line.contains(word));
    assert!(log.lines().any(tells), "no line with all of {words:?}:\n{log}");
}

#[test]
fn nothing_is_logged_unless_it_is_asked_for() {
    for variables in [&["-u", "ELBOW_LOG"][..], &["ELBOW_LOG="], &["ELBOW_LOG=off"]] {
        let test_dir = logging(&[variables, &["ELBOW_LOG_FILE=../out/log"]].concat());
        let run = test_dir.job(&["--quiet"], WORK);
        run.assert_code(0);
        assert_eq!(run.err, "", "with {variables:?}");
        let log = fs::read(test_dir.outside("log")).unwrap_or_default();
        assert!(log.is_empty(), "with {variables:?}");
    }
}

#[test]
fn a_job_tells_its_requests_actions_and_phases() {
    let test_dir = logging(&["ELBOW_LOG=debug"]);
    let run = test_dir.job(&["--quiet"], WORK);
    run.assert_code(0);
    assert_tells(&run.err, &["INFO", "a job begins"]);
    assert_tells(&run.err, &["request{what=\"mkdir\"", "path=\"new\"", "answered took="]);
    assert_tells(&run.err, &["request{what=\"lookup\"", "path=\"new\"", "refused errno="]);
    assert_tells(&run.err, &["request{what=\"lookup\"", "waits storage=List"]);
    assert_tells(
        &run.err,
        &["action{operation=\"create\" path=\"new/one\"}", "done calls="],
    );
    for phase in ["Syncing", "Checking", "Publishing", "CleaningUp"] {
        assert_tells(&run.err, &[&format!("phase={phase}}}"), "ends took="]);
    }
    assert_tells(&run.err, &["phase=Draining"]);
    assert_tells(&run.err, &["rehearses"]);
    assert_tells(&run.err, &["the commit record is durable"]);
    assert_tells(&run.err, &["INFO", "end{job=", "committed"]);
}

#[test]
fn a_job_that_fails_tells_its_roll_back_and_recovery_what_it_did() {
    let test_dir = logging(&["ELBOW_LOG=elbow_job=info"]);
    let run = test_dir.job(&["--quiet"], &format!("{WORK}; sync; exit 3"));
    run.assert_code(3);
    assert_tells(&run.err, &["end{job=", "rolled back cause="]);
    assert!(!run.err.contains("request{"), "that is not asked for: {}", run.err);
    let job = test_dir.start_job(&[], &format!("{WORK}; : > \"$OUT/changed\"; exec sleep 60"));
    crate::test_dir::wait_for("the job's changes", || {
        test_dir.outside("changed").exists() && test_dir.staging_directories() > 0
    });
    job.kill();
    let run = test_dir.elbow(&["recover", "."]);
    run.assert_code(0);
    assert_tells(&run.err, &["recover{job=", "action=RolledBack"]);
}

/// It is opened before anything is mounted: a line of the log is no request to the mount that it tells of.
#[test]
fn the_file_may_be_below_the_directory_of_the_job() {
    let test_dir = logging(&["ELBOW_LOG=debug", "ELBOW_LOG_FILE=d/log"]);
    let run = test_dir.job(&["--quiet"], &format!("{WORK}; ls -l d; printf y > d/new"));
    run.assert_code(0);
    assert_eq!(run.err, "", "the command's standard error is its own");
    let log = String::from_utf8(test_dir.read("d/log")).expect("text");
    assert_tells(&log, &["action{operation=\"create\" path=\"d/new\"}", "done"]);
    assert_tells(&log, &["end{job=", "committed"]);
}

#[test]
fn a_name_that_is_no_text_is_told_without_loss() {
    let test_dir = logging(&["ELBOW_LOG=debug"]);
    let run = test_dir.job(&["--quiet"], "printf x > \"$(printf 'n\\377')\"");
    run.assert_code(0);
    assert_tells(&run.err, &["action{operation=\"create\" path=\"n\\xFF\"}"]);
}

#[test]
fn a_filter_that_says_nothing_is_refused_before_anything_is_done() {
    for (variable, why) in [
        ("ELBOW_LOG=debgu", "ELBOW_LOG: no level: \"debgu\"; there are off,"),
        (
            "ELBOW_LOG=elbow_jop=debug",
            "ELBOW_LOG: no part of elbow: \"elbow_jop\"",
        ),
    ] {
        let test_dir = logging(&[variable]);
        let before = test_dir.restore();
        let run = test_dir.job(&[], WORK);
        run.assert_code(125);
        assert!(run.err.contains(why), "{}", run.err);
        test_dir.assert_equals(&before);
    }
    let test_dir = logging(&["ELBOW_LOG=debug", "ELBOW_LOG_FILE=/nowhere/log"]);
    let run = test_dir.job(&[], WORK);
    run.assert_code(125);
    assert!(
        run.err.contains("ELBOW_LOG_FILE: cannot open /nowhere/log"),
        "{}",
        run.err
    );
}
