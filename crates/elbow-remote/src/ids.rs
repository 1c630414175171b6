//! The user's own files look like the user's own at the other end, whatever number the user has there, and what access control lists let the user do
//! is the user's.
//!
//! The number of the user at the far end and that at the near end change places, and so do those of the groups; all others are what they are. As
//! they change places and not one becomes the other, nobody else's files look like the user's.

use std::ffi::OsStr;

use elbow_file::{FileSystemTraits, Handle, OwnerSwap, Result, Stat, Storage, StorageLayer, renumber_acl};

use crate::serve::NearUser;

/// A storage that shows its objects as the near end's user is to see them.
#[derive(Debug)]
pub struct SwappedIds<S> {
    storage: S,
    owners: OwnerSwap,
}

impl<S> SwappedIds<S> {
    /// For this process, on behalf of a user elsewhere.
    #[must_use]
    pub fn new(storage: S, near: NearUser) -> Self {
        Self {
            storage,
            owners: OwnerSwap {
                uids: (rustix::process::geteuid().as_raw(), near.uid),
                gids: (rustix::process::getegid().as_raw(), near.gid),
            },
        }
    }

    /// For this process, over a storage where its user and group are these.
    #[must_use]
    pub fn of_far(storage: S, (uid, gid): (u32, u32)) -> Self {
        Self::new(storage, NearUser { uid, gid })
    }

    fn shown(&self, stat: Stat) -> Stat {
        Stat {
            uid: self.owners.user(stat.uid),
            gid: self.owners.group(stat.gid),
            ..stat
        }
    }

    /// The value of an extended attribute as the other end knows it: an access control list names users and groups.
    fn with_ids(&self, key: &OsStr, mut value: Vec<u8>) -> Vec<u8> {
        renumber_acl(
            key,
            &mut value,
            |uid| self.owners.user(uid),
            |gid| self.owners.group(gid),
        );
        value
    }

    fn meant(&self, uid: Option<u32>, gid: Option<u32>) -> (Option<u32>, Option<u32>) {
        (
            uid.map(|uid| self.owners.user(uid)),
            gid.map(|gid| self.owners.group(gid)),
        )
    }
}

impl<S: Storage> StorageLayer for SwappedIds<S> {
    fn below(&self) -> &dyn Storage {
        &self.storage
    }

    fn owners_there(&self) -> Result<Option<OwnerSwap>> {
        Ok((!self.owners.is_nothing()).then_some(self.owners))
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

    fn chown(&self, dir: &Handle, name: &OsStr, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let (uid, gid) = self.meant(uid, gid);
        self.storage.chown(dir, name, uid, gid)
    }

    fn chown_handle(&self, file: &Handle, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let (uid, gid) = self.meant(uid, gid);
        self.storage.chown_handle(file, uid, gid)
    }

    fn get_xattr(&self, dir: &Handle, name: &OsStr, key: &OsStr) -> Result<Vec<u8>> {
        let value = self.storage.get_xattr(dir, name, key)?;
        Ok(self.with_ids(key, value))
    }

    fn get_xattr_handle(&self, file: &Handle, key: &OsStr) -> Result<Vec<u8>> {
        let value = self.storage.get_xattr_handle(file, key)?;
        Ok(self.with_ids(key, value))
    }

    fn set_xattr(&self, dir: &Handle, name: &OsStr, key: &OsStr, value: &[u8]) -> Result<()> {
        let value = self.with_ids(key, value.to_vec());
        self.storage.set_xattr(dir, name, key, &value)
    }

    fn set_xattr_handle(&self, file: &Handle, key: &OsStr, value: &[u8]) -> Result<()> {
        let value = self.with_ids(key, value.to_vec());
        self.storage.set_xattr_handle(file, key, &value)
    }

    /// Who owns what is said by another machine.
    fn file_system_traits(&self, handle: &Handle) -> Result<FileSystemTraits> {
        let traits = self.storage.file_system_traits(handle)?;
        Ok(FileSystemTraits {
            own_ids: false,
            ..traits
        })
    }
}

#[cfg(test)]
mod tests {
    use elbow_file::{Errno, RealStorage};

    use super::*;

    #[test]
    fn what_is_the_users_own_looks_so_and_can_be_given_to_the_user() {
        let place = tempfile::tempdir().unwrap();
        let root = RealStorage::open_root(place.path()).unwrap();
        let near = NearUser { uid: 4711, gid: 4712 };
        let storage: &dyn Storage = &SwappedIds::new(RealStorage, near);
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
        let list = |uid: u32| -> Vec<u8> {
            let nobody = u32::MAX;
            let entries = [
                (1_u16, 7_u16, nobody),
                (2, 6, uid),
                (4, 4, nobody),
                (16, 6, nobody),
                (32, 0, nobody),
            ];
            let of_entry = |(tag, may, id): (u16, u16, u32)| {
                [&tag.to_le_bytes()[..], &may.to_le_bytes(), &id.to_le_bytes()].concat()
            };
            [&2_u32.to_le_bytes()[..], &entries.map(of_entry).concat()].concat()
        };
        let acl = OsStr::new(elbow_file::ACCESS_ACL);
        if storage.set_xattr(&root, name, acl, &list(near.uid)) != Err(Errno::OPNOTSUPP) {
            assert_eq!(storage.get_xattr_handle(&file, acl), Ok(list(near.uid)));
            assert_eq!(RealStorage.get_xattr(&root, name, acl), Ok(list(below.uid)));
            storage.set_xattr_handle(&file, acl, &list(below.uid)).unwrap();
            assert_eq!(storage.get_xattr(&root, name, acl), Ok(list(below.uid)));
            assert_eq!(RealStorage.get_xattr_handle(&file, acl), Ok(list(near.uid)));
        }
        if !rustix::process::geteuid().is_root() {
            assert_eq!(storage.chown(&root, name, Some(0), None), Err(Errno::PERM));
        }
        assert_eq!(storage.stat(&root, name).unwrap().uid, near.uid);
    }
}
