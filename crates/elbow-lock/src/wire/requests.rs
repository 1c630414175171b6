//! The bytes of what a client asks for.

use elbow_ranges::Footprint;
use elbow_ranges::encoding::{DecodeError, Reader, Writer};

use super::fields::{
    NO_MODE, bad, kinds, put_head, put_number, put_range, put_wait, take_file, take_file_or_none, take_head, take_id,
    take_mode, take_mode_or_none, take_range, take_wait,
};
use crate::message::{
    FileName, LockMode, LockRequest, Owner, PosixRequest, QueryRequest, ReassertRequest, Request, SessionId, Token,
};

pub(super) fn put_request(writer: &mut Writer, request: &Request) {
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

#[inline] // Into its one caller: a request has 184 bytes, and each function between would copy them.
pub(super) fn take_request(reader: &mut Reader<'_>) -> Result<Request, DecodeError> {
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

    #[inline]
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
