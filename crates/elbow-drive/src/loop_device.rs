//! A block device over a file of FUSE, by losetup(8): as root, and without a module of our own.
//!
//! The loop driver reads and writes past the page cache of the file (`--direct-io=on`); it has no forced unit access, so the kernel asks
//! for a flush after such a write.

#![allow(clippy::disallowed_methods, reason = "devices and tables of the kernel, not storage")]

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{UnmountFlags, unmount};

/// The kernel lets go of a device a moment after the last who used it.
const UNUSED_PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct LoopDevice {
    device: PathBuf,
    /// The device may be somebody else's by now.
    is_released: bool,
}

impl LoopDevice {
    /// The first that is free.
    pub(crate) fn over(file: &Path) -> io::Result<Self> {
        let said = losetup(&["--find", "--show", "--direct-io=on", "--"], file)?;
        let device = PathBuf::from(said.trim());
        Ok(Self {
            device,
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

    /// Lets go of the file.
    ///
    /// # Errors
    /// It is in use: then it stays.
    pub(crate) fn release(&mut self) -> io::Result<()> {
        self.check_unused()?;
        self.unbind()?;
        self.is_released = true;
        Ok(())
    }

    /// Lets go of the file, whatever is mounted from the device: it is not mounted any more.
    ///
    /// # Errors
    /// A process still uses a file on it.
    pub(crate) fn tear_off(&self) -> io::Result<()> {
        let mounts = self.mounts()?;
        for point in mounts.iter().rev() {
            unmount(point, UnmountFlags::DETACH)?;
        }
        self.unbind()
    }

    fn unbind(&self) -> io::Result<()> {
        if self.is_bound() {
            losetup(&["--detach"], &self.device)?;
        }
        self.wait_until_unbound()
    }

    fn is_bound(&self) -> bool {
        let name = self.device.file_name().unwrap_or_default();
        Path::new("/sys/block").join(name).join("loop/backing_file").exists()
    }

    /// As a file system does that is mounted: for itself alone.
    fn check_unused(&self) -> io::Result<()> {
        let flags = OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
        let device: OwnedFd = rustix::fs::open(&self.device, flags, Mode::empty())?;
        Ok(rustix::fs::fsync(&device)?)
    }

    fn wait_until_unbound(&self) -> io::Result<()> {
        let deadline = Instant::now() + UNUSED_PATIENCE;
        while self.is_bound() {
            if Instant::now() > deadline {
                return Err(ErrorKind::ResourceBusy.into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Where it is mounted, the first first.
    fn mounts(&self) -> io::Result<Vec<PathBuf>> {
        let number = rustix::fs::stat(&self.device)?.st_rdev;
        let number = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
        let table = std::fs::read_to_string("/proc/self/mountinfo")?;
        let points = table.lines().filter_map(|line| {
            let mut words = line.split(' ').skip(2);
            let is_own = words.next() == Some(number.as_str());
            is_own.then(|| words.nth(1)).flatten().map(unescaped)
        });
        Ok(points.collect())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if !self.is_released && self.is_bound() {
            // Whoever uses it gets errors until it lets go.
            let _ = losetup(&["--detach"], &self.device);
        }
    }
}

/// A path of the mount table, in which some bytes are written in octal (proc(5)).
fn unescaped(text: &str) -> PathBuf {
    let codes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    let path = codes
        .iter()
        .fold(text.to_owned(), |path, (code, byte)| path.replace(code, byte));
    path.into()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_mount_table_are_read() {
        assert_eq!(unescaped("/a\\040b\\134c"), Path::new("/a b\\c"));
    }
}
