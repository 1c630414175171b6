//! A program where every user can start it: a checkout may lie below a home that only its owner enters, and then a test that
//! becomes another user finds nothing that was built there.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A program in a temporary directory of its own that everybody may enter; gone when this is dropped.
#[derive(Debug)]
pub struct Reachable {
    path: PathBuf,
    _dir: TempDir,
}

impl Reachable {
    /// Gives the program a second name there, or where that is another file system a copy.
    ///
    /// # Errors
    /// What the file system says.
    pub fn new(program: &Path) -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("elbow-program-").tempdir()?;
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755))?;
        let path = dir.path().join(program.file_name().ok_or(io::ErrorKind::InvalidInput)?);
        if fs::hard_link(program, &path).is_err() {
            // By a child: what other threads start meanwhile has a descriptor of ours for a moment, and what somebody can write to cannot be run.
            let copied = Command::new("cp").arg(program).arg(&path).status()?;
            if !copied.success() {
                return Err(io::Error::other(format!("cp of {}: {copied}", program.display())));
            }
        }
        Ok(Self { path, _dir: dir })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// In a checkout below a home with mode 0700 the tests of what an ordinary user is told found no program.
    #[test]
    fn a_program_below_a_closed_directory_is_open_to_all() {
        let closed = tempfile::tempdir().expect("a directory");
        fs::set_permissions(closed.path(), Permissions::from_mode(0o700)).expect("closing it");
        let program = closed.path().join("program");
        fs::copy("/bin/sh", &program).expect("a program");
        let reachable = Reachable::new(&program).expect("a second name");
        let above = reachable.path().ancestors().take(2);
        above.for_each(|place| assert_eq!(place.metadata().expect("its mode").mode() & 0o005, 0o005, "{place:?}"));
        let same = fs::read(reachable.path()).expect("its content") == fs::read(&program).expect("the same");
        assert!(same && reachable.path().ends_with("program"));
    }
}
