//! The device of FUSE, and the helper that mounts for ordinary users.

use std::path::Path;
use std::process::{Command, Stdio};

use elbow_file::Errno;
use rustix::mount::UnmountFlags;

use crate::mount_error::errno_of;

/// Who serves a file system opens it.
pub(crate) const DEVICE: &std::ffi::CStr = c"/dev/fuse";
/// Set-user-id root.
pub(crate) const FUSERMOUNT: &str = "fusermount3";

/// Takes a mount away; `lazily` also while it is in use.
///
/// # Errors
/// The errno of umount(2), or EBUSY where `fusermount3` refused.
pub fn unmount(path: &Path, lazily: bool) -> Result<(), Errno> {
    if rustix::process::geteuid().is_root() {
        return rustix::mount::unmount(
            path,
            if lazily {
                UnmountFlags::DETACH
            } else {
                UnmountFlags::empty()
            },
        );
    }
    let mut command = Command::new(FUSERMOUNT);
    command
        .arg("-u")
        .args(lazily.then_some("-z"))
        .arg("-q")
        .arg("--")
        .arg(path);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().map_err(|error| errno_of(&error))?;
    if status.success() { Ok(()) } else { Err(Errno::BUSY) }
}
