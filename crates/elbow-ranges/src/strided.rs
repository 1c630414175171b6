//! Regular patterns of ranges: vectors of vectors, as MPI's derived datatypes build them.
//!
//! ```text
//!   Strided::new(10, &[Dim { count: 2, stride: 20 }, Dim { count: 3, stride: 4 }], 2)
//!
//!   10  14  18          30  34  38
//!   ##..##..##..........##..##..##        two times, 20 apart: three times, 4 apart: 2 bytes
//! ```
//!
//! A pattern is the set of points `start + i1*stride1 + i2*stride2 + ... + [0, len)` with `0 <= ik < countk`. It is never
//! expanded: what is asked of it is answered from these few numbers.
//!
//! Invariants (the canonical form, which [`Strided::new`] makes of any form):
//! - not empty, and `end <= u64::MAX`;
//! - strides fall from the outermost vector to the innermost, and all are larger than `len` (a vector whose pieces touch or
//!   overlap is one longer piece);
//! - every count is 2 or more, and no two vectors are one (`stride1 = k*stride2` with `k <= count2` is one vector);
//! - at most [`Strided::DEPTH_MAX`] vectors, interleaved at most [`Strided::TANGLE_MAX`]-fold.
//!
//! Vectors may interleave (a comb between the teeth of another): then the pieces of one step begin before those of the step
//! before have ended, and pieces may even overlap. Every answer is still exact, except the counts, which say so.
//!
//! Not here: irregular lists ([`Footprint`](crate::Footprint)), finding patterns in them ([`compress`](crate::compress())).
//!
//! Source: MPI 4.1, section 5.1 (derived datatypes); Ching et al., *Noncontiguous locking techniques for parallel file
//! systems*, SC'07 (locks on datatypes).

mod canonical;
mod overlap;
mod residue;
mod walk;

use std::fmt;
use std::ops::Range;

use canonical::canonical;
use smallvec::SmallVec;

pub use walk::Pieces;

use crate::{PatternError, Ranges};

/// Vectors held without an allocation; the patterns of 3-D arrays have two or three.
const INLINE_LEVELS: usize = 3;

type Levels = SmallVec<[Level; INLINE_LEVELS]>;

/// A vector: `count` times the same, `stride` bytes apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dim {
    /// How often; 1 or more.
    pub count: u64,
    /// Bytes from one start to the next.
    pub stride: u64,
}

/// A vector of the canonical form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Level {
    count: u64,
    stride: u64,
    /// Bytes from the start to the end of what one step holds.
    inner: u64,
}

impl Level {
    /// Bytes from the start of the first step to the end of the last.
    fn extent(&self) -> u64 {
        (self.count - 1) * self.stride + self.inner
    }

    /// Whether a step ends before the next begins.
    fn is_nested(&self) -> bool {
        self.inner <= self.stride
    }

    /// How many steps can hold the same point.
    fn tangle(&self) -> u64 {
        self.inner.div_ceil(self.stride).min(self.count)
    }
}

/// A regular pattern of half-open byte ranges.
///
/// Equal values are equal sets; where vectors interleave, equal sets can be different values.
///
/// ```
/// use elbow_ranges::{Dim, Strided};
///
/// // The corner of 25 x 25 x 25 in an array of 100 x 100 x 100 integers of 4 bytes: 625 pieces of 100 bytes.
/// let corner = Strided::new(0, &[Dim { count: 25, stride: 40_000 }, Dim { count: 25, stride: 400 }], 100)?;
/// assert_eq!(corner.segments(), 625);
/// assert_eq!(corner.bounds(), 0..24 * 40_000 + 24 * 400 + 100);
/// assert_eq!(corner.iter().nth(1), Some(400..500));
///
/// let neighbour = Strided::new(100, &[Dim { count: 25, stride: 40_000 }, Dim { count: 25, stride: 400 }], 100)?;
/// assert!(!corner.overlaps(&neighbour));
/// # Ok::<(), elbow_ranges::PatternError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Strided {
    start: u64,
    end: u64,
    /// Bytes in one piece.
    len: u64,
    /// Outermost first.
    levels: Levels,
}

impl Strided {
    /// Most vectors in one pattern. An array of 8 dimensions in a file of structures needs 9.
    pub const DEPTH_MAX: usize = 16;
    /// Most steps of interleaved vectors that may hold one point. Bounds the work of finding the next piece.
    pub const TANGLE_MAX: u64 = 1024;

    /// The pattern `start + i1*stride1 + i2*stride2 + ... + [0, len)`, in its canonical form. The order of the vectors
    /// has no meaning; outermost first is usual.
    ///
    /// ```
    /// use elbow_ranges::{Dim, PatternError, Strided};
    ///
    /// let dense = Strided::new(8, &[Dim { count: 10, stride: 40 }, Dim { count: 10, stride: 4 }], 4)?;
    /// assert_eq!(dense, Strided::range(8..408)?);
    /// assert_eq!(Strided::new(0, &[Dim { count: 3, stride: u64::MAX / 2 }], 8), Err(PatternError::Overflow));
    /// # Ok::<(), PatternError>(())
    /// ```
    ///
    /// # Errors
    /// When it is empty, ends past `u64::MAX`, has more than [`DEPTH_MAX`](Self::DEPTH_MAX) vectors that cannot be put
    /// together, or is interleaved more than [`TANGLE_MAX`](Self::TANGLE_MAX)-fold.
    pub fn new(start: u64, dims: &[Dim], len: u64) -> Result<Self, PatternError> {
        let (len, levels, extent) = canonical(dims, len)?;
        let end = start.checked_add(extent).ok_or(PatternError::Overflow)?;
        Ok(Self {
            start,
            end,
            len,
            levels,
        })
    }

    /// One range.
    ///
    /// # Errors
    /// When it is empty.
    pub fn range(range: Range<u64>) -> Result<Self, PatternError> {
        let len = range.end.checked_sub(range.start).ok_or(PatternError::Empty)?;
        Self::new(range.start, &[], len)
    }

    /// The smallest range that holds all of it.
    #[must_use]
    pub fn bounds(&self) -> Range<u64> {
        self.start..self.end
    }

    /// Bytes in one piece.
    #[must_use]
    pub fn piece_bytes(&self) -> u64 {
        self.len
    }

    /// Its vectors, outermost first.
    pub fn dims(&self) -> impl ExactSizeIterator<Item = Dim> {
        self.levels
            .iter()
            .map(|&Level { count, stride, .. }| Dim { count, stride })
    }

    /// Bytes that it covers; an upper bound where vectors interleave.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        let bytes = self
            .levels
            .iter()
            .fold(self.len, |bytes, level| bytes.saturating_mul(level.count));
        bytes.min(self.end - self.start)
    }

    /// Ranges that [`iter`](Self::iter) gives; an upper bound where vectors interleave.
    #[must_use]
    pub fn segments(&self) -> u64 {
        self.levels.iter().rev().fold(1, |inner: u64, level| {
            let joints = if level.inner == level.stride {
                level.count - 1
            } else {
                0
            };
            inner.saturating_mul(level.count) - joints
        })
    }

    /// The ranges that it covers, sorted and coalesced. Each costs `O(depth)`, times the tangle where vectors interleave.
    #[must_use]
    pub fn iter(&self) -> Ranges<'_> {
        Ranges::of(self)
    }

    /// Whether both cover some point. See [`try_overlaps`](Self::try_overlaps) for how; what cannot be decided within the
    /// bound on its work counts as an overlap, which for a lock is the safe side.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.try_overlaps(other).unwrap_or(true)
    }

    /// Whether it covers any point of a range. `O(depth)`, times the tangle where vectors interleave.
    #[must_use]
    pub fn overlaps_range(&self, range: Range<u64>) -> bool {
        range.start < range.end
            && self
                .piece_after(range.start)
                .is_some_and(|piece| piece.start < range.end)
    }
}

impl Strided {
    /// Steps that finding a piece takes: how many steps of interleaved vectors can hold one point.
    pub(crate) fn tangle(&self) -> u64 {
        self.levels
            .iter()
            .filter(|level| !level.is_nested())
            .map(Level::tangle)
            .product()
    }

    /// About how many steps it takes to compare it with another: many where deep vectors of unlike strides meet.
    pub(crate) fn overlap_cost(&self, other: &Self) -> u64 {
        const DEEP: usize = 3;
        const STEPS_DEEP: u64 = 1 << 10;
        let deep = self.levels.len().max(other.levels.len()) >= DEEP && self.levels.len().min(other.levels.len()) > 1;
        let strides = || self.dims().map(|dim| dim.stride).eq(other.dims().map(|dim| dim.stride));
        if deep && !strides() { STEPS_DEEP } else { 1 }
    }

    /// Memory that it takes beside its own size.
    #[inline]
    pub(crate) fn heap_bytes(&self) -> usize {
        if self.levels.spilled() {
            size_of_val(self.levels.as_slice())
        } else {
            0
        }
    }
}

impl fmt::Debug for Strided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `100..200` for one range, `100 + 25 x 40000 + 25 x 400 + [0, 100)` for a pattern.
impl fmt::Display for Strided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.levels.is_empty() {
            return write!(f, "{}..{}", self.start, self.end);
        }
        write!(f, "{}", self.start)?;
        for Dim { count, stride } in self.dims() {
            write!(f, " + {count} x {stride}")?;
        }
        write!(f, " + [0, {})", self.len)
    }
}
