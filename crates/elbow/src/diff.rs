//! `elbow diff [PATH]`: what a commit would change.

use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;
use elbow_job::ChangeKind;
use serde::Serialize;

use crate::cli::DiffArgs;
use crate::control::{self, Change, Reply, Request};
use crate::json;
use crate::names::MountPointName;
use crate::say::answer;

pub(crate) const EXAMPLES: &str = "\
Examples:
  Look before it is stored:
      elbow diff ~/job

  The new files, for a program:
      elbow diff ~/job --json |
          jq -r '.changes[] | select(.kind == \"created\").path'

Letters:
      A  is new                  M  was written
      D  is gone                 m  has other attributes
      R  was renamed";

/// Prints one line per changed name, or one object with all of them.
pub(crate) fn run(args: &DiffArgs) -> anyhow::Result<ExitCode> {
    json::answered(args.json, args.path.as_deref().unwrap_or(Path::new(".")), tell(args))
}

#[derive(Serialize)]
struct Changes {
    #[serde(flatten)]
    mount_point: MountPointName,
    changes: Vec<Change>,
}

fn tell(args: &DiffArgs) -> anyhow::Result<ExitCode> {
    let job = control::find(args.path.as_deref())?;
    let Reply::Changes { changes } = job.ask(Request::Diff, &mut |_| {})? else {
        bail!("the process of {} gave another answer", job.shown());
    };
    if args.json {
        let mount_point = MountPointName::of(job.path());
        answer(json::line(&Changes { mount_point, changes })?)?;
        return Ok(ExitCode::SUCCESS);
    }
    for change in &changes {
        answer(line(change))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A letter for what happened (as git and rsync have them), and the names.
fn line(change: &Change) -> String {
    let letter = match change.kind {
        ChangeKind::Created => "A",
        ChangeKind::Removed => "D",
        ChangeKind::Renamed => "R",
        ChangeKind::Written => "M",
        ChangeKind::Attributes => "m",
    };
    let path = change.path.path().unwrap_or_default();
    let path = path.display();
    match change.from.path() {
        None => format!("{letter} {path}"),
        Some(from) => format!("{letter} {} -> {path}", from.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_one_line_each() {
        let of = |kind, path: &str, from: Option<&str>| {
            let change = elbow_job::Change {
                kind,
                path: path.into(),
                from: from.map(Into::into),
            };
            line(&Change::from(&change))
        };
        assert_eq!(of(ChangeKind::Created, "a/b", None), "A a/b");
        assert_eq!(of(ChangeKind::Renamed, "new", Some("old")), "R old -> new");
    }
}
