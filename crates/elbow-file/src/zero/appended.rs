//! Zeros at the end of a file that is open for appending.
//!
//! write(2) with `O_APPEND` finds the end and writes there in one step, so that nobody's append is lost; there is no such call that
//! makes a hole. So zeros are written for real, one piece after the other, and what was written is punched before
//! it has reached the disk.

use std::os::fd::BorrowedFd;

use rustix::fs::SeekFrom;
use rustix::io::retry_on_intr;

use super::ZEROS;
use crate::stat::regular;
use crate::{Errno, Handle, RealStorage, Result, Storage};

/// Appends `n` zeros; fewer only when an error came in between.
pub(super) fn append(fd: BorrowedFd<'_>, n: u64) -> Result<u64> {
    regular(Handle::lent(fd, |file| RealStorage.stat_handle(file))?.kind)?;
    let mut run = 0..0; // what we have appended without anybody else's in between
    let mut done = 0;
    while done < n {
        let bytes = ZEROS.first(n - done);
        match retry_on_intr(|| rustix::io::write(fd, bytes)) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => {
                let (end, written) = (advance(fd, 0)?, written as u64);
                let start = end.saturating_sub(written);
                run = if run.end == start { run.start..end } else { start..end };
                done += written;
            }
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
        // They are zeros already. That they stay blocks is no error.
        let _ = Handle::lent(fd, |file| RealStorage.punch(file, run.start, run.end - run.start));
    }
    Ok(done)
}

/// Moves the file offset by so much; gives the new one.
#[allow(
    clippy::disallowed_methods,
    reason = "the file offset is the caller's, not the storage's"
)]
pub(super) fn advance(fd: BorrowedFd<'_>, by: i64) -> Result<u64> {
    rustix::fs::seek(fd, SeekFrom::Current(by)).map_err(|errno| match errno {
        Errno::INVAL | Errno::OVERFLOW => Errno::FBIG,
        other => other,
    })
}
