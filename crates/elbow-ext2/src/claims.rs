//! Range writes that are outstanding, and whether a region can take one more.
//!
//! A write of `n` blocks needs a *start*: a block from which `n` are free. A write of `m` blocks that the disk puts somewhere takes at
//! most `m + n - 1` of the starts of another. So a write always finds a place, whatever the disk does with the others, if
//!
//! ```text
//!   starts of it in its targets  >  sum of (m + n - 1) over all writes of that region that are outstanding with it at any time
//! ```
//!
//! Each claim keeps the difference (its *slack*); a write is let out only if its own slack and that of all outstanding ones stay
//! positive. What the disk has placed is not given back to the slack of others, since it stays used.
//!
//! While a region is named no block of it is allocated otherwise ([`Group::name`]), because only the disk knows
//! which of them are still free.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use elbow_ranges::RangeSet;

use crate::group::Group;
use crate::{BLOCKS_PER_GROUP, BLOCKS_PER_MINI_GROUP, MINI_GROUPS, RequestId};

/// A part of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupPart {
    pub(crate) group: u32,
    /// Mini-groups of it.
    pub(crate) minis: Range<u32>,
}

impl GroupPart {
    pub(crate) fn group(group: u32) -> Self {
        let minis = 0..MINI_GROUPS;
        Self { group, minis }
    }

    pub(crate) fn mini_group(group: u32, mini: u32) -> Self {
        let minis = mini..mini + 1;
        Self { group, minis }
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.group == other.group && self.minis.start < other.minis.end && other.minis.start < self.minis.end
    }
}

/// Can a region take a write?
#[derive(Debug)]
pub(crate) enum Room {
    /// Yes, in these blocks of the file system.
    Targets(Arc<RangeSet>, u64),
    /// Not before some that are outstanding are complete.
    Later,
    /// No.
    None,
}

#[derive(Debug)]
struct Claim {
    within: GroupPart,
    blocks: u32,
    slack: u64,
}

/// All outstanding range writes.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    claims: HashMap<RequestId, Claim>,
}

/// The free blocks of a region. Shorter runs than a write are of no use to it, but leaving them out would cost more.
fn targets(group: &Group, within: &GroupPart, bits: Range<u32>) -> Arc<RangeSet> {
    if within.minis == (0..MINI_GROUPS) {
        return group.free();
    }
    let first = within.group * BLOCKS_PER_GROUP;
    let runs = group.blocks().clear_runs(bits);
    Arc::new(
        runs.map(|run| u64::from(first + run.start)..u64::from(first + run.end))
            .collect(),
    )
}

/// Starts that a write of `m` blocks may take from one of `n`.
fn taken(m: u32, n: u32) -> u64 {
    u64::from(m) + u64::from(n) - 1
}

impl Claims {
    pub(crate) fn len(&self) -> usize {
        self.claims.len()
    }

    /// Looks for room for `blocks` contiguous ones.
    pub(crate) fn room(&self, groups: &[Group], within: &GroupPart, blocks: u32) -> Room {
        let group = &groups[within.group as usize];
        let outstanding = || self.claims.values().filter(|claim| claim.within.overlaps(within));
        if !outstanding().all(|claim| claim.slack > taken(blocks, claim.blocks)) {
            return Room::Later;
        }
        let bits = within.minis.start * BLOCKS_PER_MINI_GROUP..within.minis.end * BLOCKS_PER_MINI_GROUP;
        let long_enough = |run: &Range<u32>| run.end - run.start >= blocks;
        let runs = group.blocks().clear_runs(bits.clone()).filter(long_enough);
        let starts: u64 = runs.map(|run| u64::from(run.end - run.start - blocks) + 1).sum();
        let others: u64 = outstanding().map(|claim| taken(claim.blocks, blocks)).sum();
        match starts {
            0 => Room::None,
            _ if starts <= others => Room::Later,
            _ => Room::Targets(targets(group, within, bits), starts - others),
        }
    }

    /// Lets a write out into room that was found for it.
    pub(crate) fn begin(&mut self, groups: &mut [Group], id: RequestId, within: GroupPart, blocks: u32, slack: u64) {
        for claim in self.claims.values_mut().filter(|claim| claim.within.overlaps(&within)) {
            claim.slack -= taken(blocks, claim.blocks);
        }
        groups[within.group as usize].name(within.minis.clone());
        let claim = Claim { within, blocks, slack };
        assert!(self.claims.insert(id, claim).is_none(), "a request has one name");
    }

    /// A write has its place.
    pub(crate) fn end(&mut self, groups: &mut [Group], id: RequestId) {
        let claim = self.claims.remove(&id).expect("a range write that is outstanding");
        groups[claim.within.group as usize].end_name(claim.within.minis);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::geometry::Geometry;
    use rand::seq::IteratorRandom;
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// A disk that does its worst: picks by whim, late, in any order. Nobody is ever left without a place, and the region is used
    /// until what it can still take for certain is nothing.
    #[test]
    fn a_region_is_never_oversubscribed() {
        let geometry = Geometry::new(&Options {
            inodes_per_group: 32,
            ..Options::new(4096)
        })
        .unwrap();
        let (mut waits, mut placed) = (0, 0);
        for seed in 0..40 {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut groups = vec![Group::new(&geometry, 0)];
            let fullness = rng.random_range(0.3..0.99);
            for block in geometry.first_data(0)..4096 {
                if rng.random_bool(fullness) {
                    groups[0].take_block(block);
                }
            }
            let mut claims = Claims::default();
            let mut outstanding: HashMap<RequestId, (RangeSet, u32)> = HashMap::new();
            for number in 0..400 {
                let blocks = rng.random_range(1..=4);
                let within = match rng.random_range(0..3) {
                    2 => GroupPart::group(0),
                    mini => GroupPart::mini_group(0, mini),
                };
                match claims.room(&groups, &within, blocks) {
                    Room::Targets(targets, slack) => {
                        claims.begin(&mut groups, RequestId(number), within, blocks, slack);
                        outstanding.insert(RequestId(number), (RangeSet::clone(&targets), blocks));
                    }
                    Room::Later => waits += 1,
                    Room::None => {}
                }
                while rng.random_bool(0.4) || number == 399 {
                    let Some(id) = outstanding.keys().copied().choose(&mut rng) else {
                        break;
                    };
                    let (targets, blocks) = outstanding.remove(&id).unwrap();
                    let starts = targets
                        .iter()
                        .flat_map(|run| run.start..(run.end + 1).saturating_sub(blocks.into()));
                    let place = starts
                        .choose(&mut rng)
                        .unwrap_or_else(|| panic!("SEED={seed}: no place left"));
                    for block in place..place + u64::from(blocks) {
                        groups[0].take_block(block as u32); // which asserts that it was free
                    }
                    for (targets, _) in outstanding.values_mut() {
                        targets.remove(place, place + u64::from(blocks));
                    }
                    claims.end(&mut groups, id);
                    placed += 1;
                }
            }
            assert_eq!((claims.len(), groups[0].is_named()), (0, false));
        }
        assert!(waits > 200 && placed > 3_000, "{waits} waits, {placed} placed");
    }
}
