//! A directory to sort in, the program to sort with, and lines to sort.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

pub(crate) const ELBOW: &str = env!("CARGO_BIN_EXE_elbow");

/// A directory to sort in.
pub(crate) struct Stage(pub(crate) TempDir);

impl Stage {
    pub(crate) fn new() -> Self {
        Self(
            tempfile::Builder::new()
                .prefix("elbow-sort-")
                .tempdir()
                .expect("a directory"),
        )
    }

    pub(crate) fn with(files: &[(&str, &[u8])]) -> Self {
        let stage = Self::new();
        for (name, text) in files {
            std::fs::write(stage.path(name), text).expect("room");
        }
        stage
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).expect(name)
    }

    pub(crate) fn start(&self, program: &str, words: &[&str]) -> Child {
        let mut command = Command::new(program);
        command
            .args(words)
            .current_dir(self.0.path())
            .env("LC_ALL", "C")
            .env("TMPDIR", self.0.path());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().expect(program)
    }

    pub(crate) fn run(&self, program: &str, words: &[&str], input: &[u8]) -> Output {
        let mut child = self.start(program, words);
        let mut stdin = child.stdin.take().expect("a pipe");
        std::thread::scope(|scope| {
            // A program that ends without reading is no failure of the test.
            scope.spawn(move || stdin.write_all(input));
            child.wait_with_output().expect("an end")
        })
    }

    pub(crate) fn sort(&self, words: &[&str], input: &[u8]) -> Output {
        self.run(ELBOW, &[&["sort"], words].concat(), input)
    }
}

/// What a successful sort wrote.
pub(crate) fn text(output: &Output) -> &[u8] {
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    &output.stdout
}

pub(crate) fn message(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Lines that look random and are the same in each run.
pub(crate) fn lines(count: u64) -> Vec<u8> {
    let mut text = Vec::new();
    let mut state = 1_u64;
    for number in 0..count {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        writeln!(
            text,
            "{:016x} {:032x} line {number:08} and some more text to make it longer",
            state ^ state >> 29,
            state
        )
        .expect("memory");
    }
    text
}

/// What the lines of a text are in order.
pub(crate) fn sorted(text: &[u8]) -> Vec<u8> {
    let mut lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    lines.sort_unstable();
    lines.concat()
}
