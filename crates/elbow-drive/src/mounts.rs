//! What is mounted, as the kernel's table says: proc(5), `/proc/self/mountinfo`.

#![allow(clippy::disallowed_methods, reason = "a table of the kernel, not storage")]

use std::io;
use std::path::{Path, PathBuf};

/// A mount: the device of its file system as stat(2) tells it, which the next one may get when it has gone, and what it calls its source.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) device: u64,
    pub(crate) point: PathBuf,
    pub(crate) source: String,
}

/// All, the first first.
pub(crate) fn all() -> io::Result<Vec<Mount>> {
    Ok(parse(&std::fs::read_to_string("/proc/self/mountinfo")?))
}

fn parse(table: &str) -> Vec<Mount> {
    table.lines().filter_map(mount_of).collect()
}

fn mount_of(line: &str) -> Option<Mount> {
    let mut words = line.split(' ').skip(2);
    let (major, minor) = words.next()?.split_once(':')?;
    let device = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
    let point = unescaped(words.nth(1)?);
    let source = words.skip_while(|word| *word != "-").nth(2)?.to_owned();
    Some(Mount { device, point, source })
}

/// What is mounted at a path: the last, which hides those before it.
pub(crate) fn at<'m>(mounts: &'m [Mount], point: &Path) -> Option<&'m Mount> {
    mounts.iter().rfind(|mount| mount.point == point)
}

/// A path of the table, in which some bytes are written in octal.
fn unescaped(text: &str) -> PathBuf {
    let codes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    let path = codes
        .iter()
        .fold(text.to_owned(), |path, (code, byte)| path.replace(code, byte));
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mount_of_a_path_is_found() {
        let line = |id, minor, point| format!("{id} 1 0:{minor} / {point} rw - fuse.elbow elbow-drive rw\n");
        let table = [line(7, 40, "/a\\040b\\134c"), line(8, 41, "/d"), line(9, 42, "/d")].concat();
        let mounts = parse(&table);
        assert_eq!(mounts[0].point, Path::new("/a b\\c"));
        assert_eq!(at(&mounts, Path::new("/d")), Some(&mounts[2]));
        assert_eq!(at(&mounts, Path::new("/e")), None);
    }
}
