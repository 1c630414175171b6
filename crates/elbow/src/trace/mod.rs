//! What a run has done, and when, in a file: `elbow run --trace FILE`, which `elbow explain` and Perfetto read.
//!
//! ```text
//!   writer    the file; what each job tells of itself goes through a bounded queue to a thread that writes it
//!   event     one line of it                     reader    those lines again, one by one
//!   summary   what the lines come to             spans     how much of them was at once
//!   advice    what would be done about it        words     all of it for people       explain    the command
//! ```
//!
//! Source: Google, *Trace Event Format*, the JSON array format. Its closing bracket may be missing, so what a killed process leaves is read, too.

mod advice;
mod event;
pub(crate) mod explain;
mod reader;
mod spans;
mod summary;
mod words;
mod writer;

pub(crate) use writer::{JobTrace, OpenTrace, TraceFile};
