//! What a shard tells about itself: who holds, who waits, and what has been counted.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;

use super::{File, Shard};
use crate::message::{FileName, LockId, LockMode, Refusal, Request, SessionId, Token};
use crate::table::{Lock, LockState, Party};

/// What is, and what has happened since the shard began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Sessions that are open.
    pub sessions: u64,
    /// Files that have locks.
    pub files: u64,
    /// Locks held; of a POSIX lock each piece.
    pub holds: u64,
    /// Requests that wait.
    pub queued: u64,
    /// Requests for list locks.
    pub lock_requests: u64,
    /// Ends of list locks, cancelled ones included.
    pub unlock_requests: u64,
    /// POSIX requests: locks, unlocks, releases and queries.
    pub posix_requests: u64,
    /// Locks granted, at once or later.
    pub grants: u64,
    /// Requests queued.
    pub waits: u64,
    /// Milliseconds that granted requests had waited, together.
    pub waited_ms: u64,
    /// Holders told that somebody waits.
    pub recalls: u64,
    /// Locks held again after a restart.
    pub reasserted: u64,
    /// Refused: may not wait and would have to.
    pub refused_would_block: u64,
    /// Refused: waited for as long as it could.
    pub refused_timed_out: u64,
    /// Refused: taken back.
    pub refused_cancelled: u64,
    /// Refused: the youngest of a deadlock.
    pub refused_deadlock: u64,
    /// Refused: a limit.
    pub refused_full: u64,
    /// Refused: could not be held again.
    pub refused_not_reasserted: u64,
    /// Refused: not before the end of the grace period.
    pub refused_grace: u64,
    /// Refused: the service was about to end.
    pub refused_draining: u64,
    /// Refused: senseless, or a name used twice.
    pub refused_bad: u64,
}

impl Totals {
    /// All of them with their names.
    ///
    /// ```
    /// let totals = elbow_lock::Totals::default();
    /// assert!(totals.named().contains(&("refused_deadlock", 0)));
    /// ```
    #[must_use]
    pub fn named(&self) -> [(&'static str, u64); 21] {
        [
            ("sessions", self.sessions),
            ("files", self.files),
            ("holds", self.holds),
            ("queued", self.queued),
            ("lock_requests", self.lock_requests),
            ("unlock_requests", self.unlock_requests),
            ("posix_requests", self.posix_requests),
            ("grants", self.grants),
            ("waits", self.waits),
            ("waited_ms", self.waited_ms),
            ("recalls", self.recalls),
            ("reasserted", self.reasserted),
            ("refused_would_block", self.refused_would_block),
            ("refused_timed_out", self.refused_timed_out),
            ("refused_cancelled", self.refused_cancelled),
            ("refused_deadlock", self.refused_deadlock),
            ("refused_full", self.refused_full),
            ("refused_not_reasserted", self.refused_not_reasserted),
            ("refused_grace", self.refused_grace),
            ("refused_draining", self.refused_draining),
            ("refused_bad", self.refused_bad),
        ]
    }

    pub(super) fn count_request(&mut self, request: &Request) {
        match request {
            Request::Lock(_) => self.lock_requests += 1,
            Request::Unlock { .. } | Request::Cancel { .. } => self.unlock_requests += 1,
            Request::Posix(_) | Request::PosixRelease { .. } | Request::Query(_) => self.posix_requests += 1,
            Request::Reassert(_)
            | Request::Renew { .. }
            | Request::Status { .. }
            | Request::Look { .. }
            | Request::Break { .. }
            | Request::Close => {}
        }
    }

    pub(super) fn count_refusal(&mut self, why: &Refusal) {
        *match why {
            Refusal::WouldBlock => &mut self.refused_would_block,
            Refusal::TimedOut => &mut self.refused_timed_out,
            Refusal::Cancelled => &mut self.refused_cancelled,
            Refusal::Deadlock { .. } => &mut self.refused_deadlock,
            Refusal::Full { .. } => &mut self.refused_full,
            Refusal::NotReasserted => &mut self.refused_not_reasserted,
            Refusal::Grace { .. } => &mut self.refused_grace,
            Refusal::Draining => &mut self.refused_draining,
            Refusal::Duplicate | Refusal::Bad { .. } => &mut self.refused_bad,
        } += 1;
    }
}

/// The locks of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// Its name.
    pub name: FileName,
    /// Locks held.
    pub holds: usize,
    /// Requests that wait.
    pub queued: usize,
    /// Locks held, in the order of asking; not more than was asked for.
    pub holders: Vec<LockStatus>,
    /// Requests that wait, in the order of asking; not more than was asked for.
    pub queue: Vec<LockStatus>,
}

/// A lock, held or waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockStatus {
    /// The session, and the owner in it.
    pub who: Party,
    /// Its name in the session; of a POSIX piece that of the request that brought it.
    pub id: LockId,
    /// Shared or exclusive.
    pub mode: LockMode,
    /// Whether it follows fcntl(2).
    pub is_posix: bool,
    /// What it covers, in the form it was asked for.
    pub pattern: String,
    /// From its first byte to its last.
    pub bounds: Range<u64>,
    /// Its fencing token; none while it waits.
    pub token: Option<Token>,
    /// Milliseconds since it was granted; since it was asked for, if it waits.
    pub age_ms: u64,
}

impl Shard {
    /// Who holds and who waits: the files with the longest queues first, then those with the most locks. Of `files_max`
    /// files, up to `locks_max` holders and as many who wait.
    ///
    /// ```
    /// use elbow_lock::{Limits, Shard};
    ///
    /// assert!(Shard::new(1, 0, Limits::default()).status(0, 10, 10).is_empty());
    /// ```
    #[must_use]
    pub fn status(&self, now_ms: u64, files_max: usize, locks_max: usize) -> Vec<FileStatus> {
        let mut files: Vec<&File> = self.files.iter().map(|(_, file)| file).collect();
        files.sort_by_cached_key(|file| (Reverse((file.table.queue_len(), file.table.len())), file.name.clone()));
        files
            .into_iter()
            .take(files_max)
            .map(|file| file.status(now_ms, locks_max))
            .collect()
    }

    /// Who holds locks of one file and who waits, up to `locks_max` of each; nothing, if nobody does.
    ///
    /// ```
    /// use elbow_lock::{FileName, Limits, Shard};
    ///
    /// let file = FileName::new(b"/data/grid").unwrap();
    /// assert!(Shard::new(1, 0, Limits::default()).look(0, &file, 10).is_none());
    /// ```
    #[must_use]
    pub fn look(&self, now_ms: u64, name: &FileName, locks_max: usize) -> Option<FileStatus> {
        let &file = self.names.get(name)?;
        Some(self.files[file].status(now_ms, locks_max))
    }

    /// The sessions that hold something of a file.
    #[must_use]
    pub fn holders(&self, name: &FileName) -> BTreeSet<SessionId> {
        let table = self.names.get(name).map(|&file| &self.files[file].table);
        let locks = table.into_iter().flat_map(|table| table.locks());
        let held = locks.filter(|lock| lock.is_held());
        held.map(|lock| lock.ask.who.session).collect()
    }

    /// Whether a session holds anything.
    #[must_use]
    pub fn holds_something(&self, session: SessionId) -> bool {
        self.sessions
            .get(&session)
            .is_some_and(|session| !session.holds_nothing())
    }

    /// How many locks a session holds of files other than this one.
    #[must_use]
    pub fn holds_elsewhere(&self, session: SessionId, name: &FileName) -> u64 {
        let here = self.names.get(name).copied();
        let held = self
            .sessions
            .get(&session)
            .map_or(0, |session| session.held_except(here));
        held as u64
    }

    /// What is, and what has happened. `O(files)`.
    ///
    /// ```
    /// use elbow_lock::{Limits, SessionId, Shard};
    ///
    /// let mut shard = Shard::new(1, 0, Limits::default());
    /// shard.open(SessionId(1));
    /// assert_eq!(shard.totals().sessions, 1);
    /// ```
    #[must_use]
    pub fn totals(&self) -> Totals {
        let tables = || self.files.iter().map(|(_, file)| &file.table);
        let queued: usize = tables().map(|table| table.queue_len()).sum();
        let locks: usize = tables().map(|table| table.len()).sum();
        Totals {
            sessions: self.sessions.len() as u64,
            files: self.files.len() as u64,
            holds: (locks - queued) as u64,
            queued: queued as u64,
            ..self.totals.clone()
        }
    }
}

impl File {
    fn status(&self, now_ms: u64, locks_max: usize) -> FileStatus {
        let (mut held, queue): (Vec<&Lock>, Vec<&Lock>) = self.table.locks().partition(|lock| lock.is_held());
        held.sort_unstable_by_key(|lock| lock.number);
        let of = |locks: &[&Lock]| locks.iter().take(locks_max).map(|lock| lock.status(now_ms)).collect();
        FileStatus {
            name: self.name.clone(),
            holds: held.len(),
            queued: queue.len(),
            holders: of(&held),
            queue: of(&queue),
        }
    }
}

impl Lock {
    fn status(&self, now_ms: u64) -> LockStatus {
        LockStatus {
            who: self.ask.who,
            id: self.ask.id,
            mode: self.ask.mode,
            is_posix: self.ask.posix,
            pattern: self.ask.footprint.to_string(),
            bounds: self.bounds.clone(),
            token: match self.state {
                LockState::Held { token, .. } => Some(token),
                LockState::Waiting { .. } => None,
            },
            age_ms: now_ms.saturating_sub(self.since_ms),
        }
    }
}
