//! What a server will refuse although the rights that are seen allow it: found out before the record.
//!
//! A file system of this machine judges as the job has. To a server we may be somebody else (sshfs, an export that makes root nobody): what belongs to
//! neither is asked about by doing to it what changes nothing, or nothing that stays.
//!
//! ```text
//!   a directory that is removed with what is in it    a staging directory is made there and removed
//!   a time that the command has set itself            the times that the object has are set
//! ```
//!
//! Its own time then stays that of the trial, because it is somebody else's. Written files are tried by opening them ([`super::content`]), and what is
//! moved is taken back when it is refused.
//!
//! The journal knows of such a staging directory before it is made, as of any other: a trial that we die over, or of which only the first half is
//! granted, is undone with the job.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use elbow_file::{Errno, FileType, Handle, Stat, Storage, Time};

use super::failure::{Failure, failure};
use super::record::{Attributes, Record};
use super::tree::Tree;
use crate::clock::clock;
use crate::job_files::STAGING_MODE;
use crate::missing::none_if_missing;
use crate::parallel::parallel;
use crate::staging::{JournalEntry, KEPT, MANIFEST, part_name};

/// How far the clocks of two machines may be apart. A time that is further from the job's own is not that of something that it did.
const CLOCKS_APART_SECONDS: i64 = 300;
pub(super) const STICKY: u32 = 0o1000;

/// Writes entries to the journal of the job.
pub(crate) type JournalWriter<'a> = dyn Fn(&[JournalEntry]) -> Result<(), Errno> + 'a;

/// Steps of the record of this job that the server would refuse.
///
/// # Errors
/// What looking at the job's own directory says, or noting what is about to be tried.
pub(super) fn refusals(
    record: &Record,
    tree: &Tree<'_>,
    job: &OsStr,
    note: &JournalWriter<'_>,
) -> Result<Vec<Failure>, Errno> {
    let Some(server) = Server::of(tree)? else {
        return Ok(Vec::new());
    };
    let mut refused = server.unremovable(record, &part_name(job), note)?;
    refused.extend(server.untimed(record));
    Ok(refused)
}

/// A directory of somebody else's whose names are to be removed.
struct ForeignDirectory<'a> {
    path: &'a Path,
    dir: Handle,
    stat: Stat,
}

impl ForeignDirectory<'_> {
    fn entry(&self) -> JournalEntry {
        JournalEntry::Staging {
            dir: self.path.to_owned(),
            times: (self.stat.atime, self.stat.mtime),
            closed: None,
        }
    }
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
        if own.stat.uid == 0 || tree.storage.file_system_traits(&own.handle)?.own_ids {
            return Ok(None);
        }
        let began = match tree.storage.stat(&own.handle, OsStr::new(MANIFEST)) {
            // It was kept, and goes on.
            Err(Errno::NOENT) => tree.storage.stat(&own.handle, OsStr::new(KEPT))?,
            manifest => manifest?,
        };
        let (uid, began) = (own.stat.uid, began.mtime);
        Ok(Some(Self { tree, uid, began }))
    }

    fn storage(&self) -> &dyn Storage {
        self.tree.storage
    }

    fn is_others(&self, stat: &Stat) -> bool {
        stat.uid != self.uid
    }

    /// Directories that are removed, and in which nothing can be.
    fn unremovable(&self, record: &Record, part: &OsStr, note: &JournalWriter<'_>) -> Result<Vec<Failure>, Errno> {
        let removed: Vec<_> = record.emptied().filter(|(_, names)| !names.is_empty()).collect();
        let failed = |path, errno| failure("remove what is in", path, errno);
        let looked = parallel(&removed, self.tree.threads, |(path, names)| {
            self.look(path, names).map_err(|errno| failed(path, errno))
        });
        let (mut others, mut refused) = (Vec::new(), Vec::new());
        for found in looked {
            match found {
                Ok(found) => others.extend(found),
                Err(failure) => refused.push(failure),
            }
        }
        if others.is_empty() || !refused.is_empty() {
            return Ok(refused);
        }
        note(&others.iter().map(ForeignDirectory::entry).collect::<Vec<_>>())?;
        let tried = parallel(&others, self.tree.threads, |others| {
            let refused = self.try_names(&others.dir, part).err();
            refused.map(|errno| failed(others.path, errno))
        });
        Ok(tried.into_iter().flatten().collect())
    }

    /// The directory, if it has to be tried whether the names in it can be removed; what is gone needs not.
    fn look<'p>(&self, path: &'p Path, names: &BTreeSet<OsString>) -> Result<Option<ForeignDirectory<'p>>, Errno> {
        let Some(dir) = none_if_missing(self.tree.dir(path))? else {
            return Ok(None);
        };
        let stat = self.storage().stat_handle(&dir)?;
        if !self.is_others(&stat) {
            return Ok(None);
        }
        if stat.mode & STICKY != 0 {
            let names = names.iter().map(OsString::as_os_str);
            return self.check_own(&dir, names).map(|()| None);
        }
        Ok(Some(ForeignDirectory { path, dir, stat }))
    }

    fn try_names(&self, dir: &Handle, part: &OsStr) -> Result<(), Errno> {
        match self.storage().mkdir(dir, part, STAGING_MODE) {
            // Something was staged there, which took the same right.
            Err(Errno::EXIST) => Ok(()),
            made => made.and_then(|()| self.storage().rmdir(dir, part)),
        }
    }

    /// In somebody else's sticky directory only what is one's own can be removed.
    fn check_own<'n>(&self, dir: &Handle, mut names: impl Iterator<Item = &'n OsStr>) -> Result<(), Errno> {
        names.try_for_each(|name| match none_if_missing(self.storage().stat(dir, name))? {
            Some(stat) if self.is_others(&stat) => Err(Errno::PERM),
            _ => Ok(()),
        })
    }

    /// Old objects whose times cannot be set as the command has.
    fn untimed(&self, record: &Record) -> Vec<Failure> {
        // What the job has made is ours, and not there yet: another object may have its name until the commit.
        let old = record.attributes.iter().filter_map(|attributes| {
            let path = record.before.objects.get(&attributes.path)?;
            attributes.attrs.times.map(|_| (path, attributes))
        });
        let tried = parallel(&old.collect::<Vec<_>>(), self.tree.threads, |(path, attributes)| {
            let refused = self.try_times(path, attributes).err();
            refused.map(|errno| failure("set attributes of", &attributes.path, errno))
        });
        tried.into_iter().flatten().collect()
    }

    /// Whether a time can be set that is not that of a write: who may write sets that by writing, and nobody else can.
    fn try_times(&self, path: &Path, attributes: &Attributes) -> Result<(), Errno> {
        let Some((_, mtime)) = attributes.attrs.times.filter(|(_, mtime)| self.is_chosen(*mtime)) else {
            return Ok(());
        };
        let (dir, name) = self.tree.parent_of(path)?;
        let Some(stat) = none_if_missing(self.storage().stat(&dir, &name))? else {
            return Ok(());
        };
        if !self.is_others(&stat) || stat.kind == FileType::Symlink || stat.mtime == mtime {
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
