//! Request by request against DiskSim 4.0: 20,000 random writes of 4 KiB, one at a time, each begun when the one before ends.
//!
//! DiskSim keeps its time in floating-point milliseconds and its angles in fractions of a turn, and truncates; that makes its turn
//! 3.35e-7 longer than 60 s / 5400. With this as the rotation period its clock and ours stay together to half a microsecond for
//! all of the 375 simulated seconds.

mod support;

use elbow_disk::{Controller, Drive, Lbn, Ps, Request};
use support::{numbers, sample_and_whole};

/// The largest difference of one request's time, and of the clocks, in microseconds.
fn differences(trace: &str, mut controller: Controller<'_>) -> (f64, f64) {
    let (mut now, mut worst, mut drift) = (Ps::ZERO, 0.0_f64, 0.0_f64);
    for line in trace.lines() {
        let of = numbers(line);
        let served = controller.serve(
            now,
            Request {
                lbn: Lbn(of[0] as u64),
                sectors: 8,
                write: true,
            },
        );
        let parts = served.seek + served.rotation + served.transfer + served.overhead;
        assert_eq!(parts, served.end - now, "the parts of {line} are the whole");
        worst = worst.max(((served.end - now).ms() - (of[2] - of[1])).abs() * 1e3);
        drift = drift.max((served.end.ms() - of[2]).abs() * 1e3);
        now = served.end;
    }
    (worst, drift)
}

#[test]
fn mechanical_requests_take_as_long_as_in_disksim() {
    let drive = Drive::named("hp-c2247a").expect("built in");
    for trace in sample_and_whole(
        include_str!("data/q1_mechanical.txt"),
        "c2247a/disksim_q1_mechanical.tr.gz",
    ) {
        let (worst, drift) = differences(&trace, Controller::mechanical(&drive));
        println!("mechanical: one request differs by {worst:.4} us, the clocks by {drift:.4} us");
        assert!(worst < 1.0 && drift < 1.0, "{worst} {drift}");
    }
}

/// With overheads DiskSim takes more steps, and truncates in each: its clock is 7 us off at the end.
#[test]
fn requests_with_all_overheads_take_as_long_as_in_disksim() {
    let drive = Drive::named("hp-c2247a").expect("built in");
    for trace in sample_and_whole(include_str!("data/q1_full.txt"), "c2247a/disksim_q1_full.tr.gz") {
        let (worst, drift) = differences(&trace, Controller::new(&drive));
        println!("full: one request differs by {worst:.4} us, the clocks by {drift:.4} us");
        assert!(worst < 5.0 && drift < 10.0, "{worst} {drift}");
    }
}
