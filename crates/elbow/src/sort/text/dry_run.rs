//! What a sort of text would need, said without sorting.

#![allow(
    clippy::disallowed_methods,
    reason = "files named on the command line are looked at before they are sorted"
)]

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use elbow_extmem::text::SortOptions;
use serde_json::json;

use crate::json::SCHEMA;
use crate::output::{print_message, raw};
use crate::size;
use crate::sort::args::SortArgs;

/// What is read of each file, of so many files at most, to see how long lines are.
const SAMPLE_BYTES: u64 = 64 << 10;
const SAMPLES_MAX: usize = 16;

/// Says what a sort would need.
pub(super) fn dry_run(args: &SortArgs, options: &SortOptions, names: &[OsString]) -> Result<ExitCode> {
    let text = &args.text;
    ensure!(
        !text.merge && !text.check_loud && !text.check_quiet && text.check.is_none(),
        "--dry-run tells about a sort; it cannot be combined with -m, -c or -C"
    );
    let mut bytes = 0;
    for name in names {
        bytes += size_of(Path::new(name))?;
    }
    let line_bytes = line_bytes(names, options.terminator)?;
    let need = options.need(bytes, line_bytes);
    if args.report.json {
        raw(json!({
            "schema": SCHEMA, "bytes": bytes, "line_bytes": line_bytes, "memory_bytes": options.memory_bytes, "runs": need.runs,
            "merges": need.merges, "temporary_bytes": need.temporary_bytes, "in_place": false,
            "read_bytes": need.read_bytes, "written_bytes": need.written_bytes,
        }));
        return Ok(ExitCode::SUCCESS);
    }
    let passes = match (need.runs, need.merges) {
        (0, _) => "all in memory".to_owned(),
        (runs, 0) => format!("{runs} runs, merged at once"),
        (runs, 1) => format!("{runs} runs, one merge before the last"),
        (runs, merges) => format!("{runs} runs, {merges} merges before the last"),
    };
    print_message(format_args!(
        "{} in lines of about {line_bytes} bytes: {passes}, {} of memory",
        size::show(bytes),
        size::show(options.memory_bytes as u64)
    ));
    print_message(format_args!(
        "disk space needed for runs, which shrink as the output grows: {}; read {}, written {}",
        size::show(need.temporary_bytes),
        size::show(need.read_bytes),
        size::show(need.written_bytes)
    ));
    Ok(ExitCode::SUCCESS)
}

fn size_of(path: &Path) -> Result<u64> {
    ensure!(path != "-", "the size of standard input is not known before it is read");
    let shown = path.display();
    let found = path.metadata().with_context(|| format!("{shown}"))?;
    ensure!(found.is_file(), "{shown}: only the size of a regular file is known");
    Ok(found.len())
}

/// The mean length of the first lines.
fn line_bytes(names: &[OsString], terminator: u8) -> Result<u64> {
    let mut sample = Vec::new();
    for name in names.iter().take(SAMPLES_MAX) {
        let file = File::open(name).with_context(|| name.to_string_lossy().into_owned())?;
        let read = file.take(SAMPLE_BYTES).read_to_end(&mut sample);
        read.with_context(|| name.to_string_lossy().into_owned())?;
    }
    let lines = sample.iter().filter(|byte| **byte == terminator).count();
    Ok((sample.len() as u64).div_ceil(lines.max(1) as u64).max(1))
}
