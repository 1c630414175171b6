//! What a file system is like, beyond what its calls say.

#![allow(
    clippy::disallowed_methods,
    reason = "this is the edge that the rule keeps everybody else behind"
)]

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::retry_on_intr;
use serde::{Deserialize, Serialize};

use crate::{Handle, Result, Time};

pub(crate) const OVERLAYFS: u64 = 0x794C_7630;
const FUSE: u64 = 0x6573_5546;
/// File systems of this machine alone: ext2 to ext4, XFS, btrfs, tmpfs, ramfs, F2FS, bcachefs, ZFS, JFS, and overlayfs,
/// which stands on one of these. Their owners are users of this machine.
const LOCAL: [u64; 10] = [
    0xEF53,
    0x5846_5342,
    0x9123_683E,
    0x0102_1994,
    0x8584_58F6,
    0xF2F5_2010,
    0xCA45_1A4E,
    0x2FC1_2FC1,
    0x3153_464A,
    OVERLAYFS,
];
/// Network file systems that carry locks of byte ranges to the other machines: NFS, Lustre, GPFS, CephFS. (BeeGFS does so only
/// where its administrator says so, FUSE file systems where their authors took the trouble.)
const SHARED: [u64; 4] = [0x6969, 0x0BD0_0BD0, 0x4750_4653, 0x00C3_6400];
/// Mount options with which they do not.
const KEPT_LOCAL: [&str; 4] = ["local_lock=all", "local_lock=posix", "localflock", "noflock"];

/// How many names a file can have on ext4 and btrfs. (pathconf(3) says 127 for what it does not know.)
const LINKS_MAX: [(u64, u32); 2] = [(0xEF53, 65_000), (0x9123_683E, 65_535)];

/// What a file system is like: who gives its objects their owners, and who hears of its locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSystemTraits {
    /// The owner of an object is a user of this machine. Elsewhere a server says who owns what, by ids that may be its own.
    pub own_ids: bool,
    /// A lock ([`Storage::try_lock`](crate::Storage::try_lock)) is seen by all machines that reach the file.
    pub shares_locks: bool,
    /// An object has the same inode number for as long as it is there, whoever looks.
    pub keeps_inos: bool,
    /// What replaces an object has another inode number, but where it is given that of what was removed before. FUSE file systems may give it that of the name.
    pub tells_inos_apart: bool,
    /// A directory that a lower layer has cannot be renamed (EXDEV): overlayfs without `redirect_dir`.
    pub lower_dirs_stay: bool,
    /// To open a file of a lower layer for writing copies it, and sets its time of last change (overlayfs).
    pub copies_up: bool,
    /// The most names that a file can have, where that is known.
    pub links_max: Option<u32>,
    /// All directories that are above it can be seen through the mount: it shows a file system of this machine from its root on.
    pub shows_all_above: bool,
    /// A change by who is not in the group of a file takes set-group-id from it also where the group may not execute it. FUSE leaves it
    /// then (`fuse_do_setattr`, Linux 6.18).
    pub strangers_take_set_group_id: bool,
}

/// Which object something is, and how it was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The mount through which it was opened: another number beyond every mount point, also where the same file system is
    /// mounted there.
    pub mount: u64,
    /// When it was made, which nobody can set; `None` where that is not kept, or not known without asking a server.
    pub born: Option<Time>,
}

/// See [`Storage::identity`](crate::Storage::identity).
pub(crate) fn identity(handle: impl AsFd) -> Result<Identity> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let wanted = StatxFlags::MNT_ID | StatxFlags::BTIME;
    let found = retry_on_intr(|| rustix::fs::statx(&handle, "", flags, wanted))?;
    let has = |what| StatxFlags::from_bits_retain(found.stx_mask).contains(what);
    Ok(Identity {
        // Before Linux 5.8 it is the device, which is the same where a file system is mounted twice.
        mount: if has(StatxFlags::MNT_ID) {
            found.stx_mnt_id
        } else {
            rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor)
        },
        born: has(StatxFlags::BTIME).then_some(Time {
            seconds: found.stx_btime.tv_sec,
            nanoseconds: found.stx_btime.tv_nsec,
        }),
    })
}

/// The nature of the file system that holds an open object.
pub(crate) fn of(handle: &Handle) -> Result<FileSystemTraits> {
    let kind = kind_of(handle)?;
    Ok(FileSystemTraits {
        own_ids: LOCAL.contains(&kind),
        keeps_inos: LOCAL.contains(&kind) && kind != OVERLAYFS,
        tells_inos_apart: LOCAL.contains(&kind) || SHARED.contains(&kind),
        shares_locks: SHARED.contains(&kind) && !keeps_locks_local(handle)?,
        copies_up: kind == OVERLAYFS,
        lower_dirs_stay: kind == OVERLAYFS && lower_dirs_stay(handle)?,
        links_max: LINKS_MAX.iter().find(|(of, _)| *of == kind).map(|(_, most)| *most),
        strangers_take_set_group_id: kind != FUSE,
        shows_all_above: LOCAL.contains(&kind) && shows_root(&mounts(), identity(handle)?.mount),
    })
}

/// The magic number of the file system that holds an open object.
pub(crate) fn kind_of(file: impl AsFd) -> Result<u64> {
    let kind = retry_on_intr(|| rustix::fs::fstatfs(&file))?.f_type;
    #[allow(clippy::unnecessary_cast, reason = "its type differs between architectures")]
    Ok(kind as u64 & 0xFFFF_FFFF)
}

/// Whether a mount shows its file system from the root on (proc_pid_mountinfo(5): the fourth field), and not a directory of it.
fn shows_root(table: &str, mount: u64) -> bool {
    let mount = mount.to_string();
    table.lines().any(|line| {
        let mut fields = line.split(' ');
        fields.next() == Some(&mount) && fields.nth(2) == Some("/")
    })
}

/// Whether an overlayfs refuses to rename directories of lower layers; no, if that cannot be found out.
fn lower_dirs_stay(handle: &Handle) -> Result<bool> {
    let (table, device) = (mounts(), device_of(handle)?);
    let Some(options) = options_of(&table, &device) else {
        return Ok(false);
    };
    let usual = std::fs::read_to_string("/sys/module/overlay/parameters/redirect_dir").ok();
    Ok(renames_of_lower_dirs(options, usual.as_deref()) == Some(false))
}

/// What the options of an overlayfs say, or what is usual where they say nothing.
fn renames_of_lower_dirs(options: &str, usual: Option<&str>) -> Option<bool> {
    let option = options
        .split(',')
        .find_map(|option| option.strip_prefix("redirect_dir="));
    match (option, usual.map(str::trim)) {
        (Some(option), _) => Some(option == "on"),
        (None, Some("Y")) => Some(true),
        (None, Some("N")) => Some(false),
        _ => None,
    }
}

/// Whether the file system of an object is mounted so that its locks stay here; also if that cannot be found out.
fn keeps_locks_local(handle: &Handle) -> Result<bool> {
    let (table, device) = (mounts(), device_of(handle)?);
    Ok(options_of(&table, &device).is_none_or(|options| options.split(',').any(|option| KEPT_LOCAL.contains(&option))))
}

/// The device number of an object, as the table of mounts has it.
fn device_of(handle: &Handle) -> Result<String> {
    let dev = retry_on_intr(|| rustix::fs::fstat(handle))?.st_dev;
    Ok(format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev)))
}

pub(crate) fn mounts() -> String {
    std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()
}

/// The options of a file system by its device number (proc_pid_mountinfo(5): the last field).
fn options_of<'a>(table: &'a str, device: &str) -> Option<&'a str> {
    const DEVICE_FIELD: usize = 2;
    options_where(table, DEVICE_FIELD, device)
}

/// The same by the number of a mount.
pub(crate) fn options_of_mount(table: &str, mount: u64) -> Option<&str> {
    options_where(table, 0, &mount.to_string())
}

fn options_where<'a>(table: &'a str, field: usize, is: &str) -> Option<&'a str> {
    line_where(table, field, is)?.rsplit(' ').next()
}

fn line_where<'a>(table: &'a str, field: usize, is: &str) -> Option<&'a str> {
    table.lines().find(|line| line.split(' ').nth(field) == Some(is))
}

/// What is mounted by the mount of this number ([`Identity::mount`]), and which directory of that, as the table of mounts says
/// (proc_pid_mountinfo(5)). `None`: it is not there, or the kernel is older than 5.8 and has not told the number.
#[must_use]
pub fn what_is_mounted(mount: u64) -> Option<String> {
    what_is_mounted_in(&mounts(), mount)
}

fn what_is_mounted_in(table: &str, mount: u64) -> Option<String> {
    const ROOT_FIELD: usize = 3;
    let line = line_where(table, 0, &mount.to_string())?;
    let source = line.split(' ').skip_while(|field| *field != "-").nth(2)?;
    Some(format!("{source} {}", line.split(' ').nth(ROOT_FIELD)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_of_a_directory_does_not_show_what_is_above() {
        let table = "22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/root rw
            23 22 254:1 /data/sub /sub rw - ext4 /dev/root rw";
        let table = table.lines().map(str::trim_start).collect::<Vec<_>>().join("\n");
        assert!(shows_root(&table, 22));
        assert!(!shows_root(&table, 23) && !shows_root(&table, 2) && !shows_root("", 22));
    }

    #[test]
    fn lower_directories_are_renamed_where_the_options_or_the_module_say_so() {
        let layers = "rw,lowerdir=/l,upperdir=/u,workdir=/w";
        let with = |option: &str| renames_of_lower_dirs(&format!("{layers},{option}"), Some("N\n"));
        assert_eq!(with("redirect_dir=on"), Some(true));
        assert_eq!(with("redirect_dir=nofollow"), Some(false));
        assert_eq!(with("index=off"), Some(false));
        assert_eq!(renames_of_lower_dirs(layers, Some("Y\n")), Some(true));
        assert_eq!(renames_of_lower_dirs(layers, None), None);
    }

    #[test]
    fn what_is_mounted_is_told_with_its_directory() {
        let table = "22 1 254:1 / / rw shared:1 - ext4 /dev/root rw
30 22 0:50 / /mnt rw - fuse.sshfs one:/x rw
31 22 0:51 /sub /mnt rw shared:3 - fuse.sshfs two:/x rw";
        let what = |mount| what_is_mounted_in(table, mount);
        assert_eq!(what(30).as_deref(), Some("one:/x /"));
        assert_eq!(what(31).as_deref(), Some("two:/x /sub"));
        assert_eq!(what(3), None);
    }

    #[test]
    fn options_are_those_of_the_device() {
        let table = "22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/root rw
90 22 0:51 / /net rw,relatime shared:9 - nfs4 server:/x rw,vers=4.2,local_lock=none,addr=1.2.3.4
91 22 0:52 / /old rw,relatime - nfs server:/y rw,vers=3,nolock,local_lock=all";
        assert_eq!(options_of(table, "254:1"), Some("rw"));
        let is_local = |device| options_of(table, device).map(|o| o.split(',').any(|o| KEPT_LOCAL.contains(&o)));
        assert_eq!(is_local("0:51"), Some(false));
        assert_eq!(is_local("0:52"), Some(true));
        assert_eq!(is_local("0:5"), None);
    }
}
