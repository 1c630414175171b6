//! What Anand et al. claim in *Range Writes* (OSDI 2008, section 3), on the HP C2247A model: reproduced, or its bounds
//! shown. 4 KiB writes; a group is 4096 of them at LBN 0, unless it says otherwise.

use std::sync::Arc;

use elbow_disk::sched::Scheduler;
use elbow_disk::workload::{
    Arrivals, GROUP_SECTORS, Moment, Overheads, RangeSize, Served, Span, Summary, Workload, simulate,
};
use elbow_disk::{Drive, Ps};

/// What a write costs beside the mechanics when one is outstanding.
const OVERHEAD_MS: f64 = 1.07;

fn hp() -> Arc<Drive> {
    Arc::new(Drive::named("hp-c2247a").expect("built in"))
}

fn group() -> Workload {
    Workload {
        span: Span::Group(0),
        overheads: Overheads::None,
        requests: 20_000,
        ..Workload::default()
    }
}

fn closed(depth: u32, pick: Moment) -> Arrivals {
    Arrivals::Closed { depth, pick }
}

fn run(scheduler: &str, load: &Workload) -> Summary {
    run_on(&hp(), scheduler, load)
}

fn run_on(drive: &Arc<Drive>, scheduler: &str, load: &Workload) -> Summary {
    let scheduler: Scheduler = scheduler.parse().expect("a scheduler");
    simulate(drive, scheduler, load, |_| {}).expect("the load fits the drive")
}

fn positioning(summary: &Summary) -> f64 {
    summary.seek_ms.mean + summary.rotation_ms.mean
}

fn assert_near(what: &str, is: f64, expected: f64, tolerance: f64) {
    println!("{what}: {is:.4}, expected {expected:.4}");
    assert!(
        (is / expected - 1.0).abs() < tolerance,
        "{what}: {is} instead of {expected}"
    );
}

/// Positioning times of single random targets, sorted, in milliseconds.
fn measured_distribution() -> Vec<f64> {
    let mut times = Vec::new();
    let load = Workload {
        requests: 200_000,
        seed: 99,
        ..group()
    };
    simulate(&hp(), Scheduler::Sptf, &load, |served| {
        times.push((served.seek + served.rotation).ms());
    })
    .expect("it fits");
    times.sort_by(f64::total_cmp);
    times
}

/// The integral of (1 - F)^k for the distribution F of these times.
fn mean_of_least(times: &[f64], k: i32) -> f64 {
    let count = times.len() as f64;
    let steps = times.windows(2).enumerate();
    times[0]
        + steps
            .map(|(at, pair)| (pair[1] - pair[0]) * (1.0 - (at + 1) as f64 / count).powi(k))
            .sum::<f64>()
}

#[test]
fn k_independent_targets_take_as_long_as_the_least_of_k() {
    let times = measured_distribution();
    // As measured by others on the same geometry.
    let known = [10.58, 8.65, 7.08, 5.94, 5.11, 4.40, 3.72];
    for (power, known) in (0..).zip(known) {
        let targets = 1 << power;
        let is = positioning(&run("hrs", &Workload { targets, ..group() }));
        assert_near(
            &format!("{targets} targets, by the integral"),
            is,
            mean_of_least(&times, 1 << power),
            0.02,
        );
        assert_near(&format!("{targets} targets, as known"), is, known, 0.02);
    }
}

#[test]
fn a_range_of_a_track_leaves_half_a_place_of_rotation() {
    let turn = hp().rotation().ms();
    let whole = run(
        "hrs",
        &Workload {
            range: RangeSize::Track,
            ..group()
        },
    );
    assert_near(
        "whole tracks: 12 places, half of one between",
        whole.rotation_ms.mean,
        turn / 24.0,
        0.02,
    );
    let anywhere = run(
        "hrs",
        &Workload {
            range: RangeSize::Sectors(96),
            ..group()
        },
    );
    println!(
        "96 sectors from anywhere: {:.3} ms of rotation",
        anywhere.rotation_ms.mean
    );
    assert!(anywhere.rotation_ms.mean < 0.7 && anywhere.rotation_ms.mean > whole.rotation_ms.mean);
}

#[test]
fn a_range_of_a_group_leaves_nothing_but_transfer() {
    for depth in [1, 16] {
        let range = RangeSize::Sectors(GROUP_SECTORS);
        let summary = run(
            "hrs",
            &Workload {
                range,
                arrivals: closed(depth, Moment::Before),
                ..group()
            },
        );
        assert_eq!(positioning(&summary), 0.0, "the next sector is free, too");
        assert_near("transfer", summary.service_ms.mean, hp().rotation().ms() / 12.0, 1e-6);
    }
}

#[test]
fn sixty_four_targets_of_a_hundred_sectors_bring_12_6_ms_down_to_3_9() {
    let overheads = Overheads::Fixed(Ps::from_ms(OVERHEAD_MS));
    let one = Workload {
        overheads,
        requests: 60_000,
        ..group()
    };
    let many = Workload {
        targets: 64,
        range: RangeSize::Sectors(104),
        ..one
    };
    assert_near("1 target of 1 block", run("sptf", &one).service_ms.mean, 12.60, 0.01);
    assert_near(
        "64 targets of 104 sectors",
        run("hrs", &many).service_ms.mean,
        3.88,
        0.01,
    );
    // A write cannot begin before the bus has brought its data: with so many near targets that begins to count.
    let load = Workload {
        overheads: Overheads::Controller,
        ..many
    };
    let (mut missed, turn) = (0, hp().rotation());
    let seen = |served: &Served| missed += u64::from(served.rotation >= turn);
    let real = simulate(&hp(), "hrs".parse().expect("a scheduler"), &load, seen).expect("it fits");
    let real = real.service_ms.mean;
    assert_eq!(
        missed, 0,
        "the scheduler knows when the data is there, and picks no place that passes before"
    );
    println!("with the controller of the drive instead of {OVERHEAD_MS} ms: {real:.3} ms");
    assert!((3.9..4.5).contains(&real), "{real}");
}

/// A drive of one cylinder and head: 96 sectors, nothing to seek.
fn one_track() -> Arc<Drive> {
    let text = "name = 'track'\nheads = 1\nrotation_ms = 11.111\nseek = { head_switch_ms = 0, points_ms = [[1, 1]] }\n\
        zone = [{ cylinders = [0, 0], sectors_per_track = 96 }]";
    Arc::new(Drive::parse("track.toml", text).expect("a drive"))
}

/// Time per write over k spaced places, where the next request comes `busy` after the start of the transfer.
fn spaced(k: u32, busy_ms: f64) -> (f64, f64) {
    let drive = one_track();
    let turn = drive.rotation().ms();
    let transfer = turn / 96.0;
    let load = Workload {
        request_sectors: 1,
        align_sectors: 1,
        range: RangeSize::Sectors(96),
        overheads: Overheads::Fixed(Ps::from_ms(busy_ms - transfer)),
        requests: 2000,
        ..Workload::default()
    };
    let is = run_on(&drive, &format!("ecs:{k}"), &load).service_ms.mean;
    let k = f64::from(k);
    (is, turn / k * (busy_ms * k / turn).ceil())
}

#[test]
fn eight_spaced_places_do_as_well_as_a_whole_track_nearly_and_more_are_not_always_better() {
    for overhead_ms in [0.3, OVERHEAD_MS, 2.0] {
        let busy_ms = 8.0 / 96.0 * 11.111 + overhead_ms; // 4 KiB
        for k in [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 96] {
            let (is, closed_form) = spaced(k, busy_ms);
            assert_near(&format!("{k} places, overhead {overhead_ms} ms"), is, closed_form, 1e-6);
        }
    }
    let of = |k| spaced(k, 8.0 / 96.0 * 11.111 + OVERHEAD_MS).0;
    assert!(
        of(8) < of(1) / 3.9,
        "8 places do nearly all of it: {} of {}",
        of(8),
        of(1)
    );
    assert!(of(8) - of(96) < 0.8, "{} {}", of(8), of(96));
    assert!(
        of(6) > of(4) * 1.3 && of(12) >= of(8),
        "and it is not monotone: {} {}",
        of(4),
        of(6)
    );
}

#[test]
fn a_depth_of_two_is_one_when_the_scheduler_picks_before_the_replacement() {
    for scheduler in ["sptf", "hrs"] {
        let at = |depth, moment| {
            let load = Workload {
                arrivals: closed(depth, moment),
                warm_up: 0,
                requests: 20_000,
                targets: 4,
                ..group()
            };
            run(scheduler, &load).service_ms.mean
        };
        assert_eq!(at(2, Moment::Before), at(1, Moment::Before), "{scheduler}");
        assert!(at(2, Moment::After) < at(1, Moment::After) * 0.95, "{scheduler}");
        assert_eq!(at(1, Moment::After), at(1, Moment::Before), "{scheduler}");
    }
}

#[test]
fn sixteen_targets_halve_the_positioning_of_a_group_and_save_most_at_low_depth() {
    let of = |depth| {
        let load = Workload {
            arrivals: closed(depth, Moment::Before),
            ..group()
        };
        let sixteen = positioning(&run("hrs", &Workload { targets: 16, ..load }));
        (positioning(&run("sptf", &load)), sixteen)
    };
    let all = [1, 2, 4, 16, 64].map(of);
    println!("positioning with 1 and with 16 targets at depths 1 2 4 16 64: {all:.3?}");
    assert!(all[..2].iter().all(|(one, sixteen)| sixteen < &(one / 2.0)), "{all:?}");
    let saved = all.map(|(one, sixteen)| one - sixteen);
    assert!(
        saved.is_sorted_by(|low, deep| low >= deep),
        "a deep queue has choice of its own: {saved:?}"
    );
}

#[test]
fn the_benefit_falls_with_the_share_of_reads() {
    let benefit = |reads| {
        let load = Workload {
            reads,
            arrivals: closed(4, Moment::Before),
            ..group()
        };
        let free = Workload {
            targets: 64,
            range: RangeSize::Sectors(104),
            ..load
        };
        1.0 - run("hrs", &free).service_ms.mean / run("sptf", &load).service_ms.mean
    };
    let benefits = [0.0, 0.25, 0.5, 0.75, 1.0].map(benefit);
    println!("time saved with 0, 25, 50, 75, 100 % of reads: {benefits:.3?}");
    assert!(
        benefits[0] > 0.6 && benefits.is_sorted_by(|more, less| more > less),
        "{benefits:?}"
    );
    assert!(benefits[4].abs() < 1e-9, "reads have no freedom");
}

#[test]
fn estimates_per_decision_follow_the_papers_equations() {
    let (places, tracks) = (4096.0, (4096.0_f64 / 12.0).ceil()); // S, and S / T with T = 12 places on a track
    let range = RangeSize::Sectors(GROUP_SECTORS);
    for depth in [1, 2, 5, 16] {
        let load = Workload {
            range,
            arrivals: closed(depth, Moment::After),
            requests: 100,
            warm_up: 10,
            ..group()
        };
        let estimates = |scheduler| run(scheduler, &load).estimations_per_request;
        let queue = f64::from(depth);
        assert_eq!(estimates("ecs"), places * queue, "equation (1): W = S * Q");
        assert_eq!(
            estimates("hrs:whole"),
            tracks * queue,
            "equation (2): W = ceil(S / T) * Q"
        );
        assert_eq!(estimates("ecs:8"), 8.0 * queue);
        assert_eq!(estimates("sptf"), queue);
        assert_eq!(estimates("fcfs"), 0.0);
        assert!(
            estimates("hrs") <= 14.0,
            "one walk for all, pruned: {}",
            estimates("hrs")
        );
    }
}
