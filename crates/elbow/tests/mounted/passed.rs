//! `--pass-through`: directories of a job that are no part of it.

use std::fs;
use std::process::Command;

use rustix::io::Errno;

use crate::ordinary_user::{USER, ground_of};
use crate::test_dir::{TestDir, unavailable, wait_for};

const OLD: &str = "mkdir -p logs deep/checkpoints data; echo 1 > logs/old; echo 2 > data/f";

fn grounds() -> [TestDir; 2] {
    [TestDir::new(OLD), ground_of(USER, OLD)]
}

#[test]
fn what_is_passed_through_is_there_at_once_and_stays_whatever_becomes_of_the_job() {
    for test_dir in grounds() {
        let passed = ["--pass-through", "logs", "--pass-through", "deep/checkpoints"];
        let script = "echo new > data/g; cd logs; echo 2 >> old; echo 3 > new; cd ../deep; echo 4 > checkpoints/1
            mv ../data/g checkpoints/2; : > \"$OUT/done\"; until [ -e \"$OUT/go\" ]; do sleep 0.02; done
            echo 5 > checkpoints/3; exit 3";
        let job = test_dir.start_job(&passed, script);
        wait_for("its files", || test_dir.outside("done").exists());
        assert_eq!(
            [test_dir.content("logs/old"), test_dir.content("logs/new")],
            [b"1\n2\n".to_vec(), b"3\n".to_vec()],
            "while the job runs"
        );
        assert_eq!(
            test_dir.content("deep/checkpoints/2"),
            b"new\n",
            "what was moved is copied"
        );
        test_dir.touch_outside("go");
        job.finish().assert_code(3);
        assert_eq!(
            [test_dir.content("logs/new"), test_dir.content("deep/checkpoints/3")],
            [b"3\n".to_vec(), b"5\n".to_vec()]
        );
        assert!(!test_dir.work("data/g").exists());
        test_dir.assert_no_staging();

        let committed = test_dir.job(
            &passed,
            "rm logs/*; echo done > data/h; mv deep deeper; echo 6 > deeper/checkpoints/4",
        );
        committed.assert_code(0);
        assert_eq!(fs::read_dir(test_dir.work("logs")).expect("a directory").count(), 0);
        assert_eq!(
            [test_dir.content("data/h"), test_dir.content("deeper/checkpoints/4")],
            [b"done\n".to_vec(), b"6\n".to_vec()],
            "what is above it is a part of the job, and may move"
        );
        assert!(!test_dir.work("deep").exists());
    }
}

#[test]
fn what_is_passed_through_is_a_mount_point_to_the_command() {
    for test_dir in grounds() {
        let script = "rmdir logs 2> \"$OUT/rmdir\" && exit 9; mv logs other 2> \"$OUT/mv\" && exit 8
            ln data/f logs/f 2> \"$OUT/ln\" && exit 7; test -e logs/old && test -e data/f";
        test_dir.job(&["--pass-through", "logs"], script).assert_code(0);
        for (words, why) in [("rmdir", "busy"), ("mv", "busy"), ("ln", "cross-device")] {
            let said = fs::read_to_string(test_dir.outside(words))
                .expect("what was said")
                .to_lowercase();
            assert!(said.contains(why), "{words}: {said}");
        }
    }
}

#[test]
fn what_is_mounted_in_a_directory_can_be_passed_through() {
    let test_dir = TestDir::new(OLD);
    let there = test_dir.work("data");
    if let Err(errno) = rustix::mount::mount("none", &there, "tmpfs", rustix::mount::MountFlags::empty(), None) {
        return unavailable(&format!("mounting: {errno}"));
    }
    let refused = test_dir.job(&[], "true");
    let run = test_dir.job(
        &["--pass-through", "data"],
        "echo 1 > data/there; echo 2 > logs/here; rm logs/old",
    );
    // By a child: what other tests start meanwhile has a descriptor of ours for a moment, and a mount namespace a copy of our mounts.
    let content = Command::new("cat").arg(there.join("there")).output().expect("cat");
    wait_for("the end of those copies", || {
        match rustix::mount::unmount(&there, rustix::mount::UnmountFlags::empty()) {
            Err(Errno::BUSY) => false,
            ended => ended.is_ok() || panic!("unmounting: {ended:?}"),
        }
    });
    refused.assert_code(125);
    assert!(refused.err.contains("(`--pass-through MOUNT`)"), "{}", refused.err);
    run.assert_code(0);
    assert_eq!(
        (content.stdout, test_dir.content("logs/here")),
        (b"1\n".to_vec(), b"2\n".to_vec())
    );
    assert!(!test_dir.work("logs/old").exists());
}

#[test]
fn an_inner_job_passes_through_what_the_outer_one_does() {
    for test_dir in grounds() {
        let elbow = elbow_testkit::reachable::Reachable::new(std::path::Path::new(env!("CARGO_BIN_EXE_elbow")))
            .expect("the binary for all");
        let script = format!(
            "mv deep moved; {elbow} run -- sh -c 'echo 1 > moved/checkpoints/inner; echo 2 > logs/inner; echo 3 > data/inner; exit 4'
             test $? = 4; test ! -e data/inner; exit 5",
            elbow = elbow.path().display()
        );
        let passed = ["--pass-through", "logs", "--pass-through", "deep/checkpoints"];
        test_dir.job(&passed, &script).assert_code(5);
        assert_eq!(
            [
                test_dir.content("deep/checkpoints/inner"),
                test_dir.content("logs/inner")
            ],
            [b"1\n".to_vec(), b"2\n".to_vec()]
        );
    }
}

#[test]
fn what_is_passed_through_can_be_a_setting_and_a_mistake_is_told() {
    for test_dir in grounds() {
        fs::write(
            test_dir.work(".elbow.toml"),
            "[run]\npass-through = [\"logs\", \"deep/checkpoints\"]\n",
        )
        .expect("a file");
        let run = test_dir.job(
            &[],
            "echo 1 > logs/a; echo 2 > deep/checkpoints/b; echo 3 > data/c; false",
        );
        run.assert_code(1);
        assert!(test_dir.work("logs/a").exists() && test_dir.work("deep/checkpoints/b").exists());
        assert!(!test_dir.work("data/c").exists());
        let nowhere = test_dir.job(&["--pass-through", "nowhere"], "echo 4 > data/d");
        nowhere.assert_code(125);
        assert!(
            nowhere.err.contains("nowhere: cannot be passed through"),
            "{}",
            nowhere.err
        );
        let all = test_dir.job(&["--pass-through", "."], "echo 4 > data/d");
        all.assert_code(125);
        assert!(all.err.contains("nothing is left for a job"), "{}", all.err);
        assert!(!test_dir.work("data/d").exists());
    }
}
