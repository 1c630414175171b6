//! A client: one lock, asked for once, as soon as it is connected.

use super::service::{Reply, Token};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    PendingLock,
    /// It is granted; the thread that waits does not know yet.
    Granted(Token),
    /// The same, and the grant is of no worth any more; only where nobody looks at it.
    Stale,
    /// The program knows.
    Ours(Token),
    /// Asserted to the next incarnation of the service; whether the program knew of it.
    Reasserting(Token, bool),
    Done,
}

/// A connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Link {
    /// Which incarnation of the service, as the model counts them; its epoch is what the service itself counts.
    pub(crate) incarnation: u8,
    pub(crate) epoch: u8,
    /// Its end has come.
    pub(crate) is_broken: bool,
    /// The lease is over by the client's clock.
    pub(crate) is_over: bool,
}

impl Link {
    pub(crate) fn new((incarnation, epoch): (u8, u8)) -> Self {
        Self {
            incarnation,
            epoch,
            is_broken: false,
            is_over: false,
        }
    }

    pub(crate) fn is_good(&self) -> bool {
        !self.is_broken && !self.is_over
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) phase: Phase,
    /// How many links it has had.
    pub(crate) links: u8,
    pub(crate) link: Option<Link>,
    /// Sent to it over its link, and not read.
    pub(crate) replies: Vec<Reply>,
    /// What a thread has read, over which link, and not yet said.
    pub(crate) late: Option<(u8, Reply)>,
}

impl Client {
    pub(crate) fn new() -> Self {
        Self {
            phase: Phase::PendingLock,
            links: 0,
            link: None,
            replies: Vec::new(),
            late: None,
        }
    }

    /// Who is done is as if it had never been.
    pub(crate) fn end(&mut self) {
        *self = Self {
            phase: Phase::Done,
            links: self.links,
            ..Self::new()
        };
    }

    pub(crate) fn is_good(&self) -> bool {
        self.link.is_some_and(|link| link.is_good())
    }

    /// What `Hold::check` says now.
    pub(crate) fn believes(&self) -> bool {
        matches!(self.phase, Phase::Ours(_)) && self.is_good()
    }

    /// A new link: what was held is asserted, or lost; what was asked for is asked for again. `looks`: a rule, that grants are looked at.
    pub(crate) fn connect(&mut self, to: (u8, u8), is_grace: bool, has_lease: bool, looks: bool) {
        let before = self.link.replace(Link::new(to));
        let may_assert = is_grace && before.is_some_and(|old| (!has_lease || !old.is_over) && old.epoch != to.1);
        self.links += 1;
        self.replies.clear();
        self.phase = match self.phase {
            Phase::Granted(token) if may_assert => Phase::Reasserting(token, false),
            Phase::Ours(token) if may_assert => Phase::Reasserting(token, true),
            Phase::Reasserting(token, knows) if may_assert => Phase::Reasserting(token, knows),
            Phase::Granted(_) | Phase::Reasserting(_, false) => unknown_loss(looks),
            Phase::Ours(_) | Phase::Reasserting(_, true) => Phase::Done,
            other => other,
        };
    }

    /// Takes what was read. True: it has to ask once more.
    pub(crate) fn receive(&mut self, reply: Reply, looks: bool) -> bool {
        self.phase = match (reply, self.phase) {
            (Reply::Granted(token), Phase::PendingLock | Phase::Reasserting(_, false)) => Phase::Granted(token),
            (Reply::Granted(token), Phase::Reasserting(_, true)) => Phase::Ours(token),
            (Reply::Refused, Phase::Reasserting(_, true)) => Phase::Done,
            (Reply::Refused, Phase::Reasserting(_, false)) => {
                self.phase = unknown_loss(looks);
                return self.phase == Phase::PendingLock;
            }
            (_, phase) => phase,
        };
        false
    }
}

/// A lock that was lost before its program knew of it is asked for again.
fn unknown_loss(looks: bool) -> Phase {
    if looks { Phase::PendingLock } else { Phase::Stale }
}
