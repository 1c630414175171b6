//! What a look into old directories gave enters the model.

use super::{EntryKey, Model};
use crate::api::Ino;
use crate::look::{Looked, LookedBelow};

impl Model {
    pub(crate) fn install_looked(&mut self, ino: Ino, looked: Looked) {
        match looked {
            Looked::Listed(listing) => {
                self.traits.note_default_acl(&listing.default_acl);
                self.inodes.install_listing(ino, listing);
            }
            Looked::Closed(handle, default_acl) => {
                self.traits.note_default_acl(&default_acl);
                self.inodes.install_closed(ino, handle, default_acl);
            }
        }
    }

    /// What came along of directories below a listed one.
    pub(crate) fn install_below(&mut self, ino: Ino, below: Vec<LookedBelow>) {
        let mut dirs = vec![Some(ino)];
        for LookedBelow { parent, name, looked } in below {
            let above = dirs[parent];
            let found = above.and_then(|above| self.inodes.unlisted_old_dir(&EntryKey::new(above, &name)));
            dirs.push(found);
            if let Some((above, found)) = above.zip(found) {
                self.install_looked(found, looked);
                self.prelist.note_below(&mut self.inodes, (above, found));
            }
        }
    }
}
