//! Streams of records on disk: written once, read in order, and freed while they are read for the last time.
//!
//! ```text
//!   Scratch --writer()--> Writer --finish()--> Stream --read()-----> Reader   keeps what it reads
//!                                              Stream --consume()--> Reader   frees what it has read
//! ```
//!
//! A stream is an unnamed file: it is gone with its last user, or with the process. Readers and writers do their input
//! and output on a thread of their own, two blocks ahead; a consuming reader frees there too, in large pieces. All of
//! them take their blocks from one [`MemoryBudget`].
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
use elbow_file::{Errno, Handle, Storage};

pub use budget::{MemoryBudget, Reservation};
pub use operations::{concatenate, merge};
pub use reader::Reader;
pub use variable::{BytesReader, BytesStream, BytesWriter};
pub use writer::Writer;

use crate::sort::{Result, failed};

/// A block is read, written and freed at a time: long enough that the calls cost little.
const BLOCK_BYTES: usize = 1 << 20;
/// A reader or writer has one block in hand and the others under way.
const BLOCKS: usize = 3;
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
                    let scratch = self.clone();
                    return Ok(Arc::new(StreamFile { scratch, handle, path }));
                }
            }
        }
    }
}

/// The file of a stream, for its threads.
struct StreamFile {
    scratch: Scratch,
    handle: Handle,
    path: PathBuf,
}

impl StreamFile {
    fn read(&self, into: &mut [u8], at: u64) -> Result<()> {
        let got = self.scratch.storage.read(&self.handle, into, at);
        if got.map_err(failed("reading", &self.path))? < into.len() {
            return Err(failed("reading (the file became shorter)", &self.path)(Errno::IO));
        }
        self.note(into.len());
        Ok(())
    }

    fn write(&self, bytes: &[u8], at: u64) -> Result<()> {
        let written = self
            .scratch
            .storage
            .write(&self.handle, &[std::io::IoSlice::new(bytes)], at);
        written.map_err(failed("writing", &self.path))?;
        self.note(bytes.len());
        Ok(())
    }

    /// Frees a range; that it cannot be freed costs space and nothing else.
    fn free(&self, start: u64, end: u64) -> Result<()> {
        match self.scratch.storage.punch(&self.handle, start, end - start) {
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
        let stat = self.file.scratch.storage.stat_handle(&self.file.handle);
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

    /// The same stream once more. When one of them is consumed, only [`disk_bytes`](Self::disk_bytes) is of use.
    pub(crate) fn share(&self) -> Self {
        Self::new(self.file.clone(), self.records)
    }

    fn scratch(&self) -> Scratch {
        self.file.scratch.clone()
    }
}

#[cfg(test)]
mod tests;
