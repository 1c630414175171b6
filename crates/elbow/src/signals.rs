//! Signals as messages.
//!
//! A shell that waits for a command is not ended by the Ctrl-C that ends the command, and neither is `elbow run`:
//! the signals that end programs are blocked in all its threads and received by one. Their dispositions are left
//! alone, so a command finds them (ignored under nohup(1), for one) as it would without us.
//!
//! Who works for a command that has its terminal and its process group takes all the others that somebody can send
//! ([`block_all`]): batch systems announce the end of a job with many of them, and most of them end a program that
//! does not know them.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// What `elbow` does not die of while it works for a command.
const TAKEN: [i32; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];
/// What else it takes for its command. Real-time signals come to these. Left out are those that tell of a mistake of our
/// own (SIGSEGV and its like), SIGPIPE, which is ignored, SIGCHLD, those that stop, and what nobody can take. SIGABRT is not left out: abort(3) lets
/// it through to the thread that calls it, and nobody else.
const PASSED: [i32; 14] = [
    libc::SIGABRT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGCONT,
    libc::SIGIO,
    libc::SIGPROF,
    libc::SIGPWR,
    libc::SIGSTKFLT,
    libc::SIGURG,
    libc::SIGVTALRM,
    libc::SIGWINCH,
    libc::SIGXCPU,
    libc::SIGXFSZ,
];

/// Something that happened while waiting.
#[derive(Debug)]
pub(crate) enum Event {
    /// A signal came.
    Signal(Arrival),
    /// The command ended.
    Ended(io::Result<std::process::ExitStatus>),
    /// Somebody asks for a roll back, and waits for the outcome.
    RollBack(UnixStream),
    /// There is no more to wait for.
    Over,
}

/// A signal that came, with what the kernel says of it.
#[derive(Clone, Copy)]
pub(crate) struct Arrival {
    info: libc::siginfo_t,
}

// SAFETY: an address in it (of a fault, which none of ours is) is a number that nobody follows.
#[allow(unsafe_code)]
unsafe impl Send for Arrival {}

impl std::fmt::Debug for Arrival {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} with code {}", name(self.number()), self.info.si_code)
    }
}

impl Arrival {
    /// Which one.
    pub(crate) fn number(&self) -> i32 {
        self.info.si_signo
    }

    /// A process has sent it; else the kernel, for the terminal or for a limit.
    pub(crate) fn is_sent(&self) -> bool {
        self.info.si_code <= 0
    }

    /// The process that has sent it, if one has.
    #[allow(unsafe_code)]
    pub(crate) fn sender(&self) -> Option<Pid> {
        // SAFETY: all that processes send has this field (sigaction(2)).
        self.is_sent()
            .then(|| Pid::from_raw(unsafe { self.info.si_pid() }))
            .flatten()
    }

    /// One that asks programs to end.
    pub(crate) fn is_ending(&self) -> bool {
        TAKEN.contains(&self.number())
    }

    /// Sends the same to a process: a value that came with it (sigqueue(3)) too. One that has just ended does not mind.
    #[allow(unsafe_code)]
    pub(crate) fn send_on(&self, process: impl AsFd) {
        let with_value = self.info.si_code == libc::SI_QUEUE;
        let info = if with_value {
            &raw const self.info
        } else {
            std::ptr::null()
        };
        let process = process.as_fd().as_raw_fd();
        // SAFETY: the descriptor is open, and `info` is none or what the kernel has filled.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process, self.number(), info, 0) };
    }
}

/// Whether our parent wants us to ignore a signal, as nohup(1) does.
#[allow(unsafe_code)]
pub(crate) fn is_ignored(signal: i32) -> bool {
    // SAFETY: a zeroed action is memory that the call fills; no new action is given.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Whether a signal that ends programs has come, and waits to be taken.
#[allow(unsafe_code)]
pub(crate) fn is_end_pending() -> bool {
    // SAFETY: a zeroed set is memory that the first call fills, and the others only look at.
    unsafe {
        let mut pending: libc::sigset_t = std::mem::zeroed();
        libc::sigpending(&raw mut pending) == 0
            && TAKEN
                .iter()
                .any(|signal| libc::sigismember(&raw const pending, *signal) == 1 && !is_ignored(*signal))
    }
}

/// Blocks the signals that end programs in this thread and in all that it starts from now on. And makes sure that we can
/// wait for children, which we cannot where our parent ignored SIGCHLD.
pub(crate) fn block() {
    block_these(&TAKEN);
}

/// The same, and all others that somebody may send to us for our command.
pub(crate) fn block_all() {
    block_these(&all());
}

#[allow(unsafe_code)]
fn block_these(signals: &[i32]) {
    let set = set_of(signals);
    // SAFETY: the default disposition runs no code of ours.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    // SAFETY: `set` is a valid set; a null old set is not written. The call fails for no valid arguments.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
}

/// Sends each signal that [`block`] has blocked as an event, until nobody listens.
pub(crate) fn listen(events: Sender<Event>) -> io::Result<()> {
    listen_to(TAKEN.to_vec(), events)
}

/// The same after [`block_all`].
pub(crate) fn listen_to_all(events: Sender<Event>) -> io::Result<()> {
    listen_to(all(), events)
}

fn listen_to(signals: Vec<i32>, events: Sender<Event>) -> io::Result<()> {
    std::thread::Builder::new()
        .name("elbow-signals".into())
        .spawn(move || {
            let set = set_of(&signals);
            while let Some(arrival) = wait(&set) {
                if events.send(Event::Signal(arrival)).is_err() {
                    break;
                }
            }
        })?;
    Ok(())
}

#[allow(unsafe_code)]
fn wait(set: &libc::sigset_t) -> Option<Arrival> {
    loop {
        // SAFETY: a zeroed one is memory that the call fills; both point to valid memory for the time of the call.
        let (signal, info) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            (libc::sigwaitinfo(set, &raw mut info), info)
        };
        match signal {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            -1 => return None,
            _ => return Some(Arrival { info }),
        }
    }
}

fn all() -> Vec<i32> {
    let real_time = libc::SIGRTMIN()..=libc::SIGRTMAX();
    TAKEN.into_iter().chain(PASSED).chain(real_time).collect()
}

#[allow(unsafe_code)]
fn set_of(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: a zeroed set is valid memory for sigemptyset, which makes it a valid set for sigaddset.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        set
    }
}

#[allow(unsafe_code)]
fn mask(how: i32, signal: i32) {
    let set = set_of(&[signal]);
    // SAFETY: `set` is a valid set; a null old set is not written. The call fails for no valid arguments.
    unsafe { libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut()) };
}

/// Lets this thread, and all that it starts, write to a terminal that stops writers in the background.
pub(crate) fn block_output_stop() {
    mask(libc::SIG_BLOCK, libc::SIGTTOU);
}

/// Keeps Ctrl-Z from this thread and all that it starts: it is then for [`on_stop`] to stop the process.
pub(crate) fn block_stop() {
    mask(libc::SIG_BLOCK, libc::SIGTSTP);
}

/// How long a stop waits for a command that does something else first, or has decided to go on.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// How often is looked whether the command has stopped.
const STOP_GLANCE: Duration = Duration::from_millis(10);

/// Stops this process when Ctrl-Z has stopped its command, after something else was done. A command that catches SIGTSTP, to
/// write down what it has for one, finds its files served until it stops. The signal comes as an event first.
pub(crate) fn on_stop(command: Arc<AtomicI32>, events: Sender<Event>, before: fn()) -> io::Result<()> {
    let work = move || {
        let set = set_of(&[libc::SIGTSTP]);
        while let Some(arrival) = wait(&set) {
            // Nobody may be listening any more; that is fine.
            let _ = events.send(Event::Signal(arrival));
            if has_stopped(&command) {
                before();
                mask(libc::SIG_UNBLOCK, libc::SIGTSTP);
                stop();
                // It goes on.
                mask(libc::SIG_BLOCK, libc::SIGTSTP);
            }
        }
    };
    std::thread::Builder::new()
        .name("elbow-stop".into())
        .spawn(work)
        .map(|_| ())
}

/// Waits until a command has stopped; it has where there is none.
fn has_stopped(command: &AtomicI32) -> bool {
    let deadline = Instant::now() + STOP_PATIENCE;
    while Instant::now() < deadline {
        match command.load(Ordering::Relaxed) {
            0 => return true,
            process if is_stopped(process) => return true,
            _ => std::thread::sleep(STOP_GLANCE),
        }
    }
    false
}

/// By a signal or a debugger (proc_pid_stat(5)).
#[allow(clippy::disallowed_methods)] // procfs
pub(crate) fn is_stopped(process: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, fields)| fields.chars().next());
    matches!(state, Some('T' | 't'))
}

#[allow(unsafe_code)]
fn stop() {
    // SAFETY: sends a signal to this thread; its default disposition, which is never changed, stops the process.
    unsafe { libc::raise(libc::SIGTSTP) };
}

/// The signals that this thread blocks.
#[allow(unsafe_code)]
pub(crate) fn blocked() -> libc::sigset_t {
    // SAFETY: a zeroed set is a valid one, which the call fills; a null new set changes nothing.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut set);
        set
    }
}

/// Has a command begin with these signals blocked, and no others.
#[allow(unsafe_code)]
pub(crate) fn block_only_in(command: &mut Command, set: libc::sigset_t) {
    // SAFETY: between fork and exec only pthread_sigmask is called, which is async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            match libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut()) {
                0 => Ok(()),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        });
    }
}

/// Lets a command have the signals that [`block`] keeps from it.
#[allow(unsafe_code)]
pub(crate) fn unblock_in(command: &mut Command) {
    let set = set_of(&TAKEN);
    // SAFETY: between fork and exec only pthread_sigmask is called, which is async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            match libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()) {
                0 => Ok(()),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        });
    }
}

/// Sends a signal to a child that nobody has waited for yet. One that has just ended does not mind.
pub(crate) fn pass_on(process: i32, signal: i32) {
    if let (Some(process), Some(signal)) = (Pid::from_raw(process), Signal::from_named_raw(signal)) {
        // It may have ended.
        let _ = kill_process(process, signal);
    }
}

/// The name of a signal, for people.
pub(crate) fn name(signal: i32) -> String {
    let known = match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGABRT => "SIGABRT",
        libc::SIGKILL => "SIGKILL",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGTERM => "SIGTERM",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGALRM => "SIGALRM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        other => return format!("signal {other}"),
    };
    known.to_owned()
}
