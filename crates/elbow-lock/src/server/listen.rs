//! Sockets of a service: where it listens, and who is at the other end.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_rustls::TlsAcceptor;

use crate::address::{Address, socket_path};
use crate::credentials::Credentials;

/// Anything that a client may come through.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Stream for T {}

/// A place where clients arrive.
#[derive(Debug)]
pub(crate) enum Listener {
    Unix {
        listener: UnixListener,
        path: PathBuf,
        users: Users,
    },
    Tcp(TcpListener),
}

/// Whose processes may use a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Users {
    /// The service's own user, and root.
    Same,
    /// Everybody on this machine.
    Any,
}

/// What the system says of somebody who came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Whether the kernel ends the stream when, and only when, the process at its other end is done with it.
    pub(crate) is_local: bool,
    /// Whose process it is; nobody's known, over TCP.
    pub(crate) uid: Option<u32>,
}

/// Somebody who came in.
pub(crate) struct Arrival {
    pub(crate) came: Transport,
    /// For people: who it is by the system's word.
    pub(crate) name: String,
    pub(crate) peer: Peer,
    /// By which that can be asked at any time.
    pub(crate) socket: Option<OwnedFd>,
}

/// The way by which somebody came.
pub(crate) enum Transport {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// What a TLS connection begins with (RFC 8446, section 5.1): a handshake's type, and the higher byte of the version. Taken for the length of
/// a frame, it is longer than any hello.
const TLS_BEGINS: [u8; 2] = [22, 3];
/// Between two looks whether the second byte has come.
const PEEK_PAUSE: Duration = Duration::from_millis(1);

impl Transport {
    /// What is said over it from now on: sealed where there are credentials; and why not, where the two sides do not agree about that.
    pub(crate) async fn secure(
        self,
        credentials: Option<&Credentials>,
    ) -> io::Result<(Pin<Box<dyn Stream>>, Option<&'static str>)> {
        let stream = match self {
            Self::Unix(stream) => return Ok((Box::pin(stream), None)),
            Self::Tcp(stream) => stream,
        };
        match (begins_as_tls(&stream).await?, credentials) {
            (false, None) => Ok((Box::pin(stream), None)),
            (true, None) => Ok((Box::pin(stream), Some("it asks for no key"))),
            (false, Some(_)) => {
                let why = "it asks for a key: name its key file, or the directory with certificates";
                Ok((Box::pin(stream), Some(why)))
            }
            (true, Some(credentials)) => {
                let sealed = TlsAcceptor::from(credentials.for_service()).accept(stream).await?;
                Ok((Box::pin(sealed), None))
            }
        }
    }
}

async fn begins_as_tls(stream: &TcpStream) -> io::Result<bool> {
    let mut begin = [0; TLS_BEGINS.len()];
    loop {
        match stream.peek(&mut begin).await? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            1 => tokio::time::sleep(PEEK_PAUSE).await,
            _ => return Ok(begin == TLS_BEGINS),
        }
    }
}

impl Listener {
    /// Begins to listen. A socket file that a dead service left is replaced.
    pub(crate) async fn open(address: &Address, users: Users) -> io::Result<Self> {
        match address {
            Address::Tcp(place) => Ok(Self::Tcp(TcpListener::bind(place).await?)),
            Address::Unix(path) => {
                remove_if_nobody_listens(socket_path(path)?).await?;
                let listener = UnixListener::bind(path)?;
                allow(path, users)?;
                Ok(Self::Unix {
                    listener,
                    path: path.clone(),
                    users,
                })
            }
        }
    }

    /// Where it listens: with the port that the system chose, where the address asked for port 0.
    pub(crate) fn address(&self) -> io::Result<Address> {
        match self {
            Self::Unix { path, .. } => Ok(Address::Unix(path.clone())),
            Self::Tcp(listener) => Ok(Address::Tcp(listener.local_addr()?.to_string())),
        }
    }

    /// Whether only processes of this machine can come.
    pub(crate) fn is_local(&self) -> io::Result<bool> {
        match self {
            Self::Unix { .. } => Ok(true),
            Self::Tcp(listener) => Ok(listener.local_addr()?.ip().is_loopback()),
        }
    }

    /// Whether who comes is known by the system's word, so that no key is needed.
    pub(crate) fn has_peer_credentials(&self) -> bool {
        matches!(self, Self::Unix { .. })
    }

    /// Waits for the next one; `None` for somebody who may not come in.
    pub(crate) async fn accept(&self) -> io::Result<Option<Arrival>> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Some(Arrival {
                    came: Transport::Tcp(stream),
                    name: peer.to_string(),
                    peer: Peer {
                        is_local: false,
                        uid: None,
                    },
                    socket: None,
                }))
            }
            Self::Unix { listener, users, .. } => {
                let (stream, _) = listener.accept().await?;
                let peer = stream.peer_cred()?;
                if !may_come(peer.uid(), *users) {
                    return Ok(None);
                }
                let name = format!("uid {} pid {}", peer.uid(), peer.pid().unwrap_or(0));
                let socket = Some(stream.as_fd().try_clone_to_owned()?);
                Ok(Some(Arrival {
                    came: Transport::Unix(stream),
                    name,
                    peer: Peer {
                        is_local: true,
                        uid: Some(peer.uid()),
                    },
                    socket,
                }))
            }
        }
    }
}

fn may_come(uid: u32, users: Users) -> bool {
    users == Users::Any || uid == 0 || uid == rustix::process::geteuid().as_raw()
}

#[allow(
    clippy::disallowed_methods,
    reason = "the service's own socket, not storage of the user's"
)]
async fn remove_if_nobody_listens(path: &Path) -> io::Result<()> {
    match UnixStream::connect(path).await {
        Ok(_) => Err(io::Error::new(ErrorKind::AddrInUse, "somebody listens there")),
        // A file that is no socket refuses connections too; bind then says that the name is taken.
        Err(_) if std::fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket()) => {
            std::fs::remove_file(path)
        }
        Err(_) => Ok(()),
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "the service's own socket, not storage of the user's"
)]
fn allow(path: &Path, users: Users) -> io::Result<()> {
    let mode = match users {
        Users::Same => 0o600,
        Users::Any => 0o666,
    };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

/// Lets nobody find a Unix socket any more. Who has come in stays.
#[allow(
    clippy::disallowed_methods,
    reason = "the service's own socket, not storage of the user's"
)]
pub(crate) fn hide(address: &Address) {
    if let Address::Unix(path) = address {
        // It may be gone.
        drop(std::fs::remove_file(path));
    }
}

impl Drop for Listener {
    #[allow(
        clippy::disallowed_methods,
        reason = "the service's own socket, not storage of the user's"
    )]
    fn drop(&mut self) {
        if let Self::Unix { path, .. } = self {
            drop(std::fs::remove_file(path));
        }
    }
}
