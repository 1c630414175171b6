//! What is mounted where, as this process sees it.
//!
//! Source: proc_pid_mountinfo(5).

#![allow(clippy::disallowed_methods)] // /proc: not the storage of a job

use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags};

use crate::mount_error::{MountError, errno_of, unreachable};
use crate::step::Step;

/// The file system type of our mounts in the mount table.
pub(crate) const FILE_SYSTEM: &str = "fuse.elbow";

/// The mount points strictly below a directory, as this process sees them.
///
/// # Errors
/// `/proc` is not mounted.
pub fn nested_mounts(path: &Path) -> Result<Vec<PathBuf>, MountError> {
    let table = mount_table()?;
    let mut below: Vec<_> = mount_points(&table)
        .filter(|at| at != path && at.starts_with(path))
        .collect();
    below.sort();
    below.dedup();
    Ok(below)
}

/// The mount points of jobs that this process sees, the last one last.
#[must_use]
pub fn job_mounts() -> Vec<PathBuf> {
    let table = mount_table().unwrap_or_default();
    let lines = table
        .split(|&b| b == b'\n')
        .map(|line| line.split(|&b| b == b' ').collect::<Vec<_>>());
    let ours = lines.filter(|fields| file_system(fields) == Some(FILE_SYSTEM.as_bytes()));
    ours.filter_map(|fields| fields.get(4).map(|point| unescape(point)))
        .collect()
}

fn mount_table() -> Result<Vec<u8>, MountError> {
    let failed = |error: std::io::Error| MountError::Failed {
        step: Step::ReadMounts,
        errno: errno_of(&error),
    };
    std::fs::read("/proc/self/mountinfo").map_err(failed)
}

/// What a mount says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountedFileSystem {
    /// The type of the file system.
    pub kind: String,
    /// The options of the mount, with commas between them.
    pub options: String,
}

/// The file system that holds a directory, as it is mounted there; empty where its mount is not in the table.
///
/// # Errors
/// The directory cannot be looked at, or `/proc` is not mounted.
pub fn file_system_of(path: &Path) -> Result<MountedFileSystem, MountError> {
    let found = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID);
    let id = found.map_err(|errno| unreachable(path, errno))?.stx_mnt_id.to_string();
    let table = mount_table()?;
    let mut mounts = table
        .split(|&b| b == b'\n')
        .map(|line| line.split(|&b| b == b' ').collect::<Vec<_>>());
    let line = mounts
        .find(|fields| fields.first() == Some(&id.as_bytes()))
        .unwrap_or_default();
    let text = |field: Option<&[u8]>| String::from_utf8_lossy(field.unwrap_or_default()).into_owned();
    Ok(MountedFileSystem {
        kind: text(file_system(&line)),
        options: text(line.get(5).copied()),
    })
}

/// Where in its file system a directory is, whatever of that is mounted where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    /// The number of the file system's device, as `major:minor`.
    pub(crate) device: Vec<u8>,
    /// From the root of the file system on.
    pub(crate) path: PathBuf,
}

/// `None` where the table does not say.
pub(crate) fn location_of(path: &Path) -> Option<Location> {
    let found = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
    location_in(&mount_table().ok()?, found.stx_mnt_id, path)
}

fn location_in(table: &[u8], mount: u64, path: &Path) -> Option<Location> {
    let id = mount.to_string();
    let lines = table
        .split(|&b| b == b'\n')
        .map(|line| line.split(|&b| b == b' ').collect::<Vec<_>>());
    let mut of_mount = lines.filter(|fields| fields.first() == Some(&id.as_bytes()));
    let fields = of_mount.next()?;
    let below = path.strip_prefix(unescape(fields.get(4)?)).ok()?;
    Some(Location {
        device: fields.get(2)?.to_vec(),
        path: unescape(fields.get(3)?).join(below).components().collect(),
    })
}

/// Where sshfs(1) has what it shows at a directory, or above it: `[USER@]HOST` and the path there of that directory; a relative path is below the home
/// directory. `None` where something else is mounted.
///
/// # Errors
/// The directory cannot be looked at, or `/proc` is not mounted.
pub fn sshfs_source(directory: &Path) -> Result<Option<(String, PathBuf)>, MountError> {
    let path = directory
        .canonicalize()
        .map_err(|error| unreachable(directory, errno_of(&error)))?;
    let table = mount_table()?;
    Ok(sshfs_source_in(&table, &path))
}

fn sshfs_source_in(table: &[u8], path: &Path) -> Option<(String, PathBuf)> {
    let lines = table
        .split(|&b| b == b'\n')
        .map(|line| line.split(|&b| b == b' ').collect::<Vec<_>>());
    let above = lines.filter_map(|fields| {
        let point = unescape(fields.get(4)?);
        path.starts_with(&point).then_some((point, fields))
    });
    // Of two at the same point the last one lies on top.
    let (point, fields) = above.max_by_key(|(point, _)| point.components().count())?;
    let separator = fields.iter().position(|field| *field == b"-")?;
    let source = unescape(fields.get(separator + 2)?)
        .into_os_string()
        .into_string()
        .ok()?;
    if file_system(&fields) != Some(b"fuse.sshfs".as_slice()) {
        return None;
    }
    // A name of a machine may hold colons in brackets only.
    let after_host = source.find(']').unwrap_or(0);
    let colon = after_host + source[after_host..].find(':')?;
    let (host, there) = (&source[..colon], &source[colon + 1..]);
    let there = if there.is_empty() { "." } else { there };
    let below = path.strip_prefix(&point).ok()?;
    Some((host.to_owned(), Path::new(there).join(below).components().collect()))
}

/// A line of a table of mounts.
pub(crate) struct Listed<'a> {
    /// The number of its device, as `major:minor`.
    pub(crate) device: &'a [u8],
    /// Where it is.
    pub(crate) point: PathBuf,
    /// What it says that it shows; of ours the directory of the job.
    pub(crate) source: PathBuf,
}

/// The mounts in a table: of each line the third and fifth fields, and the second after the separating `-`.
pub(crate) fn mounts_in(table: &[u8]) -> impl Iterator<Item = Listed<'_>> {
    table.split(|&b| b == b'\n').filter_map(|line| {
        let fields: Vec<&[u8]> = line.split(|&b| b == b' ').collect();
        let separator = fields.iter().position(|field| *field == b"-")?;
        Some(Listed {
            device: fields.get(2)?,
            point: unescape(fields.get(4)?),
            source: unescape(fields.get(separator + 2)?),
        })
    })
}

/// What lies at a path is a mount of ours (the last one in the table lies on top).
pub(crate) fn is_job_at(path: &Path) -> bool {
    let table = mount_table().unwrap_or_default();
    let mut mounts = table
        .split(|&b| b == b'\n')
        .map(|line| line.split(|&b| b == b' ').collect::<Vec<_>>())
        .filter(|fields| fields.get(4).is_some_and(|point| unescape(point) == path));
    mounts
        .next_back()
        .is_some_and(|fields| file_system(&fields) == Some(FILE_SYSTEM.as_bytes()))
}

/// The type of file system in a line of the table: the field after the separating `-`.
fn file_system<'a>(fields: &[&'a [u8]]) -> Option<&'a [u8]> {
    let separator = fields.iter().position(|field| *field == b"-")?;
    fields.get(separator + 1).copied()
}

/// The mount points in a table as proc(5) describes `mountinfo`: the fifth field of each line.
fn mount_points(table: &[u8]) -> impl Iterator<Item = PathBuf> + '_ {
    let field = |line: &[u8]| line.split(|&b| b == b' ').nth(4).map(unescape);
    table.split(|&b| b == b'\n').filter_map(field)
}

/// Undoes the octal escapes (`\040` is a space) of a mount table.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let code = (first == b'\\').then(|| tail.get(..3).and_then(octal)).flatten();
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &tail[3..] } else { tail };
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

fn octal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_with_their_escapes() {
        let table = b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
            30 22 0:25 / /data/my\\040disk rw - tmpfs tmpfs rw\n\
            31 22 0:26 / /odd\\ rw - tmpfs tmpfs rw\n";
        let points: Vec<_> = mount_points(table).collect();
        assert_eq!(points, ["/", "/data/my disk", "/odd\\"].map(PathBuf::from));
    }

    #[test]
    fn a_directory_is_found_in_its_file_system_by_each_of_its_mounts() {
        let table = b"30 1 8:1 / /data rw - ext4 /dev/a rw\n31 1 8:1 /a/sub\\040x /mnt/alias rw - ext4 /dev/a rw\n";
        let at = |mount, path: &str| location_in(table, mount, Path::new(path)).map(|found| found.path);
        assert_eq!(at(30, "/data/a"), Some("/a".into()));
        assert_eq!(at(31, "/mnt/alias"), Some("/a/sub x".into()));
        assert_eq!(at(31, "/mnt/alias/in"), Some("/a/sub x/in".into()));
        assert_eq!(at(32, "/data"), None);
    }

    #[test]
    fn mounts_inside_a_directory_are_found() {
        let below_root = nested_mounts(Path::new("/")).expect("/proc is mounted");
        assert!(below_root.iter().any(|at| at == Path::new("/proc")), "{below_root:?}");
        assert!(!below_root.contains(&PathBuf::from("/")));
    }
}
