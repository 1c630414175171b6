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

/// Creations under way in one directory. The kernel lets one at a time into a directory, so one is there, another
/// is ready to follow and a third on its way; more would only keep workers from other directories.
const ARRIVALS_PER_DIRECTORY: usize = 3;

/// A directory that objects are being created in.
#[derive(Debug, Default)]
struct Door {
    entering: usize,
    waiting: VecDeque<Ino>,
}

/// Nodes that are waiting, parked or under way.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    queue: VecDeque<(Ino, Time)>,
    doors: HashMap<Ino, Door>,
    /// Nodes that were let in at the door of a directory, and of which.
    entering: HashMap<Ino, Ino>,
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
    held: HashMap<Place, Ino>,
    /// Nodes under way.
    pub(crate) visited: HashSet<Ino>,
    /// Everything goes to the storage now, open files included.
    pub(crate) flush: bool,
    /// All content is drained; directories get their final attributes.
    pub(crate) finishing: bool,
    /// Only objects that the storage has get their names: that needs no room.
    pub(crate) only_names: bool,
    /// Nothing more goes to the storage: the job cannot commit any more.
    pub(crate) stopped: bool,
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

    /// Lets a node into a directory to be created there; `false`: it waits at the door until its turn comes.
    pub(crate) fn enter(&mut self, ino: Ino, dir: Ino) -> bool {
        if self.entering.contains_key(&ino) {
            return true;
        }
        let door = self.doors.entry(dir).or_default();
        if door.entering >= ARRIVALS_PER_DIRECTORY {
            door.waiting.push_back(ino);
            self.waiting += 1;
            return false;
        }
        door.entering += 1;
        self.entering.insert(ino, dir);
        true
    }

    /// A node, if it was let in, is there (or will not come): the next one has its turn.
    pub(crate) fn leave_door(&mut self, ino: Ino) {
        let Some(dir) = self.entering.remove(&ino) else { return };
        let Entry::Occupied(mut door) = self.doors.entry(dir) else {
            return;
        };
        match door.get_mut().waiting.pop_front() {
            Some(next) => {
                self.waiting -= 1;
                self.entering.insert(next, dir);
                self.push_next(next);
            }
            None => {
                door.get_mut().entering -= 1;
                if door.get().entering == 0 {
                    door.remove();
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
    pub(crate) fn hold<'a>(&mut self, ino: Ino, places: impl Iterator<Item = &'a Place>) {
        for place in places {
            let before = self.held.insert(place.clone(), ino);
            assert!(before.is_none(), "two actions on one name: {place:?}");
        }
    }

    pub(crate) fn let_go<'a>(&mut self, places: impl Iterator<Item = &'a Place>) {
        for place in places {
            self.held.remove(place);
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
        let at_doors = self.doors.values().flat_map(|door| door.waiting.iter().rev().copied());
        self.parked
            .iter()
            .copied()
            .chain(queued)
            .chain(at_doors)
            .chain(self.awaited.keys().copied())
            .chain(self.visited.iter().copied())
    }

    /// Nothing is queued, waits or is under way: no memory comes free by itself.
    pub(crate) fn is_idle(&self) -> bool {
        self.left() == 0 && self.running == 0 && self.parked.is_empty()
    }

    /// Nodes that are queued, wait for another or at the door of a directory.
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

    fn entered(graph: &mut Graph, inos: impl Iterator<Item = u64>) -> Vec<bool> {
        inos.map(|ino| graph.enter(Ino(ino), DIR)).collect()
    }

    #[test]
    fn as_many_as_the_door_takes_enter_and_the_others_follow_in_order() {
        let mut graph = Graph::default();
        assert_eq!(entered(&mut graph, 10..15), [true, true, true, false, false]);
        assert_eq!(graph.left(), 2, "those at the door are left to do");
        graph.leave_door(Ino(11));
        assert_eq!(graph.take(0), Some(Ino(13)), "the first that waited has the free place");
        assert!(graph.enter(Ino(13), DIR), "and keeps it until it is there");
        graph.leave_door(Ino(11));
        assert_eq!(graph.queued(), 0, "who has left cannot leave again");
    }

    #[test]
    fn whoever_was_let_in_and_goes_elsewhere_keeps_nobody_waiting() {
        let mut graph = Graph::default();
        entered(&mut graph, 10..16);
        for ino in 10..16 {
            graph.leave_door(Ino(ino));
        }
        assert!(graph.doors.is_empty() && graph.entering.is_empty());
        assert_eq!(graph.queued(), 3, "all that waited have their turn");
    }
}
