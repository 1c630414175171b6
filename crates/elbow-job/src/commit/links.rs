//! Further names of files, which they get once all have the names that they keep.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::atomic::Ordering;

use elbow_file::{Errno, RenameMode};

use super::apply::{Apply, Linked, OF_OTHERS};
use super::failure::{Failure, Refusal, StepResult};
use super::record::Expected;
use crate::action::LinkedObject;
use crate::lost_answers::{self, Name, is_unsupported};

const REPLACED: Refusal = Refusal::Changed("it was to be another name of a file that somebody else has replaced");

impl Apply<'_> {
    pub(super) fn link_all(&self, is_wanted: impl Fn(&Path) -> bool) -> Result<(), Vec<Failure>> {
        let all = self.record.links.iter().zip(&self.linked);
        let links: Vec<_> = all.filter(|((_, to), _)| is_wanted(to)).collect();
        self.each(
            "link",
            &links,
            |((_, to), _)| to,
            |((from, to), linked)| self.link(from, to, linked),
        )
    }

    fn link(&self, from: &Path, to: &Path, linked: &Linked) -> StepResult {
        let seen = self.seen_of_link(from);
        let ((from, name), (to, new_name)) = (self.tree.parent_of(from)?, self.tree.parent_of(to)?);
        let (old, new) = ((&from, name.as_os_str()), (&to, new_name.as_os_str()));
        if !self.was_linked(old, new, &linked.slot)? {
            match self.link_by_slot(old, new, &linked.slot, seen) {
                Some(made) => made?,
                None => self.link_at_once(old, new, seen)?,
            }
        }
        linked.is_made.store(true, Ordering::Release);
        Ok(())
    }

    /// What is known of a file that is not changed, at a name that it keeps.
    fn seen_of_link(&self, path: &Path) -> Option<&LinkedObject> {
        let (expected, before) = (&self.record.expected, self.record.before.objects.get(path)?);
        let begin = expected.partition_point(|(known, _)| known < before);
        let of_path = expected[begin..].iter().take_while(|(known, _)| known == before);
        let mut linked = of_path.filter_map(|(_, expected)| match expected {
            Expected::Linked(seen) => Some(seen),
            _ => None,
        });
        linked.next().filter(|_| !self.record.wins)
    }

    /// Has an attempt before this one made the link? As long as it waits in its slot, whoever has the name is somebody else.
    fn was_linked(&self, old: Name<'_>, new: Name<'_>, slot: &OsStr) -> Result<bool, Errno> {
        let waits_no_more = !self.is_first() && self.look(&self.job, slot)?.is_none();
        Ok(waits_no_more && self.may_be_one(old, new)?)
    }

    /// Links under a name that nobody else knows, and gives that its own: somebody else's link of the same file is told from an own one
    /// whose answer was lost by what waits. `None`: the storage cannot do so.
    fn link_by_slot(
        &self,
        old: Name<'_>,
        new: Name<'_>,
        slot: &OsStr,
        seen: Option<&LinkedObject>,
    ) -> Option<StepResult> {
        let waiting = (&self.job, slot);
        if self.no_noreplace.load(Ordering::Relaxed) || lost_answers::link(self.storage(), old, waiting).is_err() {
            return None;
        }
        if let Err(refusal) = self.expect_linked(waiting, seen) {
            return Some(Err(refusal));
        }
        match lost_answers::rename(self.storage(), waiting, new, RenameMode::NoReplace) {
            Err(errno) if is_unsupported(errno) => {
                self.no_noreplace.store(true, Ordering::Relaxed);
                // It would go with the job's directory; whoever is kept has no use for it.
                let _ = self.storage().unlink(waiting.0, waiting.1);
                None
            }
            renamed => Some(renamed.map_err(refusal_of)),
        }
    }

    fn link_at_once(&self, old: Name<'_>, new: Name<'_>, seen: Option<&LinkedObject>) -> StepResult {
        // Of the same file, too, it is another's: only what is not there now can come from an answer that is lost.
        if self.is_first() && self.storage().stat(new.0, new.1).is_ok() {
            return Err(OF_OTHERS);
        }
        lost_answers::link(self.storage(), old, new).map_err(refusal_of)?;
        self.expect_linked(new, seen)
    }

    /// Takes a link away again that has become one of another file: who replaced the old one had no turn to wait for.
    fn expect_linked(&self, made: Name<'_>, seen: Option<&LinkedObject>) -> StepResult {
        let Some(seen) = seen else { return Ok(()) };
        let refusal = match self.storage().stat(made.0, made.1) {
            Ok(now) if seen.is(&now, || self.storage().file_system_traits(&self.tree.root)) => return Ok(()),
            Ok(_) => REPLACED,
            Err(errno) => errno.into(),
        };
        // Whoever takes the commit back knows of no link that was refused.
        self.storage().unlink(made.0, made.1)?;
        Err(refusal)
    }
}

fn refusal_of(errno: Errno) -> Refusal {
    match errno {
        Errno::EXIST => OF_OTHERS,
        errno => errno.into(),
    }
}
