//! What nearly no object has, and so should cost nearly no object anything: a pointer while it is empty.
//!
//! A job keeps a few hundred bytes of each object; three words here and there were a fifth of it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::ops::{Deref, DerefMut};

use elbow_ranges::RangeSet;

use super::EntryKey;

/// Something that is seldom anything but empty.
#[derive(Debug)]
pub(crate) struct BoxedUnlessEmpty<T>(Option<Box<T>>);

/// What is there of something that is empty.
pub(crate) trait Empty: Default + 'static {
    fn empty() -> &'static Self;
}

macro_rules! empty {
    ($($type:ty: $value:expr;)*) => {
        $(impl Empty for $type {
            fn empty() -> &'static Self {
                static EMPTY: $type = $value;
                &EMPTY
            }
        })*
    };
}

empty! {
    BTreeMap<OsString, Vec<u8>>: BTreeMap::new();
    BTreeMap<OsString, Option<Vec<u8>>>: BTreeMap::new();
    BTreeSet<OsString>: BTreeSet::new();
    RangeSet: RangeSet::new();
}

impl<T> Default for BoxedUnlessEmpty<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> BoxedUnlessEmpty<T> {
    /// To change what is there, where it may well be empty.
    pub(crate) fn there(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }

    pub(crate) fn take(&mut self) -> T
    where
        T: Default,
    {
        self.0.take().map(|boxed| *boxed).unwrap_or_default()
    }
}

impl<T: Empty + PartialEq> From<T> for BoxedUnlessEmpty<T> {
    fn from(value: T) -> Self {
        Self((value != *T::empty()).then(|| Box::new(value)))
    }
}

impl<T: Empty> Deref for BoxedUnlessEmpty<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or_else(|| T::empty())
    }
}

impl<T: Empty> DerefMut for BoxedUnlessEmpty<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}

/// Names of an object. Nearly all have one.
#[derive(Clone, Debug)]
#[allow(
    clippy::box_collection,
    reason = "a vector is three words, and one that is there is seldom"
)]
pub(crate) enum EntryKeys {
    One(EntryKey),
    /// None at all where there is none to be kept.
    Other(Option<Box<Vec<EntryKey>>>),
}

impl Default for EntryKeys {
    fn default() -> Self {
        Self::Other(None)
    }
}

impl Deref for EntryKeys {
    type Target = [EntryKey];

    fn deref(&self) -> &[EntryKey] {
        match self {
            Self::One(key) => std::slice::from_ref(key),
            Self::Other(None) => &[],
            Self::Other(Some(keys)) => keys,
        }
    }
}

impl EntryKeys {
    pub(crate) fn push(&mut self, key: EntryKey) {
        *self = match std::mem::take(self) {
            Self::Other(None) => Self::One(key),
            Self::One(first) => Self::Other(Some(Box::new(vec![first, key]))),
            Self::Other(Some(mut keys)) => {
                keys.push(key);
                Self::Other(Some(keys))
            }
        };
    }

    pub(crate) fn retain(&mut self, keeps: impl FnMut(&EntryKey) -> bool) {
        let mut keys = match std::mem::take(self) {
            Self::One(key) => vec![key],
            Self::Other(keys) => keys.map(|keys| *keys).unwrap_or_default(),
        };
        keys.retain(keeps);
        keys.into_iter().for_each(|key| self.push(key));
    }
}

impl<'a> IntoIterator for &'a EntryKeys {
    type Item = &'a EntryKey;
    type IntoIter = std::slice::Iter<'a, EntryKey>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use crate::api::Ino;

    #[test]
    fn names_come_and_go_in_their_order_and_one_costs_no_more_than_itself() {
        assert_eq!(size_of::<EntryKeys>(), size_of::<EntryKey>());
        let key = |name: &str| EntryKey::new(Ino::ROOT, OsStr::new(name));
        let mut keys = EntryKeys::default();
        assert!(keys.is_empty());
        for name in ["a", "b", "c"] {
            keys.push(key(name));
        }
        assert_eq!(keys[..], [key("a"), key("b"), key("c")]);
        keys.retain(|one| *one != key("b"));
        assert_eq!(keys[..], [key("a"), key("c")]);
        keys.retain(|one| *one == key("c"));
        assert!(matches!(&keys, EntryKeys::One(one) if *one == key("c")));
        keys.retain(|_| false);
        assert!(keys.is_empty() && matches!(keys, EntryKeys::Other(None)));
    }
}
