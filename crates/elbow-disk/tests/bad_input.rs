//! Descriptions and traces that are wrong: an error with file, line and reason, and never a panic.

mod support;

#[allow(unreachable_pub)] // the fuzz crate exports it
#[path = "../../../fuzz/src/disk.rs"]
mod bodies;

use elbow_disk::trace::{Format, Trace};
use elbow_disk::{Controller, Drive, replay};
use elbow_testkit::cases::for_each_seed;
use rand::Rng;
use rand::rngs::StdRng;

/// The HP C2247A with some text replaced.
fn drive_with(from: &str, to: &str) -> String {
    let text = Drive::description("hp-c2247a").expect("built in");
    assert!(text.contains(from), "{from}");
    text.replacen(from, to, 1)
}

#[test]
fn a_wrong_description_names_file_line_and_key() {
    let cases = [
        (
            "cylinders = [559, 760]",
            "cylinders = [558, 760]",
            "key `zone[1].cylinders`: zone 558 to 760 overlaps the zone before",
        ),
        (
            "cylinders = [559, 760]",
            "cylinders = [560, 760]",
            "key `zone[1].cylinders`: the zone begins at cylinder 560, but 559",
        ),
        (
            "cylinders = [559, 760]",
            "cylinders = [559, 4]",
            "key `zone[1].cylinders`: 559 to 4 with 13 heads",
        ),
        (
            "track_skew = 14",
            "trak_skew = 14",
            "key `zone[0].trak_skew`: unknown field `trak_skew`, expected one of",
        ),
        (
            "heads = 13",
            "heads = \"13\"",
            "key `heads`: invalid type: string \"13\", expected u32",
        ),
        ("heads = 13", "heads = 0", "key `heads`: 0 heads"),
        (
            "heads = 13",
            "heads = 13.5",
            "key `heads`: invalid type: floating point",
        ),
        ("heads = 13", "", "missing field `heads`"),
        (
            "rotation_ms = 11.111114833",
            "rotation_ms = 0",
            "key `rotation_ms`: one turn of 0 ms",
        ),
        (
            "read_hit_ms = 0.95343",
            "read_hit_ms = -1",
            "key `command.read_hit_ms`: -1 is no time",
        ),
        (
            "pause_ms = 0.42885",
            "pause_ms = nan",
            "key `command.scattered_write.pause_ms`: NaN is no time",
        ),
        (
            "linear_ms = [7.75, 0.0059]",
            "",
            "key `seek`: the seek curve is missing",
        ),
        (
            "linear_ms = [7.75, 0.0059]",
            "points_ms = [[5, 1.0], [5, 2.0]]",
            "key `seek.points_ms`: (5, 2.0) after (5, 1.0)",
        ),
        (
            "slipped = [582, 595, 699]",
            "slipped = [582, 582]",
            "key `zone[3].slipped`: 582 after 582",
        ),
        (
            "slipped = [582, 595, 699]",
            "slipped = [99999]",
            "key `zone[3].slipped`: track 99999 is not among",
        ),
        (
            "spare_tracks = 78",
            "spare_tracks = 2",
            "key `zone[3].slipped`: 3 slipped tracks, but only 2 spare",
        ),
        (
            "spare_tracks = 78",
            "spare_tracks = 1950",
            "key `zone[3].cylinders`: no data track is left",
        ),
        (
            "sectors_per_track = 84",
            "sectors_per_track = 0",
            "key `zone[3].sectors_per_track`: 0 sectors",
        ),
        (
            "write_segments = 1",
            "write_segments = 2",
            "key `cache`: 2 segments, 2 of them for writes",
        ),
        ("heads = 13", "heads = = 13", "extra `=`"),
        (
            "write_settle_ms = 0.65",
            "write_settle_ms = -0.9",
            "key `seek`: a write takes 0.9 ms less than a read, and the shortest movement 0.89 ms",
        ),
        (
            "spare_tracks = 78",
            "spare_tracks = 78\nspare_sectors = 3",
            "key `zone[3].cylinders`: the zone spares tracks and sectors",
        ),
        (
            "spare_tracks = 130\nslipped = [231, 868, 1125, 1458, 1479, 1492]",
            "slipped_sectors = [7, 5]",
            "key `zone[1].slipped_sectors`: 5 after 7: slipped sectors have to rise",
        ),
        (
            "spare_tracks = 130\nslipped = [231, 868, 1125, 1458, 1479, 1492]",
            "slipped_sectors = [241592]",
            "key `zone[1].slipped_sectors`: sector 241592 is not among the zone's 241592",
        ),
        (
            "spare_tracks = 130\nslipped = [231, 868, 1125, 1458, 1479, 1492]",
            "spare_sectors = 92\nspare_every_tracks = 1",
            "key `zone[1].cylinders`: 92 spare sectors of every 92",
        ),
        (
            "spare_tracks = 130\nslipped = [231, 868, 1125, 1458, 1479, 1492]",
            "front_sectors = 241592",
            "key `zone[1].cylinders`: no data sector is left",
        ),
        (
            "write_segments = 1",
            "write_segments = 1\nkeep_written = true",
            "key `cache`: what was written can be read only from segments for both",
        ),
        (
            "[[zone]]",
            "[write_cache]\nsegments = 0\n[[zone]]",
            "key `write_cache`: 0 segments for written data",
        ),
    ];
    for (from, to, expected) in cases {
        let text = drive_with(from, to);
        let error = Drive::parse("mine.toml", &text).expect_err(to).to_string();
        assert!(error.contains(expected), "{to}: {error}");
        let at: usize = error
            .strip_prefix("mine.toml:")
            .and_then(|rest| rest.split(':').next()?.parse().ok())
            .expect("a line");
        let line = text.lines().nth(at - 1).expect("a line of the file");
        if let Some(key) = error.split("key `").nth(1).and_then(|rest| rest.split('`').next()) {
            let last = key.rsplit('.').next().expect("a word");
            assert!(line.contains(last), "{to}: line {at} is {line}");
        }
    }
}

#[test]
fn a_drive_that_is_not_there_says_what_is() {
    let error = Drive::named("/no/such.toml").expect_err("no file").to_string();
    assert!(
        error.contains("/no/such.toml") && error.contains("hp-c2247a, generic-7200"),
        "{error}"
    );
}

fn error_of(format: Format, trace: &str) -> String {
    let drive = Drive::named("hp-c2247a").expect("built in");
    let trace = Trace::new("t", format, trace.as_bytes(), drive.sectors());
    replay(trace, Controller::new(&drive), |_, _, _| ())
        .expect_err("a wrong trace")
        .to_string()
}

#[test]
fn a_wrong_trace_names_file_line_and_reason() {
    use Format::{Blktrace, Csv, DiskSim, Fio, Msr, Spc, Validate};
    let cases = [
        (
            DiskSim,
            "0 0 5 8 0\n1 0 2054860 8 0\n",
            "t:2: sectors 2054860 to 2054867 are not on the drive, which has 2054864",
        ),
        (
            DiskSim,
            "0 0 5 8 0\n1 0 18446744073709551615 8 0\n",
            "t:2: sectors 18446744073709551615 to 18446744073709551615",
        ),
        (
            DiskSim,
            "0 0 5 8 0\n1 0 50",
            "t:2: the line ends before the number of sectors",
        ),
        (DiskSim, "# a comment\n\n0 0 5 0 0\n", "t:3: a request of no sectors"),
        (DiskSim, "0 0 5 8 0 9\n", "t:1: `9` is too much on the line"),
        (
            DiskSim,
            "5 0 5 8 0\n4 0 5 8 0\n",
            "t:2: the arrival at 4.000000 ms is before the last",
        ),
        (DiskSim, "5 0 5 8 0\n6 1 5 8 0\n", "t:2: device 1 after 0"),
        (DiskSim, "inf 0 5 8 0\n", "t:1: `inf` is no arrival"),
        (DiskSim, "-1 0 5 8 0\n", "t:1: `-1` is no arrival"),
        (
            DiskSim,
            "0 0 5 2000000 0\n",
            "t:1: a request of 2000000 sectors; 1048576 are the most",
        ),
        (Validate, "X Miss 5 8 1 1\n", "t:1: `X` is neither R nor W"),
        (
            Validate,
            "R Miss 5 8 1\n",
            "t:1: the line ends before the time to the next",
        ),
        (
            Validate,
            "R Miss 5 8 1 3e12\nR Miss 5 8 1 3e12\nR Miss 5 8 1 0\n",
            "t:3: the simulated clock passes 53 days",
        ),
        (
            Blktrace,
            "8,0 0 1 0.5 1 Q R 5 + 8 [x]\n8 0 1 0.5 1 Q R 5 + 8\n",
            "t:2: `8` is no device",
        ),
        (
            Blktrace,
            "8,0 0 1 0.5 1 Q R 5 + \n",
            "t:1: the line ends before the number of sectors",
        ),
        (
            Blktrace,
            "8,0 0 1 0.5 1 Q R 5 + 8 [x]\n8,16 0 1 0.6 1 Q R 5 + 8 [x]\n",
            "t:2: device 8,16 after others",
        ),
        (Fio, "fio version 9 iolog\n", "t:1: `fio version 9 iolog` is not known"),
        (
            Fio,
            "fio version 2 iolog\n/dev/sdb flush\n",
            "t:2: `flush` is no action",
        ),
        (
            Fio,
            "fio version 2 iolog\n/dev/sdb write 100 512\n",
            "t:2: 512 bytes at 100 are no whole sectors",
        ),
        (Fio, "10, 5000, 0, 4096\n", "t:1: the line ends before the offset"),
        (
            Msr,
            "128166372003061629,usr,0,Read,512,512\n",
            "t:1: the line ends before the response in ticks of 100 ns",
        ),
        (Msr, "-5,usr,0,Read,512,512,9\n", "t:1: `-5` is no timestamp"),
        (Msr, "5,usr,0,Trim,512,512,9\n", "t:1: `Trim` is no op"),
        (
            Msr,
            "5,usr,0,Read,512,512,9\n6,usr,1,Read,512,512,9\n",
            "t:2: disk usr,1 after others",
        ),
        (
            Msr,
            "5,usr,0,Read,512,512,9\n18446744073709551615,usr,0,Read,512,512,9\n",
            "t:2: `18446744073709551615` is no timestamp in ticks: expected a number from 0 to 34560000000005",
        ),
        (
            Msr,
            "5,usr,0,Read,100,512,9\n",
            "t:1: 512 bytes at 100 are no whole sectors",
        ),
        (Msr, "5,usr,0,Read,512,512,9,8\n", "t:1: `8` is too much on the line"),
        (Msr, "5,usr,0,Read,7014609920,512,9\n", "t:1: sectors 13700410 to"),
        (Spc, "0,5,512,X,0.5\n", "t:1: `X` is neither R nor W"),
        (Spc, "0,5,512,R\n", "t:1: the line ends before the time in s"),
        (Spc, "0,5,512,R,-1\n", "t:1: `-1` is no time in s"),
        (Spc, "0,5,100,R,0\n", "t:1: 100 bytes at 2560 are no whole sectors"),
        (
            Spc,
            "3,5,512,R,0\n4,5,512,R,0\n",
            "t:2: unit 4 after 3: one drive is simulated; filter one, as with `awk -F, '$1 == 3'`",
        ),
        (
            Spc,
            "0,18446744073709551615,512,R,0\n",
            "t:1: sectors 18446744073709551615 to",
        ),
        (Csv, "lbn,op\n5,R\n", "t:1: no column `sectors`"),
        (Csv, "lbn,sectors,op\n5,8,X\n", "t:2: `X` is no op"),
        (Csv, "lbn,sectors,op\n5\n", "t:2: the line ends before `sectors`"),
    ];
    for (format, trace, expected) in cases {
        let error = error_of(format, trace);
        assert!(error.starts_with(expected), "{trace:?}: {error}");
    }
    assert!(error_of(Csv, &"x".repeat(1 << 20)).starts_with("t:1: a line of more than 4096 bytes"));
    assert!(error_of(DiskSim, "\u{1f}\u{fffd}\n").starts_with("t:1: "));
}

#[test]
fn a_trace_of_unknown_format_shows_its_begin_and_names_the_formats() {
    let error = |text: &[u8]| match Trace::detect("t", text, 2_054_864) {
        Ok(trace) => panic!("taken: {}", trace.count()),
        Err(error) => error.to_string(),
    };
    let expected = "t:3: `begins so` begins no trace of a known format; if it is one, name it: disksim, validate, blktrace, fio, msr, spc, csv";
    assert_eq!(error(b"\n# comment\nbegins so\n"), expected);
    assert!(error(b"hello\n").starts_with("t:1: `hello` begins no trace"));
    assert!(error(&[0xff; 90]).starts_with("t:1: not text"));
    assert!(error(&[b'x'; 9000]).starts_with("t:1: a line of more than 4096 bytes"));
    assert!(error(&[0x1f, 0x8b, 0]).starts_with("t:1: cannot read"));
}

/// A gzip file that breaks off is an error, not the end of the trace.
#[test]
fn a_torn_gzip_file_is_an_error() {
    use std::io::Write;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    for lbn in 0..5000 {
        writeln!(packed, "{lbn} 0 {} 8 0", lbn * 77 % 9973).expect("memory");
    }
    let packed = packed.finish().expect("memory");
    let drive = Drive::named("hp-c2247a").expect("built in");
    let run = |bytes: &[u8]| {
        let trace = Trace::new("t.gz", Format::DiskSim, bytes, drive.sectors());
        replay(trace, Controller::new(&drive), |_, _, _| ()).map(|report| report.all.requests)
    };
    assert_eq!(run(&packed).expect("whole"), 5000);
    let error = run(&packed[..packed.len() / 2]).expect_err("torn").to_string();
    assert!(error.starts_with("t.gz:") && error.contains("cannot read"), "{error}");
}

/// Bytes of `seeds` with some replaced, cut, doubled.
fn damage(random: &mut StdRng, seeds: &[&str]) -> Vec<u8> {
    let mut bytes = seeds[random.random_range(0..seeds.len())].as_bytes().to_vec();
    let other = seeds[random.random_range(0..seeds.len())].as_bytes();
    for _ in 0..random.random_range(1..6) {
        let at = random.random_range(0..=bytes.len());
        let from = random.random_range(0..other.len());
        let piece = &other[from..(from + random.random_range(0..20)).min(other.len())];
        match random.random_range(0..4) {
            0 => bytes.truncate(at.max(1)),
            1 => bytes.insert(at, random.random()),
            2 => drop(bytes.splice(at..at, piece.iter().copied())),
            _ => drop(bytes.splice(
                at..(at + 3).min(bytes.len()),
                b"-9e9"[..random.random_range(0..4)].iter().copied(),
            )),
        }
    }
    bytes
}

const SMALL: &str = "name = 's'\nheads = 2\nrotation_ms = 8\nseek = { head_switch_ms = 0.5, points_ms = [[1, 1], [9, 2]] }\n\
    [command]\nread_miss_ms = 1\nscattered_write = { pause_ms = 2 }\n[bus]\nwrite_sector_ms = 0.3\n\
    [cache]\nsegments = 3\nsegment_sectors = 40\nread_ahead_sectors = 9\n\
    keep_written = true\nkeep_passing = true\nread_ahead_until = 'track'\n[write_cache]\nsegments = 2\nidle_ms = 3\n\
    [[zone]]\ncylinders = [0, 8]\nsectors_per_track = 12\nspare_tracks = 3\nslipped = [4, 6]\n\
    [[zone]]\ncylinders = [9, 19]\nsectors_per_track = 8\ntrack_skew = 3\n\
    [[zone]]\ngap_cylinders = 2\ncylinders = [22, 30]\nsectors_per_track = 8\nspare_sectors = 1\nspare_every_tracks = 2\nslipped_sectors = [3]\n";

#[test]
fn no_bytes_break_a_description() {
    bodies::drive(SMALL.as_bytes());
    assert!(Drive::parse("small", SMALL).is_ok());
    for_each_seed(300, |random| {
        bodies::drive(&damage(random, &[SMALL]));
    });
}

#[test]
fn no_bytes_break_a_trace() {
    let seeds = [
        "\u{0}0.5 0 1000 8 0\n7.25 0 2000 8 1\n",
        "\u{1}R Miss 564347 2 14095.37 13876.27\nW Doub 1194877 15 17221 21894\n",
        "\u{2}8,0 1 1 0.000000000 697 Q WS 223490 + 8 [k]\n8,0 1 2 0.1 697 C R 5 + 8 [0]\n",
        "\u{3}fio version 2 iolog\n/dev/sdb add\n/dev/sdb wait 500 0\n/dev/sdb write 4096 8192\n",
        "\u{3}fio version 3 iolog\n12 /dev/sdb read 4096 8192\n",
        "\u{3}10, 5000, 0, 4096, 8192, 0\n",
        "\u{4}128166372003061629,usr,0,Read,7014609920,24576,41286\n128166372016382155,usr,0,Write,3072,512,96\n",
        "\u{5}0,20941264,8192,W,0.551706\n0,20939840,8192,r,0.554041,x\n",
        "\u{6}lbn,sectors,op,arrival_ms\n5,8,R,0.5\n",
        "\u{7}# what\n0,96,512,W,0.5\n",
    ];
    for seed in seeds {
        bodies::trace(seed.as_bytes());
    }
    for_each_seed(3000, |random| {
        bodies::trace(&damage(random, &seeds));
    });
}
