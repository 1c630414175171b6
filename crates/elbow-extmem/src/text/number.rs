//! Decimal numbers of any length (`-n`), numbers with a unit (`-h`) and months (`-M`).
//!
//! ```text
//!   blanks  -  000  1234  .  5600  K...
//!           |       |        |     '-- -h only: a unit orders before the number does
//!           |       |        '-------- fraction, compared without its last zeros
//!           |       '----------------- whole part, compared by length, then by digits
//!           '------------------------- minus; a plus is no part of a number
//! ```
//!
//! What has no digits is zero, and so is minus zero. Nothing is converted, so nothing is rounded or overflows.
//!
//! One oddity is kept, because the result has to be that of sort(1) in the C locale: the byte 0x80 within a whole part does
//! not count, as a separator of thousands does not in other locales. (A unit, though, is not found behind it.)
//!
//! Source: GNU coreutils manual, "sort invocation": `--numeric-sort`, `--human-numeric-sort`, `--month-sort`. Units are
//! those of coreutils 9.1, K to Y; 9.2 has added R and Q.

use std::cmp::Ordering;

use super::key::is_blank;

/// Digits of a number that go into its prefix; 10^16 < 2^54.
const PREFIX_DIGITS: usize = 16;
/// Numbers at least so long are told apart by their length at most.
const PREFIX_LENGTH_MAX: usize = 511;
/// See above.
const UNCOUNTED: u8 = 0x80;
const MONTHS: [&[u8; 3]; 12] = [
    b"JAN", b"FEB", b"MAR", b"APR", b"MAY", b"JUN", b"JUL", b"AUG", b"SEP", b"OCT", b"NOV", b"DEC",
];

/// The number that a text begins with.
#[derive(Clone, Copy, Debug)]
struct Decimal<'a> {
    negative: bool,
    /// Without zeros in front; [`UNCOUNTED`] may be among the digits.
    whole: &'a [u8],
    /// How many of these are digits.
    length: usize,
    /// Without zeros at the end.
    fraction: &'a [u8],
}

impl<'a> Decimal<'a> {
    #[inline]
    fn read(text: &'a [u8]) -> Self {
        let text = without_blanks(text);
        let (negative, text) = match text {
            [b'-', rest @ ..] => (true, rest),
            _ => (false, text),
        };
        let is_passed = |byte: &&u8| matches!(**byte, b'0' | UNCOUNTED);
        let text = &text[text.iter().take_while(is_passed).count()..];
        let (mut whole, mut rest) = digits(text);
        let mut length = whole.len();
        if rest.first() == Some(&UNCOUNTED) {
            let is_part = |byte: &&u8| byte.is_ascii_digit() || **byte == UNCOUNTED;
            (whole, rest) = text.split_at(text.iter().take_while(is_part).count());
            length = whole.iter().filter(|byte| **byte != UNCOUNTED).count();
        }
        let fraction = rest.strip_prefix(b".").map_or(&b""[..], |rest| digits(rest).0);
        let last = fraction
            .iter()
            .rposition(|digit| *digit != b'0')
            .map_or(0, |last| last + 1);
        let fraction = &fraction[..last];
        let negative = negative && !(length == 0 && fraction.is_empty());
        Self {
            negative,
            whole,
            length,
            fraction,
        }
    }

    #[inline]
    fn compare(&self, other: &Self) -> Ordering {
        match (self.negative, other.negative) {
            (false, false) => self.compare_size(other),
            (true, true) => other.compare_size(self),
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
        }
    }

    fn compare_size(&self, other: &Self) -> Ordering {
        let whole = || match self.whole.len() == self.length && other.whole.len() == other.length {
            true => self.whole.cmp(other.whole),
            false => self.digits().cmp(other.digits()),
        };
        self.length
            .cmp(&other.length)
            .then_with(whole)
            .then_with(|| self.fraction.cmp(other.fraction))
    }

    /// Of the whole part.
    fn digits(&self) -> impl Iterator<Item = &u8> {
        self.whole.iter().filter(|byte| **byte != UNCOUNTED)
    }

    /// See [`super::TextOrder::prefix`]. Zero is in the middle.
    fn prefix(&self) -> u64 {
        const ZERO: u64 = 1 << 63;
        let length = self.length.min(PREFIX_LENGTH_MAX);
        let mut size = 0;
        if length < PREFIX_LENGTH_MAX {
            let mut digits = self.digits().chain(self.fraction);
            size = (0..PREFIX_DIGITS).fold(0, |size, _| {
                size * 10 + digits.next().map_or(0, |digit| u64::from(digit - b'0'))
            });
        }
        let size = (length as u64) << 54 | size;
        if self.negative { ZERO - size } else { ZERO + size }
    }
}

fn digits(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(text.iter().take_while(|byte| byte.is_ascii_digit()).count())
}

fn without_blanks(text: &[u8]) -> &[u8] {
    &text[text.iter().take_while(|byte| is_blank(**byte)).count()..]
}

/// `-n`.
#[inline]
pub(super) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    Decimal::read(a).compare(&Decimal::read(b))
}

pub(super) fn prefix(text: &[u8]) -> u64 {
    Decimal::read(text).prefix()
}

/// `-h`.
pub(super) fn compare_human(a: &[u8], b: &[u8]) -> Ordering {
    power(a).cmp(&power(b)).then_with(|| compare(a, b))
}

pub(super) fn prefix_human(text: &[u8]) -> u64 {
    ((power(text) + 16) as u64) << 59 | prefix(text) >> 5
}

/// The power of the unit after a number, negative with it; zero has none.
fn power(text: &[u8]) -> i64 {
    let text = without_blanks(text);
    let (sign, text) = match text {
        [b'-', rest @ ..] => (-1, rest),
        _ => (1, text),
    };
    let (whole, rest) = digits(text);
    let (fraction, rest) = rest.strip_prefix(b".").map_or((&b""[..], rest), digits);
    if whole.iter().chain(fraction).all(|digit| *digit == b'0') {
        return 0;
    }
    match rest.first() {
        Some(b'K' | b'k') => sign,
        Some(unit) => b"MGTPEZY"
            .iter()
            .position(|known| known == unit)
            .map_or(0, |place| sign * (place as i64 + 2)),
        None => 0,
    }
}

/// `-M`: 1 to 12; 0 for what begins with no month.
pub(super) fn month(text: &[u8]) -> u8 {
    let text = without_blanks(text);
    let name = text.get(..3).unwrap_or_default();
    (1..)
        .zip(MONTHS)
        .find(|(_, month)| name.eq_ignore_ascii_case(*month))
        .map_or(0, |(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of these comes after all before it, in its comparison and in no contradiction to it by prefix.
    fn ascending(texts: &[&str], compare: fn(&[u8], &[u8]) -> Ordering, prefix: fn(&[u8]) -> u64) {
        for (i, a) in texts.iter().enumerate() {
            for (j, b) in texts.iter().enumerate() {
                let (a, b) = (a.as_bytes(), b.as_bytes());
                assert_eq!(compare(a, b), i.cmp(&j), "{:?} {:?}", texts[i], texts[j]);
                assert!(i >= j || prefix(a) <= prefix(b), "{:?} {:?}", texts[i], texts[j]);
            }
        }
    }

    fn equal(texts: &[&str], compare: fn(&[u8], &[u8]) -> Ordering, prefix: fn(&[u8]) -> u64) {
        for pair in texts.windows(2) {
            let [a, b] = [pair[0].as_bytes(), pair[1].as_bytes()];
            assert_eq!(compare(a, b), Ordering::Equal, "{pair:?}");
            assert_eq!(prefix(a), prefix(b), "{pair:?}");
        }
    }

    #[test]
    fn numbers_are_ordered_by_value_at_any_length() {
        let long = "9".repeat(600);
        let longer = format!("1{}", "0".repeat(600));
        let minus = format!("-{long}");
        ascending(
            &[
                &minus,
                "-12.50001",
                "-12.5",
                "-1",
                "-.5",
                "-.05",
                "0",
                ".00000000000000000001",
                ".1",
                "0.11",
                "1",
                "1.01",
                "9",
                "10",
                "123456789012345678",
                "123456789012345679",
                &long,
                &longer,
            ],
            compare,
            prefix,
        );
    }

    #[test]
    fn what_is_no_number_is_zero() {
        equal(
            &[
                "0",
                "-0",
                "",
                "x",
                "+5",
                "--5",
                "- 5",
                "-",
                ".",
                "-.",
                "  \t0.000",
                "00",
                "-0.0",
                "1",
            ][..13],
            compare,
            prefix,
        );
        equal(&["7", "007.00", " 7x9", "7.", "7.0.5", "7,5", "7e3"], compare, prefix);
        equal(&["-.5", "-0.50", "-000.5"], compare, prefix);
    }

    #[test]
    fn one_byte_within_a_whole_part_does_not_count() {
        for (odd, plain) in [
            (&b"1\x802"[..], "12"),
            (b"-\x80\x800\x807\x80.5", "-7.5"),
            (b"0.\x805", "0"),
            (b"0.5\x804", ".5"),
        ] {
            assert_eq!(compare(odd, plain.as_bytes()), Ordering::Equal, "{plain}");
            assert_eq!(prefix(odd), prefix(plain.as_bytes()), "{plain}");
        }
        assert_eq!(compare_human(b"51\x80K", b"51"), Ordering::Equal);
        assert_eq!(compare_human(b"5.4\x80K", b"5.4"), Ordering::Equal);
    }

    #[test]
    fn a_unit_orders_before_the_number() {
        ascending(
            &[
                "-1Y", "-3M", "-2M", "-1K", "-1000", "-1", "0", "0.5", "1000", "1K", "1.5K", "2000K", "1M", ".5G",
                "1T", "1P", "1E", "1Z", "1Y",
            ],
            compare_human,
            prefix_human,
        );
        equal(&["0K", "0", "-0M", "0.00Y", "K", "-K"], compare_human, prefix_human);
        equal(&["1k", "1K", "1Ki", "1KB", " 1.0K"], compare_human, prefix_human);
        equal(&["1", "1R", "1Q", "1m", "1 K", "1.K"][..5], compare_human, prefix_human);
    }

    #[test]
    fn months_are_known_by_three_letters() {
        for (text, number) in [
            ("JAN", 1),
            (" feb", 2),
            ("\tMarch", 3),
            ("sEpX", 9),
            ("DEC", 12),
            ("JA", 0),
            ("", 0),
            ("xJAN", 0),
        ] {
            assert_eq!(month(text.as_bytes()), number, "{text:?}");
        }
    }
}
