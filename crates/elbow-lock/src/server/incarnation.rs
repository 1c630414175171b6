//! The incarnations of a service (it is restarted, and each is another one), and the small file in which one leaves the next what it has to know.
//!
//! ```text
//!   sealed (elbow_ranges::encoding), magic "ELBOWLIF", version 3:  epoch (varint) | longest lease (ms, varint) | 0 in its grace period | held since (varint)
//!                                                                                                              | 1 grants
//!                                                                                                              | 2 ended well
//!                                                      version 2:  as 3, without the longest lease
//!                                                      version 1:  epoch (varint) | ended well (bool)
//! ```
//!
//! Each incarnation has a later epoch, written and synced before the first grant, so that its fencing tokens are larger than
//! any before. One that ended well left no holder behind; after any other there may be some, and the next one
//! waits for a grace period in which they can hold again what they held, before it grants anything new. Only what the
//! last incarnation that granted has granted can be held again: what is older, it may have given to somebody else. So an incarnation
//! says so before its first new grant, and one that ends within its grace period hands on what it was told.
//!
//! The grace period is as long as the longest lease that somebody may have: the next incarnation may be told to give shorter ones, and does not wait shorter for
//! those. So the memory says how long that is: what the incarnation gives, or, until it grants, what those before it gave, if that is longer. Of a memory
//! without it (versions 1 and 2) and without a memory it is taken for [`LEASE_UNKNOWN`] at least.
//!
//! Without a memory nothing is known of the services before (their address may have moved here, or the file is lost): locks may be
//! held, and nobody knows which. Then none can be held again, and nothing is granted until the longest lease is over. Epochs are not smaller than the
//! minutes since 2026, so that those of such an incarnation are larger than any before: it takes one that is [`AHEAD`] of the clock, and waits for the
//! next minute, so that no other one like it has the same.
//!
//! A service that cannot begin (its address is taken) has had no clients, and leaves the memory as it was: the file is [claimed](Claim) first, then
//! the service finds out whether it can listen, and only then its incarnation begins.
//!
//! Invariants: one service at a time has the file (it is locked). It is replaced by a rename, so that a crash leaves
//! the old one or the new one.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use elbow_ranges::encoding::{DecodeError, Reader, Writer, open_sealed, seal};
use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};

use super::service::Grace;

const MAGIC: [u8; 8] = *b"ELBOWLIF";
const VERSION: u16 = 3;
const EPOCHS: u32 = 1 << 24;
const MINUTE: Duration = Duration::from_secs(60);
/// 2026-01-01T00:00:00Z, in seconds since 1970.
const FIRST_MINUTE_S: u64 = 1_767_225_600;
/// The longest lease of a service of which nothing else is known: the default of `--ttl`.
const LEASE_UNKNOWN: Duration = Duration::from_secs(10);
/// So many incarnations may have begun within a minute elsewhere, each with the next epoch.
const AHEAD: u32 = 16;

/// The service from one start to its end.
#[derive(Debug)]
pub(super) struct Incarnation {
    pub(super) path: PathBuf,
    /// Locked as long as this process runs.
    _lock: MemoryLock,
    pub(super) epoch: u32,
    pub(super) before: Before,
    /// The longest lease that it gives, ms.
    lease_ms_max: u32,
    phase: Mutex<IncarnationPhase>,
}

/// The lock of a memory.
#[derive(Debug)]
struct MemoryLock(File);

impl Drop for MemoryLock {
    fn drop(&mut self) {
        // Not by closing it alone: a child process that is just being started has a copy of it, and with that the lock.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// A memory that no other service has, as the last incarnation left it.
#[derive(Debug)]
pub(super) struct Claim {
    path: PathBuf,
    lock: MemoryLock,
    /// What there is of one before.
    last: Option<Memory>,
}

/// Who may hold something from before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// Nobody.
    Nobody,
    /// Those to whom an incarnation from an epoch on has granted.
    Holders {
        /// That epoch.
        since: u32,
        /// The longest lease that they may have, ms.
        lease_ms: u32,
    },
    /// There is no memory: somebody may, and nothing is granted for at least so long.
    Unknown(Duration),
}

/// How far an incarnation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IncarnationPhase {
    /// Within its grace period, in which what has been held since this epoch may be held again.
    Grace(u32),
    /// It grants.
    Granting,
    /// It has ended, and nobody holds anything.
    Ended,
}

/// What an incarnation has left.
#[derive(Debug)]
struct Memory {
    epoch: u32,
    /// The longest lease that somebody may have, ms.
    lease_ms: u32,
    phase: IncarnationPhase,
}

impl Claim {
    /// Locks the memory at `path` and reads it. It is not changed.
    #[allow(
        clippy::disallowed_methods,
        reason = "the service's own memory, not storage of the user's"
    )]
    pub(super) fn take(path: &Path) -> io::Result<Self> {
        let lock_path = beside(path, ".lock");
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(lock_path)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            rustix::io::Errno::WOULDBLOCK => io::Error::new(ErrorKind::AddrInUse, "another lock service runs with it"),
            error => error.into(),
        })?;
        let lock = MemoryLock(lock);
        let last = match std::fs::read(path) {
            Ok(bytes) => Some(decode(&bytes)?),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let path = path.to_owned();
        Ok(Self { path, lock, last })
    }

    /// Whether nothing is known of a service before.
    pub(super) fn is_blank(&self) -> bool {
        self.last.is_none()
    }

    /// Begins the next incarnation, with leases of at most `lease_ms_max`. `first`: where there is no memory, there was no service.
    pub(super) fn begin(self, first: bool, lease_ms_max: u32) -> io::Result<Incarnation> {
        self.begin_at(first, lease_ms_max, SystemTime::now())
    }

    fn begin_at(self, first: bool, lease_ms_max: u32, now: SystemTime) -> io::Result<Incarnation> {
        let (minute, rest) = minute_of(now);
        let (epoch, before) = match self.last {
            Some(last) => ((last.epoch + 1).max(minute), last.leaves()),
            None if first => (minute, Before::Nobody),
            None => (minute + AHEAD, Before::Unknown(rest.max(LEASE_UNKNOWN))),
        };
        if epoch >= EPOCHS {
            return Err(io::Error::other(
                "its tokens have room for 2^24 epochs, and all of them are used",
            ));
        }
        let phase = match before {
            Before::Nobody => IncarnationPhase::Granting,
            Before::Holders { since, .. } => IncarnationPhase::Grace(since),
            Before::Unknown(_) => IncarnationPhase::Grace(epoch),
        };
        let incarnation = Incarnation {
            path: self.path,
            _lock: self.lock,
            epoch,
            before,
            lease_ms_max,
            phase: Mutex::new(phase),
        };
        incarnation.remember(phase)?;
        Ok(incarnation)
    }
}

impl Incarnation {
    /// For how long only holders from before are let in, and which: no lease of one before is longer, and none of its own.
    pub(super) fn grace(&self) -> Grace {
        let longest_ms = |before_ms: u32| u64::from(before_ms.max(self.lease_ms_max));
        match self.before {
            Before::Nobody => Grace::default(),
            Before::Holders { since, lease_ms } => Grace {
                ms: longest_ms(lease_ms),
                since,
            },
            Before::Unknown(at_least) => Grace {
                ms: longest_ms(milliseconds(at_least)),
                since: self.epoch,
            },
        }
    }

    /// The longest lease that somebody may have in a phase, ms.
    fn longest_lease_ms(&self, phase: IncarnationPhase) -> u32 {
        let before_ms = match (phase, self.before) {
            (IncarnationPhase::Grace(_), Before::Holders { lease_ms, .. }) => lease_ms,
            (IncarnationPhase::Grace(_), Before::Unknown(_)) => milliseconds(LEASE_UNKNOWN),
            _ => 0,
        };
        before_ms.max(self.lease_ms_max)
    }

    /// Its grace period is over, and it grants from now on.
    pub(super) fn grants(&self) -> io::Result<()> {
        let phase = *self.phase.lock();
        match phase {
            IncarnationPhase::Grace(_) => self.remember(IncarnationPhase::Granting),
            IncarnationPhase::Granting | IncarnationPhase::Ended => Ok(()),
        }
    }

    /// Ends it: no holder is left, unless from before it.
    pub(super) fn end_well(&self) -> io::Result<()> {
        let phase = *self.phase.lock();
        match phase {
            IncarnationPhase::Grace(_) => Ok(()),
            IncarnationPhase::Granting | IncarnationPhase::Ended => self.remember(IncarnationPhase::Ended),
        }
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "the service's own memory, not storage of the user's"
    )]
    fn remember(&self, phase: IncarnationPhase) -> io::Result<()> {
        let mut body = Writer::new();
        body.varint(u64::from(self.epoch));
        body.varint(u64::from(self.longest_lease_ms(phase)));
        match phase {
            IncarnationPhase::Grace(since) => {
                body.u8(0);
                body.varint(u64::from(since));
            }
            IncarnationPhase::Granting => body.u8(1),
            IncarnationPhase::Ended => body.u8(2),
        }
        let new = beside(&self.path, ".new");
        let mut file = File::create(&new)?;
        file.write_all(&seal(MAGIC, VERSION, &body.finish()))?;
        file.sync_all()?;
        std::fs::rename(&new, &self.path)?;
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()?;
        *self.phase.lock() = phase;
        Ok(())
    }
}

impl Memory {
    /// Who may hold something after an incarnation that went so.
    fn leaves(&self) -> Before {
        let Self { epoch, lease_ms, phase } = *self;
        match phase {
            IncarnationPhase::Ended => Before::Nobody,
            IncarnationPhase::Granting => Before::Holders { since: epoch, lease_ms },
            IncarnationPhase::Grace(since) => Before::Holders { since, lease_ms },
        }
    }
}

fn milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

/// The minute of 2026 and later, at least 1, and what is left of it.
fn minute_of(now: SystemTime) -> (u32, Duration) {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let since = since.saturating_sub(Duration::from_secs(FIRST_MINUTE_S));
    let minute = u32::try_from(since.as_secs() / MINUTE.as_secs()).unwrap_or(EPOCHS);
    let gone = Duration::from_nanos(u64::try_from(since.as_nanos() % MINUTE.as_nanos()).unwrap_or_default());
    (minute.max(1), MINUTE.saturating_sub(gone))
}

fn decode(bytes: &[u8]) -> io::Result<Memory> {
    let read = || {
        let (version, body) = open_sealed(MAGIC, 1..=VERSION, bytes)?;
        let mut reader = Reader::new(body);
        let epoch = reader.u32()?;
        let lease_ms = match version {
            1 | 2 => milliseconds(LEASE_UNKNOWN),
            _ => reader.u32()?,
        };
        let at = reader.offset();
        let what = "no state of a lock service";
        let phase = match (version, reader.u8()?) {
            (2 | 3, 0) => IncarnationPhase::Grace(reader.u32()?),
            (1, 0) | (2 | 3, 1) => IncarnationPhase::Granting,
            (1, 1) | (2 | 3, 2) => IncarnationPhase::Ended,
            _ => return Err(DecodeError::BadValue { at, what }),
        };
        reader.finish()?;
        Ok(Memory { epoch, lease_ms, phase })
    };
    read().map_err(|error: DecodeError| io::Error::new(ErrorKind::InvalidData, error))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "looks at the file, and damages it")]
mod tests {
    use super::*;

    /// Into a minute of 2026, as many seconds.
    fn at(minute: u64, seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH
            + Duration::from_secs(FIRST_MINUTE_S)
            + MINUTE * minute as u32
            + Duration::from_secs(seconds)
    }

    const LEASE_MS: u32 = 10_000;

    fn begin(path: &Path, first: bool, now: SystemTime) -> Incarnation {
        Claim::take(path).unwrap().begin_at(first, LEASE_MS, now).unwrap()
    }

    /// Begins one on the minute, with leases of at most `lease_ms_max`.
    fn begin_with(path: &Path, lease_ms_max: u32) -> Incarnation {
        Claim::take(path)
            .unwrap()
            .begin_at(true, lease_ms_max, at(1, 0))
            .unwrap()
    }

    fn holders(since: u32) -> Before {
        let lease_ms = LEASE_MS;
        Before::Holders { since, lease_ms }
    }

    #[test]
    fn each_incarnation_has_a_later_epoch_and_knows_how_the_last_one_ended() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("memory");
        let first = begin(&path, true, at(7, 0));
        assert_eq!((first.epoch, first.before), (7, Before::Nobody));
        assert_eq!(Claim::take(&path).unwrap_err().kind(), ErrorKind::AddrInUse);
        drop(first); // As a crash does.
        let second = begin(&path, true, at(7, 1));
        assert_eq!((second.epoch, second.before), (8, holders(7)));
        second.grants().unwrap();
        second.end_well().unwrap();
        drop(second);
        let third = begin(&path, true, at(30, 0));
        assert_eq!((third.epoch, third.before), (30, Before::Nobody));
        drop(third);
        let after_the_clock_was_set_back = begin(&path, true, at(2, 0));
        assert_eq!(after_the_clock_was_set_back.epoch, 31);
    }

    /// What incarnations have granted that ended within their grace periods can be held again in the next, and nothing from before them: somebody else
    /// may have it since. One that was told to end within it has left no holder of its own, and those that it waited for.
    #[test]
    fn an_incarnation_hands_on_who_may_come_back_until_it_grants() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("memory");
        let next = |grants: bool, ends_well: bool| {
            let incarnation = begin(&path, true, at(1, 0));
            if grants {
                incarnation.grants().unwrap();
            }
            if ends_well {
                incarnation.end_well().unwrap();
            }
            (incarnation.epoch, incarnation.before)
        };
        assert_eq!(next(true, false), (1, Before::Nobody));
        assert_eq!(next(false, false), (2, holders(1)));
        assert_eq!(next(false, true), (3, holders(1)));
        assert_eq!(next(true, false), (4, holders(1)));
        assert_eq!(next(true, true), (5, holders(4)));
        assert_eq!(next(false, false), (6, Before::Nobody));
    }

    /// An address that has moved to another machine.
    #[test]
    fn an_incarnation_without_a_memory_has_an_epoch_of_its_own_and_lets_nobody_in() {
        let directory = tempfile::tempdir().unwrap();
        let place = |name: &str| directory.path().join(name);
        let here = begin(&place("here"), true, at(100, 5));
        let there = begin(&place("there"), false, at(100, 50));
        assert_eq!(there.before, Before::Unknown(Duration::from_secs(10)));
        // It grants from minute 101 on, so that whoever follows it begins then at the earliest.
        let elsewhere = begin(&place("elsewhere"), false, at(101, 0));
        assert!(here.epoch < there.epoch && there.epoch < elsewhere.epoch);
        let epoch = there.epoch;
        drop(there);
        assert_eq!(begin(&place("there"), false, at(101, 30)).before, holders(epoch));
    }

    /// The grace period was as long as the leases of the incarnation that waited: with shorter ones than before it was over, and the lock granted to the next,
    /// while its holder had seconds left.
    #[test]
    fn the_grace_period_is_as_long_as_the_leases_of_those_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("memory");
        let next = |lease_ms_max, grants: bool| {
            let incarnation = begin_with(&path, lease_ms_max);
            if grants {
                incarnation.grants().unwrap();
            }
            incarnation.grace().ms // It ends as by a crash.
        };
        assert_eq!(next(10_000, true), 0);
        assert_eq!(next(2_000, false), 10_000);
        assert_eq!(
            next(3_000, false),
            10_000,
            "one that has granted nothing changes nothing"
        );
        assert_eq!(next(20_000, false), 20_000);
        assert_eq!(
            next(2_000, true),
            20_000,
            "it may have let holders in again, for so long"
        );
        assert_eq!(next(100, false), 2_000, "all older leases are over when it grants");
        assert_eq!(next(100, true), 2_000);
        begin_with(&path, 100).end_well().unwrap();
        assert_eq!(next(100, true), 100, "it ended within its grace period");
        let last = begin_with(&path, 5_000);
        last.grants().unwrap();
        last.end_well().unwrap();
        drop(last);
        assert_eq!(next(100, true), 0);
    }

    #[test]
    fn what_nobody_knows_of_lasts_ten_seconds_at_least() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("memory");
        let begin = |lease_ms_max, seconds| {
            let claim = Claim::take(&path).unwrap();
            let incarnation = claim.begin_at(false, lease_ms_max, at(1, seconds)).unwrap();
            incarnation.grace().ms
        };
        assert_eq!(begin(2_000, 58), 10_000);
        assert_eq!(begin(2_000, 59), 10_000, "of the next one, too, if it grants nothing");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(begin(2_000, 20), 40_000, "it waits for the next minute");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(begin(90_000, 20), 90_000);
    }

    #[test]
    fn the_memory_of_older_services_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("memory");
        let left: [(u16, &[u8], Before); 5] = [
            (1, &[5, 1], Before::Nobody),
            (1, &[5, 0], holders(5)),
            (2, &[5, 2], Before::Nobody),
            (2, &[5, 1], holders(5)),
            (2, &[5, 0, 3], holders(3)),
        ];
        for (version, body, before) in left {
            std::fs::write(&path, seal(MAGIC, version, body)).unwrap();
            let incarnation = begin_with(&path, 2_000);
            assert_eq!(
                (incarnation.epoch, incarnation.before),
                (6, before),
                "{version} {body:?}"
            );
        }
    }

    #[test]
    fn a_damaged_memory_is_an_error_and_no_first_start() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("memory");
        drop(Claim::take(&path).unwrap().begin(true, LEASE_MS).unwrap());
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(Claim::take(&path).unwrap_err().kind(), ErrorKind::InvalidData);
    }

    /// It excludes others, and nobody takes it for a service that has crashed.
    #[test]
    fn a_memory_that_was_only_claimed_is_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("memory");
        let claim = Claim::take(&path).unwrap();
        assert_eq!(Claim::take(&path).unwrap_err().kind(), ErrorKind::AddrInUse);
        assert!(claim.is_blank());
        drop(claim);
        assert!(!path.exists());
        begin(&path, true, at(1, 0)).end_well().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        drop(Claim::take(&path).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
        assert_eq!(begin(&path, false, at(1, 0)).before, Before::Nobody);
    }
}
