//! What a client knows of its session and its locks, without a socket, a thread or a clock: the blocking client, the fcntl
//! library and the simulation all act on it.
//!
//! ```text
//!   ask ----------> calls --- handle_replies: answered --> take
//!                     |                            |  granted: only while the lease and the link are good
//!                     '--- handle_replies: granted ---> holds --- standing: ours, unknown, lost
//!
//!   link:   up --- disconnected, lease over ---> down --- connect ---> connecting
//!           ^                              ^ failed: all is lost    |
//!           '---- connected: what was unanswered is asked again, ---'
//!                 what was held is asserted or lost
//! ```
//!
//! Whoever drives it says what happened and when, and sends what it returns over the link that is current at that moment.
//! Between two of its steps a thread may stop for as long as it likes, so no step believes in what the one before found:
//! each brings the time, and what was heard brings the number of the link over which it came.
//!
//! Invariants: a call is known from before it is sent until its answer is taken. A hold is known from the moment at which its
//! grant is heard (not when its caller wakes) until it is released, so that a break in between is seen. Nothing is ours over a
//! link that is not up, or a lease that is over.
//!
//! Not here: sockets and threads (`session`, `link`), when a lease ends (`lease`), what a lock means (`table`).
//!
//! Source: Gray and Cheriton, *Leases*, SOSP 1989, section 2.

use std::collections::{BTreeMap, BTreeSet};

use crate::lease::{ClientLease, margin_ms};
use crate::message::{LockId, Owner, Refusal, Reply, Request, Token, Wait};

/// How long a service that went away is looked for by a client that holds nothing, ms.
pub const RECONNECT_MS: u64 = 15_000;

/// A client's session with a lock service, over one link after another.
///
/// ```
/// use elbow_lock::{Call, ClientCore, FileName, LockId, LockMode, LockRequest, Opened, Owner, Reply, Request, Standing, Taken, Token, Wait};
/// use elbow_ranges::Footprint;
///
/// let opened = Opened { at_ms: 0, ttl_ms: 800, epoch: 1, grace_ms: 0, grace_ms_max: 800 };
/// let mut core = ClientCore::new(opened, 0);
/// let id = LockId(core.number());
/// let request = Request::Lock(LockRequest {
///     id,
///     owner: Owner(1),
///     file: FileName::new(b"/data/grid").unwrap(),
///     mode: LockMode::Exclusive,
///     footprint: Footprint::whole(),
///     wait: Wait::Forever,
///     recall: false,
/// });
/// let link = core.ask(Call::Lock(id), request).expect("the link is up: send it");
/// core.handle_replies(link, 10, [Reply::Granted { id, token: Token(7) }]);
/// assert_eq!(core.take(Call::Lock(id), 20), Taken::Answer(Reply::Granted { id, token: Token(7) }));
/// assert_eq!(core.standing(id, 699), Standing::Ours(Token(7)));
/// assert_eq!(core.standing(id, 700), Standing::Unknown); // an eighth of the lease before its end
/// ```
#[derive(Clone, Debug)]
pub struct ClientCore {
    link: LinkState,
    last_link: u64,
    calls: BTreeMap<Call, Pending>,
    holds: BTreeMap<LockId, Held>,
    posix: Posix,
    last_number: u64,
    lease: Option<ClientLease>,
    /// Of sessions that the service has ended: the holds that have not been given back.
    farewells: BTreeMap<LinkNumber, BTreeSet<LockId>>,
}

/// One of a client's links, in the order in which they were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkNumber(u64);

/// What a service said when it let a client in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// When the hello was sent, by the client's clock.
    pub at_ms: u64,
    /// The lease, ms; 0: as long as the connection.
    pub ttl_ms: u32,
    /// Which incarnation of the service it is.
    pub epoch: u32,
    /// For how long locks of the incarnation before may still be asserted, ms.
    pub grace_ms: u32,
    /// For how long they may be asserted to the next one after it has started, ms.
    pub grace_ms_max: u32,
}

/// What an answer is an answer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// A lock, a POSIX lock or a query.
    Lock(LockId),
    /// A renewal or a question for the status.
    Number(u64),
}

/// What became of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Taken {
    /// The service's answer. A lock that was granted is good at this moment.
    Answer(Reply),
    /// The service is gone: why.
    Failed(String),
    /// It is not answered, or the link is not up.
    NotYet,
    /// It was granted and lost before its caller knew; it has been asked again: to be sent if the link is up.
    AskAgain(Request),
}

/// Whether a lock may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its token.
    Ours(Token),
    /// The link has to be made again before anybody can say.
    Unknown,
    /// For good: why.
    Lost(String),
}

/// What follows from what was heard.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplyEffects {
    /// To be sent over the same link.
    pub send: Vec<Request>,
    /// Calls whose answers can be taken.
    pub answered: Vec<Call>,
}

#[derive(Clone, Debug)]
enum LinkState {
    Up {
        number: LinkNumber,
        epoch: u32,
        grace_ms_max: u32,
    },
    Down(Break),
    Connecting(Break),
}

/// How the last link ended.
#[derive(Clone, Debug)]
struct Break {
    why: String,
    last_epoch: u32,
    /// What was held may be asserted to the next incarnation of the service as long as it lasts (none: it has no end).
    lease: Option<ClientLease>,
    /// Until then the next service waits for those who hold something, ms.
    patience_until_ms: u64,
}

#[derive(Clone, Debug)]
struct Pending {
    request: Request,
    outcome: Option<Result<Reply, String>>,
    /// A cancellation is under way. If the link ends before it is answered, nobody asks again.
    is_cancelled: bool,
}

#[derive(Clone, Debug)]
struct Held {
    request: Request,
    token: Token,
    is_wanted: bool,
    /// Its caller did not want it any more when it had been granted: it is not asked for again.
    is_given_up: bool,
    state: HoldState,
}

#[derive(Clone, Debug)]
enum HoldState {
    Ours,
    Reasserting,
    Lost(String),
}

/// POSIX locks cannot be asserted to the next service: it would not know in which order they were taken and split.
#[derive(Clone, Debug)]
enum Posix {
    NoneYet,
    Held,
    Lost(String),
}

impl ClientCore {
    /// A session over its first link, whose requests have numbers above `last_number`.
    #[must_use]
    pub fn new(opened: Opened, last_number: u64) -> Self {
        Self {
            link: up(LinkNumber(1), &opened),
            last_link: 1,
            calls: BTreeMap::new(),
            holds: BTreeMap::new(),
            posix: Posix::NoneYet,
            last_number,
            lease: lease_of(&opened),
            farewells: BTreeMap::new(),
        }
    }

    /// The link over which requests go out now; none while it is down.
    #[must_use]
    pub fn link(&self) -> Option<LinkNumber> {
        match self.link {
            LinkState::Up { number, .. } => Some(number),
            LinkState::Down(_) | LinkState::Connecting(_) => None,
        }
    }

    /// Whether somebody is connecting.
    #[must_use]
    pub fn is_connecting(&self) -> bool {
        matches!(self.link, LinkState::Connecting(_))
    }

    /// A number for the next request.
    pub fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Notes a request that will be answered, and says over which link to send it; while that is down, whoever connects sends
    /// it. One that waits for ever fails where its owner has yet to give back what somebody broke: it could wait for that.
    pub fn ask(&mut self, call: Call, request: Request) -> Option<LinkNumber> {
        let outcome = self.owes(&request).map(Err);
        let is_failed = outcome.is_some();
        let pending = Pending {
            request,
            outcome,
            is_cancelled: false,
        };
        self.calls.insert(call, pending);
        self.link().filter(|_| !is_failed)
    }

    /// Whether the service has answered a call, or it has failed.
    #[must_use]
    pub fn is_answered(&self, call: Call) -> bool {
        self.calls.get(&call).is_some_and(|pending| pending.outcome.is_some())
    }

    /// Takes what became of a call.
    #[must_use]
    pub fn take(&mut self, call: Call, now_ms: u64) -> Taken {
        self.check_lease(now_ms);
        let outcome = self.calls.get(&call).and_then(|pending| pending.outcome.as_ref());
        match outcome {
            None => Taken::NotYet,
            Some(Ok(Reply::Granted { id, .. })) => match *id {
                id if self.holds.contains_key(&id) => self.take_hold(id),
                _ => self.take_posix(call),
            },
            Some(_) => self.take_as_it_is(call),
        }
    }

    /// Nobody waits for a call any more.
    pub fn forget(&mut self, call: Call) {
        self.calls.remove(&call);
    }

    /// Whether a lock may be used. Once it is not ours by our clock, it is not until the service has been asked.
    #[must_use]
    pub fn standing(&mut self, id: LockId, now_ms: u64) -> Standing {
        self.check_lease(now_ms);
        self.standing_at(id, now_ms)
    }

    /// As [`standing`](Self::standing), for one that only watches: nothing follows from it.
    #[must_use]
    pub fn standing_at(&self, id: LockId, now_ms: u64) -> Standing {
        let Some(held) = self.holds.get(&id) else {
            return Standing::Lost("it was released".to_owned());
        };
        match &held.state {
            HoldState::Lost(why) => Standing::Lost(why.clone()),
            HoldState::Ours if self.is_good_at(now_ms) => Standing::Ours(held.token),
            HoldState::Ours | HoldState::Reasserting => Standing::Unknown,
        }
    }

    /// Why POSIX locks are lost, if they are.
    #[must_use]
    pub fn posix_lost(&mut self, now_ms: u64) -> Option<&str> {
        self.check_lease(now_ms);
        match &self.posix {
            Posix::Lost(why) => Some(why),
            Posix::NoneYet | Posix::Held => None,
        }
    }

    /// Whether POSIX locks are held that may be used, for one that only watches.
    #[must_use]
    pub fn has_posix_at(&self, now_ms: u64) -> bool {
        matches!(self.posix, Posix::Held) && self.is_good_at(now_ms)
    }

    /// Whether the service said that somebody waits for a lock that is held.
    #[must_use]
    pub fn is_wanted(&self, id: LockId) -> bool {
        self.holds.get(&id).is_some_and(|held| held.is_wanted)
    }

    /// Cancels a call whose caller goes on waiting for the service's word; returns what to send.
    #[must_use]
    pub fn cancel(&mut self, call: Call) -> Option<Request> {
        let (Call::Lock(id), Some(pending)) = (call, self.calls.get_mut(&call)) else {
            return None;
        };
        pending.is_cancelled = true;
        self.link().map(|_| Request::Cancel { id })
    }

    /// Gives up a lock that was asked for, unless it has been granted or refused; returns what to send.
    #[must_use]
    pub fn give_up(&mut self, id: LockId) -> Option<Request> {
        let call = Call::Lock(id);
        if let Some(pending) = self.calls.get_mut(&call)
            && pending.outcome.is_none()
        {
            // The service's own word may be another and is then too late: what it granted, the cancellation gives back.
            pending.outcome = Some(Ok(cancelled(id)));
            return self.link().map(|_| Request::Cancel { id });
        }
        if let Some(held) = self.holds.get_mut(&id) {
            held.is_given_up = true;
        }
        None
    }

    /// Nobody waits for a lock that was asked for any more: as [`give_up`](Self::give_up), and what was granted is released.
    #[must_use]
    pub fn abandon(&mut self, id: LockId) -> Vec<Request> {
        let cancel = self.give_up(id);
        let was_known = self.calls.remove(&Call::Lock(id)).is_some();
        let unlock = if was_known { self.unlock(id) } else { None };
        cancel.into_iter().chain(unlock).collect()
    }

    /// Releases a lock; returns what to send.
    #[must_use]
    pub fn unlock(&mut self, id: LockId) -> Option<Request> {
        let held = self.holds.remove(&id)?;
        // A lost lock is not known there; while the link is down, its session ends with it.
        let is_known_to_service = !matches!(held.state, HoldState::Lost(_)) && self.link().is_some();
        is_known_to_service.then_some(Request::Unlock { id })
    }

    /// Whether a link stays open, though it is down: the service has ended its session and waits until what it held is given back. The holder
    /// of a lock that was broken may be between its last look at the lock and a write.
    #[must_use]
    pub fn owes_farewell(&self, link: LinkNumber) -> bool {
        self.farewells.contains_key(&link)
    }

    /// Links whose sessions the service has ended and all of whose locks have been given back: `Close` is to be sent over each, and it
    /// is to be closed.
    #[must_use]
    pub fn farewells(&mut self) -> Vec<LinkNumber> {
        let mut over = Vec::new();
        self.farewells.retain(|link, held| {
            held.retain(|id| self.holds.contains_key(id));
            if held.is_empty() {
                over.push(*link);
            }
            !held.is_empty()
        });
        over
    }

    /// Whether a call has not been taken.
    #[must_use]
    pub fn knows(&self, call: Call) -> bool {
        self.calls.contains_key(&call)
    }

    /// What the service said over a link, oldest first.
    pub fn handle_replies(
        &mut self,
        link: LinkNumber,
        now_ms: u64,
        replies: impl IntoIterator<Item = Reply>,
    ) -> ReplyEffects {
        let mut heard = ReplyEffects::default();
        for reply in replies {
            // What came over a link that has been replaced is the word of a session that has ended: what it answers is asked again.
            if self.link() == Some(link) {
                self.handle_reply(link, now_ms, reply, &mut heard);
            }
        }
        self.check_lease(now_ms);
        heard
    }

    /// A link is of no more use. False: it had been replaced or was down already.
    pub fn disconnected(&mut self, link: LinkNumber, now_ms: u64, why: &str) -> bool {
        let LinkState::Up {
            number,
            epoch,
            grace_ms_max,
        } = self.link
        else {
            return false;
        };
        if number != link {
            return false;
        }
        if let Posix::Held = self.posix {
            // They die with the session: the next one could not tell in which order they were taken.
            self.posix = Posix::Lost(why.to_owned());
        }
        self.link = LinkState::Down(Break {
            why: why.to_owned(),
            last_epoch: epoch,
            lease: self.lease.take(),
            // Less a margin: the clocks of two machines do not run alike.
            patience_until_ms: now_ms + u64::from(grace_ms_max - margin_ms(grace_ms_max)),
        });
        true
    }

    /// Begins to connect where the link is down, and says until when it is worth trying. [`connected`](Self::connected) or
    /// [`failed`](Self::failed) must follow.
    pub fn connect(&mut self, now_ms: u64) -> Option<u64> {
        let LinkState::Down(disconnected) = &self.link else {
            return None;
        };
        let disconnected = disconnected.clone();
        // What is held can be asserted only as long as the next service waits for it.
        let holds_something = !matches!(self.posix, Posix::NoneYet) || !self.holds.is_empty();
        let until_ms = match holds_something {
            true => disconnected.patience_until_ms,
            false => now_ms + RECONNECT_MS,
        };
        self.link = LinkState::Connecting(disconnected);
        Some(until_ms)
    }

    /// Goes on over a new link; returns what to send over it.
    ///
    /// # Panics
    /// When nobody was connecting.
    pub fn connected(&mut self, opened: &Opened, now_ms: u64) -> (LinkNumber, Vec<Request>) {
        let LinkState::Connecting(disconnected) = &self.link else {
            panic!("nobody was connecting");
        };
        let has_lease = disconnected.lease.clone().is_none_or(|mut lease| lease.check(now_ms));
        // The same incarnation has granted what was held to others; without grace it lets nobody in again.
        let can_reassert = has_lease && opened.epoch != disconnected.last_epoch && opened.grace_ms > 0;
        let why = disconnected.why.clone();
        let mut send = self.assert_or_lose(can_reassert, &why);
        // After what is asserted: what is asked for may conflict with what we hold ourselves.
        send.extend(self.ask_again());
        self.last_link += 1;
        let number = LinkNumber(self.last_link);
        self.lease = lease_of(opened);
        self.link = up(number, opened);
        (number, send)
    }

    /// Nobody is there: all is lost, and what was asked has failed. Returns those calls.
    pub fn failed(&mut self, why: &str) -> Vec<Call> {
        if let LinkState::Connecting(disconnected) = &self.link {
            self.link = LinkState::Down(disconnected.clone());
        }
        let why = match &self.link {
            LinkState::Down(disconnected) => format!("{}; {why}", disconnected.why),
            LinkState::Up { .. } | LinkState::Connecting(_) => why.to_owned(),
        };
        self.lose_all(&why)
    }

    /// Ends a session that will not go on over another link: all is lost. Returns why, which is what ended the link if it is down
    /// already, and the calls that have failed.
    pub fn end(&mut self, now_ms: u64, why: &str) -> (String, Vec<Call>) {
        if let Some(link) = self.link() {
            self.disconnected(link, now_ms, why);
        }
        let why = match &self.link {
            LinkState::Down(disconnected) | LinkState::Connecting(disconnected) => disconnected.why.clone(),
            LinkState::Up { .. } => why.to_owned(),
        };
        let failed = self.lose_all(&why);
        (why, failed)
    }

    /// A request that renews the lease, about to be sent; none without a lease, or when it is over.
    pub fn renewal(&mut self, now_ms: u64) -> Option<Request> {
        self.check_lease(now_ms);
        // Not by `number`: without a lease there is no renewal, and no number is used up.
        let seq = self.last_number + 1;
        self.lease.as_mut()?.sent(now_ms, seq);
        self.last_number = seq;
        Some(Request::Renew { seq })
    }

    /// When to send the next renewal; none without a lease, or when it is over.
    #[must_use]
    pub fn renew_at(&self) -> Option<u64> {
        self.lease.as_ref()?.renew_at()
    }

    /// Takes the link down when the lease is over. True while it is good.
    pub fn check_lease(&mut self, now_ms: u64) -> bool {
        // By our own clock: a service that cannot be heard cannot say so.
        let is_over = self.lease.as_mut().is_some_and(|lease| !lease.check(now_ms));
        if let (true, Some(link)) = (is_over, self.link()) {
            self.disconnected(link, now_ms, "the lock service was silent for longer than our lease");
        }
        !is_over
    }

    /// Whether the link is up and the lease is not over.
    fn is_good_at(&self, now_ms: u64) -> bool {
        self.link().is_some() && self.lease.clone().is_none_or(|mut lease| lease.check(now_ms))
    }

    fn handle_reply(&mut self, link: LinkNumber, now_ms: u64, reply: Reply, heard: &mut ReplyEffects) {
        match reply {
            Reply::Granted { id, token } => self.granted(id, token, heard),
            Reply::Refused { id, ref why } => match self.holds.get_mut(&id) {
                // Of what is held this answers an assertion: the next service does not take it.
                Some(held) => held.lose(&why.to_string()),
                None => self.answered(Call::Lock(id), reply, heard),
            },
            Reply::Recall { id } => {
                if let Some(held) = self.holds.get_mut(&id) {
                    held.is_wanted = true;
                }
            }
            Reply::Renewed { seq } => {
                if let Some(lease) = &mut self.lease {
                    lease.answered(seq);
                }
                self.answered(Call::Number(seq), reply, heard);
            }
            Reply::Answer { id, .. } => self.answered(Call::Lock(id), reply, heard),
            Reply::Status { seq, .. } | Reply::Denied { seq, .. } => {
                self.answered(Call::Number(seq), reply, heard);
            }
            Reply::Lost { why } => self.dismissed(link, now_ms, &why),
            Reply::FileLocks { .. } | Reply::Broken { .. } => {} // Asked for over another connection.
        }
    }

    /// The service has ended the session: others get what it held when it is given back.
    fn dismissed(&mut self, link: LinkNumber, now_ms: u64, why: &str) {
        let held = self.holds.iter_mut().filter(|(_, held)| !held.is_lost());
        let lose = |(id, held): (&LockId, &mut Held)| {
            held.lose(why);
            *id
        };
        let held = held.map(lose).collect();
        // Nobody says when POSIX locks are used no more: for them the end of the link has to do.
        if !matches!(self.posix, Posix::Held) {
            self.farewells.insert(link, held);
        }
        self.disconnected(link, now_ms, why);
    }

    fn granted(&mut self, id: LockId, token: Token, heard: &mut ReplyEffects) {
        if let Some(held) = self.holds.get_mut(&id) {
            // What was told to be lost stays lost: somebody has acted on it.
            if let HoldState::Reasserting = held.state {
                held.state = HoldState::Ours;
                held.token = token;
            }
            return;
        }
        let pending = self.calls.get(&Call::Lock(id));
        // Given up, or of a caller that has gone: the cancellation may have come to the service before the request.
        let Some(pending) = pending.filter(|pending| pending.outcome.is_none()) else {
            heard.send.push(Request::Unlock { id });
            return;
        };
        match &pending.request {
            request @ Request::Lock(_) => drop(self.holds.insert(id, Held::new(request.clone(), token))),
            request if is_posix_lock(request) && !matches!(self.posix, Posix::Lost(_)) => self.posix = Posix::Held,
            _ => {}
        }
        self.answered(Call::Lock(id), Reply::Granted { id, token }, heard);
    }

    fn answered(&mut self, call: Call, reply: Reply, heard: &mut ReplyEffects) {
        if let Some(pending) = self.calls.get_mut(&call)
            && pending.outcome.is_none()
        {
            pending.outcome = Some(Ok(reply));
            heard.answered.push(call);
        }
    }

    /// A grant may be old when its caller takes it: who was stopped past the lease would act on what is another's by now.
    fn take_hold(&mut self, id: LockId) -> Taken {
        let is_up = self.link().is_some();
        let held = &self.holds[&id];
        match held.state {
            HoldState::Ours if is_up => {
                let token = held.token;
                self.calls.remove(&Call::Lock(id));
                Taken::Answer(Reply::Granted { id, token })
            }
            // Only the next service can say whether it still is.
            HoldState::Ours | HoldState::Reasserting => Taken::NotYet,
            HoldState::Lost(_) => self.ask_for_lost(id),
        }
    }

    fn ask_for_lost(&mut self, id: LockId) -> Taken {
        let call = Call::Lock(id);
        self.calls.remove(&call);
        match self.holds.remove(&id) {
            // Its caller has not heard of the grant, so it can have the next one instead.
            Some(held) if !held.is_given_up => {
                self.ask(call, held.request.clone());
                match self.is_answered(call) {
                    true => self.take_as_it_is(call),
                    false => Taken::AskAgain(held.request),
                }
            }
            _ => Taken::Answer(cancelled(id)),
        }
    }

    /// What a POSIX lock was granted over may have ended since, and all of its kind with it.
    fn take_posix(&mut self, call: Call) -> Taken {
        let is_lock = is_posix_lock(&self.calls[&call].request);
        match &self.posix {
            Posix::Lost(why) if is_lock => {
                let why = why.clone();
                self.calls.remove(&call);
                Taken::Failed(why)
            }
            _ => self.take_as_it_is(call),
        }
    }

    fn take_as_it_is(&mut self, call: Call) -> Taken {
        match self.calls.remove(&call).and_then(|pending| pending.outcome) {
            Some(Ok(reply)) => Taken::Answer(reply),
            Some(Err(why)) => Taken::Failed(why),
            None => Taken::NotYet,
        }
    }

    /// What was held is asserted to the next incarnation of the service where it can be, or lost.
    fn assert_or_lose(&mut self, can_reassert: bool, why: &str) -> Vec<Request> {
        let mut assertions = Vec::new();
        for held in self.holds.values_mut() {
            match reassertion(held).filter(|_| can_reassert && !held.is_lost()) {
                Some(request) => {
                    held.state = HoldState::Reasserting;
                    assertions.push(request);
                }
                None => held.lose(why),
            }
        }
        assertions
    }

    /// What was not answered is asked again, but for what was cancelled, and POSIX locks of a session that has lost some: their
    /// caller would be told that they are lost, and nobody would release them.
    fn ask_again(&mut self) -> Vec<Request> {
        let posix_lost = match &self.posix {
            Posix::Lost(why) => Some(why.clone()),
            Posix::NoneYet | Posix::Held => None,
        };
        self.fail_those_who_owe();
        let mut again = Vec::new();
        for (call, pending) in self.calls.iter_mut().filter(|(_, pending)| pending.outcome.is_none()) {
            match (&pending.request, &posix_lost, call) {
                (request, Some(why), _) if is_posix_lock(request) => pending.outcome = Some(Err(why.clone())),
                // The session took it with it, whether it was granted or not.
                (_, _, Call::Lock(id)) if pending.is_cancelled => pending.outcome = Some(Ok(cancelled(*id))),
                _ => again.push(pending.request.clone()),
            }
        }
        again
    }

    fn fail_those_who_owe(&mut self) {
        let unanswered = self.calls.iter().filter(|(_, pending)| pending.outcome.is_none());
        let owing = unanswered.filter_map(|(&call, pending)| Some((call, self.owes(&pending.request)?)));
        for (call, why) in owing.collect::<Vec<_>>() {
            if let Some(pending) = self.calls.get_mut(&call) {
                pending.outcome = Some(Err(why));
            }
        }
    }

    /// Why a lock cannot be asked for: its owner has others that somebody broke, and has not given them back.
    fn owes(&self, request: &Request) -> Option<String> {
        let owner = waits_forever(request)?;
        let broken = self.farewells.values().flatten().filter_map(|id| self.holds.get(id));
        let why = broken
            .filter(|held| list_owner(&held.request) == Some(owner))
            .find_map(|held| match &held.state {
                HoldState::Lost(why) => Some(why),
                HoldState::Ours | HoldState::Reasserting => None,
            })?;
        Some(format!(
            "another lock of the same owner is lost and has not been released: {why}"
        ))
    }

    fn lose_all(&mut self, why: &str) -> Vec<Call> {
        self.holds.values_mut().for_each(|held| held.lose(why));
        if let Posix::Held = self.posix {
            self.posix = Posix::Lost(why.to_owned());
        }
        let unanswered = self.calls.iter_mut().filter(|(_, pending)| pending.outcome.is_none());
        let fail = |(&call, pending): (&Call, &mut Pending)| {
            pending.outcome = Some(Err(why.to_owned()));
            call
        };
        unanswered.map(fail).collect()
    }
}

impl Held {
    fn new(request: Request, token: Token) -> Self {
        Self {
            request,
            token,
            is_wanted: false,
            is_given_up: false,
            state: HoldState::Ours,
        }
    }

    fn is_lost(&self) -> bool {
        matches!(self.state, HoldState::Lost(_))
    }

    /// The first reason counts.
    fn lose(&mut self, why: &str) {
        if !self.is_lost() {
            self.state = HoldState::Lost(why.to_owned());
        }
    }
}

fn up(number: LinkNumber, opened: &Opened) -> LinkState {
    LinkState::Up {
        number,
        epoch: opened.epoch,
        grace_ms_max: opened.grace_ms_max,
    }
}

fn lease_of(opened: &Opened) -> Option<ClientLease> {
    (opened.ttl_ms > 0).then(|| ClientLease::new(opened.ttl_ms, opened.at_ms))
}

/// Who asks for a lock and would wait for it for ever.
fn waits_forever(request: &Request) -> Option<Owner> {
    match request {
        Request::Lock(lock) if lock.wait == Wait::Forever => Some(lock.owner),
        Request::Posix(lock) if lock.mode.is_some() && lock.wait == Wait::Forever => Some(lock.owner),
        _ => None,
    }
}

fn list_owner(request: &Request) -> Option<Owner> {
    match request {
        Request::Lock(lock) => Some(lock.owner),
        _ => None,
    }
}

fn is_posix_lock(request: &Request) -> bool {
    matches!(request, Request::Posix(lock) if lock.mode.is_some())
}

fn cancelled(id: LockId) -> Reply {
    let why = Refusal::Cancelled;
    Reply::Refused { id, why }
}

fn reassertion(held: &Held) -> Option<Request> {
    match held.request.clone() {
        Request::Lock(lock) => Some(Request::Reassert(lock.reassert(held.token))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{FileName, LockMode, LockRequest, PosixRequest};

    fn opened(at_ms: u64, epoch: u32) -> Opened {
        Opened {
            at_ms,
            ttl_ms: 800,
            epoch,
            grace_ms: 800,
            grace_ms_max: 800,
        }
    }

    fn posix(id: LockId) -> Request {
        Request::Posix(PosixRequest {
            id,
            owner: Owner(1),
            file: FileName::new(b"/f").unwrap(),
            start: 0,
            end: 9,
            mode: Some(LockMode::Exclusive),
            wait: Wait::Forever,
        })
    }

    /// Asks for a POSIX lock that the service grants at once.
    fn posix_held() -> (ClientCore, LinkNumber) {
        let mut core = ClientCore::new(opened(0, 1), 0);
        let id = LockId(core.number());
        let link = core.ask(Call::Lock(id), posix(id)).unwrap();
        let granted = Reply::Granted { id, token: Token(1) };
        assert_eq!(
            core.handle_replies(link, 1, [granted.clone()]).answered,
            [Call::Lock(id)]
        );
        assert_eq!(core.take(Call::Lock(id), 2), Taken::Answer(granted));
        (core, link)
    }

    /// The story: it was asked again in the next session and granted there, its caller was told that it was lost, and nobody released it.
    #[test]
    fn a_posix_lock_is_not_asked_for_again_when_others_are_lost() {
        let (mut core, link) = posix_held();
        let id = LockId(core.number());
        core.ask(Call::Lock(id), posix(id));
        assert!(core.disconnected(link, 3, "cut"));
        core.connect(4).unwrap();
        let (_, again) = core.connected(&opened(4, 1), 5);
        assert_eq!(again, []);
        assert_eq!(core.take(Call::Lock(id), 6), Taken::Failed("cut".to_owned()));
        assert_eq!(core.posix_lost(6), Some("cut"));
    }

    /// The story: a signal came while a lock was waited for, and the link broke before the service had said anything: the lock was asked
    /// for again, and the signal forgotten.
    #[test]
    fn what_was_cancelled_is_not_asked_for_again() {
        let mut core = ClientCore::new(opened(0, 1), 0);
        let id = LockId(core.number());
        let link = core.ask(Call::Lock(id), posix(id)).unwrap();
        assert_eq!(core.cancel(Call::Lock(id)), Some(Request::Cancel { id }));
        core.disconnected(link, 1, "cut");
        core.connect(2).unwrap();
        assert_eq!(core.connected(&opened(2, 2), 3).1, []);
        assert_eq!(core.take(Call::Lock(id), 4), Taken::Answer(cancelled(id)));
    }

    /// The story: a program held a lock that somebody broke, and waited for another in its next session, which the service could not grant before
    /// the first was given back.
    #[test]
    fn who_has_not_given_back_what_was_broken_waits_for_nothing() {
        let mut core = ClientCore::new(opened(0, 1), 0);
        let lock = |id| {
            Request::Lock(LockRequest {
                id,
                owner: Owner(1),
                file: FileName::new(b"/f").unwrap(),
                mode: LockMode::Exclusive,
                footprint: elbow_ranges::Footprint::whole(),
                wait: Wait::Forever,
                recall: false,
            })
        };
        let (held, waits, late) = (LockId(core.number()), LockId(core.number()), LockId(core.number()));
        let link = core.ask(Call::Lock(held), lock(held)).unwrap();
        let granted = Reply::Granted {
            id: held,
            token: Token(1),
        };
        core.handle_replies(link, 1, [granted.clone()]);
        assert_eq!(core.take(Call::Lock(held), 1), Taken::Answer(granted));
        core.ask(Call::Lock(waits), lock(waits));
        core.handle_replies(
            link,
            2,
            [Reply::Lost {
                why: "broken".to_owned(),
            }],
        );
        assert!(core.owes_farewell(link));
        core.connect(3).unwrap();
        assert_eq!(core.connected(&opened(3, 1), 4).1, []);
        assert!(matches!(core.take(Call::Lock(waits), 5), Taken::Failed(_)));
        assert_eq!(core.ask(Call::Lock(late), lock(late)), None);
        assert!(matches!(core.take(Call::Lock(late), 6), Taken::Failed(_)));
        assert_eq!(core.farewells(), []);
        assert_eq!(core.unlock(held), None);
        assert_eq!(core.farewells(), [link]);
        assert!(core.ask(Call::Lock(late), lock(late)).is_some());
    }

    #[test]
    fn a_lease_that_is_over_takes_the_link_down_and_posix_locks_with_it() {
        let (mut core, link) = posix_held();
        assert!(core.check_lease(699));
        assert!(!core.check_lease(700));
        assert_eq!(core.link(), None);
        assert!(core.posix_lost(701).is_some());
        assert!(!core.disconnected(link, 702, "late"), "it is down already");
    }
}
