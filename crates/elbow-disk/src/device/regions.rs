//! Regions of a queue for sets of free places that come again and again.
//!
//! Always: a region's own set, and its targets in the queue, are what is free for everybody who waits for it. Regions for which nobody waits
//! are kept for the next request with the same set, up to [`IDLE_MAX`] of them.

use std::sync::Arc;

use elbow_ranges::RangeSet;

use crate::drive::Drive;
use crate::sched::{NoPlace, Queue, RegionId, Targets};

/// Files of the sizes that are written together mostly have a region each; more are made anew.
const IDLE_MAX: usize = 32;

/// What a range write needs, in units of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceNeed {
    /// Units that it takes, in a row.
    pub units: u32,
    /// Its start is a multiple of so many; at least 1.
    pub align: u32,
}

#[derive(Debug)]
struct Region {
    id: RegionId,
    need: PlaceNeed,
    /// In units.
    free: RangeSet,
    waiting: u32,
    used: u64,
}

#[derive(Debug)]
pub(super) struct Regions {
    /// Sectors of a unit.
    unit: u32,
    regions: Vec<Region>,
    uses: u64,
}

impl Regions {
    pub(super) fn new(unit: u32) -> Regions {
        Regions {
            unit,
            regions: Vec::new(),
            uses: 0,
        }
    }

    /// The region for one more who waits for a place in `free`; a new one where no other has just that set.
    pub(super) fn join(
        &mut self,
        queue: &mut Queue,
        drive: &Drive,
        free: RangeSet,
        need: PlaceNeed,
    ) -> Result<RegionId, NoPlace> {
        self.uses += 1;
        let uses = self.uses;
        let same = |region: &&mut Region| region.need == need && region.free == free;
        if let Some(region) = self.regions.iter_mut().find(same) {
            region.waiting += 1;
            region.used = uses;
            return Ok(region.id);
        }
        let unit = u64::from(self.unit);
        let sectors = free.iter().map(|range| range.start * unit..range.end * unit).collect();
        let targets = Targets::of_sorted(drive, sectors, need.units * self.unit, need.align * self.unit)?;
        self.drop_oldest(queue);
        let id = queue.add_region(targets);
        self.regions.push(Region {
            id,
            need,
            free,
            waiting: 1,
            used: uses,
        });
        Ok(id)
    }

    /// One who waited for a region has its place.
    pub(super) fn leave(&mut self, id: RegionId) {
        let region = self.regions.iter_mut().find(|region| region.id == id);
        region.expect("a region of this device").waiting -= 1;
    }

    /// Takes out all who wait in the queue for regions without a place.
    pub(super) fn turn_away(&mut self, queue: &mut Queue) -> Vec<u64> {
        let mut away = Vec::new();
        for region in &mut self.regions {
            if queue.region(region.id).places() == 0 {
                let ids = queue.turn_away(region.id);
                region.waiting -= ids.len() as u32;
                away.extend(ids);
            }
        }
        away
    }

    /// Units that are nobody's place any more.
    pub(super) fn take(&mut self, queue: &mut Queue, start: u64, end: u64) {
        let unit = u64::from(self.unit);
        for region in self
            .regions
            .iter_mut()
            .filter(|region| region.free.overlaps(start, end))
        {
            region.free.remove(start, end);
            queue.region_mut(region.id).take(start * unit, end * unit);
        }
    }

    /// Makes room among those for which nobody waits.
    fn drop_oldest(&mut self, queue: &mut Queue) {
        let idle = || {
            self.regions
                .iter()
                .enumerate()
                .filter(|(_, region)| region.waiting == 0)
        };
        if idle().count() < IDLE_MAX {
            return;
        }
        if let Some((oldest, _)) = idle().min_by_key(|(_, region)| region.used) {
            queue.remove_region(self.regions.swap_remove(oldest).id);
        }
    }
}

/// The set without the units that a write under way has taken, which its submitter did not know.
pub(super) fn without(free: &Arc<RangeSet>, taken: Option<(u64, u64)>) -> RangeSet {
    let mut free = RangeSet::clone(free);
    if let Some((start, end)) = taken {
        free.remove(start, end);
    }
    free
}
