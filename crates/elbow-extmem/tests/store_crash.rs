//! The block store after a crash at every write: what was synced is there, what was not is old, new or torn.
//!
//! A random program runs once over a storage that remembers what is durable. Then, for every moment of its run, all
//! that a crash could have left is opened and compared with what the program knew.
#![allow(clippy::unwrap_used)]

mod store_test_dir;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use elbow_extmem::store::{BlockId, BlockStore, FreeMap, Options, StoreError};
use elbow_file::double::{Image, Volatile};
use elbow_file::{RealStorage, Storage};
use elbow_testkit::cases::for_each_seed;
use rand::Rng;
use rand::rngs::StdRng;
use store_test_dir::{KINDS, TestDir, content, name};

/// Steps of a program. Every fifth is a sync, so that mostly all subsets can be tried.
const STEPS: usize = 30;
/// The program has so few blocks that they are used again and again.
const BLOCKS: u64 = 8;

/// What happened to one block, and when.
#[derive(Clone, Copy, Debug)]
enum BlockEvent {
    Write(u64),
    Free,
}

/// What a program did: moments are those of the storage.
#[derive(Default)]
struct History {
    /// The moment before each touch.
    block_events: Vec<(usize, u64, BlockEvent)>,
    /// The moments in which a sync began and had ended.
    syncs: Vec<Range<usize>>,
}

fn run(store: &BlockStore, storage: &Volatile, rng: &mut StdRng) -> History {
    let mut history = History::default();
    let mut stamp = 0;
    for _ in 0..STEPS {
        let begin = storage.now();
        let allocated: Vec<u64> = store.allocated().iter().flatten().collect();
        match rng.random_range(0..10) {
            0..2 => {
                store.sync().unwrap();
                history.syncs.push(begin..storage.now());
            }
            2..4 if store.len() < BLOCKS => drop(store.alloc().unwrap()),
            _ if allocated.is_empty() => drop(store.alloc().unwrap()),
            4 => {
                let some: Vec<_> = allocated
                    .iter()
                    .filter(|_| rng.random())
                    .map(|&block| BlockId(block))
                    .collect();
                store.free_many(&some).unwrap();
                let frees = some.iter().map(|block| (begin, block.0, BlockEvent::Free));
                history.block_events.extend(frees);
            }
            _ => {
                let block = allocated[rng.random_range(0..allocated.len())];
                stamp += 1;
                store
                    .write(BlockId(block), &content(stamp, store.block_bytes()))
                    .unwrap();
                history.block_events.push((begin, block, BlockEvent::Write(stamp)));
            }
        }
    }
    history
}

/// What a crash may leave of a block.
struct Allowed {
    must_be_found: bool,
    may_be_found: bool,
    /// One of these, whole, unless `torn`.
    stamps: BTreeSet<u64>,
    torn: bool,
}

impl History {
    /// What a crash at a moment may leave of a block.
    fn allows(&self, block: u64, moment: usize, kind: Options) -> Allowed {
        let synced = self.syncs.iter().rev().find(|sync| sync.end <= moment);
        let synced = synced.map_or(0, |sync| sync.start + 1);
        let block_events = self
            .block_events
            .iter()
            .filter(|block_event| block_event.1 == block && block_event.0 < moment);
        let (before, since): (Vec<&(usize, u64, BlockEvent)>, Vec<_>) =
            block_events.partition(|block_event| block_event.0 < synced);
        let old = before.last().and_then(|block_event| match block_event.2 {
            BlockEvent::Write(stamp) => Some(stamp),
            BlockEvent::Free => None,
        });
        let written: BTreeSet<u64> = since
            .iter()
            .filter_map(|block_event| match block_event.2 {
                BlockEvent::Write(stamp) => Some(stamp),
                BlockEvent::Free => None,
            })
            .collect();
        let was_freed = since
            .iter()
            .any(|block_event| matches!(block_event.2, BlockEvent::Free));
        // A bitmap says that a block is there when it is whole, unless it was there before.
        let is_whole_if_new = kind.free_map == FreeMap::Bitmap && old.is_none() && !was_freed;
        let mut stamps: BTreeSet<u64> = old.into_iter().chain(written.iter().copied()).collect();
        if was_freed || (old.is_none() && !is_whole_if_new) {
            stamps.insert(0);
        }
        Allowed {
            must_be_found: old.is_some() && !was_freed,
            may_be_found: !stamps.is_empty() && (old.is_some() || !written.is_empty()),
            torn: was_freed || (!written.is_empty() && !is_whole_if_new),
            stamps,
        }
    }
}

/// Compares what a crash left with what it may have left.
fn check(store: &BlockStore, history: &History, moment: usize, kind: Options) {
    let found = store.allocated();
    let mut data = vec![0; store.block_bytes()];
    for block in 0..BLOCKS {
        let allowed = history.allows(block, moment, kind);
        if !found.contains(block) {
            assert!(!allowed.must_be_found, "block {block} is lost");
            continue;
        }
        assert!(allowed.may_be_found, "block {block} was not there");
        match store.read(BlockId(block), &mut data) {
            Ok(()) => check_content(&data, &allowed, kind, block),
            Err(StoreError::Checksum { .. }) => assert!(allowed.torn, "block {block} is torn"),
            Err(error) => panic!("{error}"),
        }
    }
    assert!(
        found.span().is_none_or(|span| span.end <= BLOCKS),
        "blocks of nobody: {found:?}"
    );
}

fn check_content(data: &[u8], allowed: &Allowed, kind: Options, block: u64) {
    let stamps: BTreeSet<u64> = data
        .chunks(512)
        .map(|sector| {
            let stamp = u64::from_le_bytes(sector[..8].try_into().unwrap());
            assert_eq!(sector, content(stamp, sector.len()), "torn inside a sector");
            stamp
        })
        .collect();
    assert!(
        stamps.is_subset(&allowed.stamps),
        "block {block} holds {stamps:?}, only {:?} were written",
        allowed.stamps
    );
    let is_whole = stamps.len() == 1;
    assert!(is_whole || (allowed.torn && !kind.checksums), "block {block} is torn");
}

/// What was recovered can be worked with: nothing is handed out twice, and all is there when it is opened again.
fn use_it(store: BlockStore, test_dir: &TestDir) {
    let before = store.allocated();
    let blocks = store.alloc_many(3).unwrap();
    assert!(blocks.iter().all(|block| !before.contains(block.0)));
    store
        .write_many(&blocks, &content(99, 3 * store.block_bytes()))
        .unwrap();
    let after = store.allocated();
    store.close().unwrap();
    assert_eq!(test_dir.open().unwrap().allocated(), after);
}

fn open(image: &Image, test_dir: &TestDir) -> BlockStore {
    if let Some(old) = RealStorage.list(&test_dir.root).unwrap().first() {
        RealStorage.unlink(&test_dir.root, &old.name).unwrap();
    }
    image.write_to(&RealStorage, &test_dir.root).unwrap();
    test_dir.open().unwrap_or_else(|error| panic!("{image}: {error}"))
}

#[test]
fn what_was_synced_survives_a_crash_at_any_write() {
    for kind in KINDS {
        for_each_seed(1, |rng| {
            let (test_dir, crashed) = (TestDir::in_memory(), TestDir::in_memory());
            let storage = Arc::new(Volatile::new(Arc::new(RealStorage), &test_dir.root).unwrap());
            let store = BlockStore::create(storage.clone(), &test_dir.root, name(), kind).unwrap();
            let created = storage.now();
            let history = run(&store, &storage, rng);
            let (mut images, mut lossy) = (0_u64, 0);
            for moment in created..=storage.now() {
                let crash = storage.crash_at(moment);
                lossy += u32::from(crash.pending() > 0);
                for image in crash.images(rng.random()) {
                    let store = open(&image, &crashed);
                    let told = PrintOnPanic(&image, moment);
                    check(&store, &history, moment, kind);
                    images += 1;
                    if images.is_multiple_of(16) {
                        use_it(store, &crashed);
                    }
                    drop(told);
                }
            }
            assert!(lossy > 0, "no crash could lose anything");
        });
    }
}

/// A store that is being made is there with its header or not at all.
#[test]
fn a_crash_while_a_store_is_made_leaves_none_or_an_empty_one() {
    for kind in KINDS {
        let (test_dir, crashed) = (TestDir::in_memory(), TestDir::in_memory());
        let storage = Arc::new(Volatile::new(Arc::new(RealStorage), &test_dir.root).unwrap());
        let store = BlockStore::create(storage.clone(), &test_dir.root, name(), kind).unwrap();
        assert!(store.is_empty());
        for moment in 0..=storage.now() {
            for image in storage.crash_at(moment).images(1) {
                let _ = RealStorage.unlink(&crashed.root, name());
                image.write_to(&RealStorage, &crashed.root).unwrap();
                let is_made = moment == storage.now();
                match crashed.open() {
                    Ok(_) => (),
                    Err(StoreError::Foreign { .. } | StoreError::Io { .. }) if !is_made => (),
                    // Only the bytes that the probe left.
                    Err(StoreError::HolesLost { .. }) if !is_made => (),
                    Err(error) => panic!("{image} at {moment}: {error}"),
                }
            }
        }
    }
}

struct PrintOnPanic<'a>(&'a Image, usize);

impl Drop for PrintOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("at moment {}: {}", self.1, self.0);
        }
    }
}
