//! A write in atomic mode by windows ([`crate::sieve`]), where that is quicker than piece by piece.
//!
//! ```text
//!   pieces --speed of the file system--> windows --is it quicker, with the wait for others?--> lock the windows, write them
//!      `-- no: few pieces, a shared pointer, no second handle, not in order --> nothing: as ever
//! ```
//!
//! Reads are not done here: the library may read what lies between the pieces under a shared lock on these alone, and it does.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::time::Instant;

use elbow_lock::LockMode;
use elbow_ranges::Footprint;

use crate::abi::Handle;
use crate::error::MpiError;
use crate::files::{Atomic, OpenFile};
use crate::inspect;
use crate::layout::Layout;
use crate::native::{Native, call};
use crate::shadow::{Shadow, nanoseconds, probed};
use crate::sieve::Sieve;
use crate::transfer::{Direction, Positioning, Transfer};
use crate::view::AccessFootprint;

/// Fewer pieces are not worth a thought.
const PIECES_MIN: u64 = 8;
/// An access of so many pieces is worth a request or two to see whether they should be written one by one.
const GLANCE_PIECES: u64 = 128;
/// More data is not copied together.
const DATA_BYTES_MAX: u64 = 1 << 30;

impl Transfer {
    /// Does it by windows, locks included, if that is the thing to do; nothing if not.
    ///
    /// # Errors
    /// See [`MpiError`].
    pub(crate) fn sieved(
        &self,
        native: &Native,
        file: &OpenFile,
        atomic: &Atomic,
        cover: &AccessFootprint,
    ) -> Result<Option<()>, MpiError> {
        let Some((offset, after)) = self.moves(native, file, atomic)? else {
            return Ok(None);
        };
        if cover.piece_count() < PIECES_MIN || !atomic.view(native, file)?.is_ascending {
            return Ok(None);
        }
        let Some(shadow) = atomic.shadow(native) else {
            return Ok(None);
        };
        let Some(sieve) = decided(native, file, atomic, shadow, cover)? else {
            return Ok(None);
        };
        let Some(data) = self.data(native, file)? else {
            return Ok(None);
        };
        let windows = Footprint::from_list(
            sieve
                .windows
                .iter()
                .map(|window| (window.start, window.end - window.start)),
        )?;
        let hold = atomic.lock_for(windows, LockMode::Exclusive, true)?;
        let begin = Instant::now();
        let written = shadow.write(native, &hold, &sieve.windows, cover, data.bytes());
        let took_ns = nanoseconds(begin);
        hold.finish()?;
        written.map_err(|trouble| trouble.handled_on(native, file.handle))?;
        atomic.learn_taken(&sieve, took_ns);
        if self.place == Positioning::Own && after != offset {
            MpiError::of_native(
                call!(native, "PMPI_File_seek", file.handle => usize, after => i64, native.abi.seek_set => c_int),
            )?;
        }
        self.tell(native, data.bytes().len() as u64);
        Ok(Some(()))
    }

    /// Where it begins and ends, in etypes, if it is a write of whole ones at a place that a process may move on.
    fn moves(&self, native: &Native, file: &OpenFile, atomic: &Atomic) -> Result<Option<(i64, i64)>, MpiError> {
        if self.direction != Direction::Write || self.place == Positioning::Shared {
            return Ok(None);
        }
        let (bytes, etype_bytes) = (self.bytes(native)?, atomic.view(native, file)?.etype_bytes.max(1));
        if bytes % etype_bytes != 0 || bytes > DATA_BYTES_MAX {
            return Ok(None);
        }
        let offset = self.offset(native, file)?;
        Ok(offset
            .checked_add_unsigned(bytes / etype_bytes)
            .map(|after| (offset, after)))
    }

    /// What is to be written, in a row.
    fn data(&self, native: &Native, file: &OpenFile) -> Result<Option<Data>, MpiError> {
        let bytes = self.bytes(native)? as usize;
        if self.is_in_a_row(native) {
            return Ok(Some(Data::Program(self.buffer as *const u8, bytes)));
        }
        let Ok(count) = c_int::try_from(self.count) else {
            return Ok(None);
        };
        let Some(own_communicator) = file.own_communicator.get() else {
            return Ok(None);
        };
        let mut packed = vec![0_u8; bytes];
        let mut position: c_int = 0;
        let code = call!(native, "PMPI_Pack", self.buffer as *const c_void => *const c_void, count => c_int, self.datatype => Handle,
            packed.as_mut_ptr().cast() => *mut c_void, bytes as c_int => c_int, &raw mut position => *mut c_int, *own_communicator => Handle);
        MpiError::of_native(code)?;
        // A library that adds anything of its own to the data would have said more, or had no room.
        Ok((position as usize == bytes).then_some(Data::Packed(packed)))
    }

    fn is_in_a_row(&self, native: &Native) -> bool {
        let (Ok(layout), Ok(extent)) = (
            inspect::layout_of(native, self.datatype),
            inspect::extent_of(native, self.datatype),
        ) else {
            return false;
        };
        let count = u64::try_from(self.count).unwrap_or(0);
        matches!(Layout::repeat(count, extent, layout), Ok(Layout::Run(_)))
    }

    /// Fills in the status.
    fn tell(&self, native: &Native, bytes: u64) {
        if self.status as usize == native.abi.status_ignore {
            return;
        }
        if native.has("PMPI_Status_set_elements_c") {
            call!(native, "PMPI_Status_set_elements_c", self.status => *mut c_void, native.byte => Handle, bytes as i64 => i64);
        } else {
            call!(native, "PMPI_Status_set_elements_x", self.status => *mut c_void, native.byte => Handle, bytes as i64 => i64);
        }
        call!(native, "PMPI_Status_set_cancelled", self.status => *mut c_void, 0 => c_int);
    }
}

/// The windows, if the access is to be done by them, as far as is known; a first request is made where nothing is.
fn decided(
    native: &Native,
    file: &OpenFile,
    atomic: &Atomic,
    shadow: &Shadow,
    cover: &AccessFootprint,
) -> Result<Option<Sieve>, MpiError> {
    let Some(piece) = cover.pieces().next() else {
        return Ok(None);
    };
    if shadow.speed().is_none() {
        measure(native, atomic, shadow, &piece)?;
    }
    let planned = || shadow.speed().and_then(|speed| Sieve::of(cover.pieces(), speed));
    let Some(sieve) = planned() else { return Ok(None) };
    if atomic.decide(&sieve, file.group.size) {
        return Ok(Some(sieve));
    }
    if cover.piece_count() < GLANCE_PIECES {
        return Ok(None);
    }
    let knew = shadow.speed();
    // Nobody has asked for what is read there: that it cannot be is no reason not to write.
    if shadow.has_become_slow(native, &piece).unwrap_or(false) {
        measure(native, atomic, shadow, &piece)?;
    }
    if shadow.speed() == knew {
        return Ok(None);
    }
    Ok(planned().filter(|sieve| atomic.decide(sieve, file.group.size)))
}

/// Reads a piece and writes it back, under a lock, to see how long that takes.
fn measure(native: &Native, atomic: &Atomic, shadow: &Shadow, piece: &Range<u64>) -> Result<(), MpiError> {
    let hold = atomic.lock(Footprint::extent(probed(piece))?, LockMode::Exclusive)?;
    let probed = shadow.probe(native, &hold, piece);
    hold.finish()?;
    probed
}

/// Data in a row.
pub(crate) enum Data {
    /// The program's own; it may not touch it before the call returns.
    Program(*const u8, usize),
    Packed(Vec<u8>),
}

impl Data {
    fn bytes(&self) -> &[u8] {
        match self {
            // SAFETY: the program says that so many bytes are there, and waits.
            #[allow(unsafe_code)]
            Data::Program(begin, bytes) => unsafe { std::slice::from_raw_parts(*begin, *bytes) },
            Data::Packed(bytes) => bytes,
        }
    }
}
