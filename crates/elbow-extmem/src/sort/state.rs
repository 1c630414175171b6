//! Where a sort is: everything that is needed to go on from there.
//!
//! ```text
//!   Forming   input --> runs in file 1                    records before `formed` are in runs, the others in the input
//!   Merging   runs in file `from` --> file `to`           pass after pass; the last one goes to file 0
//!   Finishing the result is complete in file 0            only temporary things are left to remove
//! ```
//!
//! File 0 is the output (and, in place, the input), 1 and 2 are temporary. A pass merges groups of `fan_in` runs, one
//! group after the other, each split into lanes.
//!
//! A state is noted with a [`Mark`]: by what is certainly there, file 0 is known again, also if it was written anew under its inode number.

use elbow_file::Time;
use elbow_ranges::encoding::{DecodeError, Reader, Writer};

/// Fewest bytes that a number, a slice and a lane take in the encoding.
const NUMBER_BYTES_MIN: usize = 1;
const SLICE_BYTES_MIN: usize = 3;
const LANE_BYTES_MIN: usize = 4;
/// A tail has at most so many bytes.
pub(super) const TAIL_BYTES_MAX: u64 = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SortState {
    Forming { formed: u64 },
    Merging(Pass),
    Finishing,
}

/// A part of one run: what is left of it is `at..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunSlice {
    pub(super) start: u64,
    pub(super) at: u64,
    pub(super) end: u64,
}

/// What one lane has to do: merge what is left of its slices into `out_at..`. Offsets in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LaneTask {
    pub(super) slices: Vec<RunSlice>,
    pub(super) out_at: u64,
    /// What was written just before `out_at`, once something was.
    pub(super) tail: Tail,
}

/// So many bytes at the end of what a lane has written, and their checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tail {
    pub(super) bytes: u64,
    pub(super) checksum: u32,
}

/// What file 0 is known by, beside a state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    /// The input is certainly freed up to there, in whole blocks and durably.
    pub(super) freed: u64,
    /// When file 0 was written last: while nothing is freed, that is all there is.
    pub(super) mtime: Time,
}

impl Mark {
    pub(super) fn encode(&self, to: &mut Writer) {
        to.varint(self.freed);
        encode_time(self.mtime, to);
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (freed, mtime) = (from.varint()?, decode_time(from)?);
        Ok(Self { freed, mtime })
    }
}

pub(super) fn encode_time(time: Time, to: &mut Writer) {
    to.signed(time.seconds);
    to.varint(time.nanoseconds.into());
}

pub(super) fn decode_time(from: &mut Reader<'_>) -> Result<Time, DecodeError> {
    let (seconds, at) = (from.signed()?, from.offset());
    let nanoseconds = u32::try_from(from.varint()?).map_err(|_| bad(at, "an impossible time"))?;
    Ok(Time { seconds, nanoseconds })
}

impl LaneTask {
    pub(super) fn left_bytes(&self) -> u64 {
        self.slices.iter().map(|slice| slice.end - slice.at).sum()
    }
}

/// One pass over all runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pass {
    pub(super) from: u8,
    pub(super) to: u8,
    /// Where the runs begin, and where the last one ends.
    pub(super) bounds: Vec<u64>,
    pub(super) fan_in: usize,
    /// Groups that are done.
    pub(super) merged: usize,
    /// How far the group under way is; empty when it was not begun.
    pub(super) lanes: Vec<LaneTask>,
}

impl Pass {
    /// The first pass over runs of one length in file 1.
    pub(super) fn first(total: u64, run_bytes: usize, fan_in_max: usize) -> Self {
        let starts = (0..total).step_by(run_bytes);
        Self::over(1, starts.chain([total]).collect(), fan_in_max)
    }

    fn over(from: u8, bounds: Vec<u64>, fan_in: usize) -> Self {
        let is_last = bounds.len() - 1 <= fan_in;
        let to = if is_last { 0 } else { 3 - from };
        Self {
            from,
            to,
            bounds,
            fan_in,
            merged: 0,
            lanes: Vec::new(),
        }
    }

    pub(super) fn runs(&self) -> usize {
        self.bounds.len() - 1
    }

    pub(super) fn groups(&self) -> usize {
        self.runs().div_ceil(self.fan_in)
    }

    /// Where the runs of a group begin, and where the last one ends.
    pub(super) fn group(&self, group: usize) -> &[u64] {
        let first = group * self.fan_in;
        &self.bounds[first..=(first + self.fan_in).min(self.runs())]
    }

    /// The pass after this one; `None` when this was the last.
    pub(super) fn next(&self, fan_in_max: usize) -> Option<Self> {
        let starts = self.bounds.iter().step_by(self.fan_in).copied();
        let mut bounds: Vec<u64> = starts.take(self.groups()).collect();
        bounds.extend(self.bounds.last());
        (self.to != 0).then(|| Self::over(self.to, bounds, fan_in_max))
    }

    /// Passes from the first over so many runs to the last.
    pub(super) fn count(mut runs: u64, fan_in_max: usize) -> u64 {
        let mut passes = 1;
        while runs > fan_in_max as u64 {
            runs = runs.div_ceil(fan_in_max as u64);
            passes += 1;
        }
        passes
    }
}

impl SortState {
    /// The temporary files that hold records in this state.
    pub(super) fn holding(&self) -> Vec<u8> {
        match self {
            Self::Forming { formed: 0 } | Self::Finishing => Vec::new(),
            Self::Forming { .. } => vec![1],
            Self::Merging(pass) => {
                let is_begun = pass.merged > 0 || !pass.lanes.is_empty();
                let to = (pass.to != 0 && is_begun).then_some(pass.to);
                [pass.from].into_iter().chain(to).collect()
            }
        }
    }

    pub(super) fn encode(&self, to: &mut Writer) {
        match self {
            Self::Forming { formed } => {
                to.u8(0);
                to.varint(*formed);
            }
            Self::Merging(pass) => {
                to.u8(1);
                encode_pass(pass, to);
            }
            Self::Finishing => to.u8(2),
        }
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let at = from.offset();
        Ok(match from.u8()? {
            0 => Self::Forming { formed: from.varint()? },
            1 => Self::Merging(decode_pass(from)?),
            2 => Self::Finishing,
            _ => return Err(bad(at, "no step of a sort")),
        })
    }
}

fn encode_pass(pass: &Pass, to: &mut Writer) {
    to.u8(pass.from);
    to.u8(pass.to);
    to.varint(pass.fan_in as u64);
    to.varint(pass.merged as u64);
    to.varint(pass.bounds.len() as u64);
    let mut before = 0;
    for bound in &pass.bounds {
        to.varint(bound - before);
        before = *bound;
    }
    to.varint(pass.lanes.len() as u64);
    for lane in &pass.lanes {
        to.varint(lane.out_at);
        to.varint(lane.tail.bytes);
        to.varint(lane.tail.checksum.into());
        to.varint(lane.slices.len() as u64);
        for slice in &lane.slices {
            to.varint(slice.start);
            to.varint(slice.at - slice.start);
            to.varint(slice.end - slice.at);
        }
    }
}

fn decode_pass(from: &mut Reader<'_>) -> Result<Pass, DecodeError> {
    let at = from.offset();
    let mut pass = Pass {
        from: from.u8()?,
        to: from.u8()?,
        fan_in: from.varint()? as usize,
        merged: from.varint()? as usize,
        bounds: Vec::new(),
        lanes: Vec::new(),
    };
    let mut before = 0_u64;
    for _ in 0..from.count(NUMBER_BYTES_MIN)? {
        before = sum(before, from.varint()?, at)?;
        pass.bounds.push(before);
    }
    for _ in 0..from.count(LANE_BYTES_MIN)? {
        pass.lanes.push(decode_lane(from)?);
    }
    let is_sound = pass.bounds.len() > 1 && pass.from <= 2 && pass.to <= 2 && pass.from != pass.to && pass.fan_in > 1;
    if !is_sound || pass.merged > pass.groups() {
        return Err(bad(at, "an impossible pass"));
    }
    Ok(pass)
}

fn decode_lane(from: &mut Reader<'_>) -> Result<LaneTask, DecodeError> {
    let at = from.offset();
    let (out_at, at_tail) = (from.varint()?, from.offset());
    let (bytes, checksum) = (from.varint()?, from.varint()?);
    let checksum = u32::try_from(checksum).map_err(|_| bad(at_tail, "an impossible checksum"))?;
    if bytes > out_at.min(TAIL_BYTES_MAX) {
        return Err(bad(at_tail, "an impossible tail"));
    }
    let tail = Tail { bytes, checksum };
    let mut slices = Vec::new();
    for _ in 0..from.count(SLICE_BYTES_MIN)? {
        let start = from.varint()?;
        let cursor = sum(start, from.varint()?, at)?;
        let end = sum(cursor, from.varint()?, at)?;
        slices.push(RunSlice { start, at: cursor, end });
    }
    Ok(LaneTask { slices, out_at, tail })
}

fn sum(a: u64, b: u64, at: usize) -> Result<u64, DecodeError> {
    a.checked_add(b).ok_or(bad(at, "an offset beyond all files"))
}

fn bad(at: usize, what: &'static str) -> DecodeError {
    DecodeError::BadValue { at, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_lead_from_file_one_to_the_output() {
        for runs in 1..70_usize {
            let mut pass = Pass::first(10 * runs as u64 - 3, 10, 4);
            let mut passes = 1;
            assert_eq!(pass.runs(), runs);
            while let Some(next) = pass.next(4) {
                assert_eq!(next.runs(), pass.groups());
                assert_eq!((next.from, next.bounds.last()), (pass.to, pass.bounds.last()));
                (pass, passes) = (next, passes + 1);
            }
            assert_eq!(
                (pass.to, pass.groups(), passes),
                (0, 1, Pass::count(runs as u64, 4)),
                "{runs} runs"
            );
        }
    }

    #[test]
    fn every_state_is_read_back_and_every_shorter_one_refused() {
        let mut pass = Pass::first(95, 10, 4);
        pass.lanes = vec![LaneTask {
            slices: vec![
                RunSlice {
                    start: 0,
                    at: 5,
                    end: 10,
                };
                2
            ],
            out_at: 40,
            tail: Tail {
                bytes: 30,
                checksum: u32::MAX,
            },
        }];
        for state in [
            SortState::Forming { formed: 1 << 40 },
            SortState::Merging(pass),
            SortState::Finishing,
        ] {
            let mut writer = Writer::new();
            state.encode(&mut writer);
            let bytes = writer.finish();
            assert_eq!(SortState::decode(&mut Reader::new(&bytes)), Ok(state));
            for shorter in 0..bytes.len() {
                assert!(SortState::decode(&mut Reader::new(&bytes[..shorter])).is_err());
            }
        }
    }
}
