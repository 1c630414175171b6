//! What differs between MPI libraries as binaries: the width of handles, the size of a status, the values of constants.
//!
//! There are three such interfaces, and each has been stable for years; so the numbers are written down here, and
//! neither an `mpi.h` nor one build for each MPI is needed:
//!
//! | interface | libraries | handles |
//! |---|---|---|
//! | MPICH | `libmpi.so.12`, `libmpich.so.12`: MPICH 3.1 to 5, Intel MPI, MVAPICH (the MPICH ABI compatibility initiative) | `int` |
//! | Open MPI | `libmpi.so.40`: 4 and 5 | pointers |
//! | standard | `libmpi_abi.so`: the MPI 5.0 standard, chapter "Application Binary Interface" | pointers |
//!
//! `MPI_File` is a pointer in all three; `MPI_Offset`, `MPI_Count` and `MPI_Aint` have 64 bits (only 64-bit machines are
//! supported). A test compares every number with what each installed `mpi.h` says.

use std::ffi::c_int;

/// A handle of a communicator, datatype, info or request, as it travels in a register. Handles of 32 bits are kept
/// sign-extended, which is what the calling conventions of 64-bit machines take for an `int`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(transparent)]
pub(crate) struct Handle(pub(crate) usize);

/// Where a predefined handle comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Predefined {
    /// The handle is this number.
    Number(usize),
    /// The handle is the address of this variable of the library.
    Symbol(&'static str),
}

/// How a datatype was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Combiner {
    Named,
    Dup,
    Contiguous,
    Vector,
    Hvector,
    Indexed,
    Hindexed,
    IndexedBlock,
    HindexedBlock,
    Struct,
    Subarray,
    Darray,
    Resized,
    /// `MPI_Type_create_f90_real`, `_complex`, `_integer`: predefined in all but name, and never freed.
    Fortran90,
}

/// One binary interface.
#[derive(Debug)]
pub(crate) struct Abi {
    pub(crate) name: &'static str,
    pub(crate) handle_bytes: usize,
    pub(crate) status_bytes: usize,
    pub(crate) status_ignore: usize,
    pub(crate) seek_set: c_int,
    pub(crate) mode_rdwr: c_int,
    pub(crate) mode_unique_open: c_int,
    pub(crate) byte: Predefined,
    pub(crate) datatype_null: Predefined,
    pub(crate) comm_world: Predefined,
    pub(crate) comm_null: Predefined,
    pub(crate) combiners: [(&'static str, c_int, Combiner); 16],
    pub(crate) order_c: c_int,
    pub(crate) distribute_block: c_int,
    pub(crate) distribute_cyclic: c_int,
    pub(crate) distribute_none: c_int,
    pub(crate) distribute_default: c_int,
    pub(crate) err_count: c_int,
    pub(crate) err_other: c_int,
}

const fn combiners(v: [c_int; 16]) -> [(&'static str, c_int, Combiner); 16] {
    [
        ("NAMED", v[0], Combiner::Named),
        ("DUP", v[1], Combiner::Dup),
        ("CONTIGUOUS", v[2], Combiner::Contiguous),
        ("VECTOR", v[3], Combiner::Vector),
        ("HVECTOR", v[4], Combiner::Hvector),
        ("INDEXED", v[5], Combiner::Indexed),
        ("HINDEXED", v[6], Combiner::Hindexed),
        ("INDEXED_BLOCK", v[7], Combiner::IndexedBlock),
        ("HINDEXED_BLOCK", v[8], Combiner::HindexedBlock),
        ("STRUCT", v[9], Combiner::Struct),
        ("SUBARRAY", v[10], Combiner::Subarray),
        ("DARRAY", v[11], Combiner::Darray),
        ("RESIZED", v[12], Combiner::Resized),
        ("F90_REAL", v[13], Combiner::Fortran90),
        ("F90_COMPLEX", v[14], Combiner::Fortran90),
        ("F90_INTEGER", v[15], Combiner::Fortran90),
    ]
}

pub(crate) static MPICH: Abi = Abi {
    name: "MPICH",
    handle_bytes: 4,
    status_bytes: 20,
    status_ignore: 1,
    seek_set: 600,
    mode_rdwr: 8,
    mode_unique_open: 32,
    byte: Predefined::Number(0x4c00_010d),
    datatype_null: Predefined::Number(0x0c00_0000),
    comm_world: Predefined::Number(0x4400_0000),
    comm_null: Predefined::Number(0x0400_0000),
    combiners: combiners([1, 2, 3, 4, 6, 7, 9, 10, 19, 12, 13, 14, 18, 15, 16, 17]),
    order_c: 56,
    distribute_block: 121,
    distribute_cyclic: 122,
    distribute_none: 123,
    distribute_default: -49767,
    err_count: 2,
    err_other: 15,
};

pub(crate) static OPEN_MPI: Abi = Abi {
    name: "Open MPI",
    handle_bytes: 8,
    status_bytes: 24,
    status_ignore: 0,
    seek_set: 600,
    mode_rdwr: 8,
    mode_unique_open: 32,
    byte: Predefined::Symbol("ompi_mpi_byte"),
    datatype_null: Predefined::Symbol("ompi_mpi_datatype_null"),
    comm_world: Predefined::Symbol("ompi_mpi_comm_world"),
    comm_null: Predefined::Symbol("ompi_mpi_comm_null"),
    combiners: combiners([0, 1, 2, 3, 5, 6, 8, 9, 18, 11, 12, 13, 17, 14, 15, 16]),
    order_c: 0,
    distribute_block: 0,
    distribute_cyclic: 1,
    distribute_none: 2,
    distribute_default: -1,
    err_count: 2,
    err_other: 16,
};

pub(crate) static STANDARD: Abi = Abi {
    name: "standard",
    handle_bytes: 8,
    status_bytes: 32,
    status_ignore: 0,
    seek_set: 403,
    mode_rdwr: 32,
    mode_unique_open: 128,
    byte: Predefined::Number(0x247),
    datatype_null: Predefined::Number(0x200),
    comm_world: Predefined::Number(0x101),
    comm_null: Predefined::Number(0x100),
    combiners: combiners([
        101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 116, 113, 114, 115,
    ]),
    order_c: 12,
    distribute_block: 17,
    distribute_cyclic: 18,
    distribute_none: 16,
    distribute_default: 19,
    err_count: 2,
    err_other: 16,
};

impl Abi {
    /// What an `int` or pointer argument holds as a handle: the upper half of a register that carries an `int` is noise.
    pub(crate) fn handle(&self, register: usize) -> Handle {
        match self.handle_bytes {
            4 => Handle(register as i32 as isize as usize),
            _ => Handle(register),
        }
    }

    /// The handle that lies at `at`, as C stores it.
    ///
    /// # Safety
    /// `at` holds a handle of this interface.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn load(&self, at: *const u8) -> Handle {
        // SAFETY: the caller's promise; nothing is assumed of the alignment.
        unsafe {
            match self.handle_bytes {
                4 => self.handle(at.cast::<u32>().read_unaligned() as usize),
                _ => Handle(at.cast::<usize>().read_unaligned()),
            }
        }
    }

    /// A word whose first bytes are the handle as C stores it.
    pub(crate) fn stored(&self, handle: Handle) -> usize {
        let mut bytes = handle.0.to_ne_bytes();
        if self.handle_bytes == 4 {
            bytes[..4].copy_from_slice(&(handle.0 as u32).to_ne_bytes());
        }
        usize::from_ne_bytes(bytes)
    }

    pub(crate) fn combiner(&self, value: c_int) -> Option<Combiner> {
        self.combiners
            .iter()
            .find(|known| known.1 == value)
            .map(|known| known.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::implementations;
    use std::collections::HashMap;
    use std::process::Command;

    #[test]
    fn every_number_is_what_the_installed_headers_say() {
        let dir = tempfile::tempdir().expect("a directory");
        for mpi in implementations::installed() {
            let output = Command::new(mpi.compile("c/constants.c", dir.path()))
                .output()
                .expect("it starts");
            let printed = String::from_utf8(output.stdout).expect("text");
            let numbers: HashMap<&str, i64> = printed
                .lines()
                .map(|line| line.split_once(' ').expect("NAME NUMBER"))
                .map(|(name, number)| (name, number.parse().expect("a number")))
                .collect();
            let abi = [&MPICH, &OPEN_MPI, &STANDARD]
                .into_iter()
                .find(|abi| abi.name == mpi.abi)
                .expect("an interface");
            check(abi, &numbers, mpi.name);
        }
    }

    fn check(abi: &Abi, numbers: &HashMap<&str, i64>, library: &str) {
        let is = |name: &str, ours: i64| assert_eq!(numbers.get(name), Some(&ours), "{name} of {library}");
        is("HANDLE_BYTES", abi.handle_bytes as i64);
        is("STATUS_BYTES", abi.status_bytes as i64);
        for eight in ["OFFSET_BYTES", "AINT_BYTES", "COUNT_BYTES", "FILE_BYTES"] {
            is(eight, 8);
        }
        is("MPI_STATUS_IGNORE", abi.status_ignore as i64);
        is("MPI_SEEK_SET", abi.seek_set.into());
        is("MPI_MODE_RDWR", abi.mode_rdwr.into());
        is("MPI_MODE_UNIQUE_OPEN", abi.mode_unique_open.into());
        for (name, named) in [
            ("MPI_BYTE", abi.byte),
            ("MPI_DATATYPE_NULL", abi.datatype_null),
            ("MPI_COMM_WORLD", abi.comm_world),
            ("MPI_COMM_NULL", abi.comm_null),
        ] {
            if let Predefined::Number(number) = named {
                is(name, number as i64);
            }
        }
        for (name, value, _) in abi.combiners {
            is(&format!("MPI_COMBINER_{name}"), value.into());
        }
        is("MPI_ORDER_C", abi.order_c.into());
        is("MPI_DISTRIBUTE_BLOCK", abi.distribute_block.into());
        is("MPI_DISTRIBUTE_CYCLIC", abi.distribute_cyclic.into());
        is("MPI_DISTRIBUTE_NONE", abi.distribute_none.into());
        is("MPI_DISTRIBUTE_DFLT_DARG", abi.distribute_default.into());
        is("MPI_ERR_COUNT", abi.err_count.into());
        is("MPI_ERR_OTHER", abi.err_other.into());
    }

    #[test]
    fn handles_of_32_bits_lose_the_noise_above_them() {
        assert_eq!(MPICH.handle(0xdead_beef_4c00_010d), Handle(0x4c00_010d));
        assert_eq!(MPICH.handle(0x8c00_0001), MPICH.handle(0xffff_ffff_8c00_0001));
        assert_eq!(OPEN_MPI.handle(0x7fff_dead_beef_0000), Handle(0x7fff_dead_beef_0000));
    }
}
