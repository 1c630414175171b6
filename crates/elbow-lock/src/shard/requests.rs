//! What each request does: whether it is admitted, and what becomes of it.

use std::ops::Range;

use elbow_ranges::Footprint;

use super::session::LockPlace;
use super::{Action, File, Session, Shard, limits};
use crate::memory::LOCK_BYTES;
use crate::message::{FileName, LockId, LockMode, Refusal, Reply, Request, SessionId, Token, Wait};
use crate::table::{Ask, Comparison, KnownOverlaps, Party, WaitLimit};

impl Shard {
    pub(super) fn ask(&mut self, now_ms: u64, name: FileName, ask: Ask, wait: Wait, out: &mut Vec<Action>) {
        let (session, id) = (ask.who.session, ask.id);
        let known = self.names.get(&name).copied();
        if let Err(why) = self.admit(known, &name, &ask) {
            return self.answer_refused(session, id, why, out);
        }
        let file = known.unwrap_or_else(|| self.begin_file(name));
        let table = &self.files[file].table;
        let blocker = match self.grace_left_ms(now_ms) {
            None => match table.blocker(&ask) {
                None => return self.hold(now_ms, file, ask, out),
                blocker => blocker,
            },
            // In the grace period nothing is granted, whatever is in its way: somebody may still assert it.
            Some(_) => None,
        };
        match self.wait_limit(now_ms, file, &ask, wait) {
            Ok(wait_limit) => self.enqueue(now_ms, file, ask, blocker, wait_limit, out),
            Err(why) => {
                // What is only kept for others is given back, so that a second attempt can succeed.
                self.recall(file, &ask, out);
                self.answer_refused(session, id, why, out);
                self.settle(now_ms, file, out);
            }
        }
    }

    /// Whether a request keeps within the limits.
    fn admit(&self, file: Option<usize>, name: &FileName, ask: &Ask) -> Result<(), Refusal> {
        let session = &self.sessions[&ask.who.session];
        if session.place(ask.id).is_some() {
            return Err(Refusal::Duplicate);
        }
        if self.is_draining {
            return Err(Refusal::Draining);
        }
        // Tokens may never go back, not even by an overflow.
        if self.sequence.is_exhausted() {
            return Err(limits::exhausted("grants in one epoch of the service; restart it"));
        }
        if file.is_none() && self.files.len() >= self.limits.files {
            return Err(self.limits.full_files());
        }
        // A POSIX lock may split or merge what its owner holds there.
        let pieces = file.filter(|_| ask.posix).map_or(1, |file| {
            let change = self.files[file]
                .table
                .plan(ask.who, &ask.footprint.bounds(), Some(ask.mode));
            change.locks().max(0).cast_unsigned()
        });
        // The first lock of a file brings its table along.
        let of_file = file.map_or(File::bytes(name), |_| 0);
        self.make_room(session, pieces, ask.heap_bytes(), of_file)
    }

    /// Whether a session may have so many more locks, with lists of so many bytes, and the service has room for them and for something else.
    fn make_room(&self, session: &Session, more: usize, list_bytes: usize, other_bytes: usize) -> Result<(), Refusal> {
        session.admit(&self.limits, more, list_bytes)?;
        let of_locks = more.saturating_mul(LOCK_BYTES).saturating_add(list_bytes);
        match self.memory.has(of_locks.saturating_add(other_bytes)) {
            true => Ok(()),
            false => Err(self.limits.full_memory()),
        }
    }

    /// How long a request that is blocked may wait.
    fn wait_limit(&self, now_ms: u64, file: usize, ask: &Ask, wait: Wait) -> Result<WaitLimit, Refusal> {
        let table = &self.files[file].table;
        let is_full = table.queue_len() >= self.limits.queue_per_file;
        let wait_limit = match wait {
            Wait::Try => match self.grace_left_ms(now_ms) {
                Some(wait_ms) => Err(Refusal::Grace { wait_ms }),
                None if self.limits.recall_ms > 0 && !is_full && table.is_blocked_by_recallable(ask) => Ok(
                    WaitLimit::Recall(now_ms.saturating_add(u64::from(self.limits.recall_ms))),
                ),
                None => Err(Refusal::WouldBlock),
            },
            _ if is_full => Err(self.limits.full_queue()),
            Wait::For(ms) => Ok(WaitLimit::Until(now_ms.saturating_add(u64::from(ms)))),
            Wait::Forever => Ok(WaitLimit::Forever),
        }?;
        // A POSIX lock that merges pieces takes none when it is granted, but one while it waits.
        self.make_room(&self.sessions[&ask.who.session], 1, ask.heap_bytes(), 0)?;
        Ok(wait_limit)
    }

    fn hold(&mut self, now_ms: u64, file: usize, ask: Ask, out: &mut Vec<Action>) {
        let (who, id, list_bytes) = (ask.who, ask.id, ask.heap_bytes());
        let mut events = Vec::new();
        let hold = self.files[file]
            .table
            .hold(ask, now_ms, &mut self.sequence, &mut events);
        let session = self.session(who.session);
        match hold.key {
            Some(key) => session.add(id, LockPlace { file, key }, list_bytes),
            None => session.add_pieces(hold.locks),
        }
        session.add_held(who.owner, file, hold.locks);
        self.totals.grants += 1;
        out.push(Action::Reply(who.session, Reply::Granted { id, token: hold.token }));
        self.apply(file, events, out);
        // Its owner holds more now, and may pass more of the queue.
        if self.files[file].table.queue_len() > 0 {
            self.settle(now_ms, file, out);
            out.extend(hold.passes.then_some(Action::Suspect));
        }
    }

    fn enqueue(
        &mut self,
        now_ms: u64,
        file: usize,
        ask: Ask,
        blocker: Option<usize>,
        wait_limit: WaitLimit,
        out: &mut Vec<Action>,
    ) {
        let (Party { session, owner }, id) = (ask.who, ask.id);
        let list_bytes = ask.heap_bytes();
        self.recall(file, &ask, out);
        let table = &mut self.files[file].table;
        let key = table.enqueue(ask, blocker, wait_limit, now_ms, &mut self.sequence);
        let number = table.lock(key).number;
        let place = LockPlace { file, key };
        let of_session = self.session(session);
        of_session.add(id, place, list_bytes);
        of_session.add_waiting(owner, file, 1);
        self.timers
            .extend(wait_limit.deadline().map(|at_ms| ((at_ms, number), place)));
        self.totals.waits += 1;
        out.push(Action::Queued { session, owner, id });
    }

    pub(super) fn end(&mut self, now_ms: u64, session: SessionId, id: LockId, out: &mut Vec<Action>) {
        let Some(LockPlace { file, key }) = self.session(session).place(id) else {
            return;
        };
        if !self.remove(file, key).is_held() {
            self.answer_refused(session, id, Refusal::Cancelled, out);
        }
        self.settle(now_ms, file, out);
    }

    pub(super) fn posix_unlock(&mut self, now_ms: u64, name: &FileName, ask: &Ask, out: &mut Vec<Action>) {
        let (who, id) = (ask.who, ask.id);
        let Some(&file) = self.names.get(name) else {
            return self.answer_unlocked(who.session, id, out);
        };
        let table = &mut self.files[file].table;
        let change = table.plan(who, &ask.footprint.bounds(), None);
        let more = change.locks();
        if more > 0
            && let Err(why) = self.make_room(&self.sessions[&who.session], more.cast_unsigned(), 0, 0)
        {
            return self.answer_refused(who.session, id, why, out);
        }
        let token = self.sequence.token_of_unlock();
        let table = &mut self.files[file].table;
        table.carry_out(change, ask, now_ms, token, &mut self.sequence);
        let session = self.session(who.session);
        session.add_pieces(more);
        session.add_held(who.owner, file, more);
        self.answer_unlocked(who.session, id, out);
        self.settle(now_ms, file, out);
    }

    pub(super) fn posix_release(&mut self, now_ms: u64, who: Party, name: Option<&FileName>, out: &mut Vec<Action>) {
        let files: Vec<usize> = match name {
            Some(name) => self.names.get(name).copied().into_iter().collect(),
            None => self.session(who.session).files().into_iter().collect(),
        };
        for &file in &files {
            let locks = self.files[file].table.posix_of(who);
            for key in locks {
                let lock = self.remove(file, key);
                if !lock.is_held() {
                    self.answer_refused(who.session, lock.ask.id, Refusal::Cancelled, out);
                }
            }
        }
        files.into_iter().for_each(|file| self.settle(now_ms, file, out));
    }

    /// Whose lock keeps a request back that is not to wait.
    #[must_use]
    pub fn in_the_way(&self, session: SessionId, request: &Request, known: &KnownOverlaps) -> Option<SessionId> {
        let file = match request {
            Request::Lock(lock) if lock.wait == Wait::Try => &lock.file,
            Request::Posix(lock) if lock.wait == Wait::Try => &lock.file,
            Request::Query(query) => &query.file,
            _ => return None,
        };
        let table = &self.files[*self.names.get(file)?].table;
        let blocker = table.blocker(&ask_of(session, request, known)?)?;
        Some(table.lock(blocker).ask.who.session)
    }

    /// What a list lock has to be compared with, not counting what is known, that takes more than so many steps each. Find it out outside of the
    /// shard ([`KnownOverlaps::learn`]), and let [`handle_with_overlaps`](Self::handle_with_overlaps) have it: so that no step of the shard takes long.
    #[must_use]
    pub fn long_comparisons(
        &self,
        session: SessionId,
        request: &Request,
        known: &KnownOverlaps,
        steps: u64,
    ) -> Vec<Comparison> {
        let table = request
            .list()
            .filter(|_| !known.is_enough())
            .and_then(|(_, file, footprint)| {
                let table = &self.files[*self.names.get(file)?].table;
                // Nearly every request ends here, before anything of it is copied.
                table.may_take_long(footprint, steps).then_some(table)
            });
        let ask = table.and_then(|_| ask_of(session, request, known));
        table
            .zip(ask)
            .map_or_else(Vec::new, |(table, ask)| table.long_comparisons(&ask, steps))
    }

    /// Steps of all comparisons so far in files that have locks, about: for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn compared(&self) -> u64 {
        self.files.iter().map(|(_, file)| file.table.compared()).sum()
    }

    pub(super) fn query(&mut self, now_ms: u64, name: &FileName, ask: &Ask, out: &mut Vec<Action>) {
        let (session, id) = (ask.who.session, ask.id);
        if let Some(wait_ms) = self.grace_left_ms(now_ms) {
            return self.answer_refused(session, id, Refusal::Grace { wait_ms }, out);
        }
        let blocker = self.names.get(name).and_then(|&file| self.files[file].table.query(ask));
        out.push(Action::Reply(session, Reply::Answer { id, blocker }));
    }

    pub(super) fn reassert(&mut self, now_ms: u64, name: FileName, ask: Ask, token: Token, out: &mut Vec<Action>) {
        let (session, id) = (ask.who.session, ask.id);
        let known = self.names.get(&name).copied();
        if let Err(why) = self.admit(known, &name, &ask) {
            return self.answer_refused(session, id, why, out);
        }
        // A token of an older incarnation may have been granted to somebody else since.
        let epochs = self.held_since..self.epoch;
        let is_from_before = self.grace_left_ms(now_ms).is_some() && epochs.contains(&token.epoch());
        if !is_from_before || known.is_some_and(|file| !self.files[file].table.is_free(&ask)) {
            return self.answer_refused(session, id, Refusal::NotReasserted, out);
        }
        self.totals.reasserted += 1;
        let file = known.unwrap_or_else(|| self.begin_file(name));
        self.hold(now_ms, file, ask, out);
    }
}

/// The lock that a request asks for or about.
fn ask_of(session: SessionId, request: &Request, known: &KnownOverlaps) -> Option<Ask> {
    let party = |owner| Party { session, owner };
    match request {
        Request::Lock(lock) => {
            let ask = Ask::new(party(lock.owner), lock.id, lock.mode, lock.footprint.clone());
            let (recall, known) = (lock.recall, known.clone());
            Some(Ask { recall, known, ..ask })
        }
        Request::Reassert(lock) => {
            let ask = Ask::new(party(lock.owner), lock.id, lock.mode, lock.footprint.clone());
            let (recall, known) = (lock.recall, known.clone());
            Some(Ask { recall, known, ..ask })
        }
        Request::Posix(lock) if lock.mode.is_some() => {
            Ask::posix(party(lock.owner), lock.id, lock.start..lock.end, lock.mode).ok()
        }
        Request::Query(query) => {
            Ask::posix(party(query.owner), query.id, query.start..query.end, Some(query.mode)).ok()
        }
        _ => None,
    }
}

impl Ask {
    /// A list lock, until it is said otherwise.
    pub(super) fn new(who: Party, id: LockId, mode: LockMode, footprint: Footprint) -> Self {
        Self {
            who,
            id,
            mode,
            footprint,
            posix: false,
            recall: false,
            known: KnownOverlaps::default(),
            number: 0,
        }
    }

    /// A lock as fcntl(2) has it: one range, which replaces what its owner holds there.
    pub(super) fn posix(who: Party, id: LockId, range: Range<u64>, mode: Option<LockMode>) -> Result<Self, Refusal> {
        let bad = || Refusal::Bad {
            what: format!("the range {}..{} is empty", range.start, range.end),
        };
        let footprint = Footprint::extent(range.clone()).map_err(|_| bad())?;
        Ok(Self {
            posix: true,
            ..Self::new(who, id, mode.unwrap_or(LockMode::Exclusive), footprint)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Owner, PosixRequest};
    use crate::shard::Limits;
    use crate::table::Sequence;

    /// An unlock took two tokens, and was the one request that did so when they had run out: whoever unlocked for long enough ended the service.
    #[test]
    fn what_is_unlocked_needs_no_token_when_they_have_run_out() {
        let mut shard = Shard::new(1, 0, Limits::default());
        let session = SessionId(1);
        shard.open(session);
        let ask = |shard: &mut Shard, start, end, mode| {
            let mut out = Vec::new();
            let request = PosixRequest {
                id: LockId(1),
                owner: Owner(1),
                file: FileName::new(b"/f").unwrap(),
                start,
                end,
                mode,
                wait: Wait::Try,
            };
            shard.handle(0, session, Request::Posix(request), &mut out);
            out
        };
        let granted = |out: &[Action]| matches!(out[..], [Action::Reply(_, Reply::Granted { .. })]);
        assert!(granted(&ask(&mut shard, 0, 100, Some(LockMode::Exclusive))));
        shard.sequence = Sequence::with_left(1, 3);
        for at in 0..20 {
            assert!(granted(&ask(&mut shard, 5 * at, 5 * at + 1, None)), "{at}");
        }
        let refused = ask(&mut shard, 200, 300, Some(LockMode::Exclusive));
        let why = limits::exhausted("grants in one epoch of the service; restart it");
        assert_eq!(refused, [Action::Reply(session, Reply::Refused { id: LockId(1), why })]);
    }
}
