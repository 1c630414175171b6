//! What one session holds and waits for in a shard.

use std::collections::{BTreeMap, BTreeSet};

use super::limits::Limits;
use crate::memory::{LOCK_BYTES, Memory, Room};
use crate::message::{LockId, Owner, Refusal};

/// Where a lock is: in which file, by which key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LockPlace {
    pub(super) file: usize,
    pub(super) key: usize,
}

/// Invariant: `count` is the number of locks by name plus the number of POSIX pieces.
#[derive(Debug)]
pub(super) struct Session {
    /// False when its connection is gone and only its locks are left.
    pub(super) is_connected: bool,
    /// Locks with a name: lists held, lists and POSIX locks waited for.
    locks: BTreeMap<LockId, LockPlace>,
    /// How many locks and pieces an owner holds of a file.
    held: BTreeMap<(Owner, usize), usize>,
    /// How many requests of an owner wait for a file.
    waiting: BTreeMap<(Owner, usize), usize>,
    count: usize,
    /// Memory of the lists and bitmaps of its locks.
    list_bytes: usize,
    /// Memory of its locks with their lists.
    room: Room,
}

impl Session {
    pub(super) fn new(memory: &Memory) -> Self {
        Self {
            is_connected: true,
            locks: BTreeMap::new(),
            held: BTreeMap::new(),
            waiting: BTreeMap::new(),
            count: 0,
            list_bytes: 0,
            room: memory.room(),
        }
    }

    /// What its locks take of the service's memory.
    pub(super) fn room_bytes(&self) -> usize {
        self.room.bytes()
    }

    fn measure(&mut self) {
        self.room.set(self.count * LOCK_BYTES + self.list_bytes);
    }

    pub(super) fn place(&self, id: LockId) -> Option<LockPlace> {
        self.locks.get(&id).copied()
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The files that an owner holds anything of.
    pub(super) fn held_by(&self, owner: Owner) -> impl Iterator<Item = usize> {
        let held = self.held.range((owner, 0)..=(owner, usize::MAX));
        held.map(|(&(_, file), _)| file)
    }

    /// The files that an owner waits for anything of.
    pub(super) fn waited_for_by(&self, owner: Owner) -> impl Iterator<Item = usize> {
        let waiting = self.waiting.range((owner, 0)..=(owner, usize::MAX));
        waiting.map(|(&(_, file), _)| file)
    }

    pub(super) fn holds_nothing(&self) -> bool {
        self.held.is_empty()
    }

    /// How many locks and pieces it holds, but for those of one file.
    pub(super) fn held_except(&self, except: Option<usize>) -> usize {
        let others = self.held.iter().filter(|((_, file), _)| Some(*file) != except);
        others.map(|(_, count)| count).sum()
    }

    /// The files that it holds or waits for anything of.
    pub(super) fn files(&self) -> BTreeSet<usize> {
        let of_locks = self.locks.values().map(|place| place.file);
        of_locks.chain(self.held.keys().map(|&(_, file)| file)).collect()
    }

    /// Whether it may have so many more locks.
    pub(super) fn admit(&self, limits: &Limits, more: usize, list_bytes: usize) -> Result<(), Refusal> {
        if self.count.saturating_add(more) > limits.locks_per_session {
            return Err(limits.full_session());
        }
        if self.list_bytes.saturating_add(list_bytes) > limits.list_bytes_per_session {
            return Err(limits.full_lists());
        }
        Ok(())
    }

    pub(super) fn add(&mut self, id: LockId, place: LockPlace, list_bytes: usize) {
        let before = self.locks.insert(id, place);
        assert!(before.is_none(), "lock {} is there already", id.0);
        self.count += 1;
        self.list_bytes += list_bytes;
        self.measure();
    }

    pub(super) fn remove(&mut self, id: LockId, list_bytes: usize) {
        let before = self.locks.remove(&id);
        assert!(before.is_some(), "lock {} is not there", id.0);
        self.count -= 1;
        self.list_bytes -= list_bytes;
        self.measure();
    }

    /// So many more POSIX pieces, or fewer.
    pub(super) fn add_pieces(&mut self, more: isize) {
        self.count = add(self.count, more);
        self.measure();
    }

    /// So many more locks or pieces that an owner holds of a file, or fewer.
    pub(super) fn add_held(&mut self, owner: Owner, file: usize, more: isize) {
        change(&mut self.held, (owner, file), more);
    }

    /// So many more requests of an owner that wait for a file, or fewer.
    pub(super) fn add_waiting(&mut self, owner: Owner, file: usize, more: isize) {
        change(&mut self.waiting, (owner, file), more);
    }
}

/// Changes a count; of nothing none is kept.
fn change(counts: &mut BTreeMap<(Owner, usize), usize>, key: (Owner, usize), more: isize) {
    let count = counts.entry(key).or_default();
    *count = add(*count, more);
    if *count == 0 {
        counts.remove(&key);
    }
}

fn add(count: usize, more: isize) -> usize {
    let sum = count.checked_add_signed(more);
    assert!(sum.is_some(), "{count} locks and {more} more");
    sum.unwrap_or(0)
}
