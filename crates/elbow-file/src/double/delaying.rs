//! Makes the storage slow: each call takes a time, and only so many are served at once.

use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::{Call, Hook};
use crate::Result;

/// Serves at most so many calls at once, each after a delay; more wait their turn.
///
/// ```
/// use std::sync::Arc;
/// use std::time::{Duration, Instant};
///
/// use elbow_file::double::{Delaying, Interposed};
/// use elbow_file::{RealStorage, Storage};
///
/// let directory = tempfile::tempdir()?;
/// let root = RealStorage::open_root(directory.path())?;
/// let delay = Duration::from_millis(2);
/// let storage = Interposed::new(Arc::new(RealStorage), Delaying::new(delay, 64));
/// let begun = Instant::now();
/// storage.list(&root)?;
/// assert!(begun.elapsed() >= delay);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Delaying {
    delay: Duration,
    served_max: usize,
    load: Mutex<Load>,
    free: Condvar,
}

#[derive(Debug, Default)]
struct Load {
    served: usize,
    served_peak: usize,
    waiting: usize,
    waiting_peak: usize,
}

impl Delaying {
    /// A delay per call and a bound on calls served at once.
    ///
    /// # Panics
    /// When the bound is 0: no call would ever be served.
    #[must_use]
    pub fn new(delay: Duration, served_max: usize) -> Self {
        assert!(served_max > 0, "a storage that serves no call");
        Self {
            delay,
            served_max,
            load: Mutex::default(),
            free: Condvar::new(),
        }
    }

    /// The most calls that were served at once.
    pub fn served_peak(&self) -> usize {
        self.load.lock().served_peak
    }

    /// The most calls that waited for their turn at once.
    pub fn waiting_peak(&self) -> usize {
        self.load.lock().waiting_peak
    }

    fn begin(&self) -> Served<'_> {
        let mut load = self.load.lock();
        if load.served == self.served_max {
            load.waiting += 1;
            load.waiting_peak = load.waiting_peak.max(load.waiting);
            self.free.wait_while(&mut load, |load| load.served == self.served_max);
            load.waiting -= 1;
        }
        load.served += 1;
        load.served_peak = load.served_peak.max(load.served);
        Served(self)
    }
}

impl Hook for Delaying {
    fn around<T: 'static>(&self, _call: &Call<'_>, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let _served = self.begin();
        thread::sleep(self.delay);
        make()
    }
}

/// A call being served; its place is free again when this is dropped.
struct Served<'a>(&'a Delaying);

impl Drop for Served<'_> {
    fn drop(&mut self) {
        self.0.load.lock().served -= 1;
        self.0.free.notify_one();
    }
}
