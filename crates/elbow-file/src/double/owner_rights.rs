//! A storage on which root has the rights of an owner, no more.

use super::{Call, Hook, Operation};
use crate::{Access, Errno, FileType, Handle, RealStorage, Result, Stat, Storage};

const OWNER_READ: u32 = 0o400;
const OWNER_WRITE: u32 = 0o200;
const OWNER_WRITE_AND_SEARCH: u32 = 0o300;

/// Refuses changes of names in directories that their owner may not write or enter, and to open files, or to set their extended attributes, as
/// their owner may not, whoever asks: as a server does for the user whom it knows. So tests that run as root meet what ordinary users meet.
#[derive(Debug, Default)]
pub struct OwnerRights;

impl OwnerRights {
    const CHANGES_NAMES: [Operation; 9] = [
        Operation::Create,
        Operation::CreateUnnamed,
        Operation::Mkdir,
        Operation::Symlink,
        Operation::Mknod,
        Operation::Link,
        Operation::Rename,
        Operation::Unlink,
        Operation::Rmdir,
    ];
    /// The mode is asked for them, also where the file is open.
    const WRITES_BY_MODE: [Operation; 5] = [
        Operation::TruncateNamed,
        Operation::SetXattr,
        Operation::SetXattrHandle,
        Operation::RemoveXattr,
        Operation::RemoveXattrHandle,
    ];
}

fn check(mode: u32, needed: u32) -> Result<()> {
    (mode & needed == needed).then_some(()).ok_or(Errno::ACCESS)
}

fn check_dir(dir: &Handle) -> Result<()> {
    check(RealStorage.stat_handle(dir)?.mode, OWNER_WRITE_AND_SEARCH)
}

/// What the owner needs who opens a file.
fn needed_for(access: Access) -> u32 {
    match access {
        Access::Read => OWNER_READ,
        Access::ReadWrite => OWNER_READ | OWNER_WRITE,
        Access::Write | Access::Append => OWNER_WRITE,
    }
}

/// The object of a call; `None` if there is none, which the call itself says better.
fn subject(call: &Call<'_>) -> Option<Stat> {
    match call.name {
        Some(name) => RealStorage.stat(call.handle, name).ok(),
        None => RealStorage.stat_handle(call.handle).ok(),
    }
}

fn check_file(call: &Call<'_>, needed: u32) -> Result<()> {
    match subject(call) {
        Some(stat) if stat.kind == FileType::File => check(stat.mode, needed),
        _ => Ok(()),
    }
}

fn is_of_users(call: &Call<'_>) -> bool {
    call.other
        .is_none_or(|key| key.as_encoded_bytes().starts_with(b"user."))
}

impl Hook for OwnerRights {
    fn around<T: 'static>(&self, call: &Call<'_>, make: impl FnOnce() -> Result<T>) -> Result<T> {
        if Self::CHANGES_NAMES.contains(&call.operation) {
            check_dir(call.handle)?;
            call.other_dir.map_or(Ok(()), check_dir)?;
        }
        if let Some(access) = call.access {
            check_file(call, needed_for(access))?;
        }
        if Self::WRITES_BY_MODE.contains(&call.operation) && is_of_users(call) {
            check_file(call, OWNER_WRITE)?;
        }
        make()
    }
}
