//! Files of which a part stands in the runs of a sort in place: what they hold is no content to read, and nothing to write over.

#![allow(
    clippy::disallowed_methods,
    reason = "files named on the command line are looked at before anything is done"
)]

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use elbow_extmem::sort::{self, SortTarget};
use elbow_file::RealStorage;

/// So many symbolic links are followed, as by the kernel.
const LINKS_MAX: usize = 40;

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

/// [`refuse_unfinished`] of inputs and the output.
pub(super) fn refuse_any_unfinished<'a>(inputs: &'a [OsString], output: Option<&'a PathBuf>) -> Result<()> {
    let mut names = inputs.iter().map(Path::new).chain(output.map(PathBuf::as_path));
    names.try_for_each(refuse_unfinished)
}

/// Fails where a sort in place of the file is under way, or was left before its end. What is no regular file passes, also where nothing is.
///
/// Looked for beside the name and what it leads to. A file that was opened by somebody else (/dev/stdin), or that lies where its directory
/// cannot be reached, may have a name no more: then nothing is beside it.
pub(crate) fn refuse_unfinished(name: &Path) -> Result<()> {
    if !name.metadata().is_ok_and(|found| found.is_file()) {
        return Ok(());
    }
    for path in names(name) {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            continue;
        };
        let parent = if parent == Path::new("") {
            Path::new(".")
        } else {
            parent
        };
        let Ok(dir) = RealStorage::open_root(parent) else {
            continue;
        };
        let (name, path) = (name.to_owned(), path.clone());
        sort::refuse_unfinished(&RealStorage, &SortTarget { dir, name, path })?;
    }
    Ok(())
}

/// The name, and those that it leads to.
fn names(name: &Path) -> Vec<PathBuf> {
    let mut names = vec![name.to_owned()];
    while names.len() <= LINKS_MAX
        && let Some(last) = names.last()
        && let Ok(next) = last.read_link()
    {
        let next = last.parent().map_or_else(|| next.clone(), |parent| parent.join(&next));
        names.push(next);
    }
    names
}
