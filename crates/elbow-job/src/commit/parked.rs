//! What has left its name waits under a hidden one until nothing can be refused any more, and is removed then.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use elbow_file::{Errno, Handle};
use parking_lot::Mutex;

use super::apply::Apply;
use super::failure::{Failure, Refusal, none_of};
use crate::missing::{ignore_missing, none_if_missing};
use crate::parallel::parallel;
use crate::removal::remove_trees;
use crate::staging::touch_name;
use crate::step_counter::StepCounter;

impl Apply<'_> {
    /// Removes what waits under hidden names, mostly files; directories after them, all by the same threads.
    pub(super) fn remove_all_parked(&self) -> Result<(), Vec<Failure>> {
        let refused = |dir: &Path, name: &OsStr, removed: Result<(), Errno>| {
            let refusal = self.unless_closed_before(dir, removed.map_err(Refusal::from)).err()?;
            Some(Failure {
                step: "remove what has left",
                path: dir.join(name),
                refusal,
            })
        };
        let trees = Mutex::new(Vec::new());
        let loose = parallel(&self.record.parked, self.tree.threads, |(dir, name)| {
            let tree = self.remove_parked(dir, name);
            let removed = tree.map(|tree| trees.lock().extend(tree.map(|tree| (dir.clone(), tree))));
            self.counter.step();
            refused(dir, name, removed)
        });
        let (dirs, tops): (Vec<_>, Vec<_>) = trees.into_inner().into_iter().unzip();
        let removed = remove_trees(self.storage(), &tops, self.tree.threads, &StepCounter::default());
        let removed = dirs.into_iter().zip(&tops).zip(removed);
        let refused = removed.filter_map(|((dir, (_, name)), removed)| refused(&dir, name, removed));
        none_of(loose.into_iter().flatten().chain(refused).collect())
    }

    /// Removes what waits under a hidden name, or gives it if it is a directory.
    fn remove_parked(&self, dir: &Path, name: &OsStr) -> Result<Option<(Handle, OsString)>, Errno> {
        let Some(dir) = none_if_missing(self.tree.dir(dir))? else {
            return Ok(None);
        };
        match ignore_missing(self.storage().unlink(&dir, name)) {
            Err(Errno::ISDIR | Errno::PERM) => Ok(Some((dir, name.to_owned()))),
            // It was never made: what may not be searched is somebody else's, and we have only tried to make a name come and go there.
            Err(Errno::ACCESS) if name == touch_name(self.staging_name) => Ok(None),
            other => other.map(|()| None),
        }
    }
}
