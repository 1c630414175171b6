//! A connection that breaks while the results of a command that has succeeded are stored: sshfs on a real server, whose ssh is killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use elbow_testkit::sshbed::{SshMount, SshTestbed};
use elbow_testkit::tree::Tree;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::commands::{Place, Run, wait_for};
use crate::test_dir::{make_old_tree, snapshot_of, ssh_server, staging_below, without_staging};

const OLD: &str = "mkdir d; seq 10 > d/old; seq 20 > other; seq 30 > changed";
/// It has done all that it does long before the storage has it: that takes several round trips for each file, one after the other.
const SCRIPT: &str = "mkdir new; for i in $(seq 400); do seq $i > new/$i; done; echo more >> changed; rm other; mv d e; : > \"$OUT/done\"";
/// Of the objects made, when the connection breaks.
const STORED: usize = 20;
/// The connection is cut so often at most, until an operation is under way at that moment.
const CUTS_MAX: u32 = 5;

struct Testbed {
    dir: TempDir,
    server: SshTestbed,
}

impl Testbed {
    fn new() -> Option<Self> {
        let directories = ["out", "scratch", "native", "server", "work"];
        let (dir, server) = ssh_server(&directories, Duration::from_millis(3))?;
        let testbed = Self { dir, server };
        testbed.make_old_trees();
        Some(testbed)
    }

    fn make_old_trees(&self) {
        for name in ["native", "server"] {
            make_old_tree(&self.path(name), &self.path("out"), OLD);
        }
    }

    /// As at the beginning, while nothing is mounted.
    fn restore(&self) {
        for name in ["native", "server", "out"] {
            fs::remove_dir_all(self.path(name)).expect("what a job has left");
            fs::create_dir(self.path(name)).expect("a directory");
        }
        self.make_old_trees();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn mount(&self, options: &[&str]) -> SshMount {
        let mut sshfs = Command::new("sshfs");
        let (server, work) = (self.path("server"), self.path("work"));
        self.server
            .mount_by(sshfs.args(options), &server, &work)
            .expect("an sshfs mount")
    }

    /// Runs the script as a job, and kills the connection when a part of what it made is stored.
    fn cut_off(&self) -> Run {
        let (work, out, scratch) = (self.path("work"), self.path("out"), self.path("scratch"));
        let scratch = scratch.to_str().expect("UTF-8");
        let options = ["--in-flight", "1", "--scratch", scratch];
        let job = Place { work: &work, out: &out }.start_job(&[], &options, SCRIPT);
        wait_for("the end of the command", || out.join("done").exists());
        wait_for("a part of the results", || staged(&self.path("server")) > STORED);
        let ssh = self.ssh().expect("the connection of the mount");
        kill_process(ssh, Signal::KILL).expect("killing it");
        job.finish()
    }

    /// The process that holds the connection of the mount: who else has the server's keys?
    fn ssh(&self) -> Option<Pid> {
        let key = self.path("ssh").join("user_key");
        let key = key.to_str().expect("UTF-8");
        let mut all = fs::read_dir("/proc").expect("/proc").filter_map(Result::ok);
        all.find_map(|entry| {
            let command = fs::read(entry.path().join("cmdline")).ok()?;
            let command = String::from_utf8_lossy(&command).into_owned();
            let is_it = command.split('\0').next() == Some("ssh") && command.contains(key);
            Pid::from_raw(entry.file_name().to_str()?.parse().ok()?).filter(|_| is_it)
        })
    }

    fn elbow(&self, words: &[&str]) -> Run {
        let (work, out) = (self.path("work"), self.path("out"));
        let words = [&[env!("CARGO_BIN_EXE_elbow")], words].concat();
        Place { work: &work, out: &out }.start(&words).finish()
    }

    /// The kept job is committed as if nothing had been.
    fn assert_goes_on(&self, mount: SshMount) {
        let scratch = self.path("scratch");
        // Where it was saved is known from the job itself.
        self.elbow(&["resume"]).assert_code(0);
        drop(mount);
        assert_eq!(
            staging_below(&self.path("server")),
            0,
            "staging directories are left behind"
        );
        assert_eq!(
            fs::read_dir(&scratch).expect("it is there").count(),
            0,
            "something is left in --scratch"
        );
        self.tree().without_times().assert_equals(&self.native());
    }

    fn tree(&self) -> Tree {
        snapshot_of(&self.path("server"))
    }

    /// What the script leaves without a job.
    fn native(&self) -> Tree {
        let (native, out) = (self.path("native"), self.path("out"));
        Place {
            work: &native,
            out: &out,
        }
        .shell(SCRIPT)
        .assert_code(0);
        snapshot_of(&native).without_times()
    }
}

/// How many objects are in staging directories of the server.
fn staged(server: &Path) -> usize {
    let whole = Tree::snapshot(server).map_or(0, |tree| tree.entries.len());
    let others = Tree::snapshot(server).map_or(0, |tree| without_staging(tree).entries.len());
    whole.saturating_sub(others)
}

#[test]
fn a_connection_that_comes_back_loses_nothing() {
    let Some(testbed) = Testbed::new() else { return };
    for _ in 0..CUTS_MAX {
        let before = testbed.tree();
        let mount = testbed.mount(&["-o", "reconnect"]);
        let run = testbed.cut_off();
        if run.code != 0 {
            run.assert_code(125);
            without_staging(testbed.tree()).assert_equals(&without_staging(before));
            return testbed.assert_goes_on(mount);
        }
        // The storage was asked for nothing just then, and nothing was lost.
        drop(mount);
        testbed.tree().without_times().assert_equals(&testbed.native());
        testbed.restore();
    }
    panic!("no operation was under way in {CUTS_MAX} cuts");
}

/// The mount is dead, and nothing of the job can be marked or rolled back. Somebody mounts it again and runs another job there.
#[test]
fn a_connection_that_is_gone_loses_nothing() {
    let Some(testbed) = Testbed::new() else { return };
    let before = testbed.tree();
    let dead = testbed.mount(&[]);
    let run = testbed.cut_off();
    run.assert_code(125);
    assert!(
        run.err.contains("create new/") && run.err.contains("elbow resume"),
        "{}",
        run.err
    );
    without_staging(testbed.tree()).assert_equals(&without_staging(before.clone()));
    drop(dead);
    let mount = testbed.mount(&[]);
    let shown = testbed.elbow(&["recover", "--show"]);
    assert!(shown.out.contains("kept with all that it made"), "{}", shown.out);
    let other = testbed.elbow(&["run", "--on", ".", "--", "true"]);
    other.assert_code(0);
    assert!(other.err.contains("kept since earlier"), "{}", other.err);
    let shown = testbed.elbow(&["recover", "--show"]);
    assert!(
        shown.out.contains("could not be marked as kept") && shown.out.contains("elbow resume"),
        "{}",
        shown.out
    );
    without_staging(testbed.tree()).assert_equals(&without_staging(before));
    testbed.assert_goes_on(mount);
}
