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

use serde::{Deserialize, Serialize};

use crate::call::{Answer, Call};

/// What each end says first, so that another program's words are not taken for ours.
pub(crate) const MAGIC: [u8; 8] = *b"ELBOWVIA";
/// The version of everything in this module.
pub(crate) const VERSION: u16 = 9;

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

/// What came of a request.
pub(crate) type Reply = Result<Answer, i32>;
