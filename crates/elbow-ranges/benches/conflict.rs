//! What one conflict check costs: `cargo bench -p elbow-ranges`; as a test (`cargo test --benches`) it only shows that it runs.
//!
//! The case of the paper's block benchmark on 64 ranks: an array of 100 x 100 x 100 integers of 4 bytes in blocks of 25 x 25 x 25, so 625
//! pieces of 100 bytes per rank. One rank asks while the other 63 hold; nobody conflicts, so that all has to be looked at.
//! Beside it: the same with one tree of ranges per file (the paper's red-black tree), with sorted vectors, with Roaring bitmaps.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::ops::Range;
use std::time::{Duration, Instant};

use elbow_ranges::encoding::{Reader, Writer};
use elbow_ranges::{BlockBitmap, Dim, Footprint, Mode, RangeSet, Strided, compress};

const SIDE: u64 = 100;
const PER_SIDE: u64 = 4;
const ITEM_BYTES: u64 = 4;

fn block(rank: u64) -> Strided {
    let width = SIDE / PER_SIDE;
    let (x, y, z) = (
        rank % PER_SIDE * width,
        rank / PER_SIDE % PER_SIDE * width,
        rank / PER_SIDE / PER_SIDE * width,
    );
    let dims = [SIDE * SIDE, SIDE].map(|items| Dim {
        count: width,
        stride: items * ITEM_BYTES,
    });
    Strided::new(((z * SIDE + y) * SIDE + x) * ITEM_BYTES, &dims, width * ITEM_BYTES).unwrap()
}

/// The median over rounds of the time of one call.
fn measure<R>(name: &str, rounds: u32, mut call: impl FnMut() -> R) {
    let calls = calls_per_round(rounds, &mut call);
    let mut times: Vec<Duration> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            (0..calls).for_each(|_| drop(black_box(call())));
            start.elapsed() / calls
        })
        .collect();
    times.sort();
    let at = |quantile: usize| times[(times.len() - 1) * quantile / 100];
    println!("{name:<56} {:>12.3?}  ({:.3?} to {:.3?})", at(50), at(5), at(95));
}

fn calls_per_round<R>(rounds: u32, call: &mut impl FnMut() -> R) -> u32 {
    if rounds == 1 {
        return 1;
    }
    let start = Instant::now();
    let mut calls = 0;
    while start.elapsed() < Duration::from_millis(20) {
        black_box(call());
        calls += 1;
    }
    (calls / 4).max(1)
}

fn tree_is_free(held: &BTreeMap<u64, u64>, pieces: &[Range<u64>]) -> bool {
    pieces.iter().all(|piece| {
        held.range(..piece.end)
            .next_back()
            .is_none_or(|(_, &end)| end <= piece.start)
    })
}

fn vectors_are_apart(a: &[Range<u64>], b: &[Range<u64>]) -> bool {
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        if a[i].end <= b[j].start {
            i += 1;
        } else if b[j].end <= a[i].start {
            j += 1;
        } else {
            return false;
        }
    }
    true
}

fn main() {
    let rounds = if std::env::args().any(|argument| argument == "--bench") {
        101
    } else {
        1
    };
    let ranks = PER_SIDE * PER_SIDE * PER_SIDE;
    conflict_checks(rounds, ranks);
    forms(rounds);
}

fn conflict_checks(rounds: u32, ranks: u64) {
    let asking = ranks / 2 + 9; // a block inside the array
    let held: Vec<Strided> = (0..ranks).filter(|&rank| rank != asking).map(block).collect();
    let request = block(asking);
    assert_eq!((request.segments(), held.len()), (625, 63));
    assert!(held.iter().all(|holder| request.try_overlaps(holder) == Some(false)));
    println!("625 ranges against 63 holders of 625, nobody conflicts");

    let pieces: Vec<_> = request.iter().collect();
    let tree: BTreeMap<u64, u64> = held
        .iter()
        .flat_map(|holder| holder.iter())
        .map(|piece| (piece.start, piece.end))
        .collect();
    measure("  one B-tree of all ranges of the file", rounds, || {
        assert!(tree_is_free(&tree, &pieces))
    });

    let vectors: Vec<Vec<_>> = held.iter().map(|holder| holder.iter().collect()).collect();
    measure("  sorted vectors, 63 merges", rounds, || {
        assert!(vectors.iter().all(|held| vectors_are_apart(held, &pieces)))
    });
    let all: RangeSet = held.iter().flat_map(|holder| holder.iter()).collect();
    let all: Vec<_> = all.iter().collect();
    measure("  sorted vectors, one merge with all of them", rounds, || {
        assert!(vectors_are_apart(&all, &pieces))
    });

    let bitmap = |patterns: &[Strided]| {
        let mut bitmap = BlockBitmap::new(100).unwrap(); // every range is one block
        patterns
            .iter()
            .flat_map(|pattern| pattern.iter())
            .for_each(|piece| bitmap.insert(piece).unwrap());
        bitmap
    };
    let bitmaps: Vec<_> = held.iter().map(|holder| bitmap(std::slice::from_ref(holder))).collect();
    let ours = bitmap(std::slice::from_ref(&request));
    measure("  Roaring bitmaps, 63 comparisons", rounds, || {
        assert!(!bitmaps.iter().any(|held| held.overlaps(&ours)))
    });
    let union = bitmap(&held);
    measure("  Roaring bitmap of all of them, one comparison", rounds, || {
        assert!(!union.overlaps(&ours))
    });

    measure("  patterns, 63 comparisons", rounds, || {
        assert!(!held.iter().any(|holder| request.overlaps(holder)))
    });
    let footprint = Footprint::from(request);
    let held: Vec<Footprint> = held.into_iter().map(Footprint::from).collect();
    measure("  footprints, 63 comparisons", rounds, || {
        assert!(!held.iter().any(|holder| footprint.overlaps(holder)))
    });
}

fn forms(rounds: u32) {
    println!("\nother forms");
    let comb = |start, count, stride, len| Strided::new(start, &[Dim { count, stride }], len).unwrap();
    let (a, b) = (comb(0, 1 << 40, 1002, 1), comb(1, 1 << 40, 4004, 1));
    measure("  two combs of 2^40 ranges, strides 1002 and 4004", rounds, || {
        assert!(!a.overlaps(&b))
    });
    let plane = Strided::new(
        0,
        &[
            Dim {
                count: 100,
                stride: 40_000,
            },
            Dim { count: 25, stride: 400 },
        ],
        100,
    )
    .unwrap();
    let tiles = Strided::new(
        100,
        &[
            Dim {
                count: 130,
                stride: 30_000,
            },
            Dim { count: 15, stride: 800 },
        ],
        300,
    )
    .unwrap();
    assert_eq!(plane.try_overlaps(&tiles), Some(false));
    measure("  2,500 ranges against 1,950, unequal strides", rounds, || {
        assert!(!plane.overlaps(&tiles))
    });

    let odd = |phase: u64| {
        Footprint::from_list((0..10_000).map(|i| (i * 1000 + i * i % 97 * 4 + phase, 100 + i % 2))).unwrap()
    };
    let (a, b) = (odd(0), odd(500));
    measure("  10,000 irregular ranges against 10,000", rounds, || {
        assert!(!a.overlaps(&b))
    });

    let pieces: Vec<_> = Strided::new(
        0,
        &[
            Dim {
                count: 50,
                stride: 40_000,
            },
            Dim { count: 50, stride: 400 },
        ],
        200,
    )
    .unwrap()
    .iter()
    .collect();
    measure("  finding the pattern in 2,500 ranges", rounds, || {
        compress(pieces.iter().cloned())
    });
    let irregular: Vec<_> = a.iter().collect();
    measure("  finding no pattern in 10,000 ranges", rounds, || {
        compress(irregular.iter().cloned())
    });

    let pattern = Footprint::from_list(pieces.iter().map(|piece| (piece.start, piece.end - piece.start))).unwrap();
    measure("  rounding 2,500 ranges to blocks of 4,096", rounds, || {
        pattern.coarsen(Mode::Blocks(4096))
    });
    for (name, footprint) in [("2,500 nested ranges", pattern), ("10,000 irregular ranges", a)] {
        let mut writer = Writer::new();
        footprint.encode(&mut writer);
        let bytes = writer.finish();
        measure(&format!("  decoding {name} from {} bytes", bytes.len()), rounds, || {
            Footprint::decode(&mut Reader::new(&bytes))
        });
    }
}
