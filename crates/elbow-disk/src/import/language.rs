//! DiskSim's parameter language.
//!
//! ```text
//!   source FILE                               the items of another file
//!   TYPE NAME { KEY = VALUE, ... }            a component; keys have spaces, values are numbers, words, [lists], TYPE { ... }, source FILE
//!   instantiate [ NAME, ... ] as NAME         components by other names
//!   topology TYPE NAME [ TYPE NAME [ ... ] ]  which hangs on which
//!   # a comment, to the end of the line
//! ```
//!
//! Always: nesting is bounded, so that no file can use up the stack.

use winnow::combinator::{alt, cut_err, delimited, eof, opt, peek, preceded, repeat, separated, terminated};
use winnow::error::{StrContext, StrContextValue};
use winnow::prelude::*;
use winnow::stream::{LocatingSlice, Location};
use winnow::token::{one_of, take_till, take_while};

use crate::drive::DriveError;

/// Bytes of a file at most; DiskSim's own are smaller than 30 kB.
const FILE_MAX: usize = 16 << 20;
/// Blocks and lists within one another; DiskSim's files have 5.
const DEPTH_MAX: u32 = 32;

/// Something with the file and line it stands in.
#[derive(Clone, Debug)]
pub(super) struct Located<T> {
    pub(super) value: T,
    pub(super) file: String,
    pub(super) line: usize,
}

impl<T> Located<T> {
    pub(super) fn error(&self, key: Option<&str>, reason: String) -> DriveError {
        DriveError::Description {
            file: self.file.clone(),
            line: self.line,
            key: key.map(str::to_owned),
            reason,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Item {
    Source(String),
    Block(Block),
    /// New names, and whose.
    Instantiate(Vec<String>, String),
    /// Each with the one it hangs on.
    Topology(Vec<(String, Option<String>)>),
}

#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) kind: String,
    /// None of a block that is a value.
    pub(super) name: Option<String>,
    pub(super) entries: Vec<(String, Located<Value>)>,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    Number(f64),
    Word(String),
    List(Vec<Located<Value>>),
    Block(Block),
    Source(String),
}

/// Of a text that is being read: where, and how deep.
type Input<'t> = winnow::stream::Stateful<LocatingSlice<&'t str>, Depth>;

#[derive(Clone, Copy, Debug, Default)]
struct Depth(u32);

/// What was read, with its place as a byte.
type Spanned<T> = (usize, T);

/// The items of a text.
pub(super) fn parse(file: &str, text: &str) -> Result<Vec<Located<Item>>, DriveError> {
    let places = Places::new(file, text);
    if text.len() > FILE_MAX {
        let reason = format!("{} bytes are too many; {FILE_MAX} are the most", text.len());
        return Err(places.locate((0, ())).error(None, reason));
    }
    let input = Input {
        input: LocatingSlice::new(text),
        state: Depth::default(),
    };
    let items = items.parse(input).map_err(|error| {
        let reason = error.inner().to_string();
        let reason = if reason.is_empty() {
            "this is no parameter file of DiskSim".to_owned()
        } else {
            reason.replace('\n', ", ")
        };
        places.locate((error.offset(), ())).error(None, reason)
    })?;
    Ok(items.into_iter().map(|item| places.item(item)).collect())
}

/// A raw item or value: as `Item` and `Value`, with bytes for places.
enum RawItem {
    Source(String),
    Block(RawBlock),
    Instantiate(Vec<String>, String),
    Topology(Vec<(String, Option<String>)>),
}

struct RawBlock {
    kind: String,
    name: Option<String>,
    entries: Vec<(String, Spanned<RawValue>)>,
}

enum RawValue {
    Number(f64),
    Word(String),
    List(Vec<Spanned<RawValue>>),
    Block(RawBlock),
    Source(String),
}

fn items(input: &mut Input<'_>) -> ModalResult<Vec<Spanned<RawItem>>> {
    preceded(
        space,
        terminated(
            repeat(0.., terminated(item, space)),
            eof.context(expected("a block, or `source`, `instantiate`, `topology`")),
        ),
    )
    .parse_next(input)
}

fn expected(what: &'static str) -> StrContext {
    StrContext::Expected(StrContextValue::Description(what))
}

/// Blanks and comments.
fn space(input: &mut Input<'_>) -> ModalResult<()> {
    let blank = take_while(1.., char::is_whitespace).void();
    let comment = ('#', take_till(0.., '\n')).void();
    repeat(0.., alt((blank, comment))).parse_next(input)
}

/// A word, and what follows it.
fn word(input: &mut Input<'_>) -> ModalResult<String> {
    let letter = |c: char| !c.is_whitespace() && !"#,=[]{}".contains(c);
    terminated(take_while(1.., letter), space)
        .map(str::to_owned)
        .parse_next(input)
}

fn mark<'t>(c: char, what: &'static str) -> impl ModalParser<Input<'t>, (), winnow::error::ContextError> {
    terminated(one_of(c), space).void().context(expected(what))
}

fn item(input: &mut Input<'_>) -> ModalResult<Spanned<RawItem>> {
    let at = input.current_token_start();
    let first = word(input)?;
    let item = match first.as_str() {
        "source" => RawItem::Source(cut_err(word).context(expected("a file")).parse_next(input)?),
        "instantiate" => {
            let names = cut_err(names).parse_next(input)?;
            cut_err(word.verify(|word: &String| word == "as"))
                .context(expected("`as`"))
                .parse_next(input)?;
            RawItem::Instantiate(
                names,
                cut_err(word)
                    .context(expected("the name of a component"))
                    .parse_next(input)?,
            )
        }
        "topology" => {
            let mut all = Vec::new();
            cut_err(|input: &mut Input<'_>| node(input, None, &mut all)).parse_next(input)?;
            RawItem::Topology(all)
        }
        _ => {
            let name = cut_err(word)
                .context(expected("the name of a component"))
                .parse_next(input)?;
            RawItem::Block(
                cut_err(|input: &mut Input<'_>| block(input, first.clone(), Some(name.clone()))).parse_next(input)?,
            )
        }
    };
    Ok((at, item))
}

fn names(input: &mut Input<'_>) -> ModalResult<Vec<String>> {
    delimited(
        mark('[', "`[`"),
        separated(0.., word, mark(',', "`,`")),
        mark(']', "`]`"),
    )
    .parse_next(input)
}

/// `TYPE NAME [ ... ]` in a topology.
fn node(input: &mut Input<'_>, parent: Option<&str>, all: &mut Vec<(String, Option<String>)>) -> ModalResult<()> {
    deeper(input, |input| {
        word.context(expected("a kind of component")).parse_next(input)?;
        let name = word.context(expected("the name of a component")).parse_next(input)?;
        all.push((name.clone(), parent.map(str::to_owned)));
        mark('[', "`[`").parse_next(input)?;
        while opt(peek(one_of(']'))).parse_next(input)?.is_none() {
            node(input, Some(&name), all)?;
            opt(mark(',', "`,`")).parse_next(input)?;
        }
        mark(']', "`]`").parse_next(input)
    })
}

/// A mark, and what is said where it is missing.
type Mark = (char, &'static str);

/// What stands between two marks, with commas between and perhaps one behind the last.
fn between<'t, T>(
    input: &mut Input<'t>,
    begin: Mark,
    one: impl FnMut(&mut Input<'t>) -> ModalResult<T>,
    end: Mark,
) -> ModalResult<Vec<T>> {
    deeper(input, |input| {
        let all = separated(0.., one, mark(',', "`,`"));
        delimited(
            mark(begin.0, begin.1),
            terminated(all, opt(mark(',', "`,`"))),
            cut_err(mark(end.0, end.1)),
        )
        .parse_next(input)
    })
}

/// `{ KEY = VALUE, ... }`, behind the kind and name of the block.
fn block(input: &mut Input<'_>, kind: String, name: Option<String>) -> ModalResult<RawBlock> {
    let entries = between(input, ('{', "`{`"), entry, ('}', "`,` or `}`"))?;
    Ok(RawBlock { kind, name, entries })
}

fn entry(input: &mut Input<'_>) -> ModalResult<(String, Spanned<RawValue>)> {
    let key = take_till(1.., |c| "#,=[]{}\n".contains(c)).map(|key: &str| key.trim().to_owned());
    let key = key.verify(|key: &String| !key.is_empty()).parse_next(input)?;
    preceded(space, cut_err(mark('=', "`=`"))).parse_next(input)?;
    Ok((key, cut_err(value).parse_next(input)?))
}

fn value(input: &mut Input<'_>) -> ModalResult<Spanned<RawValue>> {
    let at = input.current_token_start();
    if opt(peek(one_of('['))).parse_next(input)?.is_some() {
        let values = between(input, ('[', "`[`"), value, (']', "`,` or `]`"))?;
        return Ok((at, RawValue::List(values)));
    }
    let first = word
        .context(expected("a number, a word, a list, a block, or `source`"))
        .parse_next(input)?;
    if first == "source" {
        return Ok((
            at,
            RawValue::Source(cut_err(word).context(expected("a file")).parse_next(input)?),
        ));
    }
    if opt(peek(one_of('{'))).parse_next(input)?.is_some() {
        return Ok((at, RawValue::Block(block(input, first, None)?)));
    }
    Ok((at, first.parse().map_or(RawValue::Word(first), RawValue::Number)))
}

/// Something that may hold itself.
fn deeper<'t, T>(input: &mut Input<'t>, inner: impl FnOnce(&mut Input<'t>) -> ModalResult<T>) -> ModalResult<T> {
    if input.state.0 == DEPTH_MAX {
        return cut_err(
            winnow::combinator::fail.context(expected("no more than 32 blocks and lists within one another")),
        )
        .parse_next(input);
    }
    input.state.0 += 1;
    let parsed = inner(input);
    input.state.0 -= 1;
    parsed
}

/// Bytes of a text as lines of a file.
struct Places<'t> {
    file: &'t str,
    /// Where each line ends.
    ends: Vec<usize>,
}

impl Places<'_> {
    fn new<'t>(file: &'t str, text: &str) -> Places<'t> {
        let ends = text
            .bytes()
            .enumerate()
            .filter(|&(_, byte)| byte == b'\n')
            .map(|(at, _)| at);
        Places {
            file,
            ends: ends.collect(),
        }
    }

    fn locate<T>(&self, (at, value): Spanned<T>) -> Located<T> {
        Located {
            value,
            file: self.file.to_owned(),
            line: 1 + self.ends.partition_point(|&end| end < at),
        }
    }

    fn item(&self, (at, item): Spanned<RawItem>) -> Located<Item> {
        let item = match item {
            RawItem::Source(name) => Item::Source(name),
            RawItem::Block(block) => Item::Block(self.block(block)),
            RawItem::Instantiate(names, of) => Item::Instantiate(names, of),
            RawItem::Topology(nodes) => Item::Topology(nodes),
        };
        self.locate((at, item))
    }

    fn block(&self, block: RawBlock) -> Block {
        let entries = block.entries.into_iter().map(|(key, value)| (key, self.value(value)));
        Block {
            kind: block.kind,
            name: block.name,
            entries: entries.collect(),
        }
    }

    fn value(&self, (at, value): Spanned<RawValue>) -> Located<Value> {
        let value = match value {
            RawValue::Number(number) => Value::Number(number),
            RawValue::Word(word) => Value::Word(word),
            RawValue::List(values) => Value::List(values.into_iter().map(|value| self.value(value)).collect()),
            RawValue::Block(block) => Value::Block(self.block(block)),
            RawValue::Source(name) => Value::Source(name),
        };
        self.locate((at, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        parse("f", text).expect_err(text).to_string()
    }

    #[test]
    fn a_file_is_read_with_its_lines() {
        let text = "# c\nkind name {\n  A key. (of x) = 1.5, # c\n  Other/key = [ a, -2, [] ],\n  Third = k { }\n}\nsource x.y\n\
            instantiate [ n0, n1 ] as name\ntopology t a [ t b [] t c [ t d [] ] ]\n";
        let items = parse("f", text).expect("sound");
        let lines: Vec<usize> = items.iter().map(|item| item.line).collect();
        assert_eq!(lines, [2, 7, 8, 9]);
        let Item::Block(block) = &items[0].value else {
            panic!("{items:?}")
        };
        let entries: Vec<(&str, usize)> = block
            .entries
            .iter()
            .map(|(key, value)| (key.as_str(), value.line))
            .collect();
        assert_eq!(entries, [("A key. (of x)", 3), ("Other/key", 4), ("Third", 5)]);
        let Item::Topology(nodes) = &items[3].value else {
            panic!("{items:?}")
        };
        assert_eq!(nodes[3], ("d".to_owned(), Some("c".to_owned())));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let cases = [
            ("k n {\n A = 1\n B = 2 }", "f:3: expected `,` or `}`"),
            ("k n {\n A 1 }", "f:2: expected `=`"),
            ("k n {\n A = }", "f:2: expected a number, a word"),
            ("k n\n", "f:2: expected `{`"),
            ("\n}", "f:2: expected a block, or `source`"),
            ("instantiate [ a ] of b", "f:1: expected `as`"),
            ("topology t a [ t ]", "f:1: expected the name of a component"),
        ];
        for (text, expected) in cases {
            assert!(error(text).starts_with(expected), "{text}: {}", error(text));
        }
        let deep = format!("k n {{ A = {}", "[".repeat(100_000));
        assert!(error(&deep).contains("no more than 32"), "{}", error(&deep));
    }
}
