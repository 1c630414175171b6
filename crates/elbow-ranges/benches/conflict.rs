//! What one conflict check costs: `cargo bench -p elbow-ranges`; as a test (`cargo test --benches`) it only shows that it runs.
//!
//! The block benchmark of Aarestad et al., *Scalable Approaches for Supporting MPI-IO Atomicity* (section 4), on 64
//! ranks: an array of 100 x 100 x 100 integers of 4 bytes in blocks of 25 x 25 x 25, so 625 pieces of 100 bytes per
//! rank. One rank asks while the other 63 hold; nobody conflicts, so that all has to be looked at. Beside it: the same
//! with one tree of ranges per file (a red-black tree, as Aarestad et al. have), with sorted vectors, with Roaring
//! bitmaps.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::ops::Range;
use std::time::{Duration, Instant};

use elbow_ranges::encoding::{Reader, Writer};
use elbow_ranges::{BlockBitmap, Dim, Footprint, Mode, Strided, compress};

const SIDE: u64 = 100;
const PER_SIDE: u64 = 4;
const ITEM_BYTES: u64 = 4;
/// Bytes in a block of the bitmaps: each piece is one block, as coarse as they can be without false conflicts.
const BLOCK_BYTES: u64 = 100;
/// At least this long is measured at a time.
const ROUND: Duration = Duration::from_micros(500);
const ROUNDS: usize = 1001;

type Piece = Range<u64>;

fn main() {
    let bench = Bench {
        tiny: !std::env::args().any(|argument| argument == "--bench"),
    };
    conflict_checks(&bench);
    other_overlaps(&bench);
    other_work(&bench);
}

fn conflict_checks(bench: &Bench) {
    let ranks = PER_SIDE * PER_SIDE * PER_SIDE;
    let asking = ranks / 2 + 9; // a block inside the array
    let held: Vec<Strided> = (0..ranks).filter(|&rank| rank != asking).map(block).collect();
    let request = block(asking);
    assert_eq!((request.segments(), held.len()), (625, 63));
    println!("625 ranges against 63 holders of 625, nobody conflicts                median");

    let pieces: Vec<Piece> = request.iter().collect();
    let vectors: Vec<Vec<Piece>> = held.iter().map(|holder| holder.iter().collect()).collect();
    let mut all: Vec<Piece> = vectors.concat();
    all.sort_unstable_by_key(|piece| piece.start);
    let tree: BTreeMap<u64, u64> = all.iter().map(|piece| (piece.start, piece.end)).collect();
    bench.conflict("  one B-tree of all ranges of the file", || {
        conflicts_in_tree(&tree, &pieces)
    });
    bench.conflict("  sorted vectors, 63 merges", || {
        vectors.iter().any(|held| conflicts_in_vector(held, &pieces))
    });
    bench.conflict("  sorted vector of all ranges, one merge", || {
        conflicts_in_vector(&all, &pieces)
    });

    let bitmaps: Vec<BlockBitmap> = vectors.iter().map(|held| bitmap(held)).collect();
    let (union, ours) = (bitmap(&all), bitmap(&pieces));
    bench.conflict("  Roaring bitmaps, 63 comparisons", || {
        bitmaps.iter().any(|held| held.overlaps(&ours))
    });
    bench.conflict("  Roaring bitmap of all ranges, one comparison", || {
        union.overlaps(&ours)
    });

    bench.conflict("  patterns, 63 comparisons", || {
        held.iter().any(|holder| request.overlaps(holder))
    });
    let footprint = Footprint::from(request);
    let held: Vec<Footprint> = held.into_iter().map(Footprint::from).collect();
    bench.conflict("  footprints, 63 comparisons", || {
        held.iter().any(|holder| footprint.overlaps(holder))
    });
}

fn other_overlaps(bench: &Bench) {
    println!("\nother overlaps");
    let (a, b) = (pattern(0, &[(1 << 40, 1002)], 1), pattern(1, &[(1 << 40, 4004)], 1));
    bench.conflict("  two combs of 2^40 ranges, strides 1002 and 4004", || a.overlaps(&b));
    let (rows, tiles) = (
        pattern(0, &[(100, 40_000), (25, 400)], 100),
        pattern(100, &[(130, 30_000), (15, 800)], 300),
    );
    bench.conflict("  2,500 ranges against 1,950, unequal strides", || {
        rows.overlaps(&tiles)
    });
    let (a, b) = (irregular(0), irregular(500));
    bench.conflict("  10,000 irregular ranges against 10,000 between them", || {
        a.overlaps(&b)
    });
    let far = Footprint::extent(1 << 60..(1 << 60) + 1).unwrap();
    bench.conflict("  10,000 irregular ranges against one behind them", || a.overlaps(&far));
    let records = |start, per_row: u64| pattern(start, &[(200, per_row * 88), (100, 8 * 88), (5, 88)], 8);
    let (a, b) = (records(0, 10_007), records(16, 1_009));
    bench.conflict("  two fields of records, 100,000 ranges each, unequal strides", || {
        a.overlaps(&b)
    });
    let even = |strides: [u64; 3]| strides.map(|stride| (60, stride)).to_vec();
    let mut a = even([1_000_006, 15_026, 214]);
    a.insert(0, (2, (1 << 40) + 1));
    let (a, b) = (pattern(0, &a, 1), pattern(1, &even([1_000_034, 15_034, 206]), 1));
    bench.time("  hostile: given up", || a.try_overlaps(&b));
}

fn other_work(bench: &Bench) {
    println!("\nother work");
    let pieces: Vec<Piece> = pattern(0, &[(50, 40_000), (50, 400)], 200).iter().collect();
    bench.time("  finding the pattern in 2,500 ranges", || {
        compress(pieces.iter().cloned())
    });
    let odd: Vec<Piece> = irregular(0).iter().collect();
    bench.time("  finding no pattern in 10,000 ranges", || {
        compress(odd.iter().cloned())
    });
    for count in [2_500, 10_000] {
        let list: Vec<(u64, u64)> = odd[..count]
            .iter()
            .map(|piece| (piece.start, piece.end - piece.start))
            .collect();
        bench.time(&format!("  a footprint of {count} irregular ranges"), || {
            Footprint::from_list(list.iter().copied())
        });
        let footprint = Footprint::from_list(list.iter().copied()).unwrap();
        bench.time(&format!("  encoding {count} irregular ranges"), || {
            let mut writer = Writer::new();
            footprint.encode(&mut writer);
            writer.finish()
        });
    }
    let pattern = Footprint::from_list(pieces.iter().map(|piece| (piece.start, piece.end - piece.start))).unwrap();
    bench.time("  rounding 2,500 ranges to blocks of 4,096", || {
        pattern.coarsen(Mode::Blocks(4096))
    });
    for (name, footprint) in [
        ("2,500 nested ranges", pattern),
        ("10,000 irregular ranges", irregular(0)),
    ] {
        let mut writer = Writer::new();
        footprint.encode(&mut writer);
        let bytes = writer.finish();
        bench.time(&format!("  decoding {name} from {} bytes", bytes.len()), || {
            Footprint::decode(&mut Reader::new(&bytes))
        });
    }
}

struct Bench {
    tiny: bool,
}

impl Bench {
    /// The time of a check that finds no conflict.
    fn conflict(&self, name: &str, mut check: impl FnMut() -> bool) {
        assert!(!check(), "{name}: a conflict");
        self.time(name, check);
    }

    /// The median over rounds of the time of one call.
    fn time<R>(&self, name: &str, mut call: impl FnMut() -> R) {
        let calls = if self.tiny { 1 } else { calls_per_round(&mut call) };
        let mut round = || {
            let start = Instant::now();
            (0..calls).for_each(|_| drop(black_box(call())));
            start.elapsed().as_nanos() as f64 / f64::from(calls)
        };
        let mut times: Vec<f64> = (0..if self.tiny { 1 } else { ROUNDS }).map(|_| round()).collect();
        times.sort_by(f64::total_cmp);
        let at = |percent: usize| times[(times.len() - 1) * percent / 100] / 1000.0;
        println!("{name:<58} {:>10.3} us  (best {:.3})", at(50), at(0));
    }
}

fn calls_per_round<R>(call: &mut impl FnMut() -> R) -> u32 {
    let start = Instant::now();
    let mut calls = 0;
    while start.elapsed() < ROUND {
        drop(black_box(call()));
        calls += 1;
    }
    calls
}

fn pattern(start: u64, dims: &[(u64, u64)], len: u64) -> Strided {
    let dims: Vec<Dim> = dims.iter().map(|&(count, stride)| Dim { count, stride }).collect();
    Strided::new(start, &dims, len).unwrap()
}

fn block(rank: u64) -> Strided {
    let width = SIDE / PER_SIDE;
    let [x, y, z] =
        [rank % PER_SIDE, rank / PER_SIDE % PER_SIDE, rank / PER_SIDE / PER_SIDE].map(|index| index * width);
    let start = ((z * SIDE + y) * SIDE + x) * ITEM_BYTES;
    pattern(
        start,
        &[(width, SIDE * SIDE * ITEM_BYTES), (width, SIDE * ITEM_BYTES)],
        width * ITEM_BYTES,
    )
}

/// 10,000 ranges without a pattern, of 1 to 256 bytes, one in the first half of each 1000.
fn irregular(phase: u64) -> Footprint {
    let mut state = 1_u64;
    let mut random = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let list = (0..10_000).map(|i| (i * 1000 + random(240) + phase, 1 + random(256)));
    Footprint::from_list(list).unwrap()
}

fn bitmap(pieces: &[Piece]) -> BlockBitmap {
    let mut bitmap = BlockBitmap::new(BLOCK_BYTES).unwrap();
    pieces.iter().for_each(|piece| bitmap.insert(piece.clone()).unwrap());
    bitmap
}

fn conflicts_in_tree(held: &BTreeMap<u64, u64>, pieces: &[Piece]) -> bool {
    pieces.iter().any(|piece| {
        held.range(..piece.end)
            .next_back()
            .is_some_and(|(_, &end)| end > piece.start)
    })
}

fn conflicts_in_vector(held: &[Piece], pieces: &[Piece]) -> bool {
    let (mut i, mut j) = (0, 0);
    while i < held.len() && j < pieces.len() {
        if held[i].end <= pieces[j].start {
            i += 1;
        } else if pieces[j].end <= held[i].start {
            j += 1;
        } else {
            return true;
        }
    }
    false
}
