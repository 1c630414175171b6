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
//! Source: GNU coreutils manual, "sort invocation": `--numeric-sort`, `--human-numeric-sort`, `--month-sort`. Units are
//! those of coreutils 9.1, K to Y; 9.2 has added R and Q.

use std::cmp::Ordering;

use super::key::is_blank;

/// Digits of a number that go into its prefix; 10^16 < 2^54.
const PREFIX_DIGITS: usize = 16;
/// Numbers at least so long are told apart by their length at most.
const PREFIX_LENGTH_MAX: usize = 511;
const MONTHS: [&[u8; 3]; 12] = [
    b"JAN", b"FEB", b"MAR", b"APR", b"MAY", b"JUN", b"JUL", b"AUG", b"SEP", b"OCT", b"NOV", b"DEC",
];

/// The number that a text begins with.
#[derive(Clone, Copy, Debug)]
struct Decimal<'a> {
    negative: bool,
    /// Without zeros in front.
    whole: &'a [u8],
    /// Without zeros at the end.
    fraction: &'a [u8],
}

impl<'a> Decimal<'a> {
    /// The number, and what follows it.
    #[inline]
    fn read(text: &'a [u8]) -> (Self, &'a [u8]) {
        let text = without_blanks(text);
        let (negative, text) = match text {
            [b'-', rest @ ..] => (true, rest),
            _ => (false, text),
        };
        let (whole, rest) = digits(text);
        let (fraction, rest) = match rest {
            [b'.', rest @ ..] => digits(rest),
            _ => (&b""[..], rest),
        };
        let zeros = whole.iter().take_while(|digit| **digit == b'0').count();
        let last = fraction
            .iter()
            .rposition(|digit| *digit != b'0')
            .map_or(0, |last| last + 1);
        let (whole, fraction) = (&whole[zeros..], &fraction[..last]);
        let negative = negative && !(whole.is_empty() && fraction.is_empty());
        (
            Self {
                negative,
                whole,
                fraction,
            },
            rest,
        )
    }

    fn is_zero(&self) -> bool {
        self.whole.is_empty() && self.fraction.is_empty()
    }

    #[inline]
    fn compare(&self, other: &Self) -> Ordering {
        match (self.negative, other.negative) {
            (false, false) => self.compare_size(other),
            (true, true) => other.compare_size(self),
            (negative, _) => {
                if negative {
                    Ordering::Less
                } else {
                    Ordering::Greater
                }
            }
        }
    }

    fn compare_size(&self, other: &Self) -> Ordering {
        let length = self.whole.len().cmp(&other.whole.len());
        length
            .then_with(|| self.whole.cmp(other.whole))
            .then_with(|| self.fraction.cmp(other.fraction))
    }

    /// See [`super::TextOrder::prefix`]. Zero is in the middle.
    fn prefix(&self) -> u64 {
        const ZERO: u64 = 1 << 63;
        let length = self.whole.len().min(PREFIX_LENGTH_MAX);
        let mut size = 0;
        if length < PREFIX_LENGTH_MAX {
            let mut digits = self.whole.iter().chain(self.fraction);
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
    Decimal::read(a).0.compare(&Decimal::read(b).0)
}

pub(super) fn prefix(text: &[u8]) -> u64 {
    Decimal::read(text).0.prefix()
}

/// `-h`.
pub(super) fn compare_human(a: &[u8], b: &[u8]) -> Ordering {
    let ((a, after_a), (b, after_b)) = (read_human(a), read_human(b));
    after_a.cmp(&after_b).then_with(|| a.compare(&b))
}

pub(super) fn prefix_human(text: &[u8]) -> u64 {
    let (number, unit) = read_human(text);
    ((unit + 16) as u64) << 59 | number.prefix() >> 5
}

/// A number and the power of its unit, negative with it; zero has none.
fn read_human(text: &[u8]) -> (Decimal<'_>, i64) {
    let (number, rest) = Decimal::read(text);
    let power = match rest.first() {
        Some(b'K' | b'k') => 1,
        Some(unit) => b"MGTPEZY"
            .iter()
            .position(|known| known == unit)
            .map_or(0, |place| place as i64 + 2),
        None => 0,
    };
    match (number.is_zero(), number.negative) {
        (true, _) => (number, 0),
        (false, true) => (number, -power),
        (false, false) => (number, power),
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
