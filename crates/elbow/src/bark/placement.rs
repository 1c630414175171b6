//! A profile that was named for a device: which file, and whether it is of that device.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use elbow_disk::SECTOR_BYTES;
use elbow_disk::profile::{Identity, Predictor, Profile};

use crate::output::print_message;

/// A measured profile, and the file that it was read from.
pub(super) struct NamedProfile {
    file: PathBuf,
    profile: Profile,
}

impl NamedProfile {
    /// Reads it; refuses one by which no place can be chosen.
    ///
    /// # Errors
    /// Those of [`Profile::load`] and [`Predictor::new`]; sectors that are no multiple of a block device's.
    pub(super) fn load(file: &Path) -> Result<Self> {
        let profile = Profile::load(file)?;
        let shown = file.display();
        Predictor::new(&profile).with_context(|| shown.to_string())?;
        ensure!(
            u64::from(profile.sector_bytes).is_multiple_of(SECTOR_BYTES),
            "{shown}: sectors of {} bytes; those of a region have {SECTOR_BYTES}",
            profile.sector_bytes
        );
        if !profile.is_recommended() {
            print_message(format_args!(
                "{shown}: when it was tried, places by it were no quicker than places in order"
            ));
        }
        let file = file.to_owned();
        Ok(Self { file, profile })
    }

    /// Refuses it for another drive than the one that was measured.
    pub(super) fn check(&self, found: &Identity, device: &Path) -> Result<()> {
        let is_of = self.profile.device.check(found);
        is_of.with_context(|| format!("{} cannot be used for {}", self.file.display(), device.display()))
    }

    /// The file, from the root on.
    pub(super) fn name(&self) -> String {
        let absolute = std::path::absolute(&self.file).unwrap_or_else(|_| self.file.clone());
        absolute.display().to_string()
    }

    pub(super) fn profile(&self) -> &Profile {
        &self.profile
    }
}
