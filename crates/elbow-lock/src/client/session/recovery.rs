//! Makes the link to the service again when it broke: the first thread that needs it connects, the others wait for that one.

use std::time::Duration;

use parking_lot::MutexGuard;

use super::{NumberedLink, Session, SessionState};
use crate::client::Options;
use crate::client::link::{Link, now_ms};
use crate::error::LockError;

const RECONNECT_PAUSE: Duration = Duration::from_millis(50);

impl Session {
    /// Connects again where the link is down; or waits until another thread has.
    pub(super) fn ensure_link(&self, state: &mut MutexGuard<'_, SessionState>) -> Result<(), LockError> {
        while state.core.is_connecting() {
            self.changed.wait(state);
        }
        let Some(until_ms) = state.core.connect(now_ms()) else {
            return Ok(());
        };
        let opened = MutexGuard::unlocked(state, || self.reconnect(until_ms));
        match opened {
            Ok(link) => {
                self.resume(state, link);
                Ok(())
            }
            Err(error) => {
                state.core.failed(&error.to_string());
                self.changed.notify_all();
                Err(error)
            }
        }
    }

    fn reconnect(&self, until_ms: u64) -> Result<Link, LockError> {
        let Options {
            name,
            ttl_ms,
            credentials,
        } = &self.options;
        loop {
            match Link::open(&self.address, name, *ttl_ms, credentials.as_ref()) {
                Err(LockError::Unreachable { .. }) if now_ms() < until_ms => std::thread::sleep(RECONNECT_PAUSE),
                opened => return opened,
            }
        }
    }

    /// Goes on over a new link: what was asked is asked again, what was held is held again or lost.
    fn resume(&self, state: &mut MutexGuard<'_, SessionState>, link: Link) {
        let (number, requests) = state.core.connected(&link.opened(), now_ms());
        state.link = NumberedLink::new(number, link);
        self.changed.notify_all();
        self.send_all(state, requests);
    }
}
