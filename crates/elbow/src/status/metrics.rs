//! `elbow status --metrics`: running jobs for Prometheus, as text.
//!
//! Families are in one piece each, with no times, as the textfile collector of node_exporter wants them. What a job has counted is gone when it has
//! ended: its series end, and nothing goes back to zero.
//!
//! Source: Prometheus, *Exposition formats*, text-based format 0.0.4; *Metric and label naming*.

use std::fmt::Write as _;
use std::path::Path;

use crate::control::{JobKind, KeptJob, Status};

/// A family with a sample per job.
struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    /// The count of the job that it is.
    count: &'static str,
}

const fn family(name: &'static str, kind: &'static str, count: &'static str, help: &'static str) -> Family {
    Family {
        name,
        kind,
        help,
        count,
    }
}

const COUNTER: &str = "counter";
const GAUGE: &str = "gauge";

const FAMILIES: [Family; 15] = [
    family(
        "elbow_job_operations_total",
        COUNTER,
        "operations",
        "Modifying operations acknowledged to the command.",
    ),
    family(
        "elbow_job_storage_calls_total",
        COUNTER,
        "storage_calls",
        "Modifying calls that reached the storage.",
    ),
    family(
        "elbow_job_merged_operations_total",
        COUNTER,
        "merged",
        "Operations that were merged into a call that was needed anyway.",
    ),
    family(
        "elbow_job_cancelled_objects_total",
        COUNTER,
        "cancelled",
        "Objects created and removed again before the storage heard of them.",
    ),
    family(
        "elbow_job_acknowledged_bytes_total",
        COUNTER,
        "bytes_acknowledged",
        "Bytes written by the command.",
    ),
    family(
        "elbow_job_written_bytes_total",
        COUNTER,
        "bytes_written",
        "Bytes written to the storage.",
    ),
    family(
        "elbow_job_spilled_bytes_total",
        COUNTER,
        "spilled_bytes",
        "Bytes that went through the scratch directory.",
    ),
    family(
        "elbow_job_stored_objects_total",
        COUNTER,
        "objects_stored",
        "Times that an object had work and the storage has all of it.",
    ),
    family(
        "elbow_job_in_flight_seconds_total",
        COUNTER,
        "in_flight_seconds",
        "Actions under way, summed over the time while there was work.",
    ),
    family(
        "elbow_job_busy_seconds_total",
        COUNTER,
        "busy_seconds",
        "Time while there was work for the storage.",
    ),
    family(
        "elbow_job_left_objects",
        GAUGE,
        "objects_left",
        "Objects that the storage does not have as they are.",
    ),
    family(
        "elbow_job_left_bytes",
        GAUGE,
        "bytes_left",
        "Bytes written by the command that the storage does not have.",
    ),
    family(
        "elbow_job_queued_objects",
        GAUGE,
        "queued",
        "Objects that wait for the storage.",
    ),
    family(
        "elbow_job_in_flight_actions",
        GAUGE,
        "in_flight",
        "Actions under way on the storage.",
    ),
    family(
        "elbow_job_memory_bytes",
        GAUGE,
        "memory_bytes",
        "Bytes of written data in memory.",
    ),
];

/// All of these jobs; the last line is ended, too.
pub(super) fn text(jobs: &[Status], kept: &[KeptJob]) -> String {
    let mut text = Text::default();
    text.family("elbow_jobs", GAUGE, "Running jobs.");
    text.sample("elbow_jobs", "", jobs.len());
    text.family(
        "elbow_kept_jobs",
        GAUGE,
        "Jobs that were kept, and wait to be resumed or dropped.",
    );
    text.sample("elbow_kept_jobs", "", kept.len());
    text.family("elbow_job_info", GAUGE, "What the job is; always 1.");
    for job in jobs {
        text.sample("elbow_job_info", &info(job), 1);
    }
    text.family(
        "elbow_job_start_time_seconds",
        GAUGE,
        "When the job began, in seconds since 1970.",
    );
    for job in jobs {
        text.sample("elbow_job_start_time_seconds", &labels(job), job.started_unix_seconds);
    }
    text.family(
        "elbow_job_errors",
        GAUGE,
        "Background operations that the storage has refused: the job cannot commit any more.",
    );
    for job in jobs {
        text.sample("elbow_job_errors", &labels(job), job.errors.len());
    }
    for family in &FAMILIES {
        text.of_jobs(family, jobs);
    }
    text.0
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string does not fail.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }

    fn of_jobs(&mut self, family: &Family, jobs: &[Status]) {
        self.family(family.name, family.kind, family.help);
        for job in jobs {
            // One of another version may not count it.
            if let Some(value) = job.counts.get(family.count).filter(|value| value.is_number()) {
                self.sample(family.name, &labels(job), value);
            }
        }
    }
}

/// What a sample belongs to.
fn labels(job: &Status) -> String {
    format!(
        "{{job={},directory={}}}",
        quoted(&job.job),
        quoted(&shown(job.source.path().as_deref()))
    )
}

fn info(job: &Status) -> String {
    let kind = match job.kind {
        JobKind::Run => "run",
        JobKind::Mount => "mount",
        JobKind::Kept => "kept",
    };
    let labels = labels(job);
    let labels = labels.trim_end_matches('}');
    format!(
        "{labels},kind={},command={},phase={},pid=\"{}\",version={}}}",
        quoted(kind),
        quoted(&job.command.shown()),
        quoted(phase(&job.phase)),
        job.pid,
        quoted(&job.elbow)
    )
}

/// What it is doing, without how far it is: each value of a label is a series of its own.
fn phase(told: &str) -> &str {
    told.split(':').next().unwrap_or(told)
}

fn shown(path: Option<&Path>) -> String {
    path.map(|path| path.to_string_lossy().into_owned()).unwrap_or_default()
}

/// A value of a label.
fn quoted(value: &str) -> String {
    let mut quoted = String::from('"');
    for c in value.chars() {
        match c {
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            '\n' => quoted.push_str("\\n"),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{CommandWords, MountPointName, SourceName};

    fn job(name: &str, directory: &str) -> Status {
        let counts = serde_json::json!({"operations": 12, "busy_seconds": 1.5, "memory_bytes": 0, "odd": "x"});
        Status {
            elbow: "0.1.0".into(),
            kind: JobKind::Run,
            command: CommandWords::of(&["sh".into(), "-c".into(), "echo \"x\"".into()]),
            command_pid: None,
            source: SourceName::of(directory),
            mount_point: MountPointName::of(directory),
            job: name.into(),
            started_unix_seconds: 5.5,
            pid: 7,
            phase: "publishing: 30%, 300 of 1,000 names".into(),
            counts: counts.as_object().expect("an object").clone(),
            errors: Vec::new(),
        }
    }

    #[test]
    fn each_family_is_in_one_piece_with_its_help_and_type() {
        let text = text(&[job(".elbow-1", "/a"), job(".elbow-2", "/b")], &[]);
        let mut families = Vec::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                families.push(rest.split(' ').next().expect("a name"));
            } else {
                let name = line.trim_start_matches("# TYPE ").split(['{', ' ']).next();
                assert_eq!(name, families.last().copied(), "{line}");
            }
        }
        let count = families.len();
        families.sort_unstable();
        families.dedup();
        assert_eq!(families.len(), count, "no family twice");
        for line in [
            "elbow_jobs 2",
            "elbow_job_operations_total{job=\".elbow-2\",directory=\"/b\"} 12",
            "elbow_job_busy_seconds_total{job=\".elbow-1\",directory=\"/a\"} 1.5",
            "# TYPE elbow_job_memory_bytes gauge",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(text.contains("phase=\"publishing\"") && text.ends_with('\n'), "{text}");
    }

    #[test]
    fn values_of_labels_are_escaped() {
        let text = text(&[job("j", "/a\\b\n\"c\"")], &[]);
        assert!(text.contains(r#"directory="/a\\b\n\"c\"","#), "{text}");
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        assert!(samples.clone().all(|line| line.starts_with("elbow_")), "{text}");
    }

    #[test]
    fn each_count_of_a_job_is_told() {
        let counts = crate::control::counts_object(&elbow_job::Counts::default());
        let told: Vec<&str> = FAMILIES.iter().map(|family| family.count).collect();
        for name in counts.keys() {
            assert!(told.contains(&name.as_str()), "{name} has no family");
        }
        assert_eq!(told.len(), counts.len());
    }
}
