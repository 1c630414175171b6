//! Whether a mount still lies where a command was to find it.
//!
//! Its mount point may be removed by anybody to whom it is an ordinary directory, in another mount namespace: the kernel then takes the mount away
//! in all of them, and the command goes on in what has the name afterwards. A descriptor of the mount tells: procfs shows its path in the
//! namespace in which it lies, and `/` for one that lies nowhere. The namespace is held meanwhile, because with it the mounts in it go.
//!
//! Source: detach_mounts() and prepend_path() of Linux.

#![allow(clippy::disallowed_methods)] // mount points and /proc: not the storage of a job

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::process::Pid;

use crate::connection::{Connection, MountSource};
use crate::job_directory::JobDirectory;

/// A mount in the namespace of a command.
#[derive(Debug)]
pub struct Anchor {
    mount: OwnedFd,
    _namespace: File,
}

impl Anchor {
    /// Of a command that has just entered its namespace and was not waited for; `None` where nothing can be told: it has ended already, or
    /// may not be looked at.
    #[must_use]
    pub fn of(connection: &Connection, place: &JobDirectory, process: Pid) -> Option<Self> {
        let process = process.as_raw_nonzero();
        let namespace = File::open(format!("/proc/{process}/ns/mnt")).ok()?;
        let path = place.path().strip_prefix("/").ok()?;
        let there = Path::new("/proc").join(process.to_string()).join("root").join(path);
        let mount = match connection.source()? {
            // It was moved there.
            MountSource::Detached(mount) => mount.try_clone_to_owned().ok()?,
            // It was copied there, and the copy has no other name.
            MountSource::Path(hidden) => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let copy = rustix::fs::open(&there, flags, Mode::empty()).ok()?;
                (device(&copy, Path::new("")) == device(CWD, hidden)).then_some(copy)?
            }
        };
        let is_there = device(&mount, Path::new("")) == device(CWD, &there);
        let anchor = Self {
            mount,
            _namespace: namespace,
        };
        // One that is loose already was taken away since the command began, if it is not there: one over the root itself looks as if it lay nowhere.
        (!anchor.is_loose() || !is_there).then_some(anchor)
    }

    /// Somebody has taken the mount away, or removed the directory that it lay over.
    #[must_use]
    pub fn is_loose(&self) -> bool {
        let path = std::fs::read_link(format!("/proc/self/fd/{}", self.mount.as_raw_fd()));
        path.is_ok_and(|path| path == Path::new("/"))
    }
}

/// The device of a mount; nothing is asked of it.
fn device(mount: impl std::os::fd::AsFd, path: &Path) -> Option<(u32, u32)> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(mount, path, flags, StatxFlags::MNT_ID).ok()?;
    Some((found.stx_dev_major, found.stx_dev_minor))
}
