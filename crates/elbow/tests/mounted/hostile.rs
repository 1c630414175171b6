//! Two users in one directory, one of whom plants what looks like a dead job: it is not obeyed, and it blocks nobody. And two
//! users who only want to work there.
//!
//! What can be planted is enumerated in `elbow-job`; here the commands are the real ones. A forged job is run by its owner at the end,
//! which shows that it is one.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, lchown};
use std::path::{Path, PathBuf};

use elbow_ranges::encoding::{Writer, seal};

use crate::commands::{Place, Run};
use crate::ordinary_user::{USER, ground_of};
use crate::test_dir::{TestDir, wait_for};

/// A job of another boot of this machine, so that it is dead, in the first version of the format: it has no more than this.
fn manifest() -> Vec<u8> {
    let mut out = Writer::new();
    out.bytes(rustix::system::uname().nodename().to_bytes());
    out.bytes(b"of another boot");
    for _pid_start_and_time in 0..3 {
        out.varint(1);
    }
    for _time in 0..2 {
        out.signed(1_000_000_000);
        out.varint(0);
    }
    out.varint(0); // words of the command
    seal(*b"ELBOWJOB", 1, &out.finish())
}

/// A journal that has these to be removed.
fn journal(paths: &[&str]) -> Vec<u8> {
    let entry = |path: &&str| {
        let mut out = Writer::new();
        out.varint(1);
        out.bytes(path.as_bytes());
        let sealed = seal(*b"ELBOWJNL", 1, &out.finish());
        let length = u32::try_from(sealed.len()).expect("a short path").to_le_bytes();
        [&length[..], &sealed].concat()
    };
    paths.iter().flat_map(entry).collect()
}

/// A directory with the name of a job's, and these files.
fn forge(above: &Path, digit: char, files: &[(&str, Vec<u8>)]) -> PathBuf {
    let id: String = [digit; 16].iter().collect();
    let staging = above.join(format!(".elbow-{id}-1000000000.000000000"));
    fs::create_dir(&staging).expect("a directory");
    for (name, bytes) in files {
        fs::write(staging.join(name), bytes).expect("a file");
    }
    fs::set_permissions(&staging, fs::Permissions::from_mode(0o700)).expect("a mode");
    staging
}

fn give_away(path: &Path) {
    if path.is_dir() && !path.is_symlink() {
        let entries = fs::read_dir(path).expect("a directory");
        entries.for_each(|entry| give_away(&entry.expect("an entry").path()));
    }
    lchown(path, Some(USER), Some(USER)).expect("an owner");
}

/// A directory that everybody may write to, in which only owners remove.
fn sticky_ground() -> TestDir {
    let test_dir = ground_of(
        0,
        "mkdir -p precious/deep; printf x > precious/deep/file; printf y > roots",
    );
    let work = test_dir.work("");
    fs::set_permissions(&work, fs::Permissions::from_mode(0o1777)).expect("a mode");
    test_dir
}

/// Runs as root what [`TestDir::job`] runs as the user.
fn as_root(test_dir: &TestDir, words: &[&str]) -> Run {
    let (work, out) = (test_dir.work(""), test_dir.outside(""));
    let words = [&[env!("CARGO_BIN_EXE_elbow")], words].concat();
    Place { work: &work, out: &out }.start(&words).finish()
}

/// An ordinary user had anything below the directory removed, and every run hang, by root.
#[test]
fn what_a_user_plants_in_a_shared_directory_does_nothing_to_root() {
    let test_dir = sticky_ground();
    let work = test_dir.work("");
    let everything = journal(&["precious", "roots"]);
    let mut planted = vec![
        forge(&work, '1', &[("job", manifest()), ("journal", everything.clone())]),
        forge(&work, '2', &[("journal", everything)]),
        forge(&work, '3', &[]),
    ];
    let pipe = planted[2].join("job");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .expect("a pipe");
    let link = work.join(".elbow-4444444444444444-1000000000.000000000");
    std::os::unix::fs::symlink(&planted[0], &link).expect("a link");
    planted.push(link);
    planted.iter().for_each(|path| give_away(path));

    let run = as_root(&test_dir, &["run", "--", "sh", "-c", "printf z > made; exit 7"]);
    run.assert_code(7);
    let run = as_root(&test_dir, &["run", "--", "sh", "-c", "printf z > made"]);
    run.assert_code(0);
    assert!(!run.err.contains(".elbow-"), "{}", run.err);
    assert_eq!(test_dir.content("made"), b"z");
    for words in [
        &["recover", "."][..],
        &["recover", ".", "--force"],
        &["recover", ".", "--json"],
    ] {
        let said = as_root(&test_dir, words);
        said.assert_code(0);
        for path in &planted {
            let name = path.file_name().and_then(OsStr::to_str).expect("a plain name");
            assert!(said.out.contains(name), "{}", said.out);
        }
        if words.contains(&"--json") {
            assert_eq!(said.out.matches("\"action\":\"not_ours\"").count(), 4, "{}", said.out);
        }
    }
    assert_eq!(test_dir.content("precious/deep/file"), b"x");
    assert_eq!(test_dir.content("roots"), b"y");
    assert!(planted.iter().all(|path| path.symlink_metadata().is_ok()));

    // It is a job indeed: as its owner one is rid of it, and of all that is one's own in it.
    let theirs = test_dir.work("theirs");
    fs::write(&theirs, "of the user").expect("a file");
    chown(&theirs, Some(USER), None).expect("an owner");
    fs::remove_file(planted.pop().expect("the link")).expect("removing what was planted");
    let directories = planted.iter();
    directories.for_each(|path| fs::remove_dir_all(path).expect("removing what was planted"));
    let own = forge(&work, '1', &[("job", manifest()), ("journal", journal(&["theirs"]))]);
    give_away(&own);
    test_dir.elbow(&["recover", ".", "--force"]).assert_code(0);
    assert!(!theirs.exists() && !own.exists(), "the forged job is none");
}

/// While one user's job ran, or lay dead, everybody else was told that the directory must be writable.
#[test]
fn users_of_a_shared_directory_do_not_keep_each_other_back() {
    let test_dir = sticky_ground();
    let script = |mark: &str| {
        format!(
            "printf x > \"by-$(id -u)-{mark}\"; mkdir \"dir-$(id -u)-{mark}\"; : > \"$OUT/{mark}\"; until [ -e \"$OUT/go\" ]; do sleep 0.02; done"
        )
    };
    let running = test_dir.start_job(&[], &script("running"));
    wait_for("the user's job", || {
        test_dir.outside("running").exists() && test_dir.staging_directories() > 0
    });
    as_root(&test_dir, &["run", "--", "sh", "-c", "printf r > of-root"]).assert_code(0);
    test_dir.job(&[], "printf s > second").assert_code(0);
    test_dir.touch_outside("go");
    running.finish().assert_code(0);
    fs::remove_file(test_dir.outside("go")).expect("removing the mark");

    let dead = test_dir.start_job(&[], &script("dead"));
    wait_for("the job that is to die", || {
        test_dir.outside("dead").exists() && test_dir.staging_directories() > 0
    });
    dead.kill();
    let run = as_root(&test_dir, &["run", "--", "sh", "-c", "printf r > of-root-2"]);
    run.assert_code(0);
    assert!(
        test_dir.staging_directories() > 0,
        "the user's job is not root's to end"
    );
    let said = as_root(&test_dir, &["recover", "."]);
    said.assert_code(0);
    assert!(said.out.contains(&format!("it belongs to user {USER}")), "{}", said.out);
    test_dir.job(&[], "printf s > third").assert_code(0);
    test_dir.assert_no_staging();
    for name in ["of-root", "second", "of-root-2", "third", "by-1-running"] {
        assert!(test_dir.work(name).exists(), "{name}");
    }
    assert!(!test_dir.work("by-1-dead").exists());
}
