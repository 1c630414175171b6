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
//! What a client may have under way is bounded (`room`), and what all of them may, too: the next request is read when there is room.

mod connection;
mod room;
mod stream;
mod wire;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

pub use stream::{NbdAddress, NbdAddressError};

use crate::block_device::Link;
use room::SharedRoom;
use stream::{Listener, Stream};

/// Clients at a time.
const CLIENTS_MAX: usize = 64;
/// Where one cannot be served, as this process has no descriptors left, the next is not either until somebody goes.
const PAUSE: Duration = Duration::from_millis(10);

/// Who is connected, and to what.
struct Clients {
    link: Mutex<Link>,
    streams: Mutex<BTreeMap<u64, Stream>>,
    room: Arc<SharedRoom>,
    closed: AtomicBool,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Clients {
    fn of(link: Link) -> Self {
        Self {
            link: Mutex::new(link),
            streams: Mutex::default(),
            room: Arc::default(),
            closed: AtomicBool::new(false),
        }
    }

    fn serve(self: &Arc<Self>, number: u64, stream: Stream) -> io::Result<()> {
        let Some(link) = self.admit(number, stream.try_clone()?) else {
            return Ok(()); // Closed at once.
        };
        let clients = Arc::clone(self);
        let serve = move || {
            // How a client ends is its own business.
            let _ = connection::serve(stream, &link, Arc::clone(&clients.room));
            lock(&clients.streams).remove(&number);
        };
        let started = std::thread::Builder::new().name("elbow-nbd".into()).spawn(serve);
        if started.is_err() {
            lock(&self.streams).remove(&number);
        }
        started.map(drop)
    }

    /// What a client is served by, if there is room for it. It can be disconnected before it gets the link: `replace` sets the link and
    /// then disconnects, so nobody stays with an old one.
    fn admit(&self, number: u64, stream: Stream) -> Option<Link> {
        let mut streams = lock(&self.streams);
        if streams.len() >= CLIENTS_MAX {
            return None;
        }
        streams.insert(number, stream);
        drop(streams);
        Some(lock(&self.link).clone())
    }

    fn disconnect(&self) {
        lock(&self.streams).values().for_each(Stream::shut_down);
    }
}

/// A server of one drive.
pub(crate) struct NbdServer {
    address: NbdAddress,
    listener: Arc<Listener>,
    clients: Arc<Clients>,
    thread: Option<JoinHandle<()>>,
}

impl NbdServer {
    pub(crate) fn start(address: &NbdAddress, link: Link) -> io::Result<Self> {
        let (listener, address) = Listener::at(address)?;
        let listener = Arc::new(listener);
        let clients = Arc::new(Clients::of(link));
        let (accepting, shared) = (Arc::clone(&listener), Arc::clone(&clients));
        let thread = std::thread::Builder::new()
            .name("elbow-nbd-listen".into())
            .spawn(move || listen(&accepting, &shared))?;
        Ok(Self {
            address,
            listener,
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
    fn drop(&mut self) {
        self.clients.closed.store(true, Ordering::Release);
        self.listener.close();
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
            std::thread::sleep(PAUSE);
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

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "sockets of tests")]
pub(crate) mod tests {
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    use elbow_disk::Drive;

    use super::*;
    use crate::{Ask, Driving, EmulatedDrive, Settings};

    pub(crate) fn drive() -> EmulatedDrive {
        let backing = tempfile::tempfile().expect("a temporary file");
        backing.set_len(1 << 20).expect("it grows");
        let settings = Settings {
            drive: Arc::new(Drive::named("generic-7200").expect("built in")),
            driving: Driving {
                scheduler: "fcfs".parse().expect("a scheduler"),
                depth: 1,
                write_through: false,
            },
            sectors: 2048,
            lateness_max: None,
        };
        EmulatedDrive::start(settings, backing).expect("it starts")
    }

    /// A client that came while the power was cut was given the link of before, and nobody disconnected it.
    #[test]
    fn who_comes_while_the_power_is_cut_has_the_new_link_or_is_disconnected() {
        let drive = drive();
        let clients = Clients::of(drive.link());
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        let mut link = lock(&clients.link);
        let admitted = std::thread::scope(|scope| {
            let admitted = scope.spawn(|| clients.admit(1, Stream::Unix(ours)));
            let deadline = Instant::now() + Duration::from_secs(30);
            while lock(&clients.streams).is_empty() {
                assert!(Instant::now() < deadline, "it can be disconnected before it has a link");
                std::thread::yield_now();
            }
            drive.power_cut(false, 1).expect("cut");
            *link = drive.link();
            drop(link);
            admitted.join().expect("it ends").expect("there is room")
        });
        assert!(admitted.ask(Ask::Flush).is_ok(), "it is the new link");
    }

    #[test]
    fn a_server_ends_whose_socket_has_lost_its_name_and_leaves_that_of_another() {
        let (drive, directory) = (drive(), tempfile::tempdir().expect("a directory"));
        let address = NbdAddress::Unix(directory.path().join("socket"));
        let first = NbdServer::start(&address, drive.link()).expect("it listens");
        std::fs::remove_file(directory.path().join("socket")).expect("removed");
        let second = NbdServer::start(&address, drive.link()).expect("it listens");
        drop(first);
        assert!(
            UnixStream::connect(directory.path().join("socket")).is_ok(),
            "the second listens there"
        );
        drop(second);
        assert!(!directory.path().join("socket").exists());
    }

    #[test]
    fn only_its_user_may_connect_to_a_socket() {
        use std::os::unix::fs::PermissionsExt;
        let (drive, directory) = (drive(), tempfile::tempdir().expect("a directory"));
        let path = directory.path().join("socket");
        let _server = NbdServer::start(&NbdAddress::Unix(path.clone()), drive.link()).expect("it listens");
        assert_eq!(path.metadata().expect("a socket").permissions().mode() & 0o777, 0o600);
    }
}
