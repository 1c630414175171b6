//! A client that blocks, without threads of its own while its session lasts as long as its connection.
//!
//! ```text
//!   Client ---- one Session: calls under way, holds, the link
//!    Hold  ----'   ask      send, then wait: one waiting thread at a time reads for all of them
//!    Hold  ----'   check    is the lock still ours? no round trip
//!                  link broken: connect again, ask again for what was unanswered; after a restart of the service
//!                               hold again what was held, or say that it is lost
//! ```
//!
//! Invariants: a hold that [`Hold::check`] calls good was good at that instant by the client's own clock; an error is
//! the last word on a hold. Dropping a hold releases it.
//!
//! Not here: what a lock means (`table`), the other end (`server`).

mod core;
mod hold;
mod identity;
pub(crate) mod link;
mod name;
mod options;
mod pending_lock;
mod separate_link;
mod session;
mod stream;

use std::path::Path;
use std::sync::Arc;

use elbow_ranges::Footprint;

pub use self::core::{Call, ClientCore, LinkNumber, Opened, RECONNECT_MS, ReplyEffects, Standing, Taken};
pub use self::hold::Hold;
pub use self::identity::{Identity, UnknownIdentity, unstable_inodes_at};
pub use self::link::{Disconnected, Link, Receive, Received, now_ms};
pub use self::name::file_name;
pub use self::options::{Options, Posix, TTL_MS_TCP};
pub use self::pending_lock::{Canceller, PendingLock};
use self::session::Session;
use crate::address::{ADDRESS_VARIABLE, Address, BadAddress};
use crate::error::LockError;
use crate::message::{Blocker, FileLocks, FileName, LockMode, Owner, SessionId, Wait};

/// A session with a lock service. Clones share it; it ends with the last clone and hold.
///
/// ```no_run
/// use elbow_lock::{Client, LockMode, Wait};
/// use elbow_ranges::Footprint;
///
/// let client = Client::connect("unix:/run/locks")?;
/// let hold = client.lock("/data/grid", Footprint::extent(0..4096)?, LockMode::Exclusive, Wait::Forever)?;
/// hold.check()?; // just before each I/O under it
/// // ... write the 4096 bytes ...
/// hold.release();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Client(Arc<Session>);

impl Client {
    /// Connects to `unix:PATH` or `tcp:HOST:PORT`; over TCP with the [`Credentials`](crate::Credentials) that `ELBOW_LOCKS_KEY` names, if
    /// that is set, and a lease of [`TTL_MS_TCP`].
    ///
    /// # Errors
    /// When the address is none, nobody is there, or the service does not let us in.
    pub fn connect(address: &str) -> Result<Self, LockError> {
        let address = address.parse()?;
        let options = Options::for_address(&address)?;
        Self::connect_with(address, options)
    }

    /// Connects to what `ELBOW_LOCKS` names.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), and when the variable is not set.
    pub fn from_environment() -> Result<Self, LockError> {
        let address = std::env::var(ADDRESS_VARIABLE).map_err(|_| BadAddress { text: String::new() })?;
        Self::connect(&address)
    }

    /// Connects.
    ///
    /// # Errors
    /// When nobody is there, or the service does not let us in.
    pub fn connect_with(address: Address, options: Options) -> Result<Self, LockError> {
        Session::open(address, options).map(Self)
    }

    /// Waits until all of `footprint` of a file is ours; `owner` is this thread's.
    ///
    /// The file need not exist; its name for the service is [`file_name`].
    ///
    /// # Errors
    /// When the service refuses, or is gone for longer than the client looks for it.
    pub fn lock(
        &self,
        file: impl AsRef<Path>,
        footprint: Footprint,
        mode: LockMode,
        wait: Wait,
    ) -> Result<Hold, LockError> {
        self.lock_as(
            Owner::of_this_thread(),
            file_name(file.as_ref())?,
            footprint,
            mode,
            wait,
        )
    }

    /// As [`lock`](Self::lock), for an owner that is not this thread.
    ///
    /// # Errors
    /// As [`lock`](Self::lock).
    pub fn lock_as(
        &self,
        owner: Owner,
        file: FileName,
        footprint: Footprint,
        mode: LockMode,
        wait: Wait,
    ) -> Result<Hold, LockError> {
        self.ask(owner, file, footprint, mode, wait)?.wait()
    }

    /// Asks for a lock, and does not wait for it: as [`lock_as`](Self::lock_as) in two steps, between which others can be
    /// asked for, and of which the second can be ended from another thread.
    ///
    /// ```no_run
    /// use elbow_lock::{Client, LockMode, Owner, Wait, file_name};
    /// use elbow_ranges::Footprint;
    ///
    /// let client = Client::connect("unix:/run/locks")?;
    /// let file = file_name("/data/grid".as_ref())?;
    /// let asked = client.ask(Owner(1), file, Footprint::extent(0..4096)?, LockMode::Exclusive, Wait::Forever)?;
    /// let canceller = asked.canceller();
    /// std::thread::spawn(move || canceller.cancel()); // when the user has had enough
    /// let hold = asked.wait()?;
    /// # drop(hold);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the request is too long, or the service is gone for longer than the client looks for it.
    pub fn ask(
        &self,
        owner: Owner,
        file: FileName,
        footprint: Footprint,
        mode: LockMode,
        wait: Wait,
    ) -> Result<PendingLock, LockError> {
        let id = self.0.ask(owner, &file, footprint, mode, wait)?;
        Ok(PendingLock::new(Arc::clone(&self.0), id, file))
    }

    /// fcntl(2)'s `F_SETLK(W)`: makes `owner` hold exactly `mode` over the range. `interruptible`: a signal ends the
    /// wait, as it ends fcntl's.
    ///
    /// # Errors
    /// As [`lock`](Self::lock), and [`LockError::Interrupted`].
    pub fn posix(
        &self,
        lock: &Posix<'_>,
        mode: Option<LockMode>,
        wait: Wait,
        interruptible: bool,
    ) -> Result<(), LockError> {
        self.0.posix(lock, mode, wait, interruptible)
    }

    /// Ends an owner's POSIX locks on a file, or on all files.
    ///
    /// # Errors
    /// When the service is gone.
    pub fn posix_release(&self, owner: Owner, file: Option<FileName>) -> Result<(), LockError> {
        self.0.posix_release(owner, file)
    }

    /// fcntl(2)'s `F_GETLK`: the lock that would be in the way.
    ///
    /// # Errors
    /// When the service is gone.
    pub fn query(&self, lock: &Posix<'_>, mode: LockMode) -> Result<Option<Blocker>, LockError> {
        self.0.query(lock, mode)
    }

    /// What the service holds and who waits: a JSON object.
    ///
    /// # Errors
    /// When the service is gone.
    pub fn status(&self) -> Result<String, LockError> {
        self.0.status()
    }

    /// Who holds and who waits for locks of one file. Asked over a connection of its own, so that no lock depends on the answer of a service
    /// that does not understand it.
    ///
    /// ```no_run
    /// use elbow_lock::{Client, file_name};
    ///
    /// let client = Client::connect("unix:/run/locks")?;
    /// for lock in client.look(&file_name("/data/grid".as_ref())?)?.locks {
    ///     println!("{} {} {}", if lock.token.is_some() { "held by" } else { "wanted by" }, lock.client, lock.pattern);
    /// }
    /// # Ok::<(), elbow_lock::LockError>(())
    /// ```
    ///
    /// # Errors
    /// When the service is gone, and [`LockError::TooOld`].
    pub fn look(&self, file: &FileName) -> Result<FileLocks, LockError> {
        self.0.look(file)
    }

    /// Ends the sessions that hold something of a file, and says which these are. They are told that their locks are lost; what they held is
    /// granted to others when they are known to use it no more: when their programs have given it back, are dead, or their leases are over.
    /// With `force` it is granted at once, whatever their programs do with it.
    ///
    /// Without `session` only sessions are ended that hold nothing of other files. Root may, and who runs the service, and
    /// those whose locks they are; over a Unix socket of the service.
    ///
    /// ```no_run
    /// use elbow_lock::{Client, file_name};
    ///
    /// let client = Client::connect("unix:/run/locks")?;
    /// let file = file_name("/data/grid".as_ref())?;
    /// for session in client.break_locks(&file, None, false)? {
    ///     println!("session {} was told", session.0);
    /// }
    /// # Ok::<(), elbow_lock::LockError>(())
    /// ```
    ///
    /// # Errors
    /// [`LockError::Denied`], as [`look`](Self::look) otherwise.
    pub fn break_locks(
        &self,
        file: &FileName,
        session: Option<SessionId>,
        force: bool,
    ) -> Result<Vec<SessionId>, LockError> {
        self.0.break_locks(file, session, force)
    }
}

impl Owner {
    /// The owner that [`Client::lock`] locks for: a number of the calling thread, never given twice in a process.
    ///
    /// ```
    /// use elbow_lock::Owner;
    ///
    /// assert_eq!(Owner::of_this_thread(), Owner::of_this_thread());
    /// ```
    #[must_use]
    pub fn of_this_thread() -> Self {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(1);
        thread_local!(static OWNER: Owner = Owner(NEXT.fetch_add(1, Ordering::Relaxed)));
        OWNER.with(|owner| *owner)
    }
}
