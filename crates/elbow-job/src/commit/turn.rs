//! Taking turns: of the jobs over one directory that change what was there before, one commits at a time.
//!
//! What a job expects is checked, and then changed; two that did both at once would each find what they expect, and one of them
//! would overwrite the other. Names are safe from that, since a rename says whether it replaced something. The content of a file
//! is not.
//!
//! The turn is the lock of a hidden file in the directory, which is made for it and removed with it: who locks it looks whether it
//! still has its name. Where files cannot be locked or made there are no turns. A storage that cannot say whose turn it is now is
//! no such place: without an answer nobody commits.
//!
//! Where the storage is at the end of a connection and has no locks (SFTP), jobs of one user on one machine take turns all the same: by the name
//! of a socket here, which is made of that of the directory there, and goes with its process. As on a mount without locks of its
//! own, whose locks the kernel here keeps.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use elbow_file::{Access, Errno, Handle, Storage};
use tracing::debug;

use super::leftovers::put_times_back;
use super::record::Record;
use crate::action::NewAttrs;
use crate::liveness::unlock;
use crate::missing::none_if_missing;
use crate::staging::{MANIFEST, TURN, is_job_name};

const PAUSE_FIRST: Duration = Duration::from_millis(1);
const PAUSE_MOST: Duration = Duration::from_millis(50);
/// Half a second in sum.
const PAUSE_LAST: Duration = Duration::from_millis(256);
/// So long one waits for a lock that no committing job of ours can have: nobody is to hold up others for ever.
const WAIT_FOR_OTHERS: Duration = Duration::from_secs(60);
/// For everybody: jobs of several users take turns.
const MODE: u32 = 0o666;

/// The turn of a job, given up when dropped.
pub(crate) struct Turn<'a> {
    storage: &'a dyn Storage,
    root: &'a Handle,
    file: Option<Handle>,
    /// The name here, where the storage has no locks.
    here: Option<UnixDatagram>,
    has_no_locks: bool,
}

/// What came of taking the turn.
enum Attempt {
    /// It is ours.
    Locked,
    /// Somebody has it.
    Taken,
    /// Its file came or went while it was looked at: whose turn it is now is to be asked again.
    Gone,
}

impl Record {
    /// Something is changed that was there before, or goes.
    fn changes_old(&self) -> bool {
        let replaces = self.placements.iter().any(|placement| placement.replaced.is_some());
        // Times of a directory are set after whatever else happens to it.
        let is_of_rights = |attrs: &NewAttrs| attrs.owner.is_some() || attrs.mode.is_some() || !attrs.xattrs.is_empty();
        let mut all = self.attributes.iter();
        let sets = all.any(|attributes| !attributes.is_dir || is_of_rights(&attributes.attrs));
        replaces || sets || !self.departures.is_empty() || !self.patches.is_empty()
    }
}

impl<'a> Turn<'a> {
    /// Waits for the turn, if the record needs one; `None` if the wait was ended.
    ///
    /// # Errors
    /// What the storage says twice and does not say of files that cannot be locked or made.
    pub(crate) fn wait(
        storage: &'a dyn Storage,
        root: &'a Handle,
        record: &Record,
        job: &OsStr,
        is_ended: impl Fn() -> bool,
    ) -> Result<Option<Self>, Errno> {
        let mut turn = Self::none(storage, root);
        if !record.changes_old() {
            return Ok(Some(turn));
        }
        let began = Instant::now();
        let is_late = || began.elapsed() > WAIT_FOR_OTHERS;
        let (mut pause, mut refusals) = (PAUSE_FIRST, 0);
        loop {
            match turn.attempt() {
                Ok(Attempt::Locked) => return Ok(Some(turn)),
                Ok(_) if is_ended() => return Ok(None),
                Ok(Attempt::Taken) if is_late() && !turn.is_of_a_job(job) => return Ok(Some(turn)),
                Ok(Attempt::Gone) if is_late() => return Err(Errno::STALE),
                Ok(_) => std::thread::sleep(pause),
                Err(errno) if refusals > 0 && is_passing(errno) => return Err(errno),
                // A file that was made all the same was found by now.
                Err(errno) if refusals > 0 => {
                    debug!(%errno, "there are no turns here");
                    return Ok(Some(turn));
                }
                Err(_) => {
                    refusals += 1;
                    std::thread::sleep(pause);
                }
            }
            pause = (pause * 2).min(PAUSE_MOST);
        }
    }

    fn none(storage: &'a dyn Storage, root: &'a Handle) -> Self {
        Self {
            storage,
            root,
            file: None,
            here: None,
            has_no_locks: false,
        }
    }

    fn attempt(&mut self) -> Result<Attempt, Errno> {
        if self.has_no_locks {
            return self.take_here();
        }
        match self.take() {
            // A server says so of a file that another machine has removed between two calls: then somebody else had it until now. It would
            // say it of the directory, too.
            Err(Errno::STALE) if self.storage.stat_handle(self.root).is_ok() => Ok(Attempt::Gone),
            taken => taken,
        }
    }

    fn take(&mut self) -> Result<Attempt, Errno> {
        let name = OsStr::new(TURN);
        let file = match self.storage.open(self.root, name, Access::ReadWrite) {
            Err(Errno::NOENT) => match self.storage.create(self.root, name, MODE) {
                Err(Errno::EXIST) => return Ok(Attempt::Gone),
                made => made?,
            },
            opened => opened?,
        };
        match self.storage.try_lock(&file) {
            Ok(true) => {
                // It may have belonged to somebody who has given it up meanwhile: then it has no name.
                match self.has_name(&file) {
                    Ok(true) => {
                        self.file = Some(file);
                        Ok(Attempt::Locked)
                    }
                    other => {
                        unlock(&file);
                        other.map(|_| Attempt::Gone)
                    }
                }
            }
            Ok(false) => Ok(Attempt::Taken),
            Err(errno) => {
                // Where nothing can be locked, nobody has a lock on it.
                if matches!(errno, Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL) {
                    self.remove();
                    if !self.root.is_here() {
                        self.has_no_locks = true;
                        return self.take_here();
                    }
                }
                Err(errno)
            }
        }
    }

    /// Takes the name of a socket, which nobody else has then in this network namespace, and which is nobody's when its process has ended.
    fn take_here(&mut self) -> Result<Attempt, Errno> {
        let root = self.storage.stat_handle(self.root)?;
        let user = rustix::process::geteuid().as_raw();
        let name = format!("elbow-turn-{user}-{:x}-{:x}", root.dev, root.ino);
        let taken = SocketAddr::from_abstract_name(name).and_then(|name| UnixDatagram::bind_addr(&name));
        match taken {
            Ok(socket) => {
                self.here = Some(socket);
                Ok(Attempt::Locked)
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(Attempt::Taken),
            Err(_) => Err(Errno::OPNOTSUPP),
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
        if self.has_no_locks {
            return runs_another(self.storage, self.root, own).unwrap_or(true);
        }
        let owner = self.storage.stat(self.root, OsStr::new(TURN)).map(|stat| stat.uid);
        owner == Ok(rustix::process::geteuid().as_raw()) && runs_another(self.storage, self.root, own).unwrap_or(true)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // While it is locked, so that nobody locks it in between.
        if let Some(file) = &self.file {
            self.remove();
            unlock(file);
        }
    }
}

/// Whether there is another job in the directory than this, which is not a kept one.
pub(super) fn runs_another(storage: &dyn Storage, root: &Handle, own: &OsStr) -> Result<bool, Errno> {
    let jobs = storage.list(root)?.into_iter().map(|entry| entry.name);
    let mut others = jobs.filter(|name| is_job_name(name) && name != own);
    Ok(others.any(|name| {
        let job = storage.open_dir(root, &name);
        job.and_then(|job| storage.stat(&job, OsStr::new(MANIFEST))).is_ok()
    }))
}

/// Why a job does not commit that was not told whose turn it is.
pub(crate) fn no_turn(errno: Errno) -> String {
    format!("waiting for other commits: {errno}")
}

/// It says nothing of whether files can be locked and made there at another moment.
fn is_passing(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::STALE
            | Errno::IO
            | Errno::AGAIN
            | Errno::INTR
            | Errno::TIMEDOUT
            | Errno::NOTCONN
            | Errno::CONNABORTED
            | Errno::CONNRESET
            | Errno::NOMEM
            | Errno::MFILE
            | Errno::NFILE
    )
}

/// Removes the file of a turn whose job has died. The directory keeps its times: there may be no job any more whose roll back puts them back.
pub(crate) fn remove_old_turn(storage: &dyn Storage, root: &Handle) {
    let mut before = storage.stat_handle(root);
    let mut turn = Turn::none(storage, root);
    let is_there = || none_if_missing(storage.stat(root, OsStr::new(TURN))).is_ok_and(|found| found.is_some());
    let mut pause = PAUSE_FIRST;
    // The turn of another job is left alone. Without one the lock is on its way: what the dead process was about to start has
    // its descriptors until it is another program.
    while is_there() && matches!(turn.attempt(), Ok(Attempt::Taken)) {
        if pause > PAUSE_LAST || runs_another(storage, root, OsStr::new("")).unwrap_or(true) {
            break;
        }
        std::thread::sleep(pause);
        pause *= 2;
    }
    // Not once more when it is dropped: by then it may be another one's.
    let file = turn.file.take();
    if file.is_some() {
        // Nobody else commits while it is locked.
        before = storage.stat_handle(root);
        turn.remove();
    }
    if let Some(before) = before.ok().filter(|_| file.is_some() || turn.here.is_some()) {
        let _ = put_times_back(storage, root, (before.atime, before.mtime));
    }
    file.iter().for_each(unlock);
}
