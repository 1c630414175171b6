//! What follows when the link to the service breaks: another link, over which what was unanswered is asked again and what
//! was held is held again, or lost.
//!
//! ```text
//!   link up --------- broken, lease over ---------> link down
//!      ^                                               |  the next thread that needs it connects,
//!      '---- welcome: ask again, reassert holds -------'  the others wait for that one
//! ```

use std::sync::Arc;
use std::time::Duration;

use parking_lot::MutexGuard;

use super::{Held, Session, Standing, State, Up, lease_of};
use crate::client::Options;
use crate::client::link::{Link, now_ms};
use crate::error::LockError;
use crate::lease::{ClientLease, margin_ms};
use crate::message::Request;

/// How long a service that went away is looked for by a client that holds nothing.
const RECONNECT_MS: u64 = 15_000;
const RECONNECT_PAUSE: Duration = Duration::from_millis(50);

/// How the last link ended.
#[derive(Clone)]
pub(super) struct Break {
    why: String,
    last_epoch: u32,
    /// What was held may be asserted to the next life of the service as long as it lasts (none: it has no end).
    lease: Option<ClientLease>,
    /// Until then the next service waits for those who hold something, ms.
    patience_until_ms: u64,
}

impl Session {
    /// The link is of no more use.
    pub(super) fn broke(&self, state: &mut State, link: &Arc<Link>, why: String) {
        if !state.is_current(link) {
            return;
        }
        if state.has_posix {
            state.posix_lost.get_or_insert_with(|| why.clone());
        }
        link.close(); // Wakes the thread that reads it.
        let grace_ms = link.welcome.grace_ms_max;
        let patience_until_ms = now_ms() + u64::from(grace_ms - margin_ms(grace_ms));
        let last_epoch = link.welcome.epoch;
        state.link = Up::Down(Break {
            why,
            last_epoch,
            lease: state.lease.take(),
            patience_until_ms,
        });
        self.changed.notify_all();
    }

    /// Connects again where the link is down; or waits until another thread has.
    pub(super) fn bring_up(&self, state: &mut MutexGuard<'_, State>) -> Result<(), LockError> {
        while matches!(state.link, Up::Connecting) {
            self.changed.wait(state);
        }
        let Up::Down(broke) = &state.link else {
            return Ok(());
        };
        let broke = broke.clone();
        let holds_something = state.has_posix || !state.holds.is_empty();
        let until_ms = match holds_something {
            true => broke.patience_until_ms,
            false => now_ms() + RECONNECT_MS,
        };
        state.link = Up::Connecting;
        let opened = MutexGuard::unlocked(state, || self.reconnect(until_ms));
        match opened {
            Ok(link) => {
                self.resume(state, &Arc::new(link), &broke);
                Ok(())
            }
            Err(error) => {
                lose_all(state, &format!("{}; {error}", broke.why));
                state.link = Up::Down(broke);
                self.changed.notify_all();
                Err(error)
            }
        }
    }

    fn reconnect(&self, until_ms: u64) -> Result<Link, LockError> {
        let Options { name, ttl_ms, key } = &self.options;
        loop {
            match Link::open(&self.address, name, *ttl_ms, key.as_ref()) {
                Err(LockError::Unreachable { .. }) if now_ms() < until_ms => std::thread::sleep(RECONNECT_PAUSE),
                opened => return opened,
            }
        }
    }

    /// Goes on over a new link: what was asked is asked again, what was held is held again or lost.
    fn resume(&self, state: &mut MutexGuard<'_, State>, link: &Arc<Link>, broke: &Break) {
        let has_lease = broke.lease.clone().is_none_or(|mut lease| lease.check(now_ms()));
        let can_reassert = has_lease && link.welcome.epoch != broke.last_epoch && link.welcome.grace_ms > 0;
        let mut again = Vec::new();
        for held in state
            .holds
            .values_mut()
            .filter(|held| !matches!(held.standing, Standing::Lost(_)))
        {
            if can_reassert {
                held.standing = Standing::Reasserting;
                again.extend(reassertion(held));
            } else {
                held.lose(&broke.why);
            }
        }
        let unanswered = state.calls.values().filter(|pending| pending.outcome.is_none());
        again.extend(unanswered.map(|pending| pending.request.clone()));
        state.lease = lease_of(link);
        state.link = Up::Link(Arc::clone(link));
        self.changed.notify_all();
        MutexGuard::unlocked(state, || again.iter().for_each(|request| self.send(link, request)));
    }
}

fn reassertion(held: &Held) -> Option<Request> {
    let Request::Lock {
        id,
        owner,
        file,
        kind,
        footprint,
        recall,
        ..
    } = held.request.clone()
    else {
        return None;
    };
    let token = held.token;
    Some(Request::Reassert {
        id,
        owner,
        file,
        kind,
        footprint,
        token,
        recall,
    })
}

fn lose_all(state: &mut State, why: &str) {
    state.holds.values_mut().for_each(|held| held.lose(why));
    for pending in state.calls.values_mut().filter(|pending| pending.outcome.is_none()) {
        pending.outcome = Some(Err(why.to_owned()));
    }
}
