//! Which drive it is, as the system says: a profile is of one drive and of no other.

#![allow(
    clippy::disallowed_methods,
    reason = "what the system says about devices (sysfs), and no storage of the user's"
)]

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};
use serde::{Deserialize, Serialize};

use super::ProfileError;

/// Bytes of a sector of sysfs (Documentation/ABI/stable/sysfs-block).
const SYSFS_SECTOR: u64 = 512;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A block device.
    BlockDevice,
    /// A file; model and serial number are those of the drive below its file system, where that is one.
    File,
    /// A modelled drive.
    Model,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::BlockDevice => "a block device",
            Self::File => "a file",
            Self::Model => "a model",
        })
    }
}

/// Which drive a profile is of.
///
/// ```
/// use elbow_disk::profile::Identity;
///
/// let file = tempfile::NamedTempFile::new()?;
/// file.as_file().set_len(1 << 20)?;
/// let identity = Identity::of(file.path())?;
/// assert_eq!(identity.bytes, 1 << 20);
/// identity.check(&Identity::of(file.path())?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// What it is.
    pub kind: Kind,
    /// What its maker calls it; of a loop device the file behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Its serial number, or another name of this one drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Where a partition begins on its drive, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition_start_bytes: Option<u64>,
    /// Its size.
    pub bytes: u64,
}

impl Identity {
    /// What the system says about a block device or a file.
    ///
    /// # Errors
    /// [`ProfileError::Read`] where there is none, or it is neither.
    pub fn of(path: &Path) -> Result<Self, ProfileError> {
        let failed = |reason| ProfileError::Read {
            path: path.to_owned(),
            reason,
        };
        let found = fs::metadata(path).map_err(failed)?;
        let kind = match found.file_type() {
            kind if kind.is_block_device() => Kind::BlockDevice,
            kind if kind.is_file() => Kind::File,
            _ => return Err(failed(io::Error::other("neither a regular file nor a block device"))),
        };
        let device = match kind {
            Kind::BlockDevice => found.rdev(),
            _ => found.dev(),
        };
        let entry = PathBuf::from(format!("/sys/dev/block/{}:{}", major(device), minor(device)));
        let bytes = match kind {
            Kind::BlockDevice => number(&entry.join("size")).unwrap_or(0) * SYSFS_SECTOR,
            _ => found.len(),
        };
        // The directory of a partition lies in that of its drive.
        let start = number(&entry.join("start")).map(|sectors| sectors * SYSFS_SECTOR);
        let drive = if start.is_some() { entry.join("..") } else { entry };
        Ok(Self {
            kind,
            model: first(&drive, &["loop/backing_file", "device/model", "device/name"]),
            serial: first(
                &drive,
                &["device/serial", "serial", "wwid", "device/wwid", "dm/uuid", "md/uuid"],
            ),
            partition_start_bytes: start.filter(|_| kind == Kind::BlockDevice),
            bytes,
        })
    }

    /// Refuses another drive.
    ///
    /// # Errors
    /// [`ProfileError::OtherDrive`].
    pub fn check(&self, found: &Self) -> Result<(), ProfileError> {
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "not known".to_owned());
        let start = |of: &Self| {
            of.partition_start_bytes
                .map_or("not a partition's".to_owned(), |bytes| format!("at byte {bytes}"))
        };
        let same = [
            ("kind", self.kind.to_string(), found.kind.to_string()),
            ("model", text(&self.model), text(&found.model)),
            ("serial number", text(&self.serial), text(&found.serial)),
            ("beginning", start(self), start(found)),
            (
                "size",
                format!("{} bytes", self.bytes),
                format!("{} bytes", found.bytes),
            ),
        ];
        match same.into_iter().find(|(_, profile, found)| profile != found) {
            Some((what, profile, found)) => Err(ProfileError::OtherDrive { what, profile, found }),
            None => Ok(()),
        }
    }
}

/// The first of these files that says something.
fn first(directory: &Path, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| {
        let text = fs::read_to_string(directory.join(name)).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    })
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}
