//! What a power cut leaves of zones: what was durable, and in each zone a part of what came behind.

use super::{Event, Stored, ZoneGeometry, ZoneState, ZonesDouble};

/// So many images or fewer are made in all their variety.
const ALL_MAX: u64 = 128;
/// Of more, so many at random.
const RANDOM: u64 = 64;

/// What is durable at a moment, and what may or may not survive a power cut then.
#[derive(Clone, Debug)]
pub struct ZoneCut {
    geometry: ZoneGeometry,
    durable: Vec<Stored>,
    /// Of each zone in order; of a conventional one each by itself.
    pending: Vec<Vec<Step>>,
}

/// What is there or not.
#[derive(Clone, Debug)]
enum Step {
    Sector(Vec<u8>),
    Overwritten(usize, Vec<u8>),
    Reset,
    Finish,
}

impl Step {
    fn apply(&self, stored: &mut Stored, sector_bytes: u32) {
        match self {
            Self::Sector(data) => stored.append(data, sector_bytes),
            Self::Overwritten(at, data) => stored.bytes[*at..*at + data.len()].copy_from_slice(data),
            Self::Reset => stored.reset(),
            Self::Finish => stored.zone.finish(),
        }
    }
}

impl ZoneCut {
    pub(super) fn new(geometry: ZoneGeometry, base: Vec<Stored>, history: &[Event]) -> Self {
        let mut cut = Self {
            geometry,
            pending: vec![Vec::new(); base.len()],
            durable: base,
        };
        let flushed = history.iter().rposition(|event| matches!(event, Event::Flush));
        for (moment, event) in history.iter().enumerate() {
            let (zone, steps) = cut.steps(event);
            match flushed {
                Some(flushed) if moment < flushed => {
                    let stored = &mut cut.durable[zone];
                    steps.iter().for_each(|step| step.apply(stored, geometry.sector_bytes));
                }
                _ => cut.pending[zone].extend(steps),
            }
        }
        for event in history {
            if let Event::Becomes(zone, state) = event {
                cut.durable[*zone].zone.state = *state; // the medium knows
                cut.pending[*zone].retain(|_| *state == ZoneState::ReadOnly);
            }
        }
        cut
    }

    /// What of an event may be there by itself.
    fn steps(&self, event: &Event) -> (usize, Vec<Step>) {
        let sector_bytes = self.geometry.sector_bytes as usize;
        match event {
            Event::Append(zone, data) => {
                let sectors = data.chunks(sector_bytes).map(|sector| Step::Sector(sector.to_vec()));
                (*zone, sectors.collect())
            }
            Event::Overwrite(at, data) => {
                let zone = (at / self.geometry.zone_sectors) as usize;
                let first = (at % self.geometry.zone_sectors) as usize;
                let sectors = (first..).zip(data.chunks(sector_bytes));
                let step = |(sector, data): (usize, &[u8])| Step::Overwritten(sector * sector_bytes, data.to_vec());
                (zone, sectors.map(step).collect())
            }
            Event::Reset(zone) => (*zone, vec![Step::Reset]),
            Event::Finish(zone) => (*zone, vec![Step::Finish]),
            Event::Becomes(zone, _) => (*zone, Vec::new()),
            Event::Flush => (0, Vec::new()),
        }
    }

    /// How many sectors and changes of zones may survive or not. A test asserts that there were some.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.iter().map(Vec::len).sum()
    }

    /// Zones that the cut could have left: all of them where there are up to 128, else 64 random ones, with that which lost everything and that
    /// which lost nothing. Equal seeds give equal images.
    pub fn images(&self, seed: u64) -> impl Iterator<Item = ZonesDouble> + '_ {
        let choices = self.choices();
        let all = choices.iter().try_fold(1_u64, |all, &choices| all.checked_mul(choices));
        let all = all.filter(|&all| all <= ALL_MAX);
        (0..all.unwrap_or(RANDOM)).map(move |number| {
            let mut rest = number;
            let chosen = (0..).zip(&choices).map(|(zone, &choices)| match (all, number) {
                (Some(_), _) => {
                    let chosen = rest % choices;
                    rest /= choices;
                    chosen
                }
                (None, 0) => 0,
                (None, 1) => choices - 1,
                // Half of the zones lose all or nothing, so that one that is cut is seen among others.
                (None, _) => match mix(&[seed, number, zone]) % 4 {
                    0 => 0,
                    1 => choices - 1,
                    _ => mix(&[seed, number, zone, 1]) % choices,
                },
            });
            let chosen: Vec<u64> = chosen.collect();
            self.image(&chosen)
        })
    }

    /// Of each zone how many things it may be: prefixes, or subsets.
    fn choices(&self) -> Vec<u64> {
        let zones = self.pending.iter().zip(&self.durable);
        let choices = zones.map(|(steps, stored)| match stored.zone.state {
            ZoneState::Conventional => 1 << steps.len().min(32),
            _ => steps.len() as u64 + 1,
        });
        choices.collect()
    }

    fn image(&self, chosen: &[u64]) -> ZonesDouble {
        let mut zones = self.durable.clone();
        for ((stored, steps), &chosen) in zones.iter_mut().zip(&self.pending).zip(chosen) {
            let state = stored.zone.state;
            let is_conventional = state == ZoneState::Conventional;
            for (number, step) in (0_u64..).zip(steps) {
                let survives = if is_conventional {
                    chosen >> number.min(31) & 1 == 1
                } else {
                    number < chosen
                };
                if survives {
                    step.apply(stored, self.geometry.sector_bytes);
                }
            }
            if matches!(
                state,
                ZoneState::Conventional | ZoneState::ReadOnly | ZoneState::Offline
            ) {
                stored.zone.state = state;
            }
        }
        ZonesDouble::holding(self.geometry, zones, format!("{chosen:?}"))
    }
}

/// A pseudo-random number of some numbers (the finalizer of SplitMix64, chained).
fn mix(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |state, number| {
        let mut z = (state ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    })
}
