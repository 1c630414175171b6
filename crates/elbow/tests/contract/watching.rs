//! Looking at a running job again and again: `elbow status --watch`, and `--metrics` for Prometheus.

use std::fs;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::stage::{ELBOW, Stage, Started, wait_for};

/// A job that changes something again and again until `go` is there.
const SCRIPT: &str = "i=0; while [ ! -e ../go ]; do i=$((i + 1)); echo $i > n$i; : > ../ready; sleep 0.05; done";

fn start(stage: &Stage) -> Started {
    let mut command = Command::new(ELBOW);
    command.args(["run", "--", "sh", "-c", SCRIPT]);
    let child = stage.start(&mut command);
    wait_for("the command", || stage.path("ready").exists());
    wait_for("the job", || stage.elbow(&["status", "."]).code == 0);
    child
}

/// What is said of a job that has not answered for two seconds: a busy machine may keep it so long.
const SILENT: &str = "the job does not answer";

/// A watched job, and what is said of it.
struct Watched<'a> {
    stage: &'a Stage,
    job: Started,
    watching: Started,
}

impl<'a> Watched<'a> {
    /// Begins a job, and a shell's command that watches it; what that says goes to the file `looks`. It begins again while its first look gets no
    /// answer, which is an error.
    fn start(stage: &'a Stage, command: &str) -> Self {
        let job = start(stage);
        let script = format!("until grep -qs running ../looks; do {command}; code=$?; done; exit $code");
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).env("TERM", "xterm");
        let watching = stage.start(&mut shell);
        Self { stage, job, watching }
    }

    fn looks(&self) -> String {
        fs::read_to_string(self.stage.path("looks")).unwrap_or_default()
    }

    /// Lets it go on until so many lines or parts of lines have been said.
    fn wait_for(&self, count: usize, what: &str) {
        wait_for(what, || self.looks().matches(what).count() >= count);
    }

    /// Lets the job end, and gives all that was said.
    fn finish(self) -> String {
        fs::write(self.stage.path("go"), "").expect("a file");
        self.job.finish().assert_code(0);
        self.watching.finish().assert_code(0);
        fs::read_to_string(self.stage.path("looks")).expect("looks")
    }
}

#[test]
fn a_watched_job_is_told_a_line_at_a_time_until_it_ends() {
    let stage = Stage::new();
    let watched = Watched::start(&stage, "$ELBOW status --watch . > ../looks");
    watched.wait_for(3, " operations; ");
    let said = watched.finish();
    let lines: Vec<&str> = said.lines().filter(|line| !line.starts_with(SILENT)).collect();
    assert!(lines[0].starts_with("running: ") && !said.contains('\x1b'), "{said}");
    assert!(lines[1].contains(" operations/s, "), "{said}");
    assert_eq!(lines.last(), Some(&"the job has ended"));
}

#[test]
fn a_watched_job_is_told_to_programs_an_object_at_a_time() {
    let stage = Stage::new();
    let watched = Watched::start(&stage, "$ELBOW status --watch --json . > ../looks");
    watched.wait_for(3, "\"operations\":");
    let said = watched.finish();
    let all = said
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let operations: Vec<u64> = all
        .map(|status| status["counts"]["operations"].as_u64().expect("a number"))
        .collect();
    assert!(
        operations.first() < operations.last() && operations.is_sorted(),
        "{operations:?}"
    );
}

/// On a terminal the lines are drawn over those before.
#[test]
fn on_a_terminal_a_watched_job_stays_where_it_is() {
    let stage = Stage::new();
    let watched = Watched::start(
        &stage,
        "script --quiet --flush --return --command \"$ELBOW status --watch .\" ../looks > ../shown",
    );
    watched.wait_for(2, "A\r\x1b[J");
    let shown = watched.finish();
    // A line stays that tells of silence: what is shown after it is drawn below.
    for part in shown.split(SILENT) {
        let (looks, redrawn) = (part.matches("  phase ").count(), part.matches("A\r\x1b[J").count());
        assert_eq!(redrawn, looks.saturating_sub(1), "{shown:?}");
    }
}

/// A job that does not answer is no job that has ended.
#[test]
fn a_stopped_job_is_watched_until_it_goes_on() {
    let stage = Stage::new();
    let watched = Watched::start(&stage, "$ELBOW status --watch . > ../looks");
    watched.wait_for(1, " operations; ");
    let process = Pid::from_raw(i32::try_from(watched.job.id()).expect("a number")).expect("a process");
    kill_process(process, Signal::STOP).expect("stopped");
    watched.wait_for(1, SILENT);
    let said = stage.elbow(&["rollback", "."]);
    said.assert_code(125).assert_says(&["gave no answer"]);
    kill_process(process, Signal::CONT).expect("going on");
    let before = watched.looks().matches(" operations; ").count();
    watched.wait_for(before + 1, " operations; ");
    let said = watched.finish();
    assert!(said.ends_with("the job has ended\n"), "{said}");
}

#[test]
fn who_reads_no_more_ends_the_watching() {
    let stage = Stage::new();
    let job = start(&stage);
    // Again while the first look gets no answer.
    let first = stage.apart(
        "timeout 60 sh -c 'until [ -s ../first ]; do $ELBOW status --watch . | head -n 1 > ../first; done; cat ../first'",
    );
    assert_eq!(first.assert_code(0).out.lines().count(), 1, "{first:?}");
    fs::write(stage.path("go"), "").expect("a file");
    job.finish().assert_code(0);
}

#[test]
fn there_is_nothing_to_watch_without_a_job() {
    let stage = Stage::new();
    stage
        .elbow(&["status", "--watch", "."])
        .assert_code(125)
        .assert_says(&["elbow jobs"]);
    for options in [&["--metrics", "--json"][..], &["--metrics", "--watch"]] {
        stage.elbow(&[&["status"], options].concat()).assert_code(125);
    }
}

#[test]
fn metrics_of_a_running_job_are_text_for_prometheus() {
    let stage = Stage::new();
    let job = start(&stage);
    let said = stage.asks(&["status", "--metrics", "."]);
    let text = &said.assert_code(0).out;
    let directory = format!("directory=\"{}\"", stage.work().display());
    let value = |name: &str| -> f64 {
        let mut samples = text
            .lines()
            .filter(|line| line.starts_with(&format!("{name}{{")) && line.contains(&directory));
        let sample = samples.next().unwrap_or_else(|| panic!("no {name} in\n{text}"));
        assert_eq!(samples.next(), None, "{name} twice");
        sample
            .rsplit(' ')
            .next()
            .and_then(|value| value.parse().ok())
            .expect(sample)
    };
    assert!(value("elbow_job_operations_total") >= 2.0);
    assert_eq!(value("elbow_job_info"), 1.0);
    assert!(value("elbow_job_start_time_seconds") > 1.7e9);
    assert!(
        text.contains("\nelbow_jobs 1\n") || text.starts_with("elbow_jobs 1\n"),
        "{text}"
    );
    for line in text.lines() {
        let is_sample = line.split_once([' ', '{']).is_some_and(|(name, _)| {
            name.starts_with("elbow_") && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        });
        assert!(
            is_sample || line.starts_with("# HELP elbow_") || line.starts_with("# TYPE elbow_"),
            "{line}"
        );
    }
    // All jobs of the user: this one is among them.
    assert!(
        stage
            .elbow(&["status", "--metrics"])
            .assert_code(0)
            .out
            .contains(&directory)
    );
    fs::write(stage.path("go"), "").expect("a file");
    job.finish().assert_code(0);
    let after = stage.elbow(&["status", "--metrics", "."]);
    assert!(after.assert_code(0).out.contains("\nelbow_jobs 0\n"), "{after:?}");
    stage.elbow(&["status", "--metrics", "nowhere"]).assert_code(125);
}
