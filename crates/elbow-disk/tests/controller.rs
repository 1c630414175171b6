//! Commands, bus and cache by their rules, beside what DiskSim and the real drive confirm of them.

mod support;

use elbow_disk::{Arm, Controller, Drive, Lbn, Ps, Request, Served};
use elbow_testkit::cases::for_each_seed;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use support::{read, write};

const READ_MISS: f64 = 0.55821;
const READ_HIT: f64 = 0.95343 + 0.02519 + 0.05665;
const BUS_READ: f64 = 0.1701;

fn hp() -> Drive {
    Drive::named("hp-c2247a").expect("built in")
}

fn any_request(random: &mut StdRng, drive: &Drive) -> Request {
    let sectors = random.random_range(1..150);
    let near = random.random_bool(0.5);
    let lbn = random.random_range(0..if near { 3000 } else { drive.sectors() - 150 });
    Request {
        lbn: Lbn(lbn),
        sectors,
        write: random.random_bool(0.4),
    }
}

#[test]
fn the_parts_of_any_request_are_its_whole() {
    let drive = hp();
    for_each_seed(50, |random| {
        let mut controller = Controller::new(&drive);
        let mut now = Ps::ZERO;
        for _ in 0..200 {
            let request = any_request(random, &drive);
            let Served {
                end,
                seek,
                rotation,
                transfer,
                overhead,
                hit,
            } = controller.serve(now, request);
            assert_eq!(seek + rotation + transfer + overhead, end - now, "{request:?}");
            assert!(!(hit && request.write));
            let (_, last) = (
                request,
                drive.locate(Lbn(request.lbn.0 + u64::from(request.sectors) - 1)),
            );
            assert!(!request.write || controller.arm(end) == last.arm, "{request:?}");
            now = end + Ps(random.random_range(0..30_000_000_000));
        }
    });
}

/// Without overheads a request takes what the mechanics take, and the sectors of a request one by one take as long as together.
#[test]
fn mechanics_alone_are_the_service() {
    let drive = hp();
    for_each_seed(50, |random| {
        let (mut controller, mut now, mut arm) = (Controller::mechanical(&drive), Ps::ZERO, Arm::default());
        for _ in 0..100 {
            let Request { lbn, sectors, write } = any_request(random, &drive);
            let served = controller.serve(now, Request { lbn, sectors, write });
            let (mut time, mut at) = (now, arm);
            for sector in 0..u64::from(sectors) {
                let one = drive.service(at, time, Lbn(lbn.0 + sector), 1, write);
                (time, at) = (time + one.total(), one.end);
            }
            assert_eq!((served.end, controller.arm(served.end)), (time, at), "{lbn} {sectors}");
            (now, arm) = (time + Ps(random.random_range(0..9_000_000_000)), at);
        }
    });
}

/// What has been read ahead at any time is what has passed the head by then: neither a sector more nor less.
#[test]
fn reading_ahead_has_come_as_far_as_the_platter_has_turned() {
    let drive = hp();
    for_each_seed(300, |random| {
        let lbn = random.random_range(0..drive.sectors() - 400);
        let sectors = random.random_range(1..60);
        let mut controller = Controller::new(&drive);
        let end = controller.serve(Ps::ZERO, read(lbn, sectors)).end;
        let ahead = random.random_range(0..140);
        let wanted = lbn + u64::from(sectors) + ahead;
        let there = |count| {
            let begun = Ps::from_ms(READ_MISS);
            begun + drive.service(Arm::default(), begun, Lbn(lbn), count, false).total()
        };
        let is_read = there(sectors + ahead as u32 + 1);
        for (now, due) in [(end.max(is_read - Ps(1)), end >= is_read), (end.max(is_read), true)] {
            let served = controller.clone().serve(now, read(wanted, 1));
            assert_eq!(served.hit, due && ahead < 128, "{lbn} + {sectors} + {ahead} at {now}");
            assert!(!served.hit || served.end - now == Ps::from_ms(READ_HIT + BUS_READ));
        }
    });
}

#[test]
fn a_hit_on_what_is_still_being_read_waits_for_it() {
    let drive = hp();
    let mut controller = Controller::new(&drive);
    let first = controller.serve(Ps::ZERO, read(0, 4));
    let second = controller.serve(first.end, read(4, 90));
    assert!(second.hit);
    let begun = Ps::from_ms(READ_MISS);
    let medium = begun + drive.service(Arm::default(), begun, Lbn(0), 94, false).total();
    assert!(second.end > medium, "{second:?} before the medium has it, {medium}");
    assert!(
        second.end < first.end + Ps::from_ms(READ_HIT + 91.0 * BUS_READ),
        "{second:?}"
    );
}

#[test]
fn what_is_overwritten_is_not_read_from_the_cache() {
    let drive = hp();
    // Of what follows the 20 sectors some have been read ahead: a write there makes the segment untrue, too.
    let cases = [
        (500, 8, true),
        (992, 8, true),
        (993, 8, false),
        (1019, 1, false),
        (1020, 8, false),
        (0, 2000, false),
    ];
    for (lbn, sectors, is_kept) in cases {
        let mut controller = Controller::new(&drive);
        let end = controller.serve(Ps::ZERO, read(1000, 20)).end;
        let end = controller.serve(end, write(lbn, sectors)).end;
        assert_eq!(controller.serve(end, read(1000, 20)).hit, is_kept, "{lbn} {sectors}");
    }
}

/// A long write to the fastest zone: the medium takes a sector in 0.116 ms, the bus brings one in 0.187.
#[test]
fn a_write_whose_data_comes_too_late_costs_a_turn() {
    let drive = hp();
    let mut lost = 0;
    for lbn in 0..90 {
        let mut controller = Controller::new(&drive);
        let before = controller.serve(Ps::ZERO, read(96 * 5, 1)).end;
        let served = controller.serve(before, write(lbn, 40));
        let turns = served.rotation.0 / drive.rotation().0;
        lost += u32::from(turns > 0);
        let slow = served.rotation + served.seek;
        let data = Ps::from_ms(0.02519 + 40.0 * 0.18686);
        assert!(
            turns > 0 || slow + served.transfer >= data,
            "{lbn}: {served:?} before the data"
        );
        assert!(turns <= 2);
    }
    assert!(lost > 5, "{lost}");
}

/// A write that continues the one before is told from one that does not.
#[test]
fn a_scattered_write_disconnects_once_more() {
    let drive = hp();
    let mut controller = Controller::new(&drive);
    let first = controller.serve(Ps::ZERO, write(10_000, 8)).end;
    let continued = controller.clone().serve(first, write(10_008, 8));
    let scattered = controller.serve(first, write(10_016, 8));
    let fixed = |served: &Served, ms: f64| (served.overhead.ms() - ms).abs() < 1e-6;
    assert!(fixed(&scattered, 0.89244 + 0.12883 + 0.05045 + 0.6), "{scattered:?}");
    assert!(fixed(&continued, 0.82391 + 0.16249 + 0.05045 + 0.6), "{continued:?}");
}

#[test]
fn a_drive_without_electronics_is_mechanics() {
    let text = "name = 's'\nheads = 2\nrotation_ms = 8\nseek = { head_switch_ms = 0.5, points_ms = [[1, 1]] }\n\
        [[zone]]\ncylinders = [0, 99]\nsectors_per_track = 64\ntrack_skew = 5\ncylinder_skew = 9\n";
    let drive = Drive::parse("s", text).expect("sound");
    let (mut all, mut bare, mut now) = (Controller::new(&drive), Controller::mechanical(&drive), Ps::ZERO);
    let mut random = StdRng::seed_from_u64(1);
    for _ in 0..500 {
        let lbn = random.random_range(0..drive.sectors() - 100);
        let request = Request {
            lbn: Lbn(lbn),
            sectors: random.random_range(1..100),
            write: random.random(),
        };
        let served = all.serve(now, request);
        assert_eq!(served, bare.serve(now, request));
        now = served.end;
    }
}
