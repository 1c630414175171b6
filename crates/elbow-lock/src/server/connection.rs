//! One client's connection, from hello to end: with the service, or with a proxy of it.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use elbow_ranges::encoding::DecodeError;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::timeout;

use super::handler::RequestHandler;
use super::listen::{Arrival, Peer, Stream, Transport};
use super::long_comparison::LongComparison;
use super::outbox::{Ending, Unsent};
use super::session::ServerSession;
use crate::credentials::Credentials;
use crate::hello::{Hello, Opening, PROTOCOL_VERSION};
use crate::memory::Room;
use crate::message::{LockId, Refusal, Reply, Request};
use crate::table::KnownOverlaps;
use crate::wire;

/// A client that has not said hello after so long is none.
const HELLO_FOR: Duration = Duration::from_secs(10);
/// A client that takes none of its replies for so long is cut off.
const WRITE_FOR: Duration = Duration::from_secs(30);
/// Read at a time; many frames, so that many answers go out in one write.
const READ_BYTES: usize = 64 << 10;

/// Of a frame, with a name that is as long as names may be.
const HELLO_BYTES_MAX: usize = 512;

/// Serves one client until it goes, or must go.
pub(crate) async fn serve<D: RequestHandler>(handler: Arc<D>, arrival: Arrival, credentials: Option<Credentials>) {
    let peer = arrival.peer;
    let admitted = ClientStream::admit(arrival.came, peer, &arrival.name, &*handler, credentials.as_ref());
    let Ok(Ok((incoming, member))) = timeout(HELLO_FOR, admitted).await else {
        return handler.turned_away();
    };
    if let Some(socket) = arrival.socket.filter(|_| !member.has_lease) {
        member.ends_with(socket);
        handler.watch(&member);
    }
    let mut connection = Connection {
        handler: &*handler,
        member: &member,
        said_close: false,
        coming: None,
        to_skip: 0,
        incoming,
    };
    let ended = match connection.converse().await {
        Ok(Some(ended)) => ended,
        // It may be at the other end all the same, and use its locks.
        Ok(None) | Err(_) => connection.await_farewell().await,
    };
    match ended {
        Ended::ByClient => handler.close(&member),
        // The kernel ends a Unix socket when its process dies. One with a lease may speak for others, who live on.
        Ended::Cut if peer.is_local && !member.has_lease => handler.close(&member),
        Ended::Cut => handler.disconnect(&member),
    }
}

/// How a conversation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// The client said that it goes, or holds nothing any more.
    ByClient,
    /// The connection ended, and perhaps not the client.
    Cut,
}

/// A stream with what has come through it and is not decoded yet.
struct ClientStream {
    reader: ReadHalf<std::pin::Pin<Box<dyn Stream>>>,
    writer: WriteHalf<std::pin::Pin<Box<dyn Stream>>>,
    bytes: Vec<u8>,
    peer: Peer,
}

impl ClientStream {
    async fn admit(
        came: Transport,
        peer: Peer,
        who: &str,
        handler: &impl RequestHandler,
        credentials: Option<&Credentials>,
    ) -> io::Result<(Self, Arc<ServerSession>)> {
        let (stream, unlike) = came.secure(credentials).await?;
        let (reader, writer) = tokio::io::split(stream);
        let mut incoming = Self {
            reader,
            writer,
            bytes: Vec::with_capacity(READ_BYTES),
            peer,
        };
        if let Some(why) = unlike {
            // What is left unread when a socket is closed may take our answer with it.
            incoming.reader.read_buf(&mut incoming.bytes).await?;
            return incoming.turn_away(why).await;
        }
        let hello = match incoming.receive_opening().await {
            Ok(Opening::Hello(hello)) => hello,
            Err(error) if error.kind() != ErrorKind::InvalidData => return Err(error),
            _ => return incoming.turn_away("a connection begins with a hello").await,
        };
        if hello.version != PROTOCOL_VERSION {
            let theirs = hello.version;
            let why = format!("it speaks version {PROTOCOL_VERSION} of the protocol, we version {theirs}");
            return incoming.turn_away(&why).await;
        }
        let member = incoming.welcome(handler, hello, who).await?;
        Ok((incoming, member))
    }

    async fn welcome(
        &mut self,
        handler: &impl RequestHandler,
        hello: Hello,
        who: &str,
    ) -> io::Result<Arc<ServerSession>> {
        let (member, welcome) = match handler.open(format!("{} ({who})", hello.name), hello.ttl_ms, self.peer) {
            Ok(opened) => opened,
            Err(why) => return self.turn_away(&why.to_string()).await,
        };
        match self.send_opening(&Opening::Welcome(welcome)).await {
            Ok(()) => Ok(member),
            Err(error) => {
                handler.close(&member);
                Err(error)
            }
        }
    }

    async fn turn_away<T>(&mut self, why: &str) -> io::Result<T> {
        let mut bytes = Vec::new();
        wire::append_reply(&mut bytes, &Reply::Lost { why: why.to_owned() });
        self.write(&bytes).await?;
        self.writer.shutdown().await?;
        Err(io::Error::other(why.to_owned()))
    }

    async fn send_opening(&mut self, opening: &Opening) -> io::Result<()> {
        let mut bytes = Vec::new();
        opening.append(&mut bytes);
        self.write(&bytes).await
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all(bytes).await?;
        self.writer.flush().await // What is sealed may be kept until then.
    }

    async fn receive_opening(&mut self) -> io::Result<Opening> {
        loop {
            if wire::announced(&self.bytes)
                .map_err(garbled)?
                .is_some_and(|length| length > HELLO_BYTES_MAX)
            {
                return Err(io::Error::new(ErrorKind::InvalidData, "no hello is so long"));
            }
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
    handler: &'a D,
    member: &'a ServerSession,
    said_close: bool,
    /// The memory of a long request that is not all there: as its buffer grows, up to twice its length.
    coming: Option<Room>,
    /// Bytes of a request that was refused unread.
    to_skip: usize,
    incoming: ClientStream,
}

impl<D: RequestHandler> Connection<'_, D> {
    /// Does what the client asks until the connection ends. None: the client has been told that its session is over.
    async fn converse(&mut self) -> io::Result<Option<Ended>> {
        let mut sent = Unsent::default();
        loop {
            self.apply_all().await?;
            sent = self.flush(sent).await?;
            if self.said_close {
                return Ok(Some(Ended::ByClient));
            }
            match self.member.outbox.ending() {
                Ending::No => {}
                Ending::Announced => return Ok(None),
                Ending::BrokenOff => return Ok(Some(Ended::Cut)),
            }
            tokio::select! {
                read = self.incoming.reader.read_buf(&mut self.incoming.bytes) => {
                    if read? == 0 {
                        return Ok(Some(Ended::Cut));
                    }
                }
                () = self.member.outbox.wake.notified() => {}
            }
        }
    }

    /// Takes nothing more of a client but that it goes. It was told that its locks are lost, or could not be told, and may still be
    /// using them: they are others' when it says so, when the connection has ended or when its lease is over.
    async fn await_farewell(&mut self) -> Ended {
        self.member.end_from_outside();
        self.handler.disconnect(self.member);
        self.coming = None;
        while !self.has_sent_close() && self.handler.holds_something(self.member) {
            tokio::select! {
                read = self.incoming.reader.read_buf(&mut self.incoming.bytes) => {
                    if !read.is_ok_and(|read| read > 0) {
                        return Ended::Cut;
                    }
                }
                () = self.member.outbox.wake.notified() => {}
            }
        }
        Ended::ByClient
    }

    /// Whether a close is among what has come; all else is dropped.
    fn has_sent_close(&mut self) -> bool {
        let bytes = std::mem::take(&mut self.incoming.bytes);
        let mut begin = 0;
        let is_close = loop {
            begin += self.skip(bytes.len() - begin);
            match wire::announced(&bytes[begin..]) {
                Ok(None) => break false,
                Ok(Some(1)) => match bytes[begin..].get(wire::LENGTH_BYTES..wire::LENGTH_BYTES + 1) {
                    None => break false,
                    Some(payload) if wire::decode_request(payload) == Ok(Request::Close) => break true,
                    Some(_) => begin += wire::LENGTH_BYTES + 1,
                },
                Ok(Some(length)) => self.to_skip = wire::LENGTH_BYTES + length,
                // Nobody knows where the next frame begins.
                Err(_) => self.to_skip = usize::MAX,
            }
        };
        self.incoming.bytes.extend_from_slice(&bytes[begin..]);
        is_close
    }

    /// Applies every request that is all there. What takes long to compare is compared elsewhere, and the requests behind it wait.
    async fn apply_all(&mut self) -> io::Result<()> {
        let bytes = std::mem::take(&mut self.incoming.bytes);
        let mut begin = 0;
        let applied = loop {
            match self.apply_until_long(&bytes, &mut begin) {
                Ok(None) => break Ok(()),
                Ok(Some(long)) => compare_and_apply(self.handler, self.member, long).await?,
                Err(error) => break Err(error),
            }
        };
        self.incoming.bytes = bytes;
        self.incoming.bytes.drain(..begin);
        if self.coming.is_none() {
            self.incoming.bytes.shrink_to(READ_BYTES);
        }
        applied.or_else(|error| {
            self.member
                .outbox
                .end(&format!("it got no request that it understands: {error}"));
            self.to_skip = usize::MAX;
            Ok(())
        })
    }

    /// Applies the requests from `begin` on up to one that takes long to compare, which is given back. Not async: each request would be copied
    /// into and out of the future's state, which takes as long as a third of its grant.
    fn apply_until_long(
        &mut self,
        bytes: &[u8],
        begin: &mut usize,
    ) -> Result<Option<Box<LongComparison>>, DecodeError> {
        loop {
            *begin += self.skip(bytes.len() - *begin);
            if self.to_skip > 0 || self.member.outbox.has_ended() {
                return Ok(None); // The rest of it has yet to come, or nothing more is taken.
            }
            if !self.is_welcome(&bytes[*begin..])? {
                if self.to_skip > 0 {
                    continue;
                }
                return Ok(None);
            }
            let Some(length) = wire::frame_length(&bytes[*begin..])? else {
                return Ok(None);
            };
            let request = wire::decode_request(&bytes[*begin + wire::LENGTH_BYTES..*begin + length])?;
            *begin += length;
            self.coming = None;
            if matches!(request, Request::Close) {
                self.said_close = true;
            } else if let Some(long) = self.handler.apply(self.member, request, KnownOverlaps::default()) {
                return Ok(Some(long));
            }
        }
    }

    /// How many of so many bytes belong to a request that was refused unread.
    fn skip(&mut self, there: usize) -> usize {
        let skipped = self.to_skip.min(there);
        self.to_skip -= skipped;
        skipped
    }

    /// Whether there is room for the request that begins here; false also as long as too little of it is there to say. One that is too long is
    /// refused by its name, without the rest of it.
    fn is_welcome(&mut self, bytes: &[u8]) -> Result<bool, DecodeError> {
        let Some(length) = wire::announced(bytes)? else {
            return Ok(false);
        };
        let limits = self.handler.limits();
        if length <= READ_BYTES.min(limits.request_bytes) || self.coming.is_some() {
            return Ok(true);
        }
        let why = if length > limits.request_bytes {
            limits.full_request(length)
        } else {
            let mut room = self.handler.memory().room();
            if room.grow_to(2 * length) {
                self.coming = Some(room);
                return Ok(true);
            }
            self.handler.full_memory()
        };
        let Some(id) = wire::asked_for(bytes)? else {
            return Ok(false);
        };
        self.refuse(id, why);
        self.to_skip = wire::LENGTH_BYTES + length;
        Ok(false)
    }

    fn refuse(&self, id: LockId, why: Refusal) {
        self.member.outbox.push(&Reply::Refused { id, why }, true);
    }

    /// Sends what is there. `spare` is memory to use again.
    async fn flush(&mut self, mut spare: Unsent) -> io::Result<Unsent> {
        spare.clear();
        let unsent = self.member.outbox.take(spare);
        self.handler.forget(self.member, &unsent.refused);
        if !unsent.bytes.is_empty() {
            self.send(&unsent.bytes).await?;
        }
        Ok(unsent)
    }

    /// Sends, for as long as that takes: a client that is stopped may use its locks when it goes on, and has to be told first.
    async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (handler, member) = (self.handler, self.member);
        let mut sending = std::pin::pin!(self.incoming.write(bytes));
        loop {
            match timeout(WRITE_FOR, sending.as_mut()).await {
                Ok(sent) => return sent,
                Err(_) if handler.holds_something(member) => {
                    member.outbox.cut_off("it takes none of its answers");
                    handler.disconnect(member);
                }
                Err(late) => return Err(late.into()),
            }
        }
    }
}

/// Applies a request that takes long to compare, once it has been compared elsewhere.
async fn compare_and_apply<D: RequestHandler>(
    handler: &D,
    member: &ServerSession,
    long: Box<LongComparison>,
) -> io::Result<()> {
    let mut next = Some(long);
    while let Some(long) = next {
        let compared = long.compare().await;
        let (request, known) = compared.ok_or_else(|| io::Error::other("the service ends"))?;
        next = handler.apply(member, request, known);
    }
    Ok(())
}

fn garbled(error: DecodeError) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}
