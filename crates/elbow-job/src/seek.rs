//! lseek(2) for data and holes: what is queued is known here, what is clean is asked of the storage.

use std::ops::Range;

use elbow_file::{Errno, Handle, Storage};

use crate::api::{Answer, Fetch, Ino, OpError};
use crate::fetch::Fetcher;
use crate::job::Job;
use crate::model::{Piece, Segment, SegmentSource};

/// A name may move between the look at the model and the call; then the look is repeated.
const RETRIES: usize = 8;

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// Bytes that somebody wrote.
    Data,
    /// Bytes that nobody wrote; the end of the file counts as such.
    Hole,
}

impl Job {
    /// The next data or hole at or after an offset. Waits for [`Fetch::Open`] where the storage has to be asked; that
    /// is what [`Job::seek_blocking`] does.
    ///
    /// # Errors
    /// ENXIO at or past the end, and when no data follows.
    pub fn seek(&self, ino: Ino, offset: u64, seek: Seek) -> Answer<u64> {
        let segments = self
            .shared
            .state
            .lock()
            .model
            .inodes
            .segments(ino, offset, usize::MAX)?;
        search(&segments, offset, seek, |_, _| {
            Err(OpError::NeedsStorage(Fetch::Open(ino)))
        })
    }

    /// As [`Job::seek`], wherever the data is. Blocks.
    ///
    /// # Errors
    /// As [`Job::seek`].
    pub fn seek_blocking(&self, ino: Ino, offset: u64, seek: Seek) -> Result<u64, Errno> {
        for _ in 0..RETRIES {
            match Fetcher::of(&self.shared).seek(ino, offset, seek) {
                Err(Errno::NOENT) => {}
                answer => return answer,
            }
        }
        Err(Errno::IO)
    }
}

impl Fetcher<'_> {
    fn seek(&self, ino: Ino, offset: u64, seek: Seek) -> Result<u64, Errno> {
        let (segments, target, original) = match self.open_for_read(ino, offset, usize::MAX) {
            Err(Errno::ACCESS) => return self.seek_unread(ino, offset, seek),
            opened => opened?,
        };
        search(&segments, offset, seek, |source, part| {
            let file = if matches!(source, SegmentSource::Original(_)) {
                &original
            } else {
                &target
            };
            search_file(&*self.shared.storage, file.as_ref().ok_or(Errno::IO)?, part, seek)
        })
    }

    /// Who may write to a file and not read it may ask as well. What the storage does not let be looked at is data.
    fn seek_unread(&self, ino: Ino, offset: u64, seek: Seek) -> Result<u64, Errno> {
        let segments = match self.shared.state.lock().model.inodes.segments(ino, offset, usize::MAX) {
            Ok(segments) => segments,
            Err(OpError::Errno(errno)) => return Err(errno),
            Err(OpError::NeedsStorage(_)) => return Err(Errno::ACCESS),
        };
        search(&segments, offset, seek, |_, part| {
            Ok((seek == Seek::Data).then_some(part.start))
        })
    }
}

/// Goes through the parts of a file from an offset to its end; those on the storage are left to `on_storage`.
fn search<E: From<Errno>>(
    segments: &[Segment],
    offset: u64,
    seek: Seek,
    on_storage: impl Fn(&SegmentSource, Range<u64>) -> Result<Option<u64>, E>,
) -> Result<u64, E> {
    let mut at = offset;
    for segment in segments {
        let part = at..at + segment.length as u64;
        let found = match &segment.source {
            SegmentSource::Piece(piece) => (matches!(piece, Piece::Zero) == (seek == Seek::Hole)).then_some(at),
            source => on_storage(source, part.clone())?,
        };
        if let Some(found) = found {
            return Ok(found);
        }
        at = part.end;
    }
    if seek == Seek::Hole && !segments.is_empty() {
        Ok(at)
    } else {
        Err(Errno::NXIO.into())
    }
}

/// Looks through a part that lies at the same offset in a file on the storage.
fn search_file(storage: &dyn Storage, file: &Handle, part: Range<u64>, seek: Seek) -> Result<Option<u64>, Errno> {
    let data = match storage.next_data(file, part.start) {
        Ok(found) => found.map_or(u64::MAX..u64::MAX, |(start, end)| start..end),
        // Where the storage does not say, everything is data.
        Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => part.start..u64::MAX,
        Err(errno) => return Err(errno),
    };
    let found = match seek {
        Seek::Data => data.start,
        Seek::Hole if data.start > part.start => part.start,
        Seek::Hole => data.end,
    };
    Ok((found < part.end).then_some(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(length: usize, piece: Piece) -> Segment {
        Segment {
            length,
            source: SegmentSource::Piece(piece),
        }
    }

    fn on_storage(length: usize) -> Segment {
        Segment {
            length,
            source: SegmentSource::Original(0),
        }
    }

    fn find(segments: &[Segment], offset: u64, seek: Seek, stored: Range<u64>) -> Result<u64, Errno> {
        search(segments, offset, seek, |_, part| {
            let hole = if stored.contains(&part.start) {
                stored.end
            } else {
                part.start
            };
            let found = if seek == Seek::Data {
                stored.start.max(part.start)
            } else {
                hole
            };
            Ok(part.contains(&found).then_some(found))
        })
    }

    #[test]
    fn holes_and_data_are_found_across_parts() {
        let segments = [piece(100, Piece::Zero), on_storage(100), piece(50, Piece::Zero)];
        assert_eq!(find(&segments, 0, Seek::Hole, 120..200), Ok(0));
        assert_eq!(find(&segments, 0, Seek::Data, 120..200), Ok(120));
        assert_eq!(find(&segments[1..], 120, Seek::Hole, 120..220), Ok(220));
        assert_eq!(find(&segments[2..], 200, Seek::Data, 0..0), Err(Errno::NXIO));
    }

    #[test]
    fn the_end_of_a_file_is_a_hole_and_nothing_follows_it() {
        assert_eq!(find(&[on_storage(100)], 0, Seek::Hole, 0..100), Ok(100));
        assert_eq!(find(&[], 100, Seek::Hole, 0..100), Err(Errno::NXIO));
        assert_eq!(find(&[], 100, Seek::Data, 0..100), Err(Errno::NXIO));
    }
}
