//! One file's locks seen from outside, and their end by somebody else's word.
//!
//! ```text
//!   break ---> told: what the session waits for is dropped, what it holds stays, nothing more is taken of it
//!                |  it says close, when its program has given back what it held; a Unix socket ends; its lease is over
//!                v
//!              closed: what it held is granted to others            <--- break with force: at once
//! ```
//!
//! A lock cannot be taken from a program that runs: it may be between its last look at the lock and a write. So what is broken is granted to
//! others only when its holder is known to use it no more, by the same signs as ever. `force` grants it at once, whatever the holder does.
//!
//! A session ends as a whole, since its client believes in it as a whole (a program that follows fcntl(2) has no name for
//! one lock of several). Who does not name the session therefore breaks none that holds something of other files.
//!
//! Who may: root, the user who runs the service, and the user whose process the holder is, by the word of the kernel (unix(7),
//! `SO_PEERCRED`). Over TCP there is no such word, and so nobody may.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tracing::info;

use super::handler::RequestHandler;
use super::service::Service;
use super::session::ServerSession;
use crate::message::{FileLocks, FileName, LockInfo, SessionId};
use crate::shard::LockStatus;

/// Locks told of one file, held and waited for: with the longest words for each they fit a frame.
const LOCKS_MAX: usize = 200;
/// Bytes told of a pattern.
const PATTERN_BYTES_MAX: usize = 200;

impl Service {
    /// Who holds and who waits for locks of a file.
    pub(super) fn look(&self, file: &FileName) -> FileLocks {
        let (now, place) = (self.now_ms(), self.place_of(file));
        let status = self.shards[place].lock().look(now, file, LOCKS_MAX);
        let Some(status) = status else {
            return FileLocks::default();
        };
        let locks = status.holders.iter().chain(&status.queue);
        let sessions: BTreeSet<SessionId> = locks.clone().map(|lock| lock.who.session).collect();
        // Counted once for each session, of which some have tens of thousands of locks.
        let elsewhere = sessions
            .into_iter()
            .map(|session| (session, self.elsewhere(session, file)));
        let elsewhere: BTreeMap<SessionId, u64> = elsewhere.collect();
        FileLocks {
            holds: status.holds as u64,
            queued: status.queued as u64,
            locks: locks
                .map(|lock| self.seen(lock, elsewhere[&lock.who.session]))
                .collect(),
        }
    }

    fn seen(&self, lock: &LockStatus, elsewhere: u64) -> LockInfo {
        let session = lock.who.session;
        let member = self.member(session);
        LockInfo {
            session,
            owner: lock.who.owner,
            client: member.as_ref().map(|member| member.name.clone()).unwrap_or_default(),
            mode: lock.mode,
            is_posix: lock.is_posix,
            is_ending: member.is_some_and(|member| member.is_broken()),
            token: lock.token,
            age_ms: lock.age_ms,
            start: lock.bounds.start,
            end: lock.bounds.end,
            pattern: beginning(&lock.pattern),
            elsewhere,
        }
    }

    /// What a session holds of other files.
    fn elsewhere(&self, session: SessionId, file: &FileName) -> u64 {
        let of_shards = self.each_shard(|shard| shard.holds_elsewhere(session, file));
        of_shards.into_iter().sum()
    }

    /// Breaks what is held of a file, all or nothing; says whose.
    pub(super) fn break_locks(
        &self,
        asker: &ServerSession,
        file: &FileName,
        only: Option<SessionId>,
        force: bool,
    ) -> Result<Vec<SessionId>, BreakError> {
        let Some(uid) = asker.uid else {
            return Err(BreakError::OverTcp);
        };
        let holders = self.shards[self.place_of(file)].lock().holders(file);
        let holders: Vec<_> = holders.into_iter().filter_map(|session| self.member(session)).collect();
        let broken: Vec<_> = holders
            .into_iter()
            .filter(|member| only.is_none_or(|only| only == member.id))
            .collect();
        match only {
            Some(SessionId(only)) if broken.is_empty() => return Err(BreakError::HoldsNothing { session: only }),
            Some(_) => {}
            None => broken
                .iter()
                .try_for_each(|member| self.holds_nothing_else(member, file))?,
        }
        broken.iter().try_for_each(|member| may_break(uid, member))?;
        broken
            .iter()
            .for_each(|member| self.break_session(member, uid, file, force));
        Ok(broken.iter().map(|member| member.id).collect())
    }

    fn holds_nothing_else(&self, member: &ServerSession, file: &FileName) -> Result<(), BreakError> {
        match self.elsewhere(member.id, file) {
            0 => Ok(()),
            others => Err(BreakError::HoldsOthers {
                session: member.id.0,
                name: member.name.clone(),
                others,
            }),
        }
    }

    fn break_session(&self, member: &Arc<ServerSession>, by: u32, file: &FileName, force: bool) {
        info!(session = member.id.0, by, ?file, force, "its locks are broken");
        let how = if force { ", at once" } else { "" };
        self.warn(&format!(
            "uid {by} breaks the locks of session {} ({}) for {file}{how}",
            member.id.0, member.name
        ));
        if member.end_from_outside() {
            self.disconnect(member);
            member.outbox.end(&format!(
                "uid {by} broke it, with all others of this session, for {file}"
            ));
        }
        if force {
            self.close(member);
            member.outbox.wake.notify_one(); // Its connection waits for a farewell that nobody needs any more.
        }
    }
}

/// Why locks are not broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BreakError {
    #[error("who comes over TCP may break no locks: ask on the service's own machine, over its Unix socket")]
    OverTcp,
    #[error("session {session} holds nothing of it")]
    HoldsNothing { session: u64 },
    #[error(
        "session {session} ({name}) holds {others} locks of other files too, and all its locks end with it: name it, if that is meant"
    )]
    HoldsOthers { session: u64, name: String, others: u64 },
    #[error(
        "uid {uid} may not break the locks of session {session} ({name}): root{theirs} and uid {service}, who runs the service, may"
    )]
    Forbidden {
        uid: u32,
        session: u64,
        name: String,
        /// Whose lock it is, in words, where that is known.
        theirs: String,
        service: u32,
    },
}

fn may_break(uid: u32, holder: &ServerSession) -> Result<(), BreakError> {
    let service = rustix::process::geteuid().as_raw();
    if uid == 0 || uid == service || holder.uid == Some(uid) {
        return Ok(());
    }
    Err(BreakError::Forbidden {
        uid,
        session: holder.id.0,
        name: holder.name.clone(),
        theirs: holder
            .uid
            .map_or(String::new(), |theirs| format!(", uid {theirs}, whose lock it is,")),
        service,
    })
}

fn beginning(pattern: &str) -> String {
    match pattern.char_indices().nth(PATTERN_BYTES_MAX) {
        Some((end, _)) => format!("{} ...", &pattern[..end]),
        None => pattern.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use elbow_ranges::Footprint;
    use parking_lot::Mutex;

    use super::*;
    use crate::message::{LockId, LockMode, LockRequest, Owner, Request, Wait};
    use crate::server::listen::Peer;
    use crate::server::outbox::Ending;
    use crate::server::service::Grace;
    use crate::shard::Limits;
    use crate::table::KnownOverlaps;

    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

    fn open(service: &Service, uid: Option<u32>) -> Arc<ServerSession> {
        let is_local = uid.is_some();
        let peer = Peer { is_local, uid };
        service.open("test".to_owned(), 0, peer).unwrap().0
    }

    fn lock(id: u64, file: &[u8]) -> Request {
        Request::Lock(LockRequest {
            id: LockId(id),
            owner: Owner(id),
            file: FileName::new(file).unwrap(),
            mode: LockMode::Exclusive,
            footprint: Footprint::whole(),
            wait: Wait::Try,
            recall: false,
        })
    }

    /// By number: root, who runs the service, and whose it is may; and what is broken is told to whoever runs the service.
    #[test]
    fn who_may_breaks_and_it_is_told() {
        let runs_it = rustix::process::geteuid().as_raw();
        let (whose, other) = (runs_it + 1, runs_it + 2);
        let allowed = [
            (Some(0), true),
            (Some(runs_it), true),
            (Some(whose), true),
            (Some(other), false),
            (None, false),
        ];
        for (uid, may) in allowed {
            let limits = Limits::default();
            let service = Service::new(2, 1, Grace::default(), 10_000, &limits)
                .with_warnings(|what| SAID.lock().push(what.to_owned()));
            let (holder, asker) = (open(&service, Some(whose)), open(&service, uid));
            let file = FileName::new(b"/f").unwrap();
            drop(service.apply(&holder, lock(1, b"/f"), KnownOverlaps::default()));
            SAID.lock().clear();
            let broken = service.break_locks(&asker, &file, None, false);
            assert_eq!(broken.is_ok(), may, "{uid:?}: {broken:?}");
            assert_eq!(holder.is_broken(), may);
            assert_eq!(holder.outbox.ending() == Ending::Announced, may);
            let said = std::mem::take(&mut *SAID.lock());
            let expected = uid.map(|uid| format!("uid {uid} breaks the locks of session 1 (test) for /f"));
            assert_eq!(said, Vec::from_iter(expected.filter(|_| may)));
            // Held until its client says so, and then not.
            assert_eq!(service.look(&file).locks.len(), 1);
            service.close(&holder);
            assert_eq!(service.look(&file), FileLocks::default());
        }
    }

    /// What was under way when the locks were broken is not done any more, but for the end of the session.
    #[test]
    fn a_broken_session_asks_in_vain() {
        let service = Service::new(1, 1, Grace::default(), 10_000, &Limits::default());
        let (holder, asker) = (open(&service, Some(0)), open(&service, Some(0)));
        drop(service.apply(&holder, lock(1, b"/f"), KnownOverlaps::default()));
        service
            .break_locks(&asker, &FileName::new(b"/f").unwrap(), None, false)
            .unwrap();
        drop(service.apply(&holder, Request::Unlock { id: LockId(1) }, KnownOverlaps::default()));
        drop(service.apply(&holder, lock(2, b"/g"), KnownOverlaps::default()));
        assert_eq!(service.look(&FileName::new(b"/f").unwrap()).holds, 1);
        assert_eq!(service.look(&FileName::new(b"/g").unwrap()).holds, 0);
        let again = service
            .break_locks(&asker, &FileName::new(b"/f").unwrap(), None, true)
            .unwrap();
        assert_eq!((again, service.is_idle()), (vec![holder.id], true));
    }
}
