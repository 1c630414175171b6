//! Modules that a change of a usual kind touches, by an example of each: those whose items name what is there already. Who only uses the
//! example is among them.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use crate::structure::{CrateSources, Module, is_for_tests};

/// A change of a usual kind.
struct Change {
    what: &'static str,
    /// What a module spells that would have to spell one more: all of these words, in one item.
    examples: &'static [&'static [&'static str]],
}

const CHANGES: [Change; 4] = [
    Change {
        what: "a key type of sort",
        examples: &[&["Signed"]],
    },
    Change {
        what: "an option of elbow run",
        examples: &[&["OnConflict"], &["on_conflict"]],
    },
    Change {
        what: "a FUSE operation that reaches the storage",
        examples: &[&["mknod"], &["Mknod"]],
    },
    Change {
        what: "a lock mode",
        examples: &[&["LockMode", "Shared", "Exclusive"]],
    },
];

/// Prints the modules of each change.
pub(crate) fn print(crates: &[CrateSources]) {
    for change in &CHANGES {
        let mut modules = Vec::new();
        for sources in crates {
            let product = sources.modules.iter().filter(|module| !is_double(module));
            let touched = product.filter(|module| change.touches(&module.syntax));
            modules.extend(touched.map(|module| format!("{}::{}", sources.name, module.name())));
        }
        println!("modules that {} touches: {}", change.what, modules.len());
        modules.iter().for_each(|module| println!("  {module}"));
    }
}

/// Storage doubles stand beside the product's code, for tests.
fn is_double(module: &Module) -> bool {
    module.path.first().is_some_and(|word| word == "double")
}

impl Change {
    fn touches(&self, syntax: &syn::File) -> bool {
        let mut items = Items {
            words: BTreeSet::new(),
            examples: self.examples,
            is_found: false,
        };
        items.visit_file(syntax);
        items.is_found
    }
}

/// Looks at items one by one, each function of a type for itself.
struct Items {
    words: BTreeSet<String>,
    examples: &'static [&'static [&'static str]],
    is_found: bool,
}

impl Items {
    fn item(&mut self, visit: impl FnOnce(&mut Self)) {
        self.words.clear();
        visit(self);
        let is_there = |example: &&[&str]| example.iter().all(|word| self.words.contains(*word));
        self.is_found |= self.examples.iter().any(is_there);
    }

    fn tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    self.words.insert(ident.to_string());
                }
                TokenTree::Group(group) => self.tokens(group.stream()),
                _ => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Items {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        match item {
            // Importing is no change.
            syn::Item::Use(_) => {}
            syn::Item::Mod(module) if is_for_tests(&module.attrs) => {}
            syn::Item::Impl(_) | syn::Item::Mod(_) => visit::visit_item(self, item),
            item => self.item(|items| visit::visit_item(items, item)),
        }
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        self.item(|items| visit::visit_impl_item(items, item));
    }

    fn visit_ident(&mut self, ident: &'ast proc_macro2::Ident) {
        self.words.insert(ident.to_string());
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.tokens(item.tokens.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Change = Change {
        what: "an example",
        examples: &[&["Mode", "A"]],
    };

    #[test]
    fn an_item_that_names_all_is_touched_and_an_import_or_a_test_is_not() {
        let touches = |text: &str| ONE.touches(&syn::parse_file(text).expect("Rust"));
        assert!(touches("fn f() { Mode::A }"));
        assert!(touches("impl B { fn f() { matches!(x, Mode::A) } }"));
        assert!(!touches("use b::{Mode, A};"));
        assert!(!touches("fn f() { Mode::B } fn g() { A }"));
        assert!(!touches("#[cfg(test)] mod tests { fn f() { Mode::A } }"));
    }
}
