//! What the process holds, and the sessions that it holds it in.
//!
//! Order of mutexes: `PROCESS`, then a session's, then `reader::SESSIONS`. None is held while the service is waited for, but for
//! the hello of a new session.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::mem::size_of;
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use elbow_lock::{Address, FileName, Link, LockError, Owner, TTL_MS_TCP};
use elbow_ranges::RangeSet;

use crate::config::{self, Config};
use crate::descriptions::Description;
use crate::errno::{Errno, check, last, say, say_within};
use crate::file::{Inode, Target};
use crate::range::PROCESS_OWNER;
use crate::session::{Session, take};
use crate::{descriptors, libc_calls, reader};

/// How long a service that is not there is looked for.
const CONNECT_FOR: Duration = Duration::from_secs(10);
const CONNECT_PAUSE: Duration = Duration::from_millis(50);
/// How long a process that is to end waits for standard error to take its last words: others wait for what it holds.
const LAST_WORDS_FOR: Duration = Duration::from_secs(1);
/// Exit code when locks were lost, as of `elbow` itself.
const LOST_EXIT: c_int = 125;

static PROCESS: Mutex<Process> = Mutex::new(Process::new());
/// Whose memory this is: a child of vfork, or one made without libc, has another number.
static HERE: AtomicU32 = AtomicU32::new(0);
/// While it is 0 a close concerns nobody.
static TRACKED: AtomicUsize = AtomicUsize::new(0);

pub(crate) struct Process {
    /// Of fcntl's locks.
    pub(crate) session: Option<Arc<Session>>,
    /// Files that the process has, or may have, fcntl's locks on.
    pub(crate) files: BTreeMap<Inode, File>,
    pub(crate) descriptions: Vec<Description>,
    /// Descriptors that other processes share, without a session that they share too.
    pub(crate) strangers: Vec<(c_int, Inode)>,
    /// fcntl's locks were lost, and no call has failed for it yet.
    pub(crate) was_lost: bool,
    /// Locks were lost, and a thread is about to end the process for it. Its sessions stay open until then, so that nobody gets what
    /// the others may still be writing to.
    pub(crate) is_ending: bool,
}

pub(crate) struct File {
    pub(crate) name: FileName,
    pub(crate) held: RangeSet,
}

impl File {
    pub(crate) fn new(target: &Target) -> Self {
        Self {
            name: target.name.clone(),
            held: RangeSet::new(),
        }
    }
}

impl Process {
    const fn new() -> Self {
        Self {
            session: None,
            files: BTreeMap::new(),
            descriptions: Vec::new(),
            strangers: Vec::new(),
            was_lost: false,
            is_ending: false,
        }
    }

    /// Call after each change of what a close concerns.
    pub(crate) fn count(&self) {
        let count = self.files.len() + self.descriptions.len() + self.strangers.len();
        TRACKED.store(count, Ordering::Relaxed);
    }

    /// Whether we know of any lock.
    pub(crate) fn holds_any(&self) -> bool {
        self.files.values().any(|file| !file.held.is_empty()) || self.descriptions.iter().any(Description::holds)
    }

    /// Forgets what was held over a session; the files, and those that only others may have locked over it.
    fn forget(&mut self, session: &Arc<Session>) -> (Vec<FileName>, Vec<FileName>) {
        let (mut files, mut doubtful) = (Vec::new(), Vec::new());
        if self.session.as_ref().is_some_and(|ours| Arc::ptr_eq(ours, session)) {
            self.session = None;
            let held = std::mem::take(&mut self.files).into_values();
            files.extend(held.filter(|file| !file.held.is_empty()).map(|file| file.name));
            self.was_lost |= !files.is_empty();
        }
        for description in &mut self.descriptions {
            if Arc::ptr_eq(&description.session, session) && !description.was_lost {
                let into = if description.holds() { &mut files } else { &mut doubtful };
                into.push(description.name.clone());
                description.was_lost = true;
            }
        }
        self.count();
        (files, doubtful)
    }

    /// The session of fcntl's locks, as far as it works.
    pub(crate) fn live_session(&self) -> Option<&Arc<Session>> {
        self.session.as_ref().filter(|session| session.broken().is_none())
    }
}

pub(crate) fn lock() -> MutexGuard<'static, Process> {
    take(&PROCESS)
}

/// Whether a close may release anything.
pub(crate) fn may_hold() -> bool {
    TRACKED.load(Ordering::Relaxed) > 0 && is_ours()
}

/// Whether what we remember is this process's.
pub(crate) fn is_ours() -> bool {
    HERE.load(Ordering::Relaxed) == std::process::id()
}

/// From now on it is.
pub(crate) fn begin() {
    HERE.store(std::process::id(), Ordering::Relaxed);
}

/// The process as an owner of fcntl's locks.
pub(crate) fn owner() -> Owner {
    Owner(PROCESS_OWNER | u64::from(std::process::id()))
}

/// The session of fcntl's locks; made if there is none. One that has ended is not replaced before [`lost`] has told what went with
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
                say(&format!("{error}; a lock call fails with ENOLCK"));
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

/// Tells of sessions that have ended, where the reader has not yet: what is done next takes the locks for held.
pub(crate) fn tell_of_losses() {
    let process = unless_ending(lock());
    let descriptions = process.descriptions.iter().map(|description| &description.session);
    let sessions: Vec<Arc<Session>> = process.session.iter().chain(descriptions).cloned().collect();
    drop(process);
    sessions.iter().filter(|session| !session.is_good()).for_each(lost);
}

/// A session has ended: if anything was held over it, the process learns of it, or ends.
pub(crate) fn lost(session: &Arc<Session>) {
    let why = session.broken().map_or_else(String::new, |broken| broken.0);
    let mut process = unless_ending(lock());
    let (files, doubtful) = process.forget(session);
    let only_warns = config::get().is_some_and(|config| config.only_warns);
    process.is_ending = !files.is_empty() && !only_warns;
    let is_ending = process.is_ending;
    drop(process);
    if is_ending {
        say_within(&report(&files, &why, "the process ends"), LAST_WORDS_FOR);
        end_process();
    }
    // What children took for us, or for themselves, is in use until the description is closed, or its next lock call has failed.
    if only_warns || doubtful.is_empty() {
        session.close();
    }
    if !doubtful.is_empty() {
        let files = list(&doubtful);
        say(&format!(
            "flock locks on {files}, if children have taken any, were lost: {why}"
        ));
    }
    if !files.is_empty() {
        say(&report(&files, &why, "the next lock call fails"));
    }
}

fn report(files: &[FileName], why: &str, then: &str) -> String {
    format!("locks on {} were lost: {why}; {then}", list(files))
}

fn list(files: &[FileName]) -> String {
    let names: Vec<String> = files.iter().map(ToString::to_string).collect();
    names.join(", ")
}

/// Goes no further where another thread is about to end the process; ends it, should that thread not come to it.
fn unless_ending(process: MutexGuard<'static, Process>) -> MutexGuard<'static, Process> {
    if process.is_ending {
        drop(process);
        std::thread::sleep(2 * LAST_WORDS_FOR);
        end_process();
    }
    process
}

/// The kernel closes the sessions when the last thread is gone.
fn end_process() -> ! {
    #[allow(unsafe_code)]
    // SAFETY: ends the process.
    unsafe {
        libc::_exit(LOST_EXIT)
    }
}
