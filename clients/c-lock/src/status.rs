//! Who holds one file and who waits for it.

use std::ffi::{CString, c_char, c_int, c_uint};

use elbow_lock::{LockInfo, LockMode};

use super::requests::{check_size, named};
use super::{Client, ELBOW_LOCK_BROKEN, ELBOW_LOCK_POSIX, ELBOW_LOCK_SHARED, Failure, answer, give, no_client, ours};

/// The locks of a file at one moment, behind the pointer that C programs have.
pub struct Status {
    locks: Vec<(LockInfo, CString, CString)>,
}

/// A lock that is held or waited for, as C has it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LockEntry {
    size: usize,
    session: u64,
    owner: u64,
    token: u64,
    age_ms: u64,
    start: u64,
    end: u64,
    flags: c_uint,
    client: *const c_char,
    pattern: *const c_char,
}

/// Looks at the locks of a file.
///
/// # Safety
/// `client` is null or a client, `path` and `name` are null or strings.
#[allow(unsafe_code, reason = "called from C")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn elbow_lock_look(client: *mut Client, path: *const c_char, name: *const c_char) -> *mut Status {
    give(|| {
        // SAFETY: the caller's promise.
        let client = unsafe { client.as_ref() }.ok_or_else(no_client)?;
        ours(client.process)?;
        // SAFETY: the caller's promise.
        let file = unsafe { named(path, name) }?;
        let text = |text: &str| CString::new(text.replace('\0', "?")).unwrap_or_default();
        let locks = client.client.look(&file)?.locks.into_iter();
        let locks = locks.map(|lock| {
            let (client, pattern) = (text(&lock.client), text(&lock.pattern));
            (lock, client, pattern)
        });
        let locks = locks.collect();
        Ok(Status { locks })
    })
}

/// Gives one of the locks: 1; 0 when there are no more.
///
/// # Safety
/// `status` is null or a status, `seen` is null or has as many bytes as its first field says.
#[allow(unsafe_code, reason = "called from C")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn elbow_lock_status_get(status: *const Status, index: usize, seen: *mut LockEntry) -> c_int {
    answer(-1, || {
        // SAFETY: the caller's promise.
        let status = unsafe { status.as_ref() }.ok_or_else(no_status)?;
        if seen.is_null() {
            return Err(Failure::new(libc::EFAULT, "nothing to give a lock in"));
        }
        // SAFETY: the caller's promise; any version has this field.
        let size = unsafe { std::ptr::addr_of!((*seen).size).read() };
        let known = size_of::<LockEntry>();
        let later = check_size(size, known, "a place", "elbow_lock_seen_t")?;
        let Some((lock, client, pattern)) = status.locks.get(index) else {
            return Ok(0);
        };
        // SAFETY: the caller's promise. What a later program has room for beyond that is zero.
        unsafe {
            seen.cast::<u8>().add(known).write_bytes(0, later);
            seen.write(LockEntry {
                size,
                session: lock.session.0,
                owner: lock.owner.0,
                token: lock.token.map_or(0, |token| token.0),
                age_ms: lock.age_ms,
                start: lock.start,
                end: lock.end,
                flags: flags_of(lock),
                client: client.as_ptr(),
                pattern: pattern.as_ptr(),
            });
        }
        Ok(1)
    })
}

/// Gives a status up, and the texts of its locks.
///
/// # Safety
/// `status` is null or a status, which is none afterwards.
#[allow(unsafe_code, reason = "called from C")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn elbow_lock_status_free(status: *mut Status) -> c_int {
    answer(-1, || {
        let status = (!status.is_null()).then_some(status).ok_or_else(no_status)?;
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(status) });
        Ok(0)
    })
}

fn no_status() -> Failure {
    Failure::new(libc::EINVAL, "no status")
}

fn flags_of(lock: &LockInfo) -> c_uint {
    let flag = |is_so: bool, flag: c_uint| if is_so { flag } else { 0 };
    flag(lock.mode == LockMode::Shared, ELBOW_LOCK_SHARED)
        | flag(lock.is_posix, ELBOW_LOCK_POSIX)
        | flag(lock.is_ending, ELBOW_LOCK_BROKEN)
}
