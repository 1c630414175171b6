//! POSIX locks against the kernel's: the same random sequence of `F_SETLK`, `F_GETLK` and `close` on several open file
//! descriptions of a real file and on several owners of a shard, and after every step the same locks, piece by piece.
//!
//! Open file descriptions (`F_OFD_SETLK`) stand for owners, because they can live in one process; the kernel keeps their
//! ranges by the same code as those of processes.

mod support;

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;

use elbow_lock::{
    Action, Blocker, FileName, Limits, LockId, LockMode, Owner, Party, PosixRequest, QueryRequest, Refusal, Reply,
    Request, SessionId, Shard, Wait,
};
use rand::Rng;
use rand::rngs::StdRng;
use support::for_each_seed;
use support::naive::{Flaw, Naive, wanted};

const OWNERS: usize = 4;
const STEPS: usize = 60;
/// Bytes that are locked and looked at.
const BYTES: u64 = 24;
const SESSION: SessionId = SessionId(1);

/// The kernel's side: one open file description per owner, and one that never holds anything.
struct Kernel {
    path: tempfile::TempPath,
    owners: Vec<File>,
    onlooker: File,
}

impl Kernel {
    fn new() -> Self {
        let (file, path) = tempfile::NamedTempFile::new().expect("a temporary file").into_parts();
        let owners = (0..OWNERS).map(|_| open(&path)).collect();
        Self {
            path,
            owners,
            onlooker: file,
        }
    }

    /// Whether it was granted.
    fn set(&self, owner: usize, mode: Option<LockMode>, range: &Range<u64>) -> bool {
        let mut lock = flock(mode, range);
        match fcntl(&self.owners[owner], libc::F_OFD_SETLK, &mut lock) {
            Ok(()) => true,
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => false,
            Err(error) => panic!("F_OFD_SETLK: {error}"),
        }
    }

    /// What is in the way.
    fn get(&self, owner: Option<usize>, mode: LockMode, range: &Range<u64>) -> Option<(LockMode, Range<u64>)> {
        let file = owner.map_or(&self.onlooker, |owner| &self.owners[owner]);
        let mut lock = flock(Some(mode), range);
        fcntl(file, libc::F_OFD_GETLK, &mut lock).expect("F_OFD_GETLK");
        let mode = match i32::from(lock.l_type) {
            libc::F_UNLCK => return None,
            libc::F_RDLCK => LockMode::Shared,
            _ => LockMode::Exclusive,
        };
        let start = lock.l_start.cast_unsigned();
        let end = if lock.l_len == 0 {
            u64::MAX
        } else {
            start + lock.l_len.cast_unsigned()
        };
        Some((mode, start..end))
    }

    /// Closes and opens again.
    fn close(&mut self, owner: usize) {
        self.owners[owner] = open(&self.path);
    }
}

#[allow(clippy::disallowed_methods, reason = "the kernel's locks are what is compared with")]
fn open(path: &std::path::Path) -> File {
    File::options()
        .read(true)
        .write(true)
        .open(path)
        .expect("the file is there")
}

fn flock(mode: Option<LockMode>, range: &Range<u64>) -> libc::flock {
    let lock = match mode {
        None => libc::F_UNLCK,
        Some(LockMode::Shared) => libc::F_RDLCK,
        Some(LockMode::Exclusive) => libc::F_WRLCK,
    };
    let len = if range.end == u64::MAX {
        0
    } else {
        range.end - range.start
    };
    libc::flock {
        l_type: lock.try_into().expect("a small number"),
        l_whence: libc::SEEK_SET.try_into().expect("a small number"),
        l_start: range.start.cast_signed(),
        l_len: len.cast_signed(),
        l_pid: 0,
    }
}

fn fcntl(file: &File, command: i32, lock: &mut libc::flock) -> std::io::Result<()> {
    // SAFETY: these commands read and write one `struct flock`, which `lock` is.
    #[allow(unsafe_code)]
    let done = unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(lock)) };
    if done == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// Our side. The naive one lists the pieces that there are.
struct Ours {
    shard: Shard,
    naive: Naive,
}

impl Ours {
    fn new() -> Self {
        let mut ours = Self {
            shard: Shard::new(1, 0, Limits::default()),
            naive: Naive::new(Flaw::None, 1, 0, 0),
        };
        ours.shard.open(SESSION);
        ours.naive.open(SESSION);
        ours
    }

    fn ask(&mut self, request: &Request) -> Option<Reply> {
        let mut out = Vec::new();
        self.naive.handle(0, SESSION, request, &mut out);
        out.clear();
        self.shard.handle(0, SESSION, request.clone(), &mut out);
        match out.pop() {
            Some(Action::Reply(_, reply)) => Some(reply),
            _ => None,
        }
    }

    fn set(&mut self, owner: usize, mode: Option<LockMode>, range: &Range<u64>) -> bool {
        let Range { start, end } = *range;
        let owner = Owner(owner as u64);
        let request = Request::Posix(PosixRequest {
            id: LockId(1),
            owner,
            file: file(),
            start,
            end,
            mode,
            wait: Wait::Try,
        });
        match self.ask(&request) {
            Some(Reply::Granted { .. }) => true,
            Some(Reply::Refused {
                why: Refusal::WouldBlock,
                ..
            }) => false,
            reply => panic!("{request:?} -> {reply:?}"),
        }
    }

    fn get(
        &mut self,
        owner: u64,
        mode: LockMode,
        range: &Range<u64>,
    ) -> (Option<Blocker>, Vec<(LockMode, Range<u64>)>) {
        let Range { start, end } = *range;
        let request = Request::Query(QueryRequest {
            id: LockId(1),
            owner: Owner(owner),
            file: file(),
            mode,
            start,
            end,
        });
        let want = wanted(SESSION, &request).expect("a query");
        let conflicting = self
            .naive
            .held
            .iter()
            .filter(|hold| support::naive::conflict(&hold.want, &want));
        let pieces = conflicting
            .map(|hold| (hold.want.mode, hold.want.bytes[0].clone()))
            .collect();
        match self.ask(&request) {
            Some(Reply::Answer { blocker, .. }) => (blocker, pieces),
            reply => panic!("{request:?} -> {reply:?}"),
        }
    }

    fn close(&mut self, owner: usize) {
        let owner = Owner(owner as u64);
        assert_eq!(
            self.ask(&Request::PosixRelease {
                owner,
                file: Some(file())
            }),
            None
        );
        assert!(!self.naive.holds_any(Party {
            session: SESSION,
            owner
        }));
    }
}

fn file() -> FileName {
    FileName::new(b"the file").expect("a name")
}

fn range(rng: &mut StdRng) -> Range<u64> {
    let start = rng.random_range(0..BYTES);
    if rng.random_bool(0.1) {
        start..u64::MAX
    } else {
        start..start + rng.random_range(1..BYTES / 2)
    }
}

fn compare_answers(kernel: &Kernel, ours: &mut Ours, owner: Option<usize>, mode: LockMode, range: &Range<u64>) {
    let theirs = kernel.get(owner, mode, range);
    let (blocker, pieces) = ours.get(owner.map_or(99, |owner| owner as u64), mode, range);
    let what =
        format!("owner {owner:?} asks for {mode:?} {range:?}: kernel {theirs:?}, ours {blocker:?} of {pieces:?}");
    assert_eq!(theirs.is_some(), blocker.is_some(), "{what}");
    // Of several, each may name another. Both name a piece that there is, with the same ends.
    assert!(theirs.is_none_or(|piece| pieces.contains(&piece)), "{what}");
    assert!(
        blocker.is_none_or(|blocker| pieces.contains(&(blocker.mode, blocker.start..blocker.end))),
        "{what}"
    );
}

#[test]
fn posix_locks_are_those_of_the_kernel() {
    for_each_seed(200, |rng| {
        let (mut kernel, mut ours) = (Kernel::new(), Ours::new());
        let mut granted = 0;
        for _ in 0..STEPS {
            let owner = rng.random_range(0..OWNERS);
            let range = range(rng);
            let mode = [LockMode::Shared, LockMode::Shared, LockMode::Exclusive][rng.random_range(0..3)];
            match rng.random_range(0..20) {
                0 => {
                    kernel.close(owner);
                    ours.close(owner);
                }
                1..4 => compare_answers(&kernel, &mut ours, Some(owner), mode, &range),
                4..9 => assert!(kernel.set(owner, None, &range) && ours.set(owner, None, &range)),
                _ => {
                    let theirs = kernel.set(owner, Some(mode), &range);
                    assert_eq!(
                        theirs,
                        ours.set(owner, Some(mode), &range),
                        "owner {owner} sets {mode:?} {range:?}"
                    );
                    granted += usize::from(theirs);
                }
            }
            ours.shard.check();
            for byte in 0..=2 * BYTES {
                compare_answers(&kernel, &mut ours, None, LockMode::Exclusive, &(byte..byte + 1));
            }
        }
        assert!(granted > 0, "nothing was ever locked");
    });
}
