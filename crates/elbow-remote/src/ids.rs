//! The user's own files look like the user's own at the other end, whatever number the user has there.
//!
//! The number of the user at the far end and that at the near end change places, and so do those of the groups; all others are what they are. As
//! they change places and not one becomes the other, nobody else's files look like the user's.

use std::ffi::{OsStr, OsString};
use std::io::IoSlice;

use elbow_file::{
    Access, DirEntry, FileSystemTraits, FileType, Handle, Identity, RenameMode, Result, Space, Stat, Storage, Time,
};

use crate::serve::NearUser;

/// Two numbers that change places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Swap(u32, u32);

impl Swap {
    fn of(self, id: u32) -> u32 {
        match id {
            id if id == self.0 => self.1,
            id if id == self.1 => self.0,
            id => id,
        }
    }
}

/// A storage that shows its objects as the near end's user is to see them.
#[derive(Debug)]
pub struct SwappedIds<S> {
    storage: S,
    uids: Swap,
    gids: Swap,
}

impl<S> SwappedIds<S> {
    /// For this process, on behalf of a user elsewhere.
    #[must_use]
    pub fn new(storage: S, near: NearUser) -> Self {
        Self {
            storage,
            uids: Swap(rustix::process::geteuid().as_raw(), near.uid),
            gids: Swap(rustix::process::getegid().as_raw(), near.gid),
        }
    }

    /// A user and a group as the other end knows them.
    pub fn owner(&self, (uid, gid): (u32, u32)) -> (u32, u32) {
        (self.uids.of(uid), self.gids.of(gid))
    }

    fn shown(&self, stat: Stat) -> Stat {
        Stat {
            uid: self.uids.of(stat.uid),
            gid: self.gids.of(stat.gid),
            ..stat
        }
    }

    fn meant(&self, uid: Option<u32>, gid: Option<u32>) -> (Option<u32>, Option<u32>) {
        (uid.map(|uid| self.uids.of(uid)), gid.map(|gid| self.gids.of(gid)))
    }
}

impl<S: Storage> Storage for SwappedIds<S> {
    fn open_dir(&self, dir: &Handle, name: &OsStr) -> Result<Handle> {
        self.storage.open_dir(dir, name)
    }

    fn create(&self, dir: &Handle, name: &OsStr, mode: u32) -> Result<Handle> {
        self.storage.create(dir, name, mode)
    }

    fn create_unnamed(&self, dir: &Handle, name: &OsStr, mode: u32) -> Result<Handle> {
        self.storage.create_unnamed(dir, name, mode)
    }

    fn open(&self, dir: &Handle, name: &OsStr, access: Access) -> Result<Handle> {
        self.storage.open(dir, name, access)
    }

    fn mkdir(&self, dir: &Handle, name: &OsStr, mode: u32) -> Result<()> {
        self.storage.mkdir(dir, name, mode)
    }

    fn symlink(&self, target: &OsStr, dir: &Handle, name: &OsStr) -> Result<()> {
        self.storage.symlink(target, dir, name)
    }

    fn mknod(&self, dir: &Handle, name: &OsStr, kind: FileType, mode: u32, rdev: u64) -> Result<()> {
        self.storage.mknod(dir, name, kind, mode, rdev)
    }

    fn link(&self, dir: &Handle, name: &OsStr, new_dir: &Handle, new_name: &OsStr) -> Result<()> {
        self.storage.link(dir, name, new_dir, new_name)
    }

    fn rename(&self, dir: &Handle, name: &OsStr, new_dir: &Handle, new_name: &OsStr, mode: RenameMode) -> Result<()> {
        self.storage.rename(dir, name, new_dir, new_name, mode)
    }

    fn unlink(&self, dir: &Handle, name: &OsStr) -> Result<()> {
        self.storage.unlink(dir, name)
    }

    fn rmdir(&self, dir: &Handle, name: &OsStr) -> Result<()> {
        self.storage.rmdir(dir, name)
    }

    fn stat(&self, dir: &Handle, name: &OsStr) -> Result<Stat> {
        self.storage.stat(dir, name).map(|stat| self.shown(stat))
    }

    fn stat_uncached(&self, dir: &Handle, name: &OsStr) -> Result<Stat> {
        self.storage.stat_uncached(dir, name).map(|stat| self.shown(stat))
    }

    fn stat_handle(&self, handle: &Handle) -> Result<Stat> {
        self.storage.stat_handle(handle).map(|stat| self.shown(stat))
    }

    fn list(&self, dir: &Handle) -> Result<Vec<DirEntry>> {
        self.storage.list(dir)
    }

    fn readlink(&self, dir: &Handle, name: &OsStr) -> Result<OsString> {
        self.storage.readlink(dir, name)
    }

    fn space(&self, handle: &Handle) -> Result<Space> {
        self.storage.space(handle)
    }

    fn chmod(&self, dir: &Handle, name: &OsStr, mode: u32) -> Result<()> {
        self.storage.chmod(dir, name, mode)
    }

    fn chmod_handle(&self, file: &Handle, mode: u32) -> Result<()> {
        self.storage.chmod_handle(file, mode)
    }

    fn chown(&self, dir: &Handle, name: &OsStr, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let (uid, gid) = self.meant(uid, gid);
        self.storage.chown(dir, name, uid, gid)
    }

    fn chown_handle(&self, file: &Handle, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let (uid, gid) = self.meant(uid, gid);
        self.storage.chown_handle(file, uid, gid)
    }

    fn set_times(&self, dir: &Handle, name: &OsStr, atime: Option<Time>, mtime: Option<Time>) -> Result<()> {
        self.storage.set_times(dir, name, atime, mtime)
    }

    fn touch(&self, dir: &Handle, name: &OsStr) -> Result<()> {
        self.storage.touch(dir, name)
    }

    fn set_times_handle(&self, file: &Handle, atime: Option<Time>, mtime: Option<Time>) -> Result<()> {
        self.storage.set_times_handle(file, atime, mtime)
    }

    fn list_xattrs(&self, dir: &Handle, name: &OsStr) -> Result<Vec<OsString>> {
        self.storage.list_xattrs(dir, name)
    }

    fn get_xattr(&self, dir: &Handle, name: &OsStr, key: &OsStr) -> Result<Vec<u8>> {
        self.storage.get_xattr(dir, name, key)
    }

    fn set_xattr(&self, dir: &Handle, name: &OsStr, key: &OsStr, value: &[u8]) -> Result<()> {
        self.storage.set_xattr(dir, name, key, value)
    }

    fn get_xattr_handle(&self, file: &Handle, key: &OsStr) -> Result<Vec<u8>> {
        self.storage.get_xattr_handle(file, key)
    }

    fn set_xattr_handle(&self, file: &Handle, key: &OsStr, value: &[u8]) -> Result<()> {
        self.storage.set_xattr_handle(file, key, value)
    }

    fn remove_xattr(&self, dir: &Handle, name: &OsStr, key: &OsStr) -> Result<()> {
        self.storage.remove_xattr(dir, name, key)
    }

    fn remove_xattr_handle(&self, file: &Handle, key: &OsStr) -> Result<()> {
        self.storage.remove_xattr_handle(file, key)
    }

    fn read(&self, file: &Handle, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.storage.read(file, buffer, offset)
    }

    fn write(&self, file: &Handle, pieces: &[IoSlice<'_>], offset: u64) -> Result<()> {
        self.storage.write(file, pieces, offset)
    }

    fn truncate(&self, file: &Handle, size: u64) -> Result<()> {
        self.storage.truncate(file, size)
    }

    fn truncate_named(&self, dir: &Handle, name: &OsStr, size: u64) -> Result<()> {
        self.storage.truncate_named(dir, name, size)
    }

    fn punch(&self, file: &Handle, offset: u64, length: u64) -> Result<()> {
        self.storage.punch(file, offset, length)
    }

    fn allocate(&self, file: &Handle, offset: u64, length: u64, keep_size: bool) -> Result<()> {
        self.storage.allocate(file, offset, length, keep_size)
    }

    fn next_data(&self, file: &Handle, offset: u64) -> Result<Option<(u64, u64)>> {
        self.storage.next_data(file, offset)
    }

    fn close(&self, file: &Handle) -> Result<()> {
        self.storage.close(file)
    }

    fn try_lock(&self, file: &Handle) -> Result<bool> {
        self.storage.try_lock(file)
    }

    fn identity(&self, handle: &Handle) -> Result<Identity> {
        self.storage.identity(handle)
    }

    /// Who owns what is said by another machine.
    fn file_system_traits(&self, handle: &Handle) -> Result<FileSystemTraits> {
        let traits = self.storage.file_system_traits(handle)?;
        Ok(FileSystemTraits {
            own_ids: false,
            ..traits
        })
    }

    fn sync(&self, handle: &Handle) -> Result<()> {
        self.storage.sync(handle)
    }

    fn sync_all(&self, handle: &Handle) -> Result<()> {
        self.storage.sync_all(handle)
    }
}

#[cfg(test)]
mod tests {
    use elbow_file::{Errno, RealStorage};

    use super::*;

    #[test]
    fn two_numbers_change_places_and_no_other_does() {
        let swap = Swap(1005, 1000);
        assert_eq!([1005, 1000, 0, 7].map(|id| swap.of(id)), [1000, 1005, 0, 7]);
        assert_eq!([5, 6].map(|id| Swap(5, 5).of(id)), [5, 6]);
    }

    #[test]
    fn what_is_the_users_own_looks_so_and_can_be_given_to_the_user() {
        let place = tempfile::tempdir().unwrap();
        let root = RealStorage::open_root(place.path()).unwrap();
        let near = NearUser { uid: 4711, gid: 4712 };
        let storage = SwappedIds::new(RealStorage, near);
        let file = storage.create(&root, OsStr::new("file"), 0o644).unwrap();
        let seen = storage.stat_handle(&file).unwrap();
        let below = RealStorage.stat_handle(&file).unwrap();
        assert_eq!((seen.uid, seen.gid), (near.uid, near.gid));
        assert_ne!((below.uid, below.gid), (near.uid, near.gid));
        let name = OsStr::new("file");
        assert_eq!(
            storage.chown(&root, name, Some(near.uid), Some(near.gid)),
            Ok(()),
            "it is theirs"
        );
        if !rustix::process::geteuid().is_root() {
            assert_eq!(storage.chown(&root, name, Some(0), None), Err(Errno::PERM));
        }
        assert_eq!(storage.stat(&root, name).unwrap().uid, near.uid);
    }
}
