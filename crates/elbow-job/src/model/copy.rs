//! Copying a part of an old file within the tree without reading it: the bytes stay where the storage is.
//!
//! The content of an old file is not changed on the storage before the commit: what the job writes to it goes to its patch file. So a copy of it
//! need not be made at once, and it is enough to note where the bytes are, by the name that the file has on the storage, and what it looked like: of
//! what others have made of it since no copy is made. What is written,
//! cut or zeroed by the job itself is not copied this way; its caller reads and writes it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use elbow_file::Errno;

use super::copy_source::{CHARGE_BYTES, CopyPiece, CopySource, SourceVersion};
use super::file_data::{COPY_BYTES, SegmentSource};
use super::fill::Piece;
use super::{Inodes, Model};
use crate::api::{Answer, Fetch, Ino, OpError, SetIds};
use crate::routes::Routes;

const OWNER_READ: u32 = 0o400;

/// The first part of a range of a file that can be copied where the storage is: either all of it lies in an old file, or it is a hole.
fn first_at_rest(inodes: &Inodes, ino: Ino, offset: u64, length: u64) -> Answer<(Range<u64>, bool)> {
    let length = usize::try_from(length.min(COPY_BYTES)).expect("few bytes");
    let segments = inodes.segments(ino, offset, length)?;
    let Some(first) = segments.first() else {
        return Ok((offset..offset, false));
    };
    let range = offset..offset + first.length as u64;
    match first.source {
        SegmentSource::Original(_) => Ok((range, true)),
        SegmentSource::Piece(Piece::Zero) => Ok((range, false)),
        _ => Err(Errno::OPNOTSUPP.into()),
    }
}

fn piece_of(routes: &Routes<'_>, ino: Ino, offset: u64, gauge: &Arc<AtomicU64>) -> Answer<CopyPiece> {
    let inode = routes.inodes.get(ino)?;
    // What the job alone lets its owner read, the far end cannot: the command is to hear that itself.
    let seen = inode.seen().filter(|seen| seen.mode & OWNER_READ != 0);
    let (seen, key) = seen.zip(inode.old_name()).ok_or(Errno::OPNOTSUPP)?;
    let (route, version) = (routes.route_dir(key.dir), SourceVersion::of(seen));
    Ok(CopyPiece {
        source: CopySource::counted(route, key.name.clone(), version, gauge),
        offset,
    })
}

/// copy_file_range(2): gives how many bytes are copied, 0 at the end of the source. EOPNOTSUPP where they have to be read and written.
pub(crate) fn copy_range(
    model: &mut Model,
    (from, from_offset): (Ino, u64),
    (ino, offset): (Ino, u64),
    length: u64,
    set_ids: SetIds,
    gauge: &Arc<AtomicU64>,
) -> Answer<u64> {
    if !model.config.copies_there {
        return Err(Errno::OPNOTSUPP.into());
    }
    let (range, has_data) = first_at_rest(&model.inodes, from, from_offset, length)?;
    let length = range.end - range.start;
    if length == 0 {
        return Ok(0);
    }
    if gauge.load(Ordering::Relaxed) + CHARGE_BYTES > model.config.memory_limit {
        return Err(OpError::NeedsStorage(Fetch::Room(CHARGE_BYTES)));
    }
    let piece = match has_data {
        true => Piece::Copy(piece_of(&model.routes(), from, range.start, gauge)?),
        false => Piece::Zero,
    };
    model.put(ino, offset, length, set_ids, |content| {
        content.dirty.insert(offset, offset + length, piece);
    })?;
    Ok(length)
}
