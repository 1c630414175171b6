//! `elbow config`: what options are set to, and where.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;
use serde::Serialize;

use crate::cli::{Cli, ConfigArgs, ConfigShowArgs};
use crate::json;
use crate::output::answer;
use crate::settings::{FileState, KEYS, Key, Settings};

pub(crate) const EXAMPLES: &str = "\
Examples:
  What holds here, and where is it from?
      elbow config show --origin

  For a project:
      cat /project/alice/.elbow.toml
      [job]
      scratch = \"/local/alice\"
      mem = \"2G\"

  For all jobs of a user who mostly works over sshfs:
      mkdir -p ~/.config/elbow
      printf '[job]\\nvia = \"auto\"\\n' >> ~/.config/elbow/config.toml

An option on the command line goes before a variable, that before `.elbow.toml` in DIR or the nearest directory above it, that before the user's file \
`~/.config/elbow/config.toml`, and that before the system's, `/etc/elbow/config.toml`.";

/// Does what was asked.
pub(crate) fn run(args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    match args {
        ConfigArgs::Show(args) => json::answered(args.json, &*args.directory, show(args)),
    }
}

#[derive(Serialize)]
struct Shown {
    settings: Vec<Setting>,
    files: Vec<FileShown>,
}

#[derive(Serialize)]
struct Setting {
    section: &'static str,
    key: &'static str,
    value: Option<String>,
    #[serde(skip)]
    is_list: bool,
    /// `default`, the name of a variable, or `file:line`.
    origin: String,
}

#[derive(Serialize)]
struct FileShown {
    path: String,
    state: &'static str,
    reason: Option<String>,
}

fn show(args: &ConfigShowArgs) -> anyhow::Result<ExitCode> {
    expect_directory(&args.directory)?;
    let settings = Settings::of(std::slice::from_ref(&args.directory), KEYS.iter())?;
    let all: Vec<Setting> = KEYS.iter().map(|key| setting(key, &settings)).collect();
    let files = settings.files().iter().map(|(path, state)| FileShown {
        path: path.display().to_string(),
        state: match state {
            FileState::Read => "read",
            FileState::Absent => "absent",
            FileState::Ignored(_) => "ignored",
        },
        reason: match state {
            FileState::Ignored(why) => Some(why.clone()),
            FileState::Read | FileState::Absent => None,
        },
    });
    if args.json {
        let shown = Shown {
            settings: all,
            files: files.collect(),
        };
        answer(json::line(&shown)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    settings.notes().for_each(crate::output::print_message);
    let mut section = "";
    for setting in &all {
        if setting.section != section {
            let gap = if section.is_empty() { "" } else { "\n" };
            answer(format!("{gap}[{}]", setting.section))?;
            section = setting.section;
        }
        answer(setting.line(args.origin))?;
    }
    Ok(ExitCode::SUCCESS)
}

#[allow(
    clippy::disallowed_methods,
    reason = "whether there is a directory, and not what is in it"
)]
fn expect_directory(path: &Path) -> anyhow::Result<()> {
    let found = std::fs::metadata(path).and_then(|found| match found.is_dir() {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::ENOTDIR)),
    });
    found.with_context(|| path.display().to_string())
}

fn setting(key: &'static Key, settings: &Settings) -> Setting {
    Setting {
        section: key.section,
        key: key.name,
        is_list: key.is_list(),
        value: settings.value(key).map(str::to_owned).or_else(|| built_in(key)),
        origin: settings.origin(key).map_or("default".into(), ToString::to_string),
    }
}

/// The default of an option that says it in a value, and not in words.
fn built_in(key: &Key) -> Option<String> {
    let root = Cli::command();
    let command = key.command(&root)?;
    let option = command
        .get_arguments()
        .find(|option| option.get_long() == Some(key.name))?;
    let values = option
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy().into_owned());
    let values: Vec<String> = values.collect();
    (!values.is_empty()).then(|| values.join(","))
}

impl Setting {
    /// A line that could stand in a file; what is not set stands behind a `#`.
    fn line(&self, with_origin: bool) -> String {
        let line = match self.value.as_deref() {
            Some(value @ ("true" | "false")) => format!("{} = {value}", self.key),
            Some(value) if value.parse::<i64>().is_ok() => format!("{} = {value}", self.key),
            Some(value) if self.is_list => {
                let paths: Vec<&str> = value.split(':').collect();
                format!("{} = {}", self.key, toml::Value::from(paths))
            }
            Some(value) => format!("{} = {}", self.key, toml::Value::from(value)),
            None => format!("# {} is not set", self.key),
        };
        match with_origin {
            true if self.value.is_some() => format!("{line:<32} # {}", self.origin),
            _ => line,
        }
    }
}
