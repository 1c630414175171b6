//! Descriptions of drives in other programs' languages, made into ours.
//!
//! ```text
//!   language   DiskSim's parameter files: text -> items, with lines         keys      what the keys of a block say, and what is left over
//!   files      what one names, with a bound
//!   geometry   a layout of kind G1 -> zones; mechanics of kind G1 -> seek   disk      a disk -> the whole description, as TOML
//! ```
//!
//! Whatever cannot be taken over is noted, and the notes stand in the description as comments. Nothing is read but what the caller hands over.
//!
//! Source: Bucy, Schindler, Schlosser, Ganger, *The DiskSim Simulation Environment Version 4.0 Reference Manual* (CMU-PDL-08-101), chapters
//! on parameter files and the disk module; what its program makes of each parameter.

mod disk;
mod files;
mod geometry;
mod keys;
mod language;

use std::io;

use crate::drive::{Drive, DriveError};

pub use disk::Imported;

use files::Files;

/// Takes over a disk from a parameter file of DiskSim (`.parv`, `.diskspecs`); `disk` names it where there are several.
///
/// `read` gives the text of a file that another names: with `source`, or as its seek curve.
///
/// # Errors
/// [`DriveError`] with the file, line and key where it cannot be read as such a file, or what it describes is no drive of ours.
///
/// ```
/// let file = "disksim_disk D { Model = source d.model }";
/// let model = "dm_disk M { Number of data surfaces = 2, Number of cylinders = 10, Block count = 1000,
///     Layout Model = dm_layout_g1 { Sparing scheme used = 0, Zones = [ dm_layout_g1_zone {
///         First cylinder number = 0, Last cylinder number = 9, Blocks per track = 50, Skew for track switch = 5 } ] },
///     Mechanical Model = dm_mech_g1 { Seek type = constant, Average seek time = 4.0, Rotation speed (in rpms) = 7200 } }";
/// let imported = elbow_disk::import::disksim("d.diskspecs", file, None, &mut |_| Ok(model.to_owned()))?;
/// assert_eq!(elbow_disk::Drive::parse("d", &imported.toml)?.sectors(), 1000);
/// # Ok::<(), elbow_disk::DriveError>(())
/// ```
pub fn disksim(
    file: &str,
    text: &str,
    disk: Option<&str>,
    read: &mut dyn FnMut(&str) -> io::Result<String>,
) -> Result<Imported, DriveError> {
    let mut files = Files::new(read);
    let items = files.items(file, text)?;
    let imported = disk::import(file, &items, disk, &mut files)?;
    // What comes out has to be a drive; what is wrong with it, the description's own check says.
    Drive::parse(&format!("{file}, taken over"), &imported.toml)?;
    Ok(imported)
}
