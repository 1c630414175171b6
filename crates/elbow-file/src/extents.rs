//! Where a file has data and where it has holes, as the file system says.
//!
//! Invariants: extents come in order, touch each other, are not empty and cover the file from 0 to the size that it had
//! when it was asked. A file system may call data what reads as zeros (one without holes says that all is data), never
//! the other way round. Blocks that are reserved but were never written (fallocate(2)) are holes here, though they take
//! room: [`Extents::allocated_bytes`] counts them.
//!
//! Source: lseek(2), SEEK_DATA and SEEK_HOLE.

#![allow(
    clippy::disallowed_methods,
    reason = "this is the edge that the rule keeps everybody else behind"
)]

use std::io;
use std::ops::Range;
use std::os::fd::AsFd;

use rustix::fs::SeekFrom;
use rustix::io::retry_on_intr;

use crate::stat::regular;
use crate::{Errno, Handle, RealStorage, Result, Storage};

/// What stands behind a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExtentKind {
    /// Blocks with data.
    Data,
    /// Nothing; it reads as zeros.
    Hole,
}

/// A range of a file of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Bytes `[start, end)` of the file.
    pub range: Range<u64>,
    /// What stands behind them.
    pub kind: ExtentKind,
}

/// The extents of an open file, in order. `O(1)` memory; one or two system calls per extent.
///
/// Asking moves the file offset (there is no other way), so give it a descriptor whose offset nobody needs.
///
/// ```
/// use elbow_file::{Extent, ExtentKind, Extents};
///
/// let file = tempfile::tempfile()?;
/// elbow_file::zero_at(&file, 0, 10 << 20)?; // past the end: extends the file
/// let extents = Extents::of(&file)?;
/// assert_eq!(extents.size_bytes(), 10 << 20);
/// let holes = extents.filter(|extent| extent.as_ref().is_ok_and(|extent| extent.kind == ExtentKind::Hole));
/// println!("{} holes", holes.count());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Extents<F> {
    file: F,
    at: u64,
    size_bytes: u64,
    allocated_bytes: u64,
}

impl<F: AsFd> Extents<F> {
    /// Asks for the extents of a regular file.
    ///
    /// # Errors
    /// EISDIR, ESPIPE, ENODEV: a directory, a pipe or socket, a device; others are those of fstat(2).
    pub fn of(file: F) -> io::Result<Self> {
        Ok(Self::new(file)?)
    }

    pub(crate) fn new(file: F) -> Result<Self> {
        let stat = Handle::lent(file.as_fd(), |handle| RealStorage.stat_handle(handle))?;
        regular(stat.kind)?;
        Ok(Self {
            file,
            at: 0,
            size_bytes: stat.size,
            allocated_bytes: stat.blocks.saturating_mul(512),
        })
    }

    /// Size of the file when it was asked.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Bytes that the file took on the disk when it was asked: `st_blocks`, which also counts reserved blocks and what the
    /// file system needs beside the data.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes
    }

    pub(crate) fn step(&mut self) -> Option<Result<Extent>> {
        if self.at >= self.size_bytes {
            return None;
        }
        let found = self.look();
        // After an error there is no telling where to go on.
        self.at = found.as_ref().map_or(self.size_bytes, |extent| extent.range.end);
        Some(found)
    }

    fn seek(&self, to: SeekFrom) -> Result<u64> {
        match retry_on_intr(|| rustix::fs::seek(&self.file, to)) {
            Err(Errno::NXIO) => Ok(self.size_bytes), // no more of it, or truncated meanwhile
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(match to {
                SeekFrom::Data(at) => at, // a file system that knows no holes: all is data
                _ => self.size_bytes,
            }),
            found => found.map(|found| found.min(self.size_bytes)),
        }
    }

    fn look(&self) -> Result<Extent> {
        let data = self.seek(SeekFrom::Data(self.at))?;
        if data > self.at {
            return Ok(Extent {
                range: self.at..data,
                kind: ExtentKind::Hole,
            });
        }
        let hole = self.seek(SeekFrom::Hole(self.at))?;
        Ok(Extent {
            // A hole that was made after we had seen data is called data, as of then.
            range: self.at..hole.max(self.at + 1),
            kind: ExtentKind::Data,
        })
    }
}

impl<F: AsFd> Iterator for Extents<F> {
    type Item = io::Result<Extent>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().map(|found| Ok(found?))
    }
}

impl<F: AsFd> std::iter::FusedIterator for Extents<F> {}

/// The runs of data in a range, at most so many of them and then the rest as one. Leaves the file offset where it was, but for
/// whoever uses it at the same time.
pub(crate) fn data_runs(
    storage: &dyn Storage,
    file: &Handle,
    range: Range<u64>,
    runs_max: usize,
) -> Result<Vec<Range<u64>>> {
    let place = rustix::fs::tell(file)?;
    let runs = runs_in(storage, file, range, runs_max);
    rustix::fs::seek(file, SeekFrom::Start(place))?;
    runs
}

fn runs_in(storage: &dyn Storage, file: &Handle, range: Range<u64>, runs_max: usize) -> Result<Vec<Range<u64>>> {
    let mut runs = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let run = match storage.next_data(file, at) {
            _ if runs.len() == runs_max => at..range.end,
            Ok(None) => break,
            Ok(Some((start, _))) if start >= range.end => break,
            Ok(Some((start, end))) => start..end.clamp(start + 1, range.end),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => at..range.end,
            Err(errno) => return Err(errno),
        };
        at = run.end;
        runs.push(run);
    }
    Ok(runs)
}
