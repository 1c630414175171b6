//! The product's sources as modules of crates, parsed: what the rule about circles and the counts look at.
//!
//! Not here: sources of tests, of `elbow-testkit` and of this crate.

mod imports;

use std::path::Path;

use anyhow::{Context, Result};
use syn::Attribute;

use crate::workspace::Workspace;

pub(crate) use imports::{Circle, circles};

/// Crates that stand beside the product.
const BESIDE: [&str; 2] = ["elbow-testkit", "xtask"];

/// The sources of one crate.
#[derive(Debug)]
pub(crate) struct CrateSources {
    /// Its package name.
    pub(crate) name: String,
    /// One of each file.
    pub(crate) modules: Vec<Module>,
}

/// A file of a crate: a module with those that are written in it.
#[derive(Debug)]
pub(crate) struct Module {
    /// Names from the root of the crate, which itself has none.
    pub(crate) path: Vec<String>,
    pub(crate) text: String,
    pub(crate) syntax: syn::File,
}

impl Module {
    /// As it is written in a `use`, without the crate.
    pub(crate) fn name(&self) -> String {
        if self.path.is_empty() {
            return "(root)".to_owned();
        }
        self.path.join("::")
    }
}

/// Reads the product's crates, each with its modules in the order of their files.
pub(crate) fn read(workspace: &Workspace) -> Result<Vec<CrateSources>> {
    let members = workspace
        .crates
        .iter()
        .filter(|member| !BESIDE.contains(&&*member.name));
    members
        .map(|member| {
            let dir = member.manifest_path.parent().unwrap_or(Path::new(""));
            let sources = dir.strip_prefix(&workspace.root).unwrap_or(dir).join("src");
            let files = workspace.rust_files().filter_map(|file| {
                let path = module_path(file.strip_prefix(&sources).ok()?)?;
                Some((file, path))
            });
            let modules = files.map(|(file, path)| module(workspace, file, path));
            Ok(CrateSources {
                name: member.name.clone(),
                modules: modules.collect::<Result<_>>()?,
            })
        })
        .collect()
}

fn module(workspace: &Workspace, file: &Path, path: Vec<String>) -> Result<Module> {
    let text = workspace.text(file)?;
    let syntax = syn::parse_file(&text).with_context(|| format!("parsing {}", file.display()))?;
    Ok(Module { path, text, syntax })
}

/// The module of a file below `src`; none of tests.
fn module_path(file: &Path) -> Option<Vec<String>> {
    let words = file.with_extension("");
    let mut path: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let is_test = |word: &String| word == "tests" || word.ends_with("_test");
    if path.iter().any(is_test) {
        return None;
    }
    if matches!(path.last()?.as_str(), "mod" | "lib" | "main") {
        path.pop();
    }
    Some(path)
}

/// Whether something is compiled for tests alone.
pub(crate) fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_cfg = attribute.path().is_ident("cfg");
        attribute.path().is_ident("test")
            || is_cfg
                && attribute
                    .parse_args::<syn::Path>()
                    .is_ok_and(|what| what.is_ident("test"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_modules() {
        let path = |file: &str| module_path(Path::new(file)).map(|path| path.join("::"));
        assert_eq!(path("lib.rs").as_deref(), Some(""));
        assert_eq!(path("main.rs").as_deref(), Some(""));
        assert_eq!(path("model/mod.rs").as_deref(), Some("model"));
        assert_eq!(path("model/names.rs").as_deref(), Some("model::names"));
        assert_eq!(path("server_test.rs"), None);
        assert_eq!(path("run/tests.rs"), None);
        assert_eq!(path("in_place/tests/shortage.rs"), None);
    }
}
