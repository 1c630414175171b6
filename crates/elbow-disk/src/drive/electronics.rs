//! What a drive's controller and bus take, beside the mechanics, and how large its cache is: parts of a description file.

use serde::Deserialize;

use super::units::Ms;

/// Overheads of commands.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Command {
    /// From a read's arrival until the arm may move.
    pub(crate) read_miss_ms: Ms,
    /// From the arrival of a read whose first sector is cached until its data is prepared.
    pub(crate) read_hit_ms: Ms,
    /// From a write's arrival until the arm may move, and until its data is prepared.
    pub(crate) write_ms: Ms,
    /// Before each stretch of data on the bus.
    pub(crate) data_preparation_ms: Ms,
    /// To leave the bus after the command of a read that follows a read.
    pub(crate) read_disconnect_after_read_ms: Ms,
    /// The same after a write.
    pub(crate) read_disconnect_after_write_ms: Ms,
    /// To leave the bus when a write's data is over.
    pub(crate) write_disconnect_ms: Ms,
    /// To come back to the bus.
    pub(crate) reselect_ms: Ms,
    /// From the moment when enough of a read is there until it is on the bus, once the bus has been left; without it,
    /// `reselect_ms` and `data_preparation_ms`.
    pub(crate) read_return_ms: Option<Ms>,
    /// To report a read's end.
    pub(crate) read_completion_ms: Ms,
    /// To report a write's end.
    pub(crate) write_completion_ms: Ms,
    /// A write's first seek takes at least this.
    pub(crate) write_seek_min_ms: Ms,
    /// What is different for a write that follows a write and does not continue it.
    pub(crate) scattered_write: Option<ScatteredWrite>,
}

/// A drive that is still busy with the last write leaves the bus once more, before it takes the data.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ScatteredWrite {
    pub(crate) command_ms: Ms,
    pub(crate) first_disconnect_ms: Ms,
    pub(crate) pause_ms: Ms,
    pub(crate) second_disconnect_ms: Ms,
    pub(crate) seek_delay_ms: Ms,
    pub(crate) last_reselect_ms: Ms,
}

/// How long a sector takes on the bus.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Bus {
    pub(crate) read_sector_ms: Ms,
    pub(crate) write_sector_ms: Ms,
}

/// The segments that keep what was read.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CacheShape {
    /// Segments, with those for writes.
    pub(crate) segments: u32,
    /// Segments that only take the data of writes. They are never read from.
    #[serde(default)]
    pub(crate) write_segments: u32,
    pub(crate) segment_sectors: u32,
    /// Sectors past a read's end that are read ahead.
    #[serde(default)]
    pub(crate) read_ahead_sectors: u32,
    /// The part of a read that has to be there before the drive comes back to the bus.
    #[serde(default)]
    pub(crate) read_water_mark: f64,
    /// Sectors of a write (or all of it) that have to be there before the first is written.
    #[serde(default)]
    pub(crate) write_start_sectors: u32,
    /// From how many sectors on a write is a long one.
    #[serde(default = "never")]
    pub(crate) long_write_sectors: u32,
    /// As `write_start_sectors`, for a long write.
    #[serde(default)]
    pub(crate) long_write_start_sectors: u32,
}

fn never() -> u32 {
    u32::MAX
}

impl CacheShape {
    /// How many sectors of a read of `sectors` have to be read before the bus is taken: at least 1.
    pub(crate) fn water(&self, sectors: u32) -> u32 {
        let water = f64::from(sectors.min(self.segment_sectors)) * self.read_water_mark;
        (water as u32).clamp(1, sectors)
    }

    /// How many sectors of a write of `sectors` have to be there before the first is written.
    pub(crate) fn write_start(&self, sectors: u32) -> u32 {
        if sectors < self.long_write_sectors {
            self.write_start_sectors.min(sectors)
        } else {
            self.long_write_start_sectors.min(sectors)
        }
    }
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Electronics {
    pub(crate) command: Command,
    pub(crate) bus: Bus,
    pub(crate) cache: Option<CacheShape>,
}
