//! What the paper says, what comes out here, and whether the two agree.

use std::fmt;

/// Whether a claim holds here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It does.
    Reproduced,
    /// It does not.
    Refuted,
}

impl Verdict {
    /// Does it hold?
    ///
    /// ```
    /// assert!(elbow_disk::study::Verdict::Reproduced.is_reproduced());
    /// ```
    #[must_use]
    pub fn is_reproduced(self) -> bool {
        self == Verdict::Reproduced
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.pad(match self {
            Verdict::Reproduced => "reproduced",
            Verdict::Refuted => "refuted",
        })
    }
}

/// Why something does not hold that does with more requests and other seeds.
pub(super) const SCATTER: &str =
    "Not with this seed and so few requests; it holds without --quick and with the first seed";

/// One sentence of the paper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What is said, in our words.
    pub says: &'static str,
    /// The paper's number, or `-` where it gives none.
    pub paper: &'static str,
    /// Ours.
    pub ours: String,
    /// Whether they agree.
    pub verdict: Verdict,
    /// Why, or why not.
    pub reason: String,
}

impl Claim {
    /// Says whether it holds, and why; the second reason is for when it does not.
    pub(super) fn new(says: &'static str, paper: &'static str, ours: String, holds: bool, reasons: [&str; 2]) -> Claim {
        let [reason, excuse] = reasons;
        Claim {
            says,
            paper,
            ours,
            verdict: if holds { Verdict::Reproduced } else { Verdict::Refuted },
            reason: if holds { reason } else { excuse }.to_owned(),
        }
    }
}

/// Is a number as another, within a part of it?
pub(super) fn near(is: f64, expected: f64, tolerance: f64) -> bool {
    (is / expected - 1.0).abs() <= tolerance
}

/// Is a gain or loss in percent as the paper's, within a third of it? What it leaves open changes them so much.
pub(super) fn as_much(is: f64, paper: f64) -> bool {
    near(is, paper, 1.0 / 3.0)
}

/// A change in percent, with its sign.
pub(super) fn change(from: f64, to: f64) -> f64 {
    (to / from - 1.0) * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_has_the_reason_of_its_verdict() {
        let of = |holds| Claim::new("it is so", "1", "2".into(), holds, ["because", "because not"]);
        assert_eq!(
            (of(true).verdict, of(true).reason.as_str()),
            (Verdict::Reproduced, "because")
        );
        assert_eq!(
            (of(false).verdict, of(false).reason.as_str()),
            (Verdict::Refuted, "because not")
        );
        assert_eq!(of(false).verdict.to_string(), "refuted");
    }

    #[test]
    fn near_is_relative_and_to_both_sides() {
        assert!(near(10.4, 10.0, 0.05) && near(9.6, 10.0, 0.05) && near(10.0, 10.0, 0.0));
        assert!(!near(10.6, 10.0, 0.05) && !near(9.4, 10.0, 0.05) && !near(f64::NAN, 10.0, 0.05));
        assert!((change(143.0, 123.1) + 13.9).abs() < 0.05);
        assert!(as_much(-12.3, -13.9) && as_much(52.0, 70.0) && !as_much(45.0, 70.0) && !as_much(12.3, -13.9));
    }
}
