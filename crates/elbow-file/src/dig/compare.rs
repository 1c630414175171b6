//! Compare and free in one step: the kernel shares a hole with a range, if that reads as the hole does.

use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::io::retry_on_intr;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

use crate::open::nameless_sibling;
use crate::{Errno, Handle, RealStorage, Result, Storage};

const FIDEDUPERANGE: Opcode = opcode::read_write::<Request>(0x94, 54);
const FILE_DEDUPE_RANGE_DIFFERS: i32 = 1;

/// `struct file_dedupe_range`.
#[repr(C)]
struct Request {
    source_offset: u64,
    length: u64,
    destination_count: u16,
    reserved: [u16; 3],
}

/// `struct file_dedupe_range_info`.
#[repr(C)]
struct Destination {
    fd: i64,
    offset: u64,
    /// Out: bytes that are shared now.
    bytes_shared: u64,
    /// Out: 0, `FILE_DEDUPE_RANGE_DIFFERS` or a negative errno.
    status: i32,
    reserved: u32,
}

#[repr(C)]
struct Compare {
    request: Request,
    destination: Destination,
}

/// A nameless file that is one hole, to share with others.
pub(super) struct Donor {
    file: Handle,
    bytes: u64,
    bytes_whole: u64,
    block_bytes: u64,
}

impl Donor {
    /// A hole of so many bytes on the file system of a file.
    pub(super) fn beside(fd: BorrowedFd<'_>, bytes: u64, block_bytes: u64) -> Result<Self> {
        let file = nameless_sibling(fd)?;
        RealStorage.truncate(&file, bytes)?;
        Ok(Self {
            file,
            bytes,
            bytes_whole: bytes,
            block_bytes,
        })
    }

    /// Makes a range of a file a hole, if it reads as zeros. Gives the bytes that are: none when it does not.
    pub(super) fn share(&mut self, file: &Handle, range: &Range<u64>) -> Result<u64> {
        let length = range.end - range.start;
        assert!(length <= self.bytes_whole, "a run of zeros is found in one piece");
        // The last, partly used block of a file is compared with the last block of another.
        let is_whole = length.is_multiple_of(self.block_bytes);
        self.resize(if is_whole { self.bytes_whole } else { length })?;
        let mut compare = Compare {
            request: Request {
                source_offset: 0,
                length,
                destination_count: 1,
                reserved: [0; 3],
            },
            destination: Destination {
                fd: file.as_fd().as_raw_fd().into(),
                offset: range.start,
                bytes_shared: 0,
                status: 0,
                reserved: 0,
            },
        };
        retry_on_intr(|| {
            // SAFETY: the call takes a pointer to a request that is followed by as many destinations as it says, one,
            // and writes to that; the file of its descriptor is open for the time of the call.
            #[allow(unsafe_code)]
            unsafe {
                ioctl(&self.file, Updater::<FIDEDUPERANGE, Compare>::new(&mut compare))
            }
        })?;
        match compare.destination.status {
            0 => Ok(compare.destination.bytes_shared),
            FILE_DEDUPE_RANGE_DIFFERS => Ok(0),
            errno => Err(Errno::from_raw_os_error(errno.saturating_neg())),
        }
    }

    fn resize(&mut self, bytes: u64) -> Result<()> {
        if self.bytes != bytes {
            RealStorage.truncate(&self.file, bytes)?;
            self.bytes = bytes;
        }
        Ok(())
    }
}

/// Whether an errno says that this file system, or these two files on it, cannot be compared.
pub(super) fn cannot(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY | Errno::INVAL | Errno::XDEV | Errno::PERM | Errno::ACCESS
    )
}
