//! `elbow --version`, and the build script that knows what `--verbose` says, run in repositories and outside of any.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::stage::{Said, Stage};

#[test]
fn version_is_one_line_and_more_if_asked() {
    let stage = Stage::new();
    let line = concat!("elbow ", env!("CARGO_PKG_VERSION"), "\n");
    for words in [&["--version"][..], &["-V"]] {
        assert_eq!(stage.elbow(words).assert_code(0).out, line);
    }
    for words in [["--version", "--verbose"], ["--verbose", "-V"]] {
        let said = stage.elbow(&words);
        assert!(said.assert_code(0).out.starts_with(line), "{said:#?}");
        let names: Vec<&str> = said
            .out
            .lines()
            .skip(1)
            .filter_map(|line| Some(line.split_once(':')?.0))
            .collect();
        assert_eq!(names, ["commit", "rustc", "target", "profile", "features", "libraries"]);
    }
    // Options of commands are still not options of the whole.
    stage.elbow(&["--verbose"]).assert_code(125);
    stage.elbow(&["--verbose", "sort"]).assert_code(125);
}

/// A copy of the part of the tree that the build script looks at, and the script, compiled.
struct Tree {
    stage: Stage,
    script: PathBuf,
}

impl Tree {
    fn new() -> Self {
        let stage = Stage::new();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("build.rs");
        let script = stage.path("script");
        let mut rustc = Command::new("rustc");
        rustc.args(["--edition", "2024", "-o"]).arg(&script).arg(&source);
        stage.start(&mut rustc).finish().assert_code(0);
        let tree = Self { stage, script };
        for directory in ["crates/elbow/src", "docs"] {
            fs::create_dir_all(tree.path(directory)).expect("a directory");
        }
        fs::copy(source, tree.path("crates/elbow/build.rs")).expect("a copy");
        let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
        fs::copy(lock, tree.path("Cargo.lock")).expect("a copy");
        for file in [
            "Cargo.toml",
            "crates/elbow/Cargo.toml",
            "crates/elbow/src/main.rs",
            "docs/page.md",
        ] {
            fs::write(tree.path(file), "first\n").expect("a file");
        }
        tree
    }

    fn path(&self, name: &str) -> PathBuf {
        self.stage.work().join(name)
    }

    fn git(&self, words: &[&str]) -> String {
        let mut git = Command::new("git");
        git.args([
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@b",
            "-c",
            "commit.gpgsign=false",
        ])
        .args(words);
        self.stage.start(&mut git).finish().assert_code(0).out.trim().to_owned()
    }

    fn run(&self, profile: &str) -> Said {
        let mut script = Command::new(&self.script);
        script
            .env("CARGO_MANIFEST_DIR", self.path("crates/elbow"))
            .env("PROFILE", profile);
        script
            .env("TARGET", "x86_64-unknown-linux-gnu")
            .env("RUSTC", "rustc")
            .env("CARGO_FEATURE_PARQUET", "1");
        script.env("GIT_CEILING_DIRECTORIES", self.stage.path(""));
        let said = self.stage.start(&mut script).finish();
        said.assert_code(0);
        assert!(
            !said.out.contains("cargo::error"),
            "a library is missing in Cargo.lock: {said:#?}"
        );
        said
    }

    fn commit(&self) -> String {
        let said = self.run("debug");
        let line = said
            .out
            .lines()
            .find_map(|line| line.strip_prefix("cargo::rustc-env=BUILD_COMMIT="));
        line.expect("a commit").to_owned()
    }
}

#[test]
fn the_build_says_its_commit_and_whether_the_sources_are_others() {
    let tree = Tree::new();
    assert_eq!(tree.commit(), "unknown", "an archive");
    tree.git(&["init", "--quiet"]);
    assert_eq!(tree.commit(), "unknown", "unpacked in somebody's repository");
    tree.git(&["add", "."]);
    tree.git(&["commit", "--quiet", "--message", "first"]);
    let head = tree.git(&["rev-parse", "HEAD"]);
    assert_eq!(tree.commit(), head);
    fs::write(tree.path("docs/page.md"), "second\n").expect("a file");
    assert_eq!(tree.commit(), head, "a page is no source");
    for source in ["crates/elbow/src/main.rs", "Cargo.toml", "crates/elbow/src/new.rs"] {
        fs::write(tree.path(source), "second\n").expect("a file");
        assert_eq!(tree.commit(), format!("{head}, changed"), "{source}");
        tree.git(&["add", "."]);
        tree.git(&["stash", "--quiet"]);
        assert_eq!(tree.commit(), head);
    }
}

/// Cargo takes a watched file that is not there for changed, and would build all again each time.
#[test]
fn what_the_build_watches_is_there_and_a_release_watches_the_commit() {
    let tree = Tree::new();
    tree.git(&["init", "--quiet"]);
    tree.git(&["add", "."]);
    tree.git(&["commit", "--quiet", "--message", "first"]);
    let watched = |profile: &str| -> Vec<PathBuf> {
        let said = tree.run(profile);
        let watched = said
            .out
            .lines()
            .filter_map(|line| line.strip_prefix("cargo::rerun-if-changed="));
        watched.map(|path| tree.path("crates/elbow").join(path)).collect()
    };
    let (debug, release) = (watched("debug"), watched("release"));
    for path in debug.iter().chain(&release) {
        assert!(path.exists(), "{}", path.display());
    }
    let of_git = |paths: &[PathBuf]| paths.iter().filter(|path| path.starts_with(tree.path(".git"))).count();
    assert_eq!((of_git(&debug), of_git(&release)), (0, 2), "{release:?}");
    assert!(debug.contains(&tree.path("crates/elbow/src")), "{debug:?}");
    assert_eq!(
        tree.run("release").out,
        tree.run("release").out,
        "nothing is of the moment"
    );
}
