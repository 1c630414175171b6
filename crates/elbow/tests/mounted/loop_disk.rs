//! A small file system in a file: an ext4 to be filled up, a btrfs to have subvolumes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::commands::unavailable;

/// A mounted file system of a few megabytes; unmounted when dropped.
pub(crate) struct LoopDisk {
    dir: TempDir,
}

impl LoopDisk {
    /// An ext4; `None`, said aloud, where loop devices cannot be had.
    pub(crate) fn new(bytes: u64) -> Option<Self> {
        Self::made_by(&["mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal"], bytes)
    }

    /// The same with a btrfs.
    pub(crate) fn btrfs() -> Option<Self> {
        /// The least that mkfs.btrfs(8) takes is half of that.
        const BYTES: u64 = 256 << 20;
        Self::made_by(&["mkfs.btrfs", "-q"], BYTES)
    }

    /// An ext2 whose inodes have no room for parts of seconds.
    pub(crate) fn with_whole_seconds() -> Option<Self> {
        Self::made_by(&["mkfs.ext2", "-q", "-m", "0", "-I", "128"], 24 << 20)
    }

    /// An ext4 that can encrypt directories.
    pub(crate) fn that_encrypts() -> Option<Self> {
        Self::made_by(&["mkfs.ext4", "-q", "-m", "0", "-O", "encrypt"], 24 << 20)
    }

    fn made_by(make: &[&str], bytes: u64) -> Option<Self> {
        let disk = Self {
            dir: tempfile::tempdir().expect("temporary directory"),
        };
        let image = disk.dir.path().join("image");
        fs::File::create(&image)
            .and_then(|file| file.set_len(bytes))
            .expect("a sparse image");
        fs::create_dir(disk.path()).expect("mount point");
        run(Command::new(make[0]).args(&make[1..]).arg(&image)).expect("making a file system");
        match run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(disk.path())) {
            Ok(()) => Some(disk),
            Err(error) => {
                unavailable(&format!("loop devices ({error})"));
                None
            }
        }
    }

    /// Where it is mounted.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("mounted")
    }

    /// Unmounts it, which nobody may keep from happening, and mounts it again.
    pub(crate) fn mount_again(&self) {
        run(Command::new("umount").arg(self.path())).expect("unmounting");
        let image = self.dir.path().join("image");
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(self.path())).expect("mounting again");
    }

    /// What lies on the disk, all of it.
    pub(crate) fn image(&self) -> Vec<u8> {
        run(Command::new("sync").arg("-f").arg(self.path())).expect("syncing");
        fs::read(self.dir.path().join("image")).expect("the image")
    }

    /// Takes all the room that is left; gives the file that took it.
    pub(crate) fn fill(&self) -> PathBuf {
        let filler = self.path().join("filler");
        let script = "head -c 1000000000 /dev/zero > \"$0\" 2>/dev/null; sync -f \"$0\"";
        run(Command::new("sh").args(["-c", script]).arg(&filler)).expect("filling the disk");
        filler
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        if is_mounted(&self.path()) {
            run(Command::new("umount").arg("-l").arg(self.path())).expect("unmounting");
        }
    }
}

fn is_mounted(path: &Path) -> bool {
    Command::new("mountpoint")
        .arg("-q")
        .arg(path)
        .status()
        .is_ok_and(|status| status.success())
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("{command:?}: {said}"))
    }
}
