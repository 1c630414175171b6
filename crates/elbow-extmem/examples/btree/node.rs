//! The nodes of the tree, in memory and in a block.
//!
//! ```text
//!   leaf:   1 (u8) | number of entries (u16) | block of the next leaf (u64, all ones: none) | entries: key, value
//!   inner:  2 (u8) | number of keys (u16)    | unused (u64)                                 | children, then keys
//! ```
//!
//! All numbers are little-endian; keys and values are u64. Child n of an inner node holds the keys from its key n - 1 on
//! that are below its key n.

use elbow_extmem::store::BlockId;

/// Bytes before entries or children.
const HEADER_BYTES: usize = 11;
const NONE: u64 = u64::MAX;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Leaf(Leaf),
    Inner(Inner),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub(crate) entries: Vec<(u64, u64)>,
    pub(crate) next: Option<BlockId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inner {
    pub(crate) keys: Vec<u64>,
    /// One more than there are keys.
    pub(crate) children: Vec<BlockId>,
}

impl Inner {
    /// Which child holds a key.
    pub(crate) fn child_of(&self, key: u64) -> usize {
        self.keys.partition_point(|&first| first <= key)
    }
}

impl Node {
    /// How many keys fit a block, in a node of either kind.
    pub(crate) fn keys_max(block_bytes: usize) -> usize {
        ((block_bytes - HEADER_BYTES - 8) / 16).min(usize::from(u16::MAX))
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Leaf(leaf) => leaf.entries.len(),
            Self::Inner(inner) => inner.keys.len(),
        }
    }

    pub(crate) fn encode(&self, block_bytes: usize) -> Vec<u8> {
        let (kind, link, numbers): (u8, u64, Vec<u64>) = match self {
            Self::Leaf(leaf) => {
                let next = leaf.next.map_or(NONE, |next| next.0);
                (
                    1,
                    next,
                    leaf.entries.iter().flat_map(|&(key, value)| [key, value]).collect(),
                )
            }
            Self::Inner(inner) => {
                let children = inner.children.iter().map(|child| child.0);
                (2, 0, children.chain(inner.keys.iter().copied()).collect())
            }
        };
        let mut block = Vec::with_capacity(block_bytes);
        block.push(kind);
        block.extend_from_slice(&(self.len() as u16).to_le_bytes());
        std::iter::once(link)
            .chain(numbers)
            .for_each(|number| block.extend_from_slice(&number.to_le_bytes()));
        block.resize(block_bytes, 0);
        block
    }

    /// The node in a block; `None` if there is none.
    pub(crate) fn decode(block: &[u8]) -> Option<Self> {
        let (header, body) = block.split_at_checked(HEADER_BYTES)?;
        let len = usize::from(u16::from_le_bytes([header[1], header[2]]));
        let link = u64::from_le_bytes(header[3..].try_into().ok()?);
        let numbers: Vec<u64> = body
            .as_chunks()
            .0
            .iter()
            .map(|&number| u64::from_le_bytes(number))
            .collect();
        match header[0] {
            1 => Some(Self::Leaf(Leaf {
                entries: numbers
                    .get(..2 * len)?
                    .as_chunks()
                    .0
                    .iter()
                    .map(|&[key, value]| (key, value))
                    .collect(),
                next: (link != NONE).then_some(BlockId(link)),
            })),
            2 => Some(Self::Inner(Inner {
                keys: numbers.get(len + 1..2 * len + 1)?.to_vec(),
                children: numbers[..len + 1].iter().map(|&child| BlockId(child)).collect(),
            })),
            _ => None,
        }
    }
}
