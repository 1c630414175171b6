//! Figures 4 to 7: random requests on the drive.
//!
//! Writes are of 4 KiB; a group is 4096 of them at the outer edge of the drive. Figures 4 to 7 count mechanics alone, as the split
//! of the bars of *Range Writes* into seek, rotation and transfer does; where 1.07 ms before each request matter, a
//! claim says so.

use super::claim::{SCATTER, change, near};
use super::{Claim, Figure, Panel, PanelKind, Plan, StudyError, column, each, labels};
use elbow_disk::Ps;
use elbow_disk::workload::{Arrivals, GROUP_SECTORS, Moment, Overheads, RangeSize, Span, Summary, Workload, simulate};

/// What a write costs beside the mechanics when one is outstanding.
pub(super) const OVERHEAD_MS: f64 = 1.07;
const DEPTHS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
const SPANS: [(&str, Span); 2] = [("entire disk", Span::Disk), ("block group", Span::Group(0))];

/// A point to simulate.
#[derive(Clone, Copy)]
pub(super) struct Point {
    pub(super) scheduler: &'static str,
    pub(super) load: Workload,
}

impl Plan {
    /// Writes one at a time somewhere in the group.
    pub(super) fn load(&self) -> Workload {
        Workload {
            span: Span::Group(0),
            overheads: Overheads::None,
            requests: self.requests(),
            warm_up: 200,
            seed: self.seed,
            ..Workload::default()
        }
    }

    pub(super) fn simulate(&self, point: &Point) -> Result<Summary, StudyError> {
        let scheduler = point.scheduler.parse().expect("a scheduler");
        Ok(simulate(&self.drive, scheduler, &point.load, |_| {})?)
    }

    /// One panel for each span, and its points, over all depths.
    fn depths(&self, scheduler: &'static str, range: RangeSize) -> Result<[Vec<Summary>; 2], StudyError> {
        let point = |(_, span), depth| Point {
            scheduler,
            load: Workload {
                span,
                range,
                arrivals: closed(depth),
                ..self.load()
            },
        };
        let points: Vec<Point> = SPANS
            .iter()
            .flat_map(|&span| DEPTHS.map(|depth| point(span, depth)))
            .collect();
        let mut disk = each(&points, |point| self.simulate(point))?;
        let group = disk.split_off(DEPTHS.len());
        Ok([disk, group])
    }
}

fn closed(depth: u32) -> Arrivals {
    Arrivals::Closed {
        depth,
        pick: Moment::Before,
    }
}

fn positioning(of: &Summary) -> f64 {
    of.seek_ms.mean + of.rotation_ms.mean
}

fn bars(of: &[Vec<Summary>; 2]) -> Vec<Panel> {
    let panel = |((title, _), of): (&(&str, Span), &Vec<Summary>)| Panel {
        title: (*title).to_owned(),
        kind: PanelKind::Stacked,
        x: ("outstanding requests", labels(&DEPTHS)),
        y: "ms per write",
        columns: vec![
            column("seek_ms", of, |of| of.seek_ms.mean),
            column("rotation_ms", of, |of| of.rotation_ms.mean),
            column("transfer_ms", of, |of| of.transfer_ms.mean),
        ],
    };
    SPANS.iter().zip(of).map(panel).collect()
}

/// Time per write by number and size of targets.
pub(super) fn targets(plan: &Plan) -> Result<Figure, StudyError> {
    let counts = [1, 2, 4, 8, 16, 32, 64];
    let sizes = [8, 24, 56, 104];
    let overheads = Overheads::Fixed(Ps::from_ms(OVERHEAD_MS));
    let point = |size: u64, targets| Point {
        scheduler: "hrs",
        load: Workload {
            range: RangeSize::Sectors(size),
            targets,
            overheads,
            ..plan.load()
        },
    };
    let points: Vec<Point> = sizes
        .iter()
        .flat_map(|&size| counts.map(|count| point(size, count)))
        .collect();
    let all = each(&points, |point| plan.simulate(point))?;
    let of_size = |(size, of): (&u64, &[Summary])| column(&format!("{size} sectors"), of, |of| of.service_ms.mean);
    let (one, many) = (all[0].service_ms.mean, all[all.len() - 1].service_ms.mean);
    let claims = vec![Claim::new(
        "A write with one target takes more than 12 ms, one with 64 targets of about 100 sectors about 4",
        "12.6 -> 3.9 ms",
        format!("{one:.2} -> {many:.2} ms"),
        near(one, 12.6, 0.05) && near(many, 3.9, 0.08),
        [
            "With k targets the positioning time is the least of k; 1.07 ms before each request are part of both numbers",
            "See the number of requests: few of them scatter",
        ],
    )];
    Ok(Figure {
        name: "targets",
        title: "Number and size of targets",
        caption: format!(
            "Targets are drawn at random from the group; {OVERHEAD_MS} ms before each request. The paper's claim has no numbered figure."
        ),
        panels: vec![Panel {
            title: "block group".into(),
            kind: PanelKind::Lines,
            x: ("targets", labels(&counts)),
            y: "ms per write",
            columns: sizes.iter().zip(all.chunks(counts.len())).map(of_size).collect(),
        }],
        claims,
    })
}

/// Figure 4.
pub(super) fn classic(plan: &Plan) -> Result<Figure, StudyError> {
    let all = plan.depths("sptf", RangeSize::Sectors(8))?;
    let mean = |span: usize, depth: usize| all[span][depth].service_ms.mean;
    let claims = vec![
        Claim::new(
            "A depth of two is no better than one",
            "equal",
            format!(
                "{:.2} and {:.2} ms on the disk, {:.2} and {:.2} in the group",
                mean(0, 0),
                mean(0, 1),
                mean(1, 0),
                mean(1, 1)
            ),
            near(mean(0, 1), mean(0, 0), 0.01) && near(mean(1, 1), mean(1, 0), 0.01),
            [
                "The scheduler picks when a request completes and before the host's replacement has come, so of two it chooses among one; a drive that is refilled first gains from two",
                "The means scatter by more than a percent",
            ],
        ),
        Claim::new(
            "With 64 outstanding, positioning is much shorter but not gone",
            "-",
            format!(
                "{:.1} -> {:.1} ms on the disk, {:.1} -> {:.1} in the group",
                positioning(&all[0][0]),
                positioning(&all[0][6]),
                positioning(&all[1][0]),
                positioning(&all[1][6])
            ),
            all.iter()
                .all(|of| positioning(&of[6]) < positioning(&of[0]) / 1.9 && positioning(&of[6]) > 2.0),
            ["The nearest of 63 is still some milliseconds away", SCATTER],
        ),
        Claim::new(
            "Locality shortens seeks and leaves rotation as it is",
            "-",
            format!(
                "seek {:.1} -> {:.1} ms, rotation {:.1} -> {:.1}, one outstanding",
                all[0][0].seek_ms.mean, all[1][0].seek_ms.mean, all[0][0].rotation_ms.mean, all[1][0].rotation_ms.mean
            ),
            all[1][0].seek_ms.mean < all[0][0].seek_ms.mean / 2.0
                && near(all[1][0].rotation_ms.mean, all[0][0].rotation_ms.mean, 0.1),
            ["A turn is a turn wherever the arm is", SCATTER],
        ),
    ];
    Ok(Figure {
        name: "4",
        title: "Classic writes: SPTF and the depth of the queue",
        caption: "4 KiB writes to random places. Mechanics alone.".into(),
        panels: bars(&all),
        claims,
    })
}

/// Figure 5.
pub(super) fn track_ranges(plan: &Plan) -> Result<Figure, StudyError> {
    let classic = plan.depths("sptf", RangeSize::Sectors(8))?;
    let all = plan.depths("hrs", RangeSize::Track)?;
    let rotation = all.iter().flatten().map(|of| of.rotation_ms.mean).fold(0.0, f64::max);
    let part = |depth: usize| positioning(&all[1][depth]) / positioning(&classic[1][depth]);
    let saved = |depth: usize| positioning(&classic[1][depth]) - positioning(&all[1][depth]);
    let claims = vec![
        Claim::new(
            "With track-sized ranges rotation is gone",
            "0",
            format!(
                "at most {rotation:.2} ms, of {:.1} without ranges",
                classic[1][0].rotation_ms.mean
            ),
            rotation < 0.7,
            [
                "Half a place is left: a track holds 7 to 12 of them, and one passes every 0.9 to 1.6 ms",
                "More than half a place is left",
            ],
        ),
        Claim::new(
            "With few outstanding, positioning in a group is halved",
            "50 %",
            format!(
                "{:.0} and {:.0} % of it with depths of 1 and 2",
                part(0) * 100.0,
                part(1) * 100.0
            ),
            near(part(0), 0.5, 0.1) && near(part(1), 0.5, 0.1),
            [
                "Seek and rotation are about as long in a group, and one of them goes",
                SCATTER,
            ],
        ),
        Claim::new(
            "With a deep queue ranges still help, but less",
            "-",
            format!(
                "{:.1} ms saved with a depth of 1, {:.1} with 16, {:.1} with 64",
                saved(0),
                saved(4),
                saved(6)
            ),
            saved(0) > saved(4) && saved(4) > saved(6) && saved(6) > 0.0,
            ["A deep queue is a choice of its own", SCATTER],
        ),
    ];
    Ok(Figure {
        name: "5",
        title: "Track-sized ranges",
        caption: "4 KiB writes, each free within the track of a random place; hierarchical-range. Mechanics alone."
            .into(),
        panels: bars(&all),
        claims,
    })
}

/// Figure 6.
pub(super) fn group_ranges(plan: &Plan) -> Result<Figure, StudyError> {
    let range = RangeSize::Sectors(GROUP_SECTORS);
    let all = plan.depths("hrs", range)?;
    let tracks = plan.depths("hrs", RangeSize::Track)?;
    let load = Workload {
        range,
        overheads: Overheads::Fixed(Ps::from_ms(OVERHEAD_MS)),
        ..plan.load()
    };
    let real = plan.simulate(&Point { scheduler: "hrs", load })?;
    let worst = all[1].iter().map(positioning).fold(0.0, f64::max);
    let [few, more] = [&tracks, &all].map(|of| of[0][0].service_ms.mean);
    let claims = vec![
        Claim::new(
            "In a group, group-sized ranges leave nothing but transfer",
            "0",
            format!(
                "{worst:.2} ms of positioning; {:.2} with {OVERHEAD_MS} ms before each request",
                positioning(&real)
            ),
            worst < 0.05,
            [
                "The next place is free, too; what is done before a request lets it pass, and the one after it is waited for",
                SCATTER,
            ],
        ),
        Claim::new(
            "On the entire disk group-sized ranges do hardly more than track-sized ones",
            "little",
            format!(
                "{few:.2} -> {more:.2} ms ({:+.0} %), one outstanding",
                change(few, more)
            ),
            change(few, more).abs() < 20.0 && all[0][0].rotation_ms.mean < 0.7,
            [
                "The seek is to another group in both cases; a group is 27 cylinders wide and its near edge is taken",
                "The seek is to the near edge of the range, and a write that ends on its way is nearer",
            ],
        ),
    ];
    Ok(Figure {
        name: "6",
        title: "Group-sized ranges",
        caption: "As Figure 5, but each write is free within 16 MB: from a random place on, or the group.".into(),
        panels: bars(&all),
        claims,
    })
}

/// Figure 7.
pub(super) fn reads(plan: &Plan) -> Result<Figure, StudyError> {
    let shares: Vec<u32> = (0..=10).map(|tenth| tenth * 10).collect();
    let point = |depth, scheduler, range, percent: u32| Point {
        scheduler,
        load: Workload {
            range,
            arrivals: closed(depth),
            reads: f64::from(percent) / 100.0,
            ..plan.load()
        },
    };
    let kinds = [
        ("classic", "sptf", RangeSize::Sectors(8)),
        ("track-sized ranges", "hrs", RangeSize::Track),
    ];
    let series: Vec<(u32, &str, &'static str, RangeSize)> = [1, 16]
        .iter()
        .flat_map(|&depth| kinds.map(|(name, scheduler, range)| (depth, name, scheduler, range)))
        .collect();
    let points: Vec<Point> = series
        .iter()
        .flat_map(|&(depth, _, scheduler, range)| {
            shares
                .iter()
                .map(move |&percent| point(depth, scheduler, range, percent))
        })
        .collect();
    let all = each(&points, |point| plan.simulate(point))?;
    let means: Vec<Vec<f64>> = all
        .chunks(shares.len())
        .map(|of| of.iter().map(|of| of.service_ms.mean).collect())
        .collect();
    let panel = |(depth, pair): (u32, usize)| Panel {
        title: format!("{depth} outstanding"),
        kind: PanelKind::Lines,
        x: ("percent of reads", labels(&shares)),
        y: "ms per operation",
        columns: (0..2)
            .map(|kind| (series[pair + kind].1.to_owned(), means[pair + kind].clone()))
            .collect(),
    };
    let saved = |pair: usize, at: usize| 0.0 - change(means[pair][at], means[pair + 1][at]);
    let shown = |pair: usize| {
        format!(
            "{:.0}, {:.0}, {:.0}, {:.0} %",
            saved(pair, 0),
            saved(pair, 3),
            saved(pair, 5),
            saved(pair, 10)
        )
    };
    let falls =
        |pair: usize| (0..10).all(|at| saved(pair, at) > saved(pair, at + 1) - 1.5) && saved(pair, 10).abs() < 0.5;
    let claims = vec![Claim::new(
        "The more reads, the less ranges help; with few outstanding and half writes still noticeably",
        "-",
        format!(
            "saved with 0, 30, 50, 100 % of reads: {} one outstanding; {} sixteen",
            shown(0),
            shown(2)
        ),
        falls(0) && falls(2) && saved(0, 5) > 10.0,
        ["Reads have no freedom", "With reads, the two differ by chance"],
    )];
    Ok(Figure {
        name: "7",
        title: "Mixing in reads",
        caption: "Random operations of 4 KiB within a block group, track-sized ranges. Mechanics alone, no cache."
            .into(),
        panels: vec![panel((1, 0)), panel((16, 2))],
        claims,
    })
}
