//! Run formation: the input becomes sorted chunks, in memory as long as they fit, else runs.
//!
//! ```text
//!            filled              sorted
//!   reader ----------> sorter ----------> writer        three threads, three chunks; nothing is
//!      ^                                     |          written before the reader needs a chunk
//!      '-------------- empty chunks ---------'          that is not there
//! ```

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};

use tracing::debug;

use super::budget::CHUNKS;
use super::chunk::{Carry, Chunk};
use super::compress::Packer;
use super::error::Result;
use super::input::Inputs;
use super::run::{Run, Spill};
use super::sink::Sink;
use super::text_sort::TextSort;

/// What the input has become.
pub(super) enum Formed {
    InMemory(Vec<Chunk>),
    Runs(Vec<Run>),
}

/// What the reader says.
enum Filled {
    Chunk(Chunk),
    /// It has more, and waits.
    NeedsChunk,
}

/// Sorts the input in pieces.
pub(super) fn form(sort: &TextSort, inputs: Inputs, spill: &mut Spill) -> Result<Formed> {
    let (free, free_chunks) = channel();
    let (filled, filled_chunks) = channel();
    let (sorted, sorted_chunks) = channel();
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || read(sort, inputs, &free_chunks, &filled));
        let give_back = free.clone();
        let writer = scope.spawn(move || write(sort, &sorted_chunks, &give_back, spill));
        let in_memory = distribute(sort, filled_chunks, free, &sorted);
        drop(sorted);
        let runs = writer.join().expect("writing does not panic");
        let read = reader.join().expect("reading does not panic");
        // A writer that fails takes the chunks of the reader with it: its error is the cause.
        let runs = runs?;
        read?;
        let in_memory = in_memory?;
        Ok(if runs.is_empty() {
            Formed::InMemory(in_memory)
        } else {
            Formed::Runs(runs)
        })
    })
}

fn read(sort: &TextSort, mut inputs: Inputs, free: &Receiver<Chunk>, filled: &Sender<Filled>) -> Result<()> {
    let mut carry = Carry::default();
    loop {
        if filled.send(Filled::NeedsChunk).is_err() {
            return Ok(());
        }
        // Nobody has a chunk for us: the others have ended, and know why.
        let Ok(mut chunk) = free.recv() else { return Ok(()) };
        let is_more = chunk.fill(&mut carry, &mut inputs, sort.order())?;
        if (!chunk.is_empty() && filled.send(Filled::Chunk(chunk)).is_err()) || !is_more {
            return Ok(());
        }
    }
}

/// Sorts what was read. Gives the sorted chunks, if they are all in memory. From the moment when all chunks are given out
/// only the writer gives any: when it ends, so does the reader.
fn distribute(
    sort: &TextSort,
    filled: Receiver<Filled>,
    free: Sender<Chunk>,
    sorted: &Sender<Chunk>,
) -> Result<Vec<Chunk>> {
    let pool = sort.pool();
    let mut in_memory = Vec::new();
    let mut free = Some(free);
    let mut given = 0;
    let mut is_spilling = false;
    for message in filled {
        match message {
            Filled::Chunk(mut chunk) => {
                chunk.sort(sort.order(), pool.as_ref());
                in_memory.push(chunk);
            }
            Filled::NeedsChunk if given < CHUNKS => {
                given += 1;
                let chunk = Chunk::new(sort.memory().chunk_bytes, sort.options().terminator)?;
                let giver = if given < CHUNKS { free.clone() } else { free.take() };
                let _ = giver.map(|giver| giver.send(chunk)); // a reader that has ended says why
            }
            Filled::NeedsChunk => is_spilling = true,
        }
        if is_spilling && in_memory.drain(..).any(|chunk| sorted.send(chunk).is_err()) {
            break; // the writer has ended, and says why
        }
    }
    Ok(in_memory)
}

fn write(sort: &TextSort, sorted: &Receiver<Chunk>, free: &Sender<Chunk>, spill: &mut Spill) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    for chunk in sorted {
        let run = write_run(sort, chunk, free, spill)?;
        debug!(run = runs.len(), bytes = run.bytes(), "a run is formed");
        runs.push(run);
    }
    Ok(runs)
}

fn write_run(sort: &TextSort, chunk: Chunk, free: &Sender<Chunk>, spill: &mut Spill) -> Result<Run> {
    let run = spill.begin()?;
    let failed = run.failed();
    match &sort.options().compress_program {
        Some(program) => {
            let sink = Sink::new(Packer::start(program, run)?, 0, &sort.flow())?;
            write_lines(sink, chunk, free).map_err(failed)?.finish()
        }
        None => {
            let at = run.at();
            let sink = Sink::new(run, at, &sort.flow())?;
            Ok(write_lines(sink, chunk, free).map_err(failed)?.finish())
        }
    }
}

fn write_lines<W: Write + Send + 'static>(mut sink: Sink<W>, chunk: Chunk, free: &Sender<Chunk>) -> io::Result<W> {
    for line in chunk.lines() {
        if sink.push(line).is_err() {
            break; // and says why at its end
        }
    }
    let _ = free.send(chunk); // a reader that has ended needs none
    sink.finish()
}
