//! Content of blocks, between memory and file: runs of adjacent blocks go in one call.

use std::io::IoSlice;

use elbow_file::{Handle, Storage};

use super::StoreError;
use super::block_id::BlockId;
use super::layout::{CHECKSUM_BYTES, Layout};

/// Bytes of blocks with checksums that are read at a time: they are moved once more in memory.
const READ_BYTES: u64 = 1 << 20;

/// The file and how it is laid out.
pub(super) struct Transfer<'a> {
    pub(super) storage: &'a dyn Storage,
    pub(super) file: &'a Handle,
    pub(super) name: &'a str,
    pub(super) layout: &'a Layout,
}

impl Transfer<'_> {
    /// Writes blocks one after the other.
    pub(super) fn write(&self, blocks: &[BlockId], data: &[u8]) -> Result<(), StoreError> {
        let payload = self.layout.payload() as usize;
        let mut data = data;
        for run in self.runs(blocks) {
            let (these, rest) = data.split_at(run.len() * payload);
            self.write_run(run, these)?;
            data = rest;
        }
        Ok(())
    }

    fn write_run(&self, run: &[BlockId], data: &[u8]) -> Result<(), StoreError> {
        let offset = self.layout.offset_of(run[0].0);
        let write = |pieces: &[IoSlice<'_>]| {
            self.storage
                .write(self.file, pieces, offset)
                .map_err(|errno| StoreError::io(self.name, "write blocks", errno))
        };
        if !self.layout.has_checksums {
            return write(&[IoSlice::new(data)]);
        }
        let contents = || run.iter().zip(data.chunks(self.layout.payload() as usize));
        let trailers: Vec<_> = contents().map(|(&block, content)| trailer(block, content)).collect();
        let pieces: Vec<_> = contents()
            .zip(&trailers)
            .flat_map(|((_, content), trailer)| [IoSlice::new(content), IoSlice::new(trailer)])
            .collect();
        write(&pieces)
    }

    /// Reads blocks that were written. What lies behind the end of the file reads as zeros.
    pub(super) fn read(&self, blocks: &[BlockId], data: &mut [u8]) -> Result<(), StoreError> {
        let payload = self.layout.payload() as usize;
        let mut data = data;
        for run in self.runs(blocks) {
            let (these, rest) = data.split_at_mut(run.len() * payload);
            if self.layout.has_checksums {
                self.read_checked(run, these)?;
            } else {
                self.read_run(run, these)?;
            }
            data = rest;
        }
        Ok(())
    }

    fn read_run(&self, run: &[BlockId], data: &mut [u8]) -> Result<(), StoreError> {
        let length = self
            .storage
            .read(self.file, data, self.layout.offset_of(run[0].0))
            .map_err(|errno| StoreError::io(self.name, "read blocks", errno))?;
        data[length..].fill(0);
        Ok(())
    }

    fn read_checked(&self, run: &[BlockId], data: &mut [u8]) -> Result<(), StoreError> {
        let (unit, payload) = (self.layout.unit as usize, self.layout.payload() as usize);
        let at_once = (READ_BYTES / self.layout.unit).max(1) as usize;
        let mut buffer = vec![0; run.len().min(at_once) * unit];
        for (run, data) in run.chunks(at_once).zip(data.chunks_mut(at_once * payload)) {
            let buffer = &mut buffer[..run.len() * unit];
            self.read_run(run, buffer)?;
            for ((&block, sealed), content) in run.iter().zip(buffer.chunks(unit)).zip(data.chunks_mut(payload)) {
                let (found, stored) = sealed.split_at(payload);
                self.check(block, found, stored)?;
                content.copy_from_slice(found);
            }
        }
        Ok(())
    }

    fn check(&self, block: BlockId, content: &[u8], stored: &[u8]) -> Result<(), StoreError> {
        let computed = trailer(block, content);
        if stored == computed {
            return Ok(());
        }
        let checksum = |trailer: &[u8]| {
            trailer
                .iter()
                .take(4)
                .rev()
                .fold(0, |sum, &byte| sum << 8 | u32::from(byte))
        };
        Err(StoreError::Checksum {
            file: self.name.to_owned(),
            block,
            stored: checksum(stored),
            computed: checksum(&computed),
        })
    }

    /// The parts of a list of blocks that lie next to each other in the file.
    fn runs<'b>(&self, mut blocks: &'b [BlockId]) -> impl Iterator<Item = &'b [BlockId]> {
        let layout = *self.layout;
        std::iter::from_fn(move || {
            let first = blocks.first()?.0;
            let ids = (first..first + layout.contiguous_from(first)).zip(blocks);
            let length = ids.take_while(|(expected, id)| *expected == id.0).count();
            let (run, rest) = blocks.split_at(length);
            blocks = rest;
            Some(run)
        })
    }
}

/// What stands behind a block with a checksum: CRC-32 (LE) of its number and content, and zeros.
fn trailer(block: BlockId, content: &[u8]) -> [u8; CHECKSUM_BYTES as usize] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&block.0.to_le_bytes());
    hasher.update(content);
    let mut trailer = [0; CHECKSUM_BYTES as usize];
    trailer[..4].copy_from_slice(&hasher.finalize().to_le_bytes());
    trailer
}
