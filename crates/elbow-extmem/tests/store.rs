//! The block store against a model, at its edges and with many threads.
#![allow(clippy::unwrap_used)]

mod store_test_dir;

use std::collections::BTreeMap;
use std::io::{IoSlice, Read as _, Write as _};
use std::sync::Arc;
use std::thread;

use elbow_extmem::store::{BlockId, BlockStore, FreeMap, Options, StoreError};
use elbow_file::double::{Faulty, Interposed, Operation, Plan};
use elbow_file::{Errno, RealStorage, Storage};
use elbow_testkit::cases::for_each_seed;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IteratorRandom;
use store_test_dir::{KINDS, TestDir, UNIT, content, name, numbers, options};

/// What a store should be: for each block nothing, if it is free, or the stamp that was written to it, if any.
#[derive(Default)]
struct Model(Vec<Option<Option<u64>>>);

impl Model {
    fn lowest_free(&self) -> usize {
        let free = self.0.iter().position(Option::is_none);
        free.unwrap_or(self.0.len())
    }

    fn alloc(&mut self) -> BlockId {
        let block = self.lowest_free();
        self.0.resize(self.0.len().max(block + 1), None);
        self.0[block] = Some(None);
        BlockId(block as u64)
    }

    fn allocated(&self) -> Vec<BlockId> {
        let allocated = self.0.iter().zip(0..).filter(|(block, _)| block.is_some());
        allocated.map(|(_, number)| BlockId(number)).collect()
    }

    fn stamp(&self, block: BlockId) -> u64 {
        self.0[block.0 as usize].unwrap().unwrap_or(0)
    }

    fn set(&mut self, block: BlockId, to: Option<Option<u64>>) {
        self.0[block.0 as usize] = to;
    }

    fn forget_unwritten(&mut self) {
        self.0
            .iter_mut()
            .for_each(|block| *block = block.filter(Option::is_some));
    }
}

/// Some of the allocated blocks, in any order.
fn some(model: &Model, rng: &mut StdRng) -> Vec<BlockId> {
    let count = rng.random_range(0..9);
    model.allocated().into_iter().choose_multiple(rng, count)
}

fn step(store: &BlockStore, model: &mut Model, rng: &mut StdRng) {
    let bytes = store.block_bytes();
    match rng.random_range(0..8) {
        0 => assert_eq!(store.alloc().unwrap(), model.alloc()),
        1 => {
            let count = rng.random_range(0..12);
            let expected: Vec<_> = (0..count).map(|_| model.alloc()).collect();
            assert_eq!(store.alloc_many(count).unwrap(), expected);
        }
        2 => {
            let blocks = some(model, rng);
            store.free_many(&blocks).unwrap();
            blocks.iter().for_each(|&block| model.set(block, None));
        }
        3..6 => {
            let blocks = some(model, rng);
            let stamps: Vec<u64> = blocks.iter().map(|_| rng.random_range(0..100)).collect();
            let data: Vec<u8> = stamps.iter().flat_map(|&stamp| content(stamp, bytes)).collect();
            store.write_many(&blocks, &data).unwrap();
            let writes = blocks.iter().zip(stamps);
            writes.for_each(|(&block, stamp)| model.set(block, Some(Some(stamp))));
        }
        6 => {
            let blocks = some(model, rng);
            let mut data = vec![1; blocks.len() * bytes];
            store.read_many(&blocks, &mut data).unwrap();
            let expected = blocks.iter().flat_map(|&block| content(model.stamp(block), bytes));
            assert!(data.into_iter().eq(expected));
        }
        _ => store.sync().unwrap(),
    }
    assert_eq!(store.len(), model.allocated().len() as u64);
}

fn check(store: &BlockStore, model: &Model) {
    let allocated: Vec<_> = store.allocated().iter().flatten().map(BlockId).collect();
    assert_eq!(allocated, model.allocated());
    let mut data = vec![1; store.block_bytes()];
    for block in allocated {
        store.read(block, &mut data).unwrap();
        assert_eq!(data, content(model.stamp(block), data.len()), "block {block}");
    }
}

#[test]
fn it_is_the_store_of_the_model() {
    for kind in KINDS {
        for_each_seed(6, |rng| {
            let test_dir = TestDir::in_memory();
            let (mut store, mut model) = (test_dir.create(kind), Model::default());
            for _ in 0..6 {
                for _ in 0..60 {
                    step(&store, &mut model, rng);
                }
                check(&store, &model);
                store.close().unwrap();
                store = test_dir.open().unwrap();
                model.forget_unwritten();
                check(&store, &model);
            }
        });
    }
}

#[test]
fn a_killed_process_loses_no_written_block_of_a_store_with_holes() {
    let test_dir = TestDir::new();
    let store = test_dir.create(options(FreeMap::Holes, false));
    let blocks = store.alloc_many(5).unwrap();
    store.write(blocks[0], &content(1, UNIT as usize)).unwrap();
    store.write(blocks[3], &content(0, UNIT as usize)).unwrap();
    drop(store); // no sync, no close
    let found = test_dir.open().unwrap().allocated();
    assert_eq!(found, numbers([0, 3]), "a block of zeros was written too");
}

#[test]
fn the_bitmap_grows_by_pages_and_shrinks_again() {
    const PAGE: usize = 32448;
    let test_dir = TestDir::in_memory();
    let kind = Options {
        block_bytes: Some(512),
        ..options(FreeMap::Bitmap, false)
    };
    let store = test_dir.create(kind);
    let blocks = store.alloc_many(2 * PAGE + 10).unwrap();
    let chosen = [0, 1, PAGE - 1, PAGE, 2 * PAGE - 1, 2 * PAGE, 2 * PAGE + 9].map(|index| blocks[index]);
    let data: Vec<u8> = chosen.iter().flat_map(|block| content(block.0 + 1, 512)).collect();
    store.write_many(&chosen, &data).unwrap();
    store.close().unwrap();

    let store = test_dir.open().unwrap();
    assert_eq!(store.len(), 7);
    let mut read = vec![0; data.len()];
    store.read_many(&chosen, &mut read).unwrap();
    assert_eq!(read, data);
    store.free_many(&chosen[2..]).unwrap();
    store.sync().unwrap();
    assert_eq!(test_dir.bytes_long(), 512 + 2 * 4096 + 2 * 512);
    // Pages that were cut off begin anew.
    let blocks = store.alloc_many(2 * PAGE).unwrap();
    store.write(blocks[2 * PAGE - 1], &content(9, 512)).unwrap();
    store.close().unwrap();
    let expected = numbers([0, 1, 2 * PAGE as u64 + 1]);
    assert_eq!(test_dir.open().unwrap().allocated(), expected);
}

#[test]
fn the_file_shrinks_with_its_blocks() {
    for kind in KINDS {
        let test_dir = TestDir::new();
        let store = test_dir.create(kind);
        let blocks = store.alloc_many(100).unwrap();
        store.write_many(&blocks, &vec![1; 100 * store.block_bytes()]).unwrap();
        store.sync().unwrap();
        let full = test_dir.bytes_taken();
        assert!(full >= 100 * UNIT);
        store.free_many(&blocks[10..50]).unwrap();
        store.sync().unwrap();
        assert!(test_dir.bytes_taken() <= full - 40 * UNIT, "the middle is punched");
        store.free_many(&blocks[50..]).unwrap();
        store.free_many(&blocks[..10]).unwrap();
        store.close().unwrap();
        assert_eq!(test_dir.bytes_long(), 512);
        assert!(test_dir.bytes_taken() <= UNIT);
    }
}

#[test]
fn freed_blocks_are_given_back_without_a_sync_when_there_are_many() {
    let test_dir = TestDir::new();
    let store = test_dir.create(options(FreeMap::Holes, false));
    let blocks = store.alloc_many(3000).unwrap();
    store.write_many(&blocks, &vec![1; 3000 * UNIT as usize]).unwrap();
    store.sync().unwrap();
    for &block in &blocks[..2999] {
        store.free(block).unwrap();
    }
    // The header and the last block, and less than 2048 that wait.
    assert!(test_dir.data().total_bytes() < 2050 * UNIT, "{:?}", test_dir.data());
}

#[test]
fn a_block_allocated_again_holds_nothing_of_its_past() {
    for kind in KINDS {
        let test_dir = TestDir::new();
        let store = test_dir.create(kind);
        let blocks = store.alloc_many(2).unwrap();
        let mut data = vec![5; 2 * store.block_bytes()];
        store.write_many(&blocks, &data).unwrap();
        store.free(blocks[0]).unwrap();
        assert_eq!(store.alloc().unwrap(), blocks[0]);
        store.read(blocks[0], &mut data[..store.block_bytes()]).unwrap();
        assert!(data[..store.block_bytes()].iter().all(|&byte| byte == 0));
        store.close().unwrap();
        assert_eq!(test_dir.open().unwrap().allocated(), numbers([1]));
    }
}

#[test]
fn mistakes_are_told_and_change_nothing() {
    let test_dir = TestDir::new();
    let store = test_dir.create(options(FreeMap::Probe, false));
    let blocks = store.alloc_many(3).unwrap();
    store.free(blocks[1]).unwrap();
    let mut data = vec![0; store.block_bytes()];
    let told = |result: Result<(), StoreError>| result.unwrap_err().to_string();

    assert_eq!(told(store.free(blocks[1])), "block 1 of blocks is freed twice");
    assert_eq!(
        told(store.free_many(&[blocks[0], blocks[0]])),
        "block 0 of blocks is freed twice"
    );
    assert_eq!(
        told(store.free(BlockId(3))),
        "blocks has no block 3: its allocated blocks end before 3"
    );
    assert_eq!(
        told(store.read(blocks[1], &mut data)),
        "block 1 of blocks is free: allocate it before it is read or written"
    );
    assert!(matches!(
        store.write(BlockId(u64::MAX), &data),
        Err(StoreError::OutOfRange { .. })
    ));
    assert_eq!(
        told(store.write(blocks[0], &data[1..])),
        "1 blocks of blocks are 4096 bytes, the buffer has 4095"
    );
    assert_eq!(store.len(), 2);
    store.free_many(&[blocks[0], blocks[2]]).unwrap();
}

#[test]
fn files_that_are_no_store_are_refused_and_left_alone() {
    for (bytes, expected) in [
        (&b""[..], "blocks is not a block store: truncated at byte 0"),
        (
            b"#!/bin/sh\nexec true\n# and more text",
            "blocks is not a block store: bad magic",
        ),
        (
            b"ELBOWBLK",
            "the header of block store blocks cannot be used: truncated",
        ),
        (
            b"ELBOWBLK\x09\x00.....................................",
            "the header of block store blocks cannot be used: unknown version 9",
        ),
    ] {
        let test_dir = TestDir::new();
        let file = RealStorage.create(&test_dir.root, name(), 0o600).unwrap();
        RealStorage.write(&file, &[IoSlice::new(bytes)], 0).unwrap();
        let error = test_dir.open().unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
        assert_eq!(test_dir.bytes_long(), bytes.len() as u64);
    }
    let test_dir = TestDir::new();
    assert_eq!(test_dir.open().unwrap_err().errno(), Errno::NOENT);
}

#[test]
fn a_damaged_header_is_found() {
    let test_dir = TestDir::new();
    drop(test_dir.create(Options::default()));
    RealStorage
        .write(&test_dir.file(), &[IoSlice::new(b"\x01")], 20)
        .unwrap();
    let error = test_dir.open().unwrap_err();
    assert!(matches!(error, StoreError::Header { .. }), "{error}");
}

#[test]
fn an_old_file_is_not_overwritten() {
    let test_dir = TestDir::new();
    let store = test_dir.create(Options::default());
    let again = BlockStore::create(Arc::new(RealStorage), &test_dir.root, name(), Options::default());
    assert_eq!(again.unwrap_err().errno(), Errno::EXIST);
    store.close().unwrap();
    test_dir.open().unwrap();
}

#[test]
fn a_store_is_open_once() {
    let test_dir = TestDir::new();
    let store = test_dir.create(Options::default());
    let error = test_dir.open().unwrap_err();
    assert_eq!(error.to_string(), "blocks is open already, in this process or another");
    assert_eq!(error.errno(), Errno::BUSY);
    drop(store);
    test_dir.open().unwrap();
}

/// Lets a child go on when it is dropped, also by a panic. Closing the pipe would not do: the child has a copy of this end too.
struct GoOn(std::io::PipeWriter);

impl Drop for GoOn {
    fn drop(&mut self) {
        let _ = self.0.write_all(b"!"); // Where nobody reads it, nobody waits for it.
    }
}

/// A store could not be opened right after it was closed while another thread started a program: between fork and exec
/// the child has all descriptors, and with them the lock. It is given up explicitly now.
#[test]
#[allow(unsafe_code)]
fn a_program_being_started_does_not_keep_a_store_open() {
    use std::os::unix::process::CommandExt;

    let test_dir = TestDir::new();
    let store = test_dir.create(Options::default());
    let (told, tell) = std::io::pipe().unwrap();
    let (go, may_go) = std::io::pipe().unwrap();
    let may_go = GoOn(may_go);
    let starting = thread::spawn(move || {
        let mut program = std::process::Command::new("true");
        // SAFETY: write and read may be called between fork and exec.
        unsafe {
            program.pre_exec(move || {
                (&tell).write_all(b"!")?;
                (&go).read_exact(&mut [0])
            });
        }
        program.status().unwrap()
    });
    (&told).read_exact(&mut [0]).unwrap();
    store.close().unwrap();
    drop(test_dir.open().unwrap());
    test_dir.open().unwrap();
    assert!(!starting.is_finished(), "the child was still being started");
    drop(may_go);
    assert!(starting.join().unwrap().success());
}

#[test]
fn sizes_that_cannot_be_are_refused_before_there_is_a_file() {
    let test_dir = TestDir::new();
    for block_bytes in [0, 100, 513, 1 << 31] {
        let kind = Options {
            block_bytes: Some(block_bytes),
            ..Options::default()
        };
        let made = BlockStore::create(Arc::new(RealStorage), &test_dir.root, name(), kind);
        assert!(matches!(made, Err(StoreError::BlockBytes { .. })), "{block_bytes}");
    }
    assert!(RealStorage.list(&test_dir.root).unwrap().is_empty());
}

#[test]
fn blocks_smaller_than_holes_need_the_bitmap() {
    let test_dir = TestDir::new();
    let small = |free_map| Options {
        block_bytes: Some(512),
        free_map,
        checksums: false,
    };
    let error = BlockStore::create(Arc::new(RealStorage), &test_dir.root, name(), small(FreeMap::Holes));
    assert!(matches!(error, Err(StoreError::NoHoles { block_bytes: 512, .. })));
    assert!(RealStorage.list(&test_dir.root).unwrap().is_empty());
    let store = test_dir.create(small(FreeMap::Probe));
    assert_eq!(store.free_map(), FreeMap::Bitmap);
}

#[test]
fn storage_that_cannot_punch_gets_the_bitmap() {
    let test_dir = TestDir::new();
    let refused = |operation| Plan::fail(Errno::OPNOTSUPP).on(operation).times(u64::MAX);
    let plans = [Operation::Punch, Operation::NextData].map(refused);
    let storage = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::new(plans)));
    let store = BlockStore::create(storage.clone(), &test_dir.root, name(), Options::default()).unwrap();
    assert_eq!(store.free_map(), FreeMap::Bitmap);
    let blocks = store.alloc_many(4).unwrap();
    store.write_many(&blocks, &vec![3; 4 * store.block_bytes()]).unwrap();
    store.free(blocks[1]).unwrap();
    store.close().unwrap();
    assert_eq!(storage.hook().fired(), 2, "the probe, and one free");
    let store = BlockStore::open(storage.clone(), &test_dir.root, name()).unwrap();
    assert_eq!(store.allocated(), numbers([0, 2, 3]));
    assert_eq!(storage.hook().fired(), 3, "nor can it be asked where data is");
}

#[test]
fn a_copy_without_holes_is_found_out() {
    let test_dir = TestDir::new();
    let store = test_dir.create(options(FreeMap::Holes, false));
    let block = store.alloc_many(9).unwrap()[8];
    store.write(block, &vec![1; UNIT as usize]).unwrap();
    store.close().unwrap();
    let mut bytes = vec![0; test_dir.bytes_long() as usize];
    RealStorage.read(&test_dir.file(), &mut bytes, 0).unwrap();
    RealStorage.write(&test_dir.file(), &[IoSlice::new(&bytes)], 0).unwrap();
    let error = test_dir.open().unwrap_err();
    assert!(matches!(error, StoreError::HolesLost { .. }), "{error}");
}

#[test]
fn a_checksum_finds_damage_and_misplacement() {
    let test_dir = TestDir::new();
    let store = test_dir.create(options(FreeMap::Holes, true));
    assert_eq!(store.block_bytes() as u64, UNIT - 8);
    let blocks = store.alloc_many(3).unwrap();
    let mut data = vec![6; 3 * store.block_bytes()];
    store.write_many(&blocks, &data).unwrap();
    let file = test_dir.file();
    let offset = |block: u64| (2 + block) * UNIT;
    RealStorage
        .write(&file, &[IoSlice::new(b"x")], offset(1) + 100)
        .unwrap();
    let error = store.read_many(&blocks, &mut data).unwrap_err();
    assert!(
        matches!(error, StoreError::Checksum { block: BlockId(1), .. }),
        "{error}"
    );
    assert!(error.to_string().starts_with("block 1 of blocks is damaged"), "{error}");
    // A whole block in another's place is damage too.
    let mut other = vec![0; UNIT as usize];
    RealStorage.read(&file, &mut other, offset(0)).unwrap();
    RealStorage.write(&file, &[IoSlice::new(&other)], offset(2)).unwrap();
    let error = store.read(blocks[2], &mut data[..UNIT as usize - 8]).unwrap_err();
    assert!(matches!(error, StoreError::Checksum { block: BlockId(2), .. }));
}

#[test]
fn a_page_of_the_bitmap_with_both_copies_damaged_is_found() {
    let test_dir = TestDir::new();
    let store = test_dir.create(options(FreeMap::Bitmap, false));
    let block = store.alloc().unwrap();
    store.write(block, &vec![1; UNIT as usize]).unwrap();
    store.sync().unwrap();
    store.free(block).unwrap();
    store.alloc_many(2).unwrap();
    store.write(BlockId(1), &vec![1; UNIT as usize]).unwrap();
    store.close().unwrap();
    let file = test_dir.file();
    RealStorage.write(&file, &[IoSlice::new(b"x")], UNIT + 100).unwrap();
    assert_eq!(test_dir.open().unwrap().len(), 1, "one copy is enough");
    RealStorage
        .write(&file, &[IoSlice::new(b"x")], UNIT + 4096 + 100)
        .unwrap();
    let error = test_dir.open().unwrap_err();
    assert!(matches!(error, StoreError::Map { page: 0, .. }), "{error}");
}

#[test]
fn a_full_disk_is_told_and_the_store_goes_on() {
    for kind in KINDS {
        let test_dir = TestDir::new();
        let storage = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::default()));
        let store = BlockStore::create(storage.clone(), &test_dir.root, name(), kind).unwrap();
        let blocks = store.alloc_many(2).unwrap();
        let data = vec![1; 2 * store.block_bytes()];
        storage.hook().arm(Plan::fail(Errno::NOSPC).on(Operation::Write));
        let error = store.write_many(&blocks, &data).unwrap_err();
        assert!(matches!(error, StoreError::NoSpace { .. }), "{error}");
        let mut read = data.clone();
        store.read_many(&blocks, &mut read).unwrap();
        assert!(read.iter().all(|&byte| byte == 0), "never written");
        store.write_many(&blocks, &data).unwrap();
        store.sync().unwrap();

        // A punch may need room; it is tried again after a sync, and at the next sync of the store.
        storage
            .hook()
            .arm(Plan::fail(Errno::NOSPC).on(Operation::Punch).times(2));
        store.free(blocks[0]).unwrap();
        assert!(matches!(store.sync(), Err(StoreError::NoSpace { .. })));
        store.sync().unwrap();
        assert_eq!(storage.hook().fired(), 3);
        store.close().unwrap();
        assert_eq!(test_dir.open().unwrap().allocated(), numbers([1]));
    }
}

#[test]
fn a_failed_sync_is_made_good_by_the_next() {
    let test_dir = TestDir::new();
    let storage = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::default()));
    let kind = options(FreeMap::Bitmap, false);
    let mut store = BlockStore::create(storage.clone(), &test_dir.root, name(), kind).unwrap();
    for stamp in 1..5 {
        let block = store.alloc().unwrap();
        store.write(block, &content(stamp, UNIT as usize)).unwrap();
        storage
            .hook()
            .arm(Plan::fail(Errno::IO).on(Operation::Sync).nth(stamp % 2 + 1));
        assert_eq!(store.sync().unwrap_err().errno(), Errno::IO);
        store.sync().unwrap();
        drop(store);
        store = BlockStore::open(storage.clone(), &test_dir.root, name()).unwrap();
        assert_eq!(store.len(), stamp);
    }
}

#[test]
fn threads_never_share_a_block() {
    for kind in KINDS {
        let test_dir = TestDir::in_memory();
        let store = test_dir.create(kind);
        let kept: Vec<BTreeMap<BlockId, u64>> = thread::scope(|scope| {
            let store = &store;
            let threads: Vec<_> = (1..=4)
                .map(|thread| scope.spawn(move || hammer(store, thread)))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        store.close().unwrap();
        let store = test_dir.open().unwrap();
        assert_eq!(store.len() as usize, kept.iter().map(BTreeMap::len).sum::<usize>());
        let mut data = vec![0; store.block_bytes()];
        for (&block, &stamp) in kept.iter().flatten() {
            store.read(block, &mut data).unwrap();
            assert_eq!(data, content(stamp, data.len()), "block {block}");
        }
    }
}

/// Allocates, writes, reads and frees blocks; gives those that it keeps.
fn hammer(store: &BlockStore, thread: u64) -> BTreeMap<BlockId, u64> {
    let mut rng = <StdRng as rand::SeedableRng>::seed_from_u64(thread);
    let mut mine = BTreeMap::new();
    let mut data = vec![0; store.block_bytes()];
    for round in 0..1500 {
        let stamp = thread << 32 | round;
        let block = store.alloc().unwrap();
        store.write(block, &content(stamp, data.len())).unwrap();
        assert_eq!(mine.insert(block, stamp), None);
        let (&block, &stamp) = mine.iter().choose(&mut rng).unwrap();
        store.read(block, &mut data).unwrap();
        assert_eq!(data, content(stamp, data.len()), "block {block} of thread {thread}");
        if mine.len() > 20 {
            store.free(block).unwrap();
            mine.remove(&block);
        }
        if round % 100 == 0 {
            store.sync().unwrap();
        }
    }
    mine
}

#[test]
fn the_default_block_is_the_file_systems() {
    let test_dir = TestDir::new();
    let store = test_dir.create(Options::default());
    let fragment = RealStorage.space(&test_dir.root).unwrap().fragment_bytes;
    assert_eq!(store.block_bytes() as u64, fragment.max(512));
    assert!(store.is_empty());
}

/// How fast blocks are allocated and freed; a number to look at: `cargo test --release -- --ignored --nocapture pairs`.
#[test]
#[ignore = "a measurement"]
fn pairs_per_second() {
    const PAIRS: u32 = 5_000_000;
    let test_dir = TestDir::new();
    let store = test_dir.create(Options::default());
    let held = store.alloc_many(1_000_000).unwrap();
    let begin = std::time::Instant::now();
    for _ in 0..PAIRS {
        let block = store.alloc().unwrap();
        store.free(block).unwrap();
    }
    let ns = begin.elapsed().as_nanos() / u128::from(PAIRS);
    println!(
        "alloc + free beside {} blocks: {ns} ns, {} pairs/s",
        held.len(),
        1_000_000_000 / ns.max(1)
    );
    let data = vec![1; store.block_bytes()];
    let begin = std::time::Instant::now();
    for _ in 0..PAIRS / 10 {
        let block = store.alloc().unwrap();
        store.write(block, &data).unwrap();
        store.free(block).unwrap();
    }
    let ns = begin.elapsed().as_nanos() / u128::from(PAIRS / 10);
    println!("alloc + write + free: {ns} ns, {} /s", 1_000_000_000 / ns.max(1));
}
