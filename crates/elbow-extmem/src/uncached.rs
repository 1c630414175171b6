//! A file that goes past the page cache, where that is possible: nothing of it is used twice, and what a file system
//! allocates is what was written, not what it guesses ahead of a growing file.
//!
//! What is aligned (place, length and memory) goes directly, the rest through the cache; both see each other's writes.
//!
//! Source: open(2), `O_DIRECT`.

use std::io::IoSlice;

use elbow_file::{DIRECT_ALIGNMENT, Errno, Handle, Result, Storage, direct};

/// An open file, and the same past the page cache.
pub(crate) struct Uncached {
    pub(crate) handle: Handle,
    direct: Option<Handle>,
}

impl Uncached {
    pub(crate) fn new(handle: Handle) -> Self {
        let direct = direct(&handle);
        Self { handle, direct }
    }

    /// The same through the page cache after all: what is small beside the memory that is free is not waited for.
    pub(crate) fn through_cache(handle: Handle) -> Self {
        Self { handle, direct: None }
    }

    /// Whether it goes past the page cache.
    #[cfg(test)]
    pub(crate) fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Fills the buffer from an offset on; `false` when the file is shorter.
    pub(crate) fn read(&self, storage: &dyn Storage, into: &mut [u8], at: u64) -> Result<bool> {
        let aligned = self.aligned(into, at);
        let (first, rest) = into.split_at_mut(aligned);
        let read = |handle: &Handle, part: &mut [u8], at: u64| {
            Ok(part.is_empty() || storage.read(handle, part, at)? == part.len())
        };
        let is_first_read = match &self.direct {
            Some(direct) => match read(direct, first, at) {
                Err(Errno::INVAL) => read(&self.handle, first, at)?, // a device that wants more than pages
                other => other?,
            },
            None => true,
        };
        Ok(is_first_read && read(&self.handle, rest, at + aligned as u64)?)
    }

    /// Writes all bytes from an offset on, at most so many at once.
    pub(crate) fn write(&self, storage: &dyn Storage, bytes: &[u8], at: u64, piece_bytes: usize) -> Result<()> {
        for (piece, at) in bytes.chunks(piece_bytes).zip((at..).step_by(piece_bytes)) {
            self.write_piece(storage, piece, at)?;
        }
        Ok(())
    }

    fn write_piece(&self, storage: &dyn Storage, bytes: &[u8], at: u64) -> Result<()> {
        let (first, rest) = bytes.split_at(self.aligned(bytes, at));
        let write = |handle: &Handle, part: &[u8], at: u64| match part {
            [] => Ok(()),
            part => storage.write(handle, &[IoSlice::new(part)], at),
        };
        if let Some(direct) = &self.direct {
            match write(direct, first, at) {
                Err(Errno::INVAL) => write(&self.handle, first, at)?, // as above
                other => other?,
            }
        }
        write(&self.handle, rest, at + first.len() as u64)
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
