//! fsx and fio: every byte read is the one written, inside the job and after its commit.

use std::fs;
use std::path::Path;

use elbow_testkit::cases::{is_soak, seeds_of};

use crate::testbed::{Storage, Testbed, Way, program};

/// Sequences of fsx in a usual run, and how many calls each has.
const SEQUENCES: u64 = 6;
const CALLS: &str = "2000";
/// How many times as many in a soak.
const SOAK: u64 = 10;

/// All that it can do and every storage here takes; it takes the refusal of posix_fallocate(3) of no bytes for a storage that has none.
const FSX: &str = "[opsize]
min = 1
max = 65536
[weights]
close_open = 2
read = 10
write = 10
mapread = 10
mapwrite = 10
invalidate = 1
truncate = 4
fsync = 1
fdatasync = 1
posix_fallocate = 2
punch_hole = 2
sendfile = 2
posix_fadvise = 1
copy_file_range = 2
";

/// One sequence; what the file holds in the end.
fn run_fsx(testbed: &Testbed, way: Way, suite: &Path, seed: u64) -> Vec<u8> {
    let (configuration, work) = (testbed.outside("fsx.toml"), testbed.fresh(way));
    fs::write(&configuration, FSX).expect("a configuration");
    let artifacts = testbed.outside("");
    let paths = [suite, &configuration, &artifacts].map(|path| path.to_str().expect("UTF-8"));
    let seed = seed.to_string();
    let words = [
        paths[0], "-f", paths[1], "-P", paths[2], "-S", &seed, "-N", CALLS, "file",
    ];
    let run = testbed.run(&work, way, &words);
    assert_eq!(run.code, 0, "SEED={seed}, {way:?}:\n{}\n{}", run.out, run.err);
    fs::read(work.join("file")).expect("the file of fsx")
}

fn assert_same_fsx(storage: Storage) {
    let (Some(suite), Some(testbed)) = (program("fsx"), Testbed::new(storage)) else {
        return;
    };
    for seed in seeds_of(SEQUENCES, SOAK) {
        let native = run_fsx(&testbed, Way::Native, &suite, seed);
        let job = run_fsx(&testbed, Way::Job, &suite, seed);
        assert!(
            native == job,
            "SEED={seed} on {}: the file is another one after the commit",
            storage.name()
        );
    }
}

#[test]
fn fsx_on_ext4_reads_what_it_wrote_and_so_does_everybody_after_the_commit() {
    assert_same_fsx(Storage::Ext4);
}

#[test]
fn fsx_on_slow_storage_reads_what_it_wrote_and_so_does_everybody_after_the_commit() {
    if is_soak("fsx on slow storage") {
        assert_same_fsx(Storage::Slowfs);
    }
}

/// How the files are written that are then verified: name, and words of fio.
const LOADS: [(&str, &[&str]); 6] = [
    ("sequential", &["--rw=write", "--bs=64k"]),
    ("random", &["--rw=randwrite", "--bsrange=512-64k"]),
    ("mapped", &["--rw=randwrite", "--bs=4k", "--ioengine=mmap"]),
    (
        "many at once",
        &["--rw=randwrite", "--bs=8k", "--ioengine=libaio", "--iodepth=16"],
    ),
    ("synced", &["--rw=randwrite", "--bs=4k", "--fsync=32", "--size=4m"]),
    ("read and written", &["--rw=randrw", "--bs=4k", "--rwmixread=30"]),
];

fn fio(suite: &Path) -> Vec<&str> {
    let program = suite.to_str().expect("UTF-8");
    let always = [
        "--name=load",
        "--directory=.",
        "--size=24m",
        "--numjobs=2",
        "--verify=crc32c",
    ];
    [
        &[program][..],
        &always,
        &["--verify_fatal=1", "--group_reporting", "--randseed=7"],
    ]
    .concat()
}

fn assert_verified(storage: Storage, suite: &Path) {
    let Some(testbed) = Testbed::new(storage) else { return };
    for (name, load) in LOADS {
        for way in [Way::Native, Way::Job] {
            let work = testbed.fresh(way);
            let inside = testbed.run(&work, way, &[&fio(suite)[..], load, &["--do_verify=1"]].concat());
            assert_eq!(
                inside.code,
                0,
                "{name} on {}, {way:?}:\n{}\n{}",
                storage.name(),
                inside.out,
                inside.err
            );
            let outside = testbed.run(
                &work,
                Way::Native,
                &[&fio(suite)[..], load, &["--verify_only"]].concat(),
            );
            assert_eq!(
                outside.code,
                0,
                "{name} on {}, after {way:?}:\n{}\n{}",
                storage.name(),
                outside.out,
                outside.err
            );
        }
    }
}

#[test]
fn fio_verifies_what_it_wrote_in_the_job_and_after_the_commit() {
    if !is_soak("fio") {
        return;
    }
    let Some(suite) = program("fio") else { return };
    for storage in [Storage::Ext4, Storage::Slowfs] {
        assert_verified(storage, &suite);
    }
}
