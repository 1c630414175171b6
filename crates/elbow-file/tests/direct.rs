//! Files past the page cache on real file systems, and what becomes of a part of a write that is freed.
#![allow(clippy::disallowed_methods, reason = "looks at the storage itself")]

#[allow(dead_code)] // what other tests need of it
mod disk;

use std::ffi::OsStr;
use std::io::IoSlice;

use disk::{Disk, PUNCHING};
use elbow_file::{DIRECT_ALIGNMENT, Handle, RealStorage, Storage, direct, frees_whole_extents};

const BYTES: usize = 32 << 20;

/// A buffer that direct writes take.
fn aligned(bytes: usize) -> (Vec<u8>, usize) {
    let buffer = vec![7; bytes + DIRECT_ALIGNMENT];
    let offset = buffer.as_ptr().align_offset(DIRECT_ALIGNMENT);
    (buffer, offset)
}

fn free_bytes(file: &Handle) -> u64 {
    RealStorage.sync_all(file).expect("a sync");
    let space = RealStorage.space(file).expect("the free space");
    space.blocks_available * space.fragment_bytes
}

/// Writes `BYTES` in pieces, frees all but the last 64 KiB of each, and gives the bytes that came free.
fn freed_of_pieces(file: &Handle, piece: usize) -> u64 {
    let to = direct(file).unwrap_or_else(|| file.clone());
    let (buffer, start) = aligned(piece);
    for at in (0..BYTES).step_by(piece) {
        let written = RealStorage.write(&to, &[IoSlice::new(&buffer[start..][..piece])], at as u64);
        written.expect("room");
    }
    let before = free_bytes(file);
    for at in (0..BYTES).step_by(piece) {
        RealStorage
            .punch(file, at as u64, piece as u64 - (64 << 10))
            .expect("a hole");
    }
    free_bytes(file).saturating_sub(before)
}

#[test]
fn who_frees_whole_extents_only_is_known() {
    for kind in PUNCHING {
        let Some(disk) = Disk::new(kind) else { continue };
        let root = RealStorage::open_root(&disk.root()).expect("the root");
        let file = RealStorage.create(&root, OsStr::new("f"), 0o600).expect("a file");
        assert_eq!(frees_whole_extents(&file), kind == "btrfs", "{kind}");
        let freed = freed_of_pieces(&file, BYTES);
        if frees_whole_extents(&file) {
            assert!(freed < 1 << 20, "{kind}: {freed} bytes came free of one extent");
        } else {
            assert!(freed > BYTES as u64 / 2, "{kind}: only {freed} bytes came free");
        }
    }
}
