//! What is asked by path, in as many requests as it takes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;

use elbow_file::{Errno, FileType, RenameMode, Result};

use super::attributes::with_mode;
use super::nodes::component;
use super::server::Server;
use super::session::{Answered, Fault, Session};
use super::why::kind_of;
use super::wire::{Ask, Attrs, Name, Request, Status, open_flags};

/// More names than these are no directory that a job can be over.
const NAMES_MAX: usize = 1 << 24;
/// So many requests for names are under way at once at first, and later: most directories are told in one answer, and their end in the next.
const LISTS_FIRST: usize = 2;
const LISTS_LATER: usize = 16;
/// A name is tried to be made so often while others make and remove it.
const MAKES: usize = 5;
pub(crate) const FAILURE: Fault = Fault::Said(Status::Failure);

impl Session {
    /// Asks for something that has no other answer than that it was done.
    pub(crate) fn ask(&self, request: Request) -> Answered<()> {
        self.send(request).done()
    }

    /// Creates a file, and opens it; the handle.
    pub(crate) fn open_new(&self, path: &[u8], mode: u32) -> Result<Vec<u8>> {
        let flags = open_flags::READ | open_flags::WRITE | open_flags::CREATE | open_flags::EXCLUSIVE;
        let request = Request::new(Ask::Open).string(path).u32(flags);
        let request = request.attrs(&with_mode(mode));
        self.make(path, || self.send(request.clone()).handle())
            .map_err(|(fault, is_there)| self.why_not_opened(fault, || self.why_not_made(path, fault, is_there)))
    }

    /// Makes a name by a request; why not.
    pub(crate) fn make_name(&self, path: &[u8], request: &Request) -> Result<()> {
        self.make(path, || self.ask(request.clone()))
            .map_err(|(fault, is_there)| self.why_not_made(path, fault, is_there))
    }

    /// Makes a name; when that fails, also whether it is there. One that is not may have been there a moment before, as the name of a turn that others
    /// take: then it is made once more.
    fn make<T>(&self, path: &[u8], make: impl Fn() -> Answered<T>) -> std::result::Result<T, (Fault, bool)> {
        let mut made = make();
        for _ in 1..MAKES {
            match made {
                Err(Fault::Said(Status::Failure)) if self.lstat(path).is_ok() => return Err((FAILURE, true)),
                Err(Fault::Said(Status::Failure)) => made = make(),
                _ => break,
            }
        }
        made.map_err(|fault| (fault, fault == FAILURE && self.lstat(path).is_ok()))
    }

    /// Opens what is there, whatever it is, following links; the handle.
    pub(crate) fn open_old(&self, path: &[u8], flags: u32) -> Result<Vec<u8>> {
        let request = Request::new(Ask::Open).string(path).u32(flags);
        let opened = self.send(request.attrs(&Attrs::default())).handle();
        opened.map_err(|fault| self.why_not_opened(fault, || self.why_not(path, fault)))
    }

    fn why_not_opened(&self, fault: Fault, other: impl FnOnce() -> Errno) -> Errno {
        let most = self.server.handles_max;
        let is_full = || most > 0 && self.open.load(Ordering::Relaxed) as u64 >= most;
        match fault {
            Fault::Said(Status::Failure) if is_full() => Errno::MFILE,
            _ => other(),
        }
    }

    /// The names in a directory but `.` and `..`, with what they are.
    pub(crate) fn names(&self, path: &[u8]) -> Result<Vec<Name>> {
        let opened = self.send(Request::new(Ask::Opendir).string(path)).handle();
        let handle = opened.map_err(|fault| self.why_not_opened(fault, || self.why_no_dir(path, fault)))?;
        let names = self.read_names(&handle);
        // Nothing can be lost by it.
        drop(self.send(Request::new(Ask::Close).string(&handle)));
        names
    }

    fn read_names(&self, handle: &[u8]) -> Result<Vec<Name>> {
        let mut names = Vec::new();
        let mut under_way = LISTS_FIRST;
        loop {
            let ask = || self.send(Request::new(Ask::Readdir).string(handle));
            let asked: Vec<_> = (0..under_way).map(|_| ask()).collect();
            for pending in asked {
                match pending.names() {
                    Ok(some) if some.is_empty() || names.len() > NAMES_MAX => return Err(Errno::PROTO),
                    Ok(some) => names.extend(some),
                    Err(Fault::Said(Status::EndOfFile)) => return sound(names),
                    Err(fault) => return Err(fault.errno()),
                }
            }
            under_way = LISTS_LATER;
        }
    }

    pub(crate) fn is_empty(&self, path: &[u8]) -> bool {
        self.names(path).is_ok_and(|names| names.is_empty())
    }

    /// Sets attributes of what has a path, and of nothing that it points to.
    pub(crate) fn set(&self, path: &[u8], attrs: &Attrs) -> Result<()> {
        if self.server.sets_links {
            let request = Request::extended(Server::SET_LINK).string(path).attrs(attrs);
            match self.ask(request) {
                // Where /proc is missing, as in a changed root, the C library cannot do it.
                Err(Fault::Said(Status::Failure | Status::Unsupported)) => {}
                Err(fault) => return Err(self.why_not(path, fault)),
                Ok(()) => return Ok(()),
            }
        }
        let found = self.lstat(path).map_err(Fault::errno)?;
        match kind_of(&found) {
            Some(FileType::Symlink) if attrs.mode.is_some() => Err(Errno::OPNOTSUPP),
            // As of a link that points nowhere: whoever tries hears that links have no attributes of their own here.
            Some(FileType::Symlink) => Err(Errno::NOENT),
            _ => {
                let request = Request::new(Ask::Setstat).string(path).attrs(attrs);
                self.ask(request).map_err(|fault| self.why_not(path, fault))
            }
        }
    }

    /// Renames; the two names do not change places.
    pub(crate) fn rename(&self, from: &[u8], to: &[u8], mode: RenameMode) -> Result<()> {
        let named = |request: Request| request.string(from).string(to);
        let replacing = || self.ask(named(Request::extended(Server::RENAME)));
        let has_replacing = self.server.renames;
        let renamed = if mode == RenameMode::Replace && has_replacing {
            replacing()
        } else {
            // The protocol's own replaces nothing; a server that does it all the same is not relied on.
            self.expect_free(from, to)?;
            match self.ask(named(Request::new(Ask::Rename))) {
                // OpenSSH makes it of a link, which Linux refuses of a file of somebody else's that may be renamed.
                Err(Fault::Said(Status::PermissionDenied)) if has_replacing => replacing(),
                renamed => renamed,
            }
        };
        renamed.map_err(|fault| match mode {
            RenameMode::NoReplace if fault == FAILURE && self.lstat(to).is_ok() => Errno::EXIST,
            _ => self.why_not_renamed((from, to), fault, || self.is_empty(to)),
        })
    }

    /// Nobody has the new name, before something gets it.
    fn expect_free(&self, from: &[u8], to: &[u8]) -> Result<()> {
        match self.lstat(to) {
            Ok(_) if self.lstat(from).is_ok() => Err(Errno::EXIST),
            Ok(_) => Err(Errno::NOENT),
            Err(Fault::Said(Status::NoSuchFile)) => Ok(()),
            Err(fault) => Err(fault.errno()),
        }
    }

    /// Both names have to be there before it can be said that they cannot change places.
    pub(crate) fn why_no_exchange(&self, from: &[u8], to: &[u8]) -> Errno {
        let missing = [from, to].iter().find_map(|path| self.lstat(path).err());
        missing.map_or(Errno::INVAL, Fault::errno)
    }
}

/// The names of a listing but `.` and `..`, if no other is one of another directory.
fn sound(mut names: Vec<Name>) -> Result<Vec<Name>> {
    names.retain(|name| !matches!(&name.name[..], b"." | b".."));
    let is_sound = |name: &Name| component(OsStr::from_bytes(&name.name)).is_ok();
    names.iter().all(is_sound).then_some(names).ok_or(Errno::PROTO)
}
