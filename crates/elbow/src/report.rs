//! What is said when a job is over: for people, or as one JSON object.

use std::path::{Path, PathBuf};
use std::time::Duration;

use elbow_job::{Cause, Counts, DeferredError, JobError, Outcome};
use serde::{Deserialize, Serialize};

use crate::ending::Ending;
use crate::job::{drop_command, quoted};
use crate::say::{raw, say};
use crate::size;

/// How a whole run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Result {
    /// Everything is on the storage.
    Committed,
    /// Nothing of it is left.
    RolledBack,
    /// Nothing of it is visible; what was written is kept for inspection.
    Kept,
}

/// The end of a run over one or more directories.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) outcome: Result,
    pub(crate) exit_code: u8,
    pub(crate) command_seconds: f64,
    pub(crate) drain_seconds: f64,
    pub(crate) commit_seconds: f64,
    pub(crate) operations: u64,
    pub(crate) storage_calls: u64,
    pub(crate) merged: u64,
    pub(crate) cancelled: u64,
    pub(crate) bytes_acknowledged: u64,
    pub(crate) bytes_written: u64,
    pub(crate) mean_in_flight: f64,
    pub(crate) errors: Vec<Failure>,
    /// Sentences for people: what happened to each directory, and why.
    pub(crate) messages: Vec<String>,
    /// Where kept staging areas are.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) kept: Vec<PathBuf>,
}

/// A deferred error, as it is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) operation: String,
    pub(crate) path: PathBuf,
    pub(crate) errno: i32,
    pub(crate) message: String,
    pub(crate) unix_seconds: f64,
}

impl From<&DeferredError> for Failure {
    fn from(error: &DeferredError) -> Self {
        Self {
            operation: error.operation.to_owned(),
            path: if error.path.as_os_str().is_empty() {
                ".".into()
            } else {
                error.path.clone()
            },
            errno: error.errno,
            message: strerror(error.errno),
            unix_seconds: error.unix_seconds,
        }
    }
}

/// The system's words for an errno, without Rust's addition of the number.
pub(crate) fn strerror(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

impl Report {
    /// The report of a run of which nothing has ended yet.
    pub(crate) fn new(command: Duration) -> Self {
        Self {
            outcome: Result::Committed,
            exit_code: 0,
            command_seconds: command.as_secs_f64(),
            drain_seconds: 0.0,
            commit_seconds: 0.0,
            operations: 0,
            storage_calls: 0,
            merged: 0,
            cancelled: 0,
            bytes_acknowledged: 0,
            bytes_written: 0,
            mean_in_flight: 0.0,
            errors: Vec::new(),
            messages: Vec::new(),
            kept: Vec::new(),
        }
    }

    /// The report of a run that Elbowroom could not even begin, or lost.
    pub(crate) fn failed(error: &anyhow::Error) -> Self {
        let mut report = Self::new(Duration::ZERO);
        report.outcome = Result::RolledBack;
        report.exit_code = crate::exit::ELBOW_FAILED;
        report.messages.push(format!("{error:#}"));
        report
    }

    /// Adds the end of one directory's job; `why` it was rolled back if that was asked for.
    pub(crate) fn add(&mut self, directory: &Path, ending: &Ending, why: &str) {
        self.add_counts(&ending.counts);
        self.drain_seconds += ending.drain.as_secs_f64();
        self.commit_seconds += ending.commit.as_secs_f64();
        self.errors.extend(ending.errors.iter().map(Failure::from));
        let (result, message) = self.judge(directory, ending, why);
        if result != Result::Committed && self.outcome != Result::Kept {
            self.outcome = result;
        }
        self.messages.extend(message.lines().map(str::to_owned));
    }

    fn add_counts(&mut self, counts: &Counts) {
        self.operations += counts.operations;
        self.storage_calls += counts.storage_calls;
        self.merged += counts.merged;
        self.cancelled += counts.cancelled;
        self.bytes_acknowledged += counts.bytes_acknowledged;
        self.bytes_written += counts.bytes_written;
        if counts.busy_seconds > 0.0 {
            self.mean_in_flight += counts.in_flight_seconds / counts.busy_seconds;
        }
    }

    fn judge(&mut self, directory: &Path, ending: &Ending, why: &str) -> (Result, String) {
        let directory = directory.display();
        match &ending.outcome {
            Ok(Outcome::Committed) => (
                Result::Committed,
                format!("committed {directory}: {}", amount(&ending.counts)),
            ),
            Ok(Outcome::RolledBack(cause)) => (
                Result::RolledBack,
                format!("rolled back {directory}: {}", reason(cause, why)),
            ),
            Ok(Outcome::Kept(cause, path)) => {
                self.kept.push(path.clone());
                let reason = reason(cause, why);
                (
                    Result::Kept,
                    format!("rolled back {directory}: {reason}; {}", where_kept(path)),
                )
            }
            Err(error @ JobError::Unfinished { .. }) => (Result::RolledBack, format!("{directory}: {error}")),
            Err(error) => (
                Result::RolledBack,
                format!("{directory}: {error}; `elbow recover {directory}` cleans up"),
            ),
        }
    }

    /// Everything has been stored.
    pub(crate) fn is_committed(&self) -> bool {
        self.outcome == Result::Committed
    }

    /// Each error and each sentence.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.errors
            .iter()
            .map(Failure::line)
            .chain(self.messages.iter().cloned())
            .collect()
    }

    /// Says it, once.
    pub(crate) fn print(&self, json: bool, quiet: bool) {
        if json {
            return print_json(self);
        }
        for error in &self.errors {
            say(error.line());
        }
        if quiet && (self.is_committed() || self.exit_code != crate::exit::ELBOW_FAILED) {
            return;
        }
        for message in &self.messages {
            say(message);
        }
        if self.is_committed() && self.operations > 0 {
            say(self.times());
        }
    }

    fn times(&self) -> String {
        let command = self.command_seconds;
        let command = if command > 0.0 {
            format!("command {command:.2} s, ")
        } else {
            String::new()
        };
        format!(
            "{command}drain {:.2} s, commit {:.2} s; {:.1} operations in flight on average",
            self.drain_seconds, self.commit_seconds, self.mean_in_flight
        )
    }
}

/// One JSON object on one line of standard error.
pub(crate) fn print_json<T: Serialize>(value: &T) {
    match serde_json::to_string(value) {
        Ok(line) => raw(line),
        Err(error) => say(format_args!("cannot print the result: {error}")),
    }
}

impl Failure {
    pub(crate) fn line(&self) -> String {
        format!(
            "{} {}: {} ({})",
            self.operation,
            self.path.display(),
            self.message,
            utc(self.unix_seconds)
        )
    }
}

fn amount(counts: &Counts) -> String {
    if counts.operations == 0 {
        return "nothing was changed".to_owned();
    }
    format!(
        "{} operations in {} storage calls ({} merged, {} cancelled), {} written",
        counts.operations,
        counts.storage_calls,
        counts.merged,
        counts.cancelled,
        size::show(counts.bytes_written)
    )
}

fn reason(cause: &Cause, asked: &str) -> String {
    match cause {
        Cause::Asked => asked.to_owned(),
        Cause::Deferred(errors) if errors.len() == 1 => "a background operation failed (see above)".to_owned(),
        Cause::Deferred(errors) => format!("{} background operations failed (see above)", errors.len()),
        Cause::Conflict(conflicts) => format!(
            "changed by somebody else while the job ran: {}; --on-conflict overwrite lets the job win",
            listed(conflicts)
        ),
        Cause::OtherJobs(found) => format!(
            "it removes or moves what holds files of other jobs, running or kept: {}; `elbow recover` lists jobs and drops kept ones",
            listed(found)
        ),
        Cause::Storage(message) => message.clone(),
    }
}

/// Where a kept job is, and the commands that show and remove it.
fn where_kept(path: &Path) -> String {
    let directory = path.parent().unwrap_or(path);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Those of its staging directories below begin with the same id.
    let id = name.splitn(3, '-').take(2).collect::<Vec<_>>().join("-");
    format!(
        "what it wrote is kept in {}\nto look at all of it: find {} -path '*/{id}-*'\nto remove it: {}",
        path.display(),
        quoted(directory),
        drop_command(directory, &name)
    )
}

fn listed(conflicts: &[(PathBuf, String)]) -> String {
    /// More than these make a message unreadable.
    const SHOWN: usize = 8;
    let each = conflicts
        .iter()
        .take(SHOWN)
        .map(|(path, what)| format!("{} ({what})", path.display()));
    let rest = (conflicts.len() > SHOWN).then(|| format!("and {} more", conflicts.len() - SHOWN));
    each.chain(rest).collect::<Vec<_>>().join(", ")
}

/// A time as RFC 3339 writes it, in UTC and whole seconds.
pub(crate) fn utc(unix_seconds: f64) -> String {
    let seconds = unix_seconds.max(0.0) as i64;
    let (days, in_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (in_day / 3600, in_day / 60 % 60, in_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of a number of days since 1970, in the Gregorian calendar.
/// Source: H. Hinnant, *chrono-Compatible Low-Level Date Algorithms*, `civil_from_days`.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(outcome: std::result::Result<Outcome, JobError>, errors: Vec<DeferredError>) -> Ending {
        let counts = Counts {
            operations: 3,
            busy_seconds: 2.0,
            in_flight_seconds: 8.0,
            ..Counts::default()
        };
        Ending {
            outcome,
            drain: Duration::from_secs(1),
            commit: Duration::from_secs(2),
            counts,
            errors,
        }
    }

    #[test]
    fn times_are_told_in_utc() {
        for (unix, text) in [
            (0.0, "1970-01-01T00:00:00Z"),
            (951_782_400.9, "2000-02-29T00:00:00Z"),
            (1_795_312_922.0, "2026-11-22T02:02:02Z"),
        ] {
            assert_eq!(utc(unix), text);
        }
    }

    #[test]
    fn the_json_has_the_documented_fields() {
        let error = DeferredError {
            operation: "write",
            path: "a/b".into(),
            errno: libc::EIO,
            unix_seconds: 1.5,
        };
        let mut report = Report::new(Duration::from_millis(250));
        let outcome = Outcome::RolledBack(Cause::Deferred(vec![error.clone()]));
        report.add(Path::new("/data"), &ending(Ok(outcome), vec![error]), "");
        let json = serde_json::to_value(&report).expect("plain data");
        assert_eq!(json["outcome"], "rolled_back");
        assert_eq!(json["mean_in_flight"], 4.0);
        assert_eq!(json["command_seconds"], 0.25);
        assert_eq!(json["errors"][0]["message"], "Input/output error");
        assert_eq!(json["errors"][0]["path"], "a/b");
        for key in [
            "exit_code",
            "drain_seconds",
            "commit_seconds",
            "operations",
            "storage_calls",
            "merged",
            "cancelled",
        ] {
            assert!(json[key].is_number(), "{key}");
        }
        for key in ["bytes_acknowledged", "bytes_written"] {
            assert!(json[key].is_number(), "{key}");
        }
    }

    #[test]
    fn one_directory_that_was_not_committed_makes_the_run_so() {
        let mut report = Report::new(Duration::ZERO);
        report.add(Path::new("/a"), &ending(Ok(Outcome::Committed), Vec::new()), "");
        assert!(report.is_committed());
        let conflict = Cause::Conflict(vec![("f".into(), "its size".into())]);
        report.add(
            Path::new("/b"),
            &ending(Ok(Outcome::RolledBack(conflict)), Vec::new()),
            "",
        );
        report.add(Path::new("/c"), &ending(Ok(Outcome::Committed), Vec::new()), "");
        assert_eq!(report.outcome, Result::RolledBack);
        assert_eq!(report.messages.len(), 3);
        assert!(report.messages[1].contains("f (its size)"), "{:?}", report.messages);
    }

    #[test]
    fn many_conflicts_are_counted_not_listed() {
        let conflicts: Vec<_> = (0..2000)
            .map(|i| (PathBuf::from(format!("f{i}")), "size".to_owned()))
            .collect();
        let text = listed(&conflicts);
        assert!(text.len() < 200 && text.ends_with("and 1992 more"), "{text}");
        assert_eq!(listed(&conflicts[..1]), "f0 (size)");
    }

    #[test]
    fn a_kept_job_says_where() {
        let mut report = Report::new(Duration::ZERO);
        let kept = Outcome::Kept(Cause::Asked, "/a b/.elbow-1-2.3".into());
        report.add(
            Path::new("/a"),
            &ending(Ok(kept), Vec::new()),
            "the command exited with 3",
        );
        assert_eq!(report.outcome, Result::Kept);
        for words in [
            "exited with 3",
            "kept in /a b/.elbow-1-2.3",
            "find '/a b' -path '*/.elbow-1-*'",
            "elbow recover '/a b' --drop .elbow-1-2.3",
        ] {
            assert!(
                report.messages.iter().any(|message| message.contains(words)),
                "{:?}",
                report.messages
            );
        }
    }
}
