//! `ELBOW_LOG`: a log of what Elbowroom does, for who looks for a fault. Nothing is written unless it is asked for.
//!
//! ```text
//!   ELBOW_LOG=info                               phases of jobs and sorts, sessions of the lock service
//!   ELBOW_LOG=debug                              also each request of the kernel, each action, each lock
//!   ELBOW_LOG=elbow_job=trace,elbow_mount=off    a level for each part, as in RUST_LOG
//!   ELBOW_LOG_FILE=FILE                          appended to this file, not to standard error
//! ```
//!
//! The file is opened before anything is mounted, so that no line of the log becomes a request to a mount that is
//! being logged. A line that cannot be written is left out: a full disk of logs ends no job.
//!
//! Not here: what is said to people, log or none ([`crate::output`]).

#![allow(clippy::disallowed_methods)] // the file of the log, not the storage of a job

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, bail};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::{self, writer::BoxMakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// What is to be logged.
const DIRECTIVES: &str = "ELBOW_LOG";
/// Where the log goes.
const FILE: &str = "ELBOW_LOG_FILE";
/// The parts that a level can be given to; what begins with such a name belongs to it.
const PARTS: [&str; 6] = [
    "elbow",
    "elbow_extmem",
    "elbow_job",
    "elbow_lock",
    "elbow_mount",
    "elbow_remote",
];

/// Begins the log that the environment asks for, if it does.
///
/// # Errors
/// Directives that say nothing, a file that cannot be opened.
pub(crate) fn start() -> anyhow::Result<()> {
    let Some(directives) = std::env::var_os(DIRECTIVES).filter(|directives| !directives.is_empty()) else {
        return Ok(());
    };
    let targets = targets(&directives)?;
    let lines = fmt::layer()
        .with_ansi(false)
        .with_writer(writer(std::env::var_os(FILE))?)
        // It would panic where standard error is closed.
        .log_internal_errors(false);
    tracing_subscriber::registry().with(targets).with(lines).try_init()?;
    Ok(())
}

/// Where lines go, each with one call.
fn writer(file: Option<OsString>) -> anyhow::Result<BoxMakeWriter> {
    let Some(path) = file.filter(|path| !path.is_empty()) else {
        return Ok(BoxMakeWriter::new(std::io::stderr));
    };
    let file = File::options().append(true).create(true).open(&path);
    let file = file.with_context(|| format!("{FILE}: cannot open {}", path.display()))?;
    Ok(BoxMakeWriter::new(Arc::new(file)))
}

/// What the directives let through; nothing else.
fn targets(directives: &OsStr) -> anyhow::Result<Targets> {
    let directives = directives
        .to_str()
        .with_context(|| format!("{DIRECTIVES}: not UTF-8"))?;
    let mut each = directives.split(',').map(str::trim).filter(|word| !word.is_empty());
    each.try_fold(Targets::new(), with)
}

/// A level for all, `PART=LEVEL`, or a part, of which then everything is told.
fn with(targets: Targets, directive: &str) -> anyhow::Result<Targets> {
    match directive.split_once('=') {
        Some((part, level)) => Ok(targets.with_target(known(part)?, self::level(level)?)),
        None if known(directive).is_ok() => Ok(targets.with_target(directive, LevelFilter::TRACE)),
        None => Ok(targets.with_default(level(directive)?)),
    }
}

fn level(word: &str) -> anyhow::Result<LevelFilter> {
    LevelFilter::from_str(word)
        .ok()
        .with_context(|| format!("{DIRECTIVES}: no level: {word:?}; there are off, error, warn, info, debug and trace"))
}

fn known(part: &str) -> anyhow::Result<&str> {
    let name = part.split("::").next().unwrap_or_default();
    if !PARTS.contains(&name) {
        bail!(
            "{DIRECTIVES}: no part of elbow: {part:?}; there are {}",
            PARTS.join(", ")
        );
    }
    Ok(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(directives: &str) -> anyhow::Result<Targets> {
        targets(OsStr::new(directives))
    }

    #[test]
    fn a_level_is_for_all_or_for_a_part() {
        let all = of("debug").expect("a level");
        assert!(all.would_enable("elbow_job::pool", &tracing::Level::DEBUG));
        assert!(!all.would_enable("elbow_job::pool", &tracing::Level::TRACE));
        let some = of("info, elbow_job=TRACE,elbow_mount=off").expect("levels");
        assert!(some.would_enable("elbow_job::pool", &tracing::Level::TRACE));
        assert!(!some.would_enable("elbow_mount::front", &tracing::Level::ERROR));
        assert!(some.would_enable("elbow_lock::server", &tracing::Level::INFO));
        let part = of("elbow_lock").expect("a part");
        assert!(part.would_enable("elbow_lock::server", &tracing::Level::TRACE));
        assert!(!part.would_enable("elbow_job::pool", &tracing::Level::ERROR));
    }

    /// To RUST_LOG a misspelt level is a part that does not exist, and silence.
    #[test]
    fn what_says_nothing_is_refused_in_words() {
        for (directives, why) in [
            ("debgu", "no level: \"debgu\""),
            ("elbow_job=loud", "no level: \"loud\""),
            ("elbow_jop=debug", "no part of elbow: \"elbow_jop\""),
            ("info,=debug", "no part of elbow: \"\""),
        ] {
            let error = format!("{:#}", of(directives).expect_err(directives));
            assert!(error.starts_with("ELBOW_LOG: ") && error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_named() {
        let error = writer(Some("/nowhere/log".into())).expect_err("no such directory");
        assert!(format!("{error:#}").starts_with("ELBOW_LOG_FILE: cannot open /nowhere/log: "));
        assert!(writer(Some("".into())).is_ok(), "as if it were not set");
    }
}
