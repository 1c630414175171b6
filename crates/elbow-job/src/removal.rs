//! Parallel work on the storage: many independent calls, and the removal of whole trees.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Scope;
use std::time::Duration;

use elbow_file::{DirEntry, Errno, FileType, Handle, Storage};
use parking_lot::{Condvar, Mutex};

use crate::missing::ignore_missing;
use crate::parallel::STACK_BYTES;
use crate::step_counter::StepCounter;

const OWNER_ALL: u32 = 0o700;
/// Names that are removed one after the other where each waits for a round trip and for nobody else.
const UNLINKS_FAR: usize = 8;
/// About two seconds in all: a slow server has answered by then.
const HIDDEN_FILE_PAUSES_MS: [u64; 7] = [10, 20, 50, 100, 300, 500, 1000];

/// A directory that is being removed.
struct PendingRemoval {
    above: Option<Arc<PendingRemoval>>,
    /// The tree that it is of, by its number.
    top: usize,
    /// The directory that holds it.
    base: Handle,
    name: OsString,
    handle: OnceLock<Handle>,
    /// Directories in it that are not removed yet, and one for each task that removes other entries.
    left: AtomicUsize,
}

enum Task {
    /// Whatever has the name of a tree, perhaps a file.
    Top(Arc<PendingRemoval>),
    Enter(Arc<PendingRemoval>),
    /// Removes what is not a directory. One task for all of one directory: the kernel lets only one removal
    /// into a directory at a time, so more would only keep threads from other directories. Where no kernel stands before it there are several.
    Unlink(Arc<PendingRemoval>, Vec<OsString>),
}

struct Queue {
    tasks: VecDeque<Task>,
    /// Tasks queued or under way.
    outstanding: usize,
    /// Threads at work.
    threads: usize,
    /// Of each tree what failed first.
    results: Vec<Result<(), Errno>>,
}

impl Task {
    fn top(&self) -> usize {
        let (Self::Top(dir) | Self::Enter(dir) | Self::Unlink(dir, _)) = self;
        dir.top
    }
}

/// The removal of some trees.
struct Removal<'a> {
    storage: &'a dyn Storage,
    /// Counts the names that are removed.
    counter: &'a StepCounter,
    queue: Mutex<Queue>,
    changed: Condvar,
    /// At most this many threads at a time.
    threads: usize,
}

/// Removes an object with everything below it; what is gone already is fine.
///
/// NFS and FUSE file systems keep a file that is removed while it is open under a hidden name until it is closed,
/// and they hear of that a moment after close(2): a directory that is not empty is tried again.
pub(crate) fn remove_tree(
    storage: &dyn Storage,
    base: &Handle,
    name: &OsStr,
    threads: usize,
    counter: &StepCounter,
) -> Result<(), Errno> {
    retried(|| remove_once(storage, vec![PendingRemoval::top(base, name, None)], threads, counter).remove(0))
}

/// The same for many, by the same threads: a large one among many small ones has nearly all of them. What became of each.
pub(crate) fn remove_trees(
    storage: &dyn Storage,
    tops: &[(Handle, OsString)],
    threads: usize,
    counter: &StepCounter,
) -> Vec<Result<(), Errno>> {
    let mut results: Vec<Result<(), Errno>> = vec![Err(Errno::NOTEMPTY); tops.len()];
    let attempt = |results: &mut [Result<(), Errno>]| {
        let left: Vec<usize> = (0..tops.len()).filter(|at| may_be_hidden(&results[*at])).collect();
        let pending = left
            .iter()
            .map(|at| PendingRemoval::top(&tops[*at].0, &tops[*at].1, None));
        let removed = remove_once(storage, pending.collect(), threads, counter);
        left.into_iter()
            .zip(removed)
            .for_each(|(at, result)| results[at] = result);
        results
            .iter()
            .find(|result| may_be_hidden(result))
            .copied()
            .unwrap_or(Ok(()))
    };
    let _ = retried(|| attempt(&mut results)); // each has its own result
    results
}

/// The same for a directory that is open: under its name there may be another one by now, in which nothing is touched.
pub(crate) fn remove_opened_tree(
    storage: &dyn Storage,
    base: &Handle,
    name: &OsStr,
    handle: &Handle,
    counter: &StepCounter,
) -> Result<(), Errno> {
    retried(|| remove_once(storage, vec![PendingRemoval::top(base, name, Some(handle))], 1, counter).remove(0))
}

/// Names of removed files may still be in the way.
fn may_be_hidden(result: &Result<(), Errno>) -> bool {
    matches!(result, Err(Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY))
}

/// Tries again where that may be.
pub(crate) fn retried(mut remove: impl FnMut() -> Result<(), Errno>) -> Result<(), Errno> {
    for pause_ms in HIDDEN_FILE_PAUSES_MS {
        match remove() {
            result if may_be_hidden(&result) => std::thread::sleep(Duration::from_millis(pause_ms)),
            other => return other,
        }
    }
    remove()
}

fn remove_once(
    storage: &dyn Storage,
    tops: Vec<PendingRemoval>,
    threads: usize,
    counter: &StepCounter,
) -> Vec<Result<(), Errno>> {
    let count = tops.len();
    if count == 0 {
        return Vec::new();
    }
    let numbered = tops
        .into_iter()
        .enumerate()
        .map(|(top, pending)| PendingRemoval { top, ..pending });
    let queue = Mutex::new(Queue {
        tasks: numbered.map(|pending| Task::Top(Arc::new(pending))).collect(),
        outstanding: count,
        threads: 1,
        results: vec![Ok(()); count],
    });
    let removal = Removal {
        storage,
        counter,
        queue,
        changed: Condvar::new(),
        threads,
    };
    std::thread::scope(|scope| removal.work(scope));
    removal.queue.into_inner().results
}

impl Removal<'_> {
    /// Does tasks until none is left, with more threads as there are more tasks.
    fn work<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let mut queue = self.queue.lock();
        loop {
            // The newest first, so that few directories are open at a time.
            let Some(task) = queue.tasks.pop_back() else {
                if queue.outstanding == 0 {
                    self.changed.notify_all();
                    return;
                }
                self.changed.wait(&mut queue);
                continue;
            };
            // A thread more only when there is a task for it: most trees are small.
            if !queue.tasks.is_empty() && queue.threads < self.threads {
                queue.threads += 1;
                // Fewer threads are only slower.
                let _ = std::thread::Builder::new()
                    .stack_size(STACK_BYTES)
                    .spawn_scoped(scope, || self.work(scope));
            }
            let top = task.top();
            let result =
                parking_lot::MutexGuard::unlocked(&mut queue, || remove_task(self.storage, task, self.counter));
            match result {
                Ok(more) => {
                    queue.outstanding += more.len();
                    queue.tasks.extend(more);
                }
                Err(errno) => queue.results[top] = queue.results[top].and(Err(errno)),
            }
            queue.outstanding -= 1;
            self.changed.notify_all();
        }
    }
}

impl PendingRemoval {
    fn top(base: &Handle, name: &OsStr, handle: Option<&Handle>) -> Self {
        Self {
            above: None,
            top: 0,
            base: base.clone(),
            name: name.to_owned(),
            handle: handle.cloned().map(OnceLock::from).unwrap_or_default(),
            left: AtomicUsize::new(0),
        }
    }

    fn below(above: &Arc<Self>, base: &Handle, name: OsString) -> Self {
        Self {
            above: Some(above.clone()),
            top: above.top,
            base: base.clone(),
            name,
            handle: OnceLock::new(),
            left: AtomicUsize::new(0),
        }
    }

    fn open(&self, storage: &dyn Storage) -> Result<&Handle, Errno> {
        if self.handle.get().is_none() {
            let mut opened = None;
            let mut open = || {
                storage
                    .open_dir(&self.base, &self.name)
                    .map(|handle| opened = Some(handle))
            };
            match &self.above {
                Some(above) => with_permission(storage, above, open)?,
                None => open()?,
            }
            let handle = opened.ok_or(Errno::NOENT)?;
            return Ok(self.handle.get_or_init(|| handle));
        }
        self.handle.get().ok_or(Errno::NOENT)
    }
}

fn remove_task(storage: &dyn Storage, task: Task, counter: &StepCounter) -> Result<Vec<Task>, Errno> {
    match task {
        Task::Top(top) => match top.open(storage) {
            Ok(_) => enter(storage, &top),
            Err(Errno::NOENT) => Ok(Vec::new()),
            // It is a file, or a link, which is not followed.
            Err(Errno::NOTDIR | Errno::LOOP) => {
                ignore_missing(storage.unlink(&top.base, &top.name)).map(|()| Vec::new())
            }
            Err(errno) => Err(errno),
        },
        Task::Enter(dir) => match enter(storage, &dir) {
            Err(Errno::NOENT) => part_removed(storage, &dir, counter).map(|()| Vec::new()),
            other => other,
        },
        Task::Unlink(dir, names) => {
            let handle = dir.open(storage)?;
            for name in &names {
                with_permission(storage, &dir, || storage.unlink(handle, name))?;
                counter.step();
            }
            part_removed(storage, &dir, counter)?;
            Ok(Vec::new())
        }
    }
}

fn enter(storage: &dyn Storage, dir: &Arc<PendingRemoval>) -> Result<Vec<Task>, Errno> {
    // One for the first of the entries that are no directories, so that it cannot reach 0 before they are gone.
    dir.left.store(1, Ordering::Release);
    let handle = dir.open(storage)?;
    let entries = list(storage, dir, handle)?;
    let (mut tasks, mut names) = (Vec::new(), Vec::new());
    for entry in entries {
        let kind = match entry.kind {
            Some(kind) => kind,
            // Some file systems do not say in a listing what an entry is.
            None => storage.stat(handle, &entry.name)?.kind,
        };
        if kind == FileType::Dir {
            tasks.push(Task::Enter(Arc::new(PendingRemoval::below(dir, handle, entry.name))));
        } else {
            names.push(entry.name);
        }
    }
    let at_once = if handle.is_here() { names.len() } else { UNLINKS_FAR };
    let mut names = names.into_iter();
    let mut unlinks = vec![names.by_ref().take(at_once).collect::<Vec<_>>()];
    while names.len() > 0 {
        unlinks.push(names.by_ref().take(at_once).collect());
    }
    dir.left.fetch_add(tasks.len() + unlinks.len() - 1, Ordering::AcqRel);
    tasks.extend(unlinks.into_iter().map(|names| Task::Unlink(dir.clone(), names)));
    Ok(tasks)
}

/// What is in a directory, with permission given to the owner where that is needed.
///
/// An SFTP server leaves out of its listing what it cannot look at: a directory that may be read and not searched has nothing.
fn list(storage: &dyn Storage, dir: &PendingRemoval, handle: &Handle) -> Result<Vec<DirEntry>, Errno> {
    let mut entries = Vec::new();
    let mut attempt = || {
        entries = storage.list(handle)?;
        Ok(())
    };
    with_permission(storage, dir, &mut attempt)?;
    if entries.is_empty() && storage.stat_handle(handle)?.mode & OWNER_ALL != OWNER_ALL {
        // Who may not change it has seen all that there is to see.
        if storage.chmod(&dir.base, &dir.name, OWNER_ALL).is_ok() {
            return storage.list(handle);
        }
    }
    Ok(entries)
}

/// A part of a directory is gone; with the last one the directory goes, and is a part of the one above.
fn part_removed(storage: &dyn Storage, dir: &Arc<PendingRemoval>, counter: &StepCounter) -> Result<(), Errno> {
    if dir.left.fetch_sub(1, Ordering::AcqRel) != 1 {
        return Ok(());
    }
    match &dir.above {
        None => ignore_missing(storage.rmdir(&dir.base, &dir.name)),
        Some(above) => {
            with_permission(storage, above, || storage.rmdir(&dir.base, &dir.name))?;
            counter.step();
            part_removed(storage, above, counter)
        }
    }
}

/// Tries again with permission given to the owner, for directories that were left unwritable.
fn with_permission(
    storage: &dyn Storage,
    dir: &PendingRemoval,
    mut attempt: impl FnMut() -> Result<(), Errno>,
) -> Result<(), Errno> {
    match ignore_missing(attempt()) {
        Err(Errno::ACCESS) => {
            // It goes anyway, so its mode need not be put back.
            storage.chmod(&dir.base, &dir.name, OWNER_ALL)?;
            ignore_missing(attempt())
        }
        other => other,
    }
}
