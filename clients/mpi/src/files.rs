//! The open files of this process, and whether each is in atomic mode.
//!
//! ```text
//!   MPI_File_open ---> OpenFile { group of processes, path } ---set_atomicity(1)---> + Atomic { lock client, name, view }
//! ```
//!
//! The library's own atomic mode is never switched on: ROMIO's ends the program where the file system has no locks, and
//! Open MPI's does nothing. Source: MPI 4.0, sections 14.2 and 14.6.1.

use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Instant;

use elbow_lock::{Client, FileName, Hold, LockError, LockMode, Owner, Refusal, Wait, file_name};
use elbow_ranges::{Footprint, Mode};
use parking_lot::{Mutex, RwLock};

use crate::abi::Handle;
use crate::error::MpiError;
use crate::granularity::{self, FILE_END};
use crate::group::{self, Group};
use crate::hints;
use crate::native::{Native, call};
use crate::presence;
use crate::service::client;
use crate::shadow::{Identity, SPEEDS, Shadow, nanoseconds};
use crate::sieve::{LockWaits, Sieve};
use crate::sieving::{self, Sieving};
use crate::status::Status;
use crate::view::{AccessFootprint, View};

/// An open file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) handle: usize,
    pub(crate) group: Group,
    path: CString,
    /// What was at that path when it was opened.
    identity: Option<Identity>,
    /// This process alone, from the first time on that the file is atomic.
    pub(crate) own_communicator: OnceLock<Handle>,
    atomic: RwLock<Option<Arc<Atomic>>>,
    /// The status of the split collective access that has begun.
    pub(crate) begun: Mutex<Option<SplitAccess>>,
}

/// What the end of a split collective access gives to the program.
#[derive(Debug)]
pub(crate) struct SplitAccess {
    pub(crate) status: Status,
}

/// What a file in atomic mode has.
#[derive(Debug)]
pub(crate) struct Atomic {
    client: Client,
    name: FileName,
    granularity: Mode,
    /// See [`group::gathered_bytes_max`].
    pub(crate) gathered_bytes_max: u64,
    view: Mutex<Option<Arc<View>>>,
    /// The library's own hints, put back when atomic mode ends.
    hints: hints::PreviousHint,
    pub(crate) sieving: Sieving,
    waits: Mutex<LockWaits>,
    /// For windows; nothing where accesses are written piece by piece.
    shadow: Option<Shadow>,
}

static FILES: LazyLock<RwLock<HashMap<usize, Arc<OpenFile>>>> = LazyLock::new(RwLock::default);

/// The byte that stands for the shared file pointer.
const SHARED_POINTER: u64 = FILE_END;

/// The open file of this handle, unless it was opened past this library.
pub(crate) fn find(handle: usize) -> Option<Arc<OpenFile>> {
    FILES.read().get(&handle).cloned()
}

/// Whether any file of this process is in atomic mode.
pub(crate) fn any_is_atomic() -> bool {
    FILES.read().values().any(|file| file.atomic.read().is_some())
}

/// `MPI_File_open`.
///
/// # Safety
/// The arguments are those of the C function.
#[allow(unsafe_code)]
pub(crate) unsafe fn open(
    native: &Native,
    comm: Handle,
    path: *const c_char,
    amode: c_int,
    info: Handle,
    file: *mut usize,
) -> c_int {
    let group = match Group::of(native, comm) {
        Ok(group) => group,
        Err(_) => {
            return call!(native, "PMPI_File_open", comm => Handle, path => *const c_char, amode => c_int, info => Handle, file => *mut usize);
        }
    };
    let code = call!(native, "PMPI_File_open", comm => Handle, path => *const c_char, amode => c_int, info => Handle, file => *mut usize);
    if code != 0 {
        group.free(native);
        return code;
    }
    // SAFETY: the open succeeded, so the path is a C string and the handle has been stored.
    let (handle, path) = unsafe { (file.read(), CStr::from_ptr(path).to_owned()) };
    let opened = OpenFile {
        handle,
        group,
        identity: Identity::of(without_prefix(&path)),
        own_communicator: OnceLock::new(),
        path,
        atomic: RwLock::default(),
        begun: Mutex::default(),
    };
    FILES.write().insert(handle, Arc::new(opened));
    code
}

/// `MPI_File_close`.
///
/// # Safety
/// The argument is that of the C function.
#[allow(unsafe_code)]
pub(crate) unsafe fn close(native: &Native, file: *mut usize) -> c_int {
    // SAFETY: a pointer to a handle.
    let known = FILES.write().remove(&unsafe { file.read() });
    if let Some(atomic) = known.as_ref().and_then(|known| known.atomic()) {
        atomic.end(native);
    }
    let code = call!(native, "PMPI_File_close", file => *mut usize);
    if let Some(known) = known {
        if let Some(own_communicator) = known.own_communicator.get() {
            group::free(native, *own_communicator);
        }
        known.group.free(native);
    }
    code
}

impl OpenFile {
    /// What the file has in atomic mode; nothing in nonatomic mode.
    pub(crate) fn atomic(&self) -> Option<Arc<Atomic>> {
        self.atomic.read().clone()
    }

    /// `MPI_File_set_atomicity`; all processes of the file call it, and all get in or none does.
    ///
    /// # Errors
    /// No lock service, or the processes want different things.
    pub(crate) fn set_atomicity(&self, native: &Native, wanted: bool) -> Result<(), MpiError> {
        let entered = if wanted { self.enter(native) } else { Ok(None) };
        let vote = match &entered {
            Err(_) => 2,
            Ok(_) => u64::from(wanted),
        };
        let votes = self.group.gather_numbers(native, vote)?;
        let agreed = self
            .group
            .share_number(native, u64::from(votes.iter().all(|other| *other == vote)))?;
        let entered = entered?;
        if agreed == 0 {
            return Err(MpiError::Elsewhere);
        }
        let before = std::mem::replace(&mut *self.atomic.write(), entered);
        let Some(before) = before else { return Ok(()) };
        before.end(native);
        if !wanted {
            before.hints.restore(native, self.handle)?;
        }
        Ok(())
    }

    /// Gets ready for atomic mode. All processes take part in every message, whatever they find.
    fn enter(&self, native: &Native) -> Result<Option<Arc<Atomic>>, MpiError> {
        let name = self.shared_name(native);
        let own_communicator = self.own_communicator(native);
        let hints = match self.atomic() {
            Some(already) => Ok(already.hints.clone()),
            None => hints::exact_writes(native, self.handle),
        };
        presence::is_known()?;
        let (name, hints, client, granularity) = (name?, hints?, client()?, granularity::from_environment()?);
        let gathered_bytes_max = group::gathered_bytes_max()?;
        let sieving = sieving::from_environment()?.unless_hinted(hints.forbid_sieving());
        let shadow = (sieving != Sieving::Never).then(|| self.shadow(native, own_communicator.ok()?));
        Ok(Some(Arc::new(Atomic {
            client,
            name,
            granularity,
            gathered_bytes_max,
            view: Mutex::default(),
            hints,
            sieving,
            waits: Mutex::default(),
            shadow: shadow.flatten(),
        })))
    }

    /// A communicator of this process alone; all processes of the file call it, before any has a reason not to.
    fn own_communicator(&self, native: &Native) -> Result<Handle, MpiError> {
        if let Some(own_communicator) = self.own_communicator.get() {
            return Ok(*own_communicator);
        }
        let own_communicator = self.group.own_communicator(native)?;
        Ok(*self.own_communicator.get_or_init(|| own_communicator))
    }

    fn shadow(&self, native: &Native, own_communicator: Handle) -> Option<Shadow> {
        let path = without_prefix(&self.path);
        Shadow::of(native, self.handle, &self.path, path, self.identity?, own_communicator)
    }

    /// The file's name for the lock service: rank 0's, so that all have the same.
    fn shared_name(&self, native: &Native) -> Result<FileName, MpiError> {
        let mine = if self.group.leads() {
            file_name(without_prefix(&self.path)).map(Some)
        } else {
            Ok(None)
        };
        let mut name = mine
            .as_ref()
            .ok()
            .and_then(Option::as_ref)
            .map_or_else(Vec::new, |name| name.as_bytes().to_vec());
        let length = self.group.share_number(native, name.len() as u64)?;
        name.resize(length as usize, 0);
        self.group.share(native, &mut name)?;
        mine?;
        FileName::new(&name).ok_or(MpiError::Elsewhere)
    }

    /// The path it was opened by, for people.
    pub(crate) fn path(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }

    /// The view was changed, or the hints.
    pub(crate) fn forget_view(&self) {
        if let Some(atomic) = self.atomic() {
            *atomic.view.lock() = None;
        }
    }
}

impl Atomic {
    /// Closes what was opened for it.
    fn end(&self, native: &Native) {
        if let Some(shadow) = &self.shadow {
            shadow.close(native);
        }
    }

    /// The second handle, if there can be one and it is open.
    pub(crate) fn shadow(&self, native: &Native) -> Option<&Shadow> {
        self.shadow.as_ref().filter(|shadow| shadow.is_open(native))
    }

    /// The file system that it is on, if it is known how fast that is to be written.
    fn device(&self) -> Option<u64> {
        self.shadow.as_ref().map(Shadow::device)
    }

    /// Remembers what an access has taken that was written piece by piece.
    pub(crate) fn learn(&self, cover: &AccessFootprint, begin: Instant) {
        if let Some(device) = self.device() {
            SPEEDS.add(device, cover.piece_count(), cover.bytes(), nanoseconds(begin));
        }
    }

    /// Whether an access is sieved.
    pub(crate) fn decide(&self, sieve: &Sieve, processes: usize) -> bool {
        self.sieving == Sieving::Always || self.waits.lock().decide(sieve, processes)
    }

    /// Remembers what windows have taken.
    pub(crate) fn learn_taken(&self, sieve: &Sieve, took_ns: u64) {
        self.waits.lock().add_taken(sieve, took_ns);
    }

    /// As [`lock`](Self::lock), and remembers how long it took.
    pub(crate) fn lock_for(&self, footprint: Footprint, mode: LockMode, is_sieved: bool) -> Result<Hold, MpiError> {
        let begin = Instant::now();
        let hold = self.lock(footprint, mode)?;
        self.waits.lock().add(is_sieved, nanoseconds(begin));
        Ok(hold)
    }

    /// The view that this process has on the file.
    pub(crate) fn view(&self, native: &Native, file: &OpenFile) -> Result<Arc<View>, MpiError> {
        let mut known = self.view.lock();
        if let Some(view) = &*known {
            return Ok(Arc::clone(view));
        }
        let view = Arc::new(View::of(native, file.handle)?);
        *known = Some(Arc::clone(&view));
        Ok(view)
    }

    /// Waits until the bytes are ours. A list without any pattern that is too long for a request, or more than the service has room for, is
    /// locked from its first byte to its last.
    pub(crate) fn lock(&self, footprint: Footprint, mode: LockMode) -> Result<Hold, MpiError> {
        self.hold(granularity::coarsened(footprint, self.granularity), mode)
    }

    fn hold(&self, footprint: Footprint, mode: LockMode) -> Result<Hold, MpiError> {
        let bounds = footprint.bounds();
        let hold = match self.ask(footprint, mode) {
            Err(
                LockError::TooLong { .. }
                | LockError::Refused {
                    why: Refusal::Full { .. },
                    ..
                },
            ) => self.ask(Footprint::extent(bounds)?, mode),
            answer => answer,
        }?;
        hold.check()?;
        Ok(hold)
    }

    fn ask(&self, footprint: Footprint, mode: LockMode) -> Result<Hold, LockError> {
        self.client
            .lock_as(this_thread(), self.name.clone(), footprint, mode, Wait::Forever)
    }

    /// Waits until the shared file pointer is ours.
    pub(crate) fn lock_shared_pointer(&self) -> Result<Hold, MpiError> {
        let byte = Footprint::extent(SHARED_POINTER..SHARED_POINTER + 1);
        self.hold(
            byte.map_err(|error| MpiError::Unsupported(error.to_string()))?,
            LockMode::Exclusive,
        )
    }
}

/// Prefixes by which ROMIO and OMPIO are told the kind of the file system.
const PREFIXES: [&str; 12] = [
    "ufs:", "nfs:", "xfs:", "gpfs:", "lustre:", "panfs:", "pvfs2:", "testfs:", "daos:", "ime:", "quobyte:", "beegfs:",
];

fn without_prefix(path: &CStr) -> &Path {
    let path = path.to_bytes();
    let path = PREFIXES
        .iter()
        .find_map(|prefix| path.strip_prefix(prefix.as_bytes()))
        .unwrap_or(path);
    Path::new(OsStr::from_bytes(path))
}

fn this_thread() -> Owner {
    // SAFETY: takes and touches nothing.
    #[allow(unsafe_code)]
    Owner(unsafe { libc::gettid() }.unsigned_abs().into())
}
