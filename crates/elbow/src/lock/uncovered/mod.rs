//! Finds those below a command who take the kernel's locks where the service's are meant.
//!
//! The library that `elbow lock exec` preloads never asks the kernel for a lock on a file below a prefix. So whoever does is not covered by it: it is linked
//! statically, makes its system calls itself (Go), has lost `LD_PRELOAD` on the way, or has another libc. Who takes no locks is nobody's
//! concern.
//!
//! ```text
//!   elbow --- fork ---> lookout     refuses such a call, or lets it go on, and tells of its process
//!     |                  ^    ^
//!     |        listener,  |    | end? how many
//!     |        then exec  |    |
//!     `-- fork --> command     elbow, when the command has ended
//! ```
//!
//! The lookout is a process of its own, because what the command leaves behind in the background calls through the filter as
//! long as the process runs: the lookout ends with the last of them (`POLLHUP`). When elbow has ended there is nobody left to tell; such calls are
//! then refused, or not, in silence. When the lookout dies, calls fail with `ENOSYS`, and elbow says so.
//!
//! It is forked while elbow has one thread, so that ordinary code may run in it. Before a call is answered it reads procfs, and of a file below a prefix only
//! what kind of file it is, which the kernel knows (NFS may be asked whether the file is still there). A mount that does not answer would else keep all
//! locks of the command waiting, those on other files too. What is told of a process, once, is found out and said by a thread of its own
//! ([`report`]), which may wait for the storage of a program and for the reader of standard error.
//!
//! Not found: processes that are no descendants of the command, such as those that a daemon starts for it (slurmstepd, sshd, a container's), files
//! that were opened by a path outside the prefixes (a bind mount, a hard link), and calls in which the file changes under the descriptor while we look.

mod filter;
mod report;

use std::collections::HashSet;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{AtFlags, FileType, StatxFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType,
};

use self::filter::{Answer, Call, Filter, Listener};
use self::report::{CallSubject, Caller, Reporter};

/// As processes are listed (prctl(2) takes 15 bytes).
const NAME: &std::ffi::CStr = c"elbow-lookout";
/// So many processes are told of, one line each; the others are counted.
const LINES_MAX: usize = 50;
/// So many are told apart; more are one.
const PROCESSES_MAX: usize = 1 << 16;

/// Packets, by their first byte: the listener is here, or the errno why there is none; how many were found?
const LISTENER: u8 = b'l';
const NO_LISTENER: u8 = b'n';
const END: u8 = b'e';
/// The first byte, and a number.
const PACKET_BYTES: usize = 5;

/// What is looked for.
pub(super) struct WatchScope {
    /// Absolute, without links.
    pub(super) prefixes: Vec<PathBuf>,
    /// A call that is found fails with `ENOLCK`; else it is told, and goes on.
    pub(super) refuses: bool,
    /// The file name of the library.
    pub(super) redirect: &'static str,
}

/// The lookout, as elbow sees it.
pub(super) struct Lookout(OwnedFd);

impl Lookout {
    /// Starts it. This process must have one thread.
    ///
    /// # Errors
    /// Why there is no looking here.
    #[allow(unsafe_code)]
    pub(super) fn start(scope: WatchScope) -> Result<Self, String> {
        if let Some(why) = filter::why_not() {
            return Err(why);
        }
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (ours, theirs) = pair.map_err(|errno| format!("no socket for it: {errno}"))?;
        // SAFETY: the only thread of this process calls, so that its copy finds no lock held by another.
        match unsafe { libc::fork() } {
            -1 => Err(format!("no process for it: {}", io::Error::last_os_error())),
            0 => {
                drop(ours);
                // Whatever happens in there must not come back into the code of the caller.
                let _ = std::panic::catch_unwind(move || Observer::new(scope, theirs).run());
                // SAFETY: ends the process; what is registered to run at exit is the caller's.
                unsafe { libc::_exit(0) }
            }
            _ => Ok(Self(ours)),
        }
    }

    /// Has a command looked at. If that cannot be, it is started all the same, unless it `must`.
    #[allow(unsafe_code)]
    pub(super) fn join(&self, command: &mut Command, must: bool) -> io::Result<()> {
        let (filter, socket) = (Filter::new(), self.0.try_clone()?);
        // SAFETY: between fork and exec only system calls are made, on memory from before.
        unsafe {
            command.pre_exec(move || match filter.install() {
                Ok(listener) => send(&socket, LISTENER, 0, Some(listener.as_fd())),
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(libc::EINVAL);
                    send(&socket, NO_LISTENER, errno.cast_unsigned(), None)?;
                    if must { Err(error) } else { Ok(()) }
                }
            });
        }
        Ok(())
    }

    /// After the command has been started, or has not been: why nobody looks at it. Nothing if somebody does, or if it did not come to that.
    pub(super) fn why_not(&self, was_started: bool) -> Option<io::Error> {
        if !was_started {
            let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Write); // Then an answer comes, or the end.
        }
        match receive(&self.0) {
            Some(packet) if packet.kind == NO_LISTENER => {
                Some(io::Error::from_raw_os_error(packet.number.cast_signed()))
            }
            Some(_) => None,
            None => was_started.then(|| io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// How many processes were found so far.
    ///
    /// # Errors
    /// The lookout has died.
    pub(super) fn end(&self) -> io::Result<u32> {
        send(&self.0, END, 0, None)?;
        receive(&self.0)
            .map(|packet| packet.number)
            .ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

struct Packet {
    kind: u8,
    number: u32,
    descriptor: Option<OwnedFd>,
}

/// Only a system call.
fn send(socket: &OwnedFd, kind: u8, number: u32, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut packet = [kind; PACKET_BYTES];
    packet[1..].copy_from_slice(&number.to_ne_bytes());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors: Option<[BorrowedFd<'_>; 1]> = descriptor.map(|descriptor| [descriptor]);
    if let Some(descriptors) = &descriptors {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(&packet)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// None at the end, and for what is no packet.
fn receive(socket: &OwnedFd) -> Option<Packet> {
    let mut bytes = [0; PACKET_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        let mut pieces = [IoSliceMut::new(&mut bytes)];
        rustix::net::recvmsg(socket, &mut pieces, &mut control, RecvFlags::CMSG_CLOEXEC)
    });
    let is_whole = received.is_ok_and(|message| message.bytes == PACKET_BYTES);
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let [kind, number @ ..] = bytes;
    is_whole.then_some(Packet {
        kind,
        number: u32::from_ne_bytes(number),
        descriptor,
    })
}

/// The lookout, as it sees itself.
struct Observer {
    scope: WatchScope,
    /// Until elbow has ended.
    socket: Option<OwnedFd>,
    /// While anybody calls through the filter.
    listener: Option<Listener>,
    found: HashSet<u32>,
    /// Of which we may not see what they lock.
    hidden: HashSet<u32>,
    reporter: Reporter,
}

impl Observer {
    fn new(scope: WatchScope, socket: OwnedFd) -> Self {
        Self {
            scope,
            socket: Some(socket),
            listener: None,
            found: HashSet::new(),
            hidden: HashSet::new(),
            reporter: Reporter::default(),
        }
    }

    fn run(mut self) {
        detach(self.socket.as_ref());
        self.reporter = Reporter::start();
        while self.socket.is_some() || self.listener.is_some() {
            let (called, told) = self.wait();
            // First, so that what was called before elbow asked is in the answer.
            if called.intersects(PollFlags::IN) {
                self.take_call();
            } else if !called.is_empty() {
                self.listener = None;
            }
            if !told.is_empty() {
                self.take_packet();
            }
        }
    }

    fn wait(&self) -> (PollFlags, PollFlags) {
        let descriptors = [
            self.listener.as_ref().map(AsFd::as_fd),
            self.socket.as_ref().map(AsFd::as_fd),
        ];
        let mut waits: Vec<_> = descriptors
            .iter()
            .flatten()
            .map(|descriptor| PollFd::new(descriptor, PollFlags::IN))
            .collect();
        // All signals are blocked, so that it ends with an event.
        let _ = poll(&mut waits, None);
        let mut events = waits.iter().map(PollFd::revents);
        let mut event_of = |is_there: bool| if is_there { events.next() } else { None }.unwrap_or(PollFlags::empty());
        (event_of(descriptors[0].is_some()), event_of(descriptors[1].is_some()))
    }

    /// From elbow, or from the command before it began.
    fn take_packet(&mut self) {
        let packet = self.socket.as_ref().and_then(receive);
        let answer = match &packet {
            Some(packet) if packet.kind == END => u32::try_from(self.found.len()).unwrap_or(u32::MAX),
            Some(packet) => packet.number,
            None => {
                self.socket = None;
                return hush();
            }
        };
        let Some(Packet { kind, descriptor, .. }) = packet else {
            return;
        };
        self.listener = self.listener.take().or(descriptor.map(Listener::new));
        if kind == END {
            self.reporter.finish();
            hush();
        }
        // Elbow may have been killed.
        let _ = self.socket.as_ref().map(|socket| send(socket, kind, answer, None));
    }

    fn take_call(&mut self) {
        let Some(listener) = &self.listener else { return };
        let call = match listener.next() {
            Ok(Some(call)) => call,
            Ok(None) => return,
            Err(_) => {
                self.listener = None;
                return;
            }
        };
        let subject = self.look(&call);
        // Of its process only procfs is read as long as it waits; and that once, where it locks again and again.
        let process = subject.is_of_concern().then(|| report::process_of(call.thread));
        let caller = process
            .filter(|process| self.is_to_be_told(&subject, *process))
            .map(|process| Caller::of(call.thread, process, self.scope.redirect));
        let answer = match subject {
            CallSubject::Uncovered(_) if self.scope.refuses => Answer::Fail(libc::ENOLCK),
            _ => Answer::GoOn,
        };
        // What was read may be of another process, if this one has ended.
        let is_true = listener.still_waits(&call);
        if listener.answer(&call, &answer)
            && is_true
            && let Some(caller) = caller
        {
            self.tell(subject, caller);
        }
    }

    /// What a call is about.
    #[allow(clippy::disallowed_methods, reason = "procfs, which is no storage")]
    fn look(&self, call: &Call) -> CallSubject {
        let place = PathBuf::from(format!("/proc/{}/fd/{}", call.thread, call.descriptor));
        let file = match std::fs::read_link(&place) {
            Ok(file) => file,
            // No such descriptor, or no such process any more: the kernel says so.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => {
                return CallSubject::NoConcern;
            }
            Err(error) => return CallSubject::Hidden(error),
        };
        let is_below = self.scope.prefixes.iter().any(|prefix| file.starts_with(prefix));
        if is_below && is_regular(&place) {
            CallSubject::Uncovered(file)
        } else {
            CallSubject::NoConcern
        }
    }

    /// Whether it is the first such call of a process, and somebody is there to be told.
    fn is_to_be_told(&self, subject: &CallSubject, process: u32) -> bool {
        let known = match subject {
            CallSubject::NoConcern => return false,
            CallSubject::Uncovered(_) => &self.found,
            CallSubject::Hidden(_) => &self.hidden,
        };
        self.socket.is_some() && known.len() < PROCESSES_MAX && !known.contains(&process)
    }

    fn tell(&mut self, subject: CallSubject, caller: Caller) {
        let known = match subject {
            CallSubject::NoConcern => return,
            CallSubject::Uncovered(_) => &mut self.found,
            CallSubject::Hidden(_) => &mut self.hidden,
        };
        let number = known.len();
        known.insert(caller.process);
        match number {
            ..LINES_MAX => self.reporter.tell(subject, caller, self.scope.refuses),
            LINES_MAX => self.reporter.tell_of_more(),
            _ => {}
        }
    }
}

/// The kernel knows what kind of file it is; its attributes are not asked for.
#[allow(clippy::disallowed_methods, reason = "asks the kernel alone")]
fn is_regular(place: &Path) -> bool {
    let known = rustix::fs::statx(rustix::fs::CWD, place, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE);
    known.is_ok_and(|known| FileType::from_raw_mode(known.stx_mode.into()) == FileType::RegularFile)
}

/// Lets go of everything that is elbow's but standard error and the socket. What fails leaves a lookout that works, and holds more than it should.
#[allow(unsafe_code)]
fn detach(socket: Option<&OwnedFd>) {
    let _ = rustix::thread::set_name(NAME);
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
    if let Some(null) = null() {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
    }
    let keep = libc::c_long::from(socket.map_or(2, AsRawFd::as_raw_fd));
    // SAFETY: a full set is one, and nothing in this process uses the descriptors that are closed any more.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
        for (first, last) in [(3, keep - 1), (keep + 1, libc::c_long::from(u32::MAX))] {
            if first <= last {
                libc::syscall(libc::SYS_close_range, first, last, 0);
            }
        }
    }
}

/// Who waits for the end of elbow's messages does not wait for us.
fn hush() {
    let _ = null().map(rustix::stdio::dup2_stderr);
}

#[allow(clippy::disallowed_methods, reason = "no storage")]
fn null() -> Option<std::fs::File> {
    std::fs::File::options().read(true).write(true).open("/dev/null").ok()
}
