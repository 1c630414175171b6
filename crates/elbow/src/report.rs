//! What is said when a job is over: for people, and as one JSON object.
//!
//! The object always has the same fields (`docs/src/reference/json.md`); what is not there is `null` or empty.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use elbow_file::ShowName;
use elbow_job::{Cause, Counts, DeferredError, JobError, Kept, NOT_WON, Outcome};
use serde::{Deserialize, Serialize};

use crate::job::{drop_command, quoted, resume_command};
use crate::job_end::{BY_SOMEBODY_ELSE, JobEnd};
use crate::json::{self, Problem};
use crate::names::{CommandWords, DirectoryName, KeptName, PathName, SavedName};
use crate::output::{few, on_one_line, print_message, raw, sentence, strerror, without_numbers};
use crate::via::Reached;
use crate::{errno_name, size};

/// So many objects are named for one kind of error.
const LINES_OF_AN_ERROR: usize = 8;

/// How a whole run ended.
///
/// Of several directories the last of these tells how the whole run ended, unless only some are committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunOutcome {
    /// Everything is on the storage.
    Committed,
    /// Nothing of it is left.
    RolledBack,
    /// Nothing of it is visible; what was written is kept for inspection.
    Kept,
    /// Some directories are committed, and others are not.
    PartlyCommitted,
    /// It could not be ended: `elbow recover` has to finish or undo it.
    Unfinished,
}

/// The end of a run over one or more directories.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    /// The version of the program.
    elbow: String,
    #[serde(flatten)]
    command: CommandWords,
    started_unix_seconds: f64,
    /// How often the command was run, or was to be.
    pub(crate) attempts: u32,
    pub(crate) outcome: RunOutcome,
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
    /// How the storage was reached: `mount` if it was so for any of the directories, else `sftp`.
    #[serde(default)]
    pub(crate) via: Reached,
    /// Each directory's end.
    directories: Vec<Directory>,
    pub(crate) errors: Vec<Failure>,
    conflicts: Vec<Conflict>,
    /// Sentences for people: what happened to each directory, and why.
    pub(crate) messages: Vec<String>,
    /// Sentences for people: what else is worth knowing.
    pub(crate) notes: Vec<String>,
    /// Where kept staging areas are, as text.
    pub(crate) kept: Vec<String>,
    /// Why Elbowroom itself failed.
    error: Option<Problem>,
}

/// The end of one directory's job.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Directory {
    #[serde(flatten)]
    directory: DirectoryName,
    /// The name of its staging directories.
    job: String,
    outcome: RunOutcome,
    message: String,
    #[serde(flatten)]
    kept: KeptName,
    /// Where what the storage did not take was saved.
    #[serde(flatten)]
    saved: SavedName,
    /// `elbow resume` can go on with it.
    #[serde(default)]
    resumable: bool,
    /// What of it could not be stored.
    #[serde(default)]
    missing: Vec<PathName>,
    /// It is committed, and that has changed something.
    #[serde(skip)]
    is_stored: bool,
}

impl Directory {
    fn shown(&self) -> String {
        self.directory.path().unwrap_or_default().shown().to_string()
    }
}

/// An old object that somebody else changed too, or that holds files of another job.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Conflict {
    #[serde(flatten)]
    directory: DirectoryName,
    #[serde(flatten)]
    path: PathName,
    /// What differs.
    what: String,
}

/// A deferred error, as it is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    #[serde(flatten)]
    directory: DirectoryName,
    operation: String,
    #[serde(flatten)]
    path: PathName,
    errno: i32,
    errno_name: Option<String>,
    message: String,
    unix_seconds: f64,
}

/// A path below the directory of a job; the directory itself is `.`.
fn within(path: &Path) -> PathName {
    let itself = path.as_os_str().is_empty();
    PathName::of(if itself { Path::new(".") } else { path })
}

impl Failure {
    /// One of the job over a directory.
    pub(crate) fn new(directory: &Path, error: &DeferredError) -> Self {
        Self {
            directory: DirectoryName::of(directory),
            operation: error.operation.clone().into_owned(),
            path: within(&error.path),
            errno: error.errno,
            errno_name: errno_name::of(error.errno).map(str::to_owned),
            message: strerror(error.errno),
            unix_seconds: error.unix_seconds,
        }
    }
}

impl Report {
    /// The report of a run that began then and of which nothing has ended yet.
    pub(crate) fn new(command: &[OsString], started: SystemTime) -> Self {
        let started = started.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            elbow: env!("CARGO_PKG_VERSION").to_owned(),
            command: CommandWords::of(command),
            started_unix_seconds: started.as_secs_f64(),
            attempts: 1,
            outcome: RunOutcome::Committed,
            exit_code: 0,
            command_seconds: 0.0,
            drain_seconds: 0.0,
            commit_seconds: 0.0,
            operations: 0,
            storage_calls: 0,
            merged: 0,
            cancelled: 0,
            bytes_acknowledged: 0,
            bytes_written: 0,
            mean_in_flight: 0.0,
            via: Reached::Mount,
            directories: Vec::new(),
            errors: Vec::new(),
            conflicts: Vec::new(),
            messages: Vec::new(),
            notes: Vec::new(),
            kept: Vec::new(),
            error: None,
        }
    }

    /// Adds a kept job that is in its place by now.
    pub(crate) fn add_resumed(&mut self, directory: &Path, job: &OsStr, commit: Duration) {
        let message = format!("committed {}: all that {} had made", directory.shown(), job.shown());
        self.commit_seconds += commit.as_secs_f64();
        self.directories.push(Directory {
            directory: DirectoryName::of(directory),
            job: job.to_string_lossy().into_owned(),
            outcome: RunOutcome::Committed,
            message: message.clone(),
            kept: KeptName::default(),
            saved: SavedName::default(),
            resumable: false,
            missing: Vec::new(),
            is_stored: true,
        });
        self.judge_all();
        self.messages.push(message);
    }

    /// How the whole has ended, by its directories.
    fn judge_all(&mut self) {
        let outcomes = || self.directories.iter().map(|directory| directory.outcome);
        let last = outcomes().max().unwrap_or(RunOutcome::Committed);
        let is_apart = self.is_any_stored() && matches!(last, RunOutcome::RolledBack | RunOutcome::Kept);
        self.outcome = if is_apart { RunOutcome::PartlyCommitted } else { last };
    }

    /// Says which directories are committed, and which are not.
    pub(crate) fn tell_apart(&mut self) {
        if self.outcome != RunOutcome::PartlyCommitted {
            return;
        }
        let (committed, others): (Vec<_>, Vec<_>) = self
            .directories
            .iter()
            .partition(|directory| directory.outcome == RunOutcome::Committed);
        let named = |directories: &[&Directory]| few(directories.iter().map(|found| found.shown()), SHOWN);
        self.messages.push(format!(
            "only a part of the job is on the storage: {} is committed, {} is not",
            named(&committed),
            named(&others)
        ));
    }

    /// Makes it that of a run that Elbowroom could not even begin, or lost.
    pub(crate) fn fail(&mut self, error: &anyhow::Error) {
        self.outcome = RunOutcome::RolledBack;
        self.exit_code = crate::exit::ELBOW_FAILED;
        self.messages.push(sentence(error));
        self.error = Some(Problem::of(error, None));
    }

    /// Says how long the command took.
    pub(crate) fn took(&mut self, command: Duration) {
        self.command_seconds = command.as_secs_f64();
    }

    /// Adds the end of one directory's job; `why` it was rolled back if that was asked for.
    pub(crate) fn add(&mut self, directory: &Path, job: &OsStr, ending: &JobEnd, why: &str) {
        self.add_counts(&ending.counts);
        self.drain_seconds += ending.drain.as_secs_f64();
        self.commit_seconds += ending.commit.as_secs_f64();
        self.errors
            .extend(ending.errors.iter().map(|error| Failure::new(directory, error)));
        self.add_conflicts(directory, ending);
        let (result, sentences) = self.judge(directory, ending, why);
        let sentences: Vec<String> = sentences
            .iter()
            .map(|told| on_one_line(&without_numbers(told)))
            .collect();
        let kept = match &ending.outcome {
            Ok(Outcome::Kept(_, kept)) => Some(kept),
            _ => None,
        };
        let saved = kept.and_then(|kept| kept.saved.as_deref());
        self.directories.push(Directory {
            directory: DirectoryName::of(directory),
            job: job.to_string_lossy().into_owned(),
            outcome: result,
            message: sentences.join("\n"),
            kept: kept.map(|kept| KeptName::of(&kept.path)).unwrap_or_default(),
            saved: saved.map(SavedName::of).unwrap_or_default(),
            resumable: ending.is_kept_whole(),
            missing: kept.iter().flat_map(|kept| &kept.missing).map(PathName::of).collect(),
            is_stored: result == RunOutcome::Committed && ending.counts.operations > 0,
        });
        self.judge_all();
        self.messages.extend(sentences);
    }

    /// Says the ends of directories in other words.
    pub(crate) fn retell(&mut self, tell: impl Fn(&str) -> String) {
        let directories = self.directories.iter_mut().map(|directory| &mut directory.message);
        directories
            .chain(&mut self.messages)
            .for_each(|message| *message = tell(message));
    }

    fn add_conflicts(&mut self, directory: &Path, ending: &JobEnd) {
        let Ok(Outcome::RolledBack(cause) | Outcome::Kept(cause, _)) = &ending.outcome else {
            return;
        };
        let (Cause::Conflict(found) | Cause::OtherJobs(found)) = cause else {
            return;
        };
        self.conflicts.extend(found.iter().map(|(path, what)| Conflict {
            directory: DirectoryName::of(directory),
            path: within(path),
            what: what.clone(),
        }));
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

    /// How it ended, and the sentences that say so.
    fn judge(&mut self, directory: &Path, ending: &JobEnd, why: &str) -> (RunOutcome, Vec<String>) {
        let (directory, typed) = (directory.shown(), quoted(directory));
        match &ending.outcome {
            Ok(Outcome::Committed) => {
                let committed = format!("committed {directory}: {}", amount(&ending.counts));
                let sentences = [committed].into_iter().chain(overcome(&ending.overcome));
                (RunOutcome::Committed, sentences.collect())
            }
            Ok(Outcome::RolledBack(cause)) => (
                RunOutcome::RolledBack,
                vec![format!("rolled back {directory}: {}", reason(cause, why))],
            ),
            Ok(Outcome::Kept(cause, kept)) => {
                self.kept.push(kept.path.to_string_lossy().into_owned());
                let reason = reason(cause, why);
                let sentences = if kept.is_whole {
                    let [place, commands @ ..] = where_whole(kept);
                    let first = format!("not committed {directory}: {reason}; {place}");
                    [first].into_iter().chain(commands).collect()
                } else {
                    let [place, commands @ ..] = where_kept(&kept.path);
                    let first = format!("rolled back {directory}: {reason}; {place}");
                    let missing = not_stored(&kept.missing);
                    [first].into_iter().chain(commands).chain(missing).collect()
                };
                (RunOutcome::Kept, sentences)
            }
            Err(
                error @ (JobError::Unfinished { .. }
                | JobError::NotSaved { .. }
                | JobError::NotKept { .. }
                | JobError::NotWhole { .. }),
            ) => (RunOutcome::Unfinished, vec![format!("{directory}: {error}")]),
            Err(JobError::NotRolledBack { cause, failed }) => (
                RunOutcome::Unfinished,
                vec![format!(
                    "not committed {directory}: {}; {failed}; `elbow recover {typed}` cleans up",
                    reason(cause, why)
                )],
            ),
            Err(error) => (
                RunOutcome::Unfinished,
                vec![format!("{directory}: {error}; `elbow recover {typed}` cleans up")],
            ),
        }
    }

    /// Everything has been stored.
    pub(crate) fn is_committed(&self) -> bool {
        self.outcome == RunOutcome::Committed
    }

    /// Something has been stored of at least one directory.
    pub(crate) fn is_any_stored(&self) -> bool {
        self.directories.iter().any(|directory| directory.is_stored)
    }

    /// Nothing has been stored, and nothing is left to do.
    pub(crate) fn is_rolled_back(&self) -> bool {
        matches!(self.outcome, RunOutcome::RolledBack | RunOutcome::Kept)
    }

    /// Every directory's job has ended, whichever way.
    pub(crate) fn is_ended(&self) -> bool {
        self.outcome != RunOutcome::Unfinished
    }

    /// The object on one line.
    pub(crate) fn json(&self) -> String {
        // Numbers, text, and lists of them: there is nothing that JSON does not have.
        json::line(self).unwrap_or_default()
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
            return raw(self.json());
        }
        few_of_each(&self.errors).iter().for_each(print_message);
        if quiet && (self.is_committed() || self.exit_code != crate::exit::ELBOW_FAILED) {
            return;
        }
        for message in &self.messages {
            print_message(message);
        }
        if self.is_committed() && self.operations > 0 {
            print_message(self.times());
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

/// A line for each error, but not for thousands: when a connection ends, or a disk is full, all that was under way has the same.
fn few_of_each(errors: &[Failure]) -> Vec<String> {
    let mut counts: BTreeMap<i32, usize> = BTreeMap::new();
    let mut lines = Vec::new();
    for error in errors {
        let count = counts.entry(error.errno).or_default();
        *count += 1;
        if *count <= LINES_OF_AN_ERROR {
            lines.push(error.line());
        }
    }
    for (errno, count) in counts.into_iter().filter(|(_, count)| *count > LINES_OF_AN_ERROR) {
        lines.push(format!(
            "and {} more: {} (`--json` and `--report FILE` name each)",
            count - LINES_OF_AN_ERROR,
            strerror(errno)
        ));
    }
    lines
}

impl Failure {
    pub(crate) fn line(&self) -> String {
        format!(
            "{} {}: {} ({})",
            self.operation,
            self.path.path().unwrap_or_default().shown(),
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

/// What the storage had refused before it could be done.
fn overcome(errors: &[DeferredError]) -> Option<String> {
    let each: Vec<String> = errors.iter().take(SHOWN).map(ToString::to_string).collect();
    let told = || {
        format!(
            "refused while the command ran, and done at the end ({}): {}",
            errors.len(),
            each.join(", ")
        )
    };
    (!errors.is_empty()).then(told)
}

fn reason(cause: &Cause, asked: &str) -> String {
    match cause {
        Cause::Asked => asked.to_owned(),
        Cause::Deferred(errors) if errors.len() == 1 => "a background operation failed (see above)".to_owned(),
        Cause::Deferred(errors) => format!("{} background operations failed (see above)", errors.len()),
        Cause::Conflict(conflicts) => {
            let can_be_won = conflicts.iter().all(|(_, what)| what != NOT_WON);
            let advice = if can_be_won {
                "; with --on-conflict overwrite the job wins, but for files of which it has written only a part"
            } else {
                ""
            };
            format!("{BY_SOMEBODY_ELSE} while the job ran: {}{advice}", listed(conflicts))
        }
        Cause::OtherJobs(found) => format!(
            "it removes or moves what holds files of other jobs, running or kept: {}; `elbow recover` lists jobs and drops kept ones",
            listed(found)
        ),
        Cause::Storage(message) => message.clone(),
    }
}

/// Where a job is that can go on, and the commands that do that or remove it.
fn where_whole(kept: &Kept) -> [String; 3] {
    let (path, saved) = (&kept.path, kept.saved.as_deref());
    let directory = path.parent().unwrap_or(path);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let place = match saved {
        Some(saved) if kept.is_all_saved => saved.shown().to_string(),
        Some(saved) => format!("{}, with what could not be stored in {}", path.shown(), saved.shown()),
        None => path.shown().to_string(),
    };
    [
        format!("all that it made is kept in {place}, and nothing of it is visible"),
        format!("to go on when the cause is gone: {}", resume_command(directory, saved)),
        format!("to throw it away: {}", drop_command(directory, &name, saved)),
    ]
}

/// Where a kept job is, and the commands that show and remove it.
fn where_kept(path: &Path) -> [String; 3] {
    let directory = path.parent().unwrap_or(path);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // Those of its staging directories below begin with the same id.
    let id = name.splitn(3, '-').take(2).collect::<Vec<_>>().join("-");
    [
        format!("what it wrote is kept in {}", path.shown()),
        format!("to look at all of it: find {} -path '*/{id}-*'", quoted(directory)),
        format!("to remove it: {}", drop_command(directory, &name, None)),
    ]
}

/// What is not there of a kept job, as a line of its own.
fn not_stored(missing: &[PathBuf]) -> Option<String> {
    let all = few(missing.iter().map(|path| path.shown().to_string()), SHOWN);
    (!all.is_empty()).then(|| format!("not stored, or not whole: {all}"))
}

/// More than these make a message unreadable.
const SHOWN: usize = 8;

fn listed(conflicts: &[(PathBuf, String)]) -> String {
    let each = conflicts
        .iter()
        .map(|(path, what)| format!("{} ({what})", path.shown()));
    few(each, SHOWN)
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

    fn ending(outcome: std::result::Result<Outcome, JobError>, errors: Vec<DeferredError>) -> JobEnd {
        let counts = Counts {
            operations: 3,
            busy_seconds: 2.0,
            in_flight_seconds: 8.0,
            ..Counts::default()
        };
        JobEnd {
            outcome,
            drain: Duration::from_secs(1),
            commit: Duration::from_secs(2),
            counts,
            errors,
            overcome: Vec::new(),
        }
    }

    fn kept(path: &str, is_whole: bool) -> Kept {
        Kept {
            path: path.into(),
            is_whole,
            missing: vec!["b/c".into()],
            saved: None,
            is_all_saved: false,
        }
    }

    #[test]
    fn of_thousands_of_errors_a_few_of_each_kind_are_told() {
        let error = |number: usize, errno| DeferredError {
            operation: "create".into(),
            path: format!("f{number}").into(),
            errno,
            unix_seconds: 0.0,
        };
        let gone = (0..1000).map(|number| error(number, 107));
        let errors = gone.chain([error(1000, 28)]).collect();
        let mut report = Report::new(&[], UNIX_EPOCH);
        report.add(
            Path::new("/d"),
            OsStr::new(JOB),
            &ending(Ok(Outcome::RolledBack(Cause::Asked)), errors),
            "so",
        );
        let lines = few_of_each(&report.errors);
        assert_eq!(lines.len(), LINES_OF_AN_ERROR + 2);
        assert!(
            lines[7].starts_with("create f7: ") && lines[8].starts_with("create f1000: No space left"),
            "{lines:?}"
        );
        assert_eq!(
            lines[9],
            "and 992 more: Transport endpoint is not connected (`--json` and `--report FILE` name each)"
        );
    }

    const JOB: &str = ".elbow-0123456789abcdef-1795312922.000000005";

    fn new_report() -> Report {
        Report::new(&["true".into()], UNIX_EPOCH)
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
            operation: "write".into(),
            path: "a/b".into(),
            errno: libc::EIO,
            unix_seconds: 1.5,
        };
        let mut report = new_report();
        report.took(Duration::from_millis(250));
        let outcome = Outcome::RolledBack(Cause::Deferred(vec![error.clone()]));
        report.add(
            Path::new("/data"),
            OsStr::new(JOB),
            &ending(Ok(outcome), vec![error]),
            "",
        );
        let json: serde_json::Value = serde_json::from_str(&report.json()).expect("JSON");
        assert_eq!(json["outcome"], "rolled_back");
        assert_eq!(json["mean_in_flight"], 4.0);
        assert_eq!(json["command_seconds"], 0.25);
        assert_eq!(json["errors"][0]["message"], "Input/output error");
        assert_eq!(json["errors"][0]["path"], "a/b");
        assert_eq!(json["errors"][0]["errno_name"], "EIO");
        assert_eq!(json["errors"][0]["directory"], "/data");
        assert_eq!(json["directories"][0]["job"], JOB);
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
        let mut report = new_report();
        let job = OsStr::new(JOB);
        report.add(Path::new("/a"), job, &ending(Ok(Outcome::Committed), Vec::new()), "");
        assert!(report.is_committed());
        let conflict = Cause::Conflict(vec![("f".into(), "its size".into())]);
        report.add(
            Path::new("/b"),
            job,
            &ending(Ok(Outcome::RolledBack(conflict)), Vec::new()),
            "",
        );
        report.add(Path::new("/c"), job, &ending(Ok(Outcome::Committed), Vec::new()), "");
        assert_eq!(report.outcome, RunOutcome::PartlyCommitted);
        assert_eq!(report.messages.len(), 3);
        assert!(report.messages[1].contains("f (its size)"), "{:?}", report.messages);
    }

    /// A commit that was not finished was called rolled back, and run again with `--retry`.
    #[test]
    fn a_job_that_could_not_be_ended_is_neither_committed_nor_rolled_back() {
        let unfinished = || JobError::Unfinished {
            failed: 1,
            first: "rename".into(),
            directory: "/a".into(),
        };
        let mut report = new_report();
        let job = OsStr::new(JOB);
        report.add(Path::new("/a"), job, &ending(Err(unfinished()), Vec::new()), "");
        report.add(
            Path::new("/b"),
            job,
            &ending(Ok(Outcome::RolledBack(Cause::Asked)), Vec::new()),
            "",
        );
        assert_eq!(report.outcome, RunOutcome::Unfinished);
        assert!(!report.is_ended() && !report.is_committed());
    }

    /// The document's example has the fields that are told, of everything that can be told.
    #[test]
    fn the_documented_report_has_the_fields_of_a_report() {
        use std::os::unix::ffi::OsStrExt;
        let document = include_str!("../../../docs/src/reference/json.md");
        let (_, rest) = document.split_once("## `elbow run`").expect("the section");
        let (_, rest) = rest.split_once("```json\n").expect("an example");
        let (example, _) = rest.split_once("```").expect("its end");
        let example: serde_json::Value = serde_json::from_str(example).expect("JSON");
        let name = Path::new(OsStr::from_bytes(b"a/\xff"));
        let error = DeferredError {
            operation: "write".into(),
            path: name.into(),
            errno: libc::ENOSPC,
            unix_seconds: 1.5,
        };
        let conflict = Cause::Conflict(vec![("old".into(), "its size".into())]);
        let mut report = new_report();
        report.add(
            Path::new("/a"),
            OsStr::new(JOB),
            &ending(Ok(Outcome::Kept(conflict, kept("/a/b", false))), vec![error]),
            "",
        );
        report.fail(&anyhow::anyhow!("no"));
        let real: serde_json::Value = serde_json::from_str(&report.json()).expect("JSON");
        assert_eq!(fields(&example), fields(&real));
        let read: Report = serde_json::from_value(real).expect("the mount's process tells it to a client");
        assert_eq!(read.errors[0].path.path().as_deref(), Some(name));
    }

    /// The paths of all fields.
    fn fields(value: &serde_json::Value) -> std::collections::BTreeSet<String> {
        let under = |name: &str, value| {
            fields(value)
                .into_iter()
                .map(move |field| format!("{name}.{field}"))
                .collect::<Vec<_>>()
        };
        match value {
            serde_json::Value::Object(object) => object
                .iter()
                .flat_map(|(name, value)| [vec![name.clone()], under(name, value)].concat())
                .collect(),
            serde_json::Value::Array(values) => values.iter().flat_map(|value| under("[]", value)).collect(),
            _ => std::collections::BTreeSet::new(),
        }
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

    /// What has been earned: where it is, and how to go on.
    #[test]
    fn a_job_that_can_go_on_says_how() {
        let error = DeferredError {
            operation: "write".into(),
            path: "old".into(),
            errno: libc::ENOSPC,
            unix_seconds: 1.5,
        };
        let mut report = new_report();
        let outcome = Outcome::Kept(Cause::Deferred(vec![error]), kept("/a b/.elbow-1-2.3", true));
        report.add(
            Path::new("/a b"),
            OsStr::new(JOB),
            &JobEnd::of_kept(Ok(outcome), Duration::ZERO),
            "",
        );
        assert_eq!((report.outcome, report.errors.len()), (RunOutcome::Kept, 1));
        for words in [
            "not committed /a b",
            "kept in /a b/.elbow-1-2.3",
            "elbow resume '/a b'",
            "--drop .elbow-1-2.3",
        ] {
            assert!(
                report.messages.iter().any(|message| message.contains(words)),
                "{:?}",
                report.messages
            );
        }
        let json: serde_json::Value = serde_json::from_str(&report.json()).expect("JSON");
        assert_eq!(json["directories"][0]["resumable"], true);
    }

    /// It said `rolled_back`, which means that nothing is left.
    #[test]
    fn a_job_of_which_only_some_directories_are_committed_is_neither() {
        let told = |committed: JobEnd, other: Outcome| {
            let mut report = new_report();
            report.add(Path::new("/a"), OsStr::new(JOB), &committed, "");
            report.add(Path::new("/b"), OsStr::new(JOB), &ending(Ok(other), Vec::new()), "so");
            report.tell_apart();
            report
        };
        let rolled_back = || Outcome::RolledBack(Cause::Asked);
        for other in [
            rolled_back(),
            Outcome::Kept(Cause::Asked, kept("/b/.elbow-1-2.3", true)),
        ] {
            let report = told(ending(Ok(Outcome::Committed), Vec::new()), other);
            assert_eq!(report.outcome, RunOutcome::PartlyCommitted);
            assert!(!report.is_committed() && !report.is_rolled_back() && report.is_any_stored());
            assert_eq!(
                report.messages.last().map(String::as_str),
                Some("only a part of the job is on the storage: /a is committed, /b is not")
            );
            let json: serde_json::Value = serde_json::from_str(&report.json()).expect("JSON");
            assert_eq!(json["outcome"], "partly_committed");
        }
        // In which there was nothing to be stored, nothing is.
        let mut nothing = ending(Ok(Outcome::Committed), Vec::new());
        nothing.counts = Counts::default();
        assert_eq!(told(nothing, rolled_back()).outcome, RunOutcome::RolledBack);
    }

    /// A conflict on a file named `old\nelbow: committed all` said so on a line of its own; in JSON it was a sentence of its own.
    #[test]
    fn a_name_begins_no_sentence_and_sends_a_terminal_nothing() {
        let name = "old\nelbow: committed all\x1b[2J";
        let conflict = || Cause::Conflict(vec![(name.into(), "its size".into())]);
        let error = DeferredError {
            operation: "write".into(),
            path: name.into(),
            errno: libc::EIO,
            unix_seconds: 1.5,
        };
        let kept = |is_whole| Kept {
            missing: vec![name.into()],
            ..kept("/a\x1b[2J\n/.elbow-1-2.3", is_whole)
        };
        let overcome = JobEnd {
            overcome: vec![error.clone()],
            ..ending(Ok(Outcome::Committed), Vec::new())
        };
        for (end, sentences) in [
            (ending(Ok(Outcome::RolledBack(conflict())), vec![error]), 1),
            (ending(Ok(Outcome::Kept(conflict(), kept(true))), Vec::new()), 3),
            (ending(Ok(Outcome::Kept(conflict(), kept(false))), Vec::new()), 4),
            (overcome, 2),
        ] {
            let mut report = new_report();
            report.add(Path::new("/a\x1b[2J\n"), OsStr::new(JOB), &end, "asked");
            assert_eq!(report.messages.len(), sentences, "{:?}", report.messages);
            for line in report.lines() {
                assert!(!line.contains(char::is_control), "{line:?}");
            }
            let json: serde_json::Value = serde_json::from_str(&report.json()).expect("JSON");
            assert_eq!(json["directories"][0]["directory"], "/a\x1b[2J\n");
            if json["conflicts"][0].is_object() {
                assert_eq!(json["conflicts"][0]["path"], name);
            }
        }
    }

    #[test]
    fn a_kept_job_says_where() {
        let mut report = new_report();
        let kept = Outcome::Kept(Cause::Asked, kept("/a b/.elbow-1-2.3", false));
        report.add(
            Path::new("/a"),
            OsStr::new(JOB),
            &ending(Ok(kept), Vec::new()),
            "the command exited with 3",
        );
        assert_eq!(report.outcome, RunOutcome::Kept);
        for words in [
            "exited with 3",
            "kept in /a b/.elbow-1-2.3",
            "find '/a b' -path '*/.elbow-1-*'",
            "elbow recover '/a b' --drop .elbow-1-2.3",
            "not stored, or not whole: b/c",
        ] {
            assert!(
                report.messages.iter().any(|message| message.contains(words)),
                "{:?}",
                report.messages
            );
        }
    }
}
