//! `elbow man [DIR]`: manual pages made from the definition of the command line.
//!
//! ```text
//!   man       which pages there are         page            one page, in roff
//!                                           surroundings    what a command reads besides its arguments
//! ```

#![allow(clippy::disallowed_methods)] // pages are written to DIR, which is no job's storage

mod page;
mod surroundings;

use std::io;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Command, CommandFactory};

use crate::cli::{Cli, ManArgs};
use crate::output::answer_text;

pub(crate) const EXAMPLES: &str = "\
Examples:
  Read the page of the whole:
      elbow man | man -l -

  Write all pages, and read one of them:
      elbow man ~/.local/share/man/man1
      man elbow-lock-hold";

/// Prints `elbow.1`, or writes it and a page for each command below it to a directory.
pub(crate) fn run(args: &ManArgs) -> anyhow::Result<ExitCode> {
    let root = definition();
    let Some(directory) = &args.directory else {
        answer_text(&page::of(&root, None)?)?;
        return Ok(ExitCode::SUCCESS);
    };
    for (name, page) in pages(&root)? {
        let path = directory.join(name);
        std::fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The command line without its `help` commands, which have no pages.
fn definition() -> Command {
    fn without_help(command: Command) -> Command {
        command.disable_help_subcommand(true).mut_subcommands(without_help)
    }
    let mut root = without_help(Cli::command());
    root.build();
    root
}

/// File name and content of each page.
fn pages(root: &Command) -> io::Result<Vec<(String, Vec<u8>)>> {
    fn collect(command: &Command, parent: Option<&Command>, into: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
        into.push((format!("{}.1", page::name(command)), page::of(command, parent)?));
        let visible = command.get_subcommands().filter(|sub| !sub.is_hide_set());
        visible
            .into_iter()
            .try_for_each(|sub| collect(sub, Some(command), into))
    }
    let mut pages = Vec::new();
    collect(root, None, &mut pages)?;
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};
    use std::process::Command as Process;

    use super::*;
    use crate::help;

    /// Pages that are not of `elbow man`, but of the clients for C.
    const OF_CLIENTS: [(&str, &str); 2] = [("c", "ba.3"), ("c-lock", "elbow_lock.3")];

    fn texts() -> Vec<(String, String)> {
        let pages = pages(&definition()).expect("pages");
        pages
            .into_iter()
            .map(|(name, page)| (name, String::from_utf8(page).expect("text")))
            .collect()
    }

    /// The page as a terminal shows it, without breaks.
    fn shown(page: &str) -> String {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("page.1");
        std::fs::write(&file, page).expect("a file");
        let mut groff = Process::new("groff");
        groff.args(["-man", "-ww", "-Tutf8", "-P-cbou", "-rLL=400n"]).arg(&file);
        let output = groff.output().expect("groff");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{said}\n{page}");
        // Terminals get typographic signs for these.
        String::from_utf8_lossy(&output.stdout)
            .replace(['\u{2010}', '\u{2212}'], "-")
            .replace('\u{2019}', "'")
    }

    /// Every command at any depth that is shown, by the name of its page.
    fn visible(command: &Command) -> Vec<(String, Command)> {
        let below = command
            .get_subcommands()
            .filter(|sub| !sub.is_hide_set())
            .flat_map(visible);
        std::iter::once((format!("{}.1", page::name(command)), command.clone()))
            .chain(below)
            .collect()
    }

    /// There were pages for the first level alone.
    #[test]
    fn every_visible_command_has_a_page_with_all_that_applies() {
        let pages = texts();
        let commands = visible(&definition());
        assert_eq!(pages.len(), commands.len());
        assert!(commands.iter().any(|(name, _)| name == "elbow-lock-hold.1"));
        for (name, command) in commands {
            let (_, page) = pages.iter().find(|(page, _)| *page == name).expect(&name);
            let mut sections = vec!["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "SEE ALSO"];
            sections.push(if command.has_subcommands() {
                "COMMANDS"
            } else {
                "EXIT STATUS"
            });
            for section in sections {
                let heading = [format!(".SH {section}\n"), format!(".SH \"{section}\"\n")];
                assert!(
                    heading.iter().any(|heading| page.contains(heading)),
                    "{name} has no {section}\n{page}"
                );
            }
        }
    }

    /// `elbow.1` referred to a page for `help`, which nobody wrote.
    #[test]
    fn every_page_that_is_referred_to_is_there() {
        let pages = texts();
        let ours: BTreeSet<_> = pages.iter().map(|(name, _)| name.clone()).collect();
        let mut referred = BTreeSet::new();
        for (name, page) in &pages {
            for to in references(&shown(page)) {
                let is_known = ours.contains(&to) || OF_CLIENTS.iter().any(|(_, page)| *page == to);
                assert!(is_known || !to.starts_with("elbow"), "{name} refers to {to}");
                referred.insert(to);
            }
        }
        for name in ours.iter().filter(|name| *name != "elbow.1") {
            assert!(referred.contains(name), "no page refers to {name}");
        }
        for (client, page) in OF_CLIENTS {
            let place = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../../clients")
                .join(client)
                .join("man");
            assert!(referred.contains(page) && place.join(page).exists(), "{page}");
        }
    }

    /// What looks like `name(1)` in a text.
    fn references(text: &str) -> Vec<String> {
        let is_of_name = |sign: char| sign.is_ascii_alphanumeric() || "-_.".contains(sign);
        let section = |rest: &str| {
            rest.strip_prefix(|digit: char| digit.is_ascii_digit())
                .is_some_and(|rest| rest.starts_with(')'))
        };
        text.match_indices('(')
            .filter(|&(at, _)| section(&text[at + 1..]))
            .filter_map(|(at, _)| {
                let name = text[..at].rsplit(|sign| !is_of_name(sign)).next()?;
                (!name.is_empty()).then(|| format!("{name}.{}", &text[at + 1..at + 2]).to_lowercase())
            })
            .collect()
    }

    /// Examples used to be filled like prose, so that several commands stood on one line.
    #[test]
    fn examples_are_shown_line_by_line_without_warnings() {
        let pages = texts();
        for (name, command) in visible(&definition()) {
            let (_, page) = pages.iter().find(|(page, _)| *page == name).expect(&name);
            let shown = shown(page);
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in help::lines(&text) {
                match line {
                    help::Line::Literal(line) => {
                        assert!(
                            shown.lines().any(|it| it.trim() == line.trim()),
                            "{name}: {line}\n{shown}"
                        );
                    }
                    help::Line::Paragraph(words) | help::Line::Outside(words) => {
                        assert!(
                            shown.contains(words.split(['`', '\'']).next().unwrap_or(words)),
                            "{name}: {words}"
                        );
                    }
                    help::Line::Section(_) | help::Line::Empty => {}
                }
            }
        }
    }

    #[test]
    fn every_variable_that_the_code_reads_is_in_a_page() {
        let pages = texts();
        let read = variables_in_sources();
        assert!(
            ["TMPDIR", "XDG_RUNTIME_DIR", "ELBOW_LOCKS", "ELBOW_FCNTL_LIB"]
                .iter()
                .all(|name| read.contains(*name))
        );
        for variable in read {
            let heading = format!("\\fB{}\\fR\n", variable.replace('-', "\\-"));
            assert!(
                pages.iter().any(|(_, page)| page.contains(&heading)),
                "{variable} is in no page"
            );
        }
    }

    /// Names in capitals that are strings in files that look at the environment.
    fn variables_in_sources() -> BTreeSet<String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut files = Vec::new();
        for place in ["crates", "clients"] {
            for member in std::fs::read_dir(root.join(place)).expect("crates") {
                let member = member.expect("a crate").path();
                if !member.ends_with("elbow-testkit") {
                    rust_files(&member.join("src"), &mut files);
                }
            }
        }
        let texts = files
            .iter()
            .map(|file| std::fs::read_to_string(file).expect("a source"));
        let code = texts.map(|text| text.split("#[cfg(test)]").next().unwrap_or_default().to_owned());
        let looks = |text: &String| {
            ["var_os(", "env::var(", "temp_dir()", "_VARIABLE: "]
                .iter()
                .any(|call| text.contains(call))
        };
        let mut found = BTreeSet::new();
        for text in code.filter(looks) {
            let pieces: Vec<_> = text.split('"').collect();
            let is_value = |before: &str| ["value_name = ", "contains("].iter().any(|end| before.ends_with(end));
            let strings = pieces.chunks_exact(2).filter(|piece| !is_value(piece[0]));
            found.extend(
                strings
                    .map(|piece| piece[1])
                    .filter(|text| is_variable(text))
                    .map(str::to_owned),
            );
            if text.contains("temp_dir()") {
                found.insert("TMPDIR".to_owned());
            }
        }
        found
    }

    fn is_variable(text: &str) -> bool {
        let begins = text.starts_with(|sign: char| sign.is_ascii_uppercase());
        begins
            && text.len() > 3
            && text
                .chars()
                .all(|sign| sign.is_ascii_uppercase() || sign.is_ascii_digit() || sign == '_')
    }

    fn rust_files(directory: &Path, into: &mut Vec<PathBuf>) {
        let Ok(entries) = std::fs::read_dir(directory) else {
            return; // a crate without a library
        };
        for entry in entries {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                rust_files(&path, into);
            } else if path.to_string_lossy().ends_with(".rs") && !path.to_string_lossy().ends_with("_test.rs") {
                into.push(path);
            }
        }
    }

    #[test]
    fn pages_are_written_to_a_directory() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let args = ManArgs {
            directory: Some(directory.path().to_owned()),
        };
        run(&args).expect("pages");
        for (name, page) in texts() {
            let written = std::fs::read_to_string(directory.path().join(&name)).expect(&name);
            assert!(written == page && written.contains(".TH"), "{name}");
        }
    }
}
