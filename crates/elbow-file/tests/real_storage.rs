//! The real storage against a real directory: each method does what its system call does.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // the other side of the comparison is std::fs

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use elbow_file::{Access, Errno, FileType, Handle, RealStorage, RenameMode, Storage, Time, unlock_open_file};
use tempfile::TempDir;

/// A directory of its own, and the storage opened on it.
struct Fixture {
    dir: TempDir,
    root: Handle,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = RealStorage::open_root(dir.path()).unwrap();
        Self { dir, root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn file(&self, name: &str, content: &[u8]) -> Handle {
        let file = RealStorage.create(&self.root, n(name), 0o644).unwrap();
        RealStorage.write(&file, &[IoSlice::new(content)], 0).unwrap();
        file
    }
}

fn n(name: &str) -> &OsStr {
    OsStr::new(name)
}

fn read_all(file: &Handle) -> Vec<u8> {
    let mut buffer = vec![0; 1 << 16];
    let length = RealStorage.read(file, &mut buffer, 0).unwrap();
    buffer.truncate(length);
    buffer
}

#[test]
fn a_root_has_to_be_a_directory() {
    let fixture = Fixture::new();
    fixture.file("f", b"");
    assert_eq!(RealStorage::open_root(&fixture.path("f")).unwrap_err(), Errno::NOTDIR);
    assert_eq!(RealStorage::open_root(&fixture.path("none")).unwrap_err(), Errno::NOENT);
}

/// A pipe under the name of a manifest, which anybody can plant, made every job on the directory wait for ever.
#[test]
fn only_regular_files_are_opened_and_nothing_is_waited_for() {
    let fixture = Fixture::new();
    let mknod = |name, kind| RealStorage.mknod(&fixture.root, n(name), kind, 0o666, 0).unwrap();
    mknod("pipe", FileType::Fifo);
    mknod("socket", FileType::Socket);
    fs::create_dir(fixture.path("directory")).unwrap();
    symlink("file", fixture.path("link")).unwrap();
    fixture.file("file", b"content");
    for (name, errno) in [
        ("pipe", Errno::SPIPE),
        ("socket", Errno::SPIPE),
        ("directory", Errno::ISDIR),
        ("link", Errno::LOOP),
        ("none", Errno::NOENT),
    ] {
        for access in [Access::Read, Access::ReadWrite] {
            let opened = RealStorage.open(&fixture.root, n(name), access);
            assert_eq!(opened.unwrap_err(), errno, "{name} for {access:?}");
        }
    }
    let file = RealStorage.open(&fixture.root, n("file"), Access::ReadWrite).unwrap();
    RealStorage.write(&file, &[IoSlice::new(b"C")], 0).unwrap();
    assert_eq!(read_all(&file), b"Content");
}

#[test]
fn a_lock_is_held_under_every_name_until_the_file_is_closed() {
    let fixture = Fixture::new();
    let first = fixture.file("a", b"content");
    assert!(RealStorage.try_lock(&first).unwrap());
    assert!(RealStorage.try_lock(&first).unwrap(), "who has it gets it again");
    RealStorage
        .rename(&fixture.root, n("a"), &fixture.root, n("b"), RenameMode::Replace)
        .unwrap();
    let second = RealStorage.open(&fixture.root, n("b"), Access::ReadWrite).unwrap();
    assert!(!RealStorage.try_lock(&second).unwrap());
    assert_eq!(read_all(&second), b"content", "it keeps nobody from reading");
    let other = RealStorage.open(&fixture.root, n("b"), Access::Read).unwrap();
    drop(other); // with process locks, this would give it up
    assert!(!RealStorage.try_lock(&second).unwrap());
    drop(first);
    assert!(RealStorage.try_lock(&second).unwrap());
}

/// A child that another thread was just starting had a copy of the descriptor, and with it the lock that was given up here.
#[test]
fn a_lock_that_is_given_up_is_free_while_a_copy_of_its_descriptor_is_open() {
    let fixture = Fixture::new();
    let first = fixture.file("a", b"");
    let second = RealStorage.open(&fixture.root, n("a"), Access::ReadWrite).unwrap();
    assert!(RealStorage.try_lock(&first).unwrap());
    let copy = first.as_fd().try_clone_to_owned().unwrap();
    unlock_open_file(&first).unwrap();
    drop(first);
    assert!(RealStorage.try_lock(&second).unwrap());
    drop(copy);
}

#[test]
fn a_local_file_system_has_owners_of_its_own_and_keeps_its_locks() {
    let fixture = Fixture::new();
    let file_system_traits = RealStorage.file_system_traits(&fixture.root).unwrap();
    assert!(!file_system_traits.shares_locks, "{file_system_traits:?}");
    let shm = RealStorage
        .file_system_traits(&RealStorage::open_root("/dev/shm".as_ref()).unwrap())
        .unwrap();
    assert!(shm.own_ids && !shm.shares_locks, "{shm:?}");
}

#[test]
fn names_that_would_walk_are_refused() {
    let fixture = Fixture::new();
    let inner = {
        fs::create_dir(fixture.path("inner")).unwrap();
        RealStorage.open_dir(&fixture.root, n("inner")).unwrap()
    };
    fixture.file("target", b"");
    for name in ["..", "../target", "a/b", "/etc", "", "./target"] {
        assert_eq!(
            RealStorage.stat(&inner, n(name)).unwrap_err(),
            Errno::INVAL,
            "stat {name:?}"
        );
        assert_eq!(
            RealStorage.unlink(&inner, n(name)).unwrap_err(),
            Errno::INVAL,
            "unlink {name:?}"
        );
        assert_eq!(
            RealStorage.chmod(&inner, n(name), 0).unwrap_err(),
            Errno::INVAL,
            "chmod {name:?}"
        );
        assert_eq!(
            RealStorage.get_xattr(&inner, n(name), n("user.k")).unwrap_err(),
            Errno::INVAL,
            "xattr {name:?}"
        );
        let moved = RealStorage.rename(&fixture.root, n("target"), &inner, n(name), RenameMode::Replace);
        assert_eq!(moved.unwrap_err(), Errno::INVAL, "rename to {name:?}");
    }
    assert_eq!(
        RealStorage.stat(&fixture.root, OsStr::from_bytes(b"a\0b")).unwrap_err(),
        Errno::INVAL
    );
    assert!(fixture.path("target").exists());
    assert_eq!(
        RealStorage.stat(&inner, n(".")).unwrap().kind,
        FileType::Dir,
        "the directory itself has a name"
    );
}

#[test]
fn created_files_are_new_and_hold_what_was_written() {
    let fixture = Fixture::new();
    let file = fixture.file("f", b"hello");
    assert_eq!(
        RealStorage.create(&fixture.root, n("f"), 0o644).unwrap_err(),
        Errno::EXIST
    );
    RealStorage
        .write(
            &file,
            &[IoSlice::new(b"y w"), IoSlice::new(b""), IoSlice::new(b"orld")],
            4,
        )
        .unwrap();
    assert_eq!(fs::read(fixture.path("f")).unwrap(), b"helly world");
    assert_eq!(read_all(&file), b"helly world");
    let mut four = [0; 4];
    assert_eq!(
        RealStorage.read(&file, &mut four, 9).unwrap(),
        2,
        "short only at the end"
    );
    assert_eq!(&four[..2], b"ld");
    assert_eq!(RealStorage.read(&file, &mut four, 100).unwrap(), 0);
}

#[test]
fn a_write_of_nothing_writes_nothing() {
    let fixture = Fixture::new();
    let file = fixture.file("f", b"");
    RealStorage.write(&file, &[], 10).unwrap();
    RealStorage
        .write(&file, &[IoSlice::new(b""), IoSlice::new(b"")], 10)
        .unwrap();
    assert_eq!(fs::metadata(fixture.path("f")).unwrap().len(), 0);
}

#[test]
fn a_write_may_have_more_pieces_than_the_kernel_takes() {
    let fixture = Fixture::new();
    let file = fixture.file("f", b"");
    let content: Vec<u8> = (0..5000_u32).flat_map(u32::to_le_bytes).collect();
    let pieces: Vec<_> = content.chunks(3).map(IoSlice::new).collect();
    assert!(pieces.len() > 6 * 1024);
    RealStorage.write(&file, &pieces, 7).unwrap();
    assert_eq!(&fs::read(fixture.path("f")).unwrap()[7..], content);
}

#[test]
fn reading_only_is_reading_only() {
    let fixture = Fixture::new();
    fixture.file("f", b"x");
    let file = RealStorage.open(&fixture.root, n("f"), Access::Read).unwrap();
    assert_eq!(
        RealStorage.write(&file, &[IoSlice::new(b"y")], 0).unwrap_err(),
        Errno::BADF
    );
    let file = RealStorage.open(&fixture.root, n("f"), Access::ReadWrite).unwrap();
    RealStorage.write(&file, &[IoSlice::new(b"y")], 0).unwrap();
    assert_eq!(
        RealStorage.open(&fixture.root, n("none"), Access::Read).unwrap_err(),
        Errno::NOENT
    );
}

#[test]
fn symbolic_links_are_never_followed() {
    let fixture = Fixture::new();
    fixture.file("target", b"x");
    fs::set_permissions(fixture.path("target"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::create_dir(fixture.path("dir")).unwrap();
    RealStorage.symlink(n("target"), &fixture.root, n("link")).unwrap();
    RealStorage.symlink(n("dir"), &fixture.root, n("dirlink")).unwrap();
    let before = fs::metadata(fixture.path("target")).unwrap();

    assert_eq!(RealStorage.readlink(&fixture.root, n("link")).unwrap(), "target");
    assert_eq!(
        RealStorage.stat(&fixture.root, n("link")).unwrap().kind,
        FileType::Symlink
    );
    assert_eq!(
        RealStorage.open(&fixture.root, n("link"), Access::Read).unwrap_err(),
        Errno::LOOP
    );
    assert_eq!(
        RealStorage.open_dir(&fixture.root, n("dirlink")).unwrap_err(),
        Errno::NOTDIR
    );
    RealStorage.chmod(&fixture.root, n("link"), 0o777).ok(); // whether it is an error depends on the kernel
    let time = Time {
        seconds: 1_000_000,
        nanoseconds: 7,
    };
    RealStorage
        .set_times(&fixture.root, n("link"), Some(time), Some(time))
        .unwrap();
    assert_eq!(RealStorage.stat(&fixture.root, n("link")).unwrap().mtime, time);
    RealStorage
        .link(&fixture.root, n("link"), &fixture.root, n("link2"))
        .unwrap();
    assert_eq!(
        RealStorage.stat(&fixture.root, n("link2")).unwrap().kind,
        FileType::Symlink
    );

    let after = fs::metadata(fixture.path("target")).unwrap();
    assert_eq!(
        (after.mode(), after.ctime_nsec(), after.mtime_nsec()),
        (before.mode(), before.ctime_nsec(), before.mtime_nsec())
    );
}

#[test]
fn long_link_targets_come_back_whole() {
    let fixture = Fixture::new();
    let target = "t".repeat(4000);
    RealStorage.symlink(n(&target), &fixture.root, n("link")).unwrap();
    assert_eq!(
        RealStorage.readlink(&fixture.root, n("link")).unwrap(),
        OsString::from(target)
    );
}

#[test]
fn special_files_can_be_made() {
    let fixture = Fixture::new();
    RealStorage
        .mknod(&fixture.root, n("pipe"), FileType::Fifo, 0o600, 0)
        .unwrap();
    RealStorage
        .mknod(&fixture.root, n("socket"), FileType::Socket, 0o600, 0)
        .unwrap();
    RealStorage
        .mknod(&fixture.root, n("file"), FileType::File, 0o600, 0)
        .unwrap();
    assert!(fs::metadata(fixture.path("pipe")).unwrap().file_type().is_fifo());
    assert!(fs::metadata(fixture.path("socket")).unwrap().file_type().is_socket());
    assert!(fs::metadata(fixture.path("file")).unwrap().is_file());
    let made = RealStorage.mknod(&fixture.root, n("d"), FileType::Dir, 0o700, 0);
    assert_eq!(made.unwrap_err(), Errno::INVAL);
}

#[test]
fn links_and_renames() {
    let fixture = Fixture::new();
    let (root, storage) = (&fixture.root, RealStorage);
    fixture.file("a", b"A");
    fixture.file("b", b"B");
    storage.link(root, n("a"), root, n("c")).unwrap();
    assert_eq!(storage.stat(root, n("a")).unwrap().nlink, 2);
    assert_eq!(storage.link(root, n("a"), root, n("b")).unwrap_err(), Errno::EXIST);
    storage.mkdir(root, n("d"), 0o755).unwrap();
    let inner = storage.open_dir(root, n("d")).unwrap();

    assert_eq!(
        storage
            .rename(root, n("a"), root, n("b"), RenameMode::NoReplace)
            .unwrap_err(),
        Errno::EXIST
    );
    storage
        .rename(root, n("a"), root, n("b"), RenameMode::Exchange)
        .unwrap();
    assert_eq!(
        (
            fs::read(fixture.path("a")).unwrap(),
            fs::read(fixture.path("b")).unwrap()
        ),
        (b"B".into(), b"A".into())
    );
    storage
        .rename(root, n("a"), &inner, n("e"), RenameMode::NoReplace)
        .unwrap();
    storage
        .rename(root, n("b"), &inner, n("e"), RenameMode::Replace)
        .unwrap();
    assert_eq!(fs::read(fixture.path("d/e")).unwrap(), b"A");

    assert_eq!(storage.unlink(root, n("d")).unwrap_err(), Errno::ISDIR);
    assert_eq!(storage.rmdir(root, n("d")).unwrap_err(), Errno::NOTEMPTY);
    storage.unlink(&inner, n("e")).unwrap();
    storage.rmdir(root, n("d")).unwrap();
    assert_eq!(storage.rmdir(root, n("c")).unwrap_err(), Errno::NOTDIR);
}

#[test]
fn attributes_are_those_of_stat() {
    let fixture = Fixture::new();
    let file = fixture.file("f", &[1; 10_000]);
    let (by_name, by_handle) = (
        RealStorage.stat(&fixture.root, n("f")).unwrap(),
        RealStorage.stat_handle(&file).unwrap(),
    );
    assert_eq!(by_name, by_handle);
    let found = fs::metadata(fixture.path("f")).unwrap();
    assert_eq!(by_name.kind, FileType::File);
    assert_eq!(
        (by_name.mode, by_name.uid, by_name.gid),
        (found.mode() & 0o7777, found.uid(), found.gid())
    );
    assert_eq!(
        (by_name.ino, by_name.dev, by_name.size),
        (found.ino(), found.dev(), found.len())
    );
    assert_eq!(
        (by_name.blocks, u64::from(by_name.nlink)),
        (found.blocks(), found.nlink())
    );
    let time = |seconds, nanoseconds: i64| Time {
        seconds,
        nanoseconds: nanoseconds as u32,
    };
    assert_eq!(by_name.mtime, time(found.mtime(), found.mtime_nsec()));
    assert_eq!(by_name.ctime, time(found.ctime(), found.ctime_nsec()));
    assert_eq!(by_name.atime, time(found.atime(), found.atime_nsec()));
}

#[test]
fn attributes_can_be_set_by_name_and_by_handle() {
    let fixture = Fixture::new();
    let file = fixture.file("f", b"x");
    let (root, storage) = (&fixture.root, RealStorage);
    let (early, late) = (
        Time {
            seconds: -5,
            nanoseconds: 999_999_999,
        },
        Time {
            seconds: 2_000_000_000,
            nanoseconds: 1,
        },
    );

    storage.chmod(root, n("f"), 0o4751).unwrap();
    assert_eq!(storage.stat(root, n("f")).unwrap().mode, 0o4751);
    storage.chmod_handle(&file, 0o600).unwrap();
    assert_eq!(storage.stat(root, n("f")).unwrap().mode, 0o600);

    storage.set_times(root, n("f"), Some(early), None).unwrap();
    storage.set_times_handle(&file, None, Some(late)).unwrap();
    let found = storage.stat(root, n("f")).unwrap();
    assert_eq!((found.atime, found.mtime), (early, late));
    let too_much = Time {
        seconds: 0,
        nanoseconds: 1_000_000_000,
    };
    assert_eq!(
        storage.set_times(root, n("f"), None, Some(too_much)).unwrap_err(),
        Errno::INVAL
    );

    // To itself: the one change of owner that everybody may make.
    let (uid, gid) = (found.uid, found.gid);
    storage.chown(root, n("f"), Some(uid), None).unwrap();
    storage.chown_handle(&file, None, Some(gid)).unwrap();
    storage.chown_handle(&file, Some(u32::MAX), None).unwrap();
    let found = storage.stat(root, n("f")).unwrap();
    assert_eq!((found.uid, found.gid), (uid, gid));
    if rustix::process::geteuid().is_root() {
        storage.chown(root, n("f"), Some(12), Some(34)).unwrap();
        let found = storage.stat(root, n("f")).unwrap();
        assert_eq!((found.uid, found.gid), (12, 34));
    }
}

#[test]
fn the_root_itself_is_named_by_a_dot() {
    let fixture = Fixture::new();
    let time = Time {
        seconds: 1_234_567,
        nanoseconds: 89,
    };
    RealStorage.chmod(&fixture.root, n("."), 0o750).unwrap();
    RealStorage.set_times(&fixture.root, n("."), None, Some(time)).unwrap();
    let found = RealStorage.stat_handle(&fixture.root).unwrap();
    assert_eq!((found.mode, found.mtime), (0o750, time));
}

#[test]
fn a_list_has_all_names_with_their_kinds() {
    let fixture = Fixture::new();
    let mut expected = BTreeMap::new();
    for index in 0..3000 {
        let name = format!("{index:0>200}"); // in all some 600 KB: several times the buffer
        fixture.file(&name, b"");
        expected.insert(OsString::from(name), FileType::File);
    }
    RealStorage.mkdir(&fixture.root, n("dir"), 0o755).unwrap();
    symlink("x", fixture.path("link")).unwrap();
    fs::File::create(fixture.dir.path().join(OsStr::from_bytes(b"not utf-8 \xff"))).unwrap();
    expected.insert("dir".into(), FileType::Dir);
    expected.insert("link".into(), FileType::Symlink);
    expected.insert(OsStr::from_bytes(b"not utf-8 \xff").to_owned(), FileType::File);

    let listed = RealStorage.list(&fixture.root).unwrap();
    assert_eq!(listed.len(), expected.len(), "each name once");
    let inode = fs::metadata(fixture.path("dir")).unwrap().ino();
    assert!(listed.iter().any(|entry| entry.name == "dir" && entry.ino == inode));
    let found: BTreeMap<_, _> = listed
        .into_iter()
        .map(|entry| (entry.name, entry.kind.unwrap()))
        .collect();
    assert_eq!(found, expected);
    assert_eq!(
        RealStorage.list(&fixture.root).unwrap().len(),
        expected.len(),
        "listing leaves no position behind"
    );
}

#[test]
fn xattrs_of_files_and_directories() {
    let fixture = Fixture::new();
    let (root, storage) = (&fixture.root, RealStorage);
    fixture.file("f", b"");
    if storage.set_xattr(root, n("f"), n("user.probe"), b"") == Err(Errno::OPNOTSUPP) {
        eprintln!("skipped: no user xattrs on this file system");
        return;
    }
    storage.remove_xattr(root, n("f"), n("user.probe")).unwrap();
    for name in ["f", "."] {
        let large = vec![7; 3000]; // more than the first buffer, and all that ext4 takes
        storage.set_xattr(root, n(name), n("user.a"), b"value").unwrap();
        storage.set_xattr(root, n(name), n("user.large"), &large).unwrap();
        storage.set_xattr(root, n(name), n("user.empty"), b"").unwrap();
        let mut keys = storage.list_xattrs(root, n(name)).unwrap();
        keys.retain(|key| key.as_bytes().starts_with(b"user."));
        keys.sort();
        assert_eq!(keys, ["user.a", "user.empty", "user.large"]);
        assert_eq!(storage.get_xattr(root, n(name), n("user.a")).unwrap(), b"value");
        assert_eq!(storage.get_xattr(root, n(name), n("user.large")).unwrap(), large);
        assert_eq!(storage.get_xattr(root, n(name), n("user.empty")).unwrap(), b"");
        storage.remove_xattr(root, n(name), n("user.a")).unwrap();
        assert_eq!(
            storage.get_xattr(root, n(name), n("user.a")).unwrap_err(),
            Errno::NODATA
        );
        assert_eq!(
            storage.remove_xattr(root, n(name), n("user.a")).unwrap_err(),
            Errno::NODATA
        );
    }
    let file = storage.open(root, n("f"), Access::ReadWrite).unwrap();
    storage.remove_xattr_handle(&file, n("user.empty")).unwrap();
    assert_eq!(
        storage.get_xattr(root, n("f"), n("user.empty")).unwrap_err(),
        Errno::NODATA
    );
}

#[test]
fn many_xattrs_are_listed_whole() {
    let fixture = Fixture::new();
    fixture.file("f", b"");
    let keys: Vec<OsString> = (0..60).map(|index| format!("user.{index:0>40}").into()).collect();
    for key in &keys {
        match RealStorage.set_xattr(&fixture.root, n("f"), key, b"") {
            Err(Errno::OPNOTSUPP | Errno::NOSPC) => return eprintln!("skipped: no room for xattrs here"),
            result => result.unwrap(),
        }
    }
    let mut found = RealStorage.list_xattrs(&fixture.root, n("f")).unwrap();
    found.retain(|key| key.as_bytes().starts_with(b"user."));
    found.sort();
    assert_eq!(found, keys);
}

#[test]
fn space_is_reserved_within_a_file_and_behind_its_end() {
    const MIB: u64 = 1 << 20;
    let fixture = Fixture::new();
    let file = fixture.file("f", b"");
    for (keep_size, size, length) in [(true, 0, MIB), (false, 2 * MIB, 2 * MIB)] {
        match RealStorage.allocate(&file, 0, length, keep_size) {
            Err(Errno::OPNOTSUPP) => return eprintln!("skipped: nothing is reserved on this file system"),
            result => result.unwrap(),
        }
        let stat = RealStorage.stat_handle(&file).unwrap();
        assert_eq!(stat.size, size);
        assert!(stat.blocks * 512 >= length, "{} blocks", stat.blocks);
    }
    let mut byte = [9];
    RealStorage.read(&file, &mut byte, MIB).unwrap();
    assert_eq!(byte, [0]);
}

#[test]
fn holes_are_punched_and_found() {
    const MIB: u64 = 1 << 20;
    let fixture = Fixture::new();
    let file = fixture.file("f", b"");
    RealStorage.truncate(&file, 4 * MIB).unwrap();
    assert_eq!(RealStorage.next_data(&file, 0).unwrap(), None, "all hole");
    RealStorage.write(&file, &[IoSlice::new(&vec![1; 3 << 20])], 0).unwrap();
    match RealStorage.punch(&file, MIB, MIB) {
        Err(Errno::OPNOTSUPP) => return eprintln!("skipped: no holes on this file system"),
        result => result.unwrap(),
    }
    assert_eq!(RealStorage.next_data(&file, 0).unwrap(), Some((0, MIB)));
    assert_eq!(RealStorage.next_data(&file, MIB + 5).unwrap(), Some((2 * MIB, 3 * MIB)));
    assert_eq!(
        RealStorage.next_data(&file, 2 * MIB + 5).unwrap(),
        Some((2 * MIB + 5, 3 * MIB))
    );
    assert_eq!(RealStorage.next_data(&file, 3 * MIB).unwrap(), None);
    assert_eq!(RealStorage.next_data(&file, 5 * MIB).unwrap(), None, "past the end");
    assert_eq!(
        RealStorage.stat_handle(&file).unwrap().size,
        4 * MIB,
        "punching keeps the size"
    );
    let mut byte = [9];
    RealStorage.read(&file, &mut byte, MIB + 1).unwrap();
    assert_eq!(byte, [0]);
}

#[test]
fn directories_and_files_can_be_synced_and_asked_for_space() {
    let fixture = Fixture::new();
    let file = fixture.file("f", b"x");
    RealStorage.sync(&file).unwrap();
    RealStorage.sync(&fixture.root).unwrap();
    RealStorage.sync_all(&fixture.root).unwrap();
    for handle in [&file, &fixture.root] {
        let (space, found) = (
            RealStorage.space(handle).unwrap(),
            rustix::fs::statvfs(fixture.dir.path()).unwrap(),
        );
        assert_eq!((space.fragment_bytes, space.blocks), (found.f_frsize, found.f_blocks));
        assert_eq!(
            (space.files, u64::from(space.name_max)),
            (found.f_files, found.f_namemax)
        );
    }
}

#[test]
fn descriptors_do_not_leak_into_commands() {
    let fixture = Fixture::new();
    let file = fixture.file("f", b"");
    let inner = RealStorage.open_dir(&fixture.root, n(".")).unwrap();
    for handle in [&fixture.root, &file, &inner] {
        let flags = rustix::io::fcntl_getfd(handle.as_fd()).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }
}

/// A handle that is closed by hand hears of it once, and is left open while somebody else holds it.
#[test]
fn close_closes_the_last_clone_only() {
    let directory = tempfile::tempdir().unwrap();
    let root = RealStorage::open_root(directory.path()).unwrap();
    let file = RealStorage.create(&root, OsStr::new("f"), 0o644).unwrap();
    let clone = file.clone();
    RealStorage.close(&file).unwrap();
    RealStorage.write(&clone, &[IoSlice::new(b"still open")], 0).unwrap();
    drop(file);
    RealStorage.close(&clone).unwrap();
    let used = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| RealStorage.truncate(&clone, 0)));
    assert!(used.is_err(), "a closed handle must not be used again");
}

#[test]
fn a_range_is_copied_as_far_as_the_source_goes() {
    let fixture = Fixture::new();
    let (source, copy) = (fixture.file("f", b"0123456789"), fixture.file("g", b"ab"));
    match RealStorage.copy_range(&source, 2, &copy, 1, 5) {
        Err(Errno::OPNOTSUPP) => return eprintln!("skipped: this file system copies nothing"),
        copied => assert_eq!(copied, Ok(5)),
    }
    assert_eq!(fs::read(fixture.dir.path().join("g")).unwrap(), b"a23456");
    assert_eq!(RealStorage.copy_range(&source, 8, &copy, 0, 100), Ok(2), "its end");
    assert_eq!(RealStorage.copy_range(&source, 10, &copy, 0, 100), Ok(0), "behind it");
    assert_eq!(fs::read(fixture.dir.path().join("g")).unwrap(), b"893456");
}
