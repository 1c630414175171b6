//! The processes that opened a file together: the few messages that collective accesses need, between rank 0 and the rest.
//!
//! They go over a communicator of our own, so they never meet the program's messages. Only bytes are sent.

use std::ffi::{c_int, c_void};

use crate::abi::Handle;
use crate::error::MpiError;
use crate::native::{Native, call};

const VARIABLE: &str = "ELBOW_MPI_GATHERED";

/// How long, in bytes, the descriptions of one access by all processes may be together; `ELBOW_MPI_GATHERED` in the environment of rank 0 says less.
///
/// # Errors
/// It says something that is none.
pub(crate) fn gathered_bytes_max() -> Result<u64, MpiError> {
    match std::env::var(VARIABLE) {
        Err(std::env::VarError::NotPresent) => Ok(c_int::MAX as u64),
        Ok(text) => gathered(&text),
        Err(error) => Err(MpiError::Unsupported(format!("{VARIABLE}: {error}"))),
    }
}

fn gathered(text: &str) -> Result<u64, MpiError> {
    let wrong = |_| MpiError::Unsupported(format!("{VARIABLE} is `{text}`; it may be a number of bytes"));
    text.parse().map_err(wrong)
}

/// The processes that opened a file together.
#[derive(Debug)]
pub(crate) struct Group {
    comm: Handle,
    pub(crate) rank: usize,
    pub(crate) size: usize,
}

impl Group {
    /// The processes of a communicator; all of them call it.
    ///
    /// # Errors
    /// The library's.
    pub(crate) fn of(native: &Native, comm: Handle) -> Result<Self, MpiError> {
        let mut copy = 0_usize;
        MpiError::of_native(call!(native, "PMPI_Comm_dup", comm => Handle, &raw mut copy => *mut usize))?;
        // SAFETY: the library has put a handle there.
        #[allow(unsafe_code)]
        let comm = unsafe { native.abi.load((&raw const copy).cast()) };
        let (mut rank, mut size) = (0 as c_int, 1 as c_int);
        MpiError::of_native(call!(native, "PMPI_Comm_rank", comm => Handle, &raw mut rank => *mut c_int))?;
        MpiError::of_native(call!(native, "PMPI_Comm_size", comm => Handle, &raw mut size => *mut c_int))?;
        Ok(Self {
            comm,
            rank: rank.unsigned_abs() as usize,
            size: size.unsigned_abs() as usize,
        })
    }

    /// Ends it; all of them call it.
    pub(crate) fn free(&self, native: &Native) {
        free(native, self.comm);
    }

    /// A communicator of each process alone; all of them call it.
    ///
    /// # Errors
    /// The library's.
    pub(crate) fn own_communicator(&self, native: &Native) -> Result<Handle, MpiError> {
        let mut own_communicator = 0_usize;
        let mine = self.rank as c_int;
        MpiError::of_native(
            call!(native, "PMPI_Comm_split", self.comm => Handle, mine => c_int, 0 => c_int, &raw mut own_communicator => *mut usize),
        )?;
        // SAFETY: the library has put a handle there.
        #[allow(unsafe_code)]
        unsafe {
            Ok(native.abi.load((&raw const own_communicator).cast()))
        }
    }

    pub(crate) fn leads(&self) -> bool {
        self.rank == 0
    }

    /// Sends `mine` to rank 0, which gets everybody's, by rank; the others get nothing. All together are at most `bytes_max` long, as rank 0 has it, and no longer
    /// than an `int` can say.
    ///
    /// # Errors
    /// The library's; or all together are longer. Then it is an error on every rank, and nobody waits for the others.
    pub(crate) fn gather(&self, native: &Native, mine: &[u8], bytes_max: u64) -> Result<Vec<Vec<u8>>, MpiError> {
        let lengths = self.gather_numbers(native, mine.len() as u64)?;
        let total: u64 = lengths.iter().fold(0, |total, length| total.saturating_add(*length));
        let bytes_max = bytes_max.min(c_int::MAX as u64);
        if self.share_number(native, u64::from(total <= bytes_max))? == 0 {
            return Err(match self.leads() {
                true => MpiError::Unsupported(format!(
                    "descriptions of one access by all processes of {total} bytes, which are more than {bytes_max}"
                )),
                false => MpiError::Elsewhere,
            });
        }
        let counts: Vec<c_int> = lengths.iter().map(|length| *length as c_int).collect();
        let begins: Vec<c_int> = counts
            .iter()
            .scan(0, |end, count| Some(std::mem::replace(end, *end + count)))
            .collect();
        let mut all = vec![0_u8; total as usize];
        let byte = native.byte;
        MpiError::of_native(
            call!(native, "PMPI_Gatherv", mine.as_ptr().cast() => *const c_void, mine.len() as c_int => c_int, byte => Handle,
            all.as_mut_ptr().cast() => *mut c_void, counts.as_ptr() => *const c_int, begins.as_ptr() => *const c_int, byte => Handle,
            0 => c_int, self.comm => Handle),
        )?;
        let mut rest = all.as_slice();
        Ok(lengths
            .iter()
            .map(|length| rest.split_off(..*length as usize).unwrap_or_default().to_vec())
            .collect())
    }

    /// As [`gather`](Self::gather), of one number each.
    pub(crate) fn gather_numbers(&self, native: &Native, mine: u64) -> Result<Vec<u64>, MpiError> {
        let mut all = vec![0_u64; if self.leads() { self.size } else { 0 }];
        let byte = native.byte;
        MpiError::of_native(
            call!(native, "PMPI_Gather", (&raw const mine).cast() => *const c_void, 8 => c_int, byte => Handle,
            all.as_mut_ptr().cast() => *mut c_void, 8 => c_int, byte => Handle, 0 => c_int, self.comm => Handle),
        )?;
        Ok(all)
    }

    /// Gives each rank its number of those that rank 0 has.
    pub(crate) fn scatter_number(&self, native: &Native, all: &[u64]) -> Result<u64, MpiError> {
        debug_assert!(!self.leads() || all.len() == self.size);
        let mut mine = 0_u64;
        let byte = native.byte;
        MpiError::of_native(
            call!(native, "PMPI_Scatter", all.as_ptr().cast() => *const c_void, 8 => c_int, byte => Handle,
            (&raw mut mine).cast() => *mut c_void, 8 => c_int, byte => Handle, 0 => c_int, self.comm => Handle),
        )?;
        Ok(mine)
    }

    /// Gives all ranks the bytes of rank 0.
    pub(crate) fn share(&self, native: &Native, bytes: &mut [u8]) -> Result<(), MpiError> {
        MpiError::of_native(
            call!(native, "PMPI_Bcast", bytes.as_mut_ptr().cast() => *mut c_void, bytes.len() as c_int => c_int,
            native.byte => Handle, 0 => c_int, self.comm => Handle),
        )
    }

    /// Gives all ranks a number of rank 0.
    pub(crate) fn share_number(&self, native: &Native, number: u64) -> Result<u64, MpiError> {
        let mut bytes = number.to_ne_bytes();
        self.share(native, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Lets rank 0 wait until all have come here; the others do not wait.
    pub(crate) fn arrived(&self, native: &Native) -> Result<(), MpiError> {
        self.gather_numbers(native, 0).map(drop)
    }
}

/// Ends a communicator; all of its processes call it.
pub(crate) fn free(native: &Native, comm: Handle) {
    let mut stored = native.abi.stored(comm);
    call!(native, "PMPI_Comm_free", &raw mut stored => *mut usize);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_gathered_is_a_number_of_bytes() {
        assert_eq!(gathered("65536").unwrap(), 65_536);
        assert!(gathered("64K").unwrap_err().to_string().contains("a number of bytes"));
    }
}
