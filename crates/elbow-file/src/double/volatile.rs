//! Keeps what is durable apart from what is only written, for tests of what a crash leaves.
//!
//! ```text
//!   test ──> Volatile ──> storage below     programs see their own calls at once, as ever
//!               │
//!            history:  change change SYNC change change change
//!                                                ^ crash_at(here): two changes may survive or not, or in part
//! ```
//!
//! The history holds every change of a file or name and every sync. From it [`Volatile::crash_at`] makes, for any
//! moment since the beginning, what was durable then and the changes that were not; [`Crash::images`] makes of those
//! the trees that a crash could have left, and [`Image::write_to`] puts one into an empty directory to be checked.
//!
//! What a crash may do: any subset of the changes of content survives, each whole or, a write, in any of its sectors of
//! 512 bytes, a punch in any of its pages of 4096. Names survive in their order (file systems keep them in a log): a
//! prefix of the changes of names survives. What had returned before a sync of the file began is durable after it; a
//! name is durable after a sync of its directory, not of its file. All that stood there in the beginning is durable.
//!
//! Not here: attributes (an image's files have mode 0600 and the time of its making), and objects other than files,
//! directories and symbolic links, whose making is refused with EOPNOTSUPP. A sync does not reach the storage below: nothing crashes in
//! truth. Changes are made one at a time. The history has no bound: this is for tests.
//!
//! Source: fsync(2); Pillai et al., *All File Systems Are Not Created Equal*, OSDI 2014, section 3.

mod image;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::IoSlice;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{
    Access, DirEntry, Errno, FileSystemTraits, FileType, Handle, Identity, RenameMode, Result, Space, Stat, Storage,
    Time,
};

pub use image::{Crash, Image};

/// Bytes read at a time of files that exist when the double is made.
const READ_BYTES: usize = 1 << 20;

/// A storage that remembers what is not durable yet.
///
/// ```
/// use std::ffi::OsStr;
/// use std::io::IoSlice;
/// use std::sync::Arc;
///
/// use elbow_file::double::Volatile;
/// use elbow_file::{Access, RealStorage, Storage};
///
/// let directory = tempfile::tempdir()?;
/// let root = RealStorage::open_root(directory.path())?;
/// let storage = Volatile::new(Arc::new(RealStorage), &root)?;
/// let file = storage.create(&root, OsStr::new("f"), 0o600)?;
/// storage.sync(&root)?;
/// storage.write(&file, &[IoSlice::new(b"hello")], 0)?;
///
/// // Of one change that may survive or not come two images; small enough, it cannot be torn.
/// for image in storage.crash_at(storage.now()).images(1) {
///     let crashed = tempfile::tempdir()?;
///     let crashed = RealStorage::open_root(crashed.path())?;
///     image.write_to(&RealStorage, &crashed)?;
///     let file = RealStorage.open(&crashed, OsStr::new("f"), Access::Read)?;
///     let mut content = [0; 9];
///     let length = RealStorage.read(&file, &mut content, 0)?;
///     assert!([&b""[..], b"hello"].contains(&&content[..length]), "{image}");
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Volatile {
    below: Arc<dyn Storage>,
    root: Node,
    state: Mutex<VolatileState>,
}

#[derive(Default)]
struct VolatileState {
    /// By device and inode number; a new object takes the place of a deleted one whose number it got.
    nodes: HashMap<(u64, u64), Node>,
    /// Objects met so far.
    met: usize,
    history: Vec<Event>,
}

/// An object, by a number that is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Node {
    number: usize,
    is_dir: bool,
}

#[derive(Clone)]
enum Event {
    /// Names that are given or taken in one atomic step.
    Names(Vec<Name>),
    Content(Node, Content),
    /// A symbolic link, whose target is durable with its name.
    Target(Node, OsString),
    /// A file that stood there already had this time of its last change; it has it until something is written.
    Mtime(Node, Time),
    Sync(Node),
    SyncAll,
}

#[derive(Clone)]
struct Name {
    dir: Node,
    name: OsString,
    /// What it now names; nothing, if the name is taken away.
    node: Option<Node>,
}

#[derive(Clone)]
enum Content {
    Write { offset: u64, bytes: Arc<[u8]> },
    Punch { offset: u64, length: u64 },
    Truncate { size: u64 },
}

impl Volatile {
    /// Puts the double in front of a storage; what is below the root is durable.
    ///
    /// # Errors
    /// Those of reading the tree below the root; EOPNOTSUPP where it holds anything but files, directories and symbolic links.
    pub fn new(below: Arc<dyn Storage>, root: &Handle) -> Result<Self> {
        let mut state = VolatileState::default();
        let node = state.meet(&below.stat_handle(root)?);
        state.adopt(&*below, root, node)?;
        state.history.push(Event::SyncAll);
        Ok(Self {
            below,
            root: node,
            state: Mutex::new(state),
        })
    }

    /// The moment now: the number of changes and syncs so far. After a sync has returned it is durable at this moment.
    #[must_use]
    pub fn now(&self) -> usize {
        self.state.lock().history.len()
    }

    /// What a crash at a moment would find.
    ///
    /// # Panics
    /// When that moment has not come.
    #[must_use]
    pub fn crash_at(&self, moment: usize) -> Crash {
        Crash::new(self.root, &self.state.lock().history[..moment])
    }

    /// Makes a change and remembers it, in one order with all others.
    fn change<T>(&self, make: impl FnOnce(&mut VolatileState) -> Result<(T, Event)>) -> Result<T> {
        let mut state = self.state.lock();
        let (value, event) = make(&mut state)?;
        state.history.push(event);
        Ok(value)
    }

    fn change_content(&self, file: &Handle, content: Content, make: impl FnOnce() -> Result<()>) -> Result<()> {
        self.change(|state| {
            let node = state.node_of(&self.below.stat_handle(file)?);
            make()?;
            Ok(((), Event::Content(node, content)))
        })
    }

    fn change_names(
        &self,
        make: impl FnOnce() -> Result<()>,
        names: impl FnOnce(&VolatileState) -> Result<Vec<Name>>,
    ) -> Result<()> {
        self.change(|state| {
            let names = names(state)?;
            make()?;
            Ok(((), Event::Names(names)))
        })
    }

    /// A name in a directory, and what it is to name.
    fn name(&self, state: &VolatileState, dir: &Handle, name: &OsStr, node: Option<Node>) -> Result<Name> {
        Ok(Name {
            dir: state.node_of(&self.below.stat_handle(dir)?),
            name: name.to_owned(),
            node,
        })
    }
}

impl VolatileState {
    fn node_of(&self, stat: &Stat) -> Node {
        *self
            .nodes
            .get(&(stat.dev, stat.ino))
            .expect("an object below the root, made through this storage")
    }

    /// Gives a new object a number of its own.
    fn meet(&mut self, stat: &Stat) -> Node {
        let node = Node {
            number: self.met,
            is_dir: stat.kind == FileType::Dir,
        };
        self.met += 1;
        self.nodes.insert((stat.dev, stat.ino), node);
        node
    }

    /// Takes in what stands below a directory already.
    fn adopt(&mut self, below: &dyn Storage, dir: &Handle, dir_node: Node) -> Result<()> {
        for DirEntry { name, .. } in below.list(dir)? {
            let stat = below.stat(dir, &name)?;
            let known = self.nodes.get(&(stat.dev, stat.ino)).copied();
            let node = known.unwrap_or_else(|| self.meet(&stat));
            self.history.push(Event::Names(vec![Name {
                dir: dir_node,
                name: name.clone(),
                node: Some(node),
            }]));
            match stat.kind {
                // Another name of what was met.
                _ if known.is_some() => continue,
                FileType::Symlink => self.history.push(Event::Target(node, below.readlink(dir, &name)?)),
                FileType::Dir => self.adopt(below, &below.open_dir(dir, &name)?, node)?,
                FileType::File => self.adopt_content(below, &below.open(dir, &name, Access::Read)?, node, stat.size)?,
                _ => return Err(Errno::OPNOTSUPP),
            }
            if stat.kind != FileType::Symlink {
                self.history.push(Event::Mtime(node, stat.mtime));
            }
        }
        Ok(())
    }

    fn adopt_content(&mut self, below: &dyn Storage, file: &Handle, node: Node, size: u64) -> Result<()> {
        let mut offset = 0;
        while let Some((start, end)) = below.next_data(file, offset)? {
            offset = end.min(start + READ_BYTES as u64);
            let mut bytes = vec![0; (offset - start) as usize];
            below.read(file, &mut bytes, start)?;
            let bytes = bytes.into();
            self.history
                .push(Event::Content(node, Content::Write { offset: start, bytes }));
        }
        self.history.push(Event::Content(node, Content::Truncate { size }));
        Ok(())
    }
}

/// Calls that leave everything as it is, or change only what is not kept apart here.
macro_rules! pass_on {
    ($($method:ident($($arg:ident: $type:ty),*) -> $output:ty;)*) => {
        $(fn $method(&self, $($arg: $type),*) -> Result<$output> {
            self.below.$method($($arg),*)
        })*
    };
}

impl Storage for Volatile {
    pass_on! {
        open_dir(dir: &Handle, name: &OsStr) -> Handle;
        open(dir: &Handle, name: &OsStr, access: Access) -> Handle;
        stat(dir: &Handle, name: &OsStr) -> Stat;
        stat_uncached(dir: &Handle, name: &OsStr) -> Stat;
        stat_handle(handle: &Handle) -> Stat;
        list(dir: &Handle) -> Vec<DirEntry>;
        readlink(dir: &Handle, name: &OsStr) -> OsString;
        space(handle: &Handle) -> Space;
        chmod(dir: &Handle, name: &OsStr, mode: u32) -> ();
        chmod_handle(file: &Handle, mode: u32) -> ();
        chown(dir: &Handle, name: &OsStr, uid: Option<u32>, gid: Option<u32>) -> ();
        chown_handle(file: &Handle, uid: Option<u32>, gid: Option<u32>) -> ();
        set_times(dir: &Handle, name: &OsStr, atime: Option<Time>, mtime: Option<Time>) -> ();
        touch(dir: &Handle, name: &OsStr) -> ();
        set_times_handle(file: &Handle, atime: Option<Time>, mtime: Option<Time>) -> ();
        list_xattrs(dir: &Handle, name: &OsStr) -> Vec<OsString>;
        get_xattr(dir: &Handle, name: &OsStr, key: &OsStr) -> Vec<u8>;
        set_xattr(dir: &Handle, name: &OsStr, key: &OsStr, value: &[u8]) -> ();
        get_xattr_handle(file: &Handle, key: &OsStr) -> Vec<u8>;
        set_xattr_handle(file: &Handle, key: &OsStr, value: &[u8]) -> ();
        remove_xattr(dir: &Handle, name: &OsStr, key: &OsStr) -> ();
        remove_xattr_handle(file: &Handle, key: &OsStr) -> ();
        read(file: &Handle, buffer: &mut [u8], offset: u64) -> usize;
        next_data(file: &Handle, offset: u64) -> Option<(u64, u64)>;
        close(file: &Handle) -> ();
        try_lock(file: &Handle) -> bool;
        identity(handle: &Handle) -> Identity;
        file_system_traits(handle: &Handle) -> FileSystemTraits;
    }

    fn create(&self, dir: &Handle, name: &OsStr, mode: u32) -> Result<Handle> {
        self.change(|state| {
            let file = self.below.create(dir, name, mode)?;
            let node = state.meet(&self.below.stat_handle(&file)?);
            let names = vec![self.name(state, dir, name, Some(node))?];
            Ok((file, Event::Names(names)))
        })
    }

    fn mkdir(&self, dir: &Handle, name: &OsStr, mode: u32) -> Result<()> {
        self.change(|state| {
            self.below.mkdir(dir, name, mode)?;
            let node = state.meet(&self.below.stat(dir, name)?);
            let names = vec![self.name(state, dir, name, Some(node))?];
            Ok(((), Event::Names(names)))
        })
    }

    fn symlink(&self, target: &OsStr, dir: &Handle, name: &OsStr) -> Result<()> {
        self.change(|state| {
            self.below.symlink(target, dir, name)?;
            let node = state.meet(&self.below.stat(dir, name)?);
            state.history.push(Event::Target(node, target.to_owned()));
            let names = vec![self.name(state, dir, name, Some(node))?];
            Ok(((), Event::Names(names)))
        })
    }

    fn mknod(&self, _: &Handle, _: &OsStr, _: FileType, _: u32, _: u64) -> Result<()> {
        Err(Errno::OPNOTSUPP)
    }

    fn link(&self, dir: &Handle, name: &OsStr, new_dir: &Handle, new_name: &OsStr) -> Result<()> {
        let make = || self.below.link(dir, name, new_dir, new_name);
        self.change_names(make, |state| {
            let linked = state.node_of(&self.below.stat(dir, name)?);
            Ok(vec![self.name(state, new_dir, new_name, Some(linked))?])
        })
    }

    fn rename(&self, dir: &Handle, name: &OsStr, new_dir: &Handle, new_name: &OsStr, mode: RenameMode) -> Result<()> {
        let make = || self.below.rename(dir, name, new_dir, new_name, mode);
        self.change_names(make, |state| {
            let moved = state.node_of(&self.below.stat(dir, name)?);
            let replaced = self.below.stat(new_dir, new_name).map(|stat| state.node_of(&stat));
            if replaced == Ok(moved) {
                // Two names of one object stay both.
                return Ok(Vec::new());
            }
            let back = match mode {
                RenameMode::Exchange => Some(state.node_of(&self.below.stat(new_dir, new_name)?)),
                RenameMode::Replace | RenameMode::NoReplace => None,
            };
            let old = self.name(state, dir, name, back)?;
            Ok(vec![old, self.name(state, new_dir, new_name, Some(moved))?])
        })
    }

    fn unlink(&self, dir: &Handle, name: &OsStr) -> Result<()> {
        let make = || self.below.unlink(dir, name);
        self.change_names(make, |state| Ok(vec![self.name(state, dir, name, None)?]))
    }

    fn rmdir(&self, dir: &Handle, name: &OsStr) -> Result<()> {
        let make = || self.below.rmdir(dir, name);
        self.change_names(make, |state| Ok(vec![self.name(state, dir, name, None)?]))
    }

    fn write(&self, file: &Handle, pieces: &[IoSlice<'_>], offset: u64) -> Result<()> {
        if pieces.iter().all(|piece| piece.is_empty()) {
            // It changes nothing.
            return self.below.write(file, pieces, offset);
        }
        let bytes = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
        let content = Content::Write { offset, bytes };
        self.change_content(file, content, || self.below.write(file, pieces, offset))
    }

    fn truncate_named(&self, dir: &Handle, name: &OsStr, size: u64) -> Result<()> {
        self.truncate(&self.below.open(dir, name, Access::Write)?, size)
    }

    fn truncate(&self, file: &Handle, size: u64) -> Result<()> {
        self.change_content(file, Content::Truncate { size }, || self.below.truncate(file, size))
    }

    fn punch(&self, file: &Handle, offset: u64, length: u64) -> Result<()> {
        // Past the end of the file there is nothing to punch, however long the range.
        let size = self.below.stat_handle(file)?.size;
        let inside = length.min(size.saturating_sub(offset));
        let content = Content::Punch { offset, length: inside };
        self.change_content(file, content, || self.below.punch(file, offset, length))
    }

    /// Of content, only the size may change; what is reserved is not kept apart.
    fn allocate(&self, file: &Handle, offset: u64, length: u64, keep_size: bool) -> Result<()> {
        let make = || self.below.allocate(file, offset, length, keep_size);
        let (size, end) = (self.below.stat_handle(file)?.size, offset.saturating_add(length));
        match keep_size || end <= size {
            true => make(),
            false => self.change_content(file, Content::Truncate { size: end }, make),
        }
    }

    fn sync(&self, handle: &Handle) -> Result<()> {
        self.change(|state| {
            let node = state.node_of(&self.below.stat_handle(handle)?);
            Ok(((), Event::Sync(node)))
        })
    }

    fn sync_all(&self, _: &Handle) -> Result<()> {
        self.change(|_| Ok(((), Event::SyncAll)))
    }
}
