//! The bytes of what the service answers.

use elbow_ranges::encoding::{DecodeError, Reader, Writer};

use super::fields::{
    bad, kinds, put_number, put_range, put_text, take_id, take_many, take_mode, take_range, take_text,
};
use crate::message::{Blocker, FileLocks, LockInfo, Owner, Refusal, Reply, SessionId, Token};

pub(super) fn put_reply(writer: &mut Writer, reply: &Reply) {
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
        Reply::FileLocks { seq, seen } => {
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

pub(super) fn take_reply(reader: &mut Reader<'_>) -> Result<Reply, DecodeError> {
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
        kinds::SEEN => Reply::FileLocks {
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

fn put_seen(writer: &mut Writer, seen: &FileLocks) {
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

fn take_seen(reader: &mut Reader<'_>) -> Result<FileLocks, DecodeError> {
    Ok(FileLocks {
        holds: reader.varint()?,
        queued: reader.varint()?,
        locks: take_many(reader, take_seen_lock)?,
    })
}

fn take_seen_lock(reader: &mut Reader<'_>) -> Result<LockInfo, DecodeError> {
    let (session, owner, client) = (SessionId(reader.varint()?), Owner(reader.varint()?), take_text(reader)?);
    let (mode, is_posix, is_ending) = (take_mode(reader)?, reader.bool()?, reader.bool()?);
    let token = match reader.bool()? {
        true => Some(Token(reader.varint()?)),
        false => None,
    };
    let age_ms = reader.varint()?;
    let (start, end) = take_range(reader)?;
    Ok(LockInfo {
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
