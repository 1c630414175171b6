//! Independent transfers of parallel HDF5: one `H5Dwrite` of the program, many writes of MPI-IO, under one lock.
//!
//! HDF5 writes each row of a hyperslab that is not collective by an `MPI_File_write_at` of its own, so atomic mode alone makes the
//! rows whole and not the hyperslab. `H5Dwrite` and `H5Dread` come here first, as MPI-IO does. What is locked is
//!
//! - of a dataset in a row: from the first byte of the selection to its last, so that slabs of rows do not wait for each other;
//! - of others (chunked, compact, external): the whole file.
//!
//! The lock is taken by the first access to the selection of a file in atomic mode, and let go when the function returns; all accesses in between
//! are under it. What HDF5 *reads* elsewhere in the file (headers, heaps) before that is read under a lock of its own. Afterwards no second lock
//! is asked for, as another process may wait between the two, and it is read without one: HDF5 changes it collectively. It does not write
//! elsewhere in a transfer; that would be refused.
//!
//! Collective transfers are left alone: they are one call of MPI-IO, and all processes go into it together. Not seen: HDF5 that is linked
//! statically, `H5Dwrite_multi` and `H5Dwrite_chunk`. Sources: the HDF5 reference manual on `H5Fset_mpi_atomicity`, and `H5Dio.c`,
//! `H5Dselect.c` of HDF5 1.10.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ops::Range;

use elbow_lock::{Hold, LockMode};
use elbow_ranges::Footprint;

use crate::error::MpiError;
use crate::files::{self, Atomic};
use crate::granularity::FILE_END;

type Transfer = unsafe extern "C" fn(i64, i64, i64, i64, i64, *mut c_void) -> c_int;

/// `H5S_ALL` and its like are small numbers; those of dataspaces are not.
const IDS_FROM: i64 = 1 << 16;
/// `H5S_MAX_RANK`.
const RANK_MAX: usize = 32;
/// Functions of a C program between it and here, at most, and one of its own.
const FRAMES: usize = 8;

thread_local! {
    static CALL: RefCell<Option<Call>> = const { RefCell::new(None) };
}

/// A transfer that is under way in this thread.
struct Call {
    mode: LockMode,
    range: Range<u64>,
    held: Option<(usize, Hold)>,
}

/// How an access within a transfer is to be done.
pub(crate) enum AccessLock {
    /// As any other, under a lock of its own: there is no transfer, or it holds nothing of this file yet.
    Own,
    /// At once: the transfer holds its lock, of which the access is a part or, if it reads elsewhere, beside which nothing is asked for.
    Transfer,
}

/// What an access within a transfer needs first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Need {
    /// A lock of its own.
    Own,
    /// The transfer's lock, which nobody has asked for yet.
    Lock,
    /// That the transfer's lock is still there.
    Check,
}

impl Call {
    fn need(&self, file: usize, mode: LockMode, bounds: &Range<u64>) -> Result<Need, MpiError> {
        let is_inside = self.range.start <= bounds.start && bounds.end <= self.range.end;
        if mode == LockMode::Exclusive && (!is_inside || self.mode == LockMode::Shared) {
            return Err(MpiError::Unsupported(format!(
                "an independent transfer of HDF5 at bytes {:?} of the file writes {bounds:?} too; make it collective",
                self.range
            )));
        }
        Ok(match &self.held {
            Some((held, _)) if *held == file => Need::Check,
            None if is_inside => Need::Lock,
            // While nothing is held nobody can wait for us in a circle.
            Some(_) | None => Need::Own,
        })
    }
}

/// Asks for the lock of the transfer that is under way in this thread, if there is one and it has none.
///
/// # Errors
/// The lock cannot be had, or was lost; or a write is none of the transfer's.
pub(crate) fn within(
    file: usize,
    atomic: &Atomic,
    mode: LockMode,
    bounds: &Range<u64>,
) -> Result<AccessLock, MpiError> {
    CALL.with_borrow_mut(|call| {
        let Some(call) = call else { return Ok(AccessLock::Own) };
        match call.need(file, mode, bounds)? {
            Need::Own => return Ok(AccessLock::Own),
            Need::Lock => {
                let footprint = Footprint::extent(call.range.clone())?;
                call.held = Some((file, atomic.lock(footprint, call.mode)?));
            }
            Need::Check => {}
        }
        if let Some((_, hold)) = &call.held {
            hold.check()?;
        }
        Ok(AccessLock::Transfer)
    })
}

/// Does a transfer; `begin` says what is to be locked.
fn transfer(name: &CStr, mode: LockMode, ids: [i64; 5], buffer: *mut c_void) -> c_int {
    let Some(real) = real(name) else {
        eprintln!(
            "elbow: {} was called, but no HDF5 library is to be found",
            name.to_string_lossy()
        );
        return -1;
    };
    let is_ours = CALL.with_borrow(Option::is_none) && files::any_is_atomic() && is_independent(real, ids[4]);
    if is_ours {
        let range = selected(real, ids[0], ids[3]).unwrap_or(0..FILE_END);
        CALL.set(Some(Call {
            mode,
            range,
            held: None,
        }));
    }
    // SAFETY: HDF5's function of this name, with the program's arguments.
    #[allow(unsafe_code)]
    let code = unsafe {
        let function: Transfer = std::mem::transmute(real);
        function(ids[0], ids[1], ids[2], ids[3], ids[4], buffer)
    };
    let call = if is_ours { CALL.take() } else { None };
    match call.and_then(|call| call.held).map(|(_, hold)| hold.finish()) {
        Some(Err(error)) => {
            eprintln!("elbow: {}: {error}", name.to_string_lossy());
            -1
        }
        _ => code,
    }
}

macro_rules! export {
    ($name:ident, $mode:expr) => {
        #[allow(unsafe_code, non_snake_case)]
        // SAFETY: the name is HDF5's, and the function is what HDF5 says of it.
        #[unsafe(no_mangle)]
        extern "C" fn $name(
            dataset: i64,
            memory_type: i64,
            memory: i64,
            file: i64,
            list: i64,
            buffer: *mut c_void,
        ) -> c_int {
            const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => unreachable!(),
            };
            transfer(NAME, $mode, [dataset, memory_type, memory, file, list], buffer)
        }
    };
}
export!(H5Dwrite, LockMode::Exclusive);
export!(H5Dread, LockMode::Shared);

/// HDF5's own function, in the library that the caller was linked with: there may be several in one process.
fn real(name: &CStr) -> Option<usize> {
    let mut frames = [std::ptr::null_mut::<c_void>(); FRAMES];
    // SAFETY: room for as many.
    #[allow(unsafe_code)]
    let count = unsafe { libc::backtrace(frames.as_mut_ptr(), FRAMES as c_int) };
    let own = library_of(H5Dwrite as *const () as usize)?.1;
    let caller = frames[..count.unsigned_abs() as usize]
        .iter()
        .filter_map(|frame| library_of(*frame as usize))
        .find(|(_, base)| *base != own);
    let found = caller.and_then(|(path, _)| function_of(path, name));
    let is_own = |address: usize| library_of(address).is_none_or(|(_, base)| base == own);
    found.filter(|address| !is_own(*address)).or_else(|| {
        // SAFETY: a C string.
        #[allow(unsafe_code)]
        let next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
        (next != 0).then_some(next)
    })
}

/// The path and load address of the library that an address lies in.
fn library_of(address: usize) -> Option<(*const c_char, usize)> {
    // SAFETY: dladdr takes any address and fills what it is given.
    #[allow(unsafe_code)]
    unsafe {
        let mut info = std::mem::zeroed::<libc::Dl_info>();
        (libc::dladdr(address as *const c_void, &raw mut info) != 0)
            .then_some((info.dli_fname, info.dli_fbase as usize))
    }
}

/// A function as a loaded library sees it.
fn function_of(path: *const c_char, name: &CStr) -> Option<usize> {
    // SAFETY: C strings; RTLD_NOLOAD only gives a handle of what is loaded, which is given back.
    #[allow(unsafe_code)]
    unsafe {
        let library = libc::dlopen(path, libc::RTLD_NOLOAD | libc::RTLD_LAZY);
        if library.is_null() {
            return None;
        }
        let address = libc::dlsym(library, name.as_ptr()) as usize;
        libc::dlclose(library);
        (address != 0).then_some(address)
    }
}

/// Calls another function of the library that `real` is in.
macro_rules! hdf5 {
    ($real:expr, $name:literal $(, $argument:expr => $type:ty)* => $answer:ty) => {{
        let name: &CStr = $name;
        library_of($real).and_then(|(path, _)| function_of(path, name)).map(|address| {
            // SAFETY: HDF5's function of this name has this type; what the pointers point at is large enough.
            #[allow(unsafe_code)]
            unsafe {
                let function: unsafe extern "C" fn($($type),*) -> $answer = std::mem::transmute(address);
                function($($argument),*)
            }
        })
    }};
}

fn is_independent(real: usize, list: i64) -> bool {
    let mut mode: c_int = 0;
    // H5P_DEFAULT is independent.
    list == 0
        || hdf5!(real, c"H5Pget_dxpl_mpio", list => i64, &raw mut mode => *mut c_int => c_int)
            .is_some_and(|code| code >= 0 && mode == 0)
}

/// The bytes of the file from the first to the last that are selected of a dataset, if it lies there in a row.
fn selected(real: usize, dataset: i64, space: i64) -> Option<Range<u64>> {
    hdf5_ids_are_long(real)?;
    let begin = hdf5!(real, c"H5Dget_offset", dataset => i64 => u64)?;
    if begin >= FILE_END {
        return None;
    }
    let item = hdf5!(real, c"H5Dget_type", dataset => i64 => i64).filter(|id| *id >= 0)?;
    let bytes = hdf5!(real, c"H5Tget_size", item => i64 => u64);
    hdf5!(real, c"H5Tclose", item => i64 => c_int);
    let whole = hdf5!(real, c"H5Dget_space", dataset => i64 => i64).filter(|id| *id >= 0)?;
    let range = range_of(
        real,
        whole,
        if space < IDS_FROM { whole } else { space },
        bytes.unwrap_or(0),
    );
    hdf5!(real, c"H5Sclose", whole => i64 => c_int);
    let range = range?;
    Some(begin.checked_add(range.start)?..begin.checked_add(range.end)?).filter(|range| range.end <= FILE_END)
}

/// Since 1.10, which has this function, identifiers are 64 bits long.
fn hdf5_ids_are_long(real: usize) -> Option<usize> {
    library_of(real).and_then(|(path, _)| function_of(path, c"H5Dflush"))
}

fn range_of(real: usize, whole: i64, selection: i64, bytes: u64) -> Option<Range<u64>> {
    let rank = hdf5!(real, c"H5Sget_simple_extent_ndims", whole => i64 => c_int)?;
    let rank = usize::try_from(rank)
        .ok()
        .filter(|rank| (1..=RANK_MAX).contains(rank))?;
    let selected = hdf5!(real, c"H5Sget_select_npoints", selection => i64 => i64)?;
    if selected <= 0 {
        return None;
    }
    let (mut dims, mut first, mut last) = ([0_u64; RANK_MAX], [0_u64; RANK_MAX], [0_u64; RANK_MAX]);
    let known = hdf5!(real, c"H5Sget_simple_extent_dims", whole => i64, dims.as_mut_ptr() => *mut u64,
        std::ptr::null_mut() => *mut u64 => c_int)?;
    let bounded = hdf5!(real, c"H5Sget_select_bounds", selection => i64, first.as_mut_ptr() => *mut u64, last.as_mut_ptr() => *mut u64 => c_int)?;
    (known >= 0 && bounded >= 0).then(|| in_file(&dims[..rank], &first[..rank], &last[..rank], bytes))?
}

/// Where the corners of a selection lie, counted from the begin of an array in the order of C.
fn in_file(dims: &[u64], first: &[u64], last: &[u64], bytes: u64) -> Option<Range<u64>> {
    let at = |corner: &[u64]| {
        dims.iter()
            .zip(corner)
            .try_fold(0_u64, |at, (dim, index)| at.checked_mul(*dim)?.checked_add(*index))
    };
    let end = at(last)?.checked_add(1)?.checked_mul(bytes)?;
    Some(at(first)?.checked_mul(bytes)?..end).filter(|range| range.start < range.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The story: it was taken for held, and read without any lock.
    #[test]
    fn what_is_read_elsewhere_before_the_transfer_has_its_lock_gets_one_of_its_own() {
        for mode in [LockMode::Shared, LockMode::Exclusive] {
            let call = Call {
                mode,
                range: 100..200,
                held: None,
            };
            assert_eq!(call.need(1, LockMode::Shared, &(0..64)).unwrap(), Need::Own);
            assert_eq!(call.need(1, LockMode::Shared, &(150..201)).unwrap(), Need::Own);
            assert_eq!(call.need(1, LockMode::Shared, &(100..200)).unwrap(), Need::Lock);
            assert!(call.need(1, LockMode::Exclusive, &(0..64)).is_err());
            let write = call.need(1, LockMode::Exclusive, &(120..130));
            assert_eq!(write.is_ok(), mode == LockMode::Exclusive);
        }
    }

    #[test]
    fn a_selection_lies_between_its_corners() {
        assert_eq!(in_file(&[64, 96], &[0, 0], &[63, 95], 8), Some(0..64 * 96 * 8));
        assert_eq!(
            in_file(&[64, 96], &[2, 10], &[3, 19], 4),
            Some((2 * 96 + 10) * 4..(3 * 96 + 20) * 4)
        );
        assert_eq!(in_file(&[u64::MAX, 96], &[0, 0], &[u64::MAX - 1, 0], 4), None);
        assert_eq!(in_file(&[4], &[3], &[3], 0), None);
    }
}
