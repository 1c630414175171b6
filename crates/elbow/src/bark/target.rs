//! What is measured is written to: so it must be nobody's.

#![allow(
    clippy::disallowed_methods,
    reason = "a device or file that is measured, and what the system says about it"
)]

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use elbow_drive::{LoopAnswer, LoopFile, bound_loop_devices, device_below, file_of_loop_device, files_of_loop_devices};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::size;

/// Where file systems, partition tables and arrays keep what they are known by, at both ends.
const ENDS_BYTES: u64 = 1 << 20;
/// A file system that takes longer to tell the number of a file does not answer.
const LOOP_DEVICE_PATIENCE: Duration = Duration::from_secs(2);
/// Bytes that are read at a time.
const PIECE: usize = 1 << 20;

/// A device or file that nobody else uses while this is there.
pub(super) struct Target {
    path: PathBuf,
    /// Of a block device the kernel lets nobody mount it, or make it part of something, while this is open.
    file: File,
}

impl Target {
    /// Refuses what is mounted, or part of something that is.
    pub(super) fn claim(path: &Path) -> Result<Self> {
        let shown = path.display();
        let found = fs::metadata(path).with_context(|| format!("cannot read {shown}"))?;
        if !found.file_type().is_file() && !found.file_type().is_block_device() {
            bail!("cannot measure {shown}: it is neither a regular file nor a block device");
        }
        not_behind_a_loop_device(path, &found)?;
        let file = open(path, &found)?;
        let opened = file.metadata().with_context(|| format!("cannot measure {shown}"))?;
        if (opened.dev(), opened.ino()) != (found.dev(), found.ino()) {
            bail!("{shown} became another file just now; nothing was written");
        }
        if opened.file_type().is_block_device() && elbow_file::zoned::is_zoned(&file) {
            bail!(
                "cannot measure {shown}: it is zoned, and takes writes in order only; `elbow bark log` keeps a log there"
            );
        }
        // A region that is attached, or an emulated drive, has its file locked.
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => bail!("{shown} is in use: another process has it locked"),
            locked => locked.with_context(|| format!("cannot lock {shown}"))?,
        }
        let path = path.to_owned();
        Ok(Self { path, file })
    }

    /// Another name of what was looked at and locked, whatever becomes of the first.
    pub(super) fn opened(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }

    /// Whether a path leads to it.
    pub(super) fn is(&self, path: &Path) -> io::Result<bool> {
        let own = self.file.metadata()?;
        Ok(fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == (own.dev(), own.ino())))
    }

    /// Refuses one that has anything but zeros in these bytes, or at its ends.
    pub(super) fn check_empty(&self, area: &Range<u64>, bytes: u64) -> Result<()> {
        let head = 0..ENDS_BYTES.min(bytes);
        let tail = bytes.saturating_sub(ENDS_BYTES)..bytes;
        for range in [head, area.clone(), tail] {
            if let Some(at) = self.first_content(&range)? {
                bail!(
                    "{} has content, at byte {at}; profile writes zeros over its first {} (--overwrite if that may be lost)",
                    self.path.display(),
                    size::show(area.end)
                );
            }
        }
        Ok(())
    }

    /// The first byte that is not zero.
    fn first_content(&self, range: &Range<u64>) -> Result<Option<u64>> {
        let mut piece = vec![0; PIECE];
        let mut at = range.start;
        while at < range.end {
            let wanted = piece.len().min((range.end - at) as usize);
            let read = self.file.read_at(&mut piece[..wanted], at);
            let read = match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other.with_context(|| format!("cannot read {} at byte {at}", self.path.display()))?,
            };
            if let Some(found) = piece[..read].iter().position(|&byte| byte != 0) {
                return Ok(Some(at + found as u64));
            }
            if read == 0 {
                break;
            }
            at += read as u64;
        }
        Ok(None)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // Not by closing it alone: a child process that is just being started has a copy of it, and with that the lock.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

fn open(path: &Path, found: &Metadata) -> Result<File> {
    let shown = path.display();
    let is_device = found.file_type().is_block_device();
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | if is_device { libc::O_EXCL } else { 0 })
        .open(path);
    opened.map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => anyhow::anyhow!("{shown} is in use: {}", use_of(path)),
        _ => anyhow::Error::from(error).context(format!("cannot open {shown} to write to it")),
    })
}

/// Who uses a block device, as far as the table of mounts tells.
fn use_of(path: &Path) -> String {
    let device = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let place = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let source = fields.next()?;
        (Path::new(source) == device).then(|| fields.next().unwrap_or_default().to_owned())
    });
    match place {
        Some(place) => format!("it is mounted at {place}; unmount it, or measure another"),
        None => "it, or a part of it, is mounted, swapped to or part of another device".to_owned(),
    }
}

/// What is the content of a loop device may be mounted through that, by whatever name the kernel knows it.
///
/// The devices are asked, which know their files when these have lost their names, or have none here. Where one cannot be asked, its file is looked at by
/// its name, but on no other file system than that of what is to be measured, which has just answered: others may never do so.
fn not_behind_a_loop_device(path: &Path, found: &Metadata) -> Result<()> {
    let is_same = |file: &LoopFile| match found.file_type().is_block_device() {
        true => file.rdev == found.rdev(),
        false => (file.dev, file.ino) == (found.dev(), found.ino()),
    };
    let own = fs::canonicalize(path)
        .and_then(|path| device_below(&path))
        .unwrap_or_default();
    let is_near = |file: &Path| own.is_some() && device_below(file).is_ok_and(|device| device == own);
    let devices = bound_loop_devices();
    let answers = files_of_loop_devices(&devices, LOOP_DEVICE_PATIENCE);
    for (device, answer) in devices.iter().zip(answers) {
        let (shown, device_shown) = (path.display(), device.display());
        let named = || file_of_loop_device(device).filter(|file| is_near(file));
        let is_its_content = match answer {
            LoopAnswer::File(file) => is_same(&file),
            LoopAnswer::Refused => named()
                .and_then(|file| looked_at(&file))
                .is_some_and(|file| is_same(&file)),
            LoopAnswer::Silent if named().is_some() => {
                bail!("cannot measure {shown}: {device_shown} does not say whether this is its content; detach it")
            }
            LoopAnswer::Silent => false,
        };
        if is_its_content {
            bail!("{shown} is in use: it is the content of {device_shown}; measure that, or detach it");
        }
    }
    Ok(())
}

fn looked_at(file: &Path) -> Option<LoopFile> {
    let (dev, ino, rdev) = fs::metadata(file)
        .map(|file| (file.dev(), file.ino(), file.rdev()))
        .ok()?;
    Some(LoopFile { dev, ino, rdev })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_found_wherever_it_lies() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let bytes = 8 << 20;
        file.as_file().set_len(bytes).expect("it grows");
        let check = || {
            Target::claim(file.path())
                .expect("nobody's")
                .check_empty(&(0..4 << 20), bytes)
        };
        check().expect("zeros");
        for at in [0, (4 << 20) - 1, bytes - 1] {
            file.as_file().write_all_at(&[1], at).expect("it is written");
            let refused = check().expect_err("it has content").to_string();
            assert!(refused.contains(&format!("at byte {at};")), "{refused}");
            file.as_file().write_all_at(&[0], at).expect("it is written");
        }
        file.as_file().write_all_at(&[1], 5 << 20).expect("it is written");
        check().expect("neither in the area nor at an end");
    }
}
