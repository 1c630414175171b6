//! Attributes that came with a listing, until somebody asks for them: a server sends them with each name, and who lists a directory asks
//! for them next.
//!
//! Each is given once, within two seconds, and not after something was changed there through here. What others change meanwhile is seen so late,
//! as on a mount by sshfs, which keeps them for twenty; who has to know what is there now asks the server.

use std::collections::{HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::wire::Attrs;

/// So long they are taken for what the objects have.
const KEPT_FOR: Duration = Duration::from_secs(2);
/// Of so many names in all, of the listings that came last; a name and its attributes take some hundred bytes.
const NAMES_MAX: usize = 1 << 20;
/// Directories share so many counters of changes: two that share one lose a listing now and then.
const COUNTERS: usize = 64;

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Listed {
    /// The oldest first.
    listings: Mutex<VecDeque<Listing>>,
    names_max: usize,
    /// How often something was changed.
    changes: [AtomicU64; COUNTERS],
}

/// A listing that is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    dir: u64,
    since: Instant,
    changes: u64,
}

impl Default for Listed {
    fn default() -> Self {
        Self::of(NAMES_MAX)
    }
}

#[derive(Debug)]
struct Listing {
    /// The node of the directory.
    dir: u64,
    since: Instant,
    attrs: HashMap<OsString, Attrs>,
}

impl Listed {
    fn of(names_max: usize) -> Self {
        Self {
            listings: Mutex::default(),
            names_max,
            changes: [const { AtomicU64::new(0) }; COUNTERS],
        }
    }

    /// Somebody is going to list a directory.
    pub(crate) fn begin(&self, dir: u64) -> Begun {
        Begun {
            dir,
            since: Instant::now(),
            changes: self.changes_of(dir).load(Ordering::Acquire),
        }
    }

    fn changes_of(&self, dir: u64) -> &AtomicU64 {
        &self.changes[(dir % COUNTERS as u64) as usize]
    }

    /// Keeps what a listing has told, unless something was changed meanwhile.
    pub(crate) fn keep(&self, begun: Begun, attrs: HashMap<OsString, Attrs>) {
        let Begun { dir, since, changes } = begun;
        if attrs.is_empty() || attrs.len() > self.names_max {
            return;
        }
        let mut listings = self.listings.lock();
        if self.changes_of(dir).load(Ordering::Acquire) != changes {
            return;
        }
        listings.retain(|listing| listing.dir != dir && listing.is_fresh());
        let mut names = attrs.len();
        listings.push_back(Listing { dir, since, attrs });
        let fits = |listing: &Listing| {
            names += listing.attrs.len();
            names <= self.names_max
        };
        let others = listings.len() - 1;
        let kept = listings.iter().rev().skip(1).map(fits).take_while(|fits| *fits).count();
        listings.drain(..others - kept);
    }

    /// What a name was listed with.
    pub(crate) fn take(&self, dir: u64, name: &OsStr) -> Option<Attrs> {
        let mut listings = self.listings.lock();
        let listing = listings
            .iter_mut()
            .find(|listing| listing.dir == dir && listing.is_fresh())?;
        listing.attrs.remove(name)
    }

    /// Something was changed there.
    pub(crate) fn forget(&self, dir: u64) {
        let mut listings = self.listings.lock();
        self.changes_of(dir).fetch_add(1, Ordering::AcqRel);
        if !listings.is_empty() {
            listings.retain(|listing| listing.dir != dir);
        }
    }
}

impl Listing {
    fn is_fresh(&self) -> bool {
        self.since.elapsed() < KEPT_FOR && !self.attrs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attrs(count: u64) -> HashMap<OsString, Attrs> {
        let attrs = |size| Attrs {
            size: Some(size),
            ..Attrs::default()
        };
        (0..count).map(|n| (n.to_string().into(), attrs(n))).collect()
    }

    #[test]
    fn attributes_are_given_once_while_they_are_fresh() {
        let listed = Listed::default();
        listed.keep(listed.begin(1), attrs(3));
        let old = Begun {
            since: Instant::now().checked_sub(KEPT_FOR).expect("a time"),
            ..listed.begin(2)
        };
        listed.keep(old, attrs(3));
        let take = |dir| listed.take(dir, OsStr::new("2")).and_then(|attrs| attrs.size);
        assert_eq!((take(1), take(1), take(2)), (Some(2), None, None));
        listed.forget(1);
        assert_eq!(listed.take(1, OsStr::new("0")), None);
    }

    #[test]
    fn what_was_listed_before_a_change_is_not_kept_after_it() {
        let listed = Listed::default();
        let begun = listed.begin(1);
        listed.forget(1);
        listed.keep(begun, attrs(3));
        assert_eq!(listed.take(1, OsStr::new("2")), None);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let listed = Listed::of(100);
        for dir in 0..4 {
            listed.keep(listed.begin(dir), attrs(50));
        }
        listed.keep(listed.begin(5), attrs(101));
        let has = |dir| listed.take(dir, OsStr::new("7")).is_some();
        assert_eq!([0, 1, 2, 3, 5].map(has), [false, false, true, true, false]);
    }
}
