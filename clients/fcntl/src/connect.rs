//! Connections to the service, for the process and for open file descriptions.

use std::ffi::c_int;
use std::mem::size_of;
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use elbow_lock::{Address, Link, LockError, TTL_MS_TCP};

use crate::config::Config;
use crate::errno::{Errno, check, last, warn};
use crate::losses::unless_ending;
use crate::process::{Process, lock};
use crate::session::Session;
use crate::{config, descriptors, libc_calls, reader};

/// How long a service that is not there is looked for.
const CONNECT_FOR: Duration = Duration::from_secs(10);
const CONNECT_PAUSE: Duration = Duration::from_millis(50);

/// The session of fcntl's locks; made if there is none. One that has ended is not replaced before [`lost`](crate::losses::lost) has told what went with
/// it: whoever asks over it learns of the end.
pub(crate) fn session() -> Result<Arc<Session>, Errno> {
    with_service(|process| {
        if let Some(session) = &process.session {
            return Ok(Arc::clone(session));
        }
        let link = connect(&format!("process/{}", std::process::id()))?;
        let session = Arc::new(Session::new(link, false));
        process.session = Some(Arc::clone(&session));
        Ok(session)
    })
    .and_then(|session| reader::add(&session).map(|()| session))
}

/// Does what needs a connection; again, for a while, where nobody answers.
pub(crate) fn with_service<T>(mut connect: impl FnMut(&mut Process) -> Result<T, LockError>) -> Result<T, Errno> {
    let until = Instant::now() + CONNECT_FOR;
    loop {
        match connect(&mut unless_ending(lock())) {
            Ok(connected) => return Ok(connected),
            Err(LockError::Unreachable { .. }) if Instant::now() < until => {}
            Err(error) => {
                warn(&format!("{error}; a lock call fails with ENOLCK"));
                return Err(Errno(libc::ENOLCK));
            }
        }
        std::thread::sleep(CONNECT_PAUSE);
    }
}

/// Opens a session. Over a Unix socket it has a name by which the next program of this process, or a child's, knows it.
pub(crate) fn connect(purpose: &str) -> Result<Link, LockError> {
    let Some(Config {
        address, credentials, ..
    }) = config::get()
    else {
        return Err(LockError::BadAddress(elbow_lock::BadAddress { text: String::new() }));
    };
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(|path| path.file_name()).unwrap_or_default();
    let name = format!("{}, process {}", program.display(), std::process::id());
    match address {
        Address::Unix(path) => {
            let socket = named_socket(purpose, path.as_os_str().as_bytes());
            let unreachable = |Errno(number)| LockError::Unreachable {
                address: address.clone(),
                source: std::io::Error::from_raw_os_error(number),
            };
            let socket = descriptors::move_away(socket.map_err(unreachable)?);
            #[allow(unsafe_code)]
            // SAFETY: the socket is new and nobody else's.
            let stream = unsafe { UnixStream::from_raw_fd(socket) };
            Link::over(stream, address, &name).inspect_err(|_| descriptors::set_ours(socket, false))
        }
        Address::Tcp(_) => Link::open(address, &name, TTL_MS_TCP, credentials.as_ref()),
    }
}

/// Before the purpose in the name of a socket of ours.
pub(crate) const SOCKET_NAMES: &[u8] = b"\0elbow-fcntl/";

fn named_socket(purpose: &str, service: &[u8]) -> Result<c_int, Errno> {
    let mut unique = [0; 8];
    getrandom::fill(&mut unique).map_err(|_| Errno(libc::EAGAIN))?;
    let name = format!("{purpose}/{:x}", u64::from_ne_bytes(unique));
    let ours = socket_address(&[SOCKET_NAMES, name.as_bytes()].concat())?;
    let theirs = socket_address(&[service, b"\0"].concat())?;
    #[allow(unsafe_code)]
    // SAFETY: the addresses are as long as we say.
    unsafe {
        let socket = check(libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0))?;
        let bound = libc::bind(socket, (&raw const ours.0).cast(), ours.1);
        if bound == -1 || libc::connect(socket, (&raw const theirs.0).cast(), theirs.1) == -1 {
            let errno = last();
            libc_calls::close(socket);
            return Err(errno);
        }
        Ok(socket)
    }
}

fn socket_address(name: &[u8]) -> Result<(libc::sockaddr_un, libc::socklen_t), Errno> {
    #[allow(unsafe_code)]
    // SAFETY: numbers.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let place = address
        .sun_path
        .get_mut(..name.len())
        .ok_or(Errno(libc::ENAMETOOLONG))?;
    place
        .iter_mut()
        .zip(name)
        .for_each(|(to, &from)| *to = from.cast_signed());
    let length = size_of::<libc::sa_family_t>() + name.len();
    Ok((address, length as libc::socklen_t))
}
