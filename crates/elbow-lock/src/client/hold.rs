//! A lock that is held.

use std::sync::Arc;

use super::session::Session;
use crate::error::LockError;
use crate::message::{FileName, LockId, Token};

/// A lock that was granted. It is released when it is dropped.
#[derive(Debug)]
pub struct Hold {
    session: Arc<Session>,
    id: LockId,
    token: Token,
    file: FileName,
    released: bool,
}

impl Hold {
    pub(super) fn new(session: Arc<Session>, id: LockId, token: Token, file: FileName) -> Self {
        Self {
            session,
            id,
            token,
            file,
            released: false,
        }
    }

    /// Its fencing token: larger than that of any grant before that excluded this one.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// Whether the lock is still ours, by our own clock and what the service has said so far. No round trip, except
    /// when the connection broke: then it is made again, and the lock with it where the service was restarted.
    ///
    /// # Errors
    /// [`LockError::Lost`], for good: do no I/O under it.
    pub fn check(&self) -> Result<(), LockError> {
        self.session.check(self.id, &self.file)
    }

    /// Whether it is ours by our own clock, without a word to the service or a wait for one; false also while the connection is down. For who
    /// gets a hold from another thread, and may have been stopped for longer than the lease in between.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.session.is_current(self.id)
    }

    /// Whether the service said that somebody waits for it.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.session.is_wanted(self.id)
    }

    /// Releases it, having checked that it was ours to the end.
    ///
    /// # Errors
    /// As [`check`](Self::check): what was read or written under it may not have been atomic.
    pub fn finish(mut self) -> Result<(), LockError> {
        let checked = self.check();
        self.give_back();
        checked
    }

    /// Releases it.
    pub fn release(mut self) {
        self.give_back();
    }

    fn give_back(&mut self) {
        if !std::mem::replace(&mut self.released, true) {
            self.session.unlock(self.id);
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.give_back();
    }
}
