//! One lane of a merge: slices of several runs become one range of the output.
//!
//! ```text
//!   reader --blocks--> merge --output buffers--> writer --> Checkpoint
//!      ^  <--empty----        <----empty-------
//! ```
//!
//! Each slice has two blocks: one is merged while the reader fills the other. What is written is told to a
//! [`Checkpoint`] together with how far each slice was then, so that it can make that durable and free it.

use std::sync::mpsc::{Receiver, Sender, channel};

use super::error::{Result, SortError};
use super::files::{RecordFile, Sink};
use super::memory::{BLOCKS_PER_RUN, Buffer, MergeMemory, OUTPUT_BUFFERS, buffer};
use super::meter::Meter;
use super::state::LaneTask;
use super::{RecordFormat, entries::copy_record};
use crate::loser_tree::{EXHAUSTED, Head, LoserTree, NoTies, Ties, head, run_of};

/// Hears how far a lane is: everything up to `out_at` is written, and nothing before `at` in any slice is needed
/// for the rest.
pub(super) trait Checkpoint: Sync {
    fn reached(&self, lane: usize, at: &[u64], out_at: u64, last: bool) -> Result<()>;
}

/// What all lanes of a merge share.
pub(super) struct Merge<'a> {
    pub(super) source: &'a RecordFile<'a>,
    pub(super) sink: &'a dyn Sink,
    pub(super) format: &'a RecordFormat,
    pub(super) memory: MergeMemory,
    pub(super) unit_bytes: usize,
    pub(super) meter: &'a Meter,
    pub(super) checkpoint: &'a dyn Checkpoint,
}

struct Filled {
    buffer: Buffer,
    bytes: usize,
}

struct Request {
    slice: usize,
    buffer: Buffer,
    at: u64,
    bytes: usize,
}

struct Output {
    buffer: Buffer,
    bytes: usize,
    out_at: u64,
    at: Vec<u64>,
    last: bool,
}

/// One slice as it is merged.
struct Input {
    block: Filled,
    /// Offset in the block of the head.
    offset: usize,
    /// Offset in the file of the block's end, or of the next block.
    fetched: u64,
    requested: u64,
    end: u64,
    filled: Receiver<Result<Filled>>,
}

impl Merge<'_> {
    /// Runs all lanes, each on threads of its own.
    pub(super) fn run(&self, tasks: &[LaneTask]) -> Result<()> {
        std::thread::scope(|scope| {
            let lanes: Vec<_> = (tasks.iter().enumerate())
                .map(|(lane, task)| scope.spawn(move || self.lane(lane, task)))
                .collect();
            let ends: Vec<Result<()>> = lanes.into_iter().map(|lane| lane.join().expect("no panic")).collect();
            first_cause(ends)
        })
    }

    fn lane(&self, lane: usize, task: &LaneTask) -> Result<()> {
        let (requests, wanted) = channel::<Request>();
        let (outputs, written) = channel::<Output>();
        let (empties, empty) = channel::<Buffer>();
        for _ in 0..OUTPUT_BUFFERS {
            let _ = empties.send(buffer(self.memory.output_bytes)?); // its receiver is here
        }
        std::thread::scope(|scope| {
            let (senders, receivers): (Vec<_>, Vec<_>) = task.slices.iter().map(|_| channel()).unzip();
            scope.spawn(move || self.read(&wanted, &senders));
            let writer = scope.spawn(move || self.write(lane, &written, &empties));
            let merged = self.merge(task, requests, receivers, &outputs, &empty);
            drop((outputs, empty)); // the writer ends when nobody can send it any more
            let written = writer.join().expect("no panic");
            first_cause([written, merged])
        })
    }

    /// Fills blocks until nobody wants any more.
    fn read(&self, wanted: &Receiver<Request>, filled: &[Sender<Result<Filled>>]) {
        for mut request in wanted {
            let read = self.fill(&mut request).map(|()| Filled {
                buffer: request.buffer,
                bytes: request.bytes,
            });
            // Whoever does not wait for it any more has failed, and says why.
            let _ = filled[request.slice].send(read);
        }
    }

    fn fill(&self, request: &mut Request) -> Result<()> {
        self.source.read(&mut request.buffer[..request.bytes], request.at)?;
        self.meter.note_read(request.bytes as u64);
        Ok(())
    }

    /// Writes what comes until nobody sends any more.
    fn write(&self, lane: usize, outputs: &Receiver<Output>, empties: &Sender<Buffer>) -> Result<()> {
        for output in outputs {
            self.meter.go_on()?;
            self.sink.write(&output.buffer[..output.bytes], output.out_at)?;
            self.meter.note_written(output.bytes as u64);
            let out_at = output.out_at + output.bytes as u64;
            // After the write: what is freed next is then in the output.
            self.checkpoint.reached(lane, &output.at, out_at, output.last)?;
            let _ = empties.send(output.buffer); // the merge may have ended
        }
        Ok(())
    }

    fn merge(
        &self,
        task: &LaneTask,
        requests: Sender<Request>,
        receivers: Vec<Receiver<Result<Filled>>>,
        outputs: &Sender<Output>,
        empty: &Receiver<Buffer>,
    ) -> Result<()> {
        let mut inputs = Inputs::new(self, task, requests, receivers)?;
        let mut out = OutputBuffer::new(self, task, outputs, empty)?;
        let heads: Vec<Head> = (0..inputs.all.len()).map(|run| inputs.head(run)).collect();
        // A loop for each kind of ties: where prefixes decide, the comparison of records is not even compiled in.
        if self.format.prefix_decides() {
            let mut tree = LoserTree::new(&heads, &NoTies);
            while tree.winner() != EXHAUSTED {
                let run = run_of(tree.winner());
                out.push(inputs.record(run), &inputs)?;
                inputs.advance(run)?;
                tree.replace_winner(inputs.head(run), &NoTies);
            }
        } else {
            let mut tree = LoserTree::new(&heads, &inputs);
            while tree.winner() != EXHAUSTED {
                let run = run_of(tree.winner());
                out.push(inputs.record(run), &inputs)?;
                inputs.advance(run)?;
                tree.replace_winner(inputs.head(run), &inputs);
            }
        }
        out.finish(&inputs)
    }
}

/// The slices of one lane.
struct Inputs<'a> {
    merge: &'a Merge<'a>,
    all: Vec<Input>,
    requests: Sender<Request>,
}

impl<'a> Inputs<'a> {
    fn new(
        merge: &'a Merge<'a>,
        task: &LaneTask,
        requests: Sender<Request>,
        receivers: Vec<Receiver<Result<Filled>>>,
    ) -> Result<Self> {
        let mut all = Vec::with_capacity(task.slices.len());
        for (slice, filled) in task.slices.iter().zip(receivers) {
            all.push(Input {
                block: Filled {
                    buffer: buffer(merge.memory.block_bytes)?,
                    bytes: 0,
                },
                offset: 0,
                fetched: slice.at,
                requested: slice.at,
                end: slice.end,
                filled,
            });
        }
        let mut inputs = Self { merge, all, requests };
        // All are asked for before the first is waited for: the reader has always something to do.
        for run in 0..inputs.all.len() {
            for _ in 1..BLOCKS_PER_RUN {
                inputs.request(run, buffer(merge.memory.block_bytes)?);
            }
        }
        for run in 0..inputs.all.len() {
            inputs.next_block(run)?;
        }
        Ok(inputs)
    }

    /// Asks for the next block of a slice, up to a multiple of the unit, so that all later ones are aligned.
    fn request(&mut self, slice: usize, buffer: Buffer) {
        let input = &mut self.all[slice];
        let unit = self.merge.unit_bytes as u64;
        let aligned = input.requested / unit * unit + self.merge.memory.block_bytes as u64;
        let to = aligned.min(input.end);
        let bytes = (to - input.requested) as usize;
        if bytes > 0 {
            let at = input.requested;
            input.requested = to;
            // The reader lives as long as this sender.
            let _ = self.requests.send(Request {
                slice,
                buffer,
                at,
                bytes,
            });
        }
    }

    /// Goes on to the next block; the one that is left is filled anew. Without a next one the block is empty.
    fn next_block(&mut self, run: usize) -> Result<()> {
        let input = &mut self.all[run];
        input.offset = 0;
        // Everything asked for has come, so the slice is at its end.
        if input.fetched == input.requested {
            input.block.bytes = 0;
            return Ok(());
        }
        let next = input.filled.recv().map_err(|_| SortError::Stopped)??;
        input.fetched += next.bytes as u64;
        let left = std::mem::replace(&mut input.block, next);
        self.request(run, left.buffer);
        Ok(())
    }

    #[inline]
    fn record(&self, run: usize) -> &[u8] {
        let input = &self.all[run];
        &input.block.buffer[input.offset..][..self.merge.format.bytes()]
    }

    #[inline]
    fn head(&self, run: usize) -> Head {
        if self.all[run].block.bytes == 0 {
            return EXHAUSTED;
        }
        head(self.merge.format.prefix(self.record(run)), run)
    }

    #[inline]
    fn advance(&mut self, run: usize) -> Result<()> {
        let input = &mut self.all[run];
        input.offset += self.merge.format.bytes();
        if input.offset < input.block.bytes {
            return Ok(());
        }
        self.next_block(run)
    }

    /// How far each slice is, in the file.
    fn at(&self) -> Vec<u64> {
        // What is read but not merged is still needed from the file, should the sort be resumed.
        let at = |input: &Input| input.fetched - (input.block.bytes - input.offset) as u64;
        self.all.iter().map(at).collect()
    }
}

impl Ties for Inputs<'_> {
    fn first_is_less(&self, first: usize, second: usize) -> Option<bool> {
        let order = self.merge.format.compare(self.record(first), self.record(second));
        (!order.is_eq()).then_some(order.is_lt())
    }
}

/// The output buffer that is being filled.
struct OutputBuffer<'a> {
    outputs: &'a Sender<Output>,
    empty: &'a Receiver<Buffer>,
    buffer: Buffer,
    filled: usize,
    /// Where the buffer is sent off: the first time earlier, so that all others are aligned.
    full: usize,
    out_at: u64,
}

impl<'a> OutputBuffer<'a> {
    fn new(
        merge: &Merge<'_>,
        task: &LaneTask,
        outputs: &'a Sender<Output>,
        empty: &'a Receiver<Buffer>,
    ) -> Result<Self> {
        // The first buffer is shorter, so that all later ones begin at a unit.
        let odd = (task.out_at % merge.unit_bytes as u64) as usize;
        Ok(Self {
            outputs,
            empty,
            buffer: empty.recv().map_err(|_| SortError::Stopped)?,
            filled: 0,
            full: merge.memory.output_bytes - odd,
            out_at: task.out_at,
        })
    }

    /// Takes a record that the inputs have not left yet; what was filled before is sent off when it is full.
    #[inline]
    fn push(&mut self, record: &[u8], inputs: &Inputs<'_>) -> Result<()> {
        if self.filled == self.full {
            self.send(inputs)?;
        }
        copy_record(&mut self.buffer[self.filled..][..record.len()], record);
        self.filled += record.len();
        Ok(())
    }

    fn send(&mut self, inputs: &Inputs<'_>) -> Result<()> {
        // A writer that is gone has failed, and says why.
        let next = self.empty.recv().map_err(|_| SortError::Stopped)?;
        let output = Output {
            buffer: std::mem::replace(&mut self.buffer, next),
            bytes: self.filled,
            out_at: self.out_at,
            // The record in hand is not in this buffer, and its input has not left it yet: it will not be freed with
            // it.
            at: inputs.at(),
            last: false,
        };
        self.out_at += self.filled as u64;
        self.full = self.buffer.len();
        self.filled = 0;
        self.outputs.send(output).map_err(|_| SortError::Stopped)
    }

    fn finish(self, inputs: &Inputs<'_>) -> Result<()> {
        let output = Output {
            buffer: self.buffer,
            bytes: self.filled,
            out_at: self.out_at,
            at: inputs.at(),
            last: true,
        };
        self.outputs.send(output).map_err(|_| SortError::Stopped)
    }
}

/// Of several ends the one that explains the others: a thread whose partner is gone only says that it stopped.
pub(super) fn first_cause(ends: impl IntoIterator<Item = Result<()>>) -> Result<()> {
    let mut cause = Ok(());
    for end in ends {
        if let (Ok(()) | Err(SortError::Stopped), Err(_)) = (&cause, &end) {
            cause = end;
        }
    }
    cause
}
