//! A directory with a file of records, and ways to run `elbow sort` on it.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tempfile::TempDir;

pub(crate) const ELBOW: &str = env!("CARGO_BIN_EXE_elbow");
/// As in the paper's s24.
pub(crate) const RECORD_BYTES: usize = 24;
/// Records of 24 bytes by a number in the first four; the least memory, so that little data takes many runs.
pub(crate) const ORDER: [&str; 6] = ["--record", "24", "--key", "0:4:u32le", "-S", "8M"];
/// After this, what is waited for is taken for lost.
const PATIENCE: Duration = Duration::from_secs(120);
/// Sorts that were over too soon for what was to be done to them are repeated so many times at most.
pub(crate) const TRIES: usize = 20;

/// Records with a number each, so that a lost, doubled or misplaced one shows, and keys of which some are equal.
pub(crate) fn records(count: usize, seed: u64) -> Vec<u8> {
    let keys = (count as u64 / 3).max(1);
    let mut bytes = Vec::with_capacity(count * RECORD_BYTES);
    for number in 0..count as u64 {
        let random = mix(seed ^ mix(number));
        bytes.extend_from_slice(&(random % keys).to_le_bytes()[..4]);
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&(random >> 32).to_le_bytes()[..4]);
        bytes.extend_from_slice(&mix(random).to_le_bytes());
    }
    bytes
}

/// Spreads a number over all 64 bits: SplitMix64, quick also where nothing is optimised.
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// As many records as are about so many megabytes.
pub(crate) fn megabytes(count: usize, seed: u64) -> Vec<u8> {
    records((count << 20) / RECORD_BYTES, seed)
}

fn key(record: &[u8]) -> u32 {
    u32::from_le_bytes(record[..4].try_into().expect("four bytes"))
}

/// The same records in order, equal keys as they were.
pub(crate) fn sorted(records: &[u8]) -> Vec<u8> {
    sorted_records_of(RECORD_BYTES, records)
}

/// The same, several of ours taken for one.
pub(crate) fn sorted_records_of(bytes: usize, records: &[u8]) -> Vec<u8> {
    let mut all: Vec<&[u8]> = records.chunks(bytes).collect();
    all.sort_by_key(|record| key(record));
    all.concat()
}

/// What does not depend on the order: how many records there are, and a sum over what they hold.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Content {
    records: u64,
    sum: u64,
}

impl Content {
    pub(crate) fn of(records: &[u8]) -> Self {
        let mut content = Self { records: 0, sum: 0 };
        content.add(records);
        content
    }

    pub(crate) fn add(&mut self, records: &[u8]) {
        assert!(records.len().is_multiple_of(RECORD_BYTES));
        for record in records.chunks(RECORD_BYTES) {
            let word = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().expect("eight bytes"));
            let sum = mix(mix(mix(word(0)) ^ word(8)) ^ word(16));
            self.sum = self.sum.wrapping_add(sum);
            self.records += 1;
        }
    }

    /// That of a file of any size, which has to be in order.
    pub(crate) fn of_sorted_file(path: &Path) -> Self {
        let file = fs::File::open(path).expect("the file");
        let size = file.metadata().expect("its size").len();
        let (mut content, mut before) = (Self { records: 0, sum: 0 }, 0);
        let mut piece = vec![0; RECORD_BYTES << 15];
        for at in (0..size).step_by(piece.len()) {
            let piece = &mut piece[..(size - at).min((RECORD_BYTES << 15) as u64) as usize];
            file.read_exact_at(piece, at).expect("its content");
            for record in piece.chunks(RECORD_BYTES) {
                assert!(before <= key(record), "{}: not in order", path.display());
                before = key(record);
            }
            content.add(piece);
        }
        content
    }
}

pub(crate) fn assert_in_order(bytes: usize, records: &[u8]) {
    let keys = records.chunks(bytes).map(key);
    assert!(keys.is_sorted(), "not in order");
}

/// Where a test works: a directory of its own, or one on a disk that somebody else unmounts.
pub(crate) struct Testbed {
    pub(crate) dir: PathBuf,
    _own: Option<TempDir>,
}

impl Testbed {
    pub(crate) fn new() -> Self {
        let own = tempfile::Builder::new()
            .prefix("elbow-records-")
            .tempdir()
            .expect("a directory");
        Self {
            dir: own.path().canonicalize().expect("its path"),
            _own: Some(own),
        }
    }

    pub(crate) fn on(dir: &Path) -> Self {
        let dir = dir.canonicalize().expect("its path");
        Self { dir, _own: None }
    }

    /// One with a file `data`.
    pub(crate) fn with(records: &[u8]) -> Self {
        let testbed = Self::new();
        testbed.write("data", records);
        testbed
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn write(&self, name: &str, content: &[u8]) {
        fs::write(self.path(name), content).unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Inode and size.
    pub(crate) fn identity(&self, name: &str) -> (u64, u64) {
        let found = self.path(name).metadata().expect("the file");
        (found.ino(), found.len())
    }

    /// Names in the directory, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.dir).expect("the directory");
        let mut names: Vec<_> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .filter(|name| name != "lost+found")
            .collect();
        names.sort();
        names
    }

    /// `elbow sort` in the directory, with nothing on standard input.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        self.command_of(Path::new(ELBOW), words)
    }

    /// The same with the binary at another place.
    pub(crate) fn command_of(&self, binary: &Path, words: &[&str]) -> Command {
        let mut command = Command::new(binary);
        command.arg("sort").args(words).current_dir(&self.dir);
        command.env("LC_ALL", "C").env("TMPDIR", &self.dir);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn sort(&self, words: &[&str]) -> Said {
        Said::of(&self.command(words).output().expect("an end"))
    }

    /// Sorts `data` in place in the usual order.
    pub(crate) fn sort_in_place(&self, more: &[&str]) -> Said {
        self.sort(&[&ORDER[..], &["--in-place", "data"], more].concat())
    }

    pub(crate) fn start(&self, words: &[&str]) -> Child {
        self.command(words).spawn().expect("a start")
    }

    fn start_in_place(&self, options: &[&str]) -> Child {
        self.start(&[&ORDER[..], &["--in-place"], options, &["data"]].concat())
    }

    pub(crate) fn resume(&self) -> Said {
        self.sort(&["--resume", "-S", "8M", "data"])
    }

    /// Is there a sort of `data` that was begun and did not end?
    pub(crate) fn is_begun(&self) -> bool {
        self.path("data.elbow-sort/manifest").exists()
    }

    /// Starts a sort in place of these records, in the file `data`, and stops it (SIGSTOP) where a part of the input is freed. On a busy machine a sort may
    /// be over before we look, or before we can stop it: then another one is started.
    pub(crate) fn start_and_hold(&self, records: &[u8]) -> Held {
        self.start_and_hold_with(&[], records)
    }

    /// The same, with other options besides.
    pub(crate) fn start_and_hold_with(&self, options: &[&str], records: &[u8]) -> Held {
        for _ in 0..TRIES {
            self.write("data", records);
            let child = self.start_in_place(options);
            let file = fs::File::open(self.path("data")).expect("the file");
            wait_for("the first hole", || !begins_with_data(&file) || has_ended(&child));
            let held = Held::stop(child);
            if self.is_begun() && !begins_with_data(&file) {
                return held;
            }
            held.go_on().assert_code(0);
        }
        panic!("{TRIES} sorts were too quick to be stopped");
    }
}

/// Whether a child has ended. It keeps its number, as nobody has waited for it.
fn has_ended(child: &Child) -> bool {
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(Pid::from_child(child)), ended)
        .expect("a child")
        .is_some()
}

/// A process that is stopped until it goes on; killed when dropped.
pub(crate) struct Held(Option<Child>);

impl Held {
    /// Returns when all its threads have stopped, or it has ended.
    fn stop(child: Child) -> Self {
        let held = Self(Some(child));
        held.send(Signal::STOP);
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(held.process()), stopped).expect("a child");
        held
    }

    fn process(&self) -> Pid {
        Pid::from_child(self.0.as_ref().expect("it is held"))
    }

    /// Sends it a signal, which it gets when it goes on.
    pub(crate) fn send(&self, signal: Signal) {
        kill_process(self.process(), signal).expect("a signal");
    }

    /// Lets it go on to its end.
    pub(crate) fn go_on(mut self) -> Said {
        self.send(Signal::CONT);
        Said::of_child(self.0.take().expect("it is held"))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub(crate) fn begins_with_data(file: &fs::File) -> bool {
    rustix::fs::seek(file, rustix::fs::SeekFrom::Data(0)) == Ok(0)
}

/// What a command said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl Said {
    pub(crate) fn of(output: &Output) -> Self {
        use std::os::unix::process::ExitStatusExt;
        let signal = output.status.signal().map(|signal| 128 + signal);
        Self {
            code: output.status.code().or(signal).expect("an end has a reason"),
            out: output.stdout.clone(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    pub(crate) fn of_child(child: Child) -> Self {
        Self::of(&child.wait_with_output().expect("an end"))
    }

    #[track_caller]
    pub(crate) fn assert_code(&self, code: i32) -> &Self {
        assert_eq!(self.code, code, "{}", self.err);
        self
    }

    /// Exactly this exit code and these lines, each after `elbow: `, and nothing else.
    #[track_caller]
    pub(crate) fn assert_refused(&self, lines: &[&str]) {
        let expected: String = lines.iter().map(|line| format!("elbow: {line}\n")).collect();
        assert_eq!((self.code, self.err.as_str()), (2, expected.as_str()));
        assert!(self.out.is_empty());
    }

    /// The one JSON object on standard error.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        let object: serde_json::Value =
            serde_json::from_str(&self.err).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        assert!(object.is_object() && self.err.lines().count() == 1, "{self:?}");
        object
    }
}

pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
