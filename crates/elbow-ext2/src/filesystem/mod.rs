//! The file system: how time, operations and completions come to it.

mod data;
mod issue;
mod write_back;

use elbow_disk::Ps;
use elbow_file::{Handle, Storage};

use crate::image::Image;
use crate::queue::Queue;
use crate::trace::Outcome;
use crate::volume::Volume;
use crate::{Action, BLOCK_BYTES, Ext2Error, Options, Purpose, Statistics};

/// The file system. See the [crate].
///
/// ```
/// use elbow_ext2::{Action, Ext2, Options, Outcome, RequestTarget};
///
/// let mut fs = Ext2::new(Options::new(40_000))?;
/// assert_eq!(fs.apply(7, &Action::Create("/a".into()))?, Outcome::Done);
/// assert_eq!(fs.apply(7, &Action::Write { path: "/a".into(), offset: 0, bytes: 5000 })?, Outcome::Done);
/// assert!(fs.next_request().is_none(), "it is dirty for less than 30 s");
/// assert_eq!(fs.apply(7, &Action::Sync)?, Outcome::Wait);
/// let request = fs.next_request().unwrap();
/// assert_eq!(request.blocks, 2);
/// assert!(matches!(request.target, RequestTarget::Write(_)));
/// # Ok::<(), elbow_ext2::Ext2Error>(())
/// ```
#[derive(Debug)]
pub struct Ext2 {
    volume: Volume,
    queue: Queue,
    next_tick: Ps,
    statistics: Statistics,
}

impl Ext2 {
    /// Makes an empty file system with `/lost+found`, all of it on the disk and in memory.
    ///
    /// # Errors
    /// [`Ext2Error::Geometry`] for sizes that cannot be.
    pub fn new(options: Options) -> Result<Self, Ext2Error> {
        Ok(Self {
            queue: Queue::new(options.in_flight_max, options.merge),
            next_tick: options.writeback.interval,
            volume: Volume::new(options)?,
            statistics: Statistics::default(),
        })
    }

    /// The options that it was made with.
    pub fn options(&self) -> &Options {
        self.volume.options()
    }

    /// What was asked of the disk.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Does an operation of a process, or part of it.
    ///
    /// # Errors
    /// Why it cannot be done; then nothing was changed, but for what a write had done before the space ended.
    pub fn apply(&mut self, pid: u32, action: &Action) -> Result<Outcome, Ext2Error> {
        match action {
            Action::Mkdir(path) => self.volume.mkdir(pid, path),
            Action::Create(path) => self.volume.create(pid, path),
            Action::Write { path, offset, bytes } => self.write(pid, path, *offset, *bytes),
            Action::Append { path, bytes } => {
                let inodes = self.volume.inodes();
                let offset = inodes.at(inodes.resolve_file(path)?).size;
                self.write(pid, path, offset, *bytes)
            }
            Action::Read { path, offset, bytes } => self.read(path, *offset, *bytes),
            Action::Truncate { path, bytes } => self.volume.truncate(path, *bytes),
            Action::Unlink(path) => self.volume.unlink(path).map(|ino| self.dropped(ino)),
            Action::Rmdir(path) => self.volume.rmdir(path).map(|ino| self.dropped(ino)),
            Action::Rename { from, to } => self.rename(pid, from, to),
            Action::Close(path) => self.volume.close(path).map(|()| Outcome::Done),
            Action::Fsync(path) => self.fsync(path),
            Action::Sync => Ok(self.sync()),
            Action::Think(_) => Ok(Outcome::Done), // whoever has the clock
        }
    }

    /// Says what time it is; time does not go back. Looks at the age of what is dirty where that is due.
    pub fn advance(&mut self, now: Ps) {
        self.volume.cache_mut().advance(now);
        while self.next_tick <= now {
            self.next_tick += self.options().writeback.interval;
            self.write_back_old();
        }
    }

    /// When [`advance`](Self::advance) will look at the age of what is dirty next.
    pub fn next_tick(&self) -> Ps {
        self.next_tick
    }

    /// Blocks that are neither used nor promised to data in memory.
    pub fn free_blocks(&self) -> u64 {
        self.volume.space().free_blocks()
    }

    /// Group that the inode of a path is in.
    ///
    /// # Errors
    /// If there is no such path.
    pub fn group_of(&self, path: &str) -> Result<u32, Ext2Error> {
        Ok(self.volume.geometry().inode_group(self.volume.inodes().resolve(path)?))
    }

    /// Where the data of a file lies, block by block; `None` for a hole and for what has no place yet.
    ///
    /// # Errors
    /// If there is no such path.
    pub fn places(&self, path: &str) -> Result<Vec<Option<u32>>, Ext2Error> {
        let inode = self.volume.inode(self.volume.inodes().resolve(path)?);
        let blocks = inode.size.div_ceil(BLOCK_BYTES as u64) as u32;
        Ok((0..blocks).map(|block| inode.place(block)).collect())
    }

    /// As [`places`](Self::places), of a regular file; `None` if there is none of that name.
    pub(crate) fn places_of_file(&self, path: &str) -> Option<Vec<Option<u32>>> {
        self.volume.inodes().resolve_file(path).ok()?;
        self.places(path).ok()
    }

    /// Groups that it has.
    pub fn groups(&self) -> u32 {
        self.volume.geometry().groups
    }

    /// Uses up a group, to a fraction of all its blocks, by a file in the root that is taken to have been there for
    /// long: runs of so many blocks at random. Nothing is written.
    ///
    /// # Errors
    /// [`Ext2Error::Exists`] if that was done to this group before, and whatever a file can run into.
    ///
    /// # Panics
    /// For a group that there is not, or runs of 0 blocks.
    pub fn occupy(&mut self, group: u32, fraction: f64, run_blocks: u32) -> Result<(), Ext2Error> {
        self.volume.occupy(group, fraction, run_blocks)?;
        assert!(!self.queue.is_moving(), "nothing is being written");
        Ok(())
    }

    /// Writes an image into an empty file, which becomes as long as the file system: sparse, with all that is not data.
    ///
    /// ```
    /// use elbow_ext2::{Ext2, Options};
    /// use elbow_file::{RealStorage, Storage};
    ///
    /// let mut fs = Ext2::new(Options::new(2_000))?;
    /// let file = RealStorage::temporary(std::path::Path::new("/tmp")).unwrap();
    /// fs.write_image(&RealStorage, &file)?;
    /// assert_eq!(RealStorage.stat_handle(&file).unwrap().size, 2_000 * 4096);
    /// # Ok::<(), elbow_ext2::Ext2Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Ext2Error::NotSynced`] if there is something left to write; [`Ext2Error::Image`] for what the storage says.
    pub fn write_image(&mut self, storage: &dyn Storage, file: &Handle) -> Result<(), Ext2Error> {
        self.volume.discard_preallocations();
        let cache = self.volume.cache();
        if cache.unwritten_blocks() + cache.placing() > 0 || self.queue.has_in_flight() {
            return Err(Ext2Error::NotSynced(self.left()));
        }
        Image::of(&self.volume).write(storage, file)
    }

    /// What a block holds, if it is not the data of a file: what a write of it would put on the disk now.
    pub fn content(&self, block: u32) -> Option<Vec<u8>> {
        Image::of(&self.volume).content(block)
    }

    /// What a block of the file system holds; data for what is free, too.
    pub fn purpose_of(&self, block: u32) -> Purpose {
        Image::of(&self.volume).purpose_of(block)
    }

    fn rename(&mut self, pid: u32, from: &str, to: &str) -> Result<Outcome, Ext2Error> {
        let (outcome, replaced) = self.volume.rename(pid, from, to)?;
        replaced.into_iter().for_each(|ino| self.settle(ino));
        Ok(outcome)
    }

    /// A name is gone: so is its inode, as soon as it is not being written.
    fn dropped(&mut self, ino: u32) -> Outcome {
        self.settle(ino);
        Outcome::Done
    }
}
