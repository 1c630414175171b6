//! What a look into old directories gave enters the model.

use super::{EntryKey, Inodes, Model};
use crate::api::Ino;
use crate::look::{Looked, LookedBelow};

pub(crate) fn install_looked(model: &mut Model, ino: Ino, looked: Looked) {
    match looked {
        Looked::Listed(listing) => {
            model.traits.note_default_acl(&listing.default_acl);
            model.inodes.install_listing(ino, listing);
        }
        Looked::Closed(handle, default_acl) => {
            model.traits.note_default_acl(&default_acl);
            model.inodes.install_closed(ino, handle, default_acl);
        }
    }
}

/// What came along of directories below a listed one.
pub(crate) fn install_below(model: &mut Model, ino: Ino, below: Vec<LookedBelow>) {
    let mut dirs = vec![Some(ino)];
    for LookedBelow { parent, name, looked } in below {
        let above = dirs[parent];
        let found = above.and_then(|above| unlisted_old_dir(&model.inodes, &EntryKey::new(above, &name)));
        dirs.push(found);
        if let Some((above, found)) = above.zip(found) {
            install_looked(model, found, looked);
            model.prelist.note_below(&mut model.inodes, (above, found));
        }
    }
}

/// The old directory that has this name on the storage, where the job has it under that name, too, and nobody has looked into it.
fn unlisted_old_dir(inodes: &Inodes, key: &EntryKey) -> Option<Ino> {
    let ino = *inodes.dir_at(key.dir).entries().get(&key.name)?;
    let inode = inodes.at(ino);
    let dir = inode.dir().ok()?;
    (inode.old_name() == Some(key) && !dir.is_complete() && !dir.is_closed()).then_some(ino)
}
