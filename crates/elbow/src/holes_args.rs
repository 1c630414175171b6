//! What `zero` and `holes` can be asked for on the command line.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use crate::size;

pub(crate) const ZERO_EXAMPLES: &str = "\
Examples:
  All of it: the size stays, the room is free:
      elbow zero run.log

  512 MiB from 1 GiB on; the first MiB:
      elbow zero records.bin 1G 512M
      elbow zero image.raw 0 1048576

  A list of ranges:
      printf '0 4096\\n1M 1M\\n' | elbow zero records.bin --ranges -

Numbers are bytes; K, M, G and T are powers of 1024. Whole blocks are given back to the file system, the bytes in \
the blocks at both edges are written. A range that passes the end makes the file longer. Where the file system \
cannot punch holes, zeros are written over what is there.

Lines of a list are `OFFSET LENGTH`; empty lines and what follows a # do not count. All lines are read first: if \
one is wrong, nothing is changed.

Exit code:
  0, or 125 when anything was left as it was; what that is, is said.";

pub(crate) const HOLES_EXAMPLES: &str = "\
Examples:
  Where it has data and where it has holes, for people and for programs:
      elbow holes image.raw
      elbow holes --json image.raw

  Make holes of all blocks that hold only zeros:
      elbow holes --dig image.raw

What programs read does not change by --dig, only the room that the file takes; its modification time stays. It is \
safe while others use the file: on btrfs and xfs the kernel compares and frees in one step, even under writers; \
elsewhere nothing is dug while somebody has the file open, and who opens it waits for some milliseconds.

Exit code:
  0, or 125 when it could not be read or not be dug to its end.";

/// `elbow zero`.
#[derive(Args, Debug)]
pub(crate) struct ZeroArgs {
    /// The file.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Where to begin [default: the whole file].
    #[arg(value_name = "OFFSET", value_parser = size::parse_exact, requires = "length", conflicts_with = "ranges")]
    pub(crate) offset: Option<u64>,
    /// How much.
    #[arg(value_name = "LENGTH", value_parser = size::parse_exact)]
    pub(crate) length: Option<u64>,
    /// Zero what a list on standard input says, in lines of `OFFSET LENGTH`.
    #[arg(long, value_name = "-", value_parser = standard_input)]
    pub(crate) ranges: Option<()>,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print errors only.
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// `elbow holes`.
#[derive(Args, Debug)]
pub(crate) struct HolesArgs {
    /// The file.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Make holes of all blocks that hold only zeros.
    #[arg(long)]
    pub(crate) dig: bool,
    /// Dig even where others have the file open and the file system cannot protect their writes: a write at the same
    /// time may be lost.
    #[arg(long, requires = "dig")]
    pub(crate) assume_no_writers: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print errors only.
    #[arg(long, short, requires = "dig")]
    pub(crate) quiet: bool,
}

fn standard_input(text: &str) -> Result<(), String> {
    match text {
        "-" => Ok(()),
        _ => Err(format!("write `--ranges - < {text}`")),
    }
}
