//! The numbers by which the kernel knows objects.
//!
//! `fuser` shows the node number of an object as its inode number, so node numbers are inode numbers here:
//! what existed before the job keeps the number that the storage gave it, as far as that is unambiguous; all
//! else is numbered from [`FIRST_OWN`] on.
//!
//! ```text
//!   1                     the root; stat(2) shows the number that it has on the storage
//!   FIRST_OWN | job ino   new objects, and old ones whose number is taken, 0, 1, the root's or in this range
//!   anything else         old objects: the number on the storage, found in `by_number`
//! ```
//!
//! Files that are one on the storage until one of them is changed are several nodes, and have one inode number until then: that is told by getattr alone,
//! so the kernel may not remember what else it hears of them.
//!
//! Invariant: an object keeps its node number for the life of the mount. Hence nothing is ever taken out of
//! `by_number`; it grows with the old objects that the job has seen, which the model keeps as well.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use elbow_job::{Attr, Ino, Numbered};
use fuser::{FileAttr, INodeNo};
use parking_lot::RwLock;

use crate::convert::file_attr;
use crate::user_namespace;

/// Numbers from here to twice this are the job's own; no file system is known to hand them out.
const FIRST_OWN: u64 = 1 << 62;

/// Node numbers in both directions.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    /// What the root is shown with: the root of each subvolume of a btrfs has the same, and who finds it below takes that for a loop.
    root: u64,
    by_number: RwLock<HashMap<u64, Ino>>,
}

impl Nodes {
    /// `root`: the number of the root on the storage.
    pub(crate) fn new(root: u64) -> Self {
        Self {
            root,
            by_number: RwLock::default(),
        }
    }

    /// The object that the kernel means.
    pub(crate) fn ino(&self, node: INodeNo) -> Ino {
        match node.0 {
            1 => Ino::ROOT,
            own if is_own(own) => Ino(own & !FIRST_OWN),
            old => self.by_number.read().get(&old).copied().unwrap_or(Ino(0)),
        }
    }

    /// The node number of an object that is handed to the kernel.
    pub(crate) fn node(&self, ino: Ino, shown: u64) -> INodeNo {
        if ino == Ino::ROOT {
            return INodeNo(1);
        }
        if shown <= 1 || shown == self.root || is_own(shown) {
            return own(ino);
        }
        let known = self.by_number.read().get(&shown).copied();
        match known {
            Some(holder) if holder == ino => INodeNo(shown),
            Some(_) => own(ino),
            None => self.claim(ino, shown),
        }
    }

    fn claim(&self, ino: Ino, shown: u64) -> INodeNo {
        match self.by_number.write().entry(shown) {
            Entry::Occupied(holder) if *holder.get() != ino => own(ino),
            Entry::Occupied(_) => INodeNo(shown),
            Entry::Vacant(free) => {
                free.insert(ino);
                INodeNo(shown)
            }
        }
    }

    /// Attributes to hand to the kernel together with the node number.
    pub(crate) fn entry(&self, attr: &Attr) -> FileAttr {
        with_owners(file_attr(self.node(attr.ino, attr.visible_ino), attr))
    }

    /// Attributes as stat(2) shows them: the root, too, has the number that it has on the storage, and files that are still one there have one number.
    pub(crate) fn shown(&self, attr: &Attr) -> FileAttr {
        let is_root = attr.ino == Ino::ROOT;
        match attr.number {
            Numbered::Shared => with_owners(file_attr(INodeNo(attr.visible_ino), attr)),
            Numbered::Parted => with_owners(file_attr(own(attr.ino), attr)),
            Numbered::Alone if is_root => with_owners(file_attr(INodeNo(attr.visible_ino), attr)),
            Numbered::Alone => self.entry(attr),
        }
    }
}

/// In the numbers that the namespace of the mount has.
fn with_owners(attr: FileAttr) -> FileAttr {
    let (uid, gid) = user_namespace::shown_owners((attr.uid, attr.gid));
    FileAttr { uid, gid, ..attr }
}

fn is_own(number: u64) -> bool {
    number & !(FIRST_OWN - 1) == FIRST_OWN
}

fn own(ino: Ino) -> INodeNo {
    INodeNo(FIRST_OWN | ino.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_objects_keep_their_number_and_the_root_is_one() {
        let nodes = Nodes::default();
        assert_eq!(nodes.node(Ino(7), 131_074), INodeNo(131_074));
        assert_eq!(nodes.node(Ino(7), 131_074), INodeNo(131_074));
        assert_eq!(nodes.ino(INodeNo(131_074)), Ino(7));
        assert_eq!(nodes.node(Ino::ROOT, 2), INodeNo(1));
        assert_eq!(nodes.ino(INodeNo(1)), Ino::ROOT);
    }

    #[test]
    fn a_number_that_is_taken_is_not_given_twice() {
        let nodes = Nodes::default();
        assert_eq!(nodes.node(Ino(7), 256), INodeNo(256));
        let second = nodes.node(Ino(8), 256);
        assert_ne!(second, INodeNo(256));
        assert_eq!(nodes.ino(second), Ino(8));
        assert_eq!(nodes.node(Ino(8), 256), second, "an object keeps its number");
    }

    #[test]
    fn the_number_of_the_root_is_given_to_nothing_below_it() {
        let nodes = Nodes::new(256);
        let sub = nodes.node(Ino(7), 256);
        assert_ne!(sub, INodeNo(256));
        assert_eq!(nodes.ino(sub), Ino(7));
    }

    #[test]
    fn numbers_that_mean_something_else_are_replaced() {
        let nodes = Nodes::default();
        for shown in [0, 1, FIRST_OWN | 9, FIRST_OWN] {
            let node = nodes.node(Ino(5), shown);
            assert_eq!(nodes.ino(node), Ino(5), "{shown:#x}");
        }
    }

    #[test]
    fn a_number_that_nobody_was_given_is_no_object() {
        assert_eq!(Nodes::default().ino(INodeNo(99)), Ino(0));
    }
}
