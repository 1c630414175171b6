//! Random cases that can be replayed.
//!
//! In the environment: `SEED=n` runs that case alone, `ROUNDS=n` runs so many, `SOAK=1` a hundred times as many as usual.
//! A case that fails says its seed. The usual cases are the same each time, so that the gate judges a change and not its luck; whoever
//! asks for another number of them gets new ones.

use std::io::Write as _;
use std::ops::Range;

use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::StdRng;

/// How many times as many cases run under `SOAK`.
const SOAK: u64 = 100;

/// The seeds of the cases to run: that of the environment, or [`rounds`] of them.
#[must_use]
pub fn seeds(usual: u64) -> Range<u64> {
    seeds_of(usual, SOAK)
}

/// The same with that many times as many under `SOAK`, for cases that take their time.
#[must_use]
pub fn seeds_of(usual: u64, soak: u64) -> Range<u64> {
    let first = first_seed();
    let count = if number("SEED").is_some() {
        1
    } else {
        rounds_of(usual, soak)
    };
    first..first + count
}

/// The seed of a test whose cases share one, which is told on stderr.
#[must_use]
pub fn seed() -> u64 {
    let seed = first_seed();
    eprintln!("SEED={seed}");
    seed
}

fn first_seed() -> u64 {
    let is_usual = ["ROUNDS", "SOAK"].iter().all(|name| std::env::var_os(name).is_none());
    let first = if is_usual { 0 } else { rand::random::<u32>().into() };
    number("SEED").unwrap_or(first)
}

/// How many cases to run: as many as are asked for, else as usual.
#[must_use]
pub fn rounds(usual: u64) -> u64 {
    rounds_of(usual, SOAK)
}

fn rounds_of(usual: u64, soak: u64) -> u64 {
    let is_soak = std::env::var_os("SOAK").is_some();
    number("ROUNDS").unwrap_or(count(usual, soak, is_soak))
}

fn count(usual: u64, soak: u64, is_soak: bool) -> u64 {
    if is_soak { usual * soak } else { usual }
}

/// Runs a test on each of [`seeds`].
///
/// ```
/// use rand::Rng;
///
/// elbow_testkit::cases::for_each_seed(100, |rng| {
///     let (a, b): (u32, u32) = (rng.random(), rng.random());
///     assert_eq!(a.wrapping_add(b), b.wrapping_add(a));
/// });
/// ```
///
/// # Panics
/// If the test does; the seed is then on stderr.
pub fn for_each_seed(usual: u64, test: impl Fn(&mut StdRng)) {
    for seed in seeds(usual) {
        let _told = ReportOnPanic(seed);
        test(&mut StdRng::seed_from_u64(seed));
    }
}

/// The same with so many cases at a time, for cases that wait more than they compute.
///
/// # Panics
/// If the test does; the seed is then on stderr, and no other case begins.
pub fn for_each_seed_at_once(usual: u64, at_once: usize, test: impl Fn(&mut StdRng) + Sync) {
    let seeds = Mutex::new(seeds(usual));
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let next = seeds.lock().next();
                    let Some(seed) = next else { break };
                    let _told = ReportOnPanic(seed);
                    let _no_more = StopOnPanic(&seeds);
                    test(&mut StdRng::seed_from_u64(seed));
                }
            });
        }
    });
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

struct ReportOnPanic(u64);

impl Drop for ReportOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("replay with SEED={}", self.0);
        }
    }
}

/// Leaves nothing to do for the others.
struct StopOnPanic<'a>(&'a Mutex<Range<u64>>);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            *self.0.lock() = 0..0;
        }
    }
}

/// Whether this is a soak; a test that is only part of one says aloud that it did not run.
#[must_use]
pub fn is_soak(test: &str) -> bool {
    let is_soak = std::env::var_os("SOAK").is_some();
    if !is_soak {
        // Not eprintln: the test runner would keep it to itself.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {test} is part of `make soak` (SOAK=1)");
    }
    is_soak
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicU64, Ordering};

    use rand::Rng;

    use super::*;

    /// A hundredth of the cases was rounded up before it was taken a hundred times: of 1 x 10 cases came 100, and a soak of ten minutes took
    /// two hours.
    #[test]
    fn a_soak_has_as_many_times_as_many_cases_as_it_is_told() {
        for (usual, soak, cases) in [(1, 10, 10), (6, 10, 60), (2000, 50, 100_000), (400, SOAK, 40_000)] {
            assert_eq!(count(usual, soak, true), cases);
            assert_eq!(count(usual, soak, false), usual);
        }
    }

    #[test]
    fn cases_at_once_are_all_run_and_end_at_the_first_failure() {
        let (ran, usual) = (AtomicU64::new(0), 1000);
        for_each_seed_at_once(usual, 4, |_| _ = ran.fetch_add(1, Ordering::Relaxed));
        assert_eq!(ran.swap(0, Ordering::Relaxed), seeds(usual).count() as u64);
        let failing = |rng: &mut StdRng| {
            ran.fetch_add(1, Ordering::Relaxed);
            assert!(rng.random::<u64>() == 0, "meant to fail");
        };
        let failed = catch_unwind(AssertUnwindSafe(|| for_each_seed_at_once(usual, 4, failing)));
        assert!(failed.is_err());
        assert!(ran.into_inner() <= 4);
    }
}
