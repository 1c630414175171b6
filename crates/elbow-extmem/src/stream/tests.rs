//! Streams against vectors; freeing, budgets and failing disks.

use std::sync::Arc;

use elbow_file::RealStorage;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::sort::{Meter, RecordFormat, SortError};

fn scratch(budget_bytes: usize) -> (tempfile::TempDir, Scratch) {
    let place = tempfile::tempdir().expect("a directory");
    let dir = RealStorage::open_root(place.path()).expect("the directory");
    let scratch = Scratch::new(
        Arc::new(RealStorage),
        dir,
        place.path().into(),
        MemoryBudget::new(budget_bytes),
    );
    (place, scratch)
}

fn stream(scratch: &Scratch, records: &[u64]) -> Stream<u64> {
    let mut writer = scratch.writer().expect("a stream");
    for record in records {
        writer.push(*record).expect("a record");
    }
    writer.finish().expect("the stream")
}

fn content(stream: Stream<u64>) -> Vec<u64> {
    stream
        .consume()
        .expect("a reader")
        .map(|record| record.expect("a record"))
        .collect()
}

fn random(seed: u64, records: usize) -> Vec<u64> {
    let mut rng = StdRng::seed_from_u64(seed);
    (0..records).map(|_| rng.random_range(0..1000)).collect()
}

#[test]
fn operations_give_what_they_give_on_vectors() {
    let (_place, scratch) = scratch(64 << 20);
    for records in [0, 1, 131_071, 131_072, 131_073, 400_000] {
        let all = random(records as u64, records);
        assert!(content(stream(&scratch, &all)) == all);
        let mapped = stream(&scratch, &all).map(|record| record * 3).expect("mapped");
        assert!(content(mapped) == all.iter().map(|record| record * 3).collect::<Vec<_>>());
        let parts = stream(&scratch, &all)
            .distribute(3, |record| (record % 3) as usize)
            .expect("parts");
        let together = concatenate(&scratch, parts).expect("one stream");
        let expected = (0..3).flat_map(|part| all.iter().copied().filter(move |record| record % 3 == part));
        assert!(content(together) == expected.collect::<Vec<_>>());
    }
    assert_eq!(scratch.budget.left_bytes(), 64 << 20, "all memory was given back");
}

#[test]
fn sorting_and_merging_agree_with_each_other() {
    let (_place, scratch) = scratch(64 << 20);
    let format = RecordFormat::new(8, vec!["0:8:u64le".parse().expect("a key")]).expect("a format");
    let inputs = [random(1, 300_000), random(2, 10), random(3, 0), random(4, 200_001)];
    let sort = |records: &Vec<u64>| {
        let sorted = stream(&scratch, records).sort(&format, 2, &Meter::default());
        sorted.expect("sorted")
    };
    let merged = merge(&scratch, inputs.iter().map(sort).collect(), |record| *record).expect("merged");
    let mut expected = inputs.concat();
    expected.sort_unstable();
    assert!(content(merged) == expected);
    let wrong = RecordFormat::new(9, Vec::new()).expect("a format");
    assert!(matches!(
        stream(&scratch, &[1]).sort(&wrong, 1, &Meter::default()),
        Err(SortError::Refused(_))
    ));
}

#[test]
fn reading_keeps_and_consuming_frees() {
    let (_place, scratch) = scratch(64 << 20);
    let all = random(5, 2 << 20); // 16 MiB
    let stream = stream(&scratch, &all);
    let full = stream.disk_bytes().expect("a size");
    assert!(full >= 16 << 20, "{full}");
    let mut seen = 0;
    stream.scan(|record| seen += record).expect("a scan");
    assert_eq!(seen, all.iter().sum::<u64>());
    assert_eq!(stream.disk_bytes().expect("a size"), full, "a scan frees nothing");
    let (kept, mut reader) = (stream.share(), stream.consume().expect("a reader"));
    assert!((&mut reader).take(1 << 20).all(|record| record.is_ok()));
    let half = kept.disk_bytes().expect("a size");
    assert!(
        half <= full / 2 + (BLOCKS * BLOCK_BYTES) as u64,
        "{half} of {full} after half was read"
    );
    assert!(reader.all(|record| record.is_ok()));
    drop(reader);
}

#[test]
fn records_of_any_length_come_back_as_they_were() {
    let (_place, scratch) = scratch(64 << 20);
    let mut rng = StdRng::seed_from_u64(6);
    let mut lengths: Vec<usize> = (0..3000).map(|_| rng.random_range(0..2000)).collect();
    lengths.extend([0, BLOCK_BYTES - 4, BLOCK_BYTES, 3 * BLOCK_BYTES + 1]);
    let record = |length: usize| vec![length as u8; length];
    let mut writer = scratch.bytes_writer().expect("a stream");
    for length in &lengths {
        writer.push(&record(*length)).expect("a record");
    }
    let stream = writer.finish().expect("the stream");
    assert_eq!(stream.records(), lengths.len() as u64);
    for mut reader in [stream.read().expect("a reader"), stream.consume().expect("a reader")] {
        for length in &lengths {
            assert!(reader.next_record().expect("a record") == Some(&record(*length)));
        }
        assert!(reader.next_record().expect("the end").is_none());
    }
}

#[test]
fn a_used_up_budget_is_refused_and_a_failing_disk_is_heard_of() {
    let (_place, small) = scratch(4 << 20);
    let writer = small.writer::<u64>().expect("a stream");
    let error = small
        .writer::<u64>()
        .err()
        .expect("no memory for a second one")
        .to_string();
    assert!(
        error.contains("only 1048576 of the budget of 4194304 are left"),
        "{error}"
    );
    drop(writer);
    assert!(small.writer::<u64>().is_ok());

    use elbow_file::double::{Faulty, Interposed, Operation, Plan};
    let (place, _) = scratch(0);
    let dir = RealStorage::open_root(place.path()).expect("the directory");
    let plan = Plan::fail(Errno::NOSPC).on(Operation::Write).nth(3).times(u64::MAX);
    let full = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::new([plan])));
    let scratch = Scratch::new(full.clone(), dir, place.path().into(), MemoryBudget::new(64 << 20));
    let mut writer = scratch.writer().expect("a stream");
    let ended = (0..2 << 20_u64).try_for_each(|record| writer.push(record));
    let ended = ended.and_then(|()| writer.finish().map(|_| ()));
    assert!(
        matches!(
            ended,
            Err(SortError::Storage {
                errno: Errno::NOSPC,
                ..
            })
        ),
        "{ended:?}"
    );
    assert!(full.hook().fired() > 0);
}
