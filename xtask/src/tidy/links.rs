//! Links between the pages: every relative link of a Markdown file leads to a file or directory of the repository, and every
//! page below `docs/` is reached from the README by following links.
//!
//! Links to other places are not looked at, and neither is the part of a link behind `#`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use anyhow::Result;
use pulldown_cmark::{Event, Parser, Tag};

use crate::workspace::Workspace;

/// Where a reader begins.
const START: &str = "README.md";
/// Pages that nobody finds unless a link leads there.
const PAGES: &str = "docs";

/// The findings about the links of the workspace.
pub(super) fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let mut pages = BTreeMap::new();
    for file in workspace.files.iter().filter(|file| is_page(file)) {
        pages.insert(file.clone(), links(&workspace.text(file)?));
    }
    let mut findings = broken(&pages, &workspace.files);
    findings.extend(unreached(&pages));
    Ok(findings)
}

/// What each page links to, as it is written there.
type Pages = BTreeMap<PathBuf, Vec<String>>;

fn is_page(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "md")
}

/// The relative links and images of a page.
fn links(markdown: &str) -> Vec<String> {
    Parser::new(markdown)
        .filter_map(|event| match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => Some(dest_url.to_string()),
            _ => None,
        })
        .filter(|link| !link.starts_with('#') && !has_scheme(link))
        .collect()
}

/// Whether a link begins like `https:` or `mailto:`.
fn has_scheme(link: &str) -> bool {
    link.split(['/', '#'])
        .next()
        .is_some_and(|beginning| beginning.contains(':'))
}

fn broken(pages: &Pages, files: &[PathBuf]) -> Vec<String> {
    let there: BTreeSet<&Path> = files.iter().flat_map(|file| file.ancestors()).collect();
    let mut findings = Vec::new();
    for (page, links) in pages {
        let wrong = links
            .iter()
            .filter(|link| !target(page, link).is_some_and(|target| there.contains(target.as_path())));
        findings.extend(wrong.map(|link| format!("{}: links to `{link}`, and there is no such file", page.display())));
    }
    findings
}

fn unreached(pages: &Pages) -> Vec<String> {
    let reached = reached(pages, Path::new(START));
    pages
        .keys()
        .filter(|page| page.starts_with(PAGES) && !reached.contains(*page))
        .map(|page| {
            format!(
                "{}: no link leads there from {START}; link it from a page that is reached",
                page.display()
            )
        })
        .collect()
}

/// All pages that links lead to from `start`, and itself.
fn reached(pages: &Pages, start: &Path) -> BTreeSet<PathBuf> {
    let mut reached = BTreeSet::new();
    let mut waiting = vec![start.to_owned()];
    while let Some(page) = waiting.pop() {
        if let Some(links) = pages.get(&page).filter(|_| !reached.contains(&page)) {
            waiting.extend(links.iter().filter_map(|link| target(&page, link)));
            reached.insert(page);
        }
    }
    reached
}

/// What a link of a page leads to, from the root of the repository; `None` where it leads out of it.
fn target(page: &Path, link: &str) -> Option<PathBuf> {
    let file = link.split('#').next().unwrap_or_default();
    let mut target = PathBuf::new();
    for part in page.parent()?.join(file).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => target.pop().then_some(())?,
            Component::Normal(name) => target.push(name),
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(texts: &[(&str, &str)]) -> Pages {
        texts.iter().map(|(page, text)| (page.into(), links(text))).collect()
    }

    fn broken_in(page: &str, text: &str) -> Vec<String> {
        let files = ["README.md", "docs/src/guide/run.md", "docs/src/images/run.svg"].map(PathBuf::from);
        broken(&pages(&[(page, text)]), &files)
    }

    #[test]
    fn links_to_files_and_directories_pass() {
        let text = "[a](docs/src/guide/run.md#recipes) ![b](docs/src/images/run.svg) [c](docs/src/) [d](./README.md)";
        assert!(broken_in("README.md", text).is_empty());
        assert!(broken_in("docs/src/guide/run.md", "[a](../../../README.md) [b](../guide/run.md)").is_empty());
    }

    #[test]
    fn a_link_to_nothing_is_found() {
        assert_eq!(
            broken_in("docs/src/guide/run.md", "[a](README.md)"),
            ["docs/src/guide/run.md: links to `README.md`, and there is no such file"]
        );
        assert_eq!(broken_in("README.md", "[a][b]\n\n[b]: missing.md\n").len(), 1);
        assert_eq!(broken_in("README.md", "![a](docs/missing.svg)").len(), 1);
    }

    #[test]
    fn a_link_out_of_the_repository_is_found() {
        assert_eq!(broken_in("README.md", "[a](../README.md) [b](/README.md)").len(), 2);
    }

    #[test]
    fn other_places_headings_and_code_are_not_looked_at() {
        let text = "[a](https://example.org/x) [b](mailto:a@example.org) [c](#limits) `[d](nowhere)`\n\n```\n[e](nowhere)\n```\n";
        assert!(broken_in("README.md", text).is_empty());
    }

    /// Two guides that linked only to each other were found by nobody.
    #[test]
    fn pages_that_only_link_to_each_other_are_found() {
        let texts = [
            ("README.md", "[a](docs/a.md)"),
            ("docs/a.md", "[up](../README.md) [b](b.md)"),
            ("docs/b.md", ""),
            ("docs/c.md", "[d](d.md)"),
            ("docs/d.md", "[c](c.md) [a](a.md)"),
            ("bench/results/results.md", ""),
        ];
        let findings = unreached(&pages(&texts));
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(
            findings
                .iter()
                .all(|finding| finding.starts_with("docs/c.md") || finding.starts_with("docs/d.md")),
            "{findings:?}"
        );
    }
}
