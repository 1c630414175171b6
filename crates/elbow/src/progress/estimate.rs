//! How far something is, how fast it gets on, and how long it will take: from where it was at some moments.
//!
//! ```text
//!   percent     bytes, and for each item what it costs beside them, done of all; below 100 while anything is left
//!   rates       a mean that forgets: what is older than some seconds (a fifth of a long time) hardly counts
//!   time left   the longer of what the bytes and what the items will take at these rates
//! ```
//!
//! Only time in which there was work counts. The clock is the caller's. A percentage goes back only where more work
//! has come, and not at all once no more can come ([`Estimate::close`]).

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// What an object costs on storage beside its bytes, in bytes: some round trips, at what a slow network takes meanwhile.
/// Small files then count by their number and large ones by their size.
const ITEM_BYTES: u64 = 64 << 10;
/// What is this old counts for a third in a rate, at first.
const MEMORY: Duration = Duration::from_secs(5);
/// The longer something takes, the steadier its rates: such a part of its time is remembered.
const MEMORY_SHARE: f64 = 0.2;
/// No rate is known before that much time with work.
const RATE_SECONDS_MIN: f64 = 0.3;
/// Nobody wants to know more exactly.
const LEFT_MAX: Duration = Duration::from_secs(1000 * 24 * 3600);

/// Done of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) done: u64,
    pub(crate) total: u64,
}

impl Part {
    pub(crate) fn new(done: u64, left: u64) -> Self {
        let total = done + left;
        Self { done, total }
    }

    pub(crate) fn left(self) -> u64 {
        self.total.saturating_sub(self.done)
    }
}

/// What was done in what time with work; older things count less.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    done: f64,
    seconds: f64,
    all_done: f64,
    all_seconds: f64,
}

impl Rate {
    fn note(&mut self, done: u64, elapsed: Duration) {
        let (done, seconds) = (done as f64, elapsed.as_secs_f64());
        let memory = MEMORY.as_secs_f64().max(self.all_seconds * MEMORY_SHARE);
        let kept = (-seconds / memory).exp();
        self.done = self.done * kept + done;
        self.seconds = self.seconds * kept + seconds;
        self.all_done += done;
        self.all_seconds += seconds;
    }

    fn per_second(&self) -> Option<f64> {
        (self.all_seconds >= RATE_SECONDS_MIN).then(|| self.done / self.seconds)
    }

    fn mean(&self) -> Option<f64> {
        (self.all_seconds >= RATE_SECONDS_MIN).then(|| self.all_done / self.all_seconds)
    }
}

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Estimate {
    last: Option<(Instant, Part, Part)>,
    bytes_rate: Rate,
    items_rate: Rate,
    is_closed: bool,
    percent: u64,
}

impl Estimate {
    /// Of what begins now, with nothing done: what is done before the first look counts for its rate, too.
    pub(crate) fn begun(now: Instant) -> Self {
        Self {
            last: Some((now, Part::default(), Part::default())),
            ..Self::default()
        }
    }

    /// It is there now.
    pub(crate) fn note(&mut self, now: Instant, bytes: Part, items: Part) {
        if let Some((then, bytes_then, items_then)) = self.last {
            let elapsed = now.saturating_duration_since(then);
            note(&mut self.bytes_rate, bytes_then, bytes, elapsed);
            note(&mut self.items_rate, items_then, items, elapsed);
        }
        self.last = Some((now, bytes, items));
        let percent = percent(bytes, items);
        self.percent = if self.is_closed {
            percent.max(self.percent)
        } else {
            percent
        };
        if self.is_over() {
            self.percent = 100;
        } else {
            self.percent = self.percent.min(99);
        }
    }

    /// From now on work is only done, though some of it may show late.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
    }

    /// 0 to 100; 100 only when nothing is left.
    pub(crate) fn percent(&self) -> u64 {
        self.percent
    }

    pub(crate) fn bytes_per_second(&self) -> Option<f64> {
        self.bytes_rate.per_second()
    }

    pub(crate) fn items_per_second(&self) -> Option<f64> {
        self.items_rate.per_second()
    }

    /// Time until all of it is done, at the rates that it is done at; `None` while they are not known.
    pub(crate) fn left(&self) -> Option<Duration> {
        let (_, bytes, items) = self.last?;
        if self.is_over() {
            return Some(Duration::ZERO);
        }
        let by_bytes = seconds(bytes.left(), self.bytes_rate.per_second());
        // Items come rarely where they are large: what the whole time says is then truer than what the last seconds do.
        let items_rate = self.items_rate.per_second().zip(self.items_rate.mean());
        let by_items = seconds(items.left(), items_rate.map(|(now, mean)| now.max(mean)));
        let longer = [by_bytes, by_items].into_iter().flatten().reduce(f64::max)?;
        Some(Duration::try_from_secs_f64(longer).unwrap_or(LEFT_MAX).min(LEFT_MAX))
    }

    fn is_over(&self) -> bool {
        self.last
            .is_some_and(|(_, bytes, items)| bytes.left() == 0 && items.left() == 0)
    }
}

/// Time in which nothing was left and nothing was done says nothing.
fn note(rate: &mut Rate, then: Part, now: Part, elapsed: Duration) {
    let done = now.done.saturating_sub(then.done);
    if done > 0 || now.left() > 0 {
        rate.note(done, elapsed);
    }
}

fn seconds(left: u64, rate: Option<f64>) -> Option<f64> {
    let rate = rate.filter(|rate| left > 0 && *rate > 0.0)?;
    Some(left as f64 / rate)
}

/// At least 1 where anything is done.
fn percent(bytes: Part, items: Part) -> u64 {
    let cost = |bytes: u64, items: u64| u128::from(bytes) + u128::from(items) * u128::from(ITEM_BYTES);
    let done = cost(bytes.done.min(bytes.total), items.done.min(items.total));
    let percent = done * 100 / cost(bytes.total, items.total).max(1);
    u64::try_from(percent).unwrap_or(100).max(u64::from(done > 0))
}

#[cfg(test)]
mod tests {
    use elbow_testkit::cases;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    const TICK: Duration = Duration::from_millis(100);

    /// Looks at the work each tick, and at the end.
    fn run(ticks: u32, mut at: impl FnMut(u32) -> (Part, Part)) -> (Estimate, Vec<u64>) {
        let (began, mut estimate, mut percents) = (Instant::now(), Estimate::default(), Vec::new());
        for tick in 0..=ticks {
            let (bytes, items) = at(tick);
            estimate.note(began + TICK * tick, bytes, items);
            percents.push(estimate.percent());
        }
        (estimate, percents)
    }

    fn part(done: u64, total: u64) -> Part {
        Part { done, total }
    }

    #[test]
    fn steady_work_has_its_rate_and_its_time() {
        let (estimate, percents) = run(50, |tick| {
            let done = u64::from(tick);
            (part(done * 100_000, 10_000_000), part(done, 100))
        });
        assert_eq!(percents.last(), Some(&50));
        let rate = estimate.bytes_per_second().expect("a rate");
        assert!((999_000.0..1_001_000.0).contains(&rate), "{rate}");
        assert_eq!(estimate.left().map(|left| left.as_secs_f64().round()), Some(5.0));
    }

    /// One large file is no object until it is all there, and many small ones have few bytes: neither may stay at 0.
    #[test]
    fn large_files_get_on_by_bytes_and_small_ones_by_number() {
        let (_, large) = run(10, |tick| {
            (
                part(u64::from(tick) * 100_000_000, 1_000_000_000),
                part(u64::from(tick) / 10, 1),
            )
        });
        let (_, small) = run(10, |tick| (part(10, 10), part(u64::from(tick) * 100, 1000)));
        for percents in [large, small] {
            assert!(percents.windows(2).all(|pair| pair[0] < pair[1]), "{percents:?}");
            assert_eq!(percents.last(), Some(&100));
        }
    }

    #[test]
    fn the_slower_of_bytes_and_items_says_how_long_it_takes() {
        let (estimate, _) = run(20, |tick| (part(1_000_000, 1_000_000), part(u64::from(tick) * 10, 400)));
        assert_eq!(estimate.left().map(|left| left.as_secs_f64().round()), Some(2.0));
        let (estimate, _) = run(20, |tick| (part(u64::from(tick) * 1000, 100_000), part(399, 400)));
        assert_eq!(estimate.left().map(|left| left.as_secs_f64().round()), Some(8.0));
    }

    #[test]
    fn time_without_work_makes_nothing_slower() {
        let (estimate, _) = run(100, |tick| {
            let done = u64::from(tick.clamp(0, 10)) * 1000;
            (part(done, done + u64::from(tick < 10) * 1000), Part::default())
        });
        let rate = estimate.bytes_per_second().expect("a rate");
        assert!((9_900.0..10_100.0).contains(&rate), "{rate}");
    }

    /// A sort that had written its runs before the first look, and then waited for a reader, had a rate of 0 and no time left.
    #[test]
    fn what_is_done_before_the_first_look_counts() {
        let began = Instant::now();
        let mut estimate = Estimate::begun(began);
        for tick in 1..=10 {
            estimate.note(began + TICK * tick, part(3_000_000, 5_000_000), Part::default());
        }
        assert_eq!(estimate.percent(), 60);
        let rate = estimate.bytes_per_second().expect("a rate");
        assert!((2_000_000.0..4_000_000.0).contains(&rate), "{rate}");
        assert!(estimate.left().is_some_and(|left| !left.is_zero()));
    }

    #[test]
    fn a_glance_is_not_enough_for_a_rate() {
        let (estimate, percents) = run(1, |tick| (part(u64::from(tick) << 40, 1 << 41), Part::default()));
        assert_eq!((estimate.bytes_per_second(), estimate.left()), (None, None));
        assert_eq!(percents, [0, 50]);
    }

    #[test]
    fn any_work_stays_within_its_bounds() {
        for seed in cases::seeds(300) {
            let mut rng = StdRng::seed_from_u64(seed);
            let (mut bytes, mut items) = (Part::default(), Part::default());
            let (began, mut now) = (Instant::now(), Instant::now());
            let (mut estimate, mut before) = (Estimate::default(), 0);
            let closes = rng.random_range(0..100);
            for step in 0..100 {
                if step == closes {
                    estimate.close();
                }
                let (total_before, is_closed) = ((bytes.total, items.total), step >= closes);
                grow(&mut rng, &mut bytes, &mut items);
                now += Duration::from_millis(rng.random_range(0..2000));
                estimate.note(now, bytes, items);
                let note = format!("SEED={seed} step {step}: {estimate:?}");
                let percent = estimate.percent();
                let is_over = bytes.left() == 0 && items.left() == 0;
                assert!(percent <= 100 && (percent == 100) == is_over, "{note}");
                let no_more = (bytes.total, items.total) == total_before;
                assert!(percent >= before || before == 100 || !no_more && !is_closed, "{note}");
                assert!(percent > 0 || bytes.done + items.done == 0, "{note}");
                let most = 2.0 * bytes.done as f64 / RATE_SECONDS_MIN;
                assert!(
                    estimate
                        .bytes_per_second()
                        .is_none_or(|rate| (0.0..=most).contains(&rate)),
                    "{note}"
                );
                assert!(estimate.left().is_none_or(|left| left <= LEFT_MAX), "{note}");
                before = percent;
            }
            assert!(now >= began);
        }
    }

    /// More work, or more of it done, or neither.
    fn grow(rng: &mut StdRng, bytes: &mut Part, items: &mut Part) {
        for (part, most) in [(bytes, 1_u64 << 34), (items, 5000)] {
            match rng.random_range(0..4) {
                0 => part.total += rng.random_range(0..most),
                1 => part.done += rng.random_range(0..=part.left()),
                2 => part.done = part.total,
                _ => {}
            }
        }
    }
}
