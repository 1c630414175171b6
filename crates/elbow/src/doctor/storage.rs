//! What the storage of a directory can do, tried in a directory of ours on it.

use std::ffi::{OsStr, OsString};
use std::io::IoSlice;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use elbow_file::{ACCESS_ACL, Errno, FileType, Handle, RenameMode, Result, Storage, Time};

use super::check::{Check, State};
use crate::job::Site;
use crate::output::strerror;
use crate::signals;
use crate::via::Reached;

/// More than the blocks of any file system, so that one of them can be a hole.
const HOLE_BYTES: u64 = 1 << 20;
const FILE_BYTES: u64 = 3 * HOLE_BYTES;
/// An operation is timed so often.
const TIMED: usize = 15;
/// `user::rw-, user:1:r--, group::r--, mask::r--, other::---` (acl(5); version 2, then tag, rights and id of each entry).
const LIST_OF_RIGHTS: [[u8; 8]; 5] = [
    [1, 0, 6, 0, 255, 255, 255, 255],
    [2, 0, 4, 0, 1, 0, 0, 0],
    [4, 0, 4, 0, 255, 255, 255, 255],
    [16, 0, 4, 0, 255, 255, 255, 255],
    [32, 0, 0, 0, 255, 255, 255, 255],
];

/// A directory in which abilities are tried; it goes with all that was made in it.
pub(super) struct TrialDirectory {
    storage: Arc<dyn Storage>,
    root: Handle,
    name: OsString,
    dir: Handle,
    /// Where it is to be seen here.
    path: Option<PathBuf>,
}

/// An ability: what it is called, how it is tried, and what it means where it is not there.
struct Ability {
    check: &'static str,
    attempt: fn(&TrialDirectory, &OsStr) -> Result<Seen>,
    hint: &'static str,
}

/// What a trial that was not refused has shown.
enum Seen {
    Works(String),
    Limited(String),
}

const ABILITIES: [Ability; 16] = [
    Ability {
        check: "latency",
        attempt: latency,
        hint: "a job answers at once and has many operations on their way",
    },
    Ability {
        check: "locks",
        attempt: locks,
        hint: "jobs of several machines on one directory cannot tell each other: let one machine at a time commit there",
    },
    Ability {
        check: "rename-noreplace",
        attempt: noreplace,
        hint: "what somebody else makes under a name at the moment of the commit may be replaced: it is looked for just before",
    },
    Ability {
        check: "rename-exchange",
        attempt: exchange,
        hint: "a replaced file is compared just before it is replaced, and not in the same moment; programs get EINVAL for an exchange",
    },
    Ability {
        check: "hard-links",
        attempt: links,
        hint: "link(2) and `ln` are refused in a job, as they are without it",
    },
    Ability {
        check: "symbolic-links",
        attempt: symlinks,
        hint: "symlink(2) and `ln -s` are refused in a job, as they are without it",
    },
    Ability {
        check: "special-files",
        attempt: fifos,
        hint: "mkfifo(1) is refused in a job, as it is without it",
    },
    Ability {
        check: "names",
        attempt: names,
        hint: "names that are not UTF-8 cannot be stored",
    },
    Ability {
        check: "modes",
        attempt: modes,
        hint: "rights come out otherwise than a program set them",
    },
    Ability {
        check: "times",
        attempt: times,
        hint: "times are cut to what the storage keeps; make(1) and rsync(1) may take files of the same second for unchanged",
    },
    Ability {
        check: "xattrs",
        attempt: xattrs,
        hint: "`cp -a` and `rsync -X` lose extended attributes there, in a job and without it",
    },
    Ability {
        check: "acls",
        attempt: acls,
        hint: "rights of single users cannot be stored there",
    },
    Ability {
        check: "holes",
        attempt: holes,
        hint: "elbow zero, sort in place and sparse files need twice the space there",
    },
    Ability {
        check: "preallocation",
        attempt: preallocation,
        hint: "fallocate(2) is refused: a full disk is found when data is written",
    },
    Ability {
        check: "inode-numbers",
        attempt: inode_numbers,
        hint: "locks of `elbow lock exec` go by path (--identity path, the default)",
    },
    Ability {
        check: "space",
        attempt: space,
        hint: "make room, or results are kept for `elbow resume`",
    },
];

impl TrialDirectory {
    /// Makes one in the directory of a job.
    pub(super) fn make(site: &Site) -> std::result::Result<Self, Check> {
        let (storage, root) = site.storage();
        let refused = |errno: Errno| {
            let hint = "a job needs to make a directory there";
            Check::new("directory", State::Missing, strerror(errno.raw_os_error()), hint)
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = OsString::from(format!(".tmp-elbow-doctor-{}-{}", std::process::id(), now.as_nanos()));
        storage.mkdir(root, &name, 0o700).map_err(refused)?;
        let dir = storage.open_dir(root, &name).map_err(refused)?;
        Ok(Self {
            path: (site.reached == Reached::Mount).then(|| site.path().join(&name)),
            storage: Arc::clone(storage),
            root: root.clone(),
            name,
            dir,
        })
    }

    /// The same by a path, where it is reached through a mount.
    pub(super) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Tries every ability, until the end is asked for.
    pub(super) fn checks(&self) -> Vec<Check> {
        let tried = ABILITIES.iter().take_while(|_| !signals::is_end_pending());
        tried.map(|ability| self.check(ability)).collect()
    }

    fn check(&self, ability: &Ability) -> Check {
        let &Ability { check, attempt, hint } = ability;
        match attempt(self, check.as_ref()) {
            Ok(Seen::Works(found)) => Check::ok(check, found),
            Ok(Seen::Limited(found)) => Check::new(check, State::Limited, found, hint),
            Err(errno) => Check::new(check, State::Missing, strerror(errno.raw_os_error()), hint),
        }
    }

    fn file(&self, name: impl AsRef<OsStr>) -> Result<Handle> {
        self.storage.create(&self.dir, name.as_ref(), 0o600)
    }
}

impl Drop for TrialDirectory {
    fn drop(&mut self) {
        // Nothing of the user's is in it. What cannot be removed stays under a name that says whose it is.
        for entry in self.storage.list(&self.dir).unwrap_or_default() {
            let is_gone = self.storage.unlink(&self.dir, &entry.name);
            let _ = is_gone.or_else(|_| self.storage.rmdir(&self.dir, &entry.name));
        }
        let _ = self.storage.rmdir(&self.root, &self.name);
    }
}

fn works(found: &str) -> Result<Seen> {
    Ok(Seen::Works(found.to_owned()))
}

fn limited(found: &str) -> Result<Seen> {
    Ok(Seen::Limited(found.to_owned()))
}

/// Another name for a second object of a trial.
fn second(name: &OsStr) -> OsString {
    let mut other = name.to_owned();
    other.push("-2");
    other
}

/// The median of making and removing a file.
fn latency(trial: &TrialDirectory, name: &OsStr) -> Result<Seen> {
    let mut times = Vec::with_capacity(TIMED);
    for _ in 0..TIMED {
        let began = Instant::now();
        drop(trial.file(name)?);
        trial.storage.unlink(&trial.dir, name)?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    let median: Duration = times[TIMED / 2];
    works(&format!(
        "{:.2} ms to make and remove a file",
        median.as_secs_f64() * 1e3
    ))
}

fn locks(trial: &TrialDirectory, name: &OsStr) -> Result<Seen> {
    let file = trial.file(name)?;
    let is_shared = trial.storage.file_system_traits(&file)?.shares_locks;
    let is_local = trial.storage.file_system_traits(&file)?.own_ids;
    match trial.storage.try_lock(&file)? {
        true if is_shared => works("seen by all machines"),
        true if is_local => works("of this machine, as the file system is"),
        true => limited("not known to be seen by other machines"),
        false => limited("a lock that nobody has was refused"),
    }
}

fn noreplace(trial: &TrialDirectory, name: &OsStr) -> Result<Seen> {
    let other = second(name);
    drop((trial.file(name)?, trial.file(&other)?));
    match trial
        .storage
        .rename(&trial.dir, name, &trial.dir, &other, RenameMode::NoReplace)
    {
        Err(Errno::EXIST) => works("a name that is taken stays"),
        Ok(()) => limited("a name that was taken was replaced"),
        Err(errno) => Err(errno),
    }
}

fn exchange(trial: &TrialDirectory, name: &OsStr) -> Result<Seen> {
    let other = second(name);
    drop((trial.file(name)?, trial.file(&other)?));
    trial
        .storage
        .rename(&trial.dir, name, &trial.dir, &other, RenameMode::Exchange)?;
    works("two names can be exchanged at once")
}

fn links(trial: &TrialDirectory, name: &OsStr) -> Result<Seen> {
    drop(trial.file(name)?);
    trial.storage.link(&trial.dir, name, &trial.dir, &second(name))?;
    match trial.storage.stat(&trial.dir, name)?.nlink {
        2 => works("and how many names a file has is told"),
        _ => limited("how many names a file has is not told"),
    }
}

fn symlinks(trial: &TrialDirectory, name: &OsStr) -> Result<Seen> {
    trial.storage.symlink("target".as_ref(), &trial.dir, name)?;
    match trial.storage.readlink(&trial.dir, name)? == "target" {
        true => works("they are stored as they are"),
        false => limited("another target is read than was written"),
    }
}

fn fifos(trial: &TrialDirectory, name: &OsStr) -> Result<Seen> {
    trial.storage.mknod(&trial.dir, name, FileType::Fifo, 0o600, 0)?;
    works("pipes can be made")
}

fn names(trial: &TrialDirectory, _: &OsStr) -> Result<Seen> {
    let name = OsStr::from_bytes(b"latin-1-\xE9");
    drop(trial.file(name)?);
    let is_there = trial.storage.list(&trial.dir)?.iter().any(|entry| entry.name == name);
    match is_there {
        true => works("any bytes"),
        false => limited("a name that is not UTF-8 comes back as another"),
    }
}

fn modes(trial: &TrialDirectory, name: &OsStr) -> Result<Seen> {
    drop(trial.file(name)?);
    trial.storage.chmod(&trial.dir, name, 0o2754)?;
    match trial.storage.stat(&trial.dir, name)?.mode {
        0o2754 => works("stored as they are set"),
        other => limited(&format!("2754 was set, and {other:o} stored")),
    }
}

fn times(trial: &TrialDirectory, name: &OsStr) -> Result<Seen> {
    let time = Time {
        seconds: 981_173_106,
        nanoseconds: 123_456_789,
    };
    drop(trial.file(name)?);
    trial.storage.set_times(&trial.dir, name, None, Some(time))?;
    let stored = trial.storage.stat(&trial.dir, name)?.mtime;
    match stored == time {
        true => works("to the nanosecond"),
        false if stored.seconds == time.seconds => limited(&format!(
            ".123456789 s was set, and .{:09} s stored",
            stored.nanoseconds
        )),
        false => limited("another time is stored than was set"),
    }
}

fn xattrs(trial: &TrialDirectory, name: &OsStr) -> Result<Seen> {
    drop(trial.file(name)?);
    let key = OsStr::new("user.elbow-doctor");
    trial.storage.set_xattr(&trial.dir, name, key, b"value")?;
    match trial.storage.get_xattr(&trial.dir, name, key)? == b"value" {
        true => works("of users"),
        false => limited("another value is read than was written"),
    }
}

fn acls(trial: &TrialDirectory, name: &OsStr) -> Result<Seen> {
    drop(trial.file(name)?);
    let list = [&[2, 0, 0, 0][..], LIST_OF_RIGHTS.as_flattened()].concat();
    trial.storage.set_xattr(&trial.dir, name, ACCESS_ACL.as_ref(), &list)?;
    works("rights of single users can be stored")
}

fn holes(trial: &TrialDirectory, name: &OsStr) -> Result<Seen> {
    let file = trial.file(name)?;
    let bytes = vec![1; HOLE_BYTES as usize];
    for offset in (0..FILE_BYTES).step_by(bytes.len()) {
        trial.storage.write(&file, &[IoSlice::new(&bytes)], offset)?;
    }
    trial.storage.sync(&file)?;
    trial.storage.punch(&file, HOLE_BYTES, HOLE_BYTES)?;
    match trial.storage.next_data(&file, HOLE_BYTES)? {
        Some((start, _)) if start == 2 * HOLE_BYTES => works("they are punched, and found again"),
        _ => limited("they are punched, and not found again"),
    }
}

fn preallocation(trial: &TrialDirectory, name: &OsStr) -> Result<Seen> {
    let file = trial.file(name)?;
    trial.storage.allocate(&file, 0, HOLE_BYTES, false)?;
    match trial.storage.stat_handle(&file)?.blocks * 512 >= HOLE_BYTES {
        true => works("space is reserved"),
        false => limited("it is answered, and no space is reserved"),
    }
}

fn inode_numbers(trial: &TrialDirectory, _: &OsStr) -> Result<Seen> {
    match trial.storage.file_system_traits(&trial.dir)?.keeps_inos {
        true => works("an object keeps its own"),
        false => limited("an object may get another one"),
    }
}

fn space(trial: &TrialDirectory, _: &OsStr) -> Result<Seen> {
    const ENOUGH: u64 = 64 << 20;
    let space = trial.storage.space(&trial.dir)?;
    let free = space.blocks_available.saturating_mul(space.fragment_bytes);
    let found = format!("{} MiB are free for this user", free >> 20);
    Ok(match free >= ENOUGH {
        true => Seen::Works(found),
        false => Seen::Limited(found),
    })
}
