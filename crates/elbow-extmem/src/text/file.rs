//! A file that is read and written at places of our choice, past the page cache where that is possible: nothing of it
//! is used twice, and copying it into fresh pages costs more than sorting it.

use std::io::{self, IoSlice, Write};
use std::sync::Arc;

use elbow_file::{DIRECT_ALIGNMENT, Errno, Handle, Storage, direct};

use super::room::Room;

/// An open file. What is aligned goes past the page cache; the file system keeps both ways in step.
pub(super) struct PlacedFile {
    storage: Arc<dyn Storage>,
    handle: Handle,
    direct: Option<Handle>,
}

impl PlacedFile {
    pub(super) fn new(storage: Arc<dyn Storage>, handle: Handle) -> Self {
        let direct = direct(&handle);
        Self {
            storage,
            handle,
            direct,
        }
    }

    pub(super) fn storage(&self) -> &dyn Storage {
        &*self.storage
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Fills the buffer from an offset on; that the file ends before is an error.
    pub(super) fn read(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        let (first, rest) = into.split_at_mut(self.aligned(into, at));
        let rest_at = at + first.len() as u64;
        if let Some(direct) = self.direct.as_ref().filter(|_| !first.is_empty()) {
            match self.storage.read(direct, first, at) {
                Ok(read) if read == first.len() => (),
                Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
                // A device that wants more than pages.
                Err(Errno::INVAL) => self.read_plainly(first, at)?,
                Err(errno) => return Err(errno.into()),
            }
        }
        self.read_plainly(rest, rest_at)
    }

    fn read_plainly(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        if into.is_empty() || self.storage.read(&self.handle, into, at)? == into.len() {
            return Ok(());
        }
        Err(io::ErrorKind::UnexpectedEof.into()) // nobody else has the file; a device may still fail
    }

    pub(super) fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let (first, rest) = bytes.split_at(self.aligned(bytes, at));
        let rest_at = at + first.len() as u64;
        if let Some(direct) = self.direct.as_ref().filter(|_| !first.is_empty()) {
            match self.storage.write(direct, &[IoSlice::new(first)], at) {
                Err(Errno::INVAL) => self.storage.write(&self.handle, &[IoSlice::new(first)], at)?,
                other => other?,
            }
        }
        if !rest.is_empty() {
            self.storage.write(&self.handle, &[IoSlice::new(rest)], rest_at)?;
        }
        Ok(())
    }

    /// How much at the front of a stretch can go past the page cache.
    fn aligned(&self, bytes: &[u8], at: u64) -> usize {
        let is_aligned =
            at.is_multiple_of(DIRECT_ALIGNMENT as u64) && bytes.as_ptr().addr().is_multiple_of(DIRECT_ALIGNMENT);
        match self.direct {
            Some(_) if is_aligned => bytes.len() / DIRECT_ALIGNMENT * DIRECT_ALIGNMENT,
            _ => 0,
        }
    }
}

/// Writes the result to a file, from a place on.
pub(super) struct FileWriter {
    file: Arc<PlacedFile>,
    room: Arc<Room>,
    at: u64,
}

impl FileWriter {
    pub(super) fn new(file: PlacedFile, room: Arc<Room>) -> Self {
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
}

impl Write for FileWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes, self.at)?;
        self.at += bytes.len() as u64;
        self.room.take(bytes.len() as u64);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use elbow_file::RealStorage;
    use elbow_file::double::{Faulty, Interposed, Operation, Plan};

    use super::super::buffer::buffer;
    use super::*;

    fn file(storage: Arc<dyn Storage>) -> (tempfile::TempDir, PlacedFile) {
        let place = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let handle = RealStorage::temporary(place.path()).expect("a file");
        (place, PlacedFile::new(storage, handle))
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
        if file.direct.is_none() {
            println!("SKIPPED: no direct I/O in /var/tmp");
            return;
        }
        let (text, mut back) = (buffer(8192).expect("memory"), buffer(8192).expect("memory"));
        file.write(&text, 0).expect("room");
        file.read(&mut back, 0).expect("what was written");
        assert_eq!(storage.hook().fired(), 2);
    }
}
