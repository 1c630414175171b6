//! A device or file that a region lies on, for one process at a time.

#![allow(
    clippy::disallowed_methods,
    reason = "the device of the region, opened and looked at"
)]

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use elbow_disk::SECTOR_BYTES;
use elbow_disk::profile::{Identity, ProfiledDevice};
use elbow_disk::region::{HEADER_SECTORS, least_sectors_shared};
use elbow_file::range_device::{Blocking, FileDevice, RangeDevice, ThreadedDevice};
use elbow_file::zoned::is_zoned;
use rustix::fs::{FallocateFlags, FlockOperation, SeekFrom, fallocate, flock};
use rustix::io::Errno;

use super::placement::NamedProfile;
use crate::output::print_message;

/// A device of any kind.
pub(super) type Device = Box<dyn RangeDevice + Send>;

/// How much larger a region is than its content, where nobody says. Records of one sector take two; the rest is what writes can choose from.
const FACTOR: u64 = 4;
/// Below, there is no room for the content; [`least_sectors_shared`] are a little more.
pub(super) const FACTOR_MIN: u64 = 2;
pub(super) const FACTOR_MAX: u64 = 256;
/// Requests that one of several devices has in flight; more than a log has between two flushes gain nothing.
const THREADS: usize = 4;
/// Where file systems, partitions and volumes have what they are known by: at the beginning, and some at the end.
const LOOKED_AT_BYTES: u64 = 1 << 20;

/// A device or file that nobody else has, as far as others keep to that.
pub(super) struct LockedDevice {
    path: PathBuf,
    /// Holds the lock.
    file: File,
    is_block_device: bool,
    bytes: u64,
    /// Made by us, and of no use yet: then it goes with this.
    is_new: bool,
    /// By which the places of records are chosen; without one the first free place is taken.
    profile: Option<NamedProfile>,
}

/// What a new region is to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewRegion {
    /// Of its content.
    pub(super) bytes: u64,
    pub(super) factor: Option<u64>,
    /// Devices that share it, at least 1.
    pub(super) sharing: u64,
}

impl NewRegion {
    /// Refuses what cannot be, whatever it is to lie on.
    pub(super) fn check(&self) -> Result<()> {
        let size = self.bytes;
        ensure!(
            size > 0 && size.is_multiple_of(SECTOR_BYTES),
            "{size} bytes are no whole number of sectors of {SECTOR_BYTES}: say another --size"
        );
        match self.factor {
            Some(factor) => self.check_room(size.saturating_mul(factor), "--factor gives"),
            None => Ok(()),
        }
    }

    /// Of the whole region.
    fn least_bytes(&self) -> u64 {
        least_sectors_shared(self.bytes / SECTOR_BYTES, self.sharing).saturating_mul(SECTOR_BYTES)
    }

    fn check_room(&self, bytes: u64, what: &str) -> Result<()> {
        let (size, least) = (self.bytes, self.least_bytes());
        let better = size.saturating_mul(FACTOR).max(least);
        ensure!(
            bytes >= least,
            "{what} {bytes} bytes; a region of --size {size} needs at least {least}, better {better}"
        );
        Ok(())
    }
}

impl LockedDevice {
    /// Opens it. A file is made where there is none, if there is something to put into it; it is there for good when it is
    /// [kept](Self::keep).
    pub(super) fn open(path: &Path, make: bool) -> Result<Self> {
        let name = path.display();
        let is_block_device = path.metadata().is_ok_and(|found| found.file_type().is_block_device());
        let (file, is_made) = match open(path, is_block_device) {
            Err(error) if error.kind() == ErrorKind::NotFound && make => {
                (create(path).with_context(|| format!("cannot make {name}"))?, true)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let absent = anyhow::Error::new(error);
                return Err(absent.context(format!("{name} is not there; --size makes a region in a new file")));
            }
            opened => (opened.with_context(|| format!("cannot open {name}"))?, false),
        };
        let kind = file.metadata()?.file_type();
        ensure!(
            if is_block_device {
                kind.is_block_device()
            } else {
                kind.is_file()
            },
            "{name}: a region lies on a block device or an ordinary file"
        );
        ensure!(
            !is_block_device || !is_zoned(&file),
            "{name} is zoned: it frees whole zones, and a region single sectors; `elbow bark log` keeps a log there"
        );
        let opened = Self {
            path: path.to_owned(),
            file,
            is_block_device,
            bytes: 0,
            is_new: false,
            profile: None,
        };
        opened.locked(is_made)
    }

    /// For nobody else. It is ours to remove if we made it, and no other had locked it by then.
    fn locked(mut self, is_made: bool) -> Result<Self> {
        let name = self.path.display();
        match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => bail!("{name}: another process has it, perhaps an attached region"),
            locked => locked.with_context(|| format!("{name}: cannot be locked"))?,
        }
        // Its maker may have removed it meanwhile, or somebody put another in its place.
        let named = self.path.metadata().with_context(|| format!("cannot open {name}"))?;
        ensure!(
            self.is(&named)?,
            "{name}: another file has its name by now; try it again"
        );
        self.is_new = is_made;
        self.bytes = rustix::fs::seek(&self.file, SeekFrom::End(0))?;
        Ok(self)
    }

    /// What was made stays.
    pub(super) fn keep(&mut self) {
        self.is_new = false;
    }

    pub(super) fn name(&self) -> String {
        let absolute = std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone());
        absolute.display().to_string()
    }

    /// Refuses where something lies there.
    pub(super) fn check_blank(&self) -> Result<()> {
        let looked_at = LOOKED_AT_BYTES.min(self.bytes);
        for start in [0, self.bytes - looked_at] {
            let mut bytes = vec![0; looked_at as usize];
            self.file.read_exact_at(&mut bytes, start)?;
            if bytes.iter().any(|&byte| byte != 0) {
                let name = self.path.display();
                bail!(
                    "{name}: no region, and not empty: something lies there. `elbow bark format --force` makes a region of it, and what is there is lost"
                );
            }
        }
        Ok(())
    }

    /// How large it is.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Sees to it that there is room for its part of a region, and says how many sectors that takes.
    pub(super) fn reserve(&mut self, new: NewRegion) -> Result<u64> {
        new.check()?;
        let name = self.path.display().to_string();
        let part = |bytes: u64| bytes.div_ceil(new.sharing).next_multiple_of(SECTOR_BYTES);
        let bytes = match (new.factor, self.bytes) {
            (Some(factor), _) => part(new.bytes.saturating_mul(factor)),
            (None, 0) => part(new.bytes.saturating_mul(FACTOR).max(new.least_bytes())),
            (None, bytes) => bytes,
        };
        new.check_room(
            bytes.saturating_mul(new.sharing),
            &format!("{name}, with those that share it, has"),
        )?;
        match self.is_block_device {
            true => ensure!(
                self.bytes >= bytes,
                "{name} has {} bytes, and {bytes} are needed: say a smaller --size or --factor",
                self.bytes
            ),
            false => self.allocate(bytes)?,
        }
        Ok(bytes / SECTOR_BYTES)
    }

    /// A file that has no blocks yet, or holes, could find none later, when a commit waits for it.
    fn allocate(&mut self, bytes: u64) -> Result<()> {
        let name = self.path.display();
        let allocated = match fallocate(&self.file, FallocateFlags::empty(), 0, bytes) {
            Err(Errno::OPNOTSUPP) => {
                print_message(format_args!(
                    "{name}: its file system sets no room aside: when it is full, the region fails"
                ));
                match self.bytes < bytes {
                    true => self.file.set_len(bytes),
                    false => Ok(()),
                }
            }
            allocated => allocated.map_err(Into::into),
        };
        allocated.with_context(|| format!("{name}: cannot be made {bytes} bytes long"))?;
        self.bytes = self.bytes.max(bytes);
        Ok(())
    }

    /// Removes by what something else would be known in the first sectors, which become a region. On the device that `has_headers` those stay until the
    /// new ones are written: their number goes into it.
    pub(super) fn wipe(&self, sectors: u64, has_headers: bool) -> Result<()> {
        let looked_at = LOOKED_AT_BYTES / SECTOR_BYTES;
        let begin = if has_headers { HEADER_SECTORS } else { 0 };
        let first = begin..looked_at.min(sectors);
        let has_end = sectors == self.bytes / SECTOR_BYTES;
        let last = if has_end {
            sectors.saturating_sub(looked_at).max(first.end)
        } else {
            sectors
        }..sectors;
        let mut device = Blocking::new(self.device()?);
        for range in [first, last] {
            if !range.is_empty() {
                let zeros = vec![0; ((range.end - range.start) * SECTOR_BYTES) as usize];
                device.write(range.start, &zeros)?;
            }
        }
        Ok(device.flush()?)
    }

    /// The name of a new file is there after a power cut.
    pub(super) fn sync_name(&self) -> io::Result<()> {
        if !self.is_new {
            return Ok(());
        }
        let path = std::path::absolute(&self.path)?;
        File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
    }

    /// The very file that is locked, whatever has its name by now.
    fn locked_path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }

    /// Has the places of its records chosen by a profile, which is refused where it is of another drive.
    pub(super) fn place_by(&mut self, profile: NamedProfile) -> Result<()> {
        let found = Identity::of(&self.locked_path())?;
        profile.check(&found, &self.path)?;
        self.profile = Some(profile);
        Ok(())
    }

    /// For records, by its profile if it has one: alone, or as one of several.
    pub(super) fn for_records(&self, is_alone: bool) -> Result<Device> {
        match is_alone {
            true => self.placed(self.device()?),
            false => self.placed(self.threaded()?),
        }
    }

    fn placed<D: RangeDevice + Send + 'static>(&self, device: D) -> Result<Device> {
        let Some(profile) = &self.profile else {
            return Ok(Box::new(device));
        };
        let placed = ProfiledDevice::new(device, profile.profile());
        Ok(Box::new(placed.with_context(|| profile.name())?))
    }

    /// For one process that asks for one thing after the other.
    pub(super) fn device(&self) -> Result<FileDevice> {
        let opened = FileDevice::open(&self.locked_path(), SECTOR_BYTES as u32);
        opened.with_context(|| format!("cannot open {}", self.path.display()))
    }

    /// With requests in flight, so that others are not waited for.
    fn threaded(&self) -> Result<ThreadedDevice> {
        let opened = ThreadedDevice::open(&self.locked_path(), SECTOR_BYTES as u32, THREADS);
        opened.with_context(|| format!("cannot open {}", self.path.display()))
    }

    /// Whether its name is still that of this file.
    fn has_its_name(&self) -> bool {
        let named = self.path.symlink_metadata();
        named.is_ok_and(|named| self.is(&named).unwrap_or(false))
    }

    fn is(&self, named: &Metadata) -> io::Result<bool> {
        let ours = self.file.metadata()?;
        Ok((ours.dev(), ours.ino()) == (named.dev(), named.ino()))
    }
}

impl Drop for LockedDevice {
    fn drop(&mut self) {
        if self.is_new && self.has_its_name() {
            // Nothing is lost where that fails: it is an empty region.
            let _ = std::fs::remove_file(&self.path);
        }
        // Not by closing it alone: a child process that is just being started has a copy of it, and with that the lock.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

fn open(path: &Path, is_block_device: bool) -> io::Result<File> {
    // Of a block device: not what is mounted, or another region has.
    let exclusive = if is_block_device { libc::O_EXCL } else { 0 };
    let mut options = File::options();
    options.read(true).write(true);
    options.custom_flags(exclusive | libc::O_NONBLOCK).open(path)
}

/// For its user alone: who reads a journal reads files that he may not.
fn create(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use elbow_disk::region::{Region, probe};
    use elbow_file::range_device::RangeDevice;

    use super::*;

    /// It was opened a second time by its name: then the lock was on one file and the region on another.
    #[test]
    fn what_was_locked_and_looked_at_is_what_is_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, moved) = (directory.path().join("region"), directory.path().join("moved"));
        let mut locked = LockedDevice::open(&path, true).expect("it is made");
        std::fs::rename(&path, &moved).expect("it is renamed");
        let other = vec![7; 8 << 20];
        std::fs::write(&path, &other).expect("it writes");
        let new = NewRegion {
            bytes: 1 << 20,
            factor: None,
            sharing: 1,
        };
        let sectors = locked.reserve(new).expect("there is room");
        locked.wipe(sectors, true).expect("it writes");
        let region = Region::format(locked.device().expect("it opens"), 1 << 11, 7);
        drop(region.expect("a region"));
        assert_eq!(locked.threaded().expect("it opens").shape().sectors, sectors);
        drop(locked);
        assert!(
            std::fs::read(&path).expect("it reads") == other,
            "nobody has looked at that"
        );
        let locked = LockedDevice::open(&moved, false).expect("it opens");
        assert!(probe(locked.device().expect("it opens")).expect("it reads").is_some());
    }
    /// It was removed with the region that the other had begun to make there.
    #[test]
    fn who_loses_the_race_for_a_new_file_leaves_it_to_the_winner() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("region");
        let opened = |file| LockedDevice {
            path: path.clone(),
            file,
            is_block_device: false,
            bytes: 0,
            is_new: false,
            profile: None,
        };
        let made = opened(create(&path).expect("it is made"));
        let winner = LockedDevice::open(&path, true).expect("nobody has locked it");
        let Err(error) = made.locked(true) else {
            panic!("two have it")
        };
        assert!(error.to_string().contains("another process has it"), "{error}");
        assert!(path.exists(), "the winner's file");
        // One that the loser has opened, and the winner removes before it is locked.
        let late = opened(open(&path, false).expect("it opens"));
        std::fs::remove_file(&path).expect("it is removed");
        drop(winner);
        assert!(late.locked(false).is_err(), "a file without a name");
        let late = opened(create(&path).expect("it is made"));
        std::fs::rename(&path, directory.path().join("moved")).expect("it is moved");
        std::fs::write(&path, b"another").expect("it writes");
        let Err(error) = late.locked(true) else {
            panic!("another file has its name")
        };
        assert!(error.to_string().contains("another file"), "{error}");
        assert!(path.exists(), "it is not ours");
    }
}
