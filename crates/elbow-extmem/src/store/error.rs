//! What can go wrong with a block store.

use elbow_file::Errno;
use elbow_ranges::encoding::DecodeError;

use super::block_id::BlockId;

/// Why a block store did not do what it was asked. `file` is the name of the store's file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The file is something else.
    #[error("{file} is not a block store: {source}")]
    Foreign {
        /// Path of the store, as it was given.
        file: String,
        /// What was found in place of the magic.
        source: DecodeError,
    },
    /// The file begins as a block store, but its header is of another version or damaged.
    #[error("the header of block store {file} cannot be used: {source}")]
    Header {
        /// Path of the store, as it was given.
        file: String,
        /// What is wrong with it.
        source: DecodeError,
    },
    /// A block size that no store can have.
    #[error("a block store cannot have blocks of {block_bytes} bytes: a multiple of 512, at most 2^30, is needed")]
    BlockBytes {
        /// The size asked for, or found in a header.
        block_bytes: u64,
    },
    /// Holes were asked for where they cannot be trusted.
    #[error(
        "{file}: this file system does not keep track of holes of {block_bytes} bytes; use the free map in the file \
         (FreeMap::Bitmap) or larger blocks"
    )]
    NoHoles {
        /// Path of the store, as it was given.
        file: String,
        /// The block size.
        block_bytes: u64,
    },
    /// The store is open already.
    #[error("{file} is open already, in this process or another")]
    InUse {
        /// Path of the store, as it was given.
        file: String,
    },
    /// The hole that every store with holes has behind its header is filled.
    #[error(
        "{file}: its holes are lost, so it cannot be told which blocks are free; was it copied by a program that fills \
         them? (cp and rsync --sparse keep them)"
    )]
    HolesLost {
        /// Path of the store, as it was given.
        file: String,
    },
    /// Both copies of a page of the free map are damaged.
    #[error("{file}: both copies of page {page} of its free map are damaged: {source}")]
    Map {
        /// Path of the store, as it was given.
        file: String,
        /// Number of the page.
        page: u64,
        /// What is wrong with the second copy.
        source: DecodeError,
    },
    /// The store has no block of that number.
    #[error("{file} has no block {block}: its allocated blocks end before {blocks}")]
    OutOfRange {
        /// Path of the store, as it was given.
        file: String,
        /// The block asked for.
        block: BlockId,
        /// One past the last allocated block.
        blocks: u64,
    },
    /// A free block was read or written.
    #[error("block {block} of {file} is free: allocate it before it is read or written")]
    NotAllocated {
        /// Path of the store, as it was given.
        file: String,
        /// The block.
        block: BlockId,
    },
    /// A block was freed that is free already.
    #[error("block {block} of {file} is freed twice")]
    DoubleFree {
        /// Path of the store, as it was given.
        file: String,
        /// The block.
        block: BlockId,
    },
    /// A buffer does not have the size of the blocks.
    #[error("{blocks} blocks of {file} are {expected} bytes, the buffer has {given}")]
    Length {
        /// Path of the store, as it was given.
        file: String,
        /// How many blocks were asked for.
        blocks: u64,
        /// Their size together.
        expected: u64,
        /// The size of the buffer.
        given: u64,
    },
    /// A block is not what was written.
    #[error("block {block} of {file} is damaged: its checksum is {computed:#010x}, {stored:#010x} was stored with it")]
    Checksum {
        /// Path of the store, as it was given.
        file: String,
        /// The block.
        block: BlockId,
        /// The checksum beside the block.
        stored: u32,
        /// The checksum of its content.
        computed: u32,
    },
    /// No room is left, or no quota.
    #[error("{file}: no space left to {what} ({errno}); make room and try again")]
    NoSpace {
        /// Path of the store, as it was given.
        file: String,
        /// The call that failed, in words.
        what: &'static str,
        /// ENOSPC or EDQUOT.
        errno: Errno,
    },
    /// The store has as many blocks as it can have.
    #[error("{file} has all its {blocks} blocks allocated, and cannot have more")]
    Full {
        /// Path of the store, as it was given.
        file: String,
        /// Blocks that a store can have at most.
        blocks: u64,
    },
    /// A call to the storage failed.
    #[error("{file}: cannot {what}: {errno}")]
    Io {
        /// Path of the store, as it was given.
        file: String,
        /// The call that failed, in words.
        what: &'static str,
        /// What the storage said.
        errno: Errno,
    },
}

impl StoreError {
    /// A failed call, with the shortage of space told apart.
    pub(super) fn io(file: &str, what: &'static str, errno: Errno) -> Self {
        let file = file.to_owned();
        match errno {
            Errno::NOSPC | Errno::DQUOT => Self::NoSpace { file, what, errno },
            errno => Self::Io { file, what, errno },
        }
    }

    /// The errno that says it best, for callers that have nothing else.
    ///
    /// ```
    /// use elbow_extmem::store::StoreError;
    /// use elbow_file::Errno;
    ///
    /// let error = StoreError::BlockBytes { block_bytes: 1000 };
    /// assert_eq!(error.errno(), Errno::INVAL);
    /// ```
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::NoSpace { errno, .. } | Self::Io { errno, .. } => *errno,
            Self::NoHoles { .. } => Errno::OPNOTSUPP,
            Self::Full { .. } => Errno::FBIG,
            Self::InUse { .. } => Errno::BUSY,
            Self::Header { .. } | Self::HolesLost { .. } | Self::Map { .. } | Self::Checksum { .. } => Errno::IO,
            Self::OutOfRange { .. } | Self::NotAllocated { .. } | Self::DoubleFree { .. } => Errno::NXIO,
            Self::Foreign { .. } | Self::BlockBytes { .. } | Self::Length { .. } => Errno::INVAL,
        }
    }
}

/// What calls on a block store give.
pub type Result<T> = std::result::Result<T, StoreError>;
