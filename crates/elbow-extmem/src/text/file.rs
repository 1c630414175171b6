//! A file that is read and written at places of our choice. A large one goes past the page cache where that is possible:
//! nothing of it is used twice, and copying it into fresh pages costs more than sorting it. A small one goes through the
//! cache, which takes it without waiting for the disk; what has been read of it is punched, and never gets there.

use std::io::{self, Write};
use std::sync::Arc;

use elbow_file::{Handle, Storage, check_written};

use super::temp_space::TempSpace;
use crate::uncached::Uncached;

/// How a file is read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cache {
    /// Past the page cache, where that is possible.
    Past,
    /// Through it: there is room for all of the file.
    Through,
}

/// An open file.
pub(super) struct PlacedFile {
    storage: Arc<dyn Storage>,
    file: Uncached,
}

impl PlacedFile {
    pub(super) fn new(storage: Arc<dyn Storage>, handle: Handle, cache: Cache) -> Self {
        let file = match cache {
            Cache::Past => Uncached::new(handle),
            Cache::Through => Uncached::through_cache(handle),
        };
        Self { storage, file }
    }

    #[cfg(test)]
    pub(super) fn is_direct(&self) -> bool {
        self.file.is_direct()
    }

    pub(super) fn storage(&self) -> &dyn Storage {
        &*self.storage
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.file.handle
    }

    /// Fills the buffer from an offset on; that the file ends before is an error.
    pub(super) fn read(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        match self.file.read(&*self.storage, into, at)? {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()), // nobody else has the file; a device may still fail
        }
    }

    pub(super) fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        Ok(self.file.write(&*self.storage, bytes, at, bytes.len().max(1))?)
    }
}

/// Writes the result to a file, from a place on.
pub(super) struct FileWriter {
    file: Arc<PlacedFile>,
    room: Arc<TempSpace>,
    at: u64,
}

impl FileWriter {
    pub(super) fn new(file: PlacedFile, room: Arc<TempSpace>) -> Self {
        Self {
            file: Arc::new(file),
            room,
            at: 0,
        }
    }

    /// One that writes so many bytes ahead.
    pub(super) fn ahead(&self, bytes: u64) -> Self {
        Self {
            file: self.file.clone(),
            room: self.room.clone(),
            at: self.at + bytes,
        }
    }

    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Did the disk refuse what the page cache has taken? What it has not tried yet is not known, as after any program's
    /// last write. A network file system says so when the file is closed.
    pub(super) fn finish(self) -> io::Result<()> {
        check_written(self.file.handle())?;
        Ok(self.file.storage().close(self.file.handle())?)
    }
}

impl Write for FileWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes, self.at)?;
        self.at += bytes.len() as u64;
        // The result counts as well: its space and that of the runs are what a full disk has to hold.
        self.room.take(bytes.len() as u64);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use elbow_file::double::{Faulty, Interposed, Operation, Plan};
    use elbow_file::{Errno, RealStorage};

    use super::super::buffer::buffer;
    use super::*;

    fn file(storage: Arc<dyn Storage>) -> (tempfile::TempDir, PlacedFile) {
        let place = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let handle = RealStorage::temporary(place.path()).expect("a file");
        (place, PlacedFile::new(storage, handle, Cache::Past))
    }

    #[test]
    fn what_is_written_anywhere_is_read_back_from_anywhere() {
        let (_place, file) = file(Arc::new(RealStorage));
        let mut text = buffer(20_000).expect("memory");
        text.iter_mut().zip(0_u32..).for_each(|(byte, n)| *byte = (n / 7) as u8);
        for (start, end) in [(0, 10_000), (10_000, 12_288), (12_288, 20_000)] {
            file.write(&text[start..end], start as u64).expect("room");
        }
        for (start, end) in [(0, 20_000), (4096, 12_288), (4097, 16_384), (8192, 20_000)] {
            let mut back = buffer(end - start).expect("memory");
            file.read(&mut back, start as u64).expect("what was written");
            assert!(back[..] == text[start..end], "{start}..{end}");
        }
        let mut beyond = buffer(8192).expect("memory");
        let error = file.read(&mut beyond, 16_384).expect_err("the file ends before");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_device_that_cannot_be_passed_the_page_cache_is_used_through_it() {
        let plans = [Operation::Read, Operation::Write].map(|call| Plan::fail(Errno::INVAL).on(call));
        let storage = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::new(plans)));
        let (_place, file) = file(storage.clone());
        if !file.is_direct() {
            println!("SKIPPED: no direct I/O in /var/tmp");
            return;
        }
        let (text, mut back) = (buffer(8192).expect("memory"), buffer(8192).expect("memory"));
        file.write(&text, 0).expect("room");
        file.read(&mut back, 0).expect("what was written");
        assert_eq!(storage.hook().fired(), 2);
    }
}
