//! fcntl's locks, which are the process's: `F_SETLK`, `F_SETLKW`, `F_GETLK`, and lockf.

use std::ffi::c_int;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use elbow_lock::{
    Blocker, FileName, LockId, LockMode, Owner, PosixRequest, QueryRequest, Refusal, Reply, Request, Wait,
};
use elbow_ranges::RangeSet;

use crate::errno::Errno;
use crate::file::{self, Inode, LockTarget};
use crate::process::{self, File};
use crate::range::{FlockRequest, TO_END};
use crate::session::{Disconnected, Session, errno_of};
use crate::{connect, losses, reader};

/// A service that shuts down ends the connection soon.
const DRAIN_PAUSE: Duration = Duration::from_millis(20);

/// What one owner asks for, as a request needs it.
#[derive(Clone, Copy)]
pub(crate) struct OwnerRequest {
    pub(crate) owner: Owner,
    pub(crate) asked: FlockRequest,
    pub(crate) waits: bool,
}

/// Whether a descriptor may have that lock.
pub(crate) fn check_mode(target: &LockTarget, mode: Option<LockMode>) -> Result<(), Errno> {
    let allowed = match (target.mode, mode) {
        (mode, _) if mode & libc::O_PATH != 0 => false,
        (_, None) | (libc::O_RDWR, _) => true,
        (libc::O_RDONLY, Some(mode)) => mode == LockMode::Shared,
        (libc::O_WRONLY, Some(mode)) => mode == LockMode::Exclusive,
        _ => false,
    };
    if allowed { Ok(()) } else { Err(Errno(libc::EBADF)) }
}

/// `F_SETLK` and `F_SETLKW`.
pub(crate) fn set(fd: c_int, target: &LockTarget, asked: FlockRequest, waits: bool) -> Result<(), Errno> {
    check_mode(target, asked.mode)?;
    let owner = process::owner();
    let wanted = OwnerRequest { owner, asked, waits };
    let target = &as_held(target);
    loop {
        refuse_if_lost(asked.mode)?;
        if asked.mode.is_none() && !holds_any(target) {
            return Ok(());
        }
        let session = connect::session()?;
        begin(target);
        match session.ask(|id| request(id, &target.name, &wanted), waits) {
            Ok(Reply::Granted { .. }) => match note(&session, target, &asked) {
                true if file::inode(fd) == Some(target.inode) => return Ok(()),
                true => {
                    // Another thread has closed it meanwhile: fcntl leaves no lock behind then.
                    unlock_all(&session, &target.name);
                    return Err(Errno(libc::EBADF));
                }
                false => {} // The connection broke just now.
            },
            Ok(Reply::Refused { why, .. }) if is_worth_waiting(&why) => {}
            Ok(Reply::Refused { why, .. }) => return Err(Errno(errno_of(&why))),
            Ok(_) => return Err(Errno(libc::ENOLCK)),
            Err(Disconnected(_)) => losses::lost(&session),
        }
    }
}

/// A service that shuts down has a successor soon, where nothing is held that it waits for. Then takes a pause.
pub(crate) fn is_worth_waiting(why: &Refusal) -> bool {
    let is_waiting = *why == Refusal::Draining && !process::lock().holds_any();
    if is_waiting {
        std::thread::sleep(DRAIN_PAUSE);
    }
    is_waiting
}

/// `F_GETLK`: the lock in the way.
pub(crate) fn get(target: &LockTarget, asked: FlockRequest) -> Result<Option<Blocker>, Errno> {
    loop {
        let session = connect::session()?;
        match query(&session, &as_held(target).name, process::owner(), asked) {
            Err(Disconnected(_)) => losses::lost(&session),
            Ok(answer) => return answer,
        }
    }
}

/// Asks what is in the way, after the grace period where there is one.
pub(crate) fn query(
    session: &Session,
    file: &FileName,
    owner: Owner,
    asked: FlockRequest,
) -> Result<Result<Option<Blocker>, Errno>, Disconnected> {
    loop {
        let request = |id| {
            Request::Query(QueryRequest {
                id,
                owner,
                file: file.clone(),
                mode: asked.mode.unwrap_or(LockMode::Exclusive),
                start: asked.start,
                end: asked.end,
            })
        };
        return Ok(match session.ask(request, false)? {
            Reply::Answer { blocker, .. } => Ok(blocker),
            Reply::Refused {
                why: Refusal::Grace { wait_ms },
                ..
            } => {
                std::thread::sleep(Duration::from_millis(u64::from(wait_ms.max(1))));
                continue;
            }
            Reply::Refused { why, .. } => Err(Errno(errno_of(&why))),
            _ => Err(Errno(libc::ENOLCK)),
        });
    }
}

pub(crate) fn request(id: LockId, file: &FileName, wanted: &OwnerRequest) -> Request {
    let FlockRequest { mode, start, end } = wanted.asked;
    Request::Posix(PosixRequest {
        id,
        owner: wanted.owner,
        file: file.clone(),
        start,
        end,
        mode,
        wait: if wanted.waits { Wait::Forever } else { Wait::Try },
    })
}

/// The program closes a descriptor of a file: all its locks on the file end, as fcntl(2) says.
pub(crate) fn release(inode: Inode) {
    let mut process = process::lock();
    let Some(File { name, held }) = process.files.remove(&inode) else {
        return;
    };
    process.count();
    let session = process.live_session().filter(|_| !held.is_empty()).cloned();
    drop(process);
    if let Some(session) = session {
        unlock_all(&session, &name);
    }
}

/// Waits for the answer, so that whoever is told of the close finds the file free. A session that breaks has freed it too.
fn unlock_all(session: &Arc<Session>, name: &FileName) {
    let asked = FlockRequest {
        mode: None,
        start: 0,
        end: TO_END,
    };
    let owner = process::owner();
    let wanted = OwnerRequest {
        owner,
        asked,
        waits: false,
    };
    // One that was adopted after exec may not be read yet.
    if reader::add(session).is_ok() {
        drop(session.ask(|id| request(id, name, &wanted), false));
    }
}

fn refuse_if_lost(mode: Option<LockMode>) -> Result<(), Errno> {
    let mut process = process::lock();
    if mode.is_some() && std::mem::take(&mut process.was_lost) {
        return Err(Errno(libc::ENOLCK));
    }
    Ok(())
}

fn holds_any(target: &LockTarget) -> bool {
    process::lock().files.contains_key(&target.inode)
}

/// A file that was renamed while the process holds locks on it keeps the name that they have at the service.
fn as_held(target: &LockTarget) -> LockTarget {
    let mut target = target.clone();
    let process = process::lock();
    if let Some(file) = process.files.get(&target.inode).filter(|file| !file.held.is_empty()) {
        target.name = file.name.clone();
    }
    target
}

/// From now on a close of the file concerns us.
fn begin(target: &LockTarget) {
    let mut process = process::lock();
    let file = process.files.entry(target.inode).or_insert_with(|| File::new(target));
    if file.held.is_empty() {
        file.name = target.name.clone();
    }
    process.count();
}

/// Remembers what was granted; false if the session has ended since.
fn note(session: &Arc<Session>, target: &LockTarget, asked: &FlockRequest) -> bool {
    let mut process = process::lock();
    if !process.live_session().is_some_and(|ours| Arc::ptr_eq(ours, session)) {
        return false;
    }
    // A close of another descriptor may have taken the entry away while we waited.
    let file = process.files.entry(target.inode).or_insert_with(|| File::new(target));
    remember(&mut file.held, asked.mode, asked.start..asked.end);
    process.count();
    true
}

/// A range is held now, or not.
pub(crate) fn remember(held: &mut RangeSet, mode: Option<LockMode>, range: Range<u64>) {
    match mode {
        Some(_) => held.insert(range.start, range.end),
        None => held.remove(range.start, range.end),
    }
}
