//! Attributes as SFTP has them, and as stat(2) does: whole seconds, one name, and no number that would tell an object from another.

use elbow_file::{Errno, Protection, Result, Stat, Time};

use super::session::{Answered, Fault};
use super::why::kind_of;
use super::wire::Attrs;

/// Permission bits, as chmod(2) takes them.
const PERMISSIONS: u32 = 0o7777;
/// Whose an object is that a server says nothing of: nobody's.
const NOBODY: u32 = 65_534;
const NANOSECONDS: u32 = 1_000_000_000;

pub(crate) fn with_mode(mode: u32) -> Attrs {
    Attrs {
        mode: Some(mode & PERMISSIONS),
        ..Attrs::default()
    }
}

pub(crate) fn with_size(size: u64) -> Attrs {
    Attrs {
        size: Some(size),
        ..Attrs::default()
    }
}

/// Times, both at once, as the protocol wants them: what is left as it is is looked at.
///
/// # Errors
/// EINVAL for what is no time, and those of the look.
pub(crate) fn with_times(
    atime: Option<Time>,
    mtime: Option<Time>,
    look: impl FnOnce() -> Answered<Attrs>,
) -> Result<Attrs> {
    let is_none = |time: &Time| time.nanoseconds >= NANOSECONDS;
    if [atime, mtime].iter().flatten().any(is_none) {
        return Err(Errno::INVAL);
    }
    let times = match (atime, mtime) {
        (Some(atime), Some(mtime)) => (seconds(atime), seconds(mtime)),
        _ => {
            let now = look().map_err(Fault::errno)?.times.unwrap_or_default();
            (atime.map_or(now.0, seconds), mtime.map_or(now.1, seconds))
        }
    };
    Ok(Attrs {
        times: Some(times),
        ..Attrs::default()
    })
}

/// The same of owner and group.
///
/// # Errors
/// Those of the look.
pub(crate) fn with_owner(uid: Option<u32>, gid: Option<u32>, look: impl FnOnce() -> Answered<Attrs>) -> Result<Attrs> {
    // The highest id says "leave it" too (chown(2)).
    let id = |id: Option<u32>| id.filter(|&id| id != u32::MAX);
    let owner = match (id(uid), id(gid)) {
        (Some(uid), Some(gid)) => (uid, gid),
        (uid, gid) => {
            let now = look().map_err(Fault::errno)?.owner.unwrap_or((NOBODY, NOBODY));
            (uid.unwrap_or(now.0), gid.unwrap_or(now.1))
        }
    };
    Ok(Attrs {
        owner: Some(owner),
        ..Attrs::default()
    })
}

/// What was found, as stat(2) tells it; the numbers of inode and device are made up by the caller.
///
/// # Errors
/// EPROTO where the server does not say what it is.
pub(crate) fn found(attrs: &Attrs, ino: u64, dev: u64) -> Result<Stat> {
    let kind = kind_of(attrs).ok_or(Errno::PROTO)?;
    let (uid, gid) = attrs.owner.unwrap_or((NOBODY, NOBODY));
    let (atime, mtime) = attrs.times.unwrap_or_default();
    let size = attrs.size.unwrap_or(0);
    Ok(Stat {
        kind,
        mode: attrs.mode.unwrap_or(0) & PERMISSIONS,
        uid,
        gid,
        nlink: 1,
        size,
        blocks: size.div_ceil(512),
        rdev: 0,
        ino,
        dev,
        atime: time(atime),
        mtime: time(mtime),
        // The protocol has no other.
        ctime: time(mtime),
        protection: Protection::None,
        is_encrypted: false,
        breaks_links: false,
    })
}

fn time(seconds: u32) -> Time {
    Time {
        seconds: seconds.into(),
        nanoseconds: 0,
    }
}

/// The nearest time that the protocol has.
fn seconds(time: Time) -> u32 {
    time.seconds.clamp(0, u32::MAX.into()) as u32
}
