//! `dig` on real file systems, while others read and write the file.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests look at the storage themselves

mod disk;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use disk::{Disk, PUNCHING};
use elbow_file::dig::{Means, Writers, dig};
use elbow_file::{ExtentKind, Extents};
use rustix::mm::{MapFlags, ProtFlags, mmap};

const BLOCK: usize = 4096;
const BLOCKS: usize = 2048;

/// What is expected to keep it safe.
fn means_of(kind: &str) -> Means {
    match kind {
        "xfs" | "btrfs" => Means::Compare,
        _ => Means::Lease,
    }
}

fn is_hollow(block: usize) -> bool {
    block % 4 != 1
}

/// Zeros with something in every fourth block, and half a block of zeros in the end.
fn hollow() -> Vec<u8> {
    let mut bytes = vec![0; BLOCKS * BLOCK + BLOCK / 2];
    for block in (0..BLOCKS).filter(|&block| !is_hollow(block)) {
        bytes[block * BLOCK + block % BLOCK] = 1;
    }
    bytes
}

fn read_write(path: &Path) -> File {
    File::options().read(true).write(true).open(path).unwrap()
}

fn hollow_file(path: &Path) -> File {
    std::fs::write(path, hollow()).unwrap();
    let file = read_write(path);
    file.sync_all().unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000))
        .unwrap();
    file
}

fn data_bytes(file: &File) -> u64 {
    let extents = Extents::of(file).unwrap().map(Result::unwrap);
    let data = extents.filter(|extent| extent.kind == ExtentKind::Data);
    data.map(|extent| extent.range.end - extent.range.start).sum()
}

fn errno(result: std::io::Result<impl Sized>) -> i32 {
    match result {
        Err(error) => error.raw_os_error().unwrap(),
        Ok(_) => 0,
    }
}

#[test]
fn blocks_of_zeros_become_holes_and_nobody_sees_a_difference() {
    for disk in PUNCHING.into_iter().filter_map(Disk::new) {
        let path = disk.path("f");
        let file = hollow_file(&path);
        let before = file.metadata().unwrap();
        let mut steps = Vec::new();
        let dug = dig(&file, Writers::Unknown, |dug| steps.push(*dug)).unwrap();
        file.sync_all().unwrap();
        let after = file.metadata().unwrap();
        assert!(std::fs::read(&path).unwrap() == hollow(), "{}", disk.kind);
        assert_eq!((dug.finished, dug.means), (true, means_of(disk.kind)), "{}", disk.kind);
        assert_eq!(dug.examined_bytes, before.len());
        assert_eq!(data_bytes(&file), (BLOCKS * BLOCK / 4) as u64, "{}", disk.kind);
        assert_eq!(dug.dug_bytes, before.len() - data_bytes(&file), "{}", disk.kind);
        if disk.kind != "btrfs" {
            // btrfs gives back an extent when nothing of it is used any more.
            assert!(
                after.blocks() < before.blocks() / 3,
                "{}: {}",
                disk.kind,
                after.blocks()
            );
        }
        assert_eq!(
            (after.mtime(), after.len()),
            (before.mtime(), before.len()),
            "{}",
            disk.kind
        );
        let told: Vec<_> = steps.iter().map(|dug| dug.examined_bytes).collect();
        assert!(told.len() >= 8 && told.is_sorted(), "{told:?}");

        let again = dig(&file, Writers::Unknown, |_| ()).unwrap();
        assert_eq!(
            (again.finished, again.dug_bytes),
            (true, 0),
            "{}: nothing is left",
            disk.kind
        );
    }
}

#[test]
fn a_file_of_nothing_but_zeros_takes_no_room() {
    for disk in PUNCHING.into_iter().filter_map(Disk::new) {
        let path = disk.path("f");
        std::fs::write(&path, vec![0; 3_000_001]).unwrap();
        let file = read_write(&path);
        file.sync_all().unwrap();
        let dug = dig(&file, Writers::Unknown, |_| ()).unwrap();
        file.sync_all().unwrap();
        assert_eq!(dug.dug_bytes, 3_000_001, "{}", disk.kind);
        assert_eq!(file.metadata().unwrap().blocks(), 0, "{}", disk.kind);
        assert_eq!(std::fs::read(&path).unwrap(), vec![0; 3_000_001]);
    }
}

/// Writes a byte into hollow blocks, through a descriptor that is open all the time or one of its own for each, until told to
/// stop. Gives the blocks written.
fn write_into(path: &Path, stop: &AtomicBool, open_once: bool) -> Vec<usize> {
    let once = open_once.then(|| read_write(path));
    let mut written = Vec::new();
    // An order that jumps about, and does not come back before all have had their turn.
    for step in 0..BLOCKS {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let block = step * 1_031 % BLOCKS;
        if is_hollow(block) {
            let each = once.is_none().then(|| read_write(path));
            let file = once.as_ref().or(each.as_ref()).unwrap();
            file.write_all_at(&[2], (block * BLOCK + 7) as u64).unwrap();
            written.push(block);
        }
        if !open_once {
            thread::sleep(Duration::from_micros(300));
        }
    }
    written
}

/// How long one is dug that is written to, and how long until both have got somewhere.
const DIGGING: Duration = Duration::from_millis(1500);
const DIGGING_MAX: Duration = Duration::from_secs(60);

/// Digs a file over and over while somebody writes into its empty blocks: every byte that was written is there.
fn dig_under_a_writer(disk: &Disk, open_once: bool) {
    let path = disk.path("f");
    let (mut dug_bytes, mut written_blocks, mut digging) = (0, 0, Duration::ZERO);
    // Making the file may take a busy disk longer than all the digging; that is not counted.
    while digging < DIGGING || dug_bytes == 0 || written_blocks <= 20 {
        assert!(digging < DIGGING_MAX, "{}: {dug_bytes} {written_blocks}", disk.kind);
        let file = hollow_file(&path);
        let begun = Instant::now();
        let stop = AtomicBool::new(false);
        let written = thread::scope(|scope| {
            let writer = scope.spawn(|| write_into(&path, &stop, open_once));
            while !writer.is_finished() && begun.elapsed() < DIGGING {
                match dig(&file, Writers::Unknown, |_| ()) {
                    Ok(dug) => dug_bytes += dug.dug_bytes,
                    Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EBUSY), "{error}"),
                }
            }
            stop.store(true, Ordering::Relaxed);
            writer.join().unwrap()
        });
        let mut expected = hollow();
        for block in &written {
            expected[block * BLOCK + 7] = 2;
        }
        written_blocks += written.len();
        digging += begun.elapsed();
        assert!(
            std::fs::read(&path).unwrap() == expected,
            "{}: a write was lost",
            disk.kind
        );
    }
}

#[test]
fn no_write_is_lost_where_the_kernel_compares() {
    for disk in ["xfs", "btrfs"].into_iter().filter_map(Disk::new) {
        dig_under_a_writer(&disk, true);
    }
}

#[test]
fn no_write_is_lost_of_who_comes_and_goes() {
    for disk in PUNCHING.into_iter().filter_map(Disk::new) {
        dig_under_a_writer(&disk, false);
    }
}

#[test]
fn a_file_that_somebody_else_has_open_is_left_alone_where_the_kernel_cannot_compare() {
    for disk in ["ext4", "tmpfs"].into_iter().filter_map(Disk::new) {
        let path = disk.path("f");
        let file = hollow_file(&path);
        let before = file.metadata().unwrap().blocks();
        for other in [File::open(&path).unwrap(), read_write(&path)] {
            assert_eq!(
                errno(dig(&file, Writers::Unknown, |_| ())),
                libc::EBUSY,
                "{}",
                disk.kind
            );
            drop(other);
        }
        assert_eq!(file.metadata().unwrap().blocks(), before, "nothing was dug");
        let other = File::open(&path).unwrap();
        let dug = dig(&file, Writers::None, |_| ()).unwrap();
        assert_eq!((dug.finished, dug.means), (true, Means::Promise));
        assert!(dug.dug_bytes > 0);
        drop(other);
        assert!(std::fs::read(&path).unwrap() == hollow());
    }
}

/// For so long somebody else's file is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Somebody who only looks when it begins (a backup, a child process that is being started) is waited for, and what they write then
/// keeps its time.
#[test]
fn who_has_the_file_open_for_a_moment_is_waited_for() {
    for disk in ["ext4", "tmpfs"].into_iter().filter_map(Disk::new) {
        let path = disk.path("f");
        let try_it = || {
            let file = hollow_file(&path);
            let other = read_write(&path);
            thread::scope(|scope| {
                let digger = scope.spawn(|| {
                    let begun = Instant::now();
                    (dig(&file, Writers::Unknown, |_| ()), begun.elapsed())
                });
                thread::sleep(Duration::from_millis(100));
                if digger.is_finished() {
                    // We may have slept for longer than others are waited for.
                    let (dug, waited) = digger.join().unwrap();
                    assert_eq!(errno(dug), libc::EBUSY, "{}", disk.kind);
                    assert!(waited >= PATIENCE, "{}: waited for {waited:?}", disk.kind);
                    return None;
                }
                other.write_all_at(&[3], (1500 * BLOCK) as u64).unwrap();
                let written = other.metadata().unwrap().modified().unwrap();
                drop(other);
                Some((digger.join().unwrap().0, written))
            })
        };
        // On a busy disk the write may take longer than somebody else's file is waited for.
        let (dug, written) = std::iter::repeat_with(try_it)
            .take(30)
            .flatten()
            .find_map(|(dug, written)| Some((dug.ok().filter(|dug| dug.finished)?, written)))
            .expect("a dig that came to its end");
        assert!(dug.dug_bytes > 0, "{}: {dug:?}", disk.kind);
        let mut expected = hollow();
        expected[1500 * BLOCK] = 3;
        assert!(std::fs::read(&path).unwrap() == expected, "{}", disk.kind);
        let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
        assert_eq!(modified, written, "{}", disk.kind);
    }
}

/// A shared mapping whose file was closed again.
struct Mapping(*mut u8);

impl Mapping {
    fn of(path: &Path) -> Self {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, of a file that keeps its size.
        #[allow(unsafe_code)]
        let start = unsafe {
            let file = read_write(path);
            mmap(
                std::ptr::null_mut(),
                BLOCKS * BLOCK,
                protection,
                MapFlags::SHARED,
                file,
                0,
            )
        };
        Self(start.unwrap().cast())
    }

    fn write(&self, at: usize, byte: u8) {
        assert!(at < BLOCKS * BLOCK);
        // SAFETY: it is inside of the mapping.
        #[allow(unsafe_code)]
        unsafe {
            self.0.add(at).write_volatile(byte);
        }
    }
}

/// Writes through a mapping need no open file and no call that the kernel could see: it has to see the page fault.
#[test]
fn no_write_is_lost_that_comes_through_a_mapping() {
    for disk in PUNCHING.into_iter().filter_map(Disk::new) {
        let path = disk.path("f");
        let file = hollow_file(&path);
        let mapping = Mapping::of(&path);
        if means_of(disk.kind) == Means::Lease {
            assert_eq!(
                errno(dig(&file, Writers::Unknown, |_| ())),
                libc::EBUSY,
                "{}",
                disk.kind
            );
            continue;
        }
        let mut expected = hollow();
        for round in 0..20 {
            let dug = thread::scope(|scope| {
                let mapping = &mapping;
                let file = &file;
                let digger = scope.spawn(move || dig(file, Writers::Unknown, |_| ()).unwrap());
                for block in (round..BLOCKS).step_by(20) {
                    mapping.write(block * BLOCK + 9, 4);
                    expected[block * BLOCK + 9] = 4;
                    thread::sleep(Duration::from_micros(50));
                }
                digger.join().unwrap()
            });
            assert!(dug.finished, "{}", disk.kind);
        }
        assert!(
            std::fs::read(&path).unwrap() == expected,
            "{}: a write was lost",
            disk.kind
        );
    }
}

/// Waits until somebody wants to open a file that we have a lease on.
fn wait_for_a_knock(file: &File) {
    let deadline = Instant::now() + Duration::from_secs(60);
    // SAFETY: F_GETLEASE takes no argument.
    #[allow(unsafe_code)]
    while unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE) } == libc::F_WRLCK {
        assert!(Instant::now() < deadline, "nobody came");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Who opens the file while it is dug gets it within a moment; if they keep it, the digging ends there, and says so.
#[test]
fn who_opens_the_file_does_not_wait_for_the_end() {
    for disk in ["ext4", "tmpfs"].into_iter().filter_map(Disk::new) {
        let path = disk.path("f");
        let file = hollow_file(&path);
        let is_over = AtomicBool::new(false);
        let dug = thread::scope(|scope| {
            let mut other = None;
            let dug = dig(&file, Writers::Unknown, |dug| {
                if dug.examined_bytes >= 2 << 20 && other.is_none() {
                    other = Some(scope.spawn(|| {
                        let file = read_write(&path);
                        let was_open_before_the_end = !is_over.load(Ordering::Relaxed);
                        file.write_all_at(&[3], (1500 * BLOCK) as u64).unwrap();
                        while !is_over.load(Ordering::Relaxed) {
                            thread::sleep(Duration::from_millis(1));
                        }
                        was_open_before_the_end
                    }));
                    wait_for_a_knock(&file);
                }
            });
            is_over.store(true, Ordering::Relaxed);
            assert!(other.unwrap().join().unwrap());
            dug.unwrap()
        });
        assert!(
            !dug.finished && dug.dug_bytes > 0 && dug.examined_bytes == 2 << 20,
            "{dug:?}"
        );
        let mut expected = hollow();
        expected[1500 * BLOCK] = 3;
        assert!(std::fs::read(&path).unwrap() == expected, "{}", disk.kind);
    }
}

/// The story: who came when a part of a piece was dug had that part counted twice. The piece is looked at again then, and holes read as zeros.
#[test]
fn what_is_dug_of_a_piece_that_is_looked_at_again_is_counted_once() {
    for disk in ["ext4", "tmpfs"].into_iter().filter_map(Disk::new) {
        let path = disk.path("f");
        for _ in 0..5 {
            let file = hollow_file(&path);
            let is_over = AtomicBool::new(false);
            let dug = thread::scope(|scope| {
                scope.spawn(|| {
                    for pause in (0..7).cycle().take_while(|_| !is_over.load(Ordering::Relaxed)) {
                        drop(File::open(&path).unwrap());
                        thread::sleep(Duration::from_millis(4) + pause * Duration::from_micros(300));
                    }
                });
                let dug = dig(&file, Writers::Unknown, |_| ());
                is_over.store(true, Ordering::Relaxed);
                dug.unwrap()
            });
            file.sync_all().unwrap();
            let hollow_bytes = hollow().len() as u64 - data_bytes(&file);
            assert!(
                dug.dug_bytes <= hollow_bytes,
                "{}: {dug:?}, and {hollow_bytes}",
                disk.kind
            );
            assert!(!dug.finished || dug.dug_bytes == hollow_bytes, "{}: {dug:?}", disk.kind);
        }
    }
}

/// The end of a file that ends within a block is freed to the end of that block. Somebody who comes in between may have made the
/// file longer by then: what they appended was cut off once.
#[test]
fn what_was_appended_while_the_lease_was_away_is_kept() {
    const SIZE: u64 = (2 << 20) + 1000;
    for disk in ["ext4", "tmpfs"].into_iter().filter_map(Disk::new) {
        let path = disk.path("f");
        let try_it = || {
            std::fs::write(&path, vec![0; SIZE as usize]).unwrap();
            let file = read_write(&path);
            thread::scope(|scope| {
                let mut other = None;
                dig(&file, Writers::Unknown, |_| {
                    if other.is_none() {
                        other = Some(scope.spawn(|| read_write(&path).write_all_at(&[3; 500], SIZE).unwrap()));
                        wait_for_a_knock(&file);
                    }
                })
                .unwrap()
            })
        };
        // On a busy disk a write may take longer than somebody else's file is waited for: then it ends before its end.
        let dug = std::iter::repeat_with(try_it)
            .take(30)
            .find(|dug| dug.finished)
            .expect("a dig that came to its end");
        assert_eq!(dug.dug_bytes, SIZE, "{}", disk.kind);
        let mut expected = vec![0; SIZE as usize];
        expected.extend([3; 500]);
        assert!(std::fs::read(&path).unwrap() == expected, "{}", disk.kind);
    }
}

#[test]
fn readers_see_the_same_bytes_all_the_time() {
    for disk in ["xfs", "btrfs"].into_iter().filter_map(Disk::new) {
        let path = disk.path("f");
        let file = hollow_file(&path);
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let deadline = Instant::now() + Duration::from_millis(500);
                while Instant::now() < deadline {
                    assert!(std::fs::read(&path).unwrap() == hollow());
                }
            });
            let dug = dig(&file, Writers::Unknown, |_| ()).unwrap();
            assert!(dug.finished && dug.dug_bytes > 0, "{dug:?}");
            reader.join().unwrap();
        });
    }
}

#[test]
fn what_cannot_be_dug_is_refused() {
    let Some(disk) = Disk::new("ramfs") else { return };
    let file = hollow_file(&disk.path("f"));
    assert_eq!(errno(dig(&file, Writers::Unknown, |_| ())), libc::EOPNOTSUPP);
    assert_eq!(errno(dig(&file, Writers::None, |_| ())), libc::EOPNOTSUPP);
    let reader = File::open(disk.path("f")).unwrap();
    assert_eq!(errno(dig(&reader, Writers::None, |_| ())), libc::EBADF);
    assert_eq!(
        errno(dig(File::open(disk.root()).unwrap(), Writers::None, |_| ())),
        libc::EISDIR
    );
}
