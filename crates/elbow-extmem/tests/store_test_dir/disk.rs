//! Small file systems of all kinds, to be mounted for a test.
#![allow(
    clippy::disallowed_methods,
    reason = "makes the storage, and is not part of what is tested"
)]

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

/// A mounted file system; unmounted when dropped.
pub(crate) struct Disk {
    dir: TempDir,
}

impl Disk {
    /// Makes and mounts one of a kind and size; `None`, said aloud, where that cannot be had.
    pub(crate) fn new(kind: &str, mebibytes: u64) -> Option<Self> {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        fs::create_dir(dir.path().join("mounted")).unwrap();
        let disk = Self { dir };
        match disk.mount(kind, mebibytes) {
            Ok(()) => Some(disk),
            Err(error) => {
                unavailable(&format!("a mounted {kind} ({error})"));
                None
            }
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("mounted")
    }

    fn mount(&self, kind: &str, mebibytes: u64) -> Result<(), String> {
        if kind == "tmpfs" {
            let size = format!("size={mebibytes}m");
            return run(Command::new("mount")
                .args(["-t", "tmpfs", "-o", &size, "none"])
                .arg(self.path()));
        }
        let image = self.dir.path().join("image");
        let file = fs::File::create(&image).unwrap();
        file.set_len(mebibytes << 20).unwrap();
        run(Command::new(format!("mkfs.{kind}")).arg("-q").arg(&image))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(self.path()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = run(Command::new("umount").arg("-l").arg(self.path())); // not mounted, or nothing more can be done
    }
}

/// Something a test needs cannot be had here: said aloud, and a failure where nothing may be skipped.
fn unavailable(what: &str) {
    assert!(
        std::env::var_os("CI").is_none_or(|value| value != "true"),
        "CI=true, and it lacks {what}"
    );
    // Not eprintln: the test runner would keep it to itself.
    let _ = writeln!(std::io::stderr(), "SKIPPED: this machine lacks {what}");
}

fn run(command: &mut Command) -> Result<(), String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let output = command.env("PATH", format!("{path}:/usr/sbin:/sbin")).output();
    let output = output.map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)))
}
