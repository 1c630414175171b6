//! The handle to a job: operations from a front end, its state, its end.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use elbow_file::{Errno, FileType, Handle, Protection, RenameMode, Space, Stat, Storage};
use parking_lot::{Condvar, Mutex};

use crate::api::{Answer, Attr, Caller, Ino, Listed, OpError, SetAttr, SetIds, XattrMode};
use crate::clock::clock;
use crate::concurrency::Pool;
use crate::descriptors::directory_handles;
use crate::far_send;
use crate::liveness::Lock;
use crate::model::{Model, ModelConfig, Name, NewObject, copy_range, namesakes};
use crate::options::Options;
use crate::prelist::Prelist;
use crate::recording::Recording;
use crate::report::{Counts, DeferredError, JobError, StorageProgress};
use crate::root_id::{Elsewhere, RootId};
use crate::shared::{Shared, SharedState};
use crate::spill::SpillFile;
use crate::staging::{new_staging_name, part_name};
use crate::tally::Tally;

/// Least memory for written data: a few requests of the largest size must fit.
pub const MEMORY_MIN_BYTES: u64 = 8 << 20;

/// A job. Cheap to clone; every method may be called from any thread.
///
/// Operations never block: one that needs something from the storage first says so ([`OpError::NeedsStorage`]), and the
/// caller does [`Job::fetch`] on a thread that may block and asks again. With its last clone dropped without
/// an end, a job stops working but leaves its staging area for [`recover`](crate::recover()).
pub struct Job {
    pub(crate) shared: Arc<Shared>,
}

/// It is made at once, so that nobody learns in the middle of a job that there is none.
fn spill_file(options: &Options) -> Result<Option<Arc<SpillFile>>, JobError> {
    let Some(scratch) = &options.scratch else {
        return Ok(None);
    };
    let made = SpillFile::create(scratch, options.scratch_bytes);
    made.map(Some).map_err(|source| JobError::Scratch {
        path: scratch.clone(),
        source,
    })
}

/// What the directory of a job is like before it.
struct RootLook {
    stat: Stat,
    space: Space,
    home: RootId,
    /// So many directories may be kept open.
    handles_max: usize,
}

/// Whether the storage is on another machine that copies parts of files by itself.
fn copies_there(storage: &dyn Storage, root: &Handle) -> bool {
    storage.far_end().is_some() || (!root.is_here() && storage.copy_range(root, 0, root, 0, 0).is_ok())
}

fn look_at_root(
    storage: &dyn Storage,
    root: &Handle,
    path: &Path,
    elsewhere: Option<&Elsewhere>,
) -> Result<RootLook, JobError> {
    let failed = |tried| JobError::storage(tried, path);
    if let Some(far) = storage.far_end() {
        let found = far_send::begin(far, root).map_err(failed("looking at"))?;
        return Ok(RootLook {
            stat: found.stat,
            space: found.space,
            home: RootId::new(path, elsewhere, (found.stat.dev, found.stat.ino), found.born),
            handles_max: usize::try_from(found.handles_max).unwrap_or(usize::MAX),
        });
    }
    let stat = storage.stat_handle(root).map_err(failed("reading the attributes of"))?;
    let space = storage.space(root).map_err(failed("reading the free space of"))?;
    Ok(RootLook {
        stat,
        space,
        home: RootId::of(storage, root, path, elsewhere),
        handles_max: directory_handles(),
    })
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job")
            .field("path", &self.shared.path)
            .finish_non_exhaustive()
    }
}

impl Job {
    /// Begins a job over a directory. `root` is the open directory (opened before anything is mounted over
    /// it), `path` its name for messages. Nothing is written to the storage yet.
    ///
    /// # Errors
    /// When the directory's attributes or free space cannot be read, or nothing can be written to the scratch directory.
    pub fn begin(storage: Arc<dyn Storage>, root: Handle, path: &Path, options: Options) -> Result<Self, JobError> {
        let RootLook {
            stat,
            space,
            home,
            handles_max,
        } = look_at_root(&*storage, &root, path, options.elsewhere.as_ref())?;
        if stat.protection != Protection::None {
            return Err(JobError::Protected {
                path: path.to_owned(),
                protection: stat.protection,
            });
        }
        let spill = spill_file(&options)?;
        let staging_name: Name = OsStr::new(&new_staging_name(stat.mtime)).into();
        let part_name = Name::from(&*part_name(&staging_name));
        let config = ModelConfig {
            staging_name: staging_name.clone(),
            part_name: part_name.clone(),
            memory_limit: options.memory_bytes.max(MEMORY_MIN_BYTES),
            publish: options.publish,
            began: clock(),
            own_uid: rustix::process::geteuid().as_raw(),
            own_gid: rustix::process::getegid().as_raw(),
            handles_max,
            has_far_end: storage.far_end().is_some(),
            copies_there: copies_there(&*storage, &root),
        };
        let mut model = Model::new(&stat, root.clone(), space, config);
        model.graph.is_far = !root.is_here();
        model.graph.tally = options.recorder.as_ref().map(|_| Tally::default());
        let state = SharedState {
            model,
            pool: Pool::new(options.in_flight),
            errors: Vec::new(),
            overcome: Vec::new(),
            is_lost: false,
            files_are_closed: false,
            is_interrupted: false,
            listing: HashSet::new(),
            waiting_for_room: 0,
        };
        tracing::info!(?path, job = ?staging_name, "a job begins");
        let shared = Arc::new(Shared {
            recording: Recording::new(options.recorder.clone()),
            home,
            storage,
            root,
            path: path.to_owned(),
            options,
            part_name,
            staging_name,
            root_times: (stat.atime, stat.mtime),
            state: Mutex::new(state),
            work: Condvar::new(),
            progress: Condvar::new(),
            gauge: Arc::default(),
            arriving: AtomicU64::new(0),
            spill,
            journal: Mutex::default(),
            lock: Lock::default(),
            asked: Arc::default(),
            answered: Arc::default(),
        });
        Ok(Self { shared })
    }

    /// Runs one operation on the model and wakes a worker if it left work.
    fn operate<T>(&self, operation: impl FnOnce(&mut Model) -> Answer<T>) -> Answer<T> {
        let mut state = self.shared.state.lock();
        state.model.now = clock();
        let answer = operation(&mut state.model);
        self.shared.call_worker(&mut state);
        answer
    }

    /// The entry of a name; one reference for [`Job::forget`] more.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, ENAMETOOLONG.
    pub fn lookup(&self, parent: Ino, name: &OsStr) -> Answer<Attr> {
        self.operate(|model| {
            let found = model.lookup(parent, name)?;
            model.prelist.note_used(parent);
            Ok(found)
        })
    }

    /// Gives references back.
    pub fn forget(&self, ino: Ino, count: u64) {
        self.shared.state.lock().model.forget(ino, count);
    }

    /// Attributes.
    ///
    /// # Errors
    /// ESTALE for an object that is gone.
    pub fn getattr(&self, ino: Ino) -> Answer<Attr> {
        self.shared.state.lock().model.attr(ino)
    }

    /// Sets attributes.
    ///
    /// # Errors
    /// As chmod(2), chown(2), truncate(2) and utimensat(2), but for permissions, which the kernel checks.
    pub fn setattr(&self, ino: Ino, set: &SetAttr) -> Answer<Attr> {
        self.operate(|model| model.set_attr(ino, set))
    }

    /// Target of a symbolic link.
    ///
    /// # Errors
    /// EINVAL for anything else.
    pub fn readlink(&self, ino: Ino) -> Answer<OsString> {
        self.shared.state.lock().model.inodes.readlink(ino)
    }

    /// Objects that somebody has open for writing, with the inode numbers that are shown for them.
    #[must_use]
    pub fn open_for_writing(&self) -> Vec<(Ino, u64)> {
        let state = self.shared.state.lock();
        let open = state.model.inodes.all().filter(|(_, inode)| inode.write_opens > 0);
        open.map(|(ino, inode)| (ino, inode.visible_ino)).collect()
    }

    /// Creates a regular file and opens it for writing; one reference.
    ///
    /// # Errors
    /// As open(2) with O_CREAT and O_EXCL.
    pub fn create(&self, caller: Caller, parent: Ino, name: &OsStr, mode: u32) -> Answer<Attr> {
        self.operate(|model| {
            let new = NewObject {
                kind: FileType::File,
                mode,
                rdev: 0,
                target: None,
            };
            let ino = model.create(caller, parent, name, &new)?;
            model.open(ino, true, false)?;
            model.attr(ino)
        })
    }

    /// Creates a file, pipe, socket or device node; one reference.
    ///
    /// # Errors
    /// As mknod(2).
    pub fn mknod(
        &self,
        caller: Caller,
        parent: Ino,
        name: &OsStr,
        kind: FileType,
        mode: u32,
        rdev: u64,
    ) -> Answer<Attr> {
        self.new_object(
            caller,
            parent,
            name,
            &NewObject {
                kind,
                mode,
                rdev,
                target: None,
            },
        )
    }

    /// Creates a directory; one reference.
    ///
    /// # Errors
    /// As mkdir(2).
    pub fn mkdir(&self, caller: Caller, parent: Ino, name: &OsStr, mode: u32) -> Answer<Attr> {
        self.new_object(
            caller,
            parent,
            name,
            &NewObject {
                kind: FileType::Dir,
                mode,
                rdev: 0,
                target: None,
            },
        )
    }

    /// Creates a symbolic link; one reference.
    ///
    /// # Errors
    /// As symlink(2).
    pub fn symlink(&self, caller: Caller, parent: Ino, name: &OsStr, target: &OsStr) -> Answer<Attr> {
        let new = NewObject {
            kind: FileType::Symlink,
            mode: 0o777,
            rdev: 0,
            target: Some(target),
        };
        self.new_object(caller, parent, name, &new)
    }

    fn new_object(&self, caller: Caller, parent: Ino, name: &OsStr, new: &NewObject<'_>) -> Answer<Attr> {
        self.operate(|model| {
            let ino = model.create(caller, parent, name, new)?;
            model.attr(ino)
        })
    }

    /// Gives an object one more name; one reference.
    ///
    /// # Errors
    /// As link(2).
    pub fn link(&self, ino: Ino, new_parent: Ino, new_name: &OsStr) -> Answer<Attr> {
        self.operate(|model| model.link(ino, new_parent, new_name))
    }

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// As unlink(2).
    pub fn unlink(&self, parent: Ino, name: &OsStr) -> Answer<()> {
        self.operate(|model| model.unlink(parent, name))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As rmdir(2).
    pub fn rmdir(&self, parent: Ino, name: &OsStr) -> Answer<()> {
        self.operate(|model| model.rmdir(parent, name))
    }

    /// Moves an object to another name.
    ///
    /// # Errors
    /// As renameat2(2).
    pub fn rename(&self, parent: Ino, name: &OsStr, new_parent: Ino, new_name: &OsStr, mode: RenameMode) -> Answer<()> {
        self.operate(|model| model.rename(parent, name, new_parent, new_name, mode))
    }

    /// Opens an object; give it back with [`Job::release`].
    ///
    /// # Errors
    /// EROFS for writing at the end of the job.
    pub fn open(&self, ino: Ino, write: bool, truncate: bool) -> Answer<()> {
        self.operate(|model| model.open(ino, write, truncate))
    }

    /// Closes an object that was opened with the same `write`.
    pub fn release(&self, ino: Ino, write: bool) {
        let mut state = self.shared.state.lock();
        state.model.now = clock();
        state.model.release(ino, write);
        self.shared.call_worker(&mut state);
    }

    /// Reads up to `length` bytes; fewer only at the end of the file.
    ///
    /// # Errors
    /// [`OpError::NeedsStorage`] when a part is not in memory: then use [`Job::read_blocking`].
    pub fn read(&self, ino: Ino, offset: u64, length: usize) -> Answer<Vec<u8>> {
        self.shared.state.lock().model.inodes.read(ino, offset, length)
    }

    /// Writes.
    ///
    /// # Errors
    /// ENOSPC when the storage has no room for it, EFBIG, the error of a failed background operation.
    pub fn write(&self, ino: Ino, offset: u64, data: &[u8], set_ids: SetIds) -> Answer<usize> {
        self.operate(|model| model.write(ino, offset, data, set_ids, &self.shared.gauge))
    }

    /// copy_file_range(2) of `length` bytes at most, from an object and offset to another, where the storage is elsewhere and copies by itself:
    /// the bytes of old files are not brought here. Gives how many bytes are copied: 0 at the end of the source, and often fewer than asked for.
    ///
    /// # Errors
    /// EOPNOTSUPP where the bytes have to be read and written, else as [`write`](Self::write).
    pub fn copy(&self, from: (Ino, u64), to: (Ino, u64), length: u64, set_ids: SetIds) -> Answer<u64> {
        self.operate(|model| copy_range(model, from, to, length, set_ids, &self.shared.gauge))
    }

    /// fallocate(2) with KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE.
    ///
    /// # Errors
    /// EOPNOTSUPP for other modes, ENOSPC.
    pub fn fallocate(&self, ino: Ino, mode: i32, offset: u64, length: u64, set_ids: SetIds) -> Answer<()> {
        self.operate(|model| {
            let taken = model.taken(ino, set_ids)?;
            model.fallocate(ino, mode, offset, length)?;
            model.take(ino, taken);
            Ok(())
        })
    }

    /// All names of a directory but `.` and `..`.
    ///
    /// # Errors
    /// ENOTDIR.
    pub fn list(&self, ino: Ino) -> Answer<Vec<Listed>> {
        self.operate(|model| {
            let listed = model.list(ino)?;
            model.prelist.note_reading(&mut model.inodes, ino);
            Ok(listed)
        })
    }

    /// The directory above a directory.
    #[must_use]
    pub fn parent(&self, ino: Ino) -> Ino {
        self.shared.state.lock().model.inodes.parent(ino)
    }

    /// Old files of other directories that are called as this one, as far as these have been listed: the next ones in the order of their paths,
    /// `most` at most.
    #[must_use]
    pub fn namesakes(&self, ino: Ino, most: usize) -> Vec<Ino> {
        namesakes(&self.shared.state.lock().model.inodes, ino, most)
    }

    /// The path of an object below the job's directory, for messages. Of what nobody can reach any more, as far as it is known.
    #[must_use]
    pub fn path_of(&self, ino: Ino) -> PathBuf {
        self.shared.state.lock().model.inodes.path(ino)
    }

    /// Free space, less what is promised to the command already.
    ///
    /// # Errors
    /// None so far.
    pub fn statfs(&self) -> Answer<Space> {
        Ok(self.shared.state.lock().model.space.free())
    }

    /// Value of an extended attribute.
    ///
    /// # Errors
    /// ENODATA when there is none.
    pub fn get_xattr(&self, ino: Ino, key: &OsStr) -> Answer<Vec<u8>> {
        self.shared.state.lock().model.get_xattr(ino, key)
    }

    /// Names of the extended attributes.
    ///
    /// # Errors
    /// ESTALE for an object that is gone.
    pub fn list_xattrs(&self, ino: Ino) -> Answer<Vec<OsString>> {
        self.shared.state.lock().model.list_xattrs(ino)
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// As setxattr(2).
    pub fn set_xattr(&self, ino: Ino, key: &OsStr, value: &[u8], mode: XattrMode) -> Answer<()> {
        self.operate(|model| model.set_xattr(ino, key, value, mode))
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// ENODATA when there is none.
    pub fn remove_xattr(&self, ino: Ino, key: &OsStr) -> Answer<()> {
        self.operate(|model| model.remove_xattr(ino, key))
    }

    /// From now on modifying operations are refused with EROFS: the end of the job begins.
    pub fn freeze(&self) {
        let mut state = self.shared.state.lock();
        state.model.refuse.get_or_insert(Errno::ROFS);
        state.model.is_frozen = true;
        state.model.prelist = Prelist::default();
    }

    /// The numbers so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.counts(&mut self.shared.state.lock())
    }

    /// Whether the storage answers, and is waited for.
    #[must_use]
    pub fn pulse(&self) -> StorageProgress {
        let counts = self.counts();
        let answered = self.shared.answered.load(Ordering::Relaxed);
        let done = [counts.operations, counts.storage_calls, counts.objects_stored];
        let answers = [answered, counts.bytes_written].into_iter().chain(done);
        StorageProgress {
            answers: answers.fold(0, u64::wrapping_add),
            is_waiting: counts.in_flight > 0 || self.shared.asked.load(Ordering::Relaxed) > answered,
        }
    }

    /// Background operations that failed so far.
    #[must_use]
    pub fn deferred_errors(&self) -> Vec<DeferredError> {
        self.shared.state.lock().errors.clone()
    }

    /// Background operations that had failed, and were carried out at the end.
    #[must_use]
    pub fn overcome_errors(&self) -> Vec<DeferredError> {
        self.shared.state.lock().overcome.clone()
    }

    /// The name of its staging directories, which no other job has.
    #[must_use]
    pub fn name(&self) -> &OsStr {
        &self.shared.staging_name
    }

    /// The job's own directory, if it has one by now.
    #[must_use]
    pub fn staging_path(&self) -> Option<PathBuf> {
        let state = self.shared.state.lock();
        state
            .model
            .inodes
            .job_dir()
            .map(|_| self.shared.path.join(&*self.shared.staging_name))
    }
}

impl Clone for Job {
    fn clone(&self) -> Self {
        self.shared.state.lock().pool.handles += 1;
        Self {
            shared: self.shared.clone(),
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // Workers hold `Shared`, not `Job`: the last `Job` ends them.
        let mut state = self.shared.state.lock();
        state.pool.handles -= 1;
        if state.pool.handles == 0 {
            state.pool.shut_down = true;
            self.shared.work.notify_all();
        }
    }
}

impl Job {
    /// The answer of an operation, with everything fetched that it needs. Blocks.
    ///
    /// # Errors
    /// The errno of the operation.
    pub fn insist<T>(&self, mut operation: impl FnMut(&Self) -> Answer<T>) -> Result<T, Errno> {
        loop {
            match operation(self) {
                Ok(value) => return Ok(value),
                Err(OpError::Errno(errno)) => return Err(errno),
                Err(OpError::NeedsStorage(fetch)) => self.fetch(&fetch)?,
            }
        }
    }
}
