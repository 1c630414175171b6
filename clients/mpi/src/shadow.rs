//! The second handle by which a process writes whole windows of a file in atomic mode; [`crate::sieve`] says which.
//!
//! The program's own handle shows the file through its view: the bytes in the gaps cannot be reached by it. So this opens the
//! file once more, alone and without a view, when it is first needed. It is the MPI library that reads and writes there,
//! too: what it does on a file system to see what others wrote (locks and flushes on NFS), it does here.
//!
//! Where that would not be the same file, or not be safe, accesses are written piece by piece, as ever: the path has another
//! file by now; the file may be written but not read, or not be opened twice; statfs(2) says that it is on a file system where
//! what was read may be older than what another machine wrote into a gap (NFS, SMB, FUSE, 9p, AFS).
//!
//! Invariant: the hold that a function takes is an exclusive lock on all that it reads and writes, and is looked at before each request. Who
//! writes on after it was lost would put back what was read of the gaps, over what others have written there since.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Instant;

use elbow_lock::Hold;
use parking_lot::Mutex;

use crate::abi::Handle;
use crate::error::MpiError;
use crate::native::{Native, call};
use crate::sieve::{self, CHUNK_BYTES, Chunk};
use crate::speed::{Speed, Speeds};
use crate::status::Status;
use crate::view::AccessFootprint;

/// How fast the file systems are that this process has seen.
pub(crate) static SPEEDS: LazyLock<Speeds> = LazyLock::new(Speeds::default);

/// Bytes of which a first request is made, only to see how long one takes.
const PROBE_BYTES: u64 = 4096;

/// Bytes that are read once, only to see what bytes take.
const GLANCE_BYTES: usize = 1 << 20;
/// A request that takes so many times as long as was believed is no bad moment.
const SLOWER: u64 = 4;

/// File systems on which a process may read less than others have written, because the kernel keeps pages of which other machines
/// know nothing: NFS, SMB 1, SMB 2, FUSE (sshfs, GlusterFS), 9p, AFS of Linux, OpenAFS. As statfs(2) and Linux
/// `include/uapi/linux/magic.h` name them.
const STALE: [i64; 7] = [
    0x6969,
    0xff53_4d42,
    0xfe53_4d42,
    0x6573_5546,
    0x0102_1997,
    0x6b41_4653,
    0x5346_414f,
];

/// What a path names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    inode: u64,
}

impl Identity {
    /// Nothing where it cannot be told.
    #[allow(clippy::disallowed_methods, reason = "whose file it is in the program's own eyes")]
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let found = std::fs::metadata(path).ok()?;
        Some(Self {
            device: found.dev(),
            inode: found.ino(),
        })
    }
}

/// A file that may be opened a second time.
#[derive(Debug)]
pub(crate) struct Shadow {
    /// As the MPI library wants it, and as others do.
    named: CString,
    path: PathBuf,
    identity: Identity,
    /// This process alone.
    own_communicator: Handle,
    handle: Mutex<OpenState>,
    /// Of one chunk, kept for the next.
    buffer: Mutex<Vec<u8>>,
}

#[derive(Clone, Copy, Debug)]
enum OpenState {
    NotYet,
    Never,
    As(usize),
}

impl Shadow {
    /// Of the file that is open as `file` and that was found at this path then.
    ///
    /// Nothing where it cannot or should not be opened a second time.
    pub(crate) fn of(
        native: &Native,
        file: usize,
        named: &CStr,
        path: &Path,
        identity: Identity,
        own_communicator: Handle,
    ) -> Option<Self> {
        let mut amode: c_int = 0;
        let code = call!(native, "PMPI_File_get_amode", file => usize, &raw mut amode => *mut c_int);
        let may = code == 0 && amode & native.abi.mode_rdwr != 0 && amode & native.abi.mode_unique_open == 0;
        (may && !may_be_stale(path)).then(|| Self {
            named: named.to_owned(),
            path: path.to_owned(),
            identity,
            own_communicator,
            handle: Mutex::new(OpenState::NotYet),
            buffer: Mutex::default(),
        })
    }

    pub(crate) fn device(&self) -> u64 {
        self.identity.device
    }

    /// Opens the file if it is not open; says whether it is.
    pub(crate) fn is_open(&self, native: &Native) -> bool {
        let mut handle = self.handle.lock();
        if matches!(*handle, OpenState::NotYet) {
            *handle = self.open(native).map_or(OpenState::Never, OpenState::As);
        }
        matches!(*handle, OpenState::As(_))
    }

    fn open(&self, native: &Native) -> Option<usize> {
        // The path may have another file by now: where it does, or did while it was opened, nothing was written.
        if Identity::of(&self.path) != Some(self.identity) {
            return None;
        }
        let (mut info, mut file) = (0_usize, 0_usize);
        MpiError::of_native(call!(native, "PMPI_Info_create", &raw mut info => *mut usize)).ok()?;
        // SAFETY: the library has put a handle there.
        #[allow(unsafe_code)]
        let hints = unsafe { native.abi.load((&raw const info).cast()) };
        let code = call!(native, "PMPI_File_open", self.own_communicator => Handle, self.named.as_ptr() => *const std::ffi::c_char,
            native.abi.mode_rdwr => c_int, hints => Handle, &raw mut file => *mut usize);
        call!(native, "PMPI_Info_free", &raw mut info => *mut usize);
        MpiError::of_native(code).ok()?;
        if Identity::of(&self.path) == Some(self.identity) {
            return Some(file);
        }
        call!(native, "PMPI_File_close", &raw mut file => *mut usize);
        None
    }

    /// Ends it.
    pub(crate) fn close(&self, native: &Native) {
        if let OpenState::As(mut file) = std::mem::replace(&mut *self.handle.lock(), OpenState::Never) {
            call!(native, "PMPI_File_close", &raw mut file => *mut usize);
        }
    }

    /// How fast the file system is; measured now, if it never was, on a piece that is locked exclusively: what is read there
    /// is written back.
    ///
    /// # Errors
    /// The library's, or the lock was lost.
    pub(crate) fn probe(&self, native: &Native, hold: &Hold, piece: &Range<u64>) -> Result<(), MpiError> {
        let mut buffer = vec![0_u8; probed(piece).end as usize - piece.start as usize];
        let read = self.read(native, hold, piece.start, &mut buffer)?;
        if read > 0 {
            self.put(native, hold, piece.start, &buffer[..read])?;
        }
        Ok(())
    }

    /// Reads from the begin of a piece on, and gives it to nobody, so that no lock is needed: to see what bytes take, where nobody knows, and whether a
    /// request takes much longer than was believed. A storage may have changed its speed since the last access, and an access that is begun
    /// piece by piece cannot be ended.
    ///
    /// # Errors
    /// The library's.
    pub(crate) fn has_become_slow(&self, native: &Native, piece: &Range<u64>) -> Result<bool, MpiError> {
        let mut buffer = self.buffer.lock();
        if buffer.len() < GLANCE_BYTES {
            buffer.resize(GLANCE_BYTES, 0);
        }
        if !SPEEDS.knows_bytes(self.device()) {
            let (read, took_ns) = self.read_at(native, piece.start, &mut buffer[..GLANCE_BYTES])?;
            SPEEDS.add_large(self.device(), read as u64, took_ns);
        }
        let probed = probed(piece);
        let (_, took_ns) = self.read_at(
            native,
            probed.start,
            &mut buffer[..(probed.end - probed.start) as usize],
        )?;
        Ok(self
            .speed()
            .is_some_and(|speed| took_ns > speed.request_ns.saturating_mul(SLOWER)))
    }

    pub(crate) fn speed(&self) -> Option<Speed> {
        SPEEDS.of(self.device())
    }

    /// Writes the data of an access, window by window.
    ///
    /// # Errors
    /// The library's, or the lock was lost: some windows are written, and others are not.
    pub(crate) fn write(
        &self,
        native: &Native,
        hold: &Hold,
        windows: &[Range<u64>],
        cover: &AccessFootprint,
        data: &[u8],
    ) -> Result<(), MpiError> {
        let mut buffer = self.buffer.lock();
        sieve::chunks(windows, cover.pieces(), CHUNK_BYTES)
            .try_for_each(|chunk| self.write_chunk(native, hold, &chunk, data, &mut buffer))
    }

    fn write_chunk(
        &self,
        native: &Native,
        hold: &Hold,
        chunk: &Chunk,
        data: &[u8],
        buffer: &mut Vec<u8>,
    ) -> Result<(), MpiError> {
        let at = chunk.range.start;
        if let ([part], true) = (chunk.parts.as_slice(), chunk.is_full()) {
            return self.put(native, hold, at, &data[part.from..part.from + part.bytes]);
        }
        let bytes = (chunk.range.end - at) as usize;
        if buffer.len() < bytes {
            buffer.resize(bytes, 0);
        }
        let buffer = &mut buffer[..bytes];
        if !chunk.is_full() {
            // Behind the end of the file lie zeros, as they would after writing the pieces.
            let read = self.read(native, hold, at, buffer)?;
            buffer[read..].fill(0);
        }
        for part in &chunk.parts {
            buffer[part.at..part.at + part.bytes].copy_from_slice(&data[part.from..part.from + part.bytes]);
        }
        self.put(native, hold, at, buffer)
    }

    fn read(&self, native: &Native, hold: &Hold, at: u64, buffer: &mut [u8]) -> Result<usize, MpiError> {
        hold.check()?;
        let (read, took_ns) = self.read_at(native, at, buffer)?;
        match read {
            0 => SPEEDS.add_empty(self.device(), took_ns),
            read => SPEEDS.add(self.device(), 1, read as u64, took_ns),
        }
        Ok(read)
    }

    /// How much was read, and how long it took.
    fn read_at(&self, native: &Native, at: u64, buffer: &mut [u8]) -> Result<(usize, u64), MpiError> {
        let mut status = Status::default();
        let begin = Instant::now();
        let code = call!(native, "PMPI_File_read_at", self.file()? => usize, at as i64 => i64, buffer.as_mut_ptr().cast() => *mut c_void,
            buffer.len() as c_int => c_int, native.byte => Handle, (&raw mut status).cast() => *mut c_void);
        MpiError::of_native(code)?;
        let took_ns = nanoseconds(begin);
        let mut count: c_int = 0;
        MpiError::of_native(
            call!(native, "PMPI_Get_count", (&raw const status).cast() => *const c_void, native.byte => Handle,
            &raw mut count => *mut c_int),
        )?;
        Ok(((count.unsigned_abs() as usize).min(buffer.len()), took_ns))
    }

    fn put(&self, native: &Native, hold: &Hold, at: u64, data: &[u8]) -> Result<(), MpiError> {
        for (chunk, data) in data.chunks(CHUNK_BYTES as usize).enumerate() {
            hold.check()?;
            let mut status = Status::default();
            let begin = Instant::now();
            let code = call!(native, "PMPI_File_write_at", self.file()? => usize, (at + chunk as u64 * CHUNK_BYTES) as i64 => i64,
                data.as_ptr().cast() => *const c_void, data.len() as c_int => c_int, native.byte => Handle,
                (&raw mut status).cast() => *mut c_void);
            MpiError::of_native(code)?;
            SPEEDS.add(self.device(), 1, data.len() as u64, nanoseconds(begin));
        }
        Ok(())
    }

    fn file(&self) -> Result<usize, MpiError> {
        match *self.handle.lock() {
            OpenState::As(file) => Ok(file),
            OpenState::NotYet | OpenState::Never => {
                Err(MpiError::Unsupported("the file was closed during an access".into()))
            }
        }
    }
}

/// What of a piece is read and written back to see how long that takes.
pub(crate) fn probed(piece: &Range<u64>) -> Range<u64> {
    piece.start..piece.end.min(piece.start + PROBE_BYTES)
}

pub(crate) fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn may_be_stale(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return true;
    };
    // SAFETY: a C string and room for the answer.
    #[allow(unsafe_code)]
    let (code, found) = unsafe {
        let mut found = std::mem::zeroed::<libc::statfs>();
        (libc::statfs(path.as_ptr(), &raw mut found), found)
    };
    code != 0 || is_stale(found.f_type)
}

fn is_stale(file_system: i64) -> bool {
    STALE.contains(&(file_system & 0xffff_ffff))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_other_machines_wrote_may_be_unknown_to_the_kernel_on_these_file_systems_and_on_no_others() {
        for stale in [
            libc::NFS_SUPER_MAGIC,
            libc::FUSE_SUPER_MAGIC,
            0x0102_1997,
            libc::AFS_SUPER_MAGIC,
            0x6b41_4653,
            0xff53_4d42,
            -0x01ac_b2be, // SMB 2, as a number of 32 bits with a sign
        ] {
            assert!(is_stale(stale), "{stale:x}");
        }
        // Lustre and GPFS see to it by their own locks.
        for (name, coherent) in [
            ("ext4", libc::EXT4_SUPER_MAGIC),
            ("XFS", libc::XFS_SUPER_MAGIC),
            ("tmpfs", libc::TMPFS_MAGIC),
            ("Lustre", 0x0bd0_0bd0),
            ("GPFS", 0x4750_4653),
        ] {
            assert!(!is_stale(coherent), "{name}");
        }
    }
}
