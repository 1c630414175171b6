//! A loser tree: the smallest of many heads, found anew with one comparison per level.
//!
//! ```text
//!            winner                each inner node keeps the loser of the match played there;
//!              |                   the next head of the winner's run plays its way up again
//!            loser
//!           /     \
//!       loser     loser
//!       /   \     /   \
//!      r0   r1   r2   r3
//! ```
//!
//! A head is a prefix beside the number of its run, in one integer: of equal prefixes the earlier run comes first,
//! which makes a merge of stable runs stable. Where prefixes do not decide, the owner of the records is asked.
//!
//! Source: Knuth, *The Art of Computer Programming*, volume 3, section 5.4.1.

/// A head: prefix (64 bits), run (32 bits).
pub(crate) type Head = u128;

/// The head of a run that has no more records: after all others.
pub(crate) const EXHAUSTED: Head = Head::MAX;

pub(crate) fn head(prefix: u64, run: usize) -> Head {
    Head::from(prefix) << 32 | run as Head
}

/// The run of a head that is not exhausted.
pub(crate) fn run_of(head: Head) -> usize {
    (head & 0xffff_ffff) as usize
}

/// Of heads with equal prefixes, neither exhausted: does the first run's record come first by its whole key?
/// `None`: they are equal.
pub(crate) trait Ties {
    /// Are there comparisons that prefixes do not decide?
    const HAPPEN: bool = true;

    fn first_is_less(&self, first: usize, second: usize) -> Option<bool>;
}

/// Prefixes decide everything.
pub(crate) struct NoTies;

impl Ties for NoTies {
    const HAPPEN: bool = false;

    #[inline]
    fn first_is_less(&self, _: usize, _: usize) -> Option<bool> {
        None
    }
}

pub(crate) struct LoserTree {
    /// The losers at 1..; 0 is the winner.
    nodes: Vec<Head>,
}

impl LoserTree {
    /// Plays all matches among the first heads of all runs, in the order of the runs.
    pub(crate) fn new(heads: &[Head], ties: &impl Ties) -> Self {
        let runs = heads.len();
        let mut winners = vec![EXHAUSTED; runs];
        winners.extend_from_slice(heads);
        let mut nodes = vec![EXHAUSTED; runs.max(1)];
        for node in (1..runs).rev() {
            let (a, b) = (winners[2 * node], winners[2 * node + 1]);
            let (winner, loser) = if before(a, b, ties) { (a, b) } else { (b, a) };
            (winners[node], nodes[node]) = (winner, loser);
        }
        nodes[0] = winners.get(1).copied().unwrap_or(EXHAUSTED);
        Self { nodes }
    }

    /// The smallest head; [`EXHAUSTED`] when no run has more.
    #[inline]
    pub(crate) fn winner(&self) -> Head {
        self.nodes[0]
    }

    /// Replaces the winner by the next head of its run.
    #[inline]
    pub(crate) fn replace_winner(&mut self, next: Head, ties: &impl Ties) {
        let mut node = (self.nodes.len() + run_of(self.nodes[0])) / 2;
        let mut candidate = next;
        while node > 0 {
            let other = self.nodes[node];
            // Selected, not branched on: which one wins cannot be predicted.
            let other_wins = before(other, candidate, ties);
            self.nodes[node] = if other_wins { candidate } else { other };
            candidate = if other_wins { other } else { candidate };
            node /= 2;
        }
        self.nodes[0] = candidate;
    }
}

#[inline]
fn before<T: Ties>(a: Head, b: Head, ties: &T) -> bool {
    if T::HAPPEN
        && a >> 32 == b >> 32
        && a != EXHAUSTED
        && b != EXHAUSTED
        && let Some(less) = ties.first_is_less(run_of(a), run_of(b))
    {
        return less;
    }
    a < b
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(runs: &[Vec<u64>]) -> Vec<(u64, usize)> {
        let mut at = vec![0; runs.len()];
        let next = |at: &mut [usize], run: usize| {
            let head = runs[run].get(at[run]).map_or(EXHAUSTED, |key| head(*key, run));
            at[run] += 1;
            head
        };
        let heads: Vec<Head> = (0..runs.len()).map(|run| next(&mut at, run)).collect();
        let mut tree = LoserTree::new(&heads, &NoTies);
        let mut all = Vec::new();
        while tree.winner() != EXHAUSTED {
            let run = run_of(tree.winner());
            all.push(((tree.winner() >> 32) as u64, run));
            let head = next(&mut at, run);
            tree.replace_winner(head, &NoTies);
        }
        all
    }

    #[test]
    fn every_number_of_runs_is_merged_in_order_and_earlier_runs_first() {
        for count in 0..20_u64 {
            let runs: Vec<Vec<u64>> = (0..count)
                .map(|run| (0..run * 3 % 11).map(|i| i * i % (run + 2) + i).collect::<Vec<_>>())
                .map(|mut run| {
                    run.sort_unstable();
                    run.push(u64::MAX);
                    run
                })
                .collect();
            let mut expected: Vec<(u64, usize)> = (0..runs.len())
                .flat_map(|run| runs[run].iter().map(move |key| (*key, run)))
                .collect();
            expected.sort();
            assert_eq!(merged(&runs), expected, "{count} runs");
        }
    }
}
