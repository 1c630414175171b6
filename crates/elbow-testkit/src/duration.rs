//! Times as they are written on a command line.

use std::time::Duration;

use anyhow::anyhow;

/// Reads `2ms`, `500us`, `1.5s` or `0`.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn parse_duration(text: &str) -> anyhow::Result<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: f64 = digits
        .parse()
        .map_err(|_| anyhow!("'{text}' is not a time such as 2ms, 500us or 1s"))?;
    let unit = match &text[digits.len()..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "" if number == 0.0 => 1.0,
        _ => return Err(anyhow!("'{text}' needs a unit: us, ms or s")),
    };
    Duration::try_from_secs_f64(number * unit).map_err(|_| anyhow!("'{text}' is not a possible time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_need_a_number_and_a_unit() {
        let read = |text| parse_duration(text).ok();
        assert_eq!(read("2ms"), Some(Duration::from_millis(2)));
        assert_eq!(read("0.5ms"), Some(Duration::from_micros(500)));
        assert_eq!(
            (read("1s"), read("0")),
            (Some(Duration::from_secs(1)), Some(Duration::ZERO))
        );
        assert_eq!([read("2"), read("ms"), read("-1s"), read("1h"), read("")], [None; 5]);
    }
}
