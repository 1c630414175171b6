//! Requests for one place each, in columns: a decision reads what it needs of all of them in a row.

use super::arms::{ArmState, Arms};
use super::best::{Best, Candidate};
use super::policy::Ageing;
use crate::drive::{Arm, Drive, Lbn, Ps};

/// One waiting request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fixed {
    pub(super) id: u64,
    pub(super) lbn: Lbn,
    pub(super) sectors: u32,
    pub(super) write: bool,
    pub(super) arrived: Ps,
}

/// What an estimate needs.
#[derive(Clone, Copy, Debug)]
struct EstimateInput {
    arm: Arm,
    angle: u64,
    write: bool,
    /// Rises with each arrival.
    order: u64,
}

/// The requests, in no order; both columns are as long.
#[derive(Debug, Default)]
pub(super) struct Column {
    aims: Vec<EstimateInput>,
    requests: Vec<Fixed>,
}

impl Column {
    pub(super) fn len(&self) -> usize {
        self.aims.len()
    }

    pub(super) fn push(&mut self, drive: &Drive, order: u64, request: Fixed) {
        let arm = drive.locate(request.lbn).arm;
        let angle = angle_of(drive, arm, request.lbn);
        self.aims.push(EstimateInput {
            arm,
            angle,
            write: request.write,
            order,
        });
        self.requests.push(request);
    }

    pub(super) fn remove(&mut self, slot: usize) -> Fixed {
        // Both in the same way, or a slot would mean two requests; their order does not matter.
        self.aims.swap_remove(slot);
        self.requests.swap_remove(slot)
    }

    /// Takes out the request with this id.
    pub(super) fn withdraw(&mut self, id: u64) -> Option<Fixed> {
        let slot = self.requests.iter().position(|request| request.id == id)?;
        Some(self.remove(slot))
    }

    /// The one that came first.
    pub(super) fn oldest(&self) -> Option<(usize, u64)> {
        self.aims
            .iter()
            .map(|aim| aim.order)
            .enumerate()
            .min_by_key(|&(_, order)| order)
    }

    pub(super) fn lbn(&self, slot: usize) -> Lbn {
        self.requests[slot].lbn
    }

    /// The one with the least seek; returns its slot, time and order.
    pub(super) fn least_seek(&self, from: &ArmState<'_>) -> Option<(usize, u64, u64)> {
        let seek = |aim: &EstimateInput| from.seek(aim.arm, aim.write);
        let seeks = self
            .aims
            .iter()
            .enumerate()
            .map(|(slot, aim)| (slot, seek(aim), aim.order));
        seeks.min_by_key(|&(_, seek, order)| (seek, order))
    }

    /// The one with the least cost by its place and age; returns its slot, cost and order.
    pub(super) fn least(&self, cost: impl Fn(&Fixed) -> u64) -> Option<(usize, u64, u64)> {
        let both = self.aims.iter().zip(&self.requests).enumerate();
        both.map(|(slot, (aim, request))| (slot, cost(request), aim.order))
            .min_by_key(|&(_, cost, order)| (cost, order))
    }

    /// The one with the least positioning time after its age; returns its slot, cost and order.
    pub(super) fn least_aged(&self, arms: &Arms, from: &ArmState<'_>, ageing: Ageing) -> Option<(usize, u64, u64)> {
        let both = self.aims.iter().zip(&self.requests).enumerate();
        let cost = |aim: &EstimateInput, request: &Fixed| {
            let ready = from.ready(aim.arm, aim.write);
            ready + arms.wait(arms.angle_after(from, ready), aim.angle) + ageing.cost(request.arrived)
        };
        both.map(|(slot, (aim, request))| (slot, cost(aim, request), aim.order))
            .min_by_key(|&(_, cost, order)| (cost, order))
    }

    /// Improves `best` to the least positioning time.
    pub(super) fn least_positioning(&self, arms: &Arms, from: &ArmState<'_>, best: &mut Option<Best>) {
        let mut found = best.map_or((u64::MAX, u64::MAX), |best| (best.cost, best.order));
        let mut slot = None;
        for (at, aim) in self.aims.iter().enumerate() {
            let ready = from.ready(aim.arm, aim.write);
            // Most are further away than the best one so far takes in all: where those are in their turn does not matter.
            if ready > found.0 {
                continue;
            }
            let cost = ready + arms.wait(arms.angle_after(from, ready), aim.angle);
            if (cost, aim.order) < found {
                found = (cost, aim.order);
                slot = Some(at);
            }
        }
        if let Some(slot) = slot {
            let (cost, order) = found;
            *best = Some(Best {
                cost,
                order,
                lbn: self.lbn(slot),
                whose: Candidate::Fixed(slot),
            });
        }
    }
}

/// When in a turn a sector of the track at `arm` passes: the wait from the start of a turn. Unlike [`Drive::angle`] it looks up
/// only what was just looked up to find the track, and most of the time of a simulation goes into the first look.
#[inline]
pub(super) fn angle_of(drive: &Drive, arm: Arm, lbn: Lbn) -> u64 {
    drive.reach(arm, Ps::ZERO, lbn, false).rotation.0
}
