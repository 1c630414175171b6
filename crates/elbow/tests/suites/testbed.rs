//! Where a suite runs, natively and then in a job: an empty directory of a storage, and a place outside of it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use elbow_testkit::slowfs::{Mounted, SlowFs, SlowOptions};
use tempfile::TempDir;

use crate::commands::{Place, Run, unavailable};
use crate::loop_disk::LoopDisk;

/// What a disk of the tests may hold; its image is sparse.
const DISK_BYTES: u64 = 3 << 30;

/// The kinds of storage of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    /// On a loop device.
    Ext4,
    /// `slowfs`: a FUSE file system over a directory, as a network file system would be, here without delay.
    Slowfs,
}

impl Storage {
    /// As the table of differences calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Slowfs => "slowfs",
        }
    }
}

/// With `elbow run` or without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Native,
    Job,
}

/// See the module's header.
pub(crate) struct Testbed {
    // Unmounted before the directory goes.
    slow: Option<Mounted>,
    disk: Option<LoopDisk>,
    dir: TempDir,
    /// So many were made there.
    directories: AtomicU32,
}

impl Testbed {
    /// `None`, said aloud, where it cannot be had.
    pub(crate) fn new(storage: Storage) -> Option<Self> {
        let dir = tempfile::Builder::new()
            .prefix("elbow-suites-")
            .tempdir()
            .expect("temporary directory");
        open_to_all(dir.path());
        for name in ["out", "below", "work"] {
            fs::create_dir(dir.path().join(name)).expect("directory");
            open_to_all(&dir.path().join(name));
        }
        let mut testbed = Self {
            slow: None,
            disk: None,
            dir,
            directories: AtomicU32::new(0),
        };
        match storage {
            Storage::Ext4 => testbed.disk = Some(LoopDisk::new(DISK_BYTES)?),
            Storage::Slowfs => {
                let options = SlowOptions {
                    allow_other: true,
                    ..SlowOptions::default()
                };
                let (below, work) = (testbed.path("below"), testbed.path("work"));
                testbed.slow = Some(SlowFs::mount(&below, &work, &options).expect("mounting slowfs"));
            }
        }
        if let Some(disk) = &testbed.disk {
            open_to_all(disk.path().parent().expect("its directory"));
            open_to_all(&disk.path());
        }
        Some(testbed)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A path outside of the job.
    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        self.path("out").join(name)
    }

    /// An empty directory. What was in the one before goes, but for what a suite has protected.
    pub(crate) fn fresh(&self, way: Way) -> PathBuf {
        let root = self.disk.as_ref().map_or_else(|| self.path("work"), LoopDisk::path);
        let number = self.directories.fetch_add(1, Ordering::Relaxed);
        for entry in fs::read_dir(&root).expect("the storage").flatten() {
            let _ = fs::remove_dir_all(entry.path());
        }
        let work = root.join(format!("{way:?}-{number}"));
        fs::create_dir(&work).expect("a directory of the storage");
        open_to_all(&work);
        work
    }

    /// Runs a command there; its output is that of the command, and a job is committed however the command ends.
    pub(crate) fn run(&self, work: &Path, way: Way, words: &[&str]) -> Run {
        let (out, code) = (self.path("out"), self.outside("code"));
        let place = Place { work, out: &out };
        // The suite's own exit code goes another way.
        let script = "\"$@\"; echo $? > \"$OUT/code\"";
        let words = [&["sh", "-c", script, "sh"], words].concat();
        let elbow = [env!("CARGO_BIN_EXE_elbow"), "run", "--"];
        let mut run = match way {
            Way::Native => place.start(&words),
            Way::Job => place.start(&[&elbow[..], &words].concat()),
        }
        .finish();
        run.assert_code(0);
        let code = fs::read_to_string(code).expect("the code of a suite");
        run.code = code.trim().parse().expect("a number");
        self.assert_no_staging(work);
        run
    }

    fn assert_no_staging(&self, work: &Path) {
        let names = fs::read_dir(work).expect("the directory of the job").flatten();
        let staging: Vec<_> = names
            .map(|entry| entry.file_name())
            .filter(|name| name.to_string_lossy().starts_with(".elbow-"))
            .collect();
        assert!(staging.is_empty(), "left behind: {staging:?}");
    }
}

/// Suites act as other users too.
fn open_to_all(path: &Path) {
    fs::set_permissions(path, Permissions::from_mode(0o755)).expect("opening a directory to all");
}

/// A program of a suite: in the PATH, or where `scripts/setup.sh test` puts those of crates.io; `None`, said aloud.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/fixtures");
    let fixtures = std::env::var_os("ELBOW_FIXTURES").map_or(root, PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    places.insert(0, fixtures.join("suites/bin"));
    let found = places
        .into_iter()
        .map(|place| place.join(name))
        .find(|path| path.exists());
    if found.is_none() {
        unavailable(&format!(
            "{name} (scripts/setup.sh {})",
            if std::env::var_os("SOAK").is_some() {
                "soak"
            } else {
                "test"
            }
        ));
    }
    found
}
