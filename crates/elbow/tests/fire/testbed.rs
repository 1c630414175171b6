//! The service and its proxies, in one directory with the files that are locked.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use elbow_lock::{Address, Client, Credentials, LockError, Options, UpstreamSilent};
use tempfile::TempDir;

use super::PATIENCE;
use super::process::Process;
use super::schedule::TTL_MS;

const KEY: &str = "0123456789abcdef0123";
/// Below those that the kernel gives to who connects: while the service is away nobody else gets its port.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

/// Between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(20);

/// What is locked.
pub(crate) const FILES: [&str; 3] = ["a", "b", "c"];

pub(crate) struct Testbed {
    directory: TempDir,
    tcp: String,
    service: Option<Service>,
    /// How often the address has moved.
    moves: u32,
}

struct Service {
    process: Process,
    /// Kept open, so that it can write.
    _said: BufReader<ChildStdout>,
}

impl Testbed {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for file in FILES {
            std::fs::write(directory.path().join(file), [0; 2_000]).unwrap();
        }
        let key = directory.path().join("key");
        std::fs::write(&key, KEY).unwrap();
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
        let mut testbed = Self {
            directory,
            tcp: format!("tcp:127.0.0.1:{}", free_port()),
            service: None,
            moves: 0,
        };
        testbed.begin(&["--first"]);
        testbed
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn unix(&self) -> String {
        format!("unix:{}/socket", self.path().display())
    }

    pub(crate) fn tcp(&self) -> String {
        self.tcp.clone()
    }

    /// The address of a proxy.
    pub(crate) fn proxy(&self, number: usize) -> String {
        format!("unix:{}/proxy{number}", self.path().display())
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.path().join("key")
    }

    /// `elbow WORDS`, for what talks to the service.
    pub(crate) fn elbow(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_elbow"));
        command.args(words).current_dir(self.path());
        command
    }

    /// One proxy reaches the service over TCP, the other over its Unix socket.
    pub(crate) fn start_proxy(&self, number: usize) -> Process {
        let (address, key) = (self.proxy(number), self.key());
        let service = if number == 0 { self.tcp() } else { self.unix() };
        let mut words = vec![
            "lockd", "proxy", "--listen", &address, "--server", &service, "--ttl", "800ms",
        ];
        if number == 0 {
            words.extend(["--key-file", key.to_str().unwrap()]);
        }
        let mut command = self.elbow(&words);
        Process::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
    }

    /// The service in its place.
    pub(crate) fn service(&mut self) -> &mut Process {
        &mut self.service.as_mut().expect("a service").process
    }

    pub(crate) fn kill(&mut self) {
        self.service().kill();
        self.service = None;
    }

    pub(crate) fn start_again(&mut self) {
        self.begin(&[]);
    }

    /// Starts it with its state file in another place.
    pub(crate) fn start_with_a_copy(&mut self) {
        let before = self.state();
        self.moves += 1;
        std::fs::copy(before, self.state()).unwrap();
        self.begin(&[]);
    }

    /// Starts it with no state file.
    pub(crate) fn start_without_memory(&mut self) {
        self.moves += 1;
        self.begin(&[]);
    }

    fn state(&self) -> PathBuf {
        self.path().join(format!("state{}", self.moves))
    }

    fn begin(&mut self, more: &[&str]) {
        let (unix, state, key, ttl) = (self.unix(), self.state(), self.key(), format!("{TTL_MS}ms"));
        let [state, key] = [&state, &key].map(|path| path.to_str().unwrap());
        let words = [
            "lockd", "serve", "--listen", &unix, "--listen", &self.tcp, "--ttl", &ttl,
        ];
        let mut command = self.elbow(&words);
        command.args(["--state", state, "--key-file", key]).args(more);
        let mut process = Process::start(command.stdout(Stdio::piped()).stderr(Stdio::null()));
        let mut said = BufReader::new(process.child().stdout.take().unwrap());
        for address in [&unix, &self.tcp] {
            let mut line = String::new();
            said.read_line(&mut line).unwrap();
            assert_eq!(line.trim(), format!("listening on {address}"), "{command:?}");
        }
        self.service = Some(Service { process, _said: said });
    }

    /// A client of our own, at any of the addresses. A proxy does not listen while it has no session at the service, and lets nobody in when it is late
    /// with the lease of one: a busy machine may let it miss that at any time.
    pub(crate) fn client(&self, address: &str) -> Client {
        let address: Address = address.parse().unwrap();
        let mut options = Options {
            name: "fire test".to_owned(),
            ..Options::default()
        };
        if let Address::Tcp(_) = address {
            options.ttl_ms = 1_000;
            options.credentials = Some(Credentials::of_key(KEY.as_bytes()).unwrap());
        }
        let give_up = Instant::now() + PATIENCE;
        loop {
            match Client::connect_with(address.clone(), options.clone()) {
                Err(error) if is_away(&error) && Instant::now() < give_up => std::thread::sleep(PAUSE),
                connected => return connected.unwrap(),
            }
        }
    }

    /// A number that the service tells.
    pub(crate) fn told(&self, part: &str, name: &str) -> u64 {
        let status = self.client(&self.unix()).status().unwrap();
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        let found = if part.is_empty() {
            &status[name]
        } else {
            &status[part][name]
        };
        found.as_u64().unwrap_or_else(|| panic!("no {name} in {status}"))
    }
}

/// Whether somebody else may be let in later.
fn is_away(error: &LockError) -> bool {
    match error {
        LockError::Unreachable { .. } => true,
        LockError::Rejected { why, .. } => why.contains(&UpstreamSilent.to_string()),
        _ => false,
    }
}

fn free_port() -> u16 {
    let first = u16::try_from(std::process::id() % 10_000).unwrap();
    let mut ports = (0..10_000).map(|step| PORTS.start + (first + step) % 10_000);
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    ports.find(is_free).expect("a free port")
}
