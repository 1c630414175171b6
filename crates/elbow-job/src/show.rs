//! What lies in a directory of jobs: who left it, in which state, how much and why. Nothing is changed.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use elbow_file::{Errno, FileType, Handle, ShowName, Storage};

use crate::found::{
    Found, Stage, command_of, error, find_record, lock_manifest, look_at, read_journal, read_why, waits,
};
use crate::liveness::{self, Attempt, Liveness, Lock};
use crate::ownership::{self, OwnDirectory, OwnershipCheck};
use crate::patch_files::{is_patch, is_patch_dir};
use crate::report::JobError;
use crate::staging::{JournalEntry, Manifest, NEW, is_job_name, part_name};

/// The state of a job that has left something in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// It is at work, or somebody is ending it.
    Running,
    /// It died before its commit; a recovery rolls it back.
    Dead,
    /// It died, or so it seems, but whether it runs cannot be told from here.
    Unknown,
    /// It was kept, and is left alone until somebody names it.
    Kept,
    /// It was kept, and its removal was interrupted; a recovery goes on.
    Dropped,
    /// It has committed, and that is not finished; a recovery goes on.
    Committed,
    /// Its commit was refused, and is being taken back; a recovery goes on.
    TakenBack,
    /// It cannot be read.
    Damaged,
    /// It is somebody else's, or nobody's, and not looked into.
    NotOurs,
}

/// A job that has left something in a directory.
#[derive(Clone, Debug)]
pub struct UnfinishedJob {
    /// Its staging directory's name.
    pub job: String,
    /// Whether it lives, and how far it had come if not.
    pub state: JobState,
    /// All that it made is there, and [`resume`](crate::resume()) goes on with it.
    pub is_whole: bool,
    /// The machine that it was started on, where that is known.
    pub host: Option<String>,
    /// Its process there.
    pub pid: Option<u32>,
    /// The command that it ran, with its arguments; empty where no manifest tells.
    pub command: Vec<OsString>,
    /// When it was started, in seconds since 1970.
    pub started_unix_seconds: Option<u64>,
    /// Objects that it has staged: new ones, and new contents of old ones.
    pub objects: u64,
    /// Their sizes together, without holes.
    pub bytes: u64,
    /// Why it is so, as far as that is known.
    pub why: Option<String>,
}

/// Looks at each job of a directory.
///
/// # Errors
/// When the directory cannot be listed.
pub fn show(storage: &Arc<dyn Storage>, root: &Handle) -> Result<Vec<UnfinishedJob>, JobError> {
    let storage = &**storage;
    let listed = storage.list(root).map_err(error("listing"))?;
    let ownership = OwnershipCheck::new(storage, root).map_err(error("reading the attributes of"))?;
    let look = Look {
        storage,
        root,
        ownership: &ownership,
    };
    let mut jobs = Vec::new();
    for entry in listed.into_iter().filter(|entry| is_job_name(&entry.name)) {
        match look.at(&entry.name) {
            // It has ended meanwhile.
            Err(Errno::NOENT | Errno::STALE) => {}
            Err(errno) => jobs.push(UnfinishedJob {
                why: Some(errno.to_string()),
                ..left(&entry.name, JobState::Damaged)
            }),
            Ok(found) => jobs.push(found),
        }
    }
    jobs.sort_by(|a, b| (a.started_unix_seconds, &a.job).cmp(&(b.started_unix_seconds, &b.job)));
    Ok(jobs)
}

fn left(name: &OsStr, state: JobState) -> UnfinishedJob {
    UnfinishedJob {
        job: name.to_string_lossy().into_owned(),
        state,
        is_whole: false,
        host: None,
        pid: None,
        command: Vec::new(),
        started_unix_seconds: None,
        objects: 0,
        bytes: 0,
        why: None,
    }
}

struct Look<'a> {
    storage: &'a dyn Storage,
    root: &'a Handle,
    ownership: &'a OwnershipCheck<'a>,
}

impl Look<'_> {
    fn at(&self, name: &OsStr) -> Result<UnfinishedJob, Errno> {
        let own = match self.ownership.open(name)? {
            ownership::Ownership::Ours(own) => own,
            ownership::Ownership::NotOurs(why) => {
                return Ok(UnfinishedJob {
                    why: Some(why),
                    ..left(name, JobState::NotOurs)
                });
            }
        };
        let found = look_at(self.storage, &own)?;
        let (state, said) = self.state(name, &own, &found)?;
        let (Found::Ordinary(manifest) | Found::Kept(manifest) | Found::Dropped(manifest)) = &found;
        let mut shown = UnfinishedJob {
            is_whole: state == JobState::Kept && waits(self.storage, &own)?,
            why: said.or_else(|| read_why(self.storage, &own)),
            ..left(name, state)
        };
        if let Some(manifest) = manifest {
            shown.host = Some(manifest.host.clone());
            shown.pid = Some(manifest.pid);
            shown.command = command_of(manifest);
            shown.started_unix_seconds = Some(manifest.unix_seconds);
        }
        // What is added and taken away meanwhile is not there to be counted.
        let counted = self.count(name, &own, &mut shown);
        match counted {
            Ok(()) | Err(Errno::NOENT | Errno::STALE | Errno::ACCESS) => Ok(shown),
            Err(errno) => Err(errno),
        }
    }

    fn state(&self, name: &OsStr, own: &OwnDirectory, found: &Found) -> Result<(JobState, Option<String>), Errno> {
        let manifest = match found {
            Found::Kept(_) => return Ok((JobState::Kept, None)),
            Found::Dropped(_) => return Ok((JobState::Dropped, None)),
            Found::Ordinary(manifest) => manifest.as_ref(),
        };
        match self.liveness(own, found, manifest)? {
            Some(Liveness::Running(said)) => return Ok((JobState::Running, Some(said))),
            Some(Liveness::Unknown(said)) => return Ok((JobState::Unknown, Some(said))),
            Some(Liveness::Dead) | None => {}
        }
        if let Some(home) = manifest
            .and_then(|manifest| manifest.home.as_ref())
            .filter(|home| home.name != name)
        {
            let said = format!("its manifest is that of {}: somebody has renamed it", home.name.shown());
            return Ok((JobState::NotOurs, Some(said)));
        }
        Ok(match find_record(self.storage, own) {
            Err(found) => (
                JobState::Damaged,
                Some(format!("its commit record cannot be read: {found}")),
            ),
            Ok(Some((_, Stage::Committed | Stage::Done))) => (JobState::Committed, None),
            Ok(Some((_, Stage::TakenBack(_)))) => (JobState::TakenBack, None),
            Ok(Some((_, Stage::Waiting))) => (JobState::Kept, None),
            Ok(None) if manifest.is_none() => (JobState::Damaged, Some("its manifest cannot be read".into())),
            Ok(None) => (JobState::Dead, None),
        })
    }

    /// `None` where there is no manifest that anybody could have locked.
    fn liveness(
        &self,
        own: &OwnDirectory,
        found: &Found,
        manifest: Option<&Manifest>,
    ) -> Result<Option<Liveness>, Errno> {
        let lock = Lock::default();
        let attempt = lock_manifest(self.storage, own, found, &lock);
        lock.give_up(self.storage);
        // A manifest that we may only read is not ours to lock.
        let attempt = match attempt {
            Err(Errno::ROFS | Errno::ACCESS | Errno::PERM) => Attempt::None,
            other => other?,
        };
        let shares_locks = self.storage.file_system_traits(self.root)?.shares_locks;
        Ok(match (manifest, attempt) {
            (Some(manifest), attempt) => Some(liveness::of(manifest, &attempt, self.ownership.dev(), shares_locks)),
            (None, Attempt::Taken) => Some(Liveness::Running("it has just begun, or is about to end".into())),
            (None, _) => None,
        })
    }

    /// Counts what is staged in the job's own directory and in others.
    fn count(&self, name: &OsStr, own: &OwnDirectory, shown: &mut UnfinishedJob) -> Result<(), Errno> {
        for entry in self.storage.list(&own.handle)? {
            if entry.name == NEW {
                self.count_below(&self.storage.open_dir(&own.handle, &entry.name)?, shown)?;
            } else {
                self.count_patches(&own.handle, &entry.name, shown)?;
            }
        }
        let part = part_name(name);
        for entry in read_journal(self.storage, own)? {
            let JournalEntry::Staging { dir, .. } = entry else {
                continue;
            };
            if let Some(staged) = self.part(&dir, &part)?.filter(|(_, stat)| own.made(stat)) {
                self.count_below(&staged.0, shown)?;
            }
        }
        Ok(())
    }

    /// Counts a patch file, or those of a directory of them, if it is one of these.
    fn count_patches(&self, job: &Handle, name: &OsStr, shown: &mut UnfinishedJob) -> Result<(), Errno> {
        if is_patch(name) {
            self.count_one(job, name, shown)?;
        } else if is_patch_dir(name) {
            let dir = self.storage.open_dir(job, name)?;
            for entry in self
                .storage
                .list(&dir)?
                .into_iter()
                .filter(|entry| is_patch(&entry.name))
            {
                self.count_one(&dir, &entry.name, shown)?;
            }
        }
        Ok(())
    }

    fn part(&self, dir: &std::path::Path, part: &OsStr) -> Result<Option<(Handle, elbow_file::Stat)>, Errno> {
        let mut at = self.root.clone();
        for name in dir.iter().chain([part]) {
            at = match self.storage.open_dir(&at, name) {
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
                opened => opened?,
            };
        }
        let stat = self.storage.stat_handle(&at)?;
        Ok(Some((at, stat)))
    }

    fn count_below(&self, dir: &Handle, shown: &mut UnfinishedJob) -> Result<(), Errno> {
        let mut dirs = vec![dir.clone()];
        while let Some(dir) = dirs.pop() {
            for entry in self.storage.list(&dir)? {
                if self.count_one(&dir, &entry.name, shown)? == FileType::Dir {
                    dirs.push(self.storage.open_dir(&dir, &entry.name)?);
                }
            }
        }
        Ok(())
    }

    fn count_one(&self, dir: &Handle, name: &OsStr, shown: &mut UnfinishedJob) -> Result<FileType, Errno> {
        const BLOCK_BYTES: u64 = 512;
        let stat = self.storage.stat(dir, name)?;
        shown.objects += 1;
        if stat.kind == FileType::File {
            // What was written a moment ago may have no blocks yet.
            let stored = if stat.blocks == 0 {
                stat.size
            } else {
                stat.blocks * BLOCK_BYTES
            };
            shown.bytes += stat.size.min(stored);
        }
        Ok(stat.kind)
    }
}
