//! Sizes as people write them: a number with an optional unit, powers of 1024.

/// Bytes of a size such as `64M`, `1.5G`, `512KiB` or `1000`.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number
        .parse()
        .map_err(|_| format!("`{text}` is not a size; write 64M or 1.5G"))?;
    let bytes = number * unit_bytes(unit.trim()).ok_or_else(|| unknown_unit(unit))?;
    if bytes < 1.0 || bytes > (1_u64 << 60) as f64 {
        return Err(format!("`{text}` is out of range"));
    }
    Ok(bytes as u64)
}

fn unknown_unit(unit: &str) -> String {
    format!("`{unit}` is not a unit; use K, M, G or T (powers of 1024)")
}

fn unit_bytes(unit: &str) -> Option<f64> {
    let letter = unit.trim_end_matches('B').trim_end_matches('i').to_ascii_uppercase();
    let power = match letter.as_str() {
        "" => 0,
        "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        _ => return None,
    };
    Some((1_u64 << (10 * power)) as f64)
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
        for text in ["", "M", "12X", "1..2", "-5M", "0", "9999999T", "1e3"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse("12X").is_err_and(|message| message.contains("K, M, G or T")));
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
