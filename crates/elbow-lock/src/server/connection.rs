//! One client's connection, from hello to end: with the service, or with a proxy of it.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use elbow_ranges::encoding::DecodeError;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::timeout;

use super::listen::{Arrival, Stream};
use super::outbox::Unsent;
use super::service::Member;
use crate::hello::{Hello, Key, Nonce, Opening, PROTOCOL_VERSION, Proof, Side, Welcome};
use crate::message::{LockId, Reply, Request};
use crate::wire;

/// A client that has not said hello after so long is none.
const HELLO_FOR: Duration = Duration::from_secs(10);
/// A client that takes none of its replies for so long is cut off.
const WRITE_FOR: Duration = Duration::from_secs(30);
/// Read at a time; many frames, so that many answers go out in one write.
const READ_BYTES: usize = 64 << 10;

/// Who answers the requests of a connection. Replies go to the member's outbox, then or later.
pub(crate) trait Desk: Send + Sync {
    /// Opens a session for a client that asked for a lease of `ttl_ms`; an error is why it cannot come in.
    fn open(&self, name: String, ttl_ms: u32, is_local: bool) -> Result<(Arc<Member>, Welcome), String>;
    /// Does what a client asks; not called with `Close`.
    fn apply(&self, member: &Member, request: Request);
    /// These locks are no more without the client having said so.
    fn forget(&self, member: &Member, refused: &[LockId]);
    /// The client has gone.
    fn close(&self, member: &Member);
    /// The connection has gone, and perhaps not the client.
    fn disconnect(&self, member: &Member);
    /// Somebody was not let in.
    fn turned_away(&self);
}

/// Serves one client until it goes, or must go.
pub(crate) async fn serve<D: Desk>(desk: Arc<D>, arrival: Arrival, key: Option<Key>) {
    let is_local = arrival.is_local;
    let (reader, writer) = tokio::io::split(arrival.stream);
    let mut door = Door {
        reader,
        writer,
        bytes: Vec::with_capacity(READ_BYTES),
        is_local,
    };
    let Ok(Ok(member)) = timeout(HELLO_FOR, door.admit(&*desk, key.as_ref(), &arrival.peer)).await else {
        return desk.turned_away();
    };
    if let Some(socket) = arrival.socket.filter(|_| !member.has_lease) {
        member.ends_with(socket);
    }
    let mut connection = Connection {
        desk: &*desk,
        member: &member,
        said_close: false,
        door,
    };
    // However it ends, there is nobody to tell.
    let ended = connection.converse().await.unwrap_or(Ended::Cut);
    match ended {
        Ended::ByClient => desk.close(&member),
        // The kernel ends a Unix socket when its process dies. One with a lease may speak for others, who live on.
        Ended::Cut if is_local && !member.has_lease => desk.close(&member),
        Ended::Cut => desk.disconnect(&member),
    }
}

/// How a conversation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// The client said that it goes, or was told that its session is over.
    ByClient,
    /// The connection ended, and perhaps not the client.
    Cut,
}

/// A stream with what has come through it and is not decoded yet.
struct Door {
    reader: ReadHalf<std::pin::Pin<Box<dyn Stream>>>,
    writer: WriteHalf<std::pin::Pin<Box<dyn Stream>>>,
    bytes: Vec<u8>,
    /// The kernel tells us when the client dies.
    is_local: bool,
}

impl Door {
    async fn admit(&mut self, desk: &impl Desk, key: Option<&Key>, peer: &str) -> io::Result<Arc<Member>> {
        let Opening::Hello(hello) = self.hear().await? else {
            return self.turn_away("a connection begins with a hello").await;
        };
        if hello.version != PROTOCOL_VERSION {
            let why = format!(
                "it speaks version {PROTOCOL_VERSION} of the protocol, we version {}",
                hello.version
            );
            return self.turn_away(&why).await;
        }
        let proof = match key {
            None => Proof::default(),
            Some(key) => match self.challenge(key, &hello.nonce).await? {
                Some(proof) => proof,
                None => return self.turn_away("our key is not its key").await,
            },
        };
        self.welcome(desk, hello, proof, peer).await
    }

    /// The service's proof, if the client's was good.
    async fn challenge(&mut self, key: &Key, theirs: &Nonce) -> io::Result<Option<Proof>> {
        let mut ours = Nonce::default();
        getrandom::fill(&mut ours).map_err(io::Error::other)?;
        self.say(&Opening::Challenge(ours)).await?;
        Ok(match self.hear().await? {
            Opening::Proof(proof) if key.accepts(Side::Client, theirs, &ours, &proof) => {
                Some(key.prove(Side::Service, theirs, &ours))
            }
            _ => None,
        })
    }

    async fn welcome(&mut self, desk: &impl Desk, hello: Hello, proof: Proof, peer: &str) -> io::Result<Arc<Member>> {
        let (member, welcome) = match desk.open(format!("{} ({peer})", hello.name), hello.ttl_ms, self.is_local) {
            Ok(opened) => opened,
            Err(why) => return self.turn_away(&why).await,
        };
        match self.say(&Opening::Welcome(Welcome { proof, ..welcome })).await {
            Ok(()) => Ok(member),
            Err(error) => {
                desk.close(&member);
                Err(error)
            }
        }
    }

    async fn turn_away<T>(&mut self, why: &str) -> io::Result<T> {
        let mut bytes = Vec::new();
        wire::append_reply(&mut bytes, &Reply::Lost { why: why.to_owned() });
        self.writer.write_all(&bytes).await?;
        self.writer.shutdown().await?;
        Err(io::Error::other(why.to_owned()))
    }

    async fn say(&mut self, opening: &Opening) -> io::Result<()> {
        let mut bytes = Vec::new();
        opening.append(&mut bytes);
        self.writer.write_all(&bytes).await
    }

    async fn hear(&mut self) -> io::Result<Opening> {
        loop {
            if let Some(length) = wire::frame_length(&self.bytes).map_err(garbled)? {
                let opening = Opening::decode(&self.bytes[wire::LENGTH_BYTES..length]).map_err(garbled)?;
                self.bytes.drain(..length);
                return Ok(opening);
            }
            if self.reader.read_buf(&mut self.bytes).await? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// A connection after its hello.
struct Connection<'a, D> {
    desk: &'a D,
    member: &'a Member,
    said_close: bool,
    door: Door,
}

impl<D: Desk> Connection<'_, D> {
    async fn converse(&mut self) -> io::Result<Ended> {
        let mut sent = Unsent::default();
        loop {
            self.apply_all()?;
            sent = self.flush(sent).await?;
            if self.said_close || self.member.outbox.has_ended() {
                return Ok(Ended::ByClient);
            }
            tokio::select! {
                read = self.door.reader.read_buf(&mut self.door.bytes) => {
                    if read? == 0 {
                        return Ok(Ended::Cut);
                    }
                }
                () = self.member.outbox.wake.notified() => {}
            }
        }
    }

    /// Applies every request that is all there.
    fn apply_all(&mut self) -> io::Result<()> {
        let bytes = std::mem::take(&mut self.door.bytes);
        let mut begin = 0;
        let applied = loop {
            match wire::frame_length(&bytes[begin..]) {
                Ok(None) => break Ok(()),
                Ok(Some(length)) => match wire::decode_request(&bytes[begin + wire::LENGTH_BYTES..begin + length]) {
                    Ok(request) => {
                        begin += length;
                        match request {
                            Request::Close => self.said_close = true,
                            request => self.desk.apply(self.member, request),
                        }
                    }
                    Err(error) => break Err(error),
                },
                Err(error) => break Err(error),
            }
        };
        self.door.bytes = bytes;
        self.door.bytes.drain(..begin);
        applied.or_else(|error| {
            self.member
                .outbox
                .end(&format!("it got no request that it understands: {error}"));
            self.door.bytes.clear();
            Ok(())
        })
    }

    /// Sends what is there. `spare` is memory to use again.
    async fn flush(&mut self, mut spare: Unsent) -> io::Result<Unsent> {
        spare.bytes.clear();
        spare.refused.clear();
        let unsent = self.member.outbox.take(spare);
        self.desk.forget(self.member, &unsent.refused);
        if !unsent.bytes.is_empty() {
            timeout(WRITE_FOR, self.door.writer.write_all(&unsent.bytes)).await??;
        }
        Ok(unsent)
    }
}

fn garbled(error: DecodeError) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}
