//! A set of small numbers that finds the lowest absent one at once.
//!
//! ```text
//!   level 1    1 1 0 ...              bit n: word n of level 0 is full
//!              |   \
//!   level 0    11..1  11..1  0110..   bit n: n is in the set
//! ```
//!
//! Invariants: the top level is one word; a bit of a higher level is set exactly if its whole word below is. Every
//! operation but growth and [`Bitset::last_below`] looks at one word per level: five for a thousand million numbers.
//! Memory is one bit for every number up to the largest that was ever in the set, and a 63rd of that.

const WORD_BITS: u64 = u64::BITS as u64;

#[derive(Debug)]
pub(super) struct Bitset {
    levels: Vec<Vec<u64>>,
}

impl Bitset {
    pub(super) fn new() -> Self {
        Self { levels: vec![vec![0]] }
    }

    pub(super) fn contains(&self, number: u64) -> bool {
        let word = self.levels[0].get((number / WORD_BITS) as usize);
        word.is_some_and(|word| word >> (number % WORD_BITS) & 1 == 1)
    }

    /// Adds a number; whether it was absent.
    pub(super) fn insert(&mut self, mut number: u64) -> bool {
        if self.contains(number) {
            return false;
        }
        self.grow((number / WORD_BITS) as usize + 1);
        for level in &mut self.levels {
            let word = &mut level[(number / WORD_BITS) as usize];
            *word |= 1 << (number % WORD_BITS);
            if *word != u64::MAX {
                break;
            }
            number /= WORD_BITS;
        }
        true
    }

    /// Takes a number away; whether it was there.
    pub(super) fn remove(&mut self, mut number: u64) -> bool {
        if !self.contains(number) {
            return false;
        }
        for level in &mut self.levels {
            let word = &mut level[(number / WORD_BITS) as usize];
            let was_full = *word == u64::MAX;
            *word &= !(1 << (number % WORD_BITS));
            if !was_full {
                break;
            }
            number /= WORD_BITS;
        }
        true
    }

    /// The lowest number that is not in the set.
    pub(super) fn first_absent(&self) -> u64 {
        let mut index = 0;
        for level in self.levels.iter().rev() {
            // A word that is not there yet holds nothing, and so do all below it.
            let word = level.get(index as usize).copied().unwrap_or(0);
            index = index * WORD_BITS + u64::from(word.trailing_ones());
        }
        index
    }

    /// The highest number in the set below a bound. Looks at every empty word below the bound.
    pub(super) fn last_below(&self, bound: u64) -> Option<u64> {
        let index = (bound / WORD_BITS) as usize;
        let partial = self.word(index) & ((1 << (bound % WORD_BITS)) - 1);
        let below = index.min(self.levels[0].len());
        std::iter::once((index, partial))
            .chain((0..below).rev().map(|index| (index, self.levels[0][index])))
            .find(|&(_, word)| word != 0)
            .map(|(index, word)| index as u64 * WORD_BITS + u64::from(word.ilog2()))
    }

    /// The members `64 * index ..` of the set, as bits.
    pub(super) fn word(&self, index: usize) -> u64 {
        self.levels[0].get(index).copied().unwrap_or(0)
    }

    /// All members, in order, as ranges that do not touch.
    pub(super) fn ranges(&self) -> impl Iterator<Item = std::ops::Range<u64>> + '_ {
        let mut from = 0;
        std::iter::from_fn(move || {
            let start = self.next(from, false)?;
            let end = self.next(start, true).unwrap_or(self.capacity());
            from = end;
            Some(start..end)
        })
    }

    /// The first number from one on that is absent, or present.
    fn next(&self, from: u64, absent: bool) -> Option<u64> {
        let flip = if absent { u64::MAX } else { 0 };
        let first = (from / WORD_BITS) as usize;
        let mut mask = u64::MAX << (from % WORD_BITS);
        for (index, word) in self.levels[0].iter().enumerate().skip(first) {
            let found = (word ^ flip) & mask;
            if found != 0 {
                return Some(index as u64 * WORD_BITS + u64::from(found.trailing_zeros()));
            }
            mask = u64::MAX;
        }
        None
    }

    fn capacity(&self) -> u64 {
        self.levels[0].len() as u64 * WORD_BITS
    }

    /// Makes room for so many words of members.
    fn grow(&mut self, mut words: usize) {
        for level in &mut self.levels {
            if level.len() >= words {
                return;
            }
            level.resize(words, 0);
            words = words.div_ceil(WORD_BITS as usize);
        }
        while let Some(top) = self.levels.last().filter(|top| top.len() > 1) {
            let full = top.chunks(WORD_BITS as usize).map(|words| {
                let full = words.iter().enumerate().filter(|&(_, &word)| word == u64::MAX);
                full.fold(0, |bits, (bit, _)| bits | 1 << bit)
            });
            let above = full.collect();
            self.levels.push(above);
        }
    }
}

impl FromIterator<u64> for Bitset {
    fn from_iter<I: IntoIterator<Item = u64>>(numbers: I) -> Self {
        let mut set = Self::new();
        numbers.into_iter().for_each(|number| {
            set.insert(number);
        });
        set
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn it_is_the_set_of_a_model() {
        for seed in 0..40 {
            let mut rng = StdRng::seed_from_u64(seed);
            // Small sets stay in one level; large ones, filled from below, get three.
            let numbers = [50, 64, 5_000, 300_000][seed as usize % 4];
            let (mut set, mut model) = (Bitset::new(), BTreeSet::new());
            for number in 0..rng.random_range(0..numbers) {
                set.insert(number);
                model.insert(number);
            }
            for _ in 0..2_000 {
                let number = rng.random_range(0..numbers);
                if rng.random() {
                    assert_eq!(set.insert(number), model.insert(number), "seed {seed}");
                } else {
                    assert_eq!(set.remove(number), model.remove(&number), "seed {seed}");
                }
                assert!(model.contains(&number) == set.contains(number));
            }
            let absent = (0..).find(|number| !model.contains(number)).expect("a finite set");
            assert_eq!(set.first_absent(), absent, "seed {seed}");
            for bound in [0, 1, 63, 64, 65, numbers / 2, numbers, 10 * numbers] {
                assert_eq!(
                    set.last_below(bound),
                    model.range(..bound).last().copied(),
                    "seed {seed}"
                );
            }
            let members: Vec<u64> = set.ranges().flatten().collect();
            assert!(members.iter().eq(model.iter()), "seed {seed}");
            assert!(
                set.ranges()
                    .zip(set.ranges().skip(1))
                    .all(|(one, next)| one.end < next.start)
            );
        }
    }

    #[test]
    fn a_full_set_grows_by_one_level_at_a_time() {
        let mut set = Bitset::new();
        for number in 0..64 * 64 + 1 {
            assert_eq!(set.first_absent(), number);
            assert!(set.insert(number));
        }
        assert_eq!(set.levels.len(), 3);
        assert!(set.remove(77) && set.first_absent() == 77);
    }
}
