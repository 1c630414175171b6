//! Several files and the environment, and which of them holds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use elbow_file::ShowName;

use super::file::{self, FileState};
use super::keys::{KEYS, Key};

const SYSTEM: &str = "/etc/elbow/config.toml";
const OF_DIRECTORY: &str = ".elbow.toml";

/// Where a value is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A variable of the environment, by name.
    Variable(&'static str),
    /// A line of a file.
    File { path: PathBuf, line: usize },
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Variable(name) => f.write_str(name),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
        }
    }
}

/// What holds for some directories.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    values: BTreeMap<(&'static str, &'static str), (String, Origin)>,
    files: Vec<(PathBuf, FileState)>,
}

impl Settings {
    /// Reads all files that are for the directories, and the variables of some keys.
    pub(crate) fn of(directories: &[PathBuf], keys: impl Iterator<Item = &'static Key>) -> anyhow::Result<Self> {
        let mut settings = Self::default();
        for directory in directories {
            let of_one = Self::of_files(&places(directory))?;
            settings.join(of_one, directory)?;
        }
        settings.take_variables(keys)?;
        Ok(settings)
    }

    fn of_files(places: &[PathBuf]) -> anyhow::Result<Self> {
        let mut settings = Self::default();
        for path in places {
            let (state, entries) = file::read(path, !path.ends_with(OF_DIRECTORY))?;
            for (key, entry) in entries {
                let origin = Origin::File {
                    path: path.clone(),
                    line: entry.line,
                };
                // The nearest file comes first.
                settings.values.entry(key).or_insert((entry.value, origin));
            }
            settings.files.push((path.clone(), state));
        }
        Ok(settings)
    }

    /// One job has one way to work, also over several directories.
    fn join(&mut self, other: Self, directory: &Path) -> anyhow::Result<()> {
        if self.files.is_empty() {
            *self = other;
            return Ok(());
        }
        for key in &KEYS {
            let values = [self.found(key), other.found(key)].map(|found| found.map(|(value, _)| value));
            if values[0] != values[1] {
                let shown = |settings: &Self| {
                    settings
                        .found(key)
                        .map_or("not set".into(), |(value, origin)| format!("{value} in {origin}"))
                };
                bail!(
                    "{}: `{}` is {} for it and {} for the directory before it; say --{} on the command line, or run two jobs",
                    directory.shown(),
                    key.name,
                    shown(&other),
                    shown(self),
                    key.name
                );
            }
        }
        self.files.extend(
            other
                .files
                .into_iter()
                .filter(|file| !self.files.contains(file))
                .collect::<Vec<_>>(),
        );
        Ok(())
    }

    fn take_variables(&mut self, keys: impl Iterator<Item = &'static Key>) -> anyhow::Result<()> {
        for key in keys {
            let Some(value) = std::env::var_os(key.variable).filter(|value| !value.is_empty()) else {
                continue;
            };
            let value = value
                .into_string()
                .ok()
                .with_context(|| format!("{} is not UTF-8", key.variable))?;
            file::checked(key, &value).map_err(|reason| anyhow::anyhow!("{}: {reason}", key.variable))?;
            self.values
                .insert((key.section, key.name), (value, Origin::Variable(key.variable)));
        }
        Ok(())
    }

    fn found(&self, key: &Key) -> Option<&(String, Origin)> {
        self.values.get(&(key.section, key.name))
    }

    /// What a key is set to.
    pub(crate) fn value(&self, key: &Key) -> Option<&str> {
        self.found(key).map(|(value, _)| value.as_str())
    }

    /// Where that is from.
    pub(crate) fn origin(&self, key: &Key) -> Option<&Origin> {
        self.found(key).map(|(_, origin)| origin)
    }

    /// The places that were looked at, the nearest first.
    pub(crate) fn files(&self) -> &[(PathBuf, FileState)] {
        &self.files
    }

    /// What users should know of files that are there and do not count.
    pub(crate) fn notes(&self) -> impl Iterator<Item = String> {
        self.files.iter().filter_map(|(path, state)| match state {
            FileState::Ignored(why) => Some(format!("{} does not count: {why}", path.shown())),
            FileState::Read | FileState::Absent => None,
        })
    }
}

/// Where settings for a directory may be, the nearest first.
#[allow(clippy::disallowed_methods, reason = "where the directory is, and not what is in it")]
fn places(directory: &Path) -> Vec<PathBuf> {
    // One that is not here yet, and is reached elsewhere, lies in one that is.
    let whole = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let whole = whole.canonicalize().unwrap_or(whole);
    let mut places: Vec<PathBuf> = whole.ancestors().map(|above| above.join(OF_DIRECTORY)).collect();
    places.extend(of_user());
    places.push(SYSTEM.into());
    places
}

fn of_user() -> Option<PathBuf> {
    let variable = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path: &PathBuf| path.is_absolute())
    };
    let base = variable("XDG_CONFIG_HOME").or_else(|| Some(variable("HOME")?.join(".config")))?;
    Some(base.join("elbow/config.toml"))
}
