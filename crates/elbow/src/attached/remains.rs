//! What the process behind an attachment leaves when it is killed: a mount that nobody serves, a block device over it, a socket.
//!
//! The names may be another's by now, so each thing is looked at first: a mount goes if nobody answers for it, a block device if it reads
//! the hidden file of this attachment, a socket if nobody listens.

#![allow(clippy::disallowed_methods, reason = "what something was offered at, not storage")]

use std::fs::FileType;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};
use elbow_drive::{file_of_loop_device, remove_loop_device};
use rustix::io::Errno;

/// Takes it away.
///
/// # Errors
/// A mount is still there.
pub(crate) fn take_away(device: &str, hidden: &Path) -> Result<()> {
    if let Some(socket) = device.strip_prefix("unix:") {
        remove_socket(socket.as_ref());
        return Ok(());
    }
    if device.starts_with("tcp:") {
        return Ok(());
    }
    // A process that was killed before it had a block device is known by the file of it.
    if !device.starts_with("/dev/loop") && hidden != Path::new(device) {
        return unmount(device.as_ref());
    }
    for device in loop_devices_over(hidden) {
        run("losetup", &["--detach", &device]);
        remove_loop_device(device.as_ref());
    }
    unmount(hidden)
}

fn loop_devices_over(file: &Path) -> Vec<String> {
    let devices = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let devices = devices.filter_map(|device| Some(format!("/dev/{}", device.file_name().to_str()?)));
    let is_over = |device: &String| file_of_loop_device(device.as_ref()).is_some_and(|found| found == file);
    devices.filter(is_over).collect()
}

fn remove_socket(path: &Path) {
    let refused = UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    if refused {
        remove_empty(path, FileType::is_socket);
    }
}

fn unmount(path: &Path) -> Result<()> {
    if is_dead_mount(path) {
        let shown = path.display().to_string();
        run("fusermount3", &["-u", "-z", "--", &shown]);
        if is_dead_mount(path) {
            run("umount", &["--lazy", "--", &shown]);
        }
        ensure!(
            !is_dead_mount(path),
            "{shown}: cannot be unmounted: do that, and detach it again"
        );
    }
    remove_empty(path, FileType::is_file);
    Ok(())
}

/// Whether nobody answers there: unlike stat(2), statfs(2) is never answered from what the kernel remembers.
fn is_dead_mount(path: &Path) -> bool {
    matches!(rustix::fs::statfs(path), Err(Errno::NOTCONN | Errno::CONNABORTED))
}

fn remove_empty(path: &Path, is_of_kind: impl Fn(&FileType) -> bool) {
    let found = std::fs::symlink_metadata(path);
    if found.is_ok_and(|found| found.len() == 0 && is_of_kind(&found.file_type())) {
        let _ = std::fs::remove_file(path);
    }
}

/// What came of it is looked at afterwards.
fn run(program: &str, arguments: &[&str]) {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", path);
    let _ = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}
