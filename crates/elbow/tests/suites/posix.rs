//! pjdfstest: what POSIX says of file systems, in Rust (crates.io) and in C (where `PJDFSTEST` says).

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use elbow_testkit::cases::is_soak;
use elbow_testkit::program::write_program;

use crate::table::{Results, assert_only_known};
use crate::testbed::{Storage, Testbed, Way, program};

/// What Linux has of what the suite asks for; users that every Debian has; times are as fine as the kernel's tick.
const CONFIGURATION: &str = "[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.02
[dummy_auth]
entries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]
";

/// The least that a run of all cases has.
const CASES_MIN: usize = 350;

/// `NAME  ok`, `NAME  skipped` or `NAME  FAILED`, and then lines about it, of which the first is what failed.
fn results_of_rust(said: &str) -> Results {
    let mut results = Results::new();
    let mut lines = said.lines().peekable();
    while let Some(line) = lines.next() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [case, end @ ("ok" | "skipped" | "FAILED")] = words[..] else {
            continue;
        };
        let about = lines.peek().filter(|line| line.starts_with('\t') && end != "ok");
        let about = about.map_or("", |line| line.trim());
        results.insert(case.to_owned(), format!("{end} {about}").trim().to_owned());
    }
    results
}

fn run_rust(testbed: &Testbed, way: Way, suite: &Path) -> Results {
    let (configuration, work) = (testbed.outside("pjdfstest.toml"), testbed.fresh(way));
    fs::write(&configuration, CONFIGURATION).expect("a configuration");
    let second = testbed.outside("");
    let paths = [suite, &configuration, &second].map(|path| path.to_str().expect("UTF-8"));
    let words = [
        "env",
        "NO_COLOR=1",
        "RUST_BACKTRACE=0",
        paths[0],
        "-c",
        paths[1],
        "-s",
        paths[2],
        "-p",
        ".",
    ];
    let run = testbed.run(&work, way, &words);
    let results = results_of_rust(&run.out);
    assert!(
        results.len() >= CASES_MIN,
        "{} cases only:\n{}\n{}",
        results.len(),
        run.out,
        run.err
    );
    results
}

fn assert_same_rust(storage: Storage) {
    let (Some(suite), Some(testbed)) = (program("pjdfstest"), Testbed::new(storage)) else {
        return;
    };
    let native = run_rust(&testbed, Way::Native, &suite);
    let job = run_rust(&testbed, Way::Job, &suite);
    assert_only_known("pjdfstest (Rust)", storage, &native, &job);
}

#[test]
fn pjdfstest_on_ext4_answers_as_without_a_job() {
    assert_same_rust(Storage::Ext4);
}

#[test]
fn pjdfstest_on_slow_storage_answers_as_without_a_job() {
    if is_soak("pjdfstest on slow storage") {
        assert_same_rust(Storage::Slowfs);
    }
}

/// Each script of one part of the suite by itself, below a line with its name. They look for their program where they lie.
const EACH_SCRIPT: &str = "cd \"$PJDFSTEST/tests\" && for script in \"$PART\"/*.t; do
    echo \"# script $script\"; (cd \"$WORK\" && sh \"$PJDFSTEST/tests/$script\" 2>&1); done";

/// `ok N` and `not ok N`, each below the name of its script. What a failed assertion says beside it names random files.
fn results_of_c(said: &str) -> Results {
    let (mut results, mut script) = (Results::new(), "");
    for line in said.lines() {
        if let Some(name) = line.strip_prefix("# script ") {
            script = name;
        }
        let (end, rest) = match (line.strip_prefix("ok "), line.strip_prefix("not ok ")) {
            (Some(rest), _) => ("ok", rest),
            (_, Some(rest)) => ("FAILED", rest),
            _ => continue,
        };
        let number = rest.split_whitespace().next().unwrap_or_default();
        results.insert(format!("{script} {number}"), end.to_owned());
    }
    results
}

/// What the suite in C asks for the type of the file system, and leaves out what it does not expect of others than ext4.
const DF: &str = "#!/bin/sh\necho Filesystem Type\necho /dev/loop ext4\n";

/// A run for each part: the whole suite takes many minutes.
fn run_c(testbed: &Testbed, way: Way, suite: &Path) -> Results {
    let programs = testbed.outside("programs");
    fs::create_dir_all(&programs).expect("a directory");
    write_program(&programs.join("df"), DF).expect("a program");
    let path = format!(
        "PATH={}:{}",
        programs.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let parts = fs::read_dir(suite.join("tests")).expect("tests of pjdfstest").flatten();
    let parts = parts.filter(|entry| entry.path().is_dir());
    let results = parts.flat_map(|part| {
        let work = testbed.fresh(way);
        let suite = format!("PJDFSTEST={}", suite.display());
        let part = format!("PART={}", part.file_name().display());
        results_of_c(
            &testbed
                .run(&work, way, &["env", &path, &suite, &part, "sh", "-c", EACH_SCRIPT])
                .out,
        )
    });
    results.collect()
}

/// The directory is a variable's, because the suite in C is in no registry: without it, that is said.
#[test]
fn pjdfstest_in_c_answers_as_without_a_job() {
    let Some(suite) = std::env::var_os("PJDFSTEST").map(PathBuf::from) else {
        // Not eprintln: the test runner would keep it to itself.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: PJDFSTEST names no directory with pjdfstest in C"
        );
        return;
    };
    let suite = suite.canonicalize().expect("PJDFSTEST");
    for storage in [Storage::Ext4, Storage::Slowfs] {
        let Some(testbed) = Testbed::new(storage) else { return };
        let native = run_c(&testbed, Way::Native, &suite);
        let job = run_c(&testbed, Way::Job, &suite);
        assert_only_known("pjdfstest (C)", storage, &native, &job);
    }
}

#[test]
fn results_are_read_from_what_the_suites_print() {
    let said = "a::b   ok\nc::d  FAILED\n\tcalled `x`\nBacktrace:\ne::f  skipped\n\trequires y\n\nSummary: 1 failed\n";
    let results = results_of_rust(said);
    assert_eq!(results["a::b"], "ok");
    assert_eq!(results["c::d"], "FAILED called `x`");
    assert_eq!(results["e::f"], "skipped requires y");
    assert_eq!(results.len(), 3);
    let results = results_of_c("# script chmod/00.t\n1..2\nok 1\nnot ok 2 - tried x\n# script open/00.t\nok 1\n");
    assert_eq!(results["chmod/00.t 2"], "FAILED");
    assert_eq!(results.len(), 3);
}
