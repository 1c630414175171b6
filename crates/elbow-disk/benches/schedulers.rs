//! Requests simulated per second of wall clock: `cargo bench -p elbow-disk`; as a test it only shows that it runs.
//!
//! Goals, for the HP C2247A: 1,000,000 at a depth of 1 and 300,000 at 16 with SPTF over the whole disk, and the hierarchical
//! scheduler on ranges of a whole group within three times the time of SPTF on single places of that group.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Instant;

use elbow_disk::Drive;
use elbow_disk::workload::{Arrivals, Moment, Overheads, RangeSize, Span, Workload, simulate};

/// Of the median.
const ROUNDS: usize = 5;

fn main() {
    let is_tiny = !std::env::args().any(|argument| argument == "--bench");
    let drive = Arc::new(Drive::named("hp-c2247a").unwrap());
    let requests = if is_tiny { 200 } else { 400_000 };
    let base = Workload {
        overheads: Overheads::None,
        requests,
        ..Workload::default()
    };
    let group = Workload {
        span: Span::Group(0),
        range: RangeSize::Sectors(32_768),
        ..base
    };
    println!(
        "{:<44} {:>14} {:>10} {:>12}",
        "load", "requests/s", "mean ms", "estimates"
    );
    for depth in [1, 4, 16, 64] {
        for (scheduler, load, what) in [
            ("fcfs", &base, "disk"),
            ("sstf", &base, "disk"),
            ("sptf", &base, "disk"),
            ("sptf", &group, "group"),
            ("hrs", &group, "group, any place of it"),
            ("ecs:8", &group, "group, any place of it"),
            (
                "hrs",
                &Workload {
                    range: RangeSize::Track,
                    ..group
                },
                "group, tracks",
            ),
            (
                "hrs",
                &Workload {
                    range: RangeSize::Sectors(104),
                    targets: 64,
                    ..group
                },
                "group, 64 targets of 104",
            ),
        ] {
            let arrivals = Arrivals::Closed {
                depth,
                pick: Moment::Before,
            };
            // Making 64 regions for each request is slow work; fewer of them say as much.
            let requests = if load.targets > 1 {
                requests.min(20_000)
            } else {
                requests
            };
            let load = Workload {
                arrivals,
                requests,
                ..*load
            };
            let mut seconds = Vec::new();
            let mut summary = Default::default();
            for _ in 0..if is_tiny { 1 } else { ROUNDS } {
                let began = Instant::now();
                summary = simulate(&drive, scheduler.parse().unwrap(), &load, |_| {}).unwrap();
                seconds.push(began.elapsed().as_secs_f64());
            }
            seconds.sort_by(f64::total_cmp);
            let per_second = (requests + load.warm_up) as f64 / seconds[seconds.len() / 2];
            let name = format!("{scheduler} depth {depth}, {what}");
            let (mean, estimates) = (summary.service_ms.mean, summary.estimations_per_request);
            println!("{name:<44} {per_second:>14.0} {mean:>10.3} {estimates:>12.1}");
        }
    }
}
