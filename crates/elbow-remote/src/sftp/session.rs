//! One channel to an SFTP server: many requests under way at once, each answered when its reply comes.
//!
//! Any thread may send; one thread reads the replies. When the connection ends, for whatever reason, everybody who waits gets ENOTCONN, and so
//! does whoever asks after that: nothing is sent twice, for nobody knows what the server had done.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Weak};

use elbow_file::Errno;
use parking_lot::Mutex;
use tracing::{debug, warn};

use super::server::Server;
use super::wire::{self, Ask, Attrs, Fields, Malformed, Reply, Request, Status};

/// A server says what it can in one packet; more than these extensions has none.
const EXTENSIONS_MAX: usize = 1000;

/// Why a request was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// What the server says.
    Said(Status),
    /// There is no connection any more, or the answer is one to something else.
    Lost(Errno),
}

/// An answer that is one to the question.
pub(crate) type Answered<T> = Result<T, Fault>;

const UNEXPECTED: Fault = Fault::Lost(Errno::PROTO);

/// A reply that is on its way.
#[derive(Debug)]
pub(crate) struct Pending(Receiver<Reply>);

impl Pending {
    /// Waits for it.
    pub(crate) fn wait(self) -> Answered<Reply> {
        match self.0.recv() {
            Ok(Reply::Refused(status)) => Err(Fault::Said(status)),
            Ok(reply) => Ok(reply),
            Err(_) => Err(Fault::Lost(Errno::NOTCONN)),
        }
    }

    pub(crate) fn done(self) -> Answered<()> {
        match self.wait()? {
            Reply::Done => Ok(()),
            _ => Err(UNEXPECTED),
        }
    }

    pub(crate) fn attrs(self) -> Answered<Attrs> {
        match self.wait()? {
            Reply::Attrs(attrs) => Ok(attrs),
            _ => Err(UNEXPECTED),
        }
    }

    pub(crate) fn handle(self) -> Answered<Vec<u8>> {
        match self.wait()? {
            Reply::Handle(handle) => Ok(handle),
            _ => Err(UNEXPECTED),
        }
    }

    pub(crate) fn names(self) -> Answered<Vec<wire::Name>> {
        match self.wait()? {
            Reply::Names(names) => Ok(names),
            _ => Err(UNEXPECTED),
        }
    }

    pub(crate) fn data(self) -> Answered<Vec<u8>> {
        match self.wait()? {
            Reply::Data(data) => Ok(data),
            _ => Err(UNEXPECTED),
        }
    }

    pub(crate) fn extended(self) -> Answered<Vec<u8>> {
        match self.wait()? {
            Reply::Extended(fields) => Ok(fields),
            _ => Err(UNEXPECTED),
        }
    }

    /// One name, as REALPATH and READLINK answer.
    pub(crate) fn name(self) -> Answered<Vec<u8>> {
        let mut names = self.names()?;
        match names.pop() {
            Some(name) if names.is_empty() => Ok(name.name),
            _ => Err(UNEXPECTED),
        }
    }
}

/// See the module's header.
pub(crate) struct Session {
    to: Mutex<Box<dyn Write + Send>>,
    /// Who waits for which reply; `None` when the connection has ended.
    waiting: Mutex<Option<HashMap<u32, SyncSender<Reply>>>>,
    next_number: AtomicU32,
    /// Handles that nobody needs any more, and that nobody has waited to see closed.
    released: Mutex<Vec<Vec<u8>>>,
    /// Handles that are open there.
    pub(crate) open: AtomicUsize,
    pub(crate) server: Server,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// The first words, which are for the server to be answered.
    ///
    /// # Errors
    /// The stream's.
    pub(crate) fn greet(to: &mut impl Write) -> io::Result<()> {
        // The version is where others have their number.
        to.write_all(&Request::new(Ask::Init).numbered(wire::VERSION))?;
        to.flush()
    }

    /// Hears a server that was greeted, and asks what it can.
    ///
    /// # Errors
    /// The streams', and what comes is not the protocol.
    pub(crate) fn start(
        mut from: impl Read + Send + 'static,
        mut to: impl Write + Send + 'static,
    ) -> io::Result<Arc<Self>> {
        let server = hear(&mut from, &mut to)?;
        debug!(?server, "an SFTP server");
        let session = Arc::new(Self {
            to: Mutex::new(Box::new(to)),
            waiting: Mutex::new(Some(HashMap::new())),
            next_number: AtomicU32::new(1),
            released: Mutex::default(),
            open: AtomicUsize::new(0),
            server,
        });
        let reads = Arc::downgrade(&session);
        std::thread::Builder::new()
            .name("elbow-replies".into())
            .spawn(move || read_replies(from, &reads))?;
        Ok(session)
    }

    /// Sends a request.
    pub(crate) fn send(&self, request: Request) -> Pending {
        let (tell, told) = mpsc::sync_channel(1);
        let pending = Pending(told);
        let number = self.wait_for(tell);
        let Some(number) = number else { return pending };
        let released = std::mem::take(&mut *self.released.lock());
        let closes = released.into_iter().filter_map(|handle| {
            // Nobody hears what comes of it.
            let number = self.wait_for(mpsc::sync_channel(1).0)?;
            Some(Request::new(Ask::Close).string(&handle).numbered(number))
        });
        let mut packets: Vec<u8> = closes.flatten().collect();
        let packet = request.numbered(number);
        let sent = if packets.is_empty() {
            self.to.lock().write_all(&packet)
        } else {
            packets.extend(packet);
            self.to.lock().write_all(&packets)
        };
        if let Err(error) = sent {
            self.end(&error);
        }
        pending
    }

    /// A number for a request; `None` when the connection has ended.
    fn wait_for(&self, tell: SyncSender<Reply>) -> Option<u32> {
        let mut waiting = self.waiting.lock();
        let waiting = waiting.as_mut()?;
        loop {
            // After four thousand millions they begin anew.
            let number = self.next_number.fetch_add(1, Ordering::Relaxed);
            if let std::collections::hash_map::Entry::Vacant(vacant) = waiting.entry(number) {
                vacant.insert(tell);
                return Some(number);
            }
        }
    }

    /// A handle is to be closed; the next request does it. Whoever drops one may hold any lock, or be the thread that reads replies: nothing
    /// is written here.
    pub(crate) fn release(&self, handle: Vec<u8>) {
        self.released.lock().push(handle);
    }

    /// Says nothing more: the server hears that the connection ends.
    pub(crate) fn close(&self) {
        *self.to.lock() = Box::new(io::sink());
        self.waiting.lock().take();
    }

    /// The connection has ended: who waits hears it by the end of the channel.
    fn end(&self, why: &io::Error) {
        if let Some(waiting) = self.waiting.lock().take() {
            warn!(%why, waiting = waiting.len(), "the connection has ended");
        }
    }

    fn reply(&self, number: u32, reply: Reply) {
        let tell = self.waiting.lock().as_mut().and_then(|waiting| waiting.remove(&number));
        if let Some(tell) = tell {
            // It has room for one, and nobody else tells.
            let _ = tell.try_send(reply);
        }
    }
}

fn read_replies(mut from: impl Read, session: &Weak<Session>) {
    loop {
        let packet = wire::read_packet(&mut from);
        let Some(session) = session.upgrade() else { return };
        match packet.and_then(|packet| Ok(wire::decode(&packet)?)) {
            Ok((number, reply)) => session.reply(number, reply),
            Err(error) => return session.end(&error),
        }
    }
}

/// What the server can, and its limits if it tells them. Nobody else reads or writes yet.
fn hear(from: &mut impl Read, to: &mut impl Write) -> io::Result<Server> {
    const VERSION_REPLY: u8 = 2;
    let packet = wire::read_packet(from)?;
    let mut fields = Fields(&packet);
    if fields.u8()? != VERSION_REPLY || fields.u32()? < wire::VERSION {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "no SFTP server of version 3 answered",
        ));
    }
    let mut server = Server::default();
    for _ in 0..EXTENSIONS_MAX {
        if fields.is_empty() {
            break;
        }
        let (name, version) = (fields.string()?, fields.string()?);
        server.note(name, version);
    }
    if server.tells_limits {
        to.write_all(&Request::extended(Server::LIMITS).numbered(0))?;
        to.flush()?;
        if let (_, Reply::Extended(limits)) = wire::decode(&wire::read_packet(from)?)? {
            server
                .note_limits(&limits)
                .map_err(|malformed: Malformed| io::Error::from(malformed))?;
        }
    }
    Ok(server)
}
