//! The storages that cases lie on, and a place for each tree on them.
//!
//! ```text
//!   LAB/                    a tmpfs of our own: images, scripts, logs; gone with the mount namespace of who made it
//!   LAB/disk/n-7/w          an old tree on a local file system, where native and job runs work
//!   LAB/disk/n-7/{lower,upper,work}, LAB/over-7/w       overlayfs: the old tree is the lower layer
//!   LAB/disk/n-7/w  seen as LAB/far/n-7/w               slowfs, sshfs: made and judged on the server's side
//!   LAB/disk/n-7/w  reached by LAB/as-ssh               SFTP: native runs work in it, and jobs by way of a server
//! ```

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};
use tempfile::TempDir;

use super::case::{Runner, WorkerIdentity};
use super::draw::ordinary;
use crate::slowfs::{Mounted, SlowFs, SlowOptions};
use crate::sshbed::{SshMount, SshTestbed};

/// The size of an image; what is not written takes no room.
const IMAGE_BYTES: u64 = 1 << 30;

/// What is run as ssh(1) where a job goes over SFTP, in the lab.
const AS_SSH: &str = "as-ssh";
/// Where systems have OpenSSH's server.
const SFTP_SERVERS: [&str; 4] = [
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
    "/usr/libexec/sftp-server",
];

/// A kind of storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Storage {
    /// In memory.
    Tmpfs,
    /// On a loop device.
    Ext4,
    /// On a loop device.
    Xfs,
    /// On a loop device.
    Btrfs,
    /// The old tree is in the lower layer, as in a container; on ext4.
    Overlayfs,
    /// The testkit's FUSE passthrough, on ext4.
    Slowfs,
    /// sshfs as root, to root.
    Sshfs,
    /// sshfs as a user, to the same user.
    SshfsUser,
    /// sshfs as root, to another user.
    SshfsOther,
    /// In memory; a job reaches it over SFTP.
    SftpTmpfs,
    /// On ext4; a job reaches it over SFTP.
    Sftp,
}

impl Storage {
    /// All of them, the cheapest first.
    pub const ALL: [Self; 11] = [
        Self::Tmpfs,
        Self::Ext4,
        Self::Xfs,
        Self::Btrfs,
        Self::Overlayfs,
        Self::Slowfs,
        Self::Sshfs,
        Self::SshfsUser,
        Self::SshfsOther,
        Self::SftpTmpfs,
        Self::Sftp,
    ];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tmpfs => "tmpfs",
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::Overlayfs => "overlayfs",
            Self::Slowfs => "slowfs",
            Self::Sshfs => "sshfs",
            Self::SshfsUser => "sshfs-user",
            Self::SshfsOther => "sshfs-other",
            Self::SftpTmpfs => "sftp-tmpfs",
            Self::Sftp => "sftp",
        }
    }

    /// Reads what is written.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|storage| storage.name() == name)
    }

    /// Whether it is sshfs.
    pub fn is_far(self) -> bool {
        matches!(self, Self::Sshfs | Self::SshfsUser | Self::SshfsOther)
    }

    /// Whether jobs reach it over SFTP; native runs work in the directory itself.
    pub fn is_by_sftp(self) -> bool {
        matches!(self, Self::SftpTmpfs | Self::Sftp)
    }

    /// What this machine lacks for it, as a sentence.
    pub fn missing(self) -> Option<String> {
        if self.is_by_sftp() {
            return sftp_server()
                .is_none()
                .then(|| "there is no sftp-server here: openssh-sftp-server has it".to_owned());
        }
        self.is_far().then(SshTestbed::missing).flatten()
    }

    /// Whether several users work on it in one case: sshfs is one user's.
    pub fn has_users(self) -> bool {
        !self.is_far()
    }

    /// Whether it has extended attributes and access control lists.
    pub fn has_attributes(self) -> bool {
        !self.is_far() && !self.is_by_sftp()
    }

    /// Whether a directory may be a device of its own.
    pub fn has_subvolumes(self) -> bool {
        self == Self::Btrfs
    }

    /// Whether what is in an old tree may have several names: copying one up from a lower layer of overlayfs leaves the others behind, and sshfs does
    /// not know which names are one file, so that even natively one shows what the other was.
    pub fn keeps_links(self) -> bool {
        self != Self::Overlayfs && !self.is_far() && !self.is_by_sftp()
    }

    /// What the times of an old tree end in: SFTP carries whole seconds only.
    pub fn nanoseconds(self) -> i64 {
        match self.is_far() || self.is_by_sftp() {
            true => 0,
            false => 123_456_789,
        }
    }

    /// Who runs cases on it, where not both do.
    pub fn runner(self) -> Option<Runner> {
        match self {
            Self::Sshfs | Self::SshfsOther => Some(Runner::Root),
            Self::SshfsUser => Some(Runner::User),
            _ => None,
        }
    }

    /// Who works on the server's side, where that is one user: a name that is on every machine.
    fn server_user(self) -> Option<&'static str> {
        match self {
            Self::Sshfs => Some("root"),
            Self::SshfsUser => Some("daemon"),
            Self::SshfsOther => Some("bin"),
            _ => None,
        }
    }

    /// The user and the group of that one.
    pub fn server_ids(self) -> Option<(u32, u32)> {
        match self {
            Self::Sshfs => Some((0, 0)),
            Self::SshfsUser => Some((1, 1)),
            Self::SshfsOther => Some((2, 2)),
            _ => None,
        }
    }

    fn file_system(self) -> &'static str {
        match self {
            Self::Tmpfs | Self::SftpTmpfs => "tmpfs",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            _ => "ext4",
        }
    }
}

/// A mounted storage, on which there is a place for each tree; gone when dropped.
#[derive(Debug)]
pub struct StorageHost {
    storage: Storage,
    next: AtomicU64,
    far: Option<Server>,
    dir: TempDir,
}

#[derive(Debug)]
enum Server {
    Slow { _mounted: Mounted },
    Ssh { _mount: SshMount, _bed: SshTestbed },
}

/// Where one tree lies.
#[derive(Debug)]
pub struct Place {
    /// The directory that a run works in.
    pub work: PathBuf,
    /// The same as it is stored.
    pub stored: PathBuf,
    /// What is removed in the end.
    dir: PathBuf,
    /// What is unmounted before.
    over: Option<PathBuf>,
    /// The directory that is removed, as a server's mount shows it.
    seen: Option<PathBuf>,
}

/// Makes mounts that only this thread, and what it starts, sees: they go when it ends, however it does.
///
/// # Errors
/// What unshare(2) says: it needs root.
pub fn enter_own_mounts() -> io::Result<()> {
    #[allow(unsafe_code)]
    // SAFETY: no file descriptors are unshared.
    unsafe {
        rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS)?;
    }
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    let_go_of_servers()
}

/// Unmounts copies of other tests' file systems in user space: their servers end with the last mount, and would wait for the end of ours.
fn let_go_of_servers() -> io::Result<()> {
    let table = fs::read_to_string("/proc/thread-self/mountinfo")?;
    let server_mount = |line: &str| {
        let (mount, kind) = line.split_once(" - ")?;
        let mountpoint = mount.split(' ').nth(4)?;
        let is_server = kind.starts_with("fuse ") || kind.starts_with("fuse.");
        (is_server && Path::new(mountpoint).starts_with(std::env::temp_dir())).then(|| mountpoint.to_owned())
    };
    // The newest first: one may lie below another.
    for mountpoint in table.lines().rev().filter_map(server_mount) {
        // One with another spelling there, or gone with the one above it, is in nobody's way here.
        let _ = unmount(mountpoint, UnmountFlags::DETACH);
    }
    Ok(())
}

/// Lets every user use FUSE, as machines do. Call it in mounts of one's own.
///
/// # Errors
/// What mounting says.
pub fn open_fuse_to_all(test_storage: &StorageHost) -> io::Result<()> {
    let node = test_storage.path("fuse");
    if node.exists() {
        return Ok(());
    }
    run(Command::new("mknod")
        .args(["-m", "666"])
        .arg(&node)
        .args(["c", "10", "229"]))?;
    run(Command::new("mount").arg("--bind").arg(&node).arg("/dev/fuse"))?;
    let connections = Path::new("/sys/fs/fuse/connections");
    if fs::read_dir(connections)?.next().is_none() {
        // It may be mounted and empty; then this is one mount more.
        let _ = run(Command::new("mount").args(["-t", "fusectl", "none"]).arg(connections));
    }
    Ok(())
}

impl StorageHost {
    /// Mounts a storage, below the directory for temporary files.
    ///
    /// # Errors
    /// What making and mounting it says.
    pub fn new(storage: Storage) -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("elbow-differ-").tempdir()?;
        mount(
            "none",
            dir.path(),
            "tmpfs",
            MountFlags::NOATIME, // Reading changes no access times: they are compared.
            Some(c"size=6g,mode=755"),
        )?;
        let mut test_storage = Self {
            storage,
            next: AtomicU64::new(0),
            far: None,
            dir,
        };
        for (name, mode) in [("disk", 0o755), ("far", 0o755), ("scratch", 0o1777), ("ssh", 0o700)] {
            fs::create_dir(test_storage.path(name))?;
            fs::set_permissions(test_storage.path(name), Permissions::from_mode(mode))?;
        }
        test_storage.mount_disk()?;
        open_fuse_to_all(&test_storage)?;
        test_storage.far = test_storage.mount_far()?;
        if storage.is_by_sftp() {
            let server = sftp_server().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
            let script = format!(
                "for last; do :; done\n[ \"$last\" = sftp ] || exit 127\ncd / && umask 022 && exec {}",
                server.display()
            );
            write_script(&test_storage.path(AS_SSH), &script)?;
        }
        Ok(test_storage)
    }

    /// What it is.
    pub fn storage(&self) -> Storage {
        self.storage
    }

    /// Variables of the environment with which `elbow` reaches it.
    pub(super) fn environment(&self) -> Vec<(&'static str, OsString)> {
        if !self.storage.is_by_sftp() {
            return Vec::new();
        }
        vec![
            ("ELBOW_VIA", "ssh://here".into()),
            ("ELBOW_SSH", self.path(AS_SSH).into()),
            ("ELBOW_VIA_PROGRAM", "".into()), // None is looked for.
        ]
    }

    /// A path in the lab, on no storage under test.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn mount_disk(&self) -> io::Result<()> {
        let (disk, image, kind) = (self.path("disk"), self.path("image"), self.storage.file_system());
        if kind == "tmpfs" {
            return Ok(());
        }
        fs::File::create(&image)?.set_len(IMAGE_BYTES)?;
        let make: &[&str] = match kind {
            "xfs" => &["mkfs.xfs", "-q"],
            "btrfs" => &["mkfs.btrfs", "-q"],
            _ => &["mkfs.ext4", "-q", "-m", "0"],
        };
        run(Command::new(make[0]).args(&make[1..]).arg(&image))?;
        run(Command::new("mount")
            .args(["-o", "loop,noatime,discard"])
            .arg(&image)
            .arg(&disk))?;
        fs::set_permissions(&disk, Permissions::from_mode(0o755))
    }

    fn mount_far(&self) -> io::Result<Option<Server>> {
        let (disk, far) = (self.path("disk"), self.path("far"));
        if self.storage == Storage::Slowfs {
            let options = SlowOptions {
                allow_other: true,
                ..SlowOptions::default()
            };
            let mounted = SlowFs::mount(&disk, &far, &options)?;
            return Ok(Some(Server::Slow { _mounted: mounted }));
        }
        let Some(user) = self.storage.server_user() else {
            return Ok(None);
        };
        let testbed = SshTestbed::start(&self.path("ssh"), Duration::ZERO)?;
        let mut sshfs = Command::new("sshfs");
        if self.storage == Storage::SshfsUser {
            let WorkerIdentity { uid, gid, .. } = ordinary();
            chown(&far, Some(uid), Some(gid))?;
            testbed.let_in(uid)?;
            sshfs.uid(uid).gid(gid);
        }
        let mount = testbed.mount_as(user, &mut sshfs, &disk, &far)?;
        Ok(Some(Server::Ssh {
            _mount: mount,
            _bed: testbed,
        }))
    }

    /// A new place; `make` makes the old tree in the directory that it is given.
    ///
    /// # Errors
    /// What making directories and mounting says.
    pub fn place(&self, make: impl FnOnce(&Path)) -> io::Result<Place> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let dir = self.path("disk").join(format!("n-{number}"));
        let stored = dir.join(if self.storage == Storage::Overlayfs {
            "lower/w"
        } else {
            "w"
        });
        fs::create_dir_all(&stored)?;
        make(&stored);
        let mut place = Place {
            work: stored.clone(),
            stored,
            dir,
            over: None,
            seen: None,
        };
        if self.storage == Storage::Overlayfs {
            place.lay_over(&self.path(&format!("over-{number}")))?;
        } else if self.far.is_some() {
            let seen = self.path("far").join(format!("n-{number}"));
            place.work = seen.join("w");
            place.seen = Some(seen);
        }
        Ok(place)
    }
}

impl Drop for StorageHost {
    fn drop(&mut self) {
        self.far = None;
        for name in ["disk", ""] {
            // The lab of a tmpfs has no disk mounted.
            let _ = unmount(self.path(name), UnmountFlags::DETACH);
        }
    }
}

impl Place {
    fn lay_over(&mut self, over: &Path) -> io::Result<()> {
        for path in [&self.dir.join("upper"), &self.dir.join("work"), over] {
            fs::create_dir(path)?;
        }
        let dir = self.dir.display();
        let options = format!("lowerdir={dir}/lower,upperdir={dir}/upper,workdir={dir}/work");
        run(Command::new("mount")
            .args(["-t", "overlay", "overlay", "-o", &format!("noatime,{options}")])
            .arg(over))?;
        self.over = Some(over.to_owned());
        (self.work, self.stored) = (over.join("w"), over.join("w"));
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(over) = &self.over {
            let _ = unmount(over, UnmountFlags::DETACH);
            let _ = fs::remove_dir(over);
        }
        if let Some(seen) = &self.seen {
            // What is removed behind the back of a server's mount stays open there, and keeps its space. What that one may not remove is
            // removed below.
            let _ = fs::remove_dir_all(seen);
        }
        if let Err(error) = fs::remove_dir_all(&self.dir)
            && error.kind() != io::ErrorKind::NotFound
        {
            eprintln!("differ: removing {}: {error}", self.dir.display());
        }
    }
}

fn sftp_server() -> Option<&'static Path> {
    SFTP_SERVERS.into_iter().map(Path::new).find(|path| path.is_file())
}

/// Writes a script that everybody may run.
pub(super) fn write_script(path: &Path, script: &str) -> io::Result<()> {
    fs::write(path, format!("#!/bin/sh\n{script}\n"))?;
    fs::set_permissions(path, Permissions::from_mode(0o755))
}

fn run(command: &mut Command) -> io::Result<()> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = command.env("PATH", path).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{command:?}: {}", said.trim())))
}
