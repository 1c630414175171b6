//! What all connections of a service share: the shards, the sessions and their leases.
//!
//! ```text
//!   connection ---- request ----> shard of the file (locked) ---- replies ----> outboxes, its own or others'
//!   timer      ---- tick ------->   "
//! ```
//!
//! A connection's task applies its requests to the shard itself. A task per shard would own it more clearly, but the
//! hop to it and back costs several times what a grant costs; a lock around the shard is held for about a microsecond.
//!
//! Invariants: the replies of a shard's step are in the outboxes before the shard is unlocked, so that each session
//! sees them in the order in which they were decided. Several shards are only ever locked in ascending order.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::sync::Notify;

use super::outbox::Outbox;
use crate::deadlock;
use crate::lease::Leases;
use crate::message::{FileName, Owner, Request, SessionId};
use crate::shard::{Action, Limits, Shard};

/// No deadline.
const NEVER: u64 = u64::MAX;

/// A running service without its sockets.
#[derive(Debug)]
pub(super) struct Service {
    shards: Vec<Mutex<Shard>>,
    sessions: RwLock<HashMap<SessionId, Arc<Member>>>,
    leases: Mutex<Leases>,
    began: Instant,
    last_session: AtomicU64,
    pub(super) epoch: u32,
    /// When new locks are granted again after a restart, ms.
    grace_until_ms: u64,
    /// The earliest deadline that the timer sleeps for, ms.
    armed: AtomicU64,
    pub(super) rearm: Notify,
    draining: AtomicBool,
    pub(super) counters: Counters,
}

/// A session that is open.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) id: SessionId,
    /// For people.
    pub(super) name: String,
    pub(super) opened_ms: u64,
    pub(super) outbox: Outbox,
}

/// What has happened since the service began.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) connections: AtomicU64,
    pub(super) turned_away: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) leases_lost: AtomicU64,
}

/// Where in the service something is: the number of its shard.
pub(super) type Place = usize;

impl Service {
    pub(super) fn new(shards: usize, epoch: u32, grace_ms: u64, limits: &Limits) -> Self {
        Self {
            shards: (0..shards)
                .map(|_| Mutex::new(Shard::new(epoch, grace_ms, limits.clone())))
                .collect(),
            sessions: RwLock::default(),
            leases: Mutex::new(Leases::new()),
            began: Instant::now(),
            last_session: AtomicU64::new(0),
            epoch,
            grace_until_ms: grace_ms,
            armed: AtomicU64::new(NEVER),
            rearm: Notify::new(),
            draining: AtomicBool::new(false),
            counters: Counters::default(),
        }
    }

    /// Milliseconds since the service began.
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// For how much longer only holders from before a restart are let in.
    pub(super) fn grace_left_ms(&self) -> u32 {
        u32::try_from(self.grace_until_ms.saturating_sub(self.now_ms())).unwrap_or(u32::MAX)
    }

    /// Opens a session that lives for `ttl_ms` after each renewal; 0: until it is closed.
    pub(super) fn open(&self, name: String, ttl_ms: u32) -> Arc<Member> {
        let id = SessionId(self.last_session.fetch_add(1, Ordering::Relaxed) + 1);
        let now = self.now_ms();
        let member = Arc::new(Member {
            id,
            name,
            opened_ms: now,
            outbox: Outbox::default(),
        });
        if ttl_ms > 0 {
            let mut leases = self.leases.lock();
            leases.open(now, id, ttl_ms);
            let deadline = leases.deadline();
            drop(leases);
            self.arm(deadline);
        }
        self.sessions.write().insert(id, Arc::clone(&member));
        self.shards.iter().for_each(|shard| shard.lock().open(id));
        member
    }

    /// A connection has ended, and nobody knows whether its client has: what it waits for is taken back, what it holds
    /// stays until its lease is over.
    pub(super) fn disconnect(&self, member: &Member) {
        let now = self.now_ms();
        for shard in &self.shards {
            self.step(shard, None, |shard, actions| shard.disconnect(now, member.id, actions));
        }
    }

    /// Ends a session: its locks are free, its requests are gone.
    pub(super) fn close(&self, member: &Member) {
        self.leases.lock().close(member.id);
        let now = self.now_ms();
        for shard in &self.shards {
            self.step(shard, None, |shard, actions| shard.close(now, member.id, actions));
        }
        self.sessions.write().remove(&member.id);
    }

    /// The shard that has a file's locks.
    pub(super) fn place_of(&self, file: &FileName) -> Place {
        let mut hasher = DefaultHasher::new();
        file.hash(&mut hasher);
        (hasher.finish() % self.shards.len() as u64) as Place
    }

    /// All shards, for requests that name no file.
    pub(super) fn places(&self) -> std::ops::Range<Place> {
        0..self.shards.len()
    }

    /// The session has given a sign of life.
    pub(super) fn renew(&self, session: SessionId) -> bool {
        self.leases.lock().renew(self.now_ms(), session)
    }

    /// Applies a request.
    pub(super) fn apply(&self, member: &Member, place: Place, request: Request) {
        self.counters.requests.fetch_add(1, Ordering::Relaxed);
        let now = self.now_ms();
        let queued = self.step(&self.shards[place], Some(member), |shard, actions| {
            shard.handle(now, member.id, request, actions);
        });
        for owner in queued {
            self.break_deadlocks(member.id, owner);
        }
    }

    /// Does what is due, and returns when the next thing is, ms.
    pub(super) fn tick(&self) -> Option<u64> {
        self.armed.store(NEVER, Ordering::Release);
        let now = self.now_ms();
        let expired = self.leases.lock().expired(now);
        for session in expired {
            self.counters.leases_lost.fetch_add(1, Ordering::Relaxed);
            let member = self.sessions.read().get(&session).cloned();
            if let Some(member) = member {
                // Its locks go now, whatever its connection does.
                self.close(&member);
                member
                    .outbox
                    .end("nothing was heard from this client for longer than its lease");
            }
        }
        for shard in &self.shards {
            self.step(shard, None, |shard, actions| shard.tick(now, actions));
        }
        let next = self.shards.iter().filter_map(|shard| shard.lock().deadline());
        let next = next.chain(self.leases.lock().deadline()).min();
        self.armed.fetch_min(next.unwrap_or(NEVER), Ordering::AcqRel);
        next
    }

    /// Whether it is about to end.
    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// From now on nothing new is granted.
    pub(super) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        let now = self.now_ms();
        for shard in &self.shards {
            self.step(shard, None, |shard, actions| shard.drain(now, actions));
        }
    }

    /// Ends all sessions with these last words.
    pub(super) fn end_all(&self, why: &str) {
        for member in self.members() {
            member.outbox.end(why);
        }
    }

    /// The sessions that are open, oldest first.
    pub(super) fn members(&self) -> Vec<Arc<Member>> {
        let mut members: Vec<_> = self.sessions.read().values().cloned().collect();
        members.sort_by_key(|member| member.id);
        members
    }

    /// What each shard holds.
    pub(super) fn each_shard<T>(&self, look: impl Fn(&Shard) -> T) -> Vec<T> {
        self.shards.iter().map(|shard| look(&shard.lock())).collect()
    }

    /// Whether nobody holds anything.
    pub(super) fn is_idle(&self) -> bool {
        self.each_shard(Shard::is_idle).into_iter().all(|idle| idle)
    }

    /// Does something to a shard, delivers what follows from it, and returns whose requests were queued.
    fn step(
        &self,
        shard: &Mutex<Shard>,
        own: Option<&Member>,
        act: impl FnOnce(&mut Shard, &mut Vec<Action>),
    ) -> Vec<Owner> {
        let mut actions = Vec::new();
        let mut shard = shard.lock();
        act(&mut shard, &mut actions);
        let queued = self.deliver(own, actions);
        let deadline = shard.deadline();
        drop(shard);
        self.arm(deadline);
        queued
    }

    fn deliver(&self, own: Option<&Member>, actions: Vec<Action>) -> Vec<Owner> {
        let mut queued = Vec::new();
        for action in actions {
            match (action, own) {
                (Action::Queued { owner, .. }, _) => queued.push(owner),
                (Action::Reply(session, reply), Some(own)) if own.id == session => own.outbox.push(&reply, true),
                (Action::Reply(session, reply), _) => {
                    if let Some(member) = self.sessions.read().get(&session) {
                        member.outbox.push(&reply, false);
                    }
                }
            }
        }
        queued
    }

    /// Sees to it that the timer wakes at `deadline`.
    fn arm(&self, deadline: Option<u64>) {
        let deadline = deadline.unwrap_or(NEVER);
        if self.armed.fetch_min(deadline, Ordering::AcqRel) > deadline {
            self.rearm.notify_one();
        }
    }

    /// Looks for requests that wait for each other, over all shards at one instant, now that `owner` waits.
    fn break_deadlocks(&self, session: SessionId, owner: Owner) {
        let mut shards: Vec<MutexGuard<'_, Shard>> = self.shards.iter().map(Mutex::lock).collect();
        let mut shards: Vec<&mut Shard> = shards.iter_mut().map(|shard| &mut **shard).collect();
        let mut actions = Vec::new();
        deadlock::resolve_after(self.now_ms(), session, owner, &mut shards, &mut actions);
        self.deliver(None, actions);
    }
}
