//! Work that is done at the other end of a connection, where the storage is.

use std::ffi::OsStr;
use std::io::IoSlice;

use crate::handle::{Errno, Handle, Result};

/// The other end of the connection to a storage that is elsewhere: it carries out whole pieces of work, so that one answer is waited for
/// instead of one for each call.
///
/// What the work is, only those above know, at both ends; here it is bytes.
pub trait FarEnd: Send + Sync {
    /// A handle for an object that work is going to open. It may be named by later work at once.
    fn promise(&self) -> Handle;

    /// Sends work. `done` is called with what came of it, on a thread that must not be made to wait for another answer; or at once, when
    /// nothing can be sent any more (ENOTCONN).
    fn send(&self, order: &Order<'_>, done: Completion);

    /// Opens a regular file to be read, of which a part is read at once: the two are one round trip. That part is kept as by
    /// [`Storage::read_ahead`](crate::Storage::read_ahead).
    ///
    /// # Errors
    /// Those of [`Storage::open`](crate::Storage::open).
    fn open_to_read(&self, dir: &Handle, name: &OsStr, offset: u64, length: usize) -> Result<Handle>;

    /// Asks whether the far end answers at all, and calls `heard` when it does: for whoever waits for work that takes long.
    fn pulse(&self, heard: Box<dyn FnOnce() + Send>);

    /// Sends work and waits for what comes of it.
    ///
    /// # Errors
    /// Those of the work; ENOTCONN when the connection is gone.
    fn ask(&self, order: &Order<'_>) -> Result<FarAnswer> {
        let (told, tells) = std::sync::mpsc::sync_channel(1);
        let tell = move |answer| {
            let _ = told.send(answer);
        };
        self.send(order, Box::new(tell));
        tells.recv().unwrap_or(Err(Errno::NOTCONN))
    }
}

/// Is told what came of work.
pub type Completion = Box<dyn FnOnce(Result<FarAnswer>) + Send>;

/// Work, as it is sent.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// Open objects that it is about.
    pub on: &'a [Handle],
    /// Handles, by [`FarEnd::promise`], of those that it may open.
    pub makes: &'a [Handle],
    /// What is to be done.
    pub order: &'a [u8],
    /// Content of files that belongs to it, which is sent as it is.
    pub content: &'a [IoSlice<'a>],
}

/// What came of work that succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FarAnswer {
    /// Which of [`Order::makes`] are open now.
    pub made: Vec<bool>,
    /// The answer.
    pub bytes: Vec<u8>,
}

/// Carries out work at the far end.
pub trait FarWorker: Send + Sync {
    /// Carries out one piece. `on` are the objects that it is about, in the order in which they were sent.
    ///
    /// # Errors
    /// EPROTO for what is no work; else those of the work.
    fn work(&self, on: &[Handle], order: &[u8], content: Vec<u8>) -> Result<Worked>;

    /// The connection has ended: nobody hears what comes of the work that is still under way, in other threads.
    fn disconnected(&self) {}
}

/// What came of work, where it is carried out.
#[derive(Debug, Default)]
pub struct Worked {
    /// The objects that it has opened, each in its place in [`Order::makes`].
    pub made: Vec<Option<Handle>>,
    /// The answer.
    pub answer: Vec<u8>,
}

/// The error of a number that another machine has sent; what is none is an error of the protocol (EPROTO).
#[must_use]
pub fn errno_from_elsewhere(raw: i32) -> Errno {
    match raw {
        1..=4095 => Errno::from_raw_os_error(raw),
        _ => Errno::PROTO,
    }
}
