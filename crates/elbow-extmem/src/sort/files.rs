//! The files of one sort: 0 is the output (in place, the input too), 1 and 2 hold runs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use elbow_file::{Access, Errno, Handle, Storage, frees_whole_extents};

use super::error::{Result, SortError, failed};
use crate::uncached::Uncached;

const MODE: u32 = 0o600;
/// Where the file system frees no part of what was written at once, runs are written in pieces: one stays taken at each
/// place that is read. Shorter ones cost time, and space for the file system's own notes; longer ones make nothing faster.
const PIECE_BYTES_MIN: u64 = 64 << 10;
const PIECE_BYTES_MAX: u64 = 1 << 20;
/// All such pieces together are at most this part of the free space.
const PIECES_SHARE: u64 = 4;

/// Where temporary files are made, and whether they have to outlive the process.
pub(super) enum Temporary {
    /// Under names of their own, so that a sort can be resumed; as long as the output, and read at so many places at once.
    Named(Handle, PathBuf, u64, u64),
    /// Without a name: gone with the process, whatever ends it.
    Unnamed(Handle, PathBuf),
}

/// Takes sorted bytes.
pub(super) trait Sink: Sync {
    fn write(&self, bytes: &[u8], at: u64) -> Result<()>;
}

/// An open file of records.
pub(super) struct RecordFile<'a> {
    storage: &'a dyn Storage,
    file: Uncached,
    pub(super) path: PathBuf,
    piece_bytes: usize,
}

impl<'a> RecordFile<'a> {
    pub(super) fn new(storage: &'a dyn Storage, handle: Handle, path: PathBuf) -> Self {
        Self {
            storage,
            file: Uncached::new(handle),
            path,
            piece_bytes: usize::MAX,
        }
    }

    /// One that is freed while it is read at so many places.
    fn of_runs(storage: &'a dyn Storage, handle: Handle, path: PathBuf, places: u64) -> Result<Self> {
        let mut file = Self::new(storage, handle, path);
        if frees_whole_extents(file.handle()) {
            let space = storage.space(file.handle());
            let space = space.map_err(failed("asking for the free space of", &file.path))?;
            let free = space.blocks_available * space.fragment_bytes;
            let piece = (free / PIECES_SHARE / places.max(1)).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX);
            file.piece_bytes = (piece / PIECE_BYTES_MIN * PIECE_BYTES_MIN) as usize;
        }
        Ok(file)
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.file.handle
    }

    /// Fills the buffer from an offset on.
    pub(super) fn read(&self, into: &mut [u8], at: u64) -> Result<()> {
        match self.file.read(self.storage, into, at) {
            Ok(true) => Ok(()),
            Ok(false) => Err(failed("reading (the file became shorter)", &self.path)(Errno::IO)),
            Err(errno) => Err(failed("reading", &self.path)(errno)),
        }
    }
}

impl Sink for RecordFile<'_> {
    fn write(&self, bytes: &[u8], at: u64) -> Result<()> {
        let written = self.file.write(self.storage, bytes, at, self.piece_bytes);
        written.map_err(failed("writing", &self.path))
    }
}

pub(super) struct Files<'a> {
    storage: &'a dyn Storage,
    temporary: Temporary,
    open: [Option<RecordFile<'a>>; 3],
}

impl<'a> Files<'a> {
    pub(super) fn new(storage: &'a dyn Storage, output: Option<(Handle, PathBuf)>, temporary: Temporary) -> Self {
        let output = output.map(|(handle, path)| RecordFile::new(storage, handle, path));
        Self {
            storage,
            temporary,
            open: [output, None, None],
        }
    }

    /// Sees to it that a file is open, and makes it if need be.
    pub(super) fn make(&mut self, file: u8) -> Result<()> {
        if self.open[usize::from(file)].is_none() {
            let ((handle, path), places) = match &self.temporary {
                Temporary::Named(dir, path, bytes, places) => (self.named(dir, path, file, *bytes)?, *places),
                Temporary::Unnamed(dir, path) => (self.unnamed(dir, path)?, 1),
            };
            self.open[usize::from(file)] = Some(RecordFile::of_runs(self.storage, handle, path, places)?);
        }
        Ok(())
    }

    /// Opens a file that holds runs of a sort that goes on. One that is gone or has another length is an error: made anew, it would give zeros
    /// for records.
    pub(super) fn find(&mut self, file: u8) -> Result<()> {
        let Temporary::Named(dir, dir_path, bytes, places) = &self.temporary else {
            return Err(SortError::Refused(format!("file {file} of the sort has no name")));
        };
        let name = run_file_name(file);
        let path = dir_path.join(&name);
        let missing = |found: String| SortError::MissingRuns {
            path: path.clone(),
            found,
        };
        let handle = match self.storage.open(dir, &name, Access::ReadWrite) {
            Err(Errno::NOENT) => return Err(missing("is not there".into())),
            other => other.map_err(failed("opening", &path))?,
        };
        let stat = self.storage.stat_handle(&handle);
        let size = stat.map_err(failed("looking at", &path))?.size;
        if size != *bytes {
            return Err(missing(format!("has {size} bytes, not {bytes}")));
        }
        self.open[usize::from(file)] = Some(RecordFile::of_runs(self.storage, handle, path, *places)?);
        Ok(())
    }

    pub(super) fn get(&self, file: u8) -> Result<&RecordFile<'a>> {
        let open = self.open[usize::from(file)].as_ref();
        open.ok_or_else(|| SortError::Refused(format!("file {file} of the sort is not open")))
    }

    /// Has its full length from the beginning: a file system that allocates ahead of the end of a growing file
    /// (xfs) has no reason to.
    fn named(&self, dir: &Handle, dir_path: &Path, file: u8, bytes: u64) -> Result<(Handle, PathBuf)> {
        let name = run_file_name(file);
        let path = dir_path.join(&name);
        let handle = match self.storage.create(dir, &name, MODE) {
            Err(Errno::EXIST) => self
                .storage
                .open(dir, &name, Access::ReadWrite)
                .map_err(failed("opening", &path))?,
            other => other.map_err(failed("creating", &path))?,
        };
        self.storage.truncate(&handle, bytes).map_err(failed("sizing", &path))?;
        self.storage.sync(dir).map_err(failed("syncing", dir_path))?;
        Ok((handle, path))
    }

    fn unnamed(&self, dir: &Handle, dir_path: &Path) -> Result<(Handle, PathBuf)> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = MADE.fetch_add(1, Ordering::Relaxed);
            let name = OsString::from(format!(".elbow-sort-{}-{number}", std::process::id()));
            let path = dir_path.join(&name);
            match self.storage.create_unnamed(dir, &name, MODE) {
                Err(Errno::EXIST) => {} // of a process with our number on another machine, or before us
                other => return Ok((other.map_err(failed("creating", &path))?, path)),
            }
        }
    }
}

/// Name of a file of runs, where it has one.
pub(super) fn run_file_name(file: u8) -> OsString {
    format!("runs-{file}").into()
}
