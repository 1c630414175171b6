//! `libelbow_mpi.so`: makes the atomic mode of MPI-IO true, on any file system and for unmodified programs.
//!
//! ```text
//!   program  --MPI_File_write_at-->  this library  --lock exactly these bytes-->  lock service
//!                                         |
//!                                         `--PMPI_File_write_at-->  the MPI library  -->  file
//! ```
//!
//! It is preloaded (`elbow lock mpi -- mpirun ...`). One build serves MPICH, Open MPI and the standard MPI ABI, because what
//! differs between them as binaries is little and fixed ([`abi`]), and the library that a process runs on is looked for when
//! it makes its first MPI-IO call ([`native`]).
//!
//! - [`layout`], [`inspect`], [`view`]: from datatypes to patterns of bytes, never longer than the program's own description;
//! - [`transfer`]: an access of one process; [`collective`]: one of all; [`request`]: a nonblocking one;
//! - [`sieve`]: which parts are better written with the bytes between their pieces, as [`speed`] has it; [`sieving`] is whether they
//!   may be, [`windows`] locks and [`shadow`] writes them;
//! - [`entry`]: the exported functions; [`files`]: what is open, and in which mode, locked over [`service`]; [`granularity`]: how finely it is locked;
//!   [`hints`]: no write beyond what was asked; [`hdf5`]: independent transfers of HDF5, which are many accesses;
//! - [`start`], [`presence`]: whether all processes have this library;
//! - [`group`]: messages between the processes of a file; [`error`]: how the program hears of trouble.
//!
//! Invariants: in atomic mode no I/O is done but under a lock that covers all that it touches and was ours just before; what
//! cannot be locked exactly is refused with an MPI error; no lock is kept after the call that took it. In nonatomic mode
//! nothing is changed. No process comes to its program before all of its world are known to have this library. Design: `docs/design/mpi.md`.

mod abi;
mod collective;
mod entry;
mod error;
mod files;
mod granularity;
mod group;
mod hdf5;
mod hints;
#[cfg(test)]
#[path = "../tests/mpi/implementations.rs"]
#[allow(
    clippy::disallowed_methods,
    dead_code,
    reason = "this is what a program's build does"
)]
mod implementations;
mod inspect;
mod layout;
mod native;
mod presence;
mod request;
mod service;
mod shadow;
mod sieve;
mod sieving;
mod speed;
mod start;
mod status;
mod transfer;
mod view;
mod windows;
