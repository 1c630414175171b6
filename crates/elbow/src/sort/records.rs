//! `elbow sort` for records: into another file, or in place and resumable.
//!
//! ```text
//!   inputs   files and pipes, one after the other      watch    progress, signals, the report
//!   output   a draft that is renamed, or a stream      dry_run  what it would need
//! ```

#![allow(
    clippy::disallowed_methods,
    reason = "files named on the command line are looked at before they are sorted"
)]

mod dry_run;
mod inputs;
mod output;
mod watch;

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use elbow_extmem::sort::{self, Key, Options, Output, RecordFormat, SortError};
use elbow_file::{Errno, RealStorage};

use super::args::SortArgs;
use super::failure::failure;
use super::memory;
use super::unfinished::{refuse_any_unfinished, target};
use crate::job::quoted;
use crate::output::{raw, sentence};
use crate::{allocator, exit};
use dry_run::dry_run;
use inputs::Inputs;
use output::Destination;
use watch::{SortMonitor, Watched};

/// Threads by themselves; more help little with one disk.
const THREADS_MAX: usize = 8;

/// Sorts records as asked.
pub(super) fn run(args: &SortArgs) -> Result<ExitCode> {
    allocator::return_large_pieces();
    match sort_as_asked(args) {
        Err(error) if args.report.json => {
            raw(failure(&sentence(&error), None, exit::SORT_TROUBLE));
            Ok(ExitCode::from(exit::SORT_TROUBLE))
        }
        ended => ended,
    }
}

fn sort_as_asked(args: &SortArgs) -> Result<ExitCode> {
    refuse_what_is_for_text(args)?;
    let (memory_bytes, threads) = memory::within_limits(memory::bytes(&args.buffer_size)?, threads(args)?)?;
    let options = Options {
        memory_bytes,
        threads,
        stable: args.text.stable,
    };
    if args.records.resume {
        return in_place(args, one_file(args)?, &options, None);
    }
    let format = format(args)?;
    if args.records.in_place {
        one_file(args)?;
    }
    if args.report.dry_run {
        dry_run(args, &format, &options)
    } else if args.records.in_place {
        in_place(args, one_file(args)?, &options, Some(&format))
    } else {
        copying(args, &format, &options)
    }
}

fn refuse_what_is_for_text(args: &SortArgs) -> Result<()> {
    let text = &args.text;
    let given = [
        (text.check_loud || text.check_quiet || text.check.is_some(), "-c"),
        (text.merge, "-m"),
        (text.unique, "-u"),
        (text.count, "--count"),
        (text.csv, "--csv"),
        (text.numeric_sort, "-n"),
        (text.general_numeric_sort, "-g"),
        (text.human_numeric_sort, "-h"),
        (text.month_sort, "-M"),
        (text.version_sort, "-V"),
        (text.dictionary_order, "-d"),
        (text.ignore_case, "-f"),
        (text.ignore_leading_blanks, "-b"),
        (text.ignore_nonprinting, "-i"),
        (text.zero_terminated, "-z"),
        (text.reverse, "-r (write :desc behind a key)"),
        (!text.field_separator.is_empty(), "-t"),
        (text.random_sort, "-R"),
        (!text.sort.is_empty(), "--sort"),
        (text.batch_size.is_some(), "--batch-size"),
        (text.files0_from.is_some(), "--files0-from"),
        (!text.compress_program.is_empty(), "--compress-program"),
    ];
    match given.iter().find(|(is_given, _)| *is_given) {
        Some((_, option)) => bail!("{option} is for lines of text, not for records"),
        None => Ok(()),
    }
}

fn threads(args: &SortArgs) -> Result<usize> {
    match &args.parallel {
        None => Ok(std::thread::available_parallelism()
            .map_or(1, |n| n.get())
            .min(THREADS_MAX)),
        Some(text) => match text.parse() {
            Ok(threads) if threads > 0 => Ok(threads),
            _ => bail!("invalid --parallel argument '{text}'"),
        },
    }
}

fn format(args: &SortArgs) -> Result<RecordFormat> {
    if args.records.gensort {
        ensure!(
            args.text.key.is_empty(),
            "--gensort says what the key is; leave --key out, or write --record 100"
        );
        return Ok(RecordFormat::gensort());
    }
    let bytes = args.records.record;
    let bytes =
        bytes.context("--in-place needs to know the records: --record BYTES --key OFFSET:WIDTH:TYPE, or --gensort")?;
    let keys: Vec<Key> = args
        .text
        .key
        .iter()
        .map(|key| key.parse().map_err(anyhow::Error::msg))
        .collect::<Result<_>>()?;
    RecordFormat::new(bytes, keys).map_err(anyhow::Error::msg)
}

fn one_file(args: &SortArgs) -> Result<&OsStr> {
    ensure!(
        args.output.is_empty(),
        "-o cannot be used with a sort in place: the file itself is sorted"
    );
    match args.files.as_slice() {
        [name] if name == "-" => bail!("standard input cannot be sorted in place; name a file"),
        [name] => Ok(name),
        [] => bail!("which file? A sort in place needs one"),
        _ => bail!("a sort in place takes one file, not {}", args.files.len()),
    }
}

/// Sorts a file in place, or goes on with that where no format is given.
fn in_place(args: &SortArgs, name: &OsStr, options: &Options, format: Option<&RecordFormat>) -> Result<ExitCode> {
    let target = target(name)?;
    let watch = SortMonitor::new(
        args,
        &target.path.display().to_string(),
        None,
        Watched::InPlace(&target),
    );
    let ended = watch.over(|meter| match format {
        Some(format) => sort::sort_in_place(&RealStorage, &target, format, options, meter),
        None => sort::resume(&RealStorage, &target, options, meter),
    });
    match ended {
        Ok(summary) => watch.report(&summary),
        Err(error) => {
            let begun = sort::is_unfinished(&RealStorage, &target).unwrap_or(false);
            let hint = if begun { resume_hint(&error, name) } else { None };
            watch.fail(&error, hint)
        }
    }
}

/// What goes on, to be typed as it is.
fn resume_command(name: &OsStr) -> String {
    let end_of_options = if name.as_encoded_bytes().starts_with(b"-") {
        "-- "
    } else {
        ""
    };
    format!("elbow sort --resume {end_of_options}{}", quoted(Path::new(name)))
}

fn resume_hint(error: &SortError, name: &OsStr) -> Option<String> {
    let command = resume_command(name);
    match error {
        SortError::Storage {
            errno: Errno::NOSPC | Errno::DQUOT,
            ..
        } => Some(format!("nothing is lost; make room, and continue with: {command}")),
        error if error.is_resumable() => Some(format!("nothing is lost; continue with: {command}")),
        _ => None,
    }
}

/// Sorts one or more inputs into a file or to standard output.
fn copying(args: &SortArgs, format: &RecordFormat, options: &Options) -> Result<ExitCode> {
    refuse_any_unfinished(&args.files, args.output.last())?;
    let mut input = Inputs::new(args, format)?;
    let dir_path = args.temporary_directory.first().cloned();
    let dir_path = dir_path.unwrap_or_else(default_temporary_directory);
    let temporary = RealStorage::open_root(&dir_path).with_context(|| format!("opening {}", dir_path.display()))?;
    let name = input.name.clone();
    let mut destination = Destination::new(args.output.last())?;
    let draft = destination.draft().cloned();
    let watch = SortMonitor::new(
        args,
        &name.display().to_string(),
        input.bytes,
        Watched::Copying(draft.clone()),
    );
    let output = match (&mut destination, args.output.last()) {
        (Destination::File(draft), Some(path)) => Output::File(draft.file.clone(), path.clone()),
        (Destination::File(draft), None) => Output::File(draft.file.clone(), PathBuf::new()),
        (Destination::Stream(file), _) => Output::Stream(file),
    };
    let (input, temporary) = ((&mut input as &mut (dyn Read + Send), name), (temporary, dir_path));
    let sorted = watch.over(|meter| sort::sort(&RealStorage, input, output, temporary, format, options, meter));
    match sorted {
        Ok(summary) => {
            draft.map_or(Ok(()), |draft| draft.publish())?;
            watch.report(&summary)
        }
        Err(error) if nobody_reads(&error) => Ok(ExitCode::from(exit::PIPE_CLOSED)),
        Err(error) => watch.fail(&error, None),
    }
}

/// As a program that SIGPIPE has ended: `elbow sort ... | head`.
fn nobody_reads(error: &SortError) -> bool {
    matches!(error, SortError::Storage { errno: Errno::PIPE, .. })
}

fn default_temporary_directory() -> PathBuf {
    std::env::var_os("TMPDIR").map_or_else(|| "/var/tmp".into(), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hint could not be typed: a blank parted the name, and a dash made it an option.
    #[test]
    fn what_goes_on_can_be_typed_as_it_is() {
        for (name, command) in [
            ("data", "elbow sort --resume data"),
            ("a b", "elbow sort --resume 'a b'"),
            ("-data", "elbow sort --resume -- -data"),
            ("a\nb'c", "elbow sort --resume $'a\\nb\\'c'"),
        ] {
            assert_eq!(resume_command(OsStr::new(name)), command);
        }
    }
}
