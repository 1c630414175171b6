//! `elbow man [DIR]`: manual pages made from the definition of the command line.

#![allow(clippy::disallowed_methods)] // pages are written to DIR, which is no job's storage

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;

use crate::cli::{Cli, ManArgs};

/// Prints `elbow.1`, or writes it and a page for each subcommand to a directory.
pub(crate) fn run(args: &ManArgs) -> anyhow::Result<ExitCode> {
    let mut command = Cli::command();
    command.build();
    let Some(directory) = &args.directory else {
        io::stdout().write_all(&page(&command)?)?;
        return Ok(ExitCode::SUCCESS);
    };
    let visible = command.get_subcommands().filter(|sub| sub.get_name() != "help");
    for each in std::iter::once(&command).chain(visible) {
        let name = each.get_display_name().unwrap_or(each.get_name());
        let path = directory.join(format!("{name}.1"));
        std::fs::write(&path, page(each)?).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn page(command: &clap::Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_page_for_every_subcommand() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        run(&ManArgs {
            directory: Some(directory.path().to_owned()),
        })
        .expect("pages");
        for name in ["elbow", "elbow-run", "elbow-mount", "elbow-commit", "elbow-recover"] {
            let page = std::fs::read_to_string(directory.path().join(format!("{name}.1"))).expect(name);
            assert!(page.contains(".TH"), "{name}");
        }
    }
}
