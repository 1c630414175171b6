//! A device or file that a region lies on, for one process at a time.

#![allow(
    clippy::disallowed_methods,
    reason = "the device of the region, opened and looked at"
)]

use std::fs::File;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use elbow_disk::SECTOR_BYTES;
use elbow_file::range_device::{FileDevice, ThreadedDevice};
use rustix::fs::{FallocateFlags, FlockOperation, SeekFrom, fallocate, flock};

/// How much larger a region is than its content, where nobody says. Records of one sector take two; the rest is what writes can choose from.
const FACTOR: u64 = 4;
/// Below, every write would have to move others.
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

impl LockedDevice {
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
        let name = self.path.display();
        let size = new.bytes;
        ensure!(
            size.is_multiple_of(SECTOR_BYTES),
            "{size} bytes are no whole number of sectors of {SECTOR_BYTES}: say another --size"
        );
        let part = |factor: u64| {
            size.saturating_mul(factor)
                .div_ceil(new.sharing)
                .next_multiple_of(SECTOR_BYTES)
        };
        let bytes = match (new.factor, self.bytes) {
            (Some(factor), _) => part(factor),
            (None, 0) => part(FACTOR),
            (None, bytes) => bytes,
        };
        ensure!(
            bytes.saturating_mul(new.sharing) / FACTOR_MIN >= size,
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
        Ok(bytes / SECTOR_BYTES)
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

    /// For one process that asks for one thing after the other.
    pub(super) fn device(&self) -> Result<FileDevice> {
        let opened = FileDevice::open(&self.path, SECTOR_BYTES as u32);
        opened.with_context(|| format!("cannot open {}", self.path.display()))
    }

    /// With requests in flight, so that others are not waited for.
    pub(super) fn threaded(&self) -> Result<ThreadedDevice> {
        let opened = ThreadedDevice::open(&self.path, SECTOR_BYTES as u32, THREADS);
        opened.with_context(|| format!("cannot open {}", self.path.display()))
    }
}
