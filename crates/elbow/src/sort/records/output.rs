//! Where a sort that is not in place writes to: a draft that takes the place of a regular file when it is complete, or
//! a stream.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use elbow_file::{Errno, Handle, RealStorage, RenameMode, Storage};

const NEW_FILE_MODE: u32 = 0o666;
/// Of a draft that gets the mode of an old file: until then it is nobody else's.
const OWN_FILE_MODE: u32 = 0o600;
/// Drafts that dead processes of our number may have left, at most.
const DRAFTS_MAX: u32 = 100;

/// Where the result goes.
pub(super) enum Destination {
    /// A regular file, there already or not.
    File(Arc<Draft>),
    /// A pipe, a device or standard output.
    Stream(File),
}

impl Destination {
    /// What `-o` names; without it standard output, also where both are the same file.
    pub(super) fn new(output: Option<&PathBuf>) -> Result<Self> {
        let stdout = || io::stdout().as_fd().try_clone_to_owned().map(File::from);
        let Some(path) = output else {
            return Ok(Self::Stream(stdout().context("standard output")?));
        };
        let shown = path.display();
        let found = match path.metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Draft::new(path, None).map(Arc::new).map(Self::File);
            }
            found => found.with_context(|| format!("{shown}"))?,
        };
        let identity = |found: &Metadata| (found.dev(), found.ino());
        if let Ok(stdout) = stdout()
            && stdout
                .metadata()
                .is_ok_and(|other| identity(&other) == identity(&found))
        {
            return Ok(Self::Stream(stdout));
        }
        if found.is_dir() {
            bail!("{shown}: is a directory");
        }
        if !found.is_file() {
            let opened = OpenOptions::new().write(true).open(path);
            return Ok(Self::Stream(opened.with_context(|| format!("opening {shown}"))?));
        }
        // Who may not write to a file may not replace it either, although the kernel would let them.
        OpenOptions::new()
            .write(true)
            .open(path)
            .with_context(|| format!("opening {shown}"))?;
        let real = path.canonicalize().with_context(|| format!("{shown}"))?;
        Draft::new(&real, Some(&found)).map(Arc::new).map(Self::File)
    }

    pub(super) fn draft(&self) -> Option<&Arc<Draft>> {
        match self {
            Self::File(draft) => Some(draft),
            Self::Stream(_) => None,
        }
    }
}

/// The output under another name, until it is complete; then it takes its own, and what had that is gone.
pub(super) struct Draft {
    pub(super) file: Handle,
    dir: Handle,
    draft: OsString,
    name: OsString,
    replaces: bool,
    is_over: AtomicBool,
}

impl Draft {
    /// One of a file that is not there yet or has these attributes, which its successor will have too.
    fn new(path: &Path, old: Option<&Metadata>) -> Result<Self> {
        let shown = path.display();
        let name = path
            .file_name()
            .with_context(|| format!("{shown}: is no name for a file"))?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let dir = RealStorage::open_root(parent).with_context(|| format!("opening {}", parent.display()))?;
        let mode = if old.is_some() { OWN_FILE_MODE } else { NEW_FILE_MODE };
        let (draft, file) = create(&dir, name, mode).with_context(|| format!("creating the output {shown}"))?;
        let made = Self {
            file,
            dir,
            draft,
            name: name.to_owned(),
            replaces: old.is_some(),
            is_over: AtomicBool::new(false),
        };
        if let Some(old) = old {
            made.become_like(old)
                .with_context(|| format!("creating the output {shown}"))?;
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
    pub(super) fn publish(&self) -> Result<()> {
        if self.replaces {
            let synced = RealStorage.sync(&self.file);
            synced.with_context(|| format!("syncing the output {}", Path::new(&self.name).display()))?;
        }
        let renamed = RealStorage.rename(&self.dir, &self.draft, &self.dir, &self.name, RenameMode::Replace);
        renamed.with_context(|| format!("naming the output {}", Path::new(&self.name).display()))?;
        self.is_over.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Removes it, unless it is published.
    pub(super) fn discard(&self) {
        if !self.is_over.swap(true, Ordering::Relaxed) {
            // Whoever hears of the failure can remove what is left.
            let _ = RealStorage.unlink(&self.dir, &self.draft);
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        self.discard();
    }
}

/// A new file beside one of this name, subject to the umask.
fn create(dir: &Handle, name: &OsStr, mode: u32) -> std::result::Result<(OsString, Handle), Errno> {
    let mut number = 0;
    loop {
        let mut draft = OsString::from(".");
        draft.push(name);
        draft.push(format!(".elbow-sort-{}-{number}", std::process::id()));
        match RealStorage.create(dir, &draft, mode) {
            Err(Errno::EXIST) if number < DRAFTS_MAX => number += 1,
            other => return other.map(|file| (draft, file)),
        }
    }
}
