//! The storage behind the SFTP server of a real sshd: what a caller of [`Storage`] may rely on, and which errno it hears. Beside those of the real
//! storage in `elbow-file/tests/real_storage.rs`.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests look at the storage themselves"
)]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{IoSlice, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use elbow_file::{Access, Errno, FileType, Handle, RenameMode, Storage, Time};
use elbow_remote::{ConnectError, Login, SftpStorage, Ssh, SshTarget};
use elbow_testkit::program::write_program;
use elbow_testkit::sshbed::SshTestbed;
use tempfile::TempDir;

/// A directory that is reached by SFTP.
struct Fixture {
    storage: SftpStorage,
    root: Handle,
    ssh: Option<Ssh>,
    // Ended before the directory goes.
    bed: SshTestbed,
    dir: TempDir,
}

impl Fixture {
    fn new() -> Option<Self> {
        Self::with("")
    }

    /// A server with these lines of sshd_config(5) besides.
    fn with(settings: &str) -> Option<Self> {
        if let Some(missing) = SshTestbed::missing() {
            assert!(std::env::var_os("CI").is_none(), "{missing}");
            eprintln!("skipped: {missing}");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        for name in ["ssh", "far"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let mut bed = SshTestbed::start(&dir.path().join("ssh"), Duration::ZERO).unwrap();
        if !settings.is_empty() {
            bed.restart_with(settings).unwrap();
        }
        let (storage, ssh) = connect(&bed, dir.path(), &dir.path().join("far")).unwrap();
        Some(Self {
            root: storage.root(),
            storage,
            ssh: Some(ssh),
            bed,
            dir,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("far").join(name)
    }

    fn file(&self, name: &str, content: &[u8]) -> Handle {
        let file = self.storage.create(&self.root, n(name), 0o644).unwrap();
        self.storage.write(&file, &[IoSlice::new(content)], 0).unwrap();
        file
    }
}

fn connect(bed: &SshTestbed, dir: &Path, root: &Path) -> Result<(SftpStorage, Ssh), ConnectError> {
    let access = bed.access();
    let quoted: Vec<String> = access.options.iter().map(|option| format!("'{option}'")).collect();
    let program = dir.join("via");
    write_program(&program, &format!("#!/bin/sh\nexec ssh {} \"$@\"\n", quoted.join(" "))).unwrap();
    let target: SshTarget = format!("ssh://{}", access.host).parse().unwrap();
    let login = Login {
        ssh: program.into(),
        ..Login::default()
    };
    Ssh::connect_sftp(&target, root, &login)
}

fn n(name: &str) -> &OsStr {
    OsStr::new(name)
}

fn at(seconds: i64) -> Option<Time> {
    Some(Time {
        seconds,
        nanoseconds: 5,
    })
}

#[test]
fn a_root_has_to_be_a_directory() {
    let Some(fixture) = Fixture::new() else { return };
    fixture.file("f", b"");
    for (name, said) in [("f", "Not a directory"), ("none", "No such file")] {
        let error = connect(&fixture.bed, fixture.dir.path(), &fixture.path(name)).unwrap_err();
        assert!(
            matches!(&error, ConnectError::Refused { why, .. } if why.contains(said)),
            "{error}"
        );
    }
    symlink("far", fixture.dir.path().join("link")).unwrap();
    let (storage, _ssh) = connect(&fixture.bed, fixture.dir.path(), &fixture.dir.path().join("link")).unwrap();
    assert!(
        storage.stat(&storage.root(), n("f")).is_ok(),
        "a root may be named by a link"
    );
}

#[test]
fn created_files_are_new_and_hold_what_was_written() {
    let Some(fixture) = Fixture::new() else { return };
    let (storage, root) = (&fixture.storage, &fixture.root);
    let file = storage.create(root, n("f"), 0o640).unwrap();
    let pieces: Vec<Vec<u8>> = (0..40_u8).map(|byte| vec![byte; 100_003]).collect();
    let slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
    storage.write(&file, &slices, 3).unwrap();
    storage.write(&file, &[], 0).unwrap();
    let all = [&[0; 3][..], &pieces.concat()].concat();
    assert!(fs::read(fixture.path("f")).unwrap() == all);
    let mut read = vec![7; all.len() + 1000];
    assert_eq!(storage.read(&file, &mut read, 0), Ok(all.len()));
    assert!(read[..all.len()] == all);
    assert_eq!(storage.read(&file, &mut read[..10], all.len() as u64), Ok(0));
    assert_eq!(storage.read(&file, &mut read[..10], all.len() as u64 - 4), Ok(4));
    assert_eq!(storage.stat_handle(&file).unwrap().size, all.len() as u64);
    storage.truncate(&file, 5).unwrap();
    storage.truncate_named(root, n("f"), 9).unwrap();
    assert_eq!(fs::read(fixture.path("f")).unwrap().len(), 9);
    assert_eq!(storage.next_data(&file, 2), Ok(Some((2, 9))));
    assert_eq!(storage.next_data(&file, 9), Ok(None));
    assert_eq!(storage.truncate(&file, i64::MAX as u64), Err(Errno::FBIG));
    storage.sync(&file).unwrap();
    storage.close(&file).unwrap();
    assert_eq!(storage.create(root, n("f"), 0o600).unwrap_err(), Errno::EXIST);
    assert_eq!(storage.mkdir(root, n("f"), 0o700), Err(Errno::EXIST));
    assert_eq!(storage.symlink(n("t"), root, n("f")), Err(Errno::EXIST));
    let long = "x".repeat(256);
    assert_eq!(storage.create(root, n(&long), 0o600).unwrap_err(), Errno::NAMETOOLONG);
    let unnamed = storage.create_unnamed(root, n("gone"), 0o600).unwrap();
    storage.write(&unnamed, &[IoSlice::new(b"still here")], 0).unwrap();
    assert_eq!(storage.read(&unnamed, &mut read[..10], 0), Ok(10));
    assert!(!fixture.path("gone").exists());
}

/// A server that opens a pipe waits for its other end, and serves nobody meanwhile.
#[test]
fn only_regular_files_are_opened_and_nothing_is_waited_for() {
    let Some(fixture) = Fixture::new() else { return };
    let (storage, root) = (&fixture.storage, &fixture.root);
    fs::create_dir(fixture.path("d")).unwrap();
    fs::write(fixture.dir.path().join("secret"), "secret").unwrap();
    symlink("../secret", fixture.path("link")).unwrap();
    let made = Command::new("mkfifo").arg(fixture.path("pipe")).status().unwrap();
    assert!(made.success());
    for access in [Access::Read, Access::ReadWrite, Access::Write, Access::Append] {
        let open = |name| storage.open(root, n(name), access).unwrap_err();
        assert_eq!(
            ["d", "link", "pipe", "none"].map(open),
            [Errno::ISDIR, Errno::LOOP, Errno::SPIPE, Errno::NOENT]
        );
    }
    assert_eq!(storage.truncate_named(root, n("link"), 0), Err(Errno::LOOP));
    let open_dir = |name| storage.open_dir(root, n(name)).unwrap_err();
    assert_eq!(
        ["link", "pipe", "none"].map(open_dir),
        [Errno::NOTDIR, Errno::NOTDIR, Errno::NOENT]
    );
    fixture.file("f", b"0123456789");
    let read_only = storage.open(root, n("f"), Access::Read).unwrap();
    assert!(storage.write(&read_only, &[IoSlice::new(b"x")], 0).is_err());
    let append = storage.open(root, n("f"), Access::Append).unwrap();
    storage.write(&append, &[IoSlice::new(b"end")], 0).unwrap();
    assert_eq!(fs::read(fixture.path("f")).unwrap(), b"0123456789end");
}

#[test]
fn names_that_would_walk_are_refused() {
    let Some(fixture) = Fixture::new() else { return };
    let (storage, root) = (&fixture.storage, &fixture.root);
    fixture.file("f", b"");
    for bad in ["", "..", "a/b", "../ssh/sshd_config", "a\0b"] {
        let bad = n(bad);
        assert_eq!(storage.open_dir(root, bad).unwrap_err(), Errno::INVAL, "{bad:?}");
        assert_eq!(storage.create(root, bad, 0o600).unwrap_err(), Errno::INVAL);
        assert_eq!(storage.open(root, bad, Access::Read).unwrap_err(), Errno::INVAL);
        assert_eq!(storage.stat(root, bad), Err(Errno::INVAL));
        assert_eq!(storage.unlink(root, bad), Err(Errno::INVAL));
        assert_eq!(
            storage.rename(root, n("f"), root, bad, RenameMode::Replace),
            Err(Errno::INVAL)
        );
        assert_eq!(storage.link(root, n("f"), root, bad), Err(Errno::INVAL));
        assert_eq!(storage.chmod(root, bad, 0o600), Err(Errno::INVAL));
    }
    assert!(storage.stat(root, n("f")).is_ok(), "the session goes on");
}

/// Where a link points to is nobody's business: not that of a mode, an owner or a time either.
#[test]
fn symbolic_links_are_never_followed() {
    let Some(fixture) = Fixture::new() else { return };
    let (storage, root) = (&fixture.storage, &fixture.root);
    let secret = fixture.dir.path().join("secret");
    fs::write(&secret, "secret").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let before = secret.metadata().unwrap();
    storage.symlink(n("../secret"), root, n("link")).unwrap();
    assert_eq!(storage.readlink(root, n("link")).unwrap(), "../secret");
    assert_eq!(storage.stat(root, n("link")).unwrap().kind, FileType::Symlink);
    assert_eq!(storage.chmod(root, n("link"), 0o777), Err(Errno::OPNOTSUPP));
    storage.set_times(root, n("link"), at(1000), at(2000)).unwrap();
    let link = fixture.path("link").symlink_metadata().unwrap();
    assert_eq!((link.atime(), link.mtime()), (1000, 2000));
    let after = secret.metadata().unwrap();
    assert_eq!((after.mode(), after.mtime_nsec()), (before.mode(), before.mtime_nsec()));
    assert_eq!(storage.readlink(root, n("none")), Err(Errno::NOENT));
    storage.unlink(root, n("link")).unwrap();
    assert!(secret.exists());
    let target = OsStr::from_bytes(b"to \xff\x01");
    storage.symlink(target, root, n("odd")).unwrap();
    assert_eq!(storage.readlink(root, n("odd")).unwrap(), target);
}

#[test]
fn links_and_renames() {
    let Some(fixture) = Fixture::new() else { return };
    let (storage, root) = (&fixture.storage, &fixture.root);
    fixture.file("a", b"a");
    storage.link(root, n("a"), root, n("b")).unwrap();
    assert_eq!(fixture.path("b").metadata().unwrap().nlink(), 2);
    assert_eq!(storage.link(root, n("a"), root, n("b")), Err(Errno::EXIST));
    assert_eq!(storage.link(root, n("none"), root, n("c")), Err(Errno::NOENT));
    let rename = |from, to, mode| storage.rename(root, n(from), root, n(to), mode);
    let (replace, no_replace) = (RenameMode::Replace, RenameMode::NoReplace);
    fixture.file("other", b"other");
    assert_eq!(rename("a", "other", no_replace), Err(Errno::EXIST));
    assert_eq!(rename("none", "other", no_replace), Err(Errno::NOENT));
    assert_eq!(rename("none", "x", no_replace), Err(Errno::NOENT));
    rename("a", "c", no_replace).unwrap();
    assert!(fixture.path("c").exists() && !fixture.path("a").exists());
    symlink("nowhere", fixture.path("dangling")).unwrap();
    for name in ["d", "full"] {
        storage.mkdir(root, n(name), 0o755).unwrap();
    }
    assert_eq!(
        rename("d", "dangling", no_replace),
        Err(Errno::EXIST),
        "a link is a name"
    );
    assert_eq!(rename("c", "dangling", no_replace), Err(Errno::EXIST));
    rename("c", "other", replace).unwrap();
    assert_eq!(fs::read(fixture.path("other")).unwrap(), b"a");
    fs::write(fixture.path("full/x"), "").unwrap();
    assert_eq!(rename("d", "full", replace), Err(Errno::NOTEMPTY));
    assert_eq!(rename("d", "full", no_replace), Err(Errno::EXIST));
    assert_eq!(rename("other", "d", replace), Err(Errno::ISDIR));
    assert_eq!(rename("d", "other", replace), Err(Errno::NOTDIR));
    assert_eq!(rename("none", "other", replace), Err(Errno::NOENT));
    let d = storage.open_dir(root, n("d")).unwrap();
    assert_eq!(storage.rename(root, n("d"), &d, n("d"), replace), Err(Errno::INVAL));
    assert_eq!(rename("d", "full", RenameMode::Exchange), Err(Errno::INVAL));
    assert_eq!(rename("d", "none", RenameMode::Exchange), Err(Errno::NOENT));
    storage.rename(root, n("full"), &d, n("moved"), no_replace).unwrap();
    assert!(fixture.path("d/moved/x").exists());
}

/// SFTP knows paths, and a handle is to be good for as long as it is held.
#[test]
fn handles_below_a_directory_survive_its_rename() {
    let Some(fixture) = Fixture::new() else { return };
    let (storage, root) = (&fixture.storage, &fixture.root);
    storage.mkdir(root, n("a"), 0o755).unwrap();
    let a = storage.open_dir(root, n("a")).unwrap();
    storage.mkdir(&a, n("b"), 0o755).unwrap();
    let b = storage.open_dir(&a, n("b")).unwrap();
    let file = storage.create(&b, n("f"), 0o600).unwrap();
    storage.rename(root, n("a"), root, n("z"), RenameMode::Replace).unwrap();
    // Another one with the old name is another one.
    fs::create_dir_all(fixture.path("a/b")).unwrap();
    storage.write(&file, &[IoSlice::new(b"held")], 0).unwrap();
    assert_eq!(fs::read(fixture.path("z/b/f")).unwrap(), b"held");
    storage.create(&b, n("g"), 0o600).unwrap();
    assert!(fixture.path("z/b/g").exists());
    let names = storage.list(&b).unwrap();
    assert_eq!(names.len(), 2);
    assert_eq!(
        storage.stat_handle(&b).unwrap().ino,
        storage.stat(&a, n("b")).unwrap().ino
    );
    for name in ["f", "g"] {
        storage.unlink(&b, n(name)).unwrap();
    }
    storage.rmdir(&a, n("b")).unwrap();
    assert_eq!(storage.stat_handle(&b), Err(Errno::NOENT));
    assert_eq!(storage.create(&b, n("h"), 0o600).unwrap_err(), Errno::NOENT);
}

/// Renames of directories while others work below them: a path that was put together is still right when it is used.
#[test]
fn directories_are_renamed_while_others_work_below_them() {
    let Some(fixture) = Fixture::new() else { return };
    let (storage, root) = (&fixture.storage, &fixture.root);
    storage.mkdir(root, n("0"), 0o755).unwrap();
    let dir = storage.open_dir(root, n("0")).unwrap();
    storage.mkdir(&dir, n("below"), 0o755).unwrap();
    let below = storage.open_dir(&dir, n("below")).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let below = &below;
            scope.spawn(move || {
                for number in 0..50 {
                    let name = format!("{thread}-{number}");
                    let file = storage.create(below, n(&name), 0o600).unwrap();
                    storage.write(&file, &[IoSlice::new(name.as_bytes())], 0).unwrap();
                    storage.close(&file).unwrap();
                    assert_eq!(storage.stat(below, n(&name)).unwrap().size, name.len() as u64);
                }
            });
        }
        for round in 0..30 {
            let (from, to) = (round.to_string(), (round + 1).to_string());
            storage
                .rename(root, n(&from), root, n(&to), RenameMode::Replace)
                .unwrap();
        }
    });
    assert_eq!(fs::read_dir(fixture.path("30/below")).unwrap().count(), 200);
}

#[test]
fn what_cannot_be_removed_says_why() {
    let Some(fixture) = Fixture::new() else { return };
    let (storage, root) = (&fixture.storage, &fixture.root);
    fixture.file("f", b"");
    fs::create_dir_all(fixture.path("full/d")).unwrap();
    let rmdir = |name| storage.rmdir(root, n(name));
    assert_eq!(
        ["full", "f", "none"].map(rmdir),
        [Errno::NOTEMPTY, Errno::NOTDIR, Errno::NOENT].map(Err)
    );
    let unlink = |name| storage.unlink(root, n(name));
    assert_eq!(["full", "none"].map(unlink), [Errno::ISDIR, Errno::NOENT].map(Err));
    let full = storage.open_dir(root, n("full")).unwrap();
    storage.rmdir(&full, n("d")).unwrap();
    rmdir("full").unwrap();
    unlink("f").unwrap();
    assert_eq!(storage.list(&full).unwrap_err(), Errno::NOENT);
}

#[test]
fn attributes_can_be_set_by_name_and_by_handle() {
    let Some(fixture) = Fixture::new() else { return };
    let (storage, root) = (&fixture.storage, &fixture.root);
    let file = fixture.file("f", b"123");
    let metadata = || fixture.path("f").metadata().unwrap();
    storage.chmod(root, n("f"), 0o4751).unwrap();
    assert_eq!(metadata().mode() & 0o7777, 0o4751);
    storage.chmod_handle(&file, 0o600).unwrap();
    assert_eq!(storage.stat(root, n("f")).unwrap().mode, 0o600);
    storage.set_times(root, n("f"), at(1_000_000), at(2_000_000)).unwrap();
    storage.set_times(root, n("f"), None, at(3_000_000)).unwrap();
    assert_eq!((metadata().atime(), metadata().mtime()), (1_000_000, 3_000_000));
    storage.set_times_handle(&file, at(4), None).unwrap();
    let stat = storage.stat_handle(&file).unwrap();
    assert_eq!(
        (stat.atime.seconds, stat.mtime.seconds, stat.mtime.nanoseconds),
        (4, 3_000_000, 0)
    );
    assert_eq!(stat.ctime, stat.mtime, "there is no other");
    // Times that the protocol does not have become the nearest.
    storage.set_times(root, n("f"), at(-5), at(1 << 40)).unwrap();
    assert_eq!((metadata().atime(), metadata().mtime()), (0, i64::from(u32::MAX)));
    let bad = Some(Time {
        seconds: 0,
        nanoseconds: 1_000_000_000,
    });
    assert_eq!(storage.set_times(root, n("f"), bad, None), Err(Errno::INVAL));
    storage.touch(root, n("f")).unwrap();
    assert!(metadata().modified().unwrap().elapsed().unwrap_or_default() < Duration::from_secs(60));
    let (uid, gid) = (metadata().uid(), metadata().gid());
    storage.chown(root, n("f"), Some(uid), None).unwrap();
    storage.chown_handle(&file, None, Some(gid)).unwrap();
    storage.chown(root, n("f"), Some(u32::MAX), None).unwrap();
    assert_eq!((metadata().uid(), metadata().gid()), (uid, gid));
    // The root itself is named by a dot.
    storage.set_times(root, n("."), at(7), at(8)).unwrap();
    assert_eq!(fixture.path(".").metadata().unwrap().mtime(), 8);
    assert_eq!(
        storage.stat(root, n(".")).unwrap().ino,
        storage.stat_handle(root).unwrap().ino
    );
    for missing in [
        storage.chmod(root, n("none"), 0o600),
        storage.set_times(root, n("none"), at(1), at(1)),
    ] {
        assert_eq!(missing, Err(Errno::NOENT));
    }
}

#[test]
fn a_list_has_all_names_with_their_kinds() {
    let Some(fixture) = Fixture::new() else { return };
    let (storage, root) = (&fixture.storage, &fixture.root);
    assert_eq!(storage.list(root).unwrap(), []);
    let mut names = BTreeMap::new();
    for number in 0..1000 {
        let name = [format!("{number}-").as_bytes(), b"\xff\n\\"].concat();
        fs::write(fixture.path("").join(OsStr::from_bytes(&name)), "").unwrap();
        names.insert(OsStr::from_bytes(&name).to_owned(), Some(FileType::File));
    }
    fs::create_dir(fixture.path("d")).unwrap();
    symlink("d", fixture.path("l")).unwrap();
    names.insert("d".into(), Some(FileType::Dir));
    names.insert("l".into(), Some(FileType::Symlink));
    let listed = storage.list(root).unwrap();
    let inos: Vec<u64> = listed.iter().map(|entry| entry.ino).collect();
    let found: BTreeMap<_, _> = listed.into_iter().map(|entry| (entry.name, entry.kind)).collect();
    assert_eq!(found, names);
    assert!(inos.iter().all(|ino| *ino != 0));
    let file = storage.open_dir(root, n("d")).unwrap();
    fs::remove_dir(fixture.path("d")).unwrap();
    fs::write(fixture.path("d"), "").unwrap();
    assert_eq!(storage.list(&file).unwrap_err(), Errno::NOTDIR);
}

/// Attributes come with a listing, and are those of the object until something is changed.
#[test]
fn attributes_from_a_listing_are_not_older_than_a_change() {
    let Some(fixture) = Fixture::new() else { return };
    let (storage, root) = (&fixture.storage, &fixture.root);
    let file = fixture.file("f", b"");
    let size = || storage.stat(root, n("f")).map(|stat| stat.size);
    let listed = || storage.list(root).map(|names| names.len()).unwrap();
    assert_eq!((listed(), size()), (1, Ok(0)));
    listed();
    storage.write(&file, &[IoSlice::new(b"12345")], 0).unwrap();
    assert_eq!(size(), Ok(5));
    listed();
    storage.truncate_named(root, n("f"), 2).unwrap();
    assert_eq!(size(), Ok(2));
    listed();
    storage.chmod(root, n("f"), 0o600).unwrap();
    assert_eq!(storage.stat(root, n("f")).unwrap().mode, 0o600);
    listed();
    fs::write(fixture.path("f"), "of others").unwrap();
    assert_eq!(
        storage.stat_uncached(root, n("f")).unwrap().size,
        9,
        "who has to know asks the server"
    );
    listed();
    storage.unlink(root, n("f")).unwrap();
    assert_eq!(size(), Err(Errno::NOENT));
}

/// Each with the errno of a file system without it.
#[test]
fn what_the_protocol_does_not_have_is_refused() {
    let Some(fixture) = Fixture::new() else { return };
    let (storage, root) = (&fixture.storage, &fixture.root);
    let file = fixture.file("f", b"12345678");
    let (f, key) = (n("f"), n("user.a"));
    let refused = Errno::OPNOTSUPP;
    assert_eq!(storage.list_xattrs(root, f), Err(refused));
    assert_eq!(storage.get_xattr(root, f, key), Err(refused));
    assert_eq!(storage.set_xattr(root, f, key, b"1"), Err(refused));
    assert_eq!(storage.remove_xattr_handle(&file, key), Err(refused));
    assert_eq!(storage.punch(&file, 0, 4), Err(refused));
    assert_eq!(storage.allocate(&file, 0, 100, true), Err(refused));
    assert_eq!(storage.try_lock(&file), Err(refused));
    for kind in [
        FileType::Fifo,
        FileType::Socket,
        FileType::CharDevice,
        FileType::BlockDevice,
    ] {
        assert_eq!(storage.mknod(root, n("node"), kind, 0o600, 0), Err(Errno::PERM));
    }
    storage.mknod(root, n("node"), FileType::File, 0o640, 0).unwrap();
    assert!(fixture.path("node").metadata().unwrap().is_file());
    let space = storage.space(root).unwrap();
    assert!(space.blocks >= space.blocks_free && space.blocks > 0 && space.name_max >= 255);
    storage.sync(root).unwrap();
    storage.sync_all(root).unwrap();
    let traits = storage.file_system_traits(root).unwrap();
    assert!(!traits.own_ids && !traits.shares_locks && !traits.keeps_inos);
}

#[test]
fn a_server_takes_its_umask_from_modes_and_an_account_in_a_changed_root_sets_them() {
    let Some(fixture) = Fixture::with("ForceCommand internal-sftp -u 077\n") else {
        return;
    };
    let (storage, root) = (&fixture.storage, &fixture.root);
    storage.create(root, n("f"), 0o666).unwrap();
    storage.mkdir(root, n("d"), 0o777).unwrap();
    let mode = |name| storage.stat(root, n(name)).unwrap().mode;
    assert_eq!((mode("f"), mode("d")), (0o600, 0o700));
    storage.chmod(root, n("f"), 0o666).unwrap();
    assert_eq!(mode("f"), 0o666);
}

#[test]
fn a_close_closes_once_and_a_dropped_handle_too() {
    let Some(fixture) = Fixture::new() else { return };
    let (storage, root) = (&fixture.storage, &fixture.root);
    // More than a server has room for.
    for number in 0..3000 {
        let file = storage.create(root, n("f"), 0o600).unwrap();
        if number % 2 == 0 {
            storage.close(&file).unwrap();
            storage.close(&file).unwrap();
            assert!(storage.write(&file, &[IoSlice::new(b"x")], 0).is_err());
        }
        drop(file);
        storage.unlink(root, n("f")).unwrap();
    }
}

#[test]
fn when_the_connection_has_ended_everybody_hears_it() {
    let Some(mut fixture) = Fixture::new() else { return };
    let file = fixture.file("f", b"1");
    let ssh = fixture.ssh.take();
    std::thread::scope(|scope| {
        let (storage, root) = (&fixture.storage, &fixture.root);
        let waits = scope.spawn(move || {
            loop {
                if let Err(errno) = storage.stat_uncached(root, n("f")) {
                    return errno;
                }
            }
        });
        std::thread::sleep(Duration::from_millis(50));
        drop(ssh);
        assert_eq!(waits.join().unwrap(), Errno::NOTCONN);
    });
    let (storage, root) = (&fixture.storage, &fixture.root);
    assert_eq!(storage.write(&file, &[IoSlice::new(b"x")], 0), Err(Errno::NOTCONN));
    assert_eq!(storage.mkdir(root, n("d"), 0o700), Err(Errno::NOTCONN));
    assert_eq!(storage.close(&file), Err(Errno::NOTCONN));
    assert_eq!(storage.list(root).unwrap_err(), Errno::NOTCONN);
}

/// A server that answers each request by what this gives, after the words that begin a session.
fn answered_by(answer: impl Fn(u8, u32) -> Vec<u8> + Send + 'static) -> SftpStorage {
    const REALPATH: u8 = 16;
    const LSTAT: u8 = 7;
    let (near, mut far) = UnixStream::pair().unwrap();
    std::thread::spawn(move || {
        let mut looks = 0;
        loop {
            let mut length = [0; 4];
            if far.read_exact(&mut length).is_err() {
                return;
            }
            let mut packet = vec![0; u32::from_be_bytes(length) as usize];
            far.read_exact(&mut packet).unwrap();
            let number = u32::from_be_bytes(packet[1..5].try_into().unwrap());
            let reply = match packet[0] {
                1 => reply(2, 3, &[]),
                REALPATH => reply(104, number, &names(&["/r"])),
                LSTAT if looks < 2 => {
                    looks += 1;
                    reply(105, number, &[0, 0, 0, 4, 0, 0, 0o100, 0])
                }
                kind => answer(kind, number),
            };
            if far.write_all(&reply).is_err() {
                return;
            }
        }
    });
    SftpStorage::connect("here", Path::new("r"), near.try_clone().unwrap(), near).unwrap()
}

fn reply(kind: u8, number: u32, fields: &[u8]) -> Vec<u8> {
    let length = fields.len() as u32 + 5;
    [&length.to_be_bytes()[..], &[kind], &number.to_be_bytes(), fields].concat()
}

fn names(names: &[&str]) -> Vec<u8> {
    let mut fields = (names.len() as u32).to_be_bytes().to_vec();
    for name in names {
        fields.extend((name.len() as u32).to_be_bytes());
        fields.extend(name.as_bytes());
        fields.extend([0; 8]);
    }
    fields
}

#[test]
fn what_a_server_cannot_have_said_is_not_believed() {
    const OPENDIR: u8 = 11;
    const READDIR: u8 = 12;
    let listed = |told: &'static [&'static str], ends: bool| {
        let storage = answered_by(move |kind, number| match kind {
            OPENDIR => reply(102, number, &[0, 0, 0, 1, b'h']),
            READDIR if ends && (number > 6 || told.is_empty()) => reply(101, number, &[0, 0, 0, 1]),
            READDIR => reply(104, number, &names(told)),
            _ => reply(101, number, &[0, 0, 0, 0]),
        });
        storage.list(&storage.root()).map(|names| names.len())
    };
    assert_eq!(
        listed(&[".", "..", "name"], true),
        Ok(2),
        "twice the same is the server's to answer for"
    );
    for bad in [&["a/b"][..], &["../../etc/passwd"], &["a\0b"], &[""]] {
        assert_eq!(listed(bad, true), Err(Errno::PROTO), "{bad:?}");
    }
    assert_eq!(listed(&[], false), Err(Errno::PROTO), "nothing, for ever");
    let storage = answered_by(|_, number| reply(103, number, &[0, 0, 0, 200, 1]));
    assert_eq!(
        storage.stat(&storage.root(), n("f")),
        Err(Errno::NOTCONN),
        "it was no message"
    );
    let storage = answered_by(|_, number| reply(102, number, &[0, 0, 0, 1, b'h']));
    assert_eq!(
        storage.stat(&storage.root(), n("f")),
        Err(Errno::PROTO),
        "the answer to another question"
    );
    assert_eq!(storage.readlink(&storage.root(), n("f")), Err(Errno::PROTO));
}

/// "Failure" of a full disk on which somebody has made room before that was asked for: it passed for an error of the disk, for which all results of a job
/// are thrown away.
#[test]
fn what_a_full_disk_refused_is_written_when_there_is_room() {
    const OPEN: u8 = 3;
    const WRITE: u8 = 6;
    const STATVFS: u8 = 200;
    const FAILURE: [u8; 4] = [0, 0, 0, 4];
    let written = |refused: usize, blocks: u64| {
        let writes = Arc::new(AtomicUsize::new(0));
        let counted = writes.clone();
        let storage = answered_by(move |kind, number| match kind {
            OPEN => reply(102, number, &[0, 0, 0, 1, b'h']),
            WRITE if counted.fetch_add(1, Ordering::SeqCst) < refused => reply(101, number, &FAILURE),
            STATVFS => {
                let fields = [4096, 4096, 100, blocks, blocks, 100, 100, 100, 7, 0, 255];
                reply(201, number, &fields.map(u64::to_be_bytes).concat())
            }
            _ => reply(101, number, &[0, 0, 0, 0]),
        });
        let file = storage.create(&storage.root(), n("f"), 0o600).unwrap();
        let ended = storage.write(&file, &[IoSlice::new(b"one"), IoSlice::new(b"two")], 5);
        (ended, writes.load(Ordering::SeqCst))
    };
    // Of two requests, which are sent at once, the first is refused, and then both go once more.
    assert_eq!(written(1, 50), (Ok(()), 4));
    assert_eq!(written(usize::MAX, 50), (Err(Errno::IO), 6), "it is not tried for ever");
    assert_eq!(written(usize::MAX, 0), (Err(Errno::NOSPC), 2));
}

/// A link that is put in the place of a file after that was looked at: what was opened is not what was seen.
#[test]
fn what_was_put_in_the_place_of_a_file_is_not_read() {
    let attrs = |size: u8| [0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, size, 0, 0, 0o201, 0o244];
    let link = [0, 0, 0, 4, 0, 0, 0o241, 0o377];
    for (is_replaced, expected) in [(true, Err(Errno::LOOP)), (false, Ok(3))] {
        let looks = std::sync::atomic::AtomicU32::new(0);
        let storage = answered_by(move |kind, number| match kind {
            7 if is_replaced && looks.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 0 => {
                reply(105, number, &link)
            }
            7 => reply(105, number, &attrs(3)),
            3 => reply(102, number, &[0, 0, 0, 1, b'h']),
            // Another size: somebody writes to it, or it is another file.
            8 => reply(105, number, &attrs(9)),
            5 => reply(103, number, &[0, 0, 0, 3, b'a', b'b', b'c']),
            _ => reply(101, number, &[0, 0, 0, 0]),
        });
        let file = storage.open(&storage.root(), n("f"), Access::Read).unwrap();
        assert_eq!(storage.read(&file, &mut [0; 3], 0), expected);
        assert_eq!(storage.read(&file, &mut [0; 3], 0), expected, "it stays so");
    }
}

/// Old servers, and those of others, have the protocol and nothing else.
/// A server copies by itself: what is copied does not come here, whole or in part, and how much there was is told.
#[test]
fn what_is_copied_does_not_go_over_the_line() {
    let Some(fixture) = Fixture::new() else { return };
    let (storage, root) = (&fixture.storage, &fixture.root);
    let content: Vec<u8> = (0..40_000_003_u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    fs::write(fixture.path("source"), &content).unwrap();
    let source = storage.open(root, n("source"), Access::Read).unwrap();
    let before = fixture.bed.passed_bytes();
    let copy = fixture.file("copy", b"0123456789");
    let length = content.len() as u64;
    assert_eq!(storage.copy_range(&source, 7, &copy, 3, length - 7), Ok(length - 7));
    assert_eq!(
        fs::read(fixture.path("copy")).unwrap(),
        [b"012", &content[7..]].concat()
    );
    // Less than was asked for: by more than the server reads at once, and by less, of which it says that it was done.
    for missing in [1_000_000, 10] {
        let part = fixture.file("part", b"");
        assert_eq!(storage.copy_range(&source, length - 5, &part, 0, 5 + missing), Ok(5));
        assert_eq!(fs::read(fixture.path("part")).unwrap(), content[content.len() - 5..]);
        storage.unlink(root, n("part")).unwrap();
    }
    assert_eq!(storage.copy_range(&source, length + 9, &copy, 0, 5), Ok(0));
    assert!(fixture.bed.passed_bytes() - before < 100_000);
    // What the server does not copy is left to the caller, and what was kept of the file before is not given out.
    assert_eq!(storage.copy_range(&copy, 0, &copy, 3, 5), Err(Errno::OPNOTSUPP));
    assert_eq!(storage.copy_range(&source, 0, &source, 3, 5), Err(Errno::OPNOTSUPP));
    let mut read = [0; 5];
    storage.read_ahead(&copy, 0, 100).unwrap();
    assert_eq!(storage.copy_range(&source, 20, &copy, 0, 5), Ok(5));
    assert_eq!(
        (storage.read(&copy, &mut read, 0), &read[..]),
        (Ok(5), &content[20..25])
    );
}

/// Nothing else keeps what comes over SFTP: what was read ahead goes over the line once, and is not older than what was written here.
#[test]
fn what_was_read_ahead_goes_over_the_line_once() {
    let Some(fixture) = Fixture::new() else { return };
    let (storage, root) = (&fixture.storage, &fixture.root);
    let content: Vec<u8> = (0..400_000_u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    fs::write(fixture.path("f"), &content).unwrap();
    let file = storage.open(root, n("f"), Access::ReadWrite).unwrap();
    let passed = |work: &dyn Fn()| {
        let before = fixture.bed.passed_bytes();
        work();
        fixture.bed.passed_bytes() - before
    };
    let read = |expected: &[u8]| {
        let mut read = vec![0; content.len()];
        assert_eq!(storage.read(&file, &mut read, 0), Ok(content.len()));
        assert!(read == expected);
    };
    // It is kept for two seconds. A busy machine may need longer, and the next try is made with nothing kept.
    let in_time = std::iter::repeat_with(|| {
        let began = Instant::now();
        let came = passed(&|| {
            for offset in [0, 100_000, 200_000, 300_000] {
                storage.read_ahead(&file, offset, 100_000).unwrap();
            }
        });
        (came, passed(&|| read(&content)), began.elapsed())
    });
    let (came, again, _) = in_time
        .take(30)
        .find(|(_, _, took)| *took < Duration::from_secs(1))
        .expect("a second");
    assert!(came >= 400_000, "{came} bytes");
    assert!(again < 10_000, "it had come before");
    assert!(passed(&|| read(&content)) >= 400_000, "it was read once");
    let mut changed = content.clone();
    changed[150_000..150_003].copy_from_slice(b"new");
    storage.read_ahead(&file, 0, content.len()).unwrap();
    storage.write(&file, &[IoSlice::new(b"new")], 150_000).unwrap();
    read(&changed);
    storage.read_ahead(&file, 0, content.len()).unwrap();
    storage.truncate(&file, 150_003).unwrap();
    let mut read = vec![0; content.len()];
    assert_eq!(storage.read(&file, &mut read, 0), Ok(150_003));
}

#[test]
fn a_server_without_extensions_does_what_it_can() {
    let storage = answered_by(|kind, number| match kind {
        7 => reply(105, number, &[0, 0, 0, 4, 0, 0, 0o241, 0o377]), // a link
        _ => reply(101, number, &[0, 0, 0, 8]),
    });
    let root = storage.root();
    assert_eq!(storage.link(&root, n("a"), &root, n("b")), Err(Errno::PERM));
    assert_eq!(
        storage.chmod(&root, n("link"), 0o777),
        Err(Errno::OPNOTSUPP),
        "it would be followed"
    );
    assert_eq!(storage.set_times(&root, n("link"), at(1), at(2)), Err(Errno::NOENT));
    assert_eq!(
        storage.rename(&root, n("a"), &root, n("b"), RenameMode::Replace),
        Err(Errno::EXIST)
    );
    assert!(storage.space(&root).unwrap().blocks_available > 0);
    storage.sync(&root).unwrap();
}
