//! The external sort of text: forms runs, merges them in as many passes as needed, writes the result.
//!
//! ```text
//!   inputs -> form -> chunks in memory ---------------------------> merge -> output
//!                  -> runs -> merge the smallest neighbours -> runs -> merge -> output
//! ```
//!
//! - Memory: chunks and buffers come out of one budget; only a line longer than its share takes more.
//! - Disk: runs are freed as they are read, so that all runs and what they become take the space of the input once.
//! - Only neighbours are merged, so that a stable sort is stable over all passes.
//! - The output is opened when the inputs have been read to their ends (or copied, if one of them is the output).

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use elbow_file::{RealStorage, Storage};

use super::TextOrder;
use super::compress::{Packer, Unpacker};
use super::error::{Result, TextError};
use super::form::{Formed, form};
use super::input::{Input, Inputs, Opened};
use super::lines::Lines;
use super::merge::{Source, Stream, merge};
use super::options::{Memory, SortOptions};
use super::run::{Run, RunWriter, Spill};
use super::sink::{Closed, Sink};

/// Where the result goes.
pub struct Output<W> {
    name: String,
    open: Box<dyn FnOnce() -> io::Result<W> + Send>,
}

impl<W: Write + Send + 'static> Output<W> {
    /// An output that is opened when the inputs have been read; errors mention the name.
    pub fn new(name: impl Into<String>, open: impl FnOnce() -> io::Result<W> + Send + 'static) -> Self {
        Self {
            name: name.into(),
            open: Box::new(open),
        }
    }
}

/// What a sort has done, beside its result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Runs that were written to temporary files, in all passes; 0: all was done in memory.
    pub runs: u64,
    /// Merges before the last.
    pub merges: u64,
    /// Bytes written to temporary files.
    pub spilled_bytes: u64,
    /// Bytes of these files that were freed on the way.
    pub freed_bytes: u64,
}

/// The first line that is not in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disorder {
    /// Its number, from 1.
    pub line_number: u64,
    /// The line, without its terminator.
    pub line: Vec<u8>,
}

/// Sorts, merges and checks text in one order.
///
/// ```
/// use elbow_extmem::text::{Input, OrderOptions, Output, SortOptions, TextOrder, TextSort};
///
/// let sort = TextSort::new(TextOrder::new(&OrderOptions::default())?, SortOptions::default());
/// let inputs = vec![Input::new("one", || Ok(&b"pear\napple"[..])), Input::new("two", || Ok(&b"fig\n"[..]))];
/// let (sorted, summary) = sort.sort(inputs, Output::new("memory", || Ok(Vec::new())))?;
/// assert_eq!(sorted, b"apple\nfig\npear\n");
/// assert_eq!(summary.runs, 0); // it fitted into memory
/// # Ok::<(), elbow_extmem::text::TextError>(())
/// ```
pub struct TextSort {
    order: TextOrder,
    options: SortOptions,
    storage: Arc<dyn Storage>,
}

/// What is merged.
enum Piece {
    Run(Run),
    Input(Input),
}

impl TextSort {
    /// A sort in this order.
    #[must_use]
    pub fn new(order: TextOrder, options: SortOptions) -> Self {
        Self::on_storage(order, options, Arc::new(RealStorage))
    }

    /// The same, with another way to read, write and punch temporary files: for tests.
    #[must_use]
    pub fn on_storage(order: TextOrder, options: SortOptions, storage: Arc<dyn Storage>) -> Self {
        Self {
            order,
            options,
            storage,
        }
    }

    /// Sorts all inputs together into the output, which is given back.
    ///
    /// # Errors
    /// An input that cannot be read, an output that cannot be written, a temporary file that cannot be made, written or
    /// read, a compress program that fails. Inputs are untouched; so is the output, as long as they are being read.
    pub fn sort<W: Write + Send + 'static>(&self, inputs: Vec<Input>, output: Output<W>) -> Result<(W, Summary)> {
        let mut spill = self.spill();
        let inputs = Inputs::new(inputs, self.options.terminator);
        let mut merges = 0;
        let sources = match form(self, inputs, &mut spill)? {
            Formed::InMemory(chunks) => chunks
                .into_iter()
                .map(|chunk| Source::Chunk(chunk.into_cursor()))
                .collect(),
            Formed::Runs(runs) => {
                let pieces = self.reduce(runs.into_iter().map(Piece::Run).collect(), &mut spill, &mut merges)?;
                self.open_all(pieces)?
            }
        };
        let stream = self.write(sources, output)?;
        Ok((stream, summary(&spill, merges)))
    }

    /// Merges inputs, each of them sorted already, into the output (`-m`).
    ///
    /// # Errors
    /// As [`sort`](Self::sort).
    pub fn merge<W: Write + Send + 'static>(&self, inputs: Vec<Input>, output: Output<W>) -> Result<(W, Summary)> {
        let mut spill = self.spill();
        let mut merges = 0;
        let pieces = inputs.into_iter().map(|input| match input.is_output() {
            true => self.copy(input, &mut spill).map(Piece::Run),
            false => Ok(Piece::Input(input)),
        });
        let pieces = self.reduce(pieces.collect::<Result<_>>()?, &mut spill, &mut merges)?;
        let sources = self.open_all(pieces)?;
        let stream = self.write(sources, output)?;
        Ok((stream, summary(&spill, merges)))
    }

    /// Finds the first line of an input that is not in order (`-c`, `-C`); with `-u`, also one that is there twice.
    ///
    /// # Errors
    /// An input that cannot be read.
    pub fn check(&self, input: Input) -> Result<Option<Disorder>> {
        let Opened { name, stream } = input.open()?;
        let mut lines = Lines::new(stream, self.options.terminator, self.memory().source_bytes(1));
        let mut last: Option<Vec<u8>> = None;
        let mut line_number = 0;
        while lines.advance().map_err(|reason| TextError::Input {
            tried: "read failed",
            name: name.clone(),
            reason,
        })? {
            line_number += 1;
            let line = lines.line();
            if let Some(last) = &mut last {
                let order = self.order.compare(last, line);
                if order.is_gt() || (order.is_eq() && self.order.is_unique()) {
                    return Ok(Some(Disorder {
                        line_number,
                        line: line.to_vec(),
                    }));
                }
                last.clear();
                last.extend_from_slice(line);
            } else {
                last = Some(line.to_vec());
            }
        }
        Ok(None)
    }

    pub(super) fn order(&self) -> &TextOrder {
        &self.order
    }

    pub(super) fn terminator(&self) -> u8 {
        self.options.terminator
    }

    pub(super) fn pool(&self) -> Option<rayon::ThreadPool> {
        // Where no threads are to be had, one has to do.
        let pool = || {
            rayon::ThreadPoolBuilder::new()
                .num_threads(self.options.threads)
                .build()
                .ok()
        };
        (self.options.threads > 1).then(pool).flatten()
    }

    pub(super) fn memory(&self) -> Memory {
        Memory::divide(&self.options)
    }

    fn spill(&self) -> Spill {
        Spill::new(self.storage.clone(), self.options.directories.clone())
    }

    /// Merges neighbours until the rest can be merged at once: as few bytes as possible.
    fn reduce(&self, mut pieces: Vec<Piece>, spill: &mut Spill, merges: &mut u64) -> Result<Vec<Piece>> {
        let fan_in = self.memory().fan_in;
        while pieces.len() > fan_in {
            let width = (pieces.len() - fan_in + 1).min(fan_in);
            let bytes = |at: &usize| pieces[*at..*at + width].iter().map(Piece::bytes).sum::<u64>();
            let at = (0..=pieces.len() - width).min_by_key(bytes).unwrap_or(0);
            let sources = self.open_all(pieces.drain(at..at + width).collect())?;
            pieces.insert(at, Piece::Run(self.write_run(sources, spill)?));
            *merges += 1;
        }
        Ok(pieces)
    }

    fn open_all(&self, pieces: Vec<Piece>) -> Result<Vec<Source>> {
        let count = pieces.len();
        let buffer_bytes = self.memory().source_bytes(count);
        pieces
            .into_iter()
            .map(|piece| self.open(piece, count, buffer_bytes))
            .collect()
    }

    fn open(&self, piece: Piece, count: usize, buffer_bytes: usize) -> Result<Source> {
        let lines = |stream| Lines::new(stream, self.options.terminator, buffer_bytes);
        let stream = match piece {
            Piece::Input(input) => {
                let Opened { name, stream } = input.open()?;
                let failed = move |reason| TextError::Input {
                    tried: "read failed",
                    name: name.clone(),
                    reason,
                };
                Stream::new(lines(stream), failed)
            }
            Piece::Run(run) => {
                let failed = run.failed("read");
                let reader = run.consume(count);
                let stream: Box<dyn Read + Send> = match &self.options.compress_program {
                    Some(program) => Box::new(Unpacker::start(program, reader)?),
                    None => Box::new(reader),
                };
                Stream::new(lines(stream), failed)
            }
        };
        Ok(Source::Stream(stream))
    }

    fn write<W: Write + Send + 'static>(&self, sources: Vec<Source>, output: Output<W>) -> Result<W> {
        let Output { name, open } = output;
        let failed = |tried, reason| TextError::Output {
            tried,
            name: name.clone(),
            reason,
        };
        let stream = open().map_err(|reason| failed("open failed", reason))?;
        let mut sink = Sink::new(stream, self.options.terminator, self.memory().buffer_bytes);
        let merged = merge(sources, &self.order, |line| sink.push(line).is_ok());
        let written = sink.finish();
        merged?;
        written.map_err(|reason| failed("write failed", reason))
    }

    fn write_run(&self, sources: Vec<Source>, spill: &mut Spill) -> Result<Run> {
        let mut sink = RunSink::begin(self, spill)?;
        let merged = merge(sources, &self.order, |line| sink.push(line).is_ok());
        let written = sink.finish();
        merged?;
        written
    }

    fn copy(&self, input: Input, spill: &mut Spill) -> Result<Run> {
        let copied = self.open(Piece::Input(input), 1, self.memory().buffer_bytes)?;
        self.write_run(vec![copied], spill)
    }
}

impl Piece {
    /// Inputs are of unknown size; merged first, they are read once more only.
    fn bytes(&self) -> u64 {
        match self {
            Self::Run(run) => run.bytes(),
            Self::Input(_) => 0,
        }
    }
}

fn summary(spill: &Spill, merges: u64) -> Summary {
    let counters = spill.counters();
    Summary {
        runs: counters.runs.load(Relaxed),
        merges,
        spilled_bytes: counters.written_bytes.load(Relaxed),
        freed_bytes: counters.freed_bytes.load(Relaxed),
    }
}

/// A run being written, packed or as it is.
pub(super) struct RunSink {
    sink: Packed,
    failed: Box<dyn Fn(io::Error) -> TextError>,
}

enum Packed {
    No(Sink<RunWriter>),
    Yes(Sink<Packer>),
}

impl RunSink {
    pub(super) fn begin(sort: &TextSort, spill: &mut Spill) -> Result<Self> {
        let (terminator, buffer_bytes) = (sort.options.terminator, sort.memory().buffer_bytes);
        let run = spill.begin()?;
        let failed = Box::new(run.failed());
        let sink = match &sort.options.compress_program {
            Some(program) => Packed::Yes(Sink::new(Packer::start(program, run)?, terminator, buffer_bytes)),
            None => Packed::No(Sink::new(run, terminator, buffer_bytes)),
        };
        Ok(Self { sink, failed })
    }

    #[inline]
    pub(super) fn push(&mut self, line: &[u8]) -> std::result::Result<(), Closed> {
        match &mut self.sink {
            Packed::No(sink) => sink.push(line),
            Packed::Yes(sink) => sink.push(line),
        }
    }

    pub(super) fn finish(self) -> Result<Run> {
        match self.sink {
            Packed::No(sink) => Ok(sink.finish().map_err(self.failed)?.finish()),
            Packed::Yes(sink) => sink.finish().map_err(self.failed)?.finish(),
        }
    }
}
