//! The smallest disks: the space of the input and little more.
//!
//! What a file system takes for itself is made small, as on a large disk it would be: an ext4 has no journal and few
//! inodes, an xfs a small log, and a small btrfs keeps data and metadata together. `SOAK=1` sorts a gigabyte in
//! 128 MiB: on an ext4 of 1.05 times that, on an xfs of 1.08 times, on a btrfs of 1.25 times just as mkfs makes it.
//!
//! A btrfs frees an extent only when all of it is freed. Runs are written in small ones for that reason; here the input is, too,
//! which otherwise would have extents of up to 128 MiB, and need room for the largest of them.

use std::fs::File;
use std::io::{BufWriter, Write};

use crate::disk::Disk;
use crate::testbed::{Content, Testbed, records};

/// A sort on a disk: MiB of input, of memory, and bytes of the disk.
struct Case {
    kind: &'static str,
    mkfs: &'static [&'static str],
    input: u64,
    memory: u64,
    disk_bytes: u64,
}

impl Case {
    fn run(&self) {
        let Some(disk) = Disk::with(self.kind, self.disk_bytes, self.mkfs) else {
            return;
        };
        let testbed = Testbed::on(&disk.root());
        let content = self.write_input(&testbed);
        let before = testbed.identity("data");
        let memory = format!("{}M", self.memory);
        let words = [
            "--record",
            "24",
            "--key",
            "0:4:u32le",
            "-S",
            &memory,
            "--json",
            "--in-place",
            "data",
        ];
        let told = testbed.sort(&words);
        assert_eq!(told.code, 0, "{}: {}", self.kind, told.err);
        let peak = told.json()["peak_disk_bytes"].as_u64().expect("a number") as f64 / before.1 as f64;
        let _ = writeln!(
            std::io::stderr(),
            "{}: {} MiB in {memory} on a disk of {:.3} times that, at most {peak:.3} times taken",
            self.kind,
            self.input,
            self.disk_bytes as f64 / (self.input << 20) as f64
        );
        assert!(
            Content::of_sorted_file(&testbed.path("data")) == content,
            "records are lost or doubled"
        );
        assert_eq!(
            (testbed.identity("data"), testbed.names()),
            (before, vec!["data".to_owned()])
        );
    }

    fn write_input(&self, testbed: &Testbed) -> Content {
        let file = File::create(testbed.path("data")).expect("a file");
        // Or xfs takes room ahead of the end of a growing file.
        let size = self.input * ((1 << 20) / 24 * 24);
        file.set_len(size).expect("a size");
        let mut to = BufWriter::with_capacity(1 << 20, file);
        let mut content = Content::of(&[]);
        for seed in 0..self.input {
            let records = records((1 << 20) / 24, seed);
            content.add(&records);
            to.write_all(&records).expect("writing");
            if self.kind == "btrfs" {
                to.flush().and_then(|()| to.get_ref().sync_data()).expect("an extent");
            }
        }
        to.into_inner().expect("writing").sync_all().expect("syncing");
        content
    }
}

fn is_soak() -> bool {
    std::env::var_os("SOAK").is_some()
}

const EXT4: &[&str] = &["-O", "^has_journal", "-T", "largefile", "-N", "64"];
#[test]
fn a_sort_in_place_needs_hardly_more_disk_than_its_input_on_ext4() {
    let (input, memory) = if is_soak() { (1024, 128) } else { (96, 12) };
    Case {
        kind: "ext4",
        mkfs: EXT4,
        input,
        memory,
        disk_bytes: (input << 20) / 100 * 105,
    }
    .run();
}

/// mkfs.xfs makes no file system this small, or with so small a log, unless it is told that nobody asks for support; that of
/// Debian 13 makes no log of less than 12.6 MB even so.
const XFS: &[&str] = &["--unsupported", "-l", "size=13m"];
#[test]
fn a_sort_in_place_needs_hardly_more_disk_than_its_input_on_xfs() {
    let (input, memory) = if is_soak() { (1024, 128) } else { (208, 26) };
    Case {
        kind: "xfs",
        mkfs: XFS,
        input,
        memory,
        disk_bytes: (input << 20) / 100 * if is_soak() { 109 } else { 117 },
    }
    .run();
}

/// The story: runs were written in pieces of tens of megabytes, of which btrfs freed nothing before all was merged, and a full
/// disk stopped the sort. Later they were written in pieces of a megabyte: on a small disk, one for each run and lane was too much.
#[test]
fn a_sort_in_place_needs_a_quarter_more_disk_than_its_input_on_btrfs() {
    let (input, memory, mkfs): (u64, u64, &[&str]) = if is_soak() {
        (1024, 128, &[])
    } else {
        (208, 16, &["--mixed"])
    };
    Case {
        kind: "btrfs",
        mkfs,
        input,
        memory,
        disk_bytes: (input << 20) / 100 * 125,
    }
    .run();
}
