//! Writes at places of one's choice, and what they took.

use std::ops::Range;
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{EndsWith, Probe, ProfileError};

/// What is being measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// The area is written once, so that its places exist.
    Filling,
    /// The period of a turn.
    Turning,
    /// Random places and think times.
    Anywhere,
    /// What writes cost at least.
    Reaching,
    /// Where in a turn places lie.
    Placing,
    /// Each skip distance.
    Skipping,
    /// Whether the profile is right.
    Trying,
}

/// How far a measurement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// In which part.
    pub doing: Doing,
    /// Of that part.
    pub done: u64,
    /// When that part is over.
    pub total: u64,
}

/// Where and when the last write ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// Behind its last one.
    pub(super) sector: u64,
    pub(super) at_ms: f64,
}

/// One write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// From its submission to its end.
    pub(super) cost_ms: f64,
    /// From the end of the write before to its own.
    pub(super) since_ms: f64,
}

pub(super) struct Survey<'a, P> {
    probe: &'a mut P,
    pub(super) area: Range<u64>,
    pub(super) write_sectors: u64,
    /// As long as one write.
    data: Vec<u8>,
    pub(super) random: Xoshiro256PlusPlus,
    pub(super) last: End,
    /// Of all writes, and of the flushes after them.
    all_ms: f64,
    flushes_ms: f64,
    watch: &'a mut dyn FnMut(Step) -> bool,
}

impl<'a, P: Probe> Survey<'a, P> {
    pub(super) fn new(
        probe: &'a mut P,
        area: Range<u64>,
        write_sectors: u64,
        watch: &'a mut dyn FnMut(Step) -> bool,
    ) -> Self {
        let data = vec![0; (write_sectors * u64::from(probe.shape().sector_bytes)) as usize];
        Self {
            probe,
            last: End {
                sector: area.start,
                at_ms: 0.0,
            },
            area,
            write_sectors,
            data,
            random: Xoshiro256PlusPlus::seed_from_u64(1),
            all_ms: 0.0,
            flushes_ms: 0.0,
            watch,
        }
    }

    /// Says how far it is, and stops where it is asked to.
    pub(super) fn tell(&mut self, doing: Doing, done: u64, total: u64) -> Result<(), ProfileError> {
        match (self.watch)(Step { doing, done, total }) {
            true => Ok(()),
            false => Err(ProfileError::Stopped),
        }
    }

    /// Writes the whole area once, in long writes.
    pub(super) fn fill(&mut self, sectors: u64) -> Result<(), ProfileError> {
        let sector_bytes = u64::from(self.probe.shape().sector_bytes);
        let zeros = vec![0; (sectors * sector_bytes) as usize];
        let (start, end) = (self.area.start, self.area.end);
        for at in (start..end).step_by(sectors as usize) {
            let sectors = sectors.min(end - at);
            self.probe.write(at, &zeros[..(sectors * sector_bytes) as usize])?;
            self.tell(Doing::Filling, at + sectors - start, end - start)?;
        }
        self.last.at_ms = self.now_ms();
        Ok(())
    }

    /// Lets time pass since the last write.
    pub(super) fn think(&mut self, think_ms: f64) {
        let until = Duration::from_secs_f64((self.last.at_ms + think_ms).max(0.0) / 1000.0);
        self.probe.sleep_until(until);
    }

    /// How long ago the last write ended.
    pub(super) fn thought_ms(&self) -> f64 {
        self.now_ms() - self.last.at_ms
    }

    pub(super) fn write(&mut self, at: u64) -> Result<Sample, ProfileError> {
        let (begin, before) = (self.now_ms(), self.last);
        let flush = self.probe.write(at, &self.data)?;
        self.last = End {
            sector: at + self.write_sectors,
            at_ms: self.now_ms(),
        };
        let cost_ms = self.last.at_ms - begin;
        self.all_ms += cost_ms;
        self.flushes_ms += flush.as_secs_f64() * 1000.0;
        Ok(Sample {
            cost_ms,
            since_ms: self.last.at_ms - before.at_ms,
        })
    }

    /// What a write ended with, up to now.
    pub(super) fn ends_with(&self) -> EndsWith {
        match self.flushes_ms * 2.0 > self.all_ms {
            true => EndsWith::Flush,
            false => EndsWith::Write,
        }
    }

    /// A random place in the area.
    pub(super) fn anywhere(&mut self) -> u64 {
        self.random
            .random_range(self.area.start..=self.area.end - self.write_sectors)
    }

    /// A number of ms below another.
    pub(super) fn below(&mut self, most_ms: f64) -> f64 {
        self.random.random::<f64>() * most_ms
    }

    /// The place at a skip from a sector, if it lies in the area.
    pub(super) fn at_skip(&self, end: u64, skip: i64) -> Option<u64> {
        let at = end.checked_add_signed(skip)?;
        (self.area.start <= at && at + self.write_sectors <= self.area.end).then_some(at)
    }

    /// A random place from whose end on a skip leads to another place in the area.
    pub(super) fn start_of(&mut self, skip: i64) -> u64 {
        let least = self
            .area
            .start
            .saturating_add_signed((-skip).max(0) - self.write_sectors.cast_signed());
        let most = self.area.end - self.write_sectors;
        let most_before = most.saturating_add_signed(-skip.max(0) - self.write_sectors.cast_signed());
        let (least, most) = (least.max(self.area.start), most_before.min(most));
        self.random.random_range(least..=most.max(least))
    }

    fn now_ms(&self) -> f64 {
        self.probe.now().as_secs_f64() * 1000.0
    }
}
