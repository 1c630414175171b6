//! The directory at which a job shows what lies elsewhere: there before, or made for it.
//!
//! Several jobs may be shown at one, each in a mount namespace of its own. rmdir(2) of a directory that is a mount point in *another* namespace
//! succeeds, and takes the mount away there: the command of that job would go on in whatever has the name then. So each of them has a shared
//! lock (flock(2)) of the directory from before it is mounted there, and only who gets it alone removes it: the last.
//!
//! ```text
//!   claim     mkdir, if it is missing ── open ── shared lock ── is it still what has the name? ── else all of it again
//!   drop      the lock alone, or nothing ── is it still what has the name, and was it made for a job? ── rmdir
//! ```
//!
//! Where no locks are to be had, nothing is removed. Source: flock(2), detach_mounts() in fs/namespace.c of Linux.

#![allow(
    clippy::disallowed_methods,
    reason = "a directory of this machine, and not the storage of a job"
)]

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use elbow_file::ShowName;
use rustix::fs::{FlockOperation, XattrFlags, fgetxattr, flock, fsetxattr};

/// Marks a directory that was made for jobs, so that the last of them removes it, whichever made it.
const MADE: &str = "user.elbow.made";
/// Who removes it has it alone for a moment. Somebody else who has it alone longer (flock(1)) keeps all others from removing it, too.
const LOOKS_MAX: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// See the module's header.
#[derive(Debug)]
pub(crate) struct ShownAt {
    path: PathBuf,
    /// Shared with whoever else is shown there, where it can be locked.
    directory: Option<File>,
    is_made: bool,
}

impl ShownAt {
    /// Claims a directory, which is made if it is missing. Of one that cannot be opened nothing is said here: it is looked at next.
    pub(crate) fn claim(path: &Path) -> anyhow::Result<Self> {
        let mut is_made = false;
        for _ in 0..LOOKS_MAX {
            is_made = Self::make(path)?;
            match Self::lock(path, is_made) {
                Ok(Some(directory)) => {
                    return Ok(Self {
                        path: path.to_owned(),
                        directory: Some(directory),
                        is_made,
                    });
                }
                // It is being removed, or was.
                Ok(None) => std::thread::sleep(PAUSE),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(_) => break,
            }
        }
        Ok(Self {
            path: path.to_owned(),
            directory: None,
            is_made,
        })
    }

    /// Makes a directory; `false` if something is there.
    fn make(path: &Path) -> anyhow::Result<bool> {
        match std::fs::create_dir(path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error).with_context(|| {
                let shown = path.shown();
                format!("{shown}: it is not there, and cannot be made for the time of the job; create it first")
            }),
        }
    }

    /// Opens and locks it; `None` when somebody has it alone, or it has lost its name.
    fn lock(path: &Path, is_made: bool) -> io::Result<Option<File>> {
        let mut options = File::options();
        let directory = options.read(true).custom_flags(libc::O_DIRECTORY).open(path)?;
        if is_made {
            // Without the mark only who has made it removes it.
            let _ = fsetxattr(&directory, MADE, b"", XattrFlags::empty());
        }
        match flock(&directory, FlockOperation::NonBlockingLockShared) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            locked => locked?,
        }
        Ok(is_at(&directory, path).then_some(directory))
    }

    fn was_made(&self, directory: &File) -> bool {
        self.is_made || fgetxattr(directory, MADE, &mut [0; 0][..]).is_ok()
    }
}

/// Whether an open directory has this name.
fn is_at(directory: &File, path: &Path) -> bool {
    let (open, named) = (directory.metadata(), path.metadata());
    open.ok().zip(named.ok()).is_some_and(|(open, named)| {
        let id = |of: &std::fs::Metadata| (of.dev(), of.ino());
        id(&open) == id(&named)
    })
}

impl Drop for ShownAt {
    fn drop(&mut self) {
        let Some(directory) = &self.directory else { return };
        let is_alone = || flock(directory, FlockOperation::NonBlockingLockExclusive).is_ok();
        if self.was_made(directory) && is_alone() && is_at(directory, &self.path) {
            // If somebody has put something there meanwhile, it stays.
            let _ = std::fs::remove_dir(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_those_that_share_a_directory_removes_it() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("near");
        let (first, second) = (
            ShownAt::claim(&path).expect("made"),
            ShownAt::claim(&path).expect("shared"),
        );
        assert!(first.is_made && !second.is_made);
        let has_marks = second.was_made(second.directory.as_ref().expect("locks"));
        drop(first);
        assert!(path.exists(), "another is shown there");
        drop(second);
        assert_eq!(path.exists(), !has_marks, "the last one, unless it cannot tell");
    }

    #[test]
    fn what_was_there_before_stays() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        drop(ShownAt::claim(dir.path()).expect("it is there"));
        assert!(dir.path().exists());
        let path = dir.path().join("near");
        let made = ShownAt::claim(&path).expect("made");
        std::fs::rename(&path, dir.path().join("moved")).expect("a rename");
        std::fs::create_dir(&path).expect("a directory of somebody else");
        drop(made);
        assert!(path.exists(), "it is another one");
    }

    #[test]
    fn a_directory_that_loses_its_name_before_it_is_locked_is_made_anew() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("near");
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let claimed = || {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let shown = ShownAt::claim(&path).expect("a directory");
                    let directory = shown.directory.as_ref().expect("locks");
                    assert!(is_at(directory, &path), "somebody has removed it from under a lock");
                }
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(claimed)).collect();
            std::thread::sleep(Duration::from_millis(300));
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        });
    }
}
