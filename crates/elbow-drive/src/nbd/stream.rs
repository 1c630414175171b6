//! Where a server listens, and what a client is connected by: a Unix socket or TCP.

#![allow(clippy::disallowed_methods, reason = "sockets, not storage")]

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use rustix::fs::Mode;
use rustix::net::{AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType};

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdAddress {
    /// A socket at a path.
    Unix(PathBuf),
    /// An address and a port, as `127.0.0.1:10809`; port 0 takes a free one.
    Tcp(String),
}

/// Neither `unix:SOCKET` nor `tcp:ADDRESS:PORT`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no address: write unix:SOCKET, or tcp:ADDRESS:PORT")]
pub struct NbdAddressError(String);

impl FromStr for NbdAddress {
    type Err = NbdAddressError;

    /// ```
    /// use elbow_drive::NbdAddress;
    /// assert_eq!("unix:/run/disk".parse(), Ok(NbdAddress::Unix("/run/disk".into())));
    /// assert!("/run/disk".parse::<NbdAddress>().is_err());
    /// ```
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Self::Unix(path.into())),
            Some(("tcp", address)) if address.contains(':') => Ok(Self::Tcp(address.to_owned())),
            _ => Err(NbdAddressError(text.to_owned())),
        }
    }
}

impl fmt::Display for NbdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// Clients that may wait until they are accepted.
const BACKLOG: i32 = 128;

pub(super) enum Listener {
    Unix(UnixListener, SocketFile),
    Tcp(TcpListener),
}

/// The name of a Unix socket, and what it names.
pub(super) struct SocketFile {
    path: PathBuf,
    device_and_inode: (u64, u64),
}

/// A client's connection.
#[derive(Debug)]
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Listener {
    /// And where that is.
    pub(super) fn at(address: &NbdAddress) -> io::Result<(Self, NbdAddress)> {
        match address {
            NbdAddress::Unix(path) => {
                let listener = bind_for_its_user(path)?;
                // As it is found from any directory.
                let file = SocketFile::at(std::path::absolute(path)?)?;
                let address = NbdAddress::Unix(file.path.clone());
                Ok((Self::Unix(listener, file), address))
            }
            NbdAddress::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                let address = listener.local_addr()?.to_string();
                Ok((Self::Tcp(listener), NbdAddress::Tcp(address)))
            }
        }
    }

    pub(super) fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Unix(listener, _) => Ok(Stream::Unix(listener.accept()?.0)),
            Self::Tcp(listener) => {
                let stream = listener.accept()?.0;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
        }
    }

    /// Nobody comes any more: who waits in `accept` gets an error, and the name of the socket goes if it is still its own.
    pub(super) fn close(&self) {
        // Linux ends by this a listening socket, too, and who waits at it.
        let _ = rustix::net::shutdown(self, Shutdown::Both);
        if let Self::Unix(_, file) = self {
            file.remove();
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener, _) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}

/// A Unix socket gets its mode before it has a name, so there is no moment at which others may connect.
fn bind_for_its_user(path: &Path) -> io::Result<UnixListener> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

impl SocketFile {
    fn at(path: PathBuf) -> io::Result<Self> {
        let device_and_inode = device_and_inode(&path)?;
        Ok(Self { path, device_and_inode })
    }

    fn remove(&self) {
        if device_and_inode(&self.path).is_ok_and(|found| found == self.device_and_inode) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn device_and_inode(path: &Path) -> io::Result<(u64, u64)> {
    let found = path.symlink_metadata()?;
    Ok((found.dev(), found.ino()))
}

impl Stream {
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Unix(stream) => stream.try_clone().map(Self::Unix),
            Self::Tcp(stream) => stream.try_clone().map(Self::Tcp),
        }
    }

    pub(super) fn shut_down(&self) {
        // It may be closed already.
        let _ = match self {
            Self::Unix(stream) => stream.shutdown(std::net::Shutdown::Both),
            Self::Tcp(stream) => stream.shutdown(std::net::Shutdown::Both),
        };
    }

    /// How long a read waits for bytes; on all clones of the connection.
    pub(super) fn set_read_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_read_timeout(patience),
            Self::Tcp(stream) => stream.set_read_timeout(patience),
        }
    }

    /// How long a write waits until the client takes bytes; on all clones of the connection.
    pub(super) fn set_write_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_write_timeout(patience),
            Self::Tcp(stream) => stream.set_write_timeout(patience),
        }
    }
}

impl Read for &Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => (&*stream).read(into),
            Stream::Tcp(stream) => (&*stream).read(into),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&*self).read(into)
    }
}

impl Write for Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(from),
            Self::Tcp(stream) => stream.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
