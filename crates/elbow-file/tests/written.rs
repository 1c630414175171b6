//! Data that write(2) took and the disk did not.
#![allow(clippy::disallowed_methods, reason = "looks at the storage itself")]

use std::io::IoSlice;

use elbow_file::{Handle, RealStorage, Storage, check_written, direct};
use elbow_testkit::thin_disk::ThinDisk;

/// More than the disk below has.
const WRITTEN_BYTES: usize = 48 << 20;

fn write(file: &Handle) {
    let piece = vec![7; 1 << 20];
    for at in (0..WRITTEN_BYTES).step_by(piece.len()) {
        let written = RealStorage.write(file, &[IoSlice::new(&piece)], at as u64);
        written.expect("the page cache takes it");
    }
}

#[test]
fn what_the_disk_did_not_take_is_told_once() {
    let Some(disk) = ThinDisk::new() else { return };
    let file = RealStorage::temporary(&disk.root()).expect("a file");
    let other = direct(&file).expect("the same file, opened once more");
    write(&file);
    assert_eq!(check_written(&file), Ok(()), "nothing has been tried yet");
    RealStorage.sync(&other).expect_err("the disk below is full");
    check_written(&file).expect_err("a failure that this one has not heard of");
    assert_eq!(check_written(&file), Ok(()));
}

#[test]
fn what_is_all_well_has_nothing_to_tell() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = RealStorage::temporary(directory.path()).expect("a file");
    write(&file);
    RealStorage.sync(&file).expect("room");
    assert_eq!(check_written(&file), Ok(()));
}
