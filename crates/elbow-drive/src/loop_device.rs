//! A block device over a file of FUSE, by losetup(8): as root, and without a module of our own.
//!
//! The loop driver reads and writes past the page cache of the file (`--direct-io=on`); it has no forced unit access, so the kernel asks
//! for a flush after such a write.
//!
//! Anybody who is root may take a loop device away and give its number to another file: a device is touched only while its file is ours. After a power cut
//! the same device reads another file, and between has none; whoever then asks the kernel for a free one gets the lowest number. So ours has a high one.

#![allow(clippy::disallowed_methods, reason = "devices and tables of the kernel, not storage")]

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{IntegerSetter, NoArg, Opcode, ioctl, opcode};
use rustix::mount::{UnmountFlags, unmount};

use crate::mounts;

/// The kernel lets go of a device a moment after the last who used it.
const UNUSED_PATIENCE: Duration = Duration::from_secs(5);
/// And is busy for a moment after it has let go of the file.
const FREE_PATIENCE: Duration = Duration::from_millis(500);
/// What was unmounted just now may still be mounted where somebody has a mount namespace of their own, such as in a job that ends.
const IN_USE_PATIENCE: Duration = Duration::from_millis(500);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Numbers that nobody gets who asks for a free one, as long as there is a lower one.
const NUMBERS: Range<u32> = 64..1024;
/// How many of them are tried.
const TRIES: u32 = 8;
/// `LOOP_CLR_FD`, linux/loop.h.
const LOOP_CLR_FD: Opcode = 0x4C01;
/// `LOOP_CTL_REMOVE`, the same.
const LOOP_CTL_REMOVE: Opcode = opcode::none(b'L', 0x81);

#[derive(Debug)]
pub(crate) struct LoopDevice {
    device: PathBuf,
    /// As the kernel names it.
    file: PathBuf,
    /// The device may be somebody else's by now.
    is_released: bool,
}

impl LoopDevice {
    /// One that is free.
    pub(crate) fn over(file: &Path) -> io::Result<Self> {
        let added = numbers().find(|&number| is_free(number) && bind(&device_of(number), file).is_ok());
        let device = match added {
            Some(number) => device_of(number),
            // A container may have only the devices that it was given.
            None => PathBuf::from(losetup(&["--find", "--show", "--direct-io=on", "--"], file)?.trim()),
        };
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
        bind(&self.device, file)
    }

    /// Lets go of the file, and stores before what the system has of the device, if it takes that.
    ///
    /// # Errors
    /// It is in use, or cannot be stored: then it stays. If somebody opens it at the last moment, it goes when the last one closes it.
    pub(crate) fn release(&mut self, stores: bool) -> io::Result<()> {
        if self.is_ours() {
            if let Some(device) = self.open_alone()? {
                // As a file system does that is mounted: for itself alone.
                match rustix::fs::fsync(&device) {
                    Err(error) if stores => return Err(error.into()),
                    _ => drop(device),
                }
                self.unbind()?;
            }
            remove_loop_device(&self.device);
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
        match self.clear() {
            Ok(()) => self.wait_until_unbound(UNUSED_PATIENCE),
            // Who was refused before has asked for this already: it goes with its last user, who may have closed it just now.
            Err(error) => self.wait_until_unbound(UNUSED_PATIENCE).map_err(|_| error.into()),
        }
    }

    /// Asks the kernel to let go of our file: at once, or with the last user of the device. The device keeps its file as long as it is open
    /// here, so nobody else can have given it another one between the look and the request.
    fn clear(&self) -> rustix::io::Result<()> {
        let device = rustix::fs::open(&self.device, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        if !self.is_ours() {
            return Ok(());
        }
        // SAFETY: the call takes no argument.
        #[allow(unsafe_code)]
        unsafe {
            ioctl(&device, NoArg::<LOOP_CLR_FD>::new())
        }
    }

    fn is_ours(&self) -> bool {
        file_of_loop_device(&self.device).is_some_and(|file| file == self.file)
    }

    /// `None` where it has gone: who was refused before has asked for that already, and the last who had it open has closed it.
    fn open_alone(&self) -> io::Result<Option<OwnedFd>> {
        let flags = OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
        let deadline = Instant::now() + IN_USE_PATIENCE;
        loop {
            match rustix::fs::open(&self.device, flags, Mode::empty()) {
                Err(Errno::BUSY) if Instant::now() < deadline => std::thread::sleep(LOOK_AGAIN),
                // The kernel is letting go of it.
                Err(Errno::NXIO) => return self.wait_until_unbound(UNUSED_PATIENCE).map(|()| None),
                opened => return Ok(Some(opened?)),
            }
        }
    }

    fn wait_until_unbound(&self, patience: Duration) -> io::Result<()> {
        let deadline = Instant::now() + patience;
        while self.is_ours() {
            if Instant::now() > deadline {
                let message = "somebody has the block device open: it goes when the last one closes it";
                return Err(io::Error::new(ErrorKind::ResourceBusy, message));
            }
            std::thread::sleep(LOOK_AGAIN);
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
            let _ = self.clear();
            remove_loop_device(&self.device);
        }
    }
}

/// Of two processes each tries others first.
fn numbers() -> impl Iterator<Item = u32> {
    let (first, count) = (std::process::id(), NUMBERS.end - NUMBERS.start);
    (0..TRIES).map(move |n| NUMBERS.start + first.wrapping_add(n) % count)
}

fn device_of(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/loop{number}"))
}

fn is_free(number: u32) -> bool {
    !Path::new(&format!("/sys/block/loop{number}/loop/backing_file")).exists()
}

/// The device is made if it is not there.
fn bind(device: &Path, file: &Path) -> io::Result<()> {
    losetup(&["--direct-io=on", &device.display().to_string()], file).map(drop)
}

/// Takes back a loop device of one of the numbers that drives take; if another file has it by now, it stays.
pub fn remove_loop_device(device: &Path) {
    let number = device
        .to_str()
        .and_then(|path| path.strip_prefix("/dev/loop")?.parse().ok());
    let control = rustix::fs::open("/dev/loop-control", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let (Some(number), Ok(control)) = (number.filter(|number| NUMBERS.contains(number)), control) else {
        return;
    };
    let deadline = Instant::now() + FREE_PATIENCE;
    while is_free(number) && remove(&control, number) == Err(Errno::BUSY) && Instant::now() < deadline {
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn remove(control: &OwnedFd, number: u32) -> rustix::io::Result<()> {
    // SAFETY: the call takes a number, and no pointer.
    #[allow(unsafe_code)]
    unsafe {
        ioctl(control, IntegerSetter::<LOOP_CTL_REMOVE>::new_usize(number as usize))
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

/// All loop devices that read a file now.
#[must_use]
pub fn bound_loop_devices() -> Vec<PathBuf> {
    let all = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let devices = all.map(|entry| Path::new("/dev").join(entry.file_name()));
    devices.filter(|device| file_of_loop_device(device).is_some()).collect()
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

    fn is_root() -> bool {
        let is_root = rustix::process::geteuid().is_root();
        assert!(is_root || std::env::var_os("CI").is_none(), "loop devices need root");
        if !is_root {
            println!("SKIPPED: loop devices need root");
        }
        is_root
    }

    fn over_a_file() -> (tempfile::NamedTempFile, LoopDevice) {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let device = LoopDevice::over(file.path()).unwrap();
        (file, device)
    }

    /// Another process may have got the number in between: its device was taken away.
    #[test]
    fn a_device_that_has_another_file_by_now_is_left_alone() {
        if !is_root() {
            return;
        }
        let (_file, device) = over_a_file();
        let theirs = LoopDevice {
            device: device.path().to_owned(),
            file: PathBuf::from("/somewhere/else"),
            is_released: false,
        };
        theirs.clear().unwrap();
        theirs.unbind().unwrap();
        drop(theirs);
        assert!(device.is_ours());
    }

    /// A detach that was refused lets the device go with its last user. Where that was the look of the next detach whether it is unused, losetup(8) found none:
    /// "detach failed: No such device or address".
    #[test]
    fn a_device_that_has_gone_meanwhile_is_let_go_of() {
        if !is_root() {
            return;
        }
        let (_file, device) = over_a_file();
        losetup(&["--detach"], device.path()).unwrap();
        device.unbind().unwrap();
        assert!(!device.is_ours());
    }

    #[test]
    fn a_device_that_stays_in_use_is_said_to_be_until_its_last_user_has_gone() {
        if !is_root() {
            return;
        }
        let (_file, mut device) = over_a_file();
        let user = std::fs::File::open(device.path()).unwrap();
        let refused = device.release(true).unwrap_err();
        assert!(refused.to_string().contains("open"), "{refused}");
        assert!(device.is_ours());
        drop(user);
        device.release(true).unwrap();
        assert!(!device.is_ours());
    }
}
