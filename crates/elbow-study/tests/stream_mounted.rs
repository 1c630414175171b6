//! The space that streams take on the file systems that people have, as these count it: NAS EP with pairs that are freed as they
//! are read takes the space of its pairs and no more.
//!
//! The story: streams went through the page cache. xfs allocated ahead of each growing file and took 2.37 times the pairs, and
//! btrfs 1.88 times, because what was freed could not be used before it had committed.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "looks at the storage itself"
)]

#[allow(dead_code)] // what other tests need of it
#[path = "../../elbow-file/tests/disk/mod.rs"]
mod disk;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use disk::Disk;
use elbow_extmem::stream::{MemoryBudget, Scratch};
use elbow_file::{RealStorage, Storage};
use elbow_study::ep;

const PAIRS: u64 = 1 << 23;
const BYTES: u64 = PAIRS * size_of::<ep::Pair>() as u64;
/// What is under way, and what the file systems note beside it.
const BESIDE_BYTES: u64 = 8 << 20;
/// On btrfs so much is freed between two syncs.
const WINDOW_BYTES: u64 = 16 << 20;

/// What is taken on a disk, with what is free but cannot be used yet.
fn taken(disk: &Disk, allocation: Option<&Path>) -> u64 {
    let Some(allocation) = allocation else {
        let space = RealStorage
            .space(&RealStorage::open_root(&disk.root()).unwrap())
            .unwrap();
        return (space.blocks - space.blocks_free) * space.fragment_bytes;
    };
    let read = |name: &str| fs::read_to_string(allocation.join(name)).unwrap();
    let parts = ["bytes_used", "bytes_reserved", "bytes_pinned"];
    parts.iter().map(|name| read(name).trim().parse::<u64>().unwrap()).sum()
}

/// Where btrfs says what its data takes; statvfs(3) there knows only what was committed.
fn allocation_of(disk: &Disk) -> Option<PathBuf> {
    let device = disk.device();
    let device = Path::new(&device).file_name()?;
    let systems = fs::read_dir("/sys/fs/btrfs").ok()?;
    let mut places = systems.filter_map(|entry| Some(entry.ok()?.path()));
    let place = places.find(|place| place.join("devices").join(device).exists())?;
    Some(place.join("allocation/data"))
}

/// The most that is taken while EP runs, beside what was taken before.
fn peak(disk: &Disk) -> u64 {
    let allocation = allocation_of(disk);
    assert_eq!(allocation.is_some(), disk.kind == "btrfs", "{}", disk.kind);
    let dir = RealStorage::open_root(&disk.root()).unwrap();
    let scratch = Scratch::new(Arc::new(RealStorage), dir, disk.root(), MemoryBudget::new(16 << 20));
    let before = taken(disk, allocation.as_deref());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(Ordering::Relaxed) {
                most = most.max(taken(disk, allocation.as_deref()));
                std::thread::sleep(Duration::from_millis(2));
            }
            most
        });
        let sums = ep::run(&scratch, PAIRS, true);
        is_over.store(true, Ordering::Relaxed);
        assert!(sums.unwrap().accepted > PAIRS / 4 * 3);
        watch.join().unwrap() - before
    })
}

fn takes_the_space_of_its_pairs(kind: &'static str, late_bytes: u64) {
    let Some(disk) = Disk::with(kind, 512 << 20, &[]) else {
        return;
    };
    let peak = peak(&disk);
    assert!(peak > BYTES / 10 * 9, "{kind}: nobody watched: {peak}");
    let most = BYTES + BESIDE_BYTES + late_bytes;
    assert!(
        peak <= most,
        "{kind}: {peak} bytes taken, {:.2} times the pairs",
        peak as f64 / BYTES as f64
    );
}

#[test]
fn freed_streams_take_the_space_of_their_records_on_ext4() {
    takes_the_space_of_its_pairs("ext4", 0);
}

#[test]
fn freed_streams_take_the_space_of_their_records_on_xfs() {
    takes_the_space_of_its_pairs("xfs", 0);
}

#[test]
fn freed_streams_take_the_space_of_their_records_on_btrfs() {
    takes_the_space_of_its_pairs("btrfs", 2 * WINDOW_BYTES);
}

#[test]
fn freed_streams_take_the_space_of_their_records_on_tmpfs() {
    takes_the_space_of_its_pairs("tmpfs", 0);
}
