//! `elbow sort` for lines of text: the options and messages of sort(1).
//!
//! ```text
//!   watch    progress, the report        dry_run  what it would need
//! ```

mod dry_run;
mod watch;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use elbow_extmem::text::{
    CountForm, Disorder, Fields, Input, KeyOptions, KeySpec, OrderOptions, OutputForm, ROW_END, SortOptions, TextError,
    TextOrder, TextSort,
};

use dry_run::dry_run;
use serde_json::json;
use watch::SortMonitor;

use super::args::{SortArgs, TextArgs};
use super::failure::{UnknownWord, code, failure};
use super::table::Table;
use super::unfinished::refuse_any_unfinished;
use super::{files, memory};
use crate::json::SCHEMA;
use crate::output::{raw, sentence};
use crate::{allocator, exit};

/// How `-c` ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Check {
    Loud,
    Quiet,
}

/// Sorts, merges or checks text.
pub(super) fn run(args: &SortArgs) -> Result<ExitCode> {
    allocator::return_large_pieces();
    match sort_as_asked(args) {
        Err(error) if args.report.json && !files::nobody_reads(&error) => {
            let code = code(&error);
            raw(failure(&sentence(&error), None, code));
            Ok(ExitCode::from(code))
        }
        ended => ended,
    }
}

fn sort_as_asked(args: &SortArgs) -> Result<ExitCode> {
    let (names_of_tables, table) = tables(args)?.unzip();
    let order = TextOrder::new(&order_options(&args.text, table.as_ref())?)?;
    let options = options(args, table.as_ref())?;
    let check_how = check_how(&args.text)?;
    let names = names_of_tables.map_or_else(|| names(args), Ok)?;
    let output = output_path(args)?;
    if args.report.dry_run {
        return dry_run(args, &options, &names);
    }
    let sort = TextSort::new(order, options);
    refuse_any_unfinished(&names, output)?;
    if let Some(how) = check_how {
        return check(args, &sort, how, (&names, table));
    }
    files::check_readable(&names)?;
    let file = output.map(|path| files::open_output(path)).transpose()?;
    let inputs = inputs(&names, table, file.as_ref());
    let named = output;
    let output = files::output(output.map(PathBuf::as_path).zip(file))?;
    let watch = SortMonitor::new(args, &names);
    let (file, summary) = watch.over(sort.meter(), || match args.text.merge {
        true => sort.merge(inputs, output),
        false => sort.sort(inputs, output),
    })?;
    files::close_at_end(file, named)?;
    watch.report(sort.meter(), &summary);
    Ok(ExitCode::SUCCESS)
}

/// Tables have to be looked at before it is known what is asked for: their names, and the header.
fn tables(args: &SortArgs) -> Result<Option<(Vec<OsString>, Table)>> {
    if !args.text.csv {
        return Ok(None);
    }
    let names = names(args)?;
    files::check_readable(&names)?;
    let table = Table::open(&names, separator(&args.text.field_separator)?)?;
    Ok(Some((names, table)))
}

fn inputs(names: &[OsString], table: Option<Table>, output: Option<&File>) -> Vec<Input> {
    match table {
        Some(table) => table.inputs(names, output),
        None => names.iter().map(|name| files::input(name, output)).collect(),
    }
}

fn order_options(args: &TextArgs, table: Option<&Table>) -> Result<OrderOptions> {
    let keys = match table {
        Some(table) => table.keys(&args.key)?,
        None => args
            .key
            .iter()
            .map(|key| KeySpec::parse(key))
            .collect::<Result<_, _>>()?,
    };
    let fields = match (table, separator(&args.field_separator)?) {
        (Some(table), _) => Fields::Csv(table.header().separator()),
        (None, Some(separator)) => Fields::Separated(separator),
        (None, None) => Fields::Blanks,
    };
    Ok(OrderOptions {
        options: KeyOptions::parse(&letters(args)?)?,
        keys,
        fields,
        stable: args.stable,
        unique: args.unique,
        count: args.count,
    })
}

/// Ordering options of the command line, as letters.
fn letters(args: &TextArgs) -> Result<String> {
    if args.random_sort {
        return Err(TextError::RandomOrder.into());
    }
    let flags = [
        (args.ignore_leading_blanks, 'b'),
        (args.dictionary_order, 'd'),
        (args.ignore_case, 'f'),
        (args.general_numeric_sort, 'g'),
        (args.human_numeric_sort, 'h'),
        (args.ignore_nonprinting, 'i'),
        (args.month_sort, 'M'),
        (args.numeric_sort, 'n'),
        (args.reverse, 'r'),
        (args.version_sort, 'V'),
    ];
    let mut letters: String = flags
        .iter()
        .filter(|(is_set, _)| *is_set)
        .map(|(_, letter)| *letter)
        .collect();
    for word in &args.sort {
        letters.push(match word.as_str() {
            "general-numeric" => 'g',
            "human-numeric" => 'h',
            "month" => 'M',
            "numeric" => 'n',
            "version" => 'V',
            "random" => return Err(TextError::RandomOrder.into()),
            _ => {
                let (word, option) = (word.clone(), "--sort");
                let valid = "general-numeric, human-numeric, month, numeric, version";
                return Err(UnknownWord { word, option, valid }.into());
            }
        });
    }
    Ok(letters)
}

fn separator(given: &[OsString]) -> Result<Option<u8>> {
    let mut separator = None;
    for text in given {
        let byte = match text.as_bytes() {
            [] => bail!("empty tab"),
            [byte] => *byte,
            b"\\0" => 0,
            _ => bail!("multi-character tab '{}'", text.to_string_lossy()),
        };
        if separator.is_some_and(|earlier| earlier != byte) {
            bail!("incompatible tabs");
        }
        separator = Some(byte);
    }
    Ok(separator)
}

fn options(args: &SortArgs, table: Option<&Table>) -> Result<SortOptions> {
    let text = &args.text;
    if text
        .compress_program
        .iter()
        .any(|program| *program != text.compress_program[0])
    {
        bail!("multiple compress programs specified");
    }
    let mut directories = args.temporary_directory.clone();
    if directories.is_empty() {
        directories.push(std::env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from));
    }
    let (bytes, threads) = (
        memory::bytes(&args.buffer_size)?,
        memory::threads(args.parallel.as_deref())?,
    );
    let (memory_bytes, threads) = memory::within_limits(bytes, threads)?;
    Ok(SortOptions {
        terminator: match table {
            Some(_) => ROW_END,
            None if text.zero_terminated => 0,
            None => b'\n',
        },
        form: form(text.count, table),
        memory_bytes,
        threads,
        fan_in: text.batch_size.as_deref().map(memory::batch_size).transpose()?,
        directories,
        cached_bytes: memory::cached_bytes(),
        compress_program: text.compress_program.first().cloned(),
    })
}

/// What stands beside the lines.
fn form(is_counted: bool, table: Option<&Table>) -> OutputForm {
    let Some(header) = table.map(Table::header) else {
        return OutputForm {
            count: is_counted.then_some(CountForm::Padded),
            ..OutputForm::default()
        };
    };
    let count = is_counted.then_some(CountForm::Field(header.separator()));
    OutputForm {
        header: if is_counted {
            header.counted_line()
        } else {
            header.line()
        },
        terminator: Some(b'\n'),
        count,
    }
}

fn check_how(args: &TextArgs) -> Result<Option<Check>> {
    let long = match args.check.as_deref() {
        None => None,
        Some("diagnose-first") => Some(Check::Loud),
        Some("quiet" | "silent") => Some(Check::Quiet),
        Some(word) => {
            let (word, option) = (word.to_owned(), "--check");
            let valid = "quiet, silent, diagnose-first";
            return Err(UnknownWord { word, option, valid }.into());
        }
    };
    let is_loud = args.check_loud || long == Some(Check::Loud);
    let is_quiet = args.check_quiet || long == Some(Check::Quiet);
    match (is_loud, is_quiet) {
        (true, true) => Err(TextError::Incompatible("cC".into()).into()),
        (true, false) => Ok(Some(Check::Loud)),
        (false, true) => Ok(Some(Check::Quiet)),
        (false, false) => Ok(None),
    }
}

fn names(args: &SortArgs) -> Result<Vec<OsString>> {
    match (&args.text.files0_from, args.files.first()) {
        (Some(_), Some(name)) => {
            let name = name.to_string_lossy();
            bail!("extra operand '{name}': file operands cannot be combined with --files0-from")
        }
        (Some(list), None) => files::names_from(list),
        (None, Some(_)) => Ok(args.files.clone()),
        (None, None) => Ok(vec!["-".into()]),
    }
}

fn output_path(args: &SortArgs) -> Result<Option<&PathBuf>> {
    if args.output.iter().any(|path| *path != args.output[0]) {
        bail!("multiple output files specified");
    }
    Ok(args.output.first())
}

/// `-c` and `-C`.
fn check(
    args: &SortArgs,
    sort: &TextSort,
    how: Check,
    (names, table): (&[OsString], Option<Table>),
) -> Result<ExitCode> {
    let letter = if how == Check::Loud { 'c' } else { 'C' };
    if let Some(extra) = names.get(1) {
        bail!("extra operand '{}' not allowed with -{letter}", extra.to_string_lossy());
    }
    if !args.output.is_empty() {
        return Err(TextError::Incompatible(format!("{letter}o")).into());
    }
    if args.text.count {
        return Err(TextError::Incompatible(format!("{letter} --count")).into());
    }
    let name = &names[0];
    // The header is a row, too.
    let first_row = u64::from(table.is_some());
    let inputs = inputs(&names[..1], table, None);
    let disorder = inputs
        .into_iter()
        .next()
        .map(|input| sort.check(input))
        .transpose()?
        .flatten();
    let disorder = disorder.map(|found| Disorder {
        line_number: found.line_number + first_row,
        ..found
    });
    if args.report.json {
        let line_number = disorder.as_ref().map(|disorder| disorder.line_number);
        let outcome = if line_number.is_some() { "disorder" } else { "in order" };
        raw(json!({ "schema": SCHEMA, "outcome": outcome, "line_number": line_number }));
    }
    let Some(disorder) = disorder else {
        return Ok(ExitCode::SUCCESS);
    };
    if how == Check::Loud && !args.report.json {
        let Disorder { line_number, line } = disorder;
        let mut message = format!("elbow: {}:{line_number}: disorder: ", name.to_string_lossy()).into_bytes();
        message.extend_from_slice(&line);
        message.push(if args.text.zero_terminated { 0 } else { b'\n' });
        // There is nowhere else to say it, and the exit code says it too.
        let _ = io::stderr().lock().write_all(&message);
    }
    Ok(ExitCode::from(exit::DISORDER))
}
