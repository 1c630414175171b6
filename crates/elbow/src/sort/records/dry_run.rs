//! What a sort would need, said without sorting.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use elbow_extmem::sort::{Memory, Options, RecordFormat, SortError};
use serde_json::json;

use crate::json::SCHEMA;
use crate::output::{print_message, raw};
use crate::size;
use crate::sort::args::SortArgs;

/// Says what a sort would need.
pub(super) fn dry_run(args: &SortArgs, format: &RecordFormat, options: &Options) -> Result<ExitCode> {
    let memory = Memory::divide(options.memory_bytes, format, options.threads).map_err(anyhow::Error::msg)?;
    let mut bytes = 0;
    ensure!(
        !args.files.is_empty() && args.files.iter().all(|name| name != "-"),
        "the size of standard input is not known before it is read"
    );
    for name in &args.files {
        bytes += size_of(Path::new(name), format)?;
    }
    let need = memory.need(bytes);
    let more = if args.records.in_place {
        need.headroom_bytes
    } else {
        bytes
    };
    let answer = json!({
        "schema": SCHEMA, "records": bytes / format.bytes() as u64, "bytes": bytes, "memory_bytes": options.memory_bytes,
        "runs": need.runs, "passes": need.passes, "temporary_bytes": more, "in_place": args.records.in_place,
        "read_bytes": bytes * (1 + need.passes), "written_bytes": bytes * (1 + need.passes),
    });
    if args.report.json {
        raw(answer);
        return Ok(ExitCode::SUCCESS);
    }
    print_message(format_args!(
        "{} records, {}: {} runs, {} of merging, {} of memory",
        bytes / format.bytes() as u64,
        size::show(bytes),
        need.runs,
        if need.passes == 1 {
            "one pass".to_owned()
        } else {
            format!("{} passes", need.passes)
        },
        size::show(options.memory_bytes as u64)
    ));
    let whereby = if args.records.in_place {
        "beside the file itself"
    } else {
        "for runs, beside input and output"
    };
    print_message(format_args!("disk space needed {whereby}: {}", size::show(more)));
    Ok(ExitCode::SUCCESS)
}

/// Refuses what a sort would.
fn size_of(path: &Path, format: &RecordFormat) -> Result<u64> {
    let found = path.metadata().with_context(|| format!("{}", path.display()))?;
    let (size, record) = (found.len(), format.bytes() as u64);
    ensure!(
        found.is_file(),
        "{}: only the size of a regular file is known",
        path.display()
    );
    if !size.is_multiple_of(record) {
        let path = path.to_owned();
        return Err(SortError::Truncated { path, size, record }.into());
    }
    Ok(size)
}
