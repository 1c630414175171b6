//! `elbow diff [PATH]`: what a commit would change.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use elbow_file::ShowName;
use elbow_job::ChangeKind;
use serde::Serialize;

use crate::cli::DiffArgs;
use crate::control::{self, Change, Reply, Request};
use crate::json;
use crate::names::MountPointName;
use crate::output::{answer, answer_text};
use crate::report::utc;

pub(crate) const EXAMPLES: &str = "\
Examples:
  Look before it is stored:
      elbow diff ~/job

  The new files, for a program:
      elbow diff ~/job --json |
          jq -r '.changes[] | select(.kind == \"created\").path'

  Of any names, for a shell:
      elbow diff ~/job -0 |
          while IFS= read -rd '' letter && IFS= read -rd '' path; do
              [ \"$letter\" != A ] || printf '%s\\n' \"$path\"
          done

Letters:
      A  is new                  M  was written
      D  is gone                 m  has other attributes
      R  was renamed

Lines are in the order of paths. A blank, a backslash and what cannot be shown in a name have a backslash before them, or stand as octal \
numbers (as with ls -b). A renamed object has two names with ` -> ` between them; the last letter says nothing of its content: \
that has a line of its own.";

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
        let mount_point = job.status()?.mount_point;
        answer(json::line(&Changes { mount_point, changes })?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.null {
        return records(&changes);
    }
    for change in &changes {
        answer(line(change, args.long))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// As git(1) has them with -z.
fn records(changes: &[Change]) -> anyhow::Result<ExitCode> {
    let mut bytes = Vec::new();
    for change in changes {
        let names = [change.from.path(), change.path.path()];
        bytes.extend([letter(change.kind), b'\0']);
        for name in names.into_iter().flatten() {
            bytes.extend([name.as_os_str().as_bytes(), b"\0"].concat());
        }
    }
    answer_text(&bytes)?;
    Ok(ExitCode::SUCCESS)
}

/// What happened, as git and rsync say it.
fn letter(kind: ChangeKind) -> u8 {
    match kind {
        ChangeKind::Created => b'A',
        ChangeKind::Removed => b'D',
        ChangeKind::Renamed => b'R',
        ChangeKind::Written => b'M',
        ChangeKind::Attributes => b'm',
    }
}

fn line(change: &Change, long: bool) -> String {
    let letter = char::from(letter(change.kind));
    let shown = |path: PathBuf| {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            &path
        };
        path.shown().as_word().to_string()
    };
    let names = [change.from.path(), change.path.path()]
        .into_iter()
        .flatten()
        .map(shown);
    let names = names.collect::<Vec<_>>().join(" -> ");
    if !long {
        return format!("{letter} {names}");
    }
    let size = change
        .size_bytes
        .map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
    let time = change.mtime_unix_seconds.map_or_else(|| "-".to_owned(), utc);
    format!("{letter} {size:>12} {time:>20} {names}")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use crate::names::{FromName, PathName};

    #[test]
    fn changes_are_one_line_each() {
        let of = |kind, path: &[u8], from: Option<&str>, long: bool| {
            let change = elbow_job::Change {
                kind,
                path: OsStr::from_bytes(path).into(),
                from: from.map(Into::into),
            };
            let known = Change {
                kind: change.kind,
                path: PathName::of(&change.path),
                from: change.from.map(FromName::of).unwrap_or_default(),
                size_bytes: Some(5),
                mtime_unix_seconds: Some(0.5),
            };
            line(&known, long)
        };
        assert_eq!(of(ChangeKind::Created, b"a/b", None, false), "A a/b");
        assert_eq!(of(ChangeKind::Renamed, b"new", Some("old"), false), "R old -> new");
        assert_eq!(
            of(ChangeKind::Written, b"", None, true),
            "M            5 1970-01-01T00:00:00Z ."
        );
        let odd = [b"a b\\\n\x1b[2J\xff".as_slice(), "\u{e9}\u{9b}".as_bytes()].concat();
        assert_eq!(
            of(ChangeKind::Created, &odd, None, false),
            "A a\\ b\\\\\\n\\033[2J\\377\u{e9}\\302\\233"
        );
    }
}
