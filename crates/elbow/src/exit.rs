//! Exit codes: the one place that knows them.
//!
//! | code | meaning |
//! |---|---|
//! | the command's | the job was committed (0), or the command failed and was rolled back |
//! | 125 | Elbowroom failed, or could not store the results of a command that had succeeded: they are kept, or rolled back |
//! | 126, 127 | the command cannot be run, was not found; as env(1) |
//! | 128 + n | the command was ended by signal n |
//!
//! `elbow doctor` has 1 where no job can be run. `elbow sort` has those of sort(1): 1 for a disorder that was asked about and for a word that `--sort` or `--check` does not know, 2 for other trouble, wrong usage included; and 141
//! when nobody reads what it writes, as a program that SIGPIPE has ended;
//! `elbow consume` has the last where the reader did not take or confirm all.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

use crate::output::{print_message, sentence};

/// Elbowroom itself failed, or the results of a command that had succeeded were not stored.
pub(crate) const ELBOW_FAILED: u8 = 125;
/// The command was found but cannot be run.
pub(crate) const CANNOT_RUN: u8 = 126;
/// The command was not found.
pub(crate) const NOT_FOUND: u8 = 127;

/// `elbow doctor` found that no job can be run.
pub(crate) const NO_JOB_HERE: u8 = 1;

/// `elbow sort` found lines that are not in order.
pub(crate) const DISORDER: u8 = 1;
/// `elbow sort` does not know the word that an option was given.
pub(crate) const UNKNOWN_WORD: u8 = 1;
/// `elbow sort` could not do what it was asked.
pub(crate) const SORT_TROUBLE: u8 = 2;
/// `elbow sort` was stopped by a signal, and can be resumed: as a program that SIGINT has ended.
pub(crate) const INTERRUPTED: u8 = 130;
/// Nobody reads the output: 128 and SIGPIPE.
pub(crate) const PIPE_CLOSED: u8 = 141;

/// Code of a command that ended.
pub(crate) fn of_status(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    // Both are below 256; anything else would be a kernel that we do not know.
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(ELBOW_FAILED)
}

/// Code of a command that could not be started.
pub(crate) fn of_exec_error(error: &io::Error) -> u8 {
    if error.kind() == io::ErrorKind::NotFound {
        NOT_FOUND
    } else {
        CANNOT_RUN
    }
}

/// Says why Elbowroom failed.
pub(crate) fn failed(error: &anyhow::Error) -> ExitCode {
    print_message(sentence(error));
    ExitCode::from(ELBOW_FAILED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_signals_become_what_a_shell_gives() {
        assert_eq!(of_status(ExitStatus::from_raw(0)), 0);
        assert_eq!(of_status(ExitStatus::from_raw(42 << 8)), 42);
        assert_eq!(of_status(ExitStatus::from_raw(libc::SIGINT)), 130);
        assert_eq!(of_status(ExitStatus::from_raw(libc::SIGKILL)), 137);
    }

    #[test]
    fn a_missing_command_and_a_useless_one_are_told_apart() {
        assert_eq!(of_exec_error(&io::Error::from_raw_os_error(libc::ENOENT)), NOT_FOUND);
        assert_eq!(of_exec_error(&io::Error::from_raw_os_error(libc::EACCES)), CANNOT_RUN);
        assert_eq!(of_exec_error(&io::Error::from_raw_os_error(libc::ENOEXEC)), CANNOT_RUN);
    }
}
