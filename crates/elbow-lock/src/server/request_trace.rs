//! What the log tells of requests and their answers. Of a list its bounds and the number of its pieces: it may have millions.
//!
//! Nobody listens, most of the time: then each is one load.

use tracing::{Level, debug, enabled, trace};

use crate::message::{Reply, Request, SessionId};

/// A session asks for something.
pub(super) fn request(SessionId(session): SessionId, request: &Request) {
    if !enabled!(Level::DEBUG) {
        return;
    }
    match request {
        Request::Lock(lock) => {
            let (bounds, pieces) = (lock.footprint.bounds(), lock.footprint.segments());
            debug!(session, id = ?lock.id, file = ?lock.file, mode = ?lock.mode, ?bounds, pieces, wait = ?lock.wait, "asks for a lock");
        }
        Request::Reassert(lock) => {
            let (bounds, pieces) = (lock.footprint.bounds(), lock.footprint.segments());
            debug!(session, id = ?lock.id, file = ?lock.file, mode = ?lock.mode, ?bounds, pieces, token = ?lock.token, "reasserts a lock");
        }
        Request::Renew { .. } | Request::Status { .. } | Request::Look { .. } => trace!(session, ?request, "asks"),
        _ => debug!(session, ?request, "asks"),
    }
}

/// A session is answered, or called.
pub(super) fn reply(SessionId(session): SessionId, reply: &Reply) {
    match reply {
        Reply::Renewed { .. } | Reply::Status { .. } | Reply::FileLocks { .. } => {
            trace!(session, ?reply, "is answered");
        }
        _ => debug!(session, ?reply, "is answered"),
    }
}
