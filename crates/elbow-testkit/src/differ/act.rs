//! A worker: does one call after the other, with descriptors, maps and a current directory of its own.

mod attributes;
mod data;
mod map;
mod names;

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{self as sys, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{chdir, fchdir, getcwd, umask};

use super::answer::{self, Answer};
use super::call::Call;
use super::plant::Planted;
use super::word::{At, Bits, MAPS, Name, OpenFlags, SLOTS, Slot, Word};

pub(crate) use attributes::split;

/// See the module's header.
#[derive(Debug)]
pub(super) struct Worker {
    root_path: PathBuf,
    root: OwnedFd,
    slots: [Option<OwnedFd>; SLOTS as usize],
    maps: [Option<map::Mapped>; MAPS as usize],
    planted: Planted,
}

type Said<T> = Result<T, Errno>;

/// Of what says nothing.
fn done(result: Said<()>) -> Answer {
    result.map(|()| String::new())
}

/// Of what says how many.
fn count(result: Said<usize>) -> Answer {
    result.map(|count| count.to_string())
}

fn mode(bits: Bits) -> Mode {
    Mode::from_raw_mode(bits.0)
}

impl Worker {
    /// One that works in `root`, which is the current directory.
    ///
    /// # Errors
    /// What opening it says.
    pub(super) fn new(root: &Path, planted: Planted) -> Said<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            root_path: root.to_owned(),
            root: sys::open(".", flags, Mode::empty())?,
            slots: Default::default(),
            maps: Default::default(),
            planted,
        })
    }

    /// Does a call, or what a planted bug makes of it.
    pub(super) fn call(&mut self, call: &Call) -> Answer {
        if self.leads_out(call) {
            return Ok("not done: it leads out".to_owned());
        }
        if self.planted.is_forgotten(call) {
            return done(Ok(()));
        }
        let answer = self.honest_call(call);
        self.planted.after(call, answer)
    }

    #[rustfmt::skip] // A table: one line for each call.
    fn honest_call(&mut self, call: &Call) -> Answer {
        match call {
            Call::Open { slot, at, name, flags, mode } => self.open(*slot, *at, name, *flags, *mode),
            Call::Close { slot } => self.close(*slot),
            Call::Dup { slot, to } => rustix::io::dup(self.fd(*slot)?).and_then(|fd| self.put(*to, fd)),
            Call::Read { slot, length } => self.read(*slot, *length),
            Call::Pread { slot, length, offset } => self.pread(*slot, *length, *offset),
            Call::Write { slot, data } => count(rustix::io::write(self.fd(*slot)?, &data.bytes())),
            Call::Pwrite { slot, data, offset } => count(rustix::io::pwrite(self.fd(*slot)?, &data.bytes(), *offset)),
            Call::Writev { slot, first, second } => self.writev(*slot, *first, *second),
            Call::Seek { slot, offset, whence } => self.seek(*slot, *offset, *whence),
            Call::Holes { slot } => self.holes(*slot),
            Call::Ftruncate { slot, length } => done(sys::ftruncate(self.fd(*slot)?, length.cast_unsigned())),
            Call::Truncate { at, name, length } => self.truncate(*at, name, *length),
            Call::Fallocate { slot, flags, offset, length } => self.fallocate(*slot, *flags, *offset, *length),
            Call::Copy { from, from_offset, to, to_offset, length } => self.copy((*from, *from_offset), (*to, *to_offset), *length),
            Call::Mkdir { at, name, mode: bits } => done(sys::mkdirat(self.at(*at)?, &name.0[..], mode(*bits))),
            Call::Mknod { at, name, kind, mode } => self.mknod(*at, name, *kind, *mode),
            Call::Symlink { target, at, name } => done(sys::symlinkat(&target.0[..], self.at(*at)?, &name.0[..])),
            Call::Link { at, name, to_at, to, flags } => self.link((*at, name), (*to_at, to), *flags),
            Call::Unlink { at, name } => done(sys::unlinkat(self.at(*at)?, &name.0[..], sys::AtFlags::empty())),
            Call::Rmdir { at, name } => done(sys::unlinkat(self.at(*at)?, &name.0[..], sys::AtFlags::REMOVEDIR)),
            Call::Rename { at, name, to_at, to, flags } => self.rename((*at, name), (*to_at, to), *flags),
            Call::Chmod { at, name, mode, flags } => self.chmod(*at, name, *mode, *flags),
            Call::Fchmod { slot, mode: bits } => done(sys::fchmod(self.fd(*slot)?, mode(*bits))),
            Call::Chown { at, name, uid, gid, flags } => self.chown(*at, name, (*uid, *gid), *flags),
            Call::Fchown { slot, uid, gid } => done(sys::fchown(self.fd(*slot)?, attributes::uid(*uid), attributes::gid(*gid))),
            Call::Utimens { at, name, atime, mtime, flags } => self.utimens(*at, name, (*atime, *mtime), *flags),
            Call::Futimens { slot, atime, mtime } => done(sys::futimens(self.fd(*slot)?, &attributes::times(*atime, *mtime))),
            Call::Setxattr { at, name, key, value, flags, follow } => self.setxattr(*at, name, &key.0, &value.bytes(), (*flags, *follow)),
            Call::Getxattr { at, name, key, follow } => self.getxattr(*at, name, &key.0, *follow),
            Call::Listxattr { at, name, follow } => self.listxattr(*at, name, *follow),
            Call::Removexattr { at, name, key, follow } => self.removexattr(*at, name, &key.0, *follow),
            Call::Fsetxattr { slot, key, value, flags } => self.fsetxattr(*slot, &key.0, &value.bytes(), *flags),
            Call::Fgetxattr { slot, key } => self.fgetxattr(*slot, &key.0),
            Call::Fremovexattr { slot, key } => done(sys::fremovexattr(self.fd(*slot)?, &key.0[..])),
            Call::Setacl { at, name, which, entries } => self.setacl(*at, name, *which, entries),
            Call::List { at, name } => self.list(*at, name),
            Call::Flist { slot } => self.flist(*slot),
            Call::Stat { at, name, flags } => self.stat(*at, name, *flags),
            Call::Fstat { slot } => sys::fstat(self.fd(*slot)?).map(|stat| answer::stat(&stat)),
            Call::Readlink { at, name } => sys::readlinkat(self.at(*at)?, &name.0[..], Vec::new()).map(|target| target.to_bytes().escape_ascii().to_string()),
            Call::Access { at, name, mode, flags } => self.access(*at, name, *mode, *flags),
            Call::Map { slot, map, offset, length, flags } => self.map(*slot, *map, (*offset, *length), *flags),
            Call::Mapread { map, offset, length } => self.map_read(*map, *offset, *length),
            Call::Mapwrite { map, offset, data } => self.map_write(*map, *offset, *data),
            Call::Msync { map } => self.msync(*map),
            Call::Unmap { map } => self.unmap(*map),
            Call::Flock { slot, lock } => self.flock(*slot, *lock),
            Call::Ofdlock { slot, lock, start, length } => self.range_lock(*slot, *lock, (*start, *length), libc::F_OFD_SETLK),
            Call::Lockf { slot, lock, start, length } => self.range_lock(*slot, *lock, (*start, *length), libc::F_SETLK),
            Call::Fsync { slot } => done(sys::fsync(self.fd(*slot)?)),
            Call::Fdatasync { slot } => done(sys::fdatasync(self.fd(*slot)?)),
            Call::Syncfs { slot } => done(sys::syncfs(self.fd(*slot)?)),
            Call::Chdir { at, name } => done(chdir(self.path(*at, name)?)),
            Call::Fchdir { slot } => done(fchdir(self.fd(*slot)?)),
            Call::Umask { mode: bits } => Ok(format!("{:04o}", umask(mode(*bits)).bits())),
            Call::Getcwd {} => self.getcwd(),
            Call::Pause { milliseconds } => { std::thread::sleep(Duration::from_millis(*milliseconds)); done(Ok(())) }
        }
    }

    fn fd(&self, slot: Slot) -> Said<BorrowedFd<'_>> {
        let open = self.slots.get(usize::from(slot.0)).and_then(Option::as_ref);
        open.map(AsFd::as_fd).ok_or(Errno::BADF)
    }

    fn at(&self, at: At) -> Said<BorrowedFd<'_>> {
        match at {
            At::Root => Ok(self.root.as_fd()),
            At::Cwd => Ok(sys::CWD),
            At::Slot(slot) => self.fd(slot),
        }
    }

    /// The path of a name, for calls that take no descriptor beside it.
    fn path(&self, at: At, name: &Name) -> Said<PathBuf> {
        let base = match at {
            At::Cwd => PathBuf::new(),
            At::Root => self.root_path.clone(),
            At::Slot(slot) => PathBuf::from(format!("/proc/self/fd/{}", self.fd(slot)?.as_raw_fd())),
        };
        let is_itself = name.0.is_empty() && matches!(at, At::Slot(_));
        Ok(if is_itself {
            base
        } else {
            base.join(OsStr::from_bytes(&name.0))
        })
    }

    /// Whether a call has a path that leads out of the directory of the case, where each run has something else. That can happen where a
    /// directory is not where it was thought to be when the call was drawn.
    fn leads_out(&self, call: &Call) -> bool {
        let line = call.encode();
        let words: Vec<&str> = line.split(' ').collect();
        let ups = words
            .windows(2)
            .filter(|pair| pair[1].split('/').any(|part| part == ".."));
        let places = ups.filter_map(|pair| Some((At::take(pair[0])?, Name::take(pair[1])?)));
        places.into_iter().any(|(at, name)| !self.stays_inside(at, &name))
    }

    /// Where the last `..` of a name leads to.
    fn stays_inside(&self, at: At, name: &Name) -> bool {
        let parts: Vec<&[u8]> = name.0.split(|byte| *byte == b'/').collect();
        let ups = parts.iter().rposition(|part| *part == b"..").map_or(0, |last| last + 1);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = self
            .at(at)
            .and_then(|at| sys::openat(at, parts[..ups].join(&b'/'), flags, Mode::empty()));
        let Ok(dir) = opened else { return true }; // The call will be refused, too.
        let link = format!("/proc/self/fd/{}", dir.as_raw_fd());
        let place = sys::readlinkat(sys::CWD, link, Vec::new()).unwrap_or_default();
        Path::new(OsStr::from_bytes(place.as_bytes())).starts_with(&self.root_path)
    }

    /// Never waits: a pipe without another end would stop the case.
    fn open(&mut self, slot: Slot, at: At, name: &Name, flags: OpenFlags, bits: Bits) -> Answer {
        let flags =
            OFlags::from_bits_retain(flags.0.cast_unsigned()) | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let fd = sys::openat(self.at(at)?, &name.0[..], flags, mode(bits))?;
        self.put(slot, fd)
    }

    /// What was in the slot is closed afterwards.
    fn put(&mut self, slot: Slot, fd: OwnedFd) -> Answer {
        let kind = FileType::from_raw_mode(sys::fstat(&fd)?.st_mode);
        *self.slots.get_mut(usize::from(slot.0)).ok_or(Errno::BADF)? = Some(fd);
        Ok(answer::kind(kind).to_owned())
    }

    #[allow(unsafe_code)]
    fn close(&mut self, slot: Slot) -> Answer {
        let open = self.slots.get_mut(usize::from(slot.0)).and_then(Option::take);
        let raw = open.ok_or(Errno::BADF)?.into_raw_fd();
        // SAFETY: the descriptor was ours alone and is not used afterwards.
        done(unsafe { rustix::io::try_close(raw) })
    }

    fn getcwd(&self) -> Answer {
        let path = getcwd(Vec::new())?;
        let path = Path::new(OsStr::from_bytes(path.as_bytes()));
        let within = path.strip_prefix(&self.root_path).unwrap_or(Path::new("elsewhere"));
        Ok(within.as_os_str().as_bytes().escape_ascii().to_string())
    }
}
