//! What makes two files the same for all that lock them.
//!
//! ```text
//!   path     /mnt/share/db                  one name, whatever file has it: also one that is not there yet, or replaces another
//!   inode    /mnt/share//inode/4711         one file, whatever its names: through hard links and renames, as the kernel's locks
//!            '-- where it is mounted
//!   auto     inode on file systems whose numbers are the files' own and the same for all machines; path on all others
//! ```
//!
//! All that lock the same files must choose alike. What `auto` chooses depends on the type of the file system alone, so that all machines that mount it
//! agree; and a name depends on where the file system is mounted, not on what anybody was told to watch.
//!
//! Not here: whether two mounts are the same file system. It is mounted at the same place by all.
//!
//! Source: proc_pid_mountinfo(5), statx(2).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::str::FromStr;
use std::sync::Mutex;

use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags};

use super::name::file_name;
use crate::error::LockError;
use crate::message::FileName;

/// What makes two files the same. See the module's source for what each means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Identity {
    /// Their path.
    #[default]
    Path,
    /// Their number in their file system.
    Inode,
    /// Their number where it is known to be the same for all who look, else their path.
    Auto,
}

/// File systems whose inode numbers are a file's own for its life, on all machines that mount it. Left out are those that make numbers up in each
/// client (sshfs and most of FUSE, vfat, exfat, 9p, cifs without `serverino`), and overlayfs, where a file that is written to may get another one.
const TRUE_NUMBERS: [&str; 17] = [
    "bcachefs", "btrfs", "ceph", "ext2", "ext3", "ext4", "f2fs", "gfs2", "gpfs", "jfs", "lustre", "nfs", "nfs4",
    "ocfs2", "tmpfs", "xfs", "zfs",
];
/// Its files' numbers are those of a subvolume, which is told by the device that it shows.
const WITH_SUBVOLUMES: &str = "btrfs";
/// Mounts that a process remembers.
const SITES_MAX: usize = 64;

/// `STATX_MNT_ID_UNIQUE`, linux/stat.h: the number of a mount that no other one gets as long as the machine runs, from Linux 6.8 on.
const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// Where a file system is mounted, by that number. By the other, and by the device, a process that lives long would take another mount for
/// one that has gone: the kernel gives both again.
static SITES: Mutex<BTreeMap<u64, Site>> = Mutex::new(BTreeMap::new());

#[derive(Clone, Debug, PartialEq, Eq)]
struct Site {
    place: Vec<u8>,
    kind: String,
}

impl Identity {
    /// The name of a file that is open, whose path is known: absolute and without links.
    ///
    /// # Errors
    /// Where the file system is mounted cannot be seen, or the name is too long.
    pub fn of_open(self, file: impl AsFd, path: &[u8]) -> io::Result<FileName> {
        let too_long = || io::Error::other(format!("a name of {} bytes is too long", path.len()));
        let by_path = || FileName::new(path).ok_or_else(too_long);
        if self == Self::Path {
            return by_path();
        }
        let file = file.as_fd();
        let found = look(file, UNIQUE)?;
        let site = Site::of(file, &found)?;
        if self == Self::Auto && !site.has_true_numbers() {
            return by_path();
        }
        FileName::new(&site.name(&found)).ok_or_else(too_long)
    }

    /// The name of a file. By path, it need not be there.
    ///
    /// ```
    /// use elbow_lock::{Identity, file_name};
    ///
    /// assert_eq!(Identity::Path.of_file("/not-there".as_ref())?, file_name("/not-there".as_ref())?);
    /// assert!(Identity::Inode.of_file("/not-there".as_ref()).is_err());
    /// # Ok::<(), elbow_lock::LockError>(())
    /// ```
    ///
    /// # Errors
    /// It, or its directory, cannot be reached; or it has to be there, and is not.
    pub fn of_file(self, path: &Path) -> Result<FileName, LockError> {
        let by_path = || file_name(path);
        let bad = |source: io::Error| LockError::BadPath {
            path: path.to_owned(),
            source,
        };
        if self == Self::Path {
            return by_path();
        }
        match open(path) {
            Ok(file) => self.of_open(file, by_path()?.as_bytes()).map_err(bad),
            Err(error) if self == Self::Auto && error.kind() == io::ErrorKind::NotFound => {
                let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                match unstable_inodes_at(directory.unwrap_or(Path::new("."))).map_err(bad)? {
                    Some(_) => by_path(),
                    None => Err(bad(error)),
                }
            }
            Err(error) => Err(bad(error)),
        }
    }
}

/// The type of the file system at a path, if its inode numbers are not known to be the same for all who look.
///
/// # Errors
/// The path cannot be reached, or where it is mounted cannot be seen.
pub fn unstable_inodes_at(path: &Path) -> io::Result<Option<String>> {
    let directory = open(path)?;
    let site = Site::of(directory.as_fd(), &look(&directory, UNIQUE)?)?;
    Ok((!site.has_true_numbers()).then_some(site.kind))
}

/// A text is no [`Identity`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is none of path, inode and auto")]
pub struct UnknownIdentity {
    text: String,
}

impl FromStr for Identity {
    type Err = UnknownIdentity;

    fn from_str(text: &str) -> Result<Self, UnknownIdentity> {
        match text {
            "path" => Ok(Self::Path),
            "inode" => Ok(Self::Inode),
            "auto" => Ok(Self::Auto),
            _ => Err(UnknownIdentity { text: text.to_owned() }),
        }
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Path => "path",
            Self::Inode => "inode",
            Self::Auto => "auto",
        })
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "names a file and touches nothing; a client has no storage seam"
)]
fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

#[allow(
    clippy::disallowed_methods,
    reason = "asks for the number of a file; a client has no storage seam"
)]
fn look(file: impl AsFd, number_of_mount: StatxFlags) -> io::Result<Statx> {
    let wanted = StatxFlags::INO | number_of_mount;
    Ok(rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, wanted)?)
}

/// The number by which the table of mounts has it.
fn mount_of(file: BorrowedFd<'_>) -> io::Result<u64> {
    let found = look(file, StatxFlags::MNT_ID)?;
    if found.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
        return Err(io::Error::other("the number of a mount is told from Linux 5.8 on"));
    }
    Ok(found.stx_mnt_id)
}

impl Site {
    /// Where a file lies, of which that is known. Without unique numbers of mounts it is looked up each time.
    fn of(file: BorrowedFd<'_>, found: &Statx) -> io::Result<Self> {
        let key = (found.stx_mask & UNIQUE.bits() != 0).then_some(found.stx_mnt_id);
        // In a child of fork it may be locked for ever, by a thread that is not there.
        let known = || SITES.try_lock().ok()?.get(&key?).cloned();
        if let Some(site) = known() {
            return Ok(site);
        }
        let site = Self::in_table(&mount_table()?, mount_of(file)?)
            .ok_or_else(|| io::Error::other("the mount that it is on is not in /proc/self/mountinfo"))?;
        if let (Some(key), Ok(mut sites)) = (key, SITES.try_lock()) {
            if sites.len() >= SITES_MAX {
                sites.clear();
            }
            sites.insert(key, site.clone());
        }
        Ok(site)
    }

    /// The line of a mount in the table of proc_pid_mountinfo(5).
    fn in_table(table: &[u8], mount: u64) -> Option<Self> {
        let number = mount.to_string();
        let mut lines = table
            .split(|byte| *byte == b'\n')
            .map(|line| line.split(|byte| *byte == b' '));
        let mut fields = lines.find_map(|mut fields| (fields.next() == Some(number.as_bytes())).then_some(fields))?;
        let place = unescaped(fields.nth(3)?);
        let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
        Some(Self {
            place,
            kind: String::from_utf8_lossy(kind).into_owned(),
        })
    }

    fn has_true_numbers(&self) -> bool {
        TRUE_NUMBERS.contains(&self.kind.as_str())
    }

    /// No path without links has two slashes in a row, so these names and paths never meet.
    fn name(&self, found: &Statx) -> Vec<u8> {
        let place = self.place.strip_suffix(b"/").unwrap_or(&self.place);
        let volume = match self.kind.as_str() {
            WITH_SUBVOLUMES => format!("//volume/{}:{}", found.stx_dev_major, found.stx_dev_minor),
            _ => String::new(),
        };
        [
            place,
            volume.as_bytes(),
            format!("//inode/{}", found.stx_ino).as_bytes(),
        ]
        .concat()
    }
}

#[allow(clippy::disallowed_methods, reason = "procfs, which is no storage")]
fn mount_table() -> io::Result<Vec<u8>> {
    std::fs::read("/proc/self/mountinfo")
}

/// Spaces and their like stand there in octal, as `\040`.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let octal = (first == b'\\').then(|| after.get(..3)).flatten();
        let byte = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        text.push(byte.unwrap_or(first));
        rest = if byte.is_some() { &after[3..] } else { after };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_by_its_number() {
        let table = b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
                      36 22 0:42 /sub /mnt/a\\040b\\134c rw shared:2 master:1 - nfs4 head:/x rw\n\
                      136 22 0:43 / /mnt/s rw - fuse.sshfs head: rw\n";
        let site = |mount| Site::in_table(table, mount);
        assert_eq!(site(36).unwrap().place, b"/mnt/a b\\c");
        assert!(site(36).unwrap().has_true_numbers() && site(22).unwrap().has_true_numbers());
        assert_eq!(site(136).unwrap().kind, "fuse.sshfs");
        assert!(!site(136).unwrap().has_true_numbers());
        assert_eq!(site(6), None);
        for cut in 0..table.len() {
            let _ = Site::in_table(&table[..cut], 136); // Whatever it finds, it ends.
        }
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "makes what is looked at")]
    fn a_file_has_one_name_by_inode_and_replacements_have_another() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("a"), "").unwrap();
        std::fs::hard_link(path("a"), path("b")).unwrap();
        std::fs::write(path("c"), "").unwrap();
        let name = |identity: Identity, file: &str| identity.of_file(&path(file)).unwrap();
        assert_eq!(name(Identity::Inode, "a"), name(Identity::Inode, "b"));
        assert_ne!(name(Identity::Inode, "a"), name(Identity::Inode, "c"));
        assert_ne!(name(Identity::Path, "a"), name(Identity::Path, "b"));
        let before = name(Identity::Inode, "a");
        std::fs::rename(path("c"), path("a")).unwrap();
        assert_ne!(name(Identity::Inode, "a"), before);
        assert_eq!(name(Identity::Inode, "b"), before);
        let chosen = match unstable_inodes_at(directory.path()).unwrap() {
            None => Identity::Inode,
            Some(_) => Identity::Path,
        };
        assert_eq!(name(Identity::Auto, "a"), name(chosen, "a"));
        assert_eq!(Identity::Auto.of_file(&path("none")).is_ok(), chosen == Identity::Path);
    }

    /// The kernel gives a number again: locks of one file had two names.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "makes what is looked at")]
    fn a_mount_is_not_taken_for_one_that_has_gone() {
        if !rustix::process::geteuid().is_root() {
            assert!(std::env::var_os("CI").is_none(), "mounts need root");
            return println!("SKIPPED: mounts need root");
        }
        let directory = tempfile::tempdir().unwrap();
        let places = ["a", "b"].map(|name| directory.path().join(name));
        for place in places.iter().cycle().take(6) {
            std::fs::create_dir_all(place).unwrap();
            let mount = |words: &[&str]| {
                let status = std::process::Command::new(words[0])
                    .args(&words[1..])
                    .arg(place)
                    .status();
                assert!(status.unwrap().success(), "{words:?}");
            };
            mount(&["mount", "-t", "tmpfs", "none"]);
            // As long as it is open, it cannot be unmounted: it is named, and closed.
            let name = Identity::Inode.of_file(place).unwrap();
            mount(&["umount"]);
            let expected = format!("{}//inode/", place.display());
            assert!(name.to_string().starts_with(&expected), "{name} is not {expected}");
        }
    }

    #[test]
    fn numbers_of_a_file_system_that_makes_them_up_are_not_taken_by_itself() {
        assert_eq!(unstable_inodes_at("/proc".as_ref()).unwrap().as_deref(), Some("proc"));
        let name = Identity::Auto.of_file("/proc/version".as_ref()).unwrap();
        assert_eq!(name.to_string(), "/proc/version");
        assert_ne!(Identity::Inode.of_file("/proc/version".as_ref()).unwrap(), name);
    }

    #[test]
    fn identities_are_told_as_they_are_read() {
        for identity in [Identity::Path, Identity::Inode, Identity::Auto] {
            assert_eq!(identity.to_string().parse(), Ok(identity));
        }
        assert!("device".parse::<Identity>().is_err());
    }
}
