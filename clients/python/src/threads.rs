//! Threads that wait for the lock service so that others need not.
//!
//! As many as there are waits, because a bound could let those who hold a lock wait behind those who wait for it. A
//! thread without work is kept for a while.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SendError, SyncSender, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;

/// How long a thread without work is kept.
const IDLE_FOR: Duration = Duration::from_secs(10);
/// They do little more than read a socket.
const STACK_BYTES: usize = 256 << 10;

type Work = Box<dyn FnOnce() + Send>;

/// The threads of one session; all end when it is dropped and their work is done.
#[derive(Default)]
pub(crate) struct Threads {
    idle: Mutex<IdleThreads>,
}

#[derive(Default)]
struct IdleThreads {
    last_number: u64,
    /// The last that became idle comes first: its stack is still in the cache.
    senders: Vec<(u64, SyncSender<Work>)>,
}

impl Threads {
    /// Has some thread do `work`.
    pub(crate) fn run(self: &Arc<Self>, work: Work) -> io::Result<()> {
        let sender = self.idle.lock().senders.pop();
        let Some((_, sender)) = sender else {
            return self.start(work);
        };
        match sender.send(work) {
            Ok(()) => Ok(()), // Who is in the list takes what it is sent.
            Err(SendError(work)) => self.start(work),
        }
    }

    fn start(self: &Arc<Self>, work: Work) -> io::Result<()> {
        let threads = Arc::downgrade(self);
        let serve = move || {
            let mut next = Some(work);
            while let Some(work) = next.take() {
                work();
                let Some((number, sender)) = threads.upgrade().map(|threads| threads.rest()) else {
                    return;
                };
                next = match sender.recv_timeout(IDLE_FOR) {
                    Ok(work) => Some(work),
                    Err(RecvTimeoutError::Disconnected) => None,
                    Err(RecvTimeoutError::Timeout) => match threads.upgrade() {
                        Some(threads) if threads.leave(number) => None,
                        _ => sender.recv().ok(), // Somebody is about to send.
                    },
                };
            }
        };
        let builder = std::thread::Builder::new().name("elbow-wait".to_owned());
        builder.stack_size(STACK_BYTES).spawn(serve).map(|_| ())
    }

    fn rest(&self) -> (u64, Receiver<Work>) {
        let (sender, receiver) = sync_channel(1);
        let mut idle = self.idle.lock();
        idle.last_number += 1;
        let number = idle.last_number;
        idle.senders.push((number, sender));
        (number, receiver)
    }

    /// Takes a thread off the list, if it is still there.
    fn leave(&self, number: u64) -> bool {
        let mut idle = self.idle.lock();
        let before = idle.senders.len();
        idle.senders.retain(|(other, _)| *other != number);
        idle.senders.len() < before
    }
}
