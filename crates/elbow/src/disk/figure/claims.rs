//! Claims as lines on a terminal and as a table in Markdown.

use std::fmt::Write as _;
use std::io;

use elbow_study::range_writes::{Figure, Verdict};

use crate::say::answer;

/// What a figure is called.
fn heading(figure: &Figure) -> String {
    match (figure.name, figure.name.parse::<u32>()) {
        (_, Ok(number)) => format!("Figure {number}: {}", figure.title),
        ("table2", _) => format!("Table 2: {}", figure.title),
        _ => figure.title.to_owned(),
    }
}

/// A figure and its claims, four lines each.
pub(super) fn print(figure: &Figure) -> io::Result<()> {
    answer(heading(figure))?;
    for claim in &figure.claims {
        answer(format_args!("  {:<10}  {}", claim.verdict, claim.says))?;
        answer(format_args!("              paper  {}", claim.paper))?;
        answer(format_args!("              here   {}", claim.ours))?;
        if claim.reason != "-" {
            answer(format_args!("              why    {}", claim.reason))?;
        }
    }
    answer("")
}

/// How many hold.
pub(super) fn summary(figures: &[Figure]) -> String {
    let all = || figures.iter().flat_map(|figure| &figure.claims);
    let are = |verdict| all().filter(|claim| claim.verdict == verdict).count();
    let in_part = match are(Verdict::InPart) {
        0 => String::new(),
        some => format!(", {some} in part"),
    };
    format!(
        "{} of {} claims reproduced{in_part}",
        are(Verdict::Reproduced),
        all().count()
    )
}

/// All claims in a table, and how each figure was made.
pub(super) fn markdown(figures: &[Figure]) -> String {
    let mut text = String::from("| figure | claim | paper | here | verdict | reason |\n|---|---|---|---|---|---|\n");
    for figure in figures {
        for claim in &figure.claims {
            let verdict = claim.verdict.to_string();
            let row = [
                figure.name,
                claim.says,
                claim.paper,
                &claim.ours,
                &verdict,
                &claim.reason,
            ];
            let row = row.map(|cell| cell.replace('|', "\\|"));
            let _ = writeln!(text, "| {} |", row.join(" | ")); // a string takes all
        }
    }
    let _ = writeln!(text, "\n{}.\n", summary(figures));
    for figure in figures {
        let _ = writeln!(text, "- {}. {}", heading(figure), figure.caption);
    }
    text
}
