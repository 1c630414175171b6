//! How fast each file system is, as this process has found out: medians of what its last accesses took.
//!
//! An access of many pieces says what a request takes; one of many bytes says what a byte takes. No clock here: who does
//! I/O says how long it took.

use std::collections::HashMap;

use parking_lot::Mutex;

/// The median of so many says what things take: two that agree are believed, one that is late is not.
const SAMPLES: usize = 3;
/// What a KiB takes as long as nobody knows: 1 GB/s.
const KIB_NS: u64 = 1_000;
/// Requests up to this length are all latency, longer ones say what bytes take.
const SMALL_BYTES: u64 = 64 << 10;
/// File systems that are remembered.
const DEVICES_MAX: usize = 1_024;

/// The last of what was seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recent<T> {
    last: [T; SAMPLES],
    count: usize,
}

/// The last samples.
pub(crate) type RecentSamples = Recent<u64>;

impl<T: Copy> Recent<T> {
    pub(crate) fn add(&mut self, seen: T) {
        self.last[self.count % SAMPLES] = seen;
        self.count += 1;
    }

    /// In no order.
    pub(crate) fn all(&self) -> &[T] {
        &self.last[..self.count.min(SAMPLES)]
    }
}

impl RecentSamples {
    /// Nothing as long as there is none.
    pub(crate) fn median(&self) -> Option<u64> {
        let mut known = self.last;
        let known = &mut known[..self.count.min(SAMPLES)];
        known.sort_unstable();
        known.get(known.len() / 2).copied()
    }

    /// What two of them agree on: nothing as long as there is one alone, which may be late.
    pub(crate) fn agreed(&self) -> Option<u64> {
        match self.count {
            0 | 1 => None,
            2 => self.least(),
            _ => self.median(),
        }
    }

    fn least(&self) -> Option<u64> {
        self.all().iter().min().copied()
    }
}

/// What was measured on one file system.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestTimes {
    request: RecentSamples,
    kib: RecentSamples,
}

impl RequestTimes {
    /// So many requests of so many bytes in all have taken so long.
    pub(crate) fn add(&mut self, requests: u64, bytes: u64, took_ns: u64) {
        if requests == 0 {
            return;
        }
        let each_ns = took_ns / requests;
        if bytes / requests <= SMALL_BYTES {
            let moving = bytes / requests * self.kib_ns() / 1024;
            // Never nothing, and never by bytes alone: what they take may have been measured on a bad day.
            self.request.add(each_ns.saturating_sub(moving).max(each_ns / 4).max(1));
        } else {
            let waiting = self.request.median().unwrap_or(0);
            let moving = each_ns.saturating_sub(waiting).max(each_ns / 4);
            self.kib.add((moving.saturating_mul(1024) / (bytes / requests)).max(1));
        }
    }

    fn kib_ns(&self) -> u64 {
        // What is late here is the processor or another process, not the bytes.
        self.kib.least().unwrap_or(KIB_NS)
    }

    /// Nothing as long as no request was measured.
    pub(crate) fn speed(&self) -> Option<Speed> {
        let request_ns = self.request.median()?;
        Some(Speed {
            request_ns,
            kib_ns: self.kib_ns(),
        })
    }
}

/// What is known of each file system, by its device number.
#[derive(Debug, Default)]
pub(crate) struct Speeds(Mutex<HashMap<u64, RequestTimes>>);

impl Speeds {
    pub(crate) fn add(&self, device: u64, requests: u64, bytes: u64, took_ns: u64) {
        let mut known = self.0.lock();
        if known.len() < DEVICES_MAX || known.contains_key(&device) {
            known.entry(device).or_default().add(requests, bytes, took_ns);
        }
    }

    /// A request that found nothing to read has taken so long: a first guess where nothing is known. A storage answers it from what it remembers.
    pub(crate) fn add_empty(&self, device: u64, took_ns: u64) {
        if self.of(device).is_none() {
            self.add(device, 1, 0, took_ns);
        }
    }

    /// One request of so many bytes has taken so long: what bytes take, if it was large enough to say so.
    pub(crate) fn add_large(&self, device: u64, bytes: u64, took_ns: u64) {
        if bytes > SMALL_BYTES {
            self.add(device, 1, bytes, took_ns);
        }
    }

    /// What bytes take was measured.
    pub(crate) fn knows_bytes(&self, device: u64) -> bool {
        let known = self.0.lock();
        known.get(&device).is_some_and(|times| times.kib.least().is_some())
    }

    pub(crate) fn of(&self, device: u64) -> Option<Speed> {
        self.0.lock().get(&device)?.speed()
    }
}

/// What requests to a file system take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Speed {
    /// Each request.
    pub(crate) request_ns: u64,
    /// Besides, each KiB of it.
    pub(crate) kib_ns: u64,
}

impl Speed {
    /// What so many requests of so many bytes in all take.
    pub(crate) fn of(self, requests: u64, bytes: u64) -> u64 {
        let moving = u128::from(self.kib_ns) * u128::from(bytes) / 1024;
        let all = u128::from(self.request_ns) * u128::from(requests) + moving;
        u64::try_from(all).unwrap_or(u64::MAX)
    }

    /// Gaps up to so many bytes are cheaper read and written back than a request is.
    pub(crate) fn gap_max(self) -> u64 {
        self.request_ns.saturating_mul(1024) / (2 * self.kib_ns.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_known_before_a_request_was_measured() {
        let speeds = Speeds::default();
        assert_eq!(speeds.of(1), None);
        speeds.add(1, 0, 0, 100);
        assert_eq!(speeds.of(1), None);
        speeds.add(1, 10, 2_000, 1_000_000);
        assert!(
            speeds
                .of(1)
                .is_some_and(|speed| (99_000..=100_000).contains(&speed.request_ns))
        );
        assert_eq!(speeds.of(2), None);
    }

    #[test]
    fn one_late_access_is_not_believed_and_two_are() {
        let mut measured = RequestTimes::default();
        (0..5).for_each(|_| measured.add(100, 100, 100 * 1_000));
        let before = measured.speed();
        measured.add(100, 100, 100 * 900_000);
        assert_eq!(measured.speed(), before);
        measured.add(100, 100, 100 * 900_000);
        assert!(measured.speed().is_some_and(|speed| speed.request_ns > 800_000));
    }

    #[test]
    fn large_requests_say_what_bytes_take() {
        let mut measured = RequestTimes::default();
        measured.add(1, 10, 100_000);
        measured.add(1, 4 << 20, 100_000 + 4096 * 250);
        assert_eq!(measured.speed().map(|speed| speed.kib_ns), Some(250));
    }

    #[test]
    fn what_bytes_take_is_known_from_large_requests_alone() {
        let speeds = Speeds::default();
        speeds.add(1, 10, 2_000, 1_000_000);
        speeds.add_large(1, 2_000, 1_000);
        assert!(!speeds.knows_bytes(1));
        speeds.add_large(1, 1 << 20, 100_000 + 1_024 * 500);
        assert!(speeds.knows_bytes(1));
        assert_eq!(speeds.of(1).map(|speed| speed.kib_ns / 10), Some(50));
    }

    #[test]
    fn what_reads_nothing_is_a_guess_that_the_next_request_mends() {
        let speeds = Speeds::default();
        speeds.add_empty(1, 1_000);
        assert_eq!(speeds.of(1).map(|speed| speed.request_ns), Some(1_000));
        speeds.add_empty(1, 2_000);
        speeds.add(1, 1, 0, 900_000);
        assert_eq!(speeds.of(1).map(|speed| speed.request_ns), Some(900_000));
        speeds.add_empty(1, 1_000);
        assert_eq!(speeds.of(1).map(|speed| speed.request_ns), Some(900_000));
    }

    #[test]
    fn one_sample_is_not_agreed_on_and_of_two_the_lesser_is() {
        let mut samples = RecentSamples::default();
        let agreed = [70, 10, 30, 20].map(|sample| {
            samples.add(sample);
            samples.agreed()
        });
        assert_eq!(agreed, [None, Some(10), Some(30), Some(20)]);
    }

    #[test]
    fn file_systems_that_are_remembered_are_bounded() {
        let speeds = Speeds::default();
        (0..2 * DEVICES_MAX as u64).for_each(|device| speeds.add(device, 1, 1, 1));
        assert_eq!(speeds.0.lock().len(), DEVICES_MAX);
    }
}
