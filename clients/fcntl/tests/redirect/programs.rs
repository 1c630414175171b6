//! Programs that people run: sqlite3, flock, shells, on a mount that has no locks.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use elbow_testkit::slowfs::{Mounted, SlowFs, SlowOptions};

use crate::test_dir::{PATIENCE, Stepper, TestDir, compile, complained, eventually, said};

/// A mount without locks; none, with a word, where there are no mounts.
fn mount_without_locks() -> Option<(tempfile::TempDir, Mounted)> {
    mount_without_locks_with(SlowOptions::default())
}

fn mount_without_locks_with(options: SlowOptions) -> Option<(tempfile::TempDir, Mounted)> {
    let home = tempfile::tempdir().unwrap();
    let (below, mount) = (home.path().join("below"), home.path().join("mount"));
    std::fs::create_dir(&below).unwrap();
    std::fs::create_dir(&mount).unwrap();
    let options = SlowOptions {
        without_locks: true,
        ..options
    };
    match SlowFs::mount(&below, &mount, &options) {
        Ok(mounted) => Some((home, mounted)),
        Err(error) if std::env::var_os("CI").is_none() => {
            println!("SKIPPED: no mounts here: {error}");
            None
        }
        Err(error) => panic!("no mounts here: {error}"),
    }
}

fn run(test_dir: &TestDir, program: &str, arguments: &[&str]) -> Output {
    test_dir.command(program).args(arguments).output().unwrap()
}

const WRITERS: usize = 4;
const INSERTS: usize = 25;

/// Several sqlite3 write one database, each row in a transaction of its own, in the journal mode that it has by default.
fn sqlite_writers(test_dir: &TestDir) {
    sqlite_writers_in(test_dir, "delete", INSERTS);
}

fn sqlite_writers_in(test_dir: &TestDir, journal: &str, inserts: usize) {
    // What a disk takes to sync is time in which others wait, and may be too long for them; locks are what is tried here.
    let sqlite = |sql: &str| {
        let mut command = test_dir.command("sqlite3");
        command
            .args(["-cmd", ".timeout 60000", "-cmd", "PRAGMA synchronous = OFF", "db", sql])
            .stderr(Stdio::piped());
        command.stdout(Stdio::piped()).spawn().unwrap()
    };
    let made = sqlite(&format!(
        "PRAGMA journal_mode = {journal}; CREATE TABLE t(writer, number); CREATE TABLE total(n); INSERT INTO total VALUES(0);"
    ));
    let made = made.wait_with_output().unwrap();
    assert!(made.status.success(), "{}", complained(&made));
    assert_eq!(said(&made), format!("{journal}\n"));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let each = |number| {
                format!(
                    "BEGIN IMMEDIATE; INSERT INTO t VALUES({writer}, {number}); UPDATE total SET n = n + 1; COMMIT;"
                )
            };
            let sql: String = (0..inserts).map(each).collect();
            sqlite(&sql)
        })
        .collect();
    for writer in writers {
        let output = writer.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", complained(&output));
    }
    let counted = run(
        test_dir,
        "sqlite3",
        &[
            "db",
            "PRAGMA integrity_check; SELECT count(*) FROM t; SELECT n FROM total;",
        ],
    );
    let all = WRITERS * inserts;
    assert_eq!(
        said(&counted),
        format!("ok\n{all}\n{all}\n"),
        "{}",
        complained(&counted)
    );
}

#[test]
fn sqlite_works_on_a_mount_without_locks() {
    let Some((_home, mounted)) = mount_without_locks() else {
        return;
    };
    let without = run_without_redirect(mounted.path(), "CREATE TABLE t(a);");
    assert!(complained(&without).contains("lock"), "it fails without: {without:?}");
    let _ = std::fs::remove_file(mounted.path().join("db"));
    sqlite_writers(&TestDir::redirected_at(mounted.path()));
}

/// With names that a mount told differently to each of them, they lost a quarter of their commits in 3 of 25 runs.
#[test]
fn sqlite_in_wal_mode_loses_no_commit_on_a_mount_without_locks() {
    for identity in ["path", "auto"] {
        let Some((_home, mounted)) = mount_without_locks() else {
            return;
        };
        let mut test_dir = TestDir::redirected_at(mounted.path());
        test_dir.set("ELBOW_FCNTL_IDENTITY", identity);
        sqlite_writers_in(&test_dir, "wal", 50);
    }
}

fn run_without_redirect(directory: &Path, sql: &str) -> Output {
    let mut command = std::process::Command::new("sqlite3");
    command.current_dir(directory).args(["db", sql]).output().unwrap()
}

/// A FUSE mount says of a file that is there that it is deleted, once it has looked for its name in vain: who had it open had another name for it than who opens it
/// then, and a lock of its own.
#[test]
fn a_file_that_a_mount_calls_deleted_while_it_is_there_is_one_file() {
    // The mount gives it another inode number meanwhile: `auto` has to go by path there, as the default does.
    for identity in [None, Some("auto")] {
        locked_while_it_is_called_deleted(identity);
    }
}

fn locked_while_it_is_called_deleted(identity: Option<&str>) {
    let without_memory = SlowOptions {
        ttl: Duration::ZERO,
        ..SlowOptions::default()
    };
    let Some((home, mounted)) = mount_without_locks_with(without_memory) else {
        return;
    };
    let mut test_dir = TestDir::redirected_at(mounted.path());
    if let Some(identity) = identity {
        test_dir.set("ELBOW_FCNTL_IDENTITY", identity);
    }
    let program = compile("steps", home.path());
    let [mut early, mut late] = [(); 2].map(|()| Stepper::start(&test_dir, &program));
    assert_eq!(early.run("o 0 1 2 0"), "0 0");
    // Somebody renames it at the server, and back.
    let [name, other] = ["below/a", "below/other"].map(|path| home.path().join(path));
    std::fs::rename(&name, &other).unwrap();
    assert!(!mounted.path().join("a").exists());
    std::fs::rename(&other, &name).unwrap();
    assert_eq!(late.run("o 0 1 2 0"), "0 0");
    let links = std::fs::read_dir(format!("/proc/{}/fd", early.pid)).unwrap();
    let targets: Vec<_> = links
        .map(|link| std::fs::read_link(link.unwrap().path()).unwrap())
        .collect();
    assert!(
        targets
            .iter()
            .any(|target| target.to_string_lossy().ends_with("/a (deleted)")),
        "{targets:?}"
    );
    let write = libc::F_WRLCK;
    for (lock, tried) in [
        (format!("l 0 0 0 {write} 0 0 0"), format!("l 0 0 0 {write} 0 0 0")),
        ("f 0 2".to_owned(), "f 0 6".to_owned()),
    ] {
        assert_eq!(late.run(&lock), "0 0");
        assert_eq!(early.run(&tried), format!("-1 {}", libc::EAGAIN), "{tried}");
    }
}

#[test]
fn a_file_that_is_called_deleted_is_a_file_of_its_own() {
    let test_dir = TestDir::redirected();
    let program = "
import fcntl
files = [open(name, 'w') for name in ['x', 'x (deleted)', 'x (deleted) (deleted)']]
for file in files:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print('all')
";
    let output = test_dir.python(program);
    assert_eq!(said(&output), "all\n", "{}", complained(&output));
}

#[test]
fn sqlite_works_with_files_named_by_inode() {
    let mut test_dir = TestDir::redirected();
    test_dir.set("ELBOW_FCNTL_IDENTITY", "inode");
    sqlite_writers(&test_dir);
    test_dir.expect_no_kernel_locks();
}

/// The lost update that locks are there to prevent: so many shells add 1 to a number in a file.
fn counters(test_dir: &TestDir, script: &str) {
    std::fs::write(test_dir.data.join("n"), "0\n").unwrap();
    let shells: Vec<_> = (0..4)
        .map(|_| {
            let script = format!("for i in 1 2 3 4 5; do {script}; done");
            let mut command = test_dir.command("bash");
            command.args(["-c", &script]).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for shell in shells {
        let output = shell.wait_with_output().unwrap();
        assert_eq!((complained(&output), output.status.code()), (String::new(), Some(0)));
    }
    let count = std::fs::read_to_string(test_dir.data.join("n")).unwrap();
    assert_eq!(count, "20\n", "{script}");
    test_dir.expect_no_kernel_locks();
}

const ADD_ONE: &str = "read n < n; sleep 0.01; echo $((n + 1)) > n";

#[test]
fn flock_runs_commands_one_at_a_time_on_a_mount_without_locks() {
    let Some((_home, mounted)) = mount_without_locks() else {
        return;
    };
    let refused = std::process::Command::new("flock")
        .current_dir(mounted.path())
        .args(["lock", "true"])
        .output()
        .unwrap();
    assert!(!refused.status.success(), "it fails without");
    let test_dir = TestDir::redirected_at(mounted.path());
    counters(&test_dir, &format!("flock lock bash -c '{ADD_ONE}'"));
}

#[test]
fn a_shell_holds_the_lock_that_its_child_took_on_its_descriptor() {
    let test_dir = TestDir::redirected();
    counters(&test_dir, &format!("( flock 9; {ADD_ONE} ) 9>lock"));
    counters(&test_dir, &format!("exec 9>lock; flock 9; {ADD_ONE}; flock -u 9"));
    counters(&test_dir, &format!("exec 9>lock; flock 9; {ADD_ONE}; exec 9>&-"));
}

#[test]
fn a_waiter_gets_the_lock_of_a_holder_that_was_killed() {
    let test_dir = TestDir::redirected();
    let program = compile("steps", test_dir.data.parent().unwrap());
    let exclusive = format!("l 0 0 1 {} 0 0 0", libc::F_WRLCK);
    for lock in [&*exclusive, "f 0 2"] {
        let [mut holder, mut waiter] = [(); 2].map(|()| Stepper::start(&test_dir, &program));
        for stepper in [&mut holder, &mut waiter] {
            assert_eq!(stepper.run("o 0 1 2 0"), "0 0");
        }
        assert_eq!(holder.run(lock), "0 0");
        waiter.send(lock);
        assert_eq!(waiter.answer(std::time::Duration::from_millis(300)), None, "it waits");
        holder.kill();
        assert_eq!(waiter.answer(PATIENCE).as_deref(), Some("0 0"));
    }
}

#[test]
fn a_command_under_flock_keeps_the_lock_when_flock_is_killed() {
    let test_dir = TestDir::redirected();
    let mut flock = test_dir
        .command("flock")
        .args(["lock", "sh", "-c", "echo $$ > pid; exec sleep 600"])
        .spawn()
        .unwrap();
    let pid = || std::fs::read_to_string(test_dir.data.join("pid")).unwrap_or_default();
    eventually("the command runs", || pid().ends_with('\n'));
    let is_free = || run(&test_dir, "flock", &["-n", "lock", "true"]).status.success();
    assert!(!is_free());
    flock.kill().unwrap();
    flock.wait().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(!is_free(), "sleep has it");
    let killed = std::process::Command::new("kill")
        .args(["-9", pid().trim()])
        .status()
        .unwrap();
    assert!(killed.success());
    eventually("the lock is free", is_free);
}
