//! The vocabulary of ranges (floor 0, pure).
//!
//! Elbowroom is about lists of ranges of a file: which are dirty, which are dead, which were written. This
//! crate holds the words for them and nothing else: no files, no threads, no clocks.
//!
//! - [`RangeSet`]: a set of `u64` points as disjoint, coalesced ranges, with the algebra of sets;
//! - [`RangeMap`]: disjoint ranges with a value each, which later values overwrite piece by piece;
//! - [`Strided`]: a regular pattern of ranges, nested like MPI's derived datatypes, compared by arithmetic;
//! - [`compress()`]: finds such patterns in a list;
//! - [`BlockBitmap`]: ranges at the granularity of blocks, as a compressed bitmap;
//! - [`Footprint`]: what one request covers, in the form it was asked for;
//! - [`encoding`]: a compact, checked encoding for what has to survive a crash or cross a wire.
//!
//! Ranges are half-open everywhere: `[start, end)`. The point `u64::MAX` itself can therefore not be held.

mod blocks;
mod compress;
pub mod encoding;
mod error;
mod footprint;
mod list;
mod range_map;
mod range_set;
mod ranges;
mod strided;
mod work;

pub use blocks::BlockBitmap;
pub use compress::compress;
pub use error::PatternError;
pub use footprint::{Footprint, Mode};
pub use range_map::{Piece, RangeMap};
pub use range_set::RangeSet;
pub use ranges::Ranges;
pub use strided::{Dim, Pieces, Strided};
