//! Locks as fcntl(2) has them: an owner's pieces of a file.
//!
//! ```text
//!   holds          |--shared--------------|
//!   asks exclusive        |=====|
//!   holds          |--s---|==x==|----s----|      replaced, split
//!   unlocks    |------------|
//!   holds                   |=x=|----s----|      cut
//!   asks exclusive              |=========|
//!   holds                   |=============|      merged
//! ```
//!
//! Source: fcntl(2), "Advisory record locking"; IEEE Std 1003.1, fcntl().

use std::ops::Range;

use elbow_ranges::Footprint;

use super::{Ask, Lock, LockState, Party, Sequence, Table};
use crate::message::{LockMode, Token};

/// What a POSIX request makes of its owner's pieces.
#[derive(Debug)]
pub(crate) struct Change {
    ended: Vec<usize>,
    /// What stays of those that ended: which one, and which part.
    rest: Vec<(usize, Range<u64>)>,
    /// The piece that comes.
    new: Option<Range<u64>>,
}

impl Change {
    /// How many more pieces there are afterwards.
    pub(crate) fn locks(&self) -> isize {
        let after = self.rest.len() + usize::from(self.new.is_some());
        after.cast_signed() - self.ended.len().cast_signed()
    }
}

impl Table {
    /// What has to change so that `who` holds exactly `mode` over `range`.
    pub(crate) fn plan(&self, who: Party, range: &Range<u64>, mode: Option<LockMode>) -> Change {
        let mut change = Change {
            ended: Vec::new(),
            rest: Vec::new(),
            new: mode.map(|_| range.clone()),
        };
        for (key, piece) in self.pieces_at(who, range) {
            let bounds = &piece.bounds;
            if let Some(new) = change.new.as_mut().filter(|_| mode == Some(piece.ask.mode)) {
                *new = new.start.min(bounds.start)..new.end.max(bounds.end);
                change.ended.push(key);
            } else if bounds.start < range.end && range.start < bounds.end {
                change.ended.push(key);
                let sides = [bounds.start..range.start, range.end..bounds.end];
                change.rest.extend(
                    sides
                        .into_iter()
                        .filter(|side| side.start < side.end)
                        .map(|side| (key, side)),
                );
            }
        }
        change
    }

    /// Carries a plan out; `ask` is the request for the new piece, if there is one. Returns how many more pieces there
    /// are.
    pub(crate) fn carry_out(
        &mut self,
        change: Change,
        ask: &Ask,
        now_ms: u64,
        token: Token,
        sequence: &mut Sequence,
    ) -> isize {
        let locks = change.locks();
        for (key, rest) in change.rest {
            let Lock {
                ask, since_ms, state, ..
            } = &self.locks[key];
            if let LockState::Held { token, .. } = *state {
                let ask = Ask {
                    footprint: extent(rest),
                    ..ask.clone()
                };
                let since_ms = *since_ms;
                self.insert_held(ask, sequence.number(), since_ms, token);
            }
        }
        change.ended.into_iter().for_each(|key| drop(self.end(key)));
        if let Some(range) = change.new {
            let who = ask.who;
            let ask = Ask {
                footprint: extent(range),
                ..ask.clone()
            };
            self.insert_held(ask, sequence.number(), now_ms, token);
            self.recheck_owner(who);
        }
        locks
    }

    /// Keys of all POSIX locks of an owner, held or waiting.
    pub(crate) fn posix_of(&self, who: Party) -> Vec<usize> {
        let locks = self.of_owner(who).filter(|(_, lock)| lock.ask.posix);
        locks.map(|(key, _)| key).collect()
    }

    /// The pieces of an owner that overlap or touch a range.
    fn pieces_at(&self, who: Party, range: &Range<u64>) -> impl Iterator<Item = (usize, &Lock)> {
        let around = range.start.saturating_sub(1)..range.end.saturating_add(1);
        self.held
            .overlapping(around)
            .map(|(_, key)| (key, &self.locks[key]))
            .filter(move |(_, lock)| lock.ask.posix && lock.ask.who == who)
    }
}

fn extent(range: Range<u64>) -> Footprint {
    #[expect(clippy::expect_used, reason = "a piece is never empty")]
    Footprint::extent(range).expect("a range that is not empty")
}
