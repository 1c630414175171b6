//! Zeros at the end of a file that is open for appending.
//!
//! ```text
//!   fd of the caller    offset shared with other threads, and with who has inherited it      moved when all is done
//!   our own open file   offset ours alone: where it is after a write, our zeros end          written to, and punched
//! ```
//!
//! write(2) with `O_APPEND` finds the end and writes there in one step, so that nobody's append is lost; there is no such call that
//! makes a hole. So zeros are written for real, one piece after the other, and what was written is punched before
//! it has reached the disk.
//!
//! What always holds:
//! - a range is punched only if it is certain that these zeros are ours. The offset of an open file that somebody else may append through
//!   says nothing about that, so the file is opened once more; where that cannot be, the zeros stay blocks;
//! - the process keeps its record locks (fcntl(2)), which closing any open file of the inode would give up. They belong to a table of
//!   descriptors, so ours is opened and closed in another one, of a thread that ends.
//!
//! Source: open(2), `O_APPEND`; fcntl_locking(2); close_range(2), `CLOSE_RANGE_UNSHARE`.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::retry_on_intr;

use super::ZEROS;
use crate::stat::regular;
use crate::{Errno, Handle, RealStorage, Result, Stat, Storage};

/// Fewer zeros have hardly a block among them, and are not worth a thread.
const PUNCHED_BYTES_MIN: u64 = 8192;

/// Told after each write; only tests have something to do there.
type Between<'a> = &'a (dyn Fn() + Sync);

/// Appends `n` zeros through a descriptor with these flags; fewer only when an error came in between.
pub(super) fn append(fd: BorrowedFd<'_>, flags: OFlags, n: u64) -> Result<u64> {
    append_with(fd, flags, n, &|| ())
}

fn append_with(fd: BorrowedFd<'_>, flags: OFlags, n: u64, between: Between<'_>) -> Result<u64> {
    let file = Handle::lent(fd, |file| RealStorage.stat_handle(file))?;
    regular(file.kind)?;
    let apart = match n < PUNCHED_BYTES_MIN {
        true => None,
        false => append_apart(fd, flags, &file, n, between),
    };
    let Some(appended) = apart else {
        return write_zeros(fd, n, |_| between());
    };
    let (done, end) = appended?;
    seek(fd, SeekFrom::Start(end))?;
    Ok(done)
}

/// Appends and punches through an open file of our own, in a thread with descriptors of its own; how many zeros, and where they end. `None`:
/// there can be no such file, and nothing was written.
fn append_apart(
    fd: BorrowedFd<'_>,
    flags: OFlags,
    file: &Stat,
    n: u64,
    between: Between<'_>,
) -> Option<Result<(u64, u64)>> {
    let work = || {
        let own = open_apart(fd, flags, file).ok()?;
        Some(append_own(&own, n, between))
    };
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("elbow-append".into());
        let appended = builder.spawn_scoped(scope, work).ok()?.join();
        // What was written before a panic is not written again.
        appended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Opens the same file once more, in a table of descriptors that this thread shares with nobody from here on.
#[allow(
    clippy::disallowed_methods,
    reason = "the file is the caller's, with flags of its own, not the storage's"
)]
fn open_apart(fd: BorrowedFd<'_>, flags: OFlags, file: &Stat) -> Result<Handle> {
    const KEPT: OFlags = OFlags::SYNC.union(OFlags::DSYNC);
    // That of the thread that the process began with, which is not ours any more after the next call.
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    leave_descriptors()?;
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOCTTY | flags & KEPT;
    let own = retry_on_intr(|| rustix::fs::open(&path, flags, Mode::empty()))?;
    let own = Handle::new(own);
    let found = RealStorage.stat_handle(&own)?;
    // The number is another file's where the thread that asks does not share the table of the first one.
    match (found.dev, found.ino) == (file.dev, file.ino) {
        true => Ok(own),
        false => Err(Errno::BADF),
    }
}

/// Gives this thread an empty table of descriptors.
fn leave_descriptors() -> Result<()> {
    const ALL: (libc::c_uint, libc::c_uint) = (0, libc::c_uint::MAX);
    // SAFETY: the thread was started for this, and nothing in it has used a descriptor before or uses one of the shared table after.
    #[allow(unsafe_code)]
    let left = unsafe { libc::syscall(libc::SYS_close_range, ALL.0, ALL.1, libc::CLOSE_RANGE_UNSHARE) };
    match left {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::NOSYS)),
    }
}

/// Appends and punches; how many zeros, and where they end.
fn append_own(own: &Handle, n: u64, between: Between<'_>) -> Result<(u64, u64)> {
    let mut run = 0..0; // what we have appended without anybody else's in between
    let mut lost = None;
    let done = write_zeros(own.as_fd(), n, |written| {
        between();
        match advance(own.as_fd(), 0) {
            Ok(end) => {
                let start = end.saturating_sub(written);
                run = if run.end == start { run.start..end } else { start..end };
                // They are zeros already. That they stay blocks is no error.
                let _ = RealStorage.punch(own, run.start, run.end - run.start);
            }
            Err(errno) => lost = Some(errno),
        }
    })?;
    lost.map_or(Ok((done, run.end)), Err)
}

/// Writes `n` zeros; fewer only when an error came in between. `wrote` is told how many each time.
fn write_zeros(fd: BorrowedFd<'_>, n: u64, mut wrote: impl FnMut(u64)) -> Result<u64> {
    let mut done = 0;
    while done < n {
        let bytes = ZEROS.first(n - done);
        match retry_on_intr(|| rustix::io::write(fd, bytes)) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => {
                done += written as u64;
                wrote(written as u64);
            }
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// Moves the file offset by so much; gives the new one.
pub(super) fn advance(fd: BorrowedFd<'_>, by: i64) -> Result<u64> {
    seek(fd, SeekFrom::Current(by))
}

#[allow(
    clippy::disallowed_methods,
    reason = "the file offset is the caller's, not the storage's"
)]
fn seek(fd: BorrowedFd<'_>, to: SeekFrom) -> Result<u64> {
    rustix::fs::seek(fd, to).map_err(|errno| match errno {
        Errno::INVAL | Errno::OVERFLOW => Errno::FBIG,
        other => other,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "tests look at what is really there")]

    use std::fs::File;
    use std::io::Write;
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    const LINE: &[u8] = b"a line that somebody else appends\n";
    const BYTES: u64 = 1 << 20;

    /// The line of another thread moved the offset that both have, and was punched as if it were zeros of ours.
    #[test]
    fn what_is_appended_through_the_same_open_file_between_write_and_punch_is_kept() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let shared = File::options().append(true).open(file.path()).expect("a file");
        // A thread of its own, because ours appends where the descriptor is not known.
        let (ask, asked) = channel::<Sender<()>>();
        let lines = std::thread::scope(|scope| {
            let (shared, asked) = (&shared, asked);
            let somebody_else = scope.spawn(move || {
                let lines = asked.iter().map(|done| {
                    (&*shared).write_all(LINE).expect("room");
                    done.send(()).expect("somebody waits");
                });
                lines.count()
            });
            let between = move || {
                let (done, is_done) = channel();
                ask.send(done).expect("somebody else");
                is_done.recv().expect("a line");
            };
            let flags = OFlags::WRONLY | OFlags::APPEND;
            assert_eq!(append_with(shared.as_fd(), flags, BYTES, &between), Ok(BYTES));
            drop(between);
            somebody_else.join().expect("no panic")
        });
        assert!(lines > 0, "nobody else has appended");
        let content = std::fs::read(file.path()).expect("a file");
        let kept = content.windows(LINE.len()).filter(|window| *window == LINE).count();
        assert_eq!(kept, lines, "lines that are there");
        assert_eq!(content.len(), BYTES as usize + lines * LINE.len());
    }

    /// Where the file cannot be opened once more, zeros are written and nothing is punched.
    #[test]
    fn a_descriptor_of_another_file_is_not_punched_through() {
        let (file, other) = (
            tempfile::tempfile().expect("a file"),
            tempfile::tempfile().expect("a file"),
        );
        let stat = Handle::lent(other.as_fd(), |other| RealStorage.stat_handle(other)).expect("a file");
        let flags = OFlags::WRONLY | OFlags::APPEND;
        assert!(append_apart(file.as_fd(), flags, &stat, BYTES, &|| ()).is_none());
        assert_eq!(file.metadata().expect("a file").len(), 0);
    }
}
