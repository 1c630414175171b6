//! libelbow_lock: the lock client for programs in C (floor 5).
//!
//! `include/elbow_lock.h` declares its functions and `man/elbow_lock.3` describes them; a test keeps both equal to this
//! file. The contract is that of system calls: -1 (or a null pointer) and `errno` say that a call failed, and nothing else
//! does. A null client or hold is refused; any other pointer that is not what it should be is undefined behaviour, as ever
//! in C. No panic leaves a function.

mod requests;
mod status;

use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_uint};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use elbow_lock::{LockError, LockMode, Refusal, Wait};
use elbow_ranges::Footprint;

pub use self::requests::{
    Pattern, PendingLock, Request, Vector, elbow_lock_ask, elbow_lock_cancel, elbow_lock_forget, elbow_lock_wait,
};
pub use self::status::{LockEntry, Status, elbow_lock_look, elbow_lock_status_free, elbow_lock_status_get};

/// Flag of [`elbow_lock_hold`]: no other lock may cover a byte.
pub const ELBOW_LOCK_EXCLUSIVE: c_uint = 0;
/// Flag of [`elbow_lock_hold`]: other shared locks may cover it too.
pub const ELBOW_LOCK_SHARED: c_uint = 1;
/// Flag of a lock that was looked at: it follows fcntl(2).
pub const ELBOW_LOCK_POSIX: c_uint = 2;
/// Flag of a lock that was looked at: its holder was told that it is lost, and has not given it back.
pub const ELBOW_LOCK_BROKEN: c_uint = 4;
/// Time to wait: none.
pub const ELBOW_LOCK_TRY: c_int = 0;
/// Time to wait: until it is granted.
pub const ELBOW_LOCK_FOREVER: c_int = -1;

/// A session, behind the pointer that C programs have.
pub struct Client {
    client: elbow_lock::Client,
    /// Which process may use it.
    process: u32,
}

/// A lock that is held, behind the pointer that C programs have.
pub struct Hold {
    hold: elbow_lock::Hold,
    process: u32,
}

/// Bytes of a file, as C has them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Range {
    start: u64,
    length: u64,
}

/// Why a call failed, as C can know it.
struct Failure {
    errno: c_int,
    message: String,
}

impl Failure {
    fn new(errno: c_int, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { errno, message }
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        Self::new(errno_of(&error), error.to_string())
    }
}

/// The one place that maps errors to errno.
fn errno_of(error: &LockError) -> c_int {
    match error {
        LockError::Refused { why, .. } => match why {
            Refusal::WouldBlock | Refusal::Grace { .. } => libc::EAGAIN,
            Refusal::TimedOut => libc::ETIMEDOUT,
            Refusal::Deadlock { .. } => libc::EDEADLK,
            Refusal::Bad { .. } => libc::EINVAL,
            Refusal::Cancelled => libc::ECANCELED,
            _ => libc::ENOLCK,
        },
        LockError::Lost { .. } => libc::ESTALE,
        LockError::BadAddress(_) => libc::EINVAL,
        LockError::Unreachable { source, .. } | LockError::BadPath { source, .. } => {
            source.raw_os_error().unwrap_or(libc::EHOSTUNREACH)
        }
        LockError::Rejected { .. } => libc::EACCES,
        LockError::TooLong { .. } => libc::EMSGSIZE,
        LockError::BadName { .. } => libc::ENAMETOOLONG,
        LockError::Interrupted { .. } => libc::EINTR,
        LockError::TooOld { .. } => libc::EOPNOTSUPP,
        LockError::Denied { .. } => libc::EPERM,
        _ => libc::EPROTO,
    }
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Connects to `unix:PATH` or `tcp:HOST:PORT`, or to what `ELBOW_LOCKS` names.
///
/// # Safety
/// `url` is null or a string.
#[allow(unsafe_code, reason = "called from C")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn elbow_lock_connect(url: *const c_char) -> *mut Client {
    give(|| {
        // SAFETY: the caller's promise.
        let client = match unsafe { string(url) } {
            None => elbow_lock::Client::from_environment()?,
            Some(url) => elbow_lock::Client::connect(&url.to_string_lossy())?,
        };
        let process = std::process::id();
        Ok(Client { client, process })
    })
}

/// Gives a client up; its holds go on.
///
/// # Safety
/// `client` is null or a client, which is none afterwards.
#[allow(unsafe_code, reason = "called from C")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn elbow_lock_disconnect(client: *mut Client) -> c_int {
    answer(-1, || {
        let client = (!client.is_null()).then_some(client).ok_or_else(no_client)?;
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(client) });
        Ok(0)
    })
}

/// Waits until all of the ranges of a file are held, together.
///
/// # Safety
/// `client` is null or a client, `path` is null or a string, `ranges` is null or has `count` ranges.
#[allow(unsafe_code, reason = "called from C")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn elbow_lock_hold(
    client: *mut Client,
    path: *const c_char,
    ranges: *const Range,
    count: usize,
    flags: c_uint,
    wait_ms: c_int,
) -> *mut Hold {
    give(|| {
        // SAFETY: the caller's promise.
        let client = unsafe { client.as_ref() }.ok_or_else(no_client)?;
        ours(client.process)?;
        // SAFETY: the caller's promise.
        let path = unsafe { string(path) }.ok_or_else(|| Failure::new(libc::EFAULT, "no path"))?;
        let (mode, wait) = (mode_of(flags)?, wait_of(wait_ms)?);
        // SAFETY: the caller's promise.
        let footprint = unsafe { footprint(ranges, count) }?;
        let path = Path::new(OsStr::from_bytes(path.to_bytes()));
        let hold = client.client.lock(path, footprint, mode, wait)?;
        let process = client.process;
        Ok(Hold { hold, process })
    })
}

/// Whether the lock is still ours.
///
/// # Safety
/// `hold` is null or a hold.
#[allow(unsafe_code, reason = "called from C")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn elbow_lock_check(hold: *const Hold) -> c_int {
    answer(-1, || {
        // SAFETY: the caller's promise.
        let hold = unsafe { hold.as_ref() }.ok_or_else(no_hold)?;
        ours(hold.process)?;
        hold.hold.check()?;
        Ok(0)
    })
}

/// The fencing token.
///
/// # Safety
/// `hold` is null or a hold.
#[allow(unsafe_code, reason = "called from C")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn elbow_lock_token(hold: *const Hold) -> u64 {
    answer(0, || {
        // SAFETY: the caller's promise.
        let hold = unsafe { hold.as_ref() }.ok_or_else(no_hold)?;
        Ok(hold.hold.token().0)
    })
}

/// Releases a lock, and says whether it was ours to the end.
///
/// # Safety
/// `hold` is null or a hold, which is none afterwards.
#[allow(unsafe_code, reason = "called from C")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn elbow_lock_release(hold: *mut Hold) -> c_int {
    answer(-1, || {
        let hold = (!hold.is_null()).then_some(hold).ok_or_else(no_hold)?;
        // SAFETY: the caller's promise.
        let Hold { hold, process } = *unsafe { Box::from_raw(hold) };
        if let Err(failure) = ours(process) {
            std::mem::forget(hold); // It is the parent's.
            return Err(failure);
        }
        hold.finish()?;
        Ok(0)
    })
}

/// The last failure of this thread in words.
#[allow(unsafe_code, reason = "called from C")]
#[unsafe(no_mangle)]
pub extern "C" fn elbow_lock_error() -> *const c_char {
    LAST_ERROR.with_borrow(|last| last.as_ptr())
}

fn mode_of(flags: c_uint) -> Result<LockMode, Failure> {
    match flags {
        ELBOW_LOCK_EXCLUSIVE => Ok(LockMode::Exclusive),
        ELBOW_LOCK_SHARED => Ok(LockMode::Shared),
        _ => Err(Failure::new(libc::EINVAL, format!("flags {flags:#x} are unknown"))),
    }
}

fn wait_of(wait_ms: c_int) -> Result<Wait, Failure> {
    match wait_ms {
        ELBOW_LOCK_FOREVER => Ok(Wait::Forever),
        ELBOW_LOCK_TRY => Ok(Wait::Try),
        ms => match u32::try_from(ms) {
            Ok(ms) => Ok(Wait::For(ms)),
            Err(_) => Err(Failure::new(libc::EINVAL, format!("{ms} ms is no time"))),
        },
    }
}

fn no_client() -> Failure {
    Failure::new(libc::EINVAL, "no client")
}

fn no_hold() -> Failure {
    Failure::new(libc::EINVAL, "no hold")
}

/// A child of fork has a copy of its parent's socket, and nothing to say over it.
fn ours(process: u32) -> Result<(), Failure> {
    if process == std::process::id() {
        return Ok(());
    }
    let why = format!("process {process}, which has forked, is connected, not this one: connect again");
    Err(Failure::new(libc::ENOTCONN, why))
}

/// # Safety
/// `text` is null or a string, which lives longer than the result.
#[allow(unsafe_code)]
unsafe fn string<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller's promise.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

/// # Safety
/// `ranges` is null or has `count` ranges.
#[allow(unsafe_code)]
unsafe fn footprint(ranges: *const Range, count: usize) -> Result<Footprint, Failure> {
    if count == 0 {
        return Ok(Footprint::whole());
    }
    if ranges.is_null() {
        return Err(Failure::new(libc::EFAULT, "no ranges"));
    }
    // SAFETY: the caller's promise.
    let ranges = unsafe { std::slice::from_raw_parts(ranges, count) };
    if let Some(at) = ranges.iter().position(|range| range.length == 0) {
        return Err(Failure::new(libc::EINVAL, format!("range {at} is empty")));
    }
    Footprint::from_list(ranges.iter().map(|range| (range.start, range.length)))
        .map_err(|error| Failure::new(libc::EINVAL, error.to_string()))
}

/// What was made, for C to keep; null if it failed.
fn give<T>(make: impl FnOnce() -> Result<T, Failure>) -> *mut T {
    answer(std::ptr::null_mut(), || {
        make().map(|made| Box::into_raw(Box::new(made)))
    })
}

/// What `body` gives; `failed`, with errno and words, if it fails.
fn answer<T>(failed: T, body: impl FnOnce() -> Result<T, Failure>) -> T {
    let panicked = |_| Err(Failure::new(libc::EPROTO, "a bug in libelbow_lock"));
    match catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(panicked) {
        Ok(value) => value,
        Err(failure) => {
            // A message has no zero bytes, but for a path that somebody made up; it ends there.
            let words = failure.message.split('\0').next().unwrap_or_default();
            LAST_ERROR.with_borrow_mut(|last| *last = CString::new(words).unwrap_or_default());
            #[allow(unsafe_code)]
            // SAFETY: it points to the calling thread's errno.
            unsafe {
                *libc::__errno_location() = failure.errno;
            }
            failed
        }
    }
}
