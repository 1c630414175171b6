//! The MPI library that the program runs on: which of the loaded libraries it is, and calls into it.
//!
//! The library is looked for at the first MPI-IO call, not when this one is loaded: a preloaded library comes into every
//! process (`mpirun`, shells), and Python loads MPI late. Functions are found by name in that library alone, so the
//! `PMPI_*` symbols that this crate exports are never mistaken for the real ones.
//!
//! A call into the library marks the thread: what MPI-IO functions the library itself calls meanwhile pass straight through.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::abi::{Abi, Handle, MPICH, OPEN_MPI, Predefined, STANDARD};

/// The MPI library of this process.
#[derive(Debug)]
pub(crate) struct Native {
    pub(crate) abi: &'static Abi,
    /// Of `dlopen`; the library is never closed.
    loaded: usize,
    pub(crate) byte: Handle,
    pub(crate) datatype_null: Handle,
    pub(crate) comm_world: Handle,
    pub(crate) comm_null: Handle,
}

/// Calls a function of the MPI library by name; the types are those of its C declaration, with [`Handle`] for a handle.
/// A function that the library does not have gives `MPI_ERR_OTHER`, after a word on stderr.
macro_rules! call {
    ($native:expr, $symbol:expr $(, $argument:expr => $type:ty)* $(,)?) => {{
        let _mark = crate::native::InsideLibrary::set();
        crate::native::call_back!($native, $symbol $(, $argument => $type)*)
    }};
}

/// As [`call`], of a function that runs the program's own functions: their MPI-IO is the program's.
macro_rules! call_back {
    ($native:expr, $symbol:expr $(, $argument:expr => $type:ty)* $(,)?) => {{
        static ADDRESS: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
        let native: &crate::native::Native = $native;
        match *ADDRESS.get_or_init(|| native.function($symbol)) {
            0 => native.lacks($symbol),
            address => {
                // SAFETY: the library's function of this name has this type, with a handle in a register for each handle
                // (abi.rs says why an `int` may travel so); what the pointers point at is the caller's, as in C.
                #[allow(unsafe_code)]
                unsafe {
                    let function: unsafe extern "C" fn($($type),*) -> std::ffi::c_int = std::mem::transmute(address);
                    function($($argument),*)
                }
            }
        }
    }};
}
pub(crate) use call;
pub(crate) use call_back;

thread_local! {
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// This thread is inside the MPI library for as long as one of these lives.
pub(crate) struct InsideLibrary;

impl InsideLibrary {
    pub(crate) fn set() -> Self {
        INSIDE.with(|inside| inside.set(inside.get() + 1));
        Self
    }

    pub(crate) fn is_set() -> bool {
        INSIDE.with(|inside| inside.get() > 0)
    }
}

impl Drop for InsideLibrary {
    fn drop(&mut self) {
        INSIDE.with(|inside| inside.set(inside.get() - 1));
    }
}

impl Native {
    /// The MPI library of this process; ends the process where there is none that is known, because an MPI-IO call can
    /// then be neither locked nor passed on.
    pub(crate) fn get() -> &'static Native {
        static NATIVE: OnceLock<Native> = OnceLock::new();
        NATIVE.get_or_init(|| {
            Self::find().unwrap_or_else(|why| {
                eprintln!("elbow: {why}; start the program without `elbow lock mpi`");
                std::process::abort();
            })
        })
    }

    fn find() -> Result<Native, String> {
        let mut found: Vec<Native> = loaded_libraries().iter().filter_map(|path| Native::at(path)).collect();
        match (found.pop(), found.is_empty()) {
            (None, _) => Err("an MPI-IO function was called, but no MPI library is loaded that is known here".into()),
            (Some(native), true) => Ok(native),
            (Some(_), false) => Err("several MPI libraries are loaded in one process".into()),
        }
    }

    /// The library at `path`, if it is an MPI library.
    fn at(path: &CStr) -> Option<Native> {
        let base = path.to_bytes().rsplit(|byte| *byte == b'/').next()?;
        if !base.starts_with(b"libmpi") {
            return None;
        }
        // SAFETY: a C string; RTLD_NOLOAD only gives a handle of what is loaded.
        #[allow(unsafe_code)]
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) } as usize;
        if library == 0 || own_symbol(library, c"PMPI_File_open").is_none() {
            return None;
        }
        let abi = match own_symbol(library, c"ompi_mpi_byte") {
            _ if base.starts_with(b"libmpi_abi") => &STANDARD,
            Some(_) => &OPEN_MPI,
            None => &MPICH,
        };
        let predefined = |named| match named {
            Predefined::Number(number) => Some(abi.handle(number)),
            Predefined::Symbol(name) => variable(library, &CString::new(name).ok()?).map(Handle),
        };
        Some(Native {
            abi,
            loaded: library,
            byte: predefined(abi.byte)?,
            datatype_null: predefined(abi.datatype_null)?,
            comm_world: predefined(abi.comm_world)?,
            comm_null: predefined(abi.comm_null)?,
        })
    }

    /// The address of a function, 0 if the library has none of this name.
    pub(crate) fn function(&self, name: &str) -> usize {
        CString::new(name)
            .ok()
            .and_then(|name| symbol(self.loaded, &name))
            .unwrap_or(0)
    }

    /// Whether the library has a function of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.function(name) != 0
    }

    pub(crate) fn lacks(&self, name: &str) -> c_int {
        eprintln!("elbow: the {} library of this process has no {name}", self.abi.name);
        self.abi.err_other
    }
}

fn symbol(library: usize, name: &CStr) -> Option<usize> {
    // SAFETY: a handle of dlopen or one of its constants, and a C string.
    #[allow(unsafe_code)]
    let address = unsafe { libc::dlsym(library as *mut c_void, name.as_ptr()) } as usize;
    (address != 0).then_some(address)
}

/// The address of a variable of the library, as the library itself has it: where a program has a copy (a copy relocation), that is the one.
fn variable(library: usize, name: &CStr) -> Option<usize> {
    symbol(libc::RTLD_DEFAULT as usize, name).or_else(|| own_symbol(library, name))
}

/// As [`symbol`], but only if the library itself defines it and not one that it needs.
fn own_symbol(library: usize, name: &CStr) -> Option<usize> {
    let address = symbol(library, name)?;
    // SAFETY: both are filled by dladdr, which takes any address; `link_map` of a handle begins with its load address.
    #[allow(unsafe_code)]
    unsafe {
        let mut info = std::mem::zeroed::<libc::Dl_info>();
        let load_address = *(library as *const usize);
        (libc::dladdr(address as *const c_void, &raw mut info) != 0 && info.dli_fbase as usize == load_address)
            .then_some(address)
    }
}

/// The paths of all shared libraries of this process.
fn loaded_libraries() -> Vec<CString> {
    #[allow(unsafe_code)]
    unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _size: usize, paths: *mut c_void) -> c_int {
        // SAFETY: dl_iterate_phdr gives a valid entry, and what we gave it below.
        let (name, paths) = unsafe { ((*info).dlpi_name, &mut *paths.cast::<Vec<CString>>()) };
        if !name.is_null() {
            // SAFETY: the name is a C string that lives as long as the library.
            paths.push(unsafe { CStr::from_ptr(name.cast::<c_char>()) }.to_owned());
        }
        0
    }
    let mut paths: Vec<CString> = Vec::new();
    // SAFETY: `note` has the type that is asked for, and `paths` outlives the call.
    #[allow(unsafe_code)]
    unsafe {
        libc::dl_iterate_phdr(Some(note), (&raw mut paths).cast());
    }
    paths
}
