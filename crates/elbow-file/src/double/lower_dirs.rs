//! A storage on which directories stay where they are.

use super::{Call, Hook, Operation};
use crate::{Errno, FileType, Handle, RealStorage, RenameMode, Result, Storage};

/// Refuses to rename directories with EXDEV, as overlayfs does those of a lower layer. What is below a name that begins like the prefix is of
/// today, and can be renamed.
#[derive(Debug)]
pub struct LowerDirs {
    /// How hidden names begin.
    pub hidden: &'static str,
}

impl LowerDirs {
    fn is_lower(&self, dir: &Handle, name: &std::ffi::OsStr) -> bool {
        let call = Call::on(Operation::Stat, dir).named(name);
        let is_hidden = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(self.hidden.as_bytes());
        !call.path().iter().any(is_hidden) && RealStorage.stat(dir, name).is_ok_and(|stat| stat.kind == FileType::Dir)
    }
}

impl Hook for LowerDirs {
    fn around<T: 'static>(&self, call: &Call<'_>, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let (Operation::Rename, Some(name), Some(dir), Some(other)) =
            (call.operation, call.name, call.other_dir, call.other)
        else {
            return make();
        };
        let is_exchange = call.mode == Some(RenameMode::Exchange);
        if self.is_lower(call.handle, name) || is_exchange && self.is_lower(dir, other) {
            return Err(Errno::XDEV);
        }
        make()
    }
}
