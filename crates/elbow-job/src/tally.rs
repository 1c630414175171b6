//! Since when each object waits to be stored, and how many operations of the command were merged meanwhile: for a
//! [`Recorder`](crate::Recorder) alone, so that a job without one remembers nothing of it.

use std::collections::HashMap;
use std::time::Instant;

use crate::api::Ino;

/// See the module's header. There are as many as objects that have something to be stored.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pending: HashMap<Ino, Pending>,
}

/// Of one object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) since: Instant,
    pub(crate) merged: u64,
}

impl Tally {
    /// An object has something to be stored; it may have had before.
    pub(crate) fn queued(&mut self, ino: Ino) {
        self.entry(ino);
    }

    /// An operation changed what waits already.
    pub(crate) fn merged(&mut self, ino: Ino) {
        self.entry(ino).merged += 1;
    }

    /// An action stores what has waited.
    pub(crate) fn take(&mut self, ino: Ino) -> Option<Pending> {
        self.pending.remove(&ino)
    }

    fn entry(&mut self, ino: Ino) -> &mut Pending {
        self.pending.entry(ino).or_insert_with(|| Pending {
            since: Instant::now(),
            merged: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_waits_since_its_first_change_until_it_is_taken() {
        let mut tally = Tally::default();
        tally.queued(Ino(7));
        let since = tally.pending[&Ino(7)].since;
        tally.merged(Ino(7));
        tally.queued(Ino(7));
        tally.merged(Ino(7));
        let taken = tally.take(Ino(7)).expect("it waits");
        assert_eq!((taken.since, taken.merged), (since, 2));
        assert!(tally.take(Ino(7)).is_none(), "from here on it waits anew");
    }
}
