//! The bytes of a message: frames, and what is in them.
//!
//! ```text
//!   frame     length of payload (u32 LE, 1 ..= FRAME_BYTES_MAX) | payload
//!   payload   type (u8) | fields
//!   fields    varint, bytes, ranges and footprints as elbow_ranges::encoding has them
//! ```
//!
//! Frames of either direction follow each other without anything in between, and many may be under way. What each
//! type's fields are is written down in `docs/src/reference/lock-protocol.md`, which a test compares with this file.
//!
//! Invariants: decoding never panics, never allocates more than the frame could hold, and takes exactly one form of
//! each message. Encoding and decoding are each other's inverse.
//!
//! Not here: sockets, and what a message means (`message`). The hello is in `hello`.

use elbow_ranges::Footprint;
use elbow_ranges::encoding::{DecodeError, Reader, Writer};

use crate::message::{
    Blocker, FileName, LockId, LockMode, LockRequest, Owner, PosixRequest, QueryRequest, ReassertRequest, Refusal,
    Reply, Request, Seen, SeenLock, SessionId, Token, Wait,
};

/// Longest payload of a frame, in bytes: a list of four million ranges without any pattern in it. What a service takes may be less
/// ([`Limits::request_bytes`](crate::Limits)).
pub const FRAME_BYTES_MAX: usize = 16 << 20;
/// Bytes of a frame before its payload.
pub const LENGTH_BYTES: usize = 4;

mod kinds {
    //! The first byte of a payload. Those of the service have the highest bit set.
    pub(super) const LOCK: u8 = 0x10;
    pub(super) const UNLOCK: u8 = 0x11;
    pub(super) const CANCEL: u8 = 0x12;
    pub(super) const POSIX: u8 = 0x13;
    pub(super) const POSIX_RELEASE: u8 = 0x14;
    pub(super) const QUERY: u8 = 0x15;
    pub(super) const REASSERT: u8 = 0x16;
    pub(super) const RENEW: u8 = 0x17;
    pub(super) const STATUS: u8 = 0x18;
    pub(super) const CLOSE: u8 = 0x19;
    pub(super) const LOOK: u8 = 0x1a;
    pub(super) const BREAK: u8 = 0x1b;

    pub(super) const GRANTED: u8 = 0x90;
    pub(super) const REFUSED: u8 = 0x91;
    pub(super) const RECALL: u8 = 0x92;
    pub(super) const ANSWER: u8 = 0x95;
    pub(super) const RENEWED: u8 = 0x97;
    pub(super) const STATUS_REPLY: u8 = 0x98;
    pub(super) const SEEN: u8 = 0x9a;
    pub(super) const BROKEN: u8 = 0x9b;
    pub(super) const DENIED: u8 = 0x9c;
    pub(super) const LOST: u8 = 0x9f;
}

/// The length of the frame that `bytes` begin with, including its own four bytes; `None` while it is not all there.
///
/// # Errors
/// When the length is none that a peer may send.
///
/// ```
/// use elbow_lock::{Request, wire};
///
/// let mut bytes = Vec::new();
/// wire::append_request(&mut bytes, &Request::Close);
/// let length = bytes.len();
/// assert_eq!(wire::frame_length(&bytes[..length - 1]).unwrap(), None);
/// bytes.push(0); // The next one begins.
/// assert_eq!(wire::frame_length(&bytes).unwrap(), Some(length));
/// assert_eq!(wire::decode_request(&bytes[wire::LENGTH_BYTES..length]), Ok(Request::Close));
/// ```
pub fn frame_length(bytes: &[u8]) -> Result<Option<usize>, DecodeError> {
    let length = announced(bytes)?;
    Ok(length
        .map(|length| LENGTH_BYTES + length)
        .filter(|&length| bytes.len() >= length))
}

/// The length of the payload that `bytes` begin to tell of; `None` while not even that is there.
///
/// # Errors
/// When the length is none that a peer may send.
pub(crate) fn announced(bytes: &[u8]) -> Result<Option<usize>, DecodeError> {
    let Some(length) = bytes.first_chunk::<LENGTH_BYTES>() else {
        return Ok(None);
    };
    match u32::from_le_bytes(*length) as usize {
        0 => Err(bad(0, "a frame is empty")),
        length if length > FRAME_BYTES_MAX => Err(bad(0, "a frame is longer than 16 MiB")),
        length => Ok(Some(length)),
    }
}

/// Bytes that the type and the name of a request take at most.
#[cfg(feature = "server")]
const NAME_BYTES_MAX: usize = 11;

/// The lock that a frame asks for which begins with `bytes`; `None` while too few of them are there.
///
/// # Errors
/// When it asks for none: no other request is long.
#[cfg(feature = "server")]
pub(crate) fn asked_for(bytes: &[u8]) -> Result<Option<LockId>, DecodeError> {
    let Some(payload) = bytes.get(LENGTH_BYTES..LENGTH_BYTES + NAME_BYTES_MAX) else {
        return Ok(None);
    };
    let mut reader = Reader::new(payload);
    match reader.u8()? {
        kinds::LOCK | kinds::REASSERT => Ok(Some(take_id(&mut reader)?)),
        _ => Err(bad(0, "a request of this type is not so long")),
    }
}

/// Appends a frame to `out` whose payload `write` writes.
pub(crate) fn append_frame(out: &mut Vec<u8>, write: impl FnOnce(&mut Writer)) {
    let begin = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    let mut writer = Writer::after(std::mem::take(out));
    write(&mut writer);
    *out = writer.finish();
    let length = out.len() - begin - LENGTH_BYTES;
    out[begin..][..LENGTH_BYTES].copy_from_slice(&(length as u32).to_le_bytes());
}

/// Appends a request as a frame to `out`. A footprint too large for a frame is the caller's to find before
/// ([`Footprint`]s of a client's lock are checked when it is asked for).
pub fn append_request(out: &mut Vec<u8>, request: &Request) {
    append_frame(out, |writer| put_request(writer, request));
}

/// Appends a reply as a frame to `out`.
pub fn append_reply(out: &mut Vec<u8>, reply: &Reply) {
    append_frame(out, |writer| put_reply(writer, reply));
}

/// Decodes the payload of a request's frame.
///
/// # Errors
/// When it is no request, with the offset at which it ceased to be one.
pub fn decode_request(payload: &[u8]) -> Result<Request, DecodeError> {
    let mut reader = Reader::new(payload);
    let request = take_request(&mut reader)?;
    reader.finish()?;
    Ok(request)
}

/// Decodes the payload of a reply's frame.
///
/// # Errors
/// When it is no reply, with the offset at which it ceased to be one.
pub fn decode_reply(payload: &[u8]) -> Result<Reply, DecodeError> {
    let mut reader = Reader::new(payload);
    let reply = take_reply(&mut reader)?;
    reader.finish()?;
    Ok(reply)
}

fn put_request(writer: &mut Writer, request: &Request) {
    match request {
        Request::Lock(lock) => lock.encode(writer),
        Request::Unlock { id } => put_number(writer, kinds::UNLOCK, id.0),
        Request::Cancel { id } => put_number(writer, kinds::CANCEL, id.0),
        Request::Posix(lock) => lock.encode(writer),
        Request::PosixRelease { owner, file } => {
            put_number(writer, kinds::POSIX_RELEASE, owner.0);
            writer.bytes(file.as_ref().map_or(&[], FileName::as_bytes));
        }
        Request::Query(query) => query.encode(writer),
        Request::Reassert(lock) => lock.encode(writer),
        Request::Renew { seq } => put_number(writer, kinds::RENEW, *seq),
        Request::Status { seq } => put_number(writer, kinds::STATUS, *seq),
        Request::Look { seq, file } => {
            put_number(writer, kinds::LOOK, *seq);
            writer.bytes(file.as_bytes());
        }
        Request::Break {
            seq,
            file,
            session,
            force,
        } => {
            put_number(writer, kinds::BREAK, *seq);
            writer.bytes(file.as_bytes());
            writer.varint(session.map_or(0, |session| session.0)); // No session has this number.
            writer.bool(*force);
        }
        Request::Close => writer.u8(kinds::CLOSE),
    }
}

fn take_request(reader: &mut Reader<'_>) -> Result<Request, DecodeError> {
    let at = reader.offset();
    Ok(match reader.u8()? {
        kinds::LOCK => Request::Lock(LockRequest::decode(reader)?),
        kinds::UNLOCK => Request::Unlock { id: take_id(reader)? },
        kinds::CANCEL => Request::Cancel { id: take_id(reader)? },
        kinds::POSIX => Request::Posix(PosixRequest::decode(reader)?),
        kinds::POSIX_RELEASE => Request::PosixRelease {
            owner: Owner(reader.varint()?),
            file: take_file_or_none(reader)?,
        },
        kinds::QUERY => Request::Query(QueryRequest::decode(reader)?),
        kinds::REASSERT => Request::Reassert(ReassertRequest::decode(reader)?),
        kinds::RENEW => Request::Renew { seq: reader.varint()? },
        kinds::STATUS => Request::Status { seq: reader.varint()? },
        kinds::LOOK => Request::Look {
            seq: reader.varint()?,
            file: take_file(reader)?,
        },
        kinds::BREAK => Request::Break {
            seq: reader.varint()?,
            file: take_file(reader)?,
            session: Some(SessionId(reader.varint()?)).filter(|session| session.0 > 0),
            force: reader.bool()?,
        },
        kinds::CLOSE => Request::Close,
        _ => return Err(bad(at, "a request of an unknown type")),
    })
}

impl LockRequest {
    fn encode(&self, writer: &mut Writer) {
        put_head(writer, kinds::LOCK, self.id, self.owner, &self.file);
        writer.u8(self.mode.to_byte());
        put_wait(writer, self.wait);
        writer.bool(self.recall);
        self.footprint.encode(writer);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (id, owner, file) = take_head(reader)?;
        Ok(Self {
            id,
            owner,
            file,
            mode: take_mode(reader)?,
            wait: take_wait(reader)?,
            recall: reader.bool()?,
            footprint: Footprint::decode(reader)?,
        })
    }
}

impl PosixRequest {
    fn encode(&self, writer: &mut Writer) {
        put_head(writer, kinds::POSIX, self.id, self.owner, &self.file);
        writer.u8(self.mode.map_or(NO_MODE, LockMode::to_byte));
        put_wait(writer, self.wait);
        put_range(writer, self.start, self.end);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (id, owner, file) = take_head(reader)?;
        let (mode, wait) = (take_mode_or_none(reader)?, take_wait(reader)?);
        let (start, end) = take_range(reader)?;
        Ok(Self {
            id,
            owner,
            file,
            start,
            end,
            mode,
            wait,
        })
    }
}

impl QueryRequest {
    fn encode(&self, writer: &mut Writer) {
        put_head(writer, kinds::QUERY, self.id, self.owner, &self.file);
        writer.u8(self.mode.to_byte());
        put_range(writer, self.start, self.end);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (id, owner, file) = take_head(reader)?;
        let mode = take_mode(reader)?;
        let (start, end) = take_range(reader)?;
        Ok(Self {
            id,
            owner,
            file,
            mode,
            start,
            end,
        })
    }
}

impl ReassertRequest {
    fn encode(&self, writer: &mut Writer) {
        put_head(writer, kinds::REASSERT, self.id, self.owner, &self.file);
        writer.u8(self.mode.to_byte());
        writer.varint(self.token.0);
        writer.bool(self.recall);
        self.footprint.encode(writer);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (id, owner, file) = take_head(reader)?;
        Ok(Self {
            id,
            owner,
            file,
            mode: take_mode(reader)?,
            token: Token(reader.varint()?),
            recall: reader.bool()?,
            footprint: Footprint::decode(reader)?,
        })
    }
}

fn put_reply(writer: &mut Writer, reply: &Reply) {
    match reply {
        Reply::Granted { id, token } => {
            put_number(writer, kinds::GRANTED, id.0);
            writer.varint(token.0);
        }
        Reply::Refused { id, why } => {
            put_number(writer, kinds::REFUSED, id.0);
            put_refusal(writer, why);
        }
        Reply::Recall { id } => put_number(writer, kinds::RECALL, id.0),
        Reply::Answer { id, blocker } => {
            put_number(writer, kinds::ANSWER, id.0);
            writer.bool(blocker.is_some());
            if let Some(blocker) = blocker {
                writer.u8(blocker.mode.to_byte());
                put_range(writer, blocker.start, blocker.end);
                writer.varint(blocker.session.0);
                writer.varint(blocker.owner.0);
            }
        }
        Reply::Renewed { seq } => put_number(writer, kinds::RENEWED, *seq),
        Reply::Status { seq, json } => {
            put_number(writer, kinds::STATUS_REPLY, *seq);
            writer.bytes(json.as_bytes());
        }
        Reply::Seen { seq, seen } => {
            put_number(writer, kinds::SEEN, *seq);
            put_seen(writer, seen);
        }
        Reply::Broken { seq, sessions } => {
            put_number(writer, kinds::BROKEN, *seq);
            writer.varint(sessions.len() as u64);
            sessions.iter().for_each(|session| writer.varint(session.0));
        }
        Reply::Denied { seq, why } => {
            put_number(writer, kinds::DENIED, *seq);
            writer.bytes(why.as_bytes());
        }
        Reply::Lost { why } => {
            writer.u8(kinds::LOST);
            writer.bytes(why.as_bytes());
        }
    }
}

fn take_reply(reader: &mut Reader<'_>) -> Result<Reply, DecodeError> {
    let at = reader.offset();
    Ok(match reader.u8()? {
        kinds::GRANTED => Reply::Granted {
            id: take_id(reader)?,
            token: Token(reader.varint()?),
        },
        kinds::REFUSED => Reply::Refused {
            id: take_id(reader)?,
            why: take_refusal(reader)?,
        },
        kinds::RECALL => Reply::Recall { id: take_id(reader)? },
        kinds::ANSWER => {
            let id = take_id(reader)?;
            let blocker = if reader.bool()? {
                Some(take_blocker(reader)?)
            } else {
                None
            };
            Reply::Answer { id, blocker }
        }
        kinds::RENEWED => Reply::Renewed { seq: reader.varint()? },
        kinds::STATUS_REPLY => Reply::Status {
            seq: reader.varint()?,
            json: take_text(reader)?,
        },
        kinds::SEEN => Reply::Seen {
            seq: reader.varint()?,
            seen: take_seen(reader)?,
        },
        kinds::BROKEN => Reply::Broken {
            seq: reader.varint()?,
            sessions: take_many(reader, |reader| reader.varint().map(SessionId))?,
        },
        kinds::DENIED => Reply::Denied {
            seq: reader.varint()?,
            why: take_text(reader)?,
        },
        kinds::LOST => Reply::Lost {
            why: take_text(reader)?,
        },
        _ => return Err(bad(at, "a reply of an unknown type")),
    })
}

fn put_refusal(writer: &mut Writer, why: &Refusal) {
    match why {
        Refusal::WouldBlock => writer.u8(0),
        Refusal::TimedOut => writer.u8(1),
        Refusal::Cancelled => writer.u8(2),
        Refusal::Deadlock { cycle } => put_text(writer, 3, cycle),
        Refusal::Full { limit } => put_text(writer, 4, limit),
        Refusal::Duplicate => writer.u8(5),
        Refusal::NotReasserted => writer.u8(6),
        Refusal::Grace { wait_ms } => put_number(writer, 7, u64::from(*wait_ms)),
        Refusal::Draining => writer.u8(8),
        Refusal::Bad { what } => put_text(writer, 9, what),
    }
}

fn take_refusal(reader: &mut Reader<'_>) -> Result<Refusal, DecodeError> {
    let at = reader.offset();
    Ok(match reader.u8()? {
        0 => Refusal::WouldBlock,
        1 => Refusal::TimedOut,
        2 => Refusal::Cancelled,
        3 => Refusal::Deadlock {
            cycle: take_text(reader)?,
        },
        4 => Refusal::Full {
            limit: take_text(reader)?,
        },
        5 => Refusal::Duplicate,
        6 => Refusal::NotReasserted,
        7 => Refusal::Grace { wait_ms: reader.u32()? },
        8 => Refusal::Draining,
        9 => Refusal::Bad {
            what: take_text(reader)?,
        },
        _ => return Err(bad(at, "a refusal of an unknown kind")),
    })
}

fn put_number(writer: &mut Writer, kind: u8, number: u64) {
    writer.u8(kind);
    writer.varint(number);
}

fn put_text(writer: &mut Writer, kind: u8, text: &str) {
    writer.u8(kind);
    writer.bytes(text.as_bytes());
}

fn put_head(writer: &mut Writer, kind: u8, id: LockId, owner: Owner, file: &FileName) {
    put_number(writer, kind, id.0);
    writer.varint(owner.0);
    writer.bytes(file.as_bytes());
}

fn take_head(reader: &mut Reader<'_>) -> Result<(LockId, Owner, FileName), DecodeError> {
    let (id, owner) = (take_id(reader)?, Owner(reader.varint()?));
    let file = take_file(reader)?;
    Ok((id, owner, file))
}

fn take_id(reader: &mut Reader<'_>) -> Result<LockId, DecodeError> {
    reader.varint().map(LockId)
}

fn take_file_or_none(reader: &mut Reader<'_>) -> Result<Option<FileName>, DecodeError> {
    let at = reader.offset();
    match reader.bytes()? {
        [] => Ok(None),
        name => file_name(at, name).map(Some),
    }
}

fn take_file(reader: &mut Reader<'_>) -> Result<FileName, DecodeError> {
    let at = reader.offset();
    file_name(at, reader.bytes()?)
}

/// Each takes a byte or more, so that no more are believed to come than can.
fn take_many<T>(
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

fn put_seen(writer: &mut Writer, seen: &Seen) {
    writer.varint(seen.holds);
    writer.varint(seen.queued);
    writer.varint(seen.locks.len() as u64);
    for lock in &seen.locks {
        writer.varint(lock.session.0);
        writer.varint(lock.owner.0);
        writer.bytes(lock.client.as_bytes());
        writer.u8(lock.mode.to_byte());
        writer.bool(lock.is_posix);
        writer.bool(lock.is_ending);
        writer.bool(lock.token.is_some());
        if let Some(token) = lock.token {
            writer.varint(token.0);
        }
        writer.varint(lock.age_ms);
        put_range(writer, lock.start, lock.end);
        writer.bytes(lock.pattern.as_bytes());
        writer.varint(lock.elsewhere);
    }
}

fn take_seen(reader: &mut Reader<'_>) -> Result<Seen, DecodeError> {
    Ok(Seen {
        holds: reader.varint()?,
        queued: reader.varint()?,
        locks: take_many(reader, take_seen_lock)?,
    })
}

fn take_seen_lock(reader: &mut Reader<'_>) -> Result<SeenLock, DecodeError> {
    let (session, owner, client) = (SessionId(reader.varint()?), Owner(reader.varint()?), take_text(reader)?);
    let (mode, is_posix, is_ending) = (take_mode(reader)?, reader.bool()?, reader.bool()?);
    let token = match reader.bool()? {
        true => Some(Token(reader.varint()?)),
        false => None,
    };
    let age_ms = reader.varint()?;
    let (start, end) = take_range(reader)?;
    Ok(SeenLock {
        session,
        owner,
        client,
        mode,
        is_posix,
        is_ending,
        token,
        age_ms,
        start,
        end,
        pattern: take_text(reader)?,
        elsewhere: reader.varint()?,
    })
}

fn file_name(at: usize, name: &[u8]) -> Result<FileName, DecodeError> {
    FileName::new(name).ok_or(bad(at, "a file's name has 1 to 4096 bytes"))
}

/// In place of a mode: no lock.
const NO_MODE: u8 = 2;

fn take_mode(reader: &mut Reader<'_>) -> Result<LockMode, DecodeError> {
    let at = reader.offset();
    take_mode_or_none(reader)?.ok_or(bad(at, "a lock is shared (0) or exclusive (1)"))
}

fn take_mode_or_none(reader: &mut Reader<'_>) -> Result<Option<LockMode>, DecodeError> {
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
fn put_wait(writer: &mut Writer, wait: Wait) {
    writer.varint(match wait {
        Wait::Try => 0,
        Wait::For(ms) => u64::from(ms) + 1,
        Wait::Forever => WAIT_FOREVER,
    });
}

const WAIT_FOREVER: u64 = u32::MAX as u64 + 2;

fn take_wait(reader: &mut Reader<'_>) -> Result<Wait, DecodeError> {
    let at = reader.offset();
    match reader.varint()? {
        0 => Ok(Wait::Try),
        WAIT_FOREVER => Ok(Wait::Forever),
        wait => u32::try_from(wait - 1)
            .map(Wait::For)
            .map_err(|_| bad(at, "a wait is longer than 2^32 ms")),
    }
}

fn put_range(writer: &mut Writer, start: u64, end: u64) {
    writer.varint(start);
    writer.varint(end.saturating_sub(start)); // An empty range is refused where it is decoded.
}

fn take_range(reader: &mut Reader<'_>) -> Result<(u64, u64), DecodeError> {
    let at = reader.offset();
    let (start, length) = (reader.varint()?, reader.varint()?);
    match start.checked_add(length) {
        Some(end) if length > 0 => Ok((start, end)),
        _ => Err(bad(at, "a range is empty or ends past 2^64")),
    }
}

fn take_blocker(reader: &mut Reader<'_>) -> Result<Blocker, DecodeError> {
    let mode = take_mode(reader)?;
    let (start, end) = take_range(reader)?;
    let (session, owner) = (SessionId(reader.varint()?), Owner(reader.varint()?));
    Ok(Blocker {
        mode,
        start,
        end,
        session,
        owner,
    })
}

fn take_text(reader: &mut Reader<'_>) -> Result<String, DecodeError> {
    let at = reader.offset();
    match std::str::from_utf8(reader.bytes()?) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(bad(at, "a text is not UTF-8")),
    }
}

pub(crate) fn bad(at: usize, what: &'static str) -> DecodeError {
    DecodeError::BadValue { at, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(footprint: Footprint) -> Request {
        Request::Lock(LockRequest {
            id: LockId(1),
            owner: Owner(2),
            file: FileName::new(b"f").unwrap(),
            mode: LockMode::Exclusive,
            footprint,
            wait: Wait::For(500),
            recall: false,
        })
    }

    fn requests() -> Vec<Request> {
        let (id, owner, file) = (LockId(1 << 40), Owner(u64::MAX), FileName::new(&[0xff; 300]).unwrap());
        let strided = Footprint::from_list((0..2_500).map(|i| (i * 400, 100))).unwrap();
        vec![
            lock(Footprint::whole()),
            lock(strided.clone()),
            Request::Unlock { id },
            Request::Cancel { id },
            Request::Posix(PosixRequest {
                id,
                owner,
                file: file.clone(),
                start: 0,
                end: u64::MAX,
                mode: None,
                wait: Wait::Forever,
            }),
            Request::Posix(PosixRequest {
                id,
                owner,
                file: file.clone(),
                start: 5,
                end: 6,
                mode: Some(LockMode::Shared),
                wait: Wait::Try,
            }),
            Request::PosixRelease { owner, file: None },
            Request::PosixRelease {
                owner,
                file: Some(file.clone()),
            },
            Request::Query(QueryRequest {
                id,
                owner,
                file: file.clone(),
                mode: LockMode::Exclusive,
                start: 7,
                end: 9,
            }),
            Request::Reassert(ReassertRequest {
                id,
                owner,
                file,
                mode: LockMode::Shared,
                footprint: strided,
                token: Token(9),
                recall: true,
            }),
            Request::Renew { seq: 0 },
            Request::Status { seq: 9 },
            Request::Look {
                seq: 10,
                file: FileName::new(b"dataset/7").unwrap(),
            },
            breaking(None),
            breaking(Some(SessionId(300))),
            Request::Close,
        ]
    }

    fn breaking(session: Option<SessionId>) -> Request {
        Request::Break {
            seq: 300,
            file: FileName::new(b"f").unwrap(),
            session,
            force: session.is_some(),
        }
    }

    fn seen() -> Seen {
        let held = SeenLock {
            session: SessionId(4),
            owner: Owner(5),
            client: "process 12 (uid 0 pid 12)".to_owned(),
            mode: LockMode::Exclusive,
            is_posix: false,
            is_ending: true,
            token: Some(Token::first_of(3)),
            age_ms: 1_000,
            start: 7,
            end: u64::MAX,
            pattern: "7 + 2 x 9 + [0, 3)".to_owned(),
            elsewhere: 2,
        };
        let waits = SeenLock {
            token: None,
            is_posix: true,
            ..held.clone()
        };
        Seen {
            holds: 1,
            queued: 200,
            locks: vec![held, waits],
        }
    }

    fn replies() -> Vec<Reply> {
        let id = LockId(300);
        let text = || "why".to_owned();
        let refusals = [
            Refusal::WouldBlock,
            Refusal::TimedOut,
            Refusal::Cancelled,
            Refusal::Deadlock { cycle: text() },
            Refusal::Full { limit: text() },
            Refusal::Duplicate,
            Refusal::NotReasserted,
            Refusal::Grace { wait_ms: 7 },
            Refusal::Draining,
            Refusal::Bad { what: text() },
        ];
        let blocker = Blocker {
            mode: LockMode::Shared,
            start: 1,
            end: 3,
            session: SessionId(4),
            owner: Owner(5),
        };
        let mut replies: Vec<_> = refusals.into_iter().map(|why| Reply::Refused { id, why }).collect();
        replies.extend([
            Reply::Granted {
                id,
                token: Token::first_of(3),
            },
            Reply::Recall { id },
            Reply::Answer { id, blocker: None },
            Reply::Answer {
                id,
                blocker: Some(blocker),
            },
            Reply::Renewed { seq: 1 },
            Reply::Status {
                seq: 1,
                json: "{}".to_owned(),
            },
            Reply::Seen { seq: 3, seen: seen() },
            Reply::Broken {
                seq: 4,
                sessions: vec![SessionId(1), SessionId(300)],
            },
            Reply::Denied { seq: 5, why: text() },
            Reply::Lost { why: text() },
        ]);
        replies
    }

    #[test]
    fn every_message_survives_the_wire_and_none_survives_a_cut() {
        for request in requests() {
            let mut frame = Vec::new();
            append_request(&mut frame, &request);
            assert_eq!(frame_length(&frame), Ok(Some(frame.len())));
            assert_eq!(decode_request(&frame[4..]).unwrap(), request);
            for cut in 4..frame.len() {
                assert!(
                    decode_request(&frame[4..cut]).is_err(),
                    "cut at {cut} of {}",
                    frame.len()
                );
            }
        }
        for reply in replies() {
            let mut frame = Vec::new();
            append_reply(&mut frame, &reply);
            assert_eq!(decode_reply(&frame[4..]).unwrap(), reply);
            for cut in 4..frame.len() {
                assert!(decode_reply(&frame[4..cut]).is_err(), "{reply:?} cut at {cut}");
            }
        }
    }

    /// A service and its clients may be of different versions: what is written down once stays.
    #[test]
    fn the_bytes_of_each_message_are_what_they_always_were() {
        let requests = requests().into_iter().map(|request| {
            let mut frame = Vec::new();
            append_request(&mut frame, &request);
            frame
        });
        let replies = replies().into_iter().map(|reply| {
            let mut frame = Vec::new();
            append_reply(&mut frame, &reply);
            frame
        });
        let line = |frame: Vec<u8>| frame.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n";
        let written: String = requests.chain(replies).map(line).collect();
        assert_eq!(written, include_str!("wire/frames.txt"));
    }

    #[test]
    fn a_lock_of_2500_segments_takes_few_bytes() {
        let mut frame = Vec::new();
        append_request(
            &mut frame,
            &lock(Footprint::from_list((0..2_500).map(|i| (i * 400, 100))).unwrap()),
        );
        assert!(frame.len() < 32, "{} bytes", frame.len());
    }

    #[test]
    fn a_frame_of_no_or_too_much_length_is_an_error_before_its_payload_comes() {
        assert!(frame_length(&[0, 0, 0, 0]).is_err());
        assert!(frame_length(&[1, 0, 0, 1]).is_err()); // 2^24 + 1
        assert_eq!(frame_length(&[0, 0, 0, 1]), Ok(None));
        assert_eq!(frame_length(&[1, 0]), Ok(None));
    }

    /// The examples of the reference are the bytes that we write.
    #[test]
    fn the_reference_shows_real_bytes() {
        let page = include_str!("../../../docs/src/reference/lock-protocol.md");
        let examples = page
            .split("```examples\n")
            .nth(1)
            .and_then(|rest| rest.split("```").next())
            .unwrap();
        let shown: Vec<Vec<u8>> = examples.lines().map(|line| hexadecimal(&line[41..])).collect();
        let file = FileName::new(b"f").unwrap();
        let posix = Request::Posix(PosixRequest {
            id: LockId(9),
            owner: Owner(7),
            file,
            start: 10,
            end: 14,
            mode: None,
            wait: Wait::Try,
        });
        let requests = [
            Request::Unlock { id: LockId(300) },
            Request::Renew { seq: 5 },
            lock(Footprint::whole()),
            posix,
            breaking(None),
        ];
        let why = Refusal::Deadlock { cycle: "a".to_owned() };
        let replies = [
            Reply::Granted {
                id: LockId(1),
                token: Token::first_of(1),
            },
            Reply::Refused { id: LockId(1), why },
            Reply::Lost { why: "bye".to_owned() },
        ];
        let mut written = Vec::new();
        for request in &requests {
            let mut frame = Vec::new();
            append_request(&mut frame, request);
            written.push(frame.split_off(LENGTH_BYTES));
        }
        for reply in &replies {
            let mut frame = Vec::new();
            append_reply(&mut frame, reply);
            written.push(frame.split_off(LENGTH_BYTES));
        }
        assert_eq!(shown, written);
    }

    fn hexadecimal(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    }
}
