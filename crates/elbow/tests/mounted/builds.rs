//! Whole tool chains inside a job: git, configure and make, cargo, a Python environment.

use std::path::PathBuf;

use crate::test_dir::{TestDir, unavailable};

#[test]
fn git_clones_commits_and_passes_fsck() {
    let test_dir = TestDir::new(
        "export GIT_CONFIG_NOSYSTEM=1 HOME=\"$OUT\" GIT_AUTHOR_DATE='2020-01-01 00:00 +0' GIT_COMMITTER_DATE='2020-01-01 00:00 +0'
         git config --global user.name t; git config --global user.email t@example.org; git config --global pack.threads 1
         git config --global init.defaultBranch main
         git init -q \"$OUT/origin\"; cd \"$OUT/origin\"
         for c in 1 2 3; do for i in $(seq 80); do mkdir -p d$((i % 7)); seq $c $((i * c * 9)) > d$((i % 7))/f$i; done
             git add -A; git commit -qm \"commit $c\"; done; cd \"$WORK\"",
    );
    let script = "export GIT_CONFIG_NOSYSTEM=1 HOME=\"$OUT\" GIT_AUTHOR_DATE='2020-01-02 00:00 +0' GIT_COMMITTER_DATE='2020-01-02 00:00 +0'
         git clone -q --no-local \"$OUT/origin\" repo; cd repo; git fsck --strict
         test -z \"$(git status --porcelain)\"
         git checkout -qb work; echo more >> d1/f1; git rm -q d2/f2; git mv d3 e3; git commit -qam 'change'
         git checkout -q main; git merge -q work; git gc -q; git fsck --strict; test -z \"$(git status --porcelain)\"";
    // The index holds inode numbers and ctimes.
    let test_dir = test_dir.ignoring(&["repo/.git/index"]);
    test_dir.assert_same_as_native(script);
    let after = test_dir.native("export HOME=\"$OUT\"; cd repo; git fsck --strict; git status --porcelain");
    after.assert_code(0);
    assert_eq!(after.out, "", "git sees changes after the commit");
}

#[test]
fn gnu_hello_configures_builds_and_passes_its_checks() {
    let Some(archive) = hello_source() else {
        unavailable("the source of GNU hello (scripts/setup.sh test fetches it)");
        return;
    };
    let test_dir = TestDir::new(&format!(
        "mkdir hello; tar xzf '{}' -C hello --strip-components=1",
        archive.display()
    ));
    // These files hold the date and process ids.
    let test_dir = test_dir.ignoring(&["hello/config.log", "hello/config.status", ".trs"]);
    test_dir.assert_same_as_native(
        "cd hello; ./configure -q --disable-nls > \"$OUT/log\" 2>&1 || { cat \"$OUT/log\" >&2; exit 1; }
         make > \"$OUT/log\" 2>&1 && make check > \"$OUT/log\" 2>&1 || { cat \"$OUT/log\" >&2; exit 1; }
         ./hello",
    );
    let script = "cd hello; : > \"$OUT/mark\"; make > /dev/null; find . -newer \"$OUT/mark\" -type f; ./hello";
    let again = test_dir.native(script);
    again.assert_code(0);
    assert_eq!(
        again.out, "Hello, world!\n",
        "make after the commit made something again, or hello does not run"
    );
}

#[test]
fn cargo_builds_and_later_finds_everything_fresh() {
    let test_dir = TestDir::new(
        "mkdir -p app/src lib/src
         printf '[package]\\nname=\"app\"\\nversion=\"0.1.0\"\\nedition=\"2021\"\\n[dependencies]\\nlib={path=\"../lib\"}\\n' > app/Cargo.toml
         printf '[package]\\nname=\"lib\"\\nversion=\"0.1.0\"\\nedition=\"2021\"\\n' > lib/Cargo.toml
         printf 'pub fn answer() -> u32 { 42 }\\n' > lib/src/lib.rs
         printf 'fn main() { println!(\"{}\", lib::answer()); }\\n' > app/src/main.rs",
    );
    let script = "unset CARGO_TARGET_DIR; export CARGO_INCREMENTAL=0; cd app; cargo build -q --offline && ./target/debug/app && cargo test -q --offline > \"$OUT/log\" 2>&1";
    // Cargo's notes hold times.
    let test_dir = test_dir.ignoring(&["/.fingerprint/", ".d", ".rustc_info.json"]);
    test_dir.assert_same_as_native(script);
    let again = test_dir.native(
        "unset CARGO_TARGET_DIR; export CARGO_INCREMENTAL=0; cd app; cargo build --offline 2>&1; ./target/debug/app",
    );
    again.assert_code(0);
    assert!(
        !again.out.contains("Compiling"),
        "a build after the commit compiled again:\n{}",
        again.out
    );
    assert!(again.out.ends_with("42\n"), "{}", again.out);
}

#[test]
fn a_python_environment_is_made_and_runs() {
    let test_dir = TestDir::new("");
    // Compiled Python files hold the times of their sources.
    let test_dir = test_dir.ignoring(&[".pyc"]);
    test_dir
        .assert_same_as_native("/usr/bin/python3 -m venv env; env/bin/python -c 'import pip, sys; print(sys.prefix)'");
    let after = test_dir.native("env/bin/python -m pip --version");
    after.assert_code(0);
    assert!(after.out.starts_with("pip "), "{}", after.out);
}

/// Where `scripts/setup.sh test` has put the source.
fn hello_source() -> Option<PathBuf> {
    let workspace = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/fixtures");
    let fixtures = std::env::var_os("ELBOW_FIXTURES").map_or(workspace, PathBuf::from);
    let mut entries = std::fs::read_dir(fixtures)
        .ok()?
        .filter_map(Result::ok)
        .map(|entry| entry.path());
    entries.find(|path| path.to_string_lossy().ends_with(".orig.tar.gz"))
}
