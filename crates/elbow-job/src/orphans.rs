//! Staging directories that lost their job: somebody moved the directory that one was in while the job ran, and the job died.
//!
//! A living job finds its staging wherever it has been moved, because it holds the directory open; what a dead one left is looked for
//! by its path. So this search goes through the whole tree, and is only made when it is asked for.
//!
//! Nothing is taken from a job that is still there: its own directory is in the directory that it was run on, which is the one of
//! the staging directory or above it. Those are listed after the staging directory was seen, since a job makes its own directory
//! first and removes it last.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use elbow_file::{Errno, FileType, Handle, ShowName, Storage};

use crate::commit::{Tree, put_times_back, remove_part};
use crate::found::{THREADS, error, report_of};
use crate::ownership::OwnershipCheck;
use crate::parallel::parallel;
use crate::report::{JobError, RecoverAction, Recovered};
use crate::staging::{id_of_job, id_of_part};
use crate::step_counter::StepCounter;

/// Removes staging directories below a directory whose jobs have ended; `above` are the directories above it. Those of other users
/// and other file systems are left alone. Where there may be directories above that cannot be seen from here (a server's, or those
/// of a file system of which a part is mounted), none is removed, unless `force` says that no job was run on them.
///
/// # Errors
/// When a directory cannot be listed or removed. What could not be entered by us has nothing of ours in it.
pub fn recover_orphans(
    storage: &Arc<dyn Storage>,
    root: &Handle,
    above: &[Handle],
    force: bool,
) -> Result<Vec<Recovered>, JobError> {
    Search::new(&**storage, root, above, force)?.run()
}

struct Search<'a> {
    storage: &'a dyn Storage,
    ownership: OwnershipCheck<'a>,
    tree: Tree<'a>,
    above: &'a [Handle],
    sees_all_above: bool,
}

/// What is in one directory.
#[derive(Default)]
struct Listed {
    dirs: Vec<PathBuf>,
    orphans: Vec<OrphanedStaging>,
    jobs: BTreeSet<String>,
}

struct OrphanedStaging {
    /// The directory that it is in.
    above: PathBuf,
    name: OsString,
    id: String,
}

impl<'a> Search<'a> {
    fn new(storage: &'a dyn Storage, root: &'a Handle, above: &'a [Handle], force: bool) -> Result<Self, JobError> {
        let file_system_traits = storage
            .file_system_traits(root)
            .map_err(error("reading the attributes of"))?;
        let ownership = OwnershipCheck::new(storage, root).map_err(error("reading the attributes of"))?;
        let tree = Tree::new(storage, root.clone(), THREADS).staying_on(Some(ownership.mount()));
        Ok(Self {
            storage,
            ownership,
            tree,
            above,
            sees_all_above: file_system_traits.shows_all_above || force,
        })
    }

    fn run(&self) -> Result<Vec<Recovered>, JobError> {
        let found = walk(&self.tree).map_err(error("searching"))?;
        let left = found.orphans.iter().filter(|orphan| !found.jobs.contains(&orphan.id));
        left.map(|orphan| self.end(orphan).map_err(error("removing staging directories in")))
            .collect()
    }

    fn end(&self, orphan: &OrphanedStaging) -> Result<Recovered, Errno> {
        let above = orphan.above.shown();
        let say = |action, message: String| Ok(report_of(&orphan.name, action, None, message));
        let dir = self.tree.dir(&orphan.above)?;
        let found = self.storage.stat(&dir, &orphan.name)?;
        if let Some(why) = self.ownership.objection(&found) {
            return say(RecoverAction::NotOurs, why);
        }
        match self.has_job(orphan) {
            Ok(false) if self.sees_all_above => {}
            Ok(false) => {
                let message = format!(
                    "it is in {above}; whether its job is in a directory above those that are mounted here cannot be seen; \
                     if none was run there, add --force"
                );
                return say(RecoverAction::Foreign, message);
            }
            Ok(true) => {
                return say(
                    RecoverAction::Running,
                    format!("its job is in a directory above {above}"),
                );
            }
            Err(errno) => {
                let message = format!("whether its job still runs cannot be seen: a directory above {above}: {errno}");
                return say(RecoverAction::Foreign, message);
            }
        }
        let times = self.storage.stat_handle(&dir)?;
        remove_part(&self.tree, &dir, &orphan.name, &StepCounter::default())?;
        put_times_back(self.storage, &dir, (times.atime, times.mtime))?;
        let message = format!("left in {above}, which was moved there while its job ran: removed");
        say(RecoverAction::RolledBack, message)
    }

    /// Is the job's own directory in the directory of a stray, or in one above it?
    fn has_job(&self, orphan: &OrphanedStaging) -> Result<bool, Errno> {
        let within = orphan.above.ancestors().map(|path| self.tree.dir(path));
        let above = self.above.iter().map(|dir| Ok(dir.clone()));
        for dir in within.chain(above) {
            match dir.and_then(|dir| self.storage.list(&dir)) {
                Ok(entries) if entries.iter().any(|entry| id_of_job(&entry.name) == Some(&orphan.id)) => {
                    return Ok(true);
                }
                // A job of ours runs in no directory that we may not list.
                Ok(_) | Err(Errno::ACCESS) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(false)
    }
}

/// Everything below the root, level by level.
fn walk(tree: &Tree<'_>) -> Result<Listed, Errno> {
    let mut all = Listed::default();
    let mut level = vec![PathBuf::new()];
    while !level.is_empty() {
        let listed = parallel(&level, THREADS, |path| list(tree, path));
        level.clear();
        for listed in listed {
            let listed = listed?;
            level.extend(listed.dirs);
            all.orphans.extend(listed.orphans);
            all.jobs.extend(listed.jobs);
        }
    }
    Ok(all)
}

fn list(tree: &Tree<'_>, path: &Path) -> Result<Listed, Errno> {
    let mut listed = Listed::default();
    let entries = match tree.dir(path).and_then(|dir| tree.storage.list(&dir)) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS | Errno::XDEV) => return Ok(listed),
        entries => entries?,
    };
    for entry in entries {
        if let Some(id) = id_of_job(&entry.name) {
            listed.jobs.insert(id.to_owned());
        } else if let Some(id) = id_of_part(&entry.name) {
            listed.orphans.push(OrphanedStaging {
                above: path.to_owned(),
                id: id.to_owned(),
                name: entry.name,
            });
        } else if entry.kind.is_none_or(|kind| kind == FileType::Dir) {
            listed.dirs.push(path.join(entry.name));
        }
    }
    Ok(listed)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the test makes and looks at real directories")]
mod tests {
    use std::fs;

    use elbow_file::RealStorage;

    use super::*;

    const ID: &str = "0123456789abcdef";

    fn orphan_in(dir: &Path) {
        let part = dir.join(format!(".elbow-{ID}-part"));
        fs::create_dir_all(part.join("sub")).unwrap();
        fs::write(part.join("sub/file"), "staged").unwrap();
        fs::set_permissions(&part, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    }

    fn search(dir: &Path) -> Vec<RecoverAction> {
        let root = RealStorage::open_root(dir).unwrap();
        let storage: Arc<dyn Storage> = Arc::new(RealStorage);
        let above = dir.ancestors().skip(1).map(|dir| RealStorage::open_root(dir).unwrap());
        let found = recover_orphans(&storage, &root, &above.collect::<Vec<_>>(), true).unwrap();
        found.iter().map(|found| found.action).collect()
    }

    #[test]
    fn staging_that_lost_its_job_is_removed_and_no_other() {
        let temp = tempfile::tempdir().unwrap();
        let deep = temp.path().join("a/b/c");
        fs::create_dir_all(&deep).unwrap();
        orphan_in(&deep);
        let before = fs::metadata(&deep).unwrap().modified().unwrap();
        assert_eq!(search(temp.path()), [RecoverAction::RolledBack]);
        assert_eq!(fs::read_dir(&deep).unwrap().count(), 0);
        assert_eq!(fs::metadata(&deep).unwrap().modified().unwrap(), before);
        assert_eq!(search(temp.path()), []);
        // The job is there: above, or where it was moved away from.
        for home in ["", "a/b", "a/other"] {
            orphan_in(&deep);
            let job = temp.path().join(home).join(format!(".elbow-{ID}-1.000000000"));
            fs::create_dir_all(&job).unwrap();
            assert_eq!(search(temp.path()), [], "{home}");
            let is_above = !home.ends_with("other");
            let expected = if is_above {
                RecoverAction::Running
            } else {
                RecoverAction::RolledBack
            };
            assert_eq!(search(&deep), [expected], "{home}");
            let _ = fs::remove_dir_all(deep.join(format!(".elbow-{ID}-part")));
            fs::remove_dir(&job).unwrap();
        }
        orphan_in(&deep);
        fs::set_permissions(
            deep.join(format!(".elbow-{ID}-part")),
            std::os::unix::fs::PermissionsExt::from_mode(0o777),
        )
        .unwrap();
        assert_eq!(search(temp.path()), [RecoverAction::NotOurs]);
    }
}
