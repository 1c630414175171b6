//! One action becomes storage calls. Blocks; holds no lock; knows nothing of the model.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::IoSlice;
use std::ops::Range;

use elbow_file::{Access, Errno, Handle, RenameMode, Storage, Time};
use elbow_ranges::RangeSet;
use serde::{Deserialize, Serialize};

use crate::abilities::{self, Ability, Trial};
use crate::action::{Action, FillTarget, NewAttrs, Node};
use crate::api::Ino;
use crate::closed;
use crate::complete::Done;
use crate::copy_there::copy_from;
use crate::job_files::{PRIVATE_FILE_MODE, STAGING_MODE};
use crate::liveness::{self, Attempt, Lock};
use crate::lost_answers;
use crate::model::{CAPABILITY, DEFAULT_ACL, Fill, IN_TRANSIT, Name, Piece};
use crate::os_path;
use crate::patch_files::make_dir_of_patch;
use crate::route::{Route, StorageName, open_route};
use crate::spill::Spilled;
use crate::staging::{JOURNAL, JobHome, JournalEntry, MANIFEST, MANIFEST_DRAFT, Manifest, NEW};

/// Zeros are written from a buffer of this size where holes cannot be punched.
const ZEROS_BYTES: usize = 64 << 10;
/// This much spilled data is read back for one call, outside the memory budget: little, for many threads do it.
const UNSPILL_BYTES: u64 = 128 << 10;
/// At most this much is written with one call: as much as file systems take at once, and seldom enough to tell of each.
const WRITE_BYTES: u64 = 1 << 20;

/// What an executor needs beside the action.
pub(crate) struct Executor<'a> {
    pub(crate) storage: &'a dyn Storage,
    pub(crate) staging_name: &'a OsStr,
    pub(crate) part_name: &'a OsStr,
    pub(crate) journal: &'a parking_lot::Mutex<Option<Journal>>,
    /// Makes the manifest of this job.
    pub(crate) manifest: &'a dyn Fn(JobHome) -> Manifest,
    /// Holds the lock of the manifest while the job lives.
    pub(crate) lock: &'a Lock,
    /// The path of a directory below the job's, and its times before.
    pub(crate) journal_path: std::path::PathBuf,
    pub(crate) times_before: (Time, Time),
    /// Is told when a new object has its name: others may be created in its directory meanwhile.
    pub(crate) arrived: &'a dyn Fn(),
    /// Is told how many bytes a call has written.
    pub(crate) wrote: &'a dyn Fn(u64),
}

/// The journal and its end.
#[derive(Debug)]
pub(crate) struct Journal {
    /// The job's own directory.
    dir: Handle,
    /// The file, once it is needed here.
    file: Option<Handle>,
    state: JournalState,
}

/// How far a journal goes, and what is in it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct JournalState {
    end: u64,
    /// What it says of directories that nothing else knows to be touched.
    pub(crate) touched: Vec<TouchedDir>,
}

/// An old directory that was opened so that something could be staged in it, or in which it was tried whether names can be removed, with its times
/// and its mode before, if that was changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TouchedDir {
    #[serde(with = "os_path")]
    pub(crate) path: std::path::PathBuf,
    pub(crate) times: (Time, Time),
    pub(crate) mode: Option<u32>,
}

impl Executor<'_> {
    pub(crate) fn run(&self, action: &Action) -> Result<Done, Errno> {
        let mut done = Done::default();
        match self.act(action, &mut done) {
            Ok(()) => Ok(done),
            Err(errno) => {
                self.unmake(action, &done);
                if errno == Errno::EXIST && !done.is_made {
                    self.note_taken(action)?;
                }
                Err(errno)
            }
        }
    }

    /// What has the name is somebody else's: whoever ends the job must not remove it.
    fn note_taken(&self, action: &Action) -> Result<(), Errno> {
        match action {
            Action::Create { at, .. } | Action::Move { to: at, .. } | Action::Link { to: at, .. } if at.visible => self
                .journal(&JournalEntry::Taken {
                    path: self.journal_path.join(&*at.key.name),
                }),
            _ => Ok(()),
        }
    }

    fn act(&self, action: &Action, done: &mut Done) -> Result<(), Errno> {
        match action {
            Action::Stage { at, opened } if at.owner.dir() == Ino::ROOT => self.stage_root(at, *opened, done)?,
            Action::Stage { at, opened } => self.stage(at, *opened, done)?,
            Action::ProbeModes { job, inherited } => {
                match abilities::probe(self.storage, job, &Ability::Modes, *inherited) {
                    Trial::Modes(modes) => done.modes = Some(modes),
                    Trial::Answer(answer) => answer?,
                    Trial::Behaviour(..) => {}
                }
            }
            Action::ProbeLinks { job } => done.link_attributes = probe_links(self.storage, job)?,
            Action::Create {
                at,
                node,
                mode,
                fill,
                attrs,
                keep_open,
            } => {
                self.create(at, node, *mode, fill, attrs, done)?;
                if let Some(file) = done.file.take_if(|_| !keep_open) {
                    self.storage.close(&file)?;
                }
            }
            Action::Move { from, to, clobbers } => {
                let (a, b) = (self.open(&from.route, done)?, self.open(&to.route, done)?);
                self.note_visible(to)?;
                done.calls += 1;
                let is_shown = to.visible;
                let (from, to) = ((&a, &*from.key.name), (&b, &*to.key.name));
                // A name that everybody sees may be somebody else's by now.
                match is_shown && clobbers.is_none() {
                    true => lost_answers::rename_to_free(self.storage, from, to)?,
                    false => lost_answers::rename(self.storage, from, to, RenameMode::Replace)?,
                }
            }
            Action::Link { from, to, seen } => {
                let (a, b) = (self.open(&from.route, done)?, self.open(&to.route, done)?);
                self.note_visible(to)?;
                done.calls += 1;
                let to = (&b, &*to.key.name);
                lost_answers::link(self.storage, (&a, &*from.key.name), to)?;
                let traits = || self.storage.file_system_traits(&b);
                if let Some(seen) = seen
                    && !seen.is(&self.storage.stat(to.0, to.1)?, traits)
                {
                    self.storage.unlink(to.0, to.1)?;
                    return Err(Errno::STALE);
                }
            }
            Action::Remove { at, keep_open } => self.remove(at, *keep_open, done)?,
            Action::RemoveDir { at } => {
                let dir = self.open(&at.route, done)?;
                done.calls += 1;
                self.storage.rmdir(&dir, &at.key.name)?;
            }
            Action::Fill { target, fill, attrs } => self.fill_target(target, fill, attrs, done)?,
            Action::SetAttributes { at, attrs } => {
                let dir = self.open(&at.route, done)?;
                self.set_named(&dir, &at.key.name, attrs, done)?;
            }
        }
        Ok(())
    }

    /// Opens a directory; its new owner keeps the descriptor.
    fn open(&self, route: &Route, done: &mut Done) -> Result<Handle, Errno> {
        if route.names.is_empty() {
            return Ok(route.base.clone());
        }
        let handle = open_route(self.storage, route)?;
        done.directories.push((route.owner, handle.clone()));
        Ok(handle)
    }

    fn stage_root(&self, at: &Route, opened: Option<u32>, done: &mut Done) -> Result<(), Errno> {
        let root = self.open(at, done)?;
        self.storage.mkdir(&root, self.staging_name, STAGING_MODE)?;
        done.loses_group = self.open_up(&root, self.staging_name, opened)?;
        let job = self.storage.open_dir(&root, self.staging_name)?;
        self.write_manifest(&root, &job, opened.is_some())?;
        self.storage.mkdir(&job, OsStr::new(NEW), STAGING_MODE)?;
        // What it would give on is another group by now.
        let opened_below = opened.map(|mode| if done.loses_group { mode & !SET_GROUP_ID } else { mode });
        done.loses_group |= self.open_up(&job, OsStr::new(NEW), opened_below)?;
        if opened.is_some() {
            // The other files of the job itself would have too little as well.
            self.storage
                .remove_xattr(&root, self.staging_name, OsStr::new(DEFAULT_ACL))?;
        }
        *self.journal.lock() = Some(Journal::create(self.storage, &job)?);
        // Whatever is staged from here on can be undone, also when the power fails.
        sync_names(self.storage, &job)?;
        sync_names(self.storage, &root)?;
        done.calls += 11;
        done.job_dir = Some(job);
        Ok(())
    }

    /// The manifest has its name when it is whole, locked and durable: who finds it needs to wait for nothing.
    fn write_manifest(&self, root: &Handle, job: &Handle, inherits_little: bool) -> Result<(), Errno> {
        let (draft, name) = (OsStr::new(MANIFEST_DRAFT), OsStr::new(MANIFEST));
        let file = self.storage.create(job, draft, PRIVATE_FILE_MODE)?;
        if inherits_little {
            self.storage.chmod_handle(&file, PRIVATE_FILE_MODE)?;
        }
        let is_locked = matches!(liveness::attempt_often(self.storage, &file)?, Attempt::Locked);
        let dev = self.storage.stat_handle(root)?.dev;
        let shares_locks = self.storage.file_system_traits(root)?.shares_locks;
        let (ino, born) = (self.storage.stat_handle(job)?.ino, self.storage.identity(job)?.born);
        let home = JobHome::here(self.staging_name, dev, is_locked, shares_locks).of_directory(ino, born);
        let manifest = (self.manifest)(home).encode();
        self.storage.write(&file, &[IoSlice::new(&manifest)], 0)?;
        self.storage.sync(&file)?;
        lost_answers::rename(self.storage, (job, draft), (job, name), RenameMode::Replace)?;
        self.lock.hold(file);
        Ok(())
    }

    /// A staging directory that has inherited a default ACL which gives too little to its owner. Who is not in its group takes set-group-id from it
    /// by that: `true`.
    fn open_up(&self, dir: &Handle, name: &OsStr, opened: Option<u32>) -> Result<bool, Errno> {
        let Some(mode) = opened else { return Ok(false) };
        self.storage.chmod(dir, name, mode)?;
        Ok(mode & SET_GROUP_ID != 0 && self.storage.stat(dir, name)?.mode & SET_GROUP_ID == 0)
    }

    /// The journal knows of a staging directory before it exists.
    fn stage(&self, at: &Route, opened: Option<u32>, done: &mut Done) -> Result<(), Errno> {
        let dir = self.open(at, done)?;
        let note = |closed| {
            self.journal(&JournalEntry::Staging {
                dir: self.journal_path.clone(),
                times: self.times_before,
                closed,
            })
        };
        note(None)?;
        let make = || self.storage.mkdir(&dir, self.part_name, STAGING_MODE);
        closed::change_names(self.storage, &dir, |mode| note(Some(mode)), make)?;
        done.loses_group = self.open_up(&dir, self.part_name, opened)?;
        done.calls += 2;
        Ok(())
    }

    fn note_visible(&self, at: &StorageName) -> Result<(), Errno> {
        if !at.visible {
            return Ok(());
        }
        self.journal(&JournalEntry::Visible {
            path: self.journal_path.join(&*at.key.name),
        })
    }

    fn journal(&self, entry: &JournalEntry) -> Result<(), Errno> {
        let mut journal = self.journal.lock();
        journal.as_mut().ok_or(Errno::BADF)?.append(self.storage, entry)
    }

    fn create(
        &self,
        at: &StorageName,
        node: &Node,
        mode: u32,
        fill: &Fill,
        attrs: &NewAttrs,
        done: &mut Done,
    ) -> Result<(), Errno> {
        let dir = self.open(&at.route, done)?;
        let name = &*at.key.name;
        self.note_visible(at)?;
        done.calls += 1;
        match node {
            Node::File => {
                let file = made(self.storage.create(&dir, name, mode), done)?;
                (self.arrived)();
                self.fill(&file, fill, done)?;
                done.calls += set_all(self.storage, Subject::Open(&file), attrs)?;
                done.file = Some(file);
                return Ok(());
            }
            Node::Dir => {
                made(self.storage.mkdir(&dir, name, mode), done)?;
                (self.arrived)();
                // Kept, so that what is made in it finds it even while it moves.
                done.made = Some(self.storage.open_dir(&dir, name)?);
            }
            Node::Symlink(target) => made(self.storage.symlink(target, &dir, name), done)?,
            Node::Special(kind, rdev) => made(self.storage.mknod(&dir, name, *kind, mode, *rdev), done)?,
        }
        self.set_named(&dir, name, attrs, done)
    }

    /// Takes back what was made and not finished: nobody else knows that it is there, and it may be made once more.
    fn unmake(&self, action: &Action, done: &Done) {
        let Action::Create { at, node, .. } = action else {
            return;
        };
        if !done.is_made {
            return;
        }
        // If this is refused too, the roll back does it.
        let _ = open_route(self.storage, &at.route).and_then(|dir| match node {
            Node::Dir => self.storage.rmdir(&dir, &at.key.name),
            _ => self.storage.unlink(&dir, &at.key.name),
        });
    }

    fn remove(&self, at: &StorageName, keep_open: bool, done: &mut Done) -> Result<(), Errno> {
        let dir = self.open(&at.route, done)?;
        let name = &*at.key.name;
        done.calls += 1;
        if keep_open {
            done.file = Some(open_writable(self.storage, &dir, name)?);
        }
        self.storage.unlink(&dir, name)
    }

    fn fill_target(&self, target: &FillTarget, fill: &Fill, attrs: &NewAttrs, done: &mut Done) -> Result<(), Errno> {
        let file = match target {
            FillTarget::Open(file) => file.clone(),
            FillTarget::Named(at) => {
                let dir = self.open(&at.route, done)?;
                open_writable(self.storage, &dir, &at.key.name)?
            }
            FillTarget::Patch(route, name) => self.open_patch(route, name)?,
            FillTarget::NewPatch(route, name) => self.make_patch(route, name)?,
        };
        self.fill(&file, fill, done)?;
        done.calls += set_all(self.storage, Subject::Open(&file), attrs)?;
        done.file = Some(file);
        Ok(())
    }

    fn open_patch(&self, route: &Route, name: &Name) -> Result<Handle, Errno> {
        debug_assert_eq!(
            route.owner.dir(),
            IN_TRANSIT,
            "patches live below the job's own directory"
        );
        let dir = open_route(self.storage, route)?;
        self.storage.open(&dir, name, Access::ReadWrite)
    }

    fn make_patch(&self, route: &Route, name: &Name) -> Result<Handle, Errno> {
        let dir = make_dir_of_patch(self.storage, &route.base, route.names.first())?;
        match self.storage.create(&dir, name, PRIVATE_FILE_MODE) {
            // An attempt before was refused later.
            Err(Errno::EXIST) => self.open_patch(route, name),
            made => made,
        }
    }

    fn fill(&self, file: &Handle, fill: &Fill, done: &mut Done) -> Result<(), Errno> {
        if let Some(size) = fill.cut {
            done.calls += 1;
            self.storage.truncate(file, size)?;
        }
        write_pieces(self, file, fill, &mut done.calls)?;
        if let Some(size) = fill.size {
            done.calls += 1;
            self.storage.truncate(file, size)?;
        }
        let within = fill.reserved_within();
        done.calls += fill.reserve.len() as u64;
        reserve(self.storage, file, &within, false)?;
        reserve(self.storage, file, &fill.reserve.difference(&within), true)
    }

    fn set_named(&self, dir: &Handle, name: &OsStr, attrs: &NewAttrs, done: &mut Done) -> Result<(), Errno> {
        done.calls += set_attributes(self.storage, dir, name, attrs)?;
        Ok(())
    }
}

impl Journal {
    pub(crate) fn create(storage: &dyn Storage, job_dir: &Handle) -> Result<Self, Errno> {
        Ok(Self {
            file: Some(storage.create(job_dir, OsStr::new(JOURNAL), PRIVATE_FILE_MODE)?),
            dir: job_dir.clone(),
            state: JournalState::default(),
        })
    }

    /// One that somebody else has begun, in the job's own directory.
    pub(crate) fn begun(dir: Handle, state: JournalState) -> Self {
        Self { dir, file: None, state }
    }

    /// Somebody else has written to it. Of two who tell, the later may come first.
    pub(crate) fn note(&mut self, state: JournalState) {
        if state.end > self.state.end {
            self.state = state;
        }
    }

    pub(crate) fn state(&self) -> JournalState {
        self.state.clone()
    }

    /// What it says of directories that nothing else knows to be touched.
    pub(crate) fn touched(&self) -> &[TouchedDir] {
        &self.state.touched
    }

    /// The journal of a job that goes on, whose last entry ends there.
    pub(crate) fn reopen(storage: &dyn Storage, job_dir: &Handle, end: u64) -> Result<Self, Errno> {
        let file = storage.open(job_dir, OsStr::new(JOURNAL), Access::ReadWrite)?;
        let touched = Vec::new();
        Ok(Self {
            file: Some(file),
            dir: job_dir.clone(),
            state: JournalState { end, touched },
        })
    }

    /// One more entry, durable when this returns.
    pub(crate) fn append(&mut self, storage: &dyn Storage, entry: &JournalEntry) -> Result<(), Errno> {
        self.write(storage, &entry.encode())?;
        // Only of a directory that was opened the model does not know what to put back.
        if let JournalEntry::Staging { closed: Some(_), .. } = entry {
            self.state.touched.extend(TouchedDir::of(entry));
        }
        Ok(())
    }

    /// Directories in which something is about to be tried under the name of a staging directory. All at once, as a sync takes its time.
    pub(crate) fn append_trials(&mut self, storage: &dyn Storage, entries: &[JournalEntry]) -> Result<(), Errno> {
        let bytes: Vec<u8> = entries.iter().flat_map(JournalEntry::encode).collect();
        self.write(storage, &bytes)?;
        self.state.touched.extend(entries.iter().filter_map(TouchedDir::of));
        Ok(())
    }

    fn write(&mut self, storage: &dyn Storage, bytes: &[u8]) -> Result<(), Errno> {
        let file = match &self.file {
            Some(file) => file,
            None => {
                let opened = storage.open(&self.dir, OsStr::new(JOURNAL), Access::ReadWrite)?;
                self.file.insert(opened)
            }
        };
        storage.write(file, &[IoSlice::new(bytes)], self.state.end)?;
        storage.sync(file)?;
        self.state.end += bytes.len() as u64;
        Ok(())
    }
}

impl TouchedDir {
    fn of(entry: &JournalEntry) -> Option<Self> {
        match entry {
            JournalEntry::Staging { dir, times, closed } => Some(Self {
                path: dir.clone(),
                times: *times,
                mode: *closed,
            }),
            JournalEntry::Visible { .. } | JournalEntry::Taken { .. } => None,
        }
    }
}

/// Makes the names in a directory durable. Some file systems cannot sync a directory, and one that may not be read cannot be
/// opened for that.
fn sync_names(storage: &dyn Storage, dir: &Handle) -> Result<(), Errno> {
    match storage.sync(dir) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::ACCESS) => Ok(()),
        other => other,
    }
}

/// A link that points nowhere: a storage that follows it finds nothing to set the times of.
pub(crate) fn probe_links(storage: &dyn Storage, job: &Handle) -> Result<bool, Errno> {
    let name = OsStr::new("probe");
    match storage.symlink(OsStr::new("missing"), job, name) {
        Err(Errno::EXIST) => {} // another thread probes at this moment
        other => other?,
    }
    let time = Some(Time::default());
    Ok(storage.set_times(job, name, time, time) != Err(Errno::NOENT))
}

/// What a creating call gave, after it was noted whether there is something now.
fn made<T>(answer: Result<T, Errno>, done: &mut Done) -> Result<T, Errno> {
    done.is_made = match &answer {
        Ok(_) => true,
        Err(errno) => lost_answers::may_be_made(*errno),
    };
    answer
}

/// Sets attributes of a named object. Returns the number of calls.
pub(crate) fn set_attributes(
    storage: &dyn Storage,
    dir: &Handle,
    name: &OsStr,
    attrs: &NewAttrs,
) -> Result<u64, Errno> {
    set_all(storage, Subject::Named(dir, name), attrs)
}

/// What attributes are set of.
#[derive(Clone, Copy)]
enum Subject<'a> {
    Named(&'a Handle, &'a OsStr),
    Open(&'a Handle),
}

/// Sets attributes in the order in which none takes away what another gave: a change of owner takes set-user-id and file
/// capabilities, an ACL changes the mode, and all of them the time of the last change. Content comes before all of them.
fn set_all(storage: &dyn Storage, subject: Subject<'_>, attrs: &NewAttrs) -> Result<u64, Errno> {
    let mut calls = attrs.xattrs.len() as u64;
    if let Some((uid, gid)) = attrs.owner {
        calls += 1;
        subject.chown(storage, uid, gid)?;
    }
    for (key, value) in &attrs.xattrs {
        set_xattr(storage, subject, key, value.as_deref())?;
    }
    if let Some(mode) = attrs.mode {
        calls += 1;
        subject.chmod(storage, mode)?;
    }
    if let Some((atime, mtime)) = attrs.times {
        calls += 1;
        subject.set_times(storage, atime, mtime)?;
    }
    Ok(calls)
}

impl Subject<'_> {
    fn chown(self, storage: &dyn Storage, uid: u32, gid: u32) -> Result<(), Errno> {
        match self {
            Self::Named(dir, name) => storage.chown(dir, name, Some(uid), Some(gid)),
            Self::Open(file) => storage.chown_handle(file, Some(uid), Some(gid)),
        }
    }

    fn chmod(self, storage: &dyn Storage, mode: u32) -> Result<(), Errno> {
        match self {
            Self::Named(dir, name) => storage.chmod(dir, name, mode),
            Self::Open(file) => storage.chmod_handle(file, mode),
        }
    }

    fn mode(self, storage: &dyn Storage) -> Result<u32, Errno> {
        match self {
            Self::Named(dir, name) => storage.stat(dir, name),
            Self::Open(file) => storage.stat_handle(file),
        }
        .map(|stat| stat.mode)
    }

    fn set_times(self, storage: &dyn Storage, atime: Time, mtime: Time) -> Result<(), Errno> {
        match self {
            Self::Named(dir, name) => storage.set_times(dir, name, Some(atime), Some(mtime)),
            Self::Open(file) => storage.set_times_handle(file, Some(atime), Some(mtime)),
        }
    }

    /// Sets an extended attribute, or removes it.
    fn put_xattr(self, storage: &dyn Storage, key: &OsStr, value: Option<&[u8]>) -> Result<(), Errno> {
        match (self, value) {
            (Self::Named(dir, name), Some(value)) => storage.set_xattr(dir, name, key, value),
            (Self::Named(dir, name), None) => storage.remove_xattr(dir, name, key),
            (Self::Open(file), Some(value)) => storage.set_xattr_handle(file, key, value),
            (Self::Open(file), None) => storage.remove_xattr_handle(file, key),
        }
    }
}

/// Sets an extended attribute to a value or to none. Those of users ask for write permission, which the owner may have
/// taken away from itself in the meantime (`chmod 444`).
fn set_xattr(storage: &dyn Storage, subject: Subject<'_>, key: &OsStr, value: Option<&[u8]>) -> Result<(), Errno> {
    let put = || match subject.put_xattr(storage, key, value) {
        Err(Errno::NODATA) if value.is_none() => Ok(()),
        // An ordinary user may not remove them, and need not: the change that took them away in the job takes them here.
        Err(Errno::PERM) if value.is_none() && key == CAPABILITY => Ok(()),
        other => other,
    };
    match put() {
        Err(Errno::ACCESS) => {
            let mode = subject.mode(storage)?;
            subject.chmod(storage, mode | OWNER_WRITE).map_err(|_| Errno::ACCESS)?;
            let put = put();
            subject.chmod(storage, mode)?;
            put
        }
        other => other,
    }
}

/// Of a directory: what is made in it gets its group.
pub(crate) const SET_GROUP_ID: u32 = 0o2000;
/// What [`set_xattr`] gives to the owner for a moment.
const OWNER_WRITE: u32 = 0o200;
/// What [`open_writable`] does.
const OWNER_READ_WRITE: u32 = 0o600;

/// A step may give the owner of an object of this mode a right for a moment.
pub(crate) fn is_ever_opened(mode: u32) -> bool {
    mode & OWNER_READ_WRITE != OWNER_READ_WRITE
}

/// The mode that an object has now is its own and the right that a step has given for a moment: who died in that moment left it so.
pub(crate) fn was_opened(mode: u32, now: u32) -> bool {
    now != mode && [OWNER_WRITE, OWNER_READ_WRITE].iter().any(|right| now == mode | right)
}

/// Opens a file for writing whose mode may forbid that to its owner (made 0444, as git's objects are).
pub(crate) fn open_writable(storage: &dyn Storage, dir: &Handle, name: &OsStr) -> Result<Handle, Errno> {
    match storage.open(dir, name, Access::ReadWrite) {
        Err(Errno::ACCESS) => {
            let mode = storage.stat(dir, name)?.mode;
            storage.chmod(dir, name, mode | OWNER_READ_WRITE)?;
            let opened = storage.open(dir, name, Access::ReadWrite);
            storage.chmod(dir, name, mode)?;
            opened
        }
        other => other,
    }
}

/// Adjacent pieces that are written with one call.
#[derive(Default)]
struct Run<'a> {
    start: u64,
    end: u64,
    pieces: Vec<Cow<'a, [u8]>>,
    /// Bytes that had to be read back from the spill file.
    unspilled_bytes: u64,
}

impl<'a> Run<'a> {
    fn push(&mut self, range: &Range<u64>, bytes: Cow<'a, [u8]>) {
        if self.pieces.is_empty() {
            self.start = range.start;
        }
        self.end = range.end;
        self.pieces.push(bytes);
    }

    fn takes(&self, range: &Range<u64>) -> bool {
        /// `IOV_MAX` of Linux.
        const SLICES_MAX: usize = 1024;
        let is_small = range.end - self.start <= WRITE_BYTES && self.unspilled_bytes < UNSPILL_BYTES;
        range.start == self.end && self.pieces.len() < SLICES_MAX && is_small
    }

    fn write(&mut self, executor: &Executor<'_>, file: &Handle, calls: &mut u64) -> Result<(), Errno> {
        if !self.pieces.is_empty() {
            *calls += 1;
            let slices: Vec<IoSlice<'_>> = self.pieces.iter().map(|piece| IoSlice::new(piece)).collect();
            executor.storage.write(file, &slices, self.start)?;
            (executor.wrote)(self.end - self.start);
        }
        *self = Self::default();
        Ok(())
    }
}

/// Writes pieces, adjacent ones with one call.
fn write_pieces(executor: &Executor<'_>, file: &Handle, fill: &Fill, calls: &mut u64) -> Result<(), Errno> {
    let mut run = Run::default();
    for (range, piece) in &fill.pieces {
        match piece {
            Piece::Memory(chunk) => {
                if !run.takes(range) {
                    run.write(executor, file, calls)?;
                }
                run.push(range, Cow::Borrowed(chunk.bytes()));
            }
            Piece::Spill(spilled) => {
                for part in parts(range, UNSPILL_BYTES) {
                    if !run.takes(&part) {
                        run.write(executor, file, calls)?;
                    }
                    run.unspilled_bytes += part.end - part.start;
                    let bytes = unspill(spilled, part.start - range.start, part.end - part.start)?;
                    run.push(&part, Cow::Owned(bytes));
                }
            }
            Piece::Copy(copy) => {
                run.write(executor, file, calls)?;
                *calls += 1;
                copy_from(executor.storage, copy, file, range)?;
                (executor.wrote)(range.end - range.start);
            }
            Piece::Zero => {
                run.write(executor, file, calls)?;
                write_zeros(executor.storage, file, range, calls)?;
            }
        }
    }
    run.write(executor, file, calls)
}

/// A range in parts of at most `most` bytes.
fn parts(range: &Range<u64>, most: u64) -> impl Iterator<Item = Range<u64>> {
    let end = range.end;
    (range.start..end)
        .step_by(most as usize)
        .map(move |start| start..end.min(start + most))
}

/// Reads a part of a piece back.
pub(crate) fn unspill(spilled: &Spilled, at: u64, length: u64) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; length as usize];
    spilled.read(&mut bytes, at).map_err(|_| Errno::IO)?;
    Ok(bytes)
}

/// Reserves space. A storage that cannot has none to be found full.
pub(crate) fn reserve(storage: &dyn Storage, file: &Handle, ranges: &RangeSet, keep_size: bool) -> Result<(), Errno> {
    for range in ranges {
        match storage.allocate(file, range.start, range.end - range.start, keep_size) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
            other => other?,
        }
    }
    Ok(())
}

/// Makes a range zero as far as the file goes.
pub(crate) fn write_zeros(
    storage: &dyn Storage,
    file: &Handle,
    range: &Range<u64>,
    calls: &mut u64,
) -> Result<(), Errno> {
    *calls += 1;
    match storage.punch(file, range.start, range.end - range.start) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
        other => return other,
    }
    // As with a hole, the file gets no longer.
    let end = range.end.min(storage.stat_handle(file)?.size);
    let zeros = [0u8; ZEROS_BYTES];
    let mut at = range.start;
    while at < end {
        let length = (end - at).min(ZEROS_BYTES as u64);
        storage.write(file, &[IoSlice::new(&zeros[..length as usize])], at)?;
        at += length;
    }
    Ok(())
}
