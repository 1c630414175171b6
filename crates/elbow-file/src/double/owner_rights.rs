//! A storage on which root has the rights of an owner, no more.

use super::{Call, Hook, Operation};
use crate::{Errno, Handle, RealStorage, Result, Storage};

/// Refuses changes of names in directories that their owner may not write or enter, whoever asks: as a server does for the user whom it knows.
/// So tests that run as root meet what ordinary users meet.
#[derive(Debug, Default)]
pub struct OwnerRights;

impl OwnerRights {
    const CHANGES_NAMES: [Operation; 8] = [
        Operation::Create,
        Operation::Mkdir,
        Operation::Symlink,
        Operation::Mknod,
        Operation::Link,
        Operation::Rename,
        Operation::Unlink,
        Operation::Rmdir,
    ];
}

fn check(dir: &Handle) -> Result<()> {
    const OWNER_WRITE_AND_SEARCH: u32 = 0o300;
    let mode = RealStorage.stat_handle(dir)?.mode;
    let may = mode & OWNER_WRITE_AND_SEARCH == OWNER_WRITE_AND_SEARCH;
    may.then_some(()).ok_or(Errno::ACCESS)
}

impl Hook for OwnerRights {
    fn around<T: 'static>(&self, call: &Call<'_>, make: impl FnOnce() -> Result<T>) -> Result<T> {
        if Self::CHANGES_NAMES.contains(&call.operation) {
            check(call.handle)?;
            call.other_dir.map_or(Ok(()), check)?;
        }
        make()
    }
}
