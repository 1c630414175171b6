//! Many sorted sources become one.
//!
//! A match of the loser tree is decided by prefixes, by lines where these are equal, and by the order of the sources where
//! lines are equal: it is stable.

use std::io;

use super::TextOrder;
use super::chunk::Cursor;
use super::error::{Result, TextError};
use super::lines::Lines;
use crate::loser_tree::{EXHAUSTED, Head, LoserTree, Ties, head, run_of};

/// Sorted lines, from memory or from a stream.
pub(super) enum MergeSource {
    Chunk(Cursor),
    Stream(Stream),
}

/// Sorted lines that are read.
pub(super) struct Stream {
    lines: Lines,
    failed: Box<dyn Fn(io::Error) -> TextError + Send>,
}

impl Stream {
    pub(super) fn new(lines: Lines, failed: impl Fn(io::Error) -> TextError + Send + 'static) -> Self {
        let failed = Box::new(failed);
        Self { lines, failed }
    }
}

impl MergeSource {
    /// The head of the next line.
    #[inline]
    fn next(&mut self, source: usize, order: &TextOrder) -> Result<Head> {
        let prefix = match self {
            Self::Chunk(cursor) => cursor.advance().then(|| cursor.prefix()),
            Self::Stream(Stream { lines, failed }) => {
                let is_there = lines.advance().map_err(failed)?;
                is_there.then(|| order.prefix(lines.line()))
            }
        };
        Ok(prefix.map_or(EXHAUSTED, |prefix| head(prefix, source)))
    }

    #[inline]
    fn line(&self) -> &[u8] {
        match self {
            Self::Chunk(cursor) => cursor.line(),
            Self::Stream(stream) => stream.lines.line(),
        }
    }
}

/// Compares the current lines of sources.
struct Current<'a> {
    sources: &'a [MergeSource],
    order: &'a TextOrder,
}

impl Ties for Current<'_> {
    fn first_is_less(&self, first: usize, second: usize) -> Option<bool> {
        let order = self
            .order
            .compare(self.sources[first].line(), self.sources[second].line());
        // Of equal lines the tree takes that of the earlier source: a stable sort keeps the order of the input.
        (!order.is_eq()).then_some(order.is_lt())
    }
}

/// Hands out the lines of all sources in order; of equal ones only the first, if the order wants that. Ends early when
/// what takes them wants no more (`false`).
pub(super) fn merge(
    mut sources: Vec<MergeSource>,
    order: &TextOrder,
    mut take: impl FnMut(&[u8]) -> bool,
) -> Result<()> {
    let heads = (sources.iter_mut().enumerate()).map(|(number, source)| source.next(number, order));
    let heads = heads.collect::<Result<Vec<Head>>>()?;
    let mut tree = LoserTree::new(
        &heads,
        &Current {
            sources: &sources,
            order,
        },
    );
    let mut last = Last::default();
    while tree.winner() != EXHAUSTED {
        let (source, prefix) = (run_of(tree.winner()), (tree.winner() >> 32) as u64);
        let line = sources[source].line();
        let is_wanted = !order.is_unique() || last.is_other(prefix, line, order);
        if is_wanted && !take(line) {
            break;
        }
        // Copied, for its source goes on before the next line is compared with it.
        if is_wanted && order.is_unique() {
            last.set(prefix, line);
        }
        let next = sources[source].next(source, order)?;
        tree.replace_winner(
            next,
            &Current {
                sources: &sources,
                order,
            },
        );
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

#[cfg(test)]
mod tests {
    use super::super::blocks::{Block, StreamBlocks};
    use super::*;
    use crate::text::{KeyOptions, KeySpec, OrderOptions};

    fn merged(texts: &[&'static str], options: &OrderOptions) -> String {
        let order = TextOrder::new(options).expect("an order");
        let sources = texts.iter().map(|text| {
            let block = Block::new(3).expect("memory");
            let lines = Lines::new(Box::new(StreamBlocks(text.as_bytes())), block, b'\n');
            MergeSource::Stream(Stream::new(lines, |error| panic!("{error}")))
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
