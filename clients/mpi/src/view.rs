//! A file's view: which bytes of the file an access of so many bytes at such an offset covers.
//!
//! ```text
//!   disp          disp+extent       disp+2*extent
//!   |##..##..     |##..##..         |##..##..        the file type, again and again
//!      ^ from = offset * etype size     ^ to = from + bytes    counted in bytes of data, holes left out
//! ```
//!
//! Source: MPI 4.0, section 14.3.

use std::ffi::{CStr, c_char};
use std::ops::Range;

use elbow_ranges::encoding::{DecodeError, Reader, Writer};
use elbow_ranges::{Dim, Footprint, PatternError, Strided};

use crate::error::MpiError;
use crate::inspect;
use crate::layout::Layout;
use crate::native::{Native, call};

/// `MPI_MAX_DATAREP_STRING` of all libraries.
const REPRESENTATION_BYTES: usize = 128;

/// Etypes of a view that the library is asked about, besides those at the ends.
const PROBES: u64 = 16;

/// The view of one process.
#[derive(Clone, Debug)]
pub(crate) struct View {
    displacement: i64,
    pub(crate) etype_bytes: u64,
    extent: i64,
    layout: Layout,
    /// Data lies in the file in its own order.
    pub(crate) is_ascending: bool,
}

impl View {
    /// The view that the file has now.
    ///
    /// # Errors
    /// When it is one that cannot be locked exactly.
    pub(crate) fn of(native: &Native, file: usize) -> Result<Self, MpiError> {
        let mut displacement = 0_i64;
        let (mut etype, mut filetype) = (0_usize, 0_usize);
        let mut representation = [0 as c_char; REPRESENTATION_BYTES];
        let code = call!(native, "PMPI_File_get_view", file => usize, &raw mut displacement => *mut i64,
            &raw mut etype => *mut usize, &raw mut filetype => *mut usize, representation.as_mut_ptr() => *mut c_char);
        MpiError::of_native(code)?;
        // SAFETY: the library has put a handle in each, and a C string in the last.
        #[allow(unsafe_code)]
        let (etype, filetype, representation) = unsafe {
            (
                native.abi.load((&raw const etype).cast()),
                native.abi.load((&raw const filetype).cast()),
                CStr::from_ptr(representation.as_ptr()),
            )
        };
        let view = native_representation(representation).and_then(|()| {
            let (etype_bytes, extent) = (inspect::size_of(native, etype)?, inspect::extent_of(native, filetype)?);
            let layout = inspect::layout_of(native, filetype)?;
            let is_ascending = layout
                .ascending()
                .is_some_and(|range| range.end - range.start <= extent);
            Ok(Self {
                displacement,
                etype_bytes,
                extent,
                layout,
                is_ascending,
            })
        });
        let view = view.and_then(|view| view.is_agreed(native, file).map(|()| view));
        inspect::free(native, etype);
        inspect::free(native, filetype);
        view
    }

    /// Asks the library where some etypes lie: the first and last ones of the first two copies of the file type, and some
    /// between. There are libraries that place those of some types elsewhere than the standard says.
    fn is_agreed(&self, native: &Native, file: usize) -> Result<(), MpiError> {
        let etypes = self.layout.bytes() / self.etype_bytes.max(1);
        let between = (1..PROBES).map(|probe| etypes / PROBES * probe + etypes % PROBES * probe / PROBES);
        let probes = [0, 1, etypes.saturating_sub(1), etypes, 2 * etypes - etypes.min(1)]
            .into_iter()
            .chain(between);
        for etype in probes {
            let Ok(offset) = i64::try_from(etype) else { continue };
            let mut theirs = -1_i64;
            MpiError::of_native(
                call!(native, "PMPI_File_get_byte_offset", file => usize, offset => i64, &raw mut theirs => *mut i64),
            )?;
            let ours = self.cover(offset, 1)?.begin();
            if ours != u64::try_from(theirs).ok() {
                return Err(MpiError::Datatype(format!(
                    "the {} library of this process places etype {etype} at byte {theirs}, where the standard says {ours:?}",
                    native.abi.name
                )));
            }
        }
        Ok(())
    }

    /// What `bytes` of data from `offset` (in etypes) on cover.
    ///
    /// # Errors
    /// When some of it lies outside of any file.
    pub(crate) fn cover(&self, offset: i64, bytes: u64) -> Result<AccessFootprint, MpiError> {
        let outside = || MpiError::Datatype("the access ends beyond 2^63".into());
        let from = u64::try_from(offset)
            .ok()
            .and_then(|offset| offset.checked_mul(self.etype_bytes))
            .ok_or_else(outside)?;
        let to = from.checked_add(bytes).ok_or_else(outside)?;
        let tile_bytes = self.layout.bytes();
        if tile_bytes == 0 {
            return Err(MpiError::Datatype("it holds no data".into()));
        }
        let tiles = Layout::repeat(to.div_ceil(tile_bytes), self.extent, self.layout.clone())?;
        let mut patterns = Vec::new();
        tiles.cover(self.displacement, from, to, &mut patterns)?;
        Ok(AccessFootprint(patterns))
    }
}

/// The patterns that an access covers; none if it moves no data.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AccessFootprint(Vec<Strided>);

impl AccessFootprint {
    pub(crate) fn nothing() -> Self {
        Self(Vec::new())
    }

    /// All of several.
    pub(crate) fn union(covers: impl IntoIterator<Item = AccessFootprint>) -> Self {
        Self(covers.into_iter().flat_map(|cover| cover.0).collect())
    }

    /// The first byte.
    fn begin(&self) -> Option<u64> {
        self.0.iter().map(|pattern| pattern.bounds().start).min()
    }

    /// Patterns in it.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Its pieces, one pattern after another.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Range<u64>> {
        self.0.iter().flat_map(Strided::pieces)
    }

    /// How many, at most.
    pub(crate) fn piece_count(&self) -> u64 {
        self.0.iter().map(Strided::segments).fold(0, u64::saturating_add)
    }

    /// Bytes in it, at most.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().map(Strided::total_bytes).fold(0, u64::saturating_add)
    }

    /// What to lock; nothing for no data.
    pub(crate) fn footprint(&self) -> Option<Footprint> {
        Footprint::from_patterns(self.0.iter().cloned()).ok()
    }

    pub(crate) fn encode(&self, writer: &mut Writer) {
        writer.varint(self.0.len() as u64);
        for pattern in &self.0 {
            writer.varint(pattern.bounds().start);
            writer.varint(pattern.piece_bytes());
            writer.varint(pattern.dims().len() as u64);
            for dim in pattern.dims() {
                writer.varint(dim.count);
                writer.varint(dim.stride);
            }
        }
    }

    /// # Errors
    /// Says what is wrong with the bytes.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, String> {
        let garbled = |error: DecodeError| error.to_string();
        let mut cover = Vec::new();
        for _ in 0..reader.count(3).map_err(garbled)? {
            cover.push(
                decode_pattern(reader)
                    .map_err(garbled)?
                    .map_err(|error| error.to_string())?,
            );
        }
        Ok(Self(cover))
    }
}

fn decode_pattern(reader: &mut Reader<'_>) -> Result<Result<Strided, PatternError>, DecodeError> {
    let (start, length) = (reader.varint()?, reader.varint()?);
    let mut dims = Vec::new();
    for _ in 0..reader.count(2)? {
        dims.push(Dim {
            count: reader.varint()?,
            stride: reader.varint()?,
        });
    }
    Ok(Strided::new(start, &dims, length))
}

/// Other representations have other sizes in the file than in memory.
fn native_representation(name: &CStr) -> Result<(), MpiError> {
    match name.to_bytes() {
        b"native" | b"internal" => Ok(()),
        other => Err(MpiError::Unsupported(format!(
            "data representation {} (only native and internal are)",
            other.escape_ascii()
        ))),
    }
}
