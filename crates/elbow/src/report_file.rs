//! Where `--report` writes: a file that is replaced when the report is complete, a pipe or a device, or a descriptor that
//! our caller has opened.
//!
//! It is opened before anything else happens, by what a name means outside of the job, so that a report that cannot be
//! written is refused while there is nothing to lose. Between that and the report nothing of ours is in the directory of a
//! file: a job over it finds it as it was, and writing after the job has ended is no conflict with it. The command does
//! not get what we have opened.

#![allow(
    clippy::disallowed_methods,
    reason = "a file named on the command line, not the storage of a job"
)]

use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{ErrorKind, IoSlice, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use elbow_file::{Handle, RealStorage, ShowName, Storage};
use rustix::fs::{Mode, OFlags};

use crate::output::{print_message, sentence};
use crate::partial_output::{PartialOutput, place};

/// Descriptors below this are the command's too.
const FIRST_OWN_FD: i32 = 3;

/// What `--report` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReportTarget {
    /// A descriptor.
    Descriptor(i32),
    /// A file.
    Path(PathBuf),
}

impl ReportTarget {
    /// A number is a descriptor, and so is what stands for one in `/dev`.
    pub(crate) fn parse(name: OsString) -> Result<Self, String> {
        let Some(text) = name.to_str() else {
            return Ok(Self::Path(name.into()));
        };
        let number = match text {
            "" => return Err("name a file, or the number of a descriptor".to_owned()),
            "-" => return Err("write 1 for standard output, or ./- for a file of this name".to_owned()),
            "/dev/stdout" => "1",
            "/dev/stderr" => "2",
            _ => ["/dev/fd/", "/proc/self/fd/"]
                .iter()
                .find_map(|prefix| text.strip_prefix(prefix))
                .unwrap_or(text),
        };
        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(Self::Path(text.into()));
        }
        let number = number.parse();
        number
            .map(Self::Descriptor)
            .map_err(|_| format!("`{text}` is no descriptor; write ./{text} for a file"))
    }

    /// Standard error, where messages and `--json` go.
    pub(crate) fn is_stderr(&self) -> bool {
        *self == Self::Descriptor(2)
    }
}

/// An open place for one report.
pub(crate) enum ReportFile {
    /// A pipe, a device or a descriptor.
    Stream(File),
    /// A regular file, there already or not.
    Regular {
        dir: Handle,
        name: OsString,
        old: Option<Box<Metadata>>,
        /// Of a new file.
        mode: u32,
    },
}

impl ReportFile {
    /// Opens it; nothing is changed yet.
    pub(crate) fn open(target: &ReportTarget) -> Result<Self> {
        match target {
            ReportTarget::Descriptor(number) => descriptor(*number).map(Self::Stream),
            ReportTarget::Path(path) => Self::at(path).with_context(|| format!("--report {}", path.shown())),
        }
    }

    fn at(path: &Path) -> Result<Self> {
        let found = match path.metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Self::regular(path, None),
            found => found?,
        };
        if found.is_dir() {
            bail!("is a directory; name a file");
        }
        // Who may not write to a file may not replace it either, although the kernel would let them.
        let opened = OpenOptions::new().write(true).open(path)?;
        match found.is_file() {
            true => Self::regular(&path.canonicalize()?, Some(Box::new(found))),
            false => Ok(Self::Stream(opened)),
        }
    }

    /// A draft that is taken back at once shows whether there can be one at the end.
    fn regular(path: &Path, old: Option<Box<Metadata>>) -> Result<Self> {
        let (dir, name) = place(path)?;
        let trial = PartialOutput::in_directory(dir.clone(), name, old.as_deref())?;
        let mode = RealStorage.stat_handle(&trial.file)?.mode;
        drop(trial);
        Ok(Self::Regular {
            dir,
            name: name.to_owned(),
            old,
            mode,
        })
    }

    /// Is it below this mount? A mount that ends takes its files away.
    pub(crate) fn is_within(&self, mount_point: &Path) -> bool {
        let Self::Regular { dir, .. } = self else { return false };
        let here = RealStorage.stat_handle(dir).map(|found| found.dev);
        let is_on = |path: &Path| path.metadata().is_ok_and(|there| Ok(there.dev()) == here);
        is_on(mount_point) && !is_on(&mount_point.join(".."))
    }

    /// Writes the report, or says on standard error that it cannot be written: what it tells of has happened.
    pub(crate) fn write_or_say(self, line: &str) {
        if let Err(error) = self.write(line) {
            print_message(format_args!("the report cannot be written: {}", sentence(&error)));
        }
    }

    fn write(self, line: &str) -> Result<()> {
        let line = format!("{line}\n");
        match self {
            Self::Stream(mut file) => Ok(file.write_all(line.as_bytes())?),
            Self::Regular { dir, name, old, mode } => {
                let draft = PartialOutput::in_directory(dir, &name, old.as_deref())?;
                if old.is_none() {
                    rustix::fs::fchmod(draft.file.as_fd(), Mode::from_raw_mode(mode))?;
                }
                RealStorage.write(&draft.file, &[IoSlice::new(line.as_bytes())], 0)?;
                draft.publish()
            }
        }
    }
}

/// A copy of a descriptor, which the command does not get; nor does it get the descriptor itself, unless it is one of
/// the three that every program has.
#[allow(unsafe_code)]
fn descriptor(number: i32) -> Result<File> {
    // SAFETY: the call touches no memory of ours; a number that is no descriptor is an error.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, FIRST_OWN_FD) };
    if copy < 0 {
        let error = std::io::Error::last_os_error();
        return Err(error).with_context(|| {
            format!("--report {number}: no such descriptor is open; open it in the shell, as in {number}>report.json, or write ./{number} for a file")
        });
    }
    // SAFETY: the kernel has just made it, for us alone.
    let copy = unsafe { OwnedFd::from_raw_fd(copy) };
    let access = rustix::fs::fcntl_getfl(&copy)? & OFlags::ACCMODE;
    if access == OFlags::RDONLY {
        bail!("--report {number}: the descriptor is open for reading only");
    }
    if number >= FIRST_OWN_FD {
        // SAFETY: as above; the descriptor is our caller's gift and stays open.
        unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    Ok(File::from(copy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_descriptors_and_everything_else_files() {
        for (text, target) in [
            ("3", ReportTarget::Descriptor(3)),
            ("/dev/stdout", ReportTarget::Descriptor(1)),
            ("/dev/fd/7", ReportTarget::Descriptor(7)),
            ("./3", ReportTarget::Path("./3".into())),
            ("/dev/null", ReportTarget::Path("/dev/null".into())),
            ("3.json", ReportTarget::Path("3.json".into())),
        ] {
            assert_eq!(ReportTarget::parse(text.into()), Ok(target), "{text}");
        }
        for text in ["", "-", "99999999999"] {
            assert!(ReportTarget::parse(text.into()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_descriptor_that_is_not_open_or_not_for_writing_is_refused() {
        use std::os::fd::AsRawFd;
        let reading = File::open("/dev/null").expect("a device");
        for number in [9999, reading.as_raw_fd()] {
            assert!(ReportFile::open(&ReportTarget::Descriptor(number)).is_err(), "{number}");
        }
    }
}
