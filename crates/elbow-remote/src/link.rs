//! The near end of a connection: many requests under way at once, each answered when its reply comes.
//!
//! Any thread may send; one thread reads the replies. When the connection ends, for whatever reason, everybody who waits gets ENOTCONN, and so
//! does whoever asks after that: nothing is sent twice, for nobody knows what the far end had done.

use std::collections::HashMap;
use std::io::{self, IoSlice, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak, mpsc};

use elbow_file::{Errno, Handle, errno_from_elsewhere};
use parking_lot::Mutex;
use tracing::warn;

use crate::call::{Answer, Call};
use crate::frame::{self, Frame};
use crate::message::{Id, ROOT, Reply, Request, UNANSWERED};
use crate::packing::Packing;

/// An answer, and the bytes that came with it.
pub(crate) type Answered = Result<(Answer, Vec<u8>), Errno>;
type OnReply = Box<dyn FnOnce(Answered) + Send>;

/// See the module's header.
pub(crate) struct Link {
    to: Mutex<Box<dyn Write + Send>>,
    /// Who waits for which reply; `None` when the connection has ended.
    waiting: Mutex<Option<HashMap<u64, OnReply>>>,
    next_number: AtomicU64,
    next_id: AtomicU64,
    released: Mutex<Vec<Id>>,
    packing: Packing,
}

/// What stands here for an object that is open at the far end.
pub(crate) struct Remote {
    pub(crate) id: Id,
    link: Weak<Link>,
    /// Somebody has told the far end, or it never had it.
    is_released: AtomicBool,
}

impl Drop for Remote {
    fn drop(&mut self) {
        if !self.is_released.load(Ordering::Acquire)
            && let Some(link) = self.link.upgrade()
        {
            link.release(self.id);
        }
    }
}

impl Remote {
    /// The far end has closed it.
    pub(crate) fn note_closed(&self) {
        self.is_released.store(true, Ordering::Release);
    }
}

impl Link {
    /// A connection that is greeted already.
    pub(crate) fn start(from: impl Read + Send + 'static, to: impl Write + Send + 'static) -> io::Result<Arc<Self>> {
        let link = Arc::new(Self {
            to: Mutex::new(Box::new(to)),
            waiting: Mutex::new(Some(HashMap::new())),
            next_number: AtomicU64::new(UNANSWERED + 1),
            next_id: AtomicU64::new(ROOT + 1),
            released: Mutex::default(),
            packing: Packing::default(),
        });
        let reads = Arc::downgrade(&link);
        std::thread::Builder::new()
            .name("elbow-replies".into())
            .spawn(move || read_replies(from, &reads))?;
        Ok(link)
    }

    /// From now on both ends pack what they send, unless the line is fast.
    pub(crate) fn compress(&self) {
        self.packing.allow();
        // Nobody waits for it, and a connection that has ended compresses nothing.
        self.send(Request::about(Vec::new(), Call::Compress), &[], Box::new(|_| ()));
    }

    /// The directory that all names are below.
    pub(crate) fn root(self: &Arc<Self>) -> Handle {
        self.handle(ROOT)
    }

    /// A handle for an object that a request is going to open.
    pub(crate) fn promise(self: &Arc<Self>) -> Handle {
        self.handle(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    fn handle(self: &Arc<Self>, id: Id) -> Handle {
        Handle::of_elsewhere(Remote {
            id,
            link: Arc::downgrade(self),
            is_released: AtomicBool::new(id == ROOT),
        })
    }

    /// Sends a request; `on_reply` hears what came of it.
    pub(crate) fn send(&self, mut request: Request, content: &[IoSlice<'_>], on_reply: OnReply) {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        if let Err(on_reply) = self.wait_for(number, on_reply) {
            return on_reply(Err(Errno::NOTCONN));
        }
        let content = self.packing.pack(content);
        let sent = {
            // What is released now was named by requests that were sent before: so the two locks are taken in this order.
            let mut to = self.to.lock();
            request.released = std::mem::take(&mut *self.released.lock());
            let encoded = frame::encode(&request, &content);
            if encoded.is_err() {
                // The next request says it.
                self.released.lock().append(&mut request.released);
            }
            encoded.map(|encoded| {
                self.packing.watch(encoded.bytes() + content.bytes(), || {
                    encoded.write(&mut *to, number, &content)
                })
            })
        };
        match sent {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.end(&error),
            // It cannot be said: too long for the protocol.
            Err(_) => self.reply(number, Err(Errno::MSGSIZE)),
        }
    }

    /// Gives it back when the connection has ended.
    fn wait_for(&self, number: u64, on_reply: OnReply) -> Result<(), OnReply> {
        match &mut *self.waiting.lock() {
            Some(waiting) => waiting.insert(number, on_reply),
            None => return Err(on_reply),
        };
        Ok(())
    }

    /// Sends a request and waits for what comes of it.
    pub(crate) fn ask(&self, request: Request, content: &[IoSlice<'_>]) -> Answered {
        let (told, tells) = mpsc::sync_channel(1);
        let tell = move |answer| {
            let _ = told.send(answer);
        };
        self.send(request, content, Box::new(tell));
        tells.recv().unwrap_or(Err(Errno::NOTCONN))
    }

    /// Nobody here needs an object any more; the next request says so. Whoever drops a handle may hold any lock, or be the thread that reads
    /// replies: nothing is written here.
    fn release(&self, id: Id) {
        self.released.lock().push(id);
    }

    /// Says nothing more: the far end hears that the connection ends. Answers that are under way still come.
    pub(crate) fn close(&self) {
        *self.to.lock() = Box::new(Closed);
    }

    fn reply(&self, number: u64, answer: Answered) {
        let on_reply = self.waiting.lock().as_mut().and_then(|waiting| waiting.remove(&number));
        if let Some(on_reply) = on_reply {
            on_reply(answer);
        }
    }

    /// The connection has ended.
    fn end(&self, why: &io::Error) {
        let Some(waiting) = self.waiting.lock().take() else {
            return;
        };
        warn!(%why, waiting = waiting.len(), "the connection has ended");
        for on_reply in waiting.into_values() {
            on_reply(Err(Errno::NOTCONN));
        }
    }
}

/// Nobody listens any more.
struct Closed;

impl Write for Closed {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

fn read_replies(mut from: impl Read, link: &Weak<Link>) {
    loop {
        let frame = frame::read(&mut from);
        let Some(link) = link.upgrade() else { return };
        match frame.and_then(|frame| frame.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())) {
            Ok(frame) => {
                if let Err(error) = take_reply(&link, frame) {
                    return link.end(&error);
                }
            }
            Err(error) => return link.end(&error),
        }
    }
}

fn take_reply(link: &Link, frame: Frame) -> io::Result<()> {
    let answer = match frame.decode::<Reply>()? {
        Ok(answer) => Ok((answer, frame.content)),
        Err(errno) => Err(errno_from_elsewhere(errno)),
    };
    link.reply(frame.number, answer);
    Ok(())
}
