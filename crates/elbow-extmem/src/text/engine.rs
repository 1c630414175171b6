//! The external sort of text: forms runs, merges them in as many passes as needed, writes the result.
//!
//! ```text
//!   inputs -> form -> chunks in memory ---------------------------> merge -> output
//!                  -> runs -> merge the smallest neighbours -> runs -> merge -> output
//! ```
//!
//! - Memory: chunks and buffers come out of one budget; only a line longer than its share takes more.
//! - Disk: runs are freed as they are read, so that all runs and what they become take the space of the input once.
//! - The output is opened when the inputs have been read to their ends (or copied, if one of them is the output).

use std::io::{self, Write};

use tracing::debug;

use super::blocks::{Block, StreamBlocks};
use super::error::{Result, TextError};
use super::file::{FileWriter, PlacedFile};
use super::form::{Formed, form};
use super::input::{Input, Inputs, Opened};
use super::lines::Lines;
use super::merge::{MergeSource, merge};
use super::options::SortOptions;
use super::output::{self, Output};
use super::passes::Piece;
use super::plan::planned;
use super::run::Spill;
use super::sink::Sink;
use super::tally::Tally;
use super::text_sort::{Goal, TextSort};
use crate::sort::Step;

/// What a sort has done, beside its result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Bytes of the inputs.
    pub bytes: u64,
    /// Runs that were written to temporary files, in all passes; 0: all was done in memory.
    pub runs: u64,
    /// Merges before the last.
    pub merges: u64,
    /// Bytes written to temporary files.
    pub spilled_bytes: u64,
    /// Bytes of these files that were freed on the way.
    pub freed_bytes: u64,
    /// The most that these files and the result, if that is a file, took together, in bytes.
    pub peak_disk_bytes: u64,
}

/// The first line that is not in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disorder {
    /// Its number, from 1.
    pub line_number: u64,
    /// The line, without its terminator.
    pub line: Vec<u8>,
}

impl TextSort {
    /// Sorts all inputs together into the output, which is given back.
    ///
    /// # Errors
    /// An input that cannot be read, an output that cannot be written, a temporary file that cannot be made, written or
    /// read, a compress program that fails. Inputs are untouched; so is the output, as long as they are being read.
    pub fn sort<W: Write + Send + 'static>(&self, inputs: Vec<Input>, output: Output<W>) -> Result<(W, Summary)> {
        let bytes = inputs.iter().map(Input::bytes).sum();
        self.meter().begin(Step::Forming);
        let mut spill = self.spill(bytes);
        self.expect_inputs(bytes);
        let inputs = Inputs::new(inputs, self.options().terminator, self.flow().meter);
        match form(self, inputs, &mut spill)? {
            Formed::InMemory(chunks) => {
                let bytes = self.meter().read_bytes();
                self.meter().expect(bytes, bytes, 0);
                let sources = chunks.into_iter().map(|chunk| MergeSource::Chunk(chunk.into_cursor()));
                let stream = self.write_sources(sources.collect(), output, &spill)?;
                Ok((stream, self.summary(&spill, 0)))
            }
            Formed::Runs(runs) => {
                let sizes = runs.iter().map(super::run::Run::bytes).collect();
                let done = self.meter().done_bytes();
                let merged = planned(sizes, self.memory().fan_in).0;
                self.meter().expect(self.meter().read_bytes(), done + merged, done);
                self.merge_all(runs.into_iter().map(Piece::Run).collect(), output, spill)
            }
        }
    }

    /// Merges inputs, each of them sorted already, into the output (`-m`).
    ///
    /// # Errors
    /// As [`sort`](Self::sort).
    pub fn merge<W: Write + Send + 'static>(&self, inputs: Vec<Input>, output: Output<W>) -> Result<(W, Summary)> {
        let sizes: Option<Vec<u64>> = inputs.iter().map(Input::bytes).collect();
        let bytes = sizes.as_ref().map(|sizes| sizes.iter().sum());
        let mut spill = self.spill(bytes);
        let written = planned(sizes.unwrap_or_default(), self.memory().fan_in).0;
        self.meter().expect(bytes.unwrap_or(0), written, 0);
        let pieces = inputs.into_iter().map(|input| match input.is_output() {
            true => self.merge_to_run(vec![Piece::Input(input)], &mut spill).map(Piece::Run),
            false => Ok(Piece::Input(input)),
        });
        let pieces = pieces.collect::<Result<_>>()?;
        self.merge_all(pieces, output, spill)
    }

    /// Finds the first line of an input that is not in order (`-c`, `-C`); with `-u`, also one that is there twice.
    ///
    /// # Errors
    /// An input that cannot be read.
    pub fn check(&self, input: Input) -> Result<Option<Disorder>> {
        let Opened { name, stream } = input.open()?;
        let block = Block::new(self.memory().for_merge(1, 1).whole_bytes())?;
        let mut lines = Lines::new(Box::new(StreamBlocks(stream)), block, self.options().terminator);
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
                let order = self.order().compare(last, line);
                if order.is_gt() || (order.is_eq() && self.order().is_unique()) {
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

    /// For inputs of so many bytes, if that is known.
    fn spill(&self, bytes: Option<u64>) -> Spill {
        let SortOptions {
            directories,
            cached_bytes,
            ..
        } = self.options();
        let fits = bytes.is_none_or(|bytes| bytes <= *cached_bytes);
        let cached_bytes = if fits { *cached_bytes } else { 0 };
        Spill::new(self.storage().clone(), directories.clone(), cached_bytes)
    }

    /// A first estimate of the work, until it is known what the lines are like.
    fn expect_inputs(&self, bytes: Option<u64>) {
        let need = bytes.map(|bytes| self.options().need(bytes, super::estimate::LINE_BYTES_GUESSED));
        let written = need.map_or(0, |need| need.written_bytes);
        self.meter().expect(bytes.unwrap_or(0), written, 0);
    }

    fn merge_all<W: Write + Send + 'static>(
        &self,
        pieces: Vec<Piece>,
        output: Output<W>,
        mut spill: Spill,
    ) -> Result<(W, Summary)> {
        self.meter().begin(Step::Merging);
        let mut merges = 0;
        let pieces = self.reduce(pieces, &mut spill, &mut merges)?;
        debug!(pieces = pieces.len(), "merges into the output");
        let Output { name, open } = output;
        let stream = match open().map_err(failed("open failed", &name))? {
            output::Opened::Stream(mut stream) => {
                let begun = self.begin(&mut stream).map_err(failed("write failed", &name))?;
                self.merge_to_stream(pieces, Goal::Output, stream, begun, failed("write failed", &name))?
            }
            output::Opened::File(stream, handle) => {
                let file = PlacedFile::new(self.storage().clone(), handle, spill.cache());
                let mut writer = FileWriter::new(file, spill.room().clone());
                self.begin(&mut writer).map_err(failed("write failed", &name))?;
                let written = self.merge_to_places(pieces, Goal::Output, writer, failed("write failed", &name))?;
                written.finish().map_err(failed("close failed", &name))?;
                stream
            }
        };
        spill.close()?;
        Ok((stream, self.summary(&spill, merges)))
    }

    /// Writes what is in memory.
    fn write_sources<W: Write + Send + 'static>(
        &self,
        sources: Vec<MergeSource>,
        output: Output<W>,
        spill: &Spill,
    ) -> Result<W> {
        let Output { name, open } = output;
        match open().map_err(failed("open failed", &name))? {
            output::Opened::Stream(stream) => self.write_in_order(sources, stream, &name),
            output::Opened::File(stream, handle) => {
                let file = PlacedFile::new(self.storage().clone(), handle, spill.cache());
                let written = self.write_in_order(sources, FileWriter::new(file, spill.room().clone()), &name)?;
                written.finish().map_err(failed("close failed", &name))?;
                Ok(stream)
            }
        }
    }

    fn write_in_order<W: Write + Send + 'static>(
        &self,
        sources: Vec<MergeSource>,
        mut stream: W,
        name: &str,
    ) -> Result<W> {
        let begun = self.begin(&mut stream).map_err(failed("write failed", name))?;
        let mut sink = Sink::new(stream, begun, &self.flow_to(Goal::Output))?;
        let merged = match self.counted(Goal::Output) {
            None => merge(sources, self.order(), |line| sink.push(line).is_ok()),
            Some(form) => {
                let mut tally = Tally::new(self.order(), form, |line: &[u8]| sink.push(line).is_ok());
                let merged = merge(sources, self.order(), |line| tally.push(line));
                tally.finish();
                merged
            }
        };
        let written = sink.finish();
        merged?;
        written.map_err(failed("write failed", name))
    }

    /// Writes what stands before the lines; how many bytes that is.
    fn begin(&self, stream: &mut impl Write) -> io::Result<u64> {
        let header = &self.options().form.header;
        stream.write_all(header)?;
        Ok(header.len() as u64)
    }

    fn summary(&self, spill: &Spill, merges: u64) -> Summary {
        let room = spill.room();
        Summary {
            // What was spilled was read once, too.
            bytes: self.meter().read_bytes().saturating_sub(room.spilled_bytes()),
            runs: room.runs(),
            merges,
            spilled_bytes: room.spilled_bytes(),
            freed_bytes: room.freed_bytes(),
            peak_disk_bytes: room.peak_bytes(),
        }
    }
}

fn failed(tried: &'static str, name: &str) -> impl Fn(io::Error) -> TextError + Sync + use<> {
    let name = name.to_owned();
    move |reason| TextError::Output {
        tried,
        name: name.clone(),
        reason,
    }
}
