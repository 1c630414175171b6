//! A shingled drive by its rules: what goes to the media cache and what in place, when bands are cleaned, and what a power cut loses.

#![allow(clippy::single_range_in_vec_init, reason = "a list of ranges may have one")]

mod support;

use std::sync::Arc;

use elbow_disk::workload::{Workload, simulate};
use elbow_disk::{Arm, Controller, Drive, Lbn, Ps, Request, Served};
use elbow_ranges::RangeSet;
use elbow_testkit::cases::for_each_seed;
use rand::Rng;

use support::{read, write};

/// Sectors of the host, and of a band: four tracks.
const HOST: u64 = 90 * 2 * 80;
const BAND: u64 = 320;

/// A drive of two heads whose turn takes 8 ms, 0.1 ms a sector; its first 20 tracks are the media cache, in which 16 sectors are the map, a band is the
/// scratch area, and 1264 the log.
fn text(write_cache: &str, shingled: &str) -> String {
    format!(
        "name = 's'\nheads = 2\nrotation_ms = 8\nseek = {{ head_switch_ms = 0.5, points_ms = [[1, 1], [99, 6]] }}\n\
         [command]\nwrite_ms = 0.1\nread_miss_ms = 0.1\nread_hit_ms = 0.1\n[bus]\nread_sector_ms = 0.001\nwrite_sector_ms = 0.001\n\
         [cache]\nsegments = 4\nsegment_sectors = 400\n{write_cache}\n\
         [shingled]\nband_sectors = 320\nmap_entries = 100\nentry_sectors = 2\nmap_sectors = 16\n{shingled}\n\
         [[zone]]\ncylinders = [0, 9]\nsectors_per_track = 80\ntrack_skew = 12\ncylinder_skew = 12\nmedia_cache = true\n\
         [[zone]]\ncylinders = [10, 99]\nsectors_per_track = 80\ntrack_skew = 12\ncylinder_skew = 12\n"
    )
}

const CACHED: &str = "[write_cache]\nsegments = 4\ntake_while_busy = true";

fn drive(write_cache: &str, shingled: &str) -> Drive {
    let text = text(write_cache, shingled);
    Drive::parse("s", &text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn ms(served: Served, from: Ps) -> f64 {
    (served.end - from).ms()
}

fn later(time: Ps, ms: f64) -> Ps {
    time + Ps::from_ms(ms)
}

#[test]
fn the_media_cache_is_behind_the_hosts_sectors_and_at_the_outer_diameter() {
    let drive = drive("", "");
    assert_eq!((drive.sectors(), drive.is_shingled()), (HOST, true));
    let (first, last) = (drive.locate(Lbn(0)).arm, drive.locate(Lbn(HOST - 1)).arm);
    assert_eq!((first, last.cylinder), (Arm { cylinder: 10, head: 0 }, 99));
    assert_eq!(drive.locate(Lbn(HOST)).arm, Arm::default());
    let summary = drive.summary();
    assert_eq!((summary.zones.len(), summary.sectors), (1, HOST));
}

/// Wherever the host writes, the head stays: no seek but the first, and a turn at most.
#[test]
fn random_writes_go_to_the_log_one_behind_the_other() {
    let drive = drive("", "cleaning = 'lazy'");
    let mut controller = Controller::new(&drive);
    let mut now = controller.serve(Ps::ZERO, write(14_000, 8)).end;
    for lbn in [9, 7000, 13_000, 200, 9_999] {
        let served = controller.serve(now, write(lbn, 8));
        assert!(ms(served, now) < 10.0 && served.seek.ms() < 1.1, "{served:?}");
        now = served.end;
    }
    assert_eq!(controller.bands_cleaned(), 0);
    let far = controller.serve(now, read(14_000, 8));
    assert!(far.seek.ms() < 1.1, "it is read where it was written: {far:?}");
}

/// What was written in the middle of a stretch splits a read of it: there, to the log and back.
#[test]
fn a_read_of_what_was_written_in_pieces_is_fragmented() {
    let drive = drive("", "cleaning = 'lazy'");
    let mut controller = Controller::new(&drive);
    let whole = ms(Controller::new(&drive).serve(Ps::ZERO, read(8000, 60)), Ps::ZERO);
    let mut now = controller.serve(Ps::ZERO, write(8020, 4)).end;
    now = controller.serve(now, write(8040, 4)).end;
    let pieces = controller.serve(now, read(8000, 60));
    assert!(ms(pieces, now) > 3.0 * whole, "{} beside {whole} ms", ms(pieces, now));
}

#[test]
fn idle_drives_clean_each_band_once_and_read_it_in_place_again() {
    let drive = drive("", "idle_ms = 100");
    let mut controller = Controller::new(&drive);
    let mut now = Ps::ZERO;
    for lbn in [5000, 9000, 5010, 13_000] {
        now = controller.serve(now, write(lbn, 8)).end;
    }
    let at_once = controller.serve(later(now, 90.0), read(0, 8)).end;
    assert_eq!(controller.bands_cleaned(), 0, "not idle for long enough");
    controller.serve(later(at_once, 10_000.0), read(0, 8));
    assert_eq!(controller.bands_cleaned(), 3);
    let read_again = controller.serve(later(at_once, 20_000.0), read(4990, 60));
    assert!(ms(read_again, later(at_once, 20_000.0)) < 25.0, "{read_again:?}");
}

/// A request that comes while a band is being cleaned waits for the end of that one, and of no other.
#[test]
fn a_band_that_is_being_cleaned_is_finished_first() {
    let drive = drive("", "idle_ms = 100");
    let mut controller = Controller::new(&drive);
    let mut now = Ps::ZERO;
    for lbn in [5000, 9000, 13_000] {
        now = controller.serve(now, write(lbn, 8)).end;
    }
    let meanwhile = later(now, 101.0);
    let served = controller.serve(meanwhile, read(0, 8));
    // Three times four tracks, with what lies between.
    assert!((80.0..250.0).contains(&ms(served, meanwhile)), "{served:?}");
    assert_eq!(controller.bands_cleaned(), 1);
}

#[test]
fn lazy_drives_clean_only_when_the_log_is_full() {
    let drive = drive("", "cleaning = 'lazy'");
    let mut controller = Controller::new(&drive);
    let mut now = Ps::ZERO;
    let mut longest: f64 = 0.0;
    for number in 0..80_u64 {
        now = later(now, 5_000.0);
        let served = controller.serve(now, write(number * 977 % (HOST - 20), 20));
        if controller.bands_cleaned() == 0 {
            assert!(ms(served, now) < 20.0);
        }
        longest = longest.max(ms(served, now));
        now = served.end;
    }
    assert!(controller.bands_cleaned() > 15, "{}", controller.bands_cleaned());
    assert!(longest > 80.0, "a write has waited for a band: {longest} ms");
}

#[test]
fn the_map_is_full_before_the_log() {
    let drive = drive("", "cleaning = 'lazy'");
    let mut controller = Controller::new(&drive);
    let mut now = Ps::ZERO;
    for number in 0..100 {
        now = controller.serve(now, write(number * 140, 1)).end;
    }
    assert_eq!(controller.bands_cleaned(), 0);
    controller.serve(now, write(1, 1));
    assert_eq!(controller.bands_cleaned(), 1);
}

/// A stream from a band's start on, through the write cache, needs no log: it goes at the rate of the medium, and leaves nothing to clean.
#[test]
fn whole_bands_of_a_stream_are_written_in_place() {
    let drive = drive(CACHED, "idle_ms = 100");
    let mut controller = Controller::new(&drive);
    let (mut now, bands) = (Ps::ZERO, 20);
    for lbn in (BAND..BAND * (bands + 1)).step_by(40) {
        now = controller.serve(now, write(lbn, 40)).end;
    }
    now = controller.flush(now);
    // A track and its skew take 9.2 ms; the last sector of a band and the first of the next follow each other.
    let medium = 4.0 * 9.2 * bands as f64;
    assert!(
        (0.95..1.2).contains(&(now.ms() / medium)),
        "{now}, {medium} ms for the medium"
    );
    assert!(controller.lost_by_power_cut(now).is_empty());
    controller.serve(later(now, 60_000.0), read(0, 8));
    assert_eq!(controller.bands_cleaned(), 0);
}

#[test]
fn a_stream_that_ends_within_a_band_is_held_until_somebody_needs_it_elsewhere() {
    let drive = drive(CACHED, "idle_ms = 100\ncleaning = 'lazy'");
    let begun = |controller: &mut Controller<'_>| {
        let end = controller.serve(Ps::ZERO, write(BAND, 40)).end;
        assert_eq!(
            controller
                .lost_by_power_cut(later(end, 50.0))
                .iter()
                .collect::<Vec<_>>(),
            [BAND..BAND + 40]
        );
        end
    };
    let mut flushed = Controller::new(&drive);
    let end = begun(&mut flushed);
    let end = flushed.flush(end);
    assert!(flushed.lost_by_power_cut(end).is_empty());
    let mut idle = Controller::new(&drive);
    let end = begun(&mut idle);
    assert!(idle.lost_by_power_cut(later(end, 150.0)).is_empty(), "the log has it");
    let mut other = Controller::new(&drive);
    let end = begun(&mut other);
    let end = other.serve(end, write(9, 8)).end;
    assert!(
        other.lost_by_power_cut(later(end, 40.0)).is_empty(),
        "both are on their way"
    );
    let read_back = other.serve(later(end, 41.0), read(BAND, 40));
    assert!(read_back.hit || read_back.seek.ms() < 1.1, "{read_back:?}");
}

/// What may have been lost at a power cut, by what was asked: nothing that was written through or flushed, and everything that was lost was written. Times never go
/// back, and the parts of an answer never exceed it.
#[test]
fn a_power_cut_loses_only_what_was_not_flushed() {
    for_each_seed(150, |rng| {
        let with_cache = rng.random_bool(0.7);
        let drive = drive(
            if with_cache { CACHED } else { "" },
            "idle_ms = 20\nmap_every_writes = 7",
        );
        let mut controller = Controller::new(&drive);
        let (mut now, mut unflushed) = (Ps::ZERO, RangeSet::default());
        let mut next = 0;
        for _ in 0..120 {
            now = later(now, [0.0, 0.0, 0.0, 3.0, 25.0, 400.0][rng.random_range(0..6)]);
            let start = if rng.random_bool(0.4) {
                next
            } else {
                rng.random_range(0..HOST - 300)
            };
            let start = if rng.random_bool(0.2) {
                start / BAND * BAND
            } else {
                start
            };
            let start = start.min(HOST - 300);
            let sectors = rng.random_range(1..=300);
            next = start + u64::from(sectors);
            let request = Request {
                write: rng.random_bool(0.8),
                ..read(start, sectors)
            };
            let through = request.write && rng.random_bool(0.2);
            if request.write {
                unflushed.insert(start, next);
            }
            let served = if through {
                controller.serve_through(now, request)
            } else {
                controller.serve(now, request)
            };
            assert!(
                served.end >= now
                    && served.seek + served.rotation + served.transfer + served.overhead == served.end - now
            );
            now = served.end;
            if through {
                unflushed.remove(start, next);
                let lost = controller.lost_by_power_cut(now);
                assert!(
                    lost.iter().all(|range| !(range.start < next && start < range.end)),
                    "written through"
                );
            }
            if rng.random_bool(0.1) {
                now = controller.flush(now);
                unflushed = RangeSet::default();
                assert!(controller.lost_by_power_cut(now).is_empty());
            }
            let lost = controller.lost_by_power_cut(now);
            for range in &lost {
                assert!(
                    unflushed
                        .iter()
                        .any(|written| written.start <= range.start && range.end <= written.end),
                    "{range:?}"
                );
            }
            assert!(
                with_cache || lost.is_empty(),
                "without a write cache all that is reported is on the medium"
            );
        }
    });
}

/// After a power cut the drive still has in its media cache what was on the medium, and still has to clean it; what was not is where it was before.
#[test]
fn the_media_cache_and_its_map_survive_a_power_cut() {
    let drive = drive(CACHED, "idle_ms = 100");
    let mut before = Controller::new(&drive);
    let stored = before.serve_through(Ps::ZERO, write(9000, 8)).end;
    let reported = before.serve(stored, write(13_000, 8)).end;
    assert_eq!(
        before.lost_by_power_cut(reported).iter().collect::<Vec<_>>(),
        [13_000..13_008]
    );
    let again = || Controller::new(&drive).with_media_cache_of(&before, reported);
    let (kept, lost) = (
        again().serve(Ps::ZERO, read(9000, 8)),
        again().serve(Ps::ZERO, read(13_000, 8)),
    );
    assert!(kept.seek.ms() < 1.5 && lost.seek.ms() > 4.0, "{kept:?}, {lost:?}");
    let mut idle = again();
    idle.serve(Ps::from_ms(5_000.0), read(0, 8));
    assert_eq!(idle.bands_cleaned(), 1);
}

#[test]
fn loads_run_on_it_as_on_any_drive() {
    let drive = Arc::new(drive(CACHED, "idle_ms = 20"));
    let load = Workload {
        requests: 500,
        reads: 0.3,
        warm_up: 200,
        ..Workload::default()
    };
    let run = || simulate(&drive, "sptf".parse().expect("a scheduler"), &load, |_| {}).expect("it fits");
    let (once, again) = (run(), run());
    assert_eq!(format!("{:?}", once.service_ms), format!("{:?}", again.service_ms));
    assert!(
        once.overhead_ms.mean > 20.0,
        "most of it is waiting for bands: {once:?}"
    );
}

#[test]
fn what_makes_no_shingled_drive_is_refused() {
    let refused = |from: &str, to: &str| {
        let changed = text("", "").replacen(from, to, 1);
        let refusal = Drive::parse("s", &changed).map(|drive| drive.name().to_owned());
        refusal.expect_err("it makes no sense").to_string()
    };
    let cases = [
        (
            "band_sectors = 320",
            "band_sectors = 0",
            "`shingled`: bands of 0 sectors; expected 1 to 262144",
        ),
        ("map_entries = 100", "map_entries = 0", "`map_entries`"),
        (
            "map_sectors = 16",
            "map_sectors = 1300",
            "the map, a band and eight writes need 1644",
        ),
        ("media_cache = true", "", "a shingled drive needs a media cache"),
        (
            "[shingled]\nband_sectors = 320\nmap_entries = 100\nentry_sectors = 2\nmap_sectors = 16\n",
            "",
            "there is no table `[shingled]`",
        ),
        (
            "cylinders = [10, 99]",
            "media_cache = true\ncylinders = [10, 99]",
            "none is the host's",
        ),
        (
            "map_entries = 100",
            "map_entries = 100\ncleaning = 'never'",
            "`aggressive` or `lazy`",
        ),
    ];
    for (from, to, reason) in cases {
        let message = refused(from, to);
        assert!(message.contains(reason), "{to}: {message}");
    }
}
