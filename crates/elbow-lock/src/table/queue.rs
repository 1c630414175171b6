//! Who is blocked by whom, and who is granted when that changes.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::ops::Range;

use super::{Ask, Event, Grant, Lock, LockState, Party, Sequence, Table, WaitLimit};
use crate::message::{SessionId, Token};

impl Table {
    /// A lock that blocks a request made now: the youngest such request in the queue, or else one that is held.
    pub(crate) fn blocker(&self, ask: &Ask) -> Option<usize> {
        self.blocker_before(ask, u64::MAX)
    }

    fn blocker_before(&self, ask: &Ask, number: u64) -> Option<usize> {
        self.youngest_blocking(ask, number)
            .or_else(|| self.conflicting_held(ask).next())
    }

    /// Whether only locks held are in the way, and all of them would be given back if they are idle.
    pub(crate) fn is_blocked_by_recallable(&self, ask: &Ask) -> bool {
        self.youngest_blocking(ask, u64::MAX).is_none()
            && self.conflicting_held(ask).all(|key| self.locks[key].ask.recall)
    }

    /// Everybody who holds what blocks a waiting request, once each.
    pub(crate) fn holders(&self, lock: &Lock) -> BTreeSet<Party> {
        let held = self.conflicting_held(&lock.ask);
        held.map(|key| self.locks[key].ask.who).collect()
    }

    /// The requests that block a waiting one by standing before it; and those that would, but wait for what its owner holds.
    pub(crate) fn queued_before(&self, lock: &Lock) -> (Vec<&Lock>, Vec<&Lock>) {
        let behind = OnceCell::new();
        let queued = self.conflicting_queued(&lock.ask, lock.number);
        let (overtaken, blocking): (Vec<usize>, _) =
            queued.partition(|&key| self.is_behind(key, lock.ask.who, &behind));
        let locks = |keys: Vec<usize>| keys.into_iter().map(|key| &self.locks[key]).collect();
        (locks(blocking), locks(overtaken))
    }

    /// Whether a waiting request conflicts with anything that `who` holds, or has asked for before it.
    pub(crate) fn is_waited_for(&self, who: Party) -> bool {
        let is_in_the_way = |lock: &Lock| {
            let first = if lock.is_held() { 0 } else { lock.number + 1 };
            let mut queued = self.waiting.overlapping(lock.ask.footprint.bounds());
            queued.any(|(asked, key)| asked >= first && self.conflict(&lock.ask, &self.locks[key].ask))
        };
        !self.queue.is_empty() && self.of_owner(who).any(|(_, lock)| is_in_the_way(lock))
    }

    /// Tells the holders that want to know that `ask` conflicts with their locks.
    pub(crate) fn recall(&mut self, ask: &Ask, out: &mut Vec<Event>) {
        // Most holders want to hear nothing, and the look for them is as dear as that for a blocker.
        if self.unnotified == 0 {
            return;
        }
        let holders: Vec<usize> = self.conflicting_held(ask).collect();
        holders.into_iter().for_each(|key| self.tell(key, out));
    }

    /// Has all waiting requests looked at again: the end of the grace period.
    pub(crate) fn recheck_all(&mut self) {
        self.recheck = self.queue.clone();
    }

    /// Grants what is not blocked any more, in the order of asking.
    pub(crate) fn settle(&mut self, now_ms: u64, sequence: &mut Sequence, out: &mut Vec<Event>) {
        while let Some((number, key)) = self.recheck.pop_first() {
            match self.blocker_before(&self.locks[key].ask, number) {
                // One blocker is enough to wait for: when it goes, the next is looked for.
                Some(blocker) => self.watch(key, blocker),
                None => self.grant(key, now_ms, sequence, out),
            }
        }
    }

    /// Whether anything that is held is in the way of a waiting request.
    pub(crate) fn meets_held(&self, lock: &Lock) -> bool {
        self.conflicting_held(&lock.ask).next().is_some()
    }

    /// Grants a waiting request before its turn.
    ///
    /// # Panics
    /// When something that is held is in its way.
    pub(crate) fn pass(&mut self, key: usize, now_ms: u64, sequence: &mut Sequence, out: &mut Vec<Event>) {
        let lock = &self.locks[key];
        assert!(!self.meets_held(lock), "{lock:?} cannot pass what is held");
        // It is looked at now, and would be gone when its turn came.
        self.recheck.remove(&lock.number);
        self.grant(key, now_ms, sequence, out);
    }

    /// Waiting requests of a session that are in the queue now.
    pub(crate) fn waiting_of_session(&self, session: SessionId) -> Vec<usize> {
        let mut keys = self.of_session(session);
        keys.retain(|&key| !self.locks[key].is_held());
        keys
    }

    pub(super) fn recheck_watchers(&mut self, key: usize) {
        while let Some(&(watched, number, waiter)) = self.watched.range((key, 0, 0)..).next()
            && watched == key
        {
            self.watched.remove(&(key, number, waiter));
            if let LockState::Waiting { watches, .. } = &mut self.locks[waiter].state {
                *watches = None;
            }
            self.recheck.insert(number, waiter);
        }
    }

    fn watch(&mut self, key: usize, blocker: usize) {
        let number = self.locks[key].number;
        if let LockState::Waiting { watches, .. } = &mut self.locks[key].state {
            if let Some(before) = watches.replace(blocker) {
                self.watched.remove(&(before, number, key));
            }
            self.watched.insert((blocker, number, key));
        }
    }

    fn grant(&mut self, key: usize, now_ms: u64, sequence: &mut Sequence, out: &mut Vec<Event>) {
        let token = sequence.tokens(self.locks[key].ask.tokens());
        let Lock {
            ask,
            since_ms,
            state,
            number,
            ..
        } = &self.locks[key];
        let (who, id, number, posix) = (ask.who, ask.id, *number, ask.posix);
        let wait_limit = match state {
            LockState::Waiting { wait_limit, .. } => *wait_limit,
            // Its patience went when it was granted.
            LockState::Held { .. } => WaitLimit::Forever,
        };
        let waited_ms = now_ms.saturating_sub(*since_ms);
        // Before it leaves the queue, or it could not be told whom it passes.
        let passes = self.passes(ask, number);
        let locks = if posix {
            let Lock { ask, bounds, .. } = self.end(key);
            let change = self.plan(who, &bounds, Some(ask.mode));
            self.carry_out(change, &ask, now_ms, token, sequence)
        } else {
            self.turn_to_held(key, now_ms, token);
            1
        };
        out.push(Event::Granted(Grant {
            who,
            id,
            number,
            token,
            posix,
            locks,
            passes,
            waited_ms,
            wait_limit,
        }));
        if !posix {
            self.notify_if_waited_for(key, out);
        }
        self.recheck_owner(who);
    }

    fn turn_to_held(&mut self, key: usize, now_ms: u64, token: Token) {
        let lock = &mut self.locks[key];
        let state = std::mem::replace(&mut lock.state, LockState::Held { token, notified: false });
        lock.since_ms = now_ms;
        if let LockState::Waiting {
            watches: Some(blocker), ..
        } = state
        {
            self.watched.remove(&(blocker, lock.number, key));
        }
        self.waiting.remove(&lock.bounds, lock.number);
        self.queue.remove(&lock.number);
        self.unnotified += usize::from(lock.ask.recall);
        self.held.insert(&lock.bounds, lock.number, key);
    }

    /// An owner that holds more than before may pass more of the queue: see the module's header.
    pub(super) fn recheck_owner(&mut self, who: Party) {
        // Nearly every grant ends here.
        if self.queue.is_empty() {
            return;
        }
        let waiting: Vec<(u64, usize)> = self
            .of_owner(who)
            .filter(|(_, lock)| !lock.is_held())
            .map(|(key, lock)| (lock.number, key))
            .collect();
        self.recheck.extend(waiting);
    }

    fn tell(&mut self, key: usize, out: &mut Vec<Event>) {
        let Lock { ask, state, .. } = &mut self.locks[key];
        if let LockState::Held { notified, .. } = state
            && ask.recall
            && !std::mem::replace(notified, true)
        {
            self.unnotified -= 1;
            out.push(Event::Recall {
                session: ask.who.session,
                id: ask.id,
            });
        }
    }

    pub(super) fn notify_if_waited_for(&mut self, key: usize, out: &mut Vec<Event>) {
        let ask = &self.locks[key].ask;
        if ask.recall && self.conflicting_queued(ask, u64::MAX).next().is_some() {
            self.tell(key, out);
        }
    }

    /// Requests in the queue, asked for before `number`, that conflict with `ask`.
    fn conflicting_queued(&self, ask: &Ask, number: u64) -> impl Iterator<Item = usize> {
        let queued = self.waiting.overlapping(ask.footprint.bounds());
        queued
            .filter(move |&(asked, key)| asked < number && self.conflict(ask, &self.locks[key].ask))
            .map(|(_, key)| key)
    }

    fn youngest_blocking(&self, ask: &Ask, number: u64) -> Option<usize> {
        let (_, &last) = self.queue.range(..number).next_back()?;
        let behind = OnceCell::new();
        let is_blocking =
            |key: usize| self.conflict(ask, &self.locks[key].ask) && !self.is_behind(key, ask.who, &behind);
        // Most often all want the same bytes.
        if touch(&self.locks[last].bounds, &ask.footprint.bounds()) && is_blocking(last) {
            return Some(last);
        }
        let mut youngest: Option<(u64, usize)> = None;
        for (asked, key) in self.waiting.overlapping(ask.footprint.bounds()) {
            if asked < number && youngest.is_none_or(|(known, _)| known < asked) && is_blocking(key) {
                youngest = Some((asked, key));
            }
        }
        youngest.map(|(_, key)| key)
    }

    /// Whether a request that is granted overtakes one that was asked for before `number`, which only who holds something may.
    pub(super) fn passes(&self, ask: &Ask, number: u64) -> bool {
        // The cheapest question first: it is asked at every grant.
        let is_first = self.queue.range(..number).next().is_none();
        !is_first
            && self.of_owner(ask.who).any(|(_, lock)| lock.is_held())
            && self.conflicting_queued(ask, number).next().is_some()
    }

    /// Whether a waiting request waits, directly or through others in this queue, for a lock that `who` holds.
    fn is_behind(&self, key: usize, who: Party, behind: &OnceCell<BTreeSet<usize>>) -> bool {
        behind.get_or_init(|| self.behind(who)).contains(&key)
    }

    fn behind(&self, who: Party) -> BTreeSet<usize> {
        let mut behind = BTreeSet::new();
        let holds: Vec<&Lock> = self
            .of_owner(who)
            .map(|(_, lock)| lock)
            .filter(|lock| lock.is_held())
            .collect();
        // Who holds nothing cannot be waited for.
        if holds.is_empty() {
            return behind;
        }
        let mut in_order: Vec<&Lock> = Vec::new();
        for &key in self.queue.values() {
            let lock = &self.locks[key];
            let waits_for = |other: &&&Lock| touch(&lock.bounds, &other.bounds) && self.conflict(&lock.ask, &other.ask);
            if holds.iter().any(|hold| waits_for(&hold)) || in_order.iter().rev().any(|other| waits_for(&other)) {
                behind.insert(key);
                in_order.push(lock);
            }
        }
        behind
    }
}

fn touch(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}
