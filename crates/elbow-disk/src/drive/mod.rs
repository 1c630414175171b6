//! One drive: where its sectors lie and how long its mechanics take.
//!
//! ```text
//!   description   a TOML file, checked          geometry    LBN <-> place, angle
//!   track_list    tables of all tracks          track_formula   the same worked out
//!   sparing       sectors that hold no data     seek        times by distance
//!   mechanics     seek, rotation, transfer of a request                       shingled     bands and media cache
//! ```
//!
//! All times are whole picoseconds, all angles the time since the turn's start; nothing is added up in floating point. The
//! drive itself never changes: where the arm stands and what time it is, the caller keeps.

mod description;
mod electronics;
mod error;
mod geometry;
mod mechanics;
mod seek;
mod shingled;
mod sparing;
mod summary;
mod track_formula;
mod track_list;
mod turn;
mod units;

pub use error::DriveError;
pub use summary::{SECTOR_BYTES, ShingledSummary, Summary, ZoneSummary};
pub use units::{Arm, Lbn, PositioningTime, Ps, SectorAddress, Service, Track, TrackPart};

pub(crate) use electronics::{CacheShape, Electronics, ReadAheadUntil, ScatteredWrite, WriteCache};
pub(crate) use shingled::{Cleaning, Shingled};
pub(crate) use turn::Turn;
pub(crate) use units::{CLOCK_DAYS_MAX, CLOCK_MAX, PS_PER_DAY};

use geometry::Geometry;
use seek::{SeekTable, Settle};

/// A rotating drive.
///
/// ```
/// use elbow_disk::{Drive, Lbn};
/// let drive = Drive::named("hp-c2247a")?;
/// assert_eq!(drive.sectors(), 2_054_864);
/// assert_eq!((drive.cylinders(), drive.heads()), (2051, 13));
/// let place = drive.locate(Lbn(0));
/// assert_eq!((place.arm.cylinder, place.arm.head, place.sector), (1, 4, 0), "17 tracks in front hold no data");
/// # Ok::<(), elbow_disk::DriveError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Drive {
    name: String,
    geometry: Geometry,
    turn: Turn,
    seek: SeekTable,
    head_switch: Ps,
    write_settle: Settle,
    pub(crate) electronics: Electronics,
    pub(crate) shingled: Option<Shingled>,
}

impl Drive {
    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many sectors it has: LBNs are below this. Those of a shingled drive's media cache, which are no host's, follow.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        self.geometry.sectors()
    }

    /// One turn.
    #[must_use]
    pub fn rotation(&self) -> Ps {
        self.geometry.rotation()
    }

    /// Cylinders, with those that hold no data.
    #[must_use]
    pub fn cylinders(&self) -> u32 {
        self.geometry.cylinders()
    }

    /// Surfaces.
    #[must_use]
    pub fn heads(&self) -> u32 {
        self.geometry.heads()
    }

    /// Whether there is such a cylinder with such a head.
    #[must_use]
    pub fn has(&self, arm: Arm) -> bool {
        arm.cylinder < self.cylinders() && arm.head < self.heads()
    }

    /// Where a sector lies.
    ///
    /// # Panics
    /// Where it is not below [`sectors`](Self::sectors).
    #[inline]
    #[must_use]
    pub fn locate(&self, lbn: Lbn) -> SectorAddress {
        self.geometry.find(lbn).0
    }

    /// The track that a sector lies on; where sectors of it are slipped, the part without a gap that it lies on.
    ///
    /// # Panics
    /// Where it is not below [`sectors`](Self::sectors).
    #[must_use]
    pub fn track(&self, lbn: Lbn) -> Track {
        self.geometry.track(lbn)
    }

    /// The track there, if it holds data; where sectors of it are slipped, the part before the first of them.
    #[must_use]
    pub fn track_at(&self, arm: Arm) -> Option<Track> {
        self.geometry.track_at(arm)
    }

    /// The sector at a place, if it holds data: the reverse of [`locate`](Self::locate).
    ///
    /// ```
    /// use elbow_disk::{Drive, Lbn};
    /// let drive = Drive::named("hp-c2247a")?;
    /// assert_eq!(drive.lbn_at(drive.locate(Lbn(123_456))), Some(Lbn(123_456)));
    /// # Ok::<(), elbow_disk::DriveError>(())
    /// ```
    #[must_use]
    pub fn lbn_at(&self, place: SectorAddress) -> Option<Lbn> {
        self.geometry.lbn_at(place)
    }

    /// Whether its tracks overlap, and what is written goes to a media cache first.
    ///
    /// ```
    /// use elbow_disk::Drive;
    /// assert!(Drive::named("archive-8tb")?.is_shingled() && !Drive::named("ultrastar-he12")?.is_shingled());
    /// # Ok::<(), elbow_disk::DriveError>(())
    /// ```
    #[must_use]
    pub fn is_shingled(&self) -> bool {
        self.shingled.is_some()
    }

    /// Whether its description has a write cache.
    #[must_use]
    pub fn caches_writes(&self) -> bool {
        self.electronics.write_cache.is_some()
    }

    /// The drive with a write cache, if it is described without one and has segments that can be one: all but one of them may hold
    /// what the medium does not have, commands take what its writes take, and data is taken while the arm writes.
    ///
    /// ```
    /// use elbow_disk::Drive;
    /// let drive = Drive::named("generic-7200")?;
    /// assert!(!drive.caches_writes() && drive.caching_writes().caches_writes());
    /// # Ok::<(), elbow_disk::DriveError>(())
    /// ```
    #[must_use]
    pub fn caching_writes(mut self) -> Drive {
        let electronics = &mut self.electronics;
        if let (None, Some(cache)) = (&electronics.write_cache, &electronics.cache) {
            electronics.write_cache = Some(WriteCache::of_segments(cache, &electronics.command));
        }
        self
    }

    /// All sectors of the track that a sector lies on, across those that are slipped.
    pub(crate) fn whole_track(&self, lbn: Lbn) -> std::ops::Range<u64> {
        self.geometry.range_of(lbn, |other, own| other == own)
    }

    /// All sectors of the cylinder that a sector lies on.
    pub(crate) fn whole_cylinder(&self, lbn: Lbn) -> std::ops::Range<u64> {
        self.geometry.range_of(lbn, |other, own| other.cylinder == own.cylinder)
    }

    /// How long `sectors` sectors from `first` on, all on its track, take to pass the head.
    pub(crate) fn passing(&self, first: Lbn, sectors: u32) -> Ps {
        self.geometry.passing(first, sectors)
    }

    /// When in a turn the start of a sector passes the head.
    ///
    /// # Panics
    /// Where no data lies at `place`.
    #[must_use]
    pub fn angle(&self, place: SectorAddress) -> Ps {
        match self.geometry.angle(place) {
            Some(angle) => angle,
            None => panic!("{place:?} holds no data on {}", self.name),
        }
    }
}
