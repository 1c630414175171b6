//! The manifest of a sort in place: what is durable where, written before anything is freed.
//!
//! ```text
//!   slot 0 | slot 1       each: sealed(sequence, file, format, run length, mark, state), the rest of the slot unused
//! ```
//!
//! A state is written to one slot and synced, then to the other and synced. So one of them is whole whatever happens, and
//! when anything is freed because of a state, both hold it: losing one of them later loses nothing. The valid one
//! with the greater sequence number counts. Both are allocated at the beginning: a full disk cannot stop an update.
//!
//! Version 1 had no mark, and did not know when the file was made. It is refused: whether its file was written anew since cannot be known.

use std::ffi::OsStr;
use std::io::IoSlice;
use std::path::{Path, PathBuf};

use elbow_file::{Access, FileType, Handle, Storage, Time};
use elbow_ranges::encoding::{DecodeError, ENVELOPE_BYTES, Reader, Writer, open_sealed, seal};

use super::RecordFormat;
use super::error::{Result, SortError, failed};
use super::memory::{FAN_IN_MAX, Memory};
use super::state::{Mark, SortState, decode_time, encode_time};

const MAGIC: [u8; 8] = *b"ELBSORT\0";
const VERSION: u16 = 2;
const PAGE_BYTES: u64 = 4096;
/// A number of a run or a slice takes at most this many bytes in the encoding.
const NUMBER_BYTES_MAX: u64 = 10;
/// Numbers of a lane beside those of its slices.
const LANE_NUMBERS: u64 = 4;
const MODE: u32 = 0o600;
pub(super) const NAME: &str = "manifest";
/// Where it is prepared, until it is whole.
pub(super) const DRAFT: &str = "manifest.new";

/// What does not change during a sort.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) inode: u64,
    /// When it was made, where that is known: another file may get its inode number.
    pub(super) born: Option<Time>,
    pub(super) size: u64,
    /// Checksum of its first sector, or of all of it.
    pub(super) head: u32,
    pub(super) format: RecordFormat,
    pub(super) stable: bool,
    pub(super) run_bytes: usize,
}

/// An open manifest.
pub(super) struct Manifest<'a> {
    storage: &'a dyn Storage,
    file: Handle,
    path: PathBuf,
    slot_bytes: u64,
    sequence: u64,
    pub(super) order: Order,
    /// Noted with each state.
    pub(super) mark: Mark,
}

impl<'a> Manifest<'a> {
    /// Makes a durable manifest of a sort that begins.
    pub(super) fn create(
        storage: &'a dyn Storage,
        dir: &Handle,
        dir_path: &Path,
        order: Order,
        memory: &Memory,
    ) -> Result<Self> {
        let path = dir_path.join(NAME);
        let (name, draft) = (OsStr::new(NAME), OsStr::new(DRAFT));
        let file = storage.create(dir, draft, MODE).map_err(failed("creating", &path))?;
        let runs = order.size.div_ceil(order.run_bytes as u64) + 1;
        let slices = memory.lanes_max() as u64 * (LANE_NUMBERS + 3 * runs.min(FAN_IN_MAX as u64));
        let slot_bytes = (PAGE_BYTES + NUMBER_BYTES_MAX * (runs + slices)).next_multiple_of(PAGE_BYTES);
        let nothing = vec![0; slot_bytes as usize];
        let both = [IoSlice::new(&nothing), IoSlice::new(&nothing)];
        storage.write(&file, &both, 0).map_err(failed("allocating", &path))?;
        let mut manifest = Self {
            storage,
            file,
            path,
            slot_bytes,
            sequence: 0,
            order,
            mark: Mark::default(),
        };
        manifest.write(&SortState::Forming { formed: 0 })?;
        let path = &manifest.path;
        let mode = elbow_file::RenameMode::NoReplace;
        storage
            .rename(dir, draft, dir, name, mode)
            .map_err(failed("naming", path))?;
        storage.sync(dir).map_err(failed("syncing", dir_path))?;
        Ok(manifest)
    }

    /// Reads the manifest of a sort that was begun; `None`: there is none. It is opened for reading alone by who only looks.
    pub(super) fn open(
        storage: &'a dyn Storage,
        dir: &Handle,
        dir_path: &Path,
        access: Access,
    ) -> Result<Option<(Self, SortState)>> {
        let (path, name) = (dir_path.join(NAME), OsStr::new(NAME));
        match storage.stat(dir, name) {
            Err(elbow_file::Errno::NOENT) => return Ok(None),
            Ok(found) if found.kind != FileType::File => {
                let text = format!("{}: is no regular file, and so no manifest", path.display());
                return Err(SortError::Refused(text));
            }
            // Why it cannot be looked at is why it cannot be opened.
            _ => {}
        }
        let file = match storage.open(dir, name, access) {
            Err(elbow_file::Errno::NOENT) => return Ok(None),
            other => other.map_err(failed("opening", &path))?,
        };
        let size = storage.stat_handle(&file).map_err(failed("looking at", &path))?.size;
        let slot_bytes = size / 2;
        let slots = [0, 1].map(|slot| read_slot(storage, &file, slot * slot_bytes, slot_bytes as usize, &path));
        let [first, second] = slots;
        let (sequence, order, mark, state) = match (first?, second?) {
            (Ok(a), Ok(b)) => {
                if a.0 > b.0 {
                    a
                } else {
                    b
                }
            }
            (Ok(one), Err(_)) | (Err(_), Ok(one)) => one,
            (Err(DecodeError::UnknownVersion { found, .. }), Err(_)) => {
                return Err(SortError::OtherVersion { path, found });
            }
            (Err(reason), Err(_)) => return Err(SortError::BadManifest { path, reason }),
        };
        let manifest = Self {
            storage,
            file,
            path,
            slot_bytes,
            sequence,
            order,
            mark,
        };
        Ok(Some((manifest, state)))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a state durable. What it says to be in files has to be durable already.
    pub(super) fn write(&mut self, state: &SortState) -> Result<()> {
        let sequence = self.sequence + 1;
        let sealed = seal(MAGIC, VERSION, &encode(sequence, &self.order, &self.mark, state));
        if sealed.len() as u64 > self.slot_bytes {
            let text = "the manifest has no room for so many lanes; resume with fewer threads";
            return Err(SortError::Refused(text.into()));
        }
        for at in [0, self.slot_bytes] {
            let write = self.storage.write(&self.file, &[IoSlice::new(&sealed)], at);
            write
                .and_then(|()| self.storage.sync(&self.file))
                .map_err(failed("writing", &self.path))?;
        }
        self.sequence = sequence;
        Ok(())
    }
}

/// That of a sort of 10^15 bytes in the least memory is shorter.
const BODY_BYTES_MAX: u64 = 1 << 30;

type Slot = (u64, Order, Mark, SortState);

/// Reads one slot; the inner result says whether it is whole.
fn read_slot(
    storage: &dyn Storage,
    file: &Handle,
    at: u64,
    bytes: usize,
    path: &Path,
) -> Result<std::result::Result<Slot, DecodeError>> {
    /// Magic and version; the length of the body comes next.
    const LENGTH_AT: usize = 8 + 2;
    const HEADER_BYTES: usize = LENGTH_AT + 8;
    let mut header = [0; HEADER_BYTES];
    let read = |buffer: &mut [u8]| storage.read(file, buffer, at).map_err(failed("reading", path));
    let got = read(&mut header)?;
    let length = u64::from_le_bytes(header[LENGTH_AT..].try_into().expect("eight bytes"));
    let whole = usize::try_from(length).map_or(usize::MAX, |body| body.saturating_add(ENVELOPE_BYTES));
    // No memory is taken for what is no manifest, however long it is.
    let is_one = got == HEADER_BYTES && header.starts_with(&MAGIC) && length <= BODY_BYTES_MAX;
    if !is_one || whole > bytes {
        return Ok(decode(&header[..got]));
    }
    let mut slot = vec![0; whole];
    let got = read(&mut slot)?;
    slot.truncate(got);
    Ok(decode(&slot))
}

fn encode(sequence: u64, order: &Order, mark: &Mark, state: &SortState) -> Vec<u8> {
    let mut to = Writer::new();
    to.varint(sequence);
    to.varint(order.inode);
    to.bool(order.born.is_some());
    encode_time(order.born.unwrap_or_default(), &mut to);
    to.varint(order.size);
    to.varint(order.head.into());
    to.varint(order.format.bytes() as u64);
    to.varint(order.format.keys().len() as u64);
    for key in order.format.keys() {
        to.bytes(key.to_string().as_bytes());
    }
    to.bool(order.stable);
    to.varint(order.run_bytes as u64);
    mark.encode(&mut to);
    state.encode(&mut to);
    to.finish()
}

fn decode(slot: &[u8]) -> std::result::Result<Slot, DecodeError> {
    let (_, body) = open_sealed(MAGIC, VERSION..=VERSION, slot)?;
    let mut from = Reader::new(body);
    let (sequence, inode, is_known) = (from.varint()?, from.varint()?, from.bool()?);
    let born = is_known.then_some(decode_time(&mut from)?);
    let size = from.varint()?;
    let at = from.offset();
    let bad = |what| DecodeError::BadValue { at, what };
    let head = u32::try_from(from.varint()?).map_err(|_| bad("an impossible checksum"))?;
    let bytes = usize::try_from(from.varint()?).map_err(|_| bad("an impossible record size"))?;
    let mut keys = Vec::new();
    for _ in 0..from.count(1)? {
        let text = std::str::from_utf8(from.bytes()?).map_err(|_| bad("a key that is no text"))?;
        keys.push(text.parse().map_err(|_| bad("an impossible key"))?);
    }
    let order = Order {
        inode,
        born,
        size,
        head,
        format: RecordFormat::new(bytes, keys).map_err(|_| bad("an impossible record format"))?,
        stable: from.bool()?,
        run_bytes: usize::try_from(from.varint()?).map_err(|_| bad("an impossible run length"))?,
    };
    if order.run_bytes == 0 || !order.run_bytes.is_multiple_of(bytes) || !size.is_multiple_of(bytes as u64) {
        return Err(bad("runs of parts of records"));
    }
    let mark = Mark::decode(&mut from)?;
    let state = SortState::decode(&mut from)?;
    from.finish()?;
    Ok((sequence, order, mark, state))
}
