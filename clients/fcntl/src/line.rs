//! One session at the service: requests out, each caller's answer back.
//!
//! ```text
//!   caller   ask: note the call, send, sleep on the call's word -----------.
//!   reader   (one thread of the process) receive: answer the call, wake <--'
//! ```
//!
//! A caller sleeps in futex(2), which signals end or restart exactly as they do fcntl(2). Its request is then cancelled,
//! and the service's answer counts: it may have been granted meanwhile.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use elbow_lock::{ClientLease, Link, LockId, Receive, Refusal, Reply, Request, now_ms};

use crate::reader;

/// The connection is gone, and with it all that was held over it.
#[derive(Clone, Debug)]
pub(crate) struct Broken(pub(crate) String);

pub(crate) struct Line {
    link: Link,
    /// Other processes may have a copy of the socket: it is read only while an answer is due.
    is_leash: bool,
    state: Mutex<State>,
}

struct State {
    last_id: u64,
    calls: BTreeMap<u64, Arc<Call>>,
    broken: Option<Broken>,
    lease: Option<ClientLease>,
}

/// A request under way.
#[derive(Default)]
struct Call {
    /// 1 when there is an outcome.
    word: AtomicU32,
    outcome: Mutex<Option<Result<Reply, Broken>>>,
}

/// Takes a mutex; no panic leaves anything half done here.
pub(crate) fn take<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Line {
    pub(crate) fn new(link: Link, is_leash: bool) -> Self {
        let lease = (link.ttl_ms() > 0).then(|| ClientLease::new(link.ttl_ms(), link.opened_ms()));
        let state = State {
            // Whoever else has used the session was another process, with other numbers.
            last_id: u64::from(std::process::id()) << 32,
            calls: BTreeMap::new(),
            broken: None,
            lease,
        };
        let state = Mutex::new(state);
        Self { link, is_leash, state }
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
        !self.is_leash || self.has_lease()
    }

    pub(crate) fn broken(&self) -> Option<Broken> {
        take(&self.state).broken.clone()
    }

    /// Sends what `request` makes of a new number, and waits for the answer. A signal, where it may, cancels the request.
    pub(crate) fn ask(&self, request: impl FnOnce(LockId) -> Request, until_signal: bool) -> Result<Reply, Broken> {
        let call = Arc::new(Call::default());
        let id = self.note(&call)?;
        if let Err(error) = self.link.send(&request(LockId(id))) {
            self.end(format!("the connection to the lock service broke: {error}"));
        }
        if until_signal && call.sleep(true) {
            drop(self.link.send(&Request::Cancel { id: LockId(id) })); // If it fails, the reader finds out.
        }
        call.sleep(false);
        let outcome = take(&call.outcome).take();
        let reply = outcome.unwrap_or_else(|| Err(Broken("no answer".to_owned())))?;
        // A grant may be old when its caller wakes: who was stopped past the lease would act on what is another's by now.
        self.check_lease();
        self.broken().map_or(Ok(reply), Err)
    }

    /// Ends a session whose lease is over.
    fn check_lease(&self) -> bool {
        let lives = |lease: &mut ClientLease| lease.check(now_ms());
        let is_over = take(&self.state).lease.as_mut().is_some_and(|lease| !lives(lease));
        if is_over {
            self.end("the lock service was silent for longer than our lease".to_owned());
        }
        !is_over
    }

    /// Sends what has no answer.
    pub(crate) fn tell(&self, request: &Request) {
        if let Err(error) = self.link.send(request) {
            self.end(format!("the connection to the lock service broke: {error}"));
        }
    }

    /// Ends a session that would outlive its connection. One without a lease ends with its last socket.
    pub(crate) fn say_goodbye(&self) {
        if self.has_lease() {
            self.tell(&Request::Close);
        }
    }

    fn note(&self, call: &Arc<Call>) -> Result<u64, Broken> {
        let mut state = take(&self.state);
        if let Some(broken) = &state.broken {
            return Err(broken.clone());
        }
        state.last_id += 1;
        let id = state.last_id;
        state.calls.insert(id, Arc::clone(call));
        if state.calls.len() == 1 && !self.is_always_read() {
            reader::watch(self.descriptor(), true);
        }
        Ok(id)
    }

    /// For the reader: takes what has come. False when the line is broken.
    pub(crate) fn receive(&self) -> bool {
        let mut replies = Vec::new();
        let received = self.link.receive(Receive::Poll, &mut replies);
        replies.into_iter().for_each(|reply| self.dispatch(reply));
        if let Err(error) = received {
            self.end(error.to_string());
        }
        let state = take(&self.state);
        if state.calls.is_empty() && !self.is_always_read() && state.broken.is_none() {
            reader::watch(self.descriptor(), false);
        }
        state.broken.is_none()
    }

    /// For the reader: says that we live, when it is time.
    pub(crate) fn renew(&self) {
        if !self.check_lease() {
            return;
        }
        let mut state = take(&self.state);
        let seq = state.last_id + 1;
        let Some(lease) = state.lease.as_mut() else { return };
        if lease.renew_at().is_some_and(|at| now_ms() >= at) {
            lease.sent(now_ms(), seq);
            state.last_id = seq;
            drop(state);
            self.tell(&Request::Renew { seq });
        }
    }

    fn dispatch(&self, reply: Reply) {
        match reply {
            Reply::Granted { id, .. } | Reply::Refused { id, .. } | Reply::Answer { id, .. } => {
                self.answer(id.0, reply);
            }
            Reply::Renewed { seq } => {
                if let Some(lease) = &mut take(&self.state).lease {
                    lease.answered(seq);
                }
            }
            Reply::Lost { why } => self.end(why),
            Reply::Recall { .. } | Reply::Status { .. } => {} // Nothing here asks for them.
        }
    }

    fn answer(&self, id: u64, reply: Reply) {
        if let Some(call) = take(&self.state).calls.remove(&id) {
            call.end(Ok(reply));
        }
    }

    /// The line is of no more use.
    pub(crate) fn end(&self, why: String) {
        let mut state = take(&self.state);
        let broken = state.broken.get_or_insert(Broken(why)).clone();
        let calls = std::mem::take(&mut state.calls);
        drop(state);
        self.link.close(); // The reader, if it is not the one who says so, sees the end.
        calls.into_values().for_each(|call| call.end(Err(broken.clone())));
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        crate::descriptors::set_ours(self.descriptor(), false);
    }
}

impl Call {
    /// Sleeps until there is an outcome; with `until_signal` also until a signal, and says whether it was one.
    fn sleep(&self, until_signal: bool) -> bool {
        while self.word.load(Ordering::Acquire) == 0 {
            #[allow(unsafe_code)]
            // SAFETY: the word lives as long as this call; the kernel only compares it.
            let slept = unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    self.word.as_ptr(),
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

    fn end(&self, outcome: Result<Reply, Broken>) {
        *take(&self.outcome) = Some(outcome);
        self.word.store(1, Ordering::Release);
        #[allow(unsafe_code)]
        // SAFETY: the word is alive: we have a share in it.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.word.as_ptr(),
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
