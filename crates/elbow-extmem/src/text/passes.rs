//! Merging: what is left to merge, pass by pass, and where each merge goes.
//!
//! ```text
//!   pieces -> while there are too many: the smallest neighbours -> a run
//!          -> the last merge -> a stream, in one lane
//!                            -> a file, cut by key into lanes that write to their places of it
//! ```
//!
//! Only neighbours are merged, so that a stable sort is stable over all passes. Lanes need to know how long the output of
//! each will be: with `-u`, or with packed runs, there is one.

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};

use tracing::debug;

use super::blocks::{Block, Blocks, Metered, Request, RunBlocks, StreamBlocks, read_ahead};
use super::budget::MergeMemory;
use super::compress::{Packer, Unpacker};
use super::error::{Result, TextError};
use super::file::FileWriter;
use super::input::{Input, Opened};
use super::lanes::cut;
use super::lines::Lines;
use super::merge::{MergeSource, Stream, merge};
use super::plan::smallest_neighbours;
use super::run::{MergeGroup, Run, RunReader, RunWriter, Spill};
use super::sink::Sink;
use super::tally::Tally;
use super::text_sort::{Goal, TextSort};

/// One source of a merge.
pub(super) enum Piece {
    Run(Run),
    Input(Input),
}

impl Piece {
    /// Inputs are of unknown size; merged first, they are read once more only.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Run(run) => run.bytes(),
            Self::Input(_) => 0,
        }
    }
}

/// A stream that several lanes write to, each from another place on.
pub(super) trait SplitWriter: Write + Send + Sized + 'static {
    /// One that is so many bytes ahead.
    fn ahead(&self, bytes: u64) -> Self;
    fn at(&self) -> u64;
}

impl SplitWriter for FileWriter {
    fn ahead(&self, bytes: u64) -> Self {
        FileWriter::ahead(self, bytes)
    }
    fn at(&self) -> u64 {
        FileWriter::at(self)
    }
}

impl SplitWriter for RunWriter {
    fn ahead(&self, bytes: u64) -> Self {
        RunWriter::ahead(self, bytes)
    }
    fn at(&self) -> u64 {
        RunWriter::at(self)
    }
}

impl TextSort {
    /// Merges neighbours until the rest can be merged at once.
    pub(super) fn reduce(&self, mut pieces: Vec<Piece>, spill: &mut Spill, merges: &mut u64) -> Result<Vec<Piece>> {
        let fan_in = self.memory().fan_in;
        let sizes = |pieces: &[Piece]| pieces.iter().map(Piece::bytes).collect::<Vec<u64>>();
        while let Some(neighbours) = smallest_neighbours(&sizes(&pieces), fan_in) {
            let at = neighbours.start;
            let merged = pieces.drain(neighbours).collect();
            pieces.insert(at, Piece::Run(self.merge_to_run(merged, spill)?));
            *merges += 1;
        }
        Ok(pieces)
    }

    pub(super) fn merge_to_run(&self, pieces: Vec<Piece>, spill: &mut Spill) -> Result<Run> {
        debug!(
            pieces = pieces.len(),
            bytes = pieces.iter().map(Piece::bytes).sum::<u64>(),
            "merges into a run"
        );
        let run = spill.begin()?;
        let failed = run.failed();
        match &self.options().compress_program {
            Some(program) => {
                let packer = Packer::start(program, run)?;
                self.merge_to_stream(pieces, Goal::Run, packer, 0, failed)?.finish()
            }
            None => Ok(self.merge_to_places(pieces, Goal::Run, run, failed)?.finish()),
        }
    }

    /// Merges in one lane.
    pub(super) fn merge_to_stream<W: Write + Send + 'static>(
        &self,
        pieces: Vec<Piece>,
        goal: Goal,
        stream: W,
        at: u64,
        failed: impl Fn(io::Error) -> TextError,
    ) -> Result<W> {
        let memory = self.memory().for_merge(pieces.len(), 1);
        let mut sink = Sink::new(stream, at, &self.flow_to(goal))?;
        let merged = match self.counted(goal) {
            None => self.merge_pieces(pieces, memory, |line| sink.push(line).is_ok()),
            Some(form) => {
                let mut tally = Tally::new(self.order(), form, |line: &[u8]| sink.push(line).is_ok());
                let merged = self.merge_pieces(pieces, memory, |line| tally.push(line));
                tally.finish();
                merged
            }
        };
        let written = sink.finish();
        // A source that cannot be read ends the merge, too: its error is the cause.
        merged?;
        written.map_err(failed)
    }

    /// Merges in as many lanes as are worth it; gives the stream at its end.
    pub(super) fn merge_to_places<P: SplitWriter>(
        &self,
        pieces: Vec<Piece>,
        goal: Goal,
        place: P,
        failed: impl Fn(io::Error) -> TextError + Sync,
    ) -> Result<P> {
        // Equal lines at the cut of two lanes would both stay, and how much each lane writes is not known before.
        let lanes = if self.order().is_unique() || self.counted(goal).is_some() {
            1
        } else {
            self.options().threads
        };
        let memory = self.memory().for_merge(pieces.len(), lanes);
        let runs = match runs_of(pieces) {
            // A packed run can be read from its beginning alone, and is as long as it becomes.
            Ok(runs) if memory.lanes > 1 && self.options().compress_program.is_none() => runs,
            Ok(runs) => {
                let pieces = runs.into_iter().map(Piece::Run).collect();
                let at = place.at();
                return self.merge_to_stream(pieces, goal, place, at, failed);
            }
            Err(pieces) => {
                let at = place.at();
                return self.merge_to_stream(pieces, goal, place, at, failed);
            }
        };
        let all = runs.iter().map(Run::bytes).sum();
        let lanes = cut(runs, memory.lanes, self.options().terminator, self.order())?;
        let is_over = AtomicBool::new(false);
        let mut before = 0;
        std::thread::scope(|scope| {
            let mut started = Vec::new();
            for slices in lanes {
                let stream = place.ahead(before);
                // Each lane writes as many bytes as it reads, so all know their places before any has begun.
                before += slices.iter().map(Run::bytes).sum::<u64>();
                let lane = || self.lane(slices, (goal, memory), stream, &failed, &is_over);
                started.push(scope.spawn(lane));
            }
            // All are waited for; the first that failed says why.
            let ends: Vec<Result<()>> = started.into_iter().map(|lane| lane.join().expect("no panic")).collect();
            ends.into_iter().collect::<Result<()>>()
        })?;
        Ok(place.ahead(all))
    }

    fn lane<P: SplitWriter>(
        &self,
        slices: Vec<Run>,
        (goal, memory): (Goal, MergeMemory),
        stream: P,
        failed: &impl Fn(io::Error) -> TextError,
        is_over: &AtomicBool,
    ) -> Result<()> {
        let at = stream.at();
        // An empty source would cost a buffer and a place in the tree.
        let slices = slices.into_iter().filter(|slice| slice.bytes() > 0).map(Piece::Run);
        let mut sink = Sink::new(stream, at, &self.flow_to(goal))?;
        let take = |line: &[u8]| sink.push(line).is_ok() && !is_over.load(Relaxed);
        let merged = self.merge_pieces(slices.collect(), memory, take);
        let written = sink.finish().map_err(failed);
        let ended = merged.and(written.map(|_| ()));
        if ended.is_err() {
            is_over.store(true, Relaxed); // the others need not go on
        }
        ended
    }

    /// Merges pieces, with a thread that reads ahead.
    fn merge_pieces(&self, pieces: Vec<Piece>, memory: MergeMemory, take: impl FnMut(&[u8]) -> bool) -> Result<()> {
        let (requests, wanted) = channel();
        std::thread::scope(|scope| {
            scope.spawn(move || read_ahead(&wanted, self.meter()));
            let at_once = MergeGroup {
                runs: pieces.len() * memory.lanes,
                bytes: pieces.iter().map(Piece::bytes).sum::<u64>() * memory.lanes as u64,
            };
            let open = |piece| self.open(piece, at_once, memory, &requests);
            let sources = pieces.into_iter().map(open).collect::<Result<Vec<MergeSource>>>();
            drop(requests); // the thread ends with the last source
            merge(sources?, self.order(), take)
        })
    }

    fn metered<R: Read>(&self, stream: R) -> Metered<R> {
        Metered {
            stream,
            meter: self.flow().meter,
        }
    }

    fn open(
        &self,
        piece: Piece,
        at_once: MergeGroup,
        memory: MergeMemory,
        requests: &Sender<Request>,
    ) -> Result<MergeSource> {
        let lines =
            |blocks, bytes| -> Result<Lines> { Ok(Lines::new(blocks, Block::new(bytes)?, self.options().terminator)) };
        let stream = |stream: Box<dyn Read + Send>| -> Box<dyn Blocks> { Box::new(StreamBlocks(stream)) };
        let stream = match piece {
            Piece::Input(input) => {
                let Opened { name, stream: opened } = input.open()?;
                let failed = move |reason| TextError::Input {
                    tried: "read failed",
                    name: name.clone(),
                    reason,
                };
                Stream::new(
                    lines(stream(Box::new(self.metered(opened))), memory.whole_bytes())?,
                    failed,
                )
            }
            Piece::Run(run) => {
                let failed = run.failed("read");
                let run = run.consume(at_once);
                let lines = match &self.options().compress_program {
                    Some(program) => {
                        let unpacked = Unpacker::start(program, self.metered(RunReader::new(run)))?;
                        lines(stream(Box::new(unpacked)), memory.whole_bytes())
                    }
                    // Where memory has no room for two blocks of each run, the whole buffer is filled when it is empty.
                    None if memory.reads_ahead() => {
                        let blocks = RunBlocks::new(run, requests.clone(), memory.block_bytes)?;
                        lines(Box::new(blocks), memory.block_bytes)
                    }
                    None => lines(
                        stream(Box::new(self.metered(RunReader::new(run)))),
                        memory.whole_bytes(),
                    ),
                };
                Stream::new(lines?, failed)
            }
        };
        Ok(MergeSource::Stream(stream))
    }
}

/// All of them, if they are runs.
fn runs_of(pieces: Vec<Piece>) -> std::result::Result<Vec<Run>, Vec<Piece>> {
    if pieces.iter().any(|piece| matches!(piece, Piece::Input(_))) {
        return Err(pieces);
    }
    let run = |piece| match piece {
        Piece::Run(run) => Some(run),
        Piece::Input(_) => None,
    };
    Ok(pieces.into_iter().filter_map(run).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use elbow_file::double::{Faulty, Interposed, Operation, Plan};
    use elbow_file::{Errno, Handle, RealStorage, Storage};

    use super::*;
    use crate::text::{OrderOptions, Output, SortOptions, Summary, TextOrder};

    const LINES: u64 = 40_000;

    /// Sorts lines into a file in several lanes; what is in it then.
    fn sort(storage: Arc<dyn Storage>, unique: bool) -> Result<(String, Summary)> {
        let order = OrderOptions {
            unique,
            ..OrderOptions::default()
        };
        let options = SortOptions {
            memory_bytes: 800 << 10,
            threads: 3,
            ..SortOptions::default()
        };
        let sort = TextSort::on_storage(TextOrder::new(&order)?, options, storage);
        assert_eq!(
            sort.memory().for_merge(20, 3).lanes,
            2,
            "lanes are worth it with so much memory"
        );
        let text: String = (0..LINES)
            .map(|n| format!("{:038}\n", n * 7919 % (LINES / 2)))
            .collect();
        let file = tempfile::NamedTempFile::new().expect("a file");
        let (back, handle) = (file.reopen().expect("it"), file.reopen().expect("it"));
        let output = Output::file("out", || Ok((io::sink(), Handle::new(handle.into()))));
        let inputs = vec![Input::new("text", || Ok(io::Cursor::new(text)))];
        let (_, summary) = sort.sort(inputs, output)?;
        Ok((io::read_to_string(back).expect("text"), summary))
    }

    #[test]
    fn lanes_write_to_their_places_of_one_file() {
        for unique in [false, true] {
            let (sorted, summary) = sort(Arc::new(RealStorage), unique).expect("a sort");
            let times = if unique { 1 } else { 2 };
            let expected: String = (0..LINES / 2).map(|n| format!("{n:038}\n").repeat(times)).collect();
            assert!(sorted == expected, "{summary:?}");
            assert!(summary.runs > 8 && summary.merges == 0, "{summary:?}");
            let kept = summary.spilled_bytes - summary.freed_bytes;
            assert!(
                kept <= summary.runs * 2 * 4096,
                "all but the blocks with a cut is freed: {summary:?}"
            );
        }
    }

    /// Whichever call fails, in whichever thread: the sort ends, and says what failed.
    #[test]
    fn a_failing_call_anywhere_ends_the_sort_with_its_cause() {
        let mut failed = 0;
        for call in [Operation::Read, Operation::Write] {
            for nth in [1, 2, 5, 10, 20, 40, 80, 160] {
                let plan = Plan::fail(Errno::IO).on(call).nth(nth);
                let storage = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::new([plan])));
                let ended = sort(storage.clone(), false);
                assert_eq!(ended.is_err(), storage.hook().fired() > 0, "{call:?} {nth}");
                if let Err(error) = ended {
                    assert!(
                        error.to_string().contains("Input/output error"),
                        "{call:?} {nth}: {error}"
                    );
                    failed += 1;
                }
            }
        }
        assert!(failed > 8, "{failed}");
    }
}
