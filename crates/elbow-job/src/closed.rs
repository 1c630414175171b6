//! Old directories whose mode does not let their owner change the names in them (0555, as caches of modules have it), and of which the command has
//! changed the mode.
//!
//! The mode is set at the commit, and what is staged, moved and removed before needs the right. It is given for as long as that takes, and the journal says
//! so first, so that a recovery takes it away again.

use std::ffi::OsStr;

use elbow_file::{Errno, Handle, Storage};

/// What its owner needs to change the names in a directory, or to move it to another.
pub(crate) const OWNER_ALL: u32 = 0o700;
/// Another job may close a directory again at the moment at which we find it open.
const ATTEMPTS: usize = 5;

/// Whether a mode keeps its owner from changing names.
pub(crate) fn is_closed(mode: u32) -> bool {
    mode & OWNER_ALL != OWNER_ALL
}

/// Does something to the names in a directory. One that is closed to us is opened for it; `noted` is told its mode first.
pub(crate) fn change_names<T>(
    storage: &dyn Storage,
    dir: &Handle,
    noted: impl Fn(u32) -> Result<(), Errno>,
    change: impl Fn() -> Result<T, Errno>,
) -> Result<T, Errno> {
    let dot = OsStr::new(".");
    for _ in 0..ATTEMPTS {
        match change() {
            Err(Errno::ACCESS) => {}
            other => return other,
        }
        let mode = storage.stat_handle(dir)?.mode;
        if !is_closed(mode) {
            continue;
        }
        noted(mode)?;
        match storage.chmod(dir, dot, mode | OWNER_ALL) {
            Err(Errno::PERM) => return Err(Errno::ACCESS), // somebody else's
            opened => opened?,
        }
        let changed = change();
        storage.chmod(dir, dot, mode)?;
        if !matches!(changed, Err(Errno::ACCESS)) {
            return changed;
        }
    }
    change()
}

/// Takes the right from a directory of this mode that a death has left to it.
pub(crate) fn close(storage: &dyn Storage, dir: &Handle, mode: u32) -> Result<(), Errno> {
    match storage.stat_handle(dir)?.mode == mode | OWNER_ALL {
        true => storage.chmod(dir, OsStr::new("."), mode),
        false => Ok(()),
    }
}
