//! What nearly no object has, and so should cost nearly no object anything: a pointer while it is empty.
//!
//! A job keeps a few hundred bytes of each object; three words here and there were a fifth of it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::ops::{Deref, DerefMut};

use elbow_ranges::RangeSet;

use super::Place;

/// Something that is seldom anything but empty.
#[derive(Debug)]
pub(crate) struct Rare<T>(Option<Box<T>>);

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
    BTreeSet<OsString>: BTreeSet::new();
    RangeSet: RangeSet::new();
}

impl<T> Default for Rare<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Rare<T> {
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

impl<T: Empty + PartialEq> From<T> for Rare<T> {
    fn from(value: T) -> Self {
        Self((value != *T::empty()).then(|| Box::new(value)))
    }
}

impl<T: Empty> Deref for Rare<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or_else(|| T::empty())
    }
}

impl<T: Empty> DerefMut for Rare<T> {
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
pub(crate) enum Places {
    One(Place),
    /// None at all where there is none to be kept.
    Other(Option<Box<Vec<Place>>>),
}

impl Default for Places {
    fn default() -> Self {
        Self::Other(None)
    }
}

impl Deref for Places {
    type Target = [Place];

    fn deref(&self) -> &[Place] {
        match self {
            Self::One(place) => std::slice::from_ref(place),
            Self::Other(None) => &[],
            Self::Other(Some(places)) => places,
        }
    }
}

impl Places {
    pub(crate) fn push(&mut self, place: Place) {
        *self = match std::mem::take(self) {
            Self::Other(None) => Self::One(place),
            Self::One(first) => Self::Other(Some(Box::new(vec![first, place]))),
            Self::Other(Some(mut places)) => {
                places.push(place);
                Self::Other(Some(places))
            }
        };
    }

    pub(crate) fn retain(&mut self, keeps: impl FnMut(&Place) -> bool) {
        let mut places = match std::mem::take(self) {
            Self::One(place) => vec![place],
            Self::Other(places) => places.map(|places| *places).unwrap_or_default(),
        };
        places.retain(keeps);
        places.into_iter().for_each(|place| self.push(place));
    }
}

impl<'a> IntoIterator for &'a Places {
    type Item = &'a Place;
    type IntoIter = std::slice::Iter<'a, Place>;

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
        assert_eq!(size_of::<Places>(), size_of::<Place>());
        let place = |name: &str| Place::new(Ino::ROOT, OsStr::new(name));
        let mut places = Places::default();
        assert!(places.is_empty());
        for name in ["a", "b", "c"] {
            places.push(place(name));
        }
        assert_eq!(places[..], [place("a"), place("b"), place("c")]);
        places.retain(|one| *one != place("b"));
        assert_eq!(places[..], [place("a"), place("c")]);
        places.retain(|one| *one == place("c"));
        assert!(matches!(&places, Places::One(one) if *one == place("c")));
        places.retain(|_| false);
        assert!(places.is_empty() && matches!(places, Places::Other(None)));
    }
}
