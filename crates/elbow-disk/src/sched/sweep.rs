//! The arm's way over the disk, for SCAN and C-LOOK: by LBN, which is what a host knows of it.

use crate::drive::Lbn;

/// Where a sweep has come to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sweep {
    /// The sector after the last request that was picked.
    at: u64,
    /// SCAN only: towards lower LBNs.
    down: bool,
}

impl Sweep {
    /// How far off a request is on the way; less is sooner. Those behind are further off than all ahead.
    #[inline]
    pub(super) fn distance(self, lbn: Lbn, turns: bool) -> u64 {
        // LBNs are far below 2^63: half of the range is for each way.
        const BEHIND: u64 = 1 << 63;
        match (self.down, lbn.0 >= self.at) {
            (false, true) => lbn.0 - self.at,
            (false, false) if turns => BEHIND + (self.at - lbn.0),
            (false, false) => BEHIND + lbn.0,
            (true, false) => self.at - lbn.0,
            (true, true) => BEHIND + (lbn.0 - self.at),
        }
    }

    /// Goes on from a request that was picked.
    pub(super) fn go(&mut self, lbn: Lbn, sectors: u32, turns: bool) {
        let is_behind = (lbn.0 >= self.at) == self.down;
        if turns && is_behind {
            self.down = !self.down;
        }
        self.at = lbn.0 + if self.down { 0 } else { u64::from(sectors) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order in which requests of a sector are served that all wait from the start.
    fn order(turns: bool, from: u64, lbns: &[u64]) -> Vec<u64> {
        let mut sweep = Sweep { at: from, down: false };
        let mut left = lbns.to_vec();
        let mut served = Vec::new();
        while let Some(&next) = left.iter().min_by_key(|&&lbn| sweep.distance(Lbn(lbn), turns)) {
            sweep.go(Lbn(next), 1, turns);
            left.retain(|&lbn| lbn != next);
            served.push(next);
        }
        served
    }

    #[test]
    fn the_elevator_turns_and_c_look_begins_anew() {
        // The queue of textbooks, from 53 on.
        let lbns = [98, 183, 37, 122, 14, 124, 65, 67];
        assert_eq!(order(true, 53, &lbns), [65, 67, 98, 122, 124, 183, 37, 14]);
        assert_eq!(order(false, 53, &lbns), [65, 67, 98, 122, 124, 183, 14, 37]);
    }

    #[test]
    fn the_elevator_turns_again_below() {
        let mut sweep = Sweep { at: 50, down: false };
        let mut waiting = vec![60, 40];
        let mut served = Vec::new();
        for arrives in [&[70][..], &[], &[45, 20], &[], &[]] {
            let next = waiting
                .iter()
                .copied()
                .min_by_key(|&lbn| sweep.distance(Lbn(lbn), true));
            let next = next.expect("one waits");
            sweep.go(Lbn(next), 1, true);
            waiting.retain(|&lbn| lbn != next);
            waiting.extend_from_slice(arrives);
            served.push((next, sweep.down));
        }
        // 45 comes when the arm has passed it downwards, and 20 is still ahead.
        assert_eq!(served, [(60, false), (70, false), (40, true), (20, true), (45, false)]);
    }
}
