//! Directories: blocks of entries as they lie on the disk, and an index of them.
//!
//! ```text
//!   entry:  inode u32 | length u16 | name length u8 | type u8 | name, padded to 4
//!           the lengths of the entries of a block add up to the block; inode 0 is free room
//! ```
//!
//! A new entry goes into the first room that is large enough, from the first block on; a removed one becomes part of the one before.
//!
//! Source: Linux 2.6.20, fs/ext2/dir.c (ext2_add_link, ext2_delete_entry), by behaviour.

use std::collections::HashMap;

use crate::BLOCK_BYTES;

/// Bytes of an entry before its name.
const HEAD: usize = 8;
/// Longest name.
pub(crate) const NAME_MAX: usize = 255;

/// What an entry says of its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileType {
    File = 1,
    Directory = 2,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Directory {
    blocks: Vec<Vec<u8>>,
    /// Name to inode and block.
    index: HashMap<Box<[u8]>, (u32, u32)>,
    /// The most room that an entry might find in a block.
    room: Vec<usize>,
}

/// Bytes that an entry takes.
fn needed(name: &[u8]) -> usize {
    (HEAD + name.len()).next_multiple_of(4)
}

/// One entry in a block.
#[derive(Clone, Copy)]
struct Entry {
    at: usize,
    inode: u32,
    length: usize,
    name_length: usize,
}

impl Entry {
    fn read(block: &[u8], at: usize) -> Self {
        let word = |from: usize| u16::from_le_bytes([block[at + from], block[at + from + 1]]);
        Self {
            at,
            inode: u32::from(word(0)) | u32::from(word(2)) << 16,
            length: word(4).into(),
            name_length: block[at + 6].into(),
        }
    }

    /// Bytes in use.
    fn used(&self) -> usize {
        match self.inode {
            0 => 0,
            _ => (HEAD + self.name_length).next_multiple_of(4),
        }
    }

    fn name(self, block: &[u8]) -> &[u8] {
        &block[self.at + HEAD..self.at + HEAD + self.name_length]
    }
}

fn entries(block: &[u8]) -> impl Iterator<Item = Entry> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let entry = (at < BLOCK_BYTES).then(|| Entry::read(block, at))?;
        at += entry.length;
        Some(entry)
    })
}

fn put(block: &mut [u8], at: usize, length: usize, inode: u32, name: &[u8], kind: FileType) {
    block[at..at + 4].copy_from_slice(&inode.to_le_bytes());
    set_length(block, at, length);
    block[at + 6] = name.len() as u8; // at most NAME_MAX
    block[at + 7] = kind as u8;
    block[at + HEAD..at + HEAD + name.len()].copy_from_slice(name);
}

fn set_length(block: &mut [u8], at: usize, length: usize) {
    let length = u16::try_from(length).expect("a length within a block");
    block[at + 4..at + 6].copy_from_slice(&length.to_le_bytes());
}

impl Directory {
    /// Number of its blocks.
    pub(crate) fn blocks(&self) -> u32 {
        self.blocks.len() as u32
    }

    /// A block as it lies on the disk.
    pub(crate) fn block(&self, number: u32) -> &[u8] {
        &self.blocks[number as usize]
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<u32> {
        self.index.get(name).map(|&(inode, _)| inode)
    }

    /// Has nothing but `.` and `..`.
    pub(crate) fn is_empty(&self) -> bool {
        self.index.len() <= 2
    }

    /// One more block without entries.
    pub(crate) fn grow(&mut self) {
        let mut block = vec![0; BLOCK_BYTES];
        set_length(&mut block, 0, BLOCK_BYTES);
        self.blocks.push(block);
        self.room.push(BLOCK_BYTES);
    }

    /// The first block with room for a name.
    pub(crate) fn block_with_room(&mut self, name: &[u8]) -> Option<u32> {
        let needed = needed(name);
        for number in 0..self.blocks.len() {
            if self.room[number] < needed {
                continue;
            }
            let room = |entry: Entry| entry.length - entry.used();
            self.room[number] = entries(&self.blocks[number]).map(room).max().unwrap_or(0);
            if self.room[number] >= needed {
                return Some(number as u32);
            }
        }
        None
    }

    /// Adds a name to a block that has room for it.
    pub(crate) fn insert(&mut self, number: u32, name: &[u8], inode: u32, kind: FileType) {
        let block = &mut self.blocks[number as usize];
        let fits = |entry: &Entry| entry.length - entry.used() >= needed(name);
        let entry = entries(block).find(fits).expect("a block with room");
        let used = entry.used();
        if used > 0 {
            set_length(block, entry.at, used);
        }
        put(block, entry.at + used, entry.length - used, inode, name, kind);
        let before = self.index.insert(name.into(), (inode, number));
        assert!(before.is_none(), "a name is in a directory once");
    }

    /// Removes a name; its block.
    pub(crate) fn remove(&mut self, name: &[u8]) -> u32 {
        let (_, number) = self.index.remove(name).expect("a name that is there");
        let block = &mut self.blocks[number as usize];
        let mut before = None;
        let mut found = None;
        for entry in entries(block) {
            if entry.inode != 0 && entry.name(block) == name {
                found = Some(entry);
                break;
            }
            before = Some(entry);
        }
        let entry = found.expect("the index is right");
        block[entry.at..entry.at + 4].fill(0);
        if let Some(before) = before {
            set_length(block, before.at, before.length + entry.length);
        }
        self.room[number as usize] = BLOCK_BYTES;
        number
    }

    /// Lets a name stand for another inode; its block.
    pub(crate) fn point(&mut self, name: &[u8], inode: u32, kind: FileType) -> u32 {
        let (old, number) = self.index.get_mut(name).expect("a name that is there");
        *old = inode;
        let block = &mut self.blocks[*number as usize];
        let is_it = |entry: &Entry| entry.inode != 0 && entry.name(block) == name;
        let entry = entries(block).find(is_it).expect("the index is right");
        put(block, entry.at, entry.length, inode, name, kind);
        *number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// The bytes say what a map says, whatever is added and removed, and room is used again.
    #[test]
    fn bytes_agree_with_a_map() {
        for seed in 0..30 {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            let (mut directory, mut map) = (Directory::default(), HashMap::new());
            for step in 1..800_u32 {
                let name = vec![b'a' + rng.random_range(0..26_u8); rng.random_range(1..=40)];
                if map.remove(&name).is_some() {
                    directory.remove(&name);
                } else {
                    let number = directory.block_with_room(&name).unwrap_or_else(|| {
                        directory.grow();
                        directory.blocks() - 1
                    });
                    directory.insert(number, &name, step, FileType::File);
                    map.insert(name, step);
                }
            }
            let listed: HashMap<Vec<u8>, u32> = directory
                .blocks
                .iter()
                .flat_map(|block| {
                    entries(block)
                        .filter(|entry| entry.inode != 0)
                        .map(|entry| (entry.name(block).to_vec(), entry.inode))
                })
                .collect();
            assert_eq!(listed, map, "seed {seed}");
            assert!(
                directory.blocks() <= 6,
                "26 * 40 names of 28 bytes, half of them there: {}",
                directory.blocks()
            );
            let total = |block: &Vec<u8>| entries(block).map(|entry| entry.length).sum::<usize>();
            assert!(
                directory.blocks.iter().all(|block| total(block) == BLOCK_BYTES),
                "seed {seed}"
            );
        }
    }
}
