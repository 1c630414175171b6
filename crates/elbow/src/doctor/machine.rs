//! What a job needs of the machine.

#![allow(
    clippy::disallowed_methods,
    reason = "devices, limits and a trial of our own: not the storage of a job"
)]

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use elbow_extmem::pager::{PagedMemory, PagerError};
use elbow_mount::MountError;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::Resource;

use super::check::{Check, State};
use crate::output::without_numbers;
use crate::signals;

/// Each object of a job has a descriptor for a while; with fewer a job waits for them.
const OPEN_FILES_ENOUGH: u64 = 4096;
/// More than the least memory that is paged, and some chunks more.
const PAGED_BYTES: usize = 4 << 20;
const RESIDENT_BYTES: usize = 1 << 20;

/// All but a job.
pub(super) fn checks() -> Vec<Check> {
    let mut checks = vec![version(), fuse()];
    if !rustix::process::geteuid().is_root() {
        checks.extend([user_namespaces(), subordinate_ids()]);
    }
    checks.extend([open_files(), paging()]);
    checks
}

fn version() -> Check {
    let system = rustix::system::uname();
    let text = |word: &std::ffi::CStr| word.to_string_lossy().into_owned();
    let found = format!(
        "elbow {}, {} {} on {}",
        env!("CARGO_PKG_VERSION"),
        text(system.sysname()),
        text(system.release()),
        text(system.machine())
    );
    Check::ok("version", found)
}

fn fuse() -> Check {
    match rustix::fs::openat(CWD, "/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        Ok(_) => Check::ok("fuse", "/dev/fuse can be opened"),
        Err(errno) => Check::refused("fuse", &MountError::NoFuse { errno }.to_string()),
    }
}

/// Whether this user may make a user namespace, in which `elbow run` mounts.
fn user_namespaces() -> Check {
    let mut command = Command::new("true");
    // SAFETY: one system call, between fork and exec.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(|| match libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        });
    }
    match command.stdin(Stdio::null()).status() {
        Ok(_) => Check::ok("user-namespaces", "this user may make them"),
        Err(error) => Check::new(
            "user-namespaces",
            State::Missing,
            without_numbers(&error.to_string()),
            "`elbow mount` works without; for `elbow run` ask the administrator for sysctl user.max_user_namespaces > 0 (Debian: \
             kernel.unprivileged_userns_clone=1; Ubuntu: kernel.apparmor_restrict_unprivileged_userns=0)",
        ),
    }
}

fn subordinate_ids() -> Check {
    if elbow_mount::has_subordinate_ids() {
        return Check::ok(
            "subordinate-ids",
            "this user has some, and newuidmap(1) and newgidmap(1) are there",
        );
    }
    Check::new(
        "subordinate-ids",
        State::Limited,
        "none of this user, or no newuidmap(1) and newgidmap(1)",
        "in a job owners and groups other than one's own are shown as nobody; the administrator gives some in /etc/subuid and \
         /etc/subgid, and installs uidmap (Debian and Ubuntu)",
    )
}

fn open_files() -> Check {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    match limit.maximum {
        Some(most) if most < OPEN_FILES_ENOUGH => Check::new(
            "open-files",
            State::Limited,
            format!("a process may open {most} files"),
            format!(
                "jobs with many files wait for each other; raise the hard limit to {OPEN_FILES_ENOUGH} or more (limits.conf(5))"
            ),
        ),
        Some(most) => Check::ok("open-files", format!("a process may open {most} files")),
        None => Check::ok("open-files", "no limit"),
    }
}

/// Memory whose content is kept in a file: `elbow bench`, and programs that use the library.
fn paging() -> Check {
    let hint = "memory that is paged to a file needs it, jobs and sorts do not: sysctl vm.unprivileged_userfaultfd=1, or access to /dev/userfaultfd";
    match PagedMemory::new(PAGED_BYTES, RESIDENT_BYTES) {
        Ok(memory) if memory.serves_system_calls() => Check::ok("userfaultfd", "memory can be paged to a file"),
        Ok(_) => Check::new(
            "userfaultfd",
            State::Limited,
            "for what the program does itself, not for system calls on its memory",
            hint,
        ),
        Err(error) => Check::new("userfaultfd", State::Missing, paging_error(&error), hint),
    }
}

fn paging_error(error: &PagerError) -> String {
    let text = without_numbers(&error.to_string());
    text.split("; ").next().unwrap_or_default().to_owned()
}

/// A whole job: a command makes a file in a directory, and it is there afterwards.
pub(super) fn job(directory: Option<&Path>) -> Check {
    let made = match directory {
        Some(directory) => run_job(directory),
        // What is elsewhere is tried by itself; here is to be seen whether this machine can run one.
        None => tempfile::tempdir().and_then(|directory| run_job(directory.path())),
    };
    match made {
        Ok(None) => Check::ok("job", "a command ran in one, and what it made was stored"),
        Ok(Some(message)) => Check::refused("job", &message),
        Err(error) => Check::new("job", State::Missing, without_numbers(&error.to_string()), ""),
    }
}

/// What `elbow run` said, if it failed.
fn run_job(directory: &Path) -> io::Result<Option<String>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["run", "--quiet", "--no-keep", "--on"]).arg(directory);
    command.args(["--", "mkdir", "made-by-a-job"]).current_dir(directory);
    command.env_remove("ELBOW_VIA").stdin(Stdio::null());
    signals::unblock_in(&mut command);
    let ended = command.output()?;
    let made = directory.join("made-by-a-job");
    if ended.status.success() && made.is_dir() {
        std::fs::remove_dir(made)?;
        return Ok(None);
    }
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    let last = said
        .lines()
        .rfind(|line| !line.trim().is_empty())
        .unwrap_or("it said nothing");
    Ok(Some(last.trim_start_matches("elbow: ").to_owned()))
}
