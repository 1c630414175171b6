//! The vocabulary of ranges (floor 0, pure).
//!
//! Elbowroom is about lists of ranges of a file: which are dirty, which are dead, which were written. This
//! crate holds the words for them and nothing else: no files, no threads, no clocks.
//!
//! - [`RangeSet`]: a set of `u64` points as disjoint, coalesced ranges, with the algebra of sets;
//! - [`RangeMap`]: disjoint ranges with a value each, which later values overwrite piece by piece;
//! - [`encoding`]: a compact, checked encoding for what has to survive a crash or cross a wire.
//!
//! Ranges are half-open everywhere: `[start, end)`. The point `u64::MAX` itself can therefore not be held.

pub mod encoding;
mod range_map;
mod range_set;

pub use range_map::{Piece, RangeMap};
pub use range_set::RangeSet;
