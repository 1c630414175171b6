//! Settings: what options are when nobody names them on the command line.
//!
//! ```text
//!   option on the command line  >  variable  >  .elbow.toml in DIR or above  >  the user's file  >  the system's
//!
//!   keys     which options can be set, of which commands          file     one file: read with care, each value with its line
//!   layers   which of several values holds, and where it is from
//! ```
//!
//! A setting becomes the *default* of its option, so that it is parsed, checked and refused as the option is, and no command knows of settings.

mod file;
mod keys;
mod layers;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Command, CommandFactory, FromArgMatches};

pub(crate) use self::file::FileState;
pub(crate) use self::keys::{KEYS, Key};
pub(crate) use self::layers::Settings;
use crate::cli::{self, Cli};

/// The command line again, with what is set for its command in the place of defaults; `None` where nothing is.
pub(crate) fn applied(cli: &Cli) -> anyhow::Result<Option<Cli>> {
    let (path, directories) = concerned(&cli.command);
    if keys::of(path).next().is_none() {
        return Ok(None);
    }
    let settings = Settings::of(&directories, keys::of(path))?;
    settings.notes().for_each(crate::output::print_message);
    if keys::of(path).all(|key| settings.value(key).is_none()) {
        return Ok(None);
    }
    let mut command = Cli::command();
    for key in keys::of(path) {
        if let Some(value) = settings.value(key) {
            command = with_default(command, path, &key.id(), key.words(value));
        }
    }
    let matches = command.try_get_matches_from(std::env::args_os());
    let mut applied = matches
        .and_then(|matches| Cli::from_arg_matches(&matches))
        .map_err(|error| anyhow::anyhow!(file::first_line(&error)))?;
    if let (cli::Command::Run(said), cli::Command::Run(args)) = (&cli.command, &mut applied.command) {
        args.pass_through_is_set = said.pass_through.is_empty();
    }
    Ok(Some(applied))
}

fn with_default(command: Command, path: &[&str], id: &str, values: Vec<OsString>) -> Command {
    let id = id.to_owned();
    match path {
        [] => command.mut_arg(id, |option| {
            option.default_values(values.into_iter().map(clap::builder::OsStr::from))
        }),
        [name, rest @ ..] => {
            let rest = rest.to_vec();
            command.mut_subcommand(*name, move |inner| with_default(inner, &rest, &id, values))
        }
    }
}

/// The words that name a command, and the directories that it is about.
fn concerned(command: &cli::Command) -> (&'static [&'static str], Vec<PathBuf>) {
    let here = || vec![PathBuf::from(".")];
    match command {
        cli::Command::Run(args) if args.on.is_empty() => (&["run"], here()),
        cli::Command::Run(args) => (&["run"], args.on.clone()),
        cli::Command::Mount(args) => (&["mount"], vec![args.source.clone()]),
        cli::Command::Resume(args) => (&["resume"], vec![args.path.clone()]),
        cli::Command::Recover(args) => (&["recover"], vec![args.directory().to_owned()]),
        cli::Command::Doctor(args) => (&["doctor"], vec![args.directory.clone()]),
        cli::Command::Sort(_) => (&["sort"], here()),
        cli::Command::Lock(args) => (args.path(), here()),
        _ => (&[], Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The option of each key is there, and takes the value that it is tried with.
    #[test]
    fn every_key_is_an_option_of_its_commands() {
        let root = Cli::command();
        for key in &KEYS {
            for target in key.commands {
                let mut command = &root;
                for word in target.path {
                    command = command.find_subcommand(word).unwrap_or_else(|| panic!("{target:?}"));
                }
                let option = command
                    .get_arguments()
                    .find(|option| option.get_id().as_str() == key.id());
                let long = option.unwrap_or_else(|| panic!("{key:?} of {target:?}")).get_long();
                assert_eq!(long, Some(key.name));
            }
        }
    }

    #[test]
    fn what_is_set_is_a_default_and_gives_way_to_an_option() {
        let parsed = |words: &[&str]| {
            let command = with_default(Cli::command(), &["run"], "retry", vec!["3".into()]);
            let command = with_default(command, &["run"], "durable", vec!["true".into()]);
            let command = with_default(command, &["run"], "pass_through", vec!["a".into(), "b".into()]);
            let matches = command.try_get_matches_from(words).expect("a command line");
            match Cli::from_arg_matches(&matches).expect("a command").command {
                cli::Command::Run(args) => (args.retry, args.job.durable, args.pass_through.len()),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(parsed(&["elbow", "run", "--", "true"]), (3, true, 2));
        assert_eq!(parsed(&["elbow", "run", "--retry", "1", "--", "true"]), (1, true, 2));
        assert_eq!(
            parsed(&["elbow", "run", "--pass-through", "c", "--", "true"]),
            (3, true, 1)
        );
    }
}
