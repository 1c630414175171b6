//! What somebody would do about where the time went: only where that is clear.

use elbow_job::{EndStep, WaitReason};

use super::summary::Summary;
use super::words::seconds;

/// What takes less of the run than this is not worth a sentence.
const SHARE_MIN: f64 = 0.15;
const SECONDS_MIN: f64 = 0.1;
/// More sentences are no advice.
const SENTENCES: usize = 2;
/// A command that computes for so much of the run gains nothing by a quicker storage.
const COMPUTES: f64 = 0.9;

/// When most of what is new is in one directory, and the storage is done with few things at once, then that is why.
const CROWDED: f64 = 0.8;
const CROWD_MIN: u64 = 50;
const CROWD_AT_ONCE: f64 = 6.0;

/// Up to two sentences, about what took longest first.
pub(super) fn advice(summary: &Summary) -> Vec<String> {
    let is_worth_it = |took: f64| took >= SECONDS_MIN && took >= SHARE_MIN * summary.total_seconds;
    let mut found: Vec<(f64, String)> = of_waits(summary)
        .chain(of_steps(summary))
        .chain(of_drain(summary))
        .filter(|(took, _)| is_worth_it(*took))
        .collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    let sentences: Vec<String> = found.into_iter().take(SENTENCES).map(|(_, words)| words).collect();
    if sentences.is_empty() && summary.computing_seconds >= COMPUTES * summary.total_seconds {
        let took = seconds(summary.computing_seconds);
        return vec![format!(
            "the command computed for {took} and hardly waited: a quicker storage would not help it"
        )];
    }
    sentences
}

fn of_waits(summary: &Summary) -> impl Iterator<Item = (f64, String)> {
    summary.waits.iter().filter_map(|wait| {
        let took = seconds(wait.seconds);
        let words = match () {
            () if wait.reason == WaitReason::Read.name() => format!(
                "the command waited {took} for old data to be read; what is read often or at random is better copied to a local disk first"
            ),
            () if wait.reason == WaitReason::List.name() => {
                format!("the command waited {took} for old directories to be listed")
            }
            () if wait.reason == WaitReason::Memory.name() => format!(
                "the command waited {took} because written data filled the memory: a larger --mem, or --scratch on a local disk, takes more of it"
            ),
            () if wait.reason == WaitReason::Fsync.name() => format!(
                "the command waited {took} for fsync(2), which --durable makes wait: without it everything is durable when the job is committed"
            ),
            () => return None,
        };
        Some((wait.seconds, words))
    })
}

fn of_steps(summary: &Summary) -> impl Iterator<Item = (f64, String)> {
    summary.steps.iter().filter_map(|step| {
        let took = seconds(step.seconds);
        let words = match () {
            () if step.step == EndStep::Sync.name() => format!(
                "the commit waited {took} for the storage to sync: all that was written had to become durable before any of it was published"
            ),
            () if step.step == EndStep::Turn.name() => format!(
                "the commit waited {took} for another job, which was being committed in the same directory"
            ),
            () if step.step == EndStep::Check.name() => format!(
                "the commit took {took} to look whether somebody else has changed what the job saw: a job over a smaller directory looks at less"
            ),
            () => return None,
        };
        Some((step.seconds, words))
    })
}

fn of_drain(summary: &Summary) -> impl Iterator<Item = (f64, String)> {
    let (took, at_once) = (seconds(summary.drain_seconds), summary.actions.mean_parallel);
    let why = match &summary.busiest {
        Some(busiest) if busiest.share >= CROWDED && busiest.made >= CROWD_MIN && at_once < CROWD_AT_ONCE => format!(
            "{} of the new objects are in {}, and a directory takes one at a time: over several directories they would be made at once",
            busiest.made, busiest.directory
        ),
        _ => "the command writes faster than the storage takes it".to_owned(),
    };
    let words = format!(
        "after the command {took} went by until the storage had all of it, {at_once:.1} actions at a time: {why}"
    );
    std::iter::once((summary.drain_seconds, words))
}

#[cfg(test)]
mod tests {
    use super::super::event::{COMMAND, Category, Event, Phase, RUN, STEPS};
    use super::super::reader::End;
    use super::super::summary::Collector;
    use super::*;

    const SECOND: f64 = 1e6;

    /// A command of one second, and then these steps of so many.
    fn advised(steps: &[(&str, f64)], waits: &[(&str, f64)]) -> Vec<String> {
        let mut collector = Collector::default();
        let mut step = |name: &str, pid, from: f64, to: f64| {
            for (ph, at) in [(Phase::Begin, from), (Phase::End, to)] {
                collector.take(Event::new(name, Category::Step, ph, pid, STEPS, at * SECOND));
            }
        };
        step(COMMAND, RUN, 0.0, 1.0);
        let mut at = 1.0;
        for (name, length) in steps {
            step(name, 2, at, at + length);
            at += length;
        }
        for (name, length) in waits {
            let mut wait = Event::new(name, Category::Wait, Phase::Complete, 2, 9, 0.0);
            wait.dur = Some(length * SECOND);
            collector.take(wait);
        }
        advice(&collector.finish(End::Whole))
    }

    #[test]
    fn what_takes_longest_is_advised_about_first() {
        let said = advised(&[("drain", 3.0), ("sync", 8.1), ("turn", 4.0)], &[]);
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(
            said[0].starts_with("the commit waited 8.10 s for the storage to sync"),
            "{said:?}"
        );
        assert!(said[1].contains("another job"), "{said:?}");
    }

    #[test]
    fn each_reason_to_wait_has_its_remedy() {
        for (reason, words) in [
            ("read", "local disk"),
            ("list", "listed"),
            ("memory full", "--mem"),
            ("fsync", "--durable"),
        ] {
            let said = advised(&[], &[(reason, 0.8)]);
            assert!(said.len() == 1 && said[0].contains(words), "{reason}: {said:?}");
        }
    }

    #[test]
    fn a_command_that_computes_is_told_so_and_little_waits_are_not_worth_a_word() {
        let said = advised(&[("sync", 0.05)], &[("read", 0.02)]);
        assert!(said.len() == 1 && said[0].contains("would not help"), "{said:?}");
        assert!(advised(&[("publish", 9.0)], &[]).is_empty());
    }
}
