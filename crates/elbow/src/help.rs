//! The text behind the options of a command: one layout for the help and for the manual page.
//!
//! ```text
//!   Examples:                        a section: a line that ends in a colon, without blanks before it
//!     Follow a log while it runs:    a paragraph of it: one line, however long; wrapped once, at the terminal's width
//!         tail -F run.log            six blanks or more: a line as it is, which fits in 80 columns
//!
//!   Returns when all is stored.      no blanks and no colon: a paragraph that belongs to no section
//! ```
//!
//! clap wraps each line and repeats the blanks before it, so what the layout needs is lines of the right length: the tests
//! look at every command.

/// Blanks before a line that stays as it is.
const LITERAL_INDENT: usize = 6;

/// A line of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// A section begins: its name.
    Section(&'a str),
    /// A paragraph of the section.
    Paragraph(&'a str),
    /// A paragraph that belongs to no section.
    Outside(&'a str),
    /// A line that stays as it is, without the blanks of the layout.
    Literal(&'a str),
    /// Nothing.
    Empty,
}

/// The lines of a text in their order.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    text.lines().map(line)
}

fn line(text: &str) -> Line<'_> {
    let words = text.trim_start();
    match text.len() - words.len() {
        _ if words.is_empty() => Line::Empty,
        0 => words.strip_suffix(':').map_or(Line::Outside(words), Line::Section),
        indent if indent < LITERAL_INDENT => Line::Paragraph(words),
        _ => Line::Literal(&text[LITERAL_INDENT..]),
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};

    use super::*;
    use crate::cli::Cli;

    /// Widths of terminals, narrow ones first.
    const WIDTHS: [usize; 5] = [40, 60, 80, 100, 120];
    /// From here on lines fit, and examples stay whole.
    const USUAL_WIDTH: usize = 80;

    /// Every command at any depth, for a terminal of this width.
    fn commands(width: usize) -> Vec<Command> {
        fn collect(command: &Command, into: &mut Vec<Command>) {
            into.push(command.clone());
            command.get_subcommands().for_each(|sub| collect(sub, into));
        }
        let mut root = Cli::command().term_width(width);
        root.build();
        let mut all = Vec::new();
        collect(&root, &mut all);
        all
    }

    fn text_of(command: &Command) -> String {
        command.get_after_help().map(ToString::to_string).unwrap_or_default()
    }

    /// The help as it is printed, short and long.
    fn rendered(command: &Command) -> [String; 2] {
        let mut command = command.clone();
        [
            command.render_help().to_string(),
            command.render_long_help().to_string(),
        ]
    }

    /// Calls `check` with each command, its short and long help, and the width that they are for.
    fn with_every_help(check: impl Fn(&Command, &str, usize)) {
        for width in WIDTHS {
            let commands = commands(width);
            assert!(commands.len() > 30, "nested commands are among them");
            for command in &commands {
                rendered(command).iter().for_each(|help| check(command, help, width));
            }
        }
    }

    #[test]
    fn lines_are_told_apart() {
        let text = "Examples:\n  Two:\n      a b\n        c\n\nEnd.";
        let expected = [
            Line::Section("Examples"),
            Line::Paragraph("Two:"),
            Line::Literal("a b"),
            Line::Literal("  c"),
            Line::Empty,
            Line::Outside("End."),
        ];
        assert_eq!(lines(text).collect::<Vec<_>>(), expected);
    }

    /// Examples used to have their explanations behind them on the same line, and broke at 80 columns.
    #[test]
    fn help_fits_the_terminal_and_examples_stay_whole() {
        with_every_help(|command, help, width| {
            if width < USUAL_WIDTH {
                return;
            }
            let name = command.get_name();
            for line in help.lines() {
                assert!(line.chars().count() <= width, "{name} at {width}: {line}");
            }
            for literal in text_of(command)
                .lines()
                .filter(|text| matches!(line(text), Line::Literal(_)))
            {
                assert!(
                    help.lines().any(|line| line == literal),
                    "{name} at {width}: {literal}\n{help}"
                );
            }
        });
    }

    /// Prose used to be broken in the source and again by clap, which left a short line after each long one.
    #[test]
    fn prose_is_wrapped_once_at_the_width() {
        with_every_help(|command, help, width| {
            for text in text_of(command).lines() {
                let (Line::Paragraph(words) | Line::Outside(words)) = line(text) else {
                    continue;
                };
                let found = lines_of(words, help);
                assert!(!found.is_empty(), "{} at {width}: {words}\n{help}", command.get_name());
                for pair in found.windows(2) {
                    let next = pair[1].split_whitespace().next().unwrap_or_default();
                    let together = pair[0].chars().count() + 1 + next.chars().count();
                    assert!(
                        together > width,
                        "{} at {width}: broken early: {pair:?}",
                        command.get_name()
                    );
                }
            }
        });
    }

    /// The lines of the help that a paragraph was wrapped to; none if it is not there.
    fn lines_of<'a>(paragraph: &str, help: &'a str) -> Vec<&'a str> {
        let lines: Vec<_> = help.lines().collect();
        let joined = |lines: &[&str]| {
            lines
                .iter()
                .flat_map(|line| line.split_whitespace())
                .collect::<Vec<_>>()
                .join(" ")
        };
        (0..lines.len())
            .filter(|&first| !lines[first].trim().is_empty() && paragraph.starts_with(lines[first].trim()))
            .find_map(|first| {
                (first + 1..=lines.len())
                    .take_while(|&end| joined(&lines[first..end]).len() <= paragraph.len())
                    .find(|&end| joined(&lines[first..end]) == paragraph)
                    .map(|end| lines[first..end].to_vec())
            })
            .unwrap_or_default()
    }

    #[test]
    fn descriptions_of_options_are_one_paragraph() {
        for command in commands(USUAL_WIDTH) {
            for argument in command.get_arguments() {
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(
                    !help.contains('\n'),
                    "{} {}: {help}",
                    command.get_name(),
                    argument.get_id()
                );
            }
        }
    }

    /// One layout: each example is introduced by a paragraph with a colon or a question mark, and follows a blank line.
    #[test]
    fn examples_are_introduced_in_the_same_way_everywhere() {
        for command in commands(USUAL_WIDTH) {
            let text = text_of(&command);
            let lines: Vec<_> = lines(&text).collect();
            let Some(first) = lines.iter().position(|line| *line == Line::Section("Examples")) else {
                continue;
            };
            let end = lines
                .iter()
                .skip(first + 1)
                .position(|line| matches!(line, Line::Section(_) | Line::Outside(_)));
            let end = end.map_or(lines.len(), |end| first + 1 + end);
            for pair in lines[first..end].windows(2) {
                let is_good = match pair {
                    [Line::Section(_) | Line::Empty, next] => matches!(next, Line::Paragraph(_)),
                    [Line::Paragraph(words), Line::Literal(_)] => words.ends_with([':', '?']),
                    [Line::Literal(_), next] => matches!(next, Line::Literal(_) | Line::Empty),
                    _ => false,
                };
                assert!(is_good, "{}: {pair:?}", command.get_name());
            }
        }
    }
}
