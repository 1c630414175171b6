//! What the two ends say to each other.
//!
//! The near end greets, the far end answers the greeting, and from then on there are requests in one direction and replies in the
//! other. Each request has a number, and its reply has the same; replies come in any order. Objects that are open at the far end have
//! numbers, which the near end gives, so that a request may name an object that an earlier one will open.
//!
//! ```text
//!   near                                            far
//!   Greeting { version, uid, gid }            ->
//!                                             <-    Welcome { version, refusal }
//!   7: Request { on: [0], makes: [1], OpenDir "a" } ->
//!   8: Request { on: [1], List }              ->    (waits for 7)
//!                                             <-    7: Ok(Done)
//!                                             <-    8: Ok(Entries ..)
//!   9: Request { released: [1], .. }          ->    (after 7 and 8 object 1 is closed)
//! ```
//!
//! Messages are encoded by postcard; contents of files travel beside them, as they are (see [`crate::frame`]).

use std::ffi::OsString;

use elbow_file::{Access, DirEntry, FileSystemTraits, FileType, Identity, RenameMode, Space, Stat, Time};
use serde::{Deserialize, Serialize};

/// What each end says first, so that another program's words are not taken for ours.
pub(crate) const MAGIC: [u8; 8] = *b"ELBOWVIA";
/// The version of everything in this module.
pub(crate) const VERSION: u16 = 2;

/// The number of an object that is open at the far end.
pub(crate) type Id = u64;
/// The directory that all names are below.
pub(crate) const ROOT: Id = 0;
/// The number of a request that gets no reply.
pub(crate) const UNANSWERED: u64 = 0;

/// The first message of the near end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Greeting {
    pub(crate) version: u16,
    /// Whose files the user's own are to look like.
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// The first message of the far end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Welcome {
    pub(crate) version: u16,
    /// Or why nothing can be done there.
    pub(crate) refusal: Option<String>,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    /// The objects that it is about, in the order of the arguments of [`Storage`](elbow_file::Storage).
    pub(crate) on: Vec<Id>,
    /// The number of the object that it opens.
    pub(crate) makes: Vec<Id>,
    /// Objects that no later request names.
    pub(crate) released: Vec<Id>,
    pub(crate) call: Call,
}

impl Request {
    /// One that opens nothing.
    pub(crate) fn about(on: Vec<Id>, call: Call) -> Self {
        Self {
            on,
            makes: Vec::new(),
            released: Vec::new(),
            call,
        }
    }
}

/// The calls of [`Storage`](elbow_file::Storage), without the objects that they are about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Call {
    OpenDir {
        name: OsString,
    },
    Create {
        name: OsString,
        mode: u32,
    },
    CreateUnnamed {
        name: OsString,
        mode: u32,
    },
    Open {
        name: OsString,
        access: Access,
    },
    Mkdir {
        name: OsString,
        mode: u32,
    },
    Symlink {
        target: OsString,
        name: OsString,
    },
    Mknod {
        name: OsString,
        kind: FileType,
        mode: u32,
        rdev: u64,
    },
    Link {
        name: OsString,
        new_name: OsString,
    },
    Rename {
        name: OsString,
        new_name: OsString,
        mode: RenameMode,
    },
    Unlink {
        name: OsString,
    },
    Rmdir {
        name: OsString,
    },
    Stat {
        name: OsString,
    },
    StatUncached {
        name: OsString,
    },
    StatOpen,
    List,
    Readlink {
        name: OsString,
    },
    Space,
    Chmod {
        name: OsString,
        mode: u32,
    },
    ChmodOpen {
        mode: u32,
    },
    Chown {
        name: OsString,
        uid: Option<u32>,
        gid: Option<u32>,
    },
    ChownOpen {
        uid: Option<u32>,
        gid: Option<u32>,
    },
    SetTimes {
        name: OsString,
        atime: Option<Time>,
        mtime: Option<Time>,
    },
    SetTimesOpen {
        atime: Option<Time>,
        mtime: Option<Time>,
    },
    Touch {
        name: OsString,
    },
    ListXattrs {
        name: OsString,
    },
    GetXattr {
        name: OsString,
        key: OsString,
    },
    GetXattrOpen {
        key: OsString,
    },
    /// The value is beside the message.
    SetXattr {
        name: OsString,
        key: OsString,
    },
    SetXattrOpen {
        key: OsString,
    },
    RemoveXattr {
        name: OsString,
        key: OsString,
    },
    RemoveXattrOpen {
        key: OsString,
    },
    Read {
        offset: u64,
        length: u32,
    },
    /// The content is beside the message.
    Write {
        offset: u64,
    },
    Truncate {
        size: u64,
    },
    TruncateNamed {
        name: OsString,
        size: u64,
    },
    Punch {
        offset: u64,
        length: u64,
    },
    Allocate {
        offset: u64,
        length: u64,
        keep_size: bool,
    },
    NextData {
        offset: u64,
    },
    Close,
    TryLock,
    Identity,
    FileSystemTraits,
    Sync,
    SyncAll,
    /// Work of those above, who know what it is; what belongs to it is beside the message.
    Work {
        order: Vec<u8>,
    },
    /// Nothing; its answer shows that there is somebody.
    Nothing,
    /// From now on the far end may pack content.
    Compress,
}

impl Call {
    /// Whether an object that it is about may have another content afterwards.
    pub(crate) fn changes(&self) -> bool {
        matches!(
            self,
            Self::Write { .. } | Self::Truncate { .. } | Self::Punch { .. } | Self::Allocate { .. }
        )
    }
}

/// What came of a request.
pub(crate) type Reply = Result<Answer, i32>;

/// The value of a call that succeeded. Bytes are beside the message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    Done,
    Stat(Stat),
    Entries(Vec<DirEntry>),
    Name(OsString),
    Names(Vec<OsString>),
    Bytes,
    Space(Space),
    Range(Option<(u64, u64)>),
    Flag(bool),
    Identity(Identity),
    FileSystemTraits(FileSystemTraits),
    /// Which of the objects that might be opened are open now; the rest of the answer is beside the message.
    Worked {
        made: Vec<bool>,
    },
}
