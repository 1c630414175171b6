//! What *Range Writes* says, what comes out here, and whether the two agree.
//!
//! The rules, the same for all figures:
//!
//! | *Range Writes* says | reproduced | in part |
//! |---|---|---|
//! | a number ([`as_much`]) | ours is within 15 % of its value | within a third of it |
//! | "eliminated", "no overhead" ([`gone`]) | less than 15 % is left | less than a third |
//! | "no better", "no worse", "not much difference" for a whole program | within 1 %, or within the interval over seeds | |
//! | "little" ([`LITTLE`]) | less than 8 % | |
//! | "over" and "increases" | it is | |
//! | anything, under several conditions | all of them agree | some do |
//! | a gain, over all settings of something it leaves open ([`over`]) | ranges win in all, and one gives the number | one of the two |
//!
//! A number in the column of *Range Writes* stands in its text. What we derive from its equations, or add, is a statement of
//! ours ([`Author::Ours`]) and no claim.

use std::fmt;

/// Whether a claim holds here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The numbers agree with the claim.
    Reproduced,
    /// The effect is there, but by as much as a third of its value more or less, or only under some of the conditions tried.
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

/// Ours may be so much of a number more or less, relative to its value.
pub const TOLERANCE: f64 = 0.15;
/// And so much for a verdict of *in part*: what *Range Writes* leaves open changes gains so much.
const IN_PART: f64 = 1.0 / 3.0;
/// A change of fewer percent is little.
pub(super) const LITTLE: f64 = 8.0;
/// A change of no more percent is none.
pub(super) const NONE: f64 = 1.0;

/// Whose a statement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author {
    /// *Range Writes* says it.
    Paper,
    /// We do, of what was seen on the way. It does not count as a claim.
    Ours,
}

/// One sentence, of *Range Writes* or ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Who says it.
    pub by: Author,
    /// What is said, in our words.
    pub says: &'static str,
    /// What its text has, and where; `-` for a statement of ours.
    pub paper: &'static str,
    /// Ours.
    pub ours: String,
    /// Whether they agree.
    pub verdict: Verdict,
    /// Why, or why not.
    pub reason: String,
}

impl Claim {
    /// Says whether a claim of *Range Writes* holds, and why; the second reason is for when it does not at all.
    pub(super) fn new(
        says: &'static str,
        paper: &'static str,
        ours: String,
        holds: impl Into<Verdict>,
        reasons: [&str; 2],
    ) -> Claim {
        let verdict = holds.into();
        let reason = reasons[usize::from(verdict == Verdict::Refuted)].to_owned();
        Claim {
            by: Author::Paper,
            says,
            paper,
            ours,
            verdict,
            reason,
        }
    }

    /// The same of a statement of ours.
    pub(super) fn ours(says: &'static str, ours: String, holds: impl Into<Verdict>, reasons: [&str; 2]) -> Claim {
        Claim {
            by: Author::Ours,
            ..Claim::new(says, "-", ours, holds, reasons)
        }
    }
}

/// Is a number as another, within a part of its value?
pub(super) fn near(is: f64, expected: f64, tolerance: f64) -> bool {
    (is / expected - 1.0).abs() <= tolerance
}

/// Is a number as *Range Writes* has it?
pub(super) fn as_much(is: f64, paper: f64) -> Verdict {
    step(near(is, paper, TOLERANCE), near(is, paper, IN_PART))
}

/// Is nothing left of what was?
pub(super) fn gone(is: f64, was: f64) -> Verdict {
    step(is < TOLERANCE * was, is < IN_PART * was)
}

/// Is a gain (in percent, less than nothing) as *Range Writes* has it, where all that is known is what comes out of many settings?
/// One of them has to give the number, and none the opposite.
pub(super) fn over(outcomes: &[f64], paper: f64) -> Verdict {
    let is_met = outcomes.iter().any(|&is| near(is, paper, TOLERANCE));
    let wins = outcomes.iter().all(|&is| is < 0.0);
    step(is_met && wins, is_met || wins)
}

fn step(holds: bool, in_part: bool) -> Verdict {
    match (holds, in_part) {
        (true, _) => Verdict::Reproduced,
        (false, true) => Verdict::InPart,
        (false, false) => Verdict::Refuted,
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

    /// Figure 11's 20 % was taken to be anything from 14 to 27, with 15 % said to be the tolerance everywhere.
    #[test]
    fn twenty_percent_is_17_to_23() {
        let verdicts = [13.0, 14.0, 16.9, 17.1, 20.0, 22.9, 23.1, 26.6, 27.0].map(|is| as_much(is, 20.0));
        use Verdict::{InPart, Refuted, Reproduced};
        let (part, whole) = (InPart, Reproduced);
        assert_eq!(
            verdicts,
            [Refuted, part, part, whole, whole, whole, part, part, Refuted]
        );
    }

    #[test]
    fn many_settings_have_to_agree_on_who_wins() {
        assert_eq!(over(&[-5.0, -14.0, -30.0], -13.9), Verdict::Reproduced);
        assert_eq!(over(&[-5.0, -14.0, 3.0], -13.9), Verdict::InPart, "ranges lose in one");
        assert_eq!(over(&[-5.0, -30.0], -13.9), Verdict::InPart, "the number is never met");
        assert_eq!(over(&[5.0, -30.0], -13.9), Verdict::Refuted);
    }

    #[test]
    fn gone_is_less_than_the_tolerance_of_what_was() {
        let verdicts = [0.0, 0.8, 0.9, 1.8, 1.9].map(|is| gone(is, 5.6));
        use Verdict::{InPart, Refuted, Reproduced};
        assert_eq!(verdicts, [Reproduced, Reproduced, InPart, InPart, Refuted]);
    }
}
