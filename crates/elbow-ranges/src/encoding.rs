//! A compact, versioned, checked encoding.
//!
//! ```text
//!   sealed:  magic (8 bytes) | version (u16 LE) | length of body (u64 LE) | body | CRC-32 of all before (u32 LE)
//!   body:    varint  LEB128, least significant group first, shortest form only
//!            signed  zig-zag varint
//!            bytes   varint length, then the bytes
//!            ranges  varint count, then per range: varint distance from the end before, varint length
//! ```
//!
//! Invariants: decoding never panics, never reads past its input, never allocates more than the input could hold,
//! and takes exactly one form of each value (so that equal values have equal bytes).
//!
//! Not here: what the values mean, and what any one format's versions contain.
//!
//! Source: DWARF 5, section 7.6 (LEB128); Protocol Buffers encoding (zig-zag); IEEE 802.3 (CRC-32).

use std::ops::RangeInclusive;

use crate::RangeSet;

/// Bytes around the body of a sealed message.
pub const ENVELOPE_BYTES: usize = HEADER_BYTES + CHECKSUM_BYTES;
const HEADER_BYTES: usize = 8 + 2 + 8;
const CHECKSUM_BYTES: usize = 4;

/// Why bytes could not be decoded. Offsets count from the start of what was given to decode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The input ends too early.
    #[error("truncated at byte {at}: {needed} more bytes were expected, {left} are left")]
    Truncated {
        /// Where the input should have gone on.
        at: usize,
        /// Bytes expected there.
        needed: u64,
        /// Bytes found there.
        left: usize,
    },
    /// It is something else.
    #[error("bad magic at byte 0: expected {:?}, found {:?}", String::from_utf8_lossy(.expected), String::from_utf8_lossy(.found))]
    BadMagic {
        /// What it should begin with.
        expected: [u8; 8],
        /// What it begins with.
        found: [u8; 8],
    },
    /// It was written by a version that is not known here.
    #[error("unknown version {found} at byte 8: this program reads {oldest} to {newest}")]
    UnknownVersion {
        /// The version found.
        found: u16,
        /// The oldest version known.
        oldest: u16,
        /// The newest version known.
        newest: u16,
    },
    /// The bytes are not those that the checksum was made of.
    #[error("checksum mismatch at byte {at}: stored {stored:#010x}, computed {computed:#010x}")]
    Checksum {
        /// Where the checksum is.
        at: usize,
        /// The checksum stored.
        stored: u32,
        /// The checksum of what is there.
        computed: u32,
    },
    /// There is more than there should be.
    #[error("{count} trailing bytes at byte {at}")]
    Trailing {
        /// Where the input should have ended.
        at: usize,
        /// Bytes found there.
        count: usize,
    },
    /// A number, range or other value that no encoder writes.
    #[error("bad value at byte {at}: {what}")]
    BadValue {
        /// Where the value begins.
        at: usize,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// Puts a body into an envelope of magic, version, length and checksum.
///
/// ```
/// use elbow_ranges::encoding::{open_sealed, seal};
///
/// let sealed = seal(*b"ELBOWDOC", 2, b"body");
/// assert_eq!(open_sealed(*b"ELBOWDOC", 1..=2, &sealed).unwrap(), (2, &b"body"[..]));
///
/// let error = open_sealed(*b"ELBOWDOC", 1..=1, &sealed).unwrap_err();
/// assert_eq!(error.to_string(), "unknown version 2 at byte 8: this program reads 1 to 1");
/// ```
#[must_use]
pub fn seal(magic: [u8; 8], version: u16, body: &[u8]) -> Vec<u8> {
    let mut sealed = Vec::with_capacity(ENVELOPE_BYTES + body.len());
    sealed.extend_from_slice(&magic);
    sealed.extend_from_slice(&version.to_le_bytes());
    sealed.extend_from_slice(&(body.len() as u64).to_le_bytes());
    sealed.extend_from_slice(body);
    let checksum = crc32fast::hash(&sealed);
    sealed.extend_from_slice(&checksum.to_le_bytes());
    sealed
}

/// Checks an envelope and gives its version and body.
///
/// # Errors
/// When it is not exactly what [`seal`] makes with this magic and one of these versions.
pub fn open_sealed(magic: [u8; 8], versions: RangeInclusive<u16>, bytes: &[u8]) -> Result<(u16, &[u8]), DecodeError> {
    let mut reader = Reader::new(bytes);
    let found: [u8; 8] = reader.array()?;
    if found != magic {
        return Err(DecodeError::BadMagic { expected: magic, found });
    }
    let version = u16::from_le_bytes(reader.array()?);
    if !versions.contains(&version) {
        let (oldest, newest) = versions.into_inner();
        return Err(DecodeError::UnknownVersion {
            found: version,
            oldest,
            newest,
        });
    }
    let length = u64::from_le_bytes(reader.array()?);
    let body = reader.take(length)?;
    let at = reader.offset();
    let computed = crc32fast::hash(&bytes[..at]);
    let stored = u32::from_le_bytes(reader.array()?);
    if stored != computed {
        return Err(DecodeError::Checksum { at, stored, computed });
    }
    reader.finish()?;
    Ok((version, body))
}

/// Writes values one after the other.
///
/// ```
/// use elbow_ranges::encoding::{Reader, Writer};
///
/// let mut writer = Writer::new();
/// writer.varint(300);
/// writer.signed(-1);
/// writer.bytes(b"name");
/// let body = writer.finish();
/// assert_eq!(body, [0xac, 0x02, 0x01, 4, b'n', b'a', b'm', b'e']);
///
/// let mut reader = Reader::new(&body);
/// assert_eq!(reader.varint()?, 300);
/// assert_eq!(reader.signed()?, -1);
/// assert_eq!(reader.bytes()?, b"name");
/// reader.finish()?;
/// # Ok::<(), elbow_ranges::encoding::DecodeError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Begins with nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Goes on after bytes that are there already, so that many messages need one buffer.
    ///
    /// ```
    /// use elbow_ranges::encoding::Writer;
    ///
    /// let mut writer = Writer::after(b"ab".to_vec());
    /// writer.u8(b'c');
    /// assert_eq!(writer.finish(), b"abc");
    /// ```
    #[must_use]
    pub fn after(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    /// One byte.
    pub fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    /// A truth value: one byte, 0 or 1.
    pub fn bool(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    /// Makes room for so many more bytes.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
    }

    /// A number, in as few bytes as it needs (1 to 10).
    pub fn varint(&mut self, mut value: u64) {
        if value >> (7 * WORD_BYTES) == 0 {
            // All groups at once: a list has hundreds of thousands of these.
            let bytes = varint_bytes(value);
            let more = GOES_ON & ((1 << (8 * (bytes - 1))) - 1);
            let length = self.bytes.len() + bytes;
            self.bytes.extend_from_slice(&(spread(value) | more).to_le_bytes());
            return self.bytes.truncate(length);
        }
        while value >= 0x80 {
            self.u8((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.u8(value as u8);
    }

    /// Two numbers, as [`varint`](Self::varint) writes them one after the other.
    #[inline]
    pub(crate) fn varint_pair(&mut self, first: u64, second: u64) {
        if (first | second) >> (2 * 7) != 0 {
            self.varint(first);
            return self.varint(second);
        }
        // Most distances and lengths of a list are that short, and both are written at once.
        let (first, first_bytes) = two_groups(first);
        let (second, second_bytes) = two_groups(second);
        let length = self.bytes.len() + first_bytes + second_bytes;
        let both = first | second << (8 * first_bytes);
        self.bytes.extend_from_slice(&both.to_le_bytes());
        self.bytes.truncate(length);
    }

    /// A number of either sign; short when it is near zero.
    pub fn signed(&mut self, value: i64) {
        self.varint(((value << 1) ^ (value >> 63)) as u64);
    }

    /// Bytes with their length.
    pub fn bytes(&mut self, value: &[u8]) {
        self.varint(value.len() as u64);
        self.bytes.extend_from_slice(value);
    }

    /// Bytes without their length, which the reader knows; the counterpart of [`Reader::array`].
    pub fn array(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
    }

    /// A set of ranges.
    pub fn ranges(&mut self, set: &RangeSet) {
        self.varint(set.len() as u64);
        let mut before = 0;
        for range in set {
            self.varint(range.start - before);
            self.varint(range.end - range.start);
            before = range.end;
        }
    }

    /// Ends the encoding: all bytes written so far.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// Bytes, or groups of 7 bits, that are handled at once.
const WORD_BYTES: usize = 8;
/// The bit of each byte that says that another one follows.
const GOES_ON: u64 = 0x8080_8080_8080_8080;

/// Bytes that [`Writer::varint`] takes for a number.
pub(crate) fn varint_bytes(value: u64) -> usize {
    (u64::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

/// A number below 2^14 as a varint, and how many bytes that has.
#[inline]
fn two_groups(value: u64) -> (u32, usize) {
    let goes_on = u32::from(value >= 0x80);
    let value = value as u32;
    (value & 0x7f | goes_on << 7 | (value >> 7) << 8, 1 + goes_on as usize)
}

/// The groups of 7 bits of a number below 2^56, one in each byte.
fn spread(value: u64) -> u64 {
    let halves = value & 0x0fff_ffff | (value & 0x00ff_ffff_f000_0000) << 4;
    let quarters = halves & 0x0000_3fff_0000_3fff | (halves & 0x0fff_c000_0fff_c000) << 2;
    quarters & 0x007f_007f_007f_007f | (quarters & 0x3f80_3f80_3f80_3f80) << 1
}

/// The number whose groups of 7 bits are in the bytes of a word, whatever their highest bits.
fn gather(groups: u64) -> u64 {
    let quarters = groups & 0x007f_007f_007f_007f | (groups & 0x7f00_7f00_7f00_7f00) >> 1;
    let halves = quarters & 0x0000_3fff_0000_3fff | (quarters & 0x3fff_0000_3fff_0000) >> 2;
    halves & 0x0fff_ffff | (halves & 0x0fff_ffff_0000_0000) >> 4
}

/// Reads values one after the other; the counterpart of [`Writer`].
///
/// ```
/// use elbow_ranges::encoding::Reader;
///
/// let mut reader = Reader::new(&[0x07, 0x05, b'a']);
/// assert_eq!(reader.varint()?, 7);
/// let error = reader.bytes().unwrap_err(); // says that it has 5 bytes
/// assert_eq!(error.to_string(), "truncated at byte 2: 5 more bytes were expected, 1 are left");
/// # Ok::<(), elbow_ranges::encoding::DecodeError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Begins at the first byte.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Where the next value begins.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Number of bytes not read yet.
    #[must_use]
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Ends reading.
    ///
    /// # Errors
    /// When something is left.
    pub fn finish(&self) -> Result<(), DecodeError> {
        match self.left() {
            0 => Ok(()),
            count => Err(DecodeError::Trailing { at: self.at, count }),
        }
    }

    /// One byte.
    ///
    /// # Errors
    /// When there is none.
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.array::<1>()?[0])
    }

    /// A truth value.
    ///
    /// # Errors
    /// When there is none, or it is neither 0 nor 1.
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        let at = self.at;
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::BadValue {
                at,
                what: "a truth value is 0 or 1",
            }),
        }
    }

    /// A number.
    ///
    /// # Errors
    /// When it is cut short, does not fit 64 bits or is not in its shortest form.
    pub fn varint(&mut self) -> Result<u64, DecodeError> {
        let at = self.at;
        let bad = |what| Err(DecodeError::BadValue { at, what });
        if let Some(word) = self.bytes[at..].first_chunk() {
            let word = u64::from_le_bytes(*word);
            let ends = !word & GOES_ON;
            if ends != 0 {
                // Up to the first byte that does not go on; the highest byte of these is 0 only if it need not be there.
                let bits = ends.trailing_zeros() + 1;
                let groups = word & (u64::MAX >> (u64::BITS - bits));
                if bits > 8 && groups >> (bits - 8) == 0 {
                    return bad("a number is longer than it needs to be");
                }
                self.at += bits as usize / 8;
                return Ok(gather(groups));
            }
        }
        let mut value = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.u8()?;
            let group = u64::from(byte & 0x7f);
            if group << shift >> shift != group {
                return bad("a number does not fit 64 bits");
            }
            value |= group << shift;
            if byte & 0x80 == 0 {
                return if byte == 0 && shift > 0 {
                    bad("a number is longer than it needs to be")
                } else {
                    Ok(value)
                };
            }
        }
        bad("a number does not fit 64 bits")
    }

    /// Two numbers one after the other.
    ///
    /// # Errors
    /// As [`varint`](Self::varint).
    #[inline]
    pub(crate) fn varint_pair(&mut self) -> Result<(u64, u64), DecodeError> {
        match self.short_pair() {
            Some(pair) => Ok(pair),
            None => Ok((self.varint()?, self.varint()?)),
        }
    }

    /// Two numbers that have eight bytes together at most, if they are so and in their shortest form.
    #[inline]
    fn short_pair(&mut self) -> Option<(u64, u64)> {
        let word = u64::from_le_bytes(*self.bytes.get(self.at..)?.first_chunk()?);
        let ends = !word & GOES_ON;
        let second_ends = ends & ends.wrapping_sub(1);
        if second_ends == 0 {
            return None;
        }
        let (first_bits, bits) = (ends.trailing_zeros() + 1, second_ends.trailing_zeros() + 1);
        let (first, both) = (
            word & (u64::MAX >> (u64::BITS - first_bits)),
            word & (u64::MAX >> (u64::BITS - bits)),
        );
        let second = both >> first_bits;
        let is_shortest = |groups: u64, bits: u32| bits == 8 || groups >> (bits - 8) != 0;
        if !is_shortest(first, first_bits) || !is_shortest(second, bits - first_bits) {
            return None;
        }
        self.at += bits as usize / 8;
        Some((gather(first), gather(second)))
    }

    /// A number that is the count of items to follow, each of at least `item_bytes_min` (1 or more) bytes; safe to
    /// allocate for.
    ///
    /// # Errors
    /// When so many items cannot be in what is left.
    pub fn count(&mut self, item_bytes_min: usize) -> Result<usize, DecodeError> {
        let count = self.varint()?;
        let needed = count.saturating_mul(item_bytes_min.max(1) as u64);
        if needed > self.left() as u64 {
            return Err(self.truncated(needed));
        }
        Ok(count as usize)
    }

    /// A number of either sign.
    ///
    /// # Errors
    /// As [`varint`](Self::varint).
    pub fn signed(&mut self) -> Result<i64, DecodeError> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// A number of 32 bits.
    ///
    /// # Errors
    /// As [`varint`](Self::varint), and when it is larger.
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        let at = self.at;
        u32::try_from(self.varint()?).map_err(|_| DecodeError::BadValue {
            at,
            what: "a number does not fit 32 bits",
        })
    }

    /// Bytes with their length.
    ///
    /// # Errors
    /// When there are fewer than their length says.
    pub fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = self.varint()?;
        self.take(length)
    }

    /// A set of ranges.
    ///
    /// # Errors
    /// When it is cut short, or not sorted, disjoint, coalesced and below `u64::MAX`.
    pub fn ranges(&mut self) -> Result<RangeSet, DecodeError> {
        let mut set = RangeSet::new();
        let mut before = 0;
        for index in 0..self.count(2)? {
            let at = self.at;
            let bad = |what| DecodeError::BadValue { at, what };
            let (distance, length) = (self.varint()?, self.varint()?);
            if length == 0 {
                return Err(bad("a range is empty"));
            }
            if distance == 0 && index > 0 {
                return Err(bad("two ranges touch"));
            }
            let start = u64::checked_add(before, distance).ok_or(bad("a range begins past 2^64"))?;
            before = start.checked_add(length).ok_or(bad("a range ends past 2^64"))?;
            set.insert(start, before);
        }
        Ok(set)
    }

    /// A fixed number of bytes without a length.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64)?);
        Ok(array)
    }

    /// The next `length` bytes.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn take(&mut self, length: u64) -> Result<&'a [u8], DecodeError> {
        if length > self.left() as u64 {
            return Err(self.truncated(length));
        }
        let taken = &self.bytes[self.at..][..length as usize];
        self.at += length as usize;
        Ok(taken)
    }

    fn truncated(&self, needed: u64) -> DecodeError {
        DecodeError::Truncated {
            at: self.at,
            needed,
            left: self.left(),
        }
    }
}
