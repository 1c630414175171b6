//! The clients: which there are, and how each is started, again and again.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use elbow_testkit::oracle::log;

use super::bed::Bed;
use super::process::Process;
use super::schedule::{CLIENTS, TTL_MS};

/// By which door a client comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Door {
    /// libelbow_lock.
    C,
    /// The package for Python.
    Python,
    /// fcntl(2), with the library preloaded.
    Fcntl,
    /// `elbow lock hold`.
    Hold,
}

/// Where it finds the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Unix,
    Tcp,
    Proxy(usize),
}

const CAST: [(Door, Way); CLIENTS] = [
    (Door::C, Way::Unix),
    (Door::C, Way::Tcp),
    (Door::C, Way::Proxy(0)),
    (Door::C, Way::Proxy(1)),
    (Door::Python, Way::Unix),
    (Door::Python, Way::Tcp),
    (Door::Python, Way::Proxy(0)),
    (Door::Fcntl, Way::Unix),
    (Door::Fcntl, Way::Tcp),
    (Door::Fcntl, Way::Proxy(1)),
    (Door::Hold, Way::Unix),
    (Door::Hold, Way::Tcp),
];

/// How a process whose locks were lost ends itself.
const LOST_EXIT: i32 = 125;

/// What the clients are made of.
pub(crate) struct Programs {
    directory: tempfile::TempDir,
    libraries: [PathBuf; 3],
}

/// What cargo calls them.
const LIBRARIES: [&str; 3] = ["libelbow_lock_c.so", "libelbow_fcntl.so", "libelbowroom_native.so"];

impl Programs {
    /// None where a library is not built, which is an error where CI is set.
    pub(crate) fn build() -> Option<Self> {
        let libraries = libraries()?;
        let programs = Self {
            directory: tempfile::tempdir().unwrap(),
            libraries,
        };
        for name in ["list", "fcntl", "hold"] {
            programs.compile(name);
        }
        programs.install_package();
        Some(programs)
    }

    fn compile(&self, name: &str) {
        let mut command = Command::new("cc");
        command
            .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-o"])
            .arg(self.directory.path().join(name))
            .arg(source(&format!("{name}.c")))
            .args([
                "-I",
                concat!(env!("CARGO_MANIFEST_DIR"), "/../../clients/c-lock/include"),
            ]);
        if name == "list" {
            // The name by which the program asks for it is another than that of the file that cargo made.
            let asked_for = self.directory.path().join("libelbow_lock.so.0.1");
            std::os::unix::fs::symlink(&self.libraries[0], asked_for).unwrap();
            command.arg(&self.libraries[0]);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// As a wheel would have it.
    fn install_package(&self) {
        let root = self.directory.path().join("python");
        let package = root.join("elbowroom");
        let information = root.join("elbowroom-0.dist-info");
        for place in [&package, &information] {
            std::fs::create_dir_all(place).unwrap();
        }
        std::fs::write(
            information.join("METADATA"),
            "Metadata-Version: 2.1\nName: elbowroom\nVersion: 0\n",
        )
        .unwrap();
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients/python/python/elbowroom");
        for entry in std::fs::read_dir(sources).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                std::fs::copy(entry.path(), package.join(entry.file_name())).unwrap();
            }
        }
        std::os::unix::fs::symlink(&self.libraries[2], package.join("_native.abi3.so")).unwrap();
    }
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fire/clients")
        .join(name)
}

/// Where a build of the workspace put the libraries: in one of two places, and the newer one counts.
fn libraries() -> Option<[PathBuf; 3]> {
    let directory = Path::new(env!("CARGO_BIN_EXE_elbow")).parent().unwrap();
    let newest = |name: &str| {
        let places = [directory.join(name), directory.join("deps").join(name)];
        let built = places
            .into_iter()
            .filter_map(|place| Some((place.metadata().ok()?.modified().ok()?, place)));
        built.max().map(|(_, place)| place)
    };
    if let [Some(lock), Some(fcntl), Some(python)] = LIBRARIES.map(newest) {
        return Some([lock, fcntl, python]);
    }
    let how = "cargo build -p elbow-c-lock -p elbow-fcntl -p elbow-python";
    assert!(
        std::env::var_os("CI").is_none(),
        "{LIBRARIES:?} are not all built: {how}"
    );
    println!("SKIPPED: {LIBRARIES:?} are not all built: {how}");
    None
}

/// The place of one client after another.
pub(crate) struct Slot {
    number: usize,
    pub(crate) process: Option<Process>,
    /// The logs of all of them.
    logs: Vec<(PathBuf, log::Client)>,
}

impl Slot {
    pub(crate) fn new(number: usize) -> Self {
        Self {
            number,
            process: None,
            logs: Vec::new(),
        }
    }

    pub(crate) fn door(&self) -> Door {
        CAST[self.number].0
    }

    pub(crate) fn start(&mut self, bed: &Bed, programs: &Programs, seed: u64) {
        let (door, way) = CAST[self.number];
        let life = self.logs.len();
        let log = bed.path().join(format!("log-{}-{life}", self.number));
        let client = log::Client {
            name: format!("{door:?} over {way:?}, number {}, life {life}", self.number),
            is_direct: !matches!(way, Way::Proxy(_)),
            lease: lease(door, way),
            stops: Vec::new(),
        };
        let mut command = command(
            bed,
            programs,
            door,
            way,
            &log,
            seed.wrapping_mul(1_000) + (self.number * 50 + life) as u64,
        );
        let errors = std::fs::File::create(log.with_extension("errors")).unwrap();
        self.process = Some(Process::start(
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors),
        ));
        self.logs.push((log, client));
    }

    /// Notes the end of one that has ended. Says what is wrong with that.
    pub(crate) fn reap(&mut self, may_end_well: bool) -> Result<bool, String> {
        let Some(process) = &mut self.process else {
            return Ok(true);
        };
        let Some(status) = process.ended() else {
            return Ok(false);
        };
        let is_right = process.was_killed
            || match status.code() {
                Some(0) => may_end_well,
                Some(LOST_EXIT) => self.door() == Door::Fcntl,
                _ => false,
            };
        self.bury();
        let (log, client) = self.logs.last().unwrap();
        match is_right {
            true => Ok(true),
            false => {
                let said = std::fs::read_to_string(log.with_extension("errors")).unwrap_or_default();
                Err(format!("{} ended with {status}: {said}", client.name))
            }
        }
    }

    pub(crate) fn kill(&mut self) {
        if let Some(process) = &mut self.process {
            process.kill();
            self.bury();
        }
    }

    /// Keeps what is known of the last one.
    fn bury(&mut self) {
        let is_one_process = self.door() != Door::Hold; // What that starts may begin while it is looked at.
        if let (Some(mut process), Some((_, client))) = (self.process.take(), self.logs.last_mut())
            && is_one_process
        {
            client.stops = std::mem::take(&mut process.stops);
        }
    }

    /// What all of them wrote.
    pub(crate) fn stories(&self) -> Vec<log::Story> {
        let read = |(path, client): &(PathBuf, log::Client)| {
            // One that was killed before it began wrote nothing.
            let text = std::fs::read_to_string(path).unwrap_or_default();
            log::read(client, &text).unwrap_or_else(|error| panic!("{error:#}"))
        };
        self.logs.iter().map(read).collect()
    }
}

/// Of those that ask the service itself whether a lock is theirs.
fn lease(door: Door, way: Way) -> Option<u64> {
    match (door, way) {
        (Door::C | Door::Python, Way::Tcp) | (Door::Python, Way::Unix) => Some(TTL_MS * 1_000_000),
        _ => None,
    }
}

fn command(bed: &Bed, programs: &Programs, door: Door, way: Way, log: &Path, seed: u64) -> Command {
    let place = programs.directory.path();
    let url = match way {
        Way::Unix => bed.unix(),
        Way::Tcp => bed.tcp(),
        Way::Proxy(number) => bed.proxy(number),
    };
    let mut command = match door {
        Door::C => Command::new(place.join("list")),
        Door::Python => Command::new("python3"),
        Door::Fcntl => Command::new(place.join("fcntl")),
        Door::Hold => Command::new(place.join("hold")),
    };
    if door == Door::Python {
        command
            .arg(source("package.py"))
            .env("PYTHONPATH", place.join("python"));
    }
    command.arg(log).arg(seed.to_string()).arg(bed.path().join("stop"));
    match door {
        Door::C => command.arg(&url).env("LD_LIBRARY_PATH", place),
        Door::Python => command.arg(&url).arg(if way == Way::Unix { "1" } else { "0" }),
        Door::Fcntl => command
            .env("LD_PRELOAD", &programs.libraries[1])
            .env("ELBOW_FCNTL_PREFIXES", bed.path().canonicalize().unwrap())
            .env("ELBOW_FCNTL_IDENTITY", "path"),
        Door::Hold => command.arg(env!("CARGO_BIN_EXE_elbow")),
    };
    command
        .env("ELBOW_LOCKS", &url)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(bed.path());
    match way {
        Way::Tcp => command.env("ELBOW_LOCKS_KEY", bed.key()),
        _ => command.env_remove("ELBOW_LOCKS_KEY"),
    };
    command
}
