//! What a power cut leaves: what was durable, and the devices that come of it with some of the other writes.

use std::fmt;
use std::ops::Range;

use super::super::{Blocking, MemoryDevice, RangeDevice, RangeError, Shape};
use super::{Event, Fate, Piece, Pieces, Write};

/// So many pieces or fewer are tried in all their subsets.
const ALL_PIECES_MAX: usize = 10;
/// So many writes or fewer are tried in all their subsets, each whole.
const ALL_WRITES_MAX: usize = 8;
/// Images in which writes survive whole, where there are more subsets than can be tried.
const SUBSETS: u64 = 1 << ALL_WRITES_MAX;
/// Images besides, in which writes survive in part.
const TORN_IMAGES: u64 = 64;

/// What is durable at a moment, and the writes that may or may not survive a power cut then.
#[derive(Clone, Debug)]
pub struct PowerCut {
    shape: Shape,
    piece_bytes: u32,
    durable: Pieces,
    pending: Vec<Vec<(u64, Piece)>>,
}

/// A device that a power cut could have left. Displayed, it says which of the pending writes survived in it.
#[derive(Clone, Debug)]
pub struct CutImage {
    shape: Shape,
    piece_bytes: u32,
    pieces: Pieces,
    survivors: String,
}

impl PowerCut {
    pub(super) fn new(shape: Shape, piece_bytes: u32, base: Pieces, history: &[Event]) -> Self {
        let mut cut = Self {
            shape,
            piece_bytes,
            durable: base,
            pending: Vec::new(),
        };
        let flushed = history.iter().filter_map(|event| match event {
            Event::Flushed(submitted) => Some(*submitted),
            _ => None,
        });
        let durable = flushed.max().unwrap_or(0);
        for (moment, event) in history.iter().enumerate() {
            if let Event::Write(write) = event {
                cut.add(write, moment < durable && write.fate == Fate::Written);
            }
        }
        cut.pending.retain(|write| !write.is_empty());
        cut
    }

    fn add(&mut self, write: &Write, is_durable: bool) {
        let Some(first) = write.first.filter(|_| write.fate != Fate::Dropped) else {
            return;
        };
        let pieces = (first..).zip(write.pieces.iter().cloned());
        if !is_durable {
            return self.pending.push(pieces.collect());
        }
        let place = first..first + write.pieces.len() as u64;
        for pending in &mut self.pending {
            pending.retain(|(number, _)| !place.contains(number)); // of a write that had failed there
        }
        self.durable.extend(pieces);
    }

    /// How many writes may survive or not. A test asserts that there were some: a cut that loses nothing proves
    /// nothing.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Devices that the cut could have left: of up to 10 pending pieces all subsets. Of more, of up to 8 pending writes
    /// all subsets and else 256 random ones (with all and none), and then 64 with torn writes. Equal seeds give equal
    /// images.
    pub fn images(&self, seed: u64) -> impl Iterator<Item = CutImage> + '_ {
        let pieces = self.pending.iter().map(Vec::len).sum::<usize>();
        let (writes, is_small) = (self.pending.len(), pieces <= ALL_PIECES_MAX);
        let (all, whole, torn) = match (is_small, writes <= ALL_WRITES_MAX) {
            (true, _) => (1 << pieces, 0, 0),
            (false, true) => (0, 1 << writes, TORN_IMAGES),
            (false, false) => (0, SUBSETS, TORN_IMAGES),
        };
        let all = (0..all).map(move |subset: u64| self.image(|_, _, piece| subset >> piece & 1 == 1));
        let whole = (0..whole).map(move |subset: u64| {
            self.image(|write, _, _| match subset {
                0 => false,
                _ if writes <= ALL_WRITES_MAX => subset >> write & 1 == 1,
                _ => subset == SUBSETS - 1 || mix(&[seed, subset, write]) & 1 == 1,
            })
        });
        let torn = (0..torn).map(move |image| {
            self.image(|write, part, _| {
                // Half of the writes survive whole, so that a torn one is seen among others.
                let is_whole = mix(&[seed, !image, write]) & 1 == 1;
                is_whole || mix(&[seed, !image, write, part]) & 1 == 1
            })
        });
        all.chain(whole).chain(torn)
    }

    /// The device on which those pieces survive that the function says: by write, piece of it, and piece of all.
    fn image(&self, survives: impl Fn(u64, u64, u64) -> bool) -> CutImage {
        let mut pieces = self.durable.clone();
        let mut survivors = String::new();
        let mut before = 0;
        for (write, pending) in (0..).zip(&self.pending) {
            let mut count = 0;
            for (part, (number, piece)) in (0..).zip(pending) {
                if survives(write, part, before + part) {
                    pieces.insert(*number, Piece::clone(piece));
                    count += 1;
                }
            }
            before += pending.len() as u64;
            survivors.push(match count {
                0 => '0',
                all if all == pending.len() => '1',
                _ => '~',
            });
        }
        CutImage {
            shape: self.shape,
            piece_bytes: self.piece_bytes,
            pieces,
            survivors,
        }
    }
}

impl CutImage {
    /// Bytes of sectors.
    ///
    /// # Panics
    /// Where they do not fit into memory.
    #[must_use]
    pub fn read(&self, place: Range<u64>) -> Vec<u8> {
        let bytes = self.shape.bytes(&place);
        let mut data = vec![0; usize::try_from(bytes.end - bytes.start).expect("sectors that fit into memory")];
        let (first, length) = (bytes.start / u64::from(self.piece_bytes), self.piece_bytes as usize);
        for (number, piece) in self.pieces.range(first..bytes.end / u64::from(self.piece_bytes)) {
            let at = (number - first) as usize * length;
            data[at..at + length].copy_from_slice(piece);
        }
        data
    }

    /// A device in memory that holds it.
    ///
    /// # Panics
    /// Like [`MemoryDevice::new`].
    #[must_use]
    pub fn to_memory(&self) -> MemoryDevice {
        let mut device = MemoryDevice::new(self.shape.sector_bytes, self.shape.sectors);
        self.write_to(&mut device).expect("a device in memory that is as large");
        device
    }

    /// Writes it onto a device that is all zeros, as large at least, and on which nothing is outstanding.
    ///
    /// # Errors
    /// Those of writing.
    pub fn write_to(&self, device: &mut impl RangeDevice) -> Result<(), RangeError> {
        let mut device = Blocking::new(device);
        let per_sector = u64::from(self.shape.sector_bytes / self.piece_bytes);
        let mut last = None;
        for sector in self.pieces.keys().map(|piece| piece / per_sector) {
            if last.replace(sector) != Some(sector) {
                device.write(sector, &self.read(sector..sector + 1))?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for CutImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let survivors = &self.survivors;
        write!(
            f,
            "power cut with {survivors} (pending writes in order; 1 survived, ~ in part)"
        )
    }
}

/// A pseudo-random number of some numbers (the finalizer of SplitMix64, chained).
fn mix(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |state, number| {
        let mut z = (state ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    })
}
