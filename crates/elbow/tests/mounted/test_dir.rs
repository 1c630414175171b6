//! The ground that a mounted test stands on: an old tree, a place outside of it, and ways to run a script on it.
//!
//! ```text
//!   ROOT/seed    the old tree, with old times; copied anew for every run
//!   ROOT/work    the directory of the job ($WORK)
//!   ROOT/out     outside of the transaction ($OUT)
//! ```
//!
//! A native run and a job use the same path one after the other, so that programs which write down where they are
//! (compilers, configure) write the same.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use elbow_testkit::delayproxy::Line;
use elbow_testkit::sshbed::SshTestbed;
use elbow_testkit::tree::{Entry, Tree};
use tempfile::TempDir;

use crate::commands::Place;
pub(crate) use crate::commands::{Run, Running, unavailable, wait_for};

/// Prefix of the names of staging directories.
const STAGING_PREFIX: &str = ".elbow-";
/// The time of everything in an old tree.
const OLD_TIME: &str = "2020-01-02 03:04:05.678901234";

/// See the module's header.
pub(crate) struct TestDir {
    dir: TempDir,
    began: SystemTime,
    ignored: Vec<String>,
    options: Vec<String>,
    behind: Vec<String>,
    subvolumes: Vec<String>,
    after: String,
}

impl TestDir {
    /// A ground whose old tree a shell script makes.
    pub(crate) fn new(seed: &str) -> Self {
        Self::at(&std::env::temp_dir(), seed)
    }

    /// The same on another file system.
    pub(crate) fn at(place: &Path, seed: &str) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("elbow-test-")
            .tempdir_in(place)
            .expect("temporary directory");
        let test_dir = Self {
            dir,
            began: SystemTime::now(),
            ignored: Vec::new(),
            options: Vec::new(),
            behind: Vec::new(),
            subvolumes: Vec::new(),
            after: String::new(),
        };
        for name in ["seed", "out"] {
            fs::create_dir(test_dir.root().join(name)).expect("directory");
        }
        make_old_tree(&test_dir.root().join("seed"), &test_dir.outside(""), seed);
        test_dir.restore();
        test_dir
    }

    /// Leaves the content and times of paths that contain one of these out of comparisons.
    pub(crate) fn ignoring(mut self, parts: &[&str]) -> Self {
        self.ignored.extend(parts.iter().map(|part| (*part).to_owned()));
        self
    }

    /// Gives these options to the jobs of comparisons.
    pub(crate) fn with_options(mut self, options: &[&str]) -> Self {
        self.options.extend(options.iter().map(|option| (*option).to_owned()));
        self
    }

    /// Runs all scripts by way of a program that runs its arguments.
    pub(crate) fn behind(mut self, words: &[&str]) -> Self {
        self.behind.extend(words.iter().map(|word| (*word).to_owned()));
        self
    }

    /// Makes these directories of the old tree subvolumes of the btrfs that the ground is on, each after those that it is in.
    pub(crate) fn with_subvolumes(mut self, paths: &[&str]) -> Self {
        self.subvolumes = paths.iter().map(|path| (*path).to_owned()).collect();
        self.restore();
        self
    }

    /// Lets a script have the last touch of each copy of the old tree.
    pub(crate) fn after(mut self, script: &str) -> Self {
        script.clone_into(&mut self.after);
        self.restore();
        self
    }

    /// The directory of everything.
    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().to_owned()
    }

    /// A path in the directory of the job.
    pub(crate) fn work(&self, name: &str) -> PathBuf {
        self.root().join("work").join(name)
    }

    /// A path outside of the transaction.
    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        self.root().join("out").join(name)
    }

    /// Makes an empty file outside, for a script to find.
    pub(crate) fn touch_outside(&self, name: &str) {
        fs::write(self.outside(name), "").expect("writing outside");
    }

    /// Content of a file of the job's directory that must be there.
    pub(crate) fn content(&self, name: &str) -> Vec<u8> {
        fs::read(self.work(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Content of a file of the job's directory, empty where there is none.
    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.work(name)).unwrap_or_default()
    }

    /// Attributes of something in the job's directory.
    pub(crate) fn metadata(&self, name: &str) -> fs::Metadata {
        fs::symlink_metadata(self.work(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The job's directory as it is.
    pub(crate) fn snapshot(&self) -> Tree {
        snapshot_of(&self.work(""))
    }

    /// Makes the job's directory the old tree again and says how it is.
    pub(crate) fn restore(&self) -> Tree {
        let (seed, work) = (self.root().join("seed"), self.root().join("work"));
        if !self.subvolumes.is_empty() {
            // Nothing can be removed from a read-only one.
            let open = "find \"$0\" -inum 256 -exec btrfs property set -ts {} ro false \\;";
            quiet(Command::new("sh").args(["-ec", open]).arg(&work));
        }
        quiet(Command::new("rm").arg("-rf").arg(&work));
        for path in &self.subvolumes {
            let path = work.join(path);
            quiet(Command::new("mkdir").arg("-p").args(path.parent()));
            quiet(Command::new("btrfs").args(["-q", "subvolume", "create"]).arg(path));
        }
        quiet(Command::new("cp").arg("-aT").arg(&seed).arg(&work));
        quiet(Command::new("sh").args(["-ec", &self.after]).current_dir(&work));
        self.snapshot()
    }

    fn place<R>(&self, use_it: impl FnOnce(Place<'_>) -> R) -> R {
        use_it(Place {
            work: &self.work(""),
            out: &self.outside(""),
        })
    }

    /// Runs a script without a job; it stops at its first error.
    pub(crate) fn native(&self, script: &str) -> Run {
        let words = [&self.behind_words()[..], &["sh", "-e", "-c", script]].concat();
        self.place(|place| place.start(&words)).finish()
    }

    fn behind_words(&self) -> Vec<&str> {
        self.behind.iter().map(String::as_str).collect()
    }

    /// Runs a script as a job.
    pub(crate) fn job(&self, options: &[&str], script: &str) -> Run {
        self.start_job(options, script).finish()
    }

    /// Starts a script as a job.
    pub(crate) fn start_job(&self, options: &[&str], script: &str) -> Running {
        self.place(|place| place.start_job(&self.behind_words(), options, script))
    }

    /// Runs `elbow` with these words, as the one whose ground it is: nobody else ends a job.
    pub(crate) fn elbow(&self, words: &[&str]) -> Run {
        let words = [&self.behind_words()[..], &[env!("CARGO_BIN_EXE_elbow")], words].concat();
        self.place(|place| place.start(&words)).finish()
    }

    /// Runs a script natively and as a job on equal trees, and compares what they leave behind: with each other, and
    /// the job's with what the job itself saw last.
    pub(crate) fn assert_same_as_native(&self, script: &str) {
        self.restore();
        self.native(script).assert_code(0);
        let native = self.comparable();
        self.restore();
        let options: Vec<&str> = self.options.iter().map(String::as_str).collect();
        let run = self.job(
            &options,
            &format!("set -e\n{script}\ncd \"$WORK\"\n{} > \"$OUT/seen\"", see()),
        );
        run.assert_code(0);
        let difference = self.comparable().difference(&native).unwrap_or_default();
        assert!(
            difference.is_empty(),
            "the job left something else than the native run:\n{difference}\n{}",
            run.err
        );
        self.assert_as_the_job_saw_it();
        self.assert_no_staging();
    }

    /// Names, modes, sizes, links and times are what the job saw last: a later `make` finds nothing to do.
    fn assert_as_the_job_saw_it(&self) {
        let now = self.native(&see());
        now.assert_code(0);
        let seen = fs::read(self.outside("seen")).expect("what the job saw");
        let seen = String::from_utf8_lossy(&seen);
        let (seen, now): (BTreeSet<&str>, BTreeSet<&str>) = (seen.lines().collect(), now.out.lines().collect());
        let only_seen: Vec<_> = seen.difference(&now).collect();
        let only_now: Vec<_> = now.difference(&seen).collect();
        assert!(
            only_seen.is_empty() && only_now.is_empty(),
            "the job saw {only_seen:#?}, the storage has {only_now:#?}"
        );
    }

    /// The tree without what two runs at different times cannot have in common.
    fn comparable(&self) -> Tree {
        let began = self.began.duration_since(UNIX_EPOCH).expect("after 1970");
        let began_ns = if has_whole_seconds() {
            u128::from(began.as_secs()) * 1_000_000_000
        } else {
            began.as_nanos()
        };
        let began_ns = i128::try_from(began_ns).expect("this century");
        let mut tree = self.snapshot();
        for (path, entry) in &mut tree.entries {
            if entry.mtime_ns >= began_ns {
                entry.mtime_ns = i128::MAX;
            }
            let path = path.to_string_lossy();
            if self.ignored.iter().any(|part| path.contains(part.as_str())) {
                (entry.size, entry.content) = (0, 0);
            }
        }
        tree
    }

    /// The tree is what it was, times included.
    pub(crate) fn assert_equals(&self, before: &Tree) {
        self.snapshot().assert_equals(before);
    }

    /// The tree is not what it was.
    pub(crate) fn assert_differs_from(&self, before: &Tree) {
        assert!(self.snapshot().difference(before).is_some(), "nothing has changed");
    }

    /// Who looks from outside of a running job sees the tree as it was, but for staging directories (and the times
    /// of the directories that hold them).
    pub(crate) fn assert_seen_from_outside_as(&self, before: &Tree) {
        let mut seen = None;
        // What is staged comes and goes while the tree is read.
        wait_for("a tree that holds still", || {
            Tree::snapshot(&self.work("")).is_ok_and(|tree| seen.replace(tree).is_none())
        });
        let seen = without_staging(seen.expect("waited for"));
        seen.assert_equals(&without_staging(before.clone()));
    }

    /// How many staging directories there are.
    pub(crate) fn staging_directories(&self) -> usize {
        staging_below(&self.work(""))
    }

    /// No staging directory is left.
    pub(crate) fn assert_no_staging(&self) {
        assert_eq!(self.staging_directories(), 0, "staging directories are left behind");
    }
}

/// Makes an old tree in an empty directory.
pub(crate) fn make_old_tree(tree: &Path, out: &Path, seed: &str) {
    let place = Place { work: tree, out };
    place.shell(seed).assert_code(0);
    place
        .shell(&format!("find . -exec touch -h -d '{OLD_TIME}' {{}} +"))
        .assert_code(0);
}

/// A server for sshfs, in a directory with these others; none, with a word, where it cannot be.
pub(crate) fn ssh_server(directories: &[&str], line: impl Into<Line>) -> Option<(TempDir, SshTestbed)> {
    if let Some(missing) = SshTestbed::missing() {
        unavailable(&missing);
        return None;
    }
    let dir = tempfile::Builder::new()
        .prefix("elbow-ssh-")
        .tempdir()
        .expect("temporary directory");
    for name in ["ssh"].iter().chain(directories) {
        fs::create_dir(dir.path().join(name)).expect("directory");
    }
    let server = SshTestbed::start(&dir.path().join("ssh"), line).expect("a private sshd");
    Some((dir, server))
}

/// Everything below a directory.
pub(crate) fn snapshot_of(root: &Path) -> Tree {
    Tree::snapshot(root).expect("reading a tree that nobody changes")
}

/// How many staging directories there are below a directory.
pub(crate) fn staging_below(root: &Path) -> usize {
    let Ok(entries) = fs::read_dir(root) else { return 0 };
    entries
        .filter_map(Result::ok)
        .map(|entry| {
            let is_staging = entry.file_name().to_string_lossy().starts_with(STAGING_PREFIX);
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            usize::from(is_staging)
                + if is_directory && !is_staging {
                    staging_below(&entry.path())
                } else {
                    0
                }
        })
        .sum()
}

pub(crate) fn without_staging(mut tree: Tree) -> Tree {
    let is_staged = |path: &Path| {
        path.components()
            .any(|part| part.as_os_str().to_string_lossy().starts_with(STAGING_PREFIX))
    };
    tree.entries.retain(|path, _| !is_staged(path));
    let directories = tree.entries.values_mut().filter(|entry| entry.kind == "directory");
    directories.for_each(|entry: &mut Entry| entry.mtime_ns = 0);
    tree
}

fn quiet(command: &mut Command) {
    let output = command.output().expect("a program that is everywhere");
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// As `Tree::snapshot` has it.
fn has_whole_seconds() -> bool {
    std::env::var_os("ELBOW_TEST_WHOLE_SECONDS").is_some()
}

fn see() -> String {
    SEE.replace("%T@", if has_whole_seconds() { "%Ts" } else { "%T@" })
}

/// Prints what a program can see of a tree and the storage must have afterwards. Not the times of symbolic links: those
/// that nobody set are set by nobody.
const SEE: &str = r"find . -type d -printf '%P %y %m %T@\n' -o -type l -printf '%P %y %m %n %s %l\n' -o -printf '%P %y %m %n %s %T@\n' | sort";
