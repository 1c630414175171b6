//! What messages of both directions are made of: types, numbers, names, modes, waits, ranges.

use elbow_ranges::encoding::{DecodeError, Reader, Writer};

use crate::message::{FileName, LockId, LockMode, Owner, Wait};

pub(super) mod kinds {
    //! The first byte of a payload. Those of the service have the highest bit set.
    pub(in crate::wire) const LOCK: u8 = 0x10;
    pub(in crate::wire) const UNLOCK: u8 = 0x11;
    pub(in crate::wire) const CANCEL: u8 = 0x12;
    pub(in crate::wire) const POSIX: u8 = 0x13;
    pub(in crate::wire) const POSIX_RELEASE: u8 = 0x14;
    pub(in crate::wire) const QUERY: u8 = 0x15;
    pub(in crate::wire) const REASSERT: u8 = 0x16;
    pub(in crate::wire) const RENEW: u8 = 0x17;
    pub(in crate::wire) const STATUS: u8 = 0x18;
    pub(in crate::wire) const CLOSE: u8 = 0x19;
    pub(in crate::wire) const LOOK: u8 = 0x1a;
    pub(in crate::wire) const BREAK: u8 = 0x1b;

    pub(in crate::wire) const GRANTED: u8 = 0x90;
    pub(in crate::wire) const REFUSED: u8 = 0x91;
    pub(in crate::wire) const RECALL: u8 = 0x92;
    pub(in crate::wire) const ANSWER: u8 = 0x95;
    pub(in crate::wire) const RENEWED: u8 = 0x97;
    pub(in crate::wire) const STATUS_REPLY: u8 = 0x98;
    pub(in crate::wire) const SEEN: u8 = 0x9a;
    pub(in crate::wire) const BROKEN: u8 = 0x9b;
    pub(in crate::wire) const DENIED: u8 = 0x9c;
    pub(in crate::wire) const LOST: u8 = 0x9f;
}

pub(super) fn put_number(writer: &mut Writer, kind: u8, number: u64) {
    writer.u8(kind);
    writer.varint(number);
}

pub(super) fn put_text(writer: &mut Writer, kind: u8, text: &str) {
    writer.u8(kind);
    writer.bytes(text.as_bytes());
}

pub(super) fn put_head(writer: &mut Writer, kind: u8, id: LockId, owner: Owner, file: &FileName) {
    put_number(writer, kind, id.0);
    writer.varint(owner.0);
    writer.bytes(file.as_bytes());
}

pub(super) fn take_head(reader: &mut Reader<'_>) -> Result<(LockId, Owner, FileName), DecodeError> {
    let (id, owner) = (take_id(reader)?, Owner(reader.varint()?));
    let file = take_file(reader)?;
    Ok((id, owner, file))
}

pub(super) fn take_id(reader: &mut Reader<'_>) -> Result<LockId, DecodeError> {
    reader.varint().map(LockId)
}

pub(super) fn take_file_or_none(reader: &mut Reader<'_>) -> Result<Option<FileName>, DecodeError> {
    let at = reader.offset();
    match reader.bytes()? {
        [] => Ok(None),
        name => file_name(at, name).map(Some),
    }
}

pub(super) fn take_file(reader: &mut Reader<'_>) -> Result<FileName, DecodeError> {
    let at = reader.offset();
    file_name(at, reader.bytes()?)
}

/// Each takes a byte or more, so that no more are believed to come than can.
pub(super) fn take_many<T>(
    reader: &mut Reader<'_>,
    take: impl Fn(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let count = reader.varint()?;
    let mut many = Vec::new();
    for _ in 0..count {
        many.push(take(reader)?);
    }
    Ok(many)
}

pub(super) fn file_name(at: usize, name: &[u8]) -> Result<FileName, DecodeError> {
    FileName::new(name).ok_or(bad(at, "a file's name has 1 to 4096 bytes"))
}

/// In place of a mode: no lock.
pub(super) const NO_MODE: u8 = 2;

pub(super) fn take_mode(reader: &mut Reader<'_>) -> Result<LockMode, DecodeError> {
    let at = reader.offset();
    take_mode_or_none(reader)?.ok_or(bad(at, "a lock is shared (0) or exclusive (1)"))
}

pub(super) fn take_mode_or_none(reader: &mut Reader<'_>) -> Result<Option<LockMode>, DecodeError> {
    let at = reader.offset();
    match reader.u8()? {
        NO_MODE => Ok(None),
        byte => match LockMode::from_byte(byte) {
            None => Err(bad(at, "a lock is shared (0), exclusive (1) or none (2)")),
            mode => Ok(mode),
        },
    }
}

/// 0: try; n + 1: for n milliseconds; 2^32 + 1: for ever.
pub(super) fn put_wait(writer: &mut Writer, wait: Wait) {
    writer.varint(match wait {
        Wait::Try => 0,
        Wait::For(ms) => u64::from(ms) + 1,
        Wait::Forever => WAIT_FOREVER,
    });
}

pub(super) const WAIT_FOREVER: u64 = u32::MAX as u64 + 2;

pub(super) fn take_wait(reader: &mut Reader<'_>) -> Result<Wait, DecodeError> {
    let at = reader.offset();
    match reader.varint()? {
        0 => Ok(Wait::Try),
        WAIT_FOREVER => Ok(Wait::Forever),
        wait => u32::try_from(wait - 1)
            .map(Wait::For)
            .map_err(|_| bad(at, "a wait is longer than 2^32 ms")),
    }
}

pub(super) fn put_range(writer: &mut Writer, start: u64, end: u64) {
    writer.varint(start);
    writer.varint(end.saturating_sub(start)); // An empty range is refused where it is decoded.
}

pub(super) fn take_range(reader: &mut Reader<'_>) -> Result<(u64, u64), DecodeError> {
    let at = reader.offset();
    let (start, length) = (reader.varint()?, reader.varint()?);
    match start.checked_add(length) {
        Some(end) if length > 0 => Ok((start, end)),
        _ => Err(bad(at, "a range is empty or ends past 2^64")),
    }
}

pub(super) fn take_text(reader: &mut Reader<'_>) -> Result<String, DecodeError> {
    let at = reader.offset();
    match std::str::from_utf8(reader.bytes()?) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(bad(at, "a text is not UTF-8")),
    }
}

pub(crate) fn bad(at: usize, what: &'static str) -> DecodeError {
    DecodeError::BadValue { at, what }
}
