//! Tests of chunks: what becomes of lines, wherever a chunk ends.

use std::sync::Arc;

use super::*;
use crate::text::{Fields, Input, KeyOptions, KeySpec, OrderOptions};

fn sorted(text: &str, order: &TextOrder) -> Vec<String> {
    let chunk = chunk_of(text, order);
    let lines = chunk.lines().map(|line| String::from_utf8_lossy(line).into_owned());
    lines.collect()
}

/// A text as a sorted chunk.
fn chunk_of(text: &str, order: &TextOrder) -> Chunk {
    let input = text.to_owned();
    let mut inputs = Inputs::new(
        vec![Input::new("text", move || Ok(std::io::Cursor::new(input)))],
        b'\n',
        Arc::default(),
    );
    let mut chunk = Chunk::new(4 * text.len() + 40 * text.lines().count(), b'\n').expect("memory");
    let is_more = chunk
        .fill(&mut Carry::default(), &mut inputs, order)
        .expect("memory can be read");
    assert!(!is_more, "it fits");
    chunk.sort(order, None);
    chunk
}

/// Long common beginnings, upper and lower case, keys that end in them: all ways through refining.
#[test]
fn many_lines_that_begin_alike_are_sorted_as_by_comparing() {
    let number = |i: usize| i * 7919 % 1000;
    let text: String = (0..1000)
        .map(|i| {
            format!(
                "the same {} beginning {:02} of {}\n",
                ["LONG", "long"][i % 2],
                number(i) % 10,
                number(i) / 3
            )
        })
        .chain((0..200).map(|i| format!("the same\nthe same {}\n", "x".repeat(i % 9))))
        .collect();
    for (letters, keys) in [
        ("", &[][..]),
        ("r", &[]),
        ("f", &[]),
        ("", &["1.5,4f"]),
        ("", &["1.5,4r", "6n"]),
        ("d", &["2,3"]),
    ] {
        for (stable, unique) in [(false, false), (true, false), (false, true)] {
            let keys = keys.iter().map(|key| KeySpec::parse(key).expect("a key")).collect();
            let options = KeyOptions::parse(letters).expect("options");
            let order = TextOrder::new(&OrderOptions {
                options,
                keys,
                stable,
                unique,
                fields: Fields::Blanks,
                count: false,
            })
            .expect("an order");
            let mut expected: Vec<&str> = text.lines().collect();
            expected.sort_by(|a, b| order.compare(a.as_bytes(), b.as_bytes()));
            if unique {
                expected.dedup_by(|b, a| order.compare(a.as_bytes(), b.as_bytes()).is_eq());
            }
            assert!(sorted(&text, &order) == expected, "{letters} {stable} {unique}");
        }
    }
}

/// What nothing in a key tells apart after eight bytes: a merge of chunks goes by these prefixes.
#[test]
fn many_lines_with_one_key_keep_their_prefixes() {
    let text = "tab \t and blank of one key\n  \ttab  and blank of one key\n".repeat(REFINED_LINES_MIN);
    for letters in ["", "i", "d", "f", "r", "ir", "n", "V"] {
        let options = KeyOptions::parse(letters).expect("options");
        let order = TextOrder::new(&OrderOptions {
            options,
            ..OrderOptions::default()
        })
        .expect("an order");
        let mut cursor = chunk_of(&text, &order).into_cursor();
        let mut lines = 0;
        while cursor.advance() {
            assert_eq!(cursor.prefix(), order.prefix(cursor.line()), "-{letters}");
            lines += 1;
        }
        assert_eq!(lines, text.lines().count());
    }
}

#[test]
fn a_chunk_takes_what_it_has_room_for_and_grows_for_one_line() {
    let order = TextOrder::new(&OrderOptions::default()).expect("an order");
    let text = format!("{}\n{}\nz\n\n\n", "y".repeat(50), "x".repeat(5000));
    let input = text.clone();
    let mut inputs = Inputs::new(
        vec![Input::new("text", move || Ok(std::io::Cursor::new(input)))],
        b'\n',
        Arc::default(),
    );
    let (mut carry, mut chunk) = (Carry::default(), Chunk::new(256, b'\n').expect("memory"));
    let mut all = Vec::new();
    loop {
        let is_more = chunk.fill(&mut carry, &mut inputs, &order).expect("memory can be read");
        all.extend(chunk.lines().map(<[u8]>::to_vec).collect::<Vec<_>>().into_iter().rev());
        if !is_more {
            break;
        }
    }
    let expected: Vec<_> = text.lines().map(|line| line.as_bytes().to_vec()).collect();
    assert!(all == expected, "{} lines", all.len());
}
