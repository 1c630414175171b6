//! `elbow doctor`: what works on this machine and on the storage of a directory, found out by trying it.
//!
//! ```text
//!   machine    FUSE, namespaces, a whole job        programs   ssh, MPI, libraries to be loaded first
//!   storage    what the storage of DIR can do: each ability is tried in a directory that goes again
//!   bundle     all of it in one file, for the report of a fault        check    how a finding is told
//! ```
//!
//! Nothing is read from a table of what some kernel or file system should do: what is said was seen.

mod bundle;
mod check;
mod machine;
mod programs;
mod storage;

use std::process::ExitCode;

use elbow_file::ShowName;

use self::check::{Check, State};
use crate::cli::DoctorArgs;
use crate::exit;
use crate::job::Site;
use crate::output::{answer, sentence};
use crate::signals;

pub(crate) const EXAMPLES: &str = "\
Examples:
  What works here, and what is to be done about the rest?
      elbow doctor

  What is the storage of a project like, before a job is run on it?
      elbow doctor /project/alice

  The same over ssh, without its mount:
      elbow doctor --via ssh://login.example.org/project/alice .

  All that is not in order, for a program:
      elbow doctor --json | jq -r '.[] | select(.state != \"ok\").check'

  A file to send with the report of a fault; look through it before you do:
      elbow doctor --bundle doctor.json

Each ability of the storage is tried in a directory in DIR, which is removed again. `limited` works, with the limit that is told; `missing` does not.

Exit code:
  0 when a job can be run on DIR, whatever else is missing; 1 when none can; 125 when that could not be found out.";

/// Tries everything, and says it.
pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    // What is made is removed, also after Ctrl-C.
    signals::block();
    let mut checks = machine::checks();
    checks.extend(programs::checks());
    let can_run = on_storage(args, &mut checks);
    if signals::is_end_pending() {
        return Ok(ExitCode::from(exit::INTERRUPTED));
    }
    if args.json {
        answer(serde_json::to_string(&checks)?)?;
    } else {
        checks.iter().try_for_each(|check| answer(check.lines()))?;
    }
    if let Some(file) = &args.bundle {
        bundle::write(file, &checks, &args.directory)?;
    }
    Ok(if can_run {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(exit::NO_JOB_HERE)
    })
}

/// Tries what is to be tried in the directory; whether a job can be run there.
fn on_storage(args: &DoctorArgs, checks: &mut Vec<Check>) -> bool {
    let site = match Site::open_one(&args.directory, &args.by) {
        Ok(site) => site,
        Err(error) => {
            checks.push(Check::refused("directory", &sentence(&error)));
            return false;
        }
    };
    let trial = match storage::TrialDirectory::make(&site) {
        Ok(trial) => trial,
        Err(check) => {
            checks.push(check);
            return false;
        }
    };
    checks.push(Check::ok(
        "directory",
        format!("{} can be written", site.path().shown()),
    ));
    checks.extend(trial.checks());
    let job = machine::job(trial.path());
    let can_run = job.state == State::Ok;
    checks.push(job);
    can_run
}
