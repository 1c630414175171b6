//! A model of ext2 as Linux 2.6 had it (floor 3), above a disk that takes range writes.
//!
//! ```text
//!   operations (pid, path, bytes)            time
//!        |                                     |
//!        v                                     v
//!   +-- Ext2 ------------------------------------------+
//!   |  Volume   Inodes: names, files, what they point to|
//!   |           Space: bitmaps, promises, claims       |
//!   |           Cache: what is dirty, since when       |
//!   |  Queue    data, then what points to it           |
//!   +-----|--------------------------------^-----------+
//!         | Request: a place, or a range   | Completed: where it went
//!         v                                |
//!   +-- trait Disk ------------------------------------+
//! ```
//!
//! [`Ext2`] has no clock, thread or file: it is told what processes do and what time it is, hands out [`Request`]s and is told of
//! their completion. [`Run`] puts operations, [`Ext2`] and a [`Disk`] together; [`ModelledDisk`] is the disk of
//! `elbow-disk`; [`FileReplay`] chooses all of them for a trace of a user's. What is modelled is where things are put and when they are written; the bytes of files are not kept
//! and read as zeros.
//!
//! What always holds:
//! - no block has two owners, and the bitmaps say what is owned;
//! - outstanding range writes are never more than their ranges can hold, whatever places the disk picks ([`claims`]);
//! - an inode or an indirect block that is written points only to blocks whose place is known;
//! - a block that was freed can be used again, and not before the last write to it has completed.
//!
//! [`Ext2::write_image`] writes a result that `e2fsck -fn` accepts, which is how the model itself is tested.
//!
//! Not modelled: reads of metadata (it is in memory from the start), permissions, links, sparse read-ahead, journals.
//!
//! Source: Linux 2.6.20, fs/ext2 (balloc.c, ialloc.c, inode.c, dir.c), mm/page-writeback.c, fs/fs-writeback.c, by behaviour; Card, Ts'o and
//! Tweedie, *Design and Implementation of the Second Extended Filesystem*; Anand et al. (OSDI 2008), section 4. Why it is so:
//! docs/design/ext2-model.md.

mod bitmap;
mod cache;
mod claims;
mod directory;
mod disk;
mod error;
mod filesystem;
mod geometry;
mod group;
mod image;
mod inode;
mod inodes;
mod modelled_disk;
mod options;
mod queue;
mod replay;
mod resident;
mod run;
mod space;
mod statistics;
mod strace;
mod trace;
mod volume;
mod workload;

pub use disk::{Completed, ConstantDisk, Disk, Purpose, Request, RequestId, RequestTarget};
pub use error::{Ext2Error, TraceError, TraceProblem};
pub use filesystem::Ext2;
pub use modelled_disk::{ModelledDisk, Work};
pub use options::{Options, Policy, Region, Writeback};
pub use replay::{Allocated, FileReplay, FileReport, GroupReport, KindReport, Kinds};
pub use run::{Report, Run};
pub use statistics::Statistics;
pub use trace::{Action, Operation, Outcome, Trace, TraceFile, TraceSummary};
pub use workload::{Andrew, PostMark, SmallFiles};

/// Bytes of a block, the unit of allocation and of all addresses here.
pub const BLOCK_BYTES: usize = 4096;
/// Blocks of a group: as many as a block of bitmap has bits.
pub const BLOCKS_PER_GROUP: u32 = 32_768;
/// Mini-groups of a group; a process begins its files in that of its pid (`ext2_find_near`).
pub const MINI_GROUPS: u32 = 16;
/// Blocks of a mini-group.
pub const BLOCKS_PER_MINI_GROUP: u32 = BLOCKS_PER_GROUP / MINI_GROUPS;
