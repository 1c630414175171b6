//! A call that another thread makes for us: waits for a lock, looks whether one is still ours.
//!
//! ```text
//!   Waiting --- answered ---> Done --- taken ---> Over
//!      '------ abandoned ------------------------> Over     the wait for a lock is cancelled; an answer that comes
//!                                                           nevertheless is dropped: the lock is released
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use elbow_lock::{Canceller, LockError};
use parking_lot::{Condvar, Mutex};
use pyo3::prelude::*;

use crate::errors;
use crate::hold::{Hold, Lock};
use crate::process_local::at_work;
use crate::threads::Threads;

/// How long a thread that waits does not look for signals. Only Ctrl-C feels it.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// How many threads of ours call into the interpreter; [`ENDING`] when no more may. Not a mutex: a thread that was in it
/// when another one forked would leave it locked in the child.
static CALLERS: AtomicUsize = AtomicUsize::new(0);
const ENDING: usize = 1 << (usize::BITS - 1);
/// How long who ends the interpreter lets callers go on before it looks again.
/// How many threads of the interpreter are about to fork. CPython 3.11 forgets to make the lock of its list of threads anew in a child, and ours come to that list and leave it
/// without the GIL, whenever they call: a child that was forked at such a moment would hang in os.fork() for ever. So none calls meanwhile.
static FORKS: AtomicUsize = AtomicUsize::new(0);
const CALLERS_PAUSE: Duration = Duration::from_millis(1);

type Answer = Result<Option<Lock>, LockError>;

/// A call under way.
#[pyclass(frozen, module = "elbowroom._native")]
pub(crate) struct Pending(Arc<Call>);

/// What the thread that waits and the thread that makes the call share.
#[derive(Default)]
pub(crate) struct Call {
    state: Mutex<CallState>,
    canceller: Mutex<Option<Canceller>>,
    changed: Condvar,
}

#[derive(Default)]
enum CallState {
    #[default]
    Waiting,
    Done(Answer),
    Over,
}

impl Call {
    /// What to call when it is abandoned; at once, if it has been.
    pub(crate) fn can_be_cancelled_by(&self, canceller: Canceller) {
        *self.canceller.lock() = Some(canceller);
        if matches!(*self.state.lock(), CallState::Over) {
            self.cancel();
        }
    }

    fn cancel(&self) {
        let canceller = self.canceller.lock().take();
        if let Some(canceller) = canceller {
            canceller.cancel();
        }
    }

    fn finish(&self, answer: Answer) {
        let mut state = self.state.lock();
        match *state {
            CallState::Waiting => *state = CallState::Done(answer),
            _ => {
                drop(state);
                drop(answer); // And with it a lock that was granted.
            }
        }
        self.changed.notify_all();
    }

    fn wait_a_moment(&self) -> bool {
        let mut state = self.state.lock();
        if matches!(*state, CallState::Waiting) {
            self.changed.wait_for(&mut state, SIGNALS_EVERY);
        }
        !matches!(*state, CallState::Waiting)
    }
}

impl Pending {
    /// Has another thread do `work`, and call `then` when it is done.
    pub(crate) fn start(
        threads: &Arc<Threads>,
        then: Option<Py<PyAny>>,
        work: impl FnOnce(&Call) -> Answer + Send + 'static,
    ) -> PyResult<Self> {
        let call = Arc::new(Call::default());
        let theirs = Arc::clone(&call);
        threads.run(Box::new(move || {
            theirs.finish(at_work(|| work(&theirs)));
            drop(theirs);
            if let Some(then) = then {
                call_back(then);
            }
        }))?;
        Ok(Self(call))
    }
}

#[pymethods]
impl Pending {
    /// Waits for the answer; a signal handler that raises ends the wait, and the call is abandoned.
    fn wait(&self, py: Python<'_>) -> PyResult<Option<Hold>> {
        while !py.detach(|| self.0.wait_a_moment()) {
            if let Err(raised) = py.check_signals() {
                self.abandon(py);
                return Err(raised);
            }
        }
        self.take(py)
    }

    /// The answer, once, when it is there.
    fn take(&self, py: Python<'_>) -> PyResult<Option<Hold>> {
        let state = std::mem::replace(&mut *self.0.state.lock(), CallState::Over);
        match state {
            CallState::Done(Ok(lock)) => Ok(lock.map(Hold::new)),
            CallState::Done(Err(error)) => Err(errors::exception(py, &error)),
            CallState::Waiting | CallState::Over => Err(errors::lost(py, "nobody waits for this call any more")),
        }
    }

    /// Gives the call up: it leaves the queue. If it brings a lock nevertheless, that is released at once.
    fn abandon(&self, py: Python<'_>) {
        py.detach(|| {
            let state = std::mem::replace(&mut *self.0.state.lock(), CallState::Over);
            at_work(|| {
                drop(state);
                self.0.cancel();
            });
        });
    }
}

/// Tells Python, unless it is about to end.
fn call_back(then: Py<PyAny>) {
    if begin_call() & ENDING == 0 {
        // None: the interpreter ends, and nobody waits.
        Python::try_attach(|py| {
            if let Err(error) = then.call0(py) {
                error.write_unraisable(py, None);
            }
            drop(then);
        });
    }
    CALLERS.fetch_sub(1, Ordering::AcqRel);
}

/// Counts a caller, when nobody forks; what was counted before. Either the one who forks sees us, or we see them.
fn begin_call() -> usize {
    loop {
        let before = CALLERS.fetch_add(1, Ordering::SeqCst);
        if FORKS.load(Ordering::SeqCst) == 0 {
            return before;
        }
        CALLERS.fetch_sub(1, Ordering::SeqCst);
        std::thread::sleep(CALLERS_PAUSE);
    }
}

/// Until [`after_fork`] no thread of ours calls into the interpreter.
#[pyfunction]
pub(crate) fn before_fork(py: Python<'_>) {
    FORKS.fetch_add(1, Ordering::SeqCst);
    wait_for_callers(py);
}

/// In the parent.
#[pyfunction]
pub(crate) fn after_fork() {
    FORKS.fetch_sub(1, Ordering::SeqCst);
}

/// They need the GIL, which is theirs meanwhile.
fn wait_for_callers(py: Python<'_>) {
    py.detach(|| {
        while CALLERS.load(Ordering::SeqCst) & !ENDING > 0 {
            std::thread::sleep(CALLERS_PAUSE);
        }
    });
}

/// From now on no thread of ours calls into the interpreter: it is about to end.
#[pyfunction]
pub(crate) fn shut_down(py: Python<'_>) {
    CALLERS.fetch_or(ENDING, Ordering::AcqRel);
    wait_for_callers(py);
}

/// In a child that was forked: the threads that called are its parent's.
pub(crate) fn forget_callers() {
    CALLERS.store(0, Ordering::SeqCst);
    FORKS.store(0, Ordering::SeqCst);
}
