//! Whether all processes of a program have this library: one without it would write past the locks, and nobody would know.
//!
//! ```text
//!   MPI_Init   rank r  --"here"-->  neighbours        a neighbour is silent: name it, MPI_Abort
//!              rank r  <--"here"--  neighbours        all are here: barrier  -->  the program begins
//! ```
//!
//! A process without the library cannot be asked, so it is known by its silence. The messages are sent before `MPI_Init` returns to the
//! program, so no receive of a program with the library can take one: it gets there only when all of its messages have been taken. The neighbours are
//! such that everybody has one with the library unless nobody has it; who misses one never enters the barrier, so nobody leaves it before all are known
//! to be here. Nothing is left to be asked when a file is opened or written.
//!
//! Processes that come later have a world of their own, whose `MPI_Init` does the same; the two worlds greet each other over their
//! new communicator (`MPI_Comm_spawn`, `MPI_Comm_connect`). So every communicator is made of processes that are known.
//!
//! Rank 0 tells `elbow lock mpi` of it, through the lock service, which both of them reach.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use elbow_lock::{FileName, LockMode, Owner, Wait};
use elbow_ranges::Footprint;

use crate::abi::Handle;
use crate::error::MpiError;
use crate::native::{Native, call};
use crate::service;

/// What is said of ranks without the library: `fail`, or `ignore`.
const VARIABLE: &str = "ELBOW_MPI_UNCOVERED";
/// How long a rank waits for a sign of another, in seconds.
const PATIENCE_VARIABLE: &str = "ELBOW_MPI_PATIENCE";
/// All have been in `MPI_Init` together a moment ago.
const PATIENCE: Duration = Duration::from_secs(30);
/// The name, at the lock service, of the run that `elbow lock mpi` waits for.
const RUN_VARIABLE: &str = "ELBOW_MPI_RUN";
/// `elbow lock mpi` may be stopped, or gone.
const REPORT_MS_MAX: u32 = 3000;
/// The exit code of a program that is ended here, as of `elbow lock mpi` itself.
const EXIT_CODE: c_int = 125;
/// A launcher that does not read what its processes say is not waited for.
const READ_MAX: Duration = Duration::from_secs(2);
/// A launcher passes on what it has read.
const PASSED_ON: Duration = Duration::from_millis(100);
/// So many ranks tell one of them that they are here.
const BLOCK: usize = 64;
/// MPI lets a tag be as large as 32767 everywhere.
const TAG: c_int = 32_749;
const HERE: [u8; 16] = *b"elbow-mpi here 1";
/// So many looks for an answer without a pause, then one each millisecond.
const LOOKS_AT_ONCE: u32 = 2000;

/// Whether it is known of all processes that they have the library, or nobody wants to know.
static IS_KNOWN: AtomicBool = AtomicBool::new(false);

/// What `elbow lock mpi` is told, as the byte that stands for it.
#[derive(Clone, Copy)]
enum Report {
    Covered = 0,
    Uncovered = 1,
}

/// After `MPI_Init`: looks for the other ranks, and for those that started this program. Ends it if one of them lacks the library.
pub(crate) fn begun(native: &Native) {
    if is_ignored() {
        return IS_KNOWN.store(true, Ordering::Relaxed);
    }
    let mut parent = 0_usize;
    let code = call!(native, "PMPI_Comm_get_parent", &raw mut parent => *mut usize);
    let parent = loaded(native, &parent);
    if code == 0 && parent != native.comm_null {
        exchange_presence(native, parent, native.comm_world, "that started this program");
    }
    check(native, native.comm_world);
}

/// After a communicator was made of processes that may have had none together before.
pub(crate) fn made(native: &Native, comm: Handle) {
    if is_ignored() {
        return IS_KNOWN.store(true, Ordering::Relaxed);
    }
    if comm != native.comm_null {
        check(native, comm);
    }
}

/// After `comm` met other processes, over `between`.
pub(crate) fn connected(native: &Native, between: Handle, comm: Handle, peers: &str) {
    if !is_ignored() && between != native.comm_null {
        exchange_presence(native, between, comm, peers);
    }
}

/// Nothing else is known to be atomic.
///
/// # Errors
/// MPI was started past this library.
pub(crate) fn is_known() -> Result<(), MpiError> {
    if IS_KNOWN.load(Ordering::Relaxed) {
        return Ok(());
    }
    Err(MpiError::Unsupported(format!(
        "MPI was started past this library, so nobody knows whether all ranks have it ({VARIABLE}=ignore: they have)"
    )))
}

/// Looks for the neighbours of this rank. Rank 0 tells when all are known to be here, the first time.
fn check(native: &Native, comm: Handle) {
    let Some((rank, size)) = place(native, comm) else {
        return;
    };
    let missing = exchange(native, comm, &neighbours(rank, size));
    if !missing.is_empty() {
        let text = format!(
            "of the {size} ranks of this program, {} gave no sign of the library in {:?}",
            list(&missing),
            patience()
        );
        end(native, comm, &text);
    }
    if size > 1 {
        call!(native, "PMPI_Barrier", comm => Handle);
    }
    if !IS_KNOWN.swap(true, Ordering::Relaxed) && rank == 0 {
        report(Report::Covered);
    }
}

/// Looks whether the processes at the other end of `between` have the library; all of `comm`, on this end, call it.
fn exchange_presence(native: &Native, between: Handle, comm: Handle, peers: &str) {
    let Some((rank, _)) = place(native, comm) else { return };
    if rank == 0 && !exchange(native, between, &[0]).is_empty() {
        let text = format!("the processes {peers} gave no sign of the library in {:?}", patience());
        end(native, comm, &text);
    }
    call!(native, "PMPI_Barrier", comm => Handle);
}

/// Rank and size.
fn place(native: &Native, comm: Handle) -> Option<(usize, usize)> {
    let (mut rank, mut size) = (0 as c_int, 1 as c_int);
    let codes = [
        call!(native, "PMPI_Comm_rank", comm => Handle, &raw mut rank => *mut c_int),
        call!(native, "PMPI_Comm_size", comm => Handle, &raw mut size => *mut c_int),
    ];
    (codes == [0, 0]).then_some((rank.unsigned_abs() as usize, size.unsigned_abs() as usize))
}

/// Who tells whom: all of a block its first rank, and the first ranks each other in a ring.
fn neighbours(rank: usize, size: usize) -> Vec<usize> {
    let first = rank - rank % BLOCK;
    if rank != first {
        return vec![first];
    }
    let blocks = size.div_ceil(BLOCK);
    let block = rank / BLOCK;
    let mut others: Vec<usize> = (first + 1..size.min(first + BLOCK)).collect();
    others.extend([(block + 1) % blocks, (block + blocks - 1) % blocks].map(|block| block * BLOCK));
    others.retain(|other| *other != rank);
    others.sort_unstable();
    others.dedup();
    others
}

/// A message under way.
struct PendingMessage {
    rank: usize,
    bytes: Box<[u8; HERE.len()]>,
    /// As C stores it.
    request: usize,
}

impl PendingMessage {
    fn is_done(&mut self, native: &Native) -> bool {
        let mut done: c_int = 0;
        let code = call!(native, "PMPI_Test", &raw mut self.request => *mut usize, &raw mut done => *mut c_int,
            native.abi.status_ignore => usize);
        code == 0 && done != 0
    }
}

/// Tells others that we are here, and waits for the same of them; those of whom nothing was heard.
fn exchange(native: &Native, comm: Handle, others: &[usize]) -> Vec<usize> {
    let mut expected: Vec<PendingMessage> = others.iter().map(|other| receive(native, comm, *other)).collect();
    let mut sent: Vec<PendingMessage> = others.iter().map(|other| send(native, comm, *other)).collect();
    let (begin, patience) = (Instant::now(), patience());
    let mut looks = 0;
    loop {
        expected.retain_mut(|message| !(message.is_done(native) && *message.bytes == HERE));
        sent.retain_mut(|message| !message.is_done(native));
        if expected.is_empty() && sent.is_empty() {
            return Vec::new();
        }
        if begin.elapsed() > patience {
            let silent = |messages: &[PendingMessage]| messages.iter().map(|message| message.rank).collect::<Vec<_>>();
            let missing = if expected.is_empty() {
                silent(&sent)
            } else {
                silent(&expected)
            };
            // The library may still write there; the program ends.
            std::mem::forget((expected, sent));
            return missing;
        }
        looks += 1;
        if looks < LOOKS_AT_ONCE {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn receive(native: &Native, comm: Handle, rank: usize) -> PendingMessage {
    let mut message = PendingMessage {
        rank,
        bytes: Box::new([0; HERE.len()]),
        request: 0,
    };
    call!(native, "PMPI_Irecv", message.bytes.as_mut_ptr().cast() => *mut c_void, HERE.len() as c_int => c_int, native.byte => Handle,
        rank as c_int => c_int, TAG => c_int, comm => Handle, &raw mut message.request => *mut usize);
    message
}

fn send(native: &Native, comm: Handle, rank: usize) -> PendingMessage {
    let mut message = PendingMessage {
        rank,
        bytes: Box::new(HERE),
        request: 0,
    };
    call!(native, "PMPI_Isend", message.bytes.as_ptr().cast() => *const c_void, HERE.len() as c_int => c_int, native.byte => Handle,
        rank as c_int => c_int, TAG => c_int, comm => Handle, &raw mut message.request => *mut usize);
    message
}

/// Says why, here and to `elbow lock mpi`, and ends all processes.
fn end(native: &Native, comm: Handle, what: &str) -> ! {
    let line = format!(
        "elbow: {what}. What runs without it writes past the locks, so the program ends. Has the launcher lost LD_PRELOAD on the way, or is a program \
         linked statically? ({PATIENCE_VARIABLE} waits longer, `elbow lock mpi --uncovered ignore` does not look)\n"
    );
    eprint!("{line}"); // one piece, so that those of several processes do not mix
    report(Report::Uncovered);
    wait_until_read();
    call!(native, "PMPI_Abort", comm => Handle, EXIT_CODE => c_int);
    std::process::exit(EXIT_CODE)
}

/// The launchers of MPICH end with a program that aborts, and leave what it said in the pipe to them: nobody would hear why.
fn wait_until_read() {
    let (stderr, begin) = (std::io::stderr(), Instant::now());
    while rustix::io::ioctl_fionread(&stderr).is_ok_and(|unread| unread > 0) && begin.elapsed() < READ_MAX {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(PASSED_ON);
}

/// `elbow lock mpi` holds a byte for each thing that it may be told, hears that somebody waits for it, and lets go. Who cannot tell it
/// goes on: it then has not been told that all is well.
fn report(what: Report) {
    let run = std::env::var(RUN_VARIABLE).unwrap_or_default();
    let (Some(name), Ok(byte)) = (
        FileName::new(run.as_bytes()),
        Footprint::extent(what as u64..what as u64 + 1),
    ) else {
        return;
    };
    if let Ok(client) = service::client() {
        drop(client.lock_as(
            Owner::of_this_thread(),
            name,
            byte,
            LockMode::Shared,
            Wait::For(REPORT_MS_MAX),
        ));
    }
}

fn is_ignored() -> bool {
    match std::env::var(VARIABLE).as_deref() {
        Ok("ignore") => true,
        Ok("fail") | Err(std::env::VarError::NotPresent) => false,
        other => refuse(&format!("{VARIABLE} is {other:?}; it may be fail or ignore")),
    }
}

fn patience() -> Duration {
    let Ok(text) = std::env::var(PATIENCE_VARIABLE) else {
        return PATIENCE;
    };
    match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => refuse(&format!(
            "{PATIENCE_VARIABLE} is `{text}`; it may be a number of seconds"
        )),
    }
}

fn refuse(why: &str) -> ! {
    eprintln!("elbow: {why}");
    std::process::exit(EXIT_CODE)
}

/// The handle that the library has stored.
fn loaded(native: &Native, stored: &usize) -> Handle {
    // SAFETY: a word in which a handle was stored, or nothing.
    #[allow(unsafe_code)]
    unsafe {
        native.abi.load(std::ptr::from_ref(stored).cast())
    }
}

/// "rank 2", "ranks 1, 4-7".
fn list(ranks: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *rank => *last = *rank,
            _ => runs.push((*rank, *rank)),
        }
    }
    let words: Vec<String> = runs
        .iter()
        .map(|(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        })
        .collect();
    format!("rank{} {}", if ranks.len() == 1 { "" } else { "s" }, words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_told_in_runs() {
        assert_eq!(list(&[2]), "rank 2");
        assert_eq!(list(&[1, 4, 5, 6, 7, 9]), "ranks 1, 4-7, 9");
    }

    /// Both look at each other, and whoever is missing is missed by somebody, unless nobody is there.
    #[test]
    fn who_is_missing_is_missed() {
        for size in [1, 2, 3, 63, 64, 65, 66, 128, 129, 200, 500] {
            let of: Vec<Vec<usize>> = (0..size).map(|rank| neighbours(rank, size)).collect();
            let mut reached = vec![0];
            let mut next = 0;
            while next < reached.len() {
                let rank = reached[next];
                for other in &of[rank] {
                    assert!(
                        *other != rank && of[*other].contains(&rank),
                        "{rank} and {other} of {size}"
                    );
                    if !reached.contains(other) {
                        reached.push(*other);
                    }
                }
                next += 1;
            }
            // In one piece: so between those who are here and those who are not there is always a pair of neighbours.
            assert_eq!(reached.len(), size);
        }
    }
}
