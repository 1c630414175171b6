//! The turning of a disk.

use super::Ps;

/// Remainders by a fixed divisor without a division.
///
/// Source: Granlund and Montgomery, *Division by Invariant Integers using Multiplication* (PLDI 1994), with one correction step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    period: u64,
    /// `floor(2^64 / period)`: the quotient by it is right or 1 too small.
    reciprocal: u64,
}

impl Turn {
    pub(crate) fn new(period: Ps) -> Turn {
        Turn {
            period: period.0,
            reciprocal: u64::MAX / period.0,
        }
    }

    #[inline]
    pub(crate) fn remainder(self, time: u64) -> u64 {
        let quotient = ((u128::from(time) * u128::from(self.reciprocal)) >> 64) as u64;
        let rest = time - quotient * self.period;
        if rest >= self.period { rest - self.period } else { rest }
    }
}
