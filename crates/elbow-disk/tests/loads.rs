//! The load generator: refusals, repeatability, and an open loop against queueing theory.

use std::sync::Arc;

use elbow_disk::Drive;
use elbow_disk::workload::{Arrivals, Moment, Overheads, RangeSize, Served, Span, Workload, WorkloadError, simulate};

fn drive() -> Arc<Drive> {
    Arc::new(Drive::named("hp-c2247a").expect("built in"))
}

fn refusal(load: Workload) -> WorkloadError {
    let scheduler = "hrs".parse().expect("a scheduler");
    simulate(&drive(), scheduler, &load, |_| panic!("nothing is served")).expect_err("it makes no sense")
}

fn served(scheduler: &str, load: &Workload) -> Vec<Served> {
    let mut all = Vec::new();
    simulate(&drive(), scheduler.parse().expect("a scheduler"), load, |served| {
        all.push(*served);
    })
    .expect("it fits");
    all
}

#[test]
fn what_makes_no_sense_is_refused_with_the_reason() {
    let base = Workload::default();
    let closed = |depth| Arrivals::Closed {
        depth,
        pick: Moment::Before,
    };
    let cases = [
        (
            Workload {
                span: Span::Group(62),
                ..base
            },
            "62 whole groups",
        ),
        (
            Workload {
                span: Span::Group(u64::MAX),
                ..base
            },
            "62 whole groups",
        ),
        (
            Workload {
                span: Span::Sectors(5, 5),
                ..base
            },
            "sectors 5 to 5",
        ),
        (
            Workload {
                span: Span::Sectors(0, 2_054_865),
                ..base
            },
            "2054864",
        ),
        (
            Workload {
                range: RangeSize::Sectors(7),
                ..base
            },
            "the largest has 7",
        ),
        (
            Workload {
                range: RangeSize::Sectors(0),
                ..base
            },
            "the largest has 0",
        ),
        (
            Workload {
                span: Span::Sectors(1, 15),
                ..base
            },
            "8 sectors in a row from a multiple of 8",
        ),
        (
            Workload {
                span: Span::Sectors(1, 4),
                range: RangeSize::Track,
                ..base
            },
            "8 sectors in a row",
        ),
        (
            Workload {
                arrivals: closed(0),
                ..base
            },
            "the depth is 0",
        ),
        (
            Workload {
                arrivals: Arrivals::Open { per_second: 0.0 },
                ..base
            },
            "arrivals per second is 0",
        ),
        (
            Workload {
                arrivals: Arrivals::Open { per_second: f64::NAN },
                ..base
            },
            "more than 0",
        ),
        (
            Workload {
                request_sectors: 0,
                ..base
            },
            "size of a request",
        ),
        (
            Workload {
                align_sectors: 0,
                ..base
            },
            "alignment",
        ),
        (Workload { targets: 0, ..base }, "number of targets"),
        (Workload { reads: 1.5, ..base }, "share of reads is 1.5"),
        (
            Workload {
                reads: f64::NAN,
                ..base
            },
            "from 0 to 1",
        ),
        (Workload { requests: 0, ..base }, "number of requests"),
        (
            Workload {
                request_sectors: 600,
                align_sectors: 8,
                range: RangeSize::Track,
                ..base
            },
            "600 sectors in a row",
        ),
    ];
    for (load, reason) in cases {
        let said = refusal(load).to_string();
        assert!(said.contains(reason), "{said:?} does not say {reason:?}");
    }
}

#[test]
fn an_open_load_that_is_too_much_is_an_error_and_not_an_endless_queue() {
    let load = Workload {
        arrivals: Arrivals::Open { per_second: 500.0 },
        requests: 1 << 40,
        ..Workload::default()
    };
    let scheduler = "fcfs".parse().expect("a scheduler");
    let error = simulate(&drive(), scheduler, &load, |_| {}).expect_err("the drive does about 50 per second");
    let WorkloadError::Overrun { served_per_second, .. } = error else {
        panic!("{error}")
    };
    assert!((45.0..55.0).contains(&served_per_second), "{error}");
}

#[test]
fn the_same_seed_gives_the_same_requests_and_times_and_another_one_does_not() {
    let arrivals = Arrivals::Closed {
        depth: 5,
        pick: Moment::Before,
    };
    let range = RangeSize::Sectors(64);
    let load = Workload {
        reads: 0.3,
        targets: 5,
        range,
        arrivals,
        requests: 500,
        ..Workload::default()
    };
    for scheduler in ["fcfs", "sptf", "ecs:3", "hrs"] {
        assert_eq!(served(scheduler, &load), served(scheduler, &load), "{scheduler}");
        assert_ne!(
            served(scheduler, &load),
            served(scheduler, &Workload { seed: 2, ..load }),
            "{scheduler}"
        );
    }
}

#[test]
fn every_request_is_served_once_where_it_may_land_and_the_parts_are_the_whole() {
    for overheads in [Overheads::None, Overheads::Controller] {
        let arrivals = Arrivals::Closed {
            depth: 8,
            pick: Moment::After,
        };
        let range = RangeSize::Sectors(200);
        let load = Workload {
            span: Span::Sectors(10_003, 30_001),
            request_sectors: 24,
            align_sectors: 5,
            reads: 0.5,
            targets: 3,
            range,
            arrivals,
            overheads,
            requests: 3000,
            warm_up: 0,
            ..Workload::default()
        };
        let all = served("hrs", &load);
        let mut numbers: Vec<u64> = all.iter().map(|served| served.number).collect();
        numbers.sort_unstable();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "none twice");
        for one in &all {
            assert!(
                one.lbn.0.is_multiple_of(5) && one.lbn.0 >= 10_003 && one.lbn.0 + 24 <= 30_001,
                "{one:?}"
            );
            assert_eq!(
                one.seek + one.rotation + one.transfer + one.overhead,
                one.service(),
                "{one:?}"
            );
            assert!(one.arrived <= one.started && one.waiting <= 8, "{one:?}");
        }
        assert!(
            all.windows(2).all(|pair| pair[0].ended == pair[1].started),
            "the drive never rests in a closed loop"
        );
        let reads = all.iter().filter(|served| !served.write).count();
        assert!((1350..1650).contains(&reads), "{reads} of 3000");
    }
}

/// Pollaczek and Khinchine: in an M/G/1 queue a request waits `rate * E[S^2] / (2 * (1 - load))` on average.
#[test]
fn an_open_loop_waits_as_long_as_theory_says() {
    let per_second = 30.0;
    let load = Workload {
        arrivals: Arrivals::Open { per_second },
        overheads: Overheads::None,
        requests: 400_000,
        ..Workload::default()
    };
    let (mut service, mut squares, mut waited, mut count) = (0.0, 0.0, 0.0, 0.0);
    let scheduler = "fcfs".parse().expect("a scheduler");
    simulate(&drive(), scheduler, &load, |served| {
        let seconds = served.service().ms() / 1000.0;
        service += seconds;
        squares += seconds * seconds;
        waited += (served.started - served.arrived).ms() / 1000.0;
        count += 1.0;
    })
    .expect("the drive keeps up");
    let busy = per_second * service / count;
    let theory = per_second * squares / count / (2.0 * (1.0 - busy));
    let is = waited / count;
    println!(
        "load {busy:.3}: waits {:.3} ms, by theory {:.3} ms",
        is * 1e3,
        theory * 1e3
    );
    assert!((is / theory - 1.0).abs() < 0.05, "{is} {theory}");
}

#[test]
fn a_span_that_cuts_tracks_short_or_begins_beside_the_alignment_is_kept_to() {
    // Of 92 sectors a track, so that places reach over the ends of tracks; and one aligned place, at 664,904.
    let spans = [(664_800 + 88, 664_800 + 300), (664_800 + 92 + 5, 664_800 + 92 + 21)];
    for ((start, end), range) in spans.into_iter().zip([RangeSize::Track, RangeSize::Sectors(15)]) {
        for scheduler in ["sptf", "hrs"] {
            let load = Workload {
                span: Span::Sectors(start, end),
                range,
                requests: 2000,
                ..Workload::default()
            };
            for one in served(scheduler, &load) {
                let is_within = start <= one.lbn.0 && one.lbn.0 + 8 <= end;
                assert!(
                    is_within && one.lbn.0.is_multiple_of(8),
                    "{scheduler} {range:?}: {one:?}"
                );
            }
        }
    }
}
