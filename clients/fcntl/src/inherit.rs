//! What goes on in a child of fork and in the next program after exec.
//!
//! - *fork*: the session of fcntl's locks is the parent's alone; the child closes its copy. The sockets of open file
//!   descriptions are shared as the descriptions are. Before it forks, the parent opens a session for each description
//!   that a program after exec would inherit, so that a child may lock it for both (`exec 9>lock; flock 9`).
//! - *exec*: a socket of ours that must go on is left open, and the library in the next program finds it by its name.
//! - *vfork* is fork here; a child made without libc is refused all locks.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::mem::{ManuallyDrop, MaybeUninit, forget, size_of};
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, MutexGuard};

use elbow_lock::{Address, Link, Owner};

use crate::connect::SOCKET_NAMES;
use crate::errno::{Errno, warn};
use crate::file::{self, Inode, LockTarget};
use crate::process::{self, Description, File, Process};
use crate::range::TO_END;
use crate::session::{Session, take};
use crate::{calls, config, descriptions, descriptors, libc_calls, losses, reader};

/// Descriptors below are standard input, output and error: nobody locks them on behalf of a parent.
const FIRST_TO_SHARE: c_int = 3;

type HeldMutexes = (
    MutexGuard<'static, Process>,
    MutexGuard<'static, BTreeMap<c_int, Arc<Session>>>,
);

thread_local! {
    /// The mutexes that a fork in this thread holds, so that the child finds all in order.
    static HELD: Cell<Option<ManuallyDrop<HeldMutexes>>> = const { Cell::new(None) };
}

/// When the library is loaded.
pub(crate) fn begin() {
    process::begin();
    adopt();
    #[allow(unsafe_code)]
    // SAFETY: the three functions live as long as the process.
    let registered = unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
    if registered != 0 {
        warn("no memory to be told of forks; the program is not run");
        #[allow(unsafe_code)]
        // SAFETY: ends the process.
        unsafe {
            libc::_exit(125)
        }
    }
}

extern "C" fn before_fork() {
    if !process::is_ours() {
        return;
    }
    let errno = crate::errno::get();
    calls::set_inside(true);
    let mut process = process::lock();
    let begun = process.descriptions.len();
    share_descriptions(&mut process);
    for description in &mut process.descriptions {
        description.is_shared = true;
    }
    for description in &process.descriptions[begun..] {
        // Without a thread the loss of the session is not noticed; it is still a session.
        let _ = reader::add(&description.session);
    }
    let sessions = take(&reader::SESSIONS);
    HELD.set(Some(ManuallyDrop::new((process, sessions))));
    crate::errno::set(errno);
}

extern "C" fn in_parent() {
    if let Some(held) = HELD.take() {
        drop(ManuallyDrop::into_inner(held));
        calls::set_inside(false);
    }
}

extern "C" fn in_child() {
    let Some(held) = HELD.take() else { return };
    let (mut process, mut sessions) = ManuallyDrop::into_inner(held);
    reader::forget(&mut sessions);
    drop(sessions);
    if let Some(session) = process.session.take() {
        leave(session);
    }
    process.files.clear();
    process.was_lost = false;
    process.is_ending = false;
    let descriptions = std::mem::take(&mut process.descriptions);
    for description in descriptions {
        match take_over(description) {
            Ok(description) => process.descriptions.push(description),
            Err(inherited_fd) => process.inherited_fds.push(inherited_fd),
        }
    }
    find_inherited_fds(&mut process);
    process.count();
    drop(process);
    process::begin();
    calls::set_inside(false);
}

/// Closes our copy of a session's socket, and touches nothing else of it: its mutexes may be locked by threads that are
/// not here.
fn leave(session: Arc<Session>) {
    let descriptor = session.descriptor();
    forget(session);
    descriptors::set_ours(descriptor, false);
    libc_calls::close(descriptor);
}

/// A parent's description as the child's, over the same socket.
fn take_over(mut description: Description) -> Result<Description, (c_int, Inode)> {
    let session = &description.session;
    if session.has_lease() {
        // Nobody would renew the lease when the parent has ended.
        let inherited_fd = (description.representative_fd, description.inode);
        leave(description.session);
        return Err(inherited_fd);
    }
    let descriptor = session.descriptor();
    let ours = Arc::new(Session::new(adopted(descriptor), true));
    forget(std::mem::replace(&mut description.session, ours));
    Ok(description)
}

fn adopted(socket: c_int) -> Link {
    #[allow(unsafe_code)]
    // SAFETY: the socket is open, and whoever had it before in this process has forgotten it.
    Link::adopt(unsafe { UnixStream::from_raw_fd(socket) })
}

/// The session's socket goes to children with each description that the next program would inherit.
///
/// Over TCP no process but this one would renew its lease: there is nothing to share.
fn share_descriptions(process: &mut Process) {
    let is_local = matches!(config::get(), Some(config) if matches!(config.address, Address::Unix(_)));
    let shareable = if is_local { targets() } else { Vec::new() };
    for (fd, target) in shareable {
        let is_known = |description: &Description| {
            description.inode == target.inode
                && descriptors::is_same_description(description.representative_fd, fd) == Ok(true)
        };
        let is_inherited = process.inherited_fds.contains(&(fd, target.inode));
        if fd >= FIRST_TO_SHARE
            && !is_inherited
            && descriptors::ends_with_exec(fd) == Some(false)
            && !process.descriptions.iter().any(is_known)
        {
            // Without it, locking it in the child is refused.
            process.descriptions.extend(descriptions::open(fd, &target).ok());
        }
    }
    process
        .descriptions
        .iter()
        .for_each(Description::follow_representative_fd);
    process.count();
}

/// Descriptors of files below a prefix.
fn targets() -> Vec<(c_int, LockTarget)> {
    let all = descriptors::all().into_iter();
    all.filter_map(|fd| file::target(fd).map(|target| (fd, target)))
        .collect()
}

/// All that is open now may be shared with others; where no session is shared too, it is a stranger.
fn find_inherited_fds(process: &mut Process) {
    for (fd, target) in targets() {
        let is_known = |description: &Description| {
            description.inode == target.inode
                && descriptors::is_same_description(description.representative_fd, fd) == Ok(true)
        };
        if !process.descriptions.iter().any(is_known) && !process.inherited_fds.contains(&(fd, target.inode)) {
            process.inherited_fds.push((fd, target.inode));
        }
    }
}

/// Goes on with the sessions that the program before exec, or a parent, has left for us.
fn adopt() {
    let mut process = process::lock();
    for socket in descriptors::all() {
        let Some(name) = socket_name(socket) else { continue };
        descriptors::set_ours(socket, true);
        if !adopt_one(&mut process, socket, &name) {
            descriptors::set_ours(socket, false);
            libc_calls::close(socket);
        }
    }
    find_inherited_fds(&mut process);
    process.count();
}

/// What follows our mark in the name of a socket.
fn socket_name(socket: c_int) -> Option<String> {
    let mut address = MaybeUninit::<libc::sockaddr_un>::zeroed();
    let mut length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    #[allow(unsafe_code)]
    // SAFETY: there is room for as much as we say, and zeros are an address.
    let address = unsafe {
        if libc::getsockname(socket, address.as_mut_ptr().cast(), &raw mut length) == -1 {
            return None;
        }
        address.assume_init()
    };
    let used = (length as usize).checked_sub(size_of::<libc::sa_family_t>())?;
    let path: Vec<u8> = address
        .sun_path
        .get(..used)?
        .iter()
        .map(|byte| byte.cast_unsigned())
        .collect();
    let name = path.strip_prefix(SOCKET_NAMES)?;
    (i32::from(address.sun_family) == libc::AF_UNIX).then(|| String::from_utf8_lossy(name).into_owned())
}

fn adopt_one(process: &mut Process, socket: c_int, name: &str) -> bool {
    match name.split('/').collect::<Vec<_>>().as_slice() {
        ["process", pid, _] if *pid == std::process::id().to_string() => {
            descriptors::let_end_with_exec(socket, true);
            process.session = Some(Arc::new(Session::new(adopted(socket), false)));
            // What is held is not known here: a close of any of these files unlocks it.
            for (_, target) in targets() {
                let mut file = File::new(&target);
                file.held.insert(0, TO_END);
                process.files.insert(target.inode, file);
            }
            true
        }
        ["description", owner, device, number, representative_fd, _] => {
            let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
            let (Some(owner), Some(device), Some(number)) =
                (hexadecimal(owner), hexadecimal(device), hexadecimal(number))
            else {
                return false;
            };
            adopt_description(
                process,
                socket,
                Owner(owner),
                Inode { device, number },
                representative_fd,
            )
        }
        _ => false,
    }
}

fn adopt_description(
    process: &mut Process,
    socket: c_int,
    owner: Owner,
    inode: Inode,
    representative_fd: &str,
) -> bool {
    let mut of_file = targets();
    of_file.retain(|(_, target)| target.inode == inode);
    let named = of_file.iter().position(|(fd, _)| fd.to_string() == representative_fd);
    // Under another number it must be the only one.
    let is_one = || {
        let same = |(fd, _): &(c_int, LockTarget)| descriptors::is_same_description(*fd, of_file[0].0) == Ok(true);
        !of_file.is_empty() && of_file.iter().all(same)
    };
    let Some(index) = named.or_else(|| is_one().then_some(0)) else {
        return false;
    };
    let (fd, target) = &of_file[index];
    let session = Session::new(adopted(socket), true);
    let mut description = Description::over(session, owner, *fd, target);
    description.is_shared = true;
    process.descriptions.push(description);
    true
}

/// Before exec: what has to go on gets sockets that do.
///
/// # Errors
/// `ENOLCK` where fcntl's locks would have to go on and cannot.
pub(crate) fn before_exec() -> Result<(), Errno> {
    if config::get().is_none() || !process::is_ours() {
        return Ok(());
    }
    losses::report_losses();
    let process = process::lock();
    process
        .descriptions
        .iter()
        .for_each(Description::follow_representative_fd);
    let held: Vec<Inode> = process
        .files
        .iter()
        .filter(|(_, file)| !file.held.is_empty())
        .map(|(&inode, _)| inode)
        .collect();
    let (ending, staying): (Vec<Inode>, Vec<Inode>) = held.into_iter().partition(|&inode| {
        // A descriptor that exec closes releases the file's locks, as any close does.
        descriptors::of_file(inode).any(|fd| descriptors::ends_with_exec(fd) == Some(true))
    });
    let Some(session) = process.live_session().filter(|_| !staying.is_empty()).cloned() else {
        return Ok(());
    };
    if session.has_lease() {
        let name = &process.files[&staying[0]].name;
        warn(&format!(
            "a lock on {name} would have to go on after exec, which needs a lock service on a Unix socket; exec fails with ENOLCK"
        ));
        return Err(Errno(libc::ENOLCK));
    }
    descriptors::let_end_with_exec(session.descriptor(), false);
    drop(process);
    ending.into_iter().for_each(crate::locks::release);
    Ok(())
}

/// exec has failed.
pub(crate) fn after_exec() {
    if !process::is_ours() {
        return;
    }
    if let Some(session) = process::lock().live_session() {
        descriptors::let_end_with_exec(session.descriptor(), true);
    }
}
