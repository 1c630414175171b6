//! The far end lists a directory, and what is below it with it.
//!
//! Over a connection each directory is a round trip, which who walks down a tree waits for once for each level. So directories below come along,
//! the nearest first, as far as they are at hand: what takes the storage there long is left to who asks for it.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::time::{Duration, Instant};

use elbow_file::{DirEntry, Errno, FileType, Handle, Stat, Storage};

use crate::far_orders::{BELOW_MAX, BelowMessage, ListedDir, ListedEntry, ListedMessage};
use crate::look::{Looked, list_attributes, look_into};
use crate::model::Listing;
use crate::staging::is_staging_name;

/// Threads that fetch the attributes of one directory: a disk of this machine needs few.
const LOOK_THREADS_MAX: usize = 16;
/// No look into a directory below is begun later than this.
const AHEAD_TIME: Duration = Duration::from_millis(20);

/// Lists an open directory, and those below it until about `ahead` entries of them are found. Gives the directories, open, in their order.
pub(crate) fn list_with_below(
    storage: &dyn Storage,
    handle: Handle,
    ahead: usize,
) -> Result<(ListedMessage, Vec<Handle>), Errno> {
    list_within(storage, handle, ahead, AHEAD_TIME)
}

/// The same with the time after which no look into a directory below is begun.
fn list_within(
    storage: &dyn Storage,
    handle: Handle,
    ahead: usize,
    time: Duration,
) -> Result<(ListedMessage, Vec<Handle>), Errno> {
    let begun = Instant::now();
    let (dir, handle) = match look_into(storage, handle, 1, LOOK_THREADS_MAX)?.0 {
        Looked::Listed(listing) => listed(storage, listing),
        Looked::Closed(handle, default_acl) => {
            let default_acl = default_acl.map_err(Errno::raw_os_error);
            (
                ListedDir {
                    entries: None,
                    default_acl,
                },
                handle,
            )
        }
    };
    let mut waiting = VecDeque::new();
    let device = storage.stat_handle(&handle)?.dev;
    note_dirs(&dir, 0, device, &mut waiting);
    let (mut below, mut made) = (Vec::new(), vec![handle]);
    let mut left = ahead;
    while left > 0 && below.len() < BELOW_MAX && begun.elapsed() < time {
        let Some((parent, name)) = waiting.pop_front() else {
            break;
        };
        // What is too large or cannot be listed is left to the command, if it gets that far.
        let Some((dir, handle)) = look_below(storage, (&made[parent], &name), left) else {
            continue;
        };
        left = left.saturating_sub(1 + dir.entries.as_ref().map_or(0, Vec::len));
        made.push(handle);
        note_dirs(&dir, made.len() - 1, device, &mut waiting);
        let parent = u32::try_from(parent).expect("few directories");
        below.push(BelowMessage { parent, name, dir });
    }
    Ok((ListedMessage { dir, below }, made))
}

/// Looks into a directory that has `most` entries at most.
fn look_below(storage: &dyn Storage, (dir, name): (&Handle, &OsStr), most: usize) -> Option<(ListedDir, Handle)> {
    let handle = storage.open_dir(dir, name).ok()?;
    let names = storage.list(&handle).ok().filter(|names| names.len() <= most)?;
    let listing = list_attributes(storage, handle, names, 1).ok()?;
    Some(listed(storage, listing))
}

fn listed(storage: &dyn Storage, listing: Listing) -> (ListedDir, Handle) {
    let begun = Instant::now();
    let entries = listing.entries.into_iter().map(|found| ListedEntry {
        // `ls -l` and `cp -a` ask for them of each name.
        has_no_xattrs: begun.elapsed() < AHEAD_TIME && has_no_xattrs(storage, &listing.handle, &found.entry),
        entry: found.entry,
        stat: found.stat,
    });
    let dir = ListedDir {
        entries: Some(entries.collect()),
        default_acl: listing.default_acl.map_err(Errno::raw_os_error),
    };
    (dir, listing.handle)
}

fn has_no_xattrs(storage: &dyn Storage, dir: &Handle, entry: &DirEntry) -> bool {
    storage
        .list_xattrs(dir, &entry.name)
        .is_ok_and(|names| names.is_empty())
}

/// The directories in a listed one, but for those of jobs, and what is mounted there: looking into that may have it mounted.
fn note_dirs(dir: &ListedDir, place: usize, device: u64, waiting: &mut VecDeque<(usize, OsString)>) {
    let is_dir = |found: &&ListedEntry| {
        let is_of_tree = |stat: Stat| stat.kind == FileType::Dir && stat.dev == device;
        found.stat.is_some_and(is_of_tree) && !is_staging_name(&found.entry.name)
    };
    let dirs = dir.entries.iter().flatten().filter(is_dir);
    waiting.extend(dirs.map(|found| (place, found.entry.name.clone())));
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "it makes trees on the disk")]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use elbow_file::RealStorage;
    use elbow_file::double::{Counting, Delaying, Faulty, Interposed, Operation, Plan};

    use super::*;

    /// What a machine that is busy with other things needs at most.
    const LONG: Duration = Duration::from_secs(3600);

    fn tree(dirs: &[&str], files: &[&str]) -> (tempfile::TempDir, Handle) {
        let place = tempfile::tempdir().expect("a directory");
        for dir in dirs {
            fs::create_dir_all(place.path().join(dir)).expect("a directory");
        }
        for file in files {
            fs::write(place.path().join(file), "x").expect("a file");
        }
        let root = RealStorage::open_root(place.path()).expect("a root");
        (place, root)
    }

    /// The paths of the directories that came along, and the number of entries of each.
    fn paths(listed: &ListedMessage) -> Vec<(String, usize)> {
        let mut paths = vec![String::new()];
        for below in &listed.below {
            let path = format!("{}/{}", paths[below.parent as usize], below.name.display());
            paths.push(path);
        }
        let counts = listed
            .below
            .iter()
            .map(|below| below.dir.entries.as_ref().map_or(0, Vec::len));
        paths.into_iter().skip(1).zip(counts).collect()
    }

    #[test]
    fn the_nearest_directories_come_along_until_there_are_enough_entries() {
        let (_place, root) = tree(&["a/b/c/d", "e/f"], &["a/1", "a/2", "a/b/3", "e/4", "top"]);
        let (alone, made) = list_within(&RealStorage, root.clone(), 0, LONG).expect("a listing");
        assert_eq!(
            (alone.dir.entries.expect("entries").len(), alone.below.len(), made.len()),
            (3, 0, 1)
        );
        let (all, made) = list_within(&RealStorage, root.clone(), 100, LONG).expect("a listing");
        let mut found = paths(&all);
        assert_eq!(made.len(), found.len() + 1, "each is open");
        assert!(
            found[..2].iter().all(|(path, _)| path.len() == 2),
            "the nearest first: {found:?}"
        );
        found.sort();
        let expected = [
            ("/a", 3),
            ("/a/b", 2),
            ("/a/b/c", 1),
            ("/a/b/c/d", 0),
            ("/e", 2),
            ("/e/f", 0),
        ];
        assert_eq!(found, expected.map(|(path, count)| (path.to_string(), count)));
        for (below, handle) in all.below.iter().zip(&made[1..]) {
            let names = RealStorage.list(handle).expect("names").len();
            assert_eq!(
                names,
                below.dir.entries.as_ref().expect("entries").len(),
                "the handles are theirs"
            );
        }
        let (few, _) = list_within(&RealStorage, root.clone(), 4, LONG).expect("a listing");
        assert!((1..=2).contains(&few.below.len()), "{:?}", paths(&few));
        let (small, _) = list_within(&RealStorage, root, 2, LONG).expect("a listing");
        assert_eq!(paths(&small), [("/e".to_string(), 2)], "the other is too large");
    }

    #[test]
    fn what_belongs_to_jobs_or_cannot_be_listed_does_not_come_along() {
        let (_place, root) = tree(&[".elbow-0123456789abcdef-1.000000001/x", "closed/x", "open/x"], &[]);
        let refuses = Plan::fail(Errno::IO).on(Operation::OpenDir).named("closed");
        let storage = Interposed::new(Arc::new(RealStorage), Faulty::new([refuses]));
        let (listed, _) = list_within(&storage, root, 100, LONG).expect("a listing");
        assert_eq!(storage.hook().fired(), 1);
        let found: Vec<String> = paths(&listed).into_iter().map(|(path, _)| path).collect();
        assert_eq!(found, ["/open", "/open/x"]);
    }

    #[test]
    fn a_tree_of_many_directories_and_a_slow_storage_come_in_parts() {
        let dirs: Vec<String> = (0..300).map(|number| format!("d{number}")).collect();
        let (_place, root) = tree(&dirs.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
        let counting = Interposed::new(Arc::new(RealStorage), Counting::default());
        let (listed, made) = list_with_below(&counting, root.clone(), usize::MAX).expect("a listing");
        assert!(listed.below.len() <= BELOW_MAX && made.len() <= 1 + BELOW_MAX);
        assert_eq!(counting.hook().count(Operation::OpenDir), listed.below.len() as u64);
        let slow = Delaying::new(Duration::from_millis(30), 1);
        let (listed, _) =
            list_with_below(&Interposed::new(Arc::new(RealStorage), slow), root, usize::MAX).expect("a listing");
        assert!(listed.below.is_empty(), "the look itself took too long");
    }
}
