//! Reading small files ahead of whoever walks through a directory.
//!
//! Copying, archiving, searching and compiling read many small files, one after the other, each of which costs two
//! or three round trips to the storage. Where files of a directory are opened in the order of its listing, or of the
//! inode numbers (as cp(1) and rm(1) do), those that come next are opened and read in advance. The data is thrown away: it stays in the page cache of the storage
//! below for as long as the file is held open, which is until its reader has closed it or others have taken its place.
//!
//! ```text
//!   a.c   b.c   c.c   d.c   e.c  ...           listing
//!    ^opened ^opened    [ WINDOW files ahead ]  frontier ->
//! ```
//!
//! Pure bookkeeping: [`Walks`] says what to read, [`HeldFiles`] what to let go of; the caller does both.

use std::collections::{HashMap, HashSet, VecDeque};

use elbow_job::Ino;

/// Files read ahead of a walk: enough to keep as many operations in flight as a server likes.
const WINDOW: usize = 32;
/// A walk may skip so many names (directories, files of another kind) and still be one.
const SKIP_MAX: usize = 8;
/// A directory whose files are opened in no order is given up after so many looks at its listing.
const LOOKS_MAX: u32 = 4;
/// Walks that are followed at once; the one that rested longest gives way.
const WALKS_MAX: usize = 16;
/// Files held open at once.
const HELD_MAX: usize = 128;

/// Directories whose files are being read one after the other.
#[derive(Debug, Default)]
pub(crate) struct Walks {
    /// The most recent last.
    walks: Vec<Walk>,
}

#[derive(Debug)]
struct Walk {
    dir: Ino,
    /// The file that was opened last.
    last: Ino,
    /// How often the listing was looked at in vain.
    looks: u32,
    /// The order in which it goes, once that is known.
    read_order: Option<ReadOrder>,
}

/// A file and the inode number that is shown for it.
pub(crate) type NumberedFile = (Ino, u64);

#[derive(Debug)]
struct ReadOrder {
    files: Vec<Ino>,
    place: HashMap<Ino, usize>,
    /// JobDirectory of the last file that was opened.
    last: usize,
    /// All files before this place have been looked at.
    frontier: usize,
}

impl Walks {
    /// Notes that a file of a directory is opened to be read; what to read in advance. `list` gives the files of the
    /// directory by name, if that can be said at once.
    pub(crate) fn note(&mut self, dir: Ino, file: Ino, list: impl FnOnce() -> Option<Vec<NumberedFile>>) -> Vec<Ino> {
        let mut walk = match self.walks.iter().position(|walk| walk.dir == dir) {
            Some(at) => self.walks.remove(at),
            None => Walk {
                dir,
                last: file,
                looks: 0,
                read_order: None,
            },
        };
        walk.orient(file, list);
        let ahead = walk
            .read_order
            .as_mut()
            .map(|read_order| read_order.advance(file))
            .unwrap_or_default();
        if self.walks.len() >= WALKS_MAX {
            self.walks.remove(0);
        }
        self.walks.push(walk);
        ahead
    }
}

impl Walk {
    /// Finds the order in which the last file comes shortly before this one.
    fn orient(&mut self, file: Ino, list: impl FnOnce() -> Option<Vec<NumberedFile>>) {
        let last = std::mem::replace(&mut self.last, file);
        if self.read_order.is_some() || last == file || self.looks >= LOOKS_MAX {
            return;
        }
        self.looks += 1;
        let Some(by_name) = list() else { return };
        let mut by_number = by_name.clone();
        by_number.sort_unstable_by_key(|(_, number)| *number);
        let courses = [by_name, by_number].map(|files| ReadOrder::new(&files, last, file));
        self.read_order = courses
            .into_iter()
            .flatten()
            .min_by_key(|read_order| read_order.step(file));
    }
}

impl ReadOrder {
    fn new(files: &[NumberedFile], last: Ino, next: Ino) -> Option<Self> {
        let files: Vec<Ino> = files.iter().map(|(file, _)| *file).collect();
        let place: HashMap<_, _> = files.iter().enumerate().map(|(at, file)| (*file, at)).collect();
        let last = *place.get(&last)?;
        let read_order = Self {
            files,
            place,
            last,
            frontier: last + 1,
        };
        read_order.step(next).is_some().then_some(read_order)
    }

    /// By how many places a file comes after the last one, if it belongs to the same walk.
    fn step(&self, file: Ino) -> Option<usize> {
        let at = *self.place.get(&file)?;
        (at > self.last && at - self.last <= SKIP_MAX).then(|| at - self.last)
    }

    fn advance(&mut self, file: Ino) -> Vec<Ino> {
        let Some(&at) = self.place.get(&file) else {
            return Vec::new();
        };
        let in_order = self.step(file).is_some();
        self.last = at;
        if !in_order {
            return Vec::new();
        }
        let start = self.frontier.max(at + 1);
        self.frontier = (at + 1 + WINDOW).min(self.files.len()).max(start);
        self.files.get(start..self.frontier).unwrap_or_default().to_vec()
    }
}

/// Files that are held open because somebody will read them soon.
#[derive(Debug, Default)]
pub(crate) struct HeldFiles {
    files: HashSet<Ino>,
    order: VecDeque<Ino>,
}

impl HeldFiles {
    /// Holds a file that has been opened; one that has to be let go of for it.
    pub(crate) fn hold(&mut self, file: Ino) -> Option<Ino> {
        if !self.files.insert(file) {
            return Some(file); // opened twice, held once
        }
        self.order.push_back(file);
        while self.order.len() > HELD_MAX {
            let oldest = self.order.pop_front()?;
            if self.files.remove(&oldest) {
                return Some(oldest);
            }
        }
        None
    }

    /// Whether a file was held and is now to be let go of: its reader is done.
    pub(crate) fn take(&mut self, file: Ino) -> bool {
        self.files.remove(&file)
    }

    pub(crate) fn contains(&self, file: Ino) -> bool {
        self.files.contains(&file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Ino = Ino(2);

    /// By name and by number they are in opposite order.
    fn files() -> Option<Vec<NumberedFile>> {
        Some((100..200).map(|n| (Ino(n), 1000 - n)).collect())
    }

    fn range(from: u64, to: u64) -> Vec<Ino> {
        (from..to).map(Ino).collect()
    }

    #[test]
    fn a_walk_is_kept_a_window_ahead() {
        let mut walks = Walks::default();
        assert!(walks.note(DIR, Ino(100), || panic!("one file is no walk")).is_empty());
        assert_eq!(walks.note(DIR, Ino(101), files), range(102, 134));
        assert_eq!(walks.note(DIR, Ino(102), || panic!("known")), range(134, 135));
        assert_eq!(
            walks.note(DIR, Ino(105), || panic!("known")),
            range(135, 138),
            "names may be skipped"
        );
    }

    #[test]
    fn a_walk_by_inode_number_is_recognised() {
        let mut walks = Walks::default();
        walks.note(DIR, Ino(150), files);
        let mut expected = range(116, 148);
        expected.reverse();
        assert_eq!(walks.note(DIR, Ino(148), files), expected);
        assert_eq!(walks.note(DIR, Ino(147), || panic!("known")), range(115, 116));
    }

    #[test]
    fn it_ends_with_the_directory() {
        let mut walks = Walks::default();
        walks.note(DIR, Ino(196), files);
        assert_eq!(walks.note(DIR, Ino(197), files), range(198, 200));
        assert!(walks.note(DIR, Ino(198), files).is_empty());
        assert!(walks.note(DIR, Ino(199), files).is_empty());
    }

    #[test]
    fn other_orders_are_left_alone_and_given_up() {
        let mut walks = Walks::default();
        let looks = std::cell::Cell::new(0);
        let mut open = |file| {
            walks.note(DIR, Ino(file), || {
                looks.set(looks.get() + 1);
                files()
            })
        };
        for file in [150, 120, 190, 190, 999, 130, 160, 100, 140] {
            assert!(open(file).is_empty(), "{file}");
        }
        assert_eq!(looks.get(), LOOKS_MAX);
    }

    #[test]
    fn a_leap_does_not_end_a_walk() {
        let mut walks = Walks::default();
        walks.note(DIR, Ino(150), files);
        assert_eq!(walks.note(DIR, Ino(151), files), range(152, 184));
        assert!(walks.note(DIR, Ino(120), files).is_empty(), "back");
        assert!(
            walks.note(DIR, Ino(121), files).is_empty(),
            "all of that has been looked at"
        );
        assert!(walks.note(DIR, Ino(184), files).is_empty(), "and forth");
        assert_eq!(walks.note(DIR, Ino(185), files), range(186, 200));
    }

    #[test]
    fn the_oldest_walk_gives_way() {
        let mut walks = Walks::default();
        for dir in 0..=WALKS_MAX as u64 {
            walks.note(Ino(dir), Ino(100), files);
        }
        assert_eq!(walks.walks.len(), WALKS_MAX);
        assert!(walks.note(Ino(0), Ino(101), files).is_empty(), "it begins anew");
        assert!(!walks.note(Ino(5), Ino(101), files).is_empty(), "it goes on");
    }

    #[test]
    fn files_are_held_until_read_or_replaced() {
        let mut held = HeldFiles::default();
        assert_eq!(held.hold(Ino(1)), None);
        assert_eq!(held.hold(Ino(1)), Some(Ino(1)), "the second opening is one too many");
        assert!(held.contains(Ino(1)) && held.take(Ino(1)) && !held.take(Ino(1)));
        let let_go: Vec<_> = (0..1000).filter_map(|n| held.hold(Ino(n + 10))).collect();
        assert_eq!(held.files.len() + let_go.len(), 1000, "each is held or let go of");
        assert!(held.files.len() <= HELD_MAX);
    }
}
