//! One connection to a lock service: the hello, frames out, frames in. No threads; blocks where it says so.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use elbow_ranges::encoding::DecodeError;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::core::Opened;
use super::stream::Stream;
use crate::address::Address;
use crate::credentials::{self, Credentials};
use crate::error::LockError;
use crate::hello::{self, PROTOCOL_VERSION, Welcome};
use crate::message::{Reply, Request, SessionId};
use crate::wire;

/// A service that does not answer a hello for so long is none.
pub(crate) const HELLO_FOR: Duration = Duration::from_secs(10);
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
pub enum Disconnected {
    /// The connection.
    Io(io::Error),
    /// Bytes that are not the protocol.
    Garbled(DecodeError),
}

impl std::error::Error for Disconnected {}

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
    /// connection). `credentials` are for TCP.
    ///
    /// # Errors
    /// When nobody is there, or the service does not let us in.
    pub fn open(
        address: &Address,
        name: &str,
        ttl_ms: u32,
        credentials: Option<&Credentials>,
    ) -> Result<Self, LockError> {
        if let (Address::Unix(_), Some(_)) = (address, credentials) {
            return Err(LockError::Rejected {
                address: address.clone(),
                why: "a Unix socket asks for no key, and so cannot be the service that we share one with".to_owned(),
            });
        }
        let opened_ms = now_ms();
        let stream = Stream::connect(address, credentials, HELLO_FOR).map_err(|error| not_opened(address, error))?;
        Self::greet(stream, address, name, ttl_ms, opened_ms)
    }

    /// Says hello over a socket that is connected to `address`; the session lasts as long as that does.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn over(stream: UnixStream, address: &Address, name: &str) -> Result<Self, LockError> {
        let stream = Stream::over(stream);
        stream
            .set_timeout(Some(HELLO_FOR))
            .map_err(|error| not_opened(address, error))?;
        Self::greet(stream, address, name, 0, now_ms())
    }

    /// Goes on with a session that another process, or this one before an exec, has opened with [`over`](Self::over).
    /// Replies go to whoever receives first: only one process may have requests under way.
    #[must_use]
    pub fn adopt(stream: UnixStream) -> Self {
        Self {
            stream: Stream::over(stream),
            sending: Mutex::default(),
            inbox: Mutex::default(),
            welcome: Welcome {
                version: PROTOCOL_VERSION,
                session: SessionId(0),
                ttl_ms: 0,
                epoch: 0,
                grace_ms: 0,
                grace_ms_max: 0,
            },
            opened_ms: now_ms(),
        }
    }

    fn greet(stream: Stream, address: &Address, name: &str, ttl_ms: u32, opened_ms: u64) -> Result<Self, LockError> {
        let failed = |error| not_opened(address, error);
        stream.send(&hello::frame(name, ttl_ms)).map_err(failed)?;
        let mut inbox = Inbox::default();
        let welcome = loop {
            match inbox.next() {
                Ok(Some(payload)) => break hello::answer(payload, address)?,
                Ok(None) => inbox.fill(&stream, false).map_err(failed)?,
                Err(source) => {
                    let address = address.clone();
                    return Err(LockError::Garbled { address, source });
                }
            }
        };
        let silence = (welcome.ttl_ms > 0).then(|| Duration::from_millis(u64::from(welcome.ttl_ms / 3).max(1)));
        stream.set_timeout(silence).map_err(failed)?;
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
        self.stream.send(&frame)
    }

    /// Receives into `replies`: at least one with [`Received::Replies`].
    ///
    /// # Errors
    /// When the connection ended or broke.
    pub fn receive(&self, how: Receive, replies: &mut Vec<Reply>) -> Result<Received, Disconnected> {
        let mut inbox = self.inbox.lock();
        loop {
            while let Some(payload) = inbox.next().map_err(Disconnected::Garbled)? {
                replies.push(wire::decode_reply(payload).map_err(Disconnected::Garbled)?);
            }
            if !replies.is_empty() && how != Receive::Poll {
                return Ok(Received::Replies);
            }
            if let Receive::Until(at_ms) = how
                && !self.is_readable_by(at_ms).map_err(Disconnected::Io)?
            {
                return Ok(Received::Nothing);
            }
            match inbox.fill(&self.stream, matches!(how, Receive::Poll | Receive::Until(_))) {
                Ok(()) => {}
                // Part of a record: what is waited for may still come in time.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && matches!(how, Receive::Until(_)) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Received::Nothing),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    if how == Receive::UntilSignal {
                        return Ok(Received::Signal);
                    }
                }
                Err(error) => return Err(Disconnected::Io(error)),
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

    /// Ends the connection; whoever reads it finds its end.
    pub fn close(&self) {
        // It may have ended already.
        let _ = rustix::net::shutdown(self.stream.as_fd(), rustix::net::Shutdown::Both);
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
        stream.receive(&mut self.bytes, poll)
    }
}

/// Why no connection could be opened: the other side is not there, or is not whom we know.
pub(crate) fn not_opened(address: &Address, source: io::Error) -> LockError {
    let address = address.clone();
    match credentials::refusal(&source) {
        Some(why) => LockError::Rejected { address, why },
        None => LockError::Unreachable { address, source },
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
