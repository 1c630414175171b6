//! Random calls.

use rand::Rng;

use super::super::call::Call;
use super::super::word::{
    AccessFlags, AtFlags, Bits, FallocateFlags, Kind, Lock, MAPS, Map, MapFlags, Name, OpenFlags, RenameFlags, Slot,
    Time, Whence, Which, XattrFlags,
};
use super::tree::{KEYS, LISTS};
use super::{CaseGenerator, ProbableKind, SHARED_GROUP, USERS};

/// Makes a call.
type Maker = fn(&mut CaseGenerator) -> Call;

/// How often which call is drawn, of the sum.
const WEIGHTS: [(u32, Maker); 51] = [
    (60, CaseGenerator::open),
    (14, CaseGenerator::close),
    (4, CaseGenerator::dup),
    (10, CaseGenerator::read),
    (10, CaseGenerator::pread),
    (25, CaseGenerator::write),
    (20, CaseGenerator::pwrite),
    (5, CaseGenerator::writev),
    (8, CaseGenerator::seek),
    (6, CaseGenerator::holes),
    (10, CaseGenerator::ftruncate),
    (6, CaseGenerator::truncate),
    (14, CaseGenerator::fallocate),
    (8, CaseGenerator::copy),
    (16, CaseGenerator::mkdir),
    (5, CaseGenerator::mknod),
    (8, CaseGenerator::symlink),
    (16, CaseGenerator::link),
    (22, CaseGenerator::unlink),
    (14, CaseGenerator::rmdir),
    (45, CaseGenerator::rename),
    (20, CaseGenerator::chmod),
    (5, CaseGenerator::fchmod),
    (10, CaseGenerator::chown),
    (3, CaseGenerator::fchown),
    (14, CaseGenerator::utimens),
    (4, CaseGenerator::futimens),
    (10, CaseGenerator::setxattr),
    (5, CaseGenerator::getxattr),
    (5, CaseGenerator::listxattr),
    (5, CaseGenerator::removexattr),
    (4, CaseGenerator::fsetxattr),
    (2, CaseGenerator::fgetxattr),
    (2, CaseGenerator::fremovexattr),
    (9, CaseGenerator::setacl),
    (10, CaseGenerator::list),
    (3, CaseGenerator::flist),
    (14, CaseGenerator::stat),
    (6, CaseGenerator::fstat),
    (4, CaseGenerator::readlink),
    (6, CaseGenerator::access),
    (6, CaseGenerator::map),
    (5, CaseGenerator::mapread),
    (8, CaseGenerator::mapwrite),
    (5, CaseGenerator::msync_or_unmap),
    (8, CaseGenerator::lock),
    (6, CaseGenerator::sync),
    (5, CaseGenerator::chdir),
    (2, CaseGenerator::fchdir),
    (4, CaseGenerator::umask_or_getcwd),
    (2, CaseGenerator::pause),
];

impl CaseGenerator {
    pub(super) fn any_call(&mut self) -> Call {
        let call = self.call_of_weight();
        let is_of_attributes = call.verb().ends_with("xattr") || call.verb() == "setacl";
        // Each is refused; a few show that.
        if is_of_attributes && self.storage.is_by_sftp() && self.chance(90) {
            return self.stat();
        }
        call
    }

    fn call_of_weight(&mut self) -> Call {
        let sum: u32 = WEIGHTS.iter().map(|(weight, _)| weight).sum();
        let mut at = self.rng.random_range(0..sum);
        for (weight, make) in WEIGHTS {
            if at < weight {
                return make(self);
            }
            at -= weight;
        }
        self.pause()
    }

    fn open(&mut self) -> Call {
        let slot = self.slot();
        if self.chance(4) {
            return self.open_temporary(slot);
        }
        let sort = if self.chance(25) {
            ProbableKind::Dir
        } else {
            ProbableKind::File
        };
        let makes = sort == ProbableKind::File && self.chance(40);
        let path = if makes && self.chance(70) {
            self.name_in_dir()
        } else {
            self.path(sort)
        };
        let mut flags = if sort == ProbableKind::Dir {
            0
        } else {
            self.one(&[0, libc::O_WRONLY, libc::O_RDWR, libc::O_RDWR])
        };
        flags |= if makes { libc::O_CREAT } else { 0 };
        let odd = [
            (libc::O_EXCL, if makes { 25 } else { 1 }),
            (libc::O_TRUNC, 20),
            (libc::O_APPEND, 20),
            (libc::O_DIRECTORY, 5),
        ];
        for (flag, percent) in [
            &odd[..],
            &[(libc::O_NOFOLLOW, 8), (libc::O_PATH, 3), (libc::O_DSYNC, 3)],
        ]
        .concat()
        {
            // Truncating what is only read is not specified, and file systems differ.
            let is_unspecified = flag == libc::O_TRUNC && flags & libc::O_ACCMODE == libc::O_RDONLY;
            flags |= if self.chance(percent) && !is_unspecified {
                flag
            } else {
                0
            };
        }
        let known = self
            .known
            .iter()
            .find(|(known, _)| *known == path)
            .map(|(_, sort)| *sort);
        self.worker_state().slots[usize::from(slot.0)] =
            Some((path.clone(), Some(known.unwrap_or(ProbableKind::File))));
        if makes {
            self.learn(&path, ProbableKind::File);
        }
        let ((at, name), mode) = (self.way(&path), self.mode());
        Call::Open {
            slot,
            at,
            name,
            flags: OpenFlags(flags),
            mode,
        }
    }

    fn open_temporary(&mut self, slot: Slot) -> Call {
        let dir = self.existing(ProbableKind::Dir);
        self.worker_state().slots[usize::from(slot.0)] = Some((String::new(), Some(ProbableKind::File)));
        let exclusive = if self.chance(20) { libc::O_EXCL } else { 0 };
        let ((at, name), mode) = (self.way(&dir), self.mode());
        Call::Open {
            slot,
            at,
            name,
            flags: OpenFlags(libc::O_TMPFILE | libc::O_RDWR | exclusive),
            mode,
        }
    }

    fn close(&mut self) -> Call {
        let slot = self.slot_of(ProbableKind::File);
        self.worker_state().slots[usize::from(slot.0)] = None;
        Call::Close { slot }
    }

    fn dup(&mut self) -> Call {
        let (slot, to) = (self.slot_of(ProbableKind::File), self.slot());
        self.worker_state().slots[usize::from(to.0)] = self.worker_state().slots[usize::from(slot.0)].clone();
        Call::Dup { slot, to }
    }

    fn read(&mut self) -> Call {
        Call::Read {
            slot: self.slot_of(ProbableKind::File),
            length: self.size(),
        }
    }

    fn offset(&mut self) -> u64 {
        match self.rng.random_range(0..10) {
            0..3 => 0,
            3..5 => self.one(&[4095, 4096, 4097, 8192, 65536, 131_072]),
            5..9 => self.rng.random_range(0..100_000),
            _ => self.rng.random_range(0..6_000_000),
        }
    }

    fn pread(&mut self) -> Call {
        Call::Pread {
            slot: self.slot_of(ProbableKind::File),
            length: self.size(),
            offset: self.offset(),
        }
    }

    fn write(&mut self) -> Call {
        let length = self.size();
        Call::Write {
            slot: self.slot_of(ProbableKind::File),
            data: self.data_of(length),
        }
    }

    fn pwrite(&mut self) -> Call {
        let length = self.size();
        Call::Pwrite {
            slot: self.slot_of(ProbableKind::File),
            data: self.data_of(length),
            offset: self.offset(),
        }
    }

    fn writev(&mut self) -> Call {
        let (first, second) = (self.size(), self.size());
        Call::Writev {
            slot: self.slot_of(ProbableKind::File),
            first: self.data_of(first),
            second: self.data_of(second),
        }
    }

    fn seek(&mut self) -> Call {
        let whence = self.one(Whence::ALL);
        let offset = if self.chance(90) {
            self.offset().cast_signed()
        } else {
            -3
        };
        Call::Seek {
            slot: self.slot_of(ProbableKind::File),
            offset,
            whence,
        }
    }

    fn holes(&mut self) -> Call {
        Call::Holes {
            slot: self.slot_of(ProbableKind::File),
        }
    }

    fn length(&mut self) -> i64 {
        match self.rng.random_range(0..20) {
            0 => -1,
            1..5 => 0,
            _ => self.offset().cast_signed(),
        }
    }

    fn ftruncate(&mut self) -> Call {
        Call::Ftruncate {
            slot: self.slot_of(ProbableKind::File),
            length: self.length(),
        }
    }

    fn truncate(&mut self) -> Call {
        let path = self.path(ProbableKind::File);
        let (at, name) = self.way(&path);
        Call::Truncate {
            at,
            name,
            length: self.length(),
        }
    }

    fn fallocate(&mut self) -> Call {
        let keep = libc::FALLOC_FL_KEEP_SIZE;
        let modes = [
            0,
            0,
            keep,
            keep | libc::FALLOC_FL_PUNCH_HOLE,
            keep | libc::FALLOC_FL_PUNCH_HOLE,
            libc::FALLOC_FL_ZERO_RANGE,
            keep | libc::FALLOC_FL_ZERO_RANGE,
            libc::FALLOC_FL_COLLAPSE_RANGE,
            libc::FALLOC_FL_INSERT_RANGE,
        ];
        let flags = FallocateFlags(self.one(&modes));
        let whole_blocks = self.chance(50);
        let round = |number: u64| if whole_blocks { number / 4096 * 4096 } else { number }.cast_signed();
        let (offset, length) = (round(self.offset()), round(self.offset()));
        Call::Fallocate {
            slot: self.slot_of(ProbableKind::File),
            flags,
            offset,
            length,
        }
    }

    fn copy(&mut self) -> Call {
        let (from_offset, to_offset) = (self.offset(), self.offset());
        let (has_from, has_to) = (self.chance(50), self.chance(50));
        Call::Copy {
            from: self.slot_of(ProbableKind::File),
            from_offset: has_from.then_some(from_offset),
            to: self.slot_of(ProbableKind::File),
            to_offset: has_to.then_some(to_offset),
            length: self.size(),
        }
    }

    fn mkdir(&mut self) -> Call {
        let path = self.name_in_dir();
        self.learn(&path, ProbableKind::Dir);
        let ((at, name), mode) = (self.way(&path), self.mode());
        Call::Mkdir { at, name, mode }
    }

    fn mknod(&mut self) -> Call {
        let (path, kind) = (self.name_in_dir(), self.one(Kind::ALL));
        self.learn(
            &path,
            if kind == Kind::File {
                ProbableKind::File
            } else {
                ProbableKind::Other
            },
        );
        let ((at, name), mode) = (self.way(&path), self.mode());
        Call::Mknod { at, name, kind, mode }
    }

    fn symlink(&mut self) -> Call {
        let (path, target) = (self.name_in_dir(), self.target());
        self.learn(&path, ProbableKind::Link);
        let (at, name) = self.way(&path);
        Call::Symlink { target, at, name }
    }

    fn link(&mut self) -> Call {
        if self.storage.is_far() {
            return self.stat(); // See `Storage::keeps_links`.
        }
        let to = self.name_in_dir();
        if self.chance(15) {
            let (slot, (to_at, to)) = (self.slot_of(ProbableKind::File), self.way(&to));
            let flags = AtFlags(libc::AT_EMPTY_PATH);
            return Call::Link {
                at: super::At::Slot(slot),
                name: Name::default(),
                to_at,
                to,
                flags,
            };
        }
        let sort = if self.chance(15) {
            ProbableKind::Link
        } else {
            ProbableKind::File
        };
        let path = self.path(sort);
        self.learn(&to, sort);
        let flags = AtFlags(if self.chance(20) { libc::AT_SYMLINK_FOLLOW } else { 0 });
        let ((at, name), (to_at, to)) = (self.way(&path), self.way(&to));
        Call::Link {
            at,
            name,
            to_at,
            to,
            flags,
        }
    }

    fn unlink(&mut self) -> Call {
        let sort = self.one(&[
            ProbableKind::File,
            ProbableKind::File,
            ProbableKind::File,
            ProbableKind::Link,
            ProbableKind::Other,
            ProbableKind::Dir,
        ]);
        let path = self.path(sort);
        if sort != ProbableKind::Dir {
            self.forget(&path);
        }
        let (at, name) = self.way(&path);
        Call::Unlink { at, name }
    }

    fn rmdir(&mut self) -> Call {
        let path = self.path(ProbableKind::Dir);
        if !self
            .known
            .iter()
            .any(|(known, _)| known.starts_with(&format!("{path}/")))
        {
            self.forget(&path);
        }
        let (at, name) = self.way(&path);
        Call::Rmdir { at, name }
    }

    fn rename(&mut self) -> Call {
        let sort = self.one(&[
            ProbableKind::File,
            ProbableKind::File,
            ProbableKind::File,
            ProbableKind::Dir,
            ProbableKind::Dir,
            ProbableKind::Link,
        ]);
        let path = self.path(sort);
        let to = if self.chance(45) {
            self.path(sort)
        } else {
            self.name_in_dir()
        };
        let exchange = libc::RENAME_EXCHANGE.cast_signed();
        let noreplace = libc::RENAME_NOREPLACE.cast_signed();
        let flags = self.one(&[
            0,
            0,
            0,
            0,
            0,
            exchange,
            exchange,
            noreplace,
            noreplace,
            exchange | noreplace,
        ]);
        if flags == 0 || flags == noreplace {
            self.moved(&path, &to);
        }
        let ((at, name), (to_at, to)) = (self.way(&path), self.way(&to));
        Call::Rename {
            at,
            name,
            to_at,
            to,
            flags: RenameFlags(flags),
        }
    }

    /// Something with attributes, by a way.
    fn object(&mut self) -> (super::At, Name) {
        let sort = self.one(&[
            ProbableKind::File,
            ProbableKind::File,
            ProbableKind::Dir,
            ProbableKind::Dir,
            ProbableKind::Link,
            ProbableKind::Other,
        ]);
        let path = self.path(sort);
        self.way(&path)
    }

    fn nofollow(&mut self, percent: u32) -> AtFlags {
        AtFlags(if self.chance(percent) {
            libc::AT_SYMLINK_NOFOLLOW
        } else {
            0
        })
    }

    fn chmod(&mut self) -> Call {
        let ((at, name), mode) = (self.object(), self.mode());
        Call::Chmod {
            at,
            name,
            mode,
            flags: self.nofollow(15),
        }
    }

    fn fchmod(&mut self) -> Call {
        Call::Fchmod {
            slot: self.slot_of(ProbableKind::File),
            mode: self.mode(),
        }
    }

    fn id(&mut self) -> i64 {
        let own = self.workers[self.turn].uid;
        self.one(&[
            -1,
            0,
            USERS[0].into(),
            USERS[1].into(),
            SHARED_GROUP.into(),
            own.into(),
            own.into(),
        ])
    }

    fn chown(&mut self) -> Call {
        let ((at, name), uid, gid) = (self.object(), self.id(), self.id());
        Call::Chown {
            at,
            name,
            uid,
            gid,
            flags: self.nofollow(50),
        }
    }

    fn fchown(&mut self) -> Call {
        Call::Fchown {
            slot: self.slot_of(ProbableKind::File),
            uid: self.id(),
            gid: self.id(),
        }
    }

    fn time(&mut self) -> Time {
        if self.storage.is_far() {
            // sshfs takes the beginning of 1970, and a time that is left as it is, for now.
            return self.one(&[Time::Now, Time::At(1_100_000_000, 0), Time::At(4_200_000_000, 0)]);
        }
        if self.storage.is_by_sftp() {
            // What it carries: whole seconds from 1970 to 2106.
            let set = [0, 1_100_000_000, 1_200_000_000, 4_200_000_000].map(|seconds| Time::At(seconds, 0));
            return self.one(&[&[Time::Now, Time::Omit], &set[..]].concat());
        }
        let nanoseconds = self.one(&[0, 1, 999_999_999]);
        self.one(&[
            Time::Now,
            Time::Omit,
            Time::At(1_100_000_000, nanoseconds),
            Time::At(1_200_000_000, nanoseconds),
            Time::At(0, nanoseconds),
            Time::At(-5, nanoseconds),
            Time::At(4_200_000_000, nanoseconds),
        ])
    }

    fn utimens(&mut self) -> Call {
        let ((at, name), atime, mtime) = (self.object(), self.time(), self.time());
        Call::Utimens {
            at,
            name,
            atime,
            mtime,
            flags: self.nofollow(40),
        }
    }

    fn futimens(&mut self) -> Call {
        Call::Futimens {
            slot: self.slot_of(ProbableKind::File),
            atime: self.time(),
            mtime: self.time(),
        }
    }

    fn key(&mut self) -> Name {
        if self.chance(5) {
            return Name::of("system.posix_acl_access");
        }
        Name::of(self.one(&KEYS))
    }

    fn xattr_flags(&mut self) -> XattrFlags {
        XattrFlags(self.one(&[0, 0, 0, libc::XATTR_CREATE, libc::XATTR_REPLACE]))
    }

    fn setxattr(&mut self) -> Call {
        let ((at, name), key, length) = (self.object(), self.key(), self.one(&[0, 1, 30, 700, 3000]));
        Call::Setxattr {
            at,
            name,
            key,
            value: self.data_of(length),
            flags: self.xattr_flags(),
            follow: self.nofollow(30),
        }
    }

    fn getxattr(&mut self) -> Call {
        let ((at, name), key) = (self.object(), self.key());
        Call::Getxattr {
            at,
            name,
            key,
            follow: self.nofollow(30),
        }
    }

    fn listxattr(&mut self) -> Call {
        let (at, name) = self.object();
        Call::Listxattr {
            at,
            name,
            follow: self.nofollow(30),
        }
    }

    fn removexattr(&mut self) -> Call {
        let ((at, name), key) = (self.object(), self.key());
        Call::Removexattr {
            at,
            name,
            key,
            follow: self.nofollow(30),
        }
    }

    fn fsetxattr(&mut self) -> Call {
        Call::Fsetxattr {
            slot: self.slot_of(ProbableKind::File),
            key: self.key(),
            value: self.data_of(20),
            flags: self.xattr_flags(),
        }
    }

    fn fgetxattr(&mut self) -> Call {
        Call::Fgetxattr {
            slot: self.slot_of(ProbableKind::File),
            key: self.key(),
        }
    }

    fn fremovexattr(&mut self) -> Call {
        Call::Fremovexattr {
            slot: self.slot_of(ProbableKind::File),
            key: self.key(),
        }
    }

    fn setacl(&mut self) -> Call {
        let which = self.one(Which::ALL);
        let sort = if which == Which::Default || self.chance(40) {
            ProbableKind::Dir
        } else {
            ProbableKind::File
        };
        let path = self.path(sort);
        let (at, name) = self.way(&path);
        Call::Setacl {
            at,
            name,
            which,
            entries: Name::of(self.one(&LISTS)),
        }
    }

    fn list(&mut self) -> Call {
        let path = self.path(ProbableKind::Dir);
        let (at, name) = self.way(&path);
        Call::List { at, name }
    }

    fn flist(&mut self) -> Call {
        Call::Flist {
            slot: self.slot_of(ProbableKind::Dir),
        }
    }

    fn stat(&mut self) -> Call {
        let (at, name) = self.object();
        Call::Stat {
            at,
            name,
            flags: self.nofollow(50),
        }
    }

    fn fstat(&mut self) -> Call {
        Call::Fstat {
            slot: self.slot_of(ProbableKind::File),
        }
    }

    fn readlink(&mut self) -> Call {
        let path = self.path(ProbableKind::Link);
        let (at, name) = self.way(&path);
        Call::Readlink { at, name }
    }

    fn access(&mut self) -> Call {
        let ((at, name), mode) = (self.object(), self.rng.random_range(0..8));
        let flags = AtFlags(self.one(&[0, 0, libc::AT_EACCESS, libc::AT_SYMLINK_NOFOLLOW]));
        Call::Access {
            at,
            name,
            mode: AccessFlags(mode),
            flags,
        }
    }

    fn map_number(&mut self) -> Map {
        let filled: Vec<u8> = (0..MAPS)
            .filter(|map| self.hands[self.turn].maps[usize::from(*map)])
            .collect();
        if filled.is_empty() {
            Map(0)
        } else {
            Map(self.one(&filled))
        }
    }

    fn map(&mut self) -> Call {
        let (slot, map) = (self.slot_of(ProbableKind::File), Map(self.rng.random_range(0..MAPS)));
        self.worker_state().maps[usize::from(map.0)] = true;
        let flags = MapFlags(self.one(&[0, libc::PROT_WRITE, libc::PROT_WRITE, libc::PROT_WRITE | 0x100]));
        Call::Map {
            slot,
            map,
            offset: self.one(&[0, 0, 4096]),
            length: self.one(&[4096, 20_000, 200_000]),
            flags,
        }
    }

    fn mapread(&mut self) -> Call {
        Call::Mapread {
            map: self.map_number(),
            offset: self.one(&[0, 100, 4096]),
            length: self.one(&[10, 5000, 100_000]),
        }
    }

    fn mapwrite(&mut self) -> Call {
        let length = self.one(&[1, 100, 5000, 50_000]);
        Call::Mapwrite {
            map: self.map_number(),
            offset: self.one(&[0, 100, 4096]),
            data: self.data_of(length),
        }
    }

    fn msync_or_unmap(&mut self) -> Call {
        let map = self.map_number();
        if self.chance(50) {
            return Call::Msync { map };
        }
        self.worker_state().maps[usize::from(map.0)] = false;
        Call::Unmap { map }
    }

    fn lock(&mut self) -> Call {
        let (slot, lock) = (self.slot_of(ProbableKind::File), self.one(Lock::ALL));
        let (start, length) = (self.one(&[0, 10, 4096]), self.one(&[0, 1, 100]));
        match self.rng.random_range(0..3) {
            0 => Call::Flock { slot, lock },
            1 => Call::Ofdlock {
                slot,
                lock,
                start,
                length,
            },
            _ => Call::Lockf {
                slot,
                lock,
                start,
                length,
            },
        }
    }

    fn sync(&mut self) -> Call {
        let slot = self.slot_of(ProbableKind::File);
        match self.rng.random_range(0..10) {
            0..6 => Call::Fsync { slot },
            6..9 => Call::Fdatasync { slot },
            _ => Call::Syncfs { slot },
        }
    }

    fn chdir(&mut self) -> Call {
        let path = self.path(ProbableKind::Dir);
        let (at, name) = self.way(&path);
        if self
            .known
            .iter()
            .any(|(known, sort)| *known == path && *sort == ProbableKind::Dir)
        {
            self.worker_state().cwd = path;
        }
        Call::Chdir { at, name }
    }

    fn fchdir(&mut self) -> Call {
        let slot = self.slot_of(ProbableKind::Dir);
        if let Some((dir, Some(ProbableKind::Dir))) = self.worker_state().slots[usize::from(slot.0)].clone() {
            self.worker_state().cwd = dir;
        }
        Call::Fchdir { slot }
    }

    fn umask_or_getcwd(&mut self) -> Call {
        if self.chance(50) {
            return Call::Getcwd {};
        }
        Call::Umask {
            mode: Bits(self.one(&[0, 0o022, 0o027, 0o077])),
        }
    }

    /// Longer than an object rests before the storage hears of it.
    fn pause(&mut self) -> Call {
        let milliseconds = self.one(&[1, 40, 40]);
        Call::Pause { milliseconds }
    }
}
