//! The block store on the file systems that people have: what SEEK_HOLE and `st_blocks` say is what the store knows.
#![allow(clippy::unwrap_used)]

#[path = "store_test_dir/disk.rs"]
mod disk;
mod store_test_dir;

use std::collections::BTreeSet;
use std::sync::Arc;

use disk::Disk;
use elbow_extmem::store::{BlockId, BlockStore, FreeMap, StoreError};
use elbow_file::RealStorage;
use elbow_file::double::{Faulty, Interposed, Plan};
use elbow_ranges::RangeSet;
use elbow_testkit::cases::for_each_seed;
use rand::Rng;
use rand::rngs::StdRng;
use store_test_dir::{TestDir, UNIT, content, name, options};

/// Blocks that a file system may take for its own map of a file in many pieces.
const MAP_BLOCKS: u64 = 4;

/// Some steps of a random program; keeps the numbers of the blocks that hold data.
fn run(store: &BlockStore, written: &mut BTreeSet<u64>, rng: &mut StdRng) {
    for _ in 0..40 {
        let some: Vec<u64> = written.iter().copied().filter(|_| rng.random_ratio(1, 4)).collect();
        if rng.random_ratio(1, 3) {
            let blocks: Vec<_> = some.iter().map(|&block| BlockId(block)).collect();
            store.free_many(&blocks).unwrap();
            some.iter().for_each(|block| assert!(written.remove(block)));
        } else {
            let blocks = store.alloc_many(rng.random_range(0..40)).unwrap();
            // Some are allocated only, and given back; zeros are data like any others.
            let (write, leave) = blocks.split_at(blocks.len() / 2);
            let stamp = rng.random_range(0..3);
            store
                .write_many(write, &content(stamp, write.len() * UNIT as usize))
                .unwrap();
            written.extend(write.iter().map(|block| block.0));
            store.free_many(leave).unwrap();
        }
    }
}

fn check(test_dir: &TestDir, written: &BTreeSet<u64>, kind: &str) {
    let blocks = written.iter().map(|block| (2 + block) * UNIT..(3 + block) * UNIT);
    // The header stands in the first block; of a file that is all header only that is there.
    let header = 0..UNIT.min(test_dir.bytes_long());
    let expected: RangeSet = std::iter::once(header).chain(blocks).collect();
    let mut data = test_dir.data();
    if data.covers(0, 512) {
        data.insert(0, UNIT.min(test_dir.bytes_long()));
    }
    assert_eq!(data, expected, "{kind}");
    let live = (written.len() as u64 + 1) * UNIT;
    let taken = test_dir.bytes_taken();
    // What is smaller than a block may stand in the inode.
    let least = if written.is_empty() { 0 } else { live };
    assert!(
        (least..=live + MAP_BLOCKS * UNIT).contains(&taken),
        "{kind}: {taken} bytes taken by {live}"
    );
}

fn holes_agree_on(kind: &str) {
    let Some(disk) = Disk::new(kind, 512) else { return };
    for_each_seed(2, |rng| {
        let test_dir = TestDir::at(&disk.path());
        let mut store = test_dir.create(options(FreeMap::Probe, false));
        assert_eq!(store.free_map(), FreeMap::Holes, "{kind} keeps track of holes");
        let mut written = BTreeSet::new();
        for _ in 0..6 {
            run(&store, &mut written, rng);
            store.close().unwrap();
            check(&test_dir, &written, kind);
            store = test_dir.open().unwrap();
            assert!(store.allocated().iter().flatten().eq(written.iter().copied()), "{kind}");
        }
        let all: Vec<_> = store.allocated().iter().flatten().map(BlockId).collect();
        store.free_many(&all).unwrap();
        store.close().unwrap();
        check(&test_dir, &BTreeSet::new(), kind);
        assert!(test_dir.bytes_taken() <= 2 * UNIT, "{kind}");
    });
}

/// A store fills its file system, is told so, and goes on when there is room.
fn fills_up(kind: &str) {
    let Some(disk) = Disk::new(kind, 16) else { return };
    for free_map in [FreeMap::Holes, FreeMap::Bitmap] {
        let test_dir = TestDir::at(&disk.path());
        let store = test_dir.create(options(free_map, true));
        let data = content(1, store.block_bytes());
        let mut blocks = Vec::new();
        let error = loop {
            blocks.push(store.alloc().unwrap());
            if let Err(error) = store.write(blocks[blocks.len() - 1], &data) {
                break error;
            }
            assert!(blocks.len() < 5000, "{kind} is never full");
        };
        assert!(matches!(error, StoreError::NoSpace { .. }), "{error}");
        assert!(blocks.len() > 1000, "{} blocks on {kind}", blocks.len());
        // The last block was not written; every second of the others is given up, wherever it is.
        let (freed, kept): (Vec<BlockId>, Vec<_>) =
            blocks[..blocks.len() - 1].iter().partition(|block| block.0 % 2 == 0);
        store.free_many(&freed).unwrap();
        store.sync().unwrap();
        store.write(blocks[blocks.len() - 1], &data).unwrap();
        store.close().unwrap();
        let store = test_dir.open().unwrap();
        assert_eq!(store.len(), kept.len() as u64 + 1, "{kind}");
        let mut read = vec![0; data.len()];
        for block in kept {
            store.read(block, &mut read).unwrap();
            assert_eq!(read, data);
        }
    }
}

/// A store in so many pieces that ext4 keeps two levels of index blocks for its file. Returns its blocks.
fn in_pieces(test_dir: &TestDir) -> Vec<BlockId> {
    const BLOCKS: usize = 4000;
    let store = test_dir.create(options(FreeMap::Probe, false));
    let blocks = store.alloc_many(BLOCKS).unwrap();
    store.write_many(&blocks, &content(7, BLOCKS * UNIT as usize)).unwrap();
    let (freed, kept): (Vec<BlockId>, Vec<_>) = blocks.iter().partition(|block| block.0 % 2 == 0);
    store.free_many(&freed).unwrap();
    store.close().unwrap();
    let index = test_dir.bytes_taken() - (kept.len() as u64 + 1) * UNIT;
    assert!(index >= 6 * UNIT, "{index} bytes of index blocks");
    kept
}

/// The story: a B+-tree of a million keys, emptied, took three blocks: one, and two for the index of one extent.
#[test]
fn a_store_that_was_in_thousands_of_pieces_takes_two_blocks_at_most() {
    let Some(disk) = Disk::new("ext4", 512) else { return };
    let test_dir = TestDir::at(&disk.path());
    let blocks = in_pieces(&test_dir);
    for _ in 0..2 {
        let store = test_dir.open().unwrap();
        let all: Vec<_> = store.allocated().iter().flatten().map(BlockId).collect();
        store.free_many(&all).unwrap();
        store.sync().unwrap();
        assert!(test_dir.bytes_taken() <= 2 * UNIT, "{} bytes", test_dir.bytes_taken());
        let again = store.alloc_many(blocks.len()).unwrap();
        let data = content(9, store.block_bytes());
        again
            .iter()
            .step_by(2)
            .for_each(|&block| store.write(block, &data).unwrap());
        store.close().unwrap();
    }
}

#[test]
fn a_death_while_a_store_is_emptied_leaves_a_store() {
    let Some(disk) = Disk::new("ext4", 512) else { return };
    let mut deaths = 0;
    loop {
        let test_dir = TestDir::at(&disk.path());
        let blocks = in_pieces(&test_dir);
        let faulty = Faulty::new([Plan::stop_at_change(deaths + 1)]);
        let faulty = Arc::new(Interposed::new(Arc::new(RealStorage), faulty));
        let store = BlockStore::open(faulty.clone(), &test_dir.root, name()).unwrap();
        store.free_many(&blocks).unwrap();
        let _ = store.close();
        let store = test_dir
            .open()
            .unwrap_or_else(|error| panic!("death {deaths}: {error}"));
        assert!(
            store.is_empty() || store.len() == blocks.len() as u64,
            "{deaths}: {}",
            store.len()
        );
        store.close().unwrap();
        if faulty.hook().fired() == 0 {
            break;
        }
        deaths += 1;
    }
    assert!(deaths >= 4, "cut, put aside, cut, write: {deaths} deaths");
}

#[test]
fn a_full_ext4_is_told() {
    fills_up("ext4");
}

#[test]
fn a_full_tmpfs_is_told() {
    fills_up("tmpfs");
}

#[test]
fn holes_agree_on_ext4() {
    holes_agree_on("ext4");
}

#[test]
fn holes_agree_on_xfs() {
    holes_agree_on("xfs");
}

#[test]
fn holes_agree_on_btrfs() {
    holes_agree_on("btrfs");
}

#[test]
fn holes_agree_on_tmpfs() {
    holes_agree_on("tmpfs");
}
