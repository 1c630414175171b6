//! The arithmetic of a decision: where the head is now, when it is elsewhere, and what no move can beat.
//!
//! Always: `floor[d]` is the least seek time of any distance from `d` on. The seek curve is not monotone (of the HP C2247A, 7
//! cylinders take less than 6), so that the time of `d` alone does not bound what lies further out; `floor` does.

use crate::drive::{Arm, Drive, Lbn, PositioningTime, Ps, Turn};

#[derive(Debug)]
pub(super) struct Arms {
    rotation: u64,
    turn: Turn,
    /// By distance, for reads, or for writes where those need less.
    floor: Vec<u64>,
    /// What a write adds to each move.
    settle: u64,
}

/// What a drive does between a pick and the medium: nothing where only mechanics count.
///
/// ```
/// use elbow_disk::{Ps, sched::CommandLead};
/// let command = CommandLead { arm: Ps::from_ms(0.8), data: Ps::from_ms(2.3) };
/// assert!(command != CommandLead::default());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandLead {
    /// From the pick until the arm may move.
    pub arm: Ps,
    /// From the pick until the first sector may pass the head: a write has to have its data.
    pub data: Ps,
}

/// Where a decision starts from.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArmState<'a> {
    pub(super) drive: &'a Drive,
    pub(super) arm: Arm,
    now: Ps,
    /// Of reads and of writes.
    leads: [CommandLead; 2],
    /// Angle under the heads now.
    angle: u64,
}

impl Arms {
    pub(super) fn new(drive: &Drive) -> Arms {
        let time = |cylinder, write| drive.arm_time(Arm::default(), Arm { cylinder, head: 0 }, write).0;
        // A write may need less than a read.
        let least = |cylinder| time(cylinder, false).min(time(cylinder, true));
        let mut floor: Vec<u64> = (0..drive.cylinders()).map(least).collect();
        // A measured seek curve may dip: the floor is the least time for this distance or any longer one.
        for at in (1..floor.len()).rev() {
            floor[at - 1] = floor[at - 1].min(floor[at]);
        }
        // The least that a write waits longer than a read: with the floor it stays below every real seek.
        let settle = (1..drive.cylinders())
            .map(|cylinder| time(cylinder, true).saturating_sub(time(cylinder, false)))
            .min();
        Arms {
            rotation: drive.rotation().0,
            turn: Turn::new(drive.rotation()),
            floor,
            settle: settle.unwrap_or(0),
        }
    }

    pub(super) fn stand<'a>(&self, drive: &'a Drive, arm: Arm, now: Ps, leads: [CommandLead; 2]) -> ArmState<'a> {
        ArmState {
            drive,
            arm,
            now,
            leads,
            angle: self.turn.remainder(now.0),
        }
    }

    /// The least time in which a write can be on a track `distance` cylinders away or further.
    #[inline]
    pub(super) fn floor(&self, from: &ArmState<'_>, distance: u32) -> u64 {
        let seek = if distance == 0 {
            0
        } else {
            self.floor[distance as usize] + self.settle
        };
        from.leads[1].after(seek)
    }

    /// Angle under the head so long after the pick.
    #[inline]
    pub(super) fn angle_after(&self, from: &ArmState<'_>, time: u64) -> u64 {
        self.turn.remainder(from.angle + time)
    }

    /// From one angle to the next time that the other is under the head.
    #[inline]
    pub(super) fn wait(&self, from: u64, to: u64) -> u64 {
        if to >= from {
            to - from
        } else {
            to + self.rotation - from
        }
    }

    pub(super) fn rotation(&self) -> u64 {
        self.rotation
    }
}

impl CommandLead {
    /// From the pick until the first sector may pass, after a seek.
    #[inline]
    fn after(self, seek: u64) -> u64 {
        (self.arm.0 + seek).max(self.data.0)
    }
}

impl ArmState<'_> {
    /// How long the arm takes to a track.
    #[inline]
    pub(super) fn seek(&self, arm: Arm, write: bool) -> u64 {
        self.drive.arm_time(self.arm, arm, write).0
    }

    /// From the pick until the first sector of a track may pass.
    #[inline]
    pub(super) fn ready(&self, arm: Arm, write: bool) -> u64 {
        self.leads[usize::from(write)].after(self.seek(arm, write))
    }

    /// Seek and rotation of one place by the drive's own word; a wait for data counts as rotation.
    pub(super) fn reach(&self, lbn: Lbn, write: bool) -> PositioningTime {
        let lead = self.leads[usize::from(write)];
        let there = self.drive.locate(lbn).arm;
        let seek = self.drive.arm_time(self.arm, there, write);
        let ready = Ps(lead.after(seek.0));
        let waited = self.drive.reach(there, self.now + ready, lbn, write).rotation;
        PositioningTime {
            seek,
            rotation: ready + waited - lead.arm - seek,
        }
    }

    /// From the pick until the first sector passes.
    pub(super) fn cost(&self, lbn: Lbn, write: bool) -> u64 {
        self.leads[usize::from(write)].arm.0 + self.reach(lbn, write).total().0
    }
}
