//! The schedulers by name.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

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
            Scheduler::Expand(None) => to.write_str("ecs"),
            Scheduler::Expand(Some(places)) => write!(to, "ecs:{places}"),
            Scheduler::Hierarchical(Walk::Pruned) => to.write_str("hrs"),
            Scheduler::Hierarchical(Walk::Whole) => to.write_str("hrs:whole"),
        }
    }
}

/// A name that no scheduler has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no scheduler is called {0:?}: take fcfs, sstf, sptf, ecs, ecs:K with K of 1 or more places, hrs or hrs:whole")]
pub struct UnknownScheduler(String);

impl FromStr for Scheduler {
    type Err = UnknownScheduler;

    fn from_str(name: &str) -> Result<Self, UnknownScheduler> {
        Ok(match name {
            "fcfs" => Scheduler::Fcfs,
            "sstf" => Scheduler::Sstf,
            "sptf" => Scheduler::Sptf,
            "ecs" => Scheduler::Expand(None),
            "hrs" => Scheduler::Hierarchical(Walk::Pruned),
            "hrs:whole" => Scheduler::Hierarchical(Walk::Whole),
            _ => {
                let places = name.strip_prefix("ecs:").and_then(|places| places.parse().ok());
                Scheduler::Expand(Some(places.ok_or_else(|| UnknownScheduler(name.into()))?))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_understood_and_given_back() {
        for name in ["fcfs", "sstf", "sptf", "ecs", "ecs:1", "ecs:64", "hrs", "hrs:whole"] {
            assert_eq!(name.parse::<Scheduler>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn other_names_are_refused_with_the_ones_there_are() {
        for name in ["", "SPTF", "ecs:", "ecs:0", "ecs:-1", "hrs:4"] {
            let said = name.parse::<Scheduler>().unwrap_err().to_string();
            assert!(said.contains("fcfs") && said.contains(&format!("{name:?}")), "{said}");
        }
    }
}
