//! Runs that the page cache has taken, and the disk has not.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use elbow_testkit::thin_disk::ThinDisk;

use crate::stage::{ELBOW, Stage};

/// Several times what the disk takes.
const LINES: u32 = 1_000_000;

/// A small sort writes its runs through the page cache, where a write succeeds before the disk has seen it. On a thin volume that
/// is full the data was then gone: what is read back is not what was written, and the result would be wrong with exit 0.
#[test]
fn a_run_that_the_disk_did_not_take_fails_the_sort() {
    let Some(disk) = ThinDisk::new() else { return };
    let text: String = (0..LINES)
        .map(|n| format!("{:0>80}\n", n.wrapping_mul(2_654_435_761)))
        .collect();
    let stage = Stage::with(&[("in", text.as_bytes())]);
    let root = disk.root();
    let words = [
        "sort",
        "-S",
        "4M",
        "-T",
        root.to_str().expect("text"),
        "-o",
        "out",
        "in",
    ];
    let is_over = AtomicBool::new(false);
    let ended = std::thread::scope(|scope| {
        scope.spawn(|| {
            let root = File::open(&root).expect("the disk");
            while !is_over.load(Relaxed) {
                // As the kernel does by itself after a while. That it fails is what this is about.
                let _ = rustix::fs::syncfs(&root);
            }
        });
        let ended = stage.run(ELBOW, &words, b"");
        is_over.store(true, Relaxed);
        ended
    });
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(2), "{said}");
    let about = format!("temporary file in '{}'", root.display());
    assert!(said.contains(&about), "{said}");
}
