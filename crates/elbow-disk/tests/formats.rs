//! Each format of traces, read.

use elbow_disk::trace::{Arrival, Format, Record, RecordKind, Trace};
use elbow_disk::{Lbn, Ps, Request};

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
