//! `elbow diff MNT`: what a commit would change.

use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;
use serde_json::Value;

use crate::cli::DiffArgs;
use crate::control::{self, Reply, Request};
use crate::say::answer;

pub(crate) const EXAMPLES: &str = "\
Examples:
  Look before it is stored:
      elbow diff ~/job

  The new files, for a program:
      elbow diff ~/job --json | jq -r 'select(.kind == \"created\").path'

Letters:
      A  is new                  M  was written
      D  is gone                 m  has other attributes
      R  was renamed";

/// Prints one line per changed name.
pub(crate) fn run(args: &DiffArgs) -> anyhow::Result<ExitCode> {
    let Reply::Changes { changes } = control::ask(&args.mount_point, Request::Diff, &mut |_| {})? else {
        bail!(
            "the process that serves {} gave another answer",
            args.mount_point.display()
        );
    };
    for change in &changes {
        if args.json {
            answer(change)?;
        } else {
            answer(line(change))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A letter for what happened (as git and rsync have them), and the names.
fn line(change: &Value) -> String {
    let text = |key: &str| change.get(key).and_then(Value::as_str).unwrap_or_default();
    let letter = match text("kind") {
        "created" => "A",
        "removed" => "D",
        "renamed" => "R",
        "written" => "M",
        "attributes" => "m",
        _ => "?",
    };
    let path = Path::new(text("path")).display();
    match text("from") {
        "" => format!("{letter} {path}"),
        from => format!("{letter} {from} -> {path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_one_line_each() {
        let change = serde_json::json!({"kind": "created", "path": "a/b"});
        assert_eq!(line(&change), "A a/b");
        let change = serde_json::json!({"kind": "renamed", "path": "new", "from": "old"});
        assert_eq!(line(&change), "R old -> new");
    }
}
