//! Attributes that came with a listing, until somebody asks for them: a server sends them with each name, and who lists a directory asks
//! for them next.
//!
//! Each is given once, within two seconds, and not after something was changed there through here. What others change meanwhile is seen so late,
//! as on a mount by sshfs, which keeps them for twenty; who has to know what is there now asks the server.

use std::collections::{HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::wire::Attrs;

/// So long they are taken for what the objects have.
const KEPT_FOR: Duration = Duration::from_secs(2);
/// Of so many names in all, of the listings that came last; a name and its attributes take some hundred bytes.
const NAMES_MAX: usize = 1 << 20;

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Listed {
    /// The oldest first.
    listings: Mutex<VecDeque<Listing>>,
    names_max: usize,
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
        }
    }

    /// Keeps what a listing has told.
    pub(crate) fn keep(&self, dir: u64, since: Instant, attrs: HashMap<OsString, Attrs>) {
        if attrs.is_empty() || attrs.len() > self.names_max {
            return;
        }
        let mut listings = self.listings.lock();
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
        let (listed, now) = (Listed::default(), Instant::now());
        listed.keep(1, now, attrs(3));
        listed.keep(2, now.checked_sub(KEPT_FOR).expect("a time"), attrs(3));
        let take = |dir| listed.take(dir, OsStr::new("2")).and_then(|attrs| attrs.size);
        assert_eq!((take(1), take(1), take(2)), (Some(2), None, None));
        listed.forget(1);
        assert_eq!(listed.take(1, OsStr::new("0")), None);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let (listed, now) = (Listed::of(100), Instant::now());
        for dir in 0..4 {
            listed.keep(dir, now, attrs(50));
        }
        listed.keep(5, now, attrs(101));
        let has = |dir| listed.take(dir, OsStr::new("7")).is_some();
        assert_eq!([0, 1, 2, 3, 5].map(has), [false, false, true, true, false]);
    }
}
