//! What cannot be described.

use crate::Strided;

/// Why numbers are not a pattern of ranges.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// It covers nothing; a lock on nothing or an empty range of an access is a mistake of the caller.
    #[error("a pattern of ranges covers nothing: it has no range, a count of 0 or a length of 0")]
    Empty,
    /// It ends past the last offset that can be held.
    #[error("a pattern of ranges ends past 2^64 - 1")]
    Overflow,
    /// It has too many vectors.
    #[error(
        "a pattern of ranges has {depth} nested vectors; at most {} can be held",
        Strided::DEPTH_MAX
    )]
    TooDeep {
        /// Vectors that are left in the canonical form.
        depth: usize,
    },
    /// Too many steps of its vectors lie across each other.
    #[error(
        "the vectors of a pattern of ranges interleave {ways} times; at most {} can be followed: give one pattern per step of \
         the outermost vector",
        Strided::TANGLE_MAX
    )]
    Tangled {
        /// How many steps can hold one point.
        ways: u64,
    },
    /// A range of blocks that a bitmap cannot hold.
    #[error(
        "a range of {blocks} blocks of {block_bytes} bytes is too long for a bitmap: use larger blocks or a range of bytes"
    )]
    TooManyBlocks {
        /// Blocks in the range.
        blocks: u64,
        /// Bytes in a block.
        block_bytes: u64,
    },
    /// Two bitmaps that cannot be put together.
    #[error("bitmaps of blocks of {ours} and of {theirs} bytes cannot be put together")]
    BlockSizes {
        /// Bytes in a block of the one.
        ours: u64,
        /// Bytes in a block of the other.
        theirs: u64,
    },
}
