//! What is mounted, as the kernel's table says: proc(5), `/proc/self/mountinfo`.

#![allow(clippy::disallowed_methods, reason = "a table of the kernel, not storage")]

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
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
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?))
}

/// Other mounts may have names in any encoding.
fn parse(table: &[u8]) -> Vec<Mount> {
    table.split(|byte| *byte == b'\n').filter_map(mount_of).collect()
}

fn mount_of(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|byte| *byte == b' ').skip(2);
    let (major, minor) = str::from_utf8(words.next()?).ok()?.split_once(':')?;
    let device = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
    let point = unescaped(words.nth(1)?);
    let source = words.skip_while(|word| *word != b"-").nth(2)?;
    let source = String::from_utf8_lossy(source).into_owned();
    Some(Mount { device, point, source })
}

/// What is mounted at a path: the last, which hides those before it.
pub(crate) fn at<'m>(mounts: &'m [Mount], point: &Path) -> Option<&'m Mount> {
    mounts.iter().rfind(|mount| mount.point == point)
}

/// The device of the file system that a path lies on, by the table alone: nothing is asked that may not answer. The path has no symbolic links and no `..`.
///
/// # Errors
/// Of the table.
pub fn device_below(path: &Path) -> io::Result<Option<u64>> {
    Ok(holding(&all()?, path).map(|mount| mount.device))
}

/// The mount that holds a path: of those above it the nearest, and of these the last.
fn holding<'m>(mounts: &'m [Mount], path: &Path) -> Option<&'m Mount> {
    let above = mounts.iter().filter(|mount| path.starts_with(&mount.point));
    above.max_by_key(|mount| mount.point.components().count())
}

/// A path of the table, in which a byte may be written as a backslash and three octal digits.
fn unescaped(text: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, others)) = rest.split_first() {
        match octal(others).filter(|_| first == b'\\') {
            Some(byte) => {
                path.push(byte);
                rest = &others[3..];
            }
            None => {
                path.push(first);
                rest = others;
            }
        }
    }
    OsString::from_vec(path).into()
}

/// What three octal digits stand for.
fn octal(text: &[u8]) -> Option<u8> {
    let digits = str::from_utf8(text.get(..3)?).ok()?;
    u8::from_str_radix(digits, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mount_of_a_path_is_found() {
        let line = |id, minor, point| format!("{id} 1 0:{minor} / {point} rw - fuse.elbow elbow-drive rw\n");
        let table = [line(7, 40, "/a\\040b\\134c"), line(8, 41, "/d"), line(9, 42, "/d")].concat();
        let mounts = parse(table.as_bytes());
        assert_eq!(mounts[0].point, Path::new("/a b\\c"));
        assert_eq!(at(&mounts, Path::new("/d")), Some(&mounts[2]));
        assert_eq!(at(&mounts, Path::new("/e")), None);
    }

    #[test]
    fn a_path_lies_on_the_nearest_mount_above_it() {
        let line = |id, minor, point| format!("{id} 1 0:{minor} / {point} rw - tmpfs none rw\n");
        let table = [
            line(7, 40, "/a/b"),
            line(8, 41, "/"),
            line(9, 42, "/a"),
            line(10, 43, "/a"),
        ]
        .concat();
        let mounts = parse(table.as_bytes());
        let point = |path: &str| holding(&mounts, Path::new(path)).map(|mount| mount.device & 0xff);
        assert_eq!(point("/a/b/c"), Some(40));
        assert_eq!(point("/a/bc"), Some(43));
        assert_eq!(point("/ab"), Some(41));
        assert_eq!(holding(&mounts[..1], Path::new("/ab")), None);
    }

    #[test]
    fn a_name_in_another_encoding_hides_no_other_mount() {
        let mut table = b"7 1 0:40 / /caf\xe9 rw - tmpfs none rw\n".to_vec();
        table.extend(b"8 1 0:41 / /d rw - fuse.elbow elbow-drive rw\n");
        let mounts = parse(&table);
        assert_eq!(mounts[0].point.as_os_str().as_encoded_bytes(), b"/caf\xe9");
        assert_eq!(at(&mounts, Path::new("/d")), Some(&mounts[1]));
    }
}
