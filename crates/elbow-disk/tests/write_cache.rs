//! The write cache by its rules: what is reported when, what the medium has when, and what a power cut loses.
//!
//! Against DiskSim it was checked request by request on the beginning of a trace of its own, with its Atlas 10K (`docs/design/disk.md`).

#![allow(clippy::single_range_in_vec_init, reason = "a list of ranges may have one")]

mod support;

use elbow_disk::{Controller, Drive, Lbn, Ps, Request, Served};
use elbow_testkit::cases::for_each_seed;
use rand::Rng;

use support::{read, write};

/// A drive of two heads whose turn takes 8 ms, 0.1 ms a sector; its bus takes 0.05 ms a sector.
fn drive(cache: &str, write_cache: &str) -> Drive {
    let text = format!(
        "name = 'w'\nheads = 2\nrotation_ms = 8\nseek = {{ head_switch_ms = 0.5, points_ms = [[1, 1], [99, 6]] }}\n\
         [command]\nread_miss_ms = 0.3\nread_hit_ms = 0.2\nwrite_ms = 0.6\nwrite_completion_ms = 0.04\nwrite_disconnect_ms = 0.01\n\
         reselect_ms = 0.02\n[bus]\nread_sector_ms = 0.05\nwrite_sector_ms = 0.05\n\
         [cache]\nsegments = 4\nsegment_sectors = 40\nread_ahead_sectors = 20\n{cache}\n\
         [write_cache]\nsegments = 2\ncommand_ms = 0.2\ncommand_after_write_ms = 0.1\n{write_cache}\n\
         [[zone]]\ncylinders = [0, 99]\nsectors_per_track = 80\ntrack_skew = 8\ncylinder_skew = 15\n"
    );
    Drive::parse("w", &text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn ms(served: Served, from: Ps) -> f64 {
    (served.end - from).ms()
}

fn lost(controller: &Controller<'_>, time: Ps) -> Vec<std::ops::Range<u64>> {
    controller.lost_by_power_cut(time).iter().collect()
}

/// The first moment at which a power cut loses nothing.
fn clean_at(controller: &Controller<'_>, from: Ps) -> Ps {
    let (mut dirty, mut clean) = (from.0, from.0 + 1_000_000_000_000);
    assert!(controller.lost_by_power_cut(Ps(clean)).is_empty());
    while clean - dirty > 1 {
        let middle = dirty + (clean - dirty) / 2;
        if controller.lost_by_power_cut(Ps(middle)).is_empty() {
            clean = middle;
        } else {
            dirty = middle;
        }
    }
    Ps(clean)
}

#[test]
fn a_write_is_reported_before_the_medium_has_it() {
    let drive = drive("", "");
    let mut controller = Controller::new(&drive);
    let first = controller.serve(Ps::ZERO, write(400, 8));
    assert_eq!(
        ms(first, Ps::ZERO),
        0.1 + 8.0 * 0.05 + 0.04,
        "after a write: the drive wakes up so"
    );
    assert_eq!(
        (first.seek, first.rotation, first.transfer, first.hit),
        (Ps::ZERO, Ps::ZERO, Ps::ZERO, false)
    );
    assert_eq!(lost(&controller, first.end), [400..408]);
    // Mechanically: the arm may move after the command, and the last of the 8 sectors has passed 0.8 ms after the first began.
    let medium = drive
        .service(elbow_disk::Arm::default(), Ps::from_ms(0.1), Lbn(400), 8, true)
        .total();
    assert_eq!(clean_at(&controller, first.end), Ps::from_ms(0.1) + medium);
    assert_eq!(
        lost(&controller, Ps::from_ms(0.1) + medium - Ps(1)),
        [407..408],
        "sector by sector"
    );
    let later = first.end + Ps::from_ms(30.0);
    let after_read = controller.serve(later, read(0, 1)).end;
    let second = controller.serve(after_read, write(400, 8));
    assert!(
        (ms(second, after_read) - (0.2 + 8.0 * 0.05 + 0.04)).abs() < 1e-9,
        "after a read: {second:?}"
    );
}

#[test]
fn a_write_goes_on_from_a_dirty_one() {
    let drive = drive("", "");
    let mut controller = Controller::new(&drive);
    let end = controller.serve(Ps::ZERO, write(400, 8)).end;
    let alone = clean_at(&controller, end);
    let second = controller.serve(end, write(408, 8));
    assert_eq!(
        ms(second, end),
        0.1 + 8.0 * 0.05 + 0.04,
        "the arm is busy, but it goes into the same segment"
    );
    assert_eq!(
        clean_at(&controller, second.end),
        alone + Ps::from_ms(0.8),
        "the head goes on without losing a turn"
    );
    // Once it is clean it is too late.
    let mut late = Controller::new(&drive);
    let end = late.serve(Ps::ZERO, write(400, 8)).end;
    let later = alone + Ps::from_ms(0.3);
    assert!(later > end);
    let second = late.serve(later, write(408, 8));
    assert!(clean_at(&late, second.end) > alone + Ps::from_ms(7.0), "most of a turn");
}

#[test]
fn a_write_elsewhere_waits_while_the_arm_writes() {
    for (rule, waits) in [("", true), ("take_while_busy = true", false)] {
        let drive = drive("", rule);
        let mut controller = Controller::new(&drive);
        let end = controller.serve(Ps::ZERO, write(400, 8)).end;
        let busy = clean_at(&controller, end);
        let second = controller.serve(end, write(9000, 8));
        let soonest = end + Ps::from_ms(0.1 + 8.0 * 0.05 + 0.04);
        let expected = if waits {
            busy + Ps::from_ms(0.02 + 8.0 * 0.05 + 0.04)
        } else {
            soonest
        };
        assert_eq!(second.end, expected, "{rule}");
        // With both segments dirty the third waits in any case, for the older of them.
        let third = controller.serve(second.end, write(3000, 8));
        assert!(third.end >= busy + Ps::from_ms(0.02 + 8.0 * 0.05 + 0.04), "{rule}");
    }
}

#[test]
fn forced_unit_access_and_a_flush_wait_for_the_medium() {
    let drive = drive("", "");
    let mut controller = Controller::new(&drive);
    let end = controller.serve(Ps::ZERO, write(400, 8)).end;
    let mut flushed = controller.clone();
    let clean = clean_at(&controller, end);
    assert_eq!(flushed.flush(end), clean + Ps::from_ms(0.04));
    assert!(lost(&flushed, clean).is_empty());
    let through = controller.serve_through(end, write(9000, 8));
    assert!(through.end > clean && lost(&controller, through.end).is_empty());
    assert_eq!(
        lost(&controller, clean),
        [9000..9008],
        "what has not been reported may be lost, too"
    );
    // The cache is on again, and can be turned off for good.
    let later = through.end + Ps::from_ms(50.0);
    let end = controller.serve(later, write(0, 8)).end;
    assert_eq!(lost(&controller, end), [0..8]);
    controller.set_write_through(true);
    let end = controller.serve(later + Ps::from_ms(90.0), write(5000, 8)).end;
    assert!(lost(&controller, end).is_empty());
}

#[test]
fn what_waits_is_written_when_the_drive_is_idle() {
    let drive = drive("", "idle_ms = 20");
    let mut controller = Controller::new(&drive);
    let end = controller.serve(Ps::ZERO, write(400, 8)).end;
    assert_eq!(lost(&controller, end + Ps::from_ms(20.0)), [400..408]);
    let clean = clean_at(&controller, end);
    assert!(
        clean > end + Ps::from_ms(20.0) && clean < end + Ps::from_ms(20.0 + 6.0 + 8.0 + 0.8),
        "{clean}"
    );
    // A request in between has the drive begin to wait anew, and is not held up.
    let middle = end + Ps::from_ms(15.0);
    let before = controller.clone().serve(middle, read(9000, 4));
    assert!(
        before.end < middle + Ps::from_ms(0.3 + 6.0 + 8.0 + 0.4 + 0.1),
        "{before:?}"
    );
    let end = controller.serve(middle, read(9000, 4)).end;
    assert_eq!(lost(&controller, middle + Ps::from_ms(20.0)), [400..408]);
    assert!(clean_at(&controller, end) > end + Ps::from_ms(20.0));
    // What is read from the medium is not older than what was written.
    let read_back = controller.serve(end, read(400, 8));
    assert!(!read_back.hit && lost(&controller, read_back.end).is_empty());
}

#[test]
fn segments_that_are_needed_are_written_though_the_drive_is_not_idle() {
    let drive = drive("", "idle_ms = 1000");
    let mut controller = Controller::new(&drive);
    let mut end = Ps::ZERO;
    for lbn in [400, 9000, 3000, 12_000] {
        end = controller.serve(end, write(lbn, 8)).end;
    }
    assert_eq!(
        lost(&controller, end),
        [3000..3008, 12_000..12_008],
        "two segments may be dirty"
    );
}

#[test]
fn what_was_written_is_read_from_its_segment() {
    for (rule, is_hit) in [("keep_written = true", true), ("", false)] {
        let drive = drive(rule, "");
        let mut controller = Controller::new(&drive);
        let end = controller.serve(Ps::ZERO, write(400, 8)).end;
        let later = end + Ps::from_ms(30.0);
        assert_eq!(controller.clone().serve(later, read(402, 4)).hit, is_hit, "{rule}");
        assert_eq!(
            controller.clone().serve(end, read(402, 4)).hit,
            is_hit,
            "{rule}, still dirty"
        );
        // A part of it: the rest comes from the medium.
        let part = controller.serve(later, read(404, 8));
        assert_eq!(part.hit, is_hit);
        assert!(part.end > later + Ps::from_ms(0.2 + 8.0 * 0.05), "{part:?}");
    }
    let drive = drive("keep_written = true\nhits_wait_for_writes = true", "");
    let mut controller = Controller::new(&drive);
    let end = controller.serve(Ps::ZERO, write(400, 8)).end;
    let clean = clean_at(&controller, end);
    assert_eq!(
        controller.serve(end, read(402, 4)).end,
        clean + Ps::from_ms(0.02 + 4.0 * 0.05)
    );
}

/// A write that is longer than a segment is complete when the medium has it.
#[test]
fn a_long_write_goes_past_the_cache() {
    let drive = drive("", "");
    let mut controller = Controller::new(&drive);
    let end = controller.serve(Ps::ZERO, write(400, 41)).end;
    assert!(lost(&controller, end).is_empty());
}

/// Whatever comes: the parts are the whole, nothing that a flush answered for is lost, and what a cut loses shrinks as time goes by.
#[test]
fn no_requests_break_the_rules() {
    for_each_seed(200, |random| {
        let rules = [
            "keep_written = true",
            "keep_passing = true\nimmediate_read = true",
            "immediate_write = true",
            "stop_in_sector = false\nresume_on_hit = false",
        ];
        let waits = ["", "idle_ms = 7", "take_while_busy = true", "append = false"];
        let drive = drive(
            rules[random.random_range(0..rules.len())],
            waits[random.random_range(0..waits.len())],
        );
        let (mut controller, mut now) = (Controller::new(&drive), Ps::ZERO);
        for _ in 0..100 {
            let near = random.random_bool(0.7);
            let request = Request {
                lbn: Lbn(random.random_range(0..if near { 500 } else { drive.sectors() - 50 })),
                sectors: random.random_range(1..50),
                write: random.random_bool(0.6),
            };
            let served = controller.serve(now, request);
            assert_eq!(
                served.seek + served.rotation + served.transfer + served.overhead,
                served.end - now,
                "{request:?}"
            );
            let times = [0, 3_000_000_000, 9_000_000_000, 40_000_000_000].map(|after| served.end + Ps(after));
            let sizes: Vec<u64> = times
                .iter()
                .map(|&time| {
                    lost(&controller, time)
                        .iter()
                        .map(|range| range.end - range.start)
                        .sum()
                })
                .collect();
            assert!(sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
            now = served.end + Ps(random.random_range(0..20_000_000_000));
            if random.random_bool(0.1) {
                now = controller.flush(now);
                assert!(lost(&controller, now).is_empty());
            }
        }
    });
}
