//! Signals as something to wait for, for the small servers of this crate.

use std::time::Duration;

/// The signals that end a server or ask it for its counters: SIGINT, SIGTERM and SIGUSR1.
pub struct Signals {
    set: libc::sigset_t,
}

impl Signals {
    /// Keeps the signals from acting on this thread and on those that it starts; they are then only waited for.
    pub fn block() -> Self {
        // SAFETY: `sigemptyset` makes the zeroed set valid, and the other calls get a valid set.
        #[allow(unsafe_code)]
        let set = unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGUSR1] {
                libc::sigaddset(&raw mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            set
        };
        Self { set }
    }

    /// The next signal, or `None` after `patience`.
    pub fn wait(&self, patience: Duration) -> Option<i32> {
        let timeout = libc::timespec {
            tv_sec: patience.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: patience.subsec_nanos().into(),
        };
        // SAFETY: the set and the timeout are valid, and no information about the sender is asked for.
        #[allow(unsafe_code)]
        let signal = unsafe { libc::sigtimedwait(&raw const self.set, std::ptr::null_mut(), &raw const timeout) };
        (signal > 0).then_some(signal)
    }

    /// Waits until SIGINT or SIGTERM.
    pub fn wait_for_end(&self) {
        const A_WHILE: Duration = Duration::from_secs(3600);
        while !matches!(self.wait(A_WHILE), Some(libc::SIGINT | libc::SIGTERM)) {}
    }
}
