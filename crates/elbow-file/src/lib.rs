//! Files at the system-call edge (floor 1).
//!
//! Everything Elbowroom asks of the storage below a job goes through one seam, the [`Storage`] trait: the
//! real thing ([`RealStorage`]) and the doubles that count, fail or record calls ([`double`]). Nothing above
//! this crate touches the storage directly, so every call can be counted, delayed, refused or replayed.
//!
//! Beside it stand the operations on holes that are more than one system call: [`zero`](mod@zero) and its kin free what is
//! dead, [`Extents`] says where data and holes are, [`dig`](mod@dig) turns blocks of zeros into holes.
//! A [`range_device`] takes writes that may land anywhere in a range; [`zoned`] storage is written in order, zone by zone.

mod acl;
mod blocks;
mod content;
pub mod dig;
mod direct;
pub mod double;
mod extents;
mod far_end;
mod file_system_traits;
mod handle;
mod layer;
mod lock;
mod open;
mod overlay;
mod owners;
pub mod range_device;
mod real;
mod show_name;
mod stat;
mod storage;
mod temporary;
mod written;
pub mod zero;
pub mod zoned;

pub use acl::{ACCESS_ACL, DEFAULT_ACL, renumber_acl};
pub use content::first_content;
pub use dig::dig;
pub use direct::{DIRECT_ALIGNMENT, direct, frees_whole_extents};
pub use extents::{Extent, ExtentKind, Extents};
pub use far_end::{Completion, FarAnswer, FarEnd, FarWorker, Order, Worked, errno_from_elsewhere};
pub use file_system_traits::{FileSystemTraits, Identity, what_is_mounted};
pub use handle::{Errno, Handle, Result};
pub use layer::StorageLayer;
pub use lock::{try_lock, unlock, unlock_open_file};
pub use owners::OwnerSwap;
pub use real::RealStorage;
pub use show_name::{ShowName, ShownName};
pub use stat::{DirEntry, FileType, Protection, Space, Stat, Time};
pub use storage::{Access, RenameMode, Storage};
pub use written::check_written;
pub use zero::{ZeroSupport, Zeroed, zero, zero_at, zero_in, zero_ranges, zero_ranges_in};
