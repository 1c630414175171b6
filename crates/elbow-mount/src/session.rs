//! Serving a FUSE connection until it ends.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use fuser::{Config, SessionACL};

use crate::dispatch::FrontCore;
use crate::front::Front;

/// A connection that is being served by a thread. Dropping it does not end it: it ends when its last mount is
/// gone, when it is aborted, or with the process.
#[derive(Debug)]
pub struct Session {
    thread: JoinHandle<io::Result<()>>,
    written_back: WrittenBack,
}

/// Fetches what the kernel still keeps for itself.
#[derive(Clone)]
pub struct WrittenBack {
    core: Arc<FrontCore>,
}

impl Session {
    /// Greets the kernel on an open `/dev/fuse` that has been mounted, and serves it from then on.
    ///
    /// # Errors
    /// The connection is not mounted, was aborted, or a thread could not be started.
    pub fn serve(device: OwnedFd, front: Front) -> io::Result<Self> {
        let core = front.core();
        let session = fuser::Session::from_fd(front, device, SessionACL::All, Config::default())?;
        core.notifier.get_or_init(|| session.notifier());
        let thread = std::thread::Builder::new()
            .name("elbow-session".into())
            .spawn(move || session.run())?;
        Ok(Self {
            thread,
            written_back: WrittenBack { core },
        })
    }

    /// What fetches from the kernel what it keeps, also once the session is being waited for.
    #[must_use]
    pub fn written_back(&self) -> WrittenBack {
        self.written_back.clone()
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

impl WrittenBack {
    /// Has the kernel write what processes have changed in memory that they map from files of the mount, and waits for that.
    ///
    /// Not by syncfs(2): since Linux 6.18 it does not wait for file systems like ours. Where the kernel is told that a file has
    /// changed, it writes what it has of it before it forgets it. A file that is mapped is open, and only the mappings
    /// of one that is open for writing can be written to.
    pub fn fetch(&self) {
        for (ino, shown) in self.core.job.open_for_writing() {
            self.core.fetch_mapped(self.core.nodes.node(ino, shown));
        }
    }
}

impl std::fmt::Debug for WrittenBack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WrittenBack").finish_non_exhaustive()
    }
}
