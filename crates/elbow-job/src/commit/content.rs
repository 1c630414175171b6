//! New content for old files, window by window, each of which can be undone.
//!
//! ```text
//!   window     what it overwrites -> undo log (synced) ; new content -> file (synced) ; patch: punched
//! ```
//!
//! The patch shrinks as the log grows, so a commit needs no second copy of the space. A window that the log knows is not saved
//! again: part of the file may be new already. A hole in the patch means that its content has arrived.
//!
//! The undo log is a sequence of entries, each a length (u32, little-endian) and a sealed body; a torn end was never acted on.

use std::ffi::{OsStr, OsString};
use std::io::IoSlice;
use std::ops::Range;
use std::sync::OnceLock;

use elbow_file::{Access, Errno, Handle, RenameMode, Stat, Storage};
use elbow_ranges::RangeSet;
use elbow_ranges::encoding::{DecodeError, Reader, Writer, open_sealed, seal};

use super::apply::{Apply, CHANGED};
use super::failure::StepResult;
use super::record::{ObservedState, Patch};
use crate::descriptors::directory_handles;
use crate::execute::{open_writable, reserve};
use crate::missing::none_if_missing;
use crate::model::has_set_id;
use crate::report::NOT_WON;

/// What is written before it is synced and punched out of the patch.
const WINDOW_BYTES: u64 = 64 << 20;
const COPY_BYTES: usize = 1 << 20;
/// So many files at most are kept open until the commit is over, to be found when it is taken back and they were moved.
const KEPT_OPEN_MAX: usize = 256;
/// Holes are punched in whole blocks of this size.
const BLOCK_BYTES: u64 = 4096;

const LOG_MAGIC: [u8; 8] = *b"ELBOWUND";
const LOG_VERSION: u16 = 1;
const PRIVATE_FILE_MODE: u32 = 0o600;

impl Patch {
    /// What of the content before is overwritten, zeroed or cut.
    pub(crate) fn overwritten(&self) -> RangeSet {
        let mut all = self.written.union(&self.zeroed);
        let cut = self.kept.min(self.size);
        if cut < self.size_before {
            all.insert(cut, self.size_before);
        }
        all.remove(self.size_before, u64::MAX);
        all
    }

    /// What reads as zeros afterwards, and is not yet a hole past the old end.
    fn to_be_zero(&self) -> RangeSet {
        let mut zeros = self.zeroed.clone();
        if self.kept < self.size_before {
            zeros.insert(self.kept, self.size_before);
        }
        zeros.remove(self.size_before.min(self.size), u64::MAX);
        zeros.difference(&self.written)
    }

    /// Is all of it one piece behind the old end?
    fn only_appends(&self) -> bool {
        let is_behind = |span| span == (self.size_before..self.size);
        let is_uncut = self.zeroed.is_empty() && self.kept == self.size_before;
        is_uncut && self.written.len() == 1 && self.written.span().is_some_and(is_behind)
    }

    /// Is the file what the job saw, or what an earlier attempt has made of it? Of a file that was begun nobody can tell more than
    /// that its size is one of those in between: its time is that of a write, which may itself be lost.
    fn is_expected(&self, now: &Stat, has_begun: bool) -> bool {
        if has_begun {
            let sizes = self.size.min(self.size_before)..=self.size.max(self.size_before);
            return sizes.contains(&now.size);
        }
        self.seen.is_none_or(|seen| seen.is_still(now))
    }

    /// Does the job say all that the file is to hold?
    fn is_whole(&self) -> bool {
        let kept: RangeSet = std::iter::once(0..self.kept.min(self.size)).collect();
        kept.difference(&self.written).difference(&self.zeroed).is_empty()
    }

    /// Takes the file that is there now for the one that the job saw. What somebody else has written to it is overwritten whole, and put back whole
    /// if it comes to that; beside it a part of what the job saw would be a content that nobody has made.
    pub(super) fn win_over(&mut self, now: Option<&Stat>) -> Result<(), &'static str> {
        let Some(now) = now else {
            return Err("the job has written to it, and it is gone");
        };
        let is_as_seen = now.size == self.size_before && self.seen.is_none_or(|seen| seen.is_still(now));
        if !is_as_seen {
            if !self.is_whole() {
                return Err(NOT_WON);
            }
            (self.size_before, self.kept) = (now.size, 0);
        }
        self.seen = Some(ObservedState::of(now));
        Ok(())
    }

    /// The name of its patch file when part of the content is lost.
    fn torn_name(&self) -> OsString {
        let mut name = self.slot.clone();
        name.push(".torn");
        name
    }

    /// The name of its undo log.
    pub(crate) fn log_name(&self) -> OsString {
        let mut name = OsString::from("u-");
        name.push(&self.slot);
        name
    }
}

/// Pieces of a set that are worked on together, in order.
fn windows(all: &RangeSet) -> Vec<RangeSet> {
    let mut windows = vec![RangeSet::new()];
    let mut bytes = 0;
    for range in all {
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min(at + (WINDOW_BYTES - bytes));
            windows.last_mut().expect("one at least").insert(at, end);
            bytes += end - at;
            at = end;
            if bytes == WINDOW_BYTES {
                windows.push(RangeSet::new());
                bytes = 0;
            }
        }
    }
    windows.retain(|window| !window.is_empty());
    windows
}

/// Makes the undo log of a patch, in which nothing is said yet. All of them get durable names together.
pub(super) fn make_log(storage: &dyn Storage, job: &Handle, patch: &Patch) -> Result<(), Errno> {
    match storage.create(job, &patch.log_name(), PRIVATE_FILE_MODE) {
        Err(Errno::EXIST) => Ok(()),
        made => storage.close(&made?),
    }
}

/// Could an old file be opened for its patch, and written to? Its mode is not touched, unlike by [`open_target`]: nothing has been committed yet.
pub(super) fn try_target(storage: &dyn Storage, dir: &Handle, name: &OsStr, patch: &Patch) -> Result<(), Errno> {
    let (stat, user) = (storage.stat(dir, name)?, rustix::process::geteuid().as_raw());
    let opened = match open_as_it_is(storage, dir, name, patch) {
        // Its owner can give the right back.
        Err(Errno::ACCESS) if stat.uid == user => return Ok(()),
        opened => opened?,
    };
    // An active swap file is opened, and refuses what is written to it, even if that is nothing.
    let tried = if opened.0.is_here() {
        storage.write(&opened.0, &[], 0)
    } else {
        Ok(())
    };
    storage.close(&opened.0)?;
    tried?;
    let is_others = user != 0 && stat.uid != user;
    match is_others && has_set_id(stat.mode) {
        true => try_set_id(storage, dir, name, stat.mode),
        false => Ok(()),
    }
}

/// Will set-id bits go when somebody else's file is written to? Local file systems take them by themselves. For one behind a server the kernel asks for
/// the new mode first, and the write fails where the server refuses that to all but the owner (sshfs, whose EACCES is the server's;
/// EPERM is the kernel's own word, who has not asked). The mode that the file has changes nothing.
fn try_set_id(storage: &dyn Storage, dir: &Handle, name: &OsStr, mode: u32) -> Result<(), Errno> {
    match storage.chmod(dir, name, mode) {
        Err(Errno::ACCESS) => Err(Errno::ACCESS),
        _ => Ok(()),
    }
}

/// Opens an old file for its patch, with no more rights than the command needed: a file may be writable and not readable (then
/// what is overwritten cannot be saved), or take appends alone.
fn open_target(storage: &dyn Storage, dir: &Handle, name: &OsStr, patch: &Patch) -> Result<(Handle, Access), Errno> {
    match open_as_it_is(storage, dir, name, patch) {
        // Its owner has taken the right away after the last write.
        Err(Errno::ACCESS) => open_writable(storage, dir, name).map(|file| (file, Access::ReadWrite)),
        other => other,
    }
}

fn open_as_it_is(storage: &dyn Storage, dir: &Handle, name: &OsStr, patch: &Patch) -> Result<(Handle, Access), Errno> {
    match storage.open(dir, name, Access::ReadWrite) {
        Err(Errno::PERM) if patch.only_appends() => storage
            .open(dir, name, Access::Append)
            .map(|file| (file, Access::Append)),
        Err(Errno::ACCESS) => storage.open(dir, name, Access::Write).map(|file| (file, Access::Write)),
        other => other.map(|file| (file, Access::ReadWrite)),
    }
}

/// The contents of old files, changed and put back.
pub(super) struct Contents<'c, 'a> {
    apply: &'c Apply<'a>,
}

impl<'c, 'a> Contents<'c, 'a> {
    pub(super) fn of(apply: &'c Apply<'a>) -> Self {
        Self { apply }
    }
}

impl Contents<'_, '_> {
    /// Copies a patch into its file; what is copied and durable is punched out of the patch.
    pub(super) fn patch(&self, patch: &Patch, begun: &OnceLock<Option<Handle>>) -> StepResult {
        let storage = self.apply.storage();
        let (dir, name) = self.apply.place_of(&patch.path)?;
        let (file, opened) = open_target(storage, &dir, &name, patch)?;
        let (overwritten, zeros) = (patch.overwritten(), patch.to_be_zero());
        let source = match patch.written.is_empty() {
            true => None,
            false => Some(storage.open(&self.apply.job, &patch.slot, Access::ReadWrite)?),
        };
        let is_saved = opened == Access::ReadWrite;
        let mut log = Log::open(storage, &self.apply.job, &patch.log_name())?;
        let has_begun = log.end > 0;
        let now = storage.stat_handle(&file)?;
        if !patch.is_expected(&now, has_begun) || has_begun && !self.is_ours_behind(patch, &file, now.size)? {
            return Err(CHANGED);
        }
        if !has_begun {
            // Without a word in the log nothing has happened to the file.
            let mut first = self.to_be_reserved(&file, patch)?;
            first.push(Entry::Saved(0));
            log.append(storage, &first)?;
            storage.sync(&log.file)?;
        }
        let is_kept = self.apply.record.patches.len() <= KEPT_OPEN_MAX.min(directory_handles() / 2);
        begun.get_or_init(|| is_kept.then(|| file.clone()));
        for window in windows(&overwritten.union(&patch.written)) {
            let end = window.span().map_or(0, |span| span.end);
            if is_saved && log.saved < end {
                self.save(&file, &window.intersection(&overwritten), end, &mut log)?;
            }
            for range in &window.intersection(&zeros) {
                self.zero(&file, &range)?;
            }
            if let Some(source) = &source {
                let mut arriving = window.intersection(&patch.written);
                if opened == Access::Append {
                    // What an attempt before has appended.
                    arriving.remove(0, storage.stat_handle(&file)?.size);
                }
                // Of what is appended nothing may be written twice, as where the storage gives up half-way.
                let may_copy = opened != Access::Append;
                for range in &arriving {
                    self.copy_range(source, &file, range, may_copy)?;
                }
                storage.sync(&file)?;
                self.consume(source, &arriving)?;
            }
        }
        // What is longer than expected, though the job cut nothing, was made so by somebody else at this moment.
        let (now, is_cut) = (storage.stat_handle(&file)?.size, patch.kept < patch.size_before);
        if now < patch.size || now > patch.size && is_cut {
            storage.truncate(&file, patch.size)?;
        }
        let within: RangeSet = std::iter::once(0..patch.size).collect();
        reserve(storage, &file, &patch.reserved.intersection(&within), false)?;
        reserve(storage, &file, &patch.reserved.difference(&within), true)?;
        Ok(storage.sync(&file)?)
    }

    /// The holes, within the old size, that are to be reserved and are not written to.
    fn to_be_reserved(&self, file: &Handle, patch: &Patch) -> Result<Vec<Entry>, Errno> {
        let mut parts = patch.reserved.difference(&patch.overwritten());
        parts.remove(patch.size_before, u64::MAX);
        let mut holes = Vec::new();
        for range in &parts {
            holes.extend(self.holes(file, &range)?.into_iter().map(Entry::Reserved));
        }
        Ok(holes)
    }

    /// The holes of a file in a range; what is only reserved is among them.
    fn holes(&self, file: &Handle, range: &Range<u64>) -> Result<Vec<Range<u64>>, Errno> {
        let (mut holes, mut at) = (Vec::new(), range.start);
        while at < range.end {
            let (start, end) = self.next_data(file, at)?.unwrap_or((range.end, range.end));
            let hole = at..start.clamp(at, range.end);
            holes.extend(Some(hole).filter(|hole| !hole.is_empty()));
            at = end.max(at + 1);
        }
        Ok(holes)
    }

    /// Frees what is reserved in a range, and no more: nobody's data. (What was read there since passes for data on some file systems.)
    fn free(&self, file: &Handle, range: &Range<u64>) -> Result<(), Errno> {
        let holes: RangeSet = self.holes(file, range)?.into_iter().collect();
        let mut buffer = vec![0; COPY_BYTES];
        for range in &holes.union(&self.zeros(file, &holes.complement(range.clone()), &mut buffer)?) {
            match self.apply.storage().punch(file, range.start, range.end - range.start) {
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
                other => other?,
            }
        }
        Ok(())
    }

    /// What reads as zeros of some ranges, piece by piece.
    fn zeros(&self, file: &Handle, ranges: &RangeSet, buffer: &mut [u8]) -> Result<RangeSet, Errno> {
        let mut zeros = RangeSet::new();
        for range in ranges {
            for start in range.clone().step_by(buffer.len()) {
                let length = (range.end - start).min(buffer.len() as u64);
                let part = &mut buffer[..length as usize];
                part.fill(0);
                self.apply.storage().read(file, part, start)?;
                if part.iter().all(|byte| *byte == 0) {
                    zeros.insert(start, start + length);
                }
            }
        }
        Ok(zeros)
    }

    /// Is what a file has beyond its old end what an attempt before has written there, and nobody else's?
    fn is_ours_behind(&self, patch: &Patch, file: &Handle, size: u64) -> Result<bool, Errno> {
        let storage = self.apply.storage();
        let behind: RangeSet = std::iter::once(patch.size_before..size.max(patch.size_before)).collect();
        let written = behind.intersection(&patch.written);
        let Some(source) = none_if_missing(storage.open(&self.apply.job, &patch.slot, Access::Read))? else {
            return Ok(true);
        };
        let (mut found, mut ours) = (vec![0; COPY_BYTES], vec![0; COPY_BYTES]);
        for range in &written {
            let mut at = range.start;
            while let Some((start, end)) = self.next_data(&source, at)?.filter(|data| data.0 < range.end) {
                at = start.max(at);
                let length = (end.min(range.end) - at).min(COPY_BYTES as u64) as usize;
                let (found, ours) = (&mut found[..length], &mut ours[..length]);
                found.fill(0);
                storage.read(file, found, at)?;
                storage.read(&source, ours, at)?;
                // What has not come to the disk before the machine died reads as zeros.
                if found
                    .iter()
                    .zip(&*ours)
                    .any(|(found, ours)| found != ours && *found != 0)
                {
                    return Ok(false);
                }
                at += length as u64;
            }
        }
        Ok(true)
    }

    /// Puts back what a patch has overwritten, once it has begun to; what it never reached is as it was.
    pub(super) fn take_back(&self, patch: &Patch, begun: &OnceLock<Option<Handle>>) -> StepResult {
        let storage = self.apply.storage();
        let file = match begun.get() {
            Some(Some(file)) => Some(file.clone()),
            _ => self.reopen_target(patch)?,
        };
        let Some(file) = file else { return Ok(()) };
        let is_ours_behind = self.is_ours_behind(patch, &file, storage.stat_handle(&file)?.size)?;
        if let Some(source) = none_if_missing(storage.open(&self.apply.job, &patch.slot, Access::ReadWrite))? {
            // Before anything is put back, and durable: a second attempt finds nothing to refill.
            let refilled = self.refill(&source, &file, patch).and_then(|()| storage.sync(&source));
            if refilled.is_err() {
                // Only a job that is kept misses it, so its failure is none of the roll back.
                storage.rename(
                    &self.apply.job,
                    &patch.slot,
                    &self.apply.job,
                    &patch.torn_name(),
                    RenameMode::Replace,
                )?;
            }
        }
        Log::open(storage, &self.apply.job, &patch.log_name())?.replay(storage, |entry| match entry {
            Entry::Data(at, bytes) => storage.write(&file, &[IoSlice::new(&bytes)], at),
            Entry::Hole(range) => self.zero(&file, &range),
            Entry::Reserved(range) => self.free(&file, &range),
            Entry::Saved(_) => Ok(()),
        })?;
        match storage.stat_handle(&file)?.size {
            // Somebody else has appended where the job was about to.
            _ if !is_ours_behind => {}
            // Somebody else has appended behind what the job had.
            now if now > patch.size.max(patch.size_before) => match patch.size_before..patch.size {
                range if range.is_empty() => {}
                range => self.zero(&file, &range)?,
            },
            now if now != patch.size_before => match storage.truncate(&file, patch.size_before) {
                // It takes appends alone: what was appended stays.
                Err(Errno::PERM) if now > patch.size_before && patch.only_appends() => {}
                other => other?,
            },
            // What is reserved behind the end goes with that.
            now if patch.reserved.overlaps(now, u64::MAX) => storage.truncate(&file, now)?,
            _ => {}
        }
        Ok(storage.sync(&file)?)
    }

    /// The file of a patch by its name; what has none any more was removed by somebody else.
    fn reopen_target(&self, patch: &Patch) -> Result<Option<Handle>, Errno> {
        let Some((dir, name)) = none_if_missing(self.apply.place_of(&patch.path))? else {
            return Ok(None);
        };
        let opened = none_if_missing(open_target(self.apply.storage(), &dir, &name, patch))?;
        Ok(opened.map(|(file, _)| file))
    }

    /// Copies what has left the patch for the file back to the patch.
    fn refill(&self, source: &Handle, file: &Handle, patch: &Patch) -> Result<(), Errno> {
        for range in &patch.written {
            let mut at = range.start;
            while at < range.end {
                let (start, end) = self.next_data(source, at)?.unwrap_or((range.end, range.end));
                let hole = at..start.clamp(at, range.end);
                self.copy_range(file, source, hole, true)?;
                at = end.clamp(start.max(at), range.end).max(at + 1);
            }
        }
        Ok(())
    }

    /// Saves parts of a file in its undo log, durably, up to the end of a window.
    fn save(&self, file: &Handle, parts: &RangeSet, end: u64, log: &mut Log) -> Result<(), Errno> {
        let storage = self.apply.storage();
        let mut buffer = vec![0; COPY_BYTES];
        for range in parts {
            let mut at = range.start;
            while at < range.end {
                let (start, data_end) = self.next_data(file, at)?.unwrap_or((range.end, range.end));
                let (start, data_end) = (start.clamp(at, range.end), data_end.min(range.end));
                if at < start {
                    log.append(storage, &[Entry::Hole(at..start)])?;
                }
                at = start;
                while at < data_end {
                    let part = &mut buffer[..(data_end - at).min(COPY_BYTES as u64) as usize];
                    let length = storage.read(file, part, at)?;
                    if length == 0 {
                        return Err(Errno::IO); // it was cut by somebody else
                    }
                    log.append(storage, &[Entry::Data(at, part[..length].to_vec())])?;
                    at += length as u64;
                }
            }
        }
        log.append(storage, &[Entry::Saved(end)])?;
        storage.sync(&log.file)
    }

    fn zero(&self, file: &Handle, range: &Range<u64>) -> Result<(), Errno> {
        match self.apply.storage().punch(file, range.start, range.end - range.start) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            other => return other,
        }
        let zeros = vec![0; COPY_BYTES];
        let mut at = range.start;
        while at < range.end {
            let length = (range.end - at).min(COPY_BYTES as u64);
            let part = [IoSlice::new(&zeros[..length as usize])];
            self.apply.storage().write(file, &part, at)?;
            at += length;
        }
        Ok(())
    }

    /// Copies the data, not the holes, of a range; on another machine by its storage, where that can.
    fn copy_range(&self, source: &Handle, file: &Handle, range: Range<u64>, may_copy: bool) -> Result<(), Errno> {
        let (mut buffer, mut at) = (Vec::new(), range.start);
        let mut copies_there = may_copy && !file.is_here();
        while at < range.end {
            let Some((start, end)) = self.next_data(source, at)? else {
                return Ok(());
            };
            at = at.max(start);
            let end = end.min(range.end);
            while at < end {
                let copied = copies_there.then(|| self.apply.storage().copy_range(source, at, file, at, end - at));
                let length = match copied {
                    None | Some(Err(Errno::OPNOTSUPP)) => {
                        copies_there = false;
                        self.copy_here(source, file, at..end, &mut buffer)?
                    }
                    Some(copied) => copied?,
                };
                if length == 0 {
                    return Err(Errno::IO);
                }
                at += length;
                self.apply.counter.copied(length);
            }
        }
        Ok(())
    }

    /// Reads the beginning of a range and writes it; how much that was.
    fn copy_here(&self, source: &Handle, file: &Handle, range: Range<u64>, buffer: &mut Vec<u8>) -> Result<u64, Errno> {
        buffer.resize(COPY_BYTES, 0);
        let most = (range.end - range.start).min(COPY_BYTES as u64) as usize;
        let length = self.apply.storage().read(source, &mut buffer[..most], range.start)?;
        if length > 0 {
            let pieces = [IoSlice::new(&buffer[..length])];
            self.apply.storage().write(file, &pieces, range.start)?;
        }
        Ok(length as u64)
    }

    fn next_data(&self, file: &Handle, at: u64) -> Result<Option<(u64, u64)>, Errno> {
        match self.apply.storage().next_data(file, at) {
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(Some((at, u64::MAX))),
            other => other,
        }
    }

    /// Punches what has arrived out of the patch, in whole blocks.
    fn consume(&self, source: &Handle, arrived: &RangeSet) -> Result<(), Errno> {
        for range in arrived {
            let start = range.start.next_multiple_of(BLOCK_BYTES);
            let end = range.end / BLOCK_BYTES * BLOCK_BYTES;
            if start >= end {
                continue;
            }
            match self.apply.storage().punch(source, start, end - start) {
                // The space then comes free with the whole patch file.
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOSPC) => {}
                other => other?,
            }
        }
        Ok(())
    }
}

/// What an undo log says of a file.
#[derive(Debug, PartialEq, Eq)]
enum Entry {
    /// It had these bytes at this offset.
    Data(u64, Vec<u8>),
    /// It had a hole here.
    Hole(Range<u64>),
    /// It had a hole here, and what is not written to is reserved.
    Reserved(Range<u64>),
    /// All before this offset that is overwritten is in the entries above.
    Saved(u64),
}

impl Entry {
    fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new();
        match self {
            Self::Data(at, bytes) => {
                out.u8(0);
                out.varint(*at);
                out.bytes(bytes);
            }
            Self::Hole(range) | Self::Reserved(range) => {
                out.u8(if matches!(self, Self::Hole(_)) { 1 } else { 3 });
                out.varint(range.start);
                out.varint(range.end - range.start);
            }
            Self::Saved(end) => {
                out.u8(2);
                out.varint(*end);
            }
        }
        let sealed = seal(LOG_MAGIC, LOG_VERSION, &out.finish());
        let mut entry = (sealed.len() as u32).to_le_bytes().to_vec();
        entry.extend_from_slice(&sealed);
        entry
    }

    fn decode(sealed: &[u8]) -> Result<Self, DecodeError> {
        let (_, body) = open_sealed(LOG_MAGIC, LOG_VERSION..=LOG_VERSION, sealed)?;
        let mut from = Reader::new(body);
        let at = from.offset();
        let entry = match from.u8()? {
            0 => Self::Data(from.varint()?, from.bytes()?.to_vec()),
            kind @ (1 | 3) => {
                let (start, length) = (from.varint()?, from.varint()?);
                let range = start..start.saturating_add(length);
                if kind == 1 {
                    Self::Hole(range)
                } else {
                    Self::Reserved(range)
                }
            }
            2 => Self::Saved(from.varint()?),
            _ => {
                return Err(DecodeError::BadValue {
                    at,
                    what: "an unknown entry of an undo log",
                });
            }
        };
        from.finish()?;
        Ok(entry)
    }
}

/// The undo log of one file.
struct Log {
    file: Handle,
    /// After the last whole entry.
    end: u64,
    /// All before this offset that is overwritten has been saved.
    saved: u64,
}

impl Log {
    /// Opens it, or makes it.
    fn open(storage: &dyn Storage, job: &Handle, name: &OsStr) -> Result<Self, Errno> {
        let file = match storage.open(job, name, Access::ReadWrite) {
            Err(Errno::NOENT) => storage.create(job, name, PRIVATE_FILE_MODE)?,
            other => other?,
        };
        let mut log = Self { file, end: 0, saved: 0 };
        let (mut end, mut saved) = (0, 0);
        log.each(storage, |entry, after| {
            end = after;
            if let Entry::Saved(upto) = entry {
                saved = upto;
            }
            Ok(())
        })?;
        (log.end, log.saved) = (end, saved);
        Ok(log)
    }

    fn append(&mut self, storage: &dyn Storage, entries: &[Entry]) -> Result<(), Errno> {
        let bytes: Vec<u8> = entries.iter().flat_map(Entry::encode).collect();
        storage.write(&self.file, &[IoSlice::new(&bytes)], self.end)?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    fn replay(&self, storage: &dyn Storage, mut apply: impl FnMut(Entry) -> Result<(), Errno>) -> Result<(), Errno> {
        self.each(storage, |entry, _| apply(entry))
    }

    /// All whole entries, with the offset after each.
    fn each(
        &self,
        storage: &dyn Storage,
        mut use_it: impl FnMut(Entry, u64) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        const ENTRY_BYTES_MAX: usize = COPY_BYTES + 4096;
        let mut at = 0;
        loop {
            let mut length = [0; 4];
            if storage.read(&self.file, &mut length, at)? < length.len() {
                return Ok(());
            }
            let mut sealed = vec![0; (u32::from_le_bytes(length) as usize).min(ENTRY_BYTES_MAX)];
            if storage.read(&self.file, &mut sealed, at + 4)? < sealed.len() {
                return Ok(());
            }
            let Ok(entry) = Entry::decode(&sealed) else {
                return Ok(());
            };
            at += 4 + sealed.len() as u64;
            use_it(entry, at)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ranges: &[(u64, u64)]) -> RangeSet {
        ranges.iter().fold(RangeSet::new(), |mut set, (start, end)| {
            set.insert(*start, *end);
            set
        })
    }

    fn patch(written: &[(u64, u64)], zeroed: &[(u64, u64)], (kept, size, size_before): (u64, u64, u64)) -> Patch {
        Patch {
            path: "f".into(),
            slot: "p1".into(),
            written: set(written),
            zeroed: set(zeroed),
            kept,
            size,
            size_before,
            seen: None,
            reserved: set(&[]),
        }
    }

    #[test]
    fn what_is_saved_is_what_the_file_had_and_loses() {
        // An append loses nothing.
        assert_eq!(patch(&[(10, 30)], &[], (10, 30, 10)).overwritten(), set(&[]));
        assert_eq!(patch(&[(5, 30)], &[], (10, 30, 10)).overwritten(), set(&[(5, 10)]));
        // Cut to nothing, and written shorter than it was.
        let rewritten = patch(&[(0, 4)], &[], (0, 4, 10));
        assert_eq!(rewritten.overwritten(), set(&[(0, 10)]));
        assert_eq!(rewritten.to_be_zero(), set(&[]));
        // Cut in between, and made longer than it was without being written.
        let cut = patch(&[(7, 8)], &[(1, 2)], (6, 20, 10));
        assert_eq!(cut.overwritten(), set(&[(1, 2), (6, 10)]));
        assert_eq!(cut.to_be_zero(), set(&[(1, 2), (6, 7), (8, 10)]));
    }

    #[test]
    fn what_is_won_over_is_overwritten_whole_or_not_at_all() {
        // Rewritten, shorter; and written over and over, with a hole in it.
        assert!(patch(&[(0, 4)], &[], (0, 4, 10)).is_whole());
        assert!(patch(&[(0, 3), (5, 12)], &[(3, 5)], (10, 12, 10)).is_whole());
        // Behind the old end there is nothing to know.
        assert!(patch(&[(0, 10), (20, 30)], &[], (10, 30, 10)).is_whole());
        for part in [
            patch(&[(10, 30)], &[], (10, 30, 10)),
            patch(&[(2, 4)], &[], (10, 10, 10)),
            patch(&[], &[], (3, 3, 10)),
        ] {
            assert!(!part.is_whole(), "{part:?}");
        }
        let mut rewritten = patch(&[(0, 4)], &[], (0, 4, 10));
        (rewritten.size_before, rewritten.kept) = (84, 0);
        assert_eq!(rewritten.overwritten(), set(&[(0, 84)]), "all of it comes back");
        let mut holey = patch(&[(0, 3)], &[(3, 12)], (10, 12, 10));
        (holey.size_before, holey.kept) = (84, 0);
        assert_eq!(holey.to_be_zero(), set(&[(3, 12)]));
        assert_eq!(holey.overwritten(), set(&[(0, 84)]));
    }

    #[test]
    fn windows_cover_everything_in_order_and_none_is_larger_than_it_may_be() {
        let all = set(&[(1, 5), (100, 100 + 2 * WINDOW_BYTES), (1 << 40, (1 << 40) + 3)]);
        let windows = windows(&all);
        assert_eq!(windows.len(), 3);
        assert!(windows.iter().all(|window| window.total_bytes() <= WINDOW_BYTES));
        assert_eq!(
            windows.iter().fold(RangeSet::new(), |all, window| all.union(window)),
            all
        );
        let spans: Vec<_> = windows.iter().filter_map(RangeSet::span).collect();
        assert!(spans.windows(2).all(|two| two[0].end <= two[1].start));
    }

    #[test]
    fn entries_of_an_undo_log_are_read_as_they_were_written_and_a_damaged_one_is_none() {
        for entry in [
            Entry::Data(1 << 40, b"old".to_vec()),
            Entry::Hole(7..9),
            Entry::Reserved(7..9),
            Entry::Saved(u64::MAX),
        ] {
            let mut bytes = entry.encode();
            assert_eq!(Entry::decode(&bytes[4..]).expect("it is whole"), entry);
            *bytes.last_mut().expect("some") ^= 1;
            assert!(Entry::decode(&bytes[4..]).is_err());
        }
    }
}
