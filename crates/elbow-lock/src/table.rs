//! One file's locks: who holds what, and who waits for it.
//!
//! ```text
//!   held      |==A==|      |=A=|      |====B====|            boxes by place
//!   queue     1 C: |===|  -> A    2 D: |==| -> C    3 B: ... each waits, and watches one that is in its way
//! ```
//!
//! Two locks *conflict* when one of them is exclusive and their footprints share a byte; POSIX locks of one owner never
//! conflict with each other. A request is *blocked* by every lock held that conflicts with it and by every earlier
//! conflicting request in the queue, save those that wait, directly or behind others in the queue, for a lock of the same
//! owner: to wait behind these would be a deadlock of our own making. What is not blocked is granted whole, in the order
//! of asking; so readers come in together, a writer is not overtaken by later readers, and nobody starves but behind an
//! owner that takes ever new locks before it gives back its old ones. Who stands in a queue only, in a circle with others, may pass (`deadlock`).
//!
//! Invariants, checked by [`Table::check`] in tests:
//! - no two held locks conflict;
//! - between events, every waiting request watches a lock of this table that blocks it (unless the service is in its
//!   grace period, when all wait for its end). So an event looks again only at those that watched what changed: in a
//!   queue of a thousand for the same bytes that is the next one, since each watches the youngest that blocks it;
//! - an owner's POSIX pieces do not overlap, and those of one kind do not touch.
//!
//! Not here: sessions, limits and the names of files (`shard`), and deadlock between files (`deadlock`).
//!
//! Source: Aarestad et al., *Scalable Approaches for Supporting MPI-IO Atomicity*, section 3; fcntl(2). Watching one
//! witness in place of counting all: Moskewicz et al., *Chaff*, section 2 (two watched literals).

mod interval_index;
mod known_overlaps;
mod posix;
mod queue;
mod sequence;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use elbow_ranges::Footprint;
use slab::Slab;

use crate::message::{Blocker, LockId, LockMode, Owner, SessionId, Token};
use interval_index::IntervalIndex;
pub use known_overlaps::{Comparison, KnownOverlaps};
pub(crate) use sequence::Sequence;

/// Who holds or waits: an owner of a session. Deadlock is a cycle of these.
///
/// ```
/// use elbow_lock::{Owner, Party, SessionId};
///
/// let party = Party { session: SessionId(3), owner: Owner(1) };
/// assert_eq!(party.to_string(), "session 3 owner 1");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Party {
    /// Its session.
    pub session: SessionId,
    /// Who in that session.
    pub owner: Owner,
}

impl std::fmt::Display for Party {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "session {} owner {}", self.session.0, self.owner.0)
    }
}

/// A lock as it is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) who: Party,
    /// Of a POSIX lock: of the request that brought it.
    pub(crate) id: LockId,
    pub(crate) mode: LockMode,
    pub(crate) footprint: Footprint,
    /// Whether it follows fcntl(2): replaces what its owner holds there.
    pub(crate) posix: bool,
    /// Whether its holder wants to hear that somebody waits.
    pub(crate) recall: bool,
    /// Of older locks: whether it shares bytes with them. Not for POSIX locks, whose footprints change.
    pub(crate) known: KnownOverlaps,
    /// Its place in the order of asking; 0 until it has one.
    pub(crate) number: u64,
}

impl Ask {
    /// How many tokens belong to its grant.
    fn tokens(&self) -> u64 {
        if self.recall { Token::OF_KEPT } else { 1 }
    }

    /// Memory that it takes beside its own size.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.footprint.heap_bytes() + self.known.heap_bytes()
    }

    fn is_large(&self) -> bool {
        is_large(&self.footprint)
    }
}

/// A list or bitmap of more memory than this may take long to compare.
const LARGE_BYTES: usize = 2 << 10;

/// Whether comparing it may take long.
fn is_large(footprint: &Footprint) -> bool {
    footprint.heap_bytes() > LARGE_BYTES || footprint.is_deep()
}

/// A lock, held or waited for.
#[derive(Debug)]
pub(crate) struct Lock {
    pub(crate) ask: Ask,
    pub(crate) bounds: Range<u64>,
    /// Grows with every request: the order of asking.
    pub(crate) number: u64,
    /// When it was asked for; once it is held, when it was granted.
    pub(crate) since_ms: u64,
    pub(crate) state: LockState,
}

#[derive(Debug)]
pub(crate) enum LockState {
    Held {
        token: Token,
        /// Whether its holder was told that somebody waits.
        notified: bool,
    },
    Waiting {
        /// A lock that blocks it; none during the grace period.
        watches: Option<usize>,
        wait_limit: WaitLimit,
    },
}

/// How long a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitLimit {
    Forever,
    Until(u64),
    /// A try, until the holders who might not need their locks had time to give them back.
    Recall(u64),
}

impl WaitLimit {
    pub(crate) fn deadline(self) -> Option<u64> {
        match self {
            Self::Forever => None,
            Self::Until(at) | Self::Recall(at) => Some(at),
        }
    }
}

/// What happened in a table that somebody has to be told.
#[derive(Debug)]
pub(crate) enum Event {
    Granted(Grant),
    Recall { session: SessionId, id: LockId },
}

/// A request was granted at once.
#[derive(Debug)]
pub(crate) struct Hold {
    /// None for a POSIX lock: its owner holds pieces, which have no name.
    pub(crate) key: Option<usize>,
    pub(crate) token: Token,
    /// How many more locks its owner holds now: 1, or what the pieces of a POSIX lock come to.
    pub(crate) locks: isize,
    /// Whether somebody who asked before it waits for it now.
    pub(crate) passes: bool,
}

/// A waiting request was granted.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) who: Party,
    pub(crate) id: LockId,
    /// Its place in the order of asking.
    pub(crate) number: u64,
    pub(crate) token: Token,
    /// Whether it is a POSIX lock, which has no name any more.
    pub(crate) posix: bool,
    /// As in [`Hold`].
    pub(crate) locks: isize,
    /// As in [`Hold`].
    pub(crate) passes: bool,
    pub(crate) waited_ms: u64,
    pub(crate) wait_limit: WaitLimit,
}

/// The locks of one file.
#[derive(Debug, Default)]
pub(crate) struct Table {
    locks: Slab<Lock>,
    held: IntervalIndex,
    waiting: IntervalIndex,
    /// Waiting requests by number.
    queue: BTreeMap<u64, usize>,
    /// All locks, held or not, by whose they are.
    by_owner: BTreeSet<(Party, usize)>,
    /// A lock, and who watches it: number and key.
    watched: BTreeSet<(usize, u64, usize)>,
    /// Waiting requests to look at again, by number.
    recheck: BTreeMap<u64, usize>,
    /// Locks held whose holders want to be told and have not been.
    unnotified: usize,
    /// Locks that may take long to compare.
    large: usize,
    /// Steps of all comparisons so far, about.
    compared: Cell<u64>,
}

impl Table {
    /// Whether nobody holds or waits for anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }

    /// Requests that wait.
    pub(crate) fn queue_len(&self) -> usize {
        self.queue.len()
    }

    /// Locks, held and waiting.
    pub(crate) fn len(&self) -> usize {
        self.locks.len()
    }

    /// All locks: those held, then those that wait in the order of asking.
    pub(crate) fn locks(&self) -> impl Iterator<Item = &Lock> {
        let held = self.held.overlapping(0..u64::MAX).map(|(_, key)| key);
        held.chain(self.queue.values().copied()).map(|key| &self.locks[key])
    }

    /// A lock by its key.
    pub(crate) fn lock(&self, key: usize) -> &Lock {
        &self.locks[key]
    }

    /// Holds a lock that nothing blocks. Who is looked at again for it is granted by the next [`Table::settle`].
    pub(crate) fn hold(&mut self, ask: Ask, now_ms: u64, sequence: &mut Sequence, out: &mut Vec<Event>) -> Hold {
        let token = sequence.tokens(ask.tokens());
        let passes = self.passes(&ask, u64::MAX);
        if ask.posix {
            let change = self.plan(ask.who, &ask.footprint.bounds(), Some(ask.mode));
            let locks = self.carry_out(change, &ask, now_ms, token, sequence);
            return Hold {
                key: None,
                token,
                locks,
                passes,
            };
        }
        let who = ask.who;
        let key = self.insert_held(ask, sequence.number(), now_ms, token);
        if !self.queue.is_empty() {
            self.notify_if_waited_for(key, out);
            self.recheck_owner(who);
        }
        Hold {
            key: Some(key),
            token,
            locks: 1,
            passes,
        }
    }

    /// Puts a request in the queue, behind `blocker`; without one it waits for [`Table::recheck_all`].
    pub(crate) fn enqueue(
        &mut self,
        mut ask: Ask,
        blocker: Option<usize>,
        wait_limit: WaitLimit,
        now_ms: u64,
        sequence: &mut Sequence,
    ) -> usize {
        let (number, bounds) = (sequence.number(), ask.footprint.bounds());
        ask.number = number;
        self.large += usize::from(ask.is_large());
        let who = ask.who;
        let state = LockState::Waiting {
            watches: blocker,
            wait_limit,
        };
        let lock = Lock {
            ask,
            bounds: bounds.clone(),
            number,
            since_ms: now_ms,
            state,
        };
        let key = self.locks.insert(lock);
        self.waiting.insert(&bounds, number, key);
        self.queue.insert(number, key);
        self.by_owner.insert((who, key));
        self.watched.extend(blocker.map(|blocker| (blocker, number, key)));
        key
    }

    /// Ends a lock, held or waiting. Who watched it is looked at again by the next [`Table::settle`].
    pub(crate) fn end(&mut self, key: usize) -> Lock {
        self.recheck_watchers(key);
        let lock = self.locks.remove(key);
        self.large -= usize::from(lock.ask.is_large());
        self.by_owner.remove(&(lock.ask.who, key));
        match lock.state {
            LockState::Held { notified, .. } => {
                self.held.remove(&lock.bounds, lock.number);
                self.unnotified -= usize::from(lock.ask.recall && !notified);
            }
            LockState::Waiting { watches, .. } => {
                self.waiting.remove(&lock.bounds, lock.number);
                self.queue.remove(&lock.number);
                self.recheck.remove(&lock.number);
                if let Some(blocker) = watches {
                    self.watched.remove(&(blocker, lock.number, key));
                }
            }
        }
        lock
    }

    /// Keys of the locks of all owners of a session, held or waiting.
    pub(crate) fn of_session(&self, session: SessionId) -> Vec<usize> {
        let first = Party {
            session,
            owner: Owner(0),
        };
        let last = Party {
            session,
            owner: Owner(u64::MAX),
        };
        let range = (first, 0)..=(last, usize::MAX);
        self.by_owner.range(range).map(|&(_, key)| key).collect()
    }

    /// Whether no lock held conflicts with a request.
    pub(crate) fn is_free(&self, ask: &Ask) -> bool {
        self.conflicting_held(ask).next().is_none()
    }

    /// The lock held that begins first among those that would be in the way of a POSIX lock.
    pub(crate) fn query(&self, ask: &Ask) -> Option<Blocker> {
        let lock = self
            .conflicting_held(ask)
            .map(|key| &self.locks[key])
            .min_by_key(|lock| (lock.bounds.start, lock.number))?;
        Some(Blocker {
            mode: lock.ask.mode,
            start: lock.bounds.start,
            end: lock.bounds.end,
            session: lock.ask.who.session,
            owner: lock.ask.who.owner,
        })
    }

    /// Asserts the invariants of the module's header, in `O(n^2)`; without `settled`, those of the grace period.
    pub(crate) fn check(&self, settled: bool) {
        for (key, lock) in &self.locks {
            assert!(self.by_owner.contains(&(lock.ask.who, key)), "{lock:?} is nobody's");
            assert_eq!(lock.bounds, lock.ask.footprint.bounds());
            match lock.state {
                LockState::Held { .. } => self.check_held(key, lock),
                LockState::Waiting {
                    watches: Some(blocker), ..
                } => self.check_waiting(key, lock, blocker),
                LockState::Waiting { watches: None, .. } => assert!(!settled, "{lock:?} waits for nobody"),
            }
        }
        let large = self.locks.iter().filter(|(_, lock)| lock.ask.is_large()).count();
        assert_eq!(self.large, large);
        let waiting = self.locks.iter().filter(|(_, lock)| !lock.is_held()).count();
        assert!(
            self.watched.len() <= waiting && self.queue.len() == waiting && self.by_owner.len() == self.locks.len()
        );
        assert!(!settled || self.recheck.is_empty(), "somebody was not looked at again");
    }

    fn check_held(&self, key: usize, lock: &Lock) {
        let others = || {
            self.locks
                .iter()
                .filter(|&(other, lock)| other != key && lock.is_held())
        };
        for (_, other) in others() {
            assert!(
                !self.conflict(&lock.ask, &other.ask),
                "{lock:?} and {other:?} are both held"
            );
        }
        let is_piece = |other: &Lock| lock.ask.posix && other.ask.posix && other.ask.who == lock.ask.who;
        for (_, other) in others().filter(|(_, other)| is_piece(other)) {
            let (a, b) = (&lock.bounds, &other.bounds);
            let apart = if lock.ask.mode == other.ask.mode {
                a.end < b.start || b.end < a.start
            } else {
                a.end <= b.start || b.end <= a.start
            };
            assert!(apart, "{lock:?} and {other:?} should be one piece");
        }
    }

    fn check_waiting(&self, key: usize, lock: &Lock, blocker: usize) {
        let blocking = &self.locks[blocker];
        assert!(self.watched.contains(&(blocker, lock.number, key)));
        assert!(
            self.conflict(&lock.ask, &blocking.ask),
            "{lock:?} watches {blocking:?}, which is not in its way"
        );
        assert!(
            blocking.is_held() || blocking.number < lock.number,
            "{lock:?} waits behind a later one"
        );
        assert!(
            blocking.is_held()
                || self
                    .queued_before(lock)
                    .0
                    .iter()
                    .any(|other| other.number == blocking.number),
            "{lock:?} may pass {blocking:?}"
        );
    }

    fn insert_held(&mut self, mut ask: Ask, number: u64, now_ms: u64, token: Token) -> usize {
        let (who, bounds) = (ask.who, ask.footprint.bounds());
        ask.number = number;
        self.large += usize::from(ask.is_large());
        self.unnotified += usize::from(ask.recall);
        let state = LockState::Held { token, notified: false };
        let lock = Lock {
            ask,
            bounds: bounds.clone(),
            number,
            since_ms: now_ms,
            state,
        };
        let key = self.locks.insert(lock);
        self.held.insert(&bounds, number, key);
        self.by_owner.insert((who, key));
        key
    }

    fn of_owner(&self, who: Party) -> impl Iterator<Item = (usize, &Lock)> {
        let range = (who, 0)..=(who, usize::MAX);
        self.by_owner.range(range).map(|&(_, key)| (key, &self.locks[key]))
    }

    fn conflicting_held(&self, ask: &Ask) -> impl Iterator<Item = usize> {
        let held = self.held.overlapping(ask.footprint.bounds()).map(|(_, key)| key);
        held.filter(|&key| self.conflict(ask, &self.locks[key].ask))
    }
}

impl Lock {
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.state, LockState::Held { .. })
    }
}

/// Whether two locks may not be held together if they share a byte.
fn exclude(a: &Ask, b: &Ask) -> bool {
    a.mode.conflicts_with(b.mode) && !(a.posix && b.posix && a.who == b.who)
}

impl Table {
    /// Whether two locks may not be held together; their bounding boxes are known to overlap.
    fn conflict(&self, a: &Ask, b: &Ask) -> bool {
        exclude(a, b) && self.overlap(a, b)
    }

    /// Whether they share a byte: known, or compared now.
    fn overlap(&self, a: &Ask, b: &Ask) -> bool {
        let (younger, older) = match (a.number, b.number) {
            (0, _) => (a, b),
            (_, 0) => (b, a),
            (ours, theirs) if ours > theirs => (a, b),
            _ => (b, a),
        };
        let compare = || {
            let steps = a.footprint.overlap_cost(&b.footprint);
            self.compared.set(self.compared.get() + steps);
            a.footprint.overlaps(&b.footprint)
        };
        younger.known.of(older.number).unwrap_or_else(compare)
    }

    /// Whether comparing something with a lock here may take more than so many steps: it is long, or something here is.
    pub(crate) fn may_take_long(&self, footprint: &Footprint, steps: u64) -> bool {
        steps == 0 || self.large > 0 || is_large(footprint)
    }

    /// The locks that a request has to be compared with and that take more steps than so many.
    pub(crate) fn long_comparisons(&self, ask: &Ask, steps: u64) -> Vec<Comparison> {
        let bounds = ask.footprint.bounds();
        let near = self
            .held
            .overlapping(bounds.clone())
            .chain(self.waiting.overlapping(bounds));
        let others = near.map(|(number, key)| (number, &self.locks[key].ask));
        let long = others.filter(|(number, other)| {
            exclude(ask, other)
                && ask.known.of(*number).is_none()
                && ask.footprint.overlap_cost(&other.footprint) > steps
        });
        long.map(|(number, other)| Comparison {
            number,
            footprint: other.footprint.clone(),
        })
        .collect()
    }

    /// Steps of all comparisons so far, about.
    pub(crate) fn compared(&self) -> u64 {
        self.compared.get()
    }
}
