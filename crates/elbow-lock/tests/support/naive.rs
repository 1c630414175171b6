//! The lock table by its definition: lists of byte ranges, every pair compared, everything looked at again after every
//! event. Slow, short, and without a thought for how the real one does it.
//!
//! It is also where bugs are planted ([`Flaw`]), to show that the tests that the real one passes would find them.

#![allow(clippy::single_range_in_vec_init, reason = "a list of one range")]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use elbow_lock::{
    Action, Blocker, Deadlock, FileName, LockId, LockMode, LockRequest, Owner, Party, PosixRequest, QueryRequest,
    ReassertRequest, Refusal, Reply, Request, SessionId, Token, Wait, WaitFor,
};

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    /// A request that fits is granted, whoever waits.
    IgnoresQueue,
    /// Nobody is looked at again when a waiting request is taken back.
    ForgetsToWakeOnCancel,
    /// A session's waiting requests are granted to nobody's benefit after its connection was lost.
    GrantsToTheDisconnected,
    /// Two shared locks that overlap an exclusive one are compared by their first ranges only.
    ComparesFirstRanges,
    /// Tokens begin at 0 whenever the service starts.
    TokensStartAgain,
    /// New locks are granted in the grace period.
    NoGrace,
    /// Locks of any incarnation before are held again.
    RevivesAnyEpoch,
    /// Nobody is refused in a circle.
    NoDeadlockDetection,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Want {
    pub(crate) file: FileName,
    pub(crate) who: Party,
    pub(crate) id: LockId,
    pub(crate) mode: LockMode,
    pub(crate) bytes: Vec<Range<u64>>,
    pub(crate) posix: bool,
    pub(crate) recall: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) want: Want,
    told: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    pub(crate) want: Want,
    number: u64,
    since_ms: u64,
    until_ms: Option<u64>,
    is_try: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Naive {
    flaw: Flaw,
    epoch: u32,
    held_since: u32,
    grace_until_ms: u64,
    recall_ms: u64,
    /// Whether each is connected.
    sessions: BTreeMap<SessionId, bool>,
    pub(crate) held: Vec<Hold>,
    /// In the order of asking.
    pub(crate) queue: Vec<Waiter>,
    number: u64,
    token: u64,
}

/// Whether two requests may not be held together.
pub(crate) fn conflict(a: &Want, b: &Want) -> bool {
    let overlap = |a: &Range<u64>, b: &Range<u64>| a.start < b.end && b.start < a.end;
    a.file == b.file
        && (a.mode == LockMode::Exclusive || b.mode == LockMode::Exclusive)
        && !(a.posix && b.posix && a.who == b.who)
        && a.bytes.iter().any(|a| b.bytes.iter().any(|b| overlap(a, b)))
}

/// Of `queue`, those that wait for what `who` holds, directly or behind others: by number in the queue.
pub(crate) fn behind<'a>(
    who: Party,
    held: &(impl Iterator<Item = &'a Want> + Clone),
    queue: &[&Want],
) -> BTreeSet<usize> {
    let mut behind = BTreeSet::new();
    for (place, want) in queue.iter().enumerate() {
        let waits_for_hold = held.clone().any(|hold| hold.who == who && conflict(hold, want));
        if waits_for_hold || behind.iter().any(|&before: &usize| conflict(queue[before], want)) {
            behind.insert(place);
        }
    }
    behind
}

/// The pieces of one owner in one file after a POSIX request: subtract, add, merge.
pub(crate) fn posix_apply(held: &mut Vec<Want>, want: &Want, mode: Option<LockMode>) {
    let Range { start, end } = want.bytes[0];
    let is_mine = |hold: &Want| hold.posix && hold.who == want.who && hold.file == want.file;
    let mut pieces: Vec<(u64, u64, LockMode)> = mode.map(|mode| (start, end, mode)).into_iter().collect();
    for hold in held.extract_if(.., |hold| is_mine(hold)) {
        let Range { start: from, end: to } = hold.bytes[0];
        pieces.extend([(from, to.min(start), hold.mode), (from.max(end), to, hold.mode)]);
    }
    pieces.retain(|&(from, to, _)| from < to);
    pieces.sort_by_key(|&(from, ..)| from);
    pieces.dedup_by(|next, piece| {
        let is_same = piece.1 == next.0 && piece.2 == next.2;
        piece.1 = if is_same { next.1 } else { piece.1 };
        is_same
    });
    held.extend(pieces.into_iter().map(|(from, to, mode)| Want {
        mode,
        bytes: vec![from..to],
        ..want.clone()
    }));
}

/// What a request wants to hold, if it is such a request.
pub(crate) fn wanted(session: SessionId, request: &Request) -> Option<Want> {
    let want = |id: &LockId, owner: &Owner, file: &FileName, mode: &LockMode, bytes, posix, recall| {
        let who = Party { session, owner: *owner };
        Some(Want {
            file: file.clone(),
            who,
            id: *id,
            mode: *mode,
            bytes,
            posix,
            recall,
        })
    };
    match request {
        Request::Lock(LockRequest {
            id,
            owner,
            file,
            mode,
            footprint,
            recall,
            ..
        })
        | Request::Reassert(ReassertRequest {
            id,
            owner,
            file,
            mode,
            footprint,
            recall,
            ..
        }) => want(id, owner, file, mode, footprint.iter().collect(), false, *recall),
        Request::Posix(PosixRequest {
            id,
            owner,
            file,
            start,
            end,
            mode,
            ..
        }) => want(
            id,
            owner,
            file,
            &mode.unwrap_or(LockMode::Exclusive),
            vec![*start..*end],
            true,
            false,
        ),
        Request::Query(QueryRequest {
            id,
            owner,
            file,
            mode,
            start,
            end,
        }) => want(id, owner, file, mode, vec![*start..*end], true, false),
        _ => None,
    }
}

impl Naive {
    pub(crate) fn held_since(self, epoch: u32) -> Self {
        Self {
            held_since: epoch,
            ..self
        }
    }

    pub(crate) fn new(flaw: Flaw, epoch: u32, grace_until_ms: u64, recall_ms: u64) -> Self {
        let token = if flaw == Flaw::TokensStartAgain {
            0
        } else {
            Token::first_of(epoch).0
        };
        Self {
            flaw,
            epoch,
            held_since: epoch.saturating_sub(1),
            grace_until_ms,
            recall_ms,
            sessions: BTreeMap::new(),
            held: Vec::new(),
            queue: Vec::new(),
            number: 0,
            token,
        }
    }

    pub(crate) fn open(&mut self, session: SessionId) {
        self.sessions.insert(session, true);
    }

    pub(crate) fn is_connected(&self, session: SessionId) -> bool {
        self.sessions.get(&session) == Some(&true)
    }

    pub(crate) fn handle(&mut self, now_ms: u64, session: SessionId, request: &Request, out: &mut Vec<Action>) {
        if !self.is_connected(session) {
            return out.push(Action::Reply(session, Reply::Lost { why: String::new() }));
        }
        let want = wanted(session, request);
        match (request, want) {
            (
                Request::Lock(LockRequest { wait, .. })
                | Request::Posix(PosixRequest {
                    wait, mode: Some(_), ..
                }),
                Some(want),
            ) => {
                self.ask(now_ms, want, *wait, out);
            }
            (Request::Posix(_), Some(want)) => {
                self.change_posix(&want, None);
                self.grant_reply(session, want.id, out);
                self.settle(now_ms, out);
            }
            (Request::Reassert(ReassertRequest { token, .. }), Some(want)) => self.reassert(want, *token, out),
            (Request::Query(_), Some(want)) => {
                let id = want.id;
                let reply = match self.grace_left(now_ms) {
                    Some(wait_ms) => Reply::Refused {
                        id,
                        why: Refusal::Grace { wait_ms },
                    },
                    None => Reply::Answer {
                        id,
                        blocker: self.in_the_way(&want).into_iter().next(),
                    },
                };
                out.push(Action::Reply(session, reply));
            }
            (Request::Unlock { id } | Request::Cancel { id }, _) => self.end(now_ms, session, *id, out),
            (Request::PosixRelease { owner, file }, _) => {
                let who = Party { session, owner: *owner };
                let is_it =
                    |want: &Want| want.posix && want.who == who && file.as_ref().is_none_or(|file| *file == want.file);
                self.held.retain(|hold| !is_it(&hold.want));
                for waiter in self.queue.extract_if(.., |waiter| is_it(&waiter.want)) {
                    out.push(refused(session, waiter.want.id, Refusal::Cancelled));
                }
                self.settle(now_ms, out);
            }
            _ => {}
        }
    }

    /// Locks in the way of a query, those that begin first.
    pub(crate) fn in_the_way(&self, want: &Want) -> Vec<Blocker> {
        let holds = || self.held.iter().filter(|hold| conflict(&hold.want, want));
        let first = holds().map(|hold| hold.want.bytes[0].start).min();
        let blocker = |hold: &Hold| Blocker {
            mode: hold.want.mode,
            start: hold.want.bytes[0].start,
            end: hold.want.bytes[hold.want.bytes.len() - 1].end,
            session: hold.want.who.session,
            owner: hold.want.who.owner,
        };
        holds()
            .map(blocker)
            .filter(|blocker| Some(blocker.start) == first)
            .collect()
    }

    pub(crate) fn disconnect(&mut self, now_ms: u64, session: SessionId, out: &mut Vec<Action>) {
        if let Some(connected) = self.sessions.get_mut(&session) {
            *connected = false;
            if self.flaw != Flaw::GrantsToTheDisconnected {
                self.queue.retain(|waiter| waiter.want.who.session != session);
            }
            self.settle(now_ms, out);
        }
    }

    pub(crate) fn close(&mut self, now_ms: u64, session: SessionId, out: &mut Vec<Action>) {
        self.sessions.remove(&session);
        self.held.retain(|hold| hold.want.who.session != session);
        self.queue.retain(|waiter| waiter.want.who.session != session);
        self.settle(now_ms, out);
    }

    pub(crate) fn tick(&mut self, now_ms: u64, out: &mut Vec<Action>) {
        let due = |waiter: &Waiter| waiter.until_ms.is_some_and(|until_ms| until_ms <= now_ms);
        loop {
            let due = (0..self.queue.len()).filter(|&place| due(&self.queue[place]));
            let Some(place) = due.min_by_key(|&place| (self.queue[place].until_ms, self.queue[place].number)) else {
                break;
            };
            let waiter = self.queue.remove(place);
            let why = if waiter.is_try {
                Refusal::WouldBlock
            } else {
                Refusal::TimedOut
            };
            out.push(refused(waiter.want.who.session, waiter.want.id, why));
            self.settle(now_ms, out);
        }
        if self.grace_until_ms > 0 && self.grace_until_ms <= now_ms {
            self.grace_until_ms = 0;
            self.settle(now_ms, out);
            out.extend(self.queue.iter().map(|waiter| queued(&waiter.want)));
        }
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        let grace = Some(self.grace_until_ms).filter(|&until_ms| until_ms > 0);
        self.queue
            .iter()
            .filter_map(|waiter| waiter.until_ms)
            .chain(grace)
            .min()
    }

    pub(crate) fn refuse(
        &mut self,
        now_ms: u64,
        session: SessionId,
        id: LockId,
        why: Refusal,
        out: &mut Vec<Action>,
    ) -> bool {
        let Some(place) = self.queue.iter().position(|waiter| is_named(&waiter.want, session, id)) else {
            return false;
        };
        self.queue.remove(place);
        out.push(refused(session, id, why));
        if self.flaw != Flaw::ForgetsToWakeOnCancel {
            self.settle(now_ms, out);
        }
        true
    }

    pub(crate) fn in_grace(&self) -> bool {
        self.grace_until_ms > 0
    }

    pub(crate) fn waits(&self) -> Vec<WaitFor> {
        if self.flaw == Flaw::NoDeadlockDetection {
            return Vec::new();
        }
        let wait_for = |waiter: &Waiter| WaitFor {
            waiter: waiter.want.who,
            id: waiter.want.id,
            file: waiter.want.file.clone(),
            mode: waiter.want.mode,
            bounds: waiter.want.bytes[0].start..waiter.want.bytes[waiter.want.bytes.len() - 1].end,
            since_ms: waiter.since_ms,
            number: waiter.number,
            blockers: self.holders(waiter).into_iter().collect(),
            behind: self
                .queued_before(waiter)
                .into_iter()
                .map(|want| (want.who, want.id))
                .collect(),
            // Only told who looks for what is to come: the naive one always looks for what is.
            overtaken: Vec::new(),
            only_queued: self.grace_until_ms == 0 && !self.held.iter().any(|hold| conflict(&hold.want, &waiter.want)),
        };
        self.queue.iter().map(wait_for).collect()
    }

    /// Grants who may pass, or refuses.
    pub(crate) fn end_circle(&mut self, now_ms: u64, found: Deadlock, out: &mut Vec<Action>) -> bool {
        let (session, id) = (found.session, found.id);
        if !found.passes {
            return self.refuse(now_ms, session, id, Refusal::Deadlock { cycle: found.cycle }, out);
        }
        let Some(place) = self.queue.iter().position(|waiter| is_named(&waiter.want, session, id)) else {
            return false;
        };
        let waiter = self.queue.remove(place);
        self.grant(waiter.want, out);
        self.settle(now_ms, out);
        true
    }

    pub(crate) fn holds_any(&self, who: Party) -> bool {
        self.held.iter().any(|hold| hold.want.who == who)
    }

    /// Whether a session has a lock of that name, held or waited for.
    pub(crate) fn has(&self, session: SessionId, id: LockId) -> bool {
        self.held
            .iter()
            .any(|hold| !hold.want.posix && is_named(&hold.want, session, id))
            || self.queue.iter().any(|waiter| is_named(&waiter.want, session, id))
    }

    fn ask(&mut self, now_ms: u64, want: Want, wait: Wait, out: &mut Vec<Action>) {
        let (session, id) = (want.who.session, want.id);
        if self.has(session, id) {
            return out.push(refused(session, id, Refusal::Duplicate));
        }
        self.number += 1;
        let number = self.number;
        let mut waiter = Waiter {
            want,
            number,
            since_ms: now_ms,
            until_ms: None,
            is_try: false,
        };
        if self.grace_left(now_ms).is_none() && !self.is_blocked(&waiter) {
            self.grant(waiter.want, out);
            return self.settle(now_ms, out);
        }
        match (wait, self.grace_left(now_ms)) {
            (Wait::Try, Some(wait_ms)) => {
                self.recall(&waiter.want, out);
                return out.push(refused(session, id, Refusal::Grace { wait_ms }));
            }
            (Wait::Try, None) if !(self.recall_ms > 0 && self.is_blocked_by_recallable(&waiter)) => {
                self.recall(&waiter.want, out);
                return out.push(refused(session, id, Refusal::WouldBlock));
            }
            (Wait::Try, None) => (waiter.until_ms, waiter.is_try) = (Some(now_ms + self.recall_ms), true),
            (Wait::For(ms), _) => waiter.until_ms = Some(now_ms + u64::from(ms)),
            (Wait::Forever, _) => {}
        }
        self.recall(&waiter.want, out);
        out.push(queued(&waiter.want));
        self.queue.push(waiter);
    }

    fn reassert(&mut self, want: Want, token: Token, out: &mut Vec<Action>) {
        let (session, id) = (want.who.session, want.id);
        if self.has(session, id) {
            return out.push(refused(session, id, Refusal::Duplicate));
        }
        let is_free = !self.held.iter().any(|hold| conflict(&hold.want, &want));
        let since = if self.flaw == Flaw::RevivesAnyEpoch {
            0
        } else {
            self.held_since
        };
        if self.grace_until_ms > 0 && is_free && (since..self.epoch).contains(&token.epoch()) {
            self.grant(want, out);
        } else {
            out.push(refused(session, id, Refusal::NotReasserted));
        }
    }

    fn end(&mut self, now_ms: u64, session: SessionId, id: LockId, out: &mut Vec<Action>) {
        self.held
            .retain(|hold| hold.want.posix || !is_named(&hold.want, session, id));
        if !self.refuse(now_ms, session, id, Refusal::Cancelled, out) {
            self.settle(now_ms, out);
        }
    }

    fn is_blocked(&self, waiter: &Waiter) -> bool {
        !self.holders(waiter).is_empty() || !self.queued_before(waiter).is_empty()
    }

    /// As the flaw has it.
    fn conflict(&self, a: &Want, b: &Want) -> bool {
        let first = |want: &Want| Want {
            bytes: want.bytes[..1].to_vec(),
            ..want.clone()
        };
        match self.flaw {
            Flaw::ComparesFirstRanges => conflict(&first(a), &first(b)),
            _ => conflict(a, b),
        }
    }

    /// Who holds what is in its way.
    fn holders(&self, waiter: &Waiter) -> BTreeSet<Party> {
        let held = self.held.iter().map(|hold| &hold.want);
        held.filter(|hold| self.conflict(hold, &waiter.want))
            .map(|hold| hold.who)
            .collect()
    }

    /// What stands before it and in its way.
    fn queued_before(&self, waiter: &Waiter) -> Vec<&Want> {
        let earlier: Vec<&Want> = self
            .queue
            .iter()
            .filter(|w| w.number < waiter.number)
            .map(|w| &w.want)
            .collect();
        let held = self.held.iter().map(|hold| &hold.want);
        let behind = behind(waiter.want.who, &held, &earlier);
        let in_queue = earlier.iter().enumerate().filter(|(place, want)| {
            self.flaw != Flaw::IgnoresQueue && !behind.contains(place) && self.conflict(want, &waiter.want)
        });
        in_queue.map(|(_, want)| *want).collect()
    }

    fn is_blocked_by_recallable(&self, waiter: &Waiter) -> bool {
        let queue: Vec<&Want> = self.queue.iter().map(|waiter| &waiter.want).collect();
        let behind = behind(waiter.want.who, &self.held.iter().map(|hold| &hold.want), &queue);
        let mut in_queue = queue.iter().enumerate().filter(|(place, _)| !behind.contains(place));
        !in_queue.any(|(_, want)| conflict(want, &waiter.want))
            && self
                .held
                .iter()
                .all(|hold| hold.want.recall || !conflict(&hold.want, &waiter.want))
    }

    fn grace_left(&self, now_ms: u64) -> Option<u32> {
        let in_grace = self.grace_until_ms > 0 && self.flaw != Flaw::NoGrace;
        in_grace.then(|| self.grace_until_ms.saturating_sub(now_ms) as u32)
    }

    fn settle(&mut self, now_ms: u64, out: &mut Vec<Action>) {
        if self.grace_left(now_ms).is_some() {
            return;
        }
        while let Some(place) = self.queue.iter().position(|waiter| !self.is_blocked(waiter)) {
            let waiter = self.queue.remove(place);
            self.grant(waiter.want, out);
        }
    }

    fn grant(&mut self, want: Want, out: &mut Vec<Action>) {
        self.grant_reply(want.who.session, want.id, out);
        if want.posix {
            return self.change_posix(&want, Some(want.mode));
        }
        let told = want.recall && self.queue.iter().any(|waiter| conflict(&waiter.want, &want));
        if told {
            out.push(Action::Reply(want.who.session, Reply::Recall { id: want.id }));
        }
        self.held.push(Hold { want, told });
    }

    fn grant_reply(&mut self, session: SessionId, id: LockId, out: &mut Vec<Action>) {
        let token = Token(self.token);
        self.token += 1;
        out.push(Action::Reply(session, Reply::Granted { id, token }));
    }

    fn change_posix(&mut self, want: &Want, mode: Option<LockMode>) {
        let mut posix: Vec<Want> = self
            .held
            .extract_if(.., |hold| hold.want.posix)
            .map(|hold| hold.want)
            .collect();
        posix_apply(&mut posix, want, mode);
        self.held
            .extend(posix.into_iter().map(|want| Hold { want, told: false }));
    }

    fn recall(&mut self, want: &Want, out: &mut Vec<Action>) {
        for hold in &mut self.held {
            if hold.want.recall && !hold.told && conflict(&hold.want, want) {
                hold.told = true;
                out.push(Action::Reply(hold.want.who.session, Reply::Recall { id: hold.want.id }));
            }
        }
    }
}

fn is_named(want: &Want, session: SessionId, id: LockId) -> bool {
    want.who.session == session && want.id == id
}

fn refused(session: SessionId, id: LockId, why: Refusal) -> Action {
    Action::Reply(session, Reply::Refused { id, why })
}

fn queued(want: &Want) -> Action {
    Action::Queued {
        session: want.who.session,
        owner: want.who.owner,
        id: want.id,
    }
}
