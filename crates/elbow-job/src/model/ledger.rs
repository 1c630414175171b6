//! Room on the storage: what is free there, and what of that is promised to the command and not taken yet.
//!
//! ```text
//!   free on the storage   = promised (written data, new objects)  +  what statvfs(3) says inside the job
//! ```
//!
//! Invariants: a promise is kept, so it is only given when what is free covers all promises; a promise ends when the
//! storage has taken what it was for ([`SpaceLedger::took_bytes`], [`SpaceLedger::took_object`]) or when that is not
//! to be stored any more ([`SpaceLedger::unreserve`]). Numbers that the storage has given become old with each change
//! of it, and nobody is refused room by old ones.
//!
//! Not here: memory for written data, which the job's gauge counts.

use std::ffi::OsStr;

use elbow_file::{Errno, Space};

use crate::api::{Answer, Fetch, OpError};

/// Bytes of metadata that an object may cost on the storage; reserved per new object until it is there.
const OBJECT_RESERVE_BYTES: u64 = 4096;

/// See the module's header.
#[derive(Debug)]
pub(crate) struct SpaceLedger {
    space: Space,
    reserved_bytes: u64,
    reserved_objects: u64,
    /// Nothing has changed on the storage since it gave the numbers.
    is_fresh: bool,
}

impl SpaceLedger {
    pub(crate) fn new(space: Space) -> Self {
        Self {
            space,
            reserved_bytes: 0,
            reserved_objects: 0,
            is_fresh: true,
        }
    }

    /// The storage has given new numbers.
    pub(crate) fn refresh(&mut self, space: Space) {
        self.space = space;
        self.is_fresh = true;
    }

    /// The storage has changed since it gave the numbers.
    pub(crate) fn note_change(&mut self) {
        self.is_fresh = false;
    }

    /// What statvfs(3) says inside the job.
    pub(crate) fn free(&self) -> Space {
        let taken = self.reserved_bytes.div_ceil(self.fragment_bytes());
        let less = |blocks: u64| blocks.saturating_sub(taken);
        Space {
            blocks_free: less(self.space.blocks_free),
            blocks_available: less(self.space.blocks_available),
            files_free: self.space.files_free.saturating_sub(self.reserved_objects),
            ..self.space
        }
    }

    /// Fails for a name that is too long for the storage.
    pub(crate) fn check_name(&self, name: &OsStr) -> Result<(), Errno> {
        match name.len() > self.space.name_max as usize {
            true => Err(Errno::NAMETOOLONG),
            false => Ok(()),
        }
    }

    /// Bytes promised and not taken from the storage yet.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes
    }

    /// Whether the storage could hold that much more at all, whatever is promised of it.
    pub(crate) fn could_hold(&self, bytes: u64) -> bool {
        !self.counts_blocks() || bytes <= self.available_bytes()
    }

    /// Promises room for new bytes and objects. Asks for fresh numbers before it says ENOSPC.
    pub(crate) fn reserve(&mut self, bytes: u64, objects: u64) -> Answer<()> {
        if self.covers(bytes, objects) {
            self.reserved_bytes += bytes;
            self.reserved_objects += objects;
            return Ok(());
        }
        if !self.is_fresh {
            return Err(OpError::NeedsStorage(Fetch::Space));
        }
        // What made the storage full may be gone when the command tries again.
        self.is_fresh = false;
        Err(Errno::NOSPC.into())
    }

    /// Counts bytes as promised that may not be refused: zeros over what the file has already.
    pub(crate) fn reserve_unchecked(&mut self, bytes: u64) {
        self.reserved_bytes += bytes;
    }

    /// What was promised is not to be stored any more, or is stored.
    pub(crate) fn unreserve(&mut self, bytes: u64, objects: u64) {
        self.reserved_bytes = self.reserved_bytes.saturating_sub(bytes);
        self.reserved_objects = self.reserved_objects.saturating_sub(objects);
    }

    /// The storage has one more of the promised objects.
    pub(crate) fn took_object(&mut self) {
        self.unreserve(0, 1);
        self.space.files_free = self.space.files_free.saturating_sub(1);
    }

    /// The storage has taken room for so many bytes.
    pub(crate) fn took_bytes(&mut self, bytes: u64) {
        let blocks = bytes.div_ceil(self.fragment_bytes());
        self.space.blocks_available = self.space.blocks_available.saturating_sub(blocks);
    }

    /// What is free covers all promises and these.
    fn covers(&self, bytes: u64, objects: u64) -> bool {
        let reserved_objects = self.reserved_objects + objects;
        let needed = self.reserved_bytes + bytes + reserved_objects * OBJECT_RESERVE_BYTES;
        let asks_for_any = bytes + objects > 0;
        let lacks_blocks = self.counts_blocks() && asks_for_any && needed > self.available_bytes();
        let lacks_inodes = self.counts_inodes() && objects > 0 && reserved_objects > self.space.files_free;
        !lacks_blocks && !lacks_inodes
    }

    /// Some storages (FUSE, object stores) say that they have no blocks at all: they have room.
    fn counts_blocks(&self) -> bool {
        self.space.blocks != 0
    }

    /// The same of those that make inodes as they are needed (btrfs).
    fn counts_inodes(&self) -> bool {
        self.space.files != 0
    }

    fn available_bytes(&self) -> u64 {
        self.space.blocks_available.saturating_mul(self.space.fragment_bytes)
    }

    fn fragment_bytes(&self) -> u64 {
        self.space.fragment_bytes.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(blocks: u64, files: u64) -> SpaceLedger {
        SpaceLedger::new(Space {
            fragment_bytes: 4096,
            blocks,
            blocks_free: blocks,
            blocks_available: blocks,
            files,
            files_free: files,
            name_max: 255,
        })
    }

    #[test]
    fn promises_never_exceed_what_is_free() {
        let mut ledger = ledger(10, 100);
        assert_eq!(ledger.reserve(8 * 4096, 1), Ok(()));
        assert_eq!(
            ledger.reserve(4096, 1),
            Err(OpError::Errno(Errno::NOSPC)),
            "nine blocks are promised"
        );
        assert_eq!(ledger.reserve(4096, 0), Ok(()));
        assert_eq!(
            ledger.free().blocks_available,
            1,
            "an object's own room is kept back, not shown as taken"
        );
        ledger.unreserve(9 * 4096, 1);
        assert_eq!((ledger.reserved_bytes(), ledger.free().blocks_available), (0, 10));
    }

    #[test]
    fn old_numbers_refuse_nobody() {
        let mut ledger = ledger(1, 1);
        ledger.note_change();
        assert_eq!(ledger.reserve(8192, 0), Err(OpError::NeedsStorage(Fetch::Space)));
        ledger.refresh(ledger.space);
        assert_eq!(ledger.reserve(8192, 0), Err(OpError::Errno(Errno::NOSPC)));
        assert_eq!(
            ledger.reserve(8192, 0),
            Err(OpError::NeedsStorage(Fetch::Space)),
            "it may have room by now"
        );
    }

    #[test]
    fn what_counts_no_blocks_has_room_and_what_counts_no_inodes_has_them() {
        let mut ledger = ledger(0, 0);
        assert_eq!(ledger.reserve(1 << 40, 1000), Ok(()));
        assert!(ledger.could_hold(u64::MAX));
    }
}
