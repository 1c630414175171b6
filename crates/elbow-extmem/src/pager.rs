//! Memory larger than memory: a region of bytes of which only so many are resident.
//!
//! ```text
//!   threads of the program ──> region ──fault──> thread of the pager ──> chunks ──> block store
//!                                │  <──content──        │               (resident)
//!                                └── so many bytes resident at most
//! ```
//!
//! A chunk of 64 KiB that nobody has touched, or that was discarded, is nowhere; one that was written is in memory, in
//! a block of the store, or in both. When the budget is used up the chunk that came first leaves: if it was changed it
//! is written, if it is all zeros its block is freed. So the store's file is as large as what is live and has left.
//!
//! Invariants: more than the budget is resident only if a chunk could not be written ([`PagedMemory::failure`] says
//! why); then nothing is lost, and it is tried again at the next fault.
//!
//! Not here: anything that outlives the process. The file has no name. A child process does not have the memory.
//!
//! Where a chunk cannot be read back the process ends with a message, as it does (by SIGBUS) where a mapped file cannot
//! be read. Without the privilege to serve faults in system calls ([`PagedMemory::serves_system_calls`]), a system
//! call into bytes that are not resident fails with EFAULT: read such bytes first, or go through a buffer.
//!
//! Source: Vengroff & Kotz, *A Holesome File System*, section 4.2; userfaultfd(2).

mod error;
mod faults;
mod resident;

use std::ffi::OsString;
use std::ops::{Deref, DerefMut, Range};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use elbow_file::{Errno, RealStorage, Storage};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::store::{BlockStore, Options, StoreError};
use faults::{Faults, Region};
use resident::{ResidentSet, ServeError};

pub use error::PagerError;
pub use resident::{CHUNK_BYTES, PagerStats};

/// Chunks that one instruction of each of some threads may need at once.
const RESIDENT_CHUNKS_MIN: usize = 16;

/// Bytes, zeros at first, of which only so many are resident.
///
/// ```no_run
/// use elbow_extmem::pager::PagedMemory;
///
/// let mut memory = PagedMemory::new(1 << 30, 64 << 20)?;
/// memory[123_456_789] = 1;
/// memory.discard(0..1 << 30)?;
/// assert_eq!(memory[123_456_789], 0);
/// # Ok::<(), elbow_extmem::pager::PagerError>(())
/// ```
pub struct PagedMemory {
    len: usize,
    shared: Arc<Shared>,
    server: Option<JoinHandle<()>>,
}

struct Shared {
    faults: Faults,
    region: Region,
    resident: Mutex<ResidentSet>,
    stop: OwnedFd,
}

impl PagedMemory {
    /// Memory of `len` bytes, `resident_bytes` of them in memory at most, the others in a nameless file among the
    /// temporary ones. Both are rounded to 64 KiB.
    ///
    /// # Errors
    /// Where userfaultfd is not permitted; those of making the file; a budget below 1 MiB.
    pub fn new(len: usize, resident_bytes: usize) -> Result<Self, PagerError> {
        Self::new_in(&std::env::temp_dir(), len, resident_bytes)
    }

    /// The same with the file in a directory of choice.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn new_in(dir: &Path, len: usize, resident_bytes: usize) -> Result<Self, PagerError> {
        Self::in_store(nameless_store(dir)?, len, resident_bytes)
    }

    /// The same with what is not resident in a store of the caller's, which is empty and has blocks of [`CHUNK_BYTES`].
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// # Panics
    /// When the store is not so.
    pub fn in_store(store: BlockStore, len: usize, resident_bytes: usize) -> Result<Self, PagerError> {
        assert!(
            store.is_empty() && store.block_bytes() == CHUNK_BYTES,
            "a store for chunks, and for nothing else"
        );
        let most = resident_bytes / CHUNK_BYTES;
        let mapped = len.checked_next_multiple_of(CHUNK_BYTES).filter(|_| len > 0);
        let (Some(mapped), true) = (mapped, most >= RESIDENT_CHUNKS_MIN) else {
            return Err(PagerError::Sizes { len, resident_bytes });
        };
        let system = |what| move |errno| PagerError::System { what, errno };
        let faults = Faults::new()?;
        let region = Region::new(mapped).map_err(system("map memory"))?;
        faults.register(region.address, region.length)?;
        let resident = ResidentSet::new(&region, most, store);
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(system("make an eventfd"))?;
        let shared = Arc::new(Shared {
            faults,
            region,
            resident: Mutex::new(resident),
            stop,
        });
        let served = Arc::clone(&shared);
        let server = std::thread::Builder::new()
            .name("elbow-pager".into())
            .spawn(move || served.serve());
        let server = server.map_err(|error| PagerError::System {
            what: "start a thread",
            errno: Errno::from_io_error(&error).unwrap_or(Errno::AGAIN),
        })?;
        Ok(Self {
            len,
            shared,
            server: Some(server),
        })
    }

    /// Makes a part zeros again. What it took, in memory and in the store, is freed.
    ///
    /// # Errors
    /// Those of the store.
    ///
    /// # Panics
    /// When the range is not inside of the memory.
    pub fn discard(&mut self, range: Range<usize>) -> Result<(), PagerError> {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "{range:?} of {}",
            self.len
        );
        let first = range.start.div_ceil(CHUNK_BYTES);
        // The last chunk is discarded with the last byte of the memory, whatever of it is mapped behind.
        let end = if range.end == self.len {
            self.len.div_ceil(CHUNK_BYTES)
        } else {
            range.end / CHUNK_BYTES
        };
        if first >= end {
            self[range].fill(0);
            return Ok(());
        }
        let (head, tail) = (range.start..first * CHUNK_BYTES, end * CHUNK_BYTES..range.end);
        self[head].fill(0);
        if !tail.is_empty() {
            self[tail].fill(0);
        }
        let mut resident = self.shared.resident.lock();
        resident
            .discard(first..end, &self.shared.region)
            .map_err(|fatal| match fatal {
                ServeError::Store(error) => error.into(),
                ServeError::System(errno) => PagerError::System {
                    what: "discard memory",
                    errno,
                },
            })
    }

    /// What was done so far, and what is where now.
    #[must_use]
    pub fn stats(&self) -> PagerStats {
        self.shared.resident.lock().stats()
    }

    /// What the store's file takes on the storage, in bytes.
    ///
    /// # Errors
    /// Those of stat(2).
    pub fn file_bytes(&self) -> Result<u64, PagerError> {
        Ok(self.shared.resident.lock().store().bytes_taken()?)
    }

    /// Why chunks could not leave memory since this was last asked, so that more than the budget is resident.
    #[must_use]
    pub fn failure(&self) -> Option<StoreError> {
        self.shared.resident.lock().take_failure()
    }

    /// Whether system calls can read and write bytes that are not resident. It takes root (CAP_SYS_PTRACE), or the
    /// sysctl `vm.unprivileged_userfaultfd=1`.
    #[must_use]
    pub fn serves_system_calls(&self) -> bool {
        self.shared.faults.with_system_calls
    }
}

impl Deref for PagedMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: so many bytes are mapped as long as the region lives; what is absent is put there before it is read.
        #[allow(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts(self.shared.region.address as *const u8, self.len)
        }
    }
}

impl DerefMut for PagedMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the pager moves chunks, but never changes what is in them.
        #[allow(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts_mut(self.shared.region.address as *mut u8, self.len)
        }
    }
}

impl Drop for PagedMemory {
    fn drop(&mut self) {
        let told = rustix::io::write(&self.shared.stop, &1_u64.to_ne_bytes());
        debug_assert!(told.is_ok(), "an eventfd takes a number");
        if let Some(server) = self.server.take() {
            let _ = server.join(); // it ends the process rather than panic
        }
    }
}

impl Shared {
    /// The thread of the pager: serves faults until it is told to stop.
    fn serve(&self) {
        let _end = AbortOnPanic;
        loop {
            let mut waited = [
                PollFd::new(&self.faults, PollFlags::IN),
                PollFd::new(&self.stop, PollFlags::IN),
            ];
            match poll(&mut waited, None) {
                Ok(_) | Err(Errno::INTR) => (),
                Err(errno) => end_process(&ServeError::System(errno)),
            }
            if waited[1].revents().contains(PollFlags::IN) {
                return;
            }
            if let Err(fatal) = self.serve_waiting() {
                end_process(&fatal);
            }
        }
    }

    fn serve_waiting(&self) -> Result<(), ServeError> {
        while let Some(fault) = self.faults.next()? {
            self.resident.lock().serve(fault, &self.faults, &self.region)?;
        }
        Ok(())
    }
}

/// Threads that wait for a page wait for ever when nobody serves them.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

fn end_process(fatal: &ServeError) -> ! {
    eprintln!("elbow: memory that is not resident cannot be had: {fatal}");
    std::process::abort();
}

/// A store in a file that goes with its last descriptor.
fn nameless_store(dir: &Path) -> Result<BlockStore, PagerError> {
    static STORES: AtomicU64 = AtomicU64::new(0);
    let number = STORES.fetch_add(1, Ordering::Relaxed);
    let name = OsString::from(format!("elbow-memory-{}-{number}", std::process::id()));
    let system = |what| move |errno| PagerError::System { what, errno };
    let dir = RealStorage::open_root(dir).map_err(system("open the directory for what is not resident"))?;
    let options = Options {
        block_bytes: Some(CHUNK_BYTES as u64),
        ..Options::default()
    };
    let store = BlockStore::create(Arc::new(RealStorage), &dir, &name, options)?;
    RealStorage
        .unlink(&dir, &name)
        .map_err(system("remove the name of a temporary file"))?;
    Ok(store)
}
