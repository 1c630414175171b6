//! The last bytes that are consumed, by which a file is known again that was written anew under the same inode number.
//!
//! ```text
//!   [ freed, certainly: zeros | freed, or not yet | not consumed ]
//!                                      [tail]^ consumed
//! ```
//!
//! Each of its sectors is what it was, or zeros if it has been freed: no file system frees less at a time.

use elbow_file::{Handle, RealStorage, Result, Storage};
use elbow_ranges::encoding::{DecodeError, Reader, Writer};

const SECTOR_BYTES: u64 = 512;
/// The sector that the last byte is in, and the one before: the last one may have few bytes.
const BYTES_MAX: usize = 2 * SECTOR_BYTES as usize;

/// What lies before the place where what is consumed ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tail(Vec<u8>);

impl Tail {
    /// Fewer bytes where the file is shorter.
    pub(super) fn before(end: u64, file: &Handle) -> Result<Self> {
        let start = (end.saturating_sub(1) / SECTOR_BYTES).saturating_sub(1) * SECTOR_BYTES;
        let mut bytes = vec![0; (end - start) as usize];
        let got = RealStorage.read(file, &mut bytes, start)?;
        bytes.truncate(got);
        Ok(Self(bytes))
    }

    /// The first byte of a sector that is neither what it was nor freed.
    pub(super) fn first_other(&self, end: u64, file: &Handle) -> Result<Option<u64>> {
        let found = Self::before(end, file)?;
        let start = end - self.0.len() as u64;
        let sectors = self.0.chunks(SECTOR_BYTES as usize);
        let others = found.0.chunks(SECTOR_BYTES as usize).zip(sectors).zip(0..);
        let mut others = others.filter(|((found, was), _)| found != was && found.iter().any(|byte| *byte != 0));
        Ok(others.next().map(|(_, sector)| start + sector * SECTOR_BYTES))
    }

    pub(super) fn encode(&self, to: &mut Writer) {
        to.bytes(&self.0);
    }

    pub(super) fn decode(from: &mut Reader<'_>, end: u64) -> std::result::Result<Self, DecodeError> {
        let at = from.offset();
        let bytes = from.bytes()?;
        match bytes.len() <= BYTES_MAX && bytes.len() as u64 <= end {
            true => Ok(Self(bytes.to_owned())),
            false => Err(DecodeError::BadValue {
                at,
                what: "more bytes than there can be before that place",
            }),
        }
    }
}
