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
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ahash::RandomState;
use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::sync::{Notify, Semaphore};
use tracing::{debug, info, warn};

use super::handler::RequestHandler;
use super::listen::Peer;
use super::long_comparison::{LongComparison, STEPS_LOCKED_MAX};
use super::request_trace;
use super::session::{ServerSession, ShardIndex};
use crate::deadlock;
use crate::hello::{PROTOCOL_NEWEST, UpstreamSilent, Welcome};
use crate::lease::{LEASE_MS_MIN, Leases};
use crate::memory::Memory;
use crate::message::{
    FileName, LockId, LockRequest, PosixRequest, QueryRequest, ReassertRequest, Refusal, Reply, Request, SessionId,
};
use crate::shard::{Action, Limits, Shard};
use crate::table::KnownOverlaps;

/// No deadline.
const NEVER: u64 = u64::MAX;
/// So much has to be freed until it is given back to the system: that takes time.
const FREED_BYTES: usize = 16 << 20;

/// A running service without its sockets.
#[derive(Debug)]
pub(crate) struct Service {
    limits: Limits,
    pub(super) memory: Memory,
    /// The most that was taken since freed memory was given back to the system last.
    taken_max: AtomicUsize,
    /// Of requests that take long to compare: half of the processors at most.
    turns: Arc<Semaphore>,
    pub(super) shards: Vec<Mutex<Shard>>,
    /// Of the names of files, over the shards.
    hasher: RandomState,
    sessions: RwLock<HashMap<SessionId, Arc<ServerSession>>>,
    leases: Mutex<Leases>,
    began: Instant,
    last_session: AtomicU64,
    pub(crate) epoch: u32,
    /// Longest lease, and shortest grace period after a crash.
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
    /// Is told what whoever runs it should know.
    warn: fn(&str),
}

/// How long holders from before are let in again, and from which epoch on.
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

impl Service {
    pub(crate) fn new(shards: usize, epoch: u32, grace: Grace, ttl_ms_max: u32, limits: &Limits) -> Self {
        let Grace { ms: grace_ms, since } = grace;
        let memory = Memory::new(limits.memory_bytes);
        let shard = || {
            let shard = Shard::new(epoch, grace_ms, limits.clone()).held_since(since);
            shard.within(memory.clone())
        };
        Self {
            limits: limits.clone(),
            taken_max: AtomicUsize::new(0),
            turns: Arc::new(Semaphore::new((shards / 2).max(1))),
            shards: (0..shards).map(|_| Mutex::new(shard())).collect(),
            memory,
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
            warn: |_| {},
        }
    }

    /// Tells `warn` what whoever runs it should know.
    pub(crate) fn with_warnings(self, warn: fn(&str)) -> Self {
        Self { warn, ..self }
    }

    pub(super) fn warn(&self, what: &str) {
        (self.warn)(what);
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
            warn!(session = session.0, "its lease is over");
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
        let mut is_suspect = false;
        for shard in &self.shards {
            let (suspects, deadline) = self.step_in_time(shard, None, |shard, actions| {
                shard.stay_in_grace(grace_until_ms);
                shard.tick(now, actions);
            });
            of_shards.extend(deadline);
            is_suspect |= !suspects.is_empty();
        }
        if is_suspect {
            // The grace period is over, or somebody's time was up: who waits now may wait for each other.
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

    /// Whether so much has been freed since the last time that it is worth while to give it back to the system.
    pub(crate) fn has_freed_much(&self) -> bool {
        let used = self.memory.used_bytes();
        let most = self.taken_max.fetch_max(used, Ordering::Relaxed);
        let is_much = most.saturating_sub(used) > FREED_BYTES;
        if is_much {
            self.taken_max.store(used, Ordering::Relaxed);
        }
        is_much
    }

    /// Whether it is about to end.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// From now on nothing new is granted.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        info!("nothing new is granted any more");
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
    pub(crate) fn members(&self) -> Vec<Arc<ServerSession>> {
        let mut members: Vec<_> = self.sessions.read().values().cloned().collect();
        members.sort_by_key(|member| member.id);
        members
    }

    /// A session that is open.
    pub(super) fn member(&self, session: SessionId) -> Option<Arc<ServerSession>> {
        self.sessions.read().get(&session).cloned()
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
    pub(super) fn place_of(&self, file: &FileName) -> ShardIndex {
        (self.hasher.hash_one(file) % self.shards.len() as u64) as ShardIndex
    }

    fn apply_at(&self, place: ShardIndex, member: &ServerSession, request: Request) {
        let now = self.now_ms();
        let suspects = self.step(&self.shards[place], Some(member), |shard, actions| {
            shard.handle(now, member.id, request, actions);
        });
        self.break_deadlocks(&suspects);
    }

    /// As `apply_at`, for a list lock; nothing is done but to say what has to be compared first, if that takes long.
    fn lock_at(
        &self,
        place: ShardIndex,
        member: &ServerSession,
        request: Request,
        known: KnownOverlaps,
    ) -> Option<Box<LongComparison>> {
        let now = self.now_ms();
        let mut shard = self.shards[place].lock();
        let comparisons = shard.long_comparisons(member.id, &request, &known, STEPS_LOCKED_MAX);
        if !comparisons.is_empty() {
            let turns = Arc::clone(&self.turns);
            return Some(Box::new(LongComparison {
                request,
                known,
                comparisons,
                turns,
            }));
        }
        let mut actions = Vec::new();
        shard.handle_with_overlaps(now, member.id, request, known, &mut actions);
        if let [
            Action::Reply(
                _,
                Reply::Refused {
                    id,
                    why: Refusal::Duplicate,
                },
            ),
        ] = actions[..]
            && shard.is_of_posix(member.id, id)
        {
            member.forget(&[id]); // The place that was noted is that of no list lock.
        }
        let (suspects, deadline) = self.end_step(&shard, Some(member), actions);
        drop(shard); // A search for a deadlock locks all of them.
        self.arm(deadline);
        self.break_deadlocks(&suspects);
        None
    }

    /// Ends the sessions of processes that are gone and are in the way of what would be refused at once: to who has waited for the end of a
    /// process (waitpid(2)) its locks are free.
    fn end_dead(&self, place: ShardIndex, member: &ServerSession, request: &Request, known: &KnownOverlaps) {
        if !request.is_answered_at_once() {
            return; // It waits for them.
        }
        loop {
            let in_the_way = self.in_the_way(place, member, request, known);
            let found = in_the_way.and_then(|session| self.sessions.read().get(&session).cloned());
            match found.filter(|other| other.id != member.id && other.is_closed_by_client()) {
                Some(gone) => self.close(&gone),
                None => return,
            }
        }
    }

    /// Whose lock keeps a request back that is not to wait; nobody's yet where that takes long to say.
    fn in_the_way(
        &self,
        place: ShardIndex,
        member: &ServerSession,
        request: &Request,
        known: &KnownOverlaps,
    ) -> Option<SessionId> {
        let shard = self.shards[place].lock();
        match &shard.long_comparisons(member.id, request, known, STEPS_LOCKED_MAX)[..] {
            [] => shard.in_the_way(member.id, request, known),
            _ => None,
        }
    }

    fn apply_everywhere(&self, member: &ServerSession, request: &Request) {
        (0..self.shards.len()).for_each(|place| self.apply_at(place, member, request.clone()));
    }

    /// Does something to a shard, delivers what follows from it, and returns who may have closed a circle.
    fn step(
        &self,
        shard: &Mutex<Shard>,
        own: Option<&ServerSession>,
        act: impl FnOnce(&mut Shard, &mut Vec<Action>),
    ) -> Vec<Action> {
        let (suspects, deadline) = self.step_in_time(shard, own, act);
        self.arm(deadline);
        suspects
    }

    /// As `step`, by the timer itself, which needs no waking: it is given the shard's next deadline.
    fn step_in_time(
        &self,
        shard: &Mutex<Shard>,
        own: Option<&ServerSession>,
        act: impl FnOnce(&mut Shard, &mut Vec<Action>),
    ) -> (Vec<Action>, Option<u64>) {
        let mut actions = Vec::new();
        let mut shard = shard.lock();
        act(&mut shard, &mut actions);
        self.end_step(&shard, own, actions)
    }

    /// Delivers what follows from a step, before the shard is unlocked.
    fn end_step(&self, shard: &Shard, own: Option<&ServerSession>, actions: Vec<Action>) -> (Vec<Action>, Option<u64>) {
        (self.deliver(own, actions), shard.deadline())
    }

    fn deliver(&self, own: Option<&ServerSession>, actions: Vec<Action>) -> Vec<Action> {
        let mut suspects = Vec::new();
        for action in actions {
            match &action {
                Action::Reply(session, reply) => request_trace::reply(*session, reply),
                Action::Queued { session, id, .. } => debug!(session = session.0, ?id, "waits"),
                Action::Suspect => {}
            }
            match (action, own) {
                (suspect @ (Action::Queued { .. } | Action::Suspect), _) => suspects.push(suspect),
                (Action::Reply(session, reply), Some(own)) if own.id == session => own.outbox.push(&reply, true),
                (Action::Reply(session, reply), _) => {
                    if let Some(member) = self.sessions.read().get(&session) {
                        member.outbox.push(&reply, false);
                    }
                }
            }
        }
        suspects
    }

    /// Sees to it that the timer wakes at `deadline`.
    fn arm(&self, deadline: Option<u64>) {
        let deadline = deadline.unwrap_or(NEVER);
        if self.armed.fetch_min(deadline, Ordering::AcqRel) > deadline {
            self.rearm.notify_one();
        }
    }

    /// Looks for requests that wait for each other, if what a shard did may have closed a circle.
    fn break_deadlocks(&self, suspects: &[Action]) {
        if !suspects.is_empty() {
            let now = self.now_ms();
            self.in_all_shards(|shards, actions| deadlock::resolve_after(now, suspects, shards, actions));
        }
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

impl RequestHandler for Service {
    fn open(&self, name: String, ttl_ms: u32, peer: Peer) -> Result<(Arc<ServerSession>, Welcome), UpstreamSilent> {
        let id = SessionId(self.last_session.fetch_add(1, Ordering::Relaxed) + 1);
        let now = self.now_ms();
        let ttl_ms = match ttl_ms {
            0 if !peer.is_local => self.ttl_ms_max,
            0 => 0,
            asked => asked.max(LEASE_MS_MIN).min(self.ttl_ms_max),
        };
        info!(session = id.0, name, ttl_ms, uid = peer.uid, "a session begins");
        let member = ServerSession::new(id, name, now, ttl_ms > 0, peer.uid, &self.memory);
        self.shards.iter().for_each(|shard| shard.lock().open(id));
        self.sessions.write().insert(id, Arc::clone(&member));
        // Last: what ends by its lease has to be known, or nothing would end it.
        if ttl_ms > 0 {
            let mut leases = self.leases.lock();
            leases.open(now, id, ttl_ms);
            let deadline = leases.deadline();
            drop(leases);
            self.arm(deadline);
        }
        self.counters.connections.fetch_add(1, Ordering::Relaxed);
        let welcome = Welcome {
            version: PROTOCOL_NEWEST,
            session: id,
            ttl_ms,
            epoch: self.epoch,
            grace_ms: self.grace_left_ms(),
            grace_ms_max: self.ttl_ms_max,
        };
        Ok((member, welcome))
    }

    fn apply(&self, member: &ServerSession, request: Request, known: KnownOverlaps) -> Option<Box<LongComparison>> {
        if known.is_empty() {
            self.counters.requests.fetch_add(1, Ordering::Relaxed);
            request_trace::request(member.id, &request);
        }
        if member.is_broken() {
            return None; // It was told so.
        }
        match &request {
            Request::Lock(LockRequest { id, file, .. }) | Request::Reassert(ReassertRequest { id, file, .. }) => {
                let place = self.place_of(file);
                let there = *member.places.lock().entry(*id).or_insert(place);
                if there == place {
                    self.end_dead(place, member, &request, &known);
                    return self.lock_at(place, member, request, known); // A shard finds its own duplicates.
                } else {
                    let (id, why) = (*id, Refusal::Duplicate);
                    member.outbox.push(&Reply::Refused { id, why }, true);
                }
            }
            Request::Posix(PosixRequest { file, .. })
            | Request::Query(QueryRequest { file, .. })
            | Request::PosixRelease { file: Some(file), .. } => {
                let place = self.place_of(file);
                self.end_dead(place, member, &request, &known);
                self.apply_at(place, member, request);
            }
            Request::Unlock { id } | Request::Cancel { id } => {
                let place = member.forget(&[*id]);
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
                let json = self.report().to_string();
                member.outbox.push(&Reply::Status { seq: *seq, json }, true);
            }
            Request::Look { seq, file } => {
                let (seq, seen) = (*seq, self.look(file));
                member.outbox.push(&Reply::FileLocks { seq, seen }, true);
            }
            Request::Break {
                seq,
                file,
                session,
                force,
            } => {
                let seq = *seq;
                let reply = match self.break_locks(member, file, *session, *force) {
                    Ok(sessions) => Reply::Broken { seq, sessions },
                    Err(why) => Reply::Denied {
                        seq,
                        why: why.to_string(),
                    },
                };
                member.outbox.push(&reply, true);
            }
            Request::Close => {}
        }
        None
    }

    fn forget(&self, member: &ServerSession, refused: &[LockId]) {
        member.forget(refused);
    }

    fn close(&self, member: &ServerSession) {
        info!(session = member.id.0, "a session ends, with all its locks");
        self.taken_max.fetch_max(self.memory.used_bytes(), Ordering::Relaxed);
        self.leases.lock().close(member.id);
        let now = self.now_ms();
        for shard in &self.shards {
            let suspects = self.step(shard, None, |shard, actions| shard.close(now, member.id, actions));
            self.break_deadlocks(&suspects);
        }
        self.sessions.write().remove(&member.id);
    }

    /// What the client waits for is taken back; what it holds stays until its lease is over.
    fn disconnect(&self, member: &ServerSession) {
        info!(
            session = member.id.0,
            "is cut off, and holds what it held until its lease is over"
        );
        let now = self.now_ms();
        for shard in &self.shards {
            let suspects = self.step(shard, None, |shard, actions| shard.disconnect(now, member.id, actions));
            self.break_deadlocks(&suspects);
        }
    }

    fn holds_something(&self, member: &ServerSession) -> bool {
        self.shards.iter().any(|shard| shard.lock().holds_something(member.id))
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn memory(&self) -> &Memory {
        &self.memory
    }

    fn turned_away(&self) {
        self.counters.turned_away.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use elbow_ranges::Footprint;

    use super::*;
    use crate::message::{LockMode, Owner, Wait};
    use crate::server::outbox::Ending;
    use crate::server::outbox::Unsent;
    use crate::wire;

    const PEER: Peer = Peer {
        is_local: true,
        uid: Some(1_000),
    };

    fn lock(id: u64, file: &[u8]) -> Request {
        Request::Lock(LockRequest {
            id: LockId(id),
            owner: Owner(id),
            file: FileName::new(file).unwrap(),
            mode: LockMode::Exclusive,
            footprint: Footprint::extent(0..10).unwrap(),
            wait: Wait::Forever,
            recall: false,
        })
    }

    fn sent(service: &Service, member: &ServerSession) -> Vec<Reply> {
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

    /// Ranges without a pattern; those of different phases share no byte.
    fn odd(phase: u64, count: u64) -> Footprint {
        let list = (0..count).map(|number| {
            (
                number * 10_000 + phase * 500 + number * number % 251,
                1 + number * 7 % 97,
            )
        });
        Footprint::from_list(list).unwrap()
    }

    fn list_lock(id: u64, footprint: Footprint) -> Request {
        match lock(id, b"/f") {
            Request::Lock(LockRequest {
                id,
                owner,
                file,
                mode,
                wait,
                recall,
                ..
            }) => Request::Lock(LockRequest {
                id,
                owner,
                file,
                mode,
                footprint,
                wait,
                recall,
            }),
            other => other,
        }
    }

    /// Applies a request to its end; says how many comparisons were made outside of the shard, and the most steps of comparison in one that was
    /// made while it was locked.
    fn apply(service: &Service, member: &ServerSession, request: Request) -> (usize, u64) {
        let (mut outside, mut steps_max) = (0, 0);
        let (mut request, mut known) = (request, KnownOverlaps::default());
        loop {
            let before = service.each_shard(Shard::compared)[0];
            let long = service.apply(member, request, known);
            steps_max = steps_max.max(service.each_shard(Shard::compared)[0] - before);
            let Some(long) = long else { return (outside, steps_max) };
            outside += long.comparisons.len();
            (request, known) = long.compare_here();
        }
    }

    /// One request against 15 lists of 100,000 ranges took its shard for some 100 ms, in which nobody else was served. No step may compare long
    /// lists, whatever follows: a request, a grant after a release, the end of a session.
    #[test]
    fn long_lists_are_compared_outside_of_the_shard() {
        const HOLDERS: u64 = 15;
        const RANGES: u64 = 5_000;
        const STEP_MAX: u64 = 2 * (HOLDERS + 1) * STEPS_LOCKED_MAX;
        let service = Service::new(1, 1, Grace::default(), 10_000, &Limits::default());
        let (holder, _) = service.open("holder".to_owned(), 0, PEER).unwrap();
        for phase in 0..HOLDERS {
            let (outside, steps) = apply(&service, &holder, list_lock(phase, odd(phase, RANGES)));
            assert_eq!(outside as u64, phase, "with each that is there");
            assert!(steps <= STEP_MAX, "{steps}");
        }
        assert_eq!(service.each_shard(Shard::totals)[0].holds, HOLDERS);
        // Two who wait: for one holder, and for the first who waits.
        let (waiter, _) = service.open("waiter".to_owned(), 0, PEER).unwrap();
        for id in [100, 101] {
            let (outside, steps) = apply(&service, &waiter, list_lock(id, odd(0, RANGES)));
            assert!(outside as u64 >= HOLDERS && steps <= STEP_MAX, "{outside}, {steps}");
        }
        assert_eq!(service.each_shard(Shard::totals)[0].queued, 2);
        // While a long request is being compared, others are served.
        let (late, _) = service.open("late".to_owned(), 0, PEER).unwrap();
        let long = service.apply(&late, list_lock(7, odd(16, RANGES)), KnownOverlaps::default());
        assert!(long.is_some() && sent(&service, &late).is_empty());
        let (bystander, _) = service.open("bystander".to_owned(), 0, PEER).unwrap();
        let small = Footprint::extent(9_990..10_000).unwrap();
        let (outside, steps) = apply(&service, &bystander, list_lock(1, small));
        assert!(outside == 0 && steps <= STEP_MAX, "{outside}, {steps}");
        assert!(matches!(sent(&service, &bystander)[..], [Reply::Granted { .. }]));
        // What is released by one is granted to the next without a long comparison.
        let before = service.each_shard(Shard::compared)[0];
        assert!(
            service
                .apply(&holder, Request::Unlock { id: LockId(0) }, KnownOverlaps::default())
                .is_none()
        );
        assert!(matches!(sent(&service, &waiter)[..], [Reply::Granted { .. }]));
        assert!(service.each_shard(Shard::compared)[0] - before <= STEP_MAX);
        let before = service.each_shard(Shard::compared)[0];
        service.close(&holder);
        assert!(service.each_shard(Shard::compared)[0] - before <= HOLDERS * STEP_MAX);
        // The comparison is not too old: who has gone meanwhile is in nobody's way, and who has come is compared.
        let (request, known) = long.unwrap().compare_here();
        let mut next = service.apply(&late, request, known);
        while let Some(long) = next {
            let (request, known) = long.compare_here();
            next = service.apply(&late, request, known);
        }
        assert!(matches!(sent(&service, &late)[..], [Reply::Granted { .. }]));
        for member in [&waiter, &late, &bystander] {
            service.close(member);
        }
        assert_eq!(service.memory.used_bytes(), 0);
    }

    /// Who takes long to compare was kept out for as long as others came meanwhile.
    #[test]
    fn a_long_request_gets_its_turn_though_others_come_all_the_time() {
        const RANGES: u64 = 2_000;
        let service = Service::new(1, 1, Grace::default(), 10_000, &Limits::default());
        let (others, _) = service.open("others".to_owned(), 0, PEER).unwrap();
        let (late, _) = service.open("late".to_owned(), 0, PEER).unwrap();
        apply(&service, &others, list_lock(0, odd(0, RANGES)));
        let mut next = service.apply(&late, list_lock(7, odd(99, RANGES)), KnownOverlaps::default());
        let mut rounds = 0;
        while let Some(long) = next {
            rounds += 1;
            assert!(rounds < 20, "it never gets its turn");
            apply(&service, &others, list_lock(rounds, odd(rounds, RANGES)));
            let (request, known) = long.compare_here();
            next = service.apply(&late, request, known);
        }
        assert!(rounds > 1, "others came");
        assert!(matches!(sent(&service, &late)[..], [Reply::Granted { .. }]));
    }

    /// 10,000 clients that read nothing had 80 GB of answers together.
    #[test]
    fn answers_that_nobody_reads_are_bounded_in_sum() {
        let limits = Limits {
            memory_bytes: 1 << 20,
            ..Limits::default()
        };
        let service = Service::new(1, 1, Grace::default(), 10_000, &limits);
        let lazy: Vec<_> = (0..20)
            .map(|_| service.open("lazy".to_owned(), 0, PEER).unwrap().0)
            .collect();
        for member in &lazy {
            (0..100_000)
                .take_while(|_| member.outbox.ending() == Ending::No)
                .for_each(|seq| {
                    assert!(
                        service
                            .apply(member, Request::Renew { seq }, KnownOverlaps::default())
                            .is_none()
                    );
                });
        }
        assert!(service.memory.used_bytes() <= 1 << 20);
        assert!(
            lazy.last().unwrap().outbox.ending() == Ending::Announced,
            "there was no room for its answers"
        );
        // What every client may leave unread needs no room.
        let (member, _) = service.open("usual".to_owned(), 0, PEER).unwrap();
        assert!(
            service
                .apply(&member, Request::Renew { seq: 1 }, KnownOverlaps::default())
                .is_none()
        );
        assert_eq!(sent(&service, &member), [Reply::Renewed { seq: 1 }]);
        lazy.iter().for_each(|member| service.close(member));
        drop(lazy);
        assert_eq!(service.memory.used_bytes(), 0);
    }

    /// A cancellation of what had been granted once left the lock's place behind, for as long as the session lived.
    #[test]
    fn what_was_cancelled_leaves_no_place_behind() {
        let service = Service::new(2, 1, Grace::default(), 10_000, &Limits::default());
        let (member, _) = service.open("test".to_owned(), 0, PEER).unwrap();
        for order in [[1, 2, 3], [3, 2, 1]] {
            (1..=3).for_each(|id| {
                assert!(
                    service
                        .apply(&member, lock(id, b"/f"), KnownOverlaps::default())
                        .is_none()
                );
            });
            assert_eq!(member.places.lock().len(), 3);
            order.into_iter().for_each(|id| {
                drop(service.apply(&member, Request::Cancel { id: LockId(id) }, KnownOverlaps::default()));
            });
            assert!(!sent(&service, &member).is_empty());
            assert!(member.places.lock().is_empty() && service.is_idle());
        }
    }

    fn posix(id: u64, owner: u64, file: &FileName, mode: LockMode) -> Request {
        Request::Posix(PosixRequest {
            id: LockId(id),
            owner: Owner(owner),
            file: file.clone(),
            start: 0,
            end: 10,
            mode: Some(mode),
            wait: Wait::Forever,
        })
    }

    /// Names of three files: the shard of the first comes before that of the second.
    fn files_in_two_shards(service: &Service) -> [FileName; 3] {
        let name = |number: u32| FileName::new(format!("/f{number}").as_bytes()).unwrap();
        let mut names: Vec<FileName> = (0..64).map(name).collect();
        names.sort_by_key(|name| service.place_of(name));
        let [x, y] = [&names[0], &names[63]].map(FileName::clone);
        assert!(service.place_of(&x) < service.place_of(&y), "64 names in one shard");
        [x, y, names[32].clone()]
    }

    /// A lease of 1 ms was over before its session was known, so that nothing ended it any more. The service's own bound goes before.
    #[test]
    fn no_lease_is_shorter_than_its_client_can_be_scheduled() {
        let service = Service::new(1, 1, Grace::default(), 10_000, &Limits::default());
        let granted = |asked| service.open("test".to_owned(), asked, PEER).unwrap().1.ttl_ms;
        assert_eq!(
            [0, 1, 99, 100, 500, 20_000].map(granted),
            [0, 100, 100, 100, 500, 10_000]
        );
    }

    /// One number for two requests that wait in two shards: what was found in a circle in the one was granted or refused in the other. What is held is in
    /// the way of that one, and the service aborted; any client could do so.
    #[test]
    fn a_number_that_waits_in_two_shards_names_the_request_that_was_found() {
        let service = Service::new(8, 1, Grace::default(), 10_000, &Limits::default());
        let [x, y, z] = files_in_two_shards(&service);
        let (member, _) = service.open("test".to_owned(), 0, PEER).unwrap();
        let ask = |request| drop(service.apply(&member, request, KnownOverlaps::default()));
        let [a, b, c, d, e] = [1, 2, 3, 4, 5];
        ask(posix(10, a, &y, LockMode::Shared));
        ask(posix(11, c, &z, LockMode::Exclusive));
        ask(posix(12, e, &x, LockMode::Exclusive));
        assert_eq!(sent(&service, &member).len(), 3);
        ask(posix(2, b, &y, LockMode::Exclusive));
        ask(posix(5, c, &y, LockMode::Shared)); // Behind the one before: nothing that is held is in its way.
        ask(posix(5, d, &x, LockMode::Exclusive));
        ask(posix(6, a, &z, LockMode::Exclusive)); // C waits for B, B for A, and A for C.
        let replies = sent(&service, &member);
        assert!(
            matches!(replies[..], [Reply::Granted { id: LockId(5), .. }]),
            "{replies:?}"
        );
        let waits = |file: &FileName| service.look(file).queued;
        assert_eq!([&x, &y, &z].map(waits), [1, 1, 1], "C passes B, and D waits for E");
        service.each_shard(Shard::check);
    }

    /// As before, where the circle ends with a refusal.
    #[test]
    fn a_number_that_waits_in_two_shards_is_refused_where_the_circle_is() {
        let service = Service::new(8, 1, Grace::default(), 10_000, &Limits::default());
        let [x, y, z] = files_in_two_shards(&service);
        let (member, _) = service.open("test".to_owned(), 0, PEER).unwrap();
        let ask = |request| drop(service.apply(&member, request, KnownOverlaps::default()));
        for (id, (owner, file)) in [(1, &y), (2, &z), (3, &x)].into_iter().enumerate() {
            ask(posix(id as u64 + 10, owner, file, LockMode::Exclusive));
        }
        ask(posix(5, 4, &x, LockMode::Exclusive));
        ask(posix(6, 1, &z, LockMode::Exclusive));
        assert_eq!(sent(&service, &member).len(), 3);
        ask(posix(5, 2, &y, LockMode::Exclusive)); // The youngest of two who wait for each other.
        let replies = sent(&service, &member);
        assert!(
            matches!(
                replies[..],
                [Reply::Refused {
                    id: LockId(5),
                    why: Refusal::Deadlock { .. }
                }]
            ),
            "{replies:?}"
        );
        let waits = |file: &FileName| service.look(file).queued;
        assert_eq!([&x, &y, &z].map(waits), [1, 0, 1], "D waits for E still");
        service.each_shard(Shard::check);
    }

    /// A list lock that was refused for the number of a POSIX request left its place behind: the number could not be used for other files again, and the place was
    /// kept for as long as the session.
    #[test]
    fn the_number_of_a_posix_request_is_free_after_it() {
        let service = Service::new(8, 1, Grace::default(), 10_000, &Limits::default());
        let (member, _) = service.open("test".to_owned(), 0, PEER).unwrap();
        let [x, y, _] = files_in_two_shards(&service);
        let ask = |request| drop(service.apply(&member, request, KnownOverlaps::default()));
        ask(posix(1, 1, &x, LockMode::Exclusive));
        ask(posix(5, 2, &x, LockMode::Exclusive));
        assert_eq!(sent(&service, &member).len(), 1);
        ask(lock(5, x.as_bytes()));
        let (id, why) = (LockId(5), Refusal::Duplicate);
        assert_eq!(sent(&service, &member), [Reply::Refused { id, why }]);
        let (owner, file) = (Owner(1), Some(x));
        ask(Request::PosixRelease { owner, file });
        assert!(matches!(
            sent(&service, &member)[..],
            [Reply::Granted { id: LockId(5), .. }]
        ));
        assert!(member.places.lock().is_empty());
        ask(lock(5, y.as_bytes()));
        assert!(matches!(
            sent(&service, &member)[..],
            [Reply::Granted { id: LockId(5), .. }]
        ));
    }

    /// The number of a lock that is held names that lock, whatever file it is used for again.
    #[test]
    fn a_number_that_is_in_use_is_refused_on_any_file() {
        let service = Service::new(8, 1, Grace::default(), 10_000, &Limits::default());
        let (member, _) = service.open("test".to_owned(), 0, PEER).unwrap();
        drop(service.apply(&member, lock(1, b"/f"), KnownOverlaps::default()));
        assert!(matches!(sent(&service, &member)[..], [Reply::Granted { .. }]));
        for number in 0..50 {
            let file = if number == 0 {
                "/f".to_owned()
            } else {
                format!("/f{number}")
            };
            drop(service.apply(&member, lock(1, file.as_bytes()), KnownOverlaps::default()));
            let why = Refusal::Duplicate;
            assert_eq!(
                sent(&service, &member),
                [Reply::Refused { id: LockId(1), why }],
                "{file}"
            );
        }
        drop(service.apply(&member, Request::Unlock { id: LockId(1) }, KnownOverlaps::default()));
        assert!(service.is_idle() && member.places.lock().is_empty());
    }
}
