//! New content for old files, window by window, each of which can be undone.
//!
//! ```text
//!   window     what it overwrites -> undo log (synced) ; new content -> file (synced) ; patch: punched
//! ```
//!
//! The patch shrinks as the log grows, so a commit needs no second copy of the space. A window that the log knows is not saved
//! again: part of the file may be new already. That a window has arrived, the log says, too, before it is punched; the holes of a patch say nothing, for
//! some storages make them of zeros.
//!
//! The pieces of a window are read and written by many threads: a program that changes records here and there leaves thousands, each
//! of which costs the latency of the storage.
//!
//! The undo log ([`super::undo_log`]) of a small patch lies behind the patch in the same file: a file for itself would have to be made and removed
//! in one directory with others, one after the other.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::IoSlice;
use std::ops::Range;
use std::sync::OnceLock;

use elbow_file::{Access, Errno, Handle, RenameMode, Stat, Storage};
use elbow_ranges::RangeSet;

use super::aliases::Aliases;
use super::apply::{Apply, CHANGED};
use super::failure::{Refusal, StepResult};
use super::record::{ObservedState, Patch};
use super::undo_log::{COPY_BYTES, Entry, Log, each_entry};
use crate::descriptors::directory_handles;
use crate::execute::{open_writable, reserve};
use crate::missing::{ignore_missing, none_if_missing};
use crate::model::has_set_id;
use crate::parallel::parallel;
use crate::patch_files::PatchDirs;
use crate::report::NOT_WON;

/// What is written before it is synced and punched out of the patch.
const WINDOW_BYTES: u64 = 64 << 20;
/// What of old content is in memory at once, of all files.
const BATCH_BYTES: u64 = 8 << 20;
/// So many files at most are kept open until the commit is over, to be found when it is taken back and they were moved.
const KEPT_OPEN_MAX: usize = 256;
/// Less is not punched out of a patch, which costs two requests.
const PUNCHED_BYTES_MIN: u64 = 64 << 10;
/// No undo log lies behind this in the file of its patch: some file systems have no larger files.
const IN_SLOT_MAX: u64 = 2 << 30;
/// Holes are punched in whole blocks of this size.
const BLOCK_BYTES: u64 = 4096;

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

    /// The name of the file with its undo log.
    pub(crate) fn log_name(&self) -> OsString {
        match self.log_in_slot() {
            Some(_) => self.slot.clone(),
            None => self.own_log_name(),
        }
    }

    /// Has its undo log a file for itself?
    pub(super) fn has_own_log(&self) -> bool {
        self.log_in_slot().is_none()
    }

    fn own_log_name(&self) -> OsString {
        let mut name = OsString::from("u-");
        name.push(&self.slot);
        name
    }

    /// Where its undo log begins in the file of the patch; none if it has one for itself, as those have that are punched out of their file.
    fn log_in_slot(&self) -> Option<u64> {
        let written = self.written.span()?;
        let at = written.end.next_multiple_of(BLOCK_BYTES);
        let end = at.saturating_add(self.overwritten().total_bytes());
        (self.written.total_bytes() < PUNCHED_BYTES_MIN && end <= IN_SLOT_MAX).then_some(at)
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

/// A set in pieces of so many bytes at most.
fn pieces(all: &RangeSet, most: u64) -> Vec<Range<u64>> {
    let piece = |range: Range<u64>| {
        let starts = (range.start..range.end).step_by(most as usize);
        starts.map(move |start| start..range.end.min(start.saturating_add(most)))
    };
    all.iter().flat_map(piece).collect()
}

/// Pieces in runs that hold so many bytes at most, or one piece.
fn batches(pieces: &[Range<u64>], most: u64) -> Vec<&[Range<u64>]> {
    let (mut batches, mut rest) = (Vec::new(), pieces);
    while !rest.is_empty() {
        let mut held = 0;
        let fits = rest.iter().take_while(|piece| {
            held += piece.end - piece.start;
            held <= most
        });
        let (batch, others) = rest.split_at(fits.count().max(1));
        batches.push(batch);
        rest = others;
    }
    batches
}

/// Makes the undo log of a patch, in which nothing is said yet. All of them get durable names together.
pub(super) fn make_log(storage: &dyn Storage, dirs: &PatchDirs, patch: &Patch) -> Result<(), Errno> {
    if !patch.has_own_log() {
        return Ok(());
    }
    let dir = dirs.of_patch(storage, &patch.slot)?;
    match storage.create(&dir, &patch.own_log_name(), PRIVATE_FILE_MODE) {
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

/// A patch on its way to its file.
struct OpenPatch<'p> {
    patch: &'p Patch,
    file: Handle,
    opened: Access,
    /// The new content, if there is any.
    source: Option<Handle>,
    log: Log,
    overwritten: RangeSet,
    zeros: RangeSet,
}

impl OpenPatch<'_> {
    /// Is what is overwritten saved? What nobody may read cannot be.
    fn saves(&self) -> bool {
        self.opened == Access::ReadWrite && !self.overwritten.is_empty()
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

impl<'a> Contents<'_, 'a> {
    /// Copies a patch into its file; what is copied and durable is punched out of the patch.
    pub(super) fn patch(
        &self,
        patch: &'a Patch,
        begun: &OnceLock<Option<Handle>>,
        aliases: &Aliases<'a>,
    ) -> StepResult {
        let mut open = self.open(patch)?;
        let has_begun = open.log.has_begun();
        let now = self.apply.storage().stat_handle(&open.file)?;
        aliases.claim(patch, &now)?;
        if !patch.is_expected(&now, has_begun) || has_begun && !self.is_ours_behind(patch, &open.file, now.size)? {
            return Err(CHANGED);
        }
        if !has_begun {
            self.begin(&mut open)?;
        }
        let is_kept = self.apply.record.patches.len() <= KEPT_OPEN_MAX.min(directory_handles() / 2);
        begun.get_or_init(|| is_kept.then(|| open.file.clone()));
        for window in windows(&open.overwritten.union(&patch.written)) {
            self.bring(&mut open, &window)?;
        }
        Ok(self.complete(&open)?)
    }

    fn open<'p>(&self, patch: &'p Patch) -> Result<OpenPatch<'p>, Refusal> {
        let storage = self.apply.storage();
        let (dir, name) = self.apply.place_of(&patch.path)?;
        let (file, opened) = open_target(storage, &dir, &name, patch)?;
        let source = match patch.written.is_empty() {
            true => None,
            false => Some(storage.open(&self.dir(patch)?, &patch.slot, Access::ReadWrite)?),
        };
        let log = match (&source, patch.log_in_slot()) {
            (Some(slot), Some(at)) if self.apply.is_first() => self.begin_log(slot, at)?,
            _ => self.log(patch)?,
        };
        Ok(OpenPatch {
            patch,
            file,
            opened,
            source,
            log,
            overwritten: patch.overwritten(),
            zeros: patch.to_be_zero(),
        })
    }

    /// Says in the log that something will happen to the file: without a word there nothing has.
    fn begin(&self, open: &mut OpenPatch<'_>) -> Result<(), Errno> {
        let storage = self.apply.storage();
        let mut first = self.to_be_reserved(&open.file, open.patch)?;
        first.push(Entry::Saved(0));
        open.log.append(storage, &first)?;
        match open.saves() {
            true => Ok(()), // it becomes durable with what is saved next
            false => storage.sync(&open.log.file),
        }
    }

    /// Saves what a window overwrites, and copies it.
    fn bring(&self, open: &mut OpenPatch<'_>, window: &RangeSet) -> Result<(), Errno> {
        let storage = self.apply.storage();
        let end = window.span().map_or(0, |span| span.end);
        if open.log.arrived >= end {
            return Ok(());
        }
        if open.saves() && open.log.saved < end {
            self.save(&open.file, &window.intersection(&open.overwritten), end, &mut open.log)?;
        }
        for range in &window.intersection(&open.zeros) {
            self.zero(&open.file, &range)?;
        }
        let Some(source) = &open.source else { return Ok(()) };
        let arriving = window.intersection(&open.patch.written);
        if open.opened == Access::Append {
            self.append(source, &open.file, arriving.clone())?;
        } else if open.log.is_silent {
            self.copy(source, &open.file, &self.data(source, &arriving)?)?;
        } else {
            self.copy(source, &open.file, &arriving)?;
        }
        storage.sync(&open.file)?;
        if arriving.total_bytes() < PUNCHED_BYTES_MIN {
            return Ok(());
        }
        open.log.append(storage, &[Entry::Arrived(end)])?;
        storage.sync(&open.log.file)?;
        self.consume(source, &arriving)
    }

    /// Gives a file its size and what is reserved of it, when all windows have arrived.
    fn complete(&self, open: &OpenPatch<'_>) -> Result<(), Errno> {
        let (storage, file, patch) = (self.apply.storage(), &open.file, open.patch);
        // What is longer than expected, though the job cut nothing, was made so by somebody else at this moment.
        let (now, is_cut) = (storage.stat_handle(file)?.size, patch.kept < patch.size_before);
        let is_resized = now < patch.size || now > patch.size && is_cut;
        if is_resized {
            storage.truncate(file, patch.size)?;
        }
        let within: RangeSet = std::iter::once(0..patch.size).collect();
        reserve(storage, file, &patch.reserved.intersection(&within), false)?;
        reserve(storage, file, &patch.reserved.difference(&within), true)?;
        // Windows with content are durable.
        match open.source.is_some() && !is_resized && patch.reserved.is_empty() {
            true => Ok(()),
            false => storage.sync(file),
        }
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
        let Some(source) = none_if_missing(storage.open(&self.dir(patch)?, &patch.slot, Access::Read))? else {
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

    /// An empty log behind a patch, where there may be what the command has written and cut off again.
    fn begin_log(&self, slot: &Handle, at: u64) -> Result<Log, Errno> {
        self.cut_log(slot, at)?;
        Ok(Log::empty(slot, at))
    }

    fn cut_log(&self, slot: &Handle, at: u64) -> Result<(), Errno> {
        let storage = self.apply.storage();
        if storage.stat_handle(slot)?.size <= at {
            return Ok(());
        }
        storage.truncate(slot, at)?;
        // What comes back after a power cut would pass for a log of this attempt.
        storage.sync(slot)
    }

    /// The undo log of a patch. An older elbow has left one for itself.
    fn log(&self, patch: &Patch) -> Result<Log, Errno> {
        let (storage, dir) = (self.apply.storage(), self.dir(patch)?);
        let Some(at) = patch.log_in_slot() else {
            return Log::read(
                storage,
                &storage.open(&dir, &patch.own_log_name(), Access::ReadWrite)?,
                0,
            );
        };
        if !self.apply.is_first()
            && let Some(own) = none_if_missing(storage.open(&dir, &patch.own_log_name(), Access::ReadWrite))?
        {
            return Log::read(storage, &own, 0);
        }
        Log::read(storage, &storage.open(&dir, &patch.slot, Access::ReadWrite)?, at)
    }

    /// Has anything happened to the file of a patch?
    pub(super) fn has_begun(&self, patch: &Patch) -> Result<bool, Errno> {
        let log = none_if_missing(self.log(patch))?;
        Ok(log.is_some_and(|log| log.has_begun()))
    }

    /// Removes the undo log of a patch.
    pub(super) fn forget(&self, patch: &Patch) -> StepResult {
        let (storage, dir) = (self.apply.storage(), self.dir(patch)?);
        if let Some(at) = patch.log_in_slot()
            && let Some(slot) = none_if_missing(storage.open(&dir, &patch.slot, Access::ReadWrite))?
        {
            self.cut_log(&slot, at)?;
        }
        match patch.log_in_slot().is_some() && self.apply.is_first() {
            true => Ok(()),
            false => Ok(ignore_missing(storage.unlink(&dir, &patch.own_log_name()))?),
        }
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
        let log = self.log(patch)?;
        let mut arrived = patch.written.clone();
        if !log.is_silent {
            arrived.remove(log.arrived, u64::MAX);
        }
        if !arrived.is_empty()
            && let Some(source) = none_if_missing(storage.open(&self.dir(patch)?, &patch.slot, Access::ReadWrite))?
        {
            // Before anything is put back, and durable: a second attempt finds nothing to refill.
            let refilled = self
                .refill(&source, &file, &arrived)
                .and_then(|()| storage.sync(&source));
            if refilled.is_err() {
                // Only a job that is kept misses it, so its failure is none of the roll back.
                let dir = self.dir(patch)?;
                storage.rename(&dir, &patch.slot, &dir, &patch.torn_name(), RenameMode::Replace)?;
            }
        }
        self.put_back(&file, &log)?;
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

    /// Writes what an undo log says back to its file.
    fn put_back(&self, file: &Handle, log: &Log) -> Result<(), Errno> {
        let storage = self.apply.storage();
        // What was saved twice, because an attempt was cut off in between, counts as it was the second time.
        let (mut data, mut held) = (BTreeMap::new(), 0);
        let write = |data: &mut BTreeMap<u64, Vec<u8>>| {
            let pieces: Vec<_> = std::mem::take(data).into_iter().collect();
            let written = parallel(&pieces, self.threads(), |(at, bytes)| {
                storage.write(file, &[IoSlice::new(bytes)], *at)
            });
            written.into_iter().collect::<Result<(), _>>()
        };
        each_entry(storage, &log.file, log.begin, |entry, _, _| match entry {
            Entry::Data(at, bytes) => {
                held += bytes.len() as u64;
                data.insert(at, bytes);
                if held < self.share_of(BATCH_BYTES) {
                    return Ok(());
                }
                held = 0;
                write(&mut data)
            }
            Entry::Hole(range) => self.zero(file, &range),
            Entry::Reserved(range) => self.free(file, &range),
            Entry::Saved(_) | Entry::Arrived(_) => Ok(()),
        })?;
        write(&mut data)
    }

    /// The file of a patch by its name; what has none any more was removed by somebody else.
    fn reopen_target(&self, patch: &Patch) -> Result<Option<Handle>, Errno> {
        let Some((dir, name)) = none_if_missing(self.apply.place_of(&patch.path))? else {
            return Ok(None);
        };
        let opened = none_if_missing(open_target(self.apply.storage(), &dir, &name, patch))?;
        Ok(opened.map(|(file, _)| file))
    }

    /// Copies what was punched out of the patch back from the file, of what has arrived there.
    fn refill(&self, source: &Handle, file: &Handle, arrived: &RangeSet) -> Result<(), Errno> {
        let left = arrived.difference(&self.data(source, arrived)?);
        self.copy(file, source, &self.data(file, &left)?)
    }

    /// Saves parts of a file in its undo log, durably, up to the end of a window.
    fn save(&self, file: &Handle, parts: &RangeSet, end: u64, log: &mut Log) -> Result<(), Errno> {
        let storage = self.apply.storage();
        let data = self.data(file, parts)?;
        let mut entries: Vec<Entry> = parts.difference(&data).iter().map(Entry::Hole).collect();
        let pieces = pieces(&data, COPY_BYTES as u64);
        for batch in batches(&pieces, self.share_of(BATCH_BYTES)) {
            log.append(storage, &std::mem::take(&mut entries))?;
            let read = parallel(batch, self.threads(), |piece| self.read(file, piece));
            entries = read.into_iter().collect::<Result<_, _>>()?;
        }
        entries.push(Entry::Saved(end));
        log.append(storage, &entries)?;
        storage.sync(&log.file)
    }

    fn read(&self, file: &Handle, piece: &Range<u64>) -> Result<Entry, Errno> {
        let mut bytes = vec![0; (piece.end - piece.start) as usize];
        let mut read = 0;
        while read < bytes.len() {
            match self
                .apply
                .storage()
                .read(file, &mut bytes[read..], piece.start + read as u64)?
            {
                0 => return Err(Errno::IO), // it was cut by somebody else
                more => read += more,
            }
        }
        Ok(Entry::Data(piece.start, bytes))
    }

    /// The directory of a patch file, and of its undo log.
    fn dir(&self, patch: &Patch) -> Result<Handle, Errno> {
        self.apply.patch_dirs.of_patch(self.apply.storage(), &patch.slot)
    }

    /// For the pieces of one file.
    fn threads(&self) -> usize {
        self.share_of(self.apply.tree.threads as u64) as usize
    }

    /// What of something one file has, while all others are worked on at the same time.
    fn share_of(&self, all: u64) -> u64 {
        let files = self.apply.record.patches.len().max(1) as u64;
        (all / files).max(1)
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

    /// Copies parts of a file to where they lie in another, in any order; on another machine by its storage, where that can.
    fn copy(&self, source: &Handle, file: &Handle, parts: &RangeSet) -> Result<(), Errno> {
        let most = if file.is_here() {
            COPY_BYTES as u64
        } else {
            WINDOW_BYTES
        };
        let copied = parallel(&pieces(parts, most), self.threads(), |piece| {
            self.copy_piece(source, file, piece.clone(), true)
        });
        copied.into_iter().collect()
    }

    /// Copies what is behind the end of a file that takes appends alone; of that nothing may be written twice, as where the storage gives up
    /// a copy half-way.
    fn append(&self, source: &Handle, file: &Handle, mut parts: RangeSet) -> Result<(), Errno> {
        // What an attempt before has appended.
        parts.remove(0, self.apply.storage().stat_handle(file)?.size);
        parts
            .iter()
            .try_for_each(|range| self.copy_piece(source, file, range, false))
    }

    fn copy_piece(&self, source: &Handle, file: &Handle, piece: Range<u64>, may_copy: bool) -> Result<(), Errno> {
        let (mut buffer, mut at) = (Vec::new(), piece.start);
        let mut copies_there = may_copy && !file.is_here();
        while at < piece.end {
            let copied = copies_there.then(|| self.apply.storage().copy_range(source, at, file, at, piece.end - at));
            let length = match copied {
                None | Some(Err(Errno::OPNOTSUPP)) => {
                    copies_there = false;
                    self.copy_here(source, file, at..piece.end, &mut buffer)?
                }
                Some(copied) => copied?,
            };
            if length == 0 {
                return Err(Errno::IO);
            }
            at += length;
            self.apply.counter.copied(length);
        }
        Ok(())
    }

    /// Reads the beginning of a range and writes it; how much that was.
    fn copy_here(&self, source: &Handle, file: &Handle, range: Range<u64>, buffer: &mut Vec<u8>) -> Result<u64, Errno> {
        let most = (range.end - range.start).min(COPY_BYTES as u64) as usize;
        buffer.resize(most, 0);
        let length = self.apply.storage().read(source, buffer, range.start)?;
        if length > 0 {
            let pieces = [IoSlice::new(&buffer[..length])];
            self.apply.storage().write(file, &pieces, range.start)?;
        }
        Ok(length as u64)
    }

    /// What of some ranges is data, and no hole. Data that holds many of them is asked for once.
    fn data(&self, file: &Handle, parts: &RangeSet) -> Result<RangeSet, Errno> {
        let (mut data, mut known) = (RangeSet::new(), 0..0);
        for range in parts {
            let mut at = range.start;
            while at < range.end {
                if known.end <= at {
                    let (start, end) = self.next_data(file, at)?.unwrap_or((u64::MAX, u64::MAX));
                    let start = start.max(at);
                    known = start..end.max(start.saturating_add(1));
                }
                let start = known.start.clamp(at, range.end);
                at = known.end.min(range.end);
                if start < at {
                    data.insert(start, at);
                } else {
                    at = range.end;
                }
            }
        }
        Ok(data)
    }

    fn next_data(&self, file: &Handle, at: u64) -> Result<Option<(u64, u64)>, Errno> {
        match self.apply.storage().next_data(file, at) {
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(Some((at, u64::MAX))),
            other => other,
        }
    }

    /// Punches what has arrived out of the patch, in whole blocks. Between the parts of a window the patch has nothing else.
    fn consume(&self, source: &Handle, arrived: &RangeSet) -> Result<(), Errno> {
        let Some(span) = arrived.span() else { return Ok(()) };
        let start = span.start.next_multiple_of(BLOCK_BYTES);
        let end = span.end / BLOCK_BYTES * BLOCK_BYTES;
        if start >= end {
            return Ok(());
        }
        match self.apply.storage().punch(source, start, end - start) {
            // The space then comes free with the whole patch file.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOSPC) => Ok(()),
            other => other,
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
}
