//! What `elbow --version --verbose` says of this build: commit, compiler, target, profile, features, libraries.
//!
//! No time, host or path is in it, so that two builds of the same sources are the same. Without git, or outside of its
//! repository (a packaged crate, an archive), the commit is not known, and that is no failure.
//!
//! The commit is that of the sources as they were read: this runs again when one of them changes. A commit alone changes no
//! source, and a development build is not made again for it; a release is, so that it names the commit that it is released as.

#![allow(clippy::disallowed_methods, reason = "it reads the sources; there is no job here")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// What a fault can come from, of all that is linked.
const LIBRARIES: [&str; 8] = [
    "clap", "fuser", "libc", "lz4_flex", "postcard", "rustix", "rustls", "tokio",
];
/// What the program is made of, from the root of the workspace.
const SOURCES: [&str; 4] = ["Cargo.toml", "Cargo.lock", "crates/*/Cargo.toml", "crates/*/src/*"];
/// Files of git that say which commit is checked out; the last is one more line at every change.
const HEADS: [&str; 3] = ["HEAD", "packed-refs", "logs/HEAD"];

fn main() {
    let package = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    println!("cargo::rerun-if-changed=build.rs");
    tell("BUILD_COMMIT", &commit(&package).unwrap_or_else(|| "unknown".into()));
    tell("BUILD_RUSTC", &rustc().unwrap_or_else(|| "unknown".into()));
    tell("BUILD_TARGET", &variable("TARGET"));
    tell("BUILD_PROFILE", &variable("PROFILE"));
    tell("BUILD_FEATURES", &features());
    tell("BUILD_LIBRARIES", &libraries(&package).unwrap_or_default());
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// Not in a variable of ours (`ELBOW_...`): cargo hands it on to tests, which would find it set.
fn tell(name: &str, value: &str) {
    println!("cargo::rustc-env={name}={value}");
}

/// The commit that is checked out, and whether the sources are others.
fn commit(package: &Path) -> Option<String> {
    let root = package.ancestors().nth(2)?;
    // A crate that was unpacked in somebody's repository is no part of it.
    git(root, &["ls-files", "--error-unmatch", "crates/elbow/build.rs"])?;
    watch(root);
    let commit = git(root, &["rev-parse", "HEAD"])?;
    let changed = git(root, &[&["status", "--porcelain", "--"][..], &SOURCES].concat())?;
    let and = if changed.is_empty() { "" } else { ", changed" };
    Some(format!("{commit}{and}"))
}

/// Runs this again when what it found may be other.
fn watch(root: &Path) {
    let crates = std::fs::read_dir(root.join("crates")).into_iter().flatten().flatten();
    let of_crates = crates.flat_map(|each| [each.path().join("Cargo.toml"), each.path().join("src")]);
    let heads = HEADS.iter().filter(|_| variable("PROFILE") == "release");
    let heads = heads.filter_map(|name| Some(root.join(git(root, &["rev-parse", "--git-path", name])?)));
    for path in of_crates.chain([root.join("Cargo.lock")]).chain(heads) {
        // What is not there would be taken for changed every time.
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
}

fn git(directory: &Path, words: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    git.arg("--no-optional-locks").args(words).current_dir(directory);
    said(&mut git)
}

fn rustc() -> Option<String> {
    said(Command::new(variable("RUSTC")).arg("--version"))
}

/// What a program prints, unless it fails.
fn said(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

fn features() -> String {
    let names = std::env::vars().filter_map(|(name, _)| name.strip_prefix("CARGO_FEATURE_").map(str::to_lowercase));
    let mut names: Vec<String> = names.filter(|name| name != "default").collect();
    names.sort();
    names.join(" ")
}

/// Names and versions by `Cargo.lock`: the workspace's, or the one in a package.
fn libraries(package: &Path) -> Option<String> {
    let places = [
        package.ancestors().nth(2)?.join("Cargo.lock"),
        package.join("Cargo.lock"),
    ];
    let lock = places.iter().find_map(|path| std::fs::read_to_string(path).ok())?;
    let found: Vec<String> = LIBRARIES.iter().flat_map(|name| versions(&lock, name)).collect();
    Some(found.join(", "))
}

/// Each version of a library in `Cargo.lock`, where it stands in the line below the name.
fn versions(lock: &str, name: &str) -> Vec<String> {
    let quoted = |line: &str, key: &str| {
        Some(
            line.strip_prefix(key)?
                .strip_prefix(" = \"")?
                .strip_suffix('"')?
                .to_owned(),
        )
    };
    let pairs = lock.lines().zip(lock.lines().skip(1));
    let found: Vec<String> = pairs
        .filter(|(first, _)| quoted(first, "name").as_deref() == Some(name))
        .filter_map(|(_, second)| Some(format!("{name} {}", quoted(second, "version")?)))
        .collect();
    if found.is_empty() {
        println!("cargo::error={name} is no library of ours any more: take it from the list in build.rs");
    }
    found
}
