//! The workloads of the study, and what becomes of them.

use std::io::Read as _;

use elbow_disk::Ps;
use elbow_ext2::{
    Andrew, ConstantDisk, Ext2, Ext2Error, Options, Policy, PostMark, Region, Run, SmallFiles, Trace, TraceSummary,
};
use elbow_file::{Access, RealStorage, Storage};
use rand::Rng;

use crate::judges;

const POLICIES: [Policy; 2] = [Policy::Classic, Policy::Range(Region::Group)];

/// A file of the data that is shared beside the repository; `None`, said aloud, where it is absent.
fn shared(name: &str) -> Option<String> {
    let path = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/data/workloads")
        .join(name);
    let Ok(file) = RealStorage::open_file(&path, Access::Read) else {
        eprintln!("SKIPPED: no {}", path.display());
        return None;
    };
    let size = RealStorage.stat_handle(&file).unwrap().size;
    let mut packed = vec![0; size as usize];
    assert_eq!(RealStorage.read(&file, &mut packed, 0).unwrap() as u64, size);
    let mut text = String::new();
    flate2::read::GzDecoder::new(&packed[..])
        .read_to_string(&mut text)
        .unwrap();
    Some(text)
}

fn run(policy: Policy, blocks: u32) -> Run<ConstantDisk> {
    let fs = Ext2::new(Options {
        policy,
        ..Options::new(blocks)
    })
    .unwrap();
    Run::new(fs, ConstantDisk::capricious(Ps::from_ms(5.0), 1))
}

fn judge(run: Run<ConstantDisk>) {
    if judges::are_there() {
        let image = judges::image(&mut run.into_parts().0);
        judges::e2fsck(&image).unwrap_or_else(|said| panic!("e2fsck: {said}"));
    }
}

#[test]
fn the_real_postmark_comes_out_of_its_strace() {
    let Some(text) = shared("postmark_default.strace.gz") else {
        return;
    };
    let trace = Trace::parse_strace("postmark", &text, "/tmp/disk-bench/pm").unwrap();
    let summary = trace.summary();
    assert_eq!((summary.creates, summary.deletes), (764, 764));
    assert_eq!((summary.reads, summary.appends), (243, 257));
    let megabytes = summary.bytes_written as f64 / 1e6;
    let mebibytes = summary.bytes_written as f64 / f64::from(1 << 20);
    assert!(
        (megabytes - 4.45).abs() < 0.005 || (mebibytes - 4.45).abs() < 0.005,
        "{megabytes} MB, {mebibytes} MiB"
    );
    assert_eq!(Trace::parse("text", &trace.to_string()).unwrap(), trace);
    for policy in POLICIES {
        let mut run = run(policy, 100_000);
        run.replay(&trace).unwrap();
        judge(run);
    }
}

#[test]
fn a_real_tree_is_unpacked() {
    let Some(listing) = shared("linux-2.6.20.sizes.tsv.gz") else {
        return;
    };
    let trace = Trace::untar("linux", &listing).unwrap();
    let TraceSummary {
        creates, bytes_written, ..
    } = trace.summary();
    // The listing has 21,278 files and no links.
    assert_eq!(
        (creates, bytes_written / 1_000_000),
        (21_278, listing_bytes(&listing) / 1_000_000)
    );
    for policy in POLICIES {
        let mut run = run(policy, 256_000);
        let report = run.replay(&trace).unwrap();
        let data = report.statistics.writes[&elbow_ext2::Purpose::Data];
        assert!(data.1 >= bytes_written / 4096, "{data:?}");
        judge(run);
    }
}

fn listing_bytes(listing: &str) -> u64 {
    listing
        .lines()
        .map(|line| line.split('\t').next().unwrap().parse::<u64>().unwrap())
        .sum()
}

#[test]
fn synthetic_workloads_leave_a_whole_file_system() {
    for policy in POLICIES {
        for trace in [PostMark::default().trace("/mail"), Andrew::default().trace("/andrew")] {
            let mut run = run(policy, 100_000);
            let report = run.replay(&trace).unwrap();
            assert!(report.elapsed >= report.processes);
            judge(run);
        }
    }
    let summary = PostMark::default().trace("/mail").summary();
    // The defaults give about 500 + 250 files, and 250 reads and appends each.
    assert!(
        (700..800).contains(&summary.creates) && summary.creates == summary.deletes,
        "{summary:?}"
    );
    assert!(
        (200..300).contains(&summary.reads) && (200..300).contains(&summary.appends),
        "{summary:?}"
    );
}

#[test]
fn one_process_writes_in_a_row_and_sixteen_are_spread() {
    let gaps = |processes: u32| {
        let mut run = run(Policy::Classic, 100_000);
        run.replay(&Trace::parse("t", "1 mkdir /small").unwrap()).unwrap();
        let files = SmallFiles {
            files: 320,
            bytes: 4096,
            processes,
        };
        run.replay(&files.trace("/small")).unwrap();
        let place = |file: u32| run.fs().places(&format!("/small/{file}")).unwrap()[0].unwrap();
        let mut place = place;
        let places: Vec<u32> = (0..320).map(&mut place).collect();
        let requests = run.fs().statistics().writes[&elbow_ext2::Purpose::Data].0;
        (
            places.windows(2).filter(|pair| pair[1] != pair[0] + 1).count(),
            requests,
        )
    };
    let (gaps_of_one, requests_of_one) = gaps(1);
    assert!(gaps_of_one <= 1, "{gaps_of_one}");
    assert!(
        requests_of_one <= 4,
        "the elevator merges what is adjacent: {requests_of_one}"
    );
    let (gaps_of_many, requests_of_many) = gaps(16);
    assert_eq!(gaps_of_many, 319, "each goes to another mini-group than the one before");
    assert!(requests_of_many >= 16, "{requests_of_many}");
}

#[test]
fn without_an_elevator_each_file_is_a_write() {
    let options = Options {
        merge: false,
        ..Options::new(100_000)
    };
    let mut run = Run::new(Ext2::new(options).unwrap(), ConstantDisk::new(Ps::from_ms(5.0)));
    let files = SmallFiles {
        files: 320,
        bytes: 8192,
        processes: 1,
    };
    let report = run.replay(&files.trace("")).unwrap();
    assert_eq!(report.statistics.writes[&elbow_ext2::Purpose::Data], (320, 640));
}

#[test]
fn range_writes_take_any_place_of_the_region() {
    for (region, minis) in [(Region::MiniGroup, 1), (Region::Group, 16)] {
        let mut run = run(Policy::Range(region), 100_000);
        run.replay(&Trace::parse("t", "1 mkdir /small").unwrap()).unwrap();
        let files = SmallFiles {
            files: 300,
            bytes: 8192,
            processes: 1,
        };
        let report = run.replay(&files.trace("/small")).unwrap();
        assert_eq!(report.statistics.range_writes, 300);
        assert!(report.statistics.ranges_outstanding_max > 64, "{report:?}");
        let mut used = std::collections::BTreeSet::new();
        for file in 0..300 {
            let places = run.fs().places(&format!("/small/{file}")).unwrap();
            let [Some(first), Some(second)] = places[..] else {
                panic!("{places:?}")
            };
            assert_eq!(second, first + 1, "contiguous after the first");
            used.insert(first / 2048 % 16);
        }
        assert_eq!(used.len(), minis);
    }
}

#[test]
fn a_group_can_be_used_up_beforehand() {
    for (fraction, runs) in [(0.3, 1), (0.9, 8)] {
        let mut fs = Ext2::new(Options {
            policy: Policy::Range(Region::MiniGroup),
            ..Options::new(100_000)
        })
        .unwrap();
        fs.apply(1, &elbow_ext2::Action::Mkdir("/small".into())).unwrap();
        let group = fs.group_of("/small").unwrap();
        let before = fs.free_blocks();
        fs.occupy(group, fraction, runs).unwrap();
        let taken = before - fs.free_blocks();
        assert!(taken.abs_diff((32_768.0 * fraction) as u64) < 600, "{taken}");
        let again = fs.occupy(group, fraction, runs);
        assert_eq!(again, Err(Ext2Error::Exists(format!("/ballast-{group}"))));
        let mut run = Run::new(fs, ConstantDisk::capricious(Ps::from_ms(5.0), 1));
        let files = SmallFiles {
            files: 500,
            bytes: 4096,
            processes: 16,
        };
        let report = run.replay(&files.trace("/small")).unwrap();
        assert_eq!(report.statistics.range_writes, 500);
        judge(run);
    }
}

#[test]
fn concurrent_processes_do_not_wait_for_each_other() {
    let text = "1 create /a\n1 append /a - 4096\n1 fsync /a\n2 think - - 3000000\n2 create /b\n";
    let trace = Trace::parse("t", text).unwrap();
    let mut ordered = run(Policy::Classic, 40_000);
    let mut concurrent = run(Policy::Classic, 40_000);
    concurrent.concurrent = true;
    // fsync writes the data and the inode, 5 ms each.
    assert_eq!(ordered.replay(&trace).unwrap().processes.ms(), 13.0);
    assert_eq!(concurrent.replay(&trace).unwrap().processes.ms(), 10.0);
}

#[test]
fn an_operation_that_fails_is_named() {
    let trace = Trace::parse("t", "1 create /a\n1 mkdir /a/b\n").unwrap();
    let error = run(Policy::Classic, 40_000).replay(&trace).unwrap_err();
    assert_eq!(
        error.to_string(),
        "operation 2 of the trace (1 mkdir /a/b): /a: not a directory"
    );
}

/// Nothing that is read as a trace makes the reader or the model panic.
#[test]
fn broken_traces_are_errors() {
    let good = "5 mkdir /d\n5 create /d/a%20b\n5 write /d/a%20b 0 100\n5 append /d/a%20b - 7\n5 read /d/a 5 10\n5 rename /d /e\n\
        5 openat(AT_FDCWD, \"/d/a\\303\", O_RDWR|O_CREAT, 0666) = 4\n5 write(4, \"x) = 7, \\\"\", 100) = 100\n5 lseek(4, 50, SEEK_SET) = 50\n\
        5 pwrite64(4, \"y\", 9, 4096) = 9\n5 ftruncate(4, 77) = 0\n6 clone() = 7\n5 rename(\"/d/a\", \"/d/b\") = 0\n7\t/a/b\n";
    let lines: Vec<&[u8]> = good.lines().map(str::as_bytes).collect();
    let done = std::cell::Cell::new(0);
    elbow_testkit::cases::for_each_seed(1_000, |rng| {
        let mut text = String::new();
        for _ in 0..6 {
            let mut line = lines[rng.random_range(0..lines.len())].to_vec();
            for _ in 0..rng.random_range(0..3) {
                let at = rng.random_range(0..line.len());
                match rng.random_range(0..3) {
                    0 => line[at] = rng.random(),
                    1 => line.insert(at, b"%\"\\(=,/9 -"[rng.random_range(0..10)]),
                    _ => line.truncate(at + 1),
                }
            }
            text += &format!("{}\n", String::from_utf8_lossy(&line));
        }
        let words = || text.lines().filter(|line| Trace::parse("t", line).is_ok());
        let first = "5 mkdir /d\n5 create /d/a\n5 create /d/a%20b\n".to_owned();
        let possible = words().fold(first, |text, line| format!("{text}{line}\n"));
        let traces = [
            Trace::parse("t", &possible),
            Trace::parse("t", &text),
            Trace::parse_strace("t", &text, "/d"),
            Trace::untar("t", &text),
        ];
        for trace in traces.into_iter().flatten() {
            let mut fs = Ext2::new(Options::new(3_000)).unwrap();
            for operation in &trace.operations {
                let applied = fs.apply(operation.pid, &operation.action);
                done.set(done.get() + u32::from(applied.is_ok()));
            }
            let _ = trace.summary();
            assert_eq!(Trace::parse("t", &trace.to_string()).unwrap(), trace, "{text}");
        }
    });
    let fewer = ["SEED", "ROUNDS"]
        .into_iter()
        .any(|name| std::env::var_os(name).is_some());
    assert!(done.get() > 3_000 || fewer, "{} operations were done", done.get());
}
