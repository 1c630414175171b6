//! The request of a nonblocking access that is done already: a generalized request, complete from the start.
//!
//! Source: MPI 4.0, section 13.2.

use std::ffi::{c_int, c_void};

use crate::abi::Handle;
use crate::native::{Native, call};
use crate::status::Status;

/// Makes a request of which `MPI_Wait` and `MPI_Test` give the byte count of `status`, and stores it at `request`.
pub(crate) fn done(native: &Native, mut status: Status, request: *mut c_void) -> c_int {
    let mut bytes = 0_i64;
    let code = if native.has("PMPI_Get_elements_c") {
        call!(native, "PMPI_Get_elements_c", (&raw mut status).cast() => *mut c_void, native.byte => Handle, &raw mut bytes => *mut i64)
    } else {
        call!(native, "PMPI_Get_elements_x", (&raw mut status).cast() => *mut c_void, native.byte => Handle, &raw mut bytes => *mut i64)
    };
    if code != 0 {
        return code;
    }
    let extra = Box::into_raw(Box::new(bytes));
    let code = call!(native, "PMPI_Grequest_start", query as Query => Query, release as Release => Release, cancel as Cancel => Cancel,
        extra.cast() => *mut c_void, request => *mut c_void);
    if code != 0 {
        return code;
    }
    // SAFETY: the library has stored the handle of the request there.
    #[allow(unsafe_code)]
    let handle = unsafe { native.abi.load(request.cast()) };
    call!(native, "PMPI_Grequest_complete", handle => Handle)
}

type Query = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
type Release = unsafe extern "C" fn(*mut c_void) -> c_int;
type Cancel = extern "C" fn(*mut c_void, c_int) -> c_int;

#[allow(unsafe_code)]
unsafe extern "C" fn query(extra: *mut c_void, status: *mut c_void) -> c_int {
    let native = Native::get();
    // SAFETY: what `done` gave; it lives until `release`.
    let bytes = unsafe { extra.cast::<i64>().read() };
    let code = if native.has("PMPI_Status_set_elements_c") {
        call!(native, "PMPI_Status_set_elements_c", status => *mut c_void, native.byte => Handle, bytes => i64)
    } else {
        call!(native, "PMPI_Status_set_elements_x", status => *mut c_void, native.byte => Handle, bytes => i64)
    };
    call!(native, "PMPI_Status_set_cancelled", status => *mut c_void, 0 => c_int);
    code
}

#[allow(unsafe_code)]
unsafe extern "C" fn release(extra: *mut c_void) -> c_int {
    // SAFETY: what `done` gave, given back once.
    drop(unsafe { Box::from_raw(extra.cast::<i64>()) });
    0
}

extern "C" fn cancel(_extra: *mut c_void, _complete: c_int) -> c_int {
    0
}
