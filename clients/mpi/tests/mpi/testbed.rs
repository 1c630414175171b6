//! Runs MPI programs, with and without the library.

use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::time::{Duration, Instant};

use crate::implementations::Mpi;

/// A program that runs longer hangs.
const PATIENCE: Duration = Duration::from_secs(180);

/// The processes of one program are more than there are processors.
static ALONE: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

/// A directory with what the programs need.
pub(crate) struct Testbed {
    dir: tempfile::TempDir,
    delay: PathBuf,
    /// Where the file of the ranks is, if not in `dir`.
    memory: Option<tempfile::TempDir>,
}

/// How a program is run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Run<'a> {
    pub(crate) ranks: u32,
    /// The lock service; without one the library is not preloaded.
    pub(crate) service: Option<&'a str>,
    /// Preload the library although there is no service.
    pub(crate) without_service: bool,
    /// How long each write to a file takes at least.
    pub(crate) write_delay_us: u32,
    /// The file system has no locks.
    pub(crate) no_locks: bool,
    /// More of the environment.
    pub(crate) variable: Option<(&'a str, &'a str)>,
}

/// What it printed, and whether it succeeded.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) printed: String,
    pub(crate) succeeded: bool,
}

impl Testbed {
    pub(crate) fn new() -> Self {
        Self::with(None)
    }

    /// The file of the ranks is in memory, where no disk that others keep busy makes a write slow.
    pub(crate) fn in_memory() -> Self {
        Self::with(Some(tempfile::tempdir_in("/dev/shm").expect("shared memory")))
    }

    fn with(memory: Option<tempfile::TempDir>) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let delay = dir.path().join("delay.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/delay.c");
        let mut command = Command::new("cc");
        command
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
            .arg(&delay)
            .arg(source)
            .arg("-ldl");
        assert!(command.status().expect("cc starts").success());
        Self { dir, delay, memory }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A file for the ranks. Open MPI has a semaphore for each file that is open, by the last part of its path alone: with one name for all, programs of
    /// two tests met there, and one that was killed while it held it let each later one on the machine wait for ever.
    pub(crate) fn data(&self) -> PathBuf {
        let dir = self.memory.as_ref().map_or(self.path(), tempfile::TempDir::path);
        let own = dir.file_name().expect("a name").display();
        dir.join(format!("data{own}"))
    }

    fn remove_semaphore(&self) {
        let name = self.data();
        let name = name.file_name().expect("a name").display();
        // It is there only if a rank was killed.
        let _ = std::fs::remove_file(format!("/dev/shm/sem.OMPIO_{name}"));
    }

    /// Runs `mpirun PROGRAM FILE ARGUMENTS`, on a file that is not there yet.
    pub(crate) fn run(&self, mpi: &Mpi, how: Run<'_>, program: &Path, arguments: &[&str]) -> Output {
        let file = self.data();
        let _ = std::fs::remove_file(&file);
        self.start(mpi, how, &[program.as_os_str(), file.as_os_str()], arguments)
    }

    /// Runs `mpirun COMMAND ARGUMENTS`.
    pub(crate) fn start(&self, mpi: &Mpi, how: Run<'_>, program: &[&std::ffi::OsStr], arguments: &[&str]) -> Output {
        let mut preload = vec![self.delay.clone()];
        let mut command = Command::new("timeout");
        command
            .arg(PATIENCE.as_secs().to_string())
            .arg(&mpi.launcher)
            .args(mpi.options);
        command.args(["-n", &how.ranks.to_string(), "env"]);
        if how.service.is_some() || how.without_service {
            preload.insert(0, library());
            command.arg("OMPI_MCA_fbtl_posix_write_datasieving=false");
        }
        if let Some((name, value)) = how.variable {
            command.arg(format!("{name}={value}"));
        }
        if let Some(url) = how.service {
            command.arg(format!("ELBOW_LOCKS={url}"));
        }
        let preload: Vec<_> = preload
            .iter()
            .map(|path| path.to_str().expect("a plain path"))
            .collect();
        command
            .arg(format!("LD_PRELOAD={}", preload.join(":")))
            .args(program)
            .args(arguments);
        command
            .env("WRITE_DELAY_US", how.write_delay_us.to_string())
            .env_remove("ELBOW_LOCKS");
        if how.no_locks {
            command.env("NO_LOCKS", "1");
        }
        let _alone = ALONE.lock();
        self.remove_semaphore();
        let begin = Instant::now();
        let output = Output::of(&command.output().unwrap_or_else(|error| panic!("{command:?}: {error}")));
        assert!(begin.elapsed() < PATIENCE, "it hangs: {command:?}\n{}", output.printed);
        output
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        self.remove_semaphore();
    }
}

impl Output {
    fn of(output: &process::Output) -> Self {
        let printed = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Self {
            printed,
            succeeded: output.status.success(),
        }
    }

    /// How many writes the writers have made.
    pub(crate) fn writes(&self) -> Option<u64> {
        let mut words = self.printed.lines().filter_map(|line| line.strip_suffix(" writes"));
        words.next()?.split(' ').next_back()?.parse().ok()
    }

    /// The lines of results that begin with `METHOD: torn`, or all results.
    pub(crate) fn torn(&self) -> Vec<&str> {
        self.printed.lines().filter(|line| line.contains("torn ")).collect()
    }
}

/// The shared library that was built with this test.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    let places = test.ancestors().skip(1).take(2).map(|dir| dir.join("libelbow_mpi.so"));
    let newest = places
        .filter_map(|path| Some((std::fs::metadata(&path).ok()?.modified().ok()?, path)))
        .max();
    newest.expect("libelbow_mpi.so beside the test").1
}
