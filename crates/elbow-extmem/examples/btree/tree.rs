//! A B+-tree in a block store of its own: as many blocks as it needs, and none when it is empty.
//!
//! ```text
//!   block 0: root, number of keys          [ 30 | 70 ]                 inner nodes lead to children
//!                                         /     |     \
//!                              [10 20] -> [30 50] -> [70 90]           leaves hold values, each leads to the next
//! ```
//!
//! Invariants: keys are in order; every node but the root is at least half full; all leaves are equally deep; block 0
//! is allocated while there is a root. Deleting from a node that becomes too empty joins it with a neighbour, and frees
//! a block if both fit in one.
//!
//! Not here: safety from a crash between two syncs, which a tree gets by writing changed nodes to new blocks and freeing
//! the old ones after a sync.
//!
//! Source: Comer, *The Ubiquitous B-Tree*, Computing Surveys 11 (2), 1979; Vengroff & Kotz, section 4.2.

use elbow_extmem::store::{BlockId, BlockStore, StoreError};

use super::node::{Inner, Leaf, Node};

/// The block that says where the root is: the first of the store.
const FIRST: BlockId = BlockId(0);

/// Why the tree could not be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TreeError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A block is no node of a tree.
    #[error("block {0} is not a node of a tree")]
    Damaged(BlockId),
}

type Result<T> = std::result::Result<T, TreeError>;

/// The right half of a node that was split, and its first key.
type Split = (u64, BlockId);

/// A map from u64 to u64.
pub(crate) struct Tree<'a> {
    store: &'a BlockStore,
    root: Option<BlockId>,
    keys: u64,
    /// Keys of a full node.
    most: usize,
}

impl<'a> Tree<'a> {
    /// The tree of a store; an empty store is an empty tree. Nodes have so many keys at most (3 or more), or as many as
    /// fit.
    pub(crate) fn open(store: &'a BlockStore, most: Option<usize>) -> Result<Self> {
        let fit = Node::keys_max(store.block_bytes());
        let mut tree = Self {
            store,
            root: None,
            keys: 0,
            most: most.unwrap_or(fit).clamp(3, fit),
        };
        if !store.is_empty() {
            let mut first = vec![0; store.block_bytes()];
            store.read(FIRST, &mut first)?;
            let [root, keys] = [0, 1].map(|index| u64::from_le_bytes(first.as_chunks().0[index]));
            (tree.root, tree.keys) = (Some(BlockId(root)), keys);
        }
        Ok(tree)
    }

    /// Writes down where the root is; the rest is in the store already.
    pub(crate) fn save(&self) -> Result<()> {
        let Some(root) = self.root else { return Ok(()) };
        let mut first = Vec::with_capacity(self.store.block_bytes());
        for number in [root.0, self.keys] {
            first.extend_from_slice(&number.to_le_bytes());
        }
        first.resize(self.store.block_bytes(), 0);
        Ok(self.store.write(FIRST, &first)?)
    }

    /// How many keys there are.
    pub(crate) fn len(&self) -> u64 {
        self.keys
    }

    /// The value of a key.
    pub(crate) fn get(&self, key: u64) -> Result<Option<u64>> {
        let found = self.scan(key)?.next().transpose()?;
        Ok(found.filter(|entry| entry.0 == key).map(|(_, value)| value))
    }

    /// All entries from a key on, in order.
    pub(crate) fn scan(&self, from: u64) -> Result<Scan<'_>> {
        let mut leaf = Leaf::default();
        let mut next = self.root;
        while let Some(block) = next.take() {
            match self.node(block)? {
                Node::Inner(inner) => next = Some(inner.children[inner.child_of(from)]),
                Node::Leaf(found) => leaf = found,
            }
        }
        let at = leaf.entries.partition_point(|entry| entry.0 < from);
        Ok(Scan { tree: self, leaf, at })
    }

    /// Gives a key a value; the value that it had.
    pub(crate) fn insert(&mut self, key: u64, value: u64) -> Result<Option<u64>> {
        let Some(root) = self.root else {
            let leaf = Leaf {
                entries: vec![(key, value)],
                next: None,
            };
            assert_eq!(self.store.alloc()?, FIRST, "the store is the tree's own");
            (self.root, self.keys) = (Some(self.add(&Node::Leaf(leaf))?), 1);
            return Ok(None);
        };
        let (old, split) = self.insert_below(root, key, value)?;
        if let Some((first, right)) = split {
            let inner = Inner {
                keys: vec![first],
                children: vec![root, right],
            };
            self.root = Some(self.add(&Node::Inner(inner))?);
        }
        self.keys += u64::from(old.is_none());
        Ok(old)
    }

    /// Inserts below a node; the old value, and what was split off the node.
    fn insert_below(&self, block: BlockId, key: u64, value: u64) -> Result<(Option<u64>, Option<Split>)> {
        let mut node = self.node(block)?;
        let old = match &mut node {
            Node::Leaf(leaf) => match leaf.entries.binary_search_by_key(&key, |entry| entry.0) {
                Ok(index) => Some(std::mem::replace(&mut leaf.entries[index].1, value)),
                Err(index) => {
                    leaf.entries.insert(index, (key, value));
                    None
                }
            },
            Node::Inner(inner) => {
                let index = inner.child_of(key);
                let (old, split) = self.insert_below(inner.children[index], key, value)?;
                let Some((first, right)) = split else {
                    return Ok((old, None));
                };
                inner.keys.insert(index, first);
                inner.children.insert(index + 1, right);
                old
            }
        };
        let split = if node.len() > self.most {
            Some(self.split(&mut node)?)
        } else {
            None
        };
        self.write(block, &node)?;
        Ok((old, split))
    }

    /// Moves the right half of a node to a new one.
    fn split(&self, node: &mut Node) -> Result<Split> {
        let (first, right) = halve(node);
        let block = self.add(&right)?;
        if let Node::Leaf(leaf) = node {
            leaf.next = Some(block);
        }
        Ok((first, block))
    }

    /// Takes a key away; the value that it had.
    pub(crate) fn remove(&mut self, key: u64) -> Result<Option<u64>> {
        let Some(root) = self.root else { return Ok(None) };
        let Some(old) = self.remove_below(root, key)? else {
            return Ok(None);
        };
        self.keys -= 1;
        let shrunk = match self.node(root)? {
            Node::Leaf(leaf) if leaf.entries.is_empty() => None,
            Node::Inner(inner) if inner.keys.is_empty() => Some(inner.children[0]),
            _ => return Ok(Some(old)),
        };
        self.store.free(root)?;
        if shrunk.is_none() {
            self.store.free(FIRST)?;
        }
        self.root = shrunk;
        Ok(Some(old))
    }

    fn remove_below(&self, block: BlockId, key: u64) -> Result<Option<u64>> {
        match self.node(block)? {
            Node::Leaf(mut leaf) => {
                let Ok(index) = leaf.entries.binary_search_by_key(&key, |entry| entry.0) else {
                    return Ok(None);
                };
                let (_, old) = leaf.entries.remove(index);
                self.write(block, &Node::Leaf(leaf))?;
                Ok(Some(old))
            }
            Node::Inner(mut inner) => {
                let index = inner.child_of(key);
                let old = self.remove_below(inner.children[index], key)?;
                if old.is_some() && self.node(inner.children[index])?.len() < self.most / 2 {
                    self.fill_up(&mut inner, index.saturating_sub(1))?;
                    self.write(block, &Node::Inner(inner))?;
                }
                Ok(old)
            }
        }
    }

    /// Joins a child with the next one, or shares their keys evenly where they do not fit in one.
    fn fill_up(&self, parent: &mut Inner, index: usize) -> Result<()> {
        let (left, right) = (parent.children[index], parent.children[index + 1]);
        let mut joined =
            join(self.node(left)?, parent.keys[index], self.node(right)?).ok_or(TreeError::Damaged(right))?;
        if joined.len() <= self.most {
            parent.keys.remove(index);
            parent.children.remove(index + 1);
            self.store.free(right)?;
            return self.write(left, &joined);
        }
        let (first, second) = halve(&mut joined);
        if let Node::Leaf(leaf) = &mut joined {
            leaf.next = Some(right);
        }
        parent.keys[index] = first;
        self.write(left, &joined)?;
        self.write(right, &second)
    }

    fn node(&self, block: BlockId) -> Result<Node> {
        let mut bytes = vec![0; self.store.block_bytes()];
        self.store.read(block, &mut bytes)?;
        Node::decode(&bytes).ok_or(TreeError::Damaged(block))
    }

    fn write(&self, block: BlockId, node: &Node) -> Result<()> {
        Ok(self.store.write(block, &node.encode(self.store.block_bytes()))?)
    }

    fn add(&self, node: &Node) -> Result<BlockId> {
        let block = self.store.alloc()?;
        self.write(block, node)?;
        Ok(block)
    }
}

/// Entries in order; see [`Tree::scan`].
pub(crate) struct Scan<'a> {
    tree: &'a Tree<'a>,
    leaf: Leaf,
    at: usize,
}

impl Iterator for Scan<'_> {
    type Item = Result<(u64, u64)>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.at == self.leaf.entries.len() {
            let next = self.leaf.next.take()?;
            match self.tree.node(next) {
                Ok(Node::Leaf(leaf)) => (self.leaf, self.at) = (leaf, 0),
                Ok(Node::Inner(_)) => return Some(Err(TreeError::Damaged(next))),
                Err(error) => return Some(Err(error)),
            }
        }
        self.at += 1;
        Some(Ok(self.leaf.entries[self.at - 1]))
    }
}

/// Takes the right half off a node; with the first key that belongs there.
fn halve(node: &mut Node) -> (u64, Node) {
    let half = node.len() / 2;
    match node {
        Node::Leaf(leaf) => {
            let entries = leaf.entries.split_off(half);
            let next = leaf.next;
            (entries[0].0, Node::Leaf(Leaf { entries, next }))
        }
        Node::Inner(inner) => {
            let keys = inner.keys.split_off(half + 1);
            let children = inner.children.split_off(half + 1);
            let first = inner.keys.remove(half);
            (first, Node::Inner(Inner { keys, children }))
        }
    }
}

/// Two neighbours as one node; `first` is the key between them. `None` if they are not of one kind.
fn join(left: Node, first: u64, right: Node) -> Option<Node> {
    match (left, right) {
        (Node::Leaf(mut left), Node::Leaf(right)) => {
            left.entries.extend(right.entries);
            left.next = right.next;
            Some(Node::Leaf(left))
        }
        (Node::Inner(mut left), Node::Inner(right)) => {
            left.keys.push(first);
            left.keys.extend(right.keys);
            left.children.extend(right.children);
            Some(Node::Inner(left))
        }
        _ => None,
    }
}
