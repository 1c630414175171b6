//! `elbow run` inside `elbow run`: the inner job commits into the outer one, and its roll back leaves the outer as it was.
//!
//! It was refused, so that a script or a `make` recipe that used `elbow run` could not become part of a larger job.

use std::path::Path;

use elbow_testkit::reachable::Reachable;

use crate::ordinary_user::{USER, ground_of};
use crate::test_dir::{Run, TestDir, wait_for};

const OLD: &str = "mkdir -p old sub/deep; echo 1 > old/f; echo 2 > sub/g; echo 3 > sub/deep/h";

/// Prints all names, with content and times.
const LOOK: &str = "find . -printf '%P %y %m %T@\\n' | sort; find . -type f | sort | xargs cat";

fn nested(test_dir: &TestDir, script: &str) -> Run {
    let elbow = Reachable::new(Path::new(env!("CARGO_BIN_EXE_elbow"))).expect("the binary for all");
    test_dir.job(&[], &format!("ELBOW={}; set -e\n{script}", elbow.path().display()))
}

fn grounds() -> [TestDir; 2] {
    let test_dir = TestDir::new(OLD);
    test_dir.restore();
    [test_dir, ground_of(USER, OLD)]
}

#[test]
fn an_inner_job_commits_into_the_outer_one() {
    for test_dir in grounds() {
        let before = test_dir.snapshot();
        let script = "mkdir made; $ELBOW run -- sh -ec 'echo inner > new; mkdir d; mv old/f d/f; echo more >> sub/g; rm -r sub/deep; echo x > made/x'
            test $(cat new) = inner; cat sub/g > \"$OUT/g\"; ls -A > \"$OUT/names\"
            : > \"$OUT/done\"; until [ -e \"$OUT/go\" ]; do sleep 0.02; done; echo outer > last";
        let elbow = Reachable::new(Path::new(env!("CARGO_BIN_EXE_elbow"))).expect("the binary for all");
        let job = test_dir.start_job(&[], &format!("ELBOW={}; set -e\n{script}", elbow.path().display()));
        wait_for("the end of the inner job", || test_dir.outside("done").exists());
        test_dir.assert_seen_from_outside_as(&before);
        test_dir.touch_outside("go");
        job.finish().assert_code(0);
        let said = std::fs::read_to_string(test_dir.outside("names")).expect("names");
        assert_eq!(said, "d\nmade\nnew\nold\nsub\n", "nothing of the inner job is left");
        assert_eq!(
            (test_dir.content("new"), test_dir.content("d/f")),
            (b"inner\n".to_vec(), b"1\n".to_vec())
        );
        assert_eq!(
            (test_dir.content("sub/g"), test_dir.content("made/x")),
            (b"2\nmore\n".to_vec(), b"x\n".to_vec())
        );
        assert!(!test_dir.work("sub/deep").exists() && test_dir.work("last").exists());
        test_dir.assert_no_staging();
    }
}

#[test]
fn an_inner_job_that_is_rolled_back_leaves_the_outer_one_as_it_was() {
    for test_dir in grounds() {
        let before = test_dir.snapshot();
        let script = format!(
            "echo outer > mine; mkdir made; ({LOOK}) > \"$OUT/before\"
             $ELBOW run -- sh -c 'rm -r sub; echo x > old/f; echo y > mine; mv made other; mkdir n; exit 3' || test $? = 3
             $ELBOW run --on sub -- sh -c 'rm sub/g; echo x > sub/n; kill -9 $$' || test $? = 137
             ({LOOK}) > \"$OUT/after\"; cmp \"$OUT/before\" \"$OUT/after\"; rm -r mine made; touch -d '2020-01-02 03:04:05.678901234' ."
        );
        nested(&test_dir, &script).assert_code(0);
        test_dir.assert_equals(&before);
    }
}

#[test]
fn the_roll_back_of_the_outer_job_takes_the_inner_one_with_it() {
    for test_dir in grounds() {
        let before = test_dir.snapshot();
        let script =
            "$ELBOW run -- sh -c 'echo x > new; rm -r sub; $ELBOW run --on old -- sh -c \"echo y > old/f\"'; exit 4";
        nested(&test_dir, &format!("export ELBOW; {script}")).assert_code(4);
        test_dir.assert_equals(&before);
    }
}

/// Each recipe is a transaction, four at a time.
#[test]
fn recipes_of_make_are_jobs_in_a_job() {
    for test_dir in grounds() {
        let script = "printf 'all: %s\\n' \"$(seq -s ' ' -f d%g/out 24)\" > Makefile
            printf 'd%%/out:\\n\\tmkdir -p $(@D)\\n\\t$(ELBOW) run -q --on $(@D) -- sh -c \"echo $@ > $@.tmp; mv $@.tmp $@\"\\n' >> Makefile
            make -s -j4 ELBOW=$ELBOW; test -z \"$(make -s -j4 ELBOW=false)\"";
        nested(&test_dir, script).assert_code(0);
        for target in 1..=24 {
            let name = format!("d{target}/out");
            assert_eq!(test_dir.content(&name), format!("{name}\n").as_bytes());
        }
        test_dir.assert_no_staging();
    }
}

/// The next job in the outer one undoes it, as it would outside.
#[test]
fn a_killed_inner_job_is_undone_within_the_outer_one() {
    for test_dir in grounds() {
        let script = "($ELBOW run -- sh -c 'echo x > new; rm sub/g; : > \"$OUT/began\"; exec sleep 1000' & echo $! > \"$OUT/pid\"; wait)  &
            until [ -e \"$OUT/began\" ] && [ -s \"$OUT/pid\" ]; do sleep 0.02; done; kill -9 $(cat \"$OUT/pid\"); wait
            $ELBOW run -- sh -c 'echo second > second'; ls -A; cat sub/g";
        let run = nested(&test_dir, script);
        run.assert_code(0);
        assert_eq!(run.out, "old\nsecond\nsub\n2\n", "{}", run.err);
        assert_eq!(test_dir.content("second"), b"second\n");
        test_dir.assert_no_staging();
    }
}

/// The outer one is killed: all that the inner one has started ends, too, and nothing is left.
#[test]
fn a_killed_outer_job_ends_the_inner_one() {
    for test_dir in grounds() {
        let before = test_dir.snapshot();
        let elbow = Reachable::new(Path::new(env!("CARGO_BIN_EXE_elbow"))).expect("the binary for all");
        let script = "exec $ELBOW run -- sh -c 'echo x > new; rm -r sub; : > \"$OUT/began\"; echo $$ > \"$OUT/pid\"; exec sleep 1000'";
        let job = test_dir.start_job(&[], &format!("ELBOW={}\n{script}", elbow.path().display()));
        wait_for("the inner command", || {
            std::fs::read_to_string(test_dir.outside("pid")).is_ok_and(|pid| pid.ends_with('\n'))
        });
        let pid = std::fs::read_to_string(test_dir.outside("pid")).expect("a number");
        job.kill_alone();
        wait_for("the end of the inner command", || {
            !Path::new(&format!("/proc/{}/environ", pid.trim())).exists()
        });
        // By whom the job belongs to.
        let recover = format!("{} recover .", elbow.path().display());
        test_dir.native(&recover).assert_code(0);
        test_dir.assert_equals(&before);
    }
}
