//! What stands in front of another storage and changes some of its calls.

use std::ffi::{OsStr, OsString};
use std::io::IoSlice;

use crate::storage::storage_calls;
use crate::{
    Access, DirEntry, FileSystemTraits, FileType, Handle, Identity, OwnerSwap, RenameMode, Result, Space, Stat,
    Storage, Time,
};

/// Writes out, from the table of the calls, the trait and that who implements it is a storage.
macro_rules! layers {
    ($(
        #[doc = $doc:literal]
        $variant:ident: $method:ident($first:ident: $first_type:ty $(, $arg:ident: $type:ty)*) -> $output:ty
            = $handle:ident $(. $with:ident($value:expr))*;
    )*) => {
        /// A storage in front of another one. What it does not say otherwise is what the other one says; it is at no far end.
        ///
        /// ```
        /// use std::ffi::OsStr;
        ///
        /// use elbow_file::{Handle, RealStorage, Result, Stat, Storage, StorageLayer};
        ///
        /// struct OfNobody;
        ///
        /// impl StorageLayer for OfNobody {
        ///     fn below(&self) -> &dyn Storage {
        ///         &RealStorage
        ///     }
        ///
        ///     fn stat(&self, dir: &Handle, name: &OsStr) -> Result<Stat> {
        ///         let stat = self.below().stat(dir, name)?;
        ///         Ok(Stat { uid: 65_534, ..stat })
        ///     }
        /// }
        ///
        /// let directory = tempfile::tempdir()?;
        /// let root = RealStorage::open_root(directory.path())?;
        /// let storage: &dyn Storage = &OfNobody;
        /// storage.mkdir(&root, OsStr::new("a"), 0o755)?;
        /// assert_eq!(storage.stat(&root, OsStr::new("a"))?.uid, 65_534);
        /// # Ok::<(), std::io::Error>(())
        /// ```
        pub trait StorageLayer: Send + Sync {
            /// The other one.
            fn below(&self) -> &dyn Storage;

            /// [`Storage::owners_there`]
            fn owners_there(&self) -> Result<Option<OwnerSwap>> {
                self.below().owners_there()
            }

            $(#[doc = $doc]
            fn $method(&self, $first: $first_type $(, $arg: $type)*) -> Result<$output> {
                self.below().$method($first $(, $arg)*)
            })*
        }

        impl<L: StorageLayer> Storage for L {
            fn owners_there(&self) -> Result<Option<OwnerSwap>> {
                StorageLayer::owners_there(self)
            }

            $(fn $method(&self, $first: $first_type $(, $arg: $type)*) -> Result<$output> {
                StorageLayer::$method(self, $first $(, $arg)*)
            })*
        }
    };
}

storage_calls!(layers);
