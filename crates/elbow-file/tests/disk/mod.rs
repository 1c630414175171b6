//! Real file systems to try things on: loop-mounted ext4, xfs and btrfs, tmpfs and ramfs.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// All that can punch holes.
pub(crate) const PUNCHING: [&str; 4] = ["ext4", "xfs", "btrfs", "tmpfs"];

/// Room on a disk, sparse: the least that mkfs.xfs takes.
pub(crate) const ROOM_BYTES: u64 = 320 << 20;

/// A mounted file system; unmounted when dropped.
pub(crate) struct Disk {
    pub(crate) kind: &'static str,
    dir: TempDir,
}

impl Disk {
    /// Makes and mounts one; `None`, said aloud, where that cannot be had.
    pub(crate) fn new(kind: &'static str) -> Option<Self> {
        Self::with(kind, ROOM_BYTES, &[])
    }

    /// The same with a size and options for mkfs.
    pub(crate) fn with(kind: &'static str, bytes: u64, mkfs_options: &[&str]) -> Option<Self> {
        let disk = Self {
            kind,
            dir: tempfile::tempdir().expect("temporary directory"),
        };
        fs::create_dir(disk.root()).expect("mount point");
        match disk.make_and_mount(bytes, mkfs_options) {
            Ok(()) => Some(disk),
            Err(error) => {
                unavailable(&format!("a mounted {kind} ({error})"));
                None
            }
        }
    }

    fn make_and_mount(&self, bytes: u64, mkfs_options: &[&str]) -> Result<(), String> {
        if matches!(self.kind, "tmpfs" | "ramfs") {
            return run(Command::new("mount").args(["-t", self.kind, "none"]).arg(self.root()));
        }
        let image = self.dir.path().join("image");
        fs::File::create(&image)
            .and_then(|file| file.set_len(bytes))
            .map_err(|error| error.to_string())?;
        let usual: &[&str] = match self.kind {
            "ext4" => &["-q", "-m", "0", "-b", "4096"], // a disk of this size would get smaller blocks
            _ => &["-q"],
        };
        run(Command::new(format!("mkfs.{}", self.kind))
            .env("PATH", path_with_sbin())
            .args(usual)
            .args(mkfs_options)
            .arg(&image))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(self.root()))
    }

    /// Where it is mounted.
    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("mounted")
    }

    /// A path on it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// The block device under it.
    #[allow(dead_code)] // not by every test that has this module
    pub(crate) fn device(&self) -> String {
        let output = Command::new("findmnt")
            .args(["-no", "SOURCE"])
            .arg(self.root())
            .output();
        let output = output.expect("findmnt");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if is_mounted(&self.root()) {
            run(Command::new("umount").arg("-l").arg(self.root())).expect("unmounting");
        }
    }
}

/// Where ordinary users do not look for mkfs.
fn path_with_sbin() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

fn is_mounted(path: &Path) -> bool {
    let status = Command::new("mountpoint").arg("-q").arg(path).status();
    status.is_ok_and(|status| status.success())
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{command:?}: {said}")),
    }
}

/// Says that something cannot be tested here. In the continuous integration everything can: there it is an error.
pub(crate) fn unavailable(what: &str) {
    assert!(
        std::env::var_os("CI").is_none_or(|value| value != "true"),
        "CI=true, and it lacks {what}"
    );
    // Not eprintln: the test runner would keep it to itself.
    let _ = writeln!(std::io::stderr(), "SKIPPED: this machine lacks {what}");
}
