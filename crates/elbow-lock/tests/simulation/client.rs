//! A client as a node: the shipped [`ClientCore`], driven by threads that may stop between any two of their steps.
//!
//! ```text
//!   reader    reads the link ...stops... core.handle ...stops... sends what follows
//!   worker    core.ask ...stops... sends ...... is answered ...stops... core.take: I/O at once
//!             core.standing: I/O at once ...stops... core.unlock ...stops... sends
//!   renewer   core.renewal ...stops... sends
//! ```
//!
//! Meanwhile the other threads go on, and the link may be made again: what a thread then does with an old one in its hands
//! is what this looks for. [`ClientFlaw`] plants bugs in what drives the core; those of the shipped drivers were of this mode.

use std::collections::{BTreeMap, VecDeque};

use elbow_lock::{
    Call, ClientCore, LinkNumber, LockId, LockMode, LockRequest, Opened, Owner, PosixRequest, Reply, Request,
    SessionId, Standing, Taken, Token, Wait,
};
use elbow_ranges::{Dim, Footprint, Strided};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::TTL_MS;
use crate::frame::Message;
use crate::support::naive::{Want, wanted};
use crate::world::{AssumedLock, Ending, Hello, LinkId, Node, NodeId, Out, file};

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
    /// Believes what came over a link that has been replaced.
    BelievesOldLinks,
    /// Takes a grant when it comes, and acts on it when its thread runs.
    ActsOnOldGrants,
}

const WORKERS: u64 = 2;
const RETRY_MS: u64 = 40;
/// Threads that send: the workers, the reader and the renewer.
const READER: usize = WORKERS as usize;
const RENEWER: usize = READER + 1;

/// Who a client is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) number: u64,
    /// The service or proxy that it speaks with.
    pub(crate) service: NodeId,
    /// 0: its session lasts as long as its connection.
    pub(crate) ttl_ms: u32,
    pub(crate) flaw: ClientFlaw,
}

#[derive(Debug)]
pub(crate) struct Client {
    identity: Identity,
    rng: StdRng,
    core: Option<ClientCore>,
    transport: Transport,
    /// Until when it is worth trying to connect.
    patience_until_ms: u64,
    /// What the reader has read and not said to the core.
    read: VecDeque<Read>,
    /// What threads are about to send, each in its order.
    sending: [VecDeque<Sending>; RENEWER + 1],
    /// Links of sessions that the service has ended, whose locks have not all been given back.
    farewells: Vec<(LinkNumber, LinkId)>,
    /// When the renewer runs next.
    renew_ms: u64,
    /// What it was granted at last.
    lease_ms: u32,
    workers: Vec<Worker>,
    has_left: bool,
    /// For one that never looks at the clock: when its link was opened.
    stopped_clock_ms: u64,
}

#[derive(Debug)]
enum Transport {
    Down { retry_ms: u64 },
    Opening { since_ms: u64 },
    Hello { link: LinkId, sent_ms: u64 },
    Up { link: LinkId, number: LinkNumber },
}

#[derive(Debug)]
struct Read {
    due_ms: u64,
    number: LinkNumber,
    reply: Reply,
}

#[derive(Debug)]
struct Sending {
    due_ms: u64,
    link: LinkId,
    request: Request,
}

#[derive(Debug)]
struct Worker {
    owner: Owner,
    rounds: u32,
    holds: Vec<Held>,
    /// The last token for each file and range, in words.
    tokens: BTreeMap<String, Token>,
    doing: Doing,
    /// POSIX locks that it has released and was not answered.
    unlocking: Vec<Call>,
}

#[derive(Debug)]
enum Doing {
    Pausing {
        until_ms: u64,
    },
    Waiting {
        want: Want,
        call: Call,
        cancel_ms: Option<u64>,
        /// When the thread runs that was woken by the answer.
        wakes_ms: Option<u64>,
        /// Of one that acts on old grants.
        taken: Option<Box<Taken>>,
    },
    Using {
        until_ms: u64,
        next_io_ms: u64,
    },
}

#[derive(Debug)]
struct Held {
    want: Want,
    token: Token,
}

impl Client {
    pub(crate) fn new(identity: Identity, seed: u64, rounds: u32) -> Self {
        let worker = |owner| Worker {
            owner: Owner(owner),
            rounds,
            holds: Vec::new(),
            tokens: BTreeMap::new(),
            doing: Doing::Pausing { until_ms: 0 },
            unlocking: Vec::new(),
        };
        Self {
            identity,
            rng: StdRng::seed_from_u64(seed),
            core: None,
            transport: Transport::Down { retry_ms: 0 },
            patience_until_ms: u64::MAX,
            read: VecDeque::new(),
            sending: Default::default(),
            farewells: Vec::new(),
            renew_ms: u64::MAX,
            lease_ms: 0,
            workers: (0..WORKERS).map(worker).collect(),
            has_left: false,
            stopped_clock_ms: 0,
        }
    }

    /// What the client's clock shows it.
    fn clock(&self, now_ms: u64) -> u64 {
        match self.identity.flaw {
            ClientFlaw::NeverChecksLease => self.stopped_clock_ms,
            _ => now_ms,
        }
    }

    /// How long a thread stops before its next step.
    fn stop_ms(&mut self) -> u64 {
        match self.rng.random_range(0..60) {
            0 => self.rng.random_range(0..1500),
            1..6 => self.rng.random_range(0..20),
            _ => 0,
        }
    }

    /// Names its locks in beliefs, whatever session they are of.
    fn session(&self) -> SessionId {
        SessionId(self.identity.number)
    }

    fn is_up(&self) -> bool {
        self.core.as_ref().is_some_and(|core| core.link().is_some())
    }

    /// Has a thread send what the core returned.
    fn send(&mut self, now_ms: u64, thread: usize, requests: impl IntoIterator<Item = Request>) {
        let Transport::Up { link, .. } = self.transport else {
            return;
        };
        if !self.is_up() {
            return;
        }
        for request in requests {
            let due_ms = now_ms + self.stop_ms();
            let queue = &mut self.sending[thread];
            let due_ms = due_ms.max(queue.back().map_or(0, |before| before.due_ms));
            queue.push_back(Sending { due_ms, link, request });
        }
    }

    fn send_due(&mut self, now_ms: u64, out: &mut Out) {
        for queue in &mut self.sending {
            while queue.front().is_some_and(|sending| sending.due_ms <= now_ms)
                && let Some(Sending { link, request, .. }) = queue.pop_front()
            {
                out.send(link, Message::Request(request));
            }
        }
    }

    /// A link whose core has given it up is closed, at once or when what it held has been given back; and another is made.
    fn follow_core(&mut self, now_ms: u64, out: &mut Out) {
        let Some(core) = &mut self.core else { return };
        if let Transport::Up { link, number } = self.transport
            && core.link() != Some(number)
        {
            if core.owes_farewell(number) {
                self.farewells.push((number, link));
            } else {
                out.close(link);
            }
            let retry_ms = now_ms + self.rng.random_range(0..RETRY_MS);
            self.transport = Transport::Down { retry_ms };
        }
        let over = core.farewells();
        for (_, link) in self.farewells.extract_if(.., |(number, _)| over.contains(number)) {
            out.send(link, Message::Request(Request::Close));
            out.close(link);
        }
    }

    fn retry(&mut self, now_ms: u64) {
        let retry_ms = now_ms + self.rng.random_range(0..RETRY_MS);
        self.transport = Transport::Down { retry_ms };
    }

    fn welcome(&mut self, now_ms: u64, link: LinkId, sent_ms: u64, opened: Opened) {
        self.stopped_clock_ms = sent_ms;
        self.lease_ms = opened.ttl_ms;
        self.renew_ms = match opened.ttl_ms {
            0 => u64::MAX,
            ttl_ms => now_ms + u64::from(ttl_ms / 4),
        };
        let keeps = self.identity.flaw == ClientFlaw::KeepsLocksOfOldSession;
        let clock_ms = self.clock(now_ms);
        let (number, requests) = match &mut self.core {
            None => {
                let core = ClientCore::new(opened, 0);
                let number = core.link().expect("a new session has a link");
                self.core = Some(core);
                (number, Vec::new())
            }
            Some(core) => match core.link().filter(|_| keeps) {
                Some(number) => (number, Vec::new()),
                None => core.connected(&opened, clock_ms),
            },
        };
        self.transport = Transport::Up { link, number };
        self.send(now_ms, READER, requests);
        self.wake_answered(now_ms); // Who had cancelled is not asked for again.
    }

    /// The reader has read a reply; it says so later.
    fn reads(&mut self, now_ms: u64, reply: Reply) {
        let Transport::Up { number, .. } = self.transport else {
            return;
        };
        let due_ms = now_ms + self.stop_ms();
        let before = self.read.iter().rev().find(|read| read.number == number);
        let due_ms = due_ms.max(before.map_or(0, |before| before.due_ms));
        self.read.push_back(Read { due_ms, number, reply });
    }

    /// Says to the core what is due until then.
    fn handle_until(&mut self, until_ms: u64, now_ms: u64) {
        let mut due: Vec<Read> = Vec::new();
        while let Some(at) = self.read.iter().position(|read| read.due_ms <= until_ms) {
            due.extend(self.read.remove(at));
        }
        due.into_iter().for_each(|read| self.handle(now_ms, read));
    }

    fn handle(&mut self, now_ms: u64, read: Read) {
        let flaw = self.identity.flaw;
        let clock_ms = self.clock(now_ms);
        let Some(core) = &mut self.core else { return };
        let number = match flaw {
            ClientFlaw::BelievesOldLinks => core.link().unwrap_or(read.number),
            _ => read.number,
        };
        if let (ClientFlaw::CountsFromAnswers, Reply::Renewed { .. }) = (flaw, &read.reply)
            && let Some(Request::Renew { seq }) = core.renewal(now_ms)
        {
            core.handle_replies(number, clock_ms, [Reply::Renewed { seq }]);
        }
        let heard = core.handle_replies(number, clock_ms, [read.reply]);
        self.send(now_ms, READER, heard.send);
        self.wake_answered(now_ms);
    }

    /// Threads whose calls have been answered run some time later.
    fn wake_answered(&mut self, now_ms: u64) {
        for place in 0..self.workers.len() {
            let stop_ms = self.stop_ms();
            let acts_on_old = self.identity.flaw == ClientFlaw::ActsOnOldGrants;
            let (Some(core), worker) = (&mut self.core, &mut self.workers[place]) else {
                return;
            };
            if let Doing::Waiting {
                call, wakes_ms, taken, ..
            } = &mut worker.doing
                && wakes_ms.is_none()
                && core.is_answered(*call)
            {
                *wakes_ms = Some(now_ms + stop_ms);
                *taken = acts_on_old.then(|| Box::new(core.take(*call, now_ms)));
            }
        }
    }

    fn work(&mut self, now_ms: u64, place: usize, out: &mut Out) {
        self.take_unlocked(now_ms, place);
        let has_rounds = self.workers[place].rounds > 0;
        match &mut self.workers[place].doing {
            Doing::Pausing { until_ms } if *until_ms <= now_ms && has_rounds => self.ask(now_ms, place),
            Doing::Waiting {
                wakes_ms: Some(wakes_ms),
                ..
            } if *wakes_ms <= now_ms => self.take(now_ms, place, out),
            Doing::Waiting {
                cancel_ms, call, want, ..
            } if cancel_ms.is_some_and(|at| at <= now_ms) => {
                *cancel_ms = None;
                let (call, is_posix) = (*call, want.posix);
                self.cancel(now_ms, place, call, is_posix);
            }
            Doing::Using { until_ms, .. } if *until_ms <= now_ms => self.use_no_longer(now_ms, place),
            Doing::Using { next_io_ms, .. } if *next_io_ms <= now_ms => {
                *next_io_ms = now_ms + 1 + self.rng.random_range(0..25);
                self.do_io(now_ms, place, out);
            }
            _ => {}
        }
    }

    fn ask(&mut self, now_ms: u64, place: usize) {
        if !self.is_up() {
            // A real one would wait until there is a link; what it held is looked at meanwhile.
            self.workers[place].doing = Doing::Pausing {
                until_ms: now_ms + RETRY_MS,
            };
            return self.release_all(now_ms, place);
        }
        let clock_ms = self.clock(now_ms);
        let Some(core) = &mut self.core else { return };
        // A second POSIX lock would change the first; and those of a session that has lost one are refused.
        let may_be_posix = core.posix_lost(clock_ms).is_none() && self.workers[place].holds.is_empty();
        let id = LockId(core.number());
        let request = self.request(id, self.workers[place].owner, may_be_posix);
        let want = wanted(self.session(), &request).expect("a request for a lock");
        let call = Call::Lock(id);
        let can_send = self.core.as_mut().and_then(|core| core.ask(call, request.clone()));
        self.send(now_ms, place, can_send.map(|_| request));
        let cancel_ms = self.rng.random_bool(0.15).then(|| self.rng.random_range(0..80));
        self.workers[place].doing = Doing::Waiting {
            want,
            call,
            cancel_ms: cancel_ms.map(|after| now_ms + after),
            wakes_ms: None,
            taken: None,
        };
        self.wake_answered(now_ms); // Who owes the service something fails at once.
    }

    /// A list lock is given up by another thread, or its caller goes; a POSIX lock is cancelled by a signal.
    fn cancel(&mut self, now_ms: u64, place: usize, call: Call, is_posix: bool) {
        let (Some(core), Call::Lock(id)) = (&mut self.core, call) else {
            return;
        };
        let requests: Vec<Request> = match self.rng.random_range(0..2) {
            _ if is_posix => core.cancel(call).into_iter().collect(),
            0 => core.give_up(id).into_iter().collect(),
            _ => {
                self.workers[place].doing = Doing::Pausing { until_ms: now_ms };
                core.abandon(id)
            }
        };
        self.send(now_ms, place, requests);
        if let Doing::Pausing { .. } = self.workers[place].doing {
            self.release_all(now_ms, place);
        }
        self.wake_answered(now_ms);
    }

    /// The thread that waited runs.
    fn take(&mut self, now_ms: u64, place: usize, out: &mut Out) {
        let clock_ms = self.clock(now_ms);
        let (Some(core), worker) = (&mut self.core, &mut self.workers[place]) else {
            return;
        };
        let Doing::Waiting {
            want,
            call,
            wakes_ms,
            taken,
            ..
        } = &mut worker.doing
        else {
            return;
        };
        *wakes_ms = None;
        let taken = taken.take().map_or_else(|| core.take(*call, clock_ms), |taken| *taken);
        match taken {
            Taken::Answer(Reply::Granted { token, .. }) => {
                let want = want.clone();
                self.begin_to_use(now_ms, place, want, token, out);
            }
            Taken::Answer(_) | Taken::Failed(_) => {
                self.release_all(now_ms, place);
                self.workers[place].doing = Doing::Pausing { until_ms: now_ms + 5 };
            }
            Taken::AskAgain(request) => self.send(now_ms, place, [request]),
            Taken::NotYet if core.is_answered(*call) => *wakes_ms = Some(now_ms + 1),
            Taken::NotYet => {}
        }
    }

    /// What is granted is good when it is taken: the I/O comes without another look.
    fn begin_to_use(&mut self, now_ms: u64, place: usize, want: Want, token: Token, out: &mut Out) {
        let worker = &mut self.workers[place];
        let about = format!("{} {:?}", want.file, want.bytes);
        let before = worker.tokens.insert(about, token);
        assert!(before < Some(token), "{token:?} after {before:?}: {want:?}");
        let held = Held { want, token };
        out.io(held.assumed_lock());
        worker.holds.push(held);
        let for_ms = if self.rng.random_bool(0.2) { 1500 } else { 50 };
        worker.doing = Doing::Using {
            until_ms: now_ms + self.rng.random_range(0..for_ms),
            next_io_ms: now_ms + 1,
        };
    }

    /// Looks whether each lock is still its own, and reads or writes at once; forgets those that are lost.
    fn do_io(&mut self, now_ms: u64, place: usize, out: &mut Out) {
        let clock_ms = self.clock(now_ms);
        let Some(core) = &mut self.core else { return };
        let worker = &mut self.workers[place];
        worker.holds.retain(|held| match held.standing(core, clock_ms) {
            Standing::Ours(_) => {
                out.io(held.assumed_lock());
                true
            }
            Standing::Unknown => true,
            Standing::Lost(_) => {
                drop(core.unlock(held.want.id));
                false
            }
        });
        if let Doing::Using { until_ms, .. } = &mut worker.doing
            && worker.holds.iter().any(|held| core.is_wanted(held.want.id))
            && self.rng.random_bool(0.5)
        {
            *until_ms = now_ms; // Somebody waits: often we are quick to give it back.
        }
    }

    fn use_no_longer(&mut self, now_ms: u64, place: usize) {
        if self.workers[place].holds.len() == 1 && self.rng.random_bool(0.35) {
            return self.ask(now_ms, place);
        }
        self.release_all(now_ms, place);
        let until_ms = now_ms + self.rng.random_range(0..30);
        let worker = &mut self.workers[place];
        worker.rounds = worker.rounds.saturating_sub(1);
        worker.doing = Doing::Pausing { until_ms };
    }

    fn release_all(&mut self, now_ms: u64, place: usize) {
        let Some(core) = &mut self.core else { return };
        let mut requests = Vec::new();
        for held in std::mem::take(&mut self.workers[place].holds) {
            if held.want.posix {
                let id = LockId(core.number());
                let request = held.posix_unlock(id);
                if core.ask(Call::Lock(id), request.clone()).is_some() {
                    requests.push(request);
                }
                self.workers[place].unlocking.push(Call::Lock(id));
            } else {
                requests.extend(core.unlock(held.want.id));
            }
        }
        self.send(now_ms, place, requests);
    }

    fn take_unlocked(&mut self, now_ms: u64, place: usize) {
        let clock_ms = self.clock(now_ms);
        if let Some(core) = &mut self.core {
            let calls = &mut self.workers[place].unlocking;
            calls.retain(|&call| core.take(call, clock_ms) == Taken::NotYet);
        }
    }

    fn request(&mut self, id: LockId, owner: Owner, may_be_posix: bool) -> Request {
        let rng = &mut self.rng;
        let file = file(rng.random_range(0..2));
        let mode = if rng.random_bool(0.4) {
            LockMode::Shared
        } else {
            LockMode::Exclusive
        };
        let wait = match rng.random_range(0..8) {
            0 => Wait::Try,
            1 | 2 => Wait::For(rng.random_range(0..300)),
            _ => Wait::Forever,
        };
        let start = rng.random_range(0..24);
        if may_be_posix && rng.random_bool(0.2) {
            let end = start + rng.random_range(1..12);
            return Request::Posix(PosixRequest {
                id,
                owner,
                file,
                start,
                end,
                mode: Some(mode),
                wait,
            });
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
        Request::Lock(LockRequest {
            id,
            owner,
            file,
            mode,
            footprint,
            wait,
            recall: rng.random_bool(0.2),
        })
    }

    fn keep_up(&mut self, now_ms: u64, out: &mut Out) {
        match self.transport {
            Transport::Down { retry_ms } if retry_ms <= now_ms && !self.has_left => self.connect(now_ms, out),
            Transport::Opening { since_ms: sent_ms } | Transport::Hello { sent_ms, .. }
                if sent_ms + u64::from(TTL_MS) <= now_ms =>
            {
                if let Transport::Hello { link, .. } = self.transport {
                    out.close(link);
                }
                self.not_connected(now_ms);
            }
            _ => {}
        }
        if self.renew_ms <= now_ms && self.is_up() {
            self.renew_ms = now_ms + u64::from(self.lease_ms / 4);
            let clock_ms = self.clock(now_ms);
            let renewal = self.core.as_mut().and_then(|core| core.renewal(clock_ms));
            self.send(now_ms, RENEWER, renewal);
        }
    }

    fn connect(&mut self, now_ms: u64, out: &mut Out) {
        let clock_ms = self.clock(now_ms);
        if let Some(until_ms) = self.core.as_mut().and_then(|core| core.connect(clock_ms)) {
            self.patience_until_ms = until_ms;
        }
        self.transport = Transport::Opening { since_ms: now_ms };
        out.connect(self.identity.service);
    }

    /// Nobody was there: tries again, or says that it has had enough.
    fn not_connected(&mut self, now_ms: u64) {
        self.retry(now_ms);
        if let Some(core) = &mut self.core
            && core.is_connecting()
            && (now_ms >= self.patience_until_ms || self.rng.random_bool(0.05))
        {
            core.failed("nobody is there");
            self.wake_answered(now_ms);
        }
    }

    fn leave_if_finished(&mut self, out: &mut Out) {
        let is_finished = self.workers.iter().all(Worker::is_finished);
        if let (true, Transport::Up { link, .. }) = (is_finished && !self.has_left, &self.transport) {
            out.send(*link, Message::Request(Request::Close));
            out.close(*link);
            self.has_left = true;
            self.core = None;
            self.transport = Transport::Down { retry_ms: u64::MAX };
        }
    }

    fn step(&mut self, now_ms: u64, out: &mut Out) {
        self.handle_until(now_ms, now_ms);
        self.keep_up(now_ms, out);
        for place in 0..self.workers.len() {
            self.work(now_ms, place, out);
        }
        self.send_due(now_ms, out);
        self.follow_core(now_ms, out);
        self.leave_if_finished(out);
    }
}

impl Held {
    fn assumed_lock(&self) -> AssumedLock {
        AssumedLock {
            want: self.want.clone(),
            token: self.token,
        }
    }

    fn standing(&self, core: &mut ClientCore, now_ms: u64) -> Standing {
        if !self.want.posix {
            return core.standing(self.want.id, now_ms);
        }
        match core.posix_lost(now_ms) {
            Some(why) => Standing::Lost(why.to_owned()),
            None => Standing::Ours(self.token),
        }
    }

    fn posix_unlock(&self, id: LockId) -> Request {
        Request::Posix(PosixRequest {
            id,
            owner: self.want.who.owner,
            file: self.want.file.clone(),
            start: self.want.bytes[0].start,
            end: self.want.bytes[0].end,
            mode: None,
            wait: Wait::Try,
        })
    }
}

impl Worker {
    fn is_finished(&self) -> bool {
        self.rounds == 0
            && self.holds.is_empty()
            && self.unlocking.is_empty()
            && matches!(self.doing, Doing::Pausing { .. })
    }

    fn next_ms(&self) -> Option<u64> {
        match self.doing {
            Doing::Pausing { until_ms } => (self.rounds > 0).then_some(until_ms),
            Doing::Waiting {
                cancel_ms, wakes_ms, ..
            } => cancel_ms.into_iter().chain(wakes_ms).min(),
            Doing::Using { until_ms, next_io_ms } => Some(until_ms.min(next_io_ms)),
        }
    }
}

impl Node for Client {
    fn started(&mut self, now_ms: u64, out: &mut Out) {
        // Some come late: the session of their proxy is no new one then.
        self.transport = Transport::Down {
            retry_ms: now_ms + self.rng.random_range(0..1000),
        };
        self.step(now_ms, out);
    }

    fn opened(&mut self, now_ms: u64, link: LinkId, _is_own: bool, out: &mut Out) {
        if !matches!(self.transport, Transport::Opening { .. }) {
            return out.close(link); // It took so long that another was opened.
        }
        self.transport = Transport::Hello { link, sent_ms: now_ms };
        let hello = Hello {
            is_proxy: false,
            ttl_ms: self.identity.ttl_ms,
        };
        out.send(link, Message::Hello(hello));
    }

    fn received(&mut self, now_ms: u64, link: LinkId, message: Message, out: &mut Out) {
        match (message, &self.transport) {
            (
                Message::Welcome {
                    ttl_ms,
                    epoch,
                    grace_ms,
                    grace_ms_max,
                },
                &Transport::Hello { link: ours, sent_ms },
            ) if ours == link => {
                let opened = Opened {
                    at_ms: sent_ms,
                    ttl_ms,
                    epoch,
                    grace_ms,
                    grace_ms_max,
                };
                self.welcome(now_ms, link, sent_ms, opened);
            }
            (Message::Reply(reply), Transport::Up { link: ours, .. }) if *ours == link => self.reads(now_ms, reply),
            (Message::Hello(_) | Message::Request(_), _) => unreachable!("nobody asks a client"),
            _ => {}
        }
        self.step(now_ms, out);
    }

    fn ended(&mut self, now_ms: u64, link: LinkId, _ending: Ending, out: &mut Out) {
        let clock_ms = self.clock(now_ms);
        match self.transport {
            Transport::Up { link: ours, number } if ours == link => {
                // A thread that sends may see the end before the one that reads has said what came before it.
                if self.rng.random_bool(0.5) {
                    self.handle_until(u64::MAX, now_ms);
                }
                let keeps = self.identity.flaw == ClientFlaw::KeepsLocksOfOldSession;
                if let Some(core) = self.core.as_mut().filter(|_| !keeps) {
                    core.disconnected(number, clock_ms, "the connection ended");
                }
                self.retry(now_ms);
            }
            Transport::Hello { link: ours, .. } if ours == link => self.not_connected(now_ms),
            Transport::Opening { .. } => self.not_connected(now_ms),
            _ => {}
        }
        self.step(now_ms, out);
    }

    fn woke(&mut self, now_ms: u64, out: &mut Out) {
        self.step(now_ms, out);
    }

    fn deadline(&self) -> Option<u64> {
        let transport = match &self.transport {
            Transport::Down { retry_ms } => (!self.has_left).then_some(*retry_ms),
            Transport::Opening { since_ms: sent_ms } | Transport::Hello { sent_ms, .. } => {
                Some(sent_ms + u64::from(TTL_MS))
            }
            Transport::Up { .. } => (self.identity.ttl_ms > 0).then_some(self.renew_ms),
        };
        let read = self.read.iter().map(|read| read.due_ms);
        let sending = self.sending.iter().filter_map(|queue| Some(queue.front()?.due_ms));
        let workers = self.workers.iter().filter_map(Worker::next_ms);
        workers.chain(transport).chain(read).chain(sending).min()
    }

    fn assumed_locks(&self, now_ms: u64) -> Vec<AssumedLock> {
        let clock_ms = self.clock(now_ms);
        let Some(core) = &self.core else {
            return Vec::new();
        };
        // To look must not change what it will do.
        let is_ours = |held: &&Held| match held.want.posix {
            true => core.has_posix_at(clock_ms),
            false => matches!(core.standing_at(held.want.id, clock_ms), Standing::Ours(_)),
        };
        let holds = self.workers.iter().flat_map(|worker| &worker.holds);
        holds.filter(is_ours).map(Held::assumed_lock).collect()
    }

    fn polls(&self) -> Option<LinkId> {
        match self.transport {
            Transport::Up { link, .. } if self.identity.ttl_ms == 0 => Some(link),
            _ => None,
        }
    }

    fn is_done(&self) -> bool {
        self.has_left
    }

    fn describe(&self) -> String {
        format!("{self:#?}")
    }
}
