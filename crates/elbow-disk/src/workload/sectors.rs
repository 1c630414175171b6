//! What the sectors of a drive take at least.

use crate::drive::{Arm, Drive};

/// The least time in which any sector of the drive passes, in picoseconds.
pub(super) fn shortest_sector(drive: &Drive) -> u64 {
    let tracks = (0..drive.cylinders()).flat_map(|cylinder| drive.track_at(Arm { cylinder, head: 0 }));
    drive.rotation().0 / u64::from(tracks.map(|track| track.sectors_per_track).max().unwrap_or(1))
}
