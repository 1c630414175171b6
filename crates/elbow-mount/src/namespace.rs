//! The private mount namespace of a command.
//!
//! Everything happens in the child, between fork and exec, with what was prepared before the fork (no memory is
//! allocated there, only system calls are made):
//!
//! ```text
//!   root:           unshare(mount)        all mounts -> slaves   move the detached mount over DIR    chdir   exec
//!   ordinary user:  unshare(user, mount)  map own and subordinate ids    bind the hidden mount over DIR      chdir   exec
//! ```
//!
//! What is passed through is taken hold of before DIR is covered, and laid over its place afterwards.
//!
//! Slaves, not private: what the machine mounts later still appears inside; nothing from inside gets out. An
//! ordinary user keeps uid, gid and supplementary groups; capabilities in the new user namespace are lost with
//! exec, because the uid there is not 0. A step that fails is reported through a pipe with its errno.

#![allow(clippy::disallowed_methods)] // mount points, devices and /proc: not the storage of a job

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use elbow_file::Errno;
use rustix::fs::{CWD, Mode};
use rustix::mount::{MountAttrFlags, MountPropagationFlags, MoveMountFlags};
use rustix::pipe::PipeFlags;
use rustix::process::{Resource, Rlimit};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use crate::connection::{Connection, MountSource, follows_no_links};
use crate::copies::Copies;
use crate::id_maps::IdMaps;
use crate::job_directory::JobDirectory;
use crate::mount_error::{MountError, failed};
use crate::passed::{Passage, PassedThrough};
use crate::step::{STEPS, Step};
use crate::subordinate::{Request, SubordinateIds};
use crate::user_namespace;

/// What a command is to find as we found it.
#[derive(Clone, Copy)]
pub struct ChildState {
    /// File mode creation mask.
    pub umask: Mode,
    /// Limit of open files.
    pub open_files: Rlimit,
    /// Blocked signals.
    pub signals: libc::sigset_t,
}

/// The way of a child into its namespace.
pub struct NamespaceEntry {
    attachments: Vec<Attachment>,
    passages: Vec<Passage>,
    working_directory: Option<CString>,
    id_maps: Option<IdMaps>,
    /// Who maps subordinate ids.
    mapper: Option<Request>,
    copies: Copies,
    state: ChildState,
}

struct Attachment {
    source: Mounted,
    target: CString,
    /// As on the file system below (`nosymfollow`).
    follows_no_links: bool,
}

/// A source that lives as long as the child needs it.
enum Mounted {
    Detached(OwnedFd),
    Path(CString),
}

/// Where a child says what went wrong before its exec.
#[derive(Debug)]
pub struct Report(OwnedFd);

impl NamespaceEntry {
    /// Prepares a namespace in which each connection lies over its place, but for what is passed through there.
    ///
    /// `working_directory` is entered again inside, if it lies in one of the places.
    ///
    /// # Errors
    /// A path contains a zero byte, or there are too many open files.
    pub fn new(
        mounts: &[(&Connection, &JobDirectory)],
        passed: &PassedThrough,
        working_directory: Option<&Path>,
        state: ChildState,
    ) -> io::Result<Self> {
        let needs_ids = !rustix::process::geteuid().is_root() && user_namespace::namespace().is_none();
        let subordinate = needs_ids.then(SubordinateIds::of_this_user).flatten();
        let attachments = mounts.iter().map(|(connection, place)| attachment(connection, place));
        let passages = mounts.iter().flat_map(|(_, place)| passed.within(place.path()));
        let covered = |dir: &&Path| mounts.iter().any(|(_, place)| dir.starts_with(place.path()));
        Ok(Self {
            attachments: attachments.collect::<io::Result<_>>()?,
            passages: passages
                .map(|path| c_string(path).map(Passage::of))
                .collect::<io::Result<_>>()?,
            working_directory: working_directory.filter(covered).map(c_string).transpose()?,
            id_maps: needs_ids.then(IdMaps::own),
            // Without it the own ids are mapped.
            mapper: subordinate.and_then(|ids| ids.offer().ok()),
            copies: if rustix::process::geteuid().is_root() {
                Copies::default()
            } else {
                Copies::of_ssh_configuration()
            },
            state,
        })
    }

    /// Makes a command enter the namespace between fork and exec.
    ///
    /// # Errors
    /// There can be no pipe.
    #[allow(unsafe_code)]
    pub fn on_exec(mut self, command: &mut Command) -> io::Result<Report> {
        let (reading, writing) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let enter = move || self.enter().map_err(|(step, errno)| report(&writing, step, errno));
        // SAFETY: `enter` only makes system calls, on memory that was allocated before the fork.
        unsafe { command.pre_exec(enter) };
        Ok(Report(reading))
    }

    fn enter(&mut self) -> Result<(), (Step, Errno)> {
        let at = |step| move |errno| (step, errno);
        if let Some(namespace) = user_namespace::namespace() {
            join(namespace).map_err(at(Step::Unshare))?;
        }
        unshare(self.id_maps.is_some()).map_err(at(Step::Unshare))?;
        if let Some(maps) = &self.id_maps {
            let mapped = self.mapper.as_ref().map_or([false; 2], Request::ask);
            maps.write_beside(mapped).map_err(at(Step::MapIds))?;
        }
        let slaves = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        rustix::mount::mount_change(c"/", slaves).map_err(at(Step::Separate))?;
        self.copies.lay();
        for passage in &mut self.passages {
            passage.take().map_err(at(Step::TakePassed))?;
        }
        for attachment in &self.attachments {
            attachment.attach().map_err(at(Step::Attach))?;
        }
        for passage in &mut self.passages {
            passage.lay().map_err(at(Step::LayPassed))?;
        }
        if let Some(dir) = &self.working_directory {
            rustix::process::chdir(dir.as_c_str()).map_err(at(Step::ChangeDirectory))?;
        }
        self.state.restore().map_err(at(Step::Restore))
    }
}

/// Our own user namespace, in which the mount was made.
fn join(namespace: &OwnedFd) -> Result<(), Errno> {
    rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::User))
}

/// New mount namespace, and a new user namespace to have the right to it.
#[allow(unsafe_code)]
fn unshare(with_user: bool) -> Result<(), Errno> {
    let user = if with_user {
        UnshareFlags::NEWUSER
    } else {
        UnshareFlags::empty()
    };
    // SAFETY: a forked child has one thread, and no descriptors are unshared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS | user) }
}

impl Attachment {
    fn attach(&self) -> Result<(), Errno> {
        match &self.source {
            Mounted::Detached(mount) => {
                let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
                rustix::mount::move_mount(mount, c"", CWD, self.target.as_c_str(), flags)
            }
            Mounted::Path(path) => {
                rustix::mount::mount_bind(path.as_c_str(), self.target.as_c_str())?;
                if self.follows_no_links {
                    follow_no_links(&self.target)?;
                }
                Ok(())
            }
        }
    }
}

fn attachment(connection: &Connection, place: &JobDirectory) -> io::Result<Attachment> {
    let source = match connection.source() {
        Some(MountSource::Detached(mount)) => Mounted::Detached(mount.try_clone_to_owned()?),
        Some(MountSource::Path(path)) => Mounted::Path(c_string(path)?),
        None => return Err(io::Error::other("the mount is in another namespace already")),
    };
    Ok(Attachment {
        source,
        target: c_string(place.path())?,
        follows_no_links: follows_no_links(place.flags()),
    })
}

/// `fusermount3` knows no such option; in our own namespace a mount may be given what it lacks (mount_setattr(2)).
#[allow(unsafe_code)]
fn follow_no_links(target: &CStr) -> Result<(), Errno> {
    let set = MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW.bits();
    let attributes = [u64::from(set), 0, 0, 0];
    // SAFETY: `target` ends with a NUL, and the four words are a `struct mount_attr`, which the kernel only reads.
    let failed = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            target.as_ptr(),
            0,
            attributes.as_ptr(),
            size_of_val(&attributes),
        )
    };
    match failed {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
    }
}

fn c_string(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

impl ChildState {
    /// Limits and umask of this process, and the signals that it blocks, as they are now.
    #[must_use]
    #[allow(unsafe_code)]
    pub fn current() -> Self {
        let umask = rustix::process::umask(Mode::empty());
        rustix::process::umask(umask);
        // SAFETY: a zeroed sigset_t is a valid one, which sigprocmask fills; a null new set changes nothing.
        let signals = unsafe {
            let mut signals = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut signals);
            signals
        };
        Self {
            umask,
            open_files: rustix::process::getrlimit(Resource::Nofile),
            signals,
        }
    }

    #[allow(unsafe_code)]
    fn restore(&self) -> Result<(), Errno> {
        rustix::process::umask(self.umask);
        rustix::process::setrlimit(Resource::Nofile, self.open_files)?;
        // SAFETY: `signals` was filled by the same call; the call is async-signal-safe.
        let failed = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.signals, std::ptr::null_mut()) };
        if failed == 0 {
            Ok(())
        } else {
            Err(Errno::from_raw_os_error(failed))
        }
    }
}

/// Tells the parent, which reads it when the spawn fails.
fn report(pipe: &OwnedFd, step: Step, errno: Errno) -> io::Error {
    // If even this fails, the parent still gets the errno from the spawn.
    let _ = rustix::io::write(pipe, &[step as u8]);
    errno.into()
}

impl Report {
    /// After a failed spawn: what failed. `None` means that exec itself did.
    #[must_use]
    pub fn failure(&self, spawn: &io::Error) -> Option<MountError> {
        let mut number = [0];
        let got = rustix::io::read(&self.0, &mut number).ok()?;
        let step = STEPS.into_iter().find(|step| got == 1 && *step as u8 == number[0])?;
        Some(refusal(step, crate::mount_error::errno_of(spawn)))
    }
}

fn refusal(step: Step, errno: Errno) -> MountError {
    let in_user_namespace = matches!(step, Step::Unshare | Step::MapIds | Step::Separate | Step::Attach);
    if in_user_namespace && !rustix::process::geteuid().is_root() {
        MountError::NoUserNamespace { step, errno }
    } else {
        failed(step, errno)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_its_own_number() {
        for (i, step) in STEPS.into_iter().enumerate() {
            assert_eq!(step as usize, i, "{step}");
        }
    }

    #[test]
    fn a_failed_step_is_reported_with_its_errno() {
        let state = ChildState::current();
        let missing = Attachment {
            source: Mounted::Path(c"/nowhere/a".into()),
            target: c"/nowhere/b".into(),
            follows_no_links: false,
        };
        let entry = NamespaceEntry {
            attachments: vec![missing],
            passages: Vec::new(),
            working_directory: None,
            id_maps: None,
            mapper: None,
            copies: Copies::default(),
            state,
        };
        let mut command = Command::new("true");
        let report = entry.on_exec(&mut command).expect("a pipe");
        let error = command.spawn().expect_err("there is nothing to attach");
        let failure = report.failure(&error).expect("a step failed, not exec");
        let step = if rustix::process::geteuid().is_root() {
            Step::Attach
        } else {
            Step::Unshare
        };
        assert!(failure.to_string().contains(&step.to_string()), "{failure}");
    }

    #[test]
    fn a_command_that_does_not_exist_is_not_a_failed_step() {
        let mut command = Command::new("/nowhere/command");
        let (reading, _writing) = rustix::pipe::pipe_with(PipeFlags::NONBLOCK).expect("a pipe");
        let error = command.spawn().expect_err("it does not exist");
        assert!(Report(reading).failure(&error).is_none());
    }
}
