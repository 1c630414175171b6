//! What a crash leaves: the durable tree, and the trees that come of it with some of the other changes.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::IoSlice;
use std::sync::Arc;

use super::{Content, Event, Name, Node};
use crate::{Handle, Result, Storage, Time};

/// The unit of holes, in bytes: what a file system punches and allocates.
const PAGE_BYTES: u64 = 4096;
/// The unit of writing, in bytes: a disk writes a sector whole or not at all.
const SECTOR_BYTES: u64 = 512;
/// So many changes or fewer are tried in all their subsets.
const ALL_SUBSETS_MAX: usize = 8;
/// Images in which changes survive whole, where there are more subsets than can be tried.
const SUBSETS: u64 = 1 << ALL_SUBSETS_MAX;
/// Images besides, in which changes survive in part.
const TORN_IMAGES: u64 = 32;

/// What is durable at a moment, and the changes that may or may not survive a crash then.
pub struct Crash {
    durable: Tree,
    pending: Vec<Event>,
}

/// A tree that a crash could have left. Displayed, it says which of the pending changes survived in it.
pub struct Image {
    tree: Tree,
    survivors: String,
}

/// A directory and a name in it.
type Place = (Handle, OsString);

#[derive(Clone)]
struct Tree {
    root: Node,
    dirs: HashMap<Node, BTreeMap<OsString, Node>>,
    files: HashMap<Node, File>,
    targets: HashMap<Node, OsString>,
}

#[derive(Clone, Default)]
struct File {
    size: u64,
    mtime: Option<Time>,
    pages: BTreeMap<u64, Arc<[u8; PAGE_BYTES as usize]>>,
}

impl Crash {
    pub(super) fn new(root: Node, history: &[Event]) -> Self {
        let mut durable = Tree {
            root,
            dirs: HashMap::new(),
            files: HashMap::new(),
            targets: HashMap::new(),
        };
        let mut pending = Vec::new();
        let synced = Synced::new(history);
        for (moment, event) in history.iter().enumerate() {
            match event {
                Event::Sync(_) | Event::SyncAll => (),
                change if synced.covers(moment, change) => durable.apply(change, |_| true),
                change => pending.push(change.clone()),
            }
        }
        Self { durable, pending }
    }

    /// How many changes may survive or not. A test asserts that there were some: a crash that loses nothing proves nothing.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Trees that the crash could have left: of up to 8 pending changes all subsets, of more 256 random ones (with all
    /// and none); then 32 with torn changes, if any can be torn. Equal seeds give equal images.
    pub fn images(&self, seed: u64) -> impl Iterator<Item = Image> + '_ {
        let is_small = self.pending.len() <= ALL_SUBSETS_MAX;
        let subsets = if is_small { 1 << self.pending.len() } else { SUBSETS };
        let torn = if self.pending.iter().any(can_be_torn) {
            TORN_IMAGES
        } else {
            0
        };
        let whole = (0..subsets).map(move |subset| {
            self.image(|change, _| match subset {
                0 => false,
                _ if is_small => subset >> change & 1 == 1,
                _ => subset == SUBSETS - 1 || mix(&[seed, subset, change]) & 1 == 1,
            })
        });
        let torn = (0..torn).map(move |image| {
            self.image(move |change, part| {
                // Half of the changes survive whole, so that a torn one is seen among others.
                let is_whole = mix(&[seed, !image, change]) & 1 == 1;
                is_whole || mix(&[seed, !image, change, part]) & 1 == 1
            })
        });
        whole.chain(torn)
    }

    /// The tree in which those parts of pending changes survive that the function says; part 0 is the first sector.
    fn image(&self, survives: impl Fn(u64, u64) -> bool) -> Image {
        let mut tree = self.durable.clone();
        let mut survivors = String::new();
        let mut names_go_on = true;
        for (index, change) in self.pending.iter().enumerate() {
            let index = index as u64;
            if matches!(change, Event::Names(_)) {
                names_go_on &= survives(index, 0);
                survivors.push(if names_go_on { '1' } else { '0' });
                if names_go_on {
                    tree.apply(change, |_| true);
                }
                continue;
            }
            let parts = parts_of(change);
            let surviving = (0..parts).filter(|&part| survives(index, part)).count() as u64;
            survivors.push(match surviving {
                0 => '0',
                all if all == parts => '1',
                _ => '~',
            });
            tree.apply(change, |part| survives(index, part));
        }
        Image { tree, survivors }
    }
}

impl Image {
    /// Makes the tree in an empty directory.
    ///
    /// # Errors
    /// Those of making and writing its directories and files.
    pub fn write_to(&self, storage: &dyn Storage, dir: &Handle) -> Result<()> {
        self.tree.write_dir(storage, dir, self.tree.root, &mut HashMap::new())
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "crash image with {} (pending changes in order; 1 survived, ~ in part)",
            self.survivors
        )
    }
}

/// The last syncs of a history.
struct Synced {
    of_node: HashMap<Node, usize>,
    of_all: usize,
    /// Changes of names up to this moment are durable.
    names: usize,
}

impl Synced {
    fn new(history: &[Event]) -> Self {
        let mut synced = Self {
            of_node: HashMap::new(),
            of_all: 0,
            names: 0,
        };
        let mut last_name: HashMap<Node, usize> = HashMap::new();
        for (moment, event) in history.iter().enumerate() {
            match event {
                Event::Names(names) => names.iter().for_each(|name| {
                    last_name.insert(name.dir, moment);
                }),
                Event::Content(..) | Event::Target(..) | Event::Mtime(..) => (),
                Event::Sync(node) => {
                    synced.of_node.insert(*node, moment);
                    let last = last_name.get(node).map_or(0, |last| last + 1);
                    synced.names = synced.names.max(last);
                }
                Event::SyncAll => (synced.of_all, synced.names) = (moment, moment),
            }
        }
        synced
    }

    fn covers(&self, moment: usize, change: &Event) -> bool {
        match change {
            Event::Names(_) => moment < self.names,
            Event::Content(node, _) => {
                moment < self.of_all || self.of_node.get(node).is_some_and(|&sync| moment < sync)
            }
            Event::Target(..) | Event::Mtime(..) | Event::Sync(_) | Event::SyncAll => true,
        }
    }
}

impl Tree {
    /// Makes those parts of a change that survive.
    fn apply(&mut self, change: &Event, survives: impl Fn(u64) -> bool) {
        match change {
            Event::Names(names) => names.iter().for_each(|name| self.rename(name)),
            Event::Content(node, content) => self.files.entry(*node).or_default().apply(content, survives),
            Event::Target(node, target) => drop(self.targets.insert(*node, target.clone())),
            Event::Mtime(node, mtime) => self.files.entry(*node).or_default().mtime = Some(*mtime),
            Event::Sync(_) | Event::SyncAll => (),
        }
    }

    fn rename(&mut self, Name { dir, name, node }: &Name) {
        let entries = self.dirs.entry(*dir).or_default();
        match node {
            Some(node) => entries.insert(name.clone(), *node),
            None => entries.remove(name),
        };
    }

    /// `made`: where the files are that have a name already.
    fn write_dir(
        &self,
        storage: &dyn Storage,
        dir: &Handle,
        node: Node,
        made: &mut HashMap<Node, Place>,
    ) -> Result<()> {
        for (name, child) in self.dirs.get(&node).into_iter().flatten() {
            if child.is_dir {
                storage.mkdir(dir, name, 0o700)?;
                self.write_dir(storage, &storage.open_dir(dir, name)?, *child, made)?;
            } else if let Some((first_dir, first)) = made.get(child) {
                storage.link(first_dir, first, dir, name)?;
            } else {
                match self.targets.get(child) {
                    Some(target) => storage.symlink(target, dir, name)?,
                    None => self.write_file(storage, dir, name, *child)?,
                }
                made.insert(*child, (dir.clone(), name.clone()));
            }
        }
        Ok(())
    }

    fn write_file(&self, storage: &dyn Storage, dir: &Handle, name: &OsStr, node: Node) -> Result<()> {
        let handle = storage.create(dir, name, 0o600)?;
        let Some(file) = self.files.get(&node) else {
            return Ok(());
        };
        for (index, page) in &file.pages {
            storage.write(&handle, &[IoSlice::new(&page[..])], index * PAGE_BYTES)?;
        }
        storage.truncate(&handle, file.size)?;
        match file.mtime {
            Some(_) => storage.set_times_handle(&handle, None, file.mtime),
            None => Ok(()),
        }
    }
}

impl File {
    fn apply(&mut self, content: &Content, survives: impl Fn(u64) -> bool) {
        self.mtime = None;
        match content {
            Content::Write { offset, bytes } => {
                for (part, start, end) in parts(*offset, bytes.len() as u64, SECTOR_BYTES) {
                    if survives(part) {
                        self.write(start, &bytes[(start - offset) as usize..(end - offset) as usize]);
                    }
                }
            }
            Content::Punch { offset, length } => parts(*offset, *length, PAGE_BYTES)
                .filter(|&(part, ..)| survives(part))
                .for_each(|(_, start, end)| self.punch(start, end)),
            Content::Truncate { size } if survives(0) => self.truncate(*size),
            Content::Truncate { .. } => (),
        }
    }

    /// Writes bytes that lie in one sector.
    fn write(&mut self, start: u64, bytes: &[u8]) {
        let page = self.pages.entry(start / PAGE_BYTES);
        let page = Arc::make_mut(page.or_insert_with(|| Arc::new([0; _])));
        page[(start % PAGE_BYTES) as usize..][..bytes.len()].copy_from_slice(bytes);
        self.size = self.size.max(start + bytes.len() as u64);
    }

    /// Frees a whole page, or zeroes a part of one.
    fn punch(&mut self, start: u64, end: u64) {
        let index = start / PAGE_BYTES;
        if end - start == PAGE_BYTES || (start.is_multiple_of(PAGE_BYTES) && end >= self.size) {
            self.pages.remove(&index);
        } else if let Some(page) = self.pages.get_mut(&index) {
            Arc::make_mut(page)[(start % PAGE_BYTES) as usize..][..(end - start) as usize].fill(0);
        }
    }

    fn truncate(&mut self, size: u64) {
        self.pages.split_off(&size.div_ceil(PAGE_BYTES));
        if !size.is_multiple_of(PAGE_BYTES) {
            self.punch(size, size.next_multiple_of(PAGE_BYTES));
        }
        self.size = size;
    }
}

/// A range, divided at the multiples of a unit: number of the part, start and end.
fn parts(offset: u64, length: u64, unit: u64) -> impl Iterator<Item = (u64, u64, u64)> {
    let end = offset.saturating_add(length);
    let first = offset / unit;
    (first..end.div_ceil(unit)).map(move |index| {
        (
            index - first,
            (index * unit).max(offset),
            (index + 1).saturating_mul(unit).min(end),
        )
    })
}

fn parts_of(change: &Event) -> u64 {
    match change {
        Event::Content(_, Content::Write { offset, bytes }) => {
            parts(*offset, bytes.len() as u64, SECTOR_BYTES).count() as u64
        }
        Event::Content(_, Content::Punch { offset, length }) => parts(*offset, *length, PAGE_BYTES).count() as u64,
        _ => 1,
    }
}

fn can_be_torn(change: &Event) -> bool {
    parts_of(change) > 1
}

/// A pseudo-random number of some numbers (the finalizer of SplitMix64, chained).
fn mix(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |state, number| {
        let mut z = (state ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    })
}
