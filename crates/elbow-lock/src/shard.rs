//! Many files' locks, and the sessions that hold them: requests in, replies out.
//!
//! ```text
//!   handle(now, session, request) --+                          +--> Reply(session, ..)
//!   disconnect / close(now, session)+--> tables, sessions -----+
//!   tick(now)  ---------------------+                          +--> Queued { session, owner, id }
//! ```
//!
//! A server may have several shards, each with the files that hash to it; they share nothing but the sessions, which are
//! opened and closed in all of them. The shard has no clock, thread or socket: whoever drives it brings the time, in
//! milliseconds of a clock that does not go back, and carries the actions out.
//!
//! Invariants: every `Lock`, `Posix`, `Query` and `Reassert` is answered exactly once, or its session has ended; only
//! sessions that are open hold or wait; a file of which nothing is held or waited for takes no memory; nothing grows past
//! its [`Limits`].
//!
//! Not here: whose session ends when (`lease`), and which of several requests that wait for each other is refused
//! (`deadlock`).

mod limits;
mod requests;
mod session;
mod status;
mod wait_for;

use std::collections::{BTreeMap, HashSet};

use ahash::AHashMap;
use slab::Slab;

use crate::memory::{FILE_BYTES, LOCK_BYTES, Memory, Room};
use crate::message::{FileName, LockId, Owner, Refusal, Reply, Request, SessionId};
use crate::table::{Ask, Event, Grant, KnownOverlaps, Lock, LockState, Party, Sequence, Table, WaitLimit};
pub use limits::Limits;
use session::{LockPlace, Session};
pub use status::{FileStatus, LockStatus, Totals};
pub use wait_for::WaitFor;

/// What a shard wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send this to that session.
    Reply(SessionId, Reply),
    /// A request was queued. If somebody waits for what its owner holds, in any shard, look for deadlock now
    /// ([`resolve_after`](crate::resolve_after)).
    Queued {
        /// The session of who waits.
        session: SessionId,
        /// Who waits.
        owner: Owner,
        /// For what.
        id: LockId,
    },
    /// What waits may have come to wait in a circle by something else: look for deadlock now ([`resolve`](crate::resolve)).
    Suspect,
}

/// Locks of many files.
///
/// ```
/// use elbow_lock::{Action, FileName, Limits, LockId, LockMode, LockRequest, Owner, Reply, Request, SessionId, Shard, Token, Wait};
/// use elbow_ranges::Footprint;
///
/// let mut shard = Shard::new(1, 0, Limits::default());
/// let mut out = Vec::new();
/// let lock = |id| Request::Lock(LockRequest {
///     id: LockId(id),
///     owner: Owner(0),
///     file: FileName::new(b"/data/grid").unwrap(),
///     mode: LockMode::Exclusive,
///     footprint: Footprint::whole(),
///     wait: Wait::Forever,
///     recall: false,
/// });
/// shard.open(SessionId(1));
/// shard.open(SessionId(2));
/// shard.handle(0, SessionId(1), lock(10), &mut out);
/// shard.handle(5, SessionId(2), lock(20), &mut out);
/// let first = Token::first_of(1);
/// assert_eq!(out.remove(0), Action::Reply(SessionId(1), Reply::Granted { id: LockId(10), token: first }));
/// assert_eq!(out.remove(0), Action::Queued { session: SessionId(2), owner: Owner(0), id: LockId(20) });
///
/// shard.close(7, SessionId(1), &mut out);
/// let second = Token(first.0 + 1);
/// assert_eq!(out, [Action::Reply(SessionId(2), Reply::Granted { id: LockId(20), token: second })]);
/// ```
#[derive(Debug)]
pub struct Shard {
    epoch: u32,
    limits: Limits,
    memory: Memory,
    files: Slab<File>,
    /// What the files take of the memory without their locks: one for all, because files come and go with nearly every lock.
    files_room: Room,
    names: AHashMap<FileName, usize>,
    sessions: BTreeMap<SessionId, Session>,
    /// Ends of waits, by time and order of asking.
    timers: BTreeMap<(u64, u64), LockPlace>,
    /// Until then nothing is granted but what was held before a restart.
    grace_until_ms: Option<u64>,
    /// The first epoch whose locks may be held again.
    held_since: u32,
    is_draining: bool,
    /// Files in which each change may close a circle.
    suspects: HashSet<usize>,
    sequence: Sequence,
    totals: Totals,
}

#[derive(Debug)]
struct File {
    name: FileName,
    table: Table,
}

impl File {
    /// What it takes of the service's memory without its locks.
    fn bytes(name: &FileName) -> usize {
        FILE_BYTES + name.as_bytes().len()
    }
}

/// Of fewer files than this, the room of those that are gone is kept for the next.
const FILES_KEPT: usize = 1 << 10;

impl Shard {
    /// Holds no locks. `epoch` is larger than that of any incarnation of the service before, and below 2^24.
    ///
    /// Until `grace_until_ms` what the incarnation before granted can be held again, and nothing else is granted: at least the
    /// longest lease that the incarnation before gave, from now; 0 when it left no holder.
    ///
    /// # Panics
    /// When the epoch does not fit a token.
    #[must_use]
    pub fn new(epoch: u32, grace_until_ms: u64, limits: Limits) -> Self {
        let memory = Memory::new(limits.memory_bytes);
        Self {
            epoch,
            limits,
            files_room: memory.room(),
            memory,
            files: Slab::new(),
            names: AHashMap::new(),
            sessions: BTreeMap::new(),
            timers: BTreeMap::new(),
            grace_until_ms: Some(grace_until_ms).filter(|&until_ms| until_ms > 0),
            held_since: epoch.saturating_sub(1),
            is_draining: false,
            suspects: HashSet::new(),
            sequence: Sequence::new(epoch),
            totals: Totals::default(),
        }
    }

    /// Lets locks of all incarnations from `epoch` on be held again, where those since have ended within their grace periods: none of them has
    /// granted anything new. Otherwise only locks of the incarnation before may: what is older may have been granted to others since.
    #[must_use]
    pub fn held_since(self, epoch: u32) -> Self {
        Self {
            held_since: epoch,
            ..self
        }
    }

    /// Shares its memory with other shards.
    ///
    /// # Panics
    /// When it has sessions already.
    #[must_use]
    pub fn within(self, memory: Memory) -> Self {
        assert!(self.sessions.is_empty(), "what is taken stays where it is counted");
        Self {
            files_room: memory.room(),
            memory,
            ..self
        }
    }

    /// What its locks take, and may take.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Puts the end of a grace period off that has not ended yet.
    pub fn stay_in_grace(&mut self, until_ms: u64) {
        self.grace_until_ms = self.grace_until_ms.map(|old_ms| old_ms.max(until_ms));
    }

    /// Ends as before a shutdown: what waits is refused, and nothing is granted any more. What is held stays held.
    pub fn drain(&mut self, now_ms: u64, out: &mut Vec<Action>) {
        self.is_draining = true;
        let waiting = |file: &File| -> Vec<(SessionId, LockId)> {
            let locks = file.table.locks().filter(|lock| !lock.is_held());
            locks.map(|lock| (lock.ask.who.session, lock.ask.id)).collect()
        };
        let waiting: Vec<_> = self.files.iter().flat_map(|(_, file)| waiting(file)).collect();
        for (session, id) in waiting {
            self.refuse(now_ms, session, id, Refusal::Draining, out);
        }
    }

    /// Begins a session. Requests of others are answered with [`Reply::Lost`].
    pub fn open(&mut self, session: SessionId) {
        let memory = &self.memory;
        self.sessions.entry(session).or_insert_with(|| Session::new(memory));
    }

    /// Takes a request. Those that ask for no lock and end none ([`Request::Renew`], [`Request::Status`], [`Request::Look`],
    /// [`Request::Break`], [`Request::Close`]) are not for shards, and are ignored.
    pub fn handle(&mut self, now_ms: u64, session: SessionId, request: Request, out: &mut Vec<Action>) {
        self.handle_with_overlaps(now_ms, session, request, KnownOverlaps::default(), out);
    }

    /// As [`handle`](Self::handle), of a request of which something is known: the same follows, in fewer steps.
    pub fn handle_with_overlaps(
        &mut self,
        now_ms: u64,
        session: SessionId,
        request: Request,
        known: KnownOverlaps,
        out: &mut Vec<Action>,
    ) {
        if !self.sessions.get(&session).is_some_and(|session| session.is_connected) {
            let why = "the session has ended, by a lost connection or because nothing was heard of it".to_owned();
            return out.push(Action::Reply(session, Reply::Lost { why }));
        }
        let party = |owner| Party { session, owner };
        self.totals.count_request(&request);
        match request {
            Request::Lock(lock) => {
                let ask = Ask {
                    recall: lock.recall,
                    known,
                    ..Ask::new(party(lock.owner), lock.id, lock.mode, lock.footprint)
                };
                self.ask(now_ms, lock.file, ask, lock.wait, out);
            }
            Request::Unlock { id } | Request::Cancel { id } => self.end(now_ms, session, id, out),
            Request::Posix(lock) => match Ask::posix(party(lock.owner), lock.id, lock.start..lock.end, lock.mode) {
                Err(why) => self.answer_refused(session, lock.id, why, out),
                Ok(ask) if lock.mode.is_some() => self.ask(now_ms, lock.file, ask, lock.wait, out),
                Ok(ask) => self.posix_unlock(now_ms, &lock.file, &ask, out),
            },
            Request::PosixRelease { owner, file } => self.posix_release(now_ms, party(owner), file.as_ref(), out),
            Request::Query(query) => {
                match Ask::posix(party(query.owner), query.id, query.start..query.end, Some(query.mode)) {
                    Err(why) => self.answer_refused(session, query.id, why, out),
                    Ok(ask) => self.query(now_ms, &query.file, &ask, out),
                }
            }
            Request::Reassert(lock) => {
                let ask = Ask {
                    recall: lock.recall,
                    known,
                    ..Ask::new(party(lock.owner), lock.id, lock.mode, lock.footprint)
                };
                self.reassert(now_ms, lock.file, ask, lock.token, out);
            }
            Request::Renew { .. }
            | Request::Status { .. }
            | Request::Look { .. }
            | Request::Break { .. }
            | Request::Close => {}
        }
    }

    /// The connection of a session is gone, or its locks are broken, and perhaps its client has not noticed: what it waits for is dropped,
    /// what it holds stays until [`close`](Self::close). Nothing more is taken of it.
    pub fn disconnect(&mut self, now_ms: u64, session: SessionId, out: &mut Vec<Action>) {
        let Some(state) = self.sessions.get_mut(&session) else {
            return;
        };
        state.is_connected = false;
        let files = state.files();
        for &file in &files {
            let waiting = self.files[file].table.waiting_of_session(session);
            for key in waiting {
                self.remove(file, key);
            }
        }
        files.into_iter().for_each(|file| self.settle(now_ms, file, out));
    }

    /// Ends a session and its locks; those who waited for them are granted.
    pub fn close(&mut self, now_ms: u64, session: SessionId, out: &mut Vec<Action>) {
        let Some(state) = self.sessions.get(&session) else {
            return;
        };
        let files = state.files();
        for &file in &files {
            let locks = self.files[file].table.of_session(session);
            for key in locks {
                self.remove(file, key);
            }
        }
        self.sessions.remove(&session);
        files.into_iter().for_each(|file| self.settle(now_ms, file, out));
    }

    /// Refuses what has waited for as long as it may, and ends the grace period, if it is time.
    pub fn tick(&mut self, now_ms: u64, out: &mut Vec<Action>) {
        while let Some((&(at_ms, _), &LockPlace { file, key })) = self.timers.first_key_value()
            && at_ms <= now_ms
        {
            let lock = self.remove(file, key);
            let why = match lock.state {
                LockState::Waiting {
                    wait_limit: WaitLimit::Recall(_),
                    ..
                } => Refusal::WouldBlock,
                _ => Refusal::TimedOut,
            };
            self.answer_refused(lock.ask.who.session, lock.ask.id, why, out);
            self.settle(now_ms, file, out);
        }
        if self.grace_until_ms.is_some_and(|until_ms| until_ms <= now_ms) {
            self.end_grace(now_ms, out);
        }
    }

    /// When [`tick`](Self::tick) has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        let timer = self.timers.first_key_value().map(|(&(at_ms, _), _)| at_ms);
        timer.into_iter().chain(self.grace_until_ms).min()
    }

    /// Takes a waiting request out of the queue, with an answer. False when there is none of that name.
    pub fn refuse(&mut self, now_ms: u64, session: SessionId, id: LockId, why: Refusal, out: &mut Vec<Action>) -> bool {
        let place = self.sessions.get(&session).and_then(|session| session.place(id));
        let Some(LockPlace { file, key }) = place.filter(|place| !self.lock_at(*place).is_held()) else {
            return false;
        };
        self.remove(file, key);
        self.answer_refused(session, id, why, out);
        self.settle(now_ms, file, out);
        true
    }

    /// Grants a request before its turn that waits for nothing that is held. False when there is none of that name.
    pub fn pass(&mut self, now_ms: u64, session: SessionId, id: LockId, out: &mut Vec<Action>) -> bool {
        let place = self.sessions.get(&session).and_then(|session| session.place(id));
        let Some(LockPlace { file, key }) = place.filter(|place| !self.lock_at(*place).is_held()) else {
            return false;
        };
        let mut events = Vec::new();
        self.files[file]
            .table
            .pass(key, now_ms, &mut self.sequence, &mut events);
        self.apply(file, events, out);
        self.settle(now_ms, file, out);
        true
    }

    /// Whether anything is held or waited for in a file.
    pub(crate) fn has(&self, file: &FileName) -> bool {
        self.names.contains_key(file)
    }

    /// Whether a number is that of a POSIX request that waits.
    #[cfg(feature = "server")]
    pub(crate) fn is_of_posix(&self, session: SessionId, id: LockId) -> bool {
        let place = self.sessions.get(&session).and_then(|session| session.place(id));
        place.is_some_and(|place| self.lock_at(place).ask.posix)
    }

    /// Whether nobody holds or waits for anything.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.files.is_empty()
    }

    /// From now on, each change in these files may close a circle, and in no others ([`Action::Suspect`]).
    pub(crate) fn suspect<'a>(&mut self, files: impl Iterator<Item = &'a FileName>) {
        let names = &self.names;
        self.suspects = files.filter_map(|name| names.get(name).copied()).collect();
    }

    /// Whether somebody waits for anything that an owner holds here, or stands behind it in a queue.
    #[must_use]
    pub fn is_waited_for(&self, session: SessionId, owner: Owner) -> bool {
        let sessions = self.sessions.get(&session).into_iter();
        let files = sessions.flat_map(|session| session.held_by(owner).chain(session.waited_for_by(owner)));
        let who = Party { session, owner };
        files.into_iter().any(|file| self.files[file].table.is_waited_for(who))
    }

    /// All requests that wait, and for whom. `O(requests that wait * locks that conflict)`.
    #[must_use]
    pub fn waits(&self) -> Vec<WaitFor> {
        let of_file = |file: &File| -> Vec<WaitFor> {
            let waiting = file.table.locks().filter(|lock| !lock.is_held());
            waiting.map(|lock| self.wait_for(file, lock)).collect()
        };
        self.files.iter().flat_map(|(_, file)| of_file(file)).collect()
    }

    fn wait_for(&self, file: &File, lock: &Lock) -> WaitFor {
        let of_request = |lock: &Lock| (lock.ask.who, lock.ask.id);
        let (behind, overtaken) = file.table.queued_before(lock);
        WaitFor {
            waiter: lock.ask.who,
            id: lock.ask.id,
            file: file.name.clone(),
            mode: lock.ask.mode,
            bounds: lock.bounds.clone(),
            since_ms: lock.since_ms,
            number: lock.number,
            blockers: file.table.holders(lock).into_iter().collect(),
            behind: behind.into_iter().map(of_request).collect(),
            overtaken: overtaken.into_iter().map(|lock| lock.ask.who).collect(),
            // In the grace period nothing is granted, whatever is in its way.
            only_queued: self.grace_until_ms.is_none() && !file.table.meets_held(lock),
        }
    }

    /// Whether only what was held before a restart is granted.
    pub(crate) fn is_in_grace(&self) -> bool {
        self.grace_until_ms.is_some()
    }

    /// Asserts everything that should always be true between events. `O(n^2)`: for tests.
    ///
    /// # Panics
    /// When something is not.
    #[doc(hidden)]
    pub fn check(&self) {
        for (file, File { name, table }) in &self.files {
            assert_eq!(self.names.get(name), Some(&file));
            assert!(!table.is_empty(), "nothing is held of {name}, and it is still there");
            table.check(self.grace_until_ms.is_none());
        }
        let tables = || self.files.iter().map(|(_, file)| &file.table);
        let locks: usize = tables().map(Table::len).sum();
        let counted: usize = self.sessions.values().map(Session::count).sum();
        assert_eq!((self.names.len(), locks), (self.files.len(), counted));
        self.check_memory(locks);
        let timed = |lock: &&Lock| matches!(lock.state, LockState::Waiting { wait_limit, .. } if wait_limit.deadline().is_some());
        let timed: usize = tables().map(|table| table.locks().filter(timed).count()).sum();
        assert_eq!(timed, self.timers.len());
    }

    /// What is counted is what is there.
    fn check_memory(&self, locks: usize) {
        let all = self.files.iter().flat_map(|(_, file)| file.table.locks());
        let lists: usize = all.map(|lock| lock.ask.heap_bytes()).sum();
        let of_sessions: usize = self.sessions.values().map(Session::room_bytes).sum();
        assert_eq!(of_sessions, locks * LOCK_BYTES + lists);
        let of_files: usize = self.files.iter().map(|(_, file)| File::bytes(&file.name)).sum();
        assert_eq!(self.files_room.bytes(), of_files);
        assert!(
            self.memory.used_bytes() >= of_sessions + of_files,
            "more is there than is counted"
        );
    }

    fn end_grace(&mut self, now_ms: u64, out: &mut Vec<Action>) {
        self.grace_until_ms = None;
        let files: Vec<usize> = self.files.iter().map(|(file, _)| file).collect();
        for file in files {
            self.files[file].table.recheck_all();
            self.settle(now_ms, file, out);
        }
        // Locks that were held again while others were queued may have closed a circle.
        let waiting = self
            .files
            .iter()
            .flat_map(|(_, file)| file.table.locks())
            .filter(|lock| !lock.is_held());
        out.extend(waiting.map(|lock| {
            let Party { session, owner } = lock.ask.who;
            Action::Queued {
                session,
                owner,
                id: lock.ask.id,
            }
        }));
    }

    /// Tells holders that `ask` is in want of their locks.
    fn recall(&mut self, file: usize, ask: &Ask, out: &mut Vec<Action>) {
        let mut events = Vec::new();
        self.files[file].table.recall(ask, &mut events);
        self.apply(file, events, out);
    }

    /// Grants what can be granted after something has changed in a file, and forgets the file if nothing is left.
    fn settle(&mut self, now_ms: u64, file: usize, out: &mut Vec<Action>) {
        let Some(File { table, .. }) = self.files.get_mut(file) else {
            return;
        };
        if self.grace_until_ms.is_none() {
            let mut events = Vec::new();
            table.settle(now_ms, &mut self.sequence, &mut events);
            self.apply(file, events, out);
            out.extend(self.suspects.contains(&file).then_some(Action::Suspect));
        }
        if self.files[file].table.is_empty() {
            let File { name, .. } = self.files.remove(file);
            self.files_room.set(self.files_room.bytes() - File::bytes(&name));
            self.names.remove(&name);
            if self.files.is_empty() && self.files.capacity() > FILES_KEPT {
                (self.files, self.names) = (Slab::new(), AHashMap::new());
            }
        }
    }

    fn apply(&mut self, file: usize, events: Vec<Event>, out: &mut Vec<Action>) {
        for event in events {
            match event {
                Event::Granted(grant) => self.granted(file, &grant, out),
                Event::Recall { session, id } => {
                    self.totals.recalls += 1;
                    out.push(Action::Reply(session, Reply::Recall { id }));
                }
            }
        }
    }

    fn granted(&mut self, file: usize, grant: &Grant, out: &mut Vec<Action>) {
        let Grant {
            who,
            id,
            token,
            locks,
            passes,
            ..
        } = *grant;
        if let Some(at_ms) = grant.wait_limit.deadline() {
            self.timers.remove(&(at_ms, grant.number));
        }
        self.totals.grants += 1;
        self.totals.waited_ms += grant.waited_ms;
        let session = self.session(who.session);
        if grant.posix {
            session.remove(id, 0);
            session.add_pieces(locks);
        }
        session.add_waiting(who.owner, file, -1);
        session.add_held(who.owner, file, locks);
        out.push(Action::Reply(who.session, Reply::Granted { id, token }));
        out.extend(passes.then_some(Action::Suspect));
    }

    /// Takes a lock out of its table, its session and the timers. Call [`settle`](Self::settle) afterwards.
    fn remove(&mut self, file: usize, key: usize) -> Lock {
        let lock = self.files[file].table.end(key);
        let Ask { who, id, posix, .. } = lock.ask;
        let list_bytes = lock.ask.heap_bytes();
        let session = self.session(who.session);
        match &lock.state {
            LockState::Held { .. } if posix => {
                session.add_pieces(-1);
                session.add_held(who.owner, file, -1);
            }
            LockState::Held { .. } => {
                session.remove(id, list_bytes);
                session.add_held(who.owner, file, -1);
            }
            LockState::Waiting { wait_limit, .. } => {
                session.remove(id, list_bytes);
                session.add_waiting(who.owner, file, -1);
                if let Some(at_ms) = wait_limit.deadline() {
                    self.timers.remove(&(at_ms, lock.number));
                }
            }
        }
        lock
    }

    fn answer_refused(&mut self, session: SessionId, id: LockId, why: Refusal, out: &mut Vec<Action>) {
        self.totals.count_refusal(&why);
        out.push(Action::Reply(session, Reply::Refused { id, why }));
    }

    fn answer_unlocked(&mut self, session: SessionId, id: LockId, out: &mut Vec<Action>) {
        let token = self.sequence.token_of_unlock();
        out.push(Action::Reply(session, Reply::Granted { id, token }));
    }

    fn grace_left_ms(&self, now_ms: u64) -> Option<u32> {
        let left_ms = self.grace_until_ms?.saturating_sub(now_ms);
        Some(u32::try_from(left_ms).unwrap_or(u32::MAX))
    }

    fn begin_file(&mut self, name: FileName) -> usize {
        self.files_room.set(self.files_room.bytes() + File::bytes(&name));
        let file = self.files.insert(File {
            name: name.clone(),
            table: Table::default(),
        });
        self.names.insert(name, file);
        file
    }

    fn lock_at(&self, place: LockPlace) -> &Lock {
        self.files[place.file].table.lock(place.key)
    }

    /// A session that is known to be open.
    fn session(&mut self, session: SessionId) -> &mut Session {
        #[expect(clippy::expect_used, reason = "only open sessions hold or wait")]
        self.sessions.get_mut(&session).expect("a session that is open")
    }
}
