//! A directory with block stores in it, content that says who wrote it, and random cases that can be replayed.
#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part")]

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use elbow_extmem::store::{BlockStore, FreeMap, Options, Result};
use elbow_file::{Access, Handle, RealStorage, Storage};
use elbow_ranges::RangeSet;
use tempfile::TempDir;

/// The block size of tests: the unit of holes of all usual file systems.
pub(crate) const UNIT: u64 = 4096;

/// Both free maps, without and with checksums.
pub(crate) const KINDS: [Options; 4] = [
    options(FreeMap::Holes, false),
    options(FreeMap::Holes, true),
    options(FreeMap::Bitmap, false),
    options(FreeMap::Bitmap, true),
];

/// Options for blocks of [`UNIT`] bytes.
pub(crate) const fn options(free_map: FreeMap, checksums: bool) -> Options {
    Options {
        block_bytes: Some(UNIT),
        free_map,
        checksums,
    }
}

/// The name of the store's file.
pub(crate) fn name() -> &'static OsStr {
    OsStr::new("blocks")
}

/// A directory for stores.
pub(crate) struct TestDir {
    dir: TempDir,
    pub(crate) root: Handle,
}

impl TestDir {
    /// On the file system of temporary files.
    pub(crate) fn new() -> Self {
        Self::at(&std::env::temp_dir())
    }

    /// Below a directory.
    pub(crate) fn at(place: &Path) -> Self {
        let dir = tempfile::tempdir_in(place).unwrap();
        let root = RealStorage::open_root(dir.path()).unwrap();
        Self { dir, root }
    }

    /// In memory, if the machine has a place for that.
    pub(crate) fn in_memory() -> Self {
        let shm = Path::new("/dev/shm");
        match RealStorage::open_root(shm) {
            Ok(_) => Self::at(shm),
            Err(_) => Self::new(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn create(&self, options: Options) -> BlockStore {
        BlockStore::create(Arc::new(RealStorage), &self.root, name(), options).unwrap()
    }

    pub(crate) fn open(&self) -> Result<BlockStore> {
        BlockStore::open(Arc::new(RealStorage), &self.root, name())
    }

    pub(crate) fn file(&self) -> Handle {
        RealStorage.open(&self.root, name(), Access::ReadWrite).unwrap()
    }

    /// The parts of the store's file that hold data.
    pub(crate) fn data(&self) -> RangeSet {
        let file = self.file();
        let mut data = RangeSet::new();
        let mut offset = 0;
        while let Some((start, end)) = RealStorage.next_data(&file, offset).unwrap() {
            data.insert(start, end);
            offset = end;
        }
        data
    }

    /// What the store's file takes on the storage, in bytes.
    pub(crate) fn bytes_taken(&self) -> u64 {
        RealStorage.stat(&self.root, name()).unwrap().blocks * 512
    }

    /// How long the store's file is.
    pub(crate) fn bytes_long(&self) -> u64 {
        RealStorage.stat(&self.root, name()).unwrap().size
    }
}

/// What a block holds that was written with a stamp: the stamp, over and over. Stamp 0 is a block of zeros.
pub(crate) fn content(stamp: u64, bytes: usize) -> Vec<u8> {
    stamp.to_le_bytes().into_iter().cycle().take(bytes).collect()
}

/// The numbers of some blocks, as a store lists them.
pub(crate) fn numbers(blocks: impl IntoIterator<Item = u64>) -> RangeSet {
    blocks.into_iter().map(|block| block..block + 1).collect()
}
