//! What a job tells its [`Recorder`], if it has one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use elbow_file::Errno;
use parking_lot::Mutex;

use crate::action::Action;
use crate::api::Fetch;
use crate::recorder::{ActionRecord, EndStep, Recorder, WaitReason, WaitRecord, Worker};
use crate::step_counter::StepCounter;
use crate::tally::Pending;

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Recording {
    /// Nobody wants to know where there is none.
    recorder: Option<Arc<dyn Recorder>>,
    lanes: Mutex<Lanes>,
}

/// An action under way.
#[derive(Debug)]
pub(crate) struct BegunAction {
    operation: &'static str,
    path: PathBuf,
    bytes: u64,
    merged: u64,
    queued: Instant,
    began: Instant,
    worker: Worker,
}

impl Recording {
    pub(crate) fn new(recorder: Option<Arc<dyn Recorder>>) -> Self {
        Self {
            recorder,
            lanes: Mutex::default(),
        }
    }

    /// An action is about to be carried out on what has this path and has waited so long, by this thread or at the far end. `None`: nobody wants
    /// to know.
    pub(crate) fn begin(
        &self,
        about: impl FnOnce() -> (PathBuf, Option<Pending>),
        action: &Action,
        is_far: bool,
    ) -> Option<BegunAction> {
        self.recorder.as_ref()?;
        let (path, pending) = about();
        let worker = match is_far {
            true => Worker::Far(self.lanes.lock().take()),
            false => Worker::Thread(thread_number()),
        };
        // After that: whoever had the lane before has ended by then.
        let began = Instant::now();
        Some(BegunAction {
            operation: action.operation(),
            path,
            bytes: bytes_of(action),
            merged: pending.map_or(0, |pending| pending.merged),
            queued: pending.map_or(began, |pending| pending.since),
            began,
            worker,
        })
    }

    /// What came of it: the number of calls, or why it was refused.
    pub(crate) fn end(&self, begun: Option<&BegunAction>, result: Result<u64, Errno>) {
        let Some((recorder, begun)) = self.recorder.as_ref().zip(begun) else {
            return;
        };
        let ended = Instant::now();
        if let Worker::Far(lane) = begun.worker {
            self.lanes.lock().give_back(lane);
        }
        recorder.action(&ActionRecord {
            operation: begun.operation,
            path: &begun.path,
            bytes: begun.bytes,
            calls: result.unwrap_or(0),
            merged: begun.merged,
            queued: begun.queued,
            began: begun.began,
            ended,
            worker: begun.worker,
            refused: result.err(),
        });
    }

    /// Does for the command what it waits for, on what has this path and with so many bytes.
    pub(crate) fn waited<R>(
        &self,
        reason: Option<WaitReason>,
        path: impl FnOnce() -> PathBuf,
        bytes: u64,
        work: impl FnOnce() -> R,
    ) -> R {
        let Some((recorder, reason)) = self.recorder.as_ref().zip(reason) else {
            return work();
        };
        let (path, began) = (path(), Instant::now());
        let result = work();
        recorder.wait(&WaitRecord {
            reason,
            path: &path,
            bytes,
            began,
            ended: Instant::now(),
            thread: thread_number(),
        });
        result
    }

    /// Does a step of the end.
    pub(crate) fn step<R>(&self, step: EndStep, counter: &StepCounter, work: impl FnOnce() -> R) -> R {
        let Some(recorder) = &self.recorder else { return work() };
        recorder.step_begins(step);
        let result = work();
        let steps = counter.so_far();
        recorder.step_ends(step, steps.done, steps.bytes_done);
        result
    }
}

/// What an operation waits for that asks this of the storage; `None`: it is not asked yet.
pub(crate) fn reason_of(fetch: &Fetch) -> Option<WaitReason> {
    match fetch {
        Fetch::List(_) => Some(WaitReason::List),
        Fetch::Name(..) => Some(WaitReason::Lookup),
        Fetch::Attributes(_) | Fetch::Target(_) | Fetch::Xattrs(_) => Some(WaitReason::Attributes),
        Fetch::Open(_) => None,
        Fetch::Room(_) => Some(WaitReason::Memory),
        Fetch::Space => Some(WaitReason::Space),
        Fetch::Ability(_) | Fetch::FileSystemTraits | Fetch::Moves(_) | Fetch::Writable(_) => Some(WaitReason::Trial),
    }
}

fn bytes_of(action: &Action) -> u64 {
    match action {
        Action::Create { fill, .. } | Action::Fill { fill, .. } => fill.bytes(),
        _ => 0,
    }
}

fn thread_number() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// Numbers for what is under way at once: always the lowest that is free.
#[derive(Debug, Default)]
struct Lanes {
    free: BinaryHeap<Reverse<u32>>,
    used: u32,
}

impl Lanes {
    fn take(&mut self) -> u32 {
        match self.free.pop() {
            Some(Reverse(lane)) => lane,
            None => {
                self.used += 1;
                self.used - 1
            }
        }
    }

    fn give_back(&mut self, lane: u32) {
        self.free.push(Reverse(lane));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_lane_is_taken() {
        let mut lanes = Lanes::default();
        assert_eq!([lanes.take(), lanes.take(), lanes.take()], [0, 1, 2]);
        lanes.give_back(2);
        lanes.give_back(0);
        assert_eq!([lanes.take(), lanes.take(), lanes.take()], [0, 2, 3]);
    }
}
