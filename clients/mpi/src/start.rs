//! The functions by which processes come to have communicators: each is carried out, and then we look whether all have this library
//! ([`crate::presence`]).

use std::ffi::{c_char, c_int, c_void};

use crate::abi::Handle;
use crate::entry::export;
use crate::native::{InsideLibrary, Native, call};
use crate::presence;

const STARTED: &str = "that were started by MPI_Comm_spawn";
const CONNECTED: &str = "at the other end of the connection";

/// Exports a function that begins to use MPI.
macro_rules! begin_mpi {
    ($name:literal, ($($argument:ident: $type:ty),*)) => {
        export!($name, ($($argument: $type),*), {
            let native = Native::get();
            let is_ours = !InsideLibrary::is_set();
            let code = call!(native, concat!("PMPI_", $name), $($argument => $type),*);
            if code == 0 && is_ours {
                presence::begun(native);
            }
            code
        });
    };
}

begin_mpi!("Init", (count: *mut c_int, words: *mut c_void));
begin_mpi!("Init_thread", (count: *mut c_int, words: *mut c_void, required: c_int, provided: *mut c_int));

export!("Comm_create_from_group", (group: usize, tag: *const c_char, info: usize, handler: usize, made: *mut usize), {
    let native = Native::get();
    let code = call!(native, "PMPI_Comm_create_from_group", native.abi.handle(group) => Handle, tag => *const c_char,
        native.abi.handle(info) => Handle, native.abi.handle(handler) => Handle, made => *mut usize);
    if code == 0 && !InsideLibrary::is_set() {
        presence::made(native, stored(native, made));
    }
    code
});

export!("Comm_spawn", (command: *const c_char, words: *mut c_void, processes: c_int, info: usize, root: c_int, comm: usize, between: *mut usize,
    codes: *mut c_int), {
    let native = Native::get();
    let comm = native.abi.handle(comm);
    let code = call!(native, "PMPI_Comm_spawn", command => *const c_char, words => *mut c_void, processes => c_int, native.abi.handle(info) => Handle,
        root => c_int, comm => Handle, between => *mut usize, codes => *mut c_int);
    connected(native, code, between, comm, STARTED);
    code
});

export!("Comm_spawn_multiple", (commands: c_int, names: *mut c_void, words: *mut c_void, processes: *const c_int, infos: *const c_void, root: c_int,
    comm: usize, between: *mut usize, codes: *mut c_int), {
    let native = Native::get();
    let comm = native.abi.handle(comm);
    let code = call!(native, "PMPI_Comm_spawn_multiple", commands => c_int, names => *mut c_void, words => *mut c_void, processes => *const c_int,
        infos => *const c_void, root => c_int, comm => Handle, between => *mut usize, codes => *mut c_int);
    connected(native, code, between, comm, STARTED);
    code
});

export!("Comm_connect", (port: *const c_char, info: usize, root: c_int, comm: usize, between: *mut usize), {
    let native = Native::get();
    let comm = native.abi.handle(comm);
    let code = call!(native, "PMPI_Comm_connect", port => *const c_char, native.abi.handle(info) => Handle, root => c_int, comm => Handle,
        between => *mut usize);
    connected(native, code, between, comm, CONNECTED);
    code
});

export!("Comm_accept", (port: *const c_char, info: usize, root: c_int, comm: usize, between: *mut usize), {
    let native = Native::get();
    let comm = native.abi.handle(comm);
    let code = call!(native, "PMPI_Comm_accept", port => *const c_char, native.abi.handle(info) => Handle, root => c_int, comm => Handle,
        between => *mut usize);
    connected(native, code, between, comm, CONNECTED);
    code
});

/// The processes of `comm` have met others, if there was no error.
fn connected(native: &Native, code: c_int, between: *const usize, comm: Handle, peers: &str) {
    if code == 0 && !InsideLibrary::is_set() {
        presence::connected(native, stored(native, between), comm, peers);
    }
}

/// The handle that the library has given to the program.
fn stored(native: &Native, at: *const usize) -> Handle {
    // SAFETY: the call succeeded, so there is one.
    #[allow(unsafe_code)]
    unsafe {
        native.abi.load(at.cast())
    }
}
