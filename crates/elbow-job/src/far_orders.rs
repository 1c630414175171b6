//! What is ordered at the far end of a connection, where the storage is, and what comes back.
//!
//! ```text
//!   near:  plan -> Action -> far_send (handles become numbers, pieces become content)
//!                               ==== connection ====
//!   far:   far_jobs -> Action -> Executor over the storage there -> Done
//!                               ==== connection ====
//!   near:  far_send (numbers become handles again) -> Model::complete
//! ```
//!
//! One answer comes for a whole action instead of one for each call, and nobody waits for it who has anything else to send: what an action
//! opens has a promised handle, so that what depends on it can follow at once.
//!
//! The far end makes the manifest and keeps the journal, for it is its process whose end ends the job.

use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;

use elbow_file::{DirEntry, Space, Stat, Time};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::abilities::Modes;
use crate::action::{Action, FillTarget, Node};
use crate::api::Ino;
use crate::commit::Expectations;
use crate::execute::JournalState;
use crate::model::{Name, SourceVersion};
use crate::os_path;
use crate::report::Cause;
use crate::route::{DirSide, Route};

/// The number of a handle among those that travel with the order.
pub(crate) type Place = u32;

/// An order, as it travels.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    /// The directory of a job that is about to begin is looked at.
    Begin,
    Act(Box<ActMessage>),
    List {
        at: Route<Place>,
        /// About so many entries of directories below may come along.
        ahead: u32,
    },
    Recover {
        force: bool,
    },
    Commit(Box<CommitMessage>),
    RollBack {
        name: OsString,
    },
    /// The journal is about to be removed.
    CloseJournal,
    /// The commit that is under way is not to wait for its turn any longer.
    EndWait,
}

/// What the directory of a job is like before it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct RootMessage {
    pub(crate) stat: Stat,
    pub(crate) space: Space,
    /// When it was made, where that is kept.
    pub(crate) born: Option<Time>,
    /// So many directories may be open there.
    pub(crate) handles_max: u64,
}

/// An action, and what its executor has to know.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ActMessage {
    pub(crate) action: Action<Place, FillMessage>,
    pub(crate) context: Context,
}

/// What an executor has to know of the job.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Context {
    /// Of an action that makes a staging directory.
    pub(crate) staging: Option<StagingContext>,
    /// The path of a directory below the job's, for the journal, and its times before.
    #[serde(with = "os_path")]
    pub(crate) journal_path: PathBuf,
    pub(crate) times_before: (Time, Time),
}

/// What belongs to the staging directories of a job.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct StagingContext {
    pub(crate) staging_name: OsString,
    pub(crate) part_name: OsString,
    pub(crate) root_times: (Time, Time),
    pub(crate) command: Vec<OsString>,
}

/// A fill whose bytes travel beside it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FillMessage {
    pub(crate) cut: Option<u64>,
    pub(crate) pieces: Vec<(Range<u64>, PieceMessage)>,
    pub(crate) size: Option<u64>,
    pub(crate) reserve: Vec<Range<u64>>,
    pub(crate) reached: u64,
}

/// What is written to a range.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum PieceMessage {
    Zeros,
    /// The next bytes of those that travel beside the order.
    Bytes,
    /// Bytes of this version of a file that is there, by the directory that holds it and its name, from an offset on.
    Copy {
        route: Route<Place>,
        name: Name,
        version: SourceVersion,
        offset: u64,
    },
}

/// What came of an action.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct DoneMessage {
    /// Whose the directories are that were opened on the way, in the order of their handles.
    pub(crate) directories: Vec<DirSide>,
    pub(crate) is_made: bool,
    pub(crate) link_attributes: bool,
    pub(crate) loses_group: bool,
    pub(crate) modes: Option<Modes>,
    pub(crate) calls: u64,
    pub(crate) journal: Option<JournalState>,
}

/// A job that has brought all that it made to the storage, and is to be committed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CommitMessage {
    /// The name of its own directory.
    pub(crate) name: OsString,
    /// Its record, with the users and groups of the near end.
    pub(crate) record: Vec<u8>,
    pub(crate) expectations: Expectations,
    /// The times of the directory as the job saw them last.
    pub(crate) root_times: Option<(Time, Time)>,
    /// Nothing is committed yet.
    pub(crate) looks_only: bool,
    /// Others have committed that belong to it: when the connection ends, it is kept.
    pub(crate) is_bound: bool,
}

/// How a commit has ended.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum CommitEnd {
    Committed,
    /// It was looked whether it could be committed, and it could.
    Ready,
    /// The record could not be written: all else is there.
    NoRecord(Cause),
    /// What the job made may not be durable.
    NotDurable(Cause),
    /// All of it is there, and nothing of it was published.
    Refused(Cause),
    /// As [`JobError::Unfinished`](crate::JobError::Unfinished).
    Unfinished {
        failed: usize,
        first: String,
    },
    /// Something failed after the commit point, which a recovery goes on with.
    Failed(i32),
}

/// So many directories below a listed one come along at most: each has a handle that is promised for it.
pub(crate) const BELOW_MAX: usize = 64;

/// What a look into a directory gave.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ListedMessage {
    pub(crate) dir: ListedDir,
    /// Directories below it, each after the one that it is in.
    pub(crate) below: Vec<BelowMessage>,
}

/// One directory in a [`ListedMessage`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ListedDir {
    /// `None`: it may be entered and not be read.
    pub(crate) entries: Option<Vec<ListedEntry>>,
    pub(crate) default_acl: Result<Vec<u8>, i32>,
}

/// One name of a [`ListedDir`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ListedEntry {
    pub(crate) entry: DirEntry,
    pub(crate) stat: Option<Stat>,
    /// It was looked for extended attributes, and has none.
    pub(crate) has_no_xattrs: bool,
}

/// A directory below the one that was to be listed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct BelowMessage {
    /// Which of the directories before holds it: 0 the one that was to be listed, then those below it.
    pub(crate) parent: u32,
    pub(crate) name: OsString,
    pub(crate) dir: ListedDir,
}

/// What an action may open. Both ends count it in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slots {
    pub(crate) directories: usize,
    pub(crate) file: bool,
    pub(crate) made: bool,
    /// The job's own directory.
    pub(crate) job: bool,
}

impl Slots {
    pub(crate) fn of<H, F>(action: &Action<H, F>) -> Self {
        Self {
            directories: action.routes().filter(|route| !route.names.is_empty()).count(),
            file: match action {
                Action::Create {
                    node: Node::File,
                    keep_open,
                    ..
                }
                | Action::Remove { keep_open, .. } => *keep_open,
                Action::Fill { target, .. } => !matches!(target, FillTarget::Open(_)),
                _ => false,
            },
            made: matches!(action, Action::Create { node: Node::Dir, .. }),
            job: is_root_staging(action),
        }
    }
}

fn is_root_staging<H, F>(action: &Action<H, F>) -> bool {
    matches!(action, Action::Stage { at, .. } if at.owner.dir() == Ino::ROOT)
}

/// The bytes of a message.
pub(crate) fn encoded(message: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(message).expect("no message has anything that cannot be encoded")
}

/// The message of these bytes; `None` if they are none.
pub(crate) fn decoded<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let (message, rest) = postcard::take_from_bytes(bytes).ok()?;
    rest.is_empty().then_some(message)
}
