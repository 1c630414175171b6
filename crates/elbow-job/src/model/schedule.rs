//! When an object comes up to be stored: it rests after each change, waits for others, and is done.
//!
//! ```text
//!   Idle  --changed-->  Queued  --rested-->  Running  --nothing left-->  Idle
//!                          ^                    |
//!                          +---- waits for <----+
//! ```
//!
//! Invariants: an object whose work is not idle is in the queue, waits for a slot to be created in, waits for another
//! or is under way, each once; [`Graph`] counts them.
//!
//! Not here: what is to be done of it then ([`crate::plan`]).

use elbow_file::Time;

use super::{EAGER_DRAIN_BYTES, Inode, Inodes, Staging, Work};
use crate::api::Ino;
use crate::graph::Graph;
use crate::report::Counts;

/// See the module's header.
pub(crate) struct Scheduler<'a> {
    pub(super) inodes: &'a mut Inodes,
    pub(super) graph: &'a mut Graph,
    pub(super) counts: &'a mut Counts,
    /// The time of the step under way.
    pub(super) now: Time,
}

impl Scheduler<'_> {
    /// Counts a modifying operation on an object and queues the work that follows from it.
    pub(crate) fn touched(&mut self, ino: Ino) {
        self.counts.operations += 1;
        if self.inodes.at(ino).work == Work::Queued {
            self.counts.merged += 1;
            if let Some(tally) = &mut self.graph.tally {
                tally.merged(ino);
            }
        }
        self.queue(ino);
    }

    /// Queues an object unless it is waiting already.
    pub(crate) fn queue(&mut self, ino: Ino) {
        let Ok(inode) = self.inodes.get_mut(ino) else { return };
        match inode.work {
            Work::Idle => {
                inode.work = Work::Queued;
                self.graph.working += 1;
                self.graph.unpark(ino);
                self.graph.push(ino, self.now);
                self.note_queued(ino);
            }
            Work::Queued | Work::Running => {}
        }
    }

    fn note_queued(&mut self, ino: Ino) {
        if let Some(tally) = &mut self.graph.tally {
            tally.queued(ino);
        }
    }

    /// The job's own directory is needed now.
    pub(crate) fn stage_root(&mut self) {
        let root = self.inodes.dir_at_mut(Ino::ROOT);
        if root.staging == Staging::None {
            root.staging = Staging::Wanted;
        }
        let root = self.inodes.at_mut(Ino::ROOT);
        if root.work == Work::Idle {
            root.work = Work::Queued;
            self.graph.working += 1;
            self.graph.push_next(Ino::ROOT);
            self.note_queued(Ino::ROOT);
        }
    }

    /// The next object for a worker: the first that has rested and need not wait for a slot to be created in.
    pub(crate) fn next_work(&mut self) -> Option<Ino> {
        while self.graph.is_ready(self.now) {
            let ino = self.graph.take(0)?;
            match self.arrives_in(ino) {
                Some(dir) if !self.graph.take_slot(ino, dir) => {}
                _ => return Some(ino),
            }
        }
        None
    }

    /// The directory that a new object has to be created in.
    fn arrives_in(&self, ino: Ino) -> Option<Ino> {
        let inode = self.inodes.get(ino).ok()?;
        let key = inode.names().first()?;
        (inode.placed().is_empty() && !inode.is_old()).then_some(key.dir)
    }

    /// Has an object rested long enough since its last change, or is there too much of it to wait?
    pub(crate) fn rested(&self, ino: Ino) -> bool {
        let Ok(inode) = self.inodes.get(ino) else { return true };
        let large = inode
            .content()
            .is_some_and(|content| content.dirty_bytes() >= EAGER_DRAIN_BYTES);
        large || inode.is_old() || self.graph.has_rested(inode.ctime, self.now)
    }

    /// The object needs nothing now, or nothing before it is closed.
    pub(crate) fn rest(&mut self, ino: Ino) {
        let Ok(inode) = self.inodes.get_mut(ino) else { return };
        let before = std::mem::replace(&mut inode.work, Work::Idle);
        self.graph.working -= u64::from(before != Work::Idle);
        // One that came up and needed nothing, or only to be cancelled, was never stored.
        let is_parked = self.graph.is_parked(ino);
        self.counts.objects_stored += u64::from(before == Work::Running && !is_parked);
        if let Some(tally) = self.graph.tally.as_mut().filter(|_| !is_parked) {
            tally.take(ino);
        }
    }

    /// Puts an object that changed just now to the end of the queue.
    pub(crate) fn rest_again(&mut self, ino: Ino) {
        self.graph.push(ino, self.now);
    }

    /// Memory is short: files that are kept open come up too.
    pub(crate) fn wake_parked(&mut self) {
        for ino in self.graph.take_parked() {
            self.queue(ino);
        }
    }

    /// From now on everything goes to the storage at once, open files included.
    pub(crate) fn flush(&mut self) {
        self.graph.flush = true;
        self.graph.take_parked();
        self.queue_all(|inode| inode.has_work(false));
    }

    /// Nothing but names changes from here on: of objects that the storage has.
    pub(crate) fn finish_names(&mut self) {
        self.graph.only_names = true;
        self.graph.nameless.clear();
        self.queue_all(Inode::only_lacks_names);
    }

    /// All content is there: directories get their final attributes.
    pub(crate) fn finish_directories(&mut self) {
        self.graph.finishing = true;
        self.queue_all(|inode| inode.has_work(true));
    }

    fn queue_all(&mut self, which: impl Fn(&Inode) -> bool) {
        let all: Vec<Ino> = self
            .inodes
            .all()
            .filter(|(_, inode)| which(inode))
            .map(|(ino, _)| ino)
            .collect();
        all.into_iter().for_each(|ino| self.queue(ino));
    }

    /// Whoever waited for an object is asked again.
    pub(crate) fn wake_waiters(&mut self, ino: Ino) {
        for waiter in self.graph.take_waiters(ino) {
            if let Ok(inode) = self.inodes.get_mut(waiter) {
                inode.work = Work::Queued;
                self.graph.push_next(waiter);
            }
        }
    }

    /// An object waits for another, which is brought up if it is idle.
    pub(crate) fn block(&mut self, ino: Ino, on: Ino) {
        if let Ok(inode) = self.inodes.get_mut(ino) {
            inode.work = Work::Queued;
        }
        self.graph.wait_for(ino, on);
        self.note_queued(ino);
        self.queue(on);
    }
}
