//! Restoring what was saved elsewhere of a job (`commit::save`): it is staged as if the storage had taken it at once.
//!
//! ```text
//!   own          the job's own directory, where there is none yet, marked as that of a kept job
//!   containers   staging directories, each in the journal before it is made
//!   objects      directories from the top, then all else; attributes of directories from below, last
//!   patches      new content of old files
//!   sync, record `resume`: from here on it is a kept job as any other, and what was saved is removed
//! ```
//!
//! Each step can be done again: what is not there yet is made anew, whatever a death or a full disk has left under its name.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use elbow_file::{Errno, FileType, Handle, ShowName, Stat, Storage, Time};
use elbow_ranges::encoding::DecodeError;
use parking_lot::Mutex;

use crate::action::{Action, NewAttrs, NewXattrs, Node};
use crate::api::Ino;
use crate::clock::clock;
use crate::commit::{
    Part, PatchFile, Position, Saved, SavedContent, SavedDir, SavedError, SavedObject, Tree, candidates,
    put_times_back, remove_job_dir, write_sealed,
};
use crate::execute::{Executor, Journal, open_writable, probe_links, set_attributes, write_zeros};
use crate::found::{THREADS, error, look_at, read_journal_to, waits};
use crate::job_files::RESUME;
use crate::kept;
use crate::liveness::Lock;
use crate::missing::none_if_missing;
use crate::model::{ACCESS_ACL, DEFAULT_ACL, IN_TRANSIT};
use crate::ownership::{OwnDirectory, Ownership, OwnershipCheck};
use crate::parallel::parallel;
use crate::patch_files::{PatchDirs, dir_of_patch, make_dir_of_patch};
use crate::removal::remove_tree;
use crate::report::JobError;
use crate::root_id::{Elsewhere, RootId};
use crate::route::{DirSide, Route};
use crate::staging::{JobHome, Manifest, NEW, is_job_name, part_name};
use crate::step_counter::StepCounter;

const OWNER_ALL: u32 = 0o700;
const PRIVATE_FILE_MODE: u32 = 0o600;
/// Directories that are remembered, and so kept open.
const KNOWN_MAX: usize = 256;

/// A job of which a part, or all, was saved outside of its directory.
#[derive(Clone, Debug)]
pub struct SavedJob {
    /// The directory that holds what was saved of it.
    pub path: PathBuf,
    /// Its staging directory's name.
    pub job: OsString,
    /// The directory that it was run on, as it was named then.
    pub directory: PathBuf,
    /// The command that it ran, with its arguments.
    pub command: Vec<OsString>,
    /// Bytes that were saved.
    pub bytes: u64,
    /// Nothing of the job is in its directory.
    pub is_all: bool,
    /// The rest of it could not be marked as kept: the next recovery does that.
    pub is_left: bool,
}

/// Jobs of a directory of which something was saved in one of these places. `path` is its name now, and `elsewhere` where it is if it is not here. What
/// cannot be read is not listed.
#[must_use]
pub fn saved_jobs(
    storage: &Arc<dyn Storage>,
    root: &Handle,
    path: &Path,
    elsewhere: Option<&Elsewhere>,
    places: &[PathBuf],
) -> Vec<SavedJob> {
    let all = places.iter().flat_map(|place| candidates(place));
    let read = all.filter_map(|found| Some((SavedDir::look_at(&found).ok()?, found)));
    let home = RootId::of(&**storage, root, path, elsewhere);
    let of_root = read.filter(|(saved, _)| saved.home.is(&home));
    let job = |(saved, path): (Saved, PathBuf)| SavedJob {
        is_left: SavedDir::is_left_at(&path),
        path,
        bytes: saved.data_bytes(),
        job: saved.job,
        directory: saved.home.path,
        command: saved.command,
        is_all: saved.is_all,
    };
    of_root.map(job).collect()
}

/// What other versions of this program saved in these places: whose it is cannot be told.
#[must_use]
pub fn saved_by_other_versions(places: &[PathBuf]) -> Vec<PathBuf> {
    let all = places.iter().flat_map(|place| candidates(place));
    let is_other = |found: &PathBuf| {
        let read = SavedDir::look_at(found);
        matches!(read, Err(SavedError::Index(DecodeError::UnknownVersion { .. })))
    };
    all.filter(is_other).collect()
}

/// The places in which jobs of a directory save, as far as these have left anything there and ran on this machine.
#[must_use]
pub fn save_places(storage: &Arc<dyn Storage>, root: &Handle) -> Vec<PathBuf> {
    let storage = &**storage;
    let (Ok(ownership), Ok(listed)) = (OwnershipCheck::new(storage, root), storage.list(root)) else {
        return Vec::new();
    };
    let jobs = listed.iter().map(|entry| &entry.name).filter(|name| is_job_name(name));
    let manifests = jobs.filter_map(|name| match ownership.open(name) {
        Ok(Ownership::Ours(own)) => look_at(storage, &own).ok()?.into_manifest(),
        _ => None,
    });
    let of_here = manifests.filter(Manifest::is_of_this_machine);
    of_here.flat_map(|manifest| manifest.save).collect()
}

/// Removes what was saved of a job, which then cannot go on any more.
///
/// # Errors
/// [`JobError::NotSaved`] for a directory in which nothing was saved, or whose files cannot be removed.
pub fn drop_saved(path: &Path) -> Result<(), JobError> {
    let (dir, _) = SavedDir::open(path).map_err(not_saved(path))?;
    dir.remove().map_err(not_saved(path))
}

/// Brings what was saved of a job of this directory back to it, and removes it where it was: [`resume`](crate::resume()) goes on with the
/// job then. `name` is the name of the directory now, and `elsewhere` where it is if it is not here. Gives the name of the job.
///
/// # Errors
/// [`JobError::NotSaved`] when there is nothing to restore, or not for this directory; [`JobError::Storage`] when the storage refuses something,
/// after which it can be called again.
pub fn restore(
    storage: &Arc<dyn Storage>,
    root: &Handle,
    name: &Path,
    elsewhere: Option<&Elsewhere>,
    path: &Path,
) -> Result<OsString, JobError> {
    let storage = &**storage;
    let (dir, saved) = SavedDir::open(path).map_err(not_saved(path))?;
    if !saved.home.is(&RootId::of(storage, root, name, elsewhere)) {
        let home = saved.home.path.shown();
        return Err(not_saved(path)(format!("it is of a job of another directory ({home})")));
    }
    let (job, lock) = own_directory(storage, root, &saved, &dir)?;
    let failed = error("bringing what was saved back to");
    let own = OwnDirectory::of(storage, job.clone()).map_err(&failed)?;
    // One that waits has its record, which is written last: an attempt before has brought all of it back.
    if !waits(storage, &own).map_err(&failed)? {
        restore_into(storage, root, &saved, &dir, (&job, &lock))?;
    }
    lock.give_up(storage);
    // All of it is on the storage. What cannot be removed here is only in the way.
    let _ = dir.remove();
    Ok(saved.job)
}

fn refused(path: &Path, errno: Errno) -> JobError {
    JobError::storage("bringing back what was saved of", Path::new(".").join(path))(errno)
}

fn refused_at(at: &Position, errno: Errno) -> JobError {
    refused(&at.container.join(&at.path), errno)
}

fn not_saved<F: ToString>(path: &Path) -> impl Fn(F) -> JobError {
    move |found| JobError::NotSaved {
        path: path.to_owned(),
        found: found.to_string(),
    }
}

/// The job's own directory and the lock of its manifest; made and marked as kept where all of the job was saved.
fn own_directory(
    storage: &dyn Storage,
    root: &Handle,
    saved: &Saved,
    dir: &SavedDir,
) -> Result<(Handle, Lock), JobError> {
    let failed = error("making the staging directory in");
    let found = none_if_missing(storage.stat(root, &saved.job)).map_err(&failed)?;
    match found {
        // One that runs, or is being dropped, waits for nothing: it is refused there.
        Some(_) => kept::find(storage, root, &saved.job).map(|kept| (kept.own.handle, kept.lock)),
        None if saved.is_all && !dir.has_begun() => {
            let made = make_own_directory(storage, root, saved).map_err(failed)?;
            // Who finds it missing from now on is not to make it once more: it has been committed, or dropped.
            dir.note_begun().map_err(not_saved(&dir.path))?;
            Ok(made)
        }
        None => Err(not_saved(&dir.path)(
            "the rest of the job is not in its directory: another file system was mounted there, or it has gone on since, or was dropped, and this is of no use any more",
        )),
    }
}

fn make_own_directory(storage: &dyn Storage, root: &Handle, saved: &Saved) -> Result<(Handle, Lock), Errno> {
    let before = storage.stat_handle(root)?;
    let times = (before.atime, before.mtime);
    let command = &saved.command;
    let stager = Stager {
        storage,
        saved,
        part: part_name(&saved.job),
        journal: Mutex::default(),
        lock: Lock::default(),
        manifest: &|home| Manifest::of_this_process(clock(), times, command, home),
    };
    let made = stager.stage(root, Path::new(""), times).and_then(|job| {
        let job = job.ok_or(Errno::NOENT)?;
        // While its lock is ours: a recovery would take it for a dead job later.
        kept::keep(storage, &job)?;
        put_times_back(storage, root, times)?;
        Ok(job)
    });
    match made {
        Ok(job) => Ok((job, stager.lock)),
        // Somebody else is making it.
        Err(Errno::EXIST) => Err(Errno::EXIST),
        Err(errno) => {
            // Else it looked like a job that had died, and the next one said that nothing of it was left.
            let tree = Tree::new(storage, root.clone(), THREADS).of_job(None, &stager.lock);
            let _ = remove_job_dir(&tree, &saved.job, &StepCounter::default());
            let _ = put_times_back(storage, root, times);
            Err(errno)
        }
    }
}

/// Makes staging directories as a job does.
struct Stager<'a> {
    storage: &'a dyn Storage,
    saved: &'a Saved,
    part: OsString,
    journal: Mutex<Option<Journal>>,
    lock: Lock,
    manifest: &'a (dyn Fn(JobHome) -> Manifest + Sync),
}

impl Stager<'_> {
    /// The staging directory of an old directory; for that of the job its own directory, which is given.
    fn stage(&self, dir: &Handle, path: &Path, times: (Time, Time)) -> Result<Option<Handle>, Errno> {
        // Of the root alone the executor makes the job's own directory.
        let of = if path.as_os_str().is_empty() {
            Ino::ROOT
        } else {
            IN_TRANSIT
        };
        let container = self.saved.containers.iter().find(|container| container.path == path);
        let stage = Action::Stage {
            at: Route {
                base: dir.clone(),
                names: Vec::new(),
                owner: DirSide::Own(of),
            },
            opened: container.and_then(|container| container.opened),
        };
        let executor = Executor {
            storage: self.storage,
            staging_name: &self.saved.job,
            part_name: &self.part,
            journal: &self.journal,
            manifest: self.manifest,
            lock: &self.lock,
            journal_path: path.to_owned(),
            times_before: times,
            arrived: &|| {},
            wrote: &|_| {},
        };
        Ok(executor.run(&stage)?.job_dir)
    }
}

fn restore_into(
    storage: &dyn Storage,
    root: &Handle,
    saved: &Saved,
    dir: &SavedDir,
    (job, lock): (&Handle, &Lock),
) -> Result<(), JobError> {
    let failed = error("bringing what was saved back to");
    let own = OwnDirectory::of(storage, job.clone()).map_err(&failed)?;
    let (_, end) = read_journal_to(storage, &own).map_err(&failed)?;
    let journal = Journal::reopen(storage, job, end).map_err(&failed)?;
    let has_links = saved
        .objects
        .iter()
        .any(|object| matches!(object.node, Node::Symlink(_)));
    let restoration = Restoration {
        storage,
        saved,
        dir,
        job: job.clone(),
        tree: Tree::new(storage, root.clone(), THREADS).of_job(Some(job.clone()), lock),
        stager: Stager {
            storage,
            saved,
            part: part_name(&saved.job),
            journal: Mutex::new(Some(journal)),
            lock: Lock::default(),
            manifest: &|_| unreachable!("its own directory is there"),
        },
        known: Mutex::default(),
        // Only if it matters: the trial makes a link.
        links_have_attributes: has_links && probe_links(storage, job).map_err(&failed)?,
    };
    restoration.run()
}

/// What is brought back to a kept job.
struct Restoration<'a> {
    storage: &'a dyn Storage,
    saved: &'a Saved,
    dir: &'a SavedDir,
    job: Handle,
    tree: Tree<'a>,
    stager: Stager<'a>,
    /// Directories below staging directories.
    known: Mutex<HashMap<(PathBuf, PathBuf), Handle>>,
    /// Symbolic links have attributes of their own.
    links_have_attributes: bool,
}

impl Restoration<'_> {
    fn run(&self) -> Result<(), JobError> {
        let failed = error("bringing what was saved back to");
        let root = self.storage.stat_handle(&self.tree.root).map_err(&failed)?;
        // The storage could not be reached when the job ended: it may have lost what it had taken before.
        if self.dir.is_left() {
            self.check_stored()?;
        }
        for container in &self.saved.containers {
            let at = |errno| refused(&container.path, errno);
            self.container(&container.path).map_err(at)?;
        }
        let is_dir = |object: &&SavedObject| matches!(object.node, Node::Dir);
        let (dirs, others): (Vec<_>, Vec<_>) = self.saved.objects.iter().partition(is_dir);
        // From the top: each may have its final mode from an attempt before, which lets nobody in.
        for dir in dirs.iter().filter(|dir| dir.is_made) {
            self.object(dir)?;
        }
        // When the directories they are in can be entered, and before anything new takes their names.
        for stale in &self.saved.stale {
            self.remove(stale).map_err(|errno| refused_at(stale, errno))?;
        }
        for dir in dirs.iter().filter(|dir| !dir.is_made) {
            self.object(dir)?;
        }
        let made = parallel(&others, THREADS, |object| self.object(object));
        made.into_iter().collect::<Result<(), JobError>>()?;
        // From the bottom: a mode may keep us out, and what is made in a directory changes its times.
        for object in dirs.iter().rev() {
            let at = |errno| refused_at(&object.at, errno);
            let (dir, name) = self.parent_of(&object.at).map_err(at)?;
            self.attributes(&dir, &name, object).map_err(at)?;
        }
        for patch in &self.saved.patches {
            self.patch(patch)?;
        }
        put_times_back(self.storage, &self.tree.root, (root.atime, root.mtime)).map_err(&failed)?;
        self.storage.sync_all(&self.job).map_err(&failed)?;
        // Last, and after the sync: who finds the record knows that all of it is back.
        let record = self.saved.record.encode_for(self.storage).map_err(&failed)?;
        write_sealed(self.storage, &self.job, OsStr::new(RESUME), &record).map_err(failed)
    }

    /// What the storage had taken when it was last heard of must be there: a server that went down may have forgotten it.
    fn check_stored(&self) -> Result<(), JobError> {
        let is_there = |found: Result<Stat, Errno>, kind: FileType, size: u64, path: &Path| match found {
            // An attempt before may have made it longer already.
            Ok(stat) if stat.kind == kind && (kind != FileType::File || stat.size >= size) => Ok(()),
            // Below a directory that has its final mode already.
            Err(Errno::ACCESS) => Ok(()),
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => Err(not_saved(&self.dir.path)(format!(
                "the storage does not have any more what it had taken of {}, without which the rest is of no use; `elbow recover --drop {}` removes that",
                path.shown(),
                self.saved.job.shown()
            ))),
            Err(errno) => Err(refused(path, errno)),
        };
        let new = parallel(&self.saved.stored, THREADS, |stored| {
            let at = &stored.at;
            let found = self
                .parent_of(at)
                .and_then(|(dir, name)| self.storage.stat(&dir, &name));
            is_there(found, stored.kind, stored.size, &at.container.join(&at.path))
        });
        let (dirs, patches) = (PatchDirs::of(self.job.clone()), &self.saved.record.patches);
        let old = self.saved.stored_patches.iter().map(|(slot, size)| {
            let patch = patches.iter().find(|patch| *patch.slot == **slot);
            let path = patch.map_or(Path::new(slot), |patch| &patch.path);
            let dir = dirs.of_patch(self.storage, slot);
            is_there(
                dir.and_then(|dir| self.storage.stat(&dir, slot)),
                FileType::File,
                *size,
                path,
            )
        });
        new.into_iter().chain(old).collect()
    }

    /// Makes the staging directory of an old directory, whose times stay.
    fn container(&self, path: &Path) -> Result<(), Errno> {
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        let dir = self.tree.dir(path)?;
        match self.tree.find_part(&dir, &self.stager.part)? {
            Part::Ours(_) => Ok(()),
            Part::OfOthers => Err(Errno::PERM),
            Part::None => {
                let before = self.storage.stat_handle(&dir)?;
                let times = (before.atime, before.mtime);
                self.stager.stage(&dir, path, times)?;
                put_times_back(self.storage, &dir, times)
            }
        }
    }

    /// The directory of a position, and the name there. Staging directories are those that the job has made, wherever their names lead by now.
    fn parent_of(&self, at: &Position) -> Result<(Handle, OsString), Errno> {
        let name = at.path.file_name().ok_or(Errno::NOENT)?.to_owned();
        let above = at.path.parent().unwrap_or(Path::new(""));
        let key = (at.container.clone(), above.to_owned());
        if let Some(handle) = self.known.lock().get(&key) {
            return Ok((handle.clone(), name));
        }
        let staging = if at.container.as_os_str().is_empty() {
            self.storage.open_dir(&self.job, OsStr::new(NEW))?
        } else {
            self.tree.part(&at.container, &self.stager.part)?
        };
        let open = |dir: Handle, name: &OsStr| self.storage.open_dir(&dir, name);
        let handle = above.iter().try_fold(staging, open)?;
        let mut known = self.known.lock();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(key, handle.clone());
        Ok((handle, name))
    }

    /// Removes a name of the job that it had given up.
    fn remove(&self, at: &Position) -> Result<(), Errno> {
        let (dir, name) = self.parent_of(at)?;
        remove_tree(self.storage, &dir, &name, 1, &StepCounter::default())
    }

    /// Makes an object, or what it lacks; of a directory its attributes come later.
    fn object(&self, object: &SavedObject) -> Result<(), JobError> {
        let failed = |errno| refused_at(&object.at, errno);
        let (dir, name) = self.parent_of(&object.at).map_err(&failed)?;
        if !object.is_made {
            self.make(&dir, &name, &object.node).map_err(&failed)?;
        }
        match object.node {
            Node::Dir => self.open_up(&dir, &name).map_err(&failed)?,
            Node::File => {
                if !object.is_made || !object.content.is_empty() {
                    let file = open_writable(self.storage, &dir, &name).map_err(&failed)?;
                    self.content(&file, &object.content, true, &failed)?;
                }
                self.attributes(&dir, &name, object).map_err(&failed)?;
            }
            Node::Symlink(_) | Node::Special(..) => self.attributes(&dir, &name, object).map_err(&failed)?,
        }
        for link in &object.links {
            self.link((&dir, &name), link).map_err(&failed)?;
        }
        Ok(())
    }

    /// Makes an object that nobody but its owner can open yet, in the place of whatever an attempt before has left there.
    fn make(&self, dir: &Handle, name: &OsStr, node: &Node) -> Result<(), Errno> {
        remove_tree(self.storage, dir, name, 1, &StepCounter::default())?;
        match node {
            Node::File => {
                let file = self.storage.create(dir, name, PRIVATE_FILE_MODE)?;
                self.storage.close(&file)
            }
            Node::Dir => self.storage.mkdir(dir, name, OWNER_ALL),
            Node::Symlink(target) => self.storage.symlink(target, dir, name),
            Node::Special(kind, rdev) => self.storage.mknod(dir, name, *kind, PRIVATE_FILE_MODE, *rdev),
        }
    }

    /// A directory that has its final mode from an attempt before, or inherits one, may let nobody in.
    fn open_up(&self, dir: &Handle, name: &OsStr) -> Result<(), Errno> {
        let mode = self.storage.stat(dir, name)?.mode;
        if mode & OWNER_ALL == OWNER_ALL {
            return Ok(());
        }
        self.storage.chmod(dir, name, mode | OWNER_ALL)
    }

    fn link(&self, (dir, name): (&Handle, &OsStr), to: &Position) -> Result<(), Errno> {
        let (new_dir, new_name) = self.parent_of(to)?;
        // An attempt before may have left it, and link(2) replaces nothing.
        remove_tree(self.storage, &new_dir, &new_name, 1, &StepCounter::default())?;
        self.storage.link(dir, name, &new_dir, &new_name)
    }

    fn patch(&self, patch: &PatchFile) -> Result<(), JobError> {
        let failed = error("bringing what was saved back to");
        let dir = match patch.is_made {
            true => PatchDirs::of(self.job.clone()).of_patch(self.storage, &patch.slot),
            false => make_dir_of_patch(self.storage, &self.job, dir_of_patch(&patch.slot).as_ref()),
        };
        let dir = dir.map_err(&failed)?;
        if !patch.is_made {
            self.make(&dir, &patch.slot, &Node::File).map_err(&failed)?;
        }
        let file = open_writable(self.storage, &dir, &patch.slot).map_err(&failed)?;
        // What is zero of an old file is in the record.
        self.content(&file, &patch.content, false, &failed)
    }

    fn content(
        &self,
        file: &Handle,
        content: &SavedContent,
        with_zeros: bool,
        failed: &dyn Fn(Errno) -> JobError,
    ) -> Result<(), JobError> {
        if let Some(cut) = content.cut {
            self.storage.truncate(file, cut).map_err(failed)?;
        }
        for piece in &content.pieces {
            match piece.data {
                Some(data) => {
                    let bytes = self.dir.get(data, piece.length).map_err(not_saved(&self.dir.path))?;
                    let written = self.storage.write(file, &[IoSlice::new(&bytes)], piece.start);
                    written.map_err(failed)?;
                }
                None if with_zeros => {
                    let range = piece.start..piece.start + piece.length;
                    write_zeros(self.storage, file, &range, &mut 0).map_err(failed)?;
                }
                None => {}
            }
        }
        if let Some(size) = content.size {
            self.storage.truncate(file, size).map_err(failed)?;
        }
        self.storage.close(file).map_err(failed)
    }

    /// Gives an object its attributes, whatever it has inherited.
    fn attributes(&self, dir: &Handle, name: &OsStr, object: &SavedObject) -> Result<(), Errno> {
        let is_link = matches!(object.node, Node::Symlink(_));
        if is_link && !self.links_have_attributes {
            return Ok(());
        }
        let found = self.storage.stat(dir, name)?;
        let mut attrs = object.attrs.clone();
        attrs.owner = attrs.owner.filter(|owner| *owner != (found.uid, found.gid));
        attrs.mode = attrs.mode.filter(|_| self.saved.keeps_modes);
        if !is_link {
            attrs.xattrs.extend(self.inherited_acls(dir, name, &object.attrs)?);
        }
        set_attributes(self.storage, dir, name, &attrs).map(|_| ())
    }

    /// ACLs that the object has and is not to have.
    fn inherited_acls(&self, dir: &Handle, name: &OsStr, wanted: &NewAttrs) -> Result<NewXattrs, Errno> {
        let listed = match self.storage.list_xattrs(dir, name) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Vec::new(),
            listed => listed?,
        };
        let is_acl = |key: &OsString| [ACCESS_ACL, DEFAULT_ACL].iter().any(|acl| key == acl);
        let is_wanted = |key: &OsString| wanted.xattrs.iter().any(|(other, _)| other == key);
        let unwanted = listed.into_iter().filter(|key| is_acl(key) && !is_wanted(key));
        Ok(unwanted.map(|key| (key, None)).collect())
    }
}
