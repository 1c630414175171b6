//! The command of a case: forks its workers, tells each when it is its turn, and writes down what they say.
//!
//! ```text
//!   driver ── elbow run ── actor ─┬─ worker 0 (root)          one call at a time, in the order of the script,
//!      │                          ├─ worker 1 (1001)          told over a socket: the same order in every run
//!      └───── actor (natively) ─┐ └─ worker 2 (1002)
//!                               └─ ...
//! ```
//!
//! The log has a line for each call, `3 ok 12`, and at the end what the actor sees of the whole tree, each line behind `= `. A call that is not
//! answered in time is the last line, `3 hangs`. The workers live until everything has been looked at: what they hold open, mapped and locked at
//! the end is part of the case.

// fork(2): workers are made where the machine has no thread but this one.
#![allow(unsafe_code, clippy::disallowed_methods)]

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Gid, Mode, Uid};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

use super::act::Worker;
use super::answer;
use super::case::{Case, Ending, Runner, WorkerIdentity};
use super::look::{encode_view, look};
use super::plant::{Bug, Planted};
use super::word::Word;

/// What the command of a failing job exits with.
pub const FAILING_CODE: i32 = 7;
/// What an actor exits with whose worker does not answer.
pub const HANGING_CODE: i32 = 98;
/// What an actor exits with that cannot do its work.
pub const BROKEN_CODE: i32 = 99;

/// How long a call may take.
const CALL_SECONDS_MAX: i64 = 30;
/// The longest answer.
const ANSWER_BYTES_MAX: usize = 1 << 16;

/// The last line of a log that begins anew, since the command is run again.
const AGAIN: &str = "again";

const SCRIPT: &str = "DIFFER_SCRIPT";
const ROOT: &str = "DIFFER_ROOT";
const LOG: &str = "DIFFER_LOG";
const BUG: &str = "DIFFER_BUG";
const FAILS_FIRST: &str = "DIFFER_FAILS_FIRST";

/// What an actor is told.
#[derive(Clone, Debug)]
pub struct ActorInput {
    /// The case, as a file.
    pub script: PathBuf,
    /// Its directory.
    pub root: PathBuf,
    /// Where it writes down what it was told; exists.
    pub log: PathBuf,
    /// What it does wrong on purpose.
    pub bug: Option<Bug>,
    /// Whether it fails the first time that it is run.
    pub fails_first: bool,
}

impl ActorInput {
    /// As variables of the environment, which `elbow run` leaves as they are.
    pub fn to_environment(&self) -> Vec<(&'static str, OsString)> {
        let mut environment = vec![
            (SCRIPT, self.script.clone().into()),
            (ROOT, self.root.clone().into()),
            (LOG, self.log.clone().into()),
        ];
        environment.extend(self.fails_first.then(|| (FAILS_FIRST, "1".into())));
        environment.extend(self.bug.map(|bug| (BUG, super::word::spell(&bug).into())));
        environment
    }

    /// The orders in the environment; `None` where there are none.
    pub fn of_environment() -> Option<Self> {
        let path = |name| std::env::var_os(name).map(PathBuf::from);
        let bug = std::env::var(BUG).ok();
        Some(Self {
            script: path(SCRIPT)?,
            root: path(ROOT)?,
            log: path(LOG)?,
            bug: bug.and_then(|bug| Bug::take(&bug)),
            fails_first: std::env::var_os(FAILS_FIRST).is_some(),
        })
    }
}

/// Plays the case of the environment and ends the process.
pub fn play() -> ! {
    let ended = match ActorInput::of_environment() {
        Some(actor_input) => play_case(&actor_input),
        None => Err(io::Error::other("an actor finds its orders in the environment")),
    };
    std::process::exit(ended.unwrap_or_else(|error| broken(&error)));
}

fn broken(error: &io::Error) -> i32 {
    eprintln!("actor: {error}");
    BROKEN_CODE
}

fn play_case(actor_input: &ActorInput) -> io::Result<i32> {
    let script = std::fs::read_to_string(&actor_input.script)?;
    let case = Case::decode(&script).map_err(io::Error::other)?;
    // Whoever is run again finds what it has said before.
    let fails_first = actor_input.fails_first && std::fs::metadata(&actor_input.log)?.len() == 0;
    let mut log = OpenOptions::new().append(true).open(&actor_input.log)?;
    std::env::set_current_dir(&actor_input.root)?;
    let workers = start_workers(&case, actor_input)?;
    for (number, step) in case.steps.iter().enumerate() {
        match workers[step.worker].ask(number)? {
            Some(said) => writeln!(log, "{number} {said}")?,
            None => {
                writeln!(log, "{number} hangs")?;
                return Ok(HANGING_CODE);
            }
        }
    }
    let seen = encode_view(&look(Path::new(".")));
    log.write_all(
        seen.lines()
            .map(|line| format!("= {line}\n"))
            .collect::<String>()
            .as_bytes(),
    )?;
    let code = end(&case, workers)?;
    if fails_first {
        writeln!(log, "{AGAIN}")?;
    }
    Ok(if fails_first { FAILING_CODE } else { code })
}

fn end(case: &Case, workers: Vec<Link>) -> io::Result<i32> {
    if case.ending == Ending::Leave {
        workers.into_iter().for_each(|worker| drop(worker.socket));
        return Ok(0);
    }
    for worker in workers {
        drop(worker.socket);
        rustix::process::waitpid(Some(worker.pid), rustix::process::WaitOptions::empty())?;
    }
    Ok(if case.ending.fails() { FAILING_CODE } else { 0 })
}

/// The actor's end of the socket to a worker.
struct Link {
    socket: OwnedFd,
    pid: rustix::process::Pid,
}

impl Link {
    /// Tells it to do a step; `None` when it does not answer.
    fn ask(&self, number: usize) -> io::Result<Option<String>> {
        self.say(number).map_err(|error| {
            let ended = rustix::process::waitpid(Some(self.pid), rustix::process::WaitOptions::NOHANG);
            io::Error::other(format!("{error}; the worker: {ended:?}"))
        })
    }

    fn say(&self, number: usize) -> io::Result<Option<String>> {
        send(&self.socket, &(number as u64).to_le_bytes(), SendFlags::empty())?;
        self.receive()
    }

    /// What it says next; `None` when it says nothing.
    fn receive(&self) -> io::Result<Option<String>> {
        let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
        let patience = Timespec {
            tv_sec: CALL_SECONDS_MAX,
            tv_nsec: 0,
        };
        if poll(&mut polled, Some(&patience))? == 0 {
            return Ok(None);
        }
        let mut said = vec![0; ANSWER_BYTES_MAX];
        let (length, _) = recv(&self.socket, &mut said[..], RecvFlags::empty())?;
        said.truncate(length);
        let said = String::from_utf8(said).map_err(io::Error::other)?;
        Ok(Some(if said.is_empty() { "died".to_owned() } else { said }))
    }
}

fn start_workers(case: &Case, actor_input: &ActorInput) -> io::Result<Vec<Link>> {
    let mut links: Vec<Link> = Vec::new();
    for person in &case.workers {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        // SAFETY: this process has no other thread that could hold a lock which the child needs.
        match unsafe { libc::fork() } {
            0 => {
                // Theirs would keep the others from seeing that the actor has gone.
                drop((ours, links));
                let worked = work(case, person, actor_input, &theirs);
                std::process::exit(worked.map_or_else(|error| broken(&error), |()| 0));
            }
            pid => {
                let pid = rustix::process::Pid::from_raw(pid).ok_or_else(io::Error::last_os_error)?;
                links.push(Link { socket: ours, pid });
            }
        }
    }
    // Each has opened the top before any of them closes it.
    for link in &links {
        link.receive()?;
    }
    Ok(links)
}

/// The life of a worker.
fn work(case: &Case, person: &WorkerIdentity, actor_input: &ActorInput, socket: &OwnedFd) -> io::Result<()> {
    // A pipe that nobody reads says EPIPE instead of ending us.
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let mut worker = Worker::new(&actor_input.root, Planted::new(actor_input.bug))?;
    if case.runner == Runner::Root {
        become_person(person)?;
    }
    send(socket, b"ready", SendFlags::empty())?;
    let mut number = [0; 8];
    loop {
        let (length, _) = recv(socket, &mut number[..], RecvFlags::empty())?;
        if length == 0 {
            break;
        }
        let step = case
            .steps
            .get(u64::from_le_bytes(number) as usize)
            .ok_or(io::ErrorKind::InvalidData)?;
        let said = answer::show(&worker.call(&step.call));
        send(socket, said.as_bytes(), SendFlags::empty())?;
    }
    if case.ending == Ending::Leave {
        // The driver closes it when the job has ended.
        let _ = io::stdin().read_to_end(&mut Vec::new());
    }
    Ok(())
}

fn become_person(person: &WorkerIdentity) -> io::Result<()> {
    let groups: Vec<Gid> = person.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    let (uid, gid) = (Uid::from_raw(person.uid), Gid::from_raw(person.gid));
    rustix::thread::set_thread_groups(&groups)?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    Ok(rustix::thread::set_thread_res_uid(uid, uid, uid)?)
}

/// What the last run of a command has written into a log.
pub fn last_run(log: &str) -> &str {
    log.rsplit_once(&format!("{AGAIN}\n")).map_or(log, |(_, last)| last)
}

/// An empty log that everybody may write to.
///
/// # Errors
/// What making it says.
pub fn make_log(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let file = File::create(path)?;
    file.set_permissions(std::fs::Permissions::from_mode(0o666))
}
