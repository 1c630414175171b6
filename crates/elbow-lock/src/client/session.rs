//! One client's sockets and threads around its [`ClientCore`]. How the link is made again is in [`recovery`].
//!
//! Invariants: at most one thread reads the link, and it reads for all. What the core returns goes over the link that was
//! current when it was returned, in the order in which it was returned: an unlock that came to the service before its lock would leave a lock
//! that nobody has. The core knows what a link that breaks has lost.

mod recovery;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use elbow_ranges::Footprint;
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::core::{Call, ClientCore, LinkNumber, Standing, Taken};
use super::link::{Disconnected, Link, Receive, Received, now_ms};
use super::options::{Options, Posix};
use crate::address::Address;
use crate::error::LockError;
use crate::message::{
    Blocker, FileName, LockId, LockMode, LockRequest, Owner, PosixRequest, QueryRequest, Refusal, Reply, Request,
    Token, Wait,
};
use crate::wire;

/// How long a thread that a signal may end sleeps while another one reads.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);
/// Bytes of a request beside its footprint, with the longest name.
const REQUEST_BYTES_MAX: usize = 8 << 10;

pub(super) struct Session {
    pub(super) address: Address,
    pub(super) options: Options,
    /// A child that forked must not speak for its parent.
    process: u32,
    state: Mutex<SessionState>,
    changed: Condvar,
}

struct SessionState {
    core: ClientCore,
    /// The link that was made last.
    link: Arc<NumberedLink>,
    /// Links of sessions that the service has ended, whose locks have not all been given back.
    farewells: Vec<Arc<NumberedLink>>,
    /// Somebody reads the link.
    is_reading: bool,
}

struct NumberedLink {
    number: LinkNumber,
    link: Link,
    /// What the core has returned and nobody has sent yet; added to while the state is locked.
    outgoing: Mutex<VecDeque<Request>>,
    /// Locked by the thread that sends.
    turn: Mutex<()>,
}

impl NumberedLink {
    fn new(number: LinkNumber, link: Link) -> Arc<Self> {
        Arc::new(Self {
            number,
            link,
            outgoing: Mutex::default(),
            turn: Mutex::default(),
        })
    }
}

/// Whether there was any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Made,
    /// A signal came, and was asked for.
    Signal,
}

impl SessionState {
    /// The link over which requests go out now.
    fn link(&self) -> Option<Arc<NumberedLink>> {
        self.core.link().map(|_| Arc::clone(&self.link))
    }
}

impl Session {
    pub(super) fn open(address: Address, options: Options) -> Result<Arc<Self>, LockError> {
        let link = Link::open(&address, &options.name, options.ttl_ms, options.credentials.as_ref())?;
        let ttl_ms = link.ttl_ms();
        let core = ClientCore::new(link.opened(), 0);
        let number = core.link().expect("a session begins with a link");
        let session = Arc::new(Self {
            address,
            options,
            process: std::process::id(),
            state: Mutex::new(SessionState {
                core,
                link: NumberedLink::new(number, link),
                farewells: Vec::new(),
                is_reading: false,
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
        mode: LockMode,
        wait: Wait,
    ) -> Result<LockId, LockError> {
        self.ask_with_recall(owner, file, footprint, mode, wait, false)
    }

    /// As [`ask`](Self::ask); with `recall`, [`is_wanted`](Self::is_wanted) hears of it when somebody waits for the lock.
    pub(super) fn ask_with_recall(
        &self,
        owner: Owner,
        file: &FileName,
        footprint: Footprint,
        mode: LockMode,
        wait: Wait,
        recall: bool,
    ) -> Result<LockId, LockError> {
        let id = LockId(self.number());
        let request = Request::Lock(LockRequest {
            id,
            owner,
            file: file.clone(),
            mode,
            footprint,
            wait,
            recall,
        });
        fits(file, &request)?;
        self.begin(Call::Lock(id), request)?;
        Ok(id)
    }

    pub(super) fn wait(&self, id: LockId, file: &FileName) -> Result<Token, LockError> {
        match self.outcome(Call::Lock(id), Receive::Block)? {
            Reply::Granted { token, .. } => Ok(token),
            other => Err(refused(file, other)),
        }
    }

    /// As [`wait`](Self::wait), until `at_ms` at most: `None` if there is no answer by then.
    pub(super) fn wait_until(&self, id: LockId, file: &FileName, at_ms: u64) -> Result<Option<Token>, LockError> {
        match self.outcome_until(Call::Lock(id), file, at_ms)? {
            None => Ok(None),
            Some(Reply::Granted { token, .. }) => Ok(Some(token)),
            Some(other) => Err(refused(file, other)),
        }
    }

    /// Gives up a lock that was asked for, unless it has been granted or refused.
    pub(super) fn give_up(&self, id: LockId) {
        let mut state = self.state.lock();
        let cancel = state.core.give_up(id);
        self.changed.notify_all();
        self.send_all(&mut state, cancel);
    }

    /// Nobody waits for a lock that was asked for any more.
    pub(super) fn abandon(&self, id: LockId) {
        let mut state = self.state.lock();
        let requests = state.core.abandon(id);
        self.send_all(&mut state, requests);
    }

    pub(super) fn unlock(&self, id: LockId) {
        let mut state = self.state.lock();
        let unlock = state.core.unlock(id);
        self.send_all(&mut state, unlock);
    }

    /// Whether a hold is good at this moment.
    pub(super) fn check(&self, id: LockId, file: &FileName) -> Result<(), LockError> {
        let mut state = self.state.lock();
        self.poll(&mut state);
        loop {
            match state.core.standing(id, now_ms()) {
                Standing::Ours(_) => return Ok(()),
                Standing::Lost(why) => return Err(lost(file, &why)),
                Standing::Unknown => drop(
                    self.progress(&mut state, Receive::Block)
                        .map_err(|error| lost(file, &error.to_string()))?,
                ),
            }
        }
    }

    /// Whether a hold is good at this moment, as far as is known without asking.
    pub(super) fn is_current(&self, id: LockId) -> bool {
        matches!(self.state.lock().core.standing(id, now_ms()), Standing::Ours(_))
    }

    pub(super) fn is_wanted(&self, id: LockId) -> bool {
        let mut state = self.state.lock();
        self.poll(&mut state);
        state.core.is_wanted(id)
    }

    pub(super) fn posix(
        &self,
        lock: &Posix<'_>,
        mode: Option<LockMode>,
        wait: Wait,
        interruptible: bool,
    ) -> Result<(), LockError> {
        if let Some(why) = self.state.lock().core.posix_lost(now_ms()) {
            return Err(lost(lock.file, why));
        }
        let id = LockId(self.number());
        let (owner, file, start, end) = (lock.owner, lock.file.clone(), lock.start, lock.end);
        let request = Request::Posix(PosixRequest {
            id,
            owner,
            file,
            start,
            end,
            mode,
            wait,
        });
        let how = if interruptible {
            Receive::UntilSignal
        } else {
            Receive::Block
        };
        match self.call(Call::Lock(id), request, how) {
            Ok(Reply::Granted { .. }) => Ok(()),
            Ok(Reply::Refused {
                why: Refusal::Cancelled,
                ..
            }) => Err(LockError::Interrupted {
                file: lock.file.clone(),
            }),
            Ok(other) => Err(refused(lock.file, other)),
            // That all are lost says more than that this one was not answered.
            Err(error) => match self.state.lock().core.posix_lost(now_ms()) {
                Some(why) => Err(lost(lock.file, why)),
                None => Err(error),
            },
        }
    }

    pub(super) fn posix_release(&self, owner: Owner, file: Option<FileName>) -> Result<(), LockError> {
        let mut state = self.state.lock();
        self.ensure_link(&mut state)?;
        self.send_all(&mut state, [Request::PosixRelease { owner, file }]);
        Ok(())
    }

    pub(super) fn query(&self, lock: &Posix<'_>, mode: LockMode) -> Result<Option<Blocker>, LockError> {
        let id = LockId(self.number());
        let (owner, file, start, end) = (lock.owner, lock.file.clone(), lock.start, lock.end);
        match self.call(
            Call::Lock(id),
            Request::Query(QueryRequest {
                id,
                owner,
                file,
                mode,
                start,
                end,
            }),
            Receive::Block,
        )? {
            Reply::Answer { blocker, .. } => Ok(blocker),
            other => Err(refused(lock.file, other)),
        }
    }

    pub(super) fn status(&self) -> Result<String, LockError> {
        let seq = self.number();
        match self.call(Call::Number(seq), Request::Status { seq }, Receive::Block)? {
            Reply::Status { json, .. } => Ok(json),
            Reply::Denied { why, .. } => Err(self.rejected(why)),
            other => Err(self.rejected(format!("it answered {other:?} to a question for its status"))),
        }
    }

    fn renew(&self) -> Result<(), LockError> {
        let mut state = self.state.lock();
        self.ensure_link(&mut state)?;
        let Some(request @ Request::Renew { seq }) = state.core.renewal(now_ms()) else {
            return Ok(());
        };
        self.put(&mut state, Call::Number(seq), request);
        drop(state);
        self.outcome(Call::Number(seq), Receive::Block).map(|_| ())
    }

    /// Sends a request and waits for its answer.
    fn call(&self, call: Call, request: Request, how: Receive) -> Result<Reply, LockError> {
        self.begin(call, request)?;
        self.outcome(call, how)
    }

    /// Sends a request.
    fn begin(&self, call: Call, request: Request) -> Result<(), LockError> {
        let mut state = self.state.lock();
        self.ensure_link(&mut state)?;
        self.put(&mut state, call, request);
        Ok(())
    }

    /// Notes a call and sends it; where the link is down, whoever connects sends it.
    fn put(&self, state: &mut MutexGuard<'_, SessionState>, call: Call, request: Request) {
        if state.core.ask(call, request.clone()).is_some() {
            self.send_all(state, [request]);
        }
    }

    /// Waits for the answer to what was sent.
    fn outcome(&self, call: Call, mut how: Receive) -> Result<Reply, LockError> {
        let mut state = self.state.lock();
        loop {
            if let Some(outcome) = self.take(&mut state, call) {
                return outcome;
            }
            match self.progress(&mut state, how) {
                Ok(Progress::Made) => {}
                Ok(Progress::Signal) => {
                    how = Receive::Block; // The service's word counts: it may have been granted meanwhile.
                    let cancel = state.core.cancel(call);
                    self.send_all(&mut state, cancel);
                }
                Err(error) => {
                    self.drop_call(&mut state, call);
                    return Err(error);
                }
            }
        }
    }

    /// Nobody waits for a call any more. It may have been granted and lost, and then it is a hold.
    fn drop_call(&self, state: &mut MutexGuard<'_, SessionState>, call: Call) {
        match call {
            Call::Lock(id) => {
                let requests = state.core.abandon(id);
                self.send_all(state, requests);
            }
            Call::Number(_) => state.core.forget(call),
        }
    }

    /// As `outcome`, until `at_ms` at most; looks once in any case.
    fn outcome_until(&self, call: Call, file: &FileName, at_ms: u64) -> Result<Option<Reply>, LockError> {
        let mut state = self.state.lock();
        let mut has_looked = false;
        loop {
            if !state.core.knows(call) {
                return Err(lost(file, "its answer has been taken already"));
            }
            if let Some(outcome) = self.take(&mut state, call) {
                return outcome.map(Some);
            }
            if has_looked && now_ms() >= at_ms {
                return Ok(None);
            }
            has_looked = true;
            if let Err(error) = self.progress(&mut state, Receive::Until(at_ms)) {
                self.drop_call(&mut state, call);
                return Err(error);
            }
        }
    }

    /// What became of a call, if that is known.
    fn take(&self, state: &mut MutexGuard<'_, SessionState>, call: Call) -> Option<Result<Reply, LockError>> {
        if state.core.is_answered(call) {
            self.poll(state); // What was granted may be lost by now.
        }
        match state.core.take(call, now_ms()) {
            Taken::Answer(reply) => Some(Ok(reply)),
            Taken::Failed(why) => Some(Err(self.rejected(why))),
            Taken::AskAgain(request) => {
                self.send_all(state, [request]);
                None
            }
            Taken::NotYet => None,
        }
    }

    /// Does one thing that may bring an answer: connects, reads, or waits for the thread that does.
    fn progress(&self, state: &mut MutexGuard<'_, SessionState>, how: Receive) -> Result<Progress, LockError> {
        let Some(link) = state.link() else {
            self.ensure_link(state)?;
            return Ok(Progress::Made); // Meanwhile the call may have been given up.
        };
        if state.is_reading {
            self.wait_for_reader(state, how);
            return Ok(Progress::Made);
        }
        state.is_reading = true;
        let mut replies = Vec::new();
        let received = MutexGuard::unlocked(state, || link.link.receive(how, &mut replies));
        state.is_reading = false;
        let signal = matches!(received, Ok(Received::Signal));
        self.heard(state, &link, replies, received);
        self.flush(state, &link);
        Ok(if signal { Progress::Signal } else { Progress::Made })
    }

    /// A thread that a signal may end waits in small steps, because a condition variable sleeps through signals.
    fn wait_for_reader(&self, state: &mut MutexGuard<'_, SessionState>, how: Receive) {
        match how {
            Receive::UntilSignal => drop(self.changed.wait_for(state, SIGNALS_EVERY)),
            Receive::Until(at_ms) => drop(self.changed.wait_for(state, until(at_ms))),
            _ => self.changed.wait(state),
        }
    }

    /// Takes what the service has said meanwhile.
    fn poll(&self, state: &mut MutexGuard<'_, SessionState>) {
        let Some(link) = state.link() else { return };
        if state.is_reading {
            return;
        }
        let mut replies = Vec::new();
        let received = link.link.receive(Receive::Poll, &mut replies);
        self.heard(state, &link, replies, received);
        self.flush(state, &link);
    }

    /// What a receive brought, and what follows if it ended the link.
    fn heard(
        &self,
        state: &mut MutexGuard<'_, SessionState>,
        link: &Arc<NumberedLink>,
        replies: Vec<Reply>,
        received: Result<Received, Disconnected>,
    ) {
        let heard = state.core.handle_replies(link.number, now_ms(), replies);
        link.outgoing.lock().extend(heard.send);
        if let Err(broken) = received {
            state.core.disconnected(link.number, now_ms(), &broken.to_string());
        }
        if state.core.owes_farewell(link.number) {
            if !state.farewells.iter().any(|ended| ended.number == link.number) {
                state.farewells.push(Arc::clone(link));
            }
        } else if state.core.link() != Some(link.number) {
            link.link.close(); // Wakes the thread that reads it.
        }
        self.send_farewells(state);
        self.changed.notify_all();
    }

    /// Says of sessions that the service has ended that their locks are not used any more, where all have been given back.
    fn send_farewells(&self, state: &mut SessionState) {
        if state.farewells.is_empty() || self.process != std::process::id() {
            return;
        }
        let over = state.core.farewells();
        for ended in state.farewells.extract_if(.., |link| over.contains(&link.number)) {
            // The service may be gone, and with it who waits for this.
            drop(ended.link.send(&Request::Close));
            ended.link.close();
        }
    }

    fn send_all(&self, state: &mut MutexGuard<'_, SessionState>, requests: impl IntoIterator<Item = Request>) {
        self.send_farewells(state);
        let Some(link) = state.link() else { return };
        link.outgoing.lock().extend(requests);
        self.flush(state, &link);
    }

    /// Sends what there is to send, unless that is for a thread that does so already to go on with; then waits for it.
    fn flush(&self, state: &mut MutexGuard<'_, SessionState>, link: &Arc<NumberedLink>) {
        if link.outgoing.lock().is_empty() || self.process != std::process::id() {
            return;
        }
        let sent = MutexGuard::unlocked(state, || {
            let _turn = link.turn.lock();
            loop {
                let Some(request) = link.outgoing.lock().pop_front() else {
                    return Ok(());
                };
                link.link.send(&request)?;
            }
        });
        if let Err(error) = sent {
            self.heard(state, link, Vec::new(), Err(Disconnected::Io(error)));
        }
    }

    fn number(&self) -> u64 {
        self.state.lock().core.number()
    }

    pub(super) fn rejected(&self, why: String) -> LockError {
        LockError::Rejected {
            address: self.address.clone(),
            why,
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.process == std::process::id()
            && let Some(link) = self.state.get_mut().link()
        {
            // Nobody needs to know whether it arrives: the lease ends the session too.
            drop(link.link.send(&Request::Close));
        }
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Session({})", self.address)
    }
}

impl std::fmt::Display for Disconnected {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => write!(formatter, "the connection to the lock service broke: {error}"),
            Self::Garbled(error) => write!(formatter, "the lock service sent something else than locks: {error}"),
        }
    }
}

fn until(at_ms: u64) -> Duration {
    Duration::from_millis(at_ms.saturating_sub(now_ms()))
}

fn fits(file: &FileName, request: &Request) -> Result<(), LockError> {
    let Some((_, _, footprint)) = request.list() else {
        return Ok(());
    };
    // Without encoding it: that is done once, to send it.
    if footprint.encodes_within(wire::FRAME_BYTES_MAX - REQUEST_BYTES_MAX) {
        return Ok(());
    }
    Err(LockError::TooLong {
        file: file.clone(),
        bytes: footprint.encoded_bytes(),
    })
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
    use crate::hello::{Opening, PROTOCOL_VERSION, Welcome};
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
                .ask(Owner(1), &self.file, whole, LockMode::Exclusive, Wait::Forever);
            self.peer.read();
            asked.unwrap()
        }

        /// Breaks the link and makes another; gives the broken one.
        fn replace_link(&mut self) -> Arc<NumberedLink> {
            let mut state = self.session.state.lock();
            let old = Arc::clone(&state.link);
            let broken = Err(Disconnected::Io(std::io::Error::other("the test says so")));
            self.session.heard(&mut state, &old, Vec::new(), broken);
            drop(state);
            let session = Arc::clone(&self.session);
            let connecting = std::thread::spawn(move || session.ensure_link(&mut session.state.lock()).unwrap());
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
            matches!(again, Request::Lock(LockRequest { id: asked, .. }) if asked == id),
            "{again:?}"
        );

        let session = &stage.session;
        let of_first = vec![Reply::Granted { id, token: Token(1) }];
        session.heard(&mut session.state.lock(), &old, of_first, Ok(Received::Replies));
        assert!(!session.state.lock().core.is_answered(Call::Lock(id)));

        let token = Token(2);
        stage.peer.say(&Reply::Granted { id, token });
        assert_eq!(session.wait(id, &stage.file).unwrap(), token);
        session.check(id, &stage.file).unwrap();
    }

    /// What has come of an answer when its link ends is nobody's: it stands before no byte of the next link. And an answer may come in as many pieces
    /// as it has bytes.
    #[test]
    fn half_an_answer_ends_with_its_link() {
        let granted = |id, token| {
            let mut frame = Vec::new();
            let token = Token(token);
            wire::append_reply(&mut frame, &Reply::Granted { id, token });
            frame
        };
        let mut cut = 0;
        loop {
            let mut stage = Stage::new();
            let id = stage.ask();
            let first = granted(id, u64::from(u32::MAX));
            if cut == first.len() {
                break;
            }
            // All of it can be read before the end of the link is.
            stage.peer.0.write_all(&first[..cut]).unwrap();
            let (session, file) = (Arc::clone(&stage.session), stage.file.clone());
            let waiting = std::thread::spawn(move || session.wait(id, &file));
            stage.peer.0.shutdown(std::net::Shutdown::Both).unwrap();
            stage.peer = Peer::let_in(&stage.listener, 2);
            let again = wire::decode_request(&stage.peer.read()).unwrap();
            assert!(
                matches!(again, Request::Lock(LockRequest { id: asked, .. }) if asked == id),
                "after {cut} bytes: {again:?}"
            );
            for byte in granted(id, u64::MAX) {
                stage.peer.0.write_all(&[byte]).unwrap();
            }
            assert_eq!(waiting.join().unwrap().unwrap(), Token(u64::MAX), "after {cut} bytes");
            stage.session.check(id, &stage.file).unwrap();
            cut += 1;
        }
        assert!(cut > 8, "an answer has a length, a type, a number and a token");
    }

    /// Others are granted what somebody broke when the service hears this. A client that said it as soon as it was told could be in the middle of a
    /// write.
    #[test]
    fn a_session_that_was_ended_says_close_when_its_last_hold_is_given_back() {
        let mut stage = Stage::new();
        let held = [stage.ask(), stage.ask()];
        for id in held {
            stage.peer.say(&Reply::Granted { id, token: Token(id.0) });
            stage.session.wait(id, &stage.file).unwrap();
        }
        let why = "somebody broke it".to_owned();
        stage.peer.say(&Reply::Lost { why });
        assert!(stage.session.check(held[0], &stage.file).is_err());
        stage.session.unlock(held[0]);
        stage.peer.0.set_nonblocking(true).unwrap();
        let nothing = stage.peer.0.read(&mut [0]).unwrap_err();
        assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
        stage.peer.0.set_nonblocking(false).unwrap();
        stage.session.unlock(held[1]);
        assert_eq!(wire::decode_request(&stage.peer.read()).unwrap(), Request::Close);
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

    /// A hold that one thread takes and another uses: what happened in between is known without a word to the service.
    #[test]
    fn a_hold_is_current_until_its_link_is_gone() {
        let mut stage = Stage::new();
        let id = stage.ask();
        assert!(!stage.session.is_current(id), "nothing was granted");
        stage.peer.say(&Reply::Granted { id, token: Token(1) });
        stage.session.wait(id, &stage.file).unwrap();
        assert!(stage.session.is_current(id));
        stage.replace_link();
        assert!(!stage.session.is_current(id));
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

    /// An unlock of what is being asserted again went out before the assertion: the service ignored it, and then granted what nobody had.
    #[test]
    fn what_is_given_back_while_it_is_asserted_is_given_back_after_that() {
        let mut stage = Stage::new();
        let held = [stage.ask(), stage.ask()];
        for id in held {
            stage.peer.say(&Reply::Granted { id, token: Token(id.0) });
            stage.session.wait(id, &stage.file).unwrap();
        }
        let state = &mut stage.session.state.lock();
        let link = Arc::clone(&state.link);
        // The thread that made the link sends the assertions one by one; it is stopped before it begins.
        let turn = link.turn.lock();
        link.outgoing.lock().extend(held.map(|id| Request::Cancel { id }));
        let unlocking = {
            let session = Arc::clone(&stage.session);
            std::thread::spawn(move || session.unlock(held[1]))
        };
        let is_queued = || link.outgoing.lock().len() == 3;
        MutexGuard::unlocked(state, || {
            while !is_queued() {
                std::thread::yield_now();
            }
        });
        drop(turn);
        MutexGuard::unlocked(state, || unlocking.join().unwrap());
        let mut said = Vec::new();
        while said.len() < 3 {
            let mut bytes = vec![0; 1_000];
            let got = stage.peer.0.read(&mut bytes).unwrap();
            let mut rest = &bytes[..got];
            while let Some(length) = wire::frame_length(rest).unwrap() {
                said.push(wire::decode_request(&rest[wire::LENGTH_BYTES..length]).unwrap());
                rest = &rest[length..];
            }
        }
        assert_eq!(
            said,
            [
                Request::Cancel { id: held[0] },
                Request::Cancel { id: held[1] },
                Request::Unlock { id: held[1] }
            ]
        );
    }
}
