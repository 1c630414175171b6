//! The calls that requests ask for, and what each becomes of the storage at the far end.

use std::ffi::OsString;
use std::io::IoSlice;

use elbow_file::{
    Access, DirEntry, Errno, FarWorker, FileSystemTraits, FileType, Handle, Identity, OwnerSwap, RenameMode, Result,
    Space, Stat, Storage, Time,
};
use serde::{Deserialize, Serialize};

/// The longest read.
const READ_BYTES_MAX: u32 = 16 << 20;

/// The calls of [`Storage`], without the objects that they are about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Call {
    OpenDir {
        name: OsString,
    },
    Create {
        name: OsString,
        mode: u32,
    },
    CreateUnnamed {
        name: OsString,
        mode: u32,
    },
    Open {
        name: OsString,
        access: Access,
    },
    Mkdir {
        name: OsString,
        mode: u32,
    },
    Symlink {
        target: OsString,
        name: OsString,
    },
    Mknod {
        name: OsString,
        kind: FileType,
        mode: u32,
        rdev: u64,
    },
    Link {
        name: OsString,
        new_name: OsString,
    },
    Rename {
        name: OsString,
        new_name: OsString,
        mode: RenameMode,
    },
    Unlink {
        name: OsString,
    },
    Rmdir {
        name: OsString,
    },
    Stat {
        name: OsString,
    },
    StatUncached {
        name: OsString,
    },
    StatOpen,
    List,
    Readlink {
        name: OsString,
    },
    Space,
    Chmod {
        name: OsString,
        mode: u32,
    },
    ChmodOpen {
        mode: u32,
    },
    Chown {
        name: OsString,
        uid: Option<u32>,
        gid: Option<u32>,
    },
    ChownOpen {
        uid: Option<u32>,
        gid: Option<u32>,
    },
    SetTimes {
        name: OsString,
        atime: Option<Time>,
        mtime: Option<Time>,
    },
    SetTimesOpen {
        atime: Option<Time>,
        mtime: Option<Time>,
    },
    Touch {
        name: OsString,
    },
    ListXattrs {
        name: OsString,
    },
    GetXattr {
        name: OsString,
        key: OsString,
    },
    GetXattrOpen {
        key: OsString,
    },
    /// The value is beside the message.
    SetXattr {
        name: OsString,
        key: OsString,
    },
    SetXattrOpen {
        key: OsString,
    },
    RemoveXattr {
        name: OsString,
        key: OsString,
    },
    RemoveXattrOpen {
        key: OsString,
    },
    Read {
        offset: u64,
        length: u32,
    },
    /// The content is beside the message.
    Write {
        offset: u64,
    },
    Truncate {
        size: u64,
    },
    TruncateNamed {
        name: OsString,
        size: u64,
    },
    Punch {
        offset: u64,
        length: u64,
    },
    Allocate {
        offset: u64,
        length: u64,
        keep_size: bool,
    },
    NextData {
        offset: u64,
    },
    Close,
    TryLock,
    Identity,
    FileSystemTraits,
    Sync,
    SyncAll,
    /// Work of those above, who know what it is; what belongs to it is beside the message.
    Work {
        order: Vec<u8>,
    },
    /// Nothing; its answer shows that there is somebody.
    Nothing,
    /// From now on the far end may pack content.
    Compress,
    /// Which users and groups have other numbers there.
    Owners,
}

impl Call {
    /// Whether an object that it is about may have another content afterwards.
    pub(crate) fn changes(&self) -> bool {
        matches!(
            self,
            Self::Write { .. } | Self::Truncate { .. } | Self::Punch { .. } | Self::Allocate { .. }
        )
    }
}

/// The value of a call that succeeded. Bytes are beside the message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    Done,
    Stat(Stat),
    Entries(Vec<DirEntry>),
    Name(OsString),
    Names(Vec<OsString>),
    Bytes,
    Space(Space),
    Range(Option<(u64, u64)>),
    Flag(bool),
    Identity(Identity),
    FileSystemTraits(FileSystemTraits),
    /// Which of the objects that might be opened are open now; the rest of the answer is beside the message.
    Worked {
        made: Vec<bool>,
    },
    Owners(Option<OwnerSwap>),
}

/// What a call gave, beside its answer.
#[derive(Debug, Default)]
pub(crate) struct Given {
    /// What it opened, each in its place.
    pub(crate) made: Vec<Option<Handle>>,
    /// What travels beside the answer.
    pub(crate) content: Vec<u8>,
}

impl Given {
    fn opened(handle: Handle) -> Self {
        Self {
            made: vec![Some(handle)],
            content: Vec::new(),
        }
    }

    fn bytes(content: Vec<u8>) -> Self {
        Self {
            made: Vec::new(),
            content,
        }
    }
}

/// Who carries requests out.
#[derive(Clone, Copy)]
pub(crate) struct Carrier<'a> {
    pub(crate) storage: &'a dyn Storage,
    pub(crate) worker: &'a dyn FarWorker,
}

impl Carrier<'_> {
    /// Carries out one call on these objects, with the content that came with it.
    pub(crate) fn carry_out(self, on: &[Handle], call: Call, content: Vec<u8>) -> Result<(Answer, Given)> {
        match call {
            Call::Work { order } => {
                let worked = self.worker.work(on, &order, content)?;
                let given = Given {
                    made: worked.made,
                    content: worked.answer,
                };
                let made = given.made.iter().map(Option::is_some).collect();
                return Ok((Answer::Worked { made }, given));
            }
            Call::Rename { name, new_name, mode } => {
                let [dir, new_dir] = two(on)?;
                self.storage.rename(dir, &name, new_dir, &new_name, mode)?;
            }
            Call::Link { name, new_name } => {
                let [dir, new_dir] = two(on)?;
                self.storage.link(dir, &name, new_dir, &new_name)?;
            }
            Call::Nothing => {}
            Call::Owners => return Ok((Answer::Owners(self.storage.owners_there()?), Given::default())),
            call => {
                let [on] = on else { return Err(Errno::PROTO) };
                return self.on_one(on, call, &content);
            }
        }
        Ok((Answer::Done, Given::default()))
    }

    fn on_one(self, on: &Handle, call: Call, content: &[u8]) -> Result<(Answer, Given)> {
        let call = match self.opening(on, call)? {
            Ok(opened) => return Ok((Answer::Done, Given::opened(opened))),
            Err(call) => call,
        };
        let call = match self.reading(on, call)? {
            Ok(content) => return Ok((Answer::Bytes, Given::bytes(content))),
            Err(call) => call,
        };
        let answer = match self.asking(on, call)? {
            Ok(answer) => answer,
            Err(call) => self.changing(on, call, content).map(|()| Answer::Done)?,
        };
        Ok((answer, Given::default()))
    }

    /// The calls that open something; any other is given back.
    fn opening(self, dir: &Handle, call: Call) -> Result<std::result::Result<Handle, Call>> {
        Ok(Ok(match call {
            Call::OpenDir { name } => self.storage.open_dir(dir, &name)?,
            Call::Create { name, mode } => self.storage.create(dir, &name, mode)?,
            Call::CreateUnnamed { name, mode } => self.storage.create_unnamed(dir, &name, mode)?,
            Call::Open { name, access } => self.storage.open(dir, &name, access)?,
            other => return Ok(Err(other)),
        }))
    }

    /// The calls that give bytes.
    fn reading(self, on: &Handle, call: Call) -> Result<std::result::Result<Vec<u8>, Call>> {
        Ok(Ok(match call {
            Call::Read { offset, length } if length <= READ_BYTES_MAX => {
                let mut bytes = vec![0; length as usize];
                let read = self.storage.read(on, &mut bytes, offset)?;
                bytes.truncate(read);
                bytes
            }
            Call::Read { .. } => return Err(Errno::PROTO),
            Call::GetXattr { name, key } => self.storage.get_xattr(on, &name, &key)?,
            Call::GetXattrOpen { key } => self.storage.get_xattr_handle(on, &key)?,
            other => return Ok(Err(other)),
        }))
    }

    /// The other calls that change nothing.
    fn asking(self, on: &Handle, call: Call) -> Result<std::result::Result<Answer, Call>> {
        let storage = self.storage;
        Ok(Ok(match call {
            Call::Stat { name } => Answer::Stat(storage.stat(on, &name)?),
            Call::StatUncached { name } => Answer::Stat(storage.stat_uncached(on, &name)?),
            Call::StatOpen => Answer::Stat(storage.stat_handle(on)?),
            Call::List => Answer::Entries(storage.list(on)?),
            Call::Readlink { name } => Answer::Name(storage.readlink(on, &name)?),
            Call::Space => Answer::Space(storage.space(on)?),
            Call::ListXattrs { name } => Answer::Names(storage.list_xattrs(on, &name)?),
            Call::NextData { offset } => Answer::Range(storage.next_data(on, offset)?),
            Call::TryLock => Answer::Flag(storage.try_lock(on)?),
            Call::Identity => Answer::Identity(storage.identity(on)?),
            Call::FileSystemTraits => Answer::FileSystemTraits(storage.file_system_traits(on)?),
            other => return Ok(Err(other)),
        }))
    }

    /// The calls that change something and give nothing.
    fn changing(self, on: &Handle, call: Call, content: &[u8]) -> Result<()> {
        let storage = self.storage;
        match call {
            Call::Mkdir { name, mode } => storage.mkdir(on, &name, mode),
            Call::Symlink { target, name } => storage.symlink(&target, on, &name),
            Call::Mknod { name, kind, mode, rdev } => storage.mknod(on, &name, kind, mode, rdev),
            Call::Unlink { name } => storage.unlink(on, &name),
            Call::Rmdir { name } => storage.rmdir(on, &name),
            Call::Chmod { name, mode } => storage.chmod(on, &name, mode),
            Call::ChmodOpen { mode } => storage.chmod_handle(on, mode),
            Call::Chown { name, uid, gid } => storage.chown(on, &name, uid, gid),
            Call::ChownOpen { uid, gid } => storage.chown_handle(on, uid, gid),
            Call::SetTimes { name, atime, mtime } => storage.set_times(on, &name, atime, mtime),
            Call::SetTimesOpen { atime, mtime } => storage.set_times_handle(on, atime, mtime),
            Call::Touch { name } => storage.touch(on, &name),
            Call::SetXattr { name, key } => storage.set_xattr(on, &name, &key, content),
            Call::SetXattrOpen { key } => storage.set_xattr_handle(on, &key, content),
            Call::RemoveXattr { name, key } => storage.remove_xattr(on, &name, &key),
            Call::RemoveXattrOpen { key } => storage.remove_xattr_handle(on, &key),
            Call::Write { offset } => storage.write(on, &[IoSlice::new(content)], offset),
            Call::Truncate { size } => storage.truncate(on, size),
            Call::TruncateNamed { name, size } => storage.truncate_named(on, &name, size),
            Call::Punch { offset, length } => storage.punch(on, offset, length),
            Call::Allocate {
                offset,
                length,
                keep_size,
            } => storage.allocate(on, offset, length, keep_size),
            Call::Sync => storage.sync(on),
            Call::SyncAll => storage.sync_all(on),
            _ => Err(Errno::PROTO),
        }
    }
}

fn two(on: &[Handle]) -> Result<[&Handle; 2]> {
    match on {
        [a, b] => Ok([a, b]),
        _ => Err(Errno::PROTO),
    }
}
