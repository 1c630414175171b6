//! The one thread of ours in a process: it receives all replies, renews leases, and sees at once when a connection ends.
//!
//! It begins with the first lock that goes to the service and takes no signals. A child of fork has none until it locks.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::epoll::{EPOLL, control};
use crate::errno::{Errno, check};
use crate::session::{Session, take};
use crate::{calls, libc_calls};
use crate::{descriptors, losses};

const STACK_BYTES: usize = 256 << 10;
/// How often leases are looked at, where there are any; a fraction of theirs.
const TICK: Duration = Duration::from_millis(500);
const EVENTS_MAX: usize = 16;

pub(crate) static SESSIONS: Mutex<BTreeMap<c_int, Arc<Session>>> = Mutex::new(BTreeMap::new());

/// Has a session read from now on.
pub(crate) fn add(session: &Arc<Session>) -> Result<(), Errno> {
    let mut sessions = take(&SESSIONS);
    if sessions.contains_key(&session.descriptor()) {
        return Ok(());
    }
    if EPOLL.load(Ordering::Relaxed) == -1 {
        start()?;
    }
    control(libc::EPOLL_CTL_ADD, session.descriptor(), session.is_always_read())?;
    sessions.insert(session.descriptor(), Arc::clone(session));
    Ok(())
}

/// Forgets a session.
pub(crate) fn remove(session: &Session) {
    if take(&SESSIONS).remove(&session.descriptor()).is_some() {
        let _ = control(libc::EPOLL_CTL_DEL, session.descriptor(), false);
    }
}

/// In a child of fork, which has no such thread: forgets the parent's. Whoever forked holds `SESSIONS`.
pub(crate) fn forget(sessions: &mut BTreeMap<c_int, Arc<Session>>) {
    std::mem::forget(std::mem::take(sessions));
    let epoll = EPOLL.swap(-1, Ordering::Relaxed);
    if epoll != -1 {
        descriptors::set_ours(epoll, false);
        libc_calls::close(epoll);
    }
}

fn start() -> Result<(), Errno> {
    #[allow(unsafe_code)]
    // SAFETY: takes no pointers.
    let epoll = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    let epoll = descriptors::move_away(epoll);
    EPOLL.store(epoll, Ordering::Relaxed);
    let thread = std::thread::Builder::new()
        .name("elbow-fcntl".to_owned())
        .stack_size(STACK_BYTES);
    match without_signals(|| thread.spawn(move || run(epoll))) {
        Ok(_) => Ok(()),
        Err(error) => {
            EPOLL.store(-1, Ordering::Relaxed);
            descriptors::set_ours(epoll, false);
            libc_calls::close(epoll);
            Err(Errno(error.raw_os_error().unwrap_or(libc::EAGAIN)))
        }
    }
}

/// A thread that is made in here takes no signals: they are the program's.
fn without_signals<T>(make: impl FnOnce() -> T) -> T {
    #[allow(unsafe_code)]
    // SAFETY: both sets live here; the mask is put back as it was.
    unsafe {
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let made = make();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        made
    }
}

fn run(epoll: c_int) {
    calls::enter_for_good();
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX];
    loop {
        for descriptor in wait(epoll, &mut events) {
            let session = take(&SESSIONS).get(&descriptor).cloned();
            if let Some(session) = session
                && !session.receive()
            {
                remove(&session);
                losses::lost(&session);
            }
        }
        let sessions: Vec<Arc<Session>> = take(&SESSIONS)
            .values()
            .filter(|session| session.has_lease())
            .cloned()
            .collect();
        sessions.iter().for_each(|session| session.renew());
    }
}

/// Descriptors on which something happened.
fn wait(epoll: c_int, events: &mut [libc::epoll_event]) -> Vec<c_int> {
    let has_leases = take(&SESSIONS).values().any(|session| session.has_lease());
    let timeout = match has_leases {
        true => TICK.as_millis() as c_int,
        false => -1,
    };
    #[allow(unsafe_code)]
    // SAFETY: there is room for as many events as we say.
    let count = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), EVENTS_MAX as c_int, timeout) };
    let count = usize::try_from(count).unwrap_or(0);
    events[..count].iter().map(|event| event.u64 as c_int).collect()
}
