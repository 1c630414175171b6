//! What the command does to the content of a file; what becomes of that is in `file_data`.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use elbow_file::Errno;

use super::file_data::{Content, Segment, assemble};
use super::fill::{MemoryPiece, Piece};
use super::{Body, Inode, Inodes, Model};
use crate::api::{Answer, Fetch, Ino, OpError, SetIds};
use crate::spill::Spilled;

impl Inodes {
    /// Memory pieces of a file that nobody uses now, for spilling: up to `most` bytes.
    pub(crate) fn memory_pieces(&self, ino: Ino, most: u64) -> Vec<MemoryPiece> {
        let Some(content) = self.get(ino).ok().and_then(Inode::content) else {
            return Vec::new();
        };
        let mut bytes = 0;
        let memory = content.dirty.iter().filter_map(|(range, piece)| match piece {
            Piece::Memory(chunk) if chunk.is_idle(content.parts_of(range.start, chunk)) => Some((range, chunk)),
            _ => None,
        });
        let memory: Vec<_> = memory
            .take_while(|(range, _)| {
                let before = bytes;
                bytes += range.end - range.start;
                before < most
            })
            .collect();
        // Each clone is one that uses the buffer.
        memory
            .into_iter()
            .map(|(range, chunk)| (range, chunk.clone()))
            .collect()
    }

    /// Memory pieces are in the spill file now: those that are still there refer to it.
    pub(crate) fn spilled(&mut self, ino: Ino, pieces: &[MemoryPiece], spilled: &[Spilled]) {
        let Some(content) = self.get_mut(ino).ok().and_then(Inode::content_mut) else {
            return;
        };
        for ((range, chunk), place) in pieces.iter().zip(spilled) {
            let origin = Piece::Memory(chunk.clone());
            let same: Vec<Range<u64>> = content
                .dirty
                .overlapping(range.start, range.end)
                .filter(|(_, now)| now.same_origin(&origin))
                .map(|(part, _)| part)
                .collect();
            for part in same {
                let slice = place.slice(part.start - range.start, part.end - range.start);
                content.dirty.insert(part.start, part.end, Piece::Spill(slice));
            }
        }
    }

    pub(crate) fn known_file(&self, ino: Ino) -> Answer<()> {
        match self.known(ino)?.body {
            Body::File(_) => Ok(()),
            Body::Dir(_) => Err(Errno::ISDIR.into()),
            _ => Err(Errno::INVAL.into()),
        }
    }

    /// Reads from a file; [`Fetch::Open`] when a part of it is on the storage or spilled.
    pub(crate) fn read(&self, ino: Ino, offset: u64, length: usize) -> Answer<Vec<u8>> {
        let segments = self.segments(ino, offset, length)?;
        assemble(&segments, length).ok_or(OpError::NeedsStorage(Fetch::Open(ino)))
    }

    pub(crate) fn segments(&self, ino: Ino, offset: u64, length: usize) -> Answer<Vec<Segment>> {
        self.known_file(ino)?;
        let inode = self.at(ino);
        let end = inode.size.min(offset.saturating_add(length as u64));
        let content = inode.content().expect("a file");
        Ok(if offset < end {
            content.segments(offset, end)
        } else {
            Vec::new()
        })
    }
}

impl Model {
    /// Writes into a file.
    pub(crate) fn write(
        &mut self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        set_ids: SetIds,
        gauge: &Arc<AtomicU64>,
    ) -> Answer<usize> {
        // write(2) of nothing to a regular file changes neither times nor bits.
        if data.is_empty() {
            self.may_modify()?;
            return self.checks().range(ino, offset, 0).map(|_| 0);
        }
        let length = data.len() as u64;
        // Before anything changes: when there is room, all of it is tried again.
        if gauge.load(Ordering::Relaxed) + length > self.config.memory_limit {
            self.may_modify()?;
            self.checks().range(ino, offset, length)?;
            return Err(OpError::NeedsStorage(Fetch::Room(length)));
        }
        self.put(ino, offset, length, set_ids, |content| content.put(offset, data, gauge))?;
        Ok(data.len())
    }

    /// Something is written to a range of a file.
    pub(super) fn put(
        &mut self,
        ino: Ino,
        offset: u64,
        length: u64,
        set_ids: SetIds,
        write: impl FnOnce(&mut Content),
    ) -> Answer<()> {
        self.may_modify()?;
        let end = self.checks().range(ino, offset, length)?;
        self.traits.able_size(end)?;
        let taken = self.taken(ino, set_ids)?;
        // What is overwritten in memory has been promised room already.
        let covered = self.inodes.at(ino).content().expect("a file").dirty_within(offset, end);
        self.space.reserve(length - covered, 0)?;
        let now = self.now;
        let inode = self.inodes.at_mut(ino);
        inode.size = inode.size.max(end);
        write(inode.content_mut().expect("a file"));
        super::attributes::take(inode, taken);
        self.note_nameless(ino);
        self.content_touched(ino, now);
        self.counts.bytes_acknowledged += length;
        Ok(())
    }

    pub(crate) fn content_touched(&mut self, ino: Ino, now: elbow_file::Time) {
        let inode = self.inodes.at_mut(ino);
        super::attributes::drop_capability(inode);
        inode.mtime = now;
        inode.ctime = now;
        inode.dirty.times = true;
        self.scheduler().touched(ino);
    }

    /// Sets the size of a file.
    pub(crate) fn set_size(&mut self, ino: Ino, size: u64) -> Answer<()> {
        self.inodes.known_file(ino)?;
        self.checks().stays_secret(ino)?;
        if size > i64::MAX as u64 {
            return Err(Errno::FBIG.into());
        }
        self.traits.able_size(size)?;
        let inode = self.inodes.at_mut(ino);
        let from = inode.size;
        inode.size = size;
        let content = inode.content_mut().expect("a file");
        let before = content.dirty_bytes();
        content.set_size(from, size);
        let freed = before - content.dirty_bytes();
        self.space.unreserve(freed, 0);
        Ok(())
    }

    /// fallocate(2): sizes, holes, and what is to be reserved on the storage.
    pub(crate) fn fallocate(&mut self, ino: Ino, mode: i32, offset: u64, length: u64) -> Answer<()> {
        use rustix::fs::FallocateFlags as F;
        self.may_modify()?;
        self.checks().unprotected(ino)?;
        self.inodes.known_file(ino)?;
        self.checks().stays_secret(ino)?;
        let end = offset
            .checked_add(length)
            .filter(|end| *end <= i64::MAX as u64)
            .ok_or(Errno::FBIG)?;
        if length == 0 {
            return Err(Errno::INVAL.into());
        }
        let flags = F::from_bits(mode as u32).ok_or(Errno::OPNOTSUPP)?;
        let keep = flags.contains(F::KEEP_SIZE);
        self.traits.able_size(if keep { 0 } else { end })?;
        match flags - F::KEEP_SIZE {
            F::PUNCH_HOLE if keep => {
                self.zero(ino, offset, end);
                let inode = self.inodes.at_mut(ino);
                let end = end.min(inode.size);
                inode.content_mut().expect("a file").want_none(offset.min(end), end);
            }
            // fallocate(2): other than a hole, a range of zeros has its space.
            F::ZERO_RANGE => {
                self.zero(ino, offset, end);
                self.inodes
                    .at_mut(ino)
                    .content_mut()
                    .expect("a file")
                    .want_reserved(offset, end);
            }
            rest if rest.is_empty() => {
                if !self.space.could_hold(end.saturating_sub(self.inodes.at(ino).size)) {
                    return Err(Errno::NOSPC.into());
                }
                self.inodes
                    .at_mut(ino)
                    .content_mut()
                    .expect("a file")
                    .want_reserved(offset, end);
            }
            _ => return Err(Errno::OPNOTSUPP.into()),
        }
        let now = self.now;
        let inode = self.inodes.at_mut(ino);
        if !keep && end > inode.size {
            inode.size = end;
        }
        self.content_touched(ino, now);
        Ok(())
    }

    fn zero(&mut self, ino: Ino, start: u64, end: u64) {
        let inode = self.inodes.at_mut(ino);
        let end = end.min(inode.size);
        if start >= end {
            return;
        }
        let content = inode.content_mut().expect("a file");
        let covered = content.dirty_within(start, end);
        content.dirty.insert(start, end, Piece::Zero);
        self.space.reserve_unchecked(end - start - covered);
    }

    /// Has the descriptors of a file closed by a worker, because close(2) may block and may fail.
    pub(crate) fn close_content(&mut self, ino: Ino) {
        let Some(content) = self.inodes.get_mut(ino).ok().and_then(Inode::content_mut) else {
            return;
        };
        let (target, mut original) = (content.target.take(), content.original.take());
        if self.config.has_far_end {
            // It was only read, so nothing is heard of its end there: it travels with the next request.
            original = None;
        }
        let handles = [target, original];
        self.closing
            .extend(handles.into_iter().flatten().map(|handle| (ino, handle)));
    }

    /// Closes all files that are still open, of which nobody may have a name any more: some storages tell only then what they could not store.
    pub(crate) fn close_files(&mut self) {
        let is_open = |content: &Content| content.target.is_some() || content.original.is_some();
        let open = self
            .inodes
            .all()
            .filter(|(_, inode)| inode.content().is_some_and(is_open));
        let open: Vec<Ino> = open.map(|(ino, _)| ino).collect();
        open.into_iter().for_each(|ino| self.close_content(ino));
    }

    /// Lets go of the written data of an object that nobody can reach any more.
    pub(crate) fn release_memory(&mut self, ino: Ino) {
        let Ok(inode) = self.inodes.get_mut(ino) else { return };
        let Some(content) = inode.content_mut() else { return };
        let bytes = content.dirty_bytes();
        content.dirty.clear();
        self.close_content(ino);
        self.space.unreserve(bytes, 0);
    }
}
