//! The inodes that there are, and the paths that lead to them.
//!
//! What always holds: whose indirect block lies at a place is what the inodes say.

use std::collections::HashMap;

use crate::Ext2Error;
use crate::directory::{Directory, NAME_MAX};
use crate::geometry::ROOT;
use crate::inode::{Inode, Node};

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

/// All inodes in use, by number.
#[derive(Debug, Default)]
pub(crate) struct Inodes {
    inodes: HashMap<u32, Inode>,
    /// Which file's indirect block lies at a place.
    node_owner: HashMap<u32, (u32, Node)>,
}

impl Inodes {
    pub(crate) fn insert(&mut self, ino: u32, inode: Inode) {
        self.inodes.insert(ino, inode);
    }

    pub(crate) fn remove(&mut self, ino: u32) {
        self.inodes.remove(&ino);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Inode)> {
        self.inodes.iter().map(|(&ino, inode)| (ino, inode))
    }

    /// One that is there.
    pub(crate) fn at(&self, ino: u32) -> &Inode {
        &self.inodes[&ino]
    }

    /// One that is there.
    pub(crate) fn at_mut(&mut self, ino: u32) -> &mut Inode {
        self.inodes.get_mut(&ino).expect("an inode that is there")
    }

    pub(crate) fn get(&self, ino: u32) -> Option<&Inode> {
        self.inodes.get(&ino)
    }

    pub(crate) fn get_mut(&mut self, ino: u32) -> Option<&mut Inode> {
        self.inodes.get_mut(&ino)
    }

    pub(crate) fn directory_mut(&mut self, ino: u32) -> &mut Directory {
        self.at_mut(ino).directory.as_mut().expect("a directory")
    }

    /// The file whose indirect block lies at a place, and which it is.
    pub(crate) fn owner_of(&self, place: u32) -> Option<(u32, Node)> {
        self.node_owner.get(&place).copied()
    }

    /// Records where an indirect block lies.
    pub(crate) fn set_node(&mut self, ino: u32, node: Node, place: u32) {
        self.at_mut(ino).nodes.insert(node, place);
        self.node_owner.insert(place, (ino, node));
    }

    /// A file does without an indirect block; where it lay.
    pub(crate) fn remove_node(&mut self, ino: u32, node: Node) -> u32 {
        let place = self
            .at_mut(ino)
            .nodes
            .remove(&node)
            .expect("an indirect block of the file");
        self.node_owner.remove(&place);
        place
    }

    /// The inode of a path.
    pub(crate) fn resolve(&self, path: &str) -> Result<u32, Ext2Error> {
        components(path).try_fold(ROOT, |ino, name| {
            let directory = self.inodes[&ino].directory.as_ref();
            let directory = directory.ok_or_else(|| Ext2Error::NotADirectory(path.to_owned()))?;
            let found = directory.get(name.as_bytes());
            found.ok_or_else(|| Ext2Error::NotFound(path.to_owned()))
        })
    }

    pub(crate) fn resolve_file(&self, path: &str) -> Result<u32, Ext2Error> {
        let ino = self.resolve(path)?;
        match self.inodes[&ino].is_directory() {
            true => Err(Ext2Error::IsADirectory(path.to_owned())),
            false => Ok(ino),
        }
    }

    /// The directory that a path is in, its name there, and what has that name.
    pub(crate) fn entry<'p>(&self, path: &'p str) -> Result<(u32, &'p str, Option<u32>), Ext2Error> {
        let (parent, name) = split(path)?;
        let ino = self.resolve(parent)?;
        let directory = self.inodes[&ino].directory.as_ref();
        let directory = directory.ok_or_else(|| Ext2Error::NotADirectory(parent.to_owned()))?;
        Ok((ino, name, directory.get(name.as_bytes())))
    }

    pub(crate) fn check_empty(&self, ino: u32, path: &str) -> Result<(), Ext2Error> {
        match &self.inodes[&ino].directory {
            None => Err(Ext2Error::NotADirectory(path.to_owned())),
            Some(directory) if directory.is_empty() => Ok(()),
            Some(_) => Err(Ext2Error::NotEmpty(path.to_owned())),
        }
    }

    /// Can an inode get a name in a directory, in place of what has the name?
    pub(crate) fn check_rename(
        &self,
        moved: u32,
        new_parent: u32,
        there: Option<u32>,
        to: &str,
    ) -> Result<(), Ext2Error> {
        let bad = || Err(Ext2Error::BadRename(to.to_owned()));
        let is_directory = |ino: u32| self.inodes[&ino].is_directory();
        let mut above = new_parent;
        while is_directory(moved) && above != ROOT {
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
}
