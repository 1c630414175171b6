//! An oracle for locks: what clients believed to hold, by their own logs, and whether that can be.
//!
//! ```text
//!   a client's log    ask ......... got    ours    ours    ours     lost | back ..... done
//!   what is sure         (one instant)|====================|                               held without a break
//!                     of when it ran                       begin of the last call that said so
//! ```
//!
//! *What is promised* is the answer: who is told that a lock is its own (by the grant, by a check, by a release that says "to the
//! end") holds it, alone, at an instant between the beginning of that call and its return, at which its process ran. And an error is the last word: between
//! two such answers the lock was held without a break. So of a holding it is *sure* that it lasted from the return of the grant
//! to the beginning of the last call that said yes ([`Holding::sure`]); where no call but the grant said so, that it was there at one instant of that call at
//! which the process was not stopped. Nothing else is taken for belief: a process that was killed, or stopped after an answer, may have
//! believed for longer, and no lock service can change that.
//!
//! [`judge()`] finds:
//! - two conflicting holdings that are both sure at one instant;
//! - a grant for which no instant is left: the others were sure to have the bytes whenever its process ran;
//! - an earlier holding whose fencing token is not smaller than that of a later one which it excludes; for clients of the service itself (not of a
//!   proxy) than that of any later one on the file;
//! - a lock that was lost and then the client's again;
//! - a grant that was lost when it was told: the process was stopped for longer than its lease while it asked, and what it was told when it went on is lost
//!   within half a lease, though nothing happened to the service meanwhile. (A session that it began after that lasts for longer.)
//!
//! It never takes a delay for a fault: times are taken before a call that promises and after one that grants, so that whatever keeps a client
//! from running between makes less sure and not more. All times are of one clock, in nanoseconds.
//!
//! Not here: that whoever waits is served (who plays the game sees it), and the clients ([`log`] is what they write).

mod judge;
pub mod log;

use std::fmt;
use std::ops::Range;

pub use self::judge::{Violation, judge};

/// Whose bytes they are meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Others may share them.
    Shared,
    /// Nobody else's.
    Exclusive,
}

/// A lock that a client was granted, as far as its log tells.
#[derive(Clone, Debug)]
pub struct Holding {
    /// Which client, for people.
    pub client: String,
    /// Whether the client speaks with the service itself, not with a proxy.
    pub is_direct: bool,
    /// Of which file.
    pub file: String,
    /// Which bytes.
    pub ranges: Vec<Range<u64>>,
    /// Shared or exclusive.
    pub mode: Mode,
    /// The fencing token, where the client learns of it.
    pub token: Option<u64>,
    /// Just before it asked.
    pub asked: u64,
    /// Just after it was told that it is granted.
    pub granted: u64,
    /// Just before the last call that said that the lock is still its own.
    pub ours: Option<u64>,
    /// Just after the first call that was asked whether it is its own, where that said that it is lost.
    pub lost_at_once: Option<u64>,
    /// How long its session lives without a word from it at most, where it speaks with the service itself and that is known.
    pub lease: Option<u64>,
    /// When its process certainly did not run, while it asked.
    pub stops: Vec<Range<u64>>,
    /// It was told that the lock is lost, and then that it is not.
    pub was_found_again: bool,
}

impl Holding {
    /// From when to when it was certainly held, both included; none where only the grant said so.
    #[must_use]
    pub fn sure(&self) -> Option<(u64, u64)> {
        self.ours.map(|ours| (self.granted, ours.max(self.granted)))
    }
}

impl fmt::Display for Holding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            client,
            file,
            ranges,
            mode,
            asked,
            granted,
            ..
        } = self;
        let token = self.token.map_or("none".to_owned(), |token| token.to_string());
        write!(
            formatter,
            "{client}: {mode:?} {file} {ranges:?}, token {token}, asked at {asked}, granted by {granted}, last known as its own at {:?}",
            self.ours
        )
    }
}
