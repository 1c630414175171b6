//! What a program is, as far as the dynamic linker cares: whether it will load what is preloaded, and make its system calls through libc.
//!
//! Seen from its first bytes, so before it runs. What a program starts later is seen only when it locks ([`super::uncovered`]).
//!
//! Source: elf(5), execve(2), ld.so(8); the note "Go" of programs that the Go linker has made.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// Scripts whose interpreters are scripts, at most: Linux's own limit.
const SCRIPTS_MAX: usize = 4;

/// Refuses a command that would run without the redirect; one that is not there is for exec to refuse.
pub(super) fn check_command(program: &OsStr) -> Result<()> {
    find(program).map_or(Ok(()), |program| check_program(&program, SCRIPTS_MAX))
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
    let image = Image::of(&content);
    if let (Image::Script(interpreter), true) = (&image, scripts_left > 0) {
        return find(interpreter.as_os_str()).map_or(Ok(()), |program| check_program(&program, scripts_left - 1));
    }
    match image.why_not_covered() {
        Some(why) => bail!("{shown} {why}: its locks cannot be redirected"),
        None => Ok(()),
    }
}

/// Why a program that runs takes its locks past the library, if its file tells.
///
/// # Errors
/// The file cannot be read.
pub(super) fn why_not_covered(program: &Path) -> std::io::Result<Option<&'static str>> {
    Ok(Image::of(&head(program)?).why_not_covered())
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
    /// Linked dynamically, and makes its system calls itself all the same.
    Go,
    /// Its dynamic linker is not that of the library.
    Musl,
    OtherWordSize,
    /// The interpreter.
    Script(PathBuf),
    Unknown,
}

impl Image {
    fn of(content: &[u8]) -> Self {
        if let Some(line) = content.strip_prefix(b"#!") {
            return Self::of_script(line.split(|&byte| byte == b'\n').next().unwrap_or_default());
        }
        match content.get(..5) {
            Some(b"\x7fELF\x02") => Self::of_headers(content).unwrap_or(Self::Unknown),
            Some(b"\x7fELF\x01") => Self::OtherWordSize,
            _ => Self::Unknown,
        }
    }

    /// None where the headers lie beyond the first bytes, or are damaged.
    fn of_headers(content: &[u8]) -> Option<Self> {
        const INTERPRETER: usize = 3;
        const NOTE: usize = 4;
        let (first, size, count) = (
            number(content, 32, 8)?,
            number(content, 54, 2)?,
            number(content, 56, 2)?,
        );
        let (mut image, mut is_go) = (Self::Static, false);
        for index in 0..count {
            let at = first.checked_add(index * size)?;
            let kind = number(content, at, 4)?;
            let part = || {
                let (start, length) = (number(content, at + 8, 8)?, number(content, at + 32, 8)?);
                content.get(start..start.checked_add(length)?)
            };
            match kind {
                INTERPRETER if part().is_some_and(|linker| contains(linker, b"/ld-musl-")) => image = Self::Musl,
                INTERPRETER => image = Self::Dynamic,
                NOTE => is_go |= part().is_some_and(has_go_note),
                _ => {}
            }
        }
        Some(match image {
            Self::Dynamic if is_go => Self::Go,
            image => image,
        })
    }

    fn why_not_covered(&self) -> Option<&'static str> {
        Some(match self {
            Self::Static => "is linked statically",
            Self::Go => "is written in Go, whose system calls do not go through libc",
            Self::Musl => "is linked with musl, and the library with glibc",
            Self::OtherWordSize => "is no 64-bit program",
            Self::Dynamic | Self::Script(_) | Self::Unknown => return None,
        })
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

fn number(content: &[u8], at: usize, bytes: usize) -> Option<usize> {
    let bytes = content.get(at..at.checked_add(bytes)?)?;
    bytes
        .iter()
        .rev()
        .try_fold(0_usize, |sum, &byte| Some(sum.checked_mul(256)? + usize::from(byte)))
}

fn contains(content: &[u8], wanted: &[u8]) -> bool {
    content.windows(wanted.len()).any(|window| window == wanted)
}

/// The note that Go's linker leaves its build number in: a name of 4 bytes, "Go" with zeros, and type 4.
fn has_go_note(notes: &[u8]) -> bool {
    contains(notes, b"\x04\0\0\0Go\0\0")
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
        let with = |kinds: &[u8], part: u8, bytes: &[u8]| {
            let mut content = elf(kinds);
            let (header, end) = (64 + 56 * usize::from(part), content.len() as u16);
            content[header + 8..header + 10].copy_from_slice(&end.to_le_bytes());
            content[header + 32] = bytes.len() as u8;
            content.extend(bytes);
            Image::of(&content)
        };
        let go = b"\x04\0\0\0\x03\0\0\0\x04\0\0\0Go\0\0id\0\0";
        assert_eq!(with(&[3, 4], 1, go), Image::Go);
        assert_eq!(with(&[1, 4], 1, go), Image::Static);
        assert_eq!(with(&[3, 4], 1, b"\x04\0\0\0\x03\0\0\0\x01\0\0\0GNU\0"), Image::Dynamic);
        assert_eq!(with(&[6, 3], 1, b"/lib/ld-musl-x86_64.so.1\0"), Image::Musl);
        assert_eq!(with(&[6, 3], 1, b"/lib64/ld-linux-x86-64.so.2\0"), Image::Dynamic);
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
