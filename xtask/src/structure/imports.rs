//! Which module of a crate names what of which other one, and where these arrows close a circle.
//!
//! An arrow is a name that is used: by `use`, or as a path from `crate`, `super`, `self` or a module below. A name that a module only hands on
//! (`pub use`) leads to the module that defines it, so that a crate's face is in no circle.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use petgraph::algo::tarjan_scc;
use petgraph::graph::DiGraph;
use syn::visit::{self, Visit};
use syn::{ItemFn, ItemImpl, ItemMod, ItemUse, UseTree, Visibility};

use super::{CrateSources, Module, is_for_tests};

/// Names handed on more often than this are handed on in a ring.
const HANDED_ON_MAX: usize = 8;

/// Modules that name each other in a loop, and by what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Circle {
    /// Their names, sorted.
    pub(crate) modules: Vec<String>,
    /// Who names what of whom.
    pub(crate) arrows: Vec<String>,
}

/// The circles of a crate.
pub(crate) fn circles(sources: &CrateSources) -> Vec<Circle> {
    let paths: Vec<&[String]> = sources.modules.iter().map(|module| &*module.path).collect();
    let uses: Vec<Uses> = sources.modules.iter().map(|module| Uses::of(module, &paths)).collect();
    let number: HashMap<&[String], usize> = paths.iter().enumerate().map(|(at, path)| (*path, at)).collect();
    let mut arrows: BTreeMap<(usize, usize), BTreeSet<&str>> = BTreeMap::new();
    for (from, used) in uses.iter().enumerate() {
        for path in &used.paths {
            let Some((to, name)) = origin(path, &number, &uses) else {
                continue;
            };
            if to != from {
                arrows.entry((from, to)).or_default().insert(name);
            }
        }
    }
    let graph = DiGraph::<(), (), usize>::from_edges(arrows.keys());
    let mut found: Vec<Circle> = tarjan_scc(&graph)
        .into_iter()
        .filter(|circle| circle.len() > 1)
        .map(|circle| {
            let members: BTreeSet<usize> = circle.into_iter().map(|node| node.index()).collect();
            let inside = arrows
                .iter()
                .filter(|((from, to), _)| members.contains(from) && members.contains(to));
            Circle {
                modules: members.iter().map(|&at| sources.modules[at].name()).collect(),
                arrows: inside
                    .map(|((from, to), names)| {
                        let (from, to) = (sources.modules[*from].name(), sources.modules[*to].name());
                        let names: Vec<&str> = names.iter().copied().collect();
                        format!("{from} -> {to}: {}", names.join(", "))
                    })
                    .collect(),
            }
        })
        .collect();
    found.sort_by(|a, b| a.modules.cmp(&b.modules));
    found
}

/// The module that defines what a path from the root names, and the name.
fn origin<'a>(path: &'a [String], number: &HashMap<&[String], usize>, uses: &'a [Uses]) -> Option<(usize, &'a str)> {
    let mut path = path;
    for _ in 0..HANDED_ON_MAX {
        let known = (0..=path.len())
            .rev()
            .find(|&length| number.contains_key(&path[..length]))?;
        let at = number[&path[..known]];
        let name = path.get(known).map_or("", String::as_str);
        match uses[at].handed_on.get(name) {
            Some(next) => path = next,
            None => return Some((at, name)),
        }
    }
    None
}

/// What a module names, by paths from the root of its crate.
#[derive(Debug, Default)]
struct Uses {
    paths: BTreeSet<Vec<String>>,
    /// Names that it only hands on, and where they are from.
    handed_on: HashMap<String, Vec<String>>,
}

impl Uses {
    fn of(module: &Module, known: &[&[String]]) -> Self {
        let mut reader = Reader {
            at: module.path.clone(),
            known,
            uses: Self::default(),
        };
        reader.visit_file(&module.syntax);
        reader.uses
    }
}

struct Reader<'a> {
    /// The module that is being read, with those that are written in the file.
    at: Vec<String>,
    known: &'a [&'a [String]],
    uses: Uses,
}

impl Reader<'_> {
    /// The path from the root; none of what is of another crate.
    fn absolute(&self, names: &[String]) -> Option<Vec<String>> {
        let mut base = self.at.clone();
        let mut names = names.iter().peekable();
        let first = names.peek()?.as_str();
        match first {
            "crate" => {
                names.next();
                base.clear();
            }
            "self" => {
                names.next();
            }
            "super" => {
                while names.next_if(|name| *name == "super").is_some() {
                    base.pop();
                }
            }
            module => {
                let mut below = base.clone();
                below.push(module.to_owned());
                if !self.known.contains(&&*below) {
                    return None;
                }
            }
        }
        base.extend(names.cloned());
        Some(base)
    }

    fn leaves(tree: &UseTree, above: &[String], found: &mut Vec<(Vec<String>, String)>) {
        let with = |name: &syn::Ident| [above, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => Self::leaves(&path.tree, &with(&path.ident), found),
            UseTree::Name(name) if name.ident == "self" => {
                found.push((above.to_vec(), above.last().cloned().unwrap_or_default()));
            }
            UseTree::Name(name) => found.push((with(&name.ident), name.ident.to_string())),
            UseTree::Rename(rename) => found.push((with(&rename.ident), rename.rename.to_string())),
            UseTree::Glob(_) => found.push((above.to_vec(), String::new())),
            UseTree::Group(group) => group.items.iter().for_each(|tree| Self::leaves(tree, above, found)),
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if is_for_tests(&item.attrs) {
            return;
        }
        let mut leaves = Vec::new();
        Self::leaves(&item.tree, &[], &mut leaves);
        for (path, name) in leaves {
            let Some(path) = self.absolute(&path) else { continue };
            match item.vis {
                Visibility::Inherited => drop(self.uses.paths.insert(path)),
                _ => drop(self.uses.handed_on.insert(name, path)),
            }
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        // A single name was brought in by a `use`, or is defined here.
        if names.len() > 1 && path.leading_colon.is_none() {
            self.uses.paths.extend(self.absolute(&names));
        }
        visit::visit_path(self, path);
    }

    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {
        // `pub(super)` names nothing.
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if is_for_tests(&item.attrs) {
            return;
        }
        self.at.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.at.pop();
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<Circle> {
        let module = |&(path, text): &(&str, &str)| Module {
            path: path
                .split("::")
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect(),
            text: text.to_owned(),
            syntax: syn::parse_file(text).expect("Rust"),
        };
        circles(&CrateSources {
            name: "of-a-test".into(),
            modules: files.iter().map(module).collect(),
        })
    }

    #[test]
    fn modules_that_name_each_other_are_a_circle() {
        let circles = found(&[
            ("", "mod a; mod b; mod c;"),
            ("a", "use crate::b::B; pub struct A(B, crate::c::C);"),
            ("b", "pub struct B; impl B { fn new() { super::a::make() } }"),
            ("c", "pub struct C;"),
        ]);
        assert_eq!(circles.len(), 1);
        assert_eq!(circles[0].modules, ["a", "b"]);
        assert_eq!(circles[0].arrows, ["a -> b: B", "b -> a: make"]);
    }

    #[test]
    fn a_child_that_names_what_its_parent_defines_is_one_if_that_names_the_child() {
        let parent = "mod child; use child::Part; pub struct Whole(Part);";
        let child = |text| [("whole", parent), ("whole::child", text)];
        assert_eq!(found(&child("use super::Whole; pub struct Part;")).len(), 1);
        assert_eq!(found(&child("pub struct Part;")).len(), 0);
    }

    #[test]
    fn who_hands_a_name_on_does_not_use_it() {
        let circles = found(&[
            ("", "mod a; mod b; pub use a::A; pub use b::B;"),
            ("a", "pub struct A;"),
            ("b", "use crate::A; pub struct B(A);"),
        ]);
        assert_eq!(circles, []);
    }

    #[test]
    fn what_only_tests_name_is_no_arrow() {
        let circles = found(&[
            ("a", "pub struct A; #[cfg(test)] mod tests { use crate::b::B; }"),
            ("b", "use crate::a::A; pub struct B(A);"),
        ]);
        assert_eq!(circles, []);
    }
}
