//! Operations from streams to streams.

use bytemuck::Pod;

use super::reader::BlockReader;
use super::{Reader, Scratch, Stream};
use crate::loser_tree::{EXHAUSTED, Head, LoserTree, NoTies, head, run_of};
use crate::sort::{Meter, Options, Output, RecordFormat, Result, SortError, Summary};

impl<T: Pod> Stream<T> {
    /// Looks at each record, in order, and keeps the stream.
    ///
    /// # Errors
    /// A storage error.
    pub fn scan(&self, mut look: impl FnMut(&T)) -> Result<()> {
        for record in self.read()? {
            look(&record?);
        }
        Ok(())
    }

    /// Each record becomes another.
    ///
    /// # Errors
    /// A storage error, or a used up budget.
    pub fn map<U: Pod>(self, mut change: impl FnMut(T) -> U) -> Result<Stream<U>> {
        self.filter_map(|record| Some(change(record)))
    }

    /// Only some records stay.
    ///
    /// # Errors
    /// As [`map`](Self::map).
    pub fn filter(self, mut stays: impl FnMut(&T) -> bool) -> Result<Self> {
        self.filter_map(|record| stays(&record).then_some(record))
    }

    /// Each record becomes another, or nothing.
    ///
    /// # Errors
    /// As [`map`](Self::map).
    pub fn filter_map<U: Pod>(self, mut change: impl FnMut(T) -> Option<U>) -> Result<Stream<U>> {
        let mut writer = self.scratch().writer()?;
        for record in self.consume()? {
            if let Some(changed) = change(record?) {
                writer.push(changed)?;
            }
        }
        writer.finish()
    }

    /// Each record goes to the stream whose number is chosen for it.
    ///
    /// # Errors
    /// As [`map`](Self::map).
    ///
    /// # Panics
    /// When `choose` gives a number that is not below `streams`.
    pub fn distribute(self, streams: usize, mut choose: impl FnMut(&T) -> usize) -> Result<Vec<Self>> {
        let scratch = self.scratch();
        let mut writers = (0..streams).map(|_| scratch.writer()).collect::<Result<Vec<_>>>()?;
        for record in self.consume()? {
            let record = record?;
            writers[choose(&record)].push(record)?;
        }
        writers.into_iter().map(super::Writer::finish).collect()
    }

    /// Sorts the records by their bytes, as a format understands them, and frees them as they are read. Takes all the
    /// memory that the budget has left.
    ///
    /// # Errors
    /// A format of another size, a storage error, or too little memory.
    pub fn sort(self, format: &RecordFormat, threads: usize, meter: &Meter) -> Result<Self> {
        self.sorted(true, format, threads, meter)
    }

    /// As [`sort`](Self::sort), but keeps the stream too.
    ///
    /// # Errors
    /// As [`sort`](Self::sort).
    pub fn sorted_copy(&self, format: &RecordFormat, threads: usize, meter: &Meter) -> Result<Self> {
        self.sorted(false, format, threads, meter)
    }

    fn sorted(&self, consumes: bool, format: &RecordFormat, threads: usize, meter: &Meter) -> Result<Self> {
        if format.bytes() != size_of::<T>() {
            return Err(SortError::Refused(format!(
                "the format is of {}-byte records, the stream of {}-byte records",
                format.bytes(),
                size_of::<T>()
            )));
        }
        let scratch = self.scratch();
        let file = scratch.new_file()?;
        let bytes = self.records * size_of::<T>() as u64;
        let mut input = Bytes {
            blocks: BlockReader::new(self.file.clone(), bytes, consumes)?,
            left: bytes,
            failed: None,
        };
        let memory_bytes = scratch.budget.left_bytes();
        let _memory = scratch.budget.reserve(memory_bytes)?;
        let options = Options {
            memory_bytes,
            threads,
            stable: true,
        };
        let output = Output::File(file.file.handle.clone(), file.path.clone());
        let temporary = (scratch.dir.clone(), scratch.path.clone());
        let storage = &*scratch.storage;
        let name = "a stream".into();
        let sorted = crate::sort::sort(storage, (&mut input, name), output, temporary, format, &options, meter);
        let Summary { records, .. } = input.failed.take().map_or(sorted, Err)?;
        assert_eq!(records, self.records, "a sort gives what it got");
        Ok(Self::new(file, records))
    }
}

/// All records of all streams, one stream after the other.
///
/// # Errors
/// As [`Stream::map`].
pub fn concatenate<T: Pod>(scratch: &Scratch, streams: Vec<Stream<T>>) -> Result<Stream<T>> {
    let mut writer = scratch.writer()?;
    for stream in streams {
        for record in stream.consume()? {
            writer.push(record?)?;
        }
    }
    writer.finish()
}

/// Merges sorted streams into one; of records with equal keys, those of earlier streams come first. `key` is
/// what they are sorted by.
///
/// # Errors
/// As [`Stream::map`].
pub fn merge<T: Pod>(scratch: &Scratch, streams: Vec<Stream<T>>, key: impl Fn(&T) -> u64) -> Result<Stream<T>> {
    let mut writer = scratch.writer()?;
    let mut readers = streams
        .into_iter()
        .map(Stream::consume)
        .collect::<Result<Vec<Reader<T>>>>()?;
    let mut records = vec![T::zeroed(); readers.len()];
    let mut next = |records: &mut [T], run: usize| -> Result<Head> {
        let Some(record) = readers[run].next().transpose()? else {
            return Ok(EXHAUSTED);
        };
        records[run] = record;
        Ok(head(key(&record), run))
    };
    let heads = (0..records.len())
        .map(|run| next(&mut records, run))
        .collect::<Result<Vec<Head>>>()?;
    let mut tree = LoserTree::new(&heads, &NoTies);
    while tree.winner() != EXHAUSTED {
        let run = run_of(tree.winner());
        writer.push(records[run])?;
        tree.replace_winner(next(&mut records, run)?, &NoTies);
    }
    writer.finish()
}

/// The bytes of a stream, for a sort.
struct Bytes {
    blocks: BlockReader,
    left: u64,
    failed: Option<SortError>,
}

impl std::io::Read for Bytes {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let bytes = (buffer.len() as u64).min(self.left) as usize;
        if let Err(error) = self.blocks.take(&mut buffer[..bytes]) {
            self.failed = Some(error);
            return Err(std::io::ErrorKind::Other.into());
        }
        self.left -= bytes as u64;
        Ok(bytes)
    }
}
