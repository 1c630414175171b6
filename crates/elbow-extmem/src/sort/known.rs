//! Whether a file is still the one whose sort was begun, before anything of it is freed or overwritten.
//!
//! ```text
//!   inode number, size, time of making    all states; or, of a copy, size and time of the last write
//!   Forming, Merging to runs              [ freed: zeros | freed or not yet | input ]
//!   Merging to file 0                     [ written  tail| next: zeros, or the record that comes next ]  of each lane
//! ```
//!
//! A file that is written over keeps its inode. Then what was freed has content again, and there is something else before and at the place where a lane
//! goes on. While nothing is freed, as on a file system without holes, it is known by when it was written last and by its first sector.
//!
//! Not here: what was written over while all that was left to do was to remove the runs. Nothing is done to it then.

use std::ffi::OsStr;
use std::path::Path;

use elbow_file::{Access, Handle, Storage, first_content};

use super::RecordFormat;
use super::engine::{BLOCK_BYTES, Engine};
use super::error::{Result, SortError, failed};
use super::files::RecordFile;
use super::manifest::{Manifest, Order};
use super::state::{Mark, Pass, SortState};

/// Less is never written in part.
const SECTOR_BYTES: u64 = 512;

/// Checksum of the first sector of a file, or of all of it.
pub(super) fn head(storage: &dyn Storage, file: &Handle) -> elbow_file::Result<u32> {
    let mut sector = [0; SECTOR_BYTES as usize];
    let got = storage.read(file, &mut sector, 0)?;
    Ok(crc32fast::hash(&sector[..got]))
}

fn foreign(path: &Path, manifest: &Manifest<'_>, what: &str) -> SortError {
    SortError::ForeignManifest {
        path: manifest.path().to_owned(),
        what: format!("{} {what}", path.display()),
    }
}

/// By what the file system says of it.
pub(super) fn check_same(
    storage: &dyn Storage,
    path: &Path,
    file: &Handle,
    manifest: &Manifest<'_>,
    state: &SortState,
) -> Result<()> {
    let stat = storage.stat_handle(file).map_err(failed("looking at", path))?;
    let order = &manifest.order;
    // A copy of both, as of a backup, is as good as they were, if it was made of what the last state says. The content has to prove it, too.
    let is_copy = manifest.mark.freed > 0 && stat.mtime == manifest.mark.mtime;
    if stat.size != order.size || stat.ino != order.inode && !is_copy {
        let what = format!(
            "has inode {} and {} bytes, the file that was being sorted had inode {} and {} bytes",
            stat.ino, stat.size, order.inode, order.size
        );
        return Err(foreign(path, manifest, &what));
    }
    if stat.ino != order.inode {
        return Ok(());
    }
    let born = storage.identity(file).map_err(failed("looking at", path))?.born;
    // One that a server was not asked for the first time may be known now.
    if born.zip(order.born).is_some_and(|(now, then)| now != then) {
        let what = "was made at another time than the file that was being sorted, whose inode number it has";
        return Err(foreign(path, manifest, &with_advice(manifest, what)));
    }
    let is_written = stat.mtime != manifest.mark.mtime;
    if manifest.mark.freed == 0 && is_written && !may_have_written(storage, path, file, state)? {
        let what = "was written to since the sort ended";
        return Err(foreign(path, manifest, &with_advice(manifest, what)));
    }
    Ok(())
}

/// Whether a file of which records may be missing is this one, or a copy of it, for who is about to read or replace it. Where that cannot be told, it is.
pub(super) fn may_be(
    storage: &dyn Storage,
    (dir, name, path): (&Handle, &OsStr, &Path),
    manifest: &Manifest<'_>,
    state: &SortState,
) -> Result<bool> {
    let order = &manifest.order;
    let found = storage.stat(dir, name);
    let found = found.map_err(failed("looking at", path))?;
    if found.size != order.size || *state == SortState::Finishing {
        return Ok(false);
    }
    let Ok(file) = storage.open(dir, name, Access::Read) else {
        return Ok(found.ino == order.inode);
    };
    let born = storage.identity(&file).map_err(failed("looking at", path))?.born;
    if found.ino == order.inode && born.zip(order.born).is_none_or(|(now, then)| now == then) {
        return Ok(true);
    }
    // Another inode: a copy has zeros where records were freed, which is noted only with the next state; and no more is known of one into
    // which runs were merged.
    let freed = manifest.mark.freed;
    let is_copy = match state {
        SortState::Merging(pass) if pass.to == 0 => Ok(true),
        _ if freed > 0 => first_content(storage, &file, 0..freed).map(|content| content.is_none()),
        SortState::Forming { formed } => has_free_block(storage, &file, *formed),
        _ => has_free_block(storage, &file, order.size),
    };
    is_copy.map_err(failed("reading", path))
}

fn with_advice(manifest: &Manifest<'_>, what: &str) -> String {
    let side = manifest.path().parent().unwrap_or(manifest.path());
    format!("{what}; to give the old sort up, remove {}", side.display())
}

/// Whether the sort may have written to the file, of which nothing is known to be freed, after it noted this state.
fn may_have_written(storage: &dyn Storage, path: &Path, file: &Handle, state: &SortState) -> Result<bool> {
    match state {
        SortState::Forming { formed: 0 } | SortState::Finishing => Ok(true),
        SortState::Forming { formed } => has_free_block(storage, file, *formed).map_err(failed("reading", path)),
        SortState::Merging(pass) => Ok(pass.to == 0),
    }
}

/// Whether a block before a place reads as zeros.
fn has_free_block(storage: &dyn Storage, file: &Handle, before: u64) -> elbow_file::Result<bool> {
    let mut block = [0; BLOCK_BYTES as usize];
    for at in (0..before / BLOCK_BYTES * BLOCK_BYTES).step_by(BLOCK_BYTES as usize) {
        if storage.read(file, &mut block, at)? == block.len() && block.iter().all(|byte| *byte == 0) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// By what it holds; the runs have to be open.
pub(super) fn check_content(
    storage: &dyn Storage,
    path: &Path,
    engine: &Engine<'_>,
    manifest: &Manifest<'_>,
    state: &SortState,
) -> Result<()> {
    let (file, mark) = (engine.files.get(0)?, &manifest.mark);
    let found = match state {
        SortState::Finishing => None,
        SortState::Merging(pass) if pass.to == 0 => first_foreign(file, engine.files.get(pass.from)?, pass, manifest)?,
        SortState::Forming { .. } | SortState::Merging(_) => {
            first_content(storage, file.handle(), 0..mark.freed).map_err(failed("reading", &file.path))?
        }
    };
    match found {
        None => Ok(()),
        Some(at) => {
            let what =
                format!("holds something at byte {at} that the sort has not left there: it was written anew since");
            Err(foreign(path, manifest, &with_advice(manifest, &what)))
        }
    }
}

/// While runs are merged into the file: a place at which a lane has written, or goes on, and where there is something else.
fn first_foreign(
    file: &RecordFile<'_>,
    from: &RecordFile<'_>,
    pass: &Pass,
    manifest: &Manifest<'_>,
) -> Result<Option<u64>> {
    for lane in &pass.lanes {
        let mut tail = vec![0; lane.tail.bytes as usize];
        let start = lane.out_at - lane.tail.bytes;
        file.read(&mut tail, start)?;
        if !tail.is_empty() && crc32fast::hash(&tail) != lane.tail.checksum {
            return Ok(Some(start));
        }
    }
    for (out_at, heads) in places(pass) {
        let next = Next::of(from, &manifest.order.format, &heads)?;
        if !next.is_at(file, out_at, &manifest.order, &manifest.mark)? {
            return Ok(Some(out_at));
        }
    }
    Ok(None)
}

/// Where each lane goes on, and where the records are of which it takes one then. A pass that was not begun goes on at its beginning.
fn places(pass: &Pass) -> Vec<(u64, Vec<u64>)> {
    if pass.lanes.is_empty() {
        return vec![(0, pass.bounds[..pass.runs()].to_vec())];
    }
    let lanes = pass.lanes.iter().filter(|lane| lane.left_bytes() > 0);
    let heads = lanes.map(|lane| {
        let slices = lane.slices.iter().filter(|slice| slice.at < slice.end);
        (lane.out_at, slices.map(|slice| slice.at).collect())
    });
    heads.collect()
}

/// The records of which one is written next: all that are equal, for which of them comes first is nobody's business here.
struct Next(Vec<Vec<u8>>);

impl Next {
    fn of(from: &RecordFile<'_>, format: &RecordFormat, heads: &[u64]) -> Result<Self> {
        let mut least: Vec<Vec<u8>> = Vec::new();
        for at in heads {
            let mut record = vec![0; format.bytes()];
            from.read(&mut record, *at)?;
            let order = least.first().map(|before| format.compare(&record, before));
            if order.is_some_and(std::cmp::Ordering::is_lt) {
                least.clear();
            }
            if order.is_none_or(std::cmp::Ordering::is_le) {
                least.push(record);
            }
        }
        Ok(Self(least))
    }

    /// Whether the next record is at its place, or a part of it, or nothing yet.
    fn is_at(&self, file: &RecordFile<'_>, at: u64, order: &Order, mark: &Mark) -> Result<bool> {
        let bytes = order.format.bytes() as u64;
        if at + bytes <= mark.freed {
            let mut found = vec![0; bytes as usize];
            file.read(&mut found, at)?;
            return Ok(self.0.iter().any(|record| is_part(&found, record)));
        }
        if at > 0 || mark.freed > 0 {
            return Ok(true); // the input may still be there
        }
        let mut found = vec![0; SECTOR_BYTES.min(order.size) as usize];
        file.read(&mut found, 0)?;
        let is_input = crc32fast::hash(&found) == order.head;
        Ok(is_input || self.0.iter().any(|record| is_part(&found, record)))
    }
}

/// Whether bytes are those of a record, as far as they are there.
fn is_part(found: &[u8], record: &[u8]) -> bool {
    let mut pairs = found.iter().zip(record);
    pairs.all(|(found, byte)| *found == 0 || found == byte)
}
