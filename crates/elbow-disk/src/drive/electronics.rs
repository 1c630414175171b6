//! What a drive's controller and bus take, beside the mechanics, and how large its cache is: parts of a description file.

use serde::Deserialize;

use super::units::{Ms, Ps};

/// Overheads of commands.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Command {
    /// From a read's arrival until the arm may move.
    pub(crate) read_miss_ms: Ms,
    /// The same after a write, where that is another time.
    pub(crate) read_miss_after_write_ms: Option<Ms>,
    /// From the arrival of a read whose first sector is cached until its data is prepared.
    pub(crate) read_hit_ms: Ms,
    /// The same after a write, where that is another time.
    pub(crate) read_hit_after_write_ms: Option<Ms>,
    /// From a write's arrival until the arm may move, and until its data is prepared.
    pub(crate) write_ms: Ms,
    /// The same after a write, where that is another time.
    pub(crate) write_after_write_ms: Option<Ms>,
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
    /// Where reading ahead ends at the latest.
    #[serde(default)]
    pub(crate) read_ahead_until: ReadAheadUntil,
    /// A hit on data behind which nothing is being read has it go on.
    #[serde(default = "yes")]
    pub(crate) resume_on_hit: bool,
    /// Reading ahead can be broken off within a sector.
    #[serde(default = "yes")]
    pub(crate) stop_in_sector: bool,
    /// What passes the head before a read's first sector, on its track, is kept.
    #[serde(default)]
    pub(crate) keep_passing: bool,
    /// A head that lands among the sectors of a read, or of a write, begins with what comes first.
    #[serde(default)]
    pub(crate) immediate_read: bool,
    #[serde(default)]
    pub(crate) immediate_write: bool,
    /// A write takes one of the segments, and what it wrote can be read from there.
    #[serde(default)]
    pub(crate) keep_written: bool,
    /// A hit waits while the arm writes.
    #[serde(default)]
    pub(crate) hits_wait_for_writes: bool,
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

fn yes() -> bool {
    true
}

/// Where reading ahead ends, if not at its number of sectors before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ReadAheadUntil {
    /// Only its number counts.
    #[default]
    Sectors,
    /// The end of the track.
    Track,
    /// The end of the cylinder.
    Cylinder,
    /// The end of the track behind the read, and so many sectors more where the segment begins before that track; its number does not count.
    NextTrack,
}

/// Writes that are reported when the drive has their data, before the medium has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteCache {
    /// Segments that may hold what the medium does not have.
    pub(crate) segments: u32,
    /// From a write's arrival until its data is prepared, and until the arm may move.
    #[serde(default)]
    pub(crate) command_ms: Ms,
    /// The same after a write, where that is another time.
    pub(crate) command_after_write_ms: Option<Ms>,
    /// A write that goes on from the last one goes into its segment.
    #[serde(default = "yes")]
    pub(crate) append: bool,
    /// Data is taken while the arm writes something else.
    #[serde(default)]
    pub(crate) take_while_busy: bool,
    /// What is written waits for the drive to be idle so long, or for its segment to be needed; 0: it is written at once.
    #[serde(default)]
    pub(crate) idle_ms: Ms,
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
    pub(crate) write_cache: Option<WriteCache>,
}

impl Command {
    /// By what came before.
    pub(crate) fn read_miss(&self, after_write: bool) -> Ps {
        by_predecessor(self.read_miss_ms, self.read_miss_after_write_ms, after_write)
    }

    /// By what came before.
    pub(crate) fn read_hit(&self, after_write: bool) -> Ps {
        by_predecessor(self.read_hit_ms, self.read_hit_after_write_ms, after_write)
    }

    /// By what came before.
    pub(crate) fn write(&self, after_write: bool) -> Ps {
        by_predecessor(self.write_ms, self.write_after_write_ms, after_write)
    }
}

impl WriteCache {
    /// One that a description does not have: assumed, not measured.
    pub(super) fn of_segments(cache: &CacheShape, command: &Command) -> WriteCache {
        WriteCache {
            segments: cache.segments.saturating_sub(1).max(1),
            command_ms: command.write_ms,
            command_after_write_ms: command.write_after_write_ms,
            append: true,
            take_while_busy: true,
            idle_ms: Ms::default(),
        }
    }

    /// By what came before.
    pub(crate) fn command(&self, after_write: bool) -> Ps {
        by_predecessor(self.command_ms, self.command_after_write_ms, after_write)
    }
}

impl Electronics {
    /// From a write's arrival until the arm may move, whether or not it is cached.
    pub(crate) fn write_command(&self, after_write: bool) -> Ps {
        match &self.write_cache {
            Some(cache) => cache.command(after_write),
            None => self.command.write(after_write),
        }
    }
}

fn by_predecessor(usual: Ms, after_write: Option<Ms>, is_after_write: bool) -> Ps {
    after_write.filter(|_| is_after_write).unwrap_or(usual).0
}
