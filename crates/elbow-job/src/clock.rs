//! The time of day, as a storage keeps it.

use elbow_file::Time;

/// The time of day.
pub(crate) fn clock() -> Time {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    Time {
        seconds: now.tv_sec,
        nanoseconds: now.tv_nsec as u32,
    }
}
