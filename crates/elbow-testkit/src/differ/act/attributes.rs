//! Calls about attributes: modes, owners, times, extended ones, access control lists.

// fchmodat2 and faccessat2 with all flags, which libraries imitate where a kernel lacks them.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::os::fd::AsRawFd;

use rustix::fs::{self as sys, Gid, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid};
use rustix::io::Errno;

use super::super::acl;
use super::super::answer::{self, Answer};
use super::super::word::{AccessFlags, At, AtFlags, Bits, Name, Slot, Time, Which, XattrFlags};
use super::names::at_flags;
use super::{Said, Worker, done};

/// As large as an attribute or a list of their names can be.
const XATTR_BYTES_MAX: usize = 1 << 16;
/// fchmodat2(2), which libc does not know everywhere.
const SYS_FCHMODAT2: libc::c_long = 452;
/// faccessat2(2).
const SYS_FACCESSAT2: libc::c_long = 439;

/// -1 leaves it.
pub(super) fn uid(uid: i64) -> Option<Uid> {
    u32::try_from(uid).ok().map(Uid::from_raw)
}

/// -1 leaves it.
pub(super) fn gid(gid: i64) -> Option<Gid> {
    u32::try_from(gid).ok().map(Gid::from_raw)
}

/// Both times.
pub(super) fn times(atime: Time, mtime: Time) -> Timestamps {
    let time = |time| match time {
        Time::Now => (0, UTIME_NOW),
        Time::Omit => (0, UTIME_OMIT),
        Time::At(seconds, nanoseconds) => (seconds, nanoseconds),
    };
    let spec = |(tv_sec, tv_nsec): (i64, _)| Timespec { tv_sec, tv_nsec };
    Timestamps {
        last_access: spec(time(atime)),
        last_modification: spec(time(mtime)),
    }
}

impl Worker {
    pub(super) fn chmod(&self, at: At, name: &Name, bits: Bits, flags: AtFlags) -> Answer {
        self.with_flags(SYS_FCHMODAT2, at, name, bits.0.into(), flags)
    }

    pub(super) fn access(&self, at: At, name: &Name, mode: AccessFlags, flags: AtFlags) -> Answer {
        self.with_flags(SYS_FACCESSAT2, at, name, mode.0.into(), flags)
    }

    /// A call that takes a directory, a name, a number and flags.
    fn with_flags(&self, call: libc::c_long, at: At, name: &Name, number: libc::c_long, flags: AtFlags) -> Answer {
        let (at, name) = (self.at(at)?, CString::new(&name.0[..]).map_err(|_| Errno::INVAL)?);
        // SAFETY: the name ends in a zero byte and outlives the call, which writes nothing.
        let said = unsafe { libc::syscall(call, at.as_raw_fd(), name.as_ptr(), number, libc::c_long::from(flags.0)) };
        said_of(said)
    }

    pub(super) fn chown(&self, at: At, name: &Name, (user, group): (i64, i64), flags: AtFlags) -> Answer {
        done(sys::chownat(
            self.at(at)?,
            &name.0[..],
            uid(user),
            gid(group),
            at_flags(flags),
        ))
    }

    pub(super) fn utimens(&self, at: At, name: &Name, (atime, mtime): (Time, Time), flags: AtFlags) -> Answer {
        done(sys::utimensat(
            self.at(at)?,
            &name.0[..],
            &times(atime, mtime),
            at_flags(flags),
        ))
    }

    pub(super) fn stat(&self, at: At, name: &Name, flags: AtFlags) -> Answer {
        sys::statat(self.at(at)?, &name.0[..], at_flags(flags)).map(|stat| answer::stat(&stat))
    }

    pub(super) fn setxattr(
        &self,
        at: At,
        name: &Name,
        key: &[u8],
        value: &[u8],
        (flags, follow): (XattrFlags, AtFlags),
    ) -> Answer {
        let (path, flags) = (
            self.path(at, name)?,
            sys::XattrFlags::from_bits_retain(flags.0.cast_unsigned()),
        );
        done(if follow.has(libc::AT_SYMLINK_NOFOLLOW) {
            sys::lsetxattr(path, key, value, flags)
        } else {
            sys::setxattr(path, key, value, flags)
        })
    }

    pub(super) fn setacl(&self, at: At, name: &Name, which: Which, entries: &Name) -> Answer {
        let value = acl::encode(entries).ok_or(Errno::INVAL)?;
        self.setxattr(
            at,
            name,
            acl::key(which).as_bytes(),
            &value,
            (XattrFlags(0), AtFlags(0)),
        )
    }

    pub(super) fn getxattr(&self, at: At, name: &Name, key: &[u8], follow: AtFlags) -> Answer {
        let (path, mut value) = (self.path(at, name)?, vec![0; XATTR_BYTES_MAX]);
        let length = if follow.has(libc::AT_SYMLINK_NOFOLLOW) {
            sys::lgetxattr(path, key, &mut value[..])?
        } else {
            sys::getxattr(path, key, &mut value[..])?
        };
        Ok(answer::xattr(key, &value[..length]))
    }

    pub(super) fn listxattr(&self, at: At, name: &Name, follow: AtFlags) -> Answer {
        let (path, mut names) = (self.path(at, name)?, vec![0; XATTR_BYTES_MAX]);
        let length = if follow.has(libc::AT_SYMLINK_NOFOLLOW) {
            sys::llistxattr(path, &mut names[..])?
        } else {
            sys::listxattr(path, &mut names[..])?
        };
        let names = split(&names[..length])
            .into_iter()
            .filter(|key| answer::is_own_xattr(key));
        Ok(answer::names(names.collect()))
    }

    pub(super) fn removexattr(&self, at: At, name: &Name, key: &[u8], follow: AtFlags) -> Answer {
        let path = self.path(at, name)?;
        done(if follow.has(libc::AT_SYMLINK_NOFOLLOW) {
            sys::lremovexattr(path, key)
        } else {
            sys::removexattr(path, key)
        })
    }

    pub(super) fn fsetxattr(&self, slot: Slot, key: &[u8], value: &[u8], flags: XattrFlags) -> Answer {
        let flags = sys::XattrFlags::from_bits_retain(flags.0.cast_unsigned());
        done(sys::fsetxattr(self.fd(slot)?, key, value, flags))
    }

    pub(super) fn fgetxattr(&self, slot: Slot, key: &[u8]) -> Answer {
        let mut value = vec![0; XATTR_BYTES_MAX];
        let length = sys::fgetxattr(self.fd(slot)?, key, &mut value[..])?;
        Ok(answer::xattr(key, &value[..length]))
    }
}

/// The names in a list of them.
pub(crate) fn split(names: &[u8]) -> Vec<Vec<u8>> {
    names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(<[u8]>::to_vec)
        .collect()
}

/// What a raw call said.
pub(super) fn said_of(said: libc::c_long) -> Answer {
    done(checked(said))
}

fn checked(said: libc::c_long) -> Said<()> {
    if said < 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    Ok(())
}
