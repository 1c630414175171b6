//! Asking the storage for what an operation needs. Everything here blocks.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use elbow_file::{Access, Errno, Handle, Storage};

use crate::abilities::{self, Ability};
use crate::api::{Fetch, Ino, OpError};
use crate::behaviours;
use crate::clock::clock;
use crate::concurrency::THREADS_MAX;
use crate::copy_there::open_source;
use crate::execute::open_writable;
use crate::far_send;
use crate::job::Job;
use crate::look::{Looked, look_into};
use crate::model::{EntryKey, FoundXattrs, Piece, Segment, SegmentSource, install_below, install_looked};
use crate::patch_files::{dir_of_patch, patch_name};
use crate::recorder::WaitReason;
use crate::recording::reason_of;
use crate::route::{Route, open_route};
use crate::shared::{Shared, SharedState};
use crate::spill::Spilled;

/// This much is moved to the spill file at once.
const SPILL_BYTES: u64 = 4 << 20;
/// A writer that waits for room looks again after this time at the latest.
const ROOM_WAIT: Duration = Duration::from_millis(50);
/// Who reads waits for a move to end, and looks again after this time at the latest.
const MOVE_WAIT: Duration = Duration::from_millis(5);
/// So often a writer looks for room while nothing is under way that could make some.
const VAIN_WAITS_MAX: u32 = 20;
/// A name may move between the look at the model and the call; then the look is repeated.
const RETRIES: usize = 8;

impl Job {
    /// Asks the storage for what an operation needs. Blocks.
    ///
    /// # Errors
    /// The error that answers the operation.
    pub fn fetch(&self, fetch: &Fetch) -> Result<(), Errno> {
        let bytes = if let Fetch::Room(bytes) = fetch { *bytes } else { 0 };
        let fetcher = Fetcher::of(&self.shared);
        fetcher.waited((reason_of(fetch), fetch.about()), bytes, || {
            fetcher.asking(|| fetcher.fetch(fetch))
        })
    }

    /// Reads as [`Job::read`] does, from wherever the data is. Blocks.
    ///
    /// # Errors
    /// As read(2).
    pub fn read_blocking(&self, ino: Ino, offset: u64, length: usize) -> Result<Vec<u8>, Errno> {
        let fetcher = Fetcher::of(&self.shared);
        fetcher.waited((Some(WaitReason::Read), Some(ino)), length as u64, || {
            for _ in 0..RETRIES {
                match fetcher.asking(|| fetcher.read(ino, offset, length)) {
                    Err(Errno::NOENT) => {}
                    answer => return answer,
                }
            }
            Err(Errno::IO)
        })
    }

    /// Reads what somebody is going to read soon, so that it is near then. Blocks until it is, or cannot be; what goes wrong is said to who reads it.
    pub fn read_ahead(&self, ino: Ino, offset: u64, length: usize) {
        let fetcher = Fetcher::of(&self.shared);
        let _ = fetcher.asking(|| fetcher.read_ahead(ino, offset, length));
    }

    /// fsync(2) of an object: with [`Options::durable`](crate::Options::durable) it waits until everything
    /// queued so far is on the storage, else it returns at once, because durability begins at commit.
    ///
    /// # Errors
    /// The error of a background operation.
    pub fn fsync(&self, ino: Ino) -> Result<(), Errno> {
        if !self.shared.options.durable {
            return Ok(());
        }
        let fetcher = Fetcher::of(&self.shared);
        fetcher.waited((Some(WaitReason::Fsync), Some(ino)), 0, || fetcher.fsync(ino))
    }
}

/// Where a file is on the storage at this moment.
struct WayToTarget {
    route: Route,
    name: OsString,
    /// It, if it can be moved, and the directories that are looked for by name.
    objects: Vec<Ino>,
    /// Somebody else's action on one of these names is under way.
    is_changing: bool,
    /// An action of its own on its name is.
    is_its_own: bool,
}

/// Asks the storage on behalf of an operation. Blocks.
pub(crate) struct Fetcher<'a> {
    pub(crate) shared: &'a Arc<Shared>,
}

impl<'a> Fetcher<'a> {
    pub(crate) fn of(shared: &'a Arc<Shared>) -> Self {
        Self { shared }
    }
}

impl Fetcher<'_> {
    /// Does for the command what it waits for, on an object and with so many bytes, and tells it to who wants to know.
    fn waited<R>(&self, (reason, about): (Option<WaitReason>, Option<Ino>), bytes: u64, work: impl FnOnce() -> R) -> R {
        let path = || about.map(|ino| self.shared.state.lock().model.inodes.path(ino));
        self.shared
            .recording
            .waited(reason, || path().unwrap_or_default(), bytes, work)
    }

    fn fetch(&self, fetch: &Fetch) -> Result<(), Errno> {
        match *fetch {
            Fetch::List(ino) => {
                self.list(ino, THREADS_MAX)?;
                if self.shared.storage.far_end().is_some() {
                    let model = &mut self.shared.state.lock().model;
                    model.prelist.note_searched(&model.inodes, ino);
                }
                Ok(())
            }
            Fetch::Name(ino, ref name) => self.name(ino, name),
            Fetch::Attributes(ino) => self.attributes(ino),
            Fetch::Target(ino) => self.target(ino),
            Fetch::Xattrs(ino) => self.xattrs(ino),
            Fetch::Open(_) => Ok(()),
            Fetch::Room(bytes) => self.make_room(bytes),
            Fetch::Space => self.space(),
            Fetch::Ability(ref ability) => self.ability(ability),
            Fetch::FileSystemTraits => self.file_system_traits(),
            Fetch::Moves(ino) => self.moves(ino),
            Fetch::Writable(ino) => self.writable(ino),
        }
    }

    fn fsync(&self, ino: Ino) -> Result<(), Errno> {
        let drained = self.shared.drain_content(&mut |_| {});
        self.shared.state.lock().model.graph.flush = false;
        drained.map_err(|_| Errno::IO)?;
        let job_dir = self.shared.state.lock().model.inodes.job_dir();
        let synced = job_dir.map_or(Ok(()), |dir| self.shared.storage.sync_all(&dir));
        synced.inspect_err(|errno| {
            // Nothing tells of it twice, and the command may not care.
            let mut state = self.shared.state.lock();
            state.is_lost = true;
            self.shared.fail(&mut state, ino, "sync", *errno);
        })
    }

    /// Counts a question and its answer.
    fn asking<T>(&self, ask: impl FnOnce() -> T) -> T {
        self.shared.asked.fetch_add(1, Ordering::Relaxed);
        let answer = ask();
        self.shared.answered.fetch_add(1, Ordering::Relaxed);
        answer
    }

    /// Lists an old directory; if somebody is doing so already, waits for that.
    pub(crate) fn list(&self, ino: Ino, threads_max: usize) -> Result<(), Errno> {
        let mut state = self.shared.state.lock();
        loop {
            let dir = state.model.inodes.get(ino)?.dir()?;
            if dir.is_complete() || dir.is_closed() {
                return Ok(());
            }
            if state.listing.insert(ino) {
                break;
            }
            self.shared.progress.wait(&mut state);
        }
        let (route, threads) = (state.model.routes().route_dir(ino), state.pool.limit());
        if let Some(far) = self.shared.storage.far_end() {
            let ahead = state.model.prelist.ahead();
            let begun = Instant::now();
            let listed = parking_lot::MutexGuard::unlocked(&mut state, || far_send::list(far, &route, ahead));
            state.listing.remove(&ino);
            self.shared.progress.notify_all();
            let (looked, below) = listed?;
            state.pool.note_latency(begun.elapsed());
            install_looked(&mut state.model, ino, looked);
            install_below(&mut state.model, ino, below);
            return Ok(());
        }
        let listed = parking_lot::MutexGuard::unlocked(&mut state, || self.list_now(&route, threads, threads_max));
        state.listing.remove(&ino);
        self.shared.progress.notify_all();
        let (looked, took) = listed?;
        if matches!(looked, Looked::Listed(_)) {
            state.pool.note_latency(took);
        }
        install_looked(&mut state.model, ino, looked);
        Ok(())
    }

    fn list_now(&self, route: &Route, threads: usize, threads_max: usize) -> Result<(Looked, Duration), Errno> {
        let storage = &*self.shared.storage;
        let begun = Instant::now();
        let handle = open_route(storage, route)?;
        let opened = begun.elapsed();
        let (looked, took) = look_into(storage, handle, threads, threads_max)?;
        Ok((looked, took.max(opened)))
    }

    /// Looks for a name in a directory that may not be read.
    fn name(&self, ino: Ino, name: &OsStr) -> Result<(), Errno> {
        let route = self.shared.state.lock().model.routes().route_dir(ino);
        let dir = open_route(&*self.shared.storage, &route)?;
        let stat = match self.shared.storage.stat(&dir, name) {
            Err(Errno::NOENT) => None,
            found => Some(found?),
        };
        self.shared.state.lock().model.inodes.install_name(ino, name, stat);
        Ok(())
    }

    /// The directory that holds an old object, and its name there.
    fn old_name(&self, ino: Ino) -> Result<(Route, OsString), Errno> {
        let state = self.shared.state.lock();
        let inode = state.model.inodes.get(ino)?;
        let key = inode.old_name().ok_or(Errno::STALE)?;
        Ok((state.model.routes().route_dir(key.dir), key.name.to_os_string()))
    }

    fn attributes(&self, ino: Ino) -> Result<(), Errno> {
        let (route, name) = self.old_name(ino)?;
        let dir = open_route(&*self.shared.storage, &route)?;
        let stat = self.shared.storage.stat(&dir, &name)?;
        self.shared.state.lock().model.inodes.install_attributes(ino, &stat);
        Ok(())
    }

    fn target(&self, ino: Ino) -> Result<(), Errno> {
        let (route, name) = self.old_name(ino)?;
        let dir = open_route(&*self.shared.storage, &route)?;
        let target = self.shared.storage.readlink(&dir, &name)?;
        self.shared.state.lock().model.inodes.install_target(ino, target);
        Ok(())
    }

    fn xattrs(&self, ino: Ino) -> Result<(), Errno> {
        let (dir, name) = if ino == Ino::ROOT {
            (self.shared.root.clone(), OsString::from("."))
        } else {
            let (route, name) = self.old_name(ino)?;
            (open_route(&*self.shared.storage, &route)?, name)
        };
        let xattrs = read_xattrs(&*self.shared.storage, &dir, &name);
        let mut state = self.shared.state.lock();
        if matches!(xattrs, Err(Errno::OPNOTSUPP)) {
            state.model.traits.note_no_xattrs();
        }
        state.model.inodes.install_xattrs(
            ino,
            xattrs.or_else(|e| {
                if e == Errno::OPNOTSUPP {
                    Ok(FoundXattrs::default())
                } else {
                    Err(e)
                }
            })?,
        );
        Ok(())
    }

    fn space(&self) -> Result<(), Errno> {
        let space = self.shared.storage.space(&self.shared.root)?;
        self.shared.state.lock().model.space.refresh(space);
        Ok(())
    }

    /// Tries something in the job's own directory.
    fn ability(&self, ability: &Ability) -> Result<(), Errno> {
        let (job, inherited) = self.job_dir_now()?;
        let trial = abilities::probe(&*self.shared.storage, &job, ability, inherited);
        self.shared.state.lock().model.traits.learn(ability, trial)
    }

    fn file_system_traits(&self) -> Result<(), Errno> {
        let file_system_traits = self.shared.storage.file_system_traits(&self.shared.root)?;
        self.shared
            .state
            .lock()
            .model
            .traits
            .learn_file_system_traits(file_system_traits);
        Ok(())
    }

    /// Whether the storage lets an old directory be renamed.
    fn moves(&self, ino: Ino) -> Result<(), Errno> {
        let (job, _) = self.job_dir_now()?;
        let (route, name) = self.old_name(ino)?;
        let dir = open_route(&*self.shared.storage, &route)?;
        let moves = behaviours::moves(&*self.shared.storage, &job, (&dir, &name));
        self.shared.state.lock().model.inodes.dir_at_checked(ino)?.moves = Some(moves);
        Ok(())
    }

    /// Whether an old directory is in a read-only subvolume.
    fn writable(&self, ino: Ino) -> Result<(), Errno> {
        let route = self.shared.state.lock().model.routes().route_dir(ino);
        let dir = open_route(&*self.shared.storage, &route)?;
        let is_read_only = behaviours::is_read_only(&*self.shared.storage, &dir);
        self.shared.state.lock().model.inodes.dir_at_checked(ino)?.is_read_only = Some(is_read_only);
        Ok(())
    }

    /// The job's own directory, made now if it is not there yet, and the mode that a file of mode 777 has in it.
    fn job_dir_now(&self) -> Result<(Handle, u32), Errno> {
        self.look_into_root();
        let mut state = self.shared.state.lock();
        loop {
            if let Some(dir) = state.model.inodes.job_dir() {
                return Ok((dir, state.model.inodes.inherited_by_all()));
            }
            if let Some(errno) = state.model.refuse {
                return Err(errno);
            }
            if state.model.graph.stopped {
                return Err(Errno::IO);
            }
            state.model.now = clock();
            state.model.scheduler().stage_root();
            self.shared.call_worker(&mut state);
            #[cfg(test)]
            self.shared.stage_root_by_hand(&mut state);
            if state.model.inodes.job_dir().is_none() {
                self.shared.progress.wait_for(&mut state, ROOM_WAIT);
            }
        }
    }

    /// What the job's own directory inherits has to be known before it is made. A command may begin with the attributes of the root, for
    /// which nobody looks into it.
    pub(crate) fn look_into_root(&self) {
        if self.shared.state.lock().model.inodes.job_dir().is_none() {
            // Whatever keeps us from it keeps us from making something there, too, and is told then.
            let _ = self.list(Ino::ROOT, THREADS_MAX);
        }
    }

    pub(crate) fn read(&self, ino: Ino, offset: u64, length: usize) -> Result<Vec<u8>, Errno> {
        let (segments, target, original) = self.open_for_read(ino, offset, length)?;
        let mut out = Vec::with_capacity(length);
        for segment in &segments {
            let at = out.len();
            match &segment.source {
                SegmentSource::Piece(Piece::Memory(chunk)) => out.extend_from_slice(chunk.bytes()),
                SegmentSource::Piece(Piece::Zero) => out.resize(at + segment.length, 0),
                SegmentSource::Piece(Piece::Spill(spilled)) => {
                    out.resize(at + segment.length, 0);
                    spilled.read(&mut out[at..], 0).map_err(|_| Errno::IO)?;
                }
                SegmentSource::Piece(Piece::Copy(copy)) => {
                    let file = open_source(&*self.shared.storage, copy)?;
                    let read = self.read_file(Some(&file), copy.offset, segment.length, &mut out)?;
                    let now = self.shared.storage.stat_handle(&file)?;
                    if read < segment.length || !copy.source.version.is_still(&now) {
                        return Err(Errno::STALE);
                    }
                }
                SegmentSource::Target(from) => {
                    self.read_file(target.as_ref(), *from, segment.length, &mut out)?;
                }
                SegmentSource::Original(from) => {
                    // Somebody else has cut the file since its size was seen. Its bytes are nowhere any more, and zeros are not they.
                    let read = self.read_file(original.as_ref(), *from, segment.length, &mut out)?;
                    if read < segment.length {
                        return Err(Errno::STALE);
                    }
                }
            }
        }
        Ok(out)
    }

    /// What lies on the storage is read. What the far end of a connection writes is not: its orders are not kept apart from what is read beside them.
    fn read_ahead(&self, ino: Ino, offset: u64, length: usize) -> Result<(), Errno> {
        let storage = &self.shared.storage;
        let (segments, target, original) = self.open_for_read(ino, offset, length)?;
        let target = target.filter(|_| storage.far_end().is_none());
        for segment in segments {
            let (file, from) = match segment.source {
                SegmentSource::Original(from) => (&original, from),
                SegmentSource::Target(from) => (&target, from),
                SegmentSource::Piece(_) => continue,
            };
            storage.read_ahead(file.as_ref().ok_or(Errno::BADF)?, from, segment.length)?;
        }
        Ok(())
    }

    /// Appends bytes of a file, zeros for what is past its end; gives how many are its own.
    fn read_file(&self, file: Option<&Handle>, from: u64, length: usize, out: &mut Vec<u8>) -> Result<usize, Errno> {
        let at = out.len();
        out.resize(at + length, 0);
        self.shared.storage.read(file.ok_or(Errno::IO)?, &mut out[at..], from)
    }

    /// The parts of a read with the descriptors that they need.
    #[allow(clippy::type_complexity, reason = "three values that belong together for one call")]
    pub(crate) fn open_for_read(
        &self,
        ino: Ino,
        offset: u64,
        length: usize,
    ) -> Result<(Vec<Segment>, Option<Handle>, Option<Handle>), Errno> {
        let state = self.shared.state.lock();
        let segments = match state.model.inodes.segments(ino, offset, length) {
            Ok(segments) => segments,
            Err(OpError::Errno(errno)) => return Err(errno),
            Err(OpError::NeedsStorage(_)) => return Err(Errno::IO),
        };
        let content = state.model.inodes.get(ino)?.content().ok_or(Errno::INVAL)?;
        let (mut target, mut original) = (content.target.clone(), content.original.clone());
        let needs_target = target.is_none() && segments.iter().any(|s| matches!(s.source, SegmentSource::Target(_)));
        let needs_original =
            original.is_none() && segments.iter().any(|s| matches!(s.source, SegmentSource::Original(_)));
        drop(state);
        if needs_target {
            target = Some(self.open_target(ino)?);
        }
        if needs_original {
            let (route, name) = self.old_name(ino)?;
            let dir = open_route(&*self.shared.storage, &route)?;
            original = Some(self.open_original(&dir, &name, &segments)?);
        }
        self.keep_open(ino, target.clone(), original.clone());
        Ok((segments, target, original))
    }

    /// Opens what the storage has of a file by now.
    ///
    /// Nothing holds its name. So what was opened counts only if nobody has moved it meanwhile, or a directory that was looked for by name on the way,
    /// or is about to put something else there: that could have been opened instead, and would be kept, read and written to.
    fn open_target(&self, ino: Ino) -> Result<Handle, Errno> {
        let mut state = self.shared.state.lock();
        loop {
            if let Some(open) = &state.model.inodes.get(ino)?.content().ok_or(Errno::INVAL)?.target {
                return Ok(open.clone());
            }
            let way = self.way_to_target(&state, ino)?;
            if way.is_changing {
                self.shared.progress.wait_for(&mut state, MOVE_WAIT);
                continue;
            }
            let watch = state.model.graph.watches.begin(way.objects);
            let opened = parking_lot::MutexGuard::unlocked(&mut state, || {
                let dir = open_route(&*self.shared.storage, &way.route)?;
                open_writable(&*self.shared.storage, &dir, &way.name)
            });
            let has_moved = state.model.graph.watches.end(watch);
            match self.way_to_target(&state, ino) {
                // It has gone on, and its own action is about to say where.
                Ok(way) if way.is_its_own && matches!(opened, Err(Errno::NOENT)) => {
                    self.shared.progress.wait_for(&mut state, MOVE_WAIT);
                }
                Ok(way) if !has_moved && !way.is_changing => return opened,
                _ => {}
            }
        }
    }

    /// Opens an old file of which these parts are read next.
    fn open_original(&self, dir: &Handle, name: &OsStr, segments: &[Segment]) -> Result<Handle, Errno> {
        let first = segments.iter().find_map(|segment| match segment.source {
            SegmentSource::Original(from) => Some((from, segment.length)),
            _ => None,
        });
        match self.shared.storage.far_end().zip(first) {
            Some((far, (from, length))) => far.open_to_read(dir, name, from, length),
            None => self.shared.storage.open(dir, name, Access::Read),
        }
    }

    fn way_to_target(&self, state: &SharedState, ino: Ino) -> Result<WayToTarget, Errno> {
        let (inode, routes) = (state.model.inodes.get(ino)?, state.model.routes());
        if inode.is_old() {
            let (mut route, name) = (routes.route_dir(crate::model::IN_TRANSIT), patch_name(ino));
            route.names.extend(dir_of_patch(&name));
            return Ok(WayToTarget {
                route,
                name: name.to_os_string(),
                objects: Vec::new(),
                is_changing: false,
                is_its_own: false,
            });
        }
        let key = inode.placed().first().ok_or(Errno::NOENT)?;
        let by = routes.walked(key);
        let holder = |key: &EntryKey| state.model.graph.holder(key);
        let is_changing = by.iter().chain([key]).filter_map(holder).any(|holder| holder != ino);
        let is_its_own = holder(key) == Some(ino);
        let dirs = by.iter().filter_map(|key| state.model.inodes.placed_at(key));
        let at = routes.storage_name(key);
        Ok(WayToTarget {
            route: at.route,
            name: at.key.name.to_os_string(),
            objects: dirs.chain([ino]).collect(),
            is_changing,
            is_its_own,
        })
    }

    /// Keeps descriptors for the next read, as long as the command has the file open.
    fn keep_open(&self, ino: Ino, target: Option<Handle>, original: Option<Handle>) {
        let mut state = self.shared.state.lock();
        if state.files_are_closed {
            return;
        }
        let Ok(inode) = state.model.inodes.get_mut(ino) else {
            return;
        };
        if inode.opens == 0 {
            return;
        }
        let Some(content) = inode.content_mut() else { return };
        content.target = content.target.take().or(target);
        content.original = content.original.take().or(original);
    }

    /// Waits until so much written data may be taken, spilling what is in memory.
    fn make_room(&self, bytes: u64) -> Result<(), Errno> {
        let mut state = self.shared.state.lock();
        state.waiting_for_room += 1;
        let mut vain = 0;
        let answer = loop {
            if self.shared.has_room(&state, bytes) {
                break Ok(());
            }
            if let Some(errno) = state.model.refuse {
                break Err(errno);
            }
            state.model.now = clock();
            state.model.scheduler().wake_parked();
            self.shared.call_worker(&mut state);
            if self.spill_some(&mut state) {
                vain = 0;
                continue;
            }
            // What is left belongs to files without a name, which the storage never gets, and there is no more scratch space.
            vain = if state.model.graph.is_idle() { vain + 1 } else { 0 };
            if vain > VAIN_WAITS_MAX {
                break Err(Errno::NOSPC);
            }
            self.shared.progress.wait_for(&mut state, ROOM_WAIT);
        };
        state.waiting_for_room -= 1;
        answer
    }

    /// Moves the newest written data to the spill file; `false` when there is none or no room there.
    fn spill_some(&self, state: &mut parking_lot::MutexGuard<'_, SharedState>) -> bool {
        let Some(file) = self.shared.spill.clone() else {
            return false;
        };
        let Some((ino, pieces)) = state.model.newest_memory(SPILL_BYTES) else {
            return false;
        };
        let written: Vec<Spilled> = parking_lot::MutexGuard::unlocked(state, || {
            pieces
                .iter()
                .map_while(|(_, chunk)| file.write(chunk.bytes()))
                .collect()
        });
        let bytes: u64 = pieces
            .iter()
            .take(written.len())
            .map(|(range, _)| range.end - range.start)
            .sum();
        state.model.counts.spilled_bytes += bytes;
        state.model.inodes.spilled(ino, &pieces, &written);
        !written.is_empty()
    }
}

fn read_xattrs(storage: &dyn Storage, dir: &Handle, name: &OsStr) -> Result<FoundXattrs, Errno> {
    let mut found = FoundXattrs::default();
    for key in storage.list_xattrs(dir, name)? {
        match storage.get_xattr(dir, name, &key) {
            Ok(value) => drop(found.values.insert(key, value)),
            Err(Errno::NODATA) => {}
            // What may not be read has values that may not be read, and names that may.
            Err(Errno::ACCESS) => drop(found.closed.insert(key)),
            Err(errno) => return Err(errno),
        }
    }
    Ok(found)
}
