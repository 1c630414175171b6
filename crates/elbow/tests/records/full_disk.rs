//! A disk that is full: a clean stop, and on with it when there is room.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::disk::Disk;
use crate::testbed::{Content, ORDER, Said, TRIES, Testbed, assert_in_order, megabytes};

const MEGABYTES: usize = 24;
const DISK_BYTES: u64 = 64 << 20;
const FULL: &str = "No space left on device";

/// Takes all the room that is left but for so much, and sees that there is none.
fn fill(testbed: &Testbed, but_bytes: u64) -> PathBuf {
    let path = testbed.path("filler");
    let mut filler = File::create(&path).expect("a filler");
    loop {
        match filler.write_all(&[7; 4096]) {
            Err(error) if error.kind() == ErrorKind::StorageFull => break,
            other => other.expect("filling"),
        }
    }
    filler.sync_all().expect("syncing");
    let size = filler.metadata().expect("its size").len();
    filler.set_len(size - but_bytes).expect("leaving some room");
    filler.sync_all().expect("syncing");
    path
}

fn assert_sorted(testbed: &Testbed, content: &Content) {
    let output = testbed.read("data");
    assert_in_order(24, &output);
    assert!(Content::of(&output) == *content, "records are lost or doubled");
    assert_eq!(testbed.names(), ["data"]);
}

fn disk() -> Option<Disk> {
    Disk::with("ext4", DISK_BYTES, &["-T", "largefile"])
}

#[test]
fn a_full_disk_before_a_sort_in_place_leaves_the_file_as_it_was() {
    let Some(disk) = disk() else { return };
    let (testbed, input) = (Testbed::on(&disk.root()), megabytes(MEGABYTES, 1));
    testbed.write("data", &input);
    let filler = fill(&testbed, 0);
    let said = testbed.sort_in_place(&[]);
    said.assert_code(2);
    assert!(said.err.contains(FULL), "{said:?}");
    assert!(testbed.read("data") == input, "the file was changed");
    assert_eq!(testbed.names(), ["data", "filler"]);
    fs::remove_file(filler).expect("making room");
    testbed.sort_in_place(&[]).assert_code(0);
    assert_sorted(&testbed, &Content::of(&input));
}

/// The disk fills up while runs are formed, and later while they are merged.
#[test]
fn a_disk_that_becomes_full_stops_a_sort_in_place_which_goes_on_when_there_is_room() {
    let Some(disk) = disk() else { return };
    let (testbed, input) = (Testbed::on(&disk.root()), megabytes(MEGABYTES, 2));
    let content = Content::of(&input);
    // On a busy machine a sort may come to its end before it is told to stop.
    let stopped = (0..TRIES).find_map(|_| {
        let stopped = fill_again_and_again(&testbed, &input);
        assert_sorted(&testbed, &content);
        stopped.filter(|times| *times > 0)
    });
    assert!(stopped > Some(0), "the disk was never full");
}

/// Sorts with a full disk again and again, and says how often the sort stopped for that; `None` if it ended before the disk was full.
fn fill_again_and_again(testbed: &Testbed, input: &[u8]) -> Option<u32> {
    let child = testbed.start_and_hold(input);
    child.send(Signal::INT);
    // Stopped, not killed: it ends at a moment of its own choice.
    let mut said = child.go_on();
    if said.code == 0 {
        return None;
    }
    let (mut stopped, mut moment) = (0, Duration::from_millis(60));
    while said.code != 0 {
        let filler = fill(testbed, 0);
        let full = testbed.resume();
        if full.code != 0 {
            full.assert_code(2);
            assert!(full.err.contains(FULL), "{full:?}");
            let hint = "elbow: nothing is lost; make room, and continue with: elbow sort --resume data\n";
            assert!(full.err.ends_with(hint), "{full:?}");
            stopped += 1;
        }
        fs::remove_file(filler).expect("making room");
        if !testbed.is_begun() {
            break;
        }
        let child = testbed.start(&["--resume", "-S", "8M", "data"]);
        std::thread::sleep(moment);
        // On a busy machine it may need longer to get on at all.
        moment += Duration::from_millis(20);
        let _ = kill_process(Pid::from_child(&child), Signal::INT);
        said = Said::of_child(child);
    }
    Some(stopped)
}

/// Room for less than half of what a run takes otherwise.
#[test]
fn a_nearly_full_disk_is_enough() {
    let Some(disk) = disk() else { return };
    let (testbed, input) = (Testbed::on(&disk.root()), megabytes(MEGABYTES, 3));
    testbed.write("data", &input);
    let filler = fill(&testbed, 3 << 20);
    testbed.sort_in_place(&[]).assert_code(0);
    fs::remove_file(filler).expect("making room");
    assert_sorted(&testbed, &Content::of(&input));
}

#[test]
fn a_full_disk_leaves_the_old_output_and_no_draft() {
    let Some(disk) = disk() else { return };
    let (testbed, input) = (Testbed::on(&disk.root()), megabytes(MEGABYTES, 4));
    testbed.write("data", &input);
    testbed.write("out", b"old");
    let said = testbed.sort(&[&ORDER[..], &["-T", "/var/tmp", "-o", "out", "data"]].concat());
    let _ = said.assert_code(0);
    testbed.write("out", b"old");
    let filler = fill(&testbed, 2 << 20);
    let said = testbed.sort(&[&ORDER[..], &["-T", "/var/tmp", "-o", "out", "data"]].concat());
    said.assert_code(2);
    assert!(said.err.contains(FULL), "{said:?}");
    assert_eq!((testbed.read("out"), testbed.names().len()), (b"old".to_vec(), 3));
    fs::remove_file(filler).expect("making room");
}
