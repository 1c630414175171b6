//! What a proxy does, without its sockets: many clients' requests become one session's, and answers find their way back.
//!
//! ```text
//!   client 1: lock 5 --.                  lock 17 (owner 3, recall) -->
//!   client 2: lock 5 --+-- entries -----  lock 18 (owner 4, recall) -->   service
//!   client 1: renew  --'                  renew                     -->
//!
//!   an entry:   asked ---granted---> held ---unlock---> idle ---recall, another lock, age---> unlocked
//!                                     ^------same lock again------'
//! ```
//!
//! A lock that its client has given back stays with the proxy, *idle*, until the service says that somebody waits for it, the
//! same owner asks for another lock, or it is old. A client that locks the same bytes again and again so needs no round
//! trip to the service, until the tokens are used up that came with the lock: each grant has the next one. An owner whose
//! request may wait has no idle locks, so that the service never sees a circle that is none.
//!
//! A client's lease is what is left of the proxy's own when it comes, and is renewed only by a renewal that the service
//! answered after the client's was heard: the proxy never promises more than it has. So a client may go on with its
//! locks while the proxy stands still or is dead, until its lease ends, and nobody else has been given them before.
//!
//! What a client makes it keep is counted against one [`Memory`]: entries, calls and questions under way, names of owners, each with a [`Room`] of
//! its own. Where there is none left idle locks go first, and then requests are refused; what gives something back, and a renewal, never is.
//!
//! Invariants: every lock of the session at the service belongs to one entry, every entry to one client that is here;
//! names at the service are never used twice; at most one renewal is under way.
//!
//! Not here: sockets, clocks (`proxy`). All times are of one clock of the node, in ms.
//!
//! Source: Aarestad et al., *Scalable Approaches for Supporting MPI-IO Atomicity*, section 4 (lock proxies).

use std::collections::{BTreeMap, HashMap};

use crate::hello::UpstreamSilent;
use crate::lease::ClientLease;
use crate::memory::{LOCK_BYTES, Memory, Room};
use crate::message::{
    LockId, LockRequest, Owner, PosixRequest, QueryRequest, ReassertRequest, Refusal, Reply, Request, SessionId, Token,
};

/// An idle lock older than this is given back: its client does something else now.
const IDLE_MS_MAX: u64 = 5_000;

/// A client is let in while at least this share of the proxy's lease is left: else it would be too busy with renewals.
const LEASE_SHARE_MIN: u32 = 4;

/// A client waits for the answer to a renewal before it sends the next one; who does not is answered so many.
const RENEWALS_OF_CLIENT: usize = 4;
/// Memory of a call or question under way, without its name.
const CALL_BYTES: usize = 256;
/// Memory of the name of an owner, which stays as long as its client.
const OWNER_BYTES: usize = 64;

/// What a relay wants sent.
#[derive(Clone, Debug, PartialEq)]
pub enum Send {
    /// To the service.
    Up(Request),
    /// To a client.
    Down(SessionId, Reply),
}

/// What a relay can promise to a client that comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The lease of its session, from when it said hello.
    pub ttl_ms: u32,
    /// What is left of the service's grace period.
    pub grace_ms: u32,
}

/// The state between the clients of a node and their service, for one session with the service.
///
/// ```
/// use elbow_lock::proxy::{Relay, Send};
/// use elbow_lock::{Reply, Request, SessionId};
///
/// let client = SessionId(1);
/// let mut relay = Relay::new(500, 8_000, 0); // the session was opened at 500, with a lease of 8 s
/// let terms = relay.open(1_000, client, 0).unwrap();
/// assert_eq!(terms.ttl_ms, 500 + 8_000 - 1_000 - 1_000); // less the margin, and what has passed
/// let mut sent = Vec::new();
/// relay.ask(1_100, client, Request::Renew { seq: 7 }, &mut sent);
/// let Send::Up(Request::Renew { seq }) = sent.remove(0) else { panic!("{sent:?}") };
/// relay.handle_reply(1_101, Reply::Renewed { seq }, &mut sent);
/// assert_eq!(sent, [Send::Down(client, Reply::Renewed { seq: 7 })]);
/// ```
#[derive(Debug)]
pub struct Relay {
    lease: ClientLease,
    ttl_ms: u32,
    grace_until_ms: u64,
    last_number: u64,
    clients: HashMap<SessionId, Client>,
    /// Locks, by their names at the service.
    entries: BTreeMap<LockId, Entry>,
    /// Other calls under way, by their names at the service.
    calls: HashMap<LockId, (SessionId, LockId, Room)>,
    statuses: HashMap<u64, (SessionId, u64, Room)>,
    renewing: Option<Renewal>,
    /// Renewals of clients that were heard after the one under way was sent.
    renewals_next: Vec<(SessionId, u64)>,
    memory: Memory,
}

#[derive(Debug)]
struct Client {
    /// Names at the service of its locks, by their own.
    locks: HashMap<LockId, LockId>,
    owners: HashMap<Owner, Owner>,
    /// For the names of its owners.
    room: Room,
}

#[derive(Debug)]
struct Entry {
    client: SessionId,
    /// The client's name for it, while it is asked for or held.
    id: LockId,
    /// As the service knows it.
    request: Request,
    /// The client wants to be told when somebody waits.
    tell: bool,
    /// How often it can be granted without asking for another token.
    grants_left: u64,
    state: EntryState,
    _room: Room,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryState {
    PendingLock,
    /// Asked for, and the cancellation is under way.
    Cancelled,
    Held {
        token: Token,
        wanted: bool,
    },
    Idle {
        token: Token,
        since_ms: u64,
    },
}

#[derive(Debug)]
struct Renewal {
    seq: u64,
    clients: Vec<(SessionId, u64)>,
}

impl Relay {
    /// For a session whose hello was sent at `opened_ms`, with its lease and grace period. The lease is not 0: what
    /// dies with its connection alone would leave nothing to the clients of a proxy that dies.
    ///
    /// # Panics
    /// When the lease is 0.
    #[must_use]
    pub fn new(opened_ms: u64, ttl_ms: u32, grace_ms: u32) -> Self {
        assert!(ttl_ms > 0, "a session of a proxy has a lease");
        Self {
            lease: ClientLease::new(ttl_ms, opened_ms),
            ttl_ms,
            grace_until_ms: opened_ms + u64::from(grace_ms),
            last_number: 0,
            clients: HashMap::new(),
            entries: BTreeMap::new(),
            calls: HashMap::new(),
            statuses: HashMap::new(),
            renewing: None,
            renewals_next: Vec::new(),
            memory: Memory::new(usize::MAX),
        }
    }

    /// Counts what it keeps against `memory`, which others may share.
    #[must_use]
    pub fn within(self, memory: Memory) -> Self {
        Self { memory, ..self }
    }

    /// A client has come, and asks for a lease (0: as long as it may be).
    ///
    /// # Errors
    /// When the service has not been heard for so long that there is little to promise.
    pub fn open(&mut self, now_ms: u64, client: SessionId, ttl_ms: u32) -> Result<Terms, UpstreamSilent> {
        // No client may believe longer in a lock than the service promises it to us.
        let left = if self.lease.check(now_ms) {
            self.lease.ends_at() - now_ms
        } else {
            0
        };
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        if left < self.ttl_ms / LEASE_SHARE_MIN {
            return Err(UpstreamSilent);
        }
        let opened = Client {
            locks: HashMap::new(),
            owners: HashMap::new(),
            room: self.memory.room(),
        };
        self.clients.insert(client, opened);
        let grace_ms = self.grace_until_ms.saturating_sub(now_ms);
        Ok(Terms {
            ttl_ms: if ttl_ms == 0 { left } else { left.min(ttl_ms) },
            grace_ms: u32::try_from(grace_ms).unwrap_or(u32::MAX),
        })
    }

    /// A client has gone: its locks are given back, its requests taken back.
    pub fn close(&mut self, client: SessionId, out: &mut Vec<Send>) {
        let Some(gone) = self.clients.remove(&client) else {
            return;
        };
        let of_client = |entry: &Entry| entry.client == client;
        let ids: Vec<LockId> = self
            .entries
            .iter()
            .filter(|(_, entry)| of_client(entry))
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            self.entries.remove(&id);
            // A cancellation ends it whether it was granted, waits, or is granted at this moment.
            out.push(Send::Up(Request::Cancel { id }));
        }
        for (up, _) in self.calls.extract_if(|_, (owner, ..)| *owner == client) {
            out.push(Send::Up(Request::Cancel { id: up }));
        }
        self.statuses.retain(|_, (owner, ..)| *owner != client);
        for owner in gone.owners.into_values() {
            out.push(Send::Up(Request::PosixRelease { owner, file: None }));
        }
    }

    /// What a client waits for is taken back; what it holds stays.
    pub fn take_back(&mut self, now_ms: u64, client: SessionId, out: &mut Vec<Send>) {
        let waits = |entry: &&Entry| entry.client == client && entry.state == EntryState::PendingLock;
        let waiting: Vec<LockId> = self.entries.values().filter(waits).map(|entry| entry.id).collect();
        for id in waiting {
            self.cancel(now_ms, client, id, out);
        }
        let calls = self.calls.iter().filter(|(_, (owner, ..))| *owner == client);
        out.extend(calls.map(|(up, _)| Send::Up(Request::Cancel { id: *up })));
    }

    /// Whether a client may hold something. Who holds what of POSIX locks only the service knows.
    #[must_use]
    pub fn may_hold(&self, client: SessionId) -> bool {
        let client = self.clients.get(&client);
        client.is_some_and(|client| !client.locks.is_empty() || !client.owners.is_empty())
    }

    /// A client asks.
    pub fn ask(&mut self, now_ms: u64, client: SessionId, request: Request, out: &mut Vec<Send>) {
        // Its last words may come after its end.
        if !self.clients.contains_key(&client) {
            return;
        }
        if !self.make_room(bytes_of(&request), out) {
            return self.refuse(client, &request, out);
        }
        match request {
            Request::Lock(lock) => self.lock(now_ms, client, lock, out),
            Request::Reassert(ReassertRequest { id, recall, .. }) => {
                let up = self.number();
                let request = self.renamed(client, up, request);
                self.enter(client, id, up, recall, request.clone());
                out.push(Send::Up(request));
            }
            Request::Unlock { id } => self.unlock(now_ms, client, id, out),
            Request::Cancel { id } => self.cancel(now_ms, client, id, out),
            Request::Posix(PosixRequest { id, .. }) | Request::Query(QueryRequest { id, .. }) => {
                let up = self.number();
                let room = self.room(bytes_of(&request));
                self.calls.insert(up, (client, id, room));
                let request = self.renamed(client, up, request);
                out.push(Send::Up(request));
            }
            Request::PosixRelease { owner, file } => {
                // An owner that has asked for nothing has nothing.
                let owner = self
                    .clients
                    .get(&client)
                    .and_then(|client| client.owners.get(&owner))
                    .copied();
                out.extend(owner.map(|owner| Send::Up(Request::PosixRelease { owner, file })));
            }
            Request::Renew { seq } => {
                let of_client = self.renewals_next.iter().filter(|(other, _)| *other == client);
                // Each is kept until the service has answered, so there has to be a bound.
                if of_client.count() < RENEWALS_OF_CLIENT {
                    self.renewals_next.push((client, seq));
                    self.renew(now_ms, out);
                }
            }
            Request::Status { seq } => {
                let up = self.number().0;
                self.statuses.insert(up, (client, seq, self.room(bytes_of(&request))));
                out.push(Send::Up(Request::Status { seq: up }));
            }
            Request::Look { seq, ref file } => {
                let (up, file) = (self.number().0, file.clone());
                self.statuses.insert(up, (client, seq, self.room(bytes_of(&request))));
                out.push(Send::Up(Request::Look { seq: up, file }));
            }
            Request::Break { seq, .. } => {
                // To the service it would be the proxy's own word, and its user's.
                let why = "a proxy breaks no locks: ask the service itself, over its Unix socket".to_owned();
                out.push(Send::Down(client, Reply::Denied { seq, why }));
            }
            Request::Close => self.close(client, out),
        }
    }

    /// The service has said something.
    pub fn handle_reply(&mut self, now_ms: u64, reply: Reply, out: &mut Vec<Send>) {
        match reply {
            Reply::Granted { id: up, token } => self.granted(up, token, out),
            Reply::Refused { id: up, why } => {
                if let Some((client, id)) = self.forget(up) {
                    out.push(Send::Down(client, Reply::Refused { id, why }));
                }
            }
            Reply::Recall { id: up } => self.recall(up, out),
            Reply::Answer { id: up, blocker } => {
                if let Some((client, id, _)) = self.calls.remove(&up) {
                    out.push(Send::Down(client, Reply::Answer { id, blocker }));
                }
            }
            Reply::Renewed { seq } => self.renewed(now_ms, seq, out),
            Reply::Status { seq, json } => {
                if let Some((client, seq, _)) = self.statuses.remove(&seq) {
                    out.push(Send::Down(client, Reply::Status { seq, json }));
                }
            }
            Reply::FileLocks { seq, seen } => {
                if let Some((client, seq, _)) = self.statuses.remove(&seq) {
                    out.push(Send::Down(client, Reply::FileLocks { seq, seen }));
                }
            }
            Reply::Broken { .. } | Reply::Denied { .. } => {} // It asks for no such thing.
            // Their locks were those of our session.
            Reply::Lost { why } => {
                // Each has its session with us, and all end with ours.
                let clients = self.clients.keys().copied();
                out.extend(clients.map(|client| Send::Down(client, Reply::Lost { why: why.clone() })));
            }
        }
    }

    /// Does what is due: renews the session, gives back what has been idle for long. False when the session is over:
    /// then tell all clients before anything else.
    #[must_use]
    pub fn tick(&mut self, now_ms: u64, out: &mut Vec<Send>) -> bool {
        self.give_back_old(now_ms, out);
        if !self.lease.check(now_ms) {
            return false;
        }
        if self.renewing.is_none() && self.lease.renew_at().is_some_and(|at| now_ms >= at) {
            self.renew_now(now_ms, out);
        }
        true
    }

    /// When to call [`tick`](Self::tick) at the latest.
    #[must_use]
    pub fn deadline(&self) -> u64 {
        let renewal = self.lease.renew_at().filter(|_| self.renewing.is_none());
        let idle = self.entries.values().filter_map(|entry| match entry.state {
            EntryState::Idle { since_ms, .. } => Some(since_ms + IDLE_MS_MAX),
            _ => None,
        });
        idle.chain(renewal).chain([self.lease.ends_at()]).min().unwrap_or(0)
    }

    fn give_back_old(&mut self, now_ms: u64, out: &mut Vec<Send>) {
        self.give_back(
            out,
            |entry| matches!(entry.state, EntryState::Idle { since_ms, .. } if now_ms >= since_ms + IDLE_MS_MAX),
        );
    }

    /// Locks that the proxy keeps for clients who have given them back.
    #[cfg(test)]
    fn idle(&self) -> usize {
        self.entries
            .values()
            .filter(|entry| matches!(entry.state, EntryState::Idle { .. }))
            .count()
    }

    fn lock(&mut self, now_ms: u64, client: SessionId, mut lock: LockRequest, out: &mut Vec<Send>) {
        let (id, tell) = (lock.id, lock.recall);
        let up = self.number();
        (lock.id, lock.owner, lock.recall) = (up, self.owner(client, lock.owner), true);
        if let Some((&kept, entry)) = self.entries.iter_mut().find(|(_, entry)| entry.can_be(client, &lock)) {
            let EntryState::Idle { token, .. } = entry.state else {
                return;
            };
            // So that what the last holder still sends is told from it: a grant that may be kept has several tokens.
            let token = Token(token.0 + 1);
            entry.grants_left -= 1;
            (entry.id, entry.tell, entry.state) = (id, tell, EntryState::Held { token, wanted: false });
            self.name(client, id, kept);
            out.push(Send::Down(client, Reply::Granted { id, token }));
            return;
        }
        // It may have to wait now: what is only kept for its owner would be a part of a deadlock to the service.
        let owner = lock.owner;
        self.give_back(out, |entry| {
            matches!(entry.state, EntryState::Idle { .. }) && owner_of(&entry.request) == Some(owner)
        });
        self.give_back_old(now_ms, out);
        self.enter(client, id, up, tell, Request::Lock(lock.clone()));
        out.push(Send::Up(Request::Lock(lock)));
    }

    fn unlock(&mut self, now_ms: u64, client: SessionId, id: LockId, out: &mut Vec<Send>) {
        let Some(up) = self
            .clients
            .get_mut(&client)
            .and_then(|client| client.locks.remove(&id))
        else {
            return;
        };
        let Some(entry) = self.entries.get_mut(&up) else { return };
        match entry.state {
            // Its client may want it again at once; somebody who waits for it comes first.
            EntryState::Held { token, wanted: false } if matches!(entry.request, Request::Lock(_)) => {
                entry.state = EntryState::Idle {
                    token,
                    since_ms: now_ms,
                };
            }
            _ => {
                self.entries.remove(&up);
                out.push(Send::Up(Request::Unlock { id: up }));
            }
        }
    }

    fn cancel(&mut self, now_ms: u64, client: SessionId, id: LockId, out: &mut Vec<Send>) {
        let up = self
            .clients
            .get(&client)
            .and_then(|client| client.locks.get(&id))
            .copied();
        match up.and_then(|up| self.entries.get(&up)).map(|entry| entry.state) {
            // The cancellation has crossed with the grant.
            Some(EntryState::Held { .. }) => self.unlock(now_ms, client, id, out),
            Some(_) => {
                if let Some((up, entry)) = up.and_then(|up| Some((up, self.entries.get_mut(&up)?))) {
                    entry.state = EntryState::Cancelled;
                    out.push(Send::Up(Request::Cancel { id: up }));
                }
            }
            None => {
                let call = self.calls.iter().find(|(_, call)| (call.0, call.1) == (client, id));
                out.extend(call.map(|(up, _)| Send::Up(Request::Cancel { id: *up })));
            }
        }
    }

    fn granted(&mut self, up: LockId, token: Token, out: &mut Vec<Send>) {
        if let Some((client, id, _)) = self.calls.remove(&up) {
            out.push(Send::Down(client, Reply::Granted { id, token }));
        } else if self
            .entries
            .get(&up)
            .is_some_and(|entry| entry.state == EntryState::Cancelled)
        {
            // The service gives it back when it reads the cancellation: from then on it is not ours to keep.
            let why = Refusal::Cancelled;
            let refused = self.forget(up);
            out.extend(refused.map(|(client, id)| Send::Down(client, Reply::Refused { id, why })));
        } else if let Some(entry) = self.entries.get_mut(&up) {
            entry.state = EntryState::Held { token, wanted: false };
            out.push(Send::Down(entry.client, Reply::Granted { id: entry.id, token }));
            let owner = owner_of(&entry.request);
            // What its owner held already has smaller tokens, and whoever it is in the way of will have called it back.
            let others = self
                .entries
                .iter_mut()
                .filter(|(id, other)| **id != up && owner_of(&other.request) == owner);
            others.for_each(|(_, other)| other.grants_left = 0);
        }
        // Else its client has gone, and it was cancelled: that gives back what was granted.
    }

    fn recall(&mut self, up: LockId, out: &mut Vec<Send>) {
        let Some(entry) = self.entries.get_mut(&up) else { return };
        match &mut entry.state {
            // Nobody uses it, so nobody is asked.
            EntryState::Idle { .. } => {
                self.entries.remove(&up);
                out.push(Send::Up(Request::Unlock { id: up }));
            }
            EntryState::Held { wanted, .. } => {
                *wanted = true;
                if entry.tell {
                    out.push(Send::Down(entry.client, Reply::Recall { id: entry.id }));
                }
            }
            EntryState::PendingLock | EntryState::Cancelled => {}
        }
    }

    fn renewed(&mut self, now_ms: u64, seq: u64, out: &mut Vec<Send>) {
        let Some(renewal) = self.renewing.take_if(|renewal| renewal.seq == seq) else {
            return;
        };
        self.lease.answered(seq);
        for (client, seq) in renewal.clients {
            out.push(Send::Down(client, Reply::Renewed { seq }));
        }
        // They were heard after this one was sent, so it does not count for them.
        if !self.renewals_next.is_empty() {
            self.renew_now(now_ms, out);
        }
    }

    /// A client wants to be renewed: by the next renewal, for the one under way was sent before.
    fn renew(&mut self, now_ms: u64, out: &mut Vec<Send>) {
        if self.renewing.is_none() {
            self.renew_now(now_ms, out);
        }
    }

    /// Renews the session, and with it those clients whose renewals wait for one.
    fn renew_now(&mut self, now_ms: u64, out: &mut Vec<Send>) {
        let seq = self.number().0;
        let clients = std::mem::take(&mut self.renewals_next);
        self.renewing = Some(Renewal { seq, clients });
        self.lease.sent(now_ms, seq);
        out.push(Send::Up(Request::Renew { seq }));
    }

    /// Unlocks entries at the service.
    fn give_back(&mut self, out: &mut Vec<Send>, which: impl Fn(&Entry) -> bool) {
        self.entries.retain(|&id, entry| {
            let goes = which(entry);
            if goes {
                out.push(Send::Up(Request::Unlock { id }));
            }
            !goes
        });
    }

    fn enter(&mut self, client: SessionId, id: LockId, up: LockId, tell: bool, request: Request) {
        self.name(client, id, up);
        let (state, room) = (EntryState::PendingLock, self.room(bytes_of(&request)));
        self.entries.insert(
            up,
            Entry {
                client,
                id,
                request,
                tell,
                grants_left: Token::OF_KEPT - 1,
                state,
                _room: room,
            },
        );
    }

    fn name(&mut self, client: SessionId, id: LockId, up: LockId) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.locks.insert(id, up);
        }
    }

    /// An answer has ended a lock or a call: whose, and its name there.
    fn forget(&mut self, up: LockId) -> Option<(SessionId, LockId)> {
        if let Some((client, id, _)) = self.calls.remove(&up) {
            return Some((client, id));
        }
        let Entry { client, id, .. } = self.entries.remove(&up)?;
        self.clients.get_mut(&client)?.locks.remove(&id);
        Some((client, id))
    }

    /// A client's request with names that hold at the service.
    fn renamed(&mut self, client: SessionId, up: LockId, mut request: Request) -> Request {
        match &mut request {
            Request::Reassert(lock) => {
                (lock.id, lock.owner, lock.recall) = (up, self.owner(client, lock.owner), true);
            }
            Request::Posix(lock) => (lock.id, lock.owner) = (up, self.owner(client, lock.owner)),
            Request::Query(query) => (query.id, query.owner) = (up, self.owner(client, query.owner)),
            _ => {}
        }
        request
    }

    fn owner(&mut self, client: SessionId, owner: Owner) -> Owner {
        let next = self.last_number + 1;
        let Some(client) = self.clients.get_mut(&client) else {
            return Owner(0);
        };
        let name = *client.owners.entry(owner).or_insert_with(|| {
            self.last_number = next;
            Owner(next)
        });
        // Names of owners are never forgotten while the client is there, so they count.
        client.room.set(client.owners.len() * OWNER_BYTES);
        name
    }

    fn room(&self, bytes: usize) -> Room {
        let mut room = self.memory.room();
        room.set(bytes);
        room
    }

    /// Whether there is room for so much more, when what is kept for nobody has been given back.
    fn make_room(&mut self, bytes: usize, out: &mut Vec<Send>) -> bool {
        // What is kept is only there to save a round trip.
        if bytes > 0 && !self.memory.has(bytes) {
            self.give_back(out, |entry| matches!(entry.state, EntryState::Idle { .. }));
        }
        bytes == 0 || self.memory.has(bytes)
    }

    /// Answers a request for which there is no room.
    fn refuse(&self, client: SessionId, request: &Request, out: &mut Vec<Send>) {
        let why = full(self.memory.bytes_max());
        let reply = match *request {
            Request::Lock(LockRequest { id, .. })
            | Request::Reassert(ReassertRequest { id, .. })
            | Request::Posix(PosixRequest { id, .. })
            | Request::Query(QueryRequest { id, .. }) => Reply::Refused { id, why },
            Request::Status { seq } | Request::Look { seq, .. } => Reply::Denied {
                seq,
                why: why.to_string(),
            },
            // They take nothing.
            Request::Unlock { .. }
            | Request::Cancel { .. }
            | Request::PosixRelease { .. }
            | Request::Renew { .. }
            | Request::Break { .. }
            | Request::Close => return,
        };
        out.push(Send::Down(client, reply));
    }

    fn number(&mut self) -> LockId {
        self.last_number += 1;
        LockId(self.last_number)
    }
}

impl Entry {
    /// Whether it is idle and what `client` asks for now.
    fn can_be(&self, client: SessionId, asked: &LockRequest) -> bool {
        let is_the_same = matches!(&self.request, Request::Lock(lock) if lock.is_for_the_same(asked));
        // Of a lock that has no tokens left another grant could not be told from the last.
        let can_be_granted = matches!(self.state, EntryState::Idle { .. }) && self.grants_left > 0;
        self.client == client && can_be_granted && is_the_same
    }
}

/// That a proxy with so much memory has none left.
pub(super) fn full(bytes_max: usize) -> Refusal {
    let limit =
        format!("{bytes_max} bytes of memory in the lock proxy of this node; --memory of elbow lockd proxy raises it");
    Refusal::Full { limit }
}

/// What a request makes a relay keep.
fn bytes_of(request: &Request) -> usize {
    if let Some((_, file, footprint)) = request.list() {
        return LOCK_BYTES + OWNER_BYTES + file.as_bytes().len() + footprint.heap_bytes();
    }
    match request {
        Request::Posix(PosixRequest { file, .. })
        | Request::Query(QueryRequest { file, .. })
        | Request::Look { file, .. } => CALL_BYTES + OWNER_BYTES + file.as_bytes().len(),
        Request::Status { .. } => CALL_BYTES,
        _ => 0,
    }
}

fn owner_of(request: &Request) -> Option<Owner> {
    match request {
        Request::Lock(lock) => Some(lock.owner),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use elbow_ranges::Footprint;

    use super::*;
    use crate::message::{FileName, LockMode, Wait};

    const ONE: SessionId = SessionId(1);
    const TWO: SessionId = SessionId(2);

    fn lock(id: u64, start: u64) -> Request {
        Request::Lock(LockRequest {
            id: LockId(id),
            owner: Owner(1),
            file: FileName::new(b"/f").unwrap(),
            mode: LockMode::Exclusive,
            footprint: Footprint::extent(start..start + 10).unwrap(),
            wait: Wait::Forever,
            recall: false,
        })
    }

    /// Asks, and returns what was sent.
    fn ask(relay: &mut Relay, client: SessionId, request: Request) -> Vec<Send> {
        let mut out = Vec::new();
        relay.ask(0, client, request, &mut out);
        out
    }

    fn handle_reply(relay: &mut Relay, reply: Reply) -> Vec<Send> {
        let mut out = Vec::new();
        relay.handle_reply(0, reply, &mut out);
        out
    }

    /// The name at the service of the lock that was asked for.
    fn asked(sent: &[Send]) -> LockId {
        match sent {
            [.., Send::Up(Request::Lock(LockRequest { id, recall: true, .. }))] => *id,
            other => panic!("no lock was asked for: {other:?}"),
        }
    }

    fn with_two() -> Relay {
        let mut relay = Relay::new(0, 100_000, 0);
        relay.open(0, ONE, 0).unwrap();
        relay.open(0, TWO, 0).unwrap();
        relay
    }

    /// Client 1 holds 0..10 as its lock 5; the name of that at the service.
    fn held(relay: &mut Relay) -> LockId {
        let up = asked(&ask(relay, ONE, lock(5, 0)));
        let token = Token(9);
        let sent = handle_reply(relay, Reply::Granted { id: up, token });
        assert_eq!(sent, [Send::Down(ONE, Reply::Granted { id: LockId(5), token })]);
        up
    }

    #[test]
    fn equal_names_of_two_clients_are_two_locks_of_two_owners() {
        let mut relay = with_two();
        let first = ask(&mut relay, ONE, lock(5, 0));
        let second = ask(&mut relay, TWO, lock(5, 0));
        assert_ne!(asked(&first), asked(&second));
        let owner = |sent: &[Send]| match sent {
            [Send::Up(request)] => owner_of(request),
            _ => None,
        };
        assert_ne!(owner(&first), owner(&second));
        let sent = handle_reply(
            &mut relay,
            Reply::Refused {
                id: asked(&second),
                why: Refusal::TimedOut,
            },
        );
        assert_eq!(
            sent,
            [Send::Down(
                TWO,
                Reply::Refused {
                    id: LockId(5),
                    why: Refusal::TimedOut
                }
            )]
        );
    }

    #[test]
    fn the_same_lock_again_needs_no_service() {
        let mut relay = with_two();
        held(&mut relay);
        assert_eq!(ask(&mut relay, ONE, Request::Unlock { id: LockId(5) }), []);
        let granted = Reply::Granted {
            id: LockId(6),
            token: Token(10),
        };
        assert_eq!(ask(&mut relay, ONE, lock(6, 0)), [Send::Down(ONE, granted)]);
        // Nobody else gets it so.
        assert!(matches!(ask(&mut relay, TWO, lock(1, 0))[..], [Send::Up(_)]));
    }

    /// The story: all grants of a lock that the proxy kept had the same token, and a storage could not tell a late write of the first.
    #[test]
    fn each_grant_of_a_kept_lock_has_a_token_of_its_own() {
        let mut relay = with_two();
        let up = held(&mut relay);
        for n in 1..Token::OF_KEPT {
            ask(&mut relay, ONE, Request::Unlock { id: LockId(5) });
            let (id, token) = (LockId(5), Token(9 + n));
            let granted = Reply::Granted { id, token };
            assert_eq!(ask(&mut relay, ONE, lock(5, 0)), [Send::Down(ONE, granted)]);
        }
        ask(&mut relay, ONE, Request::Unlock { id: LockId(5) });
        let sent = ask(&mut relay, ONE, lock(5, 0));
        assert_eq!(sent[0], Send::Up(Request::Unlock { id: up }), "its tokens are used up");
        asked(&sent);
    }

    #[test]
    fn an_idle_lock_is_given_back_when_called_when_old_and_before_its_owner_may_wait() {
        for how in 0..3 {
            let mut relay = with_two();
            let up = held(&mut relay);
            ask(&mut relay, ONE, Request::Unlock { id: LockId(5) });
            assert_eq!(relay.idle(), 1);
            let sent = match how {
                0 => handle_reply(&mut relay, Reply::Recall { id: up }),
                1 => ask(&mut relay, ONE, lock(7, 100)),
                _ => {
                    let mut out = Vec::new();
                    assert!(relay.tick(IDLE_MS_MAX, &mut out));
                    out
                }
            };
            assert_eq!(sent[0], Send::Up(Request::Unlock { id: up }), "{how}");
            assert_eq!(relay.idle(), 0);
        }
    }

    #[test]
    fn a_lock_that_is_wanted_is_not_kept() {
        let mut relay = with_two();
        let up = held(&mut relay);
        assert_eq!(handle_reply(&mut relay, Reply::Recall { id: up }), []);
        let sent = ask(&mut relay, ONE, Request::Unlock { id: LockId(5) });
        assert_eq!(sent, [Send::Up(Request::Unlock { id: up })]);
    }

    /// The story: a grant that crossed its cancellation was given back by the service, which reads the cancellation after it; the
    /// client gave it back too, and the proxy kept it, and gave it to the same client again while another held it.
    #[test]
    fn what_is_granted_after_its_cancellation_is_not_kept() {
        let mut relay = with_two();
        let up = asked(&ask(&mut relay, ONE, lock(5, 0)));
        let cancel = ask(&mut relay, ONE, Request::Cancel { id: LockId(5) });
        assert_eq!(cancel, [Send::Up(Request::Cancel { id: up })]);
        let token = Token(9);
        let sent = handle_reply(&mut relay, Reply::Granted { id: up, token });
        let (id, why) = (LockId(5), Refusal::Cancelled);
        assert_eq!(sent, [Send::Down(ONE, Reply::Refused { id, why })]);
        assert_eq!(ask(&mut relay, ONE, Request::Unlock { id }), []);
        assert_eq!(relay.idle(), 0);
        asked(&ask(&mut relay, ONE, lock(6, 0)));
    }

    /// Every way out gives back what it took.
    #[test]
    fn a_full_proxy_gives_back_what_is_idle_before_it_refuses() {
        let one = bytes_of(&lock(5, 0));
        let memory = Memory::new(2 * one + 2 * OWNER_BYTES);
        let mut relay = Relay::new(0, 100_000, 0).within(memory.clone());
        relay.open(0, ONE, 0).unwrap();
        relay.open(0, TWO, 0).unwrap();
        let up = held(&mut relay);
        let idle = asked(&ask(&mut relay, ONE, lock(6, 50)));
        handle_reply(
            &mut relay,
            Reply::Granted {
                id: idle,
                token: Token(10),
            },
        );
        assert_eq!(ask(&mut relay, ONE, Request::Unlock { id: LockId(6) }), []);
        assert_eq!(relay.idle(), 1);
        let sent = ask(&mut relay, TWO, lock(5, 90));
        assert_eq!(sent[0], Send::Up(Request::Unlock { id: idle }));
        let other = asked(&sent);
        let sent = ask(&mut relay, TWO, lock(6, 70));
        let [Send::Down(TWO, Reply::Refused { id: LockId(6), why })] = &sent[..] else {
            panic!("{sent:?}")
        };
        assert!(why.to_string().contains("--memory of elbow lockd proxy"), "{why}");
        let sent = ask(&mut relay, TWO, Request::Status { seq: 7 });
        assert!(
            matches!(sent[..], [Send::Down(TWO, Reply::Denied { seq: 7, .. })]),
            "{sent:?}"
        );
        assert!(!ask(&mut relay, ONE, Request::Renew { seq: 8 }).is_empty());
        handle_reply(
            &mut relay,
            Reply::Refused {
                id: other,
                why: Refusal::TimedOut,
            },
        );
        asked(&ask(&mut relay, TWO, lock(6, 70)));
        ask(&mut relay, TWO, Request::Close);
        handle_reply(&mut relay, Reply::Recall { id: up });
        ask(&mut relay, ONE, Request::Unlock { id: LockId(5) });
        relay.close(ONE, &mut Vec::new());
        assert_eq!(memory.used_bytes(), 0);
    }

    #[test]
    fn a_client_that_goes_leaves_nothing() {
        let mut relay = with_two();
        let up = held(&mut relay);
        let waiting = asked(&ask(&mut relay, ONE, lock(6, 50)));
        let mut out = Vec::new();
        relay.close(ONE, &mut out);
        for id in [up, waiting] {
            assert!(out.contains(&Send::Up(Request::Cancel { id })), "{id:?} in {out:?}");
        }
        // A grant that crosses the cancellation goes nowhere; the cancellation gives it back.
        assert_eq!(
            handle_reply(
                &mut relay,
                Reply::Granted {
                    id: waiting,
                    token: Token(10)
                }
            ),
            []
        );
        assert!(relay.entries.is_empty());
    }

    #[test]
    fn a_client_is_renewed_only_by_a_renewal_sent_after_its_own_was_heard() {
        let mut relay = with_two();
        let sent = ask(&mut relay, ONE, Request::Renew { seq: 70 });
        let [Send::Up(Request::Renew { seq: first })] = sent[..] else {
            panic!("{sent:?}")
        };
        assert_eq!(ask(&mut relay, TWO, Request::Renew { seq: 80 }), [], "one is under way");
        let sent = handle_reply(&mut relay, Reply::Renewed { seq: first });
        let [
            Send::Down(ONE, Reply::Renewed { seq: 70 }),
            Send::Up(Request::Renew { seq: second }),
        ] = sent[..]
        else {
            panic!("{sent:?}")
        };
        assert_eq!(
            handle_reply(&mut relay, Reply::Renewed { seq: second }),
            [Send::Down(TWO, Reply::Renewed { seq: 80 })]
        );
    }
    /// The story: each client was given the whole lease that the proxy once had. A proxy that stood still could not tell it
    /// when that ended, which was up to a quarter of a lease earlier.
    #[test]
    fn a_client_is_promised_what_is_left_and_not_let_in_when_that_is_little() {
        let mut relay = Relay::new(1_000, 8_000, 3_000);
        let terms = |relay: &mut Relay, now_ms, ttl_ms| relay.open(now_ms, ONE, ttl_ms);
        let of = |ttl_ms, grace_ms| Ok(Terms { ttl_ms, grace_ms });
        assert_eq!(terms(&mut relay, 1_000, 0), of(7_000, 3_000));
        assert_eq!(terms(&mut relay, 3_500, 0), of(4_500, 500));
        assert_eq!(terms(&mut relay, 3_500, 2_000), of(2_000, 500));
        assert_eq!(terms(&mut relay, 6_000, 0), of(2_000, 0));
        assert!(terms(&mut relay, 6_001, 0).is_err());
    }
}
