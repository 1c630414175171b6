//! Taking turns: of the jobs over one directory that change what was there before, one commits at a time.
//!
//! What a job expects is checked, and then changed; two that did both at once would each find what they expect, and one of them
//! would overwrite the other. Names are safe from that, since a rename says whether it replaced something. The content of a file
//! is not.
//!
//! The turn is the lock of a hidden file in the directory, which is made for it and removed with it: who locks it looks whether it
//! still has its name. Where files cannot be locked or made there are no turns.

use std::ffi::OsStr;
use std::time::{Duration, Instant};

use elbow_file::{Access, Errno, Handle, Storage};

use super::record::Record;
use crate::missing::none_if_missing;
use crate::staging::{MANIFEST, TURN, is_job_name};

const PAUSE_FIRST: Duration = Duration::from_millis(1);
const PAUSE_MOST: Duration = Duration::from_millis(50);
/// So long one waits for a lock that no committing job of ours can have: nobody is to hold up others for ever.
const WAIT_FOR_OTHERS: Duration = Duration::from_secs(60);
/// For everybody: jobs of several users take turns.
const MODE: u32 = 0o666;

/// The turn of a job, given up when dropped.
pub(crate) struct Turn<'a> {
    storage: &'a dyn Storage,
    root: &'a Handle,
    file: Option<Handle>,
}

impl Record {
    /// Something is changed that was there before, or goes.
    fn changes_old(&self) -> bool {
        let replaces = self.placements.iter().any(|placement| placement.replaced.is_some());
        let sets = self.attributes.iter().any(|attributes| !attributes.is_dir);
        replaces || sets || !self.departures.is_empty() || !self.patches.is_empty()
    }
}

impl<'a> Turn<'a> {
    /// Waits for the turn, if the record needs one; `None` if the wait was ended.
    pub(crate) fn wait(
        storage: &'a dyn Storage,
        root: &'a Handle,
        record: &Record,
        job: &OsStr,
        is_ended: impl Fn() -> bool,
    ) -> Option<Self> {
        let mut turn = Self {
            storage,
            root,
            file: None,
        };
        if !record.changes_old() {
            return Some(turn);
        }
        let (began, mut pause) = (Instant::now(), PAUSE_FIRST);
        let mut refusals = 0;
        loop {
            match turn.attempt() {
                Ok(true) => return Some(turn),
                // Without locks, or the right to make a file, there are no turns. A file that was made all the same is found now.
                Err(_) if refusals > 0 => return Some(turn),
                Err(_) => refusals += 1,
                Ok(false) if is_ended() => return None,
                Ok(false) if began.elapsed() > WAIT_FOR_OTHERS && !turn.is_of_a_job(job) => return Some(turn),
                Ok(false) => std::thread::sleep(pause),
            }
            pause = (pause * 2).min(PAUSE_MOST);
        }
    }

    fn attempt(&mut self) -> Result<bool, Errno> {
        let name = OsStr::new(TURN);
        let file = match self.storage.open(self.root, name, Access::ReadWrite) {
            Err(Errno::NOENT) => match self.storage.create(self.root, name, MODE) {
                Err(Errno::EXIST) => return Ok(false),
                made => made?,
            },
            opened => opened?,
        };
        match self.storage.try_lock(&file) {
            Ok(true) => {
                let has_name = self.has_name(&file);
                self.file = Some(file);
                // It may have belonged to somebody who has given it up meanwhile: then it has no name.
                if has_name == Ok(false) {
                    self.file = None;
                }
                Ok(self.file.is_some())
            }
            Ok(false) => Ok(false),
            Err(errno) => {
                // Where nothing can be locked, nobody has a lock on it.
                if matches!(errno, Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL) {
                    self.remove();
                }
                Err(errno)
            }
        }
    }

    /// Tried once more, since what is left is seen by everybody.
    fn remove(&self) {
        let remove = || none_if_missing(self.storage.unlink(self.root, OsStr::new(TURN)));
        let _ = remove().or_else(|_| remove());
    }

    fn has_name(&self, file: &Handle) -> Result<bool, Errno> {
        let (mine, named) = (
            self.storage.stat_handle(file)?,
            self.storage.stat_uncached(self.root, OsStr::new(TURN)),
        );
        Ok(none_if_missing(named)?.is_some_and(|named| (named.dev, named.ino) == (mine.dev, mine.ino)))
    }

    /// Can the lock be that of a job of ours? Then there is another one than this here, which is not a kept one.
    fn is_of_a_job(&self, own: &OsStr) -> bool {
        let owner = self.storage.stat(self.root, OsStr::new(TURN)).map(|stat| stat.uid);
        owner == Ok(rustix::process::geteuid().as_raw()) && self.runs_another(own).unwrap_or(true)
    }

    fn runs_another(&self, own: &OsStr) -> Result<bool, Errno> {
        let jobs = self.storage.list(self.root)?.into_iter().map(|entry| entry.name);
        let mut others = jobs.filter(|name| is_job_name(name) && name != own);
        Ok(others.any(|name| {
            let job = self.storage.open_dir(self.root, &name);
            job.and_then(|job| self.storage.stat(&job, OsStr::new(MANIFEST)))
                .is_ok()
        }))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // While it is locked, so that nobody locks it in between.
        if self.file.is_some() {
            self.remove();
        }
    }
}

/// Removes the file of a turn whose job has died.
pub(crate) fn remove_old_turn(storage: &dyn Storage, root: &Handle) {
    let mut turn = Turn {
        storage,
        root,
        file: None,
    };
    if none_if_missing(storage.stat(root, OsStr::new(TURN))).is_ok_and(|found| found.is_some()) {
        // Dropped with it; another's turn is left alone.
        let _ = turn.attempt();
    }
}
