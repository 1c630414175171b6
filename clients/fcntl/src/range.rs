//! `struct flock` to a range of bytes, and back, error for error as the kernel does it.
//!
//! Source: fcntl(2); Linux, fs/locks.c, `flock64_to_posix_lock`, `posix_lock_to_flock64`.

use elbow_lock::{Blocker, LockMode};

use crate::errno::Errno;

/// Locks to the end of the file end here for the service.
pub(crate) const TO_END: u64 = u64::MAX;

/// Set in the owner numbers of processes; the rest is the process id.
pub(crate) const PROCESS_OWNER: u64 = 1 << 62;
/// Set in the owner numbers of open file descriptions.
pub(crate) const DESCRIPTION_OWNER: u64 = 1 << 63;

/// What a `struct flock` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlockRequest {
    /// None to unlock.
    pub(crate) mode: Option<LockMode>,
    pub(crate) start: u64,
    /// Past the last byte, or [`TO_END`].
    pub(crate) end: u64,
}

/// Understands `flock`; `position` tells the file's offset (`SEEK_CUR`) or size (`SEEK_END`).
pub(crate) fn parse(
    flock: &libc::flock,
    position: impl FnOnce(i32) -> Result<i64, Errno>,
) -> Result<FlockRequest, Errno> {
    let base = match i32::from(flock.l_whence) {
        libc::SEEK_SET => 0,
        whence @ (libc::SEEK_CUR | libc::SEEK_END) => position(whence)?,
        _ => return Err(Errno(libc::EINVAL)),
    };
    if flock.l_start > i64::MAX - base {
        return Err(Errno(libc::EOVERFLOW));
    }
    let start = base + flock.l_start;
    let (first, last) = bytes(start, flock.l_len)?;
    let mode = mode_of(flock.l_type)?;
    let end = if last == i64::MAX {
        TO_END
    } else {
        last.cast_unsigned() + 1
    };
    Ok(FlockRequest {
        mode,
        start: first.cast_unsigned(),
        end,
    })
}

/// First and last byte.
fn bytes(start: i64, length: i64) -> Result<(i64, i64), Errno> {
    if start < 0 {
        return Err(Errno(libc::EINVAL));
    }
    match length {
        0 => Ok((start, i64::MAX)),
        1.. if length - 1 > i64::MAX - start => Err(Errno(libc::EOVERFLOW)),
        1.. => Ok((start, start + (length - 1))),
        _ if start + length < 0 => Err(Errno(libc::EINVAL)),
        _ => Ok((start + length, start - 1)),
    }
}

fn mode_of(l_type: i16) -> Result<Option<LockMode>, Errno> {
    match i32::from(l_type) {
        libc::F_RDLCK => Ok(Some(LockMode::Shared)),
        libc::F_WRLCK => Ok(Some(LockMode::Exclusive)),
        libc::F_UNLCK => Ok(None),
        _ => Err(Errno(libc::EINVAL)),
    }
}

/// Writes the answer of `F_GETLK`.
pub(crate) fn describe(blocker: Option<&Blocker>, flock: &mut libc::flock) {
    let Some(blocker) = blocker else {
        flock.l_type = libc::F_UNLCK as i16;
        return;
    };
    flock.l_type = match blocker.mode {
        LockMode::Shared => libc::F_RDLCK,
        LockMode::Exclusive => libc::F_WRLCK,
    } as i16;
    flock.l_whence = libc::SEEK_SET as i16;
    flock.l_start = i64::try_from(blocker.start).unwrap_or(i64::MAX);
    // A lock to the end of the file has length 0.
    let length = blocker.end.saturating_sub(blocker.start);
    let is_to_end = blocker.end > i64::MAX.cast_unsigned();
    flock.l_len = if is_to_end { 0 } else { length.cast_signed() };
    flock.l_pid = pid_of(blocker.owner.0);
}

/// The process that holds a lock: -1 for an open file description, as in Linux; 0 if it is none that fcntl knows.
fn pid_of(owner: u64) -> i32 {
    if owner & DESCRIPTION_OWNER != 0 {
        return -1;
    }
    let pid = owner.checked_sub(PROCESS_OWNER).and_then(|pid| i32::try_from(pid).ok());
    pid.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use elbow_lock::{Owner, SessionId};

    use super::*;

    fn asked(l_type: i32, whence: i32, start: i64, length: i64) -> Result<FlockRequest, i32> {
        #[allow(unsafe_code)]
        // SAFETY: plain numbers.
        let mut flock: libc::flock = unsafe { std::mem::zeroed() };
        flock.l_type = l_type as i16;
        flock.l_whence = whence as i16;
        flock.l_start = start;
        flock.l_len = length;
        parse(&flock, |whence| Ok(if whence == libc::SEEK_CUR { 100 } else { 1000 })).map_err(|errno| errno.0)
    }

    fn range(whence: i32, start: i64, length: i64) -> Result<(u64, u64), i32> {
        asked(libc::F_WRLCK, whence, start, length).map(|asked| (asked.start, asked.end))
    }

    #[test]
    fn whence_and_signs_count() {
        assert_eq!(range(libc::SEEK_SET, 5, 10), Ok((5, 15)));
        assert_eq!(range(libc::SEEK_CUR, -5, 10), Ok((95, 105)));
        assert_eq!(range(libc::SEEK_END, 0, -10), Ok((990, 1000)));
        assert_eq!(range(libc::SEEK_SET, 7, 0), Ok((7, TO_END)));
        assert_eq!(range(libc::SEEK_SET, 1, i64::MAX), Ok((1, TO_END)));
        assert_eq!(range(libc::SEEK_SET, 0, i64::MAX), Ok((0, i64::MAX as u64)));
    }

    #[test]
    fn what_cannot_be_has_the_kernels_errno() {
        assert_eq!(range(libc::SEEK_SET, -1, 1), Err(libc::EINVAL));
        assert_eq!(range(libc::SEEK_SET, 5, -6), Err(libc::EINVAL));
        assert_eq!(range(9, 0, 1), Err(libc::EINVAL));
        assert_eq!(range(libc::SEEK_CUR, i64::MAX, 1), Err(libc::EOVERFLOW));
        assert_eq!(range(libc::SEEK_SET, 2, i64::MAX), Err(libc::EOVERFLOW));
        assert_eq!(asked(17, libc::SEEK_SET, 0, 1), Err(libc::EINVAL));
    }

    #[test]
    fn a_blocker_is_described_as_the_kernel_does() {
        #[allow(unsafe_code)]
        // SAFETY: plain numbers.
        let mut flock: libc::flock = unsafe { std::mem::zeroed() };
        let mut blocker = Blocker {
            mode: LockMode::Exclusive,
            start: 5,
            end: TO_END,
            session: SessionId(1),
            owner: Owner(PROCESS_OWNER + 77),
        };
        describe(Some(&blocker), &mut flock);
        assert_eq!((flock.l_start, flock.l_len, flock.l_pid), (5, 0, 77));
        blocker.owner = Owner(DESCRIPTION_OWNER | 3);
        blocker.end = 15;
        describe(Some(&blocker), &mut flock);
        assert_eq!((flock.l_len, flock.l_pid), (10, -1));
        describe(None, &mut flock);
        assert_eq!(i32::from(flock.l_type), libc::F_UNLCK);
    }
}
