//! Each page of `docs/` is in the book's table of contents, `docs/SUMMARY.md`.

use std::path::Path;

use anyhow::Result;

use crate::workspace::Workspace;

const CONTENTS: &str = "docs/SUMMARY.md";

/// The findings about pages that the book lacks. That what it names is there is for `links` to say.
pub(super) fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let contents = workspace.text(Path::new(CONTENTS))?;
    let pages = workspace.files.iter().filter_map(|file| file.strip_prefix("docs").ok());
    let pages = pages.filter(|page| page.extension().is_some_and(|extension| extension == "md"));
    Ok(pages
        .filter(|page| *page != Path::new("SUMMARY.md") && !is_named(&contents, page))
        .map(|page| format!("docs/{}: {CONTENTS} does not name it", page.display()))
        .collect())
}

fn is_named(contents: &str, page: &Path) -> bool {
    contents.contains(&format!("]({})", page.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_named_by_their_whole_paths() {
        let contents = "- [Jobs](src/guide/run.md)\n";
        assert!(is_named(contents, Path::new("src/guide/run.md")));
        assert!(!is_named(contents, Path::new("guide/run.md")) && !is_named(contents, Path::new("src/guide/run.mdx")));
    }
}
