//! Makes chosen calls fail.
//!
//! A refused call is not made at all: the storage is as if the process had ended just before it. A test that uses
//! this asks [`Faulty::fired`] in the end, since a fault that never came proves nothing.

use std::fmt;

use parking_lot::Mutex;

use super::{Call, Hook, Operation};
use crate::{Errno, Result};

type Predicate = Box<dyn Fn(&Call<'_>) -> bool + Send + Sync>;

/// Which calls fail, and how.
pub struct Plan {
    matches: Predicate,
    first: u64,
    times: u64,
    errno: Errno,
    /// The call is made all the same.
    is_made: bool,
    /// Calls that matched so far.
    matched: u64,
}

/// What becomes of a call that fails.
#[derive(Clone, Copy)]
struct Refusal {
    errno: Errno,
    is_made: bool,
}

impl Plan {
    /// Fails the first call of any kind; narrow it down with the other methods.
    #[must_use]
    pub fn fail(errno: Errno) -> Self {
        Self {
            matches: Box::new(|_| true),
            first: 1,
            times: 1,
            errno,
            is_made: false,
            matched: 0,
        }
    }

    /// The call is made, and answered with the error all the same, if it succeeds: a server that has died, or that has been
    /// asked twice.
    #[must_use]
    pub fn but_made(self) -> Self {
        Self { is_made: true, ..self }
    }

    /// From the `n`-th call on (counted from 1) every call fails with EIO, as if the process had been killed there.
    #[must_use]
    pub fn stop_at(n: u64) -> Self {
        Self::fail(Errno::IO).nth(n).times(u64::MAX)
    }

    /// Like [`stop_at`](Self::stop_at) for the calls that change something or make it durable; those that only
    /// read are let through, and not counted.
    #[must_use]
    pub fn stop_at_change(n: u64) -> Self {
        Self::stop_at(n).when(|call| !call.operation.only_reads())
    }

    /// Only calls of one operation count.
    #[must_use]
    pub fn on(self, operation: Operation) -> Self {
        self.when(move |call| call.operation == operation)
    }

    /// Only calls on objects of this name count.
    #[must_use]
    pub fn named(self, name: &'static str) -> Self {
        self.when(move |call| call.name.is_some_and(|found| found == name))
    }

    /// Only calls that satisfy a predicate (too) count.
    #[must_use]
    pub fn when(self, also: impl Fn(&Call<'_>) -> bool + Send + Sync + 'static) -> Self {
        let before = self.matches;
        Self {
            matches: Box::new(move |call| before(call) && also(call)),
            ..self
        }
    }

    /// The `n`-th call that counts fails (from 1), not the first.
    #[must_use]
    pub fn nth(self, n: u64) -> Self {
        assert!(n > 0, "calls are counted from 1");
        Self { first: n, ..self }
    }

    /// So many calls in a row fail, not one.
    #[must_use]
    pub fn times(self, times: u64) -> Self {
        Self { times, ..self }
    }

    fn refuses(&mut self, call: &Call<'_>) -> Option<Refusal> {
        if !(self.matches)(call) {
            return None;
        }
        self.matched += 1;
        let refusal = Refusal {
            errno: self.errno,
            is_made: self.is_made,
        };
        (self.matched >= self.first && self.matched - self.first < self.times).then_some(refusal)
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            first,
            times,
            errno,
            is_made,
            matched,
            ..
        } = self;
        write!(
            f,
            "Plan {{ first: {first}, times: {times}, errno: {errno:?}, is_made: {is_made}, matched: {matched} }}"
        )
    }
}

/// Refuses the calls that its plans say.
///
/// ```
/// use std::ffi::OsStr;
/// use std::sync::Arc;
///
/// use elbow_file::double::{Faulty, Interposed, Operation, Plan};
/// use elbow_file::{Errno, RealStorage, Storage};
///
/// let directory = tempfile::tempdir()?;
/// let root = RealStorage::open_root(directory.path())?;
/// let plan = Plan::fail(Errno::NOSPC).on(Operation::Mkdir).nth(2);
/// let storage = Interposed::new(Arc::new(RealStorage), Faulty::new([plan]));
/// storage.mkdir(&root, OsStr::new("a"), 0o755)?;
/// assert_eq!(storage.mkdir(&root, OsStr::new("b"), 0o755), Err(Errno::NOSPC));
/// storage.mkdir(&root, OsStr::new("c"), 0o755)?;
/// assert_eq!(storage.hook().fired(), 1);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Faulty(Mutex<FaultyState>);

#[derive(Debug, Default)]
struct FaultyState {
    plans: Vec<Plan>,
    seen: u64,
    changes: u64,
    fired: u64,
}

impl Faulty {
    /// Begins with these plans; a call that several refuse gets the errno of the first.
    pub fn new(plans: impl IntoIterator<Item = Plan>) -> Self {
        Self(Mutex::new(FaultyState {
            plans: plans.into_iter().collect(),
            ..FaultyState::default()
        }))
    }

    /// Adds a plan, which counts calls from now on.
    pub fn arm(&self, plan: Plan) {
        self.0.lock().plans.push(plan);
    }

    /// Drops all plans: the storage works again.
    pub fn disarm(&self) {
        self.0.lock().plans.clear();
    }

    /// Number of calls refused so far.
    pub fn fired(&self) -> u64 {
        self.0.lock().fired
    }

    /// Number of calls seen so far, refused or not: how far [`Plan::stop_at`] can usefully go.
    pub fn seen(&self) -> u64 {
        self.0.lock().seen
    }

    /// Number of changing calls seen so far: how far [`Plan::stop_at_change`] can usefully go.
    pub fn changes_seen(&self) -> u64 {
        self.0.lock().changes
    }
}

impl FaultyState {
    fn refuses(&mut self, call: &Call<'_>) -> Option<Refusal> {
        self.seen += 1;
        self.changes += u64::from(!call.operation.only_reads());
        // All plans count the call, whichever refuses it.
        let refusals: Vec<_> = self.plans.iter_mut().filter_map(|plan| plan.refuses(call)).collect();
        let refusal = refusals.first().copied();
        self.fired += u64::from(refusal.is_some());
        refusal
    }
}

impl Hook for Faulty {
    fn around<T: 'static>(&self, call: &Call<'_>, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let refusal = self.0.lock().refuses(call);
        match refusal {
            Some(Refusal { errno, is_made: true }) => make().and(Err(errno)),
            Some(Refusal { errno, .. }) => Err(errno),
            None => make(),
        }
    }
}
