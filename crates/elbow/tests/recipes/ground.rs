//! The directory in which a page is played, and the commands that are started there.

use std::fs;
use std::io::Write as _;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// After this a command is taken for hung.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often something is looked at while waiting for it.
const GLANCE: Duration = Duration::from_millis(20);

/// See the module's header.
pub(crate) struct Ground {
    dir: TempDir,
    path: String,
    environment: Vec<(String, String)>,
}

impl Ground {
    /// An empty directory, and these directories of programs before those of the machine; `elbow` is the one of this build.
    pub(crate) fn new(programs: &[&Path]) -> Self {
        let mut ground = Self::bare();
        let elbow = Path::new(env!("CARGO_BIN_EXE_elbow")).parent().expect("a directory");
        let mut places = vec![elbow];
        places.extend(programs);
        let path = places.iter().map(|place| format!("{}:", place.display()));
        ground.path = path.chain([ground.path.clone()]).collect();
        ground
    }

    /// An empty directory, and the programs of the machine alone.
    pub(crate) fn bare() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("elbow-recipe-")
            .tempdir()
            .expect("a directory");
        Self {
            dir,
            path: std::env::var("PATH").expect("a PATH"),
            environment: Vec::new(),
        }
    }

    /// Where programs are looked for.
    pub(crate) fn programs(&self) -> &str {
        &self.path
    }

    /// From now on there are all programs of the machine but this one.
    pub(crate) fn without(&mut self, program: &str) {
        let others = self.path("others");
        fs::create_dir(&others).expect("a directory");
        for place in std::env::split_paths(&self.path) {
            for entry in fs::read_dir(place).into_iter().flatten().flatten() {
                let link = others.join(entry.file_name());
                if entry.file_name() != program && !link.is_symlink() {
                    std::os::unix::fs::symlink(entry.path(), link).expect("a link");
                }
            }
        }
        self.path = others.display().to_string();
    }

    /// Gives what is started from now on a variable.
    pub(crate) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.environment.push((name.to_owned(), value.into()));
    }

    /// A path below the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file, with the directories that it is in.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let place = self.path(name);
        fs::create_dir_all(place.parent().expect("a directory")).expect("a directory");
        fs::write(place, text).expect("room");
    }

    /// Writes a program, by a child: what other tests start meanwhile has a descriptor of ours for a moment, and a program that somebody can write to
    /// cannot be run (ETXTBSY).
    pub(crate) fn write_program(&self, name: &str, text: &str) {
        let place = self.path(name);
        fs::create_dir_all(place.parent().expect("a directory")).expect("a directory");
        let mut shell = Command::new("sh");
        shell.args(["-c", r#"printf %s "$1" > "$0" && chmod 755 "$0""#]);
        let written = shell.arg(place).arg(text).status();
        assert!(written.expect("a shell").success(), "{name}");
    }

    /// Content of a file, empty where there is none.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Removes a file that is there.
    pub(crate) fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    /// The names in a directory, hidden ones too, in order.
    pub(crate) fn names(&self, directory: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(directory)).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// How many jobs have something staged in a directory.
    pub(crate) fn jobs(&self, directory: &str) -> usize {
        let names = self.names(directory);
        names.iter().filter(|name| name.starts_with(".elbow-")).count()
    }

    /// Makes a directory empty.
    pub(crate) fn empty(&self, directory: &str) {
        let _ = fs::remove_dir_all(self.path(directory));
        fs::create_dir_all(self.path(directory)).expect("a directory");
    }

    /// Starts commands of a shell there, in a process group of their own.
    pub(crate) fn start(&self, commands: &str) -> Running {
        let mut shell = Command::new("bash");
        shell.args(["-ec", commands]);
        self.start_command(&mut shell)
    }

    /// Starts a program there, in a process group of its own.
    fn start_command(&self, command: &mut Command) -> Running {
        self.start_in("", command)
    }

    /// The same in a directory below.
    pub(crate) fn start_in(&self, directory: &str, command: &mut Command) -> Running {
        let said = tempfile::NamedTempFile::new().expect("a file");
        // Both append, so that neither writes over the other.
        let append = || {
            let file = fs::OpenOptions::new().append(true).open(said.path());
            file.expect("a file that is there")
        };
        command.stdin(Stdio::null()).stdout(append()).stderr(append());
        let child = self.spawn(command.current_dir(self.path(directory)));
        Running { child, said }
    }

    /// Starts a program with this environment, in a process group of its own.
    pub(crate) fn spawn(&self, command: &mut Command) -> Child {
        if !command.get_envs().any(|(name, _)| name == "PATH") {
            command.env("PATH", &self.path);
        }
        command
            .env("LC_ALL", "C.UTF-8")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .process_group(0);
        command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }

    /// Runs commands of a shell there to their end.
    pub(crate) fn run(&self, commands: &str) -> Ended {
        self.start(commands).finish()
    }
}

/// Commands that are running.
pub(crate) struct Running {
    child: Child,
    said: tempfile::NamedTempFile,
}

impl Running {
    /// Waits for the end.
    pub(crate) fn finish(mut self) -> Ended {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("waiting for a child") {
                let code = status.code().or(status.signal().map(|signal| 128 + signal));
                return Ended {
                    code: code.expect("an end has a reason"),
                    said: self.said(),
                };
            }
            if Instant::now() > deadline {
                self.signal_group("KILL");
                panic!("it hung, and said:\n{}", self.said());
            }
            sleep(GLANCE);
        }
    }

    /// What it has said until now.
    pub(crate) fn said(&self) -> String {
        let said = fs::read(self.said.path()).expect("what was said");
        String::from_utf8_lossy(&said).into_owned()
    }

    /// Sends a signal to the process that was started, and to no other.
    pub(crate) fn signal(&self, signal: &str) {
        send(signal, &self.child.id().to_string());
    }

    /// Sends a signal to all of its process group.
    pub(crate) fn signal_group(&self, signal: &str) {
        send(signal, &format!("-{}", self.child.id()));
    }
}

fn send(signal: &str, to: &str) {
    let sent = Command::new("kill").args(["-s", signal, "--", to]).status();
    assert!(sent.is_ok_and(|status| status.success()), "kill -s {signal} -- {to}");
}

/// Commands that have ended.
pub(crate) struct Ended {
    /// Exit code, as a shell gives it.
    pub(crate) code: i32,
    /// What they printed on standard output and error.
    pub(crate) said: String,
}

impl Ended {
    /// Fails with all that was said unless the exit code is this one.
    #[track_caller]
    pub(crate) fn assert_code(&self, code: i32) {
        assert_eq!(self.code, code, "exit code; it said:\n{}", self.said);
    }
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        sleep(GLANCE);
    }
}

/// What `scripts/setup.sh test` has put where packages are not installed.
pub(crate) fn fixture(name: &str) -> PathBuf {
    let workspace = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/fixtures");
    let fixtures = std::env::var_os("ELBOW_FIXTURES").map_or(workspace, PathBuf::from);
    fixtures.join(name)
}

/// Whether a program is in the PATH.
pub(crate) fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|place| place.join(program).is_file())
}

/// Something a test needs cannot be had here: said aloud, and a failure where nothing may be skipped.
pub(crate) fn unavailable(what: &str) {
    assert!(
        std::env::var_os("CI").is_none_or(|value| value != "true"),
        "CI=true, and it lacks {what}"
    );
    skipped(what);
}

/// The same where that may be so everywhere.
pub(crate) fn skipped(what: &str) {
    // Not eprintln: the test runner would keep it to itself.
    let _ = writeln!(std::io::stderr(), "SKIPPED: this machine lacks {what}");
}
