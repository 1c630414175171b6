//! The directory of an SFTP server, as if it were here.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use elbow_file::{
    Access, DirEntry, Errno, FileSystemTraits, FileType, Handle, Identity, RenameMode, Result, Space, Stat, Storage,
    Time,
};
use parking_lot::{RwLock, RwLockReadGuard};

use super::attributes::{found, with_mode, with_owner, with_size, with_times};
use super::by_path::FAILURE;
use super::files::OpenFile;
use super::listed::Listed;
use super::nodes::{Node, Nodes, PATH_BYTES_MAX, ino_of};
use super::server::Server;
use super::session::{Answered, Fault, Session};
use super::why::kind_of;
use super::wire::{Ask, Attrs, Request, open_flags};
use crate::greet::ConnectError;
use crate::ids::SwappedIds;
use crate::read_ahead::KeptReads;

/// A server that does not say how much room it has has this much.
const ROOM_BYTES: u64 = 1 << 50;
const BLOCK_BYTES: u64 = 4096;
/// How often a write is tried again that was refused though there is room.
const WRITES_AGAIN: u32 = 2;
const NAME_BYTES_MAX: u32 = 255;

/// The storage behind an SFTP server. Each call is one or a few requests, and waits for their answers; any number of threads may ask at
/// once. When the connection has ended, each call fails with ENOTCONN.
///
/// What the protocol does not have is refused as Linux refuses it on a file system without it: extended attributes, holes and locks with
/// EOPNOTSUPP, pipes and devices with EPERM, the exchange of two names with EINVAL. A time is whole seconds, and a name is all that an object is known by.
#[derive(Debug)]
pub struct SftpStorage {
    session: Arc<Session>,
    nodes: Nodes,
    /// Stands for the device.
    dev: u64,
    /// Who logged in, as far as that is known by whose the home directory is.
    owner: Option<(u32, u32)>,
    /// Held to change the name of an open directory: no request is under way then that names something below it.
    paths: RwLock<()>,
    listed: Listed,
    /// By the node of the file.
    kept: KeptReads,
}

/// What stands here for an object that is open.
#[derive(Debug)]
struct Opened {
    node: Arc<Node>,
    /// `None` for a directory.
    file: Option<OpenFile>,
}

fn opened(handle: &Handle) -> Result<&Opened> {
    handle.elsewhere::<Opened>().ok_or(Errno::BADF)
}

fn node(handle: &Handle) -> Result<&Arc<Node>> {
    opened(handle).map(|opened| &opened.node)
}

fn file(handle: &Handle) -> Result<(&Arc<Node>, &OpenFile)> {
    let opened = opened(handle)?;
    let file = opened.file.as_ref().ok_or(Errno::ISDIR)?;
    Ok((&opened.node, file))
}

impl SftpStorage {
    /// Greets a server on two streams. `host` names it in errors; `root` is the directory there that all names are below, relative to
    /// the one that the server begins in.
    ///
    /// # Errors
    /// There is no server, or no such directory.
    pub fn connect(
        host: &str,
        root: &Path,
        from: impl Read + Send + 'static,
        mut to: impl Write + Send + 'static,
    ) -> std::result::Result<Self, ConnectError> {
        Session::greet(&mut to).map_err(|error| broken(host, error))?;
        Self::of_greeted(host, root, from, to)
    }

    /// The same of one that was greeted.
    pub(crate) fn of_greeted(
        host: &str,
        root: &Path,
        from: impl Read + Send + 'static,
        to: impl Write + Send + 'static,
    ) -> std::result::Result<Self, ConnectError> {
        let session = Session::start(from, to).map_err(|error| broken(host, error))?;
        let refused = |fault: Fault| refused(host, root, fault);
        let asked = match root.as_os_str().as_bytes() {
            b"" => b".",
            path if path.contains(&0) => return Err(refused(Fault::Lost(Errno::INVAL))),
            path => path,
        };
        let path = session.send(Request::new(Ask::Realpath).string(asked));
        let home = session.send(Request::new(Ask::Lstat).string(b"."));
        let path = path.name().map_err(refused)?;
        let kind = session.lstat(&path).map(|attrs| kind_of(&attrs)).map_err(refused)?;
        if kind != Some(FileType::Dir) || path.first() != Some(&b'/') {
            return Err(refused(Fault::Lost(Errno::NOTDIR)));
        }
        Ok(Self {
            nodes: Nodes::new(&path),
            dev: ino_of(host.as_bytes()),
            owner: home.attrs().ok().and_then(|attrs| attrs.owner),
            session,
            paths: RwLock::default(),
            listed: Listed::default(),
            kept: KeptReads::default(),
        })
    }

    pub(crate) fn session(&self) -> Arc<Session> {
        self.session.clone()
    }

    /// The same, for this process: who logged in there is its user, whatever the numbers.
    ///
    /// That is who the home directory there belongs to. It is root's where an account sees a part of the machine only; then nothing is known, and
    /// all numbers are those of the machine there.
    #[must_use]
    pub fn shown_as_own(self) -> Arc<dyn Storage> {
        match self.owner {
            Some((uid, _)) if uid == 0 && !rustix::process::geteuid().is_root() => Arc::new(self),
            Some(owner) => Arc::new(SwappedIds::of_far(self, owner)),
            None => Arc::new(self),
        }
    }

    /// The path of the directory that all names are below, as the server has resolved it.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        // The root has one, and keeps it.
        OsString::from_vec(self.nodes.root().path().unwrap_or_default()).into()
    }

    /// The directory that all names are below.
    #[must_use]
    pub fn root(&self) -> Handle {
        Handle::of_elsewhere(Opened {
            node: self.nodes.root(),
            file: None,
        })
    }

    /// For whoever asks by path: the names of open directories do not change meanwhile.
    fn hold_paths(&self) -> RwLockReadGuard<'_, ()> {
        self.paths.read()
    }

    /// Something in a directory was changed, or may have been.
    fn touched(&self, dir: &Node) {
        self.listed.forget(dir.id());
        if let Some((above, _)) = dir.name() {
            self.listed.forget(above.id());
        }
    }

    /// Asks for a change of what has a name; `why` finds out why it was refused.
    fn change(&self, dir: &Handle, name: &OsStr, ask: Ask, why: impl FnOnce(&[u8], Fault) -> Errno) -> Result<()> {
        let (dir, _held) = (node(dir)?, self.hold_paths());
        let path = dir.path_of(name)?;
        let done = self
            .session
            .ask(Request::new(ask).string(&path))
            .map_err(|fault| why(&path, fault));
        self.touched(dir);
        if done.is_ok() {
            self.nodes.removed(dir, name);
        }
        done
    }

    fn set_named(&self, dir: &Handle, name: &OsStr, attrs: impl FnOnce(&[u8]) -> Result<Attrs>) -> Result<()> {
        let (dir, _held) = (node(dir)?, self.hold_paths());
        let path = dir.path_of(name)?;
        let set = self.session.set(&path, &attrs(&path)?);
        self.touched(dir);
        set
    }

    fn set_open(&self, handle: &Handle, attrs: impl FnOnce(&OpenFile) -> Result<Attrs>) -> Result<()> {
        let (node, file) = file(handle)?;
        file.check(node)?;
        let request = file.request(Ask::Fsetstat).attrs(&attrs(file)?);
        let set = self.session.ask(request);
        self.written(node);
        set.map_err(|fault| self.why_not_set(node, fault))
    }

    fn why_not_set(&self, node: &Node, fault: Fault) -> Errno {
        match node.path() {
            Ok(path) => self.session.why_not(&path, fault),
            Err(_) => fault.errno(),
        }
    }

    /// A file was written to, or may have been: what was asked for before may be what it was.
    fn written(&self, node: &Node) {
        self.kept.forget(&[node.id()]);
        if let Some((dir, _)) = node.name() {
            self.listed.forget(dir.id());
        }
    }

    /// A server has one word for a full disk and for a broken one. Where there is room when it is asked for, others may have left it since then:
    /// what was refused is written once more before it passes for an error of the disk, which is a reason to doubt what else is there.
    fn write_where_there_is_room(
        &self,
        node: &Node,
        file: &OpenFile,
        pieces: &[IoSlice<'_>],
        offset: u64,
    ) -> Result<()> {
        let (mut pieces, mut at) = (pieces.to_vec(), offset);
        let mut left = &mut pieces[..];
        // Nobody knows how much of what was to be appended is there.
        let mut again = if file.appends() { 0 } else { WRITES_AGAIN };
        while let Err((refused, fault)) = file.write(left, at) {
            if fault != FAILURE {
                return Err(fault.errno());
            }
            IoSlice::advance_slices(&mut left, (refused - at) as usize);
            at = refused;
            let length = left.iter().map(|piece| piece.len() as u64).sum();
            let path = node.path().or_else(|_| self.nodes.root().path());
            let missing = path.ok().and_then(|path| self.session.room_is_missing(&path, length));
            if again == 0 || missing.is_some() {
                return Err(missing.unwrap_or(Errno::IO));
            }
            again -= 1;
        }
        Ok(())
    }

    fn look(&self, file: &OpenFile) -> Answered<Attrs> {
        self.session.send(file.request(Ask::Fstat)).attrs()
    }

    /// Has the server copy a part of one file to another; how much of it there was, and what the first is like then.
    fn copied(
        &self,
        (source, from): (&Handle, u64),
        (handle, to): (&Handle, u64),
        length: u64,
    ) -> Result<(u64, Attrs)> {
        let ((source_node, source), (node, file)) = (file(source)?, file(handle)?);
        source.check(source_node)?;
        file.check(node)?;
        let copied = source.copy_to(file, from, to, length);
        self.written(node);
        copied.map_err(|fault| match fault {
            // Whoever reads and writes it instead hears why, or does not fail: OpenSSH copies nothing within one file.
            Fault::Said(_) => Errno::OPNOTSUPP,
            fault => fault.errno(),
        })
    }
}

fn broken(host: &str, error: io::Error) -> ConnectError {
    let host = host.to_owned();
    match error.kind() {
        io::ErrorKind::InvalidData => ConnectError::NotSftp { host, error },
        _ => ConnectError::Broken { host, error },
    }
}

fn refused(host: &str, root: &Path, fault: Fault) -> ConnectError {
    match fault {
        Fault::Lost(Errno::NOTCONN) => broken(host, io::ErrorKind::UnexpectedEof.into()),
        fault => ConnectError::Refused {
            host: host.to_owned(),
            why: format!("{}: {}", root.display(), io::Error::from(fault.errno())),
        },
    }
}

impl Storage for SftpStorage {
    fn open_dir(&self, dir: &Handle, name: &OsStr) -> Result<Handle> {
        let (dir, _held) = (node(dir)?, self.hold_paths());
        let path = dir.path_of(name)?;
        match kind_of(&self.session.lstat(&path).map_err(Fault::errno)?) {
            Some(FileType::Dir) => Ok(Handle::of_elsewhere(Opened {
                node: self.nodes.dir(dir, name),
                file: None,
            })),
            Some(_) => Err(Errno::NOTDIR),
            None => Err(Errno::PROTO),
        }
    }

    fn create(&self, dir: &Handle, name: &OsStr, mode: u32) -> Result<Handle> {
        let (dir, _held) = (node(dir)?, self.hold_paths());
        let path = dir.path_of(name)?;
        let handle = self.session.open_new(&path, mode);
        self.touched(dir);
        Ok(Handle::of_elsewhere(Opened {
            file: Some(OpenFile::made(&self.session, handle?)),
            node: self.nodes.file(dir, name),
        }))
    }

    fn open(&self, dir: &Handle, name: &OsStr, access: Access) -> Result<Handle> {
        let (dir, _held) = (node(dir)?, self.hold_paths());
        let path = dir.path_of(name)?;
        // Looked at before, because a server that opens a pipe waits for its other end, and nobody else is served meanwhile.
        let seen = self.session.lstat(&path).map_err(Fault::errno)?;
        match kind_of(&seen).ok_or(Errno::PROTO)? {
            FileType::File => {}
            FileType::Dir => return Err(Errno::ISDIR),
            FileType::Symlink => return Err(Errno::LOOP),
            FileType::Fifo | FileType::Socket => return Err(Errno::SPIPE),
            FileType::CharDevice | FileType::BlockDevice => return Err(Errno::NODEV),
        }
        let flags = match access {
            Access::Read => open_flags::READ,
            Access::ReadWrite => open_flags::READ | open_flags::WRITE,
            Access::Write => open_flags::WRITE,
            Access::Append => open_flags::WRITE | open_flags::APPEND,
        };
        let handle = self.session.open_old(&path, flags)?;
        let opened = Opened {
            file: Some(OpenFile::found(&self.session, handle, access == Access::Append, seen)),
            node: self.nodes.file(dir, name),
        };
        Ok(Handle::of_elsewhere(opened))
    }

    fn mkdir(&self, dir: &Handle, name: &OsStr, mode: u32) -> Result<()> {
        let (dir, _held) = (node(dir)?, self.hold_paths());
        let path = dir.path_of(name)?;
        let request = Request::new(Ask::Mkdir).string(&path).attrs(&with_mode(mode));
        let made = self.session.make_name(&path, &request);
        self.touched(dir);
        made
    }

    fn symlink(&self, target: &OsStr, dir: &Handle, name: &OsStr) -> Result<()> {
        let (dir, _held) = (node(dir)?, self.hold_paths());
        let path = dir.path_of(name)?;
        match target.as_bytes() {
            b"" => return Err(Errno::NOENT),
            long if long.len() > PATH_BYTES_MAX => return Err(Errno::NAMETOOLONG),
            bytes if bytes.contains(&0) => return Err(Errno::INVAL),
            _ => {}
        }
        // The target first: so all servers have it, whatever the draft says.
        let request = Request::new(Ask::Symlink).string(target.as_bytes()).string(&path);
        let made = self.session.make_name(&path, &request);
        self.touched(dir);
        made
    }

    fn link(&self, dir: &Handle, name: &OsStr, new_dir: &Handle, new_name: &OsStr) -> Result<()> {
        let (dir, new_dir, _held) = (node(dir)?, node(new_dir)?, self.hold_paths());
        let (from, to) = (dir.path_of(name)?, new_dir.path_of(new_name)?);
        if !self.session.server.links {
            return Err(Errno::PERM); // link(2): the file system has no hard links
        }
        let request = Request::extended(Server::LINK).string(&from).string(&to);
        let linked = self.session.make_name(&to, &request);
        self.touched(dir);
        self.touched(new_dir);
        linked.map_err(|errno| match errno {
            Errno::IO => self.session.why_not_renamed((&from, &to), FAILURE, || true),
            errno => errno,
        })
    }

    fn rename(&self, dir: &Handle, name: &OsStr, new_dir: &Handle, new_name: &OsStr, mode: RenameMode) -> Result<()> {
        let (dir, new_dir) = (node(dir)?, node(new_dir)?);
        let rename = || {
            let (from, to) = (dir.path_of(name)?, new_dir.path_of(new_name)?);
            if mode == RenameMode::Exchange {
                return Err(self.session.why_no_exchange(&from, &to));
            }
            let renamed = self.session.rename(&from, &to, mode);
            self.touched(dir);
            self.touched(new_dir);
            if renamed.is_ok() && from != to {
                self.nodes.moved((dir, name), (new_dir, new_name));
            }
            renamed
        };
        if self.nodes.is_open_dir(dir, name) {
            let _alone = self.paths.write();
            rename()
        } else {
            let _held = self.hold_paths();
            rename()
        }
    }

    fn unlink(&self, dir: &Handle, name: &OsStr) -> Result<()> {
        self.change(dir, name, Ask::Remove, |path, fault| {
            self.session.why_not_unlinked(path, fault)
        })
    }

    fn rmdir(&self, dir: &Handle, name: &OsStr) -> Result<()> {
        self.change(dir, name, Ask::Rmdir, |path, fault| {
            self.session
                .why_not_removed(path, fault, || self.session.is_empty(path))
        })
    }

    fn stat(&self, dir: &Handle, name: &OsStr) -> Result<Stat> {
        if let Some(attrs) = self.listed.take(node(dir)?.id(), name) {
            return found(&attrs, ino_of(&node(dir)?.path_of(name)?), self.dev);
        }
        self.stat_uncached(dir, name)
    }

    fn stat_uncached(&self, dir: &Handle, name: &OsStr) -> Result<Stat> {
        let (dir, _held) = (node(dir)?, self.hold_paths());
        let path = dir.path_of(name)?;
        let attrs = self.session.lstat(&path).map_err(Fault::errno)?;
        found(&attrs, ino_of(&path), self.dev)
    }

    fn stat_handle(&self, handle: &Handle) -> Result<Stat> {
        let opened = opened(handle)?;
        let attrs = match &opened.file {
            Some(file) => {
                file.check(&opened.node)?;
                self.look(file)
            }
            None => {
                let _held = self.hold_paths();
                self.session.lstat(&opened.node.path()?)
            }
        };
        found(&attrs.map_err(Fault::errno)?, opened.node.ino(), self.dev)
    }

    fn list(&self, dir: &Handle) -> Result<Vec<DirEntry>> {
        let (dir, _held) = (node(dir)?, self.hold_paths());
        let path = dir.path()?;
        let begun = self.listed.begin(dir.id());
        let mut attrs = HashMap::new();
        let names = self.session.names(&path)?.into_iter();
        let entries = names.map(|listed| {
            let name = OsString::from_vec(listed.name);
            let entry = DirEntry {
                ino: dir.path_of(&name).map_or(1, |path| ino_of(&path)),
                kind: kind_of(&listed.attrs),
                name: name.clone(),
            };
            attrs.insert(name, listed.attrs);
            entry
        });
        let entries = entries.collect();
        self.listed.keep(begun, attrs);
        Ok(entries)
    }

    fn readlink(&self, dir: &Handle, name: &OsStr) -> Result<OsString> {
        let (dir, _held) = (node(dir)?, self.hold_paths());
        let path = dir.path_of(name)?;
        let target = self.session.send(Request::new(Ask::Readlink).string(&path)).name();
        target
            .map(OsString::from_vec)
            .map_err(|fault| self.session.why_not(&path, fault))
    }

    fn space(&self, handle: &Handle) -> Result<Space> {
        if !self.session.server.tells_space {
            let blocks = ROOM_BYTES / BLOCK_BYTES;
            return Ok(Space {
                fragment_bytes: BLOCK_BYTES,
                blocks,
                blocks_free: blocks,
                blocks_available: blocks,
                files: 0,
                files_free: 0,
                name_max: NAME_BYTES_MAX,
            });
        }
        let _held = self.hold_paths();
        let path = node(handle)?.path().or_else(|_| self.nodes.root().path())?;
        self.session.room(&path).map(|room| room.space).map_err(Fault::errno)
    }

    fn chmod(&self, dir: &Handle, name: &OsStr, mode: u32) -> Result<()> {
        self.set_named(dir, name, |_| Ok(with_mode(mode)))
    }

    fn chmod_handle(&self, file: &Handle, mode: u32) -> Result<()> {
        self.set_open(file, |_| Ok(with_mode(mode)))
    }

    fn chown(&self, dir: &Handle, name: &OsStr, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.set_named(dir, name, |path| with_owner(uid, gid, || self.session.lstat(path)))
    }

    fn chown_handle(&self, file: &Handle, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.set_open(file, |file| with_owner(uid, gid, || self.look(file)))
    }

    fn set_times(&self, dir: &Handle, name: &OsStr, atime: Option<Time>, mtime: Option<Time>) -> Result<()> {
        self.set_named(dir, name, |path| with_times(atime, mtime, || self.session.lstat(path)))
    }

    /// By the clock here: the protocol has no other way to say "now".
    fn touch(&self, dir: &Handle, name: &OsStr) -> Result<()> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = Some(Time {
            seconds: now.map_or(0, |now| now.as_secs() as i64),
            nanoseconds: 0,
        });
        self.set_times(dir, name, now, now)
    }

    fn set_times_handle(&self, file: &Handle, atime: Option<Time>, mtime: Option<Time>) -> Result<()> {
        self.set_open(file, |file| with_times(atime, mtime, || self.look(file)))
    }

    fn read(&self, handle: &Handle, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let (node, file) = file(handle)?;
        let read = self
            .kept
            .read(node.id(), buffer, offset, |buffer, at| file.read(node, buffer, at))?;
        // What was kept may have been read through another handle.
        file.check(node)?;
        Ok(read)
    }

    fn read_ahead(&self, handle: &Handle, offset: u64, length: usize) -> Result<()> {
        let (node, file) = file(handle)?;
        self.kept
            .ask(node.id(), offset, length, |buffer| file.read(node, buffer, offset));
        Ok(())
    }

    fn write(&self, handle: &Handle, pieces: &[IoSlice<'_>], offset: u64) -> Result<()> {
        let (node, file) = file(handle)?;
        file.check(node)?;
        let written = self.write_where_there_is_room(node, file, pieces, offset);
        self.written(node);
        written
    }

    fn truncate(&self, handle: &Handle, size: u64) -> Result<()> {
        let (node, file) = file(handle)?;
        file.check(node)?;
        let request = file.request(Ask::Fsetstat).attrs(&with_size(size));
        let set = self.session.ask(request);
        self.written(node);
        set.map_err(|fault| match self.why_not_set(node, fault) {
            // A longer file takes no room.
            Errno::IO if self.look(file).is_ok_and(|now| now.size < Some(size)) => Errno::FBIG,
            errno => errno,
        })
    }

    fn truncate_named(&self, dir: &Handle, name: &OsStr, size: u64) -> Result<()> {
        let file = self.open(dir, name, Access::Write)?;
        self.truncate(&file, size)?;
        self.close(&file)
    }

    fn copy_range(&self, source: &Handle, from: u64, handle: &Handle, to: u64, length: u64) -> Result<u64> {
        if !self.session.server.copies {
            return Err(Errno::OPNOTSUPP);
        }
        if length == 0 {
            return Ok(0); // To the server it is all that there is.
        }
        self.copied((source, from), (handle, to), length)
            .map(|(copied, _)| copied)
    }

    /// The server is asked for both at once.
    fn copy_and_look(&self, source: &Handle, from: u64, handle: &Handle, to: u64, length: u64) -> Result<(u64, Stat)> {
        if !self.session.server.copies {
            return Err(Errno::OPNOTSUPP);
        }
        if length == 0 {
            return Ok((0, self.stat_handle(source)?));
        }
        let (copied, then) = self.copied((source, from), (handle, to), length)?;
        Ok((copied, found(&then, file(source)?.0.ino(), self.dev)?))
    }

    /// All is data, as Linux has it where a file system does not say.
    fn next_data(&self, file: &Handle, offset: u64) -> Result<Option<(u64, u64)>> {
        let size = self.stat_handle(file)?.size;
        Ok((offset < size).then_some((offset, size)))
    }

    fn close(&self, handle: &Handle) -> Result<()> {
        let opened = opened(handle)?;
        let Some(file) = opened.file.as_ref().filter(|_| handle.begin_close()) else {
            return Ok(());
        };
        match file.close()? {
            Some(closed) => closed.done().map_err(|fault| self.why_not_set(&opened.node, fault)),
            None => Ok(()),
        }
    }

    /// There are none; an errno of a file system without locks, and not of a server that has none left.
    fn try_lock(&self, _: &Handle) -> Result<bool> {
        Err(Errno::OPNOTSUPP)
    }

    fn identity(&self, _: &Handle) -> Result<Identity> {
        Ok(Identity {
            mount: self.dev,
            born: None,
        })
    }

    fn file_system_traits(&self, _: &Handle) -> Result<FileSystemTraits> {
        Ok(FileSystemTraits {
            own_ids: false,
            shares_locks: false,
            keeps_inos: false,
            tells_inos_apart: false,
            copies_up: false,
            lower_dirs_stay: false,
            links_max: None,
            shows_all_above: false,
            strangers_take_set_group_id: true,
        })
    }

    /// Of a directory there is nothing to be asked for.
    fn sync(&self, handle: &Handle) -> Result<()> {
        match &opened(handle)?.file {
            Some(file) if self.session.server.fsyncs => {
                let request = Request::extended(Server::FSYNC).string(file.handle());
                self.session.ask(request).map_err(Fault::errno)
            }
            _ => Ok(()),
        }
    }

    /// Nothing can be asked for, as on a mount by sshfs.
    fn sync_all(&self, _: &Handle) -> Result<()> {
        Ok(())
    }
}
