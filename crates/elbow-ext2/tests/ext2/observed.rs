//! A file system on a disk of whims, watched; and random operations with a naive model of what they do.

use std::collections::{BTreeMap, HashMap};

use elbow_disk::Ps;
use elbow_ext2::{Action, ConstantDisk, Disk, Ext2, Ext2Error, Options, Outcome, Purpose, RequestId, RequestTarget};
use elbow_ranges::RangeSet;
use rand::Rng;
use rand::rngs::StdRng;

/// What is outstanding, as the disk's side sees it.
enum Out {
    Fixed(std::ops::Range<u64>),
    Range(RangeSet),
}

/// A file system, its disk, and a look at everything that goes between them.
pub(crate) struct ObservedRun {
    pub(crate) fs: Ext2,
    disk: ConstantDisk,
    now: Ps,
    out: HashMap<RequestId, (Out, u32)>,
    pub(crate) pointers_seen: u64,
}

impl ObservedRun {
    pub(crate) fn new(options: Options, seed: u64) -> Self {
        Self {
            fs: Ext2::new(options).unwrap(),
            disk: ConstantDisk::capricious(Ps::from_ms(1.0), seed),
            now: Ps::ZERO,
            out: HashMap::new(),
            pointers_seen: 0,
        }
    }

    /// Does an operation, however long it has to wait.
    pub(crate) fn apply(&mut self, pid: u32, action: &Action) -> Result<(), Ext2Error> {
        let mut in_vain = 0;
        while self.fs.apply(pid, action)? == Outcome::Wait {
            self.pump();
            in_vain = if self.complete() { 0 } else { in_vain + 1 };
            assert!(in_vain < 2, "{action:?} waits for nothing");
        }
        Ok(())
    }

    /// Lets time go by.
    pub(crate) fn pass(&mut self, time: Ps) {
        let until = self.now + time;
        loop {
            self.pump();
            match self.disk.next_at() {
                Some(at) if at <= until => drop(self.complete()),
                _ => break,
            }
        }
        self.now = until;
        self.fs.advance(until);
        self.pump();
    }

    fn pump(&mut self) {
        while let Some(request) = self.fs.next_request() {
            let out = match &request.target {
                RequestTarget::Read(_) => None,
                RequestTarget::Write(at) => Some(self.check_fixed(*at, request.blocks)),
                RequestTarget::WriteRange(targets) => Some(self.check_range(targets, request.blocks)),
            };
            if let Some(out) = out {
                self.out.insert(request.id, (out, request.blocks));
            }
            self.disk.submit(self.now, &request);
        }
    }

    /// Nobody else is writing there, or may be; and pointers point to what is known.
    fn check_fixed(&mut self, at: u32, blocks: u32) -> Out {
        let place = u64::from(at)..u64::from(at) + u64::from(blocks);
        for (other, _) in self.out.values() {
            match other {
                Out::Fixed(other) => assert!(
                    other.end <= place.start || place.end <= other.start,
                    "{place:?} is written while {other:?} is"
                ),
                Out::Range(targets) => assert!(
                    !targets.overlaps(place.start, place.end),
                    "{place:?} is written while a range write may go there"
                ),
            }
        }
        // Adjacent writes are merged, so any request may have pointers in it.
        for block in at..at + blocks {
            match self.fs.purpose_of(block) {
                Purpose::Inodes => self.check_pointers(block, true),
                Purpose::Indirect => self.check_pointers(block, false),
                _ => {}
            }
        }
        Out::Fixed(place)
    }

    /// The crash order: no block is pointed to before its place is known, and marked as used.
    fn check_pointers(&mut self, block: u32, is_table: bool) {
        let content = self.fs.content(block).unwrap();
        let inode_bytes = self.fs.options().inode_bytes as usize;
        let word = |at: usize| u32::from_le_bytes(content[at..at + 4].try_into().unwrap());
        let pointers: Vec<u32> = match is_table {
            true => (0..4096 / inode_bytes)
                .flat_map(|inode| (0..14).map(move |n| inode * inode_bytes + 40 + n * 4))
                .map(word)
                .collect(),
            false => (0..1024).map(|n| word(n * 4)).collect(),
        };
        let mut bitmaps = HashMap::new();
        for pointer in pointers.into_iter().filter(|&pointer| pointer != 0) {
            self.pointers_seen += 1;
            let bits = bitmaps.entry(pointer / 32_768).or_insert_with(|| self.bitmap(pointer));
            assert!(
                is_set(bits, pointer),
                "block {block} points to {pointer}, which is free"
            );
            for (out, _) in self.out.values() {
                if let Out::Range(targets) = out {
                    let open = targets.contains(pointer.into());
                    assert!(!open, "block {block} points to {pointer}, which a range write may take");
                }
            }
        }
    }

    /// The blocks of a group's inodes, by its descriptor.
    fn table_of(&self, group_start: u32) -> std::ops::Range<u32> {
        let descriptors = self.fs.content(1).unwrap();
        let at = (group_start / 32_768) as usize * 32 + 8;
        let first = u32::from_le_bytes(descriptors[at..at + 4].try_into().unwrap());
        let options = self.fs.options();
        first..first + (options.inodes_per_group * options.inode_bytes).div_ceil(4096)
    }

    /// The bitmap that a block is in.
    fn bitmap(&self, block: u32) -> Vec<u8> {
        let bitmap = self.table_of(block / 32_768 * 32_768).start - 2;
        self.fs.content(bitmap).unwrap()
    }

    /// Targets are free, and no other write to a fixed place may hit them.
    fn check_range(&self, targets: &RangeSet, blocks: u32) -> Out {
        let long_enough = |run: std::ops::Range<u64>| run.end - run.start >= u64::from(blocks);
        assert!(targets.iter().any(long_enough), "nothing can hold it");
        let bits = self.bitmap(targets.span().unwrap().start as u32);
        for run in targets {
            let ends = [run.start as u32, run.end as u32 - 1];
            assert!(!ends.into_iter().any(|block| is_set(&bits, block)), "{run:?} is used");
            for (other, _) in self.out.values() {
                if let Out::Fixed(other) = other {
                    assert!(
                        other.end <= run.start || run.end <= other.start,
                        "{run:?} is being written"
                    );
                }
            }
        }
        Out::Range(targets.clone())
    }

    /// Completes one request; `false` if there is none.
    fn complete(&mut self) -> bool {
        let Some(completed) = self.disk.complete() else {
            return false;
        };
        self.now = self.now.max(completed.at);
        self.fs.advance(self.now);
        if let Some((_, blocks)) = self.out.remove(&completed.id) {
            let place = u64::from(completed.place)..u64::from(completed.place) + u64::from(blocks);
            for (other, _) in self.out.values_mut() {
                if let Out::Range(targets) = other {
                    targets.remove(place.start, place.end);
                }
            }
        }
        self.fs.complete(completed);
        true
    }
}

fn is_set(bitmap: &[u8], block: u32) -> bool {
    let bit = block % 32_768;
    bitmap[(bit / 8) as usize] >> (bit % 8) & 1 == 1
}

/// What is at a path: a directory, or a file of a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathState {
    Directory,
    File(u64),
}

/// The tree as simply as it can be said.
#[derive(Clone, Debug)]
pub(crate) struct Tree(pub(crate) BTreeMap<String, PathState>);

impl Tree {
    pub(crate) fn new() -> Self {
        let lost = ("/lost+found".to_owned(), PathState::Directory);
        Self([("/".to_owned(), PathState::Directory), lost].into())
    }

    fn parent(path: &str) -> String {
        match path.rsplit_once('/').map(|(parent, _)| parent) {
            None | Some("") => "/".to_owned(),
            Some(parent) => parent.to_owned(),
        }
    }

    fn is_directory(&self, path: &str) -> bool {
        self.0.get(path) == Some(&PathState::Directory)
    }

    fn below<'t>(&'t self, path: &str) -> impl Iterator<Item = String> + use<'t> {
        let prefix = format!("{path}/");
        self.0.keys().filter(move |key| key.starts_with(&prefix)).cloned()
    }

    /// Does what an action says; `false` if it cannot be.
    pub(crate) fn apply(&mut self, action: &Action) -> bool {
        match action {
            Action::Mkdir(path) => {
                let good = !self.0.contains_key(path) && self.is_directory(&Self::parent(path));
                if good {
                    self.0.insert(path.clone(), PathState::Directory);
                }
                good
            }
            Action::Create(path) => {
                let good = self.is_directory(&Self::parent(path)) && !self.is_directory(path);
                if good {
                    self.0.insert(path.clone(), PathState::File(0));
                }
                good
            }
            Action::Write { path, offset, bytes } => self.resize(path, |size| size.max(offset + bytes)),
            Action::Append { path, bytes } => self.resize(path, |size| size + bytes),
            Action::Truncate { path, bytes } => self.resize(path, |_| *bytes),
            Action::Read { path, .. } => self.resize(path, |size| size),
            Action::Unlink(path) => self.resize(path, |size| size) && self.0.remove(path).is_some(),
            Action::Rmdir(path) => {
                path != "/"
                    && self.is_directory(path)
                    && self.below(path).next().is_none()
                    && self.0.remove(path).is_some()
            }
            Action::Rename { from, to } => self.rename(from, to),
            Action::Fsync(path) | Action::Close(path) => self.0.contains_key(path),
            Action::Sync | Action::Think(_) => true,
        }
    }

    fn resize(&mut self, path: &str, size: impl Fn(u64) -> u64) -> bool {
        match self.0.get_mut(path) {
            Some(PathState::File(old)) => {
                *old = size(*old);
                true
            }
            _ => false,
        }
    }

    fn rename(&mut self, from: &str, to: &str) -> bool {
        let Some(&moved) = self.0.get(from) else { return false };
        if from == "/" || to == "/" || !self.is_directory(&Self::parent(to)) || to.starts_with(&format!("{from}/")) {
            return false;
        }
        let fits = match (moved, self.0.get(to)) {
            _ if from == to => return true,
            (PathState::Directory, Some(PathState::Directory)) => self.below(to).next().is_none(),
            (PathState::File(_), Some(PathState::Directory)) | (PathState::Directory, Some(PathState::File(_))) => {
                false
            }
            _ => true,
        };
        if fits {
            for old in self.below(from).collect::<Vec<_>>() {
                let there = self.0.remove(&old).unwrap();
                self.0.insert(format!("{to}{}", &old[from.len()..]), there);
            }
            self.0.remove(from);
            self.0.insert(to.to_owned(), moved);
        }
        fits
    }

    /// Something to do: mostly possible, at times not.
    pub(crate) fn random_action(&self, rng: &mut StdRng, bytes_max: u64) -> Action {
        let any = |rng: &mut StdRng| self.0.keys().nth(rng.random_range(0..self.0.len())).unwrap().clone();
        let new = |rng: &mut StdRng| {
            let directory = any(rng);
            let name: u32 = rng.random_range(0..40);
            format!(
                "{}/{name:0width$}",
                directory.trim_end_matches('/'),
                width = rng.random_range(1..3) * name as usize
            )
        };
        let file = |rng: &mut StdRng| {
            let files: Vec<&String> = self
                .0
                .iter()
                .filter(|(_, there)| **there != PathState::Directory)
                .map(|(path, _)| path)
                .collect();
            match files.is_empty() {
                true => "/none".to_owned(),
                false => files[rng.random_range(0..files.len())].clone(),
            }
        };
        let (path, bytes) = (file(rng), rng.random_range(0..bytes_max));
        let offset = rng.random_range(0..bytes_max);
        match rng.random_range(0..40) {
            0..3 => Action::Mkdir(new(rng)),
            3..11 => Action::Create(new(rng)),
            11..17 => Action::Write { path, offset: 0, bytes },
            17..19 => Action::Write { path, offset, bytes },
            19..24 => Action::Append { path, bytes },
            24..27 => Action::Read { path, offset, bytes },
            27..29 => Action::Truncate { path, bytes },
            29..33 => Action::Unlink(any(rng)),
            33 => Action::Rmdir(any(rng)),
            34..36 => Action::Rename {
                from: any(rng),
                to: new(rng),
            },
            36 => Action::Rename {
                from: any(rng),
                to: any(rng),
            },
            37 => Action::Close(path),
            38 => Action::Fsync(any(rng)),
            _ => Action::Sync,
        }
    }
}
