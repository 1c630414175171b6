//! The queue, the drive behind it, and what waits outside: one event after the other.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use elbow_ranges::RangeSet;

use super::Setup;
use super::regions::{Need, Regions, without};
use crate::drive::{Drive, Lbn, Ps};
use crate::sched::{Ask, NoPlace, Pick, Queue};
use crate::workload::{DriveSide, Moment, Parts};

/// What is asked, in sectors for fixed places and in units for ranges.
#[derive(Debug)]
pub(super) enum Asked<'a> {
    At { lbn: Lbn, sectors: u32, write: bool },
    Within { free: &'a Arc<RangeSet>, need: Need },
}

/// The end of a request.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) id: u64,
    pub(super) lbn: Lbn,
    pub(super) sectors: u32,
    pub(super) parts: Parts,
}

#[derive(Debug)]
pub(super) struct Engine<'d> {
    drive: &'d Drive,
    side: DriveSide<'d>,
    queue: Queue,
    regions: Regions,
    unit: u32,
    depth: usize,
    moment: Moment,
    /// Not known to the drive yet, in the order of the host.
    outside: VecDeque<(u64, Ask)>,
    running: Option<Finished>,
    /// The place of a range write under way, in units.
    taken: Option<(u64, u64)>,
    /// From when on the drive has nothing to do.
    free_at: Ps,
    /// Writes in the queue by their length, for which the drive's lead differs.
    lengths: BTreeMap<u32, u32>,
    /// Range writes for which there is no place any more.
    turned_away: Vec<u64>,
}

impl<'d> Engine<'d> {
    /// A drive just started, whose ranges are in units of so many sectors.
    pub(super) fn new(drive: &'d Arc<Drive>, setup: Setup, unit: u32) -> Engine<'d> {
        assert!(setup.depth > 0, "a drive knows at least the request that it serves");
        Engine {
            drive,
            side: DriveSide::new(drive, setup.overheads, unit),
            queue: Queue::new(Arc::clone(drive), setup.scheduler),
            regions: Regions::new(unit),
            unit,
            depth: setup.depth,
            moment: setup.pick,
            outside: VecDeque::new(),
            running: None,
            taken: None,
            free_at: Ps::ZERO,
            lengths: BTreeMap::new(),
            turned_away: Vec::new(),
        }
    }

    /// Takes a request; ids are the caller's.
    pub(super) fn submit(&mut self, now: Ps, id: u64, asked: &Asked<'_>) -> Result<(), NoPlace> {
        if now > self.free_at {
            self.start(); // with those who came before now
        }
        let ask = match *asked {
            Asked::At { lbn, sectors, write } => Ask::At { lbn, sectors, write },
            Asked::Within { free, need } => {
                let free = without(free, self.taken);
                Ask::Anywhere(self.regions.join(&mut self.queue, self.drive, free, need)?)
            }
        };
        if self.running.is_none() {
            self.free_at = self.free_at.max(now);
        }
        self.outside.push_back((id, ask));
        Ok(())
    }

    /// When the request being served will be complete; none, when there is nothing to serve.
    pub(super) fn next_at(&mut self) -> Option<Ps> {
        self.start();
        self.running.as_ref().map(|running| running.parts.end)
    }

    /// Completes it.
    pub(super) fn complete(&mut self) -> Option<Finished> {
        self.next_at()?;
        let finished = self.running.take()?;
        self.taken = None;
        self.free_at = finished.parts.end;
        if self.moment == Moment::Before {
            self.serve_next();
        }
        self.let_in();
        Some(finished)
    }

    /// Range writes that found no place, since the last time that they were asked for.
    pub(super) fn turned_away(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.turned_away)
    }

    /// Serves the next one, if the drive has nothing to do.
    fn start(&mut self) {
        while self.running.is_none() && !(self.queue.is_empty() && self.outside.is_empty()) {
            self.let_in();
            self.serve_next();
            if self.running.is_none() {
                // Only those are left for whom there is no place.
                let away = self.regions.turn_away(&mut self.queue);
                assert!(!away.is_empty(), "a request that has a place is picked");
                self.lengths.clear();
                self.turned_away.extend(away);
            }
        }
    }

    fn let_in(&mut self) {
        let known = |engine: &Self| engine.queue.len() + usize::from(engine.running.is_some());
        while known(self) < self.depth
            && let Some((id, ask)) = self.outside.pop_front()
        {
            if let Some(length) = self.length(&ask) {
                *self.lengths.entry(length).or_default() += 1;
            }
            self.queue.push(id, ask);
        }
    }

    /// Of a write.
    fn length(&self, ask: &Ask) -> Option<u32> {
        match *ask {
            Ask::At { sectors, write, .. } => write.then_some(sectors),
            Ask::Anywhere(region) => Some(self.queue.region(region).sectors()),
        }
    }

    fn serve_next(&mut self) {
        let shortest = self.lengths.first_key_value().map(|(&length, _)| length);
        let (read, write) = self.side.leads_for(shortest.unwrap_or(self.unit));
        let arm = self.side.arm(self.free_at);
        let Some(pick) = self.queue.pick_with(arm, self.free_at, read, write) else {
            return;
        };
        self.picked(&pick);
        let parts = self.side.serve(self.free_at, &pick);
        let Pick { id, lbn, sectors, .. } = pick;
        self.running = Some(Finished {
            id,
            lbn,
            sectors,
            parts,
        });
    }

    /// Its place is nobody else's.
    fn picked(&mut self, pick: &Pick) {
        if pick.write {
            let count = self.lengths.get_mut(&pick.sectors).expect("it was let in");
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&pick.sectors);
            }
        }
        if let Some(region) = pick.region {
            let unit = u64::from(self.unit);
            let place = (pick.lbn.0 / unit, (pick.lbn.0 + u64::from(pick.sectors)) / unit);
            self.regions.leave(region);
            self.regions.take(&mut self.queue, place.0, place.1);
            self.taken = Some(place);
        }
    }
}
