//! The storage at the far end, as if it were here.

use std::ffi::{OsStr, OsString};
use std::io::{IoSlice, Read, Write};
use std::sync::{Arc, OnceLock};

use elbow_file::{
    Access, Completion, DirEntry, Errno, FarAnswer, FarEnd, FileSystemTraits, FileType, Handle, Identity, Order,
    OwnerSwap, RenameMode, Result, Space, Stat, Storage, Time,
};

use crate::call::{Answer, Call};
use crate::greet::{ConnectError, hail, welcomed};
use crate::link::{Answered, Link, Remote};
use crate::message::{Id, Request};
use crate::read_ahead::KeptReads;

/// So much is asked for with one request: many of these are under way at once.
const PIECE_BYTES: usize = 1 << 20;
/// So much is sent with one request; a commit record may be longer.
const WRITE_BYTES_MAX: usize = 16 << 20;

/// The storage at the other end of a connection. Each call is one request, and waits for its reply; any number of threads may ask at once.
/// When the connection has ended, each call fails with ENOTCONN.
#[derive(Debug)]
pub struct RemoteStorage {
    link: Arc<Link>,
    kept: KeptReads,
    /// Asked for once.
    owners: OnceLock<Option<OwnerSwap>>,
}

impl RemoteStorage {
    /// Greets a far end, which [`greeted`](crate::greeted) hears, on two streams. `host` names it in errors.
    ///
    /// # Errors
    /// There is no far end of this version, or it cannot serve what was asked for.
    pub fn connect(
        host: &str,
        from: impl Read + Send + 'static,
        mut to: impl Write + Send + 'static,
    ) -> std::result::Result<Self, ConnectError> {
        hail(&mut to).map_err(|error| ConnectError::Broken {
            host: host.to_owned(),
            error,
        })?;
        Self::of_hailed(host, from, to)
    }

    /// The same where the first words were said.
    pub(crate) fn of_hailed(
        host: &str,
        mut from: impl Read + Send + 'static,
        to: impl Write + Send + 'static,
    ) -> std::result::Result<Self, ConnectError> {
        welcomed(host, &mut from)?;
        let link = Link::start(from, to).map_err(|error| ConnectError::Broken {
            host: host.to_owned(),
            error,
        })?;
        let kept = KeptReads::default();
        let owners = OnceLock::new();
        Ok(Self { link, kept, owners })
    }

    pub(crate) fn link(&self) -> Arc<Link> {
        self.link.clone()
    }

    /// The directory that all names are below.
    #[must_use]
    pub fn root(&self) -> Handle {
        self.link.root()
    }

    fn read_there(&self, id: Id, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let (told, tells) = std::sync::mpsc::channel();
        let pieces: Vec<&mut [u8]> = buffer.chunks_mut(PIECE_BYTES).collect();
        for (place, piece) in pieces.iter().enumerate() {
            let call = Call::Read {
                offset: offset + (place * PIECE_BYTES) as u64,
                length: piece.len() as u32,
            };
            let told = told.clone();
            let tell = move |answer| {
                let _ = told.send((place, answer));
            };
            self.link.send(Request::about(vec![id], call), &[], Box::new(tell));
        }
        drop(told);
        fill(pieces, &tells)
    }

    fn ask(&self, on: &[&Handle], call: Call) -> Answered {
        self.ask_with(on, call, &[])
    }

    fn ask_with(&self, on: &[&Handle], call: Call, content: &[IoSlice<'_>]) -> Answered {
        let on = on.iter().map(|handle| id_of(handle)).collect::<Result<Vec<Id>>>()?;
        if call.changes() {
            self.kept.forget(&on);
        }
        self.link.ask(Request::about(on, call), content)
    }

    fn order(&self, on: &[&Handle], call: Call) -> Result<()> {
        self.ask(on, call).map(drop)
    }

    /// A call that opens something.
    fn make(&self, dir: &Handle, call: Call) -> Result<Handle> {
        let handle = self.link.promise();
        let request = Request {
            makes: vec![id_of(&handle)?],
            ..Request::about(vec![id_of(dir)?], call)
        };
        self.link.ask(request, &[])?;
        Ok(handle)
    }
}

/// The number that the far end knows an object by.
fn id_of(handle: &Handle) -> Result<Id> {
    handle.elsewhere::<Remote>().map(|remote| remote.id).ok_or(Errno::BADF)
}

/// The value of an answer, or EPROTO for an answer to something else.
macro_rules! value {
    ($answer:expr, $kind:ident) => {
        match $answer? {
            (Answer::$kind(value), _) => Ok(value),
            _ => Err(Errno::PROTO),
        }
    };
}

fn sound(stat: Stat) -> Result<Stat> {
    stat.is_sound().then_some(stat).ok_or(Errno::PROTO)
}

fn bytes(answer: Answered) -> Result<Vec<u8>> {
    match answer? {
        (Answer::Bytes, bytes) => Ok(bytes),
        _ => Err(Errno::PROTO),
    }
}

impl Storage for RemoteStorage {
    fn open_dir(&self, dir: &Handle, name: &OsStr) -> Result<Handle> {
        self.make(dir, Call::OpenDir { name: name.into() })
    }

    fn create(&self, dir: &Handle, name: &OsStr, mode: u32) -> Result<Handle> {
        let name = name.into();
        self.make(dir, Call::Create { name, mode })
    }

    fn create_unnamed(&self, dir: &Handle, name: &OsStr, mode: u32) -> Result<Handle> {
        let name = name.into();
        self.make(dir, Call::CreateUnnamed { name, mode })
    }

    fn open(&self, dir: &Handle, name: &OsStr, access: Access) -> Result<Handle> {
        let name = name.into();
        self.make(dir, Call::Open { name, access })
    }

    fn mkdir(&self, dir: &Handle, name: &OsStr, mode: u32) -> Result<()> {
        let name = name.into();
        self.order(&[dir], Call::Mkdir { name, mode })
    }

    fn symlink(&self, target: &OsStr, dir: &Handle, name: &OsStr) -> Result<()> {
        let (target, name) = (target.into(), name.into());
        self.order(&[dir], Call::Symlink { target, name })
    }

    fn mknod(&self, dir: &Handle, name: &OsStr, kind: FileType, mode: u32, rdev: u64) -> Result<()> {
        let name = name.into();
        let call = Call::Mknod { name, kind, mode, rdev };
        self.order(&[dir], call)
    }

    fn link(&self, dir: &Handle, name: &OsStr, new_dir: &Handle, new_name: &OsStr) -> Result<()> {
        let (name, new_name) = (name.into(), new_name.into());
        self.order(&[dir, new_dir], Call::Link { name, new_name })
    }

    fn rename(&self, dir: &Handle, name: &OsStr, new_dir: &Handle, new_name: &OsStr, mode: RenameMode) -> Result<()> {
        let (name, new_name) = (name.into(), new_name.into());
        self.order(&[dir, new_dir], Call::Rename { name, new_name, mode })
    }

    fn unlink(&self, dir: &Handle, name: &OsStr) -> Result<()> {
        self.order(&[dir], Call::Unlink { name: name.into() })
    }

    fn rmdir(&self, dir: &Handle, name: &OsStr) -> Result<()> {
        self.order(&[dir], Call::Rmdir { name: name.into() })
    }

    fn stat(&self, dir: &Handle, name: &OsStr) -> Result<Stat> {
        sound(value!(self.ask(&[dir], Call::Stat { name: name.into() }), Stat)?)
    }

    fn stat_uncached(&self, dir: &Handle, name: &OsStr) -> Result<Stat> {
        sound(value!(
            self.ask(&[dir], Call::StatUncached { name: name.into() }),
            Stat
        )?)
    }

    fn stat_handle(&self, handle: &Handle) -> Result<Stat> {
        sound(value!(self.ask(&[handle], Call::StatOpen), Stat)?)
    }

    fn list(&self, dir: &Handle) -> Result<Vec<DirEntry>> {
        let entries = value!(self.ask(&[dir], Call::List), Entries)?;
        entries
            .iter()
            .all(DirEntry::is_sound)
            .then_some(entries)
            .ok_or(Errno::PROTO)
    }

    fn readlink(&self, dir: &Handle, name: &OsStr) -> Result<OsString> {
        value!(self.ask(&[dir], Call::Readlink { name: name.into() }), Name)
    }

    fn space(&self, handle: &Handle) -> Result<Space> {
        value!(self.ask(&[handle], Call::Space), Space)
    }

    fn chmod(&self, dir: &Handle, name: &OsStr, mode: u32) -> Result<()> {
        let name = name.into();
        self.order(&[dir], Call::Chmod { name, mode })
    }

    fn chmod_handle(&self, file: &Handle, mode: u32) -> Result<()> {
        self.order(&[file], Call::ChmodOpen { mode })
    }

    fn chown(&self, dir: &Handle, name: &OsStr, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let name = name.into();
        self.order(&[dir], Call::Chown { name, uid, gid })
    }

    fn chown_handle(&self, file: &Handle, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.order(&[file], Call::ChownOpen { uid, gid })
    }

    fn set_times(&self, dir: &Handle, name: &OsStr, atime: Option<Time>, mtime: Option<Time>) -> Result<()> {
        let name = name.into();
        self.order(&[dir], Call::SetTimes { name, atime, mtime })
    }

    fn touch(&self, dir: &Handle, name: &OsStr) -> Result<()> {
        self.order(&[dir], Call::Touch { name: name.into() })
    }

    fn set_times_handle(&self, file: &Handle, atime: Option<Time>, mtime: Option<Time>) -> Result<()> {
        self.order(&[file], Call::SetTimesOpen { atime, mtime })
    }

    fn list_xattrs(&self, dir: &Handle, name: &OsStr) -> Result<Vec<OsString>> {
        value!(self.ask(&[dir], Call::ListXattrs { name: name.into() }), Names)
    }

    fn get_xattr(&self, dir: &Handle, name: &OsStr, key: &OsStr) -> Result<Vec<u8>> {
        let (name, key) = (name.into(), key.into());
        bytes(self.ask(&[dir], Call::GetXattr { name, key }))
    }

    fn set_xattr(&self, dir: &Handle, name: &OsStr, key: &OsStr, value: &[u8]) -> Result<()> {
        let (name, key) = (name.into(), key.into());
        self.ask_with(&[dir], Call::SetXattr { name, key }, &[IoSlice::new(value)])
            .map(drop)
    }

    fn get_xattr_handle(&self, file: &Handle, key: &OsStr) -> Result<Vec<u8>> {
        bytes(self.ask(&[file], Call::GetXattrOpen { key: key.into() }))
    }

    fn set_xattr_handle(&self, file: &Handle, key: &OsStr, value: &[u8]) -> Result<()> {
        let key = key.into();
        self.ask_with(&[file], Call::SetXattrOpen { key }, &[IoSlice::new(value)])
            .map(drop)
    }

    fn remove_xattr(&self, dir: &Handle, name: &OsStr, key: &OsStr) -> Result<()> {
        let (name, key) = (name.into(), key.into());
        self.order(&[dir], Call::RemoveXattr { name, key })
    }

    fn remove_xattr_handle(&self, file: &Handle, key: &OsStr) -> Result<()> {
        self.order(&[file], Call::RemoveXattrOpen { key: key.into() })
    }

    fn read(&self, file: &Handle, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let id = id_of(file)?;
        self.kept
            .read(id, buffer, offset, |buffer, at| self.read_there(id, buffer, at))
    }

    fn read_ahead(&self, file: &Handle, offset: u64, length: usize) -> Result<()> {
        let id = id_of(file)?;
        self.kept
            .ask(id, offset, length, |buffer| self.read_there(id, buffer, offset));
        Ok(())
    }

    fn write(&self, file: &Handle, pieces: &[IoSlice<'_>], offset: u64) -> Result<()> {
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        if bytes <= WRITE_BYTES_MAX {
            return self.ask_with(&[file], Call::Write { offset }, pieces).map(drop);
        }
        let mut offset = offset;
        for part in pieces.iter().flat_map(|piece| piece.chunks(WRITE_BYTES_MAX)) {
            self.ask_with(&[file], Call::Write { offset }, &[IoSlice::new(part)])?;
            offset += part.len() as u64;
        }
        Ok(())
    }

    fn truncate(&self, file: &Handle, size: u64) -> Result<()> {
        self.order(&[file], Call::Truncate { size })
    }

    fn truncate_named(&self, dir: &Handle, name: &OsStr, size: u64) -> Result<()> {
        let name = name.into();
        self.order(&[dir], Call::TruncateNamed { name, size })
    }

    fn punch(&self, file: &Handle, offset: u64, length: u64) -> Result<()> {
        self.order(&[file], Call::Punch { offset, length })
    }

    fn allocate(&self, file: &Handle, offset: u64, length: u64, keep_size: bool) -> Result<()> {
        let call = Call::Allocate {
            offset,
            length,
            keep_size,
        };
        self.order(&[file], call)
    }

    fn next_data(&self, file: &Handle, offset: u64) -> Result<Option<(u64, u64)>> {
        value!(self.ask(&[file], Call::NextData { offset }), Range)
    }

    fn close(&self, file: &Handle) -> Result<()> {
        let remote = file.elsewhere::<Remote>().ok_or(Errno::BADF)?;
        if !file.begin_close() {
            return Ok(());
        }
        remote.note_closed();
        self.order(&[file], Call::Close)
    }

    fn try_lock(&self, file: &Handle) -> Result<bool> {
        value!(self.ask(&[file], Call::TryLock), Flag)
    }

    fn identity(&self, handle: &Handle) -> Result<Identity> {
        value!(self.ask(&[handle], Call::Identity), Identity)
    }

    fn file_system_traits(&self, handle: &Handle) -> Result<FileSystemTraits> {
        value!(self.ask(&[handle], Call::FileSystemTraits), FileSystemTraits)
    }

    fn sync(&self, handle: &Handle) -> Result<()> {
        self.order(&[handle], Call::Sync)
    }

    fn sync_all(&self, handle: &Handle) -> Result<()> {
        self.order(&[handle], Call::SyncAll)
    }

    fn owners_there(&self) -> Result<Option<OwnerSwap>> {
        if let Some(known) = self.owners.get() {
            return Ok(*known);
        }
        let told = value!(self.ask(&[], Call::Owners), Owners)?;
        Ok(*self.owners.get_or_init(|| told))
    }

    fn far_end(&self) -> Option<&dyn FarEnd> {
        Some(self)
    }
}

/// Puts the answers to reads of adjacent pieces where they belong: how much was read until the first that is short.
fn fill(mut pieces: Vec<&mut [u8]>, tells: &std::sync::mpsc::Receiver<(usize, Answered)>) -> Result<usize> {
    let mut lengths = vec![0; pieces.len()];
    for _ in 0..pieces.len() {
        let (place, answer) = tells.recv().map_err(|_| Errno::NOTCONN)?;
        let content = bytes(answer)?;
        let into = pieces[place].get_mut(..content.len()).ok_or(Errno::PROTO)?;
        into.copy_from_slice(&content);
        lengths[place] = content.len();
    }
    let whole = lengths
        .iter()
        .zip(&pieces)
        .take_while(|(length, piece)| **length == piece.len());
    let whole = whole.count();
    Ok(lengths[..(whole + 1).min(lengths.len())].iter().sum())
}

impl FarEnd for RemoteStorage {
    fn promise(&self) -> Handle {
        self.link.promise()
    }

    fn open_to_read(&self, dir: &Handle, name: &OsStr, offset: u64, length: usize) -> Result<Handle> {
        let file = self.link.promise();
        let (dir, id, length) = (id_of(dir)?, id_of(&file)?, length.min(PIECE_BYTES));
        let open = Request {
            makes: vec![id],
            ..Request::about(
                vec![dir],
                Call::Open {
                    name: name.into(),
                    access: Access::Read,
                },
            )
        };
        let (told, tells) = std::sync::mpsc::sync_channel(1);
        let tell = move |answer: Answered| {
            let _ = told.send(answer);
        };
        self.link.send(open, &[], Box::new(tell));
        if let Some(part) = self.kept.begin(id, offset, length) {
            let read = Call::Read {
                offset,
                length: length as u32,
            };
            let whole = move |content: Vec<u8>| {
                if content.len() <= length {
                    Ok(content)
                } else {
                    Err(Errno::PROTO)
                }
            };
            let set = move |answer| part.set(bytes(answer).and_then(whole));
            self.link.send(Request::about(vec![id], read), &[], Box::new(set));
        }
        match tells.recv().unwrap_or(Err(Errno::NOTCONN)) {
            Ok(_) => Ok(file),
            Err(errno) => {
                self.kept.forget(&[id]);
                Err(errno)
            }
        }
    }

    fn pulse(&self, heard: Box<dyn FnOnce() + Send>) {
        let tell = move |answer: Answered| {
            if answer.is_ok() {
                heard();
            }
        };
        let nothing = Request::about(Vec::new(), Call::Nothing);
        self.link.send(nothing, &[], Box::new(tell));
    }

    fn send(&self, order: &Order<'_>, done: Completion) {
        let ids = |handles: &[Handle]| handles.iter().map(id_of).collect::<Result<Vec<Id>>>();
        let (on, makes) = match (ids(order.on), ids(order.makes)) {
            (Ok(on), Ok(makes)) => (on, makes),
            (Err(errno), _) | (_, Err(errno)) => return done(Err(errno)),
        };
        self.kept.forget(&on);
        let call = Call::Work {
            order: order.order.to_vec(),
        };
        let request = Request {
            makes,
            ..Request::about(on, call)
        };
        let tell = move |answer: Answered| done(answer.and_then(worked));
        self.link.send(request, order.content, Box::new(tell));
    }
}

fn worked((answer, bytes): (Answer, Vec<u8>)) -> Result<FarAnswer> {
    match answer {
        Answer::Worked { made } => Ok(FarAnswer { made, bytes }),
        _ => Err(Errno::PROTO),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::frame::{self, Content};
    use crate::message::{MAGIC, Reply, UNANSWERED, VERSION, Welcome};

    /// A storage whose far end gives this reply to every request.
    fn answering(reply: Reply) -> RemoteStorage {
        let (near, mut far) = UnixStream::pair().unwrap();
        std::thread::spawn(move || {
            let welcome = Welcome {
                version: VERSION,
                refusal: None,
            };
            far.write_all(&MAGIC).unwrap();
            frame::encode(&welcome, &Content::NONE)
                .unwrap()
                .write(&mut far, UNANSWERED, &Content::NONE)
                .unwrap();
            far.read_exact(&mut [0; MAGIC.len()]).unwrap();
            let _greeting = frame::read(&mut far).unwrap();
            while let Ok(Some(request)) = frame::read(&mut far) {
                let encoded = frame::encode(&reply, &Content::NONE).unwrap();
                encoded.write(&mut far, request.number, &Content::NONE).unwrap();
            }
        });
        RemoteStorage::connect("here", near.try_clone().unwrap(), near).unwrap()
    }

    fn listed(name: &str) -> Result<usize> {
        let entry = DirEntry {
            name: name.into(),
            kind: None,
            ino: 1,
        };
        let storage = answering(Ok(Answer::Entries(vec![entry])));
        storage.list(&storage.root()).map(|entries| entries.len())
    }

    #[test]
    fn what_cannot_be_is_not_believed() {
        assert_eq!(listed("name"), Ok(1));
        for name in ["", ".", "..", "a/b", "../../etc/passwd", "a\0b"] {
            assert_eq!(listed(name), Err(Errno::PROTO), "{name:?}");
        }
        let storage = answering(Err(i32::MIN));
        assert_eq!(
            storage.sync(&storage.root()),
            Err(Errno::PROTO),
            "no error has this number"
        );
        let storage = answering(Ok(Answer::Flag(true)));
        assert_eq!(
            storage.space(&storage.root()),
            Err(Errno::PROTO),
            "the answer to another question"
        );
    }
}
