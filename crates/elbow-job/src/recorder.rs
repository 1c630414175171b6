//! Who wants to know what a job does on the storage, when, and what its command waits for.
//!
//! ```text
//!   dirty ──── merged, merged ──── begun ──────────── ended         an action: when its object came into the queue, was taken up, was stored
//!   operation ──────────────────── answered                         a wait: an operation that memory could not answer
//!   drain │ sync │ turn │ check │ rehearse │ record │ publish ...   steps of the end
//! ```
//!
//! A recorder is told by the thread that did it, without any lock of the job, and should take its time only if the job may wait. Without one
//! nothing of this is looked for.
//!
//! Not here: what is written down of it, and how.

use std::path::Path;
use std::time::Instant;

use elbow_file::Errno;

/// Is told what a job does.
///
/// ```
/// use elbow_job::{ActionRecord, EndStep, Recorder, WaitRecord};
///
/// #[derive(Debug)]
/// struct Printed;
///
/// impl Recorder for Printed {
///     fn action(&self, action: &ActionRecord<'_>) {
///         println!("{} {}", action.operation, action.path.display());
///     }
///     fn wait(&self, wait: &WaitRecord<'_>) {
///         println!("waited for {}", wait.reason.name());
///     }
///     fn step_begins(&self, step: EndStep) {
///         println!("{} begins", step.name());
///     }
///     fn step_ends(&self, step: EndStep, _: u64, _: u64) {
///         println!("{} ends", step.name());
///     }
/// }
/// ```
pub trait Recorder: std::fmt::Debug + Send + Sync {
    /// An action was carried out on the storage, or refused by it.
    fn action(&self, action: &ActionRecord<'_>);
    /// An operation of the command has waited for the storage.
    fn wait(&self, wait: &WaitRecord<'_>);
    /// A step of the end begins. Steps may be within others.
    fn step_begins(&self, step: EndStep);
    /// The step that began last ends; how many things were done in it and how many bytes copied, where that is counted.
    fn step_ends(&self, step: EndStep, done: u64, bytes: u64);
}

/// One action of the background.
#[derive(Clone, Copy, Debug)]
pub struct ActionRecord<'a> {
    /// What was done: `create`, `write`, `rename`, ... as in [`DeferredError`](crate::DeferredError).
    pub operation: &'static str,
    /// To what, below the directory of the job; the directory itself is empty.
    pub path: &'a Path,
    /// Bytes of content that it was to write.
    pub bytes: u64,
    /// Modifying calls that it took.
    pub calls: u64,
    /// Operations of the command that needed no action of their own, because the object was waiting for this one.
    pub merged: u64,
    /// When the object had something to be stored first.
    pub queued: Instant,
    /// When the action was begun.
    pub began: Instant,
    /// When it was over.
    pub ended: Instant,
    /// Who carried it out.
    pub worker: Worker,
    /// What the storage refused it with.
    pub refused: Option<Errno>,
}

/// Who carries an action out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Worker {
    /// A thread of this process, by the kernel's number.
    Thread(u32),
    /// The far end of a connection: the lowest number that no other action under way has.
    Far(u32),
}

/// An operation of the command that memory could not answer.
#[derive(Clone, Copy, Debug)]
pub struct WaitRecord<'a> {
    /// What it waited for.
    pub reason: WaitReason,
    /// On which object, below the directory of the job; empty where it is about none.
    pub path: &'a Path,
    /// Bytes that were to be read or written.
    pub bytes: u64,
    /// When it began to wait.
    pub began: Instant,
    /// When it was answered.
    pub ended: Instant,
    /// The thread that waited in its place, by the kernel's number.
    pub thread: u32,
}

/// What an operation of the command can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WaitReason {
    /// Content that only the storage has.
    Read,
    /// The names of an old directory.
    List,
    /// A name in an old directory that cannot be listed.
    Lookup,
    /// Attributes, the target of a link, extended attributes of something old.
    Attributes,
    /// Written data fills the memory, and some of it has to be stored or spilled first.
    Memory,
    /// Free space of the storage.
    Space,
    /// A trial of what the storage can do.
    Trial,
    /// fsync(2) in a job that was asked to obey it.
    Fsync,
}

impl WaitReason {
    /// Its name in a trace.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::List => "list",
            Self::Lookup => "lookup",
            Self::Attributes => "attributes",
            Self::Memory => "memory full",
            Self::Space => "free space",
            Self::Trial => "trial",
            Self::Fsync => "fsync",
        }
    }
}

/// A step of the end of a job: what a [`Phase`](crate::Phase) is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EndStep {
    /// What is queued goes to the storage.
    Drain,
    /// The job's own directory is made, for a record that needs nothing else of it.
    Stage,
    /// The storage makes what was written durable.
    Sync,
    /// Another job over the directory commits first.
    Turn,
    /// Old objects are compared with what the job saw of them.
    Check,
    /// What can be tried of the record is tried.
    Rehearse,
    /// The commit record is written and made durable.
    Record,
    /// The steps of the record are carried out.
    Publish,
    /// What is no longer needed is removed.
    CleanUp,
    /// What the storage does not take is saved elsewhere.
    Save,
    /// What was staged is removed.
    RollBack,
}

impl EndStep {
    /// Its name in a trace.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::Stage => "stage",
            Self::Sync => "sync",
            Self::Turn => "turn",
            Self::Check => "check",
            Self::Rehearse => "rehearse",
            Self::Record => "record",
            Self::Publish => "publish",
            Self::CleanUp => "clean up",
            Self::Save => "save",
            Self::RollBack => "roll back",
        }
    }
}
