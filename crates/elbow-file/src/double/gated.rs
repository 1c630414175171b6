//! Holds chosen calls back until a test lets them go: what a very slow storage does, without sleeping.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::{Call, Hook};
use crate::Result;

/// How long a test waits for calls to come: far more than any machine needs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A gate that some calls have to pass. Open at first.
///
/// A test that closes it has to open it again, or the held calls stay.
///
/// ```
/// use std::ffi::OsStr;
/// use std::sync::Arc;
/// use std::thread;
///
/// use elbow_file::double::{Gated, Interposed, Operation};
/// use elbow_file::{Errno, RealStorage, Storage};
///
/// let directory = tempfile::tempdir()?;
/// let root = RealStorage::open_root(directory.path())?;
/// let gated = Gated::new(|call| call.operation == Operation::Mkdir);
/// let storage = Interposed::new(Arc::new(RealStorage), gated);
/// storage.hook().close();
/// thread::scope(|scope| {
///     let made = scope.spawn(|| storage.mkdir(&root, OsStr::new("a"), 0o755));
///     storage.hook().wait_for_held(1);
///     assert_eq!(storage.stat(&root, OsStr::new("a")), Err(Errno::NOENT)); // not made yet, and stat passes
///     storage.hook().open();
///     assert_eq!(made.join().unwrap(), Ok(()));
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Gated {
    stops: Box<dyn Fn(&Call<'_>) -> bool + Send + Sync>,
    gate: Mutex<Gate>,
    changed: Condvar,
}

#[derive(Default)]
struct Gate {
    closed: bool,
    held: usize,
}

impl Gated {
    /// A gate for the calls that satisfy a predicate.
    pub fn new(stops: impl Fn(&Call<'_>) -> bool + Send + Sync + 'static) -> Self {
        Self {
            stops: Box::new(stops),
            gate: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Closes the gate.
    pub fn close(&self) {
        self.gate.lock().closed = true;
    }

    /// Opens the gate and lets go of all calls held.
    pub fn open(&self) {
        self.gate.lock().closed = false;
        self.changed.notify_all();
    }

    /// Number of calls held now.
    pub fn held(&self) -> usize {
        self.gate.lock().held
    }

    /// Waits until at least so many calls are held.
    ///
    /// # Panics
    /// When they do not come: a test should fail then, not hang.
    pub fn wait_for_held(&self, calls: usize) {
        let mut gate = self.gate.lock();
        let waited = self
            .changed
            .wait_while_for(&mut gate, |gate| gate.held < calls, PATIENCE);
        if waited.timed_out() {
            gate.closed = false; // or the calls that did come would keep the test from ending
            self.changed.notify_all();
            panic!("{} calls came to the gate in {PATIENCE:?}, expected {calls}", gate.held);
        }
    }

    fn pass(&self) {
        let mut gate = self.gate.lock();
        if gate.closed {
            gate.held += 1;
            self.changed.notify_all();
            self.changed.wait_while(&mut gate, |gate| gate.closed);
            gate.held -= 1;
        }
    }
}

impl Hook for Gated {
    fn around<T: 'static>(&self, call: &Call<'_>, make: impl FnOnce() -> Result<T>) -> Result<T> {
        if (self.stops)(call) {
            self.pass();
        }
        make()
    }
}
