//! SPTF against DiskSim 4.0: the mean of 30,000 random writes of 4 KiB there and of our own random ones here, for four spans and
//! depths of 1 to 64.
//!
//! Rows `driver` schedule in the host, which picks before the replacement arrives; rows `diskfw1` in the drive, which picks
//! after it. The spans are the whole disk and three stretches of 32,768 sectors; where the two upper ones begin follows from the
//! mean seek distances and transfer times (1.1162 ms needs both sides of the boundary between 84 and 80 sectors per track).

use std::sync::Arc;

use elbow_disk::Drive;
use elbow_disk::sched::Scheduler;
use elbow_disk::workload::{Arrivals, GROUP_SECTORS, Moment, Overheads, Span, Summary, Workload, simulate};

/// What DiskSim said, in milliseconds, with 30,000 requests for each row.
const MEANS: &str = include_str!("data/disksim_sptf_means.txt");
/// How far a mean may be off.
const TOLERANCE: f64 = 0.01;
const REQUESTS: u64 = 100_000;

struct Row {
    moment: Moment,
    overheads: Overheads,
    span: Span,
    depth: u32,
    /// Seek, rotation, transfer and their sum.
    parts: [f64; 4],
    /// Time per request.
    per_request: f64,
}

fn rows() -> Vec<Row> {
    MEANS.lines().map(row).collect()
}

fn row(line: &str) -> Row {
    let mut words = line.split_whitespace();
    let mut word = || words.next().expect("a word");
    let moment = if word() == "driver" {
        Moment::Before
    } else {
        Moment::After
    };
    let overheads = if word() == "mech" {
        Overheads::None
    } else {
        Overheads::Controller
    };
    let group_at = |start| Span::Sectors(start, start + GROUP_SECTORS);
    let span = match word() {
        "disk" => Span::Disk,
        "bg0" => Span::Group(0),
        "bgmid" => group_at(1_200_000),
        "bgend" => group_at(2_000_000),
        other => panic!("an unknown span {other}"),
    };
    let number = |name: &str| -> f64 {
        let value = line
            .split_whitespace()
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        value
            .unwrap_or_else(|| panic!("{name} in {line}"))
            .parse()
            .expect("a number")
    };
    let parts = ["Seektime", "Rotationallatency", "Transfertime", "Accesstime"].map(number);
    Row {
        moment,
        overheads,
        span,
        depth: number("Q") as u32,
        parts,
        per_request: number("ms/req"),
    }
}

fn simulated(drive: &Arc<Drive>, row: &Row) -> Summary {
    let load = Workload {
        span: row.span,
        arrivals: Arrivals::Closed {
            depth: row.depth,
            pick: row.moment,
        },
        overheads: row.overheads,
        requests: REQUESTS,
        ..Workload::default()
    };
    simulate(drive, Scheduler::Sptf, &load, |_| {}).expect("the load fits the drive")
}

fn compare(moment: Moment) {
    let rows = rows();
    let drive = Arc::new(Drive::named("hp-c2247a").expect("built in"));
    let (mut compared, mut worst) = (0, 0.0_f64);
    println!(
        "{:<28} {:>4} {:>22} {:>9} {:>9} {:>7}",
        "span", "Q", "seek/rotation/transfer", "ours", "DiskSim", "off"
    );
    for row in rows
        .iter()
        .filter(|row| row.moment == moment && row.overheads == Overheads::None)
    {
        let ours = simulated(&drive, row);
        let off = ours.service_ms.mean / row.parts[3] - 1.0;
        let (span, depth) = (format!("{:?}", row.span), row.depth);
        let split = format!(
            "{:.3}/{:.3}/{:.3}",
            ours.seek_ms.mean, ours.rotation_ms.mean, ours.transfer_ms.mean
        );
        let line = format!(
            "{span:<28} {depth:>4} {split:>22} {:>9.4} {:>9.4} {:>6.2}%",
            ours.service_ms.mean,
            row.parts[3],
            off * 100.0
        );
        println!("{line}");
        assert!(off.abs() < TOLERANCE, "{line}");
        let transfer_off = ours.transfer_ms.mean / row.parts[2] - 1.0;
        assert!(transfer_off.abs() < TOLERANCE, "transfer of {line}: {}", row.parts[2]);
        compared += 1;
        worst = worst.max(off.abs());
    }
    assert_eq!(compared, 28, "four spans and seven depths");
    println!("worst: {:.2} %", worst * 100.0);
}

#[test]
fn a_scheduler_in_the_host_has_the_means_of_disksim() {
    compare(Moment::Before);
}

#[test]
fn a_scheduler_in_the_drive_has_the_means_of_disksim() {
    compare(Moment::After);
}

#[test]
fn with_all_overheads_one_at_a_time_takes_as_long_as_in_disksim() {
    let rows = rows();
    let drive = Arc::new(Drive::named("hp-c2247a").expect("built in"));
    let is_one = |row: &&Row| row.moment == Moment::Before && row.overheads == Overheads::Controller && row.depth == 1;
    let mut compared = 0;
    for row in rows.iter().filter(is_one) {
        let ours = simulated(&drive, row).service_ms.mean;
        println!("{:?}: {ours:.4} ms, DiskSim {:.4} ms", row.span, row.per_request);
        assert!((ours / row.per_request - 1.0).abs() < TOLERANCE);
        compared += 1;
    }
    assert_eq!(compared, 4);
}
