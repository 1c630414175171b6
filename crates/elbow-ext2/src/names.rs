//! Names: paths, directories, and the operations on them.

use crate::directory::{Directory, FileType, NAME_MAX};
use crate::filesystem::{Ext2, Outcome};
use crate::geometry::{FIRST_INODE, ROOT};
use crate::group::{directory_group, file_group};
use crate::inode::Inode;
use crate::{BLOCK_BYTES, Ext2Error, Purpose};

/// Blocks that mke2fs gives to lost+found, so that fsck need not find any.
const LOST_AND_FOUND_BLOCKS: u32 = 4;

fn components(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty())
}

/// The path of the directory and the name in it.
fn split(path: &str) -> Result<(&str, &str), Ext2Error> {
    let path = path.trim_end_matches('/');
    let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
    match name {
        "" | "." | ".." => Err(Ext2Error::BadName(path.to_owned())),
        name if name.len() > NAME_MAX => Err(Ext2Error::BadName(name.to_owned())),
        name => Ok((parent, name)),
    }
}

impl Ext2 {
    /// The inode of a path.
    pub(crate) fn resolve(&self, path: &str) -> Result<u32, Ext2Error> {
        components(path).try_fold(ROOT, |ino, name| {
            let directory = self.inodes[&ino].directory.as_ref();
            let directory = directory.ok_or_else(|| Ext2Error::NotADirectory(path.to_owned()))?;
            let found = directory.get(name.as_bytes());
            found.ok_or_else(|| Ext2Error::NotFound(path.to_owned()))
        })
    }

    /// The directory that a path is in, its name there, and what has that name.
    fn place_of<'p>(&self, path: &'p str) -> Result<(u32, &'p str, Option<u32>), Ext2Error> {
        let (parent, name) = split(path)?;
        let ino = self.resolve(parent)?;
        let directory = self.inodes[&ino].directory.as_ref();
        let directory = directory.ok_or_else(|| Ext2Error::NotADirectory(parent.to_owned()))?;
        Ok((ino, name, directory.get(name.as_bytes())))
    }

    pub(crate) fn resolve_file(&self, path: &str) -> Result<u32, Ext2Error> {
        let ino = self.resolve(path)?;
        match self.inodes[&ino].is_directory() {
            true => Err(Ext2Error::IsADirectory(path.to_owned())),
            false => Ok(ino),
        }
    }

    pub(crate) fn size(&self, path: &str) -> Result<u64, Ext2Error> {
        Ok(self.inodes[&self.resolve_file(path)?].size)
    }

    /// Makes what every file system begins with.
    pub(crate) fn make_root(&mut self) -> Result<(), Ext2Error> {
        self.new_directory(ROOT, ROOT, 0);
        self.groups[0].directories += 1;
        let lost = self.groups[0].take_inode(true) + 1;
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
            self.inodes.remove(&ino);
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

    fn directory_mut(&mut self, ino: u32) -> &mut Directory {
        let directory = self.inode_mut(ino).directory.as_mut();
        directory.expect("a directory")
    }

    /// A block of a directory with room for a name; `None` if one more is needed and cannot be had now.
    fn room_for(&mut self, parent: u32, name: &str, path: &str) -> Result<Option<u32>, Ext2Error> {
        match self.directory_mut(parent).block_with_room(name.as_bytes()) {
            Some(block) => Ok(Some(block)),
            None => self.grow_directory(parent, path),
        }
    }

    fn grow_directory(&mut self, ino: u32, path: &str) -> Result<Option<u32>, Ext2Error> {
        let block = self.inodes[&ino].directory.as_ref().map_or(0, Directory::blocks);
        let needed = 1 + self.inodes[&ino].missing_nodes(block).count() as u64;
        self.check_space(path, needed)?;
        if !self.place_classically(ino, block) {
            return Ok(None);
        }
        self.directory_mut(ino).grow();
        self.inode_mut(ino).size += BLOCK_BYTES as u64;
        self.touch_data(ino, block);
        Ok(Some(block))
    }

    fn enter(&mut self, parent: u32, block: u32, name: &str, ino: u32, kind: FileType) {
        self.directory_mut(parent).insert(block, name.as_bytes(), ino, kind);
        self.changed_directory(parent, block);
    }

    fn leave(&mut self, parent: u32, name: &str) {
        let block = self.directory_mut(parent).remove(name.as_bytes());
        self.changed_directory(parent, block);
    }

    fn changed_directory(&mut self, ino: u32, block: u32) {
        let time = self.seconds();
        let inode = self.inode_mut(ino);
        (inode.mtime, inode.ctime) = (time, time);
        self.touch_data(ino, block);
    }

    /// Takes an inode number in a group.
    fn take_inode(&mut self, group: u32, directory: bool) -> u32 {
        let ino = self.groups[group as usize].take_inode(directory) + 1 + group * self.geometry.inodes_per_group;
        self.touch_meta(self.geometry.inode_bitmap_block(group), Purpose::Bitmap);
        self.touch_super(group);
        ino
    }

    pub(crate) fn give_inode_back(&mut self, ino: u32, directory: bool) {
        let group = self.geometry.inode_group(ino);
        let number = (ino - 1) % self.geometry.inodes_per_group;
        self.groups[group as usize].give_inode_back(number, directory);
        self.touch_meta(self.geometry.inode_bitmap_block(group), Purpose::Bitmap);
        self.touch_meta(self.geometry.inode_block(ino), Purpose::Inodes);
        self.touch_super(group);
    }

    pub(crate) fn mkdir(&mut self, pid: u32, path: &str) -> Result<Outcome, Ext2Error> {
        let (parent, name, there) = self.place_of(path)?;
        if there.is_some() {
            return Err(Ext2Error::Exists(path.to_owned()));
        }
        self.check_space(path, 1)?;
        let Some(block) = self.room_for(parent, name, path)? else {
            return Ok(Outcome::Wait);
        };
        self.check_space(path, 1)?;
        let group = directory_group(&self.groups, &self.geometry, parent, &mut self.random);
        let group = group.ok_or_else(|| Ext2Error::NoInodes(path.to_owned()))?;
        let ino = self.take_inode(group, true);
        if !self.new_directory(ino, parent, pid) {
            self.give_inode_back(ino, true);
            return Ok(Outcome::Wait);
        }
        self.enter(parent, block, name, ino, FileType::Directory);
        self.inode_mut(parent).links += 1;
        Ok(Outcome::Done)
    }

    /// Opens a file to be written from its beginning on, as `O_CREAT | O_TRUNC` does.
    pub(crate) fn create(&mut self, pid: u32, path: &str) -> Result<Outcome, Ext2Error> {
        let (parent, name, there) = self.place_of(path)?;
        if there.is_some() {
            return self.truncate(path, 0);
        }
        let Some(block) = self.room_for(parent, name, path)? else {
            return Ok(Outcome::Wait);
        };
        let group = file_group(&self.groups, &self.geometry, parent);
        let group = group.ok_or_else(|| Ext2Error::NoInodes(path.to_owned()))?;
        let ino = self.take_inode(group, false);
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
        self.touch(ino);
        self.enter(parent, block, name, ino, FileType::File);
        Ok(Outcome::Done)
    }

    pub(crate) fn unlink(&mut self, path: &str) -> Result<(), Ext2Error> {
        let ino = self.resolve_file(path)?;
        let (parent, name, _) = self.place_of(path)?;
        self.leave(parent, name);
        self.drop_inode(ino);
        Ok(())
    }

    pub(crate) fn rmdir(&mut self, path: &str) -> Result<(), Ext2Error> {
        let (parent, name, there) = self.place_of(path)?;
        let ino = there.ok_or_else(|| Ext2Error::NotFound(path.to_owned()))?;
        self.check_empty(ino, path)?;
        self.leave(parent, name);
        self.inode_mut(parent).links -= 1;
        self.drop_inode(ino);
        Ok(())
    }

    fn check_empty(&self, ino: u32, path: &str) -> Result<(), Ext2Error> {
        match &self.inodes[&ino].directory {
            None => Err(Ext2Error::NotADirectory(path.to_owned())),
            Some(directory) if directory.is_empty() => Ok(()),
            Some(_) => Err(Ext2Error::NotEmpty(path.to_owned())),
        }
    }

    /// Moves a name, over one that is there if both are files or the other is an empty directory.
    pub(crate) fn rename(&mut self, pid: u32, from: &str, to: &str) -> Result<Outcome, Ext2Error> {
        let (old_parent, old_name, moved) = self.place_of(from)?;
        let moved = moved.ok_or_else(|| Ext2Error::NotFound(from.to_owned()))?;
        let (new_parent, new_name, there) = self.place_of(to)?;
        if there == Some(moved) {
            return Ok(Outcome::Done);
        }
        self.check_rename(moved, new_parent, there, to)?;
        let kind = if self.inodes[&moved].is_directory() {
            FileType::Directory
        } else {
            FileType::File
        };
        match there {
            Some(there) => {
                let block = self.directory_mut(new_parent).point(new_name.as_bytes(), moved, kind);
                self.changed_directory(new_parent, block);
                if kind == FileType::Directory {
                    self.inode_mut(new_parent).links -= 1;
                }
                self.drop_inode(there);
            }
            None => {
                let Some(block) = self.room_for(new_parent, new_name, to)? else {
                    return Ok(Outcome::Wait);
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
        self.touch(moved);
        Ok(Outcome::Done)
    }

    fn change_parent(&mut self, ino: u32, old: u32, new: u32) {
        self.inode_mut(old).links -= 1;
        self.inode_mut(new).links += 1;
        self.directory_mut(ino).point(b"..", new, FileType::Directory);
        self.touch_data(ino, 0);
        self.touch(old);
        self.touch(new);
    }

    fn check_rename(&self, moved: u32, new_parent: u32, there: Option<u32>, to: &str) -> Result<(), Ext2Error> {
        let bad = || Err(Ext2Error::BadRename(to.to_owned()));
        let is_directory = |ino: u32| self.inodes[&ino].is_directory();
        let mut above = new_parent;
        while is_directory(moved) && !Self::is_root(above) {
            if above == moved {
                return bad();
            }
            let directory = self.inodes[&above].directory.as_ref();
            above = directory
                .and_then(|directory| directory.get(b".."))
                .expect("every directory has a parent");
        }
        match there {
            Some(there) if is_directory(moved) => self.check_empty(there, to),
            Some(there) if is_directory(there) => Err(Ext2Error::IsADirectory(to.to_owned())),
            _ => Ok(()),
        }
    }

    pub(crate) fn close(&mut self, path: &str) -> Result<(), Ext2Error> {
        let ino = self.resolve(path)?;
        self.discard_preallocation(ino);
        Ok(())
    }
}
