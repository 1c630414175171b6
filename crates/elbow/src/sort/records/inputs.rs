//! The inputs, one after the other: files and standard input.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use elbow_extmem::sort::{RecordFormat, SortError};
use rustix::fs::{Access, access};

use crate::sort::args::SortArgs;
use crate::standard_streams;

/// The inputs, one after the other.
pub(super) struct Inputs {
    pub(super) name: PathBuf,
    /// All of them together, where that is known.
    pub(super) bytes: Option<u64>,
    left: std::vec::IntoIter<OsString>,
    now: Option<Box<dyn Read + Send>>,
}

impl Inputs {
    /// Looks at all files first, so that a mistake in the last one does not show after hours.
    pub(super) fn new(args: &SortArgs, format: &RecordFormat) -> Result<Self> {
        let standard_input = [OsString::from("-")];
        let files = if args.files.is_empty() {
            &standard_input[..]
        } else {
            &args.files
        };
        let mut bytes = (!files.iter().any(|name| name == "-")).then_some(0_u64);
        for name in files.iter().filter(|name| *name != "-") {
            let path = Path::new(name);
            let found = looked_at(path).with_context(|| format!("{}", path.display()))?;
            let (size, record) = (found.len(), format.bytes() as u64);
            if found.is_file() && !size.is_multiple_of(record) {
                let path = path.to_owned();
                return Err(SortError::Truncated { path, size, record }.into());
            }
            bytes = bytes.filter(|_| found.is_file()).map(|bytes| bytes + size);
        }
        Ok(Self {
            name: files.first().map(PathBuf::from).unwrap_or_default(),
            bytes,
            left: Vec::from(files).into_iter(),
            now: None,
        })
    }
}

/// Whether it can be opened is tried with a file alone: who writes to a pipe waits for one reader, who is to be the one that reads.
fn looked_at(path: &Path) -> std::io::Result<Metadata> {
    let found = std::fs::metadata(path)?;
    match found.is_file() {
        true => File::open(path)?.metadata(),
        false => access(path, Access::READ_OK).map(|()| found).map_err(Into::into),
    }
}

impl Read for Inputs {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            if let Some(now) = &mut self.now {
                match now.read(buffer)? {
                    0 if !buffer.is_empty() => self.now = None,
                    got => return Ok(got),
                }
            }
            match self.left.next() {
                None => return Ok(0),
                Some(name) if name == "-" => self.now = Some(Box::new(standard_streams::stdin()?)),
                Some(name) => self.now = Some(Box::new(File::open(name)?)),
            }
        }
    }
}
