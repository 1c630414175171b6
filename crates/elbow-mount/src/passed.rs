//! Directories below that of a job which are no part of it: the command finds them as they are.
//!
//! The kernel does it. In its own namespace the child takes hold of each, with all that is mounted in it (open_tree(2)), before the mount
//! of the job covers it, and lays it over the place of that name in the job afterwards (move_mount(2)). To the command it is a mount point:
//! it cannot be removed or renamed, and nothing is renamed or linked into it or out of it (EXDEV).

#![allow(clippy::disallowed_methods)] // mount points: not the storage of a job

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use elbow_file::Errno;
use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags};

use crate::mount_error::MountError;
use crate::mount_table::{FILE_SYSTEM, file_system_of, nested_mounts};
use crate::real_path::directory;

/// Directories that are passed through, absolute and without symbolic links; none lies in another.
#[derive(Clone, Debug, Default)]
pub struct PassedThrough(Vec<PathBuf>);

impl PassedThrough {
    /// Checks directories that somebody has named, wherever they lie. In those of a job that are in a job themselves, what that one passes
    /// through is passed on: there it is what is mounted.
    ///
    /// # Errors
    /// One is not there, or is no directory.
    pub fn check(named: &[PathBuf], of_job: &[PathBuf]) -> Result<Self, MountError> {
        let real = named.iter().map(|path| {
            directory(path).map_err(|error| MountError::NotPassed {
                path: path.clone(),
                errno: error.errno().unwrap_or(Errno::IO),
            })
        });
        let mut real = real.collect::<Result<Vec<_>, _>>()?;
        for path in of_job.iter().filter_map(|path| directory(path).ok()) {
            if file_system_of(&path)?.kind == FILE_SYSTEM {
                real.extend(nested_mounts(&path)?);
            }
        }
        real.sort_unstable();
        // Whatever lies in a directory comes right behind it.
        real.dedup_by(|inner, outer| inner.starts_with(outer));
        Ok(Self(real))
    }

    /// Those in a directory: what lies elsewhere is no part of a job over it anyway.
    pub fn within<'a>(&'a self, directory: &'a Path) -> impl Iterator<Item = &'a Path> {
        let all = self.0.iter().map(PathBuf::as_path);
        all.filter(move |passed| passed.starts_with(directory))
    }

    /// Whether a path is or lies in one of them.
    #[must_use]
    pub fn holds(&self, path: &Path) -> bool {
        self.0.iter().any(|passed| path.starts_with(passed))
    }
}

/// One of them on its way into the namespace of a child.
pub(crate) struct Passage {
    path: CString,
    /// A copy of the mount, that lies nowhere, once it is taken hold of.
    tree: Option<OwnedFd>,
}

impl Passage {
    pub(crate) fn of(path: CString) -> Self {
        Self { path, tree: None }
    }

    /// Takes hold of it; nothing may cover it yet.
    pub(crate) fn take(&mut self) -> Result<(), Errno> {
        // In a user namespace one may not look behind what is mounted inside: all of it or nothing. Where others may write, a link may have come to
        // its place since it was checked.
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::AT_RECURSIVE
            | OpenTreeFlags::AT_SYMLINK_NOFOLLOW
            | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        self.tree = Some(rustix::mount::open_tree(CWD, self.path.as_c_str(), flags)?);
        Ok(())
    }

    /// Lays it over what covers it.
    pub(crate) fn lay(&mut self) -> Result<(), Errno> {
        let tree = self.tree.take().ok_or(Errno::BADF)?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        rustix::mount::move_mount(&tree, c"", CWD, self.path.as_c_str(), flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_in_others_and_those_elsewhere_are_left_out() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let root = dir.path().canonicalize().expect("its path");
        let [a, ab, inner, other] = ["w/a", "w/ab", "w/a/x/y", "o"].map(|name| root.join(name));
        for each in [&ab, &inner, &other] {
            std::fs::create_dir_all(each).expect("a directory");
        }
        std::os::unix::fs::symlink("w/a", root.join("link")).expect("a link");
        let named = [inner.clone(), other.clone(), ab.clone(), root.join("link"), a.clone()];
        let passed = PassedThrough::check(&named, &[]).expect("they are there");
        assert_eq!(passed.within(&root).collect::<Vec<_>>(), [&other, &a, &ab]);
        assert_eq!(passed.within(&root.join("w")).collect::<Vec<_>>(), [&a, &ab]);
        assert!(passed.holds(&a) && passed.holds(&inner) && !passed.holds(&root.join("w")));
    }

    #[test]
    fn what_is_not_there_or_no_directory_is_refused() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let file = dir.path().join("file");
        std::fs::write(&file, "x").expect("a file");
        for (path, why) in [
            (dir.path().join("no"), "No such file or directory"),
            (file, "Not a directory"),
        ] {
            let error = PassedThrough::check(std::slice::from_ref(&path), &[]).expect_err(why);
            let said = error.to_string();
            assert!(
                said.starts_with(&format!("{}: cannot be passed through: {why}", path.display())),
                "{said}"
            );
        }
    }
}
