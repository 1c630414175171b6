//! Makes the MPI library write exactly the bytes that were asked for.
//!
//! *Data sieving* writes a list of small pieces by reading everything from the first to the last, changing the pieces, and
//! writing all of it back: it writes bytes that we hold no lock on. (Where we do hold one, `sieving.rs` does it by itself.) ROMIO is told by a hint of the file. OMPIO has no
//! hint, only a parameter that is read when MPI starts: `elbow lock mpi` sets it in the environment, and here it is
//! checked. (Two-phase collective writes fill gaps in the same way; `collective.rs` uses them only where there is no gap.)

use std::ffi::{CStr, c_char, c_int};

use crate::abi::Handle;
use crate::error::MpiError;
use crate::native::{Native, call};

const ROMIO_SIEVES: &CStr = c"romio_ds_write";
const OMPIO_SIEVES: &CStr = c"fbtl_posix_write_datasieving";
/// Longest value of a hint that is put back.
const VALUE_BYTES: usize = 256;

/// What the hint was before.
#[derive(Clone, Debug)]
pub(crate) struct PreviousHint(Option<[u8; VALUE_BYTES]>);

/// Ends data sieving of writes to a file; all processes of the file call it.
///
/// # Errors
/// The library sieves and cannot be told not to.
pub(crate) fn exact_writes(native: &Native, file: usize) -> Result<PreviousHint, MpiError> {
    let previous = PreviousHint(current(native, file));
    set(native, file, c"disable")?;
    if ompio_sieves(native) {
        return Err(MpiError::Unsupported(
            "Open MPI would write back bytes between those that are locked (data sieving); start the program by \
             `elbow lock mpi`, or with OMPI_MCA_fbtl_posix_write_datasieving=false in its environment"
                .into(),
        ));
    }
    Ok(previous)
}

/// After the program has set hints of its own; all processes of the file call it.
pub(crate) fn keep_exact(native: &Native, file: usize) -> Result<(), MpiError> {
    set(native, file, c"disable")
}

impl PreviousHint {
    /// The program wants its pieces written one by one.
    pub(crate) fn forbid_sieving(&self) -> bool {
        let value = self.0.as_ref().and_then(|value| CStr::from_bytes_until_nul(value).ok());
        value.is_some_and(|value| value.to_bytes().eq_ignore_ascii_case(b"disable"))
    }

    /// Puts the hint back; all processes of the file call it.
    pub(crate) fn restore(&self, native: &Native, file: usize) -> Result<(), MpiError> {
        match self.0.as_ref().and_then(|value| CStr::from_bytes_until_nul(value).ok()) {
            Some(value) => set(native, file, value),
            None => Ok(()),
        }
    }
}

fn set(native: &Native, file: usize, value: &CStr) -> Result<(), MpiError> {
    let mut stored = 0_usize;
    MpiError::of_native(call!(native, "PMPI_Info_create", &raw mut stored => *mut usize))?;
    let info = loaded(native, &stored);
    call!(native, "PMPI_Info_set", info => Handle, ROMIO_SIEVES.as_ptr() => *const c_char, value.as_ptr() => *const c_char);
    let code = call!(native, "PMPI_File_set_info", file => usize, info => Handle);
    call!(native, "PMPI_Info_free", &raw mut stored => *mut usize);
    MpiError::of_native(code)
}

fn current(native: &Native, file: usize) -> Option<[u8; VALUE_BYTES]> {
    let mut stored = 0_usize;
    MpiError::of_native(call!(native, "PMPI_File_get_info", file => usize, &raw mut stored => *mut usize)).ok()?;
    let info = loaded(native, &stored);
    let (mut value, mut found) = ([0_u8; VALUE_BYTES], 0 as c_int);
    call!(native, "PMPI_Info_get", info => Handle, ROMIO_SIEVES.as_ptr() => *const c_char, VALUE_BYTES as c_int - 1 => c_int,
        value.as_mut_ptr().cast() => *mut c_char, &raw mut found => *mut c_int);
    call!(native, "PMPI_Info_free", &raw mut stored => *mut usize);
    (found != 0).then_some(value)
}

fn loaded(native: &Native, stored: &usize) -> Handle {
    // SAFETY: the library has put a handle there.
    #[allow(unsafe_code)]
    unsafe {
        native.abi.load((&raw const *stored).cast())
    }
}

/// Whether OMPIO has data sieving of writes, and it is on; asked by the tools interface of MPI.
fn ompio_sieves(native: &Native) -> bool {
    if native.abi.name != "Open MPI" {
        return false;
    }
    let (mut provided, mut index) = (0 as c_int, 0 as c_int);
    if call!(native, "PMPI_T_init_thread", 0 => c_int, &raw mut provided => *mut c_int) != 0 {
        return true;
    }
    let known = call!(native, "PMPI_T_cvar_get_index", OMPIO_SIEVES.as_ptr() => *const c_char, &raw mut index => *mut c_int)
        == 0;
    let sieves = known && cvar(native, index).is_none_or(|value| value != 0);
    call!(native, "PMPI_T_finalize");
    sieves
}

fn cvar(native: &Native, index: c_int) -> Option<c_int> {
    let (mut handle, mut count) = (0_usize, 0 as c_int);
    let mut value = [0 as c_int; 4];
    let read = call!(native, "PMPI_T_cvar_handle_alloc", index => c_int, std::ptr::null_mut() => *mut u8, &raw mut handle => *mut usize,
        &raw mut count => *mut c_int)
        == 0
        && call!(native, "PMPI_T_cvar_read", handle => usize, value.as_mut_ptr() => *mut c_int) == 0;
    call!(native, "PMPI_T_cvar_handle_free", &raw mut handle => *mut usize);
    read.then_some(value[0])
}
