//! The boundary of a job: what others see before, at and after its end.

use crate::ground::{Ground, wait_for};

/// An old tree with old times, to be changed in every way by [`CHANGES`].
const OLD: &str = "mkdir -p d/sub keep empty; for i in 1 2 3 4 5; do seq $i 5000 > d/$i; printf $i > d/sub/$i; done
    ln d/1 hard; ln -s d/2 soft; mkfifo pipe; printf x > keep/f; setfattr -n user.a -v old d/3; chmod 2775 keep";

/// Changes of every kind to that tree, and new things beside and inside of it.
const CHANGES: &str = "printf changed >> d/1; rm d/2; mv d/3 d/sub/moved; truncate -s 7 d/4; chmod 600 d/5; mv d/sub sub2; rmdir empty
    ln -sf d/4 soft; rm pipe; setfattr -n user.b -v new keep/f; touch keep/f; chown 7:8 keep; mkdir -p new/a/b; seq 99999 > new/a/f
    printf y > keep/new; printf z > d/new; ln hard keep/hard; mv keep kept; mkdir keep; printf w > top";

/// A script that makes the changes, then waits until the test has looked.
fn changes_then_wait(end: &str) -> String {
    format!("{CHANGES}\n: > \"$OUT/changed\"; until [ -e \"$OUT/go\" ]; do sleep 0.02; done; {end}")
}

#[test]
fn nothing_is_visible_before_the_commit_and_all_of_it_after() {
    let ground = Ground::new(OLD);
    ground.assert_same_as_native(CHANGES);

    let before = ground.restore();
    let job = ground.start_job(&[], &changes_then_wait("exit 0"));
    wait_for("the job's changes", || ground.outside("changed").exists());
    ground.assert_seen_from_outside_as(&before);
    ground.touch_outside("go");
    job.finish().assert_code(0);
    ground.assert_differs_from(&before);
}

#[test]
fn a_failed_job_leaves_the_tree_as_it_was() {
    let ground = Ground::new(OLD);
    let before = ground.restore();
    let run = ground.job(&[], &format!("{CHANGES}; ls -R; exit 1"));
    run.assert_code(1);
    assert!(run.out.contains("kept"), "the job did not make its changes");
    ground.assert_equals(&before);
}

#[test]
fn an_eager_job_shows_new_things_at_once_and_takes_them_back() {
    let ground = Ground::new(OLD);
    let before = ground.restore();
    let script = "mkdir new; echo line > new/log; echo top > top; printf changed >> d/1
        : > \"$OUT/changed\"; until [ -e \"$OUT/go\" ]; do sleep 0.02; done; exit 3";
    let job = ground.start_job(&["--publish", "eager"], script);
    wait_for("the new file under its own name", || {
        ground.read("new/log") == b"line\n" && ground.read("top") == b"top\n"
    });
    assert!(
        !ground.read("d/1").ends_with(b"changed"),
        "an old file was changed before the commit"
    );
    ground.touch_outside("go");
    job.finish().assert_code(3);
    ground.assert_equals(&before);
}

#[test]
fn an_eager_job_commits_like_any_other() {
    let ground = Ground::new(OLD);
    ground
        .with_options(&["--publish", "eager"])
        .assert_same_as_native(CHANGES);
}

#[test]
fn a_durable_job_commits_like_any_other() {
    let ground = Ground::new(OLD);
    ground.with_options(&["--durable"]).assert_same_as_native(&format!(
        "{CHANGES}; sync top kept/f; dd if=/dev/zero of=s count=9 oflag=sync status=none"
    ));
}

#[test]
fn a_job_with_little_memory_spills_and_commits() {
    let ground = Ground::new("head -c 20000000 /dev/zero > old");
    let scratch = ground.outside("scratch");
    std::fs::create_dir(&scratch).expect("scratch directory");
    let scratch = scratch.to_str().expect("UTF-8").to_owned();
    let ground = ground.with_options(&["--mem", "4M", "--scratch", &scratch]);
    ground.assert_same_as_native(
        "seq 1 6000000 > big; cp big second; cat big second | cksum > seen; rm big; seq 1 900000 | dd of=old conv=notrunc status=none",
    );
    assert_eq!(
        std::fs::read_dir(&scratch).expect("scratch directory").count(),
        0,
        "the spill file is left behind"
    );
}

#[test]
fn the_job_sees_its_own_writes_before_they_are_on_the_storage() {
    let ground = Ground::new("");
    ground.assert_same_as_native(
        "for i in $(seq 300); do echo $i > f$i; cat f$i >> all; mv f$i g$i; cat g$i >> all; rm g$i; done",
    );
}

#[test]
fn a_conflict_rolls_back_and_names_the_path() {
    let ground = Ground::new("printf mine > contested; printf x > other");
    ground.restore();
    let script = "printf job >> contested; printf new > new; : > \"$OUT/changed\"; until [ -e \"$OUT/go\" ]; do sleep 0.02; done";
    let job = ground.start_job(&[], script);
    wait_for("the job's changes", || ground.outside("changed").exists());
    std::fs::write(ground.work("contested"), "theirs, and longer").expect("writing beside the job");
    ground.touch_outside("go");
    let run = job.finish();
    run.assert_code(125);
    assert_eq!(run.err.matches("contested").count(), 1, "{}", run.err);
    assert_eq!(ground.content("contested"), b"theirs, and longer");
    assert!(!ground.work("new").exists(), "something of the job is left");
    ground.assert_no_staging();
}

#[test]
fn a_conflict_can_be_won() {
    let ground = Ground::new("printf mine > contested");
    ground.restore();
    let script = "printf job > contested; : > \"$OUT/changed\"; until [ -e \"$OUT/go\" ]; do sleep 0.02; done";
    let job = ground.start_job(&["--on-conflict", "overwrite"], script);
    wait_for("the job's changes", || ground.outside("changed").exists());
    std::fs::write(ground.work("contested"), "theirs").expect("writing beside the job");
    ground.touch_outside("go");
    job.finish().assert_code(0);
    assert_eq!(ground.content("contested"), b"job");
}

#[test]
fn two_directories_are_two_transactions_of_one_job() {
    let ground = Ground::new("mkdir a b; printf 1 > a/old; printf 2 > b/old");
    let before = ground.restore();
    let (a, b) = (ground.work("a"), ground.work("b"));
    let on = ["--on", a.to_str().expect("UTF-8"), "--on", b.to_str().expect("UTF-8")];
    ground
        .job(&on, "mv a/old a/moved; printf x > b/new; exit 9")
        .assert_code(9);
    ground.assert_equals(&before);
    ground.job(&on, "mv a/old a/moved; printf x > b/new").assert_code(0);
    assert_eq!(ground.content("a/moved"), b"1");
    assert_eq!(ground.content("b/new"), b"x");
    ground.assert_no_staging();
}

#[test]
fn a_retried_job_starts_from_the_tree_as_it_was() {
    let ground = Ground::new("printf 0 > old");
    ground.restore();
    let script = "test \"$(cat old)\" = 0 && test ! -e new || exit 77; printf 1 >> old; printf x > new
        echo try >> \"$OUT/tries\"; test $(wc -l < \"$OUT/tries\") = 3";
    ground.job(&["--retry", "2"], script).assert_code(0);
    assert_eq!(ground.content("old"), b"01");
    assert_eq!(
        std::fs::read_to_string(ground.outside("tries"))
            .expect("tries")
            .lines()
            .count(),
        3
    );
    ground.assert_no_staging();
}

#[test]
fn a_kept_job_stays_and_recover_removes_it() {
    let ground = Ground::new(OLD);
    let before = ground.restore();
    let run = ground.job(&["--keep"], &format!("{CHANGES}; exit 5"));
    run.assert_code(5);
    assert!(
        run.err.contains(".elbow-"),
        "it does not say where the job is kept: {}",
        run.err
    );
    assert!(ground.staging_directories() > 0, "nothing was kept");
    ground
        .elbow(&["recover", ground.work("").to_str().expect("UTF-8")])
        .assert_code(0);
    ground.assert_equals(&before);
}
