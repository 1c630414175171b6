//! The schedulers by name.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use crate::drive::Ps;

/// How the next request, and its place, is chosen.
///
/// ```
/// use elbow_disk::sched::Scheduler;
/// let scheduler: Scheduler = "ecs:8".parse()?;
/// assert_eq!(scheduler.to_string(), "ecs:8");
/// assert!(scheduler.uses_ranges() && !Scheduler::Sptf.uses_ranges());
/// # Ok::<(), elbow_disk::sched::UnknownScheduler>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// First come, first served. Ranges are ignored: a range write goes to its lowest free place.
    Fcfs,
    /// Shortest seek time first. Ranges are ignored.
    Sstf,
    /// Shortest positioning time (seek and rotation) first. Ranges are ignored.
    Sptf,
    /// The elevator: upwards as far as anybody waits, then downwards. It goes by LBN, as a host does that knows no cylinders, and turns
    /// at the last request (which is also called LOOK). Ranges are ignored.
    Scan,
    /// Upwards by LBN as far as anybody waits, then from the lowest on. Ranges are ignored.
    CLook,
    /// SPTF with ageing (ASPTF): the least `positioning time - W * time waited`, with W in thousandths, so in milliseconds for each second.
    /// Ranges are ignored.
    Aged(Ageing),
    /// Expand and cancel: every place of a range is a request of its own, and when one is served the others are cancelled.
    /// With a number, only so many places of each range: spaced around the track nearest to the arm, and where that has fewer
    /// free ones, the next nearest.
    Expand(Option<NonZeroU32>),
    /// Hierarchical range: the best cylinder, track and place are found by a walk from the arm outward.
    Hierarchical(Walk),
}

/// How far a walk goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// As far as something better can lie, once for all who wait for the same region.
    Pruned,
    /// Over all tracks of each request, as equation (2) of *Range Writes* counts: to compare with.
    Whole,
}

/// How many milliseconds of positioning a second of waiting makes up for, from 1 to 1000.
///
/// ```
/// use elbow_disk::sched::Ageing;
/// assert_eq!(Ageing::new(6).map(Ageing::ms_per_second), Some(6));
/// assert_eq!(Ageing::new(1001), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ageing(u32);

impl Ageing {
    /// With more, a request is served as it came: nothing takes longer than it waits.
    const MS_PER_SECOND_MAX: u32 = 1000;

    /// None where it is 0 or more than 1000.
    #[must_use]
    pub fn new(ms_per_second: u32) -> Option<Ageing> {
        (1..=Ageing::MS_PER_SECOND_MAX)
            .contains(&ms_per_second)
            .then_some(Ageing(ms_per_second))
    }

    /// Milliseconds for each second.
    #[must_use]
    pub fn ms_per_second(self) -> u32 {
        self.0
    }

    /// What orders requests as `-W * time waited` does, whatever the time is now; it fits for all times up to 2^63 ps.
    #[inline]
    pub(super) fn cost(self, arrived: Ps) -> u64 {
        arrived.0 / 1000 * u64::from(self.0)
    }
}

impl Default for Ageing {
    /// Enough to bound the longest waits of a deep queue, and little enough to cost few percent of the mean.
    fn default() -> Ageing {
        Ageing(6)
    }
}

impl Scheduler {
    /// Whether it uses the freedom that a range gives.
    #[must_use]
    pub fn uses_ranges(self) -> bool {
        matches!(self, Scheduler::Expand(_) | Scheduler::Hierarchical(_))
    }
}

impl fmt::Display for Scheduler {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scheduler::Fcfs => to.write_str("fcfs"),
            Scheduler::Sstf => to.write_str("sstf"),
            Scheduler::Sptf => to.write_str("sptf"),
            Scheduler::Scan => to.write_str("scan"),
            Scheduler::CLook => to.write_str("c-look"),
            Scheduler::Aged(ageing) => write!(to, "asptf:{}", ageing.ms_per_second()),
            Scheduler::Expand(None) => to.write_str("ecs"),
            Scheduler::Expand(Some(places)) => write!(to, "ecs:{places}"),
            Scheduler::Hierarchical(Walk::Pruned) => to.write_str("hrs"),
            Scheduler::Hierarchical(Walk::Whole) => to.write_str("hrs:whole"),
        }
    }
}

/// A name that no scheduler has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no scheduler is called {0:?}: take fcfs, sstf, sptf, scan, c-look, asptf, asptf:W with W from 1 to 1000, ecs, \
     ecs:K with K of 1 or more places, hrs or hrs:whole"
)]
pub struct UnknownScheduler(String);

impl FromStr for Scheduler {
    type Err = UnknownScheduler;

    fn from_str(name: &str) -> Result<Self, UnknownScheduler> {
        Ok(match name {
            "fcfs" => Scheduler::Fcfs,
            "sstf" => Scheduler::Sstf,
            "sptf" => Scheduler::Sptf,
            "scan" => Scheduler::Scan,
            "c-look" => Scheduler::CLook,
            "asptf" => Scheduler::Aged(Ageing::default()),
            "ecs" => Scheduler::Expand(None),
            "hrs" => Scheduler::Hierarchical(Walk::Pruned),
            "hrs:whole" => Scheduler::Hierarchical(Walk::Whole),
            _ => with_number(name).ok_or_else(|| UnknownScheduler(name.into()))?,
        })
    }
}

fn with_number(name: &str) -> Option<Scheduler> {
    match name.split_once(':')? {
        ("ecs", places) => Some(Scheduler::Expand(Some(places.parse().ok()?))),
        ("asptf", ageing) => Ageing::new(ageing.parse().ok()?).map(Scheduler::Aged),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_understood_and_given_back() {
        for name in [
            "fcfs",
            "sstf",
            "sptf",
            "scan",
            "c-look",
            "asptf:1",
            "asptf:1000",
            "ecs",
            "ecs:1",
            "ecs:64",
            "hrs",
            "hrs:whole",
        ] {
            assert_eq!(name.parse::<Scheduler>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn other_names_are_refused_with_the_ones_there_are() {
        for name in [
            "",
            "SPTF",
            "ecs:",
            "ecs:0",
            "ecs:-1",
            "hrs:4",
            "asptf:",
            "asptf:0",
            "asptf:1001",
            "scan:1",
            "clook",
        ] {
            let said = name.parse::<Scheduler>().unwrap_err().to_string();
            assert!(said.contains("fcfs") && said.contains(&format!("{name:?}")), "{said}");
        }
    }
}
