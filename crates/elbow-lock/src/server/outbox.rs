//! What is to be sent to a session: written by whoever has a reply for it, sent by its connection's task.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::memory::{Memory, Room};
use crate::message::{LockId, Refusal, Reply};
use crate::wire;

/// A client that lets so many bytes of replies pile up reads no more, and is cut off.
const OUTBOX_BYTES_MAX: usize = 8 << 20;
/// So much every client may leave unread; for more there has to be room in the memory of the service.
const OUTBOX_BYTES_FREE: usize = 64 << 10;

/// One session's unsent replies.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// Of the service.
    memory: Memory,
    unsent: Mutex<Unsent>,
    /// The connection's task has something to do.
    pub(crate) wake: Notify,
    /// As in `unsent`, for a look at every request.
    has_ended: AtomicBool,
}

/// Whether anything more is said to a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ending {
    #[default]
    No,
    /// Its last words are that its session is over. It may use its locks until it has read them, and a moment longer.
    Announced,
    /// None: to its client the connection broke, and nothing is said of its locks.
    BrokenOff,
}

/// What the connection's task takes out.
#[derive(Debug, Default)]
pub(crate) struct Unsent {
    pub(crate) bytes: Vec<u8>,
    /// Locks that are no more without the client having said so: their names are free again.
    pub(crate) refused: Vec<LockId>,
    /// What it takes of the service's memory.
    room: Option<Room>,
    ending: Ending,
}

impl Unsent {
    fn is_in_bounds(&mut self, memory: &Memory) -> bool {
        let bytes = self.bytes.len() + size_of_val(&*self.refused);
        if bytes > OUTBOX_BYTES_MAX {
            return false;
        }
        bytes <= OUTBOX_BYTES_FREE || self.room.get_or_insert_with(|| memory.room()).grow_to(bytes)
    }

    fn end(&mut self, why: &str) {
        if self.ending == Ending::No {
            self.ending = Ending::Announced;
            wire::append_reply(&mut self.bytes, &Reply::Lost { why: why.to_owned() });
        }
    }

    fn cut_off(&mut self, why: &str) {
        if self.ending == Ending::No {
            self.bytes.clear();
            self.bytes.shrink_to(OUTBOX_BYTES_FREE);
            self.room = None;
            self.end(why);
        }
    }

    /// Empties it, and keeps what it needs usually for the next replies.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(OUTBOX_BYTES_FREE);
        self.refused.clear();
        self.refused.shrink_to(OUTBOX_BYTES_FREE / size_of::<LockId>());
        self.room = None;
    }
}

impl Outbox {
    pub(crate) fn new(memory: &Memory) -> Self {
        Self {
            memory: memory.clone(),
            unsent: Mutex::default(),
            wake: Notify::new(),
            has_ended: AtomicBool::new(false),
        }
    }

    /// Adds a reply. The task that sends is woken unless it is the caller (`to_self`).
    pub(crate) fn push(&self, reply: &Reply, to_self: bool) {
        let mut unsent = self.unsent.lock();
        if unsent.ending == Ending::No {
            if unsent.is_in_bounds(&self.memory) {
                wire::append_reply(&mut unsent.bytes, reply);
            } else {
                unsent.cut_off("it reads none of its answers");
                self.has_ended.store(true, Ordering::Release);
            }
        }
        match reply {
            // The name is that of another lock, which stays.
            Reply::Refused {
                why: Refusal::Duplicate,
                ..
            } => {}
            Reply::Refused { id, .. } => unsent.refused.push(*id),
            _ => {}
        }
        drop(unsent);
        if !to_self {
            self.wake.notify_one();
        }
    }

    /// Takes what is there; `spare` is left for what comes next.
    pub(crate) fn take(&self, mut spare: Unsent) -> Unsent {
        let mut unsent = self.unsent.lock();
        spare.ending = unsent.ending;
        std::mem::replace(&mut unsent, spare)
    }

    /// Ends the session: its last words are `why`.
    pub(crate) fn end(&self, why: &str) {
        self.unsent.lock().end(why);
        self.has_ended.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// As [`end`](Self::end), and what was to be said before is left out: the client takes nothing.
    pub(crate) fn cut_off(&self, why: &str) {
        self.unsent.lock().cut_off(why);
        self.has_ended.store(true, Ordering::Release);
    }

    /// Ends the connection without a word.
    pub(crate) fn disconnect(&self) {
        self.unsent.lock().ending = Ending::BrokenOff;
        self.has_ended.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Whether nothing more is to be taken from the client.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Whether more is to be said than what is there.
    pub(crate) fn ending(&self) -> Ending {
        self.unsent.lock().ending
    }
}
