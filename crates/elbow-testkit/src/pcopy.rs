//! Copies a tree with many threads: the best that "extract to local memory, then copy" can do, as a rival for the benches.
//!
//! ```text
//!   directories, a level at a time  ->  files and symbolic links  ->  hard links  ->  modes and times of directories
//! ```
//!
//! Each step is spread over all threads, and each file costs the fewest calls that leave it equal: open, write, the
//! attributes that a new file does not have already (none but its times where the umask is 0), close.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, CWD, Gid, Mode, Timespec, Timestamps, Uid, chownat, fchmod, fchown, futimens, utimensat};

/// Bytes per read and write.
const PIECE: usize = 1 << 20;

/// Copies what is below `source` into the existing directory `target`, with `threads` threads.
///
/// # Errors
/// The first error met; what has been copied by then stays.
pub fn copy_tree(source: &Path, target: &Path, threads: usize) -> io::Result<()> {
    let plan = Plan::of(source)?;
    let copy = Copy {
        source,
        target,
        privileged: rustix::process::geteuid().is_root(),
    };
    for level in &plan.levels {
        in_parallel(level, threads, |item| fs::create_dir(target.join(&item.path)))?;
    }
    in_parallel(&plan.files, threads, |item| copy.file(item))?;
    in_parallel(&plan.links, threads, |(old, new)| {
        fs::hard_link(target.join(old), target.join(new))
    })?;
    for level in plan.levels.iter().rev() {
        in_parallel(level, threads, |item| copy.finish_directory(item))?;
    }
    Ok(())
}

struct Item {
    path: PathBuf,
    found: fs::Metadata,
}

/// What is to be copied, relative to the source.
#[derive(Default)]
struct Plan {
    levels: Vec<Vec<Item>>,
    files: Vec<Item>,
    links: Vec<(PathBuf, PathBuf)>,
}

impl Plan {
    fn of(source: &Path) -> io::Result<Self> {
        let mut plan = Self::default();
        let mut first_names = std::collections::HashMap::new();
        let mut directories = vec![PathBuf::new()];
        while !directories.is_empty() {
            let mut level = Vec::new();
            for directory in directories {
                for entry in fs::read_dir(source.join(&directory))? {
                    let path = directory.join(entry?.file_name());
                    let found = fs::symlink_metadata(source.join(&path))?;
                    if found.is_dir() {
                        level.push(Item { path, found });
                        continue;
                    }
                    match first_names.entry((found.dev(), found.ino())) {
                        std::collections::hash_map::Entry::Occupied(first) if found.nlink() > 1 => {
                            let first: &PathBuf = first.get();
                            plan.links.push((first.clone(), path));
                        }
                        entry => {
                            entry.insert_entry(path.clone());
                            plan.files.push(Item { path, found });
                        }
                    }
                }
            }
            directories = level.iter().map(|item| item.path.clone()).collect();
            plan.levels.push(level);
        }
        Ok(plan)
    }
}

struct Copy<'a> {
    source: &'a Path,
    target: &'a Path,
    privileged: bool,
}

impl Copy<'_> {
    fn file(&self, item: &Item) -> io::Result<()> {
        let (from, to) = (self.source.join(&item.path), self.target.join(&item.path));
        if item.found.is_symlink() {
            symlink(fs::read_link(&from)?, &to)?;
            if self.privileged {
                chownat(CWD, &to, owner(item), group(item), AtFlags::SYMLINK_NOFOLLOW)?;
            }
            return Ok(utimensat(CWD, &to, &times(item), AtFlags::SYMLINK_NOFOLLOW)?);
        }
        let mode = item.found.mode() & 0o7777;
        let copy = File::options()
            .write(true)
            .create_new(true)
            .mode(mode & 0o777)
            .open(&to)?;
        let made = copy.metadata()?; // Known from the creation: no round trip.
        copy_content(&mut File::open(&from)?, &copy)?;
        if self.privileged && (made.uid(), made.gid()) != (item.found.uid(), item.found.gid()) {
            fchown(&copy, owner(item), group(item))?;
        }
        if made.mode() & 0o7777 != mode {
            fchmod(&copy, Mode::from_raw_mode(mode))?;
        }
        Ok(futimens(&copy, &times(item))?)
    }

    fn finish_directory(&self, item: &Item) -> io::Result<()> {
        let to = self.target.join(&item.path);
        if self.privileged {
            chownat(CWD, &to, owner(item), group(item), AtFlags::empty())?;
        }
        rustix::fs::chmod(&to, Mode::from_raw_mode(item.found.mode() & 0o7777))?;
        Ok(utimensat(CWD, &to, &times(item), AtFlags::empty())?)
    }
}

fn copy_content(from: &mut File, mut to: &File) -> io::Result<()> {
    let mut piece = vec![0; PIECE.min(usize::try_from(from.metadata()?.len()).unwrap_or(PIECE).max(1))];
    loop {
        match from.read(&mut piece)? {
            0 => return Ok(()),
            length => io::Write::write_all(&mut to, &piece[..length])?,
        }
    }
}

fn owner(item: &Item) -> Option<Uid> {
    Some(Uid::from_raw(item.found.uid()))
}

fn group(item: &Item) -> Option<Gid> {
    Some(Gid::from_raw(item.found.gid()))
}

fn times(item: &Item) -> Timestamps {
    let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
    Timestamps {
        last_access: time(item.found.atime(), item.found.atime_nsec()),
        last_modification: time(item.found.mtime(), item.found.mtime_nsec()),
    }
}

/// Does `work` for each item on some of `threads` threads; the first error stops them all.
fn in_parallel<T: Sync>(items: &[T], threads: usize, work: impl Fn(&T) -> io::Result<()> + Sync) -> io::Result<()> {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
    thread::scope(|scope| {
        for _ in 0..threads.min(items.len()) {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = work(item) {
                        next.store(items.len(), Ordering::Relaxed);
                        failed.lock().get_or_insert(error);
                    }
                }
            });
        }
    });
    failed.into_inner().map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    #[test]
    fn a_copy_is_equal() {
        let dir = tempfile::tempdir().unwrap();
        let [source, target] = ["source", "target"].map(|name| dir.path().join(name));
        fs::create_dir_all(source.join("a/b/c")).unwrap();
        fs::create_dir(&target).unwrap();
        for number in 0..100 {
            fs::write(source.join(format!("a/b/{number}")), vec![7; number * 100]).unwrap();
        }
        fs::hard_link(source.join("a/b/1"), source.join("a/one")).unwrap();
        symlink("b/1", source.join("a/link")).unwrap();
        rustix::fs::chmod(source.join("a/b/c"), Mode::from_raw_mode(0o500)).unwrap();
        rustix::fs::chmod(source.join("a/b/2"), Mode::from_raw_mode(0o4555)).unwrap();
        copy_tree(&source, &target, 8).unwrap();
        let [copied, expected] = [&target, &source].map(|root| Tree::snapshot(root).unwrap().without_root());
        copied.assert_equals(&expected);
    }

    #[test]
    fn an_error_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let [source, target] = ["source", "target"].map(|name| dir.path().join(name));
        fs::create_dir(&source).unwrap();
        fs::create_dir(&target).unwrap();
        fs::write(source.join("f"), "x").unwrap();
        fs::write(target.join("f"), "in the way").unwrap();
        assert_eq!(
            copy_tree(&source, &target, 4).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
    }
}
