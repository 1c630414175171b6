//! Names and files of the staging area, and what a dead job can be known by.
//!
//! ```text
//!   DIR/.elbow-<id>-<mtime>/        the job's own directory (mode 0700)
//!       job                         manifest: who, where, when, what (sealed); locked while the job lives
//!       job.draft                   the manifest before it is whole, locked and durable
//!       journal                     one sealed entry per staging directory, before it is made
//!       new/                        what the job creates in DIR itself
//!       p<n>                        patch files of old objects
//!       patches-<n>/p<n>            the same, of all but the first few
//!       m<n>, n<n>                  in transit: objects on their way from one name to another
//!       u-p<n>                      what a patch has overwritten, beside it
//!       commit                      the commit record
//!       departed, named, done       how far it is applied
//!       undo, undo.names, undo.olds the record of a commit that is taken back, and how far
//!       resume                      the record of a job that was kept with all that it made, and can go on
//!       why                         why a job was kept, in words
//!   DIR/old/dir/.elbow-<id>-part    what the job creates in old/dir
//!   DIR/old/dir/.elbow-<id>-d<n>    an old object that is removed from old/dir, for the time of the commit
//!   DIR/old/dir/.elbow-<id>-m<n>    an old object that gets another name in old/dir, the same; or, where that is on another device
//!                                   than DIR, in another directory
//!   DIR/old/dir/.elbow-<id>-part/.elbow-<id>-x<n>   in transit there
//!   DIR/old/dir/.elbow-<id>-t<n>    made and removed to give old/dir a new time
//!   DIR/.elbow-turn                 locked by the job that commits
//!   DIR/.elbow-probe-<id>           a file that a recovery makes for a moment, to see whose it becomes (`ownership`)
//! ```
//!
//! The manifest of a kept job is named `kept` instead of `job`, that of a kept job that is being removed `dropped`: a rename
//! is one step, and needs no room on a full disk. A part has a name of another form than a job's own directory, so that
//! a recovery of `old/dir` does not take it for a dead job.
//!
//! The name holds 16 hexadecimal digits of chance and the mtime of DIR before the job, in seconds and nanoseconds. Making
//! the first directory changes that time, and nothing but a name comes into being in one step with what it says: a job
//! that dies before its manifest is written can so be undone, times included.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use elbow_file::Time;
use elbow_ranges::encoding::{DecodeError, Reader, Writer, open_sealed, seal};

/// What every staging directory's name begins with.
pub(crate) const PREFIX: &str = ".elbow-";
/// Within the job's own directory.
pub(crate) const NEW: &str = "new";
pub(crate) const MANIFEST: &str = "job";
pub(crate) const MANIFEST_DRAFT: &str = "job.draft";
pub(crate) const JOURNAL: &str = "journal";
/// In a job's directory while a job commits that changes what was there (`commit::turn`).
pub(crate) const TURN: &str = ".elbow-turn";
/// The manifest of a job that was kept, and of one that is being removed after that.
pub(crate) const KEPT: &str = "kept";
pub(crate) const DROPPED: &str = "dropped";

/// Why a job was kept, in words.
pub(crate) const WHY: &str = "why";

/// What the name of a staging directory ends with that is not the job's own directory.
const PART: &str = "part";
const ID_DIGITS: usize = 16;
const PROBE_PREFIX: &str = ".elbow-probe-";
pub(crate) const MANIFEST_MAGIC: [u8; 8] = *b"ELBOWJOB";
const JOURNAL_MAGIC: [u8; 8] = *b"ELBOWJNL";
const VERSION: u16 = 1;
/// The first has neither the name of the job, nor the machine, nor anything on locks; the second does not say where results are saved.
const MANIFEST_VERSIONS: std::ops::RangeInclusive<u16> = 1..=3;

/// Is this the name of a staging directory of any job?
#[must_use]
pub fn is_staging_name(name: &OsStr) -> bool {
    split(name).is_some_and(|(_, rest)| rest == PART || is_parking(rest))
        || is_job_name(name)
        || is_probe_name(name)
        || name == TURN
}

/// Is this the name of a staging directory below that of any job?
#[cfg(test)]
pub(crate) fn is_part_name(name: &OsStr) -> bool {
    id_of_part(name).is_some()
}

/// A letter and a number: an old object that waits beside its name while a commit is applied.
fn is_parking(rest: &str) -> bool {
    let digits = rest.strip_prefix(['d', 'm', 'r', 't']).unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Is this the name of a directory that a job makes, and nothing else?
pub(crate) fn is_directory_of_a_job(name: &OsStr) -> bool {
    is_job_name(name) || split(name).is_some_and(|(_, rest)| rest == PART)
}

/// Is this the name of the own directory of any job?
pub(crate) fn is_job_name(name: &OsStr) -> bool {
    mtime_in(name).is_some()
}

/// Is this the name of a file that a recovery makes for a moment?
pub(crate) fn is_probe_name(name: &OsStr) -> bool {
    let id = name.to_str().and_then(|name| name.strip_prefix(PROBE_PREFIX));
    id.is_some_and(|id| id.len() == ID_DIGITS && id.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

/// A name for such a file.
pub(crate) fn new_probe_name() -> OsString {
    format!("{PROBE_PREFIX}{}", new_id()).into()
}

/// The mtime of the job's directory before the job, which the name of its own directory holds; `None` for any
/// other name.
pub(crate) fn mtime_in(name: &OsStr) -> Option<Time> {
    let (id, time) = split(name)?;
    let (seconds, nanoseconds) = time.rsplit_once('.')?;
    let time = Time {
        seconds: seconds.parse().ok()?,
        nanoseconds: nanoseconds.parse().ok()?,
    };
    (staging_name(id, time).as_str() == name).then_some(time)
}

/// The id in the name of a staging directory, and what comes after it.
fn split(name: &OsStr) -> Option<(&str, &str)> {
    let (id, rest) = name.to_str()?.strip_prefix(PREFIX)?.split_at_checked(ID_DIGITS)?;
    let is_id = id.bytes().all(|digit| digit.is_ascii_hexdigit());
    Some((id, rest.strip_prefix('-')?)).filter(|_| is_id)
}

/// The id in the name of a job's own directory.
pub(crate) fn id_of_job(name: &OsStr) -> Option<&str> {
    split(name).map(|(id, _)| id).filter(|_| is_job_name(name))
}

/// The id in the name of a staging directory below a job's own.
pub(crate) fn id_of_part(name: &OsStr) -> Option<&str> {
    split(name).filter(|(_, rest)| *rest == PART).map(|(id, _)| id)
}

/// The name of the staging directories that a job has in directories below its own.
pub(crate) fn part_name(job: &OsStr) -> OsString {
    let id = split(job).map_or("", |(id, _)| id);
    format!("{PREFIX}{id}-{PART}").into()
}

/// The hidden name beside its own that an old object has while a commit is applied; `kind` is one letter.
pub(crate) fn parked_name(job: &OsStr, kind: char, number: u64) -> OsString {
    let id = split(job).map_or("", |(id, _)| id);
    format!("{PREFIX}{id}-{kind}{number}").into()
}

/// The hidden name that is made and removed in a directory of somebody else's for the time that this gives to it.
pub(crate) fn touch_name(job: &OsStr) -> OsString {
    parked_name(job, 't', 0)
}

/// A name for the own directory of a new job in a directory with this mtime.
pub(crate) fn new_staging_name(mtime: Time) -> String {
    staging_name(&new_id(), mtime)
}

pub(crate) fn new_id() -> String {
    let mut bytes = [0u8; 8];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()).unwrap_or(0);
    }
    format!("{:016x}", u64::from_le_bytes(bytes))
}

fn staging_name(id: &str, mtime: Time) -> String {
    format!("{PREFIX}{id}-{}.{:09}", mtime.seconds, mtime.nanoseconds)
}

/// Who runs a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) host: String,
    /// The boot that `pid` belongs to.
    pub(crate) boot: String,
    pub(crate) pid: u32,
    /// Start time of the process in clock ticks since boot (proc(5), field 22).
    pub(crate) started: u64,
    pub(crate) unix_seconds: u64,
    /// Times of the directory before the job touched it.
    pub(crate) times: (Time, Time),
    pub(crate) command: Vec<Vec<u8>>,
    /// What the first version did not have.
    pub(crate) home: Option<JobHome>,
    /// Where it saves what the storage does not take.
    pub(crate) save: Vec<PathBuf>,
}

/// Where a job lives: what tells whether its lock says anything to whoever finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobHome {
    /// The name of the job's own directory: one that was renamed is another job's, or nobody's.
    pub(crate) name: OsString,
    /// The machine, over its reboots (machine-id(5)); empty where it has no such id.
    pub(crate) machine: String,
    /// The namespace that the number of the process belongs to.
    pub(crate) pid_namespace: u64,
    /// The job holds the lock of its manifest.
    pub(crate) is_locked: bool,
    /// Other machines see that lock.
    pub(crate) shares_locks: bool,
    /// Inode number of the job's own directory, and when it was made, where that is kept: a copy has others.
    pub(crate) ino: u64,
    pub(crate) born: Option<Time>,
    /// `st_dev` of the directory of the job: who sees the same on the same machine sees the same locks.
    pub(crate) dev: u64,
}

impl JobHome {
    /// This process.
    pub(crate) fn here(name: &OsStr, dev: u64, is_locked: bool, shares_locks: bool) -> Self {
        Self {
            name: name.to_owned(),
            ino: 0,
            born: None,
            machine: machine_id(),
            pid_namespace: pid_namespace(),
            is_locked,
            shares_locks,
            dev,
        }
    }

    /// The job's own directory is this one.
    pub(crate) fn of_directory(self, ino: u64, born: Option<Time>) -> Self {
        Self { ino, born, ..self }
    }

    fn encode(&self, out: &mut Writer) {
        out.bytes(self.name.as_bytes());
        out.bytes(self.machine.as_bytes());
        out.varint(self.pid_namespace);
        out.bool(self.is_locked);
        out.bool(self.shares_locks);
        out.varint(self.dev);
        out.varint(self.ino);
        out.bool(self.born.is_some());
        if let Some(born) = self.born {
            put_time(out, born);
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            name: OsStr::from_bytes(from.bytes()?).to_owned(),
            machine: String::from_utf8_lossy(from.bytes()?).into_owned(),
            pid_namespace: from.varint()?,
            is_locked: from.bool()?,
            shares_locks: from.bool()?,
            dev: from.varint()?,
            ino: from.varint()?,
            born: if from.bool()? { Some(take_time(from)?) } else { None },
        })
    }
}

impl Manifest {
    /// This process, on this host, now; it saves nothing.
    pub(crate) fn of_this_process(now: Time, times: (Time, Time), command: &[OsString], home: JobHome) -> Self {
        let pid = std::process::id();
        Self {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            boot: boot_id(),
            pid,
            started: process_start(pid).unwrap_or(0),
            unix_seconds: now.seconds.max(0) as u64,
            times,
            command: command.iter().map(|word| word.as_bytes().to_vec()).collect(),
            home: Some(home),
            save: Vec::new(),
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.bytes(self.host.as_bytes());
        out.bytes(self.boot.as_bytes());
        out.varint(u64::from(self.pid));
        out.varint(self.started);
        out.varint(self.unix_seconds);
        put_time(&mut out, self.times.0);
        put_time(&mut out, self.times.1);
        out.varint(self.command.len() as u64);
        self.command.iter().for_each(|word| out.bytes(word));
        if let Some(home) = &self.home {
            home.encode(&mut out);
            out.varint(self.save.len() as u64);
            self.save
                .iter()
                .for_each(|place| out.bytes(place.as_os_str().as_bytes()));
        }
        let version = if self.home.is_some() { 3 } else { 1 };
        seal(MANIFEST_MAGIC, version, &out.finish())
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (version, body) = open_sealed(MANIFEST_MAGIC, MANIFEST_VERSIONS, bytes)?;
        let mut from = Reader::new(body);
        let manifest = Self {
            host: String::from_utf8_lossy(from.bytes()?).into_owned(),
            boot: String::from_utf8_lossy(from.bytes()?).into_owned(),
            pid: from.varint()? as u32,
            started: from.varint()?,
            unix_seconds: from.varint()?,
            times: (take_time(&mut from)?, take_time(&mut from)?),
            command: {
                let words = from.count(1)?;
                (0..words)
                    .map(|_| from.bytes().map(<[u8]>::to_vec))
                    .collect::<Result<_, _>>()?
            },
            home: if version > 1 {
                Some(JobHome::decode(&mut from)?)
            } else {
                None
            },
            save: if version > 2 {
                let places = from.count(1)?;
                let place = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
                (0..places).map(|_| from.bytes().map(place)).collect::<Result<_, _>>()?
            } else {
                Vec::new()
            },
        };
        from.finish()?;
        Ok(manifest)
    }

    /// It was started since this machine was, on it.
    pub(crate) fn is_of_this_boot(&self) -> bool {
        !self.boot.is_empty() && self.boot == boot_id()
    }

    /// It was started on this machine, now or before a reboot.
    pub(crate) fn is_of_this_machine(&self) -> bool {
        let is_named_so = self.host == rustix::system::uname().nodename().to_string_lossy();
        is_named_so && self.home.as_ref().is_none_or(|home| home.machine == machine_id())
    }

    /// It may have been: a machine gets another name, or is set up anew under its old one.
    pub(crate) fn may_be_of_this_machine(&self) -> bool {
        let is_named_so = self.host == rustix::system::uname().nodename().to_string_lossy();
        let has_id = |home: &JobHome| !home.machine.is_empty() && home.machine == machine_id();
        is_named_so || self.is_of_this_boot() || self.home.as_ref().is_some_and(has_id)
    }

    /// Its process runs: `None` where its number says nothing, because it belongs to another namespace.
    pub(crate) fn has_process(&self) -> Option<bool> {
        let is_ours = self
            .home
            .as_ref()
            .is_none_or(|home| home.pid_namespace == pid_namespace());
        is_ours.then(|| process_start(self.pid) == Some(self.started))
    }
}

/// Something that a roll back has to undo outside the job's own directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JournalEntry {
    /// A staging directory in this old directory, whose times were these; and its mode, if it had to be opened for that.
    Staging {
        dir: PathBuf,
        times: (Time, Time),
        closed: Option<u32>,
    },
    /// A new object under its own name (`--publish eager`).
    Visible { path: PathBuf },
    /// It did not get that name: somebody else has it, and nothing of the job is there.
    Taken { path: PathBuf },
}

impl JournalEntry {
    /// One entry: its length (u32, little-endian), then the sealed body.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new();
        match self {
            Self::Staging { dir, times, closed } => {
                out.varint(0);
                put_path(&mut out, dir);
                put_time(&mut out, times.0);
                put_time(&mut out, times.1);
                // Older versions read no further.
                if let Some(mode) = closed {
                    out.varint(u64::from(*mode));
                }
            }
            Self::Visible { path } => {
                out.varint(1);
                put_path(&mut out, path);
            }
            Self::Taken { path } => {
                out.varint(2);
                put_path(&mut out, path);
            }
        }
        let sealed = seal(JOURNAL_MAGIC, VERSION, &out.finish());
        let mut entry = (sealed.len() as u32).to_le_bytes().to_vec();
        entry.extend_from_slice(&sealed);
        entry
    }

    fn decode(sealed: &[u8]) -> Result<Self, DecodeError> {
        let (_, body) = open_sealed(JOURNAL_MAGIC, VERSION..=VERSION, sealed)?;
        let mut from = Reader::new(body);
        let kind = from.varint()?;
        let path = take_path(&mut from)?;
        Ok(match kind {
            0 => Self::Staging {
                dir: path,
                times: (take_time(&mut from)?, take_time(&mut from)?),
                closed: (from.left() > 0).then(|| from.u32()).transpose()?,
            },
            2 => Self::Taken { path },
            _ => Self::Visible { path },
        })
    }

    /// Entries of a journal up to the first that is torn, or not all there; and how many bytes they take.
    pub(crate) fn decode_all(bytes: &[u8]) -> (Vec<Self>, usize) {
        let (all, mut bytes) = (bytes.len(), bytes);
        let mut entries = Vec::new();
        while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
            let length = u32::from_le_bytes(*length) as usize;
            let Some(sealed) = rest.get(..length) else { break };
            let Ok(entry) = Self::decode(sealed) else { break };
            entries.push(entry);
            bytes = &rest[length..];
        }
        (entries, all - bytes.len())
    }
}

pub(crate) fn put_path(out: &mut Writer, path: &Path) {
    out.bytes(path.as_os_str().as_bytes());
}

/// A path below the directory of a job: relative, without `..`.
pub(crate) fn take_path(from: &mut Reader<'_>) -> Result<PathBuf, DecodeError> {
    let at = from.offset();
    let path = PathBuf::from(OsStr::from_bytes(from.bytes()?));
    check_path(at, path)
}

/// The path, which was read at that offset, if it is one.
pub(crate) fn check_path(at: usize, path: PathBuf) -> Result<PathBuf, DecodeError> {
    let inside = path
        .components()
        .all(|part| matches!(part, std::path::Component::Normal(_)));
    if inside {
        Ok(path)
    } else {
        Err(DecodeError::BadValue {
            at,
            what: "a path that leaves the directory of the job",
        })
    }
}

pub(crate) fn put_time(out: &mut Writer, time: Time) {
    out.signed(time.seconds);
    out.varint(u64::from(time.nanoseconds));
}

pub(crate) fn take_time(from: &mut Reader<'_>) -> Result<Time, DecodeError> {
    Ok(Time {
        seconds: from.signed()?,
        nanoseconds: from.varint()? as u32,
    })
}

#[allow(clippy::disallowed_methods, reason = "procfs, not the storage of a job")]
fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

#[allow(clippy::disallowed_methods, reason = "not the storage of a job")]
fn machine_id() -> String {
    std::fs::read_to_string("/etc/machine-id")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// The namespace of process numbers that this process is in (pid_namespaces(7)); 0 if that cannot be found out.
#[allow(clippy::disallowed_methods, reason = "procfs, not the storage of a job")]
fn pid_namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino())
}

/// Start time of a process that runs; `None` if there is none, or only what is left of it until its parent asks.
#[allow(clippy::disallowed_methods, reason = "procfs, not the storage of a job")]
fn process_start(pid: u32) -> Option<u64> {
    const STATE: usize = 0;
    const STARTED: usize = 19;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_name: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let is_over = matches!(*after_name.get(STATE)?, "Z" | "X");
    if is_over {
        return None;
    }
    after_name.get(STARTED)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_staging_directory_holds_the_time() {
        for (seconds, nanoseconds) in [
            (0, 0),
            (1_763_807_484, 5),
            (-62_135_596_800, 999_999_999),
            (i64::MAX, 1),
        ] {
            let time = Time { seconds, nanoseconds };
            let name = new_staging_name(time);
            assert_eq!(mtime_in(name.as_ref()), Some(time));
            let part = part_name(name.as_ref());
            assert!(is_staging_name(&part) && !is_job_name(&part), "{part:?}");
            let parked = parked_name(name.as_ref(), 'd', 12);
            assert!(is_staging_name(&parked) && !is_job_name(&parked), "{parked:?}");
        }
        let probe = new_probe_name();
        assert!(is_staging_name(&probe) && !is_job_name(&probe), "{probe:?}");
    }

    fn manifest(home: Option<JobHome>) -> Manifest {
        let here = JobHome::here("name".as_ref(), 7, true, false);
        let now = Time::default();
        let made = Manifest::of_this_process(now, (now, now), &["make".into(), "-j".into()], here);
        Manifest { home, ..made }
    }

    #[test]
    fn manifests_of_both_versions_are_read() {
        let born = Some(Time {
            seconds: -5,
            nanoseconds: 7,
        });
        let home = JobHome::here(".elbow-x".as_ref(), 7, true, true).of_directory(99, born);
        for made in [manifest(None), manifest(Some(home.clone()))] {
            assert_eq!(Manifest::decode(&made.encode()).unwrap(), made);
        }
        let saving = Manifest {
            save: vec!["/scratch of mine".into(), "/var/tmp".into()],
            ..manifest(Some(home))
        };
        assert_eq!(Manifest::decode(&saving.encode()).unwrap(), saving);
    }

    /// A process that has ended and was not asked for yet counted as alive, so that its job was not recovered.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "procfs, not the storage of a job")]
    fn a_zombie_is_not_running() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let started = process_start(child.id()).expect("it runs");
        let mut of_child = manifest(Some(JobHome::here("x".as_ref(), 7, true, true)));
        (of_child.pid, of_child.started) = (child.id(), started);
        assert_eq!(of_child.has_process(), Some(true));
        child.kill().unwrap();
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        while !state().contains(") Z ") {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(of_child.has_process(), Some(false));
        of_child.home.as_mut().unwrap().pid_namespace += 1;
        assert_eq!(of_child.has_process(), None, "its number is not ours to look up");
        child.wait().unwrap();
    }

    #[test]
    fn other_names_are_not_those_of_staging_directories() {
        for name in [
            ".elbow-",
            ".elbow-0123456789abcdef",
            ".elbow-0123456789abcdef-1",
            ".elbow-0123456789abcdef-parts",
            ".elbow-0123456789abcdef-d",
            ".elbow-0123456789abcdef-d1x",
            ".elbow-0123456789abcdef-x1",
            ".elbow-0123456789abcdeg-part",
            ".elbow-0123456789abcdefpart",
            ".elbow-0123456789abcdef-1.5",
            ".elbow-0123456789abcdef-+1.000000005",
            ".elbow-0123456789abcdeg-1.000000005",
            ".elbow-0123456789abcdef-1.000000005x",
            ".elbow-sort-1763-0",
            "elbow-0123456789abcdef-1.000000005",
            ".elbow-0123456789abcd\u{e9}f-1.000000005",
        ] {
            assert!(!is_staging_name(name.as_ref()), "{name}");
        }
    }
}
