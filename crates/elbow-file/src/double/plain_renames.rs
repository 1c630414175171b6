//! A storage whose renames replace, and do nothing else.

use super::{Call, Hook, Operation};
use crate::{Errno, RealStorage, RenameMode, Result, Storage};

/// Refuses the flags of renameat2(2) as Linux does over a file system without them (sshfs, NFS): that the new name is taken, which the
/// kernel sees by itself, comes before what the file system cannot.
#[derive(Debug, Default)]
pub struct PlainRenames;

impl Hook for PlainRenames {
    fn around<T: 'static>(&self, call: &Call<'_>, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let flagged = call.mode.filter(|mode| *mode != RenameMode::Replace);
        let (Some(mode), Some(dir), Some(name)) = (flagged, call.other_dir, call.other) else {
            return make();
        };
        debug_assert_eq!(call.operation, Operation::Rename);
        RealStorage.stat(call.handle, call.name.expect("the old name"))?;
        match (RealStorage.stat(dir, name), mode) {
            (Ok(_), RenameMode::NoReplace) => Err(Errno::EXIST),
            (Err(errno), RenameMode::Exchange) => Err(errno),
            _ => Err(Errno::INVAL),
        }
    }
}
