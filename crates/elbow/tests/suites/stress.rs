//! stress-ng: its stressors of file systems, one after the other, each for a short time and with its own verification.

use elbow_testkit::cases::is_soak;

use crate::table::{Results, assert_only_known};
use crate::testbed::{Storage, Testbed, Way, program};

/// How long each runs, and after how long it is taken for hung.
const SECONDS: &str = "2";
const HUNG_SECONDS: &str = "60";

/// Those of the class that do nothing in a directory: they mount kernel file systems, or have no files at all.
const ELSEWHERE: [&str; 5] = ["bind-mount", "binderfs", "eventfd", "ioprio", "procfs"];

/// The names of the class.
fn stressors(suite: &str) -> Vec<String> {
    let said = std::process::Command::new(suite)
        .args(["--class", "filesystem?"])
        .output()
        .expect("stress-ng");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let names = said.split_once(':').expect("a list of stressors").1.split_whitespace();
    names
        .filter(|name| !ELSEWHERE.contains(name))
        .map(str::to_owned)
        .collect()
}

/// Its exit code in words, and what it says that failed.
fn run(testbed: &Testbed, way: Way, suite: &str, name: &str) -> String {
    let work = testbed.fresh(way);
    let one = format!("--{name}");
    let words = [
        "timeout",
        "-k",
        "5",
        HUNG_SECONDS,
        suite,
        &one,
        "1",
        "--timeout",
        SECONDS,
        "--verify",
        "--temp-path",
        ".",
    ];
    let run = testbed.run(&work, way, &words);
    let end = match run.code {
        0 => "ok",
        // Not implemented here, or no resources for it: both are no failure of the storage.
        3 | 4 => "not done",
        124 | 137 => "hung",
        _ => "FAILED",
    };
    let failed = run
        .err
        .lines()
        .chain(run.out.lines())
        .find(|line| line.contains("fail:"));
    format!("{end} {}", failed.filter(|_| end == "FAILED").unwrap_or_default())
        .trim()
        .to_owned()
}

#[test]
fn stressors_of_file_systems_end_as_without_a_job() {
    if !is_soak("stress-ng") {
        return;
    }
    let Some(suite) = program("stress-ng") else { return };
    let suite = suite.to_str().expect("UTF-8");
    for storage in [Storage::Ext4, Storage::Slowfs] {
        let Some(testbed) = Testbed::new(storage) else { return };
        let (mut native, mut job) = (Results::new(), Results::new());
        for name in stressors(suite) {
            native.insert(name.clone(), run(&testbed, Way::Native, suite, &name));
            job.insert(name.clone(), run(&testbed, Way::Job, suite, &name));
        }
        assert_only_known("stress-ng", storage, &native, &job);
    }
}
