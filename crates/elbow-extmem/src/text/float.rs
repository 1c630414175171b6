//! Floating-point numbers (`-g`), as a C program reads them into a `long double`.
//!
//! A number becomes a *rank*, an integer in the same order: comparing is then one instruction, and its upper half is a
//! prefix. Numbers are rounded to 64 bits of mantissa and 15 of exponent, to nearest and even, as `strtold` does on x86-64
//! (where `long double` has 113 bits, sort(1) may tell numbers apart that are equal here). NaN with equal bits are equal;
//! sort(1) also compares the bytes that fill a `long double` up to 16, which are whatever they are.
//!
//! ```text
//!   0               no number
//!   1 ..            NaN, in the order of its bytes in memory (least significant first)
//!   ZERO - size     negative     size: exponent << 64 | mantissa, the bits of the 80-bit format without its sign
//!   ZERO            zero, of either sign
//!   ZERO + size     positive, up to infinity
//! ```
//!
//! Source: C11 7.22.1.3; GNU coreutils manual, "sort invocation": `--general-numeric-sort`; Intel SDM volume 1, section 4.2.

use rustc_apfloat::ieee::X87DoubleExtended;
use rustc_apfloat::{Float, Round};

const ZERO: u128 = 1 << 81;
/// Ranks shifted so far fit into 64 bits.
const RANK_BITS_BEYOND_PREFIX: u32 = 18;
/// A `long double` half-way between two others has no more decimal digits than that; what follows them is zero or not.
const DIGITS_MAX: usize = 11_600;
/// Numbers with a first digit above this power of ten are infinite ...
const POWER_MAX: i64 = 4_940;
/// ... and below this one zero.
const POWER_MIN: i64 = -4_970;
/// The largest power of five below 2^64.
const FIVES_MAX: u32 = 27;
const EXPONENT_BIAS: i64 = 16_383;

/// The place of the number that a text begins with among all others.
pub(super) fn rank(text: &[u8]) -> u128 {
    let text = &text[text
        .iter()
        .take_while(|byte| matches!(byte, b' ' | b'\t'..=b'\r'))
        .count()..];
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let begins_with = |word: &[u8]| {
        text.get(..word.len())
            .is_some_and(|found| found.eq_ignore_ascii_case(word))
    };
    let size = if begins_with(b"nan") {
        return nan(negative, &text[3..]);
    } else if begins_with(b"inf") {
        Some(X87DoubleExtended::INFINITY.to_bits())
    } else if begins_with(b"0x") {
        hexadecimal(&text[2..]).or(Some(0))
    } else {
        decimal(text)
    };
    match size {
        None => 0,
        Some(size) if negative => ZERO - size,
        Some(size) => ZERO + size,
    }
}

pub(super) fn prefix(text: &[u8]) -> u64 {
    (rank(text) >> RANK_BITS_BEYOND_PREFIX) as u64
}

/// NaN with what may follow it: `(PAYLOAD)`.
fn nan(negative: bool, rest: &[u8]) -> u128 {
    const QUIET: u64 = 0b11 << 62;
    let mantissa = QUIET | payload(rest).unwrap_or(0) & !QUIET;
    1 + (u128::from(mantissa.swap_bytes()) << 1 | u128::from(negative))
}

/// A number as C writes it, in parentheses.
fn payload(rest: &[u8]) -> Option<u64> {
    let inside = rest.strip_prefix(b"(")?;
    let length = inside
        .iter()
        .take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_')
        .count();
    inside.get(length).filter(|byte| **byte == b')')?;
    let text = str::from_utf8(&inside[..length]).ok()?;
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', _, ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    match u64::from_str_radix(digits, radix) {
        Ok(payload) => Some(payload),
        Err(error) if *error.kind() == std::num::IntErrorKind::PosOverflow => Some(u64::MAX),
        Err(_) => None,
    }
}

/// The digits of a number, wherever its point is.
struct Digits<'a> {
    whole: &'a [u8],
    fraction: &'a [u8],
    /// From the text after them; 0 without.
    exponent: i64,
}

impl<'a> Digits<'a> {
    /// `None`: not one digit.
    fn read(text: &'a [u8], is_digit: fn(&u8) -> bool, exponent_letter: u8) -> Option<Self> {
        let split = |text: &'a [u8]| text.split_at(text.iter().take_while(|byte| is_digit(byte)).count());
        let (whole, rest) = split(text);
        let (fraction, rest) = match rest {
            [b'.', rest @ ..] => split(rest),
            _ => (&b""[..], rest),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let exponent = match rest {
            [letter, rest @ ..] if letter.eq_ignore_ascii_case(&exponent_letter) => exponent(rest),
            _ => 0,
        };
        Some(Self {
            whole,
            fraction,
            exponent,
        })
    }

    /// From the first that is not zero to the last that is not zero, and the power of the base before which the first
    /// stands, as in 0.123 x 10^n; `None` for zero.
    fn significant(&self) -> Option<(impl Iterator<Item = u8> + Clone + 'a, usize, i64)> {
        let (whole, fraction) = (self.whole, self.fraction);
        let all = whole.len() + fraction.len();
        let zeros = whole.iter().chain(fraction).take_while(|digit| **digit == b'0').count();
        if zeros == all {
            return None;
        }
        let zeros_after = fraction
            .iter()
            .rev()
            .chain(whole.iter().rev())
            .take_while(|digit| **digit == b'0')
            .count();
        let count = all - zeros - zeros_after;
        let digits = whole.iter().chain(fraction).copied().skip(zeros).take(count);
        Some((digits, count, whole.len() as i64 - zeros as i64))
    }
}

/// The number after `e` or `p`; 0 where none is.
fn exponent(text: &[u8]) -> i64 {
    const BEYOND_ALL: i64 = 1 << 40;
    let (sign, text) = match text {
        [b'-', rest @ ..] => (-1, rest),
        [b'+', rest @ ..] => (1, rest),
        _ => (1, text),
    };
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    sign * digits.fold(0, |number: i64, digit| {
        (number * 10 + i64::from(digit - b'0')).min(BEYOND_ALL)
    })
}

/// The bits of a decimal number; `None` for what is no number.
fn decimal(text: &[u8]) -> Option<u128> {
    let number = Digits::read(text, u8::is_ascii_digit, b'e')?;
    let Some((digits, count, point)) = number.significant() else {
        return Some(0);
    };
    let power = number.exponent + point;
    if power > POWER_MAX {
        return Some(X87DoubleExtended::INFINITY.to_bits());
    }
    if power < POWER_MIN {
        return Some(0);
    }
    let shift = power - count as i64; // the digits as an integer, times ten to this
    if count <= 19 && shift.unsigned_abs() <= u64::from(FIVES_MAX) {
        let integer = digits.fold(0, |integer, digit| integer * 10 + u64::from(digit - b'0'));
        return Some(short_decimal(integer, shift as i32));
    }
    Some(long_decimal(digits, count, power))
}

/// The bits of `integer * 10^shift`, both so small that 128 bits hold it exactly enough.
fn short_decimal(integer: u64, shift: i32) -> u128 {
    let fives = 5_u64.pow(shift.unsigned_abs());
    let (mut bits, mut exponent) = (u128::from(integer), i64::from(shift));
    let mut is_exact = true;
    if shift >= 0 {
        bits *= u128::from(fives);
    } else {
        let room = bits.leading_zeros();
        bits <<= room;
        exponent -= i64::from(room);
        is_exact = bits.is_multiple_of(u128::from(fives));
        bits /= u128::from(fives);
    }
    rounded(bits, exponent, is_exact)
}

/// The bits of `bits * 2^exponent` (and a little more, if not exact), which is within the range of normal numbers.
fn rounded(mut bits: u128, mut exponent: i64, is_exact: bool) -> u128 {
    let room = bits.leading_zeros();
    bits <<= room;
    exponent += 64 - i64::from(room);
    let (mut mantissa, rest) = ((bits >> 64) as u64, bits as u64);
    const HALF: u64 = 1 << 63;
    let is_up = rest > HALF || (rest == HALF && (!is_exact || mantissa & 1 == 1));
    if is_up {
        mantissa = mantissa.wrapping_add(1);
        if mantissa == 0 {
            (mantissa, exponent) = (HALF, exponent + 1);
        }
    }
    ((exponent + 63 + EXPONENT_BIAS) as u128) << 64 | u128::from(mantissa)
}

/// The bits of 0.DIGITS x 10^power, by arithmetic of any length.
fn long_decimal(digits: impl Iterator<Item = u8>, count: usize, power: i64) -> u128 {
    let mut text: String = digits.take(DIGITS_MAX).map(char::from).collect();
    if count > DIGITS_MAX {
        text.push('1'); // something follows; it decides when all before is half-way
    }
    let shift = power - text.len() as i64;
    convert(&format!("{text}e{shift}"))
}

/// The bits of a hexadecimal number after its `0x`; `None` if no digit follows it.
fn hexadecimal(text: &[u8]) -> Option<u128> {
    const DIGITS_MAX: usize = 40;
    const POWER_MAX: i64 = 17_000;
    let number = Digits::read(text, u8::is_ascii_hexdigit, b'p')?;
    let Some((digits, count, point)) = number.significant() else {
        return Some(0);
    };
    let power = number.exponent + 4 * point; // 0.DIGITS x 2^power
    if power > POWER_MAX {
        return Some(X87DoubleExtended::INFINITY.to_bits());
    }
    if power < -POWER_MAX {
        return Some(0);
    }
    let mut text: String = digits.take(DIGITS_MAX).map(char::from).collect();
    if count > DIGITS_MAX {
        text.push('1');
    }
    Some(convert(&format!("0x0.{text}p{power}")))
}

fn convert(text: &str) -> u128 {
    let converted = X87DoubleExtended::from_str_r(text, Round::NearestTiesToEven);
    converted.expect("digits and an exponent are a number").value.to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_ascend() {
        let ascending = [
            "",
            "nan",
            "-nan",
            "nan(1)",
            "-NaN(1)",
            "nan(0x2)",
            "-inf",
            "-1e4932",
            "-1e308",
            "-1",
            "-1e-4950",
            "0",
            "1e-4950",
            "0x.8p-16000",
            "1e-300",
            "0.1",
            "0.1000000000000000001",
            "0x.8",
            "1",
            "0x1.0000000000000002",
            "18446744073709551614",
            "18446744073709551615",
            "1e20",
            "1e4931",
            "INFINITY",
        ];
        for pair in ascending.windows(2) {
            assert!(rank(pair[0].as_bytes()) < rank(pair[1].as_bytes()), "{pair:?}");
            assert!(prefix(pair[0].as_bytes()) <= prefix(pair[1].as_bytes()), "{pair:?}");
        }
    }

    #[test]
    fn equal_numbers_have_one_rank() {
        let long = format!("1{}", "0".repeat(30_000));
        let tiny = format!("1.{}1", "0".repeat(30_000));
        for group in [
            &["", "x", "e5", ".", "+", "-", "- 1", "--1", "p1"][..],
            &[
                "0",
                "-0",
                "+0",
                " 0x",
                "0e99999999999999999999",
                "0xg",
                "1e-5000",
                "-0x0p5",
                "1e-999999999999999999999",
                "0.e5",
            ],
            &[
                "1",
                "1.",
                "+1e0",
                "1e",
                "1e+",
                "0x1",
                "0x.8p1",
                "1x",
                "\t\n\u{b}\u{c}\r 1",
                "0.00001e5",
                "100e-2",
                &tiny,
            ],
            &[
                "inf",
                "1e5000",
                "INFINITYx",
                "infinit",
                "1e99999999999999999999",
                "0x1p16384",
                &long,
            ],
            &["nan", "NAN", "nan(", "nan()", "nanx", "nan(z)", "nan(0)"],
            &["18446744073709551616", "18446744073709551616.5", "0x10000000000000000"],
            &["18446744073709551618", "18446744073709551617.5"],
            &[
                "0x1.0000000000000001p0",
                "1",
                "0x1.00000000000000000000000000000000000000000000p0",
            ],
        ] {
            for pair in group.windows(2) {
                assert_eq!(rank(pair[0].as_bytes()), rank(pair[1].as_bytes()), "{pair:?}");
            }
        }
    }

    #[test]
    fn the_short_way_and_the_long_way_agree() {
        for integer in [
            1,
            3,
            10,
            99,
            12_345_678_901_234_567,
            u64::MAX,
            u64::MAX - 1,
            (1 << 63) + 1,
        ] {
            for shift in -27..=27 {
                let text = format!("{integer}e{shift}");
                assert_eq!(short_decimal(integer, shift), convert(&text), "{text}");
            }
        }
    }

    #[test]
    fn denormal_numbers_are_told_apart() {
        let smallest = rank(b"0x1p-16445");
        assert_eq!(smallest, ZERO + 1);
        assert_eq!(rank(b"3.6451995318824746025e-4951"), smallest);
        assert_eq!(rank(b"0x1p-16446"), ZERO);
        assert_eq!(rank(b"0x1.8p-16446"), smallest);
    }
}
