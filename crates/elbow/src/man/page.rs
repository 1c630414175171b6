//! One manual page: what clap_mangen makes of the options, and the text behind them section by section.
//!
//! ```text
//!   NAME  SYNOPSIS  DESCRIPTION  OPTIONS  COMMANDS  (sections of the text)  EXIT STATUS  ENVIRONMENT  FILES  EXAMPLES  SEE ALSO
//! ```
//!
//! Source of the order: man-pages(7).

use std::io;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::surroundings;
use crate::help::{self, Line};

/// An argument of `.TH` that says nothing.
const NOTHING: &str = "\"\"";
/// How far examples are moved to the right.
const INDENT: &str = "4";
const SECTION: &str = "1";
/// What the text calls the sections that have another name or place in a page.
const EXAMPLES: &str = "Examples";
const EXIT_CODE: &str = "Exit code";

/// Name of the page of a command, such as `elbow-lock-hold`.
pub(super) fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or(command.get_name())
}

/// The page of a command, which is one of `parent`'s.
pub(super) fn of(command: &Command, parent: Option<&Command>) -> io::Result<Vec<u8>> {
    let man = Man::new(command.clone().subcommand_help_heading("COMMANDS"))
        .title(name(command).to_uppercase())
        .date(NOTHING)
        .source(concat!("Elbowroom ", env!("CARGO_PKG_VERSION")))
        .manual("Elbowroom");
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let sections = sections(&text);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    write(&mut page, |roff| body(roff, &sections[0].lines))?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    for section in sections[1..]
        .iter()
        .filter(|section| ![EXAMPLES, EXIT_CODE].contains(&section.name))
    {
        write(&mut page, |roff| section.render(roff, &section.name.to_uppercase()))?;
    }
    write(&mut page, |roff| exit_status(roff, command, &sections))?;
    write(&mut page, |roff| surroundings::render(roff, name(command)))?;
    for section in sections[1..].iter().filter(|section| section.name == EXAMPLES) {
        write(&mut page, |roff| section.render(roff, "EXAMPLES"))?;
    }
    write(&mut page, |roff| see_also(roff, command, parent))?;
    Ok(page)
}

fn write(page: &mut Vec<u8>, render: impl FnOnce(&mut Roff)) -> io::Result<()> {
    let mut roff = Roff::new();
    render(&mut roff);
    roff.to_writer(page)
}

/// A part of the text behind the options; the first has what belongs to none, and no name.
struct Section<'a> {
    name: &'a str,
    lines: Vec<Line<'a>>,
}

fn sections(text: &str) -> Vec<Section<'_>> {
    let mut sections = vec![Section {
        name: "",
        lines: Vec::new(),
    }];
    for line in help::lines(text) {
        let last = sections.len() - 1;
        match line {
            Line::Section(name) => sections.push(Section {
                name,
                lines: Vec::new(),
            }),
            Line::Outside(_) => sections[0].lines.push(line),
            _ => sections[last].lines.push(line),
        }
    }
    sections
}

impl Section<'_> {
    fn render(&self, roff: &mut Roff, heading: &str) {
        roff.control("SH", [heading]);
        body(roff, &self.lines);
    }
}

/// Paragraphs, and lines that stay as they are.
fn body(roff: &mut Roff, lines: &[Line<'_>]) {
    let mut is_literal = false;
    for line in lines {
        let literal = matches!(line, Line::Literal(_));
        if literal != is_literal {
            set_literal(roff, literal);
            is_literal = literal;
        }
        match line {
            Line::Literal(words) => roff.text([roman(*words)]),
            Line::Paragraph(words) | Line::Outside(words) => roff.control("PP", []).text([roman(*words)]),
            Line::Section(_) | Line::Empty => continue,
        };
    }
    if is_literal {
        set_literal(roff, false);
    }
}

fn set_literal(roff: &mut Roff, on: bool) {
    if on {
        roff.control("RS", [INDENT]).control("nf", []);
    } else {
        roff.control("fi", []).control("RE", []);
    }
}

fn exit_status(roff: &mut Roff, command: &Command, sections: &[Section<'_>]) {
    if let Some(section) = sections.iter().find(|section| section.name == EXIT_CODE) {
        section.render(roff, "EXIT STATUS");
    } else if !command.has_subcommands() {
        roff.control("SH", ["EXIT STATUS"]);
        roff.text([roman("0, or 125 when it could not be done, wrong options included.")]);
    }
}

/// The pages above, beside and below, and those of others.
fn see_also(roff: &mut Roff, command: &Command, parent: Option<&Command>) {
    let shown = |command: &Command| -> Vec<String> {
        let visible = command.get_subcommands().filter(|sub| !sub.is_hide_set());
        visible.map(|sub| format!("{}({SECTION})", name(sub))).collect()
    };
    let own = format!("{}({SECTION})", name(command));
    let mut pages: Vec<String> = parent
        .map(|parent| format!("{}({SECTION})", name(parent)))
        .into_iter()
        .collect();
    pages.extend(shown(command));
    pages.extend(
        parent
            .map(shown)
            .unwrap_or_default()
            .into_iter()
            .filter(|page| *page != own),
    );
    pages.extend(surroundings::related(name(command)).map(str::to_owned));
    // Names of pages are not divided, so that they can be followed and searched for.
    roff.control("SH", ["SEE ALSO"]).control("nh", []);
    let last = pages.len() - 1;
    for (index, page) in pages.iter().enumerate() {
        let (words, section) = page.split_at(page.find('(').unwrap_or(page.len()));
        roff.text([bold(words), roman(section), roman(if index < last { "," } else { "" })]);
    }
}
