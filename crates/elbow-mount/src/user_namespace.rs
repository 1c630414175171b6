//! A user namespace of our own to mount in, for a user who lives in one already.
//!
//! A job of an ordinary user inside another one: there is no root in the outer's user namespace, so that the setuid helper gets no
//! rights. What the kernel allows everybody is to mount FUSE in a user namespace that one has made. A forked process makes it, mounts
//! there, hands over the descriptors and ends; the namespace lives on by one of them, and commands join it.
//!
//! ```text
//!   elbow ── fork ──> unshare(user, mount)  map own ids  open /dev/fuse  fsmount  ── device, mount, namespace ──> elbow
//!   command: setns(user)  unshare(mount)  move the mount over DIR  exec
//! ```
//!
//! Owners and groups that have no number in such a namespace could not even be written to by who is in the group: the kernel refuses
//! all that it cannot name. So what the outer job shows as nobody's is shown as the user's own. What that allows too much, the outer job
//! refuses, as a deferred error. This is why it is not done where the helper works.
//!
//! The fork has one thread of many: only system calls are made in it, on memory from before.
//!
//! Source: user_namespaces(7); Linux, fs/fuse/inode.c (the device must be opened where it is mounted).

#![allow(clippy::disallowed_methods)] // devices and /proc: not the storage of a job

use std::ffi::{CStr, CString};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

use elbow_file::Errno;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType,
};
use rustix::process::{Pid, WaitOptions};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use crate::fuse::DEVICE;
use crate::id_maps::IdMaps;
use crate::mount_error::{MountError, failed};
use crate::step::{STEPS, Step};

/// Who stands for owners without a number, and as what they are shown.
struct Owners {
    nobody: (u32, u32),
    own: (u32, u32),
}

static OWNERS: OnceLock<Owners> = OnceLock::new();

/// Of this process, from its first mount on.
static NAMESPACE: OnceLock<OwnedFd> = OnceLock::new();

/// The user namespace that commands have to join, if there is one.
pub(crate) fn namespace() -> Option<&'static OwnedFd> {
    NAMESPACE.get()
}

/// Whether root has no meaning here, so that nothing is setuid root.
pub(crate) fn is_needed() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let mut begins = map.lines().filter_map(|line| line.split_whitespace().next());
    !map.is_empty() && begins.all(|begin| begin != "0")
}

/// Owner and group as the kernel has to be told them.
pub(crate) fn shown_owners((user, group): (u32, u32)) -> (u32, u32) {
    let Some(Owners { nobody, own }) = OWNERS.get() else {
        return (user, group);
    };
    let shown = |id, nobody, own| if id == nobody { own } else { id };
    (shown(user, nobody.0, own.0), shown(group, nobody.1, own.1))
}

impl Owners {
    fn here() -> Self {
        /// What these are unless somebody has changed them (proc_sys_kernel(5)).
        const USUAL: u32 = 65_534;
        let setting = |name: &str| {
            let text = std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok();
            text.and_then(|text| text.trim().parse().ok()).unwrap_or(USUAL)
        };
        Self {
            nobody: (setting("overflowuid"), setting("overflowgid")),
            own: (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
        }
    }
}

/// All that the forked process needs.
struct Plan {
    ids: IdMaps,
    source: CString,
    user: CString,
    group: CString,
    /// A number that is free there, and its text.
    number: OwnedFd,
    number_text: CString,
    attributes: MountAttrFlags,
}

/// A mount that lies nowhere, and the device behind it.
pub(crate) fn mount(source: &Path, attributes: MountAttrFlags) -> Result<(OwnedFd, OwnedFd), MountError> {
    let at = |errno| failed(Step::Mount, errno);
    let plan = Plan::new(source, attributes).map_err(at)?;
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).map_err(at)?;
    let process = fork(&plan, &theirs).map_err(at)?;
    drop(theirs);
    let received = receive(&ours);
    let _ = rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(process), WaitOptions::empty()));
    let [device, mount, namespace] = received?;
    // A second one is the first again.
    let _ = NAMESPACE.set(namespace);
    OWNERS.get_or_init(Owners::here);
    Ok((device, mount))
}

#[allow(unsafe_code)]
fn fork(plan: &Plan, socket: &OwnedFd) -> Result<Pid, Errno> {
    // SAFETY: the child makes system calls only, and never returns.
    match unsafe { libc::fork() } {
        0 => {
            if let Err((step, errno)) = plan.carry_out(socket) {
                let [low, high] = (errno.raw_os_error() as u16).to_le_bytes();
                let _ = rustix::net::send(socket, &[step as u8, low, high], SendFlags::NOSIGNAL);
            }
            // SAFETY: ends the process; what is registered to run at exit is the parent's.
            unsafe { libc::_exit(0) }
        }
        child => Pid::from_raw(child).filter(|_| child > 0).ok_or(Errno::AGAIN),
    }
}

impl Plan {
    fn new(source: &Path, attributes: MountAttrFlags) -> Result<Self, Errno> {
        let text = |text: String| CString::new(text).map_err(|_| Errno::INVAL);
        let number = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self {
            ids: IdMaps::own(),
            source: CString::new(source.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?,
            user: text(rustix::process::geteuid().as_raw().to_string())?,
            group: text(rustix::process::getegid().as_raw().to_string())?,
            number_text: text(number.as_raw_fd().to_string())?,
            number,
            attributes,
        })
    }

    fn carry_out(&self, socket: &OwnedFd) -> Result<(), (Step, Errno)> {
        let at = |step| move |errno| (step, errno);
        self.enter().map_err(at(Step::Unshare))?;
        let namespace = open(c"/proc/self/ns/user", OFlags::RDONLY).map_err(at(Step::Unshare))?;
        let device = open(DEVICE, OFlags::RDWR).map_err(at(Step::Mount))?;
        let mount = self.mount(&device).map_err(at(Step::Mount))?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [device.as_fd(), mount.as_fd(), namespace.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        rustix::net::sendmsg(socket, &[IoSlice::new(b"done")], &mut control, SendFlags::NOSIGNAL)
            .map(|_| ())
            .map_err(at(Step::Mount))
    }

    /// The namespace that there is already, or a new one.
    #[allow(unsafe_code)]
    fn enter(&self) -> Result<(), Errno> {
        if let Some(namespace) = NAMESPACE.get() {
            rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::User))?;
            // SAFETY: a forked process has one thread, and no descriptors are unshared.
            return unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) };
        }
        // SAFETY: as above.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)? };
        self.ids.write()
    }

    fn mount(&self, device: &OwnedFd) -> Result<OwnedFd, Errno> {
        use rustix::mount::{fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen};
        dup_over(device, &self.number)?;
        let context = fsopen(c"fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
        let set = |key: &CStr, value: &CStr| fsconfig_set_string(context.as_fd(), key, value);
        set(c"source", &self.source)?;
        set(c"subtype", c"elbow")?;
        set(c"fd", &self.number_text)?;
        set(c"rootmode", c"40000")?;
        set(c"user_id", &self.user)?;
        set(c"group_id", &self.group)?;
        fsconfig_set_flag(context.as_fd(), c"default_permissions")?;
        fsconfig_create(context.as_fd())?;
        fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, self.attributes)
    }
}

fn open(path: &CStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty())
}

/// The number is known before the fork, where its text can be made.
#[allow(unsafe_code)]
fn dup_over(device: &OwnedFd, number: &OwnedFd) -> Result<(), Errno> {
    // SAFETY: both are open; the second stays so, as another file, until this process ends.
    match unsafe { libc::dup3(device.as_raw_fd(), number.as_raw_fd(), libc::O_CLOEXEC) } {
        -1 => Err(Errno::BADF),
        _ => Ok(()),
    }
}

fn receive(socket: &OwnedFd) -> Result<[OwnedFd; 3], MountError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 4];
    let got = rustix::io::retry_on_intr(|| {
        let mut pieces = [IoSliceMut::new(&mut bytes)];
        rustix::net::recvmsg(socket, &mut pieces, &mut control, RecvFlags::CMSG_CLOEXEC)
    });
    got.map_err(|errno| failed(Step::Mount, errno))?;
    let descriptors: Vec<OwnedFd> = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect();
    descriptors.try_into().map_err(|_| {
        let step = STEPS.into_iter().find(|step| *step as u8 == bytes[0]);
        let errno = Errno::from_raw_os_error(u16::from_le_bytes([bytes[1], bytes[2]]).into());
        match step {
            Some(step @ Step::Unshare) => MountError::NoUserNamespace { step, errno },
            _ => failed(Step::Mount, errno),
        }
    })
}
