//! `slowfs` against the directory below it: the same results, slow, limited and broken as asked.

#![allow(clippy::disallowed_methods)] // See the library: here is the storage itself.
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use elbow_testkit::slowfs::{Fault, Mounted, Op, SlowFs, SlowOptions};
use elbow_testkit::tree::Tree;
use rustix::fs::{CWD, RenameFlags, renameat_with};

struct Testbed {
    dir: tempfile::TempDir,
    mounted: Mounted,
}

impl Testbed {
    fn new(options: &SlowOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["source", "mount", "native"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let mounted = SlowFs::mount(&dir.path().join("source"), &dir.path().join("mount"), options).unwrap();
        Self { dir, mounted }
    }

    fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    fn mount(&self) -> PathBuf {
        self.dir.path().join("mount")
    }

    fn native(&self) -> PathBuf {
        self.dir.path().join("native")
    }
}

/// Whether something becomes so, within what a busy machine may need.
fn soon(is_so: impl Fn() -> bool) -> bool {
    let started = Instant::now();
    while !is_so() && started.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(10));
    }
    is_so()
}

fn run(script: &str, dir: &Path) -> String {
    let output = Command::new("bash")
        .args(["-c", script])
        .current_dir(dir)
        .output()
        .unwrap();
    let both = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    format!("{}{}exit {:?}", both[0], both[1], output.status.code())
}

/// Runs a script on the mount and natively: it must say the same, and leave the same behind.
fn same_as_native(script: &str) {
    let testbed = Testbed::new(&SlowOptions::default());
    assert_eq!(run(script, &testbed.mount()), run(script, &testbed.native()));
    let expected = Tree::snapshot(&testbed.native()).unwrap().without_times();
    Tree::snapshot(&testbed.source())
        .unwrap()
        .without_times()
        .assert_equals(&expected);
    Tree::snapshot(&testbed.mount())
        .unwrap()
        .without_times()
        .assert_equals(&expected);
}

#[test]
fn names_links_and_kinds_are_as_natively() {
    same_as_native(
        "mkdir -p a/b/c; echo one > a/f; ln a/f a/b/g; ln -s ../f a/b/s; ln a/b/s a/b/s2; mkfifo a/p; echo two >> a/b/g
         mv a/b/c a/d; mv a/f a/b/g; stat -c '%n %h %F' a/f a/b/g a/p a/b/s; readlink a/b/s
         rmdir a; rmdir a/none; mkdir a; ln a/f a/f; cat a/none; ls -R; rm -r a/d; echo x > a/b/s; cat a/f
         mknod n p; touch 'with space' $'new\\nline'; rm -rf a/b",
    );
}

#[test]
fn modes_times_and_attributes_are_as_natively() {
    same_as_native(
        "umask 027; mkdir d; echo x > f; echo y > d/g; chmod 4711 f; chmod 1777 d; stat -c '%n %a %s' f d d/g
         touch -d '1960-05-01 00:00:00.25 UTC' f; touch -d '2031-01-01 01:02:03.123456789 UTC' d/g
         ln -s f s; touch -h -d '2001-01-01 UTC' s; stat -c '%n %y' f d/g s
         setfattr -n user.a -v 1 f; setfattr -n user.b -v 2 f; setfattr -x user.a f; getfattr -d f
         setfattr -x user.none f; getfattr -n user.none f; truncate -s 10 f; stat -c '%s' f
         setfacl -d -m u:1:rwx d; umask 077; mkdir d/sub; echo z > d/acl; stat -c '%n %a' d/sub d/acl; getfacl d/acl",
    );
}

#[test]
fn data_holes_and_growth_are_as_natively() {
    same_as_native(
        "head -c 3000000 /dev/zero | tr '\\0' x > big; cp big copy; cmp big copy; truncate -s 5000000 big; wc -c big
         printf abc | dd of=big bs=1 seek=4999997 conv=notrunc status=none; tail -c 3 big; echo; echo tail >> copy; tail -c 5 copy
         fallocate -n -l 8000000 copy; wc -c copy; fallocate -p -o 0 -l 1048576 copy; head -c 1048576 copy | tr -d '\\0' | wc -c
         sync big; rm big; : > copy; wc -c copy; dd if=/dev/zero of=copy bs=1M count=1 oflag=direct status=none; wc -c copy",
    );
}

#[test]
fn an_unlinked_open_file_lives_on() {
    let testbed = Testbed::new(&SlowOptions::default());
    let path = testbed.mount().join("f");
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    file.write_all(b"before").unwrap();
    fs::remove_file(&path).unwrap();
    file.write_all(b" and after").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "before and after");
    assert_eq!(
        (file.metadata().unwrap().nlink(), file.metadata().unwrap().len()),
        (0, 16)
    );
    assert_eq!(fs::read_dir(testbed.source()).unwrap().count(), 0);
}

/// The names in a directory.
fn names(dir: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    fs::read_dir(dir).unwrap().map(name).collect()
}

#[test]
fn a_removed_open_file_keeps_a_name_where_storage_is_like_that() {
    let testbed = Testbed::new(&SlowOptions {
        hide_open: true,
        ..SlowOptions::default()
    });
    let dir = testbed.mount().join("d");
    fs::create_dir(&dir).unwrap();
    let mut file = File::create(dir.join("f")).unwrap();
    fs::remove_file(dir.join("f")).unwrap();
    fs::write(dir.join("new"), "new").unwrap();
    let replaced = File::open(dir.join("new")).unwrap();
    fs::write(dir.join("newer"), "newer").unwrap();
    fs::rename(dir.join("newer"), dir.join("new")).unwrap();
    file.write_all(b"still here").unwrap();
    let hidden = names(&testbed.source().join("d"));
    assert_eq!(
        hidden.iter().filter(|name| name.starts_with(".slowfs-hidden-")).count(),
        2,
        "{hidden:?}"
    );
    fs::remove_file(dir.join("new")).unwrap();
    assert_eq!(fs::remove_dir(&dir).unwrap_err().raw_os_error(), Some(libc::ENOTEMPTY));
    drop((file, replaced));
    // A close does not wait for the release.
    assert!(soon(|| names(&testbed.source().join("d")).is_empty()));
    fs::remove_dir(&dir).unwrap();
}

#[test]
fn inode_numbers_are_those_of_the_source() {
    let testbed = Testbed::new(&SlowOptions::default());
    fs::create_dir(testbed.mount().join("d")).unwrap();
    fs::write(testbed.mount().join("d/f"), "x").unwrap();
    for name in ["", "d", "d/f"] {
        let inode = |root: PathBuf| fs::metadata(root.join(name)).unwrap().ino();
        assert_eq!(inode(testbed.mount()), inode(testbed.source()), "{name}");
    }
}

#[test]
fn renames_take_flags() {
    let testbed = Testbed::new(&SlowOptions::default());
    let at = |name: &str| testbed.mount().join(name);
    fs::write(at("a"), "A").unwrap();
    fs::write(at("b"), "B").unwrap();
    let refused = renameat_with(CWD, at("a"), CWD, at("b"), RenameFlags::NOREPLACE);
    assert_eq!(refused, Err(rustix::io::Errno::EXIST));
    renameat_with(CWD, at("a"), CWD, at("b"), RenameFlags::EXCHANGE).unwrap();
    assert_eq!(
        (fs::read(at("a")).unwrap(), fs::read(at("b")).unwrap()),
        (b"B".to_vec(), b"A".to_vec())
    );
}

#[test]
fn holes_can_be_found_and_ranges_copied() {
    let testbed = Testbed::new(&SlowOptions::default());
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(testbed.mount().join("sparse"))
        .unwrap();
    file.write_all_at(&[7; 4096], 1 << 20).unwrap();
    file.sync_all().unwrap();
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)), Ok(1 << 20));
    assert_eq!(
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(1 << 20)),
        Ok((1 << 20) + 4096)
    );
    let copy = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(testbed.mount().join("copy"))
        .unwrap();
    let (mut from, mut to) = (1 << 20, 0);
    assert_eq!(
        rustix::fs::copy_file_range(&file, Some(&mut from), &copy, Some(&mut to), 4096),
        Ok(4096)
    );
    assert_eq!(fs::read(testbed.source().join("copy")).unwrap(), [7; 4096]);
    assert_eq!(testbed.mounted.counters().of(Op::CopyFileRange), 1);
}

#[test]
fn a_large_directory_lists_complete_and_can_be_removed() {
    let testbed = Testbed::new(&SlowOptions::default());
    for number in 0..3000 {
        File::create(
            testbed
                .source()
                .join(format!("a-rather-long-name-to-fill-buffers-{number}")),
        )
        .unwrap();
    }
    assert_eq!(fs::read_dir(testbed.mount()).unwrap().count(), 3000);
    assert_eq!(run("rm -r *", &testbed.mount()), "exit Some(0)");
    assert_eq!(fs::read_dir(testbed.source()).unwrap().count(), 0);
}

#[test]
fn every_operation_takes_its_time_and_no_more_are_served_than_allowed() {
    let latency = Duration::from_millis(20);
    let testbed = Testbed::new(&SlowOptions {
        latency,
        concurrent: 4,
        ..SlowOptions::default()
    });
    let started = Instant::now();
    thread::scope(|scope| {
        for number in 0..16 {
            let path = testbed.mount().join(number.to_string());
            scope.spawn(move || fs::create_dir(path).unwrap());
        }
    });
    let counters = testbed.mounted.counters();
    // A lookup and a mkdir each (a directory takes one at a time, so only the lookups overlap).
    assert_eq!((counters.of(Op::Lookup), counters.of(Op::Mkdir)), (16, 16));
    assert_eq!(counters.in_service_max, 4);
    let least = latency * 32 / 4;
    assert!(
        started.elapsed() >= least,
        "{:?} is less than {least:?}",
        started.elapsed()
    );
}

#[test]
fn operations_on_different_files_overlap() {
    let testbed = Testbed::new(&SlowOptions::default());
    let files: Vec<File> = (0..32)
        .map(|n| File::create(testbed.mount().join(n.to_string())).unwrap())
        .collect();
    testbed.mounted.pause(); // Until all are there: starting so many threads may take a busy machine longer than serving them.
    let mut all_wait = false;
    let started = Instant::now();
    thread::scope(|scope| {
        for file in &files {
            scope.spawn(|| file.write_at(b"x", 0).unwrap());
        }
        all_wait = soon(|| testbed.mounted.waiting() == files.len());
        testbed.mounted.set_latency(Duration::from_millis(100));
        testbed.mounted.resume();
    });
    assert!(all_wait, "they did not come");
    assert!(
        started.elapsed() >= Duration::from_millis(100),
        "{:?}",
        started.elapsed()
    );
    assert!(
        testbed.mounted.counters().in_service_max >= 16,
        "{:?}",
        testbed.mounted.counters()
    );
}

#[test]
fn bandwidth_is_shared_by_all_transfers() {
    let testbed = Testbed::new(&SlowOptions {
        bandwidth: Some(4_000_000),
        ..SlowOptions::default()
    });
    let started = Instant::now();
    fs::write(testbed.mount().join("f"), vec![1; 1_000_000]).unwrap();
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(250), "{took:?}");
    assert_eq!(testbed.mounted.counters().bytes_written, 1_000_000);
}

#[test]
fn faults_fire_as_planned_and_leave_the_source_alone() {
    let faults = ["write:EIO:after=1:name=f*", "mkdir:ENOSPC:count=1"].map(|text| text.parse().unwrap());
    let testbed = Testbed::new(&SlowOptions {
        faults: faults.to_vec(),
        ..SlowOptions::default()
    });
    let errno = |result: std::io::Result<()>| result.unwrap_err().raw_os_error();
    fs::write(testbed.mount().join("f1"), "first").unwrap();
    assert_eq!(errno(fs::write(testbed.mount().join("f2"), "second")), Some(libc::EIO));
    fs::write(testbed.mount().join("other"), "third").unwrap();
    assert_eq!(errno(fs::create_dir(testbed.mount().join("d"))), Some(libc::ENOSPC));
    fs::create_dir(testbed.mount().join("d")).unwrap();
    assert_eq!(testbed.mounted.faults_fired(), 2);
    assert_eq!(fs::read(testbed.source().join("f2")).unwrap(), b"");
    testbed.mounted.set_faults(vec![Fault::new(Op::Rename, libc::EROFS)]);
    assert_eq!(
        errno(fs::rename(testbed.mount().join("f1"), testbed.mount().join("g"))),
        Some(libc::EROFS)
    );
    assert!(testbed.source().join("f1").exists());
    assert_eq!(testbed.mounted.faults_fired(), 1);
}

#[test]
fn paused_storage_answers_nobody_until_it_resumes() {
    let testbed = Testbed::new(&SlowOptions::default());
    let done = AtomicBool::new(false);
    testbed.mounted.pause();
    thread::scope(|scope| {
        scope.spawn(|| {
            fs::create_dir(testbed.mount().join("d")).unwrap();
            done.store(true, Ordering::SeqCst);
        });
        thread::sleep(Duration::from_millis(200));
        assert!(!done.load(Ordering::SeqCst));
        assert!(!testbed.source().join("d").exists());
        testbed.mounted.resume();
    });
    assert!(testbed.source().join("d").exists());
}

#[test]
fn counters_can_be_read_through_the_mount_and_the_question_is_not_counted() {
    let testbed = Testbed::new(&SlowOptions::default());
    fs::write(testbed.mount().join("f"), "x").unwrap();
    let mut value = vec![0; 16 * 1024];
    let length = rustix::fs::getxattr(testbed.mount(), OsStr::new("user.slowfs.stats"), &mut value[..]).unwrap();
    let stats: serde_json::Value = serde_json::from_slice(&value[..length]).unwrap();
    assert_eq!(stats["operations"]["create"], 1);
    assert_eq!(testbed.mounted.counters().of(Op::Getxattr), 0);
    testbed.mounted.reset_counters();
    assert_eq!(testbed.mounted.counters().total, 0);
}

/// Something a test needs cannot be had here: said aloud, and a failure where nothing may be skipped.
fn unavailable(what: &str) {
    assert!(
        std::env::var_os("CI").is_none_or(|value| value != "true"),
        "CI=true, and it lacks {what}"
    );
    // Not eprintln: the test runner would keep it to itself.
    let _ = writeln!(std::io::stderr(), "SKIPPED: this machine lacks {what}");
}

#[test]
fn what_a_user_creates_is_the_users() {
    if !rustix::process::geteuid().is_root() {
        return unavailable("root, to become another user");
    }
    let testbed = Testbed::new(&SlowOptions {
        allow_other: true,
        ..SlowOptions::default()
    });
    let script = "chmod 755 ..; chmod 2777 .; setpriv --reuid 4321 --regid 4322 --groups 4323 bash -c '
        mkdir d; echo x > f; ln -s f s; mkfifo p; chmod 6755 f; echo more >> f; chgrp 4323 f; chmod u-w f; echo no >> f'
        chmod 0700 d; setpriv --reuid 999 --regid 999 --clear-groups ls d; stat -c '%n %u %g %a' d f s p";
    assert_eq!(run(script, &testbed.mount()), run(script, &testbed.native()));
    let expected = Tree::snapshot(&testbed.native()).unwrap().without_times();
    Tree::snapshot(&testbed.source())
        .unwrap()
        .without_times()
        .assert_equals(&expected);
    assert_eq!(fs::metadata(testbed.source().join("f")).unwrap().uid(), 4321);
}

#[test]
fn unmounting_ends_it_and_so_does_somebody_else() {
    let testbed = Testbed::new(&SlowOptions::default());
    fs::write(testbed.mount().join("f"), "x").unwrap();
    let Testbed { dir, mounted } = testbed;
    mounted.unmount().unwrap();
    assert!(!dir.path().join("mount/f").exists());
    let again = SlowFs::mount(
        &dir.path().join("source"),
        &dir.path().join("mount"),
        &SlowOptions::default(),
    )
    .unwrap();
    assert!(dir.path().join("mount/f").exists());
    rustix::mount::unmount(again.path(), rustix::mount::UnmountFlags::empty())
        .or_else(|_| {
            Command::new("fusermount3")
                .arg("-u")
                .arg(again.path())
                .status()
                .map(drop)
                .map_err(|_| rustix::io::Errno::PERM)
        })
        .unwrap();
    assert!(soon(|| again.has_ended()));
}
