//! `elbow recover DIR`: ends dead jobs; shows what jobs have left; tries again, gives up or removes those that are named.

use std::ffi::OsStr;
use std::process::ExitCode;

use elbow_file::ShowName;
use elbow_job::{Abandoned, JobState, RecoverAction, Recovered, SavedJob, UnfinishedJob};
use serde::Serialize;

use crate::cli::RecoverArgs;
use crate::control::forget_kept;
use crate::exit;
use crate::job::{Site, name_of};
use crate::json;
use crate::names::{CommandWords, DirectoryName, PathName, SavedName};
use crate::output::{answer, on_one_line, without_numbers};
use crate::process_limits::prepare_process;
use crate::report::utc;
use crate::size;

/// Ends them and says what was done; 125 when one of ours was left that is not ended and neither alive nor kept, or one that was named
/// is not done with.
pub(crate) fn run(args: &RecoverArgs) -> anyhow::Result<ExitCode> {
    let ended = if args.show {
        show(args)
    } else if args.abandon.is_empty() {
        end_jobs(args)
    } else {
        abandon(args)
    };
    json::answered(args.json, args.directory(), ended)
}

#[derive(Serialize)]
struct Report<T> {
    #[serde(flatten)]
    directory: DirectoryName,
    jobs: Vec<T>,
}

impl<T: Serialize> Report<T> {
    fn answer(args: &RecoverArgs, jobs: Vec<T>) -> anyhow::Result<()> {
        let directory = DirectoryName::of(args.directory());
        Ok(answer(json::line(&Self { directory, jobs })?)?)
    }
}

#[derive(Serialize)]
struct Ended {
    job: String,
    action: RecoverAction,
    #[serde(flatten)]
    command: CommandWords,
    message: String,
}

impl From<&Recovered> for Ended {
    fn from(found: &Recovered) -> Self {
        Self {
            job: found.job.clone(),
            action: found.action,
            command: CommandWords::of(&found.command),
            message: found.message.clone(),
        }
    }
}

fn end_jobs(args: &RecoverArgs) -> anyhow::Result<ExitCode> {
    prepare_process();
    let site = Site::open_one(args.directory(), &args.by)?;
    let mut found = if !args.drop.is_empty() {
        site.drop_kept(&args.drop, args.scratch.as_deref())?
    } else if !args.retry.is_empty() {
        site.retry(&args.retry, args.force)?
    } else {
        site.recover(args.force)?
    };
    if args.search {
        found.extend(site.recover_orphans(args.force)?);
    }
    let dropped = found.iter().filter(|job| job.action == RecoverAction::Dropped);
    dropped.for_each(|job| forget_kept(&job.job));
    report(args, &site, &found)?;
    let is_named = !args.retry.is_empty();
    let is_left = |action| match action {
        RecoverAction::Foreign | RecoverAction::Damaged | RecoverAction::Failed => true,
        RecoverAction::Kept | RecoverAction::Running | RecoverAction::NotOurs => is_named,
        _ => false,
    };
    Ok(code(found.iter().any(|job| is_left(job.action))))
}

fn code(is_left: bool) -> ExitCode {
    if is_left {
        ExitCode::from(exit::ELBOW_FAILED)
    } else {
        ExitCode::SUCCESS
    }
}

fn report(args: &RecoverArgs, site: &Site, found: &[Recovered]) -> anyhow::Result<()> {
    if args.json {
        return Report::answer(args, found.iter().map(Ended::from).collect());
    }
    for job in found {
        answer(line(site, job))?;
    }
    if found.is_empty() {
        answer(format_args!("no jobs in {}", args.directory().shown()))?;
    }
    Ok(())
}

fn line(site: &Site, job: &Recovered) -> String {
    let command = job.command.join(OsStr::new(" "));
    let command = Some(command.shown()).filter(|_| !job.command.is_empty());
    let command = command.map(|command| format!(" ({command})")).unwrap_or_default();
    format!("{}: {}{command}", name_of(site, job), on_one_line(&job.message))
}

/// A job that was given up, and what of it stays.
#[derive(Serialize)]
struct AbandonedJob {
    #[serde(flatten)]
    job: Ended,
    stays: Vec<Remains>,
}

#[derive(Serialize)]
struct Remains {
    #[serde(flatten)]
    path: PathName,
    what: String,
}

fn abandon(args: &RecoverArgs) -> anyhow::Result<ExitCode> {
    prepare_process();
    let site = Site::open_one(args.directory(), &args.by)?;
    let found = site.abandon(&args.abandon)?;
    if args.json {
        Report::answer(args, found.iter().map(given_up).collect())?;
    } else {
        for given_up in &found {
            answer(line(&site, &given_up.job))?;
            for (path, what) in &given_up.stays {
                answer(format_args!("  {} {what}", path.shown()))?;
            }
        }
    }
    Ok(code(found.iter().any(|given_up| !given_up.stays.is_empty())))
}

fn given_up(found: &Abandoned) -> AbandonedJob {
    let stays = found.stays.iter().map(|(path, what)| Remains {
        path: PathName::of(path),
        what: what.clone(),
    });
    AbandonedJob {
        job: Ended::from(&found.job),
        stays: stays.collect(),
    }
}

/// A job that has left something.
#[derive(Serialize)]
struct Shown {
    job: String,
    state: JobState,
    resumable: bool,
    host: Option<String>,
    pid: Option<u32>,
    #[serde(flatten)]
    command: CommandWords,
    started_unix_seconds: Option<u64>,
    objects: u64,
    bytes: u64,
    why: Option<String>,
    /// Where what the storage did not take was saved, and how much that is.
    #[serde(flatten)]
    saved: SavedName,
    saved_size_bytes: u64,
}

impl From<&UnfinishedJob> for Shown {
    fn from(left: &UnfinishedJob) -> Self {
        Self {
            job: left.job.clone(),
            state: left.state,
            resumable: left.is_whole,
            host: left.host.clone(),
            pid: left.pid,
            command: CommandWords::of(&left.command),
            started_unix_seconds: left.started_unix_seconds,
            objects: left.objects,
            bytes: left.bytes,
            why: left.why.as_deref().map(without_numbers),
            saved: SavedName::default(),
            saved_size_bytes: 0,
        }
    }
}

fn show(args: &RecoverArgs) -> anyhow::Result<ExitCode> {
    prepare_process();
    let site = Site::open_one(args.directory(), &args.by)?;
    let mut found: Vec<Shown> = site.show()?.iter().map(Shown::from).collect();
    for saved in site.saved(args.scratch.as_deref()) {
        match found.iter_mut().find(|shown| *shown.job == *saved.job) {
            Some(shown) => shown.add(&saved),
            None if saved.is_all => found.push(Shown::of(&saved)),
            // Of no use without the rest, which is gone.
            None => {}
        }
    }
    found.iter_mut().for_each(Shown::explain);
    if args.json {
        Report::answer(args, found)?;
        return Ok(ExitCode::SUCCESS);
    }
    for shown in &found {
        answer(shown.lines())?;
    }
    if found.is_empty() {
        answer(format_args!("no jobs in {}", args.directory().shown()))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Shown {
    /// A job of which nothing is in the directory.
    fn of(saved: &SavedJob) -> Self {
        let mut shown = Self {
            job: saved.job.to_string_lossy().into_owned(),
            state: JobState::Kept,
            resumable: true,
            host: None,
            pid: None,
            command: CommandWords::of(&saved.command),
            started_unix_seconds: None,
            objects: 0,
            bytes: 0,
            why: None,
            saved: SavedName::default(),
            saved_size_bytes: 0,
        };
        shown.add(saved);
        shown
    }

    /// What the storage did not take was saved.
    fn add(&mut self, saved: &SavedJob) {
        if self.state == JobState::Dead && saved.is_left {
            self.state = JobState::Kept;
        }
        self.resumable |= self.state == JobState::Kept;
        self.saved = SavedName::of(&saved.path);
        self.saved_size_bytes = saved.bytes;
    }

    /// Says why a job is kept that does not say it itself.
    fn explain(&mut self) {
        let why = match (self.state, self.saved.path()) {
            (JobState::Kept, Some(_)) => "the storage did not take all that it made",
            (JobState::Kept, None) => "the storage had no room for the reason either, or it did not take it",
            _ => return,
        };
        self.why.get_or_insert_with(|| why.to_owned());
    }

    fn lines(&self) -> String {
        let mut lines = vec![self.job.clone(), format!("  state       {}", self.state())];
        let words = self.command.shown();
        if !words.is_empty() {
            lines.push(format!("  command     {words}"));
        }
        if let (Some(host), Some(pid)) = (&self.host, self.pid) {
            lines.push(format!("  process     {pid} on {}", on_one_line(host)));
        }
        if let Some(started) = self.started_unix_seconds {
            lines.push(format!("  since       {}", utc(started as f64)));
        }
        if self.state != JobState::NotOurs {
            lines.push(format!(
                "  holds       {} objects, {}",
                self.objects,
                size::show(self.bytes)
            ));
        }
        if let Some(saved) = self.saved.path() {
            lines.push(format!(
                "  saved       {}, in {}",
                size::show(self.saved_size_bytes),
                saved.shown()
            ));
        }
        if let Some(why) = &self.why {
            lines.push(format!("  why         {}", on_one_line(why)));
        }
        lines.join("\n")
    }

    fn state(&self) -> &'static str {
        match self.state {
            JobState::Running => "running",
            JobState::Dead => "dead before its commit: a recovery undoes it",
            JobState::Unknown => "running or dead, which cannot be told from here",
            JobState::Kept if self.resumable => "kept with all that it made: `elbow resume` goes on with it",
            JobState::Kept => "kept for inspection",
            JobState::Dropped => "being removed: a recovery goes on",
            JobState::Committed => "committed and not finished: a recovery finishes it",
            JobState::TakenBack => "refused while it was committed, and not taken back yet: a recovery goes on",
            JobState::Damaged => "cannot be read",
            JobState::NotOurs => "not yours, and not looked into",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(state: JobState, why: Option<&str>, saved: Option<&str>) -> Shown {
        let mut shown = Shown {
            job: ".elbow-1-2.3".into(),
            state,
            resumable: true,
            host: None,
            pid: None,
            command: CommandWords::default(),
            started_unix_seconds: None,
            objects: 0,
            bytes: 0,
            why: why.map(str::to_owned),
            saved: saved.map(SavedName::of).unwrap_or_default(),
            saved_size_bytes: 0,
        };
        shown.explain();
        shown
    }

    /// On a full disk the reason is not stored either, and `why` was null.
    #[test]
    fn a_kept_job_says_why_even_where_nothing_is_stored_of_that() {
        let why = |state, why, saved| shown(state, why, saved).why.unwrap_or_default();
        assert!(why(JobState::Kept, None, None).contains("no room for the reason"));
        assert!(why(JobState::Kept, None, Some("/var/tmp/x")).contains("did not take all"));
        assert_eq!(why(JobState::Kept, Some("it is so"), None), "it is so");
        assert_eq!(why(JobState::Dead, None, None), "");
    }
}
