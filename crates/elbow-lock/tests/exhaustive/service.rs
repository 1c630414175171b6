//! An incarnation of the service, and what it leaves to the next.

/// Its epoch: the rest of a token only grows within one epoch.
pub(crate) type Token = u8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reply {
    /// Of a request or an assertion.
    Granted(Token),
    Refused,
}

/// Which client, over which of its links; and behind a proxy, over which of the proxy's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Party {
    pub(crate) client: usize,
    pub(crate) link: u8,
    pub(crate) proxy_link: u8,
}

/// What is in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Memory {
    pub(crate) epoch: u8,
    /// It is still in its grace period, and so long ago is what may be asserted from.
    pub(crate) grace_since: Option<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Service {
    pub(crate) epoch: u8,
    pub(crate) is_grace: bool,
    /// Tokens from this epoch on may be asserted.
    since: u8,
    pub(crate) holder: Option<Party>,
    pub(crate) waits: Vec<Party>,
}

impl Service {
    /// The first that ever was.
    pub(crate) fn first(epoch: u8) -> Self {
        Self {
            epoch,
            is_grace: false,
            since: epoch,
            holder: None,
            waits: Vec::new(),
        }
    }

    /// The one after another that crashed. `any_incarnation`: a rule is broken.
    pub(crate) fn after(memory: Memory, any_incarnation: bool) -> Self {
        let since = if any_incarnation {
            0
        } else {
            memory.grace_since.unwrap_or(memory.epoch)
        };
        Self {
            is_grace: true,
            since,
            ..Self::first(memory.epoch + 1)
        }
    }

    /// One that knows of none before.
    pub(crate) fn without_memory(epoch: u8) -> Self {
        Self {
            is_grace: true,
            ..Self::first(epoch)
        }
    }

    pub(crate) fn memory(&self) -> Memory {
        Memory {
            epoch: self.epoch,
            grace_since: self.is_grace.then_some(self.since),
        }
    }

    pub(crate) fn ask(&mut self, from: Party) {
        self.waits.push(from);
    }

    /// Whether it is let in again.
    pub(crate) fn reassert(&mut self, from: Party, token: Token) -> bool {
        let is_from_before = self.is_grace && (self.since..self.epoch).contains(&token);
        let is_let_in = is_from_before && self.holder.is_none();
        if is_let_in {
            self.holder = Some(from);
        }
        is_let_in
    }

    /// Sessions, or what was asked for over them, end.
    pub(crate) fn forget(&mut self, who: impl Fn(&Party) -> bool) {
        self.waits.retain(|party| !who(party));
        self.holder = self.holder.filter(|party| !who(party));
    }

    /// Who is granted now: who comes first.
    pub(crate) fn settle(&mut self) -> Option<Party> {
        if self.is_grace || self.holder.is_some() || self.waits.is_empty() {
            return None;
        }
        self.holder = Some(self.waits.remove(0));
        self.holder
    }

    /// All who have something to lose.
    pub(crate) fn parties(&self) -> impl Iterator<Item = Party> {
        self.holder.into_iter().chain(self.waits.iter().copied())
    }
}
