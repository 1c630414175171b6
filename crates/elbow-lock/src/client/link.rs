//! One connection to a lock service: the hello, frames out, frames in. No threads; blocks where it says so.

use std::io::{self, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use elbow_ranges::encoding::DecodeError;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::time::{ClockId, clock_gettime};

use super::core::Opened;
use crate::address::Address;
use crate::error::LockError;
use crate::hello::{Hello, Key, Nonce, Opening, PROTOCOL_VERSION, Proof, Side, Welcome};
use crate::message::{Reply, Request, SessionId};
use crate::wire;

/// A service that does not answer a hello for so long is none.
const HELLO_FOR: Duration = Duration::from_secs(10);
const READ_BYTES: usize = 16 << 10;
/// Longest time for one call of poll(2), whose clock stands still while the machine sleeps.
const POLL_MAX: Duration = Duration::from_secs(1);

/// A connection whose hello is over: what [`Client`](crate::Client) is made of, for programs that keep their own books
/// of what they asked for. Frames go out whole; whoever receives gets all replies that are there.
///
/// ```no_run
/// use elbow_lock::{Link, Receive, Request};
///
/// let link = Link::open(&"unix:/run/locks".parse()?, "me", 0, None)?;
/// link.send(&Request::Renew { seq: 1 })?;
/// let mut replies = Vec::new();
/// link.receive(Receive::Block, &mut replies)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Link {
    stream: Stream,
    /// Locked while a frame is written, so that frames do not mix.
    sending: Mutex<Vec<u8>>,
    inbox: Mutex<Inbox>,
    pub(crate) welcome: Welcome,
    /// When the hello was sent: the session is not older than this.
    pub(crate) opened_ms: u64,
}

pub(crate) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// Bytes that came and are not decoded yet.
#[derive(Default)]
struct Inbox {
    bytes: Vec<u8>,
    begin: usize,
}

/// Milliseconds of a clock that does not go back, and goes on while the machine sleeps, as leases do.
#[must_use]
pub fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    // Neither is negative.
    now.tv_sec.unsigned_abs() * 1_000 + now.tv_nsec.unsigned_abs() / 1_000_000
}

/// What ended a link.
#[derive(Debug)]
pub enum Broken {
    /// The connection.
    Io(io::Error),
    /// Bytes that are not the protocol.
    Garbled(DecodeError),
}

impl std::error::Error for Broken {}

/// How a receive ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// There are replies.
    Replies,
    /// Nothing is there (any more), or nothing came for a third of the lease.
    Nothing,
    /// A signal came.
    Signal,
}

/// How a receive may end before there is a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receive {
    /// Waits until one is there.
    Block,
    /// As `Block`, but a signal ends the wait.
    UntilSignal,
    /// Takes what is there.
    Poll,
    /// Waits until one is there, or it is this time by [`now_ms`].
    Until(u64),
}

impl Link {
    /// Connects and says hello: a session named `name` for people, with a lease of `ttl_ms` (0: as long as the
    /// connection).
    ///
    /// # Errors
    /// When nobody is there, or the service does not let us in.
    pub fn open(address: &Address, name: &str, ttl_ms: u32, key: Option<&Key>) -> Result<Self, LockError> {
        let stream = Stream::connect(address).map_err(|source| LockError::Unreachable {
            address: address.clone(),
            source,
        })?;
        Self::greet(stream, address, name, ttl_ms, key)
    }

    /// Says hello over a socket that is connected to `address`; the session lives as long as that does.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn over(stream: UnixStream, address: &Address, name: &str) -> Result<Self, LockError> {
        Self::greet(Stream::Unix(stream), address, name, 0, None)
    }

    /// Goes on with a session that another process, or this one before an exec, has opened with [`over`](Self::over).
    /// Replies go to whoever receives first: only one process may have requests under way.
    #[must_use]
    pub fn adopt(stream: UnixStream) -> Self {
        Self {
            stream: Stream::Unix(stream),
            sending: Mutex::default(),
            inbox: Mutex::default(),
            welcome: Welcome {
                version: PROTOCOL_VERSION,
                session: SessionId(0),
                ttl_ms: 0,
                epoch: 0,
                grace_ms: 0,
                grace_ms_max: 0,
                proof: Proof::default(),
            },
            opened_ms: now_ms(),
        }
    }

    fn greet(stream: Stream, address: &Address, name: &str, ttl_ms: u32, key: Option<&Key>) -> Result<Self, LockError> {
        let unreachable = |source| LockError::Unreachable {
            address: address.clone(),
            source,
        };
        stream.set_timeout(Some(HELLO_FOR)).map_err(unreachable)?;
        let mut nonce = Nonce::default();
        getrandom::fill(&mut nonce).map_err(|error| unreachable(io::Error::other(error)))?;
        let opened_ms = now_ms();
        let mut hello = Doorstep {
            address,
            stream: &stream,
            inbox: Inbox::default(),
        };
        hello.say(&Opening::Hello(Hello {
            version: PROTOCOL_VERSION,
            ttl_ms,
            name: name.to_owned(),
            nonce,
        }))?;
        let welcome = hello.be_let_in(&nonce, key)?;
        let inbox = hello.inbox;
        let silence = (welcome.ttl_ms > 0).then(|| Duration::from_millis(u64::from(welcome.ttl_ms / 3).max(1)));
        stream.set_timeout(silence).map_err(unreachable)?;
        Ok(Self {
            stream,
            sending: Mutex::default(),
            inbox: Mutex::new(inbox),
            welcome,
            opened_ms,
        })
    }

    /// The lease that was granted, ms; 0: as long as the connection.
    #[must_use]
    pub fn ttl_ms(&self) -> u32 {
        self.welcome.ttl_ms
    }

    /// What the service said when it let us in.
    #[must_use]
    pub fn opened(&self) -> Opened {
        Opened {
            at_ms: self.opened_ms,
            ttl_ms: self.welcome.ttl_ms,
            epoch: self.welcome.epoch,
            grace_ms: self.welcome.grace_ms,
            grace_ms_max: self.welcome.grace_ms_max,
        }
    }

    /// When the hello was sent, by [`now_ms`]: the lease began then.
    #[must_use]
    pub fn opened_ms(&self) -> u64 {
        self.opened_ms
    }

    /// Sends a request; blocks while the service takes nothing.
    ///
    /// # Errors
    /// When the connection broke.
    pub fn send(&self, request: &Request) -> io::Result<()> {
        let mut frame = self.sending.lock();
        frame.clear();
        wire::append_request(&mut frame, request);
        (&self.stream).write_all(&frame)
    }

    /// Receives into `replies`: at least one with [`Received::Replies`].
    ///
    /// # Errors
    /// When the connection ended or broke.
    pub fn receive(&self, how: Receive, replies: &mut Vec<Reply>) -> Result<Received, Broken> {
        let mut inbox = self.inbox.lock();
        loop {
            while let Some(payload) = inbox.next().map_err(Broken::Garbled)? {
                replies.push(wire::decode_reply(payload).map_err(Broken::Garbled)?);
            }
            if !replies.is_empty() && how != Receive::Poll {
                return Ok(Received::Replies);
            }
            if let Receive::Until(at_ms) = how
                && !self.is_readable_by(at_ms).map_err(Broken::Io)?
            {
                return Ok(Received::Nothing);
            }
            match inbox.fill(&self.stream, matches!(how, Receive::Poll | Receive::Until(_))) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Received::Nothing),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    if how == Receive::UntilSignal {
                        return Ok(Received::Signal);
                    }
                }
                Err(error) => return Err(Broken::Io(error)),
            }
        }
    }

    /// Waits until something can be read, if that comes in time.
    fn is_readable_by(&self, at_ms: u64) -> io::Result<bool> {
        loop {
            let left = Duration::from_millis(at_ms.saturating_sub(now_ms())).min(POLL_MAX);
            let left = Timespec::try_from(left).unwrap_or_default();
            let mut polled = [PollFd::new(&self.stream, PollFlags::IN)];
            match poll(&mut polled, Some(&left)) {
                Ok(0) if now_ms() < at_ms => {}
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The connection itself, and what came after the welcome.
    #[cfg(feature = "server")]
    pub(crate) fn into_parts(self) -> (Stream, Vec<u8>) {
        let Inbox { mut bytes, begin } = self.inbox.into_inner();
        bytes.drain(..begin);
        (self.stream, bytes)
    }

    /// Ends the connection; whoever reads it finds its end.
    pub fn close(&self) {
        // It may have ended already.
        let _ = rustix::net::shutdown(self.stream.as_fd(), rustix::net::Shutdown::Both);
    }
}

/// The client's side of a hello.
struct Doorstep<'a> {
    address: &'a Address,
    stream: &'a Stream,
    inbox: Inbox,
}

impl Doorstep<'_> {
    fn be_let_in(&mut self, nonce: &Nonce, key: Option<&Key>) -> Result<Welcome, LockError> {
        match (self.hear()?, key) {
            (Opening::Welcome(welcome), None) => Ok(welcome),
            (Opening::Welcome(_), Some(_)) => {
                Err(self.rejected("it asks for no key, and so cannot be the one we share a key with"))
            }
            (Opening::Challenge(_), None) => Err(self.rejected("it asks for a key; name its key file")),
            (Opening::Challenge(theirs), Some(key)) => {
                self.say(&Opening::Proof(key.prove(Side::Client, nonce, &theirs)))?;
                match self.hear()? {
                    Opening::Welcome(welcome) if key.accepts(Side::Service, nonce, &theirs, &welcome.proof) => {
                        Ok(welcome)
                    }
                    _ => Err(self.rejected("it does not know our key")),
                }
            }
            _ => Err(self.rejected("it answered a hello with something else")),
        }
    }

    fn say(&self, opening: &Opening) -> Result<(), LockError> {
        let mut frame = Vec::new();
        opening.append(&mut frame);
        let mut stream = self.stream;
        stream.write_all(&frame).map_err(|source| self.unreachable(source))
    }

    fn hear(&mut self) -> Result<Opening, LockError> {
        loop {
            match self.inbox.next().map(|payload| payload.map(<[u8]>::to_vec)) {
                Ok(Some(payload)) => return self.understand(&payload),
                Ok(None) => self
                    .inbox
                    .fill(self.stream, false)
                    .map_err(|source| self.unreachable(source))?,
                Err(source) => {
                    return Err(LockError::Garbled {
                        address: self.address.clone(),
                        source,
                    });
                }
            }
        }
    }

    fn understand(&self, payload: &[u8]) -> Result<Opening, LockError> {
        match Opening::decode(payload) {
            Ok(opening) => Ok(opening),
            Err(source) => match wire::decode_reply(payload) {
                Ok(Reply::Lost { why }) => Err(self.rejected(&why)),
                _ => Err(LockError::Garbled {
                    address: self.address.clone(),
                    source,
                }),
            },
        }
    }

    fn rejected(&self, why: &str) -> LockError {
        LockError::Rejected {
            address: self.address.clone(),
            why: why.to_owned(),
        }
    }

    fn unreachable(&self, source: io::Error) -> LockError {
        LockError::Unreachable {
            address: self.address.clone(),
            source,
        }
    }
}

impl Inbox {
    /// The next whole frame's payload.
    fn next(&mut self) -> Result<Option<&[u8]>, DecodeError> {
        let Some(length) = wire::frame_length(&self.bytes[self.begin..])? else {
            return Ok(None);
        };
        let payload = self.begin + wire::LENGTH_BYTES..self.begin + length;
        self.begin += length;
        Ok(Some(&self.bytes[payload]))
    }

    /// Adds what comes next; an end is an error.
    fn fill(&mut self, stream: &Stream, poll: bool) -> io::Result<()> {
        self.bytes.drain(..self.begin);
        self.begin = 0;
        let had = self.bytes.len();
        self.bytes.resize(had + READ_BYTES, 0);
        let got = stream.receive(&mut self.bytes[had..], poll);
        self.bytes.truncate(had + *got.as_ref().unwrap_or(&0));
        match got? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection")),
            _ => Ok(()),
        }
    }
}

impl Stream {
    fn connect(address: &Address) -> io::Result<Self> {
        match address {
            Address::Unix(path) => UnixStream::connect(path).map(Self::Unix),
            Address::Tcp(place) => {
                let stream = TcpStream::connect(place)?;
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(stream))
            }
        }
    }

    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_read_timeout(timeout),
            Self::Tcp(stream) => stream.set_read_timeout(timeout),
        }
    }

    fn receive(&self, into: &mut [u8], poll: bool) -> io::Result<usize> {
        let flags = if poll { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
        let (_, got) = rustix::net::recv(self.as_fd(), into, flags)?;
        Ok(got)
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Not write(2): a library must not let its program die of SIGPIPE.
        Ok(rustix::net::send(self.as_fd(), bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
