//! Fixed-size records and the keys that order them.
//!
//! A key is made comparable byte by byte (*normalised*): integers big-endian with the sign flipped, floating-point
//! numbers in IEEE 754 total order (-NaN, -inf, ..., -0, +0, ..., +inf, +NaN), bytes as they are, descending keys
//! inverted. The first eight normalised bytes are a record's *prefix*, which decides most comparisons.
//!
//! Source: IEEE 754-2019, section 5.10 (totalOrder).

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use super::error::{FormatError, KeyProblem};

/// Longest record; longer ones are better sorted by reference.
pub const RECORD_BYTES_MAX: usize = 1 << 20;

/// How the bytes of a key are to be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// An unsigned integer of 1, 2, 4 or 8 bytes; `true`: the most significant byte first.
    Unsigned(bool),
    /// A two's complement integer of 1, 2, 4 or 8 bytes; `true`: the most significant byte first.
    Signed(bool),
    /// An IEEE 754 number of 4 or 8 bytes; `true`: the most significant byte first.
    Float(bool),
    /// Bytes, compared as unsigned numbers one after the other.
    Bytes,
}

/// One key of a record, written `OFFSET:WIDTH:TYPE[:desc]`.
///
/// ```
/// use elbow_extmem::sort::Key;
///
/// let key: Key = "0:4:u32le".parse()?;
/// assert_eq!((key.offset, key.width), (0, 4));
/// assert_eq!("8:10:bytes:desc".parse::<Key>()?.to_string(), "8:10:bytes:desc");
/// assert!("0:3:u32le".parse::<Key>().unwrap_err().to_string().contains("4 bytes"));
/// # Ok::<(), elbow_extmem::sort::FormatError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Where it begins in the record, in bytes.
    pub offset: usize,
    /// Its length in bytes.
    pub width: usize,
    /// What its bytes mean.
    pub kind: KeyKind,
    /// The greatest first.
    pub descending: bool,
}

/// Records of one size, ordered by one or more keys: the first decides, then the second, and so on.
///
/// ```
/// use elbow_extmem::sort::RecordFormat;
///
/// let format = RecordFormat::new(24, vec!["0:4:u32le".parse()?])?;
/// let record = [[1, 0, 0, 0].as_slice(), &[0; 20]].concat();
/// assert_eq!(format.prefix(&record), 1 << 32);
/// assert!(RecordFormat::new(24, vec!["22:4:u32le".parse()?]).is_err());
/// # Ok::<(), elbow_extmem::sort::FormatError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordFormat {
    bytes: usize,
    keys: Vec<Key>,
    /// Bytes of all keys together.
    key_bytes: usize,
    prefix_load: Option<PrefixLoad>,
}

/// The prefix of a record by one load: where the first key alone makes it, is no floating-point number, and is followed by
/// enough bytes of the record. A merge asks for the prefix of every record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PrefixLoad {
    offset: usize,
    is_little: bool,
    /// Bits of the eight loaded bytes that are not the key's.
    spare_bits: u32,
    /// Turns signs and descending keys round.
    flip: u64,
}

impl PrefixLoad {
    fn new(bytes: usize, keys: &[Key]) -> Option<Self> {
        let first = keys[0];
        let spare_bits = 64 - 8 * first.width.min(8) as u32;
        let mask = u64::MAX << spare_bits;
        let (is_little, sign) = match first.kind {
            KeyKind::Bytes | KeyKind::Unsigned(true) => (false, 0),
            KeyKind::Unsigned(false) => (true, 0),
            KeyKind::Signed(big) => (!big, 1 << 63),
            KeyKind::Float(_) => return None,
        };
        let makes_it_alone = keys.len() == 1 || first.width >= 8;
        (makes_it_alone && first.offset + 8 <= bytes).then_some(Self {
            offset: first.offset,
            is_little,
            spare_bits,
            flip: sign ^ if first.descending { mask } else { 0 },
        })
    }

    #[inline]
    fn prefix(&self, record: &[u8]) -> u64 {
        let word: [u8; 8] = record[self.offset..self.offset + 8].try_into().expect("eight bytes");
        let value = if self.is_little {
            u64::from_le_bytes(word) << self.spare_bits
        } else {
            u64::from_be_bytes(word) >> self.spare_bits << self.spare_bits
        };
        value ^ self.flip
    }
}

impl RecordFormat {
    /// Records of `bytes` bytes; without keys, whole records are compared byte by byte.
    ///
    /// # Errors
    /// A size that is out of range, or a key that is not inside the record; the text says which.
    pub fn new(bytes: usize, mut keys: Vec<Key>) -> Result<Self, FormatError> {
        if !(1..=RECORD_BYTES_MAX).contains(&bytes) {
            let most = RECORD_BYTES_MAX;
            return Err(FormatError::RecordBytes { bytes, most });
        }
        if keys.is_empty() {
            keys.push(Key::bytes(0, bytes));
        }
        if let Some(key) = keys.iter().find(|key| key.end() > bytes) {
            return Err(FormatError::KeyOutside {
                key: key.to_string(),
                end: key.end(),
                bytes,
            });
        }
        let key_bytes = keys.iter().map(|key| key.width).sum();
        let prefix_load = PrefixLoad::new(bytes, &keys);
        Ok(Self {
            bytes,
            keys,
            key_bytes,
            prefix_load,
        })
    }

    /// The records of Jim Gray's sort benchmark, as gensort makes them: 100 bytes, the first ten are the key.
    #[must_use]
    pub fn gensort() -> Self {
        Self::new(100, vec![Key::bytes(0, 10)]).expect("a key within the record")
    }

    /// Size of a record in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Size of all keys together, in bytes.
    #[must_use]
    pub fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// The keys, the most significant first.
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// Do the prefixes alone decide every comparison?
    #[must_use]
    pub fn prefix_decides(&self) -> bool {
        self.key_bytes <= 8
    }

    /// The first eight bytes of the normalised keys, as a number: `a` before `b` implies `prefix(a) <= prefix(b)`.
    ///
    /// # Panics
    /// When `record` is shorter than a record.
    #[must_use]
    #[inline]
    pub fn prefix(&self, record: &[u8]) -> u64 {
        match &self.prefix_load {
            Some(prefix_load) => prefix_load.prefix(record),
            None => self.prefix_of_keys(record),
        }
    }

    fn prefix_of_keys(&self, record: &[u8]) -> u64 {
        let first = self.keys[0];
        let mut prefix = first.prefix(record);
        let mut filled = first.width;
        for key in &self.keys[1..] {
            if filled >= 8 {
                break;
            }
            prefix |= key.prefix(record) >> (8 * filled);
            filled += key.width;
        }
        prefix
    }

    /// Which of two records comes first; equal when all keys are equal.
    ///
    /// # Panics
    /// When one is shorter than a record.
    #[must_use]
    pub fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let by_key = self.keys.iter().map(|key| key.compare(a, b));
        by_key.fold(Ordering::Equal, Ordering::then)
    }
}

impl Key {
    /// A key of plain bytes.
    #[must_use]
    pub const fn bytes(offset: usize, width: usize) -> Self {
        let (kind, descending) = (KeyKind::Bytes, false);
        Self {
            offset,
            width,
            kind,
            descending,
        }
    }

    fn end(&self) -> usize {
        self.offset.saturating_add(self.width)
    }

    /// The first eight normalised bytes, the first the most significant; zeros behind a shorter key.
    #[inline]
    fn prefix(&self, record: &[u8]) -> u64 {
        let field = &record[self.offset..self.offset + self.width];
        let bits = 8 * self.width.min(8) as u32;
        let value = match self.kind {
            KeyKind::Bytes | KeyKind::Unsigned(true) => big(field),
            KeyKind::Unsigned(false) => little(field),
            KeyKind::Signed(true) => big(field) ^ (1 << (bits - 1)),
            KeyKind::Signed(false) => little(field) ^ (1 << (bits - 1)),
            KeyKind::Float(true) => float(big(field), bits),
            KeyKind::Float(false) => float(little(field), bits),
        };
        let mask = u64::MAX >> (64 - bits);
        let value = if self.descending { !value & mask } else { value };
        value << (64 - bits)
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        let order = match self.kind {
            KeyKind::Bytes => a[self.offset..self.offset + self.width].cmp(&b[self.offset..self.offset + self.width]),
            _ => return self.prefix(a).cmp(&self.prefix(b)),
        };
        if self.descending { order.reverse() } else { order }
    }
}

/// Up to eight bytes, the first the most significant.
#[inline]
fn big(field: &[u8]) -> u64 {
    match field.len() {
        8.. => u64::from_be_bytes(field[..8].try_into().expect("eight bytes")),
        4 => u64::from(u32::from_be_bytes(field.try_into().expect("four bytes"))),
        _ => field.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)),
    }
}

/// Up to eight bytes, the first the least significant.
#[inline]
fn little(field: &[u8]) -> u64 {
    match field.len() {
        8.. => u64::from_le_bytes(field[..8].try_into().expect("eight bytes")),
        4 => u64::from(u32::from_le_bytes(field.try_into().expect("four bytes"))),
        _ => field.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)),
    }
}

/// The bits of an IEEE 754 number so that greater numbers have greater bits.
#[inline]
fn float(value: u64, bits: u32) -> u64 {
    let sign = 1 << (bits - 1);
    let mask = u64::MAX >> (64 - bits);
    if value & sign == 0 { value | sign } else { !value & mask }
}

impl fmt::Display for Key {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = 8 * self.width;
        let end = |big: bool| if big { "be" } else { "le" };
        write!(to, "{}:{}:", self.offset, self.width)?;
        match self.kind {
            KeyKind::Bytes => write!(to, "bytes")?,
            KeyKind::Unsigned(_) | KeyKind::Signed(_) if self.width == 1 => {
                let letter = if matches!(self.kind, KeyKind::Signed(_)) {
                    'i'
                } else {
                    'u'
                };
                write!(to, "{letter}8")?;
            }
            KeyKind::Unsigned(big) => write!(to, "u{bits}{}", end(big))?,
            KeyKind::Signed(big) => write!(to, "i{bits}{}", end(big))?,
            KeyKind::Float(big) => write!(to, "f{bits}{}", end(big))?,
        }
        to.write_str(if self.descending { ":desc" } else { "" })
    }
}

impl FromStr for Key {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        parsed(text).map_err(|problem| FormatError::Key {
            text: text.to_owned(),
            problem,
        })
    }
}

fn parsed(text: &str) -> Result<Key, KeyProblem> {
    let mut parts = text.split(':');
    let mut number = |what| -> Result<usize, KeyProblem> {
        let word = parts.next().unwrap_or_default();
        word.parse().map_err(|_| KeyProblem::NotANumber {
            word: word.to_owned(),
            what,
        })
    };
    let (offset, width) = (number("offset")?, number("width")?);
    let (kind, right_width) = kind(parts.next().unwrap_or_default())?;
    match right_width {
        Some(right) if right != width => return Err(KeyProblem::Width { right, given: width }),
        None if width == 0 => return Err(KeyProblem::NoWidth),
        _ => {}
    }
    let descending = match (parts.next(), parts.next()) {
        (None, _) | (Some("asc"), None) => false,
        (Some("desc"), None) => true,
        (Some(other), _) => return Err(KeyProblem::Direction(other.to_owned())),
    };
    Ok(Key {
        offset,
        width,
        kind,
        descending,
    })
}

/// A type by its name, and the width that it has to have.
fn kind(name: &str) -> Result<(KeyKind, Option<usize>), KeyProblem> {
    if name == "bytes" {
        return Ok((KeyKind::Bytes, None));
    }
    let unknown = || KeyProblem::UnknownType(name.to_owned());
    let digits = name.get(1..).ok_or_else(unknown)?;
    let (bits, big) = match (digits.strip_suffix("be"), digits.strip_suffix("le")) {
        (Some(bits), _) => (bits, true),
        (_, Some(bits)) => (bits, false),
        _ if digits == "8" => (digits, true),
        _ => return Err(unknown()),
    };
    let kind = match (&name[..1], bits) {
        ("u", "8" | "16" | "32" | "64") => KeyKind::Unsigned(big),
        ("i", "8" | "16" | "32" | "64") => KeyKind::Signed(big),
        ("f", "32" | "64") => KeyKind::Float(big),
        _ => return Err(unknown()),
    };
    let width = bits.parse::<usize>().map_err(|_| unknown())? / 8;
    Ok((kind, Some(width)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(bytes: usize, keys: &[&str]) -> RecordFormat {
        let keys = keys.iter().map(|key| key.parse().expect("a key")).collect();
        RecordFormat::new(bytes, keys).expect("a format")
    }

    /// Records in ascending order: every pair compares so, and no prefix contradicts it.
    fn ascends(format: &RecordFormat, records: &[Vec<u8>]) {
        for (i, a) in records.iter().enumerate() {
            for (j, b) in records.iter().enumerate() {
                assert_eq!(format.compare(a, b), i.cmp(&j), "{a:?} {b:?}");
                assert_eq!(format.prefix(a), format.prefix_of_keys(a), "{a:?}");
                let prefixes = format.prefix(a).cmp(&format.prefix(b));
                let consistent = prefixes == i.cmp(&j) || prefixes.is_eq() && !format.prefix_decides();
                assert!(consistent, "{a:?} {b:?}: {prefixes:?}");
            }
        }
    }

    #[test]
    fn numbers_are_ordered_by_value_in_both_byte_orders() {
        let values = [i64::MIN, -77, -1, 0, 1, 255, 256, i64::MAX];
        ascends(&format(8, &["0:8:i64le"]), &values.map(|v| v.to_le_bytes().to_vec()));
        ascends(&format(8, &["0:8:i64be"]), &values.map(|v| v.to_be_bytes().to_vec()));
        let small = [0_u16, 1, 255, 256, u16::MAX];
        ascends(&format(2, &["0:2:u16le"]), &small.map(|v| v.to_le_bytes().to_vec()));
        ascends(
            &format(1, &["0:1:i8"]),
            &[-128_i8, -1, 0, 127].map(|v| v.to_le_bytes().to_vec()),
        );
    }

    #[test]
    fn one_load_gives_the_prefix_that_the_keys_give() {
        let record: Vec<u8> = (0..24_u8).map(|byte| byte.wrapping_mul(37) ^ 0xa5).collect();
        let kinds = [
            "1:u8", "1:i8", "2:u16le", "2:i16be", "4:u32le", "4:i32le", "4:u32be", "8:i64le", "8:u64be", "5:bytes",
            "10:bytes",
        ];
        let mut prefix_load = 0;
        for (kind, end) in kinds.iter().flat_map(|kind| [(kind, ""), (kind, ":desc")]) {
            for offset in [0, 3, 12, 14] {
                let format = format(24, &[&format!("{offset}:{kind}{end}")]);
                assert_eq!(
                    format.prefix(&record),
                    format.prefix_of_keys(&record),
                    "{kind}{end} at {offset}"
                );
                prefix_load += usize::from(format.prefix_load.is_some());
            }
        }
        assert!(prefix_load > 80, "{prefix_load} of 88 by one load");
    }

    #[test]
    fn floating_point_numbers_are_in_total_order() {
        let values = [
            -f64::NAN,
            f64::NEG_INFINITY,
            -1.5,
            -0.0,
            0.0,
            1e-300,
            2.0,
            f64::INFINITY,
            f64::NAN,
        ];
        ascends(&format(8, &["0:8:f64le"]), &values.map(|v| v.to_le_bytes().to_vec()));
        let values = [-f32::NAN, -1.5, -0.0, 0.0, 2.0, f32::NAN];
        ascends(&format(4, &["0:4:f32be"]), &values.map(|v| v.to_be_bytes().to_vec()));
    }

    #[test]
    fn later_keys_decide_between_equals_and_descending_turns_one_key_round() {
        let records = [[0, 9, 5], [0, 8, 5], [1, 9, 4], [1, 9, 5]].map(|r| r.to_vec());
        ascends(&format(3, &["0:1:u8", "1:1:u8:desc", "2:1:bytes"]), &records);
        let long = [
            b"aaaaaaaaaab".to_vec(),
            b"aaaaaaaaaac".to_vec(),
            b"baaaaaaaaaa".to_vec(),
        ];
        ascends(&format(11, &[]), &long);
    }

    #[test]
    fn keys_that_cannot_be_are_refused_with_what_is_wrong() {
        for (text, says) in [
            ("x:4:u32le", "`x` is no offset"),
            ("0:4", "is no type"),
            ("0:4:u32", "is no type"),
            ("0:4:q32le", "is no type"),
            ("0:0:bytes", "at least 1 byte"),
            ("0:8:f32le", "has 4 bytes"),
            ("0:4:u32le:down", "neither asc nor desc"),
        ] {
            let error = text.parse::<Key>().expect_err(text);
            assert!(error.to_string().contains(says), "{text}: {error}");
        }
        let error = RecordFormat::new(8, vec![Key::bytes(4, 5)]).expect_err("too long");
        assert_eq!(
            error.to_string(),
            "key 4:5:bytes ends at byte 9, but a record has 8 bytes"
        );
    }
}
