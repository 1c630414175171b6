//! Dead directories that the storage does not let be renamed (lower layers of overlayfs; on btrfs what stands for a subvolume within
//! a snapshot), and the names that are late because of them.
//!
//! They keep their names until nothing can be refused any more (`done`), and are then removed where they are. Whatever has such a
//! name afterwards, or one below it, waits for that.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use elbow_file::{Errno, FileType, Handle, Stat};
use parking_lot::Mutex;

use super::apply::{ADDED_TO, Apply};
use super::failure::{Failure, StepResult, failure, none_of};
use super::record::{Attributes, Departure, Placement, PlacementSource, Slot};
use crate::job_files::LATE;
use crate::missing::{none_if_missing, none_if_no_path};
use crate::removal::remove_trees;
use crate::step_counter::StepCounter;

/// Dead directories that the storage does not let be renamed, and what waits for their names.
pub(super) struct Immovable<'i, 'a> {
    apply: &'i Apply<'a>,
}

impl<'i, 'a> Immovable<'i, 'a> {
    pub(super) fn of(apply: &'i Apply<'a>) -> Self {
        Self { apply }
    }
}

impl Immovable<'_, '_> {
    /// Dead directories that an earlier attempt found not to be movable: they still have their names.
    pub(super) fn find(&self) -> Result<(), Vec<Failure>> {
        let dead: Vec<_> = self.apply.record.departures.iter().filter(|d| d.is_dead).collect();
        self.apply.each(
            "look at",
            &dead,
            |departure| &departure.path,
            |departure| {
                let Some((dir, name)) = none_if_missing(self.apply.tree.parent_of(&departure.path))? else {
                    return Ok(());
                };
                let (there, slot) = self.apply.slot(&dir, &departure.slot)?;
                let is_it = |now: Stat| now.kind == FileType::Dir && departure.seen.is_some_and(|seen| seen.is(&now));
                if self.apply.look(&there, slot)?.is_none() && self.apply.look(&dir, &name)?.is_some_and(is_it) {
                    self.apply.immovable.lock().insert(departure.path.clone());
                }
                Ok(())
            },
        )
    }

    fn all(&self) -> Vec<&Departure> {
        let paths = self.apply.immovable.lock();
        let all = self.apply.record.departures.iter();
        all.filter(|departure| paths.contains(&departure.path)).collect()
    }

    /// While all can be taken back.
    pub(super) fn check(&self) -> Result<(), Vec<Failure>> {
        let dead = self.all();
        self.apply.each(
            "remove",
            &dead,
            |departure| &departure.path,
            |departure| self.check_names(departure),
        )
    }

    pub(super) fn check_names(&self, departure: &Departure) -> StepResult {
        // Anything else can be renamed wherever directories cannot; if not, there is another reason, and who comes later would not find it.
        if departure.seen.is_some_and(|seen| seen.kind != FileType::Dir) {
            return Err(Errno::XDEV.into());
        }
        let is_known = self.apply.has_only_known_names(departure, &departure.path)?;
        is_known.then_some(()).ok_or(ADDED_TO)
    }

    /// Removes dead directories where they are, which cannot be taken back.
    pub(super) fn remove(&self) -> Result<(), Vec<Failure>> {
        if !self.apply.is_first() {
            self.find()?;
        }
        let dead = self.all();
        let tops = Mutex::new(Vec::new());
        self.apply.each(
            "remove",
            &dead,
            |departure| &departure.path,
            |departure| {
                self.check_names(departure)?;
                let top = self.apply.tree.parent_of(&departure.path)?;
                tops.lock().push((&departure.path, top));
                Ok(())
            },
        )?;
        let (paths, tops): (Vec<_>, Vec<_>) = tops.into_inner().into_iter().unzip();
        let removed = remove_trees(
            self.apply.storage(),
            &tops,
            self.apply.tree.threads,
            &StepCounter::default(),
        );
        let refused = paths.into_iter().zip(removed);
        let refused = refused.filter_map(|(path, removed)| Some(failure("remove", path, removed.err()?)));
        none_of(refused.collect())?;
        if !dead.is_empty() {
            // Other directories are known wherever somebody may have moved them to.
            self.apply.tree.forget();
        }
        Ok(())
    }

    /// What gets the name of a dead directory that cannot be renamed, or a name below it, as far as it is known which directories those are.
    pub(super) fn known_late(&self) -> UnmovableDirectories {
        UnmovableDirectories(self.apply.immovable.lock().clone())
    }

    /// Those get their names and attributes.
    pub(super) fn come_late(&self) -> Result<(), Vec<Failure>> {
        let late = match self.apply.is_first() {
            true => self.known_late(),
            false => self
                .was_late()
                .map_err(|errno| vec![failure("look at", Path::new(""), errno)])?,
        };
        if late.is_empty() {
            return Ok(());
        }
        self.apply
            .place(|placement| late.has(&placement.to) && (self.apply.is_first() || self.waits(placement)))?;
        self.apply.link_all(|to| late.has(to))?;
        let attributes = self.apply.record.attributes.iter().filter(|a| late.has(&a.path));
        let attributes: Vec<_> = attributes.collect();
        let set = |attributes: &&Attributes| {
            match attributes.is_dir {
                true => self.apply.attributes_before_cleaning(attributes)?,
                false => self.apply.set(&attributes.path, &attributes.attrs)?,
            }
            self.apply.close_after_a_death(attributes)
        };
        self.apply.each("set attributes of", &attributes, |a| &a.path, set)?;
        let synced = self.apply.storage().sync_all(&self.apply.job);
        synced.map_err(|errno| vec![failure("finish the commit of", Path::new(""), errno)])
    }

    /// Which dead directories an earlier attempt could not move is not known any more when it has removed them, only whether there were any.
    fn was_late(&self) -> Result<UnmovableDirectories, Errno> {
        let had_any = self.apply.look(&self.apply.job, OsStr::new(LATE))?.is_some();
        let dead = self
            .apply
            .record
            .departures
            .iter()
            .filter(|departure| departure.is_dead && had_any);
        Ok(UnmovableDirectories(
            dead.map(|departure| departure.path.clone()).collect(),
        ))
    }

    /// Has what is to be placed not got its name yet? (Where that is may not be there yet.)
    fn waits(&self, placement: &Placement) -> bool {
        // Whatever else keeps us from it is told when it is placed.
        !matches!(self.waiting(placement), Ok(None))
    }
}

impl<'a> Immovable<'_, 'a> {
    /// Where a late object waits, by itself or in a directory; `None`: it is not late, or has its name.
    fn waiting_place(&self, path: &Path) -> Result<Option<(Handle, OsString)>, Errno> {
        let late = self.known_late();
        if !late.has(path) {
            return Ok(None);
        }
        let mut above = path.ancestors().take_while(|above| late.has(above));
        let Some(placement) = above.find_map(|above| self.placements().get(above)) else {
            let link = self.apply.record.links.iter().find(|(_, to)| to == path);
            return link.map(|(from, _)| self.apply.place_of(from)).transpose();
        };
        let Some((dir, name)) = self.waiting(placement)? else {
            return Ok(None);
        };
        let below = path.strip_prefix(&placement.to).map_err(|_| Errno::INVAL)?;
        let descend = |(dir, name): (Handle, OsString), next: &OsStr| {
            let dir = self.apply.storage().open_dir(&dir, &name)?;
            Ok((dir, next.to_owned()))
        };
        below.iter().try_fold((dir, name), descend).map(Some)
    }

    fn placements(&self) -> &BTreeMap<&'a Path, &'a Placement> {
        let all = &self.apply.record.placements;
        self.apply.placements.get_or_init(|| {
            all.iter()
                .map(|placement| (placement.to.as_path(), placement))
                .collect()
        })
    }

    /// Where the object of a placement waits; `None`: it does not any more.
    fn waiting(&self, placement: &Placement) -> Result<Option<(Handle, OsString)>, Errno> {
        let name = placement.to.file_name().ok_or(Errno::NOENT)?;
        // Only what waits beside its name needs the directory of that, which may not be there yet.
        let source = match &placement.from {
            PlacementSource::Slot(Slot::Beside(_)) => {
                let parent = self.apply.tree.parent_of(&placement.to);
                parent.and_then(|(dir, name)| self.apply.source(placement, &dir, &name))
            }
            _ => self.apply.source(placement, &self.apply.job, name),
        };
        let Some(source) = none_if_no_path(source)? else {
            return Ok(None);
        };
        let is_there = self.apply.look(&source.0, &source.1)?.is_some();
        Ok(is_there.then_some(source))
    }
}

impl Apply<'_> {
    /// Where the object is that is to have this path: what is late waits elsewhere until its name is free, and is written to there.
    pub(super) fn place_of(&self, path: &Path) -> Result<(Handle, OsString), Errno> {
        match Immovable::of(self).waiting_place(path)? {
            Some(place) => Ok(place),
            None => self.tree.parent_of(path),
        }
    }

    /// Where an object waits that is to be placed under a name.
    pub(super) fn source(
        &self,
        placement: &Placement,
        dir: &Handle,
        name: &OsStr,
    ) -> Result<(Handle, OsString), Errno> {
        match &placement.from {
            PlacementSource::Staged => Ok((self.staging_of(&placement.to)?, name.to_owned())),
            PlacementSource::Slot(slot) => self.slot(dir, slot).map(|(dir, slot)| (dir, slot.to_owned())),
        }
    }
}

/// Dead directories that cannot be renamed.
pub(super) struct UnmovableDirectories(BTreeSet<PathBuf>);

impl UnmovableDirectories {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn has(&self, path: &Path) -> bool {
        !self.0.is_empty() && path.ancestors().any(|above| self.0.contains(above))
    }
}
