//! Which member a range write goes to, and in which targets.
//!
//! A member counts its sectors from 0, and so knows an alignment only where its first sector here is a multiple of it.
//! To others places are named one by one, each a range of its own that is just as long as the write, and neighbours
//! never touch:
//!
//! ```text
//!   here      | 16      | 20      | 24      | 28      | 32        alignment 4, a write of 4 sectors
//!   member          0 (is 18)     6         10        14
//!   class 0                       [6..10)             [14..18)    every second place, so that they do not touch
//!   class 1             [2..6)              [10..14)
//! ```
//!
//! So such a member chooses among one class at a time, and of that among [`CHOICES_MAX`] places; what it refuses is
//! asked for in the next. No place is left out in the end.

use std::ops::Range;

use elbow_ranges::RangeSet;

/// Places named to a member one by one, at a time: a drive finds a near one among so many, and the list stays small.
const CHOICES_MAX: usize = 4096;

/// A range write, as far as it matters where it can go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    pub(super) sectors: u64,
    pub(super) alignment: u64,
}

/// What to try on one member.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub(super) member: usize,
    how: How,
}

#[derive(Clone, Debug)]
enum How {
    /// It understands the alignment.
    Aligned,
    /// The places of one class, from the n-th part of them on.
    Places { class: u64, part: usize },
}

impl Need {
    /// Neighbouring places of one class are so many places apart.
    fn classes(self) -> u64 {
        self.sectors / self.alignment + 1
    }

    /// All that can be tried on a member that begins at `first`.
    pub(super) fn choices(self, member: usize, first: u64) -> Vec<Choice> {
        let choice = |how| Choice { member, how };
        match first.is_multiple_of(self.alignment) {
            true => vec![choice(How::Aligned)],
            false => (0..self.classes())
                .map(|class| choice(How::Places { class, part: 0 }))
                .collect(),
        }
    }

    /// The places of a class in sets of targets, in sectors of the whole device.
    fn places(self, targets: &RangeSet, class: u64) -> impl Iterator<Item = Range<u64>> {
        let Self { sectors, alignment } = self;
        let classes = self.classes();
        targets.iter().flat_map(move |range| {
            let first = range.start.div_ceil(alignment);
            let first = first + (class + classes - first % classes) % classes;
            let starts = (first..)
                .step_by(classes as usize)
                .map(move |number| number.checked_mul(alignment));
            starts.map_while(move |start| {
                let end = start?.checked_add(sectors)?;
                (end <= range.end).then_some(end - sectors..end)
            })
        })
    }
}

impl Choice {
    /// The targets for a member of those sectors, as it counts them, and the alignment to ask it for. `targets` are
    /// all, of which the taken ones are not named. `None` when there is nothing (more) of this kind.
    pub(super) fn targets(
        &self,
        need: Need,
        member: &Range<u64>,
        targets: &RangeSet,
        taken: &RangeSet,
    ) -> Option<(RangeSet, u64)> {
        let within: RangeSet = std::iter::once(member.clone()).collect();
        let within = targets.intersection(&within);
        let own = |range: Range<u64>| range.start - member.start..range.end - member.start;
        match self.how {
            How::Aligned => Some((within.difference(taken).iter().map(own).collect(), need.alignment)),
            How::Places { class, part } => {
                let mut places = need
                    .places(&within, class)
                    .skip(part * CHOICES_MAX)
                    .take(CHOICES_MAX)
                    .peekable();
                places.peek()?;
                let free = places.filter(|place| !taken.overlaps(place.start, place.end));
                Some((free.map(own).collect(), 1))
            }
        }
    }

    /// What to try on the same member after this was refused.
    pub(super) fn next(self) -> Option<Self> {
        match self.how {
            How::Aligned => None,
            How::Places { class, part } => Some(Self {
                how: How::Places { class, part: part + 1 },
                ..self
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every aligned place is in just one class, and those of a class do not touch.
    #[test]
    fn classes_share_out_all_places() {
        let targets: RangeSet = [3..40, 41..44, 50..95].into_iter().collect();
        for (sectors, alignment) in [(1, 1), (1, 4), (4, 4), (3, 4), (9, 4), (5, 1), (8, 3)] {
            let need = Need { sectors, alignment };
            let mut all = Vec::new();
            for class in 0..need.classes() {
                let places: Vec<_> = need.places(&targets, class).collect();
                let set: RangeSet = places.iter().cloned().collect();
                assert!(set.iter().eq(places.iter().cloned()), "{need:?}: {places:?} touch");
                all.extend(places);
            }
            all.sort_by_key(|place| place.start);
            let expected = targets
                .iter()
                .flat_map(|range| crate::range_device::places::fits(&range, sectors, alignment));
            assert!(all.iter().map(|place| place.start).eq(expected), "{need:?}: {all:?}");
        }
    }
}
