//! A lock that was asked for.

use std::sync::{Arc, Weak};
use std::time::Duration;

use elbow_ranges::Footprint;

use super::Client;
use super::hold::Hold;
use super::link::now_ms;
use super::session::Session;
use crate::error::LockError;
use crate::message::{FileName, LockId, LockMode, Owner, Wait};

/// A lock that was asked for and perhaps not yet granted. Dropping it gives it up.
///
/// A thread may ask for several before it waits for the first.
#[derive(Debug)]
#[must_use = "dropping it gives the lock up"]
pub struct PendingLock {
    session: Arc<Session>,
    id: LockId,
    file: FileName,
}

/// Ends the wait for a [`PendingLock`], from any thread and at any time.
#[derive(Clone, Debug)]
pub struct Canceller {
    session: Weak<Session>,
    id: LockId,
}

impl Client {
    /// Takes a lock at once or not at all, and is told when somebody else waits for it: [`Hold::is_wanted`].
    ///
    /// ```no_run
    /// use elbow_lock::{Client, FileName};
    /// use elbow_ranges::Footprint;
    ///
    /// let client = Client::connect("unix:/run/locks")?;
    /// let hold = client.lock_until_wanted(FileName::new(b"turn").unwrap(), Footprint::whole())?;
    /// while !hold.is_wanted() {
    ///     std::thread::sleep(std::time::Duration::from_millis(10));
    /// }
    /// hold.release();
    /// # Ok::<(), elbow_lock::LockError>(())
    /// ```
    ///
    /// # Errors
    /// When somebody holds it, or the service refuses or is gone.
    pub fn lock_until_wanted(&self, file: FileName, footprint: Footprint) -> Result<Hold, LockError> {
        let (owner, mode) = (Owner::of_this_thread(), LockMode::Exclusive);
        let id = self.0.ask_with_recall(owner, &file, footprint, mode, Wait::Try, true)?;
        PendingLock::new(Arc::clone(&self.0), id, file).wait()
    }
}

impl PendingLock {
    pub(super) fn new(session: Arc<Session>, id: LockId, file: FileName) -> Self {
        Self { session, id, file }
    }

    /// Waits until all of it is ours.
    ///
    /// # Errors
    /// When the service refuses, or is gone for longer than the client looks for it; [`Refusal::Cancelled`] after
    /// [`Canceller::cancel`].
    ///
    /// [`Refusal::Cancelled`]: crate::Refusal::Cancelled
    pub fn wait(self) -> Result<Hold, LockError> {
        let token = self.session.wait(self.id, &self.file)?;
        Ok(Hold::new(Arc::clone(&self.session), self.id, token, self.file.clone()))
    }

    /// As [`wait`](Self::wait), for so long at most: `None` if there is no answer by then, and it stays asked for. A service that has gone
    /// away is looked for first, for some seconds.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use elbow_lock::{Client, FileName, LockMode, Owner, Wait};
    /// use elbow_ranges::Footprint;
    ///
    /// let client = Client::connect("unix:/run/locks")?;
    /// let file = FileName::new(b"dataset/7").unwrap();
    /// let asked = client.ask(Owner::of_this_thread(), file, Footprint::whole(), LockMode::Exclusive, Wait::Forever)?;
    /// let hold = loop {
    ///     match asked.wait_for(Duration::from_millis(10))? {
    ///         Some(hold) => break hold,
    ///         None => println!("not yet"),
    ///     }
    /// };
    /// # drop(hold);
    /// # Ok::<(), elbow_lock::LockError>(())
    /// ```
    ///
    /// # Errors
    /// As [`wait`](Self::wait), and [`LockError::Lost`] when the answer has been taken already.
    pub fn wait_for(&self, time: Duration) -> Result<Option<Hold>, LockError> {
        let at_ms = now_ms().saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let token = self.session.wait_until(self.id, &self.file, at_ms)?;
        Ok(token.map(|token| Hold::new(Arc::clone(&self.session), self.id, token, self.file.clone())))
    }

    /// What ends the wait.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        Canceller {
            session: Arc::downgrade(&self.session),
            id: self.id,
        }
    }
}

impl Drop for PendingLock {
    fn drop(&mut self) {
        self.session.abandon(self.id);
    }
}

impl Canceller {
    /// Gives the lock up and its place in the queue, unless it has been granted already: then nothing happens. Who waits
    /// for it hears so after one round trip to the service at most.
    pub fn cancel(&self) {
        if let Some(session) = self.session.upgrade() {
            session.give_up(self.id);
        }
    }
}
