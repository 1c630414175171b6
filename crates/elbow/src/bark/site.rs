//! The device or file that a region lies on, for one process at a time.

#![allow(
    clippy::disallowed_methods,
    reason = "the device of the region, opened and looked at"
)]

use std::fs::File;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use elbow_disk::SECTOR_BYTES;
use elbow_disk::region::{Identity, Region, probe};
use elbow_file::range_device::{FileDevice, FirstSectors};
use rustix::fs::{FallocateFlags, FlockOperation, SeekFrom, fallocate, flock};

/// How much larger a region is than its content, where nobody says. Records of one sector take two; the rest is what writes can choose from.
const FACTOR: u64 = 4;
/// Below, every write would have to move others.
pub(super) const FACTOR_MIN: u64 = 2;
pub(super) const FACTOR_MAX: u64 = 256;
/// Where file systems, partitions and volumes have what they are known by: at the beginning, and some at the end.
const LOOKED_AT_BYTES: u64 = 1 << 20;

/// The device that a region lies on.
pub(super) type Ground = FirstSectors<FileDevice>;

/// A device or file that nobody else has, as far as others keep to that.
pub(super) struct Site {
    path: PathBuf,
    /// Holds the lock.
    file: File,
    is_block_device: bool,
    bytes: u64,
}

/// What a new region is to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Of its content.
    pub(super) bytes: u64,
    pub(super) factor: Option<u64>,
}

impl Site {
    /// Opens it. A file is made where there is none, if there is something to put into it.
    pub(super) fn open(path: &Path, make: bool) -> Result<Self> {
        let name = path.display();
        let is_block_device = path.metadata().is_ok_and(|found| found.file_type().is_block_device());
        // Of a block device: not what is mounted, or another region has.
        let exclusive = if is_block_device { libc::O_EXCL } else { 0 };
        let mut options = File::options();
        options
            .read(true)
            .write(true)
            .create(make && !is_block_device)
            .truncate(false);
        let opened = options.custom_flags(exclusive | libc::O_NONBLOCK).open(path);
        let file = opened.with_context(|| match path.exists() {
            true => format!("cannot open {name}"),
            false => format!("{name} is not there; --size makes a region in a new file"),
        })?;
        ensure!(
            is_block_device || file.metadata()?.is_file(),
            "{name}: a region lies on a block device or an ordinary file"
        );
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| anyhow::anyhow!("{name}: another process has it, perhaps an attached region"))?;
        let bytes = rustix::fs::seek(&file, SeekFrom::End(0))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            is_block_device,
            bytes,
        })
    }

    pub(super) fn name(&self) -> String {
        let absolute = std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone());
        absolute.display().to_string()
    }

    /// The region that is there, if one is.
    pub(super) fn identity(&self) -> Result<Option<Identity>> {
        if self.bytes < 3 * SECTOR_BYTES {
            return Ok(None);
        }
        Ok(probe(self.device()?)?)
    }

    /// Finds the region that is there.
    pub(super) fn recover(&self, identity: Identity) -> Result<Region<Ground>> {
        let name = self.path.display();
        ensure!(
            u64::from(identity.sector_bytes) == SECTOR_BYTES,
            "{name}: a region of sectors of {} bytes; those of a block device have {SECTOR_BYTES}",
            identity.sector_bytes
        );
        ensure!(
            identity.logical_sectors < 1 << 48,
            "{name}: a log lies there, which is no block device"
        );
        let ground = FirstSectors::of(self.device()?, identity.sectors);
        Region::open(ground).with_context(|| format!("cannot recover the region on {name}"))
    }

    /// Makes a region; what was there is lost.
    pub(super) fn format(&mut self, wanted: Wanted) -> Result<Region<Ground>> {
        let bytes = self.reserve(wanted)?;
        let mut id = [0; 8];
        rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())?;
        let ground = FirstSectors::of(self.device()?, bytes / SECTOR_BYTES);
        let region = Region::format(ground, wanted.bytes / SECTOR_BYTES, u64::from_le_bytes(id));
        region.with_context(|| format!("cannot make a region on {}", self.path.display()))
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

    /// Sees to it that so much is there, and says how much the region takes.
    fn reserve(&mut self, wanted: Wanted) -> Result<u64> {
        let name = self.path.display();
        let size = wanted.bytes;
        ensure!(
            size.is_multiple_of(SECTOR_BYTES),
            "{size} bytes are no whole number of sectors of {SECTOR_BYTES}: say another --size"
        );
        let bytes = match (wanted.factor, self.bytes) {
            (Some(factor), _) => size.saturating_mul(factor),
            (None, 0) => size.saturating_mul(FACTOR),
            (None, bytes) => bytes,
        };
        ensure!(
            bytes / FACTOR_MIN >= size,
            "{name} has {bytes} bytes; a region of --size {size} needs at least {FACTOR_MIN} times that, better {FACTOR}"
        );
        if self.bytes < bytes {
            ensure!(
                !self.is_block_device,
                "{name} has {} bytes, and {bytes} are needed: say a smaller --size or --factor",
                self.bytes
            );
            self.grow(bytes)?;
        }
        Ok(bytes)
    }

    /// A file that has no blocks yet could find none later, when a commit waits for it.
    fn grow(&mut self, bytes: u64) -> Result<()> {
        let grown = match fallocate(&self.file, FallocateFlags::empty(), 0, bytes) {
            Err(rustix::io::Errno::OPNOTSUPP) => self.file.set_len(bytes),
            grown => grown.map_err(Into::into),
        };
        grown.with_context(|| format!("{}: cannot be made {bytes} bytes long", self.path.display()))?;
        self.bytes = bytes;
        Ok(())
    }

    fn device(&self) -> Result<FileDevice> {
        let opened = FileDevice::open(&self.path, SECTOR_BYTES as u32);
        opened.with_context(|| format!("cannot open {}", self.path.display()))
    }
}
