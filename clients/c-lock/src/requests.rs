//! Locks that are asked for and waited for in two steps, on patterns and on names that are no files'.

use std::ffi::{c_char, c_int, c_uint};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use elbow_lock::{FileName, LockError, Owner, file_name};
use elbow_ranges::{Dim, Footprint, Strided};

use super::{
    Client, ELBOW_LOCK_FOREVER, Failure, Hold, Range, answer, footprint, give, mode_of, no_client, ours, string,
    wait_of,
};

/// Owners that programs choose are apart from threads, which are numbered from 1.
const CHOSEN: u64 = 1 << 63;
/// No structure of any version is longer, bytes: it is a size that was never set. A page, as Linux has it (`copy_struct_from_user`).
const SIZE_MAX: usize = 4096;
/// A wait without an end, as one with a very late one.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// A lock that was asked for, behind the pointer that C programs have.
pub struct PendingLock {
    asked: elbow_lock::PendingLock,
    process: u32,
}

/// `count` times the same, `stride` bytes apart, as C has it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Vector {
    count: u64,
    stride: u64,
}

/// A regular pattern of blocks, as C has it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    start: u64,
    block: u64,
    vectors: *const Vector,
    vectors_count: usize,
}

/// What is asked for, as C has it. Fields that later versions add are zero for programs that do not know them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Request {
    size: usize,
    path: *const c_char,
    name: *const c_char,
    flags: c_uint,
    wait_ms: c_int,
    owner: u64,
    ranges: *const Range,
    ranges_count: usize,
    patterns: *const Pattern,
    patterns_count: usize,
}

/// Asks for a lock, and does not wait for it.
///
/// # Safety
/// `client` is null or a client, `request` is null or a request whose pointers are null or what they should be.
#[allow(unsafe_code, reason = "called from C")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn elbow_lock_ask(client: *mut Client, request: *const Request) -> *mut PendingLock {
    give(|| {
        // SAFETY: the caller's promise.
        let client = unsafe { client.as_ref() }.ok_or_else(no_client)?;
        ours(client.process)?;
        // SAFETY: the caller's promise.
        let request = unsafe { known_part(request) }?;
        let (mode, wait) = (mode_of(request.flags)?, wait_of(request.wait_ms)?);
        // SAFETY: the caller's promise.
        let (file, footprint) = unsafe { (named(request.path, request.name)?, covered(&request)?) };
        let owner = match request.owner {
            0 => Owner::of_this_thread(),
            chosen => Owner(chosen | CHOSEN),
        };
        let asked = client.client.ask(owner, file, footprint, mode, wait)?;
        let process = client.process;
        Ok(PendingLock { asked, process })
    })
}

/// Waits for a lock that was asked for.
///
/// # Safety
/// `asked` is null or a lock that was asked for.
#[allow(unsafe_code, reason = "called from C")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn elbow_lock_wait(asked: *mut PendingLock, wait_ms: c_int) -> *mut Hold {
    give(|| {
        // SAFETY: the caller's promise.
        let asked = unsafe { asked.as_ref() }.ok_or_else(nothing_asked)?;
        ours(asked.process)?;
        let time = match wait_ms {
            ELBOW_LOCK_FOREVER => FOREVER,
            ms => match u64::try_from(ms) {
                Ok(ms) => Duration::from_millis(ms),
                Err(_) => return Err(Failure::new(libc::EINVAL, format!("{ms} ms is no time"))),
            },
        };
        let not_yet = || {
            Failure::new(
                libc::EINPROGRESS,
                "the lock is still waited for: wait for it again, or forget it",
            )
        };
        let hold = asked.asked.wait_for(time)?.ok_or_else(not_yet)?;
        let process = asked.process;
        Ok(Hold { hold, process })
    })
}

/// Gives up a lock that was asked for, unless it has been granted: who waits for it is told.
///
/// # Safety
/// `asked` is null or a lock that was asked for.
#[allow(unsafe_code, reason = "called from C")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn elbow_lock_cancel(asked: *mut PendingLock) -> c_int {
    answer(-1, || {
        // SAFETY: the caller's promise.
        let asked = unsafe { asked.as_ref() }.ok_or_else(nothing_asked)?;
        ours(asked.process)?;
        asked.asked.canceller().cancel();
        Ok(0)
    })
}

/// Gives up what was asked for and not taken, and its memory.
///
/// # Safety
/// `asked` is null or a lock that was asked for, which is none afterwards.
#[allow(unsafe_code, reason = "called from C")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn elbow_lock_forget(asked: *mut PendingLock) -> c_int {
    answer(-1, || {
        let asked = (!asked.is_null()).then_some(asked).ok_or_else(nothing_asked)?;
        // SAFETY: the caller's promise.
        let PendingLock { asked, process } = *unsafe { Box::from_raw(asked) };
        if let Err(failure) = ours(process) {
            std::mem::forget(asked); // It is the parent's.
            return Err(failure);
        }
        drop(asked);
        Ok(0)
    })
}

fn nothing_asked() -> Failure {
    Failure::new(libc::EINVAL, "nothing was asked for")
}

/// What we know of a request, if there is nothing in it that we do not know.
///
/// # Safety
/// `request` is null or has as many bytes as its first field says.
#[allow(unsafe_code)]
unsafe fn known_part(request: *const Request) -> Result<Request, Failure> {
    if request.is_null() {
        return Err(Failure::new(libc::EFAULT, "no request"));
    }
    // SAFETY: the caller's promise; any request has this field.
    let size = unsafe { std::ptr::addr_of!((*request).size).read() };
    let known = size_of::<Request>();
    let later = check_size(size, known, "a request", "elbow_lock_request_t")?;
    // SAFETY: the caller's promise.
    let later = unsafe { std::slice::from_raw_parts(request.cast::<u8>().add(known), later) };
    if later.iter().any(|&byte| byte != 0) {
        return Err(Failure::new(
            libc::E2BIG,
            "a request with fields that this libelbow_lock does not know",
        ));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { request.read() })
}

/// How many bytes a structure of this size has beyond the ones that we know; who has set no size is told, as far as that can be seen.
pub(super) fn check_size(size: usize, known: usize, what: &str, name: &str) -> Result<usize, Failure> {
    if (known..=SIZE_MAX).contains(&size) {
        return Ok(size - known);
    }
    let why = format!("{what} of {size} bytes; its size is sizeof({name}), {known} to {SIZE_MAX}");
    Err(Failure::new(libc::EINVAL, why))
}

/// The name for the service of what is called by its path or by a name.
///
/// # Safety
/// Both are null or strings.
#[allow(unsafe_code)]
pub(super) unsafe fn named(path: *const c_char, name: *const c_char) -> Result<FileName, Failure> {
    // SAFETY: the caller's promise.
    let (path, name) = unsafe { (string(path), string(name)) };
    match (path, name) {
        (Some(path), None) => Ok(file_name(Path::new(std::ffi::OsStr::from_bytes(path.to_bytes())))?),
        (None, Some(name)) => {
            let (name, bytes) = (name.to_bytes(), name.count_bytes());
            Ok(FileName::new(name).ok_or(LockError::BadName { bytes })?)
        }
        (None, None) => Err(Failure::new(libc::EFAULT, "no path and no name")),
        (Some(_), Some(_)) => Err(Failure::new(libc::EINVAL, "a path and a name: a lock has one of them")),
    }
}

/// All that a request covers, never expanded.
///
/// # Safety
/// The request's lists are null or as long as it says.
#[allow(unsafe_code)]
unsafe fn covered(request: &Request) -> Result<Footprint, Failure> {
    if request.patterns_count == 0 {
        // SAFETY: the caller's promise.
        return unsafe { footprint(request.ranges, request.ranges_count) };
    }
    // SAFETY: the caller's promise.
    let patterns = unsafe { list(request.patterns, request.patterns_count, "patterns") }?;
    let strided = patterns.iter().enumerate().map(|(at, pattern)| {
        // SAFETY: the caller's promise.
        unsafe { strided(pattern) }.map_err(|failure| Failure {
            message: format!("pattern {at}: {}", failure.message),
            ..failure
        })
    });
    let strided: Vec<Strided> = strided.collect::<Result<_, _>>()?;
    let bad = |error: elbow_ranges::PatternError| Failure::new(libc::EINVAL, error.to_string());
    let of_patterns = Footprint::from_patterns(strided).map_err(bad)?;
    if request.ranges_count == 0 {
        return Ok(of_patterns);
    }
    // SAFETY: the caller's promise.
    Ok(of_patterns.union(&unsafe { footprint(request.ranges, request.ranges_count) }?))
}

/// # Safety
/// The pattern's vectors are null or as many as it says.
#[allow(unsafe_code)]
unsafe fn strided(pattern: &Pattern) -> Result<Strided, Failure> {
    // SAFETY: the caller's promise.
    let vectors = unsafe { list(pattern.vectors, pattern.vectors_count, "vectors") }?;
    let dims: Vec<Dim> = vectors
        .iter()
        .map(|&Vector { count, stride }| Dim { count, stride })
        .collect();
    Strided::new(pattern.start, &dims, pattern.block).map_err(|error| Failure::new(libc::EINVAL, error.to_string()))
}

/// # Safety
/// `first` is null or the first of `count`.
#[allow(unsafe_code)]
unsafe fn list<'a, T>(first: *const T, count: usize, what: &str) -> Result<&'a [T], Failure> {
    match (count, first.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(Failure::new(libc::EFAULT, format!("no {what}"))),
        // SAFETY: the caller's promise.
        (_, false) => Ok(unsafe { std::slice::from_raw_parts(first, count) }),
    }
}
