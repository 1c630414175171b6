//! Every crate takes version, edition, licence and lints from the workspace, and can be packaged.

use toml::Table;

/// What `[package]` has to take from `[workspace.package]`.
const INHERITED: [&str; 6] = ["version", "edition", "rust-version", "license", "authors", "publish"];

/// For tests, and never published: with a version behind its name no crate that uses it can be packaged.
const TESTKIT: &str = "elbow-testkit";

/// The findings about the `Cargo.toml` of one crate.
pub(super) fn check(name: &str, manifest: &str) -> Vec<String> {
    let manifest: Table = match manifest.parse() {
        Ok(table) => table,
        Err(error) => return vec![format!("{name}: its Cargo.toml cannot be read: {error}")],
    };
    let package = manifest.get("package").and_then(|package| package.as_table());
    let mut findings: Vec<String> = INHERITED
        .into_iter()
        .filter(|key| !from_workspace(package.and_then(|package| package.get(*key))))
        .map(|key| format!("{name}: write `{key}.workspace = true` in [package]"))
        .collect();
    if !from_workspace(manifest.get("lints")) {
        findings.push(format!("{name}: write `[lints]` with `workspace = true`"));
    }
    findings.extend(testkit_finding(name, &manifest));
    findings
}

fn testkit_finding(name: &str, manifest: &Table) -> Option<String> {
    let used = manifest.get("dev-dependencies")?.get(TESTKIT)?;
    let is_path_only = used.get("path").is_some() && used.get("version").is_none();
    (!is_path_only).then(|| format!("{name}: write `{TESTKIT} = {{ path = ... }}` without a version"))
}

/// Whether a value is `{ workspace = true }`.
fn from_workspace(value: Option<&toml::Value>) -> bool {
    value
        .and_then(|value| value.get("workspace"))
        .and_then(toml::Value::as_bool)
        == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[package]\nname = \"a\"\nversion.workspace = true\nedition.workspace = true\n\
        rust-version.workspace = true\nlicense.workspace = true\nauthors.workspace = true\n\
        publish.workspace = true\n[lints]\nworkspace = true\n";

    #[test]
    fn a_crate_that_inherits_all_passes() {
        assert!(check("a", GOOD).is_empty());
    }

    #[test]
    fn an_edition_of_its_own_is_found() {
        let manifest = GOOD.replace("edition.workspace = true", "edition = \"2021\"");
        assert_eq!(
            check("a", &manifest),
            ["a: write `edition.workspace = true` in [package]"]
        );
    }

    #[test]
    fn missing_lints_are_found() {
        let manifest = GOOD.replace("[lints]\nworkspace = true\n", "");
        assert_eq!(check("a", &manifest), ["a: write `[lints]` with `workspace = true`"]);
    }

    #[test]
    fn a_licence_of_its_own_is_found() {
        let manifest = GOOD.replace("license.workspace = true", "license = \"MIT\"");
        assert_eq!(check("a", &manifest).len(), 1);
    }

    /// `cargo package` looked for it in the registry.
    #[test]
    fn a_testkit_with_a_version_is_found() {
        let with = |value: &str| format!("{GOOD}[dev-dependencies]\nelbow-testkit = {value}\n");
        assert!(check("a", &with("{ path = \"../elbow-testkit\" }")).is_empty());
        for wrong in [
            "{ workspace = true }",
            "{ path = \"../elbow-testkit\", version = \"0.1.0\" }",
            "\"0.1.0\"",
        ] {
            assert_eq!(check("a", &with(wrong)).len(), 1, "{wrong}");
        }
    }

    #[test]
    fn a_broken_manifest_is_found() {
        assert!(
            check("a", "[package")
                .first()
                .is_some_and(|finding| finding.contains("cannot be read"))
        );
    }
}
