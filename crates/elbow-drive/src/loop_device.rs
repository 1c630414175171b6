//! A block device over a file of FUSE, by losetup(8): as root, and without a module of our own.
//!
//! The loop driver reads and writes past the page cache of the file (`--direct-io=on`); it has no forced unit access, so the kernel asks
//! for a flush after such a write.

//!
//! Anybody who is root may take a loop device away and give its number to another file: a device is touched only while its file is ours.

#![allow(clippy::disallowed_methods, reason = "devices and tables of the kernel, not storage")]

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{UnmountFlags, unmount};

use crate::mounts;

/// The kernel lets go of a device a moment after the last who used it.
const UNUSED_PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct LoopDevice {
    device: PathBuf,
    /// As the kernel names it.
    file: PathBuf,
    /// The device may be somebody else's by now.
    is_released: bool,
}

impl LoopDevice {
    /// The first that is free.
    pub(crate) fn over(file: &Path) -> io::Result<Self> {
        let said = losetup(&["--find", "--show", "--direct-io=on", "--"], file)?;
        let device = PathBuf::from(said.trim());
        let file = file_of_loop_device(&device).unwrap_or_else(|| file.to_owned());
        Ok(Self {
            device,
            file,
            is_released: false,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.device
    }

    /// Has the same device read another file.
    pub(crate) fn set_file(&self, file: &Path) -> io::Result<()> {
        let device = self.device.display().to_string();
        losetup(&["--direct-io=on", &device], file).map(drop)
    }

    /// Lets go of the file, and stores before what the system has of the device, if it takes that.
    ///
    /// # Errors
    /// It is in use, or cannot be stored: then it stays. If somebody opens it at the last moment, it goes when the last one closes it.
    pub(crate) fn release(&mut self, stores: bool) -> io::Result<()> {
        if self.is_ours() {
            self.check_unused(stores)?;
            self.unbind()?;
        }
        self.is_released = true;
        Ok(())
    }

    /// Lets go of the file, whatever is mounted from the device: it is not mounted any more.
    ///
    /// # Errors
    /// A process still uses a file on it.
    pub(crate) fn tear_off(&self) -> io::Result<()> {
        if !self.is_ours() {
            return Ok(());
        }
        let mounts = self.mounts()?;
        for point in mounts.iter().rev() {
            unmount(point, UnmountFlags::DETACH)?;
        }
        self.unbind()
    }

    fn unbind(&self) -> io::Result<()> {
        losetup(&["--detach"], &self.device)?;
        self.wait_until_unbound()
    }

    fn is_ours(&self) -> bool {
        file_of_loop_device(&self.device).is_some_and(|file| file == self.file)
    }

    /// As a file system does that is mounted: for itself alone.
    fn check_unused(&self, stores: bool) -> io::Result<()> {
        let flags = OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
        let device: OwnedFd = rustix::fs::open(&self.device, flags, Mode::empty())?;
        match rustix::fs::fsync(&device) {
            Err(error) if stores => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn wait_until_unbound(&self) -> io::Result<()> {
        let deadline = Instant::now() + UNUSED_PATIENCE;
        while self.is_ours() {
            if Instant::now() > deadline {
                let message = "somebody has the block device open: it goes when the last one closes it";
                return Err(io::Error::new(ErrorKind::ResourceBusy, message));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Where it is mounted, the first first.
    fn mounts(&self) -> io::Result<Vec<PathBuf>> {
        let number = rustix::fs::stat(&self.device)?.st_rdev;
        let mounts = mounts::all()?.into_iter();
        Ok(mounts
            .filter_map(|mount| (mount.device == number).then_some(mount.point))
            .collect())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if !self.is_released && self.is_ours() {
            // Whoever uses it gets errors until it lets go.
            let _ = losetup(&["--detach"], &self.device);
        }
    }
}

/// The file that a loop device reads, if it reads one.
#[must_use]
pub fn file_of_loop_device(device: &Path) -> Option<PathBuf> {
    let attribute = Path::new("/sys/block")
        .join(device.file_name()?)
        .join("loop/backing_file");
    let mut path = std::fs::read(attribute).ok()?;
    path.pop_if(|last| *last == b'\n');
    Some(std::ffi::OsString::from_vec(path).into())
}

fn losetup(arguments: &[&str], last: &Path) -> io::Result<String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("losetup");
    command.args(arguments).arg(last).env("PATH", path + ":/usr/sbin:/sbin");
    let output = command.stdin(Stdio::null()).output()?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(io::Error::other(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        )),
    }
}
