//! Written data beyond the memory, and directories beyond number: what is bounded stays so.

#![allow(clippy::disallowed_methods, reason = "the test makes and looks at real directories")]

use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use elbow_file::{Errno, RealStorage};

use crate::schedule_test::scratch;
use crate::{Caller, Ino, Job, Options, SetIds};

const CALLER: Caller = Caller {
    uid: 0,
    gid: 0,
    umask: 0o022,
};
const MEBIBYTE: u64 = 1 << 20;

fn begin(dir: &Path, spill: Option<&Path>) -> Job {
    let options = Options {
        memory_bytes: 8 * MEBIBYTE,
        scratch: spill.map(Path::to_owned),
        scratch_bytes: 64 * MEBIBYTE,
        ..Options::default()
    };
    Job::begin(
        Arc::new(RealStorage),
        RealStorage::open_root(dir).unwrap(),
        dir,
        options,
    )
    .unwrap()
}

/// Makes a file that has no name any more.
fn nameless(job: &Job) -> Result<Ino, Errno> {
    let name = OsStr::new("nameless");
    let ino = job.insist(|job| job.create(CALLER, Ino::ROOT, name, 0o600))?.ino;
    job.insist(|job| job.unlink(Ino::ROOT, name))?;
    Ok(ino)
}

/// Fills nearly all memory with a file without a name, then writes another one of so many mebibytes, and reads both.
fn write_nameless(job: &Job, mebibytes: u64) -> Result<(), Errno> {
    let files = [(nameless(job)?, 7), (nameless(job)?, mebibytes)];
    for (ino, mebibytes) in files {
        for at in 0..mebibytes {
            let piece = vec![at as u8; MEBIBYTE as usize];
            job.insist(|job| job.write(ino, at * MEBIBYTE, &piece, SetIds::Stay))?;
        }
        // It comes up and needs nothing: from then on it is not queued any more.
        std::thread::sleep(Duration::from_millis(200));
    }
    for (ino, mebibytes) in files {
        for at in 0..mebibytes {
            let read = job.read_blocking(ino, at * MEBIBYTE, MEBIBYTE as usize)?;
            assert!(read.iter().all(|byte| *byte == at as u8), "mebibyte {at}");
        }
        job.release(ino, true);
    }
    Ok(())
}

/// The same, or a failed test when it hangs.
fn write_nameless_in_time(job: &Job, mebibytes: u64) -> Result<(), Errno> {
    let (said, heard) = mpsc::channel();
    let job = job.clone();
    std::thread::spawn(move || said.send(write_nameless(&job, mebibytes)));
    heard.recv_timeout(Duration::from_secs(60)).expect("it hangs")
}

/// Of a file that was unlinked while it was open nothing was found to be spilled: writers waited for ever.
#[test]
fn a_file_without_a_name_is_written_beyond_the_memory() {
    let (dir, spill) = (scratch(), scratch());
    for _ in 0..4 {
        let job = begin(dir.path(), Some(spill.path()));
        assert_eq!(write_nameless_in_time(&job, 40), Ok(()));
        assert!(job.counts().spilled_bytes > 30 * MEBIBYTE, "{:?}", job.counts());
        job.commit(&mut |_| {}).unwrap();
    }
}

#[test]
fn a_file_without_a_name_for_which_there_is_no_room_is_refused_and_does_not_hang() {
    let (dir, spill) = (scratch(), tempfile::tempdir().unwrap());
    let job = begin(dir.path(), None);
    assert_eq!(write_nameless_in_time(&job, 40), Err(Errno::NOSPC));
    let job = begin(dir.path(), Some(spill.path()));
    assert_eq!(write_nameless_in_time(&job, 100), Err(Errno::NOSPC));
}

/// Each directory that was read had all entries of its parent looked through once more: 20,000 took 16 times as long as 5,000.
#[test]
fn each_directory_is_looked_through_once_for_what_to_read_ahead() {
    const DIRECTORIES: usize = 2_000;
    let dir = scratch();
    for n in 0..DIRECTORIES {
        std::fs::create_dir_all(dir.path().join(format!("top/{n}/below"))).unwrap();
    }
    let job = begin(dir.path(), None);
    let list = |ino| job.insist(|job| job.list(ino)).unwrap();
    let top = list(Ino::ROOT)[0].ino;
    for entry in list(top) {
        list(entry.ino);
    }
    let looked = job.shared.state.lock().model.prelist.looked;
    assert!(looked >= DIRECTORIES, "nothing was read ahead");
    assert!(looked <= 2 * DIRECTORIES + 2, "{looked} entries were looked at");
}

/// git status looks for each name that it knows, and reads no directory before: by ssh each was a round trip of its own.
#[test]
fn who_has_looked_into_two_directories_is_going_to_look_into_the_others() {
    let dir = scratch();
    for n in 0..5 {
        std::fs::create_dir_all(dir.path().join(format!("top/{n}/below"))).unwrap();
    }
    let job = begin(dir.path(), None);
    let look = |parent, name: &str| job.insist(|job| job.lookup(parent, OsStr::new(name))).unwrap().ino;
    let top = look(Ino::ROOT, "top");
    let searched = |ino| {
        let model = &mut job.shared.state.lock().model;
        model.prelist.note_searched(&model.inodes, ino);
        model.prelist.looked
    };
    assert_eq!(searched(Ino::ROOT), 0, "nothing is above it");
    let [first, second] = ["0", "1"].map(|name| {
        let ino = look(top, name);
        look(ino, "below");
        ino
    });
    assert_eq!(searched(first), 0, "one is no walk");
    assert_eq!(
        searched(second),
        5 + 2,
        "its neighbours, and what is in both that are listed"
    );
    assert_eq!(searched(second), 5 + 2, "each once");
}

/// The removal of 20,000 directories was free of charge until the process ended, which took another 8 s: all of them were open.
#[test]
fn removed_directories_are_not_kept_open() {
    let dir = scratch();
    for n in 0..50 {
        std::fs::create_dir_all(dir.path().join(format!("top/{n}"))).unwrap();
    }
    let job = begin(dir.path(), None);
    let list = |ino| job.insist(|job| job.list(ino)).unwrap();
    let top = list(Ino::ROOT)[0].ino;
    let open = || {
        let state = job.shared.state.lock();
        state
            .model
            .inodes
            .all()
            .filter(|(_, inode)| inode.dir().is_ok_and(|dir| dir.handle.is_some()))
            .count()
    };
    for entry in list(top) {
        list(entry.ino);
        job.insist(|job| job.rmdir(top, &entry.name)).unwrap();
    }
    job.insist(|job| job.rmdir(Ino::ROOT, OsStr::new("top"))).unwrap();
    assert_eq!(open(), 1, "only the root is open");
    job.commit(&mut |_| {}).unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
