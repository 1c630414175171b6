//! External sort of fixed-size records: run formation and merging, in one disk's worth of space, crash-safe.
//!
//! ```text
//!   input --form--> sorted runs --merge--> sorted runs --...--> output
//!             |                     |
//!           frees what it has       frees what it has merged
//!           read (in place)
//!
//!   format    records and keys            entries  one run in memory      lane, select         merging
//!   memory    how a budget is divided     form     run formation          state, manifest      where a sort is
//!   engine    the passes                  in_place, copying                the two ways to ask for it
//!   known     the file that was left
//! ```
//!
//! Source: Knuth, *The Art of Computer Programming*, volume 3, section 5.4; Vengroff & Kotz, *A Holesome File System*,
//! section 5.

mod copying;
mod engine;
mod entries;
mod error;
mod files;
mod form;
mod format;
mod in_place;
mod known;
mod lane;
mod manifest;
mod memory;
mod meter;
mod select;
mod state;

pub(crate) use error::failed;
pub(crate) use memory::{Buffer, buffer};

pub use copying::{Output, sort};
pub use error::{FormatError, KeyProblem, Result, SortError, TooLittleMemory};
pub use format::{Key, KeyKind, RECORD_BYTES_MAX, RecordFormat};
pub use in_place::{SortTarget, is_unfinished, refuse_unfinished, resume, side_directory, sort_in_place};
pub use memory::{BUDGET_BYTES_MIN, Memory, RecordSortEstimate};
pub use meter::{Meter, Step};

/// How a sort works.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Most bytes of memory for records and what belongs to them.
    pub memory_bytes: usize,
    /// Threads that merge; run formation uses those of the global rayon pool.
    pub threads: usize,
    /// Records with equal keys stay in the order of the input.
    pub stable: bool,
}

/// What was sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Records.
    pub records: u64,
    /// Bytes of all records.
    pub bytes: u64,
    /// Runs that were formed.
    pub runs: u64,
    /// Passes over all records, after run formation.
    pub passes: u64,
}
