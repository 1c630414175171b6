//! The last look before the commit point.
//!
//! A record has to know of the storage, beside what the job has seen: old values of extended attributes that it changes, and,
//! where the job shall win conflicts, what it wins over. And files that will be written are opened: what is refused
//! here has changed nothing.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use elbow_file::{Errno, Handle, Protection, Stat};

use super::content::try_target;
use super::failure::{Failure, Refusal};
use super::record::{Attributes, Departure, ObservedState, OriginalPaths, Patch, Record, Replaced, Slot};
use super::server::{self, STICKY};
use super::tree::Tree;
use crate::action::NewXattrs;
use crate::clock::clock;
use crate::missing::none_if_missing;
use crate::parallel::parallel;
use crate::report::{Cause, cause_of};
use crate::staging::parked_name;

/// Completes the record of this job and tries what can be tried, or says why the job must not commit. `note` writes to its journal where that
/// may leave something.
pub(crate) fn last_look(
    record: &mut Record,
    tree: &Tree<'_>,
    job: &OsStr,
    note: &server::JournalWriter<'_>,
) -> Result<(), Cause> {
    let unseen = |errno| Cause::Storage("looking at what the job changes".into()).with(errno);
    let mut refused = rehearse(record, tree);
    refused.extend(protected(record, tree));
    refused.extend(unmovable(record, tree));
    refused.extend(server::refusals(record, tree, job, note).map_err(unseen)?);
    if !refused.is_empty() {
        return Err(cause_of(&refused, clock()));
    }
    let before = std::mem::take(&mut record.before);
    let completed = complete(record, &before, tree);
    let won = completed.and_then(|()| match record.wins {
        true => win(record, &before, tree, job),
        false => Ok(Vec::new()),
    });
    record.before = before;
    let lost = won.map_err(unseen)?;
    if lost.is_empty() {
        Ok(())
    } else {
        Err(Cause::Conflict(lost))
    }
}

fn complete(record: &mut Record, before: &OriginalPaths, tree: &Tree<'_>) -> Result<(), Errno> {
    let with_xattrs = record.attributes.iter_mut().filter(|a| !a.attrs.xattrs.is_empty());
    for attributes in with_xattrs {
        if let Some(path) = before.objects.get(&attributes.path) {
            attributes.before.xattrs = old_xattrs(attributes, path, tree)?;
        }
    }
    for placement in &mut record.placements {
        let (Some(replaced), Some(path)) = (&mut placement.replaced, before.names.get(&placement.to)) else {
            continue;
        };
        if replaced.seen.is_none() {
            replaced.seen = look(tree, path)?.as_ref().map(ObservedState::of);
        }
    }
    Ok(())
}

/// Opens all files that will be written, and says which cannot be.
fn rehearse(record: &Record, tree: &Tree<'_>) -> Vec<Failure> {
    let open = |patch: &Patch| -> Result<(), Errno> {
        let path = record.before.objects.get(&patch.path).unwrap_or(&patch.path);
        let (dir, name) = tree.parent_of(path)?;
        try_target(tree.storage, &dir, &name, patch)
    };
    let refused = parallel(&record.patches, tree.threads, |patch| {
        open(patch).err().map(|errno| Failure {
            step: "write",
            path: patch.path.clone(),
            refusal: Refusal::Errno(errno),
        })
    });
    refused.into_iter().flatten().collect()
}

/// The directories that somebody has made append-only or immutable since the job put a staging directory into them, or has removed what is in
/// them: neither could be taken away any more when all is published.
fn protected(record: &Record, tree: &Tree<'_>) -> Vec<Failure> {
    let staged = record.staged.iter().map(PathBuf::as_path).chain([Path::new("")]);
    let staged = staged.map(|dir| (dir, "remove the staging directory of"));
    let emptied = record.emptied().map(|(dir, _)| (dir, "remove"));
    let dirs: Vec<(&Path, &'static str)> = staged.chain(emptied).collect();
    let found = parallel(&dirs, tree.threads, |&(dir, step)| {
        let look = |dir: Handle| tree.storage.stat_handle(&dir);
        // What else is wrong with it is not asked here.
        let is_protected = tree
            .dir(dir)
            .and_then(look)
            .is_ok_and(|found| found.protection != Protection::None);
        is_protected.then(|| Failure {
            step,
            path: dir.to_path_buf(),
            refusal: Refusal::Errno(Errno::PERM),
        })
    });
    found.into_iter().flatten().collect()
}

/// What would wait on its way in somebody else's sticky directory, and is not ours either: it could get there, and neither on nor back. In a
/// subvolume, which the directory of the job is no part of, there may be no other place for what leaves a directory that gets another name itself.
fn unmovable(record: &Record, tree: &Tree<'_>) -> Vec<Failure> {
    let user = rustix::process::geteuid().as_raw();
    if user == 0 {
        return Vec::new();
    }
    let is_held = |departure: &Departure| -> Result<bool, Errno> {
        let Slot::At(dir, _) = &departure.slot else {
            return Ok(false);
        };
        let dir = tree.dir(dir)?;
        let stat = tree.storage.stat_handle(&dir)?;
        if stat.mode & STICKY == 0 || stat.uid == user || !tree.storage.file_system_traits(&dir)?.own_ids {
            return Ok(false);
        }
        Ok(look(tree, &departure.path)?.is_some_and(|found| found.uid != user))
    };
    let found = parallel(&record.departures, tree.threads, |departure| {
        // What else is wrong with it is not asked here.
        is_held(departure).unwrap_or(false).then(|| Failure {
            step: "move",
            path: departure.path.clone(),
            refusal: Refusal::Errno(Errno::PERM),
        })
    });
    found.into_iter().flatten().collect()
}

fn look(tree: &Tree<'_>, path: &Path) -> Result<Option<Stat>, Errno> {
    let Some((dir, name)) = none_if_missing(tree.parent_of(path))? else {
        return Ok(None);
    };
    none_if_missing(tree.storage.stat(&dir, &name))
}

fn old_xattrs(attributes: &Attributes, path: &Path, tree: &Tree<'_>) -> Result<NewXattrs, Errno> {
    let (dir, name) = tree.parent_of(path)?;
    let value = |key: &OsString| match tree.storage.get_xattr(&dir, &name, key) {
        Ok(value) => Some(Ok((key.clone(), Some(value)))),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Some(Ok((key.clone(), None))),
        // What may be written and not read cannot be given back.
        Err(Errno::ACCESS) => None,
        Err(errno) => Some(Err(errno)),
    };
    attributes
        .attrs
        .xattrs
        .iter()
        .filter_map(|(key, _)| value(key))
        .collect()
}

/// Takes what is there now for what was expected; gives what cannot be won.
fn win(
    record: &mut Record,
    before: &OriginalPaths,
    tree: &Tree<'_>,
    job: &OsStr,
) -> Result<Vec<(PathBuf, String)>, Errno> {
    let found = parallel(&record.departures, tree.threads, |departure| {
        look(tree, &departure.path)
    });
    for (departure, now) in record.departures.iter_mut().zip(found) {
        departure.seen = now?.as_ref().map(ObservedState::of);
    }
    let found = parallel(&record.patches, tree.threads, |patch| {
        before
            .objects
            .get(&patch.path)
            .map_or(Ok(None), |path| look(tree, path))
    });
    let mut lost = Vec::new();
    for (patch, now) in record.patches.iter_mut().zip(found) {
        if let Err(why) = patch.win_over(now?.as_ref()) {
            lost.push((patch.path.clone(), why.to_owned()));
        }
    }
    record
        .departures
        .retain(|departure| departure.seen.is_some() || !departure.is_dead);
    let found = parallel(&record.placements, tree.threads, |placement| {
        before
            .names
            .get(&placement.to)
            .map_or(Ok(None), |path| look(tree, path))
    });
    let leaving: HashSet<PathBuf> = record
        .departures
        .iter()
        .map(|departure| departure.path.clone())
        .collect();
    for (number, (placement, now)) in record.placements.iter_mut().zip(found).enumerate() {
        let leaves = before
            .names
            .get(&placement.to)
            .is_some_and(|path| leaving.contains(path));
        let Some(now) = now?.filter(|_| !leaves) else {
            placement.replaced = None;
            continue;
        };
        /// Beyond all numbers that a draft gives out.
        const FIRST: u64 = 1 << 32;
        let spare = parked_name(job, 'r', FIRST + number as u64);
        let replaced = placement.replaced.get_or_insert(Replaced { seen: None, spare });
        replaced.seen = Some(ObservedState::of(&now));
    }
    Ok(lost)
}
