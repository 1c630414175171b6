//! A device that knows what a power cut would leave of it, at any moment.
//!
//! ```text
//!   requests   write write FLUSH write write write
//!                                           ^ cut_at(here): the first two are durable, the other two may survive or not, or in part
//! ```
//!
//! The device behind it carries everything out and chooses places as ever; nothing is cut in truth. Kept are what was
//! written and when: each write and flush that is submitted is a *moment*, and each that completes.
//! [`VolatileDevice::cut_at`] makes of that what was durable at a moment, and the writes that were not;
//! [`PowerCut::images`] the devices that could be found afterwards.
//!
//! What a cut may leave: of the writes that were submitted and are not durable any subset, each whole or in any of its
//! pieces, whatever barriers lie between them: a barrier orders what others see, not what is durable. A piece, a sector
//! or 512 bytes of a larger one, is there or not. Durable is what was submitted before a flush that has completed, if
//! it did not fail itself: of a write that failed any pieces may be there, for ever. Of a range write that was under
//! way only what its completion told later can be known, so images are made when the completions have been taken; one
//! that was cancelled, late, or found no place is in none.
//!
//! The history has no bound: this is for tests. The like for files and names is [`Volatile`](crate::double::Volatile).

mod cut;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

pub use self::cut::{CutImage, PowerCut};

use super::{Completion, Done, RangeDevice, RangeError, Request, Shape, Ticket, leave_to_device};

/// What a disk writes whole or not at all, in bytes, however large the sectors of a device are.
const PIECE_BYTES: u32 = 512;
/// Sectors read at a time of a device that holds something already.
const READ_SECTORS: u64 = 1024;

/// Bytes that are written whole or not at all.
type Piece = Arc<[u8]>;
/// By their number on the device; those that are not here are zeros.
type Pieces = BTreeMap<u64, Piece>;

/// A device that remembers what is not durable yet.
///
/// ```
/// use elbow_file::range_device::{Blocking, MemoryDevice, VolatileDevice};
///
/// let mut device = Blocking::new(VolatileDevice::new(MemoryDevice::new(512, 8)));
/// device.write(0, &[1; 512])?;
/// device.flush()?;
/// device.write(0, &[2; 512])?;
/// device.write(1, &[3; 512])?;
///
/// // Of two writes that may survive or not come four images.
/// let now = device.device().now();
/// let cut = device.device().cut_at(now);
/// let mut found: Vec<_> = cut.images(1).map(|image| [image.read(0..1)[0], image.read(1..2)[0]]).collect();
/// found.sort();
/// assert_eq!(found, [[1, 0], [1, 3], [2, 0], [2, 3]]);
/// # Ok::<(), elbow_file::range_device::RangeError>(())
/// ```
#[derive(Debug)]
pub struct VolatileDevice<D> {
    device: D,
    piece_bytes: u32,
    /// What was there in the beginning.
    base: Pieces,
    history: Vec<Event>,
    /// Writes and flushes that have not completed, by their moment.
    outstanding: BTreeMap<Ticket, usize>,
}

#[derive(Clone, Debug)]
enum Event {
    Write(Write),
    /// A flush was submitted; it makes durable what was before, when it completes.
    Flush,
    /// A flush that was submitted at that moment has completed.
    Flushed(usize),
    /// A write has completed; only a moment.
    Completed,
}

#[derive(Clone, Debug)]
struct Write {
    pieces: Vec<Piece>,
    /// The number of the first piece, when the place is known.
    first: Option<u64>,
    fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Written,
    Failed,
    /// It never reached the medium.
    Dropped,
}

impl<D: RangeDevice> VolatileDevice<D> {
    /// Puts the double in front of a device that is all zeros.
    pub fn new(device: D) -> Self {
        let sector_bytes = device.shape().sector_bytes;
        Self {
            piece_bytes: match sector_bytes.is_multiple_of(PIECE_BYTES) {
                true => PIECE_BYTES,
                false => sector_bytes,
            },
            device,
            base: Pieces::new(),
            history: Vec::new(),
            outstanding: BTreeMap::new(),
        }
    }

    /// Puts it in front of a device on which nothing is outstanding, and reads what that holds; all of it counts as
    /// durable.
    ///
    /// # Errors
    /// Those of reading.
    pub fn holding(device: D) -> Result<Self, RangeError> {
        let mut this = Self::new(device);
        let sectors = this.shape().sectors;
        for at in (0..sectors).step_by(READ_SECTORS as usize) {
            let sectors = READ_SECTORS.min(sectors - at);
            this.device.submit(Request::Read { at, sectors })?;
            let data = match this.device.wait().map(|completion| completion.result) {
                Some(Ok(Done::Read(data))) => data,
                Some(Err(error)) => return Err(error),
                other => panic!("a read gave {other:?}"),
            };
            let pieces = (this.first_piece(at)..).zip(this.pieces(&data));
            this.base
                .extend(pieces.filter(|(_, piece)| piece.iter().any(|&byte| byte != 0)));
        }
        Ok(this)
    }

    /// The device behind it.
    pub fn device(&mut self) -> &mut D {
        &mut self.device
    }

    /// The moment now: the number of writes and flushes that were submitted so far, and of those that have completed.
    #[must_use]
    pub fn now(&self) -> usize {
        self.history.len()
    }

    /// What a power cut at a moment would find.
    ///
    /// # Panics
    /// When that moment has not come.
    #[must_use]
    pub fn cut_at(&self, moment: usize) -> PowerCut {
        PowerCut::new(
            self.shape(),
            self.piece_bytes,
            self.base.clone(),
            &self.history[..moment],
        )
    }

    /// A cut at each moment, from the beginning to now.
    pub fn cuts(&self) -> impl Iterator<Item = PowerCut> + '_ {
        (0..=self.now()).map(|moment| self.cut_at(moment))
    }

    fn first_piece(&self, sector: u64) -> u64 {
        sector * u64::from(self.shape().sector_bytes / self.piece_bytes)
    }

    fn pieces(&self, data: &[u8]) -> Vec<Piece> {
        data.chunks(self.piece_bytes as usize).map(Arc::from).collect()
    }

    fn submitted(&mut self, request: &Request<'_>, ticket: Ticket) {
        let (data, at) = match *request {
            Request::Read { .. } | Request::Barrier => return,
            Request::Write { at, data } => (data, Some(at)),
            Request::WriteRange { data, .. } => (data, None),
            Request::Flush => {
                self.outstanding.insert(ticket, self.now());
                return self.history.push(Event::Flush);
            }
        };
        let write = Write {
            pieces: self.pieces(data),
            first: at.map(|at| self.first_piece(at)),
            fate: Fate::Written,
        };
        self.outstanding.insert(ticket, self.now());
        self.history.push(Event::Write(write));
    }

    fn completed(&mut self, completion: Option<Completion>) -> Option<Completion> {
        let completion = completion?;
        let Some(moment) = self.outstanding.remove(&completion.ticket) else {
            return Some(completion);
        };
        let event = match &completion.result {
            Ok(Done::Passed) => Event::Flushed(moment),
            result => {
                self.learn(moment, result);
                Event::Completed
            }
        };
        self.history.push(event);
        Some(completion)
    }

    /// What became of a write.
    fn learn(&mut self, moment: usize, result: &Result<Done, RangeError>) {
        let place = match result {
            Ok(Done::Written(place)) => Some(place.start),
            _ => None,
        };
        let first = place.map(|place| self.first_piece(place));
        let failed_before = match result {
            // The end of the place is known, and so is its start.
            Err(RangeError::Io {
                place: Some(Range { end, .. }),
                ..
            }) => Some(self.first_piece(*end)),
            _ => None,
        };
        let Event::Write(write) = &mut self.history[moment] else {
            return; // a flush that failed
        };
        write.fate = match result {
            Ok(_) => Fate::Written,
            Err(RangeError::Io { .. }) => Fate::Failed,
            Err(_) => Fate::Dropped,
        };
        let before_end = failed_before.and_then(|end| end.checked_sub(write.pieces.len() as u64));
        write.first = write.first.or(first).or(before_end);
    }
}

impl<D: RangeDevice> RangeDevice for VolatileDevice<D> {
    fn shape(&self) -> Shape {
        self.device.shape()
    }

    fn submit(&mut self, request: Request<'_>) -> Result<Ticket, RangeError> {
        let ticket = self.device.submit(request)?;
        self.submitted(&request, ticket);
        Ok(ticket)
    }

    fn poll(&mut self) -> Option<Completion> {
        let completion = self.device.poll();
        self.completed(completion)
    }

    fn wait(&mut self) -> Option<Completion> {
        let completion = self.device.wait();
        self.completed(completion)
    }

    fn submit_by(&mut self, request: Request<'_>, begin_by: Duration) -> Result<Ticket, RangeError> {
        let ticket = self.device.submit_by(request, begin_by)?;
        self.submitted(&request, ticket);
        Ok(ticket)
    }

    leave_to_device!(device);
}
