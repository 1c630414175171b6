//! A B+-tree over a block store: the file grows and shrinks with the tree.
//!
//! ```sh
//! cargo run --release -p elbow-extmem --example btree -- DIR [KEYS]
//! ```
//!
//! Inserts keys in no order, deletes three of four, scans the rest, deletes all, and says what the file takes each time.

mod node;
mod tree;

use std::error::Error;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use elbow_extmem::store::{BlockStore, Options};
use elbow_file::{RealStorage, Storage};

pub(crate) use tree::Tree;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (dir, keys) = match &arguments[..] {
        [dir] => (dir, 100_000),
        [dir, keys] => (dir, keys.parse()?),
        _ => return Err("usage: btree DIR [KEYS]".into()),
    };
    for Part { what, keys, bytes } in run(Path::new(dir), keys)? {
        println!("{what:<22} {keys:>9} keys  {bytes:>11} bytes on the storage");
    }
    Ok(())
}

/// A part of the program, with the number of keys after it and what the file takes then.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) what: &'static str,
    pub(crate) keys: u64,
    pub(crate) bytes: u64,
}

/// Fills and empties a tree in a new file of a directory, which is removed again.
pub(crate) fn run(dir: &Path, keys: u64) -> Result<Vec<Part>, Box<dyn Error>> {
    let dir = RealStorage::open_root(dir)?;
    let name = OsStr::new("elbow-btree.blocks");
    let store = BlockStore::create(Arc::new(RealStorage), &dir, name, Options::default())?;
    let mut tree = Tree::open(&store, None)?;
    let mut parts = Vec::new();
    let mut told = |what, tree: &Tree<'_>| -> Result<(), Box<dyn Error>> {
        tree.save()?;
        store.sync()?;
        parts.push(Part {
            what,
            keys: tree.len(),
            bytes: 512 * RealStorage.stat(&dir, name)?.blocks,
        });
        Ok(())
    };
    told("empty", &tree)?;
    for number in 0..keys {
        tree.insert(scattered(number), number)?;
    }
    assert_eq!(tree.get(scattered(keys / 2))?, Some(keys / 2));
    told("all inserted", &tree)?;
    for number in (0..keys).filter(|number| !number.is_multiple_of(4)) {
        tree.remove(scattered(number))?;
    }
    told("three of four deleted", &tree)?;
    let mut last = None;
    for entry in tree.scan(0)? {
        let (key, number) = entry?;
        assert!(
            key == scattered(number) && last < Some(key),
            "in order, with their values"
        );
        last = Some(key);
    }
    for number in (0..keys).step_by(4) {
        tree.remove(scattered(number))?;
    }
    told("all deleted", &tree)?;
    store.close()?;
    RealStorage.unlink(&dir, name)?;
    Ok(parts)
}

/// A key for a number, different ones for different numbers, in no order.
fn scattered(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
