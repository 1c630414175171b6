//! What file systems do in different ways, of which all are right: found out by trying.
//!
//! As with what a storage refuses ([`crate::abilities`]), each is tried once, in the job's own directory, when the command first does
//! what it matters for. By the type of the file system it would not be known below an overlayfs or behind a server.
//!
//! ```text
//!   truncate(2) to the size that a file has    ext4 sets its times; tmpfs those of a file with data; xfs and btrfs none
//!   exchange of names across directories       xfs sets the time of a directory that gets another `..`
//!   rename(2) over a directory with entries    xfs says EEXIST, others ENOTEMPTY
//!   rename(2) of an old directory              overlayfs says EXDEV of one that a lower layer has
//!   any change in an old directory             btrfs says EROFS in a read-only subvolume
//!   times                                      SFTP, and ext2 with inodes of 128 bytes, keep whole seconds
//! ```
//!
//! A trial that fails says "no": nothing is refused because of it.

use std::ffi::{OsStr, OsString};
use std::io::IoSlice;
use std::sync::atomic::{AtomicU64, Ordering};

use elbow_file::{Errno, Handle, RenameMode, Result, Storage, Time};

use crate::lost_answers;
use crate::missing::ignore_missing;

/// Something that is done in one of two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Behaviour {
    /// truncate(2) sets the times of a file whose size stays.
    TruncateSets {
        /// Of one that has blocks; otherwise of one that has none.
        has_data: bool,
    },
    /// An exchange of names across directories sets the time of a directory.
    ExchangeSets,
    /// A directory with entries that would have to be replaced is EEXIST.
    FullExists,
    /// Times are whole seconds.
    WholeSeconds,
}

/// What nothing has that was made today.
const LONG_AGO: Time = Time {
    seconds: 1_000_000,
    nanoseconds: 0,
};
/// The time that something is given which the trial then looks at.
const MODE: u32 = 0o700;

/// Names for a trial that no other has at this moment.
pub(crate) fn named(what: &str) -> OsString {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    OsString::from(format!("probe-{what}{}", NUMBER.fetch_add(1, Ordering::Relaxed)))
}

/// Tries it in the job's own directory.
pub(crate) fn probe(storage: &dyn Storage, job: &Handle, behaviour: Behaviour) -> bool {
    let tried = match behaviour {
        Behaviour::TruncateSets { has_data } => truncate_sets(storage, job, has_data),
        Behaviour::ExchangeSets => exchange_sets(storage, job),
        Behaviour::FullExists => full_exists(storage, job),
        Behaviour::WholeSeconds => whole_seconds(storage, job),
    };
    tried.unwrap_or(false)
}

/// Tries in the job's own directory whether the storage can rename without replacing: a recovery asks, of which no [`Behaviour`] is known.
///
/// # Errors
/// Any but those that say that it cannot.
pub(crate) fn has_noreplace(storage: &dyn Storage, job: &Handle) -> Result<bool> {
    let (old, new) = (named("old"), named("new"));
    let forget = |name: &OsString| ignore_missing(storage.unlink(job, name));
    // Who tried before may have died over it.
    [&old, &new].into_iter().try_for_each(forget)?;
    storage.create(job, &old, 0o600).and_then(|file| storage.close(&file))?;
    let renamed = storage.rename(job, &old, job, &new, RenameMode::NoReplace);
    [&old, &new].into_iter().try_for_each(forget)?;
    match renamed {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(false),
        renamed => renamed.map(|()| true),
    }
}

/// Tries whether the storage tells which names are of one object. One that has no second names has nothing to tell.
///
/// # Errors
/// Any but that it has no links.
pub(crate) fn tells_links(storage: &dyn Storage, job: &Handle) -> Result<bool> {
    let (old, new) = (named("old"), named("new"));
    let forget = |name: &OsString| ignore_missing(storage.unlink(job, name));
    [&old, &new].into_iter().try_for_each(forget)?;
    storage.create(job, &old, 0o600).and_then(|file| storage.close(&file))?;
    let is_linked = storage.link(job, &old, job, &new).is_ok();
    let tells = lost_answers::are_one(storage, (job, &old), (job, &new));
    [&old, &new].into_iter().try_for_each(forget)?;
    Ok(tells? || !is_linked)
}

fn truncate_sets(storage: &dyn Storage, job: &Handle, has_data: bool) -> Result<bool> {
    let name = named("truncated");
    let data: &[u8] = if has_data { b"data" } else { b"" };
    let file = storage.create(job, &name, MODE)?;
    storage.write(&file, &[IoSlice::new(data)], 0)?;
    storage.close(&file)?;
    storage.set_times(job, &name, Some(LONG_AGO), Some(LONG_AGO))?;
    storage.truncate_named(job, &name, data.len() as u64)?;
    has_new_time(storage, job, &name)
}

fn exchange_sets(storage: &dyn Storage, job: &Handle) -> Result<bool> {
    let (moved, other, inside) = (named("moved"), named("other"), OsStr::new("inside"));
    storage.mkdir(job, &moved, MODE)?;
    storage.set_times(job, &moved, Some(LONG_AGO), Some(LONG_AGO))?;
    storage.mkdir(job, &other, MODE)?;
    let dir = storage.open_dir(job, &other)?;
    storage.mkdir(&dir, inside, MODE)?;
    storage.rename(job, &moved, &dir, inside, RenameMode::Exchange)?;
    has_new_time(storage, &dir, inside)
}

fn full_exists(storage: &dyn Storage, job: &Handle) -> Result<bool> {
    let moved = named("moved");
    storage.mkdir(job, &moved, MODE)?;
    let full = make_full(storage, job)?;
    Ok(storage.rename(job, &moved, job, &full, RenameMode::Replace) == Err(Errno::EXIST))
}

fn whole_seconds(storage: &dyn Storage, job: &Handle) -> Result<bool> {
    let name = named("seconds");
    let time = Time {
        nanoseconds: 500_000_000,
        ..LONG_AGO
    };
    storage.create(job, &name, MODE).and_then(|file| storage.close(&file))?;
    storage.set_times(job, &name, Some(time), Some(time))?;
    Ok(storage.stat(job, &name)?.mtime == LONG_AGO)
}

/// A directory that nothing can replace.
fn make_full(storage: &dyn Storage, job: &Handle) -> Result<OsString> {
    let full = named("full");
    storage.mkdir(job, &full, MODE)?;
    storage.mkdir(&storage.open_dir(job, &full)?, OsStr::new("inside"), MODE)?;
    Ok(full)
}

/// Whether an old directory can be renamed. It is renamed over a directory with entries, which fails everywhere, and changes nothing:
/// that a directory may not leave its lower layer is looked at first.
pub(crate) fn moves(storage: &dyn Storage, job: &Handle, (dir, name): (&Handle, &OsStr)) -> bool {
    let tried = make_full(storage, job).and_then(|full| storage.rename(dir, name, job, &full, RenameMode::Replace));
    tried != Err(Errno::XDEV)
}

/// Whether nothing in a directory can be changed. An attribute is removed that is not there: that is refused for one reason or another,
/// and this one is the first.
pub(crate) fn is_read_only(storage: &dyn Storage, dir: &Handle) -> bool {
    let nothing = OsStr::new("user.elbow-probe");
    storage.remove_xattr(dir, OsStr::new("."), nothing) == Err(Errno::ROFS)
}

fn has_new_time(storage: &dyn Storage, dir: &Handle, name: &OsStr) -> Result<bool> {
    Ok(storage.stat(dir, name)?.mtime != LONG_AGO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use elbow_file::RealStorage;

    /// As it was measured on Linux 6.18: what changes there changes here.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "a real tmpfs")]
    fn a_tmpfs_has_its_behaviours() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let root = RealStorage::open_root(dir.path()).unwrap();
        let is = |behaviour| probe(&RealStorage, &root, behaviour);
        assert!(is(Behaviour::TruncateSets { has_data: true }));
        assert!(!is(Behaviour::TruncateSets { has_data: false }));
        assert!(!is(Behaviour::FullExists));
        assert!(!is(Behaviour::ExchangeSets));
        RealStorage.mkdir(&root, OsStr::new("d"), MODE).unwrap();
        assert!(moves(&RealStorage, &root, (&root, OsStr::new("d"))));
        assert!(RealStorage.stat(&root, OsStr::new("d")).is_ok(), "it is where it was");
    }
}
