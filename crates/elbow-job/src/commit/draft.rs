//! From the model to the commit record, and to the list of changes that people see.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use elbow_file::FileType;

use super::check::remembered;
use super::record::{
    Attributes, Departure, ObservedState, OriginalPaths, Patch, Placement, PlacementSource, Record, Replaced, Slot,
};
use super::waiting::{slots_in, waiting_dir};
use crate::action::NewAttrs;
use crate::api::Ino;
use crate::job::Job;
use crate::model::{EntryKey, Inode, Model, Staging};
use crate::patch_files::patch_name;
use crate::report::{Change, ChangeKind};
use crate::staging::{parked_name, touch_name};

/// What a write of somebody without special rights takes from a file.
pub(super) const SET_IDS: u32 = 0o6000;

/// The record of everything that the storage does not have under its own name yet.
///
/// `hidden`: what was published eagerly is in staging directories by now.
pub(super) fn draft(model: &Model, hidden: bool) -> Record {
    let mut draft = Draft {
        model,
        hidden,
        record: Record::default(),
        before: OriginalPaths::default(),
        new_dirs: HashSet::new(),
        replaced: HashMap::new(),
        others_dirs: Vec::new(),
        waited_in: BTreeSet::new(),
        slots: 0,
    };
    for (ino, inode) in model.inodes.all() {
        match (inode.is_old(), model.inodes.is_alive(ino)) {
            (true, true) => draft.old(ino, inode),
            (true, false) if model.inodes.has_unknown_names(ino) && is_changed(inode) => draft.orphan(ino, inode),
            (true, false) => draft.removed(inode),
            (false, true) => draft.new_names(inode),
            (false, false) => {}
        }
        draft.staging(ino, inode);
    }
    draft.directories_that_hold_old_objects();
    draft.directories_that_something_waits_in();
    draft.finish()
}

fn path_of(model: &Model, key: &EntryKey) -> PathBuf {
    model.inodes.path(key.dir).join(&*key.name)
}

fn old_path_of(model: &Model, key: &EntryKey) -> PathBuf {
    model.inodes.old_path(key.dir).join(&*key.name)
}

fn is_changed(inode: &Inode) -> bool {
    let content_changed = inode.content().is_some_and(|content| content.changed());
    inode.dirty.any() || !inode.dirty_xattrs.is_empty() || content_changed
}

fn seen(inode: &Inode) -> Option<ObservedState> {
    inode.old.as_ref()?.seen.as_ref().map(ObservedState::of)
}

/// Will the placement of another object take this name from a file in one step?
fn is_replaced(model: &Model, key: &EntryKey) -> bool {
    let Some(other) = model.inodes.dir_at(key.dir).entries().get(&key.name) else {
        return false;
    };
    let other = model.inodes.at(*other);
    let moved_here = !other.is_old() || other.names().first().is_some_and(|first| first == key) && !keeps_a_name(other);
    !other.is_dir() && moved_here
}

/// One of the original names is still a name.
fn keeps_a_name(inode: &Inode) -> bool {
    inode
        .old
        .as_ref()
        .is_some_and(|old| old.names().iter().any(|key| inode.names().contains(key)))
}

/// A record in the making.
struct Draft<'a> {
    model: &'a Model,
    hidden: bool,
    record: Record,
    before: OriginalPaths,
    /// New directories whose attributes are set at the end.
    new_dirs: HashSet<PathBuf>,
    /// Names (as they will be) whose old object gives way to another in one step, and what it was.
    replaced: HashMap<PathBuf, Option<ObservedState>>,
    /// Directories of somebody else's that have a new time.
    others_dirs: Vec<PathBuf>,
    /// Old directories that an object passes through on its way to another.
    waited_in: BTreeSet<Ino>,
    /// Hidden names given out so far.
    slots: u64,
}

impl Draft<'_> {
    fn finish(mut self) -> Record {
        for placement in &mut self.record.placements {
            if let Some(seen) = self.replaced.remove(&placement.to) {
                self.slots += 1;
                let spare = parked_name(&self.model.config.staging_name, 'r', self.slots);
                // What has no container of its own for it leaves it beside itself.
                let beside = match &placement.from {
                    PlacementSource::Slot(Slot::Beside(_)) => placement.to.parent(),
                    PlacementSource::Slot(Slot::At(dir, _)) => Some(dir.as_path()),
                    PlacementSource::Slot(Slot::InJob(_)) | PlacementSource::Staged => None,
                };
                self.record
                    .parked
                    .extend(beside.map(|dir| (dir.to_owned(), spare.clone())));
                placement.replaced = Some(Replaced { seen, spare });
            }
        }
        self.touch_others_dirs();
        let mut record = self.record;
        record
            .departures
            .sort_by_key(|departure| std::cmp::Reverse(departure.path.components().count()));
        record
            .placements
            .sort_by_key(|placement| placement.to.components().count());
        record.staged.sort();
        record.staged.dedup();
        record.expected = remembered(self.model, self.hidden);
        record.before = self.before;
        record
    }

    /// Only who owns a directory sets its time. One in which nothing changes in the end, because what was made was removed again,
    /// gets it by a name that comes and goes.
    fn touch_others_dirs(&mut self) {
        let changed_above = |path: &'_ Path| path.parent().map(Path::to_owned);
        let mut changed: HashSet<PathBuf> = self.record.staged.iter().cloned().collect();
        changed.extend(self.record.parked.iter().map(|(dir, _)| dir.clone()));
        changed.extend(
            self.record
                .placements
                .iter()
                .filter_map(|placement| changed_above(&placement.to)),
        );
        changed.extend(self.record.links.iter().filter_map(|(_, to)| changed_above(to)));
        let name = touch_name(&self.model.config.staging_name);
        let unchanged = self.others_dirs.drain(..).filter(|dir| !changed.contains(dir));
        self.record.parked.extend(unchanged.map(|dir| (dir, name.clone())));
    }

    fn parking(&mut self, kind: char) -> OsString {
        self.slots += 1;
        parked_name(&self.model.config.staging_name, kind, self.slots)
    }

    fn place(&mut self, to: &EntryKey, from: PlacementSource, is_locked: bool) {
        let path = path_of(self.model, to);
        if self.model.inodes.at(to.dir).is_old() {
            self.before.names.insert(path.clone(), old_path_of(self.model, to));
        }
        self.record.placements.push(Placement {
            to: path,
            from,
            replaced: None,
            is_locked,
        });
    }

    fn new_names(&mut self, inode: &Inode) {
        for key in inode.names() {
            let is_visible = self.model.routes().is_visible(key);
            if self.model.inodes.at(key.dir).is_old() && (self.hidden || !is_visible) {
                self.place(key, PlacementSource::Staged, inode.is_locked());
                if is_visible {
                    self.staged(key.dir);
                }
                if inode.is_locked() {
                    self.attributes_of_new_dir(inode, path_of(self.model, key));
                }
            }
        }
    }

    /// An old object that goes: by itself, or covered by the directory above it that goes too.
    fn removed(&mut self, inode: &Inode) {
        for key in inode.old.as_ref().expect("an old object").names() {
            if !self.model.inodes.is_alive(key.dir) {
                continue;
            }
            if !inode.is_dir() && is_replaced(self.model, key) {
                self.replaced.insert(path_of(self.model, key), seen(inode));
            } else {
                self.remove(inode, key);
            }
        }
    }

    /// One name of an old object goes, and nothing takes it at once.
    fn remove(&mut self, inode: &Inode, key: &EntryKey) {
        let slot = self.parking('d');
        self.record.parked.push((self.model.inodes.path(key.dir), slot.clone()));
        self.record.departures.push(Departure {
            path: old_path_of(self.model, key),
            slot: Slot::Beside(slot),
            seen: seen(inode),
            is_dead: true,
        });
    }

    /// An old file without a name in the job that lives on under names that the job never saw: it is changed in
    /// the job's own directory, and goes with it.
    fn orphan(&mut self, ino: Ino, inode: &Inode) {
        let before = &inode.old.as_ref().expect("an old object").names();
        let (slot, path) = match self.model.inodes.is_foreign(before[0].dir) {
            true => {
                let (slot, _) = self.wait(before[0].dir, before[0].dir);
                let (dir, name) = self.record.parked.last().expect("it waits there");
                (slot, dir.join(name))
            }
            false => {
                let slot = OsString::from(format!("m{}", ino.0));
                let path = PathBuf::from(&*self.model.config.staging_name).join(&slot);
                (Slot::InJob(slot), path)
            }
        };
        self.record.departures.push(Departure {
            path: old_path_of(self.model, &before[0]),
            slot,
            seen: seen(inode),
            is_dead: false,
        });
        // Those in directories that go are gone with them.
        for key in before[1..].iter().filter(|key| self.model.inodes.is_alive(key.dir)) {
            self.remove(inode, key);
        }
        self.content(ino, inode, path.clone());
        self.attributes(ino, inode, path);
    }

    fn old(&mut self, ino: Ino, inode: &Inode) {
        if ino != Ino::ROOT {
            self.names(ino, inode);
        }
        self.content(ino, inode, self.model.inodes.path(ino));
        self.attributes(ino, inode, self.model.inodes.path(ino));
    }

    fn names(&mut self, ino: Ino, inode: &Inode) {
        let before = &inode.old.as_ref().expect("an old object").names();
        let mut lost: Vec<&EntryKey> = before.iter().filter(|key| !inode.names().contains(key)).collect();
        let mut gained: Vec<&EntryKey> = inode.names().iter().filter(|key| !before.contains(key)).collect();
        let kept = inode.names().iter().find(|key| before.contains(key));
        // A name that becomes another is a rename: who may do that may not link what is somebody else's.
        while !lost.is_empty() && !gained.is_empty() {
            let to = gained.remove(0);
            let same_dir = lost.iter().position(|key| key.dir == to.dir);
            let from = lost.remove(same_dir.unwrap_or(0));
            self.move_to(ino, inode, from, to);
        }
        let first = path_of(self.model, kept.unwrap_or(&inode.names()[0]));
        if !gained.is_empty() {
            self.before
                .objects
                .insert(first.clone(), self.model.inodes.old_path(ino));
        }
        let links = gained.into_iter().map(|key| (first.clone(), path_of(self.model, key)));
        self.record.links.extend(links);
        for key in lost.into_iter().filter(|key| self.model.inodes.is_alive(key.dir)) {
            if is_replaced(self.model, key) {
                self.replaced.insert(path_of(self.model, key), seen(inode));
            } else {
                self.remove(inode, key);
            }
        }
    }

    fn move_to(&mut self, ino: Ino, inode: &Inode, from: &EntryKey, to: &EntryKey) {
        let (slot, source) = if from.dir == to.dir {
            let slot = self.parking('m');
            // What is replaced by an exchange of names stays there.
            self.record.parked.push((self.model.inodes.path(to.dir), slot.clone()));
            (Slot::Beside(slot.clone()), Slot::Beside(slot))
        } else if self.model.inodes.is_foreign(from.dir) && !self.model.inodes.is_bound(ino) {
            self.wait(from.dir, to.dir)
        } else {
            self.slots += 1;
            let slot = Slot::InJob(OsString::from(format!("n{}", self.slots)));
            (slot.clone(), slot)
        };
        self.record.departures.push(Departure {
            path: old_path_of(self.model, from),
            slot,
            seen: seen(inode),
            is_dead: false,
        });
        self.place(to, PlacementSource::Slot(source), false);
    }

    /// A hidden name on a device that is not that of the job's directory.
    fn wait(&mut self, from: Ino, to: Ino) -> (Slot, Slot) {
        let (name, dir) = (self.parking('m'), waiting_dir(self.model, from, to));
        self.waited_in.insert(dir);
        // As above; and what goes on nowhere stays there, too.
        self.record.parked.push((self.model.inodes.path(dir), name.clone()));
        slots_in(self.model, dir, &name)
    }

    fn content(&mut self, ino: Ino, inode: &Inode, path: PathBuf) {
        let Some(content) = inode.content() else { return };
        let before = inode.seen().map_or(0, |seen| seen.size);
        if content.changed() || inode.size != before {
            self.before
                .objects
                .insert(path.clone(), self.model.inodes.old_path(ino));
            self.record.patches.push(Patch {
                path,
                slot: patch_name(ino).to_os_string(),
                written: content.written.clone(),
                zeroed: content.zeroed.clone(),
                kept: content.kept().min(before),
                size: inode.size,
                size_before: before,
                seen: seen(inode),
                reserved: content.reserved(),
            });
        }
    }

    fn attributes(&mut self, ino: Ino, inode: &Inode, path: PathBuf) {
        if !is_changed(inode) || inode.kind == FileType::Symlink && self.model.traits.has_no_link_attributes() {
            return;
        }
        self.before
            .objects
            .insert(path.clone(), self.model.inodes.old_path(ino));
        let own = self.model.config.own_uid;
        if inode.is_dir() && inode.dirty.times && own != 0 && inode.uid != own && ino != Ino::ROOT {
            self.others_dirs.push(path.clone());
        }
        let dirty = inode.dirty;
        let value = |key: &OsString| inode.xattrs.as_ref().and_then(|xattrs| xattrs.get(key)).cloned();
        let seen = inode.seen();
        let attrs = NewAttrs {
            owner: dirty.owner.then_some((inode.uid, inode.gid)),
            mode: (dirty.mode || self.loses_set_ids(inode)).then_some(inode.mode),
            xattrs: inode.dirty_xattrs.iter().map(|key| (key.clone(), value(key))).collect(),
            times: Some((inode.atime, inode.mtime)),
        };
        let before = NewAttrs {
            owner: seen.filter(|_| dirty.owner).map(|seen| (seen.uid, seen.gid)),
            // A write takes set-id bits away.
            mode: seen.filter(|_| inode.kind != FileType::Symlink).map(|seen| seen.mode),
            xattrs: Vec::new(),
            times: seen.map(|seen| (seen.atime, seen.mtime)),
        };
        self.record.attributes.push(Attributes {
            path,
            is_dir: inode.is_dir(),
            attrs,
            before,
        });
    }

    /// Whether our writing to an old file takes set-id bits from it that the command has left to it: by writing to mapped memory. Those of
    /// somebody else's file are not ours to give back.
    fn loses_set_ids(&self, inode: &Inode) -> bool {
        let model = self.model;
        let is_written = inode.content().is_some_and(|content| content.changed());
        let keeps_modes = model.traits.keeps_modes();
        let is_ours = [0, inode.uid].contains(&model.config.own_uid);
        is_written && keeps_modes && is_ours && inode.mode & SET_IDS != 0
    }

    fn attributes_of_new_dir(&mut self, inode: &Inode, path: PathBuf) {
        if !self.new_dirs.insert(path.clone()) {
            return;
        }
        let attrs = NewAttrs {
            mode: inode.is_locked().then_some(inode.mode),
            times: Some((inode.atime, inode.mtime)),
            ..NewAttrs::default()
        };
        self.record.attributes.push(Attributes {
            path,
            is_dir: true,
            attrs,
            before: NewAttrs::default(),
        });
    }

    /// Old objects arrive in new directories at commit, and would give them the time of the commit. Those that let nobody in are open until then, with
    /// those above.
    fn directories_that_hold_old_objects(&mut self) {
        let model = self.model;
        let olds = model
            .inodes
            .all()
            .filter(|(ino, inode)| inode.is_old() && model.inodes.is_alive(*ino));
        let holders: BTreeSet<Ino> = olds
            .flat_map(|(_, inode)| inode.names().iter().map(|key| key.dir))
            .collect();
        for dir in holders.into_iter().filter(|dir| !model.inodes.at(*dir).is_old()) {
            self.attributes_of_new_dir(model.inodes.at(dir), model.inodes.path(dir));
        }
        for dir in model.inodes.awaiting_old() {
            if model.inodes.at(dir).is_locked() {
                self.attributes_of_new_dir(model.inodes.at(dir), model.inodes.path(dir));
            }
        }
    }

    /// A name that comes and goes gives a directory another time. Those in which the job changes something else have one from that.
    fn directories_that_something_waits_in(&mut self) {
        for dir in std::mem::take(&mut self.waited_in) {
            let inode = self.model.inodes.at(dir);
            if !is_changed(inode) {
                let times = NewAttrs {
                    times: Some((inode.atime, inode.mtime)),
                    ..NewAttrs::default()
                };
                let path = self.model.inodes.path(dir);
                self.before
                    .objects
                    .insert(path.clone(), self.model.inodes.old_path(dir));
                self.record.attributes.push(Attributes {
                    path,
                    is_dir: true,
                    attrs: times.clone(),
                    before: times,
                });
            }
        }
    }

    /// Staging directories of directories that stay; those of removed ones go with them.
    fn staging(&mut self, ino: Ino, inode: &Inode) {
        let staged = inode.dir().is_ok_and(|dir| dir.staging == Staging::Made);
        if staged && self.model.inodes.is_alive(ino) {
            self.staged(ino);
        }
    }

    fn staged(&mut self, ino: Ino) {
        let path = self.model.inodes.path(ino);
        if ino != Ino::ROOT {
            self.record.staged.push(path);
        }
    }
}

impl Job {
    /// What a commit would change now, by path.
    #[must_use]
    pub fn changes(&self) -> Vec<Change> {
        changes(&self.shared.state.lock().model)
    }
}

/// What a commit would change, for people: sorted by path.
fn changes(model: &Model) -> Vec<Change> {
    let mut changes = Vec::new();
    for (ino, inode) in model.inodes.all() {
        match &inode.old {
            None => changes.extend(inode.names().iter().map(|key| Change {
                kind: ChangeKind::Created,
                path: path_of(model, key),
                from: None,
            })),
            Some(_) => old_changes(model, ino, inode, &mut changes),
        }
    }
    changes.sort_by(|a, b| a.path.cmp(&b.path).then(a.kind.cmp(&b.kind)));
    changes
}

fn old_changes(model: &Model, ino: Ino, inode: &Inode, changes: &mut Vec<Change>) {
    let before = &inode.old.as_ref().expect("an old object").names();
    let now: HashSet<PathBuf> = inode.names().iter().map(|key| path_of(model, key)).collect();
    let was: HashSet<PathBuf> = before.iter().map(|key| old_path_of(model, key)).collect();
    let mut lost = was.difference(&now);
    for gained in now.difference(&was) {
        let moved_itself = inode.names().iter().any(|key| !before.contains(key));
        let from = if moved_itself { lost.next().cloned() } else { None };
        let kind = if from.is_some() {
            ChangeKind::Renamed
        } else {
            ChangeKind::Created
        };
        if moved_itself {
            changes.push(Change {
                kind,
                path: gained.clone(),
                from,
            });
        }
    }
    if now.is_empty() && ino != Ino::ROOT || now.len() < was.len() {
        changes.extend(lost.map(|path| Change {
            kind: ChangeKind::Removed,
            path: path.clone(),
            from: None,
        }));
    }
    if ino != Ino::ROOT && inode.names().is_empty() {
        return;
    }
    let path = model.inodes.path(ino);
    if inode.content().is_some_and(|content| content.changed()) {
        changes.push(Change {
            kind: ChangeKind::Written,
            path,
            from: None,
        });
    } else if inode.dirty.mode || inode.dirty.owner || !inode.dirty_xattrs.is_empty() {
        changes.push(Change {
            kind: ChangeKind::Attributes,
            path,
            from: None,
        });
    }
}
