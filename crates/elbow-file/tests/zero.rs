//! `zero` on real file systems, and its ways out through doubles that refuse to punch.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests look at the storage themselves

mod disk;

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{IoSlice, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use disk::{Disk, PUNCHING, ROOM_BYTES};
use elbow_file::double::{Call, Counting, Faulty, Hook, Interposed, Operation, Plan};
use elbow_file::{
    Errno, ExtentKind, Extents, Handle, RealStorage, Storage, ZeroSupport, zero, zero_at, zero_in, zero_ranges,
    zero_ranges_in,
};
use elbow_ranges::RangeSet;
use elbow_testkit::cases::{rounds, seed};

const MIB: u64 = 1 << 20;
/// Long ago, to see whether times are set.
const OLD: Duration = Duration::from_secs(1_000_000_000);

/// A new file with content, on the disk, with old times.
fn file_with(path: &Path, content: &[u8]) -> File {
    let mut file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)
        .unwrap();
    file.write_all(content).unwrap();
    file.sync_all().unwrap();
    age(&file);
    file
}

fn age(file: &File) {
    file.set_modified(SystemTime::UNIX_EPOCH + OLD).unwrap();
    sleep(Duration::from_millis(20)); // more than a tick, so that a new time is another
}

fn content(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

fn times(file: &File) -> (i64, i64, i64, i64) {
    let found = file.metadata().unwrap();
    (found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec())
}

/// The times are those of now.
fn assert_touched(file: &File, before: (i64, i64, i64, i64), what: &str) {
    let now = times(file);
    assert!(now.0 > before.0, "{what}: mtime is still {before:?}");
    assert!(
        (now.2, now.3) > (before.2, before.3),
        "{what}: ctime is still {before:?}"
    );
}

fn holes(file: &File) -> RangeSet {
    let extents = Extents::of(file).unwrap().map(Result::unwrap);
    extents
        .filter(|extent| extent.kind == ExtentKind::Hole)
        .map(|extent| extent.range)
        .collect()
}

fn scratch() -> (tempfile::TempDir, Handle) {
    let dir = tempfile::tempdir().unwrap();
    let root = RealStorage::open_root(dir.path()).unwrap();
    (dir, root)
}

/// A handle in a storage whose calls a hook sees, on a file with this content.
fn behind<H: Hook>(dir: &Path, hook: H, bytes: &[u8]) -> (Interposed<H>, Handle) {
    let root = RealStorage::open_root(dir).unwrap();
    let storage = Interposed::new(Arc::new(RealStorage), hook);
    let file = storage.create(&root, OsStr::new("f"), 0o644).unwrap();
    RealStorage.write(&file, &[IoSlice::new(bytes)], 0).unwrap();
    (storage, file)
}

#[test]
fn whole_blocks_are_freed_and_edges_are_written() {
    for disk in PUNCHING.into_iter().filter_map(Disk::new) {
        let path = disk.path("f");
        let file = file_with(&path, &vec![7; 4 << 20]);
        let (before, blocks) = (times(&file), file.metadata().unwrap().blocks());
        let zeroed = zero_at(&file, MIB - 5, 2 * MIB + 10).unwrap();
        file.sync_all().unwrap();

        let mut expected = vec![7; 4 << 20];
        expected[(MIB - 5) as usize..][..(2 * MIB + 10) as usize].fill(0);
        assert!(content(&path) == expected, "{}", disk.kind);
        assert_eq!(
            (zeroed.zeroed_bytes, zeroed.punched_bytes, zeroed.written_bytes),
            (2 * MIB + 10, 2 * MIB + 10, 0)
        );
        let freed = blocks - file.metadata().unwrap().blocks();
        assert_eq!(freed * 512, 2 * MIB, "{}: the blocks in between", disk.kind);
        assert_eq!(holes(&file), RangeSet::from_iter([MIB..3 * MIB, 0..0]), "{}", disk.kind);
        assert_touched(&file, before, disk.kind);
    }
}

#[test]
fn times_are_set_even_where_all_was_a_hole() {
    for disk in PUNCHING.into_iter().chain(["ramfs"]).filter_map(Disk::new) {
        let file = file_with(&disk.path("f"), b"");
        file.set_len(MIB).unwrap();
        age(&file);
        let before = times(&file);
        assert_eq!(zero_at(&file, 4096, 8192).unwrap().complete().unwrap(), 8192);
        assert_touched(&file, before, disk.kind);
        assert_eq!(file.metadata().unwrap().len(), MIB);
    }
}

#[test]
fn nothing_is_changed_by_zeroing_nothing() {
    let (dir, _) = scratch();
    let mut file = file_with(&dir.path().join("f"), b"abc");
    file.seek(SeekFrom::Start(2)).unwrap();
    let before = times(&file);
    assert_eq!(zero(&file, 0).unwrap(), 0);
    assert_eq!(zero_at(&file, 100, 0).unwrap().complete().unwrap(), 0);
    assert_eq!(zero_ranges(&file, &RangeSet::new()).unwrap().complete().unwrap(), 0);
    assert_eq!((times(&file), file.stream_position().unwrap()), (before, 2));
    assert_eq!(content(&dir.path().join("f")), b"abc");
}

#[test]
fn the_offset_advances_and_the_file_grows_as_with_write() {
    for disk in PUNCHING.into_iter().chain(["ramfs"]).filter_map(Disk::new) {
        let path = disk.path("f");
        let mut file = file_with(&path, &[7; 10_000]);
        file.seek(SeekFrom::Start(9_000)).unwrap();
        assert_eq!(zero(&file, 500).unwrap(), 500);
        let mut next = [0];
        file.read_exact(&mut next).unwrap();
        assert_eq!((next, file.stream_position().unwrap()), ([7], 9_501));
        assert_eq!(zero(&file, 5 * MIB).unwrap(), 5 * MIB);
        assert_eq!(file.stream_position().unwrap(), 9_501 + 5 * MIB);
        file.write_all(b"end").unwrap();

        let mut expected = vec![7; 10_000];
        expected[9_000..9_500].fill(0);
        expected.truncate(9_501);
        expected.resize((9_501 + 5 * MIB) as usize, 0);
        expected.extend(b"end");
        assert!(content(&path) == expected, "{}", disk.kind);
        if disk.kind != "ramfs" {
            file.sync_all().unwrap();
            assert!(file.metadata().unwrap().blocks() * 512 <= 5 * 4096, "{}", disk.kind);
        }
    }
}

/// A file beyond the end of which something is zeroed grows by a hole, and what lies between is one, too.
#[test]
fn a_hole_may_begin_past_the_end() {
    let (dir, _) = scratch();
    let file = file_with(&dir.path().join("f"), b"abc");
    assert_eq!(zero_at(&file, 8 * MIB, 8 * MIB).unwrap().complete().unwrap(), 8 * MIB);
    let found = file.metadata().unwrap();
    assert_eq!(found.len(), 16 * MIB);
    assert!(found.blocks() * 512 <= 64 << 10, "{} blocks", found.blocks());
    assert_eq!(&content(&dir.path().join("f"))[..5], b"abc\0\0");
}

#[test]
fn an_appending_descriptor_appends_zeros() {
    for disk in PUNCHING.into_iter().chain(["ramfs"]).filter_map(Disk::new) {
        let path = disk.path("f");
        file_with(&path, b"abc");
        let mut file = File::options().append(true).open(&path).unwrap();
        assert_eq!(zero(&file, 3 * MIB).unwrap(), 3 * MIB);
        file.write_all(b"end").unwrap();
        file.sync_all().unwrap();
        let mut expected = b"abc".to_vec();
        expected.resize(3 + (3 << 20), 0);
        expected.extend(b"end");
        assert!(content(&path) == expected, "{}", disk.kind);
        let refused = zero_at(&file, 0, 3).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::INVAL.raw_os_error()));
        drop(file);
        let blocks = || std::fs::metadata(&path).unwrap().blocks();
        // xfs gives back what it has reserved for more appends at the last close, which may be that of a process
        // that another test is just starting.
        let is_small = || disk.kind == "ramfs" || blocks() * 512 <= 3 * 4096;
        let looks = (0..100).take_while(|_| !is_small());
        looks.for_each(|_| std::thread::sleep(std::time::Duration::from_millis(100)));
        assert!(is_small(), "{}: {}", disk.kind, blocks());
    }
}

/// Where our zeros are was asked of the offset, which the other thread had moved.
#[test]
fn nothing_is_lost_of_what_two_threads_append_through_one_open_file() {
    const LINES: usize = 20_000;
    for disk in PUNCHING.into_iter().filter_map(Disk::new) {
        let path = disk.path("f");
        file_with(&path, b"");
        let file = File::options().append(true).open(&path).unwrap();
        let is_over = AtomicBool::new(false);
        let zeros = std::thread::scope(|scope| {
            let zeroing = scope.spawn(|| {
                let mut zeros = 0;
                while zeros == 0 || !is_over.load(Ordering::SeqCst) && zeros < 64 {
                    assert_eq!(zero(&file, MIB).unwrap(), MIB);
                    zeros += 1;
                }
                zeros
            });
            for number in 0..LINES {
                (&file).write_all(format!("line {number:08}\n").as_bytes()).unwrap();
            }
            is_over.store(true, Ordering::SeqCst);
            zeroing.join().unwrap()
        });
        let content = content(&path);
        let lines = content.split(|&byte| byte == 0 || byte == b'\n');
        let lines: Vec<&[u8]> = lines.filter(|line| !line.is_empty()).collect();
        let expected: Vec<String> = (0..LINES).map(|number| format!("line {number:08}")).collect();
        let is_kept = lines.iter().copied().eq(expected.iter().map(String::as_bytes));
        assert!(is_kept, "{}: {} of {LINES} lines", disk.kind, lines.len());
        assert_eq!(content.len() as u64, zeros * MIB + LINES as u64 * 14, "{}", disk.kind);
    }
}

/// Whoever closes any open file of an inode loses the record locks (fcntl(2)) of its process there.
#[test]
fn an_appending_process_keeps_its_record_locks() {
    let (dir, _) = scratch();
    let path = dir.path().join("f");
    file_with(&path, b"abc");
    let file = File::options().append(true).open(&path).unwrap();
    let inode = format!(":{} ", file.metadata().unwrap().ino());
    let locks = || {
        let all = std::fs::read_to_string("/proc/locks").unwrap();
        all.lines()
            .filter(|line| line.contains("POSIX") && line.contains(&inode))
            .count()
    };
    rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert_eq!(locks(), 1);
    assert_eq!(zero(&file, MIB).unwrap(), MIB);
    assert_eq!(locks(), 1);
    let end = (&file).stream_position().unwrap();
    assert_eq!(end, MIB + 3);
}

#[test]
fn mistakes_are_told_as_write_tells_them() {
    let (dir, _) = scratch();
    let path = dir.path().join("f");
    let file = file_with(&path, b"abc");
    let before = times(&file);
    let errno = |result: std::io::Result<u64>| Errno::from_io_error(&result.unwrap_err()).unwrap();

    let mut reader = File::open(&path).unwrap();
    assert_eq!(errno(zero(&reader, 1)), Errno::BADF);
    assert_eq!(zero_at(&reader, 0, 1).unwrap_err().raw_os_error(), Some(9));
    assert_eq!(reader.stream_position().unwrap(), 0);
    assert_eq!(errno(zero(File::open(dir.path()).unwrap(), 1)), Errno::BADF);
    let (_, pipe) = std::io::pipe().unwrap();
    assert_eq!(errno(zero(&pipe, 1)), Errno::SPIPE);
    let pipe = OwnedFd::from(pipe);
    assert_eq!(zero_at(&pipe, 0, 1).unwrap_err().raw_os_error(), Some(29));
    let null = File::options().write(true).open("/dev/null").unwrap();
    assert_eq!(errno(zero(&null, 1)), Errno::NODEV);
    for (offset, n) in [
        (u64::MAX, 1),
        (1, u64::MAX),
        (1, i64::MAX as u64),
        (i64::MAX as u64, 1),
        (0, 1 << 62),
    ] {
        let refused = zero_at(&file, offset, n).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(27), "{offset} {n}: EFBIG");
    }
    assert_eq!(errno(zero(&file, u64::MAX)), Errno::FBIG);
    assert_eq!((times(&file), content(&path)), (before, b"abc".to_vec()));
}

/// Each file system against a vector of bytes.
#[test]
fn ranges_are_zeroed_as_in_a_vector() {
    let (seed, rounds) = (seed(), rounds(60));
    let small_blocks = Disk::with("ext4", ROOM_BYTES, &["-b", "1024"]);
    let disks = PUNCHING.into_iter().chain(["ramfs"]).filter_map(Disk::new);
    for disk in disks.chain(small_blocks) {
        let mut random = Random(seed);
        let path = disk.path("f");
        let file = file_with(&path, b"");
        let mut model: Vec<u8> = Vec::new();
        for round in 0..rounds {
            let (at, length) = (random.below(300_000), random.below(60_000) as usize);
            let bytes = vec![1 + random.below(255) as u8; length];
            file.write_all_at(&bytes, at).unwrap();
            if length > 0 {
                model.resize(model.len().max(at as usize + length), 0);
                model[at as usize..][..length].copy_from_slice(&bytes);
            }
            let ranges = random.ranges();
            let zeroed = zero_ranges(&file, &ranges).unwrap();
            for range in &ranges {
                model.resize(model.len().max(range.end as usize), 0);
                model[range.start as usize..range.end as usize].fill(0);
            }
            assert_eq!(zeroed.complete().unwrap(), ranges.total_bytes());
            assert!(
                content(&path) == model,
                "{}, SEED={seed}, round {round}: {ranges:?}",
                disk.kind
            );
            for hole in &holes(&file) {
                assert!(
                    model[hole.start as usize..hole.end as usize]
                        .iter()
                        .all(|&byte| byte == 0)
                );
            }
        }
    }
}

/// A small generator (SplitMix64): the same numbers for the same seed on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % end
    }

    /// A few ranges: aligned and not, small and large, past the end.
    fn ranges(&mut self) -> RangeSet {
        let count = 1 + self.below(5);
        let list: Vec<_> = (0..count)
            .map(|_| match self.below(3) {
                0 => (self.below(90) * 4096, self.below(20) * 4096),
                1 => (self.below(400_000), self.below(100)),
                _ => (self.below(400_000), self.below(100_000)),
            })
            .collect();
        RangeSet::from_unsorted(list).unwrap()
    }
}

#[test]
fn a_file_system_that_cannot_punch_is_written_to() {
    let (dir, _) = scratch();
    let mut bytes = vec![0; 3 << 20];
    bytes[5000..20_000].fill(7);
    bytes[(2 << 20)..].fill(9);
    let plan = Plan::fail(Errno::OPNOTSUPP).on(Operation::Punch).times(u64::MAX);
    let (storage, file) = behind(dir.path(), Faulty::new([plan]), &bytes);
    let zeroed = zero_in(&storage, &file, 6000, (5 << 19) - 6000).unwrap();
    assert!(storage.hook().fired() > 0, "it was asked to punch");
    bytes[6000..5 << 19].fill(0);
    assert!(content(&dir.path().join("f")) == bytes);
    assert_eq!(zeroed.zeroed_bytes, (5 << 19) - 6000);
    assert_eq!(zeroed.punched_bytes, 0);
    let data = 5 * 4096 - 6000 + (1 << 19); // pages with data, from 6000 on
    assert_eq!(zeroed.written_bytes, data, "only what was not zero is written");
}

#[test]
fn holes_stay_holes_where_zeros_are_written() {
    let (dir, _) = scratch();
    let plan = Plan::fail(Errno::OPNOTSUPP).on(Operation::Punch).times(u64::MAX);
    let (storage, file) = behind(dir.path(), Faulty::new([plan]), b"abc");
    RealStorage.truncate(&file, 64 * MIB).unwrap();
    let zeroed = zero_in(&storage, &file, 0, 64 * MIB).unwrap();
    assert_eq!((zeroed.written_bytes, storage.hook().fired()), (4096, 1));
    assert!(RealStorage.stat_handle(&file).unwrap().blocks * 512 <= 64 << 10);
}

/// What cannot be read cannot be looked at first; it is written over all the same.
#[test]
fn a_descriptor_for_writing_only_is_enough() {
    for disk in ["ramfs", "ext4"].into_iter().filter_map(Disk::new) {
        let path = disk.path("f");
        file_with(&path, &[7; 10_000]);
        let file = File::options().write(true).open(&path).unwrap();
        assert_eq!(zero_at(&file, 100, 8_900).unwrap().complete().unwrap(), 8_900);
        let mut expected = vec![7; 10_000];
        expected[100..9_000].fill(0);
        assert!(content(&path) == expected, "{}", disk.kind);
    }
}

#[test]
fn direct_io_works_where_the_end_is_aligned() {
    for disk in ["ext4", "xfs", "btrfs"].into_iter().filter_map(Disk::new) {
        let path = disk.path("f");
        file_with(&path, &vec![7; 1 << 20]);
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_DIRECT);
        let file = options.open(&path).unwrap();
        assert_eq!(
            zero_at(&file, 100, 2 * MIB - 100).unwrap().complete().unwrap(),
            2 * MIB - 100
        );
        let mut expected = vec![7; 100];
        expected.resize(2 << 20, 0);
        assert!(content(&path) == expected, "{}", disk.kind);
    }
}

/// Lengthens the file by somebody else's hand right after it was looked at.
struct Appender {
    path: std::path::PathBuf,
    done: AtomicBool,
}

impl Hook for Appender {
    fn around<T: 'static>(
        &self,
        call: &Call<'_>,
        make: impl FnOnce() -> elbow_file::Result<T>,
    ) -> elbow_file::Result<T> {
        let made = make();
        if call.operation == Operation::StatHandle && !self.done.swap(true, Ordering::SeqCst) {
            let other = File::options().write(true).open(&self.path).unwrap();
            other.write_all_at(&[9; 10_000], 20_000).unwrap();
        }
        made
    }
}

/// zero() extends by writing its last zeros. It must not set the size that it has computed, and not round up the end of
/// a punch to the end of a block: somebody else may have appended.
#[test]
fn what_somebody_else_appends_meanwhile_is_kept() {
    for end in [15_000, 20_000] {
        for disk in PUNCHING.into_iter().filter_map(Disk::new) {
            let path = disk.path("f");
            let appender = Appender {
                path: path.clone(),
                done: AtomicBool::new(false),
            };
            let (storage, file) = behind(&disk.root(), appender, &[7; 10_000]);
            let zeroed = zero_in(&storage, &file, 5_000, end - 5_000).unwrap();
            assert!(storage.hook().done.load(Ordering::SeqCst), "somebody has appended");
            assert_eq!(zeroed.complete().unwrap(), end - 5_000);
            let mut expected = vec![7; 5_000];
            expected.resize(20_000, 0);
            expected.resize(30_000, 9);
            assert!(content(&path) == expected, "{} {end}", disk.kind);
        }
    }
}

#[test]
fn a_full_disk_that_a_sync_makes_room_on_is_tried_again() {
    let (dir, _) = scratch();
    let hook = Both(
        Counting::default(),
        Faulty::new([Plan::fail(Errno::NOSPC).on(Operation::Punch)]),
    );
    let (storage, file) = behind(dir.path(), hook, &[7; 100_000]);
    let zeroed = zero_in(&storage, &file, 0, 100_000).unwrap();
    let Both(counting, faulty) = storage.hook();
    assert_eq!((faulty.fired(), counting.count(Operation::SyncAll)), (1, 1));
    assert_eq!(counting.count(Operation::Punch), 2);
    assert_eq!((zeroed.punched_bytes, zeroed.written_bytes), (100_000, 0));
    assert_eq!(content(&dir.path().join("f")), vec![0; 100_000]);
}

#[test]
fn whole_runs_are_punched_where_their_edges_cannot_be() {
    let (dir, _) = scratch();
    let unaligned = Plan::fail(Errno::NOSPC)
        .on(Operation::Punch)
        .when(|call| call.offset % 4096 != 0 || call.bytes % 4096 != 0)
        .times(u64::MAX);
    let (storage, file) = behind(dir.path(), Faulty::new([unaligned]), &[7; 100_000]);
    let zeroed = zero_in(&storage, &file, 100, 90_000).unwrap();
    assert!(storage.hook().fired() >= 2);
    assert_eq!(zeroed.punched_bytes, 90_112 - 4096 - 4096);
    assert_eq!(zeroed.written_bytes, 90_000 - zeroed.punched_bytes);
    let mut expected = vec![7; 100_000];
    expected[100..90_100].fill(0);
    assert!(content(&dir.path().join("f")) == expected);
}

#[test]
fn what_a_full_disk_does_not_punch_is_written() {
    let (dir, _) = scratch();
    let full = Plan::fail(Errno::NOSPC).on(Operation::Punch).times(u64::MAX);
    let (storage, file) = behind(dir.path(), Faulty::new([full]), &[7; 100_000]);
    let zeroed = zero_in(&storage, &file, 0, 50_000).unwrap();
    assert!(storage.hook().fired() >= 2);
    assert_eq!((zeroed.punched_bytes, zeroed.written_bytes), (0, 50_000));
    assert!(content(&dir.path().join("f"))[..50_000].iter().all(|&byte| byte == 0));
}

/// A sync of a whole file system is slow: when the first gave nothing back, the second will not.
#[test]
fn a_full_disk_is_not_synced_for_every_range() {
    let (dir, _) = scratch();
    let full = Plan::fail(Errno::NOSPC).on(Operation::Punch).times(u64::MAX);
    let hook = Both(Counting::default(), Faulty::new([full]));
    let (storage, file) = behind(dir.path(), hook, &[7; 100_000]);
    let ranges = (0..20).map(|index| index * 5000..index * 5000 + 4500).collect();
    let zeroed = zero_ranges_in(&storage, &file, &ranges).unwrap();
    let Both(counting, faulty) = storage.hook();
    assert_eq!(
        (counting.count(Operation::SyncAll), zeroed.written_bytes),
        (1, 20 * 4500)
    );
    assert!(faulty.fired() > 20);
}

#[test]
fn what_a_full_disk_does_not_even_write_is_deferred() {
    let (dir, _) = scratch();
    let full = |operation| Plan::fail(Errno::NOSPC).on(operation).times(u64::MAX);
    let plans = [
        full(Operation::Punch),
        full(Operation::Write).when(|call| call.offset >= 8192),
    ];
    let (storage, file) = behind(dir.path(), Faulty::new(plans), &[7; 100_000]);
    // Two ranges, so that one can be written and the other cannot; and a third that would extend the file.
    let ranges = RangeSet::from_iter([0..4096, 10_000..20_000, 200_000..200_100]);
    let zeroed = zero_ranges_in(&storage, &file, &ranges).unwrap();
    assert!(storage.hook().fired() >= 5, "{}", storage.hook().fired());
    assert_eq!(zeroed.deferred, RangeSet::from_iter([10_000..20_000, 200_000..200_100]));
    assert_eq!((zeroed.zeroed_bytes, zeroed.written_bytes), (4096, 4096));
    assert_eq!(zeroed.clone().complete().unwrap_err().raw_os_error(), Some(28));
    let mut expected = vec![7; 100_000];
    expected[..4096].fill(0);
    assert!(
        content(&dir.path().join("f")) == expected,
        "what is deferred is as it was"
    );

    storage.hook().disarm();
    let zeroed = zero_ranges_in(&storage, &file, &zeroed.deferred).unwrap();
    assert_eq!(zeroed.complete().unwrap(), 10_100);
    expected[10_000..20_000].fill(0);
    expected.resize(200_100, 0);
    assert!(content(&dir.path().join("f")) == expected);
}

/// A disk that says at any moment that it is full: what is deferred is as it was or zero, all else is as in the model.
#[test]
fn faults_at_random_leave_what_is_deferred_and_nothing_else() {
    let (seed, rounds) = (seed(), rounds(80));
    let mut random = Random(seed);
    let (mut fired, mut deferred, mut punched) = (0, 0, 0);
    for round in 0..rounds {
        let (dir, _) = scratch();
        let full = |operation, random: &mut Random| {
            let errno = [Errno::NOSPC, Errno::DQUOT][random.below(2) as usize];
            Plan::fail(errno)
                .on(operation)
                .nth(1 + random.below(3))
                .times(random.below(6))
        };
        let plans = [Operation::Punch, Operation::Write, Operation::SyncAll].map(|on| full(on, &mut random));
        let before: Vec<u8> = (0..random.below(300_000))
            .map(|_| 1 + random.below(255) as u8)
            .collect();
        let (storage, file) = behind(dir.path(), Faulty::new(plans), &before);
        let ranges = random.ranges();
        let zeroed = zero_ranges_in(&storage, &file, &ranges).unwrap();
        let found = content(&dir.path().join("f"));
        let context = format!("SEED={seed}, round {round}: {ranges:?} {zeroed:?}");
        assert_eq!(
            zeroed.zeroed_bytes + zeroed.deferred.total_bytes(),
            ranges.total_bytes(),
            "{context}"
        );
        assert!(zeroed.deferred.difference(&ranges).is_empty(), "{context}");
        for (at, &byte) in found.iter().enumerate() {
            let old = before.get(at).copied().unwrap_or(0);
            let is_right = match ranges.contains(at as u64) {
                true if zeroed.deferred.contains(at as u64) => byte == old || byte == 0,
                true => byte == 0,
                false => byte == old,
            };
            assert!(is_right, "byte {at} is {byte}, was {old}; {context}");
        }
        let end = ranges.difference(&zeroed.deferred).span().map_or(0, |span| span.end);
        assert!(found.len() as u64 >= end.max(before.len() as u64), "{context}");
        fired += storage.hook().fired();
        deferred += zeroed.deferred.len();
        punched += zeroed.punched_bytes;
    }
    assert!(
        fired > 0 && deferred > 0 && punched > 0,
        "{fired} faults, {deferred} deferred"
    );
}

/// As with write(2), a range is taken and the offset moved in one step.
#[test]
fn threads_that_share_an_offset_zero_different_ranges() {
    let (dir, _) = scratch();
    let path = dir.path().join("f");
    let file = file_with(&path, &vec![7; 4 * 300 * 100]);
    (&file).seek(SeekFrom::Start(0)).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..300).for_each(|_| assert_eq!(zero(&file, 100).unwrap(), 100)));
        }
    });
    assert_eq!((&file).stream_position().unwrap(), 4 * 300 * 100);
    assert!(content(&path).iter().all(|&byte| byte == 0));
}

#[test]
fn an_error_of_the_disk_is_an_error() {
    let (dir, _) = scratch();
    for operation in [Operation::Punch, Operation::StatHandle] {
        let plan = Plan::fail(Errno::IO).on(operation);
        let (storage, file) = behind(dir.path(), Faulty::new([plan]), b"abc");
        assert_eq!(zero_in(&storage, &file, 0, 3), Err(Errno::IO));
        assert_eq!(storage.hook().fired(), 1);
        std::fs::remove_file(dir.path().join("f")).unwrap();
    }
}

/// Only the owner may set times; who may write gets them set by writing.
#[test]
fn times_are_set_for_who_does_not_own_the_file() {
    let (dir, _) = scratch();
    let plans = [
        Plan::fail(Errno::PERM).on(Operation::SetTimesHandle),
        Plan::fail(Errno::OPNOTSUPP).on(Operation::Punch).times(u64::MAX),
    ];
    let (storage, file) = behind(dir.path(), Faulty::new(plans), &[0; 10_000]);
    let other = File::options().write(true).open(dir.path().join("f")).unwrap();
    age(&other);
    let before = times(&other);
    let zeroed = zero_in(&storage, &file, 0, 10_000).unwrap();
    assert_eq!((storage.hook().fired(), zeroed.written_bytes), (2, 0));
    assert_touched(&other, before, "not the owner");
}

/// Two hooks, one behind the other.
struct Both<A, B>(A, B);

impl<A: Hook, B: Hook> Hook for Both<A, B> {
    fn around<T: 'static>(
        &self,
        call: &Call<'_>,
        make: impl FnOnce() -> elbow_file::Result<T>,
    ) -> elbow_file::Result<T> {
        self.0.around(call, || self.1.around(call, make))
    }
}

/// Counts punches that the file system itself refused for lack of room.
#[derive(Default)]
struct Refusals(AtomicU64);

impl Hook for Refusals {
    fn around<T: 'static>(
        &self,
        call: &Call<'_>,
        make: impl FnOnce() -> elbow_file::Result<T>,
    ) -> elbow_file::Result<T> {
        let made = make();
        if call.operation == Operation::Punch && matches!(made, Err(Errno::NOSPC)) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        made
    }
}

/// Writes until the disk is full. Gives the file's size.
fn fill(file: &Handle) -> u64 {
    let (mut size, mut step) = (0, 1 << 20);
    let bytes = vec![7; step];
    while step >= 512 {
        match RealStorage.write(file, &[IoSlice::new(&bytes[..step])], size) {
            Ok(()) => (),
            Err(Errno::NOSPC) => step /= 2,
            Err(errno) => panic!("{errno}"),
        }
        size = RealStorage.stat_handle(file).unwrap().size;
    }
    RealStorage.sync(file).unwrap();
    size
}

/// ext4 needs blocks to write down that a file is in many pieces. It keeps some in reserve; without them a punch on a
/// full disk fails until the journal has given back what was freed before.
#[test]
fn a_full_ext4_is_zeroed_block_by_block() {
    let Some(disk) = Disk::with("ext4", 24 << 20, &[]) else {
        return;
    };
    let device = disk.device();
    let reserve = format!("/sys/fs/ext4/{}/reserved_clusters", device.trim_start_matches("/dev/"));
    std::fs::write(&reserve, "0").unwrap_or_else(|error| panic!("{reserve}: {error}"));
    let (storage, file) = behind(&disk.root(), Refusals::default(), b"");
    let blocks = fill(&file) / 4096;
    for block in (1..blocks).step_by(4) {
        let zeroed = zero_in(&storage, &file, block * 4096, 4096).unwrap();
        assert_eq!(zeroed.complete().unwrap(), 4096, "block {block}");
    }
    assert!(
        storage.hook().0.load(Ordering::Relaxed) > 0,
        "the disk was never too full to punch"
    );
    let found = content(&disk.path("f"));
    for (block, bytes) in found.chunks_exact(4096).enumerate().take(blocks as usize) {
        let expected = if block % 4 == 1 { 0 } else { 7 };
        assert!(bytes.iter().all(|&byte| byte == expected), "block {block}");
    }
}

/// btrfs with data and metadata mixed has nothing in reserve: it punches nothing, and copies on write, so that it overwrites
/// nothing either. Then it is said what is left.
#[test]
fn a_full_btrfs_says_what_it_could_not_zero() {
    let Some(disk) = Disk::with("btrfs", 24 << 20, &["--mixed", "--nodesize", "4096"]) else {
        return;
    };
    let (storage, file) = behind(&disk.root(), Refusals::default(), b"");
    let size = fill(&file);
    let middle = size / 2 / 4096 * 4096;
    let zeroed = zero_in(&storage, &file, middle, 8192).unwrap();
    assert!(
        storage.hook().0.load(Ordering::Relaxed) > 0,
        "the disk was never too full to punch"
    );
    assert_eq!(zeroed.zeroed_bytes + zeroed.deferred.total_bytes(), 8192);
    let found = content(&disk.path("f"));
    for at in middle..middle + 8192 {
        let expected = if zeroed.deferred.contains(at) { 7 } else { 0 };
        assert_eq!(found[at as usize], expected, "byte {at}");
    }
}

#[test]
fn a_file_system_says_how_it_zeroes() {
    for disk in PUNCHING.into_iter().chain(["ramfs"]).filter_map(Disk::new) {
        let file = file_with(&disk.path("f"), b"abc");
        let before = times(&file);
        let expected = match disk.kind {
            "ramfs" => ZeroSupport::Writes,
            _ => ZeroSupport::Punches,
        };
        assert_eq!(ZeroSupport::of(&file).unwrap(), expected, "{}", disk.kind);
        assert_eq!((times(&file), content(&disk.path("f"))), (before, b"abc".to_vec()));
        assert_eq!(
            std::fs::read_dir(disk.root())
                .unwrap()
                .filter(|entry| !is_lost_and_found(entry))
                .count(),
            1
        );
    }
    let (dir, _) = scratch();
    let plan = Plan::fail(Errno::OPNOTSUPP).on(Operation::Punch);
    let (storage, file) = behind(dir.path(), Faulty::new([plan]), b"");
    assert_eq!(ZeroSupport::of_scratch(&storage, &file), Ok(ZeroSupport::Writes));
}

fn is_lost_and_found(entry: &std::io::Result<std::fs::DirEntry>) -> bool {
    entry.as_ref().is_ok_and(|entry| entry.file_name() == "lost+found")
}

#[test]
fn extents_cover_the_file() {
    for disk in PUNCHING.into_iter().chain(["ramfs"]).filter_map(Disk::new) {
        let file = file_with(&disk.path("f"), b"");
        for (at, length) in [(0, 4096), (65_536, 65_536), (MIB, 4096)] {
            file.write_all_at(&vec![7; length], at).unwrap();
        }
        file.set_len(3 * MIB).unwrap();
        file.sync_all().unwrap();
        let extents = Extents::of(&file).unwrap();
        assert_eq!(extents.size_bytes(), 3 * MIB);
        assert_eq!(extents.allocated_bytes(), file.metadata().unwrap().blocks() * 512);
        let found: Vec<_> = extents
            .map(Result::unwrap)
            .map(|extent| (extent.range, extent.kind))
            .collect();
        let (data, hole) = (ExtentKind::Data, ExtentKind::Hole);
        let expected = match disk.kind {
            "ramfs" => vec![(0..3 * MIB, data)],
            _ => vec![
                (0..4096, data),
                (4096..65_536, hole),
                (65_536..131_072, data),
                (131_072..MIB, hole),
                (MIB..MIB + 4096, data),
                (MIB + 4096..3 * MIB, hole),
            ],
        };
        assert_eq!(found, expected, "{}", disk.kind);
    }
    let empty = tempfile::tempfile().unwrap();
    assert_eq!(Extents::of(&empty).unwrap().count(), 0);
    let directory = File::open("/").unwrap();
    assert_eq!(Extents::of(&directory).unwrap_err().raw_os_error(), Some(21));
}
