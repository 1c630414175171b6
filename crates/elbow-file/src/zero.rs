//! `zero`: what is in a range is dead; it reads as zeros from now on, and the blocks behind it are free.
//!
//! ```text
//!            offset                  offset + n
//!   before   |xx|xxxx|xxxx|xxxx|xxxx|xx|xxxx|
//!   after    |x0|....|....|....|....|0x|xxxx|      . a hole: no block behind it     0 written
//! ```
//!
//! Semantics (the paper's): `n` bytes from an offset on read as zeros, whole blocks among them are freed, bytes in the
//! blocks at both edges are written; a range that passes the end of the file extends it; mtime and ctime are set
//! when `n > 0`; `n = 0` changes nothing.
//!
//! What always holds:
//! - bytes outside of the ranges are never touched, whoever else writes to or extends the file meanwhile. So the last,
//!   partly used block of a file counts as an edge, and a file is never made shorter;
//! - where holes cannot be punched, data is overwritten with zeros ([`Zeroed::written_bytes`]), and what is zero already is
//!   left alone;
//! - a full disk (a punch may need room to say what it frees) ends in [`Zeroed::deferred`], not in an error: see
//!   `Zeroing::free_when_full` for what is tried before.
//!
//! Not here: an order against other writers of the same range; as with write(2), either may come last.
//!
//! Source: Vengroff & Kotz, *A Holesome File System*, section 3; fallocate(2), FALLOC_FL_PUNCH_HOLE.

mod appended;
mod freeing;
mod quick;
mod support;
mod zeroed;
mod zeros;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use elbow_ranges::RangeSet;
use rustix::fs::OFlags;

use crate::stat::regular;
use crate::{Errno, Handle, RealStorage, Result, Storage};

use appended::advance;
pub(crate) use freeing::write_zeros;
pub use support::ZeroSupport;
pub use zeroed::Zeroed;
pub(crate) use zeros::ZEROS;

/// The last offset that a file can have (`off_t`).
const OFFSET_MAX: u64 = i64::MAX as u64;

/// Zeroes `n` bytes at the file offset, which advances as with write(2). Gives the bytes zeroed: fewer than `n` only
/// on a full disk, where the next call gives the error.
///
/// With `O_APPEND`, `n` zeros are appended, as write(2) would do it. They are holes where the file can be opened once more (`/proc/self/fd`), so that
/// nobody else moves the offset; else they stay blocks.
///
/// ```
/// use std::io::{Read, Seek, Write};
///
/// let mut file = tempfile::tempfile()?;
/// file.write_all(&[7; 100])?;
/// file.seek(std::io::SeekFrom::Start(10))?;
/// assert_eq!(elbow_file::zero(&file, 20)?, 20);
/// let mut next = [0];
/// file.read_exact(&mut next)?;
/// assert_eq!((next, file.stream_position()?), ([7], 31));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// EBADF: not open for writing. EISDIR, ESPIPE, ENODEV: a directory, a pipe or socket, a device. EFBIG: it would end beyond what
/// a file can hold. ENOSPC, EDQUOT: a full disk. EPERM: the file is immutable, append-only or sealed. Others are those of the disk.
pub fn zero(fd: impl AsFd, n: u64) -> io::Result<u64> {
    let fd = fd.as_fd();
    let flags = writable(fd)?;
    if flags.contains(OFlags::APPEND) {
        return Ok(appended::append(fd, flags, n)?);
    }
    regular(Handle::lent(fd, |file| RealStorage.stat_handle(file))?.kind)?; // a device has an offset of its own mind
    let taken = i64::try_from(n).map_err(|_| Errno::FBIG)?;
    // Taking the range first makes it ours alone among threads that share the offset.
    let end = advance(fd, taken)?;
    let result = zero_at(fd, end - n, n).and_then(|zeroed| prefix(&zeroed, end - n..end));
    let done = *result.as_ref().unwrap_or(&0);
    if done < n {
        advance(fd, -i64::try_from(n - done).map_err(|_| Errno::FBIG)?)?;
    }
    result
}

/// Zeroes `n` bytes from an offset on. The file offset stays where it is.
///
/// ```
/// use std::io::Write;
///
/// let mut file = tempfile::tempfile()?;
/// file.write_all(&[7; 3 << 20])?;
/// let zeroed = elbow_file::zero_at(&file, 1 << 20, 1 << 20)?;
/// assert_eq!(zeroed.zeroed_bytes, 1 << 20);
/// assert_eq!(zeroed.punched_bytes + zeroed.written_bytes, 1 << 20);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// As [`zero`], but for a full disk ([`Zeroed::deferred`]); EINVAL for a descriptor with `O_APPEND`, through which Linux writes
/// nowhere but at the end.
pub fn zero_at(fd: impl AsFd, offset: u64, n: u64) -> io::Result<Zeroed> {
    let fd = fd.as_fd();
    match quick::punched(fd, offset, n) {
        Some(zeroed) => Ok(zeroed),
        None => Ok(with_handle(fd, |file| zero_in(&RealStorage, file, offset, n))?),
    }
}

/// Zeroes all ranges of a set. The file offset stays where it is.
///
/// ```
/// use std::io::Write;
///
/// use elbow_ranges::RangeSet;
///
/// let mut file = tempfile::tempfile()?;
/// file.write_all(b"abcdefgh")?;
/// let dead = RangeSet::from_iter([1..3, 5..6]);
/// assert_eq!(elbow_file::zero_ranges(&file, &dead)?.complete()?, 3);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// As [`zero_at`]. After an error any part of the set may have been zeroed.
pub fn zero_ranges(fd: impl AsFd, ranges: &RangeSet) -> io::Result<Zeroed> {
    Ok(with_handle(fd.as_fd(), |file| {
        zero_ranges_in(&RealStorage, file, ranges)
    })?)
}

/// [`zero_at`] through the seam, so that it can be counted, refused and recorded.
///
/// ```
/// use std::ffi::OsStr;
/// use std::io::IoSlice;
/// use std::sync::Arc;
///
/// use elbow_file::double::{Faulty, Interposed, Operation, Plan};
/// use elbow_file::{Errno, RealStorage, Storage, zero_in};
///
/// let directory = tempfile::tempdir()?;
/// let root = RealStorage::open_root(directory.path())?;
/// let no_holes = Faulty::new([Plan::fail(Errno::OPNOTSUPP).on(Operation::Punch)]);
/// let storage = Interposed::new(Arc::new(RealStorage), no_holes);
/// let file = storage.create(&root, OsStr::new("f"), 0o644)?;
/// storage.write(&file, &[IoSlice::new(b"abc")], 0)?;
/// assert_eq!(zero_in(&storage, &file, 0, 2)?.written_bytes, 2);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// As [`zero_at`].
pub fn zero_in(storage: &dyn Storage, file: &Handle, offset: u64, n: u64) -> Result<Zeroed> {
    let ranges = RangeSet::from_unsorted([(offset, n)]).ok_or(Errno::FBIG)?;
    zero_ranges_in(storage, file, &ranges)
}

/// [`zero_ranges`] through the seam.
///
/// ```
/// use std::ffi::OsStr;
/// use std::io::IoSlice;
/// use std::sync::Arc;
///
/// use elbow_file::double::{Counting, Interposed, Operation};
/// use elbow_file::{RealStorage, Storage, zero_ranges_in};
/// use elbow_ranges::RangeSet;
///
/// let directory = tempfile::tempdir()?;
/// let root = RealStorage::open_root(directory.path())?;
/// let storage = Interposed::new(Arc::new(RealStorage), Counting::default());
/// let file = storage.create(&root, OsStr::new("f"), 0o644)?;
/// storage.write(&file, &[IoSlice::new(&[7; 10_000])], 0)?;
/// let touching = RangeSet::from_iter([0..5000, 5000..10_000]);
/// assert_eq!(zero_ranges_in(&storage, &file, &touching)?.complete()?, 10_000);
/// assert_eq!(storage.hook().count(Operation::Punch), 1);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// As [`zero_ranges`].
pub fn zero_ranges_in(storage: &dyn Storage, file: &Handle, ranges: &RangeSet) -> Result<Zeroed> {
    let before = storage.stat_handle(file)?;
    regular(before.kind)?;
    match ranges.span() {
        None => Ok(Zeroed::default()),
        Some(span) if span.end > OFFSET_MAX => Err(Errno::FBIG),
        Some(_) => freeing::run(storage, file, &before, ranges),
    }
}

/// The flags of a descriptor that one may write to.
fn writable(fd: BorrowedFd<'_>) -> Result<OFlags> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    match flags & OFlags::RWMODE {
        _ if flags.contains(OFlags::PATH) => Err(Errno::BADF),
        OFlags::WRONLY | OFlags::RDWR => Ok(flags),
        _ => Err(Errno::BADF),
    }
}

fn with_handle(fd: BorrowedFd<'_>, work: impl FnOnce(&Handle) -> Result<Zeroed>) -> Result<Zeroed> {
    match writable(fd)?.contains(OFlags::APPEND) {
        true => Err(Errno::INVAL),
        false => Handle::lent(fd, work),
    }
}

/// How far it is zeroed without a gap, as write(2) counts: ENOSPC when that is nowhere.
fn prefix(zeroed: &Zeroed, range: std::ops::Range<u64>) -> io::Result<u64> {
    match zeroed.deferred.span() {
        None => Ok(range.end - range.start),
        Some(deferred) if deferred.start > range.start => Ok(deferred.start - range.start),
        Some(_) => Err(Errno::NOSPC.into()),
    }
}
