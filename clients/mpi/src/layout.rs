//! Where the bytes of a datatype lie: runs, repeated at a stride, one after another, in the order of the data.
//!
//! ```text
//! vector(3 blocks of 2 ints every 5):   Repeat { count: 3, stride: 20, body: Run 8 }
//! two of them in a struct:              Sequence [ at 0: Repeat .. , at 100: Repeat .. ]
//! ```
//!
//! A layout is as large as the description that the program gave of it, never as the data: a 2-D block of a million
//! pieces is one `Repeat`. [`Layout::cover`] cuts out the bytes `from..to` of the data and gives them as [`Strided`]
//! patterns: a repetition is cut into what is left of its first copy, the whole copies, and what is left of its last,
//! so that each level of nesting adds at most two patterns.
//!
//! Invariants: no part is empty; a run is not repeated at its own length (it is a longer run); a sequence has two parts
//! or more, or one that does not begin at 0. Source: MPI 4.0, sections 5.1 (typemaps) and 14.3 (views).

use std::ops::Range;
use std::sync::Arc;

use elbow_ranges::{Dim, PatternError, Strided};

/// Where the bytes of a datatype lie, relative to where it is placed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Layout {
    /// This many bytes in a row.
    Run(u64),
    /// Copies of `body`, `stride` bytes from one begin to the next.
    Repeat {
        count: u64,
        stride: i64,
        body: Arc<Layout>,
        bytes: u64,
    },
    /// One after another in the data, each where it says.
    Sequence { parts: Arc<[Part]>, bytes: u64 },
}

/// One part of a sequence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    at: i64,
    /// Bytes of data in the parts before it.
    before: u64,
    layout: Layout,
}

/// Why a layout cannot be had, or not be placed in a file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum LayoutError {
    #[error(transparent)]
    Pattern(#[from] PatternError),
    #[error("some of its bytes lie before the begin of the file or beyond 2^63")]
    OutOfFile,
    #[error("its pieces are not in ascending order, as MPI demands of a file type")]
    NotAscending,
}

/// A list gets patterns where so many equal pieces follow one another at equal distances.
const PATTERN_FROM: usize = 3;

impl Layout {
    /// Bytes of data in it.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Layout::Run(bytes) | Layout::Repeat { bytes, .. } | Layout::Sequence { bytes, .. } => *bytes,
        }
    }

    /// From its first byte to its last, if the bytes lie in the file in the order of the data.
    pub(crate) fn ascending(&self) -> Option<Range<i64>> {
        match self {
            Layout::Run(bytes) => Some(0..i64::try_from(*bytes).ok()?),
            Layout::Repeat {
                count, stride, body, ..
            } => {
                let body = body.ascending()?;
                let last = i64::try_from(count - 1).ok()?.checked_mul(*stride)?;
                let is_apart = *count == 1 || body.end.checked_sub(body.start)? <= *stride;
                is_apart.then_some(body.start..body.end.checked_add(last)?)
            }
            Layout::Sequence { parts, .. } => {
                let mut all: Option<Range<i64>> = None;
                for part in parts.iter() {
                    let range = part.layout.ascending()?;
                    let (start, end) = (part.at.checked_add(range.start)?, part.at.checked_add(range.end)?);
                    let first = all.as_ref().map_or(start, |all| all.start);
                    if all.is_some_and(|all| start < all.end) {
                        return None;
                    }
                    all = Some(first..end);
                }
                all
            }
        }
    }

    /// `count` copies of `body`, `stride` bytes apart.
    ///
    /// # Errors
    /// [`LayoutError::OutOfFile`]: more than 2^64 bytes.
    pub(crate) fn repeat(count: u64, stride: i64, body: Layout) -> Result<Layout, LayoutError> {
        let bytes = body.bytes().checked_mul(count).ok_or(LayoutError::OutOfFile)?;
        if bytes == 0 {
            return Ok(Layout::Run(0));
        }
        Ok(match body {
            body if count == 1 => body,
            Layout::Run(run) if i64::try_from(run) == Ok(stride) => Layout::Run(bytes),
            Layout::Repeat {
                count: inner_count,
                stride: inner,
                body,
                ..
            } if continues(inner_count, inner, stride) => Layout::Repeat {
                count: count * inner_count,
                stride: inner,
                body,
                bytes,
            },
            Layout::Sequence { parts, .. } if parts.len() == 1 => {
                let repeated = Layout::repeat(count, stride, parts[0].layout.clone())?;
                Layout::Sequence {
                    parts: Arc::new([Part {
                        at: parts[0].at,
                        before: 0,
                        layout: repeated,
                    }]),
                    bytes,
                }
            }
            body => Layout::Repeat {
                count,
                stride,
                body: Arc::new(body),
                bytes,
            },
        })
    }

    /// `layouts` one after another in the data, each at its place; the parts of a long list that repeat become patterns.
    ///
    /// # Errors
    /// [`LayoutError::OutOfFile`]: more than 2^64 bytes.
    pub(crate) fn sequence(layouts: impl IntoIterator<Item = (i64, Layout)>) -> Result<Layout, LayoutError> {
        let mut parts = Vec::new();
        let mut before = 0_u64;
        for (at, layout) in patterns(&joined(layouts))? {
            let bytes = layout.bytes();
            parts.push(Part { at, before, layout });
            before = before.checked_add(bytes).ok_or(LayoutError::OutOfFile)?;
        }
        match parts.as_slice() {
            [] => Ok(Layout::Run(0)),
            [only] if only.at == 0 => Ok(only.layout.clone()),
            _ => Ok(Layout::Sequence {
                parts: parts.into(),
                bytes: before,
            }),
        }
    }

    /// Adds to `out` the patterns that cover the bytes `from..to` of the data of this layout placed at `base`.
    ///
    /// # Errors
    /// See [`LayoutError`].
    pub(crate) fn cover(&self, base: i64, from: u64, to: u64, out: &mut Vec<Strided>) -> Result<(), LayoutError> {
        debug_assert!(from <= to && to <= self.bytes());
        if from == to {
            return Ok(());
        }
        if from == 0 && to == self.bytes() {
            return self.cover_whole(base, &mut Vec::new(), out);
        }
        match self {
            Layout::Run(_) => push(moved(base, 1, from)?, &[], to - from, out),
            Layout::Repeat { stride, body, .. } => cover_copies(base, *stride, body, from..to, out),
            Layout::Sequence { parts, .. } => {
                let first = parts.partition_point(|part| part.before + part.layout.bytes() <= from);
                for part in parts[first..].iter().take_while(|part| part.before < to) {
                    let end = (to - part.before).min(part.layout.bytes());
                    let at = base.checked_add(part.at).ok_or(LayoutError::OutOfFile)?;
                    part.layout.cover(at, from.saturating_sub(part.before), end, out)?;
                }
                Ok(())
            }
        }
    }

    fn cover_whole(&self, base: i64, dims: &mut Vec<Dim>, out: &mut Vec<Strided>) -> Result<(), LayoutError> {
        match self {
            Layout::Run(bytes) => push(base, dims, *bytes, out),
            Layout::Repeat {
                count, stride, body, ..
            } => {
                let stride = u64::try_from(*stride).map_err(|_| LayoutError::NotAscending)?;
                dims.push(Dim { count: *count, stride });
                body.cover_whole(base, dims, out)?;
                dims.pop();
                Ok(())
            }
            Layout::Sequence { parts, .. } => parts.iter().try_for_each(|part| {
                let at = base.checked_add(part.at).ok_or(LayoutError::OutOfFile)?;
                part.layout.cover_whole(at, dims, out)
            }),
        }
    }
}

/// Whether a repetition at `stride` of `count` copies at `inner` goes on where the copies end.
fn continues(count: u64, inner: i64, stride: i64) -> bool {
    i64::try_from(count).ok().and_then(|count| count.checked_mul(inner)) == Some(stride)
}

fn cover_copies(
    base: i64,
    stride: i64,
    body: &Layout,
    data: Range<u64>,
    out: &mut Vec<Strided>,
) -> Result<(), LayoutError> {
    let bytes = body.bytes();
    let (mut first, head) = (data.start / bytes, data.start % bytes);
    let (last, tail) = (data.end / bytes, data.end % bytes);
    if first == last {
        return body.cover(moved(base, stride, first)?, head, tail, out);
    }
    if head > 0 {
        body.cover(moved(base, stride, first)?, head, bytes, out)?;
        first += 1;
    }
    if first < last {
        let whole = Layout::repeat(last - first, stride, body.clone())?;
        whole.cover_whole(moved(base, stride, first)?, &mut Vec::new(), out)?;
    }
    body.cover(moved(base, stride, last)?, 0, tail, out)
}

fn moved(base: i64, stride: i64, copies: u64) -> Result<i64, LayoutError> {
    let copies = i64::try_from(copies).map_err(|_| LayoutError::OutOfFile)?;
    stride
        .checked_mul(copies)
        .and_then(|by| base.checked_add(by))
        .ok_or(LayoutError::OutOfFile)
}

fn push(start: i64, dims: &[Dim], len: u64, out: &mut Vec<Strided>) -> Result<(), LayoutError> {
    let start = u64::try_from(start).map_err(|_| LayoutError::OutOfFile)?;
    out.push(Strided::new(start, dims, len)?);
    Ok(())
}

/// Leaves out what is empty, and makes one run of runs that follow each other.
fn joined(layouts: impl IntoIterator<Item = (i64, Layout)>) -> Vec<(i64, Layout)> {
    let mut kept: Vec<(i64, Layout)> = Vec::new();
    for (at, layout) in layouts {
        match (kept.last_mut(), &layout) {
            (_, layout) if layout.bytes() == 0 => {}
            (Some((before, Layout::Run(run))), Layout::Run(more)) if before.checked_add_unsigned(*run) == Some(at) => {
                *run += more;
            }
            _ => kept.push((at, layout)),
        }
    }
    kept
}

/// Makes one repetition of equal pieces at equal distances.
fn patterns(list: &[(i64, Layout)]) -> Result<Vec<(i64, Layout)>, LayoutError> {
    let mut found = Vec::new();
    let mut rest = list;
    while let [first, ..] = rest {
        let (length, stride) = alike(rest);
        if length >= PATTERN_FROM {
            found.push((first.0, Layout::repeat(length as u64, stride, first.1.clone())?));
            rest = &rest[length..];
        } else {
            found.push(first.clone());
            rest = &rest[1..];
        }
    }
    Ok(found)
}

/// How many pieces from the first on are equal and at equal distances, and that distance.
fn alike(list: &[(i64, Layout)]) -> (usize, i64) {
    let [(first, layout), (second, _), ..] = list else {
        return (1, 0);
    };
    let stride = second.wrapping_sub(*first);
    let follows = |pair: &&[(i64, Layout)]| pair[1].0.wrapping_sub(pair[0].0) == stride && pair[1].1 == *layout;
    (1 + list.windows(2).take_while(follows).count(), stride)
}

#[cfg(test)]
mod tests {
    use super::*;
    use elbow_ranges::Footprint;
    use elbow_testkit::cases;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    fn cover(layout: &Layout, base: i64, from: u64, to: u64) -> Vec<Strided> {
        let mut patterns = Vec::new();
        layout.cover(base, from, to, &mut patterns).unwrap();
        patterns
    }

    /// Where each byte of data lies, in the order of the data.
    fn expand(layout: &Layout, base: i64, bytes: &mut Vec<u64>) {
        match layout {
            Layout::Run(run) => bytes.extend((0..*run).map(|byte| base as u64 + byte)),
            Layout::Repeat {
                count, stride, body, ..
            } => {
                (0..*count as i64).for_each(|copy| expand(body, base + copy * stride, bytes));
            }
            Layout::Sequence { parts, .. } => parts
                .iter()
                .for_each(|part| expand(&part.layout, base + part.at, bytes)),
        }
    }

    /// The extent of a random layout comes with it: copies at that distance do not overlap.
    fn random(rng: &mut StdRng, depth: u32) -> (Layout, i64) {
        if depth == 0 {
            let run = rng.random_range(1..6);
            return (Layout::Run(run), run as i64 + rng.random_range(0..3));
        }
        let (inner, extent) = random(rng, depth - 1);
        if rng.random_bool(0.5) {
            let (count, stride) = (rng.random_range(1..5), extent + rng.random_range(0..4));
            (Layout::repeat(count, stride, inner).unwrap(), stride * count as i64)
        } else {
            let mut at = 0;
            let mut parts = Vec::new();
            for _ in 0..rng.random_range(1..6) {
                at += rng.random_range(0..2) * rng.random_range(0..5);
                parts.push((at, inner.clone()));
                at += extent;
            }
            (Layout::sequence(parts).unwrap(), at)
        }
    }

    #[test]
    fn any_part_covers_what_its_bytes_cover() {
        let mut rng = StdRng::seed_from_u64(cases::seed());
        for round in 0..cases::rounds(2000) {
            let depth = rng.random_range(0..5);
            let (layout, _) = random(&mut rng, depth);
            let base = rng.random_range(0..100);
            let mut bytes = Vec::new();
            expand(&layout, base, &mut bytes);
            assert_eq!(bytes.len() as u64, layout.bytes());
            let from = rng.random_range(0..bytes.len());
            let to = rng.random_range(from + 1..=bytes.len());
            let ours = Footprint::from_patterns(cover(&layout, base, from as u64, to as u64)).unwrap();
            let theirs = Footprint::from_list(bytes[from..to].iter().map(|byte| (*byte, 1))).unwrap();
            assert!(
                ours.iter().eq(theirs.iter()),
                "round {round}: {layout:?} {from}..{to}: {ours} instead of {theirs}"
            );
        }
    }

    #[test]
    fn layouts_are_ascending_when_their_bytes_are() {
        let mut rng = StdRng::seed_from_u64(cases::seed());
        let mut counts = [0, 0];
        for round in 0..cases::rounds(2000) {
            let (inner, extent) = random(&mut rng, 2);
            let (count, stride) = (rng.random_range(2..4), extent + rng.random_range(-3..3));
            let layout = Layout::sequence([
                (rng.random_range(0..9), Layout::repeat(count, stride, inner).unwrap()),
                (rng.random_range(20..80), Layout::Run(4)),
            ])
            .unwrap();
            let mut bytes = Vec::new();
            expand(&layout, 100, &mut bytes);
            let is_ascending = bytes.is_sorted_by(|one, next| one < next);
            counts[usize::from(is_ascending)] += 1;
            match layout.ascending() {
                Some(range) => {
                    assert!(is_ascending, "round {round}: {layout:?}");
                    let ends = (bytes[0] as i64 - 100, bytes[bytes.len() - 1] as i64 - 99);
                    assert_eq!((range.start, range.end), ends, "round {round}: {layout:?}");
                }
                None => assert!(!is_ascending, "round {round}: {layout:?}"),
            }
        }
        assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
    }

    #[test]
    fn a_pattern_stays_one_pattern_however_many_pieces_it_has() {
        let rows = Layout::repeat(1 << 20, 4096, Layout::repeat(1000, 16, Layout::Run(8)).unwrap()).unwrap();
        assert_eq!(cover(&rows, 100, 0, rows.bytes()).len(), 1);
        // A part of it: what is left of the first row and piece, the whole rows, what is left at the end.
        assert!(cover(&rows, 100, 8003, rows.bytes() - 13).len() <= 5);
    }

    #[test]
    fn lists_with_a_pattern_become_one() {
        let list = Layout::sequence((0..10_000).map(|piece| (piece * 12, Layout::Run(4)))).unwrap();
        assert_eq!(cover(&list, 0, 0, list.bytes()).len(), 1);
        let touching = Layout::sequence((0..10_000).map(|piece| (piece * 4, Layout::Run(4)))).unwrap();
        assert_eq!(touching, Layout::Run(40_000));
    }

    #[test]
    fn what_is_no_file_type_is_an_error() {
        let mut out = Vec::new();
        assert_eq!(Layout::Run(4).cover(-1, 0, 4, &mut out), Err(LayoutError::OutOfFile));
        let falling = Layout::repeat(3, -8, Layout::Run(4)).unwrap();
        assert_eq!(falling.cover(100, 0, 12, &mut out), Err(LayoutError::NotAscending));
        let far = Layout::repeat(3, i64::MAX / 2, Layout::Run(4)).unwrap();
        assert_eq!(far.cover(100, 9, 12, &mut out), Err(LayoutError::OutOfFile));
        assert_eq!(Layout::repeat(u64::MAX, 2, Layout::Run(4)), Err(LayoutError::OutOfFile));
    }
}
