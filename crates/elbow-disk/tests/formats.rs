//! Each format of traces, read.

use elbow_disk::trace::{Arrival, Format, Omissions, Record, RecordKind, Trace};
use elbow_disk::{Controller, Drive, Lbn, Ps, Report, Request, replay};

fn read(format: Format, text: &str) -> Vec<Record> {
    Trace::new("t", format, text.as_bytes(), 2_054_864)
        .map(|record| record.expect(text))
        .collect()
}

fn request(lbn: u64, sectors: u32, write: bool) -> Request {
    Request {
        lbn: Lbn(lbn),
        sectors,
        write,
    }
}

fn at(ms: f64) -> Arrival {
    Arrival::At(Ps::from_ms(ms))
}

fn after(ms: f64) -> Arrival {
    Arrival::After(Ps::from_ms(ms))
}

/// Arrival and request of each record.
fn short(records: &[Record]) -> Vec<(Arrival, Request)> {
    records.iter().map(|record| (record.arrival, record.request)).collect()
}

#[test]
fn disksim_ascii() {
    let records = read(
        Format::DiskSim,
        "0.5 0 1000 8 0\n\n# comment\n7.25 0 2000 16 1\n7.25 0 9 1 41",
    );
    let expected = [
        (at(0.5), request(1000, 8, true)),
        (at(7.25), request(2000, 16, false)),
        (at(7.25), request(9, 1, false)),
    ];
    assert_eq!(short(&records), expected);
    assert_eq!(records.iter().map(|record| record.line).collect::<Vec<_>>(), [1, 4, 5]);
}

#[test]
fn disksim_validate() {
    let records = read(
        Format::Validate,
        "R Miss 5 2 1500.5 1000\r\nR Hit 7 2 1000 250\nW Trip 9 3 2000 1\n",
    );
    let expected = [
        (after(0.0), request(5, 2, false)),
        (after(1.0), request(7, 2, false)),
        (after(0.25), request(9, 3, true)),
    ];
    assert_eq!(short(&records), expected);
    assert_eq!(records[0].measured, Some(Ps::from_ms(1.5005)));
    let kinds: Vec<_> = records.iter().map(|record| record.kind).collect();
    assert_eq!(
        kinds,
        [Some(RecordKind::Read), Some(RecordKind::Hit), Some(RecordKind::Write)]
    );
}

/// From blkparse(1): queued reads and writes count; completions, flushes, discards and the summary do not.
#[test]
fn blktrace() {
    let text = "  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]\n\
                \x20 8,0    3        2     0.000001829   697  G   W 223490 + 8 [kjournald]\n\
                \x20 8,0    1        5     0.250000000   700  Q  RA 5000 + 16 [cat]\n\
                \x20 8,0    1        6     0.260000000   700  Q FWS [fsync]\n\
                \x20 8,0    1        7     0.270000000   700  Q   D 5000 + 16 [trim]\n\
                \x20 8,0    3       11     0.300000000     0  C   W 223490 + 8 [0]\n\
                CPU3 (sda):\n Reads Queued:           1,        4KiB\n\nTotal (sda):\n";
    let expected = [
        (at(0.0), request(223_490, 8, true)),
        (at(250.0), request(5000, 16, false)),
    ];
    assert_eq!(short(&read(Format::Blktrace, text)), expected);
}

#[test]
fn fio_logs() {
    let version_2 = "fio version 2 iolog\n/dev/sdb add\n/dev/sdb open\n/dev/sdb read 4096 8192\n/dev/sdb wait 500 0\n\
                     /dev/sdb write 512 512\n/dev/sdb sync 0 0\n/dev/sdb close\n";
    let expected = [(after(0.0), request(8, 16, false)), (after(0.5), request(1, 1, true))];
    assert_eq!(short(&read(Format::Fio, version_2)), expected);
    let version_3 = "fio version 3 iolog\n1 /dev/sdb open\n1250 /dev/sdb write 4096 8192\n";
    assert_eq!(short(&read(Format::Fio, version_3)), [(at(1.25), request(8, 16, true))]);
    let latencies = read(
        Format::Fio,
        "10, 2000000, 1, 4096, 8192, 0\n11, 1000, 2, 4096, 8192\n12, 500000, 0, 512, 0\n",
    );
    assert_eq!(
        short(&latencies),
        [(at(8.0), request(16, 8, true)), (at(11.5), request(0, 1, false))]
    );
    assert_eq!(latencies[0].measured, Some(Ps::from_ms(2.0)));
}

#[test]
fn comma_separated() {
    let records = read(
        Format::Csv,
        "op, lbn, sectors, note, think_ms, response_ms\nR, 5, 8, x, 1.5, 2\nwrite,6,1,,0,3\n",
    );
    assert_eq!(
        short(&records),
        [(after(1.5), request(5, 8, false)), (after(0.0), request(6, 1, true))]
    );
    assert_eq!(records[1].measured, Some(Ps::from_ms(3.0)));
    assert_eq!(
        short(&read(Format::Csv, "lbn,sectors,op,arrival_ms\n5,8,r,7\n")),
        [(at(7.0), request(5, 8, false))]
    );
}

/// Fields and units are those of the description in the SNIA IOTTA repository: Windows ticks of 100 ns since 1601, bytes, ticks.
const MSR: &str = "128166372003061629,usr,0,Read,614609920,24576,41286\n128166372016382155,usr,0,Write,3072,512,96\n\
                   128166372016382055,usr,0,Write,4096,512,96\n";

#[test]
fn msr_cambridge() {
    let records = read(Format::Msr, MSR);
    let expected = [
        (at(0.0), request(1_200_410, 48, false)),
        (at(1332.0526), request(6, 1, true)),
        (at(1332.0526), request(8, 1, true)),
    ];
    assert_eq!(short(&records), expected);
    assert_eq!(records[0].measured, Some(Ps::from_ms(4.1286)));
    let named = format!("Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n{MSR}");
    assert_eq!(short(&read(Format::Msr, &named)), expected);
    assert_eq!(
        report(Format::Msr, MSR).lost,
        Omissions {
            late: 1,
            ..Omissions::default()
        }
    );
}

/// After the SPC trace file format specification 1.0.1: unit, block of 512 bytes, bytes, operation, seconds, more; space after commas.
const SPC: &str = "0,1941264,8192,W,0.551706\n0, 939840, 512, r, 0.554041, x, y\n0,5,0,R,0.6\n";

#[test]
fn spc() {
    let expected = [
        (at(551.706), request(1_941_264, 16, true)),
        (at(554.041), request(939_840, 1, false)),
    ];
    assert_eq!(short(&read(Format::Spc, SPC)), expected);
    assert_eq!(
        report(Format::Spc, SPC).lost,
        Omissions {
            others: 1,
            ..Omissions::default()
        }
    );
}

fn report(format: Format, text: &str) -> Report {
    let drive = Drive::named("hp-c2247a").expect("built in");
    let trace = Trace::new("t", format, text.as_bytes(), drive.sectors());
    replay(trace, Controller::new(&drive), |_, _, _| ()).expect(text)
}

const BLKPARSE: &str = "  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]\n";
const FIO_3: &str = "fio version 3 iolog\n1 /dev/sdb open\n1250 /dev/sdb write 4096 8192\n1300 /dev/sdb trim 0 512\n";
const FIO_LATENCIES: &str = "10, 2000000, 1, 4096, 8192, 0\n11, 1000, 2, 4096, 8192\n";

/// Discards were dropped without a word.
#[test]
fn what_a_replay_leaves_out_is_told() {
    let blkparse = format!(
        "{BLKPARSE}  8,0 1 5 0.25 700 Q D 5000 + 16 [fstrim]\n  8,0 1 6 0.26 700 Q DS 5000 + 16 [fstrim]\n\
         8,0 1 7 0.27 700 C D 5000 + 16 [0]\n  8,0 1 8 0.28 700 Q FN [fsync]\n  8,0 1 9 0.27 700 Q R 8 + 8 [x]\n\
         8,0 1 9 0.2 700 Q R 8 + 8 [x]\n"
    );
    let lost = report(Format::Blktrace, &blkparse).lost;
    let expected = Omissions {
        discards: 2,
        others: 1,
        late: 1,
        unknown_kinds: 0,
    };
    assert_eq!(lost, expected);
    assert_eq!(report(Format::Fio, FIO_3).lost.discards, 1);
    assert_eq!(report(Format::Fio, FIO_LATENCIES).lost.discards, 1);
    let notes = report(Format::Blktrace, &blkparse).notes.join("; ");
    assert!(
        notes.starts_with("2 discards are left out: a disk has none; 1 flushes"),
        "{notes}"
    );
}

#[test]
fn an_empty_trace_says_so() {
    for format in Format::ALL {
        let report = report(format, "\n# nothing\n");
        assert_eq!(report.notes, ["the trace has no requests"]);
        assert_eq!((report.all.requests, report.all.percentiles_simulated_ms.max), (0, 0.0));
    }
}

/// A trace that calls every read `Miss`, or every read `Hit`, does not tell which came from the cache.
#[test]
fn hits_are_the_simulations_word_where_the_trace_calls_all_reads_alike() {
    for mark in ["Miss", "Hit", "Cold"] {
        let text = format!("R {mark} 1000 8 15000 1000\nR {mark} 1008 8 2000 1000\nW Doub 1000 8 15000 0\n");
        let report = report(Format::Validate, &text);
        assert_eq!(
            (report.reads.requests, report.hits.requests, report.hits_simulated),
            (1, 1, 1),
            "{mark}"
        );
        assert!(report.hits.mean_simulated_ms < report.reads.mean_simulated_ms, "{mark}");
        let word = if mark == "Cold" {
            "2 reads are of a kind"
        } else {
            "calls all reads the same"
        };
        assert!(report.notes.concat().contains(word), "{:?}", report.notes);
    }
    let told = report(
        Format::Validate,
        "R Miss 1000 8 15000 1000\nR Miss 1008 8 2000 1000\nR Hit 5 8 15000 0\n",
    );
    assert_eq!(
        (told.reads.requests, told.hits.requests, told.hits_simulated),
        (2, 1, 1)
    );
    assert_eq!(told.notes, [""; 0]);
}

#[test]
fn the_first_line_tells_the_format() {
    let cases = [
        (Format::DiskSim, "# by hand\n\n0.5 0 1000 8 0\n"),
        (Format::Validate, "R Miss 5 2 1500.5 1000\r\n"),
        (Format::Blktrace, BLKPARSE),
        (Format::Fio, "fio version 2 iolog\n/dev/sdb read 4096 8192\n"),
        (Format::Fio, FIO_3),
        (Format::Fio, FIO_LATENCIES),
        (Format::Msr, MSR),
        (Format::Spc, SPC),
        (Format::Csv, "op, lbn, sectors\nR, 5, 8\n"),
    ];
    for (format, text) in cases {
        let found = Trace::detect("t", text.as_bytes(), 2_054_864).expect(text);
        let found: Vec<Record> = found.map(|record| record.expect(text)).collect();
        assert_eq!(found, read(format, text), "{text}");
        assert!(!found.is_empty(), "{text}");
    }
}
