//! How long a session's locks live without a word from its client, on both sides.
//!
//! ```text
//!   client's clock   sends renew t0 ....... answered .......... stops using its locks at t0 + ttl - margin
//!   service's clock            hears it t1 ........................................... ends the session at t1 + ttl
//!                                                                          <--------- margin and more --------->
//! ```
//!
//! A client counts from when it *sent* the last renewal that was answered, and the service from when it *heard* it, which
//! is later. So the client stops first, by at least the margin, as long as its clock loses less than the margin on the
//! service's clock within one lease: [`margin_ms`] is an eighth of the lease, which allows for a clock that is 12 % slow,
//! or is set back by an eighth of a lease. Every other error is safe: a client's clock that runs fast or jumps ahead
//! makes it stop early; one that is seen to go back ends the lease at once; a service whose clock stops ends sessions
//! late. So a client reads a clock that goes on while the machine sleeps (`CLOCK_BOOTTIME`), and a service one that
//! need not (`CLOCK_MONOTONIC`). The margin is also what an I/O has that was begun just before the lease ended; one that
//! takes longer is what fencing tokens are for.
//!
//! *A lost connection ends nothing that is held.* Whoever cuts a connection in the middle makes both ends believe that
//! the other has gone, and the client goes on using its locks until its lease ends. So a service closes a session at
//! once only when its client said so or is known to be dead (the end of a Unix socket); otherwise it drops what the
//! session waits for (`Shard::disconnect`), and what it holds only when the lease is over.
//!
//! *After a restart* the service knows nobody, and somebody may hold anything, for one lease at most: the grace period
//! must be at least as long as the longest lease that the incarnation before it granted, which may be longer than its own.
//!
//! Not here: clocks (every call brings the time in milliseconds of a clock that does not go back), and what a session
//! holds (`shard`).
//!
//! Source: Gray and Cheriton, *Leases*, SOSP 1989, sections 2 and 5 (clocks).

use std::collections::{BTreeSet, HashMap, VecDeque};

use crate::message::SessionId;

/// The shortest lease that a service grants, milliseconds: a shorter one would be over before its client is scheduled again on a busy machine.
///
/// ```
/// assert!(elbow_lock::margin_ms(elbow_lock::LEASE_MS_MIN) > 10);
/// ```
pub const LEASE_MS_MIN: u32 = 100;

/// What a client stops earlier than the service, for a lease of `ttl_ms`.
///
/// ```
/// assert_eq!(elbow_lock::margin_ms(10_000), 1_250);
/// ```
#[must_use]
pub const fn margin_ms(ttl_ms: u32) -> u32 {
    ttl_ms.div_ceil(8)
}

/// The service's side: when each session ends.
///
/// ```
/// use elbow_lock::{Leases, SessionId};
///
/// let mut leases = Leases::new();
/// leases.open(1_000, SessionId(1), 500);
/// leases.open(1_100, SessionId(2), 500);
/// assert!(leases.renew(1_300, SessionId(1)));
/// assert_eq!(leases.deadline(), Some(1_600));
/// assert_eq!(leases.expired(1_600), [SessionId(2)]);
/// assert!(!leases.renew(1_601, SessionId(2))); // what has ended stays ended
/// ```
#[derive(Debug, Default)]
pub struct Leases {
    sessions: HashMap<SessionId, Lease>,
    by_end: BTreeSet<(u64, SessionId)>,
}

#[derive(Debug)]
struct Lease {
    ttl_ms: u32,
    end_ms: u64,
}

impl Leases {
    /// No session.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sessions that live.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether there is no session.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Begins a session that ends `ttl_ms` after the last word from its client.
    ///
    /// # Panics
    /// When the session has begun before.
    pub fn open(&mut self, now_ms: u64, session: SessionId, ttl_ms: u32) {
        let end_ms = now_ms.saturating_add(u64::from(ttl_ms));
        let before = self.sessions.insert(session, Lease { ttl_ms, end_ms });
        assert!(before.is_none(), "session {} was opened twice", session.0);
        self.by_end.insert((end_ms, session));
    }

    /// A word from a session's client. Returns false when the session has ended, or is overdue and about to end: then
    /// the client must not be answered as if it had been renewed.
    #[must_use]
    pub fn renew(&mut self, now_ms: u64, session: SessionId) -> bool {
        let Some(lease) = self.sessions.get_mut(&session).filter(|lease| now_ms < lease.end_ms) else {
            return false;
        };
        let end_ms = now_ms.saturating_add(u64::from(lease.ttl_ms)).max(lease.end_ms);
        if end_ms != lease.end_ms {
            self.by_end.remove(&(lease.end_ms, session));
            self.by_end.insert((end_ms, session));
            lease.end_ms = end_ms;
        }
        true
    }

    /// Ends a session before its time. False when it has ended.
    pub fn close(&mut self, session: SessionId) -> bool {
        let lease = self.sessions.remove(&session);
        lease.is_some_and(|lease| self.by_end.remove(&(lease.end_ms, session)))
    }

    /// Ends the sessions whose time is over, and says which.
    #[must_use]
    pub fn expired(&mut self, now_ms: u64) -> Vec<SessionId> {
        let mut ended = Vec::new();
        while let Some(&(end_ms, session)) = self.by_end.first()
            && end_ms <= now_ms
        {
            self.by_end.pop_first();
            self.sessions.remove(&session);
            ended.push(session);
        }
        ended
    }

    /// When the next session ends unless it is renewed.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        self.by_end.first().map(|&(end_ms, _)| end_ms)
    }
}

/// Renewals that may be unanswered at once; a service that answers none of these is not there.
const RENEWALS_MAX: usize = 16;

/// The client's side: whether its locks may still be used.
///
/// ```
/// use elbow_lock::ClientLease;
///
/// let mut lease = ClientLease::new(8_000, 100); // the hello was sent at 100 and has been answered
/// assert_eq!(lease.ends_at(), 100 + 8_000 - 1_000);
/// assert_eq!(lease.renew_at(), Some(100 + 2_000));
/// lease.sent(2_100, 1);
/// lease.answered(1);
/// assert!(lease.check(9_099));
/// assert!(!lease.check(9_100)); // sent at 2,100
/// lease.sent(9_200, 2);
/// lease.answered(2);
/// assert!(!lease.check(9_201)); // somebody was told that the locks are lost
/// ```
#[derive(Clone, Debug)]
pub struct ClientLease {
    ttl_ms: u32,
    end_ms: u64,
    /// When renewals that are not answered yet were sent, by number, oldest first.
    sent: VecDeque<(u64, u64)>,
    last_sent_ms: u64,
    last_seen_ms: u64,
    is_over: bool,
}

impl ClientLease {
    /// A lease that was granted in answer to what was sent at `sent_ms`.
    #[must_use]
    pub fn new(ttl_ms: u32, sent_ms: u64) -> Self {
        Self {
            ttl_ms,
            end_ms: lease_end(ttl_ms, sent_ms),
            sent: VecDeque::new(),
            last_sent_ms: sent_ms,
            last_seen_ms: sent_ms,
            is_over: false,
        }
    }

    /// Notes that renewal `seq` is about to be sent. Call it before sending.
    pub fn sent(&mut self, now_ms: u64, seq: u64) {
        self.see(now_ms);
        self.last_sent_ms = now_ms;
        self.sent.push_back((seq, now_ms));
        if self.sent.len() > RENEWALS_MAX {
            self.sent.pop_front();
        }
    }

    /// Notes that renewal `seq` was answered, and with it those before. Answers to others are ignored.
    pub fn answered(&mut self, seq: u64) {
        let Some(at) = self.sent.iter().position(|&(sent, _)| sent == seq) else {
            return;
        };
        if let Some((_, sent_ms)) = self.sent.drain(..=at).next_back() {
            self.end_ms = self.end_ms.max(lease_end(self.ttl_ms, sent_ms));
        }
    }

    /// Whether locks of this session may be used at `now_ms`. Once it has said no it always will: somebody has acted on it.
    #[must_use]
    pub fn check(&mut self, now_ms: u64) -> bool {
        self.see(now_ms);
        self.is_over |= now_ms >= self.end_ms;
        !self.is_over
    }

    /// Ends the lease: the service said that the session is lost, or was found to know nothing of it.
    pub fn end(&mut self) {
        self.is_over = true;
    }

    /// When to send the next renewal: a quarter of the lease after the last, so that two may get lost. None once it is
    /// over.
    #[must_use]
    pub fn renew_at(&self) -> Option<u64> {
        (!self.is_over).then(|| self.last_sent_ms.saturating_add(u64::from(self.ttl_ms / 4).max(1)))
    }

    /// When the lease ends unless a renewal is answered.
    #[must_use]
    pub fn ends_at(&self) -> u64 {
        self.end_ms
    }

    /// A clock that was set back cannot tell when the lease ends.
    fn see(&mut self, now_ms: u64) {
        self.is_over |= now_ms < self.last_seen_ms;
        self.last_seen_ms = self.last_seen_ms.max(now_ms);
    }
}

fn lease_end(ttl_ms: u32, sent_ms: u64) -> u64 {
    sent_ms.saturating_add(u64::from(ttl_ms - margin_ms(ttl_ms)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_goes_back_ends_the_lease() {
        let mut lease = ClientLease::new(1_000, 500);
        assert!(lease.check(700));
        assert!(!lease.check(699));
        assert!(!lease.check(701));
    }

    #[test]
    fn an_answer_extends_from_when_its_renewal_was_sent() {
        let mut lease = ClientLease::new(1_000, 0);
        lease.sent(100, 1);
        lease.sent(200, 2);
        lease.answered(7); // never sent
        assert_eq!(lease.ends_at(), 875);
        lease.answered(2);
        assert_eq!(lease.ends_at(), 1_075);
        lease.answered(1); // was answered with the one after it
        assert_eq!(lease.ends_at(), 1_075);
    }

    #[test]
    fn unanswered_renewals_are_bounded() {
        let mut lease = ClientLease::new(1_000, 0);
        (0..100).for_each(|seq| lease.sent(seq, seq));
        assert_eq!(lease.sent.len(), RENEWALS_MAX);
    }

    #[test]
    fn a_renewal_that_comes_when_the_lease_is_over_renews_nothing() {
        let mut leases = Leases::new();
        leases.open(0, SessionId(1), 100);
        assert!(!leases.renew(100, SessionId(1)));
        assert_eq!(leases.expired(100), [SessionId(1)]);
        assert!(leases.is_empty());
        assert_eq!(leases.deadline(), None);
    }

    #[test]
    fn a_closed_session_does_not_expire() {
        let mut leases = Leases::new();
        leases.open(0, SessionId(1), 100);
        assert!(leases.close(SessionId(1)));
        assert!(!leases.close(SessionId(1)));
        assert!(leases.expired(1_000).is_empty());
    }

    #[test]
    fn a_lease_at_the_end_of_time_does_not_overflow() {
        let mut leases = Leases::new();
        leases.open(u64::MAX - 5, SessionId(1), u32::MAX);
        assert!(leases.renew(u64::MAX - 3, SessionId(1)));
        assert_eq!(leases.deadline(), Some(u64::MAX));
        assert!(ClientLease::new(u32::MAX, u64::MAX - 5).check(u64::MAX - 4));
    }
}
