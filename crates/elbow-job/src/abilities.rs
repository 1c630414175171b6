//! What a storage refuses as a kind: extended attributes, pipes, links, owners, names, sizes.
//!
//! A job acknowledges before it asks, so that what its storage refuses would be found too late: the command has gone on, and
//! the job can only roll back (`mv` has removed its source by then). What can be refused *as a kind*, whatever it is done to,
//! is tried once, in the job's own directory, when the command first asks for it; the answer holds for the job. What a storage
//! does to the modes of what is created (a server's umask) is learned in the same way.
//!
//! ```text
//!   operation --needs--> Ability --known?--> answered at once
//!                           └─unknown─> Fetch::Ability: one call to the storage, learned, asked again
//! ```
//!
//! Invariant: an ability is asked for once, unless the trial failed for a reason that may pass (a full disk, a lost connection).
//! Not here: permissions, which the kernel checks, and space, which is reserved.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use elbow_file::{Access, Errno, FileType, Handle, Storage};
use tracing::debug;

use crate::behaviours::{self, Behaviour};
use crate::model::ACCESS_ACL;

/// The object that is tried on, in the job's own directory.
const SUBJECT: &str = "probe-file";
const SUBJECT_MODE: u32 = 0o600;
/// Files up to this size can be had everywhere.
pub(crate) const SIZE_EVERYWHERE: u64 = u32::MAX as u64;
/// Sizes that are tried instead of the one that is asked for, so that a growing file asks seldom: ext4's limit, and the highest.
const SIZE_STEPS: [u64; 2] = [(1 << 44) - 4096, i64::MAX as u64];
/// So many bytes of extended attributes can be had wherever there are any.
const XATTRS_EVERYWHERE_BYTES: u64 = 1000;
/// Tried first: who takes this takes all that Linux lets anybody set.
const XATTRS_MANY_BYTES: u64 = 60_000;
/// What an attribute takes beside its name and value (ext4, on disk).
const XATTR_OVERHEAD_BYTES: u64 = 16;
/// Targets of symbolic links up to this many bytes can be had everywhere: XFS, and ext4 with blocks of 1 KiB, take one more.
const TARGET_EVERYWHERE_BYTES: usize = 1022;
/// Tried first: no target is longer (`PATH_MAX` without the NUL).
const TARGET_LONGEST_BYTES: usize = 4095;
/// Names up to this many bytes can be had wherever statvfs(3) says so.
const NAME_EVERYWHERE_BYTES: usize = 255;
/// What file systems of other worlds do not have in names.
const FOREIGN: &[u8] = b"\\:*?\"<>|";

/// Something that a storage may refuse, whatever it is done to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ability {
    /// Extended attributes of a namespace (`user`, `trusted`, `security`).
    Xattr(&'static str),
    /// POSIX access control lists.
    Acl,
    /// Symbolic links, pipes, sockets, devices.
    Node(FileType),
    /// More than one name for a file.
    Link,
    /// This owner and group.
    Owner(u32, u32),
    /// What modes are kept at all, and what is taken from them at a creation.
    Modes,
    /// This mode, where not every one is kept.
    Mode(u32),
    /// Files of this size.
    Size(u64),
    /// So many bytes of extended attributes on one object, with what ext4 needs for each.
    XattrBytes(u64),
    /// Targets of symbolic links of so many bytes.
    Target(usize),
    /// Names like this one.
    Name(OsString),
    /// Nothing that may be refused, but done in one of two ways.
    Behaviour(Behaviour),
}

/// What becomes of modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Modes {
    /// Bits that are taken from the mode at a creation.
    pub(crate) cut: u32,
    /// A mode that is set is kept as it is.
    pub(crate) kept: bool,
}

/// What is known of a storage.
#[derive(Debug, Default)]
pub(crate) struct Abilities {
    answers: HashMap<Ability, Result<(), Errno>>,
    behaviours: HashMap<Behaviour, bool>,
    pub(crate) modes: Option<Modes>,
    size_had: u64,
    xattr_bytes_had: u64,
    target_had: usize,
    /// The shortest target that was refused.
    target_refused: Option<usize>,
}

/// What a trial gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trial {
    Answer(Result<(), Errno>),
    Modes(Modes),
    Behaviour(Behaviour, bool),
}

impl Abilities {
    /// In which way something is done, if that is known.
    pub(crate) fn behaviour(&self, behaviour: Behaviour) -> Option<bool> {
        self.behaviours.get(&behaviour).copied()
    }

    /// The answer, if it is known: otherwise what to try.
    pub(crate) fn ask(&self, ability: &Ability) -> Result<Result<(), Errno>, Ability> {
        match ability {
            Ability::Size(size) => self.ask_size(*size),
            Ability::XattrBytes(bytes) => self.ask_xattr_bytes(*bytes),
            Ability::Target(bytes) => self.ask_target(*bytes),
            Ability::Mode(_) => match self.modes {
                None => Err(Ability::Modes),
                Some(Modes { kept: true, .. }) => Ok(Ok(())),
                Some(_) => self.ask_exactly(ability),
            },
            Ability::Modes => self.modes.map(|_| Ok(())).ok_or(Ability::Modes),
            _ => self.ask_exactly(ability),
        }
    }

    fn ask_exactly(&self, ability: &Ability) -> Result<Result<(), Errno>, Ability> {
        self.answers.get(ability).copied().ok_or_else(|| ability.clone())
    }

    fn ask_size(&self, size: u64) -> Result<Result<(), Errno>, Ability> {
        if size <= self.size_had.max(SIZE_EVERYWHERE) {
            return Ok(Ok(()));
        }
        let step = SIZE_STEPS.into_iter().find(|step| size <= *step).unwrap_or(size);
        let refused = |size| self.answers.get(&Ability::Size(size)).is_some_and(Result::is_err);
        let asked = Ability::Size(if refused(step) { size } else { step });
        match self.answers.get(&asked) {
            Some(answer) => Ok(*answer),
            None => Err(asked),
        }
    }

    fn ask_xattr_bytes(&self, bytes: u64) -> Result<Result<(), Errno>, Ability> {
        if bytes <= self.xattr_bytes_had.max(XATTRS_EVERYWHERE_BYTES) {
            return Ok(Ok(()));
        }
        let many = Ability::XattrBytes(XATTRS_MANY_BYTES);
        match self.answers.get(&many) {
            None => Err(many),
            Some(Ok(())) => Ok(Ok(())),
            Some(Err(_)) => self.ask_exactly(&Ability::XattrBytes(bytes)),
        }
    }

    fn ask_target(&self, bytes: usize) -> Result<Result<(), Errno>, Ability> {
        if bytes <= self.target_had.max(TARGET_EVERYWHERE_BYTES) {
            return Ok(Ok(()));
        }
        match self.target_refused {
            None => Err(Ability::Target(TARGET_LONGEST_BYTES)),
            Some(refused) if bytes >= refused => Ok(Err(Errno::NAMETOOLONG)),
            Some(_) => Err(Ability::Target(bytes)),
        }
    }

    /// Takes a trial into account. An error that is not about the kind is not remembered, but given back.
    pub(crate) fn learn(&mut self, ability: &Ability, trial: Trial) -> Result<(), Errno> {
        let answer = match trial {
            Trial::Modes(modes) => {
                self.modes.get_or_insert(modes);
                return Ok(());
            }
            Trial::Behaviour(behaviour, is_so) => {
                self.behaviours.insert(behaviour, is_so);
                return Ok(());
            }
            Trial::Answer(answer) => answer,
        };
        if let Err(errno) = answer
            && (!is_refusal(errno) || *ability == Ability::Modes)
        {
            // Nothing is remembered of modes that cannot be tried: it would not be found, and they would be asked for for ever.
            return Err(errno);
        }
        if let (Ability::Size(size), Ok(())) = (ability, answer) {
            self.size_had = self.size_had.max(*size);
        }
        if let (Ability::XattrBytes(bytes), Ok(())) = (ability, answer) {
            self.xattr_bytes_had = self.xattr_bytes_had.max(*bytes);
        }
        if let Ability::Target(bytes) = ability {
            match answer {
                Ok(()) => self.target_had = self.target_had.max(*bytes),
                Err(_) => self.target_refused = Some(self.target_refused.map_or(*bytes, |least| least.min(*bytes))),
            }
        }
        self.answers.insert(ability.clone(), answer);
        Ok(())
    }
}

/// Does a storage say by this errno that it has no such thing?
fn is_refusal(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::PERM
            | Errno::ACCESS
            | Errno::OPNOTSUPP
            | Errno::NOSYS
            | Errno::INVAL
            | Errno::MLINK
            | Errno::NAMETOOLONG
            | Errno::ILSEQ
            | Errno::FBIG
            | Errno::TOOBIG
            | Errno::RANGE
            | Errno::NOTTY
    )
}

/// What extended attributes take together.
pub(crate) fn xattr_bytes<'a>(xattrs: impl Iterator<Item = (&'a OsStr, usize)>) -> u64 {
    let padded = |bytes: usize| bytes.next_multiple_of(4) as u64;
    xattrs
        .map(|(key, value)| {
            let short = key
                .as_bytes()
                .splitn(2, |byte| *byte == b'.')
                .nth(1)
                .unwrap_or_default();
            XATTR_OVERHEAD_BYTES + padded(short.len()) + padded(value)
        })
        .sum()
}

/// The ability that a name asks for; `None` for names that can be had everywhere.
pub(crate) fn of_name(name: &OsStr) -> Option<Ability> {
    let bytes = name.as_bytes();
    if bytes.len() > NAME_EVERYWHERE_BYTES {
        return Some(Ability::Name(name.to_owned()));
    }
    let is_foreign = |byte: &u8| *byte < b' ' || FOREIGN.contains(byte);
    let mut foreign: Vec<u8> = bytes.iter().copied().filter(is_foreign).collect();
    foreign.sort_unstable();
    foreign.dedup();
    if name.to_str().is_none() {
        foreign.push(0xff);
    }
    let sample = || Ability::Name(OsString::from_vec([b"probe-name", &foreign[..]].concat()));
    (!foreign.is_empty()).then(sample)
}

/// Tries something in the job's own directory. `inherited`: the mode that a file has there that is created with 777, by the
/// default ACL that it inherits.
pub(crate) fn probe(storage: &dyn Storage, job: &Handle, ability: &Ability, inherited: u32) -> Trial {
    debug!(?ability, "asks the storage what it can do");
    match ability {
        Ability::Modes => probe_modes(storage, job, inherited).map_or_else(|e| Trial::Answer(Err(e)), Trial::Modes),
        Ability::Behaviour(behaviour) => Trial::Behaviour(*behaviour, behaviours::probe(storage, job, *behaviour)),
        ability => Trial::Answer(try_out(storage, job, ability)),
    }
}

fn try_out(storage: &dyn Storage, job: &Handle, ability: &Ability) -> Result<(), Errno> {
    let subject = OsStr::new(SUBJECT);
    let attempt = || match ability {
        Ability::Xattr(namespace) => storage.set_xattr(job, subject, &xattr_of(namespace), b"1"),
        Ability::Acl => storage.set_xattr(job, subject, OsStr::new(ACCESS_ACL), &sample_acl()),
        Ability::Node(FileType::Symlink) => storage.symlink(OsStr::new("missing"), job, &named("symlink")),
        Ability::Node(kind) => storage.mknod(job, &named(&format!("{kind:?}")), *kind, SUBJECT_MODE, NULL_DEVICE),
        Ability::Link => storage.link(job, subject, job, &named("link")),
        Ability::Owner(uid, gid) => storage.chown(job, subject, Some(*uid), Some(*gid)),
        Ability::Mode(mode) => storage.chmod(job, subject, *mode),
        Ability::XattrBytes(bytes) => try_xattr_bytes(storage, job, *bytes),
        Ability::Size(size) => try_size(storage, job, *size),
        Ability::Target(bytes) => try_target(storage, job, *bytes),
        Ability::Name(name) => storage
            .create(job, name, SUBJECT_MODE)
            .and_then(|file| storage.close(&file)),
        Ability::Modes | Ability::Behaviour(_) => Ok(()),
    };
    let needs_subject = !matches!(ability, Ability::Node(_) | Ability::Name(_) | Ability::Target(_));
    let tried = match attempt() {
        Err(Errno::NOENT) if needs_subject => {
            exists_is_fine(
                storage
                    .create(job, subject, SUBJECT_MODE)
                    .and_then(|file| storage.close(&file)),
            )?;
            attempt()
        }
        tried => tried,
    };
    exists_is_fine(tried) // another thread has tried it at this moment
}

fn exists_is_fine(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

/// `/dev/null`: 1:3. Device 0:0 is more than a device to overlayfs.
const NULL_DEVICE: u64 = 0x0103;

fn named(what: &str) -> OsString {
    OsString::from(format!("probe-{what}"))
}

fn xattr_of(namespace: &str) -> OsString {
    OsString::from(format!("{namespace}.elbow-probe"))
}

/// An ACL that is more than a mode: with an entry for a user, and a mask.
fn sample_acl() -> Vec<u8> {
    const VERSION: u32 = 2;
    const NOBODY: u32 = u32::MAX;
    let entries: [(u16, u16, u32); 5] = [
        (1, 6, NOBODY),
        (2, 4, 0),
        (4, 0, NOBODY),
        (0x10, 4, NOBODY),
        (0x20, 0, NOBODY),
    ];
    let entry = |(tag, permissions, id): &(u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    [VERSION.to_le_bytes().to_vec(), entries.iter().flat_map(entry).collect()].concat()
}

/// One attribute that takes so much, on an object without others. A full disk says the same as an object that has no more
/// room, so that it is not remembered, but for the large one, which is not asked for its own sake.
fn try_xattr_bytes(storage: &dyn Storage, job: &Handle, bytes: u64) -> Result<(), Errno> {
    let name = named("xattrs");
    let key = OsStr::new("user.room");
    let value = vec![b'x'; (bytes - xattr_bytes([(key, 0)].into_iter())) as usize];
    exists_is_fine(
        storage
            .create(job, &name, SUBJECT_MODE)
            .and_then(|file| storage.close(&file)),
    )?;
    let tried = storage.set_xattr(job, &name, key, &value);
    if bytes == XATTRS_MANY_BYTES {
        return tried.map_err(|_| Errno::TOOBIG);
    }
    tried
}

/// Each length under a name of its own, for a link that is there says nothing of another one.
fn try_target(storage: &dyn Storage, job: &Handle, bytes: usize) -> Result<(), Errno> {
    let target = OsString::from("x".repeat(bytes));
    storage.symlink(&target, job, &named(&format!("target-{bytes}")))
}

/// A size that cannot be had for want of room is not one that the storage refuses.
fn try_size(storage: &dyn Storage, job: &Handle, size: u64) -> Result<(), Errno> {
    let file = storage.open(job, OsStr::new(SUBJECT), Access::ReadWrite)?;
    let tried = match storage.truncate(&file, size) {
        Err(Errno::FBIG | Errno::INVAL) => Err(Errno::FBIG),
        _ => Ok(()),
    };
    storage.truncate(&file, 0)?;
    storage.close(&file)?;
    tried
}

fn probe_modes(storage: &dyn Storage, job: &Handle, inherited: u32) -> Result<Modes, Errno> {
    const ALL: u32 = 0o777;
    /// One that no mask of a mount gives.
    const ODD: u32 = 0o604;
    // Another thread may try it at this moment.
    let name = behaviours::named("modes");
    let file = match storage.create(job, &name, ALL) {
        // Of an attempt before, by a process that died over it.
        Err(Errno::EXIST) => {
            storage.unlink(job, &name)?;
            storage.create(job, &name, ALL)?
        }
        file => file?,
    };
    let created = storage.stat_handle(&file)?.mode;
    let set = storage.chmod_handle(&file, ODD);
    let kept = set.is_ok() && storage.stat_handle(&file)?.mode == ODD;
    storage.close(&file)?;
    Ok(Modes {
        cut: inherited & !created & ALL,
        kept,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use elbow_file::RealStorage;

    use super::*;

    /// All had one name: two that tried at once took it from each other, and a `chmod` failed with EEXIST or ENOENT.
    #[test]
    fn modes_are_tried_by_many_threads_at_once() {
        const THREADS: usize = 8;
        let place = tempfile::tempdir().expect("a directory");
        let job = RealStorage::open_root(place.path()).expect("a root");
        let together = Barrier::new(THREADS);
        let prober = || {
            together.wait();
            (0..200)
                .map(|_| probe(&RealStorage, &job, &Ability::Modes, 0))
                .collect()
        };
        let trials: Vec<Vec<Trial>> = std::thread::scope(|scope| {
            let probers: Vec<_> = (0..THREADS).map(|_| scope.spawn(prober)).collect();
            probers
                .into_iter()
                .map(|prober| prober.join().expect("trials"))
                .collect()
        });
        for trial in trials.concat() {
            assert!(matches!(trial, Trial::Modes(Modes { kept: true, .. })), "{trial:?}");
        }
    }

    #[test]
    fn names_of_other_worlds_are_asked_for_by_what_is_foreign_in_them() {
        let sample = |name: &[u8]| of_name(OsStr::from_bytes(name));
        for name in ["a", "Makefile", "with space", "ümlaut", "a.b~"] {
            assert_eq!(sample(name.as_bytes()), None, "{name}");
        }
        assert_eq!(sample(b"File::Spec.3pm"), sample(b"a:b"));
        assert_ne!(sample(b"a:b"), sample(b"a:b?"));
        assert_eq!(sample(b"caf\xe9"), sample(b"\xff\xfe"));
        let long = [b'x'; 256];
        assert_eq!(sample(&long), Some(Ability::Name(OsStr::from_bytes(&long).to_owned())));
    }

    #[test]
    fn a_size_is_tried_by_large_steps_and_exactly_where_these_are_refused() {
        let mut known = Abilities::default();
        let size = 1 << 40;
        assert_eq!(known.ask(&Ability::Size(1 << 20)), Ok(Ok(())));
        let step = known.ask(&Ability::Size(size)).expect_err("not known yet");
        assert_eq!(step, Ability::Size(SIZE_STEPS[0]));
        known
            .learn(&step, Trial::Answer(Err(Errno::FBIG)))
            .expect("a refusal is learned");
        let exact = known.ask(&Ability::Size(size)).expect_err("only the step is known");
        assert_eq!(exact, Ability::Size(size));
        known.learn(&exact, Trial::Answer(Ok(()))).expect("learned");
        assert_eq!(known.ask(&Ability::Size(size - 1)), Ok(Ok(())));
        assert!(known.ask(&Ability::Size(size + 1)).is_err());
    }

    /// A target of 1024 bytes was acknowledged on XFS, which takes 1023, and the job could never be published.
    #[test]
    fn a_target_is_tried_at_its_longest_and_exactly_where_that_is_refused() {
        let mut known = Abilities::default();
        let longest = Ability::Target(TARGET_LONGEST_BYTES);
        assert_eq!(known.ask(&Ability::Target(1022)), Ok(Ok(())));
        assert_eq!(known.ask(&Ability::Target(1023)), Err(longest.clone()));
        let refused = Trial::Answer(Err(Errno::NAMETOOLONG));
        known.learn(&longest, refused).expect("learned");
        assert_eq!(known.ask(&Ability::Target(1024)), Err(Ability::Target(1024)));
        known.learn(&Ability::Target(1024), refused).expect("learned");
        known
            .learn(&Ability::Target(1023), Trial::Answer(Ok(())))
            .expect("learned");
        assert_eq!(known.ask(&Ability::Target(1023)), Ok(Ok(())));
        assert_eq!(known.ask(&Ability::Target(2000)), Ok(Err(Errno::NAMETOOLONG)));
        let mut known = Abilities::default();
        known.learn(&longest, Trial::Answer(Ok(()))).expect("learned");
        assert_eq!(known.ask(&Ability::Target(2000)), Ok(Ok(())));
    }

    #[test]
    fn what_may_pass_is_not_learned() {
        let mut known = Abilities::default();
        assert_eq!(
            known.learn(&Ability::Link, Trial::Answer(Err(Errno::NOSPC))),
            Err(Errno::NOSPC)
        );
        assert_eq!(known.ask(&Ability::Link), Err(Ability::Link));
        assert_eq!(known.learn(&Ability::Link, Trial::Answer(Err(Errno::PERM))), Ok(()));
        assert_eq!(known.ask(&Ability::Link), Ok(Err(Errno::PERM)));
    }

    /// It was learned as if it were one, and not found where modes are looked for: who asked asked for ever.
    #[test]
    fn a_trial_of_modes_that_is_refused_is_no_answer() {
        let mut known = Abilities::default();
        for errno in [Errno::ACCESS, Errno::PERM, Errno::INVAL, Errno::IO] {
            let learned = known.learn(&Ability::Modes, Trial::Answer(Err(errno)));
            assert_eq!(learned, Err(errno));
            assert_eq!(known.ask(&Ability::Mode(0o600)), Err(Ability::Modes));
        }
        let modes = Modes { cut: 0, kept: true };
        assert_eq!(known.learn(&Ability::Modes, Trial::Modes(modes)), Ok(()));
        assert_eq!(known.ask(&Ability::Mode(0o600)), Ok(Ok(())));
    }
}
