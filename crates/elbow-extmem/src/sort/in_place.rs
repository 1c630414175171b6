//! A sort that consumes its input: the same inode, one disk's worth of space, and no instant at which a record is
//! nowhere.
//!
//! ```text
//!   FILE                 the input; punched as runs become durable, then the output
//!   FILE.elbow-sort/     manifest, runs-1, runs-2; removed when FILE is complete
//! ```
//!
//! What is durable is noted in the manifest before anything that it replaces is freed. So after any end of the process
//! or the machine, [`resume`] goes on from the newest state noted: it frees again what that state does not need,
//! and does again what came after it. It refuses before a file that is not the one that it left (`known`), and runs that are not there.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use elbow_file::{Access, Errno, FileType, Handle, Storage, try_lock};
use parking_lot::Mutex;

use super::engine::{Engine, FileSource};
use super::error::{Result, SortError, TooLittleMemory, failed};
use super::files::{Files, RecordFile, Temporary, run_file_name};
use super::known;
use super::manifest::{self, Manifest, Order};
use super::memory::Memory;
use super::meter::Meter;
use super::state::{LaneTask, Pass, SortState};
use super::{Options, RecordFormat, Summary};

const SUFFIX: &str = ".elbow-sort";
const DIR_MODE: u32 = 0o700;
/// Of a directory in which everybody may remove their own things alone.
const STICKY: u32 = 0o1000;
/// Mode bits by which others than the owner may write.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// A run is formed of at most this part of the free space: it is written before its input is freed.
const FREE_SHARE: u64 = 2;

/// A file by its directory: what is asked for, and how it is called in errors.
#[derive(Clone, Debug)]
pub struct SortTarget {
    /// The directory that holds it.
    pub dir: Handle,
    /// Its name there.
    pub name: OsString,
    /// Its path, for messages.
    pub path: PathBuf,
}

impl SortTarget {
    fn side_name(&self) -> OsString {
        let mut name = self.name.clone();
        name.push(SUFFIX);
        name
    }

    fn side_path(&self) -> PathBuf {
        self.path.with_file_name(self.side_name())
    }
}

/// Sorts the records of a file in place.
///
/// At its height it takes the space of the input and of one run (about a quarter of the memory) more. When it ends
/// early, [`resume`] continues it.
///
/// # Errors
/// See [`SortError`]; before the first run is durable, the file is as it was.
pub fn sort_in_place(
    storage: &dyn Storage,
    target: &SortTarget,
    format: &RecordFormat,
    options: &Options,
    meter: &Meter,
) -> Result<Summary> {
    let memory = Memory::divide(options.memory_bytes, format, options.threads)?;
    begin(storage, target, format, options.stable, memory, meter)
}

fn begin(
    storage: &dyn Storage,
    target: &SortTarget,
    format: &RecordFormat,
    stable: bool,
    memory: Memory,
    meter: &Meter,
) -> Result<Summary> {
    let file = open_input(storage, target)?;
    let order = order(storage, target, &file, format, stable, &memory)?;
    let side = make_side(storage, target)?;
    let manifest = Manifest::create(storage, &side, &target.side_path(), order, &memory).inspect_err(|_| {
        // Nothing was begun. What cannot be removed either is used by the next sort, and in nobody's way.
        let _ = remove_side(storage, target, &side);
    })?;
    let state = SortState::Forming { formed: 0 };
    Sort {
        storage,
        target,
        file,
        side,
        memory,
        meter,
    }
    .run(manifest, state)
}

/// Continues a sort in place that ended early, whatever ended it.
///
/// # Errors
/// See [`SortError`]; what was there is still there.
pub fn resume(storage: &dyn Storage, target: &SortTarget, options: &Options, meter: &Meter) -> Result<Summary> {
    let divide = |format: &RecordFormat| Memory::divide(options.memory_bytes, format, options.threads);
    go_on(storage, target, &divide, known::check_same, meter)
}

type Check = fn(&dyn Storage, &Path, &Handle, &Manifest<'_>, &SortState) -> Result<()>;

fn go_on(
    storage: &dyn Storage,
    target: &SortTarget,
    divide: &dyn Fn(&RecordFormat) -> std::result::Result<Memory, TooLittleMemory>,
    check: Check,
    meter: &Meter,
) -> Result<Summary> {
    let path = target.side_path();
    let nothing = || SortError::NothingToResume {
        file: target.path.clone(),
        manifest: path.join(manifest::NAME),
    };
    let side = match storage.open_dir(&target.dir, &target.side_name()) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Err(nothing()),
        other => other.map_err(failed("opening", &path))?,
    };
    // It is locked before the manifest is read: another process may be writing that.
    let file = open_input(storage, target)?;
    check_side(storage, target, &side)?;
    let Some((manifest, state)) = Manifest::open(storage, &side, &path, Access::ReadWrite)? else {
        // It ended before it had begun, or when all was done but this.
        remove_side(storage, target, &side)?;
        return Err(nothing());
    };
    check(storage, &target.path, &file, &manifest, &state)?;
    let memory = divide(&manifest.order.format)?;
    check_memory(&memory, &manifest.order, &state)?;
    Sort {
        storage,
        target,
        file,
        side,
        memory,
        meter,
    }
    .run(manifest, state)
}

/// Is there a sort in place of this file that was begun and has not ended?
///
/// # Errors
/// When that cannot be found out.
pub fn is_unfinished(storage: &dyn Storage, target: &SortTarget) -> Result<bool> {
    let path = target.side_path();
    match storage.open_dir(&target.dir, &target.side_name()) {
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
        other => {
            let side = other.map_err(failed("opening", &path))?;
            Ok(Manifest::open(storage, &side, &path, Access::Read)?.is_some())
        }
    }
}

/// Fails where a sort in place of this file is under way, or was left before its end: a part of its records is in the runs
/// alone, so that whoever reads it loses them. One of another file that had the name is no reason.
///
/// # Errors
/// [`SortError::Unfinished`]; others when that cannot be found out.
pub fn refuse_unfinished(storage: &dyn Storage, target: &SortTarget) -> Result<()> {
    let path = target.side_path();
    let side = match storage.stat(&target.dir, &target.side_name()) {
        // What cannot be named or reached is not there for who sorts, either.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::ACCESS) => return Ok(()),
        side => side.map_err(failed("looking at", &path))?,
    };
    if side.kind != FileType::Dir {
        return Ok(());
    }
    if !may_have_sorted(storage, target, side.uid)? {
        return Ok(());
    }
    let opened = match storage.open_dir(&target.dir, &target.side_name()) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened.map_err(failed("opening", &path)),
    };
    let (manifest, state) = match opened.and_then(|side| Manifest::open(storage, &side, &path, Access::Read)) {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(()),
        Err(SortError::Storage {
            errno: Errno::ACCESS, ..
        }) => return Err(SortError::PerhapsUnfinished(target.path.clone())),
        Err(error) => return Err(error),
    };
    let name = (&target.dir, target.name.as_os_str(), target.path.as_path());
    match known::may_be(storage, name, &manifest, &state)? {
        true => Err(SortError::Unfinished(target.path.clone())),
        false => Ok(()),
    }
}

/// Whether who made the directory beside the file may have sorted it. In a directory like /tmp anybody can make one of that name, and who cannot write to
/// the file is not heard; elsewhere the file may have been somebody else's, or open to them, when they did.
fn may_have_sorted(storage: &dyn Storage, target: &SortTarget, maker: u32) -> Result<bool> {
    let file = storage.stat(&target.dir, &target.name);
    let file = file.map_err(failed("looking at", &target.path))?;
    if is_trusted(maker, file.uid) || file.mode & WRITABLE_BY_OTHERS != 0 {
        return Ok(true);
    }
    let parent = storage.stat_handle(&target.dir);
    let parent = parent.map_err(failed("looking at the directory of", &target.path))?;
    Ok(parent.mode & STICKY == 0)
}

/// Nobody has to be afraid of what they do to the file.
fn is_trusted(maker: u32, owner: u32) -> bool {
    [rustix::process::geteuid().as_raw(), owner, 0].contains(&maker)
}

/// Refuses a directory beside the file that somebody else has made, who could take the runs away: anybody can in a directory like /tmp.
fn check_side(storage: &dyn Storage, target: &SortTarget, side: &Handle) -> Result<()> {
    let side_path = target.side_path();
    let made = storage.stat_handle(side).map_err(failed("looking at", &side_path))?.uid;
    let file = storage.stat(&target.dir, &target.name);
    let owner = file.map_err(failed("looking at", &target.path))?.uid;
    match is_trusted(made, owner) {
        true => Ok(()),
        false => Err(SortError::ForeignSide(side_path)),
    }
}

/// Opens the file and locks it, so that two processes never sort it at once.
fn open_input(storage: &dyn Storage, target: &SortTarget) -> Result<Handle> {
    let stat = storage
        .stat(&target.dir, &target.name)
        .map_err(failed("looking at", &target.path))?;
    if stat.kind != FileType::File {
        return Err(SortError::NotAFile(target.path.clone()));
    }
    let opened = storage.open(&target.dir, &target.name, Access::ReadWrite);
    let file = opened.map_err(failed("opening", &target.path))?;
    match try_lock(&file) {
        Ok(true) => Ok(file),
        Ok(false) => Err(SortError::Busy(target.path.clone())),
        Err(errno) => Err(failed("locking", &target.path)(errno)),
    }
}

fn order(
    storage: &dyn Storage,
    target: &SortTarget,
    file: &Handle,
    format: &RecordFormat,
    stable: bool,
    memory: &Memory,
) -> Result<Order> {
    let stat = storage.stat_handle(file).map_err(failed("looking at", &target.path))?;
    let record = format.bytes() as u64;
    // Before anything is made: half a record has no place in an order.
    if !stat.size.is_multiple_of(record) {
        return Err(SortError::Truncated {
            path: target.path.clone(),
            size: stat.size,
            record,
        });
    }
    let space = storage
        .space(file)
        .map_err(failed("asking for the free space of", &target.path))?;
    let room = (space.blocks_available * space.fragment_bytes / FREE_SHARE) as usize;
    let unit = memory.unit_bytes;
    let identity = storage.identity(file).map_err(failed("looking at", &target.path))?;
    Ok(Order {
        inode: stat.ino,
        born: identity.born,
        size: stat.size,
        head: known::head(storage, file).map_err(failed("reading", &target.path))?,
        format: format.clone(),
        stable,
        // A run is written before its input is freed, so one run has to fit what is free now.
        run_bytes: memory.run_bytes.min(room / unit * unit).max(unit),
    })
}

/// Makes the directory beside the file; one that was left before anything began is used again.
fn make_side(storage: &dyn Storage, target: &SortTarget) -> Result<Handle> {
    let (name, path) = (target.side_name(), target.side_path());
    let is_new = match storage.mkdir(&target.dir, &name, DIR_MODE) {
        Err(Errno::EXIST) if is_unfinished(storage, target)? => {
            return Err(SortError::Unfinished(target.path.clone()));
        }
        Err(Errno::EXIST) => false,
        made => made.map(|()| true).map_err(failed("making", &path))?,
    };
    let side = storage.open_dir(&target.dir, &name).map_err(failed("opening", &path))?;
    // One that we have made may be another's for a server, and then nobody could go on with the sort.
    check_side(storage, target, &side).inspect_err(|_| {
        let _ = is_new.then(|| storage.rmdir(&target.dir, &name));
    })?;
    clear_side(storage, &side, &path)?;
    // Before anything is punched: a power cut that took the directory away would take the manifest and all runs along.
    storage
        .sync(&target.dir)
        .map_err(failed("syncing the directory of", &target.path))?;
    Ok(side)
}

/// Removes what a sort has beside its file, the manifest last: as long as it is there, it says how far the sort is.
fn clear_side(storage: &dyn Storage, side: &Handle, path: &Path) -> Result<()> {
    let names = [
        run_file_name(1),
        run_file_name(2),
        manifest::DRAFT.into(),
        manifest::NAME.into(),
    ];
    for name in names {
        match storage.unlink(side, &name) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed("removing", &path.join(&name))(errno)),
        }
    }
    Ok(())
}

fn remove_side(storage: &dyn Storage, target: &SortTarget, side: &Handle) -> Result<()> {
    let path = target.side_path();
    clear_side(storage, side, &path)?;
    storage
        .rmdir(&target.dir, &target.side_name())
        .map_err(failed("removing", &path))
}

/// What was begun is gone on with: runs of one length, and as many of them at once as were merged before.
fn check_memory(memory: &Memory, order: &Order, state: &SortState) -> Result<()> {
    let enough = match state {
        SortState::Forming { .. } => memory.can_form(&order.format, order.run_bytes),
        SortState::Merging(pass) => memory.can_merge(pass.lanes.len().max(1), pass.fan_in.min(pass.runs())),
        SortState::Finishing => Ok(()),
    };
    enough.map_err(|needed| {
        SortError::Refused(format!(
            "{} bytes of memory are too few to go on with a sort that was begun with more: at least {needed} are needed",
            memory.budget_bytes()
        ))
    })
}

/// One sort in place, new or resumed.
struct Sort<'a> {
    storage: &'a dyn Storage,
    target: &'a SortTarget,
    file: Handle,
    side: Handle,
    memory: Memory,
    meter: &'a Meter,
}

impl Sort<'_> {
    fn run(&self, manifest: Manifest<'_>, state: SortState) -> Result<Summary> {
        let Order {
            format,
            stable,
            run_bytes,
            size,
            ..
        } = manifest.order.clone();
        let runs = size.div_ceil(run_bytes as u64);
        let passes = Pass::count(runs, self.memory.fan_in_max);
        let done = done(&state, size, passes, self.memory.fan_in_max);
        self.meter.resume(size, size * (1 + passes), done);
        let places = runs.min(self.memory.fan_in_max as u64) * self.memory.lanes_max() as u64;
        let temporary = Temporary::Named(self.side.clone(), self.target.side_path(), size, places);
        let output = Some((self.file.clone(), self.target.path.clone()));
        let mut engine = Engine {
            storage: self.storage,
            format: &format,
            stable,
            memory: self.memory,
            run_bytes,
            files: Files::new(self.storage, output, temporary),
            stream: None,
            manifest: None,
            freed: manifest.mark.freed,
            meter: self.meter,
            unsynced: Mutex::default(),
        };
        // Both before anything is freed.
        for file in state.holding() {
            engine.files.find(file)?;
        }
        known::check_content(self.storage, &self.target.path, &engine, &manifest, &state)?;
        engine.manifest = Some(Mutex::new(manifest));
        engine.free_again(&state)?;
        let mut source = FileSource {
            file: RecordFile::new(self.storage, self.file.clone(), self.target.path.clone()),
            at: if let SortState::Forming { formed } = &state {
                *formed
            } else {
                size
            },
            end: size,
        };
        engine.run(state, &mut source)?;
        drop(engine);
        // After the engine has ended: what it has open there would keep its name on NFS.
        remove_side(self.storage, self.target, &self.side)?;
        Ok(Summary {
            records: size / format.bytes() as u64,
            bytes: size,
            runs,
            passes,
        })
    }
}

/// Bytes of all passes that are done in a state.
fn done(state: &SortState, size: u64, passes: u64, fan_in_max: usize) -> u64 {
    match state {
        SortState::Forming { formed } => *formed,
        SortState::Merging(pass) => {
            let before = passes.saturating_sub(Pass::count(pass.runs() as u64, fan_in_max));
            let merged = pass.bounds[(pass.merged * pass.fan_in).min(pass.runs())];
            let left: u64 = pass.lanes.iter().map(LaneTask::left_bytes).sum();
            // A group without lanes was not begun; one with lanes counts by what is left of them.
            let begun = if pass.lanes.is_empty() {
                0
            } else {
                group_bytes(pass).saturating_sub(left)
            };
            size * (1 + before) + merged + begun
        }
        SortState::Finishing => size * (1 + passes),
    }
}

fn group_bytes(pass: &Pass) -> u64 {
    let bounds = pass.group(pass.merged.min(pass.groups() - 1));
    bounds[bounds.len() - 1] - bounds[0]
}

/// The path of the directory beside a file that is sorted in place: there as long as the sort is not finished.
#[must_use]
pub fn side_directory(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(SUFFIX);
    file.with_file_name(name)
}

#[cfg(test)]
mod tests;
