//! Figures 4 to 7: random requests on the drive.
//!
//! Writes are of 4 KiB; a group is 4096 of them at the outer edge of the drive. Figures 4 to 7 count mechanics alone, as the split
//! of the bars of *Range Writes* into seek, rotation and transfer does; where 1.07 ms before each request matter, a
//! claim says so.

use super::claim::{Claim, LITTLE, NONE, SCATTER, TOLERANCE, Verdict, as_much, change, gone, near};
use super::panel::{Column, Mean, Panel, PanelKind, Scale};
use super::plan::{Figure, Plan, StudyError, each};
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

    /// Simulates points with some seeds each.
    pub(super) fn simulate(&self, points: &[Point]) -> Result<Vec<Runs>, StudyError> {
        let of_seed = |seed| move |&Point { scheduler, load }: &Point| (scheduler, Workload { seed, ..load });
        let loads: Vec<(&str, Workload)> = points
            .iter()
            .flat_map(|point| self.seeds().map(move |seed| of_seed(seed)(point)))
            .collect();
        let runs = each(&loads, |(scheduler, load)| {
            let scheduler = scheduler.parse().expect("a scheduler");
            Ok(simulate(&self.drive, scheduler, load, |_| {})?)
        })?;
        Ok(runs
            .chunks(self.seeds().count())
            .map(|runs| Runs(runs.to_vec()))
            .collect())
    }

    /// One panel for each span, and its points, over all depths.
    fn depths(&self, scheduler: &'static str, range: RangeSize) -> Result<[Vec<Runs>; 2], StudyError> {
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
        let mut disk = self.simulate(&points)?;
        let group = disk.split_off(DEPTHS.len());
        Ok([disk, group])
    }
}

/// One point, with some seeds.
#[derive(Debug)]
pub(super) struct Runs(Vec<Summary>);

impl Runs {
    pub(super) fn over(&self, value: impl Fn(&Summary) -> f64) -> Mean {
        Mean::of(&self.0.iter().map(value).collect::<Vec<_>>())
    }

    fn service(&self) -> f64 {
        self.over(|of| of.service_ms.mean).mean
    }

    fn seek(&self) -> f64 {
        self.over(|of| of.seek_ms.mean).mean
    }

    fn rotation(&self) -> f64 {
        self.over(|of| of.rotation_ms.mean).mean
    }

    fn positioning(&self) -> f64 {
        self.seek() + self.rotation()
    }
}

fn closed(depth: u32) -> Arrivals {
    Arrivals::Closed {
        depth,
        pick: Moment::Before,
    }
}

fn bars(of: &[Vec<Runs>; 2]) -> Vec<Panel> {
    let parts = |of: &[Runs]| {
        let part = |name: &str, value: fn(&Summary) -> f64| Column::of(name, of.iter().map(|of| of.over(value)));
        let mut parts = vec![
            part("seek", |of| of.seek_ms.mean),
            part("rotation", |of| of.rotation_ms.mean),
            part("transfer", |of| of.transfer_ms.mean),
        ];
        parts[2].intervals = part("whole", |of| of.service_ms.mean).intervals;
        parts
    };
    let panel = |((title, _), of): (&(&str, Span), &Vec<Runs>)| {
        Panel::new(
            *title,
            PanelKind::Stacked,
            ("outstanding requests", &DEPTHS),
            "time per write (ms)",
        )
        .with(parts(of))
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
    let all = plan.simulate(&points)?;
    let service = |of: &[Runs]| of.iter().map(|of| of.over(|of| of.service_ms.mean)).collect::<Vec<_>>();
    let of_size = |(size, of): (&u64, &[Runs])| Column::of(format!("{size} sectors"), service(of));
    let (one, many) = (all[0].service(), all[all.len() - 1].service());
    let claims = vec![Claim::new(
        "A write with one target takes more than 12 ms, one with 64 targets of about 100 sectors about 4",
        "over 12 ms, roughly 4 ms (section 3, on several ranges)",
        format!("{one:.2} -> {many:.2} ms"),
        Verdict::together([(one > 12.0 && near(one, 12.0, TOLERANCE)).into(), as_much(many, 4.0)]),
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
            scale: Scale::Log,
            ..Panel::new(
                "block group",
                PanelKind::Lines,
                ("targets", &counts),
                "time per write (ms)",
            )
            .with(sizes.iter().zip(all.chunks(counts.len())).map(of_size).collect())
        }],
        claims,
    })
}

/// Figure 4.
pub(super) fn classic(plan: &Plan) -> Result<Figure, StudyError> {
    let all = plan.depths("sptf", RangeSize::Sectors(8))?;
    let mean = |span: usize, depth: usize| all[span][depth].service();
    let claims = vec![
        Claim::new(
            "A depth of two is no better than one",
            "no better (Figure 4)",
            format!(
                "{:.2} and {:.2} ms on the disk, {:.2} and {:.2} in the group",
                mean(0, 0),
                mean(0, 1),
                mean(1, 0),
                mean(1, 1)
            ),
            (0..2).all(|span| change(mean(span, 0), mean(span, 1)).abs() <= NONE),
            [
                "The scheduler picks when a request completes and before the host's replacement has come, so of two it chooses among one; a drive that is refilled first gains from two",
                "The means scatter by more than a percent",
            ],
        ),
        Claim::new(
            "With 64 outstanding, positioning is much shorter but not gone",
            "no number (Figure 4)",
            format!(
                "{:.1} -> {:.1} ms on the disk, {:.1} -> {:.1} in the group",
                all[0][0].positioning(),
                all[0][6].positioning(),
                all[1][0].positioning(),
                all[1][6].positioning()
            ),
            all.iter()
                .all(|of| of[6].positioning() < of[0].positioning() / 1.9 && of[6].positioning() > 2.0),
            ["The nearest of 63 is still some milliseconds away", SCATTER],
        ),
        Claim::new(
            "Locality shortens seeks and leaves rotation as it is",
            "no number (Figure 4)",
            format!(
                "seek {:.1} -> {:.1} ms, rotation {:.1} -> {:.1}, one outstanding",
                all[0][0].seek(),
                all[1][0].seek(),
                all[0][0].rotation(),
                all[1][0].rotation()
            ),
            all[1][0].seek() < all[0][0].seek() / 2.0 && near(all[1][0].rotation(), all[0][0].rotation(), 0.1),
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
    let rotation = all.iter().flatten().map(Runs::rotation).fold(0.0, f64::max);
    let unfree = classic[1][0].rotation();
    let part = |depth: usize| all[1][depth].positioning() / classic[1][depth].positioning();
    let saved = |depth: usize| classic[1][depth].positioning() - all[1][depth].positioning();
    let claims = vec![
        Claim::new(
            "With track-sized ranges rotation is gone",
            "eliminated (Figure 5)",
            format!("at most {rotation:.2} ms, of {unfree:.1} without ranges"),
            gone(rotation, unfree),
            [
                "Half a place is left: a track holds 7 to 12 of them, and one passes every 0.9 to 1.6 ms",
                "More than half a place is left",
            ],
        ),
        Claim::new(
            "With few outstanding, positioning in a group is halved",
            "halved (Figure 5)",
            format!(
                "{:.0} and {:.0} % of it with depths of 1 and 2",
                part(0) * 100.0,
                part(1) * 100.0
            ),
            Verdict::together([0, 1].map(|depth| as_much(part(depth), 0.5))),
            [
                "Seek and rotation are about as long in a group, and one of them goes",
                SCATTER,
            ],
        ),
        Claim::new(
            "With a deep queue ranges still help, but less",
            "no number (Figure 5)",
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
    let real = plan.simulate(&[Point { scheduler: "hrs", load }])?[0].positioning();
    let classic = plan.depths("sptf", RangeSize::Sectors(8))?;
    let worst = all[1].iter().map(Runs::positioning).fold(0.0, f64::max);
    let [few, more] = [&tracks, &all].map(|of| of[0][0].service());
    let claims = vec![
        Claim::new(
            "In a group, group-sized ranges leave nothing but transfer",
            "essentially no positioning (Figure 6)",
            format!("{worst:.2} ms of positioning; {real:.2} with {OVERHEAD_MS} ms before each request"),
            worst < 0.05,
            [
                "The next place is free, too; what is done before a request lets it pass, and the one after it is waited for",
                SCATTER,
            ],
        ),
        Claim::new(
            "On the entire disk group-sized ranges do hardly more than track-sized ones",
            "little difference (Figure 6)",
            format!(
                "{few:.2} -> {more:.2} ms ({:+.0} %), one outstanding",
                change(few, more)
            ),
            Verdict::together([
                (change(few, more).abs() < LITTLE).into(),
                gone(all[0][0].rotation(), classic[0][0].rotation()),
            ]),
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
    let all = plan.simulate(&points)?;
    let means: Vec<Vec<f64>> = all
        .chunks(shares.len())
        .map(|of| of.iter().map(Runs::service).collect())
        .collect();
    let shown = |series: usize| {
        let of = all.chunks(shares.len()).nth(series).expect("one of them");
        of.iter().map(|of| of.over(|of| of.service_ms.mean)).collect::<Vec<_>>()
    };
    let panel = |(depth, pair): (u32, usize)| Panel {
        scale: Scale::Linear,
        ..Panel::new(
            format!("{depth} outstanding"),
            PanelKind::Lines,
            ("reads (percent of operations)", &shares),
            "time per operation (ms)",
        )
        .with(
            (0..2)
                .map(|kind| Column::of(series[pair + kind].1, shown(pair + kind)))
                .collect(),
        )
    };
    let saved = |pair: usize, at: usize| 0.0 - change(means[pair][at], means[pair + 1][at]);
    let gains = |pair: usize| {
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
        "no number (Figure 7)",
        format!(
            "saved with 0, 30, 50, 100 % of reads: {} one outstanding; {} sixteen",
            gains(0),
            gains(2)
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
