//! A lock service, directories with and without the redirect, and programs in them.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use elbow_lock::Limits;
use elbow_lock::server::{Server, Settings, Users};
use tempfile::TempDir;
use tokio::sync::oneshot;

/// Long enough for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The library that was built with this test.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.ancestors().skip(1).take(2).filter_map(|directory| {
        let path = directory.join("libelbow_fcntl.so");
        let made = fs::metadata(&path).and_then(|it| it.modified()).ok()?;
        Some((made, path))
    });
    built.max().expect("libelbow_fcntl.so beside the test").1
}

/// A service in this process.
pub(crate) struct Service {
    pub(crate) url: String,
    stop: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Service {
    /// On a Unix socket.
    pub(crate) fn start(directory: &Path) -> Self {
        Self::start_at(directory, &format!("unix:{}/socket", directory.display()), 1000)
    }

    /// With leases of at most `ttl_ms_max`.
    fn start_at(directory: &Path, address: &str, ttl_ms_max: u32) -> Self {
        let (stop, told) = oneshot::channel();
        let (ready, is_ready) = channel();
        let settings = Settings {
            listen: vec![address.parse().unwrap()],
            users: Users::Same,
            credentials: None,
            ttl_ms_max,
            memory: directory.join("state"),
            first: true,
            metrics: None,
            shards: 2,
            clients_max: 1000,
            limits: Limits::default(),
            drain_ms_max: 0,
            warn: |_| {},
            give_back: || {},
        };
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let server = open(settings).await;
                ready.send(server.addresses().unwrap()[0].to_string()).unwrap();
                let _ = server.run(async move { drop(told.await) }).await;
            });
        });
        let url = is_ready.recv_timeout(PATIENCE).unwrap();
        let stop = Some((stop, thread));
        Self { url, stop }
    }

    /// Ends it, as if it had crashed.
    pub(crate) fn end(&mut self) {
        if let Some((stop, thread)) = self.stop.take() {
            let _ = stop.send(());
            thread.join().unwrap();
        }
    }
}

/// What another test has just forked holds the lock of the service before until it is a program of its own.
async fn open(settings: Settings) -> Server {
    let begun = std::time::Instant::now();
    loop {
        match Server::open(settings.clone()).await {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && begun.elapsed() < PATIENCE => {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            opened => return opened.unwrap(),
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.end();
    }
}

/// Where programs run: a directory whose locks go to a service, or not.
pub(crate) struct TestDir {
    pub(crate) service: Option<Service>,
    pub(crate) data: PathBuf,
    extra: Vec<(String, String)>,
    home: TempDir,
}

impl TestDir {
    /// With the redirect.
    pub(crate) fn redirected() -> Self {
        let home = tempfile::tempdir().unwrap();
        let service = Some(Service::start(home.path()));
        Self::new(home, service)
    }

    /// With the redirect, over TCP, where sessions have leases.
    pub(crate) fn redirected_over_tcp(ttl_ms: u32) -> Self {
        let home = tempfile::tempdir().unwrap();
        let service = Some(Service::start_at(home.path(), "tcp:127.0.0.1:0", ttl_ms));
        Self::new(home, service)
    }

    /// With the kernel's own locks.
    pub(crate) fn native() -> Self {
        Self::new(tempfile::tempdir().unwrap(), None)
    }

    fn new(home: TempDir, service: Option<Service>) -> Self {
        let data = home.path().join("data");
        fs::create_dir(&data).unwrap();
        let data = data.canonicalize().unwrap();
        Self {
            service,
            data,
            extra: Vec::new(),
            home,
        }
    }

    /// As `redirected`, for another directory.
    pub(crate) fn redirected_at(data: &Path) -> Self {
        let mut test_dir = Self::redirected();
        test_dir.data = data.canonicalize().unwrap();
        test_dir
    }

    /// Sets a variable for all programs from now on.
    pub(crate) fn set(&mut self, variable: &str, value: &str) {
        self.extra.push((variable.to_owned(), value.to_owned()));
    }

    /// Ends the service and starts another one in its place.
    pub(crate) fn restart(&mut self) {
        self.service.take();
        self.service = Some(Service::start(self.home.path()));
    }

    pub(crate) fn is_redirected(&self) -> bool {
        self.service.is_some()
    }

    /// A program in the directory.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.data);
        // From 3.12 on it warns of a fork in a process with threads, which the redirect makes of every program.
        command.env("PYTHONWARNINGS", "ignore::DeprecationWarning");
        if let Some(service) = &self.service {
            command
                .env("LD_PRELOAD", library())
                .env("ELBOW_LOCKS", &service.url)
                .env("ELBOW_FCNTL_PREFIXES", &self.data);
        }
        command.envs(self.extra.iter().map(|(variable, value)| (variable, value)));
        command
    }

    /// Runs a Python program; its output.
    pub(crate) fn python(&self, program: &str) -> Output {
        let output = self.command("python3").args(["-c", program]).output().unwrap();
        self.expect_no_kernel_locks();
        output
    }

    /// Under the redirect the kernel holds no lock on any file of the directory.
    pub(crate) fn expect_no_kernel_locks(&self) {
        if self.is_redirected() {
            assert_eq!(self.kernel_locks(), Vec::<String>::new());
        }
    }

    /// Lines of /proc/locks about files of the directory.
    pub(crate) fn kernel_locks(&self) -> Vec<String> {
        let inodes: Vec<String> = fs::read_dir(&self.data)
            .unwrap()
            .filter_map(|entry| Some(format!(":{} ", entry.ok()?.metadata().ok()?.ino())))
            .collect();
        let locks = fs::read_to_string("/proc/locks").unwrap();
        let ours = |line: &&str| inodes.iter().any(|inode| line.contains(inode));
        locks.lines().filter(ours).map(str::to_owned).collect()
    }
}

/// What a program said.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What it complained of.
pub(crate) fn complained(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Compiles one of our C programs.
pub(crate) fn compile(name: &str, directory: &Path) -> PathBuf {
    let program = directory.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/c/{name}.c"));
    let output = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-pthread", "-o"])
        .arg(&program)
        .arg(source)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", complained(&output));
    program
}

/// A `steps` program that runs.
pub(crate) struct Stepper {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    pub(crate) pid: String,
}

impl Stepper {
    pub(crate) fn start(test_dir: &TestDir, program: &Path) -> Self {
        let mut child = test_dir
            .command(program)
            .args(["a", "b"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            output
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        let pid = child.id().to_string();
        Self {
            child,
            input,
            lines,
            pid,
        }
    }

    pub(crate) fn send(&mut self, step: &str) {
        writeln!(self.input, "{step}").unwrap();
    }

    pub(crate) fn answer(&self, patience: Duration) -> Option<String> {
        match self.lines.recv_timeout(patience) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some("ended".to_owned()),
        }
    }

    pub(crate) fn run(&mut self, step: &str) -> String {
        self.send(step);
        self.answer(PATIENCE).unwrap_or_else(|| panic!("no answer to {step:?}"))
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Stepper {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until something is so.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
