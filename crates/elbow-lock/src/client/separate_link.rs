//! What is asked over a connection of its own: an older service ends the connection of who asks for what it does not know, and with it
//! locks, if it held any.

use super::link::{Link, Receive};
use super::session::Session;
use crate::error::LockError;
use crate::hello::PROTOCOL_NEWEST;
use crate::message::{FileLocks, FileName, Reply, Request, SessionId};

/// The number of the one question of a connection.
const SEQ: u64 = 1;
/// The first version in which a service can be asked so.
const SINCE: u16 = 2;
const _: () = assert!(SINCE <= PROTOCOL_NEWEST);

impl Session {
    pub(super) fn look(&self, file: &FileName) -> Result<FileLocks, LockError> {
        let (seq, file) = (SEQ, file.clone());
        let what = "look at one file";
        match self.ask_over_separate_link(what, &Request::Look { seq, file })? {
            Reply::FileLocks { seen, .. } => Ok(seen),
            other => Err(self.no_answer(what, other)),
        }
    }

    pub(super) fn break_locks(
        &self,
        file: &FileName,
        session: Option<SessionId>,
        force: bool,
    ) -> Result<Vec<SessionId>, LockError> {
        let (seq, file, what) = (SEQ, file.clone(), "break locks");
        let request = Request::Break {
            seq,
            file,
            session,
            force,
        };
        match self.ask_over_separate_link(what, &request)? {
            Reply::Broken { sessions, .. } => Ok(sessions),
            Reply::Denied { why, .. } => Err(LockError::Denied {
                address: self.address.clone(),
                why,
            }),
            other => Err(self.no_answer(what, other)),
        }
    }

    fn ask_over_separate_link(&self, what: &'static str, request: &Request) -> Result<Reply, LockError> {
        let options = &self.options;
        let link = Link::open(
            &self.address,
            &options.name,
            options.ttl_ms,
            options.credentials.as_ref(),
        )?;
        let version = link.welcome.version;
        if version < SINCE {
            return Err(self.too_old(what, format!("it speaks version {version} of the protocol")));
        }
        let broken = |source| LockError::Unreachable {
            address: self.address.clone(),
            source,
        };
        link.send(request).map_err(broken)?;
        let mut replies = Vec::new();
        while replies.is_empty() {
            link.receive(Receive::Block, &mut replies)
                .map_err(|error| broken(std::io::Error::other(error)))?;
        }
        // It ends with the connection, if this does not arrive.
        drop(link.send(&Request::Close));
        Ok(replies.remove(0))
    }

    fn no_answer(&self, what: &'static str, reply: Reply) -> LockError {
        match reply {
            // A proxy passes the service's version on, and may be older.
            Reply::Lost { why } => self.too_old(what, why),
            other => self.rejected(format!("it answered {other:?} when it was asked to {what}")),
        }
    }

    fn too_old(&self, what: &'static str, why: String) -> LockError {
        LockError::TooOld {
            address: self.address.clone(),
            what,
            why,
        }
    }
}
