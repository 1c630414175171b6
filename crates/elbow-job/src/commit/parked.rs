//! What has left its name waits under a hidden one until nothing can be refused any more, and is removed then.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use elbow_file::{Errno, Handle};
use parking_lot::Mutex;

use super::apply::Apply;
use super::failure::{Failure, Refusal, none_of};
use crate::missing::{ignore_missing, none_if_missing};
use crate::removal::remove_trees;
use crate::staging::touch_name;
use crate::step_counter::StepCounter;

impl Apply<'_> {
    /// Removes what waits under hidden names, mostly files; directories after them, all by the same threads.
    pub(super) fn remove_all_parked(&self) -> Result<(), Vec<Failure>> {
        const STEP: &str = "remove what has left";
        let trees = Mutex::new(Vec::new());
        let loose = self.each(
            STEP,
            &self.record.parked,
            |(dir, _)| dir,
            |(dir, name)| {
                let tree = self.remove_parked(dir, name);
                let tree = tree.map(|tree| trees.lock().extend(tree.map(|tree| (dir.clone(), tree))));
                self.unless_closed_before(dir, tree)
            },
        );
        let (paths, tops): (Vec<PathBuf>, Vec<_>) = trees.into_inner().into_iter().unzip();
        let removed = remove_trees(self.storage(), &tops, self.tree.threads, &StepCounter::default());
        let refused = paths.into_iter().zip(removed).filter_map(|(path, removed)| {
            let refusal = self.unless_closed_before(&path, removed.map_err(Refusal::from)).err()?;
            let step = STEP;
            Some(Failure { step, path, refusal })
        });
        none_of(loose.err().into_iter().flatten().chain(refused).collect())
    }

    /// Removes what waits under a hidden name, or gives it if it is a directory.
    fn remove_parked(&self, dir: &Path, name: &OsStr) -> Result<Option<(Handle, OsString)>, Refusal> {
        let Some(dir) = none_if_missing(self.tree.dir(dir))? else {
            return Ok(None);
        };
        match ignore_missing(self.storage().unlink(&dir, name)) {
            Err(Errno::ISDIR | Errno::PERM) => Ok(Some((dir, name.to_owned()))),
            // It was never made: what may not be searched is somebody else's, and we have only tried to make a name come and go there.
            Err(Errno::ACCESS) if name == touch_name(self.staging_name) => Ok(None),
            other => Ok(other.map(|()| None)?),
        }
    }
}
