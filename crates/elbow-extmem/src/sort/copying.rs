//! A sort that leaves its input as it is: a stream of records in, a new file or a stream out.

use std::io::{Read, Write};
use std::path::PathBuf;

use elbow_file::{Errno, Handle, Storage};
use parking_lot::Mutex;

use super::engine::Engine;
use super::error::{Result, SortError, failed};
use super::files::{Files, Sink, Temporary};
use super::form::RecordSource;
use super::memory::Memory;
use super::meter::Meter;
use super::state::{Pass, SortState};
use super::{Options, RecordFormat, Summary};

/// Where sorted records go.
pub enum Output<'a> {
    /// A new, empty file, and its path for messages. Several threads write to it.
    File(Handle, PathBuf),
    /// Anything else, in order.
    Stream(&'a mut (dyn Write + Send)),
}

/// Sorts what a reader gives (`name` is what it is called in errors). Runs go to unnamed files in `temporary`, a
/// directory with its path; they are gone with the process, and freed as they are merged.
///
/// # Errors
/// See [`SortError`]; the output may be incomplete then.
pub fn sort(
    storage: &dyn Storage,
    (input, name): (&mut (dyn Read + Send), PathBuf),
    output: Output<'_>,
    temporary: (Handle, PathBuf),
    format: &RecordFormat,
    options: &Options,
    meter: &Meter,
) -> Result<Summary> {
    let memory = Memory::divide(options.memory_bytes, format, options.threads)?;
    let (file, stream) = match output {
        Output::File(handle, path) => (Some((handle, path)), None),
        Output::Stream(to) => (None, Some(Stream(Mutex::new(to)))),
    };
    let mut source = Reading {
        input,
        path: name,
        record: format.bytes(),
        got: 0,
    };
    let mut engine = Engine {
        storage,
        format,
        stable: options.stable,
        memory,
        run_bytes: memory.run_bytes,
        files: Files::new(storage, file, Temporary::Unnamed(temporary.0, temporary.1)),
        stream: stream.as_ref().map(|stream| stream as &dyn Sink),
        manifest: None,
        freed: 0,
        meter,
        unsynced: Mutex::default(),
    };
    let announced = meter.input_bytes();
    let passes = Pass::count(announced.div_ceil(memory.run_bytes as u64), memory.fan_in_max);
    meter.expect(announced, announced * (1 + passes), 0);
    engine.run(SortState::Forming { formed: 0 }, &mut source)?;
    let runs = source.got.div_ceil(memory.run_bytes as u64);
    Ok(Summary {
        records: source.got / format.bytes() as u64,
        bytes: source.got,
        runs,
        passes: Pass::count(runs, memory.fan_in_max),
    })
}

struct Reading<'a> {
    input: &'a mut (dyn Read + Send),
    path: PathBuf,
    record: usize,
    got: u64,
}

impl RecordSource for Reading<'_> {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.input.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(got) => filled += got,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                    return Err(failed("reading", &self.path)(errno));
                }
            }
        }
        self.got += filled as u64;
        if !filled.is_multiple_of(self.record) {
            return Err(SortError::Truncated {
                path: self.path.clone(),
                size: self.got,
                record: self.record as u64,
            });
        }
        Ok(filled)
    }
}

struct Stream<'a>(Mutex<&'a mut (dyn Write + Send)>);

impl Sink for Stream<'_> {
    fn write(&self, bytes: &[u8], _: u64) -> Result<()> {
        self.0.lock().write_all(bytes).map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            failed("writing", "the output".as_ref())(errno)
        })
    }
}
