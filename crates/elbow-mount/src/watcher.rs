//! A process that clears up after its owner, when that is killed before it can do so itself.
//!
//! ```text
//!   owner ── packets ────> watcher    what there is to clear: mounts, files, the mount namespace of a command
//!         ── SIGKILL ────>            goodbye: it ends, and touches nothing
//!         ── end of file ─>           the owner died: kills what lives in the namespace, takes mounts away
//! ```
//!
//! Until then it sleeps but for a glance once a second: packets wait in the socket, as does the descriptor of the namespace, so
//! that a short command pays for one process that does next to nothing.
//!
//! It is forked while its owner has one thread, so that ordinary code may run in it. It has a session of its own, holds no
//! descriptor of its owner's but its end of the socket (nobody who waits for the end of a pipe waits for it), and has the
//! signals blocked that the owner has. It holds the namespace open: its number cannot become that of another one before
//! all in it are killed. With the last process the namespace goes, and with it the mounts in it.
//!
//! An owner that is killed while it waits for an answer of its own mount (which it syncs, for one) cannot end: who would answer
//! is dead, and what says so to the kernel, the closing of `/dev/fuse`, waits for who waits. So the watcher looks once a second
//! whether its owner is being killed, and aborts the connections then (for
//! ordinary users where fusectl is mounted, as it usually is).
//!
//! Killed are the processes in the namespace, and those in copies of it: another one than ours in which our mount lies, but
//! not where it lay hidden. (Who unmounted it in a namespace of its own lives on.) A mount is taken away if it is one of ours
//! and nobody serves it any more.
//!
//! Source: namespaces(7), unix(7) on `SOCK_SEQPACKET`, pidfd_open(2).

#![allow(clippy::disallowed_methods)] // mount points and /proc: not the storage of a job

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType,
};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};

use crate::fuse::unmount;
use crate::mount_table::{Listed, is_job_at, mounts_in};

/// As processes are listed (prctl(2) takes 15 bytes).
const NAME: &std::ffi::CStr = c"elbow-watcher";
/// Two numbers and what separates them.
const DEVICE_BYTES_MAX: usize = 32;
/// A kind, a device and a path (PATH_MAX).
const PACKET_BYTES_MAX: usize = 1 + 4096 + DEVICE_BYTES_MAX;
/// Processes that fork while they are killed are looked for again; and a mount may be under way. Ten seconds in all.
const LOOKS_MAX: usize = 1000;
const PAUSE: Duration = Duration::from_millis(10);
/// How often is looked for an owner that is being killed and does not end.
const GLANCE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// SIGKILL in the masks of proc_pid_status(5).
const KILLED: u64 = 1 << 8;

/// What a packet is about; its first byte.
const MOUNT: u8 = b'm';
const HIDDEN: u8 = b'h';
const FILE: u8 = b'f';
const DEVICE: u8 = b'd';
const NAMESPACE: u8 = b'n';
const COMMAND: u8 = b'c';

/// A watcher of this process. Dropping it ends it, with nothing cleared.
#[derive(Debug)]
pub struct Watcher {
    socket: OwnedFd,
    process: Pid,
}

impl Watcher {
    /// Starts it. This process must have one thread.
    ///
    /// # Errors
    /// There are too many processes or descriptors.
    #[allow(unsafe_code)]
    pub fn start() -> io::Result<Self> {
        debug_assert_eq!(std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count), 1);
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        // SAFETY: the only thread of this process calls, so that its copy finds no lock held by another.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop(ours);
                // Whatever happens in there must not come back into the code of the owner.
                let _ = std::panic::catch_unwind(|| watch(&theirs));
                // SAFETY: ends the process; what is registered to run at exit is the owner's.
                unsafe { libc::_exit(0) }
            }
            child => {
                let process = Pid::from_raw(child).ok_or_else(|| io::Error::other("fork gave no process"))?;
                Ok(Self { socket: ours, process })
            }
        }
    }

    /// From now on a mount of ours at this path is to be taken away.
    ///
    /// # Errors
    /// The watcher is gone, or the path is too long.
    pub fn mount(&self, path: &Path) -> io::Result<()> {
        self.send(MOUNT, path.as_os_str(), None)
    }

    /// The same with the directory that it is mounted on.
    pub(crate) fn hidden(&self, path: &Path) -> io::Result<()> {
        self.send(HIDDEN, path.as_os_str(), None)
    }

    /// From now on this file is to be removed.
    ///
    /// # Errors
    /// As [`Watcher::mount`].
    pub fn file(&self, path: &OsStr) -> io::Result<()> {
        self.send(FILE, path, None)
    }

    /// A mount of this directory that is not served yet, by its device number: nothing is asked of it.
    pub(crate) fn device(&self, mount: impl AsFd, path: &Path, directory: &Path) -> io::Result<()> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = rustix::fs::statx(mount, path, flags, StatxFlags::MNT_ID)?;
        let mut device = OsString::from(format!("{}:{}\0", found.stx_dev_major, found.stx_dev_minor));
        device.push(directory);
        self.send(DEVICE, &device, None)
    }

    /// A command is about to be started: from now on what lives in other namespaces with a mount of ours in them is to be killed. The
    /// command may have started others before anybody can tell its namespace.
    ///
    /// # Errors
    /// As [`Watcher::mount`].
    pub fn command(&self) -> io::Result<()> {
        self.send(COMMAND, OsStr::new(""), None)
    }

    /// From now on what lives in the mount namespace of a process, and in copies of it, is to be killed; and nothing of a
    /// namespace that was told before.
    ///
    /// # Errors
    /// As [`Watcher::mount`]; and the process has ended, or is not ours to look at.
    pub fn namespace_of(&self, process: Pid) -> io::Result<()> {
        let namespace = std::fs::File::open(format!("/proc/{}/ns/mnt", process.as_raw_nonzero()))?;
        self.send(NAMESPACE, OsStr::new(""), Some(namespace.as_fd()))
    }

    fn send(&self, kind: u8, path: &OsStr, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        if path.len() >= PACKET_BYTES_MAX {
            return Err(Errno::NAMETOOLONG.into());
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if let Some(descriptor) = &descriptor {
            control.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(descriptor)));
        }
        let kind = [kind];
        let packet = [IoSlice::new(&kind), IoSlice::new(path.as_bytes())];
        rustix::net::sendmsg(&self.socket, &packet, &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // One that is gone needs no goodbye; it is our child, so that nobody else has its number.
        let _ = rustix::process::kill_process(self.process, Signal::KILL);
        let _ = rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(self.process), WaitOptions::empty()));
    }
}

/// What there is to clear.
#[derive(Default)]
struct CleanupTasks {
    paths: Vec<(u8, PathBuf)>,
    namespace: Option<OwnedFd>,
    has_command: bool,
    /// Of our mounts, as mount tables have them: the number of the device, and the directory. When a mount has gone, the next mount of anybody gets its
    /// number.
    devices: Vec<(Vec<u8>, PathBuf)>,
}

/// All that the watcher does.
fn watch(socket: &OwnedFd) {
    detach(socket);
    let mut cleanup = CleanupTasks::default();
    cleanup.await_death(socket);
    if cleanup.has_command {
        cleanup.kill_all();
    }
    cleanup.paths.iter().for_each(|(kind, path)| clear(*kind, path));
}

/// Lets go of everything that is the owner's. What fails leaves a watcher that works, and holds more than it should.
fn detach(socket: &OwnedFd) {
    let _ = rustix::thread::set_name(NAME);
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
    if let Ok(null) = std::fs::File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
    close_others(socket.as_raw_fd().into());
}

#[allow(unsafe_code)]
fn close_others(keep: libc::c_long) {
    for (first, last) in [(3, keep - 1), (keep + 1, u32::MAX.into())] {
        if first <= last {
            // SAFETY: nothing in this process uses the descriptors that it closes any more.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    }
}

/// What a namespace is known by.
type Identity = (u64, u64);

impl CleanupTasks {
    /// Returns when the owner is dead, and knows all that it told.
    fn await_death(&mut self, socket: &OwnedFd) {
        let owner = rustix::process::getppid();
        loop {
            // Packets wake nobody.
            let seen = poll(&mut [PollFd::new(socket, PollFlags::empty())], Some(&GLANCE));
            if self.listen(socket) {
                return;
            }
            if seen == Ok(0) && owner.is_some_and(is_being_killed) {
                self.devices.iter().for_each(|(device, _)| abort(device));
            }
        }
    }

    /// Takes what has come; says whether that is all that will come.
    fn listen(&mut self, socket: &OwnedFd) -> bool {
        loop {
            let mut bytes = [0; PACKET_BYTES_MAX];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut pieces = [IoSliceMut::new(&mut bytes)];
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            let length = match rustix::net::recvmsg(socket, &mut pieces, &mut control, flags) {
                Err(Errno::AGAIN | Errno::INTR) => return false,
                got => got.map_or(0, |message| message.bytes),
            };
            let descriptor = control.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
                _ => None,
            });
            match bytes[..length].split_first() {
                None => return true,
                Some((&COMMAND, _)) => self.has_command = true,
                Some((&NAMESPACE, _)) => self.namespace = descriptor,
                Some((&DEVICE, told)) => self.devices.extend(device_in(told)),
                Some((&kind, path)) => self.paths.push((kind, PathBuf::from(OsStr::from_bytes(path)))),
            }
        }
    }

    fn kill_all(&self) {
        let Some(own) = identity(Path::new("/proc/self/ns/mnt")) else {
            return;
        };
        let wanted = self
            .namespace
            .as_ref()
            .and_then(|namespace| rustix::fs::fstat(namespace).ok());
        let wanted = wanted.map(|found| ((found.st_dev, found.st_ino), true));
        for _ in 0..LOOKS_MAX {
            // Only what we hold open keeps its number until the next look.
            let mut known: HashMap<_, _> = wanted.into_iter().chain([(own, false)]).collect();
            let found: Vec<_> = processes()
                .filter(|process| self.will_be_killed(process, &mut known))
                .collect();
            if found.is_empty() {
                return;
            }
            found.iter().for_each(kill);
            std::thread::sleep(PAUSE);
        }
    }

    fn will_be_killed(&self, process: &Process, known: &mut HashMap<Identity, bool>) -> bool {
        *known
            .entry(process.namespace)
            .or_insert_with(|| self.is_mounted_in(process.pid))
    }

    fn is_mounted_in(&self, process: Pid) -> bool {
        // It may have ended.
        let table = std::fs::read(format!("/proc/{}/mountinfo", process.as_raw_nonzero())).unwrap_or_default();
        self.has_ours(&table)
    }

    fn has_ours(&self, table: &[u8]) -> bool {
        let is_hidden = |point: &Path| self.paths.iter().any(|(kind, path)| *kind == HIDDEN && path == point);
        let is_ours = |listed: &Listed<'_>| {
            let mut ours = self.devices.iter();
            ours.any(|(device, directory)| *device == listed.device && *directory == listed.source)
        };
        mounts_in(table).any(|listed| is_ours(&listed) && !is_hidden(&listed.point))
    }
}

/// The number of a device, and the directory that is mounted with it.
fn device_in(told: &[u8]) -> Option<(Vec<u8>, PathBuf)> {
    let end = told.iter().position(|byte| *byte == 0)?;
    Some((told[..end].to_vec(), PathBuf::from(OsStr::from_bytes(&told[end + 1..]))))
}

/// It has got SIGKILL and is still there.
fn is_being_killed(process: Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero())).unwrap_or_default();
    let masks = status.lines().filter_map(|line| {
        let mask = line.strip_prefix("SigPnd:").or(line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    });
    masks.fold(0, |all, mask| all | mask) & KILLED != 0
}

/// Ends the connection behind a mount of which something is open: whoever waits for an answer of it is told that there is none (ECONNABORTED). For ordinary
/// users where fusectl is mounted; else the connection ends with this process.
pub fn end_connection(open: impl AsFd) {
    // What the kernel knows already: nobody may be there who answers.
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    if let Ok(found) = rustix::fs::statx(open, "", flags, StatxFlags::empty()) {
        abort(format!("{}:{}", found.stx_dev_major, found.stx_dev_minor).as_bytes());
    }
}

/// Ends a connection, whoever holds its descriptor. Connections are known by the minor number of their device.
fn abort(device: &[u8]) {
    let minor = device.rsplit(|byte| *byte == b':').next().map(String::from_utf8_lossy);
    let name = format!("{}/abort", minor.unwrap_or_default());
    // Without fusectl there is no way.
    let _ = fusectl().and_then(|connections| {
        let file = rustix::fs::openat(connections, name, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(file, b"1")
    });
}

/// The file system of all connections: root makes a mount that lies nowhere, others need the usual one.
fn fusectl() -> Result<OwnedFd, Errno> {
    if !rustix::process::geteuid().is_root() {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        return rustix::fs::open("/sys/fs/fuse/connections", flags, Mode::empty());
    }
    let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(context.as_fd())?;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
}

/// A process that runs.
struct Process {
    pid: Pid,
    namespace: Identity,
}

fn processes() -> impl Iterator<Item = Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter_map(|pid| {
        let namespace = namespace_of(pid)?;
        Some(Process { pid, namespace })
    })
}

/// None if it has ended, or is not ours to look at.
fn namespace_of(pid: Pid) -> Option<Identity> {
    identity(Path::new(&format!("/proc/{}/ns/mnt", pid.as_raw_nonzero())))
}

fn identity(namespace: &Path) -> Option<Identity> {
    let metadata = std::fs::metadata(namespace).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// Through a descriptor of the process that was looked at again: its number may be another's by now.
fn kill(process: &Process) {
    let Ok(descriptor) = rustix::process::pidfd_open(process.pid, PidfdFlags::empty()) else {
        return;
    };
    if namespace_of(process.pid) == Some(process.namespace) {
        // It may have ended.
        let _ = rustix::process::pidfd_send_signal(descriptor, Signal::KILL);
    }
}

fn clear(kind: u8, path: &Path) {
    match kind {
        FILE => drop(std::fs::remove_file(path)),
        HIDDEN => clear_hidden(path),
        _ => clear_mount(path),
    }
}

fn clear_mount(path: &Path) {
    // Nobody serves it: the connection has been aborted. Asked for is what the kernel never answers itself.
    if is_job_at(path) && matches!(rustix::fs::statvfs(path), Err(Errno::NOTCONN)) {
        // Nothing is left to try.
        let _ = unmount(path, true);
    }
}

/// The helper that mounts may be at work still.
fn clear_hidden(path: &Path) {
    for _ in 0..LOOKS_MAX {
        clear_mount(path);
        match rustix::fs::rmdir(path) {
            Err(Errno::BUSY) => std::thread::sleep(PAUSE),
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mount that had gone left its number to another job's, whose command was killed.
    #[test]
    fn a_mount_is_ours_by_its_device_and_its_directory() {
        let told = |kind, path: &str| (kind, PathBuf::from(path));
        let cleanup = CleanupTasks {
            paths: vec![told(HIDDEN, "/tmp/hidden")],
            devices: device_in(b"0:45\0/data/of alice").into_iter().collect(),
            ..CleanupTasks::default()
        };
        let table = |device: &str, point: &str, source: &str| {
            format!(
                "80 22 0:20 / /proc rw - proc proc rw\n81 22 {device} / {point} rw shared:1 - fuse.elbow {source} rw,user_id=0\n"
            )
        };
        let is_ours = |table: String| cleanup.has_ours(table.as_bytes());
        assert!(is_ours(table("0:45", "/data", r"/data/of\040alice")));
        assert!(!is_ours(table("0:45", "/data", "/data/of")));
        assert!(!is_ours(table("0:46", "/data", r"/data/of\040alice")));
        assert!(!is_ours(table("0:45", "/tmp/hidden", r"/data/of\040alice")));
    }
}
