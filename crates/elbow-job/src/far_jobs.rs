//! The far end of a connection carries out the work of jobs: see [`crate::far_orders`].

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use elbow_file::{Errno, FarWorker, Handle, Storage, Worked};
use elbow_ranges::Piece as _;
use parking_lot::Mutex;
use tracing::{info, warn};

use crate::action::{Action, FillTarget};
use crate::clock::clock;
use crate::commit::{Record, RecordDraft, StagedJob, Unwatched};
use crate::complete::Done;
use crate::descriptors::directory_handles;
use crate::execute::{Executor, Journal};
use crate::far_list::list_with_below;
use crate::far_orders::{
    ActMessage, CommitEnd, CommitMessage, DoneMessage, FillMessage, Message, PieceMessage, Place, RootMessage, Slots,
    decoded, encoded,
};
use crate::job_files::RECORD;
use crate::liveness::Lock;
use crate::missing::{none_if_missing, sync_dir};
use crate::model::{Chunk, CopyPiece, Fill, IN_TRANSIT, Piece};
use crate::recover::{Recovery, recover};
use crate::report::{Cause, JobError, RecoverAction, Recovered};
use crate::route::{Route, open_route};
use crate::staging::{Manifest, is_job_name};

/// So often, and so far apart, it is looked whether somebody else has ended a job of this process.
const END_LOOKS: usize = 100;
const END_PAUSE: Duration = Duration::from_millis(50);

/// Threads that carry out a commit here.
const COMMIT_THREADS: usize = 32;

/// The jobs of one connection, at its far end.
///
/// ```
/// use std::sync::Arc;
///
/// use elbow_file::{RealStorage, Storage};
/// use elbow_job::FarJobs;
///
/// let place = tempfile::tempdir()?;
/// let root = RealStorage::open_root(place.path())?;
/// let storage: Arc<dyn Storage> = Arc::new(RealStorage);
/// let jobs = FarJobs::new(storage, root);
/// // ... the connection is served with `jobs` as its worker, and ends ...
/// assert!(jobs.end().is_empty(), "no job was begun over it");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct FarJobs {
    /// As the near end sees it.
    storage: Arc<dyn Storage>,
    /// As it is: what is durable here has to be understood by whoever comes next, and not by way of the connection.
    own: Arc<dyn Storage>,
    root: Handle,
    journal: Mutex<Option<Journal>>,
    /// Of the manifest of the job that is under way.
    lock: Lock,
    /// The names of the jobs that were begun over this connection.
    begun: Mutex<Vec<OsString>>,
    /// The near end does not want the commit that is under way to wait for its turn any longer.
    wait_is_ended: AtomicBool,
    /// There is no near end any more.
    is_disconnected: AtomicBool,
}

impl std::fmt::Debug for FarJobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FarJobs")
            .field("begun", &self.begun)
            .finish_non_exhaustive()
    }
}

impl FarJobs {
    /// For the directory that is served.
    #[must_use]
    pub fn new(storage: Arc<dyn Storage>, root: Handle) -> Self {
        Self {
            own: storage.clone(),
            storage,
            root,
            journal: Mutex::default(),
            lock: Lock::default(),
            begun: Mutex::default(),
            wait_is_ended: AtomicBool::new(false),
            is_disconnected: AtomicBool::new(false),
        }
    }

    /// The near end sees the storage like this, where its users have other numbers ([`Storage::owners_there`]).
    #[must_use]
    pub fn seen_as(self, seen: Arc<dyn Storage>) -> Self {
        Self { storage: seen, ..self }
    }

    /// The connection has ended: what it has not committed is rolled back, and what it has is finished. Gives what became of each job that was
    /// left; nothing may be open over the connection any more.
    #[must_use]
    pub fn end(&self) -> Vec<Result<Recovered, JobError>> {
        drop(self.journal.lock().take());
        let end = |name: &OsString| self.end_job(name).transpose();
        let begun = std::mem::take(&mut *self.begun.lock());
        let ended: Vec<_> = begun.iter().filter_map(end).collect();
        for job in &ended {
            match job {
                Ok(job) => info!(job = job.job, action = ?job.action, "the connection has ended, and so has its job"),
                Err(error) => warn!(%error, "a job of a connection that has ended cannot be ended"),
            }
        }
        ended
    }

    /// Ends a job of this process as a recovery does; `None` if it has ended.
    fn end_job(&self, name: &OsStr) -> Result<Option<Recovered>, JobError> {
        let recovery = Recovery::new(&*self.own, &self.root, true)?.of_own_jobs(&self.lock);
        for _ in 1..END_LOOKS {
            match recovery.end(name)? {
                // Another one has begun to end it, now that its lock is free.
                Some(ended) if ended.action == RecoverAction::Running => std::thread::sleep(END_PAUSE),
                ended => return Ok(ended),
            }
        }
        recovery.end(name)
    }

    fn begin(&self, on: &[Handle]) -> Result<Worked, Errno> {
        let root = at(on, 0)?;
        let looked = RootMessage {
            stat: self.storage.stat_handle(&root)?,
            space: self.storage.space(&root)?,
            born: self.storage.identity(&root)?.born,
            handles_max: directory_handles() as u64,
        };
        Ok(Worked {
            made: Vec::new(),
            answer: encoded(&looked),
        })
    }

    fn act(&self, message: ActMessage, on: &[Handle], content: Vec<u8>) -> Result<Worked, Errno> {
        let context = message.context;
        let action = received(&message.action, on, content)?;
        let slots = Slots::of(&action);
        let staging = context.staging.unwrap_or_default();
        if slots.job {
            self.begun.lock().push(staging.staging_name.clone());
        }
        let manifest = |home| Manifest::of_this_process(clock(), staging.root_times, &staging.command, home);
        let executor = Executor {
            storage: &*self.storage,
            staging_name: &staging.staging_name,
            part_name: &staging.part_name,
            journal: &self.journal,
            manifest: &manifest,
            lock: &self.lock,
            journal_path: context.journal_path,
            times_before: context.times_before,
            arrived: &|| {},
            wrote: &|_| {},
        };
        let done = executor.run(&action)?;
        Ok(self.worked(done, slots, &action))
    }

    fn worked(&self, done: Done, slots: Slots, action: &Action) -> Worked {
        let journal = self.journal.lock();
        let notes = matches!(action, Action::Stage { .. }) || action_is_visible(action);
        let message = DoneMessage {
            directories: done.directories.iter().map(|(side, _)| *side).collect(),
            is_made: done.is_made,
            link_attributes: done.link_attributes,
            loses_group: done.loses_group,
            modes: done.modes,
            calls: done.calls,
            journal: journal.as_ref().filter(|_| notes).map(Journal::state),
        };
        let mut made: Vec<Option<Handle>> = done.directories.into_iter().map(|(_, handle)| Some(handle)).collect();
        made.resize_with(slots.directories, || None);
        made.extend(slots.file.then_some(done.file));
        made.extend(slots.made.then_some(done.made));
        if slots.job {
            made.push(done.job_dir);
        }
        Worked {
            made,
            answer: encoded(&message),
        }
    }

    fn list(&self, route: &Route<Place>, ahead: u32, on: &[Handle]) -> Result<Worked, Errno> {
        let route = route.with(&mut |place| at(on, *place))?;
        let handle = open_route(&*self.storage, &route)?;
        let (listed, made) = list_with_below(&*self.storage, handle, ahead as usize)?;
        Ok(Worked {
            made: made.into_iter().map(Some).collect(),
            answer: encoded(&listed),
        })
    }

    fn recover(&self, force: bool) -> Result<Worked, Errno> {
        let recovered = recover(&self.own, &self.root, force).map_err(|error| errno_of(&error))?;
        Ok(Worked {
            made: Vec::new(),
            answer: encoded(&recovered),
        })
    }

    /// Commits a job that has brought all that it made here.
    fn commit(&self, message: &CommitMessage, on: &[Handle]) -> Result<Worked, Errno> {
        self.wait_is_ended.store(false, Ordering::Relaxed); // it was said of another one
        let ended = self.commit_now(message, &at(on, 0)?)?;
        Ok(Worked {
            made: Vec::new(),
            answer: encoded(&ended),
        })
    }

    fn commit_now(&self, message: &CommitMessage, job: &Handle) -> Result<CommitEnd, Errno> {
        let storage = &*self.own;
        let mut record = Record::decode(&message.record).map_err(|_| Errno::PROTO)?;
        let mut expectations = message.expectations.clone();
        if let Some(swap) = self.storage.owners_there()? {
            record = record.with_owners(|owner| swap.of(owner));
            expectations = expectations.with_owners(|owner| swap.of(owner));
        }
        let failed = |tried: &str, errno| Cause::Storage(tried.into()).with(errno);
        let drafted = match message.looks_only {
            true => Ok(RecordDraft::unknown()),
            false => RecordDraft::write(storage, job, &record),
        };
        let mut drafted = match drafted {
            Ok(drafted) => drafted,
            Err(errno) => return Ok(CommitEnd::NoRecord(failed("writing the commit record", errno))),
        };
        // Durable before anything is looked at, because that is what takes long, and others change things meanwhile.
        if let Err(errno) = storage.sync_all(job) {
            return Ok(CommitEnd::NotDurable(failed("syncing what was written", errno)));
        }
        let has_to = record.has_to_commit(message.is_bound);
        let is_ended = || {
            let asked = [&self.wait_is_ended, &self.is_disconnected];
            !has_to && asked.iter().any(|asked| asked.load(Ordering::Relaxed))
        };
        let staged = StagedJob {
            storage,
            root: &self.root,
            path: Path::new(""),
            job: job.clone(),
            staging_name: &message.name,
            lock: &self.lock,
            journal: &self.journal,
            threads: COMMIT_THREADS,
            is_ended: &is_ended,
            root_times: message.root_times,
        };
        if message.looks_only {
            return Ok(match staged.look(&mut record, &expectations, &mut Unwatched) {
                Ok(_turn) => CommitEnd::Ready,
                Err(cause) => CommitEnd::Refused(cause),
            });
        }
        if message.is_bound {
            staged.bind(&record, &mut drafted);
        }
        Ok(
            match staged.commit(&mut record, &mut drafted, &expectations, &mut Unwatched) {
                Ok(Ok(())) => CommitEnd::Committed,
                Ok(Err(cause)) => CommitEnd::Refused(cause),
                Err(JobError::Unfinished { failed, first, .. }) => CommitEnd::Unfinished { failed, first },
                Err(error) => CommitEnd::Failed(errno_of(&error).raw_os_error()),
            },
        )
    }

    /// Ends a job of which nothing is to stay, as a recovery does.
    fn roll_back(&self, name: &OsStr) -> Result<Worked, Errno> {
        let storage = &*self.own;
        if !is_job_name(name) {
            return Err(Errno::PROTO);
        }
        drop(self.journal.lock().take());
        // A record whose writing failed may be there all the same: nobody is to carry it out.
        if let Some(job) = none_if_missing(storage.open_dir(&self.root, name))?
            && none_if_missing(storage.unlink(&job, OsStr::new(RECORD)))?.is_some()
        {
            sync_dir(storage, &job)?;
        }
        match self.end_job(name).map_err(|error| errno_of(&error))? {
            Some(ended) if ended.action != RecoverAction::RolledBack => Err(Errno::IO),
            _ => Ok(Worked::default()),
        }
    }
}

fn errno_of(error: &JobError) -> Errno {
    match error {
        JobError::Storage { errno, .. } => *errno,
        _ => Errno::IO,
    }
}

impl FarWorker for FarJobs {
    fn work(&self, on: &[Handle], order: &[u8], content: Vec<u8>) -> Result<Worked, Errno> {
        match decoded(order).ok_or(Errno::PROTO)? {
            Message::Begin => self.begin(on),
            Message::Act(message) => self.act(*message, on, content),
            Message::List { at, ahead } => self.list(&at, ahead, on),
            Message::Recover { force } => self.recover(force),
            Message::Commit(message) => self.commit(&message, on),
            Message::RollBack { name } => self.roll_back(&name),
            Message::CloseJournal => {
                drop(self.journal.lock().take());
                Ok(Worked::default())
            }
            Message::EndWait => {
                self.wait_is_ended.store(true, Ordering::Relaxed);
                Ok(Worked::default())
            }
        }
    }

    fn disconnected(&self) {
        self.is_disconnected.store(true, Ordering::Relaxed);
    }
}

/// It makes something under its own name in an old directory, which the journal knows.
fn action_is_visible(action: &Action) -> bool {
    match action {
        Action::Create { at, .. } | Action::Move { to: at, .. } | Action::Link { to: at, .. } => at.visible,
        _ => false,
    }
}

fn at(on: &[Handle], place: Place) -> Result<Handle, Errno> {
    on.get(place as usize).cloned().ok_or(Errno::PROTO)
}

/// The action that was sent.
fn received(action: &Action<Place, FillMessage>, on: &[Handle], content: Vec<u8>) -> Result<Action, Errno> {
    if let Action::Fill {
        target: FillTarget::Patch(route, _) | FillTarget::NewPatch(route, _),
        ..
    } = action
        && route.owner.dir() != IN_TRANSIT
    {
        return Err(Errno::PROTO); // patches live in the job's own directory
    }
    let content = Piece::Memory(Chunk::uncounted(content));
    action.with(&mut |place| at(on, *place), &mut |fill| {
        received_fill(fill, on, &content)
    })
}

fn received_fill(fill: &FillMessage, on: &[Handle], content: &Piece) -> Result<Fill, Errno> {
    let Piece::Memory(bytes) = content else {
        return Err(Errno::PROTO);
    };
    let (mut from, available) = (0, bytes.bytes().len() as u64);
    let mut pieces = Vec::with_capacity(fill.pieces.len());
    for (range, message) in &fill.pieces {
        let length = range.end.checked_sub(range.start).ok_or(Errno::PROTO)?;
        let piece = match message {
            PieceMessage::Zeros => Piece::Zero,
            PieceMessage::Bytes => {
                let to = from + length.min(available);
                if length > available - from {
                    return Err(Errno::PROTO);
                }
                content.slice(std::mem::replace(&mut from, to), to)
            }
            PieceMessage::Copy {
                route,
                name,
                version,
                offset,
            } => {
                offset.checked_add(length).ok_or(Errno::PROTO)?;
                let route = route.with(&mut |place| at(on, *place))?;
                Piece::Copy(CopyPiece::uncounted(route, name.clone(), *version, *offset))
            }
        };
        pieces.push((range.clone(), piece));
    }
    Ok(Fill {
        cut: fill.cut,
        pieces,
        size: fill.size,
        reserve: fill
            .reserve
            .iter()
            .filter(|range| range.start < range.end)
            .cloned()
            .collect(),
        reached: fill.reached,
    })
}
