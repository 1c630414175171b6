//! Names: the operations on directories.

use super::Volume;
use crate::directory::{Directory, FileType};
use crate::geometry::{FIRST_INODE, ROOT};
use crate::inode::Inode;
use crate::trace::Outcome;
use crate::{BLOCK_BYTES, Ext2Error};

/// Blocks that mke2fs gives to lost+found, so that fsck need not find any.
const LOST_AND_FOUND_BLOCKS: u32 = 4;

impl Volume {
    /// Makes what every file system begins with.
    pub(super) fn make_root(&mut self) -> Result<(), Ext2Error> {
        self.new_directory(ROOT, ROOT, 0);
        self.space.add_root();
        let lost = self.space.take_inode(0, true, &mut self.cache);
        assert_eq!(lost, FIRST_INODE, "the first inode that is not reserved");
        self.new_directory(lost, ROOT, 0);
        for _ in 1..LOST_AND_FOUND_BLOCKS {
            self.grow_directory(lost, "/lost+found")?;
        }
        self.enter(ROOT, 0, "lost+found", lost, FileType::Directory);
        self.inode_mut(ROOT).links += 1;
        Ok(())
    }

    /// An inode with a directory of one block; `false`, with nothing done, if that block cannot be had now.
    fn new_directory(&mut self, ino: u32, parent: u32, pid: u32) -> bool {
        let time = self.seconds();
        let inode = Inode {
            directory: Some(Directory::default()),
            links: 2,
            pid,
            atime: time,
            mtime: time,
            ctime: time,
            ..Inode::default()
        };
        self.inodes.insert(ino, inode);
        if !self.place_classically(ino, 0) {
            self.inodes.remove(ino);
            return false;
        }
        let inode = self.inode_mut(ino);
        inode.size = BLOCK_BYTES as u64;
        let directory = inode.directory.get_or_insert_default();
        directory.grow();
        directory.insert(0, b".", ino, FileType::Directory);
        directory.insert(0, b"..", parent, FileType::Directory);
        self.touch_data(ino, 0);
        true
    }

    /// A block of a directory with room for a name; `None` if one more is needed and cannot be had now.
    fn room_for(&mut self, parent: u32, name: &str, path: &str) -> Result<Option<u32>, Ext2Error> {
        match self.inodes.directory_mut(parent).block_with_room(name.as_bytes()) {
            Some(block) => Ok(Some(block)),
            None => self.grow_directory(parent, path),
        }
    }

    fn grow_directory(&mut self, ino: u32, path: &str) -> Result<Option<u32>, Ext2Error> {
        let block = self.inode(ino).directory.as_ref().map_or(0, Directory::blocks);
        let needed = 1 + self.inode(ino).missing_nodes(block).count() as u64;
        self.space.check(path, needed)?;
        if !self.place_classically(ino, block) {
            return Ok(None);
        }
        self.inodes.directory_mut(ino).grow();
        self.inode_mut(ino).size += BLOCK_BYTES as u64;
        self.touch_data(ino, block);
        Ok(Some(block))
    }

    fn enter(&mut self, parent: u32, block: u32, name: &str, ino: u32, kind: FileType) {
        self.inodes
            .directory_mut(parent)
            .insert(block, name.as_bytes(), ino, kind);
        self.changed_directory(parent, block);
    }

    fn leave(&mut self, parent: u32, name: &str) {
        let block = self.inodes.directory_mut(parent).remove(name.as_bytes());
        self.changed_directory(parent, block);
    }

    fn changed_directory(&mut self, ino: u32, block: u32) {
        let time = self.seconds();
        let inode = self.inode_mut(ino);
        (inode.mtime, inode.ctime) = (time, time);
        self.touch_data(ino, block);
    }

    pub(crate) fn mkdir(&mut self, pid: u32, path: &str) -> Result<Outcome, Ext2Error> {
        let (parent, name, there) = self.inodes.entry(path)?;
        if there.is_some() {
            return Err(Ext2Error::Exists(path.to_owned()));
        }
        self.space.check(path, 1)?;
        let Some(block) = self.room_for(parent, name, path)? else {
            return Ok(Outcome::Wait);
        };
        self.space.check(path, 1)?;
        let group = self.space.directory_group(parent, &mut self.random);
        let group = group.ok_or_else(|| Ext2Error::NoInodes(path.to_owned()))?;
        let ino = self.space.take_inode(group, true, &mut self.cache);
        if !self.new_directory(ino, parent, pid) {
            self.space.give_inode_back(ino, true, &mut self.cache);
            return Ok(Outcome::Wait);
        }
        self.enter(parent, block, name, ino, FileType::Directory);
        self.inode_mut(parent).links += 1;
        Ok(Outcome::Done)
    }

    /// Opens a file to be written from its beginning on, as `O_CREAT | O_TRUNC` does.
    pub(crate) fn create(&mut self, pid: u32, path: &str) -> Result<Outcome, Ext2Error> {
        let (parent, name, there) = self.inodes.entry(path)?;
        if there.is_some() {
            return self.truncate(path, 0);
        }
        let Some(block) = self.room_for(parent, name, path)? else {
            return Ok(Outcome::Wait);
        };
        let group = self.space.file_group(parent);
        let group = group.ok_or_else(|| Ext2Error::NoInodes(path.to_owned()))?;
        let ino = self.space.take_inode(group, false, &mut self.cache);
        let time = self.seconds();
        let inode = Inode {
            links: 1,
            pid,
            atime: time,
            mtime: time,
            ctime: time,
            ..Inode::default()
        };
        self.inodes.insert(ino, inode);
        self.cache.touch(ino);
        self.enter(parent, block, name, ino, FileType::File);
        Ok(Outcome::Done)
    }

    /// Takes away the name of a file. The inode, which is to be [released](Self::release) when it is not being written.
    pub(crate) fn unlink(&mut self, path: &str) -> Result<u32, Ext2Error> {
        let ino = self.inodes.resolve_file(path)?;
        let (parent, name, _) = self.inodes.entry(path)?;
        self.leave(parent, name);
        self.drop_inode(ino);
        Ok(ino)
    }

    /// The same of an empty directory.
    pub(crate) fn rmdir(&mut self, path: &str) -> Result<u32, Ext2Error> {
        let (parent, name, there) = self.inodes.entry(path)?;
        let ino = there.ok_or_else(|| Ext2Error::NotFound(path.to_owned()))?;
        self.inodes.check_empty(ino, path)?;
        self.leave(parent, name);
        self.inode_mut(parent).links -= 1;
        self.drop_inode(ino);
        Ok(ino)
    }

    /// Moves a name, over one that is there if both are files or the other is an empty directory. The inode that lost
    /// its name by that, which is to be released as after [`unlink`](Self::unlink).
    pub(crate) fn rename(&mut self, pid: u32, from: &str, to: &str) -> Result<(Outcome, Option<u32>), Ext2Error> {
        let (old_parent, old_name, moved) = self.inodes.entry(from)?;
        let moved = moved.ok_or_else(|| Ext2Error::NotFound(from.to_owned()))?;
        let (new_parent, new_name, there) = self.inodes.entry(to)?;
        if there == Some(moved) {
            return Ok((Outcome::Done, None));
        }
        self.inodes.check_rename(moved, new_parent, there, to)?;
        let kind = if self.inode(moved).is_directory() {
            FileType::Directory
        } else {
            FileType::File
        };
        match there {
            Some(there) => {
                let block = self
                    .inodes
                    .directory_mut(new_parent)
                    .point(new_name.as_bytes(), moved, kind);
                self.changed_directory(new_parent, block);
                if kind == FileType::Directory {
                    self.inode_mut(new_parent).links -= 1;
                }
                self.drop_inode(there);
            }
            None => {
                let Some(block) = self.room_for(new_parent, new_name, to)? else {
                    return Ok((Outcome::Wait, None));
                };
                self.enter(new_parent, block, new_name, moved, kind);
            }
        }
        self.leave(old_parent, old_name);
        if kind == FileType::Directory {
            self.change_parent(moved, old_parent, new_parent);
        }
        let time = self.seconds();
        let inode = self.inode_mut(moved);
        inode.ctime = time;
        inode.pid = pid;
        self.cache.touch(moved);
        Ok((Outcome::Done, there))
    }

    fn change_parent(&mut self, ino: u32, old: u32, new: u32) {
        self.inode_mut(old).links -= 1;
        self.inode_mut(new).links += 1;
        self.inodes.directory_mut(ino).point(b"..", new, FileType::Directory);
        self.touch_data(ino, 0);
        self.cache.touch(old);
        self.cache.touch(new);
    }

    pub(crate) fn close(&mut self, path: &str) -> Result<(), Ext2Error> {
        let ino = self.inodes.resolve(path)?;
        self.discard_preallocation(ino);
        Ok(())
    }
}
