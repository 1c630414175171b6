//! A client as a node: some workers that lock, do I/O, lock more, and release, over a session that is renewed, lost and
//! opened again; after a restart of the service it holds again what it held.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use elbow_lock::{ClientLease, Kind, LockId, Owner, Refusal, Reply, Request, SessionId, Token, Wait};
use elbow_ranges::{Dim, Footprint, Strided};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::support::naive::wanted;
use crate::world::{Belief, Ending, Hello, LinkId, Message, Node, NodeId, Out, file};

/// A bug of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientFlaw {
    None,
    /// Believes in its locks until it is told otherwise.
    NeverChecksLease,
    /// Counts its lease from the answers, not from what they answer.
    CountsFromAnswers,
    /// Goes on with the locks of a connection that broke.
    KeepsLocksOfOldSession,
}

const WORKERS: u64 = 2;
const RETRY_MS: u64 = 40;

pub(crate) struct Client {
    service: NodeId,
    rng: StdRng,
    flaw: ClientFlaw,
    connection: Connection,
    workers: Vec<Worker>,
    last_id: u64,
    /// Whether it has nothing more to do and has said so.
    has_left: bool,
}

enum Connection {
    Down {
        retry_ms: u64,
    },
    Opening {
        since_ms: u64,
    },
    Hello {
        link: LinkId,
        sent_ms: u64,
    },
    Up {
        link: LinkId,
        session: SessionId,
        lease: Lease,
        last_seq: u64,
    },
}

/// Shared by the locks that live by it.
type Lease = Rc<RefCell<ClientLease>>;

struct Worker {
    owner: Owner,
    rounds: u32,
    holds: Vec<Held>,
    /// The last token for each file and range, in words.
    tokens: BTreeMap<String, Token>,
    doing: Doing,
}

enum Doing {
    Pausing {
        until_ms: u64,
    },
    Waiting {
        request: Request,
        cancel_ms: Option<u64>,
        is_cancelled: bool,
    },
    Using {
        until_ms: u64,
        next_io_ms: u64,
    },
}

struct Held {
    id: LockId,
    /// What it was asked for with.
    request: Request,
    belief: Belief,
    lease: Lease,
}

impl Client {
    pub(crate) fn new(service: NodeId, seed: u64, rounds: u32, flaw: ClientFlaw) -> Self {
        let worker = |owner| Worker {
            owner: Owner(owner),
            rounds,
            holds: Vec::new(),
            tokens: BTreeMap::new(),
            doing: Doing::Pausing { until_ms: 0 },
        };
        Self {
            service,
            rng: StdRng::seed_from_u64(seed),
            flaw,
            connection: Connection::Down { retry_ms: 0 },
            workers: (0..WORKERS).map(worker).collect(),
            last_id: 0,
            has_left: false,
        }
    }

    fn is_valid(&self, held: &Held, now_ms: u64) -> bool {
        self.flaw == ClientFlaw::NeverChecksLease || held.lease.borrow_mut().check(now_ms)
    }

    fn link(&self) -> Option<LinkId> {
        match self.connection {
            Connection::Hello { link, .. } | Connection::Up { link, .. } => Some(link),
            _ => None,
        }
    }

    fn welcome(&mut self, now_ms: u64, session: SessionId, ttl_ms: u32, epoch: u32, grace_ms: u32, out: &mut Out) {
        let Connection::Hello { link, sent_ms } = self.connection else {
            return;
        };
        let lease = Rc::new(RefCell::new(ClientLease::new(ttl_ms, sent_ms)));
        self.connection = Connection::Up {
            link,
            session,
            lease: Rc::clone(&lease),
            last_seq: 0,
        };
        if self.flaw == ClientFlaw::KeepsLocksOfOldSession {
            let holds = self.workers.iter_mut().flat_map(|worker| &mut worker.holds);
            return holds.for_each(|held| held.lease = Rc::clone(&lease));
        }
        for place in 0..self.workers.len() {
            let held = std::mem::take(&mut self.workers[place].holds);
            let had_any = !held.is_empty();
            for held in held {
                let can_reassert = grace_ms > 0 && held.belief.token.epoch() < epoch && self.is_valid(&held, now_ms);
                if let Some(request) = reassertion(&held).filter(|_| can_reassert) {
                    out.send(link, Message::Request(request));
                    self.workers[place].holds.push(held);
                }
            }
            if had_any && self.workers[place].holds.is_empty() {
                self.workers[place].doing = Doing::Pausing { until_ms: now_ms };
            }
        }
    }

    /// The session is over: nothing that was asked in it will be answered.
    fn down(&mut self, now_ms: u64) {
        self.connection = Connection::Down {
            retry_ms: now_ms + self.rng.random_range(0..RETRY_MS),
        };
        for worker in &mut self.workers {
            if let Doing::Waiting { .. } = worker.doing {
                worker.doing = match worker.holds.is_empty() {
                    true => Doing::Pausing { until_ms: now_ms },
                    false => Doing::Using {
                        until_ms: now_ms + 30,
                        next_io_ms: now_ms,
                    },
                };
            }
        }
    }

    fn reply(&mut self, now_ms: u64, reply: &Reply, out: &mut Out) {
        let Connection::Up {
            link, session, lease, ..
        } = &self.connection
        else {
            return;
        };
        let (link, session, lease) = (*link, *session, Rc::clone(lease));
        match reply {
            Reply::Renewed { seq } if self.flaw == ClientFlaw::CountsFromAnswers => {
                lease.borrow_mut().sent(now_ms, seq + 1_000_000);
                lease.borrow_mut().answered(seq + 1_000_000);
            }
            Reply::Renewed { seq } => lease.borrow_mut().answered(*seq),
            Reply::Lost { .. } => {
                lease.borrow_mut().end();
                out.close(link);
                self.down(now_ms);
                self.drop_lost(now_ms, out);
            }
            Reply::Granted { id, token } => self.granted(now_ms, link, session, &lease, *id, *token, out),
            Reply::Refused { id, why } => self.refused(now_ms, link, *id, why, out),
            Reply::Recall { id } => self.recalled(now_ms, *id),
            Reply::Answer { .. } | Reply::Status { .. } => {}
        }
    }

    #[expect(clippy::too_many_arguments, reason = "what a grant consists of")]
    fn granted(
        &mut self,
        now_ms: u64,
        link: LinkId,
        session: SessionId,
        lease: &Lease,
        id: LockId,
        token: Token,
        out: &mut Out,
    ) {
        for worker in &mut self.workers {
            // A lock that was held before the restart is held again.
            if let Some(held) = worker.holds.iter_mut().find(|held| held.id == id) {
                let was_valid = held.lease.borrow_mut().check(now_ms);
                if was_valid {
                    held.lease = Rc::clone(lease);
                    held.belief.token = token;
                    held.belief.want.who.session = session;
                }
                continue;
            }
            let Doing::Waiting {
                request, is_cancelled, ..
            } = &worker.doing
            else {
                continue;
            };
            let Some(want) = wanted(session, request).filter(|want| want.id == id) else {
                continue;
            };
            let (request, is_cancelled) = (request.clone(), *is_cancelled);
            if is_cancelled {
                // The service ended a list lock when it heard of it; a POSIX lock has no name to be ended by.
                if let Some(unlock) = unlock(&request).filter(|_| want.posix) {
                    out.send(link, Message::Request(unlock));
                }
                worker.give_up(now_ms, link, out);
                continue;
            }
            let about = format!("{} {:?}", want.file, want.bytes);
            let before = worker.tokens.insert(about, token);
            assert!(before < Some(token), "{token:?} after {before:?}: {want:?}");
            worker.holds.push(Held {
                id,
                request,
                belief: Belief { want, token },
                lease: Rc::clone(lease),
            });
            let for_ms = if self.rng.random_bool(0.2) { 1500 } else { 50 };
            let until_ms = now_ms + self.rng.random_range(0..for_ms);
            worker.doing = Doing::Using {
                until_ms,
                next_io_ms: now_ms,
            };
        }
    }

    fn refused(&mut self, now_ms: u64, link: LinkId, id: LockId, why: &Refusal, out: &mut Out) {
        for worker in &mut self.workers {
            worker
                .holds
                .retain(|held| held.id != id || *why != Refusal::NotReasserted);
            if let Doing::Waiting { request, .. } = &worker.doing
                && id_of(request) == Some(id)
            {
                worker.give_up(now_ms, link, out);
            }
        }
    }

    /// Somebody waits: often we are quick to give it back.
    fn recalled(&mut self, now_ms: u64, id: LockId) {
        for worker in &mut self.workers {
            let is_it = worker.holds.iter().any(|held| held.id == id);
            if let Doing::Using { until_ms, .. } = &mut worker.doing
                && is_it
                && self.rng.random_bool(0.7)
            {
                *until_ms = now_ms;
            }
        }
    }

    /// Forgets locks that are lost, as a program does that is told so at its next I/O.
    fn drop_lost(&mut self, now_ms: u64, out: &mut Out) {
        for place in 0..self.workers.len() {
            let holds = std::mem::take(&mut self.workers[place].holds);
            let (valid, lost): (Vec<_>, Vec<_>) = holds.into_iter().partition(|held| self.is_valid(held, now_ms));
            self.workers[place].holds = valid;
            if let Some(link) = self.link() {
                lost.iter()
                    .filter_map(|held| unlock(&held.request))
                    .for_each(|unlock| out.send(link, Message::Request(unlock)));
            }
        }
    }

    fn work(&mut self, now_ms: u64, place: usize, out: &mut Out) {
        let has_rounds = self.workers[place].rounds > 0;
        match self.workers[place].doing {
            Doing::Pausing { until_ms } if until_ms <= now_ms && has_rounds => self.ask(now_ms, place, out),
            Doing::Waiting {
                cancel_ms: Some(cancel_ms),
                ref mut is_cancelled,
                ref request,
            } if cancel_ms <= now_ms => {
                let is_first = !std::mem::replace(is_cancelled, true);
                if let (Some(id), Connection::Up { link, .. }) = (id_of(request).filter(|_| is_first), &self.connection)
                {
                    out.send(*link, Message::Request(Request::Cancel { id }));
                }
            }
            Doing::Using { until_ms, .. } if until_ms <= now_ms => {
                let wants_more = self.workers[place].holds.len() == 1 && self.rng.random_bool(0.35);
                if wants_more {
                    self.ask(now_ms, place, out);
                } else {
                    self.release(now_ms, place, out);
                }
            }
            Doing::Using { ref mut next_io_ms, .. } if *next_io_ms <= now_ms => {
                *next_io_ms = now_ms + 1 + self.rng.random_range(0..25);
                let worker = &self.workers[place];
                for held in worker.holds.iter().filter(|held| self.is_valid(held, now_ms)) {
                    out.io(held.belief.clone());
                }
            }
            _ => {}
        }
    }

    fn ask(&mut self, now_ms: u64, place: usize, out: &mut Out) {
        let Connection::Up { link, .. } = self.connection else {
            self.workers[place].doing = Doing::Pausing {
                until_ms: now_ms + RETRY_MS,
            };
            return self.release_locally(place);
        };
        self.last_id += 1;
        // A second POSIX lock would change the first.
        let may_be_posix = self.workers[place].holds.is_empty();
        let request = self.request(LockId(self.last_id), self.workers[place].owner, may_be_posix);
        out.send(link, Message::Request(request.clone()));
        let cancel_ms = self
            .rng
            .random_bool(0.15)
            .then(|| now_ms + self.rng.random_range(0..80));
        self.workers[place].doing = Doing::Waiting {
            request,
            cancel_ms,
            is_cancelled: false,
        };
    }

    fn request(&mut self, id: LockId, owner: Owner, may_be_posix: bool) -> Request {
        let rng = &mut self.rng;
        let file = file(rng.random_range(0..2));
        let kind = if rng.random_bool(0.4) {
            Kind::Shared
        } else {
            Kind::Exclusive
        };
        let wait = match rng.random_range(0..8) {
            0 => Wait::Try,
            1 | 2 => Wait::For(rng.random_range(0..300)),
            _ => Wait::Forever,
        };
        let start = rng.random_range(0..24);
        if may_be_posix && rng.random_bool(0.2) {
            let end = start + rng.random_range(1..12);
            return Request::Posix {
                id,
                owner,
                file,
                start,
                end,
                kind: Some(kind),
                wait,
            };
        }
        let footprint = match rng.random_range(0..10) {
            0 => Footprint::whole(),
            1..5 => Footprint::extent(start..start + rng.random_range(1..12)).expect("a range"),
            _ => {
                let dims = [Dim {
                    count: rng.random_range(2..5),
                    stride: rng.random_range(4..8),
                }];
                Strided::new(start, &dims, rng.random_range(1..4))
                    .expect("a pattern")
                    .into()
            }
        };
        Request::Lock {
            id,
            owner,
            file,
            kind,
            footprint,
            wait,
            recall: rng.random_bool(0.2),
        }
    }

    fn release(&mut self, now_ms: u64, place: usize, out: &mut Out) {
        let pause = now_ms + self.rng.random_range(0..30);
        if let Connection::Up { link, .. } = self.connection {
            self.workers[place].give_up(now_ms, link, out);
        } else {
            self.release_locally(place);
        }
        let worker = &mut self.workers[place];
        worker.rounds = worker.rounds.saturating_sub(1);
        worker.doing = Doing::Pausing { until_ms: pause };
    }

    /// There is nobody to tell: the service will find out by the lease.
    fn release_locally(&mut self, place: usize) {
        self.workers[place].holds.clear();
    }

    fn keep_up(&mut self, now_ms: u64, out: &mut Out) {
        match &mut self.connection {
            Connection::Down { retry_ms } if *retry_ms <= now_ms && !self.has_left => {
                self.connection = Connection::Opening { since_ms: now_ms };
                out.connect(self.service);
            }
            Connection::Opening { since_ms } if *since_ms + u64::from(crate::TTL_MS) <= now_ms => self.down(now_ms),
            Connection::Hello { link, sent_ms } if *sent_ms + u64::from(crate::TTL_MS) <= now_ms => {
                out.close(*link);
                self.down(now_ms);
            }
            Connection::Up {
                link, lease, last_seq, ..
            } => {
                if !lease.borrow_mut().check(now_ms) {
                    out.close(*link);
                    self.down(now_ms);
                } else if lease.borrow().renew_at().is_some_and(|at| at <= now_ms) {
                    *last_seq += 1;
                    lease.borrow_mut().sent(now_ms, *last_seq);
                    out.send(*link, Message::Request(Request::Renew { seq: *last_seq }));
                }
            }
            _ => {}
        }
    }

    fn leave_if_finished(&mut self, out: &mut Out) {
        let is_finished = self.workers.iter().all(Worker::is_finished);
        if let (true, Connection::Up { link, .. }) = (is_finished, &self.connection) {
            out.send(*link, Message::Request(Request::Close));
            out.close(*link);
            self.has_left = true;
            self.connection = Connection::Down { retry_ms: u64::MAX };
        }
    }
}

impl Worker {
    fn is_finished(&self) -> bool {
        self.rounds == 0 && self.holds.is_empty() && matches!(self.doing, Doing::Pausing { .. })
    }

    /// Gives back everything.
    fn give_up(&mut self, now_ms: u64, link: LinkId, out: &mut Out) {
        for held in self.holds.drain(..) {
            if let Some(unlock) = unlock(&held.request) {
                out.send(link, Message::Request(unlock));
            }
        }
        self.doing = Doing::Pausing { until_ms: now_ms + 5 };
    }

    fn next_ms(&self) -> Option<u64> {
        match self.doing {
            Doing::Pausing { until_ms } => (self.rounds > 0).then_some(until_ms),
            Doing::Waiting {
                cancel_ms,
                is_cancelled,
                ..
            } => cancel_ms.filter(|_| !is_cancelled),
            Doing::Using { until_ms, next_io_ms } => Some(until_ms.min(next_io_ms)),
        }
    }
}

impl Node for Client {
    fn started(&mut self, now_ms: u64, out: &mut Out) {
        // Some come late: the session of their proxy is no new one then.
        self.connection = Connection::Down {
            retry_ms: now_ms + self.rng.random_range(0..1000),
        };
        self.woke(now_ms, out);
    }

    fn opened(&mut self, now_ms: u64, link: LinkId, _is_own: bool, out: &mut Out) {
        if !matches!(self.connection, Connection::Opening { .. }) {
            return out.close(link); // It took so long that another was opened.
        }
        self.connection = Connection::Hello { link, sent_ms: now_ms };
        out.send(link, Message::Hello(Hello::default()));
    }

    fn received(&mut self, now_ms: u64, link: LinkId, message: Message, out: &mut Out) {
        if self.link() != Some(link) {
            return;
        }
        match message {
            Message::Welcome {
                session,
                ttl_ms,
                epoch,
                grace_ms,
            } => {
                self.welcome(now_ms, session, ttl_ms, epoch, grace_ms, out);
            }
            Message::Reply(reply) => self.reply(now_ms, &reply, out),
            Message::Hello(_) | Message::Request(_) => unreachable!("nobody asks a client"),
        }
        self.leave_if_finished(out);
    }

    fn ended(&mut self, now_ms: u64, link: LinkId, _ending: Ending, _out: &mut Out) {
        if self.link() == Some(link) || matches!(self.connection, Connection::Opening { .. }) {
            self.down(now_ms);
        }
    }

    fn woke(&mut self, now_ms: u64, out: &mut Out) {
        self.keep_up(now_ms, out);
        self.drop_lost(now_ms, out);
        for place in 0..self.workers.len() {
            self.work(now_ms, place, out);
        }
        self.leave_if_finished(out);
    }

    fn deadline(&self) -> Option<u64> {
        let connection = match &self.connection {
            Connection::Down { retry_ms } => (!self.has_left).then_some(*retry_ms),
            Connection::Opening { since_ms: sent_ms } | Connection::Hello { sent_ms, .. } => {
                Some(sent_ms + u64::from(crate::TTL_MS))
            }
            Connection::Up { lease, .. } => lease.borrow().renew_at().or(Some(0)),
        };
        self.workers.iter().filter_map(Worker::next_ms).chain(connection).min()
    }

    fn beliefs(&self, now_ms: u64) -> Vec<Belief> {
        let is_valid = |held: &Held| match self.flaw {
            ClientFlaw::NeverChecksLease => true,
            // To look must not change what it will do.
            _ => held.lease.borrow().clone().check(now_ms),
        };
        let holds = self.workers.iter().flat_map(|worker| &worker.holds);
        holds
            .filter(|held| is_valid(held))
            .map(|held| held.belief.clone())
            .collect()
    }

    fn is_done(&self) -> bool {
        self.has_left
    }
}

fn id_of(request: &Request) -> Option<LockId> {
    wanted(SessionId(0), request).map(|want| want.id)
}

fn unlock(request: &Request) -> Option<Request> {
    match request {
        Request::Lock { id, .. } => Some(Request::Unlock { id: *id }),
        Request::Posix {
            id,
            owner,
            file,
            start,
            end,
            ..
        } => Some(Request::Posix {
            id: LockId(id.0 + (1 << 40)),
            owner: *owner,
            file: file.clone(),
            start: *start,
            end: *end,
            kind: None,
            wait: Wait::Try,
        }),
        _ => None,
    }
}

/// POSIX locks do not survive a restart.
fn reassertion(held: &Held) -> Option<Request> {
    match held.request.clone() {
        Request::Lock {
            id,
            owner,
            file,
            kind,
            footprint,
            recall,
            ..
        } => Some(Request::Reassert {
            id,
            owner,
            file,
            kind,
            footprint,
            token: held.belief.token,
            recall,
        }),
        _ => None,
    }
}
