//! One session at the service: requests out, each caller's answer back.
//!
//! ```text
//!   caller   ask: the core notes the call, send, sleep on a word ----------.
//!   reader   (one thread of the process) receive: the core hears, wake <---'
//! ```
//!
//! A caller sleeps in futex(2), which signals end or restart exactly as they do fcntl(2). Its request is then cancelled,
//! and the service's answer counts: it may have been granted meanwhile.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use elbow_lock::{Call, ClientCore, Link, LinkNumber, LockId, Receive, Refusal, Reply, Request, Taken, now_ms, wire};

use crate::epoll;

/// Of what has come for others, as much as a process with one answer to come is ever sent.
const PEEKED_BYTES: usize = 16 << 10;

/// The connection is gone, and with it all that was held over it.
#[derive(Clone, Debug)]
pub(crate) struct Disconnected(pub(crate) String);

pub(crate) struct Session {
    link: Link,
    number: LinkNumber,
    /// Other processes may have a copy of the socket: it is read only while an answer is due.
    is_shared: bool,
    state: Mutex<SessionState>,
}

struct SessionState {
    core: ClientCore,
    waiters: BTreeMap<Call, Arc<AnswerWaiter>>,
    broken: Option<Disconnected>,
}

/// Who waits for an answer: 1 when it can be taken.
#[derive(Default)]
struct AnswerWaiter(AtomicU32);

/// Takes a mutex; no panic leaves anything half done here.
pub(crate) fn take<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Session {
    pub(crate) fn new(link: Link, is_shared: bool) -> Self {
        // Whoever else has used the session was another process, with other numbers.
        let core = ClientCore::new(link.opened(), u64::from(std::process::id()) << 32);
        let number = core.link().expect("a session begins with a link");
        let state = Mutex::new(SessionState {
            core,
            waiters: BTreeMap::new(),
            broken: None,
        });
        Self {
            link,
            number,
            is_shared,
            state,
        }
    }

    pub(crate) fn descriptor(&self) -> c_int {
        self.link.as_fd().as_raw_fd()
    }

    /// Whether it has to be renewed: then it is ours alone and is always read.
    pub(crate) fn has_lease(&self) -> bool {
        self.link.ttl_ms() > 0
    }

    /// Whether replies are waited for when nothing was asked.
    pub(crate) fn is_always_read(&self) -> bool {
        !self.is_shared || self.has_lease()
    }

    pub(crate) fn broken(&self) -> Option<Disconnected> {
        take(&self.state).broken.clone()
    }

    /// Sends what `request` makes of a new number, and waits for the answer. A signal, where it may, cancels the request.
    pub(crate) fn ask(
        &self,
        request: impl FnOnce(LockId) -> Request,
        until_signal: bool,
    ) -> Result<Reply, Disconnected> {
        let waiter = Arc::new(AnswerWaiter::default());
        let (call, request) = self.note(request, &waiter)?;
        self.send(&request);
        if until_signal && waiter.sleep(true) {
            let cancel = take(&self.state).core.cancel(call);
            cancel.iter().for_each(|cancel| self.send(cancel));
        }
        waiter.sleep(false);
        // A grant may be old when its caller wakes: who was stopped past the lease would act on what is another's by now.
        let taken = take(&self.state).core.take(call, now_ms());
        self.check_lease();
        match taken {
            Taken::Answer(reply) => self.broken().map_or(Ok(reply), Err),
            Taken::Failed(why) => Err(self.broken().unwrap_or(Disconnected(why))),
            Taken::NotYet | Taken::AskAgain(_) => {
                Err(self.broken().unwrap_or_else(|| Disconnected("no answer".to_owned())))
            }
        }
    }

    /// Whether what is held over it still is, as far as this process can tell by itself.
    pub(crate) fn is_good(&self) -> bool {
        self.check_lease() && self.broken().is_none()
    }

    /// Ends a session whose lease is over.
    fn check_lease(&self) -> bool {
        let mut state = take(&self.state);
        state.core.check_lease(now_ms());
        let is_up = state.core.link().is_some();
        drop(state);
        if !is_up {
            self.end("the connection to the lock service is over");
        }
        is_up
    }

    /// Sends what has no answer, or one that is waited for elsewhere.
    pub(crate) fn send(&self, request: &Request) {
        if let Err(error) = self.link.send(request) {
            self.end(&format!("the connection to the lock service broke: {error}"));
        }
    }

    /// Ends a session that would outlive its connection. One without a lease ends with its last socket.
    pub(crate) fn end_session(&self) {
        if self.has_lease() {
            self.send(&Request::Close);
        }
    }

    fn note(
        &self,
        request: impl FnOnce(LockId) -> Request,
        waiter: &Arc<AnswerWaiter>,
    ) -> Result<(Call, Request), Disconnected> {
        let mut state = take(&self.state);
        if let Some(broken) = &state.broken {
            return Err(broken.clone());
        }
        let id = LockId(state.core.number());
        let (call, request) = (Call::Lock(id), request(id));
        state.core.ask(call, request.clone());
        state.waiters.insert(call, Arc::clone(waiter));
        if state.waiters.len() == 1 && !self.is_always_read() {
            epoll::watch(self.descriptor(), true);
        }
        Ok((call, request))
    }

    /// For the reader: takes what has come, if it is for this process. False when the session is broken.
    pub(crate) fn receive(&self) -> bool {
        if !self.concerns_us() {
            return true;
        }
        let mut replies = Vec::new();
        let received = self.link.receive(Receive::Poll, &mut replies);
        let mut state = take(&self.state);
        // It would give back what nobody here has asked for: the grants of another process with the same socket.
        let heard = state.core.handle_replies(self.number, now_ms(), replies);
        wake(&mut state, &heard.answered);
        let is_up = state.core.link().is_some();
        drop(state);
        match received {
            Err(error) => self.end(&error.to_string()),
            Ok(_) if !is_up => self.end("the connection to the lock service is over"),
            Ok(_) => {}
        }
        let state = take(&self.state);
        if state.waiters.is_empty() && !self.is_always_read() && state.broken.is_none() {
            epoll::watch(self.descriptor(), false);
        }
        state.broken.is_none()
    }

    /// Whether what has come may be read here. Where nothing was asked it may be the answer to another process, which asked over the same
    /// socket; but that the locks are lost is for all.
    fn concerns_us(&self) -> bool {
        self.is_always_read()
            || !take(&self.state).waiters.is_empty()
            || epoll::has_ended(self.descriptor())
            || self.reports_lost()
    }

    /// Whether the service says that the locks are lost. It stays there to be read.
    fn reports_lost(&self) -> bool {
        let mut seen = vec![0_u8; PEEKED_BYTES];
        #[allow(unsafe_code)]
        // SAFETY: there is room for as much as we say.
        let count = unsafe {
            let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
            libc::recv(self.descriptor(), seen.as_mut_ptr().cast(), seen.len(), flags)
        };
        seen.truncate(usize::try_from(count).unwrap_or(0));
        let mut rest = seen.as_slice();
        while let Some((length, after)) = rest.split_first_chunk() {
            let Some((payload, after)) = after.split_at_checked(u32::from_le_bytes(*length) as usize) else {
                break;
            };
            if matches!(wire::decode_reply(payload), Ok(Reply::Lost { .. })) {
                return true;
            }
            rest = after;
        }
        false
    }

    /// For the reader: says that we live, when it is time.
    pub(crate) fn renew(&self) {
        if !self.check_lease() {
            return;
        }
        let mut state = take(&self.state);
        let is_due = state.core.renew_at().is_some_and(|at| now_ms() >= at);
        let renewal = if is_due { state.core.renewal(now_ms()) } else { None };
        drop(state);
        renewal.iter().for_each(|renewal| self.send(renewal));
    }

    /// The session is of no more use; why, unless that is known already. What was held over it stays others' to wait for: threads of this
    /// process may be between a look at a lock and a write. [`losses::lost`](crate::losses::lost) says when that is over.
    pub(crate) fn end(&self, why: &str) {
        let mut state = take(&self.state);
        let (why, failed) = state.core.end(now_ms(), why);
        state.broken.get_or_insert(Disconnected(why));
        wake(&mut state, &failed);
        drop(state);
        #[allow(unsafe_code)]
        // SAFETY: takes no pointers. Whoever reads the socket, here and where it is shared, sees an end; the service does not.
        unsafe {
            libc::shutdown(self.descriptor(), libc::SHUT_RD);
        }
    }

    /// Nobody here uses what was held over it any more: the service may grant it to others.
    pub(crate) fn close(&self) {
        self.link.close();
    }
}

fn wake(state: &mut SessionState, calls: &[Call]) {
    for call in calls {
        if let Some(waiter) = state.waiters.remove(call) {
            waiter.wake();
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        crate::descriptors::set_ours(self.descriptor(), false);
    }
}

impl AnswerWaiter {
    /// Sleeps until the answer can be taken; with `until_signal` also until a signal, and says whether it was one.
    fn sleep(&self, until_signal: bool) -> bool {
        while self.0.load(Ordering::Acquire) == 0 {
            #[allow(unsafe_code)]
            // SAFETY: the word lives as long as this call; the kernel only compares it.
            let slept = unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    self.0.as_ptr(),
                    libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                    0,
                    std::ptr::null::<libc::timespec>(),
                )
            };
            if until_signal && slept == -1 && crate::errno::get() == libc::EINTR {
                return true;
            }
        }
        false
    }

    fn wake(&self) {
        self.0.store(1, Ordering::Release);
        #[allow(unsafe_code)]
        // SAFETY: the word is alive: we have a share in it.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.0.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                1,
            );
        }
    }
}

/// The errno of a refusal.
pub(crate) fn errno_of(why: &Refusal) -> c_int {
    match why {
        Refusal::WouldBlock | Refusal::TimedOut | Refusal::Grace { .. } => libc::EAGAIN,
        Refusal::Cancelled => libc::EINTR,
        Refusal::Deadlock { .. } => libc::EDEADLK,
        Refusal::Bad { .. } => libc::EINVAL,
        _ => libc::ENOLCK,
    }
}
