//! `slowfs`: an honest slow file system over a directory.
//!
//! Every request that the kernel sends is served by the directory below with the exact system call that was meant, after
//! one delay. Nothing is cached, merged or guessed beyond the one second for which the kernel may believe a name and its
//! attributes (as with sshfs and NFS), so the number of delays that a program suffers is the number of round trips that
//! it needs.
//!
//! ```text
//!   kernel ── one session thread ── queue ── N workers:  gate ─ latency ─ bandwidth ─ fault? ─ system call ─ reply
//!                                             │
//!                                             └ N = the limit of operations in service at once
//! ```
//!
//! Invariants:
//! - A request occupies a worker from the start of its delay until its reply, so at most N are in service.
//! - A request whose fault fired has not touched the directory below.
//! - A node holds an open descriptor of its file, so an inode number is never reused while the kernel knows it.
//!
//! What it does not do: POSIX and BSD locks are the kernel's own (valid on this mount only); mounts below the source are
//! crossed, not refused; FORGET is not delayed, because nobody waits for it, nor is the kernel's question about
//! `security.capability` before a first write, because no network file system carries that.

mod calls;
mod counters;
mod fault;
mod front;
mod hidden;
mod service;
mod tree;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::mount::UnmountFlags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub use counters::{Counters, FaultCount, Op};
pub use fault::{Fault, ParseFaultError};
use front::Front;
use service::Service;
use tree::Tree;

/// How slow, how narrow and how broken the storage is.
#[derive(Clone, Debug)]
pub struct SlowOptions {
    /// The time that every operation takes before it is done.
    pub latency: Duration,
    /// Bytes per second, reads and writes together; `None` does not limit them.
    pub bandwidth: Option<u64>,
    /// How many operations are in service at once; 0 means no limit, which is [`UNLIMITED`] here.
    pub concurrent: usize,
    /// Which operations fail, in order: the first rule that fires wins.
    pub faults: Vec<Fault>,
    /// For how long the kernel may believe a name and its attributes.
    pub ttl: Duration,
    /// Whether the name of a removed file stays, under another name, until it is closed everywhere: what NFS clients
    /// (`.nfs...`) and sshfs (`.fuse_hidden...`) do, as their servers know of no open files. A directory that holds such
    /// a name is not empty.
    pub hide_open: bool,
    /// Whether users other than the one that mounts it may use it.
    pub allow_other: bool,
    /// Whether every fcntl and flock lock fails with `ENOLCK`, as on mounts that have no locks.
    pub without_locks: bool,
}

/// What "no limit" of concurrent operations means: a thread each, more than any client of ours keeps in flight.
pub const UNLIMITED: usize = 512;

/// How many operations the benches let the storage serve at once.
pub const BENCH_CONCURRENT: usize = 64;

impl Default for SlowOptions {
    fn default() -> Self {
        Self {
            latency: Duration::ZERO,
            bandwidth: None,
            concurrent: BENCH_CONCURRENT,
            faults: Vec::new(),
            ttl: Duration::from_secs(1),
            hide_open: false,
            allow_other: false,
            without_locks: false,
        }
    }
}

/// Where mounts are made; see [`SlowFs::mount`].
#[derive(Debug)]
pub struct SlowFs;

impl SlowFs {
    /// Mounts `source` on `mountpoint` and serves it from threads of this process until the result is dropped.
    ///
    /// Raises this process's limit of open files as far as it may: each file that the kernel knows costs a descriptor.
    ///
    /// # Errors
    /// What opening the source, `/dev/fuse`, `mount(2)` or `fusermount3` say.
    pub fn mount(source: &Path, mountpoint: &Path, options: &SlowOptions) -> io::Result<Mounted> {
        raise_open_files();
        let mountpoint = mountpoint.canonicalize()?;
        let tree = Arc::new(Tree::open(&source.canonicalize()?, options.hide_open)?);
        let service = Arc::new(Service::start(options)?);
        let front = Front::new(tree, Arc::clone(&service), options);
        let config = front::mount_config(source, options.allow_other);
        let session = fuser::spawn_mount(front, &mountpoint, &config).inspect_err(|_| service.stop())?;
        Ok(Mounted {
            mountpoint,
            service,
            session: Some(session),
        })
    }
}

/// A mounted slow file system; dropping it unmounts it.
#[derive(Debug)]
pub struct Mounted {
    mountpoint: PathBuf,
    service: Arc<Service>,
    session: Option<fuser::BackgroundSession>,
}

impl Mounted {
    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.mountpoint
    }

    /// What has reached the storage so far.
    pub fn counters(&self) -> Counters {
        self.service.counters()
    }

    /// Forgets what has been counted, faults included.
    pub fn reset_counters(&self) {
        self.service.reset_counters();
    }

    /// How often any fault fired.
    pub fn faults_fired(&self) -> u64 {
        self.counters().faults.iter().map(|fault| fault.fired).sum()
    }

    /// Replaces the faults; their counts start again.
    pub fn set_faults(&self, faults: Vec<Fault>) {
        self.service.set_faults(faults);
    }

    /// Changes the delay of the operations that start from now on.
    pub fn set_latency(&self, latency: Duration) {
        self.service.set_latency(latency);
    }

    /// Holds all operations, as storage that has stopped answering does.
    pub fn pause(&self) {
        self.service.set_paused(true);
    }

    /// Lets the held operations go on.
    pub fn resume(&self) {
        self.service.set_paused(false);
    }

    /// How many operations wait to be begun; during a pause, all that were asked for since.
    pub fn waiting(&self) -> usize {
        self.service.waiting()
    }

    /// Whether somebody has unmounted it.
    pub fn has_ended(&self) -> bool {
        self.session.as_ref().is_none_or(|session| session.guard.is_finished())
    }

    /// Unmounts it and waits until all threads have ended.
    ///
    /// # Errors
    /// `EBUSY` when something still uses the mount after two seconds; it is then detached, as by `umount -l`.
    pub fn unmount(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        let Some(session) = self.session.take() else {
            return Ok(());
        };
        self.resume();
        let unmounted = unmount_patiently(&self.mountpoint);
        if unmounted.is_ok() {
            session.join()?;
            self.service.stop();
        } else {
            unmount_once(&self.mountpoint, true)?;
        }
        unmounted
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("slowfs: unmounting {}: {error}", self.mountpoint.display());
        }
    }
}

/// How often and how long apart a busy mount is tried again: something may just be closing a file.
const UNMOUNT_TRIES: u32 = 40;
const UNMOUNT_PAUSE: Duration = Duration::from_millis(50);

fn unmount_patiently(mountpoint: &Path) -> io::Result<()> {
    let mut last = unmount_once(mountpoint, false);
    for _ in 1..UNMOUNT_TRIES {
        match last {
            Err(ref error) if error.kind() == io::ErrorKind::ResourceBusy => thread::sleep(UNMOUNT_PAUSE),
            other => return other,
        }
        last = unmount_once(mountpoint, false);
    }
    last
}

fn unmount_once(mountpoint: &Path, lazily: bool) -> io::Result<()> {
    if !is_mountpoint(mountpoint) {
        return Ok(()); // Somebody else has unmounted it.
    }
    let flags = if lazily {
        UnmountFlags::DETACH
    } else {
        UnmountFlags::empty()
    };
    match rustix::mount::unmount(mountpoint, flags) {
        Err(rustix::io::Errno::PERM) => unmount_as_user(mountpoint, lazily),
        other => Ok(other?),
    }
}

fn unmount_as_user(mountpoint: &Path, lazily: bool) -> io::Result<()> {
    let mut command = std::process::Command::new("fusermount3");
    command.arg("-u").args(lazily.then_some("-z")).arg("--").arg(mountpoint);
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let kind = if said.contains("busy") {
        io::ErrorKind::ResourceBusy
    } else {
        io::ErrorKind::Other
    };
    Err(io::Error::new(kind, said))
}

fn is_mountpoint(path: &Path) -> bool {
    // Of this thread: a test may have given it a mount namespace of its own.
    let Ok(table) = fs::read_to_string("/proc/thread-self/mountinfo") else {
        return true;
    };
    let wanted = mountinfo_escape(path);
    table
        .lines()
        .any(|line| line.split(' ').nth(4) == Some(wanted.as_str()))
}

fn mountinfo_escape(path: &Path) -> String {
    let text = path.to_string_lossy();
    text.replace('\\', "\\134")
        .replace(' ', "\\040")
        .replace('\t', "\\011")
        .replace('\n', "\\012")
}

fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let most = fs::read_to_string("/proc/sys/fs/nr_open")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    let highest = most.or(limit.maximum);
    if setrlimit(
        Resource::Nofile,
        Rlimit {
            current: highest,
            maximum: highest,
        },
    )
    .is_err()
    {
        // Without privilege the hard limit is as far as it goes; failing here only means fewer files at once.
        let _ = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: limit.maximum,
                maximum: limit.maximum,
            },
        );
    }
}
