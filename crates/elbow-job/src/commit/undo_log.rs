//! What of the old content of a file a patch has overwritten, and how far the patch is.
//!
//! A sequence of entries, each a length (u32, little-endian) and a sealed body; a torn end was never acted on.

use std::io::IoSlice;
use std::ops::{Range, RangeInclusive};

use elbow_file::{Errno, Handle, Storage};
use elbow_ranges::encoding::{DecodeError, Reader, Writer, open_sealed, seal};

/// What is read or written of contents in one request. No entry has more data.
pub(super) const COPY_BYTES: usize = 1 << 20;

const LOG_MAGIC: [u8; 8] = *b"ELBOWUND";
/// The first says nothing of what has arrived.
const LOG_VERSIONS: RangeInclusive<u16> = 1..=2;

/// What an undo log says of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// It had these bytes at this offset.
    Data(u64, Vec<u8>),
    /// It had a hole here.
    Hole(Range<u64>),
    /// It had a hole here, and what is not written to is reserved.
    Reserved(Range<u64>),
    /// All before this offset that is overwritten is in the entries above.
    Saved(u64),
    /// All before this offset is durable in the file, and may be gone from the patch.
    Arrived(u64),
}

impl Entry {
    fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new();
        match self {
            Self::Data(at, bytes) => {
                out.u8(0);
                out.varint(*at);
                out.bytes(bytes);
            }
            Self::Hole(range) | Self::Reserved(range) => {
                out.u8(if matches!(self, Self::Hole(_)) { 1 } else { 3 });
                out.varint(range.start);
                out.varint(range.end - range.start);
            }
            Self::Saved(end) => {
                out.u8(2);
                out.varint(*end);
            }
            Self::Arrived(end) => {
                out.u8(4);
                out.varint(*end);
            }
        }
        let sealed = seal(LOG_MAGIC, *LOG_VERSIONS.end(), &out.finish());
        let mut entry = (sealed.len() as u32).to_le_bytes().to_vec();
        entry.extend_from_slice(&sealed);
        entry
    }

    /// The one that a part of a log begins with, its version, and its length there; none if it is not whole.
    fn first_of(log: &[u8]) -> Option<(Self, u16, usize)> {
        let (length, rest) = log.split_first_chunk::<4>()?;
        let sealed = rest.get(..u32::from_le_bytes(*length) as usize)?;
        let (entry, version) = Self::decode(sealed).ok()?;
        Some((entry, version, length.len() + sealed.len()))
    }

    /// With its version.
    fn decode(sealed: &[u8]) -> Result<(Self, u16), DecodeError> {
        let (version, body) = open_sealed(LOG_MAGIC, LOG_VERSIONS, sealed)?;
        let mut from = Reader::new(body);
        let at = from.offset();
        let entry = match from.u8()? {
            0 => Self::Data(from.varint()?, from.bytes()?.to_vec()),
            kind @ (1 | 3) => {
                let (start, length) = (from.varint()?, from.varint()?);
                let range = start..start.saturating_add(length);
                if kind == 1 {
                    Self::Hole(range)
                } else {
                    Self::Reserved(range)
                }
            }
            2 => Self::Saved(from.varint()?),
            4 => Self::Arrived(from.varint()?),
            _ => {
                return Err(DecodeError::BadValue {
                    at,
                    what: "an unknown entry of an undo log",
                });
            }
        };
        from.finish()?;
        Ok((entry, version))
    }
}

/// The undo log of one file.
pub(super) struct Log {
    pub(super) file: Handle,
    pub(super) begin: u64,
    /// After the last whole entry.
    end: u64,
    /// All before this offset that is overwritten has been saved.
    pub(super) saved: u64,
    /// All before this offset has arrived.
    pub(super) arrived: u64,
    /// It says nothing of that, and a hole in the patch means that its content has arrived.
    pub(super) is_silent: bool,
}

impl Log {
    pub(super) fn empty(file: &Handle, begin: u64) -> Self {
        Self {
            file: file.clone(),
            begin,
            end: begin,
            saved: 0,
            arrived: 0,
            is_silent: false,
        }
    }

    /// What a file has of it from an offset on.
    pub(super) fn read(storage: &dyn Storage, file: &Handle, begin: u64) -> Result<Self, Errno> {
        let mut log = Self::empty(file, begin);
        each_entry(storage, file, begin, |entry, version, after| {
            log.end = after;
            log.is_silent |= version == *LOG_VERSIONS.start();
            match entry {
                Entry::Saved(end) => log.saved = end,
                Entry::Arrived(end) => log.arrived = end,
                _ => {}
            }
            Ok(())
        })?;
        Ok(log)
    }

    pub(super) fn has_begun(&self) -> bool {
        self.end > self.begin
    }

    pub(super) fn append(&mut self, storage: &dyn Storage, entries: &[Entry]) -> Result<(), Errno> {
        let bytes: Vec<u8> = entries.iter().flat_map(Entry::encode).collect();
        for part in bytes.chunks(COPY_BYTES) {
            storage.write(&self.file, &[IoSlice::new(part)], self.end)?;
            self.end += part.len() as u64;
        }
        Ok(())
    }
}

/// All whole entries of an undo log, with the version of each and the offset after it.
pub(super) fn each_entry(
    storage: &dyn Storage,
    log: &Handle,
    begin: u64,
    mut use_it: impl FnMut(Entry, u16, u64) -> Result<(), Errno>,
) -> Result<(), Errno> {
    const FIRST_BYTES: usize = 16 << 10;
    /// More than an entry has.
    const MOST_BYTES: usize = 2 * COPY_BYTES;
    let mut buffer = vec![0; FIRST_BYTES];
    let mut at = begin;
    loop {
        let read = storage.read(log, &mut buffer, at)?;
        let (mut rest, begin) = (&buffer[..read], at);
        while let Some((entry, version, bytes)) = Entry::first_of(rest) {
            rest = &rest[bytes..];
            at += bytes as u64;
            use_it(entry, version, at)?;
        }
        match (read == buffer.len(), buffer.len() < MOST_BYTES) {
            (true, true) => buffer.resize(MOST_BYTES, 0),
            _ if at == begin => return Ok(()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_an_undo_log_are_read_as_they_were_written_and_a_damaged_one_is_none() {
        for entry in [
            Entry::Data(1 << 40, b"old".to_vec()),
            Entry::Hole(7..9),
            Entry::Reserved(7..9),
            Entry::Saved(u64::MAX),
            Entry::Arrived(7),
        ] {
            let mut bytes = entry.encode();
            assert_eq!(Entry::decode(&bytes[4..]).expect("it is whole"), (entry, 2));
            *bytes.last_mut().expect("some") ^= 1;
            assert!(Entry::decode(&bytes[4..]).is_err());
        }
    }
}
