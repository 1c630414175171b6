//! The near end of a connection orders work at the far one: see [`crate::far_orders`].

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use elbow_file::{Completion, Errno, FarAnswer, FarEnd, Handle, Order, Stat, errno_from_elsewhere};

use crate::action::{Action, FillTarget};
use crate::api::Ino;
use crate::complete::Done;
use crate::execute::{JournalState, unspill};
use crate::far_orders::{
    ActMessage, BELOW_MAX, CommitEnd, CommitMessage, Context, DoneMessage, FillMessage, ListedDir, ListedEntry,
    ListedMessage, Message, PieceMessage, Place, RootMessage, Slots, decoded, encoded,
};
use crate::look::{Looked, LookedBelow};
use crate::model::{Fill, FoundEntry, Listing, Piece};
use crate::report::Recovered;
use crate::route::Route;

/// Handles for what an action may open.
#[derive(Debug)]
pub(crate) struct Promises {
    directories: Vec<Handle>,
    file: Option<Handle>,
    /// The directory that is created.
    pub(crate) made: Option<Handle>,
    job: Option<Handle>,
}

impl Promises {
    fn of(far: &dyn FarEnd, action: &Action) -> Self {
        let slots = Slots::of(action);
        Self {
            directories: std::iter::repeat_with(|| far.promise())
                .take(slots.directories)
                .collect(),
            file: slots.file.then(|| far.promise()),
            made: slots.made.then(|| far.promise()),
            job: slots.job.then(|| far.promise()),
        }
    }

    fn all(&self) -> Vec<Handle> {
        let job = &self.job;
        self.directories
            .iter()
            .chain(&self.file)
            .chain(&self.made)
            .chain(job)
            .cloned()
            .collect()
    }

    /// What the far end has done, with the handles of what it has opened.
    fn done(self, answer: &FarAnswer, action: &Action) -> Result<FarDone, Errno> {
        let message: DoneMessage = decoded(&answer.bytes).ok_or(Errno::PROTO)?;
        let mut is_open = answer.made.iter().copied();
        let mut open = |handle: Option<Handle>| handle.filter(|_| is_open.next().unwrap_or(false));
        let directories: Vec<Handle> = self
            .directories
            .into_iter()
            .filter_map(|handle| open(Some(handle)))
            .collect();
        let file = match action {
            Action::Fill {
                target: FillTarget::Open(file),
                ..
            } => Some(file.clone()),
            _ => self.file.and_then(|file| open(Some(file))),
        };
        let made = self.made.and_then(|made| open(Some(made)));
        let job_dir = self.job.and_then(|job| open(Some(job)));
        Ok(FarDone {
            done: Done {
                directories: message.directories.into_iter().zip(directories).collect(),
                file,
                made,
                is_made: message.is_made,
                job_dir,
                link_attributes: message.link_attributes,
                loses_group: message.loses_group,
                modes: message.modes,
                calls: message.calls,
            },
            journal: message.journal,
        })
    }
}

/// What came of an action at the far end.
#[derive(Debug)]
pub(crate) struct FarDone {
    pub(crate) done: Done,
    pub(crate) journal: Option<JournalState>,
}

/// What has come of an action that was sent.
#[derive(Debug)]
pub(crate) struct FarAnswered {
    pub(crate) ino: Ino,
    pub(crate) action: Arc<Action>,
    pub(crate) result: Result<FarDone, Errno>,
    pub(crate) took: Duration,
}

/// An action on its way.
struct Outgoing<'a> {
    on: Vec<Handle>,
    content: Vec<Cow<'a, [u8]>>,
}

impl<'a> Outgoing<'a> {
    fn place(&mut self, handle: &Handle) -> Place {
        self.on.push(handle.clone());
        (self.on.len() - 1) as Place
    }

    fn fill(&mut self, fill: &'a Fill) -> Result<FillMessage, Errno> {
        let mut pieces = Vec::with_capacity(fill.pieces.len());
        for (range, piece) in &fill.pieces {
            let message = match piece {
                Piece::Memory(chunk) => {
                    self.content.push(Cow::Borrowed(chunk.bytes()));
                    PieceMessage::Bytes
                }
                Piece::Spill(spilled) => {
                    let bytes = unspill(spilled, 0, range.end - range.start)?;
                    self.content.push(Cow::Owned(bytes));
                    PieceMessage::Bytes
                }
                Piece::Copy(copy) => PieceMessage::Copy {
                    route: copy
                        .source
                        .route
                        .with(&mut |handle| Ok::<_, Errno>(self.place(handle)))?,
                    name: copy.source.name.clone(),
                    version: copy.source.version,
                    offset: copy.offset,
                },
                Piece::Zero => PieceMessage::Zeros,
            };
            pieces.push((range.clone(), message));
        }
        Ok(FillMessage {
            cut: fill.cut,
            pieces,
            size: fill.size,
            reserve: fill.reserve.iter().collect(),
            reached: fill.reached,
        })
    }
}

/// Sends an action. `on_done` hears what came of it, on a thread that must not wait. Gives what the action is going to open.
pub(crate) fn send(
    far: &dyn FarEnd,
    action: &Arc<Action>,
    context: Context,
    on_done: impl FnOnce(Result<FarDone, Errno>) + Send + 'static,
) -> Option<Handle> {
    let mut outgoing = Outgoing {
        on: Vec::new(),
        content: Vec::new(),
    };
    let message = outgoing_message(action, context, &mut outgoing);
    let message = match message {
        Ok(message) => message,
        Err(errno) => {
            on_done(Err(errno));
            return None;
        }
    };
    let promises = Promises::of(far, action);
    let (makes, made) = (promises.all(), promises.made.clone());
    let content: Vec<IoSlice<'_>> = outgoing.content.iter().map(|bytes| IoSlice::new(bytes)).collect();
    let of = action.clone();
    let done: Completion = Box::new(move |answer| on_done(answer.and_then(|answer| promises.done(&answer, &of))));
    let order = Order {
        on: &outgoing.on,
        makes: &makes,
        order: &encoded(&message),
        content: &content,
    };
    far.send(&order, done);
    made
}

fn outgoing_message<'a>(action: &'a Action, context: Context, outgoing: &mut Outgoing<'a>) -> Result<Message, Errno> {
    let mut fill = match action {
        Action::Create { fill, .. } | Action::Fill { fill, .. } => Some(outgoing.fill(fill)?),
        _ => None,
    };
    let action = action.with(&mut |handle| Ok(outgoing.place(handle)), &mut |_| {
        Ok::<_, Errno>(fill.take().expect("an action has one fill"))
    })?;
    Ok(Message::Act(Box::new(ActMessage { action, context })))
}

/// Looks at the directory of a job that is about to begin.
pub(crate) fn begin(far: &dyn FarEnd, root: &Handle) -> Result<RootMessage, Errno> {
    let order = Order {
        on: std::slice::from_ref(root),
        makes: &[],
        order: &encoded(&Message::Begin),
        content: &[],
    };
    decoded(&far.ask(&order)?.bytes).ok_or(Errno::PROTO)
}

/// Lists a directory with the attributes of all that is in it, and directories below it with about `ahead` entries.
pub(crate) fn list(far: &dyn FarEnd, route: &Route, ahead: usize) -> Result<(Looked, Vec<LookedBelow>), Errno> {
    let mut on = Vec::new();
    let at = route.with(&mut |handle| {
        on.push(handle.clone());
        Ok::<_, Errno>(0)
    })?;
    let promised = if ahead == 0 { 1 } else { 1 + BELOW_MAX };
    let makes: Vec<Handle> = std::iter::repeat_with(|| far.promise()).take(promised).collect();
    let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
    let order = Order {
        on: &on,
        makes: &makes,
        order: &encoded(&Message::List { at, ahead }),
        content: &[],
    };
    let answer = far.ask(&order)?;
    let listed: ListedMessage = decoded(&answer.bytes).ok_or(Errno::PROTO)?;
    let mut made = makes.into_iter();
    let looked = looked(listed.dir, made.next().expect("one for the directory itself"))?;
    let below = listed
        .below
        .into_iter()
        .zip(made)
        .enumerate()
        .map(|(before, (below, handle))| {
            let parent = below.parent as usize;
            if parent > before {
                return Err(Errno::PROTO);
            }
            Ok(LookedBelow {
                parent,
                name: below.name,
                looked: self::looked(below.dir, handle)?,
            })
        });
    Ok((looked, below.collect::<Result<_, _>>()?))
}

/// What a look there gave of a directory, if it can be believed.
fn looked(dir: ListedDir, handle: Handle) -> Result<Looked, Errno> {
    let is_sound = |found: &ListedEntry| found.entry.is_sound() && found.stat.as_ref().is_none_or(Stat::is_sound);
    if !dir.entries.iter().flatten().all(is_sound) {
        return Err(Errno::PROTO);
    }
    let default_acl = dir.default_acl.map_err(errno_from_elsewhere);
    Ok(match dir.entries {
        None => Looked::Closed(handle, default_acl),
        Some(entries) => {
            let entries = entries.into_iter().map(|found| FoundEntry {
                entry: found.entry,
                stat: found.stat,
                has_no_xattrs: found.has_no_xattrs,
            });
            Looked::Listed(Listing {
                entries: entries.collect(),
                default_acl,
                handle,
            })
        }
    })
}

/// Ends dead jobs there; `None` if the answer cannot be understood.
pub(crate) fn recover_there(far: &dyn FarEnd, root: &Handle, force: bool) -> Result<Vec<Recovered>, Errno> {
    let order = Order {
        on: std::slice::from_ref(root),
        makes: &[],
        order: &encoded(&Message::Recover { force }),
        content: &[],
    };
    let answer = far.ask(&order)?;
    decoded(&answer.bytes).ok_or(Errno::PROTO)
}

/// So often it is asked whether the far end answers, while something takes long there.
const PULSE: Duration = Duration::from_secs(1);

/// Questions to the far end, and those of them that it has answered.
#[derive(Clone, Debug)]
pub(crate) struct PulseCounts {
    pub(crate) asked: Arc<AtomicU64>,
    pub(crate) answered: Arc<AtomicU64>,
}

/// Waits for work that may take long, and counts signs of life meanwhile. If it need not wait for others any longer, that is said.
fn ask_patiently(
    far: &dyn FarEnd,
    order: &Order<'_>,
    pulse: &PulseCounts,
    is_ended: &dyn Fn() -> bool,
) -> Result<FarAnswer, Errno> {
    let (told, tells) = sync_channel(1);
    let tell = move |answer| {
        let _ = told.send(answer);
    };
    far.send(order, Box::new(tell));
    loop {
        match tells.recv_timeout(PULSE) {
            Ok(answer) => return answer,
            Err(RecvTimeoutError::Disconnected) => return Err(Errno::NOTCONN),
            Err(RecvTimeoutError::Timeout) => {}
        }
        // Each time: it may have come before the work had begun.
        if is_ended() {
            tell_only(far, &Message::EndWait);
        }
        pulse.asked.fetch_add(1, Ordering::Relaxed);
        let answered = pulse.answered.clone();
        let heard = move || {
            answered.fetch_add(1, Ordering::Relaxed);
        };
        far.pulse(Box::new(heard));
    }
}

/// The order to commit a job.
pub(crate) fn commit_order(message: CommitMessage) -> Vec<u8> {
    encoded(&Message::Commit(Box::new(message)))
}

/// Commits a job whose own directory this is, by such an order. When `is_ended`, it is not to wait for its turn any longer.
pub(crate) fn commit(
    far: &dyn FarEnd,
    job: &Handle,
    order: &[u8],
    pulse: &PulseCounts,
    is_ended: &dyn Fn() -> bool,
) -> Result<CommitEnd, Errno> {
    let order = Order {
        on: std::slice::from_ref(job),
        makes: &[],
        order,
        content: &[],
    };
    decoded(&ask_patiently(far, &order, pulse, is_ended)?.bytes).ok_or(Errno::PROTO)
}

/// Ends a job, of which nothing stays.
pub(crate) fn roll_back(far: &dyn FarEnd, name: &OsStr, pulse: &PulseCounts) -> Result<(), Errno> {
    let order = Order {
        on: &[],
        makes: &[],
        order: &encoded(&Message::RollBack { name: name.to_owned() }),
        content: &[],
    };
    ask_patiently(far, &order, pulse, &|| false).map(drop)
}

/// The journal of a job is about to be removed; nobody waits until it is closed.
pub(crate) fn close_journal(far: &dyn FarEnd) {
    tell_only(far, &Message::CloseJournal);
}

fn tell_only(far: &dyn FarEnd, message: &Message) {
    let order = Order {
        on: &[],
        makes: &[],
        order: &encoded(message),
        content: &[],
    };
    far.send(&order, Box::new(drop));
}
