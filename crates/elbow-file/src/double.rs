//! Storage doubles: what stands between a job and the storage in tests.
//!
//! ```text
//!   job -> Interposed<Recording> -> Interposed<Faulty> -> RealStorage
//!               |  around(call, make the call)   |
//! ```
//!
//! [`Interposed`] makes every call of the seam go through one [`Hook`], which sees what is called ([`Call`]) and
//! decides whether and when it is made. The doubles are hooks: [`Counting`], [`Faulty`], [`Recording`], [`Delaying`], [`Gated`],
//! [`PlainRenames`], [`SyntheticInodes`], [`LowerDirs`], [`Subvolumes`], [`OwnerRights`], [`StaleHandles`], [`WholeSeconds`], [`ZerosAreHoles`] and [`AllSquash`]. They nest, since a double is a storage and wraps a storage. [`Volatile`]
//! sees the data too: it keeps what is durable apart from what is only written, and makes the images that a crash could leave.
//!
//! Not here: a model of the storage. Calls that are let through reach the real one.

mod all_squash;
mod counting;
mod delaying;
mod faulty;
mod gated;
mod lower_dirs;
mod owner_rights;
mod plain_renames;
mod recording;
mod stale_handles;
mod subvolumes;
mod synthetic_inodes;
mod volatile;
mod whole_seconds;
mod zeros_are_holes;

use std::ffi::{OsStr, OsString};
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::storage::storage_calls;
use crate::{
    Access, DirEntry, FileSystemTraits, FileType, Handle, Identity, RenameMode, Result, Space, Stat, Storage, Time,
};

pub use all_squash::AllSquash;
pub use counting::Counting;
pub use delaying::Delaying;
pub use faulty::{Faulty, Plan};
pub use gated::Gated;
pub use lower_dirs::LowerDirs;
pub use owner_rights::OwnerRights;
pub use plain_renames::PlainRenames;
pub use recording::{Recorded, Recording};
pub use stale_handles::StaleHandles;
pub use subvolumes::Subvolumes;
pub use synthetic_inodes::SyntheticInodes;
pub use volatile::{Crash, Image, Volatile};
pub use whole_seconds::WholeSeconds;
pub use zeros_are_holes::ZerosAreHoles;

/// One call of the seam, before it is made.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// What is called.
    pub operation: Operation,
    /// The directory or file that it is called on.
    pub handle: &'a Handle,
    /// The name in that directory; `None` for calls on the object itself.
    pub name: Option<&'a OsStr>,
    /// The other text: new name of a link or rename, target of a symbolic link, key of an extended attribute.
    pub other: Option<&'a OsStr>,
    /// The directory of the new name of a link or rename.
    pub other_dir: Option<&'a Handle>,
    /// What becomes of whoever has the new name of a rename.
    pub mode: Option<RenameMode>,
    /// How a file is opened.
    pub access: Option<Access>,
    /// Offset in the file; 0 where there is none.
    pub offset: u64,
    /// Bytes that the call is about: asked for, given, punched, reserved, or the new size.
    pub bytes: u64,
}

impl<'a> Call<'a> {
    fn on(operation: Operation, handle: &'a Handle) -> Self {
        Self {
            operation,
            handle,
            name: None,
            other: None,
            other_dir: None,
            mode: None,
            access: None,
            offset: 0,
            bytes: 0,
        }
    }

    fn named(self, name: &'a OsStr) -> Self {
        Self {
            name: Some(name),
            ..self
        }
    }

    fn and(self, other: &'a OsStr) -> Self {
        Self {
            other: Some(other),
            ..self
        }
    }

    fn within(self, other_dir: &'a Handle) -> Self {
        Self {
            other_dir: Some(other_dir),
            ..self
        }
    }

    fn how(self, mode: RenameMode) -> Self {
        Self {
            mode: Some(mode),
            ..self
        }
    }

    fn with_access(self, access: Access) -> Self {
        Self {
            access: Some(access),
            ..self
        }
    }

    fn at(self, offset: u64) -> Self {
        Self { offset, ..self }
    }

    fn of(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    /// Where the object is now, as the kernel knows its directory or file. For real storage and predicates of
    /// tests: it costs a system call.
    #[must_use]
    #[allow(
        clippy::disallowed_methods,
        reason = "asks for what the kernel knows, not the storage"
    )]
    pub fn path(&self) -> PathBuf {
        let link = format!("/proc/self/fd/{}", self.handle.as_fd().as_raw_fd());
        let target = rustix::fs::readlink(link, Vec::new()).unwrap_or_default();
        let base = PathBuf::from(OsString::from_vec(target.into_bytes()));
        match self.name {
            Some(name) => base.join(name),
            None => base,
        }
    }
}

/// What a double does around each call.
pub trait Hook: Send + Sync {
    /// Is given every call, and makes it by `make` or answers in its place.
    ///
    /// # Errors
    /// Those of the call, or of the hook's choosing.
    fn around<T: 'static>(&self, call: &Call<'_>, make: impl FnOnce() -> Result<T>) -> Result<T>;
}

/// A storage whose calls all go through a hook.
///
/// ```
/// use std::ffi::OsStr;
/// use std::sync::Arc;
///
/// use elbow_file::double::{Counting, Interposed, Operation};
/// use elbow_file::{RealStorage, Storage};
///
/// let directory = tempfile::tempdir()?;
/// let root = RealStorage::open_root(directory.path())?;
/// let storage = Interposed::new(Arc::new(RealStorage), Counting::default());
/// storage.mkdir(&root, OsStr::new("a"), 0o755)?;
/// assert_eq!(storage.hook().count(Operation::Mkdir), 1);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Interposed<H> {
    below: Arc<dyn Storage>,
    hook: H,
}

impl<H: Hook> Interposed<H> {
    /// Puts a hook in front of a storage.
    pub fn new(below: Arc<dyn Storage>, hook: H) -> Self {
        Self { below, hook }
    }

    /// The hook, to ask it or to change what it does.
    pub fn hook(&self) -> &H {
        &self.hook
    }
}

/// Writes out, from the table of the calls, the operations and the interposition of each.
macro_rules! operations {
    ($(
        #[doc = $doc:literal]
        $variant:ident: $method:ident($first:ident: $first_type:ty $(, $arg:ident: $type:ty)*) -> $output:ty
            = $handle:ident $(. $with:ident($value:expr))*;
    )*) => {
        /// The operations of [`Storage`], one per method.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Operation {
            $(#[doc = $doc] $variant,)*
        }

        impl Operation {
            /// All operations, in the order of the trait.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Name of the method.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($method),)*
                }
            }
        }

        impl<H: Hook> Storage for Interposed<H> {
            fn owners_there(&self) -> Result<Option<crate::OwnerSwap>> {
                self.below.owners_there()
            }

            $(fn $method(&self, $first: $first_type $(, $arg: $type)*) -> Result<$output> {
                let call = Call::on(Operation::$variant, $handle)$(.$with($value))*;
                self.hook.around(&call, || self.below.$method($first $(, $arg)*))
            })*
        }
    };
}

storage_calls!(operations);

impl Operation {
    /// Whether it only asks; all others change the storage or make changes durable.
    #[must_use]
    pub fn only_reads(self) -> bool {
        use Operation as O;
        matches!(
            self,
            O::OpenDir
                | O::Open
                | O::Stat
                | O::StatUncached
                | O::StatHandle
                | O::List
                | O::Readlink
                | O::Space
                | O::ListXattrs
                | O::GetXattr
                | O::GetXattrHandle
                | O::Read
                | O::NextData
                | O::TryLock
                | O::Identity
                | O::FileSystemTraits
        )
    }
}
