//! The doubles do what tests will rely on.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::IoSlice;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use elbow_file::double::{
    AllSquash, Call, Counting, Delaying, Faulty, Gated, Hook, Interposed, Operation, Plan, Recording,
};
use elbow_file::{Access, Errno, FileType, Handle, RealStorage, RenameMode, Storage};
use tempfile::TempDir;

fn fixture<H: Hook>(hook: H) -> (TempDir, Handle, Interposed<H>) {
    let dir = tempfile::tempdir().unwrap();
    let root = RealStorage::open_root(dir.path()).unwrap();
    (dir, root, Interposed::new(Arc::new(RealStorage), hook))
}

fn n(name: &str) -> &OsStr {
    OsStr::new(name)
}

/// Calls every method of the trait once; each succeeds on an ordinary file system, or is refused as unsupported.
fn call_everything(storage: &dyn Storage, root: &Handle) -> elbow_file::Result<()> {
    fn supported(result: elbow_file::Result<()>) -> elbow_file::Result<()> {
        if result == Err(Errno::OPNOTSUPP) {
            Ok(())
        } else {
            result
        }
    }
    storage.mkdir(root, n("d"), 0o755)?;
    let dir = storage.open_dir(root, n("d"))?;
    let file = storage.create(&dir, n("f"), 0o644)?;
    storage.create_unnamed(&dir, n("u"), 0o600)?;
    storage.write(&file, &[IoSlice::new(b"abc"), IoSlice::new(b"de")], 2)?;
    storage.open(&dir, n("f"), Access::Read)?;
    storage.read(&file, &mut [0; 9], 1)?;
    storage.read_ahead(&file, 1, 5)?;
    storage.truncate(&file, 4)?;
    storage.truncate_named(&dir, n("f"), 4)?;
    supported(storage.punch(&file, 0, 2))?;
    supported(storage.allocate(&file, 0, 4, false))?;
    storage.next_data(&file, 0)?;
    supported(storage.copy_range(&file, 0, &file, 2, 2).map(drop))?;
    supported(storage.copy_and_look(&file, 0, &file, 2, 2).map(drop))?;
    storage.try_lock(&file)?;
    storage.identity(root)?;
    storage.file_system_traits(root)?;
    storage.sync(&file)?;
    storage.sync_all(root)?;
    storage.symlink(n("to"), &dir, n("s"))?;
    storage.readlink(&dir, n("s"))?;
    storage.mknod(&dir, n("p"), FileType::Fifo, 0o600, 0)?;
    storage.link(&dir, n("f"), root, n("g"))?;
    storage.rename(root, n("g"), root, n("h"), RenameMode::Replace)?;
    let stat = storage.stat(root, n("h"))?;
    storage.stat_uncached(root, n("h"))?;
    storage.stat_handle(&file)?;
    storage.list(root)?;
    storage.space(root)?;
    storage.chmod(root, n("h"), 0o600)?;
    storage.chmod_handle(&file, 0o640)?;
    storage.chown(root, n("h"), Some(stat.uid), None)?;
    storage.chown_handle(&file, None, Some(stat.gid))?;
    storage.set_times(root, n("h"), Some(stat.atime), None)?;
    storage.touch(root, n("h"))?;
    storage.set_times_handle(&file, None, Some(stat.mtime))?;
    supported(storage.set_xattr(root, n("h"), n("user.k"), b"12"))?;
    supported(storage.get_xattr(root, n("h"), n("user.k")).map(drop))?;
    supported(storage.set_xattr_handle(&file, n("user.h"), b"34"))?;
    supported(storage.get_xattr_handle(&file, n("user.k")).map(drop))?;
    supported(storage.list_xattrs(root, n("h")).map(drop))?;
    supported(storage.remove_xattr(root, n("h"), n("user.k")))?;
    supported(storage.remove_xattr_handle(&file, n("user.h")))?;
    storage.close(&file)?;
    for name in ["f", "s", "p"] {
        storage.unlink(&dir, n(name))?;
    }
    storage.rmdir(root, n("d"))
}

#[test]
fn every_method_is_counted_under_its_name() {
    let (_dir, root, storage) = fixture(Counting::default());
    call_everything(&storage, &root).unwrap();
    let mut expected: BTreeMap<_, _> = Operation::ALL.iter().map(|operation| (operation.name(), 1)).collect();
    expected.insert("unlink", 3);
    assert_eq!(storage.hook().counts(), expected);
    assert_eq!(storage.hook().total(), Operation::ALL.len() as u64 + 2);
    assert_eq!(storage.hook().bytes(Operation::Write), 5);
    assert_eq!(storage.hook().bytes(Operation::Read), 9);
    assert_eq!(storage.hook().bytes(Operation::ReadAhead), 5);
    assert_eq!(storage.hook().bytes(Operation::SetXattr), 2);
    assert_eq!(storage.hook().bytes(Operation::Mkdir), 0);
}

#[test]
fn the_nth_call_that_counts_fails_and_is_not_made() {
    let (_dir, root, storage) = fixture(Faulty::new([Plan::fail(Errno::DQUOT).on(Operation::Mkdir).nth(2)]));
    storage.create(&root, n("f"), 0o644).unwrap();
    storage.mkdir(&root, n("a"), 0o755).unwrap();
    assert_eq!(storage.hook().fired(), 0);
    assert_eq!(storage.mkdir(&root, n("b"), 0o755), Err(Errno::DQUOT));
    assert_eq!(storage.stat(&root, n("b")).unwrap_err(), Errno::NOENT);
    storage.mkdir(&root, n("b"), 0o755).unwrap();
    assert_eq!(storage.hook().fired(), 1);
}

#[test]
fn a_plan_can_look_at_names_and_handles() {
    let plans = [
        Plan::fail(Errno::ACCESS).named("secret").times(2),
        Plan::fail(Errno::IO)
            .when(|call: &Call<'_>| call.path().ends_with("d/f") && call.offset >= 4)
            .times(u64::MAX),
    ];
    let (_dir, root, storage) = fixture(Faulty::new(plans));
    assert_eq!(storage.mkdir(&root, n("secret"), 0o755), Err(Errno::ACCESS));
    assert_eq!(storage.stat(&root, n("secret")).unwrap_err(), Errno::ACCESS);
    assert_eq!(
        storage.stat(&root, n("secret")).unwrap_err(),
        Errno::NOENT,
        "only twice"
    );
    storage.mkdir(&root, n("d"), 0o755).unwrap();
    let dir = storage.open_dir(&root, n("d")).unwrap();
    let file = storage.create(&dir, n("f"), 0o644).unwrap();
    storage.write(&file, &[IoSlice::new(b"1234")], 0).unwrap();
    assert_eq!(storage.write(&file, &[IoSlice::new(b"5")], 4), Err(Errno::IO));
    assert_eq!(storage.hook().fired(), 3);
}

#[test]
fn the_world_can_be_stopped_at_every_call() {
    let all = {
        let (_dir, root, storage) = fixture(Faulty::default());
        call_everything(&storage, &root).unwrap();
        storage.hook().seen()
    };
    for n in 1..=all {
        let (_dir, root, storage) = fixture(Faulty::new([Plan::stop_at(n)]));
        assert_eq!(
            call_everything(&storage, &root),
            Err(Errno::IO),
            "stopped at call {n} of {all}"
        );
        assert_eq!(storage.hook().seen(), n);
        assert_eq!(
            storage.stat_handle(&root).unwrap_err(),
            Errno::IO,
            "nothing works after the end"
        );
        assert_eq!(storage.hook().fired(), 2);
    }
}

#[test]
fn the_world_can_be_stopped_at_every_change() {
    let changes = {
        let (_dir, root, storage) = fixture(Faulty::default());
        call_everything(&storage, &root).unwrap();
        storage.hook().changes_seen()
    };
    for n in 1..=changes {
        let (_dir, root, storage) = fixture(Faulty::new([Plan::stop_at_change(n)]));
        assert_eq!(
            call_everything(&storage, &root),
            Err(Errno::IO),
            "stopped at change {n} of {changes}"
        );
        assert_eq!((storage.hook().changes_seen(), storage.hook().fired()), (n, 1));
        storage.stat_handle(&root).unwrap();
    }
}

#[test]
fn faults_can_come_and_go() {
    let (_dir, root, storage) = fixture(Faulty::default());
    storage.mkdir(&root, n("a"), 0o755).unwrap();
    storage.hook().arm(Plan::stop_at(1));
    assert_eq!(storage.mkdir(&root, n("b"), 0o755), Err(Errno::IO));
    storage.hook().disarm();
    storage.mkdir(&root, n("b"), 0o755).unwrap();
    assert_eq!(storage.hook().fired(), 1);
}

#[test]
fn the_log_says_what_was_done_to_what() {
    let (dir, root, storage) = fixture(Recording::default());
    call_everything(&storage, &root).unwrap();
    storage.mkdir(&root, n("h"), 0o755).unwrap_err();
    let base = storage.hook().calls(Operation::SyncAll)[0].path.clone(); // that of the root
    assert_eq!(base.file_name(), dir.path().file_name());
    let line = |operation| {
        storage.hook().calls(operation)[0]
            .to_string()
            .replace(base.to_str().unwrap(), "@")
    };
    assert_eq!(line(Operation::Mkdir), "mkdir @/d");
    assert_eq!(line(Operation::Write), "write @/d/f 2+5");
    assert_eq!(line(Operation::Symlink), "symlink @/d/s to");
    assert_eq!(line(Operation::Rename), "rename @/g h");
    assert_eq!(line(Operation::SyncAll), "sync_all @");

    let log = storage.hook().log();
    assert!(
        log.windows(2)
            .all(|pair| pair[0].is_before(&pair[1]) && !pair[1].is_before(&pair[0]))
    );
    assert_eq!(log.last().unwrap().errno, Some(Errno::EXIST));
    storage.hook().clear();
    assert!(storage.hook().log().is_empty());
}

#[test]
fn a_slow_storage_serves_so_many_calls_at_once() {
    let delay = Duration::from_millis(20);
    let (_dir, root, storage) = fixture(Delaying::new(delay, 3));
    let begun = Instant::now();
    thread::scope(|scope| {
        for _ in 0..9 {
            scope.spawn(|| storage.stat_handle(&root).unwrap());
        }
    });
    assert!(begun.elapsed() >= 3 * delay, "9 calls, 3 at once");
    assert_eq!(storage.hook().served_peak(), 3);
    assert!(storage.hook().waiting_peak() >= 1);
}

#[test]
fn a_gate_holds_the_calls_it_is_for() {
    let (_dir, root, storage) = fixture(Gated::new(|call| call.operation == Operation::Mkdir));
    storage.mkdir(&root, n("before"), 0o755).unwrap();
    storage.hook().close();
    thread::scope(|scope| {
        let held = scope.spawn(|| storage.mkdir(&root, n("held"), 0o755));
        storage.hook().wait_for_held(1);
        assert_eq!(
            storage.stat(&root, n("held")).unwrap_err(),
            Errno::NOENT,
            "other calls pass"
        );
        storage.hook().open();
        held.join().unwrap().unwrap();
    });
    assert_eq!(storage.hook().held(), 0);
    storage.stat(&root, n("held")).unwrap();
}

#[test]
fn doubles_nest() {
    let dir = tempfile::tempdir().unwrap();
    let root = RealStorage::open_root(dir.path()).unwrap();
    let faulty = Arc::new(Interposed::new(
        Arc::new(RealStorage),
        Faulty::new([Plan::fail(Errno::NOSPC).on(Operation::Create)]),
    ));
    let storage = Interposed::new(faulty.clone(), Recording::default());
    assert_eq!(storage.create(&root, n("f"), 0o644).unwrap_err(), Errno::NOSPC);
    assert_eq!(faulty.hook().fired(), 1);
    assert_eq!(storage.hook().log()[0].errno, Some(Errno::NOSPC));
}

#[allow(clippy::disallowed_methods, reason = "the test makes real files")]
fn mark(dir: &TempDir, name: &str, mode: u32) {
    let mode = PermissionsExt::from_mode(mode | AllSquash::HOSTS);
    std::fs::set_permissions(dir.path().join(name), mode).unwrap();
}

#[test]
fn a_guest_changes_what_is_the_hosts_as_its_mode_lets_others() {
    let (dir, root, storage) = fixture(AllSquash);
    for (name, mode) in [("closed", 0o705), ("free", 0o707), ("sticky", 0o1707)] {
        storage.mkdir(&root, n(name), 0o755).unwrap();
        let above = storage.open_dir(&root, n(name)).unwrap();
        for file in ["mine", "theirs"] {
            storage.create(&above, n(file), 0o644).unwrap();
        }
        mark(&dir, &format!("{name}/theirs"), 0o604);
        mark(&dir, name, mode);
        assert_eq!(storage.stat(&root, n(name)).unwrap().uid, AllSquash::HOST_UID);
        assert_eq!(storage.stat(&above, n("mine")).unwrap().uid, AllSquash::UID);
        let answers = |closed, free, sticky| match name {
            "closed" => closed,
            "free" => free,
            _ => sticky,
        };
        let (denied, granted) = (Err(Errno::ACCESS), Ok(()));
        let renamed = storage.rename(&above, n("theirs"), &above, n("moved"), RenameMode::Replace);
        assert_eq!(renamed, answers(denied, granted, Err(Errno::PERM)), "{name}");
        assert_eq!(
            storage.mkdir(&above, n("new"), 0o700),
            answers(denied, granted, granted),
            "{name}"
        );
        assert_eq!(
            storage.unlink(&above, n("mine")),
            answers(denied, granted, granted),
            "{name}"
        );
        assert_eq!(storage.unlink(&above, n("nothing")), Err(Errno::NOENT), "{name}");
        let time = Some(storage.stat(&root, n(name)).unwrap().mtime);
        assert_eq!(storage.set_times(&root, n(name), time, time), Err(Errno::PERM));
        assert_eq!(storage.touch(&root, n(name)), answers(denied, granted, granted));
        assert_eq!(storage.chmod(&root, n(name), 0o755), Err(Errno::PERM));
    }
    storage.create(&root, n("ours"), 0o644).unwrap();
    assert_eq!(storage.chown(&root, n("ours"), Some(0), None), Err(Errno::PERM));
    storage.chmod(&root, n("ours"), 0o600).unwrap();
    storage.create(&root, n("shown"), 0o644).unwrap();
    mark(&dir, "shown", 0o604);
    let open = |access| storage.open(&root, n("shown"), access).map(drop);
    assert_eq!(open(Access::Read), Ok(()));
    assert_eq!(open(Access::ReadWrite), Err(Errno::ACCESS));
    assert_eq!(storage.truncate_named(&root, n("shown"), 0), Err(Errno::ACCESS));
    assert!(!storage.file_system_traits(&root).unwrap().own_ids);
}
