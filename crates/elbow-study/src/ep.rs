//! NAS EP on streams: pairs of Gaussian deviates, made in one pass and used up in another.
//!
//! ```text
//!   generator --pairs (x, y)--> stream --scan, consume--> accepted pairs (X, Y) --> stream --> sums
//! ```
//!
//! Numbers are `x(k+1) = 5^13 x(k) mod 2^46`. A pair of them, scaled to (-1, 1), is accepted when `t = x^2 + y^2 <= 1`; it
//! gives the deviates `x f, y f` with `f = sqrt(-2 ln t / t)`. Their sums are known to eleven digits.
//!
//! On disk are N pairs and about N pi/4 accepted ones: together 1.785 N where the pairs are kept, N where they are
//! freed as they are used.
//!
//! Source: Bailey et al., *The NAS Parallel Benchmarks*, RNR-94-007, section 2.2 and 3.1; Vengroff & Kotz, *A Holesome
//! File System*, section 5.1.

use std::str::FromStr;

use elbow_extmem::sort::Result;
use elbow_extmem::stream::{Scratch, Stream};

/// Multiplier, seed and modulus of the generator.
const MULTIPLIER: u64 = 1_220_703_125; // 5^13
const SEED: u64 = 271_828_183;
const MODULUS_BITS: u32 = 46;
/// The sums of a run differ by no more than this, relatively, from the official ones.
const TOLERANCE: f64 = 1e-8;

/// A pair of numbers.
pub type Pair = [f64; 2];

/// The size of the problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// 2^24 pairs, 256 MiB.
    S,
    /// 2^25 pairs, 512 MiB.
    W,
    /// 2^28 pairs, 4 GiB.
    A,
    /// 2^30 pairs, 16 GiB.
    B,
    /// 2^32 pairs, 64 GiB.
    C,
}

/// What a run gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sums {
    /// Sum of the first deviates of all pairs.
    pub x: f64,
    /// Sum of the second ones.
    pub y: f64,
    /// Accepted pairs.
    pub accepted: u64,
    /// Most disk space that the streams took, in bytes, as the file system counts it.
    pub peak_disk_bytes: u64,
}

impl Class {
    /// Number of pairs.
    #[must_use]
    pub fn pairs(self) -> u64 {
        let power = match self {
            Self::S => 24,
            Self::W => 25,
            Self::A => 28,
            Self::B => 30,
            Self::C => 32,
        };
        1 << power
    }

    /// The official sums, and the number of accepted pairs where it is published.
    #[must_use]
    pub fn expected(self) -> (f64, f64, Option<u64>) {
        match self {
            Self::S => (-3.247_834_652_034_74e3, -6.958_407_078_382_297e3, Some(13_176_389)),
            Self::W => (-2.863_319_731_645_753e3, -6.320_053_679_109_499e3, Some(26_354_769)),
            Self::A => (-4.295_875_165_629_892e3, -1.580_732_573_678_431e4, Some(210_832_767)),
            Self::B => (4.033_815_542_441_498e4, -2.660_669_192_809_235e4, None),
            Self::C => (4.764_367_927_995_374e4, -8.084_072_988_043_731e4, None),
        }
    }

    /// Are these the official sums?
    #[must_use]
    pub fn verifies(self, sums: &Sums) -> bool {
        let (x, y, accepted) = self.expected();
        let is_close = |got: f64, expected: f64| ((got - expected) / expected).abs() <= TOLERANCE;
        is_close(sums.x, x) && is_close(sums.y, y) && accepted.is_none_or(|accepted| accepted == sums.accepted)
    }
}

/// A letter that is no class.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no class: S, W, A, B or C")]
pub struct UnknownClass(String);

impl FromStr for Class {
    type Err = UnknownClass;

    fn from_str(text: &str) -> std::result::Result<Self, UnknownClass> {
        Ok(match text {
            "S" => Self::S,
            "W" => Self::W,
            "A" => Self::A,
            "B" => Self::B,
            "C" => Self::C,
            _ => return Err(UnknownClass(text.to_owned())),
        })
    }
}

/// Makes `pairs` pairs, takes the deviates from them and sums these up. `consumes`: pairs are freed as they are read.
///
/// ```
/// use std::sync::Arc;
/// use elbow_study::ep;
/// use elbow_extmem::stream::{MemoryBudget, Scratch};
/// use elbow_file::RealStorage;
///
/// let directory = tempfile::tempdir()?;
/// let dir = RealStorage::open_root(directory.path())?;
/// let scratch = Scratch::new(Arc::new(RealStorage), dir, directory.path().into(), MemoryBudget::new(16 << 20));
/// let sums = ep::run(&scratch, 1 << 12, true)?;
/// assert!((0.75..0.82).contains(&(sums.accepted as f64 / 4096.0))); // about pi/4
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// A storage error, or too small a memory budget.
pub fn run(scratch: &Scratch, pairs: u64, consumes: bool) -> Result<Sums> {
    let uniform = uniform_pairs(scratch, pairs)?;
    let before = uniform.disk_bytes()?;
    let kept = uniform.share();
    let reader = if consumes { uniform.consume()? } else { uniform.read()? };
    let mut writer = scratch.writer()?;
    for pair in reader {
        if let Some(deviates) = deviates(pair?) {
            writer.push(deviates)?;
        }
    }
    let accepted: Stream<Pair> = writer.finish()?;
    let after = kept.disk_bytes()? + accepted.disk_bytes()?;
    let mut sums = Sums {
        x: 0.0,
        y: 0.0,
        accepted: accepted.records(),
        peak_disk_bytes: before.max(after),
    };
    drop(kept);
    for pair in accepted.consume()? {
        let [x, y] = pair?;
        (sums.x, sums.y) = (sums.x + x, sums.y + y);
    }
    Ok(sums)
}

/// Pairs of numbers in (-1, 1), in the order of the generator.
fn uniform_pairs(scratch: &Scratch, pairs: u64) -> Result<Stream<Pair>> {
    let mut writer = scratch.writer()?;
    let mut state = SEED;
    let mut next = || {
        state = state.wrapping_mul(MULTIPLIER) & ((1 << MODULUS_BITS) - 1);
        2.0 * (state as f64 / (1_u64 << MODULUS_BITS) as f64) - 1.0
    };
    for _ in 0..pairs {
        writer.push([next(), next()])?;
    }
    writer.finish()
}

/// The deviates of a pair, if it is accepted.
fn deviates([x, y]: Pair) -> Option<Pair> {
    let t = x * x + y * y;
    let factor = (-2.0 * t.ln() / t).sqrt();
    (t <= 1.0).then_some([x * factor, y * factor])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Class S itself is a test of the command.
    #[test]
    fn streams_give_the_sums_that_a_loop_gives() {
        use std::sync::Arc;

        use elbow_file::RealStorage;

        use elbow_extmem::stream::MemoryBudget;

        let place = tempfile::tempdir().expect("a directory");
        let dir = RealStorage::open_root(place.path()).expect("the directory");
        let scratch = Scratch::new(
            Arc::new(RealStorage),
            dir,
            place.path().into(),
            MemoryBudget::new(16 << 20),
        );
        let pairs = 1 << 18;
        let (kept, consumed) = (run(&scratch, pairs, false), run(&scratch, pairs, true));
        let (kept, consumed) = (kept.expect("a run"), consumed.expect("a run"));
        let accepted = uniform_pairs(&scratch, pairs)
            .expect("pairs")
            .consume()
            .expect("a reader");
        let accepted: Vec<Pair> = accepted.filter_map(|pair| deviates(pair.expect("a pair"))).collect();
        let sum = accepted
            .iter()
            .fold([0.0, 0.0], |[x, y], pair| [x + pair[0], y + pair[1]]);
        for sums in [kept, consumed] {
            assert_eq!((sums.x, sums.y, sums.accepted), (sum[0], sum[1], accepted.len() as u64));
        }
        let bytes = pairs * size_of::<Pair>() as u64;
        assert!(kept.peak_disk_bytes > bytes * 17 / 10, "{kept:?}");
        assert!(consumed.peak_disk_bytes < bytes * 17 / 10, "{consumed:?}");
    }

    #[test]
    fn classes_verify_their_own_sums_and_no_others() {
        for class in [Class::S, Class::W, Class::A, Class::B, Class::C] {
            let (x, y, accepted) = class.expected();
            let accepted = accepted.unwrap_or(1);
            let good = Sums {
                x,
                y,
                accepted,
                peak_disk_bytes: 0,
            };
            assert!(class.verifies(&good));
            assert!(!class.verifies(&Sums {
                x: x * (1.0 + 1e-7),
                ..good
            }));
            assert!(!class.verifies(&Sums { y: -y, ..good }));
        }
        assert!(!Class::S.verifies(&Sums {
            accepted: 1,
            x: Class::S.expected().0,
            y: Class::S.expected().1,
            peak_disk_bytes: 0
        }));
        assert!("X".parse::<Class>().is_err());
    }
}
