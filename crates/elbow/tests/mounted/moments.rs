//! Random moments of a job, from its beginning to a little after its end.

use std::time::{Duration, Instant};

use elbow_testkit::cases::{rounds, seed};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Parts of the time that a job takes.
const PARTS: std::ops::Range<f64> = 0.1..1.05;
/// How the time that a job takes is corrected by each that came too early or too late: it is another one while other work begins and ends on
/// the machine. One in five comes too late then.
const LONGER: f64 = 1.05;
const SHORTER: f64 = 0.82;
/// So many times as many rounds are made at most, while the moments are of one kind only.
const EXTRA: u64 = 4;

/// When to interfere with each of many jobs that do the same.
pub(crate) struct Moments {
    usual: Duration,
    random: StdRng,
    rounds: u64,
    /// So many interferences came in time, and too late.
    in_time: u64,
    late: u64,
}

impl Moments {
    /// Of so many jobs in a usual run, of which the first takes its time now.
    pub(crate) fn of(usual_rounds: u64, job: impl FnOnce()) -> Self {
        let began = Instant::now();
        job();
        Self {
            usual: began.elapsed(),
            random: StdRng::seed_from_u64(seed()),
            rounds: rounds(usual_rounds),
            in_time: 0,
            late: 0,
        }
    }

    /// The number of the next round and its moment; `None` when it was enough.
    pub(crate) fn next(&mut self) -> Option<(u64, Duration)> {
        let round = self.in_time + self.late;
        let is_enough = self.in_time > 0 && self.late > 0 || round >= EXTRA * self.rounds;
        if round >= self.rounds && is_enough {
            return None;
        }
        Some((round, self.usual.mul_f64(self.random.random_range(PARTS))))
    }

    /// Whether the job had done all that it does by then.
    pub(crate) fn note(&mut self, was_late: bool) {
        self.late += u64::from(was_late);
        self.in_time += u64::from(!was_late);
        // The first may have been in a quiet moment: as long as none comes too late, it is looked for in larger steps.
        let longer = if self.late == 0 { 1.0 / SHORTER } else { LONGER };
        self.usual = self.usual.mul_f64(if was_late { SHORTER } else { longer });
    }

    /// The job had not even begun, and the interference was none: the round does not count.
    pub(crate) fn note_early(&mut self) {
        self.usual = self.usual.div_f64(SHORTER);
    }

    /// Both kinds were there: the tree was the old one after some of them, and the new one after others.
    #[track_caller]
    pub(crate) fn assert_both(&self) {
        let Self { in_time, late, .. } = self;
        eprintln!("{in_time} times the old tree, {late} times the new one");
        assert!(
            *in_time > 0 && *late > 0,
            "the moments were of one kind only: {in_time} and {late}"
        );
    }
}
