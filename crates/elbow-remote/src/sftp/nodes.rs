//! What is open, by its place in the tree: SFTP knows objects by their paths only.
//!
//! ```text
//!   root "/home/alice/data" ── "run" ── "out"      a handle is a node; its path is put together when it is needed
//!                              │
//!                        renamed here: one name is changed, and all below it have their new paths
//! ```
//!
//! Invariants: an object that is open here has one node, whoever opened it; a rename that is made through here moves it. What others rename
//! is not noticed: a path then means what is there now, as on any storage that is reached by paths.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use elbow_file::{Errno, Result};
use parking_lot::Mutex;

/// Longer paths than Linux takes are refused here: a server may take one for the end of the conversation.
pub(crate) const PATH_BYTES_MAX: usize = 4095;
/// The names of nodes that are gone are removed when there are so many, and again at twice as many as are left.
const SWEEP_FIRST: usize = 1024;

/// An open object.
#[derive(Debug)]
pub(crate) struct Node {
    id: u64,
    is_dir: bool,
    place: Mutex<Place>,
}

#[derive(Clone, Debug)]
enum Place {
    Root(Arc<[u8]>),
    Below(Arc<Node>, OsString),
    /// It has no name any more; what it was known by.
    Gone(u64),
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Nodes {
    root: Arc<Node>,
    names: Mutex<Names>,
    next_id: AtomicU64,
}

#[derive(Debug)]
struct Names {
    /// By the node of the directory and the name in it.
    nodes: HashMap<(u64, OsString), Weak<Node>>,
    sweep_at: usize,
}

impl Nodes {
    pub(crate) fn new(root: &[u8]) -> Self {
        let root = Node {
            id: 0,
            is_dir: true,
            place: Mutex::new(Place::Root(root.into())),
        };
        Self {
            root: Arc::new(root),
            names: Mutex::new(Names {
                nodes: HashMap::new(),
                sweep_at: SWEEP_FIRST,
            }),
            next_id: AtomicU64::new(1),
        }
    }

    pub(crate) fn root(&self) -> Arc<Node> {
        self.root.clone()
    }

    /// The node of a directory that has this name; `.` is the directory itself.
    pub(crate) fn dir(&self, above: &Arc<Node>, name: &OsStr) -> Arc<Node> {
        self.at(above, name, true)
    }

    /// The node of a file that has this name.
    pub(crate) fn file(&self, dir: &Arc<Node>, name: &OsStr) -> Arc<Node> {
        self.at(dir, name, false)
    }

    fn at(&self, dir: &Arc<Node>, name: &OsStr, is_dir: bool) -> Arc<Node> {
        if name == "." {
            return dir.clone();
        }
        let mut names = self.names.lock();
        let key = (dir.id, name.to_owned());
        let known = names.nodes.get(&key).and_then(Weak::upgrade);
        if let Some(node) = known.filter(|node| node.is_dir == is_dir) {
            return node;
        }
        let node = Arc::new(Node {
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            is_dir,
            place: Mutex::new(Place::Below(dir.clone(), name.to_owned())),
        });
        names.insert(key, &node);
        node
    }

    /// Whether a directory of this name is open: then paths begin with its own.
    pub(crate) fn is_open_dir(&self, dir: &Arc<Node>, name: &OsStr) -> bool {
        let names = self.names.lock();
        let node = names.nodes.get(&(dir.id, name.to_owned())).and_then(Weak::upgrade);
        node.is_some_and(|node| node.is_dir)
    }

    /// What had the one name has the other now.
    pub(crate) fn moved(&self, from: (&Arc<Node>, &OsStr), to: (&Arc<Node>, &OsStr)) {
        let mut names = self.names.lock();
        let moved = names.take(from.0, from.1);
        if let Some(replaced) = names.take(to.0, to.1) {
            replaced.leave();
        }
        if let Some(node) = moved {
            *node.place.lock() = Place::Below(to.0.clone(), to.1.to_owned());
            names.insert((to.0.id, to.1.to_owned()), &node);
        }
    }

    /// Nothing has this name any more.
    pub(crate) fn removed(&self, dir: &Arc<Node>, name: &OsStr) {
        if let Some(node) = self.names.lock().take(dir, name) {
            node.leave();
        }
    }
}

impl Names {
    fn take(&mut self, dir: &Node, name: &OsStr) -> Option<Arc<Node>> {
        self.nodes
            .remove(&(dir.id, name.to_owned()))
            .and_then(|node| node.upgrade())
    }

    fn insert(&mut self, key: (u64, OsString), node: &Arc<Node>) {
        self.nodes.insert(key, Arc::downgrade(node));
        if self.nodes.len() >= self.sweep_at {
            self.nodes.retain(|_, node| node.strong_count() > 0);
            self.sweep_at = (self.nodes.len() * 2).max(SWEEP_FIRST);
        }
    }
}

impl Node {
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Its path now.
    ///
    /// # Errors
    /// ENOENT when it has none, ENAMETOOLONG when that is too long.
    pub(crate) fn path(&self) -> Result<Vec<u8>> {
        let mut names = Vec::new();
        let mut place = self.place.lock().clone();
        let root = loop {
            place = match place {
                Place::Root(path) => break path,
                Place::Below(above, name) => {
                    names.push(name);
                    above.place.lock().clone()
                }
                Place::Gone(_) => return Err(Errno::NOENT),
            };
        };
        names.reverse();
        names.iter().try_fold(root.to_vec(), |path, name| join(path, name))
    }

    /// The path of a name in it; `.` is the directory itself.
    ///
    /// # Errors
    /// As of [`path`](Self::path); EINVAL for what is no name.
    pub(crate) fn path_of(&self, name: &OsStr) -> Result<Vec<u8>> {
        match component(name)?.as_bytes() {
            b"." => self.path(),
            _ => join(self.path()?, name),
        }
    }

    /// The directory that it is in, and its name there, unless it has none.
    pub(crate) fn name(&self) -> Option<(Arc<Self>, OsString)> {
        match &*self.place.lock() {
            Place::Below(dir, name) => Some((dir.clone(), name.clone())),
            Place::Root(_) | Place::Gone(_) => None,
        }
    }

    /// What stands for its inode number: made of its path, as nothing else is known of it.
    pub(crate) fn ino(&self) -> u64 {
        if let Place::Gone(ino) = *self.place.lock() {
            return ino;
        }
        self.path().map_or(1, |path| ino_of(&path))
    }

    fn leave(&self) {
        let ino = self.ino();
        *self.place.lock() = Place::Gone(ino);
    }
}

/// The number of a path: the same in every run, as records are compared with what is found later.
///
/// Source: FNV-1a, 64 bits.
pub(crate) fn ino_of(path: &[u8]) -> u64 {
    const START: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let hash = path
        .iter()
        .fold(START, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    hash.max(1) // 0 is no number of an inode
}

fn join(mut path: Vec<u8>, name: &OsStr) -> Result<Vec<u8>> {
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name.as_bytes());
    if path.len() > PATH_BYTES_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    Ok(path)
}

/// A name, if it is one component and stays where it is.
pub(crate) fn component(name: &OsStr) -> Result<&OsStr> {
    match name.as_bytes() {
        b"" | b".." => Err(Errno::INVAL),
        // A zero byte is the end of a conversation with OpenSSH.
        bytes if bytes.iter().any(|byte| matches!(byte, b'/' | 0)) => Err(Errno::INVAL),
        _ => Ok(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> &OsStr {
        OsStr::new(text)
    }

    #[test]
    fn what_is_below_a_renamed_directory_has_its_new_path() {
        let nodes = Nodes::new(b"/root");
        let (a, d) = (nodes.dir(&nodes.root(), name("a")), nodes.dir(&nodes.root(), name("d")));
        let b = nodes.dir(&a, name("b"));
        assert_eq!(b.path_of(name("c")).unwrap(), b"/root/a/b/c");
        nodes.moved((&nodes.root(), name("a")), (&d, name("x")));
        assert_eq!(b.path().unwrap(), b"/root/d/x/b");
        assert!(
            Arc::ptr_eq(&nodes.dir(&d, name("x")), &a),
            "it is found by its new name"
        );
        assert!(!nodes.is_open_dir(&nodes.root(), name("a")));
        // Another one that gets the old name is another one.
        assert_ne!(nodes.dir(&nodes.root(), name("a")).id(), a.id());
    }

    #[test]
    fn what_was_removed_or_replaced_has_no_path() {
        let nodes = Nodes::new(b"/");
        let (a, b) = (nodes.dir(&nodes.root(), name("a")), nodes.dir(&nodes.root(), name("b")));
        let ino = b.ino();
        assert_eq!(a.path().unwrap(), b"/a");
        nodes.moved((&nodes.root(), name("a")), (&nodes.root(), name("b")));
        assert_eq!((b.path(), b.ino()), (Err(Errno::NOENT), ino));
        assert_eq!(a.path().unwrap(), b"/b");
        nodes.removed(&nodes.root(), name("b"));
        assert_eq!(nodes.dir(&a, name("below")).path(), Err(Errno::NOENT));
    }

    #[test]
    fn names_that_are_none_are_refused_and_long_paths_too() {
        let nodes = Nodes::new(b"/");
        let root = nodes.root();
        for bad in ["", "..", "a/b", "/", "a\0b"] {
            assert_eq!(root.path_of(name(bad)), Err(Errno::INVAL), "{bad:?}");
        }
        assert_eq!(root.path_of(name(".")).unwrap(), b"/");
        assert_eq!(root.path_of(name(&"x".repeat(5000))), Err(Errno::NAMETOOLONG));
    }

    #[test]
    fn names_of_nodes_that_are_gone_do_not_pile_up() {
        let nodes = Nodes::new(b"/");
        for number in 0..10 * SWEEP_FIRST {
            drop(nodes.dir(&nodes.root(), name(&number.to_string())));
        }
        assert!(nodes.names.lock().nodes.len() <= SWEEP_FIRST);
    }
}
