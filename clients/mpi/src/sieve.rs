//! Which parts of an access are written in one go, with the bytes between its pieces (*data sieving*), and whether that pays.
//!
//! ```text
//!   pieces    ##..##..##..##...............................##........####..####..####
//!   windows   |------------|                               ##        |--------------|
//!               read, change, write: 2 requests             1           2 requests
//! ```
//!
//! A window is written back whole, gaps included, so all of it is locked exclusively, and what is read is read under that
//! lock: whoever writes into a gap by locks of ours comes before or after. What lies alone stays a piece. Whether it pays is
//! a matter of what a request takes, what a byte takes, and how long one waits for the larger lock; processes may decide
//! differently, as each locks what it writes.
//!
//! Nothing here has a clock or does I/O: [`crate::shadow`] does. Source: Thakur, Gropp, Lusk, *Data sieving and collective
//! I/O in ROMIO*, 1999; there the lock is one extent and the decision is made by hints.

use std::ops::Range;

use crate::speed::{Recent, RecentSamples, Speed};

/// More windows are not worth their list of locks.
const WINDOWS_MAX: usize = 65_536;
/// Fewer pieces in a window cost as many requests as it does.
const PIECES_MIN: u64 = 3;
/// What is read and written in one request, at most: the memory that it takes.
pub(crate) const CHUNK_BYTES: u64 = 4 << 20;

/// The windows of an access, and what it takes both ways.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sieve {
    /// Ascending, none overlaps; what lies alone among them.
    pub(crate) windows: Vec<Range<u64>>,
    /// By windows.
    sieved: Requests,
    speed: Speed,
    /// Piece by piece.
    pub(crate) exact_ns: u64,
}

/// So many, of so many bytes in all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Requests {
    count: u64,
    bytes: u64,
}

impl Requests {
    fn taken_ns(self, speed: Speed) -> u64 {
        speed.of(self.count, self.bytes)
    }

    fn add(&mut self, count: u64, bytes: u64) {
        self.count = self.count.saturating_add(count);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

impl Sieve {
    /// What it takes by windows.
    pub(crate) fn sieved_ns(&self) -> u64 {
        self.sieved.taken_ns(self.speed)
    }

    /// The windows of pieces that come in the order of their data; nothing where that is not the order in the file, or the
    /// list is too long.
    pub(crate) fn of(pieces: impl Iterator<Item = Range<u64>>, speed: Speed) -> Option<Self> {
        let gap_max = speed.gap_max();
        let mut sieve = Self {
            windows: Vec::new(),
            sieved: Requests::default(),
            speed,
            exact_ns: 0,
        };
        let mut open: Option<GrowingWindow> = None;
        for piece in pieces {
            sieve.exact_ns = sieve.exact_ns.saturating_add(speed.of(1, piece.end - piece.start));
            match &mut open {
                Some(open) if piece.start < open.range.end => return None,
                Some(open) if piece.start - open.range.end <= gap_max => open.add(piece),
                _ => sieve.close(open.replace(GrowingWindow::new(piece)))?,
            }
        }
        sieve.close(open)?;
        Some(sieve)
    }

    fn close(&mut self, open: Option<GrowingWindow>) -> Option<()> {
        let Some(open) = open else { return Some(()) };
        if open.is_window() {
            let bytes = open.range.end - open.range.start;
            self.windows.push(open.range);
            self.sieved
                .add(2 * bytes.div_ceil(CHUNK_BYTES), bytes.saturating_mul(2));
        } else {
            let pieces = [Some(open.first), open.last];
            for piece in pieces.into_iter().flatten() {
                self.sieved.add(1, piece.end - piece.start);
                self.windows.push(piece);
            }
        }
        (self.windows.len() <= WINDOWS_MAX).then_some(())
    }
}

/// A window that may get longer.
struct GrowingWindow {
    range: Range<u64>,
    pieces: u64,
    first: Range<u64>,
    last: Option<Range<u64>>,
}

impl GrowingWindow {
    fn new(piece: Range<u64>) -> Self {
        Self {
            range: piece.clone(),
            pieces: 1,
            first: piece,
            last: None,
        }
    }

    fn add(&mut self, piece: Range<u64>) {
        self.range.end = piece.end;
        self.pieces += 1;
        self.last = Some(piece);
    }

    fn is_window(&self) -> bool {
        self.pieces >= PIECES_MIN
    }
}

/// What is done in one go: the bytes of the file, and which of them are new.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Chunk {
    pub(crate) range: Range<u64>,
    pub(crate) parts: Vec<Part>,
}

/// New bytes in a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    /// From the begin of the chunk.
    pub(crate) at: usize,
    /// From the begin of the access's data.
    pub(crate) from: usize,
    pub(crate) bytes: usize,
}

impl Chunk {
    /// Whether every byte is new, and so none has to be read.
    pub(crate) fn is_full(&self) -> bool {
        let new: usize = self.parts.iter().map(|part| part.bytes).sum();
        new as u64 == self.range.end - self.range.start
    }
}

/// Cuts windows into chunks of at most `chunk_bytes`, each from a new byte to a new byte, in the order of the file. The
/// pieces are those that the windows were made of.
///
/// # Panics
/// When a piece lies behind all windows: what is left would else not be written, and nobody be told.
pub(crate) fn chunks(
    windows: &[Range<u64>],
    pieces: impl Iterator<Item = Range<u64>>,
    chunk_bytes: u64,
) -> impl Iterator<Item = Chunk> {
    let (mut pieces, mut left, mut from) = (pieces, None, 0_usize);
    let mut windows = windows.iter();
    let mut end = 0;
    std::iter::from_fn(move || {
        let mut piece: Range<u64> = left.take().or_else(|| pieces.next())?;
        let start = piece.start;
        while start >= end {
            let window = windows.next();
            end = window
                .expect("each piece lies in one of the windows that were made of them")
                .end;
        }
        let limit = end.min(start + chunk_bytes);
        let mut chunk = Chunk {
            range: start..start,
            parts: Vec::new(),
        };
        while piece.start < limit {
            let to = piece.end.min(limit);
            let bytes = (to - piece.start) as usize;
            let at = (piece.start - start) as usize;
            chunk.parts.push(Part { at, from, bytes });
            chunk.range.end = to;
            from += bytes;
            match (to < piece.end).then_some(to..piece.end).or_else(|| pieces.next()) {
                Some(next) => piece = next,
                None => return Some(chunk),
            }
        }
        left = Some(piece);
        Some(chunk)
    })
}

/// One access of so many is sieved where only the wait for others, which is then measured, might speak against it.
const EXPLORED: u32 = 16;

/// How long accesses to a file wait for their locks, the one way and the other, and what windows take.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LockWaits {
    sieved: RecentSamples,
    exact: RecentSamples,
    /// What bytes take is measured alone, and what requests take beside all others who use the processor and the memory: windows would look better than
    /// they are. Kept as it was, for what it should have taken is better known later: a first access goes by what a read at the end of an empty file takes.
    taken: Recent<(Requests, u64)>,
    declined: u32,
}

impl LockWaits {
    /// An access has waited.
    pub(crate) fn add(&mut self, is_sieved: bool, waited_ns: u64) {
        let waits = if is_sieved { &mut self.sieved } else { &mut self.exact };
        waits.add(waited_ns);
    }

    /// The windows of an access have taken so long, once they were locked.
    pub(crate) fn add_taken(&mut self, sieve: &Sieve, took_ns: u64) {
        self.taken.add((sieve.sieved, took_ns));
    }

    /// How much longer windows take than requests and bytes do at this speed, in thousandths.
    fn longer_thousandths(&self, speed: Speed) -> u64 {
        let mut longer = RecentSamples::default();
        for (requests, took_ns) in self.taken.all() {
            longer.add(took_ns.saturating_mul(1000) / requests.taken_ns(speed).max(1));
        }
        longer.agreed().unwrap_or(1000).max(1000)
    }

    /// Whether to sieve, in a file that so many processes have open. As long as nobody has tried, all others are taken to
    /// be in the way, and to take twice as long. A longer wait was for accesses piece by piece: it would end
    /// if these were sieved, too, as they will be by processes that find what this one does.
    pub(crate) fn decide(&mut self, sieve: &Sieve, processes: usize) -> bool {
        let longer = self.longer_thousandths(sieve.speed);
        let taken = sieve.sieved_ns().saturating_mul(longer) / 1000;
        // Windows of one piece each are no other way, whoever has waited.
        if taken >= sieve.exact_ns {
            return false;
        }
        let others = taken.saturating_mul(2 * (processes as u64).saturating_sub(1));
        let sieved = taken.saturating_add(self.sieved.median().map_or(others, |waited| waited.min(others)));
        let exact = sieve.exact_ns.saturating_add(self.exact.median().unwrap_or(0));
        if sieved < exact {
            return true;
        }
        if taken >= sieve.exact_ns / 2 {
            return false;
        }
        self.declined = self.declined.wrapping_add(1);
        self.declined.is_multiple_of(EXPLORED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use elbow_testkit::cases;
    use rand::Rng;

    /// A request takes as long as 1 MiB.
    const FAR: Speed = Speed {
        request_ns: 1_024_000,
        kib_ns: 1_000,
    };
    const NEAR: Speed = Speed {
        request_ns: 1_000,
        kib_ns: 1_000,
    };

    fn comb(count: u64, stride: u64, bytes: u64) -> impl Iterator<Item = Range<u64>> + Clone {
        (0..count).map(move |piece| piece * stride..piece * stride + bytes)
    }

    #[test]
    fn small_pieces_far_away_are_one_window() {
        let sieve = Sieve::of(comb(625, 800, 200), FAR).unwrap();
        assert_eq!((sieve.windows.len(), sieve.windows[0].end), (1, 624 * 800 + 200));
        assert!(sieve.sieved_ns() * 100 < sieve.exact_ns, "{sieve:?}");
    }

    #[test]
    fn large_pieces_and_pieces_of_near_storage_stay_what_they_are() {
        let pieces = comb(64, 8 << 20, 4 << 20);
        let sieve = Sieve::of(pieces.clone(), FAR).unwrap();
        assert!(sieve.windows.iter().cloned().eq(pieces));
        assert_eq!(sieve.sieved_ns(), sieve.exact_ns);
        let pieces = comb(64, 8192, 200);
        assert!(
            Sieve::of(pieces.clone(), NEAR)
                .unwrap()
                .windows
                .iter()
                .cloned()
                .eq(pieces)
        );
    }

    #[test]
    fn a_plane_is_a_window_and_the_planes_are_apart() {
        let planes = (0..8_u64)
            .flat_map(|plane| comb(50, 800, 200).map(move |row| row.start + (plane << 30)..row.end + (plane << 30)));
        let sieve = Sieve::of(planes, FAR).unwrap();
        assert_eq!(sieve.windows.len(), 8);
        assert_eq!(sieve.windows[1], 1 << 30..(1 << 30) + 49 * 800 + 200);
    }

    #[test]
    fn two_pieces_are_no_window() {
        let sieve = Sieve::of([0..10, 20..30, 1 << 40..(1 << 40) + 5].into_iter(), FAR).unwrap();
        assert_eq!(sieve.windows, [0..10, 20..30, 1 << 40..(1 << 40) + 5]);
    }

    #[test]
    fn data_that_is_not_in_the_order_of_the_file_is_not_sieved() {
        assert_eq!(Sieve::of([0..10, 40..50, 20..30].into_iter(), FAR), None);
        assert_eq!(Sieve::of([0..10, 5..15, 20..30].into_iter(), FAR), None);
    }

    #[test]
    fn a_list_of_too_many_windows_is_not_made() {
        assert_eq!(Sieve::of(comb(WINDOWS_MAX as u64 + 1, 1 << 30, 1), FAR), None);
    }

    /// Writes chunks as they are written: what is not full is read first.
    fn written(file: &mut [u8], chunks: impl Iterator<Item = Chunk>, data: &[u8]) {
        for chunk in chunks {
            let range = chunk.range.start as usize..chunk.range.end as usize;
            let mut buffer = if chunk.is_full() {
                vec![0; range.len()]
            } else {
                file[range.clone()].to_vec()
            };
            for part in &chunk.parts {
                buffer[part.at..part.at + part.bytes].copy_from_slice(&data[part.from..part.from + part.bytes]);
            }
            file[range].copy_from_slice(&buffer);
        }
    }

    #[test]
    #[should_panic(expected = "each piece lies in one of the windows")]
    fn a_piece_behind_all_windows_is_not_left_out_in_silence() {
        let (windows, pieces) = ([0..10, 20..30], [0..10, 20..30, 40..50]);
        assert_eq!(chunks(&windows, pieces.into_iter(), 100).count(), 2);
    }

    #[test]
    fn chunks_leave_what_pieces_leave_and_stay_within_their_windows() {
        cases::for_each_seed(500, |rng| {
            let mut at = 0;
            let pieces: Vec<Range<u64>> = (0..rng.random_range(1..60))
                .map(|_| {
                    let start = at
                        + if rng.random_bool(0.1) {
                            rng.random_range(0..500)
                        } else {
                            rng.random_range(0..12)
                        };
                    at = start + rng.random_range(1..40);
                    start..at
                })
                .collect();
            let speed = Speed {
                request_ns: rng.random_range(1..100),
                kib_ns: 1024,
            };
            let sieve = Sieve::of(pieces.iter().cloned(), speed).unwrap();
            let data: Vec<u8> = (0..pieces.iter().map(|piece| piece.end - piece.start).sum())
                .map(|byte: u64| byte as u8 | 128)
                .collect();
            let (mut expected, mut found) = (vec![7_u8; at as usize + 1], vec![7_u8; at as usize + 1]);
            let mut from = 0;
            for piece in &pieces {
                let bytes = (piece.end - piece.start) as usize;
                expected[piece.start as usize..piece.end as usize].copy_from_slice(&data[from..from + bytes]);
                from += bytes;
            }
            let limit = rng.random_range(1..200);
            let all: Vec<Chunk> = chunks(&sieve.windows, pieces.iter().cloned(), limit).collect();
            for chunk in &all {
                assert!(chunk.range.end - chunk.range.start <= limit);
                let is_within =
                    |window: &Range<u64>| window.start <= chunk.range.start && chunk.range.end <= window.end;
                assert!(sieve.windows.iter().any(is_within), "{chunk:?} of {sieve:?}");
            }
            written(&mut found, all.into_iter(), &data);
            assert_eq!(found, expected);
        });
    }

    fn costs(sieved_ns: u64, exact_ns: u64) -> Sieve {
        Sieve {
            windows: Vec::new(),
            sieved: Requests {
                count: sieved_ns,
                bytes: 0,
            },
            speed: Speed {
                request_ns: 1,
                kib_ns: 1,
            },
            exact_ns,
        }
    }

    #[test]
    fn what_pays_even_if_all_others_are_in_the_way_is_sieved_at_once() {
        assert!(LockWaits::default().decide(&costs(10, 200), 8));
        assert!(!LockWaits::default().decide(&costs(10, 70), 8));
        assert!(LockWaits::default().decide(&costs(60, 70), 1));
        // Each that waits for one that does not sieve would else not sieve either.
        let mut waits = LockWaits::default();
        waits.add(true, 100_000);
        assert!(waits.decide(&costs(10, 200), 8));
    }

    #[test]
    fn what_would_pay_alone_is_tried_now_and_then_and_kept_if_nobody_waits() {
        let mut waits = LockWaits::default();
        let tried = (0..64).filter(|_| waits.decide(&costs(10, 70), 8)).count();
        assert_eq!(tried, 4);
        waits.add(true, 5);
        assert!((0..64).all(|_| waits.decide(&costs(10, 70), 8)));
        (0..32).for_each(|_| waits.add(true, 400));
        assert_eq!((0..64).filter(|_| waits.decide(&costs(10, 70), 8)).count(), 4);
        // What pays little is never tried.
        assert!((0..64).all(|_| !waits.decide(&costs(60, 70), 8)));
    }

    #[test]
    fn windows_that_take_longer_than_expected_are_expected_to() {
        let mut waits = LockWaits::default();
        waits.add(true, 5);
        assert!(waits.decide(&costs(10, 70), 8));
        waits.add_taken(&costs(10, 70), 75);
        assert!(waits.decide(&costs(10, 70), 8), "one that is late is not believed");
        waits.add_taken(&costs(10, 70), 80);
        assert!((0..64).all(|_| !waits.decide(&costs(10, 70), 8)));
        // That they were quicker is luck.
        (0..3).for_each(|_| waits.add_taken(&costs(10, 70), 1));
        assert!(waits.decide(&costs(10, 70), 8));
        assert!(!waits.decide(&costs(70, 70), 8));
    }

    /// The first access of an empty file took seventy times what was expected, and no other was sieved for as long as the file was open.
    #[test]
    fn what_was_expected_wrongly_is_judged_by_what_is_known_later() {
        let pieces = || comb(50, 800, 200);
        let (guessed, found) = (
            Speed {
                request_ns: 25_000,
                kib_ns: 1_000,
            },
            FAR,
        );
        let mut waits = LockWaits::default();
        let first = Sieve::of(pieces(), guessed).unwrap();
        let took = Sieve::of(pieces(), found).unwrap().sieved_ns();
        assert!(took > 10 * first.sieved_ns() && waits.decide(&first, 1));
        (0..3).for_each(|_| waits.add_taken(&first, took));
        assert!(!waits.decide(&first, 1));
        assert!(waits.decide(&Sieve::of(pieces(), found).unwrap(), 1));
    }

    #[test]
    fn what_is_no_shorter_is_not_sieved_however_long_locks_are_waited_for() {
        let mut waits = LockWaits::default();
        waits.add(false, 1_000_000);
        assert!(!waits.decide(&costs(70, 70), 1));
        assert!(waits.decide(&costs(69, 70), 1));
    }

    #[test]
    fn locks_that_are_waited_for_either_way_speak_for_the_shorter_access() {
        let mut waits = LockWaits::default();
        waits.add(true, 400);
        assert!(!waits.decide(&costs(50, 70), 8));
        waits.add(false, 500);
        assert!(waits.decide(&costs(50, 70), 8));
    }
}
