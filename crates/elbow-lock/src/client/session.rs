//! The calls, holds and link of one client, shared by its threads. What follows when the link breaks is in [`recovery`].
//!
//! Invariants: a call is in `calls` from before it is sent until its caller has taken the answer. A hold is in `holds`
//! from the dispatch of its grant (not from when its caller wakes) until it is released, so that a break in between is
//! seen. At most one thread reads the link, and it reads for all.

mod recovery;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use elbow_ranges::Footprint;
use parking_lot::{Condvar, Mutex, MutexGuard};

use self::recovery::Break;
use super::link::{Broken, Link, Receive, Received, now_ms};
use super::{Options, Posix};
use crate::address::Address;
use crate::error::LockError;
use crate::lease::ClientLease;
use crate::message::{Blocker, FileName, Kind, LockId, Owner, Refusal, Reply, Request, Token, Wait};
use crate::wire;

/// How long a thread that a signal may end sleeps while another one reads.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);
/// Bytes of a request beside its footprint, with the longest name.
const REQUEST_BYTES_MAX: usize = 8 << 10;

pub(super) struct Session {
    address: Address,
    options: Options,
    /// A child that forked must not speak for its parent.
    process: u32,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    link: Up,
    /// Somebody reads the link.
    reading: bool,
    calls: HashMap<Call, Pending>,
    holds: HashMap<LockId, Held>,
    /// POSIX locks may be held: what a break of the link loses.
    has_posix: bool,
    posix_lost: Option<String>,
    last_number: u64,
    lease: Option<ClientLease>,
}

enum Up {
    Link(Arc<Link>),
    Down(Break),
    Connecting,
}

/// What an answer is an answer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Call {
    Lock(LockId),
    Number(u64),
}

struct Pending {
    request: Request,
    outcome: Option<Result<Reply, String>>,
}

/// Whether there was any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Made,
    /// A signal came, and was asked for.
    Signal,
}

struct Held {
    request: Request,
    token: Token,
    wanted: bool,
    /// Its caller did not want it any more when it had been granted: it is not asked for again.
    given_up: bool,
    standing: Standing,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Standing {
    Ours,
    Reasserting,
    Lost(String),
}

impl State {
    /// Whether this is the link that requests go out over now.
    fn is_current(&self, link: &Arc<Link>) -> bool {
        matches!(&self.link, Up::Link(current) if Arc::ptr_eq(current, link))
    }
}

impl Held {
    /// The first reason counts.
    fn lose(&mut self, why: &str) {
        if !matches!(self.standing, Standing::Lost(_)) {
            self.standing = Standing::Lost(why.to_owned());
        }
    }
}

impl Session {
    pub(super) fn open(address: Address, options: Options) -> Result<Arc<Self>, LockError> {
        let link = Link::open(&address, &options.name, options.ttl_ms, options.key.as_ref())?;
        let (lease, ttl_ms) = (lease_of(&link), link.welcome.ttl_ms);
        let session = Arc::new(Self {
            address,
            options,
            process: std::process::id(),
            state: Mutex::new(State {
                link: Up::Link(Arc::new(link)),
                reading: false,
                calls: HashMap::new(),
                holds: HashMap::new(),
                has_posix: false,
                posix_lost: None,
                last_number: 0,
                lease,
            }),
            changed: Condvar::new(),
        });
        if ttl_ms > 0 {
            renew_while_alive(&session, ttl_ms)?;
        }
        Ok(session)
    }

    /// Asks for a lock; [`wait`](Self::wait) or [`abandon`](Self::abandon) must follow.
    pub(super) fn ask(
        &self,
        owner: Owner,
        file: &FileName,
        footprint: Footprint,
        kind: Kind,
        wait: Wait,
    ) -> Result<LockId, LockError> {
        let id = LockId(self.number());
        let request = Request::Lock {
            id,
            owner,
            file: file.clone(),
            kind,
            footprint,
            wait,
            recall: false,
        };
        fits(file, &request)?;
        self.begin(Call::Lock(id), &request)?;
        Ok(id)
    }

    pub(super) fn wait(&self, id: LockId, file: &FileName) -> Result<Token, LockError> {
        loop {
            match self.outcome(Call::Lock(id), Receive::Block)? {
                Reply::Granted { .. } => {}
                other => return Err(refused(file, other)),
            }
            // A grant may be old when its waiter takes it: who was stopped past the lease would act on what is another's by now.
            match self.token_of(id, file) {
                Err(_) if self.ask_again(id) => {}
                checked => return checked,
            }
        }
    }

    /// Asks once more for what was granted and lost before its caller knew. False: it was released.
    fn ask_again(&self, id: LockId) -> bool {
        let mut state = self.state.lock();
        let Some(Held { request, given_up, .. }) = state.holds.remove(&id) else {
            return false;
        };
        if given_up {
            let why = Refusal::Cancelled;
            let outcome = Some(Ok(Reply::Refused { id, why }));
            state.calls.insert(Call::Lock(id), Pending { request, outcome });
        } else {
            self.put(&mut state, Call::Lock(id), &request);
        }
        true
    }

    /// Gives up a lock that was asked for, unless it has been granted or refused.
    pub(super) fn give_up(&self, id: LockId) {
        let mut state = self.state.lock();
        if let Some(pending) = state.calls.get_mut(&Call::Lock(id))
            && pending.outcome.is_none()
        {
            // The service's own word may be another and is then too late: what it granted, the cancellation gives back.
            let why = Refusal::Cancelled;
            pending.outcome = Some(Ok(Reply::Refused { id, why }));
            self.changed.notify_all();
            self.cancel(&mut state, Call::Lock(id));
        } else if let Some(held) = state.holds.get_mut(&id) {
            held.given_up = true;
        }
    }

    /// Nobody waits for a lock that was asked for any more.
    pub(super) fn abandon(&self, id: LockId) {
        self.give_up(id);
        if self.state.lock().calls.remove(&Call::Lock(id)).is_some() {
            self.unlock(id);
        }
    }

    pub(super) fn unlock(&self, id: LockId) {
        let mut state = self.state.lock();
        let held = state.holds.remove(&id);
        if let (
            Some(Held {
                standing: Standing::Ours | Standing::Reasserting,
                ..
            }),
            Up::Link(link),
        ) = (held, &state.link)
        {
            let link = Arc::clone(link);
            drop(state);
            self.send(&link, &Request::Unlock { id });
        }
    }

    pub(super) fn check(&self, id: LockId, file: &FileName) -> Result<(), LockError> {
        self.token_of(id, file).map(|_| ())
    }

    /// The token of a hold that is good at this moment.
    fn token_of(&self, id: LockId, file: &FileName) -> Result<Token, LockError> {
        let mut state = self.state.lock();
        self.poll(&mut state);
        loop {
            let Some(held) = state.holds.get(&id) else {
                return Err(lost(file, "it was released"));
            };
            match &held.standing {
                Standing::Lost(why) => return Err(lost(file, why)),
                Standing::Ours if matches!(state.link, Up::Link(_)) => return Ok(held.token),
                _ => drop(
                    self.progress(&mut state, Receive::Block)
                        .map_err(|error| lost(file, &error.to_string()))?,
                ),
            }
        }
    }

    pub(super) fn is_wanted(&self, id: LockId) -> bool {
        let mut state = self.state.lock();
        self.poll(&mut state);
        state.holds.get(&id).is_some_and(|held| held.wanted)
    }

    pub(super) fn posix(
        &self,
        lock: &Posix<'_>,
        kind: Option<Kind>,
        wait: Wait,
        interruptible: bool,
    ) -> Result<(), LockError> {
        if let Some(why) = &self.state.lock().posix_lost {
            return Err(lost(lock.file, why));
        }
        let id = LockId(self.number());
        let (owner, file, start, end) = (lock.owner, lock.file.clone(), lock.start, lock.end);
        let request = Request::Posix {
            id,
            owner,
            file,
            start,
            end,
            kind,
            wait,
        };
        let how = if interruptible {
            Receive::UntilSignal
        } else {
            Receive::Block
        };
        match self.call(Call::Lock(id), &request, how)? {
            Reply::Granted { .. } => {
                let mut state = self.state.lock();
                self.poll(&mut state);
                match &state.posix_lost {
                    Some(why) if kind.is_some() => Err(lost(lock.file, why)),
                    _ => Ok(()),
                }
            }
            Reply::Refused {
                why: Refusal::Cancelled,
                ..
            } => Err(LockError::Interrupted {
                file: lock.file.clone(),
            }),
            other => Err(refused(lock.file, other)),
        }
    }

    pub(super) fn posix_release(&self, owner: Owner, file: Option<FileName>) -> Result<(), LockError> {
        let link = self.link()?;
        self.send(&link, &Request::PosixRelease { owner, file });
        Ok(())
    }

    pub(super) fn query(&self, lock: &Posix<'_>, kind: Kind) -> Result<Option<Blocker>, LockError> {
        let id = LockId(self.number());
        let (owner, file, start, end) = (lock.owner, lock.file.clone(), lock.start, lock.end);
        match self.call(
            Call::Lock(id),
            &Request::Query {
                id,
                owner,
                file,
                kind,
                start,
                end,
            },
            Receive::Block,
        )? {
            Reply::Answer { blocker, .. } => Ok(blocker),
            other => Err(refused(lock.file, other)),
        }
    }

    pub(super) fn status(&self) -> Result<String, LockError> {
        let seq = self.number();
        match self.call(Call::Number(seq), &Request::Status { seq }, Receive::Block)? {
            Reply::Status { json, .. } => Ok(json),
            other => Err(self.rejected(format!("it answered {other:?} to a question for its status"))),
        }
    }

    fn renew(&self) -> Result<(), LockError> {
        let seq = self.number();
        if let Some(lease) = &mut self.state.lock().lease {
            lease.sent(now_ms(), seq);
        }
        self.call(Call::Number(seq), &Request::Renew { seq }, Receive::Block)
            .map(|_| ())
    }

    /// Sends a request and waits for its answer.
    fn call(&self, call: Call, request: &Request, how: Receive) -> Result<Reply, LockError> {
        self.begin(call, request)?;
        self.outcome(call, how)
    }

    /// Sends a request.
    fn begin(&self, call: Call, request: &Request) -> Result<(), LockError> {
        let mut state = self.state.lock();
        self.bring_up(&mut state)?;
        self.put(&mut state, call, request);
        Ok(())
    }

    /// Notes a call and sends it; where the link is down, whoever connects sends it.
    fn put(&self, state: &mut MutexGuard<'_, State>, call: Call, request: &Request) {
        let pending = Pending {
            request: request.clone(),
            outcome: None,
        };
        state.calls.insert(call, pending);
        if let Up::Link(link) = &state.link {
            let link = Arc::clone(link);
            MutexGuard::unlocked(state, || self.send(&link, request));
        }
    }

    /// Waits for the answer to what was sent.
    fn outcome(&self, call: Call, mut how: Receive) -> Result<Reply, LockError> {
        let mut state = self.state.lock();
        loop {
            if let Some(outcome) = state.calls.get_mut(&call).and_then(|pending| pending.outcome.take()) {
                state.calls.remove(&call);
                return outcome.map_err(|why| self.rejected(why));
            }
            match self.progress(&mut state, how) {
                Ok(Progress::Made) => {}
                Ok(Progress::Signal) => {
                    how = Receive::Block; // The service's word counts: it may have been granted meanwhile.
                    self.cancel(&mut state, call);
                }
                Err(error) => {
                    state.calls.remove(&call);
                    return Err(error);
                }
            }
        }
    }

    fn cancel(&self, state: &mut MutexGuard<'_, State>, call: Call) {
        if let (Call::Lock(id), Up::Link(link)) = (call, &state.link) {
            let link = Arc::clone(link);
            MutexGuard::unlocked(state, || self.send(&link, &Request::Cancel { id }));
        }
    }

    /// Does one thing that may bring an answer: connects, reads, or waits for the thread that does.
    fn progress(&self, state: &mut MutexGuard<'_, State>, how: Receive) -> Result<Progress, LockError> {
        let Up::Link(link) = &state.link else {
            self.bring_up(state)?;
            return Ok(Progress::Made); // Meanwhile the call may have been given up.
        };
        if state.reading {
            self.wait_for_reader(state, how);
            return Ok(Progress::Made);
        }
        let link = Arc::clone(link);
        state.reading = true;
        let mut replies = Vec::new();
        let received = MutexGuard::unlocked(state, || link.receive(how, &mut replies));
        state.reading = false;
        let signal = matches!(received, Ok(Received::Signal));
        self.heard(state, &link, replies, received);
        Ok(if signal { Progress::Signal } else { Progress::Made })
    }

    /// A thread that a signal may end waits in small steps, because a condition variable sleeps through signals.
    fn wait_for_reader(&self, state: &mut MutexGuard<'_, State>, how: Receive) {
        match how {
            Receive::UntilSignal => drop(self.changed.wait_for(state, SIGNALS_EVERY)),
            _ => self.changed.wait(state),
        }
    }

    /// Takes what the service has said meanwhile, and looks at the lease.
    fn poll(&self, state: &mut MutexGuard<'_, State>) {
        let Up::Link(link) = &state.link else { return };
        let link = Arc::clone(link);
        let mut replies = Vec::new();
        let received = if state.reading {
            Ok(Received::Nothing)
        } else {
            link.receive(Receive::Poll, &mut replies)
        };
        self.heard(state, &link, replies, received);
    }

    /// What a receive brought, and what follows if it ended the link or took longer than our lease.
    fn heard(&self, state: &mut State, link: &Arc<Link>, replies: Vec<Reply>, received: Result<Received, Broken>) {
        for reply in replies {
            // What came over a link that another has replaced is the word of a session that has ended: what it answers is asked again.
            if state.is_current(link) {
                self.dispatch(state, reply);
            }
        }
        if let Err(broken) = received {
            self.broke(state, link, broken.to_string());
        } else if state.lease.as_mut().is_some_and(|lease| !lease.check(now_ms())) {
            self.broke(
                state,
                link,
                "the lock service was silent for longer than our lease".to_owned(),
            );
        }
        self.changed.notify_all();
    }

    fn dispatch(&self, state: &mut State, reply: Reply) {
        match reply {
            Reply::Granted { id, token } => self.granted(state, id, token),
            Reply::Refused { id, why } => match state.holds.get_mut(&id) {
                Some(held) => held.standing = Standing::Lost(why.to_string()),
                None => answer(state, Call::Lock(id), Reply::Refused { id, why }),
            },
            Reply::Recall { id } => {
                if let Some(held) = state.holds.get_mut(&id) {
                    held.wanted = true;
                }
            }
            Reply::Renewed { seq } => {
                if let Some(lease) = &mut state.lease {
                    lease.answered(seq);
                }
                answer(state, Call::Number(seq), reply);
            }
            Reply::Answer { id, .. } => answer(state, Call::Lock(id), reply),
            Reply::Status { seq, .. } => answer(state, Call::Number(seq), reply),
            Reply::Lost { why } => {
                if let Up::Link(link) = &state.link {
                    let link = Arc::clone(link);
                    // Somebody else may have been given what was held.
                    state.holds.values_mut().for_each(|held| held.lose(&why));
                    self.broke(state, &link, why);
                }
            }
        }
    }

    fn granted(&self, state: &mut State, id: LockId, token: Token) {
        if let Some(held) = state.holds.get_mut(&id) {
            held.standing = Standing::Ours;
            held.token = token;
            return;
        }
        let pending = state.calls.get_mut(&Call::Lock(id));
        // Given up, or of a caller that has gone: the cancellation may have come to the service before the request.
        let Some(pending) = pending.filter(|pending| pending.outcome.is_none()) else {
            if let Up::Link(link) = &state.link {
                // Who reads finds out if it fails.
                let _ = link.send(&Request::Unlock { id });
            }
            return;
        };
        pending.outcome = Some(Ok(Reply::Granted { id, token }));
        match &pending.request {
            request @ Request::Lock { .. } => {
                let held = Held {
                    request: request.clone(),
                    token,
                    wanted: false,
                    given_up: false,
                    standing: Standing::Ours,
                };
                state.holds.insert(id, held);
            }
            Request::Posix { kind: Some(_), .. } => state.has_posix = true,
            _ => {}
        }
    }

    fn link(&self) -> Result<Arc<Link>, LockError> {
        let mut state = self.state.lock();
        loop {
            self.bring_up(&mut state)?;
            if let Up::Link(link) = &state.link {
                return Ok(Arc::clone(link));
            }
        }
    }

    /// An error is seen by whoever reads next.
    fn send(&self, link: &Arc<Link>, request: &Request) {
        if self.process != std::process::id() {
            return;
        }
        if let Err(error) = link.send(request) {
            let mut state = self.state.lock();
            self.broke(&mut state, link, Broken::Io(error).to_string());
        }
    }

    fn number(&self) -> u64 {
        let mut state = self.state.lock();
        state.last_number += 1;
        state.last_number
    }

    fn rejected(&self, why: String) -> LockError {
        LockError::Rejected {
            address: self.address.clone(),
            why,
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Up::Link(link) = &self.state.get_mut().link
            && self.process == std::process::id()
        {
            // Nobody needs to know whether it arrives: the lease ends the session too.
            drop(link.send(&Request::Close));
        }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Session({})", self.address)
    }
}

impl std::fmt::Display for Broken {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => write!(formatter, "the connection to the lock service broke: {error}"),
            Self::Garbled(error) => write!(formatter, "the lock service sent something else than locks: {error}"),
        }
    }
}

fn answer(state: &mut State, call: Call, reply: Reply) {
    if let Some(pending) = state.calls.get_mut(&call) {
        pending.outcome.get_or_insert(Ok(reply));
    }
}

fn lease_of(link: &Link) -> Option<ClientLease> {
    (link.welcome.ttl_ms > 0).then(|| ClientLease::new(link.welcome.ttl_ms, link.opened_ms))
}

fn fits(file: &FileName, request: &Request) -> Result<(), LockError> {
    let mut frame = Vec::new();
    wire::append_request(&mut frame, request);
    match frame.len() {
        bytes if bytes > wire::FRAME_BYTES_MAX - REQUEST_BYTES_MAX => Err(LockError::TooLong {
            file: file.clone(),
            bytes,
        }),
        _ => Ok(()),
    }
}

fn refused(file: &FileName, reply: Reply) -> LockError {
    match reply {
        Reply::Refused { why, .. } => LockError::Refused {
            file: file.clone(),
            why,
        },
        other => lost(file, &format!("the service answered {other:?}")),
    }
}

fn lost(file: &FileName, why: &str) -> LockError {
    LockError::Lost {
        file: file.clone(),
        why: why.to_owned(),
    }
}

/// Renews the session's lease from a thread of its own, as long as somebody has the session.
fn renew_while_alive(session: &Arc<Session>, ttl_ms: u32) -> Result<(), LockError> {
    let weak = Arc::downgrade(session);
    let pause = Duration::from_millis(u64::from(ttl_ms / 4).max(1));
    let spawned = std::thread::Builder::new()
        .name("elbow-lease".to_owned())
        .spawn(move || {
            loop {
                std::thread::sleep(pause);
                let Some(session) = weak.upgrade() else { return };
                // A failure is in the session's state, where whoever needs the lease finds it.
                drop(session.renew());
            }
        });
    spawned.map(|_| ()).map_err(|source| LockError::Unreachable {
        address: session.address.clone(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;
    use crate::hello::{Opening, PROTOCOL_VERSION, Proof, Welcome};
    use crate::message::SessionId;

    /// The other end of a link, which says what the test says.
    struct Peer(UnixStream);

    impl Peer {
        fn let_in(listener: &UnixListener, number: u64) -> Self {
            let mut peer = Self(listener.accept().unwrap().0);
            peer.read();
            let welcome = Welcome {
                version: PROTOCOL_VERSION,
                session: SessionId(number),
                ttl_ms: 0,
                epoch: 1,
                grace_ms: 0,
                grace_ms_max: 0,
                proof: Proof::default(),
            };
            let mut frame = Vec::new();
            Opening::Welcome(welcome).append(&mut frame);
            peer.0.write_all(&frame).unwrap();
            peer
        }

        /// The payload of the next frame; nothing follows it, since whoever sent it waits.
        fn read(&mut self) -> Vec<u8> {
            let mut bytes = Vec::new();
            while wire::frame_length(&bytes).unwrap().is_none() {
                let had = bytes.len();
                bytes.resize(had + 1_000, 0);
                let got = self.0.read(&mut bytes[had..]).unwrap();
                bytes.truncate(had + got);
            }
            bytes.split_off(wire::LENGTH_BYTES)
        }

        fn say(&mut self, reply: &Reply) {
            let mut frame = Vec::new();
            wire::append_reply(&mut frame, reply);
            self.0.write_all(&frame).unwrap();
        }
    }

    fn link_of(session: &Session) -> Arc<Link> {
        match &session.state.lock().link {
            Up::Link(link) => Arc::clone(link),
            _ => panic!("no link"),
        }
    }

    /// A session with a service that the test plays, on a socket that others can connect to.
    struct Stage {
        _directory: tempfile::TempDir,
        listener: UnixListener,
        session: Arc<Session>,
        peer: Peer,
        file: FileName,
    }

    impl Stage {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let place = directory.path().join("socket");
            let listener = UnixListener::bind(&place).unwrap();
            let address: Address = format!("unix:{}", place.display()).parse().unwrap();
            let opened = std::thread::spawn(|| Session::open(address, Options::default()).unwrap());
            let peer = Peer::let_in(&listener, 1);
            Self {
                _directory: directory,
                listener,
                session: opened.join().unwrap(),
                peer,
                file: FileName::new(b"/f").unwrap(),
            }
        }

        fn ask(&mut self) -> LockId {
            let whole = Footprint::whole();
            let asked = self
                .session
                .ask(Owner(1), &self.file, whole, Kind::Exclusive, Wait::Forever);
            self.peer.read();
            asked.unwrap()
        }

        /// Breaks the link and makes another; gives the broken one.
        fn replace_link(&mut self) -> Arc<Link> {
            let old = link_of(&self.session);
            self.session
                .broke(&mut self.session.state.lock(), &old, "the test says so".to_owned());
            let session = Arc::clone(&self.session);
            let connecting = std::thread::spawn(move || session.link().unwrap());
            self.peer = Peer::let_in(&self.listener, 2);
            connecting.join().unwrap();
            old
        }
    }

    /// A thread that was stopped between reading a link and saying what it read: meanwhile another one found the link broken, and connected
    /// again. The grant of the ended session was then believed for good.
    #[test]
    fn what_came_over_a_link_that_was_replaced_is_not_believed() {
        let mut stage = Stage::new();
        let id = stage.ask();
        let old = stage.replace_link();
        let again = wire::decode_request(&stage.peer.read()).unwrap();
        assert!(
            matches!(again, Request::Lock { id: asked, .. } if asked == id),
            "{again:?}"
        );

        let session = &stage.session;
        let of_first = vec![Reply::Granted { id, token: Token(1) }];
        session.heard(&mut session.state.lock(), &old, of_first, Ok(Received::Replies));
        let state = session.state.lock();
        assert!(state.holds.is_empty() && state.calls[&Call::Lock(id)].outcome.is_none());
        drop(state);

        let token = Token(2);
        stage.peer.say(&Reply::Granted { id, token });
        assert_eq!(session.wait(id, &stage.file).unwrap(), token);
        session.check(id, &stage.file).unwrap();
    }

    /// The cancellation may overtake the request that it cancels: what is granted then is nobody's.
    #[test]
    fn a_grant_that_nobody_wants_any_more_is_given_back() {
        let mut stage = Stage::new();
        let id = stage.ask();
        stage.session.give_up(id);
        assert_eq!(
            wire::decode_request(&stage.peer.read()).unwrap(),
            Request::Cancel { id }
        );
        stage.peer.say(&Reply::Granted { id, token: Token(1) });
        assert!(!stage.session.is_wanted(id));
        assert_eq!(
            wire::decode_request(&stage.peer.read()).unwrap(),
            Request::Unlock { id }
        );
    }

    /// Who gave up a lock that had just been granted, and is then lost, waited for it again, for ever.
    #[test]
    fn what_was_given_up_when_it_had_been_granted_is_not_asked_for_again() {
        let mut stage = Stage::new();
        let id = stage.ask();
        stage.peer.say(&Reply::Granted { id, token: Token(1) });
        assert!(!stage.session.is_wanted(id));
        stage.session.give_up(id);
        stage.replace_link();
        let waited = stage.session.wait(id, &stage.file);
        let is_cancelled = matches!(
            &waited,
            Err(LockError::Refused {
                why: Refusal::Cancelled,
                ..
            })
        );
        assert!(is_cancelled, "{waited:?}");
    }
}
