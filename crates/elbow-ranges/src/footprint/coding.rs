//! The encoding of footprints.
//!
//! ```text
//!   footprint   one byte: version (1) * 16 + form, then
//!   0 whole     nothing
//!   1 pattern   start, body
//!   2 list      runs (as `Writer::ranges`), count of patterns, per pattern: distance from the start before, body
//!   3 blocks    as `BlockBitmap::encode`
//!
//!   body        count of vectors; count and stride of each, outermost first; bytes in a piece
//! ```
//!
//! All numbers are varints. Invariants as in [`encoding`](crate::encoding): one form per value, and no more memory than a small
//! multiple of the input. The whole of a 3-D block of 2,500 ranges takes 14 bytes.

use std::sync::Arc;

use super::{Footprint, Form};
use crate::encoding::{DecodeError, Reader, Writer, varint_bytes};
use crate::list::{List, body_bytes, encoded_bytes};
use crate::ranges::Run;
use crate::{BlockBitmap, Dim, Strided};

const VERSION: u8 = 1 << 4;
const WHOLE: u8 = VERSION;
const PATTERN: u8 = VERSION + 1;
const LIST: u8 = VERSION + 2;
const BLOCKS: u8 = VERSION + 3;

/// Fewest bytes of a run in a list, and of a pattern.
const RUN_BYTES_MIN: usize = 2;
const PATTERN_BYTES_MIN: usize = 5;
/// Room that is made for a run: distances and lengths of two bytes.
const RUN_BYTES_USUAL: usize = 4;

impl Footprint {
    /// Writes it.
    ///
    /// ```
    /// use elbow_ranges::{Footprint, encoding::{Reader, Writer}};
    ///
    /// let footprint = Footprint::from_list((0..1000).map(|i| (i * 400, 100)))?;
    /// let mut writer = Writer::new();
    /// footprint.encode(&mut writer);
    /// let bytes = writer.finish();
    /// assert_eq!(bytes.len(), 8);
    /// assert_eq!(Footprint::decode(&mut Reader::new(&bytes)), Ok(footprint));
    /// # Ok::<(), elbow_ranges::PatternError>(())
    /// ```
    pub fn encode(&self, writer: &mut Writer) {
        match &self.form {
            Form::Whole => writer.u8(WHOLE),
            Form::Pattern(pattern) => {
                writer.u8(PATTERN);
                writer.varint(pattern.bounds().start);
                write_body(pattern, writer);
            }
            Form::List(list) => {
                writer.u8(LIST);
                write_list(list, writer);
            }
            Form::Blocks(blocks) => {
                writer.u8(BLOCKS);
                blocks.encode(writer);
            }
        }
    }

    /// Bytes that [`encode`](Self::encode) writes, without writing them (but for bitmaps).
    ///
    /// ```
    /// use elbow_ranges::Footprint;
    ///
    /// assert_eq!(Footprint::whole().encoded_bytes(), 1);
    /// assert_eq!(Footprint::from_list((0..1000).map(|i| (i * 400, 100)))?.encoded_bytes(), 8);
    /// # Ok::<(), elbow_ranges::PatternError>(())
    /// ```
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        const FORM: usize = 1;
        match &self.form {
            Form::Whole => FORM,
            Form::Pattern(pattern) => FORM + varint_bytes(pattern.bounds().start) + body_bytes(pattern),
            Form::List(list) => FORM + encoded_bytes(list),
            Form::Blocks(blocks) => {
                let mut writer = Writer::new();
                blocks.encode(&mut writer);
                FORM + writer.finish().len()
            }
        }
    }

    /// Whether [`encode`](Self::encode) writes at most so many bytes; where that is far less, without measuring each range.
    ///
    /// ```
    /// use elbow_ranges::Footprint;
    ///
    /// let footprint = Footprint::from_list((0..1000).map(|i| (i * 400, 100)))?;
    /// assert!(footprint.encodes_within(8) && !footprint.encodes_within(7));
    /// # Ok::<(), elbow_ranges::PatternError>(())
    /// ```
    #[must_use]
    pub fn encodes_within(&self, bytes: usize) -> bool {
        const VARINT_BYTES_MAX: usize = 10;
        let is_far_less = match &self.form {
            // Two numbers of each, behind the form and the counts of runs and patterns.
            Form::List(list) if list.patterns.is_empty() => (2 * list.runs.len() + 3) * VARINT_BYTES_MAX <= bytes,
            _ => false,
        };
        is_far_less || self.encoded_bytes() <= bytes
    }

    /// Reads what [`encode`](Self::encode) wrote. Allocates at most in proportion to the input.
    ///
    /// # Errors
    /// When it is cut short, or nothing that `encode` writes: another version, an empty or overflowing pattern, one in another than
    /// its canonical form, a list out of order.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let at = reader.offset();
        let bad = |what| Err(DecodeError::BadValue { at, what });
        let footprint = match reader.u8()? {
            WHOLE => return Ok(Self::whole()),
            PATTERN => {
                let start = reader.varint()?;
                Self::from(read_body(start, at, reader)?)
            }
            LIST => match Self::from_parts(read_list(reader)?) {
                Ok(list) if matches!(list.form, Form::List(_)) => list,
                _ => return bad("a list of ranges has another form"),
            },
            BLOCKS => Self::of(Form::Blocks(Arc::new(read_blocks(at, reader)?))),
            _ => return bad("a footprint of a form or version that is not known here"),
        };
        match footprint.form {
            Form::Whole => bad("the whole has another form"),
            _ => Ok(footprint),
        }
    }
}

fn write_list(list: &List, writer: &mut Writer) {
    writer.reserve(RUN_BYTES_USUAL * list.runs.len());
    writer.varint(list.runs.len() as u64);
    let mut before = 0;
    for run in &list.runs {
        writer.varint_pair(run.start - before, run.end - run.start);
        before = run.end;
    }
    writer.varint(list.patterns.len() as u64);
    let mut before = 0;
    for pattern in &list.patterns {
        let start = pattern.bounds().start;
        writer.varint(start - before);
        write_body(pattern, writer);
        before = start;
    }
}

fn write_body(pattern: &Strided, writer: &mut Writer) {
    writer.varint(pattern.dims().len() as u64);
    for Dim { count, stride } in pattern.dims() {
        writer.varint(count);
        writer.varint(stride);
    }
    writer.varint(pattern.piece_bytes());
}

fn read_list(reader: &mut Reader<'_>) -> Result<List, DecodeError> {
    let runs = read_runs(reader)?;
    let count = reader.count(PATTERN_BYTES_MIN)?;
    let mut patterns: Vec<Strided> = Vec::with_capacity(count);
    let mut before = 0_u64;
    for _ in 0..count {
        let at = reader.offset();
        let bad = |what| DecodeError::BadValue { at, what };
        let start = before
            .checked_add(reader.varint()?)
            .ok_or(bad("a pattern begins past 2^64"))?;
        let pattern = read_body(start, at, reader)?;
        if pattern.dims().len() == 0 {
            return Err(bad("a single range among the patterns"));
        }
        if patterns.last().is_some_and(|last| *last >= pattern) {
            return Err(bad("patterns are out of order"));
        }
        patterns.push(pattern);
        before = start;
    }
    Ok(List { runs, patterns })
}

fn read_runs(reader: &mut Reader<'_>) -> Result<Vec<Run>, DecodeError> {
    let count = reader.count(RUN_BYTES_MIN)?;
    let mut runs: Vec<Run> = Vec::with_capacity(count);
    let mut before = 0_u64;
    for number in 0..count {
        let at = reader.offset();
        let bad = |what| DecodeError::BadValue { at, what };
        let (distance, length) = reader.varint_pair()?;
        if distance == 0 && number > 0 {
            return Err(bad("two ranges touch"));
        }
        if length == 0 {
            return Err(bad("a range is empty"));
        }
        let start = before.checked_add(distance);
        let end = start.and_then(|start| start.checked_add(length));
        let (Some(start), Some(end)) = (start, end) else {
            return Err(bad("a range ends past 2^64"));
        };
        runs.push(Run { start, end });
        before = end;
    }
    Ok(runs)
}

fn read_body(start: u64, at: usize, reader: &mut Reader<'_>) -> Result<Strided, DecodeError> {
    let bad = |what| DecodeError::BadValue { at, what };
    let depth = reader.count(RUN_BYTES_MIN)?;
    if depth > Strided::DEPTH_MAX {
        return Err(bad("a pattern has too many nested vectors"));
    }
    let mut dims = [Dim { count: 0, stride: 0 }; Strided::DEPTH_MAX];
    for dim in &mut dims[..depth] {
        *dim = Dim {
            count: reader.varint()?,
            stride: reader.varint()?,
        };
    }
    let dims = &dims[..depth];
    let len = reader.varint()?;
    let pattern = Strided::new(start, dims, len).map_err(|_| bad("no pattern: empty, too tangled or past 2^64"))?;
    if pattern.piece_bytes() != len || !pattern.dims().eq(dims.iter().copied()) {
        return Err(bad("a pattern in another than its canonical form"));
    }
    Ok(pattern)
}

fn read_blocks(at: usize, reader: &mut Reader<'_>) -> Result<BlockBitmap, DecodeError> {
    let blocks = BlockBitmap::decode(reader)?;
    if blocks.is_empty() {
        return Err(DecodeError::BadValue {
            at,
            what: "a bitmap is empty",
        });
    }
    Ok(blocks)
}
