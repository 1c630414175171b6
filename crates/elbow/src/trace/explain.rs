//! `elbow explain FILE`: what the job of a trace has waited for.

#![allow(
    clippy::disallowed_methods,
    reason = "a file named on the command line, not the storage of a job"
)]

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;

use super::advice::advice;
use super::reader;
use super::summary::{Collector, Summary};
use super::words;
use crate::cli::ExplainArgs;
use crate::json;
use crate::output::answer;

pub(crate) const EXAMPLES: &str = "\
Examples:
  What did it wait for?
      elbow run --trace /tmp/make.trace -- make
      elbow explain /tmp/make.trace

  How long did the storage take to sync, for a program?
      elbow explain /tmp/make.trace --json |
          jq '.steps[] | select(.step == \"sync\").seconds'

For a time line, open the file at https://ui.perfetto.dev or in chrome://tracing.

The trace of a job that was killed, or is running still, is explained as far as it goes.";

/// Reads a trace and says what it comes to.
pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    json::answered(args.json, &*args.file, tell(args))
}

fn tell(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let summary = summary(&args.file).with_context(|| args.file.display().to_string())?;
    if args.json {
        answer(json::line(&summary)?)?;
    } else {
        words::lines(&summary).into_iter().try_for_each(answer)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn summary(path: &Path) -> anyhow::Result<Summary> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(std::io::Error::from(std::io::ErrorKind::IsADirectory))
            .context("name the file that `elbow run --trace FILE` has written");
    }
    let mut file = BufReader::new(file);
    let mut collector = Collector::default();
    let end = reader::read(&mut file, &mut |event| collector.take(event))?;
    let mut summary = collector.finish(end);
    summary.advice = advice(&summary);
    Ok(summary)
}
