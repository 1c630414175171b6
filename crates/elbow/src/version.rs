//! `elbow --version --verbose`: what this program was built from, for the report of a fault.
//!
//! `--version` alone is one line, as everywhere. What is said here was found when it was built (`build.rs`).

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;

use serde::Serialize;

use crate::{json, output};

/// How much is asked for beside the version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Words,
    Json,
}

/// What the command line asks for; nothing where it is not of the version, or of the version alone.
pub(crate) fn asked(words: &[OsString]) -> Option<Asked> {
    let has = |names: &[&str]| words.iter().any(|word| names.iter().any(|name| word == name));
    let is_ours = |word: &OsString| {
        ["-V", "--version", "--verbose", "--json"]
            .map(OsStr::new)
            .contains(&word.as_os_str())
    };
    match words.iter().all(is_ours) && has(&["-V", "--version"]) {
        true if has(&["--json"]) => Some(Asked::Json),
        true if has(&["--verbose"]) => Some(Asked::Words),
        _ => None,
    }
}

/// Prints it on standard output.
pub(crate) fn tell(asked: Asked) -> io::Result<()> {
    match asked {
        Asked::Words => output::answer(BUILD),
        Asked::Json => output::answer(json::line(&BUILD)?),
    }
}

/// A build.
#[derive(Clone, Copy, Debug, Serialize)]
struct Build {
    elbow: &'static str,
    commit: &'static str,
    rustc: &'static str,
    target: &'static str,
    profile: &'static str,
    features: &'static str,
    libraries: &'static str,
}

const BUILD: Build = Build {
    elbow: env!("CARGO_PKG_VERSION"),
    commit: env!("BUILD_COMMIT"),
    rustc: env!("BUILD_RUSTC"),
    target: env!("BUILD_TARGET"),
    profile: env!("BUILD_PROFILE"),
    features: env!("BUILD_FEATURES"),
    libraries: env!("BUILD_LIBRARIES"),
};

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_none = |text: &'static str| if text.is_empty() { "none" } else { text };
        writeln!(f, "elbow {}", self.elbow)?;
        writeln!(f, "commit:    {}", self.commit)?;
        writeln!(f, "rustc:     {}", self.rustc)?;
        writeln!(f, "target:    {}", self.target)?;
        writeln!(f, "profile:   {}", self.profile)?;
        writeln!(f, "features:  {}", or_none(self.features))?;
        write!(f, "libraries: {}", or_none(self.libraries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> Option<Asked> {
        asked(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn only_the_version_with_more_is_asked_here() {
        assert_eq!(of(&["--version", "--verbose"]), Some(Asked::Words));
        assert_eq!(of(&["--verbose", "-V"]), Some(Asked::Words));
        assert_eq!(of(&["-V", "--json"]), Some(Asked::Json));
        assert_eq!(of(&["-V", "--verbose", "--json"]), Some(Asked::Json));
        for others in [
            &["--version"][..],
            &["--verbose"],
            &["-V", "sort"],
            &["sort", "--verbose"],
            &[],
        ] {
            assert_eq!(of(others), None, "{others:?}");
        }
    }

    #[test]
    fn all_but_the_commit_is_known() {
        assert!(BUILD.rustc.starts_with("rustc 1."), "{BUILD:?}");
        assert!(BUILD.target.contains("linux"), "{BUILD:?}");
        assert!(BUILD.libraries.contains("fuser 0."), "{BUILD:?}");
    }
}
