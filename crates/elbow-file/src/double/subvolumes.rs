//! A storage with subvolumes, as btrfs has them.

use std::any::Any;
use std::ffi::OsStr;
use std::path::Path;

use super::{Call, Hook, Operation};
use crate::{Errno, FileType, Handle, RealStorage, RenameMode, Result, Stat, Storage};

/// Directories of the mode that this has (with others) are the roots of subvolumes: each has a device number of its own, as all below it has,
/// and nothing is renamed or linked from one to another (EXDEV). The root of one goes anywhere, and nothing takes its name from it (ENOTEMPTY).
#[derive(Debug, Default)]
pub struct Subvolumes;

impl Subvolumes {
    /// Bits that mean nothing to a directory of root's, and that nothing inherits.
    pub const MODE: u32 = 0o5000;

    fn is_root(stat: &Stat) -> bool {
        stat.kind == FileType::Dir && stat.mode & Self::MODE == Self::MODE
    }

    fn has_root(dir: &Handle, name: &OsStr) -> bool {
        RealStorage.stat(dir, name).is_ok_and(|stat| Self::is_root(&stat))
    }

    /// The subvolume that something at a path is in, by the inode number of its root; 0: none.
    fn of(path: &Path) -> u64 {
        let open = |above: &Path| RealStorage::open_root(above).and_then(|dir| RealStorage.stat_handle(&dir));
        let roots = path.ancestors().filter_map(|above| open(above).ok());
        roots.into_iter().find(Self::is_root).map_or(0, |root| root.ino)
    }

    fn of_dir(dir: &Handle) -> u64 {
        Self::of(&Call::on(Operation::StatHandle, dir).path())
    }

    fn check(call: &Call<'_>) -> Result<()> {
        let (Some(name), Some(to), Some(new)) = (call.name, call.other_dir, call.other) else {
            return Ok(());
        };
        let (from, to) = ((call.handle, name), (to, new));
        if Self::is_refused_anyway(call, from, to) {
            return Ok(());
        }
        let goes_anywhere = |(dir, name)| call.operation == Operation::Rename && Self::has_root(dir, name);
        let is_exchange = call.mode == Some(RenameMode::Exchange);
        let is_free = goes_anywhere(from) && (!is_exchange || goes_anywhere(to));
        if !is_free && Self::of_dir(from.0) != Self::of_dir(to.0) {
            return Err(Errno::XDEV);
        }
        match call.mode == Some(RenameMode::Replace) && Self::has_root(to.0, to.1) {
            true => Err(Errno::NOTEMPTY),
            false => Ok(()),
        }
    }

    /// The kernel has other reasons to refuse it, or nothing to do, and asks no file system then.
    fn is_refused_anyway(call: &Call<'_>, from: (&Handle, &OsStr), to: (&Handle, &OsStr)) -> bool {
        let path = |(dir, name): (&Handle, &OsStr)| Call::on(Operation::Stat, dir).named(name).path();
        let (old, new) = (RealStorage.stat(from.0, from.1), RealStorage.stat(to.0, to.1));
        let (Ok(old), new) = (old, new.ok()) else { return true };
        let is_dir = |stat: &Stat| stat.kind == FileType::Dir;
        match (call.mode, new) {
            (None, new) => new.is_some() || is_dir(&old),
            (Some(RenameMode::NoReplace), Some(_)) | (Some(RenameMode::Exchange), None) => true,
            _ if path(to).starts_with(path(from)) || path(from).starts_with(path(to)) => true,
            (Some(RenameMode::Replace), Some(new)) => is_dir(&old) != is_dir(&new) || old.ino == new.ino,
            _ => false,
        }
    }
}

impl Hook for Subvolumes {
    fn around<T: 'static>(&self, call: &Call<'_>, make: impl FnOnce() -> Result<T>) -> Result<T> {
        if matches!(call.operation, Operation::Rename | Operation::Link) {
            Self::check(call)?;
        }
        let mut answer = make()?;
        if let Some(stat) = (&mut answer as &mut dyn Any).downcast_mut::<Stat>() {
            stat.dev += Self::of(&call.path()) << 32;
        }
        Ok(answer)
    }
}
