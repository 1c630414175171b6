//! The beginning of a connection: who speaks which version, and for how long without a word.
//!
//! ```text
//!   client                                        service
//!     Hello { version, ttl, name }          ->
//!                                           <-    Welcome { version, session, ttl, epoch, grace }
//!                                                 or Lost { why }
//! ```
//!
//! Where a key or certificates are needed, all of it is within TLS: see `credentials`.
//!
//! Not here: sockets.

use elbow_ranges::encoding::{DecodeError, Reader, Writer};

use crate::address::Address;
use crate::error::LockError;
use crate::message::{Reply, SessionId};
use crate::wire::{self, append_frame, bad};

/// A lock proxy lets nobody in: its service may take what it holds for lost by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this lock proxy has not heard from its service for a while")]
pub struct UpstreamSilent;

/// The version of the protocol that a client says hello with: the oldest that will do.
pub const PROTOCOL_VERSION: u16 = 1;
/// The newest that this program speaks, which a service says in its welcome: what was added since is not to be asked of an older one.
pub const PROTOCOL_NEWEST: u16 = 2;
/// What a hello begins with.
pub const MAGIC: [u8; 8] = *b"ELBOWLCK";
const NAME_BYTES_MAX: usize = 256;
/// Where the first programs had a nonce and a proof that they know a key: zeros, which nobody looks at.
const HELLO_UNUSED: [u8; 16] = [0; 16];
const WELCOME_UNUSED: [u8; 32] = [0; 32];

const HELLO: u8 = 0x01;
const WELCOME: u8 = 0x82;

/// What a client begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) version: u16,
    /// How long the session may live without a word from the client, ms; 0: as long as the connection.
    pub(crate) ttl_ms: u32,
    /// For people: program, process and host.
    pub(crate) name: String,
}

/// What the service opens the session with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Welcome {
    /// The newest that the service speaks.
    pub(crate) version: u16,
    pub(crate) session: SessionId,
    /// As granted; at most what was asked for, if that was not 0, or [`LEASE_MS_MIN`](crate::LEASE_MS_MIN).
    pub(crate) ttl_ms: u32,
    /// The epoch of the service, as in its tokens.
    pub(crate) epoch: u32,
    /// For so long from now on holders from before a restart can reassert, and nothing new is granted.
    pub(crate) grace_ms: u32,
    /// How long the grace period would be if the service crashed now.
    pub(crate) grace_ms_max: u32,
}

/// One of the first messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    Hello(Hello),
    Welcome(Welcome),
}

impl Opening {
    pub(crate) fn append(&self, out: &mut Vec<u8>) {
        append_frame(out, |writer| self.put(writer));
    }

    fn put(&self, writer: &mut Writer) {
        match self {
            Self::Hello(hello) => {
                writer.u8(HELLO);
                writer.array(&MAGIC);
                writer.varint(u64::from(hello.version));
                writer.varint(u64::from(hello.ttl_ms));
                writer.bytes(hello.name.as_bytes());
                writer.array(&HELLO_UNUSED);
            }
            Self::Welcome(welcome) => {
                writer.u8(WELCOME);
                writer.varint(u64::from(welcome.version));
                writer.varint(welcome.session.0);
                writer.varint(u64::from(welcome.ttl_ms));
                writer.varint(u64::from(welcome.epoch));
                writer.varint(u64::from(welcome.grace_ms));
                writer.varint(u64::from(welcome.grace_ms_max));
                writer.array(&WELCOME_UNUSED);
            }
        }
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let opening = match reader.u8()? {
            HELLO => Self::Hello(take_hello(&mut reader)?),
            WELCOME => Self::Welcome(take_welcome(&mut reader)?),
            _ => return Err(bad(0, "this is not how a lock connection begins")),
        };
        reader.finish()?;
        Ok(opening)
    }
}

/// The hello of a client that is called `name`.
pub(crate) fn frame(name: &str, ttl_ms: u32) -> Vec<u8> {
    let mut frame = Vec::new();
    let hello = Hello {
        version: PROTOCOL_VERSION,
        ttl_ms,
        name: name.to_owned(),
    };
    Opening::Hello(hello).append(&mut frame);
    frame
}

/// What a service's answer to a hello says.
pub(crate) fn answer(payload: &[u8], address: &Address) -> Result<Welcome, LockError> {
    let rejected = |why: String| LockError::Rejected {
        address: address.clone(),
        why,
    };
    match (Opening::decode(payload), wire::decode_reply(payload)) {
        (Ok(Opening::Welcome(welcome)), _) => Ok(welcome),
        (_, Ok(Reply::Lost { why })) => Err(rejected(why)),
        (Ok(Opening::Hello(_)), _) => Err(rejected("it answered a hello with another".to_owned())),
        (Err(source), _) => Err(LockError::Garbled {
            address: address.clone(),
            source,
        }),
    }
}

fn take_hello(reader: &mut Reader<'_>) -> Result<Hello, DecodeError> {
    let at = reader.offset();
    if reader.array::<8>()? != MAGIC {
        return Err(bad(at, "this is not how a lock connection begins"));
    }
    let (version, ttl_ms) = (take_u16(reader)?, reader.u32()?);
    let at = reader.offset();
    let name = reader.bytes()?;
    reader.array::<{ HELLO_UNUSED.len() }>()?;
    match std::str::from_utf8(name) {
        Ok(name) if name.len() <= NAME_BYTES_MAX => Ok(Hello {
            version,
            ttl_ms,
            name: name.to_owned(),
        }),
        _ => Err(bad(at, "a client's name is UTF-8 and at most 256 bytes")),
    }
}

fn take_welcome(reader: &mut Reader<'_>) -> Result<Welcome, DecodeError> {
    let welcome = Welcome {
        version: take_u16(reader)?,
        session: SessionId(reader.varint()?),
        ttl_ms: reader.u32()?,
        epoch: reader.u32()?,
        grace_ms: reader.u32()?,
        grace_ms_max: reader.u32()?,
    };
    reader.array::<{ WELCOME_UNUSED.len() }>()?;
    Ok(welcome)
}

fn take_u16(reader: &mut Reader<'_>) -> Result<u16, DecodeError> {
    let at = reader.offset();
    u16::try_from(reader.varint()?).map_err(|_| bad(at, "a version does not fit 16 bits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openings_survive_the_wire() {
        let openings = [
            Opening::Hello(Hello {
                version: 1,
                ttl_ms: 10_000,
                name: "tar 17 on n3".to_owned(),
            }),
            Opening::Welcome(Welcome {
                version: 1,
                session: SessionId(300),
                ttl_ms: 10_000,
                epoch: 3,
                grace_ms: 0,
                grace_ms_max: 10_000,
            }),
        ];
        for opening in openings {
            let mut frame = Vec::new();
            opening.append(&mut frame);
            assert_eq!(Opening::decode(&frame[4..]), Ok(opening.clone()));
            for cut in 4..frame.len() {
                assert!(Opening::decode(&frame[4..cut]).is_err(), "{opening:?} cut at {cut}");
            }
        }
    }
}
