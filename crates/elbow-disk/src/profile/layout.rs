//! Where in a turn each place of the area lies: its tracks, one after the other.
//!
//! ```text
//!   moment of a turn   /|   /|  /|      Along a track the ends of writes come later sector by sector. From one to the next track there is a jump, the
//!                     / |  / | / |      skew, and each has its own. Places are looked at four to a turn, and between two that are not on one line
//!                    /  | /  |/  |      the jump is looked for by halves.
//! ```
//!
//! Moments are counted from the end of a write at the first sector of the area, which is written again now and then: a clock that goes a little wrong does no harm.

use super::anchors::quickest;
use super::file::Track;
use super::rotation::{Turn, around};
use super::survey::{Doing, Survey};
use super::{Probe, ProfileError};

/// Looks at a turn, before jumps are looked for.
const LOOKS: f64 = 4.0;
/// Off a line is what is farther from it than so many jitters and such a part of a turn,
const OFF_JITTERS: f64 = 4.0;
const OFF_TURNS: f64 = 1.0 / 150.0;
/// and such a part of the way between the two: tracks differ in length.
const OFF_PART: f64 = 0.03;
/// So many looks, and the moment is counted anew.
const LOOKS_A_REFERENCE: u64 = 32;
/// More looks take longer than is worth it: then there is no order in the places that could be used.
pub(super) const LOOKS_MAX: u64 = 60_000;
/// Jumps that differ by less than such a part of a turn are of one kind.
const KIND_TURNS: f64 = 1.0 / 50.0;
/// Jumps of a kind that are tried, and kinds: there are two on most drives, from head to head and from cylinder to cylinder.
const TRIED: usize = 4;
const KINDS_MAX: usize = 8;

struct Look {
    at: u64,
    moment_ms: f64,
    /// The first of a track.
    is_first: bool,
}

struct Scan<'s, 'a, P> {
    survey: &'s mut Survey<'a, P>,
    turn: Turn,
    sector_ms: f64,
    origin_ms: f64,
    looks: u64,
    found: Vec<Look>,
}

/// The tracks of the area; none where that takes too long.
pub(super) fn tracks<P: Probe>(
    survey: &mut Survey<'_, P>,
    turn: Turn,
    turn_sectors: f64,
) -> Result<Vec<Track>, ProfileError> {
    let sector_ms = turn.period_ms / turn_sectors;
    let mut scan = Scan {
        survey,
        turn,
        sector_ms,
        origin_ms: 0.0,
        looks: 0,
        found: Vec::new(),
    };
    if !scan.run((turn_sectors / LOOKS) as u64)? {
        return Ok(Vec::new());
    }
    let found = std::mem::take(&mut scan.found);
    let mut tracks: Vec<Track> = found
        .chunk_by(|_, next| !next.is_first)
        .map(|looks| track(looks, survey.write_sectors, turn.period_ms, turn_sectors))
        .collect();
    reach(survey, &mut tracks, turn.period_ms)?;
    Ok(tracks)
}

impl<P: Probe> Scan<'_, '_, P> {
    /// Looks everywhere; `false` where it gave up.
    fn run(&mut self, step: u64) -> Result<bool, ProfileError> {
        let (start, last) = (self.survey.area.start, self.survey.area.end - self.survey.write_sectors);
        let mut before = self.look(start)?;
        before.is_first = true;
        self.found.push(before);
        for at in (start..=last).step_by(step.max(1) as usize).skip(1).chain([last]) {
            let from = self.found.last().map_or((start, 0.0), |look| (look.at, look.moment_ms));
            if at > from.0 {
                let look = self.look(at)?;
                self.join(from, look)?;
            }
            if self.looks > LOOKS_MAX {
                return Ok(false);
            }
            self.survey.tell(Doing::Placing, at - start, last - start)?;
        }
        Ok(true)
    }

    /// Finds what lies between two looks, and notes all but the first.
    fn join(&mut self, from: (u64, f64), mut to: Look) -> Result<(), ProfileError> {
        if !self.is_on_line(from, &to) {
            to = self.look(to.at)?; // whatever came between may have been once
        }
        let middle = u64::midpoint(from.0, to.at);
        match self.is_on_line(from, &to) {
            true => self.found.push(to),
            false if middle == from.0 || self.looks > LOOKS_MAX => self.found.push(Look { is_first: true, ..to }),
            false => {
                let between = self.look(middle)?;
                self.join(from, between)?;
                let from = self.found.last().map_or(from, |look| (look.at, look.moment_ms));
                self.join(from, to)?;
            }
        }
        Ok(())
    }

    fn is_on_line(&self, (at, moment_ms): (u64, f64), to: &Look) -> bool {
        let way = (to.at - at) as f64 * self.sector_ms;
        let off = around(to.moment_ms - moment_ms - way, self.turn.period_ms).abs();
        off <= OFF_JITTERS * self.turn.jitter_ms + OFF_TURNS * self.turn.period_ms + OFF_PART * way
    }

    fn look(&mut self, at: u64) -> Result<Look, ProfileError> {
        if self.looks.is_multiple_of(LOOKS_A_REFERENCE) {
            self.survey.write(self.survey.area.start)?;
            self.origin_ms = self.survey.last.at_ms;
        }
        self.looks += 1;
        self.survey.write(at)?;
        let since = self.survey.last.at_ms - self.origin_ms;
        Ok(Look {
            at,
            moment_ms: since.rem_euclid(self.turn.period_ms),
            is_first: false,
        })
    }
}

/// The line through the looks at a track.
fn track(looks: &[Look], write_sectors: u64, period_ms: f64, turn_sectors: f64) -> Track {
    let usual = period_ms / turn_sectors;
    let (first, last) = (&looks[0], &looks[looks.len() - 1]);
    let way = (last.at - first.at) as f64;
    let later = |look: &Look, sector_ms: f64| {
        let line = (look.at - first.at) as f64 * sector_ms;
        around(look.moment_ms - first.moment_ms - line, period_ms)
    };
    // Over a short way, jitter would be taken for length.
    let sector_ms = match way * 3.0 > turn_sectors {
        true => usual + later(last, usual) / way,
        false => usual,
    };
    let off = looks.iter().map(|look| later(look, sector_ms)).sum::<f64>() / looks.len() as f64;
    Track {
        start: first.at,
        moment_ms: (first.moment_ms + off - write_sectors as f64 * sector_ms).rem_euclid(period_ms),
        sector_ms,
        reach_ms: 0.0,
    }
}

/// Tries what a write costs at least that comes from the track before: jumps of a kind are alike.
fn reach<P: Probe>(survey: &mut Survey<'_, P>, tracks: &mut [Track], period_ms: f64) -> Result<(), ProfileError> {
    let mut jumps: Vec<(f64, usize)> = (1..tracks.len())
        .map(|index| (jump(tracks, index, period_ms), index))
        .collect();
    jumps.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let mut kinds: Vec<&[(f64, usize)]> = jumps.chunk_by(|a, b| b.0 - a.0 < KIND_TURNS * period_ms).collect();
    kinds.sort_unstable_by_key(|kind| std::cmp::Reverse(kind.len()));
    let mut most = 0.0_f64;
    for kind in kinds.iter().take(KINDS_MAX) {
        let mut reach = 0.0_f64;
        for &(_, index) in kind.iter().step_by(kind.len().div_ceil(TRIED)) {
            reach = reach.max(tried(survey, tracks, index, period_ms)?);
        }
        kind.iter().for_each(|&(_, index)| tracks[index].reach_ms = reach);
        most = most.max(reach);
    }
    let rare = kinds.iter().skip(KINDS_MAX).flat_map(|kind| kind.iter());
    rare.for_each(|&(_, index)| tracks[index].reach_ms = most);
    Ok(())
}

fn jump(tracks: &[Track], index: usize, period_ms: f64) -> f64 {
    let (before, track) = (&tracks[index - 1], &tracks[index]);
    (track.moment_ms - before.moment(track.start)).rem_euclid(period_ms)
}

fn tried<P: Probe>(
    survey: &mut Survey<'_, P>,
    tracks: &[Track],
    index: usize,
    period_ms: f64,
) -> Result<f64, ProfileError> {
    let (before, track) = (&tracks[index - 1], &tracks[index]);
    let start = u64::midpoint(before.start, track.start);
    let skip = (track.start - start).cast_signed() - survey.write_sectors.cast_signed();
    quickest(survey, period_ms, start, skip)
}
