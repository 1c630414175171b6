//! Threads that may block, for the requests that cannot be answered at once.
//!
//! Threads are started when a task finds none idle, up to the limit, and stay. The queue needs no bound of its
//! own: every task is a request that the kernel waits for, and the kernel has at most one such request per
//! thread of the command, plus `max_background` of its own.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

type Task = Box<dyn FnOnce() + Send>;

/// A bounded set of threads with one queue.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    name: &'static str,
    threads_max: usize,
}

#[derive(Default)]
struct Shared {
    state: Mutex<PoolState>,
    wake: Condvar,
}

#[derive(Default)]
struct PoolState {
    queue: VecDeque<Task>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Pool {
    pub(crate) fn new(name: &'static str, threads_max: usize) -> Self {
        Self {
            shared: Arc::default(),
            name,
            threads_max,
        }
    }

    /// Runs a task on one of the threads, after those that came before it.
    pub(crate) fn run(&self, task: impl FnOnce() + Send + 'static) {
        let mut state = self.shared.state.lock();
        state.queue.push_back(Box::new(task));
        // Idle threads are woken before one is started, but not for more tasks than there are of them.
        if state.queue.len() > state.idle && state.threads < self.threads_max {
            state.threads += 1;
            drop(state);
            self.start();
        } else {
            self.shared.wake.notify_one();
        }
    }

    /// A thread that cannot be started leaves the task to the others; with no others it runs here.
    fn start(&self) {
        let shared = self.shared.clone();
        let started = std::thread::Builder::new()
            .name(self.name.into())
            .spawn(move || shared.work());
        if started.is_err() {
            let mut state = self.shared.state.lock();
            state.threads -= 1;
            // Nobody else would ever take it.
            let orphan = if state.threads == 0 {
                state.queue.pop_front()
            } else {
                None
            };
            drop(state);
            if let Some(task) = orphan {
                task();
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.state.lock().closed = true;
        self.shared.wake.notify_all();
    }
}

impl Shared {
    fn work(&self) {
        while let Some(task) = self.next() {
            task();
        }
    }

    /// The next task; `None` when the pool is gone and its queue empty.
    fn next(&self) -> Option<Task> {
        let mut state = self.state.lock();
        loop {
            if let Some(task) = state.queue.pop_front() {
                return Some(task);
            }
            if state.closed {
                return None;
            }
            state.idle += 1;
            self.wake.wait(&mut state);
            state.idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Barrier, mpsc};

    use super::*;

    #[test]
    fn blocked_tasks_do_not_hold_up_others_below_the_limit() {
        let pool = Pool::new("test", 4);
        let barrier = Arc::new(Barrier::new(4));
        let (done, finished) = mpsc::channel();
        for _ in 0..4 {
            let (barrier, done) = (barrier.clone(), done.clone());
            pool.run(move || {
                barrier.wait();
                done.send(()).expect("the test waits");
            });
        }
        for _ in 0..4 {
            finished.recv().expect("all four met at the barrier");
        }
    }

    #[test]
    fn never_more_threads_than_the_limit_and_every_task_runs() {
        let pool = Pool::new("test", 2);
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (done, finished) = mpsc::channel();
        for _ in 0..100 {
            let (now, most, done) = (now.clone(), most.clone(), done.clone());
            pool.run(move || {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::yield_now();
                now.fetch_sub(1, Ordering::SeqCst);
                done.send(()).expect("the test waits");
            });
        }
        drop(done);
        assert_eq!(finished.iter().count(), 100);
        assert!(most.load(Ordering::SeqCst) <= 2);
    }
}
