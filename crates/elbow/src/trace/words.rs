//! A summary in words.

use elbow_job::{EndStep, WaitReason};

use super::summary::{Slow, Summary};
use crate::size;

/// All that is said of a trace, line by line.
pub(super) fn lines(summary: &Summary) -> Vec<String> {
    let mut lines = vec![heading(summary)];
    lines.extend(unfinished(summary));
    lines.push(String::new());
    lines.extend(parts(summary));
    lines.extend(actions(summary));
    lines.extend(slowest(&summary.slowest));
    if !summary.advice.is_empty() {
        lines.push(String::new());
        lines.extend(summary.advice.iter().map(|sentence| format!("- {sentence}")));
    }
    lines
}

/// A time as people read it.
pub(super) fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 0.001 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s if s < 120.0 => format!("{s:.2} s"),
        s => format!("{:.0} min {:02.0} s", (s / 60.0).floor(), (s % 60.0).floor()),
    }
}

fn heading(summary: &Summary) -> String {
    let words = summary.command.shown();
    let again = match summary.attempts {
        0 | 1 => String::new(),
        attempts => format!(", run {attempts} times"),
    };
    format!("elbow run -- {words}: {}{again}", seconds(summary.total_seconds))
}

fn unfinished(summary: &Summary) -> Option<String> {
    if summary.complete {
        return None;
    }
    let torn = if summary.torn { ", in the middle of a line" } else { "" };
    let doing = match &*summary.unfinished {
        [] => String::new(),
        names => format!(", during: {}", names.join(", ")),
    };
    Some(format!(
        "the trace ends{torn}{doing}; elbow was killed there, or is still running, and what was under way is not in it"
    ))
}

fn parts(summary: &Summary) -> Vec<String> {
    let line = |indent: usize, name: &str, took: f64, more: String| {
        let share = if summary.total_seconds > 0.0 {
            took / summary.total_seconds * 100.0
        } else {
            0.0
        };
        let name = format!("{}{name}", "  ".repeat(indent));
        format!("{name:<30} {:>12} {share:>5.1} %{more}", seconds(took))
    };
    let none = String::new;
    let mut lines = vec![line(0, "command computing", summary.computing_seconds, none())];
    lines.push(line(0, "command waiting", summary.waiting_seconds, none()));
    lines.extend(summary.waits.iter().map(|wait| {
        let more = format!(
            "   {}{}",
            often(wait.number, wait.longest_seconds),
            meaning(&wait.reason)
        );
        line(1, &wait.reason, wait.seconds, more)
    }));
    lines.push(line(0, "drain after the command", summary.drain_seconds, none()));
    lines.push(line(0, "commit", summary.commit_seconds, none()));
    lines.extend(
        summary
            .steps
            .iter()
            .map(|step| line(1, &step.step, step.seconds, format!("   {}", meaning(&step.step)))),
    );
    lines.push(line(0, "all else", summary.rest_seconds, none()));
    lines
}

/// How often something was waited for.
fn often(number: u64, longest: f64) -> String {
    match number {
        1 => "once: ".to_owned(),
        number => format!("{number} times, {} at most: ", seconds(longest)),
    }
}

/// What a name of a trace stands for.
fn meaning(name: &str) -> &'static str {
    let words = MEANINGS.iter().find(|(known, _)| *known == name);
    words.map_or("", |(_, words)| words)
}

const MEANINGS: [(&str, &str); 18] = [
    (WaitReason::Read.name(), "content that only the storage has"),
    (WaitReason::List.name(), "what is in old directories"),
    (WaitReason::Lookup.name(), "names in directories that cannot be listed"),
    (WaitReason::Attributes.name(), "attributes of what is old"),
    (
        WaitReason::Memory.name(),
        "written data had to be stored or spilled first",
    ),
    (WaitReason::Space.name(), "how much room there is"),
    (WaitReason::Trial.name(), "what the storage can do"),
    (WaitReason::Fsync.name(), "until what was written is durable"),
    (EndStep::Stage.name(), "the job's own directory was made"),
    (EndStep::Sync.name(), "the storage made what was written durable"),
    (EndStep::Turn.name(), "jobs commit one after the other"),
    (EndStep::Check.name(), "has somebody else changed what the job saw?"),
    (EndStep::Rehearse.name(), "what can be tried was tried"),
    (EndStep::Record.name(), "the commit record was written"),
    (EndStep::Publish.name(), "everything got its name"),
    (EndStep::CleanUp.name(), "what is no longer needed was removed"),
    (
        EndStep::Save.name(),
        "what the storage did not take was saved elsewhere",
    ),
    (EndStep::RollBack.name(), "what was staged was removed"),
];

fn actions(summary: &Summary) -> Vec<String> {
    let actions = &summary.actions;
    if actions.number == 0 {
        return vec![String::new(), "no actions on the storage".to_owned()];
    }
    let mut lines = vec![
        String::new(),
        format!(
            "{} actions on the storage in {}, {:.1} at a time on average and {} at most; {} operations of the command were merged into them",
            actions.number,
            seconds(actions.busy_seconds),
            actions.mean_parallel,
            actions.max_parallel,
            actions.merged
        ),
        format!(
            "  {:<10} {:>9} {:>9} {:>12} {:>12} {:>12}",
            "action", "number", "calls", "written", "time", "each"
        ),
    ];
    lines.extend(actions.kinds.iter().map(|kind| {
        let refused = match kind.refused {
            0 => String::new(),
            refused => format!("   {refused} refused"),
        };
        let each = seconds(kind.seconds / kind.number.max(1) as f64);
        format!(
            "  {:<10} {:>9} {:>9} {:>12} {:>12} {each:>12}{refused}",
            kind.operation,
            kind.number,
            kind.calls,
            size::show(kind.bytes),
            seconds(kind.seconds)
        )
    }));
    lines
}

fn slowest(slowest: &[Slow]) -> Vec<String> {
    if slowest.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![String::new(), "the slowest actions".to_owned()];
    lines.extend(slowest.iter().map(|slow| {
        let bytes = match slow.bytes {
            0 => String::new(),
            bytes => format!("{}, ", size::show(bytes)),
        };
        format!(
            "  {:>12} {:<10} {}   ({bytes}{} in the queue)",
            seconds(slow.seconds),
            slow.operation,
            printable(&slow.path),
            seconds(slow.queued_seconds)
        )
    }));
    lines
}

/// A path that moves no cursor.
fn printable(path: &str) -> String {
    path.chars()
        .flat_map(|c| match c.is_control() {
            true => c.escape_default().collect::<Vec<_>>(),
            false => vec![c],
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_unit_that_people_read() {
        for (time, text) in [
            (0.000_012, "12 µs"),
            (0.0125, "12.5 ms"),
            (8.1, "8.10 s"),
            (119.9, "119.90 s"),
            (3725.0, "62 min 05 s"),
        ] {
            assert_eq!(seconds(time), text);
        }
    }

    #[test]
    fn a_path_draws_nothing_on_the_terminal() {
        assert_eq!(printable("a\x1b[2Jb\n"), "a\\u{1b}[2Jb\\n");
    }
}
