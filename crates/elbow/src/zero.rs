//! `elbow zero FILE`: frees what is dead.

use std::io::{self, BufRead};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use elbow_file::{Access, Errno, Handle, RealStorage, ShowName, Storage, Zeroed, zero_ranges};
use elbow_ranges::RangeSet;
use serde::Serialize;

use crate::exit;
use crate::holes_args::ZeroArgs;
use crate::json::{self, WordedError};
use crate::names::PathName;
use crate::output::{answer, print_message};
use crate::size;
use crate::size::SizeError;

/// The last offset that a file can have.
const OFFSET_MAX: u64 = i64::MAX as u64;
/// Ranges that are named when they could not be zeroed; JSON has all of them.
const NAMED_MAX: usize = 5;

/// Zeroes what was asked for; 125 when a part could not be.
pub(crate) fn run(args: &ZeroArgs) -> anyhow::Result<ExitCode> {
    json::answered(args.json, &*args.file, zero(args))
}

fn zero(args: &ZeroArgs) -> anyhow::Result<ExitCode> {
    let file = open(&args.file, Access::ReadWrite)?;
    let ranges = ranges(args, &file)?;
    let before = RealStorage.stat_handle(&file)?;
    let zeroed = zero_ranges(&file, &ranges).map_err(|error| failure(&args.file, error))?;
    let after = RealStorage.stat_handle(&file)?;
    let freed_bytes = before.blocks.saturating_sub(after.blocks).saturating_mul(512);
    if args.json {
        answer(json::line(&Report::of(args, &zeroed, freed_bytes, after.size))?)?;
    } else if !args.quiet {
        print_message(format_args!(
            "{}: {}",
            args.file.shown(),
            sentence(&zeroed, freed_bytes)
        ));
    }
    if zeroed.deferred.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    print_message(left_over(&args.file, &zeroed.deferred));
    Ok(ExitCode::from(exit::ELBOW_FAILED))
}

/// Opens a regular file, or says why not.
pub(crate) fn open(path: &Path, access: Access) -> anyhow::Result<Handle> {
    RealStorage::open_file(path, access).map_err(|errno| {
        let shown = path.shown();
        let message = match errno {
            Errno::ISDIR => format!("{shown}: a directory; name a file"),
            Errno::SPIPE | Errno::NODEV => format!("{shown}: not a regular file; only those have holes"),
            Errno::PERM => format!("{shown}: {}{}", io::Error::from(errno), protection_hint(errno)),
            Errno::TXTBSY => format!("{shown}: runs as a program, or is swapped to; stop that first"),
            _ => return WordedError::of(path, errno).into(),
        };
        WordedError { message, errno }.into()
    })
}

fn failure(path: &Path, error: io::Error) -> anyhow::Error {
    let hint = Errno::from_io_error(&error).map_or("", protection_hint);
    let tried = format!("{}: cannot be zeroed{hint}", path.shown());
    anyhow::Error::new(error).context(tried)
}

/// Where to look when the owner's right is not enough.
fn protection_hint(errno: Errno) -> &'static str {
    match errno {
        Errno::PERM => " (lsattr(1) shows whether it is protected)",
        _ => "",
    }
}

fn ranges(args: &ZeroArgs, file: &Handle) -> anyhow::Result<RangeSet> {
    if args.ranges.is_some() {
        return read_ranges(io::stdin().lock());
    }
    let whole = (0, RealStorage.stat_handle(file)?.size);
    let (offset, length) = args.offset.zip(args.length).unwrap_or(whole);
    Ok(within_reach(offset, length)?)
}

/// Why there is no such range.
#[derive(Debug, thiserror::Error)]
enum RangeError {
    #[error(transparent)]
    Size(#[from] SizeError),
    #[error("{length} bytes at {offset} end beyond what a file can hold")]
    OutOfReach { offset: u64, length: u64 },
    #[error("write OFFSET LENGTH")]
    NotTwoWords,
}

fn within_reach(offset: u64, length: u64) -> Result<RangeSet, RangeError> {
    RangeSet::from_unsorted([(offset, length)])
        .filter(|set| set.span().is_none_or(|span| span.end <= OFFSET_MAX))
        .ok_or(RangeError::OutOfReach { offset, length })
}

/// The set that lines of `OFFSET LENGTH` describe. All of them are read before anything is done.
fn read_ranges(lines: impl BufRead) -> anyhow::Result<RangeSet> {
    let mut set = RangeSet::new();
    for (index, line) in lines.lines().enumerate() {
        let line =
            line.with_context(|| format!("line {} of the list cannot be read; nothing was changed", index + 1))?;
        match range_of(&line) {
            Ok(range) => set.extend(&range),
            Err(why) => bail!("line {} of the list, `{line}`: {why}; nothing was changed", index + 1),
        }
    }
    Ok(set)
}

/// What one line says; nothing when it is empty or a comment.
fn range_of(line: &str) -> Result<RangeSet, RangeError> {
    let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
    match words[..] {
        [] => Ok(RangeSet::new()),
        [offset, length] => within_reach(size::parse_exact(offset)?, size::parse_exact(length)?),
        _ => Err(RangeError::NotTwoWords),
    }
}

fn sentence(zeroed: &Zeroed, freed_bytes: u64) -> String {
    let mut sentence = format!(
        "{} zeroed, {} freed",
        size::show(zeroed.zeroed_bytes),
        size::show(freed_bytes)
    );
    if zeroed.written_bytes > 0 {
        let written = size::show(zeroed.written_bytes);
        sentence += &format!("; {written} could not be punched and were overwritten");
    }
    sentence
}

/// What is to be told of ranges that there was no room to zero.
fn left_over(path: &Path, deferred: &RangeSet) -> String {
    let named: Vec<_> = deferred
        .iter()
        .take(NAMED_MAX)
        .map(|range| format!("{} {}", range.start, range.end - range.start))
        .collect();
    let more = deferred.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!(
        "{}: the disk is too full to free {} of it, which are as they were: {}{more}; make room (a few blocks) and start again",
        path.shown(),
        size::show(deferred.total_bytes()),
        named.join(", "),
    )
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    path: PathName,
    size_bytes: u64,
    zeroed_bytes: u64,
    freed_bytes: u64,
    punched_bytes: u64,
    written_bytes: u64,
    deferred: Vec<Span>,
}

#[derive(Serialize)]
struct Span {
    offset: u64,
    length: u64,
}

impl Report {
    fn of(args: &ZeroArgs, zeroed: &Zeroed, freed_bytes: u64, size_bytes: u64) -> Self {
        let deferred = zeroed.deferred.iter().map(|range| Span {
            offset: range.start,
            length: range.end - range.start,
        });
        Self {
            path: PathName::of(&args.file),
            size_bytes,
            zeroed_bytes: zeroed.zeroed_bytes,
            freed_bytes,
            punched_bytes: zeroed.punched_bytes,
            written_bytes: zeroed.written_bytes,
            deferred: deferred.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_may_have_comments_units_and_overlaps() {
        let list = "0 4096\n\n# a comment\n 1M 1M # another\n4096 10\n5 0\n";
        let set = read_ranges(list.as_bytes()).expect("a good list");
        assert_eq!(set.iter().collect::<Vec<_>>(), [0..4106, 1 << 20..2 << 20]);
    }

    #[test]
    fn a_bad_line_is_named() {
        for (list, words) in [
            ("0 1\n\n7\n", ["line 3", "`7`", "OFFSET LENGTH"]),
            ("0 1 2", ["line 1", "`0 1 2`", "OFFSET LENGTH"]),
            ("1 2\n-1 2\n", ["line 2", "`-1 2`", "size"]),
            ("1 2\n1.5 10\n", ["line 2", "`1.5 10`", "a fraction needs a unit"]),
            ("0 0.3K", ["line 1", "whole number of bytes", "nothing was changed"]),
            ("9223372036854775807 1", ["line 1", "beyond", "nothing was changed"]),
            ("1 18446744073709551615", ["line 1", "beyond", "nothing was changed"]),
        ] {
            let error = read_ranges(list.as_bytes()).expect_err(list).to_string();
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
        assert!(read_ranges(&b"0 \xff"[..]).is_err());
    }

    #[test]
    fn what_is_left_over_is_named_but_not_endlessly() {
        let many: RangeSet = (0..20).map(|index| index * 10..index * 10 + 1).collect();
        let told = left_over(Path::new("f"), &many);
        assert!(told.contains("0 1, 10 1, 20 1, 30 1, 40 1 and 15 more"), "{told}");
    }
}
