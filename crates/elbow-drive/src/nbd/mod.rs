//! A drive as a network block device (NBD), for qemu, libnbd, fio and the kernel's nbd-client.
//!
//! ```text
//!   listener ──a thread for each client──> negotiate ──> requests ──> Link
//!                                                └ a thread that writes answers <─┘
//! ```
//!
//! One export, without a name. Offered: flush, forced unit access, trim, zeros, several connections to the same drive. Not offered:
//! structured replies, TLS; whoever reaches the address may write.
//!
//! What a client may have under way is bounded (`room`): its next request is read when there is room.

mod connection;
mod room;
mod stream;
mod wire;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

pub use stream::{NbdAddress, NbdAddressError};

use crate::drive::Link;
use stream::{Listener, Stream};

/// Clients at a time.
const CLIENTS_MAX: usize = 64;

/// Who is connected, and to what.
struct Clients {
    link: Mutex<Link>,
    streams: Mutex<BTreeMap<u64, Stream>>,
    closed: AtomicBool,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Clients {
    fn serve(self: &Arc<Self>, number: u64, stream: Stream) -> io::Result<()> {
        let link = lock(&self.link).clone();
        let mut streams = lock(&self.streams);
        if streams.len() >= CLIENTS_MAX {
            return Ok(()); // Closed at once.
        }
        streams.insert(number, stream.try_clone()?);
        drop(streams);
        let clients = Arc::clone(self);
        let serve = move || {
            // How a client ends is its own business.
            let _ = connection::serve(stream, &link);
            lock(&clients.streams).remove(&number);
        };
        std::thread::Builder::new().name("elbow-nbd".into()).spawn(serve)?;
        Ok(())
    }

    fn disconnect(&self) {
        lock(&self.streams).values().for_each(Stream::shut_down);
    }
}

/// A server of one drive.
pub(crate) struct NbdServer {
    address: NbdAddress,
    clients: Arc<Clients>,
    thread: Option<JoinHandle<()>>,
}

impl NbdServer {
    pub(crate) fn start(address: &NbdAddress, link: Link) -> io::Result<Self> {
        let (listener, address) = Listener::at(address)?;
        let clients = Arc::new(Clients {
            link: Mutex::new(link),
            streams: Mutex::default(),
            closed: AtomicBool::new(false),
        });
        let shared = Arc::clone(&clients);
        let thread = std::thread::Builder::new()
            .name("elbow-nbd-listen".into())
            .spawn(move || listen(&listener, &shared))?;
        Ok(Self {
            address,
            clients,
            thread: Some(thread),
        })
    }

    pub(crate) fn address(&self) -> &NbdAddress {
        &self.address
    }

    /// After a power cut: who is connected is not any more, who connects gets the new link.
    pub(crate) fn replace(&self, link: Link) {
        *lock(&self.clients.link) = link;
        self.clients.disconnect();
    }
}

impl Drop for NbdServer {
    #[allow(clippy::disallowed_methods, reason = "its own socket")]
    fn drop(&mut self) {
        self.clients.closed.store(true, Ordering::Release);
        // The listener looks when somebody comes.
        match &self.address {
            NbdAddress::Unix(path) => {
                let _ = UnixStream::connect(path);
                let _ = std::fs::remove_file(path);
            }
            NbdAddress::Tcp(address) => drop(TcpStream::connect(address)),
        }
        self.thread.take().map(JoinHandle::join);
        self.clients.disconnect();
    }
}

fn listen(listener: &Listener, clients: &Arc<Clients>) {
    for number in 0.. {
        let accepted = listener.accept();
        if clients.closed.load(Ordering::Acquire) {
            return;
        }
        // One that cannot be served is closed; others may come.
        let served = accepted.and_then(|stream| clients.serve(number, stream));
        if served.is_err() {
            std::thread::yield_now();
        }
    }
}

impl fmt::Debug for NbdServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NbdServer")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
