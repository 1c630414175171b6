//! Programs that tests write themselves, and run.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a program, which may be run at once, with the mode 0755: a script begins with `#!`. What was there is overwritten.
///
/// A child writes it. What another thread starts meanwhile has a copy of each descriptor of ours until it is a program of its own, and execve(2) of
/// a file that anybody can write to fails with ETXTBSY.
///
/// ```
/// let dir = tempfile::tempdir()?;
/// let program = dir.path().join("greet");
/// elbow_testkit::program::write_program(&program, "#!/bin/sh\necho hello\n")?;
/// assert_eq!(std::process::Command::new(&program).output()?.stdout, b"hello\n");
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// There is no `sh`, or it cannot write there.
pub fn write_program(path: &Path, text: &str) -> io::Result<()> {
    let mut writer = Command::new("sh")
        .args(["-c", r#"cat > "$0" && chmod 755 -- "$0""#])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()?;
    let mut stdin = writer.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let sent = stdin.write_all(text.as_bytes());
    drop(stdin);
    let written = writer.wait()?;
    if !written.success() {
        return Err(io::Error::other(format!("writing {}: sh: {written}", path.display())));
    }
    sent
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_program_runs_at_once_while_others_are_started() {
        let dir = tempfile::tempdir().expect("a directory");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    Command::new("true").status().expect("a program");
                }
            });
            let ran: Vec<_> = (0..20)
                .map(|number| {
                    let program = dir.path().join(number.to_string());
                    write_program(&program, &format!("#!/bin/sh\nexit {number}\n"))?;
                    Command::new(&program).status()
                })
                .collect();
            is_over.store(true, Ordering::Relaxed);
            for (status, number) in ran.into_iter().zip(0..) {
                assert_eq!(status.expect("it runs").code(), Some(number));
            }
        });
    }

    #[test]
    fn where_nothing_can_be_written_it_says_so() {
        let dir = tempfile::tempdir().expect("a directory");
        let error = write_program(&dir.path().join("none/program"), "").expect_err("no such directory");
        assert!(error.to_string().contains("none/program"), "{error}");
    }
}
