//! Files: a header that says what a module is, a length one can read, a name that means something, and
//! nothing large in the repository.

use std::path::Path;

use anyhow::Result;

use crate::workspace::Workspace;

/// Beyond this a file holds more than one concept and is to be split.
const LINES_MAX: usize = 1000;
/// Beyond this a file is data, and data is made or fetched, not committed.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 10] = [
    "util",
    "utils",
    "common",
    "commons",
    "helper",
    "helpers",
    "manager",
    "managers",
    "misc",
    "miscellaneous",
];

/// The findings about the files of the workspace and the names of its crates.
pub(super) fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    findings.extend(workspace.crates.iter().filter_map(|member| name_finding(&member.name)));
    for file in &workspace.files {
        let bytes = workspace.root.join(file).metadata()?.len();
        findings.extend(size_finding(file, bytes));
    }
    for file in workspace.rust_files() {
        let text = workspace.text(file)?;
        findings.extend(path_finding(file));
        findings.extend(header_finding(file, &text));
        findings.extend(length_finding(file, &text));
        findings.extend(inline_module_findings(file, &text));
    }
    Ok(findings)
}

fn size_finding(file: &Path, bytes: u64) -> Option<String> {
    (bytes > FILE_BYTES_MAX).then(|| {
        let file = file.display();
        format!("{file}: {bytes} bytes; a file in the repository has at most {FILE_BYTES_MAX}")
    })
}

fn header_finding(file: &Path, text: &str) -> Option<String> {
    let first = text.lines().find(|line| !line.trim().is_empty());
    let has_header = first
        .and_then(|line| line.strip_prefix("//!"))
        .is_some_and(|words| !words.trim().is_empty());
    (!has_header).then(|| format!("{}: begin with a `//!` header that says what it is", file.display()))
}

fn length_finding(file: &Path, text: &str) -> Option<String> {
    let lines = text.lines().count();
    (lines > LINES_MAX).then(|| {
        format!(
            "{}: {lines} lines; split it by concept (at most {LINES_MAX})",
            file.display()
        )
    })
}

fn path_finding(file: &Path) -> Option<String> {
    let stem = file.with_extension("");
    let part = stem
        .components()
        .filter_map(|part| part.as_os_str().to_str())
        .find_map(name_finding)?;
    Some(format!("{}: {part}", file.display()))
}

fn inline_module_findings(file: &Path, text: &str) -> Vec<String> {
    text.lines()
        .filter_map(declared_module)
        .filter_map(name_finding)
        .map(|finding| format!("{}: {finding}", file.display()))
        .collect()
}

/// The name in a line like `pub(crate) mod name;` or `mod name {`.
fn declared_module(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("mod ")?;
    let is_declaration = before.trim().is_empty() || before.trim_start().starts_with("pub");
    let name = after.split([';', ' ', '{']).next()?;
    (is_declaration && after.trim_end().ends_with([';', '{'])).then_some(name)
}

/// A finding if a word of the name is one that says nothing.
fn name_finding(name: &str) -> Option<String> {
    let word = name.split(['-', '_']).find(|word| EMPTY_NAMES.contains(word))?;
    Some(format!(
        "the name `{name}` says nothing (`{word}`); name it after what it holds"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> &'static Path {
        Path::new("crates/a/src/ranges.rs")
    }

    #[test]
    fn a_file_without_header_is_found() {
        assert!(header_finding(file(), "//! What it is.\nfn f() {}\n").is_none());
        for text in [
            "fn f() {}\n",
            "",
            "// plain\n",
            "//!\nfn f() {}\n",
            "use a::b;\n//! too late\n",
        ] {
            assert!(header_finding(file(), text).is_some(), "{text:?}");
        }
    }

    #[test]
    fn a_file_of_1001_lines_is_found() {
        assert!(length_finding(file(), &"x\n".repeat(1000)).is_none());
        assert!(length_finding(file(), &"x\n".repeat(1001)).is_some());
    }

    #[test]
    fn a_file_over_one_mebibyte_is_found() {
        assert!(size_finding(file(), 1 << 20).is_none());
        assert!(size_finding(file(), (1 << 20) + 1).is_some());
    }

    #[test]
    fn empty_names_are_found_in_crates_files_and_directories() {
        assert!(name_finding("elbow-file").is_none());
        assert!(name_finding("elbow-common").is_some());
        assert!(path_finding(file()).is_none());
        for path in [
            "src/util.rs",
            "src/io_helpers.rs",
            "tests/common/mod.rs",
            "src/job_manager.rs",
            "misc/a.rs",
        ] {
            assert!(path_finding(Path::new(path)).is_some(), "{path}");
        }
    }

    #[test]
    fn empty_names_are_found_in_inline_modules() {
        assert_eq!(inline_module_findings(file(), "pub(crate) mod util {\n}\n").len(), 1);
        assert_eq!(inline_module_findings(file(), "mod misc;\n").len(), 1);
        assert!(inline_module_findings(file(), "mod tests {\n// the mod util is gone;\n").is_empty());
    }
}
