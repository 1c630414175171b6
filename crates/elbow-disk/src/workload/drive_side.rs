//! The drive's end of a simulation: it serves, and says what a scheduler should know of it.

use super::Overheads;
use super::sectors::shortest_sector;
use crate::controller::{Controller, Request, Served};
use crate::drive::{Arm, Drive, Ps};
use crate::sched::{CommandLead, Pick};

/// A drive with one of the kinds of overhead.
#[derive(Debug)]
pub(crate) struct DriveSide<'d> {
    controller: Controller<'d>,
    /// Before each request, beside what the controller does.
    fixed: Ps,
    /// Leads of a read, and of a write after a read and after a write.
    read: CommandLead,
    write: [CommandLead; 2],
    last_wrote: bool,
    /// The write for which those are, and the least time in which a sector passes; only with a controller.
    length: Option<(u32, u64)>,
}

impl<'d> DriveSide<'d> {
    /// For writes of so many sectors.
    pub(crate) fn new(drive: &'d Drive, overheads: Overheads, sectors: u32) -> DriveSide<'d> {
        let mechanical = |fixed| {
            let lead = CommandLead {
                arm: fixed,
                data: fixed,
            };
            DriveSide {
                controller: Controller::mechanical(drive),
                fixed,
                read: lead,
                write: [lead; 2],
                last_wrote: false,
                length: None,
            }
        };
        match overheads {
            Overheads::None => mechanical(Ps::ZERO),
            Overheads::Fixed(fixed) => mechanical(fixed),
            Overheads::Controller => {
                let shortest = shortest_sector(drive);
                DriveSide {
                    controller: Controller::new(drive),
                    fixed: Ps::ZERO,
                    read: CommandLead {
                        arm: drive.electronics.command.read_miss(false),
                        data: Ps::ZERO,
                    },
                    write: [false, true].map(|after_write| write_lead(drive, after_write, sectors, shortest)),
                    last_wrote: true,
                    length: Some((sectors, shortest)),
                }
            }
        }
    }

    /// The same where the arm stands there at first.
    pub(crate) fn standing_at(self, arm: Arm) -> DriveSide<'d> {
        DriveSide {
            controller: self.controller.standing_at(arm),
            ..self
        }
    }

    /// The same where the media cache is as a power cut left it in another.
    pub(crate) fn with_media_cache_of(self, before: &DriveSide<'d>, cut: Ps) -> DriveSide<'d> {
        DriveSide {
            controller: self.controller.with_media_cache_of(&before.controller, cut),
            ..self
        }
    }

    pub(crate) fn arm(&self, now: Ps) -> Arm {
        self.controller.arm(now)
    }

    /// What happens before the medium is reached, for a read and for a write that comes now.
    pub(crate) fn leads(&self) -> (CommandLead, CommandLead) {
        (self.read, self.write[usize::from(self.last_wrote)])
    }

    /// The same for writes of another length than before.
    pub(crate) fn leads_for(&mut self, sectors: u32) -> (CommandLead, CommandLead) {
        if let Some((length, shortest)) = self.length
            && length != sectors
        {
            let drive = self.controller.drive();
            self.write = [false, true].map(|after_write| write_lead(drive, after_write, sectors, shortest));
            self.length = Some((sectors, shortest));
        }
        self.leads()
    }

    pub(crate) fn serve(&mut self, now: Ps, pick: &Pick) -> Served {
        let &Pick {
            lbn, sectors, write, ..
        } = pick;
        let served = self.controller.serve(now + self.fixed, Request { lbn, sectors, write });
        self.last_wrote = write;
        self.with_fixed(served)
    }

    /// A write that is complete only when the medium has it.
    pub(crate) fn serve_through(&mut self, now: Ps, pick: &Pick) -> Served {
        let &Pick { lbn, sectors, .. } = pick;
        let write = Request {
            lbn,
            sectors,
            write: true,
        };
        let served = self.controller.serve_through(now + self.fixed, write);
        self.last_wrote = true;
        self.with_fixed(served)
    }

    pub(crate) fn flush(&mut self, now: Ps) -> Ps {
        self.controller.flush(now)
    }

    pub(crate) fn set_write_through(&mut self, write_through: bool) {
        self.controller.set_write_through(write_through);
    }

    fn with_fixed(&self, served: Served) -> Served {
        Served {
            overhead: served.overhead + self.fixed,
            ..served
        }
    }
}

/// When the arm may move, and from when on the first sector of a write may pass so that the bus has brought each sector in time.
fn write_lead(drive: &Drive, after_write: bool, sectors: u32, shortest: u64) -> CommandLead {
    let command = &drive.electronics.command;
    let prepared = command.data_preparation_ms.0;
    let (arm, data) = match command.scattered_write.as_ref().filter(|_| after_write) {
        Some(scattered) => {
            let taken = scattered.command_ms.0 + scattered.first_disconnect_ms.0 + scattered.pause_ms.0;
            (
                scattered.command_ms.0 + scattered.seek_delay_ms.0,
                taken + command.reselect_ms.0 + prepared,
            )
        }
        None => {
            let taken = drive.electronics.write_command(after_write);
            (taken, taken + prepared)
        }
    };
    let start = drive
        .electronics
        .cache
        .as_ref()
        .map_or(1, |cache| cache.write_start(sectors))
        .max(1);
    let bus = drive.electronics.bus.write_sector_ms.0.0;
    // Where sectors pass the head faster than the bus brings them, the last one decides.
    let last = (bus * u64::from(sectors.max(start))).saturating_sub(shortest * u64::from(sectors - 1));
    let first = data + Ps((bus * u64::from(start)).max(last));
    CommandLead {
        arm,
        data: first.max(arm + command.write_seek_min_ms.0),
    }
}
