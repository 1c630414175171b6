//! Parallel work on the storage: many independent calls, and the removal of whole trees.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use elbow_file::{Errno, Handle, Kind, Storage};
use parking_lot::{Condvar, Mutex};

const STACK_BYTES: usize = 256 << 10;
const OWNER_ALL: u32 = 0o700;
/// About two seconds in all: a slow server has answered by then.
const HIDDEN_FILE_PAUSES_MS: [u64; 7] = [10, 20, 50, 100, 300, 500, 1000];

/// Applies a function to all items from several threads; results in the order of the items.
pub(crate) fn parallel<T: Sync, R: Send>(items: &[T], threads: usize, apply: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::with_capacity(items.len()));
    let run = || {
        while let Some((at, item)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, items.get(at)?)))
        {
            let result = apply(item);
            results.lock().push((at, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(items.len()) {
            // Fewer threads are only slower.
            let _ = std::thread::Builder::new()
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, run);
        }
        run();
    });
    let mut results = results.into_inner();
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

/// A directory that is being removed.
struct Doomed {
    above: Option<Arc<Doomed>>,
    /// The directory that holds it.
    base: Handle,
    name: OsString,
    handle: Handle,
    /// Entries not removed yet.
    left: AtomicUsize,
}

enum Task {
    Enter(Arc<Doomed>),
    Unlink(Arc<Doomed>, OsString),
}

struct Queue {
    tasks: VecDeque<Task>,
    /// Tasks queued or under way.
    outstanding: usize,
    failed: Option<Errno>,
}

/// Removes an object with everything below it; what is gone already is fine.
///
/// NFS and FUSE file systems keep a file that is removed while it is open under a hidden name until it is closed,
/// and they hear of that a moment after close(2): a directory that is not empty is tried again.
pub(crate) fn remove_tree(storage: &dyn Storage, base: &Handle, name: &OsStr, threads: usize) -> Result<(), Errno> {
    for pause_ms in HIDDEN_FILE_PAUSES_MS {
        match remove_tree_once(storage, base, name, threads) {
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY) => std::thread::sleep(Duration::from_millis(pause_ms)),
            other => return other,
        }
    }
    remove_tree_once(storage, base, name, threads)
}

fn remove_tree_once(storage: &dyn Storage, base: &Handle, name: &OsStr, threads: usize) -> Result<(), Errno> {
    let handle = match storage.open_dir(base, name) {
        Ok(handle) => handle,
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTDIR | Errno::LOOP) => return gone_is_fine(storage.unlink(base, name)),
        Err(errno) => return Err(errno),
    };
    let top = Arc::new(Doomed {
        above: None,
        base: base.clone(),
        name: name.to_owned(),
        handle,
        left: AtomicUsize::new(0),
    });
    let queue = Mutex::new(Queue {
        tasks: VecDeque::from([Task::Enter(top)]),
        outstanding: 1,
        failed: None,
    });
    let changed = Condvar::new();
    std::thread::scope(|scope| {
        for _ in 1..threads.max(1) {
            let _ = std::thread::Builder::new()
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, || remove_tasks(storage, &queue, &changed));
        }
        remove_tasks(storage, &queue, &changed);
    });
    queue.into_inner().failed.map_or(Ok(()), Err)
}

fn remove_tasks(storage: &dyn Storage, queue: &Mutex<Queue>, changed: &Condvar) {
    let mut guard = queue.lock();
    loop {
        let Some(task) = guard.tasks.pop_front() else {
            if guard.outstanding == 0 {
                changed.notify_all();
                return;
            }
            changed.wait(&mut guard);
            continue;
        };
        let result = parking_lot::MutexGuard::unlocked(&mut guard, || remove_task(storage, task));
        match result {
            Ok(more) => {
                guard.outstanding += more.len();
                guard.tasks.extend(more);
            }
            Err(errno) => guard.failed = guard.failed.or(Some(errno)),
        }
        guard.outstanding -= 1;
        changed.notify_all();
    }
}

fn remove_task(storage: &dyn Storage, task: Task) -> Result<Vec<Task>, Errno> {
    match task {
        Task::Enter(dir) => enter(storage, &dir),
        Task::Unlink(dir, name) => {
            with_permission(storage, &dir, || storage.unlink(&dir.handle, &name))?;
            entry_removed(storage, &dir)?;
            Ok(Vec::new())
        }
    }
}

fn enter(storage: &dyn Storage, dir: &Arc<Doomed>) -> Result<Vec<Task>, Errno> {
    let mut entries = Vec::new();
    with_permission(storage, dir, || {
        entries = storage.list(&dir.handle)?;
        Ok(())
    })?;
    if entries.is_empty() {
        removed(storage, dir)?;
        return Ok(Vec::new());
    }
    dir.left.store(entries.len(), Ordering::Release);
    let mut tasks = Vec::with_capacity(entries.len());
    for entry in entries {
        tasks.push(task_of(storage, dir, entry)?);
    }
    Ok(tasks)
}

fn task_of(storage: &dyn Storage, dir: &Arc<Doomed>, entry: elbow_file::DirEntry) -> Result<Task, Errno> {
    let kind = match entry.kind {
        Some(kind) => kind,
        None => storage.stat(&dir.handle, &entry.name)?.kind,
    };
    if kind != Kind::Dir {
        return Ok(Task::Unlink(dir.clone(), entry.name));
    }
    let mut handle = None;
    with_permission(storage, dir, || {
        handle = Some(storage.open_dir(&dir.handle, &entry.name)?);
        Ok(())
    })?;
    let below = Doomed {
        above: Some(dir.clone()),
        base: dir.handle.clone(),
        name: entry.name,
        handle: handle.ok_or(Errno::NOENT)?,
        left: AtomicUsize::new(0),
    };
    Ok(Task::Enter(Arc::new(below)))
}

/// A directory is empty: it goes, and maybe the one above it.
fn removed(storage: &dyn Storage, dir: &Arc<Doomed>) -> Result<(), Errno> {
    match &dir.above {
        None => gone_is_fine(storage.rmdir(&dir.base, &dir.name)),
        Some(above) => {
            with_permission(storage, above, || storage.rmdir(&dir.base, &dir.name))?;
            entry_removed(storage, above)
        }
    }
}

fn entry_removed(storage: &dyn Storage, dir: &Arc<Doomed>) -> Result<(), Errno> {
    if dir.left.fetch_sub(1, Ordering::AcqRel) == 1 {
        removed(storage, dir)
    } else {
        Ok(())
    }
}

/// Tries again with permission given to the owner, for directories that were left unwritable.
fn with_permission(
    storage: &dyn Storage,
    dir: &Doomed,
    mut attempt: impl FnMut() -> Result<(), Errno>,
) -> Result<(), Errno> {
    match gone_is_fine(attempt()) {
        Err(Errno::ACCESS) => {
            storage.chmod(&dir.base, &dir.name, OWNER_ALL)?;
            gone_is_fine(attempt())
        }
        other => other,
    }
}

fn gone_is_fine(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}
