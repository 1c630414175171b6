//! From the model to the commit record, and to the list of changes that people see.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsString;
use std::path::PathBuf;

use super::record::{Attributes, Patch, Placement, Record, Source};
use crate::api::Ino;
use crate::model::{Inode, Model, Place, Staging};
use crate::plan::{NewAttrs, patch_name};
use crate::report::{Change, ChangeKind};

/// The record of everything that the storage does not have under its own name yet.
pub(super) fn draft(model: &Model) -> Record {
    let mut record = Record::default();
    for (ino, inode) in model.all() {
        match (inode.is_old(), model.is_alive(ino)) {
            (true, true) => draft_old(model, ino, inode, &mut record),
            (true, false) if model.has_unknown_names(ino) && is_changed(inode) => {
                draft_orphan(model, ino, inode, &mut record);
            }
            (true, false) => draft_removed(model, ino, inode, &mut record),
            (false, true) => draft_new(model, inode, &mut record),
            (false, false) => {}
        }
        draft_staging(model, ino, inode, &mut record);
    }
    draft_times_of_new_dirs(model, &mut record);
    record
        .collections
        .sort_by_key(|(path, _)| std::cmp::Reverse(path.components().count()));
    record
        .placements
        .sort_by_key(|placement| placement.to.components().count());
    record
}

fn path_of(model: &Model, place: &Place) -> PathBuf {
    model.path(place.dir).join(&*place.name)
}

fn old_path_of(model: &Model, place: &Place) -> PathBuf {
    model.old_path(place.dir).join(&*place.name)
}

fn draft_new(model: &Model, inode: &Inode, record: &mut Record) {
    for place in &inode.names {
        if model.at(place.dir).is_old() && !model.is_visible(place) {
            record.placements.push(Placement {
                to: path_of(model, place),
                from: Source::Staged,
            });
        }
    }
}

/// An old object that goes: by itself, or covered by the directory above it that goes too.
fn draft_removed(model: &Model, ino: Ino, inode: &Inode, record: &mut Record) {
    for place in &inode.old.as_ref().expect("an old object").places {
        if !model.is_alive(place.dir) {
            continue;
        }
        let path = old_path_of(model, place);
        if inode.is_dir() {
            record.collections.push((path, OsString::from(format!("d{}", ino.0))));
        } else if !is_replaced(model, place) {
            record.removals.push(path);
        }
    }
}

/// An old file without a name in the job that lives on under names that the job never saw: it is changed in
/// the job's own directory, and goes with it.
fn draft_orphan(model: &Model, ino: Ino, inode: &Inode, record: &mut Record) {
    let places = &inode.old.as_ref().expect("an old object").places;
    let slot = OsString::from(format!("m{}", ino.0));
    let path = PathBuf::from(&*model.staging_name).join(&slot);
    record.collections.push((old_path_of(model, &places[0]), slot));
    record
        .removals
        .extend(places[1..].iter().map(|place| old_path_of(model, place)));
    draft_content(model, ino, inode, path.clone(), record);
    draft_attributes(inode, path, record);
}

fn is_changed(inode: &Inode) -> bool {
    let content_changed = inode.content().is_some_and(|content| content.changed());
    inode.dirty.any() || !inode.dirty_xattrs.is_empty() || content_changed
}

/// Will the placement of another object take this name from a file in one step?
fn is_replaced(model: &Model, place: &Place) -> bool {
    let Some(other) = model.dir_at(place.dir).entries.get(&place.name) else {
        return false;
    };
    let other = model.at(*other);
    let moved_here = !other.is_old() || other.names.first().is_some_and(|first| first == place) && !keeps_a_name(other);
    !other.is_dir() && moved_here
}

/// One of the original names is still a name.
fn keeps_a_name(inode: &Inode) -> bool {
    inode
        .old
        .as_ref()
        .is_some_and(|old| old.places.iter().any(|place| inode.names.contains(place)))
}

fn draft_old(model: &Model, ino: Ino, inode: &Inode, record: &mut Record) {
    if ino != Ino::ROOT {
        draft_names(model, ino, inode, record);
    }
    draft_content(model, ino, inode, model.path(ino), record);
    draft_attributes(inode, model.path(ino), record);
}

fn draft_names(model: &Model, ino: Ino, inode: &Inode, record: &mut Record) {
    let places = &inode.old.as_ref().expect("an old object").places;
    let mut lost: Vec<&Place> = places.iter().filter(|place| !inode.names.contains(place)).collect();
    let mut gained: Vec<&Place> = inode.names.iter().filter(|place| !places.contains(place)).collect();
    let kept = inode.names.iter().find(|place| places.contains(place));
    if kept.is_none() {
        let slot = OsString::from(format!("m{}", ino.0));
        record
            .collections
            .push((old_path_of(model, lost.remove(0)), slot.clone()));
        record.placements.push(Placement {
            to: path_of(model, gained.remove(0)),
            from: Source::Limbo(slot),
        });
    }
    let first = path_of(model, kept.unwrap_or(&inode.names[0]));
    record
        .links
        .extend(gained.into_iter().map(|place| (first.clone(), path_of(model, place))));
    let removed = lost
        .into_iter()
        .filter(|place| model.is_alive(place.dir) && !is_replaced(model, place));
    record.removals.extend(removed.map(|place| old_path_of(model, place)));
}

/// Old objects arrive in new directories at commit, and would give them the time of the commit.
fn draft_times_of_new_dirs(model: &Model, record: &mut Record) {
    let olds = model
        .all()
        .filter(|(ino, inode)| inode.is_old() && model.is_alive(*ino));
    let holders: BTreeSet<Ino> = olds
        .flat_map(|(_, inode)| inode.names.iter().map(|place| place.dir))
        .collect();
    for dir in holders.into_iter().filter(|dir| !model.at(*dir).is_old()) {
        let inode = model.at(dir);
        let attrs = NewAttrs {
            times: Some((inode.atime, inode.mtime)),
            ..NewAttrs::default()
        };
        record.attributes.push(Attributes {
            path: model.path(dir),
            is_dir: true,
            attrs,
        });
    }
}

fn draft_content(model: &Model, ino: Ino, inode: &Inode, path: PathBuf, record: &mut Record) {
    let Some(content) = inode.content() else { return };
    let seen = inode.old.as_ref().and_then(|old| old.seen).map_or(0, |seen| seen.size);
    if content.shortened {
        record.cuts.push((model.old_path(ino), content.kept()));
    }
    if content.changed() || inode.size != seen {
        record.patches.push(Patch {
            path,
            slot: patch_name(ino).to_os_string(),
            written: content.written.clone(),
            zeroed: content.zeroed.clone(),
            size: inode.size,
        });
    }
}

fn draft_attributes(inode: &Inode, path: PathBuf, record: &mut Record) {
    if !is_changed(inode) {
        return;
    }
    let dirty = inode.dirty;
    let value = |key: &OsString| inode.xattrs.as_ref().and_then(|xattrs| xattrs.get(key)).cloned();
    let attrs = NewAttrs {
        owner: dirty.owner.then_some((inode.uid, inode.gid)),
        mode: dirty.mode.then_some(inode.mode),
        xattrs: inode.dirty_xattrs.iter().map(|key| (key.clone(), value(key))).collect(),
        times: Some((inode.atime, inode.mtime)),
    };
    record.attributes.push(Attributes {
        path,
        is_dir: inode.is_dir(),
        attrs,
    });
}

/// Staging directories of directories that stay; those of removed ones go with them.
fn draft_staging(model: &Model, ino: Ino, inode: &Inode, record: &mut Record) {
    let staged = inode.dir().is_ok_and(|dir| dir.staging == Staging::Made);
    if staged && ino != Ino::ROOT && model.is_alive(ino) {
        record.staged.push(model.path(ino));
    }
}

/// What a commit would change, for people: sorted by path.
pub(crate) fn changes(model: &Model) -> Vec<Change> {
    let mut changes = Vec::new();
    for (ino, inode) in model.all() {
        match &inode.old {
            None => changes.extend(inode.names.iter().map(|place| Change {
                kind: ChangeKind::Created,
                path: path_of(model, place),
                from: None,
            })),
            Some(_) => old_changes(model, ino, inode, &mut changes),
        }
    }
    changes.sort_by(|a, b| a.path.cmp(&b.path).then(a.kind.cmp(&b.kind)));
    changes
}

fn old_changes(model: &Model, ino: Ino, inode: &Inode, changes: &mut Vec<Change>) {
    let places = &inode.old.as_ref().expect("an old object").places;
    let now: HashSet<PathBuf> = inode.names.iter().map(|place| path_of(model, place)).collect();
    let was: HashSet<PathBuf> = places.iter().map(|place| old_path_of(model, place)).collect();
    let mut lost = was.difference(&now);
    for gained in now.difference(&was) {
        let moved_itself = inode.names.iter().any(|place| !places.contains(place));
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
    if ino != Ino::ROOT && inode.names.is_empty() {
        return;
    }
    let path = model.path(ino);
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
