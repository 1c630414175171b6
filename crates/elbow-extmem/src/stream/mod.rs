//! Streams of records on disk: written once, read in order, and freed while they are read for the last time.
//!
//! ```text
//!   Scratch --writer()--> Writer --finish()--> Stream --read()-----> Reader   keeps what it reads
//!                                              Stream --consume()--> Reader   frees what it has read
//! ```
//!
//! A stream is an unnamed file: it is gone with its last user, or with the process. Readers and writers do their input
//! and output on a thread of their own, two blocks ahead; a consuming reader frees there too, block by block. All of
//! them take their blocks from one [`MemoryBudget`].
//!
//! Blocks go past the page cache, where that is possible, each in one write: xfs then allocates no more than is written, and btrfs, which
//! frees whole extents only, has an extent for each. There a reader also asks for a sync now and then, because what was freed
//! can be used after one, and not before.
//!
//! Operations are functions from streams to streams: [`Stream::map`], [`Stream::filter`], [`Stream::distribute`],
//! [`concatenate`], [`merge`], [`Stream::sort`]. They consume their inputs, so that records are on disk once.
//!
//! Source: Vengroff & Kotz, *A Holesome File System*, section 4.3; Vengroff, *A Transparent Parallel I/O Environment*
//! (TPIE).

mod budget;
mod operations;
mod reader;
mod variable;
mod writer;

use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::Pod;
use elbow_file::{DIRECT_ALIGNMENT, Errno, Handle, Storage};

pub use budget::{MemoryBudget, Reservation};
pub use operations::{concatenate, merge};
pub use reader::Reader;
pub use variable::{BytesReader, BytesStream, BytesWriter};
pub use writer::Writer;

use crate::sort::{Buffer, Result, buffer, failed};
use crate::uncached::Uncached;

/// A block is read, written and freed at a time: long enough that the calls cost little.
const BLOCK_BYTES: usize = 1 << 20;
/// A reader or writer has one block in hand and the others under way.
const BLOCKS: usize = 3;
/// Where freed space can be used after a sync only, a reader asks for one once per this part of its stream, at least so many
/// bytes: a sync is everybody's.
const SYNCS_MAX: u64 = 16;
const SYNC_BYTES_MIN: u64 = 16 << 20;
const MODE: u32 = 0o600;

/// Where streams live: a directory of a storage, and the memory for their blocks.
#[derive(Clone)]
pub struct Scratch {
    storage: Arc<dyn Storage>,
    dir: Handle,
    path: PathBuf,
    budget: MemoryBudget,
    progress: Option<Arc<dyn Fn(u64) + Send + Sync>>,
}

impl Scratch {
    /// Streams in `dir` (called `path` in errors), whose blocks are taken from `budget`.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use elbow_extmem::stream::{MemoryBudget, Scratch};
    /// use elbow_file::RealStorage;
    ///
    /// let directory = tempfile::tempdir()?;
    /// let dir = RealStorage::open_root(directory.path())?;
    /// let scratch = Scratch::new(Arc::new(RealStorage), dir, directory.path().into(), MemoryBudget::new(64 << 20));
    ///
    /// let mut writer = scratch.writer::<u64>()?;
    /// for number in 0..1000 {
    ///     writer.push(number)?;
    /// }
    /// let odd = writer.finish()?.filter(|number| number % 2 == 1)?;
    /// assert_eq!(odd.records(), 500);
    /// let sum: u64 = odd.consume()?.map(|number| number.unwrap()).sum();
    /// assert_eq!(sum, 250_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn new(storage: Arc<dyn Storage>, dir: Handle, path: PathBuf, budget: MemoryBudget) -> Self {
        Self {
            storage,
            dir,
            path,
            budget,
            progress: None,
        }
    }

    /// Calls `progress` with the number of bytes after every block that any stream of this scratch reads or writes.
    #[must_use]
    pub fn with_progress(self, progress: Arc<dyn Fn(u64) + Send + Sync>) -> Self {
        Self {
            progress: Some(progress),
            ..self
        }
    }

    /// Begins a stream.
    ///
    /// # Errors
    /// When no file can be made, or the memory budget is used up.
    pub fn writer<T: Pod>(&self) -> Result<Writer<T>> {
        Writer::new(self.new_file()?)
    }

    /// Begins a stream of records of any length.
    ///
    /// # Errors
    /// As [`writer`](Self::writer).
    pub fn bytes_writer(&self) -> Result<BytesWriter> {
        BytesWriter::new(self.new_file()?)
    }

    fn new_file(&self) -> Result<Arc<StreamFile>> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = MADE.fetch_add(1, Ordering::Relaxed);
            let name = std::ffi::OsString::from(format!(".elbow-stream-{}-{number}", std::process::id()));
            let path = self.path.join(&name);
            match self.storage.create(&self.dir, &name, MODE) {
                Err(Errno::EXIST) => {} // of a process with our number on another machine, or before us
                other => {
                    let handle = other.map_err(failed("creating", &path))?;
                    self.storage
                        .unlink(&self.dir, &name)
                        .map_err(failed("unlinking", &path))?;
                    let (scratch, file) = (self.clone(), Uncached::new(handle));
                    return Ok(Arc::new(StreamFile { scratch, file, path }));
                }
            }
        }
    }
}

/// Some bytes of a stream, at most [`BLOCK_BYTES`].
struct Block {
    buffer: Buffer,
    bytes: usize,
}

impl Block {
    fn new() -> Result<Self> {
        let buffer = buffer(BLOCK_BYTES)?;
        Ok(Self { buffer, bytes: 0 })
    }
}

/// The file of a stream, for its threads.
struct StreamFile {
    scratch: Scratch,
    file: Uncached,
    path: PathBuf,
}

impl StreamFile {
    fn read(&self, block: &mut Block, at: u64) -> Result<()> {
        let into = &mut block.buffer[..block.bytes];
        let got = self.file.read(&*self.scratch.storage, into, at);
        if !got.map_err(failed("reading", &self.path))? {
            return Err(failed("reading (the file became shorter)", &self.path)(Errno::IO));
        }
        self.note(block.bytes);
        Ok(())
    }

    fn write(&self, block: &Block, at: u64) -> Result<()> {
        let bytes = &block.buffer[..block.bytes];
        if !bytes.len().is_multiple_of(DIRECT_ALIGNMENT) {
            self.lengthen(at + bytes.len() as u64)?;
        }
        let written = self.file.write(&*self.scratch.storage, bytes, at, BLOCK_BYTES);
        written.map_err(failed("writing", &self.path))?;
        self.note(block.bytes);
        Ok(())
    }

    /// Before its end is written, which goes through the page cache: of a file that grows there, xfs doubles the space.
    fn lengthen(&self, bytes: u64) -> Result<()> {
        let sized = self.scratch.storage.truncate(&self.file.handle, bytes);
        sized.map_err(failed("sizing", &self.path))
    }

    /// Lets the file system have what was freed; that it cannot costs space and nothing else.
    fn sync_freed(&self) {
        let _ = self.scratch.storage.sync_all(&self.file.handle);
    }

    /// Frees a range; that it cannot be freed costs space and nothing else.
    fn free(&self, start: u64, end: u64) -> Result<()> {
        match self.scratch.storage.punch(&self.file.handle, start, end - start) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOSPC | Errno::DQUOT) => Ok(()),
            Err(errno) => Err(failed("punching", &self.path)(errno)),
        }
    }

    fn note(&self, bytes: usize) {
        if let Some(progress) = &self.scratch.progress {
            progress(bytes as u64);
        }
    }
}

/// A finished stream of fixed-size records.
pub struct Stream<T> {
    file: Arc<StreamFile>,
    records: u64,
    of: PhantomData<T>,
}

impl<T: Pod> Stream<T> {
    fn new(file: Arc<StreamFile>, records: u64) -> Self {
        let of = PhantomData;
        Self { file, records, of }
    }

    /// Number of records.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Bytes that the file takes on disk now, as the file system counts them.
    ///
    /// # Errors
    /// When the file system does not say.
    pub fn disk_bytes(&self) -> Result<u64> {
        let stat = self.file.scratch.storage.stat_handle(&self.file.file.handle);
        Ok(stat.map_err(failed("looking at", &self.file.path))?.blocks * 512)
    }

    /// Reads all records, and keeps them.
    ///
    /// # Errors
    /// When the memory budget is used up; each record may bring a storage error.
    pub fn read(&self) -> Result<Reader<T>> {
        Reader::new(self.file.clone(), self.records, false)
    }

    /// Reads all records, and frees what has been read.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn consume(self) -> Result<Reader<T>> {
        Reader::new(self.file, self.records, true)
    }

    /// The same stream once more. When one of them is consumed, only [`disk_bytes`](Self::disk_bytes) is of use: it
    /// says what is left on disk meanwhile.
    #[must_use]
    pub fn share(&self) -> Self {
        Self::new(self.file.clone(), self.records)
    }

    fn scratch(&self) -> Scratch {
        self.file.scratch.clone()
    }
}

#[cfg(test)]
mod tests;
