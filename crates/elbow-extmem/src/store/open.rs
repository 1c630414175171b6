//! Making and opening stores: the header, and which blocks a file has.

use std::ffi::OsStr;
use std::io::IoSlice;
use std::sync::Arc;

use elbow_file::{Access, Errno, Handle, Storage, try_lock};
use elbow_ranges::RangeSet;
use elbow_ranges::encoding::DecodeError;

use super::bitmap::{Map, Versions};
use super::bitset::Bitset;
use super::blocks::Blocks;
use super::error::Result;
use super::layout::{self, HEADER_BYTES, Layout};
use super::{BlockStore, FreeMap, Options, StoreError, emptied, probe};

impl BlockStore {
    /// Makes a new store in a directory; no file of that name may be there. It is durable when this returns.
    ///
    /// # Errors
    /// Those of the storage, which then has no such file; a block size that cannot be; holes that are not kept.
    pub fn create(storage: Arc<dyn Storage>, dir: &Handle, name: &OsStr, options: Options) -> Result<Self> {
        let label = name.to_string_lossy().into_owned();
        let io = |errno| StoreError::io(&label, "create it", errno);
        let unit = match options.block_bytes {
            Some(block_bytes) => block_bytes,
            None => storage.space(dir).map_err(io)?.fragment_bytes.max(HEADER_BYTES),
        };
        if !Layout::allows(unit) {
            return Err(StoreError::BlockBytes { block_bytes: unit });
        }
        let file = storage.create(dir, name, 0o600).map_err(io)?;
        let made = lock(&file, &label)
            .and_then(|()| write_header(&*storage, &file, &label, unit, options))
            .and_then(|layout| storage.sync(dir).map(|()| layout).map_err(io));
        match made {
            Ok(layout) => {
                let blocks = Blocks::found(Bitset::new(), RangeSet::new(), layout.blocks_max());
                Ok(Self::new(storage, file, label, layout, blocks, Versions::default()))
            }
            Err(error) => {
                let _ = storage.unlink(dir, name); // what is wrong already is what the caller has to know
                Err(error)
            }
        }
    }

    /// Opens a store. Its allocated blocks are those that were written.
    ///
    /// # Errors
    /// Those of the storage; a file that is no block store, a damaged one, or one that is open already. The file is then
    /// not changed.
    pub fn open(storage: Arc<dyn Storage>, dir: &Handle, name: &OsStr) -> Result<Self> {
        let label = name.to_string_lossy().into_owned();
        let io = |errno| StoreError::io(&label, "open it", errno);
        let file = storage.open(dir, name, Access::ReadWrite).map_err(io)?;
        lock(&file, &label)?;
        let layout = read_header(&*storage, &file, &label)?;
        let data = find_data(&*storage, &file, &label, &layout)?;
        let (versions, written) = if layout.has_bitmap {
            let map = Map {
                storage: &*storage,
                file: &file,
                name: &label,
                layout: &layout,
            };
            map.load(storage.stat_handle(&file).map_err(io)?.size)?
        } else {
            (Versions::default(), data.iter().flatten().collect())
        };
        let blocks = Blocks::found(written, data, layout.blocks_max());
        Ok(Self::new(storage, file, label, layout, blocks, versions))
    }
}

/// Keeps others from opening the store as long as this handle lives; where files cannot be locked, nothing does.
fn lock(file: &Handle, name: &str) -> Result<()> {
    match try_lock(file) {
        Ok(false) => Err(StoreError::InUse { file: name.to_owned() }),
        Ok(true) | Err(_) => Ok(()),
    }
}

/// Decides on the free map of a new file and gives it its header.
fn write_header(storage: &dyn Storage, file: &Handle, name: &str, unit: u64, options: Options) -> Result<Layout> {
    let io = |errno| StoreError::io(name, "create it", errno);
    let write = |has_bitmap| {
        let layout = Layout {
            unit,
            has_bitmap,
            has_checksums: options.checksums,
        };
        storage.write(file, &[IoSlice::new(&layout.encode())], 0).map_err(io)?;
        Ok::<_, StoreError>(layout)
    };
    let mut layout = write(options.free_map == FreeMap::Bitmap)?;
    if !layout.has_bitmap && !probe::holes_can_be_trusted(storage, file, unit).map_err(io)? {
        if options.free_map == FreeMap::Holes {
            return Err(StoreError::NoHoles {
                file: name.to_owned(),
                block_bytes: unit,
            });
        }
        layout = write(true)?;
    }
    storage.sync(file).map_err(io)?;
    Ok(layout)
}

fn read_header(storage: &dyn Storage, file: &Handle, name: &str) -> Result<Layout> {
    let io = |errno| StoreError::io(name, "read its header", errno);
    let mut header = vec![0; layout::SEALED_BYTES];
    let length = storage.read(file, &mut header, 0).map_err(io)?;
    header.truncate(length);
    let source = match Layout::decode(&header) {
        Ok(layout) => return Ok(layout),
        Err(source) => source,
    };
    if let Some(layout) = emptied::restore_header(storage, file).map_err(io)? {
        return Ok(layout);
    }
    let file = name.to_owned();
    Err(match source {
        DecodeError::BadMagic { .. } | DecodeError::Truncated { at: 0, .. } => StoreError::Foreign { file, source },
        source => StoreError::Header { file, source },
    })
}

/// The blocks that the file has data for; where that cannot be asked, and a bitmap knows, all that it has.
fn find_data(storage: &dyn Storage, file: &Handle, name: &str, layout: &Layout) -> Result<RangeSet> {
    let io = |errno| StoreError::io(name, "find its blocks", errno);
    let mut found = RangeSet::new();
    let mut offset = layout.hole().start;
    loop {
        let (start, end) = match storage.next_data(file, offset) {
            Ok(Some(data)) => data,
            Ok(None) => return Ok(found),
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) if layout.has_bitmap => {
                let size = storage.stat_handle(file).map_err(io)?.size;
                return Ok(std::iter::once(layout.blocks_in(0..size)).collect());
            }
            Err(errno) => return Err(io(errno)),
        };
        if start < layout.hole().end && !layout.has_bitmap {
            return Err(StoreError::HolesLost { file: name.to_owned() });
        }
        let blocks = layout.blocks_in(start..end);
        if blocks.end > layout.blocks_max() {
            return Err(StoreError::Full {
                file: name.to_owned(),
                blocks: layout.blocks_max(),
            });
        }
        found.insert(blocks.start, blocks.end);
        offset = end;
    }
}
