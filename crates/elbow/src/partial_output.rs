//! A file that is written under another name and takes the place of the one that is there when it is complete.

#![allow(
    clippy::disallowed_methods,
    reason = "files named on the command line, not the storage of a job"
)]

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use elbow_file::{Errno, Handle, RealStorage, RenameMode, ShowName, Storage};

const NEW_FILE_MODE: u32 = 0o666;
/// Of a draft that gets the mode of an old file: until then it is nobody else's.
const OWN_FILE_MODE: u32 = 0o600;
/// Drafts that dead processes of our number may have left, at most.
const DRAFTS_MAX: u32 = 100;

/// The output under another name, until it is complete; then it takes its own, and what had that is gone.
pub(crate) struct PartialOutput {
    pub(crate) file: Handle,
    dir: Handle,
    draft: OsString,
    name: OsString,
    replaces: bool,
    is_over: AtomicBool,
}

impl PartialOutput {
    /// One of a file that is not there yet or has these attributes, which its successor will have too.
    pub(crate) fn new(path: &Path, old: Option<&Metadata>) -> Result<Self> {
        let (dir, name) = place(path)?;
        let made = Self::in_directory(dir, name, old);
        made.with_context(|| format!("creating the output {}", path.shown()))
    }

    /// The same in an open directory.
    pub(crate) fn in_directory(dir: Handle, name: &OsStr, old: Option<&Metadata>) -> io::Result<Self> {
        let mode = if old.is_some() { OWN_FILE_MODE } else { NEW_FILE_MODE };
        let (draft, file) = create(&dir, name, mode)?;
        let made = Self {
            file,
            dir,
            draft,
            name: name.to_owned(),
            replaces: old.is_some(),
            is_over: AtomicBool::new(false),
        };
        if let Some(old) = old {
            made.become_like(old)?;
        }
        Ok(made)
    }

    fn become_like(&self, old: &Metadata) -> io::Result<()> {
        let file = File::from(self.file.as_fd().try_clone_to_owned()?);
        let ours = file.metadata()?;
        if (ours.uid(), ours.gid()) != (old.uid(), old.gid()) {
            // Only root can give files away; for everybody else it is theirs from now on.
            let _ = std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()));
        }
        file.set_permissions(PermissionsExt::from_mode(old.mode() & 0o7777))
    }

    /// Gives the complete output its name. What is replaced is not given up for what a power cut may still take.
    pub(crate) fn publish(&self) -> Result<()> {
        if self.replaces {
            let synced = RealStorage.sync(&self.file);
            synced.with_context(|| format!("syncing the output {}", Path::new(&self.name).shown()))?;
        }
        let renamed = RealStorage.rename(&self.dir, &self.draft, &self.dir, &self.name, RenameMode::Replace);
        renamed.with_context(|| format!("naming the output {}", Path::new(&self.name).shown()))?;
        self.is_over.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Removes it, unless it is published.
    pub(crate) fn discard(&self) {
        if !self.is_over.swap(true, Ordering::Relaxed) {
            // Whoever hears of the failure can remove what is left.
            let _ = RealStorage.unlink(&self.dir, &self.draft);
        }
    }
}

impl Drop for PartialOutput {
    fn drop(&mut self) {
        self.discard();
    }
}

/// The open directory that holds a file, there already or not, and its name in it.
pub(crate) fn place(path: &Path) -> Result<(Handle, &OsStr)> {
    let name = path.file_name();
    let name = name.with_context(|| format!("{}: is no name for a file", path.shown()))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let dir = RealStorage::open_root(parent).with_context(|| format!("opening {}", parent.shown()))?;
    Ok((dir, name))
}

/// A new file beside one of this name, subject to the umask.
fn create(dir: &Handle, name: &OsStr, mode: u32) -> std::result::Result<(OsString, Handle), Errno> {
    let mut number = 0;
    loop {
        let mut draft = OsString::from(".");
        draft.push(name);
        draft.push(format!(".elbow-draft-{}-{number}", std::process::id()));
        match RealStorage.create(dir, &draft, mode) {
            Err(Errno::EXIST) if number < DRAFTS_MAX => number += 1,
            other => return other.map(|file| (draft, file)),
        }
    }
}
