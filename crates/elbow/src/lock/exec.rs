//! `elbow lock exec --prefix DIR -- COMMAND`: fcntl, lockf and flock of a command go to the lock service.
//!
//! The command is replaced by nothing: this process becomes it, with `libelbow_fcntl.so` to be loaded first. The dynamic
//! linker does not load it into programs that are linked statically, of another word size, or run with more rights than
//! their caller's; where that can be seen beforehand the command is not run.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use elbow_lock::{ADDRESS_VARIABLE, KEY_VARIABLE};

use super::args::{ExecArgs, Identity, OnLoss};
use super::preload;
use crate::exit;
use crate::say::say;

const LIBRARY: &str = "libelbow_fcntl.so";
/// Where the library is, for who keeps it elsewhere.
const LIBRARY_VARIABLE: &str = "ELBOW_FCNTL_LIB";
const PREFIXES_VARIABLE: &str = "ELBOW_FCNTL_PREFIXES";
const ON_LOSS_VARIABLE: &str = "ELBOW_FCNTL_ON_LOSS";
const IDENTITY_VARIABLE: &str = "ELBOW_FCNTL_IDENTITY";
/// Scripts whose interpreters are scripts, at most: Linux's own limit.
const SCRIPTS_MAX: usize = 4;

/// Becomes the command.
pub(super) fn run(args: &ExecArgs) -> Result<ExitCode> {
    let library = preload::library(LIBRARY, LIBRARY_VARIABLE)?;
    let prefixes = prefixes(&args.prefixes)?;
    let address = preload::absolute(super::address_of(&args.service)?)?;
    if let Some(program) = find(&args.command[0]) {
        check_program(&program, SCRIPTS_MAX)?;
    }
    // A service that is not there is better told of now than with the first lock.
    let name = format!("elbow lock exec, process {}", std::process::id());
    drop(super::connect(&args.service, name)?);
    let mut command = Command::new(&args.command[0]);
    command
        .args(&args.command[1..])
        .env("LD_PRELOAD", preload::list(&library))
        .env(ADDRESS_VARIABLE, address.to_string())
        .env(PREFIXES_VARIABLE, prefixes)
        .env(
            ON_LOSS_VARIABLE,
            match args.on_loss {
                OnLoss::End => "end",
                OnLoss::Warn => "warn",
            },
        )
        .env(
            IDENTITY_VARIABLE,
            match args.identity {
                Identity::Path => "path",
                Identity::Inode => "inode",
            },
        );
    if let Some(key) = &args.service.key_file {
        command.env(KEY_VARIABLE, std::path::absolute(key)?);
    }
    let error = command.exec();
    say(format_args!("{}: {error}", args.command[0].display()));
    Ok(ExitCode::from(exit::of_exec_error(&error)))
}

/// Directories as the redirect compares them: absolute, without links.
#[allow(clippy::disallowed_methods, reason = "looks paths up and touches nothing")]
fn prefixes(given: &[PathBuf]) -> Result<OsString> {
    let mut list = OsString::new();
    for prefix in given {
        let shown = prefix.display();
        let path = std::fs::canonicalize(prefix).with_context(|| format!("--prefix {shown}"))?;
        ensure!(
            !path.as_os_str().as_bytes().contains(&b':'),
            "--prefix {shown}: its path has a colon, which stands between prefixes"
        );
        if !list.is_empty() {
            list.push(":");
        }
        list.push(path);
    }
    Ok(list)
}

/// The file that will be run; none if it is for exec to say so.
#[allow(clippy::disallowed_methods, reason = "looks a program up, as exec does")]
fn find(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program));
    }
    let path = std::env::var_os("PATH")?;
    let is_program = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(is_program)
}

/// Refuses what the dynamic linker would run without the redirect.
#[allow(
    clippy::disallowed_methods,
    reason = "looks at a program, not at storage of the user's"
)]
fn check_program(program: &Path, scripts_left: usize) -> Result<()> {
    let shown = program.display();
    let (Ok(found), Ok(content)) = (std::fs::metadata(program), head(program)) else {
        return Ok(()); // exec says what is wrong with it.
    };
    let user = rustix::process::getuid().as_raw();
    let group = rustix::process::getgid().as_raw();
    let takes_user = found.mode() & 0o4000 != 0 && found.uid() != user;
    let takes_group = found.mode() & 0o2010 == 0o2010 && found.gid() != group;
    if takes_user || takes_group {
        bail!(
            "{shown} runs with other rights than yours (set-user-ID or set-group-ID): its locks cannot be redirected"
        );
    }
    match Image::of(&content) {
        Image::Script(interpreter) if scripts_left > 0 => {
            find(interpreter.as_os_str()).map_or(Ok(()), |program| check_program(&program, scripts_left - 1))
        }
        Image::Static => bail!("{shown} is linked statically: its locks cannot be redirected"),
        Image::OtherWordSize => bail!("{shown} is no 64-bit program: its locks cannot be redirected"),
        _ => Ok(()),
    }
}

/// Its first bytes: the program headers of every linker that we know are there.
#[allow(
    clippy::disallowed_methods,
    reason = "looks at a program, not at storage of the user's"
)]
fn head(program: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let mut content = Vec::new();
    std::fs::File::open(program)?.take(16 << 10).read_to_end(&mut content)?;
    Ok(content)
}

/// What kind of program a file holds.
#[derive(Debug, PartialEq, Eq)]
enum Image {
    Dynamic,
    Static,
    OtherWordSize,
    /// The interpreter.
    Script(PathBuf),
    Unknown,
}

impl Image {
    /// Source: elf(5), execve(2).
    fn of(content: &[u8]) -> Self {
        const INTERPRETER: u32 = 3;
        if let Some(line) = content.strip_prefix(b"#!") {
            return Self::of_script(line.split(|&byte| byte == b'\n').next().unwrap_or_default());
        }
        match content.get(..5) {
            Some(b"\x7fELF\x02") => {}
            Some(b"\x7fELF\x01") => return Self::OtherWordSize,
            _ => return Self::Unknown,
        }
        let number = |at: usize, bytes: usize| -> Option<usize> {
            let bytes = content.get(at..at.checked_add(bytes)?)?;
            bytes
                .iter()
                .rev()
                .try_fold(0_usize, |sum, &byte| Some(sum.checked_mul(256)? + usize::from(byte)))
        };
        let (Some(first), Some(size), Some(count)) = (number(32, 8), number(54, 2), number(56, 2)) else {
            return Self::Unknown;
        };
        for index in 0..count {
            match first.checked_add(index * size).and_then(|at| number(at, 4)) {
                Some(kind) if kind == INTERPRETER as usize => return Self::Dynamic,
                Some(_) => {}
                None => return Self::Unknown,
            }
        }
        Self::Static
    }

    fn of_script(line: &[u8]) -> Self {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let Some(interpreter) = words.next() else {
            return Self::Unknown;
        };
        let is_env = interpreter.ends_with(b"/env");
        let program = words.find(|word| is_env && !word.starts_with(b"-") && !word.contains(&b'='));
        Self::Script(PathBuf::from(OsStr::from_bytes(program.unwrap_or(interpreter))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The start of a 64-bit program with these program headers.
    fn elf(kinds: &[u8]) -> Vec<u8> {
        let mut content = b"\x7fELF\x02\x01\x01".to_vec();
        content.resize(64, 0);
        (content[32], content[54], content[56]) = (64, 56, kinds.len() as u8);
        for &kind in kinds {
            content.push(kind);
            content.resize(content.len() + 55, 0);
        }
        content
    }

    #[test]
    fn programs_are_told_apart() {
        assert_eq!(Image::of(&elf(&[6, 3, 1])), Image::Dynamic);
        assert_eq!(Image::of(&elf(&[6, 1])), Image::Static);
        assert_eq!(Image::of(&elf(&[6, 1])[..100]), Image::Unknown);
        assert_eq!(Image::of(b"\x7fELF\x01\x01"), Image::OtherWordSize);
        assert_eq!(Image::of(b"hello"), Image::Unknown);
        assert_eq!(Image::of(b"#! /bin/sh -e\n"), Image::Script("/bin/sh".into()));
        assert_eq!(
            Image::of(b"#!/usr/bin/env -S A=1 python3 -u"),
            Image::Script("python3".into())
        );
    }

    #[test]
    fn the_headers_of_a_hostile_program_end_nowhere() {
        let mut content = elf(&[1]);
        content[32..40].fill(0xff);
        assert_eq!(Image::of(&content), Image::Unknown);
    }
}
