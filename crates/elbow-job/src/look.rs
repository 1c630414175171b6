//! A look into an old directory: its names with the attributes of each, asked for by many threads.

use std::ffi::{OsStr, OsString};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use elbow_file::{DirEntry, Errno, Handle, Stat, Storage};
use parking_lot::Mutex;

use crate::model::{DEFAULT_ACL, FoundEntry, Listing};

/// A listing is about this many calls: open, read twice, close.
const LISTING_CALLS: u32 = 4;

/// What a look into an old directory gave.
pub(crate) enum Looked {
    Listed(Listing),
    /// It may be entered and not be read; its default ACL.
    Closed(Handle, Result<Vec<u8>, Errno>),
}

/// A directory below one that was listed, and what a look into it gave.
pub(crate) struct LookedBelow {
    /// Which of the directories before holds it: 0 the one that was to be listed, then those below it.
    pub(crate) parent: usize,
    pub(crate) name: OsString,
    pub(crate) looked: Looked,
}

/// Looks into an open directory with as many threads as the latency of its storage asks for, within bounds. Also how long one call took.
pub(crate) fn look_into(
    storage: &dyn Storage,
    handle: Handle,
    threads: usize,
    threads_max: usize,
) -> Result<(Looked, Duration), Errno> {
    let begun = Instant::now();
    let names = match storage.list(&handle) {
        Err(Errno::ACCESS) => {
            let acl = storage.get_xattr(&handle, OsStr::new("."), OsStr::new(DEFAULT_ACL));
            return Ok((Looked::Closed(handle, acl), begun.elapsed()));
        }
        names => names?,
    };
    let took = begun.elapsed() / LISTING_CALLS;
    let threads = threads.max(threads_for(took)).min(threads_max);
    let listing = list_attributes(storage, handle, names, threads)?;
    Ok((Looked::Listed(listing), took))
}

/// Threads that hide a latency.
fn threads_for(took: Duration) -> usize {
    const MICROSECONDS_PER_THREAD: u128 = 25;
    const MOST: u128 = 128;
    (took.as_micros() / MICROSECONDS_PER_THREAD).min(MOST) as usize
}

/// The same of an open directory whose names are known.
pub(crate) fn list_attributes(
    storage: &dyn Storage,
    handle: Handle,
    names: Vec<DirEntry>,
    threads: usize,
) -> Result<Listing, Errno> {
    let (stats, default_acl) = fetch_all(storage, &handle, &names, threads)?;
    let entries = names.into_iter().zip(stats);
    // A name that went away between the two looks is not there.
    let entries = entries.filter_map(|(entry, stat)| {
        stat.map(|stat| FoundEntry {
            entry,
            stat: Some(stat),
            has_no_xattrs: false,
        })
    });
    Ok(Listing {
        entries: entries.collect(),
        default_acl,
        handle,
    })
}

/// Attributes of all names, and the default ACL of the directory, in parallel.
#[allow(clippy::type_complexity, reason = "two results of one parallel phase")]
fn fetch_all(
    storage: &dyn Storage,
    handle: &Handle,
    names: &[DirEntry],
    threads: usize,
) -> Result<(Vec<Option<Stat>>, Result<Vec<u8>, Errno>), Errno> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<Stat>>> = Mutex::new(vec![None; names.len()]);
    let failed: Mutex<Option<Errno>> = Mutex::new(None);
    let look = || {
        while let Some((at, entry)) =
            Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, names.get(at)?)))
        {
            match storage.stat(handle, &entry.name) {
                Ok(stat) => results.lock()[at] = Some(stat),
                Err(Errno::NOENT) => {}
                Err(errno) => *failed.lock() = Some(errno),
            }
        }
    };
    let acl = std::thread::scope(|scope| {
        for _ in 1..threads.min(names.len()) {
            // Fewer threads are only slower.
            let _ = std::thread::Builder::new()
                .stack_size(128 << 10)
                .spawn_scoped(scope, look);
        }
        let acl = storage.get_xattr(handle, OsStr::new("."), OsStr::new(DEFAULT_ACL));
        look();
        acl
    });
    match failed.into_inner() {
        Some(errno) => Err(errno),
        None => Ok((results.into_inner(), acl)),
    }
}
