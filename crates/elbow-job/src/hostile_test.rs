//! Somebody else puts things into the directory of a job that look like what a dead job leaves. Nothing of that is obeyed, removed,
//! opened or waited for, and it keeps nobody back.
//!
//! Every attack is run a second time with the same bytes in a directory of our own: that it works there shows that it was one.
//! On the code before these tests each of them worked. They are root's, with `daemon` as the other user.

#![allow(clippy::disallowed_methods, reason = "the tests make and look at real directories")]

use std::ffi::OsStr;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use elbow_file::double::{Counting, Faulty, Interposed, Operation, Plan};
use elbow_file::{Access, Errno, RealStorage, Storage, Time};
use elbow_testkit::slowfs::{SlowFs, SlowOptions};

use crate::action::NewAttrs;
use crate::commit::Record;
use crate::report::RecoverAction as Action;
use crate::schedule_test::snapshot;
use crate::staging::{JobHome, JournalEntry, Manifest, new_probe_name, new_staging_name, part_name};

const OTHER: u32 = 1;

/// A directory that everybody may write to, with a file of the other user's and one of ours in a directory.
struct TestDir {
    dir: tempfile::TempDir,
}

/// `None`, said aloud, where there is nobody who could be attacked.
fn test_dir() -> Option<TestDir> {
    if !rustix::process::geteuid().is_root() {
        let is_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
        assert!(!is_ci, "CI=true, and it lacks root");
        eprintln!("SKIPPED: this needs root");
        return None;
    }
    rustix::process::umask(rustix::fs::Mode::empty());
    let dir = tempfile::tempdir().unwrap();
    let test_dir = TestDir { dir };
    set_mode(&test_dir.path(""), 0o1777);
    std::fs::create_dir_all(test_dir.path("ours/deep")).unwrap();
    for name in ["theirs", "ours/deep/file"] {
        std::fs::write(test_dir.path(name), name).unwrap();
        set_mode(&test_dir.path(name), 0o644);
    }
    chown(test_dir.path("theirs"), Some(OTHER), Some(OTHER)).unwrap();
    Some(test_dir)
}

fn real() -> Arc<dyn Storage> {
    Arc::new(RealStorage)
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

impl TestDir {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn recover_with(&self, storage: &Arc<dyn Storage>, force: bool) -> Vec<(String, Action, String)> {
        let root = RealStorage::open_root(self.dir.path()).unwrap();
        let found = crate::recover(storage, &root, force).unwrap();
        found
            .into_iter()
            .map(|job| (job.job, job.action, job.message))
            .collect()
    }

    /// What is said of the only job there.
    fn recover(&self) -> Action {
        let found = self.recover_with(&real(), false);
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].1
    }

    /// What a dead job of this machine leaves, with these files and no others.
    fn plant(&self, files: &[(&str, Vec<u8>)]) -> PathBuf {
        let name = new_staging_name(Time::default());
        let staging = self.path(&name);
        std::fs::create_dir(&staging).unwrap();
        set_mode(&staging, 0o700);
        std::fs::write(staging.join("job"), manifest_of_the_dead(&self.path(""), &name)).unwrap();
        for (name, bytes) in files {
            std::fs::write(staging.join(name), bytes).unwrap();
        }
        for entry in std::fs::read_dir(&staging).unwrap() {
            set_mode(&entry.unwrap().path(), 0o600);
        }
        staging
    }

    /// Somebody else's files do nothing, for the same files of ours do what they say.
    fn assert_only_ours_is_obeyed(&self, files: &[(&str, Vec<u8>)], ours: Action) {
        let staging = self.plant(files);
        give_away(&staging);
        let before = snapshot(self.dir.path());
        assert_eq!(self.recover(), Action::NotOurs);
        assert_eq!(
            snapshot(self.dir.path()),
            before,
            "something was done for somebody else"
        );
        // Whose files are in a directory counts, too.
        chown(&staging, Some(0), Some(0)).unwrap();
        assert_ne!(self.recover(), ours);
        std::fs::remove_dir_all(&staging).unwrap();
        self.plant(files);
        assert_eq!(self.recover(), ours);
        assert_ne!(snapshot(self.dir.path()), before, "these files do nothing for anybody");
    }
}

/// It has been as it is for a long time: nothing will change by itself.
fn age(staging: &Path) {
    let old = std::time::UNIX_EPOCH + Duration::from_secs(1);
    std::fs::File::open(staging).unwrap().set_modified(old).unwrap();
}

/// Everything in a staging directory becomes the other user's.
fn give_away(staging: &Path) {
    for entry in std::fs::read_dir(staging).unwrap() {
        std::os::unix::fs::lchown(entry.unwrap().path(), Some(OTHER), Some(OTHER)).unwrap();
    }
    chown(staging, Some(OTHER), Some(OTHER)).unwrap();
}

fn manifest_of_the_dead(root: &Path, name: &str) -> Vec<u8> {
    let dev = std::fs::metadata(root).unwrap().dev();
    let directory = RealStorage::open_root(&root.join(name)).unwrap();
    let born = RealStorage.identity(&directory).unwrap().born;
    let ino = RealStorage.stat_handle(&directory).unwrap().ino;
    let home = JobHome::here(OsStr::new(name), dev, true, false).of_directory(ino, born);
    let times = (Time::default(), Time::default());
    Manifest::of_this_process(Time::default(), times, &["true".into()], home).encode()
}

fn journal(entries: &[JournalEntry]) -> Vec<u8> {
    entries.iter().flat_map(JournalEntry::encode).collect()
}

fn visible(path: &str) -> JournalEntry {
    JournalEntry::Visible { path: path.into() }
}

/// An ordinary user's file became root's, and set-user-id.
#[test]
fn a_planted_record_gives_nobody_anything() {
    let Some(test_dir) = test_dir() else { return };
    let attrs = NewAttrs {
        owner: Some((0, 0)),
        mode: Some(0o4755),
        ..NewAttrs::default()
    };
    let record = Record {
        attributes: vec![crate::commit::RecordAttributes {
            path: "theirs".into(),
            is_dir: false,
            attrs,
            before: NewAttrs::default(),
        }],
        ..Record::default()
    };
    test_dir.assert_only_ours_is_obeyed(&[("commit", record.encode())], Action::Finished);
    let theirs = std::fs::metadata(test_dir.path("theirs")).unwrap();
    assert_eq!((theirs.uid(), theirs.mode() & 0o7777), (0, 0o4755), "the record is one");
}

/// Any tree below the directory was removed.
#[test]
fn a_planted_journal_removes_nothing() {
    let Some(test_dir) = test_dir() else { return };
    test_dir.assert_only_ours_is_obeyed(&[("journal", journal(&[visible("ours")]))], Action::RolledBack);
    assert!(!test_dir.path("ours").exists(), "the journal is one");
}

/// In a sticky directory nobody removes what is somebody else's, but a recovery did.
#[test]
fn in_a_sticky_directory_everybody_keeps_what_is_theirs() {
    let Some(test_dir) = test_dir() else { return };
    test_dir.assert_only_ours_is_obeyed(&[("journal", journal(&[visible("theirs")]))], Action::RolledBack);
}

/// Who opened a pipe waited for its other end, and every job on the directory with it.
#[test]
fn pipes_links_and_directories_in_the_place_of_files_hold_nobody_up() {
    let Some(test_dir) = test_dir() else { return };
    for name in ["job", "kept", "dropped", "journal", "commit", "done"] {
        for make in [
            "mkfifo \"$0\"",
            "ln -s /etc/passwd \"$0\"",
            "mkdir \"$0\"",
            "mknod \"$0\" c 1 5",
        ] {
            for owner in [OTHER, 0] {
                let staging = test_dir.plant(&[]);
                let path = staging.join(name);
                let _ = std::fs::remove_file(&path);
                let made = Command::new("sh").args(["-c", make]).arg(&path).status().unwrap();
                assert!(made.success());
                if owner == OTHER {
                    give_away(&staging);
                }
                age(&staging);
                let action = test_dir.recover();
                assert_eq!(action == Action::NotOurs, owner == OTHER, "{name}: {make}: {action:?}");
                let _ = std::fs::remove_dir_all(staging);
            }
        }
    }
    assert!(Path::new("/etc/passwd").exists());
}

#[test]
fn a_link_in_the_place_of_a_staging_directory_is_not_followed() {
    let Some(test_dir) = test_dir() else { return };
    let staging = test_dir.plant(&[("journal", journal(&[visible("ours")]))]);
    let elsewhere = test_dir.path("ours/elsewhere");
    std::fs::rename(&staging, &elsewhere).unwrap();
    symlink(&elsewhere, &staging).unwrap();
    assert_eq!(test_dir.recover(), Action::NotOurs);
    assert!(test_dir.path("ours/deep/file").exists() && elsewhere.join("journal").exists());
}

/// It cost 11 seconds and a gigabyte of memory, at every run, also with a beginning as it should be.
#[test]
fn junk_is_refused_by_its_first_bytes() {
    const JUNK_BYTES: u64 = 1 << 30;
    let Some(test_dir) = test_dir() else { return };
    let names = ["commit", "done", "journal", "job"];
    for (name, starts_well) in names.into_iter().flat_map(|name| [(name, false), (name, true)]) {
        let staging = test_dir.plant(&[]);
        let mut junk = match name {
            "commit" | "done" => Record::default().encode(),
            _ => std::fs::read(staging.join("job")).unwrap(),
        };
        if !starts_well {
            junk[..8].copy_from_slice(b"junkjunk");
        }
        std::fs::write(staging.join(name), junk).unwrap();
        let junk = std::fs::File::options().write(true).open(staging.join(name)).unwrap();
        junk.set_len(JUNK_BYTES).unwrap();
        let counting = Arc::new(Interposed::new(Arc::new(RealStorage), Counting::default()));
        age(&staging);
        let storage: Arc<dyn Storage> = counting.clone();
        let found = test_dir.recover_with(&storage, false);
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        assert_eq!(
            found[0].1 == Action::RolledBack,
            name == "journal" || name == "job",
            "{name}: {found:?}"
        );
        let read = counting.hook().bytes(Operation::Read);
        assert!(read <= 2 << 20, "{name}: {read} bytes were read");
        let _ = std::fs::remove_dir_all(staging);
    }
}

/// What others may have put into a directory of ours is not ours.
#[test]
fn a_directory_of_ours_that_is_open_to_others_is_not_obeyed() {
    let Some(test_dir) = test_dir() else { return };
    let staging = test_dir.plant(&[("journal", journal(&[visible("ours")]))]);
    for mode in [0o777, 0o770, 0o720, 0o702] {
        set_mode(&staging, mode);
        assert_eq!(test_dir.recover(), Action::NotOurs, "{mode:o}");
        assert!(test_dir.path("ours").exists(), "{mode:o}");
    }
    set_mode(&staging, 0o2700); // inherited from a directory with set-group-id
    assert_eq!(test_dir.recover(), Action::RolledBack);
}

/// Who may write to the directory may give a staging directory another name, or bring one from elsewhere.
#[test]
fn a_staging_directory_under_another_name_is_not_obeyed() {
    let Some(test_dir) = test_dir() else { return };
    let staging = test_dir.plant(&[("journal", journal(&[visible("ours")]))]);
    let renamed = test_dir.path(&new_staging_name(Time::default()));
    std::fs::rename(&staging, &renamed).unwrap();
    assert_eq!(test_dir.recover(), Action::NotOurs);
    assert!(test_dir.path("ours").exists());
    std::fs::rename(&renamed, &staging).unwrap();
    assert_eq!(test_dir.recover(), Action::RolledBack);
}

/// What root copies becomes root's: a planted job in a tree that an ordinary user had handed over was obeyed there.
#[test]
fn a_copy_is_not_obeyed_unless_it_is_trusted() {
    let Some(test_dir) = test_dir() else { return };
    let files = [("journal", journal(&[visible("ours")]))];
    let staging = test_dir.plant(&files);
    let name = staging.file_name().unwrap().to_str().unwrap().to_owned();
    let aside = test_dir.path("aside");
    std::fs::rename(&staging, &aside).unwrap();
    let copied = Command::new("cp").arg("-a").args([&aside, &staging]).status().unwrap();
    assert!(copied.success());
    assert_eq!(test_dir.recover(), Action::Foreign);
    // The first version of the manifest did not say which directory it was made for.
    let times = (Time::default(), Time::default());
    let home = JobHome::here(OsStr::new(&name), 0, true, false);
    let mut first = Manifest::of_this_process(Time::default(), times, &["true".into()], home);
    (first.home, first.boot) = (None, "another".into());
    std::fs::write(staging.join("job"), first.encode()).unwrap();
    assert_eq!(test_dir.recover(), Action::Foreign);
    // Without a manifest nothing but the directory goes.
    std::fs::remove_file(staging.join("job")).unwrap();
    std::fs::write(staging.join("done"), Record::default().encode()).unwrap();
    age(&staging);
    assert_eq!(test_dir.recover(), Action::Finished);
    assert!(test_dir.path("ours").exists() && !staging.exists());
    std::fs::rename(&aside, &staging).unwrap();
    assert_eq!(test_dir.recover(), Action::RolledBack);
    assert!(!test_dir.path("ours").exists());

    std::fs::create_dir(test_dir.path("ours")).unwrap();
    let staging = test_dir.plant(&files);
    std::fs::rename(&staging, &aside).unwrap();
    assert!(
        Command::new("cp")
            .arg("-a")
            .args([&aside, &staging])
            .status()
            .unwrap()
            .success()
    );
    let found = test_dir.recover_with(&real(), true);
    assert_eq!(found[0].1, Action::RolledBack, "{found:?}");
}

/// A file system that is mounted somewhere; unmounted when dropped.
struct Mount(PathBuf);

impl Mount {
    fn memory(at: &Path, options: &str) -> Self {
        std::fs::create_dir_all(at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "none"]).arg(at);
        assert!(mount.status().unwrap().success());
        Self(at.to_owned())
    }
}

impl Mount {
    fn bind(what: &Path, at: &Path) -> Self {
        let bound = Command::new("mount").arg("--bind").args([what, at]).status().unwrap();
        assert!(bound.success());
        Self(at.to_owned())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}

#[test]
fn a_recovery_does_not_go_beyond_mount_points_unless_it_is_told_to() {
    let Some(test_dir) = test_dir() else { return };
    let memory = Mount::memory(&test_dir.path("mounted"), "mode=755");
    std::fs::write(test_dir.path("mounted/file"), "beyond").unwrap();
    let staging = test_dir.plant(&[("journal", journal(&[visible("mounted/file")]))]);
    let mounted_over = test_dir.path(&new_staging_name(Time::default()));
    let over = Mount::memory(&mounted_over, "mode=700");
    let found = test_dir.recover_with(&real(), false);
    let action_of = |path: &Path| {
        let job = found.iter().find(|(job, ..)| path.ends_with(job));
        job.unwrap_or_else(|| panic!("{found:?}")).1
    };
    assert_eq!(action_of(&mounted_over), Action::NotOurs);
    assert_eq!(action_of(&staging), Action::Failed);
    let said = found.iter().find(|(job, ..)| staging.ends_with(job)).unwrap();
    assert!(said.2.contains("mounted below"), "{found:?}");
    assert!(test_dir.path("mounted/file").exists() && staging.exists());
    drop(over);
    std::fs::remove_dir(mounted_over).unwrap();
    let found = test_dir.recover_with(&real(), true);
    assert_eq!(found[0].1, Action::RolledBack, "{found:?}");
    assert!(!test_dir.path("mounted/file").exists());
    drop(memory);

    // The same file system again is another mount, too.
    let bound = Mount::bind(&test_dir.path("ours"), &test_dir.path("mounted"));
    test_dir.plant(&[("journal", journal(&[visible("mounted/deep/file")]))]);
    assert_eq!(test_dir.recover(), Action::Failed);
    assert!(test_dir.path("ours/deep/file").exists());
    drop(bound);
    assert_eq!(test_dir.recover(), Action::RolledBack);
}

/// Parts lie in directories below, which may be others' to write to.
#[test]
fn a_part_that_somebody_else_has_put_there_is_left_alone() {
    let Some(test_dir) = test_dir() else { return };
    let sub = test_dir.path("ours/deep");
    let times = (Time::default(), Time::default());
    for owner in [OTHER, 0] {
        let entry = JournalEntry::Staging {
            dir: "ours/deep".into(),
            times,
            closed: None,
        };
        let staging = test_dir.plant(&[("journal", journal(&[entry]))]);
        let part = sub.join(part_name(staging.file_name().unwrap()));
        std::fs::create_dir(&part).unwrap();
        set_mode(&part, 0o700);
        std::fs::write(part.join("of-a-third"), "precious").unwrap();
        chown(&part, Some(owner), Some(owner)).unwrap();
        assert_eq!(test_dir.recover(), Action::RolledBack);
        assert!(!staging.exists());
        assert_eq!(part.join("of-a-third").exists(), owner == OTHER);
    }
}

/// One job that could not be ended kept every other one from being ended, and every new one from beginning.
#[test]
fn a_job_that_cannot_be_ended_keeps_no_other_back() {
    let Some(test_dir) = test_dir() else { return };
    let mut staging = [test_dir.plant(&[]), test_dir.plant(&[]), test_dir.plant(&[])];
    staging.sort();
    staging.iter().for_each(|staging| age(staging));
    for errno in [Errno::IO, Errno::ACCESS, Errno::NOENT, Errno::STALE] {
        for broken in &staging {
            if !broken.exists() {
                std::fs::create_dir(broken).unwrap();
                set_mode(broken, 0o700);
                let name = broken.file_name().unwrap().to_str().unwrap();
                std::fs::write(broken.join("job"), manifest_of_the_dead(&test_dir.path(""), name)).unwrap();
                age(broken);
            }
        }
        let broken = staging[1].clone();
        let in_it = broken.clone();
        let plan = Plan::fail(errno).when(move |call| call.path().starts_with(&in_it));
        let plan = plan.on(Operation::Unlink).times(u64::MAX);
        let faulty = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::new([plan])));
        let storage: Arc<dyn Storage> = faulty.clone();
        let found = test_dir.recover_with(&storage, false);
        assert!(faulty.hook().fired() > 0);
        let actions: Vec<Action> = found.iter().map(|(_, action, _)| *action).collect();
        let ended = actions.iter().filter(|action| **action == Action::RolledBack).count();
        assert!(ended >= 2, "{errno}: {found:?}");
        if matches!(errno, Errno::IO | Errno::ACCESS) {
            assert_eq!(ended, 2, "{errno}: {found:?}");
            assert!(actions.contains(&Action::Failed), "{errno}: {found:?}");
        }
        for gone in [&staging[0], &staging[2]] {
            assert!(!gone.exists());
        }
    }
}

/// On a network file system the ids are the server's: whose something is shows in a file that is made there.
#[test]
fn on_storage_with_ids_of_its_own_a_file_tells_whose_is_what() {
    let Some(test_dir) = test_dir() else { return };
    let seen = tempfile::tempdir().unwrap();
    let slow = SlowOptions {
        latency: Duration::ZERO,
        ..SlowOptions::default()
    };
    let mounted = SlowFs::mount(&test_dir.path(""), seen.path(), &slow).unwrap();
    let root = RealStorage::open_root(seen.path()).unwrap();
    assert!(!RealStorage.file_system_traits(&root).unwrap().own_ids);
    let files = [("journal", journal(&[visible("ours")]))];
    let theirs = test_dir.plant(&files);
    give_away(&theirs);
    let probe = test_dir.path(new_probe_name().to_str().unwrap());
    std::fs::write(&probe, "").unwrap();
    age(&probe);
    let counting = Arc::new(Interposed::new(Arc::new(RealStorage), Counting::default()));
    let storage: Arc<dyn Storage> = counting.clone();
    let found = crate::recover(&storage, &root, false).unwrap();
    assert_eq!(found[0].action, Action::NotOurs, "{found:?}");
    assert_eq!(counting.hook().count(Operation::Create), 1);
    assert!(!probe.exists(), "what a recovery that died has left is removed");
    assert!(theirs.exists() && test_dir.path("ours").exists());
    std::fs::remove_dir_all(&theirs).unwrap();
    let ours = test_dir.plant(&files);
    // The manifest is of another mount of the same directory: its process is asked, which is this one.
    assert_eq!(
        crate::recover(&storage, &root, false).unwrap()[0].action,
        Action::Running
    );
    let real = RealStorage::open_root(&test_dir.path("")).unwrap();
    assert_eq!(
        crate::recover(&storage, &real, false).unwrap()[0].action,
        Action::RolledBack
    );
    assert!(!ours.exists() && !test_dir.path("ours").exists());
    let names: Vec<_> = std::fs::read_dir(test_dir.path(""))
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(names, ["theirs"]);
    drop(mounted);
}

/// A probe leaves the time of the directory as it was.
#[test]
fn a_probe_leaves_no_trace() {
    let Some(test_dir) = test_dir() else { return };
    let seen = tempfile::tempdir().unwrap();
    let theirs = test_dir.plant(&[]);
    give_away(&theirs);
    let slow = SlowOptions {
        latency: Duration::ZERO,
        ..SlowOptions::default()
    };
    let mounted = SlowFs::mount(&test_dir.path(""), seen.path(), &slow).unwrap();
    let root = RealStorage::open_root(seen.path()).unwrap();
    let modified = || std::fs::metadata(test_dir.path("")).unwrap().modified().unwrap();
    let before = (modified(), snapshot(&test_dir.path("")));
    let storage: Arc<dyn Storage> = Arc::new(RealStorage);
    assert_eq!(
        crate::recover(&storage, &root, false).unwrap()[0].action,
        Action::NotOurs
    );
    assert_eq!((modified(), snapshot(&test_dir.path(""))), before);
    drop(mounted);
}

/// The lock counts, not what a manifest says of a host or a process: a machine of the same name, or another PID namespace.
#[test]
fn who_holds_the_lock_lives_and_who_does_not_is_dead() {
    let Some(test_dir) = test_dir() else { return };
    let staging = test_dir.plant(&[]);
    let root = RealStorage::open_root(&staging).unwrap();
    let held = RealStorage.open(&root, OsStr::new("job"), Access::ReadWrite).unwrap();
    assert!(RealStorage.try_lock(&held).unwrap());
    for force in [false, true] {
        let found = test_dir.recover_with(&real(), force);
        assert_eq!(found[0].1, Action::Running, "{found:?}");
    }
    drop(held);
    // Another test may be starting a process at this moment, which has the descriptor until it runs its program.
    let is_locked = || {
        let again = RealStorage.open(&root, OsStr::new("job"), Access::ReadWrite).unwrap();
        !RealStorage.try_lock(&again).unwrap()
    };
    (0..1000)
        .take_while(|_| is_locked())
        .for_each(|_| std::thread::sleep(std::time::Duration::from_millis(10)));
    // Our own process runs and has not the lock: its number was given twice.
    assert_eq!(test_dir.recover(), Action::RolledBack);
}

/// A network file system takes the lock from a machine that was cut off, and another one may have begun to roll the job back.
#[test]
fn a_job_whose_lock_somebody_else_has_does_not_commit() {
    let Some(test_dir) = test_dir() else { return };
    let root = RealStorage::open_root(&test_dir.path("")).unwrap();
    let job = crate::Job::begin(real(), root, &test_dir.path(""), crate::Options::default()).unwrap();
    let create = crate::schedule_test::Op::Create("new".into());
    crate::schedule_test::InJob(&job).run(&create).unwrap();
    job.shared.drain(&mut |_| {}).unwrap();
    let staging = RealStorage::open_root(&job.staging_path().unwrap()).unwrap();
    let open = || {
        RealStorage
            .open(&staging, OsStr::new("job"), Access::ReadWrite)
            .unwrap()
    };
    job.shared.lock.give_up(&RealStorage);
    let taken = open();
    assert!(RealStorage.try_lock(&taken).unwrap());
    job.shared.lock.hold(open());
    match job.commit(&mut |_| {}).unwrap() {
        crate::Outcome::RolledBack(crate::Cause::Storage(said)) => assert!(said.contains("Stale"), "{said}"),
        other => panic!("{other:?}"),
    }
    assert!(!test_dir.path("new").exists());
}

/// Where files cannot be locked (an NFS server without its lock daemon), the process tells, as ever.
#[test]
fn on_storage_without_locks_the_process_tells() {
    let Some(test_dir) = test_dir() else { return };
    for errno in [Errno::NOLCK, Errno::OPNOTSUPP] {
        let plan = Plan::fail(errno).on(Operation::TryLock).times(u64::MAX);
        let faulty = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::new([plan])));
        let storage: Arc<dyn Storage> = faulty.clone();
        let root = RealStorage::open_root(&test_dir.path("")).unwrap();
        let job = crate::Job::begin(storage.clone(), root, &test_dir.path(""), crate::Options::default()).unwrap();
        let create = crate::schedule_test::Op::Create("new".into());
        crate::schedule_test::InJob(&job).run(&create).unwrap();
        job.shared.drain(&mut |_| {}).unwrap();
        for looks_at in [&storage, &real()] {
            assert_eq!(test_dir.recover_with(looks_at, false)[0].1, Action::Running, "{errno}");
        }
        assert!(faulty.hook().fired() >= 2);
        assert!(matches!(job.commit(&mut |_| {}), Ok(crate::Outcome::Committed)));
        std::fs::remove_file(test_dir.path("new")).unwrap();
        let name = test_dir.plant(&[]);
        let name = name.file_name().unwrap().to_str().unwrap();
        let mut dead = Manifest::decode(&manifest_of_the_dead(&test_dir.path(""), name)).unwrap();
        dead.started += 1;
        std::fs::write(test_dir.path(name).join("job"), dead.encode()).unwrap();
        assert_eq!(
            test_dir.recover_with(&storage, false)[0].1,
            Action::RolledBack,
            "{errno}"
        );
    }
}
