//! The mapping and the seek table of the HP C2247A against those extracted from DiskSim, and the mapping of any drive against
//! its own reverse.

mod support;

use elbow_disk::{Arm, Drive, Lbn, Ps, SectorAddress};
use elbow_testkit::cases::for_each_seed;
use rand::Rng;
use rand::rngs::StdRng;
use support::{numbers, sample_and_whole, shared_text};

fn hp() -> Drive {
    Drive::named("hp-c2247a").expect("built in")
}

/// How far two angles are apart, in turns.
fn apart(a: f64, b: f64) -> f64 {
    let distance = (a - b).abs();
    distance.min(1.0 - distance)
}

/// Compares one line of the list of tracks, and says how many sectors the track has.
fn check_track(drive: &Drive, line: &str) -> u64 {
    let of = numbers(line);
    let arm = Arm {
        cylinder: of[1] as u32,
        head: of[2] as u32,
    };
    let track = drive.track(Lbn(of[0] as u64));
    assert_eq!(
        (track.first.0, track.arm, track.sectors_per_track),
        (of[0] as u64, arm, of[6] as u32),
        "{line}"
    );
    assert_eq!(drive.track_at(arm), Some(track), "{line}");
    assert_eq!(
        drive.locate(track.first),
        SectorAddress {
            arm,
            sector: of[3] as u32
        },
        "{line}"
    );
    for (sector, angle) in [(of[3], of[4]), (0.0, of[5])] {
        let ours = drive.angle(SectorAddress {
            arm,
            sector: sector as u32,
        });
        assert!(
            apart(ours.0 as f64 / drive.rotation().0 as f64, angle) < 2e-8,
            "{line}: {ours:?}"
        );
    }
    u64::from(track.sectors)
}

#[test]
fn tracks_lie_where_the_drive_has_them() {
    let drive = hp();
    let checked = include_str!("data/tracks.txt")
        .lines()
        .map(|line| check_track(&drive, line));
    assert_eq!(checked.count(), 255);
}

#[test]
fn every_track_lies_where_the_drive_has_it() {
    let Some(tracks) = shared_text("c2247a/tracks.txt.gz") else {
        return;
    };
    let drive = hp();
    let mut next = 0;
    for line in tracks.lines() {
        assert_eq!(numbers(line)[0] as u64, next, "no gap before {line}");
        next += check_track(&drive, line);
    }
    assert_eq!((tracks.lines().count(), next), (25_749, drive.sectors()));
}

#[test]
fn every_distance_takes_as_long_as_the_drive_takes() {
    let drive = hp();
    let seeks = sample_and_whole(include_str!("data/seek.txt"), "c2247a/seek.txt.gz");
    let worst = seeks.iter().flat_map(|text| text.lines()).map(|line| {
        let of = numbers(line);
        let there = Arm {
            cylinder: of[0] as u32,
            head: 0,
        };
        let differs = |write, ms: f64| (drive.arm_time(Arm::default(), there, write).ms() - ms).abs();
        differs(false, of[1]).max(differs(true, of[2]))
    });
    let worst = worst.fold(0.0, f64::max);
    println!("the seek table differs by {:.3} ns at most", worst * 1e6);
    assert!(worst < 10e-6, "{worst} ms");
    let heads = |write| drive.arm_time(Arm::default(), Arm { cylinder: 0, head: 5 }, write);
    assert_eq!((heads(false), heads(true)), (Ps::from_ms(0.89), Ps::from_ms(1.54)));
}

#[test]
fn every_sector_comes_back_from_its_place() {
    let drive = hp();
    for lbn in (0..drive.sectors()).map(Lbn) {
        assert_eq!(drive.lbn_at(drive.locate(lbn)), Some(lbn));
    }
}

/// A drive of a few zones with fronts, spares and slips, as a description.
fn any_drive(random: &mut StdRng) -> String {
    let heads = random.random_range(1..6);
    let mut text = format!(
        "name = 'any'\nheads = {heads}\nrotation_ms = 9.7\nseek = {{ head_switch_ms = 0.5, points_ms = [[1, 1], [9, 2.5]] }}\n"
    );
    let mut cylinder = 0;
    for _ in 0..random.random_range(1..5) {
        let cylinders = random.random_range(2..30);
        let sectors = random.random_range(1..70);
        let front = random.random_range(0..heads);
        let mut slips: Vec<u32> = (0..random.random_range(0..6))
            .map(|_| random.random_range(front..cylinders * heads))
            .collect();
        slips.sort_unstable();
        slips.dedup();
        slips.truncate((cylinders * heads - front - 1) as usize);
        text += &format!(
            "[[zone]]\ncylinders = [{cylinder}, {}]\nsectors_per_track = {sectors}\noffset = {}\ntrack_skew = {}\n\
             cylinder_skew = {}\nfront_tracks = {front}\nspare_tracks = {}\nslipped = {slips:?}\n",
            cylinder + cylinders - 1,
            random.random_range(0..sectors),
            random.random_range(0..sectors),
            random.random_range(0..sectors),
            slips.len(),
        );
        cylinder += cylinders;
    }
    text
}

#[test]
fn every_sector_of_any_drive_comes_back_from_its_place() {
    for_each_seed(200, |random| {
        let text = any_drive(random);
        let drive = Drive::parse("any", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let mut before: Option<SectorAddress> = None;
        for lbn in (0..drive.sectors()).map(Lbn) {
            let (place, track) = (drive.locate(lbn), drive.track(lbn));
            assert_eq!(drive.lbn_at(place), Some(lbn), "{text}");
            assert_eq!(u64::from(place.sector), lbn.0 - track.first.0, "{text}");
            assert!(
                before.is_none_or(|before| before < place),
                "{lbn} goes backwards: {text}"
            );
            assert!(drive.angle(place) < drive.rotation());
            before = Some(place);
        }
        let data =
            (0..drive.cylinders()).flat_map(|cylinder| (0..drive.heads()).map(move |head| Arm { cylinder, head }));
        let sectors: u64 = data
            .filter_map(|arm| drive.track_at(arm))
            .map(|track| u64::from(track.sectors))
            .sum();
        assert_eq!(sectors, drive.sectors(), "{text}");
    });
}

/// Every drive that needs no file: each sector comes back from its place, and the places rise with the sectors' order on their cylinder.
#[test]
fn every_sector_of_the_built_in_drives_comes_back_from_its_place() {
    for name in Drive::built_in() {
        let drive = Drive::named(name).expect("built in");
        let mut cylinder = 0;
        for lbn in (0..drive.sectors()).step_by(7).map(Lbn) {
            let place = drive.locate(lbn);
            assert_eq!(drive.lbn_at(place), Some(lbn), "{name}");
            assert!(place.arm.cylinder >= cylinder, "{name}: {lbn} goes backwards");
            cylinder = place.arm.cylinder;
            if drive.sectors() > 100_000_000 && lbn.0 > 10_000_000 {
                break;
            }
        }
    }
}
