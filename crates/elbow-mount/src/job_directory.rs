//! The directory that a job is to be over, checked before anything is started.

#![allow(clippy::disallowed_methods)] // mount points, devices and /proc: not the storage of a job

use std::path::{Path, PathBuf};

use elbow_file::Errno;
use rustix::fs::{Access, AtFlags, CWD, StatVfsMountFlags};

use crate::mount_error::{MountError, unreachable};
use crate::mount_table::{Location, file_system_of, location_of, nested_mounts};
use crate::passed::PassedThrough;
use crate::real_path::directory;

/// File systems that the kernel makes up: their files are switches and views, not data that a job could stage and
/// rename. By name in the mount table, because devtmpfs has the number of tmpfs, which is storage.
const SYNTHETIC: [&str; 32] = [
    "autofs",
    "binder",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "cpuset",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "functionfs",
    "fusectl",
    "gadgetfs",
    "hugetlbfs",
    "mqueue",
    "nfsd",
    "nsfs",
    "oprofilefs",
    "pipefs",
    "proc",
    "pstore",
    "resctrl",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "smackfs",
    "sockfs",
    "sysfs",
    "tracefs",
    "usbfs",
];

/// A directory that exists, may be written, and has nothing mounted below it, but in what is passed through.
#[derive(Clone, Debug)]
pub struct JobDirectory {
    path: PathBuf,
    flags: StatVfsMountFlags,
}

impl JobDirectory {
    /// Checks a directory, of which some is passed through.
    ///
    /// # Errors
    /// What is wrong with it, and the way out.
    pub fn check(path: &Path, passed: &PassedThrough) -> Result<Self, MountError> {
        let path = directory(path)?;
        if passed.holds(&path) {
            return Err(MountError::PassedWhole(path));
        }
        let kind = file_system_of(&path)?.kind;
        if SYNTHETIC.contains(&kind.as_str()) {
            return Err(MountError::Synthetic { path, kind });
        }
        let space = rustix::fs::statvfs(&path).map_err(|errno| unreachable(&path, errno))?;
        if space.f_flag.contains(StatVfsMountFlags::RDONLY) {
            return Err(MountError::ReadOnly(path));
        }
        may_write(&path)?;
        let mut mounts = nested_mounts(&path)?;
        mounts.retain(|mount| !passed.holds(mount));
        if !mounts.is_empty() {
            return Err(MountError::NestedMounts { path, mounts });
        }
        Ok(Self {
            path,
            flags: space.f_flag,
        })
    }

    /// A directory that something from elsewhere is going to be shown at: what it holds is not used.
    ///
    /// # Errors
    /// It is no directory, or has something mounted below it.
    pub fn of_elsewhere(path: &Path) -> Result<Self, MountError> {
        let path = directory(path)?;
        let mounts = nested_mounts(&path)?;
        if !mounts.is_empty() {
            return Err(MountError::NestedMounts { path, mounts });
        }
        let space = rustix::fs::statvfs(&path).map_err(|errno| unreachable(&path, errno))?;
        Ok(Self {
            path,
            flags: space.f_flag.difference(StatVfsMountFlags::RDONLY),
        })
    }

    /// Checks several directories, which must lie apart; nothing of them is passed through.
    ///
    /// # Errors
    /// What is wrong with the first bad one.
    pub fn check_all(paths: &[PathBuf]) -> Result<Vec<Self>, MountError> {
        let places = paths
            .iter()
            .map(|path| Self::check(path, &PassedThrough::default()))
            .collect::<Result<Vec<_>, _>>()?;
        Self::lie_apart(&places)?;
        Ok(places)
    }

    /// Checks that directories lie apart, by whatever paths they are reached.
    ///
    /// # Errors
    /// The first two that do not.
    pub fn lie_apart(places: &[Self]) -> Result<(), MountError> {
        let located: Vec<_> = places.iter().map(|place| (place, location_of(&place.path))).collect();
        for (i, inner) in located.iter().enumerate() {
            let holds_it = |(j, outer): &(usize, &(&Self, _))| *j != i && holds(outer, inner);
            if let Some((_, (outer, _))) = located.iter().enumerate().find(holds_it) {
                return Err(MountError::Overlapping {
                    outer: outer.path.clone(),
                    inner: inner.0.path.clone(),
                });
            }
        }
        Ok(())
    }

    /// The directory, absolute and without symbolic links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A directory above it, which is not above this path too, does not let everybody pass: what lies below it must not be
    /// seen by all at the path.
    ///
    /// # Errors
    /// A directory above it cannot be looked at.
    pub fn is_closed_from(&self, path: &Path) -> Result<bool, MountError> {
        let above = self.path.ancestors().skip(1);
        let mut only_here = above.filter(|above| !path.starts_with(above));
        only_here.try_fold(false, |closed, above| Ok(closed || !lets_all_pass(above)?))
    }

    /// Mount flags of the file system below.
    pub(crate) fn flags(&self) -> StatVfsMountFlags {
        self.flags
    }
}

/// Is one directory the other, or in it? It may be mounted at another place too (`mount --bind`): then the mounts say where in their file system
/// the two are, and the directory at that place tells whether that is so (the table does not know what is in what of an NFS server).
fn holds(
    (outer, at): &(&JobDirectory, Option<Location>),
    (inner, inner_at): &(&JobDirectory, Option<Location>),
) -> bool {
    if inner.path.starts_with(&outer.path) {
        return true;
    }
    let (Some(at), Some(inner_at)) = (at, inner_at) else {
        return false;
    };
    let below = inner_at.path.strip_prefix(&at.path);
    below.is_ok_and(|below| at.device == inner_at.device && is_same(&outer.path.join(below), &inner.path))
}

fn is_same(one: &Path, other: &Path) -> bool {
    let object = |path| rustix::fs::stat(path).map(|found| (found.st_dev, found.st_ino));
    matches!((object(one), object(other)), (Ok(one), Ok(other)) if one == other)
}

/// May everybody search a directory? An access control list can deny it to some: then not.
fn lets_all_pass(path: &Path) -> Result<bool, MountError> {
    const SEARCH: u32 = 0o011;
    let mode = rustix::fs::stat(path)
        .map_err(|errno| unreachable(path, errno))?
        .st_mode;
    let acl = rustix::fs::getxattr(path, "system.posix_acl_access", &mut [0; 0][..]);
    Ok(mode & SEARCH == SEARCH && !acl.is_ok_and(|bytes| bytes > 0))
}

fn may_write(path: &Path) -> Result<(), MountError> {
    let wanted = Access::WRITE_OK | Access::EXEC_OK;
    rustix::fs::accessat(CWD, path, wanted, AtFlags::EACCESS).map_err(|errno| match errno {
        Errno::ROFS => MountError::ReadOnly(path.to_owned()),
        errno => MountError::Unwritable {
            path: path.to_owned(),
            errno,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount_table::FILE_SYSTEM;

    fn check(path: &Path) -> Result<JobDirectory, MountError> {
        JobDirectory::check(path, &PassedThrough::default())
    }

    #[test]
    fn a_missing_directory_and_a_file_are_told_apart() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let missing = check(&dir.path().join("no")).expect_err("it is missing");
        assert!(
            matches!(
                missing,
                MountError::Unreachable {
                    errno: Errno::NOENT,
                    ..
                }
            ),
            "{missing}"
        );
        let file = dir.path().join("file");
        std::fs::write(&file, "x").expect("a file");
        let error = check(&file).expect_err("it is a file");
        assert!(matches!(error, MountError::NotADirectory(_)), "{error}");
        let error = check(&file.join("below")).expect_err("it is below a file");
        assert!(matches!(error, MountError::NotADirectory(_)), "{error}");
    }

    /// A job over /proc began, and failed in the background.
    #[test]
    fn what_the_kernel_makes_up_is_no_place_for_a_job() {
        let error = check(Path::new("/proc/self")).expect_err("procfs");
        assert!(
            matches!(&error, MountError::Synthetic { kind, .. } if kind == "proc"),
            "{error}"
        );
        assert!(SYNTHETIC.is_sorted());
        for storage in ["tmpfs", "ramfs", "overlay", "ext4", "nfs4", "fuse.sshfs", FILE_SYSTEM] {
            assert!(!SYNTHETIC.contains(&storage), "{storage}");
        }
    }

    #[test]
    fn directories_must_lie_apart() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (a, ab) = (dir.path().join("a"), dir.path().join("ab"));
        for each in [&a, &ab, &a.join("in")] {
            std::fs::create_dir(each).expect("a directory");
        }
        assert!(
            JobDirectory::check_all(&[a.clone(), ab]).is_ok(),
            "a common beginning of the name is not inside"
        );
        assert!(matches!(
            JobDirectory::check_all(&[a.clone(), a.join("in")]),
            Err(MountError::Overlapping { .. })
        ));
        assert!(
            matches!(
                JobDirectory::check_all(&[a.clone(), a]),
                Err(MountError::Overlapping { .. })
            ),
            "the same twice"
        );
    }
}
