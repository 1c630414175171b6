//! Random cases that can be replayed: a failing test prints its seed, and `SEED=n` runs that case alone; `ROUNDS=n` runs
//! so many, `SOAK=1` a hundred times as many.
#![allow(dead_code)] // no test uses all of it

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Cases per test without `SEED` or `ROUNDS`.
const CASES: u64 = 400;

/// Runs a test on many seeds, or on the one in the environment.
pub(crate) fn for_each_seed(test: impl Fn(&mut StdRng)) {
    let seeds = match std::env::var("SEED") {
        Ok(seed) => vec![seed.parse().expect("SEED is a number")],
        Err(_) => {
            let base = rand::rng().random::<u32>();
            let soak = if std::env::var_os("SOAK").is_some() { 100 } else { 1 };
            let rounds =
                std::env::var("ROUNDS").map_or(CASES * soak, |rounds| rounds.parse().expect("ROUNDS is a number"));
            (0..rounds).map(|case| u64::from(base) + case).collect()
        }
    };
    for seed in seeds {
        let _told = TellOnPanic(seed);
        test(&mut StdRng::seed_from_u64(seed));
    }
}

struct TellOnPanic(u64);

impl Drop for TellOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("replay with SEED={}", self.0);
        }
    }
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
