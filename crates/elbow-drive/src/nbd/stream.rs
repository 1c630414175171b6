//! Where a server listens, and what a client is connected by: a Unix socket or TCP.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::str::FromStr;

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

pub(super) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
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
                let listener = UnixListener::bind(path)?;
                // As it is found from any directory.
                let path = std::path::absolute(path)?;
                Ok((Self::Unix(listener), NbdAddress::Unix(path)))
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
            Self::Unix(listener) => Ok(Stream::Unix(listener.accept()?.0)),
            Self::Tcp(listener) => {
                let stream = listener.accept()?.0;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
        }
    }
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
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(into),
            Self::Tcp(stream) => stream.read(into),
        }
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
