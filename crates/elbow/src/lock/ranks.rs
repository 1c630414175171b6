//! What the ranks of an MPI program tell `elbow lock mpi`: that all of them have the library, or that some lack it.
//!
//! ```text
//!   elbow    holds two bytes of a file that is none ---- somebody waits for the first: lets go, all ranks are covered
//!   rank 0   asks for the first, or the second   ----/   for the second: lets go, some are not
//! ```
//!
//! It goes through the lock service because that is what both of them reach, from whatever node, through whatever proxy. A program that lasts a
//! moment is heard as well, because its rank waits until it has been. Once it was heard nobody waits any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use elbow_lock::{Client, FileName, Hold, LockError};
use elbow_ranges::Footprint;

/// The name of the run, in the environment of the ranks.
pub(super) const RUN_VARIABLE: &str = "ELBOW_MPI_RUN";
/// Between two looks at what the service has sent, which is a look at a socket.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// The same when all have been heard to be covered.
const IDLE_INTERVAL: Duration = Duration::from_millis(200);

/// What was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RankCoverage {
    /// That all ranks of a program have the library.
    Covered,
    /// That some lack it.
    Uncovered,
    /// Nothing.
    Nothing,
    /// The service was gone, and whoever told us something told nobody.
    Cut,
}

/// Listens to the ranks of one run.
pub(super) struct RankListener {
    name: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    covered: AtomicBool,
    uncovered: AtomicBool,
    cut: AtomicBool,
}

impl RankListener {
    /// Begins to listen, on a thread of its own.
    ///
    /// # Errors
    /// The service refuses.
    pub(super) fn open(client: &Client) -> Result<Self> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let name = format!("elbow lock mpi/{host}/{}/{}", std::process::id(), since.as_nanos());
        let (covered, uncovered) = (hold(client, &name, 0)?, hold(client, &name, 1)?);
        let shared = Arc::new(Shared::default());
        let listener = Self {
            name,
            shared: Arc::clone(&shared),
        };
        let listen = move || listen(&shared, [Some(covered), Some(uncovered)]);
        std::thread::Builder::new()
            .name("ranks".into())
            .spawn(listen)
            .context("cannot start a thread")?;
        Ok(listener)
    }

    /// For the ranks.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What was heard so far.
    pub(super) fn coverage(&self) -> RankCoverage {
        let is_set = |flag: &AtomicBool| flag.load(Ordering::Acquire);
        match &*self.shared {
            shared if is_set(&shared.uncovered) => RankCoverage::Uncovered,
            shared if is_set(&shared.covered) => RankCoverage::Covered,
            shared if is_set(&shared.cut) => RankCoverage::Cut,
            _ => RankCoverage::Nothing,
        }
    }
}

fn hold(client: &Client, name: &str, byte: u64) -> Result<Hold> {
    let name = FileName::new(name.as_bytes()).ok_or(LockError::BadName { bytes: name.len() })?;
    let byte = Footprint::extent(byte..byte + 1)?;
    client
        .lock_until_wanted(name, byte)
        .context("the ranks cannot be listened to")
}

/// Lets go of what somebody waits for, having noted it.
fn listen(shared: &Shared, mut holds: [Option<Hold>; 2]) {
    let flags = [&shared.covered, &shared.uncovered];
    while holds[1].is_some() {
        for (hold, flag) in holds.iter_mut().zip(flags) {
            if let Some(wanted) = hold.take_if(|hold| hold.is_wanted()) {
                flag.store(true, Ordering::Release);
                wanted.release();
            }
        }
        if holds.iter().flatten().any(|hold| hold.check().is_err()) {
            return shared.cut.store(true, Ordering::Release);
        }
        let is_idle = holds[0].is_none();
        std::thread::sleep(if is_idle { IDLE_INTERVAL } else { LOOK_INTERVAL });
    }
}
