//! Requests simulated per second of processor time: `cargo bench -p elbow-disk`; as a test it only shows that it runs.
//!
//! Goals, for the HP C2247A: 1,000,000 at a depth of 1 and 300,000 at 16 with SPTF over the whole disk, and the hierarchical
//! scheduler on ranges of a whole group within three times the time of SPTF on single places of that group, also when the
//! group is nearly full.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use elbow_disk::sched::{Queue, QueueRequest, Targets};
use elbow_disk::workload::{Arrivals, GROUP_SECTORS, Moment, Overheads, RangeSize, Span, Workload, simulate};
use elbow_disk::{Arm, Drive, Ps};
use elbow_ranges::RangeSet;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::time::{ClockId, clock_gettime};

/// Of the median.
const ROUNDS: usize = 5;

fn main() {
    let is_tiny = !std::env::args().any(|argument| argument == "--bench");
    let rounds = if is_tiny { 1 } else { ROUNDS };
    let drive = Arc::new(Drive::named("hp-c2247a").unwrap());
    println!(
        "{:<46} {:>12} {:>9} {:>10}",
        "load", "requests/s", "mean ms", "estimates"
    );
    for depth in [1, 4, 16, 64] {
        for (scheduler, load, what) in loads() {
            // Requests with many targets of their own are slow; fewer of them say as much.
            let most = if load.targets > 1 { 20_000 } else { 400_000 };
            let arrivals = Arrivals::Closed {
                depth,
                pick: Moment::Before,
            };
            let load = Workload {
                arrivals,
                requests: if is_tiny { 200 } else { most },
                ..load
            };
            let scheduler = scheduler.parse().unwrap();
            let (seconds, summary) = median(rounds, || simulate(&drive, scheduler, &load, |_| {}).unwrap());
            let done = load.requests + load.warm_up;
            let (mean, estimates) = (summary.service_ms.mean, summary.estimations_per_request);
            line(
                &format!("{scheduler} depth {depth}, {what}"),
                done as f64 / seconds,
                mean,
                estimates,
            );
        }
    }
    for (depth, used) in [(1, 0.5), (1, 0.9), (16, 0.5), (16, 0.9), (16, 0.99)] {
        let picks = if is_tiny { 200 } else { 400_000 };
        let (seconds, (mean, estimates)) = median(rounds, || fill(&drive, depth, used, picks));
        let percent = used * 100.0;
        let name = format!("hrs depth {depth}, group {percent} % full, kept so");
        line(&name, picks as f64 / seconds, mean, estimates);
    }
}

fn loads() -> [(&'static str, Workload, &'static str); 8] {
    let disk = Workload {
        overheads: Overheads::None,
        ..Workload::default()
    };
    let group = Workload {
        span: Span::Group(0),
        ..disk
    };
    let of = |range, targets| Workload {
        range,
        targets,
        ..group
    };
    let whole = of(RangeSize::Sectors(GROUP_SECTORS), 1);
    [
        ("fcfs", disk, "disk"),
        ("sstf", disk, "disk"),
        ("sptf", disk, "disk"),
        ("sptf", group, "group"),
        ("hrs", whole, "group, any place"),
        ("ecs:8", whole, "group, any place"),
        ("hrs", of(RangeSize::Track, 1), "group, tracks"),
        ("hrs", of(RangeSize::Sectors(104), 64), "group, 64 targets of 104"),
    ]
}

/// Writes to the free places of a group; for each one that is taken another, at random, is given back.
fn fill(drive: &Arc<Drive>, depth: u64, used: f64, picks: u64) -> (f64, f64) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let group = RangeSet::from_unsorted([(0, GROUP_SECTORS)]).unwrap();
    let mut targets = Targets::new(drive, &group, 8, 8).unwrap();
    let mut full: Vec<u64> = (0..GROUP_SECTORS)
        .step_by(8)
        .filter(|_| random.random_bool(used))
        .collect();
    full.iter().for_each(|&start| targets.take(start, start + 8));
    let mut queue = Queue::new(Arc::clone(drive), "hrs".parse().unwrap());
    let region = queue.add_region(targets);
    (0..depth).for_each(|id| queue.push(id, QueueRequest::Anywhere(region)));
    let (mut arm, mut now) = (Arm::default(), Ps::ZERO);
    for id in depth..depth + picks {
        let pick = queue.pick(arm, now).unwrap();
        let service = drive.service(arm, now, pick.lbn, 8, true);
        (arm, now) = (service.end, now + service.total());
        let slot = random.random_range(0..full.len());
        let old = std::mem::replace(&mut full[slot], pick.lbn.0);
        queue.region_mut(region).take(pick.lbn.0, pick.lbn.0 + 8);
        queue.region_mut(region).give(old, old + 8);
        queue.push(id, QueueRequest::Anywhere(region));
    }
    (now.ms() / picks as f64, queue.estimations() as f64 / picks as f64)
}

/// The median of the processor time, and what came of it: the same each time.
fn median<T>(rounds: usize, run: impl Fn() -> T) -> (f64, T) {
    let clock = || {
        let now = clock_gettime(ClockId::ProcessCPUTime);
        now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
    };
    let timed = |_| {
        let began = clock();
        let result = run();
        (clock() - began, result)
    };
    let mut all: Vec<_> = (0..rounds).map(timed).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all.swap_remove(rounds / 2)
}

fn line(name: &str, per_second: f64, mean: f64, estimates: f64) {
    println!("{name:<46} {per_second:>12.0} {mean:>9.3} {estimates:>10.1}");
}
