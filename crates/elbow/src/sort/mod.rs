//! `elbow sort`: text like sort(1), and records.
//!
//! ```text
//!   args    what can be asked for       text     options -> order and engine, messages of sort(1)
//!   record_args, records            fixed-size records, into another file or in place
//!   table   tables (--csv): their header, keys that are columns
//!   memory  sizes as -S has them        files    inputs and the output: files, pipes, terminals
//!   unfinished  files that a sort in place has begun
//! ```
//!
//! Exit codes are those of sort(1): 0; 1 where `-c` or `-C` found a disorder; 2 for trouble, and 1 again for a word that `--sort` or `--check` does not know.

mod args;
mod failure;
mod files;
mod memory;
mod record_args;
mod records;
mod table;
mod text;
mod unfinished;

use std::process::ExitCode;

pub(crate) use args::{EXAMPLES, SortArgs};
pub(crate) use unfinished::refuse_unfinished;

use crate::exit;
use crate::output::{answer, print_message, sentence};

/// What `--buffer-size` would not take is refused.
pub(crate) fn check_buffer_size(text: &str) -> anyhow::Result<()> {
    memory::bytes(&[text.to_owned()]).map(drop)
}

/// What `--parallel` would not take is refused.
pub(crate) fn check_parallel(text: &str) -> anyhow::Result<()> {
    memory::threads(Some(text)).map(drop)
}

/// As `elbow --version`: short for --version-sort, it would wait for lines.
fn version() -> anyhow::Result<ExitCode> {
    answer(concat!("elbow ", env!("CARGO_PKG_VERSION")))?;
    Ok(ExitCode::SUCCESS)
}

/// Sorts, merges or checks; says itself what went wrong.
pub(crate) fn run(args: &SortArgs) -> anyhow::Result<ExitCode> {
    let ended = if args.version {
        version()
    } else if args.records.are_meant() {
        records::run(args)
    } else {
        text::run(args)
    };
    Ok(ended.unwrap_or_else(|error| {
        if files::nobody_reads(&error) {
            return ExitCode::from(exit::PIPE_CLOSED);
        }
        print_message(sentence(&error));
        ExitCode::from(failure::code(&error))
    }))
}
