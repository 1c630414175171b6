//! The maps of ids of a user namespace that one makes without rights.
//!
//! Written in a forked process: from memory of before, by system calls alone.
//!
//! Source: user_namespaces(7).

#![allow(clippy::disallowed_methods)] // /proc: not the storage of a job

use std::ffi::{CStr, CString};

use elbow_file::Errno;
use rustix::fs::{Mode, OFlags};

/// What goes into `/proc/self/uid_map` and `gid_map`.
pub(crate) struct IdMaps {
    uid: CString,
    gid: CString,
}

impl IdMaps {
    /// The effective ids, mapped to themselves: all that the kernel allows without privilege.
    pub(crate) fn own() -> Self {
        let map = |id: u32| CString::new(format!("{id} {id} 1\n")).unwrap_or_default();
        Self {
            uid: map(rustix::process::geteuid().as_raw()),
            gid: map(rustix::process::getegid().as_raw()),
        }
    }

    pub(crate) fn write(&self) -> Result<(), Errno> {
        self.write_beside([false; 2])
    }

    /// The same where users or groups are mapped already.
    pub(crate) fn write_beside(&self, [users, groups]: [bool; 2]) -> Result<(), Errno> {
        if !users {
            write_file(c"/proc/self/uid_map", &self.uid)?;
        }
        if !groups {
            write_file(c"/proc/self/setgroups", c"deny")?; // the kernel wants this before a gid may be mapped
            write_file(c"/proc/self/gid_map", &self.gid)?;
        }
        Ok(())
    }
}

fn write_file(path: &CStr, content: &CStr) -> Result<(), Errno> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, content.to_bytes()).map(|_| ())
}
