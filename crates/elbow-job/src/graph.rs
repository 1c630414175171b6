//! The queue of objects with work left, and who waits for whom.
//!
//! A node of the operation graph is an object whose desired state differs from what is placed on the
//! storage; its edges are the real dependencies that [`crate::plan`] finds when the node comes up. Because
//! the next storage call is derived from the difference, operations merge and cancel by themselves.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};

use elbow_file::Time;

use crate::api::Ino;
use crate::model::Place;

/// An object rests this long after its last change before the storage hears of it, so that what follows at
/// once (more writes, chmod, utimens, a rename, its removal) is merged. Nanoseconds.
const LINGER_NS: i128 = 30_000_000;

/// Nodes that are waiting, parked or under way.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    queue: VecDeque<(Ino, Time)>,
    waiters: HashMap<Ino, Vec<Ino>>,
    waiting: usize,
    /// Files that stay open and have little to write: they come up again when they are closed.
    parked: HashSet<Ino>,
    pub(crate) running: usize,
    /// Names on the storage that an action is under way on, and on whose behalf.
    held: HashMap<Place, Ino>,
    /// The same by directory, counted.
    held_in: HashMap<Ino, u32>,
    /// Nodes under way.
    pub(crate) visited: HashSet<Ino>,
    /// Everything goes to the storage now, open files included.
    pub(crate) flush: bool,
    /// All content is drained; directories get their final attributes.
    pub(crate) finishing: bool,
    /// Nothing more goes to the storage: the job cannot commit any more.
    pub(crate) stopped: bool,
}

impl Graph {
    pub(crate) fn push(&mut self, ino: Ino, now: Time) {
        self.queue.push_back((ino, now));
    }

    /// The node at a position of the queue, if it has rested long enough.
    pub(crate) fn ready_at(&self, position: usize, now: Time) -> Option<Ino> {
        let (ino, since) = self.queue.get(position)?;
        (!self.stopped && (self.flush || rested(*since, now))).then_some(*ino)
    }

    /// Takes the node at a position out of the queue.
    pub(crate) fn take(&mut self, position: usize) -> Option<Ino> {
        self.queue.remove(position).map(|(ino, _)| ino)
    }

    /// How many actions are under way on names in a directory.
    pub(crate) fn held_in(&self, dir: Ino) -> u32 {
        self.held_in.get(&dir).copied().unwrap_or(0)
    }

    /// Nanoseconds until the first node has rested; `None` if there is none.
    pub(crate) fn next_ready_ns(&self, now: Time) -> Option<u64> {
        let (_, since) = self.queue.front().filter(|_| !self.stopped)?;
        let left = LINGER_NS - (nanoseconds(now) - nanoseconds(*since)).max(0);
        Some(if self.flush { 0 } else { left.clamp(0, LINGER_NS) as u64 })
    }

    /// Has an object rested since its last change?
    pub(crate) fn has_rested(&self, changed: Time, now: Time) -> bool {
        self.flush || rested(changed, now)
    }

    pub(crate) fn wait_for(&mut self, ino: Ino, on: Ino) {
        self.waiters.entry(on).or_default().push(ino);
        self.waiting += 1;
    }

    /// Nodes that waited for this one.
    pub(crate) fn take_waiters(&mut self, on: Ino) -> Vec<Ino> {
        let waiters = self.waiters.remove(&on).unwrap_or_default();
        self.waiting -= waiters.len();
        waiters
    }

    /// Holds names for an action on behalf of a node.
    pub(crate) fn hold<'a>(&mut self, ino: Ino, places: impl Iterator<Item = &'a Place>) {
        for place in places {
            let before = self.held.insert(place.clone(), ino);
            assert!(before.is_none(), "two actions on one name: {place:?}");
            *self.held_in.entry(place.dir).or_default() += 1;
        }
    }

    pub(crate) fn let_go<'a>(&mut self, places: impl Iterator<Item = &'a Place>) {
        for place in places {
            self.held.remove(place);
            if let Entry::Occupied(mut count) = self.held_in.entry(place.dir) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
    }

    pub(crate) fn holder(&self, place: &Place) -> Option<Ino> {
        self.held.get(place).copied()
    }

    /// Who has an action under way on any name in a directory.
    pub(crate) fn holder_in(&self, dir: Ino) -> Option<Ino> {
        self.held
            .iter()
            .find(|(place, _)| place.dir == dir)
            .map(|(_, ino)| *ino)
    }

    pub(crate) fn park(&mut self, ino: Ino) {
        self.parked.insert(ino);
    }

    pub(crate) fn unpark(&mut self, ino: Ino) {
        self.parked.remove(&ino);
    }

    pub(crate) fn take_parked(&mut self) -> Vec<Ino> {
        self.parked.drain().collect()
    }

    /// All nodes that may have something to write: parked, queued (the newest first), under way.
    pub(crate) fn newest(&self) -> impl Iterator<Item = Ino> {
        let queued = self.queue.iter().rev().map(|(ino, _)| *ino);
        self.parked
            .iter()
            .copied()
            .chain(queued)
            .chain(self.visited.iter().copied())
    }

    /// Nodes that are queued or wait for another.
    pub(crate) fn left(&self) -> usize {
        self.queue.len() + self.waiting
    }

    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }
}

fn nanoseconds(time: Time) -> i128 {
    i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds)
}

/// A clock that went back counts as rest.
fn rested(since: Time, now: Time) -> bool {
    let age = nanoseconds(now) - nanoseconds(since);
    !(0..LINGER_NS).contains(&age)
}
