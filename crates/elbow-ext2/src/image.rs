//! The file system as bytes.
//!
//! ```text
//!   superblock   1024 bytes from byte 1024 (copies: from byte 0 of their group)
//!   descriptor   32 bytes a group: bitmaps, table, counts
//!   inode        128 or 256 bytes: mode, size, times, links, 12 + 1 + 1 + 1 pointers
//! ```
//!
//! Revision 1 with `filetype`, `sparse_super` and, with 256-byte inodes, their extra room declared. Files read as zeros.
//!
//! Source: Linux, include/linux/ext2_fs.h; e2fsprogs, lib/ext2fs/ext2_fs.h.

use std::io::IoSlice;

use elbow_file::{Handle, Storage};
use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::geometry::{DESCRIPTOR_BYTES, FIRST_INODE};
use crate::inode::{Inode, Node};
use crate::volume::Volume;
use crate::{BLOCK_BYTES, BLOCKS_PER_GROUP, Ext2Error, Purpose};

const MAGIC: u16 = 0xef53;
/// Features that a reader must know: `filetype`.
const INCOMPAT: u32 = 0x2;
/// Features that a writer must know: `sparse_super`, `large_file`.
const SPARSE_SUPER: u32 = 0x1;
const LARGE_FILE: u32 = 0x2;
/// Room after the first 128 bytes of an inode that mke2fs declares.
const EXTRA_INODE_BYTES: u16 = 28;
/// Sectors of 512 bytes, in which an inode counts its blocks.
const SECTORS_PER_BLOCK: u32 = 8;

/// Numbers put at offsets, little-endian.
struct Bytes(Vec<u8>);

impl Bytes {
    fn zeros(length: usize) -> Self {
        Self(vec![0; length])
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn put16(&mut self, at: usize, value: u16) {
        self.put(at, &value.to_le_bytes());
    }

    fn put32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_le_bytes());
    }
}

/// A file system as it would lie on the disk.
pub(crate) struct Image<'v> {
    volume: &'v Volume,
}

impl<'v> Image<'v> {
    pub(crate) fn of(volume: &'v Volume) -> Self {
        Self { volume }
    }

    /// Writes it into an empty file, which becomes as long as the file system: sparse, with all that is not data.
    pub(crate) fn write(&self, storage: &dyn Storage, file: &Handle) -> Result<(), Ext2Error> {
        let size = u64::from(self.volume.geometry().blocks) * BLOCK_BYTES as u64;
        let failed = |offset| move |errno| Ext2Error::Image { offset, errno };
        storage.truncate(file, size).map_err(failed(size))?;
        for block in self.blocks_with_content() {
            let offset = u64::from(block) * BLOCK_BYTES as u64;
            let bytes = self.content(block).expect("a block that is not data");
            storage
                .write(file, &[IoSlice::new(&bytes)], offset)
                .map_err(failed(offset))?;
        }
        Ok(())
    }

    fn blocks_with_content(&self) -> Vec<u32> {
        let mut blocks = Vec::new();
        for group in 0..self.volume.geometry().groups {
            let first = group * BLOCKS_PER_GROUP;
            blocks.extend(first..self.volume.geometry().table_first(group));
        }
        blocks.extend(
            self.volume
                .inodes()
                .iter()
                .map(|(ino, _)| self.volume.geometry().inode_block(ino)),
        );
        for (_, inode) in self.volume.inodes().iter() {
            let directory = inode.is_directory().then_some(&inode.map);
            blocks.extend(directory.into_iter().flatten().copied());
            blocks.extend(inode.nodes.values());
        }
        blocks.sort_unstable();
        blocks.dedup();
        blocks
    }

    /// What a block holds, if it is not the data of a file.
    pub(crate) fn content(&self, block: u32) -> Option<Vec<u8>> {
        let group = block / BLOCKS_PER_GROUP;
        let state = self.volume.space().groups().get(group as usize)?;
        let bitmap = self.volume.geometry().block_bitmap_block(group);
        let table = self.volume.geometry().table_first(group);
        Some(match block {
            _ if block == bitmap => state.blocks().to_block(),
            _ if block == bitmap + 1 => state.inodes().to_block(),
            _ if block < bitmap && block.is_multiple_of(BLOCKS_PER_GROUP) => self.superblock(group),
            _ if block < bitmap => self.descriptors(block % BLOCKS_PER_GROUP - 1),
            _ if block < table + self.volume.geometry().table_blocks => self.inode_table(group, block - table),
            _ => return self.owned_content(block),
        })
    }

    /// What a block of the file system holds; data for what is free, too.
    pub(crate) fn purpose_of(&self, block: u32) -> Purpose {
        let owned = || match self.volume.inodes().owner_of(block).is_some() {
            true => Purpose::Indirect,
            false if self.directory_block(block).is_some() => Purpose::Directory,
            false => Purpose::Data,
        };
        self.volume.geometry().fixed_purpose(block).unwrap_or_else(owned)
    }

    fn directory_block(&self, block: u32) -> Option<&[u8]> {
        self.volume.inodes().iter().find_map(|(_, inode)| {
            let directory = inode.directory.as_ref()?;
            let number = inode.map.iter().position(|&place| place == block)?;
            Some(directory.block(number as u32))
        })
    }

    fn owned_content(&self, block: u32) -> Option<Vec<u8>> {
        let Some((ino, node)) = self.volume.inodes().owner_of(block) else {
            return self.directory_block(block).map(<[u8]>::to_vec);
        };
        let pointers = self.volume.inode(ino).pointers(node);
        Some(pointers.into_iter().flat_map(u32::to_le_bytes).collect())
    }

    fn superblock(&self, group: u32) -> Vec<u8> {
        let mut block = Bytes::zeros(BLOCK_BYTES);
        let at = if group == 0 { 1024 } else { 0 };
        let free_inodes: u32 = self
            .volume
            .space()
            .groups()
            .iter()
            .map(|group| group.inodes().clear_count())
            .sum();
        let time = self.volume.seconds();
        let large = self
            .volume
            .inodes()
            .iter()
            .any(|(_, inode)| inode.size > i32::MAX as u64);
        let mut put32 = |offset: usize, value: u32| block.put32(at + offset, value);
        put32(0, self.volume.geometry().inodes());
        put32(4, self.volume.geometry().blocks);
        put32(12, self.volume.space().unused_blocks() as u32);
        put32(16, free_inodes);
        put32(24, 2); // 1024 << 2 bytes a block
        put32(28, 2); // the same for fragments
        put32(32, BLOCKS_PER_GROUP);
        put32(36, BLOCKS_PER_GROUP);
        put32(40, self.volume.geometry().inodes_per_group);
        put32(44, time); // mounted
        put32(48, time); // written
        put32(64, self.volume.options().epoch); // checked
        put32(76, 1); // revision
        put32(84, FIRST_INODE);
        put32(96, INCOMPAT);
        put32(100, SPARSE_SUPER | if large { LARGE_FILE } else { 0 });
        put32(264, self.volume.options().epoch); // made
        let mut put16 = |offset: usize, value: u16| block.put16(at + offset, value);
        put16(54, u16::MAX); // no limit to the number of mounts
        put16(56, MAGIC);
        put16(58, 1); // unmounted cleanly
        put16(60, 1); // go on after errors
        put16(88, self.volume.geometry().inode_bytes as u16);
        put16(90, group as u16);
        if self.volume.geometry().inode_bytes > 128 {
            put16(348, EXTRA_INODE_BYTES);
            put16(350, EXTRA_INODE_BYTES);
        }
        let mut uuid = [0; 16];
        Xoshiro256PlusPlus::seed_from_u64(self.volume.options().seed).fill_bytes(&mut uuid);
        uuid[6] = uuid[6] & 0x0f | 0x40;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        block.put(at + 104, &uuid);
        block.0
    }

    /// A block of the table of descriptors.
    fn descriptors(&self, number: u32) -> Vec<u8> {
        let mut block = Bytes::zeros(BLOCK_BYTES);
        let per_block = (BLOCK_BYTES / DESCRIPTOR_BYTES) as u32;
        let groups = number * per_block..((number + 1) * per_block).min(self.volume.geometry().groups);
        for (index, group) in groups.enumerate() {
            let (at, state) = (index * DESCRIPTOR_BYTES, self.volume.space().group(group));
            block.put32(at, self.volume.geometry().block_bitmap_block(group));
            block.put32(at + 4, self.volume.geometry().inode_bitmap_block(group));
            block.put32(at + 8, self.volume.geometry().table_first(group));
            block.put16(at + 12, state.blocks().clear_count() as u16);
            block.put16(at + 14, state.inodes().clear_count() as u16);
            block.put16(at + 16, state.directories() as u16);
        }
        block.0
    }

    fn inode_table(&self, group: u32, number: u32) -> Vec<u8> {
        let (size, count) = (
            self.volume.geometry().inode_bytes as usize,
            self.volume.geometry().inodes_per_block(),
        );
        let first = group * self.volume.geometry().inodes_per_group + number * count + 1;
        let mut block = Bytes::zeros(BLOCK_BYTES);
        for (index, ino) in (first..first + count).enumerate() {
            if let Some(inode) = self.volume.inodes().get(ino) {
                put_inode(&mut block, index * size, inode, ino);
                if size > 128 {
                    block.put16(index * size + 128, EXTRA_INODE_BYTES);
                }
            }
        }
        block.0
    }
}

fn put_inode(block: &mut Bytes, at: usize, inode: &Inode, ino: u32) {
    let mode = match inode.is_directory() {
        true if ino == FIRST_INODE => 0o040_700,
        true => 0o040_755,
        false => 0o100_644,
    };
    block.put16(at, mode);
    block.put32(at + 4, inode.size as u32);
    block.put32(at + 8, inode.atime);
    block.put32(at + 12, inode.ctime);
    block.put32(at + 16, inode.mtime);
    block.put16(at + 26, inode.links);
    block.put32(at + 28, inode.owned().count() as u32 * SECTORS_PER_BLOCK);
    let direct = (0..crate::inode::DIRECT).map(|block| inode.place(block).unwrap_or(0));
    let node = |node| inode.nodes.get(&node).copied().unwrap_or(0);
    for (index, place) in direct.chain([node(Node::Single), node(Node::Double)]).enumerate() {
        block.put32(at + 40 + index * 4, place);
    }
    if !inode.is_directory() {
        block.put32(at + 108, (inode.size >> 32) as u32);
    }
}
