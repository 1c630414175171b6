//! Runs that a program packs: `PROG` reads lines and writes less, `PROG -d` gives them back.
//!
//! ```text
//!   merge -> PROG -> copying thread -> temporary file        temporary file -> feeding thread -> PROG -d -> merge
//! ```
//!
//! A program that fails ends the sort: what it was given exists nowhere else.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;

use super::error::{Result, TextError};
use super::run::{Run, RunWriter};

/// Packs a run.
pub(super) struct Packer {
    program: OsString,
    child: Child,
    /// `None` when all has been given to it.
    input: Option<ChildStdin>,
    copier: JoinHandle<Result<Run>>,
}

impl Packer {
    pub(super) fn start(program: &OsStr, run: RunWriter) -> Result<Self> {
        let mut child = spawn(Command::new(program), program)?;
        let input = child.stdin.take();
        // Its output is read by a thread: it would stop reading ours when nobody takes what it writes.
        let output = child.stdout.take().expect("it was asked for");
        let copier = std::thread::spawn(move || store(output, run));
        Ok(Self {
            program: program.to_owned(),
            child,
            input,
            copier,
        })
    }

    pub(super) fn finish(mut self) -> Result<Run> {
        // It ends when its input does.
        self.input = None;
        let run = self.copier.join().expect("copying does not panic")?;
        let status = self.child.wait();
        ended_well(&self.program, "", status)?;
        Ok(run)
    }
}

impl Write for Packer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.input.as_mut().map_or(Ok(0), |input| input.write(bytes));
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                let status = self.child.wait();
                ended_well(&self.program, "", status).map_err(io::Error::other)?;
                Err(error) // it has closed its input, though it was content
            }
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn store(mut packed: ChildStdout, mut run: RunWriter) -> Result<Run> {
    let failed = run.failed();
    io::copy(&mut packed, &mut run).map_err(failed)?;
    Ok(run.finish())
}

/// Unpacks a run.
pub(super) struct Unpacker {
    program: OsString,
    child: Child,
    output: ChildStdout,
    /// `None` when it has ended.
    feeder: Option<JoinHandle<io::Result<()>>>,
}

impl Unpacker {
    pub(super) fn start(program: &OsStr, mut run: impl Read + Send + 'static) -> Result<Self> {
        let mut command = Command::new(program);
        command.arg("-d");
        let mut child = spawn(command, program)?;
        let mut input = child.stdin.take().expect("it was asked for");
        let output = child.stdout.take().expect("it was asked for");
        let feeder = std::thread::spawn(move || match io::copy(&mut run, &mut input) {
            // What it did not want to hear it does not need, or its exit status tells.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other.map(|_| ()),
        });
        Ok(Self {
            program: program.to_owned(),
            child,
            output,
            feeder: Some(feeder),
        })
    }

    /// At the end of its output: was that all?
    fn end(&mut self) -> io::Result<()> {
        if let Some(feeder) = self.feeder.take() {
            feeder.join().expect("copying does not panic")?;
            let status = self.child.wait();
            ended_well(&self.program, " -d", status).map_err(io::Error::other)?;
        }
        Ok(())
    }
}

impl Read for Unpacker {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.output.read(buffer)?;
        // Only now its exit status says whether this was the end of the run, or its own.
        if read == 0 && !buffer.is_empty() {
            self.end()?;
        }
        Ok(read)
    }
}

impl Drop for Unpacker {
    fn drop(&mut self) {
        if self.feeder.is_some() {
            // Nobody wants the rest; an error of our own is on its way out.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn spawn(mut command: Command, program: &OsStr) -> Result<Child> {
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    spawned.map_err(|reason| TextError::NoCompressor {
        program: program.to_string_lossy().into_owned(),
        reason,
    })
}

fn ended_well(program: &OsStr, option: &str, status: io::Result<ExitStatus>) -> Result<()> {
    let what = match status {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    Err(TextError::Compressor {
        program: format!("{}{option}", program.to_string_lossy()),
        what,
    })
}
