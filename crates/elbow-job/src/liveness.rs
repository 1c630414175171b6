//! Does a job live? It holds the lock of its manifest while it does, and so does who ends it.
//!
//! ```text
//!   lock is taken                                        it lives (or is being ended), wherever that is
//!   lock is free, and its owner's locks are seen here    it is dead: the same mount of the same machine, or a storage that
//!                                                        carries locks from machine to machine
//!   otherwise    same boot, same PID namespace           its process tells
//!                same machine, another boot              it is dead: the machine was started anew
//!                anything else                           nobody can tell; `--force` says that it is dead
//! ```
//!
//! A machine is known by its name and its machine-id(5): of the name alone there may be many.
//!
//! A lock that is taken of a manifest must be that of the one that has the name *now*: whoever locks it looks again.

use std::time::Duration;

use elbow_file::{Errno, Handle, Storage, unlock_open_file};
use parking_lot::Mutex;

use crate::staging::Manifest;

/// A recovery holds the lock of what it does not end for a moment.
const LOOKS: usize = 50;
const PAUSE: Duration = Duration::from_millis(10);

/// What the state of a job is, and how that is said.
pub(crate) enum Liveness {
    Dead,
    Running(String),
    Unknown(String),
}

/// What came of locking a manifest.
pub(crate) enum Attempt {
    /// We hold it now.
    Locked,
    Taken,
    /// There are no locks on this storage, or there is no manifest to be locked.
    None,
}

/// Tries to lock an open manifest.
pub(crate) fn attempt(storage: &dyn Storage, file: &Handle) -> Result<Attempt, Errno> {
    match storage.try_lock(file) {
        Ok(true) => Ok(Attempt::Locked),
        Ok(false) => Ok(Attempt::Taken),
        Err(errno) if is_lockless(errno) => Ok(Attempt::None),
        Err(errno) => Err(errno),
    }
}

/// The same for a file of our own, which a recovery may have locked to see whether anybody has.
pub(crate) fn attempt_often(storage: &dyn Storage, file: &Handle) -> Result<Attempt, Errno> {
    for _ in 0..LOOKS {
        match attempt(storage, file)? {
            Attempt::Taken => std::thread::sleep(PAUSE),
            other => return Ok(other),
        }
    }
    attempt(storage, file)
}

/// Files cannot be locked here.
pub(crate) fn is_lockless(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::PERM
    )
}

/// What can be said of a job by its manifest and its lock, seen from a directory on this device whose storage shares locks
/// among machines or not.
pub(crate) fn of(manifest: &Manifest, attempt: &Attempt, dev: u64, shares_locks: bool) -> Liveness {
    match attempt {
        Attempt::Taken => Liveness::Running(holder(manifest)),
        Attempt::Locked if is_seen_here(manifest, dev, shares_locks) => Liveness::Dead,
        Attempt::Locked | Attempt::None => by_process(manifest),
    }
}

/// Were the job alive, its lock would be seen here.
fn is_seen_here(manifest: &Manifest, dev: u64, shares_locks: bool) -> bool {
    manifest.home.as_ref().is_some_and(|home| {
        let is_same_mount = manifest.is_of_this_boot() && home.dev == dev;
        home.is_locked && (is_same_mount || home.shares_locks && shares_locks)
    })
}

fn by_process(manifest: &Manifest) -> Liveness {
    if manifest.is_of_this_boot() {
        return match manifest.has_process() {
            Some(true) => Liveness::Running(running(manifest)),
            Some(false) => Liveness::Dead,
            None => Liveness::Unknown("it was started in another container of this machine".into()),
        };
    }
    if manifest.is_of_this_machine() {
        return Liveness::Dead;
    }
    Liveness::Unknown(format!("it was started on {}", manifest.host))
}

fn running(manifest: &Manifest) -> String {
    format!("process {} is still running", manifest.pid)
}

/// Who has the lock.
fn holder(manifest: &Manifest) -> String {
    match manifest.has_process() {
        Some(false) if manifest.is_of_this_boot() => "another process is ending it now".into(),
        Some(true) if manifest.is_of_this_boot() => running(manifest),
        _ => format!("process {} on {} is still running", manifest.pid, manifest.host),
    }
}

/// A manifest that is held open for its lock, which is given up when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Lock(Mutex<Option<Handle>>);

impl Lock {
    pub(crate) fn hold(&self, manifest: Handle) {
        *self.0.lock() = Some(manifest);
    }

    /// Lets another hold what this one does.
    pub(crate) fn hand_over(&self, to: &Self) {
        *to.0.lock() = self.0.lock().take();
    }

    /// Whether what is held is the lock of this file.
    pub(crate) fn is_of(&self, storage: &dyn Storage, file: &Handle) -> Result<bool, Errno> {
        let held = self.0.lock();
        let Some(manifest) = &*held else { return Ok(false) };
        let (ours, theirs) = (storage.stat_handle(manifest)?, storage.stat_handle(file)?);
        Ok((ours.dev, ours.ino) == (theirs.dev, theirs.ino))
    }

    /// Still held? A network file system takes locks away from a machine that it has not heard of for long; if somebody else has
    /// it now, the job was given up for dead.
    ///
    /// # Errors
    /// ESTALE when somebody else has it.
    pub(crate) fn check(&self, storage: &dyn Storage) -> Result<(), Errno> {
        let held = self.0.lock();
        let Some(manifest) = &*held else { return Ok(()) };
        match attempt(storage, manifest)? {
            Attempt::Locked | Attempt::None => Ok(()),
            Attempt::Taken => Err(Errno::STALE),
        }
    }

    /// Gives it up, before the manifest is removed: a file that is removed while it is open stays, under another name, on NFS
    /// and FUSE, and with it the directory.
    pub(crate) fn give_up(&self, storage: &dyn Storage) {
        if let Some(manifest) = self.0.lock().take() {
            unlock(&manifest);
            // Nothing was written that could be lost now.
            let _ = storage.close(&manifest);
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Some(manifest) = self.0.get_mut() {
            unlock(manifest);
        }
    }
}

/// Closing alone would leave the lock with a child that another thread is just starting, which has a copy of the descriptor
/// until it begins its program: who comes next took the job for one that runs.
pub(crate) fn unlock(file: &Handle) {
    // What could not be unlocked is when the last descriptor is closed.
    let _ = unlock_open_file(file);
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::fd::AsFd as _;

    use elbow_file::{Access, RealStorage, Time};

    use super::*;
    use crate::staging::JobHome;

    const DEV: u64 = 7;

    /// What is said of this process's job, when its manifest is changed so.
    fn said(change: impl Fn(&mut Manifest), attempt: &Attempt, dev: u64, shares: bool) -> &'static str {
        let (now, home) = (Time::default(), JobHome::here("job".as_ref(), DEV, true, true));
        let mut manifest = Manifest::of_this_process(now, (now, now), &[], home);
        change(&mut manifest);
        match of(&manifest, attempt, dev, shares) {
            Liveness::Dead => "dead",
            Liveness::Running(_) => "running",
            Liveness::Unknown(_) => "unknown",
        }
    }

    fn home(manifest: &mut Manifest) -> &mut JobHome {
        manifest.home.as_mut().unwrap()
    }

    fn of_another_machine(manifest: &mut Manifest) {
        manifest.boot = "another".into();
        home(manifest).machine = "another".into();
    }

    /// Who has the lock lives, and so says nobody's name or number.
    #[test]
    fn a_taken_lock_is_the_last_word() {
        for change in [
            of_another_machine,
            |m: &mut Manifest| m.pid = 0,
            |m: &mut Manifest| m.home = None,
        ] {
            for (dev, shares) in [(DEV, false), (8, true)] {
                assert_eq!(said(change, &Attempt::Taken, dev, shares), "running");
            }
        }
    }

    #[test]
    fn a_free_lock_says_that_a_job_is_dead_where_it_would_be_seen() {
        let free = &Attempt::Locked;
        assert_eq!(
            said(|_| {}, free, DEV, false),
            "dead",
            "the number was given to another process"
        );
        assert_eq!(said(|m| home(m).pid_namespace = 1, free, DEV, false), "dead");
        assert_eq!(
            said(of_another_machine, free, 8, true),
            "dead",
            "the storage carries locks"
        );
        // Elsewhere it says nothing: another mount of the same storage, a job that could not lock, a storage without shared locks.
        assert_eq!(said(|_| {}, free, 8, false), "running");
        assert_eq!(said(|m| home(m).is_locked = false, free, DEV, true), "running");
        assert_eq!(said(of_another_machine, free, DEV, false), "unknown");
        let unshared = |m: &mut Manifest| {
            of_another_machine(m);
            home(m).shares_locks = false;
        };
        assert_eq!(said(unshared, free, DEV, true), "unknown");
    }

    /// A machine of the same name was taken for this one, rebooted, and its living job rolled back.
    #[test]
    fn without_locks_processes_and_machines_tell() {
        let none = &Attempt::None;
        assert_eq!(said(|_| {}, none, DEV, false), "running");
        assert_eq!(said(|m| m.started += 1, none, DEV, false), "dead");
        assert_eq!(said(|m| home(m).pid_namespace = 1, none, DEV, false), "unknown");
        assert_eq!(
            said(|m| m.boot = "another".into(), none, DEV, false),
            "dead",
            "rebooted"
        );
        assert_eq!(said(of_another_machine, none, DEV, false), "unknown");
        // The first version of the manifest has no machine.
        let old = |m: &mut Manifest| (m.home, m.boot) = (None, "another".into());
        assert_eq!(said(old, none, DEV, false), "dead");
        let old = |m: &mut Manifest| (m.home, m.host) = (None, "another".into());
        assert_eq!(said(old, none, DEV, false), "running", "the boot is this one");
    }

    /// A copy of the descriptor, as a child has one that another thread starts at this moment, had the lock until it was closed:
    /// the job was said to be still running.
    #[test]
    fn a_lock_is_free_when_it_is_given_up_or_dropped_though_a_copy_of_its_descriptor_is_open() {
        let place = tempfile::tempdir().unwrap();
        let root = RealStorage::open_root(place.path()).unwrap();
        let name = OsStr::new("job");
        RealStorage.create(&root, name, 0o600).unwrap();
        let open = || RealStorage.open(&root, name, Access::ReadWrite).unwrap();
        let gives_up: [fn(Lock); 2] = [|lock| lock.give_up(&RealStorage), drop];
        for give_up in gives_up {
            let (file, lock) = (open(), Lock::default());
            let copy = file.as_fd().try_clone_to_owned().unwrap();
            assert!(matches!(attempt(&RealStorage, &file), Ok(Attempt::Locked)));
            lock.hold(file);
            assert!(matches!(attempt(&RealStorage, &open()), Ok(Attempt::Taken)));
            give_up(lock);
            assert!(matches!(attempt(&RealStorage, &open()), Ok(Attempt::Locked)));
            drop(copy);
        }
    }
}
