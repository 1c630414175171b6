//! Where the patch files of a job lie.
//!
//! Network file systems change the names of a directory one after the other, so that files which are made and removed in one directory
//! wait for each other. Those of the first few objects that a job meets lie in its own directory; the others in sixteen
//! directories there, each of which is made when it is first needed.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::OnceLock;

use elbow_file::{Errno, Handle, Storage};

use crate::api::Ino;
use crate::descriptors::directory_handles;
use crate::job_files::STAGING_MODE;
use crate::missing::none_if_missing;
use crate::model::Name;

/// What the name of a patch file begins with, before the number of its object.
const PATCH: &str = "p";
/// What the name of a directory of patches begins with, before its number.
const DIRECTORY: &str = "patches-";
const DIRECTORIES: u64 = 16;
/// Objects up to this one have their patches in the job's own directory. (Of the small jobs of the tests, some do.)
const TOGETHER_MAX: u64 = if cfg!(test) { 5 } else { 32 };

/// The name of an old object's patch file.
pub(crate) fn patch_name(ino: Ino) -> Name {
    Name::from(OsStr::new(&format!("{PATCH}{}", ino.0)))
}

/// Is this the name of a patch file?
pub(crate) fn is_patch(name: &OsStr) -> bool {
    number(name, PATCH).is_some()
}

/// Is this the name of a directory of patch files?
pub(crate) fn is_patch_dir(name: &OsStr) -> bool {
    number(name, DIRECTORY).is_some()
}

/// The directory, in the job's own, that a patch file lies in; `None`: it lies in the job's own.
pub(crate) fn dir_of_patch(name: &OsStr) -> Option<Name> {
    number_of_dir(name).map(|number| Name::from(OsStr::new(&format!("{DIRECTORY}{number}"))))
}

fn number_of_dir(name: &OsStr) -> Option<usize> {
    let ino = number(name, PATCH).filter(|ino| *ino > TOGETHER_MAX)?;
    Some((ino % DIRECTORIES) as usize)
}

fn number(name: &OsStr, kind: &str) -> Option<u64> {
    let digits = name.to_str()?.strip_prefix(kind)?;
    let are_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| are_digits)
}

/// Opens a directory of patch files, which is made if it is not there yet; without a name, the job's own.
pub(crate) fn make_dir_of_patch(storage: &dyn Storage, job: &Handle, dir: Option<&Name>) -> Result<Handle, Errno> {
    let Some(dir) = dir else {
        return Ok(job.clone());
    };
    if let Some(opened) = none_if_missing(storage.open_dir(job, dir))? {
        return Ok(opened);
    }
    match storage.mkdir(job, dir, STAGING_MODE) {
        // Another thread was faster.
        Ok(()) | Err(Errno::EXIST) => storage.open_dir(job, dir),
        Err(errno) => Err(errno),
    }
}

/// The directories of patch files in a job's own, each opened once where descriptors are not scarce. One is made with the first patch in it, and none
/// once there is a record. Where it is not there, the job's own stands for it: for the undo log of a file that is only cut, which has no patch, and in a
/// job of an older elbow, all of whose patches are there.
#[derive(Debug)]
pub(crate) struct PatchDirs {
    job: Handle,
    opened: [OnceLock<Handle>; DIRECTORIES as usize],
}

impl PatchDirs {
    pub(crate) fn of(job: Handle) -> Self {
        let opened = Default::default();
        Self { job, opened }
    }

    /// The path of the directory of a patch file, and of its undo log, in the job's own.
    pub(crate) fn path_of(&self, storage: &dyn Storage, name: &OsStr) -> Result<PathBuf, Errno> {
        match dir_of_patch(name) {
            Some(dir) if none_if_missing(storage.stat(&self.job, &dir))?.is_some() => Ok(PathBuf::from(&*dir)),
            _ => Ok(PathBuf::new()),
        }
    }

    /// The same directory, open.
    pub(crate) fn of_patch(&self, storage: &dyn Storage, name: &OsStr) -> Result<Handle, Errno> {
        let Some((number, dir)) = number_of_dir(name).zip(dir_of_patch(name)) else {
            return Ok(self.job.clone());
        };
        if let Some(opened) = self.opened[number].get() {
            return Ok(opened.clone());
        }
        match none_if_missing(storage.open_dir(&self.job, &dir))? {
            Some(opened) if directory_handles() < 4 * self.opened.len() => Ok(opened),
            Some(opened) => Ok(self.opened[number].get_or_init(|| opened).clone()),
            None => Ok(self.job.clone()),
        }
    }
}

/// All patch files of a job, whose own directory this is.
#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the tests look at real directories")]
pub(crate) fn below(own: &std::path::Path) -> Vec<PathBuf> {
    let list = |dir: &std::path::Path| {
        let entries = std::fs::read_dir(dir)
            .expect("a directory")
            .map(|entry| entry.expect("an entry"));
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let (dirs, flat): (Vec<_>, Vec<_>) = list(own)
        .into_iter()
        .partition(|path| is_patch_dir(path.file_name().expect("a name")));
    let all = dirs.iter().flat_map(|dir| list(dir)).chain(flat);
    all.filter(|path| is_patch(path.file_name().expect("a name"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_are_spread_but_those_of_the_first_few_objects() {
        let dir = |ino| dir_of_patch(&patch_name(Ino(ino)));
        assert_eq!([dir(1), dir(TOGETHER_MAX)], [None, None]);
        assert!(dir(TOGETHER_MAX + 1).is_some());
        assert_eq!(
            [dir(33).as_deref(), dir(48).as_deref()],
            ["patches-1", "patches-0"].map(|name| Some(OsStr::new(name)))
        );
        let dirs: std::collections::BTreeSet<_> = (33..1000).map(dir).collect();
        assert_eq!(dirs.len(), 16);
        assert!(dirs.iter().flatten().all(|dir| is_patch_dir(dir) && !is_patch(dir)));
        assert_eq!(dir_of_patch(OsStr::new("p77.torn")), None);
    }
}
