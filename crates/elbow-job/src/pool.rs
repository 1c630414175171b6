//! The threads that execute actions; how many, `concurrency` says.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use elbow_file::{Errno, FarEnd, Time};
use tracing::warn;

use crate::action::Action;
use crate::action_span::{self, ActionSpan};
use crate::api::Ino;
use crate::clock::clock;
use crate::complete::Done;
use crate::execute::{Executor, Journal};
use crate::far_orders::Context;
use crate::far_send::{self, FarAnswered, FarDone};
use crate::fetch::Fetcher;
use crate::model::Work;
use crate::plan::Plan;
use crate::recording::BegunAction;
use crate::report::DeferredError;
use crate::shared::{Shared, SharedState};

/// Threads that fetch the attributes of one directory that is listed ahead; there are many such directories.
const PRELIST_STAT_THREADS: usize = 4;
/// Threads need no deep stacks.
const STACK_BYTES: usize = 256 << 10;
/// How much workers stand back behind the command when processors are short.
const WORKER_NICENESS: i32 = 5;
/// At most this many background errors are kept; one is enough to end a job.
const ERRORS_MAX: usize = 1000;

/// What is known of an action when it begins.
struct ActionStart {
    /// The path of a directory that its journal entry names.
    journal_path: std::path::PathBuf,
    /// The times of the object.
    times_before: (Time, Time),
    /// What its record begins with, if there is to be one.
    begun: Option<BegunAction>,
}

impl SharedState {
    /// From here on an action is under way.
    fn begin_action(&mut self, shared: &Shared, ino: Ino, action: &Action) -> ActionStart {
        if let Ok(inode) = self.model.inodes.get_mut(ino) {
            inode.work = Work::Running;
        }
        let by = action.keys().flat_map(|key| self.model.routes().walked(key)).collect();
        self.model.graph.hold(ino, action.keys());
        self.model.graph.walk(ino, by);
        let left = self.model.graph.left();
        self.pool.meter.begin(left);
        let journal_path = match action {
            Action::Stage { .. } => self.model.inodes.old_path(ino),
            Action::Create { at, .. } | Action::Move { to: at, .. } | Action::Link { to: at, .. } if at.visible => {
                self.model.inodes.old_path(at.key.dir)
            }
            _ => std::path::PathBuf::new(),
        };
        let inode = self.model.inodes.get(ino);
        let times_before = inode.map(|inode| inode.times_before()).unwrap_or_default();
        let about = || {
            let pending = self.model.graph.tally.as_mut().and_then(|tally| tally.take(ino));
            (self.model.inodes.path(ino), pending)
        };
        let is_far = shared.storage.far_end().is_some();
        let begun = shared.recording.begin(about, action, is_far);
        ActionStart {
            journal_path,
            times_before,
            begun,
        }
    }
}

impl Shared {
    /// Sees to it that somebody looks after the queue.
    pub(crate) fn call_worker(self: &Arc<Self>, state: &mut SharedState) {
        #[cfg(test)]
        if state.pool.by_hand {
            return;
        }
        let has_other = !state.model.closing.is_empty() || state.model.prelist.is_ready();
        let at_once = has_other || !state.pool.answers.is_empty();
        let graph = &state.model.graph;
        if !at_once
            && (state.pool.is_full()
                || graph.queued() == 0
                || state.pool.timekeeper && !graph.is_ready(state.model.now))
        {
            return;
        }
        if state.pool.idle > 0 {
            self.work.notify_one();
        } else {
            self.start_worker(state);
        }
    }

    fn start_worker(self: &Arc<Self>, state: &mut SharedState) {
        if state.pool.threads >= state.pool.limit() || state.pool.shut_down {
            return;
        }
        state.pool.threads += 1;
        let shared = self.clone();
        let started = std::thread::Builder::new()
            .name("elbow-drain".into())
            .stack_size(STACK_BYTES)
            .spawn(move || shared.work());
        if started.is_err() {
            state.pool.threads -= 1;
            assert!(state.pool.threads > 0, "not even one thread could be started");
        }
    }

    fn work(self: Arc<Self>) {
        // The command and its front end go first; only this thread is meant (nice(2) on Linux).
        let _ = rustix::process::nice(WORKER_NICENESS);
        let mut state = self.state.lock();
        while !state.pool.shut_down {
            let now = clock();
            state.model.now = now;
            if let Some((ino, handle)) = state.model.closing.pop() {
                self.call_worker(&mut state);
                self.close(&mut state, ino, &handle);
                continue;
            }
            if let Some(answered) = state.pool.answers.pop_front() {
                self.call_worker(&mut state);
                self.answered(&mut state, answered);
                continue;
            }
            let is_full = state.pool.is_full();
            match (!is_full).then(|| state.model.scheduler().next_work()).flatten() {
                Some(ino) => {
                    self.call_worker(&mut state);
                    self.visit(&mut state, ino);
                }
                None => match state.model.prelist.pop() {
                    Some(ino) => self.list_ahead(&mut state, ino),
                    None => self.rest(&mut state),
                },
            }
        }
        state.pool.threads -= 1;
    }

    /// Lists a directory that the command will want to read.
    fn list_ahead(self: &Arc<Self>, state: &mut parking_lot::MutexGuard<'_, SharedState>, ino: Ino) {
        self.call_worker(state);
        let listed = parking_lot::MutexGuard::unlocked(state, || Fetcher::of(self).list(ino, PRELIST_STAT_THREADS));
        // A directory that cannot be listed is the command's to find out, if it gets that far.
        if listed.is_ok() && state.model.refuse.is_none() {
            let model = &mut state.model;
            model.prelist.note_listed(&mut model.inodes, ino);
        }
    }

    /// Closes a descriptor without the lock.
    fn close(&self, state: &mut parking_lot::MutexGuard<'_, SharedState>, ino: Ino, handle: &elbow_file::Handle) {
        state.model.graph.running += 1;
        state.pool.closing += 1;
        let closed = parking_lot::MutexGuard::unlocked(state, || self.storage.close(handle));
        state.pool.closing -= 1;
        if let Err(errno) = closed {
            // What was written counts as stored; some network file systems tell only now that it is not.
            state.is_lost = true;
            self.fail(state, ino, "close", errno);
        }
        state.model.graph.running -= 1;
        self.progress.notify_all();
    }

    /// Closes files of the storage that are still open for processes that the command has left behind: NFS and FUSE file systems keep a
    /// hidden name of an open file that is removed, and so the directory that it is in. What that tells is among the errors; gives the same as
    /// [`close_rest`](Self::close_rest).
    pub(crate) fn close_files(self: &Arc<Self>) -> bool {
        let mut state = self.state.lock();
        state.files_are_closed = true;
        state.model.close_files();
        drop(state);
        self.close_rest()
    }

    /// Closes what is left to be closed after a stop, and waits for workers that close some of it. Has the storage told that it lost
    /// something that it had taken?
    pub(crate) fn close_rest(self: &Arc<Self>) -> bool {
        let mut state = self.state.lock();
        loop {
            while let Some((ino, handle)) = state.model.closing.pop() {
                if !state.pool.shut_down {
                    self.call_worker(&mut state); // each may take a round trip
                }
                self.close(&mut state, ino, &handle);
            }
            if state.pool.closing == 0 {
                return state.is_lost;
            }
            self.progress.wait(&mut state);
        }
    }

    /// Waits for work; one thread at a time watches for the first object to have rested.
    fn rest(&self, state: &mut parking_lot::MutexGuard<'_, SharedState>) {
        let next = state.model.graph.next_ready_ns(clock());
        let ready = next.filter(|_| !state.pool.is_full());
        state.pool.idle += 1;
        match ready {
            Some(nanoseconds) if !state.pool.timekeeper => {
                state.pool.timekeeper = true;
                self.work.wait_for(state, Duration::from_nanos(nanoseconds.max(1)));
                state.pool.timekeeper = false;
            }
            _ => self.work.wait(state),
        }
        state.pool.idle -= 1;
    }

    /// Brings one object as far as it can be brought now.
    fn visit(self: &Arc<Self>, state: &mut parking_lot::MutexGuard<'_, SharedState>, ino: Ino) {
        state.model.graph.running += 1;
        state.model.graph.visited.insert(ino);
        let pressure = state.waiting_for_room > 0;
        if !pressure && !state.model.scheduler().rested(ino) {
            state.model.scheduler().rest_again(ino);
            return self.end_visit(state, ino);
        }
        self.visit_steps(state, ino);
    }

    fn end_visit(&self, state: &mut SharedState, ino: Ino) {
        state.model.graph.visited.remove(&ino);
        state.model.graph.free_slot(ino);
        state.model.graph.running -= 1;
        self.progress.notify_all();
    }

    /// Goes on with a visit until it is over, or an action is on its way to the far end: then the visit goes on when its answer has come.
    fn visit_steps(self: &Arc<Self>, state: &mut parking_lot::MutexGuard<'_, SharedState>, ino: Ino) {
        loop {
            if state.model.graph.stopped {
                state.model.settle(ino);
                break;
            }
            let pressure = state.waiting_for_room > 0;
            match state.model.planner(pressure).plan(ino) {
                Plan::Release => {
                    state.model.release_memory(ino);
                    state.model.settle(ino);
                    break;
                }
                Plan::Nothing => {
                    state.model.settle(ino);
                    break;
                }
                Plan::Blocked(on) => {
                    state.model.scheduler().block(ino, on);
                    // Were the wait a mistake of ours that goes round for ever, an interrupt would still be heard.
                    parking_lot::MutexGuard::bump(state);
                    break;
                }
                Plan::Do(action) => match self.storage.far_end() {
                    Some(far) => return self.order(far, state, ino, &action.into()),
                    None => self.act(state, ino, &action),
                },
            }
        }
        self.end_visit(state, ino);
    }

    /// An action is over.
    fn end_action(
        self: &Arc<Self>,
        state: &mut SharedState,
        ino: Ino,
        action: &Action,
        result: Result<Done, Errno>,
        took: Duration,
    ) {
        let left = state.model.graph.left();
        state.pool.meter.end(left);
        let calls = result.as_ref().map_or(1, |done| done.calls.max(1));
        let calls = u32::try_from(calls).unwrap_or(u32::MAX);
        state.pool.note_latency(took / calls);
        state.model.now = clock();
        state.model.graph.let_go(action.keys());
        state.model.graph.arrive(ino);
        match result {
            Ok(done) => state.model.complete(ino, action, done),
            // The directory that it was to be in could not be made, which that one's answer tells: the visit goes on, and finds out.
            Err(Errno::CANCELED) if self.storage.far_end().is_some() => state.model.not_done(ino, action),
            Err(errno) => {
                state.is_lost |= state.model.casts_doubt(ino, action, errno);
                state.model.not_done(ino, action);
                self.fail(state, ino, action.refused_operation(errno), errno);
            }
        }
        state.model.scheduler().wake_waiters(ino);
    }

    /// Executes one action without the lock.
    fn act(self: &Arc<Self>, state: &mut parking_lot::MutexGuard<'_, SharedState>, ino: Ino, action: &Action) {
        let ActionStart {
            journal_path,
            times_before,
            begun,
        } = state.begin_action(self, ino, action);
        let written = Cell::new(0);
        let told = ActionSpan::of(action.operation(), || state.model.inodes.path(ino));
        let (result, took) = parking_lot::MutexGuard::unlocked(state, || {
            let _telling = told.begin();
            let started = Instant::now();
            let executor = Executor {
                storage: &*self.storage,
                staging_name: &self.staging_name,
                part_name: &self.part_name,
                journal: &self.journal,
                manifest: &|home| self.manifest(home),
                lock: &self.lock,
                journal_path,
                times_before,
                arrived: &|| {
                    let mut state = self.state.lock();
                    state.model.graph.free_slot(ino);
                    self.call_worker(&mut state);
                },
                wrote: &|bytes| {
                    written.set(written.get() + bytes);
                    self.arriving.fetch_add(bytes, Ordering::Relaxed);
                },
            };
            let result = executor.run(action);
            let took = started.elapsed();
            let told = calls_of(&result);
            action_span::ended(told, took);
            self.recording.end(begun.as_ref(), told);
            (result, took)
        });
        self.arriving.fetch_sub(written.get(), Ordering::Relaxed); // from here on the model knows
        self.end_action(state, ino, action, result, took);
    }

    /// Sends one action to the far end, without the lock.
    fn order(
        self: &Arc<Self>,
        far: &dyn FarEnd,
        state: &mut parking_lot::MutexGuard<'_, SharedState>,
        ino: Ino,
        action: &Arc<Action>,
    ) {
        let ActionStart {
            journal_path,
            times_before,
            begun,
        } = state.begin_action(self, ino, action);
        let makes_staging = matches!(**action, Action::Stage { .. });
        let context = Context {
            staging: makes_staging.then(|| self.staging_context()),
            journal_path,
            times_before,
        };
        state.pool.ordered += 1;
        let told = ActionSpan::of(action.operation(), || state.model.inodes.path(ino));
        let (shared, of, sent) = (self.clone(), action.clone(), Instant::now());
        let on_done = move |result: Result<FarDone, Errno>| {
            let took = sent.elapsed();
            let calls = result.as_ref().map(|far| far.done.calls).map_err(|errno| *errno);
            told.ended(calls, took);
            shared.recording.end(begun.as_ref(), calls);
            let mut state = shared.state.lock();
            state.pool.answers.push_back(FarAnswered {
                ino,
                action: of,
                result,
                took,
            });
            shared.call_worker(&mut state);
        };
        let made = parking_lot::MutexGuard::unlocked(state, || far_send::send(far, action, context, on_done));
        // Whoever finds it there now sends what depends on it after it.
        if let (Some(handle), Action::Create { at, .. }) = (made, &**action) {
            state.model.expect_directory(ino, at, handle);
            state.model.scheduler().wake_waiters(ino);
            self.call_worker(state);
        }
    }

    /// The answer of the far end has come: the visit goes on.
    fn answered(self: &Arc<Self>, state: &mut parking_lot::MutexGuard<'_, SharedState>, answered: FarAnswered) {
        let FarAnswered {
            ino,
            action,
            result,
            took,
        } = answered;
        state.pool.ordered -= 1;
        let result = result.map(|far| {
            if let Some(noted) = far.journal {
                let mut journal = self.journal.lock();
                match (&far.done.job_dir, &mut *journal) {
                    (Some(dir), _) => *journal = Some(Journal::begun(dir.clone(), noted)),
                    (None, Some(journal)) => journal.note(noted),
                    (None, None) => {}
                }
            }
            far.done
        });
        self.end_action(state, ino, &action, result, took);
        self.visit_steps(state, ino);
    }

    /// A background action failed: the job cannot commit any more, and the command hears of it soon.
    pub(crate) fn fail(&self, state: &mut SharedState, ino: Ino, operation: &'static str, errno: Errno) {
        let now = clock();
        warn!(operation, %errno, path = ?state.model.inodes.path(ino), "the job cannot commit any more");
        if state.errors.len() < ERRORS_MAX {
            state.errors.push(DeferredError {
                operation: operation.into(),
                path: Some(state.model.inodes.path(ino))
                    .filter(|path| !path.as_os_str().is_empty())
                    .unwrap_or_else(|| ".".into()),
                errno: errno.raw_os_error(),
                unix_seconds: now.seconds as f64 + f64::from(now.nanoseconds) / 1e9,
            });
        }
        state.model.refuse.get_or_insert(errno);
        state.model.graph.stopped = true;
        self.progress.notify_all();
    }

    /// Has room come free for this much written data?
    pub(crate) fn has_room(&self, state: &SharedState, bytes: u64) -> bool {
        self.gauge.load(Ordering::Relaxed) + bytes <= state.model.config.memory_limit
    }
}

fn calls_of(result: &Result<Done, Errno>) -> Result<u64, Errno> {
    result.as_ref().map(|done| done.calls).map_err(|errno| *errno)
}

#[cfg(test)]
impl Shared {
    /// Where a test takes every step itself, it need not see this one.
    pub(crate) fn stage_root_by_hand(self: &Arc<Self>, state: &mut parking_lot::MutexGuard<'_, SharedState>) {
        if state.pool.by_hand && state.model.graph.take_ino(Ino::ROOT) {
            self.visit(state, Ino::ROOT);
        }
    }
}

#[cfg(test)]
impl crate::Job {
    /// Takes the work away from the threads, or gives it back.
    pub(crate) fn by_hand(&self, by_hand: bool) {
        let mut state = self.shared.state.lock();
        state.pool.by_hand = by_hand;
        self.shared.call_worker(&mut state);
    }

    /// Visits one queued object of the caller's choice.
    pub(crate) fn step_by_hand(&self, choose: impl FnOnce(usize) -> usize) {
        let mut state = self.shared.state.lock();
        let queued = state.model.graph.queued();
        if queued == 0 {
            return;
        }
        state.model.now = clock();
        let ino = state.model.graph.take(choose(queued)).expect("a queued object");
        state.waiting_for_room += 1;
        self.shared.visit(&mut state, ino);
        state.waiting_for_room -= 1;
    }
}
