//! The lock service as a node: sessions, leases and shards put together as the real server does it, but by a world's events.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use elbow_lock::{Action, Leases, Limits, Reply, Request, SessionId, Shard, find_deadlock, resolve, resolve_after};

use crate::checker::Checker;
use crate::frame::Message;
use crate::support::naive::{Flaw, Naive, wanted};
use crate::world::{Ending, Hello, LinkId, Node, Out};

/// The tables behind a service: the real shards, or the naive one with a bug in it.
pub(crate) enum Locks {
    Real(Vec<Shard>),
    Naive(Box<Naive>),
}

impl Locks {
    pub(crate) fn new(flaw: Flaw, epoch: u32, grace_until_ms: u64, held_since: u32) -> Self {
        let limits = Limits {
            recall_ms: 20,
            ..Limits::default()
        };
        match flaw {
            Flaw::None => Self::Real(
                (0..2)
                    .map(|_| Shard::new(epoch, grace_until_ms, limits.clone()).held_since(held_since))
                    .collect(),
            ),
            _ => Self::Naive(Box::new(
                Naive::new(flaw, epoch, grace_until_ms, 20).held_since(held_since),
            )),
        }
    }

    fn open(&mut self, session: SessionId) {
        match self {
            Self::Real(shards) => shards.iter_mut().for_each(|shard| shard.open(session)),
            Self::Naive(naive) => naive.open(session),
        }
    }

    fn handle(&mut self, now_ms: u64, session: SessionId, request: Request, out: &mut Vec<Action>) {
        let Self::Real(shards) = self else {
            return self.naive().handle(now_ms, session, &request, out);
        };
        match wanted(session, &request) {
            Some(want) => {
                let place = want
                    .file
                    .as_bytes()
                    .iter()
                    .map(|&byte| usize::from(byte))
                    .sum::<usize>()
                    % shards.len();
                shards[place].handle(now_ms, session, request, out);
            }
            // Requests that name no file go to all.
            None => shards
                .iter_mut()
                .for_each(|shard| shard.handle(now_ms, session, request.clone(), out)),
        }
    }

    fn disconnect(&mut self, now_ms: u64, session: SessionId, out: &mut Vec<Action>) {
        match self {
            Self::Real(shards) => shards
                .iter_mut()
                .for_each(|shard| shard.disconnect(now_ms, session, out)),
            Self::Naive(naive) => naive.disconnect(now_ms, session, out),
        }
    }

    fn close(&mut self, now_ms: u64, session: SessionId, out: &mut Vec<Action>) {
        match self {
            Self::Real(shards) => shards.iter_mut().for_each(|shard| shard.close(now_ms, session, out)),
            Self::Naive(naive) => naive.close(now_ms, session, out),
        }
    }

    fn tick(&mut self, now_ms: u64, out: &mut Vec<Action>) {
        match self {
            Self::Real(shards) => shards.iter_mut().for_each(|shard| shard.tick(now_ms, out)),
            Self::Naive(naive) => naive.tick(now_ms, out),
        }
    }

    fn deadline(&self) -> Option<u64> {
        match self {
            Self::Real(shards) => shards.iter().filter_map(Shard::deadline).min(),
            Self::Naive(naive) => naive.deadline(),
        }
    }

    /// The shards look when they tell that there may be a circle; the naive one always.
    fn break_deadlocks(&mut self, now_ms: u64, did: &[Action], out: &mut Vec<Action>) {
        match self {
            Self::Real(shards) => {
                let mut shards: Vec<&mut Shard> = shards.iter_mut().collect();
                resolve_after(now_ms, did, &mut shards, out);
            }
            Self::Naive(naive) if naive.in_grace() => {}
            Self::Naive(_) => self.break_all_deadlocks(now_ms, out),
        }
    }

    /// At the end of the grace period, what was held again and what was asked meanwhile may wait for each other.
    fn break_all_deadlocks(&mut self, now_ms: u64, out: &mut Vec<Action>) {
        match self {
            Self::Real(shards) => {
                let mut shards: Vec<&mut Shard> = shards.iter_mut().collect();
                resolve(now_ms, &mut shards, out);
            }
            Self::Naive(naive) => {
                while let Some(found) = find_deadlock(&naive.waits()) {
                    naive.end_circle(now_ms, found, out);
                }
            }
        }
    }

    fn naive(&mut self) -> &mut Naive {
        match self {
            Self::Naive(naive) => naive,
            Self::Real(_) => unreachable!("asked for the naive one"),
        }
    }

    fn is_idle(&self) -> bool {
        match self {
            Self::Real(shards) => shards.iter().all(Shard::is_idle),
            Self::Naive(naive) => naive.held.is_empty() && naive.queue.is_empty(),
        }
    }

    fn check(&self) {
        if let Self::Real(shards) = self {
            shards.iter().for_each(Shard::check);
        }
    }
}

/// Which ends of connections end their sessions at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Those whose client is known to be dead.
    Deaths,
    /// Those of proxies as well, whose clients live on: a bug.
    DeathsOfProxies,
    /// All, whoever cut them: a bug.
    Everything,
    /// As `Deaths`, and what is broken is granted to others at once: a bug, without force.
    TheBroken,
}

/// One incarnation of the service.
pub(crate) struct Service {
    epoch: u32,
    /// The longest lease that it gives.
    ttl_ms_max: u32,
    grace_until_ms: u64,
    locks: Locks,
    leases: Leases,
    sessions: BTreeMap<LinkId, SessionId>,
    last_session: u64,
    /// Sessions that speak for others.
    proxies: BTreeSet<SessionId>,
    /// Sessions that somebody has ended, and whose clients may not know.
    broken: BTreeSet<SessionId>,
    trust: Trust,
    checker: Rc<RefCell<Checker>>,
}

impl Service {
    pub(crate) fn new(
        locks: Locks,
        epoch: u32,
        ttl_ms_max: u32,
        grace_until_ms: u64,
        trust: Trust,
        checker: Rc<RefCell<Checker>>,
    ) -> Self {
        checker.borrow_mut().restarted(grace_until_ms > 0);
        Self {
            epoch,
            ttl_ms_max,
            grace_until_ms,
            locks,
            leases: Leases::new(),
            sessions: BTreeMap::new(),
            last_session: u64::from(epoch) << 32,
            proxies: BTreeSet::new(),
            broken: BTreeSet::new(),
            trust,
            checker,
        }
    }

    fn hello(&mut self, now_ms: u64, link: LinkId, hello: Hello, out: &mut Out) {
        self.last_session += 1;
        let session = SessionId(self.last_session);
        if hello.is_proxy {
            self.proxies.insert(session);
        }
        let ttl_ms = hello.ttl_ms.min(self.ttl_ms_max);
        if ttl_ms > 0 {
            self.leases.open(now_ms, session, ttl_ms);
        }
        self.locks.open(session);
        self.sessions.insert(link, session);
        let grace_ms = self.grace_until_ms.saturating_sub(now_ms) as u32;
        out.send(
            link,
            Message::Welcome {
                ttl_ms,
                epoch: self.epoch,
                grace_ms,
                grace_ms_max: self.ttl_ms_max,
            },
        );
    }

    fn request(&mut self, now_ms: u64, link: LinkId, request: Request, out: &mut Out) {
        let Some(&session) = self.sessions.get(&link) else {
            return self.say_lost(link, out);
        };
        if self.broken.contains(&session) && request != Request::Close {
            return; // It was told so.
        }
        match request {
            Request::Renew { seq } if self.leases.renew(now_ms, session) => {
                out.send(link, Message::Reply(Reply::Renewed { seq }));
            }
            Request::Renew { .. } => self.say_lost(link, out),
            Request::Close => self.end(now_ms, link, session, out),
            request => {
                self.checker.borrow_mut().requested(session, &request);
                let mut actions = Vec::new();
                self.locks.handle(now_ms, session, request, &mut actions);
                self.apply(now_ms, actions, out);
            }
        }
    }

    fn say_lost(&mut self, link: LinkId, out: &mut Out) {
        self.sessions.remove(&link);
        out.send(link, Message::Reply(Reply::Lost { why: String::new() }));
        out.close(link);
    }

    /// Ends a session whose client uses none of its locks any more.
    fn end(&mut self, now_ms: u64, link: LinkId, session: SessionId, out: &mut Out) {
        self.sessions.remove(&link);
        self.leases.close(session);
        self.close(now_ms, session, out);
    }

    fn close(&mut self, now_ms: u64, session: SessionId, out: &mut Out) {
        self.checker.borrow_mut().closed(session);
        let mut actions = Vec::new();
        self.locks.close(now_ms, session, &mut actions);
        self.apply(now_ms, actions, out);
    }

    fn apply(&mut self, now_ms: u64, mut actions: Vec<Action>, out: &mut Out) {
        let did = actions.clone();
        self.locks.break_deadlocks(now_ms, &did, &mut actions);
        for action in actions {
            self.checker.borrow_mut().acted(&action);
            if let Action::Reply(session, reply) = action
                && let Some((&link, _)) = self.sessions.iter().find(|(_, of)| **of == session)
            {
                out.send(link, Message::Reply(reply));
            }
        }
        self.locks.check();
        self.checker.borrow().check();
    }
}

impl Node for Service {
    fn started(&mut self, _now_ms: u64, _out: &mut Out) {}

    fn opened(&mut self, _now_ms: u64, _link: LinkId, _is_own: bool, _out: &mut Out) {}

    fn received(&mut self, now_ms: u64, link: LinkId, message: Message, out: &mut Out) {
        match message {
            Message::Hello(hello) => self.hello(now_ms, link, hello, out),
            Message::Request(request) => self.request(now_ms, link, request, out),
            Message::Welcome { .. } | Message::Reply(_) => unreachable!("a service is not answered"),
        }
    }

    fn ended(&mut self, now_ms: u64, link: LinkId, ending: Ending, out: &mut Out) {
        let Some(session) = self.sessions.remove(&link) else {
            return;
        };
        let ends_at_once = match self.trust {
            Trust::Deaths | Trust::TheBroken => ending == Ending::KnownOverlaps && !self.proxies.contains(&session),
            Trust::DeathsOfProxies => ending == Ending::KnownOverlaps,
            Trust::Everything => true,
        };
        if ends_at_once {
            return self.end(now_ms, link, session, out);
        }
        self.checker.borrow_mut().disconnected(session);
        let mut actions = Vec::new();
        self.locks.disconnect(now_ms, session, &mut actions);
        self.apply(now_ms, actions, out);
    }

    fn breaks(&mut self, now_ms: u64, which: u64, out: &mut Out) {
        let open: Vec<(LinkId, SessionId)> = self.sessions.iter().map(|(&link, &session)| (link, session)).collect();
        let Some(&(link, session)) = open.get(which as usize % open.len().max(1)) else {
            return;
        };
        if !self.broken.insert(session) {
            return;
        }
        self.checker.borrow_mut().broken(session);
        let mut actions = Vec::new();
        self.locks.disconnect(now_ms, session, &mut actions);
        self.apply(now_ms, actions, out);
        out.send(link, Message::Reply(Reply::Lost { why: String::new() }));
        if self.trust == Trust::TheBroken {
            self.leases.close(session);
            self.close(now_ms, session, out);
        }
    }

    fn woke(&mut self, now_ms: u64, out: &mut Out) {
        for session in self.leases.expired(now_ms) {
            let link = self
                .sessions
                .iter()
                .find(|(_, of)| **of == session)
                .map(|(&link, _)| link);
            if let Some(link) = link {
                self.say_lost(link, out);
            }
            self.close(now_ms, session, out);
        }
        let ends_grace = self.grace_until_ms > 0 && self.grace_until_ms <= now_ms;
        if ends_grace {
            self.grace_until_ms = 0;
            self.checker.borrow_mut().grace_ended();
        }
        let mut actions = Vec::new();
        self.locks.tick(now_ms, &mut actions);
        if ends_grace {
            self.locks.break_all_deadlocks(now_ms, &mut actions);
        }
        self.apply(now_ms, actions, out);
    }

    fn deadline(&self) -> Option<u64> {
        self.leases.deadline().into_iter().chain(self.locks.deadline()).min()
    }

    fn describe(&self) -> String {
        format!("sessions {:?}, {:#?}", self.sessions, self.checker.borrow())
    }

    /// All sessions have ended and left nothing.
    fn is_done(&self) -> bool {
        self.sessions.is_empty() && self.leases.is_empty() && self.locks.is_idle()
    }
}
