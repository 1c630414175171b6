//! One read or write in atomic mode, by one process: lock what it covers, do it, unlock.
//!
//! The library's *blocking, independent* function does the I/O, whatever the program called: nothing may be under way
//! after the lock is gone, and no lock may be kept after the call. A lock that was kept until `MPI_Wait` would be kept
//! while the program waits for messages from a process that waits for that lock. So a nonblocking access is done when it
//! returns, and its request is complete from the start. Source: MPI 4.0, sections 14.4 and 14.6.1.

use std::ffi::{c_int, c_void};
use std::time::Instant;

use elbow_lock::LockMode;

use crate::abi::Handle;
use crate::error::MpiError;
use crate::files::{Atomic, OpenFile};
use crate::hdf5::{self, AccessLock};
use crate::inspect;
use crate::native::{Native, call};
use crate::status::Status;
use crate::view::AccessFootprint;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// Where in the view an access begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Positioning {
    /// At this many etypes from the view's begin.
    At(i64),
    /// At the process's own file pointer, which it moves.
    Own,
    /// At the file pointer that all processes share, which it moves.
    Shared,
}

/// One read or write. The pointers are the program's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) direction: Direction,
    pub(crate) place: Positioning,
    pub(crate) buffer: *mut c_void,
    pub(crate) count: i64,
    pub(crate) datatype: Handle,
    pub(crate) status: *mut c_void,
}

/// Calls `PMPI_File_<what>(file, [offset,] buffer, count, datatype, status)`, or its `_c` twin for a large count.
macro_rules! transfer {
    ($native:expr, $file:expr, $transfer:expr, $what:literal $(, $offset:expr)?) => {{
        let (native, file, transfer) = ($native, $file, $transfer);
        match c_int::try_from(transfer.count) {
            Ok(count) => call!(native, concat!("PMPI_File_", $what), file => usize, $($offset => i64,)? transfer.buffer => *mut c_void,
                count => c_int, transfer.datatype => Handle, transfer.status => *mut c_void),
            Err(_) => call!(native, concat!("PMPI_File_", $what, "_c"), file => usize, $($offset => i64,)? transfer.buffer => *mut c_void,
                transfer.count => i64, transfer.datatype => Handle, transfer.status => *mut c_void),
        }
    }};
}

impl Transfer {
    pub(crate) fn kind(&self) -> LockMode {
        match self.direction {
            Direction::Read => LockMode::Shared,
            Direction::Write => LockMode::Exclusive,
        }
    }

    /// For people.
    pub(crate) fn name(&self) -> &'static str {
        match self.direction {
            Direction::Read => "atomic MPI-IO read",
            Direction::Write => "atomic MPI-IO write",
        }
    }

    /// Bytes of data.
    ///
    /// # Errors
    /// The arguments are wrong.
    pub(crate) fn bytes(&self, native: &Native) -> Result<u64, MpiError> {
        let count = u64::try_from(self.count).unwrap_or(0);
        inspect::size_of(native, self.datatype)?
            .checked_mul(count)
            .ok_or_else(|| MpiError::Unsupported("an access of more than 2^64 bytes".into()))
    }

    /// Refuses what is wrong by itself: not every library does, and none could be trusted to move no data then.
    ///
    /// # Errors
    /// A negative count or offset, or no datatype.
    fn check(&self, native: &Native) -> Result<(), MpiError> {
        let wrong = match self.place {
            _ if self.count < 0 => "a negative count",
            _ if self.datatype == native.datatype_null => "no datatype",
            Positioning::At(offset) if offset < 0 => "a negative offset",
            _ => return Ok(()),
        };
        Err(MpiError::Unsupported(wrong.into()))
    }

    /// What it covers.
    ///
    /// # Errors
    /// The view cannot be locked exactly.
    pub(crate) fn cover(&self, native: &Native, file: &OpenFile, atomic: &Atomic) -> Result<AccessFootprint, MpiError> {
        self.check(native)?;
        match self.bytes(native)? {
            0 => Ok(AccessFootprint::nothing()),
            bytes => atomic.view(native, file)?.cover(self.offset(native, file)?, bytes),
        }
    }

    /// How many etypes it moves a file pointer on.
    ///
    /// # Errors
    /// It is no whole number of etypes, or the view cannot be locked exactly.
    pub(crate) fn etypes(&self, native: &Native, file: &OpenFile, atomic: &Atomic) -> Result<u64, MpiError> {
        self.check(native)?;
        let (bytes, etype_bytes) = (self.bytes(native)?, atomic.view(native, file)?.etype_bytes.max(1));
        match bytes % etype_bytes {
            0 => Ok(bytes / etype_bytes),
            _ => Err(MpiError::Unsupported(format!(
                "{bytes} bytes at a shared file pointer that counts pieces of {etype_bytes} bytes"
            ))),
        }
    }

    pub(crate) fn offset(&self, native: &Native, file: &OpenFile) -> Result<i64, MpiError> {
        let mut offset = 0_i64;
        let code = match self.place {
            Positioning::At(offset) => return Ok(offset),
            Positioning::Own => {
                call!(native, "PMPI_File_get_position", file.handle => usize, &raw mut offset => *mut i64)
            }
            Positioning::Shared => {
                call!(native, "PMPI_File_get_position_shared", file.handle => usize, &raw mut offset => *mut i64)
            }
        };
        MpiError::of_native(code)?;
        Ok(offset)
    }

    /// Does it atomically, alone.
    ///
    /// # Errors
    /// See [`MpiError`].
    pub(crate) fn independent(&self, native: &Native, file: &OpenFile, atomic: &Atomic) -> Result<(), MpiError> {
        let pointer = match self.place {
            Positioning::Shared => Some(atomic.lock_shared_pointer()?),
            _ => None,
        };
        let cover = self.cover(native, file, atomic)?;
        let Some(footprint) = cover.footprint() else {
            return MpiError::of_native(self.go(native, file));
        };
        if let AccessLock::Transfer = hdf5::within(file.handle, atomic, self.kind(), &footprint.bounds())? {
            return MpiError::of_native(self.go(native, file));
        }
        if self.sieved(native, file, atomic, &cover)?.is_some() {
            return Ok(());
        }
        let hold = match self.direction {
            Direction::Read => atomic.lock(footprint, LockMode::Shared)?,
            Direction::Write => atomic.lock_for(footprint, LockMode::Exclusive, false)?,
        };
        if let Some(pointer) = &pointer {
            pointer.check()?;
        }
        let begin = Instant::now();
        let code = self.go(native, file);
        if self.direction == Direction::Write {
            atomic.learn(&cover, begin);
        }
        hold.finish()?;
        pointer.map_or(Ok(()), |pointer| pointer.finish())?;
        MpiError::of_native(code)
    }

    /// The library's blocking, independent function.
    pub(crate) fn go(&self, native: &Native, file: &OpenFile) -> c_int {
        let handle = file.handle;
        match (self.direction, self.place) {
            (Direction::Read, Positioning::At(offset)) => transfer!(native, handle, self, "read_at", offset),
            (Direction::Read, Positioning::Own) => transfer!(native, handle, self, "read"),
            (Direction::Read, Positioning::Shared) => transfer!(native, handle, self, "read_shared"),
            (Direction::Write, Positioning::At(offset)) => transfer!(native, handle, self, "write_at", offset),
            (Direction::Write, Positioning::Own) => transfer!(native, handle, self, "write"),
            (Direction::Write, Positioning::Shared) => transfer!(native, handle, self, "write_shared"),
        }
    }

    /// The library's blocking, collective function.
    pub(crate) fn go_collective(&self, native: &Native, file: &OpenFile) -> c_int {
        let handle = file.handle;
        match (self.direction, self.place) {
            (Direction::Read, Positioning::At(offset)) => transfer!(native, handle, self, "read_at_all", offset),
            (Direction::Read, Positioning::Own) => transfer!(native, handle, self, "read_all"),
            (Direction::Read, Positioning::Shared) => transfer!(native, handle, self, "read_ordered"),
            (Direction::Write, Positioning::At(offset)) => transfer!(native, handle, self, "write_at_all", offset),
            (Direction::Write, Positioning::Own) => transfer!(native, handle, self, "write_all"),
            (Direction::Write, Positioning::Shared) => transfer!(native, handle, self, "write_ordered"),
        }
    }

    /// The same, with its status kept here.
    pub(crate) fn with_status(&self, status: &mut Status) -> Transfer {
        Transfer {
            status: (&raw mut *status).cast(),
            ..*self
        }
    }
}
