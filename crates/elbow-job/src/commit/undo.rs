//! Taking a commit back that the storage refused half-way: the tree becomes what it was before.
//!
//! ```text
//!   commit  ->  undo         contents and attributes, where they may have been changed
//!           ->  undo.names   placed objects go back to where they waited, links are removed
//!           ->  undo.olds    old objects get their names again
//!           ->  (none)       the job has not committed, and is rolled back like any other
//! ```
//!
//! The name of the record says how far it is, since a step back may be repeated only as long as the names are those that it
//! was made for. Whoever finds it so goes on.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use elbow_file::{Errno, RenameMode, Time};

use super::apply::{Apply, Failure, Refusal, StepResult, gone_is_fine, gone_is_none, levels};
use super::record::{Attributes, Departure, Placement, Replaced};
use super::{DEPARTED, RECORD};
use crate::lost;
use crate::report::{Cause, DeferredError};

/// The names of a record that is taken back, in their order.
pub(crate) const UNDO: [&str; 3] = ["undo", "undo.names", "undo.olds"];

/// How far the taking back of a commit has come: an index into [`UNDO`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UndoPhase(pub(crate) usize);

impl Apply<'_> {
    /// Takes back what has been carried out of a record. Afterwards there is none, and the job is an uncommitted one.
    pub(crate) fn take_back(&self) -> Result<(), Vec<Failure>> {
        let phase = UndoPhase(usize::from(!self.has_names.load(Ordering::Acquire)));
        self.advance(RECORD, UNDO[phase.0])?;
        self.go_on_taking_back(phase)
    }

    /// The same from where somebody else has left off.
    pub(crate) fn go_on_taking_back(&self, from: UndoPhase) -> Result<(), Vec<Failure>> {
        if from <= UndoPhase(0) {
            self.take_contents_back()?;
            self.advance(UNDO[0], UNDO[1])?;
        }
        if from <= UndoPhase(1) {
            self.take_names_back()?;
            self.advance(UNDO[1], UNDO[2])?;
        }
        self.bring_back()?;
        let forget = |name| gone_is_fine(self.storage().unlink(&self.job, OsStr::new(name)));
        forget(DEPARTED)
            .and_then(|()| self.storage().sync_all(&self.job))
            .and_then(|()| forget(UNDO[2]))
            .map_err(failed)
    }

    /// All steps of a phase are durable before the next is said to have begun.
    fn advance(&self, from: &'static str, to: &'static str) -> Result<(), Vec<Failure>> {
        self.storage()
            .sync_all(&self.job)
            .and_then(|()| gone_is_fine(self.rename_in_job(from, to)))
            .and_then(|()| super::sync_dir(self.storage(), &self.job))
            .map_err(failed)
    }

    fn take_contents_back(&self) -> Result<(), Vec<Failure>> {
        let record = self.record;
        let patches: Vec<_> = record.patches.iter().zip(&self.patched).collect();
        self.each(
            "restore",
            &patches,
            |(patch, _)| &patch.path,
            |(patch, begun)| self.take_patch_back(patch, begun),
        )?;
        let restore = |(attributes, begun): &(&Attributes, &AtomicBool)| -> StepResult {
            if attributes.before.is_empty() || self.is_first() && !begun.load(Ordering::Acquire) {
                return Ok(());
            }
            match self.set(&attributes.path, &attributes.before) {
                Err(Refusal::Errno(Errno::NOENT)) => Ok(()),
                other => other,
            }
        };
        let all: Vec<_> = record.attributes.iter().zip(&self.attributed).collect();
        self.each("restore attributes of", &all, |(a, _)| &a.path, restore)
    }

    fn take_names_back(&self) -> Result<(), Vec<Failure>> {
        let links: Vec<_> = self.record.links.iter().zip(&self.linked).collect();
        self.each(
            "remove",
            &links,
            |((_, to), _)| to,
            |((from, to), made)| self.unlink_again(from, to, made),
        )?;
        let all: Vec<_> = self.record.placements.iter().zip(&self.placed).collect();
        for level in levels(&all, |(placement, _)| &placement.to).rev() {
            self.each(
                "take back",
                level,
                |(placement, _)| &placement.to,
                |(placement, made)| self.displace(placement, made),
            )?;
            self.tree.forget();
        }
        Ok(())
    }

    fn unlink_again(&self, from: &Path, to: &Path, made: &AtomicBool) -> StepResult {
        if self.is_first() && !made.load(Ordering::Acquire) {
            return Ok(());
        }
        let (from, to) = (gone_is_none(self.tree.spot(from))?, gone_is_none(self.tree.spot(to))?);
        let Some(((from, name), (to, new_name))) = from.zip(to) else {
            return Ok(());
        };
        if lost::are_one(self.storage(), (&from, &name), (&to, &new_name))? {
            gone_is_fine(self.storage().unlink(&to, &new_name))?;
        }
        Ok(())
    }

    /// A placed object goes back to where it waited; what it replaced gets its name again.
    fn displace(&self, placement: &Placement, made: &AtomicBool) -> StepResult {
        let Some((dir, name)) = gone_is_none(self.tree.spot(&placement.to))? else {
            return Ok(());
        };
        let Some((container, source)) = gone_is_none(self.source(placement, &dir, &name))? else {
            return Ok(());
        };
        let (from, to) = ((&container, source.as_os_str()), (&dir, name.as_os_str()));
        if let Some(replaced) = &placement.replaced {
            return self.give_way(from, to, replaced);
        }
        if self.is_first() && !made.load(Ordering::Acquire) || self.look(from.0, from.1)?.is_some() {
            return Ok(());
        }
        match self.rename_to_free(to.0, to.1, from.0, from.1) {
            Err(Refusal::Errno(Errno::NOENT)) => Ok(()),
            other => other,
        }
    }

    fn give_way(
        &self,
        from: (&elbow_file::Handle, &OsStr),
        to: (&elbow_file::Handle, &OsStr),
        replaced: &Replaced,
    ) -> StepResult {
        let spare = replaced.spare.as_os_str();
        if self.look(from.0, spare)?.is_some() {
            let storage = self.storage();
            if self.look(from.0, from.1)?.is_none() {
                lost::rename(storage, to, from, RenameMode::Replace)?;
            }
            lost::rename(storage, (from.0, spare), to, RenameMode::Replace)?;
            // Two names of one object: rename(2) does nothing then.
            gone_is_fine(storage.unlink(from.0, spare))?;
            return Ok(());
        }
        if self.is_exchanged(from, to, replaced)? {
            self.storage()
                .rename(from.0, from.1, to.0, to.1, RenameMode::Exchange)?;
        }
        Ok(())
    }

    /// Old objects get their names again, the highest first.
    fn bring_back(&self) -> Result<(), Vec<Failure>> {
        for level in levels(&self.record.departures, |departure| &departure.path).rev() {
            self.each(
                "bring back",
                level,
                |departure| &departure.path,
                |d| self.bring_one_back(d),
            )?;
            self.tree.forget();
        }
        self.close_again();
        Ok(())
    }

    fn bring_one_back(&self, departure: &Departure) -> StepResult {
        let Some((dir, name)) = gone_is_none(self.tree.spot(&departure.path))? else {
            return Ok(());
        };
        let (there, slot) = self.slot(&dir, &departure.slot);
        if self.look(there, slot)?.is_none() {
            return Ok(());
        }
        self.rename_to_free(there, slot, &dir, &name)
    }
}

fn failed(errno: Errno) -> Vec<Failure> {
    vec![Failure {
        step: "mark the progress of",
        path: PathBuf::new(),
        refusal: Refusal::Errno(errno),
    }]
}

/// Why a job whose steps were refused was rolled back.
pub(super) fn cause_of(failures: &[Failure], now: Time) -> Cause {
    let unix_seconds = now.seconds as f64 + f64::from(now.nanoseconds) / 1e9;
    let changed = failures.iter().filter_map(|failure| match &failure.refusal {
        Refusal::Changed(how) => Some((failure.path.clone(), (*how).to_owned())),
        Refusal::Errno(_) => None,
    });
    let changed: Vec<_> = changed.collect();
    if !changed.is_empty() {
        return Cause::Conflict(changed);
    }
    let errors = failures.iter().filter_map(|failure| match failure.refusal {
        Refusal::Errno(errno) => Some(DeferredError {
            operation: failure.step,
            path: failure.path.clone(),
            errno: errno.raw_os_error(),
            unix_seconds,
        }),
        Refusal::Changed(_) => None,
    });
    Cause::Deferred(errors.collect())
}
