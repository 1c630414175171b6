//! What is asked of a simulation, and whether it makes sense.

use std::ops::Range;
use std::str::FromStr;

use super::sectors::shortest_sector;
use crate::drive::{CLOCK_DAYS_MAX, Drive, PS_PER_DAY, Ps};

/// Sectors of a group: 4096 blocks of 4 KiB, the 16 MB groups that *Range Writes* (section 3.4) simulates.
pub const GROUP_SECTORS: u64 = 4096 * 8;

/// A load: where requests go, how large and how free they are, and when they come.
///
/// ```
/// use std::sync::Arc;
/// use elbow_disk::Drive;
/// use elbow_disk::workload::{Overheads, Span, Workload, simulate};
/// let drive = Arc::new(Drive::named("hp-c2247a")?);
/// let load = Workload { span: Span::Group(0), requests: 2000, overheads: Overheads::None, ..Workload::default() };
/// let summary = simulate(&drive, "sptf".parse()?, &load, |_| {})?;
/// assert!((summary.service_ms.mean - 11.55).abs() < 0.3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// Sectors that requests go to.
    pub span: Span,
    /// Sectors of a request.
    pub request_sectors: u32,
    /// Requests begin at multiples of so many sectors.
    pub align_sectors: u32,
    /// How large a target is.
    pub range: RangeSize,
    /// How many targets a write has, each drawn at random.
    pub targets: u32,
    /// Share of reads, from 0 to 1.
    pub reads: f64,
    /// Whether a request comes when another is done, or at random moments.
    pub arrivals: Arrivals,
    /// What a request costs beside the mechanics.
    pub overheads: Overheads,
    /// Requests that are measured.
    pub requests: u64,
    /// Requests before those, which are simulated and not counted.
    pub warm_up: u64,
    /// Another seed gives other requests.
    pub seed: u64,
}

/// A part of the disk; in words `disk`, `group:N` or `sectors:FIRST-END`.
///
/// ```
/// use elbow_disk::workload::Span;
/// assert_eq!("sectors:96-192".parse(), Ok(Span::Sectors(96, 192)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// Every sector of the drive.
    Disk,
    /// The n-th group of [`GROUP_SECTORS`], from 0.
    Group(u64),
    /// Sectors from the first to before the second.
    Sectors(u64, u64),
}

/// Size of a target; in words a number of sectors, or `track`.
///
/// ```
/// use elbow_disk::workload::RangeSize;
/// assert_eq!("104".parse(), Ok(RangeSize::Sectors(104)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeSize {
    /// So many sectors from a random aligned one; the whole span where that is not larger.
    Sectors(u64),
    /// The track of a random place, as far as it lies in the span.
    Track,
}

/// When requests come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// One for each that is done, so that `depth` are in the system.
    Closed {
        /// Requests in the system at any time, at least 1.
        depth: u32,
        /// When the scheduler picks.
        pick: Moment,
    },
    /// At random moments (Poisson), on average so many per second.
    Open {
        /// Mean number of arrivals in a second, more than 0.
        per_second: f64,
    },
}

/// Whether the scheduler picks before or after the replacement of the request just done has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// As a scheduler in the host that is told of a completion, picks, and then lets the host go on.
    Before,
    /// As a drive whose queue the host refills meanwhile.
    After,
}

/// Time beside the mechanics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Overheads {
    /// Seek, rotation and transfer only.
    None,
    /// The same for each request, before the arm moves.
    Fixed(Ps),
    /// That of the drive's controller and bus.
    Controller,
}

impl Default for Workload {
    /// 4 KiB writes over the whole disk, one at a time, each with one place.
    fn default() -> Workload {
        Workload {
            span: Span::Disk,
            request_sectors: 8,
            align_sectors: 8,
            range: RangeSize::Sectors(8),
            targets: 1,
            reads: 0.0,
            arrivals: Arrivals::Closed {
                depth: 1,
                pick: Moment::Before,
            },
            overheads: Overheads::Controller,
            requests: 30_000,
            warm_up: 1000,
            seed: 1,
        }
    }
}

/// Why a load cannot be simulated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// A group behind the last.
    #[error("there is no group {group}: the drive has {groups} whole groups of {GROUP_SECTORS} sectors, from 0")]
    NoSuchGroup {
        /// The group that was asked for, from 0.
        group: u64,
        /// Groups that the drive has.
        groups: u64,
    },
    /// Sectors that are not on the drive, or none.
    #[error("sectors {start} to {end} are no part of a drive with sectors 0 to {sectors}")]
    NoSuchSectors {
        /// First sector of the span.
        start: u64,
        /// The sector behind its last.
        end: u64,
        /// Sectors that the drive has.
        sectors: u64,
    },
    /// Words that name no span, or no size.
    #[error("{text:?} is no {what}: write {allowed}")]
    NotUnderstood {
        /// Whether the text was to be a span or a size.
        what: &'static str,
        /// The text as it was given.
        text: String,
        /// The forms or values that are accepted.
        allowed: &'static str,
    },
    /// A request can land nowhere.
    #[error(transparent)]
    NoPlace(#[from] crate::sched::NoPlace),
    /// A number that is none of those allowed.
    #[error("{what} is {value}: it has to be {allowed}")]
    OutOfRange {
        /// Name of the option.
        what: &'static str,
        /// What was asked for.
        value: f64,
        /// The forms or values that are accepted.
        allowed: &'static str,
    },
    /// More targets than fit into memory.
    #[error(
        "{depth} requests with {targets} targets each take too much memory: with such targets {waiting_max} can wait at once"
    )]
    TooDeep {
        /// Requests in the system at once.
        depth: u32,
        /// Targets of each.
        targets: u32,
        /// How many can wait.
        waiting_max: u64,
    },
    /// More requests than the simulated clock has time for.
    #[error(
        "{requests} requests, and {warm_up} to warm up, take {days:.1} simulated days ({each}): the clock ends after \
         {days_max:.0}; ask for fewer"
    )]
    TooLong {
        /// Requests to measure.
        requests: u64,
        /// Requests before those.
        warm_up: u64,
        /// How long they take at least, or, where they come at random, on average.
        days: f64,
        /// How long the clock of a simulation goes.
        days_max: f64,
        /// What each of them takes.
        each: String,
    },
    /// The simulated time does not fit into its integer.
    #[error(
        "the simulated clock passes {days_max:.0} days at request {number}: ask for fewer, or for ones that come sooner"
    )]
    ClockRunsOver {
        /// In the order of service, from 0, with those that warm up.
        number: u64,
        /// How long the clock of a simulation goes.
        days_max: f64,
    },
    /// An open load that is more than the drive can do.
    #[error(
        "{waiting} requests wait: the drive cannot keep up with {per_second} per second, it does {served_per_second:.1}"
    )]
    Overrun {
        /// Requests in the queue when it was given up.
        waiting: usize,
        /// Arrivals in a second that were asked for.
        per_second: f64,
        /// What it did so far.
        served_per_second: f64,
    },
}

impl Span {
    /// Its sectors.
    ///
    /// # Errors
    /// Where the drive does not have them.
    pub fn sectors(self, drive: &Drive) -> Result<Range<u64>, WorkloadError> {
        let sectors = drive.sectors();
        match self {
            Span::Disk => Ok(0..sectors),
            Span::Group(group) => {
                let groups = sectors / GROUP_SECTORS;
                let start = group.checked_mul(GROUP_SECTORS).filter(|_| group < groups);
                start
                    .map(|start| start..start + GROUP_SECTORS)
                    .ok_or(WorkloadError::NoSuchGroup { group, groups })
            }
            Span::Sectors(start, end) if start < end && end <= sectors => Ok(start..end),
            Span::Sectors(start, end) => Err(WorkloadError::NoSuchSectors { start, end, sectors }),
        }
    }
}

impl FromStr for Span {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<Span, WorkloadError> {
        let number = |text: &str| text.parse().ok();
        let parsed = match text.split_once(':') {
            None if text == "disk" => Some(Span::Disk),
            Some(("group", group)) => number(group).map(Span::Group),
            Some(("sectors", range)) => range
                .split_once('-')
                .and_then(|(first, end)| Some(Span::Sectors(number(first)?, number(end)?))),
            _ => None,
        };
        parsed.ok_or_else(|| not_understood("span", text, "disk, group:N or sectors:FIRST-END"))
    }
}

impl FromStr for RangeSize {
    type Err = WorkloadError;

    fn from_str(text: &str) -> Result<RangeSize, WorkloadError> {
        match text {
            "track" => Ok(RangeSize::Track),
            _ => text
                .parse()
                .map(RangeSize::Sectors)
                .map_err(|_| not_understood("size of a target", text, "a number of sectors, or track")),
        }
    }
}

fn not_understood(what: &'static str, text: &str, allowed: &'static str) -> WorkloadError {
    let text = text.to_owned();
    WorkloadError::NotUnderstood { what, text, allowed }
}

/// No request is larger: as many sectors as a drive of the time transfers at once.
const REQUEST_SECTORS_MAX: u32 = 1 << 16;
/// More do not tell a scheduler more, and each takes memory.
const DEPTH_MAX: u32 = 1 << 16;
const TARGETS_MAX: u32 = 1 << 16;
/// More before a request is no overhead.
const OVERHEAD_MAX: Ps = Ps(10_000_000_000_000);

impl Workload {
    /// Whether its numbers are among those that mean something, and the clock has time for them.
    pub(super) fn check(&self, drive: &Drive) -> Result<(), WorkloadError> {
        within(
            "the size of a request in sectors",
            self.request_sectors,
            REQUEST_SECTORS_MAX,
        )?;
        within("the alignment in sectors", self.align_sectors, REQUEST_SECTORS_MAX)?;
        within("the number of targets", self.targets, TARGETS_MAX)?;
        let is_share = (0.0..=1.0).contains(&self.reads);
        let refuse = |what, value, allowed| Err(WorkloadError::OutOfRange { what, value, allowed });
        if !is_share {
            return refuse("the share of reads", self.reads, "from 0 to 1");
        }
        if self.requests == 0 {
            return refuse("the number of requests", 0.0, "at least 1");
        }
        match self.overheads {
            Overheads::Fixed(fixed) if fixed > OVERHEAD_MAX => {
                refuse("the overhead in ms", fixed.ms(), "from 0 to 10000")
            }
            _ => Ok(()),
        }?;
        match self.arrivals {
            Arrivals::Closed { depth, .. } => within("the depth", depth, DEPTH_MAX),
            Arrivals::Open { per_second } if per_second > 0.0 && per_second.is_finite() => Ok(()),
            Arrivals::Open { per_second } => refuse("the number of arrivals per second", per_second, "more than 0"),
        }?;
        self.check_length(drive)
    }

    /// Whether the clock has time for all of it, as far as that can be known.
    fn check_length(&self, drive: &Drive) -> Result<(), WorkloadError> {
        let (each_s, each) = self.time_each(drive);
        let days = (self.requests as f64 + self.warm_up as f64) * each_s * 1e12 / PS_PER_DAY;
        let is_countable = self.requests.checked_add(self.warm_up).is_some();
        if is_countable && days <= CLOCK_DAYS_MAX {
            return Ok(());
        }
        Err(WorkloadError::TooLong {
            requests: self.requests,
            warm_up: self.warm_up,
            days,
            days_max: CLOCK_DAYS_MAX,
            each,
        })
    }

    /// Seconds that a request takes at least, whatever the drive does, and a word for them; of those that come at random the mean.
    fn time_each(&self, drive: &Drive) -> (f64, String) {
        if let Arrivals::Open { per_second } = self.arrivals {
            return (1.0 / per_second, format!("{per_second} arrive in a second"));
        }
        let least = match self.overheads {
            Overheads::None => self.passing(drive),
            Overheads::Fixed(fixed) => self.passing(drive) + fixed,
            Overheads::Controller => self.crossing(drive),
        };
        (least.ms() / 1000.0, format!("at least {:.3} ms each", least.ms()))
    }

    /// The sectors of a request, where they pass the head as fast as they do anywhere.
    fn passing(&self, drive: &Drive) -> Ps {
        Ps(shortest_sector(drive) * u64::from(self.request_sectors))
    }

    /// The sectors of a request on the bus, which all of them cross, cached or not.
    fn crossing(&self, drive: &Drive) -> Ps {
        let bus = &drive.electronics.bus;
        let sector = match self.reads {
            0.0 => bus.write_sector_ms.0,
            1.0 => bus.read_sector_ms.0,
            _ => bus.read_sector_ms.0.min(bus.write_sector_ms.0),
        };
        Ps(sector.0 * u64::from(self.request_sectors))
    }
}

/// Whether it is from 1 to `most`, which is 65536.
fn within(what: &'static str, value: u32, most: u32) -> Result<(), WorkloadError> {
    let is_within = (1..=most).contains(&value);
    let (value, allowed) = (f64::from(value), "from 1 to 65536");
    is_within
        .then_some(())
        .ok_or(WorkloadError::OutOfRange { what, value, allowed })
}
