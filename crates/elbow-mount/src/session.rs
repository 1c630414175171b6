//! Serving a FUSE connection until it ends.

use std::io;
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;

use fuser::{Config, SessionACL};

use crate::Front;

/// A connection that is being served by a thread. Dropping it does not end it: it ends when its last mount is
/// gone, when it is aborted, or with the process.
#[derive(Debug)]
pub struct Session {
    thread: JoinHandle<io::Result<()>>,
}

impl Session {
    /// Greets the kernel on an open `/dev/fuse` that has been mounted, and serves it from then on.
    ///
    /// # Errors
    /// The connection is not mounted, was aborted, or a thread could not be started.
    pub fn serve(device: OwnedFd, front: Front) -> io::Result<Self> {
        let session = fuser::Session::from_fd(front, device, SessionACL::All, Config::default())?;
        let thread = std::thread::Builder::new()
            .name("elbow-session".into())
            .spawn(move || session.run())?;
        Ok(Self { thread })
    }

    /// Blocks until the connection has ended: all its mounts are gone and everything in flight is answered.
    ///
    /// # Errors
    /// What ended it, if that was not an unmount.
    pub fn wait(self) -> io::Result<()> {
        self.thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread that served the mount panicked")))
    }
}
