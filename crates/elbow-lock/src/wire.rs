//! The bytes of a message: frames, and what is in them.
//!
//! ```text
//!   frame     length of payload (u32 LE, 1 ..= FRAME_BYTES_MAX) | payload
//!   payload   type (u8) | fields
//!   fields    varint, bytes, ranges and footprints as elbow_ranges::encoding has them
//! ```
//!
//! Frames of either direction follow each other without anything in between, and many may be under way. What each
//! type's fields are (`fields`, `requests`, `replies`) is written down in `docs/src/reference/lock-protocol.md`, which a test compares with them.
//!
//! Invariants: decoding never panics, never allocates more than the frame could hold, and takes exactly one form of
//! each message. Encoding and decoding are each other's inverse.
//!
//! Not here: sockets, and what a message means (`message`). The hello is in `hello`.

mod fields;
mod replies;
mod requests;

use elbow_ranges::encoding::{DecodeError, Reader, Writer};

pub(crate) use self::fields::bad;
#[cfg(feature = "server")]
use self::fields::{kinds, take_id};
use self::replies::{put_reply, take_reply};
use self::requests::{put_request, take_request};
#[cfg(feature = "server")]
use crate::message::LockId;
use crate::message::{Reply, Request};

/// Longest payload of a frame, in bytes: a list of four million ranges without any pattern in it. What a service takes may be less
/// ([`Limits::request_bytes`](crate::Limits)).
pub const FRAME_BYTES_MAX: usize = 16 << 20;
/// Bytes of a frame before its payload.
pub const LENGTH_BYTES: usize = 4;

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
/// (the ranges of a client's lock are checked when it is asked for).
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

#[cfg(test)]
mod tests {
    use elbow_ranges::Footprint;

    use super::*;
    use crate::message::{
        Blocker, FileLocks, FileName, LockId, LockInfo, LockMode, LockRequest, Owner, PosixRequest, QueryRequest,
        ReassertRequest, Refusal, SessionId, Token, Wait,
    };

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

    fn seen() -> FileLocks {
        let held = LockInfo {
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
        let waits = LockInfo {
            token: None,
            is_posix: true,
            ..held.clone()
        };
        FileLocks {
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
            Reply::FileLocks { seq: 3, seen: seen() },
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
