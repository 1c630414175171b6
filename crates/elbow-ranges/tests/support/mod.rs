//! Random cases of ranges.
#![allow(dead_code)] // no test uses all of it

use rand::Rng;
use rand::rngs::StdRng;

/// Runs a test on 400 seeds: see [`elbow_testkit::cases`].
pub(crate) fn for_each_seed(test: impl Fn(&mut StdRng)) {
    elbow_testkit::cases::for_each_seed(400, test);
}

/// Where the points of a case lie: at either end of what can be held, or around the middle.
pub(crate) fn base(rng: &mut StdRng, points: u64) -> u64 {
    [0, u64::MAX / 2, u64::MAX - points][rng.random_range(0..3)]
}

/// A range among the first so many points; empty at times.
pub(crate) fn range(rng: &mut StdRng, points: u64) -> (u64, u64) {
    let (a, b) = (rng.random_range(0..=points), rng.random_range(0..=points));
    (a.min(b), a.max(b))
}
