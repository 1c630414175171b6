//! What clients ask of a lock service, and what it answers: the vocabulary of the table, the shard and the wire.
//!
//! ```text
//!   client                                          service
//!     Lock { id, owner, file, mode, footprint, .. } ->
//!                                                 <- Granted { id, token }   now, or when those before are gone
//!                                                 <- Refused { id, why }     or never
//!                                                 <- Recall { id }           somebody waits for it (if asked to tell)
//!     Unlock { id } ->                               (no answer: a cycle is one round trip)
//! ```
//!
//! A lock's name is (session, [`LockId`]): the client chooses the second half, so that it can ask, cancel and release
//! without waiting to be told a name. Any other number of the protocol is the service's.
//!
//! Not here: the bytes of a message (`wire`), when it is granted (`table`), and whether a session has ended (`lease`).
//!
//! Source: Aarestad, Ching, Thiruvathukal, Choudhary, *Scalable Approaches for Supporting MPI-IO Atomicity*, section 3
//! (list locks, one request for all ranges); fcntl(2), "Advisory record locking" (the requests named POSIX).

use std::fmt;
use std::sync::Arc;

use elbow_ranges::Footprint;

/// Longest name of a file, in bytes: Linux's `PATH_MAX`.
pub const FILE_NAME_BYTES_MAX: usize = 4096;

/// One connection's stay at the service: all its locks end with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// A lock within its session, chosen by the client; free again once it was released, refused or cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockId(pub u64);

/// Who within the session holds or waits: a process or thread that cannot do anything else while it waits. Deadlock
/// is a cycle of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(pub u64);

/// A fencing token: of two grants on one file, the later has the larger, also after the service was restarted. Where proxies are between, that
/// is so of two that exclude each other, and of two of one owner: a proxy grants what it keeps again without asking.
///
/// A storage that remembers the largest token it has seen can refuse a writer that holds a lock no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

impl Token {
    /// So many tokens belong to a grant of a lock that may be called back, the first of which it tells: who keeps the lock for others (a proxy)
    /// gives them one after the other.
    pub const OF_KEPT: u64 = 128;

    /// Bits that count the grants of one incarnation of a service; the bits above are its epoch, which counts the incarnations.
    pub const COUNTER_BITS: u32 = 40;

    /// The first token that the service grants in this epoch.
    ///
    /// ```
    /// use elbow_lock::Token;
    ///
    /// assert!(Token::first_of(7) > Token(Token::first_of(6).0 + 1_000_000));
    /// assert_eq!(Token::first_of(7).epoch(), 7);
    /// ```
    #[must_use]
    pub const fn first_of(epoch: u32) -> Self {
        Self((epoch as u64) << Self::COUNTER_BITS)
    }

    /// The epoch of the service that granted it.
    #[must_use]
    pub const fn epoch(self) -> u32 {
        (self.0 >> Self::COUNTER_BITS) as u32
    }
}

/// The name of a file, the same wherever it is locked from: any bytes, normally its absolute path.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName(Arc<[u8]>);

impl FileName {
    /// Takes a name, unless it is empty or longer than [`FILE_NAME_BYTES_MAX`].
    ///
    /// ```
    /// use elbow_lock::FileName;
    ///
    /// assert_eq!(FileName::new(b"/data/grid").unwrap().as_bytes(), b"/data/grid");
    /// assert!(FileName::new(b"").is_none());
    /// ```
    #[must_use]
    pub fn new(name: &[u8]) -> Option<Self> {
        (!name.is_empty() && name.len() <= FILE_NAME_BYTES_MAX).then(|| Self(name.into()))
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.escape_ascii().fmt(formatter)
    }
}

impl fmt::Debug for FileName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "\"{self}\"")
    }
}

/// Whether others may hold the same bytes too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockMode {
    /// Any number of shared locks may cover a byte: for reading.
    Shared,
    /// No other lock may cover a byte: for writing.
    Exclusive,
}

impl LockMode {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Shared, Self::Exclusive];

    /// Whether locks of two owners on one byte exclude each other.
    #[must_use]
    pub fn conflicts_with(self, other: Self) -> bool {
        (self, other) != (Self::Shared, Self::Shared)
    }

    /// Its name, as it is shown and told in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Exclusive => "exclusive",
        }
    }

    /// Its byte in a message.
    #[must_use]
    pub fn to_byte(self) -> u8 {
        match self {
            Self::Shared => 0,
            Self::Exclusive => 1,
        }
    }

    /// The mode of a byte in a message, if it is one.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.to_byte() == byte)
    }
}

/// How long a request may stand in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    Try,
    /// So many milliseconds.
    For(u32),
    /// Until it is granted or cancelled.
    Forever,
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// A lock over all of its footprint, granted whole or queued whole.
    Lock(LockRequest),
    /// The end of a lock that was granted. Not answered; an unknown name is ignored (its refusal may be under way).
    Unlock {
        /// The name that it was asked for with.
        id: LockId,
    },
    /// The end of a lock, granted or not: a queued one is answered with [`Refusal::Cancelled`].
    Cancel {
        /// The name that it was asked for with.
        id: LockId,
    },
    /// fcntl(2)'s `F_SETLK` and `F_SETLKW`: afterwards the owner holds exactly this over the range, whatever it held
    /// there before. Its own locks never conflict with it. Answered with [`Reply::Granted`] or [`Reply::Refused`].
    Posix(PosixRequest),
    /// Ends all POSIX locks of an owner, as close(2) and exit do. Not answered.
    PosixRelease {
        /// Who closed the file, or ended.
        owner: Owner,
        /// Of this file; of all files with `None`.
        file: Option<FileName>,
    },
    /// fcntl(2)'s `F_GETLK`: which lock of another owner would be in the way? Answered with [`Reply::Answer`].
    Query(QueryRequest),
    /// Holds again, after the service was restarted, what it had granted before that.
    Reassert(ReassertRequest),
    /// The session goes on. Answered with [`Reply::Renewed`].
    Renew {
        /// Comes back in the answer.
        seq: u64,
    },
    /// What the service holds and who waits. Answered with [`Reply::Status`].
    Status {
        /// Comes back in the answer.
        seq: u64,
    },
    /// Who holds and who waits for locks of one file. Answered with [`Reply::FileLocks`]. From version 2 on.
    Look {
        /// Comes back in the answer.
        seq: u64,
        /// Of which file.
        file: FileName,
    },
    /// Ends the sessions that hold something of a file, by somebody else's word. Answered with [`Reply::Broken`] or [`Reply::Denied`]. From
    /// version 2 on.
    Break {
        /// Comes back in the answer.
        seq: u64,
        /// Of which file.
        file: FileName,
        /// Only this session; with `None` all that hold something of the file and nothing of another one.
        session: Option<SessionId>,
        /// Grant what they hold to others at once, and not when they are known to use it no more.
        force: bool,
    },
    /// The client goes, and uses none of its locks any more: the session ends at once, not with its lease. Not answered.
    Close,
}

impl Request {
    /// The lock that is asked for, and the bytes, of a list lock: one that is asked for or held again.
    pub(crate) fn list(&self) -> Option<(LockId, &FileName, &Footprint)> {
        match self {
            Self::Lock(lock) => Some((lock.id, &lock.file, &lock.footprint)),
            Self::Reassert(lock) => Some((lock.id, &lock.file, &lock.footprint)),
            _ => None,
        }
    }

    /// Whether it is refused, or told whose lock is in its way, without waiting for anybody.
    #[cfg(feature = "server")]
    pub(crate) fn is_answered_at_once(&self) -> bool {
        match self {
            Self::Lock(lock) => lock.wait == Wait::Try,
            Self::Posix(lock) => lock.wait == Wait::Try,
            Self::Query(_) => true,
            _ => false,
        }
    }
}

/// A list lock that is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct LockRequest {
    /// Its name from now on.
    pub id: LockId,
    /// Who asks.
    pub owner: Owner,
    /// Of which file.
    pub file: FileName,
    /// Shared or exclusive.
    pub mode: LockMode,
    /// Which bytes.
    pub footprint: Footprint,
    /// How long it may queue.
    pub wait: Wait,
    /// Whether to be told (once, by [`Reply::Recall`]) when somebody else waits for it.
    pub recall: bool,
}

/// What an owner is to hold as fcntl(2) has it.
#[derive(Clone, Debug, PartialEq)]
pub struct PosixRequest {
    /// Names the answer; free again after it.
    pub id: LockId,
    /// Whose locks.
    pub owner: Owner,
    /// Of which file.
    pub file: FileName,
    /// First byte.
    pub start: u64,
    /// Past the last byte; `u64::MAX` means to the end of any file.
    pub end: u64,
    /// What to hold there; nothing with `None`.
    pub mode: Option<LockMode>,
    /// How long it may queue.
    pub wait: Wait,
}

/// A question for who is in the way.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryRequest {
    /// Names the answer.
    pub id: LockId,
    /// Whose locks are not in the way.
    pub owner: Owner,
    /// Of which file.
    pub file: FileName,
    /// What would be asked for.
    pub mode: LockMode,
    /// First byte.
    pub start: u64,
    /// Past the last byte.
    pub end: u64,
}

/// A list lock that was granted before the service was restarted.
#[derive(Clone, Debug, PartialEq)]
pub struct ReassertRequest {
    /// Its name from now on.
    pub id: LockId,
    /// Who holds it.
    pub owner: Owner,
    /// Of which file.
    pub file: FileName,
    /// Shared or exclusive.
    pub mode: LockMode,
    /// Which bytes.
    pub footprint: Footprint,
    /// The token it was granted with.
    pub token: Token,
    /// As in [`LockRequest`].
    pub recall: bool,
}

impl LockRequest {
    /// What holds it again after a restart of the service, if it was granted with this token.
    pub(crate) fn reassert(self, token: Token) -> ReassertRequest {
        let Self {
            id,
            owner,
            file,
            mode,
            footprint,
            recall,
            ..
        } = self;
        ReassertRequest {
            id,
            owner,
            file,
            mode,
            footprint,
            token,
            recall,
        }
    }

    /// Whether two ask the same owner's lock on the same bytes.
    #[cfg(feature = "server")]
    pub(crate) fn is_for_the_same(&self, other: &Self) -> bool {
        (self.owner, self.mode) == (other.owner, other.mode)
            && self.file == other.file
            && self.footprint == other.footprint
    }
}

/// What the service answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The lock is held from now on.
    Granted {
        /// The name that it was asked for with.
        id: LockId,
        /// Larger than that of any grant before that excluded this one.
        token: Token,
    },
    /// The lock is not held and not queued (any more).
    Refused {
        /// The name that it was asked for with.
        id: LockId,
        /// The reason.
        why: Refusal,
    },
    /// Somebody waits for this lock.
    Recall {
        /// The name that it was asked for with.
        id: LockId,
    },
    /// To [`Request::Query`].
    Answer {
        /// Of the query.
        id: LockId,
        /// A lock in the way, the one that begins first; none, and it would be granted.
        blocker: Option<Blocker>,
    },
    /// To [`Request::Renew`].
    Renewed {
        /// Of the request.
        seq: u64,
    },
    /// To [`Request::Status`].
    Status {
        /// Of the request.
        seq: u64,
        /// A JSON object, described in the reference of the lock service.
        json: String,
    },
    /// To [`Request::Look`].
    FileLocks {
        /// Of the request.
        seq: u64,
        /// What is held, and who waits.
        seen: FileLocks,
    },
    /// To [`Request::Break`]: these sessions are told that their locks are lost.
    Broken {
        /// Of the request.
        seq: u64,
        /// None, if nobody held anything.
        sessions: Vec<SessionId>,
    },
    /// To [`Request::Break`]: nothing was broken.
    Denied {
        /// Of the request.
        seq: u64,
        /// The reason, for people.
        why: String,
    },
    /// The session and all its locks have ended; nothing comes after it.
    Lost {
        /// The reason, for people.
        why: String,
    },
}

/// The locks of one file, as a service tells them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileLocks {
    /// Locks held; of a POSIX lock each piece.
    pub holds: u64,
    /// Requests that wait.
    pub queued: u64,
    /// Those who hold, then those who wait, each in the order of asking; not all of them, where there are many.
    pub locks: Vec<LockInfo>,
}

/// A lock that is held or waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockInfo {
    /// Whose session.
    pub session: SessionId,
    /// Who in that session.
    pub owner: Owner,
    /// The session's client, in its own words and those of the system: program, process, user or address.
    pub client: String,
    /// Shared or exclusive.
    pub mode: LockMode,
    /// Whether it follows fcntl(2).
    pub is_posix: bool,
    /// Whether its session was told that its locks are lost, and has not said that it uses them no more.
    pub is_ending: bool,
    /// Its fencing token; none while it waits.
    pub token: Option<Token>,
    /// Milliseconds since it was granted; since it was asked for, if it waits.
    pub age_ms: u64,
    /// Its first byte.
    pub start: u64,
    /// Past its last byte (of its bounds, where it is a list).
    pub end: u64,
    /// What it covers, in the form it was asked for; of a long list the beginning.
    pub pattern: String,
    /// What the session holds of other files: it ends with the session, too.
    pub elsewhere: u64,
}

/// A lock in somebody's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// Shared or exclusive.
    pub mode: LockMode,
    /// Its first byte.
    pub start: u64,
    /// Past its last byte (of its bounds, where it is a list).
    pub end: u64,
    /// Whose session.
    pub session: SessionId,
    /// Who in that session.
    pub owner: Owner,
}

/// Why a lock was not granted. The messages are for people; programs match.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It may not wait, and would have to.
    #[error("somebody else holds it or waits for it")]
    WouldBlock,
    /// It has waited for as long as it may.
    #[error("somebody else held it for as long as this request could wait")]
    TimedOut,
    /// The client took the request back.
    #[error("cancelled")]
    Cancelled,
    /// Granting it would need an end of itself.
    #[error("deadlock: {cycle}")]
    Deadlock {
        /// Who waits for whom, and for what, for people.
        cycle: String,
    },
    /// A limit of the service is reached.
    #[error("the lock service is at its limit of {limit}")]
    Full {
        /// What is at its limit, and the option that raises it.
        limit: String,
    },
    /// The session has a lock of this name.
    #[error("this session already has a lock of this number")]
    Duplicate,
    /// A lock that cannot be held again: somebody else has been granted its bytes, or the time for it is over.
    #[error("the lock was lost when the lock service was restarted")]
    NotReasserted,
    /// The service was restarted a moment ago, and lets holders from before come first.
    #[error("the lock service was restarted, and grants nothing new before {wait_ms} ms are over")]
    Grace {
        /// Milliseconds until it does.
        wait_ms: u32,
    },
    /// The service is about to end.
    #[error("the lock service is shutting down")]
    Draining,
    /// The request makes no sense.
    #[error("bad request: {what}")]
    Bad {
        /// What is wrong with it.
        what: String,
    },
}
