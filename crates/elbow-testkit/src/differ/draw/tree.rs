//! Random old trees.

use rand::Rng;

use super::super::case::Runner;
use super::super::old::Old;
use super::super::word::{Bits, Data, Name, Which};
use super::{CaseGenerator, NAMES, ORDINARY, ORDINARY_GROUP, ProbableKind, SHARED_GROUP, USERS, name};

/// Lists for directories and files, by who is named in them.
pub(super) const LISTS: [&str; 7] = [
    "u::rwx,g::r-x,o::---",
    "u::rw-,u1001:rwx,g::r--,m::rw-,o::r--",
    "u::rwx,u1002:r-x,g::---,m::r-x,o::---",
    "u::rw-,g::rw-,g2000:rwx,m::rwx,o::---",
    "u::r--,u1001:r--,u1002:rw-,g::r--,g2000:---,m::---,o::rwx",
    "u::---,g::---,o::---",
    "u::rwx,u1:rwx,g::rwx,g1998:rwx,m::rwx,o::r-x",
];

/// Names of attributes.
pub(super) const KEYS: [&str; 5] = ["user.a", "user.b", "user.longer.name", "trusted.t", "security.s"];

/// More than an object of a streamed file has: 4 MiB.
const LARGE_BYTES: std::ops::Range<u64> = (4 << 20) + 1..(5 << 20);

impl CaseGenerator {
    pub(super) fn old_tree(&mut self, runner: Runner) -> Vec<Old> {
        let mut old = vec![self.root_of(runner)];
        for _ in 0..self.rng.random_range(1..6) {
            let dir = self.dir(runner);
            old.push(dir);
        }
        for _ in 0..self.rng.random_range(1..9) {
            old.extend(self.file(runner));
        }
        for _ in 0..self.rng.random_range(0..4) {
            let other = self.other(runner);
            old.push(other);
        }
        if self.storage.has_attributes() {
            for _ in 0..self.rng.random_range(0..5) {
                let attribute = self.attribute();
                // Who runs the job can work in its directory.
                if runner == Runner::Root || !is_access_list_of_root(&attribute) {
                    old.push(attribute);
                }
            }
        }
        old
    }

    /// The directory of the case is one that the runner may work in.
    fn root_of(&mut self, runner: Runner) -> Old {
        let (uid, gid) = match (self.storage.server_ids(), runner) {
            (Some(ids), _) => ids,
            (None, Runner::Root) => self.one(&[(0, 0), (USERS[0], USERS[0]), (USERS[1], SHARED_GROUP)]),
            (None, Runner::User) => (ORDINARY, ORDINARY),
        };
        Old::Dir {
            name: Name::of("."),
            mode: Bits(self.one(&[0o755, 0o755, 0o777, 0o2775, 0o1777, 0o700])),
            uid,
            gid,
        }
    }

    fn owner(&mut self, runner: Runner) -> (u32, u32) {
        let own = self.storage.server_ids();
        match (own, runner) {
            (Some(ids), _) => self.one(&[ids, ids, ids, (0, 0)]),
            (None, Runner::Root) => self.one(&[
                (0, 0),
                (USERS[0], USERS[0]),
                (USERS[1], USERS[1]),
                (USERS[0], SHARED_GROUP),
            ]),
            (None, Runner::User) => self.one(&[
                (ORDINARY, ORDINARY),
                (ORDINARY, ORDINARY),
                (ORDINARY, ORDINARY_GROUP),
                (0, ORDINARY_GROUP),
                (0, 0),
            ]),
        }
    }

    /// A name that nothing has, in a directory that exists.
    fn free_name(&mut self) -> String {
        loop {
            let (dir, leaf) = (self.existing(ProbableKind::Dir), self.one(&NAMES));
            let path = if dir == "." {
                leaf.to_owned()
            } else {
                format!("{dir}/{leaf}")
            };
            if !self.known.iter().any(|(known, _)| *known == path) {
                return path;
            }
        }
    }

    fn dir(&mut self, runner: Runner) -> Old {
        let (path, (uid, gid)) = (self.free_name(), self.owner(runner));
        self.learn(&path, ProbableKind::Dir);
        let mode = self.one(&[
            0o755, 0o755, 0o755, 0o700, 0o777, 0o2775, 0o1777, 0o555, 0o711, 0o000, 0o333,
        ]);
        let (name, mode) = (name(&path), Bits(mode));
        match self.storage.has_subvolumes() && self.chance(25) {
            true => Old::Subvolume { name, mode, uid, gid },
            false => Old::Dir { name, mode, uid, gid },
        }
    }

    fn file(&mut self, runner: Runner) -> Vec<Old> {
        let (path, (uid, gid)) = (self.free_name(), self.owner(runner));
        self.learn(&path, ProbableKind::File);
        let length = self.size();
        let file = Old::File {
            name: name(&path),
            mode: self.mode(),
            uid,
            gid,
            data: self.data_of(length),
        };
        let mut all = vec![file];
        if self.chance(20) {
            let offset = length + self.rng.random_range(0..300_000);
            let data = self.data_of(5000);
            all.push(Old::Data {
                name: name(&path),
                offset,
                data,
            });
        }
        if self.chance(10) {
            let size = length + self.rng.random_range(0..1_000_000);
            all.push(Old::Size {
                name: name(&path),
                size,
            });
        }
        all
    }

    /// Mostly small.
    pub(super) fn size(&mut self) -> u64 {
        match self.rng.random_range(0..100) {
            0..10 => 0,
            10..60 => self.rng.random_range(1..200),
            60..75 => self.rng.random_range(4095..4098),
            75..97 => self.rng.random_range(200..100_000),
            _ if self.large_left > 0 => {
                self.large_left -= 1;
                self.rng.random_range(LARGE_BYTES)
            }
            _ => 70_000,
        }
    }

    pub(super) fn data_of(&mut self, length: u64) -> Data {
        Data {
            length,
            seed: self.rng.random_range(1..1000),
        }
    }

    fn other(&mut self, runner: Runner) -> Old {
        let (path, (uid, gid)) = (self.free_name(), self.owner(runner));
        match self.rng.random_range(0..10) {
            0..4 if self.storage.keeps_links() => {
                let of = self.existing(ProbableKind::File);
                self.learn(&path, ProbableKind::File);
                Old::Link {
                    name: name(&path),
                    of: name(&of),
                }
            }
            0..9 => {
                let target = self.target();
                self.learn(&path, ProbableKind::Link);
                Old::Symlink {
                    name: name(&path),
                    target,
                    uid,
                    gid,
                }
            }
            _ => {
                self.learn(&path, ProbableKind::Other);
                let mode = self.mode();
                Old::Fifo {
                    name: name(&path),
                    mode,
                    uid,
                    gid,
                }
            }
        }
    }

    /// Where a symbolic link leads: never above the directory of the case.
    pub(super) fn target(&mut self) -> Name {
        let path = if self.chance(70) {
            self.anything()
        } else {
            self.name_in_dir()
        };
        let path = path.rsplit('/').next().unwrap_or(".").to_owned();
        if path == ".." || path.is_empty() {
            Name::of("nowhere")
        } else {
            name(&path)
        }
    }

    fn attribute(&mut self) -> Old {
        if self.chance(50) {
            let (path, key, length) = (self.anything(), self.one(&KEYS[..3]), self.one(&[0, 5, 300]));
            let value = self.data_of(length);
            return Old::Xattr {
                name: name(&path),
                key: Name::of(key),
                value,
            };
        }
        let which = self.one(&[Which::Access, Which::Default, Which::Default]);
        let path = if which == Which::Default {
            self.existing(ProbableKind::Dir)
        } else {
            self.anything()
        };
        Old::Acl {
            name: name(&path),
            which,
            entries: Name::of(self.one(&LISTS)),
        }
    }
}

fn is_access_list_of_root(old: &Old) -> bool {
    matches!(old, Old::Acl { name, which: Which::Access, .. } if *name == Name::of("."))
}
