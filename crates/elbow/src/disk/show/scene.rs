//! What is shown: a list as it was served, and where things are at any moment of it.

use std::sync::Arc;

use elbow_disk::timeline::{DriveActivity, Listed, Plan, Step, Visit};
use elbow_disk::{Drive, Lbn, Ps, Served};
use serde_json::{Value, json};

/// A list as it was served.
pub(super) struct Scene<'a> {
    pub(super) drive: &'a Drive,
    pub(super) plan: Plan,
    pub(super) list: Vec<Listed>,
    /// In the order of service.
    pub(super) visits: Vec<Visit>,
}

/// Sectors that lie together on a track: where, as parts of a radius and degrees.
pub(super) struct Piece {
    pub(super) radius: f64,
    pub(super) degrees: [f64; 2],
}

/// What a step is called.
pub(super) fn name(doing: DriveActivity) -> &'static str {
    match doing {
        DriveActivity::Idle => "idle",
        DriveActivity::Overhead => "overhead",
        DriveActivity::Seek => "seek",
        DriveActivity::Rotation => "rotation",
        DriveActivity::Transfer => "transfer",
        DriveActivity::NextTrack => "next track",
        DriveActivity::NextSector => "next sector",
    }
}

/// The innermost cylinder lies so far out, as part of the outermost one's radius.
const INNER: f64 = 0.38;

impl Scene<'_> {
    pub(super) fn new(drive: &Arc<Drive>, plan: Plan, list: Vec<Listed>) -> Scene<'_> {
        let visits = plan.serve(drive, &list);
        Scene {
            drive,
            plan,
            list,
            visits,
        }
    }

    pub(super) fn end(&self) -> Ps {
        self.visits.last().map_or(Ps::ZERO, |visit| visit.parts.end)
    }

    /// All steps in their order, each with the number of its request.
    pub(super) fn steps(&self) -> impl Iterator<Item = (usize, &Step)> {
        let all = self.visits.iter();
        all.flat_map(|visit| visit.steps.iter().map(|step| (visit.number, step)))
    }

    /// How far the platter has turned since angle 0, in degrees; more than 360 after the first turn.
    pub(super) fn turned(&self, time: Ps) -> f64 {
        self.degrees(self.plan.angle + time)
    }

    /// Which angle is under the heads.
    pub(super) fn below(&self, time: Ps) -> f64 {
        self.turned(time) % 360.0
    }

    fn degrees(&self, angle: Ps) -> f64 {
        angle.ms() / self.drive.rotation().ms() * 360.0
    }

    /// How far from the middle a cylinder is drawn: 1 is the outermost.
    pub(super) fn radius(&self, cylinder: f64) -> f64 {
        let last = f64::from(self.drive.cylinders().max(2) - 1);
        1.0 - (1.0 - INNER) * cylinder / last
    }

    /// The cylinder that the arm is over.
    pub(super) fn cylinder(&self, time: Ps) -> f64 {
        let step = self.steps().map(|(_, step)| step).find(|step| time < step.to);
        let Some(step) = step else {
            let last = self.steps().last().map_or(self.plan.arm, |(_, step)| step.arm[1]);
            return f64::from(last.cylinder);
        };
        let part = time.saturating_sub(step.from).ms() / step.takes().ms();
        let [from, to] = step.arm.map(|arm| f64::from(arm.cylinder));
        from + (to - from) * part
    }

    /// Where the sectors of a request lie, a piece for each track.
    pub(super) fn pieces(&self, request: usize) -> Vec<Piece> {
        let of = self.visits.iter().filter(|visit| visit.number == request);
        let passes = of.flat_map(|visit| &visit.steps);
        passes
            .filter(|step| step.doing == DriveActivity::Transfer)
            .map(|step| self.piece(step))
            .collect()
    }

    fn piece(&self, step: &Step) -> Piece {
        let begin = self.degrees(self.drive.angle(self.drive.locate(step.first)));
        Piece {
            radius: self.radius(f64::from(step.arm[1].cylinder)),
            degrees: [begin, begin + self.degrees(step.takes())],
        }
    }

    /// Zones from the outermost on: the first cylinder of each.
    pub(super) fn zone_cylinders(&self) -> Vec<u32> {
        let zones = self.drive.summary().zones;
        zones.iter().map(|zone| zone.cylinders[0]).collect()
    }

    /// What all requests together took: overhead, seek, rotation, transfer.
    pub(super) fn totals(&self) -> [Ps; 4] {
        self.visits.iter().fold([Ps::ZERO; 4], |sums, visit| {
            let parts = of(&visit.parts);
            std::array::from_fn(|part| sums[part] + parts[part])
        })
    }

    /// All of it for programs.
    pub(super) fn object(&self) -> Value {
        let [overhead, seek, rotation, transfer] = self.totals().map(Ps::ms);
        json!({
            "drive": self.drive.name(),
            "turn_ms": self.drive.rotation().ms(),
            "scheduler": self.plan.scheduler.to_string(),
            "depth": self.plan.depth,
            "start": {
                "cylinder": self.plan.arm.cylinder,
                "head": self.plan.arm.head,
                "degrees": self.below(Ps::ZERO),
            },
            "requests": self.visits.iter().map(|visit| self.visit_object(visit)).collect::<Vec<_>>(),
            "overhead_ms": overhead,
            "seek_ms": seek,
            "rotation_ms": rotation,
            "transfer_ms": transfer,
            "end_ms": self.end().ms(),
        })
    }

    fn visit_object(&self, visit: &Visit) -> Value {
        let request = visit.listed.request;
        let [overhead, seek, rotation, transfer] = of(&visit.parts).map(Ps::ms);
        json!({
            "request": visit.number + 1,
            "op": op(request.write),
            "lbn": request.lbn,
            "sectors": request.sectors,
            "arrival_ms": visit.listed.arrival.ms(),
            "start_ms": visit.began.ms(),
            "end_ms": visit.parts.end.ms(),
            "overhead_ms": overhead,
            "seek_ms": seek,
            "rotation_ms": rotation,
            "transfer_ms": transfer,
            "steps": visit.steps.iter().map(|step| self.step_object(step)).collect::<Vec<_>>(),
        })
    }

    fn step_object(&self, step: &Step) -> Value {
        let Lbn(lbn) = step.first;
        let cylinders = step.arm.map(|arm| arm.cylinder);
        let heads = step.arm.map(|arm| arm.head);
        let degrees = [step.from, step.to].map(|time| self.below(time));
        json!({
            "doing": name(step.doing),
            "from_ms": step.from.ms(),
            "to_ms": step.to.ms(),
            "cylinders": cylinders,
            "heads": heads,
            "degrees": degrees,
            "lbn": lbn,
            "sectors": step.sectors,
        })
    }
}

/// Overhead, seek, rotation, transfer.
pub(super) fn of(parts: &Served) -> [Ps; 4] {
    [parts.overhead, parts.seek, parts.rotation, parts.transfer]
}

pub(super) fn op(write: bool) -> char {
    if write { 'W' } else { 'R' }
}
