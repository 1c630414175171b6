//! `elbow completions SHELL`.

use std::io;
use std::process::ExitCode;

use clap::CommandFactory;

use crate::cli::{Cli, CompletionsArgs};

pub(crate) const EXAMPLES: &str = "\
Examples:
  For this shell alone:
      source <(elbow completions bash)

  For every shell to come:
      elbow completions bash > ~/.local/share/bash-completion/completions/elbow
      elbow completions zsh > \"${fpath[1]}/_elbow\"
      elbow completions fish > ~/.config/fish/completions/elbow.fish";

/// Prints the completions.
pub(crate) fn run(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "elbow", &mut script);
    io::Write::write_all(&mut io::stdout(), &script)?;
    Ok(ExitCode::SUCCESS)
}
