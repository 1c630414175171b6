//! The lock proxy of a node: many local clients, one session with the service.
//!
//! ```text
//!   clients --- Unix socket ---  connections (server)  --- relay --- outbox --- one connection --- service
//! ```
//!
//! To its clients it is a service: the same protocol, on a Unix socket, so that the kernel tells it when one of them dies. While
//! it has no session it does not listen, and clients look for it as for a service that went away. When its connection
//! breaks it breaks those of its clients, which come back; after a restart of the service they assert what they held
//! through the next session, and the proxy knows nothing of it.
//!
//! Its session has a lease even where the service could see it die, on a Unix socket: its clients may hold locks for
//! a moment longer than it lasts.
//!
//! Invariants: what goes to the service goes in the order in which the relay decided it. When the lease of the session is
//! over by the proxy's clock, every client is told before anything else is done. What its clients make it keep is bounded: locks, held, waiting and idle, what
//! is not sent to the service yet, long requests while they come in, and answers that are not read.
//!
//! Not here: what is kept and what is passed on (`relay`).

mod relay;
mod watch;

use std::collections::HashMap;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{Notify, Semaphore};
use tokio_rustls::TlsConnector;

pub use self::relay::{Relay, Send, Terms};
use self::watch::ClientSockets;
use crate::address::{Address, socket_path};
use crate::client::link::{HELLO_FOR, not_opened, now_ms};
use crate::client::{Options, TTL_MS_TCP};
use crate::credentials::Credentials;
use crate::error::LockError;
use crate::hello::{self, UpstreamSilent, Welcome};
use crate::memory::{Memory, Room};
use crate::message::{LockId, Refusal, Reply, Request, SessionId};
use crate::server::handler::RequestHandler;
use crate::server::listen::{self, Listener, Peer, Stream};
use crate::server::long_comparison::LongComparison;
use crate::server::outbox::Outbox;
use crate::server::session::ServerSession;
use crate::server::{Users, accept};
use crate::shard::Limits;
use crate::table::KnownOverlaps;
use crate::wire;

/// How often old idle locks and the lease are looked at, where no lease says to do it more often.
const TICK: Duration = Duration::from_millis(250);
/// Between two looks for a service that is not there.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);
/// Ended clients get this long to take their last words.
const LAST_WORDS_FOR: Duration = Duration::from_millis(100);
const READ_BYTES: usize = 64 << 10;
/// What may wait to be sent to the service when the memory is full; who makes it more is cut off.
const UNSENT_BYTES: usize = 8 << 20;

/// What a proxy is to do.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where its clients come: a Unix socket.
    pub listen: Address,
    /// Whose processes may use it.
    pub users: Users,
    /// Where the service is.
    pub service: Address,
    /// How to come to it.
    pub options: Options,
    /// Most clients at a time.
    pub clients_max: usize,
    /// Memory for what all clients together make it keep, in bytes.
    pub memory_bytes: usize,
}

/// Runs a proxy until `told_to_end`. `ready` is called each time it has a session and listens.
///
/// # Errors
/// When it cannot listen, the service does not let it in, or is not there at the beginning.
pub async fn run(
    settings: Settings,
    ready: impl Fn(&Address),
    told_to_end: impl Future<Output = ()>,
) -> io::Result<()> {
    if let Address::Tcp(_) = settings.listen {
        let why = "a proxy listens on a Unix socket, where the kernel tells it when a client dies";
        return Err(io::Error::new(ErrorKind::InvalidInput, why));
    }
    tokio::pin!(told_to_end);
    let mut link = connect(&settings).await.map_err(io::Error::other)?;
    loop {
        tokio::select! {
            served = serve_over(&settings, link, &ready) => served?,
            () = &mut told_to_end => return Ok(()),
        }
        link = tokio::select! {
            link = connect_again(&settings) => link?,
            () = &mut told_to_end => return Ok(()),
        };
    }
}

/// A session with the service, as it was opened.
struct Uplink {
    stream: Pin<Box<dyn Stream>>,
    /// What came after the welcome.
    bytes: Vec<u8>,
    welcome: Welcome,
    /// When the hello was sent, by [`now_ms`].
    opened_ms: u64,
}

async fn connect(settings: &Settings) -> Result<Uplink, LockError> {
    let address = &settings.service;
    let patience = tokio::time::timeout(HELLO_FOR, open(settings)).await;
    match patience.unwrap_or_else(|_| Err(not_opened(address, ErrorKind::TimedOut.into())))? {
        uplink if uplink.welcome.ttl_ms == 0 => Err(LockError::Rejected {
            address: address.clone(),
            why: "it gives no leases (its --ttl is 0), and a proxy needs one".to_owned(),
        }),
        uplink => Ok(uplink),
    }
}

async fn open(settings: &Settings) -> Result<Uplink, LockError> {
    let Settings { service, options, .. } = settings;
    let failed = |error| not_opened(service, error);
    let ttl_ms = if options.ttl_ms == 0 {
        TTL_MS_TCP
    } else {
        options.ttl_ms
    };
    let opened_ms = now_ms();
    let mut stream = reach(service, options.credentials.as_ref()).await.map_err(failed)?;
    stream
        .write_all(&hello::frame(&options.name, ttl_ms))
        .await
        .map_err(failed)?;
    stream.flush().await.map_err(failed)?;
    let mut bytes = Vec::with_capacity(READ_BYTES);
    loop {
        let garbled = |source| LockError::Garbled {
            address: service.clone(),
            source,
        };
        if let Some(length) = wire::frame_length(&bytes).map_err(garbled)? {
            let welcome = hello::answer(&bytes[wire::LENGTH_BYTES..length], service)?;
            bytes.drain(..length);
            return Ok(Uplink {
                stream,
                bytes,
                welcome,
                opened_ms,
            });
        }
        if stream.read_buf(&mut bytes).await.map_err(failed)? == 0 {
            return Err(failed(ErrorKind::UnexpectedEof.into()));
        }
    }
}

async fn reach(service: &Address, credentials: Option<&Credentials>) -> io::Result<Pin<Box<dyn Stream>>> {
    match service {
        Address::Unix(path) => Ok(Box::pin(UnixStream::connect(socket_path(path)?).await?)),
        Address::Tcp(place) => {
            let stream = TcpStream::connect(place).await?;
            stream.set_nodelay(true)?;
            let Some(credentials) = credentials else {
                return Ok(Box::pin(stream));
            };
            let (config, name) = credentials.for_client(place)?;
            Ok(Box::pin(TlsConnector::from(config).connect(name, stream).await?))
        }
    }
}

async fn connect_again(settings: &Settings) -> io::Result<Uplink> {
    loop {
        match connect(settings).await {
            Err(LockError::Unreachable { .. }) => tokio::time::sleep(RECONNECT_PAUSE).await,
            opened => return opened.map_err(io::Error::other),
        }
    }
}

/// Serves clients as long as one session with the service lasts.
async fn serve_over(settings: &Settings, uplink: Uplink, ready: &impl Fn(&Address)) -> io::Result<()> {
    let listener = Listener::open(&settings.listen, settings.users).await?;
    let proxy = Proxy::new(uplink.welcome, uplink.opened_ms, settings.memory_bytes)?;
    let proxy = Arc::new(proxy);
    let places = Arc::new(Semaphore::new(settings.clients_max));
    let clients = tokio::spawn(accept(listener, Arc::clone(&proxy), None, places));
    ready(&settings.listen);
    let broken = proxy.converse(uplink.stream, uplink.bytes).await;
    // First, or clients would come back to this session, and take it for the one that they had.
    listen::hide(&settings.listen);
    match broken {
        Ok(()) => proxy.each_member(|outbox| outbox.end("the lease of the lock proxy is over")),
        // What they hold they still do, until their leases end: they may assert it to the service once it is restarted.
        Err(_) => proxy.each_member(Outbox::disconnect),
    }
    tokio::time::sleep(LAST_WORDS_FOR).await;
    clients.abort();
    // Gone when this is over: the listener, and its socket file with it.
    drop(clients.await);
    Ok(())
}

/// One session with the service, and the clients that share it.
struct Proxy {
    welcome: Welcome,
    /// It takes requests as long as the service may take them, which says no itself.
    limits: Limits,
    memory: Memory,
    state: Mutex<ProxyState>,
    watch: ClientSockets,
    /// There is something to send to the service.
    wake: Notify,
}

struct ProxyState {
    relay: Relay,
    members: HashMap<SessionId, Arc<ServerSession>>,
    last_session: u64,
    unsent: Vec<u8>,
    /// Bytes that are being sent.
    sending: usize,
    /// For both.
    room: Room,
}

impl ProxyState {
    fn measure(&mut self) {
        self.room.set(self.unsent.capacity() + self.sending);
    }

    fn take_unsent(&mut self) -> Vec<u8> {
        let unsent = std::mem::take(&mut self.unsent);
        self.sending = unsent.capacity();
        unsent
    }

    fn has_sent(&mut self) {
        self.sending = 0;
        self.measure();
    }
}

impl Proxy {
    fn new(welcome: Welcome, opened_ms: u64, memory_bytes: usize) -> io::Result<Self> {
        let memory = Memory::new(memory_bytes);
        let state = ProxyState {
            relay: Relay::new(opened_ms, welcome.ttl_ms, welcome.grace_ms).within(memory.clone()),
            members: HashMap::new(),
            last_session: 0,
            unsent: Vec::new(),
            sending: 0,
            room: memory.room(),
        };
        let limits = Limits {
            memory_bytes,
            request_bytes: wire::FRAME_BYTES_MAX,
            ..Limits::default()
        };
        Ok(Self {
            welcome,
            memory,
            limits,
            state: Mutex::new(state),
            watch: ClientSockets::new()?,
            wake: Notify::new(),
        })
    }

    /// Talks to the service until the connection breaks (an error) or the lease is over.
    async fn converse(&self, stream: Pin<Box<dyn Stream>>, mut bytes: Vec<u8>) -> io::Result<()> {
        let (mut reader, mut writer) = tokio::io::split(stream);
        let often = Duration::from_millis(u64::from(self.welcome.ttl_ms / 8).max(1));
        let mut ticks = tokio::time::interval(TICK.min(often));
        bytes.reserve(READ_BYTES);
        loop {
            self.handle_frames(&mut bytes)?;
            let unsent = self.state.lock().take_unsent();
            if !unsent.is_empty() {
                writer.write_all(&unsent).await?;
                writer.flush().await?; // What is sealed may be kept until then.
                drop(unsent);
                self.state.lock().has_sent();
            }
            tokio::select! {
                read = reader.read_buf(&mut bytes) => {
                    if read? == 0 {
                        return Err(ErrorKind::UnexpectedEof.into());
                    }
                }
                () = self.wake.notified() => {}
                _ = ticks.tick() => {
                    if !self.tick() {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn handle_frames(&self, bytes: &mut Vec<u8>) -> io::Result<()> {
        let garbled = |error| io::Error::new(ErrorKind::InvalidData, error);
        let mut begin = 0;
        while let Some(length) = wire::frame_length(&bytes[begin..]).map_err(garbled)? {
            let reply = wire::decode_reply(&bytes[begin + wire::LENGTH_BYTES..begin + length]).map_err(garbled)?;
            begin += length;
            let is_over = matches!(reply, Reply::Lost { .. });
            if matches!(reply, Reply::Recall { .. }) {
                self.end_dead(); // Perhaps what is in the way is a dead client's.
            }
            self.step(None, |state, out| state.relay.handle_reply(now_ms(), reply, out));
            if is_over {
                // The service may leave the connection open until it hears of us: nothing more comes over it.
                return Err(io::Error::new(
                    ErrorKind::ConnectionAborted,
                    "the lock service has ended the session",
                ));
            }
        }
        bytes.drain(..begin);
        Ok(())
    }

    /// Does what is due; says whether there still is a session.
    fn tick(&self) -> bool {
        let mut has_lease = true;
        self.step(None, |state, out| has_lease = state.relay.tick(now_ms(), out));
        has_lease
    }

    /// Does something to the relay, and sends what follows from it.
    fn step(&self, own: Option<&ServerSession>, act: impl FnOnce(&mut ProxyState, &mut Vec<Send>)) {
        let mut out = Vec::new();
        let mut state = self.state.lock();
        act(&mut state, &mut out);
        for send in out {
            match send {
                Send::Up(request) => wire::append_request(&mut state.unsent, &request),
                Send::Down(client, reply) => {
                    if let Some(member) = state.members.get(&client) {
                        member.outbox.push(&reply, own.is_some_and(|own| own.id == client));
                    }
                }
            }
        }
        state.measure();
        if !state.unsent.is_empty() {
            self.wake.notify_one();
        }
    }

    /// Ends the sessions of clients that are gone. Who has waited for the end of a process (waitpid(2)) asks after that, and to the service goes
    /// first what the process has given up.
    fn end_dead(&self) {
        loop {
            let gone = self.watch.gone();
            let known = |client: &SessionId| self.state.lock().members.get(client).cloned();
            let members: Vec<_> = gone.iter().filter_map(known).collect();
            if members.is_empty() {
                return;
            }
            members.iter().for_each(|member| self.close(member));
        }
    }

    /// Whether the service reads so slowly that what clients give back has filled the memory: that is never refused.
    fn is_stuck(&self) -> bool {
        !self.memory.has(0) && self.state.lock().room.bytes() > UNSENT_BYTES
    }

    fn each_member(&self, act: impl Fn(&Outbox)) {
        self.state
            .lock()
            .members
            .values()
            .for_each(|member| act(&member.outbox));
    }
}

impl RequestHandler for Proxy {
    fn open(&self, name: String, ttl_ms: u32, peer: Peer) -> Result<(Arc<ServerSession>, Welcome), UpstreamSilent> {
        let mut state = self.state.lock();
        state.last_session += 1;
        let session = SessionId(state.last_session);
        let now = now_ms();
        let Terms { ttl_ms, grace_ms } = state.relay.open(now, session, ttl_ms)?;
        // A client that dies leaves nothing: it has a lease only because the proxy may die.
        let member = ServerSession::new(session, name, now, false, peer.uid, &self.memory);
        state.members.insert(session, Arc::clone(&member));
        let welcome = Welcome {
            session,
            ttl_ms,
            grace_ms,
            ..self.welcome.clone()
        };
        Ok((member, welcome))
    }

    fn watch(&self, member: &ServerSession) {
        if let Some(socket) = member.socket() {
            self.watch.add(member.id, socket);
        }
    }

    fn apply(&self, member: &ServerSession, request: Request, _known: KnownOverlaps) -> Option<Box<LongComparison>> {
        if request.is_answered_at_once() {
            self.end_dead();
        }
        self.step(Some(member), |state, out| {
            state.relay.ask(now_ms(), member.id, request, out);
        });
        if self.is_stuck() {
            member.outbox.end(&relay::full(self.memory.bytes_max()).to_string());
        }
        None
    }

    fn forget(&self, _member: &ServerSession, _refused: &[LockId]) {}

    fn close(&self, member: &ServerSession) {
        if let Some(socket) = member.socket() {
            self.watch.remove(socket);
        }
        self.step(None, |state, out| {
            state.relay.close(member.id, out);
            state.members.remove(&member.id);
        });
    }

    fn disconnect(&self, member: &ServerSession) {
        self.step(None, |state, out| state.relay.take_back(now_ms(), member.id, out));
    }

    fn holds_something(&self, member: &ServerSession) -> bool {
        self.state.lock().relay.may_hold(member.id)
    }

    fn turned_away(&self) {}

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn memory(&self) -> &Memory {
        &self.memory
    }

    fn full_memory(&self) -> Refusal {
        relay::full(self.memory.bytes_max())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use elbow_ranges::Footprint;

    use super::*;
    use crate::hello::PROTOCOL_NEWEST;
    use crate::message::{FileName, LockMode, LockRequest, Owner, PosixRequest, QueryRequest, Token, Wait};

    const PEER: Peer = Peer {
        is_local: true,
        uid: Some(1_000),
    };

    fn proxy() -> Proxy {
        let welcome = Welcome {
            version: PROTOCOL_NEWEST,
            session: SessionId(1),
            ttl_ms: 100_000,
            epoch: 1,
            grace_ms: 0,
            grace_ms_max: 100_000,
        };
        Proxy::new(welcome, now_ms(), 1 << 20).unwrap()
    }

    /// A client, and what is its own end of the connection.
    fn client(proxy: &Proxy) -> (Arc<ServerSession>, UnixStream) {
        let (member, _) = proxy.open("test".to_owned(), 0, PEER).unwrap();
        let (theirs, ours) = UnixStream::pair().unwrap();
        member.ends_with(ours.into());
        proxy.watch(&member);
        (member, theirs)
    }

    fn file() -> FileName {
        FileName::new(b"/f").unwrap()
    }

    fn lock(id: u64, wait: Wait) -> Request {
        Request::Lock(LockRequest {
            id: LockId(id),
            owner: Owner(1),
            file: file(),
            mode: LockMode::Exclusive,
            footprint: Footprint::whole(),
            wait,
            recall: false,
        })
    }

    fn posix(id: u64, wait: Wait) -> Request {
        Request::Posix(PosixRequest {
            id: LockId(id),
            owner: Owner(1),
            file: file(),
            start: 0,
            end: 10,
            mode: Some(LockMode::Exclusive),
            wait,
        })
    }

    fn query() -> Request {
        Request::Query(QueryRequest {
            id: LockId(9),
            owner: Owner(1),
            file: file(),
            mode: LockMode::Shared,
            start: 0,
            end: 10,
        })
    }

    /// What has been said to the service since the last look.
    fn said(proxy: &Proxy) -> Vec<Request> {
        let unsent = proxy.state.lock().take_unsent();
        let mut bytes = &unsent[..];
        let mut requests = Vec::new();
        while let Ok(Some(length)) = wire::frame_length(bytes) {
            requests.push(wire::decode_request(&bytes[wire::LENGTH_BYTES..length]).unwrap());
            bytes = &bytes[length..];
        }
        requests
    }

    /// A client of the proxy has asked for something, has got it, and is dead; no task of its connection has run.
    fn with_a_dead_holder(of: Request) -> Proxy {
        let proxy = proxy();
        let (holder, connection) = client(&proxy);
        assert!(proxy.apply(&holder, of, KnownOverlaps::default()).is_none());
        let [Request::Lock(LockRequest { id, .. }) | Request::Posix(PosixRequest { id, .. })] = said(&proxy)[..] else {
            panic!("it asked for a lock")
        };
        let granted = Reply::Granted { id, token: Token(7) };
        proxy.step(None, |state, out| state.relay.handle_reply(now_ms(), granted, out));
        drop(connection);
        assert!(proxy.holds_something(&holder));
        proxy
    }

    /// The service learned of the death after it had refused who asked: at once, and because of a lock of nobody's.
    #[test]
    fn what_the_dead_hold_is_given_up_before_a_client_of_the_same_proxy_asks() {
        let tries = [lock(5, Wait::Try), posix(5, Wait::Try), query()];
        for (of, asked) in [lock(1, Wait::Forever), posix(1, Wait::Forever)]
            .into_iter()
            .flat_map(|of| tries.iter().map(move |asked| (of.clone(), asked.clone())))
        {
            let proxy = with_a_dead_holder(of.clone());
            let (other, _connection) = client(&proxy);
            assert!(proxy.apply(&other, asked.clone(), KnownOverlaps::default()).is_none());
            let said = said(&proxy);
            let given_up = match of {
                Request::Lock(_) => matches!(said[0], Request::Cancel { .. }),
                _ => matches!(said[0], Request::PosixRelease { file: None, .. }),
            };
            assert!(given_up && said.len() > 1, "{of:?}, {asked:?}: {said:?}");
            assert_eq!(proxy.state.lock().members.len(), 1);
            assert!(proxy.watch.gone().is_empty(), "it is looked for no more");
        }
    }

    /// Before it refuses somebody from elsewhere the service asks for what is in the way.
    #[test]
    fn what_the_dead_hold_is_given_up_when_the_service_asks_for_it() {
        let proxy = with_a_dead_holder(lock(1, Wait::Forever));
        let mut bytes = Vec::new();
        wire::append_reply(&mut bytes, &Reply::Recall { id: LockId(u64::MAX) });
        proxy.handle_frames(&mut bytes).unwrap();
        assert!(matches!(said(&proxy)[..], [Request::Cancel { .. }, ..]));
    }
}
