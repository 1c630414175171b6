//! A trace against a drive that knows several of its requests.

use std::fmt::Write;
use std::sync::Arc;

use elbow_disk::trace::{Record, Trace};
use elbow_disk::workload::{Arrivals, Moment, Overheads, Span, Workload, simulate};
use elbow_disk::{Controller, Drive, Ps, QueuedReplay, Report, Served, replay};
use elbow_testkit::cases::for_each_seed;
use rand::Rng;
use rand::rngs::StdRng;

fn drive() -> Arc<Drive> {
    Arc::new(Drive::named("hp-c2247a").expect("built in"))
}

/// What was served, in the order of service.
type All = Vec<(Record, Ps, Served)>;

fn queued(scheduler: &str, depth: u32, overheads: Overheads, text: &str) -> (All, Report) {
    let drive = drive();
    let trace = Trace::detect("t", text.as_bytes(), drive.sectors()).expect(text);
    let scheduler = scheduler.parse().expect("a scheduler");
    let queued = QueuedReplay {
        scheduler,
        depth,
        overheads,
    };
    let mut all = Vec::new();
    let report = queued.run(&drive, trace, |record, arrival, served| {
        all.push((*record, arrival, *served));
    });
    (all, report.expect("a sound trace"))
}

/// Reads and writes of any size with think times, or, as CSV, at times of their own.
fn random_trace(random: &mut StdRng, requests: usize, per_second: Option<f64>) -> String {
    let mut text = match per_second {
        Some(_) => "lbn,sectors,op,arrival_ms\n".to_owned(),
        None => "lbn,sectors,op,think_ms\n".to_owned(),
    };
    let mut at = 0.0;
    for _ in 0..requests {
        let (lbn, sectors) = (random.random_range(0..2_054_000), random.random_range(1..64));
        let op = if random.random() { 'R' } else { 'W' };
        let gap = random.random_range(0.0..2.0) * 1000.0 / per_second.unwrap_or(50.0);
        at = if per_second.is_some() { at + gap } else { gap };
        writeln!(text, "{lbn},{sectors},{op},{at:.6}").expect("memory");
    }
    text
}

#[test]
fn with_one_place_it_is_the_plain_replay_whoever_picks() {
    for_each_seed(20, |random| {
        let per_second = [None, Some(20.0), Some(200.0)][random.random_range(0..3)];
        let text = random_trace(random, 200, per_second);
        let drive = drive();
        let mut plain = Vec::new();
        let trace = Trace::detect("t", text.as_bytes(), drive.sectors()).expect("a trace");
        let report = replay(trace, Controller::new(&drive), |record, arrival, served| {
            plain.push((*record, arrival, *served));
        });
        let report = serde_json::to_string(&report.expect("a sound trace")).expect("JSON");
        for scheduler in ["fcfs", "sptf", "scan"] {
            let (all, same) = queued(scheduler, 1, Overheads::Controller, &text);
            assert_eq!(all, plain, "{scheduler}");
            assert_eq!(serde_json::to_string(&same).expect("JSON"), report);
        }
    });
}

#[test]
fn every_request_is_served_once_in_time_and_no_more_than_are_known_pass_it() {
    for_each_seed(30, |random| {
        let depth = random.random_range(2..12);
        let per_second = [None, Some(30.0), Some(300.0)][random.random_range(0..3)];
        let text = random_trace(random, 300, per_second);
        let scheduler = ["fcfs", "sstf", "sptf", "asptf", "scan", "c-look"][random.random_range(0..6)];
        let (all, report) = queued(scheduler, depth, Overheads::Controller, &text);
        assert_eq!(report.all.requests, 300);
        let mut lines: Vec<u64> = all.iter().map(|(record, ..)| record.line).collect();
        for (place, (_, arrival, served)) in all.iter().enumerate() {
            let parts = served.seek + served.rotation + served.transfer + served.overhead;
            assert!(served.end - parts >= *arrival, "served before it came");
            let before = all[..place].last().map_or(Ps::ZERO, |(.., served)| served.end);
            assert_eq!(
                served.end - parts,
                before.max(*arrival),
                "the drive rests only while nobody waits"
            );
        }
        // A request that is passed is known to the drive: of those before it in the trace no more than fit beside it may be missing.
        for (place, line) in lines.iter().enumerate() {
            let missing = all[place..].iter().filter(|(record, ..)| record.line < *line).count();
            assert!(missing < depth as usize, "{missing} of a depth of {depth}");
        }
        lines.sort_unstable();
        assert!(
            lines.windows(2).all(|pair| pair[0] + 1 == pair[1]),
            "none twice, none lost"
        );
    });
}

/// Requests without think time, so many at once, are the closed loop of `simulate` that picks after the replacement has come.
#[test]
fn a_closed_trace_takes_what_the_closed_load_takes() {
    for (scheduler, depth) in [("fcfs", 4), ("sptf", 16), ("scan", 16), ("c-look", 16), ("asptf", 16)] {
        let load = Workload {
            span: Span::Disk,
            arrivals: Arrivals::Closed {
                depth,
                pick: Moment::After,
            },
            requests: 4000,
            warm_up: 0,
            ..Workload::default()
        };
        let mut served = Vec::new();
        let scheduler_ = scheduler.parse().expect("a scheduler");
        let summary = simulate(&drive(), scheduler_, &load, |one| served.push(*one)).expect("it fits");
        served.sort_by_key(|one| one.number);
        let mut text = "lbn,sectors,op\n".to_owned();
        served
            .iter()
            .for_each(|one| writeln!(text, "{},{},W", one.lbn.0, one.sectors).expect("memory"));
        // The last ones of a trace have nobody beside them, and the load leaves some unserved.
        let (all, report) = queued(scheduler, depth, Overheads::Controller, &text);
        let (ours, theirs) = (report.simulated_s, summary.simulated_seconds);
        assert_eq!(all.len(), 4000);
        assert!((ours / theirs - 1.0).abs() < 0.01, "{scheduler}: {ours} {theirs}");
    }
}

/// SPTF lets some wait for ever so long; ageing bounds that, and costs little.
#[test]
fn ageing_bounds_the_longest_wait() {
    let spread = |scheduler: &str| {
        let load = Workload {
            arrivals: Arrivals::Closed {
                depth: 64,
                pick: Moment::Before,
            },
            requests: 60_000,
            ..Workload::default()
        };
        let scheduler = scheduler.parse().expect("a scheduler");
        simulate(&drive(), scheduler, &load, |_| {}).expect("it fits")
    };
    let (sptf, aged, fcfs) = (spread("sptf"), spread("asptf"), spread("fcfs"));
    for (name, is) in [("sptf", &sptf), ("asptf", &aged), ("fcfs", &fcfs)] {
        println!(
            "{name}: mean {:.3} ms, {:?}",
            is.service_ms.mean, is.response_percentiles_ms
        );
    }
    let (longest, shorter) = (sptf.response_percentiles_ms.max, aged.response_percentiles_ms.max);
    assert!(
        longest > 4.0 * fcfs.response_percentiles_ms.max && shorter < longest / 3.0,
        "{longest} {shorter}"
    );
    assert!(aged.service_ms.mean < sptf.service_ms.mean * 1.05);
}

#[test]
fn sweeps_serve_in_the_order_of_the_disk() {
    let text = "0 0 900000 8 0\n1 0 1200000 8 0\n1 0 100 8 0\n1 0 1000000 8 0\n1 0 500000 8 0\n";
    let order = |scheduler| -> Vec<u64> {
        let (all, _) = queued(scheduler, 8, Overheads::Controller, text);
        all.iter().map(|(record, ..)| record.request.lbn.0).collect()
    };
    assert_eq!(order("fcfs"), [900_000, 1_200_000, 100, 1_000_000, 500_000]);
    assert_eq!(order("scan"), [900_000, 1_000_000, 1_200_000, 500_000, 100]);
    assert_eq!(order("c-look"), [900_000, 1_000_000, 1_200_000, 100, 500_000]);
}

#[test]
fn percentiles_are_those_of_the_response_times() {
    for_each_seed(5, |random| {
        let text = random_trace(random, 1000, Some(60.0));
        let (all, report) = queued("sptf", 8, Overheads::None, &text);
        let mut times: Vec<f64> = all
            .iter()
            .map(|(_, arrival, served)| (served.end - *arrival).ms())
            .collect();
        times.sort_by(f64::total_cmp);
        let of = report.all.percentiles_simulated_ms;
        for (is, rank) in [(of.p50, 500), (of.p90, 900), (of.p99, 990), (of.p99_9, 999)] {
            assert!((is / times[rank - 1] - 1.0).abs() <= 1e-3, "{is} {}", times[rank - 1]);
        }
        assert_eq!(of.max, times[999]);
    });
}

/// A drive that needs as long for each sector as a description can say, and requests as large as a trace can have: sums stay sums (tests
/// look at each), and the clock ends before it wraps.
#[test]
fn no_drive_is_so_slow_that_the_clock_wraps() {
    const SLOWEST: &str = "name = 's'\nheads = 1\nrotation_ms = 999\n\
        seek = { head_switch_ms = 1000, write_settle_ms = 1000, points_ms = [[1, 1000], [9, 1000]] }\n\
        [command]\nwrite_ms = 1000\nread_miss_ms = 1000\n[bus]\nwrite_sector_ms = 1000\nread_sector_ms = 1000\n\
        [[zone]]\ncylinders = [0, 1100000]\nsectors_per_track = 1\n";
    let drive = Arc::new(Drive::parse("slowest", SLOWEST).expect("a drive"));
    let text = "lbn,sectors,op,think_ms\n".to_owned() + &"0,1048576,W,0\n9,1048576,W,300000000\n".repeat(5);
    // With as many places as requests none is read after the clock has ended, and none may be served then.
    for depth in [1, 3, 10] {
        let trace = Trace::detect("t", text.as_bytes(), drive.sectors()).expect("a trace");
        let queued = QueuedReplay {
            scheduler: "sptf".parse().expect("a scheduler"),
            depth,
            overheads: Overheads::Controller,
        };
        let mut last = Ps::ZERO;
        let done = queued.run(&drive, trace, |record, arrival, served| {
            println!(
                "line {} from {:.1} to {:.1} days",
                record.line,
                days(arrival),
                days(served.end)
            );
            assert!(served.end > last && days(served.end) < 115.0);
            last = served.end;
        });
        let error = done.expect_err("it takes too long").to_string();
        assert!(
            error.contains("the simulated clock passes 53 days") && last > Ps::ZERO,
            "{error}"
        );
    }
}

fn days(time: Ps) -> f64 {
    time.ms() / 86_400_000.0
}
