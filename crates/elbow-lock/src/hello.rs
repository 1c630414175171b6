//! The beginning of a connection: who speaks which version, for how long without a word, and with what key.
//!
//! ```text
//!   client                                        service
//!     Hello { version, ttl, name, nonce }   ->
//!                                           <-    Challenge { nonce }              only where a key is needed
//!     Proof { HMAC(key, "client" ...) }     ->
//!                                           <-    Welcome { session, ttl, epoch, grace, HMAC(key, "server" ...) }
//!                                                 or Lost { why }
//! ```
//!
//! Both prove that they know the key, each over both nonces, so that neither can be replayed nor played back to its
//! sender. The key protects the service from strangers. It does not hide or sign what is said afterwards: over a
//! network that others can write to, use a tunnel.
//!
//! Not here: sockets. Source: RFC 2104 (HMAC), FIPS 180-4 (SHA-256).

use elbow_ranges::encoding::{DecodeError, Reader, Writer};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::message::SessionId;
use crate::wire::{append_frame, bad};

/// The version of the protocol that a client says hello with: the oldest that will do.
pub const PROTOCOL_VERSION: u16 = 1;
/// The newest that this program speaks, which a service says in its welcome: what was added since is not to be asked of an older one.
pub const PROTOCOL_NEWEST: u16 = 2;
/// What a hello begins with.
pub const MAGIC: [u8; 8] = *b"ELBOWLCK";
/// Shortest key that a service takes, in bytes.
pub const KEY_BYTES_MIN: usize = 16;
const NAME_BYTES_MAX: usize = 256;
const NONCE_BYTES: usize = 16;
const PROOF_BYTES: usize = 32;

const HELLO: u8 = 0x01;
const PROOF: u8 = 0x02;
const CHALLENGE: u8 = 0x81;
const WELCOME: u8 = 0x82;

pub(crate) type Nonce = [u8; NONCE_BYTES];
pub(crate) type Proof = [u8; PROOF_BYTES];

/// A secret that clients of a service share with it.
#[derive(Clone)]
pub struct Key(std::sync::Arc<[u8]>);

impl Key {
    /// Takes the content of a key file: everything but white space around it.
    ///
    /// ```
    /// use elbow_lock::Key;
    ///
    /// assert!(Key::new(b"Tq3vYxE0bKk4M9wd\n").is_some());
    /// assert!(Key::new(b"password\n").is_none()); // shorter than 16 bytes
    /// ```
    #[must_use]
    pub fn new(content: &[u8]) -> Option<Self> {
        let key = content.trim_ascii();
        (key.len() >= KEY_BYTES_MIN).then(|| Self(key.into()))
    }

    fn proof(&self, side: Side, client: &Nonce, service: &Nonce) -> Hmac<Sha256> {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key of any length");
        mac.update(match side {
            Side::Client => b"elbow lock client",
            Side::Service => b"elbow lock server",
        });
        mac.update(client);
        mac.update(service);
        mac
    }

    /// What `side` says to show that it knows the key.
    pub(crate) fn prove(&self, side: Side, client: &Nonce, service: &Nonce) -> Proof {
        self.proof(side, client, service).finalize().into_bytes().into()
    }

    /// Whether `proof` is what `side` would say; takes equally long for all wrong proofs.
    pub(crate) fn accepts(&self, side: Side, client: &Nonce, service: &Nonce, proof: &Proof) -> bool {
        self.proof(side, client, service).verify_slice(proof).is_ok()
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Key(..)")
    }
}

/// Who proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Service,
}

/// What a client begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) version: u16,
    /// How long the session may live without a word from the client, ms; 0: as long as the connection.
    pub(crate) ttl_ms: u32,
    /// For people: program, process and host.
    pub(crate) name: String,
    pub(crate) nonce: Nonce,
}

/// What the service opens the session with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Welcome {
    /// The newest that the service speaks.
    pub(crate) version: u16,
    pub(crate) session: SessionId,
    /// As granted; at most what was asked for, if that was not 0.
    pub(crate) ttl_ms: u32,
    /// The life of the service, as in its tokens.
    pub(crate) epoch: u32,
    /// For so long from now on holders from before a restart can reassert, and nothing new is granted.
    pub(crate) grace_ms: u32,
    /// How long the grace period would be if the service crashed now.
    pub(crate) grace_ms_max: u32,
    /// The service's; all zeros where no key is needed.
    pub(crate) proof: Proof,
}

/// One of the first messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    Hello(Hello),
    Challenge(Nonce),
    Proof(Proof),
    Welcome(Welcome),
}

impl Opening {
    pub(crate) fn append(&self, out: &mut Vec<u8>) {
        append_frame(out, |writer| self.put(writer));
    }

    fn put(&self, writer: &mut Writer) {
        match self {
            Self::Hello(hello) => {
                put_array(writer, HELLO, &MAGIC);
                writer.varint(u64::from(hello.version));
                writer.varint(u64::from(hello.ttl_ms));
                writer.bytes(hello.name.as_bytes());
                writer.array(&hello.nonce);
            }
            Self::Challenge(nonce) => put_array(writer, CHALLENGE, nonce),
            Self::Proof(proof) => put_array(writer, PROOF, proof),
            Self::Welcome(welcome) => {
                writer.u8(WELCOME);
                writer.varint(u64::from(welcome.version));
                writer.varint(welcome.session.0);
                writer.varint(u64::from(welcome.ttl_ms));
                writer.varint(u64::from(welcome.epoch));
                writer.varint(u64::from(welcome.grace_ms));
                writer.varint(u64::from(welcome.grace_ms_max));
                writer.array(&welcome.proof);
            }
        }
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let opening = match reader.u8()? {
            HELLO => Self::Hello(take_hello(&mut reader)?),
            CHALLENGE => Self::Challenge(reader.array()?),
            PROOF => Self::Proof(reader.array()?),
            WELCOME => Self::Welcome(take_welcome(&mut reader)?),
            _ => return Err(bad(0, "this is not how a lock connection begins")),
        };
        reader.finish()?;
        Ok(opening)
    }
}

fn put_array(writer: &mut Writer, kind: u8, bytes: &[u8]) {
    writer.u8(kind);
    writer.array(bytes);
}

fn take_hello(reader: &mut Reader<'_>) -> Result<Hello, DecodeError> {
    let at = reader.offset();
    if reader.array::<8>()? != MAGIC {
        return Err(bad(at, "this is not how a lock connection begins"));
    }
    let (version, ttl_ms) = (take_u16(reader)?, reader.u32()?);
    let at = reader.offset();
    let name = reader.bytes()?;
    match std::str::from_utf8(name) {
        Ok(name) if name.len() <= NAME_BYTES_MAX => Ok(Hello {
            version,
            ttl_ms,
            name: name.to_owned(),
            nonce: reader.array()?,
        }),
        _ => Err(bad(at, "a client's name is UTF-8 and at most 256 bytes")),
    }
}

fn take_welcome(reader: &mut Reader<'_>) -> Result<Welcome, DecodeError> {
    Ok(Welcome {
        version: take_u16(reader)?,
        session: SessionId(reader.varint()?),
        ttl_ms: reader.u32()?,
        epoch: reader.u32()?,
        grace_ms: reader.u32()?,
        grace_ms_max: reader.u32()?,
        proof: reader.array()?,
    })
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
                nonce: [7; 16],
            }),
            Opening::Challenge([8; 16]),
            Opening::Proof([9; 32]),
            Opening::Welcome(Welcome {
                version: 1,
                session: SessionId(300),
                ttl_ms: 10_000,
                epoch: 3,
                grace_ms: 0,
                grace_ms_max: 10_000,
                proof: [0; 32],
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

    #[test]
    fn a_proof_holds_for_one_side_and_one_pair_of_nonces() {
        let key = Key::new(b"0123456789abcdef").unwrap();
        let other = Key::new(b"0123456789abcdeg").unwrap();
        let proof = key.prove(Side::Client, &[1; 16], &[2; 16]);
        assert!(key.accepts(Side::Client, &[1; 16], &[2; 16], &proof));
        assert!(!key.accepts(Side::Service, &[1; 16], &[2; 16], &proof));
        assert!(!key.accepts(Side::Client, &[1; 16], &[3; 16], &proof));
        assert!(!other.accepts(Side::Client, &[1; 16], &[2; 16], &proof));
    }
}
