//! Writes: data comes over the bus while the arm moves, and each sector has to be there when its place passes.

use crate::drive::{Lbn, Ps, ScatteredWrite};

use super::medium::{BusTransfer, MediumWrite};
use super::{Controller, Last, Served, served};

/// When the parts of a write's command are over.
struct Plan {
    /// The arm may move.
    seek: Ps,
    /// The first sector starts on the bus.
    data: Ps,
    /// To leave the bus after the data.
    disconnect: Ps,
    /// To come back when the medium has it.
    reselect: Ps,
}

impl Controller<'_> {
    /// A write that is complete when the medium has it.
    pub(super) fn write(&mut self, now: Ps, lbn: u64, sectors: u32) -> Served {
        let end = lbn + u64::from(sectors);
        self.write_back_overlaps(now, &(lbn..end));
        let free = self.catch_up(now);
        // The arm is needed, so reading ahead ends at once.
        self.ahead = None;
        let plan = self.plan(now, lbn);
        let data = self.arriving(plan.data, sectors);
        let electronics = &self.drive.electronics;
        let seek = self.drive.arm_time(self.arm, self.drive.locate(Lbn(lbn)).arm, true);
        let arrived = free.max(plan.seek) + seek.max(electronics.command.write_seek_min_ms.0);
        let on_medium = self.on_medium(arrived, lbn, data);
        let written = on_medium.write(self.drive, |_| ());
        self.arm = written.arm;
        self.last_write = Some(on_medium);
        let done =
            written.end.max(data.end() + plan.disconnect) + plan.reselect + electronics.command.write_completion_ms.0;
        self.keep_written(now, lbn..end, written.end);
        self.last = Last::Write(Some(end));
        let parts = [
            seek,
            written.begun - arrived + written.lost,
            written.end - written.begun - written.lost,
        ];
        served(now, done, parts, false)
    }

    /// What was read ahead where something is written is old now; the drive may keep the new.
    fn keep_written(&mut self, now: Ps, written: std::ops::Range<u64>, clean_at: Ps) {
        self.segments.overwrite(&written, None);
        if let Some(segment) = self
            .keeps_written()
            .then(|| self.segments.take(written.start, now))
            .flatten()
        {
            self.segments.fill(segment, written.end);
            self.segments.clean(segment, clean_at);
        }
    }

    /// The data of a write, on the bus from a time on.
    pub(super) fn arriving(&self, from: Ps, sectors: u32) -> BusTransfer {
        let electronics = &self.drive.electronics;
        let start = electronics.cache.as_ref().map_or(0, |cache| cache.write_start(sectors));
        BusTransfer {
            from,
            sector: electronics.bus.write_sector_ms.0,
            start: u64::from(start),
            sectors: u64::from(sectors),
        }
    }

    pub(super) fn on_medium(&self, arrived: Ps, lbn: u64, data: BusTransfer) -> MediumWrite {
        MediumWrite {
            arrived,
            lbn,
            data,
            immediate: self
                .drive
                .electronics
                .cache
                .as_ref()
                .is_some_and(|cache| cache.immediate_write),
        }
    }

    fn plan(&self, now: Ps, lbn: u64) -> Plan {
        let command = &self.drive.electronics.command;
        let (first, prepare) = (command.reselect_ms.0, command.data_preparation_ms.0);
        // A drive that is still busy with the last write leaves the bus once more, unless this one goes on from it.
        let scattered = matches!(self.last, Last::Write(Some(end)) if end != lbn);
        match command.scattered_write.as_ref().filter(|_| scattered) {
            Some(&ScatteredWrite {
                command_ms,
                first_disconnect_ms,
                pause_ms,
                seek_delay_ms,
                second_disconnect_ms,
                last_reselect_ms,
            }) => Plan {
                seek: now + command_ms.0 + seek_delay_ms.0,
                data: now + command_ms.0 + first_disconnect_ms.0 + pause_ms.0 + first + prepare,
                disconnect: second_disconnect_ms.0,
                reselect: last_reselect_ms.0,
            },
            None => {
                let taken = now + command.write(self.last.is_write());
                Plan {
                    seek: taken,
                    data: taken + prepare,
                    disconnect: command.write_disconnect_ms.0,
                    reselect: first,
                }
            }
        }
    }
}
