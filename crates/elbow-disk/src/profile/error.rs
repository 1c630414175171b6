//! What can be wrong with a profile, or with measuring one.

use std::path::PathBuf;

use elbow_file::range_device::RangeError;

/// Why a profile was not made, or not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The device refused or failed.
    #[error("the device that is measured: {0}")]
    Device(#[from] RangeError),
    /// Less room than a profile needs.
    #[error(
        "{bytes} bytes are too few for a profile; at least {needed} are needed, so that writes fall on all sides of a turn"
    )]
    TooSmall {
        /// What there is.
        bytes: u64,
        /// What is needed.
        needed: u64,
    },
    /// An area that does not lie on the device.
    #[error("sectors {start} to {end} do not lie on a device of {sectors} sectors")]
    Outside {
        /// First sector.
        start: u64,
        /// The one behind the last.
        end: u64,
        /// Sectors of the device.
        sectors: u64,
    },
    /// Whoever asked for it has asked to stop.
    #[error("the measurement was stopped")]
    Stopped,
    /// A file or what the system says about a device could not be read.
    #[error("cannot read {}: {reason}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: std::io::Error,
    },
    /// A file that is no profile.
    #[error("{file}: {reason}")]
    Invalid {
        /// What the file is called.
        file: String,
        /// What is wrong, and where.
        reason: String,
    },
    /// A profile of another device.
    #[error(
        "the profile is of another drive: its {what} is {profile}, and that of this one {found}; measure this one (`elbow bark profile`)"
    )]
    OtherDrive {
        /// What differs.
        what: &'static str,
        /// As the profile has it.
        profile: String,
        /// As the device has it.
        found: String,
    },
    /// A profile of sectors that are no multiple of the device's.
    #[error(
        "the profile was measured in sectors of {profile} bytes, and the device is used in sectors of {found}, of which they are no multiple; measure in those (--sector-bytes)"
    )]
    SectorBytes {
        /// Of the profile.
        profile: u32,
        /// Of the device.
        found: u32,
    },
    /// A profile that recommends nothing.
    #[error("the profile found no period, so nobody knows which place is quicker; use the device without it")]
    NoRotation,
    /// A device that does not know what time it is.
    #[error("the device has no clock, so nobody knows where its head is; use one that has")]
    NoClock,
}
