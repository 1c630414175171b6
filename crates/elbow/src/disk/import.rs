//! `elbow disk import`: a drive from a parameter file of DiskSim.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, ValueHint};
use elbow_disk::import::{Imported, disksim};

use crate::output::{answer, print_message};

pub(crate) const EXAMPLES: &str = "\
Examples:
  A drive of DiskSim as a description, and what was left out:
      elbow disk import valid/cheetah9LP.parv > cheetah9LP.toml

  Then with one's own requests:
      elbow disk replay --disk cheetah9LP.toml --format blktrace sda.txt

The file is a .parv, or a .diskspecs; the files that it names (its model, its seek curve) are read from beside it. What the model \
of this program has no counterpart for is said on standard error, and in comments at the head of the description.";

/// Bytes of a file that are read at most.
const FILE_MAX: u64 = 16 << 20;

#[derive(Args, Debug)]
pub(crate) struct ImportArgs {
    /// The parameter file of DiskSim.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Which of its disks, where it has several.
    #[arg(long, value_name = "NAME")]
    disk: Option<String>,
}

/// Prints the description.
pub(super) fn run(args: &ImportArgs) -> Result<ExitCode> {
    let name = args.file.display().to_string();
    let text = read(&args.file).with_context(|| format!("cannot read {name}"))?;
    let beside = args.file.parent().unwrap_or(Path::new("")).to_owned();
    let mut source = |file: &str| read(&beside.join(file));
    let Imported { toml, notes } = disksim(&name, &text, args.disk.as_deref(), &mut source)?;
    for note in &notes {
        print_message(format_args!("left out: {note}"));
    }
    answer(toml.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

#[allow(
    clippy::disallowed_methods,
    reason = "a description is configuration, not storage of the user's"
)]
fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(FILE_MAX).read_to_string(&mut text)?;
    Ok(text)
}
