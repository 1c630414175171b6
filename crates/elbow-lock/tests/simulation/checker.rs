//! Watches what a service hears and says, and knows from the definition alone what it may say.
//!
//! - nothing is granted that conflicts with what is held, or with an earlier request that waits (but for those that
//!   wait for the same owner);
//! - whoever waits is blocked: nobody is forgotten;
//! - owners never wait in a circle, once the service has had its say;
//! - a file's tokens grow, over all restarts of the service;
//! - what was not asked for, or not by a session that is open, is not answered.

use std::collections::{BTreeMap, BTreeSet};

use elbow_lock::{
    Action, FileName, LockId, Party, PosixRequest, QueryRequest, Refusal, Reply, Request, SessionId, Token,
};

use crate::support::naive::{Want, behind, conflict, posix_apply, wanted};

#[derive(Debug, Default)]
pub(crate) struct Checker {
    held: Vec<Want>,
    /// In the order of asking.
    waiting: Vec<Want>,
    reasserted: Vec<Want>,
    unlocks: Vec<Want>,
    queries: BTreeSet<(SessionId, LockId)>,
    tokens: BTreeMap<FileName, Token>,
    in_grace: bool,
    pub(crate) counts: CheckCounts,
}

/// What was seen to happen.
#[derive(Clone, Debug, Default)]
pub(crate) struct CheckCounts {
    pub(crate) grants: u64,
    pub(crate) reasserted: u64,
    pub(crate) restarts: u64,
    pub(crate) disconnected: u64,
    /// Broken while something was held.
    pub(crate) broken: u64,
    pub(crate) refused: BTreeMap<&'static str, u64>,
    pub(crate) recalls: u64,
    /// Granted before their turn, to end a circle.
    pub(crate) passed: u64,
}

impl Checker {
    pub(crate) fn restarted(&mut self, in_grace: bool) {
        let counts = CheckCounts {
            restarts: self.counts.restarts + 1,
            ..self.counts.clone()
        };
        *self = Self {
            tokens: std::mem::take(&mut self.tokens),
            in_grace,
            counts,
            ..Self::default()
        };
    }

    pub(crate) fn in_grace(&self) -> bool {
        self.in_grace
    }

    pub(crate) fn grace_ended(&mut self) {
        self.in_grace = false;
    }

    pub(crate) fn requested(&mut self, session: SessionId, request: &Request) {
        let want = wanted(session, request);
        match (request, want) {
            (Request::Posix(PosixRequest { mode: None, .. }), Some(want)) => self.unlocks.push(want),
            (Request::Lock(_) | Request::Posix(_), Some(want)) => self.waiting.push(want),
            (Request::Reassert(_), Some(want)) => self.reasserted.push(want),
            (Request::Query(QueryRequest { id, .. }), _) => drop(self.queries.insert((session, *id))),
            (Request::Unlock { id } | Request::Cancel { id }, _) => {
                self.held
                    .retain(|want| want.posix || (want.who.session, want.id) != (session, *id));
            }
            (Request::PosixRelease { owner, file }, _) => {
                let who = Party { session, owner: *owner };
                let is_it = |want: &Want| file.as_ref().is_none_or(|file| want.file == *file);
                self.held.retain(|want| !(want.posix && want.who == who && is_it(want)));
            }
            _ => {}
        }
    }

    /// Its locks are broken: what it waits for is dropped, what it holds stays.
    pub(crate) fn broken(&mut self, session: SessionId) {
        self.counts.broken += u64::from(self.held.iter().any(|want| want.who.session == session));
        self.waiting.retain(|want| want.who.session != session);
    }

    pub(crate) fn disconnected(&mut self, session: SessionId) {
        self.counts.disconnected += 1;
        self.waiting.retain(|want| want.who.session != session);
    }

    pub(crate) fn closed(&mut self, session: SessionId) {
        self.held.retain(|want| want.who.session != session);
        self.waiting.retain(|want| want.who.session != session);
    }

    pub(crate) fn acted(&mut self, action: &Action) {
        match action {
            Action::Reply(session, Reply::Granted { id, token }) => self.granted(*session, *id, *token),
            Action::Reply(session, Reply::Refused { id, why }) => {
                *self.counts.refused.entry(kind_of(why)).or_default() += 1;
                let lists = [&mut self.waiting, &mut self.reasserted, &mut self.unlocks];
                let found = lists.into_iter().any(|list| take(list, *session, *id).is_some());
                assert!(found, "{action:?} was not asked for");
            }
            Action::Reply(session, Reply::Answer { id, .. }) => {
                assert!(self.queries.remove(&(*session, *id)), "{action:?} was not asked for");
            }
            Action::Reply(_, Reply::Recall { .. }) => self.counts.recalls += 1,
            _ => {}
        }
    }

    fn granted(&mut self, session: SessionId, id: LockId, token: Token) {
        if let Some(want) = take(&mut self.unlocks, session, id) {
            self.grows(&want, token);
            return posix_apply(&mut self.held, &want, None);
        }
        self.counts.grants += 1;
        let place = self
            .waiting
            .iter()
            .position(|want| (want.who.session, want.id) == (session, id));
        let want = match place {
            Some(place) => {
                assert!(!self.in_grace, "granted in the grace period: {:?}", self.waiting[place]);
                self.may_go_first(place);
                self.waiting.remove(place)
            }
            None => {
                self.counts.reasserted += 1;
                let want = take(&mut self.reasserted, session, id);
                want.unwrap_or_else(|| panic!("{session:?} {id:?} was granted and nobody waits for it"))
            }
        };
        if let Some(held) = self.held.iter().find(|held| conflict(held, &want)) {
            panic!("granted: {want:?}\nheld: {held:?}");
        }
        self.grows(&want, token);
        if want.posix {
            posix_apply(&mut self.held, &want, Some(want.mode));
        } else {
            self.held.push(want);
        }
    }

    fn grows(&mut self, want: &Want, token: Token) {
        let before = self.tokens.insert(want.file.clone(), token);
        assert!(before < Some(token), "{token:?} after {before:?}: {want:?}");
    }

    /// Nobody who asked earlier is passed, but those who wait for the same owner, or in a circle with it.
    fn may_go_first(&mut self, place: usize) {
        let earlier = self.blocking_in_queue(place).next().map(|(_, earlier)| earlier.clone());
        if let Some(earlier) = earlier {
            let is_in_circle = self.is_in_circle(place);
            assert!(is_in_circle, "granted: {:?}\nbefore: {earlier:?}", self.waiting[place]);
            self.counts.passed += 1;
        }
    }

    fn is_in_circle(&self, place: usize) -> bool {
        let who = self.waiting[place].who;
        let (mut seen, mut next) = (BTreeSet::new(), vec![who]);
        while let Some(party) = next.pop() {
            let waiting = self.waiting.iter().enumerate().filter(|(_, want)| want.who == party);
            for blocker in waiting.flat_map(|(place, _)| self.blockers(place)) {
                if blocker == who {
                    return true;
                }
                if seen.insert(blocker) {
                    next.push(blocker);
                }
            }
        }
        false
    }

    /// Who waits before it and in its way, with their places.
    fn blocking_in_queue(&self, place: usize) -> impl Iterator<Item = (usize, &Want)> {
        let want = &self.waiting[place];
        let earlier: Vec<&Want> = self.waiting[..place].iter().collect();
        let behind = behind(want.who, &self.held.iter(), &earlier);
        let blocking = move |(place, earlier): &(usize, &Want)| !behind.contains(place) && conflict(earlier, want);
        self.waiting[..place].iter().enumerate().filter(blocking)
    }

    /// Whose locks are in its way.
    fn holders(&self, place: usize) -> impl Iterator<Item = Party> {
        let held = self
            .held
            .iter()
            .filter(move |held| conflict(held, &self.waiting[place]));
        held.map(|want| want.who)
    }

    fn blockers(&self, place: usize) -> BTreeSet<Party> {
        let queued = self.blocking_in_queue(place).map(|(_, earlier)| earlier.who);
        self.holders(place).chain(queued).collect()
    }

    /// What must be true when the service has done all that it wanted to.
    pub(crate) fn check(&self) {
        if self.in_grace {
            return;
        }
        let blockers: Vec<BTreeSet<Party>> = (0..self.waiting.len()).map(|place| self.blockers(place)).collect();
        for (want, blockers) in self.waiting.iter().zip(&blockers) {
            assert!(!blockers.is_empty(), "forgotten: {want:?}");
        }
        // Let go first whoever waits for nobody who waits, and so on: all must come to go. What is held goes when its owner does; who is before
        // others in a queue goes when that request does, whatever else its owner has asked for and given up.
        let mut stuck: Vec<usize> = (0..self.waiting.len()).collect();
        let is_stuck = |stuck: &[usize], party: &Party| stuck.iter().any(|&place| self.waiting[place].who == *party);
        let is_free = |stuck: &[usize], place: usize| {
            !self.holders(place).any(|party| is_stuck(stuck, &party))
                && !self.blocking_in_queue(place).any(|(before, _)| stuck.contains(&before))
        };
        while let Some(free) = stuck.iter().position(|&place| is_free(&stuck, place)) {
            stuck.remove(free);
        }
        let circle: Vec<&Want> = stuck.iter().map(|&place| &self.waiting[place]).collect();
        assert!(circle.is_empty(), "they wait for each other: {circle:#?}");
    }
}

fn take(list: &mut Vec<Want>, session: SessionId, id: LockId) -> Option<Want> {
    let place = list
        .iter()
        .position(|want| (want.who.session, want.id) == (session, id))?;
    Some(list.remove(place))
}

fn kind_of(why: &Refusal) -> &'static str {
    match why {
        Refusal::WouldBlock => "would block",
        Refusal::TimedOut => "timed out",
        Refusal::Cancelled => "cancelled",
        Refusal::Deadlock { .. } => "deadlock",
        Refusal::NotReasserted => "not reasserted",
        Refusal::Grace { .. } => "grace",
        _ => "other",
    }
}
