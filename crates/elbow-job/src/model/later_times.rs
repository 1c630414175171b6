//! Changes that are to be seen as such where times are whole seconds.
//!
//! Whether somebody has written to a file meanwhile is told by its size and the time of its content. Over SFTP, and on an ext2 with small
//! inodes, two versions of one second have the same time, and who has seen the first would overwrite the second without a word. So
//! there a version is a second later than the one before, where it is not later by itself.

use std::path::Path;

use elbow_file::{Stat, Time};

use super::{Inode, Model};
use crate::api::Ino;

impl Model {
    /// What comes to the path of an old file and is not later than it by whole seconds, with the time that is. Nothing is changed yet: whether
    /// times are whole seconds is known to [`Behaviour::WholeSeconds`](crate::Behaviour::WholeSeconds).
    pub(crate) fn later_times(&self) -> Vec<(Ino, Time)> {
        let olds = self.inodes.all().filter_map(|(ino, inode)| {
            let old = inode.old.as_ref()?;
            // Most are older than the job, and need not be looked for by their paths.
            let is_young =
                |seen: &&Stat| seen.mtime.nanoseconds == 0 && seen.mtime.seconds >= self.config.began.seconds;
            let seen = old.seen.as_ref().filter(is_young)?;
            (!inode.is_dir()).then_some((ino, old.names(), seen))
        });
        let mut later = Vec::new();
        for (ino, names, seen) in olds {
            for key in names.iter() {
                let path = self.inodes.old_path(key.dir).join(&*key.name);
                let next = self.at_path(&path).filter(|next| self.hides((ino, seen), *next));
                let time = Time {
                    seconds: seen.mtime.seconds + 1,
                    nanoseconds: 0,
                };
                later.extend(next.map(|next| (next, time)));
            }
        }
        later
    }

    /// Each of these gets that time, or keeps a later one.
    pub(crate) fn set_later_times(&mut self, later: Vec<(Ino, Time)>) {
        for (ino, time) in later {
            let inode = self.inodes.at_mut(ino);
            inode.mtime = inode.mtime.max(time);
            inode.dirty.times = true;
            self.scheduler().touched(ino);
        }
    }

    /// Whether an object at the path of this old one would be taken for it, or for one that was there before it.
    fn hides(&self, (old, seen): (Ino, &Stat), next: Ino) -> bool {
        let inode = self.inodes.at(next);
        if next == old && !is_written(inode, seen) {
            return false;
        }
        // A time that was given by a change is not before the beginning of the job. An older one has been kept, or set, on purpose.
        (self.config.began.seconds..=seen.mtime.seconds).contains(&inode.mtime.seconds)
    }

    fn at_path(&self, path: &Path) -> Option<Ino> {
        path.iter().try_fold(Ino::ROOT, |dir, name| {
            self.inodes.get(dir).ok()?.dir().ok()?.entries().get(name).copied()
        })
    }
}

fn is_written(inode: &Inode, seen: &Stat) -> bool {
    inode.size != seen.size || inode.content().is_some_and(|content| content.changed())
}
