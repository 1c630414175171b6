//! `elbow completions SHELL`: what clap generates, and commands behind `elbow run`, `lock exec`, `lock hold` and `lock mpi`.
//!
//! clap's scripts know the options of `elbow`, and next to nothing of the COMMAND that some subcommands end in. What is added
//! gives it to the shell's own completion, as if it stood on a line of its own; see the files in `completions/`.

use std::process::ExitCode;

use clap::{Arg, Command, CommandFactory};
use clap_complete::Shell;

use crate::cli::{Cli, CompletionsArgs};
use crate::output::answer_text;

pub(crate) const EXAMPLES: &str = "\
Examples:
  For this shell alone:
      source <(elbow completions bash)

  For every shell to come:
      elbow completions bash > ~/.local/share/bash-completion/completions/elbow
      elbow completions zsh > \"${fpath[1]}/_elbow\"
      elbow completions fish > ~/.config/fish/completions/elbow.fish";

const BASH: &str = include_str!("completions/command.bash");
const ZSH: &str = include_str!("completions/command.zsh");
const FISH: &str = include_str!("completions/command.fish");
/// Stands in these for the options of `elbow run` that a value follows.
const VALUED: &str = "@VALUED@";

/// Prints the completions.
pub(crate) fn run(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    answer_text(script(args.shell)?.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn script(shell: Shell) -> anyhow::Result<String> {
    let mut command = Cli::command();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "elbow", &mut script);
    let script = String::from_utf8(script)?;
    Ok(match shell {
        Shell::Bash => {
            let added = BASH.replace(VALUED, &valued(&command).join("|"));
            format!(
                "{}\n{added}",
                script.replace("complete -F _elbow -o", "complete -F _elbow_or_command -o")
            )
        }
        Shell::Zsh => script
            .replacen("\n_elbow() {", &format!("\n{ZSH}\n_elbow() {{"), 1)
            .replace(":_cmdambivalent'", ":_elbow_command'")
            // Two colons give an action all arguments, FILE among them; three give it those of COMMAND.
            .replace("'*::command -- ", "'*:::command -- "),
        Shell::Fish => script + "\n" + &FISH.replace(VALUED, &valued(&command).join(" ")),
        _ => script,
    })
}

/// The options of `elbow run` that a value follows.
fn valued(root: &Command) -> Vec<String> {
    let run = root.find_subcommand("run").expect("there is `elbow run`");
    let takes_value = |option: &&Arg| option.get_action().takes_values();
    let long = |option: &Arg| option.get_long().map(|long| format!("--{long}"));
    let short = |option: &Arg| option.get_short().map(|short| format!("-{short}"));
    run.get_opts()
        .filter(takes_value)
        .flat_map(|option| [long(option), short(option)])
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use clap::ValueHint;

    use super::*;

    /// Commands that end in another one, by their words.
    fn with_command(command: &Command, words: &str) -> Vec<String> {
        let mut found: Vec<_> = command
            .get_subcommands()
            .flat_map(|sub| with_command(sub, &format!("{words} {}", sub.get_name())))
            .collect();
        if command
            .get_positionals()
            .any(|argument| argument.get_value_hint() == ValueHint::CommandWithArguments)
        {
            found.push(words.trim().to_owned());
        }
        found
    }

    /// The scripts name them; who adds one adds it there.
    #[test]
    fn every_command_that_ends_in_another_is_in_the_scripts() {
        let found = with_command(&Cli::command(), "");
        assert_eq!(found, ["run", "lock exec", "lock hold", "lock mpi"]);
        for words in found {
            assert!(
                BASH.contains(&format!("\"{words}")) && FISH.contains(&format!("'{words}")),
                "{words}"
            );
        }
        assert_eq!(
            script(Shell::Zsh)
                .expect("a script")
                .matches(":_elbow_command'")
                .count(),
            4
        );
    }

    #[test]
    fn options_with_a_value_are_known() {
        let valued = valued(&Cli::command());
        assert!(
            ["--on", "--mem", "--retry"]
                .iter()
                .all(|it| valued.contains(&(*it).to_owned())),
            "{valued:?}"
        );
        assert!(!valued.contains(&"--json".to_owned()));
    }

    #[test]
    fn what_is_added_stands_where_it_works() {
        let bash = script(Shell::Bash).expect("a script");
        assert_eq!(bash.matches("complete -F _elbow_or_command -o").count(), 2);
        assert!(!bash.contains("complete -F _elbow -o") && !bash.contains(VALUED));
        let zsh = script(Shell::Zsh).expect("a script");
        assert!(zsh.starts_with("#compdef elbow\n") && !zsh.contains("_cmdambivalent"));
        assert!(zsh.find("_elbow_command() {") < zsh.find("\n_elbow() {"));
        assert!(!script(Shell::Fish).expect("a script").contains(VALUED));
    }
}
