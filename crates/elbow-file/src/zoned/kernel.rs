//! A zoned block device of Linux: its zones by ioctl, its sectors past the page cache.
//!
//! The kernel gives user space no Zone Append on a block device: an append here is a write at the write pointer, one at a time in each zone, which is as
//! good for one writer. (Many writers to one zone gain by Zone Append, over NVMe passthrough.) A write that failed may have written a part; the zone
//! is asked then.
//!
//! Reads and writes are direct (`O_DIRECT`): the page cache would write a zone's pages in any order. Long writes go in pieces, one after the other.
//!
//! Source: linux/blkzoned.h; Documentation/ABI/stable/sysfs-block (`zoned`, `max_active_zones`, `zone_append_max_bytes`); open(2), `O_DIRECT`.

#![allow(
    clippy::disallowed_methods,
    reason = "this is the edge that the rule keeps everybody else behind"
)]

use std::fmt;
use std::fs;
use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, SeekFrom, major, minor};
use rustix::io::retry_on_intr;
use rustix::ioctl::{Getter, Opcode, Setter, Updater, ioctl, opcode};

use super::{Zone, ZoneState, ZonedStorage};
use crate::{DIRECT_ALIGNMENT, Errno, FileType, Handle, RealStorage, Result, Storage};

/// `_IO(0x12, ..)` with sizes, but these two, which are older than that.
const BLKSSZGET: Opcode = opcode::none(0x12, 104);
const BLKPBSZGET: Opcode = opcode::none(0x12, 123);
const BLKREPORTZONE: Opcode = opcode::read_write::<ReportHead>(0x12, 130);
const BLKRESETZONE: Opcode = opcode::write::<ZoneRange>(0x12, 131);
const BLKGETZONESZ: Opcode = opcode::read::<u32>(0x12, 132);
const BLKGETNRZONES: Opcode = opcode::read::<u32>(0x12, 133);
const BLKFINISHZONE: Opcode = opcode::write::<ZoneRange>(0x12, 136);

/// The kernel counts in sectors of so many bytes, whatever those of the device have.
const KERNEL_SECTOR_BYTES: u64 = 512;
/// Zones that are reported at a time.
const REPORTED: usize = 64;
/// No more are taken: 16 Mi zones of 256 MiB are 4 EiB, and their descriptions 1 GiB.
const ZONES_MAX: u32 = 1 << 24;
/// Bytes that are written at a time; less than any device takes in one command, so that none is cut up on the way.
const PIECE_BYTES: usize = 128 << 10;
/// `BLK_ZONE_REP_CAPACITY`: capacities are reported.
const HAS_CAPACITY: u32 = 1;

/// `struct blk_zone_report` without its zones.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ReportHead {
    sector: u64,
    zones: u32,
    flags: u32,
}

/// `struct blk_zone`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Reported {
    start: u64,
    length: u64,
    write_pointer: u64,
    kind: u8,
    condition: u8,
    non_sequential: u8,
    reset: u8,
    reserved: [u8; 4],
    capacity: u64,
    reserved_too: [u8; 24],
}

const _: () = assert!(size_of::<Reported>() == 64 && size_of::<ReportHead>() == 16);

#[repr(C)]
struct Report {
    head: ReportHead,
    zones: [Reported; REPORTED],
}

/// `struct blk_zone_range`.
#[repr(C)]
struct ZoneRange {
    sector: u64,
    sectors: u64,
}

/// Why a file is no zoned device that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenZonesError {
    /// A system call failed.
    Call {
        /// What was tried.
        what: &'static str,
        /// How it failed.
        errno: Errno,
    },
    /// A file, or a device without zones.
    NotZoned,
    /// A device whose zones are not whole sectors of it, or too many.
    Shape {
        /// Bytes of a sector.
        sector_bytes: u32,
        /// Sectors of 512 bytes of a zone.
        zone_sectors: u32,
        /// Number of zones.
        zones: u32,
    },
}

impl fmt::Display for OpenZonesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call { what, errno } => write!(f, "{what}: {errno}"),
            Self::NotZoned => write!(
                f,
                "it is no zoned block device; name one for which /sys/block/NAME/queue/zoned does not say none"
            ),
            Self::Shape {
                sector_bytes,
                zone_sectors,
                zones,
            } => write!(
                f,
                "{zones} zones of {zone_sectors} sectors of 512 bytes, written in sectors of {sector_bytes} bytes, cannot be used"
            ),
        }
    }
}

impl std::error::Error for OpenZonesError {}

/// A zoned block device. The kernel lets nobody else mount it, or make it part of something, while this is there.
///
/// ```no_run
/// use std::path::Path;
/// use elbow_file::zoned::{KernelZones, ZonedStorage};
///
/// let mut zones = KernelZones::open(Path::new("/dev/nvme0n2"))?;
/// let mut zone = zones.report()?.swap_remove(0);
/// let data = vec![1; zones.sector_bytes() as usize];
/// println!("written at {:?}", zones.append(&mut zone, &data)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct KernelZones {
    file: Handle,
    sector_bytes: u32,
    /// From the start of one zone to that of the next, in sectors of the kernel.
    zone_sectors: u32,
    zones: u32,
    /// Of the kernel, all of the device.
    sectors: u64,
    active_max: Option<u32>,
}

/// Whether an open file is a zoned block device.
///
/// ```
/// let file = std::fs::File::open("/dev/null")?;
/// assert!(!elbow_file::zoned::is_zoned(&file));
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
pub fn is_zoned(file: impl AsFd) -> bool {
    number::<BLKGETZONESZ>(&file).is_ok_and(|sectors| sectors > 0)
}

impl KernelZones {
    /// Opens a zoned block device for reading and writing, for itself alone.
    ///
    /// # Errors
    /// [`OpenZonesError::NotZoned`]; those of open(2), EBUSY among them for one that is in use; a device whose zones cannot be used.
    pub fn open(path: &Path) -> std::result::Result<Self, OpenZonesError> {
        let call = |what| move |errno| OpenZonesError::Call { what, errno };
        let looked_at = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let file = retry_on_intr(|| rustix::fs::open(path, looked_at, Mode::empty())).map_err(call("it is opened"))?;
        let file = Handle::new(file);
        let stat = RealStorage.stat_handle(&file).map_err(call("it is looked at"))?;
        if stat.kind != FileType::BlockDevice || !is_zoned(&file) {
            return Err(OpenZonesError::NotZoned);
        }
        drop(file);
        let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOCTTY;
        let file = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()));
        Self::of(Handle::new(file.map_err(call("it is opened for itself alone"))?))
    }

    fn of(file: Handle) -> std::result::Result<Self, OpenZonesError> {
        let asked = |errno| OpenZonesError::Call {
            what: "its zones are asked for",
            errno,
        };
        let logical = number::<BLKSSZGET>(&file).map_err(asked)?;
        // Those of hard disks are written in whole physical sectors.
        let sector_bytes = logical.max(number::<BLKPBSZGET>(&file).map_err(asked)?);
        let zone_sectors = number::<BLKGETZONESZ>(&file).map_err(asked)?;
        let zones = number::<BLKGETNRZONES>(&file).map_err(asked)?;
        let zone_bytes = u64::from(zone_sectors) * KERNEL_SECTOR_BYTES;
        let is_usable = sector_bytes > 0
            && u64::from(sector_bytes).is_multiple_of(KERNEL_SECTOR_BYTES)
            && PIECE_BYTES.is_multiple_of(sector_bytes as usize)
            && zone_bytes > 0
            && zone_bytes.is_multiple_of(sector_bytes.into())
            && (1..=ZONES_MAX).contains(&zones);
        if !is_usable {
            return Err(OpenZonesError::Shape {
                sector_bytes,
                zone_sectors,
                zones,
            });
        }
        let active_max = active_max(&file);
        let end = rustix::fs::seek(&file, SeekFrom::End(0)).map_err(asked)?;
        Ok(Self {
            file,
            sector_bytes,
            zone_sectors,
            zones,
            sectors: end / KERNEL_SECTOR_BYTES,
            active_max,
        })
    }

    /// Sectors of the kernel in one of the device.
    fn per_sector(&self) -> u64 {
        u64::from(self.sector_bytes) / KERNEL_SECTOR_BYTES
    }

    /// Zones from a sector of the kernel on.
    fn reported(&self, sector: u64, most: usize) -> Result<Vec<Zone>> {
        let mut report = Report {
            head: ReportHead {
                sector,
                zones: most.min(REPORTED) as u32,
                flags: 0,
            },
            zones: [Reported::default(); REPORTED],
        };
        // SAFETY: the call takes a pointer to a head that is followed by room for as many zones as it says, at most as many as there are, and
        // writes to both; any bytes are numbers.
        #[allow(unsafe_code)]
        let reported =
            retry_on_intr(|| unsafe { ioctl(&self.file, Updater::<BLKREPORTZONE, Report>::new(&mut report)) });
        reported?;
        let zones = report.zones.iter().take(report.head.zones as usize);
        let has_capacity = report.head.flags & HAS_CAPACITY != 0;
        zones
            .map(|zone| zone.known(has_capacity, self.per_sector()).ok_or(Errno::IO))
            .collect()
    }

    /// What became of a zone. Where even that cannot be said, nothing is written there any more.
    fn ask(&self, zone: &mut Zone) {
        let found = self.reported(zone.start * self.per_sector(), 1).unwrap_or_default();
        match found.into_iter().next().filter(|found| found.start == zone.start) {
            Some(found) => *zone = found,
            None => zone.state = ZoneState::ReadOnly,
        }
    }

    fn manage<const OPCODE: Opcode>(&self, zone: &mut Zone) -> Result<()> {
        let sector = zone.start * self.per_sector();
        let sectors = u64::from(self.zone_sectors).min(self.sectors.saturating_sub(sector)); // the last one may be shorter
        // SAFETY: both calls that are made here take a pointer to a range, and only read it.
        #[allow(unsafe_code)]
        let managed = retry_on_intr(|| unsafe {
            ioctl(
                &self.file,
                Setter::<OPCODE, ZoneRange>::new(ZoneRange { sector, sectors }),
            )
        });
        if managed.is_err() {
            self.ask(zone);
        }
        managed
    }

    fn write(&self, at: u64, data: &[u8]) -> Result<()> {
        let mut buffer = Aligned::new(data.len().min(PIECE_BYTES));
        let mut offset = at * u64::from(self.sector_bytes);
        for piece in data.chunks(PIECE_BYTES) {
            let bytes = &mut buffer.bytes()[..piece.len()];
            bytes.copy_from_slice(piece);
            RealStorage.write(&self.file, &[IoSlice::new(bytes)], offset)?;
            offset += piece.len() as u64;
        }
        Ok(())
    }
}

impl Reported {
    /// What the kernel says, if it can be: its numbers are bytes of a device.
    fn known(&self, has_capacity: bool, per_sector: u64) -> Option<Zone> {
        let capacity = if has_capacity { self.capacity } else { self.length };
        let end = self.start.checked_add(self.length)?;
        let state = match (self.kind, self.condition) {
            (1, _) | (_, 0) => ZoneState::Conventional,
            (2 | 3, 1) => ZoneState::Empty,
            (2 | 3, 2..=4) => ZoneState::Open,
            (2 | 3, 0xd) => ZoneState::ReadOnly,
            (2 | 3, 0xe) => ZoneState::Full,
            (2 | 3, 0xf) => ZoneState::Offline,
            _ => return None,
        };
        let last = self.start + capacity.min(self.length);
        let write_pointer = match state {
            ZoneState::Empty => self.start,
            // Of one that is read-only it is not said how far it was written: what was not reads as anything.
            ZoneState::Conventional | ZoneState::Full | ZoneState::ReadOnly | ZoneState::Offline => last,
            ZoneState::Open => self.write_pointer,
        };
        let numbers = [self.start, last, write_pointer, end];
        let is_possible = capacity > 0
            && capacity <= self.length
            && (self.start..=last).contains(&write_pointer)
            && numbers.iter().all(|number| number.is_multiple_of(per_sector));
        is_possible.then(|| Zone {
            start: self.start / per_sector,
            capacity: (last - self.start) / per_sector,
            write_pointer: write_pointer / per_sector,
            state,
        })
    }
}

impl ZonedStorage for KernelZones {
    fn sector_bytes(&self) -> u32 {
        self.sector_bytes
    }

    fn active_max(&self) -> Option<u32> {
        self.active_max
    }

    fn report(&mut self) -> Result<Vec<Zone>> {
        let mut zones: Vec<Zone> = Vec::new();
        while zones.len() < self.zones as usize {
            let next = zones.len() as u64 * u64::from(self.zone_sectors);
            let found = self.reported(next, REPORTED)?;
            let is_next = |zone: &Zone| zone.start * self.per_sector() == next;
            if !found.first().is_some_and(is_next) {
                return Err(Errno::IO); // it would go on for ever, or leave some out
            }
            zones.extend(found);
        }
        Ok(zones)
    }

    fn read(&mut self, at: u64, sectors: u64) -> Result<Vec<u8>> {
        let bytes = usize::try_from(sectors * u64::from(self.sector_bytes)).map_err(|_| Errno::INVAL)?;
        let mut buffer = Aligned::new(bytes);
        let offset = at * u64::from(self.sector_bytes);
        let mut filled = 0;
        while filled < bytes {
            let rest = &mut buffer.bytes()[filled..];
            match RealStorage.read(&self.file, rest, offset + filled as u64)? {
                // Direct reads begin with sectors.
                read if read == 0 || !read.is_multiple_of(self.sector_bytes as usize) => return Err(Errno::IO),
                read => filled += read,
            }
        }
        Ok(buffer.bytes().to_vec())
    }

    fn append(&mut self, zone: &mut Zone, data: &[u8]) -> Result<Range<u64>> {
        let sectors = data.len() as u64 / u64::from(self.sector_bytes);
        let place = zone.write_pointer..zone.write_pointer + sectors;
        if place.is_empty() || place.end > zone.rest().end || !data.len().is_multiple_of(self.sector_bytes as usize) {
            return Err(Errno::INVAL);
        }
        let written = self.write(place.start, data);
        match written {
            Ok(()) => zone.advance(sectors),
            Err(_) => self.ask(zone),
        }
        written.map(|()| place)
    }

    fn overwrite(&mut self, at: u64, data: &[u8]) -> Result<()> {
        self.write(at, data)
    }

    fn reset(&mut self, zone: &mut Zone) -> Result<()> {
        self.manage::<BLKRESETZONE>(zone)?;
        zone.reset();
        Ok(())
    }

    fn finish(&mut self, zone: &mut Zone) -> Result<()> {
        self.manage::<BLKFINISHZONE>(zone)?;
        zone.finish();
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        RealStorage.sync(&self.file)
    }
}

/// A number of a device, by a call that writes an int.
fn number<const OPCODE: Opcode>(file: impl AsFd) -> Result<u32> {
    // SAFETY: the calls that are made with this write one int, or nothing where they fail.
    #[allow(unsafe_code)]
    retry_on_intr(|| unsafe { ioctl(&file, Getter::<OPCODE, u32>::new()) })
}

/// Of how many zones the device says that they may be written in part; 0 stands for no bound, as does a kernel that does not know.
fn active_max(file: &Handle) -> Option<u32> {
    let device = rustix::fs::fstat(file).ok()?.st_rdev;
    let queue = format!("/sys/dev/block/{}:{}/queue", major(device), minor(device));
    let limit = |name: &str| {
        let text = fs::read_to_string(format!("{queue}/{name}")).ok()?;
        text.trim().parse().ok().filter(|&limit: &u32| limit > 0)
    };
    // One writes to as many at a time as are open; those of some drives that have no other bound are closed by themselves.
    limit("max_active_zones")
}

/// Bytes at an address that direct reads and writes take.
struct Aligned {
    allocated: Vec<u8>,
    first: usize,
    length: usize,
}

impl Aligned {
    fn new(length: usize) -> Self {
        let allocated = vec![0; length + DIRECT_ALIGNMENT];
        let first = allocated.as_ptr().align_offset(DIRECT_ALIGNMENT).min(DIRECT_ALIGNMENT);
        Self {
            allocated,
            first,
            length,
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.allocated[self.first..self.first + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `nvme-ns` of qemu reports a zone of 4 MiB with a capacity of 3.
    const OPEN: Reported = Reported {
        start: 16384,
        length: 8192,
        write_pointer: 16392,
        kind: 2,
        condition: 2,
        non_sequential: 0,
        reset: 0,
        reserved: [0; 4],
        capacity: 6144,
        reserved_too: [0; 24],
    };

    #[test]
    fn a_zone_is_what_the_kernel_reports() {
        let zone = OPEN.known(true, 8).expect("a zone");
        assert_eq!((zone.places(), zone.write_pointer), (2048..2816, 2049));
        assert_eq!(zone.state, ZoneState::Open);
        let whole = OPEN.known(false, 1).expect("a kernel that knows no capacities");
        assert_eq!(whole.capacity, 8192);
        let states = [(1, ZoneState::Empty), (4, ZoneState::Open), (0xe, ZoneState::Full)];
        let given_up = [(0xd, ZoneState::ReadOnly), (0xf, ZoneState::Offline)];
        for (condition, state) in states.into_iter().chain(given_up) {
            let zone = Reported { condition, ..OPEN }.known(true, 1).expect("a zone");
            assert_eq!(zone.state, state);
        }
        let (kind, condition) = (1, 0);
        let conventional = Reported {
            kind,
            condition,
            ..OPEN
        }
        .known(true, 1);
        assert_eq!(conventional.map(|zone| zone.state), Some(ZoneState::Conventional));
    }

    #[test]
    fn a_report_that_cannot_be_is_none() {
        let wrong = [
            Reported { condition: 7, ..OPEN },
            Reported { kind: 9, ..OPEN },
            Reported { capacity: 0, ..OPEN },
            Reported { capacity: 8200, ..OPEN },
            Reported {
                write_pointer: 16383,
                ..OPEN
            },
            Reported {
                write_pointer: u64::MAX,
                ..OPEN
            },
            Reported {
                start: u64::MAX - 1,
                ..OPEN
            },
        ];
        for (number, zone) in wrong.iter().enumerate() {
            assert_eq!(zone.known(true, 1), None, "{number}");
        }
        let write_pointer = 16393;
        assert_eq!(Reported { write_pointer, ..OPEN }.known(true, 8), None, "in a sector");
    }

    #[test]
    fn a_file_is_no_zoned_device() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        assert!(!is_zoned(file.as_file()));
        let opened = KernelZones::open(file.path());
        assert_eq!(opened.err(), Some(OpenZonesError::NotZoned));
        let opened = KernelZones::open(Path::new("/nowhere/at/all"));
        assert!(matches!(
            opened,
            Err(OpenZonesError::Call {
                errno: Errno::NOENT,
                ..
            })
        ));
    }
}
