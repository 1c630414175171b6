//! `cargo xtask count`: figures of how the product's code is built, to be compared before and after a change of structure.
//!
//! ```text
//!   methods of a type        all functions in its `impl` blocks, of traits too; types of one name in a crate count as one
//!   open fields              of a type: those that other modules of its crate can write to
//!   comments in bodies       lines that say why, of all lines of functions
//!   repeated blocks          pairs of places that share six lines or more
//!   circles                  modules of a crate that name each other in a loop
//!   touched                  modules that name an example of what is often added
//! ```
//!
//! Tests do not count.

use std::collections::{BTreeMap, HashMap, HashSet};

use anyhow::Result;
use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Block, GenericArgument, ImplItem, ItemImpl, ItemMod, ItemStruct, PathArguments, Type, Visibility};

use crate::structure::{self, CrateSources, Module, is_for_tests};
use crate::touched;
use crate::workspace::Workspace;

/// More methods than this are a type that holds everything.
const METHODS_MAX: usize = 60;
/// Types with the most methods, or the most open fields, that are shown.
const SHOWN: usize = 8;
/// Lines that make a block.
const BLOCK_LINES: usize = 6;

/// Counts and prints.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let crates = structure::read(workspace)?;
    let counts: Vec<Counts> = crates.iter().map(Counts::of).collect();
    let most = |of: fn(&Counts) -> &BTreeMap<String, usize>| {
        let all = counts.iter().zip(&crates).flat_map(|(counts, sources)| {
            of(counts)
                .iter()
                .map(|(name, count)| (*count, format!("{}::{name}", sources.name)))
        });
        let mut all: Vec<(usize, String)> = all.collect();
        all.sort_by(|a, b| b.cmp(a));
        all
    };
    let methods = most(|counts| &counts.methods);
    let large = methods.iter().filter(|(count, _)| *count > METHODS_MAX).count();
    println!("types with more than {METHODS_MAX} methods: {large}; those with the most:");
    methods
        .iter()
        .take(SHOWN)
        .for_each(|(count, name)| println!("  {count:5} {name}"));
    println!("types with the most open fields:");
    most(|counts| &counts.open_fields)
        .iter()
        .take(SHOWN)
        .for_each(|(count, name)| println!("  {count:5} {name}"));
    let sum = |of: fn(&Counts) -> usize| counts.iter().map(of).sum::<usize>();
    let (lines, comments) = (sum(|counts| counts.body_lines), sum(|counts| counts.comment_lines));
    println!(
        "comments in bodies: {comments} of {lines} lines, {:.1} %",
        100.0 * comments as f64 / lines.max(1) as f64
    );
    println!("Result<_, String>: {}", sum(|counts| counts.text_errors));
    println!("repeated blocks: {}", repeated_blocks(&crates));
    let circles: Vec<_> = crates
        .iter()
        .map(|sources| (sources, structure::circles(sources)))
        .collect();
    println!(
        "circles: {}",
        circles.iter().map(|(_, found)| found.len()).sum::<usize>()
    );
    for (sources, circle) in circles
        .iter()
        .flat_map(|(sources, found)| found.iter().map(move |circle| (sources, circle)))
    {
        println!("  {}: {}", sources.name, circle.modules.join(", "));
        circle.arrows.iter().for_each(|arrow| println!("      {arrow}"));
    }
    touched::print(&crates);
    Ok(())
}

/// What is counted of one crate.
#[derive(Debug, Default)]
struct Counts {
    /// By type.
    methods: BTreeMap<String, usize>,
    open_fields: BTreeMap<String, usize>,
    body_lines: usize,
    comment_lines: usize,
    text_errors: usize,
}

impl Counts {
    fn of(sources: &CrateSources) -> Self {
        let mut counts = Self::default();
        for module in &sources.modules {
            let mut counter = Counter {
                lines: module.text.lines().map(str::trim_start).collect(),
                bodies: HashSet::new(),
                counts: &mut counts,
            };
            counter.visit_file(&module.syntax);
            let bodies = std::mem::take(&mut counter.bodies);
            let comments = bodies
                .iter()
                .filter(|&&line| counter.lines[line - 1].starts_with("//"))
                .count();
            counts.body_lines += bodies.len();
            counts.comment_lines += comments;
        }
        counts
    }
}

struct Counter<'a> {
    lines: Vec<&'a str>,
    /// Numbers of lines, from one, between the braces of functions.
    bodies: HashSet<usize>,
    counts: &'a mut Counts,
}

impl Counter<'_> {
    fn body(&mut self, block: &Block) {
        let (begin, end): (Span, Span) = (block.brace_token.span.open(), block.brace_token.span.close());
        self.bodies.extend(begin.start().line + 1..end.start().line);
    }
}

impl<'ast> Visit<'ast> for Counter<'_> {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        if is_for_tests(&item.attrs) {
            return;
        }
        if let Type::Path(path) = &*item.self_ty
            && let Some(last) = path.path.segments.last()
        {
            let methods = item.items.iter().filter(|item| matches!(item, ImplItem::Fn(_))).count();
            *self.counts.methods.entry(last.ident.to_string()).or_default() += methods;
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        let open = item
            .fields
            .iter()
            .filter(|field| matches!(field.vis, Visibility::Restricted(_)))
            .count();
        *self.counts.open_fields.entry(item.ident.to_string()).or_default() += open;
        visit::visit_item_struct(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_for_tests(&item.attrs) {
            self.body(&item.block);
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.body(&item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.body(block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_path_segment(&mut self, segment: &'ast syn::PathSegment) {
        if segment.ident == "Result"
            && let PathArguments::AngleBracketed(arguments) = &segment.arguments
            && let Some(GenericArgument::Type(Type::Path(error))) = arguments.args.iter().nth(1)
            && error.path.is_ident("String")
        {
            self.counts.text_errors += 1;
        }
        visit::visit_path_segment(self, segment);
    }
}

/// Pairs of places that share at least [`BLOCK_LINES`] lines of code, counted once however long they are.
fn repeated_blocks(crates: &[CrateSources]) -> usize {
    let modules: Vec<Vec<&str>> = crates
        .iter()
        .flat_map(|sources| &sources.modules)
        .map(code_lines)
        .collect();
    let mut seen: HashMap<&[&str], Vec<(usize, usize)>> = HashMap::new();
    for (module, lines) in modules.iter().enumerate() {
        for (at, block) in lines.windows(BLOCK_LINES).enumerate() {
            seen.entry(block).or_default().push((module, at));
        }
    }
    let places: HashSet<((usize, usize), (usize, usize))> = seen
        .values()
        .flat_map(|places| {
            let pairs = places.iter().enumerate();
            pairs.flat_map(|(index, first)| places[index + 1..].iter().map(move |second| ordered(*first, *second)))
        })
        .collect();
    // A longer block is many pairs, of which only the first has none before it.
    let is_first = |((a, line_a), (b, line_b)): &((usize, usize), (usize, usize))| {
        let before = |line: usize| line.wrapping_sub(1);
        !places.contains(&ordered((*a, before(*line_a)), (*b, before(*line_b))))
    };
    places.iter().filter(|pair| is_first(pair)).count()
}

fn ordered(a: (usize, usize), b: (usize, usize)) -> ((usize, usize), (usize, usize)) {
    (a.min(b), a.max(b))
}

/// Lines with code of their own: no comment, no import, nothing but brackets.
fn code_lines(module: &Module) -> Vec<&str> {
    let tests = module.syntax.items.iter().find_map(|item| match item {
        syn::Item::Mod(item) if is_for_tests(&item.attrs) => Some(item.span().start().line),
        _ => None,
    });
    let lines = module.text.lines().take(tests.map_or(usize::MAX, |line| line - 1));
    lines
        .map(str::trim)
        .filter(|line| line.chars().any(char::is_alphanumeric))
        .filter(|line| {
            !["//", "use ", "mod ", "pub use ", "#["]
                .iter()
                .any(|start| line.starts_with(start))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(texts: &[&str]) -> CrateSources {
        let modules = texts.iter().enumerate().map(|(at, text)| Module {
            path: vec![format!("m{at}")],
            text: (*text).to_owned(),
            syntax: syn::parse_file(text).expect("Rust"),
        });
        CrateSources {
            name: "of-a-test".into(),
            modules: modules.collect(),
        }
    }

    #[test]
    fn methods_are_counted_over_all_files_and_not_in_tests() {
        let counts = Counts::of(&sources(&[
            "pub struct A { pub(crate) x: u8, y: u8 }\nimpl A { fn a() {} fn b() -> Result<(), String> { Ok(()) } }",
            "impl Drop for A {\nfn drop(&mut self) {\n// Why.\nrest();\n} }\n#[cfg(test)] mod tests { impl A { fn c() {} } }",
        ]));
        assert_eq!(counts.methods["A"], 3);
        assert_eq!(counts.open_fields["A"], 1);
        assert_eq!(counts.text_errors, 1);
        assert_eq!((counts.comment_lines, counts.body_lines), (1, 2));
    }

    #[test]
    fn a_block_counts_once_however_long_it_is() {
        let block = |lines: usize| {
            (0..lines)
                .map(|n| format!("fn f{n}() {{ g({n}) }}\n"))
                .collect::<String>()
        };
        let count =
            |lines| repeated_blocks(&[sources(&[&block(lines), &format!("fn first() {{}}\n{}", block(lines))])]);
        assert_eq!((count(5), count(6), count(20)), (0, 1, 1));
    }
}
