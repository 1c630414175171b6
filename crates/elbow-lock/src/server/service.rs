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
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ahash::{AHashMap, RandomState};
use parking_lot::{Mutex, MutexGuard, RwLock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::Notify;

use super::connection::Desk;
use super::outbox::Outbox;
use super::status;
use crate::deadlock;
use crate::hello::{PROTOCOL_VERSION, Proof, Welcome};
use crate::lease::Leases;
use crate::message::{FileName, LockId, Owner, Refusal, Reply, Request, SessionId};
use crate::shard::{Action, Limits, Shard};

/// No deadline.
const NEVER: u64 = u64::MAX;

/// A running service without its sockets.
#[derive(Debug)]
pub(crate) struct Service {
    shards: Vec<Mutex<Shard>>,
    /// Of the names of files, over the shards.
    hasher: RandomState,
    sessions: RwLock<HashMap<SessionId, Arc<Member>>>,
    leases: Mutex<Leases>,
    began: Instant,
    last_session: AtomicU64,
    pub(crate) epoch: u32,
    /// Longest lease, and grace period after a crash.
    ttl_ms_max: u32,
    /// When new locks are granted again after a restart, ms; not before `grants`.
    grace_until_ms: AtomicU64,
    /// The grace period may end.
    grants: AtomicBool,
    /// The earliest deadline that the timer sleeps for, ms.
    armed: AtomicU64,
    pub(crate) rearm: Notify,
    draining: AtomicBool,
    pub(crate) counters: Counters,
}

/// A session that is open.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) id: SessionId,
    /// For people.
    pub(crate) name: String,
    pub(crate) opened_ms: u64,
    pub(crate) outbox: Outbox,
    /// In which shard a lock is, for requests that name only the lock.
    places: Mutex<AHashMap<LockId, Place>>,
    /// Whether it ends when nothing is heard of it.
    pub(crate) has_lease: bool,
    /// It ends with this connection.
    socket: OnceLock<OwnedFd>,
}

impl Member {
    pub(crate) fn new(id: SessionId, name: String, opened_ms: u64, has_lease: bool) -> Arc<Self> {
        let (outbox, places) = (Outbox::default(), Mutex::default());
        Arc::new(Self {
            id,
            name,
            opened_ms,
            outbox,
            places,
            has_lease,
            socket: OnceLock::new(),
        })
    }

    /// Its locks are no more when the other end of this is closed.
    pub(crate) fn ends_with(&self, socket: OwnedFd) {
        // A session has one connection.
        let _ = self.socket.set(socket);
    }

    /// Has its process closed the connection, or died? Whoever serves it may not have seen that yet.
    fn has_gone(&self) -> bool {
        self.socket.get().is_some_and(|socket| {
            let mut polled = [PollFd::new(socket, PollFlags::empty())];
            poll(&mut polled, Some(&Timespec::default())).is_ok() && polled[0].revents().contains(PollFlags::HUP)
        })
    }
}

/// How long holders from before are let in again, and those of which lives.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Grace {
    pub(crate) ms: u64,
    pub(crate) since: u32,
}

/// What has happened since the service began.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connections: AtomicU64,
    pub(crate) turned_away: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) leases_lost: AtomicU64,
}

/// Where in the service something is: the number of its shard.
type Place = usize;

impl Service {
    pub(crate) fn new(shards: usize, epoch: u32, grace: Grace, ttl_ms_max: u32, limits: &Limits) -> Self {
        let Grace { ms: grace_ms, since } = grace;
        let shard = || Shard::new(epoch, grace_ms, limits.clone()).held_since(since);
        Self {
            shards: (0..shards).map(|_| Mutex::new(shard())).collect(),
            hasher: RandomState::new(),
            sessions: RwLock::default(),
            leases: Mutex::new(Leases::new()),
            began: Instant::now(),
            last_session: AtomicU64::new(0),
            epoch,
            ttl_ms_max,
            grace_until_ms: AtomicU64::new(grace_ms),
            grants: AtomicBool::new(grace_ms == 0),
            armed: AtomicU64::new(NEVER),
            rearm: Notify::new(),
            draining: AtomicBool::new(false),
            counters: Counters::default(),
        }
    }

    /// Milliseconds since the service began.
    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The grace period may end, and something new be granted.
    pub(crate) fn may_grant(&self) {
        self.grants.store(true, Ordering::Release);
    }

    /// Nothing new is granted for some more time.
    pub(crate) fn stay_in_grace(&self, time: Duration) {
        let until_ms = self.now_ms() + u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.grace_until_ms.store(until_ms, Ordering::Release);
    }

    /// For how much longer only holders from before a restart are let in.
    pub(crate) fn grace_left_ms(&self) -> u32 {
        let until_ms = self.grace_until_ms.load(Ordering::Acquire);
        u32::try_from(until_ms.saturating_sub(self.now_ms())).unwrap_or(u32::MAX)
    }

    /// Does what is due, and returns when the next thing is, ms.
    pub(crate) fn tick(&self) -> Option<u64> {
        self.armed.store(NEVER, Ordering::Release);
        let now = self.now_ms();
        // It may have ended between the last look and now.
        let grace_until_ms = match self.grants.load(Ordering::Acquire) {
            true => 0,
            false => self.grace_until_ms.load(Ordering::Acquire).max(now + 1),
        };
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
        let mut of_shards = Vec::new();
        let mut somebody_queued = false;
        for shard in &self.shards {
            let (queued, deadline) = self.step_in_time(shard, None, |shard, actions| {
                shard.stay_in_grace(grace_until_ms);
                shard.tick(now, actions);
            });
            of_shards.extend(deadline);
            somebody_queued |= !queued.is_empty();
        }
        if somebody_queued {
            // The grace period is over: what was held again and what was asked meanwhile may wait for each other.
            self.in_all_shards(|shards, actions| deadlock::resolve(now, shards, actions));
        }
        let next = of_shards
            .into_iter()
            .min()
            .into_iter()
            .chain(self.leases.lock().deadline())
            .min();
        self.armed.fetch_min(next.unwrap_or(NEVER), Ordering::AcqRel);
        next
    }

    /// Whether it is about to end.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// From now on nothing new is granted.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        let now = self.now_ms();
        for shard in &self.shards {
            self.step(shard, None, |shard, actions| shard.drain(now, actions));
        }
    }

    /// Ends all sessions with these last words.
    pub(crate) fn end_all(&self, why: &str) {
        for member in self.members() {
            member.outbox.end(why);
        }
    }

    /// The sessions that are open, oldest first.
    pub(crate) fn members(&self) -> Vec<Arc<Member>> {
        let mut members: Vec<_> = self.sessions.read().values().cloned().collect();
        members.sort_by_key(|member| member.id);
        members
    }

    /// What each shard holds.
    pub(crate) fn each_shard<T>(&self, look: impl Fn(&Shard) -> T) -> Vec<T> {
        self.shards.iter().map(|shard| look(&shard.lock())).collect()
    }

    /// Whether nobody holds anything.
    pub(crate) fn is_idle(&self) -> bool {
        self.each_shard(Shard::is_idle).into_iter().all(|idle| idle)
    }

    /// The shard that has a file's locks.
    fn place_of(&self, file: &FileName) -> Place {
        (self.hasher.hash_one(file) % self.shards.len() as u64) as Place
    }

    fn apply_at(&self, place: Place, member: &Member, request: Request) {
        let now = self.now_ms();
        let queued = self.step(&self.shards[place], Some(member), |shard, actions| {
            shard.handle(now, member.id, request, actions);
        });
        for owner in queued {
            self.break_deadlocks(member.id, owner);
        }
    }

    /// Ends the sessions of processes that are gone and are in the way of what would be refused at once: to who has waited for the end of a
    /// process (waitpid(2)) its locks are free.
    fn bury(&self, place: Place, member: &Member, request: &Request) {
        loop {
            let in_the_way = self.shards[place].lock().in_the_way(member.id, request);
            let found = in_the_way.and_then(|session| self.sessions.read().get(&session).cloned());
            match found.filter(|other| other.id != member.id && other.has_gone()) {
                Some(gone) => self.close(&gone),
                None => return,
            }
        }
    }

    fn apply_everywhere(&self, member: &Member, request: &Request) {
        (0..self.shards.len()).for_each(|place| self.apply_at(place, member, request.clone()));
    }

    /// Does something to a shard, delivers what follows from it, and returns whose requests were queued.
    fn step(
        &self,
        shard: &Mutex<Shard>,
        own: Option<&Member>,
        act: impl FnOnce(&mut Shard, &mut Vec<Action>),
    ) -> Vec<Owner> {
        let (queued, deadline) = self.step_in_time(shard, own, act);
        self.arm(deadline);
        queued
    }

    /// As `step`, by the timer itself, which needs no waking: it is given the shard's next deadline.
    fn step_in_time(
        &self,
        shard: &Mutex<Shard>,
        own: Option<&Member>,
        act: impl FnOnce(&mut Shard, &mut Vec<Action>),
    ) -> (Vec<Owner>, Option<u64>) {
        let mut actions = Vec::new();
        let mut shard = shard.lock();
        act(&mut shard, &mut actions);
        (self.deliver(own, actions), shard.deadline())
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

    /// Looks for requests that wait for each other, now that `owner` waits.
    fn break_deadlocks(&self, session: SessionId, owner: Owner) {
        let now = self.now_ms();
        self.in_all_shards(|shards, actions| deadlock::resolve_after(now, session, owner, shards, actions));
    }

    /// Does something that must see all shards at one instant.
    fn in_all_shards(&self, act: impl FnOnce(&mut [&mut Shard], &mut Vec<Action>) -> usize) {
        let mut shards: Vec<MutexGuard<'_, Shard>> = self.shards.iter().map(Mutex::lock).collect();
        let mut shards: Vec<&mut Shard> = shards.iter_mut().map(|shard| &mut **shard).collect();
        let mut actions = Vec::new();
        act(&mut shards, &mut actions);
        self.deliver(None, actions);
    }
}

impl Desk for Service {
    fn open(&self, name: String, ttl_ms: u32, is_local: bool) -> Result<(Arc<Member>, Welcome), String> {
        let id = SessionId(self.last_session.fetch_add(1, Ordering::Relaxed) + 1);
        let now = self.now_ms();
        let ttl_ms = match ttl_ms {
            0 if !is_local => self.ttl_ms_max,
            asked => asked.min(self.ttl_ms_max),
        };
        let member = Member::new(id, name, now, ttl_ms > 0);
        if ttl_ms > 0 {
            let mut leases = self.leases.lock();
            leases.open(now, id, ttl_ms);
            let deadline = leases.deadline();
            drop(leases);
            self.arm(deadline);
        }
        self.sessions.write().insert(id, Arc::clone(&member));
        self.shards.iter().for_each(|shard| shard.lock().open(id));
        self.counters.connections.fetch_add(1, Ordering::Relaxed);
        let welcome = Welcome {
            version: PROTOCOL_VERSION,
            session: id,
            ttl_ms,
            epoch: self.epoch,
            grace_ms: self.grace_left_ms(),
            grace_ms_max: self.ttl_ms_max,
            proof: Proof::default(),
        };
        Ok((member, welcome))
    }

    fn apply(&self, member: &Member, request: Request) {
        self.counters.requests.fetch_add(1, Ordering::Relaxed);
        match &request {
            Request::Lock { id, file, .. } | Request::Reassert { id, file, .. } => {
                let place = self.place_of(file);
                let there = *member.places.lock().entry(*id).or_insert(place);
                if there == place {
                    self.bury(place, member, &request);
                    self.apply_at(place, member, request); // A shard finds its own duplicates.
                } else {
                    let (id, why) = (*id, Refusal::Duplicate);
                    member.outbox.push(&Reply::Refused { id, why }, true);
                }
            }
            Request::Posix { file, .. }
            | Request::Query { file, .. }
            | Request::PosixRelease { file: Some(file), .. } => {
                let place = self.place_of(file);
                self.bury(place, member, &request);
                self.apply_at(place, member, request);
            }
            Request::Unlock { id } | Request::Cancel { id } => {
                let place = member.places.lock().remove(id);
                match (place, &request) {
                    (Some(place), _) => self.apply_at(place, member, request),
                    // The place of a POSIX request is not kept: one that waits is seldom cancelled.
                    (None, Request::Cancel { .. }) => self.apply_everywhere(member, &request),
                    (None, _) => {}
                }
            }
            Request::PosixRelease { file: None, .. } => self.apply_everywhere(member, &request),
            Request::Renew { seq } => {
                if !member.has_lease || self.leases.lock().renew(self.now_ms(), member.id) {
                    member.outbox.push(&Reply::Renewed { seq: *seq }, true);
                }
            }
            Request::Status { seq } => {
                let json = status::report(self).to_string();
                member.outbox.push(&Reply::Status { seq: *seq, json }, true);
            }
            Request::Close => {}
        }
    }

    fn forget(&self, member: &Member, refused: &[LockId]) {
        if !refused.is_empty() {
            let mut places = member.places.lock();
            for id in refused {
                places.remove(id);
            }
        }
    }

    fn close(&self, member: &Member) {
        self.leases.lock().close(member.id);
        let now = self.now_ms();
        for shard in &self.shards {
            self.step(shard, None, |shard, actions| shard.close(now, member.id, actions));
        }
        self.sessions.write().remove(&member.id);
    }

    /// What the client waits for is taken back; what it holds stays until its lease is over.
    fn disconnect(&self, member: &Member) {
        let now = self.now_ms();
        for shard in &self.shards {
            self.step(shard, None, |shard, actions| shard.disconnect(now, member.id, actions));
        }
    }

    fn turned_away(&self) {
        self.counters.turned_away.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use elbow_ranges::Footprint;

    use super::*;
    use crate::message::{Kind, Wait};
    use crate::server::outbox::Unsent;
    use crate::wire;

    fn lock(id: u64, file: &[u8]) -> Request {
        Request::Lock {
            id: LockId(id),
            owner: Owner(id),
            file: FileName::new(file).unwrap(),
            kind: Kind::Exclusive,
            footprint: Footprint::extent(0..10).unwrap(),
            wait: Wait::Forever,
            recall: false,
        }
    }

    fn sent(service: &Service, member: &Member) -> Vec<Reply> {
        let unsent = member.outbox.take(Unsent::default());
        service.forget(member, &unsent.refused);
        let mut bytes = &unsent.bytes[..];
        let mut replies = Vec::new();
        while let Ok(Some(length)) = wire::frame_length(bytes) {
            replies.push(wire::decode_reply(&bytes[wire::LENGTH_BYTES..length]).unwrap());
            bytes = &bytes[length..];
        }
        replies
    }

    /// A cancellation of what had been granted once left the lock's place behind, for as long as the session lived.
    #[test]
    fn what_was_cancelled_leaves_no_place_behind() {
        let service = Service::new(2, 1, Grace::default(), 10_000, &Limits::default());
        let (member, _) = service.open("test".to_owned(), 0, true).unwrap();
        for order in [[1, 2, 3], [3, 2, 1]] {
            (1..=3).for_each(|id| service.apply(&member, lock(id, b"/f")));
            assert_eq!(member.places.lock().len(), 3);
            order
                .into_iter()
                .for_each(|id| service.apply(&member, Request::Cancel { id: LockId(id) }));
            assert!(!sent(&service, &member).is_empty());
            assert!(member.places.lock().is_empty() && service.is_idle());
        }
    }

    /// The number of a lock that is held names that lock, whatever file it is used for again.
    #[test]
    fn a_number_that_is_in_use_is_refused_on_any_file() {
        let service = Service::new(8, 1, Grace::default(), 10_000, &Limits::default());
        let (member, _) = service.open("test".to_owned(), 0, true).unwrap();
        service.apply(&member, lock(1, b"/f"));
        assert!(matches!(sent(&service, &member)[..], [Reply::Granted { .. }]));
        for number in 0..50 {
            let file = if number == 0 {
                "/f".to_owned()
            } else {
                format!("/f{number}")
            };
            service.apply(&member, lock(1, file.as_bytes()));
            let why = Refusal::Duplicate;
            assert_eq!(
                sent(&service, &member),
                [Reply::Refused { id: LockId(1), why }],
                "{file}"
            );
        }
        service.apply(&member, Request::Unlock { id: LockId(1) });
        assert!(service.is_idle() && member.places.lock().is_empty());
    }
}
