//! Claims as lines on a terminal and as a table in Markdown. Only those of *Range Writes* are counted; what we add stands apart.

use std::fmt::Write as _;
use std::io;

use elbow_study::range_writes::{Author, Claim, Column, Figure, Verdict};

use crate::output::answer;

/// What a figure is called.
fn heading(figure: &Figure) -> String {
    match (figure.name, figure.name.parse::<u32>()) {
        (_, Ok(number)) => format!("Figure {number}: {}", figure.title),
        ("table2", _) => format!("Table 2: {}", figure.title),
        ("table3", _) => format!("Table 3: {}", figure.title),
        _ => figure.title.to_owned(),
    }
}

/// A figure and its claims, four lines each.
pub(super) fn print(figure: &Figure) -> io::Result<()> {
    answer(heading(figure))?;
    for claim in &figure.claims {
        answer(format_args!("  {:<10}  {}", claim.verdict, claim.says))?;
        match claim.by {
            Author::Paper => answer(format_args!("              paper  {}", claim.paper))?,
            Author::Ours => answer("              (ours, not of the paper)")?,
        }
        answer(format_args!("              here   {}", claim.ours))?;
        if claim.reason != "-" {
            answer(format_args!("              why    {}", claim.reason))?;
        }
    }
    answer("")
}

fn all(figures: &[Figure], by: Author) -> impl Iterator<Item = (&Figure, &Claim)> {
    let claims = figures
        .iter()
        .flat_map(|figure| figure.claims.iter().map(move |claim| (figure, claim)));
    claims.filter(move |(_, claim)| claim.by == by)
}

/// How many of the claims of *Range Writes* hold, and how many statements are ours.
pub(super) fn summary(figures: &[Figure]) -> String {
    let are = |verdict| {
        all(figures, Author::Paper)
            .filter(|(_, claim)| claim.verdict == verdict)
            .count()
    };
    let counted = |count: usize, what: &str| match count {
        0 => String::new(),
        some => format!(", {some} {what}"),
    };
    let ours = match all(figures, Author::Ours).count() {
        0 => String::new(),
        some => format!("; {some} of our own beside them"),
    };
    let claims = all(figures, Author::Paper).count();
    if claims == 0 {
        return format!("no claim of the paper here{ours}");
    }
    format!(
        "{} of the paper's {claims} claims reproduced{}{}{ours}",
        are(Verdict::Reproduced),
        counted(are(Verdict::InPart), "in part"),
        counted(are(Verdict::Refuted), "refuted"),
    )
}

/// All claims in a table, ours in another, and how each figure was made.
pub(super) fn markdown(figures: &[Figure]) -> String {
    let mut text = String::from("| figure | claim | paper | here | verdict | reason |\n|---|---|---|---|---|---|\n");
    for (figure, claim) in all(figures, Author::Paper) {
        let verdict = claim.verdict.to_string();
        row(
            &mut text,
            &[
                figure.name,
                claim.says,
                claim.paper,
                &claim.ours,
                &verdict,
                &claim.reason,
            ],
        );
    }
    let _ = writeln!(text, "\n{}.", summary(figures)); // a string takes all
    if all(figures, Author::Ours).next().is_some() {
        text.push_str("\nOurs, which the paper does not say:\n\n| figure | statement | here | verdict | reason |\n|---|---|---|---|---|\n");
    }
    for (figure, claim) in all(figures, Author::Ours) {
        let verdict = claim.verdict.to_string();
        row(
            &mut text,
            &[figure.name, claim.says, &claim.ours, &verdict, &claim.reason],
        );
    }
    text.push('\n');
    for figure in figures {
        let _ = writeln!(text, "- {}. {}", heading(figure), figure.caption);
    }
    text
}

/// The numbers of a figure, a table for each panel.
pub(super) fn tables(figure: &Figure) -> String {
    let mut text = format!("{}. {}\n", heading(figure), figure.caption);
    for panel in &figure.panels {
        let _ = writeln!(text, "\n{}, {}:\n", panel.title, panel.unit);
        let names: Vec<&str> = [panel.axis]
            .into_iter()
            .chain(panel.columns.iter().map(|column| &*column.name))
            .collect();
        row(&mut text, &names);
        row(&mut text, &vec!["---"; names.len()]);
        for (place, label) in panel.places.iter().enumerate() {
            let values = panel.columns.iter().map(|column| number(column, place));
            let cells: Vec<String> = [label.clone()].into_iter().chain(values).collect();
            row(&mut text, &cells.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }
    text
}

/// A mean and its interval.
fn number(column: &Column, place: usize) -> String {
    match column.intervals.get(place) {
        Some(interval) if *interval >= 0.005 => format!("{:.2} ± {interval:.2}", column.values[place]),
        _ if column.values[place].is_nan() => String::new(),
        _ => format!("{:.2}", column.values[place]),
    }
}

fn row(text: &mut String, cells: &[&str]) {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

#[cfg(test)]
mod tests {
    use elbow_study::range_writes::{Plan, Size};

    use super::*;

    fn figure(name: &str) -> Figure {
        Plan::new(1, Size::Quick).unwrap().figure(name).unwrap()
    }

    /// The formula behind Figure 8 and what was found beside it counted as claims of the paper.
    #[test]
    fn a_statement_of_ours_does_not_count() {
        let eight = [figure("8")];
        assert_eq!(eight[0].claims.len(), 3);
        assert_eq!(
            summary(&eight),
            "1 of the paper's 1 claims reproduced; 2 of our own beside them"
        );
        let table = markdown(&eight);
        let (of_paper, ours) = table.split_once("Ours, which the paper does not say").unwrap();
        assert!(!of_paper.contains("ceil") && ours.contains("ceil"), "{table}");
    }
}
