//! What `elbow sort` reads and writes: files, pipes, terminals, by their names on the command line.
//!
//! Inputs are looked at before anything is done, as sort(1) does, and opened when their turn comes. The output is opened
//! at once, so that a long sort does not fail at its end, and emptied when the inputs have been read.

#![allow(
    clippy::disallowed_methods,
    reason = "named on the command line for reading and writing as streams"
)]

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use elbow_extmem::text::{Input, Output, TextError};
use elbow_file::{Handle, RealStorage, Storage};
use rustix::fs::{Access, OFlags, access, fcntl_getfl};

use crate::standard_streams;

/// Standard input on a command line.
const STANDARD_INPUT: &str = "-";
/// In messages.
const STANDARD_OUTPUT: &str = "standard output";

/// The name in messages.
pub(super) fn shown(name: &OsStr) -> String {
    name.to_string_lossy().into_owned()
}

/// Fails if a file cannot be read.
pub(super) fn check_readable(names: &[OsString]) -> Result<()> {
    for name in names.iter().filter(|name| *name != STANDARD_INPUT) {
        if let Err(errno) = access(name.as_os_str(), Access::READ_OK) {
            let looks_like_key = name
                .as_bytes()
                .strip_prefix(b"+")
                .is_some_and(|rest| rest.first().is_some_and(u8::is_ascii_digit));
            let hint = if looks_like_key {
                "; a key is written as -k FIELD, the obsolete +FIELD is not understood"
            } else {
                ""
            };
            bail!("cannot read: {}: {}{hint}", shown(name), errno);
        }
    }
    Ok(())
}

/// An input; one that is the output is marked as such.
pub(super) fn input(name: &OsStr, output: Option<&File>) -> Input {
    let owned = name.to_owned();
    described(Input::new(shown(name), move || open(&owned)), name, output)
}

/// An input with what its name tells of it.
pub(super) fn described(input: Input, name: &OsStr, output: Option<&File>) -> Input {
    let is_output = output.is_some_and(|output| is_same(name, output));
    let bytes = std::fs::metadata(name).ok().filter(Metadata::is_file);
    let input = input.of_bytes(bytes.map(|found| found.len()));
    if is_output { input.which_is_the_output() } else { input }
}

/// Opens an input.
pub(super) fn open(name: &OsStr) -> io::Result<File> {
    if name == STANDARD_INPUT {
        return standard_streams::stdin();
    }
    File::open(name)
}

fn is_same(name: &OsStr, output: &File) -> bool {
    let identity = |found: io::Result<Metadata>| found.ok().map(|found| (found.dev(), found.ino()));
    let input = match name == STANDARD_INPUT {
        true => open(name).and_then(|file| file.metadata()),
        false => std::fs::metadata(name),
    };
    let input = identity(input);
    input.is_some() && input == identity(output.metadata())
}

/// The file of `-o`, made if it is not there, as it is.
pub(super) fn open_output(path: &Path) -> Result<File> {
    let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    match opened {
        Ok(file) => Ok(file),
        Err(error) => bail!("open failed: {}: {}", path.display(), error),
    }
}

/// Where the result goes: an open file, emptied then, or standard output.
pub(super) fn output(file: Option<(&Path, File)>) -> Result<Output<File>> {
    let Some((path, file)) = file else {
        return standard_output();
    };
    let name = path.display().to_string();
    if !file.metadata().is_ok_and(|found| found.is_file()) {
        return Ok(Output::new(name, || Ok(file)));
    }
    Ok(Output::file(name, || {
        file.set_len(0)?;
        with_handle(file)
    }))
}

fn with_handle(file: File) -> io::Result<(File, Handle)> {
    let handle = Handle::new(file.as_fd().try_clone_to_owned()?);
    Ok((file, handle))
}

fn standard_output() -> Result<Output<File>> {
    let file = standard_streams::stdout().context(STANDARD_OUTPUT)?;
    // Others may write to it while the inputs are read.
    Ok(Output::either(STANDARD_OUTPUT, || match is_new_file(&file) {
        true => with_handle(file).map(|(file, handle)| (file, Some(handle))),
        false => Ok((file, None)),
    }))
}

/// A regular file with nothing in it, where the next write goes to its beginning.
fn is_new_file(mut file: &File) -> bool {
    let is_empty = file.metadata().is_ok_and(|found| found.is_file() && found.len() == 0);
    let appends = fcntl_getfl(file).is_ok_and(|flags| flags.contains(OFlags::APPEND));
    is_empty && !appends && file.stream_position().is_ok_and(|position| position == 0)
}

/// Whoever writes to the same open file next writes behind the result. Closes it: a network file system may say only then that it could not store it.
pub(super) fn close_at_end(mut file: File, output: Option<&PathBuf>) -> Result<()> {
    let _ = file.seek(io::SeekFrom::End(0)); // a pipe has no other place
    let name = || output.map_or_else(|| STANDARD_OUTPUT.to_owned(), |path| path.display().to_string());
    RealStorage
        .close(&Handle::new(file.into()))
        .with_context(|| format!("close failed: {}", name()))
}

/// The names in a file, each with a NUL behind it.
pub(super) fn names_from(path: &Path) -> Result<Vec<OsString>> {
    let shown = path.display();
    let mut text = Vec::new();
    let read = open(path.as_os_str()).and_then(|mut file| file.read_to_end(&mut text));
    if let Err(error) = read {
        bail!("open failed: {shown}: {}", error);
    }
    let text = text.strip_suffix(b"\0").unwrap_or(&text);
    if text.is_empty() {
        bail!("no input from '{shown}'");
    }
    let names: Vec<OsString> = text
        .split(|byte| *byte == 0)
        .map(|name| OsString::from_vec(name.to_vec()))
        .collect();
    for (number, name) in (1..).zip(&names) {
        if name.is_empty() {
            bail!("{shown}:{number}: invalid zero-length file name");
        }
        if path == STANDARD_INPUT && name == STANDARD_INPUT {
            bail!("when reading file names from stdin, no file name of '-' allowed");
        }
    }
    Ok(names)
}

/// An error that ends a program in silence, as SIGPIPE would: `elbow sort big | head`.
pub(super) fn nobody_reads(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<TextError>();
    matches!(error, Some(TextError::Output { reason, .. }) if reason.kind() == io::ErrorKind::BrokenPipe)
}
