//! Random cases that can be replayed, and the lock table by its definition.
//!
//! A failing case prints its seed, and `SEED=n` runs that case alone; `ROUNDS=n` runs so many, `SOAK=1` a hundred times as
//! many as usual.

#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod naive;

use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use elbow_testkit::cases::seeds;
use rand::SeedableRng;
use rand::rngs::StdRng;

/// Runs a test on many seeds, on all processors.
pub(crate) fn for_each_seed(usual: u64, test: impl Fn(&mut StdRng) + Sync) {
    let seeds = seeds(usual);
    let next = AtomicU64::new(seeds.start);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let run = AssertUnwindSafe(|| test(&mut StdRng::seed_from_u64(seed)));
            if let Err(panic) = std::panic::catch_unwind(run) {
                next.store(u64::MAX / 2, Ordering::Relaxed);
                eprintln!("replay with SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
}

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// The number of cases until a test fails, at most so many: for tests of tests. The panic is not printed.
pub(crate) fn cases_to_fail(at_most: u64, test: impl Fn(&mut StdRng)) -> Option<u64> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !IS_QUIET.get() {
                usual(panic);
            }
        }));
    });
    let fails = |seed: &u64| {
        let run = AssertUnwindSafe(|| test(&mut StdRng::seed_from_u64(*seed)));
        std::panic::catch_unwind(run).is_err()
    };
    IS_QUIET.set(true);
    let first = (0..at_most).find(fails);
    IS_QUIET.set(false);
    first.map(|seed| seed + 1)
}
