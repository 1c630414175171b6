//! `BlockBitmap` against a naive set of blocks, around the borders of its containers and of its halves.
#![allow(clippy::unwrap_used)]

mod support;

use std::ops::Range;

use elbow_ranges::encoding::{Reader, Writer};
use elbow_ranges::{BlockBitmap, Footprint, PatternError, RangeSet};
use rand::Rng;
use rand::rngs::StdRng;
use support::for_each_seed;

/// Blocks near which things can go wrong: Roaring keeps 2^16 to a container and 2^32 to a half.
const BORDERS: [u64; 5] = [0, 1 << 16, 5 << 16, 1 << 32, (7 << 32) + (9 << 16)];
const NEAR: u64 = 600;

fn run(rng: &mut StdRng) -> Range<u64> {
    let around = BORDERS[rng.random_range(0..BORDERS.len())].max(NEAR / 2) - NEAR / 2;
    let start = around + rng.random_range(0..NEAR);
    let longest = [3, 90, 200_000][rng.random_range(0..3)];
    start..start + rng.random_range(1..longest)
}

/// Blocks of a size and the ranges that they are.
fn bitmap(rng: &mut StdRng) -> (BlockBitmap, RangeSet) {
    let block_bytes = [1, 3, 4096][rng.random_range(0..3)];
    let mut bitmap = BlockBitmap::new(block_bytes).unwrap();
    let mut model = RangeSet::new();
    let dense = rng.random_range(0..300);
    let scattered = (0..dense)
        .map(|bit| (1 << 16) - 150 + bit)
        .filter(|_| rng.random())
        .map(|block| block..block + 1);
    let runs: Vec<_> = scattered.collect();
    let more = rng.random_range(usize::from(runs.is_empty())..6);
    for run in runs.into_iter().chain((0..more).map(|_| run(rng))) {
        bitmap.insert(run.start * block_bytes..run.end * block_bytes).unwrap();
        model.insert(run.start * block_bytes, run.end * block_bytes);
    }
    (bitmap, model)
}

#[test]
fn blocks_equal_the_model() {
    for_each_seed(|rng| {
        let ((a, a_model), (b, b_model)) = (bitmap(rng), bitmap(rng));
        assert_eq!(a.iter().collect::<RangeSet>(), a_model);
        assert_eq!(Some(a.bounds()), a_model.span());
        assert_eq!(a.total_bytes(), a_model.total_bytes());
        assert_eq!(a.len(), a_model.total_bytes() / a.block_bytes());
        assert_eq!(a.overlaps(&b), a_model.intersects(&b_model), "{a} and {b}");
        for range in b_model.iter().take(20) {
            assert_eq!(
                a.overlaps_range(range.clone()),
                a_model.overlaps(range.start, range.end)
            );
        }
        let mut union = a.clone();
        match union.union_with(&b) {
            Ok(()) => assert_eq!(union.iter().collect::<RangeSet>(), a_model.union(&b_model)),
            Err(error) => {
                assert!(matches!(error, PatternError::BlockSizes { .. }) && a.block_bytes() != b.block_bytes());
            }
        }
        // A bitmap and a list of the same points.
        let list = Footprint::from_list(b_model.iter().map(|range| (range.start, range.end - range.start))).unwrap();
        let blocks = Footprint::from_blocks(a).unwrap();
        assert_eq!(blocks.overlaps(&list), a_model.intersects(&b_model));
        assert_eq!(list.overlaps(&blocks), a_model.intersects(&b_model));
    });
}

/// Points before, in and after halves that have no block: an overlap in the half after them was overlooked.
#[test]
fn ranges_anywhere_meet_the_blocks_that_they_cover() {
    for_each_seed(|rng| {
        let (mut bitmap, blocks) = (BlockBitmap::new(1).unwrap(), run(rng));
        bitmap.insert(blocks.clone()).unwrap();
        for _ in 0..50 {
            let (a, b) = (run(rng), run(rng));
            let (start, end) = (a.start.min(b.start), a.end.max(b.end));
            let meets = start < blocks.end && blocks.start < end;
            assert_eq!(
                bitmap.overlaps_range(start..end),
                meets,
                "{start}..{end} and {blocks:?}"
            );
        }
    });
}

#[test]
fn encoding_is_the_shorter_of_two() {
    for_each_seed(|rng| {
        let (bitmap, _) = bitmap(rng);
        let mut writer = Writer::new();
        bitmap.encode(&mut writer);
        let bytes = writer.finish();
        let mut reader = Reader::new(&bytes);
        assert_eq!(BlockBitmap::decode(&mut reader).as_ref(), Ok(&bitmap));
        reader.finish().unwrap();
        let mut runs = Writer::new();
        runs.varint(bitmap.block_bytes());
        runs.u8(0);
        let blocks = bitmap
            .iter()
            .map(|range| range.start / bitmap.block_bytes()..range.end / bitmap.block_bytes());
        runs.ranges(&blocks.collect());
        let runs = runs.finish();
        if bytes != runs {
            assert!(bytes.len() < runs.len(), "runs where they are equally long");
            let error = BlockBitmap::decode(&mut Reader::new(&runs)).unwrap_err().to_string();
            assert_eq!(error, "bad value at byte 0: a bitmap is in its longer form");
        }
        for at in 0..bytes.len().min(40) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << rng.random_range(0..8);
            let mut reader = Reader::new(&damaged);
            if let Ok(other) = BlockBitmap::decode(&mut reader)
                && reader.left() == 0
            {
                let mut again = Writer::new();
                other.encode(&mut again);
                assert_eq!(again.finish(), damaged, "one form per value");
            }
        }
    });
}

#[test]
fn runs_are_preferred_where_bits_are_as_short() {
    let form_and_length = |blocks: &[u64]| {
        let mut bitmap = BlockBitmap::new(1).unwrap();
        blocks
            .iter()
            .for_each(|&block| bitmap.insert(block..block + 1).unwrap());
        let mut writer = Writer::new();
        bitmap.encode(&mut writer);
        let bytes = writer.finish();
        (bytes[1], bytes.len())
    };
    // As bits: block size, form, first block, count of bytes, bytes. As runs: block size, form, count, 2 per run.
    assert_eq!(form_and_length(&[0, 2]), (1, 5));
    assert_eq!(form_and_length(&[0, 10]), (1, 6));
    assert_eq!(form_and_length(&[0, 18]), (0, 7)); // 7 as bits, too
    assert_eq!(form_and_length(&[0, 26]), (0, 7));
}

#[test]
fn every_second_block_takes_a_bit_per_block() {
    let mut bitmap = BlockBitmap::new(4096).unwrap();
    (0..10_000).for_each(|pair| bitmap.insert(pair * 8192..pair * 8192 + 1).unwrap());
    let mut writer = Writer::new();
    bitmap.encode(&mut writer);
    assert_eq!(writer.finish().len(), 2 + 1 + 1 + 2 + 2_500);
}

#[test]
fn no_few_bytes_stand_for_much_memory() {
    let mut writer = Writer::new();
    writer.varint(4096);
    writer.u8(0);
    writer.ranges(&RangeSet::from_iter([
        0..BlockBitmap::BLOCKS_MAX,
        1 << 40..(1 << 40) + 1,
    ]));
    let error = BlockBitmap::decode(&mut Reader::new(&writer.finish()))
        .unwrap_err()
        .to_string();
    assert_eq!(error, "bad value at byte 0: a bitmap has too many blocks");

    let mut full = BlockBitmap::new(1).unwrap();
    full.insert(0..BlockBitmap::BLOCKS_MAX).unwrap();
    full.insert(5..1000).unwrap(); // nothing new
    let before = full.clone();
    assert!(matches!(
        full.insert(BlockBitmap::BLOCKS_MAX..BlockBitmap::BLOCKS_MAX + 1),
        Err(PatternError::TooManyBlocks { .. })
    ));
    assert_eq!(full, before);
    let mut one = BlockBitmap::new(1).unwrap();
    one.insert(1 << 40..(1 << 40) + 1).unwrap();
    assert!(matches!(one.union_with(&full), Err(PatternError::TooManyBlocks { .. })));
    assert_eq!(one.len(), 1);
}
