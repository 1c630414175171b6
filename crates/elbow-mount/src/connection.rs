//! A FUSE mount and the `/dev/fuse` descriptor behind it.
//!
//! Root makes the mount *detached* (fsopen(2), fsmount(2)): it lies nowhere until a child moves it into its own
//! namespace, or this process moves it to a path. Ordinary users ask `fusermount3`, which can mount at a path
//! only; for a private namespace that is a hidden temporary directory, from which the child binds it over its
//! directory before the temporary mount is taken away again (the child's copy stays alive).

#![allow(clippy::disallowed_methods)] // mount points, devices and /proc: not the storage of a job

use std::ffi::{OsStr, OsString};
use std::io::{IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use elbow_file::Errno;
use rustix::fs::{CWD, Mode, OFlags, StatVfsMountFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use crate::front::Front;
use crate::fuse::{DEVICE, FUSERMOUNT, unmount};
use crate::job_directory::JobDirectory;
use crate::mount_error::{MountError, errno_of, failed, no_fuse};
use crate::runtime::runtime_parents;
use crate::session::Session;
use crate::step::Step;
use crate::user_namespace;
use crate::watcher::Watcher;

/// Four requests of the largest size.
const READAHEAD_KIB: &str = "4096";

/// A FUSE mount, served or not yet.
#[derive(Debug)]
pub struct Connection {
    device: Option<OwnedFd>,
    mount: Mount,
}

#[derive(Debug)]
enum Mount {
    /// Lies nowhere, or where a child has moved it.
    Detached(OwnedFd),
    /// Lies at a path for good.
    At(PathBuf),
    /// Lies at a hidden path until the child has its own copy.
    Hidden(HiddenMountPoint),
    /// Lies only in the namespace of the child.
    Handed,
}

/// A temporary mount point; gone when dropped.
#[derive(Debug)]
struct HiddenMountPoint(PathBuf);

impl Connection {
    /// A mount for the private namespace of a child. What lies at a path until the child has it, the watcher takes away
    /// should we die.
    ///
    /// # Errors
    /// FUSE or the rights to use it are missing.
    pub fn private(place: &JobDirectory, watcher: &Watcher) -> Result<Self, MountError> {
        if rustix::process::geteuid().is_root() {
            // Whoever comes to it in the namespace comes on the way that leads to the directory itself.
            let (device, mount) = detached(place, true)?;
            watch(watcher.device(&mount, Path::new(""), &source_text(place.path())))?;
            return Ok(Self {
                device: Some(device),
                mount: Mount::Detached(mount),
            });
        }
        if user_namespace::is_needed() {
            let source = source_text(place.path());
            let (device, mount) = user_namespace::mount(&source, attributes(place.flags()))?;
            watch(watcher.device(&mount, Path::new(""), &source))?;
            return Ok(Self {
                device: Some(device),
                mount: Mount::Detached(mount),
            });
        }
        let hidden = HiddenMountPoint::new(watcher)?;
        let device = fusermount(&hidden.0, place)?;
        watch(watcher.device(CWD, &hidden.0, &source_text(place.path())))?;
        Ok(Self {
            device: Some(device),
            mount: Mount::Hidden(hidden),
        })
    }

    /// A mount of a directory at a path that everybody sees. The watcher takes it away should we die.
    ///
    /// Root's mount lets other users in, as the directory itself does, but not where they could not get to the directory:
    /// [`JobDirectory::is_closed_from`] the mount point.
    ///
    /// # Errors
    /// FUSE or the rights to use it are missing.
    pub fn at(place: &JobDirectory, mount_point: &Path, watcher: &Watcher) -> Result<Self, MountError> {
        watch(watcher.mount(mount_point))?;
        let mount = Mount::At(mount_point.to_owned());
        if !rustix::process::geteuid().is_root() {
            let device = fusermount(mount_point, place)?;
            watch(watcher.device(CWD, mount_point, &source_text(place.path())))?;
            return Ok(Self {
                device: Some(device),
                mount,
            });
        }
        let (device, detached) = detached(place, !place.is_closed_from(mount_point)?)?;
        watch(watcher.device(&detached, Path::new(""), &source_text(place.path())))?;
        rustix::mount::move_mount(&detached, "", CWD, mount_point, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .map_err(|errno| failed(Step::Attach, errno))?;
        Ok(Self {
            device: Some(device),
            mount,
        })
    }

    /// Serves the mount from now on.
    ///
    /// # Errors
    /// It was served before, or the kernel did not greet back.
    pub fn serve(&mut self, front: Front) -> std::io::Result<Session> {
        let device = self
            .device
            .take()
            .ok_or_else(|| std::io::Error::other("the mount is served already"))?;
        Session::serve(device, front)
    }

    /// An open descriptor of the root of the mount. It keeps the mount busy. The mount must be served.
    ///
    /// # Errors
    /// Those of open(2).
    pub fn open_root(&self) -> Result<OwnedFd, MountError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = match &self.mount {
            Mount::Detached(mount) => rustix::fs::openat(mount, ".", flags, Mode::empty()),
            Mount::At(path) | Mount::Hidden(HiddenMountPoint(path)) => rustix::fs::open(path, flags, Mode::empty()),
            Mount::Handed => Err(Errno::NOENT),
        };
        let root = root.map_err(|errno| failed(Step::OpenRoot, errno))?;
        // Only root may; others read with the kernel's default.
        let _ = raise_readahead(&root);
        Ok(root)
    }

    /// Once a child has its copy: takes the temporary mount away, so that nobody outside can reach it.
    pub fn hide(&mut self) {
        if let Mount::Hidden(_) = self.mount {
            self.mount = Mount::Handed;
        }
    }

    /// What a child has to attach; `None` when another child has it already.
    pub(crate) fn source(&self) -> Option<MountSource<'_>> {
        match &self.mount {
            Mount::Detached(mount) => Some(MountSource::Detached(mount.as_fd())),
            Mount::At(path) | Mount::Hidden(HiddenMountPoint(path)) => Some(MountSource::Path(path)),
            Mount::Handed => None,
        }
    }
}

/// Where a child finds a mount.
#[derive(Debug)]
pub(crate) enum MountSource<'a> {
    Detached(BorrowedFd<'a>),
    Path(&'a Path),
}

impl HiddenMountPoint {
    /// A directory that only its owner can enter. The watcher knows of it before it is there.
    fn new(watcher: &Watcher) -> Result<Self, MountError> {
        for parent in runtime_parents() {
            let path = parent.join(format!("elbow-{:016x}", random()?));
            watch(watcher.hidden(&path))?;
            if rustix::fs::mkdir(&path, Mode::RWXU).is_ok() {
                return Ok(Self(path));
            }
        }
        Err(MountError::NoRuntimeDirectory)
    }
}

impl Drop for HiddenMountPoint {
    fn drop(&mut self) {
        // Nothing to be done if either fails: an empty directory with mode 0700 stays behind.
        let _ = unmount(&self.0, true);
        let _ = rustix::fs::rmdir(&self.0);
    }
}

/// Makes a mount that lies nowhere, for root alone or for others too. The flags of the file system below hold for it as well.
fn detached(place: &JobDirectory, for_others: bool) -> Result<(OwnedFd, OwnedFd), MountError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let device = rustix::fs::open(DEVICE, flags, Mode::empty()).map_err(no_fuse)?;
    let mount = mount_device(&device, place, for_others).map_err(|errno| failed(Step::Mount, errno))?;
    Ok((device, mount))
}

fn mount_device(device: &OwnedFd, place: &JobDirectory, for_others: bool) -> Result<OwnedFd, Errno> {
    use rustix::mount::{fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen};
    let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let set = |key: &str, value: &OsStr| fsconfig_set_string(context.as_fd(), key, value);
    set("source", source_text(place.path()).as_os_str())?;
    set("subtype", OsStr::new("elbow"))?;
    set("fd", OsStr::new(&device.as_raw_fd().to_string()))?;
    set("rootmode", OsStr::new("40000"))?;
    set("user_id", OsStr::new("0"))?;
    set("group_id", OsStr::new("0"))?;
    fsconfig_set_flag(context.as_fd(), "default_permissions")?;
    if for_others {
        fsconfig_set_flag(context.as_fd(), "allow_other")?;
    }
    fsconfig_create(context.as_fd())?;
    fsmount(
        context.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        attributes(place.flags()),
    )
}

/// Lets the kernel read further ahead than the 128 KiB that it allows a new FUSE mount: on slow storage, what is not
/// asked for early is waited for.
fn raise_readahead(root: &OwnedFd) -> std::io::Result<()> {
    let device = rustix::fs::fstat(root)?.st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    std::fs::write(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"), READAHEAD_KIB)
}

/// What a mount says that it shows: its directory, or the end of a path that is longer than the kernel takes.
fn source_text(directory: &Path) -> PathBuf {
    /// So many bytes a value of fsconfig(2) may have, without the NUL behind it.
    const BYTES_MAX: usize = 255;
    const LEFT_OUT: &str = "…";
    let path = directory.as_os_str().as_bytes();
    if path.len() <= BYTES_MAX {
        return directory.to_owned();
    }
    let tail = &path[path.len() - (BYTES_MAX - LEFT_OUT.len())..];
    // What is left of a character that is cut goes too.
    const LATER_BYTES_MAX: usize = 3;
    let is_later = |byte: &&u8| **byte & 0b1100_0000 == 0b1000_0000;
    let cut = tail.iter().take(LATER_BYTES_MAX).take_while(is_later).count();
    PathBuf::from(OsString::from_vec([LEFT_OUT.as_bytes(), &tail[cut..]].concat()))
}

fn attributes(below: StatVfsMountFlags) -> MountAttrFlags {
    let mut flags = MountAttrFlags::MOUNT_ATTR_NOATIME;
    flags.set(MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW, follows_no_links(below));
    flags.set(
        MountAttrFlags::MOUNT_ATTR_NOSUID,
        below.contains(StatVfsMountFlags::NOSUID),
    );
    flags.set(
        MountAttrFlags::MOUNT_ATTR_NODEV,
        below.contains(StatVfsMountFlags::NODEV),
    );
    flags.set(
        MountAttrFlags::MOUNT_ATTR_NOEXEC,
        below.contains(StatVfsMountFlags::NOEXEC),
    );
    flags
}

/// Links on this mount are read and not followed (`nosymfollow`, mount(8)).
pub(crate) fn follows_no_links(flags: StatVfsMountFlags) -> bool {
    /// `ST_NOSYMFOLLOW`, which no library names.
    const NO_SYMLINKS: StatVfsMountFlags = StatVfsMountFlags::from_bits_retain(0x2000);
    flags.contains(NO_SYMLINKS)
}

fn random() -> Result<u64, MountError> {
    let mut bytes = [0; 8];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    // So few come at once, or none.
    got.map_err(|errno| failed(Step::Mount, errno))?;
    Ok(u64::from_le_bytes(bytes))
}

fn watch(told: std::io::Result<()>) -> Result<(), MountError> {
    told.map_err(|error| failed(Step::Mount, errno_of(&error)))
}

/// Mounts by the setuid helper, which sends the open `/dev/fuse` back over a socket.
/// Source: the protocol of libfuse's `fusermount3` (`_FUSE_COMMFD`).
fn fusermount(mount_point: &Path, place: &JobDirectory) -> Result<OwnedFd, MountError> {
    check_device()?;
    let io = |error: std::io::Error| failed(Step::Mount, errno_of(&error));
    let (ours, theirs) = UnixStream::pair().map_err(io)?;
    let mut child = spawn_fusermount(mount_point, place, &theirs)?;
    drop(theirs);
    let device = receive_descriptor(&ours);
    let mut message = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        // A message that cannot be read is an empty one.
        let _ = stderr.read_to_string(&mut message);
    }
    let status = child.wait().map_err(io)?;
    match device {
        Some(device) if status.success() => Ok(device),
        _ => Err(MountError::Fusermount {
            path: mount_point.to_owned(),
            message: message.trim().to_owned(),
        }),
    }
}

/// The helper opens the device as the user; asking first gives the better message.
fn check_device() -> Result<(), MountError> {
    let wanted = rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK;
    rustix::fs::access(DEVICE, wanted).map_err(no_fuse)
}

#[allow(unsafe_code)]
fn spawn_fusermount(
    mount_point: &Path,
    place: &JobDirectory,
    socket: &UnixStream,
) -> Result<std::process::Child, MountError> {
    let mut options = OsString::from("default_permissions,subtype=elbow,");
    if place.flags().contains(StatVfsMountFlags::NOEXEC) {
        options.push("noexec,");
    }
    options.push("fsname=");
    options.push(escape(source_text(place.path()).as_os_str()));
    let socket = socket.as_raw_fd();
    let mut command = Command::new(FUSERMOUNT);
    command
        .arg("-o")
        .arg(options)
        .arg("--")
        .arg(mount_point)
        .env("_FUSE_COMMFD", socket.to_string());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    // SAFETY: fcntl(2) is async-signal-safe, and the socket stays open until spawn() has returned.
    unsafe { command.pre_exec(move || keep_over_exec(socket)) };
    command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => MountError::NoFusermount,
        _ => failed(Step::Mount, errno_of(&error)),
    })
}

#[allow(unsafe_code)]
fn keep_over_exec(descriptor: RawFd) -> std::io::Result<()> {
    // SAFETY: the caller vouches that the descriptor is open.
    let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
    Ok(rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::empty())?)
}

/// In mount options, commas and backslashes of a value are escaped.
fn escape(value: &OsStr) -> OsString {
    let special = |byte: &u8| matches!(byte, b',' | b'\\');
    let bytes = value
        .as_bytes()
        .iter()
        .flat_map(|b| special(b).then_some(b'\\').into_iter().chain([*b]));
    OsString::from_vec(bytes.collect())
}

/// The descriptor that came over a socket; `None` when the other side closed it instead.
fn receive_descriptor(socket: &UnixStream) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut pieces = [IoSliceMut::new(&mut byte)];
    rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(socket, &mut pieces, &mut control, RecvFlags::CMSG_CLOEXEC).map(|_| ())
    })
    .ok()?;
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_in_a_source_do_not_become_options() {
        assert_eq!(escape(OsStr::new("/data/a,b\\c")), OsStr::new("/data/a\\,b\\\\c"));
    }

    #[test]
    fn a_closed_socket_gives_no_descriptor() {
        let (ours, theirs) = UnixStream::pair().expect("a socket pair");
        drop(theirs);
        assert!(receive_descriptor(&ours).is_none());
    }

    #[test]
    fn flags_of_the_file_system_below_are_kept() {
        let flags = attributes(StatVfsMountFlags::NOSUID | StatVfsMountFlags::NOEXEC);
        assert!(flags.contains(MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC));
        let others = MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW;
        assert!(!flags.intersects(others));
        let flags = attributes(StatVfsMountFlags::from_bits_retain(0x2000));
        assert!(flags.contains(MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW));
    }

    /// Over a directory with a longer path there was no job at all: the kernel said EINVAL to the whole mount.
    #[test]
    fn a_path_that_is_too_long_for_the_kernel_is_shortened_to_its_end() {
        for bytes in [1, 254, 255] {
            let path = PathBuf::from(format!("/{}", "x".repeat(bytes - 1)));
            assert_eq!(source_text(&path), path, "{bytes}");
        }
        for bytes in [256_usize, 257, 600, 3000] {
            for letter in ["x", "é", "語", "🦀"] {
                let path = format!("/{}end", letter.repeat((bytes - 4).div_ceil(letter.len())));
                let shown = source_text(Path::new(&path)).into_os_string().into_string();
                let shown = shown.expect("no character is cut");
                assert!((252..=255).contains(&shown.len()), "{letter}: {}", shown.len());
                let tail = shown.strip_prefix('…').expect("it says that something is left out");
                assert!(path.ends_with(tail), "{shown}");
            }
        }
    }
}
