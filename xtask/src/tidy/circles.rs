//! Modules of a crate do not name each other in a loop: none can be read, or moved, without the others.

use anyhow::Result;

use crate::structure::{self, Circle};
use crate::workspace::Workspace;

/// A circle that stays: its crate, its modules in their order, and why.
type Stays = (&'static str, &'static [&'static str], &'static str);

/// Each is a debt, or one thing in several files.
const STAY: [Stays; 4] = [
    (
        "elbow-ranges",
        &[
            "blocks::runs",
            "blocks",
            "error",
            "ranges",
            "strided::canonical",
            "strided::walk",
            "strided",
        ],
        "patterns, bitmaps and lists of ranges are made into each other",
    ),
    (
        "elbow-job",
        &["commit::apply", "commit::content", "commit::late"],
        "the steps of a commit are one thing in three files: those that change contents and those that cannot be done at once are steps, too",
    ),
    (
        "elbow-mount",
        &["dispatch", "prefetch"],
        "reading in advance asks the storage as requests do, and requests say what is to be read",
    ),
    (
        "elbow-python",
        &["hold", "pending", "process_local"],
        "a hold that waits is pending, and is its owner's at work",
    ),
];

/// The findings about circles that are not known, and about known ones that have gone.
pub(super) fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let sources = structure::read(workspace)?;
    let circles = sources.iter().flat_map(|sources| {
        let circles = structure::circles(sources).into_iter();
        circles.map(|circle| (&*sources.name, circle))
    });
    Ok(findings(circles, &STAY))
}

fn findings<'a>(circles: impl Iterator<Item = (&'a str, Circle)>, stay: &[Stays]) -> Vec<String> {
    let mut known: Vec<&Stays> = stay.iter().collect();
    let mut findings = Vec::new();
    for (name, circle) in circles {
        let is_it = |stays: &&Stays| stays.0 == name && circle.modules == *stays.1;
        match known.iter().position(is_it) {
            Some(at) => drop(known.swap_remove(at)),
            None => findings.push(format!(
                "{name}: {} name each other: {}",
                circle.modules.join(", "),
                circle.arrows.join("; ")
            )),
        }
    }
    findings.extend(known.into_iter().map(|(name, modules, _)| {
        format!(
            "{name}: {} are no circle any more; take them out of xtask/src/tidy/circles.rs",
            modules.join(", ")
        )
    }));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [Stays; 1] = [("elbow-job", &["a", "b"], "of a test")];

    fn circle(modules: &[&str]) -> Circle {
        Circle {
            modules: modules.iter().map(|name| (*name).to_owned()).collect(),
            arrows: vec!["a -> b: B".to_owned(), "b -> a: A".to_owned()],
        }
    }

    #[test]
    fn known_circles_pass_in_their_crate_alone() {
        let found = |name: &'static str| findings([(name, circle(&["a", "b"]))].into_iter(), &KNOWN);
        assert_eq!(found("elbow-job"), Vec::<String>::new());
        let elsewhere = found("elbow-file");
        assert_eq!(elsewhere[0], "elbow-file: a, b name each other: a -> b: B; b -> a: A");
        assert!(elsewhere[1].starts_with("elbow-job: a, b are no circle any more"));
    }

    #[test]
    fn who_joins_a_known_circle_is_found() {
        assert_eq!(
            findings([("elbow-job", circle(&["a", "b", "c"]))].into_iter(), &KNOWN).len(),
            2
        );
    }
}
