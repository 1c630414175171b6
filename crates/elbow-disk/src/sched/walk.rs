//! The hierarchical-range scheduler: the nearest cylinders first, of each the tracks, of each the next free place.
//!
//! ```text
//!        arm
//!   ... 2 | 0 | 1 3 ...     cylinders in the order of distance; the walk stops at distance d when floor(d) is more than the best
//! ```
//!
//! Why that is safe: a place at distance d takes at least `time(d) >= floor(d)`, the minimum of `time` over d and all larger
//! distances; rotation is not negative, and a head switch only adds. So when `floor(d)` exceeds the best cost found, no place at d or
//! beyond is better, and none is as good. On one track the next free place to pass is strictly the cheapest, since the arm
//! is ready at one time. What the drive does before the arm moves delays all places alike.
//!
//! Source: Anand et al., section 3.3.

use super::arms::{ArmState, Arms};
use super::best::Best;
use super::targets::{Cylinder, Targets};
use super::tracks::Row;
use crate::drive::Lbn;

/// Improves `best` to the best place of a region; returns the number of estimates. `whose` says for which request.
pub(super) fn pruned(targets: &Targets, arms: &Arms, from: &ArmState<'_>, best: &mut Option<Best>, whose: Best) -> u64 {
    let mut estimates = 0;
    for cylinder in OutwardCylinders::new(&targets.cylinders, from.arm.cylinder) {
        let distance = cylinder.number.abs_diff(from.arm.cylinder);
        // All that follow are further away, and none of them can be reached sooner.
        if beaten(arms.floor(from, distance), best.as_ref()) {
            break;
        }
        for row in &targets.rows[cylinder.first as usize..cylinder.end as usize] {
            let ready = from.ready(row.arm, true);
            // Where the seek alone costs more than the best, its sectors need not be looked at.
            if row.free > 0 && !beaten(ready, best.as_ref()) {
                estimate(targets, row, arms, from, ready, best, whose);
                estimates += 1;
            }
        }
    }
    estimates
}

/// The same by looking at every track.
pub(super) fn whole(targets: &Targets, arms: &Arms, from: &ArmState<'_>, best: &mut Option<Best>, whose: Best) -> u64 {
    let mut estimates = 0;
    for row in targets.rows.iter().filter(|row| row.free > 0) {
        estimate(targets, row, arms, from, from.ready(row.arm, true), best, whose);
        estimates += 1;
    }
    estimates
}

/// Estimates the next free place of a track.
#[inline]
fn estimate(
    targets: &Targets,
    row: &Row,
    arms: &Arms,
    from: &ArmState<'_>,
    ready: u64,
    best: &mut Option<Best>,
    whose: Best,
) {
    let angle = arms.angle_after(from, ready);
    if let Some((start, wait)) = row.next(&targets.bits, targets.align, arms, angle) {
        let lbn = Lbn(row.first + u64::from(start) * u64::from(targets.align));
        Best {
            cost: ready + wait,
            lbn,
            ..whose
        }
        .improve(best);
    }
}

fn beaten(time: u64, best: Option<&Best>) -> bool {
    // What is as good is still looked at: an older request or a lower LBN wins among equals.
    best.is_some_and(|best| time > best.cost)
}

/// Cylinders by distance from the arm; of two as far, the lower.
pub(super) struct OutwardCylinders<'a> {
    cylinders: &'a [Cylinder],
    arm: u32,
    left: usize,
    right: usize,
}

impl<'a> OutwardCylinders<'a> {
    pub(super) fn new(cylinders: &'a [Cylinder], arm: u32) -> OutwardCylinders<'a> {
        let right = cylinders.partition_point(|cylinder| cylinder.number < arm);
        OutwardCylinders {
            cylinders,
            arm,
            left: right,
            right,
        }
    }
}

impl<'a> Iterator for OutwardCylinders<'a> {
    type Item = &'a Cylinder;

    #[inline]
    fn next(&mut self) -> Option<&'a Cylinder> {
        let left = self.left.checked_sub(1).map(|at| &self.cylinders[at]);
        let right = self.cylinders.get(self.right);
        let takes_left = match (left, right) {
            (Some(left), Some(right)) => self.arm - left.number <= right.number - self.arm,
            (left, _) => left.is_some(),
        };
        if takes_left {
            self.left -= 1;
            left
        } else {
            self.right += 1;
            right
        }
    }
}
