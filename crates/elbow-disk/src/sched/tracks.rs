//! One track of a set of places: a bitmap of the free ones, so that the next one to pass the head is a few words away.
//!
//! ```text
//!   sectors   |--- aligned starts: bit 0   1   2   3 ... ---|        bit i is at sector `first_angle + i * align` of the turn
//! ```
//!
//! Always: the sectors of a track are contiguous, in angle as in LBN, so that bit order is the order in which they pass.

use super::arms::Arms;
use super::fixed::angle_of;
use crate::drive::{Arm, Drive, Lbn, Track};

const WORD: u32 = u64::BITS;

/// The aligned places of one track; its bits lie among those of all tracks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) arm: Arm,
    /// LBN of bit 0: the first aligned sector of the track.
    pub(super) first: u64,
    /// Bits of it: sectors at which a write may begin.
    pub(super) starts: u32,
    /// How many of them are set.
    pub(super) free: u32,
    /// Its first word.
    word: u32,
    /// Angle of bit 0, in sectors.
    first_angle: u32,
    /// Sectors of one turn.
    turn: u32,
}

impl Row {
    /// The row of a track, its bits from `word` on; `None` where no aligned sector lies on it.
    pub(super) fn new(drive: &Drive, track: &Track, align: u32, word: usize) -> Option<Row> {
        let first = track.first.0.next_multiple_of(u64::from(align));
        let sector = u32::try_from(first - track.first.0)
            .ok()
            .filter(|&sector| sector < track.sectors)?;
        let angle = angle_of(drive, track.arm, Lbn(first));
        Some(Row {
            arm: track.arm,
            first,
            starts: (track.sectors - sector).div_ceil(align),
            free: 0,
            word: word as u32,
            first_angle: sectors_until(angle, track.sectors_per_track, drive.rotation().0),
            turn: track.sectors_per_track,
        })
    }

    /// How many words it needs.
    pub(super) fn words(&self) -> usize {
        self.starts.div_ceil(WORD) as usize
    }

    /// The places `starts` are free; none of them was.
    pub(super) fn fill(&mut self, bits: &mut [u64], starts: std::ops::Range<u32>) {
        self.free += starts.end - starts.start;
        let mut at = starts.start;
        while at < starts.end {
            // A word at a time: fresh sets are laid out for every request that names ranges of its own.
            let end = starts.end.min((at / WORD + 1) * WORD);
            bits[(self.word + at / WORD) as usize] |= (u64::MAX >> (WORD - (end - at))) << (at % WORD);
            at = end;
        }
    }

    pub(super) fn set(&mut self, bits: &mut [u64], start: u32, is_free: bool) {
        let word = &mut bits[(self.word + start / WORD) as usize];
        let bit = 1 << (start % WORD);
        match (*word & bit != 0, is_free) {
            (false, true) => self.free += 1,
            (true, false) => self.free -= 1,
            // It is so already, and must not be counted twice.
            _ => return,
        }
        *word ^= bit;
    }

    /// The free place that passes next after the head is at `angle`, and how long until then.
    #[inline]
    pub(super) fn next(&self, bits: &[u64], align: u32, arms: &Arms, angle: u64) -> Option<(u32, u64)> {
        let arrived = sectors_until(angle, self.turn, arms.rotation());
        let ahead = if arrived >= self.first_angle {
            arrived - self.first_angle
        } else {
            arrived + self.turn - self.first_angle
        };
        let start = self.next_set(bits, ahead.div_ceil(align))?;
        let sector = (self.first_angle + start * align) % self.turn;
        let at = arms.rotation() * u64::from(sector) / u64::from(self.turn);
        Some((start, arms.wait(angle, at)))
    }

    /// The first set bit from `from` on, or from 0 on.
    #[inline]
    fn next_set(&self, bits: &[u64], from: u32) -> Option<u32> {
        let words = &bits[self.word as usize..self.word as usize + self.words()];
        // A track of one word needs no loop, and no second search when the turn begins anew.
        if let [word] = words {
            let ahead = if from < WORD { word & (u64::MAX << from) } else { 0 };
            let found = if ahead != 0 { ahead } else { *word };
            return (found != 0).then(|| found.trailing_zeros());
        }
        first_set(words, from).or_else(|| first_set(words, 0))
    }

    /// The set bits in order.
    pub(super) fn places<'a>(&self, bits: &'a [u64]) -> impl Iterator<Item = u32> + 'a {
        let words = &bits[self.word as usize..self.word as usize + self.words()];
        let mut from = 0;
        std::iter::from_fn(move || {
            let start = first_set(words, from)?;
            from = start + 1;
            Some(start)
        })
    }
}

/// The first set bit from `from` on.
#[inline]
fn first_set(words: &[u64], from: u32) -> Option<u32> {
    let mut at = (from / WORD) as usize;
    let mut word = words.get(at)? & (u64::MAX << (from % WORD));
    while word == 0 {
        at += 1;
        word = *words.get(at)?;
    }
    Some(at as u32 * WORD + word.trailing_zeros())
}

/// The first sector of the turn, from 0 to `turn`, that starts at `angle` or later.
///
/// Exact: sector s starts at `floor(rotation * s / turn)`, and for a whole number a, `floor(x) >= a` just when `x >= a`.
#[inline]
fn sectors_until(angle: u64, turn: u32, rotation: u64) -> u32 {
    (angle * u64::from(turn)).div_ceil(rotation) as u32
}
