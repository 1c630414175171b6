//! Is every old object that the job changes still what the job saw?
//!
//! Compared are kind, size, times of content and inode; of a removed directory, its names. Inode numbers are
//! not compared: some network and FUSE file systems make them up, and the time of the inode changes with
//! every replacement anyway. Directories with a staging directory have changed by our own hand, so of
//! directories only kind and, where they are removed, names are compared.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use elbow_file::{Errno, Kind, Stat};

use super::tree::Tree;
use super::watch::{Hook, Tally};
use crate::api::Ino;
use crate::job::Shared;
use crate::model::{Inode, Model};
use crate::removal::parallel;
use crate::report::Phase;
use crate::staging::is_staging_name;

/// What is expected of a path.
enum Expected {
    /// An object with these attributes.
    Same(Stat),
    /// A directory with these names.
    Names(BTreeSet<OsString>),
    /// Nothing.
    Absent,
}

/// Paths that are not what the job saw, with what differs.
pub(super) fn conflicts(shared: &Shared, progress: &mut Hook<'_>) -> Vec<(PathBuf, String)> {
    let expectations = expectations(&shared.state.lock().model);
    let (tree, tally) = (shared.tree(), Tally::of(expectations.len(), 0));
    let found = shared.watched(progress, Phase::Checking, &tally, || {
        parallel(&expectations, tree.threads, |(path, expected)| {
            let difference = check(&tree, path, expected);
            tally.step();
            difference
        })
    });
    let mut conflicts: Vec<(PathBuf, String)> = expectations
        .iter()
        .zip(found)
        .filter_map(|((path, _), difference)| difference.map(|difference| (path.clone(), difference)))
        .collect();
    conflicts.sort();
    conflicts
}

fn expectations(model: &Model) -> Vec<(PathBuf, Expected)> {
    let mut all = Vec::new();
    for (ino, inode) in model.all() {
        if ino != Ino::ROOT && inode.is_old() && is_changed(inode) {
            expect_old(model, ino, inode, &mut all);
        }
        for place in &inode.names {
            let is_new_name = !inode
                .old
                .as_ref()
                .is_some_and(|old| old.is_place(place.dir, &place.name));
            if is_new_name
                && model.at(place.dir).is_old()
                && !model.is_visible(place)
                && !model.base_has(place.dir, &place.name)
            {
                all.push((model.old_path(place.dir).join(&*place.name), Expected::Absent));
            }
        }
    }
    all
}

fn is_changed(inode: &Inode) -> bool {
    let old = inode.old.as_ref().expect("an old object");
    let renamed = old.places.iter().any(|place| !inode.names.contains(place));
    let set = inode.dirty.mode || inode.dirty.owner || !inode.dirty_xattrs.is_empty();
    let timed = inode.dirty.times && !inode.is_dir();
    renamed || set || timed || inode.content().is_some_and(|content| content.changed())
}

fn expect_old(model: &Model, ino: Ino, inode: &Inode, all: &mut Vec<(PathBuf, Expected)>) {
    let old = inode.old.as_ref().expect("an old object");
    for place in &old.places {
        let path = model.old_path(place.dir).join(&*place.name);
        if inode.is_dir() && !model.is_alive(ino) {
            let names = inode
                .dir()
                .map(|dir| dir.gone.keys().map(|name| name.to_os_string()).collect());
            all.push((path.clone(), Expected::Names(names.unwrap_or_default())));
        }
        if let Some(seen) = old.seen {
            all.push((path, Expected::Same(seen)));
        }
    }
}

fn check(tree: &Tree<'_>, path: &Path, expected: &Expected) -> Option<String> {
    let found = match expected {
        Expected::Same(seen) => check_same(tree, path, seen),
        Expected::Names(names) => check_names(tree, path, names),
        Expected::Absent => check_absent(tree, path),
    };
    match found {
        Ok(difference) => difference,
        Err(Errno::NOENT) => Some("it is gone".into()),
        Err(errno) => Some(format!("it cannot be looked at: {errno}")),
    }
}

fn check_same(tree: &Tree<'_>, path: &Path, seen: &Stat) -> Result<Option<String>, Errno> {
    let (dir, name) = tree.spot(path)?;
    let now = tree.storage.stat(&dir, &name)?;
    let difference = if now.kind != seen.kind {
        "it is something else now"
    } else if now.kind == Kind::Dir {
        return Ok(None);
    } else if now.size != seen.size || now.mtime != seen.mtime {
        "it was written to"
    } else if now.ctime != seen.ctime {
        "it was replaced, or its attributes or links were changed"
    } else {
        return Ok(None);
    };
    Ok(Some(difference.into()))
}

fn check_names(tree: &Tree<'_>, path: &Path, names: &BTreeSet<OsString>) -> Result<Option<String>, Errno> {
    let now = tree.storage.list(&tree.dir(path)?)?;
    let added = now
        .iter()
        .find(|entry| !names.contains(&entry.name) && !is_staging_name(&entry.name));
    Ok(added.map(|entry| format!("the job removes it, but {} was created in it", entry.name.display())))
}

fn check_absent(tree: &Tree<'_>, path: &Path) -> Result<Option<String>, Errno> {
    let (dir, name) = tree.spot(path)?;
    match tree.storage.stat(&dir, &name) {
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
        Ok(_) => Ok(Some("it was created by somebody else".into())),
    }
}
