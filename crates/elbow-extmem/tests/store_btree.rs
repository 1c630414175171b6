//! The worked example: a B+-tree over the block store, against a model, and the file as large as the tree.
#![allow(clippy::unwrap_used)]

#[path = "../examples/btree/main.rs"]
#[allow(dead_code, reason = "its main is not called here")]
mod btree;
mod store_test_dir;

use std::collections::BTreeMap;

use btree::Tree;
use elbow_extmem::store::BlockStore;
use elbow_testkit::cases::for_each_seed;
use rand::Rng;
use rand::rngs::StdRng;
use store_test_dir::{KINDS, TestDir, UNIT};

fn change(tree: &mut Tree<'_>, model: &mut BTreeMap<u64, u64>, rng: &mut StdRng, grows: bool) {
    for _ in 0..400 {
        let key = rng.random_range(0..600);
        if rng.random_ratio(if grows { 3 } else { 1 }, 4) {
            let value = rng.random();
            assert_eq!(tree.insert(key, value).unwrap(), model.insert(key, value));
        } else {
            assert_eq!(tree.remove(key).unwrap(), model.remove(&key));
        }
    }
}

fn check(tree: &Tree<'_>, model: &BTreeMap<u64, u64>, rng: &mut StdRng) {
    assert_eq!(tree.len(), model.len() as u64);
    let from = rng.random_range(0..600);
    let scanned: Vec<_> = tree.scan(from).unwrap().map(Result::unwrap).collect();
    let expected: Vec<_> = model.range(from..).map(|(&key, &value)| (key, value)).collect();
    assert_eq!(scanned, expected);
    assert_eq!(tree.get(from).unwrap(), model.get(&from).copied());
}

/// A tree of so many keys has no more blocks than half-full nodes need.
fn assert_small(store: &BlockStore, keys: u64, most: u64) {
    let leaves = keys / (most / 2).max(1) + 1;
    assert!(
        store.len() <= 1 + 2 * leaves + 2,
        "{} blocks for {keys} keys",
        store.len()
    );
}

#[test]
fn the_tree_is_the_map_of_the_model() {
    for_each_seed(6, |rng| {
        let test_dir = TestDir::in_memory();
        let kind = KINDS[rng.random_range(0..KINDS.len())];
        let most = rng.random_range(3..12);
        let mut model = BTreeMap::new();
        let mut store = test_dir.create(kind);
        for round in 0..6 {
            let mut tree = Tree::open(&store, Some(most)).unwrap();
            change(&mut tree, &mut model, rng, round < 3);
            check(&tree, &model, rng);
            tree.save().unwrap();
            assert_small(&store, tree.len(), most as u64);
            store.close().unwrap();
            store = test_dir.open().unwrap();
        }
        let mut tree = Tree::open(&store, Some(most)).unwrap();
        for key in model.keys() {
            tree.remove(*key).unwrap().unwrap();
        }
        tree.save().unwrap();
        assert_eq!((tree.len(), store.len()), (0, 0));
        store.close().unwrap();
    });
}

#[test]
fn a_tree_with_nothing_in_it_takes_two_blocks_at_most() {
    let test_dir = TestDir::new();
    let parts = btree::run(test_dir.path(), 20_000).unwrap();
    let [empty, full, quarter, none] = &parts[..] else {
        panic!("{parts:?}")
    };
    let keys = [empty, full, quarter, none].map(|part| part.keys);
    assert_eq!(keys, [0, 20_000, 5_000, 0]);
    assert!(full.bytes > 20_000 * 16, "{parts:?}");
    assert!(quarter.bytes < full.bytes / 2, "nodes are joined: {parts:?}");
    assert!(empty.bytes <= 2 * UNIT && none.bytes <= 2 * UNIT, "{parts:?}");
}
