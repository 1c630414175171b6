//! Spans of time that may overlap: for how long there was any, how many at once, and whose that time was.

/// Spans, each of a kind.
#[derive(Debug, Default)]
pub(super) struct Spans {
    all: Vec<Span>,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    began: f64,
    ended: f64,
    kind: usize,
}

/// What spans come to. Times are in the unit of the spans.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Overlap {
    /// For so long there was at least one.
    pub(super) busy: f64,
    /// All of them one after the other.
    pub(super) sum: f64,
    /// So many at once, at most.
    pub(super) most: usize,
    /// What of `busy` is of each kind: moments with several kinds are divided between these, by how many there are of each.
    pub(super) of_kinds: Vec<f64>,
}

impl Spans {
    /// One more; what has no length counts as nothing.
    pub(super) fn push(&mut self, began: f64, ended: f64, kind: usize) {
        if ended > began {
            self.all.push(Span { began, ended, kind });
        }
    }

    /// The parts of these spans that lie within any of some windows, which do not overlap.
    pub(super) fn within(&self, windows: &[(f64, f64)]) -> Self {
        let mut parts = Self::default();
        for span in &self.all {
            for (from, to) in windows {
                parts.push(span.began.max(*from), span.ended.min(*to), span.kind);
            }
        }
        parts
    }

    /// What they come to, for so many kinds.
    pub(super) fn overlap(&self, kinds: usize) -> Overlap {
        let begins = self.all.iter().map(|span| (span.began, true, span.kind));
        let ends = self.all.iter().map(|span| (span.ended, false, span.kind));
        let mut edges: Vec<(f64, bool, usize)> = begins.chain(ends).collect();
        // One that ends where another begins is over by then.
        edges.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut overlap = Overlap {
            of_kinds: vec![0.0; kinds],
            ..Overlap::default()
        };
        let mut open = vec![0_usize; kinds];
        let (mut count, mut before) = (0_usize, 0.0);
        for (at, is_begin, kind) in edges {
            overlap.pass(at - before, count, &open);
            before = at;
            if is_begin {
                (count, open[kind]) = (count + 1, open[kind] + 1);
            } else {
                (count, open[kind]) = (count - 1, open[kind] - 1);
            }
            overlap.most = overlap.most.max(count);
        }
        overlap
    }
}

impl Overlap {
    fn pass(&mut self, time: f64, count: usize, open: &[usize]) {
        if count == 0 {
            return;
        }
        self.busy += time;
        self.sum += time * count as f64;
        for (share, open) in self.of_kinds.iter_mut().zip(open) {
            *share += time * *open as f64 / count as f64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_time_is_counted_once_and_divided() {
        let mut spans = Spans::default();
        spans.push(0.0, 4.0, 0);
        spans.push(2.0, 4.0, 1);
        spans.push(4.0, 5.0, 1);
        spans.push(7.0, 7.0, 0);
        let overlap = spans.overlap(2);
        assert_eq!((overlap.busy, overlap.sum, overlap.most), (5.0, 7.0, 2));
        assert_eq!(overlap.of_kinds, [3.0, 2.0]);
    }

    #[test]
    fn what_lies_outside_of_the_windows_does_not_count() {
        let mut spans = Spans::default();
        spans.push(0.0, 10.0, 0);
        spans.push(11.0, 12.0, 0);
        let within = spans.within(&[(1.0, 2.0), (5.0, 6.5)]).overlap(1);
        assert_eq!((within.busy, within.most), (2.5, 1));
        assert_eq!(
            Spans::default().overlap(1),
            Overlap {
                of_kinds: vec![0.0],
                ..Overlap::default()
            }
        );
    }
}
