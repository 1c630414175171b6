//! Sizes as people write them: a number with an optional unit, powers of 1024.
//!
//! A fraction needs a unit: `1.5` is no number of bytes. Where bytes are counted exactly, so is the fraction.

/// Sizes beyond this are mistakes.
const BYTES_MAX: u128 = 1 << 60;
/// More digits say nothing: the smallest part of a terabyte that is a whole byte has twelve.
const FRACTION_DIGITS_MAX: usize = 19;

/// Why a text is no size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SizeError {
    #[error("`{0}` is not a size; write 1000, 64M or 1.5G")]
    NoNumber(String),
    #[error("`{0}` is not a unit; use K, M, G or T (powers of 1024)")]
    UnknownUnit(String),
    #[error("`{text}` is no number of bytes; a fraction needs a unit, as in {number}K")]
    FractionOfBytes { text: String, number: String },
    #[error("`{0}` has too many digits")]
    TooManyDigits(String),
    #[error("`{0}` is not a whole number of bytes")]
    NotWhole(String),
    #[error("`{0}` is out of range")]
    OutOfRange(String),
}

/// Bytes of a size such as `64M`, `1.5G`, `512KiB` or `1000`: at least one, and what is less than a byte does not count.
pub(crate) fn parse(text: &str) -> Result<u64, SizeError> {
    let (bytes, _) = bytes_of(text)?;
    match u64::try_from(bytes) {
        Ok(bytes @ 1..) if u128::from(bytes) <= BYTES_MAX => Ok(bytes),
        _ => Err(SizeError::OutOfRange(text.to_owned())),
    }
}

/// Bytes of a place or a length in a file: any number, 0 too, but a whole one.
pub(crate) fn parse_exact(text: &str) -> Result<u64, SizeError> {
    match bytes_of(text)? {
        (_, false) => Err(SizeError::NotWhole(text.to_owned())),
        (bytes, true) => u64::try_from(bytes).map_err(|_| SizeError::OutOfRange(text.to_owned())),
    }
}

/// Whole bytes, and whether that is all of it.
fn bytes_of(text: &str) -> Result<(u128, bool), SizeError> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let [whole_units, numerator] = [whole, fraction].map(|digits| digits.parse::<u64>().ok());
    let (Some(whole_units), Some(numerator)) = (whole_units, numerator) else {
        return Err(match is_number(whole) && is_number(fraction) {
            true => SizeError::OutOfRange(text.to_owned()),
            false => SizeError::NoNumber(text.to_owned()),
        });
    };
    let each = unit_bytes(unit.trim_start()).ok_or_else(|| SizeError::UnknownUnit(unit.to_owned()))?;
    if each == 1 && number.contains('.') {
        return Err(SizeError::FractionOfBytes {
            text: text.to_owned(),
            number: number.to_owned(),
        });
    }
    if fraction.len() > FRACTION_DIGITS_MAX {
        return Err(SizeError::TooManyDigits(text.to_owned()));
    }
    let denominator = 10_u128.pow(fraction.len() as u32);
    let part = u128::from(numerator) * each;
    let bytes = u128::from(whole_units) * each + part / denominator;
    Ok((bytes, part.is_multiple_of(denominator)))
}

fn is_number(digits: &str) -> bool {
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn unit_bytes(unit: &str) -> Option<u128> {
    let unit = unit.to_ascii_uppercase();
    let power = match unit.as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 1,
        "M" | "MB" | "MIB" => 2,
        "G" | "GB" | "GIB" => 3,
        "T" | "TB" | "TIB" => 4,
        _ => return None,
    };
    Some(1 << (10 * power))
}

/// A size for people: three digits or so, decimal units as storage vendors and `ls --si` use them.
pub(crate) fn show(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && value < 100.0);
    format!("{value:.digits$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_1024() {
        for (text, bytes) in [
            ("1000", 1000),
            ("64M", 64 << 20),
            ("1.5G", 3 << 29),
            ("2k", 2048),
            ("512KiB", 512 << 10),
            ("1TB", 1 << 40),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_a_hint() {
        for text in [
            "",
            "M",
            "12X",
            "1..2",
            "-5M",
            "0",
            "0.1",
            "1.5",
            "1.5B",
            "1.",
            ".5G",
            "5KK",
            "1MiiB",
            "9999999T",
            "1e3",
            "+5",
            "99999999999999999999",
            "1.99999999999999999999G",
        ] {
            assert!(parse(text).is_err(), "{text}");
            assert!(
                text == "0" || text == "9999999T" || parse_exact(text).is_err(),
                "{text}"
            );
        }
        assert!(parse("12X").is_err_and(|error| error.to_string().contains("K, M, G or T")));
    }

    /// `elbow zero q 1.5 10` zeroed from byte 1 on.
    #[test]
    fn exact_sizes_are_whole_numbers_of_bytes() {
        for (text, bytes) in [("0", 0), ("0K", 0), ("1.5K", 1536), ("18446744073709551615", u64::MAX)] {
            assert_eq!(parse_exact(text), Ok(bytes), "{text}");
        }
        for text in ["1.5", "0.3K", "1.0001M", "18446744073709551616", "99999999T"] {
            assert!(parse_exact(text).is_err(), "{text}");
        }
        assert_eq!(parse("0.3K"), Ok(307), "memory need not be exact");
    }

    #[test]
    fn sizes_are_shown_short() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1500, "1.5 kB"),
            (40_123_456, "40.1 MB"),
            (123_456_789, "123 MB"),
        ] {
            assert_eq!(show(bytes), text);
        }
    }
}
