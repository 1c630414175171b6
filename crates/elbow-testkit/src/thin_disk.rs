//! A disk that has less room than it says, as a thin volume that is full: the page cache takes data, and the disk does not.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An ext4 on a sparse image, on a memory file system that is too small for it; unmounted when dropped.
#[derive(Debug)]
pub struct ThinDisk(tempfile::TempDir);

impl ThinDisk {
    /// One that takes some 20 MB, mounted; `None`, said aloud, where that cannot be had.
    ///
    /// # Panics
    /// Where it cannot be had in the continuous integration.
    #[must_use]
    pub fn new() -> Option<Self> {
        let disk = Self(tempfile::tempdir().expect("a directory"));
        let (below, image, above) = (disk.path("below"), disk.path("below/image"), disk.root());
        std::fs::create_dir(&below).expect("a directory");
        std::fs::create_dir(&above).expect("a directory");
        let made = run("mount", &["-t", "tmpfs", "-o", "size=24m", "none"], &[&below])
            && std::fs::File::create(&image).is_ok_and(|file| file.set_len(256 << 20).is_ok())
            && run("mkfs.ext4", &["-q", "-m", "0", "-O", "^has_journal"], &[&image])
            && run("mount", &["-o", "loop"], &[&image, &above]);
        if !made {
            let is_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
            assert!(!is_ci, "CI=true, and it lacks a mounted ext4");
            // Not eprintln: the test runner would keep it to itself.
            let _ = writeln!(std::io::stderr(), "SKIPPED: this machine lacks a mounted ext4");
        }
        made.then_some(disk)
    }

    /// Where it is mounted.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.path("above")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

impl Drop for ThinDisk {
    fn drop(&mut self) {
        for name in ["above", "below"] {
            run("umount", &["-q", "-l"], &[&self.path(name)]);
        }
    }
}

fn run(program: &str, options: &[&str], paths: &[&Path]) -> bool {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let status = Command::new(program)
        .env("PATH", path)
        .args(options)
        .args(paths)
        .status();
    status.is_ok_and(|status| status.success())
}
