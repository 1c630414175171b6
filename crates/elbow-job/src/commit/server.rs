//! What a server will refuse although the rights that are seen allow it: found out before the record.
//!
//! A file system of this machine judges as the job has. To a server we may be somebody else (sshfs, an export that makes root nobody): what belongs to
//! neither is asked about by doing to it what changes nothing, or nothing that stays.
//!
//! ```text
//!   a directory that is removed with what is in it    a name is made there and removed
//!   a time that the command has set itself            the times that the object has are set
//! ```
//!
//! Its own time then stays that of the trial, because it is somebody else's. Written files are tried by opening them ([`super::content`]), and what is
//! moved is taken back when it is refused.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use elbow_file::{Errno, Handle, Kind, Stat, Storage, Time};

use super::apply::{Failure, failure, gone_is_none};
use super::record::{Attributes, Record};
use super::tree::Tree;
use crate::job::clock;
use crate::removal::parallel;
use crate::staging::{MANIFEST, new_probe_name};

/// How far the clocks of two machines may be apart. A time that is further from the job's own is not that of something that it did.
const CLOCKS_APART_SECONDS: i64 = 300;
const STICKY: u32 = 0o1000;

/// Steps of a record that the server would refuse.
///
/// # Errors
/// What looking at the job's own directory says.
pub(super) fn refusals(record: &Record, tree: &Tree<'_>) -> Result<Vec<Failure>, Errno> {
    let Some(server) = Server::of(tree)? else {
        return Ok(Vec::new());
    };
    let removed: Vec<_> = record
        .removed()
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .collect();
    let unremovable = parallel(&removed, tree.threads, |(path, names)| {
        let refused = server.try_removal(path, names.iter().map(OsString::as_os_str)).err();
        refused.map(|errno| failure("remove what is in", path, errno))
    });
    let timed: Vec<_> = record.attributes.iter().filter(|a| a.attrs.times.is_some()).collect();
    let untimed = parallel(&timed, tree.threads, |attributes| {
        let path = record.before.objects.get(&attributes.path).unwrap_or(&attributes.path);
        let refused = server.try_times(path, attributes).err();
        refused.map(|errno| failure("set attributes of", &attributes.path, errno))
    });
    Ok(unremovable.into_iter().chain(untimed).flatten().collect())
}

/// A server, to whose file system we are somebody.
struct Server<'a> {
    tree: &'a Tree<'a>,
    /// Who that is: the owner of what we make there.
    uid: u32,
    /// When the job began, by its clock.
    began: Time,
}

impl<'a> Server<'a> {
    /// None where the rights that are seen are those that count, or none are missing.
    fn of(tree: &'a Tree<'a>) -> Result<Option<Self>, Errno> {
        let Some(own) = tree.own()? else { return Ok(None) };
        if own.stat.uid == 0 || tree.storage.nature(&own.handle)?.own_ids {
            return Ok(None);
        }
        let began = tree.storage.stat(&own.handle, OsStr::new(MANIFEST))?.mtime;
        let uid = own.stat.uid;
        Ok(Some(Self { tree, uid, began }))
    }

    fn storage(&self) -> &dyn Storage {
        self.tree.storage
    }

    fn is_others(&self, stat: &Stat) -> bool {
        stat.uid != self.uid
    }

    /// Whether the names in a directory can be removed; what is gone needs not.
    fn try_removal<'n>(&self, path: &Path, names: impl Iterator<Item = &'n OsStr>) -> Result<(), Errno> {
        let Some(dir) = gone_is_none(self.tree.dir(path))? else {
            return Ok(());
        };
        let stat = self.storage().stat_handle(&dir)?;
        if !self.is_others(&stat) {
            return Ok(());
        }
        if stat.mode & STICKY != 0 {
            return self.check_own(&dir, names);
        }
        let probe = new_probe_name();
        let file = self.storage().create(&dir, &probe, 0o600)?;
        let closed = self.storage().close(&file);
        self.storage().unlink(&dir, &probe).and(closed)
    }

    /// In somebody else's sticky directory only what is one's own can be removed.
    fn check_own<'n>(&self, dir: &Handle, mut names: impl Iterator<Item = &'n OsStr>) -> Result<(), Errno> {
        names.try_for_each(|name| match gone_is_none(self.storage().stat(dir, name))? {
            Some(stat) if self.is_others(&stat) => Err(Errno::PERM),
            _ => Ok(()),
        })
    }

    /// Whether a time can be set that is not that of a write: who may write sets that by writing, and nobody else can.
    fn try_times(&self, path: &Path, attributes: &Attributes) -> Result<(), Errno> {
        let Some((_, mtime)) = attributes.attrs.times.filter(|(_, mtime)| self.is_chosen(*mtime)) else {
            return Ok(());
        };
        let (dir, name) = self.tree.spot(path)?;
        let Some(stat) = gone_is_none(self.storage().stat(&dir, &name))? else {
            return Ok(());
        };
        if !self.is_others(&stat) || stat.kind == Kind::Symlink || stat.mtime == mtime {
            return Ok(());
        }
        match self
            .storage()
            .set_times(&dir, &name, Some(stat.atime), Some(stat.mtime))
        {
            Err(errno @ (Errno::ACCESS | Errno::PERM)) => Err(errno),
            // Another answer is for the commit to get, which can be taken back.
            _ => Ok(()),
        }
    }

    /// Whether the command has set a time, and not done something at that time.
    fn is_chosen(&self, time: Time) -> bool {
        let job = self.began.seconds - CLOCKS_APART_SECONDS..=clock().seconds + CLOCKS_APART_SECONDS;
        !job.contains(&time.seconds)
    }
}
