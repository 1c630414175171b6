//! Sorts in place that end at every possible moment, and what cannot be sorted so.

#![allow(clippy::disallowed_methods, reason = "tests look at what is really there")]

mod foreign;
mod shortage;

use std::ffi::OsStr;
use std::sync::Arc;

use elbow_file::RealStorage;
use elbow_file::double::{Faulty, Interposed, Plan, Volatile};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;

use super::*;

/// Three pages of records: the unit of the tests.
const RECORD_BYTES: usize = 24;
const UNIT_RECORDS: usize = 4096 * 3 / RECORD_BYTES;
/// Crash images per moment, at most.
const IMAGES: usize = 8;

struct Testbed {
    root: TempDir,
    format: RecordFormat,
    input: Vec<u8>,
    sorted: Vec<u8>,
}

impl Testbed {
    /// Records with few different keys and a number each, so that a lost, doubled or misplaced one shows.
    fn new(records: usize, seed: u64) -> Self {
        Self::on(tempfile::tempdir().expect("a directory"), records, seed)
    }

    fn on(root: TempDir, records: usize, seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let format = RecordFormat::new(RECORD_BYTES, vec!["0:4:u32le".parse().expect("a key")]).expect("a format");
        let mut input = Vec::new();
        for number in 0..records as u64 {
            input.extend(rng.random_range(0..50_u32).to_le_bytes());
            input.extend(number.to_le_bytes());
            input.extend([7; 12]);
        }
        let mut all: Vec<&[u8]> = input.chunks(RECORD_BYTES).collect();
        all.sort_by(|a, b| format.compare(a, b));
        let sorted = all.concat();
        std::fs::write(root.path().join("data"), &input).expect("writing the input");
        Self {
            root,
            format,
            input,
            sorted,
        }
    }

    fn memory(&self) -> Memory {
        Memory::tiny(&self.format, 4, 2)
    }

    fn begin(&self, storage: &dyn Storage, meter: &Meter) -> Result<Summary> {
        let target = target(self.root.path());
        begin(storage, &target, &self.format, true, self.memory(), meter)
    }

    fn go_on(&self, storage: &dyn Storage, root: &Path) -> Result<Summary> {
        let memory = self.memory();
        let divide = move |_: &RecordFormat| Ok(memory);
        go_on(
            storage,
            &target(root),
            &divide,
            |_, _, _, _, _| Ok(()),
            &Meter::default(),
        )
    }

    fn content(&self, root: &Path) -> &'static str {
        match std::fs::read(root.join("data")).expect("the data is there") {
            data if data == self.sorted => "sorted",
            data if data == self.input => "as it was",
            _ => "something else",
        }
    }

    fn is_clean(root: &Path) -> bool {
        std::fs::read_dir(root).expect("a directory").count() == 1
    }
}

/// The process ends at this changing call.
fn dies_at(change: u64) -> Interposed<Faulty> {
    Interposed::new(Arc::new(RealStorage), Faulty::new([Plan::stop_at_change(change)]))
}

fn target(root: &Path) -> SortTarget {
    SortTarget {
        dir: RealStorage::open_root(root).expect("the directory"),
        name: "data".into(),
        path: root.join("data"),
    }
}

#[test]
fn every_number_of_runs_and_passes_is_sorted_in_the_same_inode() {
    for records in [
        0,
        1,
        UNIT_RECORDS - 1,
        UNIT_RECORDS,
        3 * UNIT_RECORDS + 5,
        23 * UNIT_RECORDS + 77,
    ] {
        let testbed = Testbed::new(records, 1);
        let stat = || {
            RealStorage
                .stat(&target(testbed.root.path()).dir, OsStr::new("data"))
                .expect("a file")
        };
        let before = stat();
        let summary = testbed.begin(&RealStorage, &Meter::default()).expect("a sort");
        assert_eq!(summary.runs, records.div_ceil(UNIT_RECORDS) as u64);
        assert_eq!(
            testbed.content(testbed.root.path()),
            if records < 2 {
                testbed.content(testbed.root.path())
            } else {
                "sorted"
            }
        );
        assert_eq!(
            (stat().ino, stat().size),
            (before.ino, before.size),
            "{records} records"
        );
        assert!(Testbed::is_clean(testbed.root.path()), "{records} records");
    }
}

/// The process ends at every changing call; what is there is resumed, ended there too, and resumed again.
#[test]
fn a_sort_that_is_killed_at_any_call_is_resumed() {
    let records = 5 * UNIT_RECORDS + 100;
    for death in 1.. {
        let testbed = Testbed::new(records, 2);
        let faulty = dies_at(death);
        let ended = testbed.begin(&faulty, &Meter::default());
        if faulty.hook().fired() == 0 {
            ended.expect("a sort that nothing disturbs");
            assert!(death > 100, "only {death} changing calls");
            return;
        }
        assert!(ended.is_err(), "death at call {death} went unnoticed");
        let root = testbed.root.path();
        for again in [death % 13 + 1, u64::MAX] {
            let faulty = dies_at(again);
            match testbed.go_on(&faulty, root) {
                Err(SortError::NothingToResume { .. }) => assert_ne!(testbed.content(root), "something else"),
                Err(_) => assert!(faulty.hook().fired() > 0, "resumed after {death}: failed by itself"),
                Ok(_) => {}
            }
        }
        match testbed.content(root) {
            "sorted" => {}
            "as it was" => {
                testbed
                    .begin(&RealStorage, &Meter::default())
                    .expect("a new sort of an untouched file");
            }
            other => panic!("death at call {death}: {other}"),
        }
        assert_eq!(
            (testbed.content(root), Testbed::is_clean(root)),
            ("sorted", true),
            "death at call {death}"
        );
    }
}

/// Power fails at every moment: any of the changes that were not synced survive, whole, torn or not at all.
#[test]
fn a_sort_survives_the_loss_of_whatever_was_not_synced() {
    let testbed = Testbed::new(5 * UNIT_RECORDS + 100, 3);
    let root = RealStorage::open_root(testbed.root.path()).expect("the directory");
    let volatile = Volatile::new(Arc::new(RealStorage), &root).expect("a double");
    let start = volatile.now();
    testbed.begin(&volatile, &Meter::default()).expect("a sort");
    let (mut resumed, mut untouched) = (0, 0);
    for moment in start..=volatile.now() {
        for image in volatile.crash_at(moment).images(moment as u64).take(IMAGES) {
            let crashed = tempfile::tempdir().expect("a directory");
            let dir = RealStorage::open_root(crashed.path()).expect("the directory");
            image.write_to(&RealStorage, &dir).expect("an image");
            match testbed.go_on(&RealStorage, crashed.path()) {
                Ok(_) => resumed += 1,
                Err(SortError::NothingToResume { .. }) => {
                    untouched += usize::from(testbed.content(crashed.path()) == "as it was");
                    assert_ne!(testbed.content(crashed.path()), "something else", "{image}");
                    continue;
                }
                Err(error) => panic!("{image}: {error}"),
            }
            assert_eq!(testbed.content(crashed.path()), "sorted", "{image}");
        }
    }
    assert!(
        resumed > 100 && untouched > 0,
        "{resumed} resumed, {untouched} untouched"
    );
}

#[test]
fn one_that_is_asked_to_stop_stops_and_is_resumed() {
    let testbed = Testbed::new(9 * UNIT_RECORDS, 4);
    let meter = Meter::default();
    meter.stop();
    assert!(matches!(testbed.begin(&RealStorage, &meter), Err(SortError::Stopped)));
    assert!(matches!(
        testbed.begin(&RealStorage, &Meter::default()),
        Err(SortError::Unfinished(_))
    ));
    let options = Options {
        memory_bytes: 8 << 20,
        threads: 2,
        stable: true,
    };
    resume(&RealStorage, &target(testbed.root.path()), &options, &Meter::default()).expect("resumed");
    assert_eq!(testbed.content(testbed.root.path()), "sorted");
}

#[test]
fn what_cannot_be_sorted_in_place_is_refused_and_left_alone() {
    let testbed = Testbed::new(10, 5);
    let path = testbed.root.path().join("data");
    std::fs::write(&path, [1; 25]).expect("writing");
    let error = testbed
        .begin(&RealStorage, &Meter::default())
        .expect_err("a part of a record");
    assert!(
        error.to_string().ends_with("the last one, at byte 24, has only 1"),
        "{error}"
    );
    assert!(Testbed::is_clean(testbed.root.path()));

    let locked = RealStorage
        .open(&target(testbed.root.path()).dir, OsStr::new("data"), Access::Read)
        .expect("a file");
    assert!(try_lock(&locked).expect("a lock"));
    assert!(matches!(
        testbed.begin(&RealStorage, &Meter::default()),
        Err(SortError::Busy(_))
    ));
    assert!(matches!(
        testbed.go_on(&RealStorage, testbed.root.path()),
        Err(SortError::NothingToResume { .. })
    ));

    std::fs::remove_file(&path).expect("removing");
    std::fs::create_dir(&path).expect("making");
    assert!(matches!(
        testbed.begin(&RealStorage, &Meter::default()),
        Err(SortError::NotAFile(_))
    ));
}

#[test]
fn a_manifest_that_is_damaged_or_of_another_file_is_refused_and_nothing_is_touched() {
    let testbed = Testbed::new(9 * UNIT_RECORDS, 6);
    let faulty = dies_at(60);
    testbed.begin(&faulty, &Meter::default()).expect_err("killed");
    assert!(faulty.hook().fired() > 0);
    let (root, options) = (
        testbed.root.path(),
        Options {
            memory_bytes: 8 << 20,
            threads: 1,
            stable: true,
        },
    );
    let manifest = side_directory(&root.join("data")).join(manifest::NAME);
    let (good, data) = (
        std::fs::read(&manifest).expect("a manifest"),
        std::fs::read(root.join("data")).expect("data"),
    );

    let mut bad = good.clone();
    bad.iter_mut().for_each(|byte| *byte ^= 1);
    std::fs::write(&manifest, &bad).expect("writing");
    let resumed = resume(&RealStorage, &target(root), &options, &Meter::default());
    assert!(matches!(resumed, Err(SortError::BadManifest { .. })), "{resumed:?}");

    std::fs::write(&manifest, &good).expect("writing");
    std::fs::write(root.join("other"), &data).expect("writing");
    std::fs::rename(root.join("other"), root.join("data")).expect("renaming");
    let resumed = resume(&RealStorage, &target(root), &options, &Meter::default());
    assert!(matches!(resumed, Err(SortError::ForeignManifest { .. })), "{resumed:?}");
    assert!(
        std::fs::read(root.join("data")).expect("data") == data,
        "the data was changed"
    );
}

/// One copy of the manifest rots after the end: the other says the same, and not what was before things were freed.
#[test]
fn a_manifest_of_which_one_copy_is_damaged_is_as_good_as_a_whole_one() {
    let mut resumed = 0;
    for (death, copy) in (20..110).step_by(6).flat_map(|death| [(death, 0), (death, 1)]) {
        let testbed = Testbed::new(9 * UNIT_RECORDS, 7);
        let faulty = dies_at(death);
        testbed.begin(&faulty, &Meter::default()).expect_err("killed");
        assert!(faulty.hook().fired() > 0);
        let path = side_directory(&testbed.root.path().join("data")).join(manifest::NAME);
        let mut bytes = std::fs::read(&path).expect("a manifest");
        let slot = bytes.len() / 2;
        bytes[copy * slot..][..40].iter_mut().for_each(|byte| *byte ^= 1);
        std::fs::write(&path, &bytes).expect("writing");
        match testbed.go_on(&RealStorage, testbed.root.path()) {
            // It died while it wrote the other copy.
            Err(SortError::BadManifest { .. }) => {}
            ended => {
                ended.expect("resumed");
                assert_eq!(
                    testbed.content(testbed.root.path()),
                    "sorted",
                    "death at call {death}, copy {copy}"
                );
                resumed += 1;
            }
        }
    }
    assert!(resumed >= 20, "{resumed} resumed");
}

/// The passes before the one that a sort was in when it ended were forgotten, and a sort that went on never came to its end.
#[test]
fn what_is_done_of_a_sort_counts_all_its_passes() {
    let (size, fan_in) = (400, 2);
    let first = Pass::first(size, 100, fan_in);
    let passes = Pass::count(first.runs() as u64, fan_in);
    assert_eq!(passes, 2);
    let second = first.next(fan_in).expect("a second pass");
    let at = |state: &SortState| super::done(state, size, passes, fan_in);
    assert_eq!(at(&SortState::Forming { formed: 100 }), 100);
    assert_eq!(at(&SortState::Merging(first)), size);
    assert_eq!(at(&SortState::Merging(second)), 2 * size);
    assert_eq!(at(&SortState::Finishing), 3 * size);
}
