//! The queue of objects with work left, and who waits for whom.
//!
//! A node of the operation graph is an object whose desired state differs from what is placed on the
//! storage; its edges are the real dependencies that [`crate::plan`] finds when the node comes up. Because
//! the next storage call is derived from the difference, operations merge and cancel by themselves.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};

use elbow_file::Time;

use crate::api::Ino;
use crate::model::EntryKey;
use crate::tally::Tally;
use crate::watches::Watches;

/// An object rests this long after its last change before the storage hears of it, so that what follows at
/// once (more writes, chmod, utimens, a rename, its removal) is merged. Nanoseconds.
const LINGER_NS: i128 = 30_000_000;

/// Creations under way in one directory. The kernel lets one at a time into a directory, so one is there, another
/// is ready to follow and a third on its way; more would only keep workers from other directories.
const ARRIVALS_PER_DIRECTORY: usize = 3;

/// The slots of a directory that objects are being created in: those taken, and who waits for one.
#[derive(Debug, Default)]
struct CreateSlots {
    taken: usize,
    waiting: VecDeque<Ino>,
}

/// Nodes that are waiting, parked or under way.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    queue: VecDeque<(Ino, Time)>,
    create_slots: HashMap<Ino, CreateSlots>,
    /// Creations go far away, past the kernel here: who is on the way stands in nobody's way.
    pub(crate) is_far: bool,
    /// Nodes that have a slot to be created in a directory, and in which.
    creating: HashMap<Ino, Ino>,
    waiters: HashMap<Ino, Vec<Ino>>,
    /// The same the other way round: what each of these waits for.
    awaited: HashMap<Ino, Ino>,
    waiting: usize,
    /// Nodes whose work is not idle.
    pub(crate) working: u64,
    /// Files that stay open and have little to write: they come up again when they are closed.
    parked: HashSet<Ino>,
    pub(crate) running: usize,
    /// Names on the storage that an action is under way on, and on whose behalf.
    held: HashMap<EntryKey, Ino>,
    /// Names of directories that the actions under way go by, because nobody has these open; on whose behalf.
    walked: HashMap<Ino, Vec<EntryKey>>,
    /// The same of those who only read.
    pub(crate) watches: Watches,
    /// Nodes under way.
    pub(crate) visited: HashSet<Ino>,
    /// Everything goes to the storage now, open files included.
    pub(crate) flush: bool,
    /// All content is drained; directories get their final attributes.
    pub(crate) finishing: bool,
    /// Only objects that the storage has get their names: that needs no room.
    pub(crate) only_names: bool,
    /// Those that do not get them, for what they wait for does not come: nothing waits for them.
    pub(crate) nameless: HashSet<Ino>,
    /// Nothing more goes to the storage: the job cannot commit any more.
    pub(crate) stopped: bool,
    /// Since when nodes wait, if somebody wants to know.
    pub(crate) tally: Option<Tally>,
}

impl Graph {
    pub(crate) fn push(&mut self, ino: Ino, now: Time) {
        self.queue.push_back((ino, now));
    }

    /// A node that need not rest is the next one.
    pub(crate) fn push_next(&mut self, ino: Ino) {
        self.queue.push_front((ino, Time::default()));
    }

    /// Has the first node of the queue rested long enough?
    pub(crate) fn is_ready(&self, now: Time) -> bool {
        let first = self.queue.front().filter(|_| !self.stopped);
        first.is_some_and(|(_, since)| self.has_rested(*since, now))
    }

    /// Takes the node at a position out of the queue.
    pub(crate) fn take(&mut self, position: usize) -> Option<Ino> {
        self.queue.remove(position).map(|(ino, _)| ino)
    }

    /// Takes a node out of the queue.
    #[cfg(test)]
    pub(crate) fn take_ino(&mut self, ino: Ino) -> bool {
        let position = self.queue.iter().position(|(queued, _)| *queued == ino);
        position.is_some_and(|position| self.queue.remove(position).is_some())
    }

    /// Gives a node a slot to be created in a directory; `false`: it waits until one is free.
    pub(crate) fn take_slot(&mut self, ino: Ino, dir: Ino) -> bool {
        if self.creating.contains_key(&ino) {
            return true;
        }
        let slots = self.create_slots.entry(dir).or_default();
        if slots.taken >= ARRIVALS_PER_DIRECTORY && !self.is_far {
            slots.waiting.push_back(ino);
            self.waiting += 1;
            return false;
        }
        slots.taken += 1;
        self.creating.insert(ino, dir);
        true
    }

    /// A node, if it has a slot, is created (or will not be): the next one gets it.
    pub(crate) fn free_slot(&mut self, ino: Ino) {
        let Some(dir) = self.creating.remove(&ino) else { return };
        let Entry::Occupied(mut slots) = self.create_slots.entry(dir) else {
            return;
        };
        match slots.get_mut().waiting.pop_front() {
            Some(next) => {
                self.waiting -= 1;
                self.creating.insert(next, dir);
                self.push_next(next);
            }
            None => {
                slots.get_mut().taken -= 1;
                if slots.get().taken == 0 {
                    slots.remove();
                }
            }
        }
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
        self.awaited.insert(ino, on);
        self.waiting += 1;
    }

    /// A node waits for no other any more; `false`: it did not.
    pub(crate) fn stop_waiting(&mut self, ino: Ino) -> bool {
        let Some(on) = self.awaited.remove(&ino) else {
            return false;
        };
        if let Entry::Occupied(mut waiters) = self.waiters.entry(on) {
            waiters.get_mut().retain(|waiter| *waiter != ino);
            if waiters.get().is_empty() {
                waiters.remove();
            }
        }
        self.waiting -= 1;
        true
    }

    /// Nodes that waited for this one.
    pub(crate) fn take_waiters(&mut self, on: Ino) -> Vec<Ino> {
        let waiters = self.waiters.remove(&on).unwrap_or_default();
        for waiter in &waiters {
            self.awaited.remove(waiter);
        }
        self.waiting -= waiters.len();
        waiters
    }

    /// Holds names for an action on behalf of a node.
    pub(crate) fn hold<'a>(&mut self, ino: Ino, keys: impl Iterator<Item = &'a EntryKey>) {
        for key in keys {
            let before = self.held.insert(key.clone(), ino);
            assert!(before.is_none(), "two actions on one name: {key:?}");
        }
    }

    /// The way of an action goes by these names of directories, as long as it is under way.
    pub(crate) fn walk(&mut self, ino: Ino, by: Vec<EntryKey>) {
        if !by.is_empty() {
            self.walked.insert(ino, by);
        }
    }

    pub(crate) fn arrive(&mut self, ino: Ino) {
        self.walked.remove(&ino);
    }

    /// Who else has an action under way that goes by this name of a directory.
    pub(crate) fn walker(&self, key: &EntryKey, but: Ino) -> Option<Ino> {
        let mut walkers = self.walked.iter().filter(|(ino, by)| **ino != but && by.contains(key));
        walkers.next().map(|(ino, _)| *ino)
    }

    pub(crate) fn let_go<'a>(&mut self, keys: impl Iterator<Item = &'a EntryKey>) {
        for key in keys {
            self.held.remove(key);
        }
    }

    pub(crate) fn holder(&self, key: &EntryKey) -> Option<Ino> {
        self.held.get(key).copied()
    }

    /// Who has an action under way on any name in a directory.
    pub(crate) fn holder_in(&self, dir: Ino) -> Option<Ino> {
        self.held.iter().find(|(key, _)| key.dir == dir).map(|(_, ino)| *ino)
    }

    pub(crate) fn park(&mut self, ino: Ino) {
        self.parked.insert(ino);
    }

    pub(crate) fn unpark(&mut self, ino: Ino) {
        self.parked.remove(&ino);
    }

    /// Files that rest until they are closed.
    pub(crate) fn parked(&self) -> usize {
        self.parked.len()
    }

    pub(crate) fn is_parked(&self, ino: Ino) -> bool {
        self.parked.contains(&ino)
    }

    pub(crate) fn take_parked(&mut self) -> Vec<Ino> {
        self.parked.drain().collect()
    }

    /// All nodes that may have something to write: parked, queued (the newest first), waiting, under way.
    pub(crate) fn newest(&self) -> impl Iterator<Item = Ino> {
        let queued = self.queue.iter().rev().map(|(ino, _)| *ino);
        let for_slots = self
            .create_slots
            .values()
            .flat_map(|slots| slots.waiting.iter().rev().copied());
        self.parked
            .iter()
            .copied()
            .chain(queued)
            .chain(for_slots)
            .chain(self.awaited.keys().copied())
            .chain(self.visited.iter().copied())
    }

    /// Nothing is queued, waits or is under way: no memory comes free by itself.
    pub(crate) fn is_idle(&self) -> bool {
        self.left() == 0 && self.running == 0 && self.parked.is_empty()
    }

    /// Nodes that are queued, wait for another or for a slot to be created in.
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

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Ino = Ino(1);

    fn with_slots(graph: &mut Graph, inos: impl Iterator<Item = u64>) -> Vec<bool> {
        inos.map(|ino| graph.take_slot(Ino(ino), DIR)).collect()
    }

    #[test]
    fn as_many_as_the_limit_allows_enter_and_the_others_follow_in_order() {
        let mut graph = Graph::default();
        assert_eq!(with_slots(&mut graph, 10..15), [true, true, true, false, false]);
        assert_eq!(graph.left(), 2, "those that wait for a slot are left to do");
        graph.free_slot(Ino(11));
        assert_eq!(graph.take(0), Some(Ino(13)), "the first that waited has the free place");
        assert!(graph.take_slot(Ino(13), DIR), "and keeps it until it is there");
        graph.free_slot(Ino(11));
        assert_eq!(graph.queued(), 0, "who has left cannot leave again");
    }

    #[test]
    fn whoever_was_let_in_and_goes_elsewhere_keeps_nobody_waiting() {
        let mut graph = Graph::default();
        with_slots(&mut graph, 10..16);
        for ino in 10..16 {
            graph.free_slot(Ino(ino));
        }
        assert!(graph.create_slots.is_empty() && graph.creating.is_empty());
        assert_eq!(graph.queued(), 3, "all that waited have their turn");
    }
}
