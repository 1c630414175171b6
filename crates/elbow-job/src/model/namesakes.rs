//! Files that are called alike.

use std::path::PathBuf;

use elbow_file::FileType;

use super::Inodes;
use crate::api::Ino;

/// Old files of other directories that are called as this one: the next `most` in the order of their paths.
pub(crate) fn namesakes(inodes: &Inodes, ino: Ino, most: usize) -> Vec<Ino> {
    let Some(name) = inodes
        .get(ino)
        .ok()
        .and_then(|inode| inode.names().first())
        .map(|key| &key.name)
    else {
        return Vec::new();
    };
    let here = inodes.path(ino);
    let same = inodes.all().filter(|(_, inode)| {
        let is_old_file = inode.is_old() && inode.kind == FileType::File;
        is_old_file && inode.names().first().is_some_and(|key| key.name == *name)
    });
    let mut later: Vec<(PathBuf, Ino)> = same
        .map(|(other, _)| (inodes.path(other), other))
        .filter(|(path, _)| *path > here)
        .collect();
    later.sort_unstable();
    later.truncate(most);
    later.into_iter().map(|(_, ino)| ino).collect()
}
