//! Names that are taken for files of their own, and may be of one: nothing says so over SFTP and on sshfs, nor on overlayfs before Linux 6.6.
//!
//! Two patches of one file, written at the same time, would each find it as the job saw it, and one of them would be lost. So those that look alike are written one after the
//! other, and the second finds the file changed; and where inode numbers can be trusted, no file is written by two.

use std::collections::HashMap;
use std::ffi::OsStr;

use elbow_file::{Stat, Time};
use parking_lot::{Mutex, MutexGuard};

use super::failure::{Refusal, StepResult};
use super::record::{Patch, Record};

const WRITTEN_BY_ANOTHER_NAME: Refusal = Refusal::Changed(
    "the job has written to it by another name, too, of which the storage did not say that it is the same file",
);

/// What two names of one file have in common.
type Look = (u64, Option<Time>);

/// The files that a commit writes to.
#[derive(Debug)]
pub(super) enum Aliases<'a> {
    /// By device and inode number, with the patch that is written to each.
    Numbered(Mutex<HashMap<(u64, u64), &'a OsStr>>),
    /// Those that look like others.
    Alike(HashMap<Look, Mutex<()>>),
}

impl<'a> Aliases<'a> {
    /// `is_numbered`: inode numbers tell files apart. `tells_links`: so do counts of names, as a trial shows, which is made where it matters.
    pub(super) fn of(record: &'a Record, is_numbered: bool, tells_links: impl FnOnce() -> bool) -> Self {
        if is_numbered {
            return Self::Numbered(Mutex::default());
        }
        let mut looks: HashMap<Look, u32> = HashMap::new();
        for patch in &record.patches {
            *looks.entry(look(patch)).or_default() += 1;
        }
        looks.retain(|_, count| *count > 1);
        if !looks.is_empty() && tells_links() {
            looks.clear();
        }
        Self::Alike(looks.into_keys().map(|look| (look, Mutex::default())).collect())
    }

    /// Until this is dropped no other patch is written that may be to the same file.
    pub(super) fn wait(&self, patch: &Patch) -> Option<MutexGuard<'_, ()>> {
        match self {
            Self::Numbered(_) => None,
            Self::Alike(alike) => alike.get(&look(patch)).map(Mutex::lock),
        }
    }

    /// Takes an open file for a patch, which no other is written to.
    pub(super) fn claim(&self, patch: &'a Patch, now: &Stat) -> StepResult {
        let Self::Numbered(files) = self else { return Ok(()) };
        // A server may give the same number to files of two file systems that it shows as one.
        if now.nlink < 2 {
            return Ok(());
        }
        let slot = *files.lock().entry((now.dev, now.ino)).or_insert(&patch.slot);
        match slot == patch.slot {
            true => Ok(()),
            false => Err(WRITTEN_BY_ANOTHER_NAME),
        }
    }
}

fn look(patch: &Patch) -> Look {
    (patch.size_before, patch.seen.map(|seen| seen.mtime))
}
