//! Writes: data comes over the bus while the arm moves, and each sector has to be there when its place passes.

use crate::drive::{Lbn, Ps, ScatteredWrite};

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

/// A write's data on the bus.
struct Arriving {
    from: Ps,
    sector: Ps,
    /// Sectors that have to be there before any is written.
    start: u64,
    sectors: u64,
}

impl Arriving {
    /// When the sector `index` may be written.
    fn ready(&self, index: u64) -> Ps {
        self.from + Ps(self.sector.0 * (index + 1).max(self.start))
    }

    fn end(&self) -> Ps {
        self.from + Ps(self.sector.0 * self.sectors)
    }
}

/// How the medium was written.
struct Written {
    /// The first sector's start.
    begun: Ps,
    end: Ps,
    /// Whole turns spent waiting for data.
    lost: Ps,
}

impl Controller<'_> {
    pub(super) fn write(&mut self, now: Ps, lbn: u64, sectors: u32) -> Served {
        let free = self.catch_up(now);
        // The arm is needed, so reading ahead ends at once.
        self.ahead = None;
        let end = lbn + u64::from(sectors);
        // What was read ahead there is old now.
        self.segments.overwrite(&(lbn..end));
        let plan = self.plan(now, lbn);
        let electronics = &self.drive.electronics;
        let start = electronics.cache.as_ref().map_or(0, |cache| cache.write_start(sectors));
        let sector = electronics.bus.write_sector_ms.0;
        let data = Arriving {
            from: plan.data,
            sector,
            start: u64::from(start),
            sectors: u64::from(sectors),
        };
        let seek = self.drive.arm_time(self.arm, self.drive.locate(Lbn(lbn)).arm, true);
        let arrived = free.max(plan.seek) + seek.max(electronics.command.write_seek_min_ms.0);
        let written = self.put(arrived, lbn, &data);
        let done =
            written.end.max(data.end() + plan.disconnect) + plan.reselect + electronics.command.write_completion_ms.0;
        self.last = Last::Write(Some(end));
        let parts = [
            seek,
            written.begun - arrived + written.lost,
            written.end - written.begun - written.lost,
        ];
        served(now, done, parts, false)
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
                ..
            }) => Plan {
                seek: now + command_ms.0 + seek_delay_ms.0,
                data: now + command_ms.0 + first_disconnect_ms.0 + pause_ms.0 + first + prepare,
                disconnect: command
                    .scattered_write
                    .as_ref()
                    .map_or(Ps::ZERO, |other| other.second_disconnect_ms.0),
                reselect: command
                    .scattered_write
                    .as_ref()
                    .map_or(Ps::ZERO, |other| other.last_reselect_ms.0),
            },
            None => Plan {
                seek: now + command.write_ms.0,
                data: now + command.write_ms.0 + prepare,
                disconnect: command.write_disconnect_ms.0,
                reselect: first,
            },
        }
    }

    /// Writes from `lbn` on, the arm being there since `arrived`.
    fn put(&mut self, arrived: Ps, lbn: u64, data: &Arriving) -> Written {
        let mut track = self.drive.track(Lbn(lbn));
        self.arm = track.arm;
        let (mut at, mut done, mut lost) = (arrived, 0, Ps::ZERO);
        let mut begun = None;
        loop {
            let reach = self.drive.reach(self.arm, at, Lbn(lbn + done), true);
            self.arm = track.arm;
            let start = at + reach.total();
            // Up to here it is rotation; switches of tracks later count as transfer.
            begun.get_or_insert(start);
            let here = (data.sectors - done).min(track.first.0 + u64::from(track.sectors) - lbn - done);
            let late = self.wait_for_data(start, lbn, done..done + here, data);
            lost += late;
            at = start + late + self.drive.passing(Lbn(lbn + done), here as u32);
            done += here;
            if done == data.sectors {
                return Written {
                    begun: begun.unwrap_or(start),
                    end: at,
                    lost,
                };
            }
            track = self.drive.track(Lbn(lbn + done));
        }
    }

    /// Whole turns lost while the sectors `these` of a write pass: those whose data is not there come round again.
    fn wait_for_data(&self, start: Ps, lbn: u64, these: std::ops::Range<u64>, data: &Arriving) -> Ps {
        let mut lost = Ps::ZERO;
        // All of it is in the buffer: no sector can be late.
        if start >= data.end() {
            return lost;
        }
        let first = Lbn(lbn + these.start);
        for index in these.clone() {
            let passes = start + lost + self.drive.passing(first, (index - these.start) as u32);
            let late = data.ready(index).saturating_sub(passes);
            // A sector that passes before its data is there comes round again only after a whole turn.
            lost += Ps(late.0.div_ceil(self.drive.rotation().0) * self.drive.rotation().0);
        }
        lost
    }
}
