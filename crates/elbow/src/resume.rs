//! `elbow resume [PATH]`: commits kept jobs whose command had succeeded.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use anyhow::bail;
use elbow_file::ShowName;
use elbow_job::{JobState, Outcome, RecoverAction, UnfinishedJob};

use crate::cli::{ResumeArgs, ViaArgs};
use crate::commit::report;
use crate::control::forget_kept;
use crate::exit;
use crate::job::{Site, recovered_lines};
use crate::job_end::JobEnd;
use crate::output::few;
use crate::process_limits::prepare_process;
use crate::report::Report;

/// More directories than these make a line unreadable.
const SHOWN: usize = 3;

pub(crate) const EXAMPLES: &str = "\
Examples:
  The disk was full when the results were to be stored; there is room now:
      elbow resume /project/alice

  One of several, by the path that was told:
      elbow resume .elbow-1f2e3d4c5b6a7988-1763807484.000000005

  What waits there, and why?
      elbow recover --show /project/alice

When COMMAND has succeeded and the storage refuses what it made, `elbow run` and `elbow commit` keep all of it out of sight; what the storage does not take is saved on \
the machine of the job, where it is brought back from first. What it would change is compared \
with what it was then: if somebody else has changed it, that is named, and the job stays kept.

Exit code:
  0 when all of it is on the storage; 125 when it is kept as before, or nothing was kept there that can go on.";

/// Commits them, the oldest first.
pub(crate) fn run(args: &ResumeArgs) -> anyhow::Result<ExitCode> {
    report(&args.path, &args.told, || resume(args))
}

fn resume(args: &ResumeArgs) -> anyhow::Result<Report> {
    let started = SystemTime::now();
    prepare_process();
    let (site, only) = found(&args.path, &args.by)?;
    let is_meant = |job: &str| only.as_ref().is_none_or(|only| only == job);
    let mut report = Report::new(&[], started);
    report.via = site.reached;
    // One that died while it went on has committed, or waits once more.
    let recovered = site.recover(false)?;
    report.notes = recovered_lines(&site, &recovered);
    let finished = recovered
        .iter()
        .filter(|job| job.action == RecoverAction::Finished && is_meant(&job.job));
    let finished: Vec<OsString> = finished.map(|job| OsString::from(&job.job)).collect();
    for saved in site.saved(args.scratch.as_deref()) {
        let began = Instant::now();
        if is_meant(&saved.job.to_string_lossy())
            && let Err(outcome) = site.restore(&saved)
        {
            report.add(site.path(), &saved.job, &JobEnd::of_kept(outcome, began.elapsed()), "");
        }
    }
    let found = site.show()?.into_iter().filter(|left| is_meant(&left.job));
    let (waiting, others): (Vec<_>, Vec<_>) = found.partition(|left| left.is_whole);
    let waiting: Vec<OsString> = waiting.into_iter().map(|left| left.job.into()).collect();
    if waiting.is_empty() && finished.is_empty() && report.is_committed() {
        let saved = site.saved_by_other_versions(args.scratch.as_deref());
        bail!(
            "{}: no job is kept there that can go on (`elbow recover --show` lists what is there){}{}",
            args.path.shown(),
            why_not(&others),
            of_other_versions(&saved)
        );
    }
    for job in &finished {
        report.add_resumed(site.path(), job, Duration::ZERO);
    }
    for job in &waiting {
        let began = Instant::now();
        match site.resume(job, args.on_conflict) {
            Ok(Outcome::Committed) => {
                forget_kept(&job.to_string_lossy());
                report.add_resumed(site.path(), job, began.elapsed());
            }
            outcome => report.add(site.path(), job, &JobEnd::of_kept(outcome, began.elapsed()), ""),
        }
    }
    report.retell(|text| site.told(text));
    if !report.is_committed() {
        report.exit_code = exit::ELBOW_FAILED;
    }
    Ok(report)
}

/// What keeps others from going on: the part that was saved elsewhere is not found, or they are somebody else's.
fn why_not(others: &[UnfinishedJob]) -> String {
    let reason = |left: &UnfinishedJob| {
        let state = match left.state {
            JobState::Kept => "is kept",
            JobState::NotOurs => "is left alone",
            _ => return None,
        };
        // A disk that is full has no room for the reason.
        let why = left.why.as_deref().unwrap_or("not all that it made is found");
        Some(format!("; {} {state}: {why}", left.job))
    };
    others.iter().filter_map(reason).take(SHOWN).collect()
}

fn of_other_versions(saved: &[PathBuf]) -> String {
    if saved.is_empty() {
        return String::new();
    }
    format!(
        "; what another version of elbow has saved in {} does not say where it belongs: that version can go on with it",
        few(saved.iter().map(|path| path.shown().to_string()), SHOWN)
    )
}

/// The directory, and the job if one is named.
fn found(path: &Path, by: &ViaArgs) -> anyhow::Result<(Site, Option<OsString>)> {
    if !path.file_name().is_some_and(elbow_job::is_staging_name) {
        return Ok((Site::open_one(path, by)?, None));
    }
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let site = Site::open_one(above.unwrap_or(Path::new(".")), by)?;
    let only = site.name_of(path, "changed")?;
    Ok((site, Some(only)))
}
