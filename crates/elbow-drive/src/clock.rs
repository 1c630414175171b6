//! Real time: the clock of the drive, sleeping until a moment, and a thread that is woken in time.

use std::num::NonZeroU64;

use elbow_disk::Ps;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

const NS_PER_S: u64 = 1_000_000_000;
const PS_PER_NS: u64 = 1000;

/// A moment on CLOCK_MONOTONIC, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(pub(crate) u64);

impl Moment {
    pub(crate) fn now() -> Moment {
        let now = clock_gettime(ClockId::Monotonic);
        // Neither is negative on this clock.
        Moment(now.tv_sec as u64 * NS_PER_S + now.tv_nsec as u64)
    }

    /// By the drive's time, which began at `since`.
    pub(crate) fn since(self, since: Moment) -> Ps {
        Ps(self.0.saturating_sub(since.0).saturating_mul(PS_PER_NS))
    }

    /// So much later, rounded up.
    pub(crate) fn after(self, time: Ps) -> Moment {
        Moment(self.0 + time.0.div_ceil(PS_PER_NS))
    }

    pub(crate) fn earlier(self, ns: u64) -> Moment {
        Moment(self.0.saturating_sub(ns))
    }

    /// Returns at that moment, or at once where it has passed.
    pub(crate) fn sleep_until(self) {
        let until = Timespec {
            tv_sec: (self.0 / NS_PER_S) as i64,
            tv_nsec: (self.0 % NS_PER_S) as i64,
        };
        // By a signal it is broken off.
        while Moment::now() < self && clock_nanosleep_absolute(rustix::thread::ClockId::Monotonic, &until).is_err() {}
    }
}

/// Has this thread be woken before all that is not real-time; says whether that is allowed. For threads that mostly sleep, and measure.
///
/// ```
/// let is_first = std::thread::spawn(elbow_drive::wake_first).join();
/// println!("real-time: {is_first:?}");
/// ```
#[allow(unsafe_code)]
#[must_use]
pub fn wake_first() -> bool {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: 0 is the calling thread, and the parameter lives until the call returns.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const lowest) == 0 }
}

/// For a thread that is not: it is woken without the 50 us that the kernel may add.
pub(crate) fn wake_without_slack() {
    // Without it, it is woken later, and that is counted.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}
