//! What is told of a process that locks past the service: found out and said by a thread, for which no lock call waits.
//!
//! ```text
//!   lookout, while the call waits    procfs: the process, where its program lies, whether our library is in it
//!      '--- queue ---> thread        the first bytes of the program; a line on standard error
//! ```
//!
//! The queue is as long as there are lines to be said, which the lookout counts.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::super::image;
use crate::output::print_message;

/// Of the memory map of a process, in which the library stands near the end, among what else is linked.
const MAP_BYTES_MAX: u64 = 4 << 20;
/// How long elbow waits at its end for what is still to be said: a program's storage may never answer.
const LAST_WORDS_FOR: Duration = Duration::from_secs(5);

/// What a lock call is about.
pub(super) enum CallSubject {
    /// No file below a prefix.
    NoConcern,
    /// This one.
    Uncovered(PathBuf),
    /// We may not see which.
    Hidden(io::Error),
}

impl CallSubject {
    pub(super) fn is_of_concern(&self) -> bool {
        !matches!(self, CallSubject::NoConcern)
    }
}

/// Who has called, as far as procfs tells.
pub(super) struct Caller {
    pub(super) process: u32,
    thread: u32,
    program: PathBuf,
    has_library: bool,
}

/// The process of a thread.
#[allow(clippy::disallowed_methods, reason = "procfs")]
pub(super) fn process_of(thread: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    field(&status, "Tgid:")
        .and_then(|number| number.parse().ok())
        .unwrap_or(thread)
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

#[allow(clippy::disallowed_methods, reason = "procfs, and a program that runs")]
impl Caller {
    pub(super) fn of(thread: u32, process: u32, library: &str) -> Self {
        let place = |name: &str| PathBuf::from(format!("/proc/{thread}/{name}"));
        let name = || {
            let status = std::fs::read_to_string(place("status")).unwrap_or_default();
            field(&status, "Name:").unwrap_or("?").into()
        };
        Self {
            process,
            thread,
            program: std::fs::read_link(place("exe")).unwrap_or_else(|_| name()),
            has_library: maps(&place("maps"), library),
        }
    }

    /// A sentence: why it is not covered.
    fn why(&self) -> String {
        match self.image() {
            Ok(Some(why)) => format!("It {why}"),
            _ if self.has_library => "It has our library, and calls the kernel without libc".into(),
            Ok(None) => "It was started without our library: LD_PRELOAD was lost on the way".into(),
            Err(error) => format!(
                "It was started without our library: LD_PRELOAD was lost on the way, or it is linked statically, which cannot be seen ({error})"
            ),
        }
    }

    /// What [`image`] says of its program.
    fn image(&self) -> io::Result<Option<&'static str>> {
        let running = PathBuf::from(format!("/proc/{}/exe", self.thread));
        let image = image::why_not_covered(&running);
        // It may end at any moment, or be another program: whose the bytes are is known when they have been read.
        match std::fs::read_link(&running) {
            Ok(program) if image.is_ok() && program == self.program => image,
            _ => image::why_not_covered(&self.program),
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "procfs")]
fn maps(map: &Path, library: &str) -> bool {
    let mut content = Vec::new();
    let read = std::fs::File::open(map).and_then(|map| map.take(MAP_BYTES_MAX).read_to_end(&mut content));
    let is_library = |line: &[u8]| Path::new(OsStr::from_bytes(line)).file_name() == Some(OsStr::new(library));
    read.is_ok() && content.split(|byte| *byte == b'\n').any(is_library)
}

enum ReportMessage {
    Of {
        subject: CallSubject,
        caller: Caller,
        refuses: bool,
    },
    More,
    /// All before it has been said.
    Said(Sender<()>),
}

/// The thread, as the lookout sees it. Nothing is said without one.
#[derive(Default)]
pub(super) struct Reporter(Option<Sender<ReportMessage>>);

impl Reporter {
    pub(super) fn start() -> Self {
        let (sender, words) = channel();
        let thread = std::thread::Builder::new().spawn(move || run(&words));
        Self(thread.is_ok().then_some(sender))
    }

    /// One line, of one process.
    pub(super) fn tell(&self, subject: CallSubject, caller: Caller, refuses: bool) {
        self.send(ReportMessage::Of {
            subject,
            caller,
            refuses,
        });
    }

    /// That there are more than have a line each.
    pub(super) fn tell_of_more(&self) {
        self.send(ReportMessage::More);
    }

    /// Waits until all is said, but not for ever.
    pub(super) fn finish(&self) {
        let (said, is_said) = channel();
        self.send(ReportMessage::Said(said));
        let _ = is_said.recv_timeout(LAST_WORDS_FOR);
    }

    fn send(&self, word: ReportMessage) {
        // Without the thread it is dropped, and whoever waits for it goes on.
        let _ = self.0.as_ref().map(|sender| sender.send(word));
    }
}

fn run(words: &Receiver<ReportMessage>) {
    for word in words {
        match word {
            ReportMessage::Of {
                subject: CallSubject::Uncovered(file),
                caller,
                refuses,
            } => print_message(uncovered(&caller, &file, refuses)),
            ReportMessage::Of {
                subject: CallSubject::Hidden(error),
                caller,
                ..
            } => print_message(hidden(&caller, &error)),
            ReportMessage::Of { .. } => {}
            ReportMessage::More => print_message("more processes like these are only counted"),
            ReportMessage::Said(said) => drop(said.send(())),
        }
    }
}

fn uncovered(caller: &Caller, file: &Path, refuses: bool) -> String {
    let then = if refuses {
        "refused (ENOLCK)"
    } else {
        "a lock of the kernel alone"
    };
    format!(
        "process {} ({}) locks {} past the lock service: {then}. {}",
        caller.process,
        caller.program.display(),
        file.display(),
        caller.why()
    )
}

fn hidden(Caller { process, program, .. }: &Caller, error: &io::Error) -> String {
    format!(
        "process {process} ({}) takes locks of the kernel, and we may not see on which files ({error}): if they are below --prefix, they exclude nobody \
         who locks at the service",
        program.display()
    )
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "files of the test's own")]
mod tests {
    use super::*;

    /// One that has ended: no process has the number 0.
    fn ended(program: &Path, has_library: bool) -> Caller {
        Caller {
            process: 0,
            thread: 0,
            program: program.into(),
            has_library,
        }
    }

    /// A static program that ended while it was looked at was said to have lost `LD_PRELOAD`.
    #[test]
    fn why_is_said_of_a_process_that_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("program");
        std::fs::write(&program, b"\x7fELF\x01").unwrap();
        assert_eq!(ended(&program, false).why(), "It is no 64-bit program");
        std::fs::remove_file(&program).unwrap();
        let why = ended(&program, false).why();
        assert!(why.contains("LD_PRELOAD was lost on the way, or"), "{why}");
        assert!(why.contains("No such file"), "{why}");
        assert!(ended(&program, true).why().contains("without libc"));
    }

    #[test]
    fn a_process_that_is_another_program_by_now_is_not_taken_for_it() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("program");
        std::fs::write(&program, b"\x7fELF\x01").unwrap();
        let caller = Caller {
            thread: std::process::id(),
            ..ended(&program, false)
        };
        assert_eq!(caller.why(), "It is no 64-bit program");
    }
}
