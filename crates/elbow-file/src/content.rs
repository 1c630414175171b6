//! Whether a range of a file reads as zeros, as what was freed does.

use std::ops::Range;

use crate::zero::ZEROS;
use crate::{Errno, Handle, Result, Storage};

/// Bytes read at once.
const PIECE_BYTES: u64 = 1 << 20;

/// The first byte in a range that is not zero; `None` when there is none, or only behind the end of the file. Holes are not read, where the
/// file system says where they are.
///
/// ```
/// use std::ffi::OsStr;
/// use std::io::IoSlice;
///
/// use elbow_file::{RealStorage, Storage, first_content};
///
/// let directory = tempfile::tempdir()?;
/// let root = RealStorage::open_root(directory.path())?;
/// let file = RealStorage.create(&root, OsStr::new("f"), 0o644)?;
/// RealStorage.truncate(&file, 1 << 30)?;
/// assert_eq!(first_content(&RealStorage, &file, 0..1 << 30)?, None);
/// RealStorage.write(&file, &[IoSlice::new(b"abc")], 100_000)?;
/// assert_eq!(first_content(&RealStorage, &file, 5..1 << 30)?, Some(100_000));
/// assert_eq!(first_content(&RealStorage, &file, 5..100_000)?, None);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// Those of reading.
pub fn first_content(storage: &dyn Storage, file: &Handle, range: Range<u64>) -> Result<Option<u64>> {
    let mut at = range.start;
    while at < range.end {
        let data = match storage.next_data(file, at) {
            Ok(None) => return Ok(None),
            Ok(Some((start, end))) => start.max(at)..end.max(start.max(at) + 1),
            // One that cannot say where its holes are.
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => at..range.end,
            Err(errno) => return Err(errno),
        };
        at = data.end;
        let found = first_in_data(storage, file, data.start..data.end.min(range.end))?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

fn first_in_data(storage: &dyn Storage, file: &Handle, data: Range<u64>) -> Result<Option<u64>> {
    let mut piece = Vec::new();
    let mut at = data.start;
    while at < data.end {
        piece.resize((data.end - at).min(PIECE_BYTES) as usize, 0);
        let got = storage.read(file, &mut piece, at)?;
        let bytes = &piece[..got];
        if !ZEROS.equal(bytes) {
            return Ok(bytes.iter().position(|byte| *byte != 0).map(|first| at + first as u64));
        }
        if got < piece.len() {
            return Ok(None);
        }
        at += got as u64;
    }
    Ok(None)
}
