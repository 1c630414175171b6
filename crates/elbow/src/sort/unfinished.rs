//! Files of which a part stands in the runs of a sort in place: what they hold is no content to read, and nothing to write over.

#![allow(
    clippy::disallowed_methods,
    reason = "files named on the command line are looked at before anything is done"
)]

use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Context, Result, bail};
use elbow_extmem::sort::{self, SortTarget};
use elbow_file::RealStorage;

/// The file that a name leads to, through symbolic links.
pub(super) fn target(name: &OsStr) -> Result<SortTarget> {
    let shown = Path::new(name).display();
    let path = Path::new(name).canonicalize().with_context(|| format!("{shown}"))?;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        bail!("{shown}: cannot be sorted in place: it is not a regular file");
    };
    let dir = RealStorage::open_root(parent).with_context(|| format!("opening {}", parent.display()))?;
    Ok(SortTarget {
        dir,
        name: name.to_owned(),
        path: path.clone(),
    })
}

/// Fails where a sort in place of the file is under way, or was left before its end. What is no regular file passes, also where nothing is.
pub(crate) fn refuse_unfinished(name: &Path) -> Result<()> {
    if !name.metadata().is_ok_and(|found| found.is_file()) {
        return Ok(());
    }
    Ok(sort::refuse_unfinished(&RealStorage, &target(name.as_os_str())?)?)
}
