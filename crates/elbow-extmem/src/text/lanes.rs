//! Cuts runs by key, so that several lanes merge them side by side.
//!
//! ```text
//!   run 0  [ ....a | ....... | ... ]     lane 1 merges what comes before the first splitter,
//!   run 1  [ .. | b....... | ..... ]     lane 2 what comes before the second, and so on;
//!   run 2  [ ...... | c... | d.... ]     each knows where its output begins: the bytes before it are counted
//!              lane 1  lane 2  lane 3
//! ```
//!
//! - Splitters are lines of the runs, from evenly spaced places of each: of runs as of sorted data they cut off about equal
//!   shares.
//! - A cut is the first line of a run that does not come before the splitter. So lines that are equal are in one lane, and
//!   the merge stays stable.
//! - Some pages of each run are read for that, once more.

use std::io;

use elbow_file::DIRECT_ALIGNMENT;

use super::TextOrder;
use super::buffer::{Buffer, buffer};
use super::error::Result;
use super::run::Run;

/// Places in each run that splitters are chosen from, for each cut.
const CANDIDATES_PER_CUT: u64 = 6;
/// Longer lines are not kept as candidates: there may be many.
const CANDIDATE_BYTES_MAX: usize = 16 << 10;
/// What is read to look at a line.
const WINDOW_BYTES: usize = 8 << 10;
const PAGE: u64 = DIRECT_ALIGNMENT as u64;

/// A line of a run, and where it lies in the file.
struct Found {
    start: u64,
    line: Vec<u8>,
    /// After its terminator.
    next: u64,
}

/// The slices of so many lanes; fewer where the runs have too few different lines.
pub(super) fn cut(runs: Vec<Run>, lanes: usize, terminator: u8, order: &TextOrder) -> Result<Vec<Vec<Run>>> {
    let mut splitters = splitters(&runs, lanes, terminator, order)?;
    // Two equal ones would have an empty lane between them.
    splitters.dedup();
    let mut cut_up: Vec<Vec<Run>> = (0..=splitters.len()).map(|_| Vec::new()).collect();
    for run in runs {
        let mut look = LineProbe::new(&run, terminator)?;
        let cuts = splitters.iter().map(|splitter| look.first_not_before(splitter, order));
        let cuts = cuts.collect::<io::Result<Vec<u64>>>().map_err(run.failed("read"))?;
        drop(look);
        for (lane, slice) in cut_up.iter_mut().zip(run.slices(&cuts)) {
            lane.push(slice);
        }
    }
    Ok(cut_up)
}

/// Lines that cut off about equal shares of all runs, in order.
fn splitters(runs: &[Run], lanes: usize, terminator: u8, order: &TextOrder) -> Result<Vec<Vec<u8>>> {
    let mut candidates: Vec<(Vec<u8>, u64)> = Vec::new();
    let places = CANDIDATES_PER_CUT * (lanes as u64 - 1);
    for run in runs {
        let mut look = LineProbe::new(run, terminator)?;
        for place in 1..=places {
            let at = run.range().start + run.bytes() * place / (places + 1);
            let found = look.line_from(at, run.range().end).map_err(run.failed("read"))?;
            // Each stands for a share of its own run, so that large runs count for more.
            candidates.extend(found.map(|found| (found.line, run.bytes())));
        }
    }
    // They are all in memory at once, and a line may be as long as the input.
    candidates.retain(|(line, _)| line.len() <= CANDIDATE_BYTES_MAX);
    candidates.sort_by(|(a, _), (b, _)| order.compare(a, b));
    let all: u64 = candidates.iter().map(|(_, share)| share).sum();
    let mut passed = 0;
    let mut chosen = Vec::new();
    for (line, share) in candidates {
        passed += share;
        if chosen.len() + 1 < lanes && passed > all * (chosen.len() as u64 + 1) / lanes as u64 {
            chosen.push(line);
        }
    }
    Ok(chosen)
}

/// Looks at lines anywhere in a run.
struct LineProbe<'a> {
    run: &'a Run,
    terminator: u8,
    buffer: Buffer,
    /// What the buffer holds: from this page on, so many bytes.
    page: u64,
    filled: usize,
}

impl<'a> LineProbe<'a> {
    fn new(run: &'a Run, terminator: u8) -> Result<Self> {
        Ok(Self {
            run,
            terminator,
            buffer: buffer(WINDOW_BYTES)?,
            page: 0,
            filled: 0,
        })
    }

    /// Where the first line begins that does not come before a splitter; the end of the run, if there is none.
    fn first_not_before(&mut self, splitter: &[u8], order: &TextOrder) -> io::Result<u64> {
        let mut first = self.run.range().end;
        // Lines that begin before `low` come before the splitter; none that begins from `high` on comes before `first`.
        let (mut low, mut high) = (self.run.range().start, first);
        while low < high {
            // What fits one window has been read with its first line: from here on line by line costs no reads.
            let middle = if high - low > WINDOW_BYTES as u64 {
                low.midpoint(high)
            } else {
                low
            };
            match self.line_from(middle, high)? {
                Some(found) if order.compare(&found.line, splitter).is_lt() => low = found.next,
                Some(found) => (first, high) = (found.start, middle),
                None => high = middle,
            }
        }
        Ok(first)
    }

    /// The first line that begins at a place or after it, and before another.
    fn line_from(&mut self, at: u64, before: u64) -> io::Result<Option<Found>> {
        let mut start = at;
        if at > self.run.range().start {
            // From the byte before, in case a line begins just here.
            match self.end_of_line(at - 1, before, &mut Vec::new())? {
                Some(end) => start = end + 1,
                None => return Ok(None),
            }
        }
        if start >= before {
            return Ok(None);
        }
        let mut line = Vec::new();
        let end = self.end_of_line(start, self.run.range().end, &mut line)?;
        let end = end.ok_or_else(|| io::Error::other("the last line of a run has no end"))?;
        Ok(Some(Found {
            start,
            line,
            next: end + 1,
        }))
    }

    /// Where the next terminator is, from a place on and before another; what is passed on the way there.
    fn end_of_line(&mut self, mut at: u64, before: u64, passed: &mut Vec<u8>) -> io::Result<Option<u64>> {
        while at < before {
            let terminator = self.terminator;
            let window = self.window(at)?;
            if let Some(length) = memchr::memchr(terminator, window) {
                passed.extend_from_slice(&window[..length]);
                return Ok(Some(at + length as u64));
            }
            passed.extend_from_slice(window);
            at += window.len() as u64;
        }
        Ok(None)
    }

    /// Some bytes of the run from a place on.
    fn window(&mut self, at: u64) -> io::Result<&[u8]> {
        if !(self.page..self.page + self.filled as u64).contains(&at) {
            self.page = at / PAGE * PAGE;
            let left = self.run.range().end - self.page;
            self.filled = 0; // nothing, if it cannot be read
            let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(self.buffer.len());
            self.run.read(&mut self.buffer[..wanted], self.page)?;
            self.filled = wanted;
        }
        Ok(&self.buffer[(at - self.page) as usize..self.filled])
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::sync::Arc;

    use elbow_file::RealStorage;

    use super::super::run::{MergeGroup, RunReader, Spill};
    use super::*;
    use crate::text::{KeySpec, OrderOptions};

    fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
        text.split_inclusive(|byte| *byte == b'\n')
            .map(|line| &line[..line.len() - 1])
    }

    /// What each lane gets of each run.
    fn cut_up(texts: &[Vec<u8>], lanes: usize, order: &TextOrder) -> Vec<Vec<Vec<u8>>> {
        let place = tempfile::tempdir().expect("a directory");
        let mut spill = Spill::new(Arc::new(RealStorage), vec![place.path().to_owned()], 0);
        let write = |text: &Vec<u8>| {
            let mut run = spill.begin().expect("a temporary file");
            run.write_all(text).expect("room");
            run.finish()
        };
        let runs = texts.iter().map(write).collect();
        let read = |slice: Run| {
            let mut text = Vec::new();
            RunReader::new(slice.consume(MergeGroup { runs: 1, bytes: 0 }))
                .read_to_end(&mut text)
                .expect("what was written");
            text
        };
        let lanes = cut(runs, lanes, b'\n', order).expect("runs can be read");
        lanes
            .into_iter()
            .map(|slices| slices.into_iter().map(read).collect())
            .collect()
    }

    fn check(texts: &[Vec<u8>], lanes: usize, order: &TextOrder) -> Vec<usize> {
        let lanes = cut_up(texts, lanes, order);
        for (run, text) in texts.iter().enumerate() {
            let again: Vec<u8> = lanes.iter().flat_map(|slices| slices[run].clone()).collect();
            assert!(again == *text, "each run is all there, in order");
        }
        let mut last: Option<Vec<u8>> = None;
        for slices in &lanes {
            let all: Vec<&[u8]> = slices.iter().flat_map(|slice| lines(slice)).collect();
            let smallest = all.iter().min_by(|a, b| order.compare(a, b));
            if let (Some(last), Some(smallest)) = (&last, smallest) {
                assert!(order.compare(last, smallest).is_lt(), "equal lines are in one lane");
            }
            let greatest = all.iter().max_by(|a, b| order.compare(a, b));
            last = greatest.map(|line| line.to_vec()).or(last);
        }
        lanes.iter().map(|slices| slices.concat().len()).collect()
    }

    fn sorted_runs(count: u64, order: &TextOrder, line: impl Fn(u64) -> String) -> Vec<Vec<u8>> {
        let run = |run| {
            let mut lines: Vec<String> = (0..3000)
                .map(|n| line((n * count + run) * 0x9e37_79b9 % 1_000_003))
                .collect();
            lines.sort_by(|a, b| order.compare(a.as_bytes(), b.as_bytes()));
            lines
                .iter()
                .flat_map(|line| [line.as_bytes(), b"\n"].concat())
                .collect()
        };
        (0..count).map(run).collect()
    }

    #[test]
    fn lanes_get_about_equal_shares_of_random_lines() {
        let order = TextOrder::new(&OrderOptions::default()).expect("an order");
        let runs = sorted_runs(7, &order, |n| format!("{n:07} {}", "x".repeat(n as usize % 90)));
        for lanes in 1..5 {
            let shares = check(&runs, lanes, &order);
            let fair = shares.iter().sum::<usize>() / lanes;
            assert_eq!(shares.len(), lanes);
            assert!(shares.iter().all(|share| share.abs_diff(fair) < fair / 3), "{shares:?}");
        }
    }

    #[test]
    fn lines_that_are_equal_or_long_or_missing_are_no_trouble() {
        let keys = vec![KeySpec::parse("1,1n").expect("a key")];
        let options = OrderOptions {
            keys,
            stable: true,
            ..OrderOptions::default()
        };
        let order = TextOrder::new(&options).expect("an order");
        let few = sorted_runs(5, &order, |n| format!("{} {n}", n % 3));
        let same = sorted_runs(3, &order, |n| format!("1 {n}"));
        let long = sorted_runs(2, &order, |n| {
            format!("{n} {}", "y".repeat(if n % 500 == 0 { 70_000 } else { 5 }))
        });
        let odd = vec![
            Vec::new(),
            b"\n".to_vec(),
            b"7 x\n".to_vec(),
            [b"3 ", &[b'z'; 99_999][..], b"\n"].concat(),
        ];
        for texts in [few, same, long, odd, Vec::new()] {
            for lanes in 1..4 {
                check(&texts, lanes, &order);
            }
        }
    }
}
