//! Releases of a small workspace in a repository of its own.

use anyhow::bail;

use super::*;

const MANIFEST: &str = "[workspace]\nresolver = \"3\"\nmembers = [\"elbow-a\"]\n[workspace.package]\nversion = \"0.1.0\"\n\
    [workspace.dependencies]\nelbow-a = { path = \"elbow-a\", version = \"0.1.0\" }\n";
const CHANGES: &str = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- A thing.\n";

struct Repository(TempDir);

impl Repository {
    fn new() -> Self {
        let this = Self(tempfile::tempdir().expect("a directory"));
        let member = "[package]\nname = \"elbow-a\"\nversion.workspace = true\nedition = \"2024\"\n";
        for (file, text) in [
            ("Cargo.toml", MANIFEST),
            ("elbow-a/Cargo.toml", member),
            ("elbow-a/src/lib.rs", ""),
            ("CHANGELOG.md", CHANGES),
            ("docs/src/reference/json.md", "  \"elbow\": \"0.1.0\",\n"),
        ] {
            this.write(file, text);
        }
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        output(
            Command::new(cargo)
                .current_dir(this.0.path())
                .args(["generate-lockfile", "--offline"]),
        )
        .expect("a lock");
        this.git(&["init", "--quiet"]);
        this.git(&["config", "user.name", "Ann"]);
        this.git(&["config", "user.email", "ann@example.org"]);
        this.git(&["config", "commit.gpgSign", "false"]);
        this.git(&["config", "tag.gpgSign", "false"]);
        this.git(&["add", "."]);
        this.git(&["commit", "--quiet", "--message", "first"]);
        this
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.root().join(file);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, text).expect("a file");
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.root().join(file)).expect("a file")
    }

    fn git(&self, words: &[&str]) -> String {
        git(self.root(), words).expect("git")
    }

    /// Refs, objects and files: all that a release could have changed.
    fn state(&self) -> Vec<String> {
        [
            &["show-ref"][..],
            &["count-objects", "-v"],
            &["status", "--porcelain", "--ignored"],
            &["worktree", "list"],
            &["rev-parse", "HEAD"],
        ]
        .map(|words| self.git(words))
        .into()
    }
}

fn version(text: &str) -> Version {
    text.parse().expect("a version")
}

fn nothing(_: &Path) -> Result<()> {
    Ok(())
}

#[test]
fn a_release_is_one_commit_and_a_tag() {
    let repository = Repository::new();
    release(repository.root(), &version("0.2.0"), nothing).expect("a release");
    assert_eq!(repository.git(&["rev-list", "--count", "HEAD"]), "2");
    assert_eq!(repository.git(&["log", "-1", "--format=%s %an"]), "Release 0.2.0 Ann");
    assert_eq!(
        repository.git(&["rev-parse", "v0.2.0^{commit}"]),
        repository.git(&["rev-parse", "HEAD"])
    );
    assert_eq!(repository.git(&["status", "--porcelain"]), "");
    let (manifest, lock) = (repository.read("Cargo.toml"), repository.read("Cargo.lock"));
    assert_eq!(
        (manifest.matches("0.2.0").count(), manifest.matches("0.1.0").count()),
        (2, 0)
    );
    assert_eq!(
        (lock.matches("0.2.0").count(), lock.matches("0.1.0").count()),
        (1, 0),
        "{lock}"
    );
    assert!(repository.read("docs/src/reference/json.md").contains("0.2.0"));
    let changes = repository.read(CHANGELOG);
    assert!(changes.contains("## [Unreleased]\n\n## [0.2.0] - 20"), "{changes}");

    // And the next is refused until there is something in it.
    let again = release(repository.root(), &version("0.3.0"), nothing).expect_err("nothing to release");
    assert!(format!("{again:#}").contains("nothing under [Unreleased]"), "{again:#}");
}

#[test]
fn a_dry_run_shows_the_diff_and_leaves_nothing() {
    let repository = Repository::new();
    let before = repository.state();
    let diff = rehearse(repository.root(), &version("0.1.1"), nothing).expect("a dry run");
    for line in [
        "-version = \"0.1.0\"",
        "+version = \"0.1.1\"",
        "+## [0.1.1] - 20",
        "+  \"elbow\": \"0.1.1\",",
    ] {
        assert!(diff.lines().any(|found| found.starts_with(line)), "{line}: {diff}");
    }
    assert_eq!(repository.state(), before);
}

#[test]
fn what_is_no_release_is_refused_and_changes_nothing() {
    let repository = Repository::new();
    repository.git(&["tag", "v0.9.0"]);
    let before = repository.state();
    for (asked, words) in [
        ("0.1.0", "is not greater than 0.1.0"),
        ("0.0.9", "is not greater"),
        ("0.9.0", "there is a tag v0.9.0"),
    ] {
        let error = release(repository.root(), &version(asked), nothing).expect_err(asked);
        assert!(format!("{error:#}").contains(words), "{error:#}");
    }
    let failing = |_: &Path| -> Result<()> { bail!("no package") };
    let error = release(repository.root(), &version("0.2.0"), failing).expect_err("a failing check");
    assert!(format!("{error:#}").contains("no package"), "{error:#}");
    assert_eq!(repository.state(), before);

    repository.write("elbow-a/src/lib.rs", "// changed\n");
    let error = release(repository.root(), &version("0.2.0"), nothing).expect_err("a changed tree");
    assert!(format!("{error:#}").contains("elbow-a/src/lib.rs"), "{error:#}");
    assert!(
        rehearse(repository.root(), &version("0.2.0"), nothing).is_ok(),
        "a dry run is of what is committed"
    );
}

#[test]
fn the_command_line_is_a_version_and_perhaps_a_dry_run() {
    let of = |words: &[&str]| {
        Asked::parse(words.iter().map(OsString::from)).map(|asked| (asked.version.to_string(), asked.dry_run))
    };
    assert_eq!(of(&["--dry-run", "1.2.3"]).expect("words"), ("1.2.3".to_owned(), true));
    assert_eq!(of(&["1.2.3"]).expect("words"), ("1.2.3".to_owned(), false));
    for wrong in [
        &[][..],
        &["--dry-run"],
        &["1.2"],
        &["1.2.3", "1.2.4"],
        &["--force", "1.2.3"],
        &["v1.2.3"],
    ] {
        assert!(of(wrong).is_err(), "{wrong:?}");
    }
}
