//! The bytes of one connection of a client: a Unix socket or TCP, sealed by TLS where the two sides have credentials. Blocks, has no thread.
//!
//! ```text
//!   send:     frame --- seal (mutex) ---> sealed --- socket
//!   receive:  socket --- sealed ---> open (the same mutex) --- bytes of frames
//! ```
//!
//! Nothing waits for the network while it has the mutex, so whoever sends never waits for who receives. What has come is opened
//! whole at once: where the socket has nothing to read, nothing is kept back.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::buffer::spare_capacity;
use rustix::net::{RecvFlags, SendFlags};
use rustls::ClientConnection;

use crate::address::{Address, socket_path};
use crate::credentials::Credentials;

const READ_BYTES: usize = 16 << 10;

pub(super) struct Stream {
    socket: Socket,
    tls: Option<Mutex<ClientConnection>>,
}

enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    /// Connects, and where there are credentials agrees on keys with the other side. No answer for `patience` is an error.
    pub(super) fn connect(
        address: &Address,
        credentials: Option<&Credentials>,
        patience: Duration,
    ) -> io::Result<Self> {
        match address {
            Address::Unix(path) => {
                let stream = Self::over(UnixStream::connect(socket_path(path)?)?);
                stream.set_timeout(Some(patience))?;
                Ok(stream)
            }
            Address::Tcp(place) => {
                let socket = TcpStream::connect(place)?;
                socket.set_nodelay(true)?;
                socket.set_read_timeout(Some(patience))?;
                let socket = Socket::Tcp(socket);
                let tls = credentials
                    .map(|credentials| agree(&socket, place, credentials))
                    .transpose()?;
                let tls = tls.map(Mutex::new);
                Ok(Self { socket, tls })
            }
        }
    }

    pub(super) fn over(stream: UnixStream) -> Self {
        Self {
            socket: Socket::Unix(stream),
            tls: None,
        }
    }

    /// How long a read waits: none for ever.
    pub(super) fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match &self.socket {
            Socket::Unix(stream) => stream.set_read_timeout(timeout),
            Socket::Tcp(stream) => stream.set_read_timeout(timeout),
        }
    }

    /// Sends all of it. One thread at a time: what is sealed goes out in the order in which it was.
    pub(super) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &self.tls else {
            return (&self.socket).write_all(bytes);
        };
        let mut sealed = Vec::new();
        let mut tls = tls.lock();
        tls.writer().write_all(bytes)?;
        while tls.wants_write() {
            tls.write_tls(&mut sealed)?;
        }
        drop(tls);
        (&self.socket).write_all(&sealed)
    }

    /// Adds what comes next to `bytes`; an end is an error. With `poll` only what is there.
    pub(super) fn receive(&self, bytes: &mut Vec<u8>, poll: bool) -> io::Result<()> {
        let had = bytes.len();
        let Some(tls) = &self.tls else {
            bytes.reserve(READ_BYTES); // Not filled with zeros, which takes as long as the rest of a small reply.
            let (got, _) = rustix::net::recv(self.socket.as_fd(), spare_capacity(bytes), how(poll))?;
            return if got == 0 { Err(ended()) } else { Ok(()) };
        };
        let mut sealed = [0; READ_BYTES];
        while bytes.len() == had {
            let got = self.socket.receive(&mut sealed, poll)?;
            if got == 0 || !open(&mut tls.lock(), &sealed[..got], bytes)? {
                return if bytes.len() > had { Ok(()) } else { Err(ended()) };
            }
        }
        Ok(())
    }
}

fn how(poll: bool) -> RecvFlags {
    if poll { RecvFlags::DONTWAIT } else { RecvFlags::empty() }
}

fn ended() -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, "it closed the connection")
}

/// Both sides prove who they are; what follows is sealed.
fn agree(mut socket: &Socket, place: &str, credentials: &Credentials) -> io::Result<ClientConnection> {
    let (config, name) = credentials.for_client(place)?;
    let mut tls = ClientConnection::new(config, name).map_err(io::Error::other)?;
    tls.set_buffer_limit(None); // A frame is sealed whole.
    while tls.is_handshaking() {
        tls.complete_io(&mut socket)?;
    }
    Ok(tls)
}

/// Opens what has come, as far as it is whole. False: the other side says nothing more.
fn open(tls: &mut ClientConnection, mut sealed: &[u8], bytes: &mut Vec<u8>) -> io::Result<bool> {
    while !sealed.is_empty() {
        tls.read_tls(&mut sealed)?;
        let state = tls
            .process_new_packets()
            .map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        let had = bytes.len();
        bytes.resize(had + state.plaintext_bytes_to_read(), 0);
        tls.reader().read_exact(&mut bytes[had..])?;
        if state.peer_has_closed() {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Socket {
    fn receive(&self, into: &mut [u8], poll: bool) -> io::Result<usize> {
        let (_, got) = rustix::net::recv(self.as_fd(), into, how(poll))?;
        Ok(got)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}

/// For a handshake, which no signal ends.
impl Read for &Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.receive(into, false) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                received => return received,
            }
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Not write(2): a library must not let its program die of SIGPIPE.
        Ok(rustix::net::send(self.as_fd(), bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
