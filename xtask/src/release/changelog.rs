//! What is unreleased in the changelog becomes a version's.
//!
//! Source of the layout: Keep a Changelog 1.1.0.

use semver::Version;

const UNRELEASED: &str = "## [Unreleased]\n";
/// How the headings of versions begin.
const HEADING: &str = "\n## [";

/// Why the changelog is not that of a release.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ChangelogError {
    #[error("CHANGELOG.md has no line `## [Unreleased]`")]
    NoUnreleased,
    #[error("CHANGELOG.md says nothing under [Unreleased]: there is nothing to release")]
    Empty,
    #[error("CHANGELOG.md has a [{0}] already")]
    IsThere(Version),
}

/// The changelog with what was unreleased under a version and its date.
pub(super) fn released(text: &str, version: &Version, date: &str) -> Result<String, ChangelogError> {
    let (before, after) = text.split_once(UNRELEASED).ok_or(ChangelogError::NoUnreleased)?;
    if text.contains(&format!("{HEADING}{version}]")) {
        return Err(ChangelogError::IsThere(version.clone()));
    }
    if !has_entries(text) {
        return Err(ChangelogError::Empty);
    }
    Ok(format!("{before}{UNRELEASED}{HEADING}{version}] - {date}\n{after}"))
}

/// Whether anything is unreleased.
pub(super) fn has_entries(text: &str) -> bool {
    let Some((_, after)) = text.split_once(UNRELEASED) else {
        return false;
    };
    let section = after.split(HEADING).next().unwrap_or_default();
    section.lines().any(|line| line.starts_with("- "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- A thing.\n\n## [0.1.0] - 2026-01-02\n\n- All.\n";

    #[test]
    fn what_is_unreleased_gets_version_and_date() {
        let expected = "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-03-04\n\n### Added\n\n- A thing.\n\n## [0.1.0] - 2026-01-02\n\n- All.\n";
        let done = released(TEXT, &Version::new(0, 2, 0), "2026-03-04").expect("a release");
        assert_eq!(done, expected);
        assert!(has_entries(TEXT) && !has_entries(&done));
        assert_eq!(
            released(&done, &Version::new(0, 3, 0), "2026-03-05"),
            Err(ChangelogError::Empty)
        );
    }

    #[test]
    fn a_heading_without_entries_is_nothing() {
        let empty = TEXT.replace("- A thing.\n", "");
        assert_eq!(
            released(&empty, &Version::new(0, 2, 0), "2026-03-04"),
            Err(ChangelogError::Empty)
        );
    }

    #[test]
    fn a_version_that_is_there_and_no_place_for_one_are_refused() {
        let first = Version::new(0, 1, 0);
        assert_eq!(
            released(TEXT, &first, "2026-03-04"),
            Err(ChangelogError::IsThere(first.clone()))
        );
        assert_eq!(
            released("# Changelog\n", &first, "2026-03-04"),
            Err(ChangelogError::NoUnreleased)
        );
    }
}
