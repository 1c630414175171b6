//! Saving: the command has succeeded, and the storage does not take what it made, for want of room or another reason. What the storage lacks goes elsewhere, and the rest of
//! the job is kept where it is; [`restore`](crate::restore()) brings the two together.
//!
//! ```text
//!   new objects     those that are not where they belong: whole; the others: what they lack
//!   old objects     what their patch files lack
//!   record          of the rest, as if all of that were staged
//!   then            what is staged is made durable and kept (`keep`); a job without a directory of its own is rolled back
//! ```
//!
//! A job that dies before it is marked as kept is an ordinary dead one, whatever was saved: nobody knows whether the rest is durable. Where that is known, or
//! the connection is gone, and only the marking is refused, what was saved gets a mark instead (`SavedDir::note_left`), and the recovery that finds the job
//! marks it as kept.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use elbow_file::{Errno, FileType, Handle, ShowName};

use super::draft;
use super::record::Record;
use super::saved::{Container, Content, Object, PIECE_BYTES_MAX, PatchFile, Piece, Position, Saved, SavedDir, Stored};
use super::watch::Hook;
use crate::action::{NewAttrs, Node};
use crate::api::Ino;
use crate::clock::clock;
use crate::fetch::Fetcher;
use crate::model::{self, Body, EntryKey, Inode, Model, SegmentSource};
use crate::options::Publish;
use crate::patch_files::patch_name;
use crate::recorder::EndStep;
use crate::report::{Cause, DeferredError, Kept};
use crate::root_id::RootId;
use crate::shared::Shared;
use crate::step_counter::StepCounter;

/// What is to be saved, with the places of its bytes in the job.
struct Draft {
    saved: Saved,
    /// In the order of the objects, and then of the patches.
    bytes: Vec<(Ino, Vec<Stretch>)>,
}

/// A range of a file that is to be saved.
#[derive(Clone, Copy)]
struct Stretch {
    start: u64,
    end: u64,
    is_zero: bool,
}

/// Why nothing was saved in a place.
enum NotSaved {
    /// A file cannot be read back, and so be saved nowhere: what it is a copy of is not what it was.
    Unread(Ino, Errno),
    Refused(std::io::Error),
}

impl From<std::io::Error> for NotSaved {
    fn from(error: std::io::Error) -> Self {
        Self::Refused(error)
    }
}

/// What became of the rest of a job of which a part was saved.
enum Marking {
    /// It is marked as kept; or nothing of it was there.
    Done,
    /// `is_safe`: what the storage has taken is there nevertheless.
    Refused { errno: Errno, is_safe: bool },
}

impl Shared {
    /// Saves what the storage does not take and keeps the rest, or says what was refused. With `was_staged` all of it was on the storage, and its record may be.
    ///
    /// # Errors
    /// Then it is an ordinary job still: what could not be saved, in addition to the cause.
    pub(super) fn save(
        self: &Arc<Self>,
        cause: &Cause,
        was_staged: bool,
        progress: &mut Hook<'_>,
    ) -> Result<Kept, Vec<DeferredError>> {
        let (was_told, was_misled) = {
            let model = &self.state.lock().model;
            (model.was_refused.get(), model.was_misled.get())
        };
        if was_misled || was_told && !cause.may_pass() {
            // Without the answers that the command got it would have done something else.
            return Err(Vec::new());
        }
        self.settle_names(progress);
        self.stop(progress);
        if self.close_files() {
            return Err(Vec::new());
        }
        let draft = Placing::of(&self.state.lock().model).draft_saved(self.home.clone(), &self.options.command);
        let mut refused = Vec::new();
        for place in self.options.save.iter().take_while(|_| !self.is_interrupted()) {
            let counter = StepCounter::of(draft.bytes.len(), draft.total_bytes());
            let write = || self.write_saved(place, &draft, &counter);
            let dir = match self.watched(progress, EndStep::Save, &counter, write) {
                Ok(dir) => dir,
                Err(_) if self.is_interrupted() => break,
                // What it is a copy of has changed, and that was told.
                Err(NotSaved::Unread(_, Errno::STALE)) if cause.is_stale() => break,
                Err(NotSaved::Unread(ino, errno)) => {
                    let path = self.state.lock().model.inodes.path(ino);
                    refused.push(not_done("read back", &path, errno));
                    break;
                }
                Err(NotSaved::Refused(error)) => {
                    let errno = error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
                    refused.push(not_done(SAVE_IN, place, errno));
                    continue;
                }
            };
            let path = dir.path.clone();
            let is_all_saved = draft.saved.is_all;
            let kept = || Kept {
                path: self.path.join(&*self.staging_name),
                is_whole: true,
                missing: self.state.lock().model.inodes.missing(),
                saved: Some(path.clone()),
                is_all_saved,
            };
            return match self.keep_beside(cause, &path, progress) {
                Marking::Done => Ok(kept()),
                // Who finds it finds what was saved, too, and marks it.
                Marking::Refused { is_safe: true, .. } if !was_staged && dir.note_left().is_ok() => Ok(kept()),
                Marking::Refused { errno, .. } => {
                    let tried = match errno {
                        Errno::NOENT => "find the hidden directory of the job, which somebody has removed, in",
                        _ => "keep what is stored in",
                    };
                    refused.push(not_done(tried, &self.path, errno));
                    // Without what is on the storage it is of no use, and that is rolled back now.
                    let _ = dir.remove();
                    Err(refused)
                }
            };
        }
        Err(refused)
    }

    /// Keeps what the storage has of the job. What it does not make durable is not there.
    fn keep_beside(self: &Arc<Self>, cause: &Cause, saved: &Path, progress: &mut Hook<'_>) -> Marking {
        let Some(job) = self.state.lock().model.inodes.job_dir() else {
            // What cannot be rolled back is an empty directory, which a recovery removes.
            let _ = self.undo(progress);
            return Marking::Done;
        };
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let why = format!("what could not be stored is on {host} in {}: {cause}", saved.shown());
        // Before anything else is written, because nothing tells of an error twice.
        let synced = self.storage.sync_all(&job);
        match synced.and_then(|()| self.mark_kept_in_part(&Cause::Storage(why))) {
            Ok(()) => Marking::Done,
            Err(errno) => Marking::Refused {
                errno,
                // What was published eagerly cannot be hidden by who finds it.
                is_safe: self.options.publish == Publish::Staged
                    && errno != Errno::NOENT // its directory is gone, and nobody finds it there
                    && (synced.is_ok() || self.is_cut_off(&job)),
            },
        }
    }

    /// The connection to the storage is gone, so that a sync says nothing of what the storage has. A file system of this machine that answers nothing any more
    /// may have lost what it had taken.
    fn is_cut_off(&self, job: &Handle) -> bool {
        // The far end of a connection rolls back what has not committed when it ends: nothing would be there to be gone on with.
        if self.storage.far_end().is_some() {
            return false;
        }
        let own_ids = self.state.lock().model.traits.has_own_ids();
        [job, &self.root].iter().all(|dir| match self.storage.list(dir) {
            Err(
                Errno::NOTCONN
                | Errno::CONNABORTED
                | Errno::CONNRESET
                | Errno::HOSTDOWN
                | Errno::HOSTUNREACH
                | Errno::SHUTDOWN,
            ) => true,
            Err(Errno::IO | Errno::TIMEDOUT | Errno::STALE) => !own_ids,
            _ => false,
        })
    }

    fn is_interrupted(&self) -> bool {
        self.state.lock().is_interrupted
    }

    fn write_saved(self: &Arc<Self>, place: &Path, draft: &Draft, counter: &StepCounter) -> Result<SavedDir, NotSaved> {
        let mut dir = SavedDir::create(place, &self.staging_name)?;
        let written = draft.bytes.iter().map(|(ino, stretches)| {
            let pieces = self.write_stretches(&mut dir, *ino, stretches, counter);
            counter.step();
            pieces
        });
        let written: Result<Vec<Vec<Piece>>, NotSaved> = written.collect();
        let finished = written.and_then(|pieces| Ok(dir.finish(&draft.with(pieces))?));
        match finished {
            Ok(()) => Ok(dir),
            Err(error) => {
                // Nobody takes it for a whole one, and the next who saves something there removes it.
                let _ = dir.remove();
                Err(error)
            }
        }
    }

    fn write_stretches(
        self: &Arc<Self>,
        dir: &mut SavedDir,
        ino: Ino,
        stretches: &[Stretch],
        counter: &StepCounter,
    ) -> Result<Vec<Piece>, NotSaved> {
        let mut pieces = Vec::new();
        for stretch in stretches {
            let (mut start, end) = (stretch.start, stretch.end);
            if stretch.is_zero {
                let length = end - start;
                pieces.push(Piece {
                    start,
                    length,
                    data: None,
                });
                continue;
            }
            while start < end {
                if self.is_interrupted() {
                    return Err(NotSaved::Unread(ino, Errno::INTR));
                }
                let length = (end - start).min(PIECE_BYTES_MAX);
                let read = Fetcher::of(self).read(ino, start, length as usize);
                let bytes = read.map_err(|errno| NotSaved::Unread(ino, errno))?;
                let data = Some(dir.put(&bytes)?);
                pieces.push(Piece { start, length, data });
                counter.copied(length);
                start += length;
            }
        }
        Ok(pieces)
    }
}

const SAVE_IN: &str = "save what was not stored in";

fn not_done(tried: &'static str, path: &Path, errno: Errno) -> DeferredError {
    let now = clock();
    DeferredError {
        operation: tried.into(),
        path: path.to_owned(),
        errno: errno.raw_os_error(),
        unix_seconds: now.seconds as f64 + f64::from(now.nanoseconds) / 1e9,
    }
}

impl Draft {
    fn total_bytes(&self) -> u64 {
        let all = self.bytes.iter().flat_map(|(_, stretches)| stretches);
        let data = all.filter(|stretch| !stretch.is_zero);
        data.map(|stretch| stretch.end - stretch.start).sum()
    }

    /// With the places of the bytes as they were written.
    fn with(&self, pieces: Vec<Vec<Piece>>) -> Saved {
        let mut saved = self.saved.clone();
        let objects = saved.objects.iter_mut().map(|object| &mut object.content);
        let all = objects.chain(saved.patches.iter_mut().map(|patch| &mut patch.content));
        for (content, pieces) in all.zip(pieces) {
            content.pieces = pieces;
        }
        saved
    }
}

impl Placing<'_> {
    /// All that is to be saved, before its bytes are written.
    fn draft_saved(&self, home: RootId, command: &[OsString]) -> Draft {
        let mut draft = Draft {
            saved: Saved {
                job: self.model.config.staging_name.to_os_string(),
                home,
                command: command.to_vec(),
                is_all: self.model.inodes.job_dir().is_none(),
                keeps_modes: self.model.traits.keeps_modes(),
                containers: self.containers(),
                stale: self.stale(),
                objects: Vec::new(),
                patches: Vec::new(),
                stored: self.stored(),
                stored_patches: self.stored_patches(),
                record: Record::default(),
            },
            bytes: Vec::new(),
        };
        let mut objects = self.objects();
        objects.sort_by_cached_key(|(ino, object)| {
            let depth = object.at.path.components().count();
            (
                !self.model.inodes.at(*ino).is_dir(),
                depth,
                object.at.container.clone(),
                object.at.path.clone(),
            )
        });
        for (ino, object) in objects {
            draft.bytes.push((ino, self.stretches(ino, object.is_made)));
            draft.saved.objects.push(object);
        }
        for (ino, patch) in self.saved_patches() {
            draft.bytes.push((ino, self.stretches(ino, true)));
            draft.saved.patches.push(patch);
        }
        draft.saved.record = self.record_of_saved();
        draft
    }

    /// What is to be saved of the content of a file.
    fn stretches(&self, ino: Ino, is_made: bool) -> Vec<Stretch> {
        let inode = self.model.inodes.at(ino);
        let Some(content) = inode.content() else {
            return Vec::new();
        };
        if is_made {
            let dirty = content.dirty.iter().map(|(range, piece)| Stretch {
                start: range.start,
                end: range.end,
                is_zero: matches!(piece, model::Piece::Zero),
            });
            return dirty.collect();
        }
        let mut at = 0;
        let all = content.segments(0, inode.size).into_iter().map(|segment| {
            let start = at;
            at += segment.length as u64;
            Stretch {
                start,
                end: at,
                is_zero: matches!(segment.source, SegmentSource::Piece(model::Piece::Zero)),
            }
        });
        // A file that is made anew has holes where nothing is written.
        all.filter(|stretch| !stretch.is_zero).collect()
    }

    fn saved_patches(&self) -> Vec<(Ino, PatchFile)> {
        let is_changed = |ino: Ino, inode: &Inode| {
            let is_dirty = inode.content().is_some_and(|content| !content.dirty.is_empty());
            inode.is_old() && is_dirty && (self.model.inodes.is_alive(ino) || self.model.inodes.has_unknown_names(ino))
        };
        let changed = self.model.inodes.all().filter(|(ino, inode)| is_changed(*ino, inode));
        let patch = |(ino, inode): (Ino, &Inode)| {
            let patch = PatchFile {
                slot: patch_name(ino).to_os_string(),
                is_made: inode.content().is_some_and(|content| content.patch_made),
                content: Content::default(),
            };
            (ino, patch)
        };
        changed.map(patch).collect()
    }

    fn stored_patches(&self) -> Vec<(OsString, u64)> {
        let olds = self
            .model
            .inodes
            .all()
            .filter(|(ino, inode)| inode.is_old() && self.model.inodes.is_alive(*ino));
        let written = olds.filter_map(|(ino, inode)| Some((ino, inode.content()?.written.span()?.end)));
        written
            .map(|(ino, end)| (patch_name(ino).to_os_string(), end))
            .collect()
    }

    /// The record of the rest, when all that is saved is staged.
    fn record_of_saved(&self) -> Record {
        // What was published eagerly is hidden when the job is kept.
        let mut record = draft::draft(self.model, true);
        let olds = self.model.inodes.all().filter(|(_, inode)| inode.is_old());
        let mut contents: HashMap<_, _> = olds
            .filter_map(|(ino, inode)| Some((patch_name(ino), inode.content()?)))
            .collect();
        for patch in &mut record.patches {
            if let Some(content) = contents.remove(&*patch.slot) {
                (patch.written, patch.zeroed) = content.patched_when_stored();
            }
        }
        let staged = self.used.iter().filter(|dir| **dir != Ino::ROOT);
        record.staged.extend(staged.map(|dir| self.model.inodes.path(*dir)));
        record.staged.sort();
        record.staged.dedup();
        record.keeps = true;
        record
    }
}

/// Where new objects are to be, and which of them are there.
struct Placing<'a> {
    model: &'a Model,
    /// New directories, and whether they are in their place with all above them.
    settled: HashMap<Ino, bool>,
    /// Old directories in whose staging directories something is to be.
    used: BTreeSet<Ino>,
    /// New directories that stay open until the commit.
    awaiting: HashSet<Ino>,
}

impl<'a> Placing<'a> {
    fn of(model: &'a Model) -> Self {
        let mut placing = Self {
            model,
            settled: HashMap::new(),
            used: BTreeSet::new(),
            awaiting: model.inodes.awaiting_old(),
        };
        for (ino, inode) in model.inodes.all() {
            if !inode.is_old() && model.inodes.is_alive(ino) {
                if inode.is_dir() {
                    placing.settle(ino);
                }
                let holders = inode.names().iter().map(|key| key.dir);
                placing
                    .used
                    .extend(holders.filter(|dir| model.inodes.at(*dir).is_old()));
            }
        }
        placing
    }

    /// Follows a directory up to one that is known, or old.
    fn settle(&mut self, ino: Ino) {
        let mut way = Vec::new();
        let mut at = ino;
        let mut above = loop {
            if self.model.inodes.at(at).is_old() {
                break true;
            }
            if let Some(known) = self.settled.get(&at) {
                break *known;
            }
            way.push(at);
            at = self.model.inodes.at(at).names()[0].dir;
        };
        for ino in way.into_iter().rev() {
            let inode = self.model.inodes.at(ino);
            above &= inode.placed().first() == inode.names().first();
            self.settled.insert(ino, above);
        }
    }

    fn is_there(&self, inode: &Inode, key: &EntryKey) -> bool {
        let above = self.settled.get(&key.dir).copied();
        inode.placed().contains(key) && above.unwrap_or_else(|| self.model.inodes.at(key.dir).is_old())
    }

    fn position(&self, key: &EntryKey) -> Position {
        let mut names = vec![key.name.clone()];
        let mut at = key.dir;
        while !self.model.inodes.at(at).is_old() {
            let above = &self.model.inodes.at(at).names()[0];
            names.push(above.name.clone());
            at = above.dir;
        }
        Position {
            container: self.model.inodes.old_path(at),
            path: names.iter().rev().map(|name| &**name).collect(),
        }
    }

    /// New objects that are not as they should be. Directories are listed in any case: what is made in them changes their times.
    fn objects(&self) -> Vec<(Ino, Object)> {
        let all = self
            .model
            .inodes
            .all()
            .filter(|(ino, inode)| !inode.is_old() && self.model.inodes.is_alive(*ino));
        let wanting = all.filter(|(_, inode)| {
            inode.is_dir() || inode.has_work(true) || inode.names().iter().any(|key| !self.is_there(inode, key))
        });
        wanting.map(|(ino, inode)| (ino, self.object(ino, inode))).collect()
    }

    /// Names that the storage has in new directories of what has another name by now, or none: they would be published with these.
    fn stale(&self) -> Vec<Position> {
        let settled = self.settled.iter().filter(|(_, is_there)| **is_there);
        let placed = settled.flat_map(|(dir, _)| {
            let placed = self.model.inodes.dir_at(*dir).placed().iter();
            placed.map(move |(name, ino)| (EntryKey::new(*dir, name), *ino))
        });
        let stale = placed.filter(|(key, ino)| !self.model.inodes.at(*ino).names().contains(key));
        stale.map(|(key, _)| self.position(&key)).collect()
    }

    /// New objects that are where they should be, apart from directories.
    fn stored(&self) -> Vec<Stored> {
        let news = self
            .model
            .inodes
            .all()
            .filter(|(ino, inode)| !inode.is_old() && self.model.inodes.is_alive(*ino));
        let others = news.filter(|(_, inode)| !inode.is_dir());
        let names = others.flat_map(|(_, inode)| inode.names().iter().map(move |key| (inode, key)));
        let there = names.filter(|(inode, key)| self.is_there(inode, key));
        let stored = |(inode, key): (&Inode, &EntryKey)| Stored {
            at: self.position(key),
            kind: inode.kind,
            size: inode.content().map_or(0, model::Content::counted),
        };
        there.map(stored).collect()
    }

    fn object(&self, ino: Ino, inode: &Inode) -> Object {
        let first = inode.names().iter().find(|key| self.is_there(inode, key));
        let at = first.unwrap_or(&inode.names()[0]);
        let missing = inode
            .names()
            .iter()
            .filter(|key| *key != at && !self.is_there(inode, key));
        Object {
            at: self.position(at),
            is_made: first.is_some(),
            links: missing.map(|key| self.position(key)).collect(),
            node: node_of(inode),
            attrs: self.attributes(ino, inode, at, first.is_some()),
            content: content_of(inode, first.is_some()),
        }
    }

    fn attributes(&self, ino: Ino, inode: &Inode, at: &EntryKey, is_made: bool) -> NewAttrs {
        let is_link = inode.kind == FileType::Symlink;
        // They are not its own there, but those of what it points to.
        if is_link && self.model.traits.has_no_link_attributes() {
            return NewAttrs::default();
        }
        let gone = inode.dirty_xattrs.iter().map(|key| (key.clone(), None));
        let mut xattrs: Vec<_> = gone.collect();
        let values = inode.xattrs.iter().flat_map(|xattrs| xattrs.iter());
        for (key, value) in values {
            xattrs.retain(|(other, _)| other != key);
            xattrs.push((key.clone(), Some(value.clone())));
        }
        NewAttrs {
            owner: (inode.dirty.owner || !is_made && !self.is_given(inode, at)).then_some((inode.uid, inode.gid)),
            mode: (!is_link).then(|| inode.staged_mode(self.awaiting.contains(&ino))),
            xattrs,
            times: Some((inode.atime, inode.mtime)),
        }
    }

    /// What is created there belongs to whom it should, whatever number the storage shows for that.
    fn is_given(&self, inode: &Inode, at: &EntryKey) -> bool {
        let group = self.model.inodes.gives(self.container(at.dir)).group;
        (inode.uid, inode.gid) == (self.model.config.own_uid, group.unwrap_or(self.model.config.own_gid))
    }

    /// The old directory that a directory is staged for.
    fn container(&self, dir: Ino) -> Ino {
        let mut at = dir;
        while !self.model.inodes.at(at).is_old() {
            at = self.model.inodes.at(at).names()[0].dir;
        }
        at
    }

    /// The root first: the job's own directory is made with its staging directory.
    fn containers(&self) -> Vec<Container> {
        let dirs = [Ino::ROOT].into_iter().chain(self.used.iter().copied());
        let mut containers: Vec<Container> = dirs
            .map(|ino| Container {
                path: self.model.inodes.old_path(ino),
                opened: self.model.inodes.opened_staging(ino),
            })
            .collect();
        containers.sort_by(|a, b| a.path.cmp(&b.path));
        containers.dedup();
        containers
    }
}

fn node_of(inode: &Inode) -> Node {
    match &inode.body {
        Body::Dir(_) => Node::Dir,
        Body::File(_) => Node::File,
        Body::Symlink(target) => Node::Symlink(target.clone().unwrap_or_default()),
        Body::Special => Node::Special(inode.kind, inode.rdev),
    }
}

/// What is to be done to a file beside its pieces.
fn content_of(inode: &Inode, is_made: bool) -> Content {
    let Some(content) = inode.content() else {
        return Content::default();
    };
    Content {
        cut: content.cut_when_stored().filter(|_| is_made),
        pieces: Vec::new(),
        size: (!is_made || content.needs_fill(inode.size, true)).then_some(inode.size),
    }
}
