//! One block of bits: which blocks or inodes of a group are in use.
//!
//! Searches go by words; the free-byte search is by bytes of the bitmap as it lies on the disk (bit 0 of byte 0 first).

use std::ops::Range;

/// Bits, all clear at first.
#[derive(Clone, Debug)]
pub(crate) struct Bitmap {
    words: Vec<u64>,
    bits: u32,
    clear: u32,
}

impl Bitmap {
    pub(crate) fn new(bits: u32) -> Self {
        Self {
            words: vec![0; bits.div_ceil(64) as usize],
            bits,
            clear: bits,
        }
    }

    pub(crate) fn bits(&self) -> u32 {
        self.bits
    }

    /// How many bits are clear.
    pub(crate) fn clear_count(&self) -> u32 {
        self.clear
    }

    pub(crate) fn get(&self, bit: u32) -> bool {
        self.words[(bit / 64) as usize] >> (bit % 64) & 1 == 1
    }

    /// Sets a bit that is clear.
    pub(crate) fn set(&mut self, bit: u32) {
        assert!(bit < self.bits && !self.get(bit), "bit {bit} is in use already");
        self.words[(bit / 64) as usize] |= 1 << (bit % 64);
        self.clear -= 1;
    }

    /// Clears a bit that is set.
    pub(crate) fn unset(&mut self, bit: u32) {
        assert!(bit < self.bits && self.get(bit), "bit {bit} is not in use");
        self.words[(bit / 64) as usize] &= !(1 << (bit % 64));
        self.clear += 1;
    }

    /// The first clear bit in a range.
    pub(crate) fn first_clear(&self, within: Range<u32>) -> Option<u32> {
        self.first(within, false)
    }

    /// The first bit of a value in a range.
    fn first(&self, within: Range<u32>, value: bool) -> Option<u32> {
        let end = within.end.min(self.bits);
        let mut at = within.start;
        while at < end {
            let word = self.words[(at / 64) as usize];
            let wanted = (if value { word } else { !word }) >> (at % 64);
            if wanted != 0 {
                let found = at + wanted.trailing_zeros();
                return (found < end).then_some(found);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    /// The first byte at or after the one that holds a bit, in which no bit is set; as the number of its first bit.
    pub(crate) fn first_clear_byte(&self, from: u32) -> Option<u32> {
        let byte = |number: u32| self.words[(number / 8) as usize] >> (number % 8 * 8) & 0xff;
        (from / 8..self.bits / 8)
            .find(|&number| byte(number) == 0)
            .map(|number| number * 8)
    }

    /// Maximal runs of clear bits within a range.
    pub(crate) fn clear_runs(&self, within: Range<u32>) -> impl Iterator<Item = Range<u32>> + '_ {
        let end = within.end.min(self.bits);
        let mut at = within.start;
        std::iter::from_fn(move || {
            let start = self.first(at..end, false)?;
            at = self.first(start..end, true).unwrap_or(end);
            Some(start..at)
        })
    }

    /// As it lies on the disk: what is beyond the last bit is set.
    pub(crate) fn to_block(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.resize(crate::BLOCK_BYTES, 0xff);
        for bit in self.bits..(self.bits.div_ceil(64) * 64) {
            bytes[(bit / 8) as usize] |= 1 << (bit % 8);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// Against a vector of booleans.
    #[test]
    fn searches_agree_with_naive_ones() {
        for seed in 0..200 {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            let bits = rng.random_range(1..400);
            let (mut map, mut naive) = (Bitmap::new(bits), vec![false; bits as usize]);
            for _ in 0..rng.random_range(0..bits * 2) {
                let bit = rng.random_range(0..bits);
                match naive[bit as usize] {
                    true => map.unset(bit),
                    false => map.set(bit),
                }
                naive[bit as usize] ^= true;
            }
            let clear = |bit: &u32| !naive[*bit as usize];
            assert_eq!(
                map.clear_count() as usize,
                (0..bits).filter(clear).count(),
                "seed {seed}"
            );
            let (a, b) = (rng.random_range(0..bits), rng.random_range(0..=bits));
            assert_eq!(map.first_clear(a..b), (a..b).find(clear), "seed {seed}");
            let byte = (a / 8..bits / 8).find(|byte| (byte * 8..byte * 8 + 8).all(|bit| clear(&bit)));
            assert_eq!(map.first_clear_byte(a), byte.map(|byte| byte * 8), "seed {seed}");
            let runs: Vec<_> = map.clear_runs(a..b).collect();
            let listed: Vec<u32> = runs.iter().cloned().flatten().collect();
            assert_eq!(listed, (a..b).filter(clear).collect::<Vec<_>>(), "seed {seed}");
            assert!(
                runs.windows(2).all(|pair| pair[0].end < pair[1].start),
                "seed {seed}: maximal"
            );
        }
    }

    #[test]
    fn what_is_beyond_the_end_is_set_on_disk() {
        let mut map = Bitmap::new(10);
        map.set(1);
        assert_eq!(map.to_block()[..3], [0b10, 0b1111_1100, 0xff]);
        assert_eq!(map.to_block().len(), 4096);
    }
}
