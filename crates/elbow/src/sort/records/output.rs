//! Where a sort that is not in place writes to: a draft that takes the place of a regular file when it is complete, or
//! a stream.

use std::fs::{File, Metadata, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};

use crate::partial_output::PartialOutput;
use crate::standard_streams;

/// Where the result goes.
pub(super) enum Destination {
    /// A regular file, there already or not.
    File(Arc<PartialOutput>),
    /// A pipe, a device or standard output.
    Stream(File),
}

impl Destination {
    /// What `-o` names; without it standard output, also where both are the same file.
    pub(super) fn new(output: Option<&PathBuf>) -> Result<Self> {
        let stdout = standard_streams::stdout;
        let Some(path) = output else {
            return Ok(Self::Stream(stdout().context("standard output")?));
        };
        let shown = path.display();
        let found = match path.metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return PartialOutput::new(path, None).map(Arc::new).map(Self::File);
            }
            found => found.with_context(|| format!("{shown}"))?,
        };
        let identity = |found: &Metadata| (found.dev(), found.ino());
        if let Ok(stdout) = stdout()
            && stdout
                .metadata()
                .is_ok_and(|other| identity(&other) == identity(&found))
        {
            return Ok(Self::Stream(stdout));
        }
        if found.is_dir() {
            bail!("{shown}: is a directory");
        }
        if !found.is_file() {
            let opened = OpenOptions::new().write(true).open(path);
            return Ok(Self::Stream(opened.with_context(|| format!("opening {shown}"))?));
        }
        // Who may not write to a file may not replace it either, although the kernel would let them.
        OpenOptions::new()
            .write(true)
            .open(path)
            .with_context(|| format!("opening {shown}"))?;
        let real = path.canonicalize().with_context(|| format!("{shown}"))?;
        PartialOutput::new(&real, Some(&found)).map(Arc::new).map(Self::File)
    }

    pub(super) fn draft(&self) -> Option<&Arc<PartialOutput>> {
        match self {
            Self::File(draft) => Some(draft),
            Self::Stream(_) => None,
        }
    }
}
