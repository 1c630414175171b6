//! A small log on a range device: the device chooses where each record lies, and a scan finds them again.
//!
//! ```sh
//! cargo run -p elbow-disk --example small_log                   # on a modelled drive, with times
//! cargo run -p elbow-disk --example small_log -- FILE < lines   # on a file or block device: shows it, appends lines
//! ```
//!
//! The guide `docs/src/guide/small-log.md` is this file with what there is to say about it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::error::Error;
use std::io::{self, BufRead, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use elbow_disk::Drive;
use elbow_disk::device::{ModelledDevice, Setup};
use elbow_file::range_device::{Blocking, Done, RangeDevice, RangeError, Request, ThreadedDevice, Ticket};
use elbow_ranges::RangeSet;

/// Sectors of a slot, in which one record lies.
pub(crate) const SLOT_SECTORS: u64 = 2;
/// Bytes of a record before its payload.
const HEADER_BYTES: usize = 44;
const MAGIC: &[u8; 8] = b"smalllog";

/// What a record says beside its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    /// How often the log had been opened.
    incarnation: u64,
    /// Rises by one with each record.
    number: u64,
    /// Number of the oldest record that is still needed.
    head: u64,
    /// Checksum of the record before.
    before: u32,
}

/// A slot with a record, sealed.
fn encode(header: &Header, payload: &[u8], slot_bytes: usize) -> Vec<u8> {
    let mut slot = Vec::with_capacity(slot_bytes);
    slot.extend_from_slice(MAGIC);
    slot.extend_from_slice(&[0; 4]); // the seal
    slot.extend_from_slice(&header.before.to_le_bytes());
    for field in [header.incarnation, header.number, header.head] {
        slot.extend_from_slice(&field.to_le_bytes());
    }
    slot.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    slot.extend_from_slice(payload);
    slot.resize(slot_bytes, 0);
    seal(&mut slot);
    slot
}

/// Writes the checksum of everything behind it.
pub(crate) fn seal(slot: &mut [u8]) {
    let checksum = crc32fast::hash(&slot[12..]);
    slot[8..12].copy_from_slice(&checksum.to_le_bytes());
}

/// The record in a slot and its checksum; none in a slot that holds anything else, or a part of a record.
fn decode(slot: &[u8]) -> Option<(Header, u32, &[u8])> {
    let number_at = |at: usize| Some(u64::from_le_bytes(slot.get(at..at + 8)?.try_into().ok()?));
    let word_at = |at: usize| Some(u32::from_le_bytes(slot.get(at..at + 4)?.try_into().ok()?));
    let checksum = word_at(8)?;
    if !slot.starts_with(MAGIC) || checksum != crc32fast::hash(&slot[12..]) {
        return None;
    }
    let header = Header {
        before: word_at(12)?,
        incarnation: number_at(16)?,
        number: number_at(24)?,
        head: number_at(32)?,
    };
    let payload = slot.get(HEADER_BYTES..)?.get(..word_at(40)? as usize)?;
    (header.head <= header.number).then_some((header, checksum, payload))
}

/// Why the log could not do it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogError {
    /// Its payload does not fit into a slot.
    #[error("a record has 1 to {most} bytes, and this one has {bytes}")]
    Length { bytes: usize, most: usize },
    /// What is left is for the records of `trim` and `open`.
    #[error("the log is full; trim it")]
    Full,
    /// It was trimmed, or has not been written.
    #[error("record {number} is not in the log, which has {head} to {next}, without that")]
    Unknown { number: u64, head: u64, next: u64 },
    /// There is nothing to take back.
    #[error("the newest record is written")]
    Written,
    /// What is there now is not what was written.
    #[error("record {number} at sector {at} is damaged")]
    Damaged { number: u64, at: u64 },
    /// A write or flush failed before: what is durable is not known any more.
    #[error("the log failed before; open it again")]
    Failed,
    /// The device said so.
    #[error(transparent)]
    Device(#[from] RangeError),
}

type Result<T, E = LogError> = std::result::Result<T, E>;

/// Records that may be under way at a time: as many slots are kept in memory.
const OUTSTANDING_MAX: usize = 64;
/// Slots that stay free: for the record by which the log is trimmed or opened.
const SLOTS_KEPT: u64 = 1;
/// So often a record is written elsewhere, after an error that says which place is bad.
const REWRITES_MAX: usize = 4;

/// A log in some sectors of a range device.
pub(crate) struct Log<D> {
    device: Blocking<D>,
    pub(crate) incarnation: u64,
    /// Whole slots that hold nothing that is needed.
    free: RangeSet,
    /// Where the records lie that have been written and are needed: number to first sector.
    places: BTreeMap<u64, u64>,
    /// Submitted, and their completions not taken, in order.
    outstanding: VecDeque<Outstanding>,
    head: u64,
    next: u64,
    /// Checksum of the newest record.
    newest: u32,
    /// Places at which the device has failed.
    bad: RangeSet,
    has_failed: bool,
}

/// A record under way.
struct Outstanding {
    ticket: Ticket,
    number: u64,
    before: u32,
    /// To be written again if its place is bad.
    slot: Vec<u8>,
}

impl<D: RangeDevice> Log<D> {
    /// Opens the log in those sectors of a device. One in which no record is found begins with an empty one.
    pub(crate) fn open(mut device: D, sectors: &RangeSet) -> Result<Self> {
        let bad = bad_slots_of_others(&mut device);
        let mut device = Blocking::new(device);
        let slots = whole_slots(sectors).difference(&bad);
        let found = scan(&mut device, &slots)?;
        device.barrier()?; // the list of free slots knows of all places that were given before
        let chain = newest_whole_chain(&found);
        let places: BTreeMap<u64, u64> = chain.iter().map(|record| (record.header.number, record.at)).collect();
        let taken = places.values().map(|&at| at..at + SLOT_SECTORS).collect();
        let mut log = Self {
            device,
            incarnation: 1 + found.iter().map(|record| record.header.incarnation).max().unwrap_or(0),
            free: slots.difference(&taken),
            places,
            outstanding: VecDeque::new(),
            head: chain.first().map_or(0, |newest| newest.header.head),
            next: chain.first().map_or(0, |newest| newest.header.number + 1),
            newest: chain.first().map_or(0, |newest| newest.checksum),
            bad,
            has_failed: false,
        };
        log.begin_incarnation(chain.first().map(|newest| newest.header))?;
        Ok(log)
    }

    /// Writes the newest record once more, and makes it durable: whatever becomes of records that were left out, they
    /// are older than that.
    fn begin_incarnation(&mut self, newest: Option<Header>) -> Result<()> {
        let (mut payload, mut old) = (Vec::new(), None);
        if let Some(newest) = newest {
            payload = self.read(newest.number)?;
            old = self.places.remove(&newest.number);
            (self.next, self.newest) = (newest.number, newest.before);
        }
        self.check_room(1)?;
        self.begin(&payload, self.head, None)?;
        self.flush()?;
        self.free.extend(old.map(|at| at..at + SLOT_SECTORS));
        Ok(())
    }
}

/// Waits for what whoever had the device before left under way, and says at which slots it failed.
fn bad_slots_of_others(device: &mut impl RangeDevice) -> RangeSet {
    let completions = std::iter::from_fn(|| device.wait());
    let bad = completions.filter_map(|completion| match completion.result {
        Err(RangeError::Io { place: Some(bad), .. }) => Some(slots_of(&bad)),
        _ => None,
    });
    bad.collect()
}

/// The slot with bad sectors, of which the first may be known and the last is that of the slot.
fn slots_of(bad: &Range<u64>) -> Range<u64> {
    let inside = bad.start.min(bad.end.saturating_sub(1));
    inside / SLOT_SECTORS * SLOT_SECTORS..bad.end
}

/// A record that a scan has found.
struct Found {
    header: Header,
    checksum: u32,
    at: u64,
}

/// Sectors that are read at a time.
const SCAN_SECTORS: u64 = 512 * SLOT_SECTORS;

/// All slots that lie in those sectors.
fn whole_slots(sectors: &RangeSet) -> RangeSet {
    let whole = |range: Range<u64>| {
        let start = range.start.next_multiple_of(SLOT_SECTORS);
        start..start.max(range.end / SLOT_SECTORS * SLOT_SECTORS)
    };
    sectors.iter().map(whole).collect()
}

/// All records there, of whatever time.
fn scan<D: RangeDevice>(device: &mut Blocking<D>, slots: &RangeSet) -> Result<Vec<Found>> {
    let slot_bytes = slot_bytes(device);
    let mut found = Vec::new();
    for range in slots.iter() {
        for start in range.clone().step_by(SCAN_SECTORS as usize) {
            let bytes = device.read(start, SCAN_SECTORS.min(range.end - start))?;
            for (at, slot) in (start..).step_by(SLOT_SECTORS as usize).zip(bytes.chunks(slot_bytes)) {
                found.extend(decode(slot).map(|(header, checksum, _)| Found { header, checksum, at }));
            }
        }
    }
    Ok(found)
}

fn slot_bytes<D: RangeDevice>(device: &Blocking<D>) -> usize {
    SLOT_SECTORS as usize * device.shape().sector_bytes as usize
}

/// From the newest record of which all that came before it is there, back to its head.
fn newest_whole_chain(found: &[Found]) -> Vec<&Found> {
    let key = |record: &Found| (record.header.number, record.checksum);
    let by_key: HashMap<(u64, u32), &Found> = found.iter().map(|record| (key(record), record)).collect();
    let mut newest_first: Vec<&Found> = found.iter().collect();
    newest_first.sort_by_key(|record| (record.header.incarnation, record.header.number));
    newest_first.reverse();
    let chains = newest_first.into_iter().map(|newest| whole_chain(newest, &by_key));
    chains.flatten().next().unwrap_or_default()
}

/// From a record back to its head, if none is missing.
fn whole_chain<'f>(newest: &'f Found, by_key: &HashMap<(u64, u32), &'f Found>) -> Option<Vec<&'f Found>> {
    let mut chain = vec![newest];
    for number in (newest.header.head..newest.header.number).rev() {
        let after = chain.last()?.header;
        chain.push(by_key.get(&(number, after.before))?);
    }
    Some(chain)
}

impl<D: RangeDevice> Log<D> {
    /// Begins to write a record, and returns its number. After a crash it may be there or not, until a `flush` has
    /// returned.
    pub(crate) fn append(&mut self, payload: &[u8]) -> Result<u64> {
        self.check_length(payload)?;
        self.check_room(1 + SLOTS_KEPT)?;
        self.begin(payload, self.head, None)
    }

    fn check_length(&self, payload: &[u8]) -> Result<()> {
        let (bytes, most) = (payload.len(), slot_bytes(&self.device) - HEADER_BYTES);
        match (1..=most).contains(&bytes) {
            true => Ok(()),
            false => Err(LogError::Length { bytes, most }),
        }
    }

    fn begin(&mut self, payload: &[u8], head: u64, begin_by: Option<Duration>) -> Result<u64> {
        let (number, before) = (self.next, self.newest);
        let header = Header {
            incarnation: self.incarnation,
            number,
            head,
            before,
        };
        let slot = encode(&header, payload, slot_bytes(&self.device));
        let ticket = self.submit(&slot, begin_by)?;
        self.newest = u32::from_le_bytes([slot[8], slot[9], slot[10], slot[11]]);
        self.next += 1;
        self.outstanding.push_back(Outstanding {
            ticket,
            number,
            before,
            slot,
        });
        Ok(number)
    }

    fn check_room(&mut self, slots: u64) -> Result<()> {
        if self.has_failed {
            return Err(LogError::Failed);
        }
        if self.outstanding.len() == OUTSTANDING_MAX {
            self.settle_oldest()?;
        }
        let free = self.free.total_bytes() / SLOT_SECTORS;
        let is_full = free < slots + self.outstanding.len() as u64;
        (!is_full).then_some(()).ok_or(LogError::Full)
    }

    fn submit(&mut self, slot: &[u8], begin_by: Option<Duration>) -> Result<Ticket, RangeError> {
        let request = Request::WriteRange {
            targets: &self.free,
            alignment: SLOT_SECTORS,
            data: slot,
        };
        match begin_by {
            None => self.device.submit(request),
            Some(begin_by) => self.device.submit_by(request, begin_by),
        }
    }
}

impl<D: RangeDevice> Log<D> {
    /// Makes all records durable, and returns the number of the next one: all before it are.
    pub(crate) fn flush(&mut self) -> Result<u64> {
        while !self.outstanding.is_empty() {
            self.settle_oldest()?;
        }
        if self.has_failed {
            return Err(LogError::Failed);
        }
        self.device.flush().inspect_err(|_| self.has_failed = true)?;
        Ok(self.next)
    }

    fn settle_oldest(&mut self) -> Result<()> {
        match self.outstanding.pop_front() {
            Some(record) => self.settle(&record),
            None => Ok(()),
        }
    }

    /// Waits until a record lies somewhere. Where the device names a bad place, it is written to another one.
    fn settle(&mut self, record: &Outstanding) -> Result<()> {
        let mut result = self.device.wait_for(record.ticket);
        for _ in 0..REWRITES_MAX {
            let Err(RangeError::Io { place: Some(bad), .. }) = &result else {
                break;
            };
            let slot = slots_of(bad);
            self.free.remove(slot.start, slot.end);
            self.bad.insert(slot.start, slot.end);
            let again = self.submit(&record.slot, None);
            result = again.and_then(|ticket| self.device.wait_for(ticket));
        }
        match result {
            Ok(Done::Written(place)) => {
                self.free.remove(place.start, place.end);
                self.places.insert(record.number, place.start);
                Ok(())
            }
            Ok(other) => unreachable!("a write gave {other:?}"),
            Err(error) => Err(self.not_written(record, error)),
        }
    }

    fn not_written(&mut self, record: &Outstanding, error: RangeError) -> LogError {
        match error {
            // Only of the newest record: it is as if it had never been appended.
            RangeError::Late { .. } | RangeError::Cancelled => {
                (self.next, self.newest) = (record.number, record.before);
            }
            _ => self.has_failed = true, // the records after it name one that is not there
        }
        error.into()
    }

    /// Sectors to be left out when the log is opened again.
    pub(crate) fn bad(&self) -> &RangeSet {
        &self.bad
    }
}

impl<D: RangeDevice> Log<D> {
    /// Writes a record that is of no use when it is not begun by then; the time is that of the device's clock. Waits
    /// for it, and not for those before it.
    pub(crate) fn append_by(&mut self, payload: &[u8], begin_by: Duration) -> Result<u64> {
        self.check_length(payload)?;
        self.check_room(1 + SLOTS_KEPT)?;
        let number = self.begin(payload, self.head, Some(begin_by))?;
        self.settle_newest()?;
        Ok(number)
    }

    fn settle_newest(&mut self) -> Result<()> {
        match self.outstanding.pop_back() {
            Some(record) => self.settle(&record),
            None => Ok(()),
        }
    }

    /// Takes the newest record back, if the device has not begun to write it. Others cannot be taken back: the record
    /// after each has its checksum.
    pub(crate) fn cancel(&mut self) -> Result<()> {
        let newest = self.outstanding.back().filter(|record| record.number + 1 == self.next);
        let newest = newest.ok_or(LogError::Written)?;
        self.device.cancel(newest.ticket)?;
        match self.settle_newest() {
            Err(LogError::Device(RangeError::Cancelled)) => Ok(()),
            other => other,
        }
    }
}

impl<D: RangeDevice> Log<D> {
    /// Says that records before this one are not needed, and makes that durable; then their slots are free.
    pub(crate) fn trim(&mut self, head: u64) -> Result<()> {
        let head = head.min(self.next);
        if head <= self.head {
            return Ok(());
        }
        self.check_room(1)?;
        self.begin(&[], head, None)?;
        self.flush()?;
        self.head = head;
        self.give_back(head);
        Ok(())
    }

    /// Lets others have the slots of the records before this one. `flush` was a barrier, too: so the device gives
    /// those places again.
    pub(crate) fn give_back(&mut self, head: u64) {
        let kept = self.places.split_off(&head);
        for at in std::mem::replace(&mut self.places, kept).into_values() {
            self.free.insert(at, at + SLOT_SECTORS);
        }
    }

    /// The payload of a record; empty of those by which the log was begun or trimmed.
    pub(crate) fn read(&mut self, number: u64) -> Result<Vec<u8>> {
        while self.outstanding.front().is_some_and(|record| record.number <= number) {
            self.settle_oldest()?;
        }
        let (head, next) = (self.head, self.next);
        let &at = self
            .places
            .get(&number)
            .ok_or(LogError::Unknown { number, head, next })?;
        let slot = self.device.read(at, SLOT_SECTORS)?;
        match decode(&slot) {
            Some((header, _, payload)) if header.number == number => Ok(payload.to_vec()),
            _ => Err(LogError::Damaged { number, at }),
        }
    }

    /// Numbers of the records in the log.
    pub(crate) fn numbers(&self) -> Range<u64> {
        self.head..self.next
    }

    /// The device, for its clock.
    pub(crate) fn device(&mut self) -> &mut D {
        self.device.device()
    }

    /// The device again. What was not flushed is then as after a crash of the program.
    pub(crate) fn into_device(self) -> D {
        self.device.into_parts().0
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = io::stdout().lock();
    match std::env::args_os().nth(1) {
        None => on_a_drive(&mut out),
        Some(file) => on_a_file(file.as_ref(), &mut io::stdin().lock(), &mut out),
    }
}

/// What freedom is worth, and what cancelling, deadlines and a crash look like.
pub(crate) fn on_a_drive(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let drive = Arc::new(Drive::named("hp-c2247a")?);
    let sectors = std::iter::once(0..8192).collect();
    let mut log = Log::open(ModelledDevice::new(&drive, Setup::default()), &sectors)?;
    let before = log.device().clock().time();
    for number in 0..100_u64 {
        log.append(&number.to_le_bytes())?;
        log.flush()?;
    }
    let took = (log.device().clock().time() - before) / 100;
    writeln!(out, "anywhere:  {took:.2?} for a record, each flushed")?;
    let mut fixed = Blocking::new(ModelledDevice::new(&drive, Setup::default()));
    for number in 0..100 {
        fixed.write(SLOT_SECTORS * number, &[1; 1024])?;
        fixed.flush()?;
    }
    let took = fixed.device().clock().time() / 100;
    writeln!(out, "in order:  {took:.2?} for a slot, each flushed")?;

    log.trim(95)?;
    let late = log.append_by(b"of no use later", Duration::ZERO);
    writeln!(out, "late:      {}", late.expect_err("that time has gone by"))?;
    let bytes = log.append(b"kept")?;
    log.append(b"taken back")?;
    writeln!(out, "cancelled: {:?}", log.cancel())?;
    log.flush()?;
    log.append(b"not flushed")?;

    let mut log = Log::open(log.into_device(), &sectors)?;
    writeln!(out, "opened:    {:?}, incarnation {}", log.numbers(), log.incarnation)?;
    writeln!(out, "{bytes}:       {:?}", String::from_utf8(log.read(bytes)?)?)?;
    Ok(())
}

/// Shows what the log in a file or block device holds, appends lines, and keeps the last ten.
pub(crate) fn on_a_file(path: &Path, lines: &mut impl BufRead, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let device = ThreadedDevice::open(path, 512, 8)?;
    let sectors = std::iter::once(0..device.shape().sectors).collect();
    let mut log = Log::open(device, &sectors)?;
    for number in log.numbers() {
        let payload = log.read(number)?;
        if !payload.is_empty() {
            writeln!(out, "{number}: {}", String::from_utf8_lossy(&payload))?;
        }
    }
    let appended = append_lines(&mut log, lines);
    let next = log.flush()?; // also of the lines before one that could not be appended
    writeln!(out, "records before {next} are durable; bad places: {:?}", log.bad())?;
    appended
}

/// A record for each line that is not empty.
fn append_lines(log: &mut Log<impl RangeDevice>, lines: &mut impl BufRead) -> Result<(), Box<dyn Error>> {
    for line in lines.lines() {
        let line = line?;
        if line.is_empty() {
            continue;
        }
        match log.append(line.as_bytes()) {
            Err(LogError::Full) => {
                log.trim(log.numbers().end.saturating_sub(10))?;
                log.append(line.as_bytes())?
            }
            other => other?,
        };
    }
    Ok(())
}
