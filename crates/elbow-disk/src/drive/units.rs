//! Time, sectors and places: integers that cannot be mistaken for one another.

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};

use serde::{Deserialize, Deserializer, Serialize};

/// Picoseconds: a time, a duration, or an angle (as the time within one turn, from 0 to the rotation period).
///
/// A `u64` of them lasts 213 days, and adding them up loses nothing. Times of a drive, of a request and of a trace are bounded so that sums of them
/// fit: a drive serves nothing after [`Ps::SERVED_MAX`], and simulations end at half of that. A sum of others is for
/// [`saturating_add`](Ps::saturating_add).
///
/// ```
/// use elbow_disk::Ps;
/// let settle = Ps::from_ms(0.65);
/// assert_eq!(settle, Ps(650_000_000));
/// assert_eq!((settle + settle).ms(), 1.3);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ps(pub u64);

impl Ps {
    /// No time.
    pub const ZERO: Ps = Ps(0);

    /// The latest time, 106 days, at which a drive takes a request: that ends before the clock wraps.
    pub const SERVED_MAX: Ps = Ps(u64::MAX / 2);

    /// The nearest whole picosecond; 0 for what is negative or not a number.
    #[must_use]
    pub fn from_ms(ms: f64) -> Ps {
        Ps((ms * 1e9).round() as u64)
    }

    /// In milliseconds.
    #[must_use]
    pub fn ms(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The sum, or the largest time where that does not fit: for times that nothing bounds.
    ///
    /// ```
    /// use elbow_disk::Ps;
    /// assert_eq!(Ps(u64::MAX - 1).saturating_add(Ps(7)), Ps(u64::MAX));
    /// ```
    #[must_use]
    pub fn saturating_add(self, other: Ps) -> Ps {
        Ps(self.0.saturating_add(other.0))
    }

    /// The difference, or nothing where `other` is longer.
    #[must_use]
    pub fn saturating_sub(self, other: Ps) -> Ps {
        Ps(self.0.saturating_sub(other.0))
    }
}

impl Add for Ps {
    type Output = Ps;
    fn add(self, other: Ps) -> Ps {
        Ps(self.0 + other.0)
    }
}

impl AddAssign for Ps {
    fn add_assign(&mut self, other: Ps) {
        self.0 += other.0;
    }
}

impl Sub for Ps {
    type Output = Ps;
    fn sub(self, other: Ps) -> Ps {
        Ps(self.0 - other.0)
    }
}

impl SubAssign for Ps {
    fn sub_assign(&mut self, other: Ps) {
        self.0 -= other.0;
    }
}

impl std::iter::Sum for Ps {
    fn sum<I: Iterator<Item = Ps>>(durations: I) -> Ps {
        durations.fold(Ps::ZERO, Add::add)
    }
}

impl fmt::Display for Ps {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{:.6} ms", self.ms())
    }
}

/// The clock of a simulation ends here, after 53 days. A request takes less than 61 (2^20 sectors, each on a track of its own: a seek, a
/// settling, a turn and a sector of [`TIME_MS_MAX`] each, and as long on the bus), a pause in a trace 40; so what begins before
/// this ends before 2^64 ps, 213 days, whatever the drive.
pub(crate) const CLOCK_MAX: Ps = Ps(Ps::SERVED_MAX.0 / 2);

/// [`CLOCK_MAX`] in days.
pub(crate) const CLOCK_DAYS_MAX: f64 = CLOCK_MAX.0 as f64 / PS_PER_DAY;

/// Picoseconds in a day.
pub(crate) const PS_PER_DAY: f64 = 24.0 * 3600.0 * 1e12;

/// No single time in a description is longer than this, in milliseconds: so times of one request cannot overflow.
pub(crate) const TIME_MS_MAX: f64 = 1000.0;

/// A duration in a description, in milliseconds there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ms(pub(crate) Ps);

impl<'de> Deserialize<'de> for Ms {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Ms, D::Error> {
        let ms = f64::deserialize(from)?;
        match ms {
            _ if (0.0..=TIME_MS_MAX).contains(&ms) => Ok(Ms(Ps::from_ms(ms))),
            _ => Err(serde::de::Error::custom(format!(
                "{ms} is no time; expected 0 to {TIME_MS_MAX} ms"
            ))),
        }
    }
}

/// Logical block number: a sector as the host names it, from 0 to [`Drive::sectors`](crate::Drive::sectors).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Lbn(pub u64);

impl fmt::Display for Lbn {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

/// Where the arm stands, and which of its heads is connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arm {
    /// From the outermost, 0.
    pub cylinder: u32,
    /// From the topmost surface, 0.
    pub head: u32,
}

/// A physical sector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SectorAddress {
    /// Its track.
    pub arm: Arm,
    /// Its number on the track, in the order in which sectors pass the head; 0 is the track's first.
    pub sector: u32,
}

/// A track that holds data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Track {
    /// Its first sector.
    pub first: Lbn,
    /// Logical sectors on it.
    pub sectors: u32,
    /// Cylinder and surface that it lies on.
    pub arm: Arm,
    /// Physical sectors on it: one turn is so many sectors long.
    pub sectors_per_track: u32,
}

/// How long it takes until the head reaches the start of a sector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PositioningTime {
    /// To move the arm, connect the head and settle.
    pub seek: Ps,
    /// To wait then for the sector, less than one turn.
    pub rotation: Ps,
}

impl PositioningTime {
    /// Both together: the positioning time by which a scheduler compares.
    #[must_use]
    pub fn total(self) -> Ps {
        self.seek + self.rotation
    }
}

/// What a request takes mechanically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// To come to the first track.
    pub seek: Ps,
    /// To wait for the first sector.
    pub rotation: Ps,
    /// From the start of the first sector to the end of the last, with the changes of track between.
    pub transfer: Ps,
    /// Where the arm is left.
    pub end: Arm,
}

impl Service {
    /// From start to end.
    #[must_use]
    pub fn total(self) -> Ps {
        self.seek + self.rotation + self.transfer
    }
}

/// The part of a request that lies on one track without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackPart {
    /// To come to the track.
    pub seek: Ps,
    /// To wait there for the first sector.
    pub rotation: Ps,
    /// While the sectors pass the head.
    pub passing: Ps,
    /// The first sector.
    pub first: Lbn,
    /// How many.
    pub sectors: u32,
    /// The track.
    pub arm: Arm,
}

impl TrackPart {
    /// From start to end.
    #[must_use]
    pub fn total(self) -> Ps {
        self.seek + self.rotation + self.passing
    }
}
