//! Written data beyond the memory budget: an unlinked file on local scratch whose free parts are punched.
//!
//! The allocator is a [`RangeSet`] of free ranges below the end of the file; first fit, else at the end.

#![allow(clippy::disallowed_methods, reason = "local scratch, not the storage of a job")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use elbow_ranges::RangeSet;
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, Mode, OFlags};

/// The spill file of a job.
#[derive(Debug)]
pub(crate) struct SpillFile {
    file: File,
    limit: u64,
    space: Mutex<Space>,
}

#[derive(Debug, Default)]
struct Space {
    free: RangeSet,
    end: u64,
    used: u64,
}

/// A range of the spill file, freed with its last holder.
#[derive(Debug)]
struct Extent {
    file: Arc<SpillFile>,
    start: u64,
    length: u64,
}

impl Drop for Extent {
    fn drop(&mut self) {
        self.file.free(self.start, self.length);
    }
}

/// Bytes in the spill file.
#[derive(Clone, Debug)]
pub(crate) struct Spilled {
    extent: Arc<Extent>,
    offset: u64,
}

impl Spilled {
    pub(crate) fn slice(&self, start: u64, _end: u64) -> Self {
        Self {
            extent: self.extent.clone(),
            offset: self.offset + start,
        }
    }

    pub(crate) fn same_extent(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.extent, &other.extent)
    }

    pub(crate) fn read(&self, buffer: &mut [u8], at: u64) -> std::io::Result<()> {
        self.extent.file.file.read_exact_at(buffer, self.offset + at)
    }
}

/// Makes sure that written data can be spilled to a directory: a file of the right kind is made there, and gone again.
///
/// # Errors
/// Those of open(2) and unlink(2).
pub fn check_scratch(directory: &Path) -> std::io::Result<()> {
    SpillFile::create(directory, 0).map(drop)
}

impl SpillFile {
    /// An unlinked file in `directory` that holds at most `limit` bytes.
    pub(crate) fn create(directory: &Path, limit: u64) -> std::io::Result<Arc<Self>> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = match rustix::fs::open(directory, flags, Mode::from_raw_mode(0o600)) {
            Ok(fd) => File::from(fd),
            Err(_) => unlinked_file(directory)?,
        };
        Ok(Arc::new(Self {
            file,
            limit,
            space: Mutex::default(),
        }))
    }

    /// Writes bytes to a free place; `None` when the limit or the scratch space is used up.
    pub(crate) fn write(self: &Arc<Self>, bytes: &[u8]) -> Option<Spilled> {
        let length = bytes.len() as u64;
        let start = self.allocate(length)?;
        let extent = Extent {
            file: self.clone(),
            start,
            length,
        };
        self.file.write_all_at(bytes, start).ok()?;
        Some(Spilled {
            extent: Arc::new(extent),
            offset: start,
        })
    }

    fn allocate(&self, length: u64) -> Option<u64> {
        let mut space = self.space.lock();
        if space.used + length > self.limit {
            return None;
        }
        let start = space.free.first_fit(length).unwrap_or(space.end);
        space.free.remove(start, start + length);
        space.end = space.end.max(start + length);
        space.used += length;
        Some(start)
    }

    fn free(&self, start: u64, length: u64) {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // A scratch file system without holes keeps the space until the file is closed.
        let _ = rustix::fs::fallocate(&self.file, punch, start, length);
        let mut space = self.space.lock();
        space.free.insert(start, start + length);
        space.used -= length;
    }
}

fn unlinked_file(directory: &Path) -> std::io::Result<File> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    let path = directory.join(format!(".elbow-spill-{}-{:p}", std::process::id(), &raw const flags));
    let fd = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600))?;
    rustix::fs::unlink(&path)?;
    Ok(File::from(fd))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A job with a scratch directory that was not there never spilled, and said nothing.
    #[test]
    fn a_scratch_directory_is_looked_at_and_left_empty() {
        let directory = tempfile::tempdir().expect("a directory");
        check_scratch(directory.path()).expect("a directory of ours");
        assert_eq!(std::fs::read_dir(directory.path()).expect("the directory").count(), 0);
        let error = check_scratch(&directory.path().join("nowhere")).expect_err("it is not there");
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    }
}
