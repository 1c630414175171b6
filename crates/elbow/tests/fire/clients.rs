//! The clients: which there are, and how each is started, again and again.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use elbow_testkit::oracle::log;

use super::package;
use super::process::Process;
use super::schedule::{CLIENTS, TTL_MS};
use super::testbed::Testbed;

/// Which of the client libraries or commands it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ClientKind {
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
enum Transport {
    Unix,
    Tcp,
    Proxy(usize),
}

const MATRIX: [(ClientKind, Transport); CLIENTS] = [
    (ClientKind::C, Transport::Unix),
    (ClientKind::C, Transport::Tcp),
    (ClientKind::C, Transport::Proxy(0)),
    (ClientKind::C, Transport::Proxy(1)),
    (ClientKind::Python, Transport::Unix),
    (ClientKind::Python, Transport::Tcp),
    (ClientKind::Python, Transport::Proxy(0)),
    (ClientKind::Fcntl, Transport::Unix),
    (ClientKind::Fcntl, Transport::Tcp),
    (ClientKind::Fcntl, Transport::Proxy(1)),
    (ClientKind::Hold, Transport::Unix),
    (ClientKind::Hold, Transport::Tcp),
];

/// How a process whose locks were lost ends itself.
const LOST_EXIT: i32 = 125;

/// The compiled programs and the libraries that the clients are started from.
pub(crate) struct Programs {
    directory: tempfile::TempDir,
    libraries: [PathBuf; 3],
}

impl Programs {
    /// None where a library is not built, which is an error where CI is set.
    pub(crate) fn build() -> Option<Self> {
        let libraries = package::libraries()?;
        let programs = Self {
            directory: tempfile::tempdir().unwrap(),
            libraries,
        };
        for name in ["list", "fcntl", "hold"] {
            programs.compile(name);
        }
        package::install_python(&programs.directory.path().join("python"), &programs.libraries[2]);
        Some(programs)
    }

    fn compile(&self, name: &str) {
        let program = self.directory.path().join(name);
        let library = Some(&*self.libraries[0]).filter(|_| name == "list");
        package::compile(&source(&format!("{name}.c")), &program, library);
    }
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fire/clients")
        .join(name)
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

    pub(crate) fn kind(&self) -> ClientKind {
        MATRIX[self.number].0
    }

    pub(crate) fn start(&mut self, testbed: &Testbed, programs: &Programs, seed: u64) {
        let (kind, transport) = MATRIX[self.number];
        let start = self.logs.len();
        let log = testbed.path().join(format!("log-{}-{start}", self.number));
        let client = log::Client {
            name: format!("{kind:?} over {transport:?}, number {}, start {start}", self.number),
            is_direct: !matches!(transport, Transport::Proxy(_)),
            lease: lease(kind, transport),
            stops: Vec::new(),
        };
        let mut command = command(
            testbed,
            programs,
            kind,
            transport,
            &log,
            seed.wrapping_mul(1_000) + (self.number * 50 + start) as u64,
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
                Some(LOST_EXIT) => self.kind() == ClientKind::Fcntl,
                _ => false,
            };
        self.note_end();
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
            self.note_end();
        }
    }

    /// Keeps what is known of the last one.
    fn note_end(&mut self) {
        let is_one_process = self.kind() != ClientKind::Hold; // What that starts may begin while it is looked at.
        if let (Some(mut process), Some((_, client))) = (self.process.take(), self.logs.last_mut())
            && is_one_process
        {
            client.stops = std::mem::take(&mut process.stops);
        }
    }

    /// What all of them wrote.
    pub(crate) fn client_histories(&self) -> Vec<log::History> {
        let read = |(path, client): &(PathBuf, log::Client)| {
            // One that was killed before it began wrote nothing.
            let text = std::fs::read_to_string(path).unwrap_or_default();
            log::read(client, &text).unwrap_or_else(|error| panic!("{error:#}"))
        };
        self.logs.iter().map(read).collect()
    }
}

/// Of those that ask the service itself whether a lock is theirs.
fn lease(kind: ClientKind, transport: Transport) -> Option<u64> {
    match (kind, transport) {
        (ClientKind::C | ClientKind::Python, Transport::Tcp) | (ClientKind::Python, Transport::Unix) => {
            Some(TTL_MS * 1_000_000)
        }
        _ => None,
    }
}

fn command(
    testbed: &Testbed,
    programs: &Programs,
    kind: ClientKind,
    transport: Transport,
    log: &Path,
    seed: u64,
) -> Command {
    let place = programs.directory.path();
    let url = match transport {
        Transport::Unix => testbed.unix(),
        Transport::Tcp => testbed.tcp(),
        Transport::Proxy(number) => testbed.proxy(number),
    };
    let mut command = match kind {
        ClientKind::C => Command::new(place.join("list")),
        ClientKind::Python => Command::new("python3"),
        ClientKind::Fcntl => Command::new(place.join("fcntl")),
        ClientKind::Hold => Command::new(place.join("hold")),
    };
    if kind == ClientKind::Python {
        command
            .arg(source("package.py"))
            .env("PYTHONPATH", place.join("python"));
    }
    command.arg(log).arg(seed.to_string()).arg(testbed.path().join("stop"));
    match kind {
        ClientKind::C => command.arg(&url).env("LD_LIBRARY_PATH", place),
        ClientKind::Python => command
            .arg(&url)
            .arg(if transport == Transport::Unix { "1" } else { "0" }),
        ClientKind::Fcntl => command
            .env("LD_PRELOAD", &programs.libraries[1])
            .env("ELBOW_FCNTL_PREFIXES", testbed.path().canonicalize().unwrap())
            .env("ELBOW_FCNTL_IDENTITY", "path"),
        ClientKind::Hold => command.arg(env!("CARGO_BIN_EXE_elbow")),
    };
    command
        .env("ELBOW_LOCKS", &url)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(testbed.path());
    match transport {
        Transport::Tcp => command.env("ELBOW_LOCKS_KEY", testbed.key()),
        _ => command.env_remove("ELBOW_LOCKS_KEY"),
    };
    command
}
