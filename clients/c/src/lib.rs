//! libba: the block store for programs in C (floor 5).
//!
//! The six functions of Vengroff & Kotz, *A Holesome File System*, section 4, and what a store needs beside them: open,
//! sync, close and the last error in words. `include/ba.h` declares them and `man/ba.3` describes them; a test keeps
//! both equal to this file.
//!
//! The contract is that of system calls: -1 (or a null pointer) and `errno` say that a call failed, and nothing else
//! does. A store may be used from several threads at once. A null store or buffer is refused; any other pointer that is
//! not what it should be is undefined behaviour, as ever in C.

use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use elbow_extmem::store::{BlockId, BlockStore, FreeMap, Options, StoreError};
use elbow_file::{Errno, Handle, RealStorage};

/// Flag of [`ba_create`]: holes are the free map, or there is no store.
pub const BA_HOLES: c_uint = 1;
/// Flag of [`ba_create`]: a bitmap in the file is the free map.
pub const BA_BITMAP: c_uint = 2;
/// Flag of [`ba_create`]: blocks have checksums.
pub const BA_CHECKSUMS: c_uint = 4;

/// A store, behind the pointer that C programs have.
pub struct Ba(BlockStore);

/// Why a call failed, as C can know it.
struct Failure {
    errno: Errno,
    message: String,
}

impl Failure {
    fn new(errno: Errno, message: &str) -> Self {
        let message = message.to_owned();
        Self { errno, message }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self {
            errno: error.errno(),
            message: error.to_string(),
        }
    }
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Makes a store in a new file. Blocks of 0 bytes have the size that suits the file system.
///
/// # Safety
/// `path` is null or a string.
#[allow(unsafe_code, reason = "called from C")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ba_create(path: *const c_char, block_bytes: usize, flags: c_uint) -> *mut Ba {
    let made = || {
        let options = options(block_bytes, flags)?;
        // SAFETY: the caller's promise.
        let (dir, name) = locate(unsafe { text(path) }?)?;
        Ok(BlockStore::create(Arc::new(RealStorage), &dir, name, options)?)
    };
    give(made())
}

/// Opens a store.
///
/// # Safety
/// `path` is null or a string.
#[allow(unsafe_code, reason = "called from C")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ba_open(path: *const c_char) -> *mut Ba {
    let opened = || {
        // SAFETY: the caller's promise.
        let (dir, name) = locate(unsafe { text(path) }?)?;
        Ok(BlockStore::open(Arc::new(RealStorage), &dir, name)?)
    };
    give(opened())
}

/// Bytes that a block holds.
///
/// # Safety
/// `ba` is null or an open store.
#[allow(unsafe_code, reason = "called from C")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ba_size(ba: *const Ba) -> isize {
    // SAFETY: the caller's promise.
    let store = unsafe { store(ba) };
    answer(store.map(|store| store.block_bytes() as isize), -1)
}

/// Allocates the lowest free block.
///
/// # Safety
/// `ba` is null or an open store.
#[allow(unsafe_code, reason = "called from C")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ba_alloc(ba: *mut Ba) -> i64 {
    // SAFETY: the caller's promise.
    let store = unsafe { store(ba) };
    // There are 2^34 blocks at most.
    answer(store.and_then(|store| Ok(store.alloc()?.0 as i64)), -1)
}

/// Frees a block.
///
/// # Safety
/// `ba` is null or an open store.
#[allow(unsafe_code, reason = "called from C")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ba_free(ba: *mut Ba, block: i64) -> c_int {
    // SAFETY: the caller's promise.
    let store = unsafe { store(ba) };
    answer(store.and_then(|store| Ok(store.free(id(block)?)?)).map(|()| 0), -1)
}

/// Reads a block.
///
/// # Safety
/// `ba` is null or an open store, `buffer` is null or has `ba_size(ba)` bytes.
#[allow(unsafe_code, reason = "called from C")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ba_read(ba: *mut Ba, block: i64, buffer: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    let store = unsafe { store(ba) };
    let read = store.and_then(|store| {
        // SAFETY: the caller's promise; what C had not initialized is zeroed first.
        let buffer = unsafe {
            let bytes = start(buffer)?;
            bytes.write_bytes(0, store.block_bytes());
            std::slice::from_raw_parts_mut(bytes, store.block_bytes())
        };
        Ok(store.read(id(block)?, buffer)?)
    });
    answer(read.map(|()| 0), -1)
}

/// Writes a block.
///
/// # Safety
/// `ba` is null or an open store, `buffer` is null or has `ba_size(ba)` bytes.
#[allow(unsafe_code, reason = "called from C")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ba_write(ba: *mut Ba, block: i64, buffer: *const c_void) -> c_int {
    // SAFETY: the caller's promise.
    let store = unsafe { store(ba) };
    let written = store.and_then(|store| {
        let bytes = start(buffer.cast_mut())?.cast_const();
        // SAFETY: the caller's promise.
        let buffer = unsafe { std::slice::from_raw_parts(bytes, store.block_bytes()) };
        Ok(store.write(id(block)?, buffer)?)
    });
    answer(written.map(|()| 0), -1)
}

/// Makes all that was written and freed durable.
///
/// # Safety
/// `ba` is null or an open store.
#[allow(unsafe_code, reason = "called from C")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ba_sync(ba: *mut Ba) -> c_int {
    // SAFETY: the caller's promise.
    let store = unsafe { store(ba) };
    answer(store.and_then(|store| Ok(store.sync()?)).map(|()| 0), -1)
}

/// Syncs and closes a store, which is closed even if that fails.
///
/// # Safety
/// `ba` is null or an open store, which no thread uses any more.
#[allow(unsafe_code, reason = "called from C")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ba_close(ba: *mut Ba) -> c_int {
    if ba.is_null() {
        return answer(Err(no_store()), -1);
    }
    // SAFETY: the pointer came from `give`, and by the caller's promise it is used for the last time.
    let Ba(store) = *unsafe { Box::from_raw(ba) };
    answer(store.close().map(|()| 0).map_err(Failure::from), -1)
}

/// The last failure of a call of this thread, in words; valid until the next failure. Empty if there was none.
#[allow(unsafe_code, reason = "called from C")]
#[unsafe(no_mangle)]
pub extern "C" fn ba_error() -> *const c_char {
    LAST_ERROR.with_borrow(|message| message.as_ptr())
}

fn options(block_bytes: usize, flags: c_uint) -> Result<Options, Failure> {
    let free_map = match flags & !BA_CHECKSUMS {
        0 => FreeMap::Probe,
        BA_HOLES => FreeMap::Holes,
        BA_BITMAP => FreeMap::Bitmap,
        _ => {
            return Err(Failure::new(
                Errno::INVAL,
                "flags that are unknown, or contradict each other",
            ));
        }
    };
    Ok(Options {
        block_bytes: (block_bytes > 0).then_some(block_bytes as u64),
        free_map,
        checksums: flags & BA_CHECKSUMS != 0,
    })
}

/// # Safety
/// `path` is null or a string, for as long as the answer is used.
#[allow(unsafe_code, reason = "given by C")]
unsafe fn text<'a>(path: *const c_char) -> Result<&'a Path, Failure> {
    if path.is_null() {
        return Err(Failure::new(Errno::FAULT, "a null pointer in place of a path"));
    }
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) };
    Ok(Path::new(OsStr::from_bytes(path.to_bytes())))
}

/// The directory of a path, and the name in it.
fn locate(path: &Path) -> Result<(Handle, &OsStr), Failure> {
    let fail = |errno: Errno| Failure::new(errno, &format!("{}: {errno}", path.display()));
    let name = path.file_name().ok_or_else(|| fail(Errno::ISDIR))?;
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let dir = RealStorage::open_root(dir).map_err(fail)?;
    Ok((dir, name))
}

/// # Safety
/// `ba` is null or an open store, for as long as the answer is used.
#[allow(unsafe_code, reason = "given by C")]
unsafe fn store<'a>(ba: *const Ba) -> Result<&'a BlockStore, Failure> {
    // SAFETY: the caller's promise.
    let ba = unsafe { ba.as_ref() };
    ba.map(|ba| &ba.0).ok_or_else(no_store)
}

fn no_store() -> Failure {
    Failure::new(Errno::INVAL, "a null pointer in place of a store")
}

fn start(buffer: *mut c_void) -> Result<*mut u8, Failure> {
    if buffer.is_null() {
        return Err(Failure::new(Errno::FAULT, "a null pointer in place of a buffer"));
    }
    Ok(buffer.cast())
}

fn id(block: i64) -> Result<BlockId, Failure> {
    let number = u64::try_from(block);
    number
        .map(BlockId)
        .map_err(|_| Failure::new(Errno::NXIO, "a negative number in place of a block"))
}

/// A store for C, or null.
fn give(store: Result<BlockStore, Failure>) -> *mut Ba {
    let store = store.map(|store| Box::into_raw(Box::new(Ba(store))));
    answer(store, std::ptr::null_mut())
}

/// What C is told: a value, or the sign of failure with `errno` set.
fn answer<T>(result: Result<T, Failure>, failed: T) -> T {
    let Failure { errno, message } = match result {
        Ok(value) => return value,
        Err(failure) => failure,
    };
    let message = CString::new(message.replace('\0', "?")).unwrap_or_default();
    LAST_ERROR.with_borrow_mut(|last| *last = message);
    // SAFETY: glibc and musl give each thread an errno of its own, at an address that is valid while it lives.
    #[allow(unsafe_code)]
    unsafe {
        *libc::__errno_location() = errno.raw_os_error();
    }
    failed
}
