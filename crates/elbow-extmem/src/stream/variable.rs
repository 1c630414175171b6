//! Streams of records of any length: each with its length before it (32 bits, little-endian).

use std::sync::Arc;

use super::StreamFile;
use super::reader::BlockReader;
use super::writer::BlockWriter;
use crate::sort::{Result, SortError};

/// Writes records of any length.
pub struct BytesWriter {
    blocks: BlockWriter,
    records: u64,
    bytes: u64,
}

/// A finished stream of records of any length.
pub struct BytesStream {
    file: Arc<StreamFile>,
    records: u64,
    bytes: u64,
}

/// Reads records of any length, one after the other.
pub struct BytesReader {
    blocks: BlockReader,
    left: u64,
    record: Vec<u8>,
}

impl BytesWriter {
    pub(super) fn new(file: Arc<StreamFile>) -> Result<Self> {
        let blocks = BlockWriter::new(file)?;
        let (records, bytes) = (0, 0);
        Ok(Self { blocks, records, bytes })
    }

    /// Appends a record of less than 4 GiB.
    ///
    /// # Errors
    /// A record that is too long, or a storage error of this record or an earlier one.
    pub fn push(&mut self, record: &[u8]) -> Result<()> {
        let too_long = |_| SortError::Refused(format!("a record of {} bytes is too long for a stream", record.len()));
        let length = u32::try_from(record.len()).map_err(too_long)?;
        self.blocks.push(&length.to_le_bytes())?;
        self.blocks.push(record)?;
        self.records += 1;
        self.bytes += u64::from(length) + 4;
        Ok(())
    }

    /// Ends the stream: everything is in its file.
    ///
    /// # Errors
    /// A storage error, of any record.
    pub fn finish(self) -> Result<BytesStream> {
        Ok(BytesStream {
            file: self.blocks.finish()?,
            records: self.records,
            bytes: self.bytes,
        })
    }
}

impl BytesStream {
    /// Number of records.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Reads all records, and keeps them.
    ///
    /// # Errors
    /// When the memory budget is used up.
    pub fn read(&self) -> Result<BytesReader> {
        BytesReader::new(self.file.clone(), self, false)
    }

    /// Reads all records, and frees what has been read.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn consume(self) -> Result<BytesReader> {
        BytesReader::new(self.file.clone(), &self, true)
    }
}

impl BytesReader {
    fn new(file: Arc<StreamFile>, stream: &BytesStream, consumes: bool) -> Result<Self> {
        Ok(Self {
            blocks: BlockReader::new(file, stream.bytes, consumes)?,
            left: stream.records,
            record: Vec::new(),
        })
    }

    /// The next record; `None` after the last.
    ///
    /// # Errors
    /// A storage error.
    pub fn next_record(&mut self) -> Result<Option<&[u8]>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let mut length = [0; 4];
        self.blocks.take(&mut length)?;
        self.record.resize(u32::from_le_bytes(length) as usize, 0);
        self.blocks.take(&mut self.record)?;
        Ok(Some(&self.record))
    }
}
