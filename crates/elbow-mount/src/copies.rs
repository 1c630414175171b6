//! Files of root's that a program believes only if they are root's, shown to an ordinary user's command as files of its own.
//!
//! In a user namespace root has no number, and no subordinate id can give it one: what belongs to root belongs to `nobody`. ssh(1) refuses to
//! read what its configuration includes unless that is root's or the user's. So the directory of these files is covered, in the
//! namespace of the command alone, by one in memory with the same content, whose owner is the user.
//!
//! ```text
//!   /etc/ssh/ssh_config.d/*.conf      as they are; `Include FILE` in them names a copy beside them
//! ```
//!
//! Only what ssh would have believed outside is copied. Without the copies everything else works as well: nothing here is an error.
//!
//! Source: ssh_config(5); `read_config_file_depth` of OpenSSH (`SSHCONF_CHECKPERM`).

#![allow(clippy::disallowed_methods)] // configuration files: not the storage of a job

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use elbow_file::Errno;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};

const DIRECTORY: &CStr = c"/etc/ssh/ssh_config.d";
/// Where names that do not begin with a slash are.
const BASE: &str = "/etc/ssh";
/// A larger one is no configuration, and more are not written by people.
const FILE_BYTES_MAX: u64 = 1 << 20;
const FILES_MAX: usize = 256;
/// As deep as ssh follows them.
const DEPTH_MAX: usize = 16;
/// Not writable for others, as the originals must be.
const MODE: Mode = Mode::from_raw_mode(0o644);
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Copies to be written in a child between fork and exec.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    files: Vec<(CString, Vec<u8>)>,
    /// How many are shown under names of ours.
    included: usize,
}

fn directory() -> &'static Path {
    Path::new(std::ffi::OsStr::from_bytes(DIRECTORY.to_bytes()))
}

impl Copies {
    /// Of what ssh includes here; nothing where it needs none.
    pub(crate) fn of_ssh_configuration() -> Self {
        let mut copies = Self::default();
        for path in originals(directory()) {
            copies.add(&path, &path, 0);
        }
        copies
    }

    /// Reads a file, with what it includes, to be shown under a name.
    fn add(&mut self, original: &Path, shown: &Path, depth: usize) {
        let Some(text) = believed(original).filter(|_| depth < DEPTH_MAX && self.files.len() < FILES_MAX) else {
            return;
        };
        let mut lines = Vec::new();
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            match included(line) {
                Some(file) if believed(&file).is_some() => {
                    let number = self.included;
                    self.included += 1;
                    let copy = directory().join(format!("elbow-included-{number}"));
                    self.add(&file, &copy, depth + 1);
                    lines.extend([b"Include ", copy.as_os_str().as_bytes(), b"\n"].concat());
                }
                _ => lines.extend(line),
            }
        }
        if let Ok(path) = CString::new(shown.as_os_str().as_bytes()) {
            self.files.push((path, lines));
        }
    }

    /// Covers the originals. Only system calls are made.
    pub(crate) fn lay(&self) {
        if self.files.is_empty() {
            return;
        }
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        if rustix::mount::mount(c"tmpfs", DIRECTORY, c"tmpfs", flags, Some(c"mode=755")).is_err() {
            return;
        }
        if self.files.iter().any(|(path, content)| write(path, content).is_err()) {
            // Half of a configuration would be worse than one that is refused.
            let _ = rustix::mount::unmount(DIRECTORY, UnmountFlags::DETACH);
        }
    }
}

fn write(path: &CStr, content: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, path, flags, MODE)?;
    let mut left = content;
    while !left.is_empty() {
        left = &left[rustix::io::write(&file, left)?..];
    }
    Ok(())
}

fn originals(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let all = entries.map(|entry| entry.path());
    let mut found: Vec<_> = all
        .filter(|path| path.extension().is_some_and(|ending| ending == "conf"))
        .collect();
    found.sort();
    found
}

/// The content of a file that ssh believes outside and not in the namespace, or that needs no help.
fn believed(path: &Path) -> Option<Vec<u8>> {
    let found = path.metadata().ok()?;
    let own = rustix::process::geteuid().as_raw();
    let is_believed = (found.uid() == 0 || found.uid() == own) && found.mode() & WRITABLE_BY_OTHERS == 0;
    (found.is_file() && is_believed && found.len() <= FILE_BYTES_MAX)
        .then(|| std::fs::read(path).ok())
        .flatten()
}

/// The one file that a line includes, if it is one without wildcards.
fn included(line: &[u8]) -> Option<PathBuf> {
    let text = std::str::from_utf8(line).ok()?.trim();
    let (keyword, name) = text.split_once([' ', '\t', '='])?;
    let name = name.trim_matches([' ', '\t', '=', '"']);
    let is_one = !name.is_empty() && !name.contains(['*', '?', '[', ' ', '\t', '~', '$', '%', '"']);
    (keyword.eq_ignore_ascii_case("include") && is_one).then(|| Path::new(BASE).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_is_included_and_wildcards_are_left_to_ssh() {
        for (line, file) in [
            (
                "Include /etc/crypto/openssh.config\n",
                Some("/etc/crypto/openssh.config"),
            ),
            ("  include = more\n", Some("/etc/ssh/more")),
            ("Include \"/a\"\n", Some("/a")),
            ("Include /etc/ssh/more.d/*\n", None),
            ("Include a b\n", None),
            ("# Include /a\n", None),
            ("Host include\n", None),
        ] {
            assert_eq!(included(line.as_bytes()), file.map(PathBuf::from), "{line}");
        }
    }
}
