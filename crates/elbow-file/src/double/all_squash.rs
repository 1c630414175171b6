//! A server that knows us as a user of its own, to whom not all belongs.

use std::any::Any;
use std::ffi::OsStr;

use super::{Call, Hook, Operation};
use crate::{Access, Errno, FileSystemTraits, FileType, Handle, RealStorage, RenameMode, Result, Stat, Storage};

const GROUP: u32 = 0o070;
const OTHERS_READ: u32 = 0o004;
const OTHERS_WRITE: u32 = 0o002;
const OTHERS_WRITE_AND_SEARCH: u32 = 0o003;
const STICKY: u32 = 0o1000;

/// Answers as an export does that takes us for its user [`AllSquash::UID`], whoever we are here. What is marked as the host's has another
/// owner: names in it, its content and its attributes change only as its mode lets others do that, and in a sticky directory of the host's its objects
/// stay. Nobody gets another owner. Where nothing would come of a call anyway, that is what is answered, as the kernel does.
#[derive(Debug, Default)]
pub struct AllSquash;

impl AllSquash {
    /// The rights of the group of what is the host's: to execute alone, which nothing gets by itself.
    pub const HOSTS: u32 = 0o010;
    /// Who we are there.
    pub const UID: u32 = 4711;
    /// Who the host is.
    pub const HOST_UID: u32 = 4712;

    fn is_hosts(stat: &Stat) -> bool {
        stat.mode & GROUP == Self::HOSTS
    }

    fn check(call: &Call<'_>) -> Result<()> {
        use Operation as O;
        match call.operation {
            O::Create | O::CreateUnnamed | O::Mkdir | O::Symlink | O::Mknod => check_comes(call.handle, call.name),
            O::Unlink | O::Rmdir => check_goes(call.handle, call.name),
            O::Link => call.other_dir.map_or(Ok(()), |to| check_comes(to, call.other)),
            O::Rename => check_rename(call),
            O::Chmod | O::ChmodHandle | O::SetTimes | O::SetTimesHandle => match hosts(call) {
                Some(_) => Err(Errno::PERM),
                None => Ok(()),
            },
            O::Chown | O::ChownHandle => Err(Errno::PERM),
            O::Touch | O::TruncateNamed => check_rights(call, OTHERS_WRITE),
            O::SetXattr | O::SetXattrHandle | O::RemoveXattr | O::RemoveXattrHandle => check_rights(call, OTHERS_WRITE),
            _ => call
                .access
                .map_or(Ok(()), |access| check_rights(call, needed_for(access))),
        }
    }
}

fn needed_for(access: Access) -> u32 {
    match access {
        Access::Read => OTHERS_READ,
        Access::ReadWrite => OTHERS_READ | OTHERS_WRITE,
        Access::Write | Access::Append => OTHERS_WRITE,
    }
}

fn found(dir: &Handle, name: Option<&OsStr>) -> Option<Stat> {
    RealStorage.stat(dir, name?).ok()
}

/// The object of a call, if it is the host's.
fn hosts(call: &Call<'_>) -> Option<Stat> {
    let stat = match call.name {
        Some(_) => found(call.handle, call.name),
        None => RealStorage.stat_handle(call.handle).ok(),
    };
    stat.filter(AllSquash::is_hosts)
}

fn allowed(mode: u32, needed: u32) -> Result<()> {
    (mode & needed == needed).then_some(()).ok_or(Errno::ACCESS)
}

fn check_rights(call: &Call<'_>, needed: u32) -> Result<()> {
    hosts(call).map_or(Ok(()), |stat| allowed(stat.mode, needed))
}

/// The directory, if it is the host's and lets others change the names in it.
fn check_dir(dir: &Handle) -> Result<Option<Stat>> {
    let stat = RealStorage.stat_handle(dir)?;
    if !AllSquash::is_hosts(&stat) {
        return Ok(None);
    }
    allowed(stat.mode, OTHERS_WRITE_AND_SEARCH).map(|()| Some(stat))
}

fn check_comes(dir: &Handle, name: Option<&OsStr>) -> Result<()> {
    match found(dir, name) {
        Some(_) => Ok(()),
        None => check_dir(dir).map(|_| ()),
    }
}

fn check_goes(dir: &Handle, name: Option<&OsStr>) -> Result<()> {
    let Some(object) = found(dir, name) else { return Ok(()) };
    match check_dir(dir)? {
        Some(above) if above.mode & STICKY != 0 && AllSquash::is_hosts(&object) => Err(Errno::PERM),
        _ => Ok(()),
    }
}

fn check_rename(call: &Call<'_>) -> Result<()> {
    let (Some(moved), Some(to)) = (found(call.handle, call.name), call.other_dir) else {
        return Ok(());
    };
    let is_taken = found(to, call.other).is_some();
    if call.mode == Some(RenameMode::NoReplace) && is_taken {
        return Ok(());
    }
    check_goes(call.handle, call.name)?;
    match is_taken {
        true => check_goes(to, call.other)?,
        false => check_comes(to, call.other)?,
    }
    // Its `..` changes.
    let is_elsewhere = RealStorage.stat_handle(call.handle)?.ino != RealStorage.stat_handle(to)?.ino;
    match is_elsewhere && moved.kind == FileType::Dir && AllSquash::is_hosts(&moved) {
        true => allowed(moved.mode, OTHERS_WRITE),
        false => Ok(()),
    }
}

impl Hook for AllSquash {
    fn around<T: 'static>(&self, call: &Call<'_>, make: impl FnOnce() -> Result<T>) -> Result<T> {
        Self::check(call)?;
        let mut answer = make()?;
        let any = &mut answer as &mut dyn Any;
        if let Some(stat) = any.downcast_mut::<Stat>() {
            stat.uid = if Self::is_hosts(stat) {
                Self::HOST_UID
            } else {
                Self::UID
            };
        }
        if let Some(file_system_traits) = any.downcast_mut::<FileSystemTraits>() {
            (file_system_traits.own_ids, file_system_traits.keeps_inos) = (false, false);
        }
        Ok(answer)
    }
}
