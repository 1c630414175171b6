//! Arrows point only downward.
//!
//! ```text
//! floor 5   elbow  elbow-c  elbow-c-lock  elbow-fcntl  elbow-mpi  elbow-python
//! floor 4   elbow-study
//! floor 3   elbow-mount  elbow-ext2  elbow-drive
//! floor 2   elbow-job  elbow-extmem  elbow-lock  elbow-disk  elbow-remote
//! floor 1   elbow-file
//! floor 0   elbow-ranges
//! beside    elbow-testkit  xtask
//! ```
//!
//! A crate uses only crates of lower floors, so siblings never import each other. Crates beside the house may
//! use any of it; the house uses them in its tests only. A crate that the table does not know is a finding:
//! giving it a floor is a decision, and this file is where it is taken.

use crate::workspace::{Crate, DependencyKind};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Floor(u8),
    Beside,
}

fn place(name: &str) -> Option<Place> {
    Some(match name {
        "elbow-ranges" => Place::Floor(0),
        "elbow-file" => Place::Floor(1),
        "elbow-job" | "elbow-extmem" | "elbow-lock" | "elbow-disk" | "elbow-remote" => Place::Floor(2),
        "elbow-mount" | "elbow-ext2" | "elbow-drive" => Place::Floor(3),
        "elbow-study" => Place::Floor(4),
        "elbow" | "elbow-c" | "elbow-c-lock" | "elbow-fcntl" | "elbow-mpi" | "elbow-python" => Place::Floor(5),
        "elbow-testkit" | "xtask" => Place::Beside,
        _ => return None,
    })
}

/// The findings about who depends on whom.
pub(super) fn check(crates: &[Crate]) -> Vec<String> {
    let is_member = |name: &str| crates.iter().any(|member| member.name == name);
    let mut findings = Vec::new();
    for user in crates {
        let Some(from) = place(&user.name) else {
            findings.push(format!(
                "{}: has no floor; give it one in xtask/src/tidy/floors.rs",
                user.name
            ));
            continue;
        };
        for used in user
            .dependencies
            .iter()
            .filter(|dependency| is_member(&dependency.name))
        {
            let to = place(&used.name);
            findings.extend(
                to.and_then(|to| arrow_finding(from, to, used.kind))
                    .map(|why| format!("{} -> {}: {why}", user.name, used.name)),
            );
        }
    }
    findings
}

/// What is wrong with an arrow, if anything.
fn arrow_finding(from: Place, to: Place, kind: DependencyKind) -> Option<&'static str> {
    match (from, to) {
        (Place::Beside, _) => None,
        (Place::Floor(_), Place::Beside) if kind == DependencyKind::Dev => None,
        (Place::Floor(_), Place::Beside) => Some("stands beside the house; only [dev-dependencies] may name it"),
        (Place::Floor(from), Place::Floor(to)) if from > to => None,
        (Place::Floor(from), Place::Floor(to)) if from == to => Some("siblings on a floor do not import each other"),
        (Place::Floor(_), Place::Floor(_)) => Some("the arrow points upward"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    fn member(name: &str, uses: &[(&str, DependencyKind)]) -> Crate {
        let dependencies = uses
            .iter()
            .map(|&(name, kind)| Dependency {
                name: name.into(),
                kind,
            })
            .collect();
        Crate {
            name: name.into(),
            manifest_path: "Cargo.toml".into(),
            dependencies,
        }
    }

    fn findings_of(user: &str, used: &str, kind: DependencyKind) -> Vec<String> {
        check(&[member(user, &[(used, kind)]), member(used, &[])])
    }

    #[test]
    fn downward_arrows_pass() {
        assert!(findings_of("elbow", "elbow-ranges", DependencyKind::Normal).is_empty());
        assert!(findings_of("elbow-job", "elbow-file", DependencyKind::Build).is_empty());
    }

    #[test]
    fn upward_arrows_are_found_even_for_tests() {
        for kind in [DependencyKind::Normal, DependencyKind::Dev, DependencyKind::Build] {
            let findings = findings_of("elbow-file", "elbow-job", kind);
            assert_eq!(findings, ["elbow-file -> elbow-job: the arrow points upward"]);
        }
    }

    #[test]
    fn siblings_are_found() {
        let findings = findings_of("elbow-job", "elbow-lock", DependencyKind::Normal);
        assert_eq!(
            findings,
            ["elbow-job -> elbow-lock: siblings on a floor do not import each other"]
        );
    }

    #[test]
    fn the_testkit_is_for_tests_only() {
        assert!(findings_of("elbow-job", "elbow-testkit", DependencyKind::Dev).is_empty());
        assert_eq!(
            findings_of("elbow-job", "elbow-testkit", DependencyKind::Normal).len(),
            1
        );
        assert_eq!(findings_of("elbow", "elbow-testkit", DependencyKind::Build).len(), 1);
    }

    #[test]
    fn crates_beside_the_house_may_use_all_of_it() {
        assert!(findings_of("elbow-testkit", "elbow-file", DependencyKind::Normal).is_empty());
        assert!(findings_of("xtask", "elbow-testkit", DependencyKind::Normal).is_empty());
    }

    #[test]
    fn a_crate_without_a_floor_is_found() {
        let findings = check(&[member("elbow-attic", &[])]);
        assert_eq!(
            findings,
            ["elbow-attic: has no floor; give it one in xtask/src/tidy/floors.rs"]
        );
    }

    #[test]
    fn crates_from_outside_have_no_floor_and_need_none() {
        assert!(check(&[member("elbow-file", &[("rustix", DependencyKind::Normal)])]).is_empty());
    }
}
