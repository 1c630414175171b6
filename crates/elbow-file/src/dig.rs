//! `dig`: turns blocks of data that hold nothing but zeros into holes, while others use the file.
//!
//! Nobody can see a difference but in the space taken, *unless* somebody writes into such a block after we have found it
//! empty and before we free it: that write would be lost. There is no system call "punch if zero", so there are three means
//! to keep it from happening, and the first that works is taken:
//!
//! ```text
//!   Compare   the kernel compares the block with a hole and shares the hole, in one step      btrfs, xfs
//!             under its own locks (FIDEDUPERANGE): safe among readers and writers
//!   Lease     a write lease (F_SETLEASE) while a piece is read and punched: nobody else has   ext4, tmpfs, xfs without
//!             the file open, and who opens it waits until we let go                           reflink, f2fs
//!   Promise   the caller says that nobody writes
//! ```
//!
//! With none of them nothing is dug (EBUSY); who has the file open only for a moment is
//! waited for. To a lease, whoever writes through *the same* open file (a duplicate, another thread) is not somebody else. A lease is asked for again before each punch; whoever wants in has it
//! broken, and we let go, wait for a moment until the file is closed again, and otherwise stop with [`Dug::finished`] false. The
//! kernel breaks leases by force after `/proc/sys/fs/lease-break-time` seconds (45): a process that was *stopped* for
//! longer, exactly between its last look and its punch, could lose a write of that time. That is the one gap, and
//! `Compare` does not have it.
//!
//! The content stays the same, and so does mtime (`Promise` excepted); ctime does not.
//!
//! Source: ioctl_fideduperange(2), fcntl(2) on leases, fallocate(1) `--dig-holes`, which has no such means.

mod compare;
mod lease;

use std::io;
use std::ops::Range;
use std::os::fd::AsFd;

use elbow_ranges::RangeSet;
use rustix::fs::OFlags;

use crate::blocks::{Piece, zero_blocks};
use crate::{Errno, ExtentKind, Extents, Handle, RealStorage, Result, Storage};

use crate::stat::regular;
use compare::Donor;
use lease::Lease;

/// Looked at in one step: short enough that who waits for a lease to be broken does not notice, and below what
/// file systems compare in one call (16 MiB).
const PIECE_BYTES: u64 = 1 << 20;
/// How often a piece is looked at again because somebody had the file in between, before we leave it to them.
const AGAIN_MAX: usize = 100;

/// What is known of others who may write to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// Somebody may.
    Unknown,
    /// Nobody does, by promise of the caller. A write at the same time may be lost.
    None,
}

/// What keeps the writes of others from being lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// The kernel compares and frees in one step.
    Compare,
    /// Nobody else has the file open.
    Lease,
    /// The caller says that nobody writes.
    Promise,
}

/// How far it is, and in the end what was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dug {
    /// Size of the file when it began.
    pub size_bytes: u64,
    /// The file up to here was looked at; holes count.
    pub examined_bytes: u64,
    /// Bytes of zeros that are holes now and were data before.
    pub dug_bytes: u64,
    /// How it was kept safe, as far as that is known yet.
    pub means: Means,
    /// Whether it has come to the end. If not, somebody else had opened the file and did not close it again.
    pub finished: bool,
}

/// Turns zero-filled blocks of an open file into holes, and tells of its progress after each piece (1 MiB, or a hole). May be
/// killed at any time. Moves the file offset; uses the lease of the open file, and SIGURG to hear of breaks (ignored by default).
///
/// ```
/// use std::io::Write;
///
/// use elbow_file::dig::{Writers, dig};
///
/// let mut file = tempfile::tempfile()?;
/// file.write_all(&vec![0; 4 << 20])?;
/// file.write_all(b"and something")?;
/// let dug = dig(&file, Writers::None, |dug| eprintln!("{} of {}", dug.examined_bytes, dug.size_bytes))?;
/// assert!(dug.finished && dug.dug_bytes <= dug.size_bytes);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// EBADF: not open for reading and writing. EBUSY: somebody else keeps it open (for 2 s), and this file system cannot compare. EOPNOTSUPP: it
/// cannot punch, or it has no leases that reach all who can write (network file systems). EACCES: a lease needs the owner or
/// CAP_LEASE. EISDIR, ESPIPE, ENODEV: no regular file.
pub fn dig(file: impl AsFd, writers: Writers, progress: impl FnMut(&Dug)) -> io::Result<Dug> {
    Ok(Handle::lent(file.as_fd(), |file| {
        Digging::begin(file, writers)?.run(progress)
    })?)
}

struct Digging<'a> {
    file: &'a Handle,
    writers: Writers,
    guard: Guard<'a>,
    block_bytes: u64,
    piece: Piece,
    dug: Dug,
}

/// The means, with what they need.
enum Guard<'a> {
    Compare(Donor),
    Lease(Lease<'a>),
    Promise,
}

impl<'a> Guard<'a> {
    /// What there is where the kernel cannot compare.
    fn without_compare(file: &'a Handle, writers: Writers) -> Result<Self> {
        match writers {
            Writers::None => Ok(Self::Promise),
            Writers::Unknown => Lease::take(file).map(Self::Lease),
        }
    }

    fn means(&self) -> Means {
        match self {
            Self::Compare(_) => Means::Compare,
            Self::Lease(_) => Means::Lease,
            Self::Promise => Means::Promise,
        }
    }
}

/// What became of a piece, or of a run of zeros in it.
enum Outcome {
    Done,
    /// The means are others now, or somebody had the file in between: what was read may be old.
    Again,
    /// Somebody else has the file open, and keeps it.
    Busy,
}

impl<'a> Digging<'a> {
    fn begin(file: &'a Handle, writers: Writers) -> Result<Self> {
        let stat = RealStorage.stat_handle(file)?;
        regular(stat.kind)?;
        if rustix::fs::fcntl_getfl(file)? & OFlags::RWMODE != OFlags::RDWR {
            return Err(Errno::BADF);
        }
        let block_bytes = RealStorage.space(file)?.fragment_bytes.clamp(512, PIECE_BYTES);
        let guard = match Donor::beside(file.as_fd(), PIECE_BYTES, block_bytes) {
            Ok(donor) => Guard::Compare(donor),
            Err(_) => Guard::without_compare(file, writers)?,
        };
        let dug = Dug {
            size_bytes: stat.size,
            examined_bytes: 0,
            dug_bytes: 0,
            means: guard.means(),
            finished: false,
        };
        Ok(Self {
            file,
            writers,
            guard,
            block_bytes,
            piece: Piece::new(PIECE_BYTES),
            dug,
        })
    }

    fn run(mut self, mut progress: impl FnMut(&Dug)) -> Result<Dug> {
        let mut extents = Extents::new(self.file)?;
        while let Some(extent) = extents.step() {
            let extent = extent?;
            let mut at = extent.range.start;
            while at < extent.range.end {
                let end = match extent.kind {
                    ExtentKind::Hole => extent.range.end,
                    ExtentKind::Data => (at / PIECE_BYTES + 1).saturating_mul(PIECE_BYTES).min(extent.range.end),
                };
                if extent.kind == ExtentKind::Data && !self.dig_piece(at..end)? {
                    return Ok(self.dug);
                }
                self.dug.examined_bytes = end;
                progress(&self.dug);
                at = end;
            }
        }
        self.dug.finished = true;
        Ok(self.dug)
    }

    /// Whether it could be done.
    fn dig_piece(&mut self, range: Range<u64>) -> Result<bool> {
        let mut freed = RangeSet::new();
        for _ in 0..AGAIN_MAX {
            match self.try_piece(range.clone(), &mut freed)? {
                Outcome::Done => return Ok(true),
                Outcome::Again => (),
                Outcome::Busy => break,
            }
        }
        Ok(false)
    }

    /// What was freed when the piece was looked at before reads as zeros again, and is counted no more.
    fn try_piece(&mut self, range: Range<u64>, freed: &mut RangeSet) -> Result<Outcome> {
        if let Guard::Lease(lease) = &mut self.guard
            && !lease.hold()?
        {
            return Ok(Outcome::Busy);
        }
        let bytes = self.piece.read(&RealStorage, self.file, range.clone())?;
        let zeros = zero_blocks(range.start, bytes, self.block_bytes);
        for run in &zeros {
            match self.free(&run)? {
                Some(bytes) => self.dug.dug_bytes += bytes.min(add_new(freed, run)),
                None => return Ok(Outcome::Again),
            }
        }
        Ok(Outcome::Done)
    }

    /// Frees a run of zeros; gives the bytes freed, none of them when somebody has written there. `None` when what was read
    /// has to be read again.
    fn free(&mut self, run: &Range<u64>) -> Result<Option<u64>> {
        match &mut self.guard {
            Guard::Compare(donor) => {
                let shared = donor.share(self.file, run);
                self.after_sharing(run, shared)
            }
            Guard::Lease(lease) if !lease.is_held() => Ok(None),
            Guard::Lease(lease) => {
                lease.punched();
                self.punch(run).map(Some)
            }
            Guard::Promise => self.punch(run).map(Some),
        }
    }

    fn after_sharing(&mut self, run: &Range<u64>, shared: Result<u64>) -> Result<Option<u64>> {
        match shared {
            // The last, partly used block of a file that has grown since.
            Err(Errno::INVAL) if !run.end.is_multiple_of(self.block_bytes) => Ok(Some(0)),
            Err(errno) if compare::cannot(errno) && self.dug.dug_bytes == 0 => {
                self.guard = Guard::without_compare(self.file, self.writers)?;
                self.dug.means = self.guard.means();
                Ok(None)
            }
            shared => shared.map(Some),
        }
    }

    /// Punches a run that nobody else can write to meanwhile. A full disk may need to let its journal go first.
    fn punch(&self, run: &Range<u64>) -> Result<u64> {
        let length = self.whole_end(run)? - run.start;
        match RealStorage.punch(self.file, run.start, length) {
            Err(Errno::NOSPC) => {
                RealStorage.sync_all(self.file)?;
                RealStorage.punch(self.file, run.start, length)?;
            }
            other => other?,
        }
        Ok(run.end - run.start)
    }

    /// Where the last block of a run ends: the last, partly used block of the file is freed with it, if it still is the last. The file
    /// may have grown before we had the lease.
    fn whole_end(&self, run: &Range<u64>) -> Result<u64> {
        let whole = run.end.next_multiple_of(self.block_bytes);
        match whole > run.end && RealStorage.stat_handle(self.file)?.size == run.end {
            true => Ok(whole),
            false => Ok(run.end),
        }
    }
}

/// Adds a range to a set; how many of its bytes were not in there.
fn add_new(set: &mut RangeSet, range: Range<u64>) -> u64 {
    let before = set.total_bytes();
    set.insert(range.start, range.end);
    set.total_bytes() - before
}
