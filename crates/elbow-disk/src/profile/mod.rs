//! What a write costs on a device that nobody has described: measured by skip distance and think time, and used to choose places.
//!
//! ```text
//!   the write before          this write
//!   ....#### <-- skip, in sectors --> ####          it waits until the place comes under the head; so its end lies, whatever
//!        end -- think -- begin ---- cost ---- end       the think time, at a fixed moment of a turn after the end before
//! ```
//!
//! On a disk that turns, the cost of a write falls with the think time as the place comes nearer, and rises by a turn where it has just gone by.
//! So a row of a profile, for one skip distance, is not a column of numbers for each think time but two: where in a turn the write *ends*, counted from the end of the
//! one before, and what it costs at least (*quickest*: the place is reached just in time). Each is found by a few writes, once the period of a turn is known, and that is found first: by
//! writing one place again and again with pauses of many lengths, whose ends are whole turns apart. That is why a profile takes a minute and not days.
//!
//! - [`measure()`] makes a [`Profile`] by a [`Probe`]: of any [`RangeDevice`](elbow_file::range_device::RangeDevice) in its own time ([`DeviceProbe`]).
//! - [`Profile`] is a file: TOML, with a version and the [`Identity`] of the drive, without which it is refused.
//! - [`Predictor`] says what a write would cost, and which of all free places is the cheapest.
//! - [`ProfiledDevice`] is a device that takes no range writes, with the choice made by a profile. A [`Region`](crate::region::Region) on it does
//!   not wait for a turn.
//!
//! Always: a cost is never said to be less than what was measured as the least; where no period is found, nothing is recommended.
//!
//! Not here: zones. A profile is of one area, in which a turn has as many sectors everywhere, about; where it has not, the profile's own trial says how
//! often it was wrong.
//!
//! Source: Anand et al., *Avoiding File System Micromanagement with Range Writes* (OSDI 2008), section 6 and Figure 12; the period and places from ends of writes: Worthington,
//! Ganger, Patt and Wilkes, *On-Line Extraction of SCSI Disk Drive Parameters* (SIGMETRICS 1995).

mod anchors;
mod device;
mod error;
mod file;
mod identity;
mod layout;
mod measure;
mod predict;
mod probe;
mod rotation;
mod survey;

pub use device::ProfiledDevice;
pub use error::ProfileError;
pub use file::{EndsWith, FORMAT, Profile, Rotation, Row, RowWrite, Spread, Track, Trial};
pub use identity::{Identity, Kind};
pub use measure::{AREA_BYTES_MIN, Plan, measure};
pub use predict::{Choice, Predictor};
pub use probe::{DeviceProbe, Probe};
pub use survey::{Doing, Step};
