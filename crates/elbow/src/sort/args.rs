//! What `elbow sort` can be asked for.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::PathBuf;

use clap::{ArgAction, Args, ValueHint};

use super::record_args::RecordArgs;

pub(crate) const EXAMPLES: &str = "\
Examples:
  A large file within 256 MB of memory; what does not fit goes to files in /scratch:
      elbow sort -S 256M -T /scratch -o sorted.txt input.txt

  By the second field as a number, largest first; equal ones as in the input:
      elbow sort -s -k 2,2nr sales.txt

  Fields with commas between them: by name without regard to case, then by date:
      elbow sort -t , -k 3,3f -k 1,1 table.csv

  A table whose fields may be quoted, by columns of its header: the largest price first, then by name:
      elbow sort --csv --key price:nr --key name -o sorted.csv table.csv

  Each word once, and how often it was there:
      elbow sort --unique --count words.txt

  Sizes as `du -h` prints them; versions in file names; names that may hold newlines:
      du -h | elbow sort -h
      ls | elbow sort -V
      find . -print0 | elbow sort -z

  Merge files that are sorted already; is a file sorted, and without duplicates?
      elbow sort -m -o all.log monday.log tuesday.log
      elbow sort -cu keys.txt

  Records of 24 bytes by a number in the first four, in place: the same file, no second copy of it on disk:
      elbow sort --record 24 --key 0:4:u32le -S 256M --in-place events.bin

  Go on with it after Ctrl-C, a full disk, kill -9 or a power cut:
      elbow sort --resume events.bin

  How much disk, memory and how many passes will it take?
      elbow sort --dry-run -S 256M -T /scratch input.txt

  The numbers afterwards, for a program:
      elbow sort --json -S 256M -T /scratch -o sorted.txt input.txt

A file is lines of text unless --record or --gensort says otherwise; --in-place is for records alone.

A key of records is OFFSET:WIDTH:TYPE[:desc], in bytes from the beginning of the record: 0:4:u32le, \
8:8:f64be:desc, 16:10:bytes.

A key of lines is FIELD[.BYTE][OPTIONS][,FIELD[.BYTE][OPTIONS]]: from here, up to and with there; without the \
second part it reaches to the end of the line, so a single field is `-k 2,2`. Options behind a key (any of \
bdfghiMnrV) replace those of the command line for it. Lines with equal keys are ordered by their bytes, unless -s \
or -u is given.

With --csv a key is COLUMN[:OPTIONS], a name of the header or a number from 1: `name`, `price:nr`, `3`. Fields are separated by \
commas, or by -t. Rows are kept byte for byte. A row with more or fewer fields than the header, a quote that is not closed and other headers in \
further files are errors, which name the line.

The order is that of sort(1) in the C locale (LC_ALL=C), whatever the locale is. Not available: -R, --debug, and \
the obsolete keys +1 -2.

Temporary files have no names, so nothing is left behind however the sort ends, and they are freed while they are \
merged: besides the input and what is there of the output there is never more than the size of the input.

With -o, progress is shown on standard error, and what was read, written and taken at most of the disk; for lines, \
which sort(1) sorts in silence, only where temporary files were needed.

Exit code:
  0; 1 where -c or -C found a disorder, and for a word that --sort or --check does not know; 2 for any other trouble, wrong options included; 130 for a sort of records that \
  a signal stopped; 141 when nobody reads the output.";

/// The options.
#[derive(Args, Debug)]
#[command(disable_help_flag = true, args_override_self = true, infer_long_args = true)]
pub(crate) struct SortArgs {
    /// What to sort, all together; standard input without any, and for `-`.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<OsString>,
    /// Write the result there, even over an input. Lines: the file is opened at once and emptied when all has been read;
    /// records: it is replaced when the result is complete.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath, allow_hyphen_values = true)]
    pub(crate) output: Vec<PathBuf>,
    /// Use so much memory: a number with b, K, M, G or T, or a percentage of RAM (75%); K without
    /// [default: half of what is available, at most a quarter of RAM].
    #[arg(short = 'S', long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) buffer_size: Vec<String>,
    /// Temporary files go there; several are used in turn, for records the first [default: $TMPDIR or /var/tmp].
    #[arg(short = 'T', long, value_name = "DIR", value_hint = ValueHint::DirPath, allow_hyphen_values = true)]
    pub(crate) temporary_directory: Vec<PathBuf>,
    /// Sort and merge with N threads [default: one for each processor, at most 8].
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) parallel: Option<String>,
    #[command(flatten)]
    pub(crate) text: TextArgs,
    #[command(flatten)]
    pub(crate) records: RecordArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
    /// Print the version.
    #[arg(long)]
    pub(crate) version: bool,
    /// Print help.
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// What is said about a sort.
#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// Say how much memory, disk space and how many merges it will need, and do nothing.
    #[arg(long, help_heading = "What is said")]
    pub(crate) dry_run: bool,
    /// Print one JSON object as the last line of standard error, and nothing else there.
    #[arg(long, help_heading = "What is said")]
    pub(crate) json: bool,
    /// Print errors only.
    #[arg(long, short, help_heading = "What is said")]
    pub(crate) quiet: bool,
    /// Say how far it is and what it took also where standard error is no terminal.
    #[arg(long, help_heading = "What is said", conflicts_with_all = ["quiet", "json"])]
    pub(crate) verbose: bool,
}

impl ReportArgs {
    /// Whether people are told how it goes. sort(1) says nothing, and scripts take what is on standard error for a failure.
    pub(crate) fn tells_people(&self) -> bool {
        !self.quiet && !self.json && (self.verbose || std::io::stderr().is_terminal())
    }
}

/// The options for text.
#[derive(Args, Debug)]
pub(crate) struct TextArgs {
    /// Sort by a part of the line, or of the record (with --record); several keys decide one after the other.
    #[arg(short, long, value_name = "KEY", allow_hyphen_values = true, help_heading = "Keys")]
    pub(crate) key: Vec<String>,
    /// Fields of lines are separated by this byte (`\0` for NUL), not by the blanks in front of them.
    #[arg(
        short = 't',
        long,
        value_name = "SEP",
        allow_hyphen_values = true,
        help_heading = "Keys"
    )]
    pub(crate) field_separator: Vec<OsString>,
    /// Blanks in front of a key do not count.
    #[arg(short = 'b', long, help_heading = "Order of lines")]
    pub(crate) ignore_leading_blanks: bool,
    /// Only blanks, letters and digits count.
    #[arg(short, long, help_heading = "Order of lines")]
    pub(crate) dictionary_order: bool,
    /// Lower case counts as upper case.
    #[arg(short = 'f', long, help_heading = "Order of lines")]
    pub(crate) ignore_case: bool,
    /// By value of a floating-point number: 1e3, 0x1p4, inf.
    #[arg(short, long, help_heading = "Order of lines")]
    pub(crate) general_numeric_sort: bool,
    /// By value with a unit: 2K, 1G.
    #[arg(short = 'h', long, help_heading = "Order of lines")]
    pub(crate) human_numeric_sort: bool,
    /// Only printing characters count.
    #[arg(short, long, help_heading = "Order of lines")]
    pub(crate) ignore_nonprinting: bool,
    /// By month: JAN to DEC, after what is none.
    #[arg(short = 'M', long, help_heading = "Order of lines")]
    pub(crate) month_sort: bool,
    /// By value of a decimal number of any length.
    #[arg(short, long, help_heading = "Order of lines")]
    pub(crate) numeric_sort: bool,
    /// Turned round.
    #[arg(short, long, help_heading = "Order of lines")]
    pub(crate) reverse: bool,
    /// By the version numbers in a name: a2 before a10.
    #[arg(short = 'V', long, help_heading = "Order of lines")]
    pub(crate) version_sort: bool,
    /// As -g, -h, -M, -n or -V: general-numeric, human-numeric, month, numeric, version.
    #[arg(long, value_name = "WORD", help_heading = "Order of lines")]
    pub(crate) sort: Vec<String>,
    /// Lines or records with equal keys stay in the order of the input.
    #[arg(short, long, help_heading = "Keys")]
    pub(crate) stable: bool,
    /// Of lines with equal keys only the first stays; with -c: there are none.
    #[arg(short, long, help_heading = "Order of lines")]
    pub(crate) unique: bool,
    /// How often each line that stays was there, before it, as `uniq -c` has it; with --csv in a column `count` of its own.
    #[arg(long, requires = "unique", help_heading = "Order of lines")]
    pub(crate) count: bool,
    /// The files are tables (RFC 4180): quoted fields may hold separators and newlines, the first row is the header and stays first,
    /// and a key is the name or number of a column.
    #[arg(long, conflicts_with = "zero_terminated", help_heading = "Lines")]
    pub(crate) csv: bool,
    /// Lines end with a NUL, not with a newline.
    #[arg(short, long, help_heading = "Lines")]
    pub(crate) zero_terminated: bool,
    /// Say the first line that is not in order, and exit with 1; do not sort.
    #[arg(short = 'c', help_heading = "Lines")]
    pub(crate) check_loud: bool,
    /// The same, without saying it.
    #[arg(short = 'C', help_heading = "Lines")]
    pub(crate) check_quiet: bool,
    /// As -c (diagnose-first) or -C (quiet, silent).
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "diagnose-first", help_heading = "Lines")]
    pub(crate) check: Option<String>,
    /// Merge files that are sorted already; do not sort.
    #[arg(short, long, help_heading = "Lines")]
    pub(crate) merge: bool,
    /// Pack temporary files with PROG; `PROG -d` has to unpack them.
    #[arg(long, value_name = "PROG", value_hint = ValueHint::CommandName, help_heading = "Lines")]
    pub(crate) compress_program: Vec<OsString>,
    /// Read the names of the files from F (`-`: standard input), each with a NUL behind it.
    #[arg(long, value_name = "F", value_hint = ValueHint::FilePath, help_heading = "Lines")]
    pub(crate) files0_from: Option<PathBuf>,
    /// Merge at most N files at once; beyond that in several passes [default: as many as memory is good for].
    #[arg(long, value_name = "N", allow_hyphen_values = true, help_heading = "Lines")]
    pub(crate) batch_size: Option<String>,
    #[arg(short = 'R', long, hide = true)]
    pub(crate) random_sort: bool,
}
