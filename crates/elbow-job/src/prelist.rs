//! Listing old directories before they are asked for, once the command is seen to walk a tree.
//!
//! A walk (find, rm -r, cp -r, rsync) reads a directory and then the directories in it. When a directory is
//! read whose parent was read before, its unlisted neighbours and everything below are listed ahead, breadth
//! first, by workers that have nothing else to do. By ssh, where each directory is a round trip and a listing one message, the same is done for
//! who never reads a directory and looks for names that it knows (git status): once it has looked into two of one directory. Bounded: no more than [`ENTRIES_MAX`] entries are listed that
//! the command has not read yet.

use std::collections::{HashSet, VecDeque};

use crate::api::Ino;
use crate::model::Inodes;

/// Entries that may be listed ahead of the command: some ten megabytes of model.
const ENTRIES_MAX: usize = 20_000;

/// Entries below a directory that come with its listing where that is one message: few before anybody is seen to walk.
const AHEAD_FIRST: usize = 256;
const AHEAD_MAX: usize = 4096;

/// Directories to list ahead.
#[derive(Debug, Default)]
pub(crate) struct Prelist {
    queue: VecDeque<Ino>,
    seen: HashSet<Ino>,
    /// Directories whose entries have been looked through for directories: each once, however many of these are read.
    expanded: HashSet<Ino>,
    /// Directories with one in which something was looked for.
    searched: HashSet<Ino>,
    /// Directories listed ahead that the command has neither read nor found anything in, with their number of entries.
    unread: std::collections::HashMap<Ino, usize>,
    unread_entries: usize,
    /// Entries that have been looked at.
    #[cfg(test)]
    pub(crate) looked: usize,
}

impl Prelist {
    /// The next directory, if there is room for what it may hold.
    pub(crate) fn pop(&mut self) -> Option<Ino> {
        if self.unread_entries >= ENTRIES_MAX {
            None
        } else {
            self.queue.pop_front()
        }
    }

    /// About so many entries below the next directory that is listed may come along with it.
    pub(crate) fn ahead(&self) -> usize {
        let most = match self.expanded.is_empty() {
            true => AHEAD_FIRST,
            false => AHEAD_MAX,
        };
        most.min(ENTRIES_MAX.saturating_sub(self.unread_entries))
    }

    pub(crate) fn is_ready(&self) -> bool {
        !self.queue.is_empty() && self.unread_entries < ENTRIES_MAX
    }

    fn push(&mut self, ino: Ino) {
        if self.seen.insert(ino) {
            self.queue.push_back(ino);
        }
    }
}

impl Prelist {
    /// The command reads a directory: if that is part of a walk, what comes next is listed ahead.
    pub(crate) fn note_reading(&mut self, inodes: &mut Inodes, ino: Ino) {
        self.note_used(ino);
        let Ok(dir) = inodes.dir_at_checked(ino) else {
            return;
        };
        if std::mem::replace(&mut dir.was_read, true) || ino == Ino::ROOT {
            return;
        }
        let parent = inodes.parent(ino);
        if inodes.dir_at(parent).was_read {
            self.expand(inodes, parent);
            self.expand(inodes, ino);
        }
    }

    /// What was listed of a directory was of use, so that there is room for others.
    pub(crate) fn note_used(&mut self, ino: Ino) {
        if let Some(entries) = self.unread.remove(&ino) {
            self.unread_entries -= entries;
        }
    }

    /// A directory was listed because something in it is looked for: if that is the second one of its parent, the others of that are listed ahead.
    pub(crate) fn note_searched(&mut self, inodes: &Inodes, ino: Ino) {
        if ino == Ino::ROOT || inodes.get(ino).and_then(|inode| inode.dir()).is_err() {
            return;
        }
        let parent = inodes.parent(ino);
        if !self.searched.insert(parent) {
            self.expand(inodes, parent);
            self.expand(inodes, ino);
        }
    }

    /// A directory was listed ahead: so are those in it.
    pub(crate) fn note_listed(&mut self, inodes: &mut Inodes, ino: Ino) {
        self.note_unread(inodes, ino);
        self.expand(inodes, ino);
    }

    /// A directory came along with one above it. Those in it are listed ahead, if that one's are.
    pub(crate) fn note_below(&mut self, inodes: &mut Inodes, (above, ino): (Ino, Ino)) {
        self.note_unread(inodes, ino);
        if self.expanded.contains(&above) {
            self.expand(inodes, ino);
        }
    }

    fn note_unread(&mut self, inodes: &mut Inodes, ino: Ino) {
        let Ok(dir) = inodes.dir_at_checked(ino) else {
            return;
        };
        if !dir.was_read {
            let entries = dir.entries().len();
            self.unread.insert(ino, entries);
            self.unread_entries += entries;
        }
    }

    /// What is in a directory is listed ahead, and what is in those directories of it that have been listed already.
    fn expand(&mut self, inodes: &Inodes, ino: Ino) {
        let mut above = vec![ino];
        while let Some(ino) = above.pop() {
            if !inodes.dir_at(ino).is_complete() || !self.expanded.insert(ino) {
                continue;
            }
            #[cfg(test)]
            {
                self.looked += inodes.dir_at(ino).entries().len();
            }
            for child in inodes.dir_at(ino).entries().values() {
                match inodes.at(*child).dir() {
                    Ok(dir) if dir.is_complete() => above.push(*child),
                    Ok(_) => self.push(*child),
                    Err(_) => {}
                }
            }
        }
    }
}
