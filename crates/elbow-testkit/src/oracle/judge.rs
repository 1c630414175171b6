//! Whether what clients were told can be true.
//!
//! Bytes are cut where any holding begins or ends, and each piece is looked at by itself: the holdings that cover it, in order of time. So it
//! takes n log n for each piece, of which there are few.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;

use super::{Holding, Mode};

/// What cannot be.
#[derive(Clone, Debug)]
pub enum Violation {
    /// Both were sure to hold bytes that exclude each other, at this instant.
    Both {
        /// One of them.
        first: Holding,
        /// The other.
        second: Holding,
        /// When both were.
        at: u64,
    },
    /// Whenever it ran while it asked, others were sure to hold what it was told is its own.
    NeverAlone(Holding),
    /// The later one's fencing token is not the larger one.
    Token {
        /// The earlier one.
        earlier: Holding,
        /// The later one.
        later: Holding,
    },
    /// It was told that the lock is lost, and then that it is not.
    FoundAgain(Holding),
    /// It was lost when it was told that it is granted.
    LostAlready(Holding),
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Both { first, second, at } => write!(formatter, "two hold at {at}:\n  {first}\n  {second}"),
            Self::NeverAlone(holding) => write!(formatter, "granted while others held it all the time:\n  {holding}"),
            Self::Token { earlier, later } => {
                write!(
                    formatter,
                    "the token of the later is not larger:\n  {earlier}\n  {later}"
                )
            }
            Self::LostAlready(holding) => write!(formatter, "lost when it was told that it is granted:\n  {holding}"),
            Self::FoundAgain(holding) => write!(formatter, "lost, and then its own again:\n  {holding}"),
        }
    }
}

/// Intervals that are sorted, apart from each other and closed.
type Spans = Vec<(u64, u64)>;

/// Everything that cannot be, of any number of holdings on any files. `troubles`: when the service was away or stopped.
///
/// ```
/// use elbow_testkit::oracle::{judge, log};
///
/// let read = |name: &str, text: &str| {
///     let client = log::Client { name: name.to_owned(), ..log::Client::default() };
///     log::read(&client, text).unwrap().holdings
/// };
/// let one = read("one", "ask 1 f x 0:10\ngot 2 7\nours 9 9\n");
/// let two = read("two", "ask 3 f x 9:10\ngot 10 8\nours 12 12\n");
/// assert!(judge(&[one.clone(), two].concat(), &[]).is_empty());
/// let too_early = read("two", "ask 3 f x 9:10\ngot 8 8\nours 12 12\n");
/// assert_eq!(judge(&[one, too_early].concat(), &[]).len(), 1);
/// ```
#[must_use]
pub fn judge(holdings: &[Holding], troubles: &[Range<u64>]) -> Vec<Violation> {
    let mut by_file: BTreeMap<&str, Vec<&Holding>> = BTreeMap::new();
    for holding in holdings {
        by_file.entry(&holding.file).or_default().push(holding);
    }
    let found_again = holdings.iter().filter(|holding| holding.was_found_again);
    let mut found: Vec<Violation> = found_again.cloned().map(Violation::FoundAgain).collect();
    let lost = holdings.iter().filter(|holding| was_lost_already(holding, troubles));
    found.extend(lost.cloned().map(Violation::LostAlready));
    for holdings in by_file.values() {
        File::new(holdings).judge(&mut found);
    }
    found
}

/// The holdings of one file, by pieces of it.
struct File<'a> {
    holdings: &'a [&'a Holding],
    /// Which holdings cover each piece.
    pieces: Vec<Vec<usize>>,
    /// Which pieces each holding covers.
    covers: Vec<Vec<usize>>,
}

impl<'a> File<'a> {
    fn new(holdings: &'a [&'a Holding]) -> Self {
        let edges: BTreeSet<u64> = holdings
            .iter()
            .flat_map(|holding| holding.ranges.iter().flat_map(|range| [range.start, range.end]))
            .collect();
        let edges: Vec<u64> = edges.into_iter().collect();
        let mut pieces = vec![Vec::new(); edges.len()];
        let mut covers = vec![Vec::new(); holdings.len()];
        for (number, holding) in holdings.iter().enumerate() {
            for range in &holding.ranges {
                let first = edges.partition_point(|&edge| edge < range.start);
                let last = edges.partition_point(|&edge| edge < range.end);
                covers[number].extend(first..last);
            }
            covers[number].sort_unstable();
            covers[number].dedup();
            covers[number].iter().for_each(|&piece| pieces[piece].push(number));
        }
        Self {
            holdings,
            pieces,
            covers,
        }
    }

    fn judge(&self, found: &mut Vec<Violation>) {
        // One pair is found on each of its pieces, and told once.
        let mut pairs = BTreeSet::new();
        for piece in &self.pieces {
            self.both(piece, &mut pairs, found);
        }
        let places = self.places(found);
        pairs.clear();
        for piece in &self.pieces {
            self.tokens(piece, &places, &mut pairs, found);
        }
        self.direct_tokens(found);
    }

    /// Pairs that are both sure at an instant.
    fn both(&self, piece: &[usize], pairs: &mut BTreeSet<(usize, usize)>, found: &mut Vec<Violation>) {
        let mut sure: Vec<(u64, u64, usize)> = piece
            .iter()
            .filter_map(|&number| self.holdings[number].sure().map(|(start, end)| (start, end, number)))
            .collect();
        sure.sort_unstable();
        // Of those before: which one ends last, of the exclusive ones and of all.
        let mut last: [Option<(u64, usize)>; 2] = [None; 2];
        for (start, end, number) in sure {
            let is_exclusive = self.holdings[number].mode == Mode::Exclusive;
            let before = last[usize::from(is_exclusive)];
            if let Some((_, other)) = before.filter(|&(until, _)| until >= start)
                && pairs.insert((other, number))
            {
                let [first, second] = [other, number].map(|number| self.holdings[number].clone());
                found.push(Violation::Both {
                    first,
                    second,
                    at: start,
                });
            }
            last[1] = last[1].max(Some((end, number)));
            if is_exclusive {
                last[0] = last[0].max(Some((end, number)));
            }
        }
    }

    /// When each holding was there, as far as is known: all of what is sure, or else the instants of which it was one; both ends of that. None
    /// where no instant is left, which is a violation.
    fn places(&self, found: &mut Vec<Violation>) -> Vec<Option<(u64, u64)>> {
        let taken = self.pieces.iter().map(|piece| {
            let of = |only_exclusive: bool| {
                let sure = piece.iter().map(|&number| self.holdings[number]);
                union(
                    sure.filter(|holding| !only_exclusive || holding.mode == Mode::Exclusive)
                        .filter_map(Holding::sure),
                )
            };
            [of(true), of(false)]
        });
        let taken: Vec<[Spans; 2]> = taken.collect();
        let place = |(number, holding): (usize, &&Holding)| {
            holding.sure().or_else(|| {
                let mut left = ran(holding);
                for &piece in &self.covers[number] {
                    subtract(&mut left, &taken[piece][usize::from(holding.mode == Mode::Exclusive)]);
                }
                if left.is_empty() {
                    found.push(Violation::NeverAlone((*holding).clone()));
                }
                Some((left.first()?.0, left.last()?.1))
            })
        };
        self.holdings.iter().enumerate().map(place).collect()
    }

    /// Of those that exclude each other the later has the larger token.
    fn tokens(
        &self,
        piece: &[usize],
        places: &[Option<(u64, u64)>],
        pairs: &mut BTreeSet<(usize, usize)>,
        found: &mut Vec<Violation>,
    ) {
        let mut known: Vec<(u64, u64, u64, usize)> = piece
            .iter()
            .filter_map(|&number| {
                let (first, last) = places[number]?;
                Some((first, last, self.holdings[number].token?, number))
            })
            .collect();
        let mut over = known.clone();
        known.sort_unstable();
        over.sort_unstable_by_key(|&(_, last, _, _)| last);
        let mut over = over.into_iter().peekable();
        // The largest token of those that were over before, of the exclusive ones and of all.
        let mut largest: [Option<(u64, usize)>; 2] = [None; 2];
        for (first, _, token, number) in known {
            while let Some((_, _, token, number)) = over.next_if(|&(_, last, _, _)| last < first) {
                largest[1] = largest[1].max(Some((token, number)));
                if self.holdings[number].mode == Mode::Exclusive {
                    largest[0] = largest[0].max(Some((token, number)));
                }
            }
            let is_exclusive = self.holdings[number].mode == Mode::Exclusive;
            let before = largest[usize::from(is_exclusive)];
            if let Some((_, other)) = before.filter(|&(before, _)| before >= token)
                && pairs.insert((other, number))
            {
                found.push(self.token(other, number));
            }
        }
    }

    /// Of those that the service itself granted to its own clients, any later one has the larger token.
    fn direct_tokens(&self, found: &mut Vec<Violation>) {
        let direct = || (0..self.holdings.len()).filter(|&number| self.holdings[number].is_direct);
        let mut by_ask: Vec<usize> = direct().collect();
        by_ask.sort_unstable_by_key(|&number| self.holdings[number].asked);
        let mut by_grant: Vec<usize> = direct().collect();
        by_grant.sort_unstable_by_key(|&number| self.holdings[number].granted);
        let mut by_grant = by_grant.into_iter().peekable();
        let mut largest: Option<(u64, usize)> = None;
        for number in by_ask {
            let later = self.holdings[number];
            while let Some(before) = by_grant.next_if(|&before| self.holdings[before].granted < later.asked) {
                largest = largest.max(self.holdings[before].token.map(|token| (token, before)));
            }
            if let (Some((before, other)), Some(token)) = (largest, later.token)
                && before >= token
            {
                found.push(self.token(other, number));
            }
        }
    }

    fn token(&self, earlier: usize, later: usize) -> Violation {
        let [earlier, later] = [earlier, later].map(|number| self.holdings[number].clone());
        Violation::Token { earlier, later }
    }
}

fn was_lost_already(holding: &Holding, troubles: &[Range<u64>]) -> bool {
    let (Some(lost), Some(lease), Some(stop)) = (holding.lost_at_once, holding.lease, holding.stops.last()) else {
        return false;
    };
    let is_quiet = !troubles
        .iter()
        .any(|trouble| trouble.start <= lost && stop.end <= trouble.end);
    stop.end <= holding.granted && stop.end - stop.start > lease && lost - stop.end < lease / 2 && is_quiet
}

/// When the process of a client ran while it asked.
fn ran(holding: &Holding) -> Spans {
    let mut left = vec![(holding.asked, holding.granted)];
    // At both ends of a stop it may have run.
    let stops = holding.stops.iter().filter(|stop| stop.end > stop.start + 1);
    subtract(&mut left, &union(stops.map(|stop| (stop.start + 1, stop.end - 1))));
    left
}

fn union(spans: impl Iterator<Item = (u64, u64)>) -> Spans {
    let mut sorted: Spans = spans.collect();
    sorted.sort_unstable();
    let mut union: Spans = Vec::new();
    for (start, end) in sorted {
        match union.last_mut() {
            Some((_, until)) if *until >= start => *until = end.max(*until),
            _ => union.push((start, end)),
        }
    }
    union
}

/// Takes closed intervals away from closed intervals of whole numbers.
fn subtract(from: &mut Spans, taken: &[(u64, u64)]) {
    let mut left = Vec::new();
    for &(start, end) in from.iter() {
        let mut start = Some(start);
        let first = taken.partition_point(|&(_, until)| start.is_some_and(|start| until < start));
        for &(taken_from, until) in taken[first..].iter().take_while(|&&(from, _)| from <= end) {
            if let Some(begin) = start.filter(|&begin| begin < taken_from) {
                left.push((begin, taken_from - 1));
            }
            start = until.checked_add(1);
        }
        left.extend(start.filter(|&start| start <= end).map(|start| (start, end)));
    }
    *from = left;
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "one range is a list of ranges, too")]
mod tests {
    use rand::Rng;

    use super::*;
    use crate::cases::for_each_seed;

    /// Exclusive, on all of a file; sure from `granted` to `ours`.
    fn held(client: &str, asked: u64, granted: u64, ours: Option<u64>, token: u64) -> Holding {
        Holding {
            client: client.to_owned(),
            is_direct: true,
            file: "f".to_owned(),
            ranges: vec![0..100],
            mode: Mode::Exclusive,
            token: Some(token),
            asked,
            granted,
            ours,
            lost_at_once: None,
            lease: None,
            stops: Vec::new(),
            was_found_again: false,
        }
    }

    fn on(ranges: &[std::ops::Range<u64>], holding: Holding) -> Holding {
        let ranges = ranges.to_vec();
        Holding { ranges, ..holding }
    }

    fn shared(holding: Holding) -> Holding {
        let mode = Mode::Shared;
        Holding { mode, ..holding }
    }

    fn kinds(holdings: &[Holding]) -> String {
        let letter = |violation: &Violation| match violation {
            Violation::Both { .. } => 'B',
            Violation::NeverAlone(_) => 'N',
            Violation::Token { .. } => 'T',
            Violation::FoundAgain(_) => 'F',
            Violation::LostAlready(_) => 'L',
        };
        judge(holdings, &[5_000..5_001]).iter().map(letter).collect()
    }

    #[test]
    fn one_after_another_is_right_and_two_at_once_are_found() {
        let first = held("a", 1, 2, Some(10), 1);
        assert_eq!(kinds(&[first.clone(), held("b", 3, 12, Some(20), 2)]), "");
        assert_eq!(kinds(&[first.clone(), held("b", 3, 10, Some(20), 2)]), "B");
        assert_eq!(kinds(&[first, held("b", 3, 5, Some(7), 2)]), "B");
    }

    #[test]
    fn other_bytes_and_other_files_are_nobodys_business() {
        let first = on(&[0..10, 20..30], held("a", 1, 2, Some(10), 1));
        let beside = on(&[10..20, 30..40], held("b", 1, 3, Some(10), 2));
        assert_eq!(kinds(&[first.clone(), beside]), "");
        let over = on(&[5..6], held("b", 1, 3, Some(10), 2));
        assert_eq!(kinds(&[first.clone(), over.clone()]), "B");
        let file = "g".to_owned();
        assert_eq!(kinds(&[first, Holding { file, ..over }]), "");
    }

    #[test]
    fn readers_share_and_writers_do_not() {
        let reader = |client, granted, ours| shared(held(client, 1, granted, Some(ours), 1));
        assert_eq!(kinds(&[reader("a", 2, 10), reader("b", 2, 10)]), "");
        let writer = held("c", 1, 9, Some(12), 2);
        assert_eq!(kinds(&[reader("a", 2, 10), writer.clone()]), "B");
        // The one that overlaps is not the last one that came.
        assert_eq!(kinds(&[reader("a", 2, 10), reader("b", 3, 4), writer.clone()]), "B");
        assert_eq!(kinds(&[writer, reader("d", 11, 20)]), "B");
    }

    #[test]
    fn a_pair_with_many_pieces_in_common_is_told_once() {
        let ranges = [0..10, 20..30, 40..50];
        let both = ["a", "b"].map(|client| on(&ranges, held(client, 1, 2, Some(5), 1)));
        assert_eq!(kinds(&both), "B");
    }

    #[test]
    fn a_grant_without_a_check_must_have_an_instant_of_its_own() {
        let first = held("a", 1, 2, Some(10), 1);
        let second = held("b", 11, 12, Some(20), 3);
        let between = |asked, granted| held("c", asked, granted, None, 2);
        assert_eq!(kinds(&[first.clone(), second.clone(), between(5, 12)]), "");
        assert_eq!(kinds(&[first.clone(), second, between(3, 10)]), "N");
        assert_eq!(kinds(&[first, held("b", 8, 11, Some(20), 3), between(5, 15)]), "N");
    }

    /// Two stories of a wait: stopped past its lease while it waited, and what it was told when it woke was long over.
    #[test]
    fn a_process_is_told_nothing_while_it_is_stopped() {
        let first = held("a", 1, 2, Some(10), 1);
        let second = held("b", 3, 20, Some(50), 3);
        let waiter = held("c", 5, 41, None, 2);
        assert_eq!(
            kinds(&[first.clone(), second.clone(), waiter.clone()]),
            "",
            "it may have had it at 15"
        );
        let stops = vec![8..40];
        assert_eq!(kinds(&[first, second, Holding { stops, ..waiter }]), "N");
    }

    #[test]
    fn later_tokens_are_larger_where_one_excludes_the_other() {
        let through_proxy = |holding| Holding {
            is_direct: false,
            ..holding
        };
        let first = through_proxy(held("a", 1, 2, Some(10), 5));
        let later = |token| through_proxy(held("b", 3, 12, Some(20), token));
        assert_eq!(kinds(&[first.clone(), later(6)]), "");
        assert_eq!(kinds(&[first.clone(), later(5)]), "T");
        assert_eq!(kinds(&[first.clone(), shared(later(4))]), "T");
        assert_eq!(kinds(&[shared(first.clone()), shared(later(4))]), "");
        assert_eq!(kinds(&[shared(first.clone()), later(4)]), "T");
        // Its only possible instants are after the first.
        assert_eq!(kinds(&[first.clone(), through_proxy(held("b", 3, 12, None, 4))]), "T");
        // It may have been before.
        assert_eq!(kinds(&[first, through_proxy(held("b", 1, 12, None, 4))]), "");
    }

    #[test]
    fn of_the_service_itself_all_later_tokens_of_a_file_are_larger() {
        let first = on(&[0..1], held("a", 1, 2, Some(10), 5));
        let beside = |asked, token| on(&[1..2], held("b", asked, 12, Some(20), token));
        assert_eq!(kinds(&[first.clone(), beside(3, 4)]), "T");
        assert_eq!(kinds(&[first.clone(), beside(2, 4)]), "", "they asked at the same time");
        let through_proxy = Holding {
            is_direct: false,
            ..beside(3, 4)
        };
        assert_eq!(kinds(&[first, through_proxy]), "");
    }

    #[test]
    fn what_was_lost_is_not_found_again() {
        let was_found_again = true;
        let holding = held("a", 1, 2, Some(3), 1);
        assert_eq!(
            kinds(&[Holding {
                was_found_again,
                ..holding
            }]),
            "F"
        );
    }

    /// What woke up with a grant of a session that was over, and one that lost its lock for another reason.
    #[test]
    fn a_grant_that_is_lost_when_it_is_told_is_found() {
        let stopped_until = |end: u64, lost: u64| Holding {
            stops: vec![1_000..end],
            lease: Some(1_000),
            lost_at_once: Some(lost),
            ..held("a", 900, end + 10, None, 1)
        };
        assert_eq!(kinds(&[stopped_until(3_000, 3_020)]), "L");
        assert_eq!(kinds(&[stopped_until(1_900, 1_920)]), "", "its lease was not over");
        assert_eq!(kinds(&[stopped_until(3_000, 3_600)]), "", "lost since");
        assert_eq!(kinds(&[stopped_until(4_990, 5_010)]), "", "the service was away");
        let lease = None;
        let of_proxy = stopped_until(3_000, 3_020);
        assert_eq!(kinds(&[Holding { lease, ..of_proxy }]), "");
    }

    /// Histories of a lock that works are right, whatever is not told of them; and each that is then told wrong is found.
    #[test]
    fn true_histories_are_right_and_planted_faults_are_found() {
        for_each_seed(200, |rng| {
            let (mut now, mut history) = (10, Vec::new());
            for token in 1..60 {
                let granted = now + rng.random_range(1..5);
                let ours = granted + rng.random_range(0..20);
                now = ours + rng.random_range(1..5);
                let asked = granted - rng.random_range(0..granted.min(30));
                let ours = rng.random_bool(0.8).then_some(ours);
                let first = rng.random_range(0..90);
                let holding = held("true", asked, granted, ours, token);
                history.push(on(&[first..first + 10, 95..96], holding));
            }
            assert_eq!(kinds(&history), "");
            let sure: Vec<usize> = (0..59)
                .filter(|&at| history[at].ours > Some(history[at].granted))
                .collect();
            let victim = sure[rng.random_range(0..sure.len())];
            let mut intruder = held(
                "intruder",
                history[victim].granted,
                history[victim].granted + 1,
                None,
                1_000,
            );
            intruder.ranges = vec![95..100];
            intruder.is_direct = false;
            intruder.ours = rng.random_bool(0.5).then_some(intruder.granted);
            let expected = if intruder.ours.is_some() { 'B' } else { 'N' };
            let found = kinds(&[history.clone(), vec![intruder]].concat());
            assert!(found.contains(expected), "{found}");
            let other = (victim + 30) % 59;
            let token = history[victim].token;
            history[victim].token = history[other].token;
            history[other].token = token;
            assert!(kinds(&history).contains('T'));
        });
    }
}
