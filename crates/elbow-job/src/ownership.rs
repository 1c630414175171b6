//! Whether a staging directory is ours. Only our own are looked into: anybody who may write to a directory can put something
//! with the name of a job's there.
//!
//! Ours is what has the owner and the mode that a directory of ours gets on this storage, is no link, and is no mount point. On a file system of this machine that is our user and mode 0700. On any other the owner
//! is what a server says, whose users may be others than ours (sshfs shows remote ids, an NFS server may make everybody nobody,
//! on vfat all belongs to all); there a file of ours is made, looked at and removed: what looks like it was made by somebody whom
//! that storage cannot tell from us, who could do there all that we can. That file is asked by its descriptor, so nobody can put another
//! in its place meanwhile.
//!
//! Root is only root: what others have there is theirs.

use std::cell::OnceCell;
use std::ffi::OsStr;

use elbow_file::{Errno, FileType, Handle, Stat, Storage};

use crate::clock::clock;
use crate::staging::{is_probe_name, new_probe_name};

/// Who may do what, without set-ids and sticky: set-group-id is inherited from the directory above.
const RIGHTS: u32 = 0o777;
const PRIVATE_DIR: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;
/// The rights of others to read and write, which files and directories get alike.
const OF_OTHERS: u32 = 0o066;
/// A probe that is older was left by a recovery that died.
const PROBE_SECONDS_MAX: i64 = 60;

/// Tells our staging directories in a directory from those of others.
pub(crate) struct OwnershipCheck<'a> {
    storage: &'a dyn Storage,
    root: &'a Handle,
    root_stat: Stat,
    mount: u64,
    /// How an object of ours looks there.
    ours: OnceCell<Result<OwnAttributes, Errno>>,
}

/// How an object of ours looks on a storage.
#[derive(Clone, Copy)]
struct OwnAttributes {
    uid: u32,
    /// Mode of a private file.
    file_mode: u32,
}

/// What a name turned out to be.
pub(crate) enum Ownership {
    Ours(OwnDirectory),
    /// Somebody else's, or nobody's: why, in words.
    NotOurs(String),
}

/// A job's own directory, which is ours.
#[derive(Clone)]
pub(crate) struct OwnDirectory {
    pub(crate) handle: Handle,
    pub(crate) stat: Stat,
}

impl OwnDirectory {
    pub(crate) fn of(storage: &dyn Storage, handle: Handle) -> Result<Self, Errno> {
        let stat = storage.stat_handle(&handle)?;
        Ok(Self { handle, stat })
    }

    /// A staging directory elsewhere is one of the same job's, as far as can be seen.
    pub(crate) fn made(&self, part: &Stat) -> bool {
        part.uid == self.stat.uid && part.mode & RIGHTS == self.stat.mode & RIGHTS
    }
}

impl<'a> OwnershipCheck<'a> {
    pub(crate) fn new(storage: &'a dyn Storage, root: &'a Handle) -> Result<Self, Errno> {
        Ok(Self {
            storage,
            root,
            root_stat: storage.stat_handle(root)?,
            mount: storage.identity(root)?.mount,
            ours: OnceCell::new(),
        })
    }

    /// The device of the directory.
    pub(crate) fn dev(&self) -> u64 {
        self.root_stat.dev
    }

    /// The mount of the directory.
    pub(crate) fn mount(&self) -> u64 {
        self.mount
    }

    /// Opens a job's own directory, if it is ours.
    pub(crate) fn open(&self, name: &OsStr) -> Result<Ownership, Errno> {
        let handle = match self.storage.open_dir(self.root, name) {
            Err(Errno::NOTDIR | Errno::LOOP) => return Ok(Ownership::NotOurs("it is no directory".into())),
            handle => handle?,
        };
        if self.storage.identity(&handle)?.mount != self.mount {
            return Ok(Ownership::NotOurs("something is mounted there".into()));
        }
        let own = OwnDirectory::of(self.storage, handle)?;
        Ok(match self.objection(&own.stat) {
            None => Ownership::Ours(own),
            Some(why) => Ownership::NotOurs(why),
        })
    }

    /// Why a directory is not ours.
    pub(crate) fn objection(&self, found: &Stat) -> Option<String> {
        let ours = match self.ours() {
            Ok(ours) => ours,
            Err(errno) => return Some(format!("whose it is cannot be found out ({errno})")),
        };
        if found.uid != ours.uid {
            return Some(format!(
                "it belongs to user {}; `elbow recover`, run by that user, ends it",
                found.uid
            ));
        }
        let mode = found.mode & RIGHTS;
        let is_private = match ours.file_mode {
            PRIVATE_FILE => mode == PRIVATE_DIR,
            made_up => mode & OF_OTHERS == made_up & OF_OTHERS,
        };
        (!is_private).then(|| format!("its mode is {mode:03o}, so that others may have put something in it"))
    }

    fn ours(&self) -> Result<OwnAttributes, Errno> {
        *self.ours.get_or_init(|| {
            if self.storage.file_system_traits(self.root)?.own_ids {
                return Ok(OwnAttributes {
                    uid: rustix::process::geteuid().as_raw(),
                    file_mode: PRIVATE_FILE,
                });
            }
            self.probe()
        })
    }

    /// Makes a file, sees whose it becomes, removes it and puts the times of the directory back.
    fn probe(&self) -> Result<OwnAttributes, Errno> {
        let name = new_probe_name();
        let file = self.storage.create(self.root, &name, PRIVATE_FILE)?;
        let found = self.storage.stat_handle(&file);
        let closed = self.storage.close(&file);
        let removed = self.storage.unlink(self.root, &name);
        let (atime, mtime) = (self.root_stat.atime, self.root_stat.mtime);
        // The directory may be somebody else's; its time is then that of the probe.
        let _ = self
            .storage
            .set_times(self.root, OsStr::new("."), Some(atime), Some(mtime));
        let found = found?;
        closed.and(removed)?;
        Ok(OwnAttributes {
            uid: found.uid,
            file_mode: found.mode & RIGHTS,
        })
    }

    /// Removes the probe of a recovery that died. What cannot be removed does no harm.
    pub(crate) fn remove_old_probe(&self, name: &OsStr) {
        let Ok(found) = self.storage.stat(self.root, name) else {
            return;
        };
        let is_old = (clock().seconds - found.mtime.seconds).abs() > PROBE_SECONDS_MAX;
        let is_ours = is_probe_name(name) && found.kind == FileType::File && found.size == 0;
        if is_ours && is_old && self.ours().is_ok_and(|ours| ours.uid == found.uid) {
            let _ = self.storage.unlink(self.root, name);
        }
    }
}

/// Whether a job could stage anything in a directory: makes a file there, removes it and puts the times of the directory back. For storages that nobody
/// can ask beforehand.
///
/// # Errors
/// Why nothing can be made there.
pub fn try_writing(storage: &dyn Storage, root: &Handle) -> Result<(), Errno> {
    let name = new_probe_name();
    let before = storage.stat_handle(root)?;
    let file = storage.create(root, &name, PRIVATE_FILE)?;
    let closed = storage.close(&file);
    let removed = storage.unlink(root, &name);
    // The directory may be somebody else's; its time is then that of the trial.
    let _ = storage.set_times(root, OsStr::new("."), Some(before.atime), Some(before.mtime));
    closed.and(removed)
}

#[cfg(test)]
mod tests {
    use elbow_file::RealStorage;

    use super::*;

    /// What is said of a directory on a storage where a file of ours looks like this.
    fn is_ours(ours: OwnAttributes, uid: u32, mode: u32) -> bool {
        let root = RealStorage::open_root("/".as_ref()).unwrap();
        let ownership = OwnershipCheck {
            ours: OnceCell::from(Ok(ours)),
            ..OwnershipCheck::new(&RealStorage, &root).unwrap()
        };
        let found = Stat {
            uid,
            mode,
            ..RealStorage.stat_handle(&root).unwrap()
        };
        ownership.objection(&found).is_none()
    }

    /// On vfat, or where a server makes everybody nobody, nothing tells users apart, and nobody is kept from anything there.
    #[test]
    fn ours_is_what_looks_like_ours_on_that_storage() {
        let server = |uid, file_mode| OwnAttributes { uid, file_mode };
        let squashed = server(65534, 0o600);
        assert!(is_ours(squashed, 65534, 0o700) && is_ours(squashed, 65534, 0o2700));
        assert!(!is_ours(squashed, 65534, 0o755) && !is_ours(squashed, 1000, 0o700) && !is_ours(squashed, 0, 0o700));
        let made_up = server(0, 0o755);
        assert!(is_ours(made_up, 0, 0o755));
        assert!(!is_ours(made_up, 0, 0o777) && !is_ours(made_up, 1000, 0o755));
        let without_x = server(1000, 0o644);
        assert!(is_ours(without_x, 1000, 0o755) && !is_ours(without_x, 1000, 0o775));
    }
}
