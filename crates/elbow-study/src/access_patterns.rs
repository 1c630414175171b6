//! The three access patterns of Aarestad et al., and the plainest one, as what each rank asks for.
//!
//! ```text
//!   block   an array of 100^3 integers in blocks, one per rank    tile    3 x 2 overlapping displays of one picture
//!   z  +--+--+      rank 0: ####....####....                      +-----+##+---+##+-----+
//!      |2 |3 |      rank 1: ....####....####                      |  0  |##| 1 |##|  2  |
//!      +--+--+ y                                                  +#####+##+###+##+#####+
//!      |0 |1 |                                                    |  3  |##| 4 |##|  5  |
//!      +--+--+                                                    +-----+##+---+##+-----+
//!   flash   24 variables; of each, first all blocks of rank 0, then all of rank 1, ...
//! ```
//!
//! True values, which the tests hold this to (the tables of Aarestad et al. and their text differ): 2,500 ranges per
//! rank for 8 blocks, 1,156 or 1,088 or 1,024 for 27 (100 does not divide by 3: blocks are 34, 34 and 32 wide), 625 for
//! 64; 24 for flash; 768 for a tile. At once can run: all ranks of block and flash with list locks, but 2, 3 and 4
//! ranks of block and one of flash with their bounding ranges; two tiles that write, all six that read.
//!
//! Not here: running them; bandwidth depends on who carries the requests out.
//!
//! Source: Aarestad et al., *Scalable Approaches for Supporting MPI-IO Atomicity*, section 4; `coll_perf.c` of ROMIO; the FLASH I/O
//! benchmark (Zingale 2001); the `mpi-tile-io` benchmark (Ross 2001).

use std::ops::RangeInclusive;

use elbow_ranges::encoding::Writer;
use elbow_ranges::{Dim, Footprint, Mode, PatternError, Strided};

use elbow_lock::LockMode;

/// Items per side of the array of `block`.
const SIDE: u64 = 100;
const INTEGER_BYTES: u64 = 4;

/// `flash`: mesh blocks of a rank, cells in a block without its guard cells (in memory there are 4 more on each side; the
/// file has none), variables in a cell.
const MESH_BLOCKS: u64 = 80;
const CELLS: u64 = 8 * 8 * 8;
const VARIABLES: u64 = 24;
const DOUBLE_BYTES: u64 = 8;

/// `tile`: displays, their size and overlap in pixels of 24 bits.
const DISPLAYS: [u64; 2] = [3, 2];
const PIXELS: [u64; 2] = [1024, 768];
const OVERLAP: [u64; 2] = [270, 128];
const PIXEL_BYTES: u64 = 3;

/// Most requests whose largest compatible set is searched for.
pub const REQUESTS_MAX: usize = 128;

/// What each rank of a parallel program asks for at one time.
#[derive(Clone, Debug)]
pub struct Workload {
    /// `block-64`, say.
    pub name: String,
    /// One per rank.
    pub requests: Vec<Footprint>,
    /// Writers exclude each other; readers do not.
    pub mode: LockMode,
}

/// What a workload costs in a mode of locking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Ranges that one rank locks: the fewest and the most.
    pub locks: RangeInclusive<u64>,
    /// Most ranks that can run at once.
    pub at_once: usize,
    /// Bytes that describe the request of one rank on the wire: the most.
    pub wire_bytes: usize,
}

impl Workload {
    /// All of them, with the numbers of ranks that Aarestad et al. (section 4) have.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let blocks = [2, 3, 4].map(Self::block);
        blocks
            .into_iter()
            .chain([
                Self::flash(64),
                Self::tile(LockMode::Exclusive),
                Self::tile(LockMode::Shared),
            ])
            .collect()
    }

    /// `coll_perf`: an array of 100 x 100 x 100 integers of 4 bytes, in `per_side`^3 blocks.
    ///
    /// ```
    /// use elbow_study::access_patterns::Workload;
    ///
    /// let block = Workload::block(2);
    /// assert_eq!(block.requests.len(), 8);
    /// assert_eq!(block.requests[1].to_string(), "200 + 50 x 40000 + 50 x 400 + [0, 200)");
    /// ```
    ///
    /// # Panics
    /// When there are more blocks than integers on a side.
    #[must_use]
    pub fn block(per_side: u64) -> Self {
        let width = SIDE.div_ceil(per_side); // as MPI_Type_create_darray distributes blocks
        let along = move |index: u64| index * width..SIDE.min((index + 1) * width);
        let blocks = (0..per_side)
            .flat_map(move |z| (0..per_side).flat_map(move |y| (0..per_side).map(move |x| [z, y, x].map(along))));
        let requests = blocks.map(|[z, y, x]| {
            let start = ((z.start * SIDE + y.start) * SIDE + x.start) * INTEGER_BYTES;
            let planes = Dim {
                count: z.end - z.start,
                stride: SIDE * SIDE * INTEGER_BYTES,
            };
            let rows = Dim {
                count: y.end - y.start,
                stride: SIDE * INTEGER_BYTES,
            };
            pattern(start, &[planes, rows], (x.end - x.start) * INTEGER_BYTES)
        });
        Self {
            name: format!("block-{}", per_side.pow(3)),
            requests: requests.collect(),
            mode: LockMode::Exclusive,
        }
    }

    /// FLASH I/O, a checkpoint: 80 mesh blocks of 8 x 8 x 8 cells per rank, 24 variables of 8 bytes, variable by variable.
    #[must_use]
    pub fn flash(ranks: u64) -> Self {
        let of_rank = MESH_BLOCKS * CELLS * DOUBLE_BYTES;
        let variables = Dim {
            count: VARIABLES,
            stride: ranks * of_rank,
        };
        let requests = (0..ranks).map(|rank| pattern(rank * of_rank, &[variables], of_rank));
        Self {
            name: format!("flash-{ranks}"),
            requests: requests.collect(),
            mode: LockMode::Exclusive,
        }
    }

    /// The plainest disjoint pattern: of pieces of `piece_bytes` in a row, each rank has every `ranks`th, `pieces` of them.
    ///
    /// ```
    /// use elbow_study::access_patterns::Workload;
    ///
    /// let interleaved = Workload::interleaved(8, 256, 4096);
    /// assert_eq!(interleaved.requests[3].to_string(), "12288 + 256 x 32768 + [0, 4096)");
    /// ```
    ///
    /// # Panics
    /// When there is no rank or no piece, or they end past 2^64 bytes.
    #[must_use]
    pub fn interleaved(ranks: u64, pieces: u64, piece_bytes: u64) -> Self {
        let every = Dim {
            count: pieces,
            stride: ranks * piece_bytes,
        };
        let requests = (0..ranks).map(|rank| pattern(rank * piece_bytes, &[every], piece_bytes));
        Self {
            name: format!("interleaved-{ranks}"),
            requests: requests.collect(),
            mode: LockMode::Exclusive,
        }
    }

    /// The tile reader: 3 x 2 displays of 1024 x 768 pixels of 24 bits, which overlap by 270 and 128 pixels.
    #[must_use]
    pub fn tile(mode: LockMode) -> Self {
        let apart = [PIXELS[0] - OVERLAP[0], PIXELS[1] - OVERLAP[1]];
        let line = (apart[0] * (DISPLAYS[0] - 1) + PIXELS[0]) * PIXEL_BYTES;
        let displays = (0..DISPLAYS[1]).flat_map(|row| (0..DISPLAYS[0]).map(move |column| (column, row)));
        let requests = displays.map(|(column, row)| {
            let start = row * apart[1] * line + column * apart[0] * PIXEL_BYTES;
            pattern(
                start,
                &[Dim {
                    count: PIXELS[1],
                    stride: line,
                }],
                PIXELS[0] * PIXEL_BYTES,
            )
        });
        let name = match mode {
            LockMode::Exclusive => "tile-6-exclusive",
            LockMode::Shared => "tile-6-shared",
        };
        Self {
            name: name.into(),
            requests: requests.collect(),
            mode,
        }
    }

    /// What it costs in a mode.
    ///
    /// ```
    /// use elbow_study::access_patterns::Workload;
    /// use elbow_ranges::Mode;
    ///
    /// let block = Workload::block(4);
    /// let (list, extent) = (block.cost(Mode::List), block.cost(Mode::Extent));
    /// assert_eq!((list.at_once, list.locks, list.wire_bytes), (64, 625..=625, 14));
    /// assert_eq!((extent.at_once, extent.locks), (4, 1..=1));
    /// ```
    ///
    /// # Panics
    /// When there are more than [`REQUESTS_MAX`] ranks or none.
    #[must_use]
    pub fn cost(&self, mode: Mode) -> Cost {
        let requests: Vec<Footprint> = self.requests.iter().map(|request| request.coarsen(mode)).collect();
        let locks = requests.iter().map(|request| locks(request, mode));
        let at_once = match self.mode {
            LockMode::Shared => requests.len(),
            LockMode::Exclusive => most_at_once(&requests),
        };
        Cost {
            locks: locks.clone().min().expect("a rank")..=locks.max().expect("a rank"),
            at_once,
            wire_bytes: requests.iter().map(wire_bytes).max().expect("a rank"),
        }
    }
}

/// Locks that a request takes in a mode: ranges, or blocks.
fn locks(request: &Footprint, mode: Mode) -> u64 {
    match mode {
        Mode::Blocks(block_bytes) => request.total_bytes().div_ceil(block_bytes.max(1)),
        _ => request.segments(),
    }
}

fn wire_bytes(request: &Footprint) -> usize {
    let mut writer = Writer::new();
    request.encode(&mut writer);
    writer.finish().len()
}

/// Most of some exclusive requests that can be held at once: exactly, by branch and bound over who conflicts with whom.
///
/// # Panics
/// When there are more than [`REQUESTS_MAX`].
#[must_use]
pub fn most_at_once(requests: &[Footprint]) -> usize {
    assert!(
        requests.len() <= REQUESTS_MAX,
        "{} requests are too many to search",
        requests.len()
    );
    let conflicts: Vec<u128> = (0..requests.len()).map(|one| conflicts_of(one, requests)).collect();
    let all = (0..requests.len()).fold(0, |all, one| all | 1 << one);
    most_apart(all, &conflicts)
}

/// Whom a request conflicts with, itself included.
fn conflicts_of(one: usize, requests: &[Footprint]) -> u128 {
    let conflicting = (0..requests.len()).filter(|&other| other == one || requests[one].overlaps(&requests[other]));
    conflicting.fold(0, |all, other| all | 1 << other)
}

/// The size of the largest independent set among the vertices of a mask.
fn most_apart(among: u128, conflicts: &[u128]) -> usize {
    let degree = |vertex: &usize| (conflicts[*vertex] & among).count_ones();
    let vertices = || (0..conflicts.len()).filter(|&vertex| among >> vertex & 1 == 1);
    let (Some(loneliest), Some(busiest)) = (vertices().min_by_key(degree), vertices().max_by_key(degree)) else {
        return 0;
    };
    if degree(&loneliest) <= 2 {
        return 1 + most_apart(among & !conflicts[loneliest], conflicts); // never worse than its one neighbour
    }
    let with = 1 + most_apart(among & !conflicts[busiest], conflicts);
    let among = among & !(1 << busiest);
    if with >= among.count_ones() as usize {
        with
    } else {
        with.max(most_apart(among, conflicts))
    }
}

fn pattern(start: u64, dims: &[Dim], len: u64) -> Footprint {
    let pattern: Result<Strided, PatternError> = Strided::new(start, dims, len);
    pattern
        .expect("the sizes of the workloads are those of patterns")
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What all ranks of `block` and `flash` cover: everything, once.
    fn assert_partition(workload: &Workload, file_bytes: u64) {
        let union = Footprint::from_patterns(workload.requests.iter().map(only_pattern)).expect("ranks");
        assert!(union.iter().eq(std::iter::once(0..file_bytes)), "{}", workload.name);
        let bytes: u64 = workload.requests.iter().map(Footprint::total_bytes).sum();
        assert_eq!(bytes, file_bytes, "{}", workload.name);
    }

    fn only_pattern(request: &Footprint) -> Strided {
        let patterns = elbow_ranges::compress(request.iter());
        assert_eq!(
            patterns.len(),
            1,
            "{request}: what is found in the list is the pattern that was put in"
        );
        assert_eq!(Footprint::from(patterns[0].clone()), *request);
        patterns[0].clone()
    }

    #[test]
    fn locks_are_the_true_values() {
        let locks = |workload: &Workload| {
            let mut locks: Vec<u64> = workload.requests.iter().map(Footprint::segments).collect();
            locks.sort_unstable_by(|a, b| b.cmp(a));
            locks.dedup();
            locks
        };
        assert_eq!(locks(&Workload::block(2)), [2500]);
        assert_eq!(locks(&Workload::block(3)), [1156, 1088, 1024]);
        assert_eq!(locks(&Workload::block(4)), [625]);
        assert_eq!(locks(&Workload::flash(8)), [24]);
        assert_eq!(locks(&Workload::tile(LockMode::Shared)), [768]);
    }

    #[test]
    fn ranks_cover_the_file() {
        (2..5).for_each(|per_side| assert_partition(&Workload::block(per_side), 4_000_000));
        assert_partition(&Workload::flash(8), 24 * 8 * 80 * 512 * 8);
        assert_partition(&Workload::interleaved(8, 256, 4096), 8 << 20);
        let tiles = Workload::tile(LockMode::Exclusive);
        let picture = Footprint::from_patterns(tiles.requests.iter().map(only_pattern)).expect("tiles");
        assert!(picture.iter().eq(std::iter::once(0..2532 * 1408 * 3)));
    }

    #[test]
    fn as_many_run_at_once_as_can() {
        let at_once = |workload: &Workload, mode| workload.cost(mode).at_once;
        for (per_side, ranks) in [(2, 8), (3, 27), (4, 64)] {
            let block = Workload::block(per_side);
            assert_eq!(at_once(&block, Mode::List), ranks);
            assert_eq!(at_once(&block, Mode::Extent), per_side as usize);
            assert_eq!(at_once(&block, Mode::File), 1);
            assert_eq!(at_once(&block, Mode::Blocks(4)), ranks);
            assert_eq!(at_once(&Workload::flash(ranks as u64), Mode::List), ranks);
            assert_eq!(at_once(&Workload::flash(ranks as u64), Mode::Extent), 1);
        }
        assert_eq!(at_once(&Workload::tile(LockMode::Exclusive), Mode::List), 2);
        assert_eq!(at_once(&Workload::tile(LockMode::Shared), Mode::List), 6);
    }

    #[test]
    fn the_search_equals_trying_all_sets() {
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let vertices = 1 + random(10) as usize;
            let mut conflicts: Vec<u128> = (0..vertices).map(|vertex| 1 << vertex).collect();
            for _ in 0..random(25) {
                let (a, b) = (random(vertices as u64) as usize, random(vertices as u64) as usize);
                conflicts[a] |= 1 << b;
                conflicts[b] |= 1 << a;
            }
            let apart = |set: &u128| {
                (0..vertices)
                    .filter(|v| set >> v & 1 == 1)
                    .all(|v| conflicts[v] & set == 1 << v)
            };
            let expected = (0..1_u128 << vertices).filter(apart).map(u128::count_ones).max();
            assert_eq!(
                Some(most_apart((1 << vertices) - 1, &conflicts) as u32),
                expected,
                "{conflicts:?}"
            );
        }
    }
}
