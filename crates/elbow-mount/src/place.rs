//! The directory that a job is to be over, checked before anything is started, and what can be wrong with it.

#![allow(clippy::disallowed_methods)] // mount points, devices and /proc: not the storage of a job

use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use elbow_file::Errno;
use rustix::fs::{Access, AtFlags, CWD, StatVfsMountFlags, StatxFlags};

use crate::namespace::Step;

/// The file system type of our mounts in the mount table.
const FILE_SYSTEM: &str = "fuse.elbow";
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

/// A directory that exists, may be written, and has nothing mounted below it.
#[derive(Clone, Debug)]
pub struct Place {
    path: PathBuf,
    flags: StatVfsMountFlags,
}

/// Why there can be no mount. Each message names what was found and a way out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// Nothing there, or not reachable.
    #[error("{}: {}; create the directory first, or name another one (`elbow run --on DIR`)", path.display(), words(*errno))]
    Unreachable {
        /// The directory as it was given.
        path: PathBuf,
        /// What the system answered.
        errno: Errno,
    },
    /// Something else than a directory.
    #[error("{}: not a directory; a job is over a whole directory, name the one that holds it", _0.display())]
    NotADirectory(PathBuf),
    /// A read-only file system.
    #[error("{}: on a read-only file system; remount it writable (mount -o remount,rw) or work on a copy", _0.display())]
    ReadOnly(PathBuf),
    /// A directory that may not be written.
    #[error(
        "{}: you may not write there ({}); a job needs a hidden staging directory inside it: ask its owner for \
         write permission, or name a directory of yours (`elbow run --on DIR`)", path.display(), words(*errno)
    )]
    Unwritable {
        /// The directory.
        path: PathBuf,
        /// What the system answered.
        errno: Errno,
    },
    /// A file system without files of anybody's.
    #[error(
        "{}: on {kind}, which the kernel makes up and which stores no files; name a directory on a disk or a network file \
         system (`elbow run --on DIR`)", path.display()
    )]
    Synthetic {
        /// The directory.
        path: PathBuf,
        /// The type of the file system.
        kind: String,
    },
    /// Other file systems are mounted inside.
    #[error(
        "{}: other file systems are mounted inside it ({}), which one transaction cannot cover; unmount them, or name \
         directories without mounts (`elbow run --on DIR --on DIR`)", path.display(), list(mounts)
    )]
    NestedMounts {
        /// The directory.
        path: PathBuf,
        /// Mount points inside it.
        mounts: Vec<PathBuf>,
    },
    /// One directory of a job inside another.
    #[error("{}", overlap(outer, inner))]
    Overlapping {
        /// The outer directory.
        outer: PathBuf,
        /// The inner one.
        inner: PathBuf,
    },
    /// No usable `/dev/fuse`.
    #[error("/dev/fuse: {}; {}", words(*errno), fuse_advice(*errno))]
    NoFuse {
        /// What the system answered.
        errno: Errno,
    },
    /// The helper that mounts for ordinary users is not there.
    #[error(
        "fusermount3 was not found, and ordinary users need it to mount; install it (Debian and Ubuntu: apt install \
         fuse3), or run as root"
    )]
    NoFusermount,
    /// That helper refused.
    #[error("fusermount3 refused to mount at {}: {message}{}", path.display(), fusermount_advice(message))]
    Fusermount {
        /// Where.
        path: PathBuf,
        /// What it said.
        message: String,
    },
    /// No place for a hidden mount point.
    #[error("no directory for a temporary mount point; set XDG_RUNTIME_DIR or TMPDIR to a directory of yours")]
    NoRuntimeDirectory,
    /// The kernel refuses a user namespace.
    #[error(
        "this system gives ordinary users no private mount namespace ({step}: {}); ask its administrator for \
         sysctl user.max_user_namespaces > 0 (Debian: kernel.unprivileged_userns_clone=1; Ubuntu: \
         kernel.apparmor_restrict_unprivileged_userns=0), or use `elbow mount SRC MNT`, which needs none", words(*errno)
    )]
    NoUserNamespace {
        /// What was tried.
        step: Step,
        /// What the kernel answered.
        errno: Errno,
    },
    /// Root without the right to mount, as in many containers.
    #[error(
        "{step}: {}; root needs CAP_SYS_ADMIN to mount (in a container: --cap-add SYS_ADMIN --device /dev/fuse)",
        words(*errno)
    )]
    NotPermitted {
        /// What was tried.
        step: Step,
        /// What the kernel answered.
        errno: Errno,
    },
    /// Anything else, which should not happen.
    #[error("{step}: {}", words(*errno))]
    Failed {
        /// What was tried.
        step: Step,
        /// What the kernel answered.
        errno: Errno,
    },
}

impl MountError {
    /// What the system answered, or what it would have.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Unreachable { errno, .. }
            | Self::Unwritable { errno, .. }
            | Self::NoFuse { errno }
            | Self::NoUserNamespace { errno, .. }
            | Self::NotPermitted { errno, .. }
            | Self::Failed { errno, .. } => Some(*errno),
            Self::NotADirectory(_) => Some(Errno::NOTDIR),
            Self::ReadOnly(_) => Some(Errno::ROFS),
            _ => None,
        }
    }

    /// What it is about.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Unreachable { path, .. }
            | Self::Unwritable { path, .. }
            | Self::Synthetic { path, .. }
            | Self::NestedMounts { path, .. }
            | Self::Fusermount { path, .. }
            | Self::NotADirectory(path)
            | Self::ReadOnly(path)
            | Self::Overlapping { inner: path, .. } => Some(path),
            _ => None,
        }
    }
}

/// The system's words for an errno, without Rust's addition of the number.
fn words(errno: Errno) -> String {
    let text = errno.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

fn list(paths: &[PathBuf]) -> String {
    /// More names than this make a message unreadable.
    const SHOWN: usize = 3;
    let mut text = paths
        .iter()
        .take(SHOWN)
        .map(|p| p.display().to_string())
        .collect::<Vec<_>>()
        .join(", ");
    if paths.len() > SHOWN {
        text += &format!(" and {} more", paths.len() - SHOWN);
    }
    text
}

fn overlap(outer: &Path, inner: &Path) -> String {
    if outer == inner {
        return format!("{} is named twice; name it once", inner.display());
    }
    format!(
        "{} is inside {}; name only the outer one",
        inner.display(),
        outer.display()
    )
}

fn fuse_advice(errno: Errno) -> &'static str {
    match errno {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => {
            "load the kernel module (modprobe fuse); in a container, start it with --device /dev/fuse"
        }
        Errno::ACCESS | Errno::PERM => {
            "you may not open it: ask for `chmod 666 /dev/fuse`, its usual mode (in a container: --device /dev/fuse)"
        }
        _ => "FUSE does not work here",
    }
}

fn fusermount_advice(message: &str) -> &'static str {
    if message.contains("/dev/fuse") {
        "; /dev/fuse must exist and be open to all (chmod 666 /dev/fuse, its usual mode)"
    } else if message.contains("Operation not permitted") {
        "; it must be setuid root (chmod u+s), and not be run where new privileges are forbidden (no_new_privs)"
    } else {
        ""
    }
}

impl Place {
    /// Checks a directory.
    ///
    /// # Errors
    /// What is wrong with it, and the way out.
    pub fn check(path: &Path) -> Result<Self, MountError> {
        let path = directory(path)?;
        let kind = file_system_of(&path)?;
        if SYNTHETIC.contains(&kind.as_str()) {
            return Err(MountError::Synthetic { path, kind });
        }
        let space = rustix::fs::statvfs(&path).map_err(|errno| unreachable(&path, errno))?;
        if space.f_flag.contains(StatVfsMountFlags::RDONLY) {
            return Err(MountError::ReadOnly(path));
        }
        may_write(&path)?;
        let mounts = nested_mounts(&path)?;
        if !mounts.is_empty() {
            return Err(MountError::NestedMounts { path, mounts });
        }
        Ok(Self {
            path,
            flags: space.f_flag,
        })
    }

    /// Checks several directories, which must lie apart.
    ///
    /// # Errors
    /// What is wrong with the first bad one.
    pub fn check_all(paths: &[PathBuf]) -> Result<Vec<Self>, MountError> {
        let places = paths
            .iter()
            .map(|path| Self::check(path))
            .collect::<Result<Vec<_>, _>>()?;
        for (i, inner) in places.iter().enumerate() {
            let holds_it = |(j, outer): &(usize, &Self)| *j != i && inner.path.starts_with(&outer.path);
            if let Some((_, outer)) = places.iter().enumerate().find(holds_it) {
                return Err(MountError::Overlapping {
                    outer: outer.path.clone(),
                    inner: inner.path.clone(),
                });
            }
        }
        Ok(places)
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

/// The path of an existing directory, absolute and without symbolic links.
fn directory(path: &Path) -> Result<PathBuf, MountError> {
    let real = path
        .canonicalize()
        .map_err(|error| unreachable(path, errno_of(&error)))?;
    let stat = rustix::fs::stat(&real).map_err(|errno| unreachable(path, errno))?;
    if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() {
        Ok(real)
    } else {
        Err(MountError::NotADirectory(path.to_owned()))
    }
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

fn unreachable(path: &Path, errno: Errno) -> MountError {
    match errno {
        Errno::NOTDIR => MountError::NotADirectory(path.to_owned()),
        errno => MountError::Unreachable {
            path: path.to_owned(),
            errno,
        },
    }
}

pub(crate) fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// The mount points strictly below a directory, as this process sees them.
///
/// # Errors
/// `/proc` is not mounted.
pub fn nested_mounts(path: &Path) -> Result<Vec<PathBuf>, MountError> {
    let table = mount_table()?;
    let mut below: Vec<_> = mount_points(&table)
        .filter(|at| at != path && at.starts_with(path))
        .collect();
    below.sort();
    below.dedup();
    Ok(below)
}

/// The mount points of jobs that this process sees, the last one last.
#[must_use]
pub fn job_mounts() -> Vec<PathBuf> {
    let table = mount_table().unwrap_or_default();
    let lines = table
        .split(|&b| b == b'\n')
        .map(|line| line.split(|&b| b == b' ').collect::<Vec<_>>());
    let ours = lines.filter(|fields| file_system(fields) == Some(FILE_SYSTEM.as_bytes()));
    ours.filter_map(|fields| fields.get(4).map(|point| unescape(point)))
        .collect()
}

fn mount_table() -> Result<Vec<u8>, MountError> {
    let failed = |error: std::io::Error| MountError::Failed {
        step: Step::ReadMounts,
        errno: errno_of(&error),
    };
    std::fs::read("/proc/self/mountinfo").map_err(failed)
}

/// The type of the file system that holds a directory; empty where its mount is not in the table.
fn file_system_of(path: &Path) -> Result<String, MountError> {
    let found = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID);
    let id = found.map_err(|errno| unreachable(path, errno))?.stx_mnt_id.to_string();
    let table = mount_table()?;
    let mut mounts = table
        .split(|&b| b == b'\n')
        .map(|line| line.split(|&b| b == b' ').collect::<Vec<_>>());
    let line = mounts
        .find(|fields| fields.first() == Some(&id.as_bytes()))
        .unwrap_or_default();
    Ok(String::from_utf8_lossy(file_system(&line).unwrap_or_default()).into_owned())
}

/// A line of a table of mounts.
pub(crate) struct Listed<'a> {
    /// The number of its device, as `major:minor`.
    pub(crate) device: &'a [u8],
    /// Where it is.
    pub(crate) point: PathBuf,
    /// What it says that it shows; of ours the directory of the job.
    pub(crate) source: PathBuf,
}

/// The mounts in a table: of each line the third and fifth fields, and the second after the separating `-`.
pub(crate) fn mounts_in(table: &[u8]) -> impl Iterator<Item = Listed<'_>> {
    table.split(|&b| b == b'\n').filter_map(|line| {
        let fields: Vec<&[u8]> = line.split(|&b| b == b' ').collect();
        let separator = fields.iter().position(|field| *field == b"-")?;
        Some(Listed {
            device: fields.get(2)?,
            point: unescape(fields.get(4)?),
            source: unescape(fields.get(separator + 2)?),
        })
    })
}

/// What lies at a path is a mount of ours (the last one in the table lies on top).
pub(crate) fn is_job_at(path: &Path) -> bool {
    let table = mount_table().unwrap_or_default();
    let mut mounts = table
        .split(|&b| b == b'\n')
        .map(|line| line.split(|&b| b == b' ').collect::<Vec<_>>())
        .filter(|fields| fields.get(4).is_some_and(|point| unescape(point) == path));
    mounts
        .next_back()
        .is_some_and(|fields| file_system(&fields) == Some(FILE_SYSTEM.as_bytes()))
}

/// The type of file system in a line of the table: the field after the separating `-`.
fn file_system<'a>(fields: &[&'a [u8]]) -> Option<&'a [u8]> {
    let separator = fields.iter().position(|field| *field == b"-")?;
    fields.get(separator + 1).copied()
}

/// The mount points in a table as proc(5) describes `mountinfo`: the fifth field of each line.
fn mount_points(table: &[u8]) -> impl Iterator<Item = PathBuf> + '_ {
    let field = |line: &[u8]| line.split(|&b| b == b' ').nth(4).map(unescape);
    table.split(|&b| b == b'\n').filter_map(field)
}

/// Undoes the octal escapes (`\040` is a space) of a mount table.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let code = (first == b'\\').then(|| tail.get(..3).and_then(octal)).flatten();
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &tail[3..] } else { tail };
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

fn octal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_with_their_escapes() {
        let table = b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
            30 22 0:25 / /data/my\\040disk rw - tmpfs tmpfs rw\n\
            31 22 0:26 / /odd\\ rw - tmpfs tmpfs rw\n";
        let points: Vec<_> = mount_points(table).collect();
        assert_eq!(points, ["/", "/data/my disk", "/odd\\"].map(PathBuf::from));
    }

    #[test]
    fn a_missing_directory_and_a_file_are_told_apart() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let missing = Place::check(&dir.path().join("no")).expect_err("it is missing");
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
        let error = Place::check(&file).expect_err("it is a file");
        assert!(matches!(error, MountError::NotADirectory(_)), "{error}");
        let error = Place::check(&file.join("below")).expect_err("it is below a file");
        assert!(matches!(error, MountError::NotADirectory(_)), "{error}");
    }

    /// A job over /proc began, and failed in the background.
    #[test]
    fn what_the_kernel_makes_up_is_no_place_for_a_job() {
        let error = Place::check(Path::new("/proc/self")).expect_err("procfs");
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
            Place::check_all(&[a.clone(), ab]).is_ok(),
            "a common beginning of the name is not inside"
        );
        assert!(matches!(
            Place::check_all(&[a.clone(), a.join("in")]),
            Err(MountError::Overlapping { .. })
        ));
        assert!(
            matches!(Place::check_all(&[a.clone(), a]), Err(MountError::Overlapping { .. })),
            "the same twice"
        );
    }

    #[test]
    fn mounts_inside_a_directory_are_found() {
        let below_root = nested_mounts(Path::new("/")).expect("/proc is mounted");
        assert!(below_root.iter().any(|at| at == Path::new("/proc")), "{below_root:?}");
        assert!(!below_root.contains(&PathBuf::from("/")));
    }
}
