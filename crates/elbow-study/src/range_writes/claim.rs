//! What *Range Writes* says, what comes out here, and whether the two agree.

use std::fmt;

/// Whether a claim holds here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The numbers agree with the claim.
    Reproduced,
    /// The effect is there, but by as much as a third more or less, or only under some of the conditions tried.
    InPart,
    /// The numbers contradict it.
    Refuted,
}

impl Verdict {
    /// Does it hold?
    ///
    /// ```
    /// assert!(elbow_study::range_writes::Verdict::Reproduced.is_reproduced());
    /// ```
    #[must_use]
    pub fn is_reproduced(self) -> bool {
        self == Verdict::Reproduced
    }

    /// What several conditions say together: all of them, some, or none.
    pub(super) fn together(verdicts: impl IntoIterator<Item = Verdict>) -> Verdict {
        let is_one = |first: Verdict, next: Verdict| if first == next { first } else { Verdict::InPart };
        verdicts.into_iter().reduce(is_one).expect("a condition")
    }
}

impl From<bool> for Verdict {
    fn from(holds: bool) -> Verdict {
        if holds { Verdict::Reproduced } else { Verdict::Refuted }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.pad(match self {
            Verdict::Reproduced => "reproduced",
            Verdict::InPart => "in part",
            Verdict::Refuted => "refuted",
        })
    }
}

/// Why something does not hold that does with more requests and other seeds.
pub(super) const SCATTER: &str =
    "Not with this seed and so few requests; it holds without --quick and with the first seed";

/// One sentence of *Range Writes*.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What is said, in our words.
    pub says: &'static str,
    /// The number that *Range Writes* gives, or `-` where it gives none.
    pub paper: &'static str,
    /// Ours.
    pub ours: String,
    /// Whether they agree.
    pub verdict: Verdict,
    /// Why, or why not.
    pub reason: String,
}

impl Claim {
    /// Says whether it holds, and why; the second reason is for when it does not at all.
    pub(super) fn new(
        says: &'static str,
        paper: &'static str,
        ours: String,
        holds: impl Into<Verdict>,
        [reason, excuse]: [&str; 2],
    ) -> Claim {
        let verdict = holds.into();
        let reason = if verdict == Verdict::Refuted { excuse } else { reason };
        Claim {
            says,
            paper,
            ours,
            verdict,
            reason: reason.to_owned(),
        }
    }
}

/// Is a number as another, within a part of it?
pub(super) fn near(is: f64, expected: f64, tolerance: f64) -> bool {
    (is / expected - 1.0).abs() <= tolerance
}

/// Is a gain or loss in percent as *Range Writes* has it? It is within 15 % of it, and in part within a third: what
/// *Range Writes* leaves open changes them so much.
pub(super) fn as_much(is: f64, paper: f64) -> Verdict {
    if near(is, paper, 0.15) {
        Verdict::Reproduced
    } else if near(is, paper, 1.0 / 3.0) {
        Verdict::InPart
    } else {
        Verdict::Refuted
    }
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
        let of = |verdict: Verdict| Claim::new("it is so", "1", "2".into(), verdict, ["because", "because not"]);
        let reasons = [
            (Verdict::Reproduced, "because"),
            (Verdict::InPart, "because"),
            (Verdict::Refuted, "because not"),
        ];
        for (verdict, reason) in reasons {
            assert_eq!((of(verdict).verdict, of(verdict).reason.as_str()), (verdict, reason));
        }
        assert_eq!(of(true.into()).verdict.to_string(), "reproduced");
        assert_eq!(of(false.into()).verdict.to_string(), "refuted");
    }

    #[test]
    fn conditions_that_differ_hold_in_part() {
        use Verdict::{InPart, Refuted, Reproduced};
        assert_eq!(Verdict::together([Reproduced, Reproduced]), Reproduced);
        assert_eq!(Verdict::together([Reproduced, Refuted, Reproduced]), InPart);
        assert_eq!(Verdict::together([Refuted, Refuted]), Refuted);
        assert_eq!(Verdict::together([InPart]), InPart);
    }

    #[test]
    fn near_is_relative_and_to_both_sides() {
        assert!(near(10.4, 10.0, 0.05) && near(9.6, 10.0, 0.05) && near(10.0, 10.0, 0.0));
        assert!(!near(10.6, 10.0, 0.05) && !near(9.4, 10.0, 0.05) && !near(f64::NAN, 10.0, 0.05));
        assert!((change(143.0, 123.1) + 13.9).abs() < 0.05);
    }

    #[test]
    fn a_gain_is_as_the_papers_in_steps() {
        assert_eq!(as_much(-12.3, -13.9), Verdict::Reproduced);
        assert_eq!(as_much(52.0, 70.0), Verdict::InPart);
        assert_eq!(as_much(45.0, 70.0), Verdict::Refuted);
        assert_eq!(as_much(12.3, -13.9), Verdict::Refuted, "the other way");
    }
}
