//! Why there can be no mount, in words that name a way out.

use std::path::{Path, PathBuf};

use elbow_file::{Errno, ShowName};

use crate::step::Step;

/// Why there can be no mount. Each message names what was found and a way out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// Nothing there, or not reachable.
    #[error("{}: {}; {}, or name another one (`elbow run --on DIR`)", path.shown(), words(*errno), way_there(*errno))]
    Unreachable {
        /// The directory as it was given.
        path: PathBuf,
        /// What the system answered.
        errno: Errno,
    },
    /// Something else than a directory.
    #[error("{}: not a directory; a job is over a whole directory, name the one that holds it", _0.shown())]
    NotADirectory(PathBuf),
    /// A read-only file system.
    #[error("{}: on a read-only file system; remount it writable (mount -o remount,rw) or work on a copy", _0.shown())]
    ReadOnly(PathBuf),
    /// A directory that may not be written.
    #[error(
        "{}: you may not write there ({}); a job needs a hidden staging directory inside it: ask its owner for \
         write permission, or name a directory of yours (`elbow run --on DIR`)", path.shown(), words(*errno)
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
         system (`elbow run --on DIR`)", path.shown()
    )]
    Synthetic {
        /// The directory.
        path: PathBuf,
        /// The type of the file system.
        kind: String,
    },
    /// Other file systems are mounted inside.
    #[error(
        "{}: other file systems are mounted inside it ({}), which one transaction cannot cover; unmount them, name \
         directories without mounts (`elbow run --on DIR --on DIR`), or leave them out of it (`--pass-through MOUNT`)", path.shown(), list(mounts)
    )]
    NestedMounts {
        /// The directory.
        path: PathBuf,
        /// Mount points inside it.
        mounts: Vec<PathBuf>,
    },
    /// What was to be passed through is no directory, or not there.
    #[error("{}: cannot be passed through: {}; make the directory first, it is no part of the job", path.shown(), words(*errno))]
    NotPassed {
        /// As it was named.
        path: PathBuf,
        /// What the system answered.
        errno: Errno,
    },
    /// Nothing of a directory is left for the job.
    #[error(
        "{}: all of it is passed through, so that nothing is left for a job; name directories in it", .0.shown()
    )]
    PassedWhole(PathBuf),
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
    #[error("fusermount3 refused to mount at {}: {message}{}", path.shown(), fusermount_advice(message))]
    Fusermount {
        /// The mount point.
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
            | Self::NotPassed { errno, .. }
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
            | Self::NotPassed { path, .. }
            | Self::Synthetic { path, .. }
            | Self::NestedMounts { path, .. }
            | Self::Fusermount { path, .. }
            | Self::NotADirectory(path)
            | Self::ReadOnly(path)
            | Self::PassedWhole(path)
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
        .map(|p| p.shown().to_string())
        .collect::<Vec<_>>()
        .join(", ");
    if paths.len() > SHOWN {
        text += &format!(" and {} more", paths.len() - SHOWN);
    }
    text
}

fn overlap(outer: &Path, inner: &Path) -> String {
    if outer == inner {
        return format!("{} is named twice; name it once", inner.shown());
    }
    if !inner.starts_with(outer) {
        return format!(
            "{} is {}, or lies in it, mounted at another place; name only one of them",
            inner.shown(),
            outer.shown()
        );
    }
    format!("{} is inside {}; name only the outer one", inner.shown(), outer.shown())
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

fn way_there(errno: Errno) -> &'static str {
    match errno {
        Errno::NOENT => "create the directory first",
        Errno::ACCESS => "get the right to enter it and the directories above it",
        _ => "look why it cannot be opened",
    }
}

fn fusermount_advice(message: &str) -> &'static str {
    if message.contains("/dev/fuse") {
        "; /dev/fuse must exist and be open to all (chmod 666 /dev/fuse, its usual mode)"
    } else if message.contains("could not determine username") {
        "; it mounts for users with a name alone: give this one a line in /etc/passwd (in a container: \
         echo \"job:x:$(id -u):$(id -g)::/:/bin/sh\" >> /etc/passwd, as root), or try `unshare -Urm elbow ...`"
    } else if message.contains("Operation not permitted") {
        "; it must be setuid root (chmod u+s), and not be run where new privileges are forbidden (no_new_privs)"
    } else if message.contains("Permission denied") {
        "; if it is on a file system that only its user may enter (sshfs without -o allow_other), name an empty directory \
         elsewhere: elbow mount SRC MNT"
    } else {
        ""
    }
}

/// What a directory that cannot be looked at is.
pub(crate) fn unreachable(path: &Path, errno: Errno) -> MountError {
    match errno {
        Errno::NOTDIR => MountError::NotADirectory(path.to_owned()),
        errno => MountError::Unreachable {
            path: path.to_owned(),
            errno,
        },
    }
}

/// What the system answered; of what has no number, EIO.
pub(crate) fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// The device does not work.
pub(crate) fn no_fuse(errno: Errno) -> MountError {
    MountError::NoFuse { errno }
}

/// A step was refused.
pub(crate) fn failed(step: Step, errno: Errno) -> MountError {
    match errno {
        Errno::NODEV | Errno::NXIO if step == Step::Mount => no_fuse(errno),
        Errno::PERM if rustix::process::geteuid().is_root() => MountError::NotPermitted { step, errno },
        _ => MountError::Failed { step, errno },
    }
}
