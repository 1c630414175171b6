//! Many sorted sources become one.
//!
//! ```text
//!            winner                each inner node keeps the loser of the match played there;
//!            /    \                the next line of the winner's source plays its way up again
//!        loser    loser
//!        /  \     /  \             a match is decided by prefixes, by lines where these are equal,
//!       s0  s1   s2  s3            and by the order of the sources where lines are equal: it is stable
//! ```
//!
//! Source: Knuth, *The Art of Computer Programming*, volume 3, section 5.4.1.

use std::cmp::Ordering;
use std::io::{self, Read};

use super::TextOrder;
use super::chunk::Cursor;
use super::error::{Result, TextError};
use super::lines::Lines;

/// Sorted lines, from memory or from a stream.
pub(super) enum Source {
    Chunk(Cursor),
    Stream(Stream),
}

/// Sorted lines that are read.
pub(super) struct Stream {
    lines: Lines<Box<dyn Read + Send>>,
    prefix: u64,
    failed: Box<dyn Fn(io::Error) -> TextError + Send>,
}

impl Stream {
    pub(super) fn new(
        lines: Lines<Box<dyn Read + Send>>,
        failed: impl Fn(io::Error) -> TextError + Send + 'static,
    ) -> Self {
        Self {
            lines,
            prefix: 0,
            failed: Box::new(failed),
        }
    }
}

impl Source {
    #[inline]
    fn advance(&mut self, order: &TextOrder) -> Result<bool> {
        match self {
            Self::Chunk(cursor) => Ok(cursor.advance()),
            Self::Stream(Stream { lines, prefix, failed }) => {
                let is_there = lines.advance().map_err(failed)?;
                if is_there {
                    *prefix = order.prefix(lines.line());
                }
                Ok(is_there)
            }
        }
    }

    #[inline]
    fn line(&self) -> &[u8] {
        match self {
            Self::Chunk(cursor) => cursor.line(),
            Self::Stream(stream) => stream.lines.line(),
        }
    }

    #[inline]
    fn prefix(&self) -> u64 {
        match self {
            Self::Chunk(cursor) => cursor.prefix(),
            Self::Stream(stream) => stream.prefix,
        }
    }
}

/// Hands out the lines of all sources in order; of equal ones only the first, if the order wants that. Ends early when
/// what takes them wants no more (`false`).
pub(super) fn merge(mut sources: Vec<Source>, order: &TextOrder, mut take: impl FnMut(&[u8]) -> bool) -> Result<()> {
    let heads = (0..sources.len())
        .map(|source| head(&mut sources, source, order))
        .collect::<Result<Vec<_>>>()?;
    let mut tree = LoserTree::new(heads, |a, b| before(a, b, &sources, order));
    let mut last = Last::default();
    while let Head {
        source: Some(source),
        prefix,
    } = tree.winner()
    {
        let line = sources[source].line();
        let is_wanted = !order.is_unique() || last.is_other(prefix, line, order);
        if is_wanted && !take(line) {
            break;
        }
        if is_wanted && order.is_unique() {
            last.set(prefix, line);
        }
        let next = head(&mut sources, source, order)?;
        tree.replace_winner(source, next, |a, b| before(a, b, &sources, order));
    }
    Ok(())
}

/// The line that was handed out last.
#[derive(Default)]
struct Last {
    is_there: bool,
    prefix: u64,
    line: Vec<u8>,
}

impl Last {
    fn is_other(&self, prefix: u64, line: &[u8], order: &TextOrder) -> bool {
        !self.is_there || prefix != self.prefix || order.compare(&self.line, line).is_ne()
    }

    fn set(&mut self, prefix: u64, line: &[u8]) {
        self.line.clear();
        self.line.extend_from_slice(line);
        (self.is_there, self.prefix) = (true, prefix);
    }
}

/// The next line of a source; without one it comes after all others.
#[derive(Clone, Copy)]
struct Head {
    prefix: u64,
    source: Option<usize>,
}

fn head(sources: &mut [Source], source: usize, order: &TextOrder) -> Result<Head> {
    let is_there = sources[source].advance(order)?;
    let prefix = if is_there { sources[source].prefix() } else { u64::MAX };
    Ok(Head {
        prefix,
        source: is_there.then_some(source),
    })
}

#[inline]
fn before(a: &Head, b: &Head, sources: &[Source], order: &TextOrder) -> bool {
    if a.prefix != b.prefix {
        return a.prefix < b.prefix;
    }
    match (a.source, b.source) {
        (Some(a), Some(b)) => {
            let lines = order.compare(sources[a].line(), sources[b].line());
            lines.then(a.cmp(&b)) == Ordering::Less
        }
        (a, _) => a.is_some(),
    }
}

struct LoserTree {
    /// The losers from 1 on; 0 is the winner.
    nodes: Vec<Head>,
}

impl LoserTree {
    fn new(heads: Vec<Head>, before: impl Fn(&Head, &Head) -> bool) -> Self {
        const NONE: Head = Head {
            prefix: u64::MAX,
            source: None,
        };
        let sources = heads.len();
        let mut nodes = vec![NONE; sources.max(1)];
        let mut winners = vec![NONE; sources];
        winners.extend(heads);
        for node in (1..sources).rev() {
            let (a, b) = (winners[2 * node], winners[2 * node + 1]);
            (winners[node], nodes[node]) = if before(&b, &a) { (b, a) } else { (a, b) };
        }
        nodes[0] = winners.get(1).copied().unwrap_or(NONE);
        Self { nodes }
    }

    #[inline]
    fn winner(&self) -> Head {
        self.nodes[0]
    }

    #[inline]
    fn replace_winner(&mut self, source: usize, next: Head, before: impl Fn(&Head, &Head) -> bool) {
        let mut node = (self.nodes.len() + source) / 2;
        let mut candidate = next;
        while node > 0 {
            if before(&self.nodes[node], &candidate) {
                std::mem::swap(&mut self.nodes[node], &mut candidate);
            }
            node /= 2;
        }
        self.nodes[0] = candidate;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{KeyOptions, KeySpec, OrderOptions};

    fn merged(texts: &[&'static str], options: &OrderOptions) -> String {
        let order = TextOrder::new(options).expect("an order");
        let sources = texts.iter().map(|text| {
            let lines: Lines<Box<dyn Read + Send>> = Lines::new(Box::new(text.as_bytes()), b'\n', 3);
            Source::Stream(Stream::new(lines, |error| panic!("{error}")))
        });
        let mut all = Vec::new();
        let take = |line: &[u8]| {
            all.extend_from_slice(line);
            all.push(b' ');
            true
        };
        merge(sources.collect(), &order, take).expect("memory can be read");
        String::from_utf8(all).expect("text")
    }

    #[test]
    fn any_number_of_sources_are_merged() {
        let all = ["b\nd\n", "a\na\ne\n", "", "c\n", "b\n", "\nz\n", "aa"];
        for count in 0..=all.len() {
            let mut expected: Vec<&str> = all[..count].iter().flat_map(|text| text.lines()).collect();
            expected.sort_unstable();
            let expected: String = expected.iter().map(|line| format!("{line} ")).collect();
            assert_eq!(merged(&all[..count], &OrderOptions::default()), expected, "{count}");
        }
    }

    #[test]
    fn equal_lines_come_in_the_order_of_their_sources_and_once_if_asked() {
        let key = KeySpec::parse("1.1,1.1").expect("a key");
        let options = OrderOptions {
            keys: vec![key],
            stable: true,
            ..OrderOptions::default()
        };
        assert_eq!(
            merged(&["a1\nb1\n", "a2\nb2\nb3\n", "a4\nc"], &options),
            "a1 a2 a4 b1 b2 b3 c "
        );
        let options = OrderOptions {
            unique: true,
            ..options
        };
        assert_eq!(merged(&["a1\nb1\n", "a2\nb2\nb3\n", "a4\nc"], &options), "a1 b1 c ");
    }

    #[test]
    fn the_last_prefix_of_all_is_no_end() {
        let options = KeyOptions::parse("r").expect("an option");
        assert_eq!(
            merged(
                &["\n", "a\n\n"],
                &OrderOptions {
                    options,
                    ..OrderOptions::default()
                }
            ),
            "a   "
        );
    }
}
