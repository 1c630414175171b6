//! Files at the system-call edge (floor 1).
//!
//! Everything Elbowroom asks of the storage below a job goes through one seam, the [`Storage`] trait: the
//! real thing ([`RealStorage`]) and the doubles that count, fail or record calls ([`double`]). Nothing above
//! this crate touches the storage directly, so every call can be counted, delayed, refused or replayed.

pub mod double;
mod real;
mod storage;

pub use real::RealStorage;
pub use storage::{Access, DirEntry, Errno, Handle, Kind, RenameMode, Result, Space, Stat, Storage, Time};
