//! A directory to work on, and ways to run `elbow` on it.

use std::fs::Permissions;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use elbow_testkit::reachable::Reachable;
use tempfile::TempDir;

/// The binary under test.
pub(crate) const ELBOW: &str = env!("CARGO_BIN_EXE_elbow");
/// After this, what is waited for is taken for lost.
const PATIENCE: Duration = Duration::from_secs(120);

/// A temporary directory with `work` in it.
pub(crate) struct Stage {
    dir: TempDir,
    for_all: Option<Reachable>,
}

/// What a command said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("elbow-contract-")
            .tempdir()
            .expect("a temporary directory");
        let stage = Self { dir, for_all: None };
        stage.make_dir("work");
        stage
    }

    /// One that everybody may write to, with a binary that everybody may run.
    pub(crate) fn open_to_all() -> Self {
        let mut stage = Self::new();
        for path in [stage.path(""), stage.work()] {
            std::fs::set_permissions(path, Permissions::from_mode(0o777)).expect("open to all");
        }
        stage.for_all = Some(Reachable::new(Path::new(ELBOW)).expect("the binary for all"));
        stage
    }

    fn binary(&self) -> &Path {
        self.for_all.as_ref().map_or(Path::new(ELBOW), Reachable::path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.path("work")
    }

    pub(crate) fn make_dir(&self, name: &str) {
        std::fs::create_dir(self.path(name)).expect("a directory");
    }

    /// Names in `work`, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.work()).expect("the directory of the job");
        let mut names: Vec<_> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// Runs `elbow` in `work`.
    pub(crate) fn elbow(&self, words: &[&str]) -> Said {
        self.run(Command::new(ELBOW).args(words))
    }

    /// Runs `elbow` in `work` until it finds a job there that runs: on a machine that stands still, one that does not answer is not found.
    pub(crate) fn asks(&self, words: &[&str]) -> Said {
        let mut said = self.elbow(words);
        wait_for("the job to answer", || {
            let is_silent = said.code == 125 && format!("{said:?}").contains("gave no answer");
            if is_silent {
                said = self.elbow(words);
            }
            !is_silent
        });
        said
    }

    /// Runs a shell script in `work`, in a mount namespace of its own; `$ELBOW` is the binary.
    pub(crate) fn apart(&self, script: &str) -> Said {
        self.run(Command::new("unshare").args(["--mount", "sh", "-e", "-c", script]))
    }

    /// Starts a command in `work`.
    pub(crate) fn start(&self, command: &mut Command) -> Started {
        command
            .current_dir(self.work())
            .env("ELBOW", self.binary())
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let spawned = command.spawn();
        Started(Some(spawned.unwrap_or_else(|error| panic!("{command:?}: {error}"))))
    }

    fn run(&self, command: &mut Command) -> Said {
        self.start(command).finish()
    }
}

/// A process that does not outlive its test.
#[derive(Debug)]
pub(crate) struct Started(Option<Child>);

impl Started {
    /// Waits for its end.
    pub(crate) fn finish(mut self) -> Said {
        let child = self.0.take().expect("it runs");
        Said::of(&child.wait_with_output().expect("an end"))
    }
}

impl Deref for Started {
    type Target = Child;

    fn deref(&self) -> &Child {
        self.0.as_ref().expect("it runs")
    }
}

impl DerefMut for Started {
    fn deref_mut(&mut self) -> &mut Child {
        self.0.as_mut().expect("it runs")
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // With elbow its watcher ends all that it has started.
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Said {
    pub(crate) fn of(output: &Output) -> Self {
        use std::os::unix::process::ExitStatusExt;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let code = output
            .status
            .code()
            .or(output.status.signal().map(|signal| 128 + signal));
        Self {
            code: code.expect("an end has a reason"),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }

    pub(crate) fn assert_code(&self, code: i32) -> &Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    pub(crate) fn assert_says(&self, words: &[&str]) -> &Self {
        for word in words {
            assert!(self.err.contains(word), "`{word}` is missing in {self:#?}");
        }
        self
    }
}

/// Waits until something is so.
pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A path as a word of a command line.
pub(crate) fn word(path: &Path) -> &str {
    path.to_str().expect("temporary directories have plain names")
}
