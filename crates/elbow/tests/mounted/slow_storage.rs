//! A ground on slow storage: the job's directory is a `slowfs` over a directory that the test can look into, which
//! is what a server has.
//!
//! ```text
//!   ROOT/below   the server's side
//!   ROOT/work    slowfs over it: the directory of the job ($WORK)
//!   ROOT/out     outside of the transaction ($OUT)
//!   ROOT/job     where `elbow mount` shows the job
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use elbow_testkit::slowfs::{Counters, Fault, Mounted, Op, SlowFs, SlowOptions};
use elbow_testkit::tree::Tree;
use tempfile::TempDir;

use crate::commands::{Place, Run, Running, wait_for_the_drain};
use crate::test_dir::{make_old_tree, snapshot_of, staging_below, without_staging};

/// The operations that change something.
const MODIFYING: [Op; 13] = [
    Op::Setattr,
    Op::Mknod,
    Op::Mkdir,
    Op::Unlink,
    Op::Rmdir,
    Op::Symlink,
    Op::Rename,
    Op::Link,
    Op::Create,
    Op::Write,
    Op::Setxattr,
    Op::Removexattr,
    Op::Fallocate,
];

/// See the module's header.
pub(crate) struct SlowStorage {
    // Unmounted before the directory goes.
    mounted: Mounted,
    dir: TempDir,
}

impl SlowStorage {
    /// A ground whose old tree a shell script makes on the server's side.
    pub(crate) fn new(seed: &str, options: &SlowOptions) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("elbow-slow-")
            .tempdir()
            .expect("temporary directory");
        let path = |name| dir.path().join(name);
        for name in ["below", "work", "out", "job"] {
            fs::create_dir(path(name)).expect("directory");
        }
        make_old_tree(&path("below"), &path("out"), seed);
        let mounted = SlowFs::mount(&path("below"), &path("work"), options).expect("mounting slowfs");
        Self { mounted, dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A path on the server's side.
    pub(crate) fn below(&self, name: &str) -> PathBuf {
        self.path("below").join(name)
    }

    /// All that the server has.
    pub(crate) fn snapshot_below(&self) -> Tree {
        snapshot_of(&self.below(""))
    }

    /// The directory of the job.
    pub(crate) fn work(&self) -> PathBuf {
        self.path("work")
    }

    /// The directory outside of it.
    pub(crate) fn outside(&self) -> PathBuf {
        self.path("out")
    }

    /// How many staging directories the server has.
    pub(crate) fn staging(&self) -> usize {
        staging_below(&self.below(""))
    }

    /// The server has no staging directory.
    pub(crate) fn assert_no_staging(&self) {
        assert_eq!(staging_below(&self.below("")), 0, "staging directories are left behind");
    }

    /// Makes operations fail.
    pub(crate) fn set_faults(&self, faults: Vec<Fault>) {
        self.mounted.set_faults(faults);
    }

    /// How often they did.
    pub(crate) fn faults_fired(&self) -> u64 {
        self.mounted.faults_fired()
    }

    /// What has reached the storage since [`Self::reset_counters`].
    pub(crate) fn counters(&self) -> Counters {
        self.mounted.counters()
    }

    /// Counts from here on.
    pub(crate) fn reset_counters(&self) {
        self.mounted.reset_counters();
    }

    /// How many operations that change something have reached the storage.
    pub(crate) fn modifying_calls(&self) -> u64 {
        let counters = self.counters();
        MODIFYING.iter().map(|op| counters.of(*op)).sum()
    }

    /// Runs a script as a job on the slow storage.
    pub(crate) fn job(&self, options: &[&str], script: &str) -> Run {
        self.start_job(options, script).finish()
    }

    /// Begins to.
    pub(crate) fn start_job(&self, options: &[&str], script: &str) -> Running {
        let (work, out) = (self.path("work"), self.path("out"));
        Place { work: &work, out: &out }.start_job(&[], options, script)
    }

    /// Waits until all that a running job has changed is stored.
    pub(crate) fn wait_for_the_drain(&self) {
        let (work, out) = (self.path("work"), self.path("out"));
        let words = [env!("CARGO_BIN_EXE_elbow"), "status", "--json", "."];
        wait_for_the_drain(0, || Place { work: &work, out: &out }.start(&words).finish());
    }

    /// Lets everything that is asked of the storage wait until [`Self::go_on`].
    pub(crate) fn pause(&self) {
        self.mounted.pause();
    }

    /// How many operations wait for the end of a pause.
    pub(crate) fn waiting(&self) -> usize {
        self.mounted.waiting()
    }

    /// The end of a pause.
    pub(crate) fn go_on(&self) {
        self.mounted.resume();
    }

    /// Goes on with what was kept.
    pub(crate) fn resume(&self, options: &[&str]) -> Run {
        let (work, out) = (self.path("work"), self.path("out"));
        let words = [&[env!("CARGO_BIN_EXE_elbow"), "resume"], options, &["."]].concat();
        Place { work: &work, out: &out }.start(&words).finish()
    }

    /// Who looks from outside sees the tree as it was, but for staging directories.
    pub(crate) fn assert_seen_from_outside_as(&self, before: &Tree) {
        without_staging(self.snapshot_below()).assert_equals(&without_staging(before.clone()));
    }

    /// Begins a job with `elbow mount`.
    pub(crate) fn elbow_mount(&self) -> JobMount<'_> {
        let mount = JobMount {
            test_dir: self,
            mountpoint: self.path("job"),
        };
        let source = self.path("work");
        mount
            .elbow_with(&["mount", text(&source), text(&mount.mountpoint)])
            .assert_code(0);
        mount
    }
}

/// A job that `elbow mount` began; rolled back when dropped before its end.
pub(crate) struct JobMount<'a> {
    test_dir: &'a SlowStorage,
    mountpoint: PathBuf,
}

impl JobMount<'_> {
    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.mountpoint
    }

    /// Runs a script in it.
    pub(crate) fn shell(&self, script: &str) -> Run {
        Place {
            work: &self.mountpoint,
            out: &self.test_dir.path("out"),
        }
        .shell(script)
    }

    /// Runs a subcommand on it.
    pub(crate) fn elbow(&self, words: &[&str]) -> Run {
        self.elbow_with(&[words, &[text(&self.mountpoint)]].concat())
    }

    fn elbow_with(&self, words: &[&str]) -> Run {
        let out = self.test_dir.path("out");
        let words = [&[env!("CARGO_BIN_EXE_elbow")], words].concat();
        Place { work: &out, out: &out }.start(&words).finish()
    }
}

impl Drop for JobMount<'_> {
    fn drop(&mut self) {
        let is_mounted =
            fs::read_to_string("/proc/self/mountinfo").is_ok_and(|table| table.contains(text(&self.mountpoint)));
        if is_mounted {
            let _ = self.elbow(&["rollback"]);
        }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary directories have plain names")
}
