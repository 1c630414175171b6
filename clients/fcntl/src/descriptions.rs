//! Locks of open file descriptions: flock, and fcntl's `F_OFD_SETLK`, `F_OFD_SETLKW`, `F_OFD_GETLK`.
//!
//! Each description that is locked has a session of its own, whose socket goes where the descriptor goes: to children of
//! fork, and over exec if the descriptor does. The session ends with the last copy of the socket.
//!
//! ```text
//!   shell   exec 9>lock        descriptor 9 --- description --- file
//!           (before it forks)  socket 600  --- session    --- service: //flock of the file
//!   child   flock 9            has copies of both, and asks over the socket; ends
//!   shell   ...                has the lock, because it has the socket
//! ```
//!
//! A description that came to the process without such a socket may have locks that end with another process; to lock it
//! is refused.

use std::ffi::c_int;
use std::sync::Arc;

use elbow_lock::{Blocker, FileName, LockError, LockMode, Owner, Reply};

use crate::errno::{Errno, warn};
use crate::file::{self, Inode, LockTarget};
use crate::locks::{self, OwnerRequest};
use crate::process::{self, Description, Process};
use crate::range::{DESCRIPTION_OWNER, FlockRequest, TO_END};
use crate::session::{Disconnected, Session, errno_of};
use crate::{connect, descriptors, losses, reader};

/// After the name of a file: where flock's locks on it are. No path without links has two slashes in a row.
const FLOCK: &[u8] = b"//flock";

/// Opens a session for the description of `representative_fd`.
pub(crate) fn open(representative_fd: c_int, target: &LockTarget) -> Result<Description, LockError> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| LockError::Unreachable {
        address: elbow_lock::Address::Tcp("the system's random numbers".to_owned()),
        source: std::io::Error::other(error),
    })?;
    let owner = DESCRIPTION_OWNER | u64::from_ne_bytes(random);
    let Inode { device, number } = target.inode;
    let purpose = format!("description/{owner:x}/{device:x}/{number:x}/{representative_fd}");
    let link = connect::connect(&purpose)?;
    let description = Description::over(Session::new(link, true), Owner(owner), representative_fd, target);
    description.follow_representative_fd();
    Ok(description)
}

/// What a call needs of a description.
struct DescriptionSession {
    session: Arc<Session>,
    /// A file that was renamed while it is held keeps the name that its locks have at the service.
    name: FileName,
    former: Option<FileName>,
    owner: Owner,
    flock: Option<LockMode>,
    is_shared: bool,
}

/// Why a step did not succeed.
enum StepError {
    Refused(Errno),
    Disconnected,
}

/// flock(2).
pub(crate) fn flock(fd: c_int, target: &LockTarget, mode: Option<LockMode>, waits: bool) -> Result<(), Errno> {
    if target.mode & libc::O_PATH != 0 {
        return Err(Errno(libc::EBADF));
    }
    loop {
        let Some(place) = place(fd, target, mode.is_none())? else {
            return Ok(()); // It was never locked.
        };
        let is_held = place.flock == mode && !place.is_shared;
        let outcome = match is_held {
            true if place.session.is_good() => return Ok(()),
            true => Err(StepError::Disconnected),
            false => convert(&place, mode, waits),
        };
        match outcome {
            Ok(()) => return Ok(()),
            Err(StepError::Refused(errno)) => return Err(errno),
            Err(StepError::Disconnected) => losses::lost(&place.session),
        }
    }
}

/// The kernel too gives up the old lock before it asks for the new one, and does not get it back.
fn convert(place: &DescriptionSession, mode: Option<LockMode>, waits: bool) -> Result<(), StepError> {
    let may_hold = place.flock.is_some() || place.is_shared;
    let steps = [(mode.is_none() || may_hold).then_some(None), mode.map(Some)];
    steps.into_iter().flatten().try_for_each(|mode| {
        let asked = FlockRequest {
            mode,
            start: 0,
            end: TO_END,
        };
        set_by_name(place, flock_name, asked, waits)?;
        change(place, |description| description.flock = mode)
    })
}

/// `F_OFD_SETLK` and `F_OFD_SETLKW`.
pub(crate) fn set(fd: c_int, target: &LockTarget, asked: FlockRequest, waits: bool) -> Result<(), Errno> {
    locks::check_mode(target, asked.mode)?;
    loop {
        let Some(place) = place(fd, target, asked.mode.is_none())? else {
            return Ok(());
        };
        let outcome = set_by_name(&place, |name| Ok(name.clone()), asked, waits).and_then(|()| {
            change(&place, |description| {
                locks::remember(&mut description.held, asked.mode, asked.start..asked.end);
            })
        });
        match outcome {
            Ok(()) => return Ok(()),
            Err(StepError::Refused(errno)) => return Err(errno),
            Err(StepError::Disconnected) => losses::lost(&place.session),
        }
    }
}

/// `F_OFD_GETLK`: the lock in the way.
pub(crate) fn get(fd: c_int, target: &LockTarget, asked: FlockRequest) -> Result<Option<Blocker>, Errno> {
    loop {
        let Some(place) = place(fd, target, false)? else {
            return Ok(None);
        };
        match locks::query(&place.session, &place.name, place.owner, asked) {
            Err(Disconnected(_)) => losses::lost(&place.session),
            Ok(answer) => return answer,
        }
    }
}

/// Locks by what the file is called. An unlock is for what it was called, too.
fn set_by_name(
    place: &DescriptionSession,
    name: impl Fn(&FileName) -> Result<FileName, Errno>,
    asked: FlockRequest,
    waits: bool,
) -> Result<(), StepError> {
    let former = place.former.as_ref().filter(|_| asked.mode.is_none());
    [Some(&place.name), former]
        .into_iter()
        .flatten()
        .try_for_each(|called| {
            let name = name(called).map_err(StepError::Refused)?;
            ask(place, &name, asked, waits)
        })
}

fn ask(place: &DescriptionSession, name: &FileName, asked: FlockRequest, waits: bool) -> Result<(), StepError> {
    let wanted = OwnerRequest {
        owner: place.owner,
        asked,
        waits,
    };
    loop {
        return match place.session.ask(|id| locks::request(id, name, &wanted), waits) {
            Ok(Reply::Granted { .. }) => Ok(()),
            Ok(Reply::Refused { why, .. }) if locks::is_worth_waiting(&why) => continue,
            Ok(Reply::Refused { why, .. }) => Err(StepError::Refused(Errno(errno_of(&why)))),
            Ok(_) => Err(StepError::Refused(Errno(libc::ENOLCK))),
            Err(Disconnected(_)) => Err(StepError::Disconnected),
        };
    }
}

/// Remembers what was granted, unless the session has ended since.
fn change(place: &DescriptionSession, remember: impl FnOnce(&mut Description)) -> Result<(), StepError> {
    let mut process = process::lock();
    let ours = |description: &&mut Description| Arc::ptr_eq(&description.session, &place.session);
    match process.descriptions.iter_mut().find(ours) {
        Some(description) if place.session.broken().is_none() => {
            remember(description);
            Ok(())
        }
        Some(_) => Err(StepError::Disconnected),
        // Closed by another thread, and the lock with it.
        None => Err(StepError::Refused(Errno(libc::EBADF))),
    }
}

/// The session of a descriptor's description; a new one if there is none, or nothing for a mere unlock.
fn place(fd: c_int, target: &LockTarget, is_unlock: bool) -> Result<Option<DescriptionSession>, Errno> {
    let place = connect::with_service(|process| {
        let index = match find(process, fd, target.inode) {
            Ok(Some(index)) => index,
            Ok(None) if is_unlock => return Ok(Ok(None)),
            Ok(None) => {
                process.descriptions.push(open(fd, target)?);
                process.count();
                process.descriptions.len() - 1
            }
            Err(errno) => return Ok(Err(errno)),
        };
        let description = &mut process.descriptions[index];
        if std::mem::take(&mut description.was_lost) {
            // One call fails for it; the next begins anew.
            process.descriptions.swap_remove(index);
            process.count();
            return Ok(if is_unlock { Ok(None) } else { Err(Errno(libc::ENOLCK)) });
        }
        if !description.holds() && description.name != target.name {
            let former = std::mem::replace(&mut description.name, target.name.clone());
            description.former = Some(former).filter(|_| description.is_shared);
        }
        Ok(Ok(Some(DescriptionSession {
            session: Arc::clone(&description.session),
            name: description.name.clone(),
            former: description.former.clone(),
            owner: description.owner,
            flock: description.flock,
            is_shared: description.is_shared,
        })))
    })??;
    if let Some(place) = &place {
        reader::add(&place.session)?;
    }
    Ok(place)
}

fn find(process: &mut Process, fd: c_int, inode: Inode) -> Result<Option<usize>, Errno> {
    // Closed by a way that we have not seen.
    process.descriptions.retain(|description| {
        let is_there = description.inode != inode || file::inode(description.representative_fd) == Some(inode);
        if !is_there {
            reader::remove(&description.session);
        }
        is_there
    });
    for (index, description) in process.descriptions.iter().enumerate() {
        if description.is_of(fd, inode).map_err(without_kcmp)? {
            return Ok(Some(index));
        }
    }
    for &(inherited_fd, of) in &process.inherited_fds {
        if of == inode && descriptors::is_same_description(inherited_fd, fd).map_err(without_kcmp)? {
            warn(&format!(
                "descriptor {fd} was opened by another process, before or without a session for its locks: flock or \
                 F_OFD_SETLK on it fails with ENOLCK; open the file again in this process"
            ));
            return Err(Errno(libc::ENOLCK));
        }
    }
    Ok(None)
}

fn without_kcmp(errno: Errno) -> Errno {
    let why = std::io::Error::from_raw_os_error(errno.0);
    warn(&format!(
        "kcmp(2) is not to be had ({why}): flock and F_OFD_SETLK fail with ENOLCK"
    ));
    Errno(libc::ENOLCK)
}

fn flock_name(name: &FileName) -> Result<FileName, Errno> {
    FileName::new(&[name.as_bytes(), FLOCK].concat()).ok_or(Errno(libc::ENAMETOOLONG))
}

/// The program closes a descriptor: with the last one of a description, its locks end.
pub(crate) fn release(fd: c_int, inode: Inode) {
    let mut process = process::lock();
    if !process
        .descriptions
        .iter()
        .any(|description| description.inode == inode)
        && !process.inherited_fds.contains(&(fd, inode))
    {
        return;
    }
    let is_same = |other: c_int| descriptors::is_same_description(fd, other) == Ok(true);
    let other = descriptors::of_file(inode).find(|&other| other != fd && is_same(other));
    if let Some(index) = process
        .inherited_fds
        .iter()
        .position(|&inherited_fd| inherited_fd == (fd, inode))
    {
        match other {
            Some(other) => process.inherited_fds[index].0 = other,
            None => drop(process.inherited_fds.swap_remove(index)),
        }
    }
    let of = |description: &Description| description.inode == inode && is_same(description.representative_fd);
    let Some(index) = process.descriptions.iter().position(of) else {
        return process.count();
    };
    if let Some(other) = other {
        let description = &mut process.descriptions[index];
        if description.representative_fd == fd {
            description.representative_fd = other;
        }
        return;
    }
    let description = process.descriptions.swap_remove(index);
    process.count();
    drop(process);
    end(&description);
}

/// The last descriptor here is about to be closed.
fn end(description: &Description) {
    let all = |mode| FlockRequest {
        mode,
        start: 0,
        end: TO_END,
    };
    // Where no other process has it, waits until the service knows: whoever is told of the close finds the file free.
    let is_read = description.session.broken().is_none() && reader::add(&description.session).is_ok();
    if !description.may_be_elsewhere() && is_read {
        let place = DescriptionSession {
            session: Arc::clone(&description.session),
            name: description.name.clone(),
            former: None,
            owner: description.owner,
            flock: None,
            is_shared: false,
        };
        let flock = flock_name(&description.name)
            .ok()
            .filter(|_| description.flock.is_some());
        let held = Some(description.name.clone()).filter(|_| !description.held.is_empty());
        for name in [flock, held].into_iter().flatten() {
            drop(ask(&place, &name, all(None), false));
        }
    }
    reader::remove(&description.session);
    description.session.end_session();
}
