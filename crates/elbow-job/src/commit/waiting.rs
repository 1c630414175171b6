//! Where an old object waits on its way from one directory to another.
//!
//! In the job's own directory, as a rule. What is on another device (in a subvolume) cannot go there, and waits under a hidden name in a
//! directory of its own device. That one must be where it is said to be when the object leaves its name, and again when it gets its new
//! one, whatever else departs and is placed meanwhile:
//!
//! ```text
//!   1  the directory that it leaves           if that, and all above it, stay where they are
//!   2  the old directory that it goes below   the same; in either the command may rename, so no right is needed that it had not
//!   3  the next above the first that stays    departures are deepest first: nothing above an object has left before it
//!   4  the root of the subvolume              above both names: moved itself, it leaves after the object and is placed before it
//! ```

use std::ffi::OsStr;

use super::record::Slot;
use crate::api::Ino;
use crate::model::Model;

/// An old directory in which something waits that goes from the old directory `from` to `to`; both are on its device.
pub(super) fn waiting_dir(model: &Model, from: Ino, to: Ino) -> Ino {
    let below = old_dir_above(model, to);
    if let Some(dir) = [from, below].into_iter().find(|dir| stays(model, *dir)) {
        return dir;
    }
    let mut at = from;
    while !stays(model, at) && !model.inodes.is_bound(at) {
        at = old_name_of(model, at).dir;
    }
    at
}

/// The slot in a directory, as the departure names it and as the placement does.
pub(super) fn slots_in(model: &Model, dir: Ino, name: &OsStr) -> (Slot, Slot) {
    let at = |path| Slot::At(path, name.to_owned());
    (at(model.inodes.old_path(dir)), at(model.inodes.path(dir)))
}

fn old_dir_above(model: &Model, dir: Ino) -> Ino {
    let mut at = dir;
    while !model.inodes.at(at).is_old() {
        at = model.inodes.at(at).names()[0].dir;
    }
    at
}

fn old_name_of(model: &Model, dir: Ino) -> &crate::model::EntryKey {
    &model.inodes.at(dir).old.as_ref().expect("an old directory").names()[0]
}

/// Neither an old directory nor any above it gets another name.
fn stays(model: &Model, dir: Ino) -> bool {
    let mut at = dir;
    while at != Ino::ROOT {
        let inode = model.inodes.at(at);
        let before = inode.old_name();
        match inode.names().first() {
            Some(key) if Some(key) == before => at = key.dir,
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit::draft::draft;
    use crate::crash_test::begin;
    use crate::options::Publish;
    use crate::scenes_test::Scene;
    use crate::schedule_test::{InJob, scratch};

    /// What the enumerations of deaths and refusals go through is not always one and the same of them.
    #[test]
    fn the_scene_with_subvolumes_waits_in_each_kind_of_directory() {
        let (temp, scene) = (scratch(), Scene::subvolumes(Publish::Staged));
        (scene.old_tree)(temp.path());
        let job = begin(scene.storage.clone(), temp.path(), scene.publish);
        for op in (scene.operations)() {
            InJob(&job).run(&op).unwrap_or_else(|errno| panic!("{op:?}: {errno}"));
        }
        let record = draft(&job.shared.state.lock().model, false);
        let waits_in = |path: &str| {
            let mut departures = record.departures.iter();
            let departure = departures.find(|departure| departure.path.as_os_str() == path);
            match &departure.expect("it departs").slot {
                Slot::At(dir, _) => dir.to_str().map(str::to_owned),
                _ => None,
            }
        };
        let expected = [
            ("sub/z/stays", Some("sub/z")),
            ("sub/b/c", Some("sub/z")),
            ("sub/a/f", Some("sub")),
            ("sub/inner/f", Some("sub/inner")),
            ("sub/inner", None),
        ];
        for (path, dir) in expected {
            assert_eq!(waits_in(path).as_deref(), dir, "{path}");
        }
        job.roll_back(false, &mut |_| {}).unwrap();
    }
}
