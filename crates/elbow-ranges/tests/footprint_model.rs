//! `Footprint`, `compress` and `BlockBitmap` against a naive set of points, and their encoding against damage.
#![allow(clippy::unwrap_used, clippy::single_range_in_vec_init)]

mod support;

use std::ops::Range;

use elbow_ranges::encoding::{Reader, Writer};
use elbow_ranges::{BlockBitmap, Dim, Footprint, Mode, PatternError, RangeSet, Strided, compress};
use rand::Rng;
use rand::rngs::StdRng;
use support::{for_each_seed, range};

const POINTS: u64 = 3000;

/// Bytes with what they stand for.
fn encoded(footprint: &Footprint) -> Vec<u8> {
    let mut writer = Writer::new();
    footprint.encode(&mut writer);
    writer.finish()
}

fn decoded(bytes: &[u8]) -> Option<Footprint> {
    let mut reader = Reader::new(bytes);
    let footprint = Footprint::decode(&mut reader).ok()?;
    reader.finish().ok()?;
    Some(footprint)
}

fn pattern(rng: &mut StdRng) -> Strided {
    let depth = rng.random_range(0..4);
    let dims: Vec<Dim> = (0..depth)
        .map(|_| Dim {
            count: rng.random_range(1..7),
            stride: [6, 10, 60, 100, rng.random_range(1..300)][rng.random_range(0..5)],
        })
        .collect();
    Strided::new(rng.random_range(0..POINTS / 2), &dims, rng.random_range(1..12)).unwrap()
}

/// A list as programs make it: some loops, some odd pieces, in any order.
fn list(rng: &mut StdRng) -> Vec<Range<u64>> {
    let mut list: Vec<Range<u64>> = (0..rng.random_range(0..4))
        .flat_map(|_| pattern(rng).iter().collect::<Vec<_>>())
        .collect();
    let odd = rng.random_range(if list.is_empty() { 1..20 } else { 0..20 });
    list.extend((0..odd).map(|_| {
        let start = rng.random_range(0..POINTS);
        start..start + rng.random_range(1..30)
    }));
    if rng.random() {
        list.reverse();
    }
    list
}

fn footprint(rng: &mut StdRng) -> (Footprint, RangeSet) {
    match rng.random_range(0..8) {
        0 => (Footprint::whole(), RangeSet::from_iter([0..u64::MAX])),
        1 => {
            let (start, end) = range(rng, POINTS);
            (
                Footprint::extent(start..end + 1).unwrap(),
                RangeSet::from_iter([start..end + 1]),
            )
        }
        2..5 => {
            let list = list(rng);
            let footprint =
                Footprint::from_list(list.iter().map(|range| (range.start, range.end - range.start))).unwrap();
            (footprint, list.into_iter().collect())
        }
        5..7 => {
            let patterns: Vec<Strided> = (0..rng.random_range(1..5)).map(|_| pattern(rng)).collect();
            let points = patterns.iter().flat_map(Strided::iter).collect();
            (Footprint::from_patterns(patterns).unwrap(), points)
        }
        _ => {
            let block_bytes = [1, 16, 50][rng.random_range(0..3)];
            let mut blocks = BlockBitmap::new(block_bytes).unwrap();
            let list = list(rng);
            list.iter().for_each(|range| blocks.insert(range.clone()).unwrap());
            (
                Footprint::from_blocks(blocks).unwrap(),
                list.into_iter().map(|range| round(range, block_bytes)).collect(),
            )
        }
    }
}

fn round(range: Range<u64>, block_bytes: u64) -> Range<u64> {
    range.start / block_bytes * block_bytes..range.end.next_multiple_of(block_bytes)
}

#[test]
fn what_it_covers_equals_the_model() {
    for_each_seed(|rng| {
        let (footprint, model) = footprint(rng);
        let ranges: Vec<_> = model.iter().collect();
        assert_eq!(footprint.iter().collect::<Vec<_>>(), ranges, "{footprint}");
        assert_eq!(footprint.bounds(), model.span().unwrap());
        assert!(footprint.segments() >= ranges.len() as u64 && footprint.total_bytes() >= model.total_bytes());
    });
}

#[test]
fn overlaps_equal_the_model() {
    let mut met = [0, 0];
    let counts = std::cell::RefCell::new(&mut met);
    for_each_seed(|rng| {
        for _ in 0..20 {
            let ((a, a_model), (b, b_model)) = (footprint(rng), footprint(rng));
            let expected = !a_model.intersection(&b_model).is_empty();
            assert_eq!(a.overlaps(&b), expected, "{a:?} and {b:?}");
            assert_eq!(b.overlaps(&a), expected, "{b:?} and {a:?}");
            let union: RangeSet = a.union(&b).iter().collect();
            assert_eq!(union, a_model.union(&b_model), "{a:?} or {b:?}");
            let (start, end) = range(rng, POINTS);
            assert_eq!(
                a.overlaps_range(start..end),
                a_model.overlaps(start, end),
                "{a:?} and {start}..{end}"
            );
            counts.borrow_mut()[usize::from(expected)] += 1;
        }
    });
    let [apart, together] = met;
    assert!(
        std::env::var("SEED").is_ok() || (apart > 100 && together > 100),
        "one-sided: {apart} apart, {together} together"
    );
}

/// The boxes of two patterns meet in one byte, the last of the one and the first of the other.
#[test]
fn boxes_that_meet_in_one_byte_meet() {
    let comb = |start, len| Strided::new(start, &[Dim { count: 10, stride: 100 }], len).unwrap();
    let list = |patterns: [Strided; 2]| Footprint::from_patterns(patterns).unwrap();
    let before = list([comb(0, 7), comb(20, 3)]); // up to 923, the first one up to 907
    let after = |start| list([comb(start, 11), comb(start + 5000, 13)]);
    assert!(before.overlaps(&after(922)) && after(922).overlaps(&before));
    assert!(!before.overlaps(&after(923)) && !after(923).overlaps(&before));
}

#[test]
fn what_the_ranks_of_an_array_cover_is_put_together() {
    let block = |start| {
        Strided::new(
            start,
            &[(50, 40_000), (50, 400)].map(|(count, stride)| Dim { count, stride }),
            200,
        )
        .unwrap()
    };
    let starts = (0..8).map(|rank| rank % 2 * 200 + rank / 2 % 2 * 20_000 + rank / 4 * 2_000_000);
    let all = Footprint::from_patterns(starts.clone().map(block)).unwrap();
    assert_eq!(all, Footprint::extent(0..4_000_000).unwrap());
    let but_one = starts
        .skip(1)
        .map(|start| Footprint::from(block(start)))
        .reduce(|a, b| a.union(&b))
        .unwrap();
    assert!(!but_one.overlaps(&block(0).into()), "{but_one}");
    assert_eq!(
        but_one.iter().map(|range| range.end - range.start).sum::<u64>(),
        3_500_000
    );
}

#[test]
fn a_list_is_compressed_without_loss_and_never_longer() {
    for_each_seed(|rng| {
        let list = list(rng);
        let model: RangeSet = list.iter().cloned().collect();
        let patterns = compress(list.clone());
        assert!(patterns.is_sorted());
        assert_eq!(patterns.iter().flat_map(Strided::iter).collect::<RangeSet>(), model);
        let pieces: u64 = patterns.iter().map(Strided::total_bytes).sum();
        assert_eq!(pieces, model.total_bytes(), "no byte is in two patterns");
        let footprint = Footprint::from_list(list.iter().map(|range| (range.start, range.end - range.start))).unwrap();
        let mut plain = Writer::new();
        plain.ranges(&model);
        // One byte says which form it is, and one that there are no patterns.
        assert!(encoded(&footprint).len() <= plain.finish().len() + 2, "{footprint:?}");
    });
}

#[test]
fn loops_over_arrays_become_one_pattern() {
    let dims = |dims: &[(u64, u64)]| {
        dims.iter()
            .map(|&(count, stride)| Dim { count, stride })
            .collect::<Vec<_>>()
    };
    for (dims, len) in [
        (dims(&[(50, 40_000), (50, 400)]), 200),
        (dims(&[(2, 1 << 40), (2, 1 << 30), (2, 1 << 20), (2, 1 << 10)]), 7),
        (dims(&[(7, 5000), (6, 700), (5, 90), (3, 12)]), 5),
    ] {
        let pattern = Strided::new(12, &dims, len).unwrap();
        assert_eq!(compress(pattern.iter()), [pattern]);
    }
    // Two combs between each other's teeth, and a tail that is none.
    let (a, b) = (
        Strided::new(0, &dims(&[(100, 50)]), 10).unwrap(),
        Strided::new(20, &dims(&[(100, 50)]), 5).unwrap(),
    );
    let found = compress(a.iter().chain(b.iter()).chain([9000..9100]));
    assert_eq!(found, [a, b, Strided::range(9000..9100).unwrap()]);
    // A loop that the list cuts off at both ends.
    let rows = Strided::new(0, &dims(&[(50, 1000), (20, 10)]), 4).unwrap();
    let cut: Vec<_> = rows.iter().skip(19).take(960).collect();
    assert!(compress(cut).len() <= 4);
}

/// More shapes than the index of shapes has slots: what it forgets only gets another number, and no range is lost.
#[test]
fn a_list_of_very_many_lengths_is_compressed_without_loss() {
    let lengths = 70_000_u64;
    let at = |row: u64, field: u64| row * 100_000_000_000 + field * 1_000_000 + field * field % 7919;
    let list: Vec<_> = (0..3)
        .flat_map(|row| (0..lengths).map(move |field| at(row, field)..at(row, field) + field + 1))
        .collect();
    let patterns = compress(list.iter().cloned());
    let pieces: u64 = patterns.iter().map(Strided::segments).sum();
    assert_eq!(pieces, 3 * lengths);
    let model: RangeSet = list.into_iter().collect();
    assert_eq!(patterns.iter().flat_map(Strided::iter).collect::<RangeSet>(), model);
}

/// What a long list has of patterns is found where it is more than a few: also where one row of it is longer than what is looked at first.
#[test]
fn long_lists_are_searched_where_they_repeat() {
    let odd = |number: u64| number * 1_000_003 % 7919;
    let rows =
        (0..20).flat_map(|row| (0..200).map(move |field| (row * 10_000_000 + field * 20_000 + odd(field), 1 + field)));
    assert!(
        Footprint::from_list(rows).unwrap().encoded_bytes() < 200 * 12,
        "200 fields, 20 times"
    );
    // Two combs whose teeth drift past each other, so that no two neighbours are like others.
    let combs = (0..1000_u64).flat_map(|tooth| [(tooth * 1_000_000, 8), (500_000 + tooth * 1_000_001, 16)]);
    assert_eq!(
        Footprint::from_list(combs).unwrap().to_string().matches(" x ").count(),
        2
    );
    let none = (0..4000_u64).map(|number| (number * 100_000 + odd(number * number) * 7, 1 + odd(number) % 1000));
    assert!(Footprint::from_list(none).unwrap().encoded_bytes() > 4000 * 4);
}

/// A pattern among irregular ranges is found, wherever it is, and nothing else changes.
#[test]
fn a_pattern_amid_irregular_ranges_is_found() {
    for_each_seed(|rng| {
        let mut at = 0;
        let mut odd = |rng: &mut StdRng, count: u32| -> Vec<std::ops::Range<u64>> {
            let one = |_| {
                let start = at + rng.random_range(1_u64..1 << 30);
                at = start + rng.random_range(1_u64..1 << 20);
                start..at
            };
            (0..count).map(one).collect()
        };
        let before = odd(rng, 40);
        let start = before.last().unwrap().end + 1;
        let comb = Strided::new(
            start,
            &[Dim {
                count: 20,
                stride: 1000,
            }],
            7,
        )
        .unwrap();
        let (end, after) = (comb.bounds().end, odd(rng, 40));
        let after = after.into_iter().map(|range| range.start + end..range.end + end);
        let list: Vec<_> = before.into_iter().chain(comb.iter()).chain(after).collect();
        let found = compress(list.iter().cloned());
        assert!(found.contains(&comb), "{found:?}");
        assert_eq!(found.len(), 81);
        assert_eq!(
            found.iter().flat_map(Strided::iter).collect::<RangeSet>(),
            list.into_iter().collect()
        );
    });
}

#[test]
fn coarser_covers_at_least_as_much() {
    for_each_seed(|rng| {
        let (footprint, model) = footprint(rng);
        assert!(footprint.coarsen(Mode::File).is_whole());
        assert_eq!(footprint.coarsen(Mode::List), footprint);
        let extent: Vec<_> = footprint.coarsen(Mode::Extent).iter().collect();
        assert_eq!(extent, [model.span().unwrap()]);
        if footprint.is_whole() {
            return;
        }
        let block_bytes = rng.random_range(1..120);
        let blocks: RangeSet = footprint.coarsen(Mode::Blocks(block_bytes)).iter().collect();
        assert_eq!(
            blocks,
            model.iter().map(|range| round(range, block_bytes)).collect(),
            "{footprint} in {block_bytes}"
        );
    });
}

#[test]
fn what_was_written_comes_back() {
    for_each_seed(|rng| {
        let (footprint, _) = footprint(rng);
        let bytes = encoded(&footprint);
        assert_eq!(footprint.encoded_bytes(), bytes.len(), "{footprint}");
        let within = [bytes.len() - 1, bytes.len(), 20 * bytes.len() + 100].map(|most| footprint.encodes_within(most));
        assert_eq!(within, [false, true, true], "{footprint}");
        assert_eq!(decoded(&bytes).as_ref(), Some(&footprint));
        for cut in 0..bytes.len() {
            assert!(decoded(&bytes[..cut]).is_none(), "cut at {cut}: {footprint}");
        }
    });
}

/// Damage is refused, or gives another value whose one encoding is the damaged bytes.
#[test]
fn no_other_bytes_stand_for_a_value() {
    for_each_seed(|rng| {
        let mut bytes = encoded(&footprint(rng).0);
        for _ in 0..200 {
            let at = rng.random_range(0..bytes.len());
            let kept = bytes[at];
            bytes[at] = rng.random();
            if let Some(other) = decoded(&bytes) {
                assert_eq!(encoded(&other), bytes, "{other}");
            }
            bytes[at] = kept;
        }
    });
}

#[test]
fn hostile_bytes_say_where_they_are_bad() {
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    let with = |head: &[u8], tail: &[u8]| {
        Footprint::decode(&mut Reader::new(&[head, &huge, tail].concat()))
            .unwrap_err()
            .to_string()
    };
    let runs = with(&[0x12], &[]);
    assert!(
        runs.starts_with("truncated at byte 11: 18446744073709551615 more bytes"),
        "{runs}"
    );
    assert!(with(&[0x12, 0], &[]).starts_with("truncated at byte 12"));
    assert!(with(&[0x11, 0], &[]).starts_with("truncated at byte 12"));
    let overflow = with(&[0x11, 0, 1, 2], &[4]);
    assert_eq!(
        overflow,
        "bad value at byte 0: no pattern: empty, too tangled or past 2^64"
    );
    let form = with(&[0x2f], &[]);
    assert_eq!(
        form,
        "bad value at byte 0: a footprint of a form or version that is not known here"
    );
    let uncanonical = Footprint::decode(&mut Reader::new(&[0x11, 0, 1, 3, 4, 4]))
        .unwrap_err()
        .to_string();
    assert_eq!(
        uncanonical,
        "bad value at byte 0: a pattern in another than its canonical form"
    );
    assert!(with(&[0x13], &[0, 1, 4, 0x80]).starts_with("truncated"));
    assert_eq!(
        with(&[0x13], &[0, 1, 4, 1]),
        "bad value at byte 1: a block lies past 2^64"
    );
}

#[test]
fn a_block_of_an_array_takes_few_bytes() {
    let rows = (0..50).flat_map(|z| (0..50).map(move |y| (200 + z * 40_000 + y * 400, 200)));
    assert_eq!(encoded(&Footprint::from_list(rows).unwrap()).len(), 13);
}

#[test]
fn nothing_and_too_much_are_refused() {
    assert_eq!(Footprint::from_list([]), Err(PatternError::Empty));
    assert_eq!(Footprint::from_list([(5, 0)]), Err(PatternError::Empty));
    assert_eq!(Footprint::from_list([(5, u64::MAX - 4)]), Err(PatternError::Overflow));
    assert_eq!(Footprint::from_patterns([]), Err(PatternError::Empty));
    assert_eq!(Footprint::extent(5..5), Err(PatternError::Empty));
    assert_eq!(
        Footprint::from_blocks(BlockBitmap::new(8).unwrap()),
        Err(PatternError::Empty)
    );
    assert_eq!(BlockBitmap::new(0), Err(PatternError::Empty));
    assert!(Footprint::extent(0..u64::MAX).unwrap().is_whole());
    let mut blocks = BlockBitmap::new(1).unwrap();
    assert!(matches!(
        blocks.insert(0..1 << 40),
        Err(PatternError::TooManyBlocks { .. })
    ));
    // As one range then, rather than as a bitmap of a thousand GiB.
    let huge = Footprint::from_list([(0, 1 << 62), ((1 << 62) + 7, 1)]).unwrap();
    assert_eq!(
        huge.coarsen(Mode::Blocks(2)),
        Footprint::extent(0..(1 << 62) + 8).unwrap()
    );
    let last = Footprint::extent(u64::MAX - 3..u64::MAX).unwrap();
    assert_eq!(
        last.coarsen(Mode::Blocks(1 << 20)).bounds(),
        u64::MAX - (1 << 20) + 1..u64::MAX
    );
}

/// More pieces than can be counted: a bound on work that was their number plus something overflowed.
#[test]
fn countless_pieces_are_compared() {
    let countless = |phase: u64| {
        let dims = [43, 22, 1].map(|bits| Dim {
            count: 1 << 20,
            stride: 1 << bits,
        });
        Footprint::from_patterns(
            (0..60).map(|i| Strided::new(phase + i * i * i * 1024 * 1024 * 1024, &dims, 1).unwrap()),
        )
        .unwrap()
    };
    let (even, odd) = (countless(0), countless(1));
    assert_eq!(even.segments(), u64::MAX);
    assert!(!even.overlaps(&odd) && even.overlaps(&even));
}

/// Unrelated strides, 2^40 pieces: arithmetic alone has to decide, or the bound on work has to end it.
#[test]
fn hostile_patterns_are_compared_in_bounded_time() {
    let primes = [1_000_003, 1_009, 1_000_000_007, 10_007, 999_983, 1_013];
    let nested = |start: u64, [a, b, c]: [u64; 3]| {
        let mut dims = [a, b, c].map(|stride| Dim { count: 60, stride });
        dims.sort_by_key(|dim| std::cmp::Reverse(dim.stride));
        Strided::new(start, &dims, 1)
    };
    let start = std::time::Instant::now();
    let a = nested(0, [primes[0], primes[1], primes[2]]).unwrap();
    let b = nested(1, [primes[3], primes[4], primes[5] * 61]).unwrap();
    for shift in 0..50 {
        let b = Strided::new(b.bounds().start + shift * 7, &b.dims().collect::<Vec<_>>(), 1).unwrap();
        let (ours, theirs) = (a.try_overlaps(&b), b.try_overlaps(&a));
        assert_eq!(ours, theirs, "the same answer both ways");
    }
    let many = |phase: u64| {
        let patterns = (0..2000).map(|i| {
            Strided::new(
                i * 2 + phase,
                &[Dim {
                    count: 1 << 30,
                    stride: 8009 + 2 * i,
                }],
                1,
            )
            .unwrap()
        });
        Footprint::from_patterns(patterns).unwrap()
    };
    let _ = many(0).overlaps(&many(1));
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}
